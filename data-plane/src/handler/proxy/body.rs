//! Body of a client's request on its way to a member, over HTTP/1.1 and HTTP/2.

use crate::handler::call::body::request_body::{BodyRest, RequestBody};
use crate::handler::pipe::{PipeRead, PipeReader, pipe};
use crate::handler::proxy::exchange::{SendError, StreamedBody, push_last_chunk};
use crate::handler::proxy::failure::line;
use crate::handler::proxy::request_head::forwarded_trailers;
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::{HandlerError, Request};
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::{BODY_BUFFER_BYTES, PROXY_REPLAY_BYTES_MAX};
use crate::upstream::H2RequestStream;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use wire::h1::body_decoder::BodyLength;
use wire::h2::UploadLength;

/// Body of a request, as sent to a member.
pub(super) struct OutgoingBody {
    /// Framing for the member.
    length: BodyLength,
    /// The body from its beginning, as far as gathered.
    gathered: Rc<Vec<u8>>,
    /// Memory of the gathered part, and of its copy on the way to the member.
    reservation: Option<BodyReservation>,
    /// Memory of the bytes that a failed attempt has taken.
    replayed: BodyReservation,
    /// Rest of the body; None if the whole body is gathered, or once an attempt sends the rest.
    rest: Option<PipeReader>,
    /// True if the memory holds the gathered part twice: for the next attempt, and on the way to the member.
    is_kept: bool,
    /// True if an attempt has taken bytes that no other attempt can send.
    is_spent: bool,
    /// Trailers behind a body that is gathered whole, with the lines of the trailer section.
    trailers: Option<Box<[u8]>>,
}

impl OutgoingBody {
    /// Makes an empty body.
    pub(super) fn none(length: BodyLength) -> OutgoingBody {
        OutgoingBody {
            length,
            gathered: Rc::default(),
            reservation: None,
            replayed: BodyReservation::default(),
            rest: None,
            is_kept: false,
            is_spent: false,
            trailers: None,
        }
    }

    /// Makes a body that streams from its beginning. A gRPC client may wait for a response to the beginning of
    /// its body.
    pub(super) fn streamed(reader: PipeReader, length: BodyLength) -> OutgoingBody {
        OutgoingBody {
            rest: Some(reader),
            ..OutgoingBody::none(length)
        }
    }

    /// Gathers a short body before a member is taken, so that a slow client occupies no member. A client with a
    /// short body of known length that waits for 100 (Continue) gets 100 from this server. A longer body stays
    /// with the client until the member wants the body.
    pub(super) async fn receive(
        request: &mut Request,
        length: BodyLength,
    ) -> Result<OutgoingBody, HandlerError> {
        let (_, nothing) = pipe(1);
        let mut reader = std::mem::replace(&mut request.body, nothing);
        if request.expects_continue && !is_short(length) {
            return Ok(OutgoingBody::streamed(reader, length));
        }
        reader.hold(false);
        request.expects_continue = false;
        let memory = &request.memory;
        let received = RequestBody::receive(reader, length, request.peer, memory, None).await;
        let (body, known) = received.map_err(|error| error.fault(&line(request)))?;
        let Some(mut body) = body else {
            return Ok(OutgoingBody::none(length));
        };
        let copied = body.first_part.len();
        let is_kept = body.rest.is_none()
            && body
                .reservation
                .as_mut()
                .is_none_or(|reservation| reservation.try_grow(copied, BodyPurpose::Gathering));
        Ok(OutgoingBody {
            // Only chunks can have trailers behind them.
            length: match known.filter(|_| body.trailers.is_none()) {
                Some(length) => BodyLength::Length(length),
                None => BodyLength::Chunked,
            },
            gathered: Rc::new(body.first_part),
            reservation: body.reservation,
            replayed: BodyReservation::default(),
            rest: body.rest.and_then(|rest| match rest {
                BodyRest::Streamed(reader) => Some(reader),
                BodyRest::Spooled(_) => None,
            }),
            is_kept,
            is_spent: false,
            trailers: body.trailers,
        })
    }

    /// Returns the framing for the member.
    pub(super) fn length(&self) -> BodyLength {
        self.length
    }

    /// Returns true if the body can still be sent from its beginning.
    pub(super) fn is_replayable(&self) -> bool {
        !self.is_spent
    }

    /// Returns true if nothing follows the head of the request.
    fn is_empty(&self) -> bool {
        self.gathered.is_empty() && self.rest.is_none() && self.trailers.is_none()
    }

    /// Returns the length of the body for the choice of a connection over HTTP/2.
    pub(super) fn upload_length(&self) -> UploadLength {
        if self.is_empty() {
            UploadLength::None
        } else {
            UploadLength::of(self.length)
        }
    }

