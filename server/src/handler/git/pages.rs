//! Repositories in a browser: from a request to a page. First it is looked what lies there, then which
//! commits are meant, and if the client or the page cache has that page already, that is all; else git
//! is asked for what the page shows.
//!
//! An object is shown to whoever knows its whole name, be it reachable or not: git's own protocol
//! (version 2) gives it too, so hiding it here would hide nothing.

use super::html::{STYLE, style_name};
use super::looked::{Head, Looked, Repository};
use super::place::Place;
use super::plain;
use super::readers::{Readers, Work};
use super::reading::{Command, From, Reading, prepare};
use super::readme;
use super::said_by_git::{self as said, Hidden, Kind, Ref};
use super::shown::{Log, Summary, about, atom, refs};
use super::wanted_page::{Aspect, Id, WantedPage, is_ref_name};
use super::{Settings, shown_diff, shown_list, shown_tree};
use crate::base::digest::{Digest, hex};
use crate::handler::asked::Asked;
use crate::handler::exchange::Collected;
use crate::handler::slots::Slot;
use crate::handler::{Body, Fault, Handler, LocalBoxFuture, Request, Response};
use crate::limits::{
    GIT_FEED_ENTRIES, GIT_FILE_BYTES_MAX, GIT_LOG_COMMITS, GIT_PAGE_BYTES_MAX,
    GIT_README_BYTES_MAX, GIT_REFS_MAX, GIT_STREAM_HELD_BYTES, GIT_SUMMARY_LINES,
};
use crate::wire::cgi::Document;
use crate::wire::fields::{Fields, items};
use crate::wire::head::Method;
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use crate::wire::target::encode_path;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

/// Shows the repositories of a folder.
pub struct Pages {
    settings: Arc<Settings>,
    own: Arc<OfPages>,
}

/// What holds for their pages.
pub struct OfPages {
    /// The ledger of who reads.
    pub readers: Arc<Readers>,
    /// The program.
    pub git: PathBuf,
    /// A folder for repositories of our own.
    pub bare: PathBuf,
    /// They aren't for everybody.
    pub is_private: bool,
    /// Heavy pages for one address in a minute.
    pub heavy_per_minute: u32,
}

impl Pages {
    /// With these settings.
    pub fn new(settings: Arc<Settings>, own: OfPages) -> Pages {
        Pages {
            settings,
            own: Arc::new(own),
        }
    }
}

impl Handler for Pages {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        let (settings, own) = (Arc::clone(&self.settings), Arc::clone(&self.own));
        Box::pin(answer(settings, own, request))
    }
}

fn refused(reject: Reject) -> Fault {
    Fault::new("git page", reject)
}

async fn answer(
    settings: Arc<Settings>,
    own: Arc<OfPages>,
    request: Request,
) -> Result<Response, Fault> {
    let path = request.path.strip_prefix(&*settings.prefix);
    let path = path.unwrap_or_default().to_vec();
    let is_read = matches!(request.method, Method::Get | Method::Head);
    if path.starts_with(b"/.style-") && is_read {
        return style(&path);
    }
    let (for_look, bare) = (Arc::clone(&settings), own.bare.clone());
    let look = move || {
        let looked = for_look.look(&path)?;
        if let Looked::Repository(_) = looked {
            prepare(&bare)?;
        }
        Ok(looked)
    };
    let looked = own.readers.look(look).await?;
    let repository = match looked {
        Looked::Repository(repository) => *repository,
        _ if !is_read => return Err(refused(Reject::METHOD_NOT_ALLOWED)),
        Looked::Slash => return Ok(with_slash(&request)),
        Looked::Folder(list) => {
            let place = place(&settings, &request, list.name.clone(), None);
            let page = shown_list::list(&place, &list);
            let tag = Tag::new(&own, &request).with(page.as_bytes()).done();
            return Ok(tag.answer(&request.fields, || html(page, PAGE_POLICY)));
        }
    };
    let mut wanted = match (
        WantedPage::read(&repository.rest, request.query.as_deref()),
        &*repository.rest,
    ) {
        (_, b"/info/refs") => return Err(refused(Reject::GIT_DUMB)),
        (_, b"/git-upload-pack" | b"/git-receive-pack") => {
            return Err(refused(Reject::METHOD_NOT_ALLOWED));
        }
        (None, _) => return Err(refused(Reject::NOT_FOUND)),
        (Some(_), _) if !is_read => return Err(refused(Reject::METHOD_NOT_ALLOWED)),
        (Some(wanted), _) => wanted,
    };
    let mut place = place(
        &settings,
        &request,
        repository.name.clone(),
        Some(&repository),
    );
    wanted.name_snapshot(&place)?;
    place.head.clone_from(&wanted.head);
    place.id.clone_from(&wanted.id);
    let tag = Tag::new(&own, &request);
    let asked = Asked::of(request).await;
    let (asked, _) = asked.map_err(|_| refused(Reject::BODY_SLOW))?;
    let making = Making {
        reading: Reading {
            settings,
            asked: Arc::new(asked),
            repository,
            bare: own.bare.clone(),
            git: own.git.clone(),
        },
        own,
        wanted,
        place,
    };
    making.answer(tag).await
}

