//! One HTTP/2 connection: the frames that come become events, what we answer becomes frames.
//!
//! [`Connection::receive`] takes bytes and gives one event at a time, until it wants more; what the
//! protocol itself owes (acknowledgements, windows, resets) it writes into `out` meanwhile. The
//! other half, sending, is in [`send`](self::send). A [`Fatal`] ends the connection: the driver
//! says it with [`Connection::goaway`] and reads nothing more.

use super::error::{Code, Fatal};
use super::frame::{self, HEADER_BYTES, Header, PREFACE};
use super::hpack::{Decoder, Strings};
use super::settings::{self, FRAME_BYTES, Settings, WINDOW_BYTES, WINDOW_BYTES_MAX};
use super::stream::{Remote, Stream, closed};
use crate::limits::{self, Limits};
use crate::wire::body::BodyLength;
use crate::wire::calm::Calm;
use crate::wire::head::Version;
use crate::wire::priority::Priority;
use crate::wire::request::Request;
use std::collections::VecDeque;

mod send;

/// What came.
#[derive(Debug)]
pub enum Event<'i, T> {
    /// Nothing more without more bytes; what is left of the input is to be given again, with more.
    More,
    /// Something that is done with. Called again, there may be more.
    Nothing,
    /// A request stands in the `Request`. It must be accepted, answered or refused, by its number,
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
        /// The part, perhaps empty; to be granted anew by [`Connection::taken`].
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
    Ponged,
}

/// A connection, with a `T` of the driver's on each stream.
pub struct Connection<T> {
    /// Frames to be sent. The driver empties it, and receives only while it is short.
    pub out: Vec<u8>,
    /// In the order of their numbers.
    streams: Vec<Stream<T>>,
    expects: Expects,
    decoder: Decoder,
    /// Fragments of a field block that isn't whole yet.
    block: Vec<u8>,
    peer: Settings,
    calm: Calm,
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
enum Expects {
    /// The rest of the preface.
    Preface,
    /// The SETTINGS behind it (RFC 9113 §3.4).
    Settings,
    /// A frame.
    Frame,
    /// The rest of a field block: CONTINUATION of one stream and nothing else.
    Block(Block),
    /// The rest of a DATA frame.
    Data(Data),
}

/// A field block on its way.
#[derive(Copy, Clone)]
struct Block {
    id: u32,
    ended: bool,
    frames: usize,
    purpose: Purpose,
}

/// What a field block is for. It must be decoded in any case.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Purpose {
    Request,
    Trailers,
    /// The stream is to be reset.
    Reset(Code),
    /// Nobody will look at it.
    Nothing,
}

/// A DATA frame on its way.
#[derive(Copy, Clone)]
struct Data {
    /// 0: the stream has gone.
    id: u32,
    left: usize,
    padding: usize,
    ended: bool,
}

