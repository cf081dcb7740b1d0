//! Pools of connections to FastCGI and SCGI backends.
//!
//! An idle connection occupies a process of most backends, php-fpm among them. By default no connection
//! stays open for longer than a few milliseconds without a call. The operator may configure a number of
//! kept connections. The number then bounds the connections of all workers together: a further call waits
//! for a free connection and reuses the connection unchanged.
//!
//! Without a configured number, a connection to a Unix socket is handed over to a waiting call, or to a
//! call arriving within a few milliseconds, for at most 50 ms in all. The handover spares a busy backend
//! most of the connection setup, and no process of the backend stays reserved for the server.

mod handover;
mod conn;
#[cfg(test)]
mod tests;

pub use crate::upstream::conn::{Conn, IdleConn};

use crate::base::admission::{AdmissionControl, AdmissionRefused, CallSlot, WorkStart};
use crate::base::fair_share::{ClientNetwork, RefusalCounters, SharedLimit};
use crate::base::task::spawn_local;
use crate::limits::{
    BACKEND_CONNECT_SECONDS, BACKEND_CONNECT_TRIES, BACKEND_CONNECTIONS_MAX,
    BACKEND_HANDOVER_AGE_MILLISECONDS_MAX, BACKEND_RETRY_MILLISECONDS,
    BACKEND_STALLED_MILLISECONDS, CALL_QUEUE_SECONDS,
};
use crate::upstream::handover::{HandoverState, IDLE_MAX};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Address of a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackendAddress {
    /// A Unix socket with its path in the file system.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            BackendAddress::Tcp(address) => address.fmt(f),
        }
    }
}

/// Registry of all backends in all Worlds, with one entry per address.
#[derive(Default)]
pub struct Backends {
    all: Mutex<Vec<(BackendAddress, Weak<Backend>)>>,
    refusals: Arc<RefusalCounters>,
}

impl Backends {
    /// Creates an empty registry. Requests refused because a client exceeds its share are counted in
    /// `refusals`.
    pub fn new(refusals: &Arc<RefusalCounters>) -> Backends {
        Backends {
            all: Mutex::default(),
            refusals: Arc::clone(refusals),
        }
    }

    /// Returns the registered backend at `address`, else a new backend with the policy `keep`. A registered
    /// backend keeps its policy until [`Backend::set_reuse_policy`] is called. The registry stays as it is:
    /// [`Backends::register`] adds a new backend.
    pub fn find_or_new(&self, address: &BackendAddress, keep: ReusePolicy) -> Arc<Backend> {
        let all = self.lock();
        let known = all.iter().find(|(its, _)| its == address);
        if let Some(backend) = known.and_then(|(_, backend)| backend.upgrade()) {
            return backend;
        }
        let max = keep.connections_max();
        let slots = AdmissionControl::new(
            max,
            WorkStart::WithAnswer,
            SharedLimit::Calls,
            &self.refusals,
        );
        Arc::new(Backend {
            address: address.clone(),
            slots: Arc::new(slots),
            connections: Mutex::new(ConnPool {
                keep,
                idle: Vec::new(),
                backlog: HandoverState::new(),
                is_swept: false,
            }),
        })
    }