fn place(
    settings: &Settings,
    request: &Request,
    name: Vec<u8>,
    repository: Option<&Repository>,
) -> Place {
    let host = Fields(&request.fields)
        .first("host")
        .unwrap_or(&request.host);
    let scheme: &[u8] = if request.secure {
        b"https://"
    } else {
        b"http://"
    };
    Place {
        prefix: settings.prefix.to_vec(),
        name,
        head: None,
        id: None,
        origin: [scheme, host].concat(),
        description: repository
            .map(|it| it.description.clone())
            .unwrap_or_default(),
        is_repository: repository.is_some(),
    }
}

/// The same address with a slash at its end.
fn with_slash(request: &Request) -> Response {
    let mut location = Vec::new();
    encode_path(&request.path, &mut location);
    location.push(b'/');
    if let Some(query) = &request.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Response {
        status: Status::MOVED_PERMANENTLY,
        fields: vec![(Cow::Borrowed("Location"), location)],
        body: Body::Empty,
    }
}

fn style(path: &[u8]) -> Result<Response, Fault> {
    if path != format!("/{}", style_name()).as_bytes() {
        return Err(refused(Reject::NOT_FOUND));
    }
    let mut response = whole("text/css; charset=utf-8", STYLE.into(), FILE_POLICY);
    let keep = b"public, max-age=31536000, immutable".to_vec();
    response.fields.push((Cow::Borrowed("Cache-Control"), keep));
    Ok(response)
}

fn html(page: String, policy: &str) -> Response {
    whole("text/html; charset=utf-8", page.into_bytes(), policy)
}

fn whole(kind: &str, body: Vec<u8>, policy: &str) -> Response {
    Response {
        status: Status::OK,
        fields: fields(kind, policy),
        body: Body::Whole(body),
    }
}

fn fields(kind: &str, policy: &str) -> Vec<(Cow<'static, str>, Vec<u8>)> {
    let field = |name, value: &str| (Cow::Borrowed(name), value.as_bytes().to_vec());
    vec![
        field("Content-Type", kind),
        field("Content-Security-Policy", policy),
        field("X-Content-Type-Options", "nosniff"),
        field("Referrer-Policy", "same-origin"),
    ]
}

/// A page runs nothing and asks nobody but this server.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";
/// A README may have images of others.
const README_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' https: http:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// What a file is when somebody opens it: nobody's.
const FILE_POLICY: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";

/// What tells one state of a page from another, under making.
struct Tag {
    digest: Digest,
    is_private: bool,
}

