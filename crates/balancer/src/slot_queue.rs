//! Queue of requests that wait for a member with `connections_max` requests under way, shared by the
//! members of a balancer.
//!
//! A request that ends hands its slot to a waiting request that may use the member. The slot is never free in
//! between, and a new request cannot overtake a waiting request of a client with as few slots. The request of
//! the client with the fewest slots goes first, and between clients with equally many the client served
//! longest ago. A full queue drops the newest request of the client with the most waiting requests, if the
//! newcomer's client has fewer.

use crate::place_ledger::{HeldPlace, PlaceLedger, PlaceUse};
use crate::request::MemberId;
use base::call_shares::{ClientPace, WaitRank, WaitingCall};
use base::client_network::ClientNetwork;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Queue of waiting requests. `T` stands for the slot of a member that a request gets.
pub(crate) struct SlotQueue<T> {
    /// Number of waiting requests without an outcome.
    waiting: AtomicUsize,
    state: Mutex<QueueState<T>>,
}

struct QueueState<T> {
    entries: VecDeque<QueueEntry<T>>,
    last_number: u64,
    places: PlaceLedger,
}

struct QueueEntry<T> {
    number: u64,
    client: ClientNetwork,
    /// Member that the request needs; None for any member.
    session_member: Option<MemberId>,
    /// Members that the request must not use.
    tried: Box<[MemberId]>,
    /// True if the request needs the place of a tunnel.
    is_tunnel: bool,
    /// Time at which the request began to wait.
    since_ms: u64,
    waker: Option<Waker>,
    /// Outcome that the request has not taken yet.
    outcome: Option<WaitOutcome<T>>,
}

/// Request that joins the queue.
pub(crate) struct WaitingRequest<'a> {
    /// Client of the request.
    pub(crate) client: ClientNetwork,
    /// Member that the request needs; None for any member.
    pub(crate) session_member: Option<MemberId>,
    /// Members that the request must not use.
    pub(crate) tried: &'a [MemberId],
    /// True for a tunnel or an event stream.
    pub(crate) is_tunnel: bool,
    /// Time at which the request begins to wait.
    pub(crate) since_ms: u64,
}

/// Number of a waiting request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct WaitNumber(u64);

/// Outcome of waiting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome<T> {
    /// The slot of a member.
    Slot(T),
    /// The members changed, and the request has to choose again.
    ChooseAgain,
    /// The queue is full, and the request made room for a request of another client.
    Dropped,
}

impl<T> Default for SlotQueue<T> {
    fn default() -> SlotQueue<T> {
        SlotQueue {
            waiting: AtomicUsize::new(0),
            state: Mutex::new(QueueState {
                entries: VecDeque::new(),
                last_number: 0,
                places: PlaceLedger::default(),
            }),
        }
    }
}

