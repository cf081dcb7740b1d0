//! Call of a handler on a stream of HTTP/2 or HTTP/3: the request body flows to the handler while the response flows
//! back.
//!
//! The peer receives window credit only for bytes that the handler has taken, so at most a pipe of body
//! bytes waits. The handler's pipe is emptied as the flow-control windows and the socket allow.

use crate::handler::interim::InterimReceiver;
use crate::handler::pipe::{PipeRead, PipeReader, PipeWriter};
use crate::handler::{HandlerError, LocalBoxFuture, Response, ResponseBody};
use crate::ledger::body_memory::{BodyAccount, BodyPurpose};
use crate::limits::Limits;
use crate::serve::refusal::ErrorPages;
use crate::serve::response_body::BodyFill;
use crate::serve::response_head::{FieldCompression, is_without_content};
use crate::serve::tunnel::{StreamTunnel, opens_tunnel};
use crate::world::SecureFields;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire::h2::settings::WINDOW_BYTES;
use wire::reject::Reject;
use wire::trailers::{allowed_request_trailers, allowed_trailers};

/// State of a request that became a live call.
pub(super) struct StreamCall {
    /// Future of the response; `None` once the response has arrived.
    pub(super) answering: Option<LocalBoxFuture<Result<Response, HandlerError>>>,
    /// Interim responses of the handler, to be sent before the response.
    pub(super) interim: InterimReceiver,
    /// True while 100 (Continue) is to be sent (RFC 9110 §10.1.1).
    pub(super) continue_owed: bool,
    /// Pipe to the handler; `None` where the request has no body, or the handler takes no more of the body.
    pub(super) upload: Option<PipeWriter>,
    /// Bytes of the body that lie in the pipe.
    pub(super) held: usize,
    /// Bytes of `held` that count against the window shared by all bodies of the connection. While the
    /// handler waits for a place, none count, so that waiting bodies don't block the other bodies of the
    /// client.
    pub(super) counted: usize,
    /// Bytes that the handler has taken, and that the window of the stream does not have back yet, because the memory
    /// ledger has little room. Only HTTP/2 withholds bytes.
    pub(super) withheld: usize,
    /// Bytes of the body received.
    pub(super) seen: u64,
    /// Clock of the minimum rate of the body.
    pub(super) rate: UploadRate,
    /// Tunnel that the client has requested, open or not yet open.
    pub(super) tunnel: Option<Box<StreamTunnel>>,
    pub(super) is_head: bool,
    pub(super) secure_fields: Option<Arc<SecureFields>>,
    /// Largest content for the handler in bytes.
    pub(super) body_bytes_max: u64,
    pub(super) error_pages: Option<ErrorPages>,
    pub(super) download: Option<StreamedBody>,
    /// True if the last byte of content of announced length waits for the end of the handler or of the request. Only
    /// HTTP/2 holds the byte.
    pub(super) holds_end: bool,
    /// Memory of the bodies.
    pub(super) memory: BodyAccount,
}

/// Clock of the minimum rate of a request body. The rate counts from the last time at which the peer had to wait for the
/// handler.
#[derive(Copy, Clone)]
pub(super) struct UploadRate {
    /// Start of the count, in milliseconds of the worker's clock.
    since_ms: u64,
    /// Bytes of the body received at the start.
    seen_then: u64,
    /// True if the peer waited for the handler at the last note.
    has_waited: bool,
}

impl UploadRate {
    /// Starts at the beginning of a call.
    pub(super) fn new(now_ms: u64) -> UploadRate {
        UploadRate {
            since_ms: now_ms,
            seen_then: 0,
            has_waited: false,
        }
    }

    /// Records whether the peer waits for the handler, after `seen` bytes. The count starts anew during a wait, and at
    /// the end of a wait.
    pub(super) fn note(&mut self, waits: bool, seen: u64, now_ms: u64) {
        if std::mem::replace(&mut self.has_waited, waits) || waits {
            (self.since_ms, self.seen_then) = (now_ms, seen);
        }
    }

    /// Returns when a body of `seen` bytes is late, if the peer may pause for `patience`.
    pub(super) fn due_ms(&self, seen: u64, patience: Duration, limits: &Limits) -> u64 {
        let rate = u64::from(limits.body_rate_bytes_per_second.max(1));
        let paid_ms = (seen - self.seen_then) * 1_000 / rate;
        self.since_ms + patience.as_millis() as u64 + paid_ms
    }
}

/// Result of a poll for the handler's response; `None` once the response was delivered.
pub(super) type HandlerAnswer = Poll<Option<Result<Response, HandlerError>>>;

