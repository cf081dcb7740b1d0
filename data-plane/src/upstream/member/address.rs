//! Address of a member: configured, or the addresses of a host name.

use crate::upstream::address::BackendAddress;
use crate::upstream::resolver::{ResolvedName, Resolver};
use balancer::settings::MemberHost;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

/// Address of a member.
pub(crate) enum MemberAddress {
    /// An IP address or a Unix socket.
    Fixed(BackendAddress),
    /// A host name.
    Named(NamedAddress),
}

/// Host name and port of a member.
pub(crate) struct NamedAddress {
    name: Arc<ResolvedName>,
    port: u16,
    /// Number of connections begun. Each connection starts at the next address.
    begun: AtomicUsize,
}

impl MemberAddress {
    /// Returns the address of a configured host. `resolver` looks a name up.
    pub(crate) fn new(host: &MemberHost, resolver: &Resolver) -> MemberAddress {
        match host {
            MemberHost::Address(address) => MemberAddress::Fixed(BackendAddress::Tcp(*address)),
            MemberHost::Unix(path) => MemberAddress::Fixed(BackendAddress::Unix(path.clone())),
            MemberHost::Name(name, port) => MemberAddress::Named(NamedAddress {
                name: resolver.name(name),
                port: *port,
                begun: AtomicUsize::new(0),
            }),
        }
    }
}

/// Address of an established connection, with the last comparison with the addresses of the host name.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnOrigin {
    /// Address of the member; None for a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// Number of [`ResolvedName::losses`] at the last comparison; 0 before.
    compared_at: u64,
}

impl ConnOrigin {
    /// Origin of a connection to `address`.
    pub(super) fn new(address: &BackendAddress) -> ConnOrigin {
        ConnOrigin {
            address: match address {
                BackendAddress::Tcp(address) => Some(address.ip()),
                BackendAddress::Unix(_) => None,
            },
            compared_at: 0,
        }
    }
}

impl MemberAddress {
    /// Returns true if a connection leads to the member: its address has not left the answers of the name server.
    /// A request may begin on such a connection only.
    #[inline]
    pub(super) fn is_current(&self, origin: &mut ConnOrigin) -> bool {
        match self {
            MemberAddress::Fixed(_) => true,
            MemberAddress::Named(named) => named.is_current(origin),
        }
    }

    /// Returns true for a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, MemberAddress::Fixed(BackendAddress::Unix(_)))
    }
}

impl NamedAddress {
    fn is_current(&self, origin: &mut ConnOrigin) -> bool {
        let losses = self.name.losses();
        if origin.compared_at == losses {
            return true;
        }
        let is_kept = origin.address.is_none_or(|it| self.name.keeps(it));
        if is_kept {
            origin.compared_at = losses;
        }
        is_kept
    }

    /// Returns the addresses for one connection, and waits only for the end of the first look-up. With a local
    /// address `from`, the addresses are those of its family, IPv4 or IPv6. Fails if the name has no address.
    pub(super) fn poll_candidates(
        &self,
        from: Option<IpAddr>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<AddressCandidates>> {
        let name = self.name.name();
        let Some(addresses) = ready!(self.name.poll_addresses(cx)) else {
            let what = format!("the host name {name} has no address");
            return Poll::Ready(Err(io::Error::other(what)));
        };
        let Some(addresses) = reachable(addresses, from) else {
            let family = if from.is_some_and(|from| from.is_ipv4()) {
                "IPv4"
            } else {
                "IPv6"
            };
            let what = format!("the host name {name} has no {family} address, as `from` requires");
            return Poll::Ready(Err(io::Error::other(what)));
        };
        Poll::Ready(Ok(AddressCandidates {
            start: self.begun.fetch_add(1, Ordering::Relaxed) % addresses.len(),
            addresses,
            port: self.port,
            tried: 0,
        }))
    }
}

/// Returns the addresses of the family of `from`, or None without such an address.
fn reachable(addresses: Arc<[IpAddr]>, from: Option<IpAddr>) -> Option<Arc<[IpAddr]>> {
    let reaches = |to: &IpAddr| from.is_none_or(|from| from.is_ipv4() == to.is_ipv4());
    if addresses.iter().all(reaches) {
        return Some(addresses);
    }
    let addresses: Arc<[IpAddr]> = addresses.iter().copied().filter(reaches).collect();
    (!addresses.is_empty()).then_some(addresses)
}

/// Addresses of a host name in the order of the attempts of one connection.
pub(super) struct AddressCandidates {
    addresses: Arc<[IpAddr]>,
    port: u16,
    start: usize,
    tried: usize,
}

impl AddressCandidates {
    /// Returns the number of addresses; at least 1.
    pub(super) fn address_count(&self) -> usize {
        self.addresses.len()
    }
}

impl Iterator for AddressCandidates {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        if self.tried == self.addresses.len() {
            return None;
        }
        let at = (self.start + self.tried) % self.addresses.len();
        self.tried += 1;
        Some(SocketAddr::new(self.addresses[at], self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn each_connection_starts_at_the_next_address_and_tries_all() {
        let addresses = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        let resolver = Resolver::new(Arc::new(move |_: &str| Ok(addresses.to_vec())));
        let host = MemberHost::Name("a.example".into(), 80);
        let MemberAddress::Named(named) = MemberAddress::new(&host, &resolver) else {
            panic!("the host is a name");
        };
        resolver.refresh(0);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let mut orders = Vec::new();
        for _ in 0..4 {
            let candidates = runtime.block_on(poll_fn(|cx| named.poll_candidates(None, cx)));
            let order: Vec<u8> = candidates
                .unwrap()
                .map(|address| match address {
                    SocketAddr::V4(address) => address.ip().octets()[3],
                    SocketAddr::V6(_) => 0,
                })
                .collect();
            orders.push(order);
        }
        assert_eq!(
            orders,
            [vec![1, 2, 3], vec![2, 3, 1], vec![3, 1, 2], vec![1, 2, 3]]
        );
    }

    #[test]
    fn a_local_address_reaches_the_addresses_of_its_family() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let all: Arc<[IpAddr]> = ["192.0.2.1", "2001:db8::1", "192.0.2.2"]
            .map(address)
            .into();
        let found = |from: Option<&str>| {
            let reachable = reachable(Arc::clone(&all), from.map(address))?;
            Some(
                reachable
                    .iter()
                    .map(IpAddr::to_string)
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        assert_eq!(
            found(None).as_deref(),
            Some("192.0.2.1 2001:db8::1 192.0.2.2")
        );
        assert_eq!(
            found(Some("10.0.0.1")).as_deref(),
            Some("192.0.2.1 192.0.2.2")
        );
        assert_eq!(found(Some("::1")).as_deref(), Some("2001:db8::1"));
        let only: Arc<[IpAddr]> = [address("192.0.2.1")].into();
        assert_eq!(reachable(only, Some(address("::1"))), None);
    }
}
