//! Accepting connections: at once while the worker has room, and beyond the limit `connections` as soon as
//! an idle connection has been given up for the newcomer.
//!
//! A connection beyond the limit is accepted too, because the client's address is known only after
//! accepting. The connection waits for a place in a short queue. The client with the fewest connections goes
//! first, and clients that lost a connection as too slow go last, so neither a client with nearly all
//! connections nor many clients with one slow request each keep other clients waiting.

use crate::ledger::descriptors::descriptors;
use crate::limits::{
    ACCEPTED_WAITING_MAX, ACCEPTED_WAITING_SHORT_MAX, PROXY_HEADERS_AWAITED_MAX,
    WAITING_AT_ONCE_DIVISOR,
};
use crate::serve::accepted_connection::{AcceptLoop, AcceptMode, AcceptedConnection};
use crate::serve::connection_entry::{Newcomer, Shortage};
use crate::serve::connection_ledger::ConnectionLedger;
use crate::serve::proxy_header;
use crate::serve::sessions::{Eviction, Sessions};
use crate::upstream::close_idle_members;
use base::sys;
use base::task::spawn_local;
use rustix::io::Errno;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use wire::reject::Reject;

/// Event of the accept loop.
enum AcceptEvent {
    Tried(io::Result<(OwnedFd, SocketAddr)>),
    /// The wait for a PROXY header is over; None if the connection was refused.
    Header(Option<AcceptedConnection>),
    /// A connection of a client or to a member was closed, so a waiting connection may have room.
    Room,
    /// Connections have waited for `ACCEPT_PAUSE`.
    Waited,
    /// The mode of the loop has changed.
    Changed,
}

/// Connections with a PROXY header under way.
struct AwaitedHeaders {
    count: usize,
    sender: UnboundedSender<Option<AcceptedConnection>>,
    receiver: UnboundedReceiver<Option<AcceptedConnection>>,
}

impl AwaitedHeaders {
    fn new() -> AwaitedHeaders {
        let (sender, receiver) = unbounded_channel();
        AwaitedHeaders {
            count: 0,
            sender,
            receiver,
        }
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
        listener: Some(listener),
        accepting,
        queue: Vec::new(),
        headers: None,
        complained: None,
        taken: 0,
        pause_until: Instant::now(),
    };
    acceptor.run().await;
    for connection in std::mem::take(&mut acceptor.queue) {
        acceptor.open(connection);
    }
    // Closing the listener would reset connections in the kernel's queue, so the worker takes the queued
    // connections first.
    let listener = acceptor.listener.take();
    while let Some(listener) = &listener
        && let Ok((socket, peer)) = sys::accept(listener.get_ref().as_fd())
    {
        if acceptor.awaits_headers() {
            acceptor.await_header(socket, peer)
        } else {
            let now_ms = acceptor.now_ms();
            acceptor.open(AcceptedConnection::direct(socket, peer, now_ms));
        }
    }
    acceptor.open_with_header();
}

/// State of an accept loop.
struct Acceptor {
    sessions: Rc<Sessions>,
    /// The listening socket; None after the socket was left to another process.
    listener: Option<AsyncFd<OwnedFd>>,
    accepting: Rc<AcceptLoop>,
    /// Accepted connections that wait for a place.
    queue: Vec<AcceptedConnection>,
    /// PROXY headers under way; None on a listener without the PROXY protocol.
    headers: Option<Box<AwaitedHeaders>>,
    /// Time of the last log line about a pause in accepting.
    complained: Option<Instant>,
    /// Number of accepted connections.
    taken: usize,
    /// Time of the next attempt to make room for the waiting connections.
    pause_until: Instant,
}

