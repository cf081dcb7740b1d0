//! Client role of an HTTP/2 connection: requests out, responses in, checked as strictly as over HTTP/1.1.
//!
//! A stream leaves the table once both sides have ended, or with a reset. The server may answer before the end of
//! the request, and the client may go on sending.

use super::super::role::ClientRole;
use super::super::settings;
use super::*;
use crate::h1::response_head::ResponseLength;
use crate::h2::frame::PREFACE;
use crate::h2::stream::RemoteState;
use crate::h2::upload_length::UploadLength;
use crate::limits::{
    H2_MEMBER_FRAME_POINTS, H2_MEMBER_INTERIM_POINTS, H2_MEMBER_SHARED_WINDOW_BYTES,
    H2_MEMBER_STREAM_WINDOW_BYTES, H2_MEMBER_STREAMS_MAX, PROXY_INTERIM_RESPONSES_MAX,
};
use crate::request_head::Method;

/// Protocol state of a connection to an HTTP/2 server, with a value of type `W` for each stream.
pub type H2ClientConnection<W> = H2Connection<ClientStream<W>, ClientRole>;

/// State of a stream beside the windows, and the driver's value.
pub struct ClientStream<W> {
    /// Method of the request, which decides on the body of the response.
    method: Method,
    /// True after the head of the final response.
    has_head: bool,
    interim_responses: u32,
    /// True after the end of the request.
    has_ended: bool,
    upload: UploadLength,
    work: W,
}

/// Result of [`H2ClientConnection::receive`].
#[derive(Debug)]
pub enum H2ClientEvent<'i, W> {
    /// More input is needed. The driver passes the unconsumed input again, followed by more bytes.
    More,
    /// A frame was handled without an event. The next call may return another event.
    Handled,
    /// The `FieldSection` holds the head of an interim response, for which `response_head` succeeds.
    Interim {
        /// Driver's value for the stream.
        work: W,
    },
    /// The `FieldSection` holds the head of the final response, for which `response_head` succeeds.
    Response {
        /// Driver's value for the stream.
        work: W,
        /// The response has no body.
        ended: bool,
    },
    /// Part of a response's body.
    Data {
        /// Driver's value for the stream.
        work: W,
        /// The part, perhaps empty. The bytes count against the window of the connection until
        /// [`H2Connection::release_connection_capacity`], and against the window of the stream until
        /// [`H2Connection::release_stream_capacity`].
        bytes: &'i [u8],
        /// The part is the last of the body.
        ended: bool,
    },
    /// The `FieldSection` holds valid trailers, which end the response.
    Trailers {
        /// Driver's value for the stream.
        work: W,
    },
    /// The stream was reset, and has left the table.
    Failed {
        /// Driver's value for the stream.
        work: W,
        /// Cause of the reset.
        failure: H2StreamFailure,
    },
}

/// Failure of a single stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum H2StreamFailure {
    /// The server has not processed the request, which may be sent again (RFC 9113 §8.7).
    Refused,
    /// The server reset the stream.
    Reset(H2ErrorCode),
    /// The response breaks the rule.
    Malformed(Reject),
}

impl<W: Clone> H2ClientConnection<W> {
    /// Creates a connection; its output begins with the preface and SETTINGS. `head_bytes` is the largest
    /// accepted head.
    pub fn connect(head_bytes: usize) -> H2ClientConnection<W> {
        let mut out = PREFACE.to_vec();
        settings::greet_server(&mut out, u32::try_from(head_bytes).unwrap_or(u32::MAX));
        H2Connection::in_role(ClientRole::default(), out, ExpectedInput::Settings)
    }

    /// Returns true if another stream may be opened: below the bound of the server and of this client, and
    /// before a GOAWAY.
    pub fn can_open(&self) -> bool {
        let streams_max = (self.peer.streams_max as usize).min(H2_MEMBER_STREAMS_MAX);
        self.open() < streams_max && !self.is_going_away()
    }

