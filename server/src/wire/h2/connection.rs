//! One HTTP/2 connection: the frames that come become events, what we answer becomes frames.
//!
//! [`H2Connection::receive`] takes bytes and gives one event at a time, until it wants more; what the
//! protocol itself owes (acknowledgements, windows, resets) it writes into `out` meanwhile. The
//! other half, sending, is in [`send`](self::send). A [`H2ConnectionError`] ends the connection: the driver
//! says it with [`H2Connection::goaway`] and reads nothing more.

use super::error::{H2ConnectionError, H2ErrorCode};
use super::frame::{self, H2FrameHeader, HEADER_BYTES, PREFACE};
use super::hpack::{HpackDecoder, HpackScratch};
use super::settings::{self, FRAME_BYTES, H2Settings, WINDOW_BYTES, WINDOW_BYTES_MAX};
use super::stream::{H2Stream, RemoteState, closed};
use crate::limits::{self, Limits};
use crate::wire::abuse_budget::AbuseBudget;
use crate::wire::field_section::FieldSection;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::priority::Priority;
use crate::wire::request_head::Version;
use std::collections::VecDeque;

mod send;

/// What came.
#[derive(Debug)]
pub enum H2Event<'i, T> {
    /// Nothing more without more bytes; what is left of the input is to be given again, with more.
    More,
    /// Something that is done with. Called again, there may be more.
    Handled,
    /// A request stands in the `FieldSection`. It must be accepted, answered or refused, by its number,
    /// before anything else is received.
    Request {
        /// The stream's number.
        id: u32,
        /// No body follows.
        ended: bool,
    },
    /// A part of a request's body.
    Data {
        /// The stream's number.
        id: u32,
        /// The part, perhaps empty; to be granted anew by [`H2Connection::taken`].
        bytes: &'i [u8],
        /// It was the last.
        ended: bool,
    },
    /// A stream was reset, by the peer or by us for what the peer did.
    Reset {
        /// The stream's number.
        id: u32,
        /// What hung on it.
        work: T,
    },
    /// The peer has had our first GOAWAY (or answered the PING that went with it).
    GoawayAcknowledged,
}

/// A connection, with a `T` of the driver's on each stream.
pub struct H2Connection<T> {
    /// Frames to be sent. The driver empties it, and receives only while it is short.
    pub out: Vec<u8>,
    /// In the order of their numbers.
    streams: Vec<H2Stream<T>>,
    expects: ExpectedInput,
    decoder: HpackDecoder,
    /// Fragments of a field block that isn't whole yet.
    block: Vec<u8>,
    peer: H2Settings,
    calm: AbuseBudget,
    /// So many small DATA frames are paid for.
    rests: u32,
    /// How much we may send, on all streams together.
    send_window: i64,
    /// How much the peer may still send on all streams together, and what was taken since it was
    /// told.
    receive_window: u32,
    taken: u32,
    /// The last stream that the peer has begun, and which of the 64 numbers up to it it has begun.
    last: u32,
    begun: u64,
    /// Streams that we reset before the peer had ended them.
    reset: VecDeque<u32>,
    /// Priorities of streams that haven't begun.
    ahead: Vec<(u32, Priority)>,
    /// Streams beyond this are ignored: we said so in GOAWAY.
    accepts_to: u32,
    /// The encoder must say that it uses no table: the peer made its own smaller.
    says_no_table: bool,
    turns: u64,
}

/// What may come next.
enum ExpectedInput {
    /// The rest of the preface.
    Preface,
    /// The SETTINGS behind it (RFC 9113 §3.4).
    Settings,
    /// A frame.
    Frame,
    /// The rest of a field block: CONTINUATION of one stream and nothing else.
    Block(FieldBlock),
    /// The rest of a DATA frame.
    Data(DataFrame),
}

/// A field block on its way.
#[derive(Copy, Clone)]
struct FieldBlock {
    id: u32,
    ended: bool,
    frames: usize,
    purpose: FieldBlockPurpose,
}

