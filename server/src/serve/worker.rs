//! A worker: one thread with its own runtime, listeners and connections. Workers share only
//! [`ProcessContext`].
//!
//! Deadlines need no timer per connection. Each connection has a row in a table with the time of its next
//! deadline. A sweep every 500 ms shuts down the sockets of connections past their deadlines. The
//! connection then reads end of file, looks up the expired phase, and answers the client if an answer is
//! still possible.

use super::accept::{ACCEPT_PAUSE, AcceptLoop, Eviction};
use super::h2;
use super::h3;
use super::poller::{self, EVENTS_MAX, Poller, Readiness};
use super::socket::TcpSocket;
use crate::base::change_tracker::ChangeTracker;
use crate::base::clock::Clock;
use crate::base::fair_share::{RefusalCounters, SharedLimit};
use crate::base::stats::Counters;
use crate::base::sys;
use crate::base::task::spawn_local;
use crate::base::thread_pool::ThreadPool;
use crate::handler::Endpoints;
use crate::hits::{SiteHits, Tally, UserAgentCache};
use crate::limits;
use crate::serve::access_log::AccessLogBatches;
use crate::serve::connection_ledger::{
    Activity, ConnectionEntry, ConnectionEntryGuard, ConnectionLedger, ConnectionOwner,
    EvictionOrders,
};
use crate::serve::h1::session::H1Session;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::request_ledger::RequestLedger;
use crate::wire::date;
use crate::world::World;
use rustix::event::epoll;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};

/// Command from the control thread to a worker.
pub enum WorkerCommand {
    /// Serves the given World from now on; the worker answers once the World is in use.
    World(Arc<World>, oneshot::Sender<()>),
    /// Accepts connections on another socket.
    Listen(WorkerListener),
    /// Stops accepting on the address, after accepting the connections in the kernel's queue.
    Unlisten(SocketAddr, bool),
    /// Serves HTTP/3 on the bound, non-blocking socket, on behalf of all workers.
    Quic(std::net::UdpSocket),
    /// Writes buffered access log lines to the logs and counted views to the ledger of hits; the worker
    /// answers when both are written.
    FlushLogs(oneshot::Sender<()>),
    /// Stops accepting, ends idle connections, and lets requests under way finish for at most the given
    /// time. The worker then ends.
    Drain(Duration),
}

/// A listening socket for one worker.
pub struct WorkerListener {
    /// The socket, in non-blocking mode.
    pub socket: std::net::TcpListener,
    /// Address to which the socket is bound.
    pub address: SocketAddr,
    /// True if connections on the socket use TLS.
    pub secure: bool,
}

/// State shared by all workers of a process.
pub struct ProcessContext {
    /// Number of open connections of all workers.
    pub open: AtomicUsize,
    /// Ledger of connections by client.
    pub ledger: Arc<ConnectionLedger>,
    /// Thread pool for file reads and name look-ups.
    pub pool: Arc<ThreadPool>,
    /// Workers to which new HTTP/3 connections are assigned.
    pub quic: h3::QuicWorkers,
    /// Counters of refusals because of shares already taken.
    pub refusals: Arc<RefusalCounters>,
    /// Most bytes of request heads that a worker keeps for waiting requests.
    pub pending_head_bytes_max: usize,
    /// Tracker of changes on disk that the served content does not show yet.
    pub change_tracker: Arc<ChangeTracker>,
    /// Common origin of all workers' clocks.
    pub origin: Instant,
}

