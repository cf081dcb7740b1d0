//! Admission control for calls: limits the number of concurrent calls, so that a flood of requests doesn't
//! become a flood of processes or backend connections. A short queue holds calls that wait for a place. All
//! workers share the state.
//!
//! Clients share the places and the queue fairly. A client alone may use all places and the whole queue.
//! When another client has to wait:
//! - a free place goes to the waiting client with the fewest places. Between clients with equally many, the
//!   client served longest ago goes first, with its oldest call;
//! - a full queue makes room by refusing the newest call of the client with the most calls in the queue;
//! - a call ends if its client takes the response too slowly, beginning with the client that holds the most
//!   places. The waiting client must hold no place, or at least 2 places fewer than the slow client
//!   ([`CallSlot::yield_to_other_clients`]);
//! - for a minute after a client had to wait, the last quarter of the places is reserved for clients with
//!   few places ([`may_take`]).

use crate::base::fair_share::{ClientNetwork, RefusalCounters, SharedLimit, may_take};
use crate::limits::{
    CALL_END_PAUSE_MILLISECONDS, CALL_SHARE_SECONDS, CALL_UNANSWERED_MILLISECONDS,
};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Place of a running call. Dropping the slot frees the place.
pub struct CallSlot {
    slots: Arc<AdmissionControl>,
    client: ClientNetwork,
    /// Number that identifies the place.
    id: u64,
    has_begun: bool,
    is_slow: bool,
    /// The place is promised to a waiting call.
    is_leaving: bool,
}

/// Reason why a call gets no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionRefused {
    /// No place is free, and the queue is full or the wait took too long.
    Full,
    /// The client has used up its share, and the remaining places are reserved for other clients.
    ShareTaken,
}

/// Moment from which a call with a place counts as served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkStart {
    /// Immediately, for calls that start a program.
    AtOnce,
    /// With the beginning of the backend's response. Until the response begins, the call may wait in a
    /// queue of the backend.
    WithAnswer,
}

/// Class of the rate at which a client takes the response of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClientPace {
    /// Fast enough, or the call doesn't wait for the client.
    Fast,
    /// Too slow for a client over its share of the places.
    SlowForMany,
    /// Too slow for any client.
    Slow,
}

/// Places for calls, with the queue of waiting calls.
pub struct AdmissionControl {
    begins: WorkStart,
    /// Kind of limit under which refusals are counted.
    share: SharedLimit,
    refusals: Arc<RefusalCounters>,
    state: Mutex<AdmissionState>,
}

impl AdmissionControl {
    /// Makes `max` places, at least one. Refusals are counted as `share` in `refusals`.
    pub fn new(
        max: usize,
        begins: WorkStart,
        share: SharedLimit,
        refusals: &Arc<RefusalCounters>,
    ) -> AdmissionControl {
        AdmissionControl {
            begins,
            share,
            refusals: Arc::clone(refusals),
            state: Mutex::new(AdmissionState::new(max.max(1))),
        }
    }

    /// Sets the full number of places to `max`. Running calls keep their places.
    pub fn resize(&self, max: usize) {
        let mut state = self.lock();
        state.full = max.max(1);
        self.set(&mut state, max);
    }

    /// Limits the number of places temporarily to `max`, at least one and at most the full number.
    pub fn set_for_now(&self, max: usize) {
        self.set(&mut self.lock(), max);
    }

    /// Ends a temporary limit.
    pub fn widen(&self) {
        self.set(&mut self.lock(), usize::MAX);
    }

    /// Raises a temporary limit by `more` places, up to the full number.
    pub fn add(&self, more: usize) {
        let mut state = self.lock();
        let max = state.max.saturating_add(more);
        self.set(&mut state, max);
    }

    fn set(&self, state: &mut AdmissionState, max: usize) {
        state.max = max.clamp(1, state.full);
        self.hand_out(state, Instant::now());
    }

    /// Returns the number of places withheld by a temporary limit.
    pub fn missing(&self) -> usize {
        let state = self.lock();
        state.full - state.max
    }

    /// Returns the number of places in use.
    pub fn taken(&self) -> usize {
        self.lock().all.taken
    }

