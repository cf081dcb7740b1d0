//! One thread with its runtime, its listeners and its connections; nothing of it is shared.
//!
//! Deadlines need no timer per connection: each has a row in a table with the time by which it must
//! have moved on, and a sweep twice a second ends the socket of the one that hasn't. The connection
//! then reads its end, looks up why, and says so if there is somebody to say it to.

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
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};

/// What control tells a worker.
pub enum WorkerCommand {
    /// Serve this World from now on; answer when it is so.
    World(Arc<World>, oneshot::Sender<()>),
    /// Accept on this socket too.
    Listen(WorkerListener),
    /// Stop accepting on this address, after taking what already waits there.
    Unlisten(SocketAddr, bool),
    /// Speak HTTP/3 on this socket, for all workers. Bound, non-blocking.
    Quic(std::net::UdpSocket),
    /// Hand the logs what is buffered, and the ledger of hits what was counted; answer when done.
    FlushLogs(oneshot::Sender<()>),
    /// Accept nothing more, end idle connections, let requests under way finish for at most this
    /// long, then end.
    Drain(Duration),
}

/// A listening socket for one worker.
pub struct WorkerListener {
    /// Non-blocking.
    pub socket: std::net::TcpListener,
    /// As bound.
    pub address: SocketAddr,
    /// TLS is spoken here.
    pub secure: bool,
}

/// What all workers of a process share.
pub struct ProcessContext {
    /// Connections open in all.
    pub open: AtomicUsize,
    /// Connections by client.
    pub ledger: Arc<ConnectionLedger>,
    /// Reads of files and look-ups of names.
    pub pool: Arc<ThreadPool>,
    /// Where connections of HTTP/3 are dealt to.
    pub quic: h3::QuicWorkers,
    /// What clients were refused because their shares were taken.
    pub refusals: Arc<RefusalCounters>,
    /// Bytes of request heads that each worker may keep while their requests wait.
    pub pending_head_bytes_max: usize,
    /// How far what is served lags behind the disk.
    pub change_tracker: Arc<ChangeTracker>,
    /// One origin for all clocks.
    pub origin: Instant,
}

/// A worker's state, reached by its connections.
pub struct Worker {
    pub(super) clock: Clock,
    pub(super) stats: Arc<Counters>,
    pub(super) pool: Arc<ThreadPool>,
    pub(super) draining: Cell<bool>,
    /// What is read goes here first; an idle connection owns no buffer.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// What is read from disk for TLS passes through here.
    pub(super) disk: RefCell<Box<[u8]>>,
    /// The changing part of a head is built here.
    pub(super) lead: RefCell<Vec<u8>>,
    /// A small response is put together here.
    pub(super) joined: RefCell<Vec<u8>>,
    pub(super) logs: RefCell<AccessLogBatches>,
    /// Views that were counted and not told yet.
    tally: RefCell<Tally>,
    agents: RefCell<UserAgentCache>,
    /// What connections of HTTP/2 need while they are looked at.
    pub(super) h2: h2::H2Buffers,
    /// What those of HTTP/3 share.
    pub(super) h3: h3::H3Context,
    #[expect(
        clippy::redundant_allocation,
        reason = "each request counts a reference of its worker's, which costs nothing; one that \
                  all workers count would travel between their processors"
    )]
    world: RefCell<Rc<Arc<World>>>,
    pub(super) shared: Arc<ProcessContext>,
    /// Requests under way, and the bytes of their heads, by client.
    pub(super) request_ledger: Rc<RequestLedger>,
    rows: RefCell<ConnectionTable>,
    /// Connections here that other workers want given up.
    pub(super) eviction_orders: Arc<EvictionOrders>,
    /// Tells which sockets have news, and whether the disk has.
    pub(super) poller: Rc<Poller>,
    /// A connection of this worker was closed: a drain may be over.
    left: Notify,
    /// There is something to sweep again.
    busy: Notify,
    listeners: RefCell<Vec<Rc<AcceptLoop>>>,
}

/// Where a connection stands, for its deadline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ConnectionPhase {
    /// TLS is being agreed on.
    Handshake,
    /// Between two requests.
    Idle,
    /// A head has begun.
    Head,
    /// A body is coming.
    Body,
    /// Waiting for ourselves: no deadline of the peer's.
    Busy,
    /// A response waits for the peer to take it.
    Write,
    /// Closing, reading what still comes.
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
    /// The connection while it waits for nothing but its socket; else a task has it.
    parked: Option<Box<H1Session>>,
    /// Its entry in the ledger of connections.
    entered: Option<ConnectionEntryGuard>,
    phase: ConnectionPhase,
    expired: bool,
    deadline_ms: u64,
    /// Who wants to be told of its deadline, and of a drain, instead of being cut off.
    told: Option<Waker>,
    /// When the phase began, and how much of a body had come by then. Of a response that waits for the
    /// client: the bytes that the client had acknowledged soon after it began to wait.
    since_ms: u64,
    seen: u64,
    /// Acknowledged bytes that pauses of the client have used up.
    paused: u64,
}

