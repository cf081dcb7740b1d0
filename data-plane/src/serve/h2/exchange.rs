//! State of an HTTP/2 stream with a response that cannot be sent at once: the current wait and the log
//! entry.

use crate::handler::LocalBoxFuture;
use crate::serve::attempt::Progress;
use crate::serve::context::WorkerContext;
use crate::serve::linger::Linger;
use crate::serve::request_ledger::RequestReservation;
use crate::serve::response_body::{BodyFill, BodyReader};
use crate::serve::response_head::Hpack;
use crate::serve::response_record::ResponseRecord;
use crate::serve::stall::StallClock;
use crate::serve::stream_call::StreamCall;
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use base::thread_pool::ThreadPoolError;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use wire::field_section::FieldSection;
use wire::status::Status;

/// A request in the table of streams.
pub(super) struct H2Exchange {
    pub(super) state: H2ExchangeState,
    /// Data for the counters and the log line.
    pub(super) record: ResponseRecord,
    /// Number of content bytes sent.
    pub(super) sent: u64,
    pub(super) started_us: u64,
    /// Reservation in the ledger of requests under way.
    pub(super) held: RequestReservation,
    /// Time for which the client has taken nothing of the response.
    pub(super) stall: StallClock,
    /// True if the request's content is read and discarded, before and after the response.
    pub(super) is_drained: bool,
    /// Content bytes that no handler took and that the stream's window does not have back yet.
    pub(super) withheld: u32,
}

/// The event that an exchange waits for.
pub(super) enum H2ExchangeState {
    /// No wait has begun.
    New,
    /// A wait, then another dispatch.
    AwaitingRedispatch(PendingRedispatch),
    /// The end of discarded content; the response is complete.
    Drain(Linger),
    /// The socket and the flow-control windows, with content to send.
    Body(BodyReader),
    /// A read from disk, for the next part of the content.
    Disk(BodyReader, DiskReadFuture),
    /// A handler call.
    Call(Box<StreamCall>),
}

pub(super) type DiskReadFuture =
    Pin<Box<dyn Future<Output = Result<io::Result<Vec<u8>>, ThreadPoolError>> + Send>>;

/// A wait before another dispatch.
pub(super) struct PendingRedispatch {
    pub(super) asked: Box<FieldSection>,
    /// Content received during the wait, for a handler called after the wait. The client gets no
    /// window credit during the wait.
    pub(super) early: EarlyBody,
    /// Wait before the next dispatch.
    pub(super) work: LocalBoxFuture<Progress>,
}

/// A request dispatched again after a wait.
pub(super) struct RedispatchedRequest {
    pub(super) asked: Box<FieldSection>,
    pub(super) progress: Progress,
    /// Content received during the wait.
    pub(super) early: EarlyBody,
}

/// Content of a request received before the call of the handler.
#[derive(Default)]
pub(super) struct EarlyBody {
    pub(super) bytes: Vec<u8>,
    /// Field lines of the trailer section.
    pub(super) trailers: Vec<u8>,
}

impl EarlyBody {
    pub(super) fn is_empty(&self) -> bool {
        self.held_bytes() == 0
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len() + self.trailers.len()
    }
}

impl H2Exchange {
    pub(super) fn new(context: &WorkerContext, held: RequestReservation) -> Box<H2Exchange> {
        Box::new(H2Exchange {
            state: H2ExchangeState::New,
            record: ResponseRecord::default(),
            sent: 0,
            started_us: context.clock.micros(),
            held,
            stall: StallClock::default(),
            is_drained: false,
            withheld: 0,
        })
    }

    /// Releases the log entry and the reserved memory after a complete response, and waits for the rest of
    /// the content.
    pub(super) fn drain(&mut self, now_ms: u64) {
        self.record = ResponseRecord::default();
        self.state = H2ExchangeState::Drain(Linger::new(now_ms));
        self.is_drained = true;
        // A smaller reservation always fits.
        let _ = self.held.resize(0);
    }

