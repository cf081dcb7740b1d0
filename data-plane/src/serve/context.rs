//! State of a worker below the drivers of the protocols: clock, counters, thread pool, buffers, and the
//! table of connections. Workers share only [`ProcessContext`].

use crate::handler::Endpoints;
use crate::hits::{SiteHits, Tally, UserAgentCache};
use crate::ledger::access_log::AccessLogLine;
use crate::ledger::active_requests::{ActiveRequestLedger, ActiveRequests};
use crate::ledger::body_memory::{BodyAccount, BodyMemory, BodyPurpose, WorkerBodyMemory};
use crate::ledger::change_tracker::ChangeTracker;
use crate::ledger::descriptors::descriptors;
use crate::ledger::route_counters::{ResponseSeries, RouteCounters};
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::ledger::stats::Counters;
use crate::limits::{self, CALL_SEARCHED_PER_MILLISECOND};
use crate::serve::access_log_batches::AccessLogBatches;
use crate::serve::connection_entry::{Activity, ConnectionEntry, ConnectionOwner, EvictionOrders};
use crate::serve::connection_ledger::{ConnectionEntryGuard, ConnectionLedger};
use crate::serve::connection_table::{ConnectionPhase, ConnectionTable};
use crate::serve::ending_call::{BusyConnection, Claim, EndedRequests, choose};
use crate::serve::h2::buffers::H2Buffers;
use crate::serve::h3::context::{H3Context, QuicWorkers};
use crate::serve::poller::{Poller, Readiness};
use crate::serve::request_ledger::{ConnectionAccount, RequestLedger};
use crate::serve::search_pauses::SearchPauses;
use crate::serve::socket::TcpSocket;
use crate::upstream::close_idle_members;
use crate::world::{AccessLog, World};
use base::client_history::ClientStanding;
use base::client_network::ClientNetwork;
use base::clock::Clock;
use base::log::RareLines;
use base::sys;
use base::thread_pool::ThreadPool;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use wire::reject::Reject;
use wire::status::Status;

/// State shared by all workers of a process.
pub struct ProcessContext {
    /// Number of open connections of all workers.
    pub open: AtomicUsize,
    /// Ledger of connections by client.
    pub ledger: Arc<ConnectionLedger>,
    /// Thread pool for file reads and name look-ups.
    pub pool: Arc<ThreadPool>,
    /// Workers to which new HTTP/3 connections are assigned.
    pub quic: QuicWorkers,
    /// Counters of refusals because of shares already taken.
    pub refusals: Arc<RefusalCounters>,
    /// Most bytes of request heads that a worker keeps for waiting requests.
    pub pending_head_bytes_max: usize,
    /// Memory of the bodies under way.
    pub body_memory: Arc<BodyMemory>,
    /// Requests under way, for the operator.
    pub active_requests: ActiveRequestLedger,
    /// Number of workers.
    pub workers: usize,
    /// Tracker of changes on disk that the served content does not show yet.
    pub change_tracker: Arc<ChangeTracker>,
    /// Lines about events that any client can cause.
    pub rare_lines: RareLines,
    /// Common origin of all workers' clocks.
    pub origin: Instant,
}

/// Connection of a request that may end for want of memory.
enum CallOwner {
    /// A connection of HTTP/2 or HTTP/3.
    Streams(Rc<ConnectionAccount>),
    /// A connection of HTTP/1.1, by its row.
    Row(usize),
}

/// World with a count of the worker's own references: each request counts a reference, and a count of all
/// workers would travel between their processors.
pub(super) type CountedWorld = Rc<Arc<World>>;

