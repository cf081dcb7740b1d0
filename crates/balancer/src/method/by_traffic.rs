//! Apache's lbmethod bytraffic: the candidate with the fewest bytes by weight is chosen. Among
//! equals, the first wins.

use crate::contest::Contest;
use crate::state::WeightShare;

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    cover_slow_starts(contest);
    let mut best: Option<(u64, u16)> = None;
    for index in contest.candidates {
        let score = contest.seat(*index).traffic_score();
        if best.is_none_or(|(best_score, _)| score < best_score) {
            best = Some((score, *index));
        }
    }
    best.map_or(0, |(_, index)| index)
}

/// Adapts the scores of recovered members.
fn cover_slow_starts<C>(contest: &mut Contest<'_, C>) {
    if contest.slow_start_ms == 0 {
        return;
    }
    for index in contest.candidates {
        if contest.seat(*index).has_new_recovery() {
            let rivals = contest.candidates.iter().filter(|other| *other != index);
            let scores = rivals.map(|other| contest.seat(*other).traffic_score());
            let floor = scores.min().unwrap_or(0);
            contest.seats[usize::from(*index)].begin_slow_start(floor);
        }
        let member = &contest.seat(*index).member;
        let share = member.weight_share(contest.now_ms, contest.slow_start_ms);
        if share < WeightShare::WHOLE {
            contest.seats[usize::from(*index)].cover_slow_start(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;

    #[test]
    fn the_member_with_the_fewest_bytes_is_chosen() {
        let mut contest = TestContest::new(pick, &[100; 3]);
        contest.bytes = vec![1_000, 3_000, 500];
        assert_eq!(contest.sequence(11), "abccaccacca");
    }

    #[test]
    fn bytes_count_by_weight() {
        let mut contest = TestContest::new(pick, &[300, 100]);
        contest.bytes = vec![1_000; 2];
        assert_eq!(contest.counts(400), [300, 100]);
    }

    #[test]
    fn without_slow_start_a_recovered_member_catches_up_as_in_apache() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.bytes = vec![1_000; 2];
        contest.exclude(0);
        contest.counts(50);
        contest.recover(0);
        assert_eq!(contest.counts(50), [50, 0]);
    }

    #[test]
    fn with_slow_start_a_recovered_member_starts_with_a_tenth() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.bytes = vec![1_000; 2];
        contest.slow_start_ms = 1_000;
        contest.now_ms = 10_000;
        contest.exclude(0);
        contest.counts(50);
        contest.recover(0);
        let count = contest.counts(110)[0];
        assert!((9..=12).contains(&count), "{count}");
        contest.now_ms = 11_000;
        let count = contest.counts(100)[0];
        assert!((48..=52).contains(&count), "{count}");
    }
}