    /// Returns true if an upload of the length fits beside the uploads under way. A long upload needs half of the window
    /// beside uploads that are never read.
    pub fn has_room_for(&self, upload: UploadLength) -> bool {
        if upload == UploadLength::None {
            return true;
        }
        let conflicts = |it: &&H2Stream<ClientStream<W>>| {
            !it.work.has_ended && upload.conflicts_with(it.work.upload)
        };
        let others = self.streams.iter().filter(conflicts).count() as i64;
        let unread = others * i64::from(self.peer.window_bytes);
        self.send_window >= i64::from(H2_MEMBER_SHARED_WINDOW_BYTES)
            && (others == 0 || unread <= self.role.window_max / 2)
    }

    /// Returns true if no further stream can ever be opened.
    pub fn is_going_away(&self) -> bool {
        self.role.goaway_last.is_some() || self.last >= STREAM_ID_MAX - 1
    }

    /// Opens a stream with the field block of a request, and returns its identifier. With `ended` the request has
    /// no body.
    ///
    /// Precondition: [`H2ClientConnection::can_open`].
    pub fn open_stream(&mut self, block: &[u8], method: Method, ended: bool, work: W) -> u32 {
        let upload = if ended {
            UploadLength::None
        } else {
            UploadLength::Unknown
        };
        self.open_upload(block, method, upload, work)
    }

    /// Opens a stream as [`H2ClientConnection::open_stream`] does, for a body of the length.
    pub fn open_upload(
        &mut self,
        block: &[u8],
        method: Method,
        upload: UploadLength,
        work: W,
    ) -> u32 {
        let ended = upload == UploadLength::None;
        let id = match self.last {
            0 => 1,
            last => last + 2,
        };
        self.last = id;
        let work = ClientStream {
            method,
            has_head: false,
            interim_responses: 0,
            has_ended: ended,
            upload,
            work,
        };
        let remote = RemoteState::Open { announced: None };
        let mut stream = H2Stream::new(id, remote, self.peer.window_bytes, work);
        stream.carries_messages = true;
        stream.receive_window = H2_MEMBER_STREAM_WINDOW_BYTES;
        stream.granted = H2_MEMBER_STREAM_WINDOW_BYTES;
        self.streams.push(stream);
        self.head(id, block, ended);
        self.abuse_budget.refund(H2_MEMBER_FRAME_POINTS);
        id
    }

    /// Widens the window for the response on a stream to `bytes`. No effect on a complete response, and on a window that
    /// is as wide.
    pub fn widen_stream_window(&mut self, id: u32, bytes: u32) {
        let Some(stream) = self.place(id).map(|at| &mut self.streams[at]) else {
            return;
        };
        let more = bytes.saturating_sub(stream.granted);
        if more > 0 && stream.remote != RemoteState::Ended {
            let more_now = more + std::mem::take(&mut stream.taken);
            stream.granted += more;
            stream.receive_window += more_now;
            frame::window_update(&mut self.out, id, more_now);
        }
    }

    /// Returns the largest payload of the next DATA frame of a stream; 0 while a window is closed or left to other
    /// streams, and None for a stream that has left the table.
    pub fn data_room(&self, id: u32) -> Option<usize> {
        let stream = &self.streams[self.place(id)?];
        let window = self.connection_room(stream).min(stream.send_window);
        let room = window.min(i64::from(self.peer.frame_bytes));
        Some(usize::try_from(room).unwrap_or(0))
    }

    /// Returns the part of the connection's window that a stream may use. A single upload may use the whole window,
    /// since a server may grant further bytes only after the last one (RFC 9113 §6.9).
    fn connection_room(&self, stream: &H2Stream<ClientStream<W>>) -> i64 {
        let unread = i64::from(self.peer.window_bytes) - stream.send_window;
        let beyond = self.send_window - i64::from(H2_MEMBER_SHARED_WINDOW_BYTES);
        let room = beyond.max((self.send_window - unread.max(0)) / 2);
        let is_other = |it: &H2Stream<ClientStream<W>>| it.id != stream.id && !it.work.has_ended;
        if room < self.send_window && self.streams.iter().any(is_other) {
            room
        } else {
            self.send_window
        }
    }

