//! Ledger of requests under way on a worker: for each client the number of requests by HTTP/2 and 3, and
//! the bytes of request heads that stay in memory until the response.
//!
//! A page answered where the request was read never enters the ledger. A request that has to wait (for
//! the disk, a password, a handler, the peer's window) is counted from beginning to end. So neither a
//! flood of requests nor the expansion of compressed fields (RFC 9113 §10.5.1) takes memory without a
//! bound. A client over its share is refused. When another client finds the bound taken, the client with
//! the largest holding loses the requests that have been stalled for longest. Where each client holds little, a client
//! without a request takes the place of a stalled or silent one.

use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::{FEW_CONNECTIONS_MAX, SERVER_STALL_MILLISECONDS, UNFINISHED_HEAD_BYTES_FREE};
use crate::serve::connection_entry::Activity;
use crate::serve::ending_call::BusyConnection;
use crate::serve::socket::TcpSocket;
use crate::serve::stall::RequestRate;
use base::client_network::ClientNetwork;
use base::client_network::share_of;
use base::fair_share::ClientHoldings;
use base::sys;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

/// Ledger of one worker.
pub(super) struct RequestLedger {
    ledger: RefCell<RequestLedgerState>,
    refusals: Arc<RefusalCounters>,
    /// Most bytes of heads in memory.
    head_bytes_max: usize,
}

#[derive(Default)]
struct RequestLedgerState {
    requests: ClientHoldings,
    head_bytes: ClientHoldings,
    /// Connections with requests or head bytes, by client.
    accounts: HashMap<ClientNetwork, Vec<Rc<ConnectionAccount>>>,
}

/// A connection in the ledger.
pub(super) struct ConnectionAccount {
    pending: Rc<RequestLedger>,
    client: ClientNetwork,
    requests: Cell<usize>,
    head_bytes: Cell<usize>,
    /// Index among the connections of the client.
    index: Cell<usize>,
    /// Start of the connection's longest stall, in milliseconds of the worker's clock; the largest number
    /// where no request is stalled.
    stalled_ms: Cell<u64>,
    /// Activity of the connection, since a request of the connection last moved, in milliseconds of the worker's clock; the
    /// largest number over HTTP/1.1.
    activity: Cell<Activity>,
    /// Rate of the requests of the connection together.
    rate: Cell<RequestRate>,
    /// Requests and head bytes that the connection is to end for other clients.
    to_shed: Cell<ShedOrder>,
    waker: RefCell<Option<Waker>>,
    /// The socket of a connection of HTTP/1.1: the connection ends with its only request.
    socket: Option<Rc<TcpSocket>>,
    /// Accounts of the connection of a trusted proxy, for each client of the proxy with requests.
    clients: RefCell<Vec<Rc<ConnectionAccount>>>,
    /// Account of the proxy's connection, for an account in `clients`.
    connection: Weak<ConnectionAccount>,
}

/// Order to a connection to end requests for other clients.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct ShedOrder {
    /// Number of requests to end, longest stall first.
    pub(super) requests: usize,
    /// Bytes of heads to free by ending requests, largest head first.
    pub(super) head_bytes: usize,
}

/// Entry of one request, or of an unfinished head, in the ledger. Dropping the entry returns the request
/// and the bytes.
pub(super) struct RequestReservation {
    account: Rc<ConnectionAccount>,
    requests: usize,
    head_bytes: usize,
}

impl RequestLedger {
    /// Makes an empty ledger for at most `head_bytes_max` bytes of heads.
    pub(super) fn new(head_bytes_max: usize, refusals: Arc<RefusalCounters>) -> Rc<RequestLedger> {
        Rc::new(RequestLedger {
            ledger: RefCell::default(),
            refusals,
            head_bytes_max,
        })
    }

    /// Makes the ledger's record of a new connection of `peer`, without requests.
    pub(super) fn account(self: &Rc<Self>, peer: IpAddr) -> Rc<ConnectionAccount> {
        self.account_on(peer, None)
    }

