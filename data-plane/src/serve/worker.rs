//! A worker: one thread with its own runtime, listeners and connections.

use crate::handler::compression::{release_coders, release_unused_coders};
use crate::ledger::stats::Counters;
use crate::serve::accept::{self, ACCEPT_PAUSE};
use crate::serve::accepted_connection::{AcceptLoop, AcceptMode};
pub use crate::serve::context::ProcessContext;
use crate::serve::context::WorkerContext;
pub use crate::serve::dispatch_context::{Audience, MANAGER_FIELDS};
use crate::serve::h3::endpoint;
use crate::serve::poller::{self, EVENTS_MAX};
use crate::serve::sessions::Sessions;
use crate::world::World;
use base::clock::Clock;
use base::sys;
use base::task::spawn_local;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use wire::date;

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
    /// Sets the value once an event has passed the worker's event loop, as a proof that connections of the worker move.
    ShowLife(Arc<AtomicBool>),
    /// Stops accepting at once. The sockets stay open, and the kernel keeps the connections that arrive meanwhile;
    /// connections that wait for a place go on waiting. The worker answers when it accepts nothing more.
    Pause(oneshot::Sender<()>),
    /// Accepts again after a pause.
    Resume(oneshot::Sender<()>),
    /// Leaves the listening sockets to another process, and ends once all connections have ended.
    Leave(Departure),
    /// Ends idle connections at once while the worker leaves, since a later configuration refuses what they could ask for.
    EndIdle,
    /// Stops accepting, ends idle connections, and lets requests under way finish for at most the given
    /// time. The worker then ends.
    Drain(Duration),
}

/// Terms on which a worker leaves its listening sockets to another process. Idle connections stay, and the next response on
/// each connection announces the end.
pub struct Departure {
    /// Time after which the remaining connections are cut.
    pub deadline: Duration,
    /// Number of requests cut at the deadline by all workers.
    pub cut: Arc<AtomicUsize>,
}

/// Departure under way.
struct Leaving {
    until: Instant,
    cut: Arc<AtomicUsize>,
    /// Loops with accepted connections that wait for a place.
    loops: Vec<Weak<AcceptLoop>>,
}

/// A listening socket for one worker.
pub struct WorkerListener {
    /// The socket, in non-blocking mode.
    pub socket: std::net::TcpListener,
    /// Address to which the socket is bound.
    pub address: SocketAddr,
    /// True if connections on the socket use TLS.
    pub secure: bool,
    /// Content that the listener serves.
    pub audience: Audience,
    /// True if every new connection begins with a PROXY header.
    pub proxy_protocol: Arc<AtomicBool>,
}

/// A worker, on top of the worker's sessions.
pub(super) struct Worker {
    pub(super) context: Rc<WorkerContext>,
    pub(super) sessions: Rc<Sessions>,
    listeners: RefCell<Vec<Rc<AcceptLoop>>>,
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
/// Time for the last GOAWAYs at the deadline of a departure, more than clients have to answer the first.
const FAREWELL: Duration = Duration::from_millis(1_500);

/// Runs a worker until the end of a drain or of a departure; blocks the thread.
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
    let clock = Clock::system(shared.origin, date::format_imf);
    let context = WorkerContext::new(clock, world, shared, stats)?;
    let worker = Worker::new(Rc::new(context));
    sys::Heap::enable_thread_cache();
    runtime.block_on(worker.command(commands));
    sys::Heap::disable_thread_cache();
    Ok(())
}

impl Worker {
    /// Creates a worker without listeners and connections.
    pub(super) fn new(context: Rc<WorkerContext>) -> Rc<Worker> {
        Rc::new(Worker {
            sessions: Rc::new(Sessions::new(context.clone())),
            context,
            listeners: RefCell::default(),
        })
    }

