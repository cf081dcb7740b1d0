//! The robot: looks for the certificate that is due first, sleeps until then, and has it issued. One
//! after the other, so that never more than one order is under way.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand;

use crate::acme::error::AcmeError;
use crate::acme::order::{IssueTask, can_resume};
use crate::acme::schedule;
use crate::acme::schedule::{RenewalAction, RenewalState};
use crate::acme::session::{AcmeSession, RenewalInfo};
use crate::acme::store::{AcmeStore, CertificateStore};
use crate::acme::{AcmePlan, AcmeReport, CertificateReport, RenewerShared};
use crate::base::clock::format_utc;
use crate::base::clock::unix_seconds_now;
use crate::config::{ChallengeType, ManagedCertificate};
use crate::tls::{IssuedCertificate, PendingChallenges};

/// Works until the server stops.
pub(super) fn run(shared: &RenewerShared, ledger: &Arc<PendingChallenges>) {
    let mut robot = Renewer {
        shared,
        ledger,
        lock: None,
        resumed: Vec::new(),
        grievance: String::new(),
    };
    while let Some(plan) = robot.next_plan() {
        let rest = match plan {
            Some(plan) => robot.turn(&plan),
            None => IDLE,
        };
        robot.rest(rest);
    }
}

struct Renewer<'r> {
    shared: &'r RenewerShared,
    ledger: &'r Arc<PendingChallenges>,
    /// The state folder that we hold the lock of.
    lock: Option<(PathBuf, File)>,
    /// Sites whose order from before the start was gone on with, once.
    resumed: Vec<PathBuf>,
    /// What was complained of last, to say it once.
    grievance: String,
}

/// A look at the clock from time to time: it may have been set.
const IDLE: Duration = Duration::from_secs(3_600);
/// Another server holds the lock: when to look whether it still does.
const LOCKED_OUT: Duration = Duration::from_secs(10);
/// Something is wrong with the state folder, or the clock.
const UNFIT: Duration = Duration::from_secs(60);
/// 2026-01-01: a clock that shows less was never set, and knows of no certificate whether it's valid.
const CLOCK_STARTS: u64 = 1_767_225_600;

