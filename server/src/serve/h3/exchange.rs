//! An HTTP/3 request on its stream, from the HEADERS frame of the request to the end of the response.
//!
//! A response that needs no wait is sent in the first poll, without a task and without stored state. Every
//! wait (for a file, a password check, a handler or the peer) is an `await` of the same future.

use super::super::body::{BodyFill, BodyReader};
use super::super::dispatch::dispatch;
use super::super::dispatch_context::DispatchContext;
use super::super::worker::Worker;
use super::session::{H3Session, now, varint};
use crate::handler::LocalBoxFuture;
use crate::limits::{self, Limits};
use crate::serve::access_log::{AccessLogEntry, OwnedAccessLogEntry};
use crate::serve::attempt::{Attempt, BodyAction, Progress, ReadyResponse, RequestBody, Step};
use crate::serve::h3::call::H3Call;
use crate::serve::h3::pending_request::{PendingRequest, ShedError};
use crate::serve::redispatch;
use crate::serve::request_ledger::RequestReservation;
use crate::serve::synthetic_response::{SyntheticResponse, refusal_fields};
use crate::site::{Listing, VariantResponse};
use crate::wire::field_section::FieldSection;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::h3::request_stream::RequestStreamEndError;
use crate::wire::h3::{
    H3ConnectionError, H3ErrorCode, RequestStreamEvent, RequestStreamReceiver, frame, qpack,
};
use crate::wire::reject::Reject;
use crate::wire::request_head::{Method, RequestHead, Version};
use crate::wire::status::Status;
use crate::world::{Host, SecureFields, World};
use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// A request on its stream, with both directions of the stream.
pub(super) struct H3Exchange {
    pub(super) session: Rc<H3Session>,
    pub(super) send: SendStream,
    recv: RecvStream,
    receiver: RequestStreamReceiver,
    /// Bytes read from the stream and not parsed yet.
    chunk: Bytes,
    /// A part of the request's content, received together with the head.
    ahead: Option<Bytes>,
    /// True after the last byte of the request.
    pub(super) ended: bool,
    /// Length of the content according to Content-Length.
    promised: Option<u64>,
    pub(super) seen: u64,
    /// True after the end or the reset of the stream.
    done: bool,
    /// True if the request's content is read and discarded after the response.
    is_drained: bool,
    /// Reservation in the ledger of requests under way; present from the first wait on.
    held: Option<RequestReservation>,
    /// Entry in the connection's list of waiting requests. The entry is in the list as long as `held` is
    /// present.
    waiting: Rc<PendingRequest>,
}

/// Reason for a request without a complete response.
pub(super) enum H3ExchangeError {
    /// A connection error: the connection ends.
    Fatal(H3ConnectionError),
    /// A stream error: the stream is reset.
    Stream(H3ErrorCode),
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

/// Result of a dispatch.
enum H3ExchangeStep {
    /// QUIC has accepted the whole response.
    Done,
    /// QUIC has not yet accepted the whole response.
    Send(H3Response),
    /// A wait, then another dispatch.
    Wait(LocalBoxFuture<Progress>),
    /// A call of a handler.
    Call(Box<H3Call>),
}

/// A response that QUIC has not yet accepted completely.
pub(super) struct H3Response {
    chunks: [Bytes; 2],
    /// The number of bytes that QUIC accepted.
    written: u64,
    /// Source of the content after the chunks.
    body: Option<BodyReader>,
    record: Option<Box<OwnedAccessLogEntry>>,
    status: Status,
    /// Number of content bytes so far.
    sent: u64,
    started_us: u64,
}

impl Drop for H3Exchange {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.session.worker.stats.panics.increment();
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
            session,
            send,
            recv,
            receiver: RequestStreamReceiver::default(),
            chunk: Bytes::new(),
            ahead: None,
            ended: false,
            promised: None,
            seen: 0,
            done: false,
            is_drained: false,
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
    fn take_up(&mut self, head_bytes: usize) -> Result<(), H3ExchangeError> {
        if let Some(held) = &mut self.held {
            held.resize(head_bytes)
                .map_err(|_| H3ExchangeError::Refused)?;
            self.waiting.set_head_bytes(head_bytes);
            return Ok(());
        }
        let requests_max = self.worker().world().limits.streams;
        let held = self.session.holder.admit(head_bytes, requests_max);
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
        let requests_max = self.worker().world().limits.streams;
        let held = self.session.holder.admit_answered(requests_max);
        held.map(|held| self.enter(held)).is_some()
    }

