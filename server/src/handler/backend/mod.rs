//! Servers behind this one that speak FastCGI or SCGI: where they are, and the connections to them.
//!
//! A connection that is kept pins a process of most backends (php-fpm's among them), so none is kept
//! unless the operator says how many may be. Then those are all that there are, for all workers
//! together: who comes next waits for one of them, and gets it as it is. Where nothing is said, a
//! connection to a socket in the file system is passed on: to who waits for one, or comes before a few
//! milliseconds have gone, and for a twentieth of a second in all; so a busy backend is spared most of
//! the making, and no process of it is anybody's.

mod backlog;
mod link;
#[cfg(test)]
mod tests;

pub use link::{Kept, Link};

use super::slots::{Busy, Slot, Slots};
use crate::limits::{
    BACKEND_CONNECT_SECONDS, BACKEND_CONNECT_TRIES, BACKEND_CONNECTIONS_MAX,
    BACKEND_IDLE_MILLISECONDS, BACKEND_PASSED_MILLISECONDS, BACKEND_RETRY_MILLISECONDS,
    BACKEND_UNHEARD_MILLISECONDS, BACKEND_WAIT_MILLISECONDS, CALL_QUEUE_SECONDS,
};
use backlog::Backlog;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with, sockopt,
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
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

/// The ledger of backends, each once, over all Worlds.
#[derive(Default)]
pub struct Backends(Mutex<Vec<(Address, Weak<Backend>)>>);

impl Backends {
    /// The one at this address. One that is new does so with its connections; one that isn't goes on as
    /// it does until [`Backend::keeps_from_now_on`].
    pub fn at(&self, address: &Address, keep: Keep) -> Arc<Backend> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, backend)| backend.strong_count() > 0);
        let known = all.iter().find(|(its, _)| its == address);
        if let Some(backend) = known.and_then(|(_, backend)| backend.upgrade()) {
            return backend;
        }
        let backend = Arc::new(Backend {
            address: address.clone(),
            slots: Arc::new(Slots::new(keep.connections_max())),
            connections: Mutex::new(Connections {
                keep,
                idle: Vec::new(),
                backlog: Backlog::new(),
                is_swept: false,
            }),
        });
        all.push((address.clone(), Arc::downgrade(&backend)));
        backend
    }
}

/// What becomes of a connection when its call is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// It is closed.
    Never,
    /// Who waits gets it, or who comes in a moment.
    Briefly,
    /// It stays, and there are no more than so many.
    UpTo(usize),
}

impl Keep {
    /// As the configuration says it, where 0 is none and nothing is [`Keep::Briefly`].
    pub fn of(said: Option<usize>) -> Keep {
        match said {
            None => Keep::Briefly,
            Some(0) => Keep::Never,
            Some(max) => Keep::UpTo(max),
        }
    }

    /// So many there may be at a time.
    fn connections_max(self) -> usize {
        match self {
            Keep::Never | Keep::Briefly => BACKEND_CONNECTIONS_MAX,
            Keep::UpTo(max) => max,
        }
    }
}

/// One backend.
pub struct Backend {
    /// Where it is.
    pub address: Address,
    /// A place for each connection.
    slots: Arc<Slots>,
    connections: Mutex<Connections>,
}

struct Connections {
    keep: Keep,
    /// Those that wait for the next call; the one that was used last is on top.
    idle: Vec<Idle>,
    backlog: Backlog,
    /// Somebody looks after those that are passed on.
    is_swept: bool,
}

struct Idle {
    kept: Kept,
    since: Instant,
}

const IDLE: Duration = Duration::from_millis(BACKEND_IDLE_MILLISECONDS);
const PASSED: Duration = Duration::from_millis(BACKEND_PASSED_MILLISECONDS);
const UNHEARD: Duration = Duration::from_millis(BACKEND_UNHEARD_MILLISECONDS);
const WAIT: Duration = Duration::from_millis(BACKEND_WAIT_MILLISECONDS);

