//! Deadlines of an HTTP/2 connection. The connection has one timer, set to the earliest of all deadlines.
//! After a deadline, the late part is ended: only the stream where possible, else the connection.

use crate::limits::Limits;
use crate::serve::connection::AfterResponse;
use crate::serve::connection_entry::Activity;
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h2::exchange::{H2Exchange, H2ExchangeState};
use crate::serve::h2::session::{H2Session, H2ShutdownStage, IDLE};
use std::task::Context;
use wire::h2::stream::{H2Stream, RemoteState};
use wire::h2::{H2ConnectionError, H2ErrorCode};
use wire::reject::Reject;

/// Time for which the server waits for the peer to receive GOAWAY, in milliseconds.
const LEAVE_MS: u64 = 1_000;

impl H2Session<'_> {
    /// Sets the timer to the earliest deadline, and records the activity of the connection.
    pub(super) fn set_deadline(&mut self, cx: &mut Context<'_>) {
        let world = self.context.world();
        let is_answered = self.note_stalls(cx);
        let (at_ms, phase) = self.next_deadline(&world.limits);
        let standing = if is_answered && self.socket_stall.since_ms().is_none() {
            Activity::Idle(self.idle_ms)
        } else {
            let awaits_client = matches!(phase, ConnectionPhase::Body | ConnectionPhase::Write);
            let now_ms = self.context.clock.millis();
            let moved = self.moved();
            let activity = self.progress.note(awaits_client, moved, now_ms);
            self.account.stand(activity);
            let moved_bytes = self.body_bytes + self.received_bytes;
            self.account.note_moved_bytes(moved_bytes, now_ms);
            activity
        };
        self.context
            .wake_at(self.connection.slot, phase, at_ms, standing, cx.waker());
    }

    /// Ends the connection in favour of another connection: with GOAWAY where the connection is idle, else
    /// at once.
    pub(super) fn give_up(&mut self) {
        if self.h2.open() > 0 || self.socket_stall.since_ms().is_some() {
            self.is_dead = true;
        } else if !matches!(self.stage, H2ShutdownStage::Over(_)) {
            self.h2.goaway(H2ErrorCode::NO_ERROR, "");
            self.stage = H2ShutdownStage::Over(AfterResponse::Close);
        }
    }

    /// Returns a number that changes when a request begins, or when a part of a body moves.
    fn moved(&mut self) -> u64 {
        let of_stream = |stream: &H2Stream<Box<H2Exchange>>| {
            let seen = match &stream.work.state {
                H2ExchangeState::Call(call) => call.seen,
                _ => 0,
            };
            u64::from(stream.id) + seen
        };
        self.body_bytes + self.h2.streams().iter().map(of_stream).sum::<u64>()
    }

    /// Records the responses that wait only for the client. Returns true if every request has its complete response,
    /// so that the connection may give way to others.
    fn note_stalls(&mut self, cx: &mut Context<'_>) -> bool {
        if self.h2.open() == 0 {
            return true;
        }
        let now_ms = self.context.clock.millis();
        let is_shut = self.h2.is_blocked();
        let (mut is_any_ready, mut longest_ms) = (false, u64::MAX);
        let mut is_answered = true;
        for stream in self.h2.streams() {
            is_answered &= matches!(stream.work.state, H2ExchangeState::Drain(_));
            is_any_ready |= stream.ready;
            let is_held = stream.is_blocked() || (is_shut && stream.ready);
            // A wait for the disk is not the client's fault, and is no progress of the client either.
            if !matches!(stream.work.state, H2ExchangeState::Disk(..)) {
                stream.work.stall.note(is_held, stream.sent, now_ms);
            }
            longest_ms = longest_ms.min(stream.work.stall.since_ms().unwrap_or(u64::MAX));
        }
        self.window_stall
            .note(is_shut && is_any_ready, self.body_bytes, now_ms);
        self.account.stalled_since(longest_ms);
        self.account.wake_by(cx.waker());
        is_answered
    }

    fn next_deadline(&mut self, limits: &Limits) -> (u64, ConnectionPhase) {
        let after = |since_ms: u64, seconds: u32| since_ms + u64::from(seconds) * 1_000;
        if let Some(since_ms) = self.socket_stall.since_ms() {
            return match self.stage {
                // A client that doesn't even take the last bytes of the connection is cut off soon.
                H2ShutdownStage::Over(_) => (since_ms + LEAVE_MS, ConnectionPhase::Write),
                _ => (
                    after(since_ms, limits.write_stall_seconds),
                    ConnectionPhase::Write,
                ),
            };
        }
        let mut next = IDLE;
        let mut sooner = |at_ms, phase| {
            if at_ms < next.0 {
                next = (at_ms, phase);
            }
        };
        if let H2ShutdownStage::Leaving(since_ms) = self.stage {
            sooner(since_ms + LEAVE_MS, ConnectionPhase::Idle);
        }
        if let Some(since_ms) = self.begun_ms {
            sooner(after(since_ms, limits.head_seconds), ConnectionPhase::Head);
        }
        if self.h2.open() == 0 {
            sooner(
                after(self.idle_ms, limits.idle_seconds),
                ConnectionPhase::Idle,
            );
            return next;
        }
        if let Some(since_ms) = self.window_stall.since_ms() {
            sooner(
                after(since_ms, limits.write_stall_seconds),
                ConnectionPhase::Write,
            );
        }
        let unfinished = self.h2.unfinished_data();
        for stream in self.h2.streams() {
            if let Some(since_ms) = stalled_since(stream) {
                sooner(
                    after(since_ms, limits.write_stall_seconds),
                    ConnectionPhase::Write,
                );
            }
            let due_ms = body_due(stream, unfinished, limits).or(tunnel_due(stream, limits));
            if let Some(at_ms) = due_ms {
                sooner(at_ms, ConnectionPhase::Body);
            }
        }
        next
    }

    /// Ends streams, or the connection, past their deadlines.
    pub(super) fn enforce_deadlines(&mut self) {
        let world = self.context.world();
        let limits = &world.limits;
        let now_ms = self.context.clock.millis();
        let is_over = |since_ms: u64, seconds: u32| now_ms >= since_ms + u64::from(seconds) * 1_000;
        if let Some(since_ms) = self.socket_stall.since_ms() {
            let is_last =
                matches!(self.stage, H2ShutdownStage::Over(_)) && now_ms >= since_ms + LEAVE_MS;
            let is_late = is_over(since_ms, limits.write_stall_seconds);
            if !is_last && is_late && self.context.is_client_progressing(self.connection.slot) {
                self.socket_stall.restart(now_ms);
            } else if is_last || is_late {
                // Nothing more can be sent to the peer.
                self.is_dead = true;
            }
            return;
        }
        if let H2ShutdownStage::Leaving(since_ms) = self.stage
            && now_ms >= since_ms + LEAVE_MS
        {
            self.leave();
        }
        if self
            .begun_ms
            .is_some_and(|since_ms| is_over(since_ms, limits.head_seconds))
        {
            return self.fatal(if self.h2.is_greeted() {
                H2ConnectionError::enhance_your_calm(
                    "a frame or header block was incomplete at the deadline",
                )
            } else {
                H2ConnectionError::new(
                    H2ErrorCode::SETTINGS_TIMEOUT,
                    "no SETTINGS before the deadline",
                )
            });
        }
        if self.h2.open() == 0 {
            if is_over(self.idle_ms, limits.idle_seconds) && self.stage == H2ShutdownStage::Open {
                self.leave();
            }
            return;
        }
        self.end_stalled(limits, now_ms);
        self.end_slow_bodies(limits, now_ms);
        self.end_silent_tunnels(limits, now_ms);
    }

    /// Resets streams with responses stalled by the client for too long.
    fn end_stalled(&mut self, limits: &Limits, now_ms: u64) {
        let stall_ms = u64::from(limits.write_stall_seconds) * 1_000;
        let is_over = |since_ms: Option<u64>| since_ms.is_some_and(|it| now_ms >= it + stall_ms);
        if is_over(self.window_stall.since_ms()) {
            // No stream could make progress.
            return self.fatal(H2ConnectionError::enhance_your_calm(
                "no window for the connection before the deadline",
            ));
        }
        let streams = self.h2.streams().iter();
        let stalled: Vec<u32> = streams
            .filter(|it| is_over(stalled_since(it)))
            .map(|it| it.id)
            .collect();
        for id in stalled {
            self.break_off(id, H2ErrorCode::CANCEL);
        }
    }

    /// Ends tunnels with only one direction left, and without bytes in that direction for too long.
    fn end_silent_tunnels(&mut self, limits: &Limits, now_ms: u64) {
        let streams = self.h2.streams().iter();
        let is_due = |at_ms: u64| now_ms >= at_ms;
        let silent: Vec<_> = streams
            .filter(|it| tunnel_due(it, limits).is_some_and(is_due))
            .map(|it| (it.id, it.work.is_answered()))
            .collect();
        for (id, is_answered) in silent {
            if is_answered {
                self.finish(id)
            } else {
                self.break_off(id, H2ErrorCode::CANCEL)
            }
        }
    }

    /// Ends requests with bodies that arrive too slowly.
    fn end_slow_bodies(&mut self, limits: &Limits, now_ms: u64) {
        let unfinished = self.h2.unfinished_data();
        let streams = self.h2.streams().iter();
        let slow: Vec<u32> = streams
            .filter(|it| body_due(it, unfinished, limits).is_some_and(|at_ms| now_ms >= at_ms))
            .map(|it| it.id)
            .collect();
        for id in slow {
            let state = self.h2.stream(id).map(|it| &mut it.work.state);
            match state {
                Some(H2ExchangeState::Drain(_)) => self.end_drain(id),
                _ => self.cut_call(id, Reject::BODY_SLOW),
            }
        }
    }
}

