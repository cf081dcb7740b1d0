//! An HTTP/3 request on its stream: reads the request, and ends the stream.

use crate::limits::{self, Limits};
use crate::serve::context::WorkerContext;
use crate::serve::h3::pending_request::{PendingRequest, ShedError};
use crate::serve::h3::session::{H3Session, now, varint};
use crate::serve::linger::Linger;
use crate::serve::request_ledger::RequestReservation;
use crate::serve::response_head::{Qpack, push_fields};
use crate::world::SecureFields;
use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;
use wire::field_section::{FieldSection, SectionKind};
use wire::h3::request_stream::RequestStreamEndError;
use wire::h3::{
    H3ConnectionError, H3ErrorCode, RequestStreamEvent, RequestStreamReceiver, frame, qpack,
};
use wire::limits::HeadLimits;
use wire::reject::Reject;
use wire::request_head::Version;

/// A request on its stream, with both directions of the stream.
pub(super) struct H3Exchange {
    pub(super) session: Rc<H3Session>,
    pub(super) send: SendStream,
    recv: RecvStream,
    receiver: RequestStreamReceiver,
    /// Bytes read from the stream and not parsed yet.
    chunk: Bytes,
    /// Most bytes read from the stream at once. Read bytes are in the client's window again.
    read_bytes_max: usize,
    /// A part of the request's content, received together with the head.
    ahead: Option<Bytes>,
    /// Client of the request, once the head was read; until then the peer.
    pub(super) client: IpAddr,
    /// True after the last byte of the request.
    pub(super) ended: bool,
    /// Trailers of the request as field lines, or the rule that refuses the trailers.
    trailers: Result<Vec<u8>, Reject>,
    /// Length of the content according to Content-Length.
    pub(super) promised: Option<u64>,
    pub(super) seen: u64,
    /// True after the end or the reset of the stream.
    done: bool,
    /// Reservation in the ledger of requests under way; present from the first wait on.
    held: Option<RequestReservation>,
    /// Entry in the connection's list of waiting requests. The entry is in the list as long as `held` is
    /// present.
    pub(super) waiting: Rc<PendingRequest>,
}

/// Fewest bytes read from a stream at once: the end of a pipe is not filled byte by byte.
const READ_BYTES_MIN: usize = 1_024;

/// Reason for a request without a complete response.
pub(super) enum H3ExchangeError {
    /// A connection error: the connection ends.
    Fatal(H3ConnectionError),
    /// A stream error: the stream is reset.
    Stream(H3ErrorCode),
    /// The request is malformed behind its head, by a rule (RFC 9114 §4.1.2): the stream is reset.
    Malformed(Reject),
    /// The peer cancelled the stream, or the connection ended.
    Gone,
    /// A limit is reached. The client may send the request again, on the same connection or on another.
    Refused,
    /// The request was ended in favour of another client's request.
    Shed,
}

impl From<ShedError> for H3ExchangeError {
    fn from(_: ShedError) -> H3ExchangeError {
        H3ExchangeError::Shed
    }
}

impl From<H3ConnectionError> for H3ExchangeError {
    fn from(fatal: H3ConnectionError) -> H3ExchangeError {
        H3ExchangeError::Fatal(fatal)
    }
}

impl Drop for H3Exchange {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.session.context.stats.panics.increment();
        }
        if !self.done {
            // quinn finishes a dropped stream, so the client would take a partial response for a complete
            // response.
            let _ = self.send.reset(varint(H3ErrorCode::H3_INTERNAL_ERROR));
        }
        if self.held.is_some() {
            self.session.end_wait(&self.waiting);
        }
        self.session.leave();
    }
}

impl H3Exchange {
    pub(super) fn new(session: Rc<H3Session>, send: SendStream, recv: RecvStream) -> H3Exchange {
        session.enter();
        H3Exchange {
            client: session.who.peer,
            session,
            send,
            recv,
            receiver: RequestStreamReceiver::default(),
            chunk: Bytes::new(),
            read_bytes_max: limits::H3_PIPE_BYTES,
            ahead: None,
            ended: false,
            trailers: Ok(Vec::new()),
            promised: None,
            seen: 0,
            done: false,
            held: None,
            waiting: Rc::new(PendingRequest::new()),
        }
    }

