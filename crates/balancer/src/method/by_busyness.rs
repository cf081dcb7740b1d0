//! Apache's lbmethod bybusyness: the candidate with the fewest requests under way is chosen, and among
//! equals the candidate of the method `byrequests`. During a slow start, requests under way count by the
//! reduced weight.

use crate::contest::Contest;
use crate::method::by_requests;

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    by_requests::pick_first_by(contest, |contest, index| {
        let member = &contest.seat(index).member;
        let share = member.weight_share(contest.now_ms, contest.slow_start_ms);
        // Members with their whole weight compare exactly.
        member.busy() as u64 * 1_000_000 / u64::from(share.thousandths())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;

    #[test]
    fn the_least_busy_member_is_chosen() {
        let mut contest = TestContest::new(pick, &[100; 3]);
        contest.set_busy(&[2, 1, 5]);
        assert_eq!(contest.sequence(3), "bbb");
        contest.set_busy(&[0, 1, 0]);
        assert_eq!(contest.sequence(4), "acac");
    }

    #[test]
    fn equally_busy_members_share_as_byrequests() {
        let weights = [300, 100, 100];
        let mut contest = TestContest::new(pick, &weights);
        let mut requests = TestContest::new(by_requests::pick, &weights);
        assert_eq!(contest.sequence(50), requests.sequence(50));
    }

    #[test]
    fn the_weights_do_not_outweigh_requests_under_way() {
        let mut contest = TestContest::new(pick, &[10_000, 100]);
        contest.set_busy(&[1, 0]);
        assert_eq!(contest.sequence(3), "bbb");
    }

    #[test]
    fn a_recovered_member_takes_a_tenth_of_the_load_at_first() {
        let mut contest = TestContest::new(pick, &[100; 2]);
        contest.slow_start_ms = 1_000;
        contest.now_ms = 10_000;
        contest.recover(0);
        contest.set_busy(&[1, 10]);
        assert_eq!(contest.sequence(1), "b");
        contest.set_busy(&[1, 11]);
        assert_eq!(contest.sequence(1), "a");
        contest.set_busy(&[0, 0]);
        let count = contest.counts(110)[0];
        assert!((9..=11).contains(&count), "{count}");
    }
}
