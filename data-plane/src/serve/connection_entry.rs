//! Entry of a connection in the ledger of connections: its activity, and the order to end in favour of another connection.

use crate::limits::{
    PAGE_LOAD_MILLISECONDS, SERVED_CLIENT_WAIT_MILLISECONDS, SERVER_STALL_MILLISECONDS,
    SHORT_IDLE_MILLISECONDS, SHORT_STALL_MILLISECONDS,
};
use base::client_history::ClientStanding;
use base::client_network::ClientNetwork;
use base::limits::NEWCOMER_WAIT_MILLISECONDS;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Ledger entry of a connection.
pub(crate) struct ConnectionEntry {
    pub(super) client: ClientNetwork,
    /// Index among the entries of the client; changes under the ledger's lock alone.
    pub(super) position: AtomicUsize,
    /// Moment at which the connection was opened, in milliseconds of the workers' clocks.
    opened_ms: u64,
    /// Packed [`Activity`] of the connection.
    standing: AtomicU64,
    /// The standing for which the connection was chosen to be given up; [`NOT_CHOSEN`] if the connection
    /// wasn't chosen.
    chosen: AtomicU64,
    owner: ConnectionOwner,
    /// True for a connection of a trusted proxy, which carries the requests of many clients.
    pub(super) is_of_proxy: bool,
}

/// Channel by which a connection is told to end.
pub(crate) enum ConnectionOwner {
    /// A row of the worker that receives the orders.
    Row(Arc<EvictionOrders>, usize),
    /// A task that waits for the notification (HTTP/3).
    #[cfg_attr(not(feature = "http3"), expect(dead_code))]
    Task(Box<Notify>),
}

/// Queue of connections that other workers want a worker to give up.
#[derive(Default)]
pub(crate) struct EvictionOrders {
    rows: Mutex<Vec<(usize, Arc<ConnectionEntry>)>>,
    news: Notify,
}

/// Activity of a connection: the moment at which the connection became idle, or at which the request
/// under way last moved. In milliseconds of the workers' clocks, which have a common origin.
///
/// An idle connection waits for the next request, for the end of the handshake or of a head, or for the
/// client to hear that the connection ends. Closing an idle connection loses no response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// No request is under way. The time of a handshake lies [`HANDSHAKE_LEAD_MILLISECONDS`] after its beginning.
    ///
    /// [`HANDSHAKE_LEAD_MILLISECONDS`]: crate::limits::HANDSHAKE_LEAD_MILLISECONDS
    Idle(u64),
    /// A request is under way.
    Busy(u64),
    /// A request is under way, and waits for bytes of its content, or for room for its response: only the client can make it
    /// move.
    AwaitsClient(u64),
}

/// Resource that is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shortage {
    /// All of `connections` are open, and a client wants another connection.
    Connections(Newcomer),
    /// The process has no descriptors left. Connections of HTTP/3 have no descriptors of their own.
    Descriptors,
}

/// Client that wants another connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Newcomer {
    /// The client.
    pub client: ClientNetwork,
    /// Time since which the connection waits, in milliseconds of the workers' clocks.
    pub since_ms: u64,
    /// Current time in milliseconds.
    pub now_ms: u64,
    /// Number of connections that wait with the client's. The more wait, the more requests end at once.
    pub waiting: usize,
    /// True if a descriptor is missing, which a connection of HTTP/3 does not have.
    pub needs_descriptor: bool,
}

/// Mark of a connection that isn't chosen. No standing packs to the mark: the connection would have been
/// busy for 146 million years.
const NOT_CHOSEN: u64 = u64::MAX;

impl Activity {
    /// Packs the activity into a number; the lowest two bits are 0 for an idle connection.
    pub(super) fn pack(self) -> u64 {
        match self {
            Activity::Idle(since_ms) => since_ms << 2,
            Activity::Busy(since_ms) => since_ms << 2 | 1,
            Activity::AwaitsClient(since_ms) => since_ms << 2 | 2,
        }
    }

    /// Returns the moment of the activity.
    pub(super) fn since_ms(self) -> u64 {
        match self {
            Activity::Idle(since_ms)
            | Activity::Busy(since_ms)
            | Activity::AwaitsClient(since_ms) => since_ms,
        }
    }

    fn unpack(packed: u64) -> Activity {
        match packed & 3 {
            0 => Activity::Idle(packed >> 2),
            1 => Activity::Busy(packed >> 2),
            _ => Activity::AwaitsClient(packed >> 2),
        }
    }
}

impl ConnectionEntry {
    /// Creates the entry of a connection of `client`, idle since `now_ms`, at `position` among the entries of the client.
    pub(super) fn new(
        client: ClientNetwork,
        position: usize,
        owner: ConnectionOwner,
        is_of_proxy: bool,
        now_ms: u64,
    ) -> ConnectionEntry {
        ConnectionEntry {
            client,
            position: AtomicUsize::new(position),
            opened_ms: now_ms,
            standing: AtomicU64::new(Activity::Idle(now_ms).pack()),
            chosen: AtomicU64::new(NOT_CHOSEN),
            owner,
            is_of_proxy,
        }
    }

    /// Chooses the connection to be given up in its present activity.
    pub(super) fn choose(&self) {
        self.chosen.store(self.standing.load(Relaxed), Relaxed);
    }

    /// Returns the activity in which the connection was chosen.
    pub(super) fn chosen_activity(&self) -> Activity {
        Activity::unpack(self.chosen.load(Relaxed))
    }

