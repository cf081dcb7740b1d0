//! FastCGI 1.0: encoding a request into records and decoding a backend's records split at any byte.
//!
//! A connection carries one request at a time, since hardly any backend implements multiplexing. The first
//! request is number 1, and each later request on a connection has another number: php-fpm may send output
//! of a script after the end of its request, and the number identifies such stray records.

use crate::cgi::VariableSink;
use std::ops::Range;

const VERSION: u8 = 1;
/// Number of the first request on a connection; later numbers count on from here.
pub const FIRST_REQUEST: u16 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;
const RESPONDER: u8 = 1;
const KEEP_CONNECTION: u8 = 1;
/// Length of a record header, and of a whole empty record.
pub const HEADER_BYTES: usize = 8;
/// Largest content of a record.
const CONTENT_BYTES_MAX: usize = 0xffff;

/// Encoder of a FastCGI request up to its body; a sink for variables.
pub struct FastCgiRequestEncoder<'o> {
    out: &'o mut Vec<u8>,
    /// Position of the PARAMS record in `out`.
    start: usize,
}

impl<'o> FastCgiRequestEncoder<'o> {
    /// Begins request 1 at the end of `out`. With `keep`, the backend leaves the connection open after the
    /// request.
    pub fn begin(keep: bool, out: &'o mut Vec<u8>) -> FastCgiRequestEncoder<'o> {
        let flags = if keep { KEEP_CONNECTION } else { 0 };
        push_record(
            FIRST_REQUEST,
            BEGIN_REQUEST,
            &[0, RESPONDER, flags, 0, 0, 0, 0, 0],
            out,
        );
        let start = out.len();
        push_record(FIRST_REQUEST, PARAMS, b"", out);
        FastCgiRequestEncoder { out, start }
    }

    /// Ends the variables: sets the length of the PARAMS record and appends the empty one.
    pub fn end(self) {
        let FastCgiRequestEncoder { out, start } = self;
        let content = start + HEADER_BYTES;
        match u16::try_from(out.len() - content) {
            // An empty record already ends the stream of variables.
            Ok(0) => return,
            Ok(length) => out[start + 4..start + 6].copy_from_slice(&length.to_be_bytes()),
            Err(_) => {
                let pairs = out.split_off(content);
                out.truncate(start);
                // A pair may be split between two records, which form a single stream.
                for part in pairs.chunks(CONTENT_BYTES_MAX) {
                    push_record(FIRST_REQUEST, PARAMS, part, out);
                }
            }
        }
        push_record(FIRST_REQUEST, PARAMS, b"", out);
    }
}

impl VariableSink for FastCgiRequestEncoder<'_> {
    fn add(&mut self, name: &[u8], value: &[&[u8]]) {
        let length = value.iter().map(|part| part.len()).sum();
        push_length(name.len(), self.out);
        push_length(length, self.out);
        self.out.extend_from_slice(name);
        value
            .iter()
            .for_each(|part| self.out.extend_from_slice(part));
    }
}

/// Appends a part of a request's body as STDIN records. An empty part ends the body.
pub fn push_input(request: u16, bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.chunks(CONTENT_BYTES_MAX) {
        push_record(request, STDIN, part, out);
    }
    if bytes.is_empty() {
        push_record(request, STDIN, b"", out);
    }
}

/// Sets the request number of complete records produced by this module.
pub fn renumber(records: &mut [u8], request: u16) {
    let mut rest = records;
    while let Some((header, after)) = rest.split_first_chunk_mut::<HEADER_BYTES>() {
        let [_, _, id_high, id_low, high, low, padding, _] = header;
        [*id_high, *id_low] = request.to_be_bytes();
        let content = usize::from(u16::from_be_bytes([*high, *low])) + usize::from(*padding);
        let content = content.min(after.len());
        rest = &mut after[content..];
    }
}

fn push_record(request: u16, kind: u8, content: &[u8], out: &mut Vec<u8>) {
    let ([request_high, request_low], length) = (request.to_be_bytes(), content.len() as u16);
    let [high, low] = length.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, request_high, request_low, high, low, 0, 0]);
    out.extend_from_slice(content);
}

fn push_length(length: usize, out: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short @ 0..0x80) => out.push(short),
        _ => out.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Result of one decoding step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FastCgiStep {
    /// Part of the response (FCGI_STDOUT).
    Stdout {
        /// Bytes to discard from the input.
        consumed: usize,
        /// Range of the part in the input; never empty.
        part: Range<usize>,
    },
    /// Part of the error output for the log (FCGI_STDERR).
    Stderr {
        /// Bytes to discard from the input.
        consumed: usize,
        /// Range of the part in the input; never empty.
        part: Range<usize>,
    },
    /// All input is consumed, and more is needed.
    More,
    /// End of the request (FCGI_END_REQUEST).
    End {
        /// Bytes to discard from the input.
        consumed: usize,
        /// Result of the request, as reported by the backend.
        end: FastCgiEnd,
    },
}

/// Result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastCgiEnd {
    /// The request was completed; the application's exit status, 0 for success.
    Complete(u32),
    /// The backend is overloaded (FCGI_OVERLOADED).
    Overloaded,
    /// The backend supports neither several requests at once nor another role.
    Unable,
    /// END_REQUEST of an earlier request on the connection.
    OtherRequest,
}

/// Malformed record, or a record type not expected from a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedRecord;

/// Decoder of a backend's records, up to [`FastCgiStep::End`] of its request.
pub struct FastCgiDecoder {
    /// Number of the awaited request.
    request: u16,
    /// The connection was used before, and records of earlier requests are skipped.
    allows_earlier: bool,
    /// Partial header, or partial content of END_REQUEST.
    kept: [u8; HEADER_BYTES],
    kept_bytes: usize,
    state: FastCgiDecoderState,
}

