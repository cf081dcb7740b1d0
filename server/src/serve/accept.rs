//! Accepting connections: at once while there is room, and past `connections` as soon as an idle one has
//! been given up for the newcomer.
//!
//! A connection past the limit is accepted all the same, for only then it is known whose it is. It waits in
//! a short queue until it has a place, and the client that holds fewest goes first: so the connections of a
//! client that holds nearly all don't keep those of other clients waiting behind them.

use super::ledger::{Owner, Shortage};
use super::worker::Worker;
use crate::base::shares::ClientNetwork;
use crate::base::sys;
use crate::limits::ACCEPTED_WAITING_MAX;
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
pub(super) struct Accepting {
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
    pub(super) stop: Notify,
}

/// What became of waiting for a connection.
enum Accepted {
    Tried(io::Result<(OwnedFd, SocketAddr)>),
    /// A connection was closed, so that there may be room for one that waits.
    Room,
    /// Connections have waited for a while.
    Waited,
    Stop,
}

/// What came of making room for a connection.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Room {
    /// No connection is to be given up.
    None,
    /// A connection was told to end.
    Soon,
    /// A connection was closed.
    Now,
}

/// A connection that was accepted and has no place yet.
struct Waiting {
    socket: OwnedFd,
    peer: SocketAddr,
}

impl Waiting {
    fn client(&self) -> ClientNetwork {
        self.peer.ip().into()
    }
}

/// So many connections are accepted before the others get their turn.
const ACCEPTS_MAX: usize = 16;
/// Pause after the system refused to give a descriptor or memory for a connection.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// That is said at most this often.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

impl Worker {
    /// Accepts on one socket until told to stop.
    pub(super) async fn accept(
        self: Rc<Self>,
        listener: AsyncFd<OwnedFd>,
        accepting: Rc<Accepting>,
    ) {
        let mut stop = pin!(accepting.stop.notified());
        let mut queue: Vec<Waiting> = Vec::new();
        let mut complained: Option<Instant> = None;
        let mut taken = 0;
        loop {
            // Before it is looked whether there is room: what is closed after that is heard of.
            let mut room = pin!(self.shared.ledger.room());
            self.admit_waiting(&mut queue, accepting.secure);
            let may_accept = self.may_accept(&mut queue);
            let mut pause = pin!((!queue.is_empty()).then(|| tokio::time::sleep(ACCEPT_PAUSE)));
            let accepted = poll_fn(|cx| {
                if stop.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Accepted::Stop);
                }
                if may_accept && let Poll::Ready(tried) = poll_accept(&listener, cx) {
                    return Poll::Ready(Accepted::Tried(tried));
                }
                let Some(pause) = pause.as_mut().as_pin_mut() else {
                    return Poll::Pending;
                };
                if room.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Accepted::Room);
                }
                pause.poll(cx).map(|()| Accepted::Waited)
            });
            match accepted.await {
                Accepted::Stop => break,
                Accepted::Room => {}
                Accepted::Waited => self.make_room_for_waiting(&queue),
                Accepted::Tried(Ok((socket, peer))) => {
                    if self.has_room_for(peer, queue.is_empty()) {
                        self.open(socket, peer, accepting.secure);
                    } else {
                        queue.push(Waiting { socket, peer });
                    }
                    taken += 1;
                    if taken % ACCEPTS_MAX == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                Accepted::Tried(Err(error)) => {
                    let room = self.shared.ledger.room();
                    let has_room = is_out_of_descriptors(&error)
                        && self.make_room(Shortage::Descriptors) == Room::Now;
                    // A connection that broke before it was taken is nobody's loss; a lack of
                    // descriptors or memory is, and trying again at once would spin.
                    if !is_peer_fault(&error) && !has_room {
                        // Each connection that leaves makes room for one, and then there is none again.
                        if complained.is_none_or(|at| at.elapsed() >= COMPLAINT_PAUSE) {
                            log::error!("{}: accepting pauses: {error}", accepting.address);
                            complained = Some(Instant::now());
                        }
                        let _ = tokio::time::timeout(ACCEPT_PAUSE, room).await;
                    }
                }
            }
        }
        for Waiting { socket, peer } in queue {
            self.open(socket, peer, accepting.secure);
        }
        // What the kernel has already accepted for us would be reset by closing: take it first.
        while let Ok((socket, peer)) = sys::accept(listener.get_ref().as_fd()) {
            self.open(socket, peer, accepting.secure);
        }
    }

    /// Opens connections that wait, as far as there is room: those of the client that holds fewest first.
    fn admit_waiting(self: &Rc<Self>, queue: &mut Vec<Waiting>, secure: bool) {
        while !queue.is_empty() && !self.is_full() {
            let Some(nth) = self.first_of(queue) else {
                return;
            };
            let Waiting { socket, peer } = queue.remove(nth);
            self.open(socket, peer, secure);
        }
    }

    /// Which of those that wait goes first.
    fn first_of(&self, queue: &[Waiting]) -> Option<usize> {
        let clients = queue.iter().map(Waiting::client);
        self.shared.ledger.smallest_holder(clients)
    }

    /// Tries anew to make room for the first of those that wait.
    fn make_room_for_waiting(&self, queue: &[Waiting]) {
        if self.is_full()
            && let Some(nth) = self.first_of(queue)
        {
            self.make_room(Shortage::Connections(queue[nth].client()));
        }
    }

    /// Whether one more may be accepted. Where the queue is full, the client in it that holds most
    /// connections loses its last one in the queue. Where all of them hold few, the rest waits in the
    /// kernel's queue.
    fn may_accept(&self, queue: &mut Vec<Waiting>) -> bool {
        if queue.len() < ACCEPTED_WAITING_MAX {
            return true;
        }
        let clients = queue.iter().map(Waiting::client);
        let Some(last) = self.shared.ledger.last_in_line(clients) else {
            return false;
        };
        queue.remove(last);
        self.gave_up();
        true
    }

    /// Whether a connection from `peer` has a place now, which may have been another connection's until
    /// now. Where connections wait (`is_first` is false), a free place is theirs, by the order of the
    /// queue.
    fn has_room_for(&self, peer: SocketAddr, is_first: bool) -> bool {
        let is_full = self.is_full();
        if is_first && !is_full {
            return true;
        }
        let client = ClientNetwork::from(peer.ip());
        let most = self.world().limits.connections_per_address;
        // A client that has as many as it may have is refused, and takes no place.
        if !self.shared.ledger.may_enter(client, most) {
            return true;
        }
        is_full && self.make_room(Shortage::Connections(client)) == Room::Now && is_first
    }

    /// Gives up connections, of whichever worker, so that there is room for another one.
    pub(super) fn make_room(&self, shortage: Shortage) -> Room {
        let mut room = Room::None;
        for entry in self.shared.ledger.choose(shortage) {
            let made = match entry.owner() {
                Owner::Row(orders, row) if Arc::ptr_eq(orders, &self.orders) => {
                    self.give_up(*row, &entry)
                }
                Owner::Row(orders, row) => {
                    orders.give_up(*row, entry.clone());
                    Room::Soon
                }
                Owner::Task(told) => {
                    told.notify_one();
                    Room::Soon
                }
            };
            room = room.max(made);
        }
        room
    }

    /// Gives up what other workers want given up.
    pub(super) async fn obey(self: Rc<Self>) {
        loop {
            for (row, entry) in self.orders.next().await {
                self.give_up(row, &entry);
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

/// The process may have no more descriptors.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE)
}

/// The connection broke before we took it, which says nothing about us (accept(2) lists these).
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
