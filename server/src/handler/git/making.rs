//! A page under making: git is asked for what it shows, in a place among those that are made at a time.

use super::html::Html;
use super::meant::{ARCHIVE_ENDING, Meant};
use super::pages::OfPages;
use super::place::Place;
use super::readers::{Download, Place as DownloadPlace, Work};
use super::reading::{Command, For, From, Reading};
use super::said_by_git::{self as said, Hidden, Kind, Ref};
use super::sent::{FILE_POLICY, PAGE_POLICY, README_POLICY, fields, html, owned, refused, whole};
use super::shown::{Log, Summary, about, atom, refs};
use super::shown_diff::Difference;
use super::tag::Tag;
use super::wanted_page::{Aspect, Id, WantedPage};
use super::{plain, readme, shown_diff, shown_tree};
use crate::handler::exchange::Collected;
use crate::handler::slots::Slot;
use crate::handler::{Fault, Response};
use crate::limits::{
    GIT_FEED_ENTRIES, GIT_FILE_BYTES_MAX, GIT_LOG_COMMITS, GIT_PAGE_BYTES_MAX,
    GIT_README_BYTES_MAX, GIT_REFS_MAX, GIT_SUMMARY_LINES,
};
use crate::wire::cgi::Document;
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use std::sync::Arc;

/// A page under making.
pub(super) struct Making {
    pub(super) reading: Reading,
    pub(super) own: Arc<OfPages>,
    pub(super) wanted: WantedPage,
    pub(super) place: Place,
    /// What the repository's configuration hides.
    pub(super) hidden: Hidden,
}

impl Making {
    /// The response.
    pub(super) async fn answer(mut self, tag: Tag) -> Result<Response, Fault> {
        if self.wanted.is_immutable() {
            // Its address says which state it has.
            let tagged = tag.done().for_ever();
            let is_known = tagged.is_known(&self.reading.asked.fields);
            if is_known && !self.reading.repository.may_hide {
                return Ok(tagged.not_modified());
            }
            let slot = self.begin().await?;
            if is_known {
                return Ok(tagged.not_modified());
            }
            let meant = self.meant().await?;
            let response = self.made(meant, slot).await?;
            return Ok(tagged.on(response));
        }
        let slot = self.begin().await?;
        if matches!(self.wanted.aspect, Aspect::Summary | Aspect::Refs) {
            return self.of_refs(tag, slot).await;
        }
        let meant = self.meant().await?;
        let digits = |id: &Option<Id>| id.as_ref().map_or("", Id::digits).to_owned();
        let tag = tag.with(digits(&meant.commit).as_bytes());
        let tag = tag.with(digits(&meant.other).as_bytes());
        let tagged = tag.with(&self.place.description).done();
        if tagged.is_known(&self.reading.asked.fields) {
            return Ok(tagged.not_modified());
        }
        Ok(tagged.on(self.made(meant, slot).await?))
    }

    /// Is git to be asked for this address? Then it has a place, and it is known what is hidden.
    async fn begin(&mut self) -> Result<Slot, Fault> {
        let peer = self.reading.asked.peer;
        let (readers, own) = (&self.own.readers, &self.own);
        let light = readers.ask(peer, Work::Light, own.pages_per_minute);
        let heavy = match self.wanted.is_heavy() {
            true => readers.may_ask(peer, Work::Heavy, own.heavy_per_minute),
            false => Ok(()),
        };
        // Of both it is the longer time that counts.
        if let Some(why) = light.err().max(heavy.err()) {
            return Err(readers.refused(why));
        }
        let slot = self.enter(Work::Light).await?;
        self.hidden = self.hidden().await?;
        Ok(slot)
    }

    async fn enter(&self, work: Work) -> Result<Slot, Fault> {
        let reading = &self.reading;
        let queue = reading.settings.bounds.queue;
        let readers = &self.own.readers;
        readers.enter(work, reading.asked.peer, queue).await
    }

    async fn download(&self, what: Download) -> Result<DownloadPlace, Fault> {
        let reading = &self.reading;
        let queue = reading.settings.bounds.queue;
        let readers = &self.own.readers;
        readers.download(what, reading.asked.peer, queue).await
    }