/// State of a worker, shared by the worker's connections.
pub(crate) struct WorkerContext {
    pub(super) clock: Clock,
    pub(super) stats: Arc<Counters>,
    pub(super) pool: Arc<ThreadPool>,
    draining: Cell<bool>,
    /// True if idle connections end at once; otherwise the next response on a connection announces the end. Has an
    /// effect only with `draining`.
    ends_idle: Cell<bool>,
    /// Buffer for received bytes, shared by all connections: an idle connection owns no buffer.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// Buffer for file content that is sent over TLS.
    pub(super) disk: RefCell<Box<[u8]>>,
    /// Buffer for the variable part of a response head.
    pub(super) lead: RefCell<Vec<u8>>,
    /// Buffer that joins head and body of a small response.
    pub(super) joined: RefCell<Vec<u8>>,
    logs: RefCell<AccessLogBatches>,
    /// Counted views not yet written to the ledger of hits.
    tally: RefCell<Tally>,
    agents: RefCell<UserAgentCache>,
    /// Buffers for HTTP/2 connections, in use only while a connection is polled.
    pub(super) h2: H2Buffers,
    /// State shared by the worker's HTTP/3 connections.
    pub(super) h3: H3Context,
    world: RefCell<CountedWorld>,
    pub(super) shared: Arc<ProcessContext>,
    /// Requests under way, and the bytes of request heads, by client.
    pub(super) request_ledger: Rc<RequestLedger>,
    /// Memory of the bodies under way on the worker.
    body_memory: Rc<WorkerBodyMemory>,
    /// Requests under way on the worker, for the operator.
    pub(super) active_requests: Arc<ActiveRequests>,
    connections: RefCell<ConnectionTable>,
    /// Time of the next search for a request that ends for want of memory, in milliseconds of the clock.
    next_search_ms: Cell<u64>,
    /// Clients for which the last search found no request to end.
    search_pauses: RefCell<SearchPauses>,
    /// Orders from other workers to close connections of the worker.
    pub(super) eviction_orders: Arc<EvictionOrders>,
    /// Epoll instance that reports events of sockets and changes on disk.
    pub(super) poller: Rc<Poller>,
    /// Notified when a connection of the worker closes, because a drain may be complete.
    closed: Notify,
    /// Notified when the sweep has work again.
    sweep_needed: Notify,
}

impl WorkerContext {
    /// Creates the state of a worker without connections.
    ///
    /// # Errors
    /// Fails if no descriptor or no memory is left.
    pub(super) fn new(
        clock: Clock,
        world: Arc<World>,
        shared: Arc<ProcessContext>,
        stats: Arc<Counters>,
    ) -> io::Result<WorkerContext> {
        let context = WorkerContext {
            clock,
            pool: shared.pool.clone(),
            draining: Cell::new(false),
            ends_idle: Cell::new(false),
            scratch: RefCell::new(vec![0; limits::READ_BUFFER_BYTES].into()),
            disk: RefCell::new(vec![0; limits::UNSENT_BYTES_MAX].into()),
            lead: RefCell::default(),
            joined: RefCell::default(),
            logs: RefCell::default(),
            tally: RefCell::default(),
            agents: RefCell::default(),
            h2: H2Buffers::default(),
            h3: H3Context::default(),
            world: RefCell::new(Rc::new(world)),
            request_ledger: RequestLedger::new(
                shared.pending_head_bytes_max,
                shared.refusals.clone(),
            ),
            body_memory: WorkerBodyMemory::new(&shared.body_memory, shared.workers),
            active_requests: shared.active_requests.worker(stats.worker),
            stats,
            shared,
            connections: RefCell::default(),
            next_search_ms: Cell::new(0),
            search_pauses: RefCell::default(),
            eviction_orders: Arc::default(),
            poller: Rc::new(Poller::new()?),
            closed: Notify::new(),
            sweep_needed: Notify::new(),
        };
        context
            .poller
            .set_inotify(context.shared.change_tracker.inotify());
        Ok(context)
    }

    // ---- World ----

    /// Returns the current World. A request keeps the World until the request ends.
    #[inline]
    pub(super) fn world(&self) -> CountedWorld {
        self.world.borrow().clone()
    }

    /// Replaces the World.
    pub(super) fn set_world(&self, world: Arc<World>) {
        self.world.replace(Rc::new(world));
        self.poller
            .set_inotify(self.shared.change_tracker.inotify());
        self.logs.borrow_mut().forget();
        let now = self.clock.unix_seconds();
        self.tally.borrow_mut().flush_and_clear(now);
    }

    /// Returns true if every connection ends: the server is about to stop, or another process serves in its place.
    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Returns true if connections that become idle end at once. A connection that has been told the end lingers otherwise.
    pub(super) fn ends_idle(&self) -> bool {
        self.ends_idle.get()
    }

    /// Begins the end of all connections, of idle connections with their next response.
    pub(super) fn begin_leaving(&self) {
        self.draining.set(true);
    }

    /// Begins the end of all connections, of idle connections at once.
    pub(super) fn begin_drain(&self) {
        self.draining.set(true);
        self.ends_idle.set(true);
    }

