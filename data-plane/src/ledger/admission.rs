//! Admission control for calls: limits the number of concurrent calls, so that a flood of requests doesn't
//! become a flood of processes or backend connections. A short queue holds calls that wait for a slot. All
//! workers share the state.
//!
//! Clients share the slots and the queue fairly ([`CallShares`]). A client alone may use all slots and the whole queue.
//! When another client has to wait:
//! - a free slot goes to the waiting client with the fewest slots. Between clients with equally many, the
//!   client served longest ago goes first, with its oldest call. Clients that were too slow go last;
//! - a full queue makes room by refusing the newest call of the client with the most calls in the queue, and among
//!   equals of a client that was too slow, or was served lately;
//! - a call ends if its client takes the response too slowly, beginning with the client that holds the most
//!   slots. The waiting client must hold no slot, or at least 2 slots fewer than the slow client
//!   ([`CallSlot::yield_to_other_clients`]). The slowest call also ends for a newcomer that has waited for 2 s, here or in
//!   the backend's own queue;
//! - a call with a response that drips for long counts as an event stream: such calls keep half of the slots, and further ones
//!   give way as slow calls do ([`CallSlot::yield_as_drip`]);
//! - a call of a client that was too slow waits here rather than in the backend's own queue, so that a newcomer goes before
//!   it;
//! - for a minute after a client had to wait, the last quarter of the slots is reserved for clients with
//!   few slots ([`CallShares::may_take`]).

use crate::ledger::backend_queue::{BackendQueue, SentRequest};
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{
    BACKEND_CONNECTIONS_MAX, CALL_END_PAUSE_MILLISECONDS, CALL_SHARE_SECONDS,
    CALL_TAKE_UP_WAIT_MILLISECONDS, CALL_UNANSWERED_MILLISECONDS,
};
use base::call_shares::{CallShares, SlowCalls, WaitRank, WaitingCall};
use base::client_network::ClientNetwork;
use base::clock::monotonic_ms_at;
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

pub use base::call_shares::ClientPace;

/// Admission of a running call. Dropping the value frees the slot.
pub struct CallSlot {
    slots: Arc<AdmissionControl>,
    client: ClientNetwork,
    /// Number that identifies the slot.
    id: u64,
    has_begun: bool,
    /// The backend has begun to answer.
    is_answered: bool,
    /// Pace of the client, which is fast while the call does not wait for the client.
    pace: ClientPace,
    /// The slot is promised to a waiting call.
    is_promised: bool,
    /// The call waits for its client to send more of the request.
    awaits_client: bool,
    /// The response drips.
    is_drip: bool,
}

/// Reason why a call gets no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionRefused {
    /// No slot is free, and the queue is full or the wait took too long.
    Full,
    /// The client has used up its share, and the remaining slots are reserved for other clients.
    ShareTaken,
}

/// Moment from which a call with a slot counts as served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkStart {
    /// Immediately, for calls that start a program.
    AtOnce,
    /// With the beginning of the backend's response. Until the response begins, the call may wait in a
    /// queue of the backend.
    WithAnswer,
}

/// Slots for calls, with the queue of waiting calls.
pub struct AdmissionControl {
    work_start: WorkStart,
    /// Kind of limit under which refusals are counted.
    share: SharedLimit,
    refusals: Arc<RefusalCounters>,
    state: Mutex<AdmissionState>,
}

impl AdmissionControl {
    /// Makes `max` slots, at least one. Refusals are counted as `share` in `refusals`.
    pub fn new(
        max: usize,
        work_start: WorkStart,
        share: SharedLimit,
        refusals: &Arc<RefusalCounters>,
    ) -> AdmissionControl {
        AdmissionControl {
            work_start,
            share,
            refusals: Arc::clone(refusals),
            state: Mutex::new(AdmissionState::new(max.max(1), work_start)),
        }
    }

    /// Sets the full number of slots to `max`. Running calls keep their slots.
    pub fn resize(&self, max: usize) {
        let mut state = self.lock();
        state.set_full(max.max(1), self.work_start);
        self.set(&mut state, max);
    }

