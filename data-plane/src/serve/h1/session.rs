//! An HTTP/1.1 connection from accept to close.
//!
//! Nearly every request is read, answered and written inside one poll without allocated state: the header
//! section borrows the worker's scratch buffer, and the response leaves by one vectored write. Only a
//! request that must wait becomes a [`ConnectionStep`] with the state of the wait. An idle connection keeps
//! its socket, its TLS state and the bytes of an unfinished request.

use crate::handler::LocalBoxFuture;
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::attempt::{Attempt, ContentAction, Progress, RequestContent};
use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h1::call::H1Call;
use crate::serve::h1::call_driver;
use crate::serve::h1::unsent_response::UnsentResponse;
use crate::serve::h2;
use crate::serve::rare_events;
use crate::serve::request_ledger::RequestReservation;
use crate::tls::{ACME_TLS_ALPN, Tls};
use crate::world::World;
use rustls::HandshakeKind;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::yield_now;
use wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use wire::h1::request;
use wire::h1::request::ParsedHead;
use wire::h2::frame::PREFACE;
use wire::reject::Reject;
use wire::request_head::{RequestHead, Version};

/// A connection and its state between two reads.
pub(in crate::serve) struct H1Session {
    pub(super) connection: Connection,
    /// Reservation for unprocessed bytes in the ledger of requests, if the received bytes are longer than
    /// [`limits::UNFINISHED_HEAD_BYTES_FREE`].
    unfinished: Option<Box<RequestReservation>>,
    /// True if the connection ends after the next response, because the ledger had no room for pipelined
    /// bytes.
    pub(super) closes: bool,
    /// Number of bytes of `rest` already searched for the end of the header section.
    scanned: usize,
    /// Content that is still arriving and is discarded. `rest` begins with the header section of its
    /// request.
    discarded_body: Option<Box<DiscardedBody>>,
    /// True if the content of the current request was read to its end and discarded.
    pub(super) body_read: bool,
    /// The certificates and demands at the start of the handshake; None after the handshake. A reload
    /// during the handshake may demand a client certificate for which the client was not asked, so the
    /// identity comes from `offered` and not from the current World.
    offered: Option<Arc<Tls>>,
    /// True until the first bytes of the connection determine the version of HTTP.
    is_fresh: bool,
    /// True if the client and the server agreed on HTTP/2 by ALPN.
    is_h2: bool,
    /// Waits of the current request.
    pub(super) progress: Progress,
}

/// Content that is read and discarded.
struct DiscardedBody {
    head_bytes: usize,
    decoder: BodyDecoder,
    seen: u64,
    done: bool,
    /// True if the content is longer than `body_discard_bytes`. The request is answered without the rest of the
    /// content, and the connection ends after the response.
    is_too_long: bool,
}

/// Progress in discarding content.
enum DiscardProgress {
    /// The content ended before the given offset.
    Done(usize),
    /// The content is incomplete; the bytes from the given offset on wait for the next read.
    More(usize),
}

/// Next step of a connection that cannot finish within the current poll.
pub(in crate::serve) enum ConnectionStep {
    /// Send the remaining bytes of a response.
    Send(Box<UnsentResponse>),
    /// Wait, then dispatch the request again.
    Redispatch(LocalBoxFuture<Progress>),
    /// A question to another server, then another dispatch. The question ends with the client.
    Ask(LocalBoxFuture<Progress>),
    /// Run a handler call.
    Call(Box<H1Call>),
    /// Continue as HTTP/2. `rest` holds all bytes received.
    Http2,
    /// Yield to other connections. `rest` holds the unread requests.
    Yield,
    /// End the connection.
    End(AfterResponse),
}

/// Outcome of one look at the read buffer.
pub(super) enum RequestOutcome {
    /// A request was answered; its length in bytes.
    Took(usize),
    /// More bytes are needed.
    More,
    /// The request waits for more content or for `next`, and is then looked at again. The first `keep`
    /// bytes (the header section) and the bytes from offset `from` on are kept. With `has_content`, the
    /// bytes from `from` on are content of the request.
    Waiting {
        keep: usize,
        from: usize,
        has_content: bool,
        next: Option<ConnectionStep>,
    },
    /// The given number of bytes is consumed; the step follows.
    Then(usize, ConnectionStep),
}

