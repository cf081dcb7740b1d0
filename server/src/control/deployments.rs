//! Deployments of branches: attempts under way, outcomes of the last attempts, and clients that wait for an
//! outcome.
//!
//! One thread runs the attempts, one after another. A push, a change of a branch, a start or a reload
//! during an attempt requests one further attempt. The further attempt begins afterwards and reads the
//! branch anew.

use super::watch::RESCAN;
use crate::admin::status::{DeployedCommit, DeploymentStatus};
use crate::config::{Config, Deployment, OperatorError};
use crate::deploy::limits::DEPLOY_FIRST_SECONDS;
use crate::deploy::{
    CancelFlag, DeployError, DeployFailureCause, DeployOutcome, DeployPlan, DeployedTree, OldTrees,
    short,
};
use crate::git::post_receive::{PushNotice, PushNotifier, STOPPING};
use base::clock;
use base::thread_pool::ThreadPool;
use data_plane::site::FolderRelease;
use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// All deployments of the configuration, with the thread that runs their attempts.
pub(super) struct Deployments {
    all: Vec<DeploymentRecord>,
    pool: ThreadPool,
    /// Attempts that have begun and have not reported an outcome, including attempts of earlier
    /// configurations.
    under_way: Vec<Arc<DeployPlan>>,
    /// True while a successor of the server starts: no attempt begins.
    is_suspended: bool,
    pushed: UnboundedReceiver<PushNotice>,
    done: (
        UnboundedSender<FinishedDeployment>,
        UnboundedReceiver<FinishedDeployment>,
    ),
}

/// Event of the deployments for the control plane.
pub(super) enum DeploymentEvent {
    Pushed(PushNotice),
    Done(FinishedDeployment),
}

/// End of an attempt.
pub(super) struct FinishedDeployment {
    /// The plan of the attempt.
    pub(super) plan: Arc<DeployPlan>,
    /// The outcome of the attempt.
    pub(super) outcome: DeployOutcome,
}

/// State of one deployment.
struct DeploymentRecord {
    plan: Arc<DeployPlan>,
    /// URL of the site, if known.
    url: Option<String>,
    unwanted: CancelFlag,
    runs: bool,
    /// End of the last attempt.
    ended: Option<Instant>,
    /// True if another attempt was requested during the attempt under way.
    again: bool,
    waiting: Vec<Rc<WaitingPush>>,
    /// Pushes that wait for the attempt after the attempt under way.
    waiting_again: Vec<Rc<WaitingPush>>,
    served: Option<ServedCommit>,
    /// Tree that the root already leads to and that could not be read so far.
    unread: Option<DeployedTree>,
    /// Failure of the last attempt, if the attempt failed.
    failure: Option<FailedDeployment>,
    has_branch: bool,
}

/// Outcome of an attempt after its World is published.
pub(super) enum PublishOutcome {
    /// Every deployed tree is served.
    Served,
    Failed(DeployFailureCause, DeployError),
    StillFailed,
}

/// Commit deployed since the start of the server.
struct ServedCommit {
    commit: String,
    /// Published release; None for a site with a root.
    release: Option<Box<FolderRelease>>,
    at: Instant,
}

struct FailedDeployment {
    cause: DeployFailureCause,
    why: DeployError,
    /// True if the cause of the failure may have been removed since.
    is_mended: bool,
    at: Instant,
    /// Unix time of the first in a row of equal failures, seconds.
    since: u64,
}

/// Client of a push. The client gets its response after the last deployment that the push may have changed.
struct WaitingPush {
    began: Instant,
    words: RefCell<Vec<String>>,
    /// Messages of the deployments with a branch that the push did not change.
    unchanged: RefCell<Vec<String>>,
    done: RefCell<Option<oneshot::Sender<Vec<String>>>>,
}

impl Drop for WaitingPush {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            // A push to one of several deployed branches concerns the other deployments only if none takes the push.
            let words = match self.words.take() {
                words if words.is_empty() => self.unchanged.take(),
                words => words,
            };
            // The client may have disconnected.
            let _ = done.send(words);
        }
    }
}

/// Deployments of a configuration, each with the position of its site in the file.
pub(super) struct RootPlans(Vec<(DeployPlan, Range<usize>)>);

/// Root that can't be created, with the position of its site in the file.
pub(super) struct RootFailure(Range<usize>, DeployError);

