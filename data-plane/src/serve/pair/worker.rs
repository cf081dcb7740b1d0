//! A worker under a virtual clock.

use crate::ledger::stats::Counters;
use crate::serve::accepted_connection::{AcceptLoop, AcceptedConnection};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::pair::call::{PairCall, forget_calls, next_call};
use crate::serve::pair::world::PairWorld;
use crate::serve::worker::{Departure, Worker, WorkerCommand, WorkerListener};
use base::clock::Clock;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::runtime::{Builder, LocalRuntime};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use wire::date;

/// A worker under a virtual clock. A clone is another handle of the same worker.
#[derive(Clone)]
pub(in crate::serve) struct Pair {
    shared: Rc<PairState>,
}

struct PairState {
    /// Runtime of the worker; `None` after the end of the worker, which drops all tasks as at the end of its thread.
    runtime: RefCell<Option<LocalRuntime>>,
    worker: Rc<Worker>,
    commands: mpsc::UnboundedSender<WorkerCommand>,
    has_ended: Rc<Cell<bool>>,
    /// Address of the next clients.
    client: Cell<SocketAddr>,
}

/// Turns of the runtime without progress after which nothing is ready any more. In one turn every ready task is polled,
/// so a chain of tasks and events that wake each other has as many links.
const QUIET_TURNS: usize = 12;
/// Longest step of the clock in milliseconds: the interval of the worker's sweep.
const STEP_MS: u64 = 500;
/// Start of the clock: 20 November 2026, 18:39:14 UTC.
const START_MS: u64 = 1_795_199_954_000;
/// Address of the clients, unless a test sets another one.
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 50_000);

impl Pair {
    /// Starts a worker with the default limits.
    pub(in crate::serve) fn new() -> Pair {
        Pair::serving(PairWorld::default())
    }

    /// Starts a worker.
    pub(in crate::serve) fn serving(world: PairWorld) -> Pair {
        forget_calls();
        let process = world.process();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build_local(Default::default())
            .expect("a runtime");
        let clock = Clock::standing(START_MS, date::format_imf);
        let world = Arc::new(world.build(&process));
        let context = WorkerContext::new(clock, world, process, Arc::<Counters>::default());
        let worker = Worker::new(Rc::new(context.expect("a context")));
        let (commands, receiver) = mpsc::unbounded_channel();
        let has_ended = Rc::<Cell<bool>>::default();
        let running = worker.clone().command(receiver);
        let flag = has_ended.clone();
        runtime.spawn_local(async move {
            running.await;
            flag.set(true);
        });
        let state = PairState {
            runtime: RefCell::new(Some(runtime)),
            worker,
            commands,
            has_ended,
            client: Cell::new(CLIENT),
        };
        let pair = Pair {
            shared: Rc::new(state),
        };
        pair.settle();
        pair
    }

    /// Sets the address of the clients that connect from now on.
    pub(in crate::serve) fn set_client(&self, address: [u8; 4]) {
        self.shared.client.set(SocketAddr::from((address, 50_000)));
    }

    /// Opens a connection on `socket`, the server's end.
    pub(super) fn open(&self, socket: OwnedFd, secure: bool) {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let listener = AcceptLoop::new(address, secure, Audience::Public, Arc::default());
        let now_ms = self.context().clock.millis();
        let accepted = AcceptedConnection::direct(socket, self.shared.client.get(), now_ms);
        let runtime = self.shared.runtime.borrow();
        let runtime = runtime.as_ref().expect("the worker runs");
        runtime.block_on(async { self.shared.worker.sessions.open(accepted, &listener) });
        drop(listener);
        self.settle();
    }

    /// Lets the worker run until it waits for its clients, the handlers or the clock.
    pub(in crate::serve) fn settle(&self) {
        if let Some(runtime) = &*self.shared.runtime.borrow() {
            runtime.block_on(async {
                let (mut quiet, mut progress) = (0, self.progress());
                while quiet < QUIET_TURNS {
                    yield_now().await;
                    let before = std::mem::replace(&mut progress, self.progress());
                    quiet = if before == progress { quiet + 1 } else { 0 };
                }
            });
        }
        if self.shared.has_ended.get() {
            // Tasks must not find the runtime borrowed.
            let runtime = self.shared.runtime.take();
            drop(runtime);
        }
    }

