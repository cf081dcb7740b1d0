//! An HTTP/1.1 connection from accept to close.
//!
//! Nearly every request is read, answered and written inside one poll without allocated state: the header
//! section borrows the worker's scratch buffer, and the response leaves by one vectored write. Only a
//! request that must wait becomes a [`ConnectionStep`] with the state of the wait. An idle connection keeps
//! its socket, its TLS state and the bytes of an unfinished request.

use crate::base::sys;
use crate::base::task::spawn_local;
use crate::handler::LocalBoxFuture;
use crate::limits;
use crate::serve::access_log::{AccessLogEntry, ClientInfo, OwnedAccessLogEntry, tls_version};
use crate::serve::attempt::{Attempt, BodyAction, Progress, ReadyResponse, RequestBody, Step};
use crate::serve::dispatch::dispatch;
use crate::serve::dispatch_context::{DispatchContext, EndpointLookup};
use crate::serve::h1::call;
use crate::serve::h1::call::H1Call;
use crate::serve::h1::send::{H1BodySource, ResponseWriter, SendProgress};
use crate::serve::h2;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::redispatch;
use crate::serve::request_ledger::{ConnectionAccount, RequestReservation as PendingHead};
use crate::serve::stall::StallClock;
use crate::serve::synthetic_response::{SyntheticResponse, refusal_fields};
use crate::serve::worker::{ConnectionPhase, Worker};
use crate::site::{Listing, VariantResponse};
use crate::tls::{ACME_TLS_ALPN, PairFingerprint, Tls};
use crate::wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use crate::wire::h1::request;
use crate::wire::h1::request::ParsedHead;
use crate::wire::h2::frame::PREFACE;
use crate::wire::reject::Reject;
use crate::wire::request_head::{Method, RequestHead, Version};
use crate::wire::status::{Status, StatusLine};
use crate::world::{Host, SecureFields, World};
use rustls::HandshakeKind;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::task::yield_now;

/// A connection and its state between two reads.
pub struct H1Session {
    pub(in crate::serve) stream: MaybeTlsStream,
    pub(in crate::serve) worker: Rc<Worker>,
    pub(in crate::serve) slot: usize,
    pub(in crate::serve) peer: IpAddr,
    /// Bytes of an unfinished request.
    pub(in crate::serve) rest: Vec<u8>,
    /// Reservation for `rest` in the ledger of requests, if `rest` is longer than
    /// [`limits::UNFINISHED_HEAD_BYTES_FREE`].
    unfinished: Option<Box<PendingHead>>,
    /// True if the connection ends after the next response, because the ledger had no room for pipelined
    /// bytes.
    closes: bool,
    /// Number of bytes of `rest` already searched for the end of the header section.
    scanned: usize,
    /// Content that is still arriving and is discarded. `rest` begins with the header section of its
    /// request.
    held: Option<Box<DiscardedBody>>,
    /// True if the content of the current request was read to its end and discarded.
    body_read: bool,
    /// Identity of the certificate used by the finished handshake; None before the end of the handshake and
    /// without TLS.
    pub(in crate::serve) identity: Option<PairFingerprint>,
    /// The certificates and demands at the start of the handshake; None after the handshake. A reload
    /// during the handshake may demand a client certificate for which the client was not asked, so the
    /// identity comes from `offered` and not from the current World.
    offered: Option<Arc<Tls>>,
    /// True until the first bytes of the connection determine the version of HTTP.
    is_fresh: bool,
    /// True if the client and the server agreed on HTTP/2 by ALPN.
    is_h2: bool,
    /// Waits of the current request.
    progress: Progress,
}

/// Content that is read and discarded.
struct DiscardedBody {
    head_bytes: usize,
    decoder: BodyDecoder,
    seen: u64,
    done: bool,
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
    /// Run a handler call.
    Call(Box<H1Call>),
    /// Continue as HTTP/2. `rest` holds all bytes received.
    Http2,
    /// Yield to other connections. `rest` holds the unread requests.
    Yield,
    /// End the connection.
    End(AfterResponse),
}

/// A response not yet completely written to the socket.
pub(in crate::serve) struct UnsentResponse {
    outgoing: ResponseWriter,
    record: Option<Box<OwnedAccessLogEntry>>,
    end: AfterResponse,
    status: Status,
    started_us: u64,
}

/// State of the connection after a response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::serve) enum AfterResponse {
    Keep,
    Close,
    /// Close after a lingering read, because the client may still be sending bytes that the server will not
    /// parse.
    Linger,
    /// Reset the connection: the response broke off, and the client must not take the truncated response
    /// for a complete one.
    Reset,
}

/// Outcome of one look at the read buffer.
enum RequestOutcome {
    /// A request was answered; its length in bytes.
    Took(usize),
    /// More bytes are needed.
    More,
    /// Look at the request again after `next`. The first `keep` bytes (the header section) and the bytes
    /// from offset `from` on are kept.
    Hold {
        keep: usize,
        from: usize,
        next: Option<ConnectionStep>,
    },
    /// The given number of bytes is consumed; the step follows.
    Then(usize, ConnectionStep),
}

