//! Active checks of a member: their results, the times of the checks, and the doubt about the checks themselves. Pure.
//!
//! The interval runs from the start of a check to the start of the next check. One check of a member runs
//! at a time: a check that takes longer than the interval is followed by the next check at once.

use std::fmt;

/// Result of an active check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CheckOutcome {
    /// The member passed the check.
    Passed,
    /// The member failed the check.
    Failed(CheckFailure),
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckOutcome::Passed => f.write_str("passed"),
            CheckOutcome::Failed(failure) => failure.fmt(f),
        }
    }
}

/// Reason for a failed check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CheckFailure {
    /// No connection could be established.
    Connection,
    /// The member did not answer in time.
    Timeout,
    /// The connection ended before the end of the answer, or the answer was no HTTP response.
    BadAnswer,
    /// The status of the response is outside of the expected range.
    Status(u16),
    /// The content of the response lacks the expected text.
    Text,
}

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckFailure::Connection => f.write_str("no connection"),
            CheckFailure::Timeout => f.write_str("timeout"),
            CheckFailure::BadAnswer => f.write_str("bad answer"),
            // Servers with several sites answer a Host without a site with these statuses.
            CheckFailure::Status(status @ (404 | 421)) => write!(
                f,
                "status {status} (a check sends the member's address as Host unless `health` has `host`)"
            ),
            CheckFailure::Status(status) => write!(f, "status {status}"),
            CheckFailure::Text => f.write_str("expected text missing"),
        }
    }
}

/// Results of the checks of one member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CheckStreak {
    /// True while the member counts as failed.
    is_failed: bool,
    /// True if a request succeeded since the member counts as failed.
    is_refuted: bool,
    /// Results in a row that contradict `is_failed`.
    contrary: u32,
    /// Checks in all: passed, failed.
    totals: (u64, u64),
}

impl CheckStreak {
    /// Returns true if the member counts as failed.
    pub(crate) fn is_failed(self) -> bool {
        self.is_failed
    }

    /// Returns true if the member counts as failed, and no request has proved the contrary.
    pub(crate) fn is_unrefuted_failure(self) -> bool {
        self.is_failed && !self.is_refuted
    }

    /// Records whether the last request of a failed member succeeded, in spite of the checks.
    pub(crate) fn set_refuted(&mut self, is_refuted: bool) {
        self.is_refuted = is_refuted && self.is_failed;
    }

    /// Returns the numbers of passed and of failed checks.
    pub(crate) fn totals(self) -> (u64, u64) {
        self.totals
    }

    /// Records a result: `fall` failures in a row fail the member, `rise` successes in a row restore the
    /// member.
    pub(crate) fn record(&mut self, outcome: CheckOutcome, rise: u32, fall: u32) {
        let is_passed = outcome == CheckOutcome::Passed;
        match is_passed {
            true => self.totals.0 += 1,
            false => self.totals.1 += 1,
        }
        if is_passed != self.is_failed {
            self.contrary = 0;
            return;
        }
        self.contrary += 1;
        let needed = match self.is_failed {
            true => rise,
            false => fall,
        };
        if self.contrary >= needed {
            self.force(!self.is_failed);
        }
    }

    /// Sets the result, by order of the operator or because the checks ended.
    pub(crate) fn force(&mut self, is_failed: bool) {
        self.is_failed = is_failed;
        self.is_refuted = false;
        self.contrary = 0;
    }
}

/// Results of the checks of all enabled members. Members without checks count as members with passed checks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CheckCensus {
    /// Members that serve first, the regular members of the lowest set.
    pub(crate) first: usize,
    /// Members with failed checks among the members that serve first.
    pub(crate) first_failed: usize,
    /// Members that replace the first members: spares, standbys, and all members of higher sets.
    pub(crate) reserve: usize,
    /// Members with failed checks among the reserve.
    pub(crate) reserve_failed: usize,
}

impl CheckCensus {
    /// Returns true if failed checks should not count: more than half of the members that serve first fail
    /// their checks, and no member of the reserve passes. A fault of the check is then more likely than a
    /// fault of so many members. With a member of the reserve in good health, a wrong decision against the
    /// first members costs less than requests to dead members.
    pub(crate) fn is_doubtful(self) -> bool {
        let has_reserve = self.reserve_failed < self.reserve;
        match self.first {
            0 => self.reserve > 0 && !has_reserve,
            _ => self.first_failed * 2 > self.first && !has_reserve,
        }
    }
}

/// Change of the doubt about the checks of a balancer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DoubtChange {
    /// Most members fail their checks, and no spare, standby or further set can take over. Members with failed
    /// checks get requests.
    Begun,
    /// Enough members pass their checks. Failed checks count again.
    Ended,
}

/// Plan of the checks of one member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CheckPlan {
    /// Start of the next check in milliseconds; None without checks.
    next_at_ms: Option<u64>,
    is_running: bool,
}

impl CheckPlan {
    /// Adapts the plan to an interval, or to the end of the checks. A member without a plan waits for
    /// `offset_ms`, so that the checks of all members spread over the interval.
    pub(crate) fn configure(&mut self, every_ms: Option<u64>, offset_ms: u64, now_ms: u64) {
        self.next_at_ms = every_ms.map(|every_ms| match self.next_at_ms {
            None => now_ms.saturating_add(offset_ms),
            Some(next_at_ms) => next_at_ms.min(now_ms.saturating_add(every_ms)),
        });
    }

    /// Returns the start of the next check; None without checks and while a check runs.
    pub(crate) fn next_at_ms(self) -> Option<u64> {
        self.next_at_ms.filter(|_| !self.is_running)
    }