/// What a field block is for. It must be decoded in any case.
#[derive(Copy, Clone, PartialEq, Eq)]
enum FieldBlockPurpose {
    Request,
    Trailers,
    /// The stream is to be reset.
    Reset(H2ErrorCode),
    /// Nobody will look at it.
    Nothing,
}

/// A DATA frame on its way.
#[derive(Copy, Clone)]
struct DataFrame {
    /// 0: the stream has gone.
    id: u32,
    left: usize,
    padding: usize,
    ended: bool,
}

impl<T> H2Connection<T> {
    /// A connection just made; it begins with our settings. `head_bytes`: the largest head we take.
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
            calm: AbuseBudget::default(),
            rests: 0,
            send_window: i64::from(WINDOW_BYTES),
            receive_window: limits::H2_CONNECTION_WINDOW_BYTES,
            taken: 0,
            last: 0,
            begun: 0,
            reset: VecDeque::new(),
            ahead: Vec::new(),
            accepts_to: WINDOW_BYTES_MAX,
            says_no_table: false,
            turns: 0,
        }
    }

    /// Takes the next event out of `input`, and its bytes off the front of it. A request's fields
    /// go to `request`. The time is any clock's that only goes on.
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
            return Err(H2ConnectionError::protocol("this is not HTTP/2"));
        }
        if length < PREFACE.len() {
            return Ok(H2Event::More);
        }
        *input = &input[length..];
        self.expects = ExpectedInput::Settings;
        Ok(H2Event::Handled)
    }

    /// Some things must follow others.
    fn check_expected(&self, header: &H2FrameHeader) -> Result<(), H2ConnectionError> {
        let is = |kind, stream| header.kind == kind && header.stream == stream;
        match &self.expects {
            ExpectedInput::Settings if !is(frame::SETTINGS, 0) || header.has(frame::ACK) => Err(
                H2ConnectionError::protocol("the first frame must be SETTINGS"),
            ),
            ExpectedInput::Block(block) if !is(frame::CONTINUATION, block.id) => {
                Err(H2ConnectionError::protocol("a field block was interrupted"))
            }
            ExpectedInput::Frame if header.kind == frame::CONTINUATION => {
                Err(H2ConnectionError::protocol("CONTINUATION of nothing"))
            }
            _ => Ok(()),
        }
    }

    /// A whole frame but DATA.
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
            frame::PUSH_PROMISE => Err(H2ConnectionError::protocol("a client can't push")),
            frame::GOAWAY if header.stream != 0 => {
                Err(H2ConnectionError::protocol("GOAWAY on a stream"))
            }
            frame::GOAWAY if payload.len() < 8 => Err(too_short()),
            // The peer will begin nothing more, and close when it has all.
            frame::GOAWAY => self.price(limits::UNKNOWN_FRAME_POINTS, now_ms, "GOAWAY flood"),
            _ => self.price(
                limits::UNKNOWN_FRAME_POINTS,
                now_ms,
                "a flood of unknown frames",
            ),
        }
    }

    /// What serves no response costs patience.
    fn price(
        &mut self,
        points: u32,
        now_ms: u64,
        what: &'static str,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        self.calm.spend(points, now_ms, what)?;
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
                "HEADERS on a stream that no client begins",
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

    /// What HEADERS on this stream are for (RFC 9113 §5.1, §5.1.1).
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
                self.calm.spend(limits::RESET_POINTS, now_ms, what)?;
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
            "streams must be begun in their order",
        ))
    }

    fn continuation(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let ExpectedInput::Block(block) = &mut self.expects else {
            return Err(H2ConnectionError::protocol("CONTINUATION of nothing"));
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

    /// A whole field block.
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
                let at = self.place(id);
                let ended = match (at, request.fault()) {
                    (Some(at), None) => self.streams[at].end(),
                    _ => Err(H2ErrorCode::PROTOCOL_ERROR),
                };
                match ended {
                    Ok(()) => Ok(H2Event::Data {
                        id,
                        bytes: &[],
                        ended: true,
                    }),
                    Err(code) => self.stream_error(id, code, reading.now_ms),
                }
            }
        }
    }

    /// A DATA frame's header, and with it the first of its payload.
    fn data<'i>(
        &mut self,
        header: &H2FrameHeader,
        input: &mut &'i [u8],
        now_ms: u64,
    ) -> Result<H2Event<'i, T>, H2ConnectionError> {
        let id = header.stream;
        let is_padded = header.has(frame::PADDED);
        if is_padded && header.length == 0 {
            return Err(H2ConnectionError::protocol("padding without its length"));
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
        // All of it counts, whatever becomes of it (RFC 9113 §6.9).
        let window = self.receive_window.checked_sub(header.length as u32);
        let reason = "more DATA than the connection's window";
        self.receive_window = window.ok_or(H2ConnectionError::new(
            H2ErrorCode::FLOW_CONTROL_ERROR,
            reason,
        ))?;
        self.price_data(left, data.ended, now_ms)?;
        let Some(at) = self.place(id) else {
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

    /// A frame with next to nothing in it costs points. But where a buffer or the window ends, a rest
    /// of a few bytes is no fault of the client's, so each frame that is worth its header pays for one.
    fn price_data(
        &mut self,
        length: usize,
        ended: bool,
        now_ms: u64,
    ) -> Result<(), H2ConnectionError> {
        if length >= limits::LARGE_DATA_BYTES {
            self.rests = (self.rests + 1).min(limits::SMALL_DATA_CREDITS_MAX);
        } else if length < limits::SMALL_DATA_BYTES && !ended {
            match self.rests.checked_sub(1) {
                Some(rests) => self.rests = rests,
                None => {
                    let points = limits::EMPTY_DATA_POINTS;
                    self.calm.spend(points, now_ms, "a flood of empty DATA")?;
                }
            }
        }
        Ok(())
    }

    /// DATA for a stream that isn't there: on its way while we ended it, or a mistake?
    fn check_ignored(&self, id: u32) -> Result<(), H2ConnectionError> {
        if id == 0 || id.is_multiple_of(2) || (id > self.last && id <= self.accepts_to) {
            return Err(H2ConnectionError::protocol(
                "DATA on a stream that wasn't begun",
            ));
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
        // It may have been reset since the frame began.
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

    /// RFC 7540's priorities: checked, and no longer obeyed (RFC 9113 §5.3.2).
    fn old_priority(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let id = header.stream;
        if id == 0 {
            return Err(H2ConnectionError::protocol("PRIORITY without a stream"));
        }
        let points = limits::H2_PRIORITY_POINTS;
        self.calm.spend(points, now_ms, "PRIORITY flood")?;
        if payload.len() != 5 {
            return self.stream_error(id, H2ErrorCode::FRAME_SIZE_ERROR, now_ms);
        }
        if depends_on_itself(id, payload) {
            return self.stream_error(id, H2ErrorCode::PROTOCOL_ERROR, now_ms);
        }
        Ok(H2Event::Handled)
    }

    /// RFC 9218 §7.1.
    fn priority_update(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let points = limits::H2_PRIORITY_POINTS;
        self.calm.spend(points, now_ms, "PRIORITY_UPDATE flood")?;
        if header.stream != 0 {
            return Err(H2ConnectionError::protocol("PRIORITY_UPDATE on a stream"));
        }
        let (id, value) = payload.split_first_chunk().ok_or(too_short())?;
        let id = u32::from_be_bytes(*id) & WINDOW_BYTES_MAX;
        if id == 0 {
            return Err(H2ConnectionError::protocol("PRIORITY_UPDATE of no stream"));
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
            let reason = "RST_STREAM has another size";
            return Err(H2ConnectionError::new(
                H2ErrorCode::FRAME_SIZE_ERROR,
                reason,
            ));
        }
        if id == 0 || id > self.last {
            return Err(H2ConnectionError::protocol(
                "RST_STREAM of a stream that wasn't begun",
            ));
        }
        let points = limits::RESET_POINTS;
        self.calm.spend(points, now_ms, "rapid reset")?;
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
                let reason = "an acknowledgement says nothing";
                return Err(H2ConnectionError::new(
                    H2ErrorCode::FRAME_SIZE_ERROR,
                    reason,
                ));
            }
            return self.price(limits::H2_PING_POINTS, now_ms, "SETTINGS flood");
        }
        let points = limits::H2_SETTINGS_POINTS;
        self.calm.spend(points, now_ms, "SETTINGS flood")?;
        let before = self.peer;
        self.peer.apply(payload)?;
        self.says_no_table |= self.peer.table_bytes < before.table_bytes;
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
        self.calm
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
        self.calm.spend(points, now_ms, "WINDOW_UPDATE flood")?;
        if id == 0 {
            self.send_window += i64::from(more);
            return match more {
                0 => Err(H2ConnectionError::protocol("WINDOW_UPDATE of nothing")),
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
                "WINDOW_UPDATE of a stream that wasn't begun",
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

    /// The peer broke a rule on one stream (RFC 9113 §5.4.2). That it makes us reset streams costs
    /// it as much as if it did so itself.
    fn stream_error(
        &mut self,
        id: u32,
        code: H2ErrorCode,
        now_ms: u64,
    ) -> Result<H2Event<'static, T>, H2ConnectionError> {
        let what = "it provokes resets";
        self.calm.spend(limits::RESET_POINTS, now_ms, what)?;
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

    /// Where in the table a stream is.
    fn place(&self, id: u32) -> Option<usize> {
        // Most often it is the newest that is asked for.
        match self.streams.last() {
            Some(newest) if newest.id == id => Some(self.streams.len() - 1),
            Some(newest) if newest.id > id => {
                self.streams.binary_search_by_key(&id, |it| it.id).ok()
            }
            _ => None,
        }
    }

    /// Is nothing at all unfinished that the peer has begun to say?
    pub fn is_between_frames(&self) -> bool {
        matches!(self.expects, ExpectedInput::Frame)
    }

    /// Has the peer said what it must say first?
    pub fn is_greeted(&self) -> bool {
        !matches!(
            self.expects,
            ExpectedInput::Preface | ExpectedInput::Settings
        )
    }

    /// Is a part of a body all that is unfinished?
    pub fn is_within_data(&self) -> bool {
        matches!(self.expects, ExpectedInput::Data(_))
    }

    /// All streams that are owed a response.
    pub fn streams(&mut self) -> &mut [H2Stream<T>] {
        &mut self.streams
    }

    /// One of them.
    pub fn stream(&mut self, id: u32) -> Option<&mut H2Stream<T>> {
        self.place(id).map(|at| &mut self.streams[at])
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// What it holds in memory beside its own size, bytes.
    pub fn held_bytes(&self) -> usize {
        self.decoder.held_bytes()
            + self.block.capacity()
            + self.out.capacity()
            + self.streams.capacity() * size_of::<H2Stream<T>>()
            + self.reset.capacity() * size_of::<u32>()
    }

    /// Bytes of a field block that isn't whole.
    pub fn block_bytes(&self) -> usize {
        self.block.len()
    }

    /// Gives back memory that an idle connection doesn't need.
    pub fn shrink(&mut self) {
        if self.streams.is_empty() && self.streams.capacity() > 0 {
            self.streams = Vec::new();
        }
        if self.reset.len() * 4 < self.reset.capacity() {
            self.reset.shrink_to_fit();
        }
    }
}

/// What a field block is read with.
struct FieldBlockContext<'r> {
    request: &'r mut FieldSection,
    strings: &'r mut HpackScratch,
    limits: &'r Limits,
    now_ms: u64,
}

/// What a request's body promises to be.
pub fn remote_state(body: BodyLength, ended: bool) -> RemoteState {
    match (ended, body) {
        (true, _) => RemoteState::Ended,
        (false, BodyLength::Length(bytes)) => RemoteState::Open {
            promised: Some(bytes),
        },
        (false, _) => RemoteState::Open { promised: None },
    }
}

fn too_short() -> H2ConnectionError {
    H2ConnectionError::new(H2ErrorCode::FRAME_SIZE_ERROR, "a frame has the wrong size")
}

/// The payload without its padding (RFC 9113 §6.2).
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
    let on = old_priority.first_chunk().map(|it| u32::from_be_bytes(*it));
    on.is_some_and(|on| on & WINDOW_BYTES_MAX == id)
}

#[cfg(test)]
mod tests;
