//! Deployment of a branch to a site's root: the output of `git archive` is unpacked beside the root and
//! synced, and then the root's symbolic link is switched. For a site with `release`, the tree is unpacked in
//! the state folder and published in the store. A deployment takes effect completely or not at all.
//!
//! All functions block and run on one thread. Workers serve the old tree meanwhile, until the control plane
//! publishes a World with the new tree.

mod git;
mod error;
mod deployed_release;
mod deployed_root;
pub(crate) mod limits;
mod tree_draft;
mod unpack;

pub use crate::deploy::error::DeployError;
pub use crate::deploy::git::CancelFlag;

use crate::config::{Deployment, DeploymentTarget, ServerConfig};
use crate::deploy::deployed_release::DeployedRelease;
use crate::deploy::deployed_root::DeployedRoot;
use crate::deploy::git::{GitProcess, GitRepository};
use crate::deploy::limits::DEPLOY_CLEANUP_SECONDS_MAX;
use crate::deploy::tree_draft::TreeDraft;
use crate::deploy::unpack::{TreeLimits, UnpackedTree};
use crate::git::post_receive::git_folder;
use crate::git::sandbox_repository;
use data_plane::site::{FolderRelease, ReleaseState, Site};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Source and destination of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeployPlan {
    /// First name of the site, for messages.
    pub site: String,
    /// Name of the repository below the route's folder.
    pub shown: String,
    /// Path of the repository, possibly without the `.git` suffix.
    pub repository: PathBuf,
    /// Name of the branch, without `refs/heads/`.
    pub branch: String,
    /// Root of the site: a symbolic link, or to be replaced by a symbolic link. For a release, the folder of the
    /// site in the store.
    pub root: PathBuf,
    /// Release of the site; None for a site with a root.
    release: Option<DeployedRelease>,
    /// Folder of the sandbox repositories, in which foreign objects are read.
    bare: PathBuf,
    bounds: TreeLimits,
}

/// Outcome of an attempt.
#[derive(Debug)]
pub(crate) enum DeployOutcome {
    /// The commit is deployed already.
    Same,
    /// The branch does not exist. The current tree stays.
    NoBranch,
    /// The commit failed before, and is not tried again.
    StillFailed,
    /// The root leads to a new tree.
    Deployed(DeployedTree),
    /// The attempt failed. The current tree stays.
    Failed(DeployFailureCause, DeployError),
}

/// Scope of a failure, which decides about a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeployFailureCause {
    /// The repository was unreadable. The cause may disappear without an observable file change.
    Repository,
    /// The given commit failed. A retry would fail again.
    Commit(String),
    /// The server failed, independent of the commit.
    Ourselves,
}

impl DeployFailureCause {
    /// Returns the commit that failed, if known.
    pub(crate) fn commit(&self) -> Option<&str> {
        match self {
            DeployFailureCause::Commit(commit) => Some(commit),
            DeployFailureCause::Repository | DeployFailureCause::Ourselves => None,
        }
    }
}

/// Newly deployed tree.
#[derive(Debug)]
pub(crate) struct DeployedTree {
    /// Commit of the tree.
    pub commit: String,
    /// Path of the tree, links resolved. For a release, the folder of the site in the store.
    pub tree: PathBuf,
    /// Published release; None for a site with a root.
    pub release: Option<Box<FolderRelease>>,
    /// Number of files.
    pub files: u64,
    /// Total bytes of the files.
    pub bytes: u64,
    /// Duration of the deployment.
    pub took: Duration,
    /// Earlier trees of the site.
    pub old: OldTrees,
}

impl DeployedTree {
    /// Returns true if a site has the tree or the release, or a later release.
    pub(crate) fn is_in(&self, site: &Site) -> bool {
        match (&self.release, site.release_state()) {
            (None, _) => site.root() == self.tree,
            (Some(release), Some(ReleaseState::Served(served))) => {
                served.sequence >= release.pointer.sequence
            }
            (Some(_), _) => false,
        }
    }
}

/// Earlier trees or releases of a site, of which few are kept.
#[derive(Clone, Debug)]
pub(crate) struct OldTrees(OldPlace);

/// Place of earlier trees or releases.
#[derive(Clone, Debug)]
enum OldPlace {
    /// Folder of the deployed trees.
    Trees(DeployedRoot),
    /// Store of releases.
    Store(DeployedRelease),
}

impl OldTrees {
    /// Removes the trees or releases beyond the number to keep. Blocks; best called while no client waits.
    pub(crate) fn remove(&self) {
        match &self.0 {
            OldPlace::Trees(root) => root.clean(),
            OldPlace::Store(release) => release.sweep(),
        }
    }
}

impl DeployOutcome {
    /// Returns the trees to clean up after the deployment.
    pub(crate) fn old(&self) -> Option<OldTrees> {
        match self {
            DeployOutcome::Deployed(turned) => Some(turned.old.clone()),
            _ => None,
        }
    }
}

