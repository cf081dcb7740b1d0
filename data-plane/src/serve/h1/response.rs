//! Responses of HTTP/1.1: executes the step that follows a dispatch, and sends the response.

use crate::ledger::active_requests::RequestPhase;
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::attempt::Attempt;
use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::h1::call::H1Call;
use crate::serve::h1::chunk::encode_chunk;
use crate::serve::h1::send::{H1BodySource, ResponseWriter, SendProgress};
use crate::serve::h1::session::{ConnectionStep, H1Session, RequestOutcome};
use crate::serve::h1::unsent_response::UnsentResponse;
use crate::serve::redispatch;
use crate::serve::responder::Responder;
use crate::serve::response_head::push_connection_lines;
use crate::serve::step::{ReadyResponse, Step, Wait};
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{Listing, VariantResponse};
use crate::world::World;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead, Version};
use wire::status::{Status, StatusLine};

/// A request at the time of its response.
struct H1Responder<'s, 'l, 'c> {
    connection: &'s mut Connection,
    line: AccessLogEntry<'l>,
    /// State of the connection after the response.
    after: AfterResponse,
    /// Offset of the end of the request in the read buffer.
    request_end: usize,
    cx: &'s mut Context<'c>,
}

impl H1Session {
    /// Sends the response of `attempt`, or returns the step to wait for.
    pub(super) fn respond(
        &mut self,
        world: &World,
        head: &RequestHead<'_>,
        attempt: Attempt<'_>,
        head_bytes: usize,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let Attempt { step, request, .. } = attempt;
        let bodiless = matches!(head.body, BodyLength::None | BodyLength::Length(0));
        let unread_body = !bodiless && !self.body_read;
        let after = self.after(head, unread_body);
        let line = AccessLogEntry::new(&self.connection.context, head, &request);
        let response = match step {
            Step::Send(response) => response,
            Step::Wait(wait) => {
                self.connection.phase(ConnectionPhase::Busy);
                let is_question = matches!(wait, Wait::Auth(_));
                let wait = redispatch::wait(
                    wait,
                    &self.connection.context,
                    std::mem::take(&mut self.progress),
                );
                return RequestOutcome::Waiting {
                    keep: head_bytes,
                    from: end,
                    has_content: unread_body,
                    next: Some(if is_question {
                        ConnectionStep::Ask(wait)
                    } else {
                        ConnectionStep::Redispatch(wait)
                    }),
                };
            }
            Step::Call(handler) => {
                let reservation = match self.reserve_head_copies(&line, head_bytes) {
                    Ok(reservation) => reservation,
                    Err(reject) => return self.send_refusal(reject, line, end, cx),
                };
                let connection = &self.connection;
                let client = line.client(world, connection.client_info());
                match connection.context.admit_call(client.peer) {
                    Ok(memory) => {
                        let mut call = H1Call::new(handler, head, connection, world, &line, memory);
                        call.hold_head(reservation);
                        if self.closes {
                            call.close_afterwards();
                        }
                        return RequestOutcome::Then(end, ConnectionStep::Call(Box::new(call)));
                    }
                    Err(reject) => ReadyResponse::refusal(reject),
                }
            }
        };
        let responder = H1Responder {
            connection: &mut self.connection,
            line,
            after,
            request_end: end,
            cx,
        };
        responder.send(response)
    }

    /// Sends the refusal of a request, and closes the connection.
    pub(super) fn send_refusal(
        &mut self,
        reject: Reject,
        line: AccessLogEntry<'_>,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let responder = H1Responder {
            line: AccessLogEntry {
                reject: Some(reject),
                ..line
            },
            after: AfterResponse::Linger,
            request_end: end,
            connection: &mut self.connection,
            cx,
        };
        let audience = responder.audience();
        responder.send_small(SyntheticResponse::refusal(reject, audience))
    }

    /// Returns whether the connection continues after the exchange.
    fn after(&self, head: &RequestHead<'_>, unread_body: bool) -> AfterResponse {
        if unread_body {
            AfterResponse::Linger
        } else if !head.keep_alive || self.closes {
            AfterResponse::Close
        } else if self.connection.context.is_draining() {
            AfterResponse::of_last_response(&self.connection.context)
        } else {
            AfterResponse::Keep
        }
    }
}

