//! The ledger of open connections: which client holds which, over all workers and all versions of HTTP,
//! and which of them are given up when no more may be opened.
//!
//! The kernel spreads the connections of one client over all workers, so no worker can count alone. The
//! ledger is locked once when a connection begins and once when it ends. In between, a connection notes
//! where it stands in an atomic of its own, which costs one store for each request and no lock.

use std::cmp::Reverse;
use std::collections::{HashMap, hash_map};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::base::shares::ClientNetwork;
use crate::limits::{GIVEN_UP_AT_ONCE_MAX, GIVEN_UP_PART, GIVEN_UP_SMALL_PART};
use tokio::sync::Notify;

/// The open connections of all clients.
#[derive(Default)]
pub struct ConnectionLedger {
    by_client: Mutex<HashMap<ClientNetwork, Vec<Arc<Entry>>>>,
    /// A connection has been closed, by whichever worker.
    room: Notify,
}

/// One connection.
pub struct Entry {
    client: ClientNetwork,
    /// Its place among the entries of its client; changes under the ledger's lock alone.
    position: AtomicUsize,
    /// See [`Standing`].
    standing: AtomicU64,
    /// The standing for which it was chosen to be given up; [`NOT_CHOSEN`] if it wasn't.
    chosen: AtomicU64,
    owner: Owner,
}

/// How a connection is told that it is given up.
pub enum Owner {
    /// A row of the worker that these orders go to.
    Row(Arc<Orders>, usize),
    /// A task that waits for this (HTTP/3).
    Task(Box<Notify>),
}

/// What other workers want a worker to give up.
#[derive(Default)]
pub struct Orders {
    rows: Mutex<Vec<(usize, Arc<Entry>)>>,
    news: Notify,
}

/// Since when a connection is idle, or since when its request under way has not moved. Milliseconds of
/// the workers' clocks, which have one origin.
///
/// Idle is a connection that waits for its next request, for the end of its handshake or of a head, or
/// for the client to hear that it ends: closing it loses no response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// No request is under way.
    Idle(u64),
    /// A request is under way.
    Busy(u64),
}

/// What there is too little of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// All of `connections` are open, and this client wants another one.
    Connections(ClientNetwork),
    /// The process has no descriptors left. Connections of HTTP/3 have none of their own.
    Descriptors,
}

/// A connection's entry in the ledger, which is struck out when this is dropped.
pub struct Entered {
    ledger: Arc<ConnectionLedger>,
    entry: Arc<Entry>,
}

/// No connection stands so: it would have been busy for 292 million years.
const NOT_CHOSEN: u64 = u64::MAX;

impl Standing {
    /// Its lowest bit says whether it is busy.
    fn pack(self) -> u64 {
        match self {
            Standing::Idle(since_ms) => since_ms << 1,
            Standing::Busy(since_ms) => since_ms << 1 | 1,
        }
    }

    fn unpack(packed: u64) -> Standing {
        match packed & 1 {
            0 => Standing::Idle(packed >> 1),
            _ => Standing::Busy(packed >> 1),
        }
    }
}

impl Entry {
    /// Notes where the connection stands now.
    #[inline]
    pub fn stand(&self, standing: Standing) {
        self.standing.store(standing.pack(), Relaxed);
    }

    /// How it is told that it is given up.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether it is to be given up. One that has moved on since it was chosen stays, and is no longer
    /// chosen.
    pub fn is_given_up(&self) -> bool {
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

    /// Waits until it is given up. For connections of HTTP/3 alone.
    #[cfg(feature = "http3")]
    pub async fn given_up(&self) {
        let Owner::Task(told) = &self.owner else {
            return std::future::pending().await;
        };
        loop {
            told.notified().await;
            if self.is_given_up() {
                return;
            }
        }
    }

    fn is_chosen(&self) -> bool {
        self.chosen.load(Relaxed) != NOT_CHOSEN
    }

    fn standing(&self) -> Standing {
        Standing::unpack(self.standing.load(Relaxed))
    }

    /// Since when it is idle; None for one that is busy, and for one that is chosen already.
    fn idle_since_ms(&self) -> Option<u64> {
        match self.standing() {
            Standing::Idle(since_ms) if !self.is_chosen() => Some(since_ms),
            _ => None,
        }
    }

    /// Its end would help against this shortage.
    fn helps(&self, shortage: Shortage) -> bool {
        let has_descriptor = matches!(self.owner, Owner::Row(..));
        has_descriptor || shortage != Shortage::Descriptors
    }
}

impl Orders {
    /// Wants this row given up, if it is still this connection's.
    pub fn give_up(&self, row: usize, entry: Arc<Entry>) {
        self.rows().push((row, entry));
        self.news.notify_one();
    }

    /// Waits until there are orders.
    pub async fn next(&self) -> Vec<(usize, Arc<Entry>)> {
        loop {
            let rows = std::mem::take(&mut *self.rows());
            if !rows.is_empty() {
                return rows;
            }
            self.news.notified().await;
        }
    }

    fn rows(&self) -> MutexGuard<'_, Vec<(usize, Arc<Entry>)>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLedger {
    /// Whether `client` may have one connection more of `most`; 0: as many as it likes.
    pub fn may_enter(&self, client: ClientNetwork, most: usize) -> bool {
        most == 0 || self.lock().get(&client).is_none_or(|own| own.len() < most)
    }