impl Tag {
    fn new(own: &OfPages, request: &Request) -> Tag {
        let mut tag = Tag {
            digest: Digest::new(),
            is_private: own.is_private || request.user.is_some(),
        };
        let host = Fields(&request.fields).first("host").unwrap_or_default();
        let query = request.query.as_deref().unwrap_or_default();
        for part in [
            VERSION.as_bytes(),
            STYLE.as_bytes(),
            host,
            &request.raw_path,
            query,
        ] {
            tag = tag.with(part);
        }
        tag
    }

    fn with(mut self, part: &[u8]) -> Tag {
        self.digest.update(&(part.len() as u64).to_le_bytes());
        self.digest.update(part);
        self
    }

    fn done(self) -> Tagged {
        let digest = self.digest.finish();
        Tagged {
            tag: format!("\"{}\"", &hex(&digest)[..20]),
            is_private: self.is_private,
            is_immutable: false,
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What tells one state of a page from another, and who may keep it for how long.
struct Tagged {
    tag: String,
    is_private: bool,
    is_immutable: bool,
}

impl Tagged {
    /// Has the client this very state?
    fn is_known(&self, asked: &[u8]) -> bool {
        let lines = Fields(asked).all("if-none-match");
        let mut tags = lines.flat_map(items);
        let is_it = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag) == self.tag.as_bytes();
        tags.any(|tag| tag == b"*" || is_it(tag))
    }

    fn fields(&self) -> [(Cow<'static, str>, Vec<u8>); 2] {
        let keep = match (self.is_immutable, self.is_private) {
            (true, false) => "public, max-age=31536000, immutable",
            (true, true) => "private, max-age=31536000, immutable",
            // Asked for again each time; and if git fails, an old one is better than none.
            (false, false) => "public, max-age=0, stale-if-error=60",
            (false, true) => "private, max-age=0",
        };
        [
            (Cow::Borrowed("ETag"), self.tag.clone().into_bytes()),
            (Cow::Borrowed("Cache-Control"), keep.as_bytes().to_vec()),
        ]
    }

    fn not_modified(&self) -> Response {
        Response {
            status: Status::NOT_MODIFIED,
            fields: self.fields().into(),
            body: Body::Empty,
        }
    }

    fn on(&self, mut response: Response) -> Response {
        response.fields.extend(self.fields());
        response
    }

    fn answer(&self, asked: &[u8], response: impl FnOnce() -> Response) -> Response {
        match self.is_known(asked) {
            true => self.not_modified(),
            false => self.on(response()),
        }
    }
}

/// The commits that a page is of.
struct Meant {
    /// None where there is none in the repository.
    commit: Option<Id>,
    other: Option<Id>,
}

/// Refs, as git listed them.
struct Listed {
    said: Collected,
    hidden: Hidden,
}

impl Listed {
    /// Those that are shown.
    fn all(&self) -> Vec<Ref<'_>> {
        let mut all = said::refs(&self.said.bytes);
        all.retain(|it| !self.hidden.is(it.name));
        all
    }

    /// Are there more than were asked for?
    fn is_cut(&self, count: usize) -> bool {
        self.said.is_cut || said::refs(&self.said.bytes).len() >= count
    }
}

/// A page under making.
struct Making {
    reading: Reading,
    own: Arc<OfPages>,
    wanted: WantedPage,
    place: Place,
}

impl Making {
    async fn answer(self, tag: Tag) -> Result<Response, Fault> {
        if matches!(self.wanted.aspect, Aspect::Summary | Aspect::Refs) {
            return self.of_refs(tag).await;
        }
        if self.wanted.is_immutable() {
            // Its address says which state it has.
            let tagged = Tagged {
                is_immutable: true,
                ..tag.done()
            };
            if tagged.is_known(&self.reading.asked.fields) {
                return Ok(tagged.not_modified());
            }
            let slot = self.enter(Work::Light).await?;
            let meant = self.meant().await?;
            let response = self.made(meant, slot).await?;
            return Ok(tagged.on(response));
        }
        let slot = self.enter(Work::Light).await?;
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

    async fn enter(&self, work: Work) -> Result<Slot, Fault> {
        let queue = self.reading.settings.bounds.queue;
        self.own.readers.enter(work, queue).await
    }

    /// Which commits the address means.
    async fn meant(&self) -> Result<Meant, Fault> {
        let wanted = &self.wanted;
        let other = match &wanted.other {
            Some(id) => Some(self.commit(id).await?),
            None => None,
        };
        let commit = match (&wanted.id, &wanted.head) {
            (Some(id), _) => Some(self.commit(id).await?),
            (None, Some(name)) => Some(self.of_name(name).await?),
            (None, None) => self.of_head().await?,
        };
        // Where there is nothing, nothing of it is there.
        let is_there = commit.is_some()
            || matches!(&wanted.aspect, Aspect::Log(path) | Aspect::Tree(path) if path.is_empty())
            || matches!(wanted.aspect, Aspect::About | Aspect::Atom);
        is_there
            .then_some(Meant { commit, other })
            .ok_or(refused(Reject::NOT_FOUND))
    }

    /// The commit that this object is or leads to.
    async fn commit(&self, id: &Id) -> Result<Id, Fault> {
        let check = || Command::new(&["cat-file", "--batch-check"]);
        let mut from = From::objects_of(id);
        if !id.is_full() {
            // What the repository calls its objects isn't known by this.
            from = From::Objects {
                sha256: matches!(&self.reading.repository.head, Head::Detached(head) if head.is_sha256()),
            };
        }
        let question = format!("{}^{{commit}}\n", id.digits()).into_bytes();
        let said = self
            .reading
            .collect(from, check(), question, GIT_PAGE_BYTES_MAX)
            .await?;
        let found = said::checked(&said.bytes).pop().flatten();
        found.ok_or(refused(Reject::NOT_FOUND))
    }

    /// The commit that a branch or tag leads to.
    async fn of_name(&self, name: &[u8]) -> Result<Id, Fault> {
        let branch = [b"refs/heads/", name].concat();
        let tag = [b"refs/tags/", name].concat();
        let versioned = [b"refs/tags/v", name].concat();
        let mut names = vec![&*branch, &*tag];
        if matches!(self.wanted.aspect, Aspect::Snapshot(_)) {
            names.push(&versioned);
        }
        let said = self.refs(&names, 16).await?;
        let all = said.all();
        let found = names
            .iter()
            .find_map(|name| all.iter().find(|it| it.name == *name));
        match (found, Id::parse(name)) {
            (Some(found), _) => self.of_ref(found).await,
            // A snapshot of a commit, by its name.
            (None, Some(id)) if matches!(self.wanted.aspect, Aspect::Snapshot(_)) => {
                self.commit(&id).await
            }
            _ => Err(refused(Reject::NOT_FOUND)),
        }
    }

    async fn of_ref(&self, found: &Ref<'_>) -> Result<Id, Fault> {
        match &found.commit {
            Some(commit) => Ok(commit.clone()),
            None if found.may_be_commit => self.commit(&found.id).await,
            None => Err(refused(Reject::NOT_FOUND)),
        }
    }

    /// The commit that a repository shows by itself.
    async fn of_head(&self) -> Result<Option<Id>, Fault> {
        if let Head::Detached(id) = &self.reading.repository.head {
            return self.commit(id).await.map(Some);
        }
        if let Head::Branch(branch) = &self.reading.repository.head {
            let name = [b"refs/heads/", branch.as_slice()].concat();
            let said = self.refs(&[&name], 1).await?;
            let all = said.all();
            if let Some(found) = all.iter().find(|it| it.name == name) {
                return self.of_ref(found).await.map(Some);
            }
        }
        // It names a branch that isn't there: another will do.
        let said = self.refs(&[b"refs/heads/"], GIT_REFS_MAX).await?;
        let all = said.all();
        let named = |name: &[u8]| all.iter().find(|it| it.branch() == Some(name));
        let usual = || named(b"main").or_else(|| named(b"master"));
        let head = all.iter().find(|it| it.is_head);
        match head.or_else(usual).or(all.first()) {
            Some(found) => self.of_ref(found).await.map(Some),
            None => Ok(None),
        }
    }

    /// Branches and tags that fit, as far as they are shown.
    async fn refs(&self, patterns: &[&[u8]], count: usize) -> Result<Listed, Fault> {
        let count = format!("--count={count}");
        let command = [
            "for-each-ref",
            "--sort=-creatordate",
            &count,
            said::REF_FORMAT,
        ];
        let mut command = Command::new(&command);
        for pattern in patterns {
            command = command.with(pattern);
        }
        let reading = &self.reading;
        let bytes_max = GIT_PAGE_BYTES_MAX;
        let said = reading.collect(From::Refs, command, Vec::new(), bytes_max);
        let said = said.await?;
        let mut hidden = Hidden::default();
        if reading.repository.may_hide {
            let command = Command::new(&["config", "--list", "--null"]);
            let config = reading.collect(From::Refs, command, Vec::new(), bytes_max);
            hidden = Hidden::read(&config.await?.bytes);
        }
        Ok(Listed { said, hidden })
    }

    /// The pages that show what branches and tags there are.
    async fn of_refs(self, tag: Tag) -> Result<Response, Fault> {
        let _slot = self.enter(Work::Light).await?;
        let said = self
            .refs(&[b"refs/heads/", b"refs/tags/"], GIT_REFS_MAX)
            .await?;
        let all = said.all();
        let commit = match (&self.wanted.aspect, &self.wanted.id, &self.wanted.head) {
            (Aspect::Refs, _, _) => None,
            (_, Some(id), _) => Some(self.commit(id).await?),
            (_, None, Some(name)) => Some(self.of_name(name).await?),
            (_, None, None) => self.head_among(&all).await?,
        };
        let digits = commit.as_ref().map_or("", Id::digits);
        let tag = tag.with(&said.said.bytes).with(digits.as_bytes());
        let tagged = tag.with(&self.place.description).done();
        if tagged.is_known(&self.reading.asked.fields) {
            return Ok(tagged.not_modified());
        }
        if self.wanted.aspect == Aspect::Refs {
            let is_cut = said.is_cut(GIT_REFS_MAX);
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

    /// The commit that a repository shows by itself, where all its branches are known.
    async fn head_among(&self, all: &[Ref<'_>]) -> Result<Option<Id>, Fault> {
        if let Head::Detached(id) = &self.reading.repository.head {
            return self.commit(id).await.map(Some);
        }
        match all.iter().find(|it| it.is_head) {
            Some(found) => self.of_ref(found).await.map(Some),
            None => self.of_head().await,
        }
    }

    /// The page, once it is known which commits it is of.
    async fn made(&self, meant: Meant, slot: Slot) -> Result<Response, Fault> {
        let place = &self.place;
        let Some(commit) = &meant.commit else {
            return Ok(self.empty());
        };
        let is_heavy = self.wanted.is_heavy();
        let peer = self.reading.asked.peer;
        if is_heavy && !self.own.readers.allows(peer, self.own.heavy_per_minute) {
            return Err(refused(Reject::ASKED_TOO_OFTEN));
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
            Aspect::Diff(path) => self.diff(commit, meant.other.as_ref(), path).await,
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

    async fn readme(&self, commit: &Id) -> Result<Option<super::html::Html>, Fault> {
        let question = readme::NAMES.map(|name| format!("{}:{name}\n", commit.digits()));
        let command = Command::new(&["cat-file", "--batch"]);
        let question = question.concat().into_bytes();
        let from = From::objects_of(commit);
        // Of the others, as much as the first leaves.
        let said = self
            .reading
            .collect(from, command, question, GIT_README_BYTES_MAX + 4_096)
            .await?;
        let all = said::contents(&said.bytes);
        let first = all.first();
        Ok(first.map(|(nth, content)| {
            let name = readme::NAMES[(*nth).min(readme::NAMES.len() - 1)];
            readme::rendered(&self.place, commit, name, content)
        }))
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
        let slot = self.enter(Work::Stream).await?;
        let command = Command::new(&["cat-file", "blob", entry.id.digits()]);
        let from = From::objects_of(commit);
        let reading = &self.reading;
        let exchange = reading
            .start(from, command, Vec::new(), GIT_STREAM_HELD_BYTES)
            .await?;
        let head = |beginning: &[u8]| Document {
            status: 200,
            fields: owned(fields(plain::content_type(path, beginning), FILE_POLICY)),
            length: entry.size,
        };
        Ok(holding(exchange.send_on(&reading.asked, head).await?, slot))
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
        let from = From::objects_of(commit);
        let said = self
            .reading
            .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
            .await?;
        let whole = said::commit(&said.bytes).ok_or(refused(Reject::SCRIPT_FAILED))?;
        Ok(html(
            shown_diff::commit(&self.place, &whole, said.is_cut),
            PAGE_POLICY,
        ))
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
        let mut command = Command::new(&["diff-tree", "-r"]);
        for option in PATCH_OPTIONS
            .iter()
            .chain(&[other.digits(), commit.digits(), "--"])
        {
            command = command.with(option.as_bytes());
        }
        if !path.is_empty() {
            command = command.with(path);
        }
        let from = From::objects_of(commit);
        let said = self
            .reading
            .collect(from, command, Vec::new(), GIT_PAGE_BYTES_MAX)
            .await?;
        let page = shown_diff::between(&self.place, other, commit, path, &said.bytes, said.is_cut);
        Ok(html(page, PAGE_POLICY))
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
        let slot = self.enter(Work::Stream).await?;
        let prefix = format!("--prefix={base}/");
        let command = Command::new(&["archive", "--format=tar.gz", &prefix, commit.digits()]);
        let from = From::objects_of(commit);
        let reading = &self.reading;
        let exchange = reading
            .start(from, command, Vec::new(), GIT_STREAM_HELD_BYTES)
            .await?;
        let is_plain = |it: &char| it.is_ascii_alphanumeric() || "._-+".contains(*it);
        let file: String = base.chars().filter(is_plain).collect();
        let mut fields = owned(fields("application/gzip", FILE_POLICY));
        let disposition = format!("attachment; filename=\"{file}.tar.gz\"").into_bytes();
        fields.push(("Content-Disposition".to_owned(), disposition));
        let head = |_: &[u8]| Document {
            status: 200,
            fields,
            length: None,
        };
        Ok(holding(exchange.send_on(&reading.asked, head).await?, slot))
    }
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
const ARCHIVE_ENDING: &[u8] = b".tar.gz";

fn owned(fields: Vec<(Cow<'static, str>, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let name = |(name, value): (Cow<'static, str>, _)| (name.into_owned(), value);
    fields.into_iter().map(name).collect()
}

/// The place is taken for as long as something is sent.
fn holding(mut response: Response, slot: Slot) -> Response {
    if let Body::Stream { work, .. } = &mut response.body {
        let sending = std::mem::replace(work, Box::pin(async {}));
        *work = Box::pin(async move {
            sending.await;
            drop(slot);
        });
    }
    response
}

impl WantedPage {
    /// What a snapshot's name says: `hammer-v1.0.tar.gz` is of `v1.0`.
    fn name_snapshot(&mut self, place: &Place) -> Result<(), Fault> {
        let Aspect::Snapshot(name) = &self.aspect else {
            return Ok(());
        };
        let rest = name.strip_suffix(ARCHIVE_ENDING);
        let rest = rest.and_then(|it| it.strip_prefix(place.short_name())?.strip_prefix(b"-"));
        let rest = rest.ok_or(refused(Reject::NOT_FOUND))?;
        self.head = None;
        self.other = None;
        self.id = Id::parse(rest).filter(Id::is_full);
        if self.id.is_none() {
            let name = Some(rest.to_vec()).filter(|name| is_ref_name(name));
            self.head = Some(name.ok_or(refused(Reject::NOT_FOUND))?);
        }
        Ok(())
    }
}
