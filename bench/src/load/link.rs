//! A connection as bytes in order: a non-blocking socket, with or without TLS on it.
//!
//! Reads go through one large buffer that all connections of a thread share, so that an idle
//! connection costs nothing and a large response few system calls.

use std::io::{self, BufRead, IoSlice, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind};

/// A connection, from before it stands.
#[derive(Debug)]
pub(super) enum Link {
    /// TCP alone.
    Plain(OwnedFd),
    /// TLS over TCP.
    Tls(OwnedFd, Box<ClientConnection>),
}

/// What reading brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Whether the socket may hold more.
    pub more: bool,
    /// Whether the server closed, and how.
    pub end: Option<End>,
}

/// How a server closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// In order.
    Clean,
    /// Without the word that TLS demands, so that it could be anybody who cut it.
    Cut,
}

/// The TLS that connections of a thread begin with.
#[derive(Debug, Clone)]
pub(super) struct TlsStart {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl Link {
    /// Begins a connection; it stands when the socket can be written to.
    pub(super) fn connect(address: SocketAddr, tls: Option<&TlsStart>) -> io::Result<Link> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
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

    /// Whether there is TLS whose handshake isn't finished.
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Link::Plain(_) => false,
            Link::Tls(_, session) => session.is_handshaking(),
        }
    }

    /// Whether the handshake took up an earlier session; `None` without TLS.
    pub(super) fn resumed(&self) -> Option<bool> {
        match self {
            Link::Plain(_) => None,
            Link::Tls(_, session) => Some(session.handshake_kind() == Some(HandshakeKind::Resumed)),
        }
    }

    /// Sends what it can of `bytes` and tells how much that was; TLS takes all and keeps what the
    /// socket doesn't take for [`Link::flush`].
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

    /// Sends what TLS has to send, as far as the socket takes it.
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

    /// Reads once, and hands on what the server said.
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
                // A handshake's answer, or the alert that says why there is none.
                let flushed = self.flush();
                // Some wait for us to close the socket after they have closed TLS (RFC 8446 §6.1).
                received.end = read?.then_some(End::Clean);
                flushed?;
            }
        }
        Ok(received)
    }

    /// How the server closed, when it has.
    fn end(&mut self) -> End {
        match self {
            Link::Plain(_) => End::Clean,
            // An empty reader that isn't at its end fails with WouldBlock.
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

/// Takes records and hands on their content. Says whether the server has closed.
fn decrypt(
    session: &mut ClientConnection,
    mut wire: &[u8],
    mut take: impl FnMut(&[u8]),
) -> io::Result<bool> {
    let mut closed = false;
    while !wire.is_empty() {
        // It takes nothing more after a close_notify.
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

/// A socket to write to, several pieces at once.
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