    /// Limits the number of slots temporarily to `max`, at least one and at most the full number.
    pub(crate) fn limit_temporarily(&self, max: usize) {
        self.set(&mut self.lock(), max);
    }

    /// Ends a temporary limit.
    pub(crate) fn lift_limit(&self) {
        self.set(&mut self.lock(), usize::MAX);
    }

    /// Raises a temporary limit by `more` slots, up to the full number.
    pub(crate) fn raise_limit(&self, more: usize) {
        let mut state = self.lock();
        let max = state.max.saturating_add(more);
        self.set(&mut state, max);
    }

    fn set(&self, state: &mut AdmissionState, max: usize) {
        state.max = max.clamp(1, state.full);
        self.grant_free_slots(state, Instant::now());
    }

    /// Returns the number of slots withheld by a temporary limit.
    pub(crate) fn withheld(&self) -> usize {
        let state = self.lock();
        state.full - state.max
    }

    /// Returns the number of slots in use.
    pub(crate) fn taken(&self) -> usize {
        self.lock().shares.all().taken
    }

    /// Returns the number of slots in use, and the number of calls that wait for a slot.
    pub(crate) fn load(&self) -> (usize, usize) {
        let all = self.lock().shares.all();
        (all.taken, all.waiting)
    }

    /// Returns true if calls may wait in the backend's own queue, because the number of calls that the backend works on at
    /// once is unknown.
    pub(crate) fn may_queue_in_backend(&self) -> bool {
        self.lock().may_queue_in_backend
    }

