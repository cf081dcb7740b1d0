//! PROXY protocol, versions 1 and 2 (haproxy's `doc/proxy-protocol.txt`): the header at the start of a
//! connection with which a proxy states the addresses of its client.
//!
//! A header decides on access and on shares, so a doubtful header is refused. The result depends on the bytes
//! alone, never on their split.

use crate::byte_search;
use crate::ip_endpoint::{IpEndpoint, IpOctets};
use crate::limits::PROXY_V2_HEADER_BYTES_MAX;
use crate::number_text::push_number;
use crate::reject::Reject;

/// Content of a PROXY header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProxyHeader {
    /// No addresses: the addresses of the connection itself apply. The proxy opened the connection for
    /// itself, for example to check this server (LOCAL), or cannot state addresses (UNKNOWN, AF_UNSPEC, unix
    /// sockets).
    Unknown,
    /// The proxy relays a connection.
    Relayed {
        /// Address of the client.
        source: IpEndpoint,
        /// Address that the client connected to.
        destination: IpEndpoint,
    },
}

/// Result of parsing the bytes received so far.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ParsedProxyHeader {
    /// Complete header.
    Complete {
        /// Content of the header.
        header: ProxyHeader,
        /// Length of the header; the bytes of the client follow.
        header_bytes: usize,
    },
    /// The header is incomplete.
    Partial,
}

/// Parses the header at the start of `buf`, the first bytes of a connection. A header of version 1 has at most
/// 107 bytes, a header of version 2 at most [`PROXY_V2_HEADER_BYTES_MAX`].
///
/// # Errors
/// The bytes begin no PROXY header, or the header is malformed.
pub fn parse_proxy_header(buf: &[u8]) -> Result<ParsedProxyHeader, Reject> {
    let begins = |signature: &[u8]| {
        let shared = buf.len().min(signature.len());
        buf[..shared] == signature[..shared]
    };
    let parsed = if begins(V1_SIGNATURE) {
        parse_v1(buf)
    } else if begins(V2_SIGNATURE) {
        parse_v2(buf)
    } else {
        return Err(Reject::PROXY_HEADER_MISSING);
    };
    parsed.ok_or(Reject::PROXY_HEADER_MALFORMED)
}

const V1_SIGNATURE: &[u8] = b"PROXY ";

/// Bytes of the longest line of version 1 with its line end, by the specification.
const V1_BYTES_MAX: usize = 107;

/// Parses the line of version 1; `None` if malformed.
fn parse_v1(buf: &[u8]) -> Option<ParsedProxyHeader> {
    let window = &buf[..buf.len().min(V1_BYTES_MAX)];
    let Some(line_feed) = byte_search::find(window, b'\n', 0) else {
        return (buf.len() < V1_BYTES_MAX).then_some(ParsedProxyHeader::Partial);
    };
    let line = window[..line_feed].strip_suffix(b"\r")?;
    Some(ParsedProxyHeader::Complete {
        header: v1_header(line.strip_prefix(V1_SIGNATURE)?)?,
        header_bytes: line_feed + 1,
    })
}

