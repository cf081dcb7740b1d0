//! Places that each client holds at the members of a balancer, and the places for which each client waits.
//! Pure.
//!
//! Only members with `connections_max` have places. The shares are those of scripts ([`CallShares`]), with one
//! difference: a client gets at most three quarters of the places of a member, and the last quarter is for clients with
//! few places, also on a quiet server. Calls may last for hours (tunnels, clients that read slowly), so the last quarter
//! stays reserved.
//!
//! Tunnels and event streams have at most `tunnels_max` of the places of a member. Such a call is told to end where its
//! client or wide network has more than an equal part of the places, and another client waits. Where all places of tunnels
//! are taken, the tunnel that has been silent for longest is told to end for a client without a tunnel.

use crate::limits::TUNNEL_SILENCE_MILLISECONDS;
use crate::request::MemberId;
use base::call_shares::{CallShares, ClientPace, SlowCalls, WaitRank, WaitingCall};
use base::client_network::{ClientNetwork, may_take};
use base::network_table::{LargeNetworks, NetworkTable};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

/// Places of all clients at the members of a balancer.
#[derive(Default)]
pub(crate) struct PlaceLedger {
    shares: CallShares,
    by_member: HashMap<MemberId, MemberPlaces>,
    /// Places of all members together; None if a member has no bound.
    places_max: Option<usize>,
    /// Running tunnels and event streams by their numbers, the oldest first.
    tunnels: BTreeMap<u64, RunningTunnel>,
    last_tunnel: u64,
    /// Places promised to waiting requests and not left yet.
    promised: usize,
}

/// Places of one member.
#[derive(Default)]
struct MemberPlaces {
    held: NetworkTable<usize>,
    /// Places of tunnels and event streams.
    tunnels: usize,
    slow: SlowCalls,
}

/// Tunnel or event stream that can be told to end.
struct RunningTunnel {
    client: ClientNetwork,
    member: MemberId,
    state: Arc<TunnelState>,
    waker: Waker,
}

/// State of a running tunnel, shared with its ledger.
struct TunnelState {
    is_told: AtomicBool,
    /// Time of the last byte of either direction.
    moved_ms: AtomicU64,
}

/// Registration of a running tunnel or event stream.
pub(crate) struct TunnelWatch {
    number: u64,
    state: Arc<TunnelState>,
    waker: Waker,
}

/// Place that a request of a client holds.
pub(crate) struct HeldPlace {
    /// The client.
    pub(crate) client: ClientNetwork,
    /// True for a tunnel or an event stream.
    pub(crate) is_tunnel: bool,
    /// Pace of the client, which is fast while the call does not wait for the client.
    pace: ClientPace,
    /// True if the place is promised to a waiting request.
    pub(crate) is_promised: bool,
    watch: Option<TunnelWatch>,
}

/// Use of a member's places.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PlaceUse {
    /// Number of the member.
    pub(crate) member: MemberId,
    /// Requests under way.
    pub(crate) busy: usize,
    /// Largest number of requests under way; `usize::MAX` for no bound.
    pub(crate) busy_max: usize,
    /// Largest number of tunnels and event streams.
    pub(crate) tunnels_max: usize,
}

impl PlaceUse {
    /// Returns the use after the end of one request.
    pub(crate) fn without_one(self) -> PlaceUse {
        let busy = self.busy.saturating_sub(1);
        PlaceUse { busy, ..self }
    }
}

impl HeldPlace {
    /// Returns the place of a request that has just got it.
    pub(crate) fn new(client: ClientNetwork, is_tunnel: bool) -> HeldPlace {
        HeldPlace {
            client,
            is_tunnel,
            pace: ClientPace::Fast,
            is_promised: false,
            watch: None,
        }
    }

    /// Returns true if the tunnel has been told to end. None means that `waker` is not registered.
    pub(crate) fn is_told(&self, waker: &Waker) -> Option<bool> {
        let watch = self.watch.as_ref()?;
        match watch.state.is_told.load(Ordering::Acquire) {
            true => Some(true),
            false => watch.waker.will_wake(waker).then_some(false),
        }
    }

