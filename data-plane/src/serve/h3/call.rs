//! A handler call on an HTTP/3 stream. The request's content goes to the handler while the response goes to
//! the client, and neither direction waits for the other. The peer's flow-control window opens only as the
//! handler takes content.

use crate::handler::interim::InterimReceiver;
use crate::handler::pipe::{PipeWriter, counted_pipe};
use crate::handler::route_handler::HandlerCall;
use crate::handler::{Response, ResponseBody};
use crate::ledger::active_requests::RequestPhase;
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::h3::exchange::{H3Exchange, H3ExchangeError, write_chunks};
use crate::serve::h3::session::H3Session;
use crate::serve::rare_events::log_failed_call;
use crate::serve::refusal::Refusal;
use crate::serve::response_body::BodyFill;
use crate::serve::response_head::{Qpack, handler_block, is_without_content};
use crate::serve::response_record::ResponseRecord;
use crate::serve::send_memory::reserve_whole;
use crate::serve::stream_call::{HandlerAnswer, StreamCall, UploadRate};
use crate::serve::subrequest::client_request;
use crate::serve::tunnel::{StreamTunnel, request_tunnel};
use crate::world::World;
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use wire::h3::{H3ErrorCode, frame};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::status::Status;

/// A request during a handler call.
pub(super) struct H3Call {
    call: StreamCall,
    /// Received content that did not fit into the pipe.
    part: Bytes,
    /// True while the call waits for content from the peer.
    wants_body: bool,
    /// Present while the handler waits for a place: content received for a waiting handler doesn't reduce
    /// the connection's receive window.
    queued: Option<WindowExtension>,
    /// The memory of the connection's wide receive window, if the call has reserved it.
    _wide: Option<WideReceiveWindow>,
    /// Bytes of the response that QUIC has not accepted.
    out: [Bytes; 2],
    /// Time when QUIC last accepted bytes of the response.
    moved_ms: u64,
    /// True if `out` holds the end of the response.
    is_last: bool,
    /// True after the end of the client's direction of a tunnel.
    client_ended: bool,
    record: ResponseRecord,
    sent: u64,
    started_us: u64,
}

impl H3Call {
    pub(super) fn begin(
        exchange: &H3Exchange,
        (handler, memory): (HandlerCall, BodyAccount),
        head: &RequestHead<'_>,
        line: &AccessLogEntry<'_>,
        world: &World,
    ) -> H3Call {
        let context = exchange.context();
        let session = &exchange.session;
        let (writer, reader) = counted_pipe(limits::H3_PIPE_BYTES, &memory);
        let has_no_body = exchange.has_no_body();
        let upload = if has_no_body {
            writer.finish();
            None
        } else {
            Some(writer)
        };
        let (status, phase) = (Status::CLIENT_LEFT, RequestPhase::Handler);
        let record = line.keep(status, phase, context, session.who);
        let mut request = client_request(
            context,
            head,
            &session.dispatch_context(),
            line.visitor(),
            reader,
            memory.clone(),
        );
        let interim = InterimReceiver::default();
        request.interim = interim.sender();
        request.active = record.active();
        let now_ms = context.clock.millis();
        let tunnel = request_tunnel(&mut request, head, &handler);
        let tunnel = tunnel.map(|upgrade| Box::new(StreamTunnel::new(upgrade, now_ms)));
        let wide = WideReceiveWindow::open(exchange, &memory);
        let call = StreamCall {
            answering: Some(handler.start(request)),
            interim,
            continue_owed: head.expect_continue && !exchange.ended,
            upload,
            held: 0,
            counted: 0,
            withheld: 0,
            seen: 0,
            rate: UploadRate::new(now_ms),
            tunnel,
            is_head: head.method == Method::Head,
            secure_fields: line.secure_fields().cloned(),
            body_bytes_max: line.body_bytes_max(world),
            error_pages: line.error_pages(),
            download: None,
            holds_end: false,
            memory,
        };
        H3Call {
            call,
            part: Bytes::new(),
            wants_body: false,
            queued: None,
            _wide: wide,
            out: [Bytes::new(), Bytes::new()],
            moved_ms: now_ms,
            is_last: false,
            client_ended: has_no_body,
            record,
            sent: 0,
            started_us: line.started_us,
        }
    }

