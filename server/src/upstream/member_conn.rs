//! Connection to a member of a balancer. The connection stays registered with the runtime of its worker,
//! also while idle, so the worker learns without a system call that the member closed the connection.

use crate::base::sys;
use crate::upstream::address::BackendAddress;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::unix::AsyncFd;

/// Connection to a member, between or during requests.
pub(crate) struct MemberConn {
    fd: AsyncFd<OwnedFd>,
    /// Number of requests that the member has answered on the connection.
    answers: u64,
}

impl MemberConn {
    /// Starts connecting, from the local address `from` if given. Returns the connection, and true if the
    /// connection is established.
    pub(crate) fn begin(
        address: &BackendAddress,
        from: Option<IpAddr>,
    ) -> io::Result<(MemberConn, bool)> {
        let (socket, is_connected) = address.begin_connecting_from(from)?;
        let fd = sys::async_socket(socket)?;
        Ok((MemberConn { fd, answers: 0 }, is_connected))
    }

    /// Waits until the connection is established.
    pub(crate) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = ready!(self.fd.poll_write_ready(cx))?;
        sockopt::socket_error(self.fd.get_ref())??;
        Poll::Ready(Ok(()))
    }

    /// Sends the first bytes of an established connection, in one packet with the bytes that follow. The empty
    /// buffer of the kernel takes a few bytes at once.
    pub(crate) fn send_first(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = send(
            self.fd.get_ref(),
            bytes,
            SendFlags::MORE | SendFlags::NOSIGNAL,
        )?;
        match sent == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Returns true if the connection has answered a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.answers > 0
    }

    /// Records an answered request.
    pub(crate) fn record_answer(&mut self) {
        self.answers += 1;
    }

    /// Returns true if the member has neither closed the idle connection nor sent bytes, as far as the
    /// runtime knows.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut noop = Context::from_waker(Waker::noop());
        self.fd.poll_read_ready(&mut noop).is_pending()
    }

    /// Reads bytes; returns 0 at the end.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match recv(self.fd.get_ref(), &mut *into, RecvFlags::empty()) {
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

    /// Writes bytes and returns their number.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match send(self.fd.get_ref(), bytes, SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                sent => return Poll::Ready(sent.map_err(io::Error::from)),
            }
            ready!(self.fd.poll_write_ready(cx))?.clear_ready();
        }
    }
}
