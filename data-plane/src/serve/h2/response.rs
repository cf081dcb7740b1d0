//! Processing of an HTTP/2 request from the complete field section to the response: dispatches the request, and carries
//! out the step at once or after a wait.

use crate::ledger::active_requests::RequestPhase;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::attempt::{Attempt, ContentAction, Progress, RequestContent};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::forwarding::client_of;
use crate::serve::h2::exchange::{
    EarlyBody, H2Exchange, H2ExchangeState, PendingRedispatch, RedispatchedRequest,
    may_go_on_behind,
};
use crate::serve::h2::session::{BODIES_MAX, H2Session, OUT_BYTES_MAX};
use crate::serve::redispatch;
use crate::serve::request_ledger::RequestReservation;
use crate::serve::responder::Responder;
use crate::serve::response_body::BodyReader;
use crate::serve::response_head::{Hpack, push_fields};
use crate::serve::step::{ReadyResponse, Step};
use crate::serve::stream_call::WindowCredit;
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{Listing, VariantResponse};
use crate::world::{SecureFields, World};
use std::net::IpAddr;
use std::task::Context;
use wire::field_section::FieldSection;
use wire::h1::body_decoder::BodyLength;
use wire::h2::connection::remote_state;
use wire::h2::stream::RemoteState;
use wire::h2::{H2ConnectionError, H2ErrorCode, frame, hpack};
use wire::priority::Priority;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead, Version};
use wire::status::Status;

/// Highest urgency value (RFC 9218 §4.1) of small responses sent at once. A less urgent response is queued
/// regardless of the size.
const URGENCY_AT_ONCE: u8 = 3;

/// A stream that needs a response.
#[derive(Copy, Clone)]
pub(super) struct OwedResponse {
    pub(super) id: u32,
    /// True if the whole request has been received.
    pub(super) ended: bool,
    /// True if the stream is not in the table of streams.
    is_new: bool,
    /// Client of a new request.
    client: IpAddr,
    /// Length of the content as declared by the request.
    body: BodyLength,
    priority: Priority,
    is_head: bool,
    /// True if the content is read and discarded, regardless of the response.
    is_drained: bool,
    /// True if content received during a wait is to be passed to the handler.
    pub(super) has_early_body: bool,
}

impl<'c> H2Session<'c> {
    /// Dispatches a new request, and carries out the result.
    pub(super) fn receive_request(
        &mut self,
        id: u32,
        ended: bool,
        request: &FieldSection,
        world: &World,
        cx: &mut Context<'_>,
    ) -> Result<(), H2ConnectionError> {
        let mut owed = OwedResponse {
            id,
            ended,
            is_new: true,
            client: self.who.peer,
            body: BodyLength::None,
            priority: self.h2.priority_of(id, request.priority()),
            is_head: false,
            is_drained: false,
            has_early_body: false,
        };
        let head = match request.head() {
            Ok(head) => head,
            Err(reject) => return self.refuse_request(owed, request, reject, cx),
        };
        owed.is_head = head.method == Method::Head;
        owed.client = client_of(world, self.who.audience, self.who.peer, &head);
        owed.body = head.body;
        let body = if ended {
            RequestContent::None
        } else {
            RequestContent::Pending
        };
        let mut progress = Progress::default();
        let attempt = self.dispatch(world, &head, body, &mut progress);
        // The response doesn't wait for the end of discarded content, unlike over HTTP/1.1, where the
        // framing of the content must prove sound first: a waiting head could be many times larger than
        // the client's field block (RFC 9113 §10.5.1).
        owed.is_drained = discards_content(&attempt);
        self.respond(owed, request, &head, attempt, progress, cx);
        Ok(())
    }

