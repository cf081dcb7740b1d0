//! Length of a body, and decoder of its framing (RFC 9112 §6, §7).
//!
//! Errors are the rules of requests. The reader of a response replaces an error by its own rule.
//!
//! The decoder copies nothing and returns the ranges of payload in the input. Framing is read byte by byte,
//! which makes the result independent of the split.

use crate::byte_search;
use crate::limits::{CHUNK_EXTENSION_BYTES_MAX, TRAILER_BYTES_MAX};
use crate::reject::Reject;
use std::ops::Range;

/// Length of a body, by the head of its message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// No body.
    None,
    /// Known length, from Content-Length.
    Length(u64),
    /// Unknown length, with the end marked by the framing: `Transfer-Encoding: chunked`, or an HTTP/2 or
    /// HTTP/3 stream without Content-Length.
    Chunked,
}

/// Result of one decoding step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyStep {
    /// Payload: `input[payload]`, which ends with the consumed bytes. The caller calls `step` again.
    Data {
        /// Bytes to discard from the input.
        consumed: usize,
        /// Range of the payload in the input; never empty.
        payload: Range<usize>,
    },
    /// All input was framing, and more is needed.
    More {
        /// Length of the input.
        consumed: usize,
    },
    /// End of the body; the next message follows in the input.
    End {
        /// Bytes to discard from the input.
        consumed: usize,
    },
}

/// Decoder of a body's framing. After an error, every further step returns the error again.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: BodyDecoderState,
}

#[derive(Copy, Clone, Debug)]
enum BodyDecoderState {
    Done,
    Failed(Reject),
    /// Payload of a body of known length.
    Length {
        left: u64,
    },
    /// Within the size of a chunk.
    Size {
        digits: u8,
        size: u64,
    },
    /// Behind the chunk size and before the line end.
    Extension {
        size: u64,
        bytes: usize,
        at: ExtensionState,
    },
    SizeLf {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// Start of a trailer line; `bytes` counts the whole trailer section.
    TrailerStart {
        bytes: usize,
    },
    TrailerName {
        bytes: usize,
    },
    TrailerValue {
        bytes: usize,
    },
    TrailerLf {
        bytes: usize,
    },
    LastLf,
}

/// Position in a chunk extension (RFC 9112 §7.1.1).
#[derive(Copy, Clone, PartialEq, Debug)]
enum ExtensionState {
    /// Whitespace; a semicolon must follow.
    Gap,
    /// After a semicolon and before the name.
    Semicolon,
    Name,
    /// Whitespace after a name.
    NameGap,
    /// After an equals sign and before the value.
    Equals,
    Token,
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    /// Directly after a quoted string.
    QuoteEnd,
}

/// Largest number of digits in a chunk size, with leading zeros: a `u64` has 16.
const SIZE_DIGITS_MAX: u8 = 16;

impl BodyDecoder {
    /// Creates a decoder that starts at the first byte behind the head.
    pub fn new(length: BodyLength) -> BodyDecoder {
        let state = match length {
            BodyLength::None | BodyLength::Length(0) => BodyDecoderState::Done,
            BodyLength::Length(left) => BodyDecoderState::Length { left },
            BodyLength::Chunked => BodyDecoderState::SIZE,
        };
        BodyDecoder { state }
    }

    /// Returns true if the body has ended.
    pub fn is_done(&self) -> bool {
        matches!(self.state, BodyDecoderState::Done)
    }

    /// Returns the number of bytes of a body of known length that are still missing; None for other bodies.
    pub fn missing_bytes(&self) -> Option<u64> {
        match self.state {
            BodyDecoderState::Length { left } => Some(left),
            _ => None,
        }
    }

    /// Skips `count` bytes of payload that the caller has moved on unseen. The body must have a known length, of which at
    /// least `count` bytes are missing.
    pub fn skip(&mut self, count: u64) {
        let missing = self
            .missing_bytes()
            .and_then(|left| left.checked_sub(count));
        self.state = match missing {
            Some(0) => BodyDecoderState::Done,
            Some(left) => BodyDecoderState::Length { left },
            None => BodyDecoderState::Failed(Reject::CHUNK_MALFORMED),
        };
    }

    /// Decodes framing up to and including the next run of payload, and drops the trailer section. The caller
    /// limits the total payload.
    pub fn step(&mut self, input: &[u8]) -> Result<BodyStep, Reject> {
        self.step_to(input, &mut DroppedTrailers)
    }