    /// Returns true if a call waits for a slot.
    pub(crate) fn has_queued(&self) -> bool {
        self.lock().shares.all().waiting > 0
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot for a call of `client`. Waits for at most `patience` in a queue of at most `queue_max`
    /// calls. Slots withheld by a temporary limit extend the queue.
    pub fn enter(
        self: &Arc<Self>,
        client: ClientNetwork,
        queue_max: usize,
        patience: Duration,
    ) -> impl Future<Output = Result<CallSlot, AdmissionRefused>> + use<> {
        self.enter_with_body(client, false, queue_max, patience)
    }

    /// Takes a slot as [`AdmissionControl::enter`] does, for a call with a body. `is_streamed` means that the body has not
    /// arrived yet: every second free slot goes to another call, because a client may send such a body slowly.
    pub(crate) fn enter_with_body(
        self: &Arc<Self>,
        client: ClientNetwork,
        is_streamed: bool,
        queue_max: usize,
        patience: Duration,
    ) -> impl Future<Output = Result<CallSlot, AdmissionRefused>> + use<> {
        let slots = Arc::clone(self);
        let caller = Caller {
            client,
            is_streamed,
        };
        async move {
            let mut waiting = match slots.begin(caller, queue_max)? {
                SlotOrQueue::Slot(slot) => return Ok(slot),
                SlotOrQueue::Queue(waiting) => waiting,
            };
            let until = Instant::now() + patience;
            let interval = waiting.check_interval();
            loop {
                let left = until.saturating_duration_since(Instant::now());
                match timeout(left.min(interval), &mut waiting.outcome).await {
                    Ok(Ok(Ok(()))) => return Ok(waiting.into_slot()),
                    Ok(Ok(Err(refused))) => return Err(refused),
                    Ok(Err(_)) => return Err(AdmissionRefused::Full),
                    Err(_) if left <= interval => return Err(waiting.timeout_reason()),
                    // The reservation of the last slots may have expired.
                    Err(_) => slots.grant_free_slots(&mut slots.lock(), Instant::now()),
                }
            }
        }
    }

    fn begin(
        self: &Arc<Self>,
        caller: Caller,
        queue_max: usize,
    ) -> Result<SlotOrQueue, AdmissionRefused> {
        let Caller {
            client,
            is_streamed,
        } = caller;
        let now = Instant::now();
        let mut state = self.lock();
        state.advance(now);
        self.grant_free_slots(&mut state, now);
        state.note_contention(client, now);
        let id = state.number();
        if state.may_queue_in_backend && (is_streamed || state.shares.is_slow(client)) {
            let taken = state.taken();
            state.backend.refresh(taken, now);
        }
        if state.taken() < state.max && state.may_take(caller, now) {
            state.take(caller, id, self.work_start, now);
            return Ok(SlotOrQueue::Slot(self.slot(client, id)));
        }
        match state.make_room(client, queue_max) {
            QueueRoom::Free => {}
            QueueRoom::Evicted => self.refusals.increment(self.share),
            QueueRoom::None(refused) => {
                if refused == AdmissionRefused::ShareTaken {
                    self.refusals.increment(self.share);
                }
                return Err(refused);
            }
        }
        let (sender, outcome) = oneshot::channel();
        state.queue.push_back(QueueEntry {
            id,
            client,
            is_streamed,
            since: now,
            sender,
        });
        state.shares.count(client, |counts| counts.waiting += 1);
        Ok(SlotOrQueue::Queue(QueueGuard {
            slots: Arc::clone(self),
            client,
            id,
            outcome,
            is_granted: false,
        }))
    }

    fn slot(self: &Arc<Self>, client: ClientNetwork, id: u64) -> CallSlot {
        CallSlot {
            slots: Arc::clone(self),
            client,
            id,
            has_begun: self.work_start == WorkStart::AtOnce,
            is_answered: self.work_start == WorkStart::AtOnce,
            pace: ClientPace::Fast,
            is_promised: false,
            awaits_client: false,
            is_drip: false,
        }
    }

    /// Gives free slots to waiting calls.
    fn grant_free_slots(&self, state: &mut AdmissionState, now: Instant) {
        while state.taken() < state.max
            && let Some(waiter) = state.next(now)
        {
            state.take(waiter.caller(), waiter.id, self.work_start, now);
            state.was_streamed = waiter.is_streamed;
            // If the receiver is gone, the call's queue guard frees the slot.
            let _ = waiter.sender.send(Ok(()));
        }
    }
}

/// Interval at which a waiting call checks for slots with an expired reservation.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which a call checks that waits here instead of in the backend's own queue. The kernel does not tell when the
/// backend takes up the call before.
const TAKE_UP_INTERVAL: Duration = Duration::from_millis(CALL_TAKE_UP_WAIT_MILLISECONDS);

/// A slot, or a position in the queue.
enum SlotOrQueue {
    Slot(CallSlot),
    Queue(QueueGuard),
}

/// A call in the queue. Dropping the guard leaves the queue.
struct QueueGuard {
    slots: Arc<AdmissionControl>,
    client: ClientNetwork,
    id: u64,
    outcome: oneshot::Receiver<Result<(), AdmissionRefused>>,
    is_granted: bool,
}

impl QueueGuard {
    /// Returns the interval at which the call checks for a slot.
    fn check_interval(&self) -> Duration {
        let state = self.slots.lock();
        if state.may_queue_in_backend && state.taken() < state.max {
            TAKE_UP_INTERVAL
        } else {
            CHECK_INTERVAL
        }
    }

    /// Converts the guard into the slot, once the call has received a slot.
    fn into_slot(mut self) -> CallSlot {
        self.is_granted = true;
        self.slots.slot(self.client, self.id)
    }

    /// Returns the reason after `patience` has passed. A slot still free at the timeout is reserved for
    /// other clients.
    fn timeout_reason(self) -> AdmissionRefused {
        let state = self.slots.lock();
        let has_reserved_slot = state.taken() < state.max;
        drop(state);
        if !has_reserved_slot {
            return AdmissionRefused::Full;
        }
        self.slots.refusals.increment(self.slots.share);
        AdmissionRefused::ShareTaken
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let mut state = self.slots.lock();
        if let Some(at) = state.queue.iter().position(|it| it.id == self.id) {
            state.queue.remove(at);
            state
                .shares
                .count(self.client, |counts| counts.waiting -= 1);
        } else if self.outcome.try_recv() == Ok(Ok(())) {
            // The call received a slot but was dropped before reading the message.
            let has_begun = self.slots.work_start == WorkStart::AtOnce;
            state.free(self.client, self.id, has_begun);
            self.slots.grant_free_slots(&mut state, Instant::now());
        }
    }
}

impl CallSlot {
    /// Records the beginning of the backend's response.
    pub(crate) fn mark_begun(&mut self) {
        if std::mem::replace(&mut self.is_answered, true) {
            return;
        }
        let mut state = self.slots.lock();
        state.backend.record_answer(self.id);
        if !std::mem::replace(&mut self.has_begun, true) {
            state.mark_begun(self.client);
        }
    }