impl<T> SlotQueue<T> {
    /// Returns the number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns true if a request waits.
    pub(crate) fn has_waiting(&self) -> bool {
        // With the order of `SeqCst`, either a request that ends sees the new entry, or the new entry's
        // second choice sees the free slot.
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Sets the places of all members together; None if a member has no bound.
    pub(crate) fn set_places(&self, places_max: Option<usize>) {
        self.lock().places.set_places(places_max);
    }

    /// Returns true if `client` may take a place of the member.
    pub(crate) fn may_take(&self, client: ClientNetwork, place: PlaceUse, is_tunnel: bool) -> bool {
        self.lock().places.may_take(client, place, is_tunnel)
    }

    /// Returns true if `client` may take a place of any member.
    pub(crate) fn may_take_any(&self, client: ClientNetwork) -> bool {
        self.lock().places.may_take_any(client)
    }

    /// Returns the places of a client at one member, or at all members, and the places of all members together.
    pub(crate) fn places(
        &self,
        client: ClientNetwork,
        member: Option<MemberId>,
    ) -> (usize, Option<usize>) {
        self.lock().places.places(client, member)
    }

    /// Records that `client` got a place of the member, if `enter` returns true. A tunnel needs one of the places of
    /// tunnels.
    pub(crate) fn take(
        &self,
        client: ClientNetwork,
        place: PlaceUse,
        is_tunnel: bool,
        now_ms: u64,
        enter: impl FnOnce() -> bool,
    ) -> bool {
        let mut state = self.lock();
        state.places.advance(now_ms);
        let is_full = is_tunnel && state.places.are_tunnels_full(place);
        let is_taken = !is_full && enter();
        if is_taken {
            state.places.add(client, place.member, is_tunnel);
        }
        is_taken
    }

    /// Records that a client left its place of the member.
    pub(crate) fn give_back(&self, held: &mut HeldPlace, member: MemberId) {
        self.lock().places.remove(held, member);
    }

    /// Clears the promise of a place that was left.
    pub(crate) fn clear_promise(&self) {
        self.lock().places.clear_promise();
    }

    /// Records the pace of the client of a place.
    pub(crate) fn set_pace(&self, held: &mut HeldPlace, member: MemberId, pace: ClientPace) {
        if !held.is_promised && held.is_slow_at(pace) {
            self.lock().places.set_pace(held, member, pace);
        }
    }

    /// Promises a place to a waiting request if the client of the place is too slow. Returns true if the place is
    /// promised.
    pub(crate) fn promises(&self, held: &mut HeldPlace, place: PlaceUse, now_ms: u64) -> bool {
        let state = &mut *self.lock();
        state.places.advance(now_ms);
        let entries = state.entries.iter();
        let places = &state.places;
        let left = place.without_one();
        let waiting = entries.filter(|entry| {
            entry.may_use(place.member)
                && entry.is_waiting()
                && places.may_take(entry.client, left, entry.is_tunnel)
        });
        let calls = waiting.map(|entry| entry.call(now_ms));
        let gives_way = places.gives_way(held, place.member, calls);
        if gives_way {
            state.places.promise(held, place.member);
        }
        gives_way
    }

    /// Counts a place as one of a tunnel. Returns false if the member has no place for another tunnel.
    pub(crate) fn begin_tunnel(&self, held: &mut HeldPlace, place: PlaceUse) -> bool {
        self.lock().places.begin_tunnel(held, place)
    }

    /// Counts a place no longer as one of a tunnel.
    pub(crate) fn end_tunnel(&self, held: &mut HeldPlace, member: MemberId) {
        self.lock().places.end_tunnel(held, member);
    }

    /// Returns true if a running tunnel that began at `since_ms` has been told to end in favour of a waiting request.
    /// Otherwise `waker` is woken when the tunnel is told.
    pub(crate) fn is_tunnel_told(
        &self,
        held: &mut HeldPlace,
        member: MemberId,
        since_ms: u64,
        waker: &Waker,
    ) -> bool {
        if let Some(is_told) = held.is_told(waker) {
            return is_told;
        }
        let mut guard = self.lock();
        let state = &mut *guard;
        state.places.watch_tunnel(held, member, since_ms, waker);
        // A request may have waited before the tunnel could be told.
        let entries = state.entries.iter().filter(|entry| entry.is_waiting());
        let mut told = Vec::new();
        for entry in entries {
            told.extend(
                state
                    .places
                    .tell_tunnel(entry.client, |it| entry.may_use(it)),
            );
        }
        drop(guard);
        told.into_iter().for_each(Waker::wake);
        held.is_told(waker).unwrap_or(false)
    }

    /// Tells a silent tunnel at one of the `usable` members to end, in favour of a request that has waited for a place of
    /// tunnels.
    pub(crate) fn claim_tunnel(&self, number: WaitNumber, usable: &[PlaceUse], now_ms: u64) {
        let mut state = self.lock();
        let Some(at) = state.position(number) else {
            return;
        };
        let (entry, places) = (&state.entries[at], &state.places);
        if !(entry.is_waiting() && entry.is_tunnel && entry.call(now_ms).has_waited()) {
            return;
        }
        let client = entry.client;
        let is_useful = |place: &&PlaceUse| {
            entry.may_use(place.member)
                && places.are_tunnels_full(**place)
                && places.may_take(client, place.without_one(), false)
        };
        let useful = usable.iter().filter(is_useful);
        let members: Vec<MemberId> = useful.map(|place| place.member).collect();
        let told = state.places.tell_silent_tunnel(client, &members, now_ms);
        drop(state);
        told.into_iter().for_each(Waker::wake);
    }

    /// Adds a request to a queue of at most `queue_max` requests. None means that the queue is full. A tunnel at one of the
    /// members in `usable` may be told to end in favour of the request.
    pub(crate) fn join(
        &self,
        request: &WaitingRequest<'_>,
        queue_max: usize,
        usable: &[PlaceUse],
    ) -> Option<WaitNumber> {
        let client = request.client;
        let mut guard = self.lock();
        let state = &mut *guard;
        state.places.advance(request.since_ms);
        let mut dropped = None;
        if self.waiting.load(Ordering::SeqCst) >= queue_max {
            dropped = Some(self.drop_for(client, state)?);
        }
        state.last_number += 1;
        let number = state.last_number;
        let entry = QueueEntry {
            number,
            client,
            session_member: request.session_member,
            tried: request.tried.into(),
            is_tunnel: request.is_tunnel,
            since_ms: request.since_ms,
            waker: None,
            outcome: None,
        };
        state.places.begin_wait(client);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let is_usable = |member| usable.iter().any(|place| place.member == member);
        let may_use = |member| entry.may_use(member) && is_usable(member);
        let told = state.places.tell_tunnel(client, may_use);
        state.entries.push_back(entry);
        drop(guard);
        let wakers = dropped.flatten().into_iter().chain(told);
        wakers.for_each(Waker::wake);
        Some(WaitNumber(number))
    }

    /// Drops a waiting request in favour of a request of `newcomer`, and returns its waker. None means that
    /// no client has more waiting requests.
    fn drop_for(
        &self,
        newcomer: ClientNetwork,
        state: &mut QueueState<T>,
    ) -> Option<Option<Waker>> {
        let loser = state.places.loser_to(newcomer)?;
        let is_loser = |entry: &QueueEntry<T>| entry.is_waiting() && entry.client == loser;
        let newest = state.entries.iter().rposition(is_loser)?;
        Some(self.settle(state, newest, WaitOutcome::Dropped))
    }

    /// Ends the wait of the request at the position, and returns the request's waker.
    fn settle(
        &self,
        state: &mut QueueState<T>,
        at: usize,
        outcome: WaitOutcome<T>,
    ) -> Option<Waker> {
        let entry = &mut state.entries[at];
        entry.outcome = Some(outcome);
        let waker = entry.waker.take();
        let client = entry.client;
        state.places.end_wait(client);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        waker
    }

    /// Takes the outcome of a waiting request, which thereby leaves the queue, or registers the waker.
    pub(crate) fn poll(&self, number: WaitNumber, cx: &Context<'_>) -> Poll<WaitOutcome<T>> {
        let mut state = self.lock();
        let Some(at) = state.position(number) else {
            return Poll::Ready(WaitOutcome::ChooseAgain);
        };
        let entry = &mut state.entries[at];
        match entry.outcome.take() {
            Some(outcome) => {
                state.entries.remove(at);
                Poll::Ready(outcome)
            }
            None => {
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Removes a request. Returns an outcome that the request did not take.
    pub(crate) fn leave(&self, number: WaitNumber) -> Option<WaitOutcome<T>> {
        let mut state = self.lock();
        let at = state.position(number)?;
        let entry = state.entries.remove(at)?;
        if entry.outcome.is_none() {
            state.places.end_wait(entry.client);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        entry.outcome
    }

    /// Gives the result of `take_slot` to the request that is first in turn among the requests that may use
    /// the member. `take_slot` is called only for such a request, and may return None if the slot is gone.
    /// Returns true if a request got the slot.
    pub(crate) fn offer(&self, place: PlaceUse, take_slot: impl FnOnce() -> Option<T>) -> bool {
        let mut state = self.lock();
        let Some(at) = state.first_in_turn(place) else {
            return false;
        };
        let Some(slot) = take_slot() else {
            return false;
        };
        let QueueEntry {
            client, is_tunnel, ..
        } = state.entries[at];
        state.places.add(client, place.member, is_tunnel);
        let waker = self.settle(&mut state, at, WaitOutcome::Slot(slot));
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Tells the first request that may use `member` to choose again.
    pub(crate) fn wake_first(&self, member: MemberId) {
        let mut state = self.lock();
        let may_use = |entry: &QueueEntry<T>| entry.is_waiting() && entry.may_use(member);
        let Some(at) = state.entries.iter().position(may_use) else {
            return;
        };
        let waker = self.settle(&mut state, at, WaitOutcome::ChooseAgain);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Tells all requests to choose again, after a change of the members.
    pub(crate) fn wake_all(&self) {
        if !self.has_waiting() {
            return;
        }
        let mut state = self.lock();
        let mut wakers = Vec::new();
        for at in 0..state.entries.len() {
            if state.entries[at].is_waiting() {
                wakers.extend(self.settle(&mut state, at, WaitOutcome::ChooseAgain));
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueState<T> {
    /// Returns the position of a request. The numbers of the entries rise.
    fn position(&self, number: WaitNumber) -> Option<usize> {
        let found = self.entries.binary_search_by_key(&number.0, |it| it.number);
        found.ok()
    }

    /// Returns the position of the request that gets a free place of the member: the oldest request of the
    /// client with the lowest rank.
    fn first_in_turn(&self, place: PlaceUse) -> Option<usize> {
        let large = self.places.large();
        let mut best: Option<(usize, WaitRank)> = None;
        let mut last = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if !entry.is_waiting() || !entry.may_use(place.member) {
                continue;
            }
            // An optimization: the requests of a client are often adjacent, and only the oldest matters.
            let key = (
                entry.client,
                entry.session_member.is_some(),
                entry.is_tunnel,
            );
            if last.replace(key) == Some(key) {
                continue;
            }
            let rank = self.places.rank(entry.client, &large);
            let is_better = best.is_none_or(|(_, least)| rank < least);
            if is_better && self.may_take(entry, place) {
                best = Some((at, rank));
            }
            if best.is_some_and(|(_, least)| least == WaitRank::FIRST) {
                break;
            }
        }
        best.map(|(at, _)| at)
    }

    /// Returns true if the shares allow the client of a waiting request a place of the member.
    fn may_take(&self, entry: &QueueEntry<T>, place: PlaceUse) -> bool {
        let places = &self.places;
        places.may_take(entry.client, place, entry.is_tunnel)
            && (entry.session_member.is_some() || places.may_take_any(entry.client))
    }
}

impl<T> QueueEntry<T> {
    fn call(&self, now_ms: u64) -> WaitingCall {
        WaitingCall {
            client: self.client,
            waited: Duration::from_millis(now_ms.saturating_sub(self.since_ms)),
        }
    }

    fn is_waiting(&self) -> bool {
        self.outcome.is_none()
    }

    fn may_use(&self, member: MemberId) -> bool {
        self.session_member.is_none_or(|only| only == member) && !self.tried.contains(&member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_waker::CountingWaker;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);

    fn client(last: u8) -> ClientNetwork {
        std::net::IpAddr::from([192, 0, 2, last]).into()
    }

    fn join<T>(
        queue: &SlotQueue<T>,
        session_member: Option<MemberId>,
        tried: &[MemberId],
        queue_max: usize,
    ) -> Option<WaitNumber> {
        let request = WaitingRequest {
            client: client(1),
            session_member,
            tried,
            is_tunnel: false,
            since_ms: 0,
        };
        queue.join(&request, queue_max, &[])
    }

    fn free(member: MemberId) -> PlaceUse {
        PlaceUse {
            member,
            busy: 0,
            busy_max: 9,
            tunnels_max: 4,
        }
    }

    #[test]
    fn slots_go_to_the_first_request_that_may_use_the_member() {
        let queue = SlotQueue::default();
        let only_b = join(&queue, Some(B), &[], 9).unwrap();
        let not_a = join(&queue, None, &[A], 9).unwrap();
        let any = join(&queue, None, &[], 9).unwrap();
        assert!(queue.offer(free(A), || Some("a")));
        assert!(queue.offer(free(B), || Some("b")));
        assert!(!queue.offer(free(A), || Some("a")));
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(queue.poll(any, &cx), Poll::Ready(WaitOutcome::Slot("a")));
        assert_eq!(queue.poll(only_b, &cx), Poll::Ready(WaitOutcome::Slot("b")));
        assert_eq!(queue.poll(not_a, &cx), Poll::Pending);
        assert!(queue.has_waiting());
        assert_eq!(queue.leave(not_a), None);
        assert!(!queue.has_waiting());
    }

    #[test]
    fn the_queue_is_bounded() {
        let queue: SlotQueue<()> = SlotQueue::default();
        assert!(join(&queue, None, &[], 0).is_none());
        let first = join(&queue, None, &[], 2).unwrap();
        assert!(join(&queue, None, &[], 2).is_some());
        assert!(join(&queue, None, &[], 2).is_none());
        queue.leave(first);
        assert!(join(&queue, None, &[], 2).is_some());
    }

    #[test]
    fn a_request_that_leaves_returns_its_slot() {
        let queue = SlotQueue::default();
        let number = join(&queue, None, &[], 9).unwrap();
        assert!(queue.offer(free(A), || Some(7)));
        assert_eq!(queue.leave(number), Some(WaitOutcome::Slot(7)));
        assert_eq!(queue.leave(number), None);
    }

    #[test]
    fn a_slot_that_is_gone_changes_nothing() {
        let queue: SlotQueue<()> = SlotQueue::default();
        join(&queue, None, &[], 9).unwrap();
        assert!(!queue.offer(free(A), || None));
        assert!(queue.has_waiting());
    }

    #[test]
    fn a_change_of_the_members_wakes_all_requests() {
        let queue: SlotQueue<()> = SlotQueue::default();
        let wakers = [CountingWaker::default(), CountingWaker::default()];
        let numbers: Vec<WaitNumber> = wakers
            .iter()
            .map(|counting| {
                let number = join(&queue, Some(B), &[], 9).unwrap();
                let waker = counting.waker();
                assert!(
                    queue
                        .poll(number, &Context::from_waker(&waker))
                        .is_pending()
                );
                number
            })
            .collect();
        queue.wake_first(A);
        queue.wake_first(B);
        assert_eq!((wakers[0].count(), wakers[1].count()), (1, 0));
        queue.wake_all();
        assert_eq!((wakers[0].count(), wakers[1].count()), (1, 1));
        for number in numbers {
            let cx = Context::from_waker(Waker::noop());
            assert_eq!(
                queue.poll(number, &cx),
                Poll::Ready(WaitOutcome::ChooseAgain)
            );
        }
    }
}
