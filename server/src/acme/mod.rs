//! Certificates by themselves (ACME, RFC 8555): a robot on a thread of its own, which sleeps for
//! weeks and blocks while it works. Nothing waits for it: what it has done lies in the state folder,
//! where the control plane's watch sees a new certificate as it sees any other file.
//!
//! One server at a time does this for a state folder. Another one that shares the folder serves what
//! is stored there, and takes over when the first is gone.

// A test may panic: that is how it fails.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod dns_hook;
mod https_client;
mod jws;
mod order;
mod renewer;
mod schedule;
mod session;
mod store;

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::config::{self, Config, ManagedCertificate};
use crate::tls::PendingChallenges;

use crate::acme::error::AcmeError;

/// How a step waits; an error when it shall give up.
type PauseFn<'p> = dyn Fn(Duration) -> Result<(), AcmeError> + 'p;

/// The robot's other end, in the control plane. Dropping it stops the robot.
pub struct AcmeHandle {
    shared: Arc<RenewerShared>,
    ledger: Arc<PendingChallenges>,
    runs: bool,
}

/// What the robot knows of the certificates.
#[derive(Clone, Debug, Default)]
pub struct AcmeReport {
    /// Another server has the lock of the state folder, and does the work.
    pub elsewhere: bool,
    /// What is told of each certificate.
    pub sites: Vec<CertificateReport>,
}

/// What the robot knows of one certificate. Times are Unix seconds.
#[derive(Clone, Debug)]
pub struct CertificateReport {
    /// The certificate's file.
    pub file: PathBuf,
    /// When it is renewed, or tried to be had.
    pub next: u64,
    /// The last failure and when that was, until something worked.
    pub failure: Option<(u64, String)>,
}

/// What is to be had, from where and to where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AcmePlan {
    settings: config::AcmeConfig,
    sites: Vec<ManagedCertificate>,
    state: PathBuf,
    /// Plain HTTP is listened to, so http-01 may work.
    has_http: bool,
}

/// What the control plane and the robot have in common.
#[derive(Default)]
struct RenewerShared {
    desk: Mutex<RenewerState>,
    news: Condvar,
}

#[derive(Default)]
struct RenewerState {
    plan: Option<Arc<AcmePlan>>,
    /// The plan is another one than the robot works by.
    is_new: bool,
    /// Whoever reloads wants failures tried again.
    urged: bool,
    stopping: bool,
    report: AcmeReport,
}

impl AcmeHandle {
    /// Nothing is to be done yet. What directories shall find is posted in `ledger`.
    pub fn new(ledger: Arc<PendingChallenges>) -> AcmeHandle {
        AcmeHandle {
            shared: Arc::default(),
            ledger,
            runs: false,
        }
    }

    /// Takes over what the configuration wants; `urge` tries again what has failed, as far as the
    /// bounds allow.
    pub fn plan(&mut self, config: &Config, urge: bool) {
        let plan = AcmePlan::of(config).map(Arc::new);
        let mut desk = self.shared.desk();
        if desk.plan != plan {
            if plan.is_some() {
                for (name, why) in config.unmanaged_names() {
                    log::info!("acme: no certificate is asked for `{name}`: {why}");
                }
            }
            desk.plan = plan;
            desk.is_new = true;
            desk.report = AcmeReport::default();
        }
        desk.urged |= urge;
        let starts = desk.plan.is_some() && !self.runs;
        drop(desk);
        self.shared.news.notify_all();
        if starts {
            self.start();
        }
    }

    fn start(&mut self) {
        let (shared, ledger) = (self.shared.clone(), self.ledger.clone());
        let thread = thread::Builder::new()
            .name("anthill-acme".into())
            .stack_size(STACK_BYTES)
            .spawn(move || renewer::run(&shared, &ledger));
        match thread {
            Ok(_) => self.runs = true,
            Err(error) => log::error!("acme: no thread for it: {error}"),
        }
    }

    /// What the robot knows.
    pub fn report(&self) -> AcmeReport {
        self.shared.desk().report.clone()
    }
}

impl Drop for AcmeHandle {
    fn drop(&mut self) {
        self.shared.desk().stopping = true;
        self.shared.news.notify_all();
    }
}

/// rustls's handshakes are its deepest calls.
const STACK_BYTES: usize = 1 << 20;

impl AcmePlan {
    fn of(config: &Config) -> Option<AcmePlan> {
        let settings = config.tls.acme.clone()?;
        let sites = config.managed_certificates();
        (!sites.is_empty()).then(|| AcmePlan {
            settings,
            sites,
            state: config.server.state.get_ref().clone(),
            has_http: !config.server.http.is_empty(),
        })
    }
}

impl RenewerShared {
    fn desk(&self) -> MutexGuard<'_, RenewerState> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits in the middle of something; fails when that is no longer wanted.
    fn pause(&self, pause: Duration) -> Result<(), AcmeError> {
        let until = Instant::now() + pause;
        let mut desk = self.desk();
        loop {
            if desk.stopping || desk.is_new {
                return Err(AcmeError::stopped());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.news.wait_timeout(desk, left);
            desk = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
