//! One request on its stream, from its HEADERS to the end of its response.
//!
//! What can be answered at once is answered in the first poll, with no task and nothing kept; what
//! has to wait (a file, a password, a handler, the peer) is awaited in line.

use super::super::body::{BodyFill, BodyReader};
use super::super::dispatch::{DispatchContext, dispatch};
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

/// One request.
pub(super) struct H3Exchange {
    pub(super) session: Rc<H3Session>,
    pub(super) send: SendStream,
    recv: RecvStream,
    receiver: RequestStreamReceiver,
    /// What was read and not yet looked at.
    chunk: Bytes,
    /// A part of the body that was looked at before its time.
    ahead: Option<Bytes>,
    /// All of the request has come.
    pub(super) ended: bool,
    /// What is promised of the body, and how much of it has come.
    promised: Option<u64>,
    pub(super) seen: u64,
    /// The stream has its end, one way or another.
    done: bool,
    /// The rest of the request's body is read and thrown away behind the response.
    is_drained: bool,
    /// What it holds in the ledger of requests under way, once it has to wait.
    held: Option<RequestReservation>,
    /// How the connection knows it, from then on.
    waiting: Rc<PendingRequest>,
}

/// Why a request comes to no whole response.
pub(super) enum H3ExchangeError {
    /// The connection can't go on.
    Fatal(H3ConnectionError),
    /// This stream can't.
    Stream(H3ErrorCode),
    /// The peer has left it.
    Gone,
    /// There is no room for it: the client may send it again, or use another connection.
    Refused,
    /// Its place was needed for another client.
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

/// What a look at a request came to.
enum H3ExchangeStep {
    /// The response is with QUIC.
    Done,
    /// Some of it isn't yet.
    Send(H3Response),
    /// A wait, then another dispatch.
    Wait(LocalBoxFuture<Progress>),
    /// A handler is at work.
    Call(Box<H3Call>),
}

/// A response on its way.
pub(super) struct H3Response {
    chunks: [Bytes; 2],
    /// The number of bytes that QUIC accepted.
    written: u64,
    /// What follows them.
    body: Option<BodyReader>,
    record: Option<Box<OwnedAccessLogEntry>>,
    status: Status,
    /// Bytes of body so far.
    sent: u64,
    started_us: u64,
}

impl Drop for H3Exchange {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.session.worker.stats.panics.increment();
        }
        if !self.done {
            // Dropped as it is, a stream would look as if it had come to its end.
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

    /// Notes since when the client has held the response, for the connection too.
    pub(super) fn stalled_since(&self, at_ms: u64) {
        if self.waiting.stalled_ms() != at_ms {
            self.waiting.stalled_since(at_ms);
            self.session.note_stalls();
        }
    }

    /// The request has to wait: from now on it is in the ledger, with `head_bytes` of its head in
    /// memory.
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

    /// The response is whole and the rest of the body is still to come: false where there is no room
    /// to wait for it.
    fn take_up_answered(&mut self) -> bool {
        if let Some(held) = &mut self.held {
            // It becomes less, which always fits.
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

    /// Not now: it may be asked again elsewhere.
    pub(super) fn reject(mut self) {
        self.end(Err(H3ExchangeError::Refused));
    }

    /// Answers it.
    pub(super) async fn run(mut self) {
        let mut answered = self.answer().await;
        if answered.is_ok() && self.is_drained && !self.ended {
            // The client has the whole response while the rest of its body comes.
            let _ = self.send.finish();
            answered = self.drain().await;
        }
        let is_whole = answered.is_ok();
        self.end(answered);
        if is_whole && self.session.is_widened() {
            self.until_acknowledged().await;
        } else if is_whole && self.session.is_leaving() {
            // The end of the connection must not overtake that of the response.
            let _ = timeout(LAST_BYTES, self.send.stopped()).await;
        }
    }

    /// Waits until the client has acknowledged the whole response. Until then QUIC holds the bytes, so
    /// the connection's window must stay in the ledger; a client that acknowledges nothing is late as
    /// one that takes nothing.
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
                // The client doesn't want the rest, which QUIC would keep nevertheless.
                Ok(Ok(Some(code))) => return drop(self.send.reset(code)),
                Err(_) if self.session.acknowledgements() == before => {
                    return self.session.end_unacknowledged();
                }
                Err(_) => {}
            }
        }
    }