impl<'l> Responder<'l> for H1Responder<'_, 'l, '_> {
    type Sent = RequestOutcome;

    fn context(&self) -> &WorkerContext {
        &self.connection.context
    }

    fn line(&mut self) -> &mut AccessLogEntry<'l> {
        &mut self.line
    }

    fn audience(&self) -> Audience {
        self.connection.audience()
    }

    fn end_use(&mut self, reject: Reject) {
        if reject.close {
            self.after = AfterResponse::Linger;
        }
    }

    fn send_stored(mut self, page: VariantResponse, mut fields: Vec<u8>) -> RequestOutcome {
        self.finish_head(&mut fields, !page.is_dated());
        let status = page.status;
        let length = page.body_len();
        let mut built = Vec::new();
        let head = page.head(&mut built);
        let head_bytes = head.len() + fields.len();
        let whole = match (length, page.whole_memory()) {
            (0, _) => Some(&[][..]),
            (_, Some(bytes)) if self.fits_at_once(bytes.len(), head_bytes, &page) => Some(bytes),
            _ => None,
        };
        let Some(body) = whole else {
            let lead = [head, &fields].concat();
            self.connection.context.lead.replace(fields);
            let outgoing = ResponseWriter::new(lead, H1BodySource::Stored(page));
            return self.send_outgoing(outgoing, status, length);
        };
        let written = match self.write_at_once([head, &fields, body]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(_)) => return self.close(),
            Poll::Pending => 0,
        };
        if written == head_bytes + body.len() {
            match self.connection.stream.poll_flush(self.cx) {
                Poll::Ready(Ok(())) => {
                    self.connection.context.lead.replace(fields);
                    self.done(status, length);
                    return self.outcome();
                }
                // The client closed the connection. Further responses would only fill memory, because TLS
                // buffers the bytes that the socket does not accept.
                Poll::Ready(Err(_)) => return self.close(),
                Poll::Pending => {}
            }
        }
        let lead = if written < head_bytes {
            [head, &fields].concat().split_off(written)
        } else {
            Vec::new()
        };
        self.connection.context.lead.replace(fields);
        let body_at = written.saturating_sub(head_bytes) as u64;
        self.send_rest(page, lead, body_at)
    }

    fn send_small(mut self, small: SyntheticResponse) -> RequestOutcome {
        let status = small.status;
        let mut bytes = Vec::with_capacity(256);
        StatusLine::from(status).push(&mut bytes);
        bytes.extend_from_slice(&small.lines());
        self.finish_head(&mut bytes, true);
        let head = self.head();
        let is_head = head.is_some_and(|head| head.method == Method::Head);
        let length = if is_head { 0 } else { small.body.len() };
        bytes.extend_from_slice(&small.body[..length]);
        let outgoing = ResponseWriter::new(bytes, H1BodySource::Nothing);
        self.send_outgoing(outgoing, status, length as u64)
    }

    fn send_listing(mut self, listing: Box<Listing>) -> RequestOutcome {
        let head = self.head();
        let chunked = head.is_some_and(|head| head.version == Version::Http11);
        if !chunked && self.after == AfterResponse::Keep {
            self.after = AfterResponse::Close;
        }
        let mut built = Vec::new();
        let mut lead = listing.head(&mut built).to_vec();
        if chunked {
            lead.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        self.finish_head(&mut lead, true);
        let source = if listing.head_only() {
            H1BodySource::Nothing
        } else {
            H1BodySource::Chunks(Box::new(ListingChunks {
                listing,
                chunked,
                done: false,
            }))
        };
        let outgoing = ResponseWriter::new(lead, source);
        self.send_outgoing(outgoing, Status::OK, 0)
    }
}

impl<'l> H1Responder<'_, 'l, '_> {
    /// Returns the head of the request; None if the head is malformed or incomplete.
    fn head(&self) -> Option<&'l RequestHead<'l>> {
        self.line.head
    }

    /// Returns the outcome after a complete response.
    fn outcome(&self) -> RequestOutcome {
        match self.after {
            AfterResponse::Keep => RequestOutcome::Took(self.request_end),
            after => RequestOutcome::Then(self.request_end, ConnectionStep::End(after)),
        }
    }

