//! Deployments: which are under way, what came of the last ones, and who waits for them.
//!
//! A thread does the work, one deployment after the other. What a push, a change of a branch, a start
//! or a reload asks for while one is under way is done after it, once, by what the branch is then.

use super::plane::Plane;
use super::watch::Place;
use crate::acme::shown;
use crate::base::clock;
use crate::base::pool::Pool;
use crate::config::{Config, OperatorError};
use crate::deploy::{Failure, Old, Outcome, Plan, Turned, Unwanted, short};
use crate::handler::pushed::{Pushed, Pushes, STOPPING};
use crate::limits::DEPLOY_FIRST_SECONDS;
use crate::site::Site;
use crate::wire::json::quoted;
use std::cell::RefCell;
use std::fmt::Write;
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
    all: Vec<Standing>,
    pool: Pool,
    /// Tries that were begun and haven't been heard of, of former configurations too.
    under_way: Vec<Arc<Plan>>,
    pushed: UnboundedReceiver<Pushed>,
    done: (UnboundedSender<Done>, UnboundedReceiver<Done>),
}

/// What the control plane is to hear of.
pub(super) enum News {
    Pushed(Pushed),
    Done(Done),
}

/// A try has come to its end.
pub(super) struct Done {
    plan: Arc<Plan>,
    outcome: Outcome,
}

/// How it stands with one of them.
struct Standing {
    plan: Arc<Plan>,
    /// Where the site is to be seen, as far as that is known.
    url: Option<String>,
    unwanted: Unwanted,
    runs: bool,
    /// Asked for while it ran.
    again: bool,
    waiting: Vec<Rc<Waiting>>,
    /// For the try after the one under way.
    waiting_again: Vec<Rc<Waiting>>,
    served: Option<Served>,
    /// Why the last try failed, if it did.
    failure: Option<Failed>,
    has_branch: bool,
}

/// What came of a try, once it is served.
enum Came {
    Nothing,
    Turned(Turned),
    Failed(Option<String>, Failure),
    StillFailed,
}

/// What we have deployed since the start.
struct Served {
    commit: String,
    at: Instant,
}

struct Failed {
    /// What isn't tried again before somebody pushes; None if it isn't known, or is to be tried.
    commit: Option<String>,
    why: Failure,
    at: Instant,
    /// Seconds since 1970.
    since: u64,
}

/// Who pushed, to be answered when the last deployment that it may have changed has come to its end.
struct Waiting {
    began: Instant,
    words: RefCell<Vec<String>>,
    done: RefCell<Option<oneshot::Sender<Vec<String>>>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            // They may have left.
            let _ = done.send(self.words.take());
        }
    }
}

/// Roots that aren't there yet are made, before a World is built of them; what isn't deployed within this
/// time is empty, and deployed later. Blocks.
pub(super) fn furnish(config: &Config, patience: Duration) -> Result<(), OperatorError> {
    let until = Instant::now() + patience;
    for deployment in config.deployments() {
        let plan = Plan::of(&deployment, &config.server);
        plan.furnish(until).map_err(|failure| {
            let what = format!("the folder to deploy to can't be made: {failure}");
            let help = "a folder that the server may write to, and room on its disk";
            config.point(deployment.deploy.site.span(), what, help)
        })?;
    }
    Ok(())
}

impl Deployments {
    /// None yet, and where pushes are told.
    pub(super) fn new() -> (Deployments, Pushes) {
        let (pushes, pushed) = Pushes::new();
        let deployments = Deployments {
            all: Vec::new(),
            pool: Pool::new("anthill-deploy", 1, QUEUE_MAX),
            under_way: Vec::new(),
            pushed,
            done: unbounded_channel(),
        };
        (deployments, pushes)
    }

