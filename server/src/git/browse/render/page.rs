//! Generation of a page from the output of git, within the limit on concurrent pages.

use crate::git::browse::etag::EtagBuilder;
use crate::git::browse::limiter::{BrowseSlots, BrowseWork, PageCost};
use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse::{self, EntryKind, HiddenRefs, Ref};
use crate::git::browse::render::commit::DiffOutput;
use crate::git::browse::render::history::{LogPage, SummaryPage, about, atom, refs};
use crate::git::browse::render::html::Html;
use crate::git::browse::render::{commit, content_type, readme, tree};
use crate::git::browse::response::{
    FILE_POLICY, LOG_POLICY, PAGE_POLICY, README_POLICY, fields, html, refused, whole,
};
use crate::git::browse::rev_parse::{
    ARCHIVE_ENDING, ResolvedRevisions, RevisionResolver, hidden_refs,
};
use crate::git::browse::run::{GitCommand, GitRunner, GitSource, OutputUse};
use crate::git::browse::settings::BrowseSettings;
use crate::git::browse::url::{ObjectId, PageKind, PageUrl};
use crate::git::limits::{
    GIT_FEED_ENTRIES, GIT_FILE_BYTES_MAX, GIT_LOG_COMMITS, GIT_PAGE_BYTES_MAX,
    GIT_README_BYTES_MAX, GIT_REFS_MAX, GIT_SUMMARY_LINES,
};
use data_plane::handler::call::script_call::CollectedOutput;
use data_plane::handler::{HandlerError, Response};
use data_plane::site::README_NAMES;
use std::sync::Arc;
use wire::cgi::CgiDocument;
use wire::reject::Reject;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// State of a page's generation.
pub(in crate::git) struct PageBuilder {
    pub(in crate::git) git: GitRunner,
    pub(in crate::git) settings: Arc<BrowseSettings>,
    pub(in crate::git) url: PageUrl,
    pub(in crate::git) location: PageLocation,
    /// Refs hidden by the repository's configuration.
    pub(in crate::git) hidden: HiddenRefs,
}

impl PageBuilder {
    /// Returns the response.
    pub(in crate::git) async fn answer(
        mut self,
        tag: EtagBuilder,
    ) -> Result<Response, HandlerError> {
        if self.url.is_immutable() {
            // The address identifies the state of the page.
            let validator = tag.done().for_ever();
            let is_known = validator.is_known(&self.git.request.fields);
            if is_known && !self.git.repository.may_hide {
                return Ok(validator.not_modified());
            }
            let slot = self.begin().await?;
            if is_known {
                return Ok(validator.not_modified());
            }
            let revisions = self.resolver().resolve().await?;
            let response = self.page_of_revisions(revisions, slot).await?;
            return Ok(validator.on(response));
        }
        let slot = self.begin().await?;
        if matches!(self.url.aspect, PageKind::Summary | PageKind::Refs) {
            return self.refs_page(tag, slot).await;
        }
        let revisions = self.resolver().resolve().await?;
        let digits = |id: &Option<ObjectId>| id.as_ref().map_or("", ObjectId::digits).to_owned();
        let tag = tag.with(digits(&revisions.commit).as_bytes());
        let tag = tag.with(digits(&revisions.other).as_bytes());
        let validator = tag.with(&self.location.description).done();
        if validator.is_known(&self.git.request.fields) {
            return Ok(validator.not_modified());
        }
        Ok(validator.on(self.page_of_revisions(revisions, slot).await?))
    }

    /// Checks the rate limits, waits for a slot, and reads the rules for hidden refs. Called before the
    /// page queries git.
    async fn begin(&mut self) -> Result<BrowseSlots, HandlerError> {
        let peer = self.git.request.peer;
        let settings = &self.settings;
        let limiter = &settings.limiter;
        let light = limiter.count_request(peer, PageCost::Light, settings.pages_per_minute);
        let heavy = if self.url.is_heavy() {
            limiter.check_rate(peer, PageCost::Heavy, settings.heavy_per_minute)
        } else {
            Ok(())
        };
        // The longer of the two waiting times counts.
        if let Some(why) = light.err().max(heavy.err()) {
            return Err(limiter.refused(why));
        }
        let slot = self.enter(BrowseWork::Page(PageCost::Light)).await?;
        self.hidden = hidden_refs(&self.git).await?;
        Ok(slot)
    }

    async fn enter(&self, work: BrowseWork) -> Result<BrowseSlots, HandlerError> {
        let queue = self.git.settings.bounds.queue;
        let limiter = &self.settings.limiter;
        limiter.enter(work, self.git.request.peer, queue).await
    }