    // ---- Calls ----

    /// Admits a call of a handler for `client`. Without memory for the bodies of a further call, counts and
    /// returns the refusal.
    pub(super) fn admit_call(&self, client: IpAddr) -> Result<BodyAccount, Reject> {
        let admitted = self.body_memory.admit(client);
        admitted
            .ok_or(())
            .or_else(|()| self.admit_for_another(client))
    }

    /// Admits a call for which a request of another client ends, since all memory for bodies is reserved but for the part for
    /// newcomers.
    #[cold]
    fn admit_for_another(&self, client: IpAddr) -> Result<BodyAccount, Reject> {
        self.shared.refusals.increment(SharedLimit::BodyMemory);
        let is_within_share = self.body_memory.is_within_share(client);
        let bytes = limits::CALL_RESERVED_BYTES;
        self.end_requests_for(client.into(), is_within_share, 0, bytes)
            .and_then(|standing| self.body_memory.admit_in_place(client, standing))
            .ok_or(Reject::BODY_MEMORY_FULL)
    }

    /// Ends requests of other clients for `bytes` bytes of content that a request of `client` has received. Returns the
    /// purpose for which the request may reserve the bytes; None if the bytes find no memory.
    #[cold]
    pub(super) fn make_room_for_content(
        &self,
        client: ClientNetwork,
        bytes: usize,
    ) -> Option<BodyPurpose> {
        self.shared.refusals.increment(SharedLimit::BodyMemory);
        let standing = self.end_requests_for(client, true, 1, bytes)?;
        Some(BodyPurpose::InPlace(standing))
    }

    /// Ends requests of other clients for `bytes` bytes of `client`, which has `own` requests that need the memory
    /// themselves. The requests end in their own turns. Returns the standing of the client; None if no request ends. The
    /// search walks over all connections of the worker, and takes a bounded part of the time: after a search for nothing,
    /// the client has a pause. A newcomer that finds no request on the worker takes the place of a request on another
    /// worker, which ends soon.
    ///
    /// A client beyond its share gets nothing. The shares are counted in buckets, so a client without another request is
    /// within its share even if `is_within_share` is false.
    fn end_requests_for(
        &self,
        client: ClientNetwork,
        is_within_share: bool,
        own: usize,
        bytes: usize,
    ) -> Option<ClientStanding> {
        let now_ms = self.clock.millis();
        if now_ms < self.next_search_ms.get()
            || self.search_pauses.borrow().contains(client, now_ms)
        {
            return None;
        }
        let memory = &self.shared.body_memory;
        let standing = memory.history(now_ms).standing(client);
        if !memory.has_reserve(bytes, standing) {
            return None;
        }
        let count = bytes.div_ceil(limits::CALL_RESERVED_BYTES);
        let count = count.min(limits::BODY_ENDED_CALLS_MAX);
        let claim = Claim {
            client,
            standing,
            own,
            now_ms,
        };
        let connections = self.busy_connections(now_ms);
        let searched = connections.len();
        let choice = choose(connections, &claim, count);
        let standing = match standing {
            ClientStanding::New if choice.holds_nothing => ClientStanding::New,
            _ => ClientStanding::Served,
        };
        if !memory.has_reserve(bytes, standing) {
            return None;
        }
        let is_beyond_share = !is_within_share && !choice.holds_nothing;
        let finds_none = choice.ended.is_empty();
        let may_ask_others = standing == ClientStanding::New && self.shared.workers > 1;
        if is_beyond_share || finds_none && !may_ask_others {
            let mut pauses = self.search_pauses.borrow_mut();
            pauses.begin(client, searched, now_ms);
            return None;
        }
        if finds_none {
            memory.want_of_others();
        }
        self.end_requests(choice.ended, now_ms);
        memory.history(now_ms).record_grant(client);
        Some(standing)
    }

    /// Returns the connections of the worker with requests under way, and sets the time of the next search.
    fn busy_connections(&self, now_ms: u64) -> Vec<BusyConnection<CallOwner>> {
        let of_streams = self.request_ledger.busy_connections(now_ms).into_iter();
        let mut connections: Vec<_> = of_streams.map(|it| it.map(CallOwner::Streams)).collect();
        let table = self.connections.borrow();
        connections.extend(table.busy_h1(now_ms).map(|it| it.map(CallOwner::Row)));
        let pause_ms = connections.len() as u64 / CALL_SEARCHED_PER_MILLISECOND;
        self.next_search_ms.set(now_ms + pause_ms);
        connections
    }

