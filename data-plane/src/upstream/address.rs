//! Addresses of backends and members, the start of a connection, and the cause of a connection that fails.

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

/// Error of a connection from an address that this machine lacks.
#[derive(Debug)]
struct AddressMissing(IpAddr);

impl fmt::Display for AddressMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine has no address {} (`from`)", self.0)
    }
}

impl std::error::Error for AddressMissing {}

/// Returns the error of a socket that could not be bound to the address `from`. The socket gets its port later, so a
/// lack of ports is another error.
pub(super) fn bind_error(error: io::Error, from: IpAddr) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::ADDRNOTAVAIL) => io::Error::new(error.kind(), AddressMissing(from)),
        _ => error,
    }
}

/// Cause of a failed connection attempt.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConnectFault {
    /// The member or the network refused the connection, or did not answer.
    Member,
    /// The queue of the member's listening Unix socket is full (EAGAIN). A member on TCP with a full queue
    /// does not answer at all.
    Backlog,
    /// All local ports to the member's address are in use.
    LocalPorts,
    /// This machine lacks the address of `from`.
    LocalAddress,
    /// The process or the machine has no descriptors left.
    LocalDescriptors,
    /// The kernel has no memory for a socket.
    LocalMemory,
    /// A rule of the local firewall or of the security module forbids the connection.
    LocalRule,
}

impl ConnectFault {
    /// Returns the cause of `error`, the result of a connection attempt. `is_unix` is true for a Unix socket,
    /// where a lack of permissions is a fault of the socket file.
    pub(crate) fn of(error: &io::Error, is_unix: bool) -> ConnectFault {
        if error.get_ref().is_some_and(|it| it.is::<AddressMissing>()) {
            return ConnectFault::LocalAddress;
        }
        match Errno::from_io_error(error) {
            Some(Errno::AGAIN) => ConnectFault::Backlog,
            Some(Errno::ADDRNOTAVAIL) => ConnectFault::LocalPorts,
            Some(Errno::MFILE | Errno::NFILE) => ConnectFault::LocalDescriptors,
            Some(Errno::NOBUFS | Errno::NOMEM) => ConnectFault::LocalMemory,
            Some(Errno::ACCESS | Errno::PERM) if !is_unix => ConnectFault::LocalRule,
            _ => ConnectFault::Member,
        }
    }

    /// Returns true if the failure is evidence against the member.
    pub(crate) fn is_of_member(self) -> bool {
        self == ConnectFault::Member
    }

    /// Returns the advice for the operator; None if no setting of the machine helps.
    pub(crate) fn advice(self) -> Option<&'static str> {
        match self {
            ConnectFault::Member | ConnectFault::Backlog => None,
            ConnectFault::LocalPorts => Some(
                "no local port is left: widen net.ipv4.ip_local_port_range, raise `idle` or lower \
                 `connections` of the balancer",
            ),
            ConnectFault::LocalAddress => {
                Some("this machine lacks the address of `from`: see `ip address`")
            }
            ConnectFault::LocalDescriptors => Some(
                "no file descriptor is left: raise LimitNOFILE of the service, or lower `connections` of \
                 the server",
            ),
            ConnectFault::LocalMemory => {
                Some("the kernel has no memory for sockets: see net.ipv4.tcp_mem")
            }
            ConnectFault::LocalRule => Some(
                "a rule of the local firewall or of the security module forbids the connection",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
