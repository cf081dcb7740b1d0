//! Unidirectional streams (RFC 9114 §6.2): the client's control stream, and the two streams of QPACK (RFC
//! 9204 §4.2), on which hardly any instruction is allowed because the server has no dynamic table.

use crate::h3::error::{H3ConnectionError, H3ErrorCode};
use crate::h3::frame;
use crate::h3::frame::{FrameHeaderReader, H3FrameHeader};
use crate::hpack_primitives;
use crate::limits::H3_CONTROL_FRAME_BYTES_MAX;

/// Shared state of all unidirectional streams of a connection.
#[derive(Default)]
pub struct UnidirectionalState {
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    has_settings: bool,
    max_push_id: Option<u64>,
    goaway_id: Option<u64>,
}

/// Reader of a unidirectional stream.
#[derive(Default)]
pub struct UnidirectionalStream {
    kind: UnidirectionalStreamType,
    /// Incomplete frame or instruction.
    held: Vec<u8>,
    header: FrameHeaderReader,
    frame: Option<H3FrameHeader>,
    idle_frames: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum UnidirectionalStreamType {
    /// The stream type is incomplete.
    #[default]
    New,
    Control,
    Encoder,
    Decoder,
    /// Unknown stream type: the server stops reading the stream.
    Unknown,
}

impl UnidirectionalStream {
    /// Consumes all of `input`. Returns false for a stream of unknown type, which the server ignores.
    ///
    /// # Errors
    /// A violation of the protocol, which ends the connection.
    pub fn receive(
        &mut self,
        control: &mut UnidirectionalState,
        mut input: &[u8],
    ) -> Result<bool, H3ConnectionError> {
        if self.kind == UnidirectionalStreamType::New {
            self.held.extend_from_slice(input);
            let held = std::mem::take(&mut self.held);
            let mut rest = &held[..];
            let Some(kind) = frame::integer(&mut rest) else {
                self.held = held;
                return Ok(true);
            };
            self.kind = control.admit(kind)?;
            return self.read(control, rest);
        }
        self.read(control, std::mem::take(&mut input))
    }

    fn read(
        &mut self,
        control: &mut UnidirectionalState,
        mut input: &[u8],
    ) -> Result<bool, H3ConnectionError> {
        match self.kind {
            UnidirectionalStreamType::New => {}
            UnidirectionalStreamType::Unknown => return Ok(false),
            UnidirectionalStreamType::Control => self.frames(control, &mut input)?,
            UnidirectionalStreamType::Encoder => self.instructions(input, encoder_instruction)?,
            UnidirectionalStreamType::Decoder => self.instructions(input, decoder_instruction)?,
        }
        Ok(true)
    }

    /// Handles the end or the reset of the stream by the peer.
    ///
    /// # Errors
    /// The stream is critical for the connection (RFC 9114 §6.2.1, RFC 9204 §4.2).
    pub fn end(&self) -> Result<(), H3ConnectionError> {
        match self.kind {
            UnidirectionalStreamType::New | UnidirectionalStreamType::Unknown => Ok(()),
            UnidirectionalStreamType::Control
            | UnidirectionalStreamType::Encoder
            | UnidirectionalStreamType::Decoder => Err(H3ConnectionError::new(
                H3ErrorCode::H3_CLOSED_CRITICAL_STREAM,
                "a critical stream was closed",
            )),
        }
    }

    /// Returns the number of frames and instructions since the last call, for the abuse budget.
    pub fn take_idle_frames(&mut self) -> u32 {
        std::mem::take(&mut self.idle_frames)
    }

    fn frames(
        &mut self,
        control: &mut UnidirectionalState,
        input: &mut &[u8],
    ) -> Result<(), H3ConnectionError> {
        loop {
            let header = match self.frame {
                Some(header) => header,
                None => match self.header.header(input) {
                    None => return Ok(()),
                    Some(header) => control.begin(header)?,
                },
            };
            self.frame = Some(header);
            let is_kept = is_known(header.kind);
            if is_kept && header.length > H3_CONTROL_FRAME_BYTES_MAX as u64 {
                return Err(H3ConnectionError::excessive_load(
                    "a control frame is too large",
                ));
            }
            // The payload of an ignored frame is counted and not stored.
            let held = self.held.len() as u64;
            let taken = (header.length - held).min(input.len() as u64);
            let (part, rest) = input.split_at(taken as usize);
            *input = rest;
            if is_kept {
                self.held.extend_from_slice(part);
                if (self.held.len() as u64) < header.length {
                    return Ok(());
                }
                let payload = std::mem::take(&mut self.held);
                control.frame(header.kind, &payload)?;
            } else if taken < header.length {
                self.frame = Some(H3FrameHeader {
                    length: header.length - taken,
                    ..header
                });
                return Ok(());
            }
            self.frame = None;
            self.idle_frames += 1;
        }
    }