    /// Appends a DATA frame, which with `ended` ends the request. The payload fits into
    /// [`H2ClientConnection::data_room`].
    pub fn send_data(&mut self, id: u32, bytes: &[u8], ended: bool) {
        let at = self.begin_data(id);
        self.out.extend_from_slice(bytes);
        self.end_data(id, at, ended);
        self.abuse_budget.refund(H2_MEMBER_FRAME_POINTS);
        if ended {
            self.end_request(id);
        }
    }

    /// Ends the request with the field block of its trailers.
    pub fn send_trailers(&mut self, id: u32, block: &[u8]) {
        self.head(id, block, true);
        self.end_request(id);
    }

    fn end_request(&mut self, id: u32) {
        if let Some(at) = self.place(id) {
            self.streams[at].work.has_ended = true;
            self.remove_if_ended(at);
        }
    }

    /// Removes a stream after the end of both sides.
    fn remove_if_ended(&mut self, at: usize) {
        let stream = &self.streams[at];
        if stream.work.has_ended && stream.remote == RemoteState::Ended {
            self.streams.remove(at);
        }
    }

    /// Resets a stream if its response is not needed. No effect on a stream that has left the table.
    pub fn cancel(&mut self, id: u32) {
        let Some(at) = self.place(id) else {
            return;
        };
        // A complete response needs no further request (RFC 9113 §8.1).
        let code = match self.streams[at].remote {
            RemoteState::Ended => {
                self.role.needless_requests += 1;
                H2ErrorCode::NO_ERROR
            }
            RemoteState::Open { .. } => H2ErrorCode::CANCEL,
        };
        self.reset(id, code);
    }

    /// Returns the number of streams reset by this endpoint. Before the end of the response, the resets count up to the
    /// number of remembered resets.
    pub fn resets(&self) -> usize {
        self.reset.len() + self.role.needless_requests
    }

    /// Takes a stream that the server does not process because of its GOAWAY. The driver calls the function after
    /// each event, until None.
    pub fn take_unprocessed(&mut self) -> Option<W> {
        let last = self.role.goaway_last?;
        let stream = self.streams.pop_if(|stream| stream.id > last)?;
        self.remember_reset(stream.id);
        Some(stream.work.work)
    }

    /// Takes any stream, after the end of the connection.
    pub fn take_stream(&mut self) -> Option<W> {
        self.streams.pop().map(|stream| stream.work.work)
    }

    /// Sends a PING. The acknowledgement is no event.
    pub fn send_ping(&mut self) {
        frame::ping(&mut self.out, 0, &LAST_PING);
    }

    /// Sends GOAWAY before the end of the connection. The server has opened no streams.
    pub fn close(&mut self, code: H2ErrorCode, reason: &str) {
        frame::goaway(&mut self.out, 0, code, reason);
    }