    fn dispatch<'w>(
        &self,
        world: &'w World,
        head: &RequestHead<'_>,
        content: RequestContent,
        progress: &mut Progress,
    ) -> Attempt<'w> {
        let client = self.connection.dispatch_context();
        Attempt::dispatch(world, head, client, &self.context, content, progress)
    }

    /// Ends a request with an invalid head: a malformed request resets the stream, any other request gets a
    /// response.
    fn refuse_request(
        &mut self,
        owed: OwedResponse,
        request: &FieldSection,
        reject: Reject,
        cx: &mut Context<'_>,
    ) -> Result<(), H2ConnectionError> {
        if !reject.is_malformed() {
            self.refuse(owed, request, reject, cx);
            return Ok(());
        }
        let line = self.line_of(request, reject);
        line.log(reject.status, 0, &self.context, self.who);
        let now_ms = self.context.clock.millis();
        self.h2.refuse(owed.id, H2ErrorCode::PROTOCOL_ERROR, now_ms)
    }

    pub(super) fn line_of<'r>(
        &self,
        request: &'r FieldSection,
        reject: Reject,
    ) -> AccessLogEntry<'r> {
        AccessLogEntry::unparsed(&self.context, Version::Http2, request.line(), reject)
    }

    /// Sends the refusal of a request without a dispatch.
    fn refuse(
        &mut self,
        owed: OwedResponse,
        request: &FieldSection,
        reject: Reject,
        cx: &mut Context<'_>,
    ) {
        let line = self.line_of(request, reject);
        let small = SyntheticResponse::refusal(reject, self.who.audience);
        self.responder(owed, line, cx).send_small(small);
    }

    /// Processes a part of a request's content.
    pub(super) fn receive_body(&mut self, id: u32, bytes: &[u8], ended: bool) {
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        if stream.work.is_drained {
            return self.drain(id, bytes.len(), ended);
        }
        match &mut stream.work.state {
            H2ExchangeState::Call(call) => {
                call.note_moved(self.context.clock.millis());
                let is_too_long =
                    call.tunnel.is_none() && call.seen + bytes.len() as u64 > call.body_bytes_max;
                if is_too_long {
                    self.cut_long_call(id);
                    self.receive_rest(id, bytes.len(), ended);
                } else if !self.cover(id, bytes.len()) || !self.take_content(id, bytes, ended) {
                    self.receive_rest(id, bytes.len(), ended);
                }
                return;
            }
            H2ExchangeState::AwaitingRedispatch(pending) => {
                pending.early.bytes.extend_from_slice(bytes);
                let held = pending.asked.held_bytes() + pending.early.held_bytes();
                if stream.work.held.resize(held).is_err() {
                    self.break_off(id, H2ErrorCode::REFUSED_STREAM);
                }
                return;
            }
            _ => {}
        }
        self.h2.release_capacity(id, bytes.len());
    }

    /// Passes a part of the content to the handler. Returns false if the handler takes no more.
    fn take_content(&mut self, id: u32, bytes: &[u8], ended: bool) -> bool {
        match self.h2.stream(id).map(|stream| &mut stream.work.state) {
            Some(H2ExchangeState::Call(call)) => {
                let is_taken = call.take(bytes, ended);
                self.received_bytes += bytes.len() as u64;
                is_taken
            }
            _ => false,
        }
    }

    /// Processes a part of the content that the handler does not take. The stream's window stays closed until the
    /// response begins; from then on the content is discarded, because the client may take no response before it has
    /// sent the whole content. The window of a tunnel stays closed.
    fn receive_rest(&mut self, id: u32, bytes: usize, ended: bool) {
        let Some(stream) = self.h2.stream(id) else {
            return self.h2.release_connection_capacity(bytes as u32);
        };
        let stays_closed = match &stream.work.state {
            H2ExchangeState::Call(call) => call.answering.is_some() || call.tunnel.is_some(),
            _ => false,
        };
        if stays_closed && !stream.work.is_drained {
            stream.work.withheld += bytes as u32;
            return self.h2.release_connection_capacity(bytes as u32);
        }
        stream.work.is_drained = true;
        let withheld = std::mem::take(&mut stream.work.withheld);
        self.h2.release_stream_capacity(id, withheld);
        self.drain(id, bytes, ended);
    }

    /// Processes the trailers and the end of a request's content.
    pub(super) fn receive_trailers(&mut self, id: u32, section: &FieldSection) {
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        if stream.work.is_tunnel() {
            // Only DATA may be sent on a connected stream (RFC 9113 §8.5).
            return self.break_off(id, H2ErrorCode::PROTOCOL_ERROR);
        }
        if stream.work.awaits_body() {
            if let Some(fault) = section.fault() {
                return self.cut_call(id, fault);
            }
            let trailers = section.trailers();
            let head_bytes = stream.work.held.head_bytes() + trailers.len();
            if stream.work.held.resize(head_bytes).is_err() {
                return self.cut_call(id, Reject::REQUESTS_SHARE_TAKEN);
            }
            stream.work.set_trailers(trailers);
        }
        self.receive_body(id, b"", true);
    }

    /// Discards a part of the content. A stream with a complete response is reset beyond the bounds of
    /// [`Linger`](crate::serve::linger::Linger).
    fn drain(&mut self, id: u32, bytes: usize, ended: bool) {
        let now_ms = self.context.clock.millis();
        self.h2.release_capacity(id, bytes);
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        let H2ExchangeState::Drain(linger) = &mut stream.work.state else {
            return;
        };
        linger.note(bytes, now_ms);
        if ended {
            if let Some(work) = self.h2.drained(id) {
                self.forget(&work);
            }
        } else if linger.is_over(now_ms) {
            self.end_drain(id);
        }
    }

    /// Opens the windows for the rest of the content before the end of a response, which begins at `at` in the output. A
    /// client that handles no frame behind the response can go on to send.
    pub(super) fn open_for_rest(&mut self, id: u32, at: usize) {
        if let Some(stream) = self.h2.stream(id)
            && stream.remote != RemoteState::Ended
            && stream.work.may_end_before_content()
        {
            self.h2.open_for_rest(id, at);
        }
    }

    /// Keeps a stream with a complete response open for the rest of the request's content. curl up to 7.88 loses a
    /// response if its stream is reset while it sends. The window opens for the bytes that no handler took, so that the
    /// client can go on. The handler's call ends, and the stream counts no longer as busy.
    pub(super) fn begin_drain(&mut self, id: u32) {
        let now_ms = self.context.clock.millis();
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        let in_pipe = match &mut stream.work.state {
            H2ExchangeState::Call(call) => call.end_upload(),
            _ => WindowCredit::default(),
        };
        let withheld = std::mem::take(&mut stream.work.withheld);
        stream.work.drain(now_ms);
        self.h2.answered_early();
        let of_stream = withheld + in_pipe.of_stream as u32;
        self.h2.release_connection_capacity(in_pipe.of_all as u32);
        self.h2.release_stream_capacity(id, of_stream);
        self.idle_ms = now_ms;
    }

    /// Resets a stream with NO_ERROR after a complete response, because the rest of the request is not
    /// needed (RFC 9113 §8.1).
    pub(super) fn end_drain(&mut self, id: u32) {
        if let Some(work) = self.h2.reset(id, H2ErrorCode::NO_ERROR) {
            self.forget(&work);
        }
    }

    fn owed(&mut self, id: u32) -> Option<OwedResponse> {
        let stream = self.h2.stream(id)?;
        Some(OwedResponse {
            id,
            ended: stream.remote == RemoteState::Ended,
            is_new: false,
            client: self.who.peer,
            body: BodyLength::None,
            priority: stream.priority,
            is_head: false,
            is_drained: stream.work.is_drained,
            has_early_body: false,
        })
    }

    /// Dispatches a request again after a wait.
    pub(super) fn ask_again(&mut self, id: u32, again: RedispatchedRequest, cx: &mut Context<'_>) {
        let RedispatchedRequest {
            asked,
            mut progress,
            early,
        } = again;
        let Some(mut owed) = self.owed(id) else {
            return;
        };
        let world = self.context.world();
        let Ok(head) = asked.head() else {
            return self.break_off(id, H2ErrorCode::INTERNAL_ERROR);
        };
        owed.is_head = head.method == Method::Head;
        owed.has_early_body = !early.is_empty();
        let body = match (owed.is_drained, owed.ended && early.is_empty()) {
            (true, _) => RequestContent::Discarded,
            (false, true) => RequestContent::None,
            (false, false) => RequestContent::Pending,
        };
        let attempt = self.dispatch(&world, &head, body, &mut progress);
        if discards_content(&attempt)
            && let Some(stream) = self.h2.stream(id)
        {
            owed.is_drained = true;
            stream.work.is_drained = true;
        }
        self.respond(owed, &asked, &head, attempt, progress, cx);
        if owed.has_early_body {
            self.give_early(owed, early);
        }
    }

    /// Passes the content received before the call of the handler to the handler.
    fn give_early(&mut self, owed: OwedResponse, early: EarlyBody) {
        let bytes = early.bytes.len();
        let mut is_taken = false;
        if let Some(stream) = self.h2.stream(owed.id) {
            match &mut stream.work.state {
                _ if stream.work.is_drained => return self.drain(owed.id, bytes, owed.ended),
                H2ExchangeState::Call(call)
                    if call.tunnel.is_none() && bytes as u64 > call.body_bytes_max =>
                {
                    self.cut_long_call(owed.id);
                    return self.receive_rest(owed.id, bytes, owed.ended);
                }
                H2ExchangeState::Call(call) => {
                    call.set_trailers(&early.trailers);
                    is_taken = self.cover(owed.id, bytes)
                        && self.take_content(owed.id, &early.bytes, owed.ended);
                }
                // The request waits again.
                H2ExchangeState::AwaitingRedispatch(pending) => {
                    let held = pending.asked.held_bytes() + early.held_bytes();
                    pending.early = early;
                    if stream.work.held.resize(held).is_err() {
                        self.break_off(owed.id, H2ErrorCode::REFUSED_STREAM);
                    }
                    return;
                }
                _ => {}
            }
        }
        if !is_taken {
            self.receive_rest(owed.id, bytes, owed.ended);
        }
    }

    /// Enters a request into the table of streams and the ledger, with `head_bytes` of memory for the head,
    /// because the response needs more than one write. Returns None if a limit is reached: the refusal
    /// allows the client to send the request again.
    fn take_up(&mut self, owed: OwedResponse, head_bytes: usize) -> Option<OwedResponse> {
        if !owed.is_new {
            let stream = self.h2.stream(owed.id)?;
            if stream.work.held.resize(head_bytes).is_err() {
                self.break_off(owed.id, H2ErrorCode::REFUSED_STREAM);
                return None;
            }
            return Some(owed);
        }
        let requests_max = self.context.world().limits.streams;
        let now_ms = self.context.clock.millis();
        match self
            .account
            .of_client(owed.client)
            .admit(head_bytes, requests_max, now_ms)
        {
            Ok(held) => Some(self.enter(owed, held)),
            Err(_) => {
                self.h2.refuse_for_load(owed.id, owed.ended);
                None
            }
        }
    }

    /// Enters a new stream into the table.
    fn enter(&mut self, owed: OwedResponse, held: RequestReservation) -> OwedResponse {
        let remote = remote_state(owed.body, owed.ended);
        let mut exchange = H2Exchange::new(&self.context, held);
        exchange.is_drained = owed.is_drained;
        self.h2.accept(owed.id, remote, owed.priority, exchange);
        OwedResponse {
            is_new: false,
            ..owed
        }
    }

    /// Returns the exchange of a stream in the table.
    fn exchange(&mut self, owed: OwedResponse) -> Option<&mut H2Exchange> {
        self.h2.stream(owed.id).map(|stream| &mut *stream.work)
    }

    /// Executes the next step of a request.
    fn respond(
        &mut self,
        owed: OwedResponse,
        request: &FieldSection,
        head: &RequestHead<'_>,
        attempt: Attempt<'_>,
        progress: Progress,
        cx: &mut Context<'_>,
    ) {
        let Attempt {
            step,
            request: matched,
            ..
        } = attempt;
        let line = AccessLogEntry::new(&self.context, head, &matched);
        match step {
            Step::Wait(wait) => {
                let work = redispatch::wait(wait, &self.context, progress);
                let Some(owed) = self.take_up(owed, request.held_bytes()) else {
                    return;
                };
                if let Some(exchange) = self.exchange(owed) {
                    exchange.state = H2ExchangeState::AwaitingRedispatch(PendingRedispatch {
                        asked: Box::new(request.clone()),
                        early: EarlyBody::default(),
                        work,
                    });
                }
            }
            Step::Call(handler) => {
                // The handler has a copy of the head, and a script has variables made from the head.
                let head_bytes = 2 * request.held_bytes() + line.kept_bytes(&self.context);
                match self.context.admit_call(owed.client) {
                    Ok(memory) => {
                        if let Some(owed) = self.take_up(owed, head_bytes) {
                            let bytes_max = line.body_bytes_max(&self.context.world());
                            let handler = (handler, memory, bytes_max);
                            self.begin_call(owed, handler, head, &line);
                        }
                    }
                    Err(reject) => self
                        .responder(owed, line, cx)
                        .send(ReadyResponse::refusal(reject)),
                }
            }
            Step::Send(response) => self.responder(owed, line, cx).send(response),
        }
    }

    fn responder<'s, 'l, 'x>(
        &'s mut self,
        owed: OwedResponse,
        line: AccessLogEntry<'l>,
        cx: &'s mut Context<'x>,
    ) -> H2Responder<'s, 'c, 'l, 'x> {
        H2Responder {
            session: self,
            owed,
            line,
            cx,
        }
    }

    /// Writes a HEADERS frame with `block`, `fields`, the site's fields for secure connections and `date`.
    /// `date` is None if `block` has a Date.
    pub(super) fn send_head(
        &mut self,
        id: u32,
        block: &[u8],
        fields: &[u8],
        secure_fields: Option<&SecureFields>,
        date: Option<&[u8]>,
        is_last: bool,
    ) {
        let secure_fields = secure_fields.and_then(|it| it.over(self.is_secure()));
        let at = self.h2.begin_head(id);
        push_fields::<Hpack>(block, fields, secure_fields, date, &mut self.h2.out);
        self.h2.end_head(id, at, is_last);
    }

    /// Appends a stored page's content, held in memory, after the HEADERS frame.
    fn put_body(&mut self, id: u32, stored: VariantResponse) {
        let body = stored.whole_memory().unwrap_or_default();
        self.h2.body_follows(id, body.len());
        if self.is_secure() {
            self.bodies_bytes += body.len();
            self.bodies.push((self.h2.out.len(), stored));
        } else {
            self.h2.out.extend_from_slice(body);
        }
    }

    /// Finishes the stream of a response written completely.
    fn finish_answered(&mut self, owed: OwedResponse) {
        let drains = !owed.ended;
        let owed = if drains && owed.is_new {
            self.enter_answered(owed)
        } else {
            owed
        };
        if owed.is_new {
            return self.h2.finish_unaccepted(owed.id, owed.ended);
        }
        if drains && self.h2.stream(owed.id).is_some() {
            return self.begin_drain(owed.id);
        }
        if let Some(work) = self.h2.finish(owed.id) {
            self.forget(&work);
        }
    }

    /// Enters a stream with a complete response and unfinished content into the table. If a limit is
    /// reached, the stream stays outside the table and the rest of the request is refused.
    fn enter_answered(&mut self, owed: OwedResponse) -> OwedResponse {
        let requests_max = self.context.world().limits.streams;
        let now_ms = self.context.clock.millis();
        match self
            .account
            .of_client(owed.client)
            .admit_answered(requests_max, now_ms)
        {
            Some(held) => self.enter(owed, held),
            None => owed,
        }
    }
}

