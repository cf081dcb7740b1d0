//! Servers behind this one that speak FastCGI or SCGI: where they are, and the connections to them.
//!
//! A connection that is kept pins a process of most backends (php-fpm's among them), so none is kept
//! unless the operator says how many may be. Then those are all that there are, for all workers
//! together: who comes next waits for one of them, and gets it as it is.

use super::slots::Slots;
use crate::base::sys;
use crate::limits::{
    BACKEND_CONNECT_SECONDS, BACKEND_CONNECT_TRIES, BACKEND_CONNECTIONS_MAX,
    BACKEND_RETRY_MILLISECONDS,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

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
    /// The one at this address. One that is new keeps so many connections; one that isn't goes on as
    /// it does until [`Backend::keep_at_most`].
    pub fn at(&self, address: &Address, keep: Option<usize>) -> Arc<Backend> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, backend)| backend.strong_count() > 0);
        let known = all.iter().find(|(its, _)| its == address);
        if let Some(backend) = known.and_then(|(_, backend)| backend.upgrade()) {
            return backend;
        }
        let backend = Arc::new(Backend {
            address: address.clone(),
            slots: Arc::new(Slots::new(connections(keep))),
            idle: Mutex::new(Idle {
                kept: Vec::new(),
                max: keep.unwrap_or(0),
            }),
        });
        all.push((address.clone(), Arc::downgrade(&backend)));
        backend
    }
}

/// So many there may be at a time.
fn connections(keep: Option<usize>) -> usize {
    keep.unwrap_or(BACKEND_CONNECTIONS_MAX)
}

/// One backend.
pub struct Backend {
    /// Where it is.
    pub address: Address,
    /// A place for each connection.
    pub slots: Arc<Slots>,
    idle: Mutex<Idle>,
}

/// Connections that wait for the next call.
struct Idle {
    /// The one that was used last is on top.
    kept: Vec<Kept>,
    /// No more of them.
    max: usize,
}

/// A connection on which nothing is under way.
pub enum Kept {
    /// Still with the runtime of the worker that had it last, which then need not be told again.
    With(ThreadId, AsyncFd<OwnedFd>),
    /// To a socket in the file system.
    Unix(std::os::unix::net::UnixStream),
    /// Over TCP.
    Tcp(std::net::TcpStream),
}

/// A connection at work.
pub enum Link {
    /// Of either kind, when all has been said and there is only to listen: the kernel then has one
    /// thing to watch for.
    Listening(AsyncFd<OwnedFd>),
    /// To a socket in the file system.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
}

impl Backend {
    /// From now on at most so many connections, all of which are kept; None where it isn't said, and
    /// then none is. What is at work stays so.
    pub fn keep_at_most(&self, keep: Option<usize>) {
        self.slots.resize(connections(keep));
        let mut idle = self.lock();
        idle.max = keep.unwrap_or(0);
        let excess = idle.kept.len().saturating_sub(idle.max);
        idle.kept.drain(..excess);
    }

    /// A kept connection that still is one.
    pub fn idle(&self) -> Option<Kept> {
        let mut idle = self.lock();
        let mut top = idle.kept.pop()?;
        if !top.is_open() {
            // It was started anew, or doesn't want so many: then others have ended too, and a
            // connection that has isn't held open from this side.
            idle.kept.retain(Kept::is_open);
            top = idle.kept.pop()?;
        }
        drop(idle);
        Some(match (top, &self.address) {
            (Kept::With(owner, fd), Address::Unix(_)) if owner != thread::current().id() => {
                Kept::Unix(fd.into_inner().into())
            }
            (Kept::With(owner, fd), Address::Tcp(_)) if owner != thread::current().id() => {
                Kept::Tcp(fd.into_inner().into())
            }
            (kept, _) => kept,
        })
    }