    /// Records that the request of the call is sent. None means that the kernel does not tell whether the backend has read the
    /// request.
    pub(crate) fn record_sent(&self, request: Option<SentRequest>) {
        self.slots.lock().backend.record_sent(self.id, request);
    }

    /// Records that the call waits for its client to send more of the request, or waits no longer. The wait for the answer
    /// begins with the end of the wait for the client.
    pub(crate) fn set_awaits_client(&mut self, awaits_client: bool) {
        if self.awaits_client == awaits_client || self.has_begun {
            return;
        }
        self.awaits_client = awaits_client;
        let mut state = self.slots.lock();
        state.backend.set_awaits_client(self.id, awaits_client);
        if !awaits_client {
            self.slots.grant_free_slots(&mut state, Instant::now());
        }
    }

    /// Promises the slot to a waiting call of any client, unless enough slots are promised already.
    /// Returns true if the slot is promised. No slot is promised while ending the temporary limit would
    /// serve all waiting calls.
    pub(crate) fn yield_to_any_client(&mut self) -> bool {
        if !self.is_promised {
            let mut state = self.slots.lock();
            let waiting = state.waiting_for_place(Instant::now());
            self.is_promised = !state.is_full_limit_enough() && state.promised < waiting;
            state.promised += usize::from(self.is_promised);
            if self.is_promised {
                state.advance(Instant::now());
                state.shares.record_slow(self.client);
            }
        }
        self.is_promised
    }

    /// Promises the slot to a call of another client if the call waits for a client with a slow `pace`. Returns true if
    /// the slot is promised.
    ///
    /// A client over its share of the slots has to be faster than a client within the share, and the client with the
    /// most slots loses a slot first.
    pub(crate) fn yield_to_other_clients(&mut self, pace: ClientPace) -> bool {
        let is_fast = pace == ClientPace::Fast && self.pace == ClientPace::Fast;
        if self.is_promised || is_fast {
            return self.is_promised;
        }
        let mut state = self.slots.lock();
        // A call that waits for its client's upload does not wait in the backend's own queue: the call would wait for the
        // client there too.
        if pace != ClientPace::Fast && !std::mem::replace(&mut self.has_begun, true) {
            state.mark_begun(self.client);
            state.backend.mark_served(self.id);
        }
        state.set_pace(self.client, self.id, &mut self.pace, pace);
        let now = Instant::now();
        state.advance(now);
        if state.must_yield(self.client, self.id, pace, now) {
            self.is_promised = true;
            state.shares.record_slow(self.client);
            state.set_pace(self.client, self.id, &mut self.pace, ClientPace::Fast);
            state.promised += 1;
            state.count_ended(now);
            self.slots.refusals.increment(self.slots.share);
        }
        self.is_promised
    }

    /// Promises the slot to a call of another client if the response drips, at `rate` KiB/s. Returns true if the slot is
    /// promised.
    ///
    /// Such calls keep half of the slots, those that began to drip first, unless their client is over its share. The other
    /// ones give way as calls with a slow client do.
    pub(crate) fn yield_as_drip(&mut self, rate: u64) -> bool {
        let mut state = self.slots.lock();
        if !std::mem::replace(&mut self.is_drip, true) {
            state.drips.insert(self.id);
        }
        let is_kept = state.drips.range(..self.id).count() < state.drip_places(Instant::now());
        drop(state);
        let rate_max = DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE / 1024;
        let rate = if is_kept {
            rate_max
        } else {
            rate.min(rate_max - 1)
        };
        self.yield_to_other_clients(ClientPace::SlowForMany(rate))
    }

