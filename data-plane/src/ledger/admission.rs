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
//! - for a minute after a client had to wait, the last quarter of the slots is reserved for clients with
//!   few slots ([`CallShares::may_take`]).

use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{
    CALL_END_PAUSE_MILLISECONDS, CALL_SHARE_SECONDS, CALL_UNANSWERED_ENDS_MAX,
    CALL_UNANSWERED_MILLISECONDS,
};
use base::call_shares::{CallShares, SlowCalls, WaitRank, WaitingCall};
use base::client_network::ClientNetwork;
use base::clock::monotonic_ms_at;
use base::sys;
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    /// Pace of the client, which is fast while the call does not wait for the client.
    pace: ClientPace,
    /// The slot is promised to a waiting call.
    is_promised: bool,
    /// The call waits for its client to send more of the request.
    awaits_client: bool,
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
            state: Mutex::new(AdmissionState::new(max.max(1))),
        }
    }

    /// Sets the full number of slots to `max`. Running calls keep their slots.
    pub fn resize(&self, max: usize) {
        let mut state = self.lock();
        state.full = max.max(1);
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
        let slots = Arc::clone(self);
        async move {
            let mut waiting = match slots.begin(client, queue_max)? {
                SlotOrQueue::Slot(slot) => return Ok(slot),
                SlotOrQueue::Queue(waiting) => waiting,
            };
            let until = Instant::now() + patience;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                match timeout(left.min(CHECK_INTERVAL), &mut waiting.outcome).await {
                    Ok(Ok(Ok(()))) => return Ok(waiting.into_slot()),
                    Ok(Ok(Err(refused))) => return Err(refused),
                    Ok(Err(_)) => return Err(AdmissionRefused::Full),
                    Err(_) if left <= CHECK_INTERVAL => return Err(waiting.timeout_reason()),
                    // The reservation of the last slots may have expired.
                    Err(_) => slots.grant_free_slots(&mut slots.lock(), Instant::now()),
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
        state.advance(now);
        self.grant_free_slots(&mut state, now);
        state.note_contention(client, now);
        let id = state.number();
        if state.taken() < state.max && state.may_take(client, now) {
            state.take(client, id, self.work_start, now);
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
            pace: ClientPace::Fast,
            is_promised: false,
            awaits_client: false,
        }
    }

    /// Gives free slots to waiting calls.
    fn grant_free_slots(&self, state: &mut AdmissionState, now: Instant) {
        while state.taken() < state.max
            && let Some(waiter) = state.next(now)
        {
            state.take(waiter.client, waiter.id, self.work_start, now);
            // If the receiver is gone, the call's queue guard frees the slot.
            let _ = waiter.sender.send(Ok(()));
        }
    }
}

/// Interval at which a waiting call checks for slots with an expired reservation.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
        if !std::mem::replace(&mut self.has_begun, true) {
            let mut state = self.slots.lock();
            state.mark_begun(self.client, self.id);
            state.latest_answered = state.latest_answered.max(self.id);
        }
    }

    /// Records the request of the call, which has no answer yet.
    pub(crate) fn watch_request(&self, request: SentRequest) {
        let mut state = self.slots.lock();
        let mut calls = state.unanswered.iter_mut().rev();
        if let Some(call) = calls.find(|it| it.id == self.id) {
            call.request = Some(request);
        }
    }

    /// Records that the call waits for its client to send more of the request, or waits no longer. The wait for the answer
    /// begins with the end of the wait for the client.
    pub(crate) fn set_awaits_client(&mut self, awaits_client: bool) {
        if self.awaits_client == awaits_client || self.has_begun {
            return;
        }
        self.awaits_client = awaits_client;
        let mut state = self.slots.lock();
        if let Some(call) = state.unanswered.iter_mut().find(|it| it.id == self.id) {
            call.awaits_client = awaits_client;
            call.answer_awaited_since = Instant::now();
        }
    }

    /// Promises the slot to a waiting call of any client, unless enough slots are promised already.
    /// Returns true if the slot is promised. No slot is promised while ending the temporary limit would
    /// serve all waiting calls.
    pub(crate) fn yield_to_any_client(&mut self) -> bool {
        if !self.is_promised {
            let mut state = self.slots.lock();
            self.is_promised = !state.is_full_limit_enough() && state.promised < state.waiting();
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
            state.mark_begun(self.client, self.id);
        }
        state.set_pace(self.client, &mut self.pace, pace);
        let now = Instant::now();
        state.advance(now);
        if state.must_yield(self.client, pace, now) {
            self.is_promised = true;
            state.shares.record_slow(self.client);
            state.set_pace(self.client, &mut self.pace, ClientPace::Fast);
            state.promised += 1;
            state.ended_at = Some(now);
            self.slots.refusals.increment(self.slots.share);
        }
        self.is_promised
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        state.set_pace(self.client, &mut self.pace, ClientPace::Fast);
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
    /// Calls sent to a backend that hasn't begun to respond.
    unanswered: Vec<UnansweredCall>,
    /// Number of promised slots not yet freed.
    promised: usize,
    /// End of the period in which the last slots are reserved for clients with few slots.
    contended_until: Option<Instant>,
    /// Time at which a slow call was last told to end.
    ended_at: Option<Instant>,
    last_number: u64,
    /// Largest number of a call with an answer. A backend takes up connections in their order.
    latest_answered: u64,
}

