//! Content of a member's response on its way to the client, over HTTP/1.1 and HTTP/2: room in the pipe, silence of the
//! member, and the end of the client's response.

use crate::handler::Request;
use crate::handler::pipe::PipeWriter;
use crate::handler::proxy::body::H2Upload;
use crate::handler::proxy::exchange::{Exchange, SendError};
use crate::handler::proxy::failure::{AttemptFailure, line, log_broken_off, log_surplus};
use crate::handler::proxy::place::{MemberDrip, PlacePace};
use crate::handler::proxy::route::ProxyRoute;
use crate::ledger::shared_limit::{RefusalCounters, SharedLimit};
use crate::limits::COPIED_REST_BYTES_MIN;
use crate::upstream::Lease;
use crate::upstream::{
    self, H2Failure, H2RequestStream, MemberPool, ResponsePart, with_receive_buffer,
};
use base::clock::monotonic_ms;
use base::coarse_timer::CoarseTimer;
use base::limits::PASSED_BYTES_MIN;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use wire::h1::body_decoder::{BodyDecoder, BodyStep};
use wire::reject::Reject;

/// Way of a response's content from the member to the client.
pub(super) struct Transfer {
    pub(super) pool: Arc<MemberPool>,
    /// Name of the balancer for the log.
    pub(super) balancer: Box<str>,
    /// Use of the member until the end of the content.
    lease: Option<Lease>,
    pub(super) writer: PipeWriter,
    /// Start of the response's line for the log.
    pub(super) line: Box<str>,
    timer: Option<CoarseTimer>,
    /// True while the call waits for the client to take the response.
    awaits_room: bool,
    /// True for an event stream over a place of the member.
    is_event_stream: bool,
    /// Rates of the client, of the response and of the rest of the request.
    download: PlacePace,
    upload: PlacePace,
    /// Rate of the member.
    drip: MemberDrip,
    /// Bytes of the member so far.
    received_bytes: u64,
    refusals: Arc<RefusalCounters>,
}

/// End of a transfer. `C` is the knowledge about complete content.
pub(super) enum TransferEnd<C> {
    /// The content is complete.
    Complete(C),
    /// The client needs no more of the content, or broke its request off.
    ClientGone,
    /// The member broke the content off.
    Broken(Reject),
    /// The place goes to a request of another client.
    GivenUp(Reject),
}

/// Bytes that a call exchanged with a member.
pub(super) struct TransferredBytes {
    /// Bytes of the request.
    sent: u64,
    /// Bytes of the response.
    received: u64,
}

impl Transfer {
    pub(super) fn new(
        pool: &Arc<MemberPool>,
        route: &ProxyRoute,
        lease: Option<Lease>,
        writer: PipeWriter,
        request: &Request,
    ) -> Transfer {
        Transfer {
            pool: Arc::clone(pool),
            balancer: route.balancer.name().into(),
            awaits_room: false,
            is_event_stream: false,
            download: PlacePace::default(),
            upload: PlacePace::default(),
            drip: MemberDrip::default(),
            received_bytes: 0,
            refusals: Arc::clone(&route.refusals),
            lease,
            writer,
            line: line(request).into(),
            timer: None,
        }
    }

    /// Marks the transfer as an event stream, or as an ordinary one.
    pub(super) fn set_event_stream(&mut self, is_event_stream: bool) {
        self.is_event_stream = is_event_stream;
    }

    /// Returns the name of the member, until the end of the transfer.
    pub(super) fn member(&self) -> Option<Arc<str>> {
        let lease = self.lease.as_ref()?;
        Some(Arc::clone(lease.member().name()))
    }

    /// Returns the room in the pipe, or the end if the client is gone. The member has sent `received_bytes` so far. A
    /// client that takes the response too slowly loses the place of the member to a request of another client.
    pub(super) fn poll_room<C>(
        &mut self,
        cx: &mut Context<'_>,
        received_bytes: u64,
    ) -> Poll<Result<usize, TransferEnd<C>>> {
        let room = self.writer.poll_room(cx);
        self.received_bytes = received_bytes;
        self.awaits_room = room.is_pending();
        let lease = self.lease.as_mut();
        if room.is_pending() {
            // The wait is for the client, and the client's connection has its own deadline.
            self.timer = None;
            if self
                .download
                .wait(lease, received_bytes, &self.refusals, cx)
            {
                return Poll::Ready(Err(TransferEnd::GivenUp(Reject::CALL_SHARE_TAKEN)));
            }
        } else {
            self.download.progress(lease, received_bytes);
        }
        let room = ready!(room);
        Poll::Ready(room.map_err(|_| TransferEnd::ClientGone))
    }

