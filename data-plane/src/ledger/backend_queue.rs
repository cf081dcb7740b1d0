//! Calls of a backend that have no answer yet: which of them the backend works on, and which wait in the backend's own
//! queue.
//!
//! A backend takes up connections in their order, so the calls sent before a waiting call keep it waiting. To end a call that
//! waits behind has no use, and to end a call that waits before it has little: a process becomes free where a call ends that
//! the backend works on. Such calls therefore end first ([`BackendQueue::is_next_to_end`]).
//!
//! For a Unix socket the kernel tells whether the backend has read of a request ([`SentRequest`]). Otherwise the answer to a
//! later call shows that the backend has taken up the earlier ones. While a call waits, the number of the other calls is
//! the number that the backend works on at once, its capacity ([`BackendQueue::capacity`]).

use crate::limits::{
    CALL_CAPACITY_SECONDS, CALL_QUEUE_SECONDS, CALL_QUEUED_MILLISECONDS,
    CALL_TAKE_UP_CHECK_MILLISECONDS, CALL_UNANSWERED_ENDS_MAX, CALLS_AHEAD_DIVISOR,
};
use base::client_network::ClientNetwork;
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use base::sys;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Calls without an answer, and calls with a slow client.
pub(super) struct BackendQueue {
    /// Calls without an answer, in the order of their beginning.
    calls: Vec<SentCall>,
    /// Rates of the calls with a slow client in KiB/s, by number.
    slow: BTreeMap<u64, u64>,
    last_order: u64,
    /// Largest order of a call with an answer.
    latest_answered: u64,
    capacity: Option<Capacity>,
    checked_at: Option<Instant>,
}

/// Number of calls that the backend works on at once.
struct Capacity {
    calls: usize,
    /// Last time at which a call waited in the backend's own queue.
    seen_at: Instant,
}

/// A call sent to a backend that has not begun to answer.
pub(super) struct SentCall {
    pub(super) id: u64,
    pub(super) client: ClientNetwork,
    pub(super) since: Instant,
    /// Position in the order in which the calls of the backend began.
    order: u64,
    /// The body of the call had not arrived at its beginning.
    is_streamed: bool,
    /// The call waits for its client to send more of the request.
    awaits_client: bool,
    /// The client sends the request slowly, so that the call counts as served.
    is_served: bool,
    /// Time since which the call waits for the backend alone.
    pub(super) answer_awaited_since: Instant,
    /// The request is on its way to the backend.
    is_sent: bool,
    /// Request of the call; None if the kernel does not tell whether the backend has read the request.
    request: Option<SentRequest>,
    /// The backend has read of the request.
    is_read: bool,
    /// Number of calls that ended for the call as the call of a newcomer.
    ended_calls: u32,
}

/// Place of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum TakeUp {
    /// The backend works on the call.
    TakenUp,
    /// The call may wait in the backend's own queue.
    Unknown,
    /// The call waits in the backend's own queue.
    Waiting,
}

/// Request on a Unix socket. The kernel counts the bytes that the backend has not read.
pub(crate) struct SentRequest {
    conn: Weak<OwnedFd>,
    read_bytes: usize,
    /// False if the count may stay although the backend has read the request.
    is_exact: bool,
}

impl SentRequest {
    /// Creates the record of a request on the Unix socket `conn`, on which `read_bytes` stay in the kernel's count after the
    /// backend has read the request.
    pub(crate) fn new(conn: &Arc<OwnedFd>, read_bytes: usize) -> SentRequest {
        SentRequest {
            conn: Arc::downgrade(conn),
            read_bytes,
            is_exact: true,
        }
    }

    /// Creates the record of a request on the Unix socket `conn` that more bytes of a body may follow. The count falls when the
    /// backend has read the first part of the request. A backend that has read that part already, and reads the body late,
    /// seems to have read nothing.
    pub(crate) fn with_body(conn: &Arc<OwnedFd>) -> SentRequest {
        let sent = sys::output_queue_bytes(conn.as_fd()).unwrap_or(0);
        SentRequest {
            is_exact: false,
            ..SentRequest::new(conn, sent.saturating_sub(1))
        }
    }

    /// Returns true if the backend has not read the request.
    fn is_unread(&self) -> bool {
        let conn = self.conn.upgrade();
        let bytes = conn.and_then(|conn| sys::output_queue_bytes(conn.as_fd()).ok());
        bytes.is_some_and(|bytes| bytes > self.read_bytes)
    }
}

impl BackendQueue {
    pub(super) fn new() -> BackendQueue {
        BackendQueue {
            calls: Vec::new(),
            slow: BTreeMap::new(),
            last_order: 0,
            latest_answered: 0,
            capacity: None,
            checked_at: None,
        }
    }