impl RootPlans {
    pub(super) fn of(config: &Config) -> RootPlans {
        let deployments = config.deployments();
        let plan =
            |it: &Deployment<'_>| (DeployPlan::of(it, &config.server), it.deploy.site.span());
        RootPlans(deployments.iter().map(plan).collect())
    }

    /// Returns true if each root leads to a deployed tree.
    pub(super) fn are_deployed(&self) -> bool {
        self.0.iter().all(|(plan, _)| plan.has_deployed_tree())
    }

    /// Creates the missing roots before a World is built from them. A root that is not deployed within
    /// `patience` stays empty and is deployed later. Blocks the thread.
    pub(super) fn deploy_missing(&self, patience: Duration) -> Result<(), RootFailure> {
        let until = std::time::Instant::now() + patience;
        for (plan, span) in &self.0 {
            plan.ensure_root(until)
                .map_err(|error| RootFailure(span.clone(), error))?;
        }
        Ok(())
    }
}

impl RootFailure {
    /// Returns the error for the operator.
    pub(super) fn in_config(self, config: &Config) -> OperatorError {
        let RootFailure(span, error) = self;
        let what = format!("the folder to deploy to can't be made: {error}");
        let help = "a folder that the server may write to, and room on its disk";
        config.point(span, what, help)
    }
}

impl Deployments {
    /// Returns deployments without any record, and the notifier for pushes.
    pub(super) fn new() -> (Deployments, PushNotifier) {
        let (pushes, pushed) = PushNotifier::new();
        let deployments = Deployments {
            all: Vec::new(),
            pool: ThreadPool::new("anthill-deploy", 1, QUEUE_MAX),
            under_way: Vec::new(),
            is_suspended: false,
            pushed,
            done: unbounded_channel(),
        };
        (deployments, pushes)
    }

    /// Waits for the next event.
    pub(super) async fn news(&mut self) -> DeploymentEvent {
        let (pushed, done) = (&mut self.pushed, &mut self.done.1);
        tokio::select! {
            Some(pushed) = pushed.recv(), if !self.is_suspended => DeploymentEvent::Pushed(pushed),
            Some(done) = done.recv() => DeploymentEvent::Done(done),
            // `self` holds the other end of both channels.
            else => std::future::pending().await,
        }
    }

    /// Takes over the deployments of a configuration. Attempts of unchanged deployments continue. `url` returns
    /// the URL of a host name.
    pub(super) fn plan(&mut self, config: &Config, url: &dyn Fn(&str) -> Option<String>) {
        let mut old = std::mem::take(&mut self.all);
        for deployment in config.deployments() {
            let plan = DeployPlan::of(&deployment, &config.server);
            let mut record = match old.iter().position(|it| it.plan.is_like(&plan)) {
                Some(nth) => old.swap_remove(nth).under(plan),
                None => DeploymentRecord::new(plan),
            };
            let failure = record.failure.iter_mut();
            failure.for_each(|it| it.is_mended = true);
            let mut names = deployment.site.names.iter().map(|name| name.get_ref());
            let name =
                names.find(|name| !name.starts_with('*') && deployment.site.listen.is_empty());
            record.url = name.and_then(|name| url(name));
            self.all.push(record);
        }
        for left in old {
            left.unwanted.store(true, Ordering::Relaxed);
            left.tell_all(NO_MORE);
        }
    }

    /// Returns the files that change with the branches.
    pub(super) fn refs(&self) -> Vec<std::path::PathBuf> {
        self.all.iter().flat_map(|it| it.plan.refs()).collect()
    }

    /// Starts an attempt for every deployment, to compare the branch with the served commit. A deployment
    /// with an attempt under way gets another attempt afterwards.
    pub(super) fn start_all(&mut self) {
        self.start_where(|_| true);
    }

    /// Starts an attempt for every deployment without an attempt under way. The check at intervals uses the
    /// function, since no branch is known to have changed.
    pub(super) fn start_idle(&mut self) {
        self.start_where(|record| !record.runs);
    }

    /// Returns the time of the next attempt without a change of the branch: a repository or a tree that
    /// could not be read may be readable by then.
    pub(super) fn retries_at(&self) -> Option<Instant> {
        let all = self.all.iter().filter(|_| !self.is_suspended);
        all.filter_map(DeploymentRecord::retries_at).min()
    }

    /// Starts the attempts that are due by [`Deployments::retries_at`].
    pub(super) fn start_due(&mut self) {
        let now = Instant::now();
        self.start_where(|record| record.retries_at().is_some_and(|at| at <= now));
    }

