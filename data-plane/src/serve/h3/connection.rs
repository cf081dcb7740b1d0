//! The task of an HTTP/3 connection, from the handshake to the end: accepts streams, and sends GOAWAY when
//! the client has to leave.

use crate::handler::LocalBoxFuture;
use crate::ledger::stats::ClosedCount;
use crate::serve::connection_entry::ConnectionEntry;
use crate::serve::context::WorkerContext;
use crate::serve::h3::connection_guard::H3ConnectionGuard;
use crate::serve::h3::exchange::H3Exchange;
use crate::serve::h3::session::{H3Session, H3ShutdownStage, varint};
use crate::serve::rare_events;
use crate::tls;
use base::task::{spawn_boxed, spawn_local};
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connecting, ConnectionError, RecvStream, SendStream, TransportErrorCode, VarInt};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, timeout};
use wire::h3::{H3ConnectionError, H3ErrorCode, UnidirectionalStream, frame};

/// TLS alert for a server name without a certificate (RFC 8446 §6.2).
const ACCESS_DENIED: u8 = 49;

/// Counts a failed handshake, and logs a name that no site has.
#[cold]
pub(super) fn count_failed_handshake(
    context: &WorkerContext,
    peer: IpAddr,
    error: &ConnectionError,
) {
    context.stats.handshakes_failed.increment();
    if let ConnectionError::TransportError(error) = error
        && error.code == TransportErrorCode::crypto(ACCESS_DENIED)
    {
        rare_events::log_unknown_name(context, peer, None, None);
    }
}

