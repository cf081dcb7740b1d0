//! One attempt to get a response over HTTP/1.1: the request on one connection, up to the head of the final response.

use crate::handler::pipe::{counted_pipe, pipe};
use crate::handler::proxy::body::OutgoingBody;
use crate::handler::proxy::content::{ContentTransfer, Transfer};
use crate::handler::proxy::exchange::{Exchange, SendError};
use crate::handler::proxy::failure::{AttemptFailure, FailureStage, line, log_surplus};
use crate::handler::proxy::request_head::{self, MemberOrigin};
use crate::handler::proxy::response_head::{AttemptTimes, HeadReader, announced, with_member};
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::proxy::tunnel::Tunnel;
use crate::handler::proxy::{failure, place};
use crate::handler::{Request, Response, ResponseBody};
use crate::ledger::body_memory::BodyReservation;
use crate::ledger::shared_limit::SharedLimit;
use crate::limits::{PIPE_BYTES, PROXY_CONTINUE_SECONDS};
use crate::upstream::{MemberConn, MemberPool, with_receive_buffer};
use base::coarse_timer::CoarseTimer;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use wire::h1::body_decoder::BodyDecoder;
use wire::h1::response_head::{
    ParsedResponse, ResponseHead, ResponseHeadBounds, ResponseLength, parse_response_head,
};
use wire::limits::{PROXY_FIELDS_MAX, PROXY_HEAD_BYTES_MAX, PROXY_INTERIM_RESPONSES_MAX};
use wire::reject::Reject;
use wire::request_head::Method;
use wire::status::{Status, StatusLine};

/// A request on one connection.
pub(super) struct Attempt {
    exchange: Exchange,
    pool: Arc<MemberPool>,
    times: AttemptTimes,
    /// Received beginning of an incomplete head.
    input: Vec<u8>,
    scanned: usize,
    interim_responses: u32,
    timer: Option<CoarseTimer>,
    /// Memory of the head for the member.
    _out_memory: BodyReservation,
    /// Memory of the bytes that the member may send ahead.
    window: BodyReservation,
}

/// One head of a member.
enum TakenHead {
    /// Length of an interim head.
    Interim(usize),
    Final(Response),
    Partial,
}

const HEAD_BOUNDS: ResponseHeadBounds = ResponseHeadBounds {
    head_bytes: PROXY_HEAD_BYTES_MAX,
    fields: PROXY_FIELDS_MAX,
};

impl Attempt {
    /// Begins to send the request on a connection, which comes with the memory for its window.
    pub(super) fn new(
        (mut conn, window): (MemberConn, BodyReservation),
        pool: Arc<MemberPool>,
        connect_time: Option<Duration>,
        request: &Request,
        route: &Arc<ProxyRoute>,
        body: &mut OutgoingBody,
    ) -> Result<Attempt, AttemptFailure> {
        let expects = request.expects_continue && body.has_rest();
        let member = MemberOrigin::of(&pool);
        let encoded = request_head::encode(request, route, member, body.length(), expects);
        let refused = |reject| AttemptFailure::new(FailureStage::Client, reject);
        let mut out = encoded.map_err(refused)?;
        let out_memory = place::reserve_out(&request.memory, out.len());
        let out_memory = out_memory.map_err(AttemptFailure::none)?;
        let rest = body.take(&mut out, expects, route);
        if rest.is_some() {
            place::reserve_upload(&request.memory, &mut conn);
        }
        conn.begin_use(request.peer.into());
        Ok(Attempt {
            exchange: Exchange::new(conn, out, rest),
            pool,
            times: AttemptTimes::new(connect_time),
            input: Vec::new(),
            scanned: 0,
            interim_responses: 0,
            timer: None,
            _out_memory: out_memory,
            window,
        })
    }