    /// Reads QPACK instructions, which are integers behind a few type bits.
    fn instructions(
        &mut self,
        input: &[u8],
        take: fn(&mut &[u8]) -> Result<(), H3ConnectionError>,
    ) -> Result<(), H3ConnectionError> {
        self.held.extend_from_slice(input);
        let held = std::mem::take(&mut self.held);
        let mut rest = &held[..];
        let endless = H3ConnectionError::excessive_load("a QPACK instruction is too long");
        while let Some(length) = instruction_bytes(rest) {
            // The error must not depend on the split of the input.
            if length > INSTRUCTION_BYTES_MAX {
                return Err(endless);
            }
            let mut instruction = &rest[..length];
            rest = &rest[length..];
            take(&mut instruction)?;
            self.idle_frames += 1;
        }
        if rest.len() > INSTRUCTION_BYTES_MAX {
            return Err(endless);
        }
        self.held = rest.to_vec();
        Ok(())
    }
}

impl UnidirectionalState {
    /// Registers a stream by its type (RFC 9114 §6.2).
    fn admit(&mut self, kind: u64) -> Result<UnidirectionalStreamType, H3ConnectionError> {
        let (seen, kind) = match kind {
            frame::CONTROL_STREAM => (&mut self.has_control, UnidirectionalStreamType::Control),
            frame::ENCODER_STREAM => (&mut self.has_encoder, UnidirectionalStreamType::Encoder),
            frame::DECODER_STREAM => (&mut self.has_decoder, UnidirectionalStreamType::Decoder),
            frame::PUSH_STREAM => {
                let what = "a push stream from a client";
                return Err(H3ConnectionError::new(
                    H3ErrorCode::H3_STREAM_CREATION_ERROR,
                    what,
                ));
            }
            _ => return Ok(UnidirectionalStreamType::Unknown),
        };
        if std::mem::replace(seen, true) {
            Err(H3ConnectionError::new(
                H3ErrorCode::H3_STREAM_CREATION_ERROR,
                "a second stream of the same type",
            ))
        } else {
            Ok(kind)
        }
    }

    /// Checks the header of a frame on the control stream (RFC 9114 §7).
    fn begin(&mut self, header: H3FrameHeader) -> Result<H3FrameHeader, H3ConnectionError> {
        if !self.has_settings && header.kind != frame::SETTINGS {
            let what = "the control stream does not begin with SETTINGS";
            return Err(H3ConnectionError::new(
                H3ErrorCode::H3_MISSING_SETTINGS,
                what,
            ));
        }
        header.refuse_reserved()?;
        match header.kind {
            frame::SETTINGS if self.has_settings => {
                Err(H3ConnectionError::unexpected("a second SETTINGS frame"))
            }
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => Err(
                H3ConnectionError::unexpected("a frame of a request stream on the control stream"),
            ),
            _ => Ok(header),
        }
    }

    /// Handles a complete frame of a known type.
    fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), H3ConnectionError> {
        let wrong_id = |what| H3ConnectionError::new(H3ErrorCode::H3_ID_ERROR, what);
        match kind {
            frame::SETTINGS => {
                self.has_settings = true;
                settings(payload)
            }
            frame::MAX_PUSH_ID => {
                let id = only_integer(payload)?;
                if self
                    .max_push_id
                    .replace(id)
                    .is_some_and(|before| id < before)
                {
                    return Err(wrong_id("MAX_PUSH_ID decreased"));
                }
                Ok(())
            }
            frame::GOAWAY => {
                let id = only_integer(payload)?;
                if self.goaway_id.replace(id).is_some_and(|before| id > before) {
                    return Err(wrong_id("the identifier in GOAWAY increased"));
                }
                Ok(())
            }
            frame::CANCEL_PUSH => {
                only_integer(payload)?;
                Err(wrong_id("no push was promised"))
            }
            frame::PRIORITY_UPDATE_OF_PUSH => Err(wrong_id("no push was promised")),
            _ => {
                let mut rest = payload;
                let id = frame::integer(&mut rest).ok_or(H3ConnectionError::frame(
                    "PRIORITY_UPDATE without a stream identifier",
                ))?;
                // Requests use client-initiated bidirectional streams.
                match id % 4 {
                    0 => Ok(()),
                    _ => Err(wrong_id("PRIORITY_UPDATE of a stream without a request")),
                }
            }
        }
    }
}