    /// Enters a connection of `client`, idle since `now_ms`; None where it has `most` already (0: as many
    /// as it likes).
    pub fn enter(
        self: &Arc<Self>,
        client: ClientNetwork,
        most: usize,
        owner: Owner,
        now_ms: u64,
    ) -> Option<Entered> {
        let mut by_client = self.lock();
        let entries = by_client.entry(client).or_default();
        if most > 0 && entries.len() >= most {
            return None;
        }
        let entry = Arc::new(Entry {
            client,
            position: AtomicUsize::new(entries.len()),
            standing: AtomicU64::new(Standing::Idle(now_ms).pack()),
            chosen: AtomicU64::new(NOT_CHOSEN),
            owner,
        });
        entries.push(entry.clone());
        Some(Entered {
            ledger: self.clone(),
            entry,
        })
    }

    /// Told of each connection that is closed from now on.
    pub fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// A connection has been closed.
    pub fn has_room(&self) {
        self.room.notify_waiters();
    }

    /// Chooses the connections to give up. A client is ranked by all of its connections: the idle ones,
    /// the busy ones, and those that were chosen before and have not ended yet.
    ///
    /// - A client loses an idle connection only to a client that holds fewer connections. Where no such
    ///   idle connection exists, the newcomer's client loses an idle one of its own.
    /// - Of the clients that may lose an idle connection, the one with most connections loses those that
    ///   have been idle for longest. Between equals the longest idle connection decides.
    /// - Where no idle connection can go, the largest holder loses the busy connection whose request has
    ///   not moved for longest. It loses that only to a client that holds far less, or to any client if
    ///   it holds more than three quarters of all connections.
    /// - A largest holder without idle connections also loses a busy one before a small holder loses an
    ///   idle one. Otherwise a client that keeps all of its connections busy would lose none of them, and
    ///   small clients would lose theirs. This holds for a holder of more than three quarters of all
    ///   connections, and for a holder of more than an eighth if the small holder has far less. Below an
    ///   eighth a request is worth more than an idle connection.
    pub fn choose(&self, shortage: Shortage) -> Vec<Arc<Entry>> {
        let by_client = self.lock();
        let chosen = to_give_up(&by_client, shortage);
        for entry in &chosen {
            entry.chosen.store(entry.standing.load(Relaxed), Relaxed);
        }
        chosen
    }

    /// Which of these waiting clients to turn away where too many wait: the last of the one that holds
    /// most connections. None where each of them holds none, or far less than the largest holder, so that
    /// room can be made for it.
    pub fn last_in_line(&self, clients: impl Iterator<Item = ClientNetwork>) -> Option<usize> {
        let by_client = self.lock();
        let most = by_client.values().map(Vec::len).max()?;
        let held = clients.map(|client| held_by(&by_client, client));
        let (nth, held) = held.enumerate().max_by_key(|(_, held)| *held)?;
        (held > 0 && !is_far_less(held, most)).then_some(nth)
    }

    /// Which of these clients holds fewest connections; the first of those that hold as many.
    pub fn smallest_holder(&self, clients: impl Iterator<Item = ClientNetwork>) -> Option<usize> {
        let by_client = self.lock();
        let held = clients.map(|client| held_by(&by_client, client));
        held.enumerate()
            .min_by_key(|(_, held)| *held)
            .map(|(nth, _)| nth)
    }

    fn lock(&self) -> MutexGuard<'_, ByClient> {
        self.by_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

type ByClient = HashMap<ClientNetwork, Vec<Arc<Entry>>>;

fn held_by(by_client: &ByClient, client: ClientNetwork) -> usize {
    by_client.get(&client).map_or(0, Vec::len)
}

/// Whether a client that holds `held` connections holds at most an eighth of `most` with the one that it
/// wants.
fn is_far_less(held: usize, most: usize) -> bool {
    GIVEN_UP_SMALL_PART * (held + 1) <= most
}

/// See [`ConnectionLedger::choose`].
fn to_give_up(by_client: &ByClient, shortage: Shortage) -> Vec<Arc<Entry>> {
    let newcomer = match shortage {
        Shortage::Connections(newcomer) => Some(newcomer),
        Shortage::Descriptors => None,
    };
    let own = newcomer.map_or(0, |newcomer| held_by(by_client, newcomer));
    let nothing: &[Arc<Entry>] = &[];
    // The largest holder of all, and of the clients that may lose an idle connection the one that does.
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
        if held > most {
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
    // Without an idle connection to spare, a lack of descriptors ends no request: it isn't known for whom.
    let ends_request = match idle {
        0 => newcomer.is_some() && holder != newcomer && (is_excessive || is_larger),
        _ => {
            let is_large = GIVEN_UP_SMALL_PART * most > all;
            idle < most && holder != newcomer && (is_excessive || is_larger && is_large)
        }
    };
    if ends_request {
        let leaving = largest.iter().filter(|entry| entry.is_chosen()).count();
        // Each newcomer needs one. The newcomers after these wait for those that are about to end.
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

/// How many connections a client that holds this many may lose at once.
fn at_once(held: usize) -> usize {
    (held / GIVEN_UP_PART).clamp(1, GIVEN_UP_AT_ONCE_MAX)
}

/// At most `wanted` of the entries, those that have stood for longest.
fn longest(
    entries: &[Arc<Entry>],
    wanted: usize,
    shortage: Shortage,
    since: fn(&Entry) -> Option<u64>,
) -> Vec<Arc<Entry>> {
    let may_go = |entry: &&Arc<Entry>| entry.helps(shortage) && !entry.is_chosen();
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

impl Entered {
    /// The entry.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Notes where the connection stands now.
    #[inline]
    pub fn stand(&self, standing: Standing) {
        self.entry.stand(standing);
    }
}

impl Drop for Entered {
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
