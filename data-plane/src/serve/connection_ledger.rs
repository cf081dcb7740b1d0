//! Ledger of open connections over all workers and all versions of HTTP: the connections of each client,
//! and the choice of connections to give up when no more may be opened.
//!
//! The kernel spreads the connections of a client over all workers, so no worker can count alone. The
//! ledger is locked once when a connection begins and once when the connection ends. In between, a
//! connection records its state in an atomic of the entry, which costs one store for each request and no
//! lock.

use crate::ledger::descriptors::{ClientDescriptor, descriptors};
use crate::limits::FEW_CONNECTIONS_MAX;
use crate::serve::connection_entry::{Activity, ConnectionEntry, ConnectionOwner, Shortage};
use crate::serve::connection_holders::{ConnectionHolders, is_far_less};
use base::call_shares::WaitRank;
use base::client_history::ClientStanding;
use base::client_network::ClientNetwork;
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use std::collections::hash_map;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The open connections of all clients.
#[derive(Default)]
pub struct ConnectionLedger {
    holders: Mutex<ConnectionHolders>,
    /// Notified when any worker has closed a connection.
    room: Notify,
}

/// Guard of a connection's entry. Dropping the guard removes the entry from the ledger.
pub(crate) struct ConnectionEntryGuard {
    ledger: Arc<ConnectionLedger>,
    entry: Arc<ConnectionEntry>,
    /// Descriptor of the connection; None over HTTP/3, where all connections share one descriptor.
    _descriptor: Option<ClientDescriptor>,
}

impl ConnectionLedger {
    /// Returns true if `client` may open another connection under a limit of `most`; 0 means no limit.
    pub(crate) fn may_enter(&self, client: ClientNetwork, most: usize) -> bool {
        most == 0 || self.lock().held_by(client) < most
    }

