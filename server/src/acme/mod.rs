//! ACME client (RFC 8555): obtains and renews certificates. The renewer runs on a thread of its own, sleeps
//! for weeks, and blocks while an order is in progress. No other thread waits for the renewer: results are
//! files in the state folder, and the control plane's file watch picks up a new certificate like any other
//! changed file.
//!
//! Each state folder has one active renewer. Further servers on the same state folder serve the stored
//! certificates, and take over when the active server exits.

// A test may panic.
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

/// Waits for the given time within a step. An error means that the step must be abandoned.
type PauseFn<'p> = dyn Fn(Duration) -> Result<(), AcmeError> + 'p;

/// Handle of the control plane to the renewer's thread. Dropping the handle stops the renewer.
pub struct AcmeHandle {
    shared: Arc<RenewerShared>,
    ledger: Arc<PendingChallenges>,
    runs: bool,
}

/// State of the renewer as shown to the operator.
#[derive(Clone, Debug, Default)]
pub struct AcmeReport {
    /// Whether another server holds the lock of the state folder and renews the certificates.
    pub elsewhere: bool,
    /// State of each certificate.
    pub sites: Vec<CertificateReport>,
}

/// State of one certificate. Times are Unix seconds.
#[derive(Clone, Debug)]
pub struct CertificateReport {
    /// Path of the certificate file.
    pub file: PathBuf,
    /// Time of the renewal, or of the next attempt to obtain the certificate.
    pub next: u64,
    /// Time and text of the last failure, cleared by the next success.
    pub failure: Option<(u64, String)>,
}

/// Certificates to obtain, with the directory and the state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AcmePlan {
    settings: config::AcmeConfig,
    sites: Vec<ManagedCertificate>,
    state: PathBuf,
    /// Whether a listener for plain HTTP exists, a precondition of http-01.
    has_http: bool,
}

/// State shared by the control plane and the renewer's thread.
#[derive(Default)]
struct RenewerShared {
    state: Mutex<RenewerState>,
    changed: Condvar,
}

#[derive(Default)]
struct RenewerState {
    plan: Option<Arc<AcmePlan>>,
    /// Whether the plan was replaced since the renewer last read the plan.
    is_new: bool,
    /// Whether a reload asked to retry failed orders.
    urged: bool,
    stopping: bool,
    report: AcmeReport,
}

impl AcmeHandle {
    /// Creates a handle without a plan. Challenge responses are published in `ledger`.
    pub fn new(ledger: Arc<PendingChallenges>) -> AcmeHandle {
        AcmeHandle {
            shared: Arc::default(),
            ledger,
            runs: false,
        }
    }

    /// Sets the plan that the configuration requires, and starts the renewer's thread if needed. `urge`
    /// retries failed orders at once, within the rate limits.
    pub fn plan(&mut self, config: &Config, urge: bool) {
        let plan = AcmePlan::of(config).map(Arc::new);
        let mut state = self.shared.lock();
        if state.plan != plan {
            if plan.is_some() {
                for (name, why) in config.unmanaged_names() {
                    log::info!("acme: no certificate is asked for `{name}`: {why}");
                }
            }
            state.plan = plan;
            state.is_new = true;
            state.report = AcmeReport::default();
        }
        state.urged |= urge;
        let starts = state.plan.is_some() && !self.runs;
        drop(state);
        self.shared.changed.notify_all();
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
            Err(error) => log::error!("acme: cannot start the thread for renewals: {error}"),
        }
    }

    /// Returns the state of the renewer.
    pub fn report(&self) -> AcmeReport {
        self.shared.lock().report.clone()
    }
}

impl Drop for AcmeHandle {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
    }
}

/// Stack size of the renewer's thread. The deepest calls are rustls handshakes.
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
    fn lock(&self) -> MutexGuard<'_, RenewerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits within a step. Fails if the server stops or the plan is replaced.
    fn pause(&self, pause: Duration) -> Result<(), AcmeError> {
        let until = Instant::now() + pause;
        let mut state = self.lock();
        loop {
            if state.stopping || state.is_new {
                return Err(AcmeError::stopped());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
