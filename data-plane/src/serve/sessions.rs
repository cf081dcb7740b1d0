//! Sessions of a worker's TCP connections: a session is parked here while the session awaits only events
//! of the socket, and otherwise belongs to a task.

use crate::ledger::descriptors::descriptors;
use crate::serve::accepted_connection::{AcceptLoop, AcceptedConnection};
use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_entry::{ConnectionEntry, ConnectionOwner, Shortage};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::context::WorkerContext;
use crate::serve::h1::session::{ConnectionStep, H1Session};
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::poller::{self, Readiness};
use crate::serve::socket::TcpSocket;
use base::sys;
use base::task::spawn_local;
use rustix::event::epoll;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Sessions of a worker.
pub(super) struct Sessions {
    pub(super) context: Rc<WorkerContext>,
    /// Parked sessions by the row of the connection.
    parked: RefCell<Vec<Option<Box<H1Session>>>>,
}

/// Result of an attempt to make room for a connection.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Eviction {
    /// No connection can be given up.
    None,
    /// A connection was ordered to end.
    Soon,
    /// A connection was closed.
    Now,
}

/// Number of connections above which a parked connection releases memory at once: the saved memory is then
/// worth the microseconds of work.
const MANY: usize = 100;
/// Milliseconds of silence after which a connection is likely to stay silent.
const SILENT_MS: u64 = 1_000;
/// Most connections that release memory in one sweep; each takes some microseconds.
const SETTLED_MAX: usize = 500;

impl Sessions {
    pub(super) fn new(context: Rc<WorkerContext>) -> Sessions {
        Sessions {
            context,
            parked: RefCell::default(),
        }
    }

    /// Starts a connection of the listener.
    pub(super) fn open(self: &Rc<Self>, accepted: AcceptedConnection, listener: &AcceptLoop) {
        let secure = listener.secure;
        let AcceptedConnection {
            socket, peer, ends, ..
        } = accepted;
        let context = &self.context;
        let peer = peer.ip().to_canonical();
        let world = context.world();
        let offered = world.tls_at(listener.audience.own_listener());
        let offered = offered.filter(|_| secure).cloned();
        let tls = match (&offered, secure) {
            (Some(tls), true) => match tls.accept() {
                Ok(handshake) => Some(handshake),
                Err(error) => return log::error!("TLS: {error}"),
            },
            (None, true) => return,
            (_, false) => None,
        };
        context.clock.tick();
        let row = context.next_row();
        let owner = ConnectionOwner::Row(context.eviction_orders.clone(), row);
        let Some(entered) = context.enter_connection(peer, owner) else {
            return;
        };
        let phase = if secure {
            ConnectionPhase::Handshake
        } else {
            ConnectionPhase::Idle
        };
        let socket = Rc::new(TcpSocket::new(socket, context.poller.clone(), row));
        if let Some(ends) = ends {
            socket.set_ends(ends);
        }
        context.open(row, socket.clone(), entered, phase);
        let stream = MaybeTlsStream::new(socket, tls);
        let connection = Connection::new(stream, context.clone(), row, peer, listener);
        // Most clients send a request right after connecting.
        self.run_guarded(Box::new(H1Session::new(connection, offered)));
    }