    /// Makes the ledger's record of a new connection; with `socket` for HTTP/1.1, where shedding shuts
    /// the socket down.
    pub(super) fn account_on(
        self: &Rc<Self>,
        peer: IpAddr,
        socket: Option<Rc<TcpSocket>>,
    ) -> Rc<ConnectionAccount> {
        Rc::new(self.new_account(peer.into(), socket, Weak::new()))
    }

    fn new_account(
        self: &Rc<Self>,
        client: ClientNetwork,
        socket: Option<Rc<TcpSocket>>,
        connection: Weak<ConnectionAccount>,
    ) -> ConnectionAccount {
        ConnectionAccount {
            socket,
            clients: RefCell::default(),
            connection,
            pending: Rc::clone(self),
            client,
            requests: Cell::new(0),
            head_bytes: Cell::new(0),
            index: Cell::new(0),
            stalled_ms: Cell::new(u64::MAX),
            activity: Cell::new(Activity::Busy(u64::MAX)),
            rate: Cell::default(),
            to_shed: Cell::default(),
            waker: RefCell::default(),
        }
    }

    /// Returns the connections with requests that are not told to end. Their owners are told by
    /// [`ConnectionAccount::tell_requests`].
    pub(super) fn busy_connections(
        &self,
        now_ms: u64,
    ) -> Vec<BusyConnection<Rc<ConnectionAccount>>> {
        let ledger = self.ledger.borrow();
        let accounts = ledger.accounts.values().flatten();
        accounts
            .filter(|it| it.has_requests())
            .map(|it| BusyConnection {
                owner: Rc::clone(it),
                client: it.client,
                requests: it.requests.get() - it.to_shed.get().requests,
                activity: match it.stalled_ms() {
                    u64::MAX => it.activity(),
                    stalled_ms => Activity::AwaitsClient(stalled_ms),
                },
                rate: it.rate(now_ms),
            })
            .collect()
    }

    /// Counts `n` requests lost because a share was taken.
    pub(super) fn refused(&self, share: SharedLimit, n: u64) {
        self.refusals.add(share, n);
    }
}

impl ConnectionAccount {
    /// Returns the client of the account.
    pub(super) fn client(&self) -> ClientNetwork {
        self.client
    }

    /// Returns the connection's account for requests of `client`: the account itself, unless a trusted proxy
    /// sends the requests of many clients on the connection.
    pub(super) fn of_client(self: &Rc<Self>, client: IpAddr) -> Rc<ConnectionAccount> {
        let client = ClientNetwork::from(client);
        if client == self.client {
            return Rc::clone(self);
        }
        let mut clients = self.clients.borrow_mut();
        clients.retain(|account| Rc::strong_count(account) > 1);
        if let Some(known) = clients.iter().find(|account| account.client == client) {
            return Rc::clone(known);
        }
        let connection = Rc::downgrade(self);
        let account = Rc::new(self.pending.new_account(client, None, connection));
        clients.push(Rc::clone(&account));
        account
    }

    /// Admits a request with `head_bytes` of head in memory; at most `requests_max` requests may be under
    /// way on the worker. `now_ms` is the worker's clock. Fails with the share that has no room for the request, and counts
    /// the refusal.
    pub(super) fn admit(
        self: &Rc<Self>,
        head_bytes: usize,
        requests_max: usize,
        now_ms: u64,
    ) -> Result<RequestReservation, SharedLimit> {
        self.make_room(1, head_bytes, requests_max, now_ms)
            .inspect_err(|share| self.pending.refused(*share, 1))?;
        Ok(self.held(1, head_bytes))
    }

    /// Admits an answered request with a body that may still come, if the ledger has room. Without room
    /// nothing is lost: the client is told that the rest of the body isn't wanted.
    pub(super) fn admit_answered(
        self: &Rc<Self>,
        requests_max: usize,
        now_ms: u64,
    ) -> Option<RequestReservation> {
        self.make_room(1, 0, requests_max, now_ms).ok()?;
        Some(self.held(1, 0))
    }