    /// Returns the moment at which the connection was opened.
    pub(super) fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    /// Returns the time for which the connection has been open, in milliseconds.
    pub(super) fn age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.opened_ms)
    }

    /// Records the current standing of the connection.
    #[inline]
    pub(crate) fn set_activity(&self, standing: Activity) {
        self.standing.store(standing.pack(), Relaxed);
    }

    /// Returns the channel by which the connection is told to end.
    pub(crate) fn owner(&self) -> &ConnectionOwner {
        &self.owner
    }

    /// Returns true if the connection is to be given up. A connection that has made progress since the
    /// choice stays open, and is no longer chosen.
    pub(crate) fn is_evicted(&self) -> bool {
        let chosen = self.chosen.load(Relaxed);
        if chosen == NOT_CHOSEN {
            return false;
        }
        let stands = chosen == self.standing.load(Relaxed);
        if !stands {
            self.chosen.store(NOT_CHOSEN, Relaxed);
        }
        stands
    }

    /// Waits until the connection is given up. For connections of HTTP/3 alone.
    #[cfg(feature = "http3")]
    pub(crate) async fn evicted(&self) {
        let ConnectionOwner::Task(told) = &self.owner else {
            return std::future::pending().await;
        };
        loop {
            told.notified().await;
            if self.is_evicted() {
                return;
            }
        }
    }

    pub(super) fn is_chosen(&self) -> bool {
        self.chosen.load(Relaxed) != NOT_CHOSEN
    }

    pub(super) fn standing(&self) -> Activity {
        Activity::unpack(self.standing.load(Relaxed))
    }

    /// Returns the moment at which the connection became idle; `None` for a busy connection and for a
    /// connection already chosen.
    pub(super) fn idle_since_ms(&self) -> Option<u64> {
        match self.standing() {
            Activity::Idle(since_ms) if !self.is_chosen() => Some(since_ms),
            _ => None,
        }
    }

    /// Returns true if the end of the connection would help against the shortage.
    pub(super) fn helps(&self, shortage: Shortage) -> bool {
        let has_descriptor = matches!(self.owner, ConnectionOwner::Row(..));
        has_descriptor || !shortage.is_of_descriptors()
    }
}

impl EvictionOrders {
    /// Orders the worker to give up `row`, if the row still belongs to the connection of `entry`.
    pub(crate) fn give_up(&self, row: usize, entry: Arc<ConnectionEntry>) {
        self.rows().push((row, entry));
        self.news.notify_one();
    }

    /// Waits for orders.
    pub(crate) async fn next(&self) -> Vec<(usize, Arc<ConnectionEntry>)> {
        loop {
            let rows = std::mem::take(&mut *self.rows());
            if !rows.is_empty() {
                return rows;
            }
            self.news.notified().await;
        }
    }

    fn rows(&self) -> MutexGuard<'_, Vec<(usize, Arc<ConnectionEntry>)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shortage {
    /// Returns true if only connections with a descriptor of their own help.
    fn is_of_descriptors(self) -> bool {
        self.newcomer()
            .is_none_or(|newcomer| newcomer.needs_descriptor)
    }

    /// Returns the client that wants a connection.
    pub(super) fn newcomer(self) -> Option<Newcomer> {
        match self {
            Shortage::Connections(newcomer) => Some(newcomer),
            Shortage::Descriptors => None,
        }
    }
}

impl Newcomer {
    /// Returns true if the request of a connection has not moved for so long that it gives way at once.
    pub(super) fn is_stalled(&self, activity: Activity) -> bool {
        match activity {
            Activity::Idle(_) => false,
            Activity::AwaitsClient(since_ms) => self.is_past(since_ms, SHORT_STALL_MILLISECONDS),
            Activity::Busy(since_ms) => self.is_past(since_ms, SERVER_STALL_MILLISECONDS),
        }
    }

    /// Returns true if the only connection of a client, idle since `since_ms`, gives way at once. To a slow client, it gives
    /// way as late as a request.
    pub(super) fn is_short_idle_over(
        &self,
        entry: &ConnectionEntry,
        since_ms: u64,
        standing: ClientStanding,
    ) -> bool {
        if standing == ClientStanding::Slow {
            self.is_past(since_ms, SHORT_STALL_MILLISECONDS)
        } else {
            self.is_past(since_ms, SHORT_IDLE_MILLISECONDS)
                || entry.age_ms(self.now_ms) >= PAGE_LOAD_MILLISECONDS
        }
    }

    /// Returns true if the moment lies in the future, as that of a handshake in its first part.
    pub(super) fn is_ahead(&self, since_ms: u64) -> bool {
        since_ms > self.now_ms
    }

    /// Returns true if the newcomer has waited so long that connections with recent activity give way too.
    pub(super) fn has_waited(&self, standing: ClientStanding) -> bool {
        match standing {
            ClientStanding::New => self.is_past(self.since_ms, NEWCOMER_WAIT_MILLISECONDS),
            ClientStanding::Served => self.is_past(self.since_ms, SERVED_CLIENT_WAIT_MILLISECONDS),
            ClientStanding::Slow => false,
        }
    }

    /// Returns true if the newcomer has waited so long that a request that moves gives way.
    pub(super) fn may_end_moving(&self, entry: &ConnectionEntry, standing: ClientStanding) -> bool {
        let is_old = entry.age_ms(self.now_ms) >= SERVED_CLIENT_WAIT_MILLISECONDS;
        self.has_waited(standing) && (standing == ClientStanding::New || is_old)
    }

    fn is_past(&self, since_ms: u64, milliseconds: u64) -> bool {
        self.now_ms >= since_ms.saturating_add(milliseconds)
    }
}
