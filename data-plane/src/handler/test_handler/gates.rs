//! Named gates, at which calls wait until another request opens the gate.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Set of open gates.
#[derive(Default, Debug)]
pub struct TestGates(Mutex<HashSet<String>>);

impl TestGates {
    /// Opens a gate for all present and future calls.
    pub(super) fn open(&self, gate: &str) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(gate.to_owned());
    }

    /// Waits until the gate is open.
    pub(super) async fn wait(&self, gate: &str) {
        while !self.is_open(gate) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn is_open(&self, gate: &str) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.contains(gate)
    }
}
