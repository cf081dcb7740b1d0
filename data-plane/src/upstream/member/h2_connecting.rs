//! HTTP/2 connections of a worker to the members, and the way of a request to one of the connections.
//!
//! Requests that arrive while a connection is being established wait for the connection, up to as many as may
//! share it.

use crate::limits::H2_MEMBER_PROBE_MILLISECONDS;
use crate::upstream::member::conn::MemberConn;
use crate::upstream::member::connecting::MemberConnecting;
use crate::upstream::member::h2_conn::H2MemberConn;
use crate::upstream::member::h2_driver::H2Driver;
use crate::upstream::member::pool::{ConnUser, MemberPool};
use crate::upstream::member::socket::MemberWindow;
use base::coarse_timer::CoarseTimer;
use base::task::spawn_local;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::Instant;
use wire::h2::UploadLength;
use wire::limits::H2_MEMBER_STREAMS_MAX;

thread_local! {
    /// Connections of the worker, by member.
    static MEMBERS: RefCell<Vec<WorkerMember>> = const { RefCell::new(Vec::new()) };
}

/// Connections of a worker to one member.
struct WorkerMember {
    pool: Weak<MemberPool>,
    open: Vec<H2MemberConn>,
    pending: Vec<Rc<PendingConn>>,
}

/// Connection that one request establishes, with the other requests that wait for the connection.
#[derive(Default)]
struct PendingConn {
    waiting: RefCell<Vec<Waker>>,
    /// Number of requests that wait, with the first one.
    requests: Cell<usize>,
    is_over: Cell<bool>,
    /// True if the connection could not be established.
    has_failed: Cell<bool>,
}

/// Properties of a request that decide about its connection.
#[derive(Copy, Clone)]
pub(crate) struct H2ConnNeeds {
    /// True for a request that must not be sent twice.
    pub(crate) is_cautious: bool,
    /// True for a request that shares its connection with no other request.
    pub(crate) is_exclusive: bool,
    /// Length of the request's body.
    pub(crate) upload: UploadLength,
}

/// Request on its way to a connection.
pub(crate) struct H2Connecting {
    pool: Arc<MemberPool>,
    /// Bytes at the beginning of a new connection.
    first: Vec<u8>,
    /// Time since which the connection must have been opened.
    since: Option<Instant>,
    needs: H2ConnNeeds,
    /// The request, to which the descriptor of a new connection is accounted.
    user: ConnUser,
    state: ConnectingState,
    /// True after the first wait.
    has_waited: bool,
    /// True after the connection of another request could not be established or shared. The request then connects
    /// itself, so that each request meets the failure at most twice.
    connects_itself: bool,
}

enum ConnectingState {
    Choosing,
    /// An idle connection awaits a sign of life of the member.
    Probing(H2MemberConn, CoarseTimer),
    /// Another request establishes the connection.
    Waiting(Rc<PendingConn>),
    /// The request establishes a connection itself.
    Connecting(Box<MemberConnecting>, PendingGuard),
    /// SETTINGS of the member are awaited on the new connection.
    Greeting {
        awaited: GreetingGuard,
        pending: PendingGuard,
    },
}

/// Connection that awaits SETTINGS of the member. The connection does not count as idle meanwhile. No request
/// can find the connection before, so that the first request certainly has a stream.
struct GreetingGuard(H2MemberConn);

impl GreetingGuard {
    fn new(conn: H2MemberConn) -> GreetingGuard {
        conn.0.borrow_mut().awaits_greeting = true;
        GreetingGuard(conn)
    }

    /// Waits for SETTINGS of the member. Ready with a connection on which a request may begin.
    fn poll(&self, cx: &Context<'_>) -> Poll<io::Result<H2MemberConn>> {
        ready!(self.0.poll_greeted(cx))?;
        if !self.0.is_usable(None, UploadLength::None) {
            return Poll::Ready(Err(io::Error::other(NO_STREAMS)));
        }
        self.0.0.borrow_mut().awaits_greeting = false;
        Poll::Ready(Ok(self.0.clone()))
    }
}

