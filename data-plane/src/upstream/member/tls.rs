//! TLS of a connection to a member, over the socket of the connection.

use crate::limits::MEMBER_TLS_WRITE_BYTES_MAX;
use crate::tls::{RECORD_BYTES_MAX, TlsClientConnection, TlsEndpoint};
use crate::upstream::member::socket::MemberSocket;
use crate::upstream::member::tls_failure::MemberTlsFailure;
use std::cell::Cell;
use std::io;
use std::task::{Context, Poll, Waker, ready};

thread_local! {
    /// Buffer for received records that do not fit into the reader's buffer.
    static ASIDE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// TLS of a connection to a member.
pub(super) struct MemberTls {
    client: TlsClientConnection,
    /// True once the socket is connected.
    is_connected: bool,
    /// True once the first bytes of a request are sealed.
    has_written: bool,
    /// True if the member must choose HTTP/2.
    requires_h2: bool,
}

impl MemberTls {
    /// Begins TLS on a socket. `is_connected` is true if the socket is connected.
    pub(super) fn new(endpoint: &TlsEndpoint, is_connected: bool) -> io::Result<MemberTls> {
        let client = endpoint.connect().map_err(io::Error::other)?;
        Ok(MemberTls {
            client,
            is_connected,
            has_written: false,
            requires_h2: endpoint.requires_h2(),
        })
    }

    /// Waits until the socket is connected and the handshake is over. The last message of the client leaves
    /// together with the first request.
    pub(super) fn poll_connected(
        &mut self,
        socket: &MemberSocket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_connected {
            ready!(socket.poll_connected(cx))?;
            self.is_connected = true;
        }
        while self.client.is_handshaking() {
            ready!(self.poll_flush(socket, cx)).map_err(MemberTlsFailure::in_handshake)?;
            let received = ready!(self.poll_receive(socket, cx));
            if let Err(error) = received {
                // The alert tells the member the reason. The connection does not wait until the alert is
                // sent.
                let _ = self.poll_flush(socket, cx);
                return Poll::Ready(Err(MemberTlsFailure::in_handshake(error)));
            }
        }
        if self.requires_h2 && !self.client.has_chosen_h2() {
            return Poll::Ready(Err(MemberTlsFailure::without_h2()));
        }
        Poll::Ready(Ok(()))
    }

    /// Reads plaintext; returns 0 after the member's close_notify.
    pub(super) fn poll_read(
        &mut self,
        socket: &MemberSocket,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(read) = self.client.read(into)? {
                return Poll::Ready(Ok(read));
            }
            let is_in_place = self.client.opens_in_place() && into.len() >= RECORD_BYTES_MAX;
            let received = if is_in_place {
                ready!(self.poll_open(socket, cx, into))
            } else {
                ready!(self.poll_receive(socket, cx)).map(|()| 0)
            };
            // Sends an alert, or the answer to a request for new keys.
            let _ = self.poll_flush(socket, cx);
            match received.map_err(MemberTlsFailure::from_rustls)? {
                0 => {}
                read => return Poll::Ready(Ok(read)),
            }
        }
    }

    /// Reads from the socket into `into` and opens the records in place. Returns the length of the
    /// plaintext.
    fn poll_open(
        &mut self,
        socket: &MemberSocket,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let kept = self.client.copy_partial(into);
        match ready!(socket.poll_read(cx, &mut into[kept..]))? {
            0 => Poll::Ready(Err(truncated())),
            read => Poll::Ready(self.client.open(&mut into[..kept + read])),
        }
    }

    /// Reads once from the socket. The plaintext stays in the connection.
    fn poll_receive(
        &mut self,
        socket: &MemberSocket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut aside = ASIDE.take();
        aside.resize(RECORD_BYTES_MAX, 0);
        let kept = self.client.copy_partial(&mut aside);
        let received = match socket.poll_read(cx, &mut aside[kept..]) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(truncated())),
            Poll::Ready(Ok(read)) => Poll::Ready(self.client.receive(&mut aside[..kept + read])),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        ASIDE.set(aside);
        received
    }

    /// Seals bytes and returns their number. Ready once the socket has accepted the bytes of the calls
    /// before, so at most 32 KiB wait.
    pub(super) fn poll_write(
        &mut self,
        socket: &MemberSocket,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // The last message of the handshake leaves together with the first request.
        let waiting = self.client.unsent()?.len();
        let mut room = MEMBER_TLS_WRITE_BYTES_MAX.saturating_sub(waiting);
        if self.has_written || room == 0 {
            ready!(self.poll_flush(socket, cx))?;
            room = MEMBER_TLS_WRITE_BYTES_MAX;
        }
        self.has_written = true;
        let sealed = self.client.seal(&bytes[..bytes.len().min(room)])?;
        match self.poll_flush(socket, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(sealed)),
        }
    }

    /// Sends the sealed bytes.
    pub(super) fn poll_flush(
        &mut self,
        socket: &MemberSocket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let unsent = self.client.unsent()?;
            if unsent.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let sent = ready!(socket.poll_write(cx, unsent))?;
            self.client.note_sent(sent);
        }
    }

    /// Returns true if sealed bytes wait for the socket.
    pub(super) fn has_unsent(&self) -> bool {
        self.client.has_unsent()
    }

    /// Returns the number of sealed bytes that wait for the socket.
    #[cfg(test)]
    pub(super) fn unsent_bytes(&mut self) -> usize {
        self.client.unsent().map_or(0, <[u8]>::len)
    }

    /// Processes session tickets and new keys that have arrived on the idle connection. Returns true if
    /// nothing else has arrived.
    pub(super) fn is_quiet(&mut self, socket: &MemberSocket) -> bool {
        let mut noop = Context::from_waker(Waker::noop());
        while self.client.is_quiet() {
            if socket.is_quiet() {
                return true;
            }
            match self.poll_receive(socket, &mut noop) {
                Poll::Pending => return true,
                // Only TLS 1.3 has messages on an idle connection.
                Poll::Ready(Ok(())) if self.client.opens_in_place() => {
                    let _ = self.poll_flush(socket, &mut noop);
                }
                Poll::Ready(_) => return false,
            }
        }
        false
    }

    /// Sends close_notify, as far as the socket accepts bytes at once.
    pub(super) fn close(&mut self, socket: &MemberSocket) {
        if !self.is_connected {
            return;
        }
        self.client.close();
        while let Ok(unsent @ [_, ..]) = self.client.unsent() {
            match socket.try_write(unsent) {
                Ok(sent) => self.client.note_sent(sent),
                Err(_) => return,
            }
        }
    }
}

/// Makes the error for the end of a connection without close_notify (RFC 8446 §6.1): bytes may have been cut
/// off.
fn truncated() -> io::Error {
    let what = "the member closed the connection without close_notify";
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}
