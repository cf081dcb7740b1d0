//! HTTP/2 connection: received frames become events, and responses become frames.
//!
//! [`H2Connection::receive`] consumes bytes and returns one event at a time until it needs more input.
//! Frames owed by the protocol (acknowledgements, window updates, resets) are appended to `out` meanwhile.
//! The sending half is in [`send`](self::send). A [`H2ConnectionError`] ends the connection: the driver
//! sends the error with [`H2Connection::goaway`] and reads no further input.

use super::error::{H2ConnectionError, H2ErrorCode};
use super::frame::{self, H2FrameHeader, HEADER_BYTES, PREFACE, STREAM_ID_MAX};
use super::hpack::{HpackDecoder, HpackScratch};
use super::settings::{self, FRAME_BYTES, H2Settings, WINDOW_BYTES, WINDOW_BYTES_MAX};
use super::stream::{H2Stream, RemoteState, closed};
use crate::limits::{self, Limits};
use crate::wire::abuse_budget::AbuseBudget;
use crate::wire::field_section::FieldSection;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::priority::Priority;
use crate::wire::reject::Reject;
use crate::wire::request_head::Version;
use std::collections::VecDeque;

mod send;

/// Result of [`H2Connection::receive`].
#[derive(Debug)]
pub enum H2Event<'i, T> {
    /// More input is needed. The driver passes the unconsumed input again, followed by more bytes.
    More,
    /// A frame was handled without an event. The next call may return another event.
    Handled,
    /// The `FieldSection` holds a request. The driver must accept, answer or refuse the stream before the
    /// next call of `receive`.
    Request {
        /// Stream identifier.
        id: u32,
        /// The request has no body.
        ended: bool,
    },
    /// Part of a request's body.
    Data {
        /// Stream identifier.
        id: u32,
        /// The part, perhaps empty. The driver returns its window with [`H2Connection::release_capacity`].
        bytes: &'i [u8],
        /// The part is the last of the body.
        ended: bool,
    },
    /// Trailers at the end of a request's body. The `FieldSection` holds the trailers, or the fault for
    /// which the request is refused.
    Trailers {
        /// Stream identifier.
        id: u32,
    },
    /// A stream was reset, by the peer or because of an error of the peer.
    Reset {
        /// Stream identifier.
        id: u32,
        /// Driver's value for the stream.
        work: T,
    },
    /// The peer acknowledged the PING sent after the first GOAWAY, and has therefore received both frames.
    GoawayAcknowledged,
}

/// Protocol state of an HTTP/2 connection, with a value of type `T` for each stream.
pub struct H2Connection<T> {
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
    /// Highest stream identifier used by the peer.
    last: u32,
    /// Bit set of the identifiers used by the peer, among the last 64 odd identifiers up to `last`.
    begun: u64,
    /// Streams reset by the server before the peer had ended the stream.
    reset: VecDeque<u32>,
    /// Priorities received before the HEADERS of their streams.
    ahead: Vec<(u32, Priority)>,
    /// Highest accepted stream identifier. After the final GOAWAY, streams above are ignored.
    accepts_to: u32,
    /// The next field block must signal an empty dynamic table, because the peer has reduced its table.
    must_signal_empty_table: bool,
    /// Number of turns given to streams so far. A stream takes the number of its last turn, so that
    /// streams of equal priority take turns.
    turns: u64,
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
    Request,
    Trailers,
    /// The stream will be reset.
    Reset(H2ErrorCode),
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

impl<T> H2Connection<T> {
    /// Creates a connection; its output begins with SETTINGS. `head_bytes` is the largest accepted head.
    pub fn new(head_bytes: usize) -> H2Connection<T> {
        let mut out = Vec::new();
        settings::greet(&mut out, u32::try_from(head_bytes).unwrap_or(u32::MAX));
        H2Connection {
            out,
            streams: Vec::new(),
            expects: ExpectedInput::Preface,
            decoder: HpackDecoder::default(),
            block: Vec::new(),
            peer: H2Settings::default(),
            abuse_budget: AbuseBudget::default(),
            small_data_credits: 0,
            send_window: i64::from(WINDOW_BYTES),
            receive_window: limits::H2_CONNECTION_WINDOW_BYTES,
            taken: 0,
            last: 0,
            begun: 0,
            reset: VecDeque::new(),
            ahead: Vec::new(),
            accepts_to: STREAM_ID_MAX,
            must_signal_empty_table: false,
            turns: 0,
        }
    }