/// Number of copies of a header section in a handler call: the handler's request, the script's variables,
/// and the access log.
const HEAD_COPIES: usize = 3;

impl H1Session {
    /// Creates the session of a newly accepted connection.
    pub(in crate::serve) fn new(connection: Connection, offered: Option<Arc<Tls>>) -> H1Session {
        H1Session {
            connection,
            offered,
            unfinished: None,
            closes: false,
            scanned: 0,
            discarded_body: None,
            body_read: false,
            is_fresh: true,
            is_h2: false,
            progress: Progress::default(),
        }
    }

    /// Returns the row of the connection in the worker's table.
    pub(in crate::serve) fn slot(&self) -> usize {
        self.connection.slot
    }

    /// Prefetches the state of the stream into the processor's cache.
    pub(in crate::serve) fn prefetch(&self) {
        self.connection.stream.prefetch();
    }

    /// Drops the waker of the socket, because no task waits any more.
    pub(in crate::serve) fn forget_waker(&self) {
        self.connection.stream.socket.forget_waker();
    }

    /// Releases memory that a silent connection does not need. Returns true if memory was released.
    pub(in crate::serve) fn release_memory(&mut self) -> bool {
        self.connection.stream.settle()
    }

    /// Closes a parked connection.
    pub(in crate::serve) fn close(&mut self) {
        self.connection.close();
    }

    /// Handles a readable socket: answers the requests that can be answered at once. Pending if the session
    /// waits for readable bytes.
    pub(in crate::serve) fn answer_ready(&mut self) -> Poll<ConnectionStep> {
        self.poll_requests(&mut Context::from_waker(Waker::noop()), false)
    }

    /// Runs `next` and all following steps. Returns the session once the session only waits for readable
    /// bytes, or None after the end of the connection.
    pub(in crate::serve) async fn run(
        mut self: Box<Self>,
        mut next: ConnectionStep,
    ) -> Option<Box<H1Session>> {
        loop {
            let connection = &mut self.connection;
            let responds = matches!(next, ConnectionStep::Send(_) | ConnectionStep::Call(_));
            let after = match next {
                ConnectionStep::Send(sending) => Box::pin(sending.send(connection)).await,
                ConnectionStep::Redispatch(wait) => {
                    self.progress = wait.await;
                    AfterResponse::Keep
                }
                ConnectionStep::Ask(wait) => match connection.unless_gone(wait).await {
                    Some(progress) => {
                        self.progress = progress;
                        AfterResponse::Keep
                    }
                    None => AfterResponse::Close,
                },
                ConnectionStep::Call(call) => Box::pin(call_driver::run(connection, call)).await,
                ConnectionStep::Http2 => Box::pin(h2::session::run(connection)).await,
                ConnectionStep::Yield => {
                    yield_now().await;
                    AfterResponse::Keep
                }
                ConnectionStep::End(after) => after,
            };
            let has_rest = !self.connection.rest.is_empty();
            match after {
                // Bytes were dropped behind the answered request, so the bytes in `rest` may begin anywhere
                // in a request.
                AfterResponse::Keep if self.closes && (responds || !has_rest) => break,
                // The next look at `rest` sets the phase.
                AfterResponse::Keep if has_rest => {}
                AfterResponse::Keep => self.connection.phase(ConnectionPhase::Idle),
                AfterResponse::Close => break,
                AfterResponse::Linger => {
                    self.unfinished = None;
                    Box::pin(self.connection.linger()).await;
                    break;
                }
                AfterResponse::Reset => {
                    self.connection.reset();
                    return None;
                }
            }
            // Requests in `rest` are answered before the next read.
            match poll_fn(|cx| Poll::Ready(self.poll_requests(cx, true))).await {
                Poll::Ready(then) => next = then,
                Poll::Pending => return Some(self),
            }
        }
        self.close();
        None
    }

