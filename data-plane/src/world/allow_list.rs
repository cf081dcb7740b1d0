//! Access control by client address: the `allow` list of a route.
//!
//! An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is treated as the IPv4 address, both in the list and in
//! the client's address. A rule therefore applies to the connections of IPv4 and IPv6 sockets alike.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks with access. An empty list gives no client access.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct AllowList {
    v4: Vec<IpNetwork<u32>>,
    v6: Vec<IpNetwork<u128>>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct IpNetwork<T> {
    network: T,
    mask: T,
}

/// Error for an invalid entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowListError {
    /// Description of the mistake.
    pub what: String,
    /// Suggested correction.
    pub help: String,
}

impl AllowList {
    /// Adds an address (`192.0.2.1`, `2001:db8::1`) or a network (`192.0.2.0/24`, `2001:db8::/32`).
    pub fn add(&mut self, entry: &str) -> Result<(), AllowListError> {
        let (address, prefix) = parse(entry)?;
        let network: IpAddr = match address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & mask_v4(prefix)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & mask_v6(prefix)).into(),
        };
        if network != address {
            return Err(AllowListError {
                what: format!("`{entry}` is an address within a network, not a network"),
                help: format!(
                    "`{network}/{prefix}` is the network, `{address}` is the single address"
                ),
            });
        }
        match network {
            IpAddr::V4(v4) => self.v4.push(IpNetwork {
                network: v4.to_bits(),
                mask: mask_v4(prefix),
            }),
            IpAddr::V6(v6) => self.v6.push(IpNetwork {
                network: v6.to_bits(),
                mask: mask_v6(prefix),
            }),
        }
        Ok(())
    }

    /// Parses a list of entries. Fails with the error of the first invalid entry.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Result<AllowList, AllowListError> {
        let mut allow = AllowList::default();
        entries
            .into_iter()
            .try_for_each(|entry| allow.add(entry))
            .map(|()| allow)
    }

    /// Returns true for a list without networks.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Returns true if each network is within a network of `other`.
    pub fn is_within(&self, other: &AllowList) -> bool {
        let within = |inner: u128, mask: u128, outer: u128, bits: u128| {
            inner & bits == outer && mask & bits == bits
        };
        let v4 = |it: &IpNetwork<u32>| {
            let (network, mask) = (it.network.into(), it.mask.into());
            let mut outer = other.v4.iter();
            outer.any(|it| within(network, mask, it.network.into(), it.mask.into()))
        };
        let v6 = |it: &IpNetwork<u128>| {
            let mut outer = other.v6.iter();
            outer.any(|outer| within(it.network, it.mask, outer.network, outer.mask))
        };
        self.v4.iter().all(v4) && self.v6.iter().all(v6)
    }

    /// Returns true if `address` has access.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let bits = v4.to_bits();
                self.v4
                    .iter()
                    .any(|range| bits & range.mask == range.network)
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                self.v6
                    .iter()
                    .any(|range| bits & range.mask == range.network)
            }
        }
    }
}

/// Parses an entry into address and prefix length. An IPv4-mapped address becomes an IPv4 address. Host
/// bits may be set.
fn parse(entry: &str) -> Result<(IpAddr, u32), AllowListError> {
    let error = |what: &str, help: String| AllowListError {
        what: format!("`{entry}` {what}"),
        help,
    };
    let (address_text, prefix_text) = match entry.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (entry, None),
    };
    let address: IpAddr = address_text
        .parse()
        .map_err(|_| error("is not an IP address or network", EXAMPLES.to_owned()))?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix_text {
        None => bits,
        Some(text) => match text.parse::<u32>() {
            Ok(prefix) if prefix <= bits && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix
            }
            _ => {
                let what = "has a prefix length that is not a number of bits";
                let netmask = text.parse::<Ipv4Addr>().ok().and_then(prefix_of_netmask);
                return Err(match netmask.filter(|_| address.is_ipv4()) {
                    Some(prefix) => error(
                        "has a netmask instead of a prefix",
                        format!("`{address}/{prefix}` means the same"),
                    ),
                    None => error(what, format!("a number from 0 to {bits}")),
                });
            }
        },
    };
    match address.to_canonical() {
        // An IPv4-mapped network fixes all 96 bits above the IPv4 address.
        mapped @ IpAddr::V4(_) if address.is_ipv6() => match prefix.checked_sub(96) {
            Some(prefix) => Ok((mapped, prefix)),
            None => Err(error(
                "reaches beyond the IPv4 addresses in IPv6",
                "write IPv4 networks in the notation of IPv4, for example `192.0.2.0/24`"
                    .to_owned(),
            )),
        },
        same => Ok((same, prefix)),
    }
}