    /// Records the beginning of a call.
    pub(super) fn begin(
        &mut self,
        id: u64,
        client: ClientNetwork,
        is_streamed: bool,
        since: Instant,
    ) {
        self.last_order += 1;
        self.calls.push(SentCall {
            id,
            client,
            since,
            order: self.last_order,
            is_streamed,
            awaits_client: false,
            is_served: false,
            answer_awaited_since: since,
            is_sent: false,
            request: None,
            is_read: false,
            ended_calls: 0,
        });
    }

    /// Records the answer to a call.
    pub(super) fn record_answer(&mut self, id: u64) {
        if let Some(order) = self.end(id) {
            self.latest_answered = self.latest_answered.max(order);
        }
    }

    /// Records the end of a call. Returns its order if the call had no answer.
    pub(super) fn end(&mut self, id: u64) -> Option<u64> {
        let at = self.calls.iter().position(|it| it.id == id)?;
        Some(self.calls.remove(at).order)
    }

    /// Records that the client of a call is slow, with its rate in KiB/s, or slow no more.
    pub(super) fn set_rate(&mut self, id: u64, rate: Option<u64>) {
        match rate {
            Some(rate) => self.slow.insert(id, rate),
            None => self.slow.remove(&id),
        };
    }

    /// Records that the client of a call sends the request slowly. Such a call counts as served.
    pub(super) fn mark_served(&mut self, id: u64) {
        if let Some(call) = self.call_mut(id) {
            call.is_served = true;
        }
    }

    /// Records that a call waits for its client, or no longer waits for it.
    pub(super) fn set_awaits_client(&mut self, id: u64, awaits_client: bool) {
        if let Some(call) = self.call_mut(id) {
            call.awaits_client = awaits_client;
            call.answer_awaited_since = Instant::now();
        }
    }

    /// Records that the request of a call is sent; None if the kernel does not tell whether the backend has read the request.
    pub(super) fn record_sent(&mut self, id: u64, request: Option<SentRequest>) {
        if let Some(call) = self.call_mut(id) {
            call.request = request;
            call.is_sent = true;
        }
    }

    fn call_mut(&mut self, id: u64) -> Option<&mut SentCall> {
        self.calls.iter_mut().rev().find(|it| it.id == id)
    }

