//! Accepting connections: at once while the worker has room, and beyond the limit `connections` as soon as
//! an idle connection has been given up for the newcomer.
//!
//! A connection beyond the limit is accepted too, because the client's address is known only after
//! accepting. The connection waits for a place in a short queue, and the client with the fewest connections
//! goes first. A client with nearly all connections therefore doesn't keep other clients waiting.

use super::worker::Worker;
use crate::base::fair_share::ClientNetwork;
use crate::base::sys;
use crate::limits::ACCEPTED_WAITING_MAX;
use crate::serve::connection_ledger::{ConnectionOwner, Shortage};
use rustix::io::Errno;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// A listening socket of a worker.
pub(super) struct AcceptLoop {
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
    pub(super) stop: Notify,
}

/// Event of the accept loop.
enum AcceptEvent {
    Tried(io::Result<(OwnedFd, SocketAddr)>),
    /// A connection was closed, so a waiting connection may have room.
    Room,
    /// Connections have waited for `ACCEPT_PAUSE`.
    Waited,
    Stop,
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

/// Accepted connection that waits for a place.
struct QueuedConnection {
    socket: OwnedFd,
    peer: SocketAddr,
}

impl QueuedConnection {
    fn client(&self) -> ClientNetwork {
        self.peer.ip().into()
    }
}

/// Number of connections accepted before other tasks of the worker run.
const ACCEPTS_MAX: usize = 16;
/// Pause after the system refused a descriptor or memory for a connection.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum time between two log lines about a pause in accepting.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

impl Worker {
    /// Accepts connections on one socket until the loop is stopped.
    pub(super) async fn accept(
        self: Rc<Self>,
        listener: AsyncFd<OwnedFd>,
        accepting: Rc<AcceptLoop>,
    ) {
        let mut stop = pin!(accepting.stop.notified());
        let mut queue: Vec<QueuedConnection> = Vec::new();
        let mut complained: Option<Instant> = None;
        let mut taken = 0;
        loop {
            // Created before the check for room, so no later close is missed.
            let mut room = pin!(self.shared.ledger.connection_closed());
            self.admit_waiting(&mut queue, accepting.secure);
            let may_accept = self.may_accept(&mut queue);
            let mut pause = pin!((!queue.is_empty()).then(|| tokio::time::sleep(ACCEPT_PAUSE)));
            let accepted = poll_fn(|cx| {
                if stop.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(AcceptEvent::Stop);
                }
                if may_accept && let Poll::Ready(tried) = poll_accept(&listener, cx) {
                    return Poll::Ready(AcceptEvent::Tried(tried));
                }
                let Some(pause) = pause.as_mut().as_pin_mut() else {
                    return Poll::Pending;
                };
                if room.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(AcceptEvent::Room);
                }
                pause.poll(cx).map(|()| AcceptEvent::Waited)
            });
            match accepted.await {
                AcceptEvent::Stop => break,
                AcceptEvent::Room => {}
                AcceptEvent::Waited => self.make_room_for_waiting(&queue),
                AcceptEvent::Tried(Ok((socket, peer))) => {
                    if self.has_room_for(peer, queue.is_empty()) {
                        self.open(socket, peer, accepting.secure);
                    } else {
                        queue.push(QueuedConnection { socket, peer });
                    }
                    taken += 1;
                    if taken % ACCEPTS_MAX == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                AcceptEvent::Tried(Err(error)) => {
                    let room = self.shared.ledger.connection_closed();
                    let has_room = is_out_of_descriptors(&error)
                        && self.make_room(Shortage::Descriptors) == Eviction::Now;
                    // A connection that broke before accepting is no loss. After a lack of descriptors or
                    // memory, an immediate retry would spin.
                    if !is_peer_fault(&error) && !has_room {
                        // Each closed connection makes room for only one connection, so accepting may
                        // fail again and again. The log lines are limited.
                        if complained.is_none_or(|at| at.elapsed() >= COMPLAINT_PAUSE) {
                            log::error!("{}: accepting pauses: {error}", accepting.address);
                            complained = Some(Instant::now());
                        }
                        let _ = tokio::time::timeout(ACCEPT_PAUSE, room).await;
                    }
                }
            }
        }
        for QueuedConnection { socket, peer } in queue {
            self.open(socket, peer, accepting.secure);
        }
        // Closing the listener would reset connections in the kernel's queue, so the worker takes the
        // queued connections first.
        while let Ok((socket, peer)) = sys::accept(listener.get_ref().as_fd()) {
            self.open(socket, peer, accepting.secure);
        }
    }