impl Acceptor {
    async fn run(&mut self) {
        let context = self.sessions.context.clone();
        let accepting = self.accepting.clone();
        let mut changed = pin!(accepting.changed.notified());
        let mut has_closed = false;
        loop {
            // Created before the check for room, so no later close is missed.
            let mut room = pin!(context.shared.ledger.connection_closed());
            let mut descriptor = pin!(descriptors().room());
            self.admit_waiting();
            if std::mem::take(&mut has_closed) {
                self.make_room_for_waiting(false);
            }
            if self.is_over() {
                return;
            }
            let may_accept = self.may_accept();
            let is_waiting = !self.queue.is_empty();
            let mut pause = pin!(is_waiting.then(|| sleep_until(self.pause_until)));
            let event = poll_fn(|cx| {
                // Before accepting, so that a paused loop takes no further connection.
                if changed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(AcceptEvent::Changed);
                }
                // Before accepting, so that clients that connect without end do not delay those that wait.
                if let Some(pause) = pause.as_mut().as_pin_mut()
                    && pause.poll(cx).is_ready()
                {
                    return Poll::Ready(AcceptEvent::Waited);
                }
                if let Some(headers) = &mut self.headers
                    && let Poll::Ready(Some(read)) = headers.receiver.poll_recv(cx)
                {
                    return Poll::Ready(AcceptEvent::Header(read));
                }
                if may_accept
                    && let Some(listener) = &self.listener
                    && let Poll::Ready(tried) = poll_accept(listener, cx)
                {
                    return Poll::Ready(AcceptEvent::Tried(tried));
                }
                let has_room = is_waiting
                    && (room.as_mut().poll(cx).is_ready()
                        || descriptor.as_mut().poll(cx).is_ready());
                if has_room {
                    Poll::Ready(AcceptEvent::Room)
                } else {
                    Poll::Pending
                }
            });
            match event.await {
                AcceptEvent::Changed => changed.set(accepting.changed.notified()),
                AcceptEvent::Room => has_closed = true,
                AcceptEvent::Waited => {
                    self.make_room_for_waiting(true);
                    self.pause_until = Instant::now() + ACCEPT_PAUSE;
                }
                AcceptEvent::Header(read) => self.take_with_header(read),
                AcceptEvent::Tried(Ok((socket, peer))) => {
                    if self.awaits_headers() {
                        self.await_header(socket, peer)
                    } else {
                        let now_ms = self.now_ms();
                        self.take(AcceptedConnection::direct(socket, peer, now_ms));
                    }
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

    /// Returns true at the end of the loop. A socket that another process has as well is closed at once: its queue stays
    /// with the other process.
    fn is_over(&mut self) -> bool {
        match self.accepting.mode() {
            AcceptMode::Accepting | AcceptMode::Paused => false,
            AcceptMode::Stopped => true,
            AcceptMode::Left => {
                self.listener = None;
                self.queue.is_empty() && self.headers_awaited() == 0
            }
        }
    }

    /// Returns the number of connections with a PROXY header under way.
    fn headers_awaited(&self) -> usize {
        self.headers.as_ref().map_or(0, |headers| headers.count)
    }

    /// Opens an accepted connection, or adds the connection to the queue.
    fn take(&mut self, connection: AcceptedConnection) {
        let is_full = self.is_full();
        if !self.has_room_for(&connection, is_full) {
            if self.queue.is_empty() {
                self.pause_until = Instant::now() + ACCEPT_PAUSE;
            }
            self.queue.push(connection);
        } else if is_full {
            self.open_in_shortage(connection);
        } else {
            self.open(connection);
        }
        self.taken += 1;
    }

    /// Opens a connection that got its place although all connections were taken.
    fn open_in_shortage(&self, connection: AcceptedConnection) {
        let now_ms = self.now_ms();
        self.ledger().record_grant(connection.client(), now_ms);
        self.open(connection);
    }

    /// Returns the time in milliseconds of the worker's clock.
    fn now_ms(&self) -> u64 {
        self.sessions.context.clock.millis()
    }

    /// Gives up connections of any worker for a connection that finds no place.
    fn make_room(&self, connection: &AcceptedConnection, wait_counts: bool) -> Eviction {
        self.sessions.context.clock.tick();
        let now_ms = self.now_ms();
        let since_ms = if wait_counts {
            connection.accepted_ms
        } else {
            now_ms
        };
        let newcomer = Newcomer {
            client: connection.client(),
            since_ms,
            now_ms,
            waiting: self.queue.len(),
            needs_descriptor: descriptors().is_full(),
        };
        self.sessions.make_room(Shortage::Connections(newcomer))
    }

    fn open(&self, connection: AcceptedConnection) {
        self.sessions.open(connection, &self.accepting);
    }

    /// Returns true if connections begin with a PROXY header.
    fn awaits_headers(&self) -> bool {
        self.accepting.proxy_protocol.load(Relaxed)
    }

    /// Starts to read the PROXY header of a connection. A connection of an untrusted peer is closed.
    fn await_header(&mut self, socket: OwnedFd, peer: SocketAddr) {
        let (context, accepting) = (&self.sessions.context, &self.accepting);
        self.taken += 1;
        if !context.world().trust.contains(peer.ip()) {
            return proxy_header::refuse(context, accepting, peer, Reject::PROXY_HEADER_UNTRUSTED);
        }
        let headers = self
            .headers
            .get_or_insert_with(|| Box::new(AwaitedHeaders::new()));
        headers.count += 1;
        let sender = headers.sender.clone();
        let (sessions, accepting) = (self.sessions.clone(), accepting.clone());
        spawn_local(async move {
            let read = proxy_header::read(&sessions.context, &accepting, socket, peer).await;
            // After the end of the accept loop, no connection waits for a place.
            if let Err(SendError(Some(connection))) = sender.send(read) {
                sessions.open(connection, &accepting);
            }
        });
    }

    /// Takes a connection after its PROXY header.
    fn take_with_header(&mut self, read: Option<AcceptedConnection>) {
        if let Some(headers) = &mut self.headers {
            headers.count -= 1;
        }
        if let Some(connection) = read {
            self.take(connection);
        }
    }

    /// Opens the connections with a PROXY header that the loop has not taken.
    fn open_with_header(&mut self) {
        while let Some(headers) = &mut self.headers
            && let Ok(read) = headers.receiver.try_recv()
        {
            read.into_iter()
                .for_each(|connection| self.open(connection));
        }
    }

    /// Returns true if accepting pauses after `error`. A connection that broke before accepting is no loss.
    /// After a lack of descriptors or memory, an immediate retry would spin.
    fn must_pause(&mut self, error: &io::Error) -> bool {
        let has_room = is_out_of_descriptors(error)
            && (close_idle_members() > 0
                || self.sessions.make_room(Shortage::Descriptors) == Eviction::Now);
        if is_peer_fault(error) || has_room {
            return false;
        }
        self.complain(error);
        true
    }

    /// Logs a pause in accepting. Each closed connection makes room for only one connection, so accepting may
    /// pause again and again, and the log lines are limited.
    fn complain(&mut self, why: &dyn Display) {
        let complained = self.complained;
        if complained.is_none_or(|at| at.elapsed() >= COMPLAINT_PAUSE) {
            log::error!("{}: accepting pauses: {why}", self.accepting.address);
            self.complained = Some(Instant::now());
        }
    }

    /// Opens waiting connections as far as the worker has room, in the order of
    /// [`ConnectionLedger::service_order`].
    fn admit_waiting(&mut self) {
        while !self.queue.is_empty() && !self.is_full() {
            let Some(&nth) = self.service_order().first() else {
                return;
            };
            let connection = self.queue.remove(nth);
            if !connection.is_left() {
                self.open_in_shortage(connection);
            }
        }
    }

    /// Returns true if no place is free for a connection of the listener.
    fn is_full(&self) -> bool {
        self.sessions.context.is_full() && !self.accepting.has_reserved_place()
    }

    /// Returns the positions in the queue in the order in which the connections are opened.
    fn service_order(&self) -> Vec<usize> {
        let clients = self.queue.iter().map(AcceptedConnection::client);
        self.ledger().service_order(clients)
    }

    fn ledger(&self) -> &ConnectionLedger {
        &self.sessions.context.shared.ledger
    }

    /// Tries again to make room for the first waiting connections. The wait of the clients counts only if `wait_counts`, so
    /// that few requests that move end in each `ACCEPT_PAUSE`.
    fn make_room_for_waiting(&mut self, wait_counts: bool) {
        if !self.is_full() {
            return;
        }
        // No connection ends in favour of a client that has left.
        self.queue.retain(|connection| !connection.is_left());
        let first = 1 + self.queue.len() / WAITING_AT_ONCE_DIVISOR;
        for nth in self.service_order().into_iter().take(first) {
            if self.make_room(&self.queue[nth], wait_counts) == Eviction::None {
                return;
            }
        }
    }

    /// Returns true if another connection may be accepted. When the queue is full, the queued client that would
    /// be served last loses the client's last connection in the queue ([`ConnectionLedger::last_in_line`]).
    /// When all queued clients are newcomers, further connections wait in the kernel's queue.
    fn may_accept(&mut self) -> bool {
        let is_accepting = self.accepting.mode() == AcceptMode::Accepting;
        if !is_accepting || self.headers_awaited() >= PROXY_HEADERS_AWAITED_MAX {
            return false;
        }
        let is_short = self.queue.len() >= ACCEPTED_WAITING_SHORT_MAX && descriptors().is_full();
        if self.queue.len() < ACCEPTED_WAITING_MAX && !is_short {
            return true;
        }
        let clients = self.queue.iter().map(AcceptedConnection::client);
        let Some(last) = self.ledger().last_in_line(clients) else {
            if is_short {
                self.complain(&"no file descriptor is left for connections; raise LimitNOFILE");
            }
            return false;
        };
        self.queue.remove(last);
        self.sessions.context.count_eviction();
        true
    }

    /// Returns true if the connection may be opened now, possibly in place of a connection given up for its
    /// client. While connections wait, a free place goes to the queue in order. `is_full` is true if no place is
    /// free.
    fn has_room_for(&self, connection: &AcceptedConnection, is_full: bool) -> bool {
        let context = &self.sessions.context;
        let is_first = self.queue.is_empty();
        if is_first && !is_full {
            return true;
        }
        // A connection of a client at the limit for each address is refused when opened, and takes no
        // place.
        if !context.may_connect(connection.peer.ip()) {
            return true;
        }
        // The search for a place walks over all connections. A slow client that connects without end causes no search: it
        // waits for the next attempt for the queue.
        let may_search = is_full && !self.ledger().is_slow(connection.client(), self.now_ms());
        may_search && self.make_room(connection, true) == Eviction::Now && is_first
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