    pub(super) fn waiting(&self) -> &Rc<PendingRequest> {
        &self.waiting
    }

    /// Sets the time since when the client has taken no bytes of the response (`u64::MAX`: not stalled),
    /// and informs the session of a change.
    pub(super) fn stalled_since(&self, at_ms: u64) {
        if self.waiting.stalled_ms() != at_ms {
            self.waiting.stalled_since(at_ms);
            self.session.note_stalls();
        }
    }

    /// Reserves `head_bytes` of memory in the ledger of requests under way, because the request has to
    /// wait. A later call changes the size of the reservation.
    pub(super) fn take_up(&mut self, head_bytes: usize) -> Result<(), H3ExchangeError> {
        let account = self.session.account.of_client(self.client);
        let of_client = |held: &&mut RequestReservation| held.client() == account.client();
        if let Some(held) = self.held.as_mut().filter(of_client) {
            held.resize(head_bytes)
                .map_err(|_| H3ExchangeError::Refused)?;
            self.waiting.set_head_bytes(head_bytes);
            return Ok(());
        }
        let requests_max = self.context().world().limits.streams;
        let held = account.admit(head_bytes, requests_max, self.context().clock.millis());
        self.enter(held.map_err(|_| H3ExchangeError::Refused)?);
        Ok(())
    }

    /// Makes a reservation for a request with a complete response and discarded content. Returns false if a
    /// limit is reached.
    fn take_up_answered(&mut self) -> bool {
        if let Some(held) = &mut self.held {
            // A smaller reservation always fits.
            return held.resize(0).is_ok();
        }
        let requests_max = self.context().world().limits.streams;
        let account = self.session.account.of_client(self.client);
        let held = account.admit_answered(requests_max, self.context().clock.millis());
        held.map(|held| self.enter(held)).is_some()
    }

    fn enter(&mut self, held: RequestReservation) {
        self.waiting.set_head_bytes(held.head_bytes());
        self.waiting.set_client(held.client());
        // The reservation of an unfinished head is replaced if the head names another client.
        if self.held.replace(held).is_none() {
            self.session.begin_wait(&self.waiting);
        }
    }

    pub(super) fn context(&self) -> &Rc<WorkerContext> {
        &self.session.context
    }

    /// Resets the stream with H3_REQUEST_REJECTED, so that the client may send the request again.
    pub(super) fn reject(mut self) {
        self.end(Err(H3ExchangeError::Refused));
    }

    /// Finishes or resets the stream.
    pub(super) fn end(&mut self, answered: Result<(), H3ExchangeError>) {
        self.done = true;
        let code = match answered {
            Ok(()) => {
                let _ = self.send.finish();
                if !self.ended {
                    // A complete response makes the rest of the request superfluous (RFC 9114 §4.1).
                    let _ = self.recv.stop(varint(H3ErrorCode::H3_NO_ERROR));
                }
                return self.session.served();
            }
            Err(H3ExchangeError::Fatal(fatal)) => {
                self.context().stats.h3_resets.increment();
                return self.session.fatal(fatal);
            }
            Err(H3ExchangeError::Stream(code)) => code,
            Err(H3ExchangeError::Malformed(_)) => H3ErrorCode::H3_MESSAGE_ERROR,
            Err(H3ExchangeError::Gone) => H3ErrorCode::H3_REQUEST_CANCELLED,
            Err(H3ExchangeError::Refused) => return self.reset(H3ErrorCode::H3_REQUEST_REJECTED),
            Err(H3ExchangeError::Shed) => return self.reset(H3ErrorCode::H3_REQUEST_CANCELLED),
        };
        self.reset(code);
        if let Err(fatal) = self
            .session
            .charge_abuse(wire::limits::RESET_POINTS, "rapid reset")
        {
            self.session.fatal(fatal);
        }
    }

    fn reset(&mut self, code: H3ErrorCode) {
        self.context().stats.h3_resets.increment();
        let _ = self.send.reset(varint(code));
        let _ = self.recv.stop(varint(code));
    }