/// Window credit to grant to the peer.
#[derive(Default)]
pub(super) struct WindowCredit {
    /// Bytes for the window of the stream.
    pub(super) of_stream: usize,
    /// Bytes for the window of the connection.
    pub(super) of_all: usize,
    /// True if the window of the stream is kept small, so that few bytes are worth a frame too.
    pub(super) is_small: bool,
}

/// Response body produced by a handler while the body is sent.
pub(super) struct StreamedBody {
    /// Pipe from the handler; None after the end of the handler's direction of a tunnel.
    reader: Option<PipeReader>,
    work: Option<LocalBoxFuture<()>>,
    /// Bytes still missing of the announced length, where a length was announced.
    left: Option<u64>,
}

impl StreamCall {
    /// Passes received bytes of the body to the handler. Returns false if the handler takes no more.
    pub(super) fn take(&mut self, bytes: &[u8], ended: bool) -> bool {
        let Some(upload) = &mut self.upload else {
            return false;
        };
        self.seen += bytes.len() as u64;
        // All bytes fit, because the window was no larger than the pipe.
        if upload.write_some(bytes).is_err() {
            self.upload = None;
            return false;
        }
        self.held += bytes.len();
        self.counted += bytes.len();
        if ended {
            upload.end();
        }
        true
    }

    /// Reserves the memory of `bytes` received bytes, as far as `purpose` allows. Returns false if the memory is missing.
    #[must_use]
    pub(super) fn try_cover(&mut self, bytes: usize, purpose: BodyPurpose) -> bool {
        let upload = self.upload.as_mut();
        upload.is_none_or(|upload| upload.try_cover(bytes, purpose))
    }

    /// Sets the trailers of the body, field lines with CRLF. Called before the end of the body.
    pub(super) fn set_trailers(&mut self, lines: &[u8]) {
        let allowed = allowed_request_trailers(lines);
        if let Some(upload) = self.upload.as_mut().filter(|_| !allowed.is_empty()) {
            upload.set_trailers(allowed);
        }
    }

    /// Takes the trailers of a complete response, as an encoded field section. A tunnel has no trailers
    /// (RFC 9113 §8.5, RFC 9114 §4.4).
    pub(super) fn take_trailers<C: FieldCompression>(&mut self) -> Option<Vec<u8>> {
        if self.is_tunnel() {
            return None;
        }
        let reader = self.download.as_mut()?.reader.as_mut()?;
        let trailers = reader.take_trailers()?;
        let lines = allowed_trailers(&trailers);
        if lines.is_empty() {
            return None;
        }
        let mut section = Vec::new();
        C::begin_trailers(&mut section);
        C::push_lines(&lines, &mut section);
        Some(section)
    }

    /// Returns true if the handler does not want the body yet.
    pub(super) fn is_body_held(&self) -> bool {
        self.upload.as_ref().is_some_and(PipeWriter::is_held)
    }

    /// Returns the window credit for bytes taken by the handler since the last call.
    pub(super) fn poll_taken(&mut self, cx: &mut Context<'_>) -> WindowCredit {
        if self.is_body_held()
            && let Some(upload) = &mut self.upload
        {
            // Registers the task, to be woken when the handler wants the body.
            let _ = upload.poll_room(cx);
        }
        if self.held == 0 {
            return WindowCredit::default();
        }
        let held = match self.upload.as_mut().map(|upload| upload.held(cx)) {
            Some(Ok(held)) => held.min(self.held),
            // The reader is gone, and the bytes in the pipe with the reader.
            Some(Err(_)) | None => {
                self.upload = None;
                0
            }
        };
        let is_queued = self.upload.as_ref().is_some_and(PipeWriter::is_queued);
        let counted = if is_queued { 0 } else { self.counted.min(held) };
        let mut granted = WindowCredit {
            of_stream: self.held - held,
            of_all: self.counted - counted,
            is_small: false,
        };
        (self.held, self.counted) = (held, counted);
        self.withhold(&mut granted);
        granted
    }

    /// Keeps the window of the stream as small as the reserved memory of the pipe, while the memory ledger has little room:
    /// a granted window is a promise of memory.
    fn withhold(&mut self, granted: &mut WindowCredit) {
        let upload = self.upload.as_ref();
        let window = upload.map_or(usize::MAX, PipeWriter::window);
        let keep = (WINDOW_BYTES as usize).saturating_sub(window);
        if keep == 0 && self.withheld == 0 {
            return;
        }
        let all = self.withheld + granted.of_stream;
        granted.is_small = keep > 0;
        granted.of_stream = all.saturating_sub(keep);
        if granted.is_small && granted.of_stream < window / 2 {
            // Few bytes are not worth a frame.
            granted.of_stream = 0;
        }
        self.withheld = all - granted.of_stream;
    }