    fn resolver(&self) -> RevisionResolver<'_> {
        RevisionResolver {
            git: &self.git,
            url: &self.url,
            hidden: &self.hidden,
        }
    }

    /// Returns a page that lists branches and tags.
    async fn refs_page(
        &self,
        tag: EtagBuilder,
        _slot: BrowseSlots,
    ) -> Result<Response, HandlerError> {
        let resolver = self.resolver();
        let output = resolver
            .list_refs(&[b"refs/heads/", b"refs/tags/"], Some(GIT_REFS_MAX))
            .await?;
        let all = output.all();
        let commit = match (&self.url.aspect, &self.url.id, &self.url.head) {
            (PageKind::Refs, _, _) => None,
            (_, Some(id), _) => Some(resolver.commit(id).await?),
            (_, None, Some(name)) => Some(resolver.resolve_name(name).await?),
            (_, None, None) => resolver.head_among(&all).await?,
        };
        let digits = commit.as_ref().map_or("", ObjectId::digits);
        let is_cut = output.is_cut(GIT_REFS_MAX);
        // The ETag covers the visible refs only, because git's output also contains hidden refs.
        let tag = all.iter().fold(tag, with_ref);
        let tag = tag.with(&[u8::from(is_cut)]).with(digits.as_bytes());
        let validator = tag.with(&self.location.description).done();
        if validator.is_known(&self.git.request.fields) {
            return Ok(validator.not_modified());
        }
        if self.url.aspect == PageKind::Refs {
            return Ok(validator.on(html(refs(&self.location, &all, is_cut), PAGE_POLICY)));
        }
        let mut listed = Vec::new();
        let mut readme = None;
        if let Some(commit) = &commit {
            listed = self.log(commit, b"", 0, GIT_SUMMARY_LINES).await?.bytes;
            readme = self.readme(commit).await?;
        }
        let commits = parse::commits(&listed);
        let summary = SummaryPage {
            location: &self.location,
            refs: &all,
            commits: &commits,
            readme,
            at: commit.as_ref(),
        };
        Ok(validator.on(html(summary.page(), README_POLICY)))
    }

    /// Returns the page for resolved commits.
    async fn page_of_revisions(
        &self,
        revisions: ResolvedRevisions,
        slot: BrowseSlots,
    ) -> Result<Response, HandlerError> {
        let Some(commit) = &revisions.commit else {
            return Ok(self.empty());
        };
        let is_heavy = self.url.is_heavy();
        let peer = self.git.request.peer;
        let per_minute = self.settings.heavy_per_minute;
        if is_heavy {
            let limiter = &self.settings.limiter;
            let asked = limiter.count_request(peer, PageCost::Heavy, per_minute);
            asked.map_err(|why| limiter.refused(why))?;
        }
        let _slot = match &self.url.aspect {
            PageKind::Plain(path) => return self.plain(commit, path, slot).await,
            PageKind::Snapshot(name) => {
                drop(slot);
                return self.snapshot(commit, name).await;
            }
            PageKind::Patch => {
                drop(slot);
                return self.send_patch(commit).await;
            }
            _ if is_heavy => {
                drop(slot);
                self.enter(BrowseWork::Page(PageCost::Heavy)).await?
            }
            _ => slot,
        };
        self.render(commit, revisions.other.as_ref()).await
    }

    /// Returns the page once the page has a slot.
    async fn render(
        &self,
        commit: &ObjectId,
        other: Option<&ObjectId>,
    ) -> Result<Response, HandlerError> {
        let location = &self.location;
        match &self.url.aspect {
            PageKind::Log(path) => {
                let offset = self.url.offset;
                let output = self.log(commit, path, offset, GIT_LOG_COMMITS + 1).await?;
                let commits = parse::commits(&output.bytes);
                let log = LogPage {
                    location,
                    path,
                    offset,
                    search: self.url.search.as_ref(),
                    commits: &commits,
                };
                Ok(html(log.page(), LOG_POLICY))
            }
            PageKind::About => {
                let readme = self.readme(commit).await?;
                Ok(html(about(location, readme), README_POLICY))
            }
            PageKind::Atom => {
                let output = self.log(commit, b"", 0, GIT_FEED_ENTRIES).await?;
                let commits = parse::commits(&output.bytes);
                let branch = location.head.as_deref().unwrap_or_default();
                let feed = atom(location, branch, &commits).into_bytes();
                Ok(whole(
                    "application/atom+xml; charset=utf-8",
                    feed,
                    FILE_POLICY,
                ))
            }
            PageKind::Tree(path) => self.tree(commit, path).await,
            PageKind::Commit => self.commit_page(commit).await,
            PageKind::Diff(path) => self.diff(commit, other, path).await,
            PageKind::Plain(_)
            | PageKind::Snapshot(_)
            | PageKind::Patch
            | PageKind::Summary
            | PageKind::Refs => Err(refused(Reject::NOT_FOUND)),
        }
    }

    /// Returns a page of a repository without commits.
    fn empty(&self) -> Response {
        let location = &self.location;
        match &self.url.aspect {
            PageKind::Tree(_) => html(tree::folder(location, b"", &[], false), PAGE_POLICY),
            PageKind::Atom => {
                let feed = atom(location, b"", &[]).into_bytes();
                whole("application/atom+xml; charset=utf-8", feed, FILE_POLICY)
            }
            PageKind::About => html(about(location, None), PAGE_POLICY),
            _ => {
                let log = LogPage {
                    location,
                    path: b"",
                    offset: 0,
                    search: None,
                    commits: &[],
                };
                html(log.page(), LOG_POLICY)
            }
        }
    }

    async fn log(
        &self,
        commit: &ObjectId,
        path: &[u8],
        offset: u64,
        count: usize,
    ) -> Result<CollectedOutput, HandlerError> {
        let (count, skip) = (format!("--max-count={count}"), format!("--skip={offset}"));
        let mut command = GitCommand::new(&["log"]);
        if let Some(search) = &self.url.search {
            let word = search.part.word();
            let text = [b"--", word.as_bytes(), b"=", search.text.as_slice()].concat();
            command = command.with(b"-i").with(b"-F").with(&text);
        }
        for option in
            LOG_OPTIONS
                .iter()
                .chain(&[parse::COMMIT_FORMAT, &count, &skip, commit.digits(), "--"])
        {
            command = command.with(option.as_bytes());
        }
        if !path.is_empty() {
            command = command.with(path);
        }
        let from = GitSource::objects_of(commit);
        self.git
            .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
            .await
    }

    async fn readme(&self, commit: &ObjectId) -> Result<Option<Html>, HandlerError> {
        let input = README_NAMES.map(|name| format!("{}:{name}\n", commit.digits()));
        let command = GitCommand::new(&["cat-file", "--batch"]);
        let input = input.concat().into_bytes();
        let from = GitSource::objects_of(commit);
        // The first README has priority. Other files get the bytes left within the limit.
        let output = self
            .git
            .collect(from, command, input, GIT_README_BYTES_MAX + 4_096)
            .await?;
        let (location, commit) = (self.location.clone(), commit.clone());
        // Rendering runs outside of the worker, because a crafted text may take long.
        let render = move || {
            let all = parse::contents(&output.bytes);
            Ok(all.first().map(|(nth, content)| {
                let name = README_NAMES[(*nth).min(README_NAMES.len() - 1)];
                readme::rendered(&location, &commit, name, content)
            }))
        };
        self.settings.limiter.work(render).await
    }

    /// Returns the tree entry at `path`, and the entries of a folder at `path`.
    async fn entries(
        &self,
        commit: &ObjectId,
        path: &[u8],
    ) -> Result<CollectedOutput, HandlerError> {
        let mut command =
            GitCommand::new(&["ls-tree", "-z", "-l", "-t", "--full-tree", commit.digits()]);
        if !path.is_empty() {
            command = command.with(b"--").with(path).with(&[path, b"/"].concat());
        }
        let from = GitSource::objects_of(commit);
        self.git
            .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
            .await
    }

    async fn tree(&self, commit: &ObjectId, path: &[u8]) -> Result<Response, HandlerError> {
        let output = self.entries(commit, path).await?;
        let all = parse::entries(&output.bytes);
        let own = all.iter().find(|entry| entry.path == path);
        let Some(entry) = own.filter(|_| !path.is_empty()) else {
            return if path.is_empty() {
                Ok(html(
                    tree::folder(&self.location, b"", &all, output.is_cut),
                    PAGE_POLICY,
                ))
            } else {
                Err(refused(Reject::NOT_FOUND))
            };
        };
        match entry.kind {
            EntryKind::Submodule => {
                let page = tree::file(&self.location, entry, b"", false);
                Ok(html(page, PAGE_POLICY))
            }
            EntryKind::Tree => {
                let is_in = |it: &parse::TreeEntry<'_>| {
                    let name = it
                        .path
                        .strip_prefix(path)
                        .and_then(|it| it.strip_prefix(b"/"));
                    name.is_some_and(|name| !name.contains(&b'/'))
                };
                let inner: Vec<_> = all.iter().filter(|it| is_in(it)).cloned().collect();
                Ok(html(
                    tree::folder(&self.location, path, &inner, output.is_cut),
                    PAGE_POLICY,
                ))
            }
            EntryKind::File { .. } | EntryKind::Link => {
                let command = GitCommand::new(&["cat-file", "blob", entry.id.digits()]);
                let from = GitSource::objects_of(commit);
                let content = match content_type::image(path) {
                    Some(_) if entry.kind != EntryKind::Link => CollectedOutput {
                        bytes: Vec::new(),
                        is_cut: false,
                    },
                    _ => {
                        self.git
                            .collect(from, command, Vec::new(), GIT_FILE_BYTES_MAX)
                            .await?
                    }
                };
                let page = tree::file(&self.location, entry, &content.bytes, content.is_cut);
                Ok(html(page, PAGE_POLICY))
            }
        }
    }

    async fn plain(
        &self,
        commit: &ObjectId,
        path: &[u8],
        slot: BrowseSlots,
    ) -> Result<Response, HandlerError> {
        let output = self.entries(commit, path).await?;
        let all = parse::entries(&output.bytes);
        let own = all
            .iter()
            .find(|entry| entry.path == path && !path.is_empty());
        let is_file = |kind| matches!(kind, EntryKind::File { .. } | EntryKind::Link);
        let entry = own.filter(|entry| is_file(entry.kind));
        let entry = entry.ok_or(refused(Reject::NOT_FOUND))?;
        drop(slot);
        let slots = self.enter(BrowseWork::File).await?;
        let command = GitCommand::new(&["cat-file", "blob", entry.id.digits()]);
        let from = GitSource::objects_of(commit);
        let call = self
            .git
            .start(from, command, Vec::new(), OutputUse::File)
            .await?;
        let call = call.with_slots(slots);
        let head = |beginning: &[u8]| CgiDocument {
            status: Status::OK.into(),
            fields: fields(content_type::content_type(path, beginning), FILE_POLICY),
            length: entry.size,
        };
        call.send_on(head).await
    }

    async fn commit_page(&self, commit: &ObjectId) -> Result<Response, HandlerError> {
        let mut command = GitCommand::new(&["log", "--no-walk", "-m", "--first-parent"]);
        for option in LOG_OPTIONS.iter().chain(&PATCH_OPTIONS).chain(&[
            parse::WHOLE_COMMIT_FORMAT,
            commit.digits(),
            "--",
        ]) {
            command = command.with(option.as_bytes());
        }
        let all = self.patch(command, None, commit, b"").await?;
        let whole = parse::commit(&all[0].bytes).ok_or(refused(Reject::SCRIPT_FAILED))?;
        let difference = difference(whole.patch, &all);
        let page = commit::commit_page(&self.location, &whole, &difference);
        Ok(html(page, PAGE_POLICY))
    }

    async fn diff(
        &self,
        commit: &ObjectId,
        other: Option<&ObjectId>,
        path: &[u8],
    ) -> Result<Response, HandlerError> {
        let parent;
        let other = match other {
            Some(other) => other,
            None => {
                let output = self.log(commit, b"", 0, 1).await?;
                let parents = parse::commits(&output.bytes).into_iter().next();
                let first = parents.and_then(|it| it.parents.into_iter().next());
                let Some(first) = first else {
                    return self.commit_page(commit).await;
                };
                parent = first;
                &parent
            }
        };
        let command = diff_tree(&[], &PATCH_OPTIONS, Some(other), commit, path);
        let all = self.patch(command, Some(other), commit, path).await?;
        let difference = difference(&all[0].bytes, &all);
        let page = commit::difference_page(&self.location, other, commit, path, &difference);
        Ok(html(page, PAGE_POLICY))
    }

    /// Runs a git command that prints a patch at its end. If a page cannot show the whole patch, a
    /// second run of git, within the same bounds of time and memory, counts the changed lines of each
    /// file; the counts are empty where the second run fails. Without `before` the command is a `log`
    /// of the commit `after`.
    async fn patch(
        &self,
        command: GitCommand,
        before: Option<&ObjectId>,
        after: &ObjectId,
        path: &[u8],
    ) -> Result<[CollectedOutput; 2], HandlerError> {
        let from = GitSource::objects_of(after);
        let collect = |command| {
            self.git
                .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
        };
        let output = collect(command).await?;
        let mut counted = CollectedOutput {
            bytes: Vec::new(),
            is_cut: false,
        };
        if output.is_cut || parse::is_too_long(&output.bytes) {
            let parent = match before {
                Some(_) => None,
                None => parse::commit(&output.bytes).and_then(|it| it.parents.into_iter().next()),
            };
            let numbers = ["-z", "--numstat", "--no-commit-id"];
            let before = before.or(parent.as_ref());
            // The first option of `PATCH_OPTIONS` is `-p`; the count needs no patch.
            let command = diff_tree(&numbers, &PATCH_OPTIONS[1..], before, after, path);
            match collect(command).await {
                Ok(numbers) => counted = numbers,
                Err(error) => error.log(),
            }
        }
        Ok([output, counted])
    }

    /// Sends the commit as a mail with the patch; a merge is compared with its first parent. The patch is whole, also
    /// where a page would be cut.
    async fn send_patch(&self, commit: &ObjectId) -> Result<Response, HandlerError> {
        let slots = self.enter(BrowseWork::File).await?;
        let mut command = GitCommand::new(&["log", "--no-walk", "-m", "--first-parent"]);
        let whole = ["--pretty=email", "--stat", "--binary", "--full-index"];
        for option in LOG_OPTIONS.iter().chain(&PATCH_OPTIONS).chain(&whole) {
            command = command.with(option.as_bytes());
        }
        command = command.with(commit.digits().as_bytes()).with(b"--");
        let mut fields = fields("text/plain; charset=utf-8", FILE_POLICY);
        let disposition = format!("inline; filename=\"{}.patch\"", commit.short());
        fields.push(b"Content-Disposition", disposition.as_bytes());
        self.send_output(commit, command, slots, fields).await
    }

    /// Sends the output of a command on the objects of a commit as a document with the fields.
    async fn send_output(
        &self,
        commit: &ObjectId,
        command: GitCommand,
        slots: BrowseSlots,
        fields: ResponseFields,
    ) -> Result<Response, HandlerError> {
        let from = GitSource::objects_of(commit);
        let call = self
            .git
            .start(from, command, Vec::new(), OutputUse::Snapshot)
            .await?
            .with_slots(slots);
        let head = |_: &[u8]| CgiDocument {
            status: Status::OK.into(),
            fields,
            length: None,
        };
        call.send_on(head).await
    }

    async fn snapshot(&self, commit: &ObjectId, name: &[u8]) -> Result<Response, HandlerError> {
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
        let slots = self.enter(BrowseWork::Snapshot).await?;
        let prefix = format!("--prefix={base}/");
        let command = GitCommand::new(&["archive", "--format=tar.gz", &prefix, commit.digits()]);
        let is_plain = |it: &char| it.is_ascii_alphanumeric() || "._-+".contains(*it);
        let file: String = base.chars().filter(is_plain).collect();
        let mut fields = fields("application/gzip", FILE_POLICY);
        let disposition = format!("attachment; filename=\"{file}.tar.gz\"");
        fields.push(b"Content-Disposition", disposition.as_bytes());
        self.send_output(commit, command, slots, fields).await
    }
}

