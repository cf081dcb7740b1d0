//! A socket, plain or under TLS, read and written in single system calls.
//!
//! rustls is driven directly: one `recv` goes straight into its buffer, and what it encrypted leaves
//! in one `send`.

use super::socket::Socket;
use crate::tls::{Choice, Handshake};
use rustls::ProtocolVersion;
use rustls::ServerConnection;
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// One connection's bytes.
pub struct Stream {
    /// The TCP socket; the worker's table holds it too, to end it at a deadline.
    pub socket: Rc<Socket>,
    /// TLS above it, if any.
    pub tls: Option<Handshake>,
}

impl Stream {
    /// The TLS connection once its certificate is chosen.
    pub fn tls_mut(&mut self) -> Option<&mut ServerConnection> {
        match self.tls.as_mut() {
            Some(Handshake::Ready(connection)) => Some(connection),
            _ => None,
        }
    }

    /// The version of TLS that was agreed on.
    pub fn tls_version(&self) -> Option<ProtocolVersion> {
        match self.tls.as_ref() {
            Some(Handshake::Ready(connection)) => connection.protocol_version(),
            _ => None,
        }
    }

    /// Reads plaintext into `into`; 0 = the peer ended its side.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let socket = &*self.socket;
        let Some(tls) = self.tls.as_mut() else {
            return socket.poll_read(cx, into);
        };
        if let Handshake::Choosing(_) = tls {
            ready!(poll_choose(socket, tls, cx))?;
        }
        match tls {
            Handshake::Ready(connection) => poll_fill_tls(socket, connection, cx, into),
            Handshake::Choosing(_) => Poll::Pending,
        }
    }

    /// Sends what TLS has encrypted and not yet handed to the socket.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(Handshake::Ready(connection)) = self.tls.as_mut() else {
            return Poll::Ready(Ok(()));
        };
        poll_flush_tls(&self.socket, connection, cx)
    }

    /// Writes plain bytes in one call (over TLS: encrypts them all; flush afterwards).
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.tls_mut() {
            Some(connection) => Poll::Ready(connection.writer().write_vectored(slices)),
            None => self.socket.poll_write(cx, slices),
        }
    }

    /// Says goodbye under TLS, as far as the socket takes it now.
    pub fn close_notify(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = self.tls_mut() {
            connection.send_close_notify();
        }
        let _ = self.poll_flush(cx);
    }
}

/// Reads the ClientHello and decides which configuration answers it.
fn poll_choose(socket: &Socket, tls: &mut Handshake, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    while let Handshake::Choosing(choosing) = tls {
        match choosing.choose(&mut Reading { socket, cx }) {
            Ok(Choice::More) => {}
            Ok(Choice::Ready(mut connection)) => {
                let processed = connection.process_new_packets().map(drop);
                *tls = Handshake::Ready(connection);
                processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            Ok(Choice::Refused { alert, error }) => {
                // The alert tells the peer what was wrong; nobody waits for it to be taken.
                let _ = Writing { socket, cx }.write(&alert);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

fn poll_fill_tls(
    socket: &Socket,
    connection: &mut ServerConnection,
    cx: &mut Context<'_>,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        // A flight of the handshake must leave now. The tickets of TLS 1.3 wait for the first
        // response and leave with it: one send less for each new connection.
        let may_wait = !connection.is_handshaking()
            && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        if !may_wait && connection.wants_write() {
            ready!(poll_flush_tls(socket, connection, cx))?;
        }
        match connection.reader().read(into) {
            Ok(read) => return Poll::Ready(Ok(read)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Closed without close_notify: no request can be cut by it, since heads and bodies say
            // their own ends.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Poll::Ready(Ok(0));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
        match connection.read_tls(&mut Reading { socket, cx }) {
            Ok(0) => return Poll::Ready(Ok(0)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        match connection.process_new_packets() {
            Ok(_) => {}
            Err(error) => {
                // The alert tells the peer what was wrong; nobody waits for it to be taken.
                let _ = poll_flush_tls(socket, connection, cx);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
            }
        }
    }
}

fn poll_flush_tls(
    socket: &Socket,
    connection: &mut ServerConnection,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while connection.wants_write() {
        match connection.write_tls(&mut Writing { socket, cx }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// The socket as rustls wants to read it.
struct Reading<'a, 'c, 'w> {
    socket: &'a Socket,
    cx: &'c mut Context<'w>,
}

impl Read for Reading<'_, '_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.socket.poll_read(self.cx, into) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The socket as rustls wants to write it.
struct Writing<'a, 'c, 'w> {
    socket: &'a Socket,
    cx: &'c mut Context<'w>,
}

impl Write for Writing<'_, '_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.socket.poll_write(self.cx, slices) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
