//! Ledger of the descriptors of connections: the connections of clients, and the connections to members that
//! their requests need. A proxied request takes two descriptors.
//!
//! The bound leaves a reserve below the limit of the process (RLIMIT_NOFILE) for listening sockets, logs, files
//! and scripts. The members' connections have at most three quarters of the bound, so that clients can still
//! connect, and are shared fairly among clients. While connections to members are open, the last eighth of the
//! bound, at most 512 descriptors, is for such connections alone: without a descriptor for the member, the
//! client's own is of no use. Half of that part is for clients with few such connections.

use crate::limits::{
    DESCRIPTOR_MEMBER_DIVISOR, DESCRIPTOR_MEMBER_MAX, DESCRIPTOR_RESERVE_DIVISOR,
    DESCRIPTOR_RESERVE_MAX, DESCRIPTOR_RESERVE_MIN, DESCRIPTOR_SMALL_DIVISOR,
};
use base::client_network::ClientNetwork;
use base::fair_share::ClientHoldings;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Descriptors of connections of the process.
pub struct DescriptorLedger {
    /// Descriptors for connections, of clients and of members together.
    max: AtomicUsize,
    clients: AtomicUsize,
    members: AtomicUsize,
    /// Connections to members that were opened for requests of each client and are in use.
    by_client: Mutex<Option<ClientHoldings>>,
    /// Notified when a descriptor is free again after a shortage.
    room: Notify,
    /// Notified when a request needs the descriptor of an idle client.
    idle_client_wanted: Notify,
}

/// Descriptor of a client's connection. Dropping the value gives the descriptor back.
pub(crate) struct ClientDescriptor(&'static DescriptorLedger);

/// Descriptor of a connection to a member. Dropping the value gives the descriptor back.
pub(crate) struct MemberDescriptor {
    ledger: &'static DescriptorLedger,
    /// Client of the request for which the connection was opened; None for an idle connection.
    client: Option<ClientNetwork>,
}

/// Reason for a missing descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum DescriptorRefused {
    /// All descriptors are taken.
    Full,
    /// The client has its share, and the remaining descriptors are reserved for other clients.
    ShareTaken,
}

static LEDGER: DescriptorLedger = DescriptorLedger::new();

/// Returns the number of descriptors that only connections to members may take, for a bound of `max`.
fn kept_for_members(max: usize) -> usize {
    (max / DESCRIPTOR_MEMBER_DIVISOR).min(DESCRIPTOR_MEMBER_MAX)
}

/// Returns the ledger of the process.
pub fn descriptors() -> &'static DescriptorLedger {
    &LEDGER
}

impl DescriptorLedger {
    /// Creates a ledger without a bound.
    const fn new() -> DescriptorLedger {
        DescriptorLedger {
            max: AtomicUsize::new(usize::MAX),
            clients: AtomicUsize::new(0),
            members: AtomicUsize::new(0),
            by_client: Mutex::new(None),
            room: Notify::const_new(),
            idle_client_wanted: Notify::const_new(),
        }
    }