    /// Decodes framing like `step`, and appends the lines of the trailer section to `trailers`: name, colon,
    /// value and CRLF, as in `Fields`. The lines are complete at the end of the body. A body without trailers
    /// appends nothing, and the section is bounded by `TRAILER_BYTES_MAX`.
    pub fn step_with_trailers(
        &mut self,
        input: &[u8],
        trailers: &mut Vec<u8>,
    ) -> Result<BodyStep, Reject> {
        self.step_to(input, trailers)
    }

    #[inline]
    fn step_to<T: TrailerSink>(
        &mut self,
        input: &[u8],
        trailers: &mut T,
    ) -> Result<BodyStep, Reject> {
        let mut consumed = 0;
        loop {
            match self.state {
                BodyDecoderState::Done => return Ok(BodyStep::End { consumed }),
                BodyDecoderState::Failed(reject) => return Err(reject),
                BodyDecoderState::Length { left } => {
                    let after = |left| match left {
                        0 => BodyDecoderState::Done,
                        left => BodyDecoderState::Length { left },
                    };
                    return Ok(self.data(input, consumed, left, after));
                }
                BodyDecoderState::Data { left } => {
                    let after = |left| match left {
                        0 => BodyDecoderState::DataCr,
                        left => BodyDecoderState::Data { left },
                    };
                    return Ok(self.data(input, consumed, left, after));
                }
                framing => {
                    let Some(&byte) = input.get(consumed) else {
                        return Ok(BodyStep::More { consumed });
                    };
                    consumed += 1;
                    self.state = framing.next(byte).unwrap_or_else(BodyDecoderState::Failed);
                    if T::KEEPS && framing.adds_to_trailers(&self.state) {
                        trailers.add(byte);
                    }
                }
            }
        }
    }

    /// Returns a run of payload from `start`, at most `left` bytes.
    fn data(
        &mut self,
        input: &[u8],
        start: usize,
        left: u64,
        after: fn(u64) -> BodyDecoderState,
    ) -> BodyStep {
        let here = input.len() - start;
        let taken = usize::try_from(left).map_or(here, |left| left.min(here));
        if taken == 0 {
            return BodyStep::More { consumed: start };
        }
        self.state = after(left - taken as u64);
        let consumed = start + taken;
        BodyStep::Data {
            consumed,
            payload: start..consumed,
        }
    }
}

/// Receiver of the bytes of a trailer section.
trait TrailerSink {
    const KEEPS: bool;
    fn add(&mut self, byte: u8);
}

/// Sink that drops trailers. The check for trailer bytes then compiles to nothing.
struct DroppedTrailers;

impl TrailerSink for DroppedTrailers {
    const KEEPS: bool = false;
    fn add(&mut self, _: u8) {}
}

impl TrailerSink for Vec<u8> {
    const KEEPS: bool = true;
    fn add(&mut self, byte: u8) {
        self.push(byte);
    }
}

impl BodyDecoderState {
    const SIZE: BodyDecoderState = BodyDecoderState::Size { digits: 0, size: 0 };

    /// Returns true if the byte between this state and `next` is part of a trailer line or ends the line.
    #[inline]
    fn adds_to_trailers(self, next: &BodyDecoderState) -> bool {
        match next {
            BodyDecoderState::TrailerName { .. }
            | BodyDecoderState::TrailerValue { .. }
            | BodyDecoderState::TrailerLf { .. } => true,
            BodyDecoderState::TrailerStart { .. } => {
                matches!(self, BodyDecoderState::TrailerLf { .. })
            }
            _ => false,
        }
    }

    /// Returns the state after one byte of chunked framing.
    fn next(self, byte: u8) -> Result<BodyDecoderState, Reject> {
        match self {
            BodyDecoderState::Size { digits, size } => next_in_size(digits, size, byte),
            BodyDecoderState::Extension { size, bytes, at } => {
                next_in_extension(size, bytes, at, byte)
            }
            BodyDecoderState::SizeLf { size } => match (byte, size) {
                (b'\n', 0) => Ok(BodyDecoderState::TrailerStart { bytes: 0 }),
                (b'\n', left) => Ok(BodyDecoderState::Data { left }),
                _ => Err(Reject::CHUNK_MALFORMED),
            },
            BodyDecoderState::DataCr if byte == b'\r' => Ok(BodyDecoderState::DataLf),
            BodyDecoderState::DataLf if byte == b'\n' => Ok(BodyDecoderState::SIZE),
            BodyDecoderState::DataCr | BodyDecoderState::DataLf => Err(Reject::CHUNK_MALFORMED),
            BodyDecoderState::LastLf if byte == b'\n' => Ok(BodyDecoderState::Done),
            BodyDecoderState::LastLf => Err(Reject::TRAILER_MALFORMED),
            BodyDecoderState::TrailerStart { bytes }
            | BodyDecoderState::TrailerName { bytes }
            | BodyDecoderState::TrailerValue { bytes }
            | BodyDecoderState::TrailerLf { bytes } => self.next_in_trailer(bytes + 1, byte),
            // States without framing.
            BodyDecoderState::Done
            | BodyDecoderState::Failed(_)
            | BodyDecoderState::Length { .. }
            | BodyDecoderState::Data { .. } => Ok(self),
        }
    }

