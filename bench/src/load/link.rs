//! A byte stream to the server: a non-blocking socket, with or without TLS.
//!
//! Reads go through one large buffer shared by all connections of a thread. An idle connection therefore
//! needs no buffer, and a large response needs few system calls.

use std::io::{self, BufRead, IoSlice, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

/// A connection, established or being established.
#[derive(Debug)]
pub(super) enum Link {
    /// TCP without TLS.
    Plain(OwnedFd),
    /// TLS over TCP.
    Tls(OwnedFd, Box<ClientConnection>),
}

/// Result of one read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Whether the socket may have more bytes.
    pub more: bool,
    /// How the server closed the connection, or `None` if the connection is open.
    pub end: Option<End>,
}

/// How a server closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Regular close.
    Clean,
    /// Close without the close_notify alert that TLS requires. The end may be a truncation by an attacker.
    Cut,
}

/// TLS configuration for the connections of a thread.
#[derive(Debug, Clone)]
pub(super) struct TlsStart {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl Link {
    /// Begins a connection from the local address `source`. The connection is established when the socket
    /// becomes writable.
    pub(super) fn connect(
        address: SocketAddr,
        source: Option<IpAddr>,
        tls: Option<&TlsStart>,
    ) -> io::Result<Link> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(source) = source {
            bind(&socket, &SocketAddr::new(source, 0))?;
        }
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(match tls {
            None => Link::Plain(socket),
            Some(start) => {
                let session = ClientConnection::new(Arc::clone(&start.config), start.name.clone());
                Link::Tls(socket, Box::new(session.map_err(io::Error::other)?))
            }
        })
    }

    /// Returns true if a TLS handshake is in progress.
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Link::Plain(_) => false,
            Link::Tls(_, session) => session.is_handshaking(),
        }
    }

    /// Returns whether the handshake resumed an earlier session, or `None` without TLS.
    pub(super) fn resumed(&self) -> Option<bool> {
        match self {
            Link::Plain(_) => None,
            Link::Tls(_, session) => Some(session.handshake_kind() == Some(HandshakeKind::Resumed)),
        }
    }

    /// Sends a prefix of `bytes` and returns its length. With TLS all bytes are accepted, and records that
    /// the socket doesn't take are kept for [`Link::flush`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Link::Plain(socket) => match rustix::io::write(&*socket, bytes) {
                Err(Errno::AGAIN) => Ok(0),
                sent => Ok(sent?),
            },
            Link::Tls(_, session) => {
                session.writer().write_all(bytes)?;
                self.flush()?;
                Ok(bytes.len())
            }
        }
    }

    /// Sends pending TLS records until the socket blocks.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Link::Tls(socket, session) = self {
            while session.wants_write() {
                match session.write_tls(&mut Socket(socket.as_fd())) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Reads once and passes the received bytes to `take`.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]),
    ) -> io::Result<Received> {
        let length = match rustix::io::read(self.as_fd(), &mut *buffer) {
            Ok(0) => {
                return Ok(Received {
                    more: false,
                    end: Some(self.end()),
                });
            }
            Ok(length) => length,
            Err(Errno::AGAIN) => return Ok(Received::default()),
            Err(error) => return Err(error.into()),
        };
        let mut received = Received {
            more: length == buffer.len(),
            end: None,
        };
        match self {
            Link::Plain(_) => take(&buffer[..length]),
            Link::Tls(_, session) => {
                let read = decrypt(session, &buffer[..length], take);
                // Sends the next handshake message, or the alert for a failed handshake.
                let flushed = self.flush();
                // Some servers wait for the client to close the socket after their close_notify (RFC 8446
                // §6.1).
                received.end = read?.then_some(End::Clean);
                flushed?;
            }
        }
        Ok(received)
    }

    /// Returns how the server closed the connection, after the end of the stream.
    fn end(&mut self) -> End {
        match self {
            Link::Plain(_) => End::Clean,
            // A reader without a close_notify fails with WouldBlock.
            Link::Tls(_, session) => match session.reader().fill_buf() {
                Ok([]) => End::Clean,
                _ => End::Cut,
            },
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Link::Plain(socket) | Link::Tls(socket, _) => socket.as_fd(),
        }
    }
}

/// Decrypts records and passes their content to `take`. Returns true if the server has closed.
fn decrypt(
    session: &mut ClientConnection,
    mut wire: &[u8],
    mut take: impl FnMut(&[u8]),
) -> io::Result<bool> {
    let mut closed = false;
    while !wire.is_empty() {
        // rustls accepts nothing after a close_notify.
        if session.read_tls(&mut wire)? == 0 {
            break;
        }
        let state = session.process_new_packets().map_err(io::Error::other)?;
        closed = state.peer_has_closed();
        let mut reader = session.reader();
        while let Ok(content) = reader.fill_buf() {
            let length = content.len();
            if length == 0 {
                break;
            }
            take(content);
            reader.consume(length);
        }
    }
    Ok(closed)
}

/// A socket with vectored writes.
struct Socket<'a>(BorrowedFd<'a>);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, pieces)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
