//! State of an HTTP/3 connection, shared by the tasks of its streams: requests under way, windows, and the
//! abuse budget for traffic without use.

use crate::handler::Endpoints;
use crate::ledger::shared_limit::SharedLimit;
use crate::limits;
use crate::serve::access_log::ClientInfo;
use crate::serve::connection_entry::{Activity, ConnectionEntry};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::{Audience, DispatchContext, EndpointLookup, RateCheck};
use crate::serve::h3::pending_request::{PendingRequest, ShedWaker};
use crate::serve::request_ledger::{ConnectionAccount, ShedOrder};
use crate::tls::ConnectionIdentity;
use base::client_network::ClientNetwork;
use quinn::{Connection, VarInt};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use wire::abuse_budget::AbuseBudget;
use wire::h3::{H3ConnectionError, H3ErrorCode, UnidirectionalState};

/// State of a connection, shared with the tasks of the streams.
pub(super) struct H3Session {
    pub(super) context: Rc<WorkerContext>,
    pub(super) who: ClientInfo,
    ends: Endpoints,
    pub(super) quic: Connection,
    identity: ConnectionIdentity,
    pub(super) control: RefCell<UnidirectionalState>,
    abuse_budget: RefCell<AbuseBudget>,
    /// Account of the connection in the ledger of requests under way.
    pub(super) account: Rc<ConnectionAccount>,
    /// Requests that wait, at most `H3_STREAMS_MAX` for a connection.
    waiting: RefCell<Vec<Rc<PendingRequest>>>,
    /// Woken when the connection has to end requests in favour of other clients.
    pub(super) shed: Arc<ShedWaker>,
    /// Number of requests under way.
    open: Cell<usize>,
    /// Number of requests under way that have a body and wait for a place.
    queued: Cell<u32>,
    /// Bytes reserved for the connection in the worker's ledger of send windows.
    widened: Cell<usize>,
    /// True while the receive window is wide.
    is_receiving_wide: Cell<bool>,
    /// Bytes that all requests have moved.
    moved_bytes: Cell<u64>,
    /// Entry in the ledger of connections.
    pub(super) entry: Arc<ConnectionEntry>,
    /// Start of the time without a request, in milliseconds of the worker's clock.
    idle_ms: Cell<u64>,
    /// Stream number expected for the next request.
    next_id: Cell<u64>,
    stage: Cell<H3ShutdownStage>,
    /// True if no further request can succeed on the connection.
    is_outdated: Cell<bool>,
    /// Notified when the last request under way has ended, and when the client is to be asked for a new
    /// connection.
    pub(super) rested: Notify,
}

/// Stage of the shutdown of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum H3ShutdownStage {
    Open,
    /// The first GOAWAY was sent. The client may not have received the GOAWAY yet.
    Leaving,
    /// Requests from the given stream number on are not answered.
    Left(u64),
}

impl H3Session {
    /// Creates the session of a connection after its handshake.
    pub(super) fn new(
        context: &Rc<WorkerContext>,
        quic: Connection,
        identity: ConnectionIdentity,
        entry: Arc<ConnectionEntry>,
        peer: IpAddr,
    ) -> H3Session {
        let account = context.request_ledger.account(peer);
        let shed = Arc::<ShedWaker>::default();
        account.wake_by(&Waker::from(shed.clone()));
        H3Session {
            context: context.clone(),
            who: ClientInfo {
                audience: Audience::Public,
                peer,
                tls: Some("TLSv1.3"),
            },
            ends: Endpoints {
                client_port: Some(quic.remote_address().port()),
                server: quic.local_ip().map(|server| server.to_canonical()),
                server_port: None,
            },
            quic,
            identity,
            control: RefCell::default(),
            abuse_budget: RefCell::default(),
            account,
            waiting: RefCell::default(),
            shed,
            open: Cell::new(0),
            queued: Cell::new(0),
            widened: Cell::new(0),
            is_receiving_wide: Cell::new(false),
            moved_bytes: Cell::new(0),
            entry,
            idle_ms: Cell::new(context.clock.millis()),
            next_id: Cell::new(0),
            stage: Cell::new(H3ShutdownStage::Open),
            is_outdated: Cell::new(false),
            rested: Notify::new(),
        }
    }

    /// Returns the stage of the shutdown.
    pub(super) fn stage(&self) -> H3ShutdownStage {
        self.stage.get()
    }

    /// Asks the client for a new connection by GOAWAY.
    pub(super) fn end_use(&self) {
        self.is_outdated.set(true);
        self.rested.notify_one();
    }