    /// Returns true if a call waits for a place.
    pub fn has_queued(&self) -> bool {
        self.lock().all.waiting > 0
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a call of `client`. Waits for at most `patience` in a queue of at most `queue_max`
    /// calls. Places withheld by a temporary limit extend the queue.
    pub fn enter(
        self: &Arc<Self>,
        client: ClientNetwork,
        queue_max: usize,
        patience: Duration,
    ) -> impl Future<Output = Result<CallSlot, AdmissionRefused>> + use<> {
        let slots = Arc::clone(self);
        async move {
            let mut waiting = match slots.begin(client, queue_max)? {
                SlotOrQueue::Place(slot) => return Ok(slot),
                SlotOrQueue::Queue(waiting) => waiting,
            };
            let until = Instant::now() + patience;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                match timeout(left.min(LOOK), &mut waiting.told).await {
                    Ok(Ok(Ok(()))) => return Ok(waiting.into_slot()),
                    Ok(Ok(Err(busy))) => return Err(busy),
                    Ok(Err(_)) => return Err(AdmissionRefused::Full),
                    Err(_) if left <= LOOK => return Err(waiting.late()),
                    // The reservation of the last places may have expired.
                    Err(_) => slots.hand_out(&mut slots.lock(), Instant::now()),
                }
            }
        }
    }

    fn begin(
        self: &Arc<Self>,
        client: ClientNetwork,
        queue_max: usize,
    ) -> Result<SlotOrQueue, AdmissionRefused> {
        let now = Instant::now();
        let mut state = self.lock();
        self.hand_out(&mut state, now);
        state.note_contention(client, now);
        let id = state.number();
        if state.all.taken < state.max && state.may_take(client, now) {
            state.take(client, id, self.begins, now);
            return Ok(SlotOrQueue::Place(self.slot(client, id)));
        }
        match state.make_room(client, queue_max) {
            QueueRoom::Free => {}
            QueueRoom::Given => self.refusals.increment(self.share),
            QueueRoom::None(busy) => {
                if busy == AdmissionRefused::ShareTaken {
                    self.refusals.increment(self.share);
                }
                return Err(busy);
            }
        }
        let (tell, told) = oneshot::channel();
        state.queue.push_back(QueueEntry { id, client, tell });
        state.count(client, |counts| counts.waiting += 1);
        Ok(SlotOrQueue::Queue(QueueGuard {
            slots: Arc::clone(self),
            client,
            id,
            told,
            is_over: false,
        }))
    }

    fn slot(self: &Arc<Self>, client: ClientNetwork, id: u64) -> CallSlot {
        CallSlot {
            slots: Arc::clone(self),
            client,
            id,
            has_begun: self.begins == WorkStart::AtOnce,
            is_slow: false,
            is_leaving: false,
        }
    }

    /// Gives free places to waiting calls.
    fn hand_out(&self, state: &mut AdmissionState, now: Instant) {
        while state.all.taken < state.max
            && let Some(waiter) = state.next(now)
        {
            state.take(waiter.client, waiter.id, self.begins, now);
            // If the receiver is gone, the call's queue guard frees the place.
            let _ = waiter.tell.send(Ok(()));
        }
    }
}

/// Interval at which a waiting call checks for places with an expired reservation.
const LOOK: Duration = Duration::from_secs(1);

/// A place, or a position in the queue.
enum SlotOrQueue {
    Place(CallSlot),
    Queue(QueueGuard),
}

/// A call in the queue. Dropping the guard leaves the queue.
struct QueueGuard {
    slots: Arc<AdmissionControl>,
    client: ClientNetwork,
    id: u64,
    told: oneshot::Receiver<Result<(), AdmissionRefused>>,
    is_over: bool,
}

impl QueueGuard {
    /// Converts the guard into the slot, once the call has received a place.
    fn into_slot(mut self) -> CallSlot {
        self.is_over = true;
        self.slots.slot(self.client, self.id)
    }

