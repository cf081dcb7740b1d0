//! Ledger of the descriptors of connections: the connections of clients, and the connections to members that
//! their requests need. A proxied request takes two descriptors.
//!
//! The bound leaves a reserve below the limit of the process (RLIMIT_NOFILE) for listening sockets, logs, files
//! and scripts. The members' connections have at most three quarters of the bound, so that clients can still
//! connect, and are shared fairly among clients. While connections to members are open, the last eighth of the
//! bound, at most 512 descriptors, is for such connections alone: without a descriptor for the member, the
//! client's own is of no use. Half of that part is for clients with few such connections.
//!
//! When no descriptor is left for the request of a client with few of them, a request without progress gives way
//! ([`DescriptorLedger::enter_member_by_shedding`]). So a few clients with many silent requests, over any version of HTTP,
//! do not keep newcomers out.

use crate::ledger::member_uses::{MemberUse, MemberUses, Shedding, UseProgress};
use crate::limits::{
    DESCRIPTOR_MEMBER_DIVISOR, DESCRIPTOR_MEMBER_MAX, DESCRIPTOR_OVERDRAFT_DIVISOR,
    DESCRIPTOR_RESERVE_DIVISOR, DESCRIPTOR_RESERVE_MAX, DESCRIPTOR_RESERVE_MIN,
    DESCRIPTOR_SMALL_DIVISOR,
};
use base::client_network::ClientNetwork;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Descriptors of connections of the process.
pub struct DescriptorLedger {
    /// Descriptors for connections, of clients and of members together.
    max: AtomicUsize,
    clients: AtomicUsize,
    members: AtomicUsize,
    /// Connections to members, and the requests on them.
    uses: Mutex<Option<MemberUses>>,
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
    /// Client of the present request; None for an idle connection. The use has the clients of HTTP/2.
    user: Option<ClientNetwork>,
    usage: Arc<MemberUse>,
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
            uses: Mutex::new(None),
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
        let uses = guard.get_or_insert_default();
        match self.refusal(uses, client) {
            None => Ok(self.insert(uses, client)),
            Some(refused) => Err(refused),
        }
    }

    /// Enters a connection to a member for a request of `client` that has found no descriptor, and tells another request to
    /// end ([`MemberUses::tell_one`]). The request ends in its own turn, so the bound is exceeded for a short time, by a
    /// sixteenth at most. Idle connections of clients come first: without any descriptor, a request ends only after a pause.
    ///
    /// # Errors
    /// The client has its share, no request gives way to it, or too many are about to end.
    pub(crate) fn enter_member_by_shedding(
        &'static self,
        shedding: Shedding,
    ) -> Result<MemberDescriptor, DescriptorRefused> {
        let client = shedding.client;
        let mut guard = self.lock();
        let uses = guard.get_or_insert_default();
        match self.refusal(uses, Some(client)) {
            None => return Ok(self.insert(uses, Some(client))),
            Some(DescriptorRefused::ShareTaken) => return Err(DescriptorRefused::ShareTaken),
            Some(DescriptorRefused::Full) => {}
        }
        let has_room = self.has_room_for_member(uses.opened_for(client));
        let may_shed = has_room || !shedding.waited.is_zero();
        if !may_shed || !self.may_exceed(uses) {
            return Err(DescriptorRefused::Full);
        }
        let told = uses.tell_one(shedding, self.members_max());
        let told = told.ok_or(DescriptorRefused::Full)?;
        let descriptor = self.insert(uses, Some(client));
        drop(guard);
        told.wake();
        Ok(descriptor)
    }

    /// Enters a connection of HTTP/2 again. Its descriptor was given back while the connection was idle, but the socket is
    /// open, and a request has begun meanwhile. The bound may be exceeded.
    pub(crate) fn enter_member_again(&'static self, usage: Arc<MemberUse>) -> MemberDescriptor {
        self.members.fetch_add(1, Relaxed);
        let mut guard = self.lock();
        guard.get_or_insert_default().enter(Arc::clone(&usage));
        MemberDescriptor {
            ledger: self,
            client: None,
            user: None,
            usage,
        }
    }

    fn refusal(
        &self,
        uses: &MemberUses,
        client: Option<ClientNetwork>,
    ) -> Option<DescriptorRefused> {
        let own = client.map_or(0, |client| uses.opened_for(client));
        if !self.has_room_for_member(own) {
            return Some(DescriptorRefused::Full);
        }
        let members_max = self.members_max();
        if client.is_none_or(|client| uses.may_open(client, members_max)) {
            None
        } else if uses.opened() >= members_max {
            Some(DescriptorRefused::Full)
        } else {
            Some(DescriptorRefused::ShareTaken)
        }
    }

    fn insert(
        &'static self,
        uses: &mut MemberUses,
        client: Option<ClientNetwork>,
    ) -> MemberDescriptor {
        self.members.fetch_add(1, Relaxed);
        MemberDescriptor {
            ledger: self,
            client,
            user: None,
            usage: uses.open(client),
        }
    }

    /// Returns the largest number of connections to members that requests have open together.
    fn members_max(&self) -> usize {
        let max = self.max.load(Relaxed);
        max - max / 4
    }

    /// Returns true if the bounds may be exceeded by one descriptor until a request has ended.
    fn may_exceed(&self, uses: &MemberUses) -> bool {
        let max = self.max.load(Relaxed);
        let more = (max / DESCRIPTOR_OVERDRAFT_DIVISOR).max(1);
        let all = self.clients.load(Relaxed) + self.members.load(Relaxed);
        all < max + more && uses.opened() < self.members_max() + more
    }

    /// Returns a future that resolves when a descriptor is given back after a shortage.
    pub(crate) fn room(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// Asks a worker to close an idle connection of a client, if its descriptor would help. Where requests have their share
    /// of all descriptors, it would not.
    pub(crate) fn want_idle_client(&self) {
        if !self.has_room_for_member(usize::MAX) {
            self.idle_client_wanted.notify_one();
        }
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

    fn lock(&self) -> MutexGuard<'_, Option<MemberUses>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberDescriptor {
    /// Records the client of the request that begins on the connection.
    pub(crate) fn begin_use(&mut self, client: ClientNetwork) {
        self.user = Some(client);
    }

    /// Ready if the request on the connection has to end in favour of another client. Otherwise the function records the
    /// progress of the request, and wakes its task when the request has to end.
    pub(crate) fn poll_told(&self, cx: &Context<'_>, progress: UseProgress) -> Poll<()> {
        match self.user {
            Some(client) => self.usage.poll_told(client, progress, cx),
            None => Poll::Pending,
        }
    }

    /// Returns the use of the connection, for the requests of HTTP/2.
    pub(crate) fn usage(&self) -> Arc<MemberUse> {
        Arc::clone(&self.usage)
    }

    /// Records that the connection of HTTP/2 is no longer accounted to the client for which it was opened, once that client
    /// has no request on it.
    pub(crate) fn release_absent_client(&mut self) {
        if self
            .client
            .is_some_and(|client| !self.usage.has_stream_of(client))
        {
            self.release_client();
        }
    }

    /// Records that the connection is idle, and serves any client from now on.
    pub(crate) fn release_client(&mut self) {
        if self.user.take().is_some() {
            self.usage.end();
        }
        if let Some(client) = self.client.take()
            && let Some(uses) = &mut *self.ledger.lock()
        {
            uses.release(client);
        }
    }
}

impl Drop for MemberDescriptor {
    fn drop(&mut self) {
        if let Some(uses) = &mut *self.ledger.lock() {
            uses.close(&self.usage, self.client);
        }
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
    use base::clock::monotonic_ms;
    use std::net::IpAddr;
    use std::task::Waker;
    use std::time::Duration;

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

    /// Lets requests of `client` wait on the connections.
    fn wait_on(
        connections: &mut [MemberDescriptor],
        client: Option<ClientNetwork>,
        awaits_client: bool,
    ) {
        let cx = Context::from_waker(Waker::noop());
        for connection in connections {
            connection.begin_use(client.unwrap());
            let progress = UseProgress {
                bytes: 1,
                awaits_client,
            };
            assert!(connection.poll_told(&cx, progress).is_pending());
        }
    }

    /// Returns the number of requests that are told to end.
    fn told(connections: &[MemberDescriptor]) -> usize {
        let cx = Context::from_waker(Waker::noop());
        let progress = UseProgress {
            bytes: 1,
            awaits_client: false,
        };
        let told = connections.iter();
        told.filter(|it| it.poll_told(&cx, progress).is_ready())
            .count()
    }

    /// Returns the wish of a client that has waited for `waited_ms`, `later_ms` after now.
    fn wish(last: u8, waited_ms: u64, later_ms: u64) -> Shedding {
        Shedding {
            client: client(last).unwrap(),
            waited: Duration::from_millis(waited_ms),
            now_ms: monotonic_ms() + later_ms,
        }
    }

    #[test]
    fn the_longest_silent_request_of_the_largest_client_ends_for_a_newcomer() {
        let ledger = ledger(128);
        let (mut greedy, _) = fill(ledger, client(1));
        let (mut small, _) = fill(ledger, client(2));
        let (mut third, refused) = fill(ledger, client(3));
        assert_eq!((third.len(), refused), (6, DescriptorRefused::Full));
        wait_on(&mut greedy, client(1), false);
        wait_on(&mut small, client(2), true);
        wait_on(&mut third, client(3), false);
        let enter = |wish| ledger.enter_member_by_shedding(wish);
        assert!(enter(wish(9, 0, 900)).is_err(), "all have just moved");
        assert!(enter(wish(2, 500, 900)).is_err(), "client 2 has its share");
        let served = enter(wish(9, 0, 1_000));
        assert!(served.is_ok());
        assert_eq!([&greedy, &small, &third].map(|of| told(of)), [1, 0, 0]);
        let all: Vec<_> = (10..20)
            .map_while(|last| enter(wish(last, 500, 1_000)).ok())
            .collect();
        // A sixteenth of 64 may be on its way.
        assert_eq!((all.len(), told(&greedy)), (3, 4));
        greedy.retain(|it| told(std::slice::from_ref(it)) == 0);
        assert!(enter(wish(20, 500, 1_000)).is_ok(), "the 4 have ended");
        // The connection of the told request serves the next request.
        greedy.clear();
        assert!(ledger.enter_member(client(1)).is_ok());
    }

    #[test]
    fn requests_of_many_clients_give_way_after_their_time() {
        let ledger = ledger(128);
        let mut all: Vec<_> = (1..=12).map(client).collect();
        let mut held = Vec::new();
        for client in &mut all {
            let mut four: Vec<_> = (0..4)
                .map_while(|_| ledger.enter_member(*client).ok())
                .collect();
            wait_on(&mut four, *client, false);
            held.extend(four);
        }
        assert_eq!(held.len(), 48);
        let enter = |wish| ledger.enter_member_by_shedding(wish);
        assert!(enter(wish(98, 900, 1_000)).is_err());
        wait_on(&mut held[40..41], all[10], true);
        assert!(enter(wish(98, 0, 2_000)).is_ok(), "the client holds it up");
        assert_eq!((told(&held), told(&held[40..41])), (1, 1));
        assert!(enter(wish(99, 900, 9_900)).is_err());
        assert!(enter(wish(5, 900, 10_000)).is_err(), "client 5 has 4");
        assert!(enter(wish(99, 0, 10_000)).is_ok());
        assert_eq!(told(&held), 2);
    }

    #[test]
    fn a_request_on_a_kept_connection_gives_way_too() {
        let ledger = ledger(128);
        let clients: Vec<_> = (0..16).map(|_| ledger.enter_client()).collect();
        let (mut kept, _) = fill(ledger, client(1));
        kept.iter_mut().for_each(MemberDescriptor::release_client);
        assert!(matches!(&ledger.lock().as_ref(), Some(uses) if uses.opened() == 0));
        wait_on(&mut kept, client(2), false);
        let (rest, refused) = fill(ledger, client(3));
        assert_eq!(refused, DescriptorRefused::Full);
        let more: Vec<_> = (0..4).map(|_| ledger.enter_client()).collect();
        let enter = |wish| ledger.enter_member_by_shedding(wish);
        let first = enter(wish(9, 0, 2_000));
        assert!(first.is_err(), "idle clients leave first");
        assert!(enter(wish(9, 50, 2_000)).is_ok());
        assert_eq!(told(&kept), 1);
        drop((clients, more, rest));
    }

    #[test]
    fn an_idle_connection_belongs_to_no_client() {
        let ledger = ledger(128);
        let (mut greedy, _) = fill(ledger, client(1));
        greedy[0].release_client();
        assert!(ledger.enter_member(client(1)).is_ok());
        assert_eq!(ledger.members.load(Relaxed), 36);
    }

    /// Lets a request of each client wait on a stream of the connection.
    fn wait_on_streams(connection: &MemberDescriptor, clients: &[u8]) {
        let usage = connection.usage();
        for (nth, last) in clients.iter().enumerate() {
            let id = 2 * nth as u32 + 1;
            usage.begin_stream(id, client(*last).unwrap());
            assert!(poll_stream(connection, id).is_pending());
        }
    }

    fn poll_stream(connection: &MemberDescriptor, id: u32) -> Poll<()> {
        let progress = UseProgress {
            bytes: 1,
            awaits_client: false,
        };
        let cx = Context::from_waker(Waker::noop());
        connection.usage().poll_stream_told(id, progress, &cx)
    }

    /// Returns the number of HTTP/2 connections with requests that are told to end.
    fn told_with_streams(connections: &[MemberDescriptor]) -> usize {
        let is_told = |it: &&MemberDescriptor| {
            let told = [1, 3].map(|id| poll_stream(it, id).is_ready());
            assert_eq!(told[0], told[1], "all requests or none");
            told[0]
        };
        connections.iter().filter(is_told).count()
    }

    #[test]
    fn all_requests_of_a_connection_of_http_2_give_way_together() {
        let ledger = ledger(128);
        let (greedy, _) = fill(ledger, client(1));
        let (small, _) = fill(ledger, client(2));
        let (third, refused) = fill(ledger, client(3));
        assert_eq!(refused, DescriptorRefused::Full);
        greedy.iter().for_each(|it| wait_on_streams(it, &[1, 1]));
        small.iter().for_each(|it| wait_on_streams(it, &[2, 2]));
        third.iter().for_each(|it| wait_on_streams(it, &[3, 3]));
        let enter = |wish| ledger.enter_member_by_shedding(wish);
        assert!(enter(wish(9, 0, 900)).is_err(), "all have just moved");
        assert!(enter(wish(9, 0, 1_000)).is_ok());
        let told = [&greedy, &small, &third].map(|of| told_with_streams(of));
        assert_eq!(told, [1, 0, 0]);
        assert_eq!(greedy.iter().filter(|it| it.usage().is_told()).count(), 1);
    }

    #[test]
    fn a_connection_shared_by_clients_gives_way_only_if_all_its_requests_are_stuck() {
        let ledger = ledger(128);
        let (shared, _) = fill(ledger, client(1));
        let (more, _) = fill(ledger, client(2));
        let (rest, refused) = fill(ledger, client(3));
        assert_eq!(refused, DescriptorRefused::Full);
        for connection in shared.iter().chain(&more).chain(&rest) {
            wait_on_streams(connection, &[1, 2]);
        }
        let enter = |wish| ledger.enter_member_by_shedding(wish);
        assert!(enter(wish(9, 500, 9_900)).is_err());
        assert!(enter(wish(9, 0, 10_000)).is_ok());
        let told = [&shared, &more, &rest].map(|of| told_with_streams(of));
        assert_eq!(told.iter().sum::<usize>(), 1);
    }

    #[test]
    fn a_connection_of_http_2_counts_for_its_opener_only_while_it_has_a_request_of_the_opener() {
        let ledger = ledger(128);
        let (mut greedy, _) = fill(ledger, client(1));
        let opened = || ledger.lock().as_ref().map(|uses| uses.opened());
        wait_on_streams(&greedy[0], &[1, 2]);
        greedy[0].release_absent_client();
        assert_eq!(opened(), Some(36));
        greedy[0].usage().end_stream(1);
        greedy[0].release_absent_client();
        assert_eq!(opened(), Some(35));
        assert!(ledger.enter_member(client(1)).is_ok());
    }

    #[test]
    fn a_connection_that_was_given_up_counts_again_with_a_request() {
        let ledger = ledger(128);
        let connection = ledger.enter_member(client(1)).unwrap();
        let usage = connection.usage();
        drop(connection);
        let (_all, _) = fill(ledger, None);
        usage.begin_stream(1, client(1).unwrap());
        let again = ledger.enter_member_again(usage);
        assert_eq!(ledger.members.load(Relaxed), 65);
        drop(again);
        assert_eq!(ledger.members.load(Relaxed), 64);
    }
}