    /// Ends the stream.
    fn end(&mut self, answered: Result<(), H3ExchangeError>) {
        self.done = true;
        let code = match answered {
            Ok(()) => {
                let _ = self.send.finish();
                if !self.ended {
                    // The rest of the request isn't wanted (RFC 9114 §4.1).
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
        // Nothing of the head is needed while its response is on its way.
        self.worker().h3.keep(request);
        match next? {
            H3ExchangeStep::Send(outgoing) => self.send_rest(outgoing).await,
            H3ExchangeStep::Call(live) => self.live(live).await,
            _ => Ok(()),
        }
    }

    /// Waits for all that has to be there before the response begins.
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

    // ---- What comes ----

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

    /// The peer took too long.
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
        // Mostly there is nothing more, and that is known by now.
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

    /// Reads on; false at the end of the stream.
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

    /// The stream has ended where no request ends.
    fn cut(&self) -> H3ExchangeError {
        match self.receiver.end() {
            Err(RequestStreamEndError::Fatal(fatal)) => H3ExchangeError::Fatal(fatal),
            Err(RequestStreamEndError::Stream(code)) => H3ExchangeError::Stream(code),
            Ok(()) => H3ExchangeError::Stream(H3ErrorCode::H3_REQUEST_INCOMPLETE),
        }
    }

    /// The next part of the body; None behind the last.
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
                // Nobody reads them, but they must be right.
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

    /// RFC 9114 §4.1.2: a body is as long as Content-Length promised.
    fn check_length(&self, is_end: bool) -> Result<(), H3ExchangeError> {
        let is_wrong = |promised| self.seen > promised || (is_end && self.seen < promised);
        match self.promised.is_some_and(is_wrong) {
            true => Err(H3ExchangeError::Stream(H3ErrorCode::H3_MESSAGE_ERROR)),
            false => Ok(()),
        }
    }

    /// Frames that serve nobody cost patience.
    fn pay(&mut self) -> Result<(), H3ExchangeError> {
        let frames = self.receiver.take_idle_frames();
        let points = frames * limits::EMPTY_DATA_POINTS;
        Ok(self
            .session
            .charge_abuse(points, "a flood of empty frames")?)
    }

    /// Reads the rest of the body and throws it away, as long as it isn't too long and comes at the
    /// least rate. Then the client is told that the rest isn't wanted.
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
                // Whatever became of the rest, the response is whole.
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    // ---- What is answered ----

    /// Asks the World, and sends at once what needs nothing more.
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
        // Discarded content is read behind the response, so that no head is kept until the end of the
        // content. Until then a handler can still have the content.
        let body = match self.ended {
            true => RequestBody::Complete,
            false => RequestBody::Pending,
        };
        let facts = DispatchContext {
            may_wait: progress.may_wait(body),
            ..self.session.facts()
        };
        let dispatched = dispatch(world, &head, &facts);
        let attempt = Attempt::of(dispatched, world, &head, body, progress);
        self.is_drained = attempt.body == BodyAction::Discard;
        self.prioritise(request);
        self.respond(&head, request, attempt, world, progress)
    }

    /// What the Priority field says goes for the order in which QUIC sends what it holds. Who says
    /// nothing is not ahead of who says that it is urgent.
    fn prioritise(&self, request: &FieldSection) {
        let priority = request.priority().unwrap_or_default();
        let _ = self.send.set_priority(-i32::from(priority.urgency));
    }

    /// A request that isn't one, or none that we answer.
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

    /// No, before anybody was asked.
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

    /// A stored page.
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

    /// A small response made here.
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

    /// HEADERS: `section`, `fields` and what every response has.
    fn head(&self, section: &[u8], fields: &[u8], secure_fields: Option<&SecureFields>) -> Vec<u8> {
        let date = self.worker().clock.date_field();
        self.dated_head(section, fields, secure_fields, Some(&date))
    }

    /// The same with this Date, or for a section that has its own.
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

    /// Hands a response to QUIC; what it doesn't take now is sent later.
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
        // What QUIC has taken of it isn't with the client yet: it can still be refused.
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

    /// Sends the rest of a response, as the peer takes it.
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
            // A part waits in memory until the client takes it: at first a small one, and then none
            // that is larger than what the client has taken.
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
    /// Hands the chunks to QUIC while the client holds them back.
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
    /// Hands the chunks to QUIC; ready when it has them all.
    async fn write(
        &mut self,
        session: &H3Session,
        send: &mut SendStream,
    ) -> Result<(), H3ExchangeError> {
        write_chunks(&mut self.chunks, &mut self.written, session, send).await
    }
}

/// Hands chunks to QUIC and adds the number of accepted bytes to `total`. Each part that the client's
/// windows cut off is charged to the abuse budget, because a client may open its windows byte by byte.
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

/// The content of a stored page, sent from where it lies.
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

/// `Date: `
const DATE_NAME_BYTES: usize = 6;
/// What stands in HEADERS beside a stored page's own fields, and the header of its DATA.
const HEAD_BYTES: usize = 64;
/// The last bytes of a response have this long to arrive before the connection ends.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// So many parts of a body go between two looks at how fast the peer takes them.
const PARTS_BETWEEN_LOOKS: u32 = 2;

fn secure_fields_of(host: Option<&Host>) -> Option<&SecureFields> {
    host.map(|host| &*host.secure_fields)
}