    fn start_where(&mut self, is_chosen: impl Fn(&DeploymentRecord) -> bool) {
        for nth in 0..self.all.len() {
            if is_chosen(&self.all[nth]) {
                self.start_attempt(nth, None);
            }
        }
    }

    /// Starts an attempt for every deployment of a repository after a push.
    pub(super) fn pushed(&mut self, pushed: PushNotice) {
        let waiting = Rc::new(WaitingPush {
            began: pushed.began,
            words: RefCell::default(),
            unchanged: RefCell::default(),
            done: RefCell::new(Some(pushed.done)),
        });
        for nth in 0..self.all.len() {
            if self.all[nth].plan.is_from(&pushed.repository) {
                self.start_attempt(nth, Some(waiting.clone()));
            }
        }
    }

    fn start_attempt(&mut self, nth: usize, waiting: Option<Rc<WaitingPush>>) {
        let record = &mut self.all[nth];
        if record.runs {
            record.again = true;
            record.waiting_again.extend(waiting);
            return;
        }
        record.waiting.extend(waiting);
        if self.is_suspended {
            return;
        }
        let (plan, unwanted) = (record.plan.clone(), record.unwanted.clone());
        let failed = record.not_again();
        let done = self.done.0.clone();
        let queued = self.pool.spawn(move || {
            let run = AssertUnwindSafe(|| plan.run(failed.as_deref(), &unwanted));
            // A panic ends the attempt as a failure.
            let outcome = catch_unwind(run).unwrap_or_else(|_| {
                let why = DeployError::new("the deployment panicked; see the error log");
                DeployOutcome::Failed(DeployFailureCause::Ourselves, why)
            });
            let old = outcome.old();
            // The receiver is gone while the server stops.
            let _ = done.send(FinishedDeployment { plan, outcome });
            old.iter().for_each(OldTrees::remove);
        });
        match queued {
            Ok(()) => {
                record.runs = true;
                self.under_way.push(record.plan.clone());
            }
            Err(gone) => {
                log::error!("{}: not deployed: {gone}", record.plan.site);
                record.ended = Some(Instant::now());
                record.waiting.clear();
            }
        }
    }

    /// Begins no attempt until [`Deployments::resume`]. An attempt under way goes on.
    pub(super) fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// Begins attempts again, and one for every deployment at once.
    pub(super) fn resume(&mut self) {
        self.is_suspended = false;
        self.start_all();
    }

    /// Stops all deployments: cancels attempts under way, begins no further attempt, and responds to all
    /// waiting clients.
    pub(super) fn stop(&mut self) {
        self.pushed.close();
        while self.pushed.try_recv().is_ok() {}
        for record in self.all.drain(..) {
            record.unwanted.store(true, Ordering::Relaxed);
            record.tell_all(STOPPING);
        }
    }

    /// Waits up to [`GRACE`] for the end of cancelled attempts and for their cleanup. Returns the plans of
    /// attempts that deployed a tree all the same or may still do so: their roots lead to trees that the
    /// server has not served.
    pub(super) async fn finish(&mut self) -> Vec<Arc<DeployPlan>> {
        let until = Instant::now() + GRACE;
        let mut turned = Vec::new();
        while !self.under_way.is_empty() {
            match timeout_at(until, self.done.1.recv()).await {
                Ok(Some(done)) => {
                    self.ended(&done.plan);
                    if let DeployOutcome::Deployed(_) = done.outcome {
                        turned.push(done.plan);
                    }
                }
                // `self` holds the other end of the channel, so the deadline has passed.
                Ok(None) | Err(_) => {
                    log::error!("a cancelled deployment has not ended in time");
                    turned.append(&mut self.under_way);
                }
            }
        }
        turned
    }

    /// Returns true if no attempt is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Records the end of an attempt. Returns a tree of an earlier attempt that could not be read yet.
    pub(super) fn finish_attempt(&mut self, finished: &FinishedDeployment) -> Option<DeployedTree> {
        self.ended(&finished.plan);
        let mut all = self.all.iter_mut();
        let record = all.find(|it| Arc::ptr_eq(&it.plan, &finished.plan))?;
        record.has_branch = !matches!(finished.outcome, DeployOutcome::NoBranch);
        record.unread.take()
    }