    /// Reads and answers requests until a step must wait.
    fn poll_requests(&mut self, cx: &mut Context<'_>, mut again: bool) -> Poll<ConnectionStep> {
        let context = self.connection.context.clone();
        let mut scratch = context.scratch.borrow_mut();
        let mut requests_left = limits::TURN_REQUESTS_MAX;
        // The first request after a read arrived no later than the events that the poller returned, and
        // the poller has handled the inotify events among them. Only later requests need another check.
        let mut is_inotify_current = !again;
        loop {
            let mut filled = self.connection.rest.len();
            scratch[..filled].copy_from_slice(&self.connection.rest);
            if !again || filled == 0 {
                let read = self.poll_read(cx, &mut scratch[filled..]);
                if read.is_pending()
                    && self.connection.rest.is_empty()
                    && self.connection.identity.is_some()
                    && self.connection.stream.is_inside_record()
                {
                    // The buffers of an incomplete TLS record get the deadline of an incomplete header
                    // section.
                    context.phase(self.connection.slot, ConnectionPhase::Head);
                }
                match ready!(read) {
                    Ok(0) => return Poll::Ready(self.ended(cx)),
                    Err(error) => {
                        if self.connection.stream.tls.is_some()
                            && self.connection.identity.is_none()
                        {
                            context.stats.handshakes_failed.increment();
                            let offered = self.offered.as_deref();
                            rare_events::log_handshake(
                                &context,
                                self.connection.peer,
                                self.connection.audience().own_listener(),
                                offered,
                                &error,
                            );
                        }
                        // A TLS alert was sent, and a reset would overtake the alert: the client finishes
                        // the handshake before the server and may have begun to send requests.
                        let after = match error.kind() {
                            io::ErrorKind::InvalidData => AfterResponse::Linger,
                            _ => AfterResponse::Close,
                        };
                        return Poll::Ready(ConnectionStep::End(after));
                    }
                    Ok(read) => filled += read,
                }
                context
                    .stats
                    .bytes_received
                    .add((filled - self.connection.rest.len()) as u64);
            }
            again = false;
            context.clock.tick();
            if self.is_fresh {
                match self.version(&scratch[..filled]) {
                    Some(Version::Http2) => {
                        self.connection.rest = scratch[..filled].to_vec();
                        return Poll::Ready(ConnectionStep::Http2);
                    }
                    Some(_) => self.is_fresh = false,
                    None => {}
                }
            }
            if let Some(next) = self.consume(
                &scratch[..filled],
                &mut requests_left,
                &mut is_inotify_current,
                cx,
            ) {
                return Poll::Ready(next);
            }
        }
    }

    /// Returns the version of HTTP: under TLS by ALPN, otherwise, if h2c is enabled, by the connection
    /// preface of HTTP/2 (RFC 9113 §3.3). None while the bytes could begin either HTTP/2 or an HTTP/1.1
    /// request.
    fn version(&mut self, bytes: &[u8]) -> Option<Version> {
        if self.connection.identity.is_some() {
            return Some(if self.is_h2 {
                Version::Http2
            } else {
                Version::Http11
            });
        }
        let known = bytes.len().min(PREFACE.len());
        if !self.connection.context.world().h2c || bytes[..known] != PREFACE[..known] {
            return Some(Version::Http11);
        }
        (known == PREFACE.len() || known > H1_LINE_BYTES).then_some(Version::Http2)
    }