/// Number of copies of a header section in a handler call: the handler's request, the script's variables,
/// and the access log.
const HEAD_COPIES: usize = 3;

impl Drop for H1Session {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.worker.stats.panics.increment();
        }
        self.worker.close(self.slot);
    }
}

impl H1Session {
    /// Creates the session of a newly accepted connection.
    pub fn new(
        stream: MaybeTlsStream,
        offered: Option<Arc<Tls>>,
        worker: Rc<Worker>,
        slot: usize,
        peer: IpAddr,
    ) -> H1Session {
        H1Session {
            stream,
            offered,
            worker,
            slot,
            peer,
            rest: Vec::new(),
            unfinished: None,
            closes: false,
            scanned: 0,
            held: None,
            body_read: false,
            identity: None,
            is_fresh: true,
            is_h2: false,
            progress: Progress::default(),
        }
    }

    /// Handles a readable socket: answers the requests that can be answered at once, then parks the
    /// connection in the worker's table. A task is spawned only for a step that waits for more than
    /// readable bytes.
    pub fn turn(mut self: Box<Self>) {
        match self.poll_turn(&mut Context::from_waker(Waker::noop()), false) {
            Poll::Pending => self.park(),
            Poll::Ready(ConnectionStep::End(AfterResponse::Close)) => self.close(),
            Poll::Ready(next) => {
                self.worker.stand_busy(self.slot);
                spawn_local(self.go_on(next));
            }
        }
    }

    fn park(self: Box<Self>) {
        let worker = self.worker.clone();
        worker.park(self);
    }

    /// Runs `next` and all following steps until the connection only waits to be readable.
    async fn go_on(mut self: Box<Self>, mut next: ConnectionStep) {
        loop {
            let end = match next {
                ConnectionStep::Send(sending) => Box::pin(self.send(sending)).await,
                ConnectionStep::Redispatch(wait) => {
                    self.progress = wait.await;
                    AfterResponse::Keep
                }
                ConnectionStep::Call(call) => Box::pin(call::run(&mut self, call)).await,
                ConnectionStep::Http2 => Box::pin(h2::run(&mut self)).await,
                ConnectionStep::Yield => {
                    yield_now().await;
                    AfterResponse::Keep
                }
                ConnectionStep::End(end) => end,
            };
            match end {
                // The next look at `rest` sets the phase.
                AfterResponse::Keep if self.closes && self.rest.is_empty() => break,
                AfterResponse::Keep if self.rest.is_empty() => {
                    self.worker.phase(self.slot, ConnectionPhase::Idle)
                }
                AfterResponse::Keep => {}
                AfterResponse::Close => break,
                AfterResponse::Linger => {
                    Box::pin(self.linger()).await;
                    break;
                }
                AfterResponse::Reset => return self.cut(),
            }
            // Requests in `rest` are answered before the next read.
            match poll_fn(|cx| Poll::Ready(self.poll_turn(cx, true))).await {
                Poll::Ready(then) => next = then,
                Poll::Pending => return self.park(),
            }
        }
        self.close();
    }

    /// Closes a parked connection to make room for a new connection.
    pub(in crate::serve) fn give_up(mut self) {
        self.close();
    }

    /// Sends the TLS close_notify alert as far as the socket accepts bytes. Dropping the session closes the
    /// socket.
    fn close(&mut self) {
        self.stream
            .close_notify(&mut Context::from_waker(Waker::noop()));
    }

    /// Reads and answers requests until a step must wait.
    fn poll_turn(&mut self, cx: &mut Context<'_>, mut again: bool) -> Poll<ConnectionStep> {
        let worker = self.worker.clone();
        let mut scratch = worker.scratch.borrow_mut();
        let mut turn = limits::TURN_REQUESTS_MAX;
        // The first request after a read arrived no later than the events that the poller returned.
        let mut is_sure = !again;
        loop {
            let mut filled = self.rest.len();
            scratch[..filled].copy_from_slice(&self.rest);
            if !again || filled == 0 {
                let read = self.poll_read(cx, &mut scratch[filled..]);
                if read.is_pending()
                    && self.rest.is_empty()
                    && self.identity.is_some()
                    && self.stream.is_inside_record()
                {
                    // The buffers of an incomplete TLS record get the deadline of an incomplete header
                    // section.
                    worker.phase(self.slot, ConnectionPhase::Head);
                }
                match ready!(read) {
                    Ok(0) => return Poll::Ready(self.ended(cx)),
                    Err(error) => {
                        if self.stream.tls.is_some() && self.identity.is_none() {
                            worker.stats.handshakes_failed.increment();
                        }
                        // A TLS alert was sent, and a reset would overtake the alert: the client finishes
                        // the handshake before the server and may have begun to send requests.
                        let end = match error.kind() {
                            io::ErrorKind::InvalidData => AfterResponse::Linger,
                            _ => AfterResponse::Close,
                        };
                        return Poll::Ready(ConnectionStep::End(end));
                    }
                    Ok(read) => filled += read,
                }
                worker
                    .stats
                    .bytes_received
                    .add((filled - self.rest.len()) as u64);
            }
            again = false;
            worker.clock.tick();
            if self.is_fresh {
                match self.version(&scratch[..filled]) {
                    Some(Version::Http2) => {
                        self.rest = scratch[..filled].to_vec();
                        return Poll::Ready(ConnectionStep::Http2);
                    }
                    Some(_) => self.is_fresh = false,
                    None => {}
                }
            }
            if let Some(next) = self.consume(&scratch[..filled], &mut turn, &mut is_sure, cx) {
                return Poll::Ready(next);
            }
        }
    }