    /// Returns true if an attempt would stream a part of the body.
    pub(super) fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// Appends the gathered part to the head of the request in `out`, and returns the rest. With `is_held` the
    /// rest waits until the member wants the body. The memory of the copy is reserved until the end of the body: a part that
    /// is not kept for another attempt is forgotten.
    pub(super) fn take(
        &mut self,
        out: &mut Vec<u8>,
        is_held: bool,
        route: &Arc<ProxyRoute>,
    ) -> Option<StreamedBody> {
        let is_chunked = self.length == BodyLength::Chunked;
        if is_chunked && !self.gathered.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", self.gathered.len()).as_bytes());
            out.extend_from_slice(&self.gathered);
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(&self.gathered);
        }
        if !self.is_kept && !self.gathered.is_empty() {
            self.gathered = Rc::default();
            self.is_spent = true;
        }
        let Some(reader) = self.rest.take() else {
            if let Some(trailers) = self.trailers.as_deref().filter(|_| is_chunked) {
                push_last_chunk(&forwarded_trailers(trailers, route), out);
            }
            return None;
        };
        self.is_spent = true;
        Some(StreamedBody {
            reader,
            is_chunked,
            is_held,
            route: Arc::clone(route),
        })
    }

    /// Returns the body for one attempt over HTTP/2. With `is_held` the rest waits until the member wants the
    /// body. The client's trailer section is dropped unless `passes_trailers`.
    pub(super) fn take_for_h2(
        &mut self,
        is_held: bool,
        route: &Arc<ProxyRoute>,
        memory: &BodyAccount,
        passes_trailers: bool,
    ) -> H2Upload {
        let rest = self.rest.take();
        self.is_spent |= rest.is_some();
        // The attempts share the gathered part.
        let gathered = self.gathered.len();
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink_to(gathered);
        }
        let trailers = self.trailers.as_deref();
        let trailers = trailers.map(|lines| forwarded_trailers(lines, route));
        let trailers = trailers.filter(|lines| !lines.is_empty());
        H2Upload::new(
            Rc::clone(&self.gathered),
            rest,
            trailers,
            is_held,
            route,
            memory,
            passes_trailers,
        )
    }

    /// Takes the body of a failed attempt back, as far as no byte is lost.
    pub(super) fn take_back(&mut self, upload: H2Upload) {
        let Some(replay) = upload.into_replay() else {
            return;
        };
        Rc::make_mut(&mut self.gathered).extend_from_slice(&replay.bytes);
        self.replayed.merge(replay.reservation);
        self.trailers = replay.trailers.or(self.trailers.take());
        if replay.rest.is_none() && self.length == BodyLength::Chunked {
            self.length = BodyLength::Length(self.gathered.len() as u64);
        }
        self.rest = replay.rest;
        self.is_spent = false;
    }
}

/// Returns true for a body of known length that is gathered whole.
fn is_short(length: BodyLength) -> bool {
    matches!(length, BodyLength::Length(length) if length < BODY_BUFFER_BYTES as u64)
}

/// Body of a request for one attempt.
pub(super) struct H2Upload {
    /// First bytes, shared with the next attempt; the bytes before `first_at` are sent.
    first: Rc<Vec<u8>>,
    first_at: usize,
    /// Rest of the body from the client.
    rest: Option<PipeReader>,
    /// Lines of the trailer section behind the body.
    trailers: Option<Box<[u8]>>,
    /// Bytes taken from the client; None if too many for another attempt, or if memory is short.
    replay: Option<Vec<u8>>,
    /// Memory of `replay`.
    reservation: BodyReservation,
    /// True until the member wants the body (`Expect: 100-continue`).
    is_held: bool,
    /// True while the call waits for the client to send more of the body.
    waits_for_client: bool,
    /// True once the end is sent, or is not needed.
    is_done: bool,
    /// Route of the request. Trailers must not replace the fields of the route.
    route: Arc<ProxyRoute>,
    /// True if the member gets the trailer section.
    passes_trailers: bool,
}

/// Body of a failed attempt, for another attempt.
pub(super) struct ReplayedBody {
    /// Bytes that the attempt has taken from the client.
    pub(super) bytes: Vec<u8>,
    /// Rest of the body from the client.
    pub(super) rest: Option<PipeReader>,
    /// Lines of the trailer section behind the body.
    pub(super) trailers: Option<Box<[u8]>>,
    /// Memory of the taken bytes.
    pub(super) reservation: BodyReservation,
}

