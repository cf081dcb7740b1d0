//! HPACK (RFC 7541): decoder and encoder of field blocks.
//!
//! The decoder maintains the dynamic table that the peer builds. The encoder uses the static table alone:
//! without state for a connection, one encoded block can be sent to every client.

use super::error::{H2ConnectionError, H2ErrorCode};
use super::settings::TABLE_BYTES;
use crate::hpack_primitives;
use crate::hpack_primitives::{MalformedPrimitive, fields_of_lines, integer, push_integer};
use std::collections::VecDeque;

mod static_table;

pub use crate::h2::hpack::static_table::STATIC;

/// HPACK decoder with the peer's dynamic table; the newest entry is last.
#[derive(Default)]
pub struct HpackDecoder {
    entries: VecDeque<DynamicTableEntry>,
    /// Names and values of the entries, concatenated. Bytes before the oldest entry are no longer used.
    text: Vec<u8>,
    /// Number of bytes removed from the front of `text` so far (wrapping).
    cut: u32,
    /// Size of the table by RFC 7541 §4.1.
    size: usize,
    /// Difference between the default size and the size set by the peer.
    less: usize,
}

struct DynamicTableEntry {
    /// Position of the entry, counted (wrapping) from the first byte ever stored in the table.
    start: u32,
    name_bytes: u16,
    value_bytes: u16,
}

impl DynamicTableEntry {
    fn bytes(&self) -> usize {
        usize::from(self.name_bytes) + usize::from(self.value_bytes)
    }
}

/// Buffers for strings during decoding, shared by all connections of a worker.
#[derive(Default)]
pub struct HpackScratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Size counted for each entry beside its name and value (RFC 7541 §4.1).
pub const ENTRY_OVERHEAD: usize = 32;
const TABLE_BYTES_MAX: usize = TABLE_BYTES as usize;

impl From<MalformedPrimitive> for H2ConnectionError {
    fn from(_: MalformedPrimitive) -> H2ConnectionError {
        MALFORMED
    }
}

const MALFORMED: H2ConnectionError =
    H2ConnectionError::new(H2ErrorCode::COMPRESSION_ERROR, "malformed field block");

impl HpackDecoder {
    /// Decodes a complete block and passes each field to `sink`, in order.
    pub fn decode(
        &mut self,
        mut block: &[u8],
        strings: &mut HpackScratch,
        mut sink: impl FnMut(&[u8], &[u8]) -> Result<(), H2ConnectionError>,
    ) -> Result<(), H2ConnectionError> {
        let mut at_start = true;
        while let Some(&first) = block.first() {
            match first {
                0x80.. => {
                    let index = integer(&mut block, 7)?;
                    let (name, value) = self.entry(index)?;
                    sink(name, value)?;
                }
                0x40.. => self.literal(&mut block, 6, true, strings, &mut sink)?,
                // Size updates are allowed only at the start of a block (RFC 7541 §4.2).
                0x20.. if at_start => {
                    let bytes = integer(&mut block, 5)?;
                    self.resize(bytes)?;
                    continue;
                }
                0x20.. => return Err(MALFORMED),
                // Literals without indexing and never-indexed literals are decoded alike.
                _ => self.literal(&mut block, 4, false, strings, &mut sink)?,
            }
            at_start = false;
        }
        Ok(())
    }

    /// Returns the heap memory in bytes.
    pub fn held_bytes(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<DynamicTableEntry>()
    }

    fn literal(
        &mut self,
        block: &mut &[u8],
        prefix_bits: u32,
        is_kept: bool,
        strings: &mut HpackScratch,
        sink: &mut impl FnMut(&[u8], &[u8]) -> Result<(), H2ConnectionError>,
    ) -> Result<(), H2ConnectionError> {
        let HpackScratch { name, value } = strings;
        let index = integer(block, prefix_bits)?;
        let name: &[u8] = match index {
            0 => string(block, name)?,
            _ if is_kept => {
                // Inserting the field may evict the entry that holds its name.
                name.clear();
                name.extend_from_slice(self.entry(index)?.0);
                name
            }
            _ => {
                let value = string(block, value)?;
                return sink(self.entry(index)?.0, value);
            }
        };
        let value = string(block, value)?;
        sink(name, value)?;
        if is_kept {
            self.insert(name, value);
        }
        Ok(())
    }

