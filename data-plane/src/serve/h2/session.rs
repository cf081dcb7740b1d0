//! An HTTP/2 connection: a single task that reads, answers and writes, for any number of streams.
//!
//! The protocol logic is in `wire::h2`; the socket, the World and the clock are handled here. A stored page
//! in memory is answered at once and never enters the table of streams. A request that has to wait (for a
//! file, a password, a live call, the peer's window) becomes an [`H2Exchange`] of its stream, and is polled
//! whenever the connection is woken.

use crate::ledger::shared_limit::SharedLimit;
use crate::ledger::stats::ClosedCount;
use crate::limits;
use crate::serve::access_log::ClientInfo;
use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::context::WorkerContext;
use crate::serve::h2::exchange::{H2Exchange, H2ExchangeState, RedispatchedRequest};
use crate::serve::request_ledger::{ConnectionAccount, RequestReservation, ShedOrder};
use crate::serve::response_body::BodyFill;
use crate::serve::stall::{ProgressClock, StallClock};
use crate::site::VariantResponse;
use base::client_network::ClientNetwork;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use wire::h2::stream::RemoteState;
use wire::h2::{self, H2ConnectionError, H2ErrorCode, H2Event, H2ResetCause};
use wire::reject::Reject;

/// State of an HTTP/2 connection.
pub(super) struct H2Session<'c> {
    pub(super) connection: &'c mut Connection,
    pub(super) context: Rc<WorkerContext>,
    pub(super) h2: h2::H2Connection<Box<H2Exchange>>,
    pub(super) who: ClientInfo,
    /// Bodies in memory, each with its position in `h2.out`. Under TLS a body is encrypted straight from
    /// the original memory, because a copy into `h2.out` would cost more than the encryption.
    pub(super) bodies: Vec<(usize, VariantResponse)>,
    /// Total bytes of `bodies`.
    pub(super) bodies_bytes: usize,
    /// Bytes of `h2.out` already written to the socket.
    pub(super) written: usize,
    /// True if the received bytes hold no complete frame, so more must be read.
    pub(super) is_hungry: bool,
    /// Account of the connection in the ledger of requests under way.
    pub(super) account: Rc<ConnectionAccount>,
    /// Entry in the ledger for the bytes of an unfinished request.
    pub(super) unfinished: RequestReservation,
    /// Stall clock of the socket, and the total of bytes taken by the socket or by TLS.
    pub(super) socket_stall: StallClock,
    pub(super) socket_bytes: u64,
    /// Stall clock of the connection's flow-control window, and the total of bytes of all bodies.
    pub(super) window_stall: StallClock,
    pub(super) body_bytes: u64,
    /// Bytes of all request bodies that handlers were given.
    pub(super) received_bytes: u64,
    /// Progress of all requests together.
    pub(super) progress: ProgressClock,
    /// Stream with the memory of the socket in its reservation.
    pub(super) socket_holder: Option<u32>,
    /// Start of an unfinished frame or header block, or of the wait for the client's preface, in
    /// milliseconds of the worker's clock.
    pub(super) begun_ms: Option<u64>,
    /// Start of the time without a stream, in milliseconds of the worker's clock.
    pub(super) idle_ms: u64,
    pub(super) stage: H2ShutdownStage,
    /// True if no more bytes can be sent to the peer.
    pub(super) is_dead: bool,
    /// Remaining budget of the current poll: requests taken and rounds of writing. At 0 the connection
    /// yields to other connections, with work possibly left.
    pub(super) budget: u32,
}

/// Stage of the shutdown of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum H2ShutdownStage {
    Open,
    /// The first GOAWAY was sent at the given time. The peer may not have received the GOAWAY yet.
    Leaving(u64),
    /// New requests are not taken; requests under way continue.
    Left,
    /// Only the bytes in `out` remain to be sent.
    Over(AfterResponse),
}

/// Most bytes of a connection that wait for the socket, before the overhead of TLS.
pub(super) const OUT_BYTES_MAX: usize = limits::UNSENT_BYTES_MAX - 1_024;

