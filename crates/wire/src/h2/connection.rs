//! HTTP/2 connection: received frames become events, and messages become frames.
//!
//! The file holds the receiving half that both roles share, with the frames of bodies in [`data`](self::data) and
//! those of the connection in [`control`](self::control); the roles are in [`server`](self::server) and
//! [`client`](self::client), and the sending half in [`send`](self::send). `receive` of a role consumes bytes
//! and returns one event at a time until it needs more input. Frames owed by the protocol (acknowledgements,
//! window updates, resets) are appended to `out` meanwhile. A [`H2ConnectionError`] ends the connection: the
//! driver sends the error in GOAWAY and reads no further input.

use super::error::{H2ConnectionError, H2ErrorCode, H2ResetCause};
use super::frame::{self, H2FrameHeader, HEADER_BYTES, STREAM_ID_MAX};
use super::hpack::{HpackDecoder, HpackScratch};
use super::role::{H2Role, ServerRole};
use super::settings::{FRAME_BYTES, H2Settings, WINDOW_BYTES, WINDOW_BYTES_MAX};
use super::stream::{H2Stream, RemoteState, closed};
use crate::abuse_budget::AbuseBudget;
use crate::field_section::FieldSection;
use crate::limits::{self, HeadLimits};
use crate::reject::Reject;
use crate::request_head::Version;
use std::collections::VecDeque;

pub mod client;
mod control;
mod data;
mod send;
mod server;

pub use server::remote_state;

/// Result of [`H2Connection::receive`].
#[derive(Debug)]
pub enum H2Event<'i, T> {
    /// More input is needed. The driver passes the unconsumed input again, followed by more bytes.
    More,
    /// A frame was handled without an event. The next call may return another event.
    Handled,
    /// The `FieldSection` holds a request. The driver must accept, answer or refuse the stream before the
    /// next call of `receive`. In the role of the client, the section holds a response.
    Head {
        /// Stream identifier.
        id: u32,
        /// The message has no body.
        ended: bool,
    },
    /// Part of a body.
    Data {
        /// Stream identifier.
        id: u32,
        /// The part, perhaps empty. The driver returns its window with [`H2Connection::release_capacity`].
        bytes: &'i [u8],
        /// The part is the last of the body.
        ended: bool,
    },
    /// Trailers at the end of a body. The `FieldSection` holds the trailers, or the fault for which the message
    /// is refused.
    Trailers {
        /// Stream identifier.
        id: u32,
    },
    /// A stream was reset, by the peer or because of an error of the peer.
    Reset {
        /// Stream identifier.
        id: u32,
        /// Cause of the reset.
        cause: H2ResetCause,
        /// Driver's value for the stream.
        work: T,
    },
    /// The peer acknowledged the PING sent after the first GOAWAY, and has therefore received both frames.
    GoawayAcknowledged,
}

