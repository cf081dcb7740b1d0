//! TCP socket of a connection, with the known readiness to read and to write.
//!
//! The kernel reports each change once (edge-triggered), so the readiness is kept until a system call finds
//! otherwise. A short read means that the kernel has no more bytes, so no call is spent on EAGAIN. A socket
//! is registered with the worker's [`Poller`] when a task first has to wait for the socket. A connection
//! that is answered and closed at once is never registered.

use super::poller::{Poller, Readiness};
use crate::handler::Endpoints;
use crate::limits::{
    SOCKET_UNSENT_BYTES, SOCKET_UNSENT_BYTES_FAST, SOCKET_UNSENT_BYTES_MIN, TUNNEL_PROBE_SECONDS,
    TUNNEL_PROBES_MAX,
};
use base::kernel_pipe::{PipeSink, splice_to_socket};
use base::sys;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, getpeername, getsockname, sockopt};
use std::cell::{Cell, OnceCell, RefCell};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The number of times that a socket must have been full before the peer counts as a reader; at least
/// 32 KiB were sent each time.
const FULL_TIMES: u8 = 16;

/// A non-blocking TCP socket of one worker.
pub(super) struct TcpSocket {
    fd: OwnedFd,
    poller: Rc<Poller>,
    /// Number of the socket in the poller: the row of the connection.
    slot: u32,
    registered: Cell<bool>,
    readable: Cell<bool>,
    /// True if the poller has reported the socket as readable and nothing was read since.
    heard: Cell<bool>,
    writable: Cell<bool>,
    /// The number of times that the socket was full after the peer had made room, up to [`FULL_TIMES`].
    full_times: Cell<u8>,
    /// True if the kernel holds only [`SOCKET_UNSENT_BYTES_MIN`] unsent.
    narrow: Cell<bool>,
    /// True if the peer has ended or broken the connection. The kernel reports the end only once, so
    /// reading remains allowed.
    ended: Cell<bool>,
    /// True if the connection broke.
    broken: Cell<bool>,
    /// Waker of the task that waits for the socket; `None` where the poller runs the connection itself.
    waker: RefCell<Option<Waker>>,
    /// Addresses of both ends, filled in at the first use. Most connections never need the addresses.
    ends: OnceCell<Box<Endpoints>>,
}

impl TcpSocket {
    /// Wraps `fd`, just accepted and non-blocking; the number in the poller will be `slot`.
    pub(super) fn new(fd: OwnedFd, poller: Rc<Poller>, slot: usize) -> TcpSocket {
        TcpSocket {
            fd,
            poller,
            slot: slot as u32,
            registered: Cell::new(false),
            readable: Cell::new(true),
            heard: Cell::new(false),
            writable: Cell::new(true),
            full_times: Cell::new(0),
            narrow: Cell::new(false),
            ended: Cell::new(false),
            broken: Cell::new(false),
            waker: RefCell::new(None),
            ends: OnceCell::new(),
        }
    }

    /// Returns the addresses of both ends. The kernel is asked once, because the addresses never change.
    pub(super) fn ends(&self) -> Endpoints {
        **self.ends.get_or_init(|| Box::new(self.ask_for_ends()))
    }

    /// Sets the addresses of both ends, if stated by a PROXY header.
    pub(crate) fn set_ends(&self, ends: Endpoints) {
        let _ = self.ends.set(Box::new(ends));
    }

    fn ask_for_ends(&self) -> Endpoints {
        let address = |any: Option<SocketAddrAny>| SocketAddr::try_from(any?).ok();
        let client = address(getpeername(&self.fd).ok().flatten());
        let server = address(getsockname(&self.fd).ok());
        Endpoints {
            client_port: client.map(|client| client.port()),
            server: server.map(|server| server.ip().to_canonical()),
            server_port: server.map(|server| server.port()),
        }
    }

    /// Reads once. Returns 0 if the peer has ended the sending side.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        while self.readable.get() {
            match rustix::net::recv(&self.fd, &mut *into, RecvFlags::empty()) {
                Ok((read, _)) => {
                    if read > 0 && read < into.len() && !self.ended.get() {
                        self.readable.set(false);
                    }
                    if !self.heard.take() {
                        // The bytes may have arrived after the last call of `epoll_wait`.
                        self.poller.check_inotify();
                    }
                    return Poll::Ready(Ok(read));
                }
                Err(Errno::AGAIN) => self.readable.set(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
        self.wait(cx)
    }

    /// Ready once the connection broke, even if received bytes are unread.
    pub(crate) fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.broken.get() {
            Poll::Ready(())
        } else {
            self.wait::<()>(cx).map(drop)
        }
    }

