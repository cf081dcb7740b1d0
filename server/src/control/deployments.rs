//! Deployments: which are under way, what came of the last ones, and who waits for them.
//!
//! A thread does the work, one deployment after the other. What a push, a change of a branch, a start
//! or a reload asks for while one is under way is done after it, once, by what the branch is then.

use super::watch::RESCAN;
use crate::admin::status::{DeployedCommit, DeploymentStatus};
use crate::base::clock;
use crate::base::thread_pool::ThreadPool;
use crate::config::{Config, OperatorError};
use crate::deploy::{
    CancelFlag, DeployError, DeployFailureCause, DeployOutcome, DeployPlan, DeployedTree, OldTrees,
    short,
};
use crate::handler::git::post_receive::{PushNotice, PushNotifier, STOPPING};
use crate::limits::DEPLOY_FIRST_SECONDS;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

/// All of them.
pub(super) struct Deployments {
    all: Vec<DeploymentRecord>,
    pool: ThreadPool,
    /// Tries that were begun and haven't been heard of, of former configurations too.
    under_way: Vec<Arc<DeployPlan>>,
    pushed: UnboundedReceiver<PushNotice>,
    done: (
        UnboundedSender<FinishedDeployment>,
        UnboundedReceiver<FinishedDeployment>,
    ),
}

/// What the control plane is to hear of.
pub(super) enum DeploymentEvent {
    Pushed(PushNotice),
    Done(FinishedDeployment),
}

/// A try has come to its end.
pub(super) struct FinishedDeployment {
    /// The plan of the attempt.
    pub(super) plan: Arc<DeployPlan>,
    /// The outcome of the attempt.
    pub(super) outcome: DeployOutcome,
}

/// How it stands with one of them.
struct DeploymentRecord {
    plan: Arc<DeployPlan>,
    /// Where the site is to be seen, as far as that is known.
    url: Option<String>,
    unwanted: CancelFlag,
    runs: bool,
    /// When the last try came to its end.
    ended: Option<Instant>,
    /// Asked for while it ran.
    again: bool,
    waiting: Vec<Rc<WaitingPush>>,
    /// For the try after the one under way.
    waiting_again: Vec<Rc<WaitingPush>>,
    served: Option<ServedCommit>,
    /// What the root leads to already, and couldn't be read so far.
    unread: Option<DeployedTree>,
    /// Why the last try failed, if it did.
    failure: Option<FailedDeployment>,
    has_branch: bool,
}

/// What came of a try, once it is served.
pub(super) enum PublishOutcome {
    /// There is nothing that isn't served.
    Served,
    Failed(DeployFailureCause, DeployError),
    StillFailed,
}

/// What we have deployed since the start.
struct ServedCommit {
    commit: String,
    at: Instant,
}

struct FailedDeployment {
    cause: DeployFailureCause,
    why: DeployError,
    /// Somebody may have mended what was wrong.
    is_mended: bool,
    at: Instant,
    /// Seconds since 1970.
    since: u64,
}

/// Who pushed, to be answered when the last deployment that it may have changed has come to its end.
struct WaitingPush {
    began: Instant,
    words: RefCell<Vec<String>>,
    done: RefCell<Option<oneshot::Sender<Vec<String>>>>,
}

impl Drop for WaitingPush {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            // They may have left.
            let _ = done.send(self.words.take());
        }
    }
}

/// Roots that aren't there yet are made, before a World is built of them; what isn't deployed within this
/// time is empty, and deployed later. Blocks.
pub(super) fn deploy_missing_roots(
    config: &Config,
    patience: Duration,
) -> Result<(), OperatorError> {
    let until = Instant::now() + patience;
    for deployment in config.deployments() {
        let plan = DeployPlan::of(&deployment, &config.server);
        plan.ensure_root(until).map_err(|failure| {
            let what = format!("the folder to deploy to can't be made: {failure}");
            let help = "a folder that the server may write to, and room on its disk";
            config.point(deployment.deploy.site.span(), what, help)
        })?;
    }
    Ok(())
}

impl Deployments {
    /// None yet, and where pushes are told.
    pub(super) fn new() -> (Deployments, PushNotifier) {
        let (pushes, pushed) = PushNotifier::new();
        let deployments = Deployments {
            all: Vec::new(),
            pool: ThreadPool::new("anthill-deploy", 1, QUEUE_MAX),
            under_way: Vec::new(),
            pushed,
            done: unbounded_channel(),
        };
        (deployments, pushes)
    }

    /// Waits for the next thing to do.
    pub(super) async fn news(&mut self) -> DeploymentEvent {
        let (pushed, done) = (&mut self.pushed, &mut self.done.1);
        tokio::select! {
            Some(pushed) = pushed.recv() => DeploymentEvent::Pushed(pushed),
            Some(done) = done.recv() => DeploymentEvent::Done(done),
            // The other end of each is held by ourselves.
            else => std::future::pending().await,
        }
    }