    /// Moves content from the stream into the handler's pipe.
    fn poll_upload(
        &mut self,
        exchange: &mut H3Exchange,
        cx: &mut Context<'_>,
    ) -> Result<(), H3ExchangeError> {
        self.wants_body = false;
        let is_queued = self.call.upload.as_ref().is_some_and(PipeWriter::is_queued);
        if is_queued != self.queued.is_some() {
            self.queued = is_queued.then(|| WindowExtension::new(&exchange.session));
        }
        while let Some(writer) = self.call.upload.as_mut().filter(|_| !self.client_ended) {
            let room = match writer.poll_room(cx) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(_)) => {
                    self.call.upload = None;
                    return Ok(());
                }
                Poll::Pending => {
                    // Time spent waiting for the handler does not count against the peer's minimum rate.
                    let now_ms = exchange.context().clock.millis();
                    self.call.rate.note(true, exchange.seen, now_ms);
                    return match exchange.poll_reset(cx) {
                        Poll::Ready(()) => Err(H3ExchangeError::Gone),
                        Poll::Pending => Ok(()),
                    };
                }
            };
            if self.part.is_empty() {
                exchange.read_at_once(room);
                match exchange.poll_body(cx) {
                    Poll::Pending => {
                        self.wants_body = true;
                        let now_ms = exchange.context().clock.millis();
                        self.call.rate.note(false, exchange.seen, now_ms);
                        return Ok(());
                    }
                    Poll::Ready(part) => match part? {
                        Some(part) => self.part = part,
                        None => return self.end_upload(exchange),
                    },
                }
                if exchange.seen > self.call.body_bytes_max && self.call.tunnel.is_none() {
                    return self.cut(exchange, Reject::BODY_TOO_LARGE);
                }
            }
            // The pipe has reserved memory for the room alone.
            let part = &self.part[..self.part.len().min(room)];
            let taken = writer.write_some(part).unwrap_or(self.part.len());
            let _ = self.part.split_to(taken);
            self.call.note_moved(exchange.context().clock.millis());
        }
        let is_unwanted = self.call.upload.is_none() && self.call.tunnel.is_none();
        if is_unwanted && self.call.answering.is_none() && !self.client_ended {
            return self.poll_discard(exchange, cx);
        }
        Ok(())
    }

    /// Discards content during the response, after the handler took no more. The client may take no response before
    /// it has sent the whole content.
    #[cold]
    fn poll_discard(
        &mut self,
        exchange: &mut H3Exchange,
        cx: &mut Context<'_>,
    ) -> Result<(), H3ExchangeError> {
        self.part = Bytes::new();
        while let Poll::Ready(part) = exchange.poll_body(cx) {
            match part {
                Ok(Some(_)) => {}
                // A client that resets its direction still takes the response.
                Ok(None) | Err(H3ExchangeError::Gone) => {
                    self.client_ended = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes the trailers and the end of the request's content to the handler.
    fn end_upload(&mut self, exchange: &mut H3Exchange) -> Result<(), H3ExchangeError> {
        if self.call.is_tunnel() {
            exchange.check_tunnel_end()?;
        }
        match exchange.take_trailers() {
            Ok(trailers) => self.call.set_trailers(&trailers),
            Err(reject) => return self.cut(exchange, reject),
        }
        if self.call.tunnel.is_some() {
            // The pipe shows when the handler has taken the last bytes.
            self.client_ended = true;
            if let Some(writer) = &mut self.call.upload {
                writer.end();
            }
            return Ok(());
        }
        if let Some(writer) = self.call.upload.take() {
            writer.finish();
        }
        Ok(())
    }

    /// Ends the request's content with `reject`. The peer gets the refusal as the response, or a reset if
    /// the response has begun.
    fn cut(&mut self, exchange: &H3Exchange, reject: Reject) -> Result<(), H3ExchangeError> {
        self.call.upload = None;
        if self.call.answering.take().is_none() {
            self.record.rule = reject.rule;
            return Err(H3ExchangeError::Stream(H3ErrorCode::H3_REQUEST_CANCELLED));
        }
        self.refuse(exchange, reject, None);
        Ok(())
    }

    /// Moves the response from the handler to QUIC; ready when QUIC has accepted the whole response.
    fn poll_download(
        &mut self,
        exchange: &mut H3Exchange,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), H3ExchangeError>> {
        loop {
            while self.is_sending() {
                let H3Exchange { session, send, .. } = &mut *exchange;
                let written = pin!(write_chunks(&mut self.out, &mut 0, session, send)).poll(cx);
                if written.is_pending() {
                    // The handler is polled while the client takes nothing, because the handler may have to
                    // give way to another client's call.
                    self.call.poll_ready(cx);
                }
                ready!(written)?;
                self.moved_ms = exchange.context().clock.millis();
            }
            if self.is_last {
                return self.poll_end(exchange, cx);
            }
            let answer = self.call.poll_answer(cx);
            self.push_interim(&answer);
            match answer {
                Poll::Pending if !self.is_sending() => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(Some(Ok(mut response))) => {
                    self.record.set_member(response.member.take());
                    self.record.cache = response.cache;
                    self.respond(exchange, response);
                    if self.call.is_tunnel() {
                        exchange.open_tunnel();
                    }
                }
                Poll::Ready(Some(Err(mut fault))) => {
                    log_failed_call(exchange.context(), &fault);
                    self.record.set_member(fault.member.take());
                    self.refuse(exchange, fault.reject, fault.after_seconds);
                }
                Poll::Ready(None) => ready!(self.poll_stream(exchange, cx))?,
            }
        }
    }

    /// Ready after the end of the response, and of the client's direction of a tunnel.
    fn poll_end(
        &mut self,
        exchange: &mut H3Exchange,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), H3ExchangeError>> {
        if !self.call.is_tunnel() {
            return Poll::Ready(Ok(()));
        }
        if !self.call.is_download_over() {
            let now_ms = exchange.context().clock.millis();
            self.call.end_download(now_ms);
            let _ = exchange.send.finish();
        }
        self.call.poll_ready(cx);
        if self.call.is_upload_over(self.client_ended, cx) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Appends the interim responses to be sent before `answer`.
    fn push_interim(&mut self, answer: &HandlerAnswer) {
        let heads = self.call.interim_heads::<Qpack>(answer);
        if heads.is_empty() {
            return;
        }
        let mut out = Vec::new();
        for head in heads {
            let at = frame::begin_headers(&mut out);
            out.extend_from_slice(&head);
            frame::end_headers(&mut out, at);
        }
        self.out[0] = out.into();
    }

    fn is_sending(&self) -> bool {
        self.out.iter().any(|chunk| !chunk.is_empty())
    }

    /// Moves the next part of the response's content from the handler into `out`.
    fn poll_stream(
        &mut self,
        exchange: &H3Exchange,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), H3ExchangeError>> {
        if !self.call.poll_ready(cx) {
            return Poll::Pending;
        }
        let mut out = Vec::new();
        let at = frame::begin_data(&mut out);
        let filled = self.call.fill(&mut out, limits::H3_DATA_BYTES);
        let bytes = frame::end_data(&mut out, at);
        self.sent += bytes as u64;
        self.out = [out.into(), Bytes::new()];
        // The time until the handler had bytes doesn't count against the client.
        self.moved_ms = exchange.context().clock.millis();
        if bytes > 0 {
            self.call.note_moved(self.moved_ms);
        }
        match filled {
            BodyFill::Some => Poll::Ready(Ok(())),
            BodyFill::Nothing => Poll::Pending,
            BodyFill::Last => {
                self.is_last = true;
                if let Some(section) = self.call.take_trailers::<Qpack>() {
                    let mut out = self.out[0].to_vec();
                    let at = frame::begin_headers(&mut out);
                    out.extend_from_slice(&section);
                    frame::end_headers(&mut out, at);
                    self.out[0] = out.into();
                }
                Poll::Ready(Ok(()))
            }
            BodyFill::Broken | BodyFill::Disk(_) => {
                if let Some(why) = self.call.break_reason() {
                    self.record.rule = why.rule;
                }
                // RFC 9220 §3 maps the reset of a tunnel to H3_REQUEST_CANCELLED.
                let code = if self.call.is_tunnel() {
                    H3ErrorCode::H3_REQUEST_CANCELLED
                } else {
                    H3ErrorCode::H3_INTERNAL_ERROR
                };
                Poll::Ready(Err(H3ExchangeError::Stream(code)))
            }
        }
    }

    /// Writes the head of a handler's response into `out`, and starts the transfer of the content.
    fn respond(&mut self, exchange: &H3Exchange, mut response: Response) {
        let now_ms = exchange.context().clock.millis();
        self.moved_ms = now_ms;
        if let Err(reject) = self.call.settle_tunnel(&mut response, now_ms) {
            return self.refuse(exchange, reject, None);
        }
        let date = exchange.context().clock.date_field();
        let section = handler_block::<Qpack>(&response, &date);
        let Response { status, body, .. } = response;
        let status = *status;
        self.head(exchange, status, &section);
        match body {
            _ if self.call.is_head || is_without_content(status) => self.is_last = true,
            ResponseBody::Empty => self.is_last = true,
            ResponseBody::Whole(bytes) => {
                reserve_whole(&self.call.memory, bytes.len());
                self.last(bytes);
            }
            body => self.call.begin(body),
        }
    }

    /// Responds with a refusal in place of the handler's response.
    fn refuse(&mut self, exchange: &H3Exchange, reject: Reject, after_seconds: Option<u64>) {
        self.record.rule = reject.rule;
        let (pages, is_head) = (self.call.error_pages.as_ref(), self.call.is_head);
        let (context, audience) = (exchange.context(), Audience::Public);
        match Refusal::new(context, audience, pages, is_head, reject, after_seconds) {
            Refusal::Now(response) => self.respond(exchange, response),
            Refusal::Later(making) => self.call.answering = Some(making),
        }
    }

    fn head(&mut self, exchange: &H3Exchange, status: Status, section: &[u8]) {
        self.record.status = status;
        self.record.set_phase(if self.call.is_tunnel() {
            RequestPhase::Tunnel
        } else {
            RequestPhase::Response
        });
        let head = exchange.head(section, b"", self.call.secure_fields.as_deref(), None);
        // `out` may still hold interim responses.
        let before = std::mem::take(&mut self.out);
        let out = [&before[0][..], &before[1], &head].concat();
        self.out[0] = out.into();
    }

    /// Writes the whole content as a single DATA frame.
    fn last(&mut self, bytes: Vec<u8>) {
        self.is_last = true;
        if bytes.is_empty() {
            return;
        }
        self.sent = bytes.len() as u64;
        let mut out = self.out[0].to_vec();
        frame::push_data(self.sent, &mut out);
        self.out = [out.into(), bytes.into()];
    }

    /// Returns the time, in milliseconds, since when the client has taken no bytes of the response, or
    /// `u64::MAX` if no bytes are pending.
    fn stalled_ms(&self) -> u64 {
        if self.is_sending() {
            self.moved_ms
        } else {
            u64::MAX
        }
    }

    /// Returns the deadline of the current wait for the client, in milliseconds, or `u64::MAX` without a
    /// wait.
    fn due_ms(&self, exchange: &H3Exchange) -> u64 {
        let world = exchange.context().world();
        let limits = &world.limits;
        if self.is_sending() {
            return self.moved_ms + u64::from(limits.write_stall_seconds) * 1_000;
        }
        if let Some(tunnel) = &self.call.tunnel {
            let is_half = self.client_ended || self.call.is_download_over();
            return if tunnel.is_open() && is_half {
                tunnel.silence_due_ms(limits)
            } else {
                u64::MAX
            };
        }
        if self.wants_body {
            let patience = self.call.patience();
            return self.call.rate.due_ms(exchange.seen, patience, limits);
        }
        u64::MAX
    }

    /// Ends the call or the content after a missed deadline.
    fn late(&mut self, exchange: &H3Exchange) -> Result<(), H3ExchangeError> {
        exchange.context().stats.deadlines.increment();
        if self.is_sending() || self.call.is_tunnel() {
            Err(H3ExchangeError::Stream(H3ErrorCode::H3_REQUEST_CANCELLED))
        } else {
            self.cut(exchange, Reject::BODY_SLOW)
        }
    }

    /// Logs the end of the call, and counts a complete response.
    fn record_end(&mut self, ended: &Result<(), H3ExchangeError>, context: &WorkerContext) {
        match ended {
            Err(H3ExchangeError::Shed) => self.record.rule = Reject::REQUESTS_SHARE_TAKEN.rule,
            Err(H3ExchangeError::Malformed(reject)) => self.record.refuse(*reject),
            _ => {}
        }
        self.record.log(self.sent, context);
        if ended.is_ok() {
            let micros = context.clock.micros().saturating_sub(self.started_us);
            let micros = (!self.call.is_tunnel()).then_some(micros);
            self.record.count(self.sent, micros, context);
        }
    }
}

/// Extension of the connection's receive window by the size of a stream's window, until the drop of the
/// value.
struct WindowExtension(Rc<H3Session>);

impl WindowExtension {
    fn new(session: &Rc<H3Session>) -> WindowExtension {
        session.queue(1);
        WindowExtension(Rc::clone(session))
    }
}

impl Drop for WindowExtension {
    fn drop(&mut self) {
        self.0.queue(-1);
    }
}

/// Wide receive window of a connection with a long request body, until the drop of the value.
struct WideReceiveWindow {
    session: Rc<H3Session>,
    /// Memory of the window beyond its usual size.
    _memory: BodyReservation,
}

impl WideReceiveWindow {
    /// Opens the window for the body of a request, if the memory is free.
    fn open(exchange: &H3Exchange, memory: &BodyAccount) -> Option<WideReceiveWindow> {
        let usual = limits::H3_CONNECTION_WINDOW_BYTES;
        let is_short = |length| length <= u64::from(usual);
        let session = &exchange.session;
        if exchange.has_no_body()
            || exchange.promised.is_some_and(is_short)
            || session.is_receiving_wide()
        {
            return None;
        }
        let mut reservation = BodyReservation::new(memory);
        let more = limits::H3_WIDE_CONNECTION_WINDOW_BYTES - usual;
        if !reservation.try_grow(more as usize, BodyPurpose::ReadAhead) {
            return None;
        }
        session.receive_wide(true);
        Some(WideReceiveWindow {
            session: Rc::clone(session),
            _memory: reservation,
        })
    }
}

impl Drop for WideReceiveWindow {
    fn drop(&mut self) {
        self.session.receive_wide(false);
    }
}

impl H3Exchange {
    /// Runs a handler call to the end of the response.
    pub(super) async fn live(&mut self, mut live: Box<H3Call>) -> Result<(), H3ExchangeError> {
        let mut stopped = pin!(self.send.stopped());
        let waiting = Rc::clone(self.waiting());
        let mut shed = pin!(waiting.is_shed());
        let mut timer = pin!(sleep(Duration::ZERO));
        let mut timer_ms = 0;
        let ended = poll_fn(|cx| {
            self.context().clock.tick();
            // After the end of the handler's direction of a tunnel, the client has acknowledged the end.
            if !live.call.is_download_over() && stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(H3ExchangeError::Gone));
            }
            if shed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(H3ExchangeError::Shed));
            }
            // The handler may hold the body back, and the client then gets no 100 (Continue) yet.
            if live.call.continue_owed
                && let Poll::Ready(ended) = live.poll_download(self, cx)
            {
                return Poll::Ready(ended);
            }
            loop {
                live.poll_upload(self, cx)?;
                if let Poll::Ready(ended) = live.poll_download(self, cx) {
                    return Poll::Ready(ended);
                }
                self.stalled_since(live.stalled_ms());
                let due_ms = live.due_ms(self);
                if due_ms == u64::MAX {
                    return Poll::Pending;
                }
                let now_ms = self.context().clock.millis();
                if now_ms >= due_ms && live.call.is_download_over() {
                    // A silent client loses only its own direction of the tunnel.
                    return Poll::Ready(Ok(()));
                }
                if now_ms >= due_ms {
                    live.late(self)?;
                    continue;
                }
                if timer_ms != due_ms {
                    timer_ms = due_ms;
                    let left = Duration::from_millis(due_ms - now_ms);
                    timer.as_mut().reset(Instant::now() + left);
                }
                ready!(timer.as_mut().poll(cx));
                // The timer may fire slightly before the deadline by the worker's clock, and is then set
                // again.
                timer_ms = 0;
                self.context().clock.tick();
            }
        });
        let ended = ended.await;
        live.record_end(&ended, self.context());
        ended
    }
}
