//! Shares of calls: the order in which waiting calls are served, and the calls that give way to a waiting call. Pure.
//!
//! The rules are the same for scripts, for connections to a backend and for places of members. A wide IPv6 network with
//! more than an eighth of the places counts as one client ([`NetworkTable`]).

use crate::base::client_network::{ClientNetwork, share_of};
use crate::base::network_table::{HolderRank, Holding, LargeNetworks, NetworkTable};

/// Numbers of calls of all clients.
#[derive(Default)]
pub struct CallShares {
    all: CallCounts,
    clients: NetworkTable<CallCounts>,
    /// Number of places given so far.
    grants: u64,
}

/// Numbers of calls, of one client, of a wide network or of all clients.
#[derive(Clone, Copy, Default, Debug)]
pub struct CallCounts {
    /// Calls with a place.
    pub taken: usize,
    /// Calls waiting for a place.
    pub waiting: usize,
    /// Calls with a place that count as served.
    pub begun: usize,
    /// Calls with a client that is too slow.
    pub slow: usize,
    /// Sequence number of the client's latest place. Numbers grow with each place given to any client.
    pub last_grant: u64,
}

impl Holding for CallCounts {
    fn is_none(&self) -> bool {
        self.taken + self.waiting + self.begun + self.slow == 0
    }
}

/// Class of the rate at which a client takes the response or sends the request of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClientPace {
    /// Fast enough, or the call doesn't wait for the client.
    Fast,
    /// Too slow for a client over its share of the places. A tunnel or an event stream has the pace at any rate: it may
    /// be silent for any time, and its end costs the client only a new connection.
    SlowForMany,
    /// Too slow for any client.
    Slow,
}

/// Order in which clients get a free place: the client with the fewest places goes first, and between equals the client
/// that got a place longest ago.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WaitRank(HolderRank, u64);

impl WaitRank {
    /// Rank of a client without places, which no other client precedes.
    pub const FIRST: WaitRank = WaitRank([0; 3], 0);
}

impl CallShares {
    /// Returns the counts of all clients together.
    pub fn all(&self) -> CallCounts {
        self.all
    }

    /// Returns the counts of a client.
    pub fn of(&self, client: ClientNetwork) -> CallCounts {
        self.clients.of(client)
    }

    /// Returns the number of clients with a place or a waiting call.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Changes the counts of a client and of all clients.
    pub fn count(&mut self, client: ClientNetwork, change: impl Fn(&mut CallCounts)) {
        change(&mut self.all);
        self.clients.change(client, change);
    }

    /// Records a place given to a client.
    pub fn take(&mut self, client: ClientNetwork, has_begun: bool) {
        self.grants += 1;
        let grant = self.grants;
        self.count(client, |counts| {
            counts.taken += 1;
            counts.begun += usize::from(has_begun);
            counts.last_grant = grant;
        });
    }

    /// Records a place that a client left.
    pub fn leave(&mut self, client: ClientNetwork, has_begun: bool) {
        self.count(client, |counts| {
            counts.taken = counts.taken.saturating_sub(1);
            counts.begun = counts.begun.saturating_sub(usize::from(has_begun));
        });
    }

    /// Returns true if the shares allow `client` another of `bound` places.
    pub fn may_take(&self, client: ClientNetwork, bound: usize) -> bool {
        let taken = |counts: &CallCounts| counts.taken;
        self.clients
            .may_take(client, taken, self.all.taken, 1, bound)
    }

    /// Returns the wide networks with more than their share of `bound` places.
    pub fn large(&self, bound: usize) -> LargeNetworks {
        self.clients.large(share_of(bound), |counts| counts.taken)
    }

    /// Returns the rank of a client among the clients that wait. `large` is the result of [`CallShares::large`].
    pub fn rank(&self, client: ClientNetwork, large: &LargeNetworks) -> WaitRank {
        let own = self.of(client);
        WaitRank(large.rank(client, own.taken, None), own.last_grant)
    }