    /// Starts a check if the check is due.
    pub(crate) fn begin(&mut self, every_ms: u64, now_ms: u64) -> bool {
        let is_due = self.next_at_ms().is_some_and(|at_ms| at_ms <= now_ms);
        if is_due {
            self.is_running = true;
            self.next_at_ms = Some(now_ms.saturating_add(every_ms.max(1)));
        }
        is_due
    }

    /// Records the end of the running check.
    pub(crate) fn end(&mut self) {
        self.is_running = false;
    }
}

/// Returns the delay of the first check of the member with the number `index` of `count` members.
pub(crate) fn first_check_offset_ms(every_ms: u64, index: usize, count: usize) -> u64 {
    let offset = u128::from(every_ms) * index as u128 / count.max(1) as u128;
    u64::try_from(offset).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: CheckOutcome = CheckOutcome::Passed;
    const FAILED: CheckOutcome = CheckOutcome::Failed(CheckFailure::Timeout);

    #[test]
    fn a_member_falls_and_rises_after_results_in_a_row() {
        let mut streak = CheckStreak::default();
        let results = [
            (FAILED, false),
            (FAILED, false),
            (PASSED, false),
            (FAILED, false),
            (FAILED, false),
            (FAILED, true),
            (PASSED, true),
            (FAILED, true),
            (PASSED, true),
            (PASSED, false),
            (PASSED, false),
        ];
        for (outcome, is_failed) in results {
            streak.record(outcome, 2, 3);
            assert_eq!(streak.is_failed(), is_failed, "{streak:?}");
        }
        assert_eq!(streak.totals(), (5, 6));
    }

    #[test]
    fn bounds_of_zero_count_as_one() {
        let mut streak = CheckStreak::default();
        streak.record(FAILED, 0, 0);
        assert!(streak.is_failed());
        streak.record(PASSED, 0, 0);
        assert!(!streak.is_failed());
    }

    #[test]
    fn the_operator_overrides_the_checks_until_the_next_streak() {
        let mut streak = CheckStreak::default();
        streak.force(true);
        streak.record(PASSED, 2, 2);
        assert!(streak.is_failed());
        streak.record(PASSED, 2, 2);
        assert!(!streak.is_failed());
    }

    #[test]
    fn checks_are_doubtful_when_more_than_half_of_the_first_fail_and_no_reserve_passes() {
        let doubtful = |first_failed, first, reserve_failed, reserve| {
            CheckCensus {
                first,
                first_failed,
                reserve,
                reserve_failed,
            }
            .is_doubtful()
        };
        let table = [
            ([0, 0, 0, 0], false),
            ([0, 1, 0, 0], false),
            ([1, 2, 0, 0], false),
            ([2, 4, 0, 0], false),
            ([1, 1, 0, 0], true),
            ([2, 3, 0, 0], true),
            ([3, 4, 0, 0], true),
            ([4, 4, 0, 0], true),
            // A passing reserve can take over.
            ([3, 4, 0, 1], false),
            ([4, 4, 1, 2], false),
            ([4, 4, 2, 2], true),
            ([2, 4, 1, 1], false),
            // No regular member is enabled.
            ([0, 0, 0, 2], false),
            ([0, 0, 1, 2], false),
            ([0, 0, 2, 2], true),
        ];
        for ([first_failed, first, reserve_failed, reserve], expected) in table {
            let is_doubtful = doubtful(first_failed, first, reserve_failed, reserve);
            assert_eq!(
                is_doubtful, expected,
                "{first_failed}/{first}, {reserve_failed}/{reserve}"
            );
        }
    }

    #[test]
    fn a_refuted_failure_ends_with_the_failure() {
        let mut streak = CheckStreak::default();
        streak.set_refuted(true);
        streak.record(FAILED, 1, 1);
        assert!(streak.is_unrefuted_failure());
        streak.set_refuted(true);
        assert!(streak.is_failed() && !streak.is_unrefuted_failure());
        streak.record(PASSED, 1, 1);
        streak.record(FAILED, 1, 1);
        assert!(streak.is_unrefuted_failure());
    }

    #[test]
    fn the_interval_counts_from_start_to_start() {
        let mut plan = CheckPlan::default();
        plan.configure(Some(500), 0, 1_000);
        assert!(plan.begin(500, 1_000));
        assert_eq!(plan.next_at_ms(), None);
        plan.end();
        assert_eq!(plan.next_at_ms(), Some(1_500));
        assert!(!plan.begin(500, 1_499));
        assert!(plan.begin(500, 1_500));
    }

    #[test]
    fn one_check_runs_at_a_time() {
        let mut plan = CheckPlan::default();
        plan.configure(Some(500), 0, 0);
        assert!(plan.begin(500, 0));
        assert!(!plan.begin(500, 2_000));
        plan.end();
        assert!(plan.begin(500, 2_000));
    }

    #[test]
    fn first_checks_are_spread_over_the_interval() {
        let offsets = [0, 1, 2, 3].map(|index| first_check_offset_ms(2_000, index, 4));
        assert_eq!(offsets, [0, 500, 1_000, 1_500]);
        assert_eq!(first_check_offset_ms(2_000, 0, 0), 0);
    }

    #[test]
    fn a_shorter_interval_brings_the_next_check_forward() {
        let mut plan = CheckPlan::default();
        plan.configure(Some(60_000), 0, 0);
        assert!(plan.begin(60_000, 0));
        plan.end();
        plan.configure(Some(1_000), 0, 5_000);
        assert_eq!(plan.next_at_ms(), Some(6_000));
        plan.configure(Some(60_000), 0, 5_000);
        assert_eq!(plan.next_at_ms(), Some(6_000));
        plan.configure(None, 0, 5_000);
        assert_eq!(plan.next_at_ms(), None);
        assert!(!plan.begin(1_000, 90_000));
    }
}
