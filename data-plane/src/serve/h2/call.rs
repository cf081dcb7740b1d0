//! A handler call on an HTTP/2 stream: starts the call, sends the handler's response, and ends calls that
//! can't be completed.

use crate::handler::interim::InterimReceiver;
use crate::handler::pipe::counted_pipe;
use crate::handler::route_handler::HandlerCall;
use crate::handler::{Response, ResponseBody};
use crate::ledger::access_log::MemberCall;
use crate::ledger::active_requests::RequestPhase;
use crate::ledger::body_memory::{BodyAccount, BodyPurpose};
use crate::ledger::route_counters::CacheOutcome;
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::h2::exchange::H2ExchangeState;
use crate::serve::h2::response::OwedResponse;
use crate::serve::h2::session::H2Session;
use crate::serve::rare_events::log_failed_call;
use crate::serve::refusal::Refusal;
use crate::serve::response_body::BodyReader;
use crate::serve::response_head::{Hpack, content_length, handler_block, is_without_content};
use crate::serve::send_memory::{reserve_socket, reserve_socket_again, reserve_whole};
use crate::serve::stream_call::{StreamCall, UploadRate, WindowCredit};
use crate::serve::subrequest::client_request;
use crate::serve::tunnel::{StreamTunnel, request_tunnel};
use std::task::{Context, Poll};
use wire::h2::H2ErrorCode;
use wire::h2::stream::RemoteState;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::status::Status;

