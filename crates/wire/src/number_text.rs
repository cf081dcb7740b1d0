//! Numbers and addresses as text, appended to a buffer. Every response contains numbers, so the functions
//! avoid allocation and the formatting machinery of the standard library.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Appends a number in decimal.
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends an address. An IPv4 address mapped into IPv6 is written as IPv4.
pub fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => push_v4(out, address),
        IpAddr::V6(address) => push_v6(out, address),
    }
}

fn push_v4(out: &mut Vec<u8>, address: Ipv4Addr) {
    let mut text = [0; V4_BYTES_MAX];
    let mut end = 0;
    for octet in address.octets() {
        for (divisor, min) in [(100, 100), (10, 10), (1, 0)] {
            if octet >= min {
                text[end] = b'0' + octet / divisor % 10;
                end += 1;
            }
        }
        text[end] = b'.';
        end += 1;
    }
    out.extend_from_slice(&text[..end - 1]);
}

/// Bytes of the longest IPv4 address, with a dot behind each number.
const V4_BYTES_MAX: usize = 16;

/// Appends an address in the format of RFC 5952 §4: the first longest run of at least two zero groups is
/// written as `::`.
fn push_v6(out: &mut Vec<u8>, address: Ipv6Addr) {
    let segments = address.segments();
    let (mut run, mut best) = (0..0, 0..0);
    for (nth, &segment) in segments.iter().enumerate() {
        if segment != 0 {
            run = nth + 1..nth + 1;
        } else {
            run.end = nth + 1;
            if run.len() > best.len() && run.len() > 1 {
                best = run.clone();
            }
        }
    }
    for (nth, &segment) in segments.iter().enumerate() {
        if best.contains(&nth) {
            if nth == best.start {
                out.extend_from_slice(b"::");
            }
            continue;
        }
        if nth > 0 && nth != best.end {
            out.push(b':');
        }
        let digits = (16 - segment.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            out.push(b"0123456789abcdef"[usize::from(segment >> (4 * digit) & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_at_their_ends() {
        for number in [0, 9, 10, 99, 100, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    proptest! {
        #[test]
        fn addresses_as_the_standard_library_writes_them(bits in any::<u128>(), zeros in any::<u8>(), v4 in any::<u32>()) {
            let mut segments = Ipv6Addr::from(bits).segments();
            for (nth, segment) in segments.iter_mut().enumerate() {
                if zeros & 1 << nth != 0 { *segment = 0 }
            }
            let v6 = Ipv6Addr::from(segments);
            let mut out = Vec::new();
            push_v6(&mut out, v6);
            let written = String::from_utf8(out).unwrap();
            prop_assert_eq!(written.parse::<Ipv6Addr>().unwrap(), v6);
            // The standard library writes the last 32 bits of mapped addresses as IPv4, and `push_v6` never
            // gets mapped addresses.
            if v6.to_ipv4_mapped().is_none() {
                prop_assert_eq!(written, v6.to_string());
            }
            let mut out = Vec::new();
            push_address(&mut out, IpAddr::V4(v4.into()));
            prop_assert_eq!(String::from_utf8(out).unwrap(), Ipv4Addr::from(v4).to_string());
        }
    }
}
