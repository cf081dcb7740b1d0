//! Method `p2c` (power of two choices): of two random candidates, the one with the lower product of average
//! latency and requests under way, by weight.

use crate::contest::Contest;

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    let candidates = contest.candidates;
    let count = candidates.len() as u64;
    let first = contest.random.below(count);
    let mut second = contest.random.below(count.saturating_sub(1));
    second += u64::from(second >= first);
    let first = candidates[first as usize];
    match candidates.get(second as usize) {
        Some(second) if is_better(contest, *second, first) => *second,
        _ => first,
    }
}

/// Returns true if `challenger` is expected to answer sooner than `rival`. Members without a measured
/// latency compare by requests under way alone, so that a new member is not flooded before its first
/// answer.
fn is_better<C>(contest: &Contest<'_, C>, challenger: u16, rival: u16) -> bool {
    let cost = |index: u16| {
        let busy = contest.seat(index).member.busy() as f64;
        (busy + 1.0) / f64::from(contest.weight(index))
    };
    let latency = |index: u16| {
        let latency = &contest.seat(index).member.latency;
        latency.decayed_micros(contest.now_ms)
    };
    match (latency(challenger), latency(rival)) {
        (Some(challenging), Some(standing)) => {
            cost(challenger) * challenging < cost(rival) * standing
        }
        (None, _) | (_, None) => cost(challenger) < cost(rival),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;

    #[test]
    fn the_faster_of_two_members_is_chosen() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.set_latency(&[900, 300]);
        assert_eq!(contest.counts(100), [0, 100]);
    }

    #[test]
    fn requests_under_way_outweigh_a_low_latency() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.set_latency(&[900, 300]);
        contest.set_busy(&[0, 3]);
        assert_eq!(contest.counts(100), [100, 0]);
    }

    #[test]
    fn a_higher_weight_allows_more_requests_under_way() {
        let mut contest = TestContest::new(pick, &[100, 300]);
        contest.set_latency(&[500, 500]);
        contest.set_busy(&[1, 4]);
        assert_eq!(contest.counts(100), [0, 100]);
        contest.set_busy(&[1, 6]);
        assert_eq!(contest.counts(100), [100, 0]);
    }

    #[test]
    fn the_slowest_of_many_members_is_never_chosen_and_the_next_rarely() {
        let mut contest = TestContest::new(pick, &[100; 4]);
        contest.set_latency(&[100, 200, 300, 400]);
        // The shares are 3, 2, 1 and 0 of 6 pairs.
        let counts = contest.counts(6_000);
        let ranges = [2_800..=3_200, 1_800..=2_200, 850..=1_150, 0..=0];
        for (count, range) in counts.iter().zip(ranges) {
            assert!(range.contains(count), "{counts:?}");
        }
    }

    #[test]
    fn a_slow_member_is_tried_again_after_a_while() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.set_latency(&[2_000, 300]);
        assert_eq!(contest.sequence(1), "b");
        contest.now_ms += 20_000;
        contest.set_latency_of(1, 300);
        assert_eq!(contest.sequence(1), "a");
    }

    #[test]
    fn a_member_without_measurements_is_not_flooded() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.set_latency_of(0, 300);
        contest.set_busy(&[4, 5]);
        assert_eq!(contest.counts(100), [100, 0]);
    }

    #[test]
    fn one_candidate_is_chosen() {
        let mut contest = TestContest::new(pick, &[100]);
        assert_eq!(contest.sequence(3), "aaa");
    }
}
