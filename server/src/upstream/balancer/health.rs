//! Rise and fall of a member under active checks, and the doubt about the checks themselves. Pure.

use crate::upstream::balancer::state::CheckOutcome;

/// Results of the checks of one member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CheckStreak {
    /// True while the member counts as failed.
    is_failed: bool,
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
        self.contrary = 0;
    }
}

/// Returns true if more than half of the enabled members fail their checks. A fault of the check is then
/// more likely than a fault of so many members, and all members are tried.
pub(super) fn are_checks_doubtful(failed: usize, enabled: usize) -> bool {
    failed * 2 > enabled
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
    fn checks_are_doubtful_when_more_than_half_fail() {
        let doubtful = |failed, enabled| are_checks_doubtful(failed, enabled);
        assert!(!doubtful(0, 0) && !doubtful(0, 1) && !doubtful(1, 2) && !doubtful(2, 4));
        assert!(doubtful(1, 1) && doubtful(2, 3) && doubtful(3, 4) && doubtful(4, 4));
    }
}