    /// Returns a HEADERS frame with `section`, `fields`, the site's fields for secure connections and
    /// `date`. `date` is None if `section` has a Date.
    pub(super) fn head(
        &self,
        section: &[u8],
        fields: &[u8],
        secure_fields: Option<&SecureFields>,
        date: Option<&[u8]>,
    ) -> Vec<u8> {
        let secure_bytes = secure_fields.map_or(0, |fields| fields.section.len());
        let mut out = Vec::with_capacity(section.len() + secure_bytes + HEAD_BYTES);
        let at = frame::begin_headers(&mut out);
        push_fields::<Qpack>(section, fields, secure_fields, date, &mut out);
        frame::end_headers(&mut out, at);
        out
    }

    /// Waits until the client has acknowledged the whole response. QUIC holds the bytes until the
    /// acknowledgement, so the connection's send window must stay in the ledger. The timeout for a stalled
    /// response applies to a client without acknowledgements as well.
    pub(super) async fn until_acknowledged(&mut self) {
        if self.held.take().is_some() {
            self.session.end_wait(&self.waiting);
        }
        let seconds = self.context().world().limits.write_stall_seconds;
        let patience = Duration::from_secs(seconds.into());
        let mut stopped = pin!(self.send.stopped());
        loop {
            let before = self.session.acknowledgements();
            match timeout(patience, stopped.as_mut()).await {
                Ok(Ok(None)) | Ok(Err(_)) => return,
                // STOP_SENDING: the client discards the rest of the response, but QUIC holds the bytes
                // until a reset.
                Ok(Ok(Some(code))) => return drop(self.send.reset(code)),
                Err(_) if self.session.acknowledgements() == before => {
                    return self.session.end_unacknowledged();
                }
                Err(_) => {}
            }
        }
    }

    // ---- Request ----

    pub(super) async fn read_fields(
        &mut self,
        request: &mut FieldSection,
        bounds: &Limits,
    ) -> Result<(), H3ExchangeError> {
        if let Poll::Ready(read) = now(poll_fn(|cx| self.poll_fields(cx, request, &bounds.head))) {
            return read;
        }
        let patience = Duration::from_secs(bounds.head_seconds.into());
        let waiting = Rc::clone(&self.waiting);
        let head = poll_fn(|cx| {
            let polled = self.poll_fields(cx, request, &bounds.head);
            if polled.is_pending() {
                self.take_up(self.receiver.section_bytes())?;
            }
            polled
        });
        match waiting.unless_shed(timeout(patience, head)).await? {
            Ok(read) => read,
            Err(_) => Err(self.late()),
        }
    }

    /// Counts an exceeded deadline of the peer, and returns the error for the stream.
    pub(super) fn late(&self) -> H3ExchangeError {
        self.context().stats.deadlines.increment();
        H3ExchangeError::Stream(H3ErrorCode::H3_REQUEST_CANCELLED)
    }

    /// Reads the field section into `request`.
    fn poll_fields(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut FieldSection,
        limits: &HeadLimits,
    ) -> Poll<Result<(), H3ExchangeError>> {
        loop {
            let mut input = &self.chunk[..];
            let event = self.receiver.receive(&mut input)?;
            if let RequestStreamEvent::Fields(section) = event {
                decode(&self.session.context, section, request, limits, false)?;
                let left = input.len();
                self.keep_last(left);
                self.receiver.forget_section();
                break;
            }
            self.chunk = Bytes::new();
            if !ready!(self.poll_chunk(cx))? {
                return Poll::Ready(Err(self.cut()));
            }
        }
        // Most requests have no content, and the end of the stream has been received with the head.
        match now(poll_fn(|cx| self.poll_body(cx))) {
            Poll::Pending => {}
            Poll::Ready(part) => self.ahead = part?,
        }
        if self.ended {
            request.end_stream();
        }
        Poll::Ready(Ok(()))
    }

    /// Keeps the last `left` bytes of the chunk.
    fn keep_last(&mut self, left: usize) {
        let used = self.chunk.len() - left;
        let _ = self.chunk.split_to(used);
    }

    /// Sets the most bytes that are read from the stream at once.
    pub(super) fn read_at_once(&mut self, bytes: usize) {
        self.read_bytes_max = bytes.clamp(READ_BYTES_MIN, limits::H3_PIPE_BYTES);
    }