    /// Makes an entry for the received part of an unfinished head.
    pub(super) fn unfinished(self: &Rc<Self>) -> RequestReservation {
        self.held(0, 0)
    }

    fn held(self: &Rc<Self>, requests: usize, head_bytes: usize) -> RequestReservation {
        self.add(requests, head_bytes);
        RequestReservation {
            account: Rc::clone(self),
            requests,
            head_bytes,
        }
    }

    fn make_room(
        &self,
        requests: usize,
        bytes: usize,
        requests_max: usize,
        now_ms: u64,
    ) -> Result<(), SharedLimit> {
        let mut ledger = self.pending.ledger.borrow_mut();
        let bytes_max = self.pending.head_bytes_max;
        ledger.room_for_requests(self.client, requests, requests_max, now_ms)?;
        ledger.room_for_bytes(self.client, bytes, bytes_max)
    }

    /// Records the start of the connection's longest stall, in milliseconds of the worker's clock; the
    /// largest number where no request is stalled.
    pub(super) fn stalled_since(&self, at_ms: u64) {
        self.stalled_ms.set(at_ms);
    }

    /// Records the activity of the connection, since a request of the connection last moved.
    pub(super) fn stand(&self, activity: Activity) {
        self.activity.set(activity);
    }

    /// Records the bytes that all requests of the connection have moved until `now_ms`, in milliseconds of the worker's
    /// clock.
    pub(super) fn note_moved_bytes(&self, bytes: u64, now_ms: u64) {
        let mut rate = self.rate.get();
        rate.note(bytes, now_ms);
        self.rate.set(rate);
    }