    /// Returns counters of which one rises in each turn of a connection with more to do than fits into one turn.
    fn progress(&self) -> [u64; 3] {
        let stats = &self.context().stats;
        let counters = [
            &stats.bytes_received,
            &stats.requests,
            &stats.connections_closed,
        ];
        counters.map(|counter| counter.value())
    }

    /// Lets the worker run until `is_done`, for work of another thread or for bytes on the network.
    pub(in crate::serve) fn settle_until(&self, mut is_done: impl FnMut() -> bool) {
        self.settle();
        while !is_done() {
            std::thread::yield_now();
            self.settle();
        }
    }

    /// Returns the bytes of bodies that are reserved.
    pub(in crate::serve) fn body_bytes(&self) -> usize {
        self.context().shared.body_memory.bytes()
    }

    /// Moves the clocks, and enforces the deadlines at the end as a sweep does. The worker's own sweeps run meanwhile.
    pub(in crate::serve) fn advance(&self, ms: u64) {
        self.advance_unswept(ms);
        self.context().end_expired();
        self.settle();
    }

    /// Moves the clocks. Deadlines are enforced only by the worker's own sweeps.
    pub(in crate::serve) fn advance_unswept(&self, ms: u64) {
        let mut left_ms = ms;
        while left_ms > 0 {
            let step_ms = left_ms.min(STEP_MS);
            self.context().clock.advance(step_ms * 1_000);
            if let Some(runtime) = &*self.shared.runtime.borrow() {
                runtime.block_on(tokio::time::advance(Duration::from_millis(step_ms)));
            }
            self.settle();
            left_ms -= step_ms;
        }
    }

    /// Begins the drain of the worker, which may take `seconds`.
    pub(in crate::serve) fn drain(&self, seconds: u64) {
        self.command(WorkerCommand::Drain(Duration::from_secs(seconds)));
    }

    /// Sends a command to the worker.
    pub(in crate::serve) fn command(&self, command: WorkerCommand) {
        assert!(self.shared.commands.send(command).is_ok());
        self.settle();
    }

    /// Begins the departure of the worker, which may take `seconds`. Returns the number of cut requests.
    pub(in crate::serve) fn leave(&self, seconds: u64) -> Arc<AtomicUsize> {
        let cut = Arc::<AtomicUsize>::default();
        self.command(WorkerCommand::Leave(Departure {
            deadline: Duration::from_secs(seconds),
            cut: cut.clone(),
        }));
        cut
    }

    /// Has the worker accept connections of a listening socket.
    pub(in crate::serve) fn listen(&self, socket: TcpListener) {
        let address = socket.local_addr().expect("an address");
        self.command(WorkerCommand::Listen(WorkerListener {
            socket,
            address,
            secure: false,
            audience: Audience::Public,
            proxy_protocol: Arc::default(),
        }));
    }

    /// Returns true after the end of the worker.
    pub(in crate::serve) fn has_ended(&self) -> bool {
        self.shared.has_ended.get()
    }

    /// Takes the next call of a handler.
    #[track_caller]
    pub(in crate::serve) fn call(&self) -> PairCall {
        self.next_call().expect("a call of a handler")
    }

    /// Takes the next call of a handler, if any.
    pub(in crate::serve) fn next_call(&self) -> Option<PairCall> {
        next_call()
    }

    /// Returns the state of the worker.
    pub(in crate::serve) fn context(&self) -> &WorkerContext {
        &self.shared.worker.context
    }

    /// Returns the number of bytes that the worker has read from its clients.
    pub(in crate::serve) fn bytes_received(&self) -> u64 {
        self.context().stats.bytes_received.value()
    }

    /// Returns the number of open connections.
    pub(in crate::serve) fn open_connections(&self) -> usize {
        self.context().open_connections()
    }
}