/// State of a worker, accessible to the worker's connections.
pub struct Worker {
    pub(super) clock: Clock,
    pub(super) stats: Arc<Counters>,
    pub(super) pool: Arc<ThreadPool>,
    pub(super) draining: Cell<bool>,
    /// Buffer for received bytes, shared by all connections: an idle connection owns no buffer.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// Buffer for file content that is sent over TLS.
    pub(super) disk: RefCell<Box<[u8]>>,
    /// Buffer for the variable part of a response head.
    pub(super) lead: RefCell<Vec<u8>>,
    /// Buffer that joins head and body of a small response.
    pub(super) joined: RefCell<Vec<u8>>,
    pub(super) logs: RefCell<AccessLogBatches>,
    /// Counted views not yet written to the ledger of hits.
    tally: RefCell<Tally>,
    agents: RefCell<UserAgentCache>,
    /// Buffers for HTTP/2 connections, in use only while a connection is polled.
    pub(super) h2: h2::H2Buffers,
    /// State shared by the worker's HTTP/3 connections.
    pub(super) h3: h3::H3Context,
    #[expect(
        clippy::redundant_allocation,
        reason = "each request counts a reference of its worker's, which costs nothing; one that \
                  all workers count would travel between their processors"
    )]
    world: RefCell<Rc<Arc<World>>>,
    pub(super) shared: Arc<ProcessContext>,
    /// Requests under way, and the bytes of request heads, by client.
    pub(super) request_ledger: Rc<RequestLedger>,
    rows: RefCell<ConnectionTable>,
    /// Orders from other workers to close connections of the worker.
    pub(super) eviction_orders: Arc<EvictionOrders>,
    /// Epoll instance that reports events of sockets and changes on disk.
    pub(super) poller: Rc<Poller>,
    /// Notified when a connection of the worker closes, because a drain may be complete.
    left: Notify,
    /// Notified when the sweep has work again.
    busy: Notify,
    listeners: RefCell<Vec<Rc<AcceptLoop>>>,
}

/// Phase of a connection; the phase determines the deadline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ConnectionPhase {
    /// The TLS handshake is in progress.
    Handshake,
    /// The connection waits between two requests.
    Idle,
    /// The first bytes of a request head have arrived.
    Head,
    /// A request body is being received.
    Body,
    /// The server is working on the request, so no deadline applies to the peer.
    Busy,
    /// A response waits until the peer takes more bytes.
    Write,
    /// The connection is closing, and the worker discards input of the peer.
    Linger,
}

#[derive(Default)]
struct ConnectionTable {
    rows: Vec<ConnectionRow>,
    free: Vec<usize>,
    open: usize,
}

struct ConnectionRow {
    socket: Option<Rc<TcpSocket>>,
    /// The session while only events of the socket are awaited; `None` while a task owns the session.
    parked: Option<Box<H1Session>>,
    /// Entry in the ledger of connections.
    entered: Option<ConnectionEntryGuard>,
    phase: ConnectionPhase,
    expired: bool,
    deadline_ms: u64,
    /// Waker to call at the deadline, at a drain and at an eviction, instead of a shutdown of the socket.
    told: Option<Waker>,
    /// Start of the phase, in milliseconds of the worker's clock.
    since_ms: u64,
    /// In the body phase, the bytes of the body received before the phase began. In the write phase, the
    /// bytes that the client had acknowledged soon after the response began to wait.
    seen: u64,
    /// Acknowledged bytes used up by pauses of the client.
    paused: u64,
}

/// Minimum number of events after which the worker calls `epoll_wait` again at once. After fewer events,
/// the worker waits for the runtime to report the next.
const EVENTS_FEW: usize = 2;
/// Most connections processed before other tasks run.
const TURNS_MAX: usize = 256;
/// Interval at which deadlines are checked and buffered log lines are flushed.
const SWEEP: Duration = Duration::from_millis(500);
/// Number of sweeps between two flushes of counted views to the ledger of hits.
const SWEEPS_TO_TELL: u32 = 20;
/// Minimum of free memory that indicates a past burst of requests. After a burst the worker also releases
/// the pages of program code. Mapping the code again takes some hundred page faults, little beside a burst.
const BURST_BYTES: usize = 1 << 20;
/// Number of sweeps between two returns of free memory to the system.
const SWEEPS_TO_GIVE_BACK: u32 = 10;
/// Number of connections above which a parked connection releases memory at once: the saved memory is then
/// worth the microseconds of work.
const MANY: usize = 100;
/// Milliseconds of silence after which a connection is likely to stay silent.
const SILENT_MS: u64 = 1_000;
/// Most connections that release memory in one sweep; each takes some microseconds.
const SETTLED_MAX: usize = 500;
/// Value of [`ConnectionRow::seen`] before the kernel was asked for the bytes acknowledged by the client.
const NOT_ASKED: u64 = u64::MAX;
/// Maximum duration of a lingering close, in milliseconds.
const LINGER_MS: u64 = 5_000;

