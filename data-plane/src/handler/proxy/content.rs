//! Content of a member's response on its way to the client.

use crate::handler::proxy::exchange::{Exchange, SendError};
use crate::handler::proxy::log::log_surplus;
use crate::handler::proxy::transfer::{self, Transfer};
use crate::limits::COPIED_REST_BYTES_MIN;
use crate::upstream::with_receive_buffer;
use base::limits::PASSED_BYTES_MIN;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use wire::h1::body_decoder::{BodyDecoder, BodyStep};
use wire::reject::Reject;

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

type TransferEnd = transfer::TransferEnd<CompleteContent>;

impl Future for ContentTransfer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let end = ready!(self.poll_end(cx));
        self.finish(end);
        Poll::Ready(())
    }
}

impl ContentTransfer {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<TransferEnd> {
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
    fn take_rest(&mut self, room: usize) -> Option<TransferEnd> {
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
    fn poll_next(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Option<TransferEnd>> {
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
    ) -> Option<Poll<Option<TransferEnd>>> {
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
    ) -> Option<Poll<Option<TransferEnd>>> {
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

    fn poll_receive(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<Option<TransferEnd>> {
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
    fn decode(&mut self, bytes: &[u8]) -> Option<TransferEnd> {
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
    fn finish(&mut self, end: TransferEnd) {
        let bytes = (self.exchange.sent_bytes(), self.exchange.received_bytes());
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
fn complete(has_surplus: bool) -> TransferEnd {
    TransferEnd::Complete(CompleteContent { has_surplus })
}