    /// Reads plaintext, after the TLS handshake if the connection uses TLS. Returns 0 at the end of the
    /// input.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.connection.stream.tls.is_some()
            && self.connection.identity.is_none()
            && (!ready!(self.connection.stream.poll_handshake(cx))? || self.finish_handshake())
        {
            return Poll::Ready(Ok(0));
        }
        self.connection.stream.poll_fill(cx, into)
    }

    /// Records the certificate that a finished handshake used. Returns true if the connection ends after
    /// the handshake, because the handshake served only to validate a name (RFC 8737 §3).
    fn finish_handshake(&mut self) -> bool {
        let (Some(connection), Some(tls)) = (self.connection.stream.tls_mut(), self.offered.take())
        else {
            return true;
        };
        let protocol = connection.alpn_protocol();
        let validated = protocol == Some(ACME_TLS_ALPN);
        self.is_h2 = protocol == Some(b"h2");
        self.connection.identity = Some(tls.identity(connection.server_name()));
        if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
            self.connection.context.stats.handshakes_resumed.increment();
        } else {
            self.connection.context.stats.handshakes_full.increment();
        }
        // The first request may have arrived together with the end of the handshake.
        self.connection.context.poller.check_inotify();
        self.connection.phase(ConnectionPhase::Idle);
        validated
    }

    /// Returns the last step after the client closed its side or a deadline passed.
    fn ended(&mut self, cx: &mut Context<'_>) -> ConnectionStep {
        let reject = match self.connection.context.expired(self.connection.slot) {
            Some(ConnectionPhase::Head) if !self.connection.rest.is_empty() => Reject::HEAD_SLOW,
            Some(ConnectionPhase::Body) => Reject::BODY_SLOW,
            _ => return ConnectionStep::End(AfterResponse::Close),
        };
        let rest = std::mem::take(&mut self.connection.rest);
        match self.refused(reject, &rest, cx) {
            RequestOutcome::Then(_, ConnectionStep::Send(sending)) => ConnectionStep::Send(sending),
            _ => ConnectionStep::End(AfterResponse::Close),
        }
    }

    /// Answers the requests in `bytes`, at most `requests_left` requests, and keeps the remaining bytes.
    fn consume(
        &mut self,
        bytes: &[u8],
        requests_left: &mut u32,
        is_inotify_current: &mut bool,
        cx: &mut Context<'_>,
    ) -> Option<ConnectionStep> {
        let mut at = 0;
        let mut request_at = 0;
        let mut next = None;
        let mut has_checked_inotify = false;
        while at < bytes.len() {
            if !*is_inotify_current && !has_checked_inotify {
                self.connection.context.poller.check_inotify();
                has_checked_inotify = true;
            }
            *is_inotify_current = false;
            request_at = at;
            match self.look(&bytes[at..], cx) {
                RequestOutcome::Took(used) => {
                    at += used;
                    self.reset_request();
                    *requests_left -= 1;
                    if *requests_left == 0 {
                        // While the requests wait for other clients' requests, no deadline runs for the
                        // client.
                        self.connection.phase(ConnectionPhase::Busy);
                        next = Some(ConnectionStep::Yield);
                        break;
                    }
                }
                RequestOutcome::More => break,
                RequestOutcome::Then(used, then) => {
                    at += used;
                    self.reset_request();
                    next = Some(then);
                    break;
                }
                RequestOutcome::Waiting {
                    keep,
                    from,
                    has_content,
                    next,
                } => {
                    let mut rest = Vec::with_capacity(bytes.len() - at - from + keep);
                    rest.extend_from_slice(&bytes[at..at + keep]);
                    rest.extend_from_slice(&bytes[at + from..]);
                    self.connection.rest = rest;
                    return if self.reserve_waiting_request(keep, has_content) {
                        next
                    } else {
                        self.no_room(&bytes[at..], cx)
                    };
                }
            }
        }
        self.keep_unread(bytes, at, next.is_none());
        if self.reserve_rest() {
            if let Some(ConnectionStep::Call(call)) = &mut next {
                call.hold_rest(self.unfinished.take());
            }
            return next;
        }
        match &mut next {
            None => self.no_room(&bytes[request_at..], cx),
            // The bytes without room are content of the request, and a handler must not get the content
            // without them.
            Some(ConnectionStep::Call(call)) if call.has_content() => {
                self.no_room(&bytes[request_at..], cx)
            }
            Some(step) => {
                // The response is sent without its successors: the connection ends after the response.
                if let ConnectionStep::Call(call) = step {
                    call.close_afterwards();
                }
                self.unfinished = None;
                self.connection.rest = Vec::new();
                self.closes = true;
                next
            }
        }
    }

    /// Reserves room in the ledger of requests for `rest`, which begins with the `keep` bytes of a waiting
    /// request. Without room for pipelined bytes after the request, the bytes are dropped first, so that
    /// the request itself can still be answered. Content is never dropped, because the position in the
    /// content would be lost. Returns false if the ledger has no room for the request.
    fn reserve_waiting_request(&mut self, keep: usize, has_content: bool) -> bool {
        if self.reserve_rest() {
            return true;
        }
        if has_content {
            return false;
        }
        self.connection.rest.truncate(keep);
        self.closes = true;
        self.reserve_rest()
    }

    /// Keeps the bytes from offset `at` on. Sets the phase if the connection waits for more bytes.
    #[inline]
    fn keep_unread(&mut self, bytes: &[u8], at: usize, waits: bool) {
        let connection = &mut self.connection;
        let left = &bytes[at..];
        if left.is_empty() {
            if connection.rest.capacity() > 0 {
                connection.rest = Vec::new();
            }
            if waits {
                connection.phase(ConnectionPhase::Idle);
            }
            return;
        }
        if at > 0 {
            connection.rest = left.to_vec();
        } else {
            let known = connection.rest.len();
            connection.rest.extend_from_slice(&left[known..]);
        }
        if waits {
            if at > 0 {
                // Each header section has its own deadline: the idle phase resets the deadline of the
                // previous one.
                connection.phase(ConnectionPhase::Idle);
            }
            connection.phase(ConnectionPhase::Head);
        }
    }

    /// Reserves room in the ledger of requests for `rest`, if longer than the free amount. Returns false if
    /// the ledger has no room.
    fn reserve_rest(&mut self) -> bool {
        if self.connection.rest.len() <= limits::UNFINISHED_HEAD_BYTES_FREE {
            self.unfinished = None;
            return true;
        }
        let mut unfinished = match self.unfinished.take() {
            Some(unfinished) => unfinished,
            None => Box::new(self.connection.account(self.connection.peer).unfinished()),
        };
        let is_kept = unfinished.resize(self.connection.rest.len()).is_ok();
        self.unfinished = Some(unfinished);
        is_kept
    }

    /// Refuses the request at the start of `bytes` because the ledger has no room for its bytes.
    fn no_room(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Option<ConnectionStep> {
        self.unfinished = None;
        self.closes = true;
        self.connection.rest = Vec::new();
        match self.refused(Reject::REQUESTS_SHARE_TAKEN, bytes, cx) {
            RequestOutcome::Then(_, next) => Some(next),
            _ => Some(ConnectionStep::End(AfterResponse::Close)),
        }
    }

    /// Reserves room for the copies of a long header section in a handler call. Returns an error if the
    /// ledger has no room.
    pub(super) fn reserve_head_copies(
        &self,
        line: &AccessLogEntry<'_>,
        head_bytes: usize,
    ) -> Result<Option<RequestReservation>, Reject> {
        if head_bytes <= limits::UNFINISHED_HEAD_BYTES_FREE {
            return Ok(None);
        }
        let world = self.connection.context.world();
        let client = line.client(&world, self.connection.client_info());
        let mut reservation = self.connection.account(client.peer).unfinished();
        let resized = reservation.resize(HEAD_COPIES * head_bytes);
        resized.map_err(|_| Reject::REQUESTS_SHARE_TAKEN)?;
        Ok(Some(reservation))
    }

    /// Resets the state of the previous request.
    fn reset_request(&mut self) {
        self.body_read = false;
        self.progress = Progress::default();
    }

    /// Answers one request, or returns the missing part.
    fn look(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> RequestOutcome {
        let world = self.connection.context.world();
        let mut copy = Vec::new();
        if let Some(mut body) = self.discarded_body.take() {
            return match self.discard(&mut body, bytes, &world) {
                Ok(DiscardProgress::More(from)) => {
                    let keep = body.head_bytes;
                    self.discarded_body = Some(body);
                    RequestOutcome::Waiting {
                        keep,
                        from,
                        has_content: true,
                        next: None,
                    }
                }
                Ok(DiscardProgress::Done(end)) => {
                    match request::parse_head(bytes, &mut copy, &mut 0, &world.limits.head) {
                        Ok(ParsedHead::Complete { head, head_bytes }) => {
                            self.body_read = !body.is_too_long;
                            let look = self.answer(&world, &head, head_bytes, end, cx);
                            if matches!(look, RequestOutcome::Waiting { .. }) {
                                self.discarded_body = Some(body);
                            }
                            look
                        }
                        _ => RequestOutcome::Then(
                            bytes.len(),
                            ConnectionStep::End(AfterResponse::Close),
                        ),
                    }
                }
                Err(reject) => self.refused(reject, bytes, cx),
            };
        }
        match request::parse_head(bytes, &mut copy, &mut self.scanned, &world.limits.head) {
            Ok(ParsedHead::Partial) => RequestOutcome::More,
            Err(reject) => self.refused(reject, bytes, cx),
            Ok(ParsedHead::Complete { head, head_bytes }) => {
                self.scanned = 0;
                match head.body {
                    BodyLength::None | BodyLength::Length(0) => {
                        self.answer(&world, &head, head_bytes, head_bytes, cx)
                    }
                    _ => self.with_body(&world, &head, head_bytes, bytes, cx),
                }
            }
        }
    }

    /// Answers a request with content. A handler reads the content. Without a handler, content of at most
    /// `body_discard_bytes` is read and discarded before the response, so that the connection stays open.
    fn with_body(
        &mut self,
        world: &World,
        head: &RequestHead<'_>,
        head_bytes: usize,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let attempt = self.dispatch(world, head, RequestContent::Pending);
        if attempt.content != ContentAction::Discard {
            return self.respond(world, head, attempt, head_bytes, head_bytes, cx);
        }
        let mut body = Box::new(DiscardedBody {
            head_bytes,
            decoder: BodyDecoder::new(head.body),
            seen: 0,
            done: false,
            is_too_long: false,
        });
        match self.discard(&mut body, bytes, world) {
            Ok(DiscardProgress::More(from)) => {
                self.discarded_body = Some(body);
                RequestOutcome::Waiting {
                    keep: head_bytes,
                    from,
                    has_content: true,
                    next: None,
                }
            }
            Ok(DiscardProgress::Done(end)) => {
                self.body_read = !body.is_too_long;
                let look = self.respond(world, head, attempt, head_bytes, end, cx);
                if matches!(look, RequestOutcome::Waiting { .. }) {
                    self.discarded_body = Some(body);
                }
                look
            }
            Err(reject) => self.refused(reject, bytes, cx),
        }
    }

    /// Discards the content in `bytes`, up to the limit `body_discard_bytes`. All bytes behind the limit belong to the
    /// content.
    fn discard(
        &mut self,
        body: &mut DiscardedBody,
        bytes: &[u8],
        world: &World,
    ) -> Result<DiscardProgress, Reject> {
        let mut at = body.head_bytes;
        while !body.done {
            match body.decoder.step(&bytes[at..])? {
                BodyStep::Data { consumed, payload } => {
                    at += consumed;
                    body.seen += payload.len() as u64;
                    if body.seen > world.limits.body_discard_bytes {
                        body.is_too_long = true;
                        body.done = true;
                    }
                }
                BodyStep::More { consumed } => {
                    let patience = Duration::from_secs(limits::BODY_GRACE_SECONDS);
                    self.connection
                        .context
                        .phase_body(self.connection.slot, body.seen, patience);
                    return Ok(DiscardProgress::More(at + consumed));
                }
                BodyStep::End { consumed } => {
                    at += consumed;
                    body.done = true;
                }
            }
        }
        if body.is_too_long {
            Ok(DiscardProgress::Done(bytes.len()))
        } else {
            Ok(DiscardProgress::Done(at))
        }
    }

    /// Answers a request that ends at offset `end`, without content or with discarded content.
    fn answer(
        &mut self,
        world: &World,
        head: &RequestHead<'_>,
        head_bytes: usize,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let body = match head.body {
            BodyLength::None | BodyLength::Length(0) => RequestContent::None,
            _ => RequestContent::Discarded,
        };
        let attempt = self.dispatch(world, head, body);
        self.respond(world, head, attempt, head_bytes, end, cx)
    }

    fn dispatch<'w>(
        &mut self,
        world: &'w World,
        head: &RequestHead<'_>,
        content: RequestContent,
    ) -> Attempt<'w> {
        let connection = &self.connection;
        Attempt::dispatch(
            world,
            head,
            connection.dispatch_context(),
            &connection.context,
            content,
            &mut self.progress,
        )
    }

    /// Answers malformed, late or oversized input with a refusal. The following bytes are not parsed as
    /// requests.
    fn refused(&mut self, reject: Reject, bytes: &[u8], cx: &mut Context<'_>) -> RequestOutcome {
        self.discarded_body = None;
        let context = &self.connection.context;
        let first = request::first_line(bytes);
        let line = AccessLogEntry::unparsed(context, Version::Http11, first, reject);
        self.send_refusal(reject, line, bytes.len(), cx)
    }
}

/// Length of the part of HTTP/2's connection preface that could also begin an HTTP/1.1 request line.
const H1_LINE_BYTES: usize = b"PRI * HTTP/2.".len();