/// A request at the time of its response.
struct H2Responder<'s, 'c, 'l, 'x> {
    session: &'s mut H2Session<'c>,
    owed: OwedResponse,
    line: AccessLogEntry<'l>,
    cx: &'s mut Context<'x>,
}

impl<'l> Responder<'l> for H2Responder<'_, '_, 'l, '_> {
    type Sent = ();

    fn context(&self) -> &WorkerContext {
        &self.session.context
    }

    fn line(&mut self) -> &mut AccessLogEntry<'l> {
        &mut self.line
    }

    fn audience(&self) -> Audience {
        self.session.who.audience
    }

    fn end_use(&mut self, reject: Reject) {
        if reject.ends_connection() {
            self.session.begin_leaving();
        }
    }

    fn send_stored(mut self, page: VariantResponse, fields: Vec<u8>) {
        let status = page.status;
        let length = page.body_len();
        let at_once = match page.whole_memory() {
            _ if length == 0 => true,
            Some(body) => self.fits_at_once(body.len()),
            None => false,
        };
        if self.take_up_unless(at_once, 0).is_none() {
            return;
        }
        self.open_for_rest(status);
        let mut built = Vec::new();
        self.send_head(
            page.block(&mut built),
            &fields,
            !page.is_dated(),
            length == 0,
        );
        self.context().lead.replace(fields);
        if !at_once {
            return self.queue(status, BodyReader::stored(page), length);
        }
        if length > 0 {
            self.session.put_body(self.owed.id, page);
        }
        self.done(status, length);
    }

    fn send_small(mut self, small: SyntheticResponse) {
        let mut block = Vec::new();
        hpack::push_head(small.status.0, &small.lines(), &mut block);
        let is_head =
            self.owed.is_head || self.line.head.is_some_and(|it| it.method == Method::Head);
        let length = if is_head { 0 } else { small.body.len() };
        let at_once = length == 0 || self.fits_at_once(length);
        if self.take_up_unless(at_once, length).is_none() {
            return;
        }
        self.open_for_rest(small.status);
        self.send_head(&block, b"", true, length == 0);
        if !at_once {
            let body = BodyReader::bytes(small.body);
            return self.queue(small.status, body, length as u64);
        }
        if length > 0 {
            self.session.h2.body_follows(self.owed.id, length);
            self.session.h2.out.extend_from_slice(&small.body);
        }
        self.done(small.status, length as u64);
    }

    fn send_listing(mut self, listing: Box<Listing>) {
        let mut built = Vec::new();
        let mut block = Vec::new();
        hpack::push_head(Status::OK.0, listing.head(&mut built), &mut block);
        let is_last = listing.head_only();
        if self.take_up_unless(is_last, listing.held_bytes()).is_none() {
            return;
        }
        self.open_for_rest(Status::OK);
        self.send_head(&block, b"", true, is_last);
        if is_last {
            self.done(Status::OK, 0)
        } else {
            self.queue(Status::OK, BodyReader::listing(listing), u64::MAX)
        }
    }
}

