//! Classes of failed connection attempts: faults of the member, and shortages of this machine. Pure.

use rustix::io::Errno;
use std::fmt;
use std::io;
use std::net::IpAddr;

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
mod tests {
    use super::*;

    #[test]
    fn shortages_of_this_machine_are_no_faults_of_the_member() {
        let table = [
            (Errno::CONNREFUSED, false, ConnectFault::Member),
            (Errno::HOSTUNREACH, false, ConnectFault::Member),
            (Errno::AGAIN, true, ConnectFault::Backlog),
            (Errno::ADDRNOTAVAIL, false, ConnectFault::LocalPorts),
            (Errno::MFILE, false, ConnectFault::LocalDescriptors),
            (Errno::NFILE, true, ConnectFault::LocalDescriptors),
            (Errno::NOBUFS, false, ConnectFault::LocalMemory),
            (Errno::NOMEM, false, ConnectFault::LocalMemory),
            (Errno::PERM, false, ConnectFault::LocalRule),
            (Errno::ACCESS, false, ConnectFault::LocalRule),
            (Errno::ACCESS, true, ConnectFault::Member),
        ];
        for (errno, is_unix, fault) in table {
            assert_eq!(ConnectFault::of(&errno.into(), is_unix), fault, "{errno}");
        }
        let from = IpAddr::from([192, 0, 2, 1]);
        let missing = bind_error(Errno::ADDRNOTAVAIL.into(), from);
        assert_eq!(
            ConnectFault::of(&missing, false),
            ConnectFault::LocalAddress
        );
        let other = bind_error(Errno::NOMEM.into(), from);
        assert_eq!(ConnectFault::of(&other, false), ConnectFault::LocalMemory);
        let unknown = io::Error::from(io::ErrorKind::AddrNotAvailable);
        assert_eq!(ConnectFault::of(&unknown, false), ConnectFault::Member);
    }
}
