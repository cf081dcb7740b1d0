//! A connection to a backend: at work with one worker's runtime, or between two calls.

use crate::base::sys;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::{self, ThreadId};
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A connection on which nothing is under way.
pub struct IdleConn {
    place: RuntimeBinding,
    pub(crate) past: ConnHistory,
}

enum RuntimeBinding {
    /// Still with the runtime of the worker that had it last, which then need not be told again.
    With(ThreadId, AsyncFd<Arc<OwnedFd>>),
    /// With none.
    Free(Arc<OwnedFd>),
}

/// What a connection has been used for.
#[derive(Clone, Copy)]
pub(crate) struct ConnHistory {
    pub born: Instant,
    /// Calls that it has answered.
    pub answers: u32,
}

/// A connection at work.
pub struct Conn {
    fd: AsyncFd<Arc<OwnedFd>>,
    /// All has been said, and there is only to listen: the kernel then has one thing to watch for.
    is_told: bool,
    past: ConnHistory,
}

impl IdleConn {
    /// A new connection.
    pub(crate) fn new(socket: OwnedFd, now: Instant) -> IdleConn {
        IdleConn {
            place: RuntimeBinding::Free(Arc::new(socket)),
            past: ConnHistory {
                born: now,
                answers: 0,
            },
        }
    }

    /// Says as much of this as can be said at once, the last `apart` bytes by themselves, and gives the
    /// connection to this worker; `is_all` if nothing more will follow. Errors: the other end has gone,
    /// and has heard nothing of it. Where it has, but its answer can't be waited for, that is said
    /// apart.
    pub fn begin(
        self,
        bytes: &[u8],
        apart: usize,
        is_all: bool,
    ) -> io::Result<(io::Result<Conn>, usize)> {
        let (first, last) = bytes.split_at(bytes.len() - apart);
        let mut said = match send(self.fd(), first, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            said => said?,
        };
        if said == first.len() && !last.is_empty() {
            // Why it can't be said is heard when the rest is, or the answer isn't there.
            said += send(self.fd(), last, SendFlags::NOSIGNAL).unwrap_or(0);
        }
        match self.given(is_all && said == bytes.len()) {
            Err(error) if said == 0 => Err(error),
            link => Ok((link, said)),
        }
    }

    /// With this worker from now on, if it can be; to be listened to alone, or to be told more too.
    pub(crate) fn given(self, is_told: bool) -> io::Result<Conn> {
        let fd = match self.place {
            RuntimeBinding::With(owner, fd) if is_told && owner == thread::current().id() => fd,
            RuntimeBinding::With(_, fd) => registered(fd.into_inner(), is_told)?,
            RuntimeBinding::Free(fd) => registered(fd, is_told)?,
        };
        Ok(Conn {
            fd,
            is_told,
            past: self.past,
        })
    }

    /// Calls that it has answered.
    pub fn answers(&self) -> u32 {
        self.past.answers
    }

    /// It has not been closed, and nothing came that nobody asked for.
    pub(crate) fn is_open(&self) -> bool {
        let mut byte = [0];
        let seen = recv(self.fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        seen.is_err_and(|error| error == Errno::AGAIN)
    }

    /// Its descriptor, which all that know of this connection share.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        match &self.place {
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

fn registered(fd: Arc<OwnedFd>, is_told: bool) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    let interest = match is_told {
        true => Interest::READABLE,
        false => Interest::READABLE | Interest::WRITABLE,
    };
    sys::async_shared(fd, interest)
}

impl Conn {
    /// It has answered a call, and nothing is under way on it any more.
    pub(crate) fn answered(self) -> IdleConn {
        let place = match self.is_told {
            true => RuntimeBinding::With(thread::current().id(), self.fd),
            false => RuntimeBinding::Free(self.fd.into_inner()),
        };
        let past = ConnHistory {
            answers: self.past.answers.saturating_add(1),
            ..self.past
        };
        IdleConn { place, past }
    }

    /// Its descriptor, which all that know of this connection share.
    pub(crate) fn fd(&self) -> &Arc<OwnedFd> {
        self.fd.get_ref()
    }

    /// It had answered others before.
    pub(crate) fn has_answered(&self) -> bool {
        self.past.answers > 0
    }

    /// Waits until a connection that is being made is there.
    pub(crate) async fn made(self) -> io::Result<Conn> {
        let _ = self.fd.writable().await?;
        rustix::net::sockopt::socket_error(self.fd.get_ref())??;
        Ok(self)
    }

    /// Bytes read; 0 at the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match rustix::io::read(self.fd.get_ref(), &mut *into) {
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

    /// Bytes written. One that was begun with all that was to be said takes no more.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_told {
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
