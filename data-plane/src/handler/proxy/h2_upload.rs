//! Body of a request on its way to a member over HTTP/2.

use crate::handler::pipe::{PipeRead, PipeReader};
use crate::handler::proxy::exchange::SendError;
use crate::handler::proxy::request_head::forwarded_trailers;
use crate::handler::proxy::route::ProxyRoute;
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::PROXY_REPLAY_BYTES_MAX;
use crate::upstream::H2RequestStream;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

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