    /// Tells the chosen requests to end, and records their clients.
    fn end_requests(&self, ended: Vec<EndedRequests<CallOwner>>, now_ms: u64) {
        let mut history = self.shared.body_memory.history(now_ms);
        for EndedRequests {
            owner,
            client,
            count,
            is_slow,
        } in ended
        {
            history.record_grant(client);
            if is_slow {
                history.record_slow(client);
            }
            match owner {
                CallOwner::Streams(account) => account.tell_requests(count),
                CallOwner::Row(row) => {
                    self.end_evicted(row);
                }
            }
        }
    }

    /// Ends requests for newcomers on other workers that found none there.
    fn end_requests_for_other_workers(&self, now_ms: u64) {
        let count = self.shared.body_memory.take_wanted();
        if count > 0 {
            let claim = Claim {
                client: ClientNetwork::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                standing: ClientStanding::New,
                own: 0,
                now_ms,
            };
            let choice = choose(self.busy_connections(now_ms), &claim, count);
            self.end_requests(choice.ended, now_ms);
        }
    }

    // ---- Connections ----

    pub(super) fn is_full(&self) -> bool {
        self.shared.open.load(Ordering::Relaxed) >= self.world.borrow().limits.connections
            || self.lacks_descriptors()
    }

    /// Returns true if no descriptor is left for a connection, after idle connections to members have made
    /// room.
    fn lacks_descriptors(&self) -> bool {
        let descriptors = descriptors();
        descriptors.is_full() && (close_idle_members() == 0 || descriptors.is_full())
    }

    /// Returns the row for the next connection.
    pub(super) fn next_row(&self) -> usize {
        self.connections.borrow().next_row()
    }

    /// Puts an opened connection into the row [`WorkerContext::next_row`].
    pub(super) fn open(
        &self,
        row: usize,
        socket: Rc<TcpSocket>,
        entered: ConnectionEntryGuard,
        phase: ConnectionPhase,
    ) {
        self.count_opened();
        self.connections.borrow_mut().fill(row, socket, entered);
        self.phase(row, phase);
        if self.open_connections() == 1 {
            self.sweep_needed.notify_one();
        }
    }

    /// Returns the number of open connections in the table.
    pub(super) fn open_connections(&self) -> usize {
        self.connections.borrow().open()
    }

    /// Returns the socket of the connection in the row.
    pub(super) fn socket(&self, row: usize) -> Option<Rc<TcpSocket>> {
        self.connections.borrow().socket(row).cloned()
    }

    /// Returns the addresses of both ends of the connection in the row.
    pub(super) fn endpoints(&self, row: usize) -> Endpoints {
        let socket = self.socket(row);
        socket.map_or_else(Endpoints::default, |socket| socket.ends())
    }

    /// Enters a connection of `peer` into the ledger of connections. Returns None where the client has the
    /// largest number of connections already; the limit does not apply to trusted proxies.
    pub(super) fn enter_connection(
        &self,
        peer: IpAddr,
        owner: ConnectionOwner,
    ) -> Option<ConnectionEntryGuard> {
        let (world, ledger) = (self.world(), &self.shared.ledger);
        let now_ms = self.clock.millis();
        if !world.trust.is_empty() && world.trust.contains(peer) {
            Some(ledger.enter_proxy(peer.into(), owner, now_ms))
        } else {
            let most = world.limits.connections_per_address;
            ledger.enter(peer.into(), most, owner, now_ms)
        }
    }

    /// Returns true if the ledger of connections has room for another connection of `peer`.
    pub(super) fn may_connect(&self, peer: IpAddr) -> bool {
        let world = self.world();
        let most = world.limits.connections_per_address;
        self.shared.ledger.may_enter(peer.into(), most) || world.trust.contains(peer)
    }

    /// Counts an opened connection.
    pub(super) fn count_opened(&self) {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        self.stats.connections_opened.increment();
    }

    /// Removes the connection in the row and counts the connection as closed.
    pub(super) fn close(&self, row: usize) {
        self.connections.borrow_mut().remove(row);
        self.count_closed();
    }