/// Runs a worker until the end of a drain; blocks the thread.
pub fn run(
    world: Arc<World>,
    shared: Arc<ProcessContext>,
    stats: Arc<Counters>,
    commands: UnboundedReceiver<WorkerCommand>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(Default::default())?;
    let worker = Rc::new(Worker {
        clock: Clock::system(shared.origin, date::format_imf),
        stats,
        pool: shared.pool.clone(),
        draining: Cell::new(false),
        scratch: RefCell::new(vec![0; limits::READ_BUFFER_BYTES].into()),
        disk: RefCell::new(vec![0; limits::UNSENT_BYTES_MAX].into()),
        lead: RefCell::default(),
        joined: RefCell::default(),
        logs: RefCell::default(),
        tally: RefCell::default(),
        agents: RefCell::default(),
        h2: h2::H2Buffers::default(),
        h3: h3::H3Context::default(),
        world: RefCell::new(Rc::new(world)),
        request_ledger: RequestLedger::new(shared.pending_head_bytes_max, shared.refusals.clone()),
        shared,
        rows: RefCell::default(),
        eviction_orders: Arc::default(),
        poller: Rc::new(Poller::new()?),
        left: Notify::new(),
        busy: Notify::new(),
        listeners: RefCell::default(),
    });
    worker
        .poller
        .set_inotify(worker.shared.change_tracker.inotify());
    sys::Heap::enable_thread_cache();
    runtime.block_on(worker.command(commands));
    sys::Heap::disable_thread_cache();
    Ok(())
}

impl Worker {
    /// Returns the current World. A request keeps the World until the request ends.
    pub fn world(&self) -> Rc<Arc<World>> {
        self.world.borrow().clone()
    }

    async fn command(self: Rc<Self>, mut commands: UnboundedReceiver<WorkerCommand>) {
        match self.poller.watched() {
            Ok(news) => spawn_local(self.clone().react(news)),
            Err(error) => return log::error!("can't wait for connections: {error}"),
        }
        spawn_local(self.clone().sweep());
        spawn_local(self.clone().run_eviction_orders());
        h3::begin(&self);
        while let Some(command) = commands.recv().await {
            match command {
                WorkerCommand::World(world, done) => {
                    self.world.replace(Rc::new(world));
                    self.poller
                        .set_inotify(self.shared.change_tracker.inotify());
                    self.logs.borrow_mut().forget();
                    self.tally
                        .borrow_mut()
                        .flush_and_clear(self.clock.unix_seconds());
                    h3::configure(&self);
                    let _ = done.send(());
                }
                WorkerCommand::Listen(listening) => self.listen(listening),
                WorkerCommand::Unlisten(address, secure) => self.unlisten(address, secure),
                WorkerCommand::Quic(socket) => {
                    if let Err(error) = h3::host(&self, socket) {
                        log::error!("can't speak HTTP/3: {error}");
                    }
                }
                WorkerCommand::FlushLogs(done) => {
                    self.logs.borrow_mut().flush();
                    self.tell_views();
                    let _ = done.send(());
                }
                WorkerCommand::Drain(deadline) => return self.drain(deadline).await,
            }
        }
    }

    fn listen(self: &Rc<Self>, listening: WorkerListener) {
        let WorkerListener {
            socket,
            address,
            secure,
        } = listening;
        match sys::async_readable(socket.into()) {
            Ok(listener) => {
                let accepting = Rc::new(AcceptLoop {
                    address,
                    secure,
                    stop: Notify::new(),
                });
                self.listeners.borrow_mut().push(accepting.clone());
                spawn_local(self.clone().accept(listener, accepting));
            }
            Err(error) => log::error!("{address}: can't listen: {error}"),
        }
    }

