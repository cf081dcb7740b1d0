//! State shared by the control plane and the renewer's thread: the plan, and the report for the operator.

use crate::acme::error::AcmeError;
use crate::config::{self, Config, ManagedCertificate};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits for the given time within a step. An error means that the step must be abandoned.
pub(super) type PauseFn<'p> = dyn Fn(Duration) -> Result<(), AcmeError> + 'p;

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
pub(super) struct AcmePlan {
    pub(super) settings: config::AcmeConfig,
    pub(super) sites: Vec<ManagedCertificate>,
    pub(super) state: PathBuf,
    /// Whether a listener for plain HTTP exists, a precondition of http-01.
    pub(super) has_http: bool,
}

/// State shared by the control plane and the renewer's thread.
#[derive(Default)]
pub(super) struct RenewerShared {
    pub(super) state: Mutex<RenewerState>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct RenewerState {
    pub(super) plan: Option<Arc<AcmePlan>>,
    /// Whether the plan was replaced since the renewer last read the plan.
    pub(super) is_new: bool,
    /// Whether a reload asked to retry failed orders.
    pub(super) urged: bool,
    pub(super) stopping: bool,
    pub(super) report: AcmeReport,
}

impl AcmePlan {
    pub(super) fn of(config: &Config) -> Option<AcmePlan> {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, RenewerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits within a step. Fails if the server stops or the plan is replaced.
    pub(super) fn pause(&self, pause: Duration) -> Result<(), AcmeError> {
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