    /// Ready once the peer has ended or broken the connection, even if received bytes are unread.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ended.get() || self.broken.get() {
            Poll::Ready(())
        } else {
            self.wait::<()>(cx).map(drop)
        }
    }

    /// Writes as much of `slices` as the kernel takes.
    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = slices.iter().map(|slice| slice.len()).sum();
        self.poll_put(cx, len, || match slices {
            // send(2) is cheaper than writev(2), because the kernel knows that the descriptor is a socket.
            [bytes] => rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL),
            slices => rustix::io::writev(&self.fd, slices),
        })
    }

    /// Writes like [`TcpSocket::poll_write`], with more bytes to follow at once: the kernel keeps an
    /// incomplete last packet back.
    pub(crate) fn poll_write_more(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(cx, bytes.len(), || {
            rustix::net::send(&self.fd, bytes, SendFlags::MORE | SendFlags::NOSIGNAL)
        })
    }

    /// Sends up to `len` bytes of `file` from `offset` without a copy. Returns 0 at the end of the file.
    pub(crate) fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_put(cx, len, || {
            let mut at = offset;
            rustix::fs::sendfile(&self.fd, file, Some(&mut at), len)
        })
    }

    /// Calls `put`, which tries to send `len` bytes, while the socket is writable.
    fn poll_put(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        mut put: impl FnMut() -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        while self.writable.get() {
            match put() {
                Ok(taken) => {
                    if taken > 0 && taken < len {
                        self.writable.set(false);
                        self.was_filled();
                    }
                    return Poll::Ready(Ok(taken));
                }
                Err(Errno::AGAIN) => self.writable.set(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
        self.wait(cx)
    }

    /// Counts that the socket is full after the peer had made room. After [`FULL_TIMES`] the kernel may
    /// hold more unsent bytes for the socket, so that a fast network with a long delay is never idle while
    /// the worker is busy.
    #[cold]
    fn was_filled(&self) {
        let times = self.full_times.get().saturating_add(1);
        self.full_times.set(times);
        if times == FULL_TIMES && !self.narrow.get() {
            // If the socket option cannot be set, the connection is only slower.
            let _ = sys::bound_unsent(self.fd.as_fd(), SOCKET_UNSENT_BYTES_FAST);
        }
    }

    /// Sets whether the kernel holds only a few unsent bytes, because the memory of the bodies under way is short.
    pub(super) fn set_narrow(&self, is_narrow: bool) {
        if self.narrow.replace(is_narrow) == is_narrow {
            return;
        }
        self.full_times.set(0);
        let bytes = if is_narrow {
            SOCKET_UNSENT_BYTES_MIN
        } else {
            SOCKET_UNSENT_BYTES
        };
        // If the socket option cannot be set, the kernel holds more bytes than necessary, or fewer.
        let _ = sys::bound_unsent(self.fd.as_fd(), bytes);
    }

    /// Returns true if the socket may take bytes past the buffers of its connection: the socket is not known to be full, and
    /// the memory of the kernel's bytes is reserved.
    pub(super) fn takes_moves(&self) -> bool {
        self.writable.get() && !self.narrow.get()
    }

    /// Returns true if the kernel holds only a few unsent bytes.
    pub(super) fn is_narrow(&self) -> bool {
        self.narrow.get()
    }

    /// Registers the task to be woken at the next event of the socket.
    fn wait<T>(&self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        if !self.registered.get() {
            // The poller reports events that happened before the registration at once.
            if let Err(error) = self.poller.add(self.fd.as_fd(), self.slot) {
                return Poll::Ready(Err(error));
            }
            self.registered.set(true);
        }
        Poll::Pending
    }

    /// Records the readiness reported by the kernel.
    pub(super) fn now_ready(&self, ready: Readiness) {
        if ready.ended() {
            self.ended.set(true);
        }
        if ready.broke() {
            self.broken.set(true);
        }
        if ready.readable() {
            self.readable.set(true);
            self.heard.set(true);
        }
        if ready.writable() {
            self.writable.set(true);
        }
    }

    /// Wakes the waiting task.
    pub(super) fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Drops the waker, because no task waits any more.
    pub(super) fn forget_waker(&self) {
        self.waker.replace(None);
    }

    /// Makes the kernel probe a silent peer, so that a connection without a deadline ends once the peer has
    /// vanished. If a socket option cannot be set, only the probes are missing.
    pub(crate) fn probe_silent_peer(&self) {
        let interval = Duration::from_secs(TUNNEL_PROBE_SECONDS);
        let _ = sockopt::set_socket_keepalive(&self.fd, true);
        let _ = sockopt::set_tcp_keepidle(&self.fd, interval);
        let _ = sockopt::set_tcp_keepintvl(&self.fd, interval);
        let _ = sockopt::set_tcp_keepcnt(&self.fd, TUNNEL_PROBES_MAX);
    }

    /// Makes the close of the socket reset the connection, and discard bytes still held by the kernel.
    pub(crate) fn reset_on_close(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO))?)
    }
}

impl PipeSink for TcpSocket {
    fn take(&self, pipe: BorrowedFd<'_>, max: usize) -> usize {
        let mut taken = 0;
        // A signal makes a call short although the socket has room, so only EAGAIN tells that the socket is full.
        while taken < max {
            match splice_to_socket(pipe, self.fd.as_fd(), max - taken) {
                Ok(0) => break,
                Ok(more) => taken += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.writable.set(false);
                    self.was_filled();
                    break;
                }
                Err(_) => break,
            }
        }
        taken
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
