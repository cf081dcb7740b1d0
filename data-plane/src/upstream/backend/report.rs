//! Counters of a backend, and the state of a backend at one moment for the operator.

use crate::upstream::backend::reuse_policy::ReusePolicy;
use balancer::{LatencyBuckets, LatencyHistogram};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Number of status classes: index 0 for 1xx to 4 for 5xx.
const CLASSES: usize = 5;

/// Counters of a backend since the backend was added, shared by all workers. A call adds to two or three atomics.
#[derive(Default)]
pub(super) struct BackendCounters {
    answers: [AtomicU64; CLASSES],
    failures: AtomicU64,
    refused: AtomicU64,
    latencies: LatencyHistogram,
}

impl BackendCounters {
    /// Counts the head of an answer.
    pub(super) fn record_answer(&self, status: u16, latency: Duration) {
        let class = usize::from(status / 100).wrapping_sub(1).min(CLASSES - 1);
        self.answers[class].fetch_add(1, Relaxed);
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.record(micros);
    }

    /// Counts a call without an answer.
    pub(super) fn record_failure(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// Counts a call that found no place.
    pub(super) fn record_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// Copies the counters into a report.
    pub(super) fn write(&self, report: &mut BackendReport) {
        report.answers = self.answers.each_ref().map(|it| it.load(Relaxed));
        report.failures = self.failures.load(Relaxed);
        report.refused = self.refused.load(Relaxed);
        report.latencies = self.latencies.read();
    }
}

/// State of a FastCGI or SCGI backend at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendReport {
    /// Address, such as `unix:/run/php.sock`.
    pub address: String,
    /// Routes with the backend.
    pub routes: Vec<BackendRoute>,
    /// Policy for connections after the end of a call.
    pub keep: ReusePolicy,
    /// Number of calls that the backend may have at the same time.
    pub places: usize,
    /// Calls under way.
    pub busy: usize,
    /// Calls that wait for a place.
    pub waiting: usize,
    /// Open connections without a call.
    pub idle: usize,
    /// Answers by the class of the status: index 0 for 1xx to 4 for 5xx.
    pub answers: [u64; CLASSES],
    /// Calls without an answer: no connection, a connection that ended early, or a malformed answer.
    pub failures: u64,
    /// Calls that got no place, because all places and the queue were full.
    pub refused: u64,
    /// Times from a place to the head of the answer.
    pub latencies: LatencyBuckets,
    /// Reason why the last connection failed; None after a success.
    pub fault: Option<String>,
}

/// Route of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRoute {
    /// First name of the site.
    pub site: String,
    /// Path of the route with a slash at the end.
    pub path: String,
    /// Endings of the files that the backend runs, such as `.php`; empty for all paths below `path`.
    pub files: Vec<String>,
    /// True for SCGI, false for FastCGI.
    pub is_scgi: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class() {
        let counters = BackendCounters::default();
        for status in [200, 204, 302, 500, 999] {
            counters.record_answer(status, Duration::from_millis(3));
        }
        counters.record_failure();
        counters.record_refused();
        let mut report = BackendReport {
            address: String::new(),
            routes: Vec::new(),
            keep: ReusePolicy::Never,
            places: 1,
            busy: 0,
            waiting: 0,
            idle: 0,
            answers: [9; CLASSES],
            failures: 0,
            refused: 0,
            latencies: LatencyBuckets::default(),
            fault: None,
        };
        counters.write(&mut report);
        assert_eq!(report.answers, [0, 2, 1, 0, 2]);
        assert_eq!((report.failures, report.refused), (1, 1));
        assert_eq!(report.latencies.counts.iter().sum::<u64>(), 5);
    }
}