    /// Records that the response drips no more.
    pub(crate) fn end_drip(&mut self) {
        if std::mem::take(&mut self.is_drip) {
            self.slots.lock().drips.remove(&self.id);
        }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.set_pace(self.client, self.id, &mut self.pace, ClientPace::Fast);
        if self.is_drip {
            state.drips.remove(&self.id);
        }
        state.free(self.client, self.id, self.has_begun);
        // The waiting call receives the slot before the promise is cleared, so no second slot is promised
        // to the call.
        self.slots.grant_free_slots(&mut state, Instant::now());
        state.promised -= usize::from(self.is_promised);
    }
}

/// State of the slots and the queue.
struct AdmissionState {
    /// Full number of slots.
    full: usize,
    /// Number of slots under the temporary limit. More calls may be running: a surplus slot disappears
    /// when freed.
    max: usize,
    /// Calls of each client that has a slot or waits for a slot.
    shares: CallShares,
    slow: SlowCalls,
    /// Waiting calls in order of arrival.
    queue: VecDeque<QueueEntry>,
    /// Calls without an answer of the backend.
    backend: BackendQueue,
    /// The number of calls that the backend works on at once is unknown, so calls may wait in its own queue.
    may_queue_in_backend: bool,
    /// Numbers of the calls with a response that drips.
    drips: BTreeSet<u64>,
    /// The latest call from the queue has a body that had not arrived yet.
    was_streamed: bool,
    /// Number of promised slots not yet freed.
    promised: usize,
    /// End of the period in which the last slots are reserved for clients with few slots.
    contended_until: Option<Instant>,
    /// Time at which a slow call was told to end, the first one after a pause.
    ended_at: Option<Instant>,
    /// Slow calls that were told to end since then.
    ended: usize,
    last_number: u64,
}

/// Client of a call, and the state of its request.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Caller {
    client: ClientNetwork,
    /// The body of the call has not arrived yet.
    is_streamed: bool,
}

impl QueueEntry {
    fn caller(&self) -> Caller {
        Caller {
            client: self.client,
            is_streamed: self.is_streamed,
        }
    }
}

/// A call waiting for a slot.
struct QueueEntry {
    id: u64,
    client: ClientNetwork,
    /// The body of the call had not arrived yet.
    is_streamed: bool,
    since: Instant,
    sender: oneshot::Sender<Result<(), AdmissionRefused>>,
}

/// Result of making room in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QueueRoom {
    Free,
    /// A call of another client was refused to make room.
    Evicted,
    None(AdmissionRefused),
}

impl AdmissionState {
    fn new(max: usize, work_start: WorkStart) -> AdmissionState {
        let mut state = AdmissionState {
            full: max,
            max,
            shares: CallShares::default(),
            slow: SlowCalls::default(),
            queue: VecDeque::new(),
            backend: BackendQueue::new(),
            may_queue_in_backend: false,
            drips: BTreeSet::new(),
            was_streamed: false,
            promised: 0,
            contended_until: None,
            ended_at: None,
            ended: 0,
            last_number: 0,
        };
        state.set_full(max, work_start);
        state
    }

    /// Sets the full number of slots.
    fn set_full(&mut self, full: usize, work_start: WorkStart) {
        self.full = full;
        let is_unknown = full >= BACKEND_CONNECTIONS_MAX;
        self.may_queue_in_backend = work_start == WorkStart::WithAnswer && is_unknown;
    }