    /// Returns true if no further request can succeed on the connection.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.get()
    }

    /// Continues the shutdown.
    pub(super) fn set_stage(&self, stage: H3ShutdownStage) {
        self.stage.set(stage);
    }

    /// Returns the stream number expected for the next request.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id.get()
    }

    /// Records the stream number of a request.
    pub(super) fn take_id(&self, id: u64) {
        self.next_id.set(self.next_id.get().max(id + 4));
    }

    /// Returns true if a request is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.open.get() > 0
    }

    /// Returns the time without a request.
    pub(super) fn silence(&self) -> Duration {
        Duration::from_millis(self.context.clock.millis() - self.idle_ms.get())
    }

    /// Records the activity of the connection in the ledgers of connections and of requests.
    pub(super) fn stand(&self) {
        let activity = match self.open.get() {
            0 => Activity::Idle(self.idle_ms.get()),
            _ => Activity::Busy(self.context.clock.millis()),
        };
        self.entry.set_activity(activity);
        self.account.stand(activity);
    }

    /// Records that a request moved `bytes` bytes, and whether the request now waits for its client.
    pub(super) fn note_moved(&self, bytes: usize, awaits_client: bool) {
        let now_ms = self.context.clock.millis();
        self.stand();
        self.moved_bytes.set(self.moved_bytes.get() + bytes as u64);
        self.account
            .note_moved_bytes(self.moved_bytes.get(), now_ms);
        if awaits_client && self.is_busy() {
            self.account.stand(Activity::AwaitsClient(now_ms));
        }
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
        let now_ms = self.context.clock.millis();
        Ok(self.abuse_budget.borrow_mut().spend(points, now_ms, what)?)
    }

    /// Charges the abuse budget for a part of a body that the client's windows cut off after `bytes`.
    pub(super) fn pay_for_part(&self, bytes: usize) -> Result<(), H3ConnectionError> {
        self.charge_abuse(
            wire::limits::WINDOW_UPDATE_POINTS,
            "windows opened byte by byte",
        )?;
        self.abuse_budget.borrow_mut().refund_sent_bytes(bytes);
        Ok(())
    }

    /// Refunds a part of the abuse budget for a complete response.
    pub(super) fn served(&self) {
        self.abuse_budget
            .borrow_mut()
            .refund(wire::limits::RESPONSE_POINTS);
    }

    /// Records the start of the longest stall among the waiting requests.
    pub(super) fn note_stalls(&self) {
        let waiting = self.waiting.borrow();
        let longest_ms = waiting.iter().map(|it| it.stalled_ms()).min();
        self.account.stalled_since(longest_ms.unwrap_or(u64::MAX));
    }

    /// Ends requests as ordered by the ledger.
    pub(super) fn end_shed(&self) {
        self.end_waiting(self.account.client(), self.account.take_shed());
        for (client, shed) in self.account.take_client_sheds() {
            self.end_waiting(client, shed);
        }
    }

    /// Ends requests of `client` to make room for other clients.
    fn end_waiting(&self, client: ClientNetwork, shed: ShedOrder) {
        let waiting = self.waiting.borrow();
        for _ in 0..shed.requests {
            let left = waiting.iter().filter(|it| it.may_be_shed_for(client));
            let Some(worst) = left.min_by_key(|it| it.stalled_ms()) else {
                return;
            };
            self.context.request_ledger.refused(SharedLimit::Streams, 1);
            worst.shed();
        }
        let mut bytes = shed.head_bytes;
        while bytes > 0 {
            let left = waiting.iter().filter(|it| it.may_be_shed_for(client));
            let Some(largest) = left.max_by_key(|it| it.head_bytes()) else {
                return;
            };
            self.context
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
            self.idle_ms.set(self.context.clock.millis());
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
            let bound = self.context.shared.pending_head_bytes_max;
            let mut windows = self.context.h3.windows.borrow_mut();
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
            let mut windows = self.context.h3.windows.borrow_mut();
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
        self.context.stats.deadlines.increment();
        self.close(
            H3ErrorCode::H3_NO_ERROR,
            "no acknowledgement before the deadline",
        );
    }

    /// Changes the number of bodies that wait for a place by `more`, which may be negative. Received bytes
    /// of waiting bodies don't use up the connection's receive window.
    pub(super) fn queue(&self, more: i32) {
        let queued = self.queued.get().saturating_add_signed(more);
        self.queued.set(queued);
        self.set_receive_window();
    }

    /// Returns true if the connection's receive window is wide.
    pub(super) fn is_receiving_wide(&self) -> bool {
        self.is_receiving_wide.get()
    }

    /// Sets whether the connection's receive window is wide.
    pub(super) fn receive_wide(&self, is_wide: bool) {
        self.is_receiving_wide.set(is_wide);
        self.set_receive_window();
    }

    fn set_receive_window(&self) {
        let window = if self.is_receiving_wide.get() {
            limits::H3_WIDE_CONNECTION_WINDOW_BYTES
        } else {
            limits::H3_CONNECTION_WINDOW_BYTES
        };
        let queued = self.queued.get();
        let more = queued.saturating_mul(limits::H3_STREAM_WINDOW_BYTES);
        self.quic
            .set_receive_window(window.saturating_add(more).into());
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
        self.context.stats.h3_errors.increment();
        let H3ConnectionError { code, reason } = fatal;
        log::debug!("{}: HTTP/3: {code:?}: {reason}", self.who.peer);
        self.close(code, reason);
    }

    pub(super) fn close(&self, code: H3ErrorCode, reason: &str) {
        self.quic.close(varint(code), reason.as_bytes());
    }

    pub(super) fn dispatch_context(&self) -> DispatchContext {
        DispatchContext {
            audience: Audience::Public,
            identity: Some(self.identity),
            peer: self.who.peer,
            secure: true,
            forwarded_by: None,
            endpoints: EndpointLookup::Known(self.ends),
            now_ms: self.context.clock.millis(),
            may_wait: false,
            rate: RateCheck::default(),
            has_disk_changes: self.context.poller.has_unread_changes(),
            hides_login: false,
        }
    }
}

impl Drop for H3Session {
    fn drop(&mut self) {
        self.narrow();
    }
}

/// Converts an error code to the integer type of QUIC.
pub(super) fn varint(code: H3ErrorCode) -> VarInt {
    VarInt::from_u32(code.0)
}

/// Polls a future once, for a result that is available without waiting.
pub(super) fn now<F: Future>(future: F) -> Poll<F::Output> {
    let mut noop = Context::from_waker(std::task::Waker::noop());
    pin!(future).poll(&mut noop)
}