    /// Enters a connection of `client`, idle since `now_ms`. Returns `None` where the client has `most`
    /// connections already; 0 means no limit.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: ClientNetwork,
        most: usize,
        owner: ConnectionOwner,
        now_ms: u64,
    ) -> Option<ConnectionEntryGuard> {
        let mut holders = self.lock();
        if most > 0 && holders.held_by(client) >= most {
            return None;
        }
        Some(self.insert(&mut holders, client, owner, now_ms, false))
    }

    /// Enters a connection of the trusted proxy `client`, idle since `now_ms`. A proxy may open any number of
    /// connections, and loses no connection with a request under way.
    pub(crate) fn enter_proxy(
        self: &Arc<Self>,
        client: ClientNetwork,
        owner: ConnectionOwner,
        now_ms: u64,
    ) -> ConnectionEntryGuard {
        self.insert(&mut self.lock(), client, owner, now_ms, true)
    }

    fn insert(
        self: &Arc<Self>,
        holders: &mut ConnectionHolders,
        client: ClientNetwork,
        owner: ConnectionOwner,
        now_ms: u64,
        is_of_proxy: bool,
    ) -> ConnectionEntryGuard {
        let entries = holders.by_client.entry(client).or_default();
        let has_descriptor = matches!(owner, ConnectionOwner::Row(..));
        let position = entries.len();
        let entry = ConnectionEntry::new(client, position, owner, is_of_proxy, now_ms);
        let entry = Arc::new(entry);
        entries.push(entry.clone());
        holders.wide.change(client, |held| *held += 1);
        ConnectionEntryGuard {
            ledger: self.clone(),
            entry,
            _descriptor: has_descriptor.then(|| descriptors().enter_client()),
        }
    }

    /// Returns a future that resolves when a connection is closed after the call.
    pub(crate) fn connection_closed(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Announces that a connection has been closed.
    pub(crate) fn notify_closed(&self) {
        self.room.notify_waiters();
    }

    /// Chooses the connections to give up. A client is ranked by all of the client's connections: the
    /// idle, the busy, and the chosen connections that have not ended yet. A wide IPv6 network with more than
    /// an eighth of all connections is ranked as one client ([`LargeNetworks`]).
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
    /// - Where all holders have few connections and none is idle, a request without progress ends in favour of a client
    ///   without a connection: one that waits for its client after a second, and one that waits for the server after
    ///   10 s. Otherwise many clients with a hanging request each would keep all newcomers out.
    /// - A newcomer that has waited for a while also takes a connection with recent activity: first one between two
    ///   requests, since no response is lost, then the request that has not moved for longest. A client that got a
    ///   connection lately waits for longer, and takes only old connections.
    /// - A client that lost a connection as too slow lately loses a request at once to a client that did not. Such
    ///   a client takes only connections without activity for a second, and no request that waits for the server.
    /// - The only connection of a client that was opened lately, and was idle for less than a quarter of a second, or is in
    ///   its handshake for less than a second, is likely part of a page load. It ends only in favour of a client that has
    ///   waited for a while.
    /// - A request of a trusted proxy ends only if it has not moved for 10 s. Otherwise clients of the proxy with a hanging
    ///   request each would keep all other clients out.
    pub(crate) fn choose(&self, shortage: Shortage) -> Vec<Arc<ConnectionEntry>> {
        let mut holders = self.lock();
        if let Some(newcomer) = shortage.newcomer() {
            holders.history.advance(newcomer.now_ms);
        }
        let chosen = holders.to_give_up(shortage);
        for entry in &chosen {
            entry.choose();
        }
        chosen
    }

    /// Returns the standing of `client` among clients that hold equally much.
    #[cfg(feature = "http3")]
    pub(crate) fn standing(&self, client: ClientNetwork, now_ms: u64) -> ClientStanding {
        let mut holders = self.lock();
        holders.history.advance(now_ms);
        holders.history.standing(client)
    }

    /// Returns true if `client` lost a connection as too slow lately.
    pub(crate) fn is_slow(&self, client: ClientNetwork, now_ms: u64) -> bool {
        let mut holders = self.lock();
        holders.history.advance(now_ms);
        holders.history.is_slow(client)
    }

    /// Records a connection that `client` gets although all connections were taken.
    pub(crate) fn record_grant(&self, client: ClientNetwork, now_ms: u64) {
        let mut holders = self.lock();
        holders.history.advance(now_ms);
        holders.history.record_grant(client);
    }

    /// Records that a chosen connection ends in favour of another client. The client of the connection was too slow if it has
    /// few connections, only the client could have made the request move, and the client moves less than the minimum rate, with
    /// `bytes_per_second`. A client with many connections was chosen for their number.
    pub(crate) fn record_eviction(&self, entry: &ConnectionEntry, bytes_per_second: u64) {
        let awaits_client = matches!(entry.chosen_activity(), Activity::AwaitsClient(_));
        if awaits_client && bytes_per_second < DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE {
            let mut holders = self.lock();
            if holders.held_by(entry.client) <= FEW_CONNECTIONS_MAX {
                holders.history.record_slow(entry.client);
            }
        }
    }

    /// Chooses the waiting client to turn away where too many wait: the client that would be served last, with its last
    /// connection. A client that was too slow lately is always turned away. Returns `None` where every waiting client is a
    /// newcomer without a connection, or holds far less than the largest holder, because room can be made for the client.
    pub(crate) fn last_in_line(
        &self,
        clients: impl Iterator<Item = ClientNetwork>,
    ) -> Option<usize> {
        let holders = self.lock();
        let large = holders.large();
        let rank = |client| large.rank(client, holders.held_by(client), None);
        let ranked = clients.map(|client| {
            let rank = rank(client);
            (
                WaitRank::new(&holders.history, client, rank),
                rank[0],
                client,
            )
        });
        let (nth, (_, held, client)) = ranked.enumerate().max_by_key(|(_, (rank, ..))| *rank)?;
        let standing = holders.history.standing(client);
        if standing == ClientStanding::Slow {
            return Some(nth);
        }
        let clients = holders.by_client.keys();
        let most = clients.map(|client| rank(*client)[0]).max()?;
        let is_newcomer = held == 0 && standing == ClientStanding::New;
        (!is_newcomer && !is_far_less(held, most)).then_some(nth)
    }

    /// Returns the positions of the clients in the order in which they are served: clients that were too slow lately go last;
    /// otherwise the client with the fewest connections goes first, then the client that has held its latest connections for
    /// the shorter time, and between equals the client that got a connection longest ago. The first position goes first
    /// between equals.
    pub(crate) fn service_order(&self, clients: impl Iterator<Item = ClientNetwork>) -> Vec<usize> {
        let holders = self.lock();
        let large = holders.large();
        let ranked = clients.map(|client| {
            let held = large.rank(client, holders.held_by(client), None);
            WaitRank::new(&holders.history, client, held)
        });
        let mut order: Vec<(WaitRank, usize)> = ranked.zip(0..).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, nth)| nth).collect()
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionHolders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionEntryGuard {
    /// Returns the entry in the ledger.
    pub(crate) fn entry(&self) -> &Arc<ConnectionEntry> {
        &self.entry
    }

    /// Records the current standing of the connection.
    #[inline]
    pub(crate) fn set_activity(&self, standing: Activity) {
        self.entry.set_activity(standing);
    }
}

impl Drop for ConnectionEntryGuard {
    fn drop(&mut self) {
        let holders = &mut *self.ledger.lock();
        let hash_map::Entry::Occupied(mut held) = holders.by_client.entry(self.entry.client) else {
            return;
        };
        holders.wide.change(self.entry.client, |held| *held -= 1);
        let opened_ms = self.entry.opened_ms();
        holders.history.record_use(self.entry.client, opened_ms);
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