    /// Records for the minimum rate whether the peer waits for the handler: the handler does not want the body yet, or
    /// was polled and left bytes in the pipe.
    pub(super) fn note_wait(&mut self, now_ms: u64, cx: &mut Context<'_>) {
        let Some(upload) = &mut self.upload else {
            return;
        };
        let leaves_bytes = self.held > 0 && upload.held(cx).is_ok_and(|held| held > 0);
        let waits = leaves_bytes || upload.is_held();
        self.rate.note(waits, self.seen, now_ms);
    }

    /// Ends the pipe to the handler, and returns the window credit for the bytes in the pipe.
    pub(super) fn end_upload(&mut self) -> WindowCredit {
        self.upload = None;
        WindowCredit {
            of_stream: std::mem::take(&mut self.held) + std::mem::take(&mut self.withheld),
            of_all: std::mem::take(&mut self.counted),
            is_small: false,
        }
    }

    /// Returns the time for which the peer may pause in the body.
    pub(super) fn patience(&self) -> Duration {
        let upload = self.upload.as_ref();
        upload.map_or(Duration::ZERO, PipeWriter::patience)
    }

    /// Polls for the handler's response. Returns `None` once the response was delivered.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> HandlerAnswer {
        let Some(answering) = &mut self.answering else {
            return Poll::Ready(None);
        };
        match answering.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                self.answering = None;
                Poll::Ready(Some(answer))
            }
        }
    }

    /// Returns the encoded heads of the interim responses to send before `answer`: the interim responses of
    /// the handler, and 100 (Continue) if the client waits for it and the handler wants the body. No
    /// interim response follows the final head.
    pub(super) fn interim_heads<C: FieldCompression>(
        &mut self,
        answer: &HandlerAnswer,
    ) -> Vec<Vec<u8>> {
        let mut heads = Vec::new();
        if matches!(answer, Poll::Ready(None)) {
            return heads;
        }
        while let Some(interim) = self.interim.take() {
            let mut head = Vec::new();
            C::push_status(interim.status.0, &mut head);
            C::push_lines(interim.fields.lines(), &mut head);
            heads.push(head);
        }
        if self.continue_owed && self.awaits_body(answer) {
            self.continue_owed = false;
            let mut head = Vec::new();
            C::push_status(100, &mut head);
            heads.push(head);
        }
        heads
    }

    /// Returns true if the handler wants more of the body: no response has come, or the content of the
    /// response follows meanwhile.
    fn awaits_body(&self, answer: &HandlerAnswer) -> bool {
        let is_streamed = |response: &Response| {
            let is_stream = matches!(response.body, ResponseBody::Stream { .. });
            is_stream && !self.is_head && !is_without_content(*response.status)
        };
        let is_open = match answer {
            Poll::Pending => true,
            Poll::Ready(Some(Ok(response))) => is_streamed(response),
            Poll::Ready(_) => false,
        };
        is_open && self.upload.as_ref().is_some_and(PipeWriter::has_room)
    }

    /// Starts sending a streamed body.
    pub(super) fn begin(&mut self, body: ResponseBody) {
        if let ResponseBody::Stream {
            length,
            reader,
            work,
        } = body
        {
            self.download = Some(StreamedBody {
                reader: Some(reader),
                work: Some(work),
                left: length,
            });
        }
    }

    /// Polls the producer of the body. Returns true if bytes of the body, or the end, can be sent.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(download) = &mut self.download else {
            return false;
        };
        if let Some(work) = &mut download.work
            && work.as_mut().poll(cx).is_ready()
        {
            download.work = None;
        }
        let held = download.held_bytes(self.holds_end);
        let reader = download.reader.as_mut();
        reader.is_some_and(|reader| reader.is_ready_beyond(held, cx))
    }

    /// Returns true if content of announced length has been passed on whole.
    pub(super) fn is_content_filled(&self) -> bool {
        let download = self.download.as_ref();
        download.is_some_and(|download| download.left == Some(0))
    }

    /// Returns true if only the end of the body is left to be sent, or the break of the body.
    pub(super) fn is_at_end(&self) -> bool {
        let download = self.download.as_ref();
        let reader = download.and_then(|download| download.reader.as_ref());
        reader.is_some_and(|reader| reader.unread() == 0 && reader.holds())
    }

    /// Returns the rule that broke off the response, where known.
    pub(super) fn break_reason(&self) -> Option<Reject> {
        self.download.as_ref()?.reader.as_ref()?.break_reason()
    }

    /// Decides about a requested tunnel by the handler's response. Without a tunnel, the handler gets the
    /// end of the body.
    ///
    /// # Errors
    /// See [`opens_tunnel`].
    pub(super) fn settle_tunnel(
        &mut self,
        response: &mut Response,
        now_ms: u64,
    ) -> Result<(), Reject> {
        let upgrade = self.tunnel.as_ref().map(|it| it.upgrade());
        let is_open = opens_tunnel(response, upgrade)?;
        match &mut self.tunnel {
            Some(tunnel) if is_open => {
                tunnel.open(now_ms);
                // No length of the tunnel is announced (RFC 9110 §8.6).
                if let ResponseBody::Stream { length, .. } = &mut response.body {
                    *length = None;
                }
            }
            Some(_) => {
                self.tunnel = None;
                if let Some(upload) = self.upload.take() {
                    upload.finish();
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Returns true if the stream is an open tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_open())
    }

    /// Records bytes of a tunnel in either direction.
    pub(super) fn note_moved(&mut self, now_ms: u64) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.note_moved(now_ms);
        }
    }

    /// Ends the handler's direction of a tunnel after its last byte was sent. The handler's work goes on
    /// for the client's direction, which may be silent from now on for as long as after a byte.
    pub(super) fn end_download(&mut self, now_ms: u64) {
        self.note_moved(now_ms);
        if let Some(download) = &mut self.download {
            download.reader = None;
        }
    }

    /// Returns true if the handler's direction of a tunnel has ended.
    pub(super) fn is_download_over(&self) -> bool {
        let download = self.download.as_ref();
        download.is_some_and(|download| download.reader.is_none())
    }

    /// Returns true if the client's direction of a tunnel is over: the handler takes no more bytes, or the
    /// client has ended the direction and the handler has taken and processed all bytes.
    pub(super) fn is_upload_over(&mut self, client_ended: bool, cx: &mut Context<'_>) -> bool {
        let is_working = self.download.as_ref().is_some_and(|it| it.work.is_some());
        let Some(upload) = &mut self.upload else {
            return true;
        };
        if matches!(upload.poll_room(cx), Poll::Ready(Err(_))) {
            return true;
        }
        client_ended && !is_working && upload.held(cx) == Ok(0)
    }

    /// Appends at most `bytes_max` of the body to `out`.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> BodyFill {
        let Some(download) = &mut self.download else {
            return BodyFill::Nothing;
        };
        let held = download.held_bytes(self.holds_end);
        let StreamedBody {
            reader: Some(reader),
            left,
            ..
        } = download
        else {
            return BodyFill::Nothing;
        };
        if !reader.holds_beyond(held) {
            return BodyFill::Nothing;
        }
        let bytes_max = match held {
            0 => bytes_max,
            held => bytes_max.min(reader.unread() - held),
        };
        // The bytes are already in the pipe, so no waker is needed.
        let mut noop = Context::from_waker(Waker::noop());
        match reader.poll_take(&mut noop, out, bytes_max) {
            Poll::Pending => BodyFill::Nothing,
            Poll::Ready(Err(_)) => BodyFill::Broken,
            Poll::Ready(Ok(PipeRead::End)) => match left {
                None | Some(0) => BodyFill::Last,
                Some(_) => BodyFill::Broken,
            },
            Poll::Ready(Ok(PipeRead::Bytes(count))) => match left {
                None => BodyFill::Some,
                Some(left) => match left.checked_sub(count as u64) {
                    Some(less) => {
                        *left = less;
                        BodyFill::Some
                    }
                    // The body is longer than announced.
                    None => {
                        out.truncate(out.len() - count);
                        BodyFill::Broken
                    }
                },
            },
        }
    }
}

impl StreamedBody {
    /// Returns the number of bytes in the pipe that wait: with `holds_end`, the last byte of the announced length, until the
    /// handler has ended the content.
    fn held_bytes(&self, holds_end: bool) -> usize {
        let has_last = |reader: &PipeReader| {
            let unread = reader.unread();
            unread > 0 && self.left == Some(unread as u64) && !reader.has_ended()
        };
        usize::from(holds_end && self.reader.as_ref().is_some_and(has_last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_the_handler_begins_the_count_anew() {
        let limits = Limits::default();
        let due = |rate: &UploadRate, seen| rate.due_ms(seen, Duration::from_secs(10), &limits);
        let mut rate = UploadRate::new(1_000);
        rate.note(false, 512, 5_000);
        assert_eq!((due(&rate, 0), due(&rate, 512)), (11_000, 12_000));
        rate.note(true, 512, 6_000);
        assert_eq!(due(&rate, 512), 16_000);
        rate.note(false, 1_024, 20_000);
        assert_eq!((due(&rate, 1_024), due(&rate, 1_536)), (30_000, 31_000));
        rate.note(false, 1_536, 25_000);
        assert_eq!(due(&rate, 1_536), 31_000);
    }
}