    /// Consumes the next event from the front of `input`. The fields of a request are written to `request`.
    /// `now_ms` comes from any monotonic clock.
    pub fn receive<'i>(
        &mut self,
        input: &mut &'i [u8],
        request: &mut FieldSection,
        strings: &mut HpackScratch,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<H2Event<'i, T>, H2ConnectionError> {
        match &mut self.expects {
            ExpectedInput::Preface => return self.preface(input),
            ExpectedInput::Data(data) => {
                let data = *data;
                return Ok(self.data_goes_on(data, input));
            }
            ExpectedInput::Settings | ExpectedInput::Frame | ExpectedInput::Block(_) => {}
        }
        let Some(header) = input.first_chunk().map(H2FrameHeader::parse) else {
            return Ok(H2Event::More);
        };
        if header.length > FRAME_BYTES as usize {
            return Err(H2ConnectionError::new(
                H2ErrorCode::FRAME_SIZE_ERROR,
                "a frame is too large",
            ));
        }
        self.check_expected(&header)?;
        if header.kind == frame::DATA {
            return self.data(&header, input, now_ms);
        }
        let Some(payload) = input.get(HEADER_BYTES..HEADER_BYTES + header.length) else {
            return Ok(H2Event::More);
        };
        *input = &input[HEADER_BYTES + header.length..];
        let mut reading = FieldBlockContext {
            request,
            strings,
            limits,
            now_ms,
        };
        self.frame(&header, payload, &mut reading)
    }