    /// Returns the calls that wait for an answer, without those of clients that send the request slowly.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = &SentCall> {
        self.calls.iter().filter(|it| !it.is_served)
    }

    /// Asks the kernel which calls the backend has taken up, and learns the capacity. `taken` is the number of calls with a
    /// slot. Checks follow one another after [`CALL_TAKE_UP_CHECK_MILLISECONDS`] at the earliest.
    pub(super) fn refresh(&mut self, taken: usize, now: Instant) {
        let is_recent = |then| now.saturating_duration_since(then) < TAKE_UP_CHECK;
        if self.checked_at.is_some_and(is_recent) {
            return;
        }
        self.checked_at = Some(now);
        for call in &mut self.calls {
            // The state is kept: a later part of a body is unread for some time too.
            call.is_read = call.is_read || call.request.as_ref().is_some_and(|it| !it.is_unread());
        }
        let waits_long = |call: &SentCall| {
            self.take_up(call) == TakeUp::Waiting
                && now.saturating_duration_since(call.since) >= QUEUED
        };
        let is_queue_seen = self.calls.iter().any(waits_long);
        let calls = self.at_work(taken);
        match &mut self.capacity {
            _ if is_queue_seen => {
                self.capacity = Some(Capacity {
                    calls,
                    seen_at: now,
                });
            }
            Some(it) if now.saturating_duration_since(it.seen_at) < CAPACITY_AGE => {
                it.calls = it.calls.max(calls);
            }
            _ => self.capacity = None,
        }
    }

    /// Returns the number of calls that the backend works on at once, if a call waited lately in the backend's own queue.
    pub(super) fn capacity(&self) -> Option<usize> {
        self.capacity.as_ref().map(|it| it.calls.max(1))
    }

    /// Returns the number of calls that the backend works on, of `taken` calls with a slot.
    pub(super) fn at_work(&self, taken: usize) -> usize {
        let queued = self.calls.iter();
        let queued = queued.filter(|it| self.take_up(it) != TakeUp::TakenUp);
        taken.saturating_sub(queued.count())
    }

    fn take_up(&self, call: &SentCall) -> TakeUp {
        match &call.request {
            _ if call.is_read => TakeUp::TakenUp,
            Some(_) => TakeUp::Waiting,
            None if call.order < self.latest_answered => TakeUp::TakenUp,
            None => TakeUp::Unknown,
        }
    }

    /// Returns true if the call may wait in the backend's own queue, and not for its client. Where that is uncertain, the call
    /// has cost at most [`CALL_UNANSWERED_ENDS_MAX`] other calls.
    pub(super) fn may_be_queued(&self, call: &SentCall) -> bool {
        if call.awaits_client {
            return false;
        }
        let is_exact = call.request.as_ref().is_some_and(|it| it.is_exact);
        self.take_up(call) != TakeUp::TakenUp
            && (is_exact || call.ended_calls < CALL_UNANSWERED_ENDS_MAX)
    }

    /// Returns true if a call in the backend's own queue that `is_first` selects has waited for some time. Further calls of
    /// other clients then begin behind it.
    pub(super) fn holds_back(
        &self,
        is_first: impl Fn(ClientNetwork) -> bool,
        now: Instant,
    ) -> bool {
        self.unanswered().any(|call| {
            let waited = now.saturating_duration_since(call.answer_awaited_since);
            let is_known = self.take_up(call) == TakeUp::Waiting;
            waited >= QUEUED
                && (is_known || waited < QUEUE_PATIENCE)
                && self.may_be_queued(call)
                && is_first(call.client)
        })
    }

    /// Returns true if the backend may not have taken up a call of a client that `is_of` selects.
    pub(super) fn has_queued(&self, is_of: impl Fn(ClientNetwork) -> bool) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|it| self.take_up(it) != TakeUp::TakenUp && is_of(it.client))
    }

    /// Returns true if a call with a body that has not arrived waits in the backend's own queue. Where the kernel does not
    /// tell, such a call counts while it waits for its client. A call that is not sent yet counts too.
    pub(super) fn has_queued_upload(&self) -> bool {
        let mut uploads = self.calls.iter().filter(|it| it.is_streamed);
        uploads.any(|it| match self.take_up(it) {
            TakeUp::TakenUp => false,
            TakeUp::Unknown => it.awaits_client || !it.is_sent,
            TakeUp::Waiting => true,
        })
    }

    /// Returns true if the end of the call `id` helps the waiting call `other`: the backend works on the call, or the call
    /// began earlier.
    pub(super) fn is_useful(&self, id: u64, other: &SentCall) -> bool {
        let call = self.calls.iter().find(|it| it.id == id);
        call.is_none_or(|it| self.take_up(it) == TakeUp::TakenUp || it.order < other.order)
    }

    /// Returns true if the slow call `id` is one of those that end next for the waiting call `other`, `ended` of which have
    /// ended since the last pause. Calls that the backend works on end first, the slowest first, and then the calls that began
    /// before `other`, the oldest first. Up to a quarter of the calls before `other` end at once.
    pub(super) fn is_next_to_end(&self, id: u64, other: &SentCall, ended: usize) -> bool {
        let is_ahead =
            |it: &&SentCall| it.order < other.order && self.take_up(it) != TakeUp::TakenUp;
        let ahead = self.calls.iter().filter(is_ahead).count();
        let most = (ahead / CALLS_AHEAD_DIVISOR).max(1);
        let Some(own) = self.end_rank(id, other) else {
            return false;
        };
        let ranks = self.slow.keys().filter_map(|id| self.end_rank(*id, other));
        ended + ranks.filter(|rank| *rank < own).count() < most
    }

    /// Returns the rank of a call among the calls that may end for `other`; None if the end of the call has no use.
    fn end_rank(&self, id: u64, other: &SentCall) -> Option<(TakeUp, u64, u64)> {
        let rate = self.slow.get(&id).copied();
        let rate = rate.filter(|rate| *rate < DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE / 1024)?;
        let call = self.calls.iter().find(|it| it.id == id);
        match call.map(|it| (self.take_up(it), it.order)) {
            None => Some((TakeUp::TakenUp, rate, id)),
            Some((TakeUp::TakenUp, _)) => Some((TakeUp::TakenUp, rate, id)),
            Some((take_up, order)) => (order < other.order).then_some((take_up, 0, order)),
        }
    }

    /// Counts a call that ends for the call `id` as the call of a newcomer.
    pub(super) fn count_ended(&mut self, id: u64) {
        if let Some(call) = self.call_mut(id) {
            call.ended_calls += 1;
        }
    }

    /// Lets the next check follow at once.
    #[cfg(test)]
    pub(super) fn forget_check(&mut self) {
        self.checked_at = None;
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.slow.is_empty()
    }
}

const TAKE_UP_CHECK: Duration = Duration::from_millis(CALL_TAKE_UP_CHECK_MILLISECONDS);
const QUEUED: Duration = Duration::from_millis(CALL_QUEUED_MILLISECONDS);
const CAPACITY_AGE: Duration = Duration::from_secs(CALL_CAPACITY_SECONDS);
const QUEUE_PATIENCE: Duration = Duration::from_secs(CALL_QUEUE_SECONDS);
