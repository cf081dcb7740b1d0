//! Response to an HTTP/3 request: dispatches the request, and sends the response.
//!
//! A response that needs no wait is sent in the first poll, without a task and without stored state. Every
//! wait (for a file, a password check, a handler or the peer) is an `await` of the same future.

use crate::handler::LocalBoxFuture;
use crate::ledger::active_requests::RequestPhase;
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::attempt::{Attempt, Progress, RequestContent};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::forwarding::client_of;
use crate::serve::h3::call::H3Call;
use crate::serve::h3::exchange::{H3Exchange, H3ExchangeError, write_chunks};
use crate::serve::h3::session::{H3Session, now};
use crate::serve::redispatch;
use crate::serve::responder::Responder;
use crate::serve::response_body::{BodyFill, BodyReader};
use crate::serve::response_record::ResponseRecord;
use crate::serve::step::{ReadyResponse, Step};
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{Listing, VariantResponse};
use crate::world::World;
use bytes::Bytes;
use quinn::SendStream;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::timeout;
use wire::field_section::FieldSection;
use wire::h1::body_decoder::BodyLength;
use wire::h3::{H3ErrorCode, frame, qpack};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead, Version};
use wire::status::Status;
/// Result of a dispatch.
enum H3ExchangeStep {
    /// QUIC has accepted the whole response.
    Done,
    /// QUIC has not yet accepted the whole response.
    Send(Box<H3Response>),
    /// A wait, then another dispatch.
    Wait(LocalBoxFuture<Progress>),
    /// A call of a handler.
    Call(Box<H3Call>),
}

/// A response that QUIC has not yet accepted completely.
struct H3Response {
    chunks: [Bytes; 2],
    /// The number of bytes that QUIC accepted.
    written: u64,
    /// Source of the content after the chunks.
    body: Option<BodyReader>,
    record: ResponseRecord,
    /// Number of content bytes so far.
    sent: u64,
    started_us: u64,
}