impl Drop for GreetingGuard {
    /// Ends a connection if its first request went away meanwhile.
    fn drop(&mut self) {
        let mut state = self.0.0.borrow_mut();
        let is_abandoned = std::mem::take(&mut state.awaits_greeting);
        state.is_retired |= is_abandoned;
        state.wake_task();
    }
}

/// Entry of a pending connection; dropping the value ends the wait of the other requests.
struct PendingGuard {
    pool: Arc<MemberPool>,
    pending: Rc<PendingConn>,
}

impl PendingGuard {
    /// Records that the connection could not be established.
    fn fail(&self) {
        self.pending.has_failed.set(true);
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let pending = &self.pending;
        // The table may be gone at the end of the thread.
        let _ = MEMBERS.try_with(|_| {
            with_member(&self.pool, |member| {
                member.pending.retain(|it| !Rc::ptr_eq(it, pending));
            });
        });
        pending.is_over.set(true);
        pending.waiting.take().into_iter().for_each(Waker::wake);
    }
}

impl H2Connecting {
    /// Returns the way of a request to a connection of the member. With `since`, only to a connection opened
    /// since then. A new connection begins with the bytes `first`.
    pub(crate) fn new(
        pool: Arc<MemberPool>,
        first: Vec<u8>,
        since: Option<Instant>,
        needs: H2ConnNeeds,
        user: ConnUser,
    ) -> H2Connecting {
        H2Connecting {
            pool,
            first,
            since,
            needs,
            user,
            state: ConnectingState::Choosing,
            has_waited: false,
            connects_itself: false,
        }
    }

