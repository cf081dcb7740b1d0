//! Connection to a backend, either active in the runtime of one worker or idle between two calls.

use base::sys;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::{self, ThreadId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// A connection without a call in progress.
pub(crate) struct IdleConn {
    binding: RuntimeBinding,
    pub(crate) history: ConnHistory,
}

enum RuntimeBinding {
    /// Registered with the runtime of the last worker. The same worker can reuse the registration.
    With(ThreadId, AsyncFd<Arc<OwnedFd>>),
    /// Registered with no runtime.
    Free(Arc<OwnedFd>),
}

/// Usage history of a connection.
#[derive(Clone, Copy)]
pub(crate) struct ConnHistory {
    pub created_at: Instant,
    /// Number of calls answered on the connection.
    pub answers: u32,
}

/// A connection with a call in progress.
pub(crate) struct Conn {
    fd: AsyncFd<Arc<OwnedFd>>,
    /// The request has been sent in full and only reading remains, so the kernel watches for a single
    /// event.
    is_fully_sent: bool,
    history: ConnHistory,
}

impl IdleConn {
    /// Creates an idle connection from a new socket.
    pub(crate) fn new(socket: OwnedFd, now: Instant) -> IdleConn {
        IdleConn {
            binding: RuntimeBinding::Free(Arc::new(socket)),
            history: ConnHistory {
                created_at: now,
                answers: 0,
            },
        }
    }

    /// Sends as much of `bytes` as possible without blocking, the last `apart` bytes in a separate call,
    /// and registers the connection with the current worker. `is_all` means that no more bytes follow.
    /// Outer error: the peer received nothing, mostly because the peer has closed the connection. Inner
    /// error: the peer received bytes, but the connection cannot be registered for reading the response.
    pub(crate) fn begin(
        self,
        bytes: &[u8],
        apart: usize,
        is_all: bool,
    ) -> io::Result<(io::Result<Conn>, usize)> {
        let (first, last) = bytes.split_at(bytes.len() - apart);
        let mut sent = match send(self.fd(), first, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            sent => sent?,
        };
        if sent == first.len() && !last.is_empty() {
            // The cause of a failure appears when the rest is sent or the response is missing.
            sent += send(self.fd(), last, SendFlags::NOSIGNAL).unwrap_or(0);
        }
        match self.register(is_all && sent == bytes.len()) {
            Err(error) if sent == 0 => Err(error),
            conn => Ok((conn, sent)),
        }
    }

    /// Registers the connection with the current worker, for reading only if `is_fully_sent` is true,
    /// otherwise for reading and writing.
    pub(crate) fn register(self, is_fully_sent: bool) -> io::Result<Conn> {
        let fd = match self.binding {
            RuntimeBinding::With(owner, fd) if is_fully_sent && owner == thread::current().id() => {
                fd
            }
            RuntimeBinding::With(_, fd) => register_fd(fd.into_inner(), is_fully_sent)?,
            RuntimeBinding::Free(fd) => register_fd(fd, is_fully_sent)?,
        };
        Ok(Conn {
            fd,
            is_fully_sent,
            history: self.history,
        })
    }

    /// Returns the number of calls answered on the connection.
    pub(crate) fn answers(&self) -> u32 {
        self.history.answers
    }

    /// Returns true if the peer has neither closed the connection nor sent unexpected bytes.
    pub(crate) fn is_open(&self) -> bool {
        let mut byte = [0];
        let peeked = recv(self.fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_err_and(|error| error == Errno::AGAIN)
    }

    /// Returns the descriptor, shared by all users of the connection.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        match &self.binding {
            RuntimeBinding::With(_, fd) => fd.get_ref(),
            RuntimeBinding::Free(fd) => fd,
        }
    }
}

impl AsFd for IdleConn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().as_fd()
    }
}

fn register_fd(fd: Arc<OwnedFd>, is_fully_sent: bool) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    let interest = if is_fully_sent {
        Interest::READABLE
    } else {
        Interest::READABLE | Interest::WRITABLE
    };
    sys::async_shared(fd, interest)
}

impl Conn {
    /// Converts the connection to an idle connection after a response, with no call in progress.
    pub(crate) fn into_idle(self) -> IdleConn {
        let binding = if self.is_fully_sent {
            RuntimeBinding::With(thread::current().id(), self.fd)
        } else {
            RuntimeBinding::Free(self.fd.into_inner())
        };
        let history = ConnHistory {
            answers: self.history.answers.saturating_add(1),
            ..self.history
        };
        IdleConn { binding, history }
    }

    /// Returns the descriptor, shared by all users of the connection.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        self.fd.get_ref()
    }

    /// Returns true if the connection has answered a call before.
    pub(crate) fn has_answered(&self) -> bool {
        self.history.answers > 0
    }

    /// Waits until the connection is established.
    pub(crate) async fn established(self) -> io::Result<Conn> {
        let _ = self.fd.writable().await?;
        rustix::net::sockopt::socket_error(self.fd.get_ref())??;
        Ok(self)
    }

    /// Reads bytes; returns 0 at the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match rustix::io::read(self.fd.get_ref(), &mut *into) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Ok(read) if read < into.len() && read > 0 => {
                    // A short read empties the buffer, and the kernel reports further bytes.
                    ready.clear_ready();
                    return Poll::Ready(Ok(read));
                }
                read => return Poll::Ready(read.map_err(io::Error::from)),
            }
        }
    }

    /// Writes bytes and returns their number. Fails on a connection that started with the whole request.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_fully_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        loop {
            let mut ready = ready!(self.fd.poll_write_ready(cx))?;
            match send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
        }
    }
}
