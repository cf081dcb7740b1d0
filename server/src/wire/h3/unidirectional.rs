//! The streams that go one way (RFC 9114 §6.2): the client's control stream, and the two of QPACK
//! (RFC 9204 §4.2), on which nothing may be said since there is no dynamic table.

use crate::limits::H3_CONTROL_FRAME_BYTES_MAX;
use crate::wire::h3::error::{H3ConnectionError, H3ErrorCode};
use crate::wire::h3::frame;
use crate::wire::h3::frame::{FrameHeaderReader, H3FrameHeader};
use crate::wire::hpack_primitives;

/// What all streams of a connection that go one way have said together.
#[derive(Default)]
pub struct UnidirectionalState {
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    has_settings: bool,
    max_push_id: Option<u64>,
    goaway_id: Option<u64>,
}

/// One such stream.
#[derive(Default)]
pub struct UnidirectionalStream {
    kind: UnidirectionalStreamType,
    /// What isn't whole yet.
    held: Vec<u8>,
    header: FrameHeaderReader,
    frame: Option<H3FrameHeader>,
    idle_frames: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum UnidirectionalStreamType {
    /// Its type isn't whole yet.
    #[default]
    New,
    Control,
    Encoder,
    Decoder,
    /// Nobody here knows it: it is to be stopped.
    Unknown,
}

impl UnidirectionalStream {
    /// Takes all of `input`; false if nobody reads this stream.
    ///
    /// # Errors
    /// What it says breaks a rule.
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

    /// The peer has ended the stream, or broken it off.
    ///
    /// # Errors
    /// The connection can't do without it (RFC 9114 §6.2.1, RFC 9204 §4.2).
    pub fn end(&self) -> Result<(), H3ConnectionError> {
        match self.kind {
            UnidirectionalStreamType::New | UnidirectionalStreamType::Unknown => Ok(()),
            UnidirectionalStreamType::Control
            | UnidirectionalStreamType::Encoder
            | UnidirectionalStreamType::Decoder => Err(H3ConnectionError::new(
                H3ErrorCode::H3_CLOSED_CRITICAL_STREAM,
                "a stream ended that the connection needs",
            )),
        }
    }

