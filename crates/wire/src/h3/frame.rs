//! Frames of HTTP/3 (RFC 9114 §7) and QUIC's variable-length integers (RFC 9000 §16).

use super::error::H3ConnectionError;

macro_rules! numbers {
    ($( $name:ident = $value:literal; )*) => {
        $( #[doc = concat!("`", stringify!($name), "`")] pub const $name: u64 = $value; )*
    };
}

// Frame types.
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
// Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2).
numbers! {
    CONTROL_STREAM = 0x0;
    PUSH_STREAM = 0x1;
    ENCODER_STREAM = 0x2;
    DECODER_STREAM = 0x3;
}
// Settings of the server (RFC 9114 §7.2.4.1, RFC 9220 §3). The capacity of the dynamic table stays at its
// default, 0.
numbers! {
    MAX_FIELD_SECTION_SIZE = 0x6;
    ENABLE_CONNECT_PROTOCOL = 0x8;
}

/// Largest value of a variable-length integer.
pub const INTEGER_MAX: u64 = (1 << 62) - 1;
/// Largest length of a frame header: type and length, up to 8 bytes each.
pub const HEADER_BYTES_MAX: usize = 16;

/// Decodes an integer; `None` if incomplete, without consuming input.
pub fn integer(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let length = 1usize << (first >> 6);
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    let number = bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Clears the two length bits at the top.
    Some(number & (u64::MAX >> (66 - 8 * length as u32)))
}

/// Appends an integer in its shortest form.
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

/// Frame header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct H3FrameHeader {
    /// Frame type.
    pub kind: u64,
    /// Length of the payload.
    pub length: u64,
}

impl H3FrameHeader {
    /// Appends the header.
    pub fn push(self, out: &mut Vec<u8>) {
        push_integer(self.kind, out);
        push_integer(self.length, out);
    }

    /// Decodes a complete header.
    fn take(input: &mut &[u8]) -> Option<H3FrameHeader> {
        let mut rest = *input;
        let kind = integer(&mut rest)?;
        let length = integer(&mut rest)?;
        *input = rest;
        Some(H3FrameHeader { kind, length })
    }

    /// Refuses frame types of HTTP/2 that HTTP/3 reserves (RFC 9114 §7.2.8).
    pub(super) fn refuse_reserved(self) -> Result<(), H3ConnectionError> {
        match self.kind {
            0x2 | 0x6 | 0x8 | 0x9 => Err(H3ConnectionError::unexpected(
                "a frame type reserved by HTTP/3",
            )),
            _ => Ok(()),
        }
    }
}

/// Reader of a frame header split at any byte.
#[derive(Default)]
pub(super) struct FrameHeaderReader {
    held: [u8; HEADER_BYTES_MAX],
    length: u8,
}

impl FrameHeaderReader {
    /// Returns true if no byte of a header has been received.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Decodes the next header; `None` once `input` is consumed.
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
            // A header of the largest length is always complete.
            if let Some(header) = H3FrameHeader::take(&mut &self.held[..usize::from(self.length)]) {
                self.length = 0;
                return Some(header);
            }
        }
        None
    }
}

/// Appends the start of the server's control stream: the stream type, and SETTINGS.
pub fn push_opening(section_bytes: usize, out: &mut Vec<u8>) {
    let mut settings = Vec::new();
    push_integer(MAX_FIELD_SECTION_SIZE, &mut settings);
    push_integer(section_bytes as u64, &mut settings);
    push_integer(ENABLE_CONNECT_PROTOCOL, &mut settings);
    push_integer(1, &mut settings);
    push_integer(CONTROL_STREAM, out);
    let header = H3FrameHeader {
        kind: SETTINGS,
        length: settings.len() as u64,
    };
    header.push(out);
    out.extend_from_slice(&settings);
}

/// Appends GOAWAY: requests on stream `id` and later streams are not answered (RFC 9114 §5.2).
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

/// Begins HEADERS and returns the position of the frame. The caller appends the field section.
pub fn begin_headers(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[HEADERS as u8, 0, 0]);
    at
}

/// Ends the HEADERS at position `at`: writes the length, in 2 bytes if they suffice.
pub fn end_headers(out: &mut Vec<u8>, at: usize) {
    let length = out.len() - at - 3;
    if length < 0x4000 {
        out[at + 1..at + 3].copy_from_slice(&(length as u16 | 0x4000).to_be_bytes());
    } else {
        let long = (length as u32 | 0x8000_0000).to_be_bytes();
        out.splice(at + 1..at + 3, long);
    }
}

/// Appends the header of a DATA frame with `length` bytes.
pub fn push_data(length: u64, out: &mut Vec<u8>) {
    let header = H3FrameHeader { kind: DATA, length };
    header.push(out);
}

/// Begins a DATA frame and returns the position of the frame. The caller appends the payload.
pub fn begin_data(out: &mut Vec<u8>) -> usize {
    let at = out.len();
    out.extend_from_slice(&[DATA as u8, 0, 0, 0, 0]);
    at
}

/// Ends the DATA frame at position `at`, with a payload below 2^30 bytes, and returns the length of the
/// payload. An empty frame is removed.
pub fn end_data(out: &mut Vec<u8>, at: usize) -> usize {
    let length = out.len() - at - 5;
    if length == 0 {
        out.truncate(at);
    } else {
        out[at + 1..at + 5].copy_from_slice(&(length as u32 | 0x8000_0000).to_be_bytes());
    }
    length
}