    /// Those of this configuration; what goes on is not disturbed.
    pub(super) fn plan(&mut self, config: &Config, https_port: Option<u16>) {
        let mut old = std::mem::take(&mut self.all);
        for deployment in config.deployments() {
            let plan = DeployPlan::of(&deployment, &config.server);
            let mut standing = match old.iter().position(|it| it.plan.is_like(&plan)) {
                Some(nth) => old.swap_remove(nth).under(plan),
                None => DeploymentRecord::new(plan),
            };
            let failure = standing.failure.iter_mut();
            failure.for_each(|it| it.is_mended = true);
            standing.url = url(&deployment.site.names, config, https_port);
            self.all.push(standing);
        }
        for left in old {
            left.unwanted.store(true, Ordering::Relaxed);
            left.tell_all(NO_MORE);
        }
    }

    /// Files that change with their branches.
    pub(super) fn refs(&self) -> Vec<std::path::PathBuf> {
        self.all.iter().flat_map(|it| it.plan.refs()).collect()
    }

    /// Looks whether a branch is at another commit than the one that is served; what is being looked
    /// at, once more after that.
    pub(super) fn look(&mut self) {
        self.look_where(|_| true);
    }

    /// The same where nothing says that a branch has changed: what is being looked at, isn't looked at
    /// twice for that.
    pub(super) fn look_at_idle(&mut self) {
        self.look_where(|standing| !standing.runs);
    }

    /// When the next one is to be looked at though nothing says that its branch has changed: what
    /// couldn't be read may be readable by then.
    pub(super) fn looks_again_at(&self) -> Option<Instant> {
        self.all
            .iter()
            .filter_map(DeploymentRecord::looks_again_at)
            .min()
    }

    /// Looks at those whose time has come.
    pub(super) fn look_again(&mut self) {
        let now = Instant::now();
        self.look_where(|standing| standing.looks_again_at().is_some_and(|at| at <= now));
    }

    fn look_where(&mut self, is_meant: impl Fn(&DeploymentRecord) -> bool) {
        for nth in 0..self.all.len() {
            if is_meant(&self.all[nth]) {
                self.try_one(nth, None);
            }
        }
    }

    /// Begins the deployments of a repository after a push.
    pub(super) fn pushed(&mut self, pushed: PushNotice) {
        let waiting = Rc::new(WaitingPush {
            began: pushed.began,
            words: RefCell::default(),
            done: RefCell::new(Some(pushed.done)),
        });
        for nth in 0..self.all.len() {
            if self.all[nth].plan.is_from(&pushed.repository) {
                self.try_one(nth, Some(waiting.clone()));
            }
        }
    }

    fn try_one(&mut self, nth: usize, waiting: Option<Rc<WaitingPush>>) {
        let standing = &mut self.all[nth];
        if standing.runs {
            standing.again = true;
            standing.waiting_again.extend(waiting);
            return;
        }
        standing.waiting.extend(waiting);
        let (plan, unwanted) = (standing.plan.clone(), standing.unwanted.clone());
        let failed = standing.not_again();
        let done = self.done.0.clone();
        let queued = self.pool.spawn(move || {
            let run = AssertUnwindSafe(|| plan.run(failed.as_deref(), &unwanted));
            // A fault of our own ends a try as any other.
            let outcome = catch_unwind(run).unwrap_or_else(|_| {
                let why = DeployError::new("it panicked; see the error log");
                DeployOutcome::Failed(DeployFailureCause::Ourselves, why)
            });
            let old = outcome.old();
            // Nobody listens while the server stops.
            let _ = done.send(FinishedDeployment { plan, outcome });
            old.iter().for_each(OldTrees::remove);
        });
        match queued {
            Ok(()) => {
                standing.runs = true;
                self.under_way.push(standing.plan.clone());
            }
            Err(gone) => {
                log::error!("{}: not deployed: {gone}", standing.plan.site);
                standing.ended = Some(Instant::now());
                standing.waiting.clear();
            }
        }
    }

    /// The server stops: nothing is begun any more, what is under way is given up, and nobody waits.
    pub(super) fn stop(&mut self) {
        self.pushed.close();
        while self.pushed.try_recv().is_ok() {}
        for standing in self.all.drain(..) {
            standing.unwanted.store(true, Ordering::Relaxed);
            standing.tell_all(STOPPING);
        }
    }

