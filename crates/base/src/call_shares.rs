//! Shares of calls: the order in which waiting calls are served, and the calls that give way to a waiting call. Pure.
//!
//! The rules are the same for scripts, for connections to a backend and for places of members. A wide IPv6 network with
//! more than an eighth of the places counts as one client ([`NetworkTable`]).
//!
//! A newcomer is a client without a place that has waited for [`NEWCOMER_WAIT_MILLISECONDS`]. The slowest call gives way
//! to a newcomer even if each client holds little: a few addresses with a slow transfer each would otherwise hold all
//! places. One newcomer at a time is served that way, so the counts show each place before the next call ends.
//!
//! A call in the queue of the backend itself has a place already. Its client is a newcomer while none of its calls counts as
//! served.
//!
//! A client that gave way stays behind other clients for some minutes ([`ClientHistory`]): it waits longer, gets none of the
//! last eighth of the places, and is no newcomer beside clients that were never too slow.

use crate::client_history::ClientHistory;
use crate::client_network::{ClientNetwork, share_of};
use crate::limits::{DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE, NEWCOMER_WAIT_MILLISECONDS};
use crate::network_table::{HolderRank, Holding, LargeNetworks, NetworkTable};
use std::collections::BTreeMap;
use std::time::Duration;

/// Numbers of calls of all clients.
#[derive(Default)]
pub struct CallShares {
    all: CallCounts,
    clients: NetworkTable<CallCounts>,
    history: ClientHistory,
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
    /// Places of tunnels and event streams among the taken ones.
    pub tunnels: usize,
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
    /// Too slow for a client over its share of the places, with the average rate in KiB/s. A tunnel or an event stream has
    /// the pace at any rate: it may be silent for any time, and its end costs the client only a new connection.
    SlowForMany(u64),
    /// Too slow for any client.
    Slow,
}

impl ClientPace {
    /// Returns the rate of a slow client in KiB/s; None for a fast one.
    pub fn rate(self) -> Option<u64> {
        match self {
            ClientPace::Fast => None,
            ClientPace::SlowForMany(rate) => Some(rate),
            ClientPace::Slow => Some(0),
        }
    }
}

/// Numbers of slow calls by their rates, of places that a waiting call may use alike.
#[derive(Default)]
pub struct SlowCalls(BTreeMap<u64, usize>);

impl SlowCalls {
    fn change(&mut self, from: ClientPace, to: ClientPace) {
        if let Some(rate) = to.rate() {
            *self.0.entry(rate).or_default() += 1;
        }
        if let Some(rate) = from.rate()
            && let Some(count) = self.0.get_mut(&rate)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&rate);
            }
        }
    }

    /// Returns true if no call is slower than `rate`.
    fn has_none_below(&self, rate: u64) -> bool {
        self.0.range(..rate).next().is_none()
    }
}

/// Call that waits for a place.
#[derive(Clone, Copy, Debug)]
pub struct WaitingCall {
    /// The client.
    pub client: ClientNetwork,
    /// Time since the call began to wait.
    pub waited: Duration,
}

impl WaitingCall {
    /// Returns true if the call has waited as long as the call of a newcomer.
    pub fn has_waited(&self) -> bool {
        self.waited >= Duration::from_millis(NEWCOMER_WAIT_MILLISECONDS)
    }
}

/// Order in which waiting clients get a free place: clients that were too slow go last. Otherwise the client with the fewest
/// places goes first, then the client that has held its latest places for the shorter time, and between equals the client
/// that got a place longest ago.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WaitRank {
    was_slow: bool,
    held: HolderRank,
    /// True for a call that goes behind other calls of clients with equally many places.
    pub is_second: bool,
    used_ms: u64,
    latest_grant: u64,
}

impl WaitRank {
    /// Rank of a client without places, which no other client precedes.
    pub const FIRST: WaitRank = WaitRank {
        was_slow: false,
        held: [0; 3],
        is_second: false,
        used_ms: 0,
        latest_grant: 0,
    };

    /// Returns the rank of a client that holds `held`.
    pub fn new(history: &ClientHistory, client: ClientNetwork, held: HolderRank) -> WaitRank {
        WaitRank {
            was_slow: history.is_slow(client),
            held,
            is_second: false,
            used_ms: history.used_ms(client),
            latest_grant: history.latest_grant(client),
        }
    }
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

    /// Sets the clock of the history, in monotonic milliseconds.
    pub fn advance(&mut self, now_ms: u64) {
        self.history.advance(now_ms);
    }

    /// Records a place given to a client.
    pub fn take(&mut self, client: ClientNetwork, has_begun: bool) {
        self.history.record_grant(client);
        self.count(client, |counts| {
            counts.taken += 1;
            counts.begun += usize::from(has_begun);
        });
    }