    /// Returns the client that has to leave a full queue in favour of a call of `newcomer`: the client with the most
    /// waiting calls, if more calls of it wait even after the exchange.
    pub fn loser_to(&self, newcomer: ClientNetwork) -> Option<ClientNetwork> {
        let waiting = |counts: &CallCounts| counts.waiting;
        let large = self.clients.large(share_of(self.all.waiting), waiting);
        let others = self
            .clients
            .iter()
            .filter(|(client, counts)| *client != newcomer && counts.waiting > 0);
        let ranked =
            others.map(|(client, own)| (large.rank(client, own.waiting, Some(newcomer)), client));
        let (rank, loser) = ranked.max()?;
        let own = large.counted(newcomer, self.of(newcomer).waiting, Some(loser));
        (rank[0] > own + 1).then_some(loser)
    }

    /// Returns true if a client or a network other than `client` has more than an equal part of the places, with
    /// `client` among the holders.
    pub fn has_larger_than_equal(&self, client: ClientNetwork, bound: usize) -> bool {
        let large = self.large(bound);
        let clients = self.clients.iter().map(|(other, _)| other);
        let is_new = usize::from(!self.clients.contains(client));
        let holders = large.holders(clients, Some(client)) + is_new;
        let equal = (self.all.taken / holders.max(1)).max(1);
        let mut others = self.clients.iter().filter(|(other, _)| *other != client);
        others.any(|(other, counts)| large.counted(other, counts.taken, Some(client)) > equal)
    }

    /// Returns the question whether a call of `client` at `pace` gives way to waiting calls, under a bound of `bound`
    /// places.
    pub fn yielding(&self, client: ClientNetwork, pace: ClientPace, bound: usize) -> Yielding<'_> {
        let begun = |counts: &CallCounts| counts.begun;
        Yielding {
            shares: self,
            client,
            pace,
            taken: self.large(bound),
            begun: self.clients.large(share_of(bound), begun),
        }
    }
}

/// Question whether a call gives way to other clients.
pub struct Yielding<'a> {
    shares: &'a CallShares,
    client: ClientNetwork,
    pace: ClientPace,
    /// Wide networks with more than their share of the places, and of the places that count as served.
    taken: LargeNetworks,
    begun: LargeNetworks,
}

impl Yielding<'_> {
    /// Returns true if the call gives way to a waiting call of `other`: its pace is slow enough, and `other` has far
    /// fewer places. A waiting client with more places has its share already.
    pub fn gives_way_to(&self, other: ClientNetwork) -> bool {
        self.gives_way(other, &self.taken, |counts| counts.taken)
    }

    /// Returns true if the call gives way to a call of `other` that has a place and waits in the backend's own queue.
    pub fn gives_way_to_unanswered(&self, other: ClientNetwork) -> bool {
        self.gives_way(other, &self.begun, |counts| counts.begun)
    }

    fn gives_way(
        &self,
        other: ClientNetwork,
        large: &LargeNetworks,
        units: impl Fn(&CallCounts) -> usize,
    ) -> bool {
        if other == self.client || self.pace < self.pace_enough(other) {
            return false;
        }
        let counted = |client: ClientNetwork, beside: ClientNetwork| {
            large.counted(client, units(&self.shares.of(client)), Some(beside))
        };
        is_entitled_against(counted(other, self.client), counted(self.client, other))
    }

    /// Returns the pace that is slow enough: a client over an equal share has to be faster.
    fn pace_enough(&self, other: ClientNetwork) -> ClientPace {
        match self.is_over_equal_share(other) {
            true => ClientPace::SlowForMany,
            false => ClientPace::Slow,
        }
    }

    /// Returns true if the client of the call has more than an equal part of all places, with `other` among the holders.
    fn is_over_equal_share(&self, other: ClientNetwork) -> bool {
        let shares = self.shares;
        let own = shares.of(self.client).begun;
        let own = self.begun.counted(self.client, own, Some(other));
        let holders = match self.begun.is_empty() {
            true => shares.clients.len(),
            false => {
                let clients = shares.clients.iter().map(|(client, _)| client);
                self.begun.holders(clients, Some(other))
            }
        };
        own > (shares.all.begun / holders.max(1)).max(1)
    }

    /// Returns true if no client with a slow call has more places: the client with the most places gives way first.
    pub fn is_first(&self) -> bool {
        let rank = |client, own: CallCounts| self.begun.rank(client, own.begun, None);
        let own = rank(self.client, self.shares.of(self.client));
        let mut slow = self
            .shares
            .clients
            .iter()
            .filter(|(_, counts)| counts.slow > 0);
        !slow.any(|(client, counts)| rank(client, *counts) > own)
    }
}

