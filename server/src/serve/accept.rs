//! Accepting connections: at once while the worker has room, and beyond the limit `connections` as soon as
//! an idle connection has been given up for the newcomer.
//!
//! A connection beyond the limit is accepted too, because the client's address is known only after
//! accepting. The connection waits for a place in a short queue, and the client with the fewest connections
//! goes first. A client with nearly all connections therefore doesn't keep other clients waiting.

use crate::base::fair_share::ClientNetwork;
use crate::base::sys;
use crate::limits::ACCEPTED_WAITING_MAX;
use crate::serve::connection_ledger::{ConnectionLedger, Shortage};
use crate::serve::sessions::{Eviction, Sessions};
use rustix::io::Errno;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
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

/// Accepts connections on one socket until the loop is stopped.
pub(super) async fn run(
    sessions: Rc<Sessions>,
    listener: AsyncFd<OwnedFd>,
    accepting: Rc<AcceptLoop>,
) {
    let mut acceptor = Acceptor {
        sessions,
        listener,
        accepting: &accepting,
        queue: Vec::new(),
        complained: None,
        taken: 0,
    };
    acceptor.run().await;
    let Acceptor { queue, .. } = &mut acceptor;
    for QueuedConnection { socket, peer } in std::mem::take(queue) {
        acceptor.open(socket, peer);
    }
    // Closing the listener would reset connections in the kernel's queue, so the worker takes the queued
    // connections first.
    while let Ok((socket, peer)) = sys::accept(acceptor.listener.get_ref().as_fd()) {
        acceptor.open(socket, peer);
    }
}

/// State of an accept loop.
struct Acceptor<'a> {
    sessions: Rc<Sessions>,
    listener: AsyncFd<OwnedFd>,
    accepting: &'a AcceptLoop,
    /// Accepted connections that wait for a place.
    queue: Vec<QueuedConnection>,
    /// Time of the last log line about a pause in accepting.
    complained: Option<Instant>,
    /// Number of accepted connections.
    taken: usize,
}

impl Acceptor<'_> {
    async fn run(&mut self) {
        let context = self.sessions.context.clone();
        let mut stop = pin!(self.accepting.stop.notified());
        loop {
            // Created before the check for room, so no later close is missed.
            let mut room = pin!(context.shared.ledger.connection_closed());
            self.admit_waiting();
            let may_accept = self.may_accept();
            let is_waiting = !self.queue.is_empty();
            let mut pause = pin!(is_waiting.then(|| tokio::time::sleep(ACCEPT_PAUSE)));
            let event = poll_fn(|cx| {
                if stop.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(AcceptEvent::Stop);
                }
                if may_accept && let Poll::Ready(tried) = poll_accept(&self.listener, cx) {
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
            match event.await {
                AcceptEvent::Stop => return,
                AcceptEvent::Room => {}
                AcceptEvent::Waited => self.make_room_for_waiting(),
                AcceptEvent::Tried(Ok((socket, peer))) => {
                    self.take(socket, peer);
                    if self.taken.is_multiple_of(ACCEPTS_MAX) {
                        tokio::task::yield_now().await;
                    }
                }
                AcceptEvent::Tried(Err(error)) => {
                    let room = context.shared.ledger.connection_closed();
                    if self.must_pause(&error) {
                        let _ = tokio::time::timeout(ACCEPT_PAUSE, room).await;
                    }
                }
            }
        }
    }

    /// Opens an accepted connection, or adds the connection to the queue.
    fn take(&mut self, socket: OwnedFd, peer: SocketAddr) {
        if self.has_room_for(peer, self.queue.is_empty()) {
            self.open(socket, peer);
        } else {
            self.queue.push(QueuedConnection { socket, peer });
        }
        self.taken += 1;
    }

    fn open(&self, socket: OwnedFd, peer: SocketAddr) {
        self.sessions.open(socket, peer, self.accepting.secure);
    }

    /// Returns true if accepting pauses after `error`. A connection that broke before accepting is no loss.
    /// After a lack of descriptors or memory, an immediate retry would spin.
    fn must_pause(&mut self, error: &io::Error) -> bool {
        let has_room = is_out_of_descriptors(error)
            && self.sessions.make_room(Shortage::Descriptors) == Eviction::Now;
        if is_peer_fault(error) || has_room {
            return false;
        }
        // Each closed connection makes room for only one connection, so accepting may fail again and again.
        // The log lines are limited.
        let complained = self.complained;
        if complained.is_none_or(|at| at.elapsed() >= COMPLAINT_PAUSE) {
            log::error!("{}: accepting pauses: {error}", self.accepting.address);
            self.complained = Some(Instant::now());
        }
        true
    }

    /// Opens waiting connections as far as the worker has room, the connections of the client with the
    /// fewest first.
    fn admit_waiting(&mut self) {
        while !self.queue.is_empty() && !self.sessions.context.is_full() {
            let Some(nth) = self.first_in_line() else {
                return;
            };
            let QueuedConnection { socket, peer } = self.queue.remove(nth);
            self.open(socket, peer);
        }
    }

    /// Returns the position in the queue of the connection to open first.
    fn first_in_line(&self) -> Option<usize> {
        let clients = self.queue.iter().map(QueuedConnection::client);
        self.ledger().smallest_holder(clients)
    }

    fn ledger(&self) -> &ConnectionLedger {
        &self.sessions.context.shared.ledger
    }

    /// Tries again to make room for the first waiting connection.
    fn make_room_for_waiting(&self) {
        if self.sessions.context.is_full()
            && let Some(nth) = self.first_in_line()
        {
            let client = self.queue[nth].client();
            self.sessions.make_room(Shortage::Connections(client));
        }
    }

    /// Returns true if another connection may be accepted. When the queue is full, the queued client with
    /// the most connections loses the client's last connection in the queue. When all queued clients hold
    /// few connections, further connections wait in the kernel's queue.
    fn may_accept(&mut self) -> bool {
        if self.queue.len() < ACCEPTED_WAITING_MAX {
            return true;
        }
        let clients = self.queue.iter().map(QueuedConnection::client);
        let Some(last) = self.ledger().last_in_line(clients) else {
            return false;
        };
        self.queue.remove(last);
        self.sessions.context.count_eviction();
        true
    }

    /// Returns true if a connection from `peer` may be opened now, possibly in place of a connection given
    /// up for the peer. While connections wait (`is_first` is false), a free place goes to the queue in
    /// order.
    fn has_room_for(&self, peer: SocketAddr, is_first: bool) -> bool {
        let context = &self.sessions.context;
        let is_full = context.is_full();
        if is_first && !is_full {
            return true;
        }
        let client = ClientNetwork::from(peer.ip());
        // A connection of a client at the limit for each address is refused when opened, and takes no
        // place.
        if !context.may_connect(peer.ip()) {
            return true;
        }
        let room = || self.sessions.make_room(Shortage::Connections(client));
        is_full && room() == Eviction::Now && is_first
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
