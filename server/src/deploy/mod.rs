//! A branch of a repository becomes a site's folder: `git archive` of its commit is unpacked beside the
//! folder, brought to the disk, and a link is turned. Whole, or not at all.
//!
//! All of it blocks, and is run by one thread: who serves reads the old tree meanwhile, and goes on
//! with it until the control plane has made a World of the new one.

mod git;
mod error;
mod deployed_root;
mod unpack;

pub use crate::deploy::error::DeployError;

use crate::config::{Deployment, ServerConfig};
use crate::deploy::deployed_root::DeployedRoot;
use crate::deploy::git::{GitProcess, GitRepository};
use crate::handler::git::post_receive::git_folder;
use crate::handler::git::sandbox_repository;
use crate::limits::DEPLOY_CLEANUP_SECONDS_MAX;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// What is deployed, from where to where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployPlan {
    /// The site's first name, for words.
    pub site: String,
    /// The repository as it is named, below its route's folder.
    pub shown: String,
    /// Where it lies; its ending may be missing.
    pub repository: PathBuf,
    /// Without `refs/heads/`.
    pub branch: String,
    /// The site's root, a link or to become one.
    pub root: PathBuf,
    /// Where our own repositories are, in which others' objects are read.
    bare: PathBuf,
    bounds: TreeLimits,
}

/// How large a tree may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TreeLimits {
    entries: u64,
    bytes: u64,
}

/// What came of trying.
#[derive(Debug)]
pub enum DeployOutcome {
    /// That commit is there already.
    Same(String),
    /// There is no such branch; what is there stays.
    NoBranch,
    /// It is the commit that failed before, and isn't tried again.
    StillFailed,
    /// The root leads to a new tree.
    Deployed(DeployedTree),
    /// What was there stays.
    Failed(DeployFailureCause, DeployError),
}

/// What a failure has to do with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeployFailureCause {
    /// The repository couldn't be read. That may pass without anything that could be watched.
    Repository,
    /// This commit: the same would come of it again.
    Commit(String),
    /// A fault of our own, of whichever commit.
    Ourselves,
}

impl DeployFailureCause {
    /// Its commit, if it is known.
    pub fn commit(&self) -> Option<&str> {
        match self {
            DeployFailureCause::Commit(commit) => Some(commit),
            DeployFailureCause::Repository | DeployFailureCause::Ourselves => None,
        }
    }
}

/// A new tree.
#[derive(Debug)]
pub struct DeployedTree {
    /// Its commit.
    pub commit: String,
    /// Where it lies, links resolved.
    pub tree: PathBuf,
    /// Files in it.
    pub files: u64,
    /// Bytes in those.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
    /// What is left of former times.
    pub old: OldTrees,
}

/// Trees that were served before, of which few are kept.
#[derive(Clone, Debug)]
pub struct OldTrees(DeployedRoot);

impl OldTrees {
    /// Takes the others away; blocks, and is best done when nobody waits for it.
    pub fn remove(&self) {
        self.0.clean();
    }
}

impl DeployOutcome {
    /// What can be taken away after it.
    pub fn old(&self) -> Option<OldTrees> {
        match self {
            DeployOutcome::Deployed(turned) => Some(turned.old.clone()),
            _ => None,
        }
    }
}

/// Says that a deployment isn't wanted any more.
pub type CancelFlag = Arc<AtomicBool>;

impl DeployPlan {
    /// Of what was configured.
    pub fn of(deployment: &Deployment<'_>, server: &ServerConfig) -> DeployPlan {
        let name = deployment.site.names.first();
        DeployPlan {
            site: name.map_or("*", |name| name.get_ref()).to_owned(),
            shown: deployment.deploy.repository.get_ref().clone(),
            repository: deployment.repository(),
            branch: deployment.deploy.branch.get_ref().clone(),
            root: deployment.root.get_ref().clone(),
            bare: sandbox_repository::home(server.state.get_ref()),
            bounds: TreeLimits {
                entries: server.limits.deploy_files as u64,
                bytes: server.limits.deploy_bytes,
            },
        }
    }

    /// Is it the same but for how large a tree may be?
    pub fn is_like(&self, other: &DeployPlan) -> bool {
        let bounds = other.bounds;
        let with_its = DeployPlan {
            bounds,
            ..self.clone()
        };
        with_its == *other
    }