    fn enter(&mut self, held: RequestReservation) {
        self.waiting.set_head_bytes(held.head_bytes());
        self.held = Some(held);
        self.session.begin_wait(&self.waiting);
    }

    pub(super) fn worker(&self) -> &Rc<Worker> {
        &self.session.worker
    }

    /// Resets the stream with H3_REQUEST_REJECTED, so that the client may send the request again.
    pub(super) fn reject(mut self) {
        self.end(Err(H3ExchangeError::Refused));
    }

    /// Reads the request and sends the response.
    pub(super) async fn run(mut self) {
        let mut answered = self.answer().await;
        if answered.is_ok() && self.is_drained && !self.ended {
            // The client gets the complete response before the server discards the rest of the content.
            let _ = self.send.finish();
            answered = self.drain().await;
        }
        let is_whole = answered.is_ok();
        self.end(answered);
        if is_whole && self.session.is_widened() {
            self.until_acknowledged().await;
        } else if is_whole && self.session.is_leaving() {
            // CONNECTION_CLOSE must not overtake the end of the response.
            let _ = timeout(LAST_BYTES, self.send.stopped()).await;
        }
    }

    /// Waits until the client has acknowledged the whole response. QUIC holds the bytes until the
    /// acknowledgement, so the connection's send window must stay in the ledger. The timeout for a stalled
    /// response applies to a client without acknowledgements as well.
    async fn until_acknowledged(&mut self) {
        if self.held.take().is_some() {
            self.session.end_wait(&self.waiting);
        }
        let seconds = self.worker().world().limits.write_stall_seconds;
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

    /// Finishes or resets the stream.
    fn end(&mut self, answered: Result<(), H3ExchangeError>) {
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
                self.worker().stats.h3_resets.increment();
                return self.session.fatal(fatal);
            }
            Err(H3ExchangeError::Stream(code)) => code,
            Err(H3ExchangeError::Gone) => H3ErrorCode::H3_REQUEST_CANCELLED,
            Err(H3ExchangeError::Refused) => return self.reset(H3ErrorCode::H3_REQUEST_REJECTED),
            Err(H3ExchangeError::Shed) => return self.reset(H3ErrorCode::H3_REQUEST_CANCELLED),
        };
        self.reset(code);
        if let Err(fatal) = self
            .session
            .charge_abuse(limits::RESET_POINTS, "rapid reset")
        {
            self.session.fatal(fatal);
        }
    }

    fn reset(&mut self, code: H3ErrorCode) {
        self.worker().stats.h3_resets.increment();
        let _ = self.send.reset(varint(code));
        let _ = self.recv.stop(varint(code));
    }

    async fn answer(&mut self) -> Result<(), H3ExchangeError> {
        let mut request = self.worker().h3.request();
        let next = self.next(&mut request).await;
        // The response needs no memory of the request's head.
        self.worker().h3.keep(request);
        match next? {
            H3ExchangeStep::Send(outgoing) => self.send_rest(outgoing).await,
            H3ExchangeStep::Call(live) => self.live(live).await,
            _ => Ok(()),
        }
    }

