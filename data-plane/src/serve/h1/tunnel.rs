//! A tunnel on a connection of HTTP/1.1 after 101 (Switching Protocols): bytes flow in both directions,
//! each bounded by a pipe and by the socket.
//!
//! Either side may end its direction first. The other direction then goes on, and ends with its own end or
//! after a silence of `idle_seconds`.

use crate::handler::LocalBoxFuture;
use crate::handler::pipe::{PipeRead, PipeReader, PipeWriter};
use crate::limits;
use crate::serve::connection::{AfterResponse, Connection};
use crate::serve::connection_entry::Activity;
use crate::serve::connection_table::ConnectionPhase;
use crate::serve::h1::out_buffer::OutBuffer;
use crate::serve::stall::StallClock;
use base::coarse_timer::CoarseTimer;
use base::sys;
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// A tunnel between the client and a handler.
pub(super) struct H1Tunnel {
    /// Pipe to the handler; None if the handler takes no more bytes.
    writer: Option<PipeWriter>,
    /// Pipe from the handler; None after the end.
    reader: Option<PipeReader>,
    /// Future that moves the bytes beyond the pipes.
    work: Option<LocalBoxFuture<()>>,
    /// Bytes for the client, at first the head of the response.
    out: OutBuffer,
    /// Number of bytes from the handler.
    sent: u64,
    stall: StallClock,
    /// True if the client has ended its direction.
    client_ended: bool,
    /// True if the server has ended its direction of the connection.
    is_shut: bool,
    /// Time of the last byte in either direction, in milliseconds of the worker's clock.
    moved_ms: u64,
    /// Timer for the silence of a tunnel with one direction.
    timer: Option<CoarseTimer>,
    /// Bytes that may still be moved in the current turn of the connection.
    budget: usize,
}

/// Result of a look for bytes of the handler.
enum Gathered {
    /// Bytes to send, and perhaps more behind.
    More,
    /// No further bytes now.
    Nothing,
    /// End of the handler's direction.
    End,
    /// The handler broke the tunnel off.
    Broken,
}

impl H1Tunnel {
    /// Creates the tunnel. `out` holds the head of the response.
    pub(super) fn new(
        writer: PipeWriter,
        reader: PipeReader,
        work: LocalBoxFuture<()>,
        out: OutBuffer,
    ) -> H1Tunnel {
        H1Tunnel {
            writer: Some(writer),
            reader: Some(reader),
            work: Some(work),
            out,
            sent: 0,
            stall: StallClock::default(),
            client_ended: false,
            is_shut: false,
            moved_ms: 0,
            timer: None,
            budget: 0,
        }
    }

    /// Moves bytes until the end of the tunnel. Returns the number of bytes from the handler.
    pub(super) async fn run(mut self, connection: &mut Connection) -> (AfterResponse, u64) {
        connection.stream.socket.probe_silent_peer();
        self.moved_ms = connection.context.clock.millis();
        let after = poll_fn(|cx| self.poll(connection, cx)).await;
        (after, self.sent)
    }

