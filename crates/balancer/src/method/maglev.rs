//! Method `maglev` (Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI
//! 2016, §3.4): a table from the client's hash to a member. The order of the entries that a member wants
//! depends on the member's URL alone, so a change of the list moves few clients, and all balancers with
//! equal lists make equal choices.

use crate::contest::{Contest, Seat, SetTable};
use crate::limits::{MAGLEV_ENTRIES, MAGLEV_ENTRIES_MAX, MAGLEV_FEW_MEMBERS_MAX};
use crate::member_settings::MemberRole;
use crate::method::ip_hash::pick_home_or_substitute;
use crate::random::{hash_bytes, mix, scale};

/// Chooses a member.
pub(super) fn pick<C>(contest: &mut Contest<'_, C>) -> u16 {
    pick_home_or_substitute(contest, home(contest))
}

/// Returns the client's own member, usable or not.
fn home<C>(contest: &Contest<'_, C>) -> Option<u16> {
    let table = contest.tables.iter().find(|it| it.set == contest.set)?;
    let entries = &table.entries;
    let at = scale(mix(contest.client_hash), entries.len() as u64);
    entries.get(at as usize).copied()
}

/// Fills a table for each set. A table has all regular members of its set, usable or not. The lock of the balancer is
/// held for about 0.2 ms with few members.
pub(super) fn tables<C>(seats: &[Seat<C>]) -> Vec<SetTable> {
    let standings: Vec<_> = seats.iter().map(|seat| seat.member.standing()).collect();
    let mut sets: Vec<u8> = standings.iter().map(|standing| standing.set).collect();
    sets.sort_unstable();
    sets.dedup();
    let table = |set: u8| {
        let members = standings
            .iter()
            .enumerate()
            .filter(|(_, standing)| standing.set == set && standing.role == MemberRole::Regular);
        let claims = members.map(|(index, standing)| {
            let url = seats[index].member.url().to_string();
            Claim::new(index as u16, hash_bytes(url.as_bytes()), standing.weight)
        });
        SetTable {
            set,
            entries: fill(claims.collect()),
        }
    };
    sets.into_iter().map(table).collect()
}

/// Progress of a member that claims entries of a table.
struct Claim {
    index: u16,
    weight: u64,
    /// Weight saved up for the next entry.
    credit: u64,
    /// Next entry that the member wants.
    next: usize,
    /// Hash that gives the distance between the entries that the member wants.
    step_hash: u64,
}

impl Claim {
    fn new(index: u16, url_hash: u64, weight: u32) -> Claim {
        Claim {
            index,
            weight: u64::from(weight.max(1)),
            credit: 0,
            next: mix(url_hash) as usize,
            step_hash: mix(url_hash ^ 1),
        }
    }
}

/// Fills a table: the members take turns by weight, and each takes the next free entry in its order.
fn fill(mut claims: Vec<Claim>) -> Box<[u16]> {
    let Some(weight_max) = claims.iter().map(|claim| claim.weight).max() else {
        return Box::default();
    };
    let size = match claims.len() <= MAGLEV_FEW_MEMBERS_MAX {
        true => MAGLEV_ENTRIES,
        false => MAGLEV_ENTRIES_MAX,
    };
    let mut table = vec![FREE; size];
    let mut left = size;
    for claim in &mut claims {
        claim.next %= size;
    }
    while left > 0 {
        for claim in &mut claims {
            claim.credit += claim.weight;
            if claim.credit < weight_max || left == 0 {
                continue;
            }
            claim.credit -= weight_max;
            let step = 1 + scale(claim.step_hash, size as u64 - 1) as usize;
            while table[claim.next] != FREE {
                claim.next = (claim.next + step) % size;
            }
            table[claim.next] = claim.index;
            left -= 1;
        }
    }
    table.into_boxed_slice()
}

/// Entry without a member.
const FREE: u16 = u16::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::test_contest::TestContest;
    use proptest::prelude::*;

    fn table(members: &[(u64, u32)]) -> Box<[u16]> {
        let claims = members
            .iter()
            .map(|(url, weight)| Claim::new(*url as u16, hash_bytes(&url.to_be_bytes()), *weight));
        fill(claims.collect())
    }

    /// Returns the method with tables filled at the first choice.
    fn cached_pick() -> impl FnMut(&mut Contest<'_, ()>) -> u16 {
        let mut filled = None;
        move |contest| {
            let tables = filled.get_or_insert_with(|| tables(contest.seats));
            pick(&mut Contest {
                tables,
                seats: &mut *contest.seats,
                random: &mut *contest.random,
                ..*contest
            })
        }
    }

    fn entries(table: &[u16], member: u16) -> usize {
        table.iter().filter(|it| **it == member).count()
    }

    #[test]
    fn equal_weights_give_equal_shares() {
        for count in [1, 2, 7, 50] {
            let members: Vec<(u64, u32)> = (0..count).map(|url| (url, 100)).collect();
            let table = table(&members);
            let even = MAGLEV_ENTRIES / count as usize;
            for member in 0..count as u16 {
                let entries = entries(&table, member);
                assert!((even..=even + 1).contains(&entries), "{entries} of {even}");
            }
        }
    }

    #[test]
    fn many_members_get_a_larger_table() {
        let members: Vec<(u64, u32)> = (0..51).map(|url| (url, 100)).collect();
        assert_eq!(table(&members).len(), MAGLEV_ENTRIES_MAX);
        assert_eq!(table(&[]).len(), 0);
    }

    #[test]
    fn a_removed_member_moves_few_clients_of_other_members() {
        let members: Vec<(u64, u32)> = (0..10).map(|url| (url, 100)).collect();
        let before = table(&members);
        let mut fewer = members.clone();
        fewer.remove(3);
        let after = table(&fewer);
        let pairs = before.iter().zip(&after);
        let moved = pairs.filter(|(old, new)| **old != 3 && old != new).count();
        // Below 4 % of the entries; a plain division of the hash would move 90 %.
        assert!(moved < MAGLEV_ENTRIES / 25, "{moved}");
    }

    #[test]
    fn the_order_of_the_list_does_not_matter_much() {
        let members: Vec<(u64, u32)> = (0..10).map(|url| (url, 100)).collect();
        let reversed: Vec<(u64, u32)> = members.iter().rev().copied().collect();
        let tables = [table(&members), table(&reversed)];
        let pairs = tables[0].iter().zip(&tables[1]);
        let moved = pairs.filter(|(old, new)| old != new).count();
        assert!(moved < MAGLEV_ENTRIES / 4, "{moved}");
    }

    #[test]
    fn a_lost_member_moves_only_its_own_clients() {
        let mut contest = TestContest::new(cached_pick(), &[100; 5]);
        let before = contest.by_client(2_000);
        contest.exclude(4);
        for (old, new) in before.iter().zip(contest.by_client(2_000)) {
            assert!(new != 4 && (*old == new || *old == 4));
        }
        contest.include(4);
        assert_eq!(contest.by_client(2_000), before);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn shares_follow_the_weights(weights in proptest::collection::vec(100..=10_000_u32, 1..20)) {
            let members: Vec<(u64, u32)> = (0..).zip(weights.iter().copied()).collect();
            let table = table(&members);
            let total: u32 = weights.iter().sum();
            for (member, weight) in weights.iter().enumerate() {
                let exact = table.len() as f64 * f64::from(*weight) / f64::from(total);
                let entries = entries(&table, member as u16) as f64;
                prop_assert!((entries - exact).abs() <= 2.0 + exact / 50.0, "{entries} {exact}");
            }
        }
    }
}
