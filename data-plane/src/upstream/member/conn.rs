//! Connection to a member of a balancer, plain or over TLS.

use crate::ledger::descriptors::MemberDescriptor;
use crate::ledger::member_uses::{MemberUse, UseProgress};
use crate::limits::MEMBER_RECEIVE_BYTES_MIN;
use crate::tls::TlsEndpoint;
use crate::upstream::address::{BackendAddress, ConnectOptions};
use crate::upstream::member::address::ConnOrigin;
use crate::upstream::member::socket::{MemberSocket, MemberWindow};
use crate::upstream::member::tls::MemberTls;
use base::client_network::ClientNetwork;
use base::kernel_pipe::{PipeSink, Transferred};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

/// Connection to a member, between or during requests.
pub(crate) struct MemberConn {
    socket: MemberSocket,
    /// Address of the member.
    origin: ConnOrigin,
    /// Bytes to be sent before all other bytes; empty once sent.
    first: Vec<u8>,
    /// TLS of the connection; None for a plain connection.
    tls: Option<Box<MemberTls>>,
    window: MemberWindow,
    /// Largest number of bytes that the kernel holds unsent; 0 for the default of the system.
    unsent_bytes_max: u32,
    /// Number of requests that the member has answered on the connection.
    answers: u64,
    /// Entry in the ledger of descriptors; None in tests.
    descriptor: Option<MemberDescriptor>,
}

impl MemberConn {
    /// Starts connecting, from the local address `from` if given, with TLS if `tls` is set. `first` is sent before all other bytes, also before the
    /// handshake of TLS. Returns the connection, and true if the connection is established.
    pub(crate) fn begin(
        address: &BackendAddress,
        from: Option<IpAddr>,
        tls: Option<&TlsEndpoint>,
        first: Vec<u8>,
    ) -> io::Result<(MemberConn, bool)> {
        let options = ConnectOptions {
            from,
            receive_bytes: Some(MEMBER_RECEIVE_BYTES_MIN),
        };
        let (socket, is_connected) = MemberSocket::begin(address, options)?;
        let is_ready = is_connected && first.is_empty();
        let tls = match tls {
            Some(endpoint) => Some(Box::new(MemberTls::new(endpoint, is_ready)?)),
            None => None,
        };
        let is_established = is_ready && tls.is_none();
        let conn = MemberConn {
            socket,
            origin: ConnOrigin::new(address),
            first,
            tls,
            window: MemberWindow::Narrow,
            unsent_bytes_max: 0,
            answers: 0,
            descriptor: None,
        };
        Ok((conn, is_established))
    }