    /// Returns the reason after `patience` has passed. A place still free at the timeout is reserved for
    /// other clients.
    fn late(self) -> AdmissionRefused {
        let state = self.slots.lock();
        let is_kept = state.all.taken < state.max;
        drop(state);
        if !is_kept {
            return AdmissionRefused::Full;
        }
        self.slots.refusals.increment(self.slots.share);
        AdmissionRefused::ShareTaken
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.slots.lock();
        if let Some(at) = state.queue.iter().position(|it| it.id == self.id) {
            state.queue.remove(at);
            state.count(self.client, |counts| counts.waiting -= 1);
        } else if self.told.try_recv() == Ok(Ok(())) {
            // The call received a place but was dropped before reading the message.
            let has_begun = self.slots.begins == WorkStart::AtOnce;
            state.give_back(self.client, self.id, has_begun);
            self.slots.hand_out(&mut state, Instant::now());
        }
    }
}

impl CallSlot {
    /// Records the beginning of the backend's response.
    pub fn begins(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.slots.lock().begins(self.client, self.id);
        }
    }

    /// Promises the place to a waiting call of any client, unless enough places are promised already.
    /// Returns true if the place is promised. No place is promised while ending the temporary limit would
    /// serve all waiting calls.
    pub fn give_way(&mut self) -> bool {
        if !self.is_leaving {
            let mut state = self.slots.lock();
            self.is_leaving = !state.would_do() && state.leaving < state.all.waiting;
            state.leaving += usize::from(self.is_leaving);
        }
        self.is_leaving
    }

    /// Promises the place to a call of another client if the slot's client takes the response at a slow
    /// `pace`. Returns true if the place is promised.
    ///
    /// A client over its share of the places has to take responses faster than a client within the share,
    /// and the client with the most places loses a place first.
    pub fn yield_to_other_clients(&mut self, pace: ClientPace) -> bool {
        let is_slow = pace > ClientPace::Fast;
        if self.is_leaving || !(is_slow || self.is_slow) {
            return self.is_leaving;
        }
        let mut state = self.slots.lock();
        if std::mem::replace(&mut self.is_slow, is_slow) != is_slow {
            state.count(self.client, |counts| match is_slow {
                true => counts.slow += 1,
                false => counts.slow -= 1,
            });
        }
        let now = Instant::now();
        if state.is_to_leave(self.client, pace, now) {
            self.is_leaving = true;
            state.leaving += 1;
            state.ended_at = Some(now);
            self.slots.refusals.increment(self.slots.share);
        }
        self.is_leaving
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        if self.is_slow {
            state.count(self.client, |counts| counts.slow -= 1);
        }
        state.give_back(self.client, self.id, self.has_begun);
        // The waiting call receives the place before the promise is cleared, so no second place is promised
        // to the call.
        self.slots.hand_out(&mut state, Instant::now());
        state.leaving -= usize::from(self.is_leaving);
    }
}

/// State of the places and the queue.
struct AdmissionState {
    /// Full number of places.
    full: usize,
    /// Number of places under the temporary limit. More calls may be running: a surplus place disappears
    /// when freed.
    max: usize,
    /// Counts of all clients together.
    all: CallCounts,
    /// Counts of each client that has a place or waits for a place.
    clients: HashMap<ClientNetwork, CallCounts>,
    /// Waiting calls in order of arrival.
    queue: VecDeque<QueueEntry>,
    /// Calls sent to a backend that hasn't begun to respond.
    silent: Vec<UnansweredCall>,
    /// Number of promised places not yet freed.
    leaving: usize,
    /// End of the period in which the last places are reserved for clients with few places.
    contended_until: Option<Instant>,
    /// Time at which a slow call was last told to end.
    ended_at: Option<Instant>,
    numbers: u64,
}

/// Numbers of calls, of one client or of all clients.
#[derive(Clone, Copy, Default)]
struct CallCounts {
    /// Calls with a place.
    taken: usize,
    /// Calls waiting for a place.
    waiting: usize,
    /// Calls with a place that count as served ([`WorkStart`]).
    begun: usize,
    /// Calls with a client that takes the response too slowly.
    slow: usize,
    /// Sequence number of the client's latest place. Numbers grow with each place given to any client.
    last_place: u64,
}