    /// A new connection, if there is one without waiting: to a socket in the file system there mostly
    /// is.
    pub fn connect_now(&self) -> Option<Kept> {
        let Address::Unix(path) = &self.address else {
            return None;
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        let address = SocketAddrUnix::new(path.as_path()).ok()?;
        connect(&socket, &address).ok()?;
        Some(Kept::Unix(socket.into()))
    }

    /// Keeps a connection on which nothing is under way, if there is still to be one more.
    pub fn keep(&self, link: Link) {
        let kept = match link {
            Link::Listening(fd) => Ok(Kept::With(thread::current().id(), fd)),
            Link::Unix(stream) => stream.into_std().map(Kept::Unix),
            Link::Tcp(stream) => stream.into_std().map(Kept::Tcp),
        };
        let mut idle = self.lock();
        if let Ok(kept) = kept
            && idle.kept.len() < idle.max
        {
            idle.kept.push(kept);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
        match &self.address {
            Address::Unix(path) => UnixStream::connect(path).await.map(Link::Unix),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Link::Tcp(stream))
            }
        }
    }
}

/// May it be otherwise in a moment?
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), ConnectionRefused | NotFound | WouldBlock)
}

impl Kept {
    /// Says as much of this as can be said at once, and gives the connection to this worker; `is_all`
    /// if nothing more will follow. Errors: the other end has gone, and has heard nothing of it. Where
    /// it has, but its answer can't be waited for, that is said apart.
    pub fn begin(self, bytes: &[u8], is_all: bool) -> io::Result<(io::Result<Link>, usize)> {
        let said = match send(self.as_fd(), bytes, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            said => said?,
        };
        match self.given(is_all && said == bytes.len()) {
            Err(error) if said == 0 => Err(error),
            link => Ok((link, said)),
        }
    }

    /// With this worker from now on, if it can be; to be listened to alone, or to be told more too.
    fn given(self, is_told: bool) -> io::Result<Link> {
        Ok(match self {
            Kept::With(_, fd) if is_told => Link::Listening(fd),
            kept if is_told => {
                let fd = match kept {
                    Kept::With(_, fd) => fd.into_inner(),
                    Kept::Unix(stream) => OwnedFd::from(stream),
                    Kept::Tcp(stream) => OwnedFd::from(stream),
                };
                Link::Listening(sys::readable(fd)?)
            }
            // There is more to be said than there is room for: of which kind the socket is doesn't
            // matter to who only reads and writes.
            Kept::With(_, fd) => Link::Unix(UnixStream::from_std(fd.into_inner().into())?),
            Kept::Unix(stream) => Link::Unix(UnixStream::from_std(stream)?),
            Kept::Tcp(stream) => Link::Tcp(TcpStream::from_std(stream)?),
        })
    }

    /// It has not been closed, and nothing came that nobody asked for.
    fn is_open(&self) -> bool {
        let mut byte = [0];
        let seen = recv(
            self.as_fd(),
            &mut byte,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        seen.is_err_and(|error| error == Errno::AGAIN)
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Kept::With(_, fd) => fd.get_ref().as_fd(),
            Kept::Unix(stream) => stream.as_fd(),
            Kept::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Link {
    /// Bytes read; 0 at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let read = match self {
            Link::Listening(fd) => return poll_listen(fd, cx, into),
            Link::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Link::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
        };
        read.map_ok(|()| buffer.filled().len())
    }

    /// Bytes written.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Link::Listening(_) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Link::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Link::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }
}

fn poll_listen(
    fd: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        let mut ready = ready!(fd.poll_read_ready(cx))?;
        match rustix::io::read(fd.get_ref(), &mut *into) {
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Ok(read) if read < into.len() && read > 0 => {
                // That was all, and the kernel tells when there is more.
                ready.clear_ready();
                return Poll::Ready(Ok(read));
            }
            read => return Poll::Ready(read.map_err(io::Error::from)),
        }
    }
}

/// Runs on by itself, on this worker, for at most so long.
pub fn detach(work: impl Future<Output = ()> + 'static, patience: Duration) {
    drop(tokio::task::spawn_local(async move {
        let _ = tokio::time::timeout(patience, work).await;
    }));
}