    /// The pages that show what branches and tags there are.
    async fn of_refs(&self, tag: Tag, _slot: Slot) -> Result<Response, Fault> {
        let said = self
            .refs(&[b"refs/heads/", b"refs/tags/"], Some(GIT_REFS_MAX))
            .await?;
        let all = said.all();
        let commit = match (&self.wanted.aspect, &self.wanted.id, &self.wanted.head) {
            (Aspect::Refs, _, _) => None,
            (_, Some(id), _) => Some(self.commit(id).await?),
            (_, None, Some(name)) => Some(self.of_name(name).await?),
            (_, None, None) => self.head_among(&all).await?,
        };
        let digits = commit.as_ref().map_or("", Id::digits);
        let is_cut = said.is_cut(GIT_REFS_MAX);
        // What is shown, and not what git said: that has what is hidden.
        let tag = all.iter().fold(tag, tagged_by);
        let tag = tag.with(&[u8::from(is_cut)]).with(digits.as_bytes());
        let tagged = tag.with(&self.place.description).done();
        if tagged.is_known(&self.reading.asked.fields) {
            return Ok(tagged.not_modified());
        }
        if self.wanted.aspect == Aspect::Refs {
            return Ok(tagged.on(html(refs(&self.place, &all, is_cut), PAGE_POLICY)));
        }
        let mut listed = Vec::new();
        let mut readme = None;
        if let Some(commit) = &commit {
            listed = self.log(commit, b"", 0, GIT_SUMMARY_LINES).await?.bytes;
            readme = self.readme(commit).await?;
        }
        let commits = said::commits(&listed);
        let summary = Summary {
            place: &self.place,
            refs: &all,
            commits: &commits,
            readme,
            at: commit.as_ref(),
        };
        Ok(tagged.on(html(summary.page(), README_POLICY)))
    }

    /// The page, once it is known which commits it is of.
    async fn made(&self, meant: Meant, slot: Slot) -> Result<Response, Fault> {
        let Some(commit) = &meant.commit else {
            return Ok(self.empty());
        };
        let is_heavy = self.wanted.is_heavy();
        let peer = self.reading.asked.peer;
        let per_minute = self.own.heavy_per_minute;
        if is_heavy {
            let readers = &self.own.readers;
            let asked = readers.ask(peer, Work::Heavy, per_minute);
            asked.map_err(|why| readers.refused(why))?;
        }
        let _slot = match &self.wanted.aspect {
            Aspect::Plain(path) => return self.plain(commit, path, slot).await,
            Aspect::Snapshot(name) => {
                drop(slot);
                return self.snapshot(commit, name).await;
            }
            _ if is_heavy => {
                drop(slot);
                self.enter(Work::Heavy).await?
            }
            _ => slot,
        };
        self.shown(commit, meant.other.as_ref()).await
    }

    /// The same, where there is a place for it.
    async fn shown(&self, commit: &Id, other: Option<&Id>) -> Result<Response, Fault> {
        let place = &self.place;
        match &self.wanted.aspect {
            Aspect::Log(path) => {
                let offset = self.wanted.offset;
                let said = self.log(commit, path, offset, GIT_LOG_COMMITS + 1).await?;
                let commits = said::commits(&said.bytes);
                let log = Log {
                    place,
                    path,
                    offset,
                    commits: &commits,
                };
                Ok(html(log.page(), PAGE_POLICY))
            }
            Aspect::About => {
                let readme = self.readme(commit).await?;
                Ok(html(about(place, readme), README_POLICY))
            }
            Aspect::Atom => {
                let said = self.log(commit, b"", 0, GIT_FEED_ENTRIES).await?;
                let commits = said::commits(&said.bytes);
                let branch = place.head.as_deref().unwrap_or_default();
                let feed = atom(place, branch, &commits).into_bytes();
                Ok(whole(
                    "application/atom+xml; charset=utf-8",
                    feed,
                    FILE_POLICY,
                ))
            }
            Aspect::Tree(path) => self.tree(commit, path).await,
            Aspect::Commit => self.of_commit(commit).await,
            Aspect::Diff(path) => self.diff(commit, other, path).await,
            Aspect::Plain(_) | Aspect::Snapshot(_) | Aspect::Summary | Aspect::Refs => {
                Err(refused(Reject::NOT_FOUND))
            }
        }
    }

