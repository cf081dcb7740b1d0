//! IP addresses and ports as plain octets, for the parsers and encoders of wire formats, which use no
//! sockets.

use crate::number_text::push_address;
use std::net::{IpAddr, SocketAddr};

/// IP address as octets. The conversions turn an IPv4 address mapped into IPv6 into the IPv4 address, so that
/// a client has one address for access lists and shares.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum IpOctets {
    /// IPv4 address.
    V4([u8; 4]),
    /// IPv6 address that maps no IPv4 address.
    V6([u8; 16]),
}

/// IP address and port.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct IpEndpoint {
    /// IP address.
    pub address: IpOctets,
    /// Port of TCP or UDP.
    pub port: u16,
}

impl IpOctets {
    /// Parses an IPv4 address of four decimal numbers without leading zeros, or an IPv6 address (RFC 4291
    /// §2.2) without zone and brackets.
    pub fn parse(text: &[u8]) -> Option<IpOctets> {
        let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
        Some(address.into())
    }

    /// Appends the address as text, an IPv6 address in the format of RFC 5952 §4 without brackets.
    pub fn push(self, out: &mut Vec<u8>) {
        push_address(out, self.into());
    }
}

impl From<IpAddr> for IpOctets {
    fn from(address: IpAddr) -> IpOctets {
        match address.to_canonical() {
            IpAddr::V4(address) => IpOctets::V4(address.octets()),
            IpAddr::V6(address) => IpOctets::V6(address.octets()),
        }
    }
}

impl From<[u8; 4]> for IpOctets {
    fn from(octets: [u8; 4]) -> IpOctets {
        IpOctets::V4(octets)
    }
}

impl From<[u8; 16]> for IpOctets {
    fn from(octets: [u8; 16]) -> IpOctets {
        IpAddr::from(octets).into()
    }
}

impl From<IpOctets> for IpAddr {
    fn from(address: IpOctets) -> IpAddr {
        match address {
            IpOctets::V4(octets) => octets.into(),
            IpOctets::V6(octets) => octets.into(),
        }
    }
}

impl From<SocketAddr> for IpEndpoint {
    fn from(address: SocketAddr) -> IpEndpoint {
        IpEndpoint {
            address: address.ip().into(),
            port: address.port(),
        }
    }
}

impl From<IpEndpoint> for SocketAddr {
    fn from(endpoint: IpEndpoint) -> SocketAddr {
        SocketAddr::new(endpoint.address.into(), endpoint.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        let table = [
            ("192.0.2.1", "192.0.2.1"),
            ("0.0.0.0", "0.0.0.0"),
            ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
            ("::", "::"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:c000:201", "192.0.2.1"),
        ];
        for (text, written) in table {
            let address = IpOctets::parse(text.as_bytes()).expect("an address");
            let mut out = Vec::new();
            address.push(&mut out);
            assert_eq!(out, written.as_bytes(), "{text}");
            assert_eq!(IpOctets::from(IpAddr::from(address)), address);
        }
        for text in [
            "",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "1.2.3.256",
            "0x1.2.3.4",
            "1.2.3.4 ",
            ":::",
            "::1%1",
            "[::1]",
            "1:2:3:4:5:6:7",
            "12345::",
            "\u{661}.2.3.4",
            "1.2.3.4:80",
        ] {
            assert_eq!(IpOctets::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(IpOctets::parse(b"1.2.3.\xff"), None);
    }

    #[test]
    fn endpoints_are_converted() {
        let socket: SocketAddr = "[::ffff:192.0.2.1]:80".parse().expect("an address");
        let endpoint = IpEndpoint::from(socket);
        assert_eq!(endpoint.address, IpOctets::V4([192, 0, 2, 1]));
        assert_eq!(SocketAddr::from(endpoint).to_string(), "192.0.2.1:80");
    }
}