impl H3Exchange {
    /// Reads the request and sends the response.
    pub(super) async fn run(mut self) {
        let mut answered = self.answer().await;
        if answered.is_ok() && !self.ended && !self.is_tunnel() {
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

    async fn answer(&mut self) -> Result<(), H3ExchangeError> {
        let mut request = self.context().h3.request();
        let next = self.next(&mut request).await;
        // The response needs no memory of the request's head.
        self.context().h3.keep(request);
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
        let mut world = self.context().world();
        self.read_fields(request, &world.limits).await?;
        world = self.context().world();
        let mut progress = Progress::default();
        loop {
            let next = self.decide(request, &world, progress)?;
            let H3ExchangeStep::Wait(work) = next else {
                return Ok(next);
            };
            self.take_up(request.held_bytes())?;
            progress = self.waiting.unless_shed(work).await?;
            self.context().clock.tick();
            world = self.context().world();
        }
    }

    /// Dispatches the request, and sends a response that needs no wait.
    fn decide(
        &mut self,
        request: &FieldSection,
        world: &World,
        mut progress: Progress,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let head = match request.head() {
            Ok(head) => head,
            Err(reject) => return self.refuse_request(request, reject),
        };
        self.client = client_of(world, Audience::Public, self.session.who.peer, &head);
        self.promised = match head.body {
            BodyLength::Length(length) => Some(length),
            _ => None,
        };
        // Datagrams do not pass through the poller, so the poller may not know of the latest changes on
        // disk.
        self.context().poller.check_inotify();
        // Discarded content is read after the response, so that no head stays in memory until the end of
        // the content. Until the response, a handler can still receive the content.
        let body = if self.ended {
            RequestContent::None
        } else {
            RequestContent::Pending
        };
        let client = self.session.dispatch_context();
        let attempt = Attempt::dispatch(world, &head, client, self.context(), body, &mut progress);
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
        let context = self.context();
        let line = line_of(context, request, reject);
        line.log(reject.status, 0, context, self.session.who);
        Err(H3ExchangeError::Stream(H3ErrorCode::H3_MESSAGE_ERROR))
    }

    /// Sends the refusal of a request without a dispatch.
    fn refuse(
        &mut self,
        request: &FieldSection,
        reject: Reject,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let context = self.context().clone();
        let line = line_of(&context, request, reject);
        let small = SyntheticResponse::refusal(reject, Audience::Public);
        self.responder(line).send_small(small)
    }

    fn respond(
        &mut self,
        head: &RequestHead<'_>,
        request: &FieldSection,
        attempt: Attempt<'_>,
        world: &World,
        progress: Progress,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let context = self.context().clone();
        let Attempt {
            step,
            request: matched,
            ..
        } = attempt;
        let line = AccessLogEntry::new(&context, head, &matched);
        let response = match step {
            Step::Wait(wait) => {
                let work = redispatch::wait(wait, &context, progress);
                return Ok(H3ExchangeStep::Wait(work));
            }
            Step::Call(handler) => {
                // The handler has a copy of the head, and a script has variables made from the head.
                match context.admit_call(self.client) {
                    Ok(memory) => {
                        self.take_up(2 * request.held_bytes() + line.kept_bytes(&context))?;
                        let handler = (handler, memory);
                        let live = H3Call::begin(self, handler, head, &line, world);
                        return Ok(H3ExchangeStep::Call(Box::new(live)));
                    }
                    Err(reject) => ReadyResponse::refusal(reject),
                }
            }
            Step::Send(response) => response,
        };
        self.responder(line).send(response)
    }

    fn responder<'s, 'l>(&'s mut self, line: AccessLogEntry<'l>) -> H3Responder<'s, 'l> {
        H3Responder {
            exchange: self,
            line,
        }
    }

    /// Sends the rest of a response at the client's rate. Logs the response, and counts a complete
    /// response.
    async fn send_rest(&mut self, mut outgoing: Box<H3Response>) -> Result<(), H3ExchangeError> {
        let sent = self.send_all(&mut outgoing).await;
        let context = self.context();
        if matches!(sent, Err(H3ExchangeError::Shed)) {
            outgoing.record.rule = Reject::REQUESTS_SHARE_TAKEN.rule;
        }
        outgoing.record.log(outgoing.sent, context);
        if sent.is_ok() {
            let micros = context.clock.micros().saturating_sub(outgoing.started_us);
            outgoing.record.count(outgoing.sent, Some(micros), context);
        }
        sent
    }

    async fn send_all(&mut self, outgoing: &mut H3Response) -> Result<(), H3ExchangeError> {
        let seconds = self.context().world().limits.write_stall_seconds;
        let mut parts = 0u32;
        loop {
            match now(outgoing.write(&self.session, &mut self.send)) {
                Poll::Ready(written) => written?,
                Poll::Pending => self.write_held(outgoing, seconds).await?,
            }
            self.context().clock.tick();
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
                    let job = self.context().pool.run(move || read.run());
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
            self.stalled_since(self.context().clock.millis());
            let before = outgoing.written;
            let written = timeout(patience, outgoing.write(&self.session, &mut self.send));
            let written = waiting.unless_shed(written).await;
            self.stalled_since(u64::MAX);
            self.context().clock.tick();
            match written? {
                Ok(written) => return written,
                Err(_) if outgoing.written - before >= limits::RESPONSE_PROGRESS_BYTES_MIN => {}
                Err(_) => return Err(self.late()),
            }
        }
    }
}

/// A request at the time of its response.
struct H3Responder<'s, 'l> {
    exchange: &'s mut H3Exchange,
    line: AccessLogEntry<'l>,
}

impl<'l> Responder<'l> for H3Responder<'_, 'l> {
    type Sent = Result<H3ExchangeStep, H3ExchangeError>;

    fn context(&self) -> &WorkerContext {
        self.exchange.context()
    }

    fn line(&mut self) -> &mut AccessLogEntry<'l> {
        &mut self.line
    }

    fn audience(&self) -> Audience {
        Audience::Public
    }

    fn end_use(&mut self, reject: Reject) {
        if reject.ends_connection() {
            self.exchange.session.end_use();
        }
    }

    fn send_stored(self, page: VariantResponse, fields: Vec<u8>) -> Self::Sent {
        let status = page.status;
        let length = page.body_len();
        let mut built = Vec::new();
        let mut out = self.head(page.section(&mut built), &fields, !page.is_dated());
        self.context().lead.replace(fields);
        let (content, body) = match page.whole_memory() {
            _ if length == 0 => (Bytes::new(), None),
            Some(_) => {
                frame::push_data(length, &mut out);
                (Bytes::from_owner(StoredBytes(page)), None)
            }
            None => (Bytes::new(), Some(BodyReader::stored(page))),
        };
        self.send_parts([Bytes::from(out), content], body, status, length)
    }

    fn send_small(self, small: SyntheticResponse) -> Self::Sent {
        let mut section = Vec::new();
        qpack::push_head(small.status.0, &small.lines(), &mut section);
        let mut out = self.head(&section, b"", true);
        let is_head = self.line.head.is_some_and(|it| it.method == Method::Head);
        let content = if is_head { Vec::new() } else { small.body };
        let length = content.len() as u64;
        if length > 0 {
            frame::push_data(length, &mut out);
        }
        self.send_parts([out.into(), content.into()], None, small.status, length)
    }

    fn send_listing(self, listing: Box<Listing>) -> Self::Sent {
        let (mut built, mut section) = (Vec::new(), Vec::new());
        qpack::push_head(Status::OK.0, listing.head(&mut built), &mut section);
        let out = self.head(&section, b"", true);
        let body = (!listing.head_only()).then(|| BodyReader::listing(listing));
        self.send_parts([out.into(), Bytes::new()], body, Status::OK, 0)
    }
}

impl H3Responder<'_, '_> {
    /// Returns a HEADERS frame with `section`, `fields`, the site's fields for secure connections and, if `section` has
    /// no Date, the current Date.
    fn head(&self, section: &[u8], fields: &[u8], needs_date: bool) -> Vec<u8> {
        let date = self.context().clock.date_field();
        let date = needs_date.then_some(&date[..]);
        let secure_fields = self.line.secure_fields().map(|it| &**it);
        self.exchange.head(section, fields, secure_fields, date)
    }

