//! Places that each client holds at the members of a balancer, and the places for which each client waits.
//! Pure.
//!
//! Only members with `connections_max` have places. The rule for shares is [`may_take`]: a client gets at most
//! three quarters of the places of a member, and the last quarter is for clients with few places. Calls may
//! last for hours (tunnels, clients that read slowly), so the last quarter stays reserved on a quiet server
//! too.

use crate::base::fair_share::{ClientNetwork, may_take};
use crate::upstream::balancer::request::MemberId;
use std::collections::HashMap;

/// Places of all clients at the members of a balancer.
#[derive(Default)]
pub(super) struct PlaceLedger {
    by_client: HashMap<ClientNetwork, ClientPlaces>,
    /// Places held by all clients together.
    held: usize,
    /// Number of places given so far.
    grants: u64,
    /// Places of all members together; None if a member has no bound.
    places_max: Option<usize>,
}

/// Places of one client.
#[derive(Default)]
struct ClientPlaces {
    held: usize,
    by_member: Vec<(MemberId, usize)>,
    waiting: usize,
    /// Sequence number of the client's latest place.
    last_grant: u64,
}

/// Order in which clients get a free place: the client with the fewest places goes first, and between equals
/// the client that got a place longest ago.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClientRank {
    held: usize,
    last_grant: u64,
}

/// Use of a member's places.
#[derive(Copy, Clone, Debug)]
pub(super) struct PlaceUse {
    /// Number of the member.
    pub(super) member: MemberId,
    /// Requests under way.
    pub(super) busy: usize,
    /// Largest number of requests under way; `usize::MAX` for no bound.
    pub(super) busy_max: usize,
}

impl ClientRank {
    /// Rank of a client without places, which no other client precedes.
    pub(super) const FIRST: ClientRank = ClientRank {
        held: 0,
        last_grant: 0,
    };
}

impl PlaceLedger {
    /// Sets the places of all members together; None if a member has no bound.
    pub(super) fn set_places(&mut self, places_max: Option<usize>) {
        self.places_max = places_max;
    }

    /// Returns true if `client` may take a place of the member.
    pub(super) fn may_take(&self, client: ClientNetwork, place: PlaceUse) -> bool {
        place.busy_max == usize::MAX
            || may_take(
                self.held_at(client, place.member),
                place.busy,
                place.busy_max,
            )
    }

    /// Returns true if `client` may take a place of any member. The rule protects members with fewer than 4
    /// places, which have no quarter to reserve, as long as the balancer has at least 4 places.
    pub(super) fn may_take_any(&self, client: ClientNetwork) -> bool {
        let held = self.by_client.get(&client).map_or(0, |own| own.held);
        let may_take = |max| self.held >= max || may_take(held, self.held, max);
        self.places_max.is_none_or(may_take)
    }

    /// Returns the places of a client at one member, or at all members, and the places of all members together.
    pub(super) fn places(
        &self,
        client: ClientNetwork,
        member: Option<MemberId>,
    ) -> (usize, Option<usize>) {
        let own = self.by_client.get(&client).map_or(0, |own| own.held);
        let held = member.map_or(own, |member| self.held_at(client, member));
        (held, self.places_max)
    }

    /// Returns the rank of a client among the clients that wait.
    pub(super) fn rank(&self, client: ClientNetwork) -> ClientRank {
        let own = self.by_client.get(&client);
        own.map_or(ClientRank::FIRST, |own| ClientRank {
            held: own.held,
            last_grant: own.last_grant,
        })
    }

    /// Records that `client` got a place of the member.
    pub(super) fn add(&mut self, client: ClientNetwork, member: MemberId) {
        self.grants += 1;
        self.held += 1;
        let own = self.by_client.entry(client).or_default();
        own.held += 1;
        own.last_grant = self.grants;
        match own.by_member.iter_mut().find(|(id, _)| *id == member) {
            Some((_, held)) => *held += 1,
            None => own.by_member.push((member, 1)),
        }
    }

    /// Records that `client` left a place of the member.
    pub(super) fn remove(&mut self, client: ClientNetwork, member: MemberId) {
        let Some(own) = self.by_client.get_mut(&client) else {
            return;
        };
        let Some(at) = own.by_member.iter().position(|(id, _)| *id == member) else {
            return;
        };
        own.by_member[at].1 -= 1;
        if own.by_member[at].1 == 0 {
            own.by_member.swap_remove(at);
        }
        own.held -= 1;
        self.held -= 1;
        self.forget(client);
    }

