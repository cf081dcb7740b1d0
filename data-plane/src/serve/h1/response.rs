//! Responses of HTTP/1.1: executes the step that follows a dispatch, and sends the response.

use crate::ledger::active_requests::RequestPhase;
use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::attempt::Attempt;
use crate::serve::connection::AfterResponse;
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h1::call::H1Call;
use crate::serve::h1::chunk::encode_chunk;
use crate::serve::h1::send::{H1BodySource, ResponseWriter, SendProgress};
use crate::serve::h1::session::{ConnectionStep, H1Session, RequestOutcome};
use crate::serve::h1::unsent_response::UnsentResponse;
use crate::serve::redispatch;
use crate::serve::response_head::push_connection_lines;
use crate::serve::step::{ReadyResponse, Step};
use crate::serve::synthetic_response::{SyntheticResponse, lines_beside};
use crate::site::{Listing, VariantResponse};
use crate::world::World;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead, Version};
use wire::status::{Status, StatusLine};

/// A request at the time of its response.
struct H1Exchange<'l> {
    line: AccessLogEntry<'l>,
    /// State of the connection after the response.
    after: AfterResponse,
    /// Offset of the end of the request in the read buffer.
    request_end: usize,
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
        let context = &self.connection.context;
        let bodiless = matches!(head.body, BodyLength::None | BodyLength::Length(0));
        let unread_body = !bodiless && !self.body_read;
        let mut exchange = H1Exchange {
            line: AccessLogEntry::new(context, head, &request),
            after: self.after(head, unread_body),
            request_end: end,
        };
        match step {
            Step::Send(response) => self.send_ready(response, &mut exchange, cx),
            Step::Wait(wait) => {
                self.connection.phase(ConnectionPhase::Busy);
                let wait = redispatch::wait(wait, &context.pool, self.progress);
                RequestOutcome::Waiting {
                    keep: head_bytes,
                    from: end,
                    has_content: unread_body,
                    next: Some(ConnectionStep::Redispatch(wait)),
                }
            }
            Step::Call(handler) => match self.reserve_head_copies(&exchange.line, head_bytes) {
                Ok(reservation) => {
                    let (connection, line) = (&self.connection, &exchange.line);
                    let client = line.client(world, connection.client_info());
                    let memory = match context.admit_call(client.peer) {
                        Ok(memory) => memory,
                        Err(reject) => {
                            let refusal = ReadyResponse::refusal(reject);
                            return self.send_ready(refusal, &mut exchange, cx);
                        }
                    };
                    let mut call = H1Call::new(handler, head, connection, world, line, memory);
                    call.hold_head(reservation);
                    if self.closes {
                        call.close_afterwards();
                    }
                    RequestOutcome::Then(end, ConnectionStep::Call(Box::new(call)))
                }
                Err(reject) => self.send_refusal(reject, exchange.line, end, cx),
            },
        }
    }

    /// Sends the refusal of a request, and closes the connection.
    pub(super) fn send_refusal(
        &mut self,
        reject: Reject,
        line: AccessLogEntry<'_>,
        end: usize,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let exchange = H1Exchange {
            line: AccessLogEntry {
                reject: Some(reject),
                ..line
            },
            after: AfterResponse::Linger,
            request_end: end,
        };
        self.send_small(
            SyntheticResponse::refusal(reject, self.connection.audience()),
            &exchange,
            cx,
        )
    }

    /// Sends a response without a handler.
    #[inline(always)]
    fn send_ready(
        &mut self,
        response: ReadyResponse,
        exchange: &mut H1Exchange<'_>,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        match response {
            ReadyResponse::Stored(stored) => {
                let context = &self.connection.context;
                let mut extra = context.lead.take();
                extra.clear();
                if stored.is_from_cache() {
                    context.stats.cache_hits.increment();
                    exchange.line.cache = stored.cache_outcome();
                    stored.push_changing(&mut extra);
                }
                exchange.line.reject = stored.reject();
                self.finish_head(&mut extra, exchange, !stored.is_dated());
                self.send_stored(stored, extra, exchange, cx)
            }
            ReadyResponse::Refuse { reject, page } => {
                if reject.close {
                    exchange.after = AfterResponse::Linger;
                }
                exchange.line.reject = Some(reject);
                match page {
                    Some(page) => {
                        let mut extra = self.connection.context.lead.take();
                        extra.clear();
                        let lines = exchange.line.refusal_fields(reject);
                        extra.extend_from_slice(lines_beside(&page, lines));
                        self.finish_head(&mut extra, exchange, true);
                        self.send_stored(page, extra, exchange, cx)
                    }
                    None => {
                        let audience = self.connection.audience();
                        let fields = exchange.line.refusal_fields(reject);
                        let small = SyntheticResponse::refusal_with(fields, reject, audience);
                        self.send_small(small, exchange, cx)
                    }
                }
            }
            ReadyResponse::Synthetic(small) => self.send_small(small, exchange, cx),
            ReadyResponse::Listing(listing) => self.send_listing(listing, exchange, cx),
        }
    }

    /// Returns whether the connection continues after the exchange.
    fn after(&self, head: &RequestHead<'_>, unread_body: bool) -> AfterResponse {
        if unread_body {
            AfterResponse::Linger
        } else if !head.keep_alive || self.closes || self.connection.context.is_draining() {
            AfterResponse::Close
        } else {
            AfterResponse::Keep
        }
    }

    /// Appends the connection's fields, the Date field unless the page has a Date, and the end of the header
    /// section.
    #[inline]
    fn finish_head(&self, fields: &mut Vec<u8>, exchange: &H1Exchange<'_>, needs_date: bool) {
        let line = &exchange.line;
        let version = exchange.head().map_or(Version::Http11, |head| head.version);
        let secure_fields = line.secure_fields();
        let secure_fields = secure_fields.and_then(|it| it.over(self.connection.is_secure()));
        push_connection_lines(fields, version, exchange.after, secure_fields);
        if needs_date {
            fields.extend_from_slice(&self.connection.context.clock.date_field());
        }
        fields.extend_from_slice(b"\r\n");
    }

    /// Sends a stored page, if possible by one vectored write.
    fn send_stored(
        &mut self,
        stored: VariantResponse,
        extra: Vec<u8>,
        exchange: &H1Exchange<'_>,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let status = stored.status;
        let length = stored.body_len();
        let mut built = Vec::new();
        let head = stored.head(&mut built);
        let head_bytes = head.len() + extra.len();
        let whole = match (length, stored.whole_memory()) {
            (0, _) => Some(&[][..]),
            (_, Some(bytes)) if self.fits_at_once(bytes.len(), head_bytes, &stored) => Some(bytes),
            _ => None,
        };
        let Some(body) = whole else {
            let lead = [head, &extra].concat();
            self.connection.context.lead.replace(extra);
            let outgoing = ResponseWriter::new(lead, H1BodySource::Stored(stored));
            return self.send_outgoing(outgoing, status, length, exchange, cx);
        };
        let written = match self.write_at_once(cx, [head, &extra, body]) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(_)) => return exchange.close(),
            Poll::Pending => 0,
        };
        if written == head_bytes + body.len() {
            match self.connection.stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.connection.context.lead.replace(extra);
                    self.done(status, length, exchange);
                    return exchange.outcome();
                }
                // The client closed the connection. Further responses would only fill memory, because TLS
                // buffers the bytes that the socket does not accept.
                Poll::Ready(Err(_)) => return exchange.close(),
                Poll::Pending => {}
            }
        }
        let lead = if written < head_bytes {
            [head, &extra].concat().split_off(written)
        } else {
            Vec::new()
        };
        self.connection.context.lead.replace(extra);
        let body_at = written.saturating_sub(head_bytes) as u64;
        self.send_rest(stored, lead, body_at, exchange)
    }

    /// Keeps the unwritten part of a page until the socket takes more. The written bytes of header section
    /// and content are not sent again.
    #[cold]
    fn send_rest(
        &mut self,
        stored: VariantResponse,
        lead: Vec<u8>,
        body_at: u64,
        exchange: &H1Exchange<'_>,
    ) -> RequestOutcome {
        let status = stored.status;
        let source = if body_at < stored.body_len() || !lead.is_empty() {
            H1BodySource::Stored(stored)
        } else {
            H1BodySource::Nothing
        };
        self.later(
            ResponseWriter::resume(lead, source, body_at),
            status,
            exchange,
        )
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
        if total > limits::COALESCED_RESPONSE_BYTES_MAX || self.connection.stream.tls.is_some() {
            return self
                .connection
                .stream
                .poll_write(cx, &parts.map(IoSlice::new));
        }
        let context = self.connection.context.clone();
        let mut joined = context.joined.borrow_mut();
        joined.clear();
        for part in parts {
            joined.extend_from_slice(part);
        }
        self.connection
            .stream
            .poll_write(cx, &[IoSlice::new(&joined)])
    }

    /// Returns true if content in memory may leave together with its header section in one write.
    fn fits_at_once(&self, body: usize, head: usize, stored: &VariantResponse) -> bool {
        if self.connection.stream.tls.is_some() {
            body + head + 1024 <= limits::UNSENT_BYTES_MAX
        } else {
            (body as u64) < limits::SENDFILE_BYTES_MIN || stored.variant.disk().is_none()
        }
    }

    /// Sends a synthetic response.
    fn send_small(
        &mut self,
        small: SyntheticResponse,
        exchange: &H1Exchange<'_>,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let status = small.status;
        let mut bytes = Vec::with_capacity(256);
        StatusLine::from(status).push(&mut bytes);
        bytes.extend_from_slice(&small.lines());
        self.finish_head(&mut bytes, exchange, true);
        let head = exchange.head();
        let is_head = head.is_some_and(|head| head.method == Method::Head);
        let length = if is_head { 0 } else { small.body.len() };
        bytes.extend_from_slice(&small.body[..length]);
        let outgoing = ResponseWriter::new(bytes, H1BodySource::Nothing);
        self.send_outgoing(outgoing, status, length as u64, exchange, cx)
    }

    /// Sends a directory listing, generated while being sent.
    fn send_listing(
        &mut self,
        listing: Box<Listing>,
        exchange: &mut H1Exchange<'_>,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let head = exchange.head();
        let chunked = head.is_some_and(|head| head.version == Version::Http11);
        if !chunked && exchange.after == AfterResponse::Keep {
            exchange.after = AfterResponse::Close;
        }
        let mut built = Vec::new();
        let mut lead = listing.head(&mut built).to_vec();
        if chunked {
            lead.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        self.finish_head(&mut lead, exchange, true);
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
        self.send_outgoing(outgoing, Status::OK, 0, exchange, cx)
    }

    /// Sends as much as the socket accepts now. The remaining bytes become a [`ConnectionStep::Send`].
    fn send_outgoing(
        &mut self,
        mut outgoing: ResponseWriter,
        status: Status,
        length: u64,
        exchange: &H1Exchange<'_>,
        cx: &mut Context<'_>,
    ) -> RequestOutcome {
        let context = self.connection.context.clone();
        let now_us = context.clock.micros();
        let (stream, disk) = (&mut self.connection.stream, &mut context.disk.borrow_mut());
        match outgoing.poll_send(stream, disk, now_us, cx) {
            Poll::Ready(Ok(SendProgress::Done)) => {
                self.done(status, length.max(outgoing.sent), exchange);
                exchange.outcome()
            }
            Poll::Ready(Err(_)) => {
                self.done(status, outgoing.sent, exchange);
                RequestOutcome::Then(
                    exchange.request_end,
                    ConnectionStep::End(AfterResponse::Reset),
                )
            }
            Poll::Ready(Ok(SendProgress::Disk(_))) | Poll::Pending => {
                self.later(outgoing, status, exchange)
            }
        }
    }

    fn later(
        &mut self,
        outgoing: ResponseWriter,
        status: Status,
        exchange: &H1Exchange<'_>,
    ) -> RequestOutcome {
        let H1Exchange {
            line,
            after,
            request_end,
        } = exchange;
        let connection = &self.connection;
        let who = connection.client_info();
        let record = line.keep(status, RequestPhase::Response, &connection.context, who);
        connection.phase(ConnectionPhase::Write);
        RequestOutcome::Then(
            *request_end,
            ConnectionStep::Send(Box::new(UnsentResponse {
                outgoing,
                record,
                after: *after,
                started_us: line.started_us,
            })),
        )
    }

    /// Counts and logs a response written to the socket.
    fn done(&mut self, status: Status, bytes: u64, exchange: &H1Exchange<'_>) {
        let (context, line) = (&self.connection.context, &exchange.line);
        line.finish(status, bytes, context, self.connection.client_info());
    }
}

impl<'l> H1Exchange<'l> {
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