/// Returns the command `git diff-tree` for the commits `before` and `after`. Without `before`, the command
/// compares `after` with an empty tree.
fn diff_tree(
    first: &[&str],
    options: &[&str],
    before: Option<&ObjectId>,
    after: &ObjectId,
    path: &[u8],
) -> GitCommand {
    let mut command = GitCommand::new(&["diff-tree", "-r"]);
    for option in first.iter().chain(options) {
        command = command.with(option.as_bytes());
    }
    for id in before.into_iter().chain([after]) {
        command = command.with(id.digits().as_bytes());
    }
    command = command.with(b"--");
    if path.is_empty() {
        command
    } else {
        command.with(path)
    }
}

fn difference<'d>(patch: &'d [u8], [output, counted]: &'d [CollectedOutput; 2]) -> DiffOutput<'d> {
    DiffOutput {
        patch,
        is_cut: output.is_cut,
        counted: &counted.bytes,
        is_counted_in_part: counted.is_cut,
    }
}

/// Adds all displayed data of a branch or tag to the ETag.
fn with_ref(tag: EtagBuilder, it: &Ref<'_>) -> EtagBuilder {
    let (is_head, may_be_commit) = (u8::from(it.is_head), u8::from(it.may_be_commit));
    tag.with(it.name)
        .with(it.id.digits().as_bytes())
        .with(&[is_head, may_be_commit])
        .with(it.date)
        .with(it.subject)
}

/// Options of `git log`, supported by all versions of git.
const LOG_OPTIONS: [&str; 6] = [
    "--no-color",
    "--no-decorate",
    "--no-notes",
    "--no-mailmap",
    "--no-show-signature",
    "--encoding=UTF-8",
];
/// Options of commands that print a patch.
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
