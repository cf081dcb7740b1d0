//! Free ports for servers that can't choose a port themselves.
//!
//! Ports are taken from below the kernel's ephemeral range. A port of the ephemeral range may be free when
//! checked and become the local port of a connection a moment later.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

/// Finder of ports without a listener.
#[derive(Debug)]
pub(crate) struct Free {
    host: IpAddr,
    next: u16,
    end: u16,
    taken: Vec<u16>,
}

/// Error of an unavailable port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Another process listens on the port.
    #[error("port in use: {0}")]
    InUse(SocketAddr),
    /// Listening on the port is not permitted.
    #[error("can't listen on {0}: {1}")]
    Refused(SocketAddr, io::Error),
    /// No free port was found.
    #[error("no free port on {0}")]
    NoneFree(IpAddr),
}

impl Free {
    /// Creates a finder for the ports of one address.
    pub(crate) fn new(host: IpAddr) -> Free {
        let range =
            fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let end = clients_begin(&range)
            .unwrap_or(FIRST_OF_CLIENTS)
            .max(FIRST + 1000);
        // Kits running at the same time begin at different ports.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.subsec_nanos());
        let chance = u64::from(now / 1000) ^ (u64::from(std::process::id()) << 7);
        let next = FIRST + (chance % u64::from(end - FIRST)) as u16;
        Free {
            host,
            next,
            end,
            taken: Vec::new(),
        }
    }

    /// Returns `wanted` if the port is free. For 0, returns any free port.
    pub(crate) fn take(&mut self, wanted: u16) -> Result<u16, PortError> {
        if wanted != 0 {
            return self.try_port(wanted).map(|()| wanted);
        }
        for _ in 0..TRIES {
            let port = self.next;
            self.next = if port + 1 < self.end { port + 1 } else { FIRST };
            // HTTP/3 uses the UDP port of the same number.
            let udp = UdpSocket::bind((self.host, port));
            if !self.taken.contains(&port) && udp.is_ok() && self.try_port(port).is_ok() {
                self.taken.push(port);
                return Ok(port);
            }
        }
        Err(PortError::NoneFree(self.host))
    }

    fn try_port(&self, port: u16) -> Result<(), PortError> {
        let address = SocketAddr::new(self.host, port);
        match TcpListener::bind(address) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(PortError::InUse(address))
            }
            Err(error) => Err(PortError::Refused(address, error)),
        }
    }
}

fn clients_begin(range: &str) -> Option<u16> {
    range.split_whitespace().next()?.parse().ok()
}

const FIRST: u16 = 10_000;
/// The kernel's default.
const FIRST_OF_CLIENTS: u16 = 32_768;
const TRIES: usize = 2_000;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn ports_are_free_distinct_and_below_the_ephemeral_range() {
        let mut free = Free::new(Ipv4Addr::LOCALHOST.into());
        let ports: Vec<u16> = (0..20)
            .map(|_| free.take(0).expect("a free port"))
            .collect();
        let mut once = ports.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), ports.len());
        assert!(ports.iter().all(|port| (FIRST..free.end).contains(port)));
        assert_eq!(clients_begin("32768\t60999\n"), Some(32_768));
    }

    #[test]
    fn a_port_in_use_is_named() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a local address");
        let error = Free::new(address.ip())
            .take(address.port())
            .expect_err("the port is in use");
        assert_eq!(error.to_string(), format!("port in use: {address}"));
    }
}
