//! Ledger of open connections over all workers and all versions of HTTP: the connections of each client,
//! and the choice of connections to give up when no more may be opened.
//!
//! The kernel spreads the connections of a client over all workers, so no worker can count alone. The
//! ledger is locked once when a connection begins and once when the connection ends. In between, a
//! connection records its state in an atomic of the entry, which costs one store for each request and no
//! lock.

use std::cmp::Reverse;
use std::collections::{HashMap, hash_map};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::descriptors::{ClientDescriptor, descriptors};
use crate::base::fair_share::ClientNetwork;
use crate::limits::{
    IDLE_EVICTIONS_AT_ONCE_MAX, IDLE_EVICTIONS_CLIENT_DIVISOR, SMALL_HOLDER_DIVISOR,
};
use tokio::sync::Notify;

/// The open connections of all clients.
#[derive(Default)]
pub struct ConnectionLedger {
    by_client: Mutex<HashMap<ClientNetwork, Vec<Arc<ConnectionEntry>>>>,
    /// Notified when any worker has closed a connection.
    room: Notify,
}

/// Ledger entry of a connection.
pub struct ConnectionEntry {
    client: ClientNetwork,
    /// Index among the entries of the client; changes under the ledger's lock alone.
    position: AtomicUsize,
    /// Packed [`Activity`] of the connection.
    standing: AtomicU64,
    /// The standing for which the connection was chosen to be given up; [`NOT_CHOSEN`] if the connection
    /// wasn't chosen.
    chosen: AtomicU64,
    owner: ConnectionOwner,
    /// True for a connection of a trusted proxy, which carries the requests of many clients.
    is_of_proxy: bool,
}

/// Channel by which a connection is told to end.
pub enum ConnectionOwner {
    /// A row of the worker that receives the orders.
    Row(Arc<EvictionOrders>, usize),
    /// A task that waits for the notification (HTTP/3).
    Task(Box<Notify>),
}

/// Queue of connections that other workers want a worker to give up.
#[derive(Default)]
pub struct EvictionOrders {
    rows: Mutex<Vec<(usize, Arc<ConnectionEntry>)>>,
    news: Notify,
}

/// Activity of a connection: the moment at which the connection became idle, or at which the request
/// under way last moved. In milliseconds of the workers' clocks, which have a common origin.
///
/// An idle connection waits for the next request, for the end of the handshake or of a head, or for the
/// client to hear that the connection ends. Closing an idle connection loses no response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Activity {
    /// No request is under way.
    Idle(u64),
    /// A request is under way.
    Busy(u64),
}

/// Resource that is short.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// All of `connections` are open, and the given client wants another connection.
    Connections(ClientNetwork),
    /// The process has no descriptors left. Connections of HTTP/3 have no descriptors of their own.
    Descriptors,
}

/// Guard of a connection's entry. Dropping the guard removes the entry from the ledger.
pub struct ConnectionEntryGuard {
    ledger: Arc<ConnectionLedger>,
    entry: Arc<ConnectionEntry>,
    /// Descriptor of the connection; None over HTTP/3, where all connections share one descriptor.
    _descriptor: Option<ClientDescriptor>,
}

/// Mark of a connection that isn't chosen. No standing packs to the mark: the connection would have been
/// busy for 292 million years.
const NOT_CHOSEN: u64 = u64::MAX;

impl Activity {
    /// Packs the standing into a number; the lowest bit is 1 for a busy connection.
    fn pack(self) -> u64 {
        match self {
            Activity::Idle(since_ms) => since_ms << 1,
            Activity::Busy(since_ms) => since_ms << 1 | 1,
        }
    }

    fn unpack(packed: u64) -> Activity {
        match packed & 1 {
            0 => Activity::Idle(packed >> 1),
            _ => Activity::Busy(packed >> 1),
        }
    }
}