fn is_known(kind: u64) -> bool {
    [
        frame::SETTINGS,
        frame::MAX_PUSH_ID,
        frame::GOAWAY,
        frame::CANCEL_PUSH,
        frame::PRIORITY_UPDATE,
        frame::PRIORITY_UPDATE_OF_PUSH,
    ]
    .contains(&kind)
}

/// Parses a payload that consists of a single integer.
fn only_integer(mut payload: &[u8]) -> Result<u64, H3ConnectionError> {
    let number = frame::integer(&mut payload);
    match (number, payload) {
        (Some(number), []) => Ok(number),
        _ => Err(H3ConnectionError::frame("a frame has the wrong length")),
    }
}

/// Checks SETTINGS (RFC 9114 §7.2.4): pairs of integers without duplicates and without HTTP/2 settings. The
/// values concern the client's QPACK decoder and a dynamic table that the server never uses.
fn settings(mut payload: &[u8]) -> Result<(), H3ConnectionError> {
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (Some(name), Some(_)) = (frame::integer(&mut payload), frame::integer(&mut payload))
        else {
            return Err(H3ConnectionError::frame("SETTINGS is truncated"));
        };
        let wrong = |what| Err(H3ConnectionError::new(H3ErrorCode::H3_SETTINGS_ERROR, what));
        if matches!(name, 0x0 | 0x2..=0x5) {
            return wrong("a setting of HTTP/2 alone");
        }
        if seen.contains(&name) {
            return wrong("a duplicate setting");
        }
        if seen.len() == SETTINGS_MAX {
            return Err(H3ConnectionError::excessive_load("too many settings"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Largest number of settings; clients send a handful.
const SETTINGS_MAX: usize = 64;
/// Length of the longest accepted integer in an instruction.
const INSTRUCTION_BYTES_MAX: usize = 6;

/// Returns the length of the instruction at the start, once the instruction is complete. An instruction
/// with strings is an error by its first byte.
fn instruction_bytes(input: &[u8]) -> Option<usize> {
    let mut rest = input;
    let first = *rest.first()?;
    let prefix_bits = match first {
        0x80.. => 7,
        0x40.. => 6,
        0x20.. => 5,
        _ => 6,
    };
    if first & (u8::MAX >> (8 - prefix_bits)) != u8::MAX >> (8 - prefix_bits) {
        return Some(1);
    }
    rest = &rest[1..];
    let last = rest.iter().position(|byte| byte & 0x80 == 0)?;
    Some(last + 2)
}

/// Checks an instruction of the encoder stream (RFC 9204 §4.3): without a dynamic table, only a capacity of
/// 0 is allowed.
fn encoder_instruction(instruction: &mut &[u8]) -> Result<(), H3ConnectionError> {
    let wrong = H3ConnectionError::new(
        H3ErrorCode::QPACK_ENCODER_STREAM_ERROR,
        "the dynamic table has a capacity of 0",
    );
    match instruction.first() {
        Some(0x20..0x40) => match hpack_primitives::integer(instruction, 5) {
            Ok(0) => Ok(()),
            _ => Err(wrong),
        },
        _ => Err(wrong),
    }
}

/// Checks an instruction of the decoder stream (RFC 9204 §4.4): a Stream Cancellation is allowed, an
/// acknowledgement is not.
fn decoder_instruction(instruction: &mut &[u8]) -> Result<(), H3ConnectionError> {
    match instruction.first() {
        Some(0x40..0x80) => Ok(()),
        _ => Err(H3ConnectionError::new(
            H3ErrorCode::QPACK_DECODER_STREAM_ERROR,
            "no dynamic table entry to acknowledge",
        )),
    }
}
