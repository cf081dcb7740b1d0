//! Method `ip-hash`: the hash of the client's address, divided among the regular members of the set by
//! weight. A change of the list moves most clients; the method `maglev` moves few.
//!
//! The client's own member may be unusable. Each client of an unusable member then gets a substitute, and the clients of
//! all other members stay where they are. A hot spare gets all clients of the member that the spare replaces.

use crate::contest::Contest;
use crate::member_settings::MemberRole;
use crate::random::{combine, mix, scale};

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    pick_home_or_substitute(contest, home(contest))
}

/// Returns the client's own member, usable or not.
fn home<C>(contest: &Contest<'_, C>) -> Option<u16> {
    let regulars = || {
        let seats = contest.seats.iter().enumerate();
        seats.filter_map(|(index, seat)| {
            let standing = seat.member.standing();
            let is_regular = standing.role == MemberRole::Regular && standing.set == contest.set;
            is_regular.then_some((index as u16, u64::from(standing.weight)))
        })
    };
    let total = regulars().map(|(_, weight)| weight).sum();
    let mut point = scale(mix(contest.client_hash), total);
    regulars().find_map(|(index, weight)| match point.checked_sub(weight) {
        Some(rest) => {
            point = rest;
            None
        }
        None => Some(index),
    })
}

/// Returns the client's own member `home` if the member is a candidate, else the substitute.
pub(super) fn pick_home_or_substitute<C>(contest: &Contest<'_, C>, home: Option<u16>) -> u16 {
    if let Some(home) = home {
        if contest.candidates.contains(&home) && is_within_share(contest, home) {
            return home;
        }
        let rank = contest.unusable.iter().position(|index| *index == home);
        if let Some(spare) = rank.and_then(|rank| contest.spares.get(rank)) {
            return *spare;
        }
    }
    substitute(contest, home)
}

/// Returns true if the client belongs to the part of the clients that a member gets. During a slow start
/// the part grows, and a client in the part stays there.
fn is_within_share<C>(contest: &Contest<'_, C>, index: u16) -> bool {
    let member = &contest.seat(index).member;
    let share = member.weight_share(contest.now_ms, contest.slow_start_ms);
    let place = scale(combine(contest.client_hash, SLOW_START_SALT), 1_000);
    place < u64::from(share.thousandths())
}

/// Chooses a candidate by weighted rendezvous hashing. The client's own member is chosen only if alone.
fn substitute<C>(contest: &Contest<'_, C>, home: Option<u16>) -> u16 {
    let mut best = (f64::NEG_INFINITY, home.unwrap_or(0));
    for index in contest.candidates {
        if Some(*index) == home {
            continue;
        }
        let member = &contest.seat(*index).member;
        let hash = combine(contest.client_hash, u64::from(member.id().0));
        // A uniform number in (0, 1), in the 53 bits of a float.
        let uniform = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let score = f64::from(contest.weight(*index)) / -uniform.ln();
        if score > best.0 {
            best = (score, *index);
        }
    }
    best.1
}

/// Separates the hash for the slow start from the hash for the choice.
const SLOW_START_SALT: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;
    use proptest::prelude::*;

    #[test]
    fn a_client_keeps_its_member() {
        let mut contest = TestContest::new(pick, &[100; 4]);
        let first = contest.by_client(200);
        assert_eq!(contest.by_client(200), first);
    }

    #[test]
    fn a_lost_member_moves_only_its_own_clients() {
        let mut contest = TestContest::new(pick, &[100; 4]);
        let before = contest.by_client(2_000);
        contest.exclude(1);
        let during = contest.by_client(2_000);
        let mut moved = [0; 4];
        for (old, new) in before.iter().zip(&during) {
            assert!(*new != 1 && (old == new || *old == 1));
            moved[usize::from(*new)] += usize::from(old != new);
        }
        assert!(
            moved[0] > 120 && moved[2] > 120 && moved[3] > 120,
            "{moved:?}"
        );
        contest.include(1);
        assert_eq!(contest.by_client(2_000), before);
    }

    #[test]
    fn a_spare_takes_the_clients_of_the_replaced_member() {
        let mut contest = TestContest::new(pick, &[100; 4]);
        contest.make_spare(3);
        let before = contest.by_client(1_000);
        contest.exclude(1);
        let during = contest.by_client(1_000);
        let replaced = before.iter().map(|old| if *old == 1 { 3 } else { *old });
        assert_eq!(during, replaced.collect::<Vec<u16>>());
    }

    #[test]
    fn a_recovered_member_gets_its_clients_back_in_steps() {
        let mut contest = TestContest::new(pick, &[100; 4]);
        contest.slow_start_ms = 10_000;
        contest.now_ms = 50_000;
        let home = contest.by_client(4_000);
        contest.recover(1);
        let clients = |contest: &mut TestContest| -> Vec<bool> {
            contest
                .by_client(4_000)
                .iter()
                .map(|index| *index == 1)
                .collect()
        };
        let mut last = vec![false; 4_000];
        for (now_ms, least, most) in [(50_000, 70, 130), (55_000, 470, 630), (60_000, 900, 1_100)] {
            contest.now_ms = now_ms;
            let now = clients(&mut contest);
            assert!(
                last.iter()
                    .zip(&now)
                    .all(|(before, after)| !before || *after)
            );
            let count = now.iter().filter(|is_there| **is_there).count();
            assert!((least..=most).contains(&count), "{count}");
            last = now;
        }
        assert_eq!(contest.by_client(4_000), home);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn shares_follow_the_weights(weights in proptest::collection::vec(100..=1_000_u32, 1..8)) {
            let total: u32 = weights.iter().sum();
            let mut contest = TestContest::new(pick, &weights);
            let chosen = contest.by_client(5_000);
            for (index, weight) in weights.iter().enumerate() {
                let count = chosen.iter().filter(|it| usize::from(**it) == index).count();
                let exact = 5_000.0 * f64::from(*weight) / f64::from(total);
                prop_assert!((count as f64 - exact).abs() < 60.0 + exact / 5.0);
            }
        }
    }
}