impl Renewer<'_> {
    /// The plan to work by, if there is one; None when the server stops.
    fn next_plan(&mut self) -> Option<Option<Arc<AcmePlan>>> {
        let mut desk = self.shared.desk();
        if desk.stopping {
            return None;
        }
        desk.is_new = false;
        let plan = desk.plan.clone();
        let urged = std::mem::take(&mut desk.urged);
        drop(desk);
        if self.lock.as_ref().map(|(state, _)| state) != plan.as_ref().map(|plan| &plan.state) {
            self.lock = None;
        }
        if let (true, Some(plan)) = (urged, &plan) {
            self.urge(plan);
        }
        Some(plan)
    }

    /// Sleeps until there is something to do, or news.
    fn rest(&self, rest: Duration) {
        let desk = self.shared.desk();
        if !rest.is_zero() && !desk.stopping && !desk.is_new && !desk.urged {
            let waited = self.shared.news.wait_timeout(desk, rest);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Does what is due, at most one thing; how long there is nothing to do after it.
    fn turn(&mut self, plan: &AcmePlan) -> Duration {
        let now = unix_seconds_now();
        if now < CLOCK_STARTS {
            self.complain("the clock isn't set".to_owned());
            return UNFIT;
        }
        let store = AcmeStore::new(&plan.state);
        if self.lock.is_none() {
            match store.lock() {
                Ok(Some(file)) => self.lock = Some((plan.state.clone(), file)),
                Ok(None) => {
                    self.shared.desk().report.elsewhere = true;
                    self.complain(
                        "another server on this state folder has the certificates \
                                   issued; this one serves them"
                            .to_owned(),
                    );
                    return LOCKED_OUT;
                }
                Err(failure) => {
                    self.complain(failure.to_string());
                    return UNFIT;
                }
            }
        }
        self.grievance.clear();
        let jobs: Vec<RenewalJob<'_>> = plan
            .sites
            .iter()
            .map(|site| self.job(plan, site, now))
            .collect();
        self.report(&jobs);
        let Some(first) = jobs.into_iter().min_by_key(|job| job.at) else {
            return IDLE;
        };
        if first.at > now {
            return Duration::from_secs(first.at - now).min(IDLE);
        }
        match first.duty {
            RenewalAction::Order => self.order(plan, &store, first),
            RenewalAction::AskWhen => self.ask_when(plan, &store, first),
        }
        Duration::ZERO
    }

    /// Says what keeps the robot from its work, unless it said so last time.
    fn complain(&mut self, grievance: String) {
        if self.grievance != grievance {
            log::warn!("acme: {grievance}");
            self.grievance = grievance;
        }
    }

    /// Failures may be tried again now, and directories be asked when to renew.
    fn urge(&mut self, plan: &AcmePlan) {
        for wanted in &plan.sites {
            let store = CertificateStore::new(wanted);
            let mut state = store.state();
            if state != RenewalState::default() {
                state.next_try = 0;
                state.next_info = 0;
                // Where it can't be written, it takes its time.
                let _ = store.keep_state(&state);
            }
        }
    }

    fn job<'w>(&self, plan: &AcmePlan, wanted: &'w ManagedCertificate, now: u64) -> RenewalJob<'w> {
        let store = CertificateStore::new(wanted);
        let state = store.state();
        let issued = store.certificate(&wanted.names);
        let whole = issued.filter(|issued| issued.missing.is_empty());
        let directory = &plan.settings.directory;
        let (mut duty, mut at) = schedule::next(&state, whole.as_ref(), directory, now);
        // What a restart interrupted is gone on with at once.
        if at > now && !self.resumed.contains(&wanted.file) && can_resume(&store) {
            (duty, at) = (RenewalAction::Order, now);
        }
        RenewalJob {
            wanted,
            store,
            state,
            issued: whole,
            duty,
            at,
        }
    }

    fn report(&self, jobs: &[RenewalJob<'_>]) {
        let sites = jobs.iter().map(|job| CertificateReport {
            file: job.wanted.file.clone(),
            next: match (job.duty, &job.issued) {
                (RenewalAction::AskWhen, Some(issued)) => schedule::renewal(&job.state, issued),
                _ => job.at,
            },
            failure: job.state.failure.clone(),
        });
        let sites = sites.collect();
        self.shared.desk().report = AcmeReport {
            elsewhere: false,
            sites,
        };
    }

    /// Has a certificate issued; what comes of it is in its state.
    fn order(&mut self, plan: &AcmePlan, store: &AcmeStore, mut job: RenewalJob<'_>) {
        let now = unix_seconds_now();
        self.resumed.push(job.wanted.file.clone());
        let before = job.state.clone();
        let challenge = choose(plan, &job.state);
        // Written down beforehand: a crash counts as a failure, or it would be a storm.
        job.state.begins(now);
        job.state.failures += 1;
        job.state.next_try = now + schedule::pause(job.state.failures, None, dice());
        let outcome = match job.store.keep_state(&job.state) {
            Ok(()) => self.issue(plan, store, &job, challenge),
            Err(failure) => Err(failure),
        };
        let name = &job.wanted.names[0];
        match outcome {
            Ok(issued) => {
                let until = format_utc(issued.not_after);
                let how = challenge.name();
                log::info!("acme: {name}: certificate until {until}, by {how}");
                job.state = RenewalState {
                    directory: plan.settings.directory.clone(),
                    orders: job.state.orders,
                    dice: dice(),
                    challenge: Some(how.to_owned()),
                    ..RenewalState::default()
                };
            }
            Err(failure) if failure.stopped => {
                job.state.failures = before.failures;
                job.state.next_try = before.next_try;
            }
            Err(failure) => {
                let pause = schedule::pause(job.state.failures, failure.retry_after, dice());
                job.state.next_try = unix_seconds_now() + pause;
                let again = format_utc(job.state.next_try);
                log::error!("acme: {name}: {failure}; tried again at {again}");
                job.state.failure = Some((now, failure.to_string()));
            }
        }
        if let Err(failure) = job.store.keep_state(&job.state) {
            self.complain(failure.to_string());
            // Nothing is remembered of this, so the pause is made here.
            self.rest(UNFIT);
        }
    }

    fn issue(
        &self,
        plan: &AcmePlan,
        store: &AcmeStore,
        job: &RenewalJob<'_>,
        challenge: ChallengeType,
    ) -> Result<IssuedCertificate, AcmeError> {
        let pause = |pause| self.shared.pause(pause);
        let same = job.state.directory == plan.settings.directory;
        let task = IssueTask {
            settings: &plan.settings,
            names: &job.wanted.names,
            challenge,
            replaces: job
                .issued
                .as_ref()
                .filter(|_| same)
                .and_then(|it| it.renewal_id.clone()),
            store: &job.store,
            ledger: self.ledger,
            pause: &pause,
        };
        let run = || AcmeSession::open(&plan.settings, store).and_then(|mut it| task.run(&mut it));
        match run() {
            // A directory may have lost its accounts; ours is made anew, with the same key.
            Err(failure) if failure.is("accountDoesNotExist") => {
                store.forget_account(&plan.settings.directory);
                job.store.forget_order();
                run()
            }
            outcome => outcome,
        }
    }

    /// Asks when a certificate should be renewed. A failure matters little: there are weeks left.
    fn ask_when(&self, plan: &AcmePlan, store: &AcmeStore, mut job: RenewalJob<'_>) {
        let id = job.issued.as_ref().and_then(|it| it.renewal_id.as_deref());
        let session = AcmeSession::open(&plan.settings, store);
        let info = session.and_then(|session| session.renewal_info(id.unwrap_or_default()));
        let now = unix_seconds_now();
        let name = &job.wanted.names[0];
        let state = &mut job.state;
        match info {
            Ok(info) => {
                let retry_after = info.as_ref().and_then(|info| info.retry_after);
                state.next_info = schedule::next_info(now, retry_after);
                take_over(name, state, info);
            }
            Err(failure) => {
                log::info!("acme: {name}: no word of when to renew: {failure}");
                state.next_info = schedule::next_info(now, failure.retry_after.or(Some(0)));
            }
        }
        if let Err(failure) = job.store.keep_state(state) {
            log::warn!("acme: {failure}");
            self.rest(UNFIT);
        }
    }
}