impl H2Session<'_> {
    /// Starts a handler call.
    pub(super) fn begin_call(
        &mut self,
        owed: OwedResponse,
        (handler, memory, body_bytes_max): (HandlerCall, BodyAccount, u64),
        head: &RequestHead<'_>,
        line: &AccessLogEntry<'_>,
    ) {
        let (mut writer, reader) = counted_pipe(limits::PIPE_BYTES, &memory);
        let upload = if owed.ended && !owed.has_early_body {
            writer.end();
            None
        } else {
            Some(writer)
        };
        let (status, phase) = (Status::CLIENT_LEFT, RequestPhase::Handler);
        let record = line.keep(status, phase, &self.context, self.who);
        let dispatch_context = self.connection.dispatch_context();
        let context = &self.context;
        let mut request = client_request(
            context,
            head,
            &dispatch_context,
            line.visitor(),
            reader,
            memory.clone(),
        );
        let interim = InterimReceiver::default();
        request.interim = interim.sender();
        request.active = record.active();
        let now_ms = self.context.clock.millis();
        let tunnel = request_tunnel(&mut request, head, &handler);
        let tunnel = tunnel.map(|upgrade| Box::new(StreamTunnel::new(upgrade, now_ms)));
        let call = StreamCall {
            answering: Some(handler.start(request)),
            interim,
            continue_owed: head.expect_continue && !owed.ended,
            upload,
            held: 0,
            counted: 0,
            withheld: 0,
            seen: 0,
            rate: UploadRate::new(now_ms),
            tunnel,
            is_head: head.method == Method::Head,
            secure_fields: line.secure_fields().cloned(),
            body_bytes_max,
            error_pages: line.error_pages(),
            download: None,
            holds_end: false,
            memory,
        };
        let Some(stream) = self.h2.stream(owed.id) else {
            return;
        };
        stream.work.record = record;
        stream.work.state = H2ExchangeState::Call(Box::new(call));
    }

    /// Polls a handler call. Returns true if a response has begun or window credit was granted.
    pub(super) fn poll_call(&mut self, id: u32, cx: &mut Context<'_>) -> bool {
        let now_ms = self.context.clock.millis();
        let Some(stream) = self.h2.stream(id) else {
            return false;
        };
        let client_ended = stream.remote == RemoteState::Ended;
        let may_end_before_content = stream.work.may_end_before_content();
        let H2ExchangeState::Call(call) = &mut stream.work.state else {
            return false;
        };
        call.holds_end = may_end_before_content && !client_ended;
        let granted = call.poll_taken(cx);
        let answer = call.poll_answer(cx);
        let interim_heads = call.interim_heads::<Hpack>(&answer);
        let is_ready = matches!(answer, Poll::Pending | Poll::Ready(None)) && call.poll_ready(cx);
        // Time spent waiting for the handler does not count against the peer's minimum rate.
        call.note_wait(now_ms, cx);
        stream.ready = is_ready;
        let is_at_end = is_ready && call.is_at_end();
        let is_over = call.is_download_over() && call.is_upload_over(client_ended, cx);
        for head in interim_heads {
            self.h2.head(id, &head, false);
        }
        match answer {
            Poll::Pending | Poll::Ready(None) => {}
            Poll::Ready(Some(Ok(mut response))) => {
                self.record_member(id, response.member.take(), response.cache);
                self.grant(id, &granted);
                self.begin_response(id, response);
                return true;
            }
            Poll::Ready(Some(Err(mut fault))) => {
                log_failed_call(&self.context, &fault);
                self.record_member(id, fault.member.take(), CacheOutcome::None);
                self.grant(id, &granted);
                self.fail_call(id, fault.reject, fault.after_seconds);
                return true;
            }
        }
        self.grant(id, &granted);
        if is_over {
            self.finish(id);
            return true;
        }
        if is_at_end {
            // A frame without content needs no window (RFC 9113 §6.9.1), and the client may open the windows no more.
            self.fill_one(id, 0);
            return true;
        }
        // Further progress shows in the bytes filled into `out`.
        granted.of_stream > 0 || granted.of_all > 0
    }

    /// Records the member of a proxied request for the access log, and the part of the page cache for the
    /// counters.
    fn record_member(&mut self, id: u32, member: Option<Box<MemberCall>>, cache: CacheOutcome) {
        if let Some(stream) = self.h2.stream(id) {
            stream.work.record.set_member(member);
            stream.work.record.cache = cache;
        }
    }

    fn grant(&mut self, id: u32, granted: &WindowCredit) {
        self.h2.release_connection_capacity(granted.of_all as u32);
        self.h2
            .release_stream_capacity(id, granted.of_stream as u32);
        if granted.is_small {
            self.h2.flush_stream_capacity(id);
        }
    }

    /// Writes the head of a handler's response, and starts the transfer of the content or the tunnel.
    fn begin_response(&mut self, id: u32, mut response: Response) {
        let now_ms = self.context.clock.millis();
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        let H2ExchangeState::Call(call) = &mut stream.work.state else {
            return;
        };
        if let Err(reject) = call.settle_tunnel(&mut response, now_ms) {
            return self.fail_call(id, reject, None);
        }
        if call.is_tunnel() {
            stream.carries_messages = true;
            self.connection.stream.socket.probe_silent_peer();
        }
        let phase = if call.is_tunnel() {
            RequestPhase::Tunnel
        } else {
            RequestPhase::Response
        };
        stream.work.record.set_phase(phase);
        let status = *response.status;
        let is_bodiless = call.is_head || is_without_content(status);
        let secure_fields = call.secure_fields.clone();
        stream.work.record.status = status;
        let withheld = std::mem::take(&mut stream.work.withheld);
        stream.left = content_length(&response.body).unwrap_or(u64::MAX);
        let is_last = is_bodiless
            || match &response.body {
                ResponseBody::Empty => true,
                ResponseBody::Whole(bytes) => bytes.is_empty(),
                ResponseBody::Stream { .. } => false,
            };
        // The client may take no response before it has sent the whole content.
        self.h2.release_stream_capacity(id, withheld);
        if is_last || matches!(response.body, ResponseBody::Whole(_)) {
            self.open_for_rest(id, self.h2.out.len());
        }
        let block = handler_block::<Hpack>(&response, &self.context.clock.date_field());
        self.send_head(id, &block, b"", secure_fields.as_deref(), None, is_last);
        if is_last {
            self.finish(id)
        } else {
            self.begin_body(id, response.body)
        }
    }

    /// Starts the transfer of the content of a handler's response.
    fn begin_body(&mut self, id: u32, body: ResponseBody) {
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        match (body, &mut stream.work.state) {
            // The handler has returned the whole content, so the call is replaced by the bytes.
            (ResponseBody::Whole(bytes), state) => {
                let (in_pipe, memory) = match state {
                    H2ExchangeState::Call(call) => (call.end_upload(), call.memory.clone()),
                    _ => (WindowCredit::default(), BodyAccount::default()),
                };
                reserve_whole(&memory, bytes.len());
                let reader = BodyReader::bytes(bytes).with_memory(memory);
                *state = H2ExchangeState::Body(reader);
                stream.ready = true;
                self.grant(id, &in_pipe);
            }
            (body, H2ExchangeState::Call(call)) => {
                let length = match &body {
                    ResponseBody::Stream { length, .. } => *length,
                    _ => Some(0),
                };
                let memory = call.memory.clone();
                call.begin(body);
                self.reserve_socket(id, &memory, length);
            }
            _ => {}
        }
    }

    /// Reserves the memory of the socket for a streamed response of `length` bytes, unless reserved for another
    /// stream.
    fn reserve_socket(&mut self, id: u32, memory: &BodyAccount, length: Option<u64>) {
        let holder = self
            .socket_holder
            .filter(|id| self.h2.stream(*id).is_some());
        if holder.is_none() {
            self.socket_holder = Some(id);
            reserve_socket(memory, &self.connection.stream.socket, length);
        }
    }

    /// Adjusts the socket after a response began without memory for the socket, once memory is free or the response
    /// is over.
    pub(super) fn adjust_narrow_socket(&mut self) {
        let socket = &self.connection.stream.socket;
        if !socket.is_narrow() {
            return;
        }
        let stream = self.socket_holder.and_then(|id| self.h2.stream(id));
        match stream.map(|stream| &stream.work.state) {
            Some(H2ExchangeState::Call(call)) => reserve_socket_again(&call.memory, socket),
            _ => socket.set_narrow(false),
        }
    }

    /// Ends a call after more content than the handler's limit. As with an announced length, the rest of the
    /// content is discarded beside the refusal: some clients report a reset stream in place of the response.
    pub(super) fn cut_long_call(&mut self, id: u32) {
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        if let H2ExchangeState::Call(call) = &mut stream.work.state
            && call.answering.is_some()
        {
            let granted = call.end_upload();
            stream.work.is_drained = true;
            self.grant(id, &granted);
        }
        self.cut_call(id, Reject::BODY_TOO_LARGE);
    }

    /// Reserves the memory of `bytes` received bytes of content. Without memory, requests of other clients end, or else this
    /// request ends. Returns false if the request ends.
    pub(super) fn cover(&mut self, id: u32, bytes: usize) -> bool {
        let context = self.context.clone();
        let Some(stream) = self.h2.stream(id) else {
            return true;
        };
        let client = stream.work.held.client();
        let H2ExchangeState::Call(call) = &mut stream.work.state else {
            return true;
        };
        let is_covered = call.try_cover(bytes, BodyPurpose::Call)
            || context
                .make_room_for_content(client, bytes)
                .is_some_and(|purpose| call.try_cover(bytes, purpose));
        if !is_covered {
            let granted = call.end_upload();
            stream.work.is_drained = true;
            self.grant(id, &granted);
            self.cut_call(id, Reject::BODY_MEMORY_FULL);
        }
        is_covered
    }

    /// Ends a call with an incomplete request. The client gets the refusal as the response, or a reset if
    /// the response has begun.
    pub(super) fn cut_call(&mut self, id: u32, reject: Reject) {
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        if matches!(&stream.work.state, H2ExchangeState::Call(call) if call.answering.is_some()) {
            return self.fail_call(id, reject, None);
        }
        stream.work.record.rule = reject.rule;
        self.break_off(id, H2ErrorCode::CANCEL);
    }

    /// Responds with a refusal to a call that failed before the response.
    fn fail_call(&mut self, id: u32, reject: Reject, after_seconds: Option<u64>) {
        let (context, audience) = (self.context.clone(), self.who.audience);
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        let H2ExchangeState::Call(call) = &mut stream.work.state else {
            return;
        };
        stream.work.record.rule = reject.rule;
        call.upload = None;
        // A response of the handler would follow the refusal on the same stream.
        call.answering = None;
        match Refusal::new(
            &context,
            audience,
            call.error_pages.as_ref(),
            call.is_head,
            reject,
            after_seconds,
        ) {
            Refusal::Now(response) => self.begin_response(id, response),
            Refusal::Later(making) => call.answering = Some(making),
        }
    }
}