    /// Adds a backend of [`Backends::find_or_new`] unless registered. The caller registers a backend before
    /// the next search for its address, so that the address never has two backends.
    pub fn register(&self, backend: &Arc<Backend>) {
        let mut all = self.lock();
        all.retain(|(_, known)| known.strong_count() > 0);
        match all.iter().find(|(its, _)| *its == backend.address) {
            None => all.push((backend.address.clone(), Arc::downgrade(backend))),
            Some((_, known)) => debug_assert!(std::ptr::eq(known.as_ptr(), &raw const **backend)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(BackendAddress, Weak<Backend>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Policy for a connection after the end of its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReusePolicy {
    /// The connection is closed.
    Never,
    /// The connection is handed over to a waiting call, or to a call arriving within a few milliseconds.
    Handover,
    /// The connection stays open. The number bounds all connections to the backend.
    UpTo(usize),
}

impl ReusePolicy {
    /// Converts the configured number of connections: 0 means [`ReusePolicy::Never`], and no number means
    /// [`ReusePolicy::Handover`].
    pub fn from_config(said: Option<usize>) -> ReusePolicy {
        match said {
            None => ReusePolicy::Handover,
            Some(0) => ReusePolicy::Never,
            Some(max) => ReusePolicy::UpTo(max),
        }
    }

    /// Returns true if a request that arrived under the policy `self` may use a connection left under the
    /// policy `other`.
    fn goes_with(self, other: ReusePolicy) -> bool {
        match (self, other) {
            (ReusePolicy::Handover, ReusePolicy::Handover)
            | (ReusePolicy::UpTo(_), ReusePolicy::UpTo(_)) => true,
            (ReusePolicy::Handover | ReusePolicy::UpTo(_) | ReusePolicy::Never, _) => false,
        }
    }

    /// Returns the maximum number of simultaneous connections.
    fn connections_max(self) -> usize {
        match self {
            ReusePolicy::Never | ReusePolicy::Handover => BACKEND_CONNECTIONS_MAX,
            ReusePolicy::UpTo(max) => max,
        }
    }
}

/// A backend with its connections.
pub struct Backend {
    /// The address of the backend.
    pub address: BackendAddress,
    /// Slots for connections; each open connection holds a slot.
    slots: Arc<AdmissionControl>,
    connections: Mutex<ConnPool>,
}

struct ConnPool {
    keep: ReusePolicy,
    /// Idle connections; the most recently used connection is the last element.
    idle: Vec<PooledConn>,
    backlog: HandoverState,
    /// True while a [`HandoverSweeper`] watches the handed-over connections.
    is_swept: bool,
}

struct PooledConn {
    kept: IdleConn,
    since: Instant,
}

/// Maximum age of a connection to be handed over.
const AGE_MAX: Duration = Duration::from_millis(BACKEND_HANDOVER_AGE_MILLISECONDS_MAX);
const WAIT: Duration = Duration::from_millis(BACKEND_STALLED_MILLISECONDS);

impl Backend {
    /// Changes the policy for connections. Calls in progress are not affected. Excess idle connections are
    /// closed.
    pub fn set_reuse_policy(&self, keep: ReusePolicy) {
        let mut connections = self.lock();
        if std::mem::replace(&mut connections.keep, keep) == keep {
            return;
        }
        self.slots.resize(keep.connections_max());
        let excess = match keep {
            ReusePolicy::UpTo(max) => connections.idle.len().saturating_sub(max),
            ReusePolicy::Never | ReusePolicy::Handover => connections.idle.len(),
        };
        let closed: Vec<PooledConn> = connections.idle.drain(..excess).collect();
        drop(connections);
        drop(closed);
    }

    /// Waits for a connection slot for a call of `client`, in a queue of at most `queue_max` calls. While
    /// the number of slots is temporarily reduced, the queue is longer by the number of missing slots.
    pub fn enter(
        &self,
        client: ClientNetwork,
        queue_max: usize,
    ) -> impl Future<Output = Result<CallSlot, AdmissionRefused>> + use<> {
        let patience = Duration::from_secs(CALL_QUEUE_SECONDS);
        self.slots.enter(client, queue_max, patience)
    }

    /// Returns the policy for the connection of a new request. `may_retry` means that the request may be
    /// sent twice.
    pub fn reuse_policy_for(&self, may_retry: bool) -> ReusePolicy {
        let connections = self.lock();
        // For TCP the kernel cannot report whether the peer has read the request.
        let can_pass = may_retry && matches!(self.address, BackendAddress::Unix(_));
        let stays = match connections.keep {
            ReusePolicy::Never => false,
            ReusePolicy::Handover => can_pass && connections.backlog.may_pass(Instant::now()),
            ReusePolicy::UpTo(_) => !connections.backlog.is_shy(Instant::now()),
        };
        match stays {
            true => connections.keep,
            false => ReusePolicy::Never,
        }
    }

    /// Takes an idle connection for a request with the policy `keep`, as returned by
    /// [`Backend::reuse_policy_for`]. A kept connection is first checked for being open. A closed
    /// handed-over connection shows only when the request is sent; the request may then be sent again.
    pub fn take_idle(&self, keep: ReusePolicy) -> Option<IdleConn> {
        let mut connections = self.lock();
        let mut top = connections.idle.pop()?;
        if !keep.goes_with(connections.keep) {
            // The request cannot use the idle connection. The connection is closed, because the new
            // connection of the request may need the process of the backend.
            drop(connections);
            drop(top);
            return None;
        }
        let mut closed = Vec::new();
        if keep != ReusePolicy::Handover && !top.kept.is_open() {
            // The backend restarted, or closes surplus connections. Further idle connections are then
            // closed as well, and are removed here so that no closed connection stays open on the server's
            // side.
            closed.push(top);
            let gone = |idle: &mut PooledConn| !idle.kept.is_open();
            closed.extend(connections.idle.extract_if(.., gone));
            top = connections.idle.pop()?;
        }
        drop(connections);
        Some(top.kept)
    }

    /// Opens a connection without waiting, if possible. Connecting to a Unix socket mostly succeeds at
    /// once.
    pub fn connect_now(&self) -> Option<IdleConn> {
        if !matches!(self.address, BackendAddress::Unix(_)) {
            return None;
        }
        let (socket, _) = self.begin_connecting().ok()?;
        Some(IdleConn::new(socket, Instant::now()))
    }

    /// Records a request sent on a connection that may be handed over later.
    pub fn begins(self: &Arc<Self>, link: &Conn) {
        let mut connections = self.lock();
        let is_again = link.has_answered();
        connections
            .backlog
            .begins(link.fd(), is_again, Instant::now());
        self.look_after(connections, is_again);
    }

    /// Returns true if the backend may not have read the request on the ended connection.
    pub fn is_pending(&self, link: &Conn) -> bool {
        self.lock().backlog.is_pending(link.fd())
    }

    /// Returns a connection without a call in progress to the pool, if the current policy and the policy
    /// `keep` at the arrival of the request allow reuse. After a change of policy, other calls may wait for
    /// the connection's process in the queue of the backend.
    pub fn put_idle(self: &Arc<Self>, link: Conn, keep: ReusePolicy) {
        let kept = link.answered();
        let now = Instant::now();
        let mut connections = self.lock();
        let stays = match connections.keep {
            now_is if !keep.goes_with(now_is) => false,
            ReusePolicy::Never => false,
            ReusePolicy::UpTo(max) => connections.idle.len() < max,
            ReusePolicy::Handover => self.may_pass(&mut connections, &kept, now),
        };
        let closed = match stays {
            true => {
                connections.idle.push(PooledConn { kept, since: now });
                None
            }
            false => Some(kept),
        };
        let is_to_be = match connections.keep {
            ReusePolicy::Handover => stays || self.slots.missing() > 0,
            ReusePolicy::Never | ReusePolicy::UpTo(_) => false,
        };
        self.look_after(connections, is_to_be);
        drop(closed);
    }

    /// Starts a [`HandoverSweeper`] if `is_to_be` is true and no sweeper runs.
    fn look_after(self: &Arc<Self>, mut connections: MutexGuard<'_, ConnPool>, is_to_be: bool) {
        let is_new = is_to_be && !std::mem::replace(&mut connections.is_swept, true);
        drop(connections);
        if is_new {
            let sweeper = HandoverSweeper {
                backend: Arc::clone(self),
                is_done: false,
            };
            spawn_local(sweeper.sweep());
        }
    }

    fn may_pass(&self, connections: &mut ConnPool, kept: &IdleConn, now: Instant) -> bool {
        if kept.past.answers > 1 {
            connections.backlog.went_well();
        }
        let is_young = now.duration_since(kept.past.born) < AGE_MAX;
        connections.backlog.answered(kept.fd(), now, &self.slots) && is_young
    }

    /// Excludes the backend from reuse for a long pause, after the backend answered a request other than
    /// the last request on a connection.
    pub fn mark_unfit_for_reuse(&self) {
        self.lock().backlog.be_shy_for_long(Instant::now());
        self.slots.widen();
    }

    /// Records that the backend closed a connection meant for reuse.
    pub fn lost(&self) {
        let mut connections = self.lock();
        let is_brief = connections.keep == ReusePolicy::Handover;
        if is_brief && connections.backlog.spoiled(Instant::now()) {
            self.slots.widen();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ConnPool> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts connecting; returns the socket, and true if the connection is established.
    fn begin_connecting(&self) -> io::Result<(OwnedFd, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = SocketType::STREAM;
        let (socket, connected) = match &self.address {
            BackendAddress::Unix(path) => {
                let address = SocketAddrUnix::new(path.as_path())?;
                let socket = socket_with(AddressFamily::UNIX, stream, flags, None)?;
                let connected = connect(&socket, &address);
                (socket, connected)
            }
            BackendAddress::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let socket = socket_with(family, stream, flags, None)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                let connected = connect(&socket, address);
                (socket, connected)
            }
        };
        match connected {
            Ok(()) => Ok((socket, true)),
            Err(Errno::INPROGRESS) => Ok((socket, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a connection. While the backend is restarting, the call waits briefly and tries again. Errors:
    /// `WouldBlock` means that the backend's queue is full.
    pub async fn connect(&self) -> io::Result<Conn> {
        let patience = Duration::from_secs(BACKEND_CONNECT_SECONDS);
        let mut tries = 0;
        loop {
            let connected = tokio::time::timeout(patience, self.connect_once());
            let connected = connected
                .await
                .unwrap_or(Err(io::ErrorKind::TimedOut.into()));
            tries += 1;
            match connected {
                Err(error) if tries < BACKEND_CONNECT_TRIES && is_passing(&error) => {
                    tokio::time::sleep(Duration::from_millis(BACKEND_RETRY_MILLISECONDS)).await;
                }
                other => return other,
            }
        }
    }

    async fn connect_once(&self) -> io::Result<Conn> {
        let (socket, is_there) = self.begin_connecting()?;
        let link = IdleConn::new(socket, Instant::now()).given(false)?;
        match is_there {
            true => Ok(link),
            false => link.made().await,
        }
    }
}

/// Task that watches the handed-over connections until no connection is left.
struct HandoverSweeper {
    backend: Arc<Backend>,
    /// True after the sweep has ended without connections left.
    is_done: bool,
}

impl HandoverSweeper {
    async fn sweep(mut self) {
        let backend = Arc::clone(&self.backend);
        let (mut answers, mut answered_at) = (0, Instant::now());
        loop {
            tokio::time::sleep(IDLE_MAX).await;
            let now = Instant::now();
            let mut connections = backend.lock();
            let is_old = |idle: &mut PooledConn| now.duration_since(idle.since) >= IDLE_MAX;
            let closed: Vec<PooledConn> = match connections.keep {
                ReusePolicy::Handover => connections.idle.extract_if(.., is_old).collect(),
                ReusePolicy::Never | ReusePolicy::UpTo(_) => Vec::new(),
            };
            let has_pending = connections.backlog.look_after(now, &backend.slots);
            // While the backend answers slowly, waiting calls use the backend's own queue.
            if std::mem::replace(&mut answers, connections.backlog.answers()) != answers {
                answered_at = now;
            }
            if now.duration_since(answered_at) >= WAIT {
                backend.slots.widen();
            }
            let is_empty = connections.idle.is_empty() && backend.slots.missing() == 0;
            let is_over = !has_pending && (is_empty || connections.keep != ReusePolicy::Handover);
            // Set under the lock: the next request starts a new sweeper.
            connections.is_swept = !is_over;
            drop(connections);
            drop(closed);
            if is_over {
                self.is_done = true;
                return;
            }
        }
    }
}

impl Drop for HandoverSweeper {
    /// Cleans up after a sweeper that ends early with its worker. Idle connections are closed and all slots
    /// are restored, so no call depends on a sweeper. The next request sent starts a new sweeper.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut connections = self.backend.lock();
        connections.is_swept = false;
        let closed = match connections.keep {
            ReusePolicy::Handover => std::mem::take(&mut connections.idle),
            ReusePolicy::Never | ReusePolicy::UpTo(_) => Vec::new(),
        };
        self.backend.slots.widen();
        drop(connections);
        drop(closed);
    }
}

/// Returns true for an error of a backend that may accept a connection shortly afterwards.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), ConnectionRefused | NotFound | WouldBlock)
}

/// Runs `work` as a task of the current worker for at most `patience`.
pub fn spawn_local_with_timeout(work: impl Future<Output = ()> + 'static, patience: Duration) {
    spawn_local(async move {
        let _ = tokio::time::timeout(patience, work).await;
    });
}