fn prefix_of_netmask(netmask: Ipv4Addr) -> Option<u32> {
    let prefix = netmask.to_bits().leading_ones();
    (mask_v4(prefix) == netmask.to_bits()).then_some(prefix)
}

fn mask_v4(prefix: u32) -> u32 {
    u32::MAX.checked_shl(32 - prefix).unwrap_or(0)
}

fn mask_v6(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128 - prefix).unwrap_or(0)
}

const EXAMPLES: &str = "like `192.0.2.7`, `192.0.2.0/24` or `2001:db8::/32`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_listed_networks_have_access() {
        #[rustfmt::skip]
        let table: &[(&str, &[&str], &[&str])] = &[
            ("192.168.0.0/24", &["192.168.0.0", "192.168.0.255", "::ffff:192.168.0.9"], &["192.168.1.0", "::", "::c0a8:1"]),
            ("10.0.0.0/8", &["10.255.255.255"], &["11.0.0.0", "9.255.255.255"]),
            ("192.0.2.7", &["192.0.2.7"], &["192.0.2.6", "192.0.2.8"]),
            ("192.0.2.7/32", &["192.0.2.7"], &["192.0.2.6"]),
            ("192.0.2.6/31", &["192.0.2.6", "192.0.2.7"], &["192.0.2.5", "192.0.2.8"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"], &["::1", "2001:db8::1"]),
            ("::ffff:192.168.0.0/120", &["192.168.0.77", "::ffff:192.168.0.1"], &["192.168.1.1"]),
            ("::ffff:192.168.0.7", &["192.168.0.7"], &["192.168.0.8"]),
            ("2001:db8::/32", &["2001:db8::", "2001:db8:ffff::1"], &["2001:db9::", "32.1.13.184"]),
            ("2001:db8::1", &["2001:db8::1"], &["2001:db8::2"]),
            ("::1", &["::1"], &["::2", "127.0.0.1"]),
            ("::/0", &["::1", "2001:db8::1"], &["192.0.2.1", "::ffff:192.0.2.1"]),
            ("fe80::/10", &["fe80::1", "febf::1"], &["fec0::1"]),
        ];
        for (entry, inside, outside) in table {
            let allow = AllowList::parse([*entry]).unwrap();
            for address in *inside {
                assert!(
                    allow.contains(address.parse().unwrap()),
                    "{entry} {address}"
                );
            }
            for address in *outside {
                assert!(
                    !allow.contains(address.parse().unwrap()),
                    "{entry} {address}"
                );
            }
        }
        assert!(!AllowList::default().contains("127.0.0.1".parse().unwrap()));
        let both = AllowList::parse(["192.0.2.0/24", "::1", "10.0.0.0/8"]).unwrap();
        assert!(
            ["192.0.2.1", "::1", "10.1.1.1"]
                .iter()
                .all(|address| both.contains(address.parse().unwrap()))
        );
    }

    #[test]
    fn invalid_entries_are_refused_with_a_valid_example() {
        #[rustfmt::skip]
        let table = [
            ("192.168.0.5/24", "within a network", "`192.168.0.0/24` is the network, `192.168.0.5` is the single address"),
            ("2001:db8::1/32", "within a network", "`2001:db8::/32` is the network"),
            ("::ffff:192.168.0.5/120", "within a network", "`192.168.0.0/24`"),
            ("1.2.3.4/0", "within a network", "`0.0.0.0/0`"),
            ("192.168.0.0/33", "prefix", "0 to 32"),
            ("2001:db8::/129", "prefix", "0 to 128"),
            ("192.168.0.0/", "prefix", "0 to 32"),
            ("192.168.0.0/+8", "prefix", "0 to 32"),
            ("192.168.0.0/255.255.255.0", "netmask", "`192.168.0.0/24`"),
            ("192.168.0.0/255.0.255.0", "prefix", "0 to 32"),
            ("::ffff:0.0.0.0/64", "beyond", "192.0.2.0/24"),
            ("192.168.0", "not an IP address", "192.0.2.7"),
            ("192.168.0.*", "not an IP address", "192.0.2.7"),
            ("192.168.00.1", "not an IP address", "192.0.2.7"),
            ("localhost", "not an IP address", "192.0.2.7"),
            ("fe80::1%eth0", "not an IP address", "192.0.2.7"),
            (" 10.0.0.1", "not an IP address", "192.0.2.7"),
            ("", "not an IP address", "192.0.2.7"),
        ];
        for (entry, what, help) in table {
            let mut allow = AllowList::default();
            let error = allow.add(entry).unwrap_err();
            assert!(
                error.what.contains(what) && error.help.contains(help),
                "{entry} {error:?}"
            );
            assert!(error.what.contains(entry));
            assert_eq!(allow, AllowList::default(), "nothing was added");
        }
    }
}