impl DeployPlan {
    /// Builds the plan from the configuration.
    pub(crate) fn of(deployment: &Deployment<'_>, server: &ServerConfig) -> DeployPlan {
        let (root, release) = match deployment.target {
            DeploymentTarget::Root(root) => (root.to_owned(), None),
            DeploymentTarget::Release(release) => {
                let release = DeployedRelease::of(release, server);
                (release.folder(), Some(release))
            }
        };
        DeployPlan {
            site: deployment.site.name.clone(),
            shown: deployment.deploy.repository.get_ref().clone(),
            repository: deployment.repository(),
            branch: deployment.deploy.branch.get_ref().clone(),
            root,
            release,
            bare: sandbox_repository::home(server.state.get_ref()),
            bounds: TreeLimits {
                entries: server.limits.deploy_files as u64,
                bytes: server.limits.deploy_bytes,
            },
        }
    }

    /// Returns true if the plans are equal except for the limits.
    pub(crate) fn is_like(&self, other: &DeployPlan) -> bool {
        let bounds = other.bounds;
        let with_its = DeployPlan {
            bounds,
            ..self.clone()
        };
        with_its == *other
    }

    /// Returns true if `pushed` is the plan's repository, under any name.
    pub(crate) fn is_from(&self, pushed: &std::path::Path) -> bool {
        let real = |named| git_folder(named)?.canonicalize().ok();
        let ours = real(&self.repository);
        ours.is_some() && ours == real(pushed)
    }

    /// Returns the files that change with the branch.
    pub(crate) fn refs(&self) -> Vec<PathBuf> {
        let Some(folder) = git_folder(&self.repository) else {
            return Vec::new();
        };
        vec![
            folder.join("refs/heads").join(&self.branch),
            folder.join("packed-refs"),
            folder.join("reftable/tables.list"),
        ]
    }

    /// Returns the commit of the tree that the root leads to, and the time of the deployment.
    pub(crate) fn deployed(&self) -> Option<(String, SystemTime)> {
        if let Some(release) = &self.release {
            return release.served();
        }
        let place = DeployedRoot::of(&self.root).ok()?;
        let commit = place.commit()?;
        let since = std::fs::symlink_metadata(&self.root)
            .ok()?
            .modified()
            .ok()?;
        Some((commit, since))
    }

    /// Deploys the branch, unless the tip is deployed already or equals the commit `failed`. Blocks.
    pub(crate) fn run(&self, failed: Option<&str>, unwanted: &CancelFlag) -> DeployOutcome {
        if unwanted.load(Ordering::Relaxed) {
            return DeployOutcome::Failed(DeployFailureCause::Ourselves, DeployError::unwanted());
        }
        let tip = git_folder(&self.repository)
            .ok_or_else(|| {
                let logged = format!("{} is not a repository", self.repository.display());
                DeployError::new(format!("{} is not a repository", self.shown)).logged_as(logged)
            })
            .and_then(|folder| GitRepository::of(folder, self.bare.clone()))
            .and_then(|git| Ok((git.tip(&self.branch, unwanted)?, git)));
        let (commit, git) = match tip {
            Ok((Some(commit), git)) => (commit, git),
            Ok((None, _)) => return DeployOutcome::NoBranch,
            Err(failure) => return DeployOutcome::Failed(DeployFailureCause::Repository, failure),
        };
        if failed == Some(&*commit) {
            return DeployOutcome::StillFailed;
        }
        match self.turn(&git, &commit, unwanted) {
            Ok(Some(turned)) => DeployOutcome::Deployed(turned),
            Ok(None) => DeployOutcome::Same,
            Err(failure) => DeployOutcome::Failed(DeployFailureCause::Commit(commit), failure),
        }
    }

    fn turn(
        &self,
        git: &GitRepository,
        commit: &str,
        unwanted: &CancelFlag,
    ) -> Result<Option<DeployedTree>, DeployError> {
        let began = Instant::now();
        let unpacked;
        let (tree, release, old) = match &self.release {
            None => {
                let root = DeployedRoot::of(&self.root)?;
                if root.commit().as_deref() == Some(commit) && self.root.exists() {
                    return Ok(None);
                }
                let draft = root.draft()?;
                unpacked = self.unpack(git, commit, &draft, unwanted)?;
                (root.turn(draft, commit)?, None, OldPlace::Trees(root))
            }
            Some(release) => {
                if release.is_last(commit)? {
                    return Ok(None);
                }
                let draft = release.draft()?;
                unpacked = self.unpack(git, commit, &draft, unwanted)?;
                let published = release.publish(&draft, commit)?;
                let old = OldPlace::Store(release.clone());
                (self.root.clone(), Some(Box::new(published)), old)
            }
        };
        Ok(Some(DeployedTree {
            commit: commit.to_owned(),
            tree,
            release,
            files: unpacked.files,
            bytes: unpacked.bytes,
            took: began.elapsed(),
            old: OldTrees(old),
        }))
    }

