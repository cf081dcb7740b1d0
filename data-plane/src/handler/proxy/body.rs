//! Body of a client's request on its way to a member.

use crate::handler::call::body::request_body::{BodyRest, RequestBody};
use crate::handler::pipe::{PipeReader, pipe};
use crate::handler::proxy::exchange::{StreamedBody, push_last_chunk};
use crate::handler::proxy::h2_upload::H2Upload;
use crate::handler::proxy::log::line;
use crate::handler::proxy::request_head::forwarded_trailers;
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::{HandlerError, Request};
use crate::ledger::body_memory::{BodyAccount, BodyReservation};
use crate::limits::BODY_BUFFER_BYTES;
use std::rc::Rc;
use std::sync::Arc;
use wire::h1::body_decoder::BodyLength;
use wire::h2::UploadLength;

/// Body of a request, as sent to a member.
pub(super) struct OutgoingBody {
    /// Framing for the member.
    length: BodyLength,
    /// The body from its beginning, as far as gathered.
    gathered: Rc<Vec<u8>>,
    /// Memory of the gathered part.
    _reservation: Option<BodyReservation>,
    /// Memory of the bytes that a failed attempt has taken.
    replayed: BodyReservation,
    /// Rest of the body; None if the whole body is gathered, or once an attempt sends the rest.
    rest: Option<PipeReader>,
    /// True if an attempt has begun to send the rest.
    is_rest_begun: bool,
    /// Trailers behind a body that is gathered whole, with the lines of the trailer section.
    trailers: Option<Box<[u8]>>,
}

impl OutgoingBody {
    /// Makes an empty body.
    pub(super) fn none(length: BodyLength) -> OutgoingBody {
        OutgoingBody {
            length,
            gathered: Rc::default(),
            _reservation: None,
            replayed: BodyReservation::default(),
            rest: None,
            is_rest_begun: false,
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
        let Some(body) = body else {
            return Ok(OutgoingBody::none(length));
        };
        Ok(OutgoingBody {
            // Only chunks can have trailers behind them.
            length: match known.filter(|_| body.trailers.is_none()) {
                Some(length) => BodyLength::Length(length),
                None => BodyLength::Chunked,
            },
            gathered: Rc::new(body.first_part),
            _reservation: body.reservation,
            replayed: BodyReservation::default(),
            rest: body.rest.and_then(|rest| match rest {
                BodyRest::Streamed(reader) => Some(reader),
                BodyRest::Spooled(_) => None,
            }),
            is_rest_begun: false,
            trailers: body.trailers,
        })
    }

    /// Returns the framing for the member.
    pub(super) fn length(&self) -> BodyLength {
        self.length
    }

    /// Returns true if the body can still be sent from its beginning.
    pub(super) fn is_replayable(&self) -> bool {
        !self.is_rest_begun
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
    /// rest waits until the member wants the body.
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
        let Some(reader) = self.rest.take() else {
            if let Some(trailers) = self.trailers.as_deref().filter(|_| is_chunked) {
                push_last_chunk(&forwarded_trailers(trailers, route), out);
            }
            return None;
        };
        self.is_rest_begun = true;
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
        self.is_rest_begun |= rest.is_some();
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
        self.is_rest_begun = false;
    }
}

/// Returns true for a body of known length that is gathered whole.
fn is_short(length: BodyLength) -> bool {
    matches!(length, BodyLength::Length(length) if length < BODY_BUFFER_BYTES as u64)
}
