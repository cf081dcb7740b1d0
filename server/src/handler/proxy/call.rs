//! Call of a member: sends the request, reads the head of the response, and moves the content.

use crate::base::coarse_timer::CoarseTimer;
use crate::handler::pipe::{PipeWriter, pipe};
use crate::handler::proxy::ProxyRoute;
use crate::handler::proxy::response::response_fields;
use crate::handler::{HandlerError, Response, ResponseBody};
use crate::limits;
use crate::upstream::{MemberConn, MemberPool};
use crate::wire::h1::body_decoder::{BodyDecoder, BodyLength, BodyStep};
use crate::wire::h1::response_head::{
    ParsedResponse, ResponseHeadBounds, ResponseLength, parse_response_head,
};
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use crate::wire::status::StatusLine;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

thread_local! {
    /// Buffer for bytes received from members, shared by all calls of a worker.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A call in progress, until the head of the response has arrived.
pub(super) struct ProxyCall {
    route: Arc<ProxyRoute>,
    method: Method,
    state: CallState,
    conn: Option<MemberConn>,
    out: Vec<u8>,
    out_at: usize,
    /// Beginning of an incomplete head.
    input: Vec<u8>,
    scanned: usize,
    timer: Option<CoarseTimer>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum CallState {
    Begin,
    Connecting,
    Sending,
    Waiting,
}

impl ProxyCall {
    pub(super) fn new(route: Arc<ProxyRoute>, method: Method, out: Vec<u8>) -> ProxyCall {
        ProxyCall {
            route,
            method,
            state: CallState::Begin,
            conn: None,
            out,
            out_at: 0,
            input: Vec::new(),
            scanned: 0,
            timer: None,
        }
    }

    fn pool(&self) -> &Arc<MemberPool> {
        &self.route.pool
    }

    fn begin(&mut self) -> io::Result<CallState> {
        self.out_at = 0;
        if let Some(conn) = self.pool().take_idle() {
            self.conn = Some(conn);
            return Ok(CallState::Sending);
        }
        let (conn, is_connected) = MemberConn::begin(&self.pool().address)?;
        self.conn = Some(conn);
        Ok(match is_connected {
            true => CallState::Sending,
            false => CallState::Connecting,
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(conn) = &mut self.conn else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while self.out_at < self.out.len() {
            self.out_at += ready!(conn.poll_write(cx, &self.out[self.out_at..]))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads until the head of the response is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, HandlerError>> {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(limits::READ_BUFFER_BYTES, 0);
            loop {
                let kept = self.input.len();
                scratch[..kept].copy_from_slice(&self.input);
                let Some(conn) = &mut self.conn else {
                    return Poll::Ready(Err(failed(Reject::UPSTREAM_LEFT)));
                };
                let read = match ready!(conn.poll_read(cx, &mut scratch[kept..])) {
                    Ok(0) | Err(_) => return Poll::Ready(Err(failed(Reject::UPSTREAM_LEFT))),
                    Ok(read) => read,
                };
                let filled = kept + read;
                match self.take_head(&scratch[..filled]) {
                    Ok(Some(response)) => return Poll::Ready(Ok(response)),
                    Ok(None) => self.input = scratch[..filled].to_vec(),
                    Err(reject) => return Poll::Ready(Err(failed(reject))),
                }
            }
        })
    }

    fn take_head(&mut self, bytes: &[u8]) -> Result<Option<Response>, Reject> {
        let bounds = ResponseHeadBounds {
            head_bytes: 32 << 10,
            fields: 200,
        };
        let parsed = parse_response_head(bytes, &mut self.scanned, self.method, &bounds)?;
        let ParsedResponse::Complete { head, head_bytes } = parsed else {
            return Ok(None);
        };
        let status = StatusLine::new(head.status, head.reason);
        let fields = response_fields(head.fields);
        let rest = &bytes[head_bytes..];
        let keep_alive = head.keep_alive;
        let Some(mut conn) = self.conn.take() else {
            return Err(Reject::UPSTREAM_LEFT);
        };
        conn.record_answer();
        let body = match head.body {
            ResponseLength::None => {
                self.give_back(conn, keep_alive && rest.is_empty());
                ResponseBody::Empty
            }
            ResponseLength::Length(length) if length == rest.len() as u64 => {
                self.give_back(conn, keep_alive);
                ResponseBody::Whole(rest.to_vec())
            }
            length => self.stream(conn, rest, length, keep_alive),
        };
        Ok(Some(Response::new(status, fields, body)))
    }

    fn give_back(&self, conn: MemberConn, is_reusable: bool) {
        if is_reusable {
            self.pool().put_idle(conn, Instant::now());
        }
    }

    fn stream(
        &self,
        conn: MemberConn,
        rest: &[u8],
        length: ResponseLength,
        keep_alive: bool,
    ) -> ResponseBody {
        let (writer, reader) = pipe(limits::PIPE_BYTES);
        let (decoder, length) = match length {
            ResponseLength::Length(length) => (
                Some(BodyDecoder::new(BodyLength::Length(length))),
                Some(length),
            ),
            ResponseLength::Chunked => (Some(BodyDecoder::new(BodyLength::Chunked)), None),
            ResponseLength::None | ResponseLength::UntilClose => (None, None),
        };
        let pump = ResponsePump {
            pool: Arc::clone(self.pool()),
            conn: Some(conn),
            decoder,
            keep_alive,
            rest: rest.to_vec(),
            writer: Some(writer),
        };
        ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(pump),
        }
    }
}

impl Future for ProxyCall {
    type Output = Result<Response, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        loop {
            call.state = match call.state {
                CallState::Begin => match call.begin() {
                    Ok(state) => state,
                    Err(_) => return Poll::Ready(Err(failed(Reject::UPSTREAM_UNREACHABLE))),
                },
                CallState::Connecting => match call.conn.as_mut().map(|it| it.poll_connected(cx)) {
                    Some(Poll::Pending) => return Poll::Pending,
                    Some(Poll::Ready(Ok(()))) => CallState::Sending,
                    _ => return Poll::Ready(Err(failed(Reject::UPSTREAM_UNREACHABLE))),
                },
                CallState::Sending => match ready!(call.poll_send(cx)) {
                    Ok(()) => CallState::Waiting,
                    Err(_) => return Poll::Ready(Err(failed(Reject::UPSTREAM_LEFT))),
                },
                CallState::Waiting => {
                    let polled = call.poll_head(cx);
                    if polled.is_pending() && call.timer.is_none() {
                        let timeout = call.pool().settings.first_byte_timeout;
                        let deadline = tokio::time::Instant::now() + timeout;
                        call.timer = Some(CoarseTimer::new(deadline, cx.waker()));
                    }
                    return polled;
                }
            }
        }
    }
}

fn failed(reject: Reject) -> HandlerError {
    HandlerError::new("proxy", reject)
}

/// Moves the content of a response from the member to the client.
struct ResponsePump {
    pool: Arc<MemberPool>,
    conn: Option<MemberConn>,
    /// None for a body that ends with the connection.
    decoder: Option<BodyDecoder>,
    keep_alive: bool,
    /// Received bytes that are not decoded.
    rest: Vec<u8>,
    writer: Option<PipeWriter>,
}

impl Future for ResponsePump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let pump = &mut *self;
        loop {
            let Some(writer) = &mut pump.writer else {
                return Poll::Ready(());
            };
            let room = match ready!(writer.poll_room(cx)) {
                Ok(room) => room,
                Err(_) => return Poll::Ready(()),
            };
            if !pump.rest.is_empty() {
                let taken = pump.rest.len().min(room);
                let part: Vec<u8> = pump.rest.drain(..taken).collect();
                if pump.decode(&part) {
                    return Poll::Ready(());
                }
                continue;
            }
            let ended = SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(limits::READ_BUFFER_BYTES, 0);
                let Some(conn) = &mut pump.conn else {
                    return Poll::Ready(true);
                };
                let into = room.min(scratch.len());
                match ready!(conn.poll_read(cx, &mut scratch[..into])) {
                    Ok(0) | Err(_) => {
                        if pump.decoder.is_none()
                            && let Some(writer) = pump.writer.take()
                        {
                            writer.finish();
                        }
                        Poll::Ready(true)
                    }
                    Ok(read) => Poll::Ready(pump.decode(&scratch[..read])),
                }
            });
            if ready!(ended) {
                return Poll::Ready(());
            }
        }
    }
}

impl ResponsePump {
    /// Passes received bytes on. Returns true after the end of the body.
    fn decode(&mut self, bytes: &[u8]) -> bool {
        let Some(writer) = &mut self.writer else {
            return true;
        };
        let Some(decoder) = &mut self.decoder else {
            return writer.write_some(bytes).is_err();
        };
        let mut at = 0;
        loop {
            match decoder.step(&bytes[at..]) {
                Ok(BodyStep::Data { consumed, payload }) => {
                    if writer.write_some(&bytes[at..][payload]).is_err() {
                        return true;
                    }
                    at += consumed;
                }
                Ok(BodyStep::More { .. }) => return false,
                Ok(BodyStep::End { consumed }) => {
                    let is_clean = at + consumed == bytes.len() && self.rest.is_empty();
                    if let (Some(conn), true) = (self.conn.take(), is_clean && self.keep_alive) {
                        self.pool.put_idle(conn, Instant::now());
                    }
                    if let Some(writer) = self.writer.take() {
                        writer.finish();
                    }
                    return true;
                }
                Err(_) => return true,
            }
        }
    }
}
