//! The frames of HTTP/3 (RFC 9114 §7) and the integers that they are written with (RFC 9000 §16).

use super::error::H3ConnectionError;

macro_rules! numbers {
    ($( $name:ident = $value:literal; )*) => {
        $( #[doc = concat!("`", stringify!($name), "`")] pub const $name: u64 = $value; )*
    };
}

// Types of frames.
numbers! {
    DATA = 0x0;
    HEADERS = 0x1;
    CANCEL_PUSH = 0x3;
    SETTINGS = 0x4;
    PUSH_PROMISE = 0x5;
    GOAWAY = 0x7;
    MAX_PUSH_ID = 0xd;
    PRIORITY_UPDATE = 0xf0700;
    PRIORITY_UPDATE_OF_PUSH = 0xf0701;
}
// Types of streams that go one way (RFC 9114 §6.2, RFC 9204 §4.2).
numbers! {
    CONTROL_STREAM = 0x0;
    PUSH_STREAM = 0x1;
    ENCODER_STREAM = 0x2;
    DECODER_STREAM = 0x3;
}
// What SETTINGS may say of us; of the dynamic table we leave it at the default, which is none.
numbers! {
    MAX_FIELD_SECTION_SIZE = 0x6;
}

/// The largest number that an integer can be.
pub const INTEGER_MAX: u64 = (1 << 62) - 1;
/// Type and length, eight bytes each at most.
pub const HEADER_BYTES_MAX: usize = 16;

/// Takes an integer; None if it isn't whole yet, and then nothing is taken.
pub fn integer(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let length = 1usize << (first >> 6);
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    let number = bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    // The two bits of the length lie above all others.
    Some(number & (u64::MAX >> (66 - 8 * length as u32)))
}

/// Appends an integer in as few bytes as it takes.
pub fn push_integer(number: u64, out: &mut Vec<u8>) {
    match number {
        0..0x40 => out.push(number as u8),
        0x40..0x4000 => out.extend_from_slice(&(number as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&(number as u32 | 0x8000_0000).to_be_bytes());
        }
        _ => out.extend_from_slice(&(number | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// What stands before a frame's payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct H3FrameHeader {
    /// What it is.
    pub kind: u64,
    /// Bytes of the payload.
    pub length: u64,
}

impl H3FrameHeader {
    /// Appends it.
    pub fn push(self, out: &mut Vec<u8>) {
        push_integer(self.kind, out);
        push_integer(self.length, out);
    }

    /// Takes a header that is whole.
    fn take(input: &mut &[u8]) -> Option<H3FrameHeader> {
        let mut rest = *input;
        let kind = integer(&mut rest)?;
        let length = integer(&mut rest)?;
        *input = rest;
        Some(H3FrameHeader { kind, length })
    }

    /// Refuses types that HTTP/2 had and HTTP/3 has not (RFC 9114 §7.2.8).
    pub(super) fn refuse_reserved(self) -> Result<(), H3ConnectionError> {
        match self.kind {
            0x2 | 0x6 | 0x8 | 0x9 => Err(H3ConnectionError::unexpected("a frame of HTTP/2")),
            _ => Ok(()),
        }
    }
}

/// The bytes of a header that isn't whole yet.
#[derive(Default)]
pub(super) struct FrameHeaderReader {
    held: [u8; HEADER_BYTES_MAX],
    length: u8,
}

impl FrameHeaderReader {
    /// Nothing of a header has come.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes a header, however it was cut; None once `input` is used up.
    pub(super) fn header(&mut self, input: &mut &[u8]) -> Option<H3FrameHeader> {
        if self.is_empty()
            && let Some(header) = H3FrameHeader::take(input)
        {
            return Some(header);
        }
        while let Some((byte, rest)) = input.split_first() {
            self.held[usize::from(self.length)] = *byte;
            self.length += 1;
            *input = rest;
            // It is whole at the latest when as much has come as it can be.
            if let Some(header) = H3FrameHeader::take(&mut &self.held[..usize::from(self.length)]) {
                self.length = 0;
                return Some(header);
            }
        }
        None
    }
}

/// What our control stream begins with: its type, and SETTINGS.
pub fn push_opening(section_bytes: usize, out: &mut Vec<u8>) {
    let mut settings = Vec::new();
    push_integer(MAX_FIELD_SECTION_SIZE, &mut settings);
    push_integer(section_bytes as u64, &mut settings);
    push_integer(CONTROL_STREAM, out);
    let header = H3FrameHeader {
        kind: SETTINGS,
        length: settings.len() as u64,
    };
    header.push(out);
    out.extend_from_slice(&settings);
}

/// GOAWAY: no request on stream `id` or a later one is answered (RFC 9114 §5.2).
pub fn push_goaway(id: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    push_integer(id, &mut payload);
    let header = H3FrameHeader {
        kind: GOAWAY,
        length: payload.len() as u64,
    };
    header.push(out);
    out.extend_from_slice(&payload);
}

/// Begins HEADERS, whose field section is then appended; where it begins.
pub fn begin_headers(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[HEADERS as u8, 0, 0]);
    at
}

/// Ends the HEADERS that begin at `at`: writes their length, in two bytes where that does.
pub fn end_headers(out: &mut Vec<u8>, at: usize) {
    let length = out.len() - at - 3;
    if length < 0x4000 {
        out[at + 1..at + 3].copy_from_slice(&(length as u16 | 0x4000).to_be_bytes());
    } else {
        let long = (length as u32 | 0x8000_0000).to_be_bytes();
        out.splice(at + 1..at + 3, long);
    }
}

/// The header of a DATA frame with so many bytes.
pub fn push_data(length: u64, out: &mut Vec<u8>) {
    let header = H3FrameHeader { kind: DATA, length };
    header.push(out);
}

/// Begins a DATA frame, whose payload is then appended; where it begins.
pub fn begin_data(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[DATA as u8, 0, 0, 0, 0]);
    at
}

/// Ends the DATA frame that begins at `at`, which has less than 2^30 bytes; one that is empty is
/// taken back. Says how many it has.
pub fn end_data(out: &mut Vec<u8>, at: usize) -> usize {
    let length = out.len() - at - 5;
    if length == 0 {
        out.truncate(at);
    } else {
        out[at + 1..at + 5].copy_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes());
    }
    length
}