    /// Runs a session until the session waits. A panic ends only the connection; dropping the connection
    /// counts the panic.
    fn run_guarded(self: &Rc<Self>, session: Box<H1Session>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.answer_requests(session)));
    }

    /// Answers the requests that can be answered at once, then parks the session. A task is spawned only
    /// for a step that waits for more than readable bytes.
    fn answer_requests(self: &Rc<Self>, mut session: Box<H1Session>) {
        match session.answer_ready() {
            Poll::Pending => self.park(session),
            Poll::Ready(ConnectionStep::End(AfterResponse::Close)) => session.close(),
            Poll::Ready(next) => {
                self.context.stand_busy(session.slot());
                let sessions = self.clone();
                spawn_local(async move {
                    if let Some(session) = session.run(next).await {
                        sessions.park(session);
                    }
                });
            }
        }
    }

    /// Parks a session until the socket has events.
    fn park(&self, mut session: Box<H1Session>) {
        let slot = session.slot();
        session.forget_waker();
        // With many connections, memory released by one connection serves the next.
        if self.context.open_connections() > MANY {
            session.release_memory();
        }
        let mut parked = self.parked.borrow_mut();
        if parked.len() <= slot {
            parked.resize_with(slot + 1, || None);
        }
        parked[slot] = Some(session);
    }

    #[inline(always)]
    fn take_parked(&self, slot: usize) -> Option<Box<H1Session>> {
        self.parked.borrow_mut().get_mut(slot)?.take()
    }

    /// Delivers the events of one socket: to the parked session, or else to the task that owns the session.
    pub(super) fn deliver(self: &Rc<Self>, slot: usize, ready: Readiness) {
        let session = self.take_parked(slot);
        if !self.context.socket_ready(slot, ready, session.is_none()) {
            return;
        }
        if let Some(session) = session {
            // Fetched now, because the keys are needed right after the system call that reads the socket.
            session.prefetch();
            self.run_guarded(session);
        }
    }

    /// Prefetches the state of the next connections while the current connection runs. With thousands of
    /// connections no state of the next connection is in the processor's cache. Each pointer is prefetched
    /// before the memory behind the pointer.
    pub(super) fn prefetch_next(&self, events: &[epoll::Event]) {
        let parked = self.parked.borrow();
        let slot = |ahead: usize| {
            events
                .get(ahead)
                .map(|event| poller::read(event).0 as usize)
        };
        if let Some(slot) = slot(3) {
            self.context.prefetch_row(slot);
            if let Some(place) = parked.get(slot) {
                sys::prefetch(place);
            }
        }
        if let Some(slot) = slot(2) {
            self.context.prefetch_socket(slot);
            if let Some(Some(session)) = parked.get(slot) {
                sys::prefetch(&**session);
            }
        }
        if let Some(Some(session)) = slot(1).and_then(|slot| parked.get(slot)) {
            session.prefetch();
        }
    }

    /// Releases memory of sessions that have been silent for a while, at most [`SETTLED_MAX`] in one call,
    /// and the table where no connection is open.
    pub(super) fn release_memory(&self) {
        let context = &self.context;
        let mut parked = self.parked.borrow_mut();
        if context.open_connections() == 0 {
            return *parked = Vec::new();
        }
        let idle_ms = u64::from(context.world().limits.idle_seconds) * 1_000;
        let deadline_ms = context.clock.millis().saturating_sub(SILENT_MS) + idle_ms;
        let mut settled = 0;
        for session in parked.iter_mut().flatten() {
            if context.is_idle_until(session.slot(), deadline_ms) {
                settled += usize::from(session.release_memory());
            }
            if settled == SETTLED_MAX {
                break;
            }
        }
    }

    /// Drops all parked sessions.
    pub(super) fn drop_parked(&self) {
        let parked = self.parked.take();
        drop(parked);
    }

    // ---- Eviction ----

    /// Gives up connections of any worker to make room for another connection.
    pub(super) fn make_room(&self, shortage: Shortage) -> Eviction {
        let mut room = Eviction::None;
        for entry in self.context.shared.ledger.choose(shortage) {
            let made = match entry.owner() {
                ConnectionOwner::Row(orders, row)
                    if Arc::ptr_eq(orders, &self.context.eviction_orders) =>
                {
                    self.evict(*row, &entry)
                }
                ConnectionOwner::Row(orders, row) => {
                    orders.give_up(*row, entry.clone());
                    Eviction::Soon
                }
                ConnectionOwner::Task(told) => {
                    told.notify_one();
                    Eviction::Soon
                }
            };
            room = room.max(made);
        }
        room
    }

    /// Gives up idle connections for requests that need a descriptor for a connection to a member.
    pub(super) async fn yield_descriptors(self: Rc<Self>) {
        loop {
            descriptors().idle_client_wanted().await;
            self.make_room(Shortage::Descriptors);
        }
    }

    /// Carries out the orders of other workers to give up connections.
    pub(super) async fn run_eviction_orders(self: Rc<Self>) {
        loop {
            for (row, entry) in self.context.eviction_orders.next().await {
                self.evict(row, &entry);
            }
        }
    }

    /// Evicts the connection in the row, unless the row now belongs to another entry or the connection has
    /// made progress since the choice.
    fn evict(&self, row: usize, entry: &Arc<ConnectionEntry>) -> Eviction {
        if !self.context.is_chosen(row, entry) {
            return Eviction::None;
        }
        let age_ms = entry.age_ms(self.context.clock.millis());
        let rate = self.context.client_rate(row, age_ms);
        self.context.shared.ledger.record_eviction(entry, rate);
        let eviction = match self.take_parked(row) {
            Some(mut session) => {
                session.close();
                Eviction::Now
            }
            None if self.context.end_evicted(row) => Eviction::Soon,
            None => return Eviction::None,
        };
        self.context.count_eviction();
        eviction
    }
}
