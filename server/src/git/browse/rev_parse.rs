//! Resolution of a page address to commits, restricted to visible refs.

use crate::git::browse::locate::RepositoryHead;
use crate::git::browse::page_location::PageLocation;
use crate::git::browse::parse::{self, HiddenRefs, Ref};
use crate::git::browse::response::refused;
use crate::git::browse::run::{GitCommand, GitRunner, GitSource};
use crate::git::browse::url::{ObjectId, PageKind, PageUrl, is_ref_name};
use crate::git::limits::{GIT_PAGE_BYTES_MAX, GIT_REFS_MAX};
use data_plane::handler::HandlerError;
use data_plane::handler::call::script_call::CollectedOutput;
use wire::reject::Reject;

/// Commits of a page.
pub(in crate::git) struct ResolvedRevisions {
    /// The commit of the page; None if the repository has no commit.
    pub(in crate::git) commit: Option<ObjectId>,
    /// The commit to compare with, if the address names a second commit.
    pub(in crate::git) other: Option<ObjectId>,
}

/// Refs as listed by git.
pub(in crate::git) struct RefList {
    pub(in crate::git) output: CollectedOutput,
    hidden: HiddenRefs,
}

impl RefList {
    /// Returns the visible refs.
    pub(in crate::git) fn all(&self) -> Vec<Ref<'_>> {
        let mut all = parse::refs(&self.output.bytes);
        all.retain(|it| !self.hidden.is(it.name));
        all
    }

    /// Returns true if the repository has more refs than the `count` requested.
    pub(in crate::git) fn is_cut(&self, count: usize) -> bool {
        self.output.is_cut || parse::refs(&self.output.bytes).len() >= count
    }
}

/// Resolver of the revisions in a page address.
pub(in crate::git) struct RevisionResolver<'p> {
    pub(in crate::git) git: &'p GitRunner,
    pub(in crate::git) url: &'p PageUrl,
    /// Refs hidden by the repository's configuration.
    pub(in crate::git) hidden: &'p HiddenRefs,
}