/// Fewer than this, and the kernel is left alone until it calls.
const EVENTS_FEW: usize = 2;
/// So many connections get their turn before other tasks do.
const TURNS_MAX: usize = 256;
/// How often deadlines are looked at and buffered log lines handed over.
const SWEEP: Duration = Duration::from_millis(500);
/// Views are told to the ledger every so many sweeps.
const SWEEPS_TO_TELL: u32 = 20;
/// Free memory of a burst of requests, at least. Mapping the program's code again takes some hundred
/// page faults, which is little beside a burst.
const BURST_BYTES: usize = 1 << 20;
/// Free memory is given back to the system every so many sweeps.
const SWEEPS_TO_GIVE_BACK: u32 = 10;
/// So many connections, and memory counts for more than the microseconds that it takes to be sparing.
const MANY: usize = 100;
/// A connection that asks nothing for so long is likely to go on so.
const SILENT_MS: u64 = 1_000;
/// So many connections give memory back in one sweep, which takes some microseconds each.
const SETTLED_MAX: usize = 500;
/// The kernel was not asked yet for the bytes that the client has acknowledged.
const NOT_ASKED: u64 = u64::MAX;
/// A lingering close lasts at most this long.
const LINGER_MS: u64 = 5_000;

/// Runs a worker until it is drained; blocks its thread.
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
    HERE.set(Rc::downgrade(&worker));
    sys::Heap::enable_thread_cache();
    runtime.block_on(worker.command(commands));
    sys::Heap::disable_thread_cache();
    Ok(())
}

thread_local! {
    static HERE: RefCell<Weak<Worker>> = const { RefCell::new(Weak::new()) };
}

impl Worker {
    /// The worker whose thread this is; none in tests of what it is made of.
    pub(super) fn current() -> Option<Rc<Worker>> {
        HERE.with_borrow(Weak::upgrade)
    }

    /// The World of this moment; a request holds it to its end.
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

    /// Gives up the connection in this row, if it still is the one of this entry and has not moved on.
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
                // It says goodbye, and looks up why it was woken.
                (None, Some(told), _) => {
                    told.wake_by_ref();
                    None
                }
                // Its task finds that the socket has ended.
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

    /// A connection is given up for another one.
    pub(super) fn count_eviction(&self) {
        self.shared.refusals.increment(SharedLimit::Connections);
    }

    /// Whether the connection in this row is given up. Only those ask that are woken instead of being
    /// cut off.
    pub(super) fn is_evicted(&self, row: usize) -> bool {
        let rows = self.rows.borrow();
        let entered = rows.rows[row].entered.as_ref();
        entered.is_some_and(|entered| entered.entry().is_evicted())
    }