    /// Returns true if the exchange must be polled at every event of the connection.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            H2ExchangeState::AwaitingRedispatch(_)
                | H2ExchangeState::Disk(..)
                | H2ExchangeState::Call(_)
        )
    }

    /// Appends the next part of the response's content to `out`.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> BodyFill {
        match &mut self.state {
            H2ExchangeState::Body(body) => body.fill(out, bytes_max),
            H2ExchangeState::Call(call) => {
                let filled = call.fill(out, bytes_max);
                if let (BodyFill::Broken, Some(why)) = (&filled, call.break_reason()) {
                    self.record.rule = why.rule;
                }
                filled
            }
            _ => BodyFill::Nothing,
        }
    }

    /// Returns true if the content of announced length has been filled whole, also before its end is known.
    pub(super) fn is_content_filled(&self) -> bool {
        matches!(&self.state, H2ExchangeState::Call(call) if call.is_content_filled())
    }

    /// Returns true if the client may go on to send content behind the complete response without handling any further
    /// frame, as curl up to 7.88 does.
    pub(super) fn may_end_before_content(&self) -> bool {
        may_go_on_behind(self.record.status) && !self.is_tunnel()
    }

    /// Suspends the response's content until the end of a read from disk.
    pub(super) fn wait_for_disk(&mut self, work: DiskReadFuture) {
        self.state = match std::mem::replace(&mut self.state, H2ExchangeState::New) {
            H2ExchangeState::Body(body) => H2ExchangeState::Disk(body, work),
            state => state,
        };
    }

    /// Polls the read from disk. Ready with false if the read failed.
    pub(super) fn poll_disk(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let H2ExchangeState::Disk(_, work) = &mut self.state else {
            return Poll::Ready(true);
        };
        let Poll::Ready(read) = work.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let H2ExchangeState::Disk(mut body, _) =
            std::mem::replace(&mut self.state, H2ExchangeState::New)
        else {
            return Poll::Ready(false);
        };
        let Ok(Ok(bytes)) = read else {
            return Poll::Ready(false);
        };
        body.feed(bytes);
        self.state = H2ExchangeState::Body(body);
        Poll::Ready(true)
    }

    /// Returns true if the content is for a handler, now or after a wait.
    pub(super) fn awaits_body(&self) -> bool {
        match &self.state {
            H2ExchangeState::Call(call) => call.upload.is_some(),
            H2ExchangeState::AwaitingRedispatch(_) => !self.is_drained,
            _ => false,
        }
    }

    /// Sets the trailers of the content.
    pub(super) fn set_trailers(&mut self, lines: Vec<u8>) {
        match &mut self.state {
            H2ExchangeState::Call(call) => call.set_trailers(&lines),
            H2ExchangeState::AwaitingRedispatch(pending) => pending.early.trailers = lines,
            _ => {}
        }
    }

    /// Takes the trailers of a complete response, as a field block.
    pub(super) fn take_trailers(&mut self) -> Option<Vec<u8>> {
        match &mut self.state {
            H2ExchangeState::Call(call) => call.take_trailers::<Hpack>(),
            _ => None,
        }
    }

    /// Returns true if the stream is an open tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(&self.state, H2ExchangeState::Call(call) if call.is_tunnel())
    }

    /// Returns true if the handler's direction of a tunnel has ended.
    pub(super) fn is_answered(&self) -> bool {
        matches!(&self.state, H2ExchangeState::Call(call) if call.is_download_over())
    }

    /// Ends the handler's direction of a tunnel. Returns false if the stream is no tunnel.
    pub(super) fn end_tunnel_download(&mut self, now_ms: u64) -> bool {
        match &mut self.state {
            H2ExchangeState::Call(call) if call.is_tunnel() => {
                call.end_download(now_ms);
                true
            }
            _ => false,
        }
    }

    /// Records bytes of a tunnel in either direction.
    pub(super) fn note_moved(&mut self, now_ms: u64) {
        if let H2ExchangeState::Call(call) = &mut self.state {
            call.note_moved(now_ms);
        }
    }

    /// Returns the number of content bytes that the handler has not taken and that count against the
    /// connection's window.
    pub(super) fn counted(&self) -> usize {
        match &self.state {
            H2ExchangeState::Call(call) => call.counted,
            H2ExchangeState::AwaitingRedispatch(pending) => pending.early.bytes.len(),
            _ => 0,
        }
    }

    /// Returns the mean rate of the content in both directions, in bytes a second. Each request begins with a second and
    /// 32 KiB, so that a request that has just begun does not count as the slowest.
    pub(super) fn bytes_per_second(&self, now_us: u64) -> u64 {
        let received = match &self.state {
            H2ExchangeState::Call(call) => call.seen,
            _ => 0,
        };
        let moved = self.sent + received + DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
        let age_ms = now_us.saturating_sub(self.started_us) / 1_000 + 1_000;
        moved.saturating_mul(1_000) / age_ms
    }

    pub(super) fn log(&self, bytes: u64, context: &WorkerContext) {
        self.record.log(bytes, context);
    }

    /// Counts a complete response.
    pub(super) fn count(&self, context: &WorkerContext) {
        let micros = context.clock.micros().saturating_sub(self.started_us);
        let micros = (!self.is_tunnel()).then_some(micros);
        self.record.count(self.sent, micros, context);
    }
}

/// Returns true for a status behind which curl goes on to send its content: below 300, and 401 with `--anyauth`.
pub(super) fn may_go_on_behind(status: Status) -> bool {
    matches!(status.0, 200..300 | 401)
}
