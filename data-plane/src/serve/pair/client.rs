//! Clients of a test at the other ends of socket pairs.

use crate::handler::pipe::PipeWriter;
use crate::serve::pair::call::write_some;
use crate::serve::pair::worker::Pair;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, socketpair, sockopt,
};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// Client at the other end of a connection.
pub(in crate::serve) struct PairClient {
    pair: Pair,
    socket: OwnedFd,
    /// End of the server's direction, once read.
    pub(in crate::serve) end: Option<PairEnd>,
}

/// End of the server's direction of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::serve) enum PairEnd {
    Closed,
    Reset,
}

/// Size of the send buffer of a narrow connection; the kernel has a larger minimum.
const NARROW_BYTES: usize = 1;

impl PairClient {
    /// Opens a connection without TLS.
    pub(in crate::serve) fn connect(pair: &Pair) -> PairClient {
        PairClient::over(pair, sockets(), false)
    }

    /// Opens a connection of a listener with TLS.
    pub(in crate::serve) fn connect_secure(pair: &Pair) -> PairClient {
        PairClient::over(pair, sockets(), true)
    }

    /// Opens a connection without TLS for which the kernel holds only a few unread bytes of the server, so that each
    /// byte that the client takes shows soon.
    pub(in crate::serve) fn connect_narrow(pair: &Pair) -> PairClient {
        let (server, client) = sockets();
        sockopt::set_socket_send_buffer_size(&server, NARROW_BYTES).expect("a socket");
        PairClient::over(pair, (server, client), false)
    }

    /// Opens a connection over TCP on loopback, where a client can tell a reset from an end. The network may be late, so
    /// tests wait for the end by [`PairClient::receive_to_end`].
    pub(in crate::serve) fn connect_tcp(pair: &Pair) -> PairClient {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("a connection");
        let (server, _) = listener.accept().expect("a connection");
        for socket in [&client, &server] {
            socket.set_nonblocking(true).expect("a socket");
        }
        PairClient::over(pair, (server.into(), client.into()), false)
    }

    /// Opens a connection on the first of two connected sockets. The client has the second.
    fn over(pair: &Pair, sockets: (OwnedFd, OwnedFd), secure: bool) -> PairClient {
        let (server, socket) = sockets;
        pair.open(server, secure);
        PairClient {
            pair: pair.clone(),
            socket,
            end: None,
        }
    }

    /// Sends `bytes`, for which the kernel has room, and lets the worker run.
    #[track_caller]
    pub(in crate::serve) fn send(&self, bytes: &[u8]) {
        assert_eq!(self.send_some(bytes), bytes.len());
    }

    /// Sends as many of `bytes` as the worker and the kernel take. Returns their number.
    pub(in crate::serve) fn send_some(&self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() {
            match rustix::net::send(&self.socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(more) => sent += more,
                Err(_) => {
                    let before = self.pair.bytes_received();
                    self.pair.settle();
                    if self.pair.bytes_received() == before {
                        break;
                    }
                }
            }
        }
        self.pair.settle();
        sent
    }

    /// Receives all bytes that the server sends until it waits.
    pub(in crate::serve) fn receive(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.pair.settle();
        loop {
            let bytes = self.take(usize::MAX);
            if bytes.is_empty() {
                return all;
            }
            all.extend_from_slice(&bytes);
        }
    }

    /// Receives all bytes up to the end of the server's direction.
    pub(in crate::serve) fn receive_to_end(&mut self) -> Vec<u8> {
        let pair = self.pair.clone();
        let mut all = Vec::new();
        pair.settle_until(|| {
            all.extend_from_slice(&self.take(usize::MAX));
            self.end.is_some()
        });
        all
    }

    /// Receives at most `max` bytes that wait in the kernel, and lets the worker run.
    pub(in crate::serve) fn take(&mut self, max: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        let mut part = vec![0; max.min(1 << 16)];
        while taken.len() < max && self.end.is_none() {
            let most = part.len().min(max - taken.len());
            match rustix::net::recv(&self.socket, &mut part[..most], RecvFlags::empty()) {
                Ok((0, _)) => self.end = Some(PairEnd::Closed),
                Ok((read, _)) => taken.extend_from_slice(&part[..read]),
                Err(Errno::AGAIN) => break,
                Err(_) => self.end = Some(PairEnd::Reset),
            }
        }
        self.pair.settle();
        taken
    }

    /// Receives all bytes as text.
    pub(in crate::serve) fn receive_text(&mut self) -> String {
        String::from_utf8_lossy(&self.receive()).into_owned()
    }

    /// Returns true if the server has sent nothing and keeps the connection open.
    pub(in crate::serve) fn hears_nothing(&mut self) -> bool {
        self.receive().is_empty() && self.end.is_none()
    }

    /// Returns true if the server has closed the connection without a further byte.
    pub(in crate::serve) fn hears_the_end(&mut self) -> bool {
        self.receive().is_empty() && self.end.is_some()
    }

    /// Returns the number of bytes that wait in the kernel for the client.
    pub(in crate::serve) fn unread(&self) -> usize {
        rustix::io::ioctl_fionread(&self.socket).expect("a socket") as usize
    }

    /// Ends the client's direction.
    pub(in crate::serve) fn finish(&self) {
        // The server may have closed the connection.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        self.pair.settle();
    }

    /// Closes the connection in both directions.
    pub(in crate::serve) fn close(self) {
        let PairClient { pair, socket, .. } = self;
        drop(socket);
        pair.settle();
    }
}

/// Makes a pair of sockets.
fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let ends = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    ends.expect("a pair of sockets")
}

/// Writes bytes until the pipe stays full although the worker runs. Returns their number.
pub(in crate::serve) fn fill(pair: &Pair, writer: &mut PipeWriter) -> usize {
    let mut total = 0;
    loop {
        let written = write_some(writer, &[b'x'; 4_096]);
        pair.settle();
        if written == 0 {
            return total;
        }
        total += written;
    }
}