    /// Sets the clock of the shares.
    fn advance(&mut self, now: Instant) {
        self.shares.advance(monotonic_ms_at(now.into_std()));
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Returns the number of calls with a slot.
    fn taken(&self) -> usize {
        self.shares.all().taken
    }

    /// Returns the number of waiting calls.
    fn waiting(&self) -> usize {
        self.shares.all().waiting
    }

    fn take(&mut self, caller: Caller, id: u64, work_start: WorkStart, since: Instant) {
        let Caller {
            client,
            is_streamed,
        } = caller;
        let has_begun = work_start == WorkStart::AtOnce;
        self.shares.take(client, has_begun);
        if !has_begun {
            self.backend.begin(id, client, is_streamed, since);
        }
    }

    fn set_pace(&mut self, client: ClientNetwork, id: u64, from: &mut ClientPace, to: ClientPace) {
        if *from != to {
            self.backend.set_rate(id, to.rate());
        }
        self.shares.set_pace(client, &mut self.slow, from, to);
    }

    fn mark_begun(&mut self, client: ClientNetwork) {
        self.shares.count(client, |counts| counts.begun += 1);
    }

    fn free(&mut self, client: ClientNetwork, id: u64, has_begun: bool) {
        self.backend.end(id);
        self.shares.leave(client, has_begun);
    }

    /// Counts a slow call that was told to end.
    fn count_ended(&mut self, now: Instant) {
        if self.ended == 0 {
            self.ended_at = Some(now);
        }
        self.ended += 1;
    }

    /// Returns the number of slots that calls with a dripping response keep: half of the slots, or of the calls that the
    /// backend works on at once.
    fn drip_places(&mut self, now: Instant) -> usize {
        let taken = self.taken();
        let places = if self.may_queue_in_backend {
            self.backend.refresh(taken, now);
            let capacity = self.backend.capacity();
            capacity.unwrap_or_else(|| self.backend.at_work(taken))
        } else {
            self.full
        };
        places.div_ceil(2)
    }

    /// Returns true if a call waits here, because it would wait in the backend's own queue: a call of a client that was too
    /// slow lately, or a second one with a body that has not arrived. Calls of other clients go before it here.
    fn is_held_back(&self, caller: Caller, now: Instant) -> bool {
        let Caller {
            client,
            is_streamed,
        } = caller;
        if !self.may_queue_in_backend {
            return false;
        }
        if is_streamed && self.backend.has_queued_upload() {
            return true;
        }
        if !self.shares.is_slow(client) {
            return false;
        }
        let taken = self.taken();
        let has_place = match self.backend.capacity() {
            Some(capacity) => {
                taken < capacity && !self.shares.is_last_eighth_closed(client, taken, capacity)
            }
            None => !self.backend.has_queued(|it| self.shares.is_slow(it)),
        };
        !has_place || self.backend.holds_back(|it| !self.shares.is_slow(it), now)
    }

    /// Returns the number of waiting calls that may take the next free slot.
    fn waiting_for_place(&self, now: Instant) -> usize {
        let held_back = self
            .queue
            .iter()
            .filter(|it| self.is_held_back(it.caller(), now));
        self.waiting().saturating_sub(held_back.count())
    }

    /// Removes the call to be served next from the queue: the oldest call of the client with the fewest
    /// slots. Between clients with equally many, the client served longest ago goes first.
    fn next(&mut self, now: Instant) -> Option<QueueEntry> {
        if self.queue.is_empty() {
            return None;
        }
        if self.may_queue_in_backend {
            self.backend.refresh(self.taken(), now);
        }
        let large = self.shares.large(self.full);
        let mut best = None;
        let mut last = None;
        for (at, waiter) in self.queue.iter().enumerate() {
            // An optimization: the calls of a client are often adjacent, and only the oldest matters.
            if last.replace(waiter.caller()) == Some(waiter.caller()) {
                continue;
            }
            let mut rank = self.shares.rank(waiter.client, &large);
            rank.is_second = waiter.is_streamed && self.was_streamed;
            let is_better = best.is_none_or(|(_, least)| rank < least);
            if is_better && self.may_take(waiter.caller(), now) {
                best = Some((at, rank));
            }
            if best.is_some_and(|(_, least)| least == WaitRank::FIRST) {
                break;
            }
        }
        let waiter = self.queue.remove(best?.0)?;
        self.shares
            .count(waiter.client, |counts| counts.waiting -= 1);
        Some(waiter)
    }

    /// Returns true if a call may take a free slot.
    fn may_take(&self, caller: Caller, now: Instant) -> bool {
        let client = caller.client;
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        if self.is_held_back(caller, now) {
            false
        } else if is_contended {
            self.shares.may_take(client, self.full)
        } else {
            !self
                .shares
                .is_last_eighth_closed(client, self.taken(), self.full)
        }
    }

    /// Records contention at the arrival of a call of `client`, if another client holds more than a fair
    /// share and `client` has to wait, or would have to wait without reserved slots.
    fn note_contention(&mut self, client: ClientNetwork, now: Instant) {
        let is_scarce = self.taken() >= self.full - self.full / 4;
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        if !is_scarce || !(is_contended || self.taken() >= self.max) {
            return;
        }
        if self.shares.has_larger_than_equal(client, self.full) {
            self.contended_until = Some(now + Duration::from_secs(CALL_SHARE_SECONDS));
        }
    }

    /// Makes room in the queue for another call of `client`. A full queue drops a call of a client with at
    /// least 2 more waiting calls.
    fn make_room(&mut self, client: ClientNetwork, queue_max: usize) -> QueueRoom {
        let most = self.full.max(self.taken()).saturating_add(queue_max);
        if self.taken() + self.waiting() < most {
            return QueueRoom::Free;
        }
        if let Some(loser) = self.shares.loser_to(client)
            && let Some(at) = self.queue.iter().rposition(|it| it.client == loser)
            && let Some(newest) = self.queue.remove(at)
        {
            self.shares.count(loser, |counts| counts.waiting -= 1);
            let _ = newest.sender.send(Err(AdmissionRefused::ShareTaken));
            return QueueRoom::Evicted;
        }
        let own = self.shares.of(client).waiting;
        if own > 0 && own < self.waiting() {
            QueueRoom::None(AdmissionRefused::ShareTaken)
        } else {
            QueueRoom::None(AdmissionRefused::Full)
        }
    }

    /// Returns true if ending the temporary limit would serve all waiting calls.
    fn is_full_limit_enough(&self) -> bool {
        let inside = self.taken() + self.waiting();
        self.full > self.max && inside <= self.full.max(self.taken())
    }

    /// Returns true if the call `id` of `client` has to end because the client takes the response at `pace`, and a call of
    /// another client waits here or in the backend's queue. The length of the backend's queue is unknown, so few slow calls
    /// end for it at a time, with a pause between.
    fn must_yield(
        &mut self,
        client: ClientNetwork,
        id: u64,
        pace: ClientPace,
        now: Instant,
    ) -> bool {
        if self.may_queue_in_backend {
            self.backend.refresh(self.taken(), now);
        }
        let after = |then: Instant, pause| now.saturating_duration_since(then) >= pause;
        let yielding = self.shares.yielding(client, pace, self.full);
        let was_slow = self.shares.is_slow(client);
        let waiting = self.queue.iter();
        let waiting = waiting.filter(|it| was_slow || !self.is_held_back(it.caller(), now));
        let waiting = waiting.map(|it| WaitingCall {
            client: it.client,
            waited: now.saturating_duration_since(it.since),
        });
        let is_wanted = !self.is_full_limit_enough()
            && yielding.gives_way_to_one_of(waiting, self.promised, &self.slow);
        if is_wanted {
            return true;
        }
        if self.ended_at.is_some_and(|then| after(then, END_PAUSE)) {
            self.ended = 0;
        }
        let backend = &self.backend;
        let is_entitled = backend.unanswered().any(|it| {
            after(it.since, UNANSWERED)
                && yielding.gives_way_to_unanswered(it.client)
                && backend.is_useful(id, it)
        });
        if self.ended == 0 && is_entitled && yielding.is_first() {
            return true;
        }
        let newcomer = backend.unanswered().find(|it| {
            let call = WaitingCall {
                client: it.client,
                waited: now.saturating_duration_since(it.answer_awaited_since),
            };
            yielding.gives_way_to_unanswered_newcomer(call)
                && backend.may_be_queued(it)
                && backend.is_next_to_end(id, it, self.ended)
        });
        let newcomer = newcomer.map(|newcomer| newcomer.id);
        newcomer.map(|id| self.backend.count_ended(id)).is_some()
    }
}

const UNANSWERED: Duration = Duration::from_millis(CALL_UNANSWERED_MILLISECONDS);
const END_PAUSE: Duration = Duration::from_millis(CALL_END_PAUSE_MILLISECONDS);

#[cfg(test)]
mod tests;