    /// Records a tree that is deployed and could not be read yet.
    pub(super) fn mark_unread(&mut self, plan: &DeployPlan, tree: DeployedTree) {
        if let Some(record) = self.record_of(plan) {
            record.unread = Some(tree);
        }
    }

    /// Records that a tree of `commit` is served, as a release if given.
    pub(super) fn mark_served(
        &mut self,
        plan: &DeployPlan,
        commit: String,
        release: Option<Box<FolderRelease>>,
    ) {
        if let Some(record) = self.record_of(plan) {
            record.serves(commit, release);
        }
    }

    /// Responds to the clients that wait for an attempt, and begins the next attempt if one was requested
    /// meanwhile. Returns true if the repository has become readable.
    pub(super) fn settle(&mut self, plan: &Arc<DeployPlan>, outcome: PublishOutcome) -> bool {
        let mut all = self.all.iter_mut();
        let Some(nth) = all.position(|it| Arc::ptr_eq(&it.plan, plan)) else {
            // A reload has removed the deployment meanwhile, or changed its plan. The root leads to the new
            // tree.
            return false;
        };
        let record = &mut self.all[nth];
        let was_unreadable = record.is_unreadable();
        record.settle(outcome);
        // A check of the branch meanwhile did not know of the failure yet.
        record.runs = false;
        record.ended = Some(Instant::now());
        let is_new = was_unreadable && !record.is_unreadable();
        if std::mem::take(&mut record.again) {
            let waiting = std::mem::take(&mut record.waiting_again);
            record.waiting = waiting;
            self.start_attempt(nth, None);
        }
        is_new
    }

    /// Returns the record of a plan. A reload may have replaced the plan by an equal plan.
    fn record_of(&mut self, plan: &DeployPlan) -> Option<&mut DeploymentRecord> {
        self.all.iter_mut().find(|it| it.plan.is_like(plan))
    }

    fn ended(&mut self, plan: &Arc<DeployPlan>) {
        let position = self.under_way.iter().position(|it| Arc::ptr_eq(it, plan));
        position.map(|nth| self.under_way.swap_remove(nth));
    }

    /// Returns the status of every deployment.
    pub(super) fn status(&self) -> Vec<DeploymentStatus> {
        self.all.iter().map(DeploymentRecord::status).collect()
    }
}

/// Response to a push if a reload has removed the deployment meanwhile.
const NO_MORE: &str = "not deployed: the deployment was removed from the server's configuration";
/// Time to end git and to remove an unfinished tree at a stop. Afterwards both are left behind.
const GRACE: Duration = Duration::from_secs(10);
/// Maximum wait of the server's start for first deployments.
pub(super) const FIRST_DEPLOY_WAIT_MAX: Duration = Duration::from_secs(DEPLOY_FIRST_SECONDS);
/// Maximum number of attempts in the queue. Each site has at most one attempt, so the queue never fills up.
const QUEUE_MAX: usize = 65_536;

impl DeploymentRecord {
    fn new(plan: DeployPlan) -> DeploymentRecord {
        DeploymentRecord {
            plan: Arc::new(plan),
            url: None,
            unwanted: CancelFlag::default(),
            runs: false,
            ended: None,
            again: false,
            waiting: Vec::new(),
            waiting_again: Vec::new(),
            served: None,
            unread: None,
            failure: None,
            has_branch: true,
        }
    }

    /// Returns the record with a new plan. If the plan differs, cancels the attempt under way; the waiting
    /// clients wait for an attempt with the new plan.
    fn under(mut self, plan: DeployPlan) -> DeploymentRecord {
        if *self.plan == plan {
            return self;
        }
        self.unwanted.store(true, Ordering::Relaxed);
        self.waiting.append(&mut self.waiting_again);
        DeploymentRecord {
            plan: Arc::new(plan),
            unwanted: CancelFlag::default(),
            runs: false,
            again: false,
            ..self
        }
    }

    fn status(&self) -> DeploymentStatus {
        let plan = &*self.plan;
        DeploymentStatus {
            site: plan.site.clone(),
            repository: plan.shown.clone(),
            branch: plan.branch.clone(),
            has_branch: self.has_branch,
            is_running: self.runs,
            deployed: plan.deployed().map(|(commit, since)| DeployedCommit {
                short_id: short(&commit).to_owned(),
                id: commit,
                since: seconds(since),
            }),
            failure: self
                .failure
                .as_ref()
                .map(|failed| (failed.since, failed.why.to_string())),
        }
    }

