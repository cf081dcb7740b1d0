//! Socket of a connection to a member. The socket stays registered with the runtime of its worker, also while
//! the connection is idle, so the worker learns without a system call that bytes have arrived.

use crate::limits::{MEMBER_FAR_RECEIVE_BYTES, MEMBER_RECEIVE_BYTES, READ_BUFFER_BYTES};
use crate::upstream::address::{BackendAddress, ConnectOptions};
use base::kernel_pipe::{self, PipeSink, Transferred};
use base::sys;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Number of bytes that the kernel may receive on a connection ahead of the reader.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum MemberWindow {
    /// [`MEMBER_RECEIVE_BYTES_MIN`](crate::limits::MEMBER_RECEIVE_BYTES_MIN), for new connections.
    Narrow,
    /// [`MEMBER_RECEIVE_BYTES`](crate::limits::MEMBER_RECEIVE_BYTES).
    Wide,
    /// [`MEMBER_FAR_RECEIVE_BYTES`](crate::limits::MEMBER_FAR_RECEIVE_BYTES).
    Far,
    /// The choice of the kernel, by the delay of the network and the speed of the reader: up to some MB. For
    /// connections of HTTP/2, which are always read.
    Unbounded,
}

/// TCP or Unix socket, registered with the runtime.
pub(super) struct MemberSocket(AsyncFd<OwnedFd>);

impl MemberSocket {
    /// Starts connecting. Returns the socket, and true if the connection is established.
    pub(super) fn begin(
        address: &BackendAddress,
        options: ConnectOptions,
    ) -> io::Result<(MemberSocket, bool)> {
        let (socket, is_connected) = address.begin_connecting_with(options)?;
        Ok((MemberSocket(sys::async_socket(socket)?), is_connected))
    }

    /// Waits until the connection is established.
    pub(super) fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = ready!(self.0.poll_write_ready(cx))?;
        sockopt::socket_error(self.0.get_ref())??;
        Poll::Ready(Ok(()))
    }

    /// Sends the first bytes of a connection, in one packet with the bytes that follow. The empty buffer of the
    /// kernel takes a few bytes at once.
    pub(super) fn send_first(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = send(
            self.0.get_ref(),
            bytes,
            SendFlags::MORE | SendFlags::NOSIGNAL,
        )?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Returns true if neither bytes nor the end have arrived. A system call is needed only where the last read
    /// took all bytes that it asked for, so that the runtime does not know whether further bytes wait.
    pub(super) fn is_quiet(&self) -> bool {
        let mut noop = Context::from_waker(Waker::noop());
        let Poll::Ready(ready) = self.0.poll_read_ready(&mut noop) else {
            return true;
        };
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match (ready, recv(self.0.get_ref(), &mut byte, flags)) {
            (Ok(mut ready), Err(Errno::AGAIN)) => {
                ready.clear_ready();
                true
            }
            _ => false,
        }
    }

    /// Returns true if the kernel has neither bytes nor the end of the connection for the reader. Costs a
    /// system call.
    pub(super) fn is_alive(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(
            recv(self.0.get_ref(), &mut [0; 1], flags),
            Err(Errno::AGAIN)
        )
    }

    /// Lets the close reset the connection, so that no local port stays in TIME_WAIT.
    pub(super) fn reset_on_close(&self) {
        // Without the option, the close takes the ordinary way.
        let _ = sockopt::set_socket_linger(self.0.get_ref(), Some(Duration::ZERO));
    }

    /// Reads bytes; returns 0 at the end.
    #[inline]
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            match recv(self.0.get_ref(), &mut *into, RecvFlags::empty()) {
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Ok((read, _)) if read < into.len() && read > 0 => {
                    // A short read empties the buffer, and the kernel reports further bytes.
                    ready.clear_ready();
                    return Poll::Ready(Ok(read));
                }
                read => return Poll::Ready(read.map(|(read, _)| read).map_err(io::Error::from)),
            }
        }
    }

    /// Appends at most `max` bytes to the empty buffer `into`, which is allocated only for bytes that have
    /// arrived. Returns 0 at the end.
    pub(super) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            into.reserve_exact(max);
            let room = into.capacity();
            match recv(self.0.get_ref(), spare_capacity(into), RecvFlags::empty()) {
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    *into = Vec::new();
                }
                Err(Errno::INTR) => {}
                Ok((read, _)) => {
                    if read < room && read > 0 {
                        // A short read empties the buffer, and the kernel reports further bytes.
                        ready.clear_ready();
                    }
                    if read < room / 2 {
                        // A slow client must not hold the memory of a long read.
                        into.shrink_to_fit();
                    }
                    return Poll::Ready(Ok(read));
                }
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    /// Moves at most `max` bytes to `sink` without a copy, and the bytes that `sink` does not take to `rest`. None if
    /// the bytes have to be read in the ordinary way.
    pub(super) fn poll_transfer(
        &self,
        cx: &mut Context<'_>,
        sink: &dyn PipeSink,
        max: usize,
        rest: &mut Vec<u8>,
    ) -> Poll<rustix::io::Result<Option<Transferred>>> {
        // Fewer bytes than wanted, or none, do not tell that the socket is empty: the kernel's pipe may be full, and
        // urgent data stops a transfer.
        Poll::Ready(match ready!(self.0.poll_read_ready(cx)) {
            Ok(_) => kernel_pipe::transfer(self.0.get_ref().as_fd(), sink, max, rest),
            // The ordinary read reports the error.
            Err(_) => Ok(None),
        })
    }

    /// Writes bytes and returns their number.
    #[inline]
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match send(self.0.get_ref(), bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
            ready!(self.0.poll_write_ready(cx))?.clear_ready();
        }
    }

    /// Opens the window.
    pub(super) fn widen(&self, window: MemberWindow) {
        let socket = self.0.get_ref().as_fd();
        // With a narrow window the connection is only slower.
        let _ = match window {
            MemberWindow::Narrow => Ok(()),
            MemberWindow::Wide => sys::raise_receive_buffer(socket, MEMBER_RECEIVE_BYTES),
            MemberWindow::Far => sys::raise_receive_buffer(socket, MEMBER_FAR_RECEIVE_BYTES),
            MemberWindow::Unbounded => sys::unbound_receive_buffer(socket),
        };
    }

    /// Bounds the bytes that the kernel holds unsent. A Unix socket has a bound of its own.
    pub(super) fn bound_unsent(&self, bytes: u32) {
        // Without the bound the kernel holds more bytes than necessary.
        let _ = sys::bound_unsent(self.0.get_ref().as_fd(), bytes);
    }

    /// Ends the sending side of the connection.
    pub(super) fn end_sending(&self) {
        // The peer may have closed the connection already.
        let _ = shutdown(self.0.get_ref(), Shutdown::Write);
    }

    /// Writes bytes as far as the socket accepts bytes at once, outside of a task.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        send(self.0.get_ref(), bytes, SendFlags::NOSIGNAL).map_err(io::Error::from)
    }

    /// Returns the descriptor.
    #[cfg(test)]
    pub(super) fn fd(&self) -> &AsyncFd<OwnedFd> {
        &self.0
    }
}

thread_local! {
    /// Buffer for bytes received from members, shared by all connections of a worker.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `read` with the worker's buffer for received bytes.
pub(crate) fn with_receive_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    RECEIVED.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            buffer.resize(READ_BUFFER_BYTES, 0);
        }
        read(buffer)
    })
}
