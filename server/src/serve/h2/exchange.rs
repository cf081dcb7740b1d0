//! What hangs on a stream that can't be answered on the spot: what it waits for, and what its log
//! line will say.

use super::super::body::{BodyFill, BodyReader};
use super::super::stall::StallClock;
use super::super::worker::Worker;
use crate::base::thread_pool::ThreadPoolError;
use crate::handler::LocalBoxFuture;
use crate::serve::access_log::OwnedAccessLogEntry;
use crate::serve::attempt::Progress;
use crate::serve::request_ledger::RequestReservation;
use crate::serve::stream_call::StreamCall;
use crate::wire::field_section::FieldSection;
use crate::wire::status::Status;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// One request on its way to its response.
pub(super) struct H2Exchange {
    pub(super) state: H2ExchangeState,
    /// None where nobody wants the line.
    pub(super) record: Option<Box<OwnedAccessLogEntry>>,
    pub(super) status: Status,
    /// Bytes of the response's body so far.
    pub(super) sent: u64,
    pub(super) started_us: u64,
    /// What it holds in the ledger of requests under way.
    pub(super) held: RequestReservation,
    /// How long the response has stood still because of the client.
    pub(super) stall: StallClock,
    /// The request's body is of no use to anyone: it is read and thrown away, before and after the
    /// response.
    pub(super) is_drained: bool,
    /// Bytes of the body that were thrown away.
    pub(super) drained: u64,
}

/// What it waits for.
pub(super) enum H2ExchangeState {
    /// Nothing yet.
    New,
    /// The pool, and is to be asked again then.
    AwaitingRedispatch(PendingRedispatch),
    /// The end of a body that is thrown away, since this time: the response is whole.
    Drain { since_ms: u64 },
    /// The socket and the windows, to take its body.
    Body(BodyReader),
    /// The disk, for the next part of its body.
    Disk(BodyReader, DiskReadFuture),
    /// A live call.
    Call(Box<StreamCall>),
}

pub(super) type DiskReadFuture =
    Pin<Box<dyn Future<Output = Result<io::Result<Vec<u8>>, ThreadPoolError>> + Send>>;

/// Work on the pool.
pub(super) struct PendingRedispatch {
    pub(super) asked: Box<FieldSection>,
    /// What came of the request's body meanwhile, for the handler that may be called in the end. The
    /// client isn't granted more.
    pub(super) early: Vec<u8>,
    /// Wait before the next dispatch.
    pub(super) work: LocalBoxFuture<Progress>,
}

impl H2Exchange {
    pub(super) fn new(worker: &Worker, held: RequestReservation) -> Box<H2Exchange> {
        Box::new(H2Exchange {
            state: H2ExchangeState::New,
            record: None,
            status: Status::OK,
            sent: 0,
            started_us: worker.clock.micros(),
            held,
            stall: StallClock::default(),
            is_drained: false,
            drained: 0,
        })
    }

    /// The response is whole: nothing of the request is kept while the rest of its body comes.
    pub(super) fn drain(&mut self, now_ms: u64) {
        self.record = None;
        self.state = H2ExchangeState::Drain { since_ms: now_ms };
        // It becomes less, which always fits.
        let _ = self.held.resize(0);
    }

    /// Is it to be looked at whenever something may have happened?
    pub(super) fn is_waiting(&self) -> bool {
        matches!(
            self.state,
            H2ExchangeState::AwaitingRedispatch(_)
                | H2ExchangeState::Disk(..)
                | H2ExchangeState::Call(_)
        )
    }

    /// Appends the next part of its body.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> BodyFill {
        match &mut self.state {
            H2ExchangeState::Body(body) => body.fill(out, bytes_max),
            H2ExchangeState::Call(call) => {
                let filled = call.fill(out, bytes_max);
                if let (BodyFill::Broken, Some(why)) = (&filled, call.break_reason())
                    && let Some(record) = &mut self.record
                {
                    record.rule = why.rule;
                }
                filled
            }
            _ => BodyFill::Nothing,
        }
    }

    /// Its body goes on when this has been read.
    pub(super) fn wait_for_disk(&mut self, work: DiskReadFuture) {
        self.state = match std::mem::replace(&mut self.state, H2ExchangeState::New) {
            H2ExchangeState::Body(body) => H2ExchangeState::Disk(body, work),
            state => state,
        };
    }

    /// Did the disk give what was asked of it?
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

    /// Bytes of the request's body that its handler has not taken, and that keep others from coming.
    pub(super) fn counted(&self) -> usize {
        match &self.state {
            H2ExchangeState::Call(call) => call.counted,
            H2ExchangeState::AwaitingRedispatch(errand) => errand.early.len(),
            _ => 0,
        }
    }

    pub(super) fn log(&self, bytes: u64, worker: &Worker) {
        if let Some(record) = &self.record {
            record.log(bytes, worker);
        }
    }

    /// Counts a response that is whole.
    pub(super) fn count(&self, worker: &Worker) {
        let micros = worker.clock.micros().saturating_sub(self.started_us);
        worker.stats.response(self.status.0, self.sent, micros);
    }
}
