//! Messages between the process that reads a UDP socket and the processes that read the socket before: received
//! datagrams with the addresses and the congestion mark from the network, and the two words with which the reader
//! changes. The processes may run different versions of the program, so the format stays: a message of another
//! kind is skipped.

use quinn::udp::{EcnCodepoint, RecvMeta};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Kind of a message, its first byte.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ForwardedKind {
    /// A received datagram follows the header.
    Datagram,
    /// The successor is about to read the socket: the predecessor stops reading.
    Begin,
    /// The predecessor reads the socket no more.
    Done,
}

/// Length of the header: kind, congestion mark, families of both addresses, port and scope of the source, source
/// address, local address.
pub(super) const HEADER_BYTES: usize = 42;
/// Header before a datagram.
pub(super) type ForwardedHeader = [u8; HEADER_BYTES];

const DATAGRAM: u8 = 1;
const BEGIN: u8 = 2;
const DONE: u8 = 3;

impl ForwardedKind {
    /// Returns the kind of a message that begins with `first`; None for a kind of a later version.
    pub(super) fn of(first: u8) -> Option<ForwardedKind> {
        match first {
            DATAGRAM => Some(ForwardedKind::Datagram),
            BEGIN => Some(ForwardedKind::Begin),
            DONE => Some(ForwardedKind::Done),
            _ => None,
        }
    }

    /// Returns the whole message for a kind without a datagram.
    pub(super) fn message(self) -> [u8; 1] {
        match self {
            ForwardedKind::Datagram => [DATAGRAM],
            ForwardedKind::Begin => [BEGIN],
            ForwardedKind::Done => [DONE],
        }
    }
}

/// Returns the header for a datagram.
pub(super) fn encode(meta: &RecvMeta) -> ForwardedHeader {
    let mut header = [0; HEADER_BYTES];
    header[0] = DATAGRAM;
    header[1] = meta.ecn.map_or(0, |mark| mark as u8);
    header[4..6].copy_from_slice(&meta.addr.port().to_be_bytes());
    if let SocketAddr::V6(source) = meta.addr {
        header[6..10].copy_from_slice(&source.scope_id().to_be_bytes());
    }
    header[2] = put_address(Some(meta.addr.ip()), &mut header[10..26]);
    header[3] = put_address(meta.dst_ip, &mut header[26..42]);
    header
}

/// Returns the description of a datagram of `length` bytes behind `header`; None for a header that no process writes.
pub(super) fn decode(header: &ForwardedHeader, length: usize) -> Option<RecvMeta> {
    if header[0] != DATAGRAM {
        return None;
    }
    let port = u16::from_be_bytes([header[4], header[5]]);
    let scope = u32::from_be_bytes([header[6], header[7], header[8], header[9]]);
    let addr = match address(header[2], &header[10..26])?? {
        IpAddr::V4(ip) => SocketAddr::V4(SocketAddrV4::new(ip, port)),
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope)),
    };
    Some(RecvMeta {
        addr,
        len: length,
        stride: length,
        ecn: EcnCodepoint::from_bits(header[1]),
        dst_ip: address(header[3], &header[26..42])?,
    })
}

const NO_ADDRESS: u8 = 0;
const IPV4: u8 = 4;
const IPV6: u8 = 6;

/// Writes an address into 16 bytes and returns the number of its family.
fn put_address(address: Option<IpAddr>, into: &mut [u8]) -> u8 {
    match address {
        None => NO_ADDRESS,
        Some(IpAddr::V4(ip)) => {
            into[..4].copy_from_slice(&ip.octets());
            IPV4
        }
        Some(IpAddr::V6(ip)) => {
            into.copy_from_slice(&ip.octets());
            IPV6
        }
    }
}

/// Reads an address of the family; the outer None stands for an unknown family.
fn address(family: u8, bytes: &[u8]) -> Option<Option<IpAddr>> {
    match family {
        NO_ADDRESS => Some(None),
        IPV4 => {
            let octets = bytes.first_chunk::<4>()?;
            Some(Some(Ipv4Addr::from(*octets).into()))
        }
        IPV6 => {
            let octets = bytes.first_chunk::<16>()?;
            Some(Some(Ipv6Addr::from(*octets).into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER_BYTES, decode, encode};
    use proptest::array::uniform;
    use proptest::prelude::any;
    use quinn::udp::{EcnCodepoint, RecvMeta};

    #[test]
    fn addresses_and_marks_survive() {
        let sources = [
            "192.0.2.7:4433",
            "[2001:db8::7]:1",
            "[fe80::1%3]:65535",
            "[::ffff:192.0.2.7]:9",
        ];
        let locals = [None, Some("192.0.2.1"), Some("2001:db8::1")];
        let marks = [
            None,
            Some(EcnCodepoint::Ect0),
            Some(EcnCodepoint::Ect1),
            Some(EcnCodepoint::Ce),
        ];
        for source in sources {
            for local in locals {
                for mark in marks {
                    let meta = RecvMeta {
                        addr: source.parse().unwrap(),
                        dst_ip: local.map(|local| local.parse().unwrap()),
                        ecn: mark,
                        ..RecvMeta::default()
                    };
                    let back = decode(&encode(&meta), 1_200).unwrap();
                    assert_eq!(
                        (back.addr, back.dst_ip, back.ecn),
                        (meta.addr, meta.dst_ip, mark)
                    );
                    assert_eq!((back.len, back.stride), (1_200, 1_200));
                }
            }
        }
    }

    proptest::proptest! {
        /// Any header is refused or describes a datagram of the given length.
        #[test]
        fn nonsense_is_refused_or_read(header in uniform::<_, HEADER_BYTES>(any::<u8>())) {
            if let Some(meta) = decode(&header, 9) {
                proptest::prop_assert_eq!(header[0], 1);
                proptest::prop_assert_eq!((meta.len, meta.stride), (9, 9));
            }
        }
    }
}