/// Returns the deadline of a tunnel with only one direction left.
fn tunnel_due(stream: &H2Stream<Box<H2Exchange>>, limits: &Limits) -> Option<u64> {
    let H2ExchangeState::Call(call) = &stream.work.state else {
        return None;
    };
    let tunnel = call.tunnel.as_ref().filter(|tunnel| tunnel.is_open())?;
    let is_half = call.is_download_over() || stream.remote == RemoteState::Ended;
    is_half.then(|| tunnel.silence_due_ms(limits))
}

/// Returns when a response began to make too little progress because of the window of its own stream. A
/// stall by the window of the connection is timed for all streams together.
fn stalled_since(stream: &H2Stream<Box<H2Exchange>>) -> Option<u64> {
    let is_held = stream.is_blocked();
    stream.work.stall.since_ms().filter(|_| is_held)
}

/// Returns the deadline of a body that the peer still has to send. `unfinished` is the stream with an
/// incomplete DATA frame.
fn body_due(
    stream: &H2Stream<Box<H2Exchange>>,
    unfinished: Option<u32>,
    limits: &Limits,
) -> Option<u64> {
    if stream.remote == RemoteState::Ended && unfinished != Some(stream.id) {
        return None;
    }
    match &stream.work.state {
        H2ExchangeState::Drain(linger) => Some(linger.due_ms()),
        // A body that the handler doesn't want yet is not late, and a tunnel may be silent.
        H2ExchangeState::Call(call) if call.is_body_held() || call.tunnel.is_some() => None,
        H2ExchangeState::Call(call) if call.upload.is_some() && call.held == 0 => {
            Some(call.rate.due_ms(call.seen, call.patience(), limits))
        }
        _ => None,
    }
}