impl RevisionResolver<'_> {
    /// Resolves the address of the page to commits.
    pub(in crate::git) async fn resolve(&self) -> Result<ResolvedRevisions, HandlerError> {
        let url = &self.url;
        let other = match &url.other {
            Some(id) => Some(self.commit(id).await?),
            None => None,
        };
        let commit = match (&url.id, &url.head) {
            (Some(id), _) => Some(self.commit(id).await?),
            (None, Some(name)) => Some(self.resolve_name(name).await?),
            (None, None) => self.resolve_head().await?,
        };
        // Without any commit, only the overview pages exist.
        let exists = commit.is_some()
            || matches!(&url.aspect, PageKind::Log(path) | PageKind::Tree(path) if path.is_empty())
            || matches!(url.aspect, PageKind::About | PageKind::Atom);
        exists
            .then_some(ResolvedRevisions { commit, other })
            .ok_or(refused(Reject::NOT_FOUND))
    }

    /// Returns the commit that an object is or leads to.
    pub(in crate::git) async fn commit(&self, id: &ObjectId) -> Result<ObjectId, HandlerError> {
        let check = GitCommand::new(&["cat-file", "--batch-check"]);
        let from = GitSource::objects_of(id);
        let input = format!("{}^{{commit}}\n", id.digits()).into_bytes();
        let output = self
            .git
            .collect(from, check, input, GIT_PAGE_BYTES_MAX)
            .await?;
        let found = parse::parse_batch_check(&output.bytes).pop().flatten();
        found.ok_or(refused(Reject::NOT_FOUND))
    }

    /// Returns the commit of a branch or tag.
    pub(in crate::git) async fn resolve_name(&self, name: &[u8]) -> Result<ObjectId, HandlerError> {
        let branch = [b"refs/heads/", name].concat();
        let tag = [b"refs/tags/", name].concat();
        let versioned = [b"refs/tags/v", name].concat();
        let mut names = vec![&*branch, &*tag];
        if matches!(self.url.aspect, PageKind::Snapshot(_)) {
            names.push(&versioned);
        }
        // The query has no count limit: git may list any number of refs below the name, such as `main/a`,
        // first.
        let output = self.list_refs(&names, None).await?;
        let all = output.all();
        let found = names
            .iter()
            .find_map(|name| all.iter().find(|it| it.name == *name));
        match found {
            Some(found) => self.commit_of_ref(found).await,
            None => Err(refused(Reject::NOT_FOUND)),
        }
    }

    async fn commit_of_ref(&self, found: &Ref<'_>) -> Result<ObjectId, HandlerError> {
        match &found.commit {
            Some(commit) => Ok(commit.clone()),
            None if found.may_be_commit => self.commit(&found.id).await,
            None => Err(refused(Reject::NOT_FOUND)),
        }
    }

    /// Returns the default commit of the repository.
    async fn resolve_head(&self) -> Result<Option<ObjectId>, HandlerError> {
        if let RepositoryHead::Detached(id) = &self.git.repository.head {
            return self.commit(id).await.map(Some);
        }
        if let RepositoryHead::Branch(branch) = &self.git.repository.head {
            let name = [b"refs/heads/", branch.as_slice()].concat();
            let output = self.list_refs(&[&name], None).await?;
            let all = output.all();
            if let Some(found) = all.iter().find(|it| it.name == name) {
                return self.commit_of_ref(found).await.map(Some);
            }
        }
        // HEAD names a missing branch; another branch is used instead.
        let output = self
            .list_refs(&[b"refs/heads/"], Some(GIT_REFS_MAX))
            .await?;
        let all = output.all();
        let named = |name: &[u8]| all.iter().find(|it| it.branch() == Some(name));
        let common = || named(b"main").or_else(|| named(b"master"));
        let head = all.iter().find(|it| it.is_head);
        match head.or_else(common).or(all.first()) {
            Some(found) => self.commit_of_ref(found).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the default commit of the repository, given the list of all branches.
    pub(in crate::git) async fn head_among(
        &self,
        all: &[Ref<'_>],
    ) -> Result<Option<ObjectId>, HandlerError> {
        if let RepositoryHead::Detached(id) = &self.git.repository.head {
            return self.commit(id).await.map(Some);
        }
        match all.iter().find(|it| it.is_head) {
            Some(found) => self.commit_of_ref(found).await.map(Some),
            None => self.resolve_head().await,
        }
    }

    /// Lists the branches and tags that match a pattern; with `count`, only the newest `count` refs. Hidden
    /// refs are left out later, by `RefList::all`.
    pub(in crate::git) async fn list_refs(
        &self,
        patterns: &[&[u8]],
        count: Option<usize>,
    ) -> Result<RefList, HandlerError> {
        let mut command =
            GitCommand::new(&["for-each-ref", "--sort=-creatordate", parse::REF_FORMAT]);
        if let Some(count) = count {
            command = command.with(format!("--count={count}").as_bytes());
        }
        for pattern in patterns {
            command = command.with(pattern);
        }
        let output = self
            .git
            .collect(GitSource::Refs, command, Vec::new(), GIT_PAGE_BYTES_MAX);
        Ok(RefList {
            output: output.await?,
            hidden: self.hidden.clone(),
        })
    }
}

/// Returns the rules for hidden refs from the repository's configuration. Fails with status 404 if the
/// configuration hides the whole repository.
pub(in crate::git) async fn hidden_refs(git: &GitRunner) -> Result<HiddenRefs, HandlerError> {
    if !git.repository.may_hide {
        return Ok(HiddenRefs::default());
    }
    let command = GitCommand::new(&["config", "--list", "--null"]);
    let output = git.collect(GitSource::Refs, command, Vec::new(), GIT_PAGE_BYTES_MAX);
    let output = output.await?;
    // A configuration cut at the limit may hide further refs.
    if output.is_cut || parse::refuses_fetches(&output.bytes) {
        let why =
            "the configuration of the repository sets http.uploadpack to false or is too long";
        return Err(HandlerError::because("git page", Reject::NOT_FOUND, why));
    }
    Ok(HiddenRefs::read(&output.bytes))
}

impl PageUrl {
    /// Sets the branch, tag or commit of a snapshot from the file name: `hammer-v1.0.tar.gz` means `v1.0`.
    pub(in crate::git) fn name_snapshot(
        &mut self,
        location: &PageLocation,
    ) -> Result<(), HandlerError> {
        let PageKind::Snapshot(name) = &self.aspect else {
            return Ok(());
        };
        let rest = name.strip_suffix(ARCHIVE_ENDING);
        let rest = rest.and_then(|it| it.strip_prefix(location.short_name())?.strip_prefix(b"-"));
        let rest = rest.ok_or(refused(Reject::NOT_FOUND))?;
        self.head = None;
        self.other = None;
        self.id = ObjectId::parse(rest);
        if self.id.is_none() {
            let name = Some(rest.to_vec()).filter(|name| is_ref_name(name));
            self.head = Some(name.ok_or(refused(Reject::NOT_FOUND))?);
        }
        Ok(())
    }
}

/// File name ending of snapshots.
pub(in crate::git) const ARCHIVE_ENDING: &[u8] = b".tar.gz";