/// Start of the next frame.
enum FrameStart<'i, T> {
    /// No frame begins: the input is incomplete, or continues a DATA frame.
    Event(H2Event<'i, T>),
    /// DATA frame, still in the input.
    Data(H2FrameHeader),
    /// Complete frame with its payload, taken from the input.
    Whole(H2FrameHeader, &'i [u8]),
}

/// Protocol state of an HTTP/2 connection in the role `R`, with a value of type `T` for each stream.
pub struct H2Connection<T, R = ServerRole> {
    /// Frames to send. The driver empties the buffer, and calls `receive` only while the buffer is short.
    pub out: Vec<u8>,
    /// Streams in the order of their identifiers.
    streams: Vec<H2Stream<T>>,
    expects: ExpectedInput,
    decoder: HpackDecoder,
    /// Fragments of an incomplete field block.
    block: Vec<u8>,
    peer: H2Settings,
    abuse_budget: AbuseBudget,
    /// Credits for small DATA frames, earned by large DATA frames.
    small_data_credits: u32,
    /// Flow-control window for sending on all streams together.
    send_window: i64,
    /// Flow-control window granted to the peer for all streams together.
    receive_window: u32,
    /// Number of bytes consumed since the last WINDOW_UPDATE of the connection.
    taken: u32,
    /// Bytes granted to the peer ahead of their arrival, for bodies that are discarded. As many consumed bytes are not
    /// granted again.
    ahead: u32,
    /// Highest stream identifier used by the client.
    last: u32,
    /// Streams reset by this endpoint before the peer had ended the stream.
    reset: VecDeque<u32>,
    /// Highest accepted stream identifier. After the final GOAWAY, streams above are ignored.
    accepts_to: u32,
    /// The next field block must signal an empty dynamic table, because the peer has reduced its table.
    must_signal_empty_table: bool,
    /// Number of turns given to streams so far. A stream takes the number of its last turn, so that
    /// streams of equal priority take turns.
    turns: u64,
    /// State of the role.
    role: R,
}

/// Expected input.
enum ExpectedInput {
    /// Rest of the connection preface.
    Preface,
    /// SETTINGS behind the preface (RFC 9113 §3.4).
    Settings,
    /// Any frame.
    Frame,
    /// Rest of a field block: only CONTINUATION of its stream is allowed.
    Block(FieldBlock),
    /// Rest of a DATA frame.
    Data(DataFrame),
}

/// Field block with fragments still arriving.
#[derive(Copy, Clone)]
struct FieldBlock {
    id: u32,
    ended: bool,
    frames: usize,
    purpose: FieldBlockPurpose,
}

/// Purpose of a field block. Every block is decoded, since the compression state depends on each block.
#[derive(Copy, Clone, PartialEq, Eq)]
enum FieldBlockPurpose {
    Head,
    Trailers,
    /// The stream will be reset.
    Reset(H2ResetCause),
    /// The content is ignored.
    Nothing,
}

/// DATA frame with payload still arriving.
#[derive(Copy, Clone)]
struct DataFrame {
    /// Stream identifier; 0 for a stream that no longer exists.
    id: u32,
    left: usize,
    padding: usize,
    ended: bool,
}

impl<T, R: H2Role> H2Connection<T, R> {
    /// Creates a connection with the first output. `expects` is the first input from the peer.
    fn in_role(role: R, out: Vec<u8>, expects: ExpectedInput) -> H2Connection<T, R> {
        H2Connection {
            out,
            streams: Vec::new(),
            expects,
            decoder: HpackDecoder::default(),
            block: Vec::new(),
            peer: H2Settings::default(),
            abuse_budget: AbuseBudget::default(),
            small_data_credits: 0,
            send_window: i64::from(WINDOW_BYTES),
            receive_window: limits::H2_CONNECTION_WINDOW_BYTES,
            taken: 0,
            ahead: 0,
            last: 0,
            reset: VecDeque::new(),
            accepts_to: STREAM_ID_MAX,
            must_signal_empty_table: false,
            turns: 0,
            role,
        }
    }

    /// Takes the next frame from the front of `input`.
    fn next_frame<'i>(
        &mut self,
        input: &mut &'i [u8],
    ) -> Result<FrameStart<'i, T>, H2ConnectionError> {
        if let ExpectedInput::Data(data) = self.expects {
            return Ok(FrameStart::Event(self.data_goes_on(data, input)));
        }
        let Some(header) = input.first_chunk().map(H2FrameHeader::parse) else {
            return Ok(FrameStart::Event(H2Event::More));
        };
        if header.length > FRAME_BYTES as usize {
            return Err(H2ConnectionError::new(
                H2ErrorCode::FRAME_SIZE_ERROR,
                "a frame is too large",
            ));
        }
        self.check_expected(&header)?;
        if header.kind == frame::DATA {
            return Ok(FrameStart::Data(header));
        }
        let Some(payload) = input.get(HEADER_BYTES..HEADER_BYTES + header.length) else {
            return Ok(FrameStart::Event(H2Event::More));
        };
        *input = &input[HEADER_BYTES + header.length..];
        Ok(FrameStart::Whole(header, payload))
    }

    /// Checks the order of frames: SETTINGS first, and no frame between the fragments of a field block.
    fn check_expected(&self, header: &H2FrameHeader) -> Result<(), H2ConnectionError> {
        let is = |kind, stream| header.kind == kind && header.stream == stream;
        match &self.expects {
            ExpectedInput::Settings if !is(frame::SETTINGS, 0) || header.has(frame::ACK) => Err(
                H2ConnectionError::protocol("the first frame must be SETTINGS"),
            ),
            ExpectedInput::Block(block) if !is(frame::CONTINUATION, block.id) => {
                Err(H2ConnectionError::protocol("a field block was interrupted"))
            }
            ExpectedInput::Frame if header.kind == frame::CONTINUATION => Err(
                H2ConnectionError::protocol("CONTINUATION without an open field block"),
            ),
            _ => Ok(()),
        }
    }

    /// Handles a complete frame that both roles receive alike.
    fn common_frame(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let now_ms = reading.now_ms;
        match header.kind {
            frame::CONTINUATION => self.continuation(header, payload, reading),
            frame::PRIORITY => self.old_priority(header, payload, now_ms),
            frame::RST_STREAM => self.peer_resets(header, payload, now_ms),
            frame::SETTINGS => self.settings(header, payload, now_ms),
            frame::PING => self.ping(header, payload, now_ms),
            frame::WINDOW_UPDATE => self.window_update(header, payload, now_ms),
            _ => self.price(
                limits::UNKNOWN_FRAME_POINTS,
                now_ms,
                "a flood of unknown frames",
            ),
        }
    }

    /// Checks GOAWAY and returns the last stream that the peer processes.
    fn goaway_last(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<u32, H2ConnectionError> {
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("GOAWAY on a stream"));
        }
        let last = match payload.first_chunk() {
            Some(last) if payload.len() >= 8 => u32::from_be_bytes(*last) & STREAM_ID_MAX,
            _ => return Err(too_short()),
        };
        let points = limits::UNKNOWN_FRAME_POINTS;
        self.abuse_budget.spend(points, now_ms, "GOAWAY flood")?;
        Ok(last)
    }

    /// Charges the abuse budget for a frame that serves no response.
    fn price(
        &mut self,
        points: u32,
        now_ms: u64,
        what: &'static str,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        self.abuse_budget.spend(points, now_ms, what)?;
        Ok(H2Event::Handled)
    }

    /// Begins a field block with the fragment of HEADERS, without padding.
    fn field_block(
        &mut self,
        header: &H2FrameHeader,
        mut fragment: &[u8],
        mut purpose: FieldBlockPurpose,
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        if header.has(frame::WITH_PRIORITY) {
            let (old, rest) = fragment.split_at_checked(5).ok_or(too_short())?;
            fragment = rest;
            if depends_on_itself(id, old) {
                purpose = FieldBlockPurpose::Reset(H2ErrorCode::PROTOCOL_ERROR.into());
            }
        }
        let block = FieldBlock {
            id,
            ended: header.has(frame::END_STREAM),
            frames: 1,
            purpose,
        };
        if header.has(frame::END_HEADERS) {
            return self.decode(block, fragment, reading);
        }
        self.block.extend_from_slice(fragment);
        self.expects = ExpectedInput::Block(block);
        Ok(H2Event::Handled)
    }

    fn continuation(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let ExpectedInput::Block(block) = &mut self.expects else {
            return Err(H2ConnectionError::protocol(
                "CONTINUATION without an open field block",
            ));
        };
        block.frames += 1;
        let block = *block;
        self.block.extend_from_slice(payload);
        if block.frames > limits::H2_BLOCK_FRAMES_MAX
            || self.block.len() > limits::H2_BLOCK_BYTES_MAX
        {
            return Err(H2ConnectionError::enhance_your_calm("CONTINUATION flood"));
        }
        if !header.has(frame::END_HEADERS) {
            return Ok(H2Event::Handled);
        }
        let whole = std::mem::take(&mut self.block);
        self.decode(block, &whole, reading)
    }

    /// Decodes a complete field block.
    fn decode(
        &mut self,
        block: FieldBlock,
        fields: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        self.expects = ExpectedInput::Frame;
        let FieldBlock { id, ended, .. } = block;
        let kind = match block.purpose {
            FieldBlockPurpose::Trailers => R::TRAILERS,
            _ => R::HEAD,
        };
        let section = &mut *reading.section;
        section.begin(Version::Http2, reading.limits, ended, kind);
        self.decoder
            .decode(fields, reading.strings, |name, value| {
                Ok(section.field(name, value)?)
            })?;
        section.end();
        match block.purpose {
            FieldBlockPurpose::Nothing => Ok(H2Event::Handled),
            FieldBlockPurpose::Head => Ok(H2Event::Head { id, ended }),
            FieldBlockPurpose::Reset(cause) => self.stream_error(id, cause, reading.now_ms),
            FieldBlockPurpose::Trailers => {
                let fault = section.fault().filter(|fault| fault.is_malformed());
                let ended = match (fault, self.place(id)) {
                    (Some(fault), _) => Err(H2ResetCause::Malformed(fault)),
                    (None, Some(at)) => self.streams[at].end(),
                    (None, None) => Err(H2ErrorCode::PROTOCOL_ERROR.into()),
                };
                match ended {
                    Ok(()) => Ok(H2Event::Trailers { id }),
                    Err(cause) => self.stream_error(id, cause, reading.now_ms),
                }
            }
        }
    }

    /// Resets a stream after an error of the peer (RFC 9113 §5.4.2). Provoking a reset costs the peer as
    /// many points as sending a reset.
    fn stream_error(
        &mut self,
        id: u32,
        cause: H2ResetCause,
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let what = "too many provoked stream resets";
        self.abuse_budget
            .spend(limits::RESET_POINTS, now_ms, what)?;
        frame::reset(&mut self.out, id, cause.code());
        self.remember_reset(id);
        Ok(match self.place(id) {
            Some(at) => {
                let H2Stream { work, .. } = self.streams.remove(at);
                H2Event::Reset { id, cause, work }
            }
            None => H2Event::Handled,
        })
    }

    fn remember_reset(&mut self, id: u32) {
        if self.reset.len() == limits::H2_RESETS_REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    fn was_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }

    /// Returns the index of a stream in the table.
    fn place(&self, id: u32) -> Option<usize> {
        // The newest stream is looked up most often.
        match self.streams.last() {
            Some(newest) if newest.id == id => Some(self.streams.len() - 1),
            Some(newest) if newest.id > id => self
                .streams
                .binary_search_by_key(&id, |stream| stream.id)
                .ok(),
            _ => None,
        }
    }

    /// Returns true if no received frame or field block is incomplete.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.expects, ExpectedInput::Frame)
    }

    /// Returns true if the peer has sent the preface and its first SETTINGS.
    pub fn is_greeted(&self) -> bool {
        !matches!(
            self.expects,
            ExpectedInput::Preface | ExpectedInput::Settings
        )
    }

    /// Returns true if only the payload of a DATA frame is incomplete.
    pub fn is_within_data(&self) -> bool {
        self.unfinished_data().is_some()
    }

    /// Returns the stream with an incomplete DATA frame. If the frame has END_STREAM, the state of the stream is ended
    /// already, and the peer still owes the rest of the content.
    pub fn unfinished_data(&self) -> Option<u32> {
        match &self.expects {
            ExpectedInput::Data(data) => Some(data.id),
            _ => None,
        }
    }

    /// Returns all streams that await a response.
    pub fn streams(&mut self) -> &mut [H2Stream<T>] {
        &mut self.streams
    }

    /// Returns the stream with identifier `id`, if the stream awaits a response.
    pub fn stream(&mut self, id: u32) -> Option<&mut H2Stream<T>> {
        self.place(id).map(|at| &mut self.streams[at])
    }

    /// Returns the number of streams that await a response.
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// Returns the highest identifier of a stream that the client has opened; 0 before the first.
    pub fn last_stream(&self) -> u32 {
        self.last
    }

    /// Returns the heap memory of the connection in bytes.
    pub fn held_bytes(&self) -> usize {
        self.decoder.held_bytes()
            + self.block.capacity()
            + self.out.capacity()
            + self.streams.capacity() * size_of::<H2Stream<T>>()
            + self.reset.capacity() * size_of::<u32>()
    }

    /// Returns the length of an incomplete field block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.block.len()
    }

    /// Frees memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.streams.is_empty() && self.streams.capacity() > 0 {
            self.streams = Vec::new();
        }
        if self.reset.len() * 4 < self.reset.capacity() {
            self.reset.shrink_to_fit();
        }
    }
}

/// Payload of the PING behind the first of two GOAWAYs.
const LAST_PING: [u8; 8] = *b"anthill!";

/// Buffers and limits for decoding a field block.
struct FieldBlockContext<'r> {
    section: &'r mut FieldSection,
    strings: &'r mut HpackScratch,
    limits: &'r HeadLimits,
    now_ms: u64,
}

fn too_short() -> H2ConnectionError {
    H2ConnectionError::new(H2ErrorCode::FRAME_SIZE_ERROR, "a frame has the wrong size")
}

/// Returns the payload without its padding (RFC 9113 §6.2).
fn unpadded<'p>(header: &H2FrameHeader, payload: &'p [u8]) -> Result<&'p [u8], H2ConnectionError> {
    if !header.has(frame::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(too_short())?;
    let length = rest.len().checked_sub(usize::from(*padding));
    let length = length.ok_or(H2ConnectionError::protocol("more padding than payload"))?;
    Ok(&rest[..length])
}

fn depends_on_itself(id: u32, old_priority: &[u8]) -> bool {
    let on = old_priority
        .first_chunk()
        .map(|bytes| u32::from_be_bytes(*bytes));
    on.is_some_and(|on| on & STREAM_ID_MAX == id)
}

#[cfg(test)]
mod tests;