    fn unlisten(&self, address: SocketAddr, secure: bool) {
        if secure {
            h3::unlisten(self, address);
        }
        self.listeners.borrow_mut().retain(|accepting| {
            let stays = accepting.address != address || accepting.secure != secure;
            if !stays {
                accepting.stop.notify_one();
            }
            stays
        });
    }

    /// Evicts the connection in the row, unless the row now belongs to another entry or the connection has
    /// made progress since the choice.
    pub(super) fn evict(&self, index: usize, entry: &Arc<ConnectionEntry>) -> Eviction {
        let parked = {
            let mut rows = self.rows.borrow_mut();
            let Some(row) = rows.rows.get_mut(index) else {
                return Eviction::None;
            };
            let entered = row.entered.as_ref();
            let is_same = entered.is_some_and(|own| Arc::ptr_eq(own.entry(), entry));
            if !is_same || !entry.is_evicted() {
                return Eviction::None;
            }
            match (row.parked.take(), &row.told, &row.socket) {
                (Some(parked), ..) => Some(parked),
                // The task looks up the reason for the wake-up and closes the connection in order.
                (None, Some(told), _) => {
                    told.wake_by_ref();
                    None
                }
                // The task of the connection reads end of file.
                (None, None, Some(socket)) => {
                    row.expired = true;
                    let _ = sys::shutdown_both(socket.as_fd());
                    None
                }
                (None, None, None) => return Eviction::None,
            }
        };
        self.count_eviction();
        match parked {
            Some(connection) => {
                connection.give_up();
                Eviction::Now
            }
            None => Eviction::Soon,
        }
    }

    /// Counts an eviction of a connection in favour of another connection.
    pub(super) fn count_eviction(&self) {
        self.shared.refusals.increment(SharedLimit::Connections);
    }

    /// Returns true if the connection in the row is to be evicted. For connections with a waker: other
    /// connections lose the socket instead.
    pub(super) fn is_evicted(&self, row: usize) -> bool {
        let rows = self.rows.borrow();
        let entered = rows.rows[row].entered.as_ref();
        entered.is_some_and(|entered| entered.entry().is_evicted())
    }