    /// Records that a call of a client gives way because the client is too slow.
    pub fn record_slow(&mut self, client: ClientNetwork) {
        self.history.record_slow(client);
    }

    /// Returns true if a call of the client gave way lately because the client was too slow.
    pub fn is_slow(&self, client: ClientNetwork) -> bool {
        self.history.is_slow(client)
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
            && !self.is_last_eighth_closed(client, self.all.taken, bound)
    }

    /// Returns true if only the last eighth of `bound` places is left of which `taken` are taken, and `client` gets none of
    /// it. The last eighth is for clients that were never too slow. A bound of fewer than 4 places has no such part.
    pub fn is_last_eighth_closed(&self, client: ClientNetwork, taken: usize, bound: usize) -> bool {
        bound >= 4 && taken >= bound - share_of(bound) && self.history.is_slow(client)
    }

    /// Returns the wide networks with more than their share of `bound` places.
    pub fn large(&self, bound: usize) -> LargeNetworks {
        self.clients.large(share_of(bound), |counts| counts.taken)
    }

    /// Returns the rank of a client among the clients that wait. `large` is the result of [`CallShares::large`].
    pub fn rank(&self, client: ClientNetwork, large: &LargeNetworks) -> WaitRank {
        let held = large.rank(client, self.of(client).taken, None);
        WaitRank::new(&self.history, client, held)
    }

    /// Returns the client that has to leave a full queue in favour of a call of `newcomer`: the client with the most
    /// waiting calls, if more calls of it wait even after the exchange. A client without a waiting call also takes the
    /// place of a single call, if the standing of its client is worse.
    pub fn loser_to(&self, newcomer: ClientNetwork) -> Option<ClientNetwork> {
        let waiting = |counts: &CallCounts| counts.waiting;
        let large = self.clients.large(share_of(self.all.waiting), waiting);
        let others = self
            .clients
            .iter()
            .filter(|(client, counts)| *client != newcomer && counts.waiting > 0);
        let ranked = others.map(|(client, own)| {
            let rank = large.rank(client, own.waiting, Some(newcomer));
            (rank, self.history.standing(client), client)
        });
        let (rank, standing, loser) = ranked.max()?;
        let own = large.counted(newcomer, self.of(newcomer).waiting, Some(loser));
        let is_worse = own == 0 && standing > self.history.standing(newcomer);
        (rank[0] > own + 1 || is_worse).then_some(loser)
    }

    /// Records the pace of a call of `client`, one of the slow calls in `slow`.
    pub fn set_pace(
        &mut self,
        client: ClientNetwork,
        slow: &mut SlowCalls,
        from: &mut ClientPace,
        to: ClientPace,
    ) {
        let from = std::mem::replace(from, to);
        if from == to {
            return;
        }
        slow.change(from, to);
        let [was_slow, is_slow] = [from, to].map(|pace| usize::from(pace != ClientPace::Fast));
        if was_slow != is_slow {
            self.count(client, |counts| {
                counts.slow = (counts.slow + is_slow).saturating_sub(was_slow);
            });
        }
    }

    /// Returns true if `client` counts as a client without a tunnel beside `other`.
    pub fn has_no_tunnel(&self, client: ClientNetwork, other: ClientNetwork) -> bool {
        let tunnels = |counts: &CallCounts| counts.tunnels;
        let large = self.clients.large(share_of(self.all.tunnels), tunnels);
        large.counted(client, self.of(client).tunnels, Some(other)) == 0
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
            bound,
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
    bound: usize,
    /// Wide networks with more than their share of the places, and of the places that count as served.
    taken: LargeNetworks,
    begun: LargeNetworks,
}

impl Yielding<'_> {
    /// Returns true if the call gives way to one of the `waiting` calls, to which `promised` places are promised already.
    /// `slow` are the slow calls with a place that a waiting call may use.
    pub fn gives_way_to_one_of(
        &self,
        waiting: impl Iterator<Item = WaitingCall>,
        promised: usize,
        slow: &SlowCalls,
    ) -> bool {
        let serves_newcomer = promised == 0 && self.is_slowest(slow);
        let mut entitled = 0;
        for call in waiting {
            if serves_newcomer && self.is_newcomer(call) {
                return true;
            }
            entitled += usize::from(self.gives_way_to(call.client));
        }
        promised < entitled && self.is_first()
    }

    /// Returns true if the call gives way to a waiting call of `other`: its pace is slow enough, and `other` has far
    /// fewer places. A waiting client with more places has its share already.
    pub fn gives_way_to(&self, other: ClientNetwork) -> bool {
        self.gives_way(other, &self.taken, |counts| counts.taken)
    }