impl H2Responder<'_, '_, '_, '_> {
    /// Enters the request into the table unless the response is sent at once. The reservation covers the log
    /// line and `body_bytes` of memory for the content. Returns None if a limit is reached.
    fn take_up_unless(&mut self, at_once: bool, body_bytes: usize) -> Option<()> {
        if !at_once {
            let bytes = self.line.kept_bytes(&self.session.context) + body_bytes;
            self.owed = self.session.take_up(self.owed, bytes)?;
        }
        Some(())
    }

    /// Opens the windows for the rest of the request's content, which is discarded, before a response with `status`.
    fn open_for_rest(&mut self, status: Status) {
        if self.owed.ended || !may_go_on_behind(status) {
            return;
        }
        if self.owed.is_new {
            self.owed = self.session.enter_answered(self.owed);
        }
        let h2 = &mut self.session.h2;
        h2.open_for_rest(self.owed.id, h2.out.len());
    }

    /// Returns true if the content can be sent directly after the HEADERS frame. Bytes pending in `out` may
    /// have to be written first.
    fn fits_at_once(&mut self, bytes: usize) -> bool {
        let (session, owed) = (&mut *self.session, self.owed);
        let is_small = bytes <= wire::limits::H2_SMALL_BODY_BYTES && owed.is_new;
        if !is_small || owed.priority.urgency > URGENCY_AT_ONCE || !session.h2.fits_at_once(bytes) {
            return false;
        }
        let need = bytes + HEAD_BYTES + 2 * frame::HEADER_BYTES;
        let has_room = |it: &H2Session<'_>| {
            it.unsent() + need <= OUT_BYTES_MAX && it.bodies.len() < BODIES_MAX
        };
        if !has_room(session) {
            let _ = session.poll_write(self.cx);
        }
        has_room(session)
    }

    /// Writes a HEADERS frame with `block`, `fields`, the site's fields for secure connections and, if `block` has no
    /// Date, the current Date.
    fn send_head(&mut self, block: &[u8], fields: &[u8], needs_date: bool, is_last: bool) {
        let date = self.session.context.clock.date_field();
        let date = needs_date.then_some(&date[..]);
        let secure_fields = self.line.secure_fields().map(|it| &**it);
        self.session
            .send_head(self.owed.id, block, fields, secure_fields, date, is_last);
    }

    /// Queues the content until the stream may send.
    fn queue(self, status: Status, body: BodyReader, left: u64) {
        let (session, owed) = (self.session, self.owed);
        let (phase, who) = (RequestPhase::Response, session.who);
        let record = self.line.keep(status, phase, &session.context, who);
        let Some(exchange) = session.exchange(owed) else {
            return;
        };
        exchange.state = H2ExchangeState::Body(body);
        exchange.record = record;
        if let Some(stream) = session.h2.stream(owed.id) {
            stream.ready = true;
            stream.left = left;
        }
    }

    /// Counts and logs a response written completely, and finishes the stream.
    fn done(self, status: Status, bytes: u64) {
        let session = self.session;
        self.line
            .finish(status, bytes, &session.context, session.who);
        session.finish_answered(self.owed);
    }
}

/// Returns true if the content is read and discarded beside the response. A client that waits for 100 (Continue) may
/// send the content all the same (RFC 9110 §10.1.1).
fn discards_content(attempt: &Attempt<'_>) -> bool {
    match attempt.content {
        ContentAction::Discard => true,
        ContentAction::Refuse => matches!(attempt.step, Step::Send(_)),
        _ => false,
    }
}

/// Estimated size of the HEADERS frame of a response sent at once. A longer frame only makes `out` slightly
/// longer.
const HEAD_BYTES: usize = 512;
