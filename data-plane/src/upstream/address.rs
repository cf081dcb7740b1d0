//! Addresses of backends, and the start of a connection.

use crate::upstream::connect_fault::bind_error;
use base::sys;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Address of a backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackendAddress {
    /// A Unix socket with its path in the file system.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// Options of the socket for a new connection.
#[derive(Copy, Clone, Default)]
pub(crate) struct ConnectOptions {
    /// Local address; None for the choice of the kernel.
    pub from: Option<IpAddr>,
    /// Bound of the receive buffer in bytes; None for the choice of the kernel.
    pub receive_bytes: Option<u32>,
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            BackendAddress::Tcp(address) => address.fmt(f),
        }
    }
}

impl BackendAddress {
    /// Starts connecting; returns the socket, and true if the connection is established.
    pub(crate) fn begin_connecting(&self) -> io::Result<(OwnedFd, bool)> {
        self.begin_connecting_with(ConnectOptions::default())
    }

    /// Starts connecting; returns the socket, and true if the connection is established. A Unix socket has neither
    /// a local address nor a window.
    pub(crate) fn begin_connecting_with(
        &self,
        options: ConnectOptions,
    ) -> io::Result<(OwnedFd, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = SocketType::STREAM;
        let (socket, connected) = match self {
            BackendAddress::Unix(path) => {
                let address = SocketAddrUnix::new(path.as_path())?;
                let socket = socket_with(AddressFamily::UNIX, stream, flags, None)?;
                let connected = connect(&socket, &address);
                (socket, connected)
            }
            BackendAddress::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                };
                let socket = socket_with(family, stream, flags, None)?;
                sockopt::set_tcp_nodelay(&socket, true)?;
                if let Some(from) = options.from {
                    let bound = sys::bind_without_port(socket.as_fd(), from);
                    bound.map_err(|error| bind_error(error, from))?;
                }
                if let Some(bytes) = options.receive_bytes {
                    sys::begin_receive_buffer(socket.as_fd(), bytes)?;
                }
                let connected = connect(&socket, address);
                if options.receive_bytes.is_some() {
                    sys::keep_receive_buffer(socket.as_fd());
                }
                (socket, connected)
            }
        };
        match connected {
            Ok(()) => Ok((socket, true)),
            Err(Errno::INPROGRESS) => Ok((socket, false)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