    /// Records that bytes moved over the tunnel.
    pub(crate) fn mark_moved(&self, now_ms: u64) {
        if let Some(watch) = &self.watch {
            watch.state.moved_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Returns true if the place has to be reported at `pace`: the client is slow, or was slow.
    pub(crate) fn is_slow_at(&self, pace: ClientPace) -> bool {
        [self.pace, pace] != [ClientPace::Fast; 2]
    }
}

impl PlaceLedger {
    /// Sets the places of all members together; None if a member has no bound.
    pub(crate) fn set_places(&mut self, places_max: Option<usize>) {
        self.places_max = places_max;
    }

    /// Sets the clock, in monotonic milliseconds.
    pub(crate) fn advance(&mut self, now_ms: u64) {
        self.shares.advance(now_ms);
    }

    /// Returns the number of places of which an eighth is the share of a wide network.
    fn bound(&self) -> usize {
        self.places_max.unwrap_or(self.shares.all().taken)
    }

    /// Returns true if `client` may take a place of the member.
    pub(crate) fn may_take(&self, client: ClientNetwork, place: PlaceUse, is_tunnel: bool) -> bool {
        if place.busy_max == usize::MAX {
            return true;
        }
        let (busy, max) = (place.busy, place.busy_max);
        let is_within_share = match self.by_member.get(&place.member) {
            Some(member) => member.held.may_take(client, |held| *held, busy, 1, max),
            None => may_take(0, busy, max),
        };
        is_within_share
            && !self.shares.is_last_eighth_closed(client, busy, max)
            && !(is_tunnel && self.are_tunnels_full(place))
    }

    /// Returns true if the member has no place for another tunnel.
    pub(crate) fn are_tunnels_full(&self, place: PlaceUse) -> bool {
        let member = self.by_member.get(&place.member);
        member.map_or(0, |member| member.tunnels) >= place.tunnels_max
    }

    /// Returns true if `client` may take a place of any member. The rule protects members with fewer than 4
    /// places, which have no quarter to reserve, as long as the balancer has at least 4 places.
    pub(crate) fn may_take_any(&self, client: ClientNetwork) -> bool {
        let may_take = |max| self.shares.all().taken >= max || self.shares.may_take(client, max);
        self.places_max.is_none_or(may_take)
    }

    /// Returns the places of a client at one member, or at all members, and the places of all members together.
    pub(crate) fn places(
        &self,
        client: ClientNetwork,
        member: Option<MemberId>,
    ) -> (usize, Option<usize>) {
        let held = match member {
            Some(member) => {
                let places = self.by_member.get(&member);
                places.map_or(0, |places| places.held.of(client))
            }
            None => self.shares.of(client).taken,
        };
        (held, self.places_max)
    }

    /// Returns the wide networks with more than their share of the places.
    pub(crate) fn large(&self) -> LargeNetworks {
        self.shares.large(self.bound())
    }

    /// Returns the rank of a client among the clients that wait. `large` is the result of [`PlaceLedger::large`].
    pub(crate) fn rank(&self, client: ClientNetwork, large: &LargeNetworks) -> WaitRank {
        self.shares.rank(client, large)
    }

    /// Records that `client` got a place of the member.
    pub(crate) fn add(&mut self, client: ClientNetwork, member: MemberId, is_tunnel: bool) {
        self.shares.take(client, true);
        let member = self.by_member.entry(member).or_default();
        member.held.change(client, |held| *held += 1);
        if is_tunnel {
            member.tunnels += 1;
            self.shares.count(client, |counts| counts.tunnels += 1);
        }
    }

    /// Records that a client left its place of the member.
    pub(crate) fn remove(&mut self, held: &mut HeldPlace, member: MemberId) {
        let client = held.client;
        self.end_tunnel(held, member);
        self.set_pace(held, member, ClientPace::Fast);
        let Some(places) = self.by_member.get_mut(&member) else {
            return;
        };
        if places.held.of(client) == 0 {
            return;
        }
        places.held.change(client, |held| *held -= 1);
        if places.held.is_empty() {
            self.by_member.remove(&member);
        }
        self.shares.leave(client, true);
    }

    /// Records that a request of `client` waits.
    pub(crate) fn begin_wait(&mut self, client: ClientNetwork) {
        self.shares.count(client, |counts| counts.waiting += 1);
    }

    /// Records that a request of `client` waits no more.
    pub(crate) fn end_wait(&mut self, client: ClientNetwork) {
        self.shares.count(client, |counts| {
            counts.waiting = counts.waiting.saturating_sub(1);
        });
    }

    /// Returns the client that has to leave a full queue in favour of `newcomer`.
    pub(crate) fn loser_to(&self, newcomer: ClientNetwork) -> Option<ClientNetwork> {
        self.shares.loser_to(newcomer)
    }

    /// Records the pace of the client of the place.
    pub(crate) fn set_pace(&mut self, held: &mut HeldPlace, member: MemberId, pace: ClientPace) {
        if let Some(member) = self.by_member.get_mut(&member) {
            let slow = &mut member.slow;
            self.shares
                .set_pace(held.client, slow, &mut held.pace, pace);
        }
    }

    /// Returns true if the client of the place is so slow that the place is due to one of the `waiting` requests.
    pub(crate) fn gives_way(
        &self,
        held: &HeldPlace,
        member: MemberId,
        waiting: impl Iterator<Item = WaitingCall>,
    ) -> bool {
        let yielding = self.shares.yielding(held.client, held.pace, self.bound());
        let member = self.by_member.get(&member);
        member.is_some_and(|member| {
            yielding.gives_way_to_one_of(waiting, self.promised, &member.slow)
        })
    }

    /// Promises the place of a client that is too slow to a waiting request.
    pub(crate) fn promise(&mut self, held: &mut HeldPlace, member: MemberId) {
        self.set_pace(held, member, ClientPace::Fast);
        self.shares.record_slow(held.client);
        held.is_promised = true;
        self.promised += 1;
    }

    /// Clears the promise of a place that was left.
    pub(crate) fn clear_promise(&mut self) {
        self.promised = self.promised.saturating_sub(1);
    }

    /// Counts the place as one of a tunnel. Returns false if the member has no place for another tunnel.
    pub(crate) fn begin_tunnel(&mut self, held: &mut HeldPlace, place: PlaceUse) -> bool {
        if held.is_tunnel {
            return true;
        }
        if self.are_tunnels_full(place) {
            return false;
        }
        if let Some(member) = self.by_member.get_mut(&place.member) {
            member.tunnels += 1;
            held.is_tunnel = true;
            self.shares.count(held.client, |counts| counts.tunnels += 1);
        }
        true
    }

    /// Counts the place no longer as one of a tunnel.
    pub(crate) fn end_tunnel(&mut self, held: &mut HeldPlace, member: MemberId) {
        if std::mem::take(&mut held.is_tunnel)
            && let Some(member) = self.by_member.get_mut(&member)
        {
            member.tunnels = member.tunnels.saturating_sub(1);
            self.shares.count(held.client, |counts| {
                counts.tunnels = counts.tunnels.saturating_sub(1);
            });
        }
        if let Some(watch) = held.watch.take() {
            self.tunnels.remove(&watch.number);
            held.is_promised |= watch.state.is_told.load(Ordering::Acquire);
        }
    }

    /// Registers a running tunnel that began at `since_ms`, or the tunnel's present waker.
    pub(crate) fn watch_tunnel(
        &mut self,
        held: &mut HeldPlace,
        member: MemberId,
        since_ms: u64,
        waker: &Waker,
    ) {
        let known = held.watch.take();
        let (number, state) = match known {
            Some(watch) => (watch.number, watch.state),
            None => {
                self.last_tunnel += 1;
                let state = TunnelState {
                    is_told: AtomicBool::new(false),
                    moved_ms: AtomicU64::new(since_ms),
                };
                (self.last_tunnel, Arc::new(state))
            }
        };
        let tunnel = RunningTunnel {
            client: held.client,
            member,
            state: Arc::clone(&state),
            waker: waker.clone(),
        };
        self.tunnels.insert(number, tunnel);
        held.watch = Some(TunnelWatch {
            number,
            state,
            waker: waker.clone(),
        });
    }

    /// Tells a tunnel to end in favour of a waiting request of `client` that may use the members of `may_use`: the oldest
    /// tunnel of the client with the most places, if the client has more than an equal part. Returns the waker of the
    /// tunnel.
    pub(crate) fn tell_tunnel(
        &mut self,
        client: ClientNetwork,
        may_use: impl Fn(MemberId) -> bool,
    ) -> Option<Waker> {
        if self.promised >= self.shares.all().waiting {
            return None;
        }
        let large = self.large();
        let rank = |tunnel: &RunningTunnel| {
            let taken = self.shares.of(tunnel.client).taken;
            large.rank(tunnel.client, taken, Some(client))
        };
        let is_untold = |tunnel: &RunningTunnel| !tunnel.state.is_told.load(Ordering::Relaxed);
        let useful = self.tunnels.iter().filter(|(_, tunnel)| {
            tunnel.client != client && is_untold(tunnel) && may_use(tunnel.member)
        });
        let (_, largest) =
            useful.max_by_key(|(number, tunnel)| (rank(tunnel), Reverse(**number)))?;
        let pace = ClientPace::SlowForMany(0);
        let yielding = self.shares.yielding(largest.client, pace, self.bound());
        if !yielding.gives_way_to(client) {
            return None;
        }
        largest.state.is_told.store(true, Ordering::Release);
        self.promised += 1;
        Some(largest.waker.clone())
    }

    /// Tells the tunnel at one of `members` to end that has been silent for longest, in favour of a waiting request of
    /// `client` for a tunnel: if the client has no tunnel, and the silence has lasted for
    /// [`TUNNEL_SILENCE_MILLISECONDS`]. Returns the waker of the tunnel.
    pub(crate) fn tell_silent_tunnel(
        &mut self,
        client: ClientNetwork,
        members: &[MemberId],
        now_ms: u64,
    ) -> Option<Waker> {
        if self.promised > 0 {
            return None;
        }
        let moved_ms = |tunnel: &&RunningTunnel| tunnel.state.moved_ms.load(Ordering::Relaxed);
        let tunnels = self.tunnels.values();
        let useful = tunnels.filter(|tunnel| members.contains(&tunnel.member));
        let silent = useful.min_by_key(moved_ms)?;
        if now_ms.saturating_sub(moved_ms(&silent)) < TUNNEL_SILENCE_MILLISECONDS
            || !self.shares.has_no_tunnel(client, silent.client)
        {
            return None;
        }
        silent.state.is_told.store(true, Ordering::Release);
        self.promised += 1;
        Some(silent.waker.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
            tunnels_max: busy_max / 2,
        }
    }

    #[test]
    fn a_client_gets_three_quarters_of_the_places_of_a_member() {
        let mut ledger = PlaceLedger::default();
        for busy in 0..6 {
            assert!(ledger.may_take(client(1), place(A, busy, 8), false));
            ledger.add(client(1), A, false);
        }
        assert!(!ledger.may_take(client(1), place(A, 6, 8), false));
        assert!(ledger.may_take(client(1), place(B, 0, 8), false));
        assert!(ledger.may_take(client(2), place(A, 6, 8), false));
        ledger.add(client(2), A, false);
        assert!(!ledger.may_take(client(2), place(A, 7, 8), false));
        assert!(ledger.may_take(client(3), place(A, 7, 8), false));
        ledger.remove(&mut HeldPlace::new(client(2), false), A);
        ledger.remove(&mut HeldPlace::new(client(1), false), A);
        assert!(ledger.may_take(client(1), place(A, 5, 8), false));
    }

    #[test]
    fn members_with_few_places_share_one_reserve() {
        let mut ledger = PlaceLedger::default();
        ledger.set_places(Some(4));
        for member in [1, 2, 3].map(MemberId) {
            assert!(ledger.may_take_any(client(1)));
            ledger.add(client(1), member, false);
        }
        assert!(!ledger.may_take_any(client(1)));
        assert!(ledger.may_take_any(client(2)));
        ledger.set_places(None);
        assert!(ledger.may_take_any(client(1)));
    }

    #[test]
    fn the_client_with_the_fewest_places_goes_first() {
        let mut ledger = PlaceLedger::default();
        ledger.add(client(1), A, false);
        ledger.add(client(1), B, false);
        ledger.add(client(2), A, false);
        let large = ledger.large();
        assert!(ledger.rank(client(2), &large) < ledger.rank(client(1), &large));
        ledger.remove(&mut HeldPlace::new(client(1), false), A);
        assert!(
            ledger.rank(client(1), &large) < ledger.rank(client(2), &large),
            "served longer ago"
        );
        assert_eq!(ledger.rank(client(3), &large), WaitRank::FIRST);
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
        assert_eq!(ledger.shares.clients(), 0);
    }

    /// Runs tunnels of the clients, and returns their places in order.
    fn tunnels(ledger: &mut PlaceLedger, clients: &[u8]) -> Vec<HeldPlace> {
        let begin = |last: &u8| {
            ledger.add(client(*last), A, true);
            let mut held = HeldPlace::new(client(*last), true);
            ledger.watch_tunnel(&mut held, A, 0, Waker::noop());
            held
        };
        clients.iter().map(begin).collect()
    }

    fn told(tunnels: &[HeldPlace]) -> Vec<bool> {
        let watches = tunnels.iter().filter_map(|held| held.watch.as_ref());
        let told = watches.map(|watch| watch.state.is_told.load(Ordering::Acquire));
        told.collect()
    }

    #[test]
    fn the_oldest_tunnel_of_the_largest_client_is_told_to_end() {
        let mut ledger = PlaceLedger::default();
        ledger.set_places(Some(16));
        let mut running = tunnels(&mut ledger, &[1, 2, 3, 3, 3]);
        ledger.begin_wait(client(9));
        assert!(
            ledger
                .tell_tunnel(client(9), |member| member == B)
                .is_none()
        );
        assert!(ledger.tell_tunnel(client(9), |_| true).is_some());
        assert_eq!(told(&running), [false, false, true, false, false]);
        // One place is promised for each waiting request.
        assert!(ledger.tell_tunnel(client(9), |_| true).is_none());
        let mut gone = running.remove(2);
        ledger.remove(&mut gone, A);
        assert!(gone.is_promised);
        ledger.clear_promise();
        assert_eq!(ledger.by_member[&A].tunnels, 4);
        for mut held in running {
            ledger.remove(&mut held, A);
        }
        ledger.end_wait(client(9));
        assert!(ledger.by_member.is_empty() && ledger.tunnels.is_empty());
        assert_eq!((ledger.shares.clients(), ledger.promised), (0, 0));
    }

    #[test]
    fn tunnels_of_many_visitors_stay() {
        let mut ledger = PlaceLedger::default();
        ledger.set_places(Some(16));
        let running = tunnels(&mut ledger, &[1, 2, 3, 4, 5, 6, 7, 8]);
        ledger.begin_wait(client(9));
        assert!(ledger.tell_tunnel(client(9), |_| true).is_none());
        assert_eq!(told(&running), [false; 8]);
        // No place is left for a further tunnel, and one for a request.
        let place = place(A, 8, 16);
        assert!(ledger.are_tunnels_full(place) && !ledger.may_take(client(9), place, true));
        assert!(ledger.may_take(client(9), place, false));
        let mut request = HeldPlace::new(client(9), false);
        ledger.add(client(9), A, false);
        assert!(!ledger.begin_tunnel(&mut request, place));
    }

    #[test]
    fn a_slow_client_gives_a_promised_place_to_one_waiting_request() {
        let mut ledger = PlaceLedger::default();
        ledger.set_places(Some(8));
        let mut held: Vec<HeldPlace> = (0..6).map(|_| HeldPlace::new(client(1), false)).collect();
        held.iter()
            .for_each(|held| ledger.add(held.client, A, false));
        ledger.begin_wait(client(2));
        let mut promise = |nth: usize, pace| {
            let waiting = WaitingCall {
                client: client(2),
                waited: Duration::ZERO,
            };
            ledger.set_pace(&mut held[nth], A, pace);
            let gives_way = ledger.gives_way(&held[nth], A, std::iter::once(waiting));
            if gives_way {
                ledger.promise(&mut held[nth], A);
            }
            gives_way
        };
        assert!(!promise(0, ClientPace::Fast));
        assert!(promise(1, ClientPace::SlowForMany(20)));
        assert!(!promise(2, ClientPace::Slow), "one waiting request");
    }
}