#[derive(Clone, Copy)]
enum FastCgiDecoderState {
    Header,
    Content(Record),
    Padding {
        left: usize,
        ends: Option<FastCgiEnd>,
    },
}

/// A record with unread content.
#[derive(Clone, Copy)]
struct Record {
    kind: u8,
    /// The record belongs to the awaited request.
    is_ours: bool,
    /// Bytes of the content not read yet.
    left: usize,
    /// Bytes after the content.
    padding: usize,
}

impl Default for FastCgiDecoder {
    fn default() -> FastCgiDecoder {
        FastCgiDecoder::new(FIRST_REQUEST, false)
    }
}

impl FastCgiDecoder {
    /// Creates a decoder for the response to `request`; `was_used` allows records of earlier requests on
    /// the connection.
    pub fn new(request: u16, was_used: bool) -> FastCgiDecoder {
        FastCgiDecoder {
            request,
            allows_earlier: was_used,
            kept: [0; HEADER_BYTES],
            kept_bytes: 0,
            state: FastCgiDecoderState::Header,
        }
    }

    /// Decodes the next step from the bytes received and not yet consumed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<FastCgiStep, MalformedRecord> {
        let mut at = 0;
        loop {
            match self.state {
                FastCgiDecoderState::Header => {
                    if !self.keep(bytes, &mut at) {
                        return Ok(FastCgiStep::More);
                    }
                    self.begin()?;
                }
                FastCgiDecoderState::Content(record) if record.left == 0 => {
                    self.state = FastCgiDecoderState::Padding {
                        left: record.padding,
                        ends: None,
                    }
                }
                FastCgiDecoderState::Content(_) if at == bytes.len() => {
                    return Ok(FastCgiStep::More);
                }
                FastCgiDecoderState::Content(record) if record.kind == END_REQUEST => {
                    if !self.keep(bytes, &mut at) {
                        return Ok(FastCgiStep::More);
                    }
                    self.state = FastCgiDecoderState::Padding {
                        // Content beyond the expected length is skipped like padding.
                        left: record.left - HEADER_BYTES + record.padding,
                        ends: Some(self.request_end(record.is_ours)),
                    };
                }
                FastCgiDecoderState::Content(record) => {
                    let part = at..bytes.len().min(at + record.left);
                    at = part.end;
                    if let Some(step) = self.content(record, part) {
                        return Ok(step);
                    }
                }
                FastCgiDecoderState::Padding { left, ends } => {
                    let skipped = left.min(bytes.len() - at);
                    at += skipped;
                    self.state = FastCgiDecoderState::Padding {
                        left: left - skipped,
                        ends,
                    };
                    if skipped < left {
                        return Ok(FastCgiStep::More);
                    }
                    self.state = FastCgiDecoderState::Header;
                    if let Some(end) = ends {
                        return Ok(FastCgiStep::End { consumed: at, end });
                    }
                }
            }
        }
    }

    /// Returns the step for a part of a record's content; None if the content is skipped.
    fn content(&mut self, record: Record, part: Range<usize>) -> Option<FastCgiStep> {
        let left = record.left - part.len();
        self.state = FastCgiDecoderState::Content(Record { left, ..record });
        let consumed = part.end;
        match record.kind {
            STDOUT if record.is_ours => Some(FastCgiStep::Stdout { consumed, part }),
            STDERR if record.is_ours => Some(FastCgiStep::Stderr { consumed, part }),
            _ => None,
        }
    }

    /// Collects up to 8 bytes in `kept`. Returns true once all 8 are present.
    fn keep(&mut self, bytes: &[u8], at: &mut usize) -> bool {
        let taken = (HEADER_BYTES - self.kept_bytes).min(bytes.len() - *at);
        self.kept[self.kept_bytes..][..taken].copy_from_slice(&bytes[*at..*at + taken]);
        self.kept_bytes += taken;
        *at += taken;
        let is_whole = self.kept_bytes == HEADER_BYTES;
        if is_whole {
            self.kept_bytes = 0;
        }
        is_whole
    }

    /// Returns the result in the content of END_REQUEST (`kept`).
    fn request_end(&self, is_ours: bool) -> FastCgiEnd {
        let [a, b, c, d, protocol_status, ..] = self.kept;
        match protocol_status {
            _ if !is_ours => FastCgiEnd::OtherRequest,
            0 => FastCgiEnd::Complete(u32::from_be_bytes([a, b, c, d])),
            2 => FastCgiEnd::Overloaded,
            _ => FastCgiEnd::Unable,
        }
    }

    /// Begins the content of a record, by the header in `kept`.
    fn begin(&mut self) -> Result<(), MalformedRecord> {
        let [version, kind, id_high, id_low, high, low, padding, _] = self.kept;
        let id = u16::from_be_bytes([id_high, id_low]);
        let left = usize::from(u16::from_be_bytes([high, low]));
        let is_ours = id == self.request;
        let is_expected = is_ours || self.allows_earlier && id != 0;
        let is_known = match kind {
            STDOUT | STDERR => is_expected,
            END_REQUEST => is_expected && left >= HEADER_BYTES,
            // Management records concern the backend itself and are skipped.
            GET_VALUES_RESULT | UNKNOWN_TYPE => id == 0,
            _ => false,
        };
        if version != VERSION || !is_known {
            return Err(MalformedRecord);
        }
        self.state = FastCgiDecoderState::Content(Record {
            kind,
            is_ours,
            left,
            padding: usize::from(padding),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