    /// Is it this repository that was pushed to, by whatever name?
    pub fn is_from(&self, pushed: &std::path::Path) -> bool {
        let real = |named| git_folder(named)?.canonicalize().ok();
        let ours = real(&self.repository);
        ours.is_some() && ours == real(pushed)
    }

    /// Files that change with the branch.
    pub fn refs(&self) -> Vec<PathBuf> {
        let Some(folder) = git_folder(&self.repository) else {
            return Vec::new();
        };
        vec![
            folder.join("refs/heads").join(&self.branch),
            folder.join("packed-refs"),
            folder.join("reftable/tables.list"),
        ]
    }

    /// The commit whose tree the root leads to, and since when.
    pub fn deployed(&self) -> Option<(String, SystemTime)> {
        let place = DeployedRoot::of(&self.root).ok()?;
        let commit = place.commit()?;
        let since = std::fs::symlink_metadata(&self.root)
            .ok()?
            .modified()
            .ok()?;
        Some((commit, since))
    }

    /// Makes the root lead to the branch's tree, if it doesn't yet, and if it isn't `failed`. Blocks.
    pub fn run(&self, failed: Option<&str>, unwanted: &CancelFlag) -> DeployOutcome {
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
            Ok(None) => DeployOutcome::Same(commit),
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
        let place = DeployedRoot::of(&self.root)?;
        if place.commit().as_deref() == Some(commit) && self.root.exists() {
            return Ok(None);
        }
        let draft = place.draft()?;
        let mut archive = GitProcess::begin(git, commit, unwanted)?;
        let unpacked = unpack::unpack(&mut archive, draft.path(), &self.root, self.bounds);
        // Why git ended is the reason for what was missing.
        archive.end()?;
        let unpacked = unpacked?;
        if unwanted.load(Ordering::Relaxed) {
            return Err(DeployError::unwanted());
        }
        let tree = place.turn(draft, commit)?;
        Ok(Some(DeployedTree {
            commit: commit.to_owned(),
            tree,
            files: unpacked.files,
            bytes: unpacked.bytes,
            took: began.elapsed(),
            old: OldTrees(place),
        }))
    }

    /// Does the root lead to a tree of ours, of whichever commit?
    pub fn has_deployed_tree(&self) -> bool {
        DeployedRoot::of(&self.root).is_ok_and(|place| !place.is_to_be_made())
    }

    /// Before a World is built of it, a root that isn't there is made: of the branch, if that is done by
    /// then, or else it is empty for now. Blocks.
    pub fn ensure_root(&self, until: Instant) -> Result<(), DeployError> {
        if self.has_deployed_tree() {
            return Ok(());
        }
        match self.run_until(until) {
            Some(DeployOutcome::Deployed(turned)) => {
                log::info!("{}", self.success_message(&turned));
                turned.old.remove();
                return Ok(());
            }
            Some(DeployOutcome::Same(_) | DeployOutcome::NoBranch | DeployOutcome::StillFailed) => {
            }
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

    /// What came of it, if it came to its end by then. If it didn't, it is given up: who waits for the
    /// disk can't be stopped at once, and is left behind to clean up.
    fn run_until(&self, until: Instant) -> Option<DeployOutcome> {
        let patience = until.checked_duration_since(Instant::now())?;
        let (plan, unwanted) = (self.clone(), CancelFlag::default());
        let (done, outcome) = mpsc::channel();
        let of_thread = unwanted.clone();
        let run = move || {
            // After a while nobody listens any more.
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

    /// For the log.
    pub fn success_message(&self, turned: &DeployedTree) -> String {
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

    /// For the log.
    pub fn failure_message(&self, commit: Option<&str>, failure: &DeployError) -> String {
        let what = match commit {
            Some(commit) => format!("{} of {}", short(commit), self.shown),
            None => format!("{} of {}", self.branch, self.shown),
        };
        format!("{}: {what} is not deployed: {failure}", self.site)
    }
}

/// As much of a commit's id as people read.
pub fn short(commit: &str) -> &str {
    commit.get(..SHORT).unwrap_or(commit)
}

const SHORT: usize = 7;
