//! Slow start: the weight of a recovered member rises linearly from a tenth to the whole. Pure.

use crate::limits::SLOW_START_PERCENT;

/// Share of a member's weight in thousandths, 1 to 1,000.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WeightShare(u32);

impl WeightShare {
    /// The whole weight.
    pub(super) const WHOLE: WeightShare = WeightShare(1_000);

    /// Returns the share at `now_ms` of a member that recovered at `recovered_at_ms` (0 for a member without
    /// a recovery), with a slow start of `duration_ms`.
    pub(super) fn at(now_ms: u64, recovered_at_ms: u64, duration_ms: u64) -> WeightShare {
        let elapsed_ms = now_ms.saturating_sub(recovered_at_ms);
        if recovered_at_ms == 0 || elapsed_ms >= duration_ms {
            return WeightShare::WHOLE;
        }
        let first = SLOW_START_PERCENT * 10;
        let risen = u128::from(1_000 - first) * u128::from(elapsed_ms) / u128::from(duration_ms);
        WeightShare((u128::from(first) + risen) as u32)
    }

    /// Returns the share in thousandths.
    pub(super) fn thousandths(self) -> u32 {
        self.0
    }

    /// Returns the share of `weight`, at least 1.
    pub(super) fn of(self, weight: u32) -> u32 {
        match self {
            WeightShare::WHOLE => weight.max(1),
            WeightShare(share) => {
                (u64::from(weight) * u64::from(share) / 1_000).clamp(1, u64::from(u32::MAX)) as u32
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_rises_from_a_tenth_to_the_whole() {
        let share = |now_ms| WeightShare::at(now_ms, 1_000, 10_000).thousandths();
        assert_eq!(
            [1_000, 6_000, 10_999, 11_000, 90_000].map(share),
            [100, 550, 999, 1_000, 1_000]
        );
        // A clock that stands before the recovery.
        assert_eq!(share(0), 100);
    }

    #[test]
    fn a_member_without_recovery_has_the_whole_weight() {
        assert_eq!(WeightShare::at(5, 0, 10_000), WeightShare::WHOLE);
        assert_eq!(WeightShare::at(5, 5, 0), WeightShare::WHOLE);
    }

    #[test]
    fn a_share_of_a_weight_is_at_least_one() {
        assert_eq!(WeightShare(100).of(100), 10);
        assert_eq!(WeightShare(100).of(10_000), 1_000);
        assert_eq!(WeightShare(100).of(5), 1);
        assert_eq!(WeightShare::WHOLE.of(0), 1);
    }
}