impl CallCounts {
    fn is_none(self) -> bool {
        self.taken + self.waiting + self.begun + self.slow == 0
    }
}

/// A call waiting for a place.
struct QueueEntry {
    id: u64,
    client: ClientNetwork,
    tell: oneshot::Sender<Result<(), AdmissionRefused>>,
}

/// A call sent to a backend that hasn't begun to respond.
struct UnansweredCall {
    id: u64,
    client: ClientNetwork,
    since: Instant,
}

/// Result of making room in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueRoom {
    Free,
    /// A call of another client was refused to make room.
    Given,
    None(AdmissionRefused),
}

impl AdmissionState {
    fn new(max: usize) -> AdmissionState {
        AdmissionState {
            full: max,
            max,
            all: CallCounts::default(),
            clients: HashMap::new(),
            queue: VecDeque::new(),
            silent: Vec::new(),
            leaving: 0,
            contended_until: None,
            ended_at: None,
            numbers: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn of(&self, client: ClientNetwork) -> CallCounts {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// Changes the counts of a client and of all clients.
    fn count(&mut self, client: ClientNetwork, change: impl Fn(&mut CallCounts)) {
        change(&mut self.all);
        let counts = self.clients.entry(client).or_default();
        change(counts);
        if counts.is_none() {
            self.clients.remove(&client);
        }
    }

    fn take(&mut self, client: ClientNetwork, id: u64, begins: WorkStart, since: Instant) {
        let has_begun = begins == WorkStart::AtOnce;
        let turn = self.number();
        self.count(client, |counts| {
            counts.taken += 1;
            counts.begun += usize::from(has_begun);
            counts.last_place = turn;
        });
        if !has_begun {
            self.silent.push(UnansweredCall { id, client, since });
        }
    }

    fn begins(&mut self, client: ClientNetwork, id: u64) {
        self.silent.retain(|it| it.id != id);
        self.count(client, |counts| counts.begun += 1);
    }

    fn give_back(&mut self, client: ClientNetwork, id: u64, has_begun: bool) {
        if !has_begun {
            self.silent.retain(|it| it.id != id);
        }
        self.count(client, |counts| {
            counts.taken -= 1;
            counts.begun -= usize::from(has_begun);
        });
    }

    /// Removes the call to be served next from the queue: the oldest call of the client with the fewest
    /// places. Between clients with equally many, the client served longest ago goes first.
    fn next(&mut self, now: Instant) -> Option<QueueEntry> {
        let mut best = None;
        let mut last = None;
        for (at, waiter) in self.queue.iter().enumerate() {
            // An optimization: the calls of a client are often adjacent, and only the oldest matters.
            if last.replace(waiter.client) == Some(waiter.client) {
                continue;
            }
            let counts = self.of(waiter.client);
            let rank = (counts.taken, counts.last_place);
            let is_better = best.is_none_or(|(_, least)| rank < least);
            if is_better && self.may_take(waiter.client, now) {
                best = Some((at, rank));
            }
            if best.is_some_and(|(_, least)| least == (0, 0)) {
                break;
            }
        }
        let waiter = self.queue.remove(best?.0)?;
        self.count(waiter.client, |counts| counts.waiting -= 1);
        Some(waiter)
    }

    /// Returns true if `client` may take a free place.
    fn may_take(&self, client: ClientNetwork, now: Instant) -> bool {
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        !is_contended || may_take(self.of(client).taken, self.all.taken, self.full)
    }

    /// Records contention at the arrival of a call of `client`, if another client holds more than a fair
    /// share and `client` has to wait, or would have to wait without reserved places.
    fn note_contention(&mut self, client: ClientNetwork, now: Instant) {
        let is_scarce = self.all.taken >= self.full - self.full / 4;
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        if !is_scarce || !(is_contended || self.all.taken >= self.max) {
            return;
        }
        let is_new = !self.clients.contains_key(&client);
        let share = self.all.taken / (self.clients.len() + usize::from(is_new));
        let has_much = |counts: &CallCounts| counts.taken > share.max(1);
        let mut others = self.clients.iter().filter(|(other, _)| **other != client);
        if others.any(|(_, counts)| has_much(counts)) {
            self.contended_until = Some(now + Duration::from_secs(CALL_SHARE_SECONDS));
        }
    }

    /// Returns true if `own` exceeds an equal part of `all` for each client.
    fn is_over_share(&self, own: usize, all: usize) -> bool {
        own > (all / self.clients.len().max(1)).max(1)
    }

    /// Makes room in the queue for another call of `client`. A full queue drops a call of a client with at
    /// least 2 more waiting calls.
    fn make_room(&mut self, client: ClientNetwork, queue_max: usize) -> QueueRoom {
        let most = self.full.max(self.all.taken).saturating_add(queue_max);
        if self.all.taken + self.all.waiting < most {
            return QueueRoom::Free;
        }
        let own = self.of(client).waiting;
        let waiting = self
            .clients
            .iter()
            .map(|(it, counts)| (counts.waiting, *it));
        if let Some((largest, its)) = waiting.max()
            && largest > own + 1
            && let Some(at) = self.queue.iter().rposition(|it| it.client == its)
            && let Some(newest) = self.queue.remove(at)
        {
            self.count(its, |counts| counts.waiting -= 1);
            let _ = newest.tell.send(Err(AdmissionRefused::ShareTaken));
            return QueueRoom::Given;
        }
        match own > 0 && own < self.all.waiting {
            true => QueueRoom::None(AdmissionRefused::ShareTaken),
            false => QueueRoom::None(AdmissionRefused::Full),
        }
    }

    /// Returns true if ending the temporary limit would serve all waiting calls.
    fn would_do(&self) -> bool {
        let inside = self.all.taken + self.all.waiting;
        self.full > self.max && inside <= self.full.max(self.all.taken)
    }

    /// Returns true if a call of `client` has to end because the client takes the response at `pace`.
    fn is_to_leave(&self, client: ClientNetwork, pace: ClientPace, now: Instant) -> bool {
        let own = self.of(client);
        let is_enough = match self.is_over_share(own.begun, self.all.begun) {
            true => ClientPace::SlowForMany,
            false => ClientPace::Slow,
        };
        let has_more = |it: &CallCounts| it.slow > 0 && it.begun > own.begun;
        pace >= is_enough
            && self.is_wanted_by_others(client, own, now)
            && !self.clients.values().any(has_more)
    }

    /// Returns true if a call of another client waits, here or in the backend's queue, and the other client
    /// holds far fewer places than `client`. A waiting client with more places than `client` has its share
    /// already.
    fn is_wanted_by_others(&self, client: ClientNetwork, own: CallCounts, now: Instant) -> bool {
        let entitled = |(other, it): &(&ClientNetwork, &CallCounts)| {
            **other != client && is_far_below(it.taken, own.taken)
        };
        let waiting = self.clients.iter().filter(entitled);
        let waiting: usize = waiting.map(|(_, counts)| counts.waiting).sum();
        if !self.would_do() && self.leaving < waiting {
            return true;
        }
        // The length of the backend's queue is unknown, so slow calls are ended one at a time, with a pause
        // between.
        let after = |then: Instant, pause| now.saturating_duration_since(then) >= pause;
        let is_entitled = |it: &UnansweredCall| {
            it.client != client
                && after(it.since, UNANSWERED)
                && is_far_below(self.of(it.client).begun, own.begun)
        };
        self.ended_at.is_none_or(|then| after(then, END_PAUSE))
            && self.silent.iter().any(is_entitled)
    }
}

/// Returns true if a client with `less` places would still have fewer than a client with `more` after
/// receiving one of the other client's places. A client without places is always far below: many addresses
/// with a slow response each must not keep a new client out.
fn is_far_below(less: usize, more: usize) -> bool {
    less == 0 || less + 1 < more
}

const UNANSWERED: Duration = Duration::from_millis(CALL_UNANSWERED_MILLISECONDS);
const END_PAUSE: Duration = Duration::from_millis(CALL_END_PAUSE_MILLISECONDS);

#[cfg(test)]
mod tests;