    /// Counts a closed connection, and notifies waiting accept loops and a drain.
    pub(super) fn count_closed(&self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        self.stats.connections_closed.increment();
        self.closed.notify_waiters();
        self.shared.ledger.notify_closed();
    }

    /// Waits for the next closed connection of the worker.
    pub(super) fn connection_closed(&self) -> Notified<'_> {
        self.closed.notified()
    }

    /// Counts an eviction of a connection in favour of another connection.
    pub(super) fn count_eviction(&self) {
        self.shared.refusals.increment(SharedLimit::Connections);
    }

    /// Returns true if the ledger has chosen `entry` for eviction, and the row still belongs to the entry.
    pub(super) fn is_chosen(&self, row: usize, entry: &Arc<ConnectionEntry>) -> bool {
        self.connections.borrow().is_chosen(row, entry)
    }

    /// See [`ConnectionTable::client_rate`].
    pub(super) fn client_rate(&self, row: usize, age_ms: u64) -> u64 {
        self.connections.borrow().client_rate(row, age_ms)
    }

    /// Makes the task of an evicted connection end the connection. Returns false if no connection is in the
    /// row.
    pub(super) fn end_evicted(&self, row: usize) -> bool {
        self.connections.borrow_mut().end_evicted(row)
    }

    /// See [`ConnectionTable::is_evicted`].
    pub(super) fn is_evicted(&self, row: usize) -> bool {
        self.connections.borrow().is_evicted(row)
    }

    /// See [`ConnectionTable::set_phase`].
    pub(super) fn phase(&self, row: usize, phase: ConnectionPhase) {
        let (now_ms, world) = (self.clock.millis(), self.world.borrow());
        let mut connections = self.connections.borrow_mut();
        connections.set_phase(row, phase, &world.limits, now_ms);
    }

    /// See [`ConnectionTable::set_body_phase`].
    pub(super) fn phase_body(&self, row: usize, seen: u64, patience: Duration) {
        let (now_ms, world) = (self.clock.millis(), self.world.borrow());
        let mut connections = self.connections.borrow_mut();
        connections.set_body_phase(row, seen, patience, &world.limits, now_ms);
    }

    /// See [`ConnectionTable::set_linger_deadline`].
    pub(super) fn linger_until(&self, row: usize, deadline_ms: u64) {
        let mut connections = self.connections.borrow_mut();
        connections.set_linger_deadline(row, deadline_ms);
    }

    /// See [`ConnectionTable::set_activity`].
    pub(super) fn set_activity(&self, row: usize, activity: Activity) {
        self.connections.borrow().set_activity(row, activity);
    }

    /// See [`ConnectionTable::set_busy`].
    pub(super) fn stand_busy(&self, row: usize) {
        let now_ms = self.clock.millis();
        self.connections.borrow().set_busy(row, now_ms);
    }

    /// See [`ConnectionTable::wake_at`].
    pub(super) fn wake_at(
        &self,
        row: usize,
        phase: ConnectionPhase,
        deadline_ms: u64,
        standing: Activity,
        waker: &Waker,
    ) {
        let mut connections = self.connections.borrow_mut();
        connections.wake_at(row, phase, deadline_ms, standing, waker);
    }

    /// See [`ConnectionTable::clear_waker`].
    pub(super) fn clear_waker(&self, row: usize) {
        self.connections.borrow_mut().clear_waker(row);
    }

    /// See [`ConnectionTable::is_client_progressing`].
    pub(super) fn is_client_progressing(&self, row: usize) -> bool {
        self.connections.borrow_mut().is_client_progressing(row)
    }

    /// See [`ConnectionTable::expired`].
    pub(super) fn expired(&self, row: usize) -> Option<ConnectionPhase> {
        self.connections.borrow().expired(row)
    }

    /// See [`ConnectionTable::is_idle_until`].
    pub(super) fn is_idle_until(&self, row: usize, deadline_ms: u64) -> bool {
        self.connections.borrow().is_idle_until(row, deadline_ms)
    }

    /// Ends connections past their deadlines, and counts late connections.
    pub(super) fn end_expired(&self) {
        let now_ms = self.clock.millis();
        let limits = &self.world.borrow().limits;
        let is_full = self.shared.open.load(Ordering::Relaxed) >= limits.connections;
        if is_full || self.shared.body_memory.is_short() {
            self.connections.borrow_mut().note_rates(now_ms);
        }
        let stall_ms = u64::from(limits.write_stall_seconds) * 1_000;
        let ended = self.connections.borrow_mut().expire(now_ms, stall_ms);
        self.stats.deadlines.add(ended);
        self.end_requests_for_other_workers(now_ms);
        self.search_pauses.borrow_mut().forget_ended(now_ms);
    }

    /// See [`ConnectionTable::wake_busy`].
    pub(super) fn wake_busy(&self) {
        self.connections.borrow().wake_busy();
    }

    /// See [`ConnectionTable::end_idle`].
    pub(super) fn end_idle(&self) {
        self.connections.borrow_mut().end_idle();
    }

    /// Records the readiness of the socket in the row, and wakes the task of the connection where `wakes` is
    /// true. Returns false if no connection is in the row.
    #[inline]
    pub(super) fn socket_ready(&self, row: usize, ready: Readiness, wakes: bool) -> bool {
        let connections = self.connections.borrow();
        let Some(socket) = connections.socket(row) else {
            return false;
        };
        socket.now_ready(ready);
        if wakes {
            socket.wake();
        }
        true
    }

    /// Prefetches the socket of a connection.
    pub(super) fn prefetch_socket(&self, row: usize) {
        if let Some(socket) = self.connections.borrow().socket(row) {
            sys::prefetch(&**socket);
        }
    }

    /// Prefetches the row of a connection.
    pub(super) fn prefetch_row(&self, row: usize) {
        self.connections.borrow().prefetch(row);
    }

    // ---- Counters ----

    /// Counts a response of the route with `counters`, or of requests without a site.
    #[inline]
    pub(super) fn count_response(
        &self,
        counters: Option<&Arc<RouteCounters>>,
        series: ResponseSeries,
        status: Status,
        bytes: u64,
    ) {
        let worker = self.stats.worker;
        match counters {
            Some(counters) => counters.count(worker, series, status.0, bytes),
            None => self.count_without_site(series, status, bytes),
        }
    }

    #[cold]
    fn count_without_site(&self, series: ResponseSeries, status: Status, bytes: u64) {
        let world = self.world.borrow();
        let counters = &world.without_site;
        counters.count(self.stats.worker, series, status.0, bytes);
    }

    /// Counts a request refused by the rule with the number `rule`; 0 stands for no refusal.
    #[inline(never)]
    pub(super) fn count_refusal(&self, rule: u16) {
        if rule != 0
            && let Some(index) = Reject::index_of(rule)
        {
            self.stats.refusals.increment(index);
            self.stats.rejects.increment();
        }
    }

    // ---- Logs and views ----

    /// Buffers an access log line.
    pub(super) fn log_access(&self, access: &AccessLog, line: &AccessLogLine<'_>) {
        let time = self.clock.log_time();
        self.logs.borrow_mut().write(access, line, &time);
        self.wake_sweep();
    }

    /// Returns true if the User-Agent field names a program rather than a browser.
    pub(super) fn is_bot(&self, agent: Option<&[u8]>) -> bool {
        self.agents.borrow_mut().is_bot(agent)
    }

    /// Counts a view of a page.
    pub(super) fn count(&self, hits: &Arc<SiteHits>, path: &[u8], is_bot: bool) {
        let now = self.clock.unix_seconds();
        self.tally.borrow_mut().count(hits, path, is_bot, now);
        self.wake_sweep();
    }

    /// Writes buffered log lines to the logs.
    pub(super) fn flush_logs(&self) {
        self.logs.borrow_mut().flush();
    }

    /// Adds counted views to the ledger of hits.
    pub(super) fn flush_views(&self) {
        self.clock.tick();
        self.tally.borrow_mut().flush(self.clock.unix_seconds());
    }

    /// Returns true if log lines or views are buffered.
    pub(super) fn has_buffered(&self) -> bool {
        !(self.logs.borrow().is_empty() && self.tally.borrow().is_empty())
    }

    /// Waits until the sweep has work again.
    pub(super) fn sweep_needed(&self) -> Notified<'_> {
        self.sweep_needed.notified()
    }

    /// Starts the sweep where no connection is open, because buffered log lines wait to be flushed.
    fn wake_sweep(&self) {
        if self.open_connections() == 0 {
            self.sweep_needed.notify_one();
        }
    }
}
