//! `ClientNetwork`: the key by which clients are counted, and the rule for how much one client may take of a shared bound.

use std::net::{IpAddr, Ipv6Addr};

/// The key by which a client is counted: an IPv4 address, or the /64 network of an IPv6 address.
///
/// A host with IPv6 usually has a /64 network of its own and may use any address in the network, so the
/// number of IPv6 addresses says nothing about the number of clients. Wider networks count as one client where they hold
/// much (`base::network_table`).
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientNetwork(IpAddr);

impl From<IpAddr> for ClientNetwork {
    /// Converts an address. An IPv4 address mapped into IPv6 (`::ffff:192.0.2.1`) counts as IPv4.
    fn from(address: IpAddr) -> ClientNetwork {
        ClientNetwork(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

impl ClientNetwork {
    /// Returns the bytes of the key. An IPv4 address is written as an address mapped into IPv6.
    pub fn octets(self) -> [u8; 16] {
        match self.0 {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        }
    }

    /// Returns the first 64 bits of an IPv6 network; None for an IPv4 address.
    pub fn ipv6_prefix(self) -> Option<u64> {
        match self.0 {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((address.to_bits() >> 64) as u64),
        }
    }
}

/// Returns true if a client that holds `own` units of a bound may take one more, while all clients together
/// hold `all` of `bound`. See [`may_take_more`].
pub fn may_take(own: usize, all: usize, bound: usize) -> bool {
    may_take_more(own, all, 1, bound)
}

/// Returns true if a client that holds `own` units of a bound may take `more` units, while all clients
/// together hold `all` of `bound`.
///
/// A share binds only when the bound is nearly taken. Any client may use the first three quarters of the
/// bound, so a household behind one address loses nothing on a quiet server. The last quarter is for
/// clients that hold at most an eighth of the bound, and at least one unit.
pub fn may_take_more(own: usize, all: usize, more: usize, bound: usize) -> bool {
    let [own, all] = [own, all].map(|held| held.saturating_add(more));
    all <= bound && (all <= bound - bound / 4 || own <= share_of(bound))
}

/// Share of one client in a bound: an eighth. A client has at least this share in the last quarter of the bound, and a
/// wide network that holds more counts as one client.
pub fn share_of(bound: usize) -> usize {
    (bound / 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> ClientNetwork {
        let address: IpAddr = text.parse().expect("an address");
        address.into()
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
    }

    #[test]
    fn a_share_binds_when_the_bound_is_nearly_taken() {
        // Columns: own, all, bound, allowed.
        let table = [
            (0, 0, 16, true),
            (11, 11, 16, true),
            (12, 12, 16, false),
            (1, 12, 16, true),
            (2, 12, 16, false),
            (0, 15, 16, true),
            (0, 16, 16, false),
            (0, 0, 1, true),
            (0, 1, 1, false),
            (1, 1, 2, true),
        ];
        for (own, all, bound, allowed) in table {
            assert_eq!(may_take(own, all, bound), allowed, "{own} {all} {bound}");
        }
    }
}