    /// Ready with a connection on which a request may begin. The request must begin before the next poll.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<H2MemberConn>> {
        loop {
            match &mut self.state {
                ConnectingState::Choosing => {
                    let Some(conn) = self.choose() else {
                        self.has_waited = true;
                        continue;
                    };
                    if !self.needs.is_cautious || !conn.may_be_stale() {
                        return Poll::Ready(Ok(conn));
                    }
                    let wait = Duration::from_millis(H2_MEMBER_PROBE_MILLISECONDS);
                    let deadline = tokio::time::Instant::now() + wait;
                    let timer = CoarseTimer::new(deadline, cx.waker());
                    self.state = ConnectingState::Probing(conn, timer);
                }
                ConnectingState::Probing(conn, timer) => {
                    if conn.poll_alive(cx).is_pending() {
                        if !timer.has_passed() {
                            return Poll::Pending;
                        }
                        conn.retire();
                    }
                    self.state = ConnectingState::Choosing;
                }
                ConnectingState::Waiting(pending) => {
                    if !pending.is_over.get() {
                        pending.waiting.borrow_mut().push(cx.waker().clone());
                        return Poll::Pending;
                    }
                    // A long upload may need a connection of its own.
                    let is_long = self.needs.upload == UploadLength::Long;
                    self.connects_itself |= pending.has_failed.get() || is_long;
                    self.state = ConnectingState::Choosing;
                }
                ConnectingState::Connecting(connecting, pending) => {
                    let connected = ready!(connecting.poll(cx));
                    let conn = connected.inspect_err(|_| pending.fail())?;
                    self.open(conn);
                }
                ConnectingState::Greeting { awaited, pending } => {
                    let greeted = ready!(awaited.poll(cx));
                    let conn = greeted.inspect_err(|_| pending.fail())?;
                    self.share(&conn);
                    // Other requests choose the connection after this request has begun.
                    self.state = ConnectingState::Choosing;
                    return Poll::Ready(Ok(conn));
                }
            }
        }
    }

    /// Returns true if the request had to wait for a new connection.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Returns a usable connection, or begins to wait.
    fn choose(&mut self) -> Option<H2MemberConn> {
        let is_exclusive = self.is_exclusive();
        let since = self.since;
        let connects_itself = self.connects_itself;
        let upload = self.needs.upload;
        let (usable, pending) = with_member(&self.pool, |member| {
            member
                .open
                .iter()
                .for_each(|conn| conn.retire_if_left(&self.pool));
            let usable = |conn: &&H2MemberConn| conn.is_usable(since, upload);
            let usable = member.open.iter().find(usable);
            let has_room =
                |pending: &&Rc<PendingConn>| pending.requests.get() < H2_MEMBER_STREAMS_MAX;
            let pending = member.pending.iter().find(has_room);
            let pending = pending.filter(|_| !connects_itself);
            (usable.cloned(), pending.cloned())
        });
        if let Some(conn) = usable.filter(|_| !is_exclusive) {
            return Some(conn);
        }
        self.state = match pending.filter(|_| !is_exclusive) {
            Some(pending) => {
                pending.requests.set(pending.requests.get() + 1);
                ConnectingState::Waiting(pending)
            }
            None => self.connect(is_exclusive),
        };
        None
    }

    /// Begins to establish a connection.
    fn connect(&mut self, is_exclusive: bool) -> ConnectingState {
        let pool = Arc::clone(&self.pool);
        let timeout = pool.settings.connect_timeout;
        let connecting = MemberConnecting::new(pool, timeout, std::mem::take(&mut self.first));
        let connecting = Box::new(connecting.for_request(self.user));
        let pending = Rc::new(PendingConn::default());
        pending.requests.set(1);
        if !is_exclusive {
            with_member(&self.pool, |member| {
                member.pending.push(Rc::clone(&pending));
            });
        }
        let pool = Arc::clone(&self.pool);
        ConnectingState::Connecting(connecting, PendingGuard { pool, pending })
    }

    /// Starts the task of an established connection.
    fn open(&mut self, mut conn: MemberConn) {
        // The windows of HTTP/2 bound the bytes that the member sends ahead.
        conn.widen(MemberWindow::Unbounded);
        let shared = H2MemberConn::new(self.is_exclusive(), *conn.origin(), conn.usage());
        let awaited = GreetingGuard::new(shared.clone());
        spawn_local(H2Driver::new(conn, shared, Arc::clone(&self.pool)));
        let before = std::mem::replace(&mut self.state, ConnectingState::Choosing);
        if let ConnectingState::Connecting(_, pending) = before {
            self.state = ConnectingState::Greeting { awaited, pending };
        }
    }

    /// Lets other requests use a connection, unless the connection serves a single request.
    fn share(&self, conn: &H2MemberConn) {
        if !self.is_exclusive() {
            with_member(&self.pool, |member| member.open.push(conn.clone()));
        }
    }

    /// Returns true if the connection serves this request alone: the request needs such a connection, or each
    /// connection belongs to one client by its PROXY header.
    fn is_exclusive(&self) -> bool {
        self.needs.is_exclusive || self.pool.settings.send_proxy_header.is_some()
    }
}

const NO_STREAMS: &str = "the member accepts no request on a new HTTP/2 connection";

/// Calls `change` with the connections of the worker to a member. Ended connections are removed before.
fn with_member<T>(pool: &Arc<MemberPool>, change: impl FnOnce(&mut WorkerMember) -> T) -> T {
    MEMBERS.with_borrow_mut(|members| {
        let is_same = |member: &WorkerMember| std::ptr::eq(member.pool.as_ptr(), Arc::as_ptr(pool));
        let at = match members.iter().position(is_same) {
            Some(at) => at,
            None => {
                members.retain(|member| member.pool.strong_count() > 0);
                members.push(WorkerMember {
                    pool: Arc::downgrade(pool),
                    open: Vec::new(),
                    pending: Vec::new(),
                });
                members.len() - 1
            }
        };
        let member = &mut members[at];
        member.open.retain(|conn| !conn.has_ended());
        change(member)
    })
}