    fn poll(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> Poll<AfterResponse> {
        connection.context.clock.tick();
        self.budget = limits::TURN_BYTES_MAX;
        if !self.poll_upload(connection, cx) {
            return Poll::Ready(AfterResponse::Close);
        }
        if let Poll::Ready(after) = self.poll_download(connection, cx) {
            return Poll::Ready(after);
        }
        self.set_phase(connection);
        match self.is_silent(connection, cx) {
            true if self.reader.is_none() => Poll::Ready(AfterResponse::Close),
            // The handler's direction is incomplete.
            true => Poll::Ready(AfterResponse::Reset),
            false => Poll::Pending,
        }
    }

    /// Takes `bytes` from the budget of the turn. Returns false at the end of the budget; the connection
    /// then has another turn after other connections.
    fn spend(&mut self, bytes: usize, cx: &mut Context<'_>) -> bool {
        self.budget = self.budget.saturating_sub(bytes);
        if self.budget == 0 {
            cx.waker().wake_by_ref();
        }
        self.budget > 0
    }

    /// Moves bytes of the client to the handler. Returns false if the connection is lost.
    fn poll_upload(&mut self, connection: &mut Connection, cx: &mut Context<'_>) -> bool {
        while !self.client_ended {
            let room = match self.writer.as_mut().map(|writer| writer.poll_room(cx)) {
                Some(Poll::Pending) => return true,
                Some(Poll::Ready(Ok(room))) => room,
                Some(Poll::Ready(Err(_))) => {
                    self.writer = None;
                    continue;
                }
                // Further bytes are discarded. Only reading shows the end of the client.
                None => limits::READ_BUFFER_BYTES,
            };
            match self.poll_read(connection, cx, room) {
                Poll::Pending => return true,
                Poll::Ready(Err(())) => return false,
                Poll::Ready(Ok(0)) => {
                    // The other direction may be silent from now on for as long as after a byte.
                    self.moved_ms = connection.context.clock.millis();
                    self.end_upload();
                }
                Poll::Ready(Ok(bytes)) => {
                    self.moved_ms = connection.context.clock.millis();
                    if !self.spend(bytes, cx) {
                        return true;
                    }
                }
            }
        }
        true
    }

    fn end_upload(&mut self) {
        self.client_ended = true;
        if let Some(writer) = &mut self.writer {
            writer.end();
        }
    }

    /// Passes at most `room` bytes of the client to the handler: the bytes received with the request, then
    /// bytes from the socket. Returns their number, 0 at the end of the client's direction. Fails if the
    /// connection is lost.
    fn poll_read(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
        room: usize,
    ) -> Poll<Result<usize, ()>> {
        if !connection.rest.is_empty() {
            let taken = room.min(connection.rest.len());
            let rest = connection.rest.split_off(taken);
            let bytes = std::mem::replace(&mut connection.rest, rest);
            self.give(&bytes);
            return Poll::Ready(Ok(taken));
        }
        let context = connection.context.clone();
        let mut scratch = context.scratch.borrow_mut();
        let max = room.min(scratch.len());
        match connection.stream.poll_fill(cx, &mut scratch[..max]) {
            Poll::Pending => Poll::Pending,
            // A deadline or an eviction shuts the socket down.
            Poll::Ready(Ok(0)) if context.expired(connection.slot).is_some() => {
                Poll::Ready(Err(()))
            }
            Poll::Ready(Ok(read)) => {
                context.stats.bytes_received.add(read as u64);
                self.give(&scratch[..read]);
                Poll::Ready(Ok(read))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(())),
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        if let Some(writer) = &mut self.writer {
            // The pipe has room for all bytes.
            let _ = writer.write_some(bytes);
        }
    }

    /// Moves bytes of the handler to the client; ready at the end of the tunnel.
    fn poll_download(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<AfterResponse> {
        loop {
            let gathered = self.gather(connection, cx);
            match self.out.poll_send(&mut connection.stream, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(false) => return Poll::Ready(AfterResponse::Close),
                Poll::Ready(true) => {}
            }
            match gathered {
                Gathered::More if self.spend(limits::UNSENT_BYTES_MAX / 2, cx) => {}
                Gathered::More | Gathered::Nothing => return Poll::Pending,
                Gathered::Broken => return Poll::Ready(AfterResponse::Reset),
                Gathered::End => return self.poll_end(connection, cx),
            }
        }
    }

    /// Appends bytes of the handler to `out`.
    fn gather(&mut self, connection: &Connection, cx: &mut Context<'_>) -> Gathered {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
        let Some(reader) = &mut self.reader else {
            return Gathered::End;
        };
        while self.out.unsent() <= limits::UNSENT_BYTES_MAX / 2 {
            match reader.poll_take(cx, &mut self.out.bytes, limits::UNSENT_BYTES_MAX / 2) {
                Poll::Pending => return Gathered::Nothing,
                Poll::Ready(Err(_)) => return Gathered::Broken,
                Poll::Ready(Ok(PipeRead::End)) => {
                    self.reader = None;
                    self.moved_ms = connection.context.clock.millis();
                    return Gathered::End;
                }
                Poll::Ready(Ok(PipeRead::Bytes(count))) => {
                    self.sent += count as u64;
                    self.moved_ms = connection.context.clock.millis();
                }
            }
        }
        Gathered::More
    }

    /// Ends the server's direction of the connection, after all bytes of the handler were sent. Ready if
    /// the other direction is over as well.
    fn poll_end(
        &mut self,
        connection: &mut Connection,
        cx: &mut Context<'_>,
    ) -> Poll<AfterResponse> {
        if self.writer.as_mut().is_none_or(|it| is_broken(it, cx)) {
            self.writer = None;
            return Poll::Ready(if self.client_ended {
                AfterResponse::Close
            } else {
                // The client may still be sending.
                AfterResponse::Linger
            });
        }
        if !self.is_shut {
            connection.stream.close_notify(cx);
            if connection.stream.has_unsent() {
                return Poll::Pending;
            }
            self.is_shut = true;
            let _ = sys::shutdown_write(connection.stream.socket.as_fd());
        }
        let is_taken = self.writer.as_mut().is_none_or(|it| it.held(cx) == Ok(0));
        if self.client_ended && self.work.is_none() && is_taken {
            Poll::Ready(AfterResponse::Close)
        } else {
            Poll::Pending
        }
    }

    /// Sets the deadline of the connection: a client that takes no bytes is late, while silence is allowed.
    fn set_phase(&mut self, connection: &Connection) {
        // A silent tunnel holds no buffer.
        self.out.release();
        let context = &connection.context;
        let has_unsent_bytes = !self.out.is_empty() || connection.stream.has_unsent();
        let now_ms = context.clock.millis();
        let begins = self.stall.note(has_unsent_bytes, self.out.taken, now_ms);
        match has_unsent_bytes {
            true if begins => context.phase(connection.slot, ConnectionPhase::Write),
            true => {}
            false => {
                context.phase(connection.slot, ConnectionPhase::Busy);
                context.set_activity(connection.slot, Activity::Busy(self.moved_ms));
            }
        }
    }

    /// Returns true if only one direction is left, and silent for too long.
    fn is_silent(&mut self, connection: &Connection, cx: &mut Context<'_>) -> bool {
        if !self.client_ended && self.reader.is_some() {
            return false;
        }
        let context = &connection.context;
        let idle_seconds = context.world().limits.idle_seconds;
        let due_ms = self.moved_ms + u64::from(idle_seconds) * 1_000;
        let left_ms = due_ms.saturating_sub(context.clock.millis());
        let deadline = Instant::now() + Duration::from_millis(left_ms);
        match &mut self.timer {
            Some(timer) => timer.set(deadline, cx.waker()),
            None => self.timer = Some(CoarseTimer::new(deadline, cx.waker())),
        }
        left_ms == 0
    }
}

/// Returns true if the handler takes no more bytes.
fn is_broken(writer: &mut PipeWriter, cx: &mut Context<'_>) -> bool {
    matches!(writer.poll_room(cx), Poll::Ready(Err(_)))
}