    /// Frames that changed nothing, since this was last asked.
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
                    "a frame of the control stream without end",
                ));
            }
            // Of what is ignored nothing is kept: only how much is left of it.
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

    /// Instructions are integers behind a few bits that say what they are.
    fn instructions(
        &mut self,
        input: &[u8],
        take: fn(&mut &[u8]) -> Result<(), H3ConnectionError>,
    ) -> Result<(), H3ConnectionError> {
        self.held.extend_from_slice(input);
        let held = std::mem::take(&mut self.held);
        let mut rest = &held[..];
        let endless = H3ConnectionError::excessive_load("an instruction without end");
        while let Some(length) = instruction_bytes(rest) {
            // It is the same fault whether it came in one piece or not.
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
    /// A stream of this type begins (RFC 9114 §6.2).
    fn admit(&mut self, kind: u64) -> Result<UnidirectionalStreamType, H3ConnectionError> {
        let (seen, kind) = match kind {
            frame::CONTROL_STREAM => (&mut self.has_control, UnidirectionalStreamType::Control),
            frame::ENCODER_STREAM => (&mut self.has_encoder, UnidirectionalStreamType::Encoder),
            frame::DECODER_STREAM => (&mut self.has_decoder, UnidirectionalStreamType::Decoder),
            frame::PUSH_STREAM => {
                let what = "a push from a client";
                return Err(H3ConnectionError::new(
                    H3ErrorCode::H3_STREAM_CREATION_ERROR,
                    what,
                ));
            }
            _ => return Ok(UnidirectionalStreamType::Unknown),
        };
        match std::mem::replace(seen, true) {
            false => Ok(kind),
            true => Err(H3ConnectionError::new(
                H3ErrorCode::H3_STREAM_CREATION_ERROR,
                "a second stream of its kind",
            )),
        }
    }

    /// A frame begins on the control stream (RFC 9114 §7).
    fn begin(&mut self, header: H3FrameHeader) -> Result<H3FrameHeader, H3ConnectionError> {
        if !self.has_settings && header.kind != frame::SETTINGS {
            let what = "a control stream that doesn't begin with SETTINGS";
            return Err(H3ConnectionError::new(
                H3ErrorCode::H3_MISSING_SETTINGS,
                what,
            ));
        }
        header.refuse_reserved()?;
        match header.kind {
            frame::SETTINGS if self.has_settings => {
                Err(H3ConnectionError::unexpected("SETTINGS again"))
            }
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => Err(
                H3ConnectionError::unexpected("a frame of a request's stream"),
            ),
            _ => Ok(header),
        }
    }

    /// A whole frame of a type that is known.
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
                    return Err(wrong_id("MAX_PUSH_ID became less"));
                }
                Ok(())
            }
            frame::GOAWAY => {
                let id = only_integer(payload)?;
                if self.goaway_id.replace(id).is_some_and(|before| id > before) {
                    return Err(wrong_id("GOAWAY became more"));
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
                let id = frame::integer(&mut rest)
                    .ok_or(H3ConnectionError::frame("no stream is named"))?;
                // Requests stand on streams that the client begins and that go both ways.
                match id % 4 {
                    0 => Ok(()),
                    _ => Err(wrong_id("a priority of what is no request")),
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

/// The one integer that a payload is.
fn only_integer(mut payload: &[u8]) -> Result<u64, H3ConnectionError> {
    let number = frame::integer(&mut payload);
    match (number, payload) {
        (Some(number), []) => Ok(number),
        _ => Err(H3ConnectionError::frame("a frame of another length")),
    }
}

/// RFC 9114 §7.2.4: pairs of integers, none twice, none of HTTP/2's. What the client's decoder could
/// keep is nothing to us, for we let it keep nothing.
fn settings(mut payload: &[u8]) -> Result<(), H3ConnectionError> {
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (Some(name), Some(_)) = (frame::integer(&mut payload), frame::integer(&mut payload))
        else {
            return Err(H3ConnectionError::frame("SETTINGS broke off"));
        };
        let wrong = |what| Err(H3ConnectionError::new(H3ErrorCode::H3_SETTINGS_ERROR, what));
        if matches!(name, 0x0 | 0x2..=0x5) {
            return wrong("a setting of HTTP/2");
        }
        if seen.contains(&name) {
            return wrong("a setting stands twice");
        }
        if seen.len() == SETTINGS_MAX {
            return Err(H3ConnectionError::excessive_load("too many settings"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Clients send a handful.
const SETTINGS_MAX: usize = 64;
/// An integer that we take, whatever instruction it is of.
const INSTRUCTION_BYTES_MAX: usize = 6;

/// How long the instruction at the start is, once it is whole. Those that carry strings are errors
/// for us, and are so by their first byte alone.
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

/// RFC 9204 §4.3: without a table nothing can be put into it; its capacity may be said to be 0.
fn encoder_instruction(instruction: &mut &[u8]) -> Result<(), H3ConnectionError> {
    let wrong = H3ConnectionError::new(
        H3ErrorCode::QPACK_ENCODER_STREAM_ERROR,
        "there is no dynamic table",
    );
    match instruction.first() {
        Some(0x20..0x40) => match hpack_primitives::integer(instruction, 5) {
            Ok(0) => Ok(()),
            _ => Err(wrong),
        },
        _ => Err(wrong),
    }
}

/// RFC 9204 §4.4: what was never sent can't be acknowledged; that a stream was left may be said.
fn decoder_instruction(instruction: &mut &[u8]) -> Result<(), H3ConnectionError> {
    match instruction.first() {
        Some(0x40..0x80) => Ok(()),
        _ => Err(H3ConnectionError::new(
            H3ErrorCode::QPACK_DECODER_STREAM_ERROR,
            "nothing was inserted",
        )),
    }
}
