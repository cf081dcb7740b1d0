//! QPACK (RFC 9204) without a dynamic table: field sections to fields, and fields to sections.
//!
//! A section depends on nothing but itself. So one can be made once and sent to everybody, and none
//! has to wait for another.

use super::error::{H3ConnectionError, H3ErrorCode};
use crate::wire::hpack_primitives;
use crate::wire::hpack_primitives::{
    MalformedPrimitive, fields_of_lines, integer, push_integer, push_string,
};

mod static_table;

pub use crate::wire::h3::qpack::static_table::STATIC;

/// Where strings are put together while a section is decoded; for all connections of a worker.
#[derive(Default)]
pub struct QpackScratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

const NO_TABLE: H3ConnectionError = H3ConnectionError::new(
    H3ErrorCode::QPACK_DECOMPRESSION_FAILED,
    "there is no dynamic table",
);

/// Decodes one whole section; each field goes to `sink`, in order.
///
/// # Errors
/// It is malformed, or names what the dynamic table would hold; or those of `sink`.
pub fn decode(
    mut section: &[u8],
    strings: &mut QpackScratch,
    mut sink: impl FnMut(&[u8], &[u8]) -> Result<(), H3ConnectionError>,
) -> Result<(), H3ConnectionError> {
    // Required Insert Count, then Base, which says nothing without it (RFC 9204 §4.5.1).
    if integer(&mut section, 8)? != 0 {
        return Err(NO_TABLE);
    }
    integer(&mut section, 7)?;
    let QpackScratch { name, value } = strings;
    while let Some(&first) = section.first() {
        // RFC 9204 §4.5.2 to §4.5.6; of the bits that say so, the static table's is set.
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

/// Begins a section: its prefix, and `:status`, which stands first.
pub fn push_status(status: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
    let digit = |place: u16| b'0' + (status / place % 10) as u8;
    push_field(b":status", &[digit(100), digit(10), digit(1)], out);
}

/// Appends one field. Its name is written in small letters.
pub fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let is_same = |(known, _): &(&str, &str)| name.eq_ignore_ascii_case(known.as_bytes());
    let is_whole = |it: &(&str, &str)| is_same(it) && it.1.as_bytes() == value;
    if let Some(index) = STATIC.iter().position(is_whole) {
        return push_integer(index, 6, 0xc0, out);
    }
    match STATIC.iter().position(is_same) {
        Some(index) => push_integer(index, 4, 0x50, out),
        None => push_string(&name.to_ascii_lowercase(), 3, 0x20, out),
    }
    push_string(value, 7, 0, out);
}

/// Appends the fields of a head of HTTP/1.1 (lines that end with CRLF), but for those that are the
/// connection's there.
pub fn push_lines(lines: &[u8], out: &mut Vec<u8>) {
    for (name, value) in fields_of_lines(lines) {
        push_field(name, value, out);
    }
}

/// Makes a whole section: `:status`, then the fields of `lines`.
pub fn push_head(status: u16, lines: &[u8], out: &mut Vec<u8>) {
    push_status(status, out);
    push_lines(lines, out);
}

/// Appends Date, whose value has this one length; every response has it, so it isn't coded.
pub fn push_date(value: &[u8; 29], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x50 | DATE_INDEX, value.len() as u8]);
    out.extend_from_slice(value);
}

const DATE_INDEX: u8 = 6;