impl Backend {
    /// From now on so with connections. What is at work stays so.
    pub fn keeps_from_now_on(&self, keep: Keep) {
        let mut connections = self.lock();
        if std::mem::replace(&mut connections.keep, keep) == keep {
            return;
        }
        self.slots.resize(keep.connections_max());
        let excess = match keep {
            Keep::UpTo(max) => connections.idle.len().saturating_sub(max),
            Keep::Never | Keep::Briefly => connections.idle.len(),
        };
        let closed: Vec<Idle> = connections.idle.drain(..excess).collect();
        drop(connections);
        drop(closed);
    }

    /// Takes the place of a connection, waiting for it in a queue of at most `queue_max`, and those
    /// beside it that have no connection of their own because there are fewer for now.
    pub fn enter(&self, queue_max: usize) -> impl Future<Output = Result<Slot, Busy>> + use<> {
        let patience = Duration::from_secs(CALL_QUEUE_SECONDS);
        let queue_max = queue_max + self.slots.missing();
        self.slots.enter(queue_max, patience)
    }

    /// What becomes of a request's connection when it is answered; it may be one that can be asked
    /// twice.
    pub fn keeps_after(&self, may_retry: bool) -> Keep {
        let mut connections = self.lock();
        // What is read at the other end of TCP can't be known.
        let is_local = matches!(self.address, Address::Unix(_));
        let may_pass = may_retry && is_local && connections.backlog.is_open();
        match connections.keep {
            Keep::Briefly if !may_pass => Keep::Never,
            keep => keep,
        }
    }

    /// A kept connection, that still is one but for a very short time. One that is passed on isn't
    /// looked at: what is said on it may be said again.
    pub fn idle(&self) -> Option<Kept> {
        let mut connections = self.lock();
        let is_brief = connections.keep == Keep::Briefly;
        if is_brief {
            let top = connections.idle.pop()?;
            connections
                .backlog
                .asks(top.kept.fd(), true, Instant::now());
            return Some(top.kept);
        }
        let mut top = connections.idle.pop()?;
        let mut closed = Vec::new();
        if !top.kept.is_open() {
            // It was started anew, or doesn't want so many: then others have ended too, and a
            // connection that has isn't held open from this side.
            closed.push(top);
            let gone = |idle: &mut Idle| !idle.kept.is_open();
            closed.extend(connections.idle.extract_if(.., gone));
            top = connections.idle.pop()?;
        }
        drop(connections);
        Some(top.kept)
    }

    /// Closes a connection that nobody uses: somebody is about to make one that can't do with it.
    pub fn make_room(&self) {
        let closed = self.lock().idle.pop();
        drop(closed);
    }

    /// A new connection, if there is one without waiting: to a socket in the file system there mostly
    /// is. It may be passed on later.
    pub fn connect_now(&self, is_to_stay: bool) -> Option<Kept> {
        if !matches!(self.address, Address::Unix(_)) {
            return None;
        }
        let (socket, _) = self.begin_connecting().ok()?;
        let now = Instant::now();
        let new = Kept::new(socket, now);
        if is_to_stay {
            let mut connections = self.lock();
            if connections.keep == Keep::Briefly {
                connections.backlog.asks(new.fd(), false, now);
            }
        }
        Some(new)
    }

    /// Keeps a connection on which nothing is under way, if it is to be kept.
    pub fn keep(self: &Arc<Self>, link: Link) {
        let kept = link.answered();
        let now = Instant::now();
        let mut connections = self.lock();
        let stays = match connections.keep {
            Keep::Never => false,
            Keep::UpTo(max) => connections.idle.len() < max,
            Keep::Briefly => self.may_pass(&mut connections, &kept, now),
        };
        let closed = match stays {
            true => {
                connections.idle.push(Idle { kept, since: now });
                None
            }
            false => Some(kept),
        };
        let is_cared_for = match connections.keep {
            Keep::Briefly => stays || self.slots.missing() > 0,
            Keep::Never | Keep::UpTo(_) => false,
        };
        let is_new = is_cared_for && !std::mem::replace(&mut connections.is_swept, true);
        drop(connections);
        drop(closed);
        if is_new {
            let sweeper = Sweeper {
                backend: Arc::clone(self),
                is_done: false,
            };
            drop(tokio::task::spawn_local(sweeper.sweep()));
        }
    }