    /// Returns true if the call gives way to a call of `other` that has a place and waits in the backend's own queue.
    pub fn gives_way_to_unanswered(&self, other: ClientNetwork) -> bool {
        self.gives_way(other, &self.begun, |counts| counts.begun)
    }

    /// Returns true if the call gives way to the call of a newcomer that has a place and waits in the backend's own queue. A
    /// newcomer has no call that counts as served. The caller chooses the call that gives way.
    pub fn gives_way_to_unanswered_newcomer(&self, call: WaitingCall) -> bool {
        let served = self.shares.of(call.client).begun;
        self.is_below_rate_for_all()
            && self.has_waited_as_newcomer(call)
            && self.begun.counted(call.client, served, Some(self.client)) == 0
    }

    fn gives_way(
        &self,
        other: ClientNetwork,
        large: &LargeNetworks,
        units: impl Fn(&CallCounts) -> usize,
    ) -> bool {
        let is_slow_enough = match self.pace {
            ClientPace::Fast => false,
            ClientPace::SlowForMany(_) => self.is_over_equal_share(other),
            ClientPace::Slow => true,
        };
        if other == self.client || !is_slow_enough {
            return false;
        }
        let counted = |client: ClientNetwork, beside: ClientNetwork| {
            large.counted(client, units(&self.shares.of(client)), Some(beside))
        };
        is_entitled_against(counted(other, self.client), counted(self.client, other))
    }

    /// Returns true if the call has no slower one beside it in `slow`, and is below the rate that is fast enough for any
    /// client.
    fn is_slowest(&self, slow: &SlowCalls) -> bool {
        let rate = self.pace.rate().filter(|_| self.is_below_rate_for_all());
        rate.is_some_and(|rate| slow.has_none_below(rate))
    }

    /// Returns true if the call is below the rate that is fast enough for any client.
    fn is_below_rate_for_all(&self) -> bool {
        let rate_max = DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE / 1024;
        self.pace.rate().is_some_and(|rate| rate < rate_max)
    }

    /// Returns true if the client of `call` has no place, has waited, and may take the place that the call of the question
    /// leaves.
    fn is_newcomer(&self, call: WaitingCall) -> bool {
        let shares = self.shares;
        let other = call.client;
        let own = shares.of(other).taken;
        let taken = |counts: &CallCounts| counts.taken;
        let left = shares.all.taken.saturating_sub(1);
        self.has_waited_as_newcomer(call)
            && self.taken.counted(other, own, Some(self.client)) == 0
            && shares.clients.may_take(other, taken, left, 1, self.bound)
            && !shares.is_last_eighth_closed(other, left, self.bound)
    }

    /// Returns true if `call` has waited as long as the call of a newcomer. A client that was too slow takes no place of a
    /// client that was not.
    fn has_waited_as_newcomer(&self, call: WaitingCall) -> bool {
        let is_slow = |client| self.shares.history.is_slow(client);
        call.has_waited() && (!is_slow(call.client) || is_slow(self.client))
    }

