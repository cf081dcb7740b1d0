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
use crate::limits::{GIVEN_UP_AT_ONCE_MAX, GIVEN_UP_PART};
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

    /// Its end would help against this shortage.
    fn helps(&self, shortage: Shortage) -> bool {
        let has_descriptor = matches!(self.owner, Owner::Row(..));
        !self.is_chosen() && (has_descriptor || shortage != Shortage::Descriptors)
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

    /// Chooses what to give up: the longest idle connections of the client that holds most, among those
    /// that hold an idle one at all. Of clients that hold as many, the one with the longest idle
    /// connection loses it.
    ///
    /// Without any idle connection, a client that holds more than three quarters of all loses the one
    /// whose request has not moved for longest, for the sake of another client. A client that holds so
    /// many requests open for so long keeps the server from everybody else; and below three quarters no
    /// request under way is worth less than one that has not begun.
    pub fn choose(&self, shortage: Shortage) -> Vec<Arc<Entry>> {
        let by_client = self.lock();
        let chosen = match longest_idle(&by_client, shortage) {
            chosen if chosen.is_empty() => longest_stuck(&by_client, shortage),
            chosen => chosen,
        };
        for entry in &chosen {
            entry.chosen.store(entry.standing.load(Relaxed), Relaxed);
        }
        chosen
    }

    /// The client that holds more than three quarters of all connections, if one does.
    pub fn nearly_all(&self) -> Option<ClientNetwork> {
        nearly_all(&self.lock()).map(|(client, _)| client)
    }

    /// Which of these clients holds fewest connections; the first of those that hold as many.
    pub fn smallest_holder(&self, clients: impl Iterator<Item = ClientNetwork>) -> Option<usize> {
        let by_client = self.lock();
        let held = clients.map(|client| by_client.get(&client).map_or(0, Vec::len));
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

/// The idle connections to give up, the longest idle ones of the largest holder.
fn longest_idle(by_client: &ByClient, shortage: Shortage) -> Vec<Arc<Entry>> {
    let mut best: Option<&[Arc<Entry>]> = None;
    // How many connections of the best client count, and since when the longest idle one is idle.
    let mut best_rank = (0, Reverse(u64::MAX));
    for entries in by_client.values() {
        if entries.len() < best_rank.0 {
            continue;
        }
        let (mut own, mut oldest) = (0, None);
        for entry in entries.iter().filter(|entry| entry.helps(shortage)) {
            own += 1;
            if let Standing::Idle(since_ms) = entry.standing() {
                oldest = Some(oldest.map_or(since_ms, |oldest: u64| oldest.min(since_ms)));
            }
        }
        if let Some(oldest) = oldest
            && (own, Reverse(oldest)) > best_rank
        {
            best = Some(entries);
            best_rank = (own, Reverse(oldest));
        }
    }
    let Some(entries) = best else {
        return Vec::new();
    };
    let mut idle: Vec<_> = entries
        .iter()
        .filter(|entry| entry.helps(shortage))
        .filter_map(|entry| match entry.standing() {
            Standing::Idle(since_ms) => Some((since_ms, entry)),
            Standing::Busy(_) => None,
        })
        .collect();
    let wanted = (best_rank.0 / GIVEN_UP_PART).clamp(1, GIVEN_UP_AT_ONCE_MAX);
    if wanted < idle.len() {
        idle.select_nth_unstable_by_key(wanted - 1, |(since_ms, _)| *since_ms);
        idle.truncate(wanted);
    }
    idle.into_iter().map(|(_, entry)| entry.clone()).collect()
}

/// The client that holds more than three quarters of all connections, and its entries.
fn nearly_all(by_client: &ByClient) -> Option<(ClientNetwork, &Vec<Arc<Entry>>)> {
    let all: usize = by_client.values().map(Vec::len).sum();
    let mut clients = by_client.iter();
    let found = clients.find(|(_, entries)| 4 * entries.len() > 3 * all);
    found.map(|(client, entries)| (*client, entries))
}

/// The busy connection to give up where none is idle.
fn longest_stuck(by_client: &ByClient, shortage: Shortage) -> Vec<Arc<Entry>> {
    let Shortage::Connections(newcomer) = shortage else {
        return Vec::new();
    };
    let Some((holder, entries)) = nearly_all(by_client) else {
        return Vec::new();
    };
    // Those that were chosen already are on their way out: one for each newcomer is enough.
    if holder == newcomer || entries.iter().any(|entry| entry.is_chosen()) {
        return Vec::new();
    }
    let stuck = entries.iter().min_by_key(|entry| entry.standing().pack());
    stuck.cloned().into_iter().collect()
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