    /// Opens waiting connections as far as the worker has room, the connections of the client with the
    /// fewest first.
    fn admit_waiting(self: &Rc<Self>, queue: &mut Vec<QueuedConnection>, secure: bool) {
        while !queue.is_empty() && !self.is_full() {
            let Some(nth) = self.first_of(queue) else {
                return;
            };
            let QueuedConnection { socket, peer } = queue.remove(nth);
            self.open(socket, peer, secure);
        }
    }

    /// Returns the position in the queue of the connection to open first.
    fn first_of(&self, queue: &[QueuedConnection]) -> Option<usize> {
        let clients = queue.iter().map(QueuedConnection::client);
        self.shared.ledger.smallest_holder(clients)
    }

    /// Tries again to make room for the first waiting connection.
    fn make_room_for_waiting(&self, queue: &[QueuedConnection]) {
        if self.is_full()
            && let Some(nth) = self.first_of(queue)
        {
            self.make_room(Shortage::Connections(queue[nth].client()));
        }
    }

    /// Returns true if another connection may be accepted. When the queue is full, the queued client with
    /// the most connections loses the client's last connection in the queue. When all queued clients hold
    /// few connections, further connections wait in the kernel's queue.
    fn may_accept(&self, queue: &mut Vec<QueuedConnection>) -> bool {
        if queue.len() < ACCEPTED_WAITING_MAX {
            return true;
        }
        let clients = queue.iter().map(QueuedConnection::client);
        let Some(last) = self.shared.ledger.last_in_line(clients) else {
            return false;
        };
        queue.remove(last);
        self.count_eviction();
        true
    }

    /// Returns true if a connection from `peer` may be opened now, possibly in place of a connection given
    /// up for the peer. While connections wait (`is_first` is false), a free place goes to the queue in
    /// order.
    fn has_room_for(&self, peer: SocketAddr, is_first: bool) -> bool {
        let is_full = self.is_full();
        if is_first && !is_full {
            return true;
        }
        let client = ClientNetwork::from(peer.ip());
        let most = self.world().limits.connections_per_address;
        // A connection of a client at the limit for each address is refused when opened, and takes no
        // place.
        if !self.shared.ledger.may_enter(client, most) {
            return true;
        }
        is_full && self.make_room(Shortage::Connections(client)) == Eviction::Now && is_first
    }

    /// Gives up connections of any worker to make room for another connection.
    pub(super) fn make_room(&self, shortage: Shortage) -> Eviction {
        let mut room = Eviction::None;
        for entry in self.shared.ledger.choose(shortage) {
            let made = match entry.owner() {
                ConnectionOwner::Row(orders, row) if Arc::ptr_eq(orders, &self.eviction_orders) => {
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

    /// Carries out the orders of other workers to give up connections.
    pub(super) async fn run_eviction_orders(self: Rc<Self>) {
        loop {
            for (row, entry) in self.eviction_orders.next().await {
                self.evict(row, &entry);
            }
        }
    }
}

fn poll_accept(
    listener: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<(OwnedFd, SocketAddr)>> {
    loop {
        let mut guard = ready!(listener.poll_read_ready(cx))?;
        match sys::accept(listener.get_ref().as_fd()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
            accepted => return Poll::Ready(accepted),
        }
    }
}

/// Returns true if the process has reached the limit of descriptors.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE)
}

/// Returns true if the connection broke before accepting, through no fault of the server (errors listed in
/// accept(2)).
fn is_peer_fault(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::PERM
        )
    )
}