    /// Reads the request's head and dispatches the request until no further wait is needed.
    async fn next(
        &mut self,
        request: &mut FieldSection,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let mut world = self.worker().world();
        self.read_fields(request, &world.limits).await?;
        world = self.worker().world();
        let mut progress = Progress::default();
        loop {
            let next = self.decide(request, &world, &progress)?;
            let H3ExchangeStep::Wait(work) = next else {
                return Ok(next);
            };
            self.take_up(request.held_bytes())?;
            progress = self.waiting.unless_shed(work).await?;
            self.worker().clock.tick();
            world = self.worker().world();
        }
    }

    // ---- Request ----

    async fn read_fields(
        &mut self,
        request: &mut FieldSection,
        bounds: &Limits,
    ) -> Result<(), H3ExchangeError> {
        if let Poll::Ready(read) = now(poll_fn(|cx| self.poll_fields(cx, request, bounds))) {
            return read;
        }
        let patience = Duration::from_secs(bounds.head_seconds.into());
        let waiting = Rc::clone(&self.waiting);
        let head = poll_fn(|cx| {
            let polled = self.poll_fields(cx, request, bounds);
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
    fn late(&self) -> H3ExchangeError {
        self.worker().stats.deadlines.increment();
        H3ExchangeError::Stream(H3ErrorCode::H3_REQUEST_CANCELLED)
    }

    /// Reads the field section into `request`.
    fn poll_fields(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut FieldSection,
        limits: &Limits,
    ) -> Poll<Result<(), H3ExchangeError>> {
        loop {
            let mut input = &self.chunk[..];
            let event = self.receiver.receive(&mut input)?;
            if let RequestStreamEvent::Fields(section) = event {
                decode(&self.session.worker, section, request, limits, false)?;
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

    /// Reads the next bytes of the stream into `chunk`. Returns false at the end of the stream.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, H3ExchangeError>> {
        let read = pin!(self.recv.read_chunk(limits::H3_PIPE_BYTES, true)).poll(cx);
        match ready!(read) {
            Ok(Some(chunk)) => {
                self.worker()
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
                    self.check_length(false)?;
                    self.pay()?;
                    return Poll::Ready(Ok(Some(part)));
                }
                // Trailers are validated and discarded.
                RequestStreamEvent::Trailers(section) | RequestStreamEvent::Fields(section) => {
                    let worker = self.session.worker.clone();
                    let mut request = worker.h3.request();
                    let limits = &worker.world().limits;
                    let decoded = decode(&worker, section, &mut request, limits, true);
                    let fault = request.fault();
                    worker.h3.keep(request);
                    decoded?;
                    if fault.is_some() {
                        return Poll::Ready(Err(H3ExchangeError::Stream(
                            H3ErrorCode::H3_MESSAGE_ERROR,
                        )));
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

    /// Compares the length of the content with Content-Length (RFC 9114 §4.1.2).
    fn check_length(&self, is_end: bool) -> Result<(), H3ExchangeError> {
        let is_wrong = |promised| self.seen > promised || (is_end && self.seen < promised);
        match self.promised.is_some_and(is_wrong) {
            true => Err(H3ExchangeError::Stream(H3ErrorCode::H3_MESSAGE_ERROR)),
            false => Ok(()),
        }
    }

    /// Charges frames without effect to the abuse budget.
    fn pay(&mut self) -> Result<(), H3ExchangeError> {
        let frames = self.receiver.take_idle_frames();
        let points = frames * limits::EMPTY_DATA_POINTS;
        Ok(self
            .session
            .charge_abuse(points, "a flood of empty frames")?)
    }

    /// Reads and discards the rest of the content, within the size limit and the minimum rate. Beyond
    /// either limit, `end` sends STOP_SENDING to the client.
    async fn drain(&mut self) -> Result<(), H3ExchangeError> {
        if !self.take_up_answered() {
            return Ok(());
        }
        let worker = self.worker().clone();
        let world = worker.world();
        let bounds = &world.limits;
        let waiting = Rc::clone(&self.waiting);
        let since_ms = worker.clock.millis();
        let rate = u64::from(bounds.body_rate_bytes_per_second.max(1));
        while self.seen <= bounds.body_discard_bytes {
            let due_ms = since_ms + limits::BODY_GRACE_SECONDS * 1_000 + self.seen * 1_000 / rate;
            let left_ms = due_ms.saturating_sub(worker.clock.millis());
            let part = timeout(
                Duration::from_millis(left_ms),
                poll_fn(|cx| self.poll_body(cx)),
            );
            match waiting.unless_shed(part).await {
                Ok(Ok(Ok(Some(_)))) => worker.clock.tick(),
                Ok(Ok(Err(stop @ (H3ExchangeError::Fatal(_) | H3ExchangeError::Stream(_))))) => {
                    return Err(stop);
                }
                // The response is complete, so a failure of the rest of the request is no error.
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    // ---- Response ----

    /// Dispatches the request, and sends a response that needs no wait.
    fn decide(
        &mut self,
        request: &FieldSection,
        world: &World,
        progress: &Progress,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let head = match request.head() {
            Ok(head) => head,
            Err(reject) => return self.refuse_request(request, reject),
        };
        self.promised = match head.body {
            BodyLength::Length(length) => Some(length),
            _ => None,
        };
        // Datagrams do not pass through the poller, so the poller may not know of the latest changes on
        // disk.
        self.worker().poller.check_inotify();
        // Discarded content is read after the response, so that no head stays in memory until the end of
        // the content. Until the response, a handler can still receive the content.
        let body = match self.ended {
            true => RequestBody::Complete,
            false => RequestBody::Pending,
        };
        let facts = DispatchContext {
            may_wait: progress.may_wait(body),
            has_disk_changes: self.worker().poller.has_unread_changes(),
            ..self.session.facts()
        };
        let dispatched = dispatch(world, &head, &facts, self.worker());
        let attempt = Attempt::of(dispatched, world, &head, body, progress);
        self.is_drained = attempt.body == BodyAction::Discard;
        self.prioritise(request);
        self.respond(&head, request, attempt, world, progress)
    }

    /// Sets the order in which QUIC sends streams, from the urgency in the Priority field. A request
    /// without the field has the default urgency.
    fn prioritise(&self, request: &FieldSection) {
        let priority = request.priority().unwrap_or_default();
        let _ = self.send.set_priority(-i32::from(priority.urgency));
    }

    /// Ends a request with an invalid head: a malformed request resets the stream, any other request gets a
    /// response.
    fn refuse_request(
        &mut self,
        request: &FieldSection,
        reject: Reject,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        if !reject.is_malformed() {
            return self.refuse(request, reject);
        }
        let worker = self.worker();
        worker.stats.rejects.increment();
        let line = line_of(worker, request, reject);
        line.log(reject.status, 0, worker, self.session.who);
        Err(H3ExchangeError::Stream(H3ErrorCode::H3_MESSAGE_ERROR))
    }

    /// Sends the refusal of a request without a dispatch.
    fn refuse(
        &mut self,
        request: &FieldSection,
        reject: Reject,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let worker = self.worker().clone();
        worker.stats.rejects.increment();
        let line = line_of(&worker, request, reject);
        self.send_small(SyntheticResponse::refusal(reject), &line)
    }

    fn respond(
        &mut self,
        head: &RequestHead<'_>,
        request: &FieldSection,
        attempt: Attempt<'_>,
        world: &World,
        progress: &Progress,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let worker = self.worker().clone();
        if attempt.is_too_large() {
            worker.stats.rejects.increment();
        }
        let Attempt {
            host, user, step, ..
        } = attempt;
        let line = AccessLogEntry::new(&worker, Some(head), host, user.as_deref());
        let response = match step {
            Step::Wait(wait) => {
                let work = redispatch::wait(wait, &worker.pool, *progress);
                return Ok(H3ExchangeStep::Wait(work));
            }
            Step::Call(handler) => {
                // The handler has a copy of the head, and a script has variables made from the head.
                self.take_up(2 * request.held_bytes() + line.kept_bytes(&worker))?;
                let live = H3Call::begin(self, handler, head, user.clone(), &line, world);
                return Ok(H3ExchangeStep::Call(Box::new(live)));
            }
            Step::Send(response) => response,
        };
        match response {
            ReadyResponse::Stored(stored) => {
                let mut fields = Vec::new();
                if stored.is_from_cache() {
                    worker.stats.cache_hits.increment();
                    stored.push_changing(&mut fields);
                }
                let line = AccessLogEntry {
                    reject: stored.reject(),
                    ..line
                };
                self.send_stored(stored, &fields, &line)
            }
            ReadyResponse::Refuse { reject, page } => {
                let line = AccessLogEntry {
                    reject: Some(reject),
                    ..line
                };
                match page {
                    Some(page) => self.send_stored(page, refusal_fields(reject), &line),
                    None => self.send_small(SyntheticResponse::refusal(reject), &line),
                }
            }
            ReadyResponse::Synthetic(small) => self.send_small(small, &line),
            ReadyResponse::Listing(listing) => self.send_listing(listing, &line),
        }
    }

    /// Sends a stored page.
    fn send_stored(
        &mut self,
        stored: VariantResponse,
        fields: &[u8],
        line: &AccessLogEntry<'_>,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let status = stored.status;
        let length = stored.body_len();
        let mut built = Vec::new();
        let section = stored.section(&mut built);
        let date = self.worker().clock.date_field();
        let date = (!stored.is_dated()).then_some(&date[..]);
        let mut out = self.dated_head(section, fields, secure_fields_of(line.host), date);
        let (content, body) = match stored.whole_memory() {
            _ if length == 0 => (Bytes::new(), None),
            Some(_) => {
                frame::push_data(length, &mut out);
                (Bytes::from_owner(StoredBytes(stored)), None)
            }
            None => (Bytes::new(), Some(BodyReader::stored(stored))),
        };
        self.send([Bytes::from(out), content], body, status, length, line)
    }

    /// Sends a small synthetic response.
    fn send_small(
        &mut self,
        small: SyntheticResponse,
        line: &AccessLogEntry<'_>,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let mut section = Vec::new();
        qpack::push_head(small.status.0, &small.lines(), &mut section);
        let mut out = self.head(&section, b"", secure_fields_of(line.host));
        let is_head = line.head.is_some_and(|it| it.method == Method::Head);
        let content = if is_head { Vec::new() } else { small.body };
        let length = content.len() as u64;
        if length > 0 {
            frame::push_data(length, &mut out);
        }
        self.send(
            [out.into(), content.into()],
            None,
            small.status,
            length,
            line,
        )
    }

    fn send_listing(
        &mut self,
        listing: Box<Listing>,
        line: &AccessLogEntry<'_>,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let (mut built, mut section) = (Vec::new(), Vec::new());
        qpack::push_head(Status::OK.0, listing.head(&mut built), &mut section);
        let out = self.head(&section, b"", secure_fields_of(line.host));
        let body = (!listing.head_only()).then(|| BodyReader::listing(listing));
        self.send([out.into(), Bytes::new()], body, Status::OK, 0, line)
    }

    /// Returns a HEADERS frame with `section`, `fields`, the site's fields for secure connections and the
    /// current Date.
    fn head(&self, section: &[u8], fields: &[u8], secure_fields: Option<&SecureFields>) -> Vec<u8> {
        let date = self.worker().clock.date_field();
        self.dated_head(section, fields, secure_fields, Some(&date))
    }

    /// Returns a HEADERS frame with `section`, `fields`, the site's fields for secure connections and
    /// `date`. `date` is None if `section` has a Date.
    pub(super) fn dated_head(
        &self,
        section: &[u8],
        fields: &[u8],
        secure_fields: Option<&SecureFields>,
        date: Option<&[u8]>,
    ) -> Vec<u8> {
        let secure = secure_fields.map_or(&[][..], |fields| &fields.section);
        let mut out = Vec::with_capacity(section.len() + secure.len() + HEAD_BYTES);
        let at = frame::begin_headers(&mut out);
        out.extend_from_slice(section);
        qpack::push_lines(fields, &mut out);
        out.extend_from_slice(secure);
        let value = date.and_then(|date| date.get(DATE_NAME_BYTES..));
        if let Some(value) = value.and_then(<[u8]>::first_chunk) {
            qpack::push_date(value, &mut out);
        }
        frame::end_headers(&mut out, at);
        out
    }

    /// Passes a response to QUIC. The remainder that QUIC does not accept at once is returned as
    /// `H3ExchangeStep::Send`.
    fn send(
        &mut self,
        chunks: [Bytes; 2],
        body: Option<BodyReader>,
        status: Status,
        length: u64,
        line: &AccessLogEntry<'_>,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let mut outgoing = H3Response {
            chunks,
            written: 0,
            body,
            record: None,
            status,
            sent: length,
            started_us: line.started_us,
        };
        let written = now(outgoing.write(&self.session, &mut self.send));
        let worker = self.worker();
        if matches!(written, Poll::Ready(Ok(()))) && outgoing.body.is_none() {
            let micros = worker.clock.micros() - line.started_us;
            worker.stats.response(status.0, length, micros);
            line.log(status, length, worker, self.session.who);
            return Ok(H3ExchangeStep::Done);
        }
        // The client has not received the bytes accepted by QUIC, so the request can still be refused.
        let body = outgoing
            .body
            .as_ref()
            .map_or(0, |body| limits::H3_FIRST_DATA_BYTES + body.held_bytes());
        self.take_up(line.kept_bytes(self.worker()) + body)?;
        let worker = self.worker();
        if outgoing.body.is_some() {
            outgoing.sent = 0;
        }
        outgoing.record = line.keep(status, worker, self.session.who);
        Ok(H3ExchangeStep::Send(outgoing))
    }

    /// Sends the rest of a response at the client's rate. Logs the response, and counts a complete
    /// response.
    async fn send_rest(&mut self, mut outgoing: H3Response) -> Result<(), H3ExchangeError> {
        let sent = self.send_all(&mut outgoing).await;
        if let Some(record) = &mut outgoing.record {
            if matches!(sent, Err(H3ExchangeError::Shed)) {
                record.rule = Reject::REQUESTS_SHARE_TAKEN.rule;
            }
            record.log(outgoing.sent, self.worker());
        }
        if sent.is_ok() {
            let worker = self.worker();
            let micros = worker.clock.micros().saturating_sub(outgoing.started_us);
            worker
                .stats
                .response(outgoing.status.0, outgoing.sent, micros);
        }
        sent
    }

    async fn send_all(&mut self, outgoing: &mut H3Response) -> Result<(), H3ExchangeError> {
        let seconds = self.worker().world().limits.write_stall_seconds;
        let mut parts = 0u32;
        loop {
            match now(outgoing.write(&self.session, &mut self.send)) {
                Poll::Ready(written) => written?,
                Poll::Pending => self.write_held(outgoing, seconds).await?,
            }
            self.worker().clock.tick();
            let Some(body) = &mut outgoing.body else {
                return Ok(());
            };
            // Each part stays in memory until the client takes the part. The first part is small, and no
            // later part is larger than the bytes already sent.
            let taken = usize::try_from(outgoing.sent).unwrap_or(usize::MAX);
            let bytes_max = taken.clamp(limits::H3_FIRST_DATA_BYTES, limits::H3_DATA_BYTES);
            let mut out = Vec::with_capacity(bytes_max + frame::HEADER_BYTES_MAX);
            let at = frame::begin_data(&mut out);
            let filled = body.fill(&mut out, bytes_max);
            outgoing.sent += frame::end_data(&mut out, at) as u64;
            outgoing.chunks = [out.into(), Bytes::new()];
            match filled {
                BodyFill::Some | BodyFill::Nothing => {}
                BodyFill::Last => outgoing.body = None,
                BodyFill::Broken => {
                    return Err(H3ExchangeError::Stream(H3ErrorCode::H3_INTERNAL_ERROR));
                }
                BodyFill::Disk(read) => {
                    let job = self.worker().pool.run(move || read.run());
                    match job.await {
                        Ok(Ok(bytes)) => body.feed(bytes),
                        _ => return Err(H3ExchangeError::Stream(H3ErrorCode::H3_INTERNAL_ERROR)),
                    }
                }
            }
            parts += 1;
            if parts.is_multiple_of(PARTS_BETWEEN_LOOKS) {
                self.session.widen();
            }
        }
    }
}

impl H3Exchange {
    /// Passes the chunks to QUIC while the client's flow control or congestion blocks the stream. Ends with
    /// an error if the client takes fewer than `RESPONSE_PROGRESS_BYTES_MIN` bytes within the timeout.
    async fn write_held(
        &mut self,
        outgoing: &mut H3Response,
        seconds: u32,
    ) -> Result<(), H3ExchangeError> {
        let waiting = Rc::clone(&self.waiting);
        let patience = Duration::from_secs(seconds.into());
        loop {
            self.stalled_since(self.worker().clock.millis());
            let before = outgoing.written;
            let written = timeout(patience, outgoing.write(&self.session, &mut self.send));
            let written = waiting.unless_shed(written).await;
            self.stalled_since(u64::MAX);
            self.worker().clock.tick();
            match written? {
                Ok(written) => return written,
                Err(_) if outgoing.written - before >= limits::RESPONSE_PROGRESS_BYTES_MIN => {}
                Err(_) => return Err(self.late()),
            }
        }
    }
}

impl H3Response {
    /// Passes the chunks to QUIC, and returns when QUIC has accepted all of them.
    async fn write(
        &mut self,
        session: &H3Session,
        send: &mut SendStream,
    ) -> Result<(), H3ExchangeError> {
        write_chunks(&mut self.chunks, &mut self.written, session, send).await
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
        if chunks.iter().any(|chunk| !chunk.is_empty()) {
            session.pay_for_part(written)?;
        }
    }
    Ok(())
}

/// Content of a stored page, sent without a copy.
struct StoredBytes(VariantResponse);

impl AsRef<[u8]> for StoredBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.whole_memory().unwrap_or_default()
    }
}

/// Decodes a field section into `request`.
fn decode(
    worker: &Worker,
    section: &[u8],
    request: &mut FieldSection,
    limits: &Limits,
    is_trailer: bool,
) -> Result<(), H3ConnectionError> {
    request.begin(Version::Http3, limits, false, is_trailer);
    let mut strings = worker.h3.strings.borrow_mut();
    qpack::decode(section, &mut strings, |name, value| {
        Ok(request.field(name, value)?)
    })?;
    request.end();
    Ok(())
}

fn line_of<'r>(worker: &Worker, request: &'r FieldSection, reject: Reject) -> AccessLogEntry<'r> {
    AccessLogEntry {
        first: request.line(),
        reject: Some(reject),
        ..AccessLogEntry::new(worker, None, None, None)
    }
}

/// Length of `Date: `.
const DATE_NAME_BYTES: usize = 6;
/// Estimated size of a HEADERS frame besides the section and the secure fields, plus the header of the DATA
/// frame.
const HEAD_BYTES: usize = 64;
/// Maximum wait for the acknowledgement of a response before the end of the connection.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Number of content parts between two adjustments of the send window.
const PARTS_BETWEEN_LOOKS: u32 = 2;

fn secure_fields_of(host: Option<&Host>) -> Option<&SecureFields> {
    host.map(|host| &*host.secure_fields)
}
