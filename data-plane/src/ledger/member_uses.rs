//! Connections to members and the requests on them: what each client holds, and the choice of the request that gives way
//! when descriptors are short. Pure but for the wakers.
//!
//! The shares hold for the connections that a client's requests have opened. The choice counts the requests under way, also
//! those on connections that earlier requests of other clients have opened, and walks over all connections: a shortage is
//! rare, and a request on a kept connection takes no lock of other requests.

use crate::limits::{
    DESCRIPTOR_SHED_WAIT_MILLISECONDS, DESCRIPTOR_USES_PER_MILLISECOND, SERVER_STALL_MILLISECONDS,
    SHORT_STALL_MILLISECONDS, SMALL_HOLDER_DIVISOR,
};
use base::client_network::ClientNetwork;
use base::clock::monotonic_ms;
use base::fair_share::ClientHoldings;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Connections to members of the process.
#[derive(Default)]
pub(super) struct MemberUses {
    /// Connections in use, by the client of the request that opened each.
    opened: ClientHoldings,
    uses: Vec<Arc<MemberUse>>,
    /// Time of the next search for a request that gives way, in monotonic milliseconds.
    next_search_ms: u64,
}

/// Use of one connection by its present request.
#[derive(Default)]
pub(super) struct MemberUse {
    /// Index in the list of all uses; changes under the lock of the list alone.
    index: AtomicUsize,
    /// The request; None on an idle connection, and before the request waits for the first time.
    request: Mutex<Option<UsingRequest>>,
}

struct UsingRequest {
    client: ClientNetwork,
    progress: UseProgress,
    /// Moment of the last progress, in monotonic milliseconds.
    moved_ms: u64,
    /// True if the request has to end.
    is_told: bool,
    waker: Waker,
}

/// Progress of a request on a connection to a member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct UseProgress {
    /// Bytes exchanged with the member.
    pub(crate) bytes: u64,
    /// True while the request waits for its client, which sends the request slowly or takes the response slowly.
    pub(crate) awaits_client: bool,
}

/// Request that has found no descriptor, and for which another request may end.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Shedding {
    /// Client of the request.
    pub(crate) client: ClientNetwork,
    /// Time since the request found no descriptor for the first time.
    pub(crate) waited: Duration,
    /// Current time in monotonic milliseconds.
    pub(crate) now_ms: u64,
}

/// Task of a request that has to end.
pub(super) struct ToldRequest(Waker);

/// Request under way that may give way.
struct Candidate<'a> {
    usage: &'a MemberUse,
    client: ClientNetwork,
    awaits_client: bool,
    moved_ms: u64,
}

impl MemberUses {
    /// Returns the number of connections in use.
    pub(super) fn opened(&self) -> usize {
        self.opened.all()
    }

    /// Returns the number of connections in use that requests of `client` have opened.
    pub(super) fn opened_for(&self, client: ClientNetwork) -> usize {
        self.opened.of(client)
    }

    /// Returns true if the shares allow `client` another of `max` connections.
    pub(super) fn may_open(&self, client: ClientNetwork, max: usize) -> bool {
        self.opened.may_take(client, 1, max)
    }

    /// Enters a connection for a request of `client`; None for a check.
    pub(super) fn open(&mut self, client: Option<ClientNetwork>) -> Arc<MemberUse> {
        if let Some(client) = client {
            self.opened.add(client, 1);
        }
        let usage = Arc::new(MemberUse::default());
        usage.index.store(self.uses.len(), Relaxed);
        self.uses.push(Arc::clone(&usage));
        usage
    }

    /// Records that a connection opened for `client` is idle.
    pub(super) fn release(&mut self, client: ClientNetwork) {
        self.opened.remove(client, 1);
    }

    /// Removes a connection opened for `client`; None for an idle connection.
    pub(super) fn close(&mut self, usage: &MemberUse, client: Option<ClientNetwork>) {
        if let Some(client) = client {
            self.release(client);
        }
        let index = usage.index.load(Relaxed);
        self.uses.swap_remove(index);
        if let Some(moved) = self.uses.get(index) {
            moved.index.store(index, Relaxed);
        }
        if self.uses.is_empty() {
            self.uses = Vec::new();
        }
    }