    /// Carries out commands until the end of a drain or of a departure.
    pub(super) async fn command(self: Rc<Self>, mut commands: UnboundedReceiver<WorkerCommand>) {
        match self.context.poller.watched() {
            Ok(news) => spawn_local(self.clone().react(news)),
            Err(error) => {
                return log::error!("epoll failed, the worker takes no connections: {error}");
            }
        }
        spawn_local(self.clone().sweep());
        spawn_local(self.sessions.clone().run_eviction_orders());
        spawn_local(self.sessions.clone().yield_descriptors());
        endpoint::begin(&self.sessions);
        let mut leaving: Option<Leaving> = None;
        loop {
            let command = tokio::select! {
                biased;
                command = commands.recv() => command,
                () = self.depart(leaving.as_ref()) => return self.end_departure(leaving).await,
            };
            let Some(command) = command else { return };
            match command {
                WorkerCommand::World(world, done) => {
                    self.context.set_world(world);
                    endpoint::configure(&self.sessions).await;
                    let _ = done.send(());
                }
                WorkerCommand::Listen(listening) => self.listen(listening),
                WorkerCommand::Unlisten(address, secure) => self.unlisten(address, secure),
                WorkerCommand::Quic(socket) => {
                    if let Err(error) = endpoint::host(&self.sessions, socket).await {
                        log::error!("can't serve HTTP/3: {error}");
                    }
                }
                WorkerCommand::FlushLogs(done) => {
                    self.context.flush_logs();
                    self.context.flush_views();
                    let _ = done.send(());
                }
                WorkerCommand::ShowLife(is_alive) => {
                    if let Err(error) = self.context.poller.report_at_next_event(is_alive) {
                        log::error!("the worker can't show that its event loop runs: {error}");
                    }
                }
                WorkerCommand::Pause(done) => {
                    self.set_mode(AcceptMode::Paused);
                    let _ = done.send(());
                }
                WorkerCommand::Resume(done) => {
                    self.set_mode(AcceptMode::Accepting);
                    let _ = done.send(());
                }
                WorkerCommand::Leave(departure) => leaving = Some(self.leave(departure)),
                WorkerCommand::EndIdle => self.context.begin_drain(),
                WorkerCommand::Drain(deadline) => return self.drain(deadline).await,
            }
        }
    }

    fn listen(self: &Rc<Self>, listening: WorkerListener) {
        if self.context.is_draining() {
            return;
        }
        let WorkerListener {
            socket,
            address,
            secure,
            audience,
            proxy_protocol,
        } = listening;
        match sys::async_readable(socket.into()) {
            Ok(listener) => {
                let accepting = AcceptLoop::new(address, secure, audience, proxy_protocol);
                let accepting = Rc::new(accepting);
                self.listeners.borrow_mut().push(accepting.clone());
                spawn_local(accept::run(self.sessions.clone(), listener, accepting));
            }
            Err(error) => log::error!("{address}: can't listen: {error}"),
        }
    }

    fn unlisten(&self, address: SocketAddr, secure: bool) {
        if secure {
            endpoint::unlisten(&self.context, address);
        }
        self.listeners.borrow_mut().retain(|accepting| {
            let stays = accepting.address != address || accepting.secure != secure;
            if !stays {
                accepting.set_mode(AcceptMode::Stopped);
            }
            stays
        });
    }

