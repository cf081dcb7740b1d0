//! Connections to members and the requests on them: what each client holds, and the choice of the request that gives way
//! when descriptors are short. Pure but for the wakers.
//!
//! The shares hold for the connections that a client's requests have opened. The choice counts the connections with requests
//! under way, also those that earlier requests of other clients have opened, and walks over all connections: a shortage is
//! rare, and a request on a kept connection takes no lock of requests on other connections.
//!
//! A connection of HTTP/2 counts for a client as long as all its requests are of that client, and gives way with all its
//! requests. A connection with requests of several clients counts for none of them: it serves all of them with one
//! descriptor, and gives way only if all its requests are stuck.

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

/// Use of one connection by its present requests.
#[derive(Default)]
pub(crate) struct MemberUse {
    /// Index in the list of all uses; changes under the lock of the list alone.
    index: AtomicUsize,
    requests: Mutex<UsingRequests>,
}

/// Requests on a connection.
#[derive(Default)]
struct UsingRequests {
    /// The request of HTTP/1.1; None on an idle connection, and before the request waits for the first time.
    only: Option<UsingRequest>,
    /// The requests of HTTP/2, by the identifiers of their streams.
    streams: Vec<(u32, UsingRequest)>,
    /// True if the requests have to end.
    is_told: bool,
}

struct UsingRequest {
    client: ClientNetwork,
    /// None before the request waits for the first time.
    progress: Option<UseProgress>,
    /// Moment of the last progress, in monotonic milliseconds.
    moved_ms: u64,
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

/// Tasks of requests that have to end.
pub(super) struct ToldRequests(Vec<Waker>);

/// Connection with requests under way that may give way.
struct Candidate<'a> {
    usage: &'a MemberUse,
    state: UseState,
}

/// State of the requests on a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct UseState {
    /// Client of all requests; None for requests of several clients.
    client: Option<ClientNetwork>,
    /// True if all requests wait for their clients.
    awaits_client: bool,
    /// Moment of the last progress of a request, in monotonic milliseconds.
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
        self.enter(Arc::clone(&usage));
        usage
    }

    /// Enters a connection, perhaps again.
    pub(super) fn enter(&mut self, usage: Arc<MemberUse>) {
        usage.index.store(self.uses.len(), Relaxed);
        self.uses.push(usage);
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

    /// Chooses a connection to a member, and tells its requests to end in favour of a request of another client:
    ///
    /// - A client with at least eight times as many connections as the other client would have loses the connection without
    ///   progress for longest, if no request on it has moved for 1 s. A client that has waited for 500 ms also ends a request
    ///   that moves: a member may send a few bytes now and then.
    /// - Where all clients have few connections, a client without one takes the place of requests that have waited for their
    ///   clients for 1 s, or for the member for 10 s.
    ///
    /// The searches walk over all connections, and take a bounded part of the time.
    pub(super) fn tell_one(&mut self, shedding: Shedding, max: usize) -> Option<ToldRequests> {
        let Shedding { client, now_ms, .. } = shedding;
        if now_ms < self.next_search_ms {
            return None;
        }
        self.next_search_ms = now_ms + self.uses.len() as u64 / DESCRIPTOR_USES_PER_MILLISECOND;
        let candidates: Vec<_> = self.uses.iter().filter_map(|it| it.candidate()).collect();
        let mut held = ClientHoldings::default();
        let clients = candidates.iter().filter_map(|it| it.state.client);
        clients.for_each(|client| held.add(client, 1));
        let is_still = |it: &&Candidate<'_>, milliseconds| {
            now_ms.saturating_sub(it.state.moved_ms) >= milliseconds
        };
        let longest = |of: &mut dyn Iterator<Item = &Candidate<'_>>| {
            let longest = of.min_by_key(|it| it.state.moved_ms)?;
            longest.usage.tell(longest.state)
        };
        let largest = held.largest_beside(client, max);
        if let Some(largest) = &largest
            && SMALL_HOLDER_DIVISOR * (largest.other + 1) <= largest.units
        {
            let has_waited = shedding.waited >= SHED_WAIT;
            let least_ms = if has_waited {
                0
            } else {
                SHORT_STALL_MILLISECONDS
            };
            let is_own = |it: &&Candidate<'_>| it.state.client == Some(largest.client);
            let own = candidates.iter().filter(is_own);
            return longest(&mut own.filter(|it| is_still(it, least_ms)));
        }
        if largest.map_or(held.of(client), |largest| largest.other) > 0 {
            return None;
        }
        let stalled = candidates.iter().filter(|it| it.state.awaits_client);
        longest(&mut stalled.filter(|it| is_still(it, SHORT_STALL_MILLISECONDS))).or_else(|| {
            let silent = candidates.iter();
            longest(&mut silent.filter(|it| is_still(it, SERVER_STALL_MILLISECONDS)))
        })
    }
}