    /// Chooses a request that gives way to a request of another client, and tells it to end:
    ///
    /// - A client with at least eight times as many requests as the other client would have loses the request without
    ///   progress for longest, if the request has not moved for 1 s. A client that has waited for 500 ms also ends a request
    ///   that moves: a member may send a few bytes now and then.
    /// - Where all clients have few requests, a client without a request takes the place of a request that has waited for its
    ///   client for 1 s, or for the member for 10 s.
    ///
    /// The searches walk over all connections, and take a bounded part of the time.
    pub(super) fn tell_one(&mut self, shedding: Shedding, max: usize) -> Option<ToldRequest> {
        let Shedding { client, now_ms, .. } = shedding;
        if now_ms < self.next_search_ms {
            return None;
        }
        self.next_search_ms = now_ms + self.uses.len() as u64 / DESCRIPTOR_USES_PER_MILLISECOND;
        let candidates: Vec<_> = self.uses.iter().filter_map(|it| it.candidate()).collect();
        let mut held = ClientHoldings::default();
        candidates.iter().for_each(|it| held.add(it.client, 1));
        let largest = held.largest_beside(client, max)?;
        let is_still =
            |it: &&Candidate<'_>, milliseconds| now_ms.saturating_sub(it.moved_ms) >= milliseconds;
        let longest = |of: &mut dyn Iterator<Item = &Candidate<'_>>| {
            let longest = of.min_by_key(|it| it.moved_ms)?;
            longest.usage.tell(longest.moved_ms)
        };
        if SMALL_HOLDER_DIVISOR * (largest.other + 1) <= largest.units {
            let has_waited = shedding.waited >= SHED_WAIT;
            let least_ms = if has_waited {
                0
            } else {
                SHORT_STALL_MILLISECONDS
            };
            let own = candidates.iter().filter(|it| it.client == largest.client);
            return longest(&mut own.filter(|it| is_still(it, least_ms)));
        }
        if largest.other > 0 {
            return None;
        }
        let stalled = candidates.iter().filter(|it| it.awaits_client);
        longest(&mut stalled.filter(|it| is_still(it, SHORT_STALL_MILLISECONDS))).or_else(|| {
            let silent = candidates.iter();
            longest(&mut silent.filter(|it| is_still(it, SERVER_STALL_MILLISECONDS)))
        })
    }
}

const SHED_WAIT: Duration = Duration::from_millis(DESCRIPTOR_SHED_WAIT_MILLISECONDS);

impl MemberUse {
    /// Records the progress of the request of `client`, and the task to wake. Ready if the request has to end.
    pub(super) fn poll_told(
        &self,
        client: ClientNetwork,
        progress: UseProgress,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let mut request = self.lock();
        let Some(known) = &mut *request else {
            *request = Some(UsingRequest {
                client,
                progress,
                moved_ms: monotonic_ms(),
                is_told: false,
                waker: cx.waker().clone(),
            });
            return Poll::Pending;
        };
        if known.is_told {
            return Poll::Ready(());
        }
        if known.progress.bytes != progress.bytes {
            known.moved_ms = monotonic_ms();
        }
        known.progress = progress;
        known.waker.clone_from(cx.waker());
        Poll::Pending
    }

    /// Records the end of the request on a connection that stays open.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    /// Returns the request as one that may give way, unless the request is about to end.
    fn candidate(&self) -> Option<Candidate<'_>> {
        let request = self.lock();
        let request = request.as_ref().filter(|request| !request.is_told)?;
        Some(Candidate {
            usage: self,
            client: request.client,
            awaits_client: request.progress.awaits_client,
            moved_ms: request.moved_ms,
        })
    }

    /// Tells the request to end, unless the request has moved or ended since the choice. The task is woken without any lock.
    fn tell(&self, moved_ms: u64) -> Option<ToldRequest> {
        let mut request = self.lock();
        let request = request.as_mut().filter(|it| it.moved_ms == moved_ms)?;
        request.is_told = true;
        Some(ToldRequest(request.waker.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<UsingRequest>> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToldRequest {
    /// Wakes the task of the request.
    pub(super) fn wake(self) {
        self.0.wake();
    }
}