    /// Adds a line to the responses of all waiting clients.
    fn tell_all(&self, words: &str) {
        for waiting in self.waiting.iter().chain(&self.waiting_again) {
            waiting.words.borrow_mut().push(words.to_owned());
        }
    }

    /// Records that a tree of `commit` is served, as a release if given.
    fn serves(&mut self, commit: String, release: Option<Box<FolderRelease>>) {
        self.unread = None;
        self.served = Some(ServedCommit {
            commit,
            release,
            at: Instant::now(),
        });
    }

    /// Returns true if the last attempt could not read the repository.
    fn is_unreadable(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|it| it.cause == DeployFailureCause::Repository)
    }

    fn retries_at(&self) -> Option<Instant> {
        let may_pass = !self.runs && (self.unread.is_some() || self.is_unreadable());
        self.ended.filter(|_| may_pass).map(|at| at + RESCAN)
    }

    /// Returns the failed commit that the next attempt must skip. Returns `None` if the cause of the
    /// failure may have been removed or if a client has pushed since.
    fn not_again(&self) -> Option<String> {
        let failed = self.failure.as_ref().filter(|it| !it.is_mended)?;
        // An unread tree may be readable by now, so its commit is not skipped.
        let unread = self.unread.as_ref().map(|unread| &*unread.commit);
        let commit = failed.cause.commit().filter(|it| unread != Some(*it))?;
        let is_known = self.waiting.iter().all(|it| it.began <= failed.at);
        is_known.then(|| commit.to_owned())
    }

    /// Records the outcome for the status, and responds to the waiting clients.
    fn settle(&mut self, came: PublishOutcome) {
        match came {
            PublishOutcome::Served => self.failure = None,
            PublishOutcome::Failed(cause, why) => {
                let known = self.failure.take().filter(|it| it.why == why);
                // The server may try often: a repeated failure is logged only if clients wait.
                if known.is_none() || !self.waiting.is_empty() {
                    log::error!("{}", self.plan.failure_message(cause.commit(), &why));
                }
                let same = known.filter(|it| it.cause == cause);
                self.failure = Some(FailedDeployment {
                    cause,
                    why,
                    is_mended: false,
                    at: Instant::now(),
                    since: same.map_or_else(clock::unix_seconds_now, |it| it.since),
                });
            }
            PublishOutcome::StillFailed => {}
        }
        // The response to a client is sent when its last deployment drops the client's record.
        for waiting in std::mem::take(&mut self.waiting) {
            let words = self.words_for(&waiting);
            if words.is_empty() {
                let state = if self.has_branch {
                    "which the push did not change"
                } else {
                    "which does not exist"
                };
                let (site, branch) = (&self.plan.site, &self.plan.branch);
                let what = format!("not deployed: {site} takes the branch {branch}, {state}");
                waiting.unchanged.borrow_mut().push(what);
            }
            waiting.words.borrow_mut().extend(words);
        }
    }

    fn words_for(&self, waiting: &WaitingPush) -> Vec<String> {
        if let Some(failed) = &self.failure {
            return self.complaint(failed);
        }
        let served = self.served.as_ref();
        let served = served.filter(|served| served.at >= waiting.began);
        served.map_or_else(Vec::new, |served| self.success(served, waiting.began))
    }

    /// Returns the success of a push that began at `began`.
    fn success(&self, served: &ServedCommit, began: Instant) -> Vec<String> {
        let commit = short(&served.commit);
        let mut lines = vec![match &self.url {
            Some(url) => format!("deployed {commit} to {url}"),
            None => format!("deployed {commit}"),
        }];
        if let Some(release) = &served.release {
            let seconds = (served.at - began).as_secs_f64();
            lines.extend(release.report(&format!(", served by all workers after {seconds:.1} s")));
        }
        lines
    }

    fn complaint(&self, failed: &FailedDeployment) -> Vec<String> {
        let why = &failed.why;
        let site = self.url.as_deref().unwrap_or(&self.plan.site);
        let deployed = self.plan.deployed().map(|(commit, _)| commit);
        let stays = match deployed.filter(|commit| failed.cause.commit() != Some(commit)) {
            Some(commit) => format!("{site} stays at {}", short(&commit)),
            None => format!("{site} stays as it is"),
        };
        vec![format!("NOT DEPLOYED: {}", why.client_message()), stays]
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
