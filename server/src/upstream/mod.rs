//! Servers behind this one that speak FastCGI or SCGI: where they are, and the connections to them.
//!
//! A connection that is kept pins a process of most backends (php-fpm's among them), so none is kept
//! unless the operator says how many may be. Then those are all that there are, for all workers
//! together: who comes next waits for one of them, and gets it as it is. Where nothing is said, a
//! connection to a socket in the file system is passed on: to who waits for one, or comes before a few
//! milliseconds have gone, and for a twentieth of a second in all; so a busy backend is spared most of
//! the making, and no process of it is anybody's.

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

/// Where a backend listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackendAddress {
    /// A socket in the file system.
    Unix(PathBuf),
    /// TCP.
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

/// The ledger of backends, each once, over all Worlds.
#[derive(Default)]
pub struct Backends {
    all: Mutex<Vec<(BackendAddress, Weak<Backend>)>>,
    refusals: Arc<RefusalCounters>,
}

impl Backends {
    /// Without any. What clients are refused for their shares is counted in `refusals`.
    pub fn new(refusals: &Arc<RefusalCounters>) -> Backends {
        Backends {
            all: Mutex::default(),
            refusals: Arc::clone(refusals),
        }
    }

    /// The one at this address. One that is new does so with its connections; one that isn't goes on as
    /// it does until [`Backend::set_reuse_policy`].
    pub fn at(&self, address: &BackendAddress, keep: ReusePolicy) -> Arc<Backend> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, backend)| backend.strong_count() > 0);
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
        let backend = Arc::new(Backend {
            address: address.clone(),
            slots: Arc::new(slots),
            connections: Mutex::new(ConnPool {
                keep,
                idle: Vec::new(),
                backlog: HandoverState::new(),
                is_swept: false,
            }),
        });
        all.push((address.clone(), Arc::downgrade(&backend)));
        backend
    }
}

/// What becomes of a connection when its call is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReusePolicy {
    /// It is closed.
    Never,
    /// Who waits gets it, or who comes in a moment.
    Handover,
    /// It stays, and there are no more than so many.
    UpTo(usize),
}

impl ReusePolicy {
    /// As the configuration says it, where 0 is none and nothing is [`ReusePolicy::Handover`].
    pub fn from_config(said: Option<usize>) -> ReusePolicy {
        match said {
            None => ReusePolicy::Handover,
            Some(0) => ReusePolicy::Never,
            Some(max) => ReusePolicy::UpTo(max),
        }
    }

    /// May a request that came while it was this have a connection that was left by that?
    fn goes_with(self, other: ReusePolicy) -> bool {
        match (self, other) {
            (ReusePolicy::Handover, ReusePolicy::Handover)
            | (ReusePolicy::UpTo(_), ReusePolicy::UpTo(_)) => true,
            (ReusePolicy::Handover | ReusePolicy::UpTo(_) | ReusePolicy::Never, _) => false,
        }
    }

    /// So many there may be at a time.
    fn connections_max(self) -> usize {
        match self {
            ReusePolicy::Never | ReusePolicy::Handover => BACKEND_CONNECTIONS_MAX,
            ReusePolicy::UpTo(max) => max,
        }
    }
}

/// One backend.
pub struct Backend {
    /// Where it is.
    pub address: BackendAddress,
    /// A place for each connection.
    slots: Arc<AdmissionControl>,
    connections: Mutex<ConnPool>,
}

struct ConnPool {
    keep: ReusePolicy,
    /// Those that wait for the next call; the one that was used last is on top.
    idle: Vec<PooledConn>,
    backlog: HandoverState,
    /// Somebody looks after those that are passed on.
    is_swept: bool,
}

struct PooledConn {
    kept: IdleConn,
    since: Instant,
}

/// So old a connection may be that is passed on.
const AGE_MAX: Duration = Duration::from_millis(BACKEND_HANDOVER_AGE_MILLISECONDS_MAX);
const WAIT: Duration = Duration::from_millis(BACKEND_STALLED_MILLISECONDS);

impl Backend {
    /// From now on so with connections. What is at work stays so.
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