/// Serves a connection of an HTTP/2 client; bytes already received are in `rest`.
pub(in crate::serve) async fn run(on: &mut Connection) -> AfterResponse {
    let context = on.context.clone();
    let stats = Arc::clone(&context.stats);
    stats.h2_connections.increment();
    let _closed = ClosedCount(&stats.h2_connections_closed);
    let head_bytes = context.world().limits.head.head_bytes;
    let account = context.request_ledger.account(on.peer);
    account.note_moved_bytes(0, context.clock.millis());
    let mut session = H2Session {
        unfinished: account.unfinished(),
        account,
        who: on.client_info(),
        h2: h2::H2Connection::new(head_bytes),
        bodies: Vec::new(),
        bodies_bytes: 0,
        written: 0,
        is_hungry: on.rest.is_empty(),
        socket_stall: StallClock::default(),
        socket_bytes: 0,
        window_stall: StallClock::default(),
        body_bytes: 0,
        received_bytes: 0,
        progress: ProgressClock::default(),
        socket_holder: None,
        begun_ms: Some(context.clock.millis()),
        idle_ms: context.clock.millis(),
        stage: H2ShutdownStage::Open,
        is_dead: false,
        budget: 0,
        context,
        connection: on,
    };
    let end = loop {
        let polled = poll_fn(|cx| match session.poll(cx) {
            Poll::Pending if session.budget == 0 => Poll::Ready(None),
            polled => polled.map(Some),
        });
        match polled.await {
            Some(end) => break end,
            // Lets other connections run.
            None => tokio::task::yield_now().await,
        }
    };
    session.context.clear_waker(session.connection.slot);
    end
}

impl Drop for H2Session<'_> {
    fn drop(&mut self) {
        for stream in self.h2.streams() {
            self.context.stats.h2_resets.increment();
            stream.work.log(stream.sent, &self.context);
        }
    }
}

