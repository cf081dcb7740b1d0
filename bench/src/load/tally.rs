//! Counts and histograms of one thread.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use hdrhistogram::Histogram;

use super::timeline::{Nanos, PendingRequest, Timeline, nanos};
use super::workload::{Expect, Pace, Workload};
use crate::result::Failures;

/// Counts and histograms of one thread, added up over all threads at the end.
#[derive(Debug)]
pub(super) struct Tally {
    pub requests: u64,
    pub bytes: u64,
    pub failures: BTreeMap<&'static str, Failed>,
    pub latency: Histogram<u64>,
    pub service: Option<Histogram<u64>>,
    pub connect: Histogram<u64>,
    pub full_handshakes: u64,
    pub resumed_handshakes: u64,
    /// Time when the last measured request ended.
    pub last: Nanos,
    /// Timeout after which a request is abandoned.
    timeout: Nanos,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failed {
    pub count: u64,
    /// Description of the first failure.
    pub first: String,
}

/// A failure: the kind, a key of [`Failures`], and a description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub kind: &'static str,
    pub what: String,
}

impl Failure {
    pub(super) fn new(kind: &'static str, what: impl ToString) -> Failure {
        Failure {
            kind,
            what: what.to_string(),
        }
    }
}

/// Properties of a response, independent of the HTTP version.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseSummary {
    pub status: u16,
    pub length: u64,
    pub differs: bool,
}

impl ResponseSummary {
    /// Compares the response with the expectation and returns the failure if the response is wrong.
    pub(super) fn judge(self, expect: &Expect) -> Result<(), Failure> {
        if self.status != expect.status {
            let what = format!("status {} instead of {}", self.status, expect.status);
            return Err(Failure::new(Failures::STATUS, what));
        }
        if let Some(length) = expect.length.filter(|&length| length != self.length) {
            let what = format!("{} bytes of content instead of {length}", self.length);
            return Err(Failure::new(Failures::LENGTH, what));
        }
        let whole = expect
            .body
            .as_ref()
            .is_none_or(|body| body.len() as u64 == self.length);
        if self.differs || !whole {
            return Err(Failure::new(
                Failures::LENGTH,
                "content differs from the expected content",
            ));
        }
        Ok(())
    }
}

impl Tally {
    pub(super) fn new(workload: &Workload) -> Tally {
        let open = matches!(workload.pace, Pace::Open { .. });
        Tally {
            requests: 0,
            bytes: 0,
            failures: BTreeMap::new(),
            latency: histogram(),
            service: open.then(histogram),
            connect: histogram(),
            full_handshakes: 0,
            resumed_handshakes: 0,
            last: 0,
            timeout: nanos(workload.timeout_seconds),
        }
    }

    /// Counts a complete response.
    pub(super) fn response(
        &mut self,
        timeline: &Timeline,
        pending: &PendingRequest,
        now: Nanos,
        verdict: Result<(), Failure>,
    ) {
        match verdict {
            Ok(()) if timeline.counts(pending, now) => {
                self.requests += 1;
                self.last = self.last.max(now);
                record(&mut self.latency, now - pending.due);
                if let Some(service) = &mut self.service {
                    record(service, now - pending.begun);
                }
            }
            Ok(()) => {}
            Err(failure) => self.failure(timeline, Some(pending), now, failure),
        }
    }

    /// Counts a failed request, or a failed connection opened in advance.
    pub(super) fn failure(
        &mut self,
        timeline: &Timeline,
        pending: Option<&PendingRequest>,
        now: Nanos,
        failure: Failure,
    ) {
        if timeline.counts_failure(pending, now) {
            self.last = self.last.max(now);
            if let Some(pending) = pending {
                self.given_up(pending, now, failure.kind);
            }
            let first = Failed {
                count: 0,
                first: failure.what,
            };
            self.failures.entry(failure.kind).or_insert(first).count += 1;
        }
    }

    /// Records the waiting time of an abandoned request, at least the timeout. Otherwise a server that
    /// leaves its slowest requests unanswered would have better percentiles.
    fn given_up(&mut self, pending: &PendingRequest, now: Nanos, kind: &str) {
        let waited = now - pending.due;
        if kind != Failures::TIMEOUT && waited < self.timeout {
            return;
        }
        record(&mut self.latency, waited.max(self.timeout));
        if let Some(service) = &mut self.service {
            record(service, now - pending.begun);
        }
    }

    /// Counts a connection established with all handshakes.
    pub(super) fn connected(
        &mut self,
        timeline: &Timeline,
        begun: Nanos,
        now: Nanos,
        resumed: Option<bool>,
    ) {
        if now < timeline.begin() {
            return;
        }
        record(&mut self.connect, now - begun);
        match resumed {
            Some(true) => self.resumed_handshakes += 1,
            Some(false) => self.full_handshakes += 1,
            None => {}
        }
    }

    /// Counts received bytes.
    pub(super) fn received(&mut self, timeline: &Timeline, now: Nanos, bytes: usize) {
        if timeline.counts_bytes(now) {
            self.bytes += bytes as u64;
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        for (kind, failed) in other.failures {
            let first = Failed {
                count: 0,
                first: failed.first,
            };
            self.failures.entry(kind).or_insert(first).count += failed.count;
        }
        self.latency += other.latency;
        if let (Some(service), Some(other)) = (&mut self.service, other.service) {
            *service += other;
        }
        self.connect += other.connect;
        self.full_handshakes += other.full_handshakes;
        self.resumed_handshakes += other.resumed_handshakes;
        self.last = self.last.max(other.last);
    }
}

fn record(histogram: &mut Histogram<u64>, nanos: Nanos) {
    histogram.saturating_record(nanos / 1000);
}

/// Creates a histogram of microseconds up to 1 h, with three significant digits.
#[allow(
    clippy::expect_used,
    reason = "the bounds are constants that the crate accepts"
)]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("bounds in range")
}
