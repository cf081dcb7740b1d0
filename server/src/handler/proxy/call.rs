//! Call of a member: attempts to get a response, at further members where a request may be repeated.

use crate::base::coarse_timer::CoarseTimer;
use crate::handler::call::body::budget::BodyReservation;
use crate::handler::call::body::request_body::{BodyRest, RequestBody};
use crate::handler::interim::InterimResponse;
use crate::handler::pipe::{PipeReader, pipe};
use crate::handler::proxy::content::ContentTransfer;
use crate::handler::proxy::exchange::{Exchange, SendError, StreamedBody, with_receive_buffer};
use crate::handler::proxy::retry::{AttemptFailure, FailureStage, is_idempotent};
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::proxy::{request_head, response_head};
use crate::handler::{HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::limits::{
    PIPE_BYTES, PROXY_CONTINUE_SECONDS, PROXY_FIELDS_MAX, PROXY_HEAD_BYTES_MAX,
    PROXY_INTERIM_RESPONSES_MAX,
};
use crate::upstream::{MemberConn, MemberPool};
use crate::wire::h1::body_decoder::{BodyDecoder, BodyLength};
use crate::wire::h1::response_head::{
    ParsedResponse, ResponseHead, ResponseHeadBounds, ResponseLength, parse_response_head,
};
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::{Status, StatusLine};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Starts the call of a member with the client's request.
pub(super) fn begin(
    route: &Arc<ProxyRoute>,
    mut request: Request,
) -> LocalBoxFuture<Result<Response, HandlerError>> {
    if let Err(reject) = request_head::check(&request, route) {
        return Box::pin(std::future::ready(Err(HandlerError::new(NAME, reject))));
    }
    let route = Arc::clone(route);
    match request.length {
        BodyLength::None | BodyLength::Length(0) => {
            let body = OutgoingBody::none(request.length);
            Box::pin(ProxyCall::new(route, request, body))
        }
        length => {
            let expects = request.expects_continue;
            request.body.hold(expects);
            Box::pin(async move {
                let body = OutgoingBody::receive(&route, &mut request, length).await?;
                ProxyCall::new(route, request, body).await
            })
        }
    }
}

/// Name of the handler in the log.
const NAME: &str = "proxy";

/// Body of a request, as sent to a member.
struct OutgoingBody {
    /// Framing for the member.
    length: BodyLength,
    /// The body from its beginning, as far as gathered.
    gathered: Vec<u8>,
    /// Memory of the gathered part.
    _reservation: Option<BodyReservation>,
    /// Rest of the body; None if the whole body is gathered, or once an attempt has begun to send the rest.
    rest: Option<PipeReader>,
    /// True while the rest is unread.
    is_replayable: bool,
}

impl OutgoingBody {
    fn none(length: BodyLength) -> OutgoingBody {
        OutgoingBody {
            length,
            gathered: Vec::new(),
            _reservation: None,
            rest: None,
            is_replayable: true,
        }
    }

    /// Gathers a short body before a member is taken, so that a slow client occupies no member. The body of a
    /// client that waits for 100 (Continue) stays with the client until the member wants the body.
    async fn receive(
        route: &ProxyRoute,
        request: &mut Request,
        length: BodyLength,
    ) -> Result<OutgoingBody, HandlerError> {
        let (_, nothing) = pipe(1);
        let reader = std::mem::replace(&mut request.body, nothing);
        if request.expects_continue {
            return Ok(OutgoingBody {
                rest: Some(reader),
                ..OutgoingBody::none(length)
            });
        }
        let budget = &route.body_budget;
        let received = RequestBody::receive(reader, length, request.peer, budget, None).await;
        let (body, known) = received.map_err(|error| error.fault(&line(request)))?;
        let Some(body) = body else {
            return Ok(OutgoingBody::none(length));
        };
        Ok(OutgoingBody {
            length: known.map_or(BodyLength::Chunked, BodyLength::Length),
            gathered: body.first_part,
            _reservation: body.reservation,
            rest: body.rest.and_then(|rest| match rest {
                BodyRest::Streamed(reader) => Some(reader),
                BodyRest::Spooled(_) => None,
            }),
            is_replayable: true,
        })
    }
}

/// A call in progress, until the head of the response has arrived.
struct ProxyCall {
    route: Arc<ProxyRoute>,
    request: Request,
    body: OutgoingBody,
    state: CallState,
    /// Attempts that have failed.
    failed: u8,
    /// True if the next attempt needs a new connection: the request must not meet a connection that the
    /// member is about to close.
    needs_new_connection: bool,
    /// Received beginning of an incomplete head.
    input: Vec<u8>,
    scanned: usize,
    interim_responses: u32,
    timer: Option<CoarseTimer>,
}

enum CallState {
    Begin,
    Connecting(MemberConn),
    Exchanging(Box<Exchange>),
}

/// One head of a member.
enum TakenHead {
    /// Length of an interim head.
    Interim(usize),
    Final(Response),
    Partial,
}

impl ProxyCall {
    fn new(route: Arc<ProxyRoute>, request: Request, body: OutgoingBody) -> ProxyCall {
        let needs_new_connection = !is_idempotent(request.method);
        ProxyCall {
            route,
            request,
            body,
            state: CallState::Begin,
            failed: 0,
            needs_new_connection,
            input: Vec::new(),
            scanned: 0,
            interim_responses: 0,
            timer: None,
        }
    }

    fn pool(&self) -> &Arc<MemberPool> {
        &self.route.pool
    }

    /// Takes a connection to the member.
    fn begin(&mut self) -> Result<CallState, AttemptFailure> {
        let idle = match self.needs_new_connection {
            true => None,
            false => self.pool().take_idle(),
        };
        if let Some(conn) = idle {
            return Ok(self.exchange(conn));
        }
        let (conn, is_connected) = self.pool().connect().map_err(AttemptFailure::connect)?;
        Ok(match is_connected {
            true => self.exchange(conn),
            false => CallState::Connecting(conn),
        })
    }

    /// Begins to send the request on `conn`.
    fn exchange(&mut self, conn: MemberConn) -> CallState {
        self.timer = None;
        self.input = Vec::new();
        self.scanned = 0;
        let expects = self.request.expects_continue && self.body.rest.is_some();
        let member_host = &self.route.member_host;
        let length = self.body.length;
        let mut out =
            request_head::encode(&self.request, &self.route, member_host, length, expects);
        let is_chunked = length == BodyLength::Chunked;
        if is_chunked && !self.body.gathered.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", self.body.gathered.len()).as_bytes());
            out.extend_from_slice(&self.body.gathered);
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(&self.body.gathered);
        }
        let streamed = self.body.rest.take().map(|reader| {
            self.body.is_replayable = false;
            StreamedBody {
                reader,
                is_chunked,
                is_held: expects,
            }
        });
        CallState::Exchanging(Box::new(Exchange::new(conn, out, streamed)))
    }

    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::Connecting(conn) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Begin));
        };
        let connected = conn.poll_connected(cx);
        if connected.is_pending() {
            let timeout = self.pool().settings.connect_timeout;
            ready!(self.poll_timer(cx, timeout));
            return Poll::Ready(Err(AttemptFailure {
                reject: Reject::UPSTREAM_CONNECT_SLOW,
                ..AttemptFailure::connect(io::ErrorKind::TimedOut.into())
            }));
        }
        ready!(connected).map_err(AttemptFailure::connect)?;
        match std::mem::replace(&mut self.state, CallState::Begin) {
            CallState::Connecting(conn) => Poll::Ready(Ok(self.exchange(conn))),
            other => Poll::Ready(Ok(other)),
        }
    }

    /// Ready if `timeout` has passed since the first call of the current wait.
    fn poll_timer(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        let deadline = tokio::time::Instant::now() + timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| CoarseTimer::new(deadline, cx.waker()));
        match timer.has_passed() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Future for ProxyCall {
    type Output = Result<Response, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        loop {
            let next = match &call.state {
                CallState::Begin => call.begin(),
                CallState::Connecting(_) => ready!(call.poll_connected(cx)),
                CallState::Exchanging(_) => match ready!(call.poll_exchange(cx)) {
                    Ok(response) => return Poll::Ready(Ok(response)),
                    Err(failure) => Err(failure),
                },
            };
            call.state = match next {
                Ok(state) => state,
                Err(failure) => match call.may_go_on(&failure) {
                    true => CallState::Begin,
                    false => return Poll::Ready(Err(call.failure(failure))),
                },
            };
        }
    }
}