    /// Reads the next bytes of the stream into `chunk`. Returns false at the end of the stream.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, H3ExchangeError>> {
        let read = pin!(self.recv.read_chunk(self.read_bytes_max, true)).poll(cx);
        match ready!(read) {
            Ok(Some(chunk)) => {
                self.context()
                    .stats
                    .bytes_received
                    .add(chunk.bytes.len() as u64);
                self.chunk = chunk.bytes;
                Poll::Ready(Ok(true))
            }
            Ok(None) => Poll::Ready(Ok(false)),
            Err(_) => Poll::Ready(Err(H3ExchangeError::Gone)),
        }
    }

    /// Ready once the client has reset its direction of the stream, even if received bytes are unread.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(pin!(self.recv.received_reset()).poll(cx)) {
            // The client has sent the whole request.
            Ok(None) => Poll::Pending,
            Ok(Some(_)) | Err(_) => Poll::Ready(()),
        }
    }

    /// Returns the error for a stream that ended within a request.
    fn cut(&self) -> H3ExchangeError {
        match self.receiver.end() {
            Err(RequestStreamEndError::Fatal(fatal)) => H3ExchangeError::Fatal(fatal),
            Err(RequestStreamEndError::Stream(code)) => H3ExchangeError::Stream(code),
            Ok(()) => H3ExchangeError::Stream(H3ErrorCode::H3_REQUEST_INCOMPLETE),
        }
    }

    /// Returns the next part of the content, or None after the last part.
    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, H3ExchangeError>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Ok(Some(ahead)));
        }
        while !self.ended {
            let mut input = &self.chunk[..];
            let whole = input.len();
            let event = self.receiver.receive(&mut input)?;
            let end = whole - input.len();
            match event {
                RequestStreamEvent::Data(bytes) => {
                    let part = self.chunk.slice(end - bytes.len()..end);
                    self.keep_last(whole - end);
                    self.seen += part.len() as u64;
                    // The rest of the content comes from the client.
                    self.session.note_moved(part.len(), true);
                    self.check_length(false)?;
                    self.pay()?;
                    return Poll::Ready(Ok(Some(part)));
                }
                RequestStreamEvent::Trailers(section) | RequestStreamEvent::Fields(section) => {
                    let context = self.session.context.clone();
                    let mut request = context.h3.request();
                    let limits = &context.world().limits.head;
                    let decoded = decode(&context, section, &mut request, limits, true);
                    self.trailers = match request.fault() {
                        Some(fault) => Err(fault),
                        None => Ok(request.trailers()),
                    };
                    context.h3.keep(request);
                    decoded?;
                    if let Err(fault) = self.trailers
                        && fault.is_malformed()
                    {
                        return Poll::Ready(Err(H3ExchangeError::Malformed(fault)));
                    }
                    self.keep_last(whole - end);
                }
                RequestStreamEvent::More => {
                    self.chunk = Bytes::new();
                    self.pay()?;
                    if !ready!(self.poll_chunk(cx))? {
                        if self.receiver.end().is_err() {
                            return Poll::Ready(Err(self.cut()));
                        }
                        self.ended = true;
                        self.check_length(true)?;
                    }
                }
            }
        }
        Poll::Ready(Ok(None))
    }

    /// Returns true if neither content nor trailers wait for a handler.
    pub(super) fn has_no_body(&self) -> bool {
        let has_trailers = self
            .trailers
            .as_ref()
            .map_or(true, |lines| !lines.is_empty());
        self.ended && !has_trailers
    }

    /// Returns true if the stream is an open tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.receiver.is_tunnel()
    }

    /// Records that the stream is an open tunnel.
    pub(super) fn open_tunnel(&mut self) {
        self.receiver.open_tunnel();
    }

    /// Fails if trailers end a tunnel: only DATA may be sent on a connected stream (RFC 9114 §4.4).
    pub(super) fn check_tunnel_end(&self) -> Result<(), H3ExchangeError> {
        if self.receiver.is_trailed() {
            Err(
                H3ConnectionError::new(H3ErrorCode::H3_FRAME_UNEXPECTED, "HEADERS in a tunnel")
                    .into(),
            )
        } else {
            Ok(())
        }
    }

    /// Takes the trailers after the end of the content, and records their memory in the ledger of requests.
    pub(super) fn take_trailers(&mut self) -> Result<Vec<u8>, Reject> {
        let trailers = std::mem::replace(&mut self.trailers, Ok(Vec::new()))?;
        if let Some(held) = self.held.as_ref().filter(|_| !trailers.is_empty()) {
            let head_bytes = held.head_bytes() + trailers.len();
            let taken = self.take_up(head_bytes);
            taken.map_err(|_| Reject::REQUESTS_SHARE_TAKEN)?;
        }
        Ok(trailers)
    }

    /// Compares the length of the content with Content-Length (RFC 9114 §4.1.2).
    fn check_length(&self, is_end: bool) -> Result<(), H3ExchangeError> {
        let is_wrong = |promised| self.seen > promised || (is_end && self.seen < promised);
        if self.promised.is_some_and(is_wrong) {
            Err(H3ExchangeError::Malformed(Reject::BODY_LENGTH))
        } else {
            Ok(())
        }
    }

    /// Charges frames without effect to the abuse budget.
    fn pay(&mut self) -> Result<(), H3ExchangeError> {
        let frames = self.receiver.take_idle_frames();
        let points = frames * wire::limits::EMPTY_DATA_POINTS;
        Ok(self
            .session
            .charge_abuse(points, "a flood of empty frames")?)
    }

    /// Reads and discards the rest of the content behind the response, within the bounds of [`Linger`]. Beyond the
    /// bounds, `end` sends STOP_SENDING to the client (RFC 9114 §4.1).
    pub(super) async fn drain(&mut self) -> Result<(), H3ExchangeError> {
        if !self.take_up_answered() {
            return Ok(());
        }
        let context = self.context().clone();
        let waiting = Rc::clone(&self.waiting);
        let mut linger = Linger::new(context.clock.millis());
        while !linger.is_over(context.clock.millis()) {
            let left_ms = linger.due_ms().saturating_sub(context.clock.millis());
            let part = timeout(
                Duration::from_millis(left_ms),
                poll_fn(|cx| self.poll_body(cx)),
            );
            match waiting.unless_shed(part).await {
                Ok(Ok(Ok(Some(part)))) => {
                    context.clock.tick();
                    linger.note(part.len(), context.clock.millis());
                }
                Ok(Ok(Err(
                    stop @ (H3ExchangeError::Fatal(_)
                    | H3ExchangeError::Stream(_)
                    | H3ExchangeError::Malformed(_)),
                ))) => return Err(stop),
                // The response is complete, so a failure of the rest of the request is no error.
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Passes chunks to QUIC, and adds the number of accepted bytes to `total`. Each part cut off by the
/// client's flow-control windows is charged to the abuse budget, because a client may open the windows byte
/// by byte.
pub(super) async fn write_chunks(
    chunks: &mut [Bytes],
    total: &mut u64,
    session: &H3Session,
    send: &mut SendStream,
) -> Result<(), H3ExchangeError> {
    while let Some(at) = chunks.iter().position(|chunk| !chunk.is_empty()) {
        let written = send.write_chunks(&mut chunks[at..]).await;
        let written = written.map_err(|_| H3ExchangeError::Gone)?.bytes;
        *total += written as u64;
        session.note_moved(written, false);
        if chunks.iter().any(|chunk| !chunk.is_empty()) {
            session.pay_for_part(written)?;
        }
    }
    Ok(())
}

/// Decodes a field section into `request`.
fn decode(
    context: &WorkerContext,
    section: &[u8],
    request: &mut FieldSection,
    limits: &HeadLimits,
    is_trailer: bool,
) -> Result<(), H3ConnectionError> {
    let kind = if is_trailer {
        SectionKind::RequestTrailers
    } else {
        SectionKind::Request
    };
    request.begin(Version::Http3, limits, false, kind);
    let mut strings = context.h3.strings.borrow_mut();
    qpack::decode(section, &mut strings, |name, value| {
        Ok(request.field(name, value)?)
    })?;
    request.end();
    Ok(())
}

/// Estimated size of a HEADERS frame besides the section and the secure fields, plus the header of the DATA
/// frame.
const HEAD_BYTES: usize = 64;