    /// Passes a response to QUIC. The remainder that QUIC does not accept at once is returned as
    /// `H3ExchangeStep::Send`.
    fn send_parts(
        self,
        chunks: [Bytes; 2],
        body: Option<BodyReader>,
        status: Status,
        length: u64,
    ) -> Result<H3ExchangeStep, H3ExchangeError> {
        let H3Responder { exchange, line } = self;
        let mut outgoing = H3Response {
            chunks,
            written: 0,
            body,
            record: ResponseRecord::default(),
            sent: length,
            started_us: line.started_us,
        };
        let written = now(outgoing.write(&exchange.session, &mut exchange.send));
        let context = exchange.context();
        if matches!(written, Poll::Ready(Ok(()))) && outgoing.body.is_none() {
            line.finish(status, length, context, exchange.session.who);
            return Ok(H3ExchangeStep::Done);
        }
        // The client has not received the bytes accepted by QUIC, so the request can still be refused.
        let body = outgoing
            .body
            .as_ref()
            .map_or(0, |body| limits::H3_FIRST_DATA_BYTES + body.held_bytes());
        exchange.take_up(line.kept_bytes(exchange.context()) + body)?;
        let context = exchange.context();
        if outgoing.body.is_some() {
            outgoing.sent = 0;
        }
        outgoing.record = line.keep(
            status,
            RequestPhase::Response,
            context,
            exchange.session.who,
        );
        Ok(H3ExchangeStep::Send(Box::new(outgoing)))
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

/// Content of a stored page, sent without a copy.
struct StoredBytes(VariantResponse);

impl AsRef<[u8]> for StoredBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.whole_memory().unwrap_or_default()
    }
}

fn line_of<'r>(
    context: &WorkerContext,
    request: &'r FieldSection,
    reject: Reject,
) -> AccessLogEntry<'r> {
    AccessLogEntry::unparsed(context, Version::Http3, request.line(), reject)
}

/// Maximum wait for the acknowledgement of a response before the end of the connection.
const LAST_BYTES: Duration = Duration::from_secs(5);
/// Number of content parts between two adjustments of the send window.
const PARTS_BETWEEN_LOOKS: u32 = 2;