impl ProxyCall {
    /// Sends the request and reads the head of the response.
    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, AttemptFailure>> {
        let mut state = std::mem::replace(&mut self.state, CallState::Begin);
        let CallState::Exchanging(exchange) = &mut state else {
            return Poll::Pending;
        };
        let sent = exchange.poll_send(cx);
        let polled = match sent {
            Poll::Ready(Err(SendError::Client)) => Poll::Ready(Err(AttemptFailure::new(
                FailureStage::Client,
                Reject::HANDLER_FAILED,
            ))),
            // The member may have sent a response before it closed the connection.
            Poll::Ready(Err(SendError::Member(_))) => {
                exchange.stop_sending();
                self.poll_head(exchange, cx)
            }
            _ => self.poll_head(exchange, cx),
        };
        if polled.is_pending() {
            if let Poll::Ready(failure) = self.poll_silence(exchange, cx) {
                return Poll::Ready(Err(failure));
            }
            self.state = state;
        }
        polled
    }

    /// Returns the failure of a member that took too long for its response.
    fn poll_silence(
        &mut self,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Poll<AttemptFailure> {
        if exchange.waits_for_client() {
            // The client's connection has its own deadline.
            self.timer = None;
            return Poll::Pending;
        }
        if exchange.is_body_held() {
            ready!(self.poll_timer(cx, Duration::from_secs(PROXY_CONTINUE_SECONDS)));
            self.timer = None;
            exchange.release_body();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let timeout = self.pool().settings.first_byte_timeout;
        ready!(self.poll_timer(cx, timeout));
        Poll::Ready(AttemptFailure::new(
            FailureStage::Silent,
            Reject::UPSTREAM_SLOW,
        ))
    }

    /// Reads until the head of the final response is complete.
    fn poll_head(
        &mut self,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response, AttemptFailure>> {
        with_receive_buffer(|buffer| {
            loop {
                let kept = self.input.len();
                buffer[..kept].copy_from_slice(&self.input);
                let read = match ready!(exchange.poll_read(cx, &mut buffer[kept..])) {
                    Ok(0) => return Poll::Ready(Err(self.left(exchange, None))),
                    Ok(read) => read,
                    Err(error) => return Poll::Ready(Err(self.left(exchange, Some(error)))),
                };
                let filled = kept + read;
                if let Some(response) = self.take_heads(exchange, &buffer[..filled])? {
                    return Poll::Ready(Ok(response));
                }
            }
        })
    }

    /// Returns the failure of a member that closed the connection before its response.
    fn left(&self, exchange: &Exchange, error: Option<io::Error>) -> AttemptFailure {
        let has_begun = !self.input.is_empty() || self.interim_responses > 0;
        let stage = match (has_begun, exchange.is_on_reused_connection()) {
            (true, _) => FailureStage::InResponse,
            (false, true) => FailureStage::StaleConnection,
            (false, false) => FailureStage::BeforeResponse,
        };
        AttemptFailure::left(stage, error)
    }

    /// Takes the heads in `bytes` up to a final head. An incomplete head is kept.
    fn take_heads(
        &mut self,
        exchange: &mut Exchange,
        bytes: &[u8],
    ) -> Result<Option<Response>, AttemptFailure> {
        let mut at = 0;
        loop {
            let taken = self.take_head(exchange, &bytes[at..]);
            let malformed = |reject| AttemptFailure::new(FailureStage::InResponse, reject);
            match taken.map_err(malformed)? {
                TakenHead::Interim(head_bytes) => {
                    at += head_bytes;
                    self.scanned = 0;
                }
                TakenHead::Final(response) => return Ok(Some(response)),
                TakenHead::Partial => {
                    self.input = bytes[at..].to_vec();
                    return Ok(None);
                }
            }
        }
    }

    fn take_head(&mut self, exchange: &mut Exchange, bytes: &[u8]) -> Result<TakenHead, Reject> {
        let method = self.request.method;
        let parsed = parse_response_head(bytes, &mut self.scanned, method, &HEAD_BOUNDS)?;
        let ParsedResponse::Complete { head, head_bytes } = parsed else {
            return Ok(TakenHead::Partial);
        };
        if head.status.0 < 200 && head.status.0 != 101 {
            self.take_interim(exchange, &head)?;
            return Ok(TakenHead::Interim(head_bytes));
        }
        if head.status.0 == 101 {
            return Err(Reject::UPSTREAM_UPGRADE_UNASKED);
        }
        let response = self.take_response(exchange, &head, &bytes[head_bytes..]);
        Ok(TakenHead::Final(response))
    }

    /// Handles an interim response: 100 (Continue) lets a held body begin, and others go to the client.
    fn take_interim(
        &mut self,
        exchange: &mut Exchange,
        head: &ResponseHead<'_>,
    ) -> Result<(), Reject> {
        self.interim_responses += 1;
        if self.interim_responses > PROXY_INTERIM_RESPONSES_MAX {
            return Err(Reject::UPSTREAM_INTERIM_FLOOD);
        }
        match head.status {
            Status(100) => exchange.release_body(),
            status => self.request.interim.send(InterimResponse {
                status,
                fields: response_head::fields(head, &self.route),
            }),
        }
        Ok(())
    }

    /// Makes the response for the client. `rest` holds received bytes behind the head.
    fn take_response(
        &mut self,
        exchange: &mut Exchange,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> Response {
        let status = StatusLine::new(head.status, head.reason);
        let fields = response_head::fields(head, &self.route);
        let whole = match head.body {
            ResponseLength::None => Some(0),
            ResponseLength::Length(length) if length <= rest.len() as u64 => Some(length as usize),
            _ => None,
        };
        let Some(length) = whole else {
            return self.stream(exchange, head, rest, status, fields);
        };
        if let Some(conn) = exchange.take_finished()
            && head.keep_alive
            && length == rest.len()
        {
            self.pool().put_idle(conn, Instant::now());
        }
        let body = match (head.body, head.content_length) {
            // The length of the content of a GET (RFC 9110 §9.3.2).
            (ResponseLength::None, Some(length)) if self.request.method == Method::Head => {
                let (writer, reader) = pipe(0);
                writer.finish();
                ResponseBody::Stream {
                    length: Some(length),
                    reader,
                    work: Box::pin(std::future::ready(())),
                }
            }
            _ if length == 0 => ResponseBody::Empty,
            _ => ResponseBody::Whole(rest[..length].to_vec()),
        };
        Response::new(status, fields, body)
    }

    fn stream(
        &mut self,
        exchange: &mut Exchange,
        head: &ResponseHead<'_>,
        rest: &[u8],
        status: StatusLine,
        fields: ResponseFields,
    ) -> Response {
        let (writer, reader) = pipe(PIPE_BYTES);
        let length = match head.body {
            ResponseLength::Length(length) => Some(length),
            _ => None,
        };
        let transfer = ContentTransfer {
            pool: Arc::clone(self.pool()),
            exchange: exchange.take(),
            decoder: head.body.framed().map(BodyDecoder::new),
            keep_alive: head.keep_alive,
            rest: rest.to_vec(),
            rest_at: 0,
            trailers: Vec::new(),
            writer,
            line: line(&self.request).into(),
            timer: None,
        };
        let body = ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(transfer),
        };
        Response::new(status, fields, body)
    }

    /// Returns true if the request goes to a member again after a failure.
    fn may_go_on(&mut self, failure: &AttemptFailure) -> bool {
        let is_idempotent = is_idempotent(self.request.method);
        let goes_on = failure.may_repeat(is_idempotent, self.body.is_replayable)
            && self.failed < ATTEMPTS_MAX;
        self.timer = None;
        self.failed += 1;
        self.needs_new_connection |= failure.stage == FailureStage::StaleConnection;
        goes_on
    }

    fn failure(&self, failure: AttemptFailure) -> HandlerError {
        let address = &self.pool().address;
        let why = match failure.source {
            Some(source) => format!("{}: {address}: {source}", line(&self.request)),
            None => format!("{}: {address}", line(&self.request)),
        };
        HandlerError::because(NAME, failure.reject, why)
    }
}

/// Largest number of failed attempts before the last one.
const ATTEMPTS_MAX: u8 = 3;

const HEAD_BOUNDS: ResponseHeadBounds = ResponseHeadBounds {
    head_bytes: PROXY_HEAD_BYTES_MAX,
    fields: PROXY_FIELDS_MAX,
};

/// Returns the request as `GET /path?query` for the log.
fn line(request: &Request) -> String {
    crate::handler::call::request::line(request.method, &request.raw_path, request.query.as_deref())
}