    /// Returns the entry of an index: first the static table, then the dynamic table from its newest entry.
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), H2ConnectionError> {
        let index = index.checked_sub(1).ok_or(MALFORMED)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let behind = index - STATIC.len();
        if behind >= self.entries.len() {
            return Err(MALFORMED);
        }
        let entry = &self.entries[self.entries.len() - 1 - behind];
        let start = self.place(entry);
        let text = &self.text[start..start + entry.bytes()];
        Ok(text.split_at(usize::from(entry.name_bytes)))
    }

    /// Returns the position of an entry in `text`.
    fn place(&self, entry: &DynamicTableEntry) -> usize {
        entry.start.wrapping_sub(self.cut) as usize
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        let max = TABLE_BYTES_MAX - self.less;
        self.shrink_to(max.saturating_sub(size));
        // An entry larger than the table empties the table without an error (RFC 7541 §4.4).
        if size > max {
            return;
        }
        self.drop_unused_text();
        let start = self.cut.wrapping_add(self.text.len() as u32);
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        // Both lengths fit into u16, since the table is smaller than 64 KiB.
        self.entries.push_back(DynamicTableEntry {
            start,
            name_bytes: name.len() as u16,
            value_bytes: value.len() as u16,
        });
        self.size += size;
    }

    fn resize(&mut self, bytes: usize) -> Result<(), H2ConnectionError> {
        self.less = TABLE_BYTES_MAX.checked_sub(bytes).ok_or(MALFORMED)?;
        self.shrink_to(bytes);
        Ok(())
    }

    fn shrink_to(&mut self, bytes: usize) {
        while self.size > bytes
            && let Some(oldest) = self.entries.pop_front()
        {
            self.size -= oldest.bytes() + ENTRY_OVERHEAD;
        }
    }

    /// Removes unused bytes from the front of `text` once they fill half a table.
    fn drop_unused_text(&mut self) {
        let dead = match self.entries.front() {
            Some(oldest) => self.place(oldest),
            None => self.text.len(),
        };
        if dead > TABLE_BYTES_MAX / 2 || self.entries.is_empty() {
            self.text.drain(..dead);
            self.cut = self.cut.wrapping_add(dead as u32);
        }
    }
}

/// Decodes a string. The result borrows the block, or `scratch` after Huffman decoding.
fn string<'o, 'b: 'o, 's: 'o>(
    block: &mut &'b [u8],
    scratch: &'s mut Vec<u8>,
) -> Result<&'o [u8], H2ConnectionError> {
    hpack_primitives::string(block, 7, scratch).map_err(H2ConnectionError::from)
}

/// Appends `:status`, the first field of a response.
pub fn push_status(status: u16, out: &mut Vec<u8>) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            push_integer(STATUS_INDEX, 4, 0, out);
            out.push(3);
            let digit = |place: u16| b'0' + (status / place % 10) as u8;
            return out.extend_from_slice(&[digit(100), digit(10), digit(1)]);
        }
    };
    out.push(0x80 | index);
}

const STATUS_INDEX: usize = 8;

/// Appends a field without indexing, with its name in lower case.
pub fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match static_name(name) {
        Some(index) => push_integer(index, 4, 0, out),
        None => {
            out.push(0);
            push_string(&name.to_ascii_lowercase(), out);
        }
    }
    push_string(value, out);
}

/// Appends the fields in the lines of an HTTP/1.1 head (each ends with CRLF), without the
/// connection-specific fields.
pub fn push_lines(lines: &[u8], out: &mut Vec<u8>) {
    for (name, value) in fields_of_lines(lines) {
        push_field(name, value, out);
    }
}

/// Appends a complete field block: `:status`, then the fields of `lines`.
pub fn push_head(status: u16, lines: &[u8], out: &mut Vec<u8>) {
    push_status(status, out);
    push_lines(lines, out);
}

/// Appends Date with its value of fixed length. The value is not Huffman-coded, to save time in
/// every response.
pub fn push_date(value: &[u8; 29], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x0f, DATE_INDEX - 0x0f, value.len() as u8]);
    out.extend_from_slice(value);
}

const DATE_INDEX: u8 = 33;

/// Appends a size update that declares the encoder's dynamic table empty (RFC 7541 §4.2).
pub fn push_no_table(out: &mut Vec<u8>) {
    out.push(0x20);
}

/// Returns the index of the first static entry with this name.
fn static_name(name: &[u8]) -> Option<usize> {
    let is_same = |(known, _): &(&str, &str)| name.eq_ignore_ascii_case(known.as_bytes());
    STATIC.iter().position(is_same).map(|at| at + 1)
}

fn push_string(text: &[u8], out: &mut Vec<u8>) {
    hpack_primitives::push_string(text, 7, 0, out);
}

#[cfg(test)]
mod tests;