/// A call waiting for a slot.
struct QueueEntry {
    id: u64,
    client: ClientNetwork,
    since: Instant,
    sender: oneshot::Sender<Result<(), AdmissionRefused>>,
}

/// A call sent to a backend that hasn't begun to respond.
struct UnansweredCall {
    id: u64,
    client: ClientNetwork,
    since: Instant,
    /// The call waits for its client to send more of the request.
    awaits_client: bool,
    /// Time since which the call waits for the backend alone.
    answer_awaited_since: Instant,
    /// Request of the call; None if the kernel does not tell whether the backend has read the request.
    request: Option<SentRequest>,
    /// Number of calls that ended for the call as the call of a newcomer.
    ended_calls: u32,
}

/// Request on a Unix socket. The kernel counts the bytes that the backend has not read.
pub(crate) struct SentRequest {
    conn: Weak<OwnedFd>,
    read_bytes: usize,
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
    fn new(max: usize) -> AdmissionState {
        AdmissionState {
            full: max,
            max,
            shares: CallShares::default(),
            slow: SlowCalls::default(),
            queue: VecDeque::new(),
            unanswered: Vec::new(),
            promised: 0,
            contended_until: None,
            ended_at: None,
            last_number: 0,
            latest_answered: 0,
        }
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

    fn take(&mut self, client: ClientNetwork, id: u64, work_start: WorkStart, since: Instant) {
        let has_begun = work_start == WorkStart::AtOnce;
        self.shares.take(client, has_begun);
        if !has_begun {
            self.unanswered.push(UnansweredCall {
                id,
                client,
                since,
                awaits_client: false,
                answer_awaited_since: since,
                request: None,
                ended_calls: 0,
            });
        }
    }

    fn set_pace(&mut self, client: ClientNetwork, from: &mut ClientPace, to: ClientPace) {
        self.shares.set_pace(client, &mut self.slow, from, to);
    }

    fn mark_begun(&mut self, client: ClientNetwork, id: u64) {
        self.unanswered.retain(|it| it.id != id);
        self.shares.count(client, |counts| counts.begun += 1);
    }

    fn free(&mut self, client: ClientNetwork, id: u64, has_begun: bool) {
        if !has_begun {
            self.unanswered.retain(|it| it.id != id);
        }
        self.shares.leave(client, has_begun);
    }

    /// Removes the call to be served next from the queue: the oldest call of the client with the fewest
    /// slots. Between clients with equally many, the client served longest ago goes first.
    fn next(&mut self, now: Instant) -> Option<QueueEntry> {
        if self.queue.is_empty() {
            return None;
        }
        let large = self.shares.large(self.full);
        let mut best = None;
        let mut last = None;
        for (at, waiter) in self.queue.iter().enumerate() {
            // An optimization: the calls of a client are often adjacent, and only the oldest matters.
            if last.replace(waiter.client) == Some(waiter.client) {
                continue;
            }
            let rank = self.shares.rank(waiter.client, &large);
            let is_better = best.is_none_or(|(_, least)| rank < least);
            if is_better && self.may_take(waiter.client, now) {
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

    /// Returns true if `client` may take a free slot.
    fn may_take(&self, client: ClientNetwork, now: Instant) -> bool {
        let is_contended = self.contended_until.is_some_and(|until| now < until);
        if is_contended {
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

    /// Returns true if a call of `client` has to end because the client takes the response at `pace`, and a call of
    /// another client waits here or in the backend's queue. The length of the backend's queue is unknown, so slow calls
    /// are ended for it one at a time, with a pause between.
    fn must_yield(&mut self, client: ClientNetwork, pace: ClientPace, now: Instant) -> bool {
        let yielding = self.shares.yielding(client, pace, self.full);
        let waiting = self.queue.iter().map(|it| WaitingCall {
            client: it.client,
            waited: now.saturating_duration_since(it.since),
        });
        let is_wanted = !self.is_full_limit_enough()
            && yielding.gives_way_to_one_of(waiting, self.promised, &self.slow);
        if is_wanted {
            return true;
        }
        let after = |then: Instant, pause| now.saturating_duration_since(then) >= pause;
        if self.ended_at.is_some_and(|then| !after(then, END_PAUSE)) {
            return false;
        }
        let is_entitled = |it: &UnansweredCall| {
            after(it.since, UNANSWERED) && yielding.gives_way_to_unanswered(it.client)
        };
        if self.unanswered.iter().any(is_entitled) && yielding.is_first() {
            return true;
        }
        let latest_answered = self.latest_answered;
        let newcomer = self.unanswered.iter_mut().find(|it| {
            let call = WaitingCall {
                client: it.client,
                waited: now.saturating_duration_since(it.answer_awaited_since),
            };
            yielding.gives_way_to_unanswered_newcomer(call, &self.slow)
                && it.may_be_queued(latest_answered)
        });
        newcomer.map(|newcomer| newcomer.ended_calls += 1).is_some()
    }
}

impl UnansweredCall {
    /// Returns true if the call may wait in the backend's own queue, and not for its client. For a call on a Unix socket the
    /// kernel tells. Otherwise no later call has an answer, and the call has cost at most [`CALL_UNANSWERED_ENDS_MAX`] other
    /// calls.
    fn may_be_queued(&self, latest_answered: u64) -> bool {
        if self.awaits_client {
            return false;
        }
        match &self.request {
            Some(request) => request.is_unread(),
            None => self.id > latest_answered && self.ended_calls < CALL_UNANSWERED_ENDS_MAX,
        }
    }
}

impl SentRequest {
    /// Creates the record of a request on the Unix socket `conn`, on which `read_bytes` stay in the kernel's count after the
    /// backend has read the request.
    pub(crate) fn new(conn: &Arc<OwnedFd>, read_bytes: usize) -> SentRequest {
        SentRequest {
            conn: Arc::downgrade(conn),
            read_bytes,
        }
    }

    /// Returns true if the backend has not read the request.
    fn is_unread(&self) -> bool {
        let conn = self.conn.upgrade();
        let bytes = conn.and_then(|conn| sys::output_queue_bytes(conn.as_fd()).ok());
        bytes.is_some_and(|bytes| bytes > self.read_bytes)
    }
}

const UNANSWERED: Duration = Duration::from_millis(CALL_UNANSWERED_MILLISECONDS);
const END_PAUSE: Duration = Duration::from_millis(CALL_END_PAUSE_MILLISECONDS);

#[cfg(test)]
mod tests;