    /// Returns the state after one byte of the trailer section. Its field lines (RFC 9112 §7.1.2) are
    /// checked as strictly as those of the head.
    fn next_in_trailer(self, bytes: usize, byte: u8) -> Result<BodyDecoderState, Reject> {
        if bytes > TRAILER_BYTES_MAX {
            return Err(Reject::TRAILER_TOO_LARGE);
        }
        match (self, byte) {
            (BodyDecoderState::TrailerStart { .. }, b'\r') => Ok(BodyDecoderState::LastLf),
            (BodyDecoderState::TrailerStart { .. } | BodyDecoderState::TrailerName { .. }, _)
                if byte_search::is_token(byte) =>
            {
                Ok(BodyDecoderState::TrailerName { bytes })
            }
            (BodyDecoderState::TrailerName { .. }, b':') => {
                Ok(BodyDecoderState::TrailerValue { bytes })
            }
            (BodyDecoderState::TrailerValue { .. }, b'\r') => {
                Ok(BodyDecoderState::TrailerLf { bytes })
            }
            (BodyDecoderState::TrailerValue { .. }, b'\t' | b' '..=0x7e | 0x80..) => {
                Ok(BodyDecoderState::TrailerValue { bytes })
            }
            (BodyDecoderState::TrailerLf { .. }, b'\n') => {
                Ok(BodyDecoderState::TrailerStart { bytes })
            }
            _ => Err(Reject::TRAILER_MALFORMED),
        }
    }
}

fn next_in_size(digits: u8, size: u64, byte: u8) -> Result<BodyDecoderState, Reject> {
    if let Some(digit) = char::from(byte).to_digit(16) {
        return match digits {
            SIZE_DIGITS_MAX => Err(Reject::CHUNK_MALFORMED),
            _ => Ok(BodyDecoderState::Size {
                digits: digits + 1,
                size: size << 4 | u64::from(digit),
            }),
        };
    }
    match byte {
        _ if digits == 0 => Err(Reject::CHUNK_MALFORMED),
        b'\r' => Ok(BodyDecoderState::SizeLf { size }),
        b';' | b' ' | b'\t' => Ok(BodyDecoderState::Extension {
            size,
            bytes: 1,
            at: match byte {
                b';' => ExtensionState::Semicolon,
                _ => ExtensionState::Gap,
            },
        }),
        _ => Err(Reject::CHUNK_MALFORMED),
    }
}

/// Returns the state after one byte of chunk extensions, which the server checks and ignores (RFC 9112
/// §7.1.1). Malformed extensions have served attacks on parsers that disagree on the end of the line.
fn next_in_extension(
    size: u64,
    bytes: usize,
    at: ExtensionState,
    byte: u8,
) -> Result<BodyDecoderState, Reject> {
    use ExtensionState::*;
    if byte == b'\r' && matches!(at, Name | Token | QuoteEnd) {
        return Ok(BodyDecoderState::SizeLf { size });
    }
    if bytes == CHUNK_EXTENSION_BYTES_MAX {
        return Err(Reject::CHUNK_EXTENSION);
    }
    let at = match (at, byte) {
        (Quoted, b'\\') => Escaped,
        (Quoted, b'"') => QuoteEnd,
        (Quoted | Escaped, b'\t' | b' '..=0x7e | 0x80..) => Quoted,
        (Semicolon | Equals | NameGap | Gap, b'\t' | b' ') => at,
        (Name, b'\t' | b' ') => NameGap,
        (Token | QuoteEnd, b'\t' | b' ') => Gap,
        (Gap | Name | NameGap | Token | QuoteEnd, b';') => Semicolon,
        (Name | NameGap, b'=') => Equals,
        (Equals, b'"') => Quoted,
        (Semicolon | Name, _) if byte_search::is_token(byte) => Name,
        (Equals | Token, _) if byte_search::is_token(byte) => Token,
        _ => return Err(Reject::CHUNK_MALFORMED),
    };
    let bytes = bytes + 1;
    Ok(BodyDecoderState::Extension { size, bytes, at })
}

#[cfg(test)]
mod tests;