    /// Records bytes of the member, or a wait with a deadline elsewhere: the time of silence begins anew.
    pub(super) fn end_silence(&mut self) {
        self.timer = None;
        if (self.is_event_stream || self.drip.is_tunnel())
            && let Some(lease) = &self.lease
        {
            lease.mark_moved(monotonic_ms());
        }
    }

    /// Ends the transfer if the client sends the rest of the request so slowly that a request of another client gets the
    /// place of the member. `sent_bytes` of the request have been sent so far.
    pub(super) fn poll_upload<C>(
        &mut self,
        cx: &mut Context<'_>,
        waits_for_client: bool,
        sent_bytes: u64,
    ) -> Poll<TransferEnd<C>> {
        let lease = self.lease.as_mut();
        if waits_for_client {
            if self.upload.wait(lease, sent_bytes, &self.refusals, cx) {
                return Poll::Ready(TransferEnd::GivenUp(Reject::BODY_SLOW));
            }
        } else {
            self.upload.progress(lease, sent_bytes);
        }
        Poll::Pending
    }

    /// Ends the transfer if the member has been silent for too long, or an event stream in favour of a request of another
    /// client.
    pub(super) fn poll_silence<C>(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd<C>> {
        let gives_way = self.lease.as_mut().is_some_and(|lease| {
            let drips =
                !self.is_event_stream && self.drip.gives_way(lease, self.received_bytes, cx);
            let is_tunnel = self.is_event_stream || self.drip.is_tunnel();
            drips || is_tunnel && lease.poll_told(cx).is_ready()
        });
        if gives_way {
            self.refusals.increment(SharedLimit::MemberPlaces);
            return Poll::Ready(TransferEnd::GivenUp(Reject::CALL_SHARE_TAKEN));
        }
        let timeout = self.pool.settings.silence_timeout;
        CoarseTimer::poll_timeout(&mut self.timer, timeout, cx)
            .map(|()| TransferEnd::Broken(Reject::UPSTREAM_SLOW))
    }

    /// Reports the end to the balancer, with the bytes of the connection, and breaks an incomplete response off. Returns the completion of complete content.
    pub(super) fn finish<C>(&mut self, end: TransferEnd<C>, bytes: TransferredBytes) -> Option<C> {
        let mut lease = self.lease.take();
        if let Some(lease) = &mut lease {
            lease.add_sent(bytes.sent);
            lease.add_received(bytes.received);
        }
        match end {
            TransferEnd::Complete(completion) => {
                if let Some(lease) = &mut lease {
                    lease.record_content();
                }
                Some(completion)
            }
            TransferEnd::ClientGone => None,
            TransferEnd::GivenUp(reject) => {
                drop(lease);
                if self.is_event_stream {
                    // An event stream has no end of its own, and the browser connects anew.
                    self.writer.end()
                } else {
                    self.writer.set_break_reason(reject)
                }
                None
            }
            TransferEnd::Broken(reject) => {
                self.break_off(lease, reject);
                None
            }
        }
    }

    fn break_off(&mut self, mut lease: Option<Lease>, reject: Reject) {
        if let Some(lease) = &mut lease {
            report_broken(lease, &self.balancer, reject);
        }
        let member = lease.as_ref().map(|lease| &**lease.member().name());
        log_broken_off(&self.line, &self.balancer, member, reject);
        self.writer.set_break_reason(reject);
    }
}

/// Reports content that broke off by the rule to the balancer.
fn report_broken(lease: &mut Lease, balancer: &str, reject: Reject) {
    let now_ms = monotonic_ms();
    let change = match reject {
        // Silence may be the nature of the content, such as an event stream without events.
        Reject::UPSTREAM_SLOW => lease.record_failure(now_ms),
        _ => lease.record_broken_content(now_ms),
    };
    if let Some(change) = change {
        upstream::log_change(balancer, lease.member().url(), change);
    }
}

/// Future that moves the content of a response from the member to the client, and the rest of the request's
/// body in the other direction.
pub(super) struct ContentTransfer {
    pub(super) transfer: Transfer,
    pub(super) exchange: Exchange,
    /// Decoder of the framing; None for content that ends with the connection.
    pub(super) decoder: Option<BodyDecoder>,
    /// True if the member keeps the connection open.
    pub(super) keep_alive: bool,
    /// Received bytes that are not decoded, from `rest_at`.
    pub(super) rest: Vec<u8>,
    pub(super) rest_at: usize,
    /// True if the member sends few bytes at once. A copy of few bytes is cheaper than a move.
    pub(super) has_few: bool,
    /// Lines of the trailer section.
    pub(super) trailers: Vec<u8>,
}

/// Complete content.
struct CompleteContent {
    /// True if bytes of the member follow the content.
    has_surplus: bool,
}

type ContentEnd = TransferEnd<CompleteContent>;

impl Future for ContentTransfer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut end = self.poll_end(cx);
        if end.is_pending() && self.poll_told(cx).is_ready() {
            end = Poll::Ready(TransferEnd::GivenUp(Reject::CALL_SHARE_TAKEN));
        }
        self.finish(ready!(end));
        Poll::Ready(())
    }
}