    /// Unpacks the tree of a commit into a draft.
    fn unpack(
        &self,
        git: &GitRepository,
        commit: &str,
        draft: &TreeDraft,
        unwanted: &CancelFlag,
    ) -> Result<UnpackedTree, DeployError> {
        let mut archive = GitProcess::begin(git, commit, unwanted)?;
        // The files of a release are copied to the store, which syncs them.
        let before = self.release.is_none().then_some(&*self.root);
        let unpacked = unpack::unpack(&mut archive, draft.path(), before, self.bounds);
        // git's own failure explains missing entries, so the exit status is checked before the result.
        archive.end()?;
        if unwanted.load(Ordering::Relaxed) {
            Err(DeployError::unwanted())
        } else {
            unpacked
        }
    }

    /// Returns true if the root leads to a deployed tree, of any commit. A site with a release needs no tree.
    pub(crate) fn has_deployed_tree(&self) -> bool {
        self.release.is_some()
            || DeployedRoot::of(&self.root).is_ok_and(|place| !place.is_to_be_made())
    }

    /// Creates a missing root before a World is built: from the branch if the deployment finishes before
    /// `until`, else empty for now. Blocks.
    pub(crate) fn ensure_root(&self, until: Instant) -> Result<(), DeployError> {
        if self.has_deployed_tree() {
            return Ok(());
        }
        match self.run_until(until) {
            Some(DeployOutcome::Deployed(turned)) => {
                log::info!("{}", self.success_message(&turned));
                turned.old.remove();
                return Ok(());
            }
            Some(DeployOutcome::Same | DeployOutcome::NoBranch | DeployOutcome::StillFailed) => {}
            Some(DeployOutcome::Failed(cause, failure)) => {
                log::error!("{}", self.failure_message(cause.commit(), &failure));
            }
            None => {
                let DeployPlan { site, branch, .. } = self;
                let shown = &self.shown;
                log::info!(
                    "{site}: empty until {branch} of {shown} is deployed, which is still in progress"
                );
            }
        }
        DeployedRoot::of(&self.root)?.make_empty()
    }

    /// Runs the deployment on a thread until `until`, and then cancels the deployment. A thread that waits
    /// for the disk cannot be stopped at once, and cleans up later.
    fn run_until(&self, until: Instant) -> Option<DeployOutcome> {
        let patience = until.checked_duration_since(Instant::now())?;
        let (plan, unwanted) = (self.clone(), CancelFlag::default());
        let (done, outcome) = mpsc::channel();
        let of_thread = unwanted.clone();
        let run = move || {
            // After the timeout, the receiver is gone.
            let _ = done.send(plan.run(None, &of_thread));
        };
        let thread = thread::Builder::new().name("anthill-deploy".to_owned());
        if let Err(error) = thread.spawn(run) {
            let failure = DeployError::new(format!("cannot start a thread: {error}"));
            return Some(DeployOutcome::Failed(
                DeployFailureCause::Ourselves,
                failure,
            ));
        }
        match outcome.recv_timeout(patience) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Disconnected) => {
                let failure = DeployError::new("the deployment panicked; see the error log");
                Some(DeployOutcome::Failed(
                    DeployFailureCause::Ourselves,
                    failure,
                ))
            }
            Err(RecvTimeoutError::Timeout) => {
                unwanted.store(true, Ordering::Relaxed);
                let grace = Duration::from_secs(DEPLOY_CLEANUP_SECONDS_MAX);
                let outcome = outcome.recv_timeout(grace).ok();
                outcome.filter(|outcome| matches!(outcome, DeployOutcome::Deployed(_)))
            }
        }
    }

    /// Returns the log message for a deployed tree.
    pub(crate) fn success_message(&self, turned: &DeployedTree) -> String {
        let files = if turned.files == 1 { "file" } else { "files" };
        format!(
            "{}: {} of {} is deployed: {} {files}, {} bytes, in {} ms",
            self.site,
            short(&turned.commit),
            self.shown,
            turned.files,
            turned.bytes,
            turned.took.as_millis()
        )
    }

    /// Returns the log message for a failed deployment.
    pub(crate) fn failure_message(&self, commit: Option<&str>, failure: &DeployError) -> String {
        let what = match commit {
            Some(commit) => format!("{} of {}", short(commit), self.shown),
            None => format!("{} of {}", self.branch, self.shown),
        };
        format!("{}: {what} is not deployed: {failure}", self.site)
    }
}

/// Returns the abbreviated id of a commit.
pub(crate) fn short(commit: &str) -> &str {
    commit.get(..SHORT).unwrap_or(commit)
}

const SHORT: usize = 7;
