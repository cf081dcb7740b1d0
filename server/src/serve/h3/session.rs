//! An HTTP/3 connection from the handshake to the end: accepts streams, sends GOAWAY when the client has to
//! leave, and charges the abuse budget for traffic without use.

use super::super::dispatch_context::{DispatchContext, EndpointLookup};
use super::super::worker::Worker;
use super::H3ConnectionGuard;
use super::exchange::H3Exchange;
use crate::base::fair_share::SharedLimit;
use crate::base::task::{spawn_boxed, spawn_local};
use crate::handler::Endpoints;
use crate::handler::LocalBoxFuture;
use crate::limits;
use crate::serve::access_log::ClientInfo;
use crate::serve::connection_ledger::{Activity, ConnectionEntry};
use crate::serve::h3::pending_request::{PendingRequest, ShedWaker};
use crate::serve::request_ledger::{ConnectionAccount, ShedOrder};
use crate::tls::{self, PairFingerprint};
use crate::wire::abuse_budget::AbuseBudget;
use crate::wire::h3::{
    H3ConnectionError, H3ErrorCode, UnidirectionalState, UnidirectionalStream, frame,
};
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connecting, Connection, RecvStream, SendStream, VarInt};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// State of a connection, shared with the tasks of the streams.
pub(super) struct H3Session {
    pub(super) worker: Rc<Worker>,
    pub(super) who: ClientInfo,
    ends: Endpoints,
    pub(super) quic: Connection,
    identity: PairFingerprint,
    control: RefCell<UnidirectionalState>,
    calm: RefCell<AbuseBudget>,
    /// Account of the connection in the ledger of requests under way.
    pub(super) holder: Rc<ConnectionAccount>,
    /// Requests that wait, at most `H3_STREAMS_MAX` for a connection.
    waiting: RefCell<Vec<Rc<PendingRequest>>>,
    /// Woken when the connection has to end requests in favour of other clients.
    shed: Arc<ShedWaker>,
    /// Number of requests under way.
    open: Cell<usize>,
    /// Number of requests under way that have a body and wait for a place.
    queued: Cell<u32>,
    /// Bytes reserved for the connection in the worker's ledger of send windows.
    widened: Cell<usize>,
    /// Entry in the ledger of connections.
    entry: Arc<ConnectionEntry>,
    /// Start of the time without a request, in milliseconds of the worker's clock.
    idle_ms: Cell<u64>,
    /// Stream number expected for the next request.
    next_id: Cell<u64>,
    stage: Cell<H3ShutdownStage>,
    /// Notified when the last request under way has ended.
    rested: Notify,
}

/// Stage of the shutdown of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum H3ShutdownStage {
    Open,
    /// The first GOAWAY was sent. The client may not have received the GOAWAY yet.
    Leaving,
    /// Requests from the given stream number on are not answered.
    Left(u64),
}

/// Round trips between the first and the last GOAWAY. A client must have time to receive the first:
/// requests sent before are answered. The pause is at least [`LEAVE_MIN`] and at most [`LEAVE_MAX`].
const LEAVE_ROUND_TRIPS: u32 = 4;
const LEAVE_MIN: Duration = Duration::from_millis(50);
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Stream number in the first GOAWAY: the largest possible number of a request stream.
const LAST_ID: u64 = frame::INTEGER_MAX - 3;