impl ContentTransfer {
    /// Ready if another client needs the descriptor of the connection.
    fn poll_told(&mut self, cx: &Context<'_>) -> Poll<()> {
        let told = self.exchange.poll_told(cx, self.transfer.awaits_room);
        if told.is_ready() {
            self.transfer.refusals.increment(SharedLimit::MemberPlaces);
        }
        told
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<ContentEnd> {
        if let Poll::Ready(Err(error)) = self.exchange.poll_send(cx) {
            // A member may answer before the end of the request and then read no more.
            match error {
                SendError::Member => self.exchange.stop_sending(),
                SendError::Client => return Poll::Ready(TransferEnd::ClientGone),
            }
        }
        let (waits, sent_bytes) = (self.exchange.waits_for_client(), self.exchange.sent_bytes());
        if let Poll::Ready(end) = self.transfer.poll_upload(cx, waits, sent_bytes) {
            return Poll::Ready(end);
        }
        loop {
            let received_bytes = self.exchange.received_bytes();
            let room = match ready!(self.transfer.poll_room(cx, received_bytes)) {
                Ok(room) => room,
                Err(end) => return Poll::Ready(end),
            };
            let step = if self.rest_at < self.rest.len() {
                self.take_rest(room)
            } else {
                match self.poll_next(cx, room) {
                    Poll::Ready(step) => step,
                    Poll::Pending => return self.transfer.poll_silence(cx),
                }
            };
            if let Some(end) = step {
                return Poll::Ready(end);
            }
        }
    }

    /// Moves at most `room` bytes that arrived together with the head.
    fn take_rest(&mut self, room: usize) -> Option<ContentEnd> {
        let rest = std::mem::take(&mut self.rest);
        let end = rest.len().min(self.rest_at + room);
        let step = self.decode(&rest[self.rest_at..end]);
        let is_surplus = end < rest.len();
        if is_surplus {
            self.rest_at = end;
            self.rest = rest;
        }
        match step {
            Some(TransferEnd::Complete(_)) if is_surplus => Some(complete(true)),
            step => step,
        }
    }

    /// Receives the next bytes.
    fn poll_next(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Option<ContentEnd>> {
        let missing = self.decoder.as_ref().and_then(BodyDecoder::missing_bytes);
        let missing = missing.filter(|_| self.transfer.writer.is_empty());
        if let Some(missing) = missing {
            let moved = self.poll_move(cx, room, missing);
            if let Some(step) = moved.or_else(|| self.poll_fill(cx, room, missing)) {
                return step;
            }
        }
        self.poll_receive(cx, room)
    }

    /// Moves the next bytes of a content of known length from the member's socket to the client's without a copy.
    /// None if the bytes have to go through the pipe.
    #[cold] // A call moves up to 64 KiB, so small code counts for more than fast code.
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        missing: u64,
    ) -> Option<Poll<Option<ContentEnd>>> {
        if self.has_few {
            return None;
        }
        // The last bytes go through the pipe, which shows whether bytes follow the content.
        let movable = missing.saturating_sub(COPIED_REST_BYTES_MIN);
        let (sink, wanted) = self.transfer.writer.bypass()?;
        let most = usize::try_from(movable.min(wanted)).map_or(room, |most| most.min(room));
        if most < PASSED_BYTES_MIN {
            return None;
        }
        let exchange = &mut self.exchange;
        let mut passed = 0;
        let received = self.transfer.writer.fill(|rest| {
            let transferred = exchange.poll_transfer(cx, &*sink, most, rest)?;
            Some(transferred.map_ok(|bytes| {
                passed = bytes.passed;
                bytes.received
            }))
        })?;
        self.transfer.writer.record_passed(passed);
        Some(received.map(|received| {
            self.transfer.end_silence();
            match (received, &mut self.decoder) {
                (Ok(received), Some(decoder)) => {
                    decoder.skip(received as u64);
                    self.has_few = received < PASSED_BYTES_MIN;
                    None
                }
                _ => Some(TransferEnd::Broken(Reject::UPSTREAM_BROKE_OFF)),
            }
        }))
    }

    /// Receives the next bytes of a content of known length directly into the empty pipe. None if the
    /// connection needs a copy.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        missing: u64,
    ) -> Option<Poll<Option<ContentEnd>>> {
        // One byte more than missing shows whether bytes follow the content.
        let wanted =
            usize::try_from(missing).map_or(room, |bytes| room.min(bytes.saturating_add(1)));
        let (exchange, decoder) = (&mut self.exchange, &mut self.decoder);
        let mut end = None;
        let filled = self.transfer.writer.fill(|buffer| {
            let filled = exchange.poll_fill(cx, buffer, wanted)?;
            if let (Poll::Ready(Ok(read)), Some(decoder)) = (&filled, decoder) {
                let has_surplus = *read as u64 > missing;
                if has_surplus {
                    buffer.truncate(missing as usize);
                }
                let _ = decoder.step(buffer);
                if decoder.is_done() {
                    end = Some(complete(has_surplus));
                }
            }
            Some(filled)
        })?;
        if let Poll::Ready(Ok(read)) = filled {
            self.has_few = read < PASSED_BYTES_MIN;
        }
        Some(filled.map(|read| {
            self.transfer.end_silence();
            match read {
                Ok(0) | Err(_) => Some(TransferEnd::Broken(Reject::UPSTREAM_BROKE_OFF)),
                Ok(_) => end,
            }
        }))
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Option<ContentEnd>> {
        with_receive_buffer(|buffer| {
            let into = room.min(buffer.len());
            let read = ready!(self.exchange.poll_read(cx, &mut buffer[..into]));
            self.transfer.end_silence();
            Poll::Ready(match read {
                Ok(0) | Err(_) if self.decoder.is_some() => {
                    Some(TransferEnd::Broken(Reject::UPSTREAM_BROKE_OFF))
                }
                Ok(0) => Some(complete(false)),
                Err(_) => Some(TransferEnd::Broken(Reject::UPSTREAM_BROKE_OFF)),
                Ok(read) => self.decode(&buffer[..read]),
            })
        })
    }

    /// Passes the content in `bytes` on. Returns the end if the content or the client ended.
    fn decode(&mut self, bytes: &[u8]) -> Option<ContentEnd> {
        let Some(decoder) = &mut self.decoder else {
            return self
                .transfer
                .writer
                .write_some(bytes)
                .err()
                .map(|_| TransferEnd::ClientGone);
        };
        let mut at = 0;
        loop {
            match decoder.step_with_trailers(&bytes[at..], &mut self.trailers) {
                Ok(BodyStep::Data { consumed, payload }) => {
                    // The pipe has room for all bytes.
                    if self
                        .transfer
                        .writer
                        .write_some(&bytes[at..][payload])
                        .is_err()
                    {
                        return Some(TransferEnd::ClientGone);
                    }
                    at += consumed;
                    // The end of a body of known length shows without further bytes.
                    if decoder.is_done() {
                        let has_surplus = at < bytes.len();
                        return Some(complete(has_surplus));
                    }
                }
                Ok(BodyStep::More { .. }) => return None,
                Ok(BodyStep::End { consumed }) => {
                    let has_surplus = at + consumed < bytes.len();
                    return Some(complete(has_surplus));
                }
                Err(_) => return Some(TransferEnd::Broken(Reject::UPSTREAM_CHUNK_MALFORMED)),
            }
        }
    }

    /// Completes or breaks off the client's response.
    fn finish(&mut self, end: ContentEnd) {
        let bytes = TransferredBytes {
            sent: self.exchange.sent_bytes(),
            received: self.exchange.received_bytes(),
        };
        let transfer = &mut self.transfer;
        let member = transfer.member();
        let Some(CompleteContent { has_surplus }) = transfer.finish(end, bytes) else {
            return;
        };
        if !self.trailers.is_empty() {
            let trailers = std::mem::take(&mut self.trailers);
            transfer.writer.set_trailers(trailers);
        }
        transfer.writer.end();
        let pool = &transfer.pool;
        if has_surplus {
            log_surplus(&transfer.line, &transfer.balancer, member.as_deref());
        }
        let is_reusable = self.keep_alive && !has_surplus && self.decoder.is_some();
        if is_reusable && let Some(conn) = self.exchange.take_finished() {
            pool.put_idle(conn, Instant::now());
        }
    }
}

/// Returns the end of complete content.
fn complete(has_surplus: bool) -> ContentEnd {
    TransferEnd::Complete(CompleteContent { has_surplus })
}

/// Future that moves the content of a response from the member to the client, and the rest of the request's
/// body in the other direction.
pub(super) struct H2ContentTransfer {
    pub(super) transfer: Transfer,
    pub(super) stream: H2RequestStream,
    pub(super) upload: H2Upload,
}

/// End of a transfer. Complete content has the lines of the trailer section.
type H2ContentEnd = TransferEnd<Vec<u8>>;

impl Future for H2ContentTransfer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut end = self.poll_end(cx);
        if end.is_pending() && self.poll_told(cx).is_ready() {
            end = Poll::Ready(TransferEnd::GivenUp(Reject::CALL_SHARE_TAKEN));
        }
        self.finish(ready!(end));
        Poll::Ready(())
    }
}

