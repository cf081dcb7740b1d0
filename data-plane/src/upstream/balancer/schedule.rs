//! Times of the active checks of one member. Pure.
//!
//! The interval runs from the start of a check to the start of the next check. One check of a member runs
//! at a time: a check that takes longer than the interval is followed by the next check at once.

/// Plan of the checks of one member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CheckPlan {
    /// Start of the next check in milliseconds; None without checks.
    next_at_ms: Option<u64>,
    is_running: bool,
}

impl CheckPlan {
    /// Adapts the plan to an interval, or to the end of the checks. A member without a plan waits for
    /// `offset_ms`, so that the checks of all members spread over the interval.
    pub(super) fn configure(&mut self, every_ms: Option<u64>, offset_ms: u64, now_ms: u64) {
        self.next_at_ms = every_ms.map(|every_ms| match self.next_at_ms {
            None => now_ms.saturating_add(offset_ms),
            Some(next_at_ms) => next_at_ms.min(now_ms.saturating_add(every_ms)),
        });
    }

    /// Returns the start of the next check; None without checks and while a check runs.
    pub(super) fn next_at_ms(self) -> Option<u64> {
        self.next_at_ms.filter(|_| !self.is_running)
    }

    /// Starts a check if the check is due.
    pub(super) fn begin(&mut self, every_ms: u64, now_ms: u64) -> bool {
        let is_due = self.next_at_ms().is_some_and(|at_ms| at_ms <= now_ms);
        if is_due {
            self.is_running = true;
            self.next_at_ms = Some(now_ms.saturating_add(every_ms.max(1)));
        }
        is_due
    }

    /// Records the end of the running check.
    pub(super) fn end(&mut self) {
        self.is_running = false;
    }
}

/// Returns the delay of the first check of the member with the number `index` of `count` members.
pub(super) fn first_check_offset_ms(every_ms: u64, index: usize, count: usize) -> u64 {
    let offset = u128::from(every_ms) * index as u128 / count.max(1) as u128;
    u64::try_from(offset).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