/// Serves a connection from the handshake on.
pub(super) async fn run(
    connecting: Connecting,
    mut place: H3ConnectionGuard,
    entry: Arc<ConnectionEntry>,
    peer: IpAddr,
) {
    let worker = place.worker.clone();
    let seconds = worker.world().limits.handshake_seconds;
    let handshake = tokio::select! {
        biased;
        () = entry.evicted() => return worker.count_eviction(),
        handshake = timeout(Duration::from_secs(seconds.into()), connecting) => handshake,
    };
    worker.clock.tick();
    let quic = match handshake {
        Ok(Ok(quic)) => quic,
        Ok(Err(_)) => return worker.stats.handshakes_failed.increment(),
        Err(_) => {
            worker.stats.deadlines.increment();
            return worker.stats.handshakes_failed.increment();
        }
    };
    place.prove();
    if tls::was_ticket_opened() {
        worker.stats.handshakes_resumed.increment();
    } else {
        worker.stats.handshakes_full.increment();
    }
    worker.stats.h3_connections.increment();
    let data = quic.handshake_data();
    let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
    let name = data.and_then(|data| data.server_name);
    let world = worker.world();
    let Some(tls) = &world.tls else { return };
    let Some(identity) = tls.identity_over_quic(name.as_deref()) else {
        return;
    };
    let holder = worker.request_ledger.holder(peer);
    let shed = Arc::<ShedWaker>::default();
    holder.wake_by(&Waker::from(shed.clone()));
    let session = Rc::new(H3Session {
        holder,
        shed,
        waiting: RefCell::default(),
        identity,
        who: ClientInfo {
            peer,
            tls: Some("TLSv1.3"),
        },
        ends: Endpoints {
            client_port: Some(quic.remote_address().port()),
            server: quic.local_ip().map(|server| server.to_canonical()),
        },
        control: RefCell::default(),
        calm: RefCell::default(),
        open: Cell::new(0),
        queued: Cell::new(0),
        widened: Cell::new(0),
        entry,
        idle_ms: Cell::new(worker.clock.millis()),
        next_id: Cell::new(0),
        stage: Cell::new(H3ShutdownStage::Open),
        rested: Notify::new(),
        quic,
        worker,
    });
    drop(world);
    session.stand();
    session.serve().await;
}

/// Event that wakes a connection.
enum H3SessionEvent {
    Request(SendStream, RecvStream),
    OneWay(RecvStream),
    /// A drain began, or HTTP/3 was switched off.
    Told,
    Rested,
    /// Requests have to end in favour of other clients.
    Shed,
    Time,
    Gone,
}

impl H3Session {
    /// Serves the connection until the end, or until an eviction. The eviction does not wait for a client
    /// that blocks all sending.
    async fn serve(self: Rc<Self>) {
        let mut control = None;
        tokio::select! {
            biased;
            () = self.entry.evicted() => {}
            () = self.clone().take_streams(&mut control) => return,
        }
        self.give_up(control.as_mut()).await;
    }

    async fn take_streams(self: Rc<Self>, control: &mut Option<SendStream>) {
        *control = self.open_control().await;
        let Some(control) = control else { return };
        let idle = self.idle_seconds();
        let mut timer = pin!(sleep(idle));
        loop {
            let news = tokio::select! {
                biased;
                bidi = self.quic.accept_bi() => bidi.map_or(H3SessionEvent::Gone, |(send, recv)| H3SessionEvent::Request(send, recv)),
                uni = self.quic.accept_uni() => uni.map_or(H3SessionEvent::Gone, H3SessionEvent::OneWay),
                () = self.worker.h3.told.notified() => H3SessionEvent::Told,
                () = self.rested.notified() => H3SessionEvent::Rested,
                () = self.shed.woken() => H3SessionEvent::Shed,
                () = timer.as_mut() => H3SessionEvent::Time,
            };
            match news {
                H3SessionEvent::Request(send, recv) => self.request(send, recv),
                H3SessionEvent::OneWay(recv) => spawn_local(self.clone().listen(recv)),
                H3SessionEvent::Told | H3SessionEvent::Rested => {}
                H3SessionEvent::Shed => self.end_waiting(self.holder.take_shed()),
                H3SessionEvent::Time => self.time(timer.as_mut(), control).await,
                H3SessionEvent::Gone => return,
            }
            if self.must_leave() && self.stage.get() == H3ShutdownStage::Open {
                self.stage.set(H3ShutdownStage::Leaving);
                self.goaway(control, LAST_ID).await;
                let way = self.quic.rtt() * LEAVE_ROUND_TRIPS;
                timer.set(sleep(way.clamp(LEAVE_MIN, LEAVE_MAX)));
            }
            if matches!(self.stage.get(), H3ShutdownStage::Left(_)) && self.open.get() == 0 {
                return self.close(H3ErrorCode::H3_NO_ERROR, "");
            }
        }
    }

