//! Apache's lbmethod heartbeat: a random candidate, by the idle workers that the members announce. If no
//! candidate has announced an idle worker, the method `byrequests` chooses, where Apache answers 503.

use crate::contest::Contest;
use crate::method::by_requests;

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    let candidates = contest.candidates;
    let total: u64 = candidates.iter().map(|index| idle(contest, *index)).sum();
    let mut point = contest.random.below(total);
    for index in candidates {
        match point.checked_sub(idle(contest, *index)) {
            Some(rest) => point = rest,
            None => return *index,
        }
    }
    by_requests::pick(contest)
}

/// Returns the announced idle workers of a member, reduced during a slow start.
fn idle<C>(contest: &Contest<'_, C>, index: u16) -> u64 {
    let member = &contest.seat(index).member;
    let share = member.weight_share(contest.now_ms, contest.slow_start_ms);
    match member.heartbeat.weight(contest.now_ms) {
        0 => 0,
        idle => u64::from(share.of(idle)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HEARTBEAT_EXPIRY_MILLISECONDS;
    use crate::method::test_contest::TestContest;
    use wire::heartbeat::Heartbeat;

    fn contest(heartbeats: &[Option<(u32, u32)>]) -> TestContest {
        let weights = vec![100; heartbeats.len()];
        let contest = TestContest::new(pick, &weights);
        for (index, heartbeat) in heartbeats.iter().enumerate() {
            if let Some((ready, busy)) = *heartbeat {
                contest.hear(
                    index,
                    Heartbeat {
                        ready,
                        busy,
                        port: None,
                    },
                );
            }
        }
        contest
    }

    #[test]
    fn members_are_chosen_by_their_idle_workers() {
        let counts = contest(&[Some((30, 1)), Some((10, 1)), Some((0, 9)), None]).counts(4_000);
        assert!((2_850..=3_150).contains(&counts[0]), "{counts:?}");
        assert_eq!((counts[0] + counts[1], counts[2], counts[3]), (4_000, 0, 0));
    }

    #[test]
    fn a_member_without_busy_workers_counts_a_quarter() {
        let counts = contest(&[Some((40, 0)), Some((30, 1))]).counts(4_000);
        assert!((900..=1_100).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn without_heartbeats_requests_are_shared_by_weight() {
        assert_eq!(contest(&[None, None]).sequence(4), "abab");
        assert_eq!(contest(&[Some((0, 1)), None]).sequence(4), "abab");
        let mut expired = contest(&[Some((9, 1)), None]);
        assert_eq!(expired.sequence(4), "aaaa");
        expired.now_ms += HEARTBEAT_EXPIRY_MILLISECONDS;
        assert_eq!(expired.sequence(4), "abab");
    }

    #[test]
    fn a_recovered_member_gets_a_tenth_at_first() {
        let mut contest = contest(&[Some((100, 1)), Some((100, 1))]);
        contest.slow_start_ms = 5_000;
        contest.recover(0);
        let counts = contest.counts(4_400);
        assert!((340..=460).contains(&counts[0]), "{counts:?}");
    }
}