    fn may_pass(&self, connections: &mut Connections, kept: &Kept, now: Instant) -> bool {
        if kept.past.answers > 1 {
            connections.backlog.went_well();
        }
        let is_young = now.duration_since(kept.past.born) < PASSED;
        connections.backlog.answered(kept.fd(), now, &self.slots) && is_young
    }

    /// A connection was closed that was to stay.
    pub fn lost(&self) {
        let mut connections = self.lock();
        if connections.keep == Keep::Briefly {
            self.is_spoiled(&mut connections);
        }
    }

    fn is_spoiled(&self, connections: &mut Connections) {
        if connections.backlog.spoiled() {
            self.slots.widen();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection, and whether it is there yet.
    fn begin_connecting(&self) -> io::Result<(OwnedFd, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = SocketType::STREAM;
        let (socket, connected) = match &self.address {
            Address::Unix(path) => {
                let address = SocketAddrUnix::new(path.as_path())?;
                let socket = socket_with(AddressFamily::UNIX, stream, flags, None)?;
                let connected = connect(&socket, &address);
                (socket, connected)
            }
            Address::Tcp(address) => {
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
    pub async fn connect(&self) -> io::Result<Link> {
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

    async fn connect_once(&self) -> io::Result<Link> {
        let (socket, is_there) = self.begin_connecting()?;
        let link = Kept::new(socket, Instant::now()).given(false)?;
        match is_there {
            true => Ok(link),
            false => link.made().await,
        }
    }
}

/// Looks after the connections that are passed on, while there are any.
struct Sweeper {
    backend: Arc<Backend>,
    is_done: bool,
}

impl Sweeper {
    async fn sweep(mut self) {
        let backend = Arc::clone(&self.backend);
        let (mut answers, mut answered_at) = (0, Instant::now());
        loop {
            tokio::time::sleep(IDLE).await;
            let now = Instant::now();
            let mut connections = backend.lock();
            let is_old = |idle: &mut Idle| now.duration_since(idle.since) >= IDLE;
            let closed: Vec<Idle> = match connections.keep {
                Keep::Briefly => connections.idle.extract_if(.., is_old).collect(),
                Keep::Never | Keep::UpTo(_) => Vec::new(),
            };
            let passed = connections.backlog.look_after(now, UNHEARD);
            // A backend that answers slowly has a queue of its own for those that wait.
            if std::mem::replace(&mut answers, connections.backlog.answers()) != answers {
                answered_at = now;
            }
            let is_slow = now.duration_since(answered_at) >= WAIT;
            if is_slow || !passed.unheard.is_empty() {
                backend.slots.widen();
            }
            let is_over = connections.idle.is_empty() && !passed.is_awaited;
            let is_over = is_over && backend.slots.missing() == 0;
            let is_over = is_over || connections.keep != Keep::Briefly;
            // Told under the lock: whoever comes next begins anew.
            connections.is_swept = !is_over;
            drop(connections);
            drop(closed);
            for fd in passed.unheard {
                // Whoever waits for the answer hears that there is none, and asks another process.
                let _ = shutdown(&fd, Shutdown::Both);
            }
            if is_over {
                self.is_done = true;
                return;
            }
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // It may end with its worker.
        if !self.is_done {
            self.backend.lock().is_swept = false;
        }
    }
}

/// May it be otherwise in a moment?
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), ConnectionRefused | NotFound | WouldBlock)
}

/// Runs on by itself, on this worker, for at most so long.
pub fn detach(work: impl Future<Output = ()> + 'static, patience: Duration) {
    drop(tokio::task::spawn_local(async move {
        let _ = tokio::time::timeout(patience, work).await;
    }));
}