    /// Takes the place of a connection for a call of `client`, waiting for it in a queue of at most
    /// `queue_max`; that is longer by the places that are missing for now.
    pub fn enter(
        &self,
        client: ClientNetwork,
        queue_max: usize,
    ) -> impl Future<Output = Result<CallSlot, AdmissionRefused>> + use<> {
        let patience = Duration::from_secs(CALL_QUEUE_SECONDS);
        self.slots.enter(client, queue_max, patience)
    }

    /// What becomes of a request's connection when it is answered; it may be one that can be asked
    /// twice.
    pub fn reuse_policy_for(&self, may_retry: bool) -> ReusePolicy {
        let connections = self.lock();
        // What is read at the other end of TCP can't be known.
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

    /// A connection that nobody uses, for a request of which [`Backend::reuse_policy_for`] said this. One that
    /// was kept is looked at whether it still is one; with one that was passed on that shows when the
    /// request is said, which may then be said again.
    pub fn take_idle(&self, keep: ReusePolicy) -> Option<IdleConn> {
        let mut connections = self.lock();
        let mut top = connections.idle.pop()?;
        if !keep.goes_with(connections.keep) {
            // It can't do with this one, whose process may be wanted for the one that it makes.
            drop(connections);
            drop(top);
            return None;
        }
        let mut closed = Vec::new();
        if keep != ReusePolicy::Handover && !top.kept.is_open() {
            // It was started anew, or doesn't want so many: then others have ended too, and a
            // connection that has isn't held open from this side.
            closed.push(top);
            let gone = |idle: &mut PooledConn| !idle.kept.is_open();
            closed.extend(connections.idle.extract_if(.., gone));
            top = connections.idle.pop()?;
        }
        drop(connections);
        Some(top.kept)
    }

    /// A new connection, if there is one without waiting: to a socket in the file system there mostly
    /// is.
    pub fn connect_now(&self) -> Option<IdleConn> {
        if !matches!(self.address, BackendAddress::Unix(_)) {
            return None;
        }
        let (socket, _) = self.begin_connecting().ok()?;
        Some(IdleConn::new(socket, Instant::now()))
    }

    /// A request was said on this connection, which may be passed on later.
    pub fn begins(self: &Arc<Self>, link: &Conn) {
        let mut connections = self.lock();
        let is_again = link.has_answered();
        connections
            .backlog
            .begins(link.fd(), is_again, Instant::now());
        self.look_after(connections, is_again);
    }

    /// May the request on this connection, which has ended, be one that nobody has read?
    pub fn is_pending(&self, link: &Conn) -> bool {
        self.lock().backlog.is_pending(link.fd())
    }

    /// Keeps a connection on which nothing is under way, if it is to be kept, and was when its request
    /// came: others that came then may wait in the backend's queue for its process.
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

    /// Sees to it that somebody looks after what is passed on, if that is to be.
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

    /// It answered another request of a connection than the last: it can't have connections that stay.
    pub fn mark_unfit_for_reuse(&self) {
        self.lock().backlog.be_shy_for_long(Instant::now());
        self.slots.widen();
    }

    /// A connection that was to stay is none any more.
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

    /// A connection, and whether it is there yet.
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

    /// A new connection. A backend that is just being started anew is waited for, a moment.
    /// Errors: `WouldBlock` means that its queue is full.
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

/// Looks after the connections that are passed on, while there are any.
struct HandoverSweeper {
    backend: Arc<Backend>,
    /// Nothing is left to look after.
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
            // A backend that answers slowly has a queue of its own for those that wait.
            if std::mem::replace(&mut answers, connections.backlog.answers()) != answers {
                answered_at = now;
            }
            if now.duration_since(answered_at) >= WAIT {
                backend.slots.widen();
            }
            let is_empty = connections.idle.is_empty() && backend.slots.missing() == 0;
            let is_over = !has_pending && (is_empty || connections.keep != ReusePolicy::Handover);
            // Told under the lock: whoever comes next begins anew.
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
    /// It may end with its worker: then the next who says something on a connection looks on, and until
    /// then nobody depends on that.
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

/// May it be otherwise in a moment?
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), ConnectionRefused | NotFound | WouldBlock)
}

/// Runs on by itself, on this worker, for at most so long.
pub fn spawn_local_with_timeout(work: impl Future<Output = ()> + 'static, patience: Duration) {
    spawn_local(async move {
        let _ = tokio::time::timeout(patience, work).await;
    });
}
