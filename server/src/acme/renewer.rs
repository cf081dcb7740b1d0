//! The renewer: picks the certificate that is due first, sleeps until the due time, and runs the order.
//! Orders run one after another, so at most one order is in progress.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand;

use crate::acme::error::AcmeError;
use crate::acme::order::{IssueTask, can_resume};
use crate::acme::renewer_state::{AcmePlan, AcmeReport, CertificateReport, RenewerShared};
use crate::acme::schedule;
use crate::acme::schedule::{RenewalAction, RenewalState};
use crate::acme::session::{AcmeSession, RenewalInfo};
use crate::acme::store::{AcmeStore, CertificateStore};
use crate::config::{ChallengeType, ManagedCertificate};
use base::clock::format_utc;
use base::clock::unix_seconds_now;
use data_plane::tls::{IssuedCertificate, PendingChallenges};

/// Runs the renewer until the server stops.
pub(super) fn run(shared: &RenewerShared, ledger: &Arc<PendingChallenges>) {
    let mut renewer = Renewer {
        shared,
        ledger,
        lock: None,
        resumed: Vec::new(),
        last_complaint: String::new(),
    };
    while let Some(plan) = renewer.next_plan() {
        let pause = match plan {
            Some(plan) => renewer.run_due_action(&plan),
            None => SLEEP_MAX,
        };
        renewer.sleep(pause);
    }
}

struct Renewer<'r> {
    shared: &'r RenewerShared,
    ledger: &'r Arc<PendingChallenges>,
    /// State folder and lock file, while this process holds the lock.
    lock: Option<(PathBuf, File)>,
    /// Certificates with an order from before the start that was already resumed. An order is resumed once.
    resumed: Vec<PathBuf>,
    /// Last complaint logged, to log repeated complaints once.
    last_complaint: String,
}

/// Longest sleep: the clock is read again afterwards, because an administrator may have set the clock.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);
/// Sleep while another server holds the lock.
const LOCKED_PAUSE: Duration = Duration::from_secs(10);
/// Sleep after a problem with the state folder or the clock.
const PROBLEM_PAUSE: Duration = Duration::from_secs(60);
/// 2026-01-01. An earlier time means that the clock was never set, so the validity of certificates is
/// unknown.
const CLOCK_STARTS: u64 = 1_767_225_600;