    /// A page of a repository without commits.
    fn empty(&self) -> Response {
        let place = &self.place;
        match &self.wanted.aspect {
            Aspect::Tree(_) => html(shown_tree::folder(place, b"", &[], false), PAGE_POLICY),
            Aspect::Atom => {
                let feed = atom(place, b"", &[]).into_bytes();
                whole("application/atom+xml; charset=utf-8", feed, FILE_POLICY)
            }
            Aspect::About => html(about(place, None), PAGE_POLICY),
            _ => {
                let log = Log {
                    place,
                    path: b"",
                    offset: 0,
                    commits: &[],
                };
                html(log.page(), PAGE_POLICY)
            }
        }
    }

    async fn log(
        &self,
        commit: &Id,
        path: &[u8],
        offset: u64,
        count: usize,
    ) -> Result<Collected, Fault> {
        let (count, skip) = (format!("--max-count={count}"), format!("--skip={offset}"));
        let mut command = Command::new(&["log"]);
        for option in
            LOG_OPTIONS
                .iter()
                .chain(&[said::COMMIT_FORMAT, &count, &skip, commit.digits(), "--"])
        {
            command = command.with(option.as_bytes());
        }
        if !path.is_empty() {
            command = command.with(path);
        }
        let from = From::objects_of(commit);
        self.reading
            .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
            .await
    }

    async fn readme(&self, commit: &Id) -> Result<Option<Html>, Fault> {
        let question = readme::NAMES.map(|name| format!("{}:{name}\n", commit.digits()));
        let command = Command::new(&["cat-file", "--batch"]);
        let question = question.concat().into_bytes();
        let from = From::objects_of(commit);
        // Of the others, as much as the first leaves.
        let said = self
            .reading
            .collect(from, command, question, GIT_README_BYTES_MAX + 4_096)
            .await?;
        let (place, commit) = (self.place.clone(), commit.clone());
        // Off the worker: a text may be made to take long.
        let render = move || {
            let all = said::contents(&said.bytes);
            Ok(all.first().map(|(nth, content)| {
                let name = readme::NAMES[(*nth).min(readme::NAMES.len() - 1)];
                readme::rendered(&place, &commit, name, content)
            }))
        };
        self.own.readers.work(render).await
    }

    /// What lies at a path, and what is in it if that is a folder.
    async fn entries(&self, commit: &Id, path: &[u8]) -> Result<Collected, Fault> {
        let mut command =
            Command::new(&["ls-tree", "-z", "-l", "-t", "--full-tree", commit.digits()]);
        if !path.is_empty() {
            command = command.with(b"--").with(path).with(&[path, b"/"].concat());
        }
        let from = From::objects_of(commit);
        self.reading
            .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
            .await
    }

