//! Rise and fall of a member under active checks, and the doubt about the checks themselves. Pure.

use crate::upstream::balancer::state::CheckOutcome;

/// Results of the checks of one member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CheckStreak {
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
    pub(super) fn is_failed(self) -> bool {
        self.is_failed
    }

    /// Returns true if the member counts as failed, and no request has proved the contrary.
    pub(super) fn is_unrefuted_failure(self) -> bool {
        self.is_failed && !self.is_refuted
    }

    /// Records whether the last request of a failed member succeeded, in spite of the checks.
    pub(super) fn set_refuted(&mut self, is_refuted: bool) {
        self.is_refuted = is_refuted && self.is_failed;
    }

    /// Returns the numbers of passed and of failed checks.
    pub(super) fn totals(self) -> (u64, u64) {
        self.totals
    }

    /// Records a result: `fall` failures in a row fail the member, `rise` successes in a row restore the
    /// member.
    pub(super) fn record(&mut self, outcome: CheckOutcome, rise: u32, fall: u32) {
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
    pub(super) fn force(&mut self, is_failed: bool) {
        self.is_failed = is_failed;
        self.is_refuted = false;
        self.contrary = 0;
    }
}

/// Results of the checks of all enabled members. Members without checks count as members with passed checks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CheckCensus {
    /// Members that serve first, the regular members of the lowest set.
    pub(super) first: usize,
    /// Members with failed checks among the members that serve first.
    pub(super) first_failed: usize,
    /// Members that replace the first members: spares, standbys, and all members of higher sets.
    pub(super) reserve: usize,
    /// Members with failed checks among the reserve.
    pub(super) reserve_failed: usize,
}

impl CheckCensus {
    /// Returns true if failed checks should not count: more than half of the members that serve first fail
    /// their checks, and no member of the reserve passes. A fault of the check is then more likely than a
    /// fault of so many members. With a member of the reserve in good health, a wrong decision against the
    /// first members costs less than requests to dead members.
    pub(super) fn is_doubtful(self) -> bool {
        let has_reserve = self.reserve_failed < self.reserve;
        match self.first {
            0 => self.reserve > 0 && !has_reserve,
            _ => self.first_failed * 2 > self.first && !has_reserve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balancer::state::CheckFailure;

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
}