    /// Opens the server's control stream and sends SETTINGS. Returns `None` if the client doesn't allow the
    /// stream.
    async fn open_control(&self) -> Option<SendStream> {
        let world = self.worker.world();
        let seconds = world.limits.head_seconds;
        let mut opening = Vec::new();
        frame::push_opening(world.limits.head_bytes, &mut opening);
        drop(world);
        let opened = timeout(Duration::from_secs(seconds.into()), async {
            let mut control = self.quic.open_uni().await.ok()?;
            control.write_all(&opening).await.ok()?;
            Some(control)
        });
        let control = opened.await.ok().flatten();
        if control.is_none() {
            self.fatal(H3ConnectionError::new(
                H3ErrorCode::H3_STREAM_CREATION_ERROR,
                "no control stream was allowed",
            ));
        }
        control
    }

    /// Handles the end of the timer, set for the idle time or for the pause between two GOAWAYs.
    async fn time(&self, mut timer: Pin<&mut Sleep>, control: &mut SendStream) {
        self.worker.clock.tick();
        if self.stage.get() == H3ShutdownStage::Leaving {
            self.stage.set(H3ShutdownStage::Left(self.next_id.get()));
            self.goaway(control, self.next_id.get()).await;
            return timer.set(sleep(FOR_EVER));
        }
        let idle = self.idle_seconds();
        let silent = self.worker.clock.millis() - self.idle_ms.get();
        let silent = Duration::from_millis(silent);
        if self.open.get() > 0 || silent < idle {
            // A new request does not reset the timer. At the end of the timer, the timer is set to the rest
            // of the idle time.
            let left = match self.open.get() {
                0 => idle - silent,
                _ => idle,
            };
            return timer.as_mut().reset(Instant::now() + left);
        }
        self.stage.set(H3ShutdownStage::Left(self.next_id.get()));
        self.goaway(control, self.next_id.get()).await;
    }

    /// Closes the connection in favour of another connection. The client of an idle connection first gets a
    /// GOAWAY, and a moment to learn which requests are not answered. Requests that arrive meanwhile are
    /// not taken.
    async fn give_up(&self, control: Option<&mut SendStream>) {
        self.worker.count_eviction();
        if self.open.get() > 0 {
            return self.close(H3ErrorCode::H3_EXCESSIVE_LOAD, "");
        }
        if let Some(control) = control {
            let _ = timeout(LEAVE_MIN, self.goaway(control, self.next_id.get())).await;
            sleep(LEAVE_MIN).await;
        }
        self.close(H3ErrorCode::H3_NO_ERROR, "");
    }

    /// Records the activity of the connection in the ledger of connections.
    fn stand(&self) {
        self.entry.set_activity(match self.open.get() {
            0 => Activity::Idle(self.idle_ms.get()),
            _ => Activity::Busy(self.worker.clock.millis()),
        });
    }

    /// Sends GOAWAY: no request from stream number `id` on is answered.
    async fn goaway(&self, control: &mut SendStream, id: u64) {
        let mut bytes = Vec::new();
        frame::push_goaway(id, &mut bytes);
        // A client that doesn't read the control stream must not delay the connection.
        let _ = timeout(LEAVE_MAX, control.write_all(&bytes)).await;
    }

    fn must_leave(&self) -> bool {
        self.worker.draining.get() || self.worker.world().h3_port.is_none()
    }

    fn idle_seconds(&self) -> Duration {
        let seconds = self.worker.world().limits.idle_seconds;
        Duration::from_secs(seconds.max(1).into())
    }

    /// Handles a new request stream: answers at once where possible, else in a task of its own.
    fn request(self: &Rc<Self>, send: SendStream, recv: RecvStream) {
        self.worker.clock.tick();
        let id = u64::from(VarInt::from(send.id()));
        self.next_id.set(self.next_id.get().max(id + 4));
        let exchange = H3Exchange::new(self.clone(), send, recv);
        let is_late = matches!(self.stage.get(), H3ShutdownStage::Left(from) if id >= from);
        if is_late {
            return exchange.reject();
        }
        let mut running: LocalBoxFuture<()> = Box::pin(exchange.run());
        let mut nobody = Context::from_waker(std::task::Waker::noop());
        if running.as_mut().poll(&mut nobody).is_pending() {
            spawn_boxed(running);
        }
    }