/// A site, and what is to be done for it next.
struct RenewalJob<'w> {
    wanted: &'w ManagedCertificate,
    store: CertificateStore,
    state: RenewalState,
    /// The certificate that is there, if it is for all names.
    issued: Option<IssuedCertificate>,
    duty: RenewalAction,
    /// Unix time.
    at: u64,
}

fn take_over(name: &str, state: &mut RenewalState, info: Option<RenewalInfo>) {
    let Some(info) = info else {
        state.window = None;
        return;
    };
    if state.window != Some(info.window) {
        let (start, end) = (format_utc(info.window.0), format_utc(info.window.1));
        let why = info.explanation.as_ref();
        let why = why.map_or_else(String::new, |why| format!(", see {why}"));
        log::info!("acme: {name}: the directory wants it renewed between {start} and {end}{why}");
    }
    state.window = Some(info.window);
    state.explanation = info.explanation;
}

/// The configured challenge; else the one that worked last, and after a failure the other one.
fn choose(plan: &AcmePlan, state: &RenewalState) -> ChallengeType {
    if let Some(challenge) = plan.settings.challenge {
        return challenge;
    }
    if !plan.has_http {
        return ChallengeType::TlsAlpn01;
    }
    let worked = state.challenge.as_deref() == Some(ChallengeType::TlsAlpn01.name());
    match (worked, state.failures % 2) {
        (false, 0) | (true, 1) => ChallengeType::Http01,
        _ => ChallengeType::TlsAlpn01,
    }
}

/// 0 to 999.
fn dice() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness all throws are alike, which does no harm.
    let _ = rand::fill(&mut bytes);
    u64::from_be_bytes(bytes) % 1_000
}
