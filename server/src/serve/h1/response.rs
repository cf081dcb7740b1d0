//! Responses of HTTP/1.1: executes the step that follows a dispatch, and sends the response.

use crate::limits;
use crate::serve::access_log::AccessLogEntry;
use crate::serve::attempt::{Attempt, ReadyResponse, Step};
use crate::serve::connection::AfterResponse;
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h1::call::H1Call;
use crate::serve::h1::chunk::encode_chunk;
use crate::serve::h1::send::{H1BodySource, ResponseWriter, SendProgress};
use crate::serve::h1::session::{ConnectionStep, H1Session, RequestOutcome};
use crate::serve::h1::unsent_response::UnsentResponse;
use crate::serve::redispatch;
use crate::serve::response_head::push_connection_lines;
use crate::serve::synthetic_response::{SyntheticResponse, refusal_fields};
use crate::site::{Listing, VariantResponse};
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::request_head::{Method, RequestHead, Version};
use crate::wire::status::{Status, StatusLine};
use crate::world::{Host, SecureFields, World};
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

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
        let Attempt {
            host, user, step, ..
        } = attempt;
        let bodiless = matches!(head.body, BodyLength::None | BodyLength::Length(0));
        let unread_body = !bodiless && !self.body_read;
        let mut after = self.after(head, unread_body);
        let line = AccessLogEntry::new(&self.connection.context, Some(head), host, user.as_deref());
        match step {
            Step::Wait(wait) => {
                self.connection.phase(ConnectionPhase::Busy);
                let wait = redispatch::wait(wait, &self.connection.context.pool, self.progress);
                RequestOutcome::Hold {
                    keep: head_bytes,
                    from: end,
                    next: Some(ConnectionStep::Redispatch(wait)),
                }
            }
            Step::Call(handler) => match self.hold_head(head_bytes) {
                Ok(held) => {
                    let call = H1Call::new(
                        handler,
                        head,
                        host,
                        user.clone(),
                        &self.connection,
                        world,
                        &line,
                    );
                    RequestOutcome::Then(end, ConnectionStep::Call(Box::new(call.holding(held))))
                }
                Err(reject) => {
                    self.connection.context.stats.rejects.increment();
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
                let mut extra = self.connection.context.lead.take();
                extra.clear();
                if stored.is_from_cache() {
                    self.connection.context.stats.cache_hits.increment();
                    stored.push_changing(&mut extra);
                }
                push_connection_lines(&mut extra, head.version, after, self.secure_fields(host));
                if !stored.is_dated() {
                    extra.extend_from_slice(&self.connection.context.clock.date_field());
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
                        let mut extra = self.connection.context.lead.take();
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

    /// Returns the site's security fields, if the connection uses TLS.
    fn secure_fields<'w>(&self, host: Option<&'w Host>) -> Option<&'w SecureFields> {
        let host = host.filter(|_| self.connection.stream.tls.is_some());
        host.map(|host| &*host.secure_fields)
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

    /// Appends the connection's fields, the Date field and the end of the header section.
    fn finish_head(
        &self,
        fields: &mut Vec<u8>,
        version: Version,
        after: AfterResponse,
        host: Option<&Host>,
    ) {
        push_connection_lines(fields, version, after, self.secure_fields(host));
        fields.extend_from_slice(&self.connection.context.clock.date_field());
        fields.extend_from_slice(b"\r\n");
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
            self.connection.context.lead.replace(extra);
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
            match self.connection.stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => {
                    self.connection.context.lead.replace(extra);
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
        self.connection.context.lead.replace(extra);
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
    pub(super) fn send_small(
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
        let context = self.connection.context.clone();
        let now_us = context.clock.micros();
        let sent = outgoing.poll_send(
            &mut self.connection.stream,
            &mut context.disk.borrow_mut(),
            now_us,
            cx,
        );
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
        let record = line.keep(
            status,
            &self.connection.context,
            self.connection.client_info(),
        );
        self.connection.phase(ConnectionPhase::Write);
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
        self.connection.context.stats.response(
            status.0,
            bytes,
            self.connection.context.clock.micros() - line.started_us,
        );
        line.log(
            status,
            bytes,
            &self.connection.context,
            self.connection.client_info(),
        );
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

fn look_after(end: usize, after: AfterResponse) -> RequestOutcome {
    match after {
        AfterResponse::Keep => RequestOutcome::Took(end),
        after => RequestOutcome::Then(end, ConnectionStep::End(after)),
    }
}