    /// Sets the limit of descriptors of the process.
    pub fn set_process_limit(&self, limit: u64) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let reserve = (limit / DESCRIPTOR_RESERVE_DIVISOR)
            .clamp(DESCRIPTOR_RESERVE_MIN, DESCRIPTOR_RESERVE_MAX);
        self.max.store(limit - reserve.min(limit / 2), Relaxed);
    }

    /// Returns true if no descriptor is left for the connection of another client.
    pub(crate) fn is_full(&self) -> bool {
        let (members, max) = (self.members.load(Relaxed), self.max.load(Relaxed));
        let for_members = match members {
            0 => 0,
            _ => kept_for_members(max),
        };
        self.clients.load(Relaxed) + members >= max - for_members
    }

    /// Returns true if a descriptor is left for a connection to a member, for a request of a client that holds
    /// `own` such connections.
    fn has_room_for_member(&self, own: usize) -> bool {
        let max = self.max.load(Relaxed);
        let is_small = own < (max / DESCRIPTOR_SMALL_DIVISOR).max(1);
        let for_small = if is_small {
            0
        } else {
            kept_for_members(max) / 2
        };
        self.clients.load(Relaxed) + self.members.load(Relaxed) < max - for_small
    }

    /// Enters the connection of a client, also beyond the bound.
    pub(crate) fn enter_client(&'static self) -> ClientDescriptor {
        self.clients.fetch_add(1, Relaxed);
        ClientDescriptor(self)
    }

    /// Enters a connection to a member for a request of `client`; None for a check.
    ///
    /// # Errors
    /// No descriptor is left, or the client has its share.
    pub(crate) fn enter_member(
        &'static self,
        client: Option<ClientNetwork>,
    ) -> Result<MemberDescriptor, DescriptorRefused> {
        let mut guard = self.lock();
        let held = guard.get_or_insert_default();
        let own = client.map_or(0, |client| held.of(client));
        if !self.has_room_for_member(own) {
            return Err(DescriptorRefused::Full);
        }
        if let Some(client) = client {
            let max = self.max.load(Relaxed);
            let members_max = max - max / 4;
            if !held.may_take(client, 1, members_max) {
                return Err(if held.all() >= members_max {
                    DescriptorRefused::Full
                } else {
                    DescriptorRefused::ShareTaken
                });
            }
            held.add(client, 1);
        }
        drop(guard);
        self.members.fetch_add(1, Relaxed);
        Ok(MemberDescriptor {
            ledger: self,
            client,
        })
    }

    /// Returns a future that resolves when a descriptor is given back after a shortage.
    pub(crate) fn room(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// Asks a worker to close an idle connection of a client.
    pub(crate) fn want_idle_client(&self) {
        self.idle_client_wanted.notify_one();
    }

    /// Waits until a request needs the descriptor of an idle client.
    pub(crate) async fn idle_client_wanted(&self) {
        self.idle_client_wanted.notified().await;
    }

    fn give_back(&self, count: &AtomicUsize) {
        let was_full = self.is_full();
        count.fetch_sub(1, Relaxed);
        if was_full {
            self.room.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ClientHoldings>> {
        self.by_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberDescriptor {
    /// Records that the connection is idle, and serves any client from now on.
    pub(crate) fn release_client(&mut self) {
        if let Some(client) = self.client.take()
            && let Some(held) = &mut *self.ledger.lock()
        {
            held.remove(client, 1);
        }
    }
}

impl Drop for MemberDescriptor {
    fn drop(&mut self) {
        self.release_client();
        self.ledger.give_back(&self.ledger.members);
    }
}

impl Drop for ClientDescriptor {
    fn drop(&mut self) {
        self.0.give_back(&self.0.clients);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(last: u8) -> Option<ClientNetwork> {
        Some(IpAddr::from([192, 0, 2, last]).into())
    }

    fn ledger(limit: u64) -> &'static DescriptorLedger {
        let ledger = Box::leak(Box::new(DescriptorLedger::new()));
        ledger.set_process_limit(limit);
        ledger
    }

    fn fill(
        ledger: &'static DescriptorLedger,
        client: Option<ClientNetwork>,
    ) -> (Vec<MemberDescriptor>, DescriptorRefused) {
        let mut taken = Vec::new();
        loop {
            match ledger.enter_member(client) {
                Ok(descriptor) => taken.push(descriptor),
                Err(refused) => return (taken, refused),
            }
        }
    }

    #[test]
    fn the_bound_leaves_a_reserve_below_the_limit_of_the_process() {
        let table = [
            (16, 8),
            (128, 64),
            (300, 225),
            (1_024, 768),
            (1 << 20, (1 << 20) - 1_024),
        ];
        for (limit, max) in table {
            assert_eq!(ledger(limit).max.load(Relaxed), max, "{limit}");
        }
        assert!(!DescriptorLedger::new().is_full());
    }

    #[test]
    fn members_and_clients_share_the_bound() {
        let ledger = ledger(128);
        let mut clients: Vec<_> = (0..55).map(|_| ledger.enter_client()).collect();
        assert!(!ledger.is_full());
        // The last 8 are for members, and 4 of these for clients with few connections to members.
        let (large, refused) = fill(ledger, client(1));
        assert_eq!((large.len(), refused), (5, DescriptorRefused::Full));
        assert!(ledger.is_full());
        let small = [2, 3, 4, 5].map(|last| ledger.enter_member(client(last)));
        assert!(small.iter().all(Result::is_ok));
        assert_eq!(
            ledger.enter_member(client(6)).err(),
            Some(DescriptorRefused::Full)
        );
        clients.pop();
        assert!(ledger.is_full() && ledger.enter_member(None).is_ok());
    }

    #[test]
    fn one_client_leaves_connections_to_members_for_the_others() {
        let ledger = ledger(128);
        let (greedy, refused) = fill(ledger, client(1));
        assert_eq!((greedy.len(), refused), (36, DescriptorRefused::ShareTaken));
        let (small, _) = fill(ledger, client(2));
        assert_eq!(small.len(), 6);
        drop(greedy);
        assert_eq!(fill(ledger, client(1)).0.len(), 30);
    }

    #[test]
    fn an_idle_connection_belongs_to_no_client() {
        let ledger = ledger(128);
        let (mut greedy, _) = fill(ledger, client(1));
        greedy[0].release_client();
        assert!(ledger.enter_member(client(1)).is_ok());
        assert_eq!(ledger.members.load(Relaxed), 36);
    }
}
