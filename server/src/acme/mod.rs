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
mod limits;
mod order;
mod remedy;
mod renewer;
mod renewer_state;
mod schedule;
mod session;
mod store;

pub use renewer_state::{AcmeReport, CertificateReport};

use crate::config::Config;
use data_plane::tls::PendingChallenges;
use renewer_state::{AcmePlan, RenewerShared};
use std::sync::Arc;
use std::thread;

/// Handle of the control plane to the renewer's thread. Dropping the handle stops the renewer.
pub(crate) struct AcmeHandle {
    shared: Arc<RenewerShared>,
    ledger: Arc<PendingChallenges>,
    runs: bool,
}

impl AcmeHandle {
    /// Creates a handle without a plan. Challenge responses are published in `ledger`.
    pub(crate) fn new(ledger: Arc<PendingChallenges>) -> AcmeHandle {
        AcmeHandle {
            shared: Arc::default(),
            ledger,
            runs: false,
        }
    }

    /// Sets the plan that the configuration requires, and starts the renewer's thread if needed. `urge`
    /// retries failed orders at once, within the rate limits.
    pub(crate) fn plan(&mut self, config: &Config, urge: bool) {
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
    pub(crate) fn report(&self) -> AcmeReport {
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