    /// Waits for what was given up to be cleaned up, for a moment. Returns those that came to their end
    /// all the same, or may do so yet: their roots lead to trees that nobody has served.
    pub(super) async fn finish(&mut self) -> Vec<Arc<DeployPlan>> {
        let until = tokio::time::Instant::now() + GRACE;
        let mut turned = Vec::new();
        while !self.under_way.is_empty() {
            match timeout_at(until, self.done.1.recv()).await {
                Ok(Some(done)) => {
                    self.ended(&done.plan);
                    if let DeployOutcome::Deployed(_) = done.outcome {
                        turned.push(done.plan);
                    }
                }
                // The other end is held by ourselves, so it is that the time is over.
                Ok(None) | Err(_) => {
                    log::error!("a deployment doesn't end");
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
        if let Some(record) = self.like(plan) {
            record.unread = Some(tree);
        }
    }

    /// Records that a tree of this commit is served.
    pub(super) fn mark_served(&mut self, plan: &DeployPlan, commit: String) {
        if let Some(record) = self.like(plan) {
            record.serves(commit);
        }
    }

    /// Responds to the clients that wait for an attempt, and begins the next attempt if one was requested
    /// meanwhile. Returns true if the repository has become readable.
    pub(super) fn settle(&mut self, plan: &Arc<DeployPlan>, outcome: PublishOutcome) -> bool {
        let mut all = self.all.iter_mut();
        let Some(nth) = all.position(|it| Arc::ptr_eq(&it.plan, plan)) else {
            // A reload has removed the deployment meanwhile, or given it another plan. The root leads to
            // the new tree.
            return false;
        };
        let standing = &mut self.all[nth];
        let was_unreadable = standing.is_unreadable();
        standing.settle(outcome);
        // A look at the branch meanwhile did not know of this failure yet.
        standing.runs = false;
        standing.ended = Some(Instant::now());
        let is_new = was_unreadable && !standing.is_unreadable();
        if std::mem::take(&mut standing.again) {
            let waiting = std::mem::take(&mut standing.waiting_again);
            standing.waiting = waiting;
            self.try_one(nth, None);
        }
        is_new
    }

    /// Returns the record of a plan. A reload may have replaced the plan by an equal one.
    fn like(&mut self, plan: &DeployPlan) -> Option<&mut DeploymentRecord> {
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

/// For who has pushed to what a reload has taken away meanwhile.
const NO_MORE: &str = "not deployed: the server's configuration no longer says so";
/// At a stop, git is ended and half a tree removed within this time, or left behind.
const GRACE: Duration = Duration::from_secs(5);
/// First deployments are waited for so long.
pub(super) const FIRST_DEPLOY_WAIT_MAX: Duration = Duration::from_secs(DEPLOY_FIRST_SECONDS);
/// More never wait: one for each site.
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

    /// The same by another plan, which tries anew for those who wait.
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

    /// Those who wait are told this, whatever else they are told.
    fn tell_all(&self, words: &str) {
        for waiting in self.waiting.iter().chain(&self.waiting_again) {
            waiting.words.borrow_mut().push(words.to_owned());
        }
    }

    /// A tree of this commit is served.
    fn serves(&mut self, commit: String) {
        self.unread = None;
        self.served = Some(ServedCommit {
            commit,
            at: Instant::now(),
        });
    }

    /// The repository couldn't be read at the last try.
    fn is_unreadable(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|it| it.cause == DeployFailureCause::Repository)
    }

    fn looks_again_at(&self) -> Option<Instant> {
        let may_pass = !self.runs && (self.unread.is_some() || self.is_unreadable());
        self.ended.filter(|_| may_pass).map(|at| at + RESCAN)
    }

    /// The commit that failed, unless it is to be tried again because somebody has pushed since.
    fn not_again(&self) -> Option<String> {
        let failed = self.failure.as_ref().filter(|it| !it.is_mended)?;
        // Of a tree that is there already it is to be seen whether it can be read by now.
        let unread = self.unread.as_ref().map(|unread| &*unread.commit);
        let commit = failed.cause.commit().filter(|it| unread != Some(*it))?;
        let is_known = self.waiting.iter().all(|it| it.began <= failed.at);
        is_known.then(|| commit.to_owned())
    }

    /// What came of it, for who waited and for the status.
    fn settle(&mut self, came: PublishOutcome) {
        match came {
            PublishOutcome::Served => self.failure = None,
            PublishOutcome::Failed(cause, why) => {
                let known = self.failure.take().filter(|it| it.why == why);
                // It may be tried often.
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
        // Those who wait for nothing else are answered by this.
        for waiting in std::mem::take(&mut self.waiting) {
            waiting.words.borrow_mut().extend(self.words_for(&waiting));
        }
    }

    fn words_for(&self, waiting: &WaitingPush) -> Vec<String> {
        if let Some(failed) = &self.failure {
            return self.complaint(failed);
        }
        let served = self.served.as_ref();
        let served = served.filter(|served| served.at >= waiting.began);
        served
            .map(|served| self.success(served))
            .into_iter()
            .collect()
    }

    fn success(&self, served: &ServedCommit) -> String {
        let commit = short(&served.commit);
        match &self.url {
            Some(url) => format!("deployed {commit} to {url}"),
            None => format!("deployed {commit}"),
        }
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

/// By the first of its names that is one.
fn url(
    names: &[crate::config::Spanned<String>],
    config: &Config,
    https_port: Option<u16>,
) -> Option<String> {
    let mut names = names.iter().map(|name| name.get_ref());
    let name = names.find(|name| !name.starts_with('*'))?;
    if config.server.https.is_empty() {
        let port = config.server.http.first()?.get_ref().address.port();
        return Some(match port {
            80 => format!("http://{name}/"),
            port => format!("http://{name}:{port}/"),
        });
    }
    Some(match https_port {
        Some(port) if port != 443 => format!("https://{name}:{port}/"),
        _ => format!("https://{name}/"),
    })
}