    /// Returns true if the client of the call has more than an equal part of all places, with `other` among the holders.
    fn is_over_equal_share(&self, other: ClientNetwork) -> bool {
        let shares = self.shares;
        let own = shares.of(self.client).begun;
        let own = self.begun.counted(self.client, own, Some(other));
        let holders = if self.begun.is_empty() {
            shares.clients.len()
        } else {
            let clients = shares.clients.iter().map(|(client, _)| client);
            self.begun.holders(clients, Some(other))
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
        let question = shares.yielding(client, ClientPace::SlowForMany(20), BOUND);
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

    /// Returns true if a call at `rate` gives way to a call of `other` that has waited for `milliseconds`.
    fn gives_way_at(
        shares: &CallShares,
        rate: u64,
        other: ClientNetwork,
        milliseconds: u64,
    ) -> bool {
        let mut slow = SlowCalls::default();
        slow.change(ClientPace::Fast, ClientPace::SlowForMany(20));
        let pace = ClientPace::SlowForMany(rate);
        let waiting = WaitingCall {
            client: other,
            waited: Duration::from_millis(milliseconds),
        };
        let question = shares.yielding(v4(1), pace, BOUND);
        question.gives_way_to_one_of([waiting].into_iter(), 0, &slow)
    }

    #[test]
    fn only_the_slowest_call_gives_way_to_a_newcomer() {
        let shares = shares((1..=16).map(v4));
        assert!(gives_way_at(
            &shares,
            20,
            v4(99),
            NEWCOMER_WAIT_MILLISECONDS
        ));
        assert!(!gives_way_at(
            &shares,
            21,
            v4(99),
            NEWCOMER_WAIT_MILLISECONDS
        ));
        assert!(!gives_way_at(
            &shares,
            20,
            v4(99),
            NEWCOMER_WAIT_MILLISECONDS - 1
        ));
        assert!(
            !gives_way_at(&shares, 20, v4(2), 60_000),
            "client 2 has a place"
        );
        let none = SlowCalls::default();
        let fast = shares.yielding(v4(1), ClientPace::SlowForMany(32), BOUND);
        let waiting = WaitingCall {
            client: v4(99),
            waited: Duration::from_secs(60),
        };
        let gives_way = |question: &Yielding<'_>, promised| {
            question.gives_way_to_one_of([waiting].into_iter(), promised, &none)
        };
        assert!(!gives_way(&fast, 0), "32 KiB/s are enough for any client");
        let slow = shares.yielding(v4(1), ClientPace::SlowForMany(31), BOUND);
        assert!(gives_way(&slow, 0));
        assert!(!gives_way(&slow, 1), "another call has not left its place");
    }

    #[test]
    fn a_network_with_its_share_has_no_newcomer() {
        // The /56 has an eighth of the places, so the last quarter is closed to the network.
        let mut all: Vec<_> = (0..2).map(v6).collect();
        all.extend((1..=14).map(v4));
        let shares = shares(all);
        assert!(!gives_way_at(&shares, 20, v6(0x77), 60_000));
        assert!(gives_way_at(&shares, 20, v4(99), 60_000));
    }

    #[test]
    fn paces_are_counted_by_rate_and_by_client() {
        let mut shares = shares([v4(1), v4(2)]);
        let mut slow = SlowCalls::default();
        let mut paces = [ClientPace::Fast; 2];
        let mut set = |nth: usize, pace| {
            let client = v4(nth as u8 + 1);
            shares.set_pace(client, &mut slow, &mut paces[nth], pace);
            let lowest = slow.0.keys().next().copied();
            (lowest, shares.all().slow, shares.of(client).slow)
        };
        assert_eq!(set(0, ClientPace::SlowForMany(20)), (Some(20), 1, 1));
        assert_eq!(set(1, ClientPace::Slow), (Some(0), 2, 1));
        assert_eq!(set(0, ClientPace::SlowForMany(9)), (Some(0), 2, 1));
        assert_eq!(set(1, ClientPace::Fast), (Some(9), 1, 0));
        assert_eq!(set(0, ClientPace::Fast), (None, 0, 0));
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

    #[test]
    fn a_client_that_was_too_slow_goes_behind_clients_that_were_not() {
        let mut shares = shares((1..=14).map(v4));
        shares.record_slow(v4(1));
        let large = shares.large(BOUND);
        let [near, slow] = [v4(98), v4(1)].map(|client| shares.rank(client, &large));
        assert!(near < slow);
        // The last eighth of the places is closed to a slow client, and open to its neighbours.
        shares.leave(v4(1), true);
        assert!(shares.may_take(v4(1), BOUND));
        shares.take(v4(98), true);
        assert!(!shares.may_take(v4(1), BOUND));
        assert!(shares.may_take(v4(97), BOUND));
    }

    #[test]
    fn a_client_that_was_too_slow_is_no_newcomer_beside_others() {
        let mut shares = shares((1..=12).map(v4));
        assert!(gives_way_at(&shares, 20, v4(99), 60_000));
        shares.record_slow(v4(99));
        assert!(!gives_way_at(&shares, 20, v4(99), 60_000));
        shares.record_slow(v4(1));
        assert!(gives_way_at(&shares, 20, v4(99), 60_000), "both were slow");
        // The place that the call leaves must be outside of the last eighth.
        (13..=15).for_each(|nth| shares.take(v4(nth), true));
        assert!(!gives_way_at(&shares, 20, v4(99), 60_000));
    }

    #[test]
    fn a_full_queue_drops_a_call_of_a_worse_standing() {
        let mut shares = CallShares::default();
        (1..=4).for_each(|nth| shares.count(v4(nth), |counts| counts.waiting += 1));
        assert_eq!(shares.loser_to(v4(99)), None, "all are equal");
        shares.take(v4(2), true);
        assert_eq!(shares.loser_to(v4(99)), Some(v4(2)), "served");
        assert_eq!(shares.loser_to(v4(2)), None);
        shares.record_slow(v4(3));
        assert_eq!(shares.loser_to(v4(99)), Some(v4(3)), "slow");
        shares.count(v4(99), |counts| counts.waiting += 1);
        assert_eq!(shares.loser_to(v4(99)), None, "a second call");
    }
}
