//! QPACK (RFC 9204) without a dynamic table: decoder and encoder of field sections.
//!
//! A field section depends on no earlier one. One encoded section can be sent to every client, and decoding
//! never has to wait for another stream.

use super::error::{H3ConnectionError, H3ErrorCode};
use crate::hpack_primitives;
use crate::hpack_primitives::{
    MalformedPrimitive, fields_of_lines, integer, push_integer, push_string,
};

mod static_table;

pub use crate::h3::qpack::static_table::STATIC;

/// Buffers for strings during decoding, shared by all connections of a worker.
#[derive(Default)]
pub struct QpackScratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

const NO_TABLE: H3ConnectionError = H3ConnectionError::new(
    H3ErrorCode::QPACK_DECOMPRESSION_FAILED,
    "the dynamic table has a capacity of 0",
);

/// Decodes a complete field section and passes each field to `sink`, in order.
///
/// # Errors
/// The section is malformed or refers to the dynamic table, or `sink` failed.
pub fn decode(
    mut section: &[u8],
    strings: &mut QpackScratch,
    mut sink: impl FnMut(&[u8], &[u8]) -> Result<(), H3ConnectionError>,
) -> Result<(), H3ConnectionError> {
    // Required Insert Count, then Base, which has no meaning for a count of 0 (RFC 9204 §4.5.1).
    if integer(&mut section, 8)? != 0 {
        return Err(NO_TABLE);
    }
    integer(&mut section, 7)?;
    let QpackScratch { name, value } = strings;
    while let Some(&first) = section.first() {
        // Representations of RFC 9204 §4.5.2 to §4.5.6; only references to the static table are accepted.
        match first {
            0xc0.. => {
                let (name, value) = entry(integer(&mut section, 6)?)?;
                sink(name, value)?;
            }
            0x50..0x60 | 0x70..0x80 => {
                let (name, _) = entry(integer(&mut section, 4)?)?;
                sink(name, hpack_primitives::string(&mut section, 7, value)?)?;
            }
            0x20..0x40 => {
                let name = hpack_primitives::string(&mut section, 3, name)?;
                sink(name, hpack_primitives::string(&mut section, 7, value)?)?;
            }
            _ => return Err(NO_TABLE),
        }
    }
    Ok(())
}

fn entry(index: usize) -> Result<(&'static [u8], &'static [u8]), MalformedPrimitive> {
    let (name, value) = STATIC.get(index).ok_or(MalformedPrimitive)?;
    Ok((name.as_bytes(), value.as_bytes()))
}

/// Begins a section without pseudo-header fields: the prefix (RFC 9204 §4.5.1).
pub fn begin_section(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Begins a section: the prefix, and `:status`, the first field of a response.
pub fn push_status(status: u16, out: &mut Vec<u8>) {
    begin_section(out);
    let digit = |place: u16| b'0' + (status / place % 10) as u8;
    push_field(b":status", &[digit(100), digit(10), digit(1)], out);
}

/// Appends a field, with its name in lower case.
pub fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let is_same = |(known, _): &(&str, &str)| name.eq_ignore_ascii_case(known.as_bytes());
    let is_whole = |entry: &(&str, &str)| is_same(entry) && entry.1.as_bytes() == value;
    if let Some(index) = STATIC.iter().position(is_whole) {
        return push_integer(index, 6, 0xc0, out);
    }
    match STATIC.iter().position(is_same) {
        Some(index) => push_integer(index, 4, 0x50, out),
        None => push_string(&name.to_ascii_lowercase(), 3, 0x20, out),
    }
    push_string(value, 7, 0, out);
}

/// Appends the fields in the lines of an HTTP/1.1 head (each ends with CRLF), without the
/// connection-specific fields.
pub fn push_lines(lines: &[u8], out: &mut Vec<u8>) {
    for (name, value) in fields_of_lines(lines) {
        push_field(name, value, out);
    }
}

/// Appends a complete field section: `:status`, then the fields of `lines`.
pub fn push_head(status: u16, lines: &[u8], out: &mut Vec<u8>) {
    push_status(status, out);
    push_lines(lines, out);
}

/// Appends Date with its value of fixed length. The value is not Huffman-coded, to save time in
/// every response.
pub fn push_date(value: &[u8; 29], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x50 | DATE_INDEX, value.len() as u8]);
    out.extend_from_slice(value);
}

const DATE_INDEX: u8 = 6;