impl H2ContentTransfer {
    /// Ready if another client needs the descriptor of the connection.
    fn poll_told(&mut self, cx: &Context<'_>) -> Poll<()> {
        let awaits_client = self.transfer.awaits_room || self.upload.waits_for_client();
        let told = self.stream.poll_told(cx, awaits_client);
        if told.is_ready() {
            self.transfer.refusals.increment(SharedLimit::MemberPlaces);
        }
        told
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<H2ContentEnd> {
        if let Poll::Ready(Err(_)) = self.upload.poll_send(&mut self.stream, cx) {
            return Poll::Ready(TransferEnd::ClientGone);
        }
        let (waits, sent_bytes) = (self.upload.waits_for_client(), self.stream.sent_bytes());
        if let Poll::Ready(end) = self.transfer.poll_upload(cx, waits, sent_bytes) {
            return Poll::Ready(end);
        }
        loop {
            let received_bytes = self.stream.received_bytes();
            let room = match ready!(self.transfer.poll_room(cx, received_bytes)) {
                Ok(room) => room,
                Err(end) => return Poll::Ready(end),
            };
            let writer = &mut self.transfer.writer;
            let polled = self.stream.poll_content(cx, room, |bytes| {
                // The pipe has room for all bytes. The next call notices a client that is gone.
                let _ = writer.write_some(bytes);
            });
            match polled {
                Poll::Ready(Ok(ResponsePart::Bytes(_))) => self.transfer.end_silence(),
                Poll::Ready(Ok(ResponsePart::End(trailers))) => {
                    return Poll::Ready(TransferEnd::Complete(trailers));
                }
                Poll::Ready(Err(failure)) => {
                    return Poll::Ready(TransferEnd::Broken(broken(failure)));
                }
                Poll::Pending => return self.poll_silence(cx),
            }
        }
    }

    /// Ends the transfer if the member has been silent for too long. A member may wait for the next message of
    /// the client.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<H2ContentEnd> {
        if self.upload.waits_for_client() {
            // The client's connection has its own deadline.
            self.transfer.end_silence();
            return Poll::Pending;
        }
        self.transfer.poll_silence(cx)
    }

    /// Completes or breaks off the client's response.
    fn finish(&mut self, end: H2ContentEnd) {
        let bytes = TransferredBytes {
            sent: self.stream.sent_bytes(),
            received: self.stream.received_bytes(),
        };
        if let Some(trailers) = self.transfer.finish(end, bytes) {
            if !trailers.is_empty() {
                self.transfer.writer.set_trailers(trailers);
            }
            self.transfer.writer.end();
        }
    }
}

/// Returns the rule for a response that failed within its content.
fn broken(failure: H2Failure) -> Reject {
    match failure {
        H2Failure::Left { .. } | H2Failure::Refused => Reject::UPSTREAM_BROKE_OFF,
        failure => AttemptFailure::of_h2(failure, true).reject,
    }
}
