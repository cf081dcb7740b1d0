//! Integers and strings of HPACK (RFC 7541 §5) and QPACK (RFC 9204 §4.1). The two formats differ only in
//! the number of prefix bits.

use crate::huffman;

/// Malformed integer or string: ends too early, or is out of range.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct MalformedPrimitive;

/// Decodes an integer with a prefix of `prefix_bits` bits (RFC 7541 §5.1).
pub(super) fn integer(block: &mut &[u8], prefix_bits: u32) -> Result<usize, MalformedPrimitive> {
    let (&first, mut rest) = block.split_first().ok_or(MalformedPrimitive)?;
    let prefix_max = u8::MAX >> (8 - prefix_bits);
    let mut number = usize::from(first & prefix_max);
    if first & prefix_max == prefix_max {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first().ok_or(MalformedPrimitive)?;
            rest = after;
            if shift > INTEGER_SHIFT_MAX {
                return Err(MalformedPrimitive);
            }
            number += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(number)
}

/// Largest shift of a continuation byte. Four continuation bytes cover every accepted number, and a bound
/// stops endless padding with zeros.
const INTEGER_SHIFT_MAX: u32 = 21;

/// Decodes a string (RFC 7541 §5.2): the Huffman bit, a length with a prefix of `prefix_bits` bits, and the
/// bytes. The result borrows the block, or `scratch` after Huffman decoding.
pub(super) fn string<'o, 'b: 'o, 's: 'o>(
    block: &mut &'b [u8],
    prefix_bits: u32,
    scratch: &'s mut Vec<u8>,
) -> Result<&'o [u8], MalformedPrimitive> {
    let is_coded = block
        .first()
        .is_some_and(|first| first >> prefix_bits & 1 == 1);
    let length = integer(block, prefix_bits)?;
    let (text, rest) = block.split_at_checked(length).ok_or(MalformedPrimitive)?;
    *block = rest;
    if !is_coded {
        return Ok(text);
    }
    scratch.clear();
    huffman::decode(text, scratch).map_err(|_| MalformedPrimitive)?;
    Ok(scratch)
}

/// Appends an integer, with `pattern` in the bits before its prefix.
pub(super) fn push_integer(number: usize, prefix_bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let prefix_max = usize::from(u8::MAX >> (8 - prefix_bits));
    if number < prefix_max {
        return out.push(pattern | number as u8);
    }
    out.push(pattern | prefix_max as u8);
    let mut rest = number - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string, Huffman-coded if shorter, with `pattern` in the bits before its prefix.
pub(super) fn push_string(text: &[u8], prefix_bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let coded = huffman::encoded_len(text);
    if coded < text.len() {
        push_integer(coded, prefix_bits, pattern | 1 << prefix_bits, out);
        huffman::encode(text, out);
    } else {
        push_integer(text.len(), prefix_bits, pattern, out);
        out.extend_from_slice(text);
    }
}

/// Iterates over the fields in the lines of an HTTP/1.1 head (each ends with CRLF), without the
/// connection-specific fields.
pub(super) fn fields_of_lines(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let field = |line: &'_ [u8]| -> Option<(usize, usize)> {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let is_hop = ["Connection", "Transfer-Encoding", "Keep-Alive"]
            .iter()
            .any(|hop| line[..colon].eq_ignore_ascii_case(hop.as_bytes()));
        (!is_hop).then_some((colon, line.len()))
    };
    lines.split(|byte| *byte == b'\n').filter_map(move |line| {
        let (colon, end) = field(line)?;
        Some((&line[..colon], line[colon + 1..end].trim_ascii()))
    })
}
