use super::*;
use crate::invariants;
use proptest::prelude::*;

/// Returns the header of a complete text, which must be consumed except for `GET`.
fn complete(bytes: &[u8]) -> ProxyHeader {
    let text = [bytes, b"GET"].concat();
    invariants::proxy_header(&text);
    for end in 0..bytes.len() {
        let parsed = parse_proxy_header(&bytes[..end]);
        assert_eq!(parsed, Ok(ParsedProxyHeader::Partial), "{end}");
    }
    match parse_proxy_header(&text) {
        Ok(ParsedProxyHeader::Complete {
            header,
            header_bytes,
        }) if header_bytes == bytes.len() => header,
        other => panic!("{}: {other:?}", bytes.escape_ascii()),
    }
}

fn endpoint(address: &str, port: u16) -> IpEndpoint {
    let address = IpOctets::parse(address.as_bytes()).expect("an address");
    IpEndpoint { address, port }
}

fn relayed(source: (&str, u16), destination: (&str, u16)) -> ProxyHeader {
    ProxyHeader::Relayed {
        source: endpoint(source.0, source.1),
        destination: endpoint(destination.0, destination.1),
    }
}

#[test]
fn lines_of_version_1_are_read() {
    let table = [
        (
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            relayed(("192.168.0.1", 56_324), ("192.168.0.11", 443)),
        ),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            relayed(("255.255.255.255", 65_535), ("255.255.255.255", 65_535)),
        ),
        (
            "PROXY TCP6 2001:DB8::1 ::1 0 1\r\n",
            relayed(("2001:db8::1", 0), ("::1", 1)),
        ),
        (
            "PROXY TCP6 ::ffff:192.0.2.1 ::1 5 6\r\n",
            relayed(("192.0.2.1", 5), ("::1", 6)),
        ),
        ("PROXY UNKNOWN\r\n", ProxyHeader::Unknown),
        (
            "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
            ProxyHeader::Unknown,
        ),
    ];
    for (line, header) in table {
        assert_eq!(complete(line.as_bytes()), header, "{line}");
    }
    let longest = format!(
        "PROXY TCP6 {0} {0} 65535 65535\r\n",
        "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    );
    assert_eq!(longest.len(), 104);
    complete(longest.as_bytes());
    complete(format!("PROXY UNKNOWN {}\r\n", "x".repeat(107 - 16)).as_bytes());
}

#[test]
fn malformed_lines_of_version_1_are_refused() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        "PROXY TCP4  1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY  TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4\t1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP4 ::ffff:1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP6 ::1 5.6.7.8 1 2\r\n",
        "PROXY TCP6 [::1] ::1 1 2\r\n",
        "PROXY TCP6 ::1%1 ::1 1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 65536 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 -2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8  2\r\n",
        "PROXY tcp4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY UNKNOWN\n",
        "PROXY UNKNOWN\r\r\n",
        "PROXY UNKNOWN a\rb\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\0\r\n",
    ] {
        let parsed = parse_proxy_header(line.as_bytes());
        assert_eq!(parsed, Err(Reject::PROXY_HEADER_MALFORMED), "{line:?}");
        invariants::proxy_header(line.as_bytes());
    }
    let long = |bytes: usize| format!("PROXY UNKNOWN {}", "x".repeat(bytes - 14));
    let parsed = parse_proxy_header(long(106).as_bytes()).map(|_| ());
    assert_eq!(parsed, Ok(()));
    for over in [long(107), long(106) + "\r\n"] {
        let parsed = parse_proxy_header(over.as_bytes());
        assert_eq!(parsed, Err(Reject::PROXY_HEADER_MALFORMED));
    }
}

#[test]
fn a_missing_header_is_refused_at_the_first_byte_that_differs() {
    for text in [
        "GET / HTTP/1.1",
        "PO",
        "PROXX",
        "PROXY\r\n",
        "proxy ",
        "\r\n\r\n\0\r\nQUIP",
        "\x16\x03",
        "\n",
    ] {
        let parsed = parse_proxy_header(text.as_bytes());
        assert_eq!(parsed, Err(Reject::PROXY_HEADER_MISSING), "{text:?}");
        let bytes = text.as_bytes();
        let shorter = parse_proxy_header(&bytes[..bytes.len() - 1]);
        assert!(shorter == parsed || shorter == Ok(ParsedProxyHeader::Partial));
    }
}