impl H2Session<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        let context = self.context.clone();
        context.clock.tick();
        if self.h2.out.capacity() == 0 {
            self.h2.out = context.h2.frames.take();
        }
        if self.bodies.capacity() == 0 {
            self.bodies = context.h2.bodies.take();
        }
        if context.expired(self.connection.slot).is_some() {
            self.enforce_deadlines();
        }
        let shed = self.account.take_shed();
        if shed != ShedOrder::default() {
            self.shed(self.account.client(), shed);
        }
        for (client, shed) in self.account.take_client_sheds() {
            self.shed(client, shed);
        }
        if context.is_evicted(self.connection.slot) {
            self.give_up();
        }
        self.budget = limits::TURN_REQUESTS_MAX;
        let end = if self.is_dead {
            Poll::Ready(AfterResponse::Reset)
        } else if context.is_draining() {
            self.poll_last_work(cx)
        } else {
            self.poll_work(cx)
        };
        if end.is_pending() {
            self.set_deadline(cx);
            self.adjust_narrow_socket();
        }
        if self.h2.out.is_empty() {
            let out = std::mem::take(&mut self.h2.out);
            let mut shelf = context.h2.frames.borrow_mut();
            if out.capacity() > shelf.capacity() {
                *shelf = out;
            }
            drop(shelf);
            context.h2.bodies.replace(std::mem::take(&mut self.bodies));
            self.h2.shrink();
        }
        end
    }

    /// Does all work that is possible without waiting.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        loop {
            match self.poll_write(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(AfterResponse::Close),
                Poll::Pending => {
                    let now_ms = self.context.clock.millis();
                    let unsent = self.connection.stream.unsent_bytes() as u64;
                    let sent = self.socket_bytes.saturating_sub(unsent);
                    self.socket_stall.note(true, sent, now_ms);
                    self.poll_downloads(cx);
                    return Poll::Pending;
                }
            }
            if let H2ShutdownStage::Over(end) = self.stage {
                return Poll::Ready(end);
            }
            if self.budget == 0 {
                return Poll::Pending;
            }
            self.budget -= 1;
            let mut moved = self.poll_streams(cx);
            moved |= self.fill();
            match self.poll_input(cx) {
                Poll::Ready(Ok(true)) => moved = true,
                Poll::Ready(Ok(false)) => return Poll::Ready(AfterResponse::Close),
                Poll::Ready(Err(fatal)) => self.fatal(fatal),
                Poll::Pending => {}
            }
            if self.stage == H2ShutdownStage::Left && self.h2.open() == 0 {
                self.stage = H2ShutdownStage::Over(self.after_last_stream());
            }
            if !moved && self.h2.out.is_empty() && !matches!(self.stage, H2ShutdownStage::Over(_)) {
                // The client holds nothing up. While further bytes wait behind the sent ones, a stall goes on.
                self.socket_stall = StallClock::default();
                return Poll::Pending;
            }
        }
    }

    /// Does all work that is possible without waiting, on a connection that is to end. A connection without a request
    /// ends with its next request, unless idle connections end at once.
    #[cold]
    fn poll_last_work(&mut self, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        if self.context.ends_idle() || self.h2.open() > 0 {
            self.begin_leaving();
        }
        let last = self.h2.last_stream();
        let polled = self.poll_work(cx);
        let is_told = self.stage != H2ShutdownStage::Open;
        if polled.is_ready() || is_told || self.h2.last_stream() == last {
            return polled;
        }
        self.begin_leaving();
        self.poll_work(cx)
    }

    /// Sends the bytes in `out`.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.connection.stream;
        if stream.tls.is_some() {
            ready!(stream.poll_flush(cx))?;
            return if self.h2.out.is_empty() {
                Poll::Ready(Ok(()))
            } else {
                self.poll_write_tls(cx)
            };
        }
        while self.written < self.h2.out.len() {
            let rest = IoSlice::new(&self.h2.out[self.written..]);
            let written = ready!(stream.poll_write(cx, &[rest]))?;
            self.written += written;
            self.socket_bytes += written as u64;
        }
        self.h2.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Encrypts all waiting bytes at once, and sends as many as the socket takes.
    fn poll_write_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let out = &self.h2.out;
        let mut slices = [IoSlice::new(&[]); 2 * BODIES_MAX + 1];
        let (mut count, mut at) = (0, 0);
        for (place, stored) in &self.bodies {
            slices[count] = IoSlice::new(&out[at..*place]);
            slices[count + 1] = IoSlice::new(stored.whole_memory().unwrap_or_default());
            (count, at) = (count + 2, *place);
        }
        slices[count] = IoSlice::new(&out[at..]);
        let stream = &mut self.connection.stream;
        ready!(stream.poll_write(cx, &slices[..=count]))?;
        self.socket_bytes += (self.h2.out.len() + self.bodies_bytes) as u64;
        self.h2.out.clear();
        self.bodies.clear();
        self.bodies_bytes = 0;
        stream.poll_flush(cx)
    }

    /// Returns the number of bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.h2.out.len() + self.bodies_bytes
    }

    /// Handles received bytes, and reads more when the received bytes hold no complete frame. Returns false
    /// at end of file. Reads nothing while many bytes wait to be sent, so a client that doesn't read can't
    /// make the server buffer more.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, H2ConnectionError>> {
        let context = self.context.clone();
        let mut scratch = context.scratch.borrow_mut();
        let mut filled = self.connection.rest.len();
        if self.unsent() >= OUT_BYTES_MAX / 2 {
            return Poll::Pending;
        }
        scratch[..filled].copy_from_slice(&self.connection.rest);
        if self.is_hungry {
            match ready!(self.connection.stream.poll_fill(cx, &mut scratch[filled..])) {
                Ok(0) | Err(_) => return Poll::Ready(Ok(false)),
                Ok(read) => {
                    filled += read;
                    context.stats.bytes_received.add(read as u64);
                    context.clock.tick();
                }
            }
        }
        self.take(&scratch[..filled], cx).map(|()| true).into()
    }

    /// Handles the events in `bytes`, and keeps the unused rest.
    fn take(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Result<(), H2ConnectionError> {
        let context = self.context.clone();
        let world = context.world();
        let mut request = context.h2.request.borrow_mut();
        let mut strings = context.h2.strings.borrow_mut();
        let now_ms = context.clock.millis();
        let mut input = bytes;
        // The first frame of a read arrived no later than the events that the poller returned. Later
        // frames may have arrived after the poller returned.
        let mut is_inotify_current = self.is_hungry;
        let mut has_checked_inotify = false;
        self.is_hungry = false;
        while self.unsent() < OUT_BYTES_MAX && self.budget > 0 {
            let limits = &world.limits.head;
            match self
                .h2
                .receive(&mut input, &mut request, &mut strings, limits, now_ms)?
            {
                H2Event::More => {
                    self.is_hungry = true;
                    break;
                }
                H2Event::Handled => {}
                H2Event::Head { id, ended } => {
                    if !is_inotify_current && !has_checked_inotify {
                        context.poller.check_inotify();
                        has_checked_inotify = true;
                    }
                    self.budget -= 1;
                    self.idle_ms = now_ms;
                    self.receive_request(id, ended, &request, &world, cx)?;
                }
                H2Event::Data { id, bytes, ended } => self.receive_body(id, bytes, ended),
                H2Event::Trailers { id } => self.receive_trailers(id, &request),
                H2Event::Reset {
                    cause, mut work, ..
                } => {
                    if let H2ResetCause::Malformed(reject) = cause {
                        self.record_refusal(&mut work, reject);
                    }
                    self.gone(&work);
                }
                H2Event::GoawayAcknowledged => {
                    if let H2ShutdownStage::Leaving(_) = self.stage {
                        self.leave();
                    }
                }
            }
            is_inotify_current = false;
        }
        let is_same = input.len() == bytes.len() && input.len() == self.connection.rest.len();
        if !is_same {
            self.connection.rest = input.to_vec();
        }
        let unfinished = self.connection.rest.len() + self.h2.block_bytes();
        if !self.unfinished.keep(unfinished) {
            return Err(H2ConnectionError::enhance_your_calm(
                "too many unfinished requests",
            ));
        }
        self.note_begun(input.len() < bytes.len(), now_ms);
        Ok(())
    }

    /// Records whether a frame or a field block is incomplete, and since when. With `has_consumed`, the received bytes
    /// completed a frame, or a part of DATA.
    fn note_begun(&mut self, has_consumed: bool, now_ms: u64) {
        let is_between = self.h2.is_between_frames();
        let is_whole = is_between && self.connection.rest.is_empty();
        if is_whole || self.h2.is_within_data() || !self.is_hungry {
            self.begun_ms = None
        } else if is_between && has_consumed {
            // Each frame has its own time.
            self.begun_ms = Some(now_ms);
        } else {
            self.begun_ms.get_or_insert(now_ms);
        }
    }

    /// Sends the first GOAWAY: the client begins no further requests.
    pub(super) fn begin_leaving(&mut self) {
        if self.stage == H2ShutdownStage::Open {
            self.h2.goaway_graceful();
            self.stage = H2ShutdownStage::Leaving(self.context.clock.millis());
        }
    }

    /// Sends the last GOAWAY of a connection that closes without error.
    pub(super) fn leave(&mut self) {
        self.h2.goaway(H2ErrorCode::NO_ERROR, "");
        self.stage = H2ShutdownStage::Left;
    }

    /// Returns the treatment of the connection after the last stream. While another process serves, a client that has not
    /// acknowledged the first GOAWAY may have sent a request meanwhile, and a reset must not overtake the last GOAWAY.
    fn after_last_stream(&self) -> AfterResponse {
        if self.context.is_draining() {
            AfterResponse::of_last_response(&self.context)
        } else {
            AfterResponse::Close
        }
    }

    /// Ends the connection with GOAWAY after a connection error of the peer.
    pub(super) fn fatal(&mut self, fatal: H2ConnectionError) {
        self.context.stats.h2_errors.increment();
        log::debug!(
            "{}: HTTP/2: {:?}: {}",
            self.who.peer,
            fatal.code,
            fatal.reason
        );
        self.h2.goaway(fatal.code, fatal.reason);
        self.stage = H2ShutdownStage::Over(AfterResponse::Linger);
    }

    /// Records the rule of a request that was malformed behind its head.
    fn record_refusal(&mut self, work: &mut H2Exchange, reject: Reject) {
        match &work.state {
            H2ExchangeState::AwaitingRedispatch(pending) => {
                let line = self.line_of(&pending.asked, reject);
                line.log(reject.status, 0, &self.context, self.who);
            }
            _ => work.record.refuse(reject),
        }
    }

    /// Counts and logs a stream that ended without a complete response.
    pub(super) fn gone(&mut self, work: &H2Exchange) {
        self.context.stats.h2_resets.increment();
        work.log(work.sent, &self.context);
        self.forget(work);
    }

    /// Releases the resources of a stream that has left the table.
    pub(super) fn forget(&mut self, work: &H2Exchange) {
        // The handler will never take the rest of the body, so the connection's window gets the bytes back.
        self.h2.release_connection_capacity(work.counted() as u32);
        if self.h2.open() == 0 {
            self.idle_ms = self.context.clock.millis();
        }
    }

    /// Resets a stream that can't be completed.
    pub(super) fn break_off(&mut self, id: u32, code: H2ErrorCode) {
        if let Some(work) = self.h2.reset(id, code) {
            self.gone(&work);
        }
    }

    /// Ends requests of `client` to make room for other clients.
    fn shed(&mut self, client: ClientNetwork, shed: ShedOrder) {
        let is_of_client = |work: &H2Exchange| work.held.client() == client;
        let now_us = self.context.clock.micros();
        for _ in 0..shed.requests {
            let streams = self.h2.streams().iter();
            let streams = streams.filter(|it| is_of_client(&it.work));
            let stalled = |work: &H2Exchange| work.stall.since_ms().unwrap_or(u64::MAX);
            let is_answered = |work: &H2Exchange| matches!(work.state, H2ExchangeState::Drain(_));
            let worst = streams.min_by_key(|it| {
                (
                    !is_answered(&it.work),
                    stalled(&it.work),
                    it.work.bytes_per_second(now_us),
                    it.work.started_us,
                )
            });
            let Some(id) = worst.map(|it| it.id) else {
                break;
            };
            self.context.request_ledger.refused(SharedLimit::Streams, 1);
            self.shed_one(id);
        }
        let mut left = shed.head_bytes;
        while left > 0 {
            self.context
                .request_ledger
                .refused(SharedLimit::HeadBytes, 1);
            let streams = self.h2.streams().iter();
            let streams = streams.filter(|it| is_of_client(&it.work));
            let largest = streams.max_by_key(|it| it.work.held.head_bytes());
            let Some((id, bytes @ 1..)) = largest.map(|it| (it.id, it.work.held.head_bytes()))
            else {
                // The head bytes belong to an unfinished request.
                return self.fatal(H2ConnectionError::enhance_your_calm(
                    "an unfinished request takes too much memory",
                ));
            };
            left = left.saturating_sub(bytes);
            self.shed_one(id);
        }
    }

    fn shed_one(&mut self, id: u32) {
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        stream.work.record.rule = Reject::REQUESTS_SHARE_TAKEN.rule;
        match stream.work.state {
            H2ExchangeState::Drain(_) => self.end_drain(id),
            // No work was done for the request, so the client may send the request again (RFC 9113 §8.7).
            H2ExchangeState::AwaitingRedispatch(_) => {
                self.break_off(id, H2ErrorCode::REFUSED_STREAM)
            }
            _ => self.break_off(id, H2ErrorCode::CANCEL),
        }
    }

    /// Closes a stream after the whole response was put into `out`. Where the client still sends the
    /// request body, the stream stays open to drain the body.
    pub(super) fn finish(&mut self, id: u32) {
        if let Some(stream) = self.h2.stream(id)
            && stream.remote != RemoteState::Ended
            && !stream.work.is_tunnel()
        {
            stream.ready = false;
            stream.work.log(stream.work.sent, &self.context);
            stream.work.count(&self.context);
            return self.begin_drain(id);
        }
        if let Some(work) = self.h2.finish(id) {
            work.log(work.sent, &self.context);
            work.count(&self.context);
            self.forget(&work);
        }
    }

    /// Puts bodies into `out`, in the order of the peer's priorities. Returns true if bytes were added.
    fn fill(&mut self) -> bool {
        let before = self.h2.out.len();
        while let Some((id, window)) = self.h2.next_to_send() {
            let room = OUT_BYTES_MAX.saturating_sub(self.unsent() + h2::frame::HEADER_BYTES);
            if room == 0 {
                break;
            }
            self.fill_one(id, window.min(room));
        }
        self.h2.out.len() > before
    }

    /// Adds one DATA frame of at most `bytes_max` bytes.
    pub(super) fn fill_one(&mut self, id: u32, bytes_max: usize) {
        let context = self.context.clone();
        let at = self.h2.begin_data(id);
        // Taken out of `h2`, because the stream is borrowed from `h2` as well.
        let mut out = std::mem::take(&mut self.h2.out);
        let begin = out.len();
        let (filled, trailers) = match self.h2.stream(id) {
            Some(stream) => match stream.work.fill(&mut out, bytes_max) {
                BodyFill::Last => (BodyFill::Last, stream.work.take_trailers()),
                filled => (filled, None),
            },
            None => (BodyFill::Broken, None),
        };
        self.h2.out = out;
        let bytes = self.h2.out.len() - begin;
        let is_last = matches!(filled, BodyFill::Last);
        self.h2.end_data(id, at, is_last && trailers.is_none());
        if let Some(block) = trailers {
            self.h2.head(id, &block, true);
        }
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        if is_last || stream.work.is_content_filled() {
            self.open_for_rest(id, at);
        }
        let Some(stream) = self.h2.stream(id) else {
            return;
        };
        stream.work.sent = stream.sent;
        self.body_bytes += bytes as u64;
        if bytes > 0 {
            stream.work.note_moved(context.clock.millis());
        }
        match filled {
            BodyFill::Some => {}
            BodyFill::Nothing => stream.ready = false,
            // The client's direction of a tunnel may go on.
            BodyFill::Last if stream.work.end_tunnel_download(context.clock.millis()) => {
                stream.ready = false;
            }
            BodyFill::Last => self.finish(id),
            // RFC 8441 §5 maps the reset of a tunnel to CANCEL.
            BodyFill::Broken if stream.work.is_tunnel() => self.break_off(id, H2ErrorCode::CANCEL),
            BodyFill::Broken => self.break_off(id, H2ErrorCode::INTERNAL_ERROR),
            BodyFill::Disk(read) => {
                stream.ready = false;
                let job = context.pool.run(move || read.run());
                stream.work.wait_for_disk(Box::pin(job));
            }
        }
    }

    /// Polls the producers of live responses while the client takes nothing, because a producer may have to
    /// end in favour of another client's call.
    fn poll_downloads(&mut self, cx: &mut Context<'_>) {
        for stream in self.h2.streams() {
            if let H2ExchangeState::Call(call) = &mut stream.work.state {
                // The result is checked again once bytes can be sent.
                call.poll_ready(cx);
            }
        }
    }

    /// Polls every stream that waits for the server's own work. Returns true if a stream made progress.
    fn poll_streams(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut at = 0;
        while let Some(stream) = self.h2.streams().get_mut(at) {
            let id = stream.id;
            if stream.work.is_waiting() {
                moved |= self.poll_stream(id, cx);
            }
            // The stream may have ended, with another stream at the same index now.
            at += usize::from(self.h2.streams().get(at).is_some_and(|it| it.id == id));
        }
        moved
    }

    fn poll_stream(&mut self, id: u32, cx: &mut Context<'_>) -> bool {
        let Some(stream) = self.h2.stream(id) else {
            return false;
        };
        match &mut stream.work.state {
            H2ExchangeState::Call(_) => self.poll_call(id, cx),
            H2ExchangeState::Disk(..) => {
                let done = stream.work.poll_disk(cx);
                match done {
                    Poll::Pending => return false,
                    Poll::Ready(true) => stream.ready = true,
                    Poll::Ready(false) => self.break_off(id, H2ErrorCode::INTERNAL_ERROR),
                }
                true
            }
            H2ExchangeState::AwaitingRedispatch(pending) => match pending.work.as_mut().poll(cx) {
                Poll::Pending => false,
                Poll::Ready(progress) => {
                    let again = RedispatchedRequest {
                        asked: std::mem::take(&mut pending.asked),
                        progress,
                        early: std::mem::take(&mut pending.early),
                    };
                    self.ask_again(id, again, cx);
                    true
                }
            },
            H2ExchangeState::Drain(_) | H2ExchangeState::Body(_) | H2ExchangeState::New => false,
        }
    }

    pub(super) fn is_secure(&self) -> bool {
        self.connection.stream.tls.is_some()
    }
}

/// Most bodies that wait together for encryption; bounds the array of slices on the stack.
pub(super) const BODIES_MAX: usize = 16;
/// Deadline of a connection without deadlines.
pub(super) const IDLE: (u64, ConnectionPhase) = (u64::MAX, ConnectionPhase::Busy);
