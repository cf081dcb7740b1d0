//! The driver of a handler's call over HTTP/1.1. The request body goes to the handler while the response
//! comes back; both directions are independent, each bounded by a pipe.
//!
//! The socket is read only while the handler takes content, and the handler's pipe is emptied only while
//! the peer takes content. When the peer disconnects or a deadline expires, the call is dropped with all
//! work started by the call.

use crate::handler::pipe::{self, PipeRead};
use crate::handler::{LocalBoxFuture, Response, ResponseBody};
use crate::ledger::active_requests::RequestPhase;
use crate::ledger::body_memory::BodyPurpose;
use crate::limits;
use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h1::call::{H1Call, PendingTunnel};
use crate::serve::h1::call_head::{CallHead, ResponseFraming};
use crate::serve::h1::chunk::begin_chunk;
use crate::serve::h1::out_buffer::OutBuffer;
use crate::serve::h1::tunnel::H1Tunnel;
use crate::serve::h1::upload::DecodedInput;
use crate::serve::rare_events::log_failed_call;
use crate::serve::refusal::Refusal;
use crate::serve::response_head::{content_length, is_without_content};
use crate::serve::send_memory::{
    reserve_socket, reserve_socket_again, reserve_whole, unsent_bytes_max,
};
use crate::serve::stall::{ProgressClock, StallClock};
use crate::serve::tunnel::opens_tunnel;
use std::future::poll_fn;
use std::task::{Context, Poll};
use wire::reject::Reject;
use wire::request_head::Version;
use wire::status::{Status, StatusLine};
use wire::trailers::allowed_trailers;

/// The transfer of the response to the peer.
enum H1Download {
    Waiting,
    Streaming {
        reader: pipe::PipeReader,
        work: Option<LocalBoxFuture<()>>,
        framing: ResponseFraming,
    },
    /// The complete response is in `out`.
    Last,
    /// The connection becomes a tunnel.
    Tunnel(Box<H1Tunnel>),
    /// The response broke off; `out` holds the part received.
    Broken(ResponseFraming),
}

/// The driver of a call on a connection.
struct H1CallDriver<'c> {
    connection: &'c mut Connection,
    call: H1Call,
    download: H1Download,
    out: OutBuffer,
    sent: u64,
    stall: StallClock,
    progress: ProgressClock,
    status: Status,
    /// The treatment of the connection after the response, as announced in the head; a later event may
    /// force another treatment.
    after: AfterResponse,
    /// True while the driver waits for more of the request body.
    wants_body: bool,
    /// True if the request body will not be read to the end.
    is_cut: bool,
    /// True if the memory of many pipelined bytes is reserved.
    has_pipelined: bool,
}

/// Runs `call` to the end.
pub(in crate::serve) async fn run(connection: &mut Connection, call: Box<H1Call>) -> AfterResponse {
    let mut exchange = H1CallDriver {
        connection,
        call: *call,
        download: H1Download::Waiting,
        out: OutBuffer::default(),
        sent: 0,
        stall: StallClock::default(),
        progress: ProgressClock::default(),
        // The status of a client that leaves before the response begins.
        status: Status::CLIENT_LEFT,
        after: AfterResponse::Close,
        wants_body: false,
        is_cut: false,
        has_pipelined: false,
    };
    let mut after = poll_fn(|cx| exchange.poll(cx)).await;
    exchange.connection.stream.socket.set_narrow(false);
    let H1CallDriver {
        connection,
        call,
        download,
        mut sent,
        status,
        ..
    } = exchange;
    let mut record = call.record;
    record.status = status;
    match download {
        H1Download::Tunnel(tunnel) => {
            // A tunnel may last for hours, without the state of the finished future.
            drop(call.answering);
            (after, sent) = Box::pin(tunnel.run(connection)).await;
            record.count(sent, None, &connection.context);
        }
        _ => {
            let micros = connection.context.clock.micros() - call.started_us;
            record.count(sent, Some(micros), &connection.context);
        }
    }
    record.log(sent, &connection.context);
    after
}