/// Composes a header of version 2.
fn v2(command: u8, family: u8, rest: &[&[u8]]) -> Vec<u8> {
    let rest = rest.concat();
    let length = u16::try_from(rest.len()).expect("a short header");
    [
        &V2_SIGNATURE[..],
        &[command, family],
        &length.to_be_bytes(),
        &rest,
    ]
    .concat()
}

const V4_ADDRESSES: &[u8] = &[192, 0, 2, 1, 192, 0, 2, 2, 0x12, 0x34, 0x01, 0xbb];

#[test]
fn headers_of_version_2_are_read() {
    let v4 = relayed(("192.0.2.1", 0x1234), ("192.0.2.2", 443));
    let mut v6_addresses = [0; 36];
    v6_addresses[15] = 1;
    v6_addresses[16..32].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    v6_addresses[33] = 7;
    let v6 = relayed(("::1", 7), ("192.0.2.1", 0));
    let unix = [b'/'; 216];
    let alpn = b"\x01\x00\x02h2";
    let noop = b"\x04\x00\x00";
    let large = [&[0xea, 0x03, 0xd9][..], &[0; 0x3d9][..]].concat();
    let table: &[(Vec<u8>, ProxyHeader)] = &[
        (v2(0x21, 0x11, &[V4_ADDRESSES]), v4),
        (v2(0x21, 0x12, &[V4_ADDRESSES]), v4),
        (v2(0x21, 0x11, &[V4_ADDRESSES, alpn, noop]), v4),
        (v2(0x21, 0x11, &[V4_ADDRESSES, &large]), v4),
        (v2(0x21, 0x21, &[&v6_addresses]), v6),
        (v2(0x21, 0x22, &[&v6_addresses, alpn]), v6),
        (v2(0x21, 0x31, &[&unix]), ProxyHeader::Unknown),
        (v2(0x21, 0x32, &[&unix, alpn]), ProxyHeader::Unknown),
        (v2(0x21, 0x00, &[]), ProxyHeader::Unknown),
        (v2(0x21, 0x00, &[b"anything"]), ProxyHeader::Unknown),
        (v2(0x20, 0x00, &[]), ProxyHeader::Unknown),
        (v2(0x20, 0x11, &[V4_ADDRESSES]), ProxyHeader::Unknown),
        (v2(0x20, 0xff, &[b"anything"]), ProxyHeader::Unknown),
    ];
    for (bytes, header) in table {
        assert_eq!(complete(bytes), *header, "{}", bytes.escape_ascii());
    }
}

#[test]
fn malformed_headers_of_version_2_are_refused() {
    let table = [
        v2(0x22, 0x11, &[V4_ADDRESSES]),
        v2(0x2f, 0x11, &[V4_ADDRESSES]),
        v2(0x11, 0x11, &[V4_ADDRESSES]),
        v2(0x31, 0x11, &[V4_ADDRESSES]),
        v2(0x01, 0x11, &[V4_ADDRESSES]),
        v2(0x21, 0x10, &[V4_ADDRESSES]),
        v2(0x21, 0x13, &[V4_ADDRESSES]),
        v2(0x21, 0x01, &[V4_ADDRESSES]),
        v2(0x21, 0x41, &[V4_ADDRESSES]),
        v2(0x21, 0x11, &[]),
        v2(0x21, 0x11, &[&V4_ADDRESSES[..11]]),
        v2(0x21, 0x21, &[V4_ADDRESSES]),
        v2(0x21, 0x21, &[&[0; 35]]),
        v2(0x21, 0x31, &[&[0; 215]]),
        v2(0x21, 0x11, &[V4_ADDRESSES, &[4]]),
        v2(0x21, 0x11, &[V4_ADDRESSES, &[4, 0]]),
        v2(0x21, 0x11, &[V4_ADDRESSES, &[4, 0, 1]]),
        v2(0x21, 0x11, &[V4_ADDRESSES, &[4, 0, 1, 2, 3]]),
        v2(0x21, 0x11, &[V4_ADDRESSES, &[3, 0, 0]]),
        v2(0x21, 0x11, &[V4_ADDRESSES, &[3, 0, 4, 0, 0, 0, 0]]),
        v2(0x20, 0x00, &[&[0; PROXY_V2_HEADER_BYTES_MAX - 15]]),
    ];
    for bytes in table {
        let parsed = parse_proxy_header(&bytes);
        assert_eq!(
            parsed,
            Err(Reject::PROXY_HEADER_MALFORMED),
            "{}",
            bytes.escape_ascii()
        );
        invariants::proxy_header(&bytes);
    }
    complete(&v2(0x20, 0x00, &[&[0; PROXY_V2_HEADER_BYTES_MAX - 16]]));
}