impl ConnectionEntry {
    /// Records the current standing of the connection.
    #[inline]
    pub fn set_activity(&self, standing: Activity) {
        self.standing.store(standing.pack(), Relaxed);
    }

    /// Returns the channel by which the connection is told to end.
    pub fn owner(&self) -> &ConnectionOwner {
        &self.owner
    }

    /// Returns true if the connection is to be given up. A connection that has made progress since the
    /// choice stays open, and is no longer chosen.
    pub fn is_evicted(&self) -> bool {
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
    pub async fn evicted(&self) {
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

    fn is_chosen(&self) -> bool {
        self.chosen.load(Relaxed) != NOT_CHOSEN
    }

    fn standing(&self) -> Activity {
        Activity::unpack(self.standing.load(Relaxed))
    }

    /// Returns the moment at which the connection became idle; `None` for a busy connection and for a
    /// connection already chosen.
    fn idle_since_ms(&self) -> Option<u64> {
        match self.standing() {
            Activity::Idle(since_ms) if !self.is_chosen() => Some(since_ms),
            _ => None,
        }
    }

    /// Returns true if the end of the connection would help against the shortage.
    fn helps(&self, shortage: Shortage) -> bool {
        let has_descriptor = matches!(self.owner, ConnectionOwner::Row(..));
        has_descriptor || shortage != Shortage::Descriptors
    }
}

impl EvictionOrders {
    /// Orders the worker to give up `row`, if the row still belongs to the connection of `entry`.
    pub fn give_up(&self, row: usize, entry: Arc<ConnectionEntry>) {
        self.rows().push((row, entry));
        self.news.notify_one();
    }

    /// Waits for orders.
    pub async fn next(&self) -> Vec<(usize, Arc<ConnectionEntry>)> {
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

impl ConnectionLedger {
    /// Returns true if `client` may open another connection under a limit of `most`; 0 means no limit.
    pub fn may_enter(&self, client: ClientNetwork, most: usize) -> bool {
        most == 0 || self.lock().get(&client).is_none_or(|own| own.len() < most)
    }

    /// Enters a connection of `client`, idle since `now_ms`. Returns `None` where the client has `most`
    /// connections already; 0 means no limit.
    pub fn enter(
        self: &Arc<Self>,
        client: ClientNetwork,
        most: usize,
        owner: ConnectionOwner,
        now_ms: u64,
    ) -> Option<ConnectionEntryGuard> {
        let mut by_client = self.lock();
        let entries = by_client.entry(client).or_default();
        if most > 0 && entries.len() >= most {
            return None;
        }
        Some(self.insert(entries, client, owner, now_ms, false))
    }

    /// Enters a connection of the trusted proxy `client`, idle since `now_ms`. A proxy may open any number of
    /// connections, and loses no connection with a request under way.
    pub fn enter_proxy(
        self: &Arc<Self>,
        client: ClientNetwork,
        owner: ConnectionOwner,
        now_ms: u64,
    ) -> ConnectionEntryGuard {
        let mut by_client = self.lock();
        let entries = by_client.entry(client).or_default();
        self.insert(entries, client, owner, now_ms, true)
    }

    fn insert(
        self: &Arc<Self>,
        entries: &mut Vec<Arc<ConnectionEntry>>,
        client: ClientNetwork,
        owner: ConnectionOwner,
        now_ms: u64,
        is_of_proxy: bool,
    ) -> ConnectionEntryGuard {
        let has_descriptor = matches!(owner, ConnectionOwner::Row(..));
        let entry = Arc::new(ConnectionEntry {
            client,
            position: AtomicUsize::new(entries.len()),
            standing: AtomicU64::new(Activity::Idle(now_ms).pack()),
            chosen: AtomicU64::new(NOT_CHOSEN),
            owner,
            is_of_proxy,
        });
        entries.push(entry.clone());
        ConnectionEntryGuard {
            ledger: self.clone(),
            entry,
            _descriptor: has_descriptor.then(|| descriptors().enter_client()),
        }
    }

    /// Returns a future that resolves when a connection is closed after the call.
    pub fn connection_closed(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Announces that a connection has been closed.
    pub fn notify_closed(&self) {
        self.room.notify_waiters();
    }

    /// Chooses the connections to give up. A client is ranked by all of the client's connections: the
    /// idle, the busy, and the chosen connections that have not ended yet.
    ///
    /// - A client loses an idle connection only to a client that holds fewer connections. Where no idle
    ///   connection meets the condition, the newcomer's client loses an idle connection of its own.
    /// - Among the clients that may lose an idle connection, the client with most connections loses the
    ///   connections that have been idle for longest. Between equals the longest idle connection decides.
    /// - Where no idle connection can go, the largest holder loses the busy connection with the longest
    ///   time since the request moved. The largest holder loses a busy connection only to a client that
    ///   holds far less, or to any client if the largest holder has more than three quarters of all
    ///   connections.
    /// - A largest holder without idle connections also loses a busy connection before a small holder
    ///   loses an idle connection. Otherwise a client with only busy connections would lose none, and
    ///   small clients would lose idle connections instead. The rule holds for a holder of more than
    ///   three quarters of all connections, and for a holder of more than an eighth if the small holder
    ///   has far less. Below an eighth a request is worth more than an idle connection.
    pub fn choose(&self, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
        let by_client = self.lock();
        let chosen = to_give_up(&by_client, shortage);
        for entry in &chosen {
            entry.chosen.store(entry.standing.load(Relaxed), Relaxed);
        }
        chosen
    }

    /// Chooses the waiting client to turn away where too many wait: the last connection of the client
    /// with most connections. Returns `None` where every waiting client holds no connection, or far less
    /// than the largest holder, because room can be made for the client.
    pub fn last_in_line(&self, clients: impl Iterator<Item = ClientNetwork>) -> Option<usize> {
        let by_client = self.lock();
        let most = by_client.values().map(Vec::len).max()?;
        let held = clients.map(|client| held_by(&by_client, client));
        let (nth, held) = held.enumerate().max_by_key(|(_, held)| *held)?;
        (held > 0 && !is_far_less(held, most)).then_some(nth)
    }

    /// Returns the position of the client with the fewest connections; the first position between equals.
    pub fn smallest_holder(&self, clients: impl Iterator<Item = ClientNetwork>) -> Option<usize> {
        let by_client = self.lock();
        let held = clients.map(|client| held_by(&by_client, client));
        held.enumerate()
            .min_by_key(|(_, held)| *held)
            .map(|(nth, _)| nth)
    }

    fn lock(&self) -> MutexGuard<'_, EntriesByClient> {
        self.by_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

type EntriesByClient = HashMap<ClientNetwork, Vec<Arc<ConnectionEntry>>>;

fn held_by(by_client: &EntriesByClient, client: ClientNetwork) -> usize {
    by_client.get(&client).map_or(0, Vec::len)
}

/// Returns true if a client with `held` connections, plus the wanted connection, holds at most an eighth of
/// `most`.
fn is_far_less(held: usize, most: usize) -> bool {
    SMALL_HOLDER_DIVISOR * (held + 1) <= most
}

/// Chooses the connections by the rules of [`ConnectionLedger::choose`].
fn to_give_up(by_client: &EntriesByClient, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
    let newcomer = match shortage {
        Shortage::Connections(newcomer) => Some(newcomer),
        Shortage::Descriptors => None,
    };
    let own = newcomer.map_or(0, |newcomer| held_by(by_client, newcomer));
    let nothing: &[Arc<ConnectionEntry>] = &[];
    // The largest holder of all, and the client that loses an idle connection.
    let (mut largest, mut holder, mut most, mut all) = (nothing, None, 0, 0);
    let (mut loser, mut rank) = (nothing, (0, Reverse(u64::MAX)));
    for (client, entries) in by_client {
        all += entries.len();
        if entries.len() < rank.0 {
            continue;
        }
        let (mut held, mut oldest) = (0, None);
        for entry in entries.iter().filter(|entry| entry.helps(shortage)) {
            held += 1;
            if let Some(since_ms) = entry.idle_since_ms() {
                oldest = Some(oldest.map_or(since_ms, |oldest: u64| oldest.min(since_ms)));
            }
        }
        // A busy connection of a proxy belongs to any client of the proxy, not to the largest holder.
        let is_of_proxy = entries.iter().any(|entry| entry.is_of_proxy);
        if held > most && !is_of_proxy {
            (largest, holder, most) = (entries, Some(*client), held);
        }
        if let Some(oldest) = oldest
            && (held > own || newcomer == Some(*client))
            && (held, Reverse(oldest)) > rank
        {
            (loser, rank) = (entries, (held, Reverse(oldest)));
        }
    }
    let idle = rank.0;
    let is_excessive = 4 * most > 3 * all;
    let is_larger = is_far_less(own.max(idle), most);
    // Without an idle connection to spare, a lack of descriptors ends no request: the client that would
    // gain isn't known.
    let ends_request = match idle {
        0 => newcomer.is_some() && holder != newcomer && (is_excessive || is_larger),
        _ => {
            let is_large = SMALL_HOLDER_DIVISOR * most > all;
            idle < most && holder != newcomer && (is_excessive || is_larger && is_large)
        }
    };
    if ends_request {
        let leaving = largest.iter().filter(|entry| entry.is_chosen()).count();
        // Each newcomer needs one connection. Later newcomers wait for connections that are about to end.
        let wanted = usize::from(leaving < at_once(most));
        longest(largest, wanted, shortage, |entry| {
            Some(entry.standing().pack())
        })
    } else {
        longest(loser, at_once(idle), shortage, |entry| {
            entry.idle_since_ms()
        })
    }
}

/// Returns the number of connections that a client with `held` connections may lose at once.
fn at_once(held: usize) -> usize {
    (held / IDLE_EVICTIONS_CLIENT_DIVISOR).clamp(1, IDLE_EVICTIONS_AT_ONCE_MAX)
}

/// Returns the entries with the longest standing, at most `wanted`.
fn longest(
    entries: &[Arc<ConnectionEntry>],
    wanted: usize,
    shortage: Shortage,
    since: fn(&ConnectionEntry) -> Option<u64>,
) -> Vec<Arc<ConnectionEntry>> {
    let may_go = |entry: &&Arc<ConnectionEntry>| entry.helps(shortage) && !entry.is_chosen();
    let mut longest: Vec<_> = entries
        .iter()
        .filter(may_go)
        .filter_map(|entry| since(entry).map(|since| (since, entry)))
        .collect();
    if (1..longest.len()).contains(&wanted) {
        longest.select_nth_unstable_by_key(wanted - 1, |(since, _)| *since);
    }
    longest.truncate(wanted);
    longest
        .into_iter()
        .map(|(_, entry)| entry.clone())
        .collect()
}

impl ConnectionEntryGuard {
    /// Returns the entry in the ledger.
    pub fn entry(&self) -> &Arc<ConnectionEntry> {
        &self.entry
    }

    /// Records the current standing of the connection.
    #[inline]
    pub fn set_activity(&self, standing: Activity) {
        self.entry.set_activity(standing);
    }
}

impl Drop for ConnectionEntryGuard {
    fn drop(&mut self) {
        let mut by_client = self.ledger.lock();
        let hash_map::Entry::Occupied(mut held) = by_client.entry(self.entry.client) else {
            return;
        };
        let entries = held.get_mut();
        let position = self.entry.position.load(Relaxed);
        entries.swap_remove(position);
        match entries.get(position) {
            Some(moved) => moved.position.store(position, Relaxed),
            None if entries.is_empty() => {
                held.remove();
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