    /// Consumes the next event from the front of `input`. The fields of a response are written to `section`.
    /// `now_ms` comes from any monotonic clock.
    pub fn receive<'i>(
        &mut self,
        input: &mut &'i [u8],
        section: &mut FieldSection,
        strings: &mut HpackScratch,
        limits: &HeadLimits,
        now_ms: u64,
    ) -> Result<H2ClientEvent<'i, W>, H2ConnectionError> {
        self.role.window_max = self.role.window_max.max(self.send_window);
        let (event, rule) = match self.next_frame(input)? {
            FrameStart::Event(event) => (event, Reject::UPSTREAM_FRAME_MALFORMED),
            FrameStart::Data(header) => {
                let refused = self.refuses_data(header.stream);
                let rule = match refused {
                    None => Reject::UPSTREAM_LENGTHS,
                    Some(_) => Reject::UPSTREAM_FRAME_MALFORMED,
                };
                (self.data(&header, refused, input, now_ms)?, rule)
            }
            FrameStart::Whole(header, payload) => {
                let mut reading = FieldBlockContext {
                    section,
                    strings,
                    limits,
                    now_ms,
                };
                let event = self.client_frame(&header, payload, &mut reading)?;
                let rule = match header.kind {
                    frame::HEADERS | frame::CONTINUATION => Reject::UPSTREAM_CHUNK_MALFORMED,
                    _ => Reject::UPSTREAM_FRAME_MALFORMED,
                };
                (event, rule)
            }
        };
        match event {
            H2Event::More => Ok(H2ClientEvent::More),
            H2Event::Handled | H2Event::GoawayAcknowledged => Ok(H2ClientEvent::Handled),
            H2Event::Head { id, ended } => self.response(id, ended, section, now_ms),
            H2Event::Data { id, bytes, ended } => Ok(self.body_part(id, bytes, ended)),
            H2Event::Trailers { id } => self.trailers(id, section, now_ms),
            H2Event::Reset { work, cause, .. } => Ok(H2ClientEvent::Failed {
                work: work.work,
                failure: failure(cause, rule),
            }),
        }
    }

    /// Returns the error of DATA in front of the head of the final response.
    fn refuses_data(&self, id: u32) -> Option<H2ErrorCode> {
        let stream = &self.streams[self.place(id)?];
        (!stream.work.has_head).then_some(H2ErrorCode::PROTOCOL_ERROR)
    }

    /// Handles a complete frame other than DATA.
    fn client_frame(
        &mut self,
        header: &H2FrameHeader,
        payload: &[u8],
        reading: &mut FieldBlockContext<'_>,
    ) -> Result<H2Event<'static, ClientStream<W>>, H2ConnectionError> {
        match header.kind {
            frame::HEADERS => {
                let fragment = unpadded(header, payload)?;
                let purpose = self.client_purpose(header)?;
                self.field_block(header, fragment, purpose, reading)
            }
            frame::PUSH_PROMISE => Err(H2ConnectionError::protocol(
                "PUSH_PROMISE although push is disabled",
            )),
            frame::PRIORITY_UPDATE => {
                Err(H2ConnectionError::protocol("PRIORITY_UPDATE from a server"))
            }
            frame::GOAWAY => {
                let last = self.goaway_last(header, payload, reading.now_ms)?;
                let before = self.role.goaway_last.unwrap_or(STREAM_ID_MAX);
                self.role.goaway_last = Some(last.min(before));
                Ok(H2Event::Handled)
            }
            _ => self.common_frame(header, payload, reading),
        }
    }

    /// Returns the purpose of HEADERS on a stream (RFC 9113 §5.1).
    fn client_purpose(
        &self,
        header: &H2FrameHeader,
    ) -> Result<FieldBlockPurpose, H2ConnectionError> {
        let id = header.stream;
        if id == 0 || id.is_multiple_of(2) || id > self.last {
            return Err(H2ConnectionError::protocol("HEADERS on an idle stream"));
        }
        let Some(at) = self.place(id) else {
            return if self.was_reset(id) {
                Ok(FieldBlockPurpose::Nothing)
            } else {
                Err(closed("HEADERS on a closed stream"))
            };
        };
        let stream = &self.streams[at];
        Ok(match stream.remote {
            RemoteState::Ended => FieldBlockPurpose::Reset(H2ErrorCode::STREAM_CLOSED.into()),
            RemoteState::Open { .. } if !stream.work.has_head => FieldBlockPurpose::Head,
            RemoteState::Open { .. } if header.has(frame::END_STREAM) => {
                FieldBlockPurpose::Trailers
            }
            RemoteState::Open { .. } => {
                FieldBlockPurpose::Reset(H2ErrorCode::PROTOCOL_ERROR.into())
            }
        })
    }

    /// Handles the decoded head of a response, interim or final.
    fn response<'i>(
        &mut self,
        id: u32,
        ended: bool,
        section: &FieldSection,
        now_ms: u64,
    ) -> Result<H2ClientEvent<'i, W>, H2ConnectionError> {
        let Some(at) = self.place(id) else {
            return Ok(H2ClientEvent::Handled);
        };
        let stream = &mut self.streams[at];
        let head = match section.response_head(stream.work.method) {
            Ok(head) => head,
            Err(reject) => return self.malformed(id, reject, now_ms),
        };
        let work = stream.work.work.clone();
        if (100..200).contains(&head.status.0) {
            let what = "a flood of interim responses";
            self.abuse_budget
                .spend(H2_MEMBER_INTERIM_POINTS, now_ms, what)?;
            stream.work.interim_responses += 1;
            let reject = match stream.work.interim_responses {
                _ if head.status.0 == 101 => Reject::UPSTREAM_UPGRADE_UNASKED,
                // An interim response never ends a stream (RFC 9113 §8.1).
                _ if ended => Reject::UPSTREAM_PSEUDO_FIELDS,
                ..=PROXY_INTERIM_RESPONSES_MAX => return Ok(H2ClientEvent::Interim { work }),
                _ => Reject::UPSTREAM_INTERIM_FLOOD,
            };
            return self.malformed(id, reject, now_ms);
        }
        stream.work.has_head = true;
        stream.remote = match head.body {
            _ if ended => RemoteState::Ended,
            ResponseLength::None => RemoteState::Open { announced: Some(0) },
            ResponseLength::Length(length) => RemoteState::Open {
                announced: Some(length),
            },
            _ => RemoteState::Open { announced: None },
        };
        self.remove_if_ended(at);
        Ok(H2ClientEvent::Response { work, ended })
    }

    fn body_part<'i>(&mut self, id: u32, bytes: &'i [u8], ended: bool) -> H2ClientEvent<'i, W> {
        let Some(at) = self.place(id) else {
            return H2ClientEvent::Handled;
        };
        let work = self.streams[at].work.work.clone();
        if ended {
            self.remove_if_ended(at);
        }
        H2ClientEvent::Data { work, bytes, ended }
    }

    fn trailers<'i>(
        &mut self,
        id: u32,
        section: &FieldSection,
        now_ms: u64,
    ) -> Result<H2ClientEvent<'i, W>, H2ConnectionError> {
        if let Some(reject) = section.response_fault() {
            return self.malformed(id, reject, now_ms);
        }
        let Some(at) = self.place(id) else {
            return Ok(H2ClientEvent::Handled);
        };
        let work = self.streams[at].work.work.clone();
        self.remove_if_ended(at);
        Ok(H2ClientEvent::Trailers { work })
    }

    /// Resets a stream with a malformed response.
    fn malformed<'i>(
        &mut self,
        id: u32,
        reject: Reject,
        now_ms: u64,
    ) -> Result<H2ClientEvent<'i, W>, H2ConnectionError> {
        let reset = self.stream_error(id, H2ErrorCode::PROTOCOL_ERROR.into(), now_ms)?;
        Ok(match reset {
            H2Event::Reset { work, .. } => H2ClientEvent::Failed {
                work: work.work,
                failure: H2StreamFailure::Malformed(reject),
            },
            _ => H2ClientEvent::Handled,
        })
    }
}

/// Returns the failure of a stream that was reset. `rule` is the rule for a malformed response.
fn failure(cause: H2ResetCause, rule: Reject) -> H2StreamFailure {
    match cause {
        H2ResetCause::Peer(H2ErrorCode::REFUSED_STREAM) => H2StreamFailure::Refused,
        H2ResetCause::Peer(code) => H2StreamFailure::Reset(code),
        H2ResetCause::Error(H2ErrorCode::PROTOCOL_ERROR) | H2ResetCause::Malformed(_) => {
            H2StreamFailure::Malformed(rule)
        }
        H2ResetCause::Error(_) => H2StreamFailure::Malformed(Reject::UPSTREAM_FRAME_MALFORMED),
    }
}

#[cfg(test)]
mod tests;