/// Returns true if a client with `less` places would still have fewer than a client with `more` after
/// receiving one of the other client's places. A client without places is always far below: many addresses
/// with a slow response each must not keep a new client out.
fn is_entitled_against(less: usize, more: usize) -> bool {
    less == 0 || less + 1 < more
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};

    const BOUND: usize = 16;

    fn v4(last: u8) -> ClientNetwork {
        IpAddr::from([192, 0, 2, last]).into()
    }

    fn v6(last: u16) -> ClientNetwork {
        IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, last, 0, 0, 0, 1)).into()
    }

    fn shares(clients: impl IntoIterator<Item = ClientNetwork>) -> CallShares {
        let mut shares = CallShares::default();
        clients
            .into_iter()
            .for_each(|client| shares.take(client, true));
        shares
    }

    fn gives_way(shares: &CallShares, client: ClientNetwork, other: ClientNetwork) -> bool {
        let question = shares.yielding(client, ClientPace::SlowForMany, BOUND);
        question.gives_way_to(other)
    }

    #[test]
    fn many_visitors_with_one_call_each_keep_it_beside_a_newcomer() {
        let mut shares = shares((0..16).map(v4));
        shares.count(v4(99), |counts| counts.waiting += 1);
        assert!((0..16).all(|nth| !gives_way(&shares, v4(nth), v4(99))));
        let slow = shares.yielding(v4(1), ClientPace::Slow, BOUND);
        assert!(slow.gives_way_to(v4(99)));
    }

    #[test]
    fn the_networks_of_one_prefix_give_way_as_one_client() {
        let mut all: Vec<_> = (0..10).map(v6).collect();
        all.extend((0..6).map(v4));
        let mut shares = shares(all);
        shares.count(v4(99), |counts| counts.waiting += 1);
        assert!(gives_way(&shares, v6(3), v4(99)));
        assert!(!gives_way(&shares, v4(3), v4(99)));
        // Another customer of the provider is entitled, and another /64 of the prefix is not.
        shares.count(v6(0xcc00), |counts| counts.waiting += 1);
        assert!(gives_way(&shares, v6(3), v6(0xcc00)));
        shares.count(v6(0x77), |counts| counts.waiting += 1);
        assert!(!gives_way(&shares, v6(3), v6(0x77)));
        assert!(!gives_way(&shares, v4(3), v6(0x77)));
        // A free place goes to the clients outside first.
        let large = shares.large(BOUND);
        assert!(shares.rank(v4(99), &large) < shares.rank(v6(0x77), &large));
    }

    #[test]
    fn a_full_queue_drops_a_call_of_the_largest_network() {
        let mut shares = CallShares::default();
        let mut wait = |client| shares.count(client, |counts| counts.waiting += 1);
        (0..10).map(v6).for_each(&mut wait);
        (0..6).map(v4).for_each(&mut wait);
        let loser = shares.loser_to(v4(99));
        assert!(loser.is_some_and(|loser| (0..10).map(v6).any(|client| client == loser)));
        assert_eq!(shares.loser_to(v6(0x77)), None);
    }
}