    /// Returns the version of HTTP: under TLS by ALPN, otherwise, if h2c is enabled, by the connection
    /// preface of HTTP/2 (RFC 9113 §3.3). None while the bytes could begin either HTTP/2 or an HTTP/1.1
    /// request.
    fn version(&mut self, bytes: &[u8]) -> Option<Version> {
        if self.identity.is_some() {
            return Some(match self.is_h2 {
                true => Version::Http2,
                false => Version::Http11,
            });
        }
        let known = bytes.len().min(PREFACE.len());
        if !self.worker.world().h2c || bytes[..known] != PREFACE[..known] {
            return Some(Version::Http11);
        }
        (known == PREFACE.len() || known > H1_LINE_BYTES).then_some(Version::Http2)
    }

    /// Reads plaintext, after the TLS handshake if the connection uses TLS. Returns 0 at the end of the
    /// input.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.stream.tls.is_some()
            && self.identity.is_none()
            && (!ready!(self.stream.poll_handshake(cx))? || self.greet())
        {
            return Poll::Ready(Ok(0));
        }
        self.stream.poll_fill(cx, into)
    }

    /// Records the certificate that a finished handshake used. Returns true if the connection ends after
    /// the handshake, because the handshake served only to validate a name (RFC 8737 §3).
    fn greet(&mut self) -> bool {
        let (Some(connection), Some(tls)) = (self.stream.tls_mut(), self.offered.take()) else {
            return true;
        };
        let protocol = connection.alpn_protocol();
        let validated = protocol == Some(ACME_TLS_ALPN);
        self.is_h2 = protocol == Some(b"h2");
        self.identity = Some(tls.identity(connection.server_name()));
        if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
            self.worker.stats.handshakes_resumed.increment();
        } else {
            self.worker.stats.handshakes_full.increment();
        }
        // The first request may have arrived together with the end of the handshake.
        self.worker.poller.check_inotify();
        self.worker.phase(self.slot, ConnectionPhase::Idle);
        validated
    }

    /// Returns the last step after the client closed its side or a deadline passed.
    fn ended(&mut self, cx: &mut Context<'_>) -> ConnectionStep {
        let reject = match self.worker.expired(self.slot) {
            Some(ConnectionPhase::Head) if !self.rest.is_empty() => Reject::HEAD_SLOW,
            Some(ConnectionPhase::Body) => Reject::BODY_SLOW,
            _ => return ConnectionStep::End(AfterResponse::Close),
        };
        let rest = std::mem::take(&mut self.rest);
        match self.refused(reject, &rest, cx) {
            RequestOutcome::Then(_, ConnectionStep::Send(sending)) => ConnectionStep::Send(sending),
            _ => ConnectionStep::End(AfterResponse::Close),
        }
    }

    /// Answers the requests in `bytes`, at most `turn` requests, and keeps the remaining bytes.
    fn consume(
        &mut self,
        bytes: &[u8],
        turn: &mut u32,
        is_sure: &mut bool,
        cx: &mut Context<'_>,
    ) -> Option<ConnectionStep> {
        let mut at = 0;
        let mut next = None;
        let mut has_looked = false;
        while at < bytes.len() {
            if !*is_sure && !has_looked {
                self.worker.poller.check_inotify();
                has_looked = true;
            }
            *is_sure = false;
            match self.look(&bytes[at..], cx) {
                RequestOutcome::Took(used) => {
                    at += used;
                    self.begin_anew();
                    *turn -= 1;
                    if *turn == 0 {
                        // While the requests wait for other clients' requests, no deadline runs for the
                        // client.
                        self.worker.phase(self.slot, ConnectionPhase::Busy);
                        next = Some(ConnectionStep::Yield);
                        break;
                    }
                }
                RequestOutcome::More => break,
                RequestOutcome::Then(used, then) => {
                    at += used;
                    self.begin_anew();
                    next = Some(then);
                    break;
                }
                RequestOutcome::Hold { keep, from, next } => {
                    let mut rest = Vec::with_capacity(bytes.len() - at - from + keep);
                    rest.extend_from_slice(&bytes[at..at + keep]);
                    rest.extend_from_slice(&bytes[at + from..]);
                    self.rest = rest;
                    if !self.keep_rest() {
                        // Bytes after the request are dropped first, so that the request itself can still
                        // be answered.
                        self.rest.truncate(keep);
                        self.closes = true;
                        if !self.keep_rest() {
                            return self.no_room(cx);
                        }
                    }
                    return next;
                }
            }
        }
        let left = &bytes[at..];
        if left.is_empty() {
            if self.rest.capacity() > 0 {
                self.rest = Vec::new();
            }
            if next.is_none() {
                self.worker.phase(self.slot, ConnectionPhase::Idle);
            }
        } else {
            if at > 0 {
                self.rest = left.to_vec();
            } else {
                let known = self.rest.len();
                self.rest.extend_from_slice(&left[known..]);
            }
            if next.is_none() {
                if at > 0 {
                    // Each header section has its own deadline: the idle phase resets the deadline of the
                    // previous one.
                    self.worker.phase(self.slot, ConnectionPhase::Idle);
                }
                self.worker.phase(self.slot, ConnectionPhase::Head);
            }
        }
        match (self.keep_rest(), &next) {
            (true, _) => next,
            (false, None) => self.no_room(cx),
            (false, Some(_)) => {
                // A response is being sent and must not be interrupted, so the connection ends after the
                // response.
                self.unfinished = None;
                self.rest = Vec::new();
                self.closes = true;
                next
            }
        }
    }

    /// Reserves room in the ledger of requests for `rest`, if longer than the free amount. Returns false if
    /// the ledger has no room.
    fn keep_rest(&mut self) -> bool {
        if self.rest.len() <= limits::UNFINISHED_HEAD_BYTES_FREE {
            self.unfinished = None;
            return true;
        }
        let mut unfinished = match self.unfinished.take() {
            Some(unfinished) => unfinished,
            None => Box::new(self.holder().unfinished()),
        };
        let is_kept = unfinished.resize(self.rest.len()).is_ok();
        self.unfinished = Some(unfinished);
        is_kept
    }

    /// Returns the connection's account in the ledger of requests.
    fn holder(&self) -> Rc<ConnectionAccount> {
        let socket = Some(self.stream.socket.clone());
        self.worker.request_ledger.holder_on(self.peer, socket)
    }

    /// Refuses a request because the ledger has no room for its header section.
    fn no_room(&mut self, cx: &mut Context<'_>) -> Option<ConnectionStep> {
        self.unfinished = None;
        self.closes = true;
        let rest = std::mem::take(&mut self.rest);
        match self.refused(Reject::REQUESTS_SHARE_TAKEN, &rest, cx) {
            RequestOutcome::Then(_, next) => Some(next),
            _ => Some(ConnectionStep::End(AfterResponse::Close)),
        }
    }

    /// Reserves room for the copies of a long header section in a handler call. Returns an error if the
    /// ledger has no room.
    fn hold_head(&self, head_bytes: usize) -> Result<Option<PendingHead>, Reject> {
        if head_bytes <= limits::UNFINISHED_HEAD_BYTES_FREE {
            return Ok(None);
        }
        let mut held = self.holder().unfinished();
        let resized = held.resize(HEAD_COPIES * head_bytes);
        resized.map_err(|_| Reject::REQUESTS_SHARE_TAKEN)?;
        Ok(Some(held))
    }

    /// Resets the state of the previous request.
    fn begin_anew(&mut self) {
        self.body_read = false;
        self.progress = Progress::default();
    }

    /// Answers one request, or returns the missing part.
    fn look(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> RequestOutcome {
        let world = self.worker.world();
        if let Some(mut held) = self.held.take() {
            return match self.throw_away(&mut held, bytes, &world) {
                Ok(DiscardProgress::More(from)) => {
                    let keep = held.head_bytes;
                    self.held = Some(held);
                    RequestOutcome::Hold {
                        keep,
                        from,
                        next: None,
                    }
                }
                Ok(DiscardProgress::Done(end)) => {
                    match request::parse_head(bytes, &mut 0, &world.limits) {
                        Ok(ParsedHead::Complete { head, head_bytes }) => {
                            self.body_read = true;
                            let look = self.answer(&world, &head, head_bytes, end, cx);
                            if matches!(look, RequestOutcome::Hold { .. }) {
                                self.held = Some(held);
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
        match request::parse_head(bytes, &mut self.scanned, &world.limits) {
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

    /// Answers a request with content. A handler reads the content; without a handler the content is read
    /// and discarded before the response, so that its framing is known to be valid.
    fn with_body(
        &mut self,
        world: &World,
        head: &RequestHead<'_>,
        head_bytes: usize,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let facts = DispatchContext {
            has_disk_changes: self.worker.poller.has_unread_changes(),
            ..self.facts()
        };
        let dispatched = dispatch(world, head, &facts, &self.worker);
        let attempt = Attempt::of(
            dispatched,
            world,
            head,
            RequestBody::Pending,
            &self.progress,
        );
        if attempt.body != BodyAction::Discard {
            if attempt.is_too_large() {
                self.worker.stats.rejects.increment();
            }
            return self.respond(world, head, attempt, head_bytes, head_bytes, cx);
        }
        let mut held = Box::new(DiscardedBody {
            head_bytes,
            decoder: BodyDecoder::new(head.body),
            seen: 0,
            done: false,
        });
        match self.throw_away(&mut held, bytes, world) {
            Ok(DiscardProgress::More(from)) => {
                self.held = Some(held);
                RequestOutcome::Hold {
                    keep: head_bytes,
                    from,
                    next: None,
                }
            }
            Ok(DiscardProgress::Done(end)) => {
                self.body_read = true;
                let look = self.respond(world, head, attempt, head_bytes, end, cx);
                if matches!(look, RequestOutcome::Hold { .. }) {
                    self.held = Some(held);
                }
                look
            }
            Err(reject) => self.refused(reject, bytes, cx),
        }
    }

    fn throw_away(
        &mut self,
        held: &mut DiscardedBody,
        bytes: &[u8],
        world: &World,
    ) -> Result<DiscardProgress, Reject> {
        let mut at = held.head_bytes;
        while !held.done {
            match held.decoder.step(&bytes[at..])? {
                BodyStep::Data { consumed, payload } => {
                    at += consumed;
                    held.seen += payload.len() as u64;
                    if held.seen > world.limits.body_discard_bytes {
                        return Err(Reject::BODY_TOO_LARGE);
                    }
                }
                BodyStep::More { consumed } => {
                    let patience = Duration::from_secs(limits::BODY_GRACE_SECONDS);
                    self.worker.phase_body(self.slot, held.seen, patience);
                    return Ok(DiscardProgress::More(at + consumed));
                }
                BodyStep::End { consumed } => {
                    at += consumed;
                    held.done = true;
                }
            }
        }
        Ok(DiscardProgress::Done(at))
    }

    pub(in crate::serve) fn client_info(&self) -> ClientInfo {
        ClientInfo {
            peer: self.peer,
            tls: tls_version(&self.stream),
        }
    }

    pub(in crate::serve) fn facts(&self) -> DispatchContext {
        DispatchContext {
            identity: self.identity,
            peer: self.peer,
            endpoints: EndpointLookup::Row(self.slot),
            now_ms: self.worker.clock.millis(),
            may_wait: false,
            has_disk_changes: false,
        }
    }

    /// Answers a request that ends at offset `end`.
    fn answer(
        &mut self,
        world: &World,
        head: &RequestHead<'_>,
        head_bytes: usize,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let body = match self.body_read {
            true => RequestBody::Discarded,
            false => RequestBody::Complete,
        };
        let facts = DispatchContext {
            may_wait: self.progress.may_wait(body),
            has_disk_changes: self.worker.poller.has_unread_changes(),
            ..self.facts()
        };
        let dispatched = dispatch(world, head, &facts, &self.worker);
        let attempt = Attempt::of(dispatched, world, head, body, &self.progress);
        self.respond(world, head, attempt, head_bytes, end, cx)
    }

    /// Sends the response of `attempt`, or returns the step to wait for.
    fn respond(
        &mut self,
        world: &World,
        head: &RequestHead<'_>,
        attempt: Attempt<'_>,
        head_bytes: usize,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let Attempt {
            host, user, step, ..
        } = attempt;
        let bodiless = matches!(head.body, BodyLength::None | BodyLength::Length(0));
        let unread_body = !bodiless && !self.body_read;
        let mut after = self.after(head, unread_body);
        let line = AccessLogEntry::new(&self.worker, Some(head), host, user.as_deref());
        match step {
            Step::Wait(wait) => {
                self.worker.phase(self.slot, ConnectionPhase::Busy);
                let wait = redispatch::wait(wait, &self.worker.pool, self.progress);
                RequestOutcome::Hold {
                    keep: head_bytes,
                    from: end,
                    next: Some(ConnectionStep::Redispatch(wait)),
                }
            }
            Step::Call(handler) => match self.hold_head(head_bytes) {
                Ok(held) => {
                    let call = H1Call::new(handler, head, host, user.clone(), self, world, &line);
                    RequestOutcome::Then(end, ConnectionStep::Call(Box::new(call.holding(held))))
                }
                Err(reject) => {
                    self.worker.stats.rejects.increment();
                    let line = AccessLogEntry {
                        reject: Some(reject),
                        ..line
                    };
                    self.send_small(
                        SyntheticResponse::refusal(reject),
                        AfterResponse::Linger,
                        &line,
                        end,
                        cx,
                    )
                }
            },
            Step::Send(ReadyResponse::Stored(stored)) => {
                let mut extra = self.worker.lead.take();
                extra.clear();
                if stored.is_from_cache() {
                    self.worker.stats.cache_hits.increment();
                    stored.push_changing(&mut extra);
                }
                let secure_fields = host.map(|host| &*host.secure_fields);
                self.own_fields(&mut extra, head.version, after, secure_fields);
                if !stored.is_dated() {
                    extra.extend_from_slice(&self.worker.clock.date_field());
                }
                extra.extend_from_slice(b"\r\n");
                let line = AccessLogEntry {
                    reject: stored.reject(),
                    ..line
                };
                self.send_stored(stored, extra, after, &line, end, cx)
            }
            Step::Send(ReadyResponse::Refuse { reject, page }) => {
                if reject.close {
                    after = AfterResponse::Linger;
                }
                let line = AccessLogEntry {
                    reject: Some(reject),
                    ..line
                };
                match page {
                    Some(page) => {
                        let mut extra = self.worker.lead.take();
                        extra.clear();
                        extra.extend_from_slice(refusal_fields(reject));
                        self.finish_head(&mut extra, head.version, after, host);
                        self.send_stored(page, extra, after, &line, end, cx)
                    }
                    None => {
                        self.send_small(SyntheticResponse::refusal(reject), after, &line, end, cx)
                    }
                }
            }
            Step::Send(ReadyResponse::Synthetic(small)) => {
                self.send_small(small, after, &line, end, cx)
            }
            Step::Send(ReadyResponse::Listing(listing)) => {
                self.send_listing(listing, head, after, &line, end, cx)
            }
        }
    }

    /// Returns whether the connection continues after the exchange.
    fn after(&self, head: &RequestHead<'_>, unread_body: bool) -> AfterResponse {
        if unread_body {
            AfterResponse::Linger
        } else if !head.keep_alive || self.closes || self.worker.draining.get() {
            AfterResponse::Close
        } else {
            AfterResponse::Keep
        }
    }

    /// Appends the connection's fields, the Date field and the end of the header section.
    fn finish_head(
        &self,
        fields: &mut Vec<u8>,
        version: Version,
        after: AfterResponse,
        host: Option<&Host>,
    ) {
        let secure_fields = host.map(|host| &*host.secure_fields);
        self.own_fields(fields, version, after, secure_fields);
        fields.extend_from_slice(&self.worker.clock.date_field());
        fields.extend_from_slice(b"\r\n");
    }

    /// Appends the fields of the connection: Connection, and under TLS the site's security fields.
    pub(in crate::serve) fn own_fields(
        &self,
        fields: &mut Vec<u8>,
        version: Version,
        after: AfterResponse,
        secure_fields: Option<&SecureFields>,
    ) {
        match (after, version) {
            (AfterResponse::Keep, Version::Http11) => {}
            (AfterResponse::Keep, Version::Http10) => {
                fields.extend_from_slice(b"Connection: keep-alive\r\n")
            }
            _ => fields.extend_from_slice(b"Connection: close\r\n"),
        }
        if self.stream.tls.is_some()
            && let Some(secure) = secure_fields
        {
            fields.extend_from_slice(&secure.lines);
        }
    }

    /// Sends a stored page, if possible by one vectored write.
    fn send_stored(
        &mut self,
        stored: VariantResponse,
        extra: Vec<u8>,
        after: AfterResponse,
        line: &AccessLogEntry<'_>,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let status = stored.status;
        let length = stored.body_len();
        let mut built = Vec::new();
        let head = stored.head(&mut built);
        let whole = match (length, stored.whole_memory()) {
            (0, _) => Some(&[][..]),
            (_, Some(bytes))
                if self.fits_at_once(bytes.len(), head.len() + extra.len(), &stored) =>
            {
                Some(bytes)
            }
            _ => None,
        };
        let Some(body) = whole else {
            let mut lead = head.to_vec();
            lead.extend_from_slice(&extra);
            self.worker.lead.replace(extra);
            let outgoing = ResponseWriter::new(lead, H1BodySource::Stored(stored));
            return self.send_outgoing(outgoing, status, length, after, line, end, cx);
        };
        let total = head.len() + extra.len() + body.len();
        let written = match self.write_at_once(cx, [head, &extra, body]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(_)) => {
                return RequestOutcome::Then(end, ConnectionStep::End(AfterResponse::Close));
            }
            Poll::Pending => 0,
        };
        if written == total {
            match self.stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.worker.lead.replace(extra);
                    self.done(status, length, line);
                    return look_after(end, after);
                }
                // The client closed the connection. Further responses would only fill memory, because TLS
                // buffers the bytes that the socket does not accept.
                Poll::Ready(Err(_)) => {
                    return RequestOutcome::Then(end, ConnectionStep::End(AfterResponse::Close));
                }
                Poll::Pending => {}
            }
        }
        // The unwritten part waits for the socket; the written bytes of header section and content are not
        // sent again.
        let head_left = head.len() + extra.len();
        let mut lead = Vec::new();
        if written < head_left {
            lead.extend_from_slice(head);
            lead.extend_from_slice(&extra);
            lead.drain(..written);
        }
        self.worker.lead.replace(extra);
        let body_at = written.saturating_sub(head_left) as u64;
        let outgoing = if body_at < length || !lead.is_empty() {
            ResponseWriter::resume(lead, H1BodySource::Stored(stored), body_at)
        } else {
            ResponseWriter::resume(lead, H1BodySource::Nothing, body_at)
        };
        self.later(outgoing, status, after, line, end)
    }

    /// Writes the header section, the changing fields and the content at once. A short response is first
    /// copied into one buffer, because the copy costs less than the kernel's processing of a list of
    /// buffers.
    fn write_at_once(
        &mut self,
        cx: &mut Context<'_>,
        parts: [&[u8]; 3],
    ) -> Poll<io::Result<usize>> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total > limits::COALESCED_RESPONSE_BYTES_MAX || self.stream.tls.is_some() {
            return self.stream.poll_write(cx, &parts.map(IoSlice::new));
        }
        let worker = self.worker.clone();
        let mut joined = worker.joined.borrow_mut();
        joined.clear();
        for part in parts {
            joined.extend_from_slice(part);
        }
        self.stream.poll_write(cx, &[IoSlice::new(&joined)])
    }

    /// Returns true if content in memory may leave together with its header section in one write.
    fn fits_at_once(&self, body: usize, head: usize, stored: &VariantResponse) -> bool {
        if self.stream.tls.is_some() {
            body + head + 1024 <= limits::UNSENT_BYTES_MAX
        } else {
            (body as u64) < limits::SENDFILE_BYTES_MIN || stored.variant.disk().is_none()
        }
    }

    /// Sends a synthetic response.
    fn send_small(
        &mut self,
        small: SyntheticResponse,
        after: AfterResponse,
        line: &AccessLogEntry<'_>,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let status = small.status;
        let mut bytes = Vec::with_capacity(256);
        StatusLine::from(status).push(&mut bytes);
        bytes.extend_from_slice(&small.lines());
        let version = line.head.map_or(Version::Http11, |head| head.version);
        self.finish_head(&mut bytes, version, after, line.host);
        let is_head = line.head.is_some_and(|head| head.method == Method::Head);
        let length = if is_head { 0 } else { small.body.len() };
        bytes.extend_from_slice(&small.body[..length]);
        let outgoing = ResponseWriter::new(bytes, H1BodySource::Nothing);
        self.send_outgoing(outgoing, status, length as u64, after, line, end, cx)
    }

    /// Sends a directory listing, generated while being sent.
    fn send_listing(
        &mut self,
        listing: Box<Listing>,
        head: &RequestHead<'_>,
        after: AfterResponse,
        line: &AccessLogEntry<'_>,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let chunked = head.version == Version::Http11;
        let after = if chunked || after != AfterResponse::Keep {
            after
        } else {
            AfterResponse::Close
        };
        let mut built = Vec::new();
        let mut lead = listing.head(&mut built).to_vec();
        if chunked {
            lead.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        self.finish_head(&mut lead, head.version, after, line.host);
        let source = match listing.head_only() {
            true => H1BodySource::Nothing,
            false => H1BodySource::Chunks(Box::new(ListingChunks {
                listing,
                chunked,
                done: false,
            })),
        };
        self.send_outgoing(
            ResponseWriter::new(lead, source),
            Status::OK,
            0,
            after,
            line,
            end,
            cx,
        )
    }

    /// Sends as much as the socket accepts now. The remaining bytes become a [`ConnectionStep::Send`].
    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one response, named at each call"
    )]
    fn send_outgoing(
        &mut self,
        mut outgoing: ResponseWriter,
        status: Status,
        length: u64,
        after: AfterResponse,
        line: &AccessLogEntry<'_>,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let worker = self.worker.clone();
        let now_us = worker.clock.micros();
        let sent = outgoing.poll_send(&mut self.stream, &mut worker.disk.borrow_mut(), now_us, cx);
        match sent {
            Poll::Ready(Ok(SendProgress::Done)) => {
                self.done(status, length.max(outgoing.sent), line);
                look_after(end, after)
            }
            Poll::Ready(Err(_)) => {
                self.done(status, outgoing.sent, line);
                RequestOutcome::Then(end, ConnectionStep::End(AfterResponse::Reset))
            }
            Poll::Ready(Ok(SendProgress::Disk(_))) | Poll::Pending => {
                self.later(outgoing, status, after, line, end)
            }
        }
    }

    fn later(
        &mut self,
        outgoing: ResponseWriter,
        status: Status,
        after: AfterResponse,
        line: &AccessLogEntry<'_>,
        end: usize,
    ) -> RequestOutcome {
        let record = line.keep(status, &self.worker, self.client_info());
        self.worker.phase(self.slot, ConnectionPhase::Write);
        RequestOutcome::Then(
            end,
            ConnectionStep::Send(Box::new(UnsentResponse {
                outgoing,
                record,
                end: after,
                status,
                started_us: line.started_us,
            })),
        )
    }

    /// Counts and logs a response written to the socket.
    fn done(&mut self, status: Status, bytes: u64, line: &AccessLogEntry<'_>) {
        self.worker.stats.response(
            status.0,
            bytes,
            self.worker.clock.micros() - line.started_us,
        );
        line.log(status, bytes, &self.worker, self.client_info());
    }

    /// Answers malformed, late or oversized input with a refusal. The following bytes are not parsed as
    /// requests.
    fn refused(&mut self, reject: Reject, bytes: &[u8], cx: &mut Context<'_>) -> RequestOutcome {
        self.held = None;
        self.worker.stats.rejects.increment();
        let line = AccessLogEntry {
            first: request::first_line(bytes),
            reject: Some(reject),
            ..AccessLogEntry::new(&self.worker, None, None, None)
        };
        let small = SyntheticResponse::refusal(reject);
        self.send_small(small, AfterResponse::Linger, &line, bytes.len(), cx)
    }

    /// Sends the remaining bytes of a response, and waits for the socket and the disk.
    async fn send(&mut self, mut sending: Box<UnsentResponse>) -> AfterResponse {
        let mut stall = StallClock::default();
        loop {
            let progress = poll_fn(|cx| {
                let worker = self.worker.clone();
                // Time has passed during the wait.
                worker.clock.tick();
                let now_us = worker.clock.micros();
                let sent = sending.outgoing.poll_send(
                    &mut self.stream,
                    &mut worker.disk.borrow_mut(),
                    now_us,
                    cx,
                );
                worker.clock.tick();
                if stall.note(true, sending.outgoing.sent, worker.clock.millis()) {
                    worker.phase(self.slot, ConnectionPhase::Write);
                }
                sent
            })
            .await;
            match progress {
                Ok(SendProgress::Done) => break,
                Ok(SendProgress::Disk(read)) => {
                    // The wait was for the disk and not for the client, so the stall time restarts.
                    stall = StallClock::default();
                    let pool = self.worker.pool.clone();
                    match pool.run(move || read.run()).await {
                        Ok(Ok(bytes)) => sending.outgoing.feed(bytes),
                        _ => {
                            sending.end = AfterResponse::Reset;
                            break;
                        }
                    }
                }
                Err(_) => {
                    sending.end = AfterResponse::Reset;
                    break;
                }
            }
        }
        self.worker.stats.response(
            sending.status.0,
            sending.outgoing.sent,
            self.worker.clock.micros() - sending.started_us,
        );
        if let Some(record) = &sending.record {
            record.log(sending.outgoing.sent, &self.worker);
        }
        sending.end
    }

    /// Resets the connection without sending the bytes buffered by TLS or the kernel: the buffered bytes
    /// could complete a response that broke off. The reset shows the client that the connection did not end
    /// regularly.
    fn cut(&mut self) {
        let _ = self.stream.socket.reset_on_close();
    }

    /// Closes the connection so that the client can read the last response: shuts down the write side, then
    /// reads and discards input for a limited time. A close with unread bytes would reset the connection,
    /// and the reset may overtake the response (RFC 9112 §9.6).
    async fn linger(&mut self) {
        self.worker.phase(self.slot, ConnectionPhase::Linger);
        poll_fn(|cx| {
            self.stream.close_notify(cx);
            Poll::Ready(())
        })
        .await;
        if sys::shutdown_write(self.stream.socket.as_fd()).is_err() {
            return;
        }
        let mut left = LINGER_BYTES_MAX;
        while left > 0 {
            let read = poll_fn(|cx| {
                let worker = self.worker.clone();
                let mut scratch = worker.scratch.borrow_mut();
                self.stream.socket.poll_read(cx, &mut scratch)
            })
            .await;
            match read {
                Ok(0) | Err(_) => return,
                Ok(read) => left = left.saturating_sub(read),
            }
        }
    }
}

/// Length of the part of HTTP/2's connection preface that could also begin an HTTP/1.1 request line.
const H1_LINE_BYTES: usize = b"PRI * HTTP/2.".len();

/// Chunks of a directory listing.
struct ListingChunks {
    listing: Box<Listing>,
    chunked: bool,
    done: bool,
}

impl Iterator for ListingChunks {
    type Item = (Vec<u8>, usize);

    fn next(&mut self) -> Option<(Vec<u8>, usize)> {
        let mut chunk = Vec::new();
        while !self.done && chunk.is_empty() {
            self.done = !self.listing.next_chunk(&mut chunk);
        }
        let bytes = chunk.len();
        match (chunk.is_empty(), self.chunked) {
            (false, true) => Some((encode_chunk(chunk), bytes)),
            (false, false) => Some((chunk, bytes)),
            (true, true) => {
                self.chunked = false;
                Some((b"0\r\n\r\n".to_vec(), 0))
            }
            (true, false) => None,
        }
    }
}

/// Maximum of bytes read during a lingering close.
const LINGER_BYTES_MAX: usize = 1 << 20;

fn look_after(end: usize, after: AfterResponse) -> RequestOutcome {
    match after {
        AfterResponse::Keep => RequestOutcome::Took(end),
        after => RequestOutcome::Then(end, ConnectionStep::End(after)),
    }
}

/// Returns content in the framing of one chunk (RFC 9112 §7.1).
pub(in crate::serve) fn encode_chunk(chunk: Vec<u8>) -> Vec<u8> {
    let mut framed = Vec::with_capacity(chunk.len() + 16);
    framed.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
    framed.extend_from_slice(&chunk);
    framed.extend_from_slice(b"\r\n");
    framed
}