    fn preface(&mut self, input: &mut &[u8]) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(H2ConnectionError::protocol(
                "the connection preface is malformed",
            ));
        }
        if length < PREFACE.len() {
            return Ok(H2Event::More);
        }
        *input = &input[length..];
        self.expects = ExpectedInput::Settings;
        Ok(H2Event::Handled)
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

    /// Handles a complete frame other than DATA.
    fn frame(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let now_ms = reading.now_ms;
        match header.kind {
            frame::HEADERS => self.headers(header, payload, reading),
            frame::CONTINUATION => self.continuation(header, payload, reading),
            frame::PRIORITY => self.old_priority(header, payload, now_ms),
            frame::RST_STREAM => self.peer_resets(header, payload, now_ms),
            frame::SETTINGS => self.settings(header, payload, now_ms),
            frame::PING => self.ping(header, payload, now_ms),
            frame::WINDOW_UPDATE => self.window_update(header, payload, now_ms),
            frame::PRIORITY_UPDATE => self.priority_update(header, payload, now_ms),
            frame::PUSH_PROMISE => Err(H2ConnectionError::protocol("PUSH_PROMISE from a client")),
            frame::GOAWAY if header.stream != 0 => {
                Err(H2ConnectionError::protocol("GOAWAY on a stream"))
            }
            frame::GOAWAY if payload.len() < 8 => Err(too_short()),
            // The peer will start no further stream, and closes the connection after the last response.
            frame::GOAWAY => self.price(limits::UNKNOWN_FRAME_POINTS, now_ms, "GOAWAY flood"),
            _ => self.price(
                limits::UNKNOWN_FRAME_POINTS,
                now_ms,
                "a flood of unknown frames",
            ),
        }
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

    fn headers(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        if id.is_multiple_of(2) {
            return Err(H2ConnectionError::protocol(
                "HEADERS on a stream with an even identifier",
            ));
        }
        let mut fragment = unpadded(header, payload)?;
        let mut purpose = self.purpose(id, header.has(frame::END_STREAM), reading.now_ms)?;
        if header.has(frame::WITH_PRIORITY) {
            let (old, rest) = fragment.split_at_checked(5).ok_or(too_short())?;
            fragment = rest;
            if depends_on_itself(id, old) {
                purpose = FieldBlockPurpose::Reset(H2ErrorCode::PROTOCOL_ERROR);
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

    /// Returns the purpose of HEADERS on a stream (RFC 9113 §5.1, §5.1.1).
    fn purpose(
        &mut self,
        id: u32,
        ended: bool,
        now_ms: u64,
    ) -> Result<FieldBlockPurpose, H2ConnectionError> {
        if let Some(at) = self.place(id) {
            return Ok(match self.streams[at].remote {
                RemoteState::Ended => FieldBlockPurpose::Reset(H2ErrorCode::STREAM_CLOSED),
                RemoteState::Open { .. } if ended => FieldBlockPurpose::Trailers,
                RemoteState::Open { .. } => FieldBlockPurpose::Reset(H2ErrorCode::PROTOCOL_ERROR),
            });
        }
        if id > self.last {
            self.begun = match (id - self.last) / 2 {
                further @ 0..64 => self.begun << further | 1,
                _ => 1,
            };
            self.last = id;
            if id > self.accepts_to {
                return Ok(FieldBlockPurpose::Nothing);
            }
            if self.streams.len() >= limits::H2_STREAMS_MAX {
                let what = "more streams than allowed";
                self.abuse_budget
                    .spend(limits::RESET_POINTS, now_ms, what)?;
                return Ok(FieldBlockPurpose::Reset(H2ErrorCode::REFUSED_STREAM));
            }
            return Ok(FieldBlockPurpose::Request);
        }
        if self.was_reset(id) || id > self.accepts_to {
            return Ok(FieldBlockPurpose::Nothing);
        }
        let back = (self.last - id) / 2;
        if back >= 64 || self.begun >> back & 1 == 1 {
            return Err(closed("HEADERS on a closed stream"));
        }
        Err(H2ConnectionError::protocol(
            "stream identifiers must increase",
        ))
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
        let is_trailer = block.purpose == FieldBlockPurpose::Trailers;
        let request = &mut *reading.request;
        request.begin(Version::Http2, reading.limits, ended, is_trailer);
        self.decoder
            .decode(fields, reading.strings, |name, value| {
                Ok(request.field(name, value)?)
            })?;
        request.end();
        match block.purpose {
            FieldBlockPurpose::Nothing => Ok(H2Event::Handled),
            FieldBlockPurpose::Request => Ok(H2Event::Request { id, ended }),
            FieldBlockPurpose::Reset(code) => self.stream_error(id, code, reading.now_ms),
            FieldBlockPurpose::Trailers => {
                let is_malformed = request.fault().is_some_and(Reject::is_malformed);
                let ended = match self.place(id).filter(|_| !is_malformed) {
                    Some(at) => self.streams[at].end(),
                    None => Err(H2ErrorCode::PROTOCOL_ERROR),
                };
                match ended {
                    Ok(()) => Ok(H2Event::Trailers { id }),
                    Err(code) => self.stream_error(id, code, reading.now_ms),
                }
            }
        }
    }

    /// Handles the header of a DATA frame and the available part of its payload.
    fn data<'i>(
        &mut self,
        header: &H2FrameHeader,
        input: &mut &'i [u8],
        now_ms: u64,
    ) -> Result<H2Event<'i, T>, H2ConnectionError> {
        let id = header.stream;
        let is_padded = header.has(frame::PADDED);
        if is_padded && header.length == 0 {
            return Err(H2ConnectionError::protocol(
                "PADDED frame without a pad length",
            ));
        }
        let padding = match (is_padded, input.get(HEADER_BYTES)) {
            (false, _) => 0,
            (true, Some(padding)) => usize::from(*padding),
            (true, None) => return Ok(H2Event::More),
        };
        let overhead = usize::from(is_padded);
        let payload = (header.length - overhead).checked_sub(padding);
        let left = payload.ok_or(H2ConnectionError::protocol("more padding than payload"))?;
        *input = &input[HEADER_BYTES + overhead..];
        let mut data = DataFrame {
            id,
            left,
            padding,
            ended: header.has(frame::END_STREAM),
        };
        // The whole frame counts against the window, even if its stream is ignored (RFC 9113 §6.9).
        let window = self.receive_window.checked_sub(header.length as u32);
        let reason = "more DATA than the connection's window";
        self.receive_window = window.ok_or(H2ConnectionError::new(
            H2ErrorCode::FLOW_CONTROL_ERROR,
            reason,
        ))?;
        let place = self.place(id);
        let is_tunnel = place.is_some_and(|at| self.streams[at].is_tunnel);
        if !is_tunnel || left == 0 {
            self.price_data(left, data.ended, now_ms)?;
        }
        let Some(at) = place else {
            self.check_ignored(id)?;
            data.id = 0;
            self.release_connection_capacity((overhead + padding) as u32);
            return Ok(self.data_goes_on(data, input));
        };
        let stream = &mut self.streams[at];
        let mut received = stream.receive(left, header.length);
        if received.is_ok() && data.ended {
            received = stream.end();
        }
        self.release_capacity(id, overhead + padding);
        match received {
            Ok(()) => Ok(self.data_goes_on(data, input)),
            Err(code) => {
                data.id = 0;
                self.expects = ExpectedInput::Data(data);
                self.stream_error(id, code, now_ms)
            }
        }
    }

    /// Charges the abuse budget for a nearly empty DATA frame. A short frame at the end of the client's
    /// buffer or of the window is legitimate, and each large frame therefore pays for one short frame.
    fn price_data(
        &mut self,
        length: usize,
        ended: bool,
        now_ms: u64,
    ) -> Result<(), H2ConnectionError> {
        if length >= limits::LARGE_DATA_BYTES {
            self.small_data_credits =
                (self.small_data_credits + 1).min(limits::SMALL_DATA_CREDITS_MAX);
        } else if length < limits::SMALL_DATA_BYTES && !ended {
            match self.small_data_credits.checked_sub(1) {
                Some(credits) => self.small_data_credits = credits,
                None => {
                    let points = limits::EMPTY_DATA_POINTS;
                    self.abuse_budget
                        .spend(points, now_ms, "a flood of empty DATA")?;
                }
            }
        }
        Ok(())
    }

    /// Checks DATA on a missing stream. DATA in flight during the server's reset is ignored; any other DATA
    /// is an error.
    fn check_ignored(&self, id: u32) -> Result<(), H2ConnectionError> {
        if id == 0 || id.is_multiple_of(2) || (id > self.last && id <= self.accepts_to) {
            return Err(H2ConnectionError::protocol("DATA on an idle stream"));
        }
        if id > self.accepts_to || self.was_reset(id) {
            return Ok(());
        }
        Err(closed("DATA on a closed stream"))
    }

    fn data_goes_on<'i>(&mut self, mut data: DataFrame, input: &mut &'i [u8]) -> H2Event<'i, T> {
        let (bytes, rest) = input.split_at(data.left.min(input.len()));
        data.left -= bytes.len();
        let skipped = match data.left {
            0 => data.padding.min(rest.len()),
            _ => 0,
        };
        data.padding -= skipped;
        *input = &rest[skipped..];
        let is_whole = data.left + data.padding == 0;
        self.expects = match is_whole {
            true => ExpectedInput::Frame,
            false => ExpectedInput::Data(data),
        };
        // The stream may have been reset since the frame began.
        if data.id == 0 || self.place(data.id).is_none() {
            self.release_connection_capacity(bytes.len() as u32);
        } else if !bytes.is_empty() || (is_whole && data.ended) {
            return H2Event::Data {
                id: data.id,
                bytes,
                ended: is_whole && data.ended,
            };
        }
        match is_whole {
            true => H2Event::Handled,
            false => H2Event::More,
        }
    }

    /// Checks a PRIORITY frame of RFC 7540 and ignores its content (RFC 9113 §5.3.2).
    fn old_priority(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        if id == 0 {
            return Err(H2ConnectionError::protocol("PRIORITY on stream 0"));
        }
        let points = limits::H2_PRIORITY_POINTS;
        self.abuse_budget.spend(points, now_ms, "PRIORITY flood")?;
        if payload.len() != 5 {
            return self.stream_error(id, H2ErrorCode::FRAME_SIZE_ERROR, now_ms);
        }
        if depends_on_itself(id, payload) {
            return self.stream_error(id, H2ErrorCode::PROTOCOL_ERROR, now_ms);
        }
        Ok(H2Event::Handled)
    }

    /// Handles PRIORITY_UPDATE (RFC 9218 §7.1).
    fn priority_update(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let points = limits::H2_PRIORITY_POINTS;
        self.abuse_budget
            .spend(points, now_ms, "PRIORITY_UPDATE flood")?;
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("PRIORITY_UPDATE on a stream"));
        }
        let (id, value) = payload.split_first_chunk().ok_or(too_short())?;
        let id = u32::from_be_bytes(*id) & STREAM_ID_MAX;
        if id == 0 {
            return Err(H2ConnectionError::protocol("PRIORITY_UPDATE for stream 0"));
        }
        let priority = Priority::parse(value);
        if let Some(at) = self.place(id) {
            self.streams[at].priority = priority;
        } else if id > self.last {
            let last = self.last;
            self.ahead
                .retain(|(known, _)| *known != id && *known > last);
            if self.ahead.len() < limits::H2_PRIORITIES_AHEAD_MAX {
                self.ahead.push((id, priority));
            }
        }
        Ok(H2Event::Handled)
    }

    fn peer_resets(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        if payload.len() != 4 {
            let reason = "RST_STREAM is not 4 bytes long";
            return Err(H2ConnectionError::new(
                H2ErrorCode::FRAME_SIZE_ERROR,
                reason,
            ));
        }
        if id == 0 || id > self.last {
            return Err(H2ConnectionError::protocol("RST_STREAM on an idle stream"));
        }
        let points = limits::RESET_POINTS;
        self.abuse_budget.spend(points, now_ms, "rapid reset")?;
        match self.place(id) {
            None => Ok(H2Event::Handled),
            Some(at) => {
                let H2Stream { work, .. } = self.streams.remove(at);
                Ok(H2Event::Reset { id, work })
            }
        }
    }

    fn settings(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("SETTINGS on a stream"));
        }
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                let reason = "SETTINGS acknowledgement with a payload";
                return Err(H2ConnectionError::new(
                    H2ErrorCode::FRAME_SIZE_ERROR,
                    reason,
                ));
            }
            return self.price(limits::H2_PING_POINTS, now_ms, "SETTINGS flood");
        }
        let points = limits::H2_SETTINGS_POINTS;
        self.abuse_budget.spend(points, now_ms, "SETTINGS flood")?;
        let before = self.peer;
        self.peer.apply(payload)?;
        self.must_signal_empty_table |= self.peer.table_bytes < before.table_bytes;
        let more = i64::from(self.peer.window_bytes) - i64::from(before.window_bytes);
        for stream in &mut self.streams {
            let reason = "SETTINGS makes a window too large";
            stream
                .widen(more)
                .map_err(|code| H2ConnectionError::new(code, reason))?;
        }
        frame::settings_ack(&mut self.out);
        self.expects = ExpectedInput::Frame;
        Ok(H2Event::Handled)
    }

    fn ping(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("PING on a stream"));
        }
        let payload: &[u8; 8] = payload.try_into().map_err(|_| too_short())?;
        self.abuse_budget
            .spend(limits::H2_PING_POINTS, now_ms, "PING flood")?;
        if header.has(frame::ACK) {
            return Ok(match *payload == send::LAST_PING {
                true => H2Event::GoawayAcknowledged,
                false => H2Event::Handled,
            });
        }
        frame::ping(&mut self.out, frame::ACK, payload);
        Ok(H2Event::Handled)
    }

    fn window_update(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        let payload: &[u8; 4] = payload.try_into().map_err(|_| too_short())?;
        let more = u32::from_be_bytes(*payload) & WINDOW_BYTES_MAX;
        let points = match more {
            ..limits::WINDOW_UPDATE_BYTES_LARGE => limits::WINDOW_UPDATE_POINTS,
            _ => 1,
        };
        self.abuse_budget
            .spend(points, now_ms, "WINDOW_UPDATE flood")?;
        if id == 0 {
            self.send_window += i64::from(more);
            return match more {
                0 => Err(H2ConnectionError::protocol(
                    "WINDOW_UPDATE with an increment of 0",
                )),
                _ if self.send_window > i64::from(WINDOW_BYTES_MAX) => {
                    let reason = "the connection's window is too large";
                    Err(H2ConnectionError::new(
                        H2ErrorCode::FLOW_CONTROL_ERROR,
                        reason,
                    ))
                }
                _ => Ok(H2Event::Handled),
            };
        }
        if id > self.last {
            return Err(H2ConnectionError::protocol(
                "WINDOW_UPDATE on an idle stream",
            ));
        }
        let Some(at) = self.place(id) else {
            return Ok(H2Event::Handled);
        };
        let widened = match more {
            0 => Err(H2ErrorCode::PROTOCOL_ERROR),
            more => self.streams[at].widen(i64::from(more)),
        };
        match widened {
            Ok(()) => Ok(H2Event::Handled),
            Err(code) => self.stream_error(id, code, now_ms),
        }
    }

    /// Resets a stream after an error of the peer (RFC 9113 §5.4.2). Provoking a reset costs the peer as
    /// many points as sending a reset.
    fn stream_error(
        &mut self,
        id: u32,
        code: H2ErrorCode,
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let what = "too many provoked stream resets";
        self.abuse_budget
            .spend(limits::RESET_POINTS, now_ms, what)?;
        frame::reset(&mut self.out, id, code);
        self.remember_reset(id);
        Ok(match self.place(id) {
            Some(at) => {
                let H2Stream { work, .. } = self.streams.remove(at);
                H2Event::Reset { id, work }
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
        matches!(self.expects, ExpectedInput::Data(_))
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

/// Buffers and limits for decoding a field block.
struct FieldBlockContext<'r> {
    request: &'r mut FieldSection,
    strings: &'r mut HpackScratch,
    limits: &'r Limits,
    now_ms: u64,
}

/// Returns the remote state after HEADERS: ended, or open with the announced length of the body.
pub fn remote_state(body: BodyLength, ended: bool) -> RemoteState {
    match (ended, body) {
        (true, _) => RemoteState::Ended,
        (false, BodyLength::Length(bytes)) => RemoteState::Open {
            announced: Some(bytes),
        },
        (false, _) => RemoteState::Open { announced: None },
    }
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