    async fn tree(&self, commit: &Id, path: &[u8]) -> Result<Response, Fault> {
        let said = self.entries(commit, path).await?;
        let all = said::entries(&said.bytes);
        let own = all.iter().find(|entry| entry.path == path);
        let Some(entry) = own.filter(|_| !path.is_empty()) else {
            return match path.is_empty() {
                true => Ok(html(
                    shown_tree::folder(&self.place, b"", &all, said.is_cut),
                    PAGE_POLICY,
                )),
                false => Err(refused(Reject::NOT_FOUND)),
            };
        };
        match entry.kind {
            Kind::Submodule => {
                let page = shown_tree::file(&self.place, entry, b"", false);
                Ok(html(page, PAGE_POLICY))
            }
            Kind::Tree => {
                let is_in = |it: &said::Entry<'_>| {
                    let name = it
                        .path
                        .strip_prefix(path)
                        .and_then(|it| it.strip_prefix(b"/"));
                    name.is_some_and(|name| !name.contains(&b'/'))
                };
                let inner: Vec<_> = all.iter().filter(|it| is_in(it)).cloned().collect();
                Ok(html(
                    shown_tree::folder(&self.place, path, &inner, said.is_cut),
                    PAGE_POLICY,
                ))
            }
            Kind::File { .. } | Kind::Link => {
                let command = Command::new(&["cat-file", "blob", entry.id.digits()]);
                let from = From::objects_of(commit);
                let content = match plain::image(path) {
                    Some(_) if entry.kind != Kind::Link => Collected {
                        bytes: Vec::new(),
                        is_cut: false,
                    },
                    _ => {
                        self.reading
                            .collect(from, command, Vec::new(), GIT_FILE_BYTES_MAX)
                            .await?
                    }
                };
                let page = shown_tree::file(&self.place, entry, &content.bytes, content.is_cut);
                Ok(html(page, PAGE_POLICY))
            }
        }
    }

    async fn plain(&self, commit: &Id, path: &[u8], slot: Slot) -> Result<Response, Fault> {
        let said = self.entries(commit, path).await?;
        let all = said::entries(&said.bytes);
        let own = all
            .iter()
            .find(|entry| entry.path == path && !path.is_empty());
        let is_file = |kind| matches!(kind, Kind::File { .. } | Kind::Link);
        let entry = own.filter(|entry| is_file(entry.kind));
        let entry = entry.ok_or(refused(Reject::NOT_FOUND))?;
        drop(slot);
        let slots = self.download(Download::File).await?;
        let command = Command::new(&["cat-file", "blob", entry.id.digits()]);
        let from = From::objects_of(commit);
        let reading = &self.reading;
        let exchange = reading.start(from, command, Vec::new(), For::File).await?;
        let exchange = exchange.with_slots(slots);
        let head = |beginning: &[u8]| Document {
            status: Status::OK.into(),
            fields: owned(fields(plain::content_type(path, beginning), FILE_POLICY)),
            length: entry.size,
        };
        exchange.send_on(head).await
    }

    async fn of_commit(&self, commit: &Id) -> Result<Response, Fault> {
        let mut command = Command::new(&["log", "--no-walk", "-m", "--first-parent"]);
        for option in LOG_OPTIONS.iter().chain(&PATCH_OPTIONS).chain(&[
            said::WHOLE_COMMIT_FORMAT,
            commit.digits(),
            "--",
        ]) {
            command = command.with(option.as_bytes());
        }
        let all = self.patch(command, None, commit, b"").await?;
        let whole = said::commit(&all[0].bytes).ok_or(refused(Reject::SCRIPT_FAILED))?;
        let difference = difference(whole.patch, &all);
        let page = shown_diff::commit(&self.place, &whole, &difference);
        Ok(html(page, PAGE_POLICY))
    }

    async fn diff(&self, commit: &Id, other: Option<&Id>, path: &[u8]) -> Result<Response, Fault> {
        let parent;
        let other = match other {
            Some(other) => other,
            None => {
                let said = self.log(commit, b"", 0, 1).await?;
                let parents = said::commits(&said.bytes).into_iter().next();
                let first = parents.and_then(|it| it.parents.into_iter().next());
                let Some(first) = first else {
                    return self.of_commit(commit).await;
                };
                parent = first;
                &parent
            }
        };
        let command = diff_tree(&[], &PATCH_OPTIONS, Some(other), commit, path);
        let all = self.patch(command, Some(other), commit, path).await?;
        let difference = difference(&all[0].bytes, &all);
        let page = shown_diff::between(&self.place, other, commit, path, &difference);
        Ok(html(page, PAGE_POLICY))
    }

    /// Runs a git command that prints a patch at its end. If a page cannot show the whole patch, a
    /// second run of git, within the same bounds of time and memory, counts the changed lines of each
    /// file; the counts are empty where the second run fails. Without `before` the command is a `log`
    /// of the commit `after`.
    async fn patch(
        &self,
        command: Command,
        before: Option<&Id>,
        after: &Id,
        path: &[u8],
    ) -> Result<[Collected; 2], Fault> {
        let from = From::objects_of(after);
        let collect = |command| {
            let reading = &self.reading;
            reading.collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
        };
        let said = collect(command).await?;
        let mut counted = Collected {
            bytes: Vec::new(),
            is_cut: false,
        };
        if said.is_cut || said::is_too_long(&said.bytes) {
            let parent = match before {
                Some(_) => None,
                None => said::commit(&said.bytes).and_then(|it| it.parents.into_iter().next()),
            };
            let numbers = ["-z", "--numstat", "--no-commit-id"];
            let before = before.or(parent.as_ref());
            // The first option of PATCH_OPTIONS is `-p`; the count needs no patch.
            let command = diff_tree(&numbers, &PATCH_OPTIONS[1..], before, after, path);
            match collect(command).await {
                Ok(numbers) => counted = numbers,
                Err(fault) => fault.log(),
            }
        }
        Ok([said, counted])
    }

    async fn snapshot(&self, commit: &Id, name: &[u8]) -> Result<Response, Fault> {
        let base = name.strip_suffix(ARCHIVE_ENDING).unwrap_or(name);
        let base: String = String::from_utf8_lossy(base)
            .chars()
            .map(|it| {
                if it == '/' || it.is_control() {
                    '-'
                } else {
                    it
                }
            })
            .collect();
        let slots = self.download(Download::Snapshot).await?;
        let prefix = format!("--prefix={base}/");
        let command = Command::new(&["archive", "--format=tar.gz", &prefix, commit.digits()]);
        let from = From::objects_of(commit);
        let reading = &self.reading;
        let exchange = reading
            .start(from, command, Vec::new(), For::Snapshot)
            .await?
            .with_slots(slots);
        let is_plain = |it: &char| it.is_ascii_alphanumeric() || "._-+".contains(*it);
        let file: String = base.chars().filter(is_plain).collect();
        let mut fields = owned(fields("application/gzip", FILE_POLICY));
        let disposition = format!("attachment; filename=\"{file}.tar.gz\"").into_bytes();
        fields.push(("Content-Disposition".to_owned(), disposition));
        let head = |_: &[u8]| Document {
            status: Status::OK.into(),
            fields,
            length: None,
        };
        exchange.send_on(head).await
    }
}