    /// Waits until the connection is established, with the handshake of TLS. A failed handshake is a
    /// [`MemberTlsFailure`](crate::upstream::MemberTlsFailure).
    pub(crate) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            ready!(self.socket.poll_connected(cx))?;
            self.socket.send_first(&std::mem::take(&mut self.first))?;
        }
        match &mut self.tls {
            None => self.socket.poll_connected(cx),
            Some(tls) => tls.poll_connected(&self.socket, cx),
        }
    }

    /// Returns the window of the connection.
    pub(crate) fn window(&self) -> MemberWindow {
        self.window
    }

    /// Lets the kernel receive more bytes of the member ahead.
    pub(crate) fn widen(&mut self, window: MemberWindow) {
        if window > self.window {
            self.window = window;
            self.socket.widen(window);
        }
    }

    /// Bounds the bytes that the kernel holds unsent.
    pub(crate) fn bound_unsent(&mut self, bytes: u32) {
        if self.unsent_bytes_max != bytes {
            self.unsent_bytes_max = bytes;
            self.socket.bound_unsent(bytes);
        }
    }

    /// Returns the address of the member.
    pub(super) fn origin(&mut self) -> &mut ConnOrigin {
        &mut self.origin
    }

    /// Returns true if the connection uses TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
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
    /// runtime knows. Session tickets and new keys of TLS are processed and do not count.
    pub(crate) fn is_quiet(&mut self) -> bool {
        match &mut self.tls {
            None => self.socket.is_quiet(),
            Some(tls) => tls.is_quiet(&self.socket),
        }
    }

    /// Returns true if the kernel has neither bytes nor the end of the idle connection. Costs a system call.
    pub(crate) fn is_alive(&self) -> bool {
        self.socket.is_alive()
    }

    /// Records the connection's entry in the ledger of descriptors.
    pub(super) fn hold(&mut self, descriptor: MemberDescriptor) {
        self.descriptor = Some(descriptor);
    }

    /// Takes the connection's entry in the ledger of descriptors.
    pub(super) fn take_descriptor(&mut self) -> Option<MemberDescriptor> {
        self.descriptor.take()
    }

    /// Records the client of the request that begins on the connection.
    pub(crate) fn begin_use(&mut self, client: ClientNetwork) {
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.begin_use(client);
        }
    }

    /// Ready if the request on the connection has to end, because another client needs the descriptor. Otherwise the
    /// progress is recorded, and the task is woken when the request has to end.
    pub(crate) fn poll_told(&self, cx: &Context<'_>, progress: UseProgress) -> Poll<()> {
        match &self.descriptor {
            Some(descriptor) => descriptor.poll_told(cx, progress),
            None => Poll::Pending,
        }
    }

    /// Returns the use of the connection's descriptor, for the requests of HTTP/2; None in tests.
    pub(super) fn usage(&self) -> Option<Arc<MemberUse>> {
        self.descriptor.as_ref().map(MemberDescriptor::usage)
    }

    /// Records that the connection of HTTP/2 belongs to the client that opened it only while that client has a request on it.
    pub(super) fn release_absent_client(&mut self) {
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.release_absent_client();
        }
    }

    /// Records that the connection is idle and belongs to no client any more.
    pub(super) fn release_client(&mut self) {
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.release_client();
        }
    }

    /// Closes an idle connection, or the connection of an abandoned request, by a reset (RST).
    ///
    /// The side that closes first keeps the port in TIME_WAIT for 60 s. Here that side would be this server, with
    /// one port for each connection, and POST requests open connections all the time: 28,000 ports would allow
    /// 470 closed connections a second to one member. On an idle connection a reset loses no data, since the
    /// request was sent and its response was received to the end. haproxy closes idle connections to servers in
    /// the same way.
    pub(crate) fn close_with_reset(self) {
        self.socket.reset_on_close();
    }

    /// Returns true if the member has sent bytes before the first request, as far as the runtime knows. The
    /// connection then serves no request, since the call consumes a byte.
    pub(crate) fn has_unasked_bytes(&mut self) -> bool {
        let mut noop = Context::from_waker(Waker::noop());
        !self.is_quiet() && matches!(self.poll_read(&mut noop, &mut [0]), Poll::Ready(Ok(1..)))
    }

    /// Reads bytes; returns 0 at the end. Over TLS, an end without close_notify is an error, because the end
    /// of the connection may be the end of a response.
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.tls {
            None => self.socket.poll_read(cx, into),
            Some(tls) => tls.poll_read(&self.socket, cx, into),
        }
    }

    /// Returns true if [`MemberConn::poll_fill`] saves a copy: the connection has no TLS.
    pub(crate) fn can_fill(&self) -> bool {
        self.tls.is_none()
    }

    /// Appends at most `max` bytes of a connection without TLS to the empty buffer `into`. Returns 0 at the
    /// end.
    pub(crate) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_fill(cx, into, max)
    }

    /// Moves at most `max` bytes of a connection without TLS to `sink` without a copy, and the bytes that `sink` does
    /// not take to `rest`. None if the bytes have to be read in the ordinary way.
    pub(crate) fn poll_transfer(
        &self,
        cx: &mut Context<'_>,
        sink: &dyn PipeSink,
        max: usize,
        rest: &mut Vec<u8>,
    ) -> Poll<rustix::io::Result<Option<Transferred>>> {
        self.socket.poll_transfer(cx, sink, max, rest)
    }

    /// Writes bytes and returns their number. Over TLS, the bytes may wait in a buffer of 32 KiB until
    /// [`MemberConn::poll_flush`].
    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.tls {
            None => self.socket.poll_write(cx, bytes),
            Some(tls) => tls.poll_write(&self.socket, cx, bytes),
        }
    }

    /// Sends the bytes that wait in the buffer. Always ready for a plain connection.
    #[inline]
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            None => Poll::Ready(Ok(())),
            Some(tls) => tls.poll_flush(&self.socket, cx),
        }
    }

    /// Tells the member that no further bytes follow. The member may go on sending.
    pub(crate) fn end_sending(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&self.socket);
        }
        self.socket.end_sending();
    }

    /// Returns true if written bytes wait in the buffer.
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unsent())
    }
}

impl Drop for MemberConn {
    /// Sends close_notify, as far as the socket accepts bytes at once.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&self.socket);
        }
    }
}

#[cfg(test)]
mod tests;