impl Renewer<'_> {
    /// Returns the current plan, if the configuration requires certificates; None if the server stops.
    fn next_plan(&mut self) -> Option<Option<Arc<AcmePlan>>> {
        let mut state = self.shared.lock();
        if state.stopping {
            return None;
        }
        state.is_new = false;
        let plan = state.plan.clone();
        let urged = std::mem::take(&mut state.urged);
        drop(state);
        if self.lock.as_ref().map(|(state, _)| state) != plan.as_ref().map(|plan| &plan.state) {
            self.lock = None;
        }
        if let (true, Some(plan)) = (urged, &plan) {
            self.urge(plan);
        }
        Some(plan)
    }

    /// Sleeps for `pause`, or until the control plane sends a new plan or a reload.
    fn sleep(&self, pause: Duration) {
        let state = self.shared.lock();
        if !pause.is_zero() && !state.stopping && !state.is_new && !state.urged {
            let waited = self.shared.changed.wait_timeout(state, pause);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Executes at most one due action. Returns the time until the next action.
    fn run_due_action(&mut self, plan: &AcmePlan) -> Duration {
        let now = unix_seconds_now();
        if now < CLOCK_STARTS {
            self.warn_once("the system clock is not set: it shows a year before 2026".to_owned());
            return PROBLEM_PAUSE;
        }
        let store = AcmeStore::new(&plan.state);
        if self.lock.is_none() {
            match store.lock() {
                Ok(Some(file)) => self.lock = Some((plan.state.clone(), file)),
                Ok(None) => {
                    self.shared.lock().report.elsewhere = true;
                    self.warn_once(
                        "another server process holds the lock of this state folder and \
                                   renews the certificates; this process serves the stored certificates"
                            .to_owned(),
                    );
                    return LOCKED_PAUSE;
                }
                Err(failure) => {
                    self.warn_once(failure.to_string());
                    return PROBLEM_PAUSE;
                }
            }
        }
        self.last_complaint.clear();
        let jobs: Vec<RenewalJob<'_>> = plan
            .sites
            .iter()
            .map(|site| self.job(plan, site, now))
            .collect();
        self.report(&jobs);
        let Some(first) = jobs.into_iter().min_by_key(|job| job.at) else {
            return SLEEP_MAX;
        };
        if first.at > now {
            return Duration::from_secs(first.at - now).min(SLEEP_MAX);
        }
        match first.action {
            RenewalAction::Order => self.order(plan, &store, first),
            RenewalAction::AskWhen => self.ask_when(plan, &store, first),
        }
        Duration::ZERO
    }

    /// Logs an obstacle to renewals, unless the same obstacle was logged last.
    fn warn_once(&mut self, complaint: String) {
        if self.last_complaint != complaint {
            log::warn!("acme: {complaint}");
            self.last_complaint = complaint;
        }
    }

    /// Clears the pauses of all certificates, so that failed orders and requests for renewal information
    /// run at once.
    fn urge(&mut self, plan: &AcmePlan) {
        for wanted in &plan.sites {
            let store = CertificateStore::new(wanted);
            let mut state = store.state();
            if state != RenewalState::default() {
                state.next_try = 0;
                state.next_info = 0;
                // If the state file is not writable, the pauses stay.
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
        let (mut action, mut at) = schedule::next(&state, whole.as_ref(), directory, now);
        // An order interrupted by a restart is resumed at once.
        if at > now && !self.resumed.contains(&wanted.file) && can_resume(&store) {
            (action, at) = (RenewalAction::Order, now);
        }
        RenewalJob {
            wanted,
            store,
            state,
            issued: whole,
            action,
            at,
        }
    }

    fn report(&self, jobs: &[RenewalJob<'_>]) {
        let sites = jobs.iter().map(|job| CertificateReport {
            file: job.wanted.file.clone(),
            next: match (job.action, &job.issued) {
                (RenewalAction::AskWhen, Some(issued)) => schedule::renewal(&job.state, issued),
                _ => job.at,
            },
            failure: job.state.failure.clone(),
        });
        let sites = sites.collect();
        self.shared.lock().report = AcmeReport {
            elsewhere: false,
            sites,
        };
    }

    /// Obtains a certificate, and stores the outcome in the state file.
    fn order(&mut self, plan: &AcmePlan, store: &AcmeStore, mut job: RenewalJob<'_>) {
        let now = unix_seconds_now();
        self.resumed.push(job.wanted.file.clone());
        let before = job.state.clone();
        let challenge = choose(plan, &job.state);
        // The attempt counts as a failure before the order begins, so that a crash loop does not send
        // orders without pause.
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
            self.warn_once(failure.to_string());
            // The state was not stored, so the renewer pauses here.
            self.sleep(PROBLEM_PAUSE);
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
            // The directory has lost the account: register again with the same key.
            Err(failure) if failure.is("accountDoesNotExist") => {
                store.forget_account(&plan.settings.directory);
                job.store.forget_order();
                run()
            }
            outcome => outcome,
        }
    }

    /// Requests renewal information. A failure is logged only, because renewals are planned weeks ahead.
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
                store_renewal_info(name, state, info);
            }
            Err(failure) => {
                log::info!("acme: {name}: no renewal information: {failure}");
                state.next_info = schedule::next_info(now, failure.retry_after.or(Some(0)));
            }
        }
        if let Err(failure) = job.store.keep_state(state) {
            log::warn!("acme: {failure}");
            self.sleep(PROBLEM_PAUSE);
        }
    }
}

/// Certificate with the next action.
struct RenewalJob<'w> {
    wanted: &'w ManagedCertificate,
    store: CertificateStore,
    state: RenewalState,
    /// Stored certificate, if the certificate covers all names.
    issued: Option<IssuedCertificate>,
    action: RenewalAction,
    /// Unix time of the action.
    at: u64,
}

fn store_renewal_info(name: &str, state: &mut RenewalState, info: Option<RenewalInfo>) {
    let Some(info) = info else {
        state.window = None;
        return;
    };
    if state.window != Some(info.window) {
        let (start, end) = (format_utc(info.window.0), format_utc(info.window.1));
        let why = info.explanation.as_ref();
        let why = why.map_or_else(String::new, |why| format!(", see {why}"));
        log::info!("acme: {name}: the directory suggests renewal between {start} and {end}{why}");
    }
    state.window = Some(info.window);
    state.explanation = info.explanation;
}

/// Returns the configured challenge type, else the type that succeeded last; failures alternate between the
/// two types.
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

/// Returns a random number from 0 to 999.
fn dice() -> u64 {
    let mut bytes = [0; 8];
    // If the random number generator fails, all numbers are equal, which is harmless.
    let _ = rand::fill(&mut bytes);
    u64::from_be_bytes(bytes) % 1_000
}