impl H2Upload {
    /// Returns a body with the first bytes `first`, for a call with the account `memory`. The trailer section of the
    /// client is dropped unless `passes_trailers`.
    pub(super) fn new(
        first: Rc<Vec<u8>>,
        rest: Option<PipeReader>,
        trailers: Option<Box<[u8]>>,
        is_held: bool,
        route: &Arc<ProxyRoute>,
        memory: &BodyAccount,
        passes_trailers: bool,
    ) -> H2Upload {
        let trailers = trailers.filter(|_| passes_trailers);
        H2Upload {
            is_done: first.is_empty() && rest.is_none() && trailers.is_none(),
            first,
            first_at: 0,
            rest,
            trailers,
            replay: Some(Vec::new()),
            reservation: BodyReservation::new(memory),
            is_held,
            waits_for_client: false,
            route: Arc::clone(route),
            passes_trailers,
        }
    }

    /// Returns true once nothing is left to send.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Sends as much of the body as possible. Ready after the end of the body.
    pub(super) fn poll_send(
        &mut self,
        stream: &mut H2RequestStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        while !self.is_done {
            if self.is_held {
                return Poll::Pending;
            }
            if self.first_at < self.first.len() {
                let Some(room) = ready!(stream.poll_room(cx)) else {
                    self.stop();
                    break;
                };
                let part = &self.first[self.first_at..];
                let part = &part[..part.len().min(room)];
                self.first_at += part.len();
                let is_last = self.first_at == self.first.len() && self.has_no_more();
                stream.send(part, is_last);
                self.is_done = is_last;
            } else if self.rest.is_some() {
                ready!(self.poll_pass(stream, cx))?;
            } else {
                match &self.trailers {
                    Some(lines) => stream.send_trailers(lines),
                    None => stream.send(b"", true),
                }
                self.is_done = true;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn has_no_more(&self) -> bool {
        self.rest.is_none() && self.trailers.is_none()
    }

    /// Passes the next part of the body from the client to the member. Bytes stay in the pipe until the member has room
    /// for them, so that the call holds no second buffer.
    fn poll_pass(
        &mut self,
        stream: &mut H2RequestStream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let Some(reader) = &mut self.rest else {
            return Poll::Ready(Ok(()));
        };
        let mut room = 0;
        if reader.unread() > 0 {
            self.waits_for_client = false;
            match ready!(stream.poll_room(cx)) {
                Some(bytes) => room = bytes,
                None => {
                    self.stop();
                    return Poll::Ready(Ok(()));
                }
            }
        }
        let mut part = Vec::new();
        let read = reader.poll_take(cx, &mut part, room);
        self.waits_for_client = read.is_pending();
        match ready!(read) {
            Ok(PipeRead::Bytes(_)) => {
                stream.send(&part, false);
                self.keep(&part);
            }
            Ok(PipeRead::End) => {
                let trailers = reader.take_trailers().filter(|_| self.passes_trailers);
                let trailers = trailers.map(|lines| forwarded_trailers(&lines, &self.route));
                self.trailers = trailers.filter(|lines| !lines.is_empty());
                self.rest = None;
            }
            Err(_) => return Poll::Ready(Err(SendError::Client)),
        }
        Poll::Ready(Ok(()))
    }

    /// Keeps the bytes of `part` for another attempt.
    fn keep(&mut self, part: &[u8]) {
        let Some(replay) = &mut self.replay else {
            return;
        };
        let is_short = replay.len() + part.len() <= PROXY_REPLAY_BYTES_MAX;
        if is_short
            && self
                .reservation
                .try_grow(part.len(), BodyPurpose::ReadAhead)
        {
            replay.reserve_exact(part.len());
            replay.extend_from_slice(part);
        } else {
            self.forget_replay();
        }
    }

    /// Lets a held body begin.
    pub(super) fn release(&mut self) {
        self.is_held = false;
        if let Some(reader) = &mut self.rest {
            reader.hold(false);
        }
    }

    /// Returns true if the member waits for the beginning of the body.
    pub(super) fn is_held(&self) -> bool {
        self.is_held && !self.is_done
    }

    /// Returns true if the call waits for the client.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client && !self.is_done
    }

    /// Drops the rest of the body, because the member takes no more.
    fn stop(&mut self) {
        self.is_done = true;
    }

    /// Forgets the taken bytes, after the beginning of a response.
    pub(super) fn forget_replay(&mut self) {
        self.replay = None;
        self.reservation.shrink_to(0);
    }

    /// Returns the body for another attempt; None if bytes are lost.
    pub(super) fn into_replay(self) -> Option<ReplayedBody> {
        Some(ReplayedBody {
            bytes: self.replay?,
            rest: self.rest,
            trailers: self.trailers,
            reservation: self.reservation,
        })
    }
}