/// The command `git diff-tree` for the commits `before` and `after`; without `before`, for `after` and
/// an empty tree.
fn diff_tree(
    first: &[&str],
    options: &[&str],
    before: Option<&Id>,
    after: &Id,
    path: &[u8],
) -> Command {
    let mut command = Command::new(&["diff-tree", "-r"]);
    for option in first.iter().chain(options) {
        command = command.with(option.as_bytes());
    }
    for id in before.into_iter().chain([after]) {
        command = command.with(id.digits().as_bytes());
    }
    command = command.with(b"--");
    match path.is_empty() {
        true => command,
        false => command.with(path),
    }
}

fn difference<'d>(patch: &'d [u8], [said, counted]: &'d [Collected; 2]) -> Difference<'d> {
    Difference {
        patch,
        is_cut: said.is_cut,
        counted: &counted.bytes,
        is_counted_in_part: counted.is_cut,
    }
}

/// All that a page says of a branch or tag.
fn tagged_by(tag: Tag, it: &Ref<'_>) -> Tag {
    let (is_head, may_be_commit) = (u8::from(it.is_head), u8::from(it.may_be_commit));
    tag.with(it.name)
        .with(it.id.digits().as_bytes())
        .with(&[is_head, may_be_commit])
        .with(it.date)
        .with(it.subject)
}

/// For `log`, in any version of git.
const LOG_OPTIONS: [&str; 6] = [
    "--no-color",
    "--no-decorate",
    "--no-notes",
    "--no-mailmap",
    "--no-show-signature",
    "--encoding=UTF-8",
];
/// For whatever shows a difference.
const PATCH_OPTIONS: [&str; 9] = [
    "-p",
    "-M",
    "-l200",
    "--root",
    "--no-ext-diff",
    "--no-textconv",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
];