    fn set_mode(&self, mode: AcceptMode) {
        for accepting in self.listeners.borrow().iter() {
            accepting.set_mode(mode);
        }
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
                if let Err(error) = self.context.poller.take(&mut events) {
                    return log::error!("epoll failed, the worker takes no connections: {error}");
                }
                for (at, event) in events.iter().enumerate() {
                    if at + 1 < events.len() {
                        self.sessions.prefetch_next(&events[at..]);
                    }
                    let (slot, ready) = poller::read(event);
                    self.sessions.deliver(slot as usize, ready);
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

    /// Ends connections past their deadlines, flushes buffered log lines and views, and releases memory.
    async fn sweep(self: Rc<Self>) {
        let context = &self.context;
        let mut sweeps = 0u32;
        loop {
            if context.open_connections() == 0 && !context.has_buffered() {
                self.sessions.release_memory();
                release_coders();
                give_memory_back();
                context.sweep_needed().await;
            }
            tokio::time::sleep(SWEEP).await;
            context.clock.tick();
            context.flush_logs();
            sweeps += 1;
            if sweeps.is_multiple_of(SWEEPS_TO_TELL) || context.open_connections() == 0 {
                context.flush_views();
            }
            context.end_expired();
            if sweeps.is_multiple_of(SWEEPS_TO_GIVE_BACK) {
                give_memory_back();
            }
            self.sessions.release_memory();
            release_unused_coders();
        }
    }

    /// Begins a departure: closes the worker's descriptors of the listening sockets, and leaves the connections in the
    /// kernel's queues to the process that has the sockets as well.
    fn leave(&self, departure: Departure) -> Leaving {
        self.set_mode(AcceptMode::Left);
        let loops = self.listeners.take();
        self.context.begin_leaving();
        endpoint::leave(&self.context);
        self.context.wake_busy();
        Leaving {
            until: Instant::now() + departure.deadline,
            cut: departure.cut,
            loops: loops.iter().map(Rc::downgrade).collect(),
        }
    }

    /// Waits until all connections have ended, or until the deadline; forever without a departure. Idle connections end
    /// meanwhile if a command has said so.
    async fn depart(&self, leaving: Option<&Leaving>) {
        let Some(leaving) = leaving else {
            return std::future::pending().await;
        };
        let context = &self.context;
        loop {
            let closed = context.connection_closed();
            if context.ends_idle() {
                context.end_idle();
                context.h3.tell();
            }
            let is_waiting = leaving.loops.iter().any(|it| it.strong_count() > 0);
            let is_needed = is_waiting || endpoint::serves_others(context);
            if !is_needed && context.open_connections() == 0 && context.h3.open() == 0 {
                return;
            }
            let closed = async {
                // A connection may become idle, a waiting client may leave, and a connection of another worker may end,
                // without a connection of the worker that closes.
                if is_needed || context.ends_idle() {
                    let _ = timeout(ACCEPT_PAUSE, closed).await;
                } else {
                    closed.await;
                }
            };
            if timeout_at(leaving.until, closed).await.is_err() {
                return;
            }
        }
    }

    /// Ends the worker after a departure. Connections that are still open at the deadline are cut, after the time that clients
    /// of idle connections need to learn which requests are not answered.
    async fn end_departure(&self, leaving: Option<Leaving>) {
        let context = &self.context;
        context.begin_drain();
        if !self.all_closed_within(FAREWELL).await
            && let Some(leaving) = leaving
        {
            let cut = context.active_requests.count();
            leaving.cut.fetch_add(cut, Ordering::Relaxed);
        }
        self.finish();
    }

    async fn drain(&self, deadline: Duration) {
        let context = &self.context;
        context.begin_drain();
        self.set_mode(AcceptMode::Stopped);
        self.listeners.take();
        endpoint::leave(context);
        // The accept loops first take the connections in the kernel's queue; idle connections end after
        // that.
        tokio::task::yield_now().await;
        if !self.all_closed_within(deadline).await {
            log::warn!(
                "the time for the stop is over, {} connections are still open",
                context.open_connections() + context.h3.open()
            );
        }
        self.finish();
    }

    /// Ends idle connections, and waits until all connections have ended, at most for `time`. Returns false if connections
    /// are still open.
    async fn all_closed_within(&self, time: Duration) -> bool {
        let context = &self.context;
        let all_closed = async {
            loop {
                let closed = context.connection_closed();
                context.end_idle();
                context.h3.tell();
                if context.open_connections() == 0 && context.h3.open() == 0 {
                    return endpoint::end(context).await;
                }
                // A connection may become idle without closing.
                let _ = timeout(ACCEPT_PAUSE, closed).await;
            }
        };
        timeout(time, all_closed).await.is_ok()
    }

    /// Writes what the worker still has for the logs and the ledger of hits, and drops the open connections.
    fn finish(&self) {
        self.context.flush_logs();
        self.context.flush_views();
        self.sessions.drop_parked();
    }
}

/// Gives free memory back to the system, and after a burst of requests also the pages of program code.
fn give_memory_back() {
    if sys::Heap::trim() >= BURST_BYTES {
        sys::release_code_pages();
    }
}

#[cfg(test)]
mod tests;