impl H1CallDriver<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        self.connection.context.clock.tick();
        // The handler may hold the body back, and the client then gets no 100 (Continue) yet.
        if self.call.continue_owed
            && let Poll::Ready(after) = self.poll_download(cx)
        {
            return Poll::Ready(after);
        }
        let reading = self.poll_upload(cx);
        if let Poll::Ready(after) = reading {
            return Poll::Ready(after);
        }
        match self.poll_download(cx) {
            Poll::Ready(after) => Poll::Ready(after),
            Poll::Pending => {
                self.set_deadline();
                Poll::Pending
            }
        }
    }

    /// Sets the deadline of the connection according to the awaited side: the reading client, the sending
    /// client or the handler.
    fn set_deadline(&mut self) {
        let context = &self.connection.context;
        let has_unsent_bytes = !self.out.is_empty() || self.connection.stream.has_unsent();
        let begins = self
            .stall
            .note(has_unsent_bytes, self.out.taken, context.clock.millis());
        if has_unsent_bytes {
            // Only progress renews the deadline; a stall must not.
            if begins {
                context.phase(self.connection.slot, ConnectionPhase::Write);
            }
            return;
        }
        let slot = self.connection.slot;
        let seen = self.call.upload.as_ref().map_or(0, |upload| upload.seen);
        match &self.call.upload {
            Some(upload) if self.wants_body => {
                context.phase_body(slot, seen, upload.writer.patience());
            }
            _ => context.phase(slot, ConnectionPhase::Busy),
        }
        // Bytes behind the request, and other wake-ups, move nothing.
        let moved = self.sent + seen;
        let now_ms = context.clock.millis();
        let activity = self.progress.note(self.wants_body, moved, now_ms);
        context.set_activity(slot, activity);
    }

    /// Transfers the request body; ready only if the connection cannot continue.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        self.wants_body = false;
        loop {
            let room = match &mut self.call.upload {
                // A refusal is being sent and ends the connection, whatever the client sends.
                None if self.is_cut => {
                    if self.has_begun() {
                        self.connection.poll_discard(cx);
                    }
                    return Poll::Pending;
                }
                None => return self.poll_watch(cx),
                Some(upload) => match upload.writer.poll_room(cx) {
                    Poll::Ready(Ok(room)) => room,
                    Poll::Ready(Err(_)) if self.has_begun() => return self.poll_discard(cx),
                    // The handler is slow, or wants no more of the body. In the second case the remaining body
                    // stays unread, so the connection ends after the response.
                    Poll::Pending | Poll::Ready(Err(_)) => return self.poll_reset(cx),
                },
            };
            if self.connection.rest.is_empty() {
                self.push_continue();
                match self.poll_read(cx, room.min(limits::READ_BUFFER_BYTES)) {
                    Poll::Pending => {
                        self.wants_body = true;
                        return Poll::Pending;
                    }
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => return self.input_ended(),
                }
            }
            if let Err(reject) = self.decode(room, self.call.body_bytes_max) {
                return self.broken(reject);
            }
        }
    }

    /// Returns true once the response has begun.
    fn has_begun(&self) -> bool {
        !matches!(self.download, H1Download::Waiting)
    }

    /// Discards the request body during the response, after the handler took no more. Many clients take no response
    /// before they have sent the whole body.
    #[cold]
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        for _ in 0..limits::LINGER_READS_MAX {
            if self.connection.rest.is_empty() {
                match self.poll_read(cx, limits::READ_BUFFER_BYTES) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => {
                        self.cut_upload();
                        return Poll::Pending;
                    }
                }
            }
            if self.decode(usize::MAX, u64::MAX).is_err() {
                self.cut_upload();
            }
            if self.call.upload.is_none() {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Gives up the framing of the request body. The connection can't be used for another request.
    fn cut_upload(&mut self) {
        self.call.upload = None;
        self.is_cut = true;
        self.after = AfterResponse::Linger;
    }

    /// Appends 100 (Continue) if the client waits for it. No interim response may follow the final head.
    fn push_continue(&mut self) {
        if std::mem::take(&mut self.call.continue_owed)
            && matches!(self.download, H1Download::Waiting)
        {
            let out = &mut self.out.bytes;
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Decodes up to `room` bytes of received data. A body of more than `bytes_max` bytes is refused.
    fn decode(&mut self, room: usize, bytes_max: u64) -> Result<(), Reject> {
        let Some(upload) = &mut self.call.upload else {
            return Ok(());
        };
        let rest = std::mem::take(&mut self.connection.rest);
        // The pipe has room for the whole payload, because the window is no larger than `room`.
        let window = &rest[..rest.len().min(room)];
        let DecodedInput { consumed, is_end } = upload.decode(window, bytes_max)?;
        let connection = &*self.connection;
        if !upload.reserve_trailers(|| connection.account(connection.peer)) {
            return Err(Reject::REQUESTS_SHARE_TAKEN);
        }
        if consumed < rest.len() {
            self.connection.rest = rest[consumed..].to_vec();
        } else {
            self.call.rest = None;
        }
        if is_end && let Some(upload) = self.call.upload.take() {
            self.call._trailers = upload.finish();
        }
        Ok(())
    }

    /// Detects a disconnect of the peer after the end of the request body. Pipelined data waits in `rest`.
    fn poll_watch(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        while let Some(max) = self.pipelined_room() {
            match self.poll_read(cx, max) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(AfterResponse::Close),
            }
        }
        self.poll_reset(cx)
    }

    /// Detects a reset by the peer while received bytes stay unread.
    fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        let socket = &self.connection.stream.socket;
        socket.poll_broken(cx).map(|()| AfterResponse::Close)
    }

    /// Returns the number of pipelined bytes to be read. The memory of many pipelined bytes is reserved first.
    fn pipelined_room(&mut self) -> Option<usize> {
        let held = self.connection.rest.len();
        let most = limits::READ_BUFFER_BYTES / 2;
        if held >= limits::UNFINISHED_HEAD_BYTES_FREE && !self.has_pipelined {
            let memory = &self.call.memory;
            self.has_pipelined = memory.try_reserve(most, BodyPurpose::ReadAhead);
        }
        let bound = if self.has_pipelined {
            most
        } else {
            limits::UNFINISHED_HEAD_BYTES_FREE
        };
        Some(bound.saturating_sub(held)).filter(|room| *room > 0)
    }

    /// Reads up to `max` bytes to the end of `rest`; false at the end of the stream or after an error.
    fn poll_read(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<bool> {
        let context = self.connection.context.clone();
        let mut scratch = context.scratch.borrow_mut();
        match self.connection.stream.poll_fill(cx, &mut scratch[..max]) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(false),
            Poll::Ready(Ok(read)) => {
                context.stats.bytes_received.add(read as u64);
                self.connection.rest.extend_from_slice(&scratch[..read]);
                Poll::Ready(true)
            }
        }
    }

    /// Handles the end of the peer's stream within the body, or an expired body deadline.
    fn input_ended(&mut self) -> Poll<AfterResponse> {
        match self.connection.context.expired(self.connection.slot) {
            Some(ConnectionPhase::Body) => self.broken(Reject::BODY_SLOW),
            _ => Poll::Ready(AfterResponse::Close),
        }
    }

    /// Handles an invalid request body: sends a refusal unless the response has begun.
    fn broken(&mut self, reject: Reject) -> Poll<AfterResponse> {
        if self.has_begun() {
            self.call.record.rule = reject.rule;
            return Poll::Ready(self.broken_off());
        }
        self.is_cut = true;
        self.refuse(reject, None);
        self.call.upload = None;
        Poll::Pending
    }

    /// Starts the response for `reject`, or the load of the site's error page for the response.
    fn refuse(&mut self, reject: Reject, after_seconds: Option<u64>) {
        self.call.record.rule = reject.rule;
        let context = &self.connection.context;
        match Refusal::new(
            context,
            self.connection.audience(),
            self.call.error_pages.as_ref(),
            self.call.is_head,
            reject,
            after_seconds,
        ) {
            Refusal::Now(response) => self.begin(response),
            Refusal::Later(making) => self.call.answering = making,
        }
    }

    /// Transfers the response; ready when the kernel has taken all bytes.
    fn poll_download(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        loop {
            let is_all = self.gather(cx);
            match self.out.poll_send(&mut self.connection.stream, cx) {
                Poll::Pending => {
                    self.record_sending();
                    self.poll_work(cx);
                    return Poll::Pending;
                }
                Poll::Ready(false) => return Poll::Ready(AfterResponse::Close),
                Poll::Ready(true) => {}
            }
            match &mut self.download {
                H1Download::Last => return Poll::Ready(self.after),
                H1Download::Tunnel(_) => return Poll::Ready(AfterResponse::Close),
                H1Download::Broken(_) => return Poll::Ready(self.broken_off()),
                H1Download::Waiting => {
                    let answer = self.call.answering.as_mut().poll(cx);
                    self.push_interim();
                    match answer {
                        Poll::Pending if self.out.is_empty() => return Poll::Pending,
                        Poll::Pending => {}
                        Poll::Ready(Ok(mut response)) => {
                            self.call.record.set_member(response.member.take());
                            self.call.record.cache = response.cache;
                            self.begin(response);
                        }
                        Poll::Ready(Err(mut fault)) => {
                            log_failed_call(&self.connection.context, &fault);
                            self.call.record.set_member(fault.member.take());
                            self.refuse(fault.reject, fault.after_seconds);
                        }
                    }
                }
                H1Download::Streaming { .. } if is_all => {
                    self.record_sending();
                    self.out.release();
                    return Poll::Pending;
                }
                H1Download::Streaming { .. } => {}
            }
        }
    }

    /// Records for the operator that the response has begun, and does not leave at once.
    fn record_sending(&self) {
        if let H1Download::Streaming { .. } | H1Download::Last = self.download {
            self.call.record.set_phase(RequestPhase::Response);
        }
    }

    /// Appends the interim responses that the handler has sent.
    fn push_interim(&mut self) {
        while let Some(interim) = self.call.interim.take() {
            let out = &mut self.out.bytes;
            StatusLine::from(interim.status).push(out);
            out.extend_from_slice(interim.fields.lines());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Runs the producer of the body while the client takes nothing, because the producer may have to yield
    /// to another client's call.
    fn poll_work(&mut self, cx: &mut Context<'_>) {
        if let H1Download::Streaming { work, .. } = &mut self.download
            && let Some(running) = work
            && running.as_mut().poll(cx).is_ready()
        {
            *work = None;
        }
    }

    /// Appends available content to `out`, so that head, content and often the end of the content leave
    /// with one write. Returns true if no more content is available now.
    fn gather(&mut self, cx: &mut Context<'_>) -> bool {
        while let H1Download::Streaming { framing, .. } = self.download
            && self.out.unsent() <= unsent_bytes_max(&self.call.memory)
        {
            match self.poll_stream(cx) {
                Poll::Pending => return true,
                Poll::Ready(true) => {}
                Poll::Ready(false) => {
                    self.record_break_reason();
                    self.download = H1Download::Broken(framing);
                }
            }
        }
        false
    }

    /// Records the rule of a broken response for the access log.
    fn record_break_reason(&mut self) {
        if let H1Download::Streaming { reader, .. } = &self.download
            && let Some(why) = reader.break_reason()
        {
            self.call.record.rule = why.rule;
        }
    }

    /// Returns the treatment of the connection after an incomplete response. An unfinished framing shows
    /// the failure to the client. A body delimited by the end of the connection needs a reset.
    fn broken_off(&self) -> AfterResponse {
        match self.download {
            H1Download::Broken(ResponseFraming::Close)
            | H1Download::Streaming {
                framing: ResponseFraming::Close,
                ..
            } => AfterResponse::Reset,
            _ => AfterResponse::Close,
        }
    }

    /// Returns the treatment of the connection after `response`. An unread request body must not be parsed
    /// as the next request, so the connection lingers. During a streamed response the request body is still
    /// read, and most handlers have read the body by the end of the response.
    fn after(&self, response: &Response) -> AfterResponse {
        let context = &self.connection.context;
        if self.is_cut || self.call.upload.is_some() && !self.is_streamed(response) {
            AfterResponse::Linger
        } else if !self.call.keep_alive {
            AfterResponse::Close
        } else if context.is_draining() {
            AfterResponse::of_last_response(context)
        } else {
            AfterResponse::Keep
        }
    }

    /// Returns true if the content follows while the handler may still read the request body.
    fn is_streamed(&self, response: &Response) -> bool {
        matches!(response.body, ResponseBody::Stream { .. }) && !self.is_bodiless(response)
    }

    /// Starts the response: the tunnel that the client has requested, or a response with a body.
    fn begin(&mut self, response: Response) {
        let pending = self.call.tunnel.take();
        let upgrade = pending.as_ref().map(|it| &it.upgrade);
        match (opens_tunnel(&response, upgrade), pending) {
            (Ok(true), Some(pending)) => self.begin_tunnel(*pending, response),
            (Err(reject), _) => self.refuse(reject, None),
            (Ok(_), pending) => {
                if let Some(pending) = pending {
                    pending.writer.finish();
                }
                self.begin_response(response);
            }
        }
    }

    /// Writes the head of the response that opens a tunnel.
    fn begin_tunnel(&mut self, pending: PendingTunnel, mut response: Response) {
        self.status = *response.status;
        if response.fields.first("upgrade").is_none() {
            response.fields.push(b"Upgrade", &pending.upgrade.protocol);
        }
        self.call.record.set_phase(RequestPhase::Tunnel);
        self.write_head(&response, None, AfterResponse::Keep);
        if let ResponseBody::Stream { reader, work, .. } = response.body {
            let out = std::mem::take(&mut self.out);
            let tunnel = H1Tunnel::new(pending.writer, reader, work, out);
            self.download = H1Download::Tunnel(Box::new(tunnel));
        }
    }

    /// Writes the head of `response` and starts the body.
    fn begin_response(&mut self, response: Response) {
        let upload = self.call.upload.as_ref();
        let is_body_wanted = upload.is_some_and(|it| it.writer.has_room());
        if is_body_wanted && self.is_streamed(&response) && self.connection.rest.is_empty() {
            self.push_continue();
        }
        self.status = *response.status;
        let mut after = self.after(&response);
        let bodiless = self.is_bodiless(&response);
        let framing = match content_length(&response.body) {
            Some(length) => ResponseFraming::Length(length),
            None if self.call.version == Version::Http11 => ResponseFraming::Chunked,
            None => ResponseFraming::Close,
        };
        if framing == ResponseFraming::Close && after == AfterResponse::Keep && !bodiless {
            after = AfterResponse::Close;
        }
        self.after = after;
        self.write_head(&response, Some(framing), after);
        self.download = match response.body {
            _ if bodiless => H1Download::Last,
            ResponseBody::Empty => H1Download::Last,
            ResponseBody::Whole(bytes) => {
                self.sent = bytes.len() as u64;
                reserve_whole(&self.call.memory, bytes.len());
                self.out.push_last(bytes);
                H1Download::Last
            }
            ResponseBody::Stream {
                reader,
                work,
                length,
            } => {
                reserve_socket(&self.call.memory, &self.connection.stream.socket, length);
                H1Download::Streaming {
                    reader,
                    work: Some(work),
                    framing,
                }
            }
        };
    }

    fn is_bodiless(&self, response: &Response) -> bool {
        self.call.is_head || is_without_content(*response.status)
    }

    /// Writes the head of `response`; `framing` is None for a tunnel.
    fn write_head(
        &mut self,
        response: &Response,
        framing: Option<ResponseFraming>,
        after: AfterResponse,
    ) {
        let secure_fields = self.call.secure_fields.as_deref();
        let head = CallHead {
            response,
            framing,
            version: self.call.version,
            after,
            secure_fields: secure_fields.and_then(|it| it.over(self.connection.is_secure())),
        };
        let date = self.connection.context.clock.date_field();
        head.push(&date, &mut self.out.bytes);
    }

    /// Reads a part of the body from the handler; false if the body broke off.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let H1Download::Streaming {
            reader,
            work,
            framing,
        } = &mut self.download
        else {
            return Poll::Ready(true);
        };
        let stream = &self.connection.stream;
        let length = match framing {
            ResponseFraming::Length(left) => Some(left),
            _ => None,
        };
        // Bytes may pass the pipe only if no byte waits before them, and if they need neither framing nor TLS.
        let is_open = self.out.is_empty() && stream.tls.is_none() && stream.socket.takes_moves();
        let passing = length.filter(|_| is_open);
        if let Some(left) = &passing {
            reader.open_bypass(stream.socket.clone(), **left);
        }
        if let Some(future) = work
            && future.as_mut().poll(cx).is_ready()
        {
            *work = None;
        }
        if let Some(left) = passing {
            let passed = reader.close_bypass();
            *left = left.saturating_sub(passed);
            self.sent += passed;
            self.out.taken += passed;
        }
        reserve_socket_again(&self.call.memory, &stream.socket);
        let out = &mut self.out.bytes;
        // Into an empty buffer, all bytes of the pipe move without a copy.
        let max = if out.is_empty() {
            limits::PIPE_BYTES
        } else {
            limits::UNSENT_BYTES_MAX / 2
        };
        let unread = reader.unread().min(max);
        if *framing == ResponseFraming::Chunked && unread > 0 {
            begin_chunk(unread, out);
        }
        let taken = reader.poll_take(cx, out, max);
        match taken {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(false),
            Poll::Ready(Ok(PipeRead::Bytes(count))) => {
                self.sent += count as u64;
                match framing {
                    ResponseFraming::Chunked => out.extend_from_slice(b"\r\n"),
                    ResponseFraming::Close => {}
                    ResponseFraming::Length(left) => {
                        // Bytes beyond Content-Length would be parsed as the next response.
                        let Some(less) = left.checked_sub(count as u64) else {
                            out.truncate(out.len() - count);
                            return Poll::Ready(false);
                        };
                        *left = less;
                    }
                }
                Poll::Ready(true)
            }
            Poll::Ready(Ok(PipeRead::End)) => {
                match framing {
                    ResponseFraming::Chunked => {
                        let trailers = reader.take_trailers();
                        let trailers = trailers.filter(|_| self.call.accepts_trailers);
                        out.extend_from_slice(b"0\r\n");
                        out.extend_from_slice(&allowed_trailers(&trailers.unwrap_or_default()));
                        out.extend_from_slice(b"\r\n");
                    }
                    ResponseFraming::Length(0) | ResponseFraming::Close => {}
                    ResponseFraming::Length(_) => return Poll::Ready(false),
                }
                self.download = H1Download::Last;
                if self.call.upload.is_some() {
                    // The request body was not read to the end after all.
                    self.after = AfterResponse::Linger;
                }
                Poll::Ready(true)
            }
        }
    }
}