    /// Reads a unidirectional stream until the end of the stream.
    async fn listen(self: Rc<Self>, mut recv: RecvStream) {
        let mut inbound = UnidirectionalStream::default();
        loop {
            let read = recv
                .read_chunk(limits::H3_CONTROL_FRAME_BYTES_MAX, true)
                .await;
            let heard = match read {
                Ok(Some(chunk)) => {
                    self.worker.clock.tick();
                    let heard = inbound.receive(&mut self.control.borrow_mut(), &chunk.bytes);
                    let idle = inbound.take_idle_frames();
                    heard.and_then(|goes_on| {
                        self.charge_abuse(
                            idle * limits::UNKNOWN_FRAME_POINTS,
                            "a flood of control frames",
                        )?;
                        Ok(goes_on)
                    })
                }
                Ok(None) | Err(quinn::ReadError::Reset(_)) => inbound.end().map(|()| false),
                Err(_) => return,
            };
            match heard {
                Ok(true) => {}
                Ok(false) => {
                    let _ = recv.stop(varint(H3ErrorCode::H3_STREAM_CREATION_ERROR));
                    return self.stopped_listening();
                }
                Err(fatal) => return self.fatal(fatal),
            }
        }
    }

    fn stopped_listening(&self) {
        let _ = self
            .charge_abuse(limits::RESET_POINTS, "a flood of unknown streams")
            .map_err(|fatal| self.fatal(fatal));
    }

    /// Charges the abuse budget for traffic without use for any response.
    pub(super) fn charge_abuse(
        &self,
        points: u32,
        what: &'static str,
    ) -> Result<(), H3ConnectionError> {
        if points == 0 {
            return Ok(());
        }
        let now_ms = self.worker.clock.millis();
        Ok(self.calm.borrow_mut().spend(points, now_ms, what)?)
    }

    /// Charges the abuse budget for a part of a body that the client's windows cut off after `bytes`.
    pub(super) fn pay_for_part(&self, bytes: usize) -> Result<(), H3ConnectionError> {
        self.charge_abuse(limits::WINDOW_UPDATE_POINTS, "windows opened byte by byte")?;
        self.calm.borrow_mut().refund_sent_bytes(bytes);
        Ok(())
    }

    /// Refunds a part of the abuse budget for a complete response.
    pub(super) fn served(&self) {
        self.calm.borrow_mut().refund(limits::RESPONSE_POINTS);
    }

    /// Records the start of the longest stall among the waiting requests.
    pub(super) fn note_stalls(&self) {
        let waiting = self.waiting.borrow();
        let longest_ms = waiting.iter().map(|it| it.stalled_ms()).min();
        self.holder.stalled_since(longest_ms.unwrap_or(u64::MAX));
    }

    /// Ends requests to make room for other clients.
    fn end_waiting(&self, shed: ShedOrder) {
        let waiting = self.waiting.borrow();
        for _ in 0..shed.requests {
            let left = waiting.iter().filter(|it| !it.must_end());
            let Some(worst) = left.min_by_key(|it| it.stalled_ms()) else {
                return;
            };
            self.worker.request_ledger.refused(SharedLimit::Streams, 1);
            worst.shed();
        }
        let mut bytes = shed.head_bytes;
        while bytes > 0 {
            let left = waiting.iter().filter(|it| !it.must_end());
            let Some(largest) = left.max_by_key(|it| it.head_bytes()) else {
                return;
            };
            self.worker
                .request_ledger
                .refused(SharedLimit::HeadBytes, 1);
            bytes = bytes.saturating_sub(largest.head_bytes().max(1));
            largest.shed();
        }
    }

    /// Adds a request to the waiting requests.
    pub(super) fn begin_wait(&self, waiting: &Rc<PendingRequest>) {
        self.waiting.borrow_mut().push(Rc::clone(waiting));
    }

    /// Removes a finished request from the waiting requests.
    pub(super) fn end_wait(&self, waiting: &Rc<PendingRequest>) {
        self.waiting
            .borrow_mut()
            .retain(|it| !Rc::ptr_eq(it, waiting));
        self.note_stalls();
    }

    /// Counts a request that begins.
    pub(super) fn enter(&self) {
        self.open.set(self.open.get() + 1);
        self.stand();
    }