    /// Runs the connections with events on the sockets.
    async fn react(self: Rc<Self>, news: AsyncFd<OwnedFd>) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let Ok(mut guard) = news.readable().await else {
                return;
            };
            let mut turns = 0;
            loop {
                if let Err(error) = self.poller.take(&mut events) {
                    return log::error!("can't wait for connections: {error}");
                }
                for (at, event) in events.iter().enumerate() {
                    self.foresee(&events[at..]);
                    let (slot, ready) = poller::read(event);
                    self.news(slot as usize, ready);
                }
                turns += events.len();
                if events.len() < EVENTS_FEW {
                    guard.clear_ready();
                    break;
                }
                // Under load, more events have arrived by now, and returning to the runtime costs an
                // additional system call.
                if turns >= TURNS_MAX {
                    break;
                }
            }
            if turns >= TURNS_MAX {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Prefetches the state of the next connections while the current connection runs. With thousands of
    /// connections no state of the next connection is in the processor's cache. Each pointer is prefetched
    /// before the memory behind the pointer.
    fn foresee(&self, events: &[epoll::Event]) {
        let rows = self.rows.borrow();
        let row = |ahead: usize| {
            let (slot, _) = poller::read(events.get(ahead)?);
            rows.rows.get(slot as usize)
        };
        if let Some(row) = row(3) {
            sys::prefetch(row);
        }
        if let Some(row) = row(2) {
            if let Some(socket) = &row.socket {
                sys::prefetch(&**socket);
            }
            if let Some(connection) = &row.parked {
                sys::prefetch(&**connection);
            }
        }
        if let Some(connection) = row(1).and_then(|row| row.parked.as_ref()) {
            connection.stream.prefetch();
        }
    }

    /// Delivers the events of one socket: to the parked connection, or else to the task that owns the
    /// connection.
    fn news(&self, slot: usize, ready: Readiness) {
        let parked = {
            let mut rows = self.rows.borrow_mut();
            let Some(row) = rows.rows.get_mut(slot) else {
                return;
            };
            let Some(socket) = &row.socket else { return };
            socket.now_ready(ready);
            if row.parked.is_none() {
                socket.wake();
            }
            row.parked.take()
        };
        if let Some(connection) = parked {
            // Fetched now, because the keys are needed right after the system call that reads the socket.
            connection.stream.prefetch();
            turn(connection);
        }
    }

    /// Parks a connection until the socket has events.
    pub(super) fn park(&self, mut connection: Box<H1Session>) {
        let slot = connection.slot;
        connection.stream.socket.forget_waker();
        let mut rows = self.rows.borrow_mut();
        // With many connections, memory released by one connection serves the next.
        if rows.open > MANY {
            connection.stream.settle();
        }
        rows.rows[slot].parked = Some(connection);
    }

    pub(super) fn is_full(&self) -> bool {
        self.shared.open.load(Ordering::Relaxed) >= self.world.borrow().limits.connections
    }

    /// Starts an accepted connection.
    pub(super) fn open(self: &Rc<Self>, socket: OwnedFd, peer: SocketAddr, secure: bool) {
        let peer = peer.ip().to_canonical();
        let world = self.world.borrow().clone();
        let tls = match (&world.tls, secure) {
            (Some(tls), true) => match tls.accept() {
                Ok(handshake) => Some(handshake),
                Err(error) => return log::error!("TLS: {error}"),
            },
            (None, true) => return,
            (_, false) => None,
        };
        self.clock.tick();
        let row = self.rows.borrow().next_row();
        let most = world.limits.connections_per_address;
        let owner = ConnectionOwner::Row(self.eviction_orders.clone(), row);
        let now_ms = self.clock.millis();
        let Some(entered) = self.shared.ledger.enter(peer.into(), most, owner, now_ms) else {
            return self.stats.rejects.increment();
        };
        self.count_opened();
        let phase = if secure {
            ConnectionPhase::Handshake
        } else {
            ConnectionPhase::Idle
        };
        let socket = Rc::new(TcpSocket::new(socket, self.poller.clone(), row));
        self.rows.borrow_mut().fill(row, socket.clone(), entered);
        self.phase(row, phase);
        if self.rows.borrow().open == 1 {
            self.busy.notify_one();
        }
        // Most clients send a request right after connecting.
        turn(Box::new(H1Session::new(
            MaybeTlsStream::new(socket, tls),
            world.tls.clone().filter(|_| secure),
            self.clone(),
            row,
            peer,
        )));
    }

    /// Returns the addresses of both ends of the connection in the row.
    pub(super) fn endpoints(&self, row: usize) -> Endpoints {
        let rows = self.rows.borrow();
        let socket = rows.rows.get(row).and_then(|row| row.socket.as_ref());
        socket.map_or_else(Endpoints::default, |socket| socket.ends())
    }

    /// Counts an opened connection.
    pub(super) fn count_opened(&self) {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        self.stats.connections_opened.increment();
    }

    /// Removes the connection in the row and counts the connection as closed.
    pub(super) fn close(&self, row: usize) {
        self.rows.borrow_mut().remove(row);
        self.count_closed();
    }

    /// Counts a closed connection, and notifies waiting accept loops and a drain.
    pub(super) fn count_closed(&self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        self.stats.connections_closed.increment();
        self.left.notify_waiters();
        self.shared.ledger.notify_closed();
    }

    /// Puts a connection into a phase, and sets the deadline of the phase. A head received in several parts
    /// keeps the deadline of the first byte.
    pub(super) fn phase(&self, row: usize, phase: ConnectionPhase) {
        let now = self.clock.millis();
        let world = self.world.borrow();
        let limits = &world.limits;
        let mut rows = self.rows.borrow_mut();
        let row = &mut rows.rows[row];
        let same = row.phase == phase;
        row.phase = phase;
        if !same || phase != ConnectionPhase::Head {
            row.stand(phase.standing(now));
        }
        if let (false, ConnectionPhase::Write | ConnectionPhase::Linger) = (same, phase) {
            // After a late request, the client gets a new deadline for receiving the last response.
            row.expired = false;
        }
        let seconds = match phase {
            ConnectionPhase::Head if same => return,
            ConnectionPhase::Handshake => limits.handshake_seconds,
            ConnectionPhase::Idle => limits.idle_seconds,
            ConnectionPhase::Head => limits.head_seconds,
            ConnectionPhase::Write => {
                row.seen = NOT_ASKED;
                limits.write_stall_seconds
            }
            ConnectionPhase::Linger => (LINGER_MS / 1_000) as u32,
            ConnectionPhase::Busy | ConnectionPhase::Body => {
                row.deadline_ms = u64::MAX;
                return;
            }
        };
        row.deadline_ms = now + u64::from(seconds) * 1_000;
    }

    /// Sets the deadline of a request body after `seen` received bytes. The body must keep the minimum
    /// rate, with pauses of at most `patience` in all.
    pub(super) fn phase_body(&self, row: usize, seen: u64, patience: Duration) {
        let now = self.clock.millis();
        let rate = u64::from(self.world.borrow().limits.body_rate_bytes_per_second.max(1));
        let mut rows = self.rows.borrow_mut();
        let row = &mut rows.rows[row];
        if row.phase != ConnectionPhase::Body {
            // Time for which the body waited for the server doesn't count against the peer.
            row.phase = ConnectionPhase::Body;
            row.since_ms = now;
            row.seen = seen;
        }
        row.stand(Activity::Busy(now));
        row.deadline_ms =
            row.since_ms + patience.as_millis() as u64 + (seen - row.seen) * 1_000 / rate;
    }

    /// Marks the connection as busy before a task takes over. The task sets the phase when first polled;
    /// until then the connection must not count as idle, nor be evicted.
    pub(super) fn stand_busy(&self, row: usize) {
        let standing = Activity::Busy(self.clock.millis());
        self.rows.borrow().rows[row].stand(standing);
    }

    /// Sets the deadline of a connection with several deadlines to the earliest, `deadline_ms`. The
    /// deadline, a drain or an eviction wakes `waker` instead of shutting down the socket.
    pub(super) fn wake_at(
        &self,
        row: usize,
        phase: ConnectionPhase,
        deadline_ms: u64,
        standing: Activity,
        waker: &Waker,
    ) {
        let mut rows = self.rows.borrow_mut();
        let row = &mut rows.rows[row];
        row.phase = phase;
        row.stand(standing);
        if row.deadline_ms != deadline_ms {
            row.seen = NOT_ASKED;
        }
        row.deadline_ms = deadline_ms;
        row.expired = false;
        if !row.told.as_ref().is_some_and(|told| told.will_wake(waker)) {
            row.told = Some(waker.clone());
        }
    }

    /// Removes the waker, so that a deadline shuts down the socket again.
    pub(super) fn clear_waker(&self, row: usize) {
        self.rows.borrow_mut().rows[row].told = None;
    }

    /// Starts the sweep where no connection is open, because buffered log lines wait to be flushed.
    pub(super) fn wake_sweep(&self) {
        if self.rows.borrow().open == 0 {
            self.busy.notify_one();
        }
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

    fn tell_views(&self) {
        self.clock.tick();
        self.tally.borrow_mut().flush(self.clock.unix_seconds());
    }

    /// Returns true if the client makes progress with a response although the socket has no room for more:
    /// see `ConnectionRow::is_taken`.
    pub(super) fn is_client_progressing(&self, row: usize) -> bool {
        self.rows.borrow_mut().rows[row].is_taken()
    }

    /// Returns the phase with the deadline that ended the connection; `None` if no deadline has passed.
    pub(super) fn expired(&self, row: usize) -> Option<ConnectionPhase> {
        let rows = self.rows.borrow();
        rows.rows[row].expired.then(|| rows.rows[row].phase)
    }

    /// Ends connections past their deadlines, flushes buffered log lines and views, and releases memory.
    async fn sweep(self: Rc<Self>) {
        let mut sweeps = 0u32;
        loop {
            let has_told = self.logs.borrow().is_empty() && self.tally.borrow().is_empty();
            if self.rows.borrow().open == 0 && has_told {
                give_memory_back();
                self.busy.notified().await;
            }
            tokio::time::sleep(SWEEP).await;
            self.clock.tick();
            self.logs.borrow_mut().flush();
            sweeps += 1;
            if sweeps.is_multiple_of(SWEEPS_TO_TELL) || self.rows.borrow().open == 0 {
                self.tell_views();
            }
            let now_ms = self.clock.millis();
            let stall_ms = u64::from(self.world.borrow().limits.write_stall_seconds) * 1_000;
            let ended = self.rows.borrow_mut().expire(now_ms, stall_ms);
            self.stats.deadlines.add(ended);
            if sweeps.is_multiple_of(SWEEPS_TO_GIVE_BACK) {
                give_memory_back();
            }
            let idle_ms = u64::from(self.world.borrow().limits.idle_seconds) * 1_000;
            let silent_since = now_ms.saturating_sub(SILENT_MS);
            self.rows.borrow_mut().settle(silent_since + idle_ms);
        }
    }

    async fn drain(self: &Rc<Self>, deadline: Duration) {
        self.draining.set(true);
        for accepting in self.listeners.take() {
            accepting.stop.notify_one();
        }
        h3::leave(self);
        // The accept loops first take the connections in the kernel's queue; idle connections end after
        // that.
        tokio::task::yield_now().await;
        let everybody_left = async {
            loop {
                let left = self.left.notified();
                self.rows.borrow_mut().end_idle();
                self.h3.tell();
                if self.rows.borrow().open == 0 && self.h3.open() == 0 {
                    return h3::end(self).await;
                }
                // A connection may become idle without closing.
                let _ = tokio::time::timeout(ACCEPT_PAUSE, left).await;
            }
        };
        if tokio::time::timeout(deadline, everybody_left)
            .await
            .is_err()
        {
            log::warn!(
                "stopped with {} connections still open",
                self.rows.borrow().open + self.h3.open()
            );
        }
        self.logs.borrow_mut().flush();
        self.tell_views();
        // Breaks the reference cycle: the connections hold the worker, and the worker holds the
        // connections.
        let left = self.rows.take();
        drop(left);
    }
}

impl ConnectionPhase {
    /// Returns the activity for the ledger: idle where a connection in the phase may be evicted in favour
    /// of another connection.
    fn standing(self, now_ms: u64) -> Activity {
        match self {
            ConnectionPhase::Handshake
            | ConnectionPhase::Idle
            | ConnectionPhase::Head
            | ConnectionPhase::Linger => Activity::Idle(now_ms),
            ConnectionPhase::Body | ConnectionPhase::Busy | ConnectionPhase::Write => {
                Activity::Busy(now_ms)
            }
        }
    }
}

impl ConnectionRow {
    fn stand(&self, standing: Activity) {
        if let Some(entered) = &self.entered {
            entered.set_activity(standing);
        }
    }

    /// Asks the kernel for the total number of bytes acknowledged by the client.
    fn acknowledged(&self) -> u64 {
        let socket = self.socket.as_ref();
        socket.map_or(0, |it| sys::acknowledged(it.as_fd()))
    }

    /// Returns true if the client has acknowledged the minimum progress of a response since the response
    /// began to wait, or since the last call; or if the client has taken enough bytes before to be allowed
    /// a pause. The kernel's buffers are so large that the socket of a slow client becomes writable too
    /// rarely to show progress.
    fn is_taken(&mut self) -> bool {
        let now = self.acknowledged();
        let before = std::mem::replace(&mut self.seen, now);
        if now >= before.saturating_add(limits::RESPONSE_PROGRESS_BYTES_MIN) {
            return true;
        }
        let pauses_max = limits::RESPONSE_PAUSES_MAX * limits::RESPONSE_PAUSE_BYTES;
        let spent = self.paused.max(now.saturating_sub(pauses_max));
        self.paused = spent + limits::RESPONSE_PAUSE_BYTES;
        let may_pause = now >= self.paused;
        if !may_pause {
            self.paused = spent;
        }
        may_pause
    }
}

impl ConnectionTable {
    /// Returns the index of the row for the next connection.
    fn next_row(&self) -> usize {
        self.free.last().copied().unwrap_or(self.rows.len())
    }

    /// Puts a connection into [`ConnectionTable::next_row`].
    fn fill(&mut self, index: usize, socket: Rc<TcpSocket>, entered: ConnectionEntryGuard) {
        self.free.pop();
        self.open += 1;
        let row = ConnectionRow {
            socket: Some(socket),
            parked: None,
            entered: Some(entered),
            phase: ConnectionPhase::Busy,
            expired: false,
            deadline_ms: u64::MAX,
            told: None,
            since_ms: 0,
            seen: 0,
            paused: 0,
        };
        match self.rows.get_mut(index) {
            Some(free) => *free = row,
            None => self.rows.push(row),
        }
    }

    fn remove(&mut self, index: usize) {
        // The drain has dropped the table with all parked connections.
        let Some(row) = self.rows.get_mut(index) else {
            return;
        };
        row.socket = None;
        row.entered = None;
        row.told = None;
        self.free.push(index);
        self.open -= 1;
        if self.open == 0 {
            *self = ConnectionTable::default();
        }
    }

    /// Ends connections past their deadlines. Returns the number of late connections, idle connections not
    /// included.
    fn expire(&mut self, now_ms: u64, stall_ms: u64) -> u64 {
        let mut ended = 0;
        for row in &mut self.rows {
            if row.socket.is_some() && row.phase == ConnectionPhase::Write && row.seen == NOT_ASKED
            {
                row.seen = row.acknowledged();
            }
            if row.deadline_ms > now_ms || row.expired {
                continue;
            }
            if row.phase == ConnectionPhase::Write && row.told.is_none() && row.is_taken() {
                row.deadline_ms = now_ms + stall_ms;
                continue;
            }
            let Some(socket) = &row.socket else { continue };
            row.expired = true;
            // Silence between two requests is no fault of the client.
            ended += u64::from(row.phase != ConnectionPhase::Idle);
            if let Some(told) = &row.told {
                told.wake_by_ref();
                continue;
            }
            // Where a response can still be sent, only the read side is shut down.
            let _ = match row.phase {
                ConnectionPhase::Idle | ConnectionPhase::Head | ConnectionPhase::Body => {
                    sys::shutdown_read(socket.as_fd())
                }
                _ => sys::shutdown_both(socket.as_fd()),
            };
        }
        ended
    }

    /// Releases memory of connections that have been idle for a while: those with a deadline before
    /// `deadline_ms`. At most [`SETTLED_MAX`] connections release memory in one call.
    fn settle(&mut self, deadline_ms: u64) {
        let silent = |row: &&mut ConnectionRow| {
            row.phase == ConnectionPhase::Idle && row.deadline_ms < deadline_ms
        };
        let mut settled = 0;
        for row in self.rows.iter_mut().filter(silent) {
            if let Some(connection) = &mut row.parked {
                settled += usize::from(connection.stream.settle());
            }
            if settled == SETTLED_MAX {
                break;
            }
        }
    }

    fn end_idle(&mut self) {
        for row in &mut self.rows {
            if let Some(told) = &row.told {
                told.wake_by_ref();
                continue;
            }
            if let (Some(socket), ConnectionPhase::Idle, false) =
                (&row.socket, row.phase, row.expired)
            {
                row.expired = true;
                let _ = sys::shutdown_read(socket.as_fd());
            }
        }
    }
}

/// Gives free memory back to the system, and after a burst of requests also the pages of program code.
fn give_memory_back() {
    if sys::Heap::trim() >= BURST_BYTES {
        sys::release_code_pages();
    }
}

/// Runs a connection until the connection waits. A panic ends only the connection; dropping the connection
/// counts the panic.
fn turn(connection: Box<H1Session>) {
    let _ = catch_unwind(AssertUnwindSafe(|| connection.turn()));
}