impl<T> Connection<T> {
    /// A connection just made; it begins with our settings. `head_bytes`: the largest head we take.
    pub fn new(head_bytes: usize) -> Connection<T> {
        let mut out = Vec::new();
        settings::greet(&mut out, u32::try_from(head_bytes).unwrap_or(u32::MAX));
        Connection {
            out,
            streams: Vec::new(),
            expects: Expects::Preface,
            decoder: Decoder::default(),
            block: Vec::new(),
            peer: Settings::default(),
            calm: Calm::default(),
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
        request: &mut Request,
        strings: &mut Strings,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<Event<'i, T>, Fatal> {
        match &mut self.expects {
            Expects::Preface => return self.preface(input),
            Expects::Data(data) => {
                let data = *data;
                return Ok(self.data_goes_on(data, input));
            }
            Expects::Settings | Expects::Frame | Expects::Block(_) => {}
        }
        let Some(header) = input.first_chunk().map(Header::parse) else {
            return Ok(Event::More);
        };
        if header.length > FRAME_BYTES as usize {
            return Err(Fatal::new(Code::FRAME_SIZE_ERROR, "a frame is too large"));
        }
        self.check_expected(&header)?;
        if header.kind == frame::DATA {
            return self.data(&header, input, now_ms);
        }
        let Some(payload) = input.get(HEADER_BYTES..HEADER_BYTES + header.length) else {
            return Ok(Event::More);
        };
        *input = &input[HEADER_BYTES + header.length..];
        let mut reading = Reading {
            request,
            strings,
            limits,
            now_ms,
        };
        self.frame(&header, payload, &mut reading)
    }

    fn preface(&mut self, input: &mut &[u8]) -> Result<Event<'static, T>, Fatal> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(Fatal::protocol("this is not HTTP/2"));
        }
        if length < PREFACE.len() {
            return Ok(Event::More);
        }
        *input = &input[length..];
        self.expects = Expects::Settings;
        Ok(Event::Nothing)
    }

    /// Some things must follow others.
    fn check_expected(&self, header: &Header) -> Result<(), Fatal> {
        let is = |kind, stream| header.kind == kind && header.stream == stream;
        match &self.expects {
            Expects::Settings if !is(frame::SETTINGS, 0) || header.has(frame::ACK) => {
                Err(Fatal::protocol("the first frame must be SETTINGS"))
            }
            Expects::Block(block) if !is(frame::CONTINUATION, block.id) => {
                Err(Fatal::protocol("a field block was interrupted"))
            }
            Expects::Frame if header.kind == frame::CONTINUATION => {
                Err(Fatal::protocol("CONTINUATION of nothing"))
            }
            _ => Ok(()),
        }
    }

    /// A whole frame but DATA.
    fn frame(
        &mut self,
        header: &Header,
        payload: &[u8],
        reading: &mut Reading<'_>,
    ) -> Result<Event<'static, T>, Fatal> {
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
            frame::PUSH_PROMISE => Err(Fatal::protocol("a client can't push")),
            frame::GOAWAY if header.stream != 0 => Err(Fatal::protocol("GOAWAY on a stream")),
            frame::GOAWAY if payload.len() < 8 => Err(too_short()),
            // The peer will begin nothing more, and close when it has all.
            frame::GOAWAY => self.price(limits::UNKNOWN_POINTS, now_ms, "GOAWAY flood"),
            _ => self.price(limits::UNKNOWN_POINTS, now_ms, "a flood of unknown frames"),
        }
    }

    /// What serves no response costs patience.
    fn price(
        &mut self,
        points: u32,
        now_ms: u64,
        what: &'static str,
    ) -> Result<Event<'static, T>, Fatal> {
        self.calm.spend(points, now_ms, what)?;
        Ok(Event::Nothing)
    }

    fn headers(
        &mut self,
        header: &Header,
        payload: &[u8],
        reading: &mut Reading<'_>,
    ) -> Result<Event<'static, T>, Fatal> {
        let id = header.stream;
        if id.is_multiple_of(2) {
            return Err(Fatal::protocol("HEADERS on a stream that no client begins"));
        }
        let mut fragment = unpadded(header, payload)?;
        let mut purpose = self.purpose(id, header.has(frame::END_STREAM), reading.now_ms)?;
        if header.has(frame::WITH_PRIORITY) {
            let (old, rest) = fragment.split_at_checked(5).ok_or(too_short())?;
            fragment = rest;
            if depends_on_itself(id, old) {
                purpose = Purpose::Reset(Code::PROTOCOL_ERROR);
            }
        }
        let block = Block {
            id,
            ended: header.has(frame::END_STREAM),
            frames: 1,
            purpose,
        };
        if header.has(frame::END_HEADERS) {
            return self.decode(block, fragment, reading);
        }
        self.block.extend_from_slice(fragment);
        self.expects = Expects::Block(block);
        Ok(Event::Nothing)
    }

    /// What HEADERS on this stream are for (RFC 9113 §5.1, §5.1.1).
    fn purpose(&mut self, id: u32, ended: bool, now_ms: u64) -> Result<Purpose, Fatal> {
        if let Some(at) = self.place(id) {
            return Ok(match self.streams[at].remote {
                Remote::Ended => Purpose::Reset(Code::STREAM_CLOSED),
                Remote::Open { .. } if ended => Purpose::Trailers,
                Remote::Open { .. } => Purpose::Reset(Code::PROTOCOL_ERROR),
            });
        }
        if id > self.last {
            self.begun = match (id - self.last) / 2 {
                further @ 0..64 => self.begun << further | 1,
                _ => 1,
            };
            self.last = id;
            if id > self.accepts_to {
                return Ok(Purpose::Nothing);
            }
            if self.streams.len() >= limits::H2_STREAMS_MAX {
                let what = "more streams than allowed";
                self.calm.spend(limits::RESET_POINTS, now_ms, what)?;
                return Ok(Purpose::Reset(Code::REFUSED_STREAM));
            }
            return Ok(Purpose::Request);
        }
        if self.was_reset(id) || id > self.accepts_to {
            return Ok(Purpose::Nothing);
        }
        let back = (self.last - id) / 2;
        if back >= 64 || self.begun >> back & 1 == 1 {
            return Err(closed("HEADERS on a closed stream"));
        }
        Err(Fatal::protocol("streams must be begun in their order"))
    }

    fn continuation(
        &mut self,
        header: &Header,
        payload: &[u8],
        reading: &mut Reading<'_>,
    ) -> Result<Event<'static, T>, Fatal> {
        let Expects::Block(block) = &mut self.expects else {
            return Err(Fatal::protocol("CONTINUATION of nothing"));
        };
        block.frames += 1;
        let block = *block;
        self.block.extend_from_slice(payload);
        if block.frames > limits::H2_BLOCK_FRAMES_MAX
            || self.block.len() > limits::H2_BLOCK_BYTES_MAX
        {
            return Err(Fatal::calm("CONTINUATION flood"));
        }
        if !header.has(frame::END_HEADERS) {
            return Ok(Event::Nothing);
        }
        let whole = std::mem::take(&mut self.block);
        self.decode(block, &whole, reading)
    }

    /// A whole field block.
    fn decode(
        &mut self,
        block: Block,
        fields: &[u8],
        reading: &mut Reading<'_>,
    ) -> Result<Event<'static, T>, Fatal> {
        self.expects = Expects::Frame;
        let Block { id, ended, .. } = block;
        let is_trailer = block.purpose == Purpose::Trailers;
        let request = &mut *reading.request;
        request.begin(Version::Http2, reading.limits, ended, is_trailer);
        self.decoder
            .decode(fields, reading.strings, |name, value| {
                Ok(request.field(name, value)?)
            })?;
        request.end();
        match block.purpose {
            Purpose::Nothing => Ok(Event::Nothing),
            Purpose::Request => Ok(Event::Request { id, ended }),
            Purpose::Reset(code) => self.stream_error(id, code, reading.now_ms),
            Purpose::Trailers => {
                let at = self.place(id);
                let ended = match (at, request.fault()) {
                    (Some(at), None) => self.streams[at].end(),
                    _ => Err(Code::PROTOCOL_ERROR),
                };
                match ended {
                    Ok(()) => Ok(Event::Data {
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
        header: &Header,
        input: &mut &'i [u8],
        now_ms: u64,
    ) -> Result<Event<'i, T>, Fatal> {
        let id = header.stream;
        let is_padded = header.has(frame::PADDED);
        if is_padded && header.length == 0 {
            return Err(Fatal::protocol("padding without its length"));
        }
        let padding = match (is_padded, input.get(HEADER_BYTES)) {
            (false, _) => 0,
            (true, Some(padding)) => usize::from(*padding),
            (true, None) => return Ok(Event::More),
        };
        let overhead = usize::from(is_padded);
        let payload = (header.length - overhead).checked_sub(padding);
        let left = payload.ok_or(Fatal::protocol("more padding than payload"))?;
        *input = &input[HEADER_BYTES + overhead..];
        let mut data = Data {
            id,
            left,
            padding,
            ended: header.has(frame::END_STREAM),
        };
        // All of it counts, whatever becomes of it (RFC 9113 §6.9).
        let window = self.receive_window.checked_sub(header.length as u32);
        let reason = "more DATA than the connection's window";
        self.receive_window = window.ok_or(Fatal::new(Code::FLOW_CONTROL_ERROR, reason))?;
        self.price_data(left, data.ended, now_ms)?;
        let Some(at) = self.place(id) else {
            self.check_ignored(id)?;
            data.id = 0;
            self.taken_by_all((overhead + padding) as u32);
            return Ok(self.data_goes_on(data, input));
        };
        let stream = &mut self.streams[at];
        let mut received = stream.receive(left, header.length);
        if received.is_ok() && data.ended {
            received = stream.end();
        }
        self.taken(id, overhead + padding);
        match received {
            Ok(()) => Ok(self.data_goes_on(data, input)),
            Err(code) => {
                data.id = 0;
                self.expects = Expects::Data(data);
                self.stream_error(id, code, now_ms)
            }
        }
    }

    /// A frame with next to nothing in it costs points. But where a buffer or the window ends, a rest
    /// of a few bytes is no fault of the client's, so each frame that is worth its header pays for one.
    fn price_data(&mut self, length: usize, ended: bool, now_ms: u64) -> Result<(), Fatal> {
        if length >= limits::LARGE_DATA_BYTES {
            self.rests = (self.rests + 1).min(limits::DATA_RESTS_MAX);
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
    fn check_ignored(&self, id: u32) -> Result<(), Fatal> {
        if id == 0 || id.is_multiple_of(2) || (id > self.last && id <= self.accepts_to) {
            return Err(Fatal::protocol("DATA on a stream that wasn't begun"));
        }
        if id > self.accepts_to || self.was_reset(id) {
            return Ok(());
        }
        Err(closed("DATA on a closed stream"))
    }

    fn data_goes_on<'i>(&mut self, mut data: Data, input: &mut &'i [u8]) -> Event<'i, T> {
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
            true => Expects::Frame,
            false => Expects::Data(data),
        };
        // It may have been reset since the frame began.
        if data.id == 0 || self.place(data.id).is_none() {
            self.taken_by_all(bytes.len() as u32);
        } else if !bytes.is_empty() || (is_whole && data.ended) {
            return Event::Data {
                id: data.id,
                bytes,
                ended: is_whole && data.ended,
            };
        }
        match is_whole {
            true => Event::Nothing,
            false => Event::More,
        }
    }

    /// RFC 7540's priorities: checked, and no longer obeyed (RFC 9113 §5.3.2).
    fn old_priority(
        &mut self,
        header: &Header,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
        let id = header.stream;
        if id == 0 {
            return Err(Fatal::protocol("PRIORITY without a stream"));
        }
        let points = limits::H2_PRIORITY_POINTS;
        self.calm.spend(points, now_ms, "PRIORITY flood")?;
        if payload.len() != 5 {
            return self.stream_error(id, Code::FRAME_SIZE_ERROR, now_ms);
        }
        if depends_on_itself(id, payload) {
            return self.stream_error(id, Code::PROTOCOL_ERROR, now_ms);
        }
        Ok(Event::Nothing)
    }

    /// RFC 9218 §7.1.
    fn priority_update(
        &mut self,
        header: &Header,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
        let points = limits::H2_PRIORITY_POINTS;
        self.calm.spend(points, now_ms, "PRIORITY_UPDATE flood")?;
        if header.stream != 0 {
            return Err(Fatal::protocol("PRIORITY_UPDATE on a stream"));
        }
        let (id, value) = payload.split_first_chunk().ok_or(too_short())?;
        let id = u32::from_be_bytes(*id) & WINDOW_BYTES_MAX;
        if id == 0 {
            return Err(Fatal::protocol("PRIORITY_UPDATE of no stream"));
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
        Ok(Event::Nothing)
    }

    fn peer_resets(
        &mut self,
        header: &Header,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
        let id = header.stream;
        if payload.len() != 4 {
            let reason = "RST_STREAM has another size";
            return Err(Fatal::new(Code::FRAME_SIZE_ERROR, reason));
        }
        if id == 0 || id > self.last {
            return Err(Fatal::protocol("RST_STREAM of a stream that wasn't begun"));
        }
        let points = limits::RESET_POINTS;
        self.calm.spend(points, now_ms, "rapid reset")?;
        match self.place(id) {
            None => Ok(Event::Nothing),
            Some(at) => {
                let Stream { work, .. } = self.streams.remove(at);
                Ok(Event::Reset { id, work })
            }
        }
    }

    fn settings(
        &mut self,
        header: &Header,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
        if header.stream != 0 {
            return Err(Fatal::protocol("SETTINGS on a stream"));
        }
        if header.has(frame::ACK) {
            if !payload.is_empty() {
                let reason = "an acknowledgement says nothing";
                return Err(Fatal::new(Code::FRAME_SIZE_ERROR, reason));
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
                .map_err(|code| Fatal::new(code, reason))?;
        }
        frame::settings_ack(&mut self.out);
        self.expects = Expects::Frame;
        Ok(Event::Nothing)
    }

    fn ping(
        &mut self,
        header: &Header,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
        if header.stream != 0 {
            return Err(Fatal::protocol("PING on a stream"));
        }
        let payload: &[u8; 8] = payload.try_into().map_err(|_| too_short())?;
        self.calm
            .spend(limits::H2_PING_POINTS, now_ms, "PING flood")?;
        if header.has(frame::ACK) {
            return Ok(match *payload == send::LAST_PING {
                true => Event::Ponged,
                false => Event::Nothing,
            });
        }
        frame::ping(&mut self.out, frame::ACK, payload);
        Ok(Event::Nothing)
    }

    fn window_update(
        &mut self,
        header: &Header,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
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
                0 => Err(Fatal::protocol("WINDOW_UPDATE of nothing")),
                _ if self.send_window > i64::from(WINDOW_BYTES_MAX) => {
                    let reason = "the connection's window is too large";
                    Err(Fatal::new(Code::FLOW_CONTROL_ERROR, reason))
                }
                _ => Ok(Event::Nothing),
            };
        }
        if id > self.last {
            return Err(Fatal::protocol(
                "WINDOW_UPDATE of a stream that wasn't begun",
            ));
        }
        let Some(at) = self.place(id) else {
            return Ok(Event::Nothing);
        };
        let widened = match more {
            0 => Err(Code::PROTOCOL_ERROR),
            more => self.streams[at].widen(i64::from(more)),
        };
        match widened {
            Ok(()) => Ok(Event::Nothing),
            Err(code) => self.stream_error(id, code, now_ms),
        }
    }

    /// The peer broke a rule on one stream (RFC 9113 §5.4.2). That it makes us reset streams costs
    /// it as much as if it did so itself.
    fn stream_error(
        &mut self,
        id: u32,
        code: Code,
        now_ms: u64,
    ) -> Result<Event<'static, T>, Fatal> {
        let what = "it provokes resets";
        self.calm.spend(limits::RESET_POINTS, now_ms, what)?;
        frame::reset(&mut self.out, id, code);
        self.remember_reset(id);
        Ok(match self.place(id) {
            Some(at) => {
                let Stream { work, .. } = self.streams.remove(at);
                Event::Reset { id, work }
            }
            None => Event::Nothing,
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
        matches!(self.expects, Expects::Frame)
    }

    /// Has the peer said what it must say first?
    pub fn is_greeted(&self) -> bool {
        !matches!(self.expects, Expects::Preface | Expects::Settings)
    }

    /// Is a part of a body all that is unfinished?
    pub fn is_within_data(&self) -> bool {
        matches!(self.expects, Expects::Data(_))
    }

    /// All streams that are owed a response.
    pub fn streams(&mut self) -> &mut [Stream<T>] {
        &mut self.streams
    }

    /// One of them.
    pub fn stream(&mut self, id: u32) -> Option<&mut Stream<T>> {
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
            + self.streams.capacity() * size_of::<Stream<T>>()
            + self.reset.capacity() * size_of::<u32>()
    }

    /// Bytes of a field block that isn't whole.
    pub fn block_bytes(&self) -> usize {
        self.block.len()
    }

    /// Gives back memory that an idle connection doesn't need.
    pub fn rest(&mut self) {
        if self.streams.is_empty() && self.streams.capacity() > 0 {
            self.streams = Vec::new();
        }
        if self.reset.len() * 4 < self.reset.capacity() {
            self.reset.shrink_to_fit();
        }
    }
}

/// What a field block is read with.
struct Reading<'r> {
    request: &'r mut Request,
    strings: &'r mut Strings,
    limits: &'r Limits,
    now_ms: u64,
}

/// What a request's body promises to be.
pub fn promised(body: BodyLength, ended: bool) -> Remote {
    match (ended, body) {
        (true, _) => Remote::Ended,
        (false, BodyLength::Length(bytes)) => Remote::Open {
            promised: Some(bytes),
        },
        (false, _) => Remote::Open { promised: None },
    }
}

fn too_short() -> Fatal {
    Fatal::new(Code::FRAME_SIZE_ERROR, "a frame has the wrong size")
}

/// The payload without its padding (RFC 9113 §6.2).
fn unpadded<'p>(header: &Header, payload: &'p [u8]) -> Result<&'p [u8], Fatal> {
    if !header.has(frame::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(too_short())?;
    let length = rest.len().checked_sub(usize::from(*padding));
    let length = length.ok_or(Fatal::protocol("more padding than payload"))?;
    Ok(&rest[..length])
}

fn depends_on_itself(id: u32, old_priority: &[u8]) -> bool {
    let on = old_priority.first_chunk().map(|it| u32::from_be_bytes(*it));
    on.is_some_and(|on| on & WINDOW_BYTES_MAX == id)
}

#[cfg(test)]
mod tests;
