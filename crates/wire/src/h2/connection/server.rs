//! Server role of an HTTP/2 connection: requests in, responses out in the order of their priority.

use super::super::role::ServerRole;
use super::super::settings;
use super::*;
use crate::h1::body_decoder::BodyLength;
use crate::h2::frame::PREFACE;
use crate::h2::stream::RemoteState;
use crate::priority::Priority;

impl<T> H2Connection<T> {
    /// Creates a connection; its output begins with SETTINGS. `head_bytes` is the largest accepted head.
    pub fn new(head_bytes: usize) -> H2Connection<T> {
        let mut out = Vec::new();
        settings::greet(&mut out, u32::try_from(head_bytes).unwrap_or(u32::MAX));
        H2Connection::in_role(ServerRole::default(), out, ExpectedInput::Preface)
    }

    /// Consumes the next event from the front of `input`. The fields of a request are written to `section`.
    /// `now_ms` comes from any monotonic clock.
    pub fn receive<'i>(
        &mut self,
        input: &mut &'i [u8],
        section: &mut FieldSection,
        strings: &mut HpackScratch,
        limits: &HeadLimits,
        now_ms: u64,
    ) -> Result<H2Event<'i, T>, H2ConnectionError> {
        if let ExpectedInput::Preface = self.expects {
            return self.preface(input);
        }
        match self.next_frame(input)? {
            FrameStart::Event(event) => Ok(event),
            FrameStart::Data(header) => self.data(&header, None, input, now_ms),
            FrameStart::Whole(header, payload) => {
                let mut reading = FieldBlockContext {
                    section,
                    strings,
                    limits,
                    now_ms,
                };
                self.frame(&header, payload, &mut reading)
            }
        }
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
            frame::PRIORITY_UPDATE => self.priority_update(header, payload, now_ms),
            frame::PUSH_PROMISE => Err(H2ConnectionError::protocol("PUSH_PROMISE from a client")),
            // The peer will start no further stream, and closes the connection after the last response.
            frame::GOAWAY => self
                .goaway_last(header, payload, now_ms)
                .map(|_| H2Event::Handled),
            _ => self.common_frame(header, payload, reading),
        }
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
        let fragment = unpadded(header, payload)?;
        let purpose = self.purpose(id, header.has(frame::END_STREAM), reading.now_ms)?;
        self.field_block(header, fragment, purpose, reading)
    }

    /// Returns the purpose of HEADERS on a stream (RFC 9113 §5.1, §5.1.1).
    fn purpose(
        &mut self,
        id: u32,
        ended: bool,
        now_ms: u64,
    ) -> Result<FieldBlockPurpose, H2ConnectionError> {
        let reset = |code| FieldBlockPurpose::Reset(H2ErrorCode::into(code));
        if let Some(at) = self.place(id) {
            return Ok(match self.streams[at].remote {
                RemoteState::Ended => reset(H2ErrorCode::STREAM_CLOSED),
                RemoteState::Open { .. } if ended => FieldBlockPurpose::Trailers,
                RemoteState::Open { .. } => reset(H2ErrorCode::PROTOCOL_ERROR),
            });
        }
        if id > self.last {
            self.role.begun = match (id - self.last) / 2 {
                further @ 0..64 => self.role.begun << further | 1,
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
                return Ok(reset(H2ErrorCode::REFUSED_STREAM));
            }
            return Ok(FieldBlockPurpose::Head);
        }
        if self.was_reset(id) || id > self.accepts_to {
            return Ok(FieldBlockPurpose::Nothing);
        }
        let back = (self.last - id) / 2;
        if back >= 64 || self.role.begun >> back & 1 == 1 {
            return Err(closed("HEADERS on a closed stream"));
        }
        Err(H2ConnectionError::protocol(
            "stream identifiers must increase",
        ))
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
            self.role
                .ahead
                .retain(|(known, _)| *known != id && *known > last);
            if self.role.ahead.len() < limits::H2_PRIORITIES_AHEAD_MAX {
                self.role.ahead.push((id, priority));
            }
        }
        Ok(H2Event::Handled)
    }

    /// Returns the priority of a response: from an early PRIORITY_UPDATE, else from the request's Priority
    /// field.
    pub fn priority_of(&mut self, id: u32, field: Option<Priority>) -> Priority {
        let ahead = self.role.ahead.iter().position(|(known, _)| *known == id);
        let ahead = ahead.map(|at| self.role.ahead.swap_remove(at).1);
        ahead.or(field).unwrap_or_default()
    }

    /// Adds a stream with a request that cannot be answered at once.
    pub fn accept(&mut self, id: u32, remote: RemoteState, priority: Priority, work: T) {
        let mut stream = H2Stream::new(id, remote, self.peer.window_bytes, work);
        stream.priority = priority;
        self.turns += 1;
        stream.turn = self.turns;
        self.streams.push(stream);
    }

    /// Returns true if a body of `bytes` bytes fits into a single frame and both windows, on a stream that
    /// has just begun.
    pub fn fits_at_once(&self, bytes: usize) -> bool {
        let window = self.send_window.min(i64::from(self.peer.window_bytes));
        bytes as i64 <= window.min(i64::from(self.peer.frame_bytes))
    }

    /// Appends the header of a DATA frame with the whole body, on a stream outside of the table. The driver
    /// sends the body behind the header. See [`H2Connection::fits_at_once`].
    pub fn body_follows(&mut self, id: u32, bytes: usize) {
        frame::header(&mut self.out, bytes, frame::DATA, frame::END_STREAM, id);
        self.send_window -= bytes as i64;
    }

    /// Ends a stream that was never in the table, and resets the stream if the peer has not ended it.
    pub fn finish_unaccepted(&mut self, id: u32, ended: bool) {
        self.abuse_budget.refund(limits::RESPONSE_POINTS);
        if !ended {
            frame::reset(&mut self.out, id, H2ErrorCode::NO_ERROR);
            self.remember_reset(id);
        }
    }

    /// Refuses a request that was not accepted.
    pub fn refuse(
        &mut self,
        id: u32,
        code: H2ErrorCode,
        now_ms: u64,
    ) -> Result<(), H2ConnectionError> {
        self.stream_error(id, code.into(), now_ms).map(drop)
    }

    /// Refuses a request that was not accepted for lack of capacity; the client may retry (RFC 9113 §8.7).
    /// The refusal refunds no points and costs none, since the server caused the refusal.
    pub fn refuse_for_load(&mut self, id: u32, ended: bool) {
        frame::reset(&mut self.out, id, H2ErrorCode::REFUSED_STREAM);
        if !ended {
            self.remember_reset(id);
        }
    }

    /// Removes a stream with an early response, after the rest of the request has been read.
    ///
    /// WINDOW_UPDATE of the connection tells the client of the end. curl up to 7.88 takes a response without Content-Length
    /// as complete only with a frame that arrives behind the end of its own content.
    pub fn drained(&mut self, id: u32) -> Option<T> {
        let place = self.place(id)?;
        let more = match std::mem::take(&mut self.taken) {
            0 => {
                self.ahead += 1;
                1
            }
            taken => taken,
        };
        self.receive_window += more;
        frame::window_update(&mut self.out, 0, more);
        Some(self.streams.remove(place).work)
    }

    /// Opens the windows of a stream and of the connection for the whole rest of a body that is discarded. The frames are
    /// inserted into `out` at `at`, before the end of the response.
    ///
    /// curl up to 7.88 sends the rest of a body after a complete response with some statuses, but handles no further frame, and
    /// would wait for WINDOW_UPDATE for ever. The windows are no promise of memory, because the bytes are
    /// discarded. If the peer sends less, other bodies may use more of the connection's window, and the window of its own
    /// stream still bounds each of them.
    pub fn open_for_rest(&mut self, id: u32, at: usize) {
        let ahead_max = limits::H2_REST_WINDOW_BYTES.saturating_sub(self.ahead);
        let Some(stream) = self.place(id).map(|place| &mut self.streams[place]) else {
            return;
        };
        let RemoteState::Open { announced } = stream.remote else {
            return;
        };
        if stream.granted > WINDOW_BYTES {
            // The windows were opened before.
            return;
        }
        let most = limits::H2_REST_WINDOW_BYTES;
        let rest = announced.map_or(most, |rest| rest.min(u64::from(most)) as u32);
        let of_stream = rest.saturating_sub(stream.receive_window);
        let of_all = rest.saturating_sub(self.receive_window).min(ahead_max);
        let mut frames = Vec::new();
        if of_all > 0 {
            self.ahead += of_all;
            self.receive_window += of_all;
            frame::window_update(&mut frames, 0, of_all);
        }
        if of_stream > 0 {
            stream.granted = most;
            stream.receive_window += of_stream;
            frame::window_update(&mut frames, id, of_stream);
        }
        self.out.splice(at..at, frames);
    }

    /// Refunds the points for a response completed before its request.
    pub fn answered_early(&mut self) {
        self.abuse_budget.refund(limits::RESPONSE_POINTS);
    }

    /// Removes a stream after a complete response. An incomplete request is reset, since its rest is not
    /// needed (RFC 9113 §8.1).
    pub fn finish(&mut self, id: u32) -> Option<T> {
        let stream = self.streams.remove(self.place(id)?);
        self.finish_unaccepted(id, stream.remote == RemoteState::Ended);
        Some(stream.work)
    }

    /// Returns the ready stream that is next by priority, and the largest payload of its next DATA frame;
    /// `None` while a window is closed.
    pub fn next_to_send(&self) -> Option<(u32, usize)> {
        let may_send = |stream: &&H2Stream<T>| stream.ready && stream.send_window > 0;
        if self.send_window <= 0 {
            return None;
        }
        let stream = self
            .streams
            .iter()
            .filter(may_send)
            .min_by_key(|stream| stream.rank())?;
        let window = self.send_window.min(stream.send_window);
        let bytes = window.min(i64::from(self.peer.frame_bytes));
        Some((stream.id, bytes as usize))
    }

    /// Returns true if the connection's send window is closed, and no stream may send DATA before a
    /// WINDOW_UPDATE.
    pub fn is_blocked(&self) -> bool {
        self.send_window <= 0
    }

    /// Sends the first of two GOAWAYs: the peer must start no new stream, but streams in flight are still
    /// answered (RFC 9113 §6.8). The acknowledgement of the PING behind the GOAWAY shows that the peer has
    /// read both.
    pub fn goaway_graceful(&mut self) {
        frame::goaway(&mut self.out, STREAM_ID_MAX, H2ErrorCode::NO_ERROR, "");
        frame::ping(&mut self.out, 0, &LAST_PING);
    }

    /// Sends the final GOAWAY: streams that begin later are ignored.
    pub fn goaway(&mut self, code: H2ErrorCode, reason: &str) {
        self.accepts_to = self.last;
        frame::goaway(&mut self.out, self.last, code, reason);
    }
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