/// Serves a connection from the handshake on.
pub(super) async fn run(
    connecting: Connecting,
    mut place: H3ConnectionGuard,
    entry: Arc<ConnectionEntry>,
    peer: IpAddr,
) {
    let context = place.context.clone();
    let seconds = context.world().limits.handshake_seconds;
    let handshake = tokio::select! {
        biased;
        () = entry.evicted() => return context.count_eviction(),
        handshake = timeout(Duration::from_secs(seconds.into()), connecting) => handshake,
    };
    context.clock.tick();
    let quic = match handshake {
        Ok(Ok(quic)) => quic,
        Ok(Err(error)) => return count_failed_handshake(&context, peer, &error),
        Err(_) => {
            context.stats.deadlines.increment();
            return context.stats.handshakes_failed.increment();
        }
    };
    place.prove();
    if tls::was_ticket_opened() {
        context.stats.handshakes_resumed.increment();
    } else {
        context.stats.handshakes_full.increment();
    }
    let stats = Arc::clone(&context.stats);
    stats.h3_connections.increment();
    let _closed = ClosedCount(&stats.h3_connections_closed);
    let data = quic.handshake_data();
    let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
    let name = data.and_then(|data| data.server_name);
    let world = context.world();
    let Some(tls) = &world.tls else { return };
    let Some(identity) = tls.identity_over_quic(name.as_deref()) else {
        return;
    };
    let session = Rc::new(H3Session::new(&context, quic, identity, entry, peer));
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
                () = self.context.h3.told.notified() => H3SessionEvent::Told,
                () = self.rested.notified() => H3SessionEvent::Rested,
                () = self.shed.woken() => H3SessionEvent::Shed,
                () = timer.as_mut() => H3SessionEvent::Time,
            };
            let is_used = self.is_busy() || matches!(news, H3SessionEvent::Request(..));
            match news {
                H3SessionEvent::Request(send, recv) => self.request(send, recv),
                H3SessionEvent::OneWay(recv) => spawn_local(self.clone().listen(recv)),
                H3SessionEvent::Told | H3SessionEvent::Rested => {}
                H3SessionEvent::Shed => self.end_shed(),
                H3SessionEvent::Time => self.time(timer.as_mut(), control).await,
                H3SessionEvent::Gone => return,
            }
            if self.must_leave(is_used) && self.stage() == H3ShutdownStage::Open {
                self.set_stage(H3ShutdownStage::Leaving);
                self.goaway(control, LAST_ID).await;
                let way = self.quic.rtt() * LEAVE_ROUND_TRIPS;
                timer.set(sleep(way.clamp(LEAVE_MIN, LEAVE_MAX)));
            }
            if matches!(self.stage(), H3ShutdownStage::Left(_)) && !self.is_busy() {
                return self.close(H3ErrorCode::H3_NO_ERROR, "");
            }
        }
    }

    /// Opens the server's control stream and sends SETTINGS. Returns `None` if the client doesn't allow the
    /// stream.
    async fn open_control(&self) -> Option<SendStream> {
        let world = self.context.world();
        let seconds = world.limits.head_seconds;
        let mut opening = Vec::new();
        frame::push_opening(world.limits.head.head_bytes, &mut opening);
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
                "the client allows no control stream",
            ));
        }
        control
    }

    /// Handles the end of the timer, set for the idle time or for the pause between two GOAWAYs.
    async fn time(&self, mut timer: Pin<&mut Sleep>, control: &mut SendStream) {
        self.context.clock.tick();
        if self.stage() == H3ShutdownStage::Leaving {
            self.set_stage(H3ShutdownStage::Left(self.next_id()));
            self.goaway(control, self.next_id()).await;
            return timer.set(sleep(NO_TIMEOUT));
        }
        let idle = self.idle_seconds();
        let silent = self.silence();
        if self.is_busy() || silent < idle {
            // A new request does not reset the timer. At the end of the timer, the timer is set to the rest
            // of the idle time.
            let left = if self.is_busy() { idle } else { idle - silent };
            return timer.as_mut().reset(Instant::now() + left);
        }
        self.set_stage(H3ShutdownStage::Left(self.next_id()));
        self.goaway(control, self.next_id()).await;
    }

    /// Closes the connection in favour of another connection. The client of an idle connection first gets a
    /// GOAWAY, and a moment to learn which requests are not answered. Requests that arrive meanwhile are
    /// not taken.
    async fn give_up(&self, control: Option<&mut SendStream>) {
        self.context.count_eviction();
        if self.is_busy() {
            return self.close(H3ErrorCode::H3_EXCESSIVE_LOAD, "");
        }
        if let Some(control) = control {
            let _ = timeout(LEAVE_MIN, self.goaway(control, self.next_id())).await;
            sleep(LEAVE_MIN).await;
        }
        self.close(H3ErrorCode::H3_NO_ERROR, "");
    }

    /// Sends GOAWAY: no request from stream number `id` on is answered.
    async fn goaway(&self, control: &mut SendStream, id: u64) {
        let mut bytes = Vec::new();
        frame::push_goaway(id, &mut bytes);
        // A client that doesn't read the control stream must not delay the connection.
        let _ = timeout(LEAVE_MAX, control.write_all(&bytes)).await;
    }

    /// Returns true if the client has to leave. While another process serves in place of this one, a connection without a
    /// request ends with its next request; `is_used` is true from then on.
    fn must_leave(&self, is_used: bool) -> bool {
        let context = &self.context;
        let is_over = context.is_draining() && (is_used || context.ends_idle());
        is_over || context.world().h3_port.is_none() || self.is_outdated()
    }

    fn idle_seconds(&self) -> Duration {
        let seconds = self.context.world().limits.idle_seconds;
        Duration::from_secs(seconds.max(1).into())
    }

    /// Handles a new request stream: answers at once where possible, else in a task of its own.
    fn request(self: &Rc<Self>, send: SendStream, recv: RecvStream) {
        self.context.clock.tick();
        let id = u64::from(VarInt::from(send.id()));
        self.take_id(id);
        let exchange = H3Exchange::new(self.clone(), send, recv);
        let is_late = matches!(self.stage(), H3ShutdownStage::Left(from) if id >= from);
        if is_late {
            return exchange.reject();
        }
        let mut running: LocalBoxFuture<()> = Box::pin(exchange.run());
        let mut noop = Context::from_waker(Waker::noop());
        if running.as_mut().poll(&mut noop).is_pending() {
            spawn_boxed(running);
        }
    }

    /// Reads a unidirectional stream until the end of the stream.
    async fn listen(self: Rc<Self>, mut recv: RecvStream) {
        let mut inbound = UnidirectionalStream::default();
        loop {
            let read = recv
                .read_chunk(wire::limits::H3_CONTROL_FRAME_BYTES_MAX, true)
                .await;
            let heard = match read {
                Ok(Some(chunk)) => {
                    self.context.clock.tick();
                    let heard = inbound.receive(&mut self.control.borrow_mut(), &chunk.bytes);
                    let idle = inbound.take_idle_frames();
                    heard.and_then(|goes_on| {
                        self.charge_abuse(
                            idle * wire::limits::UNKNOWN_FRAME_POINTS,
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
            .charge_abuse(wire::limits::RESET_POINTS, "a flood of unknown streams")
            .map_err(|fatal| self.fatal(fatal));
    }
}

/// Round trips between the first and the last GOAWAY. A client must have time to receive the first:
/// requests sent before are answered. The pause is at least [`LEAVE_MIN`] and at most [`LEAVE_MAX`].
const LEAVE_ROUND_TRIPS: u32 = 4;
const LEAVE_MIN: Duration = Duration::from_millis(50);
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Stream number in the first GOAWAY: the largest possible number of a request stream.
const LAST_ID: u64 = frame::INTEGER_MAX - 3;

/// Duration of a timer that is no longer needed.
const NO_TIMEOUT: Duration = Duration::from_secs(1 << 30);