    /// Waits for the next thing to do.
    pub(super) async fn news(&mut self) -> News {
        let (pushed, done) = (&mut self.pushed, &mut self.done.1);
        tokio::select! {
            Some(pushed) = pushed.recv() => News::Pushed(pushed),
            Some(done) = done.recv() => News::Done(done),
            // The other end of each is held by ourselves.
            else => std::future::pending().await,
        }
    }

    /// Those of this configuration; what goes on is not disturbed.
    pub(super) fn plan(&mut self, config: &Config, https_port: Option<u16>) {
        let mut old = std::mem::take(&mut self.all);
        for deployment in config.deployments() {
            let plan = Plan::of(&deployment, &config.server);
            let mut standing = match old.iter().position(|it| it.plan.is_like(&plan)) {
                Some(nth) => old.swap_remove(nth).under(plan),
                None => Standing::new(plan),
            };
            // Somebody may have mended what was wrong.
            standing.failure.iter_mut().for_each(|it| it.commit = None);
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

    /// Looks whether a branch is at another commit than the one that is served.
    pub(super) fn look(&mut self) {
        for nth in 0..self.all.len() {
            self.try_one(nth, None);
        }
    }

    fn pushed(&mut self, pushed: Pushed) {
        let waiting = Rc::new(Waiting {
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

    fn try_one(&mut self, nth: usize, waiting: Option<Rc<Waiting>>) {
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
                Outcome::Failed(None, Failure::new("it panicked; see the error log"))
            });
            let old = outcome.old();
            // Nobody listens while the server stops.
            let _ = done.send(Done { plan, outcome });
            old.iter().for_each(Old::remove);
        });
        match queued {
            Ok(()) => {
                standing.runs = true;
                self.under_way.push(standing.plan.clone());
            }
            Err(gone) => {
                log::error!("{}: not deployed: {gone}", standing.plan.site);
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
    pub(super) async fn finish(&mut self) -> Vec<Arc<Plan>> {
        let until = tokio::time::Instant::now() + GRACE;
        let mut turned = Vec::new();
        while !self.under_way.is_empty() {
            match timeout_at(until, self.done.1.recv()).await {
                Ok(Some(done)) => {
                    self.ended(&done.plan);
                    if let Outcome::Turned(_) = done.outcome {
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

    /// The end of a try by a plan that is none any more.
    fn came_late(&mut self, plan: &Plan, came: Came) {
        let Came::Turned(turned) = came else { return };
        log::info!("{}", plan.words(&turned));
        let mut all = self.all.iter_mut();
        if let Some(heir) = all.find(|it| it.plan.is_like(plan)) {
            heir.serves(turned.commit);
        }
    }

    fn ended(&mut self, plan: &Arc<Plan>) {
        let position = self.under_way.iter().position(|it| Arc::ptr_eq(it, plan));
        position.map(|nth| self.under_way.swap_remove(nth));
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for standing in &self.all {
            let Plan { site, shown, .. } = &*standing.plan;
            let branch = &standing.plan.branch;
            let _ = write!(out, "{site} is {branch} of {shown}: ");
            let _ = match standing.plan.deployed() {
                Some((commit, since)) => {
                    let since = self::shown(seconds(since));
                    write!(out, "{} since {since}", short(&commit))
                }
                None => write!(out, "nothing is deployed"),
            };
            if !standing.has_branch {
                let _ = write!(out, ", the branch isn't there");
            }
            if standing.runs {
                out.push_str(", being looked at");
            }
            out.push('\n');
            if let Some(failed) = &standing.failure {
                let at = self::shown(failed.since);
                let _ = writeln!(out, "  failed at {at}: {}", failed.why);
            }
        }
        out
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let one = |standing: &Standing| {
            let (commit, since) = standing.plan.deployed().unzip();
            let failure = standing.failure.as_ref();
            let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
            format!(
                "{{\"site\":{},\"repository\":{},\"branch\":{},\"has_branch\":{},\"commit\":{},\
                 \"deployed_at\":{},\"failed_at\":{},\"failure\":{}}}",
                quoted(&standing.plan.site),
                quoted(&standing.plan.shown),
                quoted(&standing.plan.branch),
                standing.has_branch,
                or_null(commit.map(|commit| quoted(&commit))),
                or_null(since.map(|since| seconds(since).to_string())),
                or_null(failure.map(|failed| failed.since.to_string())),
                or_null(failure.map(|failed| quoted(&failed.why.to_string()))),
            )
        };
        let all: Vec<String> = self.all.iter().map(one).collect();
        format!("[{}]", all.join(","))
    }
}

/// For who has pushed to what a reload has taken away meanwhile.
const NO_MORE: &str = "not deployed: the server's configuration no longer says so";
/// At a stop, git is ended and half a tree removed within this time, or left behind.
const GRACE: Duration = Duration::from_secs(5);
/// First deployments are waited for so long.
pub(super) const FURNISHING: Duration = Duration::from_secs(DEPLOY_FIRST_SECONDS);
/// More never wait: one for each site.
const QUEUE_MAX: usize = 65_536;

impl Standing {
    fn new(plan: Plan) -> Standing {
        Standing {
            plan: Arc::new(plan),
            url: None,
            unwanted: Unwanted::default(),
            runs: false,
            again: false,
            waiting: Vec::new(),
            waiting_again: Vec::new(),
            served: None,
            failure: None,
            has_branch: true,
        }
    }

    /// The same by another plan, which tries anew for those who wait.
    fn under(mut self, plan: Plan) -> Standing {
        if *self.plan == plan {
            return self;
        }
        self.unwanted.store(true, Ordering::Relaxed);
        self.waiting.append(&mut self.waiting_again);
        Standing {
            plan: Arc::new(plan),
            unwanted: Unwanted::default(),
            runs: false,
            again: false,
            ..self
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
        self.served = Some(Served {
            commit,
            at: Instant::now(),
        });
    }

    /// The commit that failed, unless it is to be tried again because somebody has pushed since.
    fn not_again(&self) -> Option<String> {
        let failed = self.failure.as_ref()?;
        let is_known = self.waiting.iter().all(|it| it.began <= failed.at);
        failed.commit.clone().filter(|_| is_known)
    }

    /// What came of it, for who waited and for the status.
    fn settle(&mut self, came: Came) {
        match came {
            Came::Nothing => self.failure = None,
            Came::Turned(turned) => {
                log::info!("{}", self.plan.words(&turned));
                self.failure = None;
                self.serves(turned.commit);
            }
            Came::Failed(commit, why) => {
                let known = self.failure.as_ref().is_some_and(|it| it.why == why);
                // Where nothing can be watched, it may be tried often.
                if !known || !self.waiting.is_empty() {
                    log::error!("{}", self.plan.complaint(commit.as_deref(), &why));
                }
                self.failure = Some(Failed {
                    commit,
                    why,
                    at: Instant::now(),
                    since: clock::unix_seconds_now(),
                });
            }
            Came::StillFailed => {}
        }
        // Those who wait for nothing else are answered by this.
        for waiting in std::mem::take(&mut self.waiting) {
            waiting.words.borrow_mut().extend(self.words_for(&waiting));
        }
    }

    fn words_for(&self, waiting: &Waiting) -> Vec<String> {
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

    fn success(&self, served: &Served) -> String {
        let commit = short(&served.commit);
        match &self.url {
            Some(url) => format!("deployed {commit} to {url}"),
            None => format!("deployed {commit}"),
        }
    }

    fn complaint(&self, failed: &Failed) -> Vec<String> {
        let why = &failed.why;
        let site = self.url.as_deref().unwrap_or(&self.plan.site);
        let deployed = self.plan.deployed().map(|(commit, _)| commit);
        let stays = match deployed.filter(|commit| failed.commit.as_ref() != Some(commit)) {
            Some(commit) => format!("{site} stays at {}", short(&commit)),
            None => format!("{site} stays as it is"),
        };
        vec![format!("NOT DEPLOYED: {why}"), stays]
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

impl Plane {
    /// What a new configuration deploys to is made, where it isn't there.
    pub(super) async fn furnish(&self, config: &Config) -> Result<(), OperatorError> {
        let mut all = config.deployments().into_iter();
        if all.all(|it| Plan::of(&it, &config.server).is_furnished()) {
            // Nor is there anything to wait for.
            return Ok(());
        }
        let of_job = config.clone();
        // What is under way is for somebody who waits; the new ones come after it.
        let patience = match self.deployments.under_way.is_empty() {
            true => FURNISHING,
            false => Duration::ZERO,
        };
        let furnished = self.scans.run(move || furnish(&of_job, patience)).await;
        furnished.unwrap_or_else(|gone| Err(OperatorError::failure(format!("deploying: {gone}"))))
    }

    /// Something is to be deployed, or was.
    pub(super) async fn hear(&mut self, news: News) {
        match news {
            News::Pushed(pushed) => self.deployments.pushed(pushed),
            News::Done(done) => self.deployed(done).await,
        }
    }

    /// A new tree is served, and only then told to who waits.
    async fn deployed(&mut self, done: Done) {
        self.deployments.ended(&done.plan);
        let mut all = self.deployments.all.iter_mut();
        if let Some(standing) = all.find(|it| Arc::ptr_eq(&it.plan, &done.plan)) {
            standing.runs = false;
            standing.has_branch = !matches!(done.outcome, Outcome::NoBranch);
        }
        let came = match done.outcome {
            Outcome::Same(_) | Outcome::NoBranch => Came::Nothing,
            Outcome::StillFailed => Came::StillFailed,
            Outcome::Failed(commit, why) => Came::Failed(commit, why),
            Outcome::Turned(turned) => match self.serve_tree(&done.plan, &turned).await {
                Ok(()) => Came::Turned(turned),
                Err(why) => Came::Failed(Some(turned.commit), why),
            },
        };
        let mut all = self.deployments.all.iter_mut();
        let position = all.position(|it| Arc::ptr_eq(&it.plan, &done.plan));
        let Some(nth) = position else {
            // A reload has taken it away meanwhile, or given it another plan. The root is turned.
            return self.deployments.came_late(&done.plan, came);
        };
        let standing = &mut self.deployments.all[nth];
        standing.settle(came);
        if std::mem::take(&mut standing.again) {
            let waiting = std::mem::take(&mut standing.waiting_again);
            standing.waiting = waiting;
            self.deployments.try_one(nth, None);
        }
    }

    /// Publishes a World with this tree; returns when every worker serves it.
    async fn serve_tree(&mut self, plan: &Plan, turned: &Turned) -> Result<(), Failure> {
        self.changes.whole.extend(self.places_of(plan));
        self.apply().await;
        let is_old = |site: &Site| site.rules().root == plan.root && site.root() != turned.tree;
        let has_old = self.places().any(|(_, site)| is_old(&site));
        if has_old {
            // It may be that there was no descriptor left.
            self.missed.extend(self.places_of(plan));
            let what = "its tree can't be read yet; the error log says why";
            return Err(Failure::new(what));
        }
        self.forget_pages(plan);
        Ok(())
    }

    /// What scripts made of the old tree isn't what those of the new one would.
    pub(super) fn forget_pages(&self, plan: &Plan) {
        for place in self.places_of(plan) {
            if let Some(host) = self.world.hosts.iter().nth(place.host) {
                self.supplies.cache.purge(&host.names[0], "/*");
            }
        }
    }

    fn places_of(&self, plan: &Plan) -> Vec<Place> {
        let all = self.places();
        let all = all.filter(|(_, site)| site.rules().root == plan.root);
        all.map(|(place, _)| place).collect()
    }
}