const SHED_WAIT: Duration = Duration::from_millis(DESCRIPTOR_SHED_WAIT_MILLISECONDS);

impl MemberUse {
    /// Records the progress of the request of `client` over HTTP/1.1, and the task to wake. Ready if the request has to end.
    pub(super) fn poll_told(
        &self,
        client: ClientNetwork,
        progress: UseProgress,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let mut requests = self.lock();
        if requests.is_told {
            return Poll::Ready(());
        }
        let request = requests
            .only
            .get_or_insert_with(|| UsingRequest::new(client));
        request.note(progress, cx);
        Poll::Pending
    }

    /// Records the end of the request of HTTP/1.1 on a connection that stays open.
    pub(super) fn end(&self) {
        let mut requests = self.lock();
        requests.only = None;
        requests.is_told = false;
    }

    /// Records the beginning of a request of `client` on a stream of HTTP/2.
    pub(crate) fn begin_stream(&self, id: u32, client: ClientNetwork) {
        self.lock().streams.push((id, UsingRequest::new(client)));
    }

    /// Records the end of a request on a stream.
    pub(crate) fn end_stream(&self, id: u32) {
        let mut requests = self.lock();
        requests.streams.retain(|(known, _)| *known != id);
        if requests.streams.is_empty() {
            requests.streams = Vec::new();
        }
    }

    /// Records the progress of the request on a stream, and the task to wake. Ready if the request has to end.
    pub(crate) fn poll_stream_told(
        &self,
        id: u32,
        progress: UseProgress,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let mut requests = self.lock();
        if requests.is_told {
            return Poll::Ready(());
        }
        let mut streams = requests.streams.iter_mut();
        if let Some((_, request)) = streams.find(|(known, _)| *known == id) {
            request.note(progress, cx);
        }
        Poll::Pending
    }

    /// Returns true if the requests on the connection have to end. No further request may begin on it.
    pub(crate) fn is_told(&self) -> bool {
        self.lock().is_told
    }

    /// Returns true if a stream has a request of the client.
    pub(super) fn has_stream_of(&self, client: ClientNetwork) -> bool {
        let requests = self.lock();
        let mut streams = requests.streams.iter();
        streams.any(|(_, request)| request.client == client)
    }

    /// Returns the connection as one that may give way, unless its requests are about to end.
    fn candidate(&self) -> Option<Candidate<'_>> {
        let state = self.lock().state()?;
        Some(Candidate { usage: self, state })
    }

    /// Tells the requests to end, unless one of them has moved, begun or ended since the choice. The tasks are woken without
    /// any lock.
    fn tell(&self, state: UseState) -> Option<ToldRequests> {
        let mut requests = self.lock();
        if requests.state() != Some(state) {
            return None;
        }
        requests.is_told = true;
        let wakers = requests.all().map(|request| request.waker.clone());
        Some(ToldRequests(wakers.collect()))
    }

    fn lock(&self) -> MutexGuard<'_, UsingRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsingRequests {
    fn all(&self) -> impl Iterator<Item = &UsingRequest> {
        let streams = self.streams.iter().map(|(_, request)| request);
        self.only.iter().chain(streams)
    }

    /// Returns the state of the requests; None without a request, and for requests that are about to end.
    fn state(&self) -> Option<UseState> {
        if self.is_told {
            return None;
        }
        let first = self.all().next()?;
        let is_of_first = |request: &UsingRequest| request.client == first.client;
        let awaits_client =
            |request: &UsingRequest| request.progress.is_some_and(|it| it.awaits_client);
        Some(UseState {
            client: self.all().all(is_of_first).then_some(first.client),
            awaits_client: self.all().all(awaits_client),
            moved_ms: self.all().map(|request| request.moved_ms).max()?,
        })
    }
}

impl UsingRequest {
    fn new(client: ClientNetwork) -> UsingRequest {
        UsingRequest {
            client,
            progress: None,
            moved_ms: monotonic_ms(),
            waker: Waker::noop().clone(),
        }
    }

    fn note(&mut self, progress: UseProgress, cx: &Context<'_>) {
        let moved = |known: UseProgress| known.bytes != progress.bytes;
        if self.progress.is_some_and(moved) {
            self.moved_ms = monotonic_ms();
        }
        self.progress = Some(progress);
        self.waker.clone_from(cx.waker());
    }
}

impl ToldRequests {
    /// Wakes the tasks of the requests.
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}