    /// Sends the request and reads the head of the response.
    pub(super) fn poll(
        &mut self,
        call: &mut HeadReader<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response, AttemptFailure>> {
        let sent_before = self.exchange.sent_bytes();
        let sent = self.exchange.poll_send(cx);
        if self.exchange.sent_bytes() > sent_before {
            // The wait for the first byte begins at the end of the request.
            self.timer = None;
        }
        match sent {
            Poll::Ready(Err(SendError::Client)) => {
                let gone = AttemptFailure::new(FailureStage::Client, Reject::HANDLER_FAILED);
                return Poll::Ready(Err(gone));
            }
            // The member may have sent a response before it closed the connection.
            Poll::Ready(Err(SendError::Member)) => self.exchange.stop_sending(),
            _ => {}
        }
        let polled = self.poll_head(call, cx);
        if polled.is_pending() {
            if self.exchange.poll_told(cx, false).is_ready() {
                call.route.refusals.increment(SharedLimit::MemberPlaces);
                let told = AttemptFailure::new(FailureStage::Client, Reject::CALL_SHARE_TAKEN);
                return Poll::Ready(Err(told));
            }
            return self.poll_silence(cx).map(Err);
        }
        polled
    }

    /// Ready with the failure of a member that took too long for its response.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<AttemptFailure> {
        if self.exchange.waits_for_client() {
            // The client's connection has its own deadline.
            self.timer = None;
            return Poll::Pending;
        }
        if self.exchange.is_body_held() {
            ready!(self.poll_timer(cx, Duration::from_secs(PROXY_CONTINUE_SECONDS)));
            self.timer = None;
            self.exchange.release_body();
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let timeout = self.pool.settings.first_byte_timeout;
        ready!(self.poll_timer(cx, timeout));
        Poll::Ready(AttemptFailure::silent(timeout))
    }

    /// Ready if `timeout` has passed since the first call of the current wait.
    fn poll_timer(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        CoarseTimer::poll_timeout(&mut self.timer, timeout, cx)
    }

    /// Reads until the head of the final response is complete.
    fn poll_head(
        &mut self,
        call: &mut HeadReader<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response, AttemptFailure>> {
        with_receive_buffer(|buffer| {
            loop {
                let kept = self.input.len();
                buffer[..kept].copy_from_slice(&self.input);
                let most = kept + place::head_bytes(&call.request.memory);
                let end = most.min(buffer.len());
                let read = match ready!(self.exchange.poll_read(cx, &mut buffer[kept..end])) {
                    Ok(0) => return Poll::Ready(Err(self.left(None))),
                    Ok(read) => read,
                    Err(error) => return Poll::Ready(Err(self.left(Some(error)))),
                };
                if let Some(lease) = call.lease.as_mut() {
                    // The answer has begun, so the request no longer goes to another member.
                    lease.end_watch();
                }
                let filled = kept + read;
                if let Some(response) = self.take_heads(call, &buffer[..filled])? {
                    return Poll::Ready(Ok(response));
                }
            }
        })
    }

    /// Returns true if the call waits for the client to send more of the request, and the bytes sent so far.
    pub(super) fn upload(&self) -> (bool, u64) {
        (self.exchange.waits_for_client(), self.exchange.sent_bytes())
    }

    /// Returns true if the member has sent a part of an answer.
    pub(super) fn has_answer(&self) -> bool {
        !self.input.is_empty() || self.interim_responses > 0
    }

    /// Returns the failure of a member that closed the connection before its response.
    fn left(&self, error: Option<io::Error>) -> AttemptFailure {
        let stage = match (self.has_answer(), self.exchange.is_on_reused_connection()) {
            (true, _) => FailureStage::InResponse,
            (false, true) => FailureStage::StaleConnection,
            (false, false) => FailureStage::BeforeResponse,
        };
        AttemptFailure::left(stage, error)
    }

    /// Takes the heads in `bytes` up to a final head. An incomplete head is kept.
    fn take_heads(
        &mut self,
        call: &mut HeadReader<'_>,
        bytes: &[u8],
    ) -> Result<Option<Response>, AttemptFailure> {
        let mut at = 0;
        loop {
            let taken = self.take_head(call, &bytes[at..]);
            let failure = |reject| match reject {
                // The member is not at fault.
                Reject::BODY_MEMORY_FULL => AttemptFailure::none(reject),
                Reject::UPSTREAM_BUSY => {
                    AttemptFailure::none(reject).because(failure::TUNNELS_FULL)
                }
                _ => AttemptFailure {
                    source: failure::malformed_head_cause(&bytes[at..], reject)
                        .map(io::Error::other),
                    ..AttemptFailure::new(FailureStage::InResponse, reject)
                },
            };
            match taken.map_err(failure)? {
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

    fn take_head(&mut self, call: &mut HeadReader<'_>, bytes: &[u8]) -> Result<TakenHead, Reject> {
        let method = call.request.method;
        let parsed = parse_response_head(bytes, &mut self.scanned, method, &HEAD_BOUNDS)?;
        let ParsedResponse::Complete { head, head_bytes } = parsed else {
            return Ok(TakenHead::Partial);
        };
        match head.status.0 {
            101 => {
                let response = self.take_switch(call, &head, &bytes[head_bytes..])?;
                Ok(TakenHead::Final(response))
            }
            100..200 => {
                self.take_interim(call, &head)?;
                Ok(TakenHead::Interim(head_bytes))
            }
            _ => {
                let response = self.take_response(call, &head, &bytes[head_bytes..])?;
                Ok(TakenHead::Final(response))
            }
        }
    }

    /// Opens the tunnel of a protocol switch that the client requested.
    fn take_switch(
        &mut self,
        call: &mut HeadReader<'_>,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> Result<Response, Reject> {
        let Some(upgrade) = call.request.upgrade.clone() else {
            return Err(Reject::UPSTREAM_UPGRADE_UNASKED);
        };
        let protocol = head.upgrade.unwrap_or_default();
        let is_asked = protocol.eq_ignore_ascii_case(&upgrade.protocol);
        let Some(mut conn) = self.exchange.take_finished().filter(|_| is_asked) else {
            return Err(Reject::UPSTREAM_UPGRADE_UNASKED);
        };
        let (memory, window) = (&call.request.memory, &mut self.window);
        place::reserve_stream(memory, &mut conn, None, rest.len(), window)?;
        let mut fields = call.fields(head, &self.pool.authority)?;
        let member = call.report_answer(head.status, &mut fields, &self.times);
        let status = if upgrade.is_extended_connect {
            // A successful CONNECT has the status 200, and no proof of the handshake (RFC 8441 §5).
            fields.retain(|name, _| !name.eq_ignore_ascii_case(b"sec-websocket-accept"));
            Status::OK
        } else {
            fields.push(b"Upgrade", protocol);
            head.status
        };
        let (_, nothing) = pipe(1);
        let from_client = std::mem::replace(&mut call.request.body, nothing);
        let (writer, reader) = counted_pipe(PIPE_BYTES, &call.request.memory);
        let lease = call.lease.take();
        let refusals = Arc::clone(&call.route.refusals);
        let tunnel = Tunnel::new(conn, lease, from_client, (writer, rest.to_vec()), refusals);
        let body = ResponseBody::Stream {
            length: None,
            reader,
            work: Box::pin(tunnel),
        };
        Ok(with_member(Response::new(status, fields, body), member))
    }

    /// Handles an interim response: 100 (Continue) lets a held body begin, and others go to the client.
    fn take_interim(
        &mut self,
        call: &mut HeadReader<'_>,
        head: &ResponseHead<'_>,
    ) -> Result<(), Reject> {
        self.interim_responses += 1;
        if self.interim_responses > PROXY_INTERIM_RESPONSES_MAX {
            return Err(Reject::UPSTREAM_INTERIM_FLOOD);
        }
        match head.status {
            Status(100) => self.exchange.release_body(),
            _ => call.send_interim(head, &self.pool.authority)?,
        }
        Ok(())
    }

    /// Makes the response for the client. `rest` holds received bytes behind the head.
    fn take_response(
        &mut self,
        call: &mut HeadReader<'_>,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> Result<Response, Reject> {
        let whole = match head.body {
            ResponseLength::None => Some(0),
            ResponseLength::Length(length) if length <= rest.len() as u64 => Some(length as usize),
            _ => None,
        };
        if whole.is_none() {
            self.reserve_content(call.request, head.body, rest.len())?;
        }
        let is_event_stream = match whole {
            None => place::begin_stream(call.lease.as_mut(), head)?,
            Some(_) => false,
        };
        let mut fields = call.fields(head, &self.pool.authority)?;
        let member = call.report_answer(head.status, &mut fields, &self.times);
        let status = StatusLine::new(head.status, head.reason);
        let Some(length) = whole else {
            let body = self.stream(call, head, rest, is_event_stream);
            return Ok(with_member(Response::new(status, fields, body), member));
        };
        let has_surplus = length < rest.len();
        if let Some(mut lease) = call.lease.take() {
            lease.record_content();
            lease.add_sent(self.exchange.sent_bytes());
            lease.add_received(self.exchange.received_bytes());
            if has_surplus {
                let (balancer, member) = (call.route.balancer.name(), lease.member().name());
                log_surplus(&line(call.request), balancer, Some(member));
            }
        }
        if head.keep_alive
            && !has_surplus
            && let Some(conn) = self.exchange.take_finished()
        {
            self.pool.put_idle(conn, Instant::now());
        }
        let body = match (head.body, head.content_length) {
            (ResponseLength::None, length) if call.request.method == Method::Head => {
                announced(length)
            }
            _ if length == 0 => ResponseBody::Empty,
            _ => ResponseBody::Whole(rest[..length].to_vec()),
        };
        Ok(with_member(Response::new(status, fields, body), member))
    }

    /// Reserves memory for content that is streamed, of which `received` bytes have arrived behind the head.
    fn reserve_content(
        &mut self,
        request: &Request,
        length: ResponseLength,
        received: usize,
    ) -> Result<(), Reject> {
        let Some(conn) = self.exchange.conn_mut() else {
            return Ok(());
        };
        let length = match length {
            ResponseLength::Length(length) => Some(length),
            _ => None,
        };
        place::reserve_stream(&request.memory, conn, length, received, &mut self.window)
    }

    /// Returns a streamed body. The transfer takes over the connection and the lease.
    fn stream(
        &mut self,
        call: &mut HeadReader<'_>,
        head: &ResponseHead<'_>,
        rest: &[u8],
        is_event_stream: bool,
    ) -> ResponseBody {
        let (mut writer, reader) = counted_pipe(PIPE_BYTES, &call.request.memory);
        let length = match head.body {
            ResponseLength::Length(length) => Some(length),
            _ => None,
        };
        let bytes = length.map_or(0, |length| length.min(PIPE_BYTES as u64));
        writer.widen(bytes as usize);
        let mut decoder = head.body.framed().map(BodyDecoder::new);
        let mut rest = rest;
        if let (Some(_), Some(decoder)) = (length, &mut decoder) {
            // All bytes are content, fewer than the whole content and than the pipe holds.
            let taken = writer.write_some(rest).unwrap_or_default();
            decoder.skip(taken as u64);
            rest = &rest[taken..];
        }
        let lease = call.lease.take();
        let mut transfer = Transfer::new(&self.pool, call.route, lease, writer, call.request);
        transfer.set_event_stream(is_event_stream);
        let transfer = ContentTransfer {
            transfer,
            exchange: self.exchange.take(),
            decoder,
            keep_alive: head.keep_alive,
            rest: rest.to_vec(),
            rest_at: 0,
            has_few: false,
            trailers: Vec::new(),
        };
        ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(transfer),
        }
    }
}