    /// Records that a request of `client` waits.
    pub(super) fn begin_wait(&mut self, client: ClientNetwork) {
        self.by_client.entry(client).or_default().waiting += 1;
    }

    /// Records that a request of `client` waits no more.
    pub(super) fn end_wait(&mut self, client: ClientNetwork) {
        if let Some(own) = self.by_client.get_mut(&client) {
            own.waiting = own.waiting.saturating_sub(1);
            self.forget(client);
        }
    }

    /// Returns the client that has to leave a full queue in favour of `newcomer`: the client with the most
    /// waiting requests, if more requests of it wait even after the exchange.
    pub(super) fn loser_to(&self, newcomer: ClientNetwork) -> Option<ClientNetwork> {
        let own = self.by_client.get(&newcomer).map_or(0, |own| own.waiting);
        let waiting = self.by_client.iter();
        let waiting = waiting.map(|(client, places)| (places.waiting, *client));
        let (most, client) = waiting.max()?;
        (most > own + 1).then_some(client)
    }

    fn held_at(&self, client: ClientNetwork, member: MemberId) -> usize {
        let own = self.by_client.get(&client);
        let mut by_member = own.into_iter().flat_map(|own| &own.by_member);
        by_member
            .find(|(id, _)| *id == member)
            .map_or(0, |(_, held)| *held)
    }

    /// Removes a client without places and without waiting requests.
    fn forget(&mut self, client: ClientNetwork) {
        let own = self.by_client.get(&client);
        if own.is_some_and(|own| own.held + own.waiting == 0) {
            self.by_client.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);

    fn client(last: u8) -> ClientNetwork {
        std::net::IpAddr::from([192, 0, 2, last]).into()
    }

    fn place(member: MemberId, busy: usize, busy_max: usize) -> PlaceUse {
        PlaceUse {
            member,
            busy,
            busy_max,
        }
    }

    #[test]
    fn a_client_gets_three_quarters_of_the_places_of_a_member() {
        let mut ledger = PlaceLedger::default();
        for busy in 0..6 {
            assert!(ledger.may_take(client(1), place(A, busy, 8)));
            ledger.add(client(1), A);
        }
        assert!(!ledger.may_take(client(1), place(A, 6, 8)));
        assert!(ledger.may_take(client(1), place(B, 0, 8)));
        assert!(ledger.may_take(client(2), place(A, 6, 8)));
        ledger.add(client(2), A);
        assert!(!ledger.may_take(client(2), place(A, 7, 8)));
        assert!(ledger.may_take(client(3), place(A, 7, 8)));
        ledger.remove(client(2), A);
        ledger.remove(client(1), A);
        assert!(ledger.may_take(client(1), place(A, 5, 8)));
    }

    #[test]
    fn members_with_few_places_share_one_reserve() {
        let mut ledger = PlaceLedger::default();
        ledger.set_places(Some(4));
        for member in [1, 2, 3].map(MemberId) {
            assert!(ledger.may_take_any(client(1)));
            ledger.add(client(1), member);
        }
        assert!(!ledger.may_take_any(client(1)));
        assert!(ledger.may_take_any(client(2)));
        ledger.set_places(None);
        assert!(ledger.may_take_any(client(1)));
    }

    #[test]
    fn the_client_with_the_fewest_places_goes_first() {
        let mut ledger = PlaceLedger::default();
        ledger.add(client(1), A);
        ledger.add(client(1), B);
        ledger.add(client(2), A);
        assert!(ledger.rank(client(2)) < ledger.rank(client(1)));
        ledger.remove(client(1), A);
        assert!(
            ledger.rank(client(1)) < ledger.rank(client(2)),
            "served longer ago"
        );
        assert_eq!(ledger.rank(client(3)), ClientRank::FIRST);
    }

    #[test]
    fn the_client_with_the_most_waiting_requests_leaves_a_full_queue() {
        let mut ledger = PlaceLedger::default();
        assert_eq!(ledger.loser_to(client(1)), None);
        ledger.begin_wait(client(1));
        ledger.begin_wait(client(1));
        assert_eq!(ledger.loser_to(client(1)), None);
        assert_eq!(ledger.loser_to(client(2)), Some(client(1)));
        ledger.begin_wait(client(2));
        assert_eq!(ledger.loser_to(client(2)), None);
        ledger.end_wait(client(1));
        ledger.end_wait(client(1));
        ledger.end_wait(client(2));
        assert!(ledger.by_client.is_empty());
    }
}