    /// Gives each connection its turn when its socket has news.
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
                // Much is going on: more has come by now, and to go by the runtime costs a call more.
                if turns >= TURNS_MAX {
                    break;
                }
            }
            if turns >= TURNS_MAX {
                tokio::task::yield_now().await;
            }
        }
    }

    /// With thousands of connections nothing of the next is in the processor's cache: it is fetched
    /// while this one has its turn, in the order in which one thing leads to another.
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

    /// One socket's news: to the connection if it waits here, else to the task that has it.
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
            // It is needed once the system has given us what came.
            connection.stream.prefetch();
            turn(connection);
        }
    }

    /// Keeps a connection until its socket has news.
    pub(super) fn park(&self, mut connection: Box<H1Session>) {
        let slot = connection.slot;
        connection.stream.socket.forget_waker();
        let mut rows = self.rows.borrow_mut();
        // What it doesn't need the next one can use, where there are many.
        if rows.open > MANY {
            connection.stream.settle();
        }
        rows.rows[slot].parked = Some(connection);
    }

    pub(super) fn is_full(&self) -> bool {
        self.shared.open.load(Ordering::Relaxed) >= self.world.borrow().limits.connections
    }

    /// Begins a connection that was accepted.
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
        // Who connects mostly asks at once.
        turn(Box::new(H1Session::new(
            MaybeTlsStream::new(socket, tls),
            world.tls.clone().filter(|_| secure),
            self.clone(),
            row,
            peer,
        )));
    }

    /// Where the connection in this row begins and ends.
    pub(super) fn endpoints(&self, row: usize) -> Endpoints {
        let rows = self.rows.borrow();
        let socket = rows.rows.get(row).and_then(|row| row.socket.as_ref());
        socket.map_or_else(Endpoints::default, |socket| socket.ends())
    }

    /// A connection is there.
    pub(super) fn count_opened(&self) {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        self.stats.connections_opened.increment();
    }

    /// A connection is over.
    pub(super) fn close(&self, row: usize) {
        self.rows.borrow_mut().remove(row);
        self.count_closed();
    }

    /// A connection has gone from wherever it was.
    pub(super) fn count_closed(&self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        self.stats.connections_closed.increment();
        self.left.notify_waiters();
        self.shared.ledger.notify_closed();
    }

    /// A connection enters a phase, and with it gets that phase's deadline. A head that goes on
    /// keeps the deadline of its first byte.
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
            // Who was late with a request has a deadline again for taking our last words.
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

    /// A body of which `seen` bytes have come so far must go on at the least rate, but may pause so
    /// long.
    pub(super) fn phase_body(&self, row: usize, seen: u64, patience: Duration) {
        let now = self.clock.millis();
        let rate = u64::from(self.world.borrow().limits.body_rate_bytes_per_second.max(1));
        let mut rows = self.rows.borrow_mut();
        let row = &mut rows.rows[row];
        if row.phase != ConnectionPhase::Body {
            // What it waited for us doesn't count against the peer.
            row.phase = ConnectionPhase::Body;
            row.since_ms = now;
            row.seen = seen;
        }
        row.stand(Activity::Busy(now));
        row.deadline_ms =
            row.since_ms + patience.as_millis() as u64 + (seen - row.seen) * 1_000 / rate;
    }

    /// A task takes the connection up, which sets its phase when it first runs. Until then too it is not
    /// idle, and not given up.
    pub(super) fn stand_busy(&self, row: usize) {
        let standing = Activity::Busy(self.clock.millis());
        self.rows.borrow().rows[row].stand(standing);
    }

    /// A connection that has many things to wait for sets the earliest deadline of them itself, and
    /// is woken by it (by a drain too, and by being given up) instead of losing its socket.
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

    /// From now on a deadline ends the socket again.
    pub(super) fn clear_waker(&self, row: usize) {
        self.rows.borrow_mut().rows[row].told = None;
    }

    /// Lines wait to be handed over: the sweep must run even when every connection has gone.
    pub(super) fn wake_sweep(&self) {
        if self.rows.borrow().open == 0 {
            self.busy.notify_one();
        }
    }

    /// Is it a program that asks, as it says itself?
    pub(super) fn is_bot(&self, agent: Option<&[u8]>) -> bool {
        self.agents.borrow_mut().is_bot(agent)
    }

    /// Somebody has seen a page.
    pub(super) fn count(&self, hits: &Arc<SiteHits>, path: &[u8], is_bot: bool) {
        let now = self.clock.unix_seconds();
        self.tally.borrow_mut().count(hits, path, is_bot, now);
        self.wake_sweep();
    }

    fn tell_views(&self) {
        self.clock.tick();
        self.tally.borrow_mut().flush(self.clock.unix_seconds());
    }

    /// Whether the client takes a response although the socket has no room for more: see
    /// [`ConnectionRow::is_client_progressing`].
    pub(super) fn is_client_progressing(&self, row: usize) -> bool {
        self.rows.borrow_mut().rows[row].is_taken()
    }

    /// The phase whose deadline ended this connection, if one did.
    pub(super) fn expired(&self, row: usize) -> Option<ConnectionPhase> {
        let rows = self.rows.borrow();
        rows.rows[row].expired.then(|| rows.rows[row].phase)
    }

    /// Ends what has outstayed its deadline, and hands buffered log lines over.
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
        // Let the accept loops take what already waits, then let go of who asks for nothing.
        tokio::task::yield_now().await;
        let everybody_left = async {
            loop {
                let left = self.left.notified();
                self.rows.borrow_mut().end_idle();
                self.h3.tell();
                if self.rows.borrow().open == 0 && self.h3.open() == 0 {
                    return h3::end(self).await;
                }
                // A connection may become idle without leaving.
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
        // They hold the worker, and it holds them.
        let left = self.rows.take();
        drop(left);
    }
}

impl ConnectionPhase {
    /// Whether a connection in this phase may be given up for another one.
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

    /// Asks the kernel how much the client has acknowledged in all.
    fn acknowledged(&self) -> u64 {
        let socket = self.socket.as_ref();
        socket.map_or(0, |it| sys::acknowledged(it.as_fd()))
    }

    /// Whether the client has acknowledged the least progress of a response since the response began to
    /// wait, or since the last call; or has taken so much before that it may pause. The kernel's buffers
    /// hold so much that the socket of a slow client becomes writable too rarely to tell.
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
    /// Where the next connection will stand.
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
        // After the drain the table has gone, with the connections that waited in it.
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

    /// Ends what has outstayed its deadline; says how many were late with something.
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
            // To be silent between two requests is nothing to be blamed for.
            ended += u64::from(row.phase != ConnectionPhase::Idle);
            if let Some(told) = &row.told {
                told.wake_by_ref();
                continue;
            }
            // Where we could still be heard, only our reading ends.
            let _ = match row.phase {
                ConnectionPhase::Idle | ConnectionPhase::Head | ConnectionPhase::Body => {
                    sys::shutdown_read(socket.as_fd())
                }
                _ => sys::shutdown_both(socket.as_fd()),
            };
        }
        ended
    }

    /// Connections that have been silent for a while, and so have an early deadline, give back what
    /// they don't need for that.
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

/// Gives memory back to the system after a burst of requests, and the code that the burst needed.
fn give_memory_back() {
    if sys::Heap::trim() >= BURST_BYTES {
        sys::release_code_pages();
    }
}

/// A connection's turn; if it panics, that ends the connection alone (dropping it counts it).
fn turn(connection: Box<H1Session>) {
    let _ = catch_unwind(AssertUnwindSafe(|| connection.turn()));
}