    /// Returns the outcome after a failed write.
    fn close(&self) -> RequestOutcome {
        RequestOutcome::Then(self.request_end, ConnectionStep::End(AfterResponse::Close))
    }

    /// Appends the connection's fields, the Date field unless the page has a Date, and the end of the header
    /// section.
    #[inline]
    fn finish_head(&self, fields: &mut Vec<u8>, needs_date: bool) {
        let line = &self.line;
        let version = self.head().map_or(Version::Http11, |head| head.version);
        let secure_fields = line.secure_fields();
        let secure_fields = secure_fields.and_then(|it| it.over(self.connection.is_secure()));
        push_connection_lines(fields, version, self.after, secure_fields);
        if needs_date {
            fields.extend_from_slice(&self.connection.context.clock.date_field());
        }
        fields.extend_from_slice(b"\r\n");
    }

    /// Keeps the unwritten part of a page until the socket takes more. The written bytes of header section
    /// and content are not sent again.
    #[cold]
    fn send_rest(
        &mut self,
        stored: VariantResponse,
        lead: Vec<u8>,
        body_at: u64,
    ) -> RequestOutcome {
        let status = stored.status;
        let source = if body_at < stored.body_len() || !lead.is_empty() {
            H1BodySource::Stored(stored)
        } else {
            H1BodySource::Nothing
        };
        self.later(ResponseWriter::resume(lead, source, body_at), status)
    }

    /// Writes the header section, the changing fields and the content at once. A short response is first
    /// copied into one buffer, because the copy costs less than the kernel's processing of a list of
    /// buffers.
    fn write_at_once(&mut self, parts: [&[u8]; 3]) -> Poll<io::Result<usize>> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total > limits::COALESCED_RESPONSE_BYTES_MAX || self.connection.stream.tls.is_some() {
            return self
                .connection
                .stream
                .poll_write(self.cx, &parts.map(IoSlice::new));
        }
        let context = self.connection.context.clone();
        let mut joined = context.joined.borrow_mut();
        joined.clear();
        for part in parts {
            joined.extend_from_slice(part);
        }
        self.connection
            .stream
            .poll_write(self.cx, &[IoSlice::new(&joined)])
    }

    /// Returns true if content in memory may leave together with its header section in one write.
    fn fits_at_once(&self, body: usize, head: usize, stored: &VariantResponse) -> bool {
        if self.connection.stream.tls.is_some() {
            body + head + 1024 <= limits::UNSENT_BYTES_MAX
        } else {
            (body as u64) < limits::SENDFILE_BYTES_MIN || stored.variant.disk().is_none()
        }
    }

    /// Sends as much as the socket accepts now. The remaining bytes become a [`ConnectionStep::Send`].
    fn send_outgoing(
        &mut self,
        mut outgoing: ResponseWriter,
        status: Status,
        length: u64,
    ) -> RequestOutcome {
        let context = self.connection.context.clone();
        let now_us = context.clock.micros();
        let (stream, disk) = (&mut self.connection.stream, &mut context.disk.borrow_mut());
        match outgoing.poll_send(stream, disk, now_us, self.cx) {
            Poll::Ready(Ok(SendProgress::Done)) => {
                self.done(status, length.max(outgoing.sent));
                self.outcome()
            }
            Poll::Ready(Err(_)) => {
                self.done(status, outgoing.sent);
                RequestOutcome::Then(self.request_end, ConnectionStep::End(AfterResponse::Reset))
            }
            Poll::Ready(Ok(SendProgress::Disk(_))) | Poll::Pending => self.later(outgoing, status),
        }
    }

    fn later(&mut self, outgoing: ResponseWriter, status: Status) -> RequestOutcome {
        let (connection, line) = (&self.connection, &self.line);
        let who = connection.client_info();
        let record = line.keep(status, RequestPhase::Response, &connection.context, who);
        connection.phase(ConnectionPhase::Write);
        RequestOutcome::Then(
            self.request_end,
            ConnectionStep::Send(Box::new(UnsentResponse {
                outgoing,
                record,
                after: self.after,
                started_us: line.started_us,
            })),
        )
    }

    /// Counts and logs a response written to the socket.
    fn done(&mut self, status: Status, bytes: u64) {
        let (context, line) = (&self.connection.context, &self.line);
        line.finish(status, bytes, context, self.connection.client_info());
    }
}

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
