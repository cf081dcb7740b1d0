//! Apache's lbmethod byrequests: the urgency of each candidate rises by the weight, the most urgent
//! candidate is chosen, and its urgency falls by the sum of the weights. Among equals, the first wins.

use crate::contest::Contest;

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    pick_first_by(contest, |_, _| 0_u64)
}

/// Chooses the member with the lowest `rank`, of members with equal ranks the most urgent member, and of
/// equals the first. Adjusts the urgency of all candidates.
pub(super) fn pick_first_by<C, R: Ord>(
    contest: &mut Contest<'_, C>,
    rank: impl Fn(&Contest<'_, C>, u16) -> R,
) -> u16 {
    let mut best: Option<(R, i64, u16)> = None;
    let mut total = 0;
    for index in contest.candidates {
        let weight = i64::from(contest.weight(*index));
        total += weight;
        let load = &mut contest.seats[usize::from(*index)].load;
        load.status += weight;
        let status = load.status;
        let rank = rank(contest, *index);
        let is_better = match &best {
            None => true,
            Some((best_rank, best_status, _)) => {
                rank < *best_rank || rank == *best_rank && status > *best_status
            }
        };
        if is_better {
            best = Some((rank, status, *index));
        }
    }
    let chosen = best.map_or(0, |(_, _, index)| index);
    contest.seats[usize::from(chosen)].load.status -= total;
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;
    use proptest::prelude::*;

    #[test]
    fn the_sequence_is_the_sequence_of_apache() {
        let sequence = |weights: &[u32], length| TestContest::new(pick, weights).sequence(length);
        assert_eq!(sequence(&[100; 4], 8), "abcdabcd");
        assert_eq!(sequence(&[300, 100, 100], 10), "abacaabaca");
        assert_eq!(sequence(&[100, 250], 7), "babbbab");
    }

    #[test]
    fn a_recovered_member_gets_a_tenth_at_first() {
        let mut contest = TestContest::new(pick, &[100, 100]);
        contest.slow_start_ms = 1_000;
        contest.now_ms = 10_000;
        contest.recover(0);
        let count = contest.counts(1_100)[0];
        assert_eq!(count, 100);
        contest.now_ms = 11_000;
        assert_eq!(contest.counts(100), [50, 50]);
    }

    proptest! {
        #[test]
        fn shares_follow_the_weights(
            weights in proptest::collection::vec(100..=10_000_u32, 1..12),
        ) {
            let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            let mut contest = TestContest::new(pick, &weights);
            let length = 2_000;
            let counts = contest.counts(length);
            for (count, weight) in counts.iter().zip(&weights) {
                let exact = u64::from(*weight) as f64 * length as f64 / total as f64;
                let members = weights.len() as f64;
                prop_assert!((*count as f64 - exact).abs() <= members, "{counts:?} {weights:?}");
            }
        }
    }
}