/// Parses the words behind `PROXY`. A receiver ignores the rest of the line behind UNKNOWN.
fn v1_header(text: &[u8]) -> Option<ProxyHeader> {
    let mut words = text.split(|byte| *byte == b' ');
    let is_v6 = match words.next()? {
        b"UNKNOWN" => return (!text.contains(&b'\r')).then_some(ProxyHeader::Unknown),
        b"TCP4" => false,
        b"TCP6" => true,
        _ => return None,
    };
    let mut address = || {
        let text = words.next()?;
        let address = IpOctets::parse(text)?;
        (text.contains(&b':') == is_v6).then_some(address)
    };
    let (source, destination) = (address()?, address()?);
    let (source_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    let header = ProxyHeader::Relayed {
        source: IpEndpoint {
            address: source,
            port: source_port,
        },
        destination: IpEndpoint {
            address: destination,
            port: destination_port,
        },
    };
    words.next().is_none().then_some(header)
}

/// Parses a port in decimal without leading zeros.
fn port(digits: &[u8]) -> Option<u16> {
    let is_canonical = match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let digits = std::str::from_utf8(digits).ok()?;
    is_canonical.then_some(digits)?.parse().ok()
}

const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of version 2 before the addresses: signature, command, family and length.
const V2_START_BYTES: usize = 16;

/// Version 2 and the command LOCAL.
const V2_LOCAL: u8 = 0x20;
/// Version 2 and the command PROXY.
const V2_PROXY: u8 = 0x21;

/// Parses the header of version 2; `None` if malformed.
fn parse_v2(buf: &[u8]) -> Option<ParsedProxyHeader> {
    let Some(&[command, family, high, low]) = buf
        .get(V2_SIGNATURE.len()..V2_START_BYTES)
        .and_then(|bytes| bytes.first_chunk())
    else {
        return Some(ParsedProxyHeader::Partial);
    };
    let header_bytes = V2_START_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if header_bytes > PROXY_V2_HEADER_BYTES_MAX || !matches!(command, V2_LOCAL | V2_PROXY) {
        return None;
    }
    let Some(bytes) = buf.get(..header_bytes) else {
        return Some(ParsedProxyHeader::Partial);
    };
    let header = match command {
        // The family and the rest of a LOCAL header are to be discarded.
        V2_LOCAL => ProxyHeader::Unknown,
        _ => v2_header(family, bytes)?,
    };
    Some(ParsedProxyHeader::Complete {
        header,
        header_bytes,
    })
}

/// Reads the addresses and checks the extensions of a complete header. The addresses of a datagram flow, such
/// as QUIC between client and proxy, are as valid as the addresses of a stream.
fn v2_header(family: u8, bytes: &[u8]) -> Option<ProxyHeader> {
    let rest = &bytes[V2_START_BYTES..];
    let (header, extensions) = match family {
        // AF_UNSPEC: a receiver ignores the rest.
        0x00 => return Some(ProxyHeader::Unknown),
        0x11 | 0x12 => relayed::<4>(rest)?,
        0x21 | 0x22 => relayed::<16>(rest)?,
        // Unix sockets: two paths of 108 bytes.
        0x31 | 0x32 => (ProxyHeader::Unknown, rest.get(2 * 108..)?),
        _ => return None,
    };
    are_extensions_valid(bytes, extensions).then_some(header)
}

/// Reads two addresses of `N` bytes and two ports, and returns the bytes behind.
fn relayed<const N: usize>(bytes: &[u8]) -> Option<(ProxyHeader, &[u8])>
where
    [u8; N]: Into<IpOctets>,
{
    let (source, rest) = bytes.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (&[a, b, c, d], rest) = rest.split_first_chunk()?;
    let endpoint = |address: [u8; N], port| IpEndpoint {
        address: address.into(),
        port: u16::from_be_bytes(port),
    };
    let header = ProxyHeader::Relayed {
        source: endpoint(*source, [a, b]),
        destination: endpoint(*destination, [c, d]),
    };
    Some((header, rest))
}

/// Type of the extension with a checksum of the header.
const CHECKSUM: u8 = 0x03;

/// Returns true if the extensions (type, length, value) fill the header exactly, and a checksum among them is
/// right. Other extensions have no effect.
fn are_extensions_valid(header: &[u8], mut extensions: &[u8]) -> bool {
    while let [kind, high, low, rest @ ..] = extensions {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((value, next)) = rest.split_at_checked(length) else {
            return false;
        };
        if *kind == CHECKSUM && !is_checksum(header, header.len() - rest.len(), value) {
            return false;
        }
        extensions = next;
    }
    extensions.is_empty()
}

/// Returns true if `value`, at position `at` of the header, is the CRC-32C of the header with zeros in place
/// of the value.
fn is_checksum(header: &[u8], at: usize, value: &[u8]) -> bool {
    let Ok(sent) = <[u8; 4]>::try_from(value) else {
        return false;
    };
    let parts = [&header[..at], &[0; 4], &header[at + 4..]];
    let crc = parts.iter().fold(!0, |crc, part| crc32c(crc, part));
    !crc == u32::from_be_bytes(sent)
}

/// Continues a CRC-32C (Castagnoli, reflected) over `bytes`. Headers are short and rare, so a table would gain
/// nothing.
fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0x82f6_3b78 * (crc & 1))
        })
    })
}

/// Appends a header of version 1.
pub fn push_v1(header: &ProxyHeader, out: &mut Vec<u8>) {
    out.extend_from_slice(V1_SIGNATURE);
    match header {
        ProxyHeader::Unknown => out.extend_from_slice(b"UNKNOWN"),
        ProxyHeader::Relayed {
            source,
            destination,
        } => {
            let is_v4 = is_v4(source) && is_v4(destination);
            out.extend_from_slice(if is_v4 { b"TCP4" } else { b"TCP6" });
            for endpoint in [source, destination] {
                out.push(b' ');
                // The addresses of one header belong to one family.
                if !is_v4 && matches!(endpoint.address, IpOctets::V4(_)) {
                    out.extend_from_slice(b"::ffff:");
                }
                endpoint.address.push(out);
            }
            for endpoint in [source, destination] {
                out.push(b' ');
                push_number(out, endpoint.port.into());
            }
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a header of version 2 without extensions.
pub fn push_v2(header: &ProxyHeader, out: &mut Vec<u8>) {
    out.extend_from_slice(V2_SIGNATURE);
    let ProxyHeader::Relayed {
        source,
        destination,
    } = header
    else {
        out.extend_from_slice(&[V2_LOCAL, 0x00, 0, 0]);
        return;
    };
    let is_v4 = is_v4(source) && is_v4(destination);
    let (family, length) = if is_v4 { (0x11, 12) } else { (0x21, 36) };
    out.extend_from_slice(&[V2_PROXY, family, 0, length]);
    for endpoint in [source, destination] {
        match endpoint.address {
            IpOctets::V4(octets) => {
                if !is_v4 {
                    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
                }
                out.extend_from_slice(&octets);
            }
            IpOctets::V6(octets) => out.extend_from_slice(&octets),
        }
    }
    for endpoint in [source, destination] {
        out.extend_from_slice(&endpoint.port.to_be_bytes());
    }
}

fn is_v4(endpoint: &IpEndpoint) -> bool {
    matches!(endpoint.address, IpOctets::V4(_))
}

#[cfg(test)]
mod tests;
