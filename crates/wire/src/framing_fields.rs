//! Content-Length and Transfer-Encoding, the fields that frame a body (RFC 9112 §6), read alike in requests
//! and in responses.
//!
//! Request smuggling and response splitting exploit parsers that disagree on the framing, so each value has
//! one interpretation, without the leniency that the RFC permits.

use crate::byte_search;

/// Transfer codings of a message.
#[derive(Copy, Clone, Default, PartialEq, Debug)]
pub(super) enum TransferCoding {
    #[default]
    Absent,
    /// `chunked` is the only coding.
    Chunked,
    /// Only codings that the server does not implement; no `chunked` so far.
    Unknown,
    /// Codings that the server does not implement, then `chunked`.
    UnknownChunked,
    /// Another coding follows `chunked`.
    BehindChunked,
}

impl TransferCoding {
    /// Adds a line of Transfer-Encoding; all lines form one list (RFC 9110 §5.3). An empty list member and
    /// `chunked` with a parameter (RFC 9112 §7.1) count as unknown codings.
    pub(super) fn add_line(&mut self, value: &[u8]) {
        use TransferCoding::*;
        for coding in value.split(|byte| *byte == b',') {
            let is_chunked = byte_search::trim(coding).eq_ignore_ascii_case(b"chunked");
            *self = match (*self, is_chunked) {
                (Absent, true) => Chunked,
                (Unknown, true) => UnknownChunked,
                (Absent | Unknown, false) => Unknown,
                _ => BehindChunked,
            };
        }
    }
}

/// Parses a Content-Length of digits alone, up to `u64::MAX`; `None` for any other value.
#[inline]
pub fn content_length(value: &[u8]) -> Option<u64> {
    let length = value.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    length.filter(|_| !value.is_empty())
}