    /// Records the waker to call when the connection has to end requests for other clients.
    pub(super) fn wake_by(&self, waker: &Waker) {
        let mut known = self.waker.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Takes the orders to end requests of a proxy's clients for other clients. Each order is returned once.
    pub(super) fn take_client_sheds(&self) -> Vec<(ClientNetwork, ShedOrder)> {
        let clients = self.clients.borrow();
        let orders = clients.iter().map(|it| (it.client, it.take_shed()));
        orders
            .filter(|(_, shed)| *shed != ShedOrder::default())
            .collect()
    }

    /// Returns the start of the longest stall of the connection.
    fn stalled_ms(&self) -> u64 {
        match self.connection.upgrade() {
            Some(connection) => connection.stalled_ms.get(),
            None => self.stalled_ms.get(),
        }
    }

    /// Returns the activity of the connection.
    fn activity(&self) -> Activity {
        match self.connection.upgrade() {
            Some(connection) => connection.activity.get(),
            None => self.activity.get(),
        }
    }

    /// Returns the moment at which a request of the connection last moved.
    fn moved_ms(&self) -> u64 {
        self.activity().since_ms()
    }

    /// Returns the rate of the requests of the connection in bytes a second, if measured.
    fn rate(&self, now_ms: u64) -> Option<u64> {
        match self.connection.upgrade() {
            Some(connection) => connection.rate.get().bytes_per_second(now_ms),
            None => self.rate.get().bytes_per_second(now_ms),
        }
    }

    /// Takes the order to end requests for other clients. Each order is returned once.
    pub(super) fn take_shed(&self) -> ShedOrder {
        self.to_shed.take()
    }

    /// Returns true if the connection has more requests than already ordered to end.
    fn has_requests(&self) -> bool {
        self.to_shed.get().requests < self.requests.get()
    }

    /// Returns true if the connection has head bytes and no order to free head bytes.
    fn has_head_bytes(&self) -> bool {
        self.to_shed.get().head_bytes == 0 && self.head_bytes.get() > 0
    }

    /// Orders the connection to end `requests` requests.
    pub(super) fn tell_requests(&self, requests: usize) {
        self.tell(ShedOrder {
            requests,
            head_bytes: 0,
        });
    }

    /// Orders the connection to end more requests or heads.
    fn tell(&self, shed: ShedOrder) {
        let before = self.to_shed.get();
        self.to_shed.set(ShedOrder {
            requests: before.requests + shed.requests,
            head_bytes: before.head_bytes + shed.head_bytes,
        });
        if let Some(socket) = &self.socket {
            // Shutting down a closed socket fails, and nothing is left to do.
            let _ = sys::shutdown_both(socket.as_fd());
        }
        if let Some(connection) = self.connection.upgrade() {
            connection.wake();
        }
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Returns the requests of the connection that are under way.
    #[cfg(test)]
    fn requests(&self) -> usize {
        self.requests.get()
    }

    fn is_empty(&self) -> bool {
        self.requests.get() == 0 && self.head_bytes.get() == 0
    }

    fn add(self: &Rc<Self>, requests: usize, bytes: usize) {
        if requests == 0 && bytes == 0 {
            return;
        }
        let ledger = &mut *self.pending.ledger.borrow_mut();
        if self.is_empty() {
            let accounts = ledger.accounts.entry(self.client).or_default();
            self.index.set(accounts.len());
            accounts.push(Rc::clone(self));
        }
        ledger.requests.add(self.client, requests);
        ledger.head_bytes.add(self.client, bytes);
        self.requests.set(self.requests.get() + requests);
        self.head_bytes.set(self.head_bytes.get() + bytes);
    }

    fn remove(&self, requests: usize, bytes: usize) {
        if requests == 0 && bytes == 0 {
            return;
        }
        let ledger = &mut *self.pending.ledger.borrow_mut();
        ledger.requests.remove(self.client, requests);
        ledger.head_bytes.remove(self.client, bytes);
        self.requests.set(self.requests.get() - requests);
        self.head_bytes.set(self.head_bytes.get() - bytes);
        if self.is_empty() {
            self.to_shed.take();
            self.stalled_ms.set(u64::MAX);
            ledger.forget(self);
        }
    }
}

impl RequestReservation {
    /// Returns the client of the request.
    pub(super) fn client(&self) -> ClientNetwork {
        self.account.client
    }

    /// Returns the bytes of the request head in memory.
    pub(super) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// Changes the entry to `head_bytes` in memory. Fails if the ledger has no room for the additional
    /// bytes; the entry stays as before, and the refusal is counted.
    pub(super) fn resize(&mut self, head_bytes: usize) -> Result<(), SharedLimit> {
        match head_bytes.checked_sub(self.head_bytes) {
            None | Some(0) => self.account.remove(0, self.head_bytes - head_bytes),
            Some(more) => {
                let account = &self.account;
                account
                    .make_room(0, more, usize::MAX, 0)
                    .inspect_err(|share| account.pending.refused(*share, 1))?;
                account.add(0, more);
            }
        }
        self.head_bytes = head_bytes;
        Ok(())
    }
}

impl RequestReservation {
    /// Records `bytes` of an unfinished head; a small number of bytes doesn't count. Returns false where
    /// the ledger has no room for the bytes.
    pub(super) fn keep(&mut self, bytes: usize) -> bool {
        let counted = if bytes > UNFINISHED_HEAD_BYTES_FREE {
            bytes
        } else {
            0
        };
        // Most often neither the former nor the new bytes count, and the ledger isn't touched.
        counted == self.head_bytes || self.resize(counted).is_ok()
    }
}

impl Drop for RequestReservation {
    fn drop(&mut self) {
        self.account.remove(self.requests, self.head_bytes);
    }
}

impl RequestLedgerState {
    fn room_for_requests(
        &mut self,
        client: ClientNetwork,
        more: usize,
        bound: usize,
        now_ms: u64,
    ) -> Result<(), SharedLimit> {
        if more == 0 || self.requests.may_take(client, more, bound) {
            return Ok(());
        }
        let accounts = largest_to_shed(&self.requests, client, more, bound)
            .and_then(|largest| self.accounts.get(&largest));
        let left = accounts
            .into_iter()
            .flatten()
            .filter(|it| it.has_requests());
        let worst = left.min_by_key(|it| it.stalled_ms());
        let worst = worst.or_else(|| self.longest_without_progress(client, more, bound, now_ms));
        worst.ok_or(SharedLimit::Streams)?.tell(ShedOrder {
            requests: more,
            head_bytes: 0,
        });
        Ok(())
    }

    /// Returns the connection with the request that has been stalled for longest, where all clients hold few requests
    /// and `client` holds none. Without a stalled request, the function returns the connection that has made no progress for
    /// longest, at least for [`SERVER_STALL_MILLISECONDS`], while its requests waited for the server. Otherwise many clients with a stalled request or a silent event
    /// stream each would keep all newcomers out.
    fn longest_without_progress(
        &self,
        client: ClientNetwork,
        more: usize,
        bound: usize,
        now_ms: u64,
    ) -> Option<&Rc<ConnectionAccount>> {
        let largest = self.requests.largest_beside(client, bound)?;
        let have_few = largest.other == 0 && largest.units <= FEW_CONNECTIONS_MAX;
        if !have_few || !fits_for_a_moment(&self.requests, more, bound) {
            return None;
        }
        let accounts = || {
            let accounts = self.accounts.values().flatten();
            accounts.filter(|it| it.has_requests())
        };
        let stalled = accounts().filter(|it| it.stalled_ms() != u64::MAX);
        let is_silent = |it: &&Rc<ConnectionAccount>| {
            now_ms.saturating_sub(it.moved_ms()) >= SERVER_STALL_MILLISECONDS
        };
        let stalled = stalled.min_by_key(|it| it.stalled_ms());
        stalled.or_else(|| accounts().filter(is_silent).min_by_key(|it| it.moved_ms()))
    }

    fn room_for_bytes(
        &mut self,
        client: ClientNetwork,
        more: usize,
        bound: usize,
    ) -> Result<(), SharedLimit> {
        if more == 0 || self.head_bytes.may_take(client, more, bound) {
            return Ok(());
        }
        let accounts = largest_to_shed(&self.head_bytes, client, more, bound)
            .and_then(|largest| self.accounts.get(&largest));
        let left = accounts
            .into_iter()
            .flatten()
            .filter(|it| it.has_head_bytes());
        let worst = left.max_by_key(|it| it.head_bytes.get());
        worst.ok_or(SharedLimit::HeadBytes)?.tell(ShedOrder {
            requests: 0,
            head_bytes: more,
        });
        Ok(())
    }

    /// Removes a connection without requests and head bytes.
    fn forget(&mut self, account: &ConnectionAccount) {
        let Some(accounts) = self.accounts.get_mut(&account.client) else {
            return;
        };
        accounts.swap_remove(account.index.get());
        match accounts.get(account.index.get()) {
            Some(moved) => moved.index.set(account.index.get()),
            None if accounts.is_empty() => drop(self.accounts.remove(&account.client)),
            None => {}
        }
    }
}

/// Returns the client with the largest holding when the bound is taken, if `client` wants far less. A
/// request of the largest holder is to end, and the request of `client` is admitted meanwhile. The
/// connection ends the request in the connection's own turn, so the bound is exceeded for a short time,
/// by a sixteenth at most.
fn largest_to_shed(
    held: &ClientHoldings,
    client: ClientNetwork,
    more: usize,
    bound: usize,
) -> Option<ClientNetwork> {
    let largest = held.largest_beside(client, bound)?;
    let own = largest.other + more;
    let is_small = own <= share_of(bound) && own < largest.units;
    (is_small && fits_for_a_moment(held, more, bound)).then_some(largest.client)
}

/// Returns true if the bound may be exceeded by `more` until a request of another client has ended.
fn fits_for_a_moment(held: &ClientHoldings, more: usize, bound: usize) -> bool {
    held.all() + more <= bound + (bound / 16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    const REQUESTS: usize = 32;
    const NOW_MS: u64 = 20_000;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ledger() -> (Rc<RequestLedger>, Arc<RefusalCounters>) {
        let refusals = Arc::new(RefusalCounters::default());
        (RequestLedger::new(1_600, refusals.clone()), refusals)
    }

    fn counted(refusals: &RefusalCounters, share: SharedLimit) -> u64 {
        let mut all = refusals.each();
        all.find(|(it, _)| *it == share)
            .map_or(0, |(_, count)| count)
    }

    fn fill(account: &Rc<ConnectionAccount>, head_bytes: usize) -> Vec<RequestReservation> {
        std::iter::from_fn(|| account.admit(head_bytes, REQUESTS, NOW_MS).ok()).collect()
    }

    #[test]
    fn one_client_takes_three_quarters_and_another_still_has_room() {
        let (pending, refusals) = ledger();
        let greedy = pending.account([192, 0, 2, 1].into());
        let held = fill(&greedy, 0);
        assert_eq!(held.len(), 24);
        assert_eq!(counted(&refusals, SharedLimit::Streams), 1);
        let other = pending.account([192, 0, 2, 2].into());
        assert_eq!(fill(&other, 0).len(), 4);
        drop(held);
        assert_eq!(fill(&other, 0).len(), 24);
        assert!(pending.ledger.borrow().accounts.is_empty());
    }

    #[test]
    fn clients_of_a_proxy_share_a_connection_and_not_a_share() {
        let (pending, refusals) = ledger();
        let woken = Arc::new(Woken::default());
        let proxy = pending.account([10, 0, 0, 1].into());
        proxy.wake_by(&Waker::from(woken.clone()));
        let clients = [1, 2].map(|last| proxy.of_client([192, 0, 2, last].into()));
        let greedy = fill(&clients[0], 0);
        assert_eq!((greedy.len(), fill(&clients[1], 0).len()), (24, 4));
        assert_eq!(counted(&refusals, SharedLimit::Streams), 2);
        // At the bound, the order names the client with the most requests.
        let mut all = fill(&clients[1], 0);
        all.extend((3..7).flat_map(|last| {
            proxy
                .of_client([192, 0, 2, last].into())
                .admit(0, REQUESTS, NOW_MS)
        }));
        let other = proxy.of_client([192, 0, 2, 9].into());
        assert!(other.admit(0, REQUESTS, NOW_MS).is_ok());
        let one = ShedOrder {
            requests: 1,
            head_bytes: 0,
        };
        assert_eq!(proxy.take_client_sheds(), [(clients[0].client(), one)]);
        assert_eq!(proxy.take_shed(), ShedOrder::default());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        drop((greedy, all, clients, other));
        assert!(pending.ledger.borrow().accounts.is_empty());
        assert!(Rc::ptr_eq(&proxy.of_client([10, 0, 0, 1].into()), &proxy));
        let _ = proxy.of_client([192, 0, 2, 1].into());
        assert_eq!(
            proxy.clients.borrow().len(),
            1,
            "accounts without requests are gone"
        );
    }

    #[test]
    fn heads_are_bounded_by_their_bytes() {
        let (pending, refusals) = ledger();
        let greedy = pending.account([192, 0, 2, 1].into());
        let mut held = fill(&greedy, 100);
        assert_eq!(held.len(), 12);
        assert_eq!(counted(&refusals, SharedLimit::HeadBytes), 1);
        // An answered head returns the bytes while the response waits.
        assert!(held[0].resize(0).is_ok());
        assert!(held[1].resize(200).is_ok());
        assert!(held[1].resize(201).is_err());
        drop(held);
        let mut unfinished = greedy.unfinished();
        assert!(unfinished.resize(1_200).is_ok());
        assert_eq!(pending.ledger.borrow().head_bytes.all(), 1_200);
        drop(unfinished);
        assert!(pending.ledger.borrow().accounts.is_empty());
    }

    #[test]
    fn at_the_bound_of_head_bytes_the_connection_with_the_largest_heads_sheds() {
        let (pending, _) = ledger();
        let [small, large] = [1, 1].map(|last| pending.account([192, 0, 2, last].into()));
        let mut all = fill(&small, 100);
        all.truncate(4);
        all.push(large.admit(700, REQUESTS, NOW_MS).expect("room"));
        let second = pending.account([192, 0, 2, 2].into());
        all.push(second.held(0, 500));
        let other = pending.account([192, 0, 2, 3].into());
        assert!(other.admit(100, REQUESTS, NOW_MS).is_ok());
        let bytes = |head_bytes| ShedOrder {
            requests: 0,
            head_bytes,
        };
        assert_eq!(
            (large.take_shed(), small.take_shed()),
            (bytes(100), bytes(0))
        );
    }

    #[test]
    fn at_the_bound_the_longest_stalled_connection_of_the_largest_holder_sheds() {
        let (pending, refusals) = ledger();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut all = Vec::new();
        // Eight clients with four requests each take the whole bound; the first client has a fifth
        // request.
        let accounts: Vec<_> = (0..8)
            .map(|nth| pending.account([192, 0, 2, nth].into()))
            .collect();
        let second = pending.account([192, 0, 2, 0].into());
        for account in &accounts {
            all.extend((0..4).map_while(|_| account.admit(0, REQUESTS, NOW_MS).ok()));
        }
        all.push(second.held(1, 0));
        assert_eq!(pending.ledger.borrow().requests.all(), 33);
        accounts[0].stalled_since(5_000);
        second.stalled_since(4_000);
        second.wake_by(&waker);
        let other = pending.account([192, 0, 2, 9].into());
        let admitted = other.admit(0, REQUESTS, NOW_MS);
        assert!(admitted.is_ok());
        let one = ShedOrder {
            requests: 1,
            head_bytes: 0,
        };
        let told = (second.take_shed(), accounts[0].take_shed());
        assert_eq!(told, (one, ShedOrder::default()));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        // At most a sixteenth over the bound.
        assert!(other.admit(0, REQUESTS, NOW_MS).is_err());
        // A client that holds as much as the other clients is refused.
        assert!(accounts[3].admit(0, REQUESTS, NOW_MS).is_err());
        assert_eq!(counted(&refusals, SharedLimit::Streams), 2);
        assert_eq!((other.requests(), second.requests()), (1, 1));
    }

    #[test]
    fn a_silent_request_gives_way_to_a_client_without_one() {
        let (pending, _) = ledger();
        let accounts: Vec<_> = (0..32)
            .map(|nth| pending.account([192, 0, 2, nth].into()))
            .collect();
        let admit = |account: &Rc<ConnectionAccount>| account.admit(0, REQUESTS, NOW_MS);
        let mut held: Vec<_> = accounts.iter().filter_map(|it| admit(it).ok()).collect();
        assert_eq!(held.len(), 32);
        for account in &accounts {
            account.stand(Activity::Busy(NOW_MS - SERVER_STALL_MILLISECONDS + 1));
        }
        let other = pending.account([192, 0, 2, 99].into());
        assert!(admit(&other).is_err(), "all requests have moved lately");
        accounts[5].stand(Activity::Busy(NOW_MS - SERVER_STALL_MILLISECONDS));
        accounts[7].stand(Activity::Busy(NOW_MS - SERVER_STALL_MILLISECONDS - 1));
        assert!(admit(&accounts[0]).is_err(), "the client has a request");
        held.extend(admit(&other));
        assert_eq!(held.len(), 33);
        let told = |nth: usize| accounts[nth].take_shed().requests;
        assert_eq!((told(7), told(5)), (1, 0));
        drop(held.remove(7));
        // A request of a stalled client ends before a silent request.
        accounts[9].stalled_since(NOW_MS - 1);
        let third = pending.account([192, 0, 2, 98].into());
        held.extend(admit(&third));
        assert_eq!((told(9), told(5)), (1, 0));
    }
}