    /// Counts a request as ended.
    pub(super) fn leave(&self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.idle_ms.set(self.worker.clock.millis());
            self.narrow();
            if matches!(self.stage.get(), H3ShutdownStage::Left(_)) {
                self.rested.notify_one();
            }
        }
        self.stand();
    }

    /// Sets the send window to twice the congestion window, so that a distant client isn't slowed down,
    /// as far as the client's share of the worker's memory for send windows allows. QUIC keeps all
    /// bytes in the window until the client acknowledges them.
    pub(super) fn widen(&self) {
        let carried = self.quic.stats().path.cwnd;
        let window = (2 * carried).clamp(
            limits::H3_UNACKNOWLEDGED_BYTES_MIN,
            limits::H3_UNACKNOWLEDGED_BYTES_MAX,
        );
        let wanted = (window - limits::H3_UNACKNOWLEDGED_BYTES_MIN) as usize;
        let widened = self.widened.get();
        if wanted > widened {
            let bound = self.worker.shared.pending_head_bytes_max;
            let mut windows = self.worker.h3.windows.borrow_mut();
            let more = windows.add_up_to(self.who.peer.into(), wanted - widened, bound);
            self.widened.set(widened + more);
        }
        let window = wanted.min(self.widened.get()) as u64;
        self.quic
            .set_send_window(limits::H3_UNACKNOWLEDGED_BYTES_MIN + window);
    }

    /// Returns true if the send window is larger than `H3_UNACKNOWLEDGED_BYTES_MIN`.
    pub(super) fn is_widened(&self) -> bool {
        self.widened.get() > 0
    }

    /// Sets the send window to its minimum again. All responses were acknowledged or reset, so QUIC
    /// holds no more than the minimum.
    fn narrow(&self) {
        let widened = self.widened.take();
        if widened > 0 {
            let mut windows = self.worker.h3.windows.borrow_mut();
            windows.remove(self.who.peer.into(), widened);
            self.quic
                .set_send_window(limits::H3_UNACKNOWLEDGED_BYTES_MIN);
        }
    }

    /// Returns the number of acknowledgements sent by the client.
    pub(super) fn acknowledgements(&self) -> u64 {
        self.quic.stats().frame_rx.acks
    }

    /// Ends the connection of a client that acknowledges nothing.
    pub(super) fn end_unacknowledged(&self) {
        self.worker.stats.deadlines.increment();
        self.close(H3ErrorCode::H3_NO_ERROR, "nothing was acknowledged");
    }

    /// Changes the number of bodies that wait for a place by `more`, which may be negative. Received bytes
    /// of waiting bodies don't use up the connection's receive window.
    pub(super) fn queue(&self, more: i32) {
        let queued = self.queued.get().saturating_add_signed(more);
        self.queued.set(queued);
        let more = queued.saturating_mul(limits::H3_STREAM_WINDOW_BYTES);
        let window = limits::H3_CONNECTION_WINDOW_BYTES.saturating_add(more);
        self.quic.set_receive_window(window.into());
    }

    /// Returns true if the connection ends after the requests under way.
    pub(super) fn is_leaving(&self) -> bool {
        self.stage.get() != H3ShutdownStage::Open
    }

    /// Closes the connection after a connection error of the peer.
    pub(super) fn fatal(&self, fatal: H3ConnectionError) {
        if self.quic.close_reason().is_some() {
            return;
        }
        self.worker.stats.h3_errors.increment();
        let H3ConnectionError { code, reason } = fatal;
        log::debug!("{}: HTTP/3: {code:?}: {reason}", self.who.peer);
        self.close(code, reason);
    }

    fn close(&self, code: H3ErrorCode, reason: &str) {
        self.quic.close(varint(code), reason.as_bytes());
    }

    pub(super) fn facts(&self) -> DispatchContext {
        DispatchContext {
            identity: Some(self.identity),
            peer: self.who.peer,
            endpoints: EndpointLookup::Known(self.ends),
            now_ms: self.worker.clock.millis(),
            may_wait: false,
            has_disk_changes: false,
        }
    }
}

impl Drop for H3Session {
    fn drop(&mut self) {
        self.narrow();
    }
}

/// Duration of a timer that is no longer needed.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// Converts an error code to the integer type of QUIC.
pub(super) fn varint(code: H3ErrorCode) -> VarInt {
    VarInt::from_u32(code.0)
}

/// Polls a future once, for a result that is available without waiting.
pub(super) fn now<F: Future>(future: F) -> Poll<F::Output> {
    let mut nobody = Context::from_waker(std::task::Waker::noop());
    pin!(future).poll(&mut nobody)
}