#[test]
fn checksums_are_verified() {
    assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    let mut bytes = v2(
        0x21,
        0x11,
        &[V4_ADDRESSES, &[3, 0, 4, 0, 0, 0, 0], b"\x04\x00\x00"],
    );
    let crc = !crc32c(!0, &bytes);
    let at = bytes.len() - 7;
    bytes[at..at + 4].copy_from_slice(&crc.to_be_bytes());
    assert!(matches!(complete(&bytes), ProxyHeader::Relayed { .. }));
    for broken in 16..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[broken] ^= 0x10;
        // A changed type of the checksum's extension leaves a header without a checksum.
        let is_checked = broken != 28;
        assert_eq!(parse_proxy_header(&bytes).is_err(), is_checked, "{broken}");
    }
}

#[test]
fn headers_are_written() {
    let v4 = relayed(("192.0.2.1", 80), ("192.0.2.2", 443));
    let v6 = relayed(("2001:db8::1", 80), ("::1", 443));
    let mixed = relayed(("192.0.2.1", 80), ("::1", 443));
    let table = [
        (v4, "PROXY TCP4 192.0.2.1 192.0.2.2 80 443\r\n", 28),
        (v6, "PROXY TCP6 2001:db8::1 ::1 80 443\r\n", 52),
        (mixed, "PROXY TCP6 ::ffff:192.0.2.1 ::1 80 443\r\n", 52),
        (ProxyHeader::Unknown, "PROXY UNKNOWN\r\n", 16),
    ];
    for (header, line, bytes) in table {
        let mut out = Vec::new();
        push_v1(&header, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), line);
        assert_eq!(complete(&out), header);
        let mut out = Vec::new();
        push_v2(&header, &mut out);
        assert_eq!((out.len(), complete(&out)), (bytes, header));
    }
}

fn endpoints() -> impl Strategy<Value = IpEndpoint> {
    let address = prop_oneof![
        any::<[u8; 4]>().prop_map(IpOctets::from),
        any::<[u8; 16]>().prop_map(IpOctets::from),
    ];
    (address, any::<u16>()).prop_map(|(address, port)| IpEndpoint { address, port })
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        invariants::proxy_header(&bytes);
        let mut signed = V2_SIGNATURE.to_vec();
        signed.extend_from_slice(&bytes);
        invariants::proxy_header(&signed);
    }

    #[test]
    fn invariants_of_near_lines(
        line in "PROXY (TCP4|TCP6|UNKNOWN)( [0-9.]{7}| ::1| [0-9]{1,5}){3,5}(\r\n|\n|\r)x?"
    ) {
        invariants::proxy_header(line.as_bytes());
    }

    #[test]
    fn written_headers_are_read_back(source in endpoints(), destination in endpoints()) {
        let header = ProxyHeader::Relayed { source, destination };
        let (mut v1, mut v2) = (Vec::new(), Vec::new());
        push_v1(&header, &mut v1);
        push_v2(&header, &mut v2);
        prop_assert_eq!(complete(&v1), header);
        prop_assert_eq!(complete(&v2), header);
    }
}
