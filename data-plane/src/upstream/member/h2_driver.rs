//! Task of an HTTP/2 connection to a member: moves the bytes between the socket and the protocol state, and ends
//! the connection.

use crate::ledger::descriptors::descriptors;
use crate::limits::{
    H2_MEMBER_KEPT_BUFFER_BYTES, H2_MEMBER_TURNS_MAX, H2_MEMBER_UNSENT_BYTES_MAX,
    MEMBER_IDLE_SWEEP_MILLISECONDS,
};
use crate::upstream::member::conn::MemberConn;
use crate::upstream::member::h2_conn::{H2MemberConn, NotHttp2};
use crate::upstream::member::h2_mailbox::{H2Failure, Mailbox};
use crate::upstream::member::pool::{IdleH2Ticket, MemberPool};
use crate::upstream::member::socket::with_receive_buffer;
use base::clock::monotonic_ms;
use base::coarse_timer::CoarseTimer;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use wire::field_section::FieldSection;
use wire::h2::hpack::HpackScratch;
use wire::h2::{H2ClientEvent, H2ConnectionError, H2ErrorCode};
use wire::limits::HeadLimits;
use wire::limits::{PROXY_FIELDS_MAX, PROXY_HEAD_BYTES_MAX};

thread_local! {
    /// Buffers for decoding field blocks, shared by all connections of a worker.
    static DECODING: RefCell<Decoding> = RefCell::new(Decoding::new());
}

struct Decoding {
    section: FieldSection,
    strings: HpackScratch,
    /// Bounds of a response's head.
    limits: HeadLimits,
}

impl Decoding {
    fn new() -> Decoding {
        Decoding {
            section: FieldSection::default(),
            strings: HpackScratch::default(),
            limits: HeadLimits {
                head_bytes: PROXY_HEAD_BYTES_MAX,
                fields: PROXY_FIELDS_MAX,
                ..HeadLimits::default()
            },
        }
    }
}

/// Future of a connection, until the end of the connection.
pub(super) struct H2Driver {
    conn: MemberConn,
    shared: H2MemberConn,
    pool: Arc<MemberPool>,
    /// Bytes for the member; the bytes before `sent` are sent.
    sending: Vec<u8>,
    sent: usize,
    /// Received beginning of an incomplete frame.
    rest: Vec<u8>,
    timer: Option<CoarseTimer>,
    /// Entry among the idle connections, and the beginning of the time without a request.
    idle: Option<(IdleH2Ticket, Instant)>,
}

/// Reason for the end of a connection.
enum ConnectionEnd {
    /// The connection is no longer needed.
    Unneeded,
    /// The member closed the connection, or the connection broke.
    Left(Option<io::Error>),
    /// The member broke the protocol.
    Protocol(H2ConnectionError),
}

impl H2Driver {
    /// Returns the task of the established connection `conn`.
    pub(super) fn new(conn: MemberConn, shared: H2MemberConn, pool: Arc<MemberPool>) -> H2Driver {
        H2Driver {
            conn,
            shared,
            pool,
            sending: Vec::new(),
            sent: 0,
            rest: Vec::new(),
            timer: None,
            idle: None,
        }
    }

    /// Moves bytes until both directions wait. Ready at the end of the connection.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        for _ in 0..H2_MEMBER_TURNS_MAX {
            let written = match self.poll_send(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(self.broken(error)),
                polled => polled.is_ready(),
            };
            self.shared.0.borrow_mut().wake_unblocked();
            // Answers to further frames would grow without bound while the member reads nothing.
            if self.unsent() >= 2 * H2_MEMBER_UNSENT_BYTES_MAX {
                return self.poll_timers(cx, written);
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(ConnectionEnd::Left(None)),
                Poll::Ready(Err(end)) => return Poll::Ready(end),
                Poll::Pending if self.has_output() && written => {}
                Poll::Pending => return self.poll_timers(cx, written),
            }
        }
        // Lets other connections run.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// A member may send a response or GOAWAY and close the connection, before this endpoint has read.
    fn broken(&mut self, error: io::Error) -> ConnectionEnd {
        let mut noop = Context::from_waker(std::task::Waker::noop());
        loop {
            match self.poll_receive(&mut noop) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Err(end @ ConnectionEnd::Protocol(_))) => return end,
                _ => return ConnectionEnd::Left(Some(error)),
            }
        }
    }

    fn unsent(&self) -> usize {
        self.sending.len() - self.sent + self.shared.0.borrow().h2.out.len()
    }

    fn has_output(&self) -> bool {
        !self.shared.0.borrow().h2.out.is_empty()
    }

    /// Sends all output. Ready once nothing waits.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.sent < self.sending.len() {
                let written = ready!(self.conn.poll_write(cx, &self.sending[self.sent..]))?;
                self.sent += written;
                self.timer = None;
            }
            self.sending.clear();
            self.sent = 0;
            let mut state = self.shared.0.borrow_mut();
            if state.h2.out.is_empty() {
                drop(state);
                return self.conn.poll_flush(cx);
            }
            std::mem::swap(&mut self.sending, &mut state.h2.out);
        }
    }

    /// Receives once. Ready with false at the end of the connection.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, ConnectionEnd>> {
        with_receive_buffer(|buffer| {
            let kept = self.rest.len();
            buffer[..kept].copy_from_slice(&self.rest);
            let read = match ready!(self.conn.poll_read(cx, &mut buffer[kept..])) {
                Ok(0) => return Poll::Ready(Ok(false)),
                Ok(read) => read,
                Err(error) => return Poll::Ready(Err(ConnectionEnd::Left(Some(error)))),
            };
            let taken = self.take(&buffer[..kept + read]);
            Poll::Ready(taken.map(|()| true).map_err(ConnectionEnd::Protocol))
        })
    }

    /// Handles the frames in `bytes`, and keeps the rest.
    fn take(&mut self, bytes: &[u8]) -> Result<(), H2ConnectionError> {
        let now_ms = monotonic_ms();
        let mut state = self.shared.0.borrow_mut();
        let state = &mut *state;
        let mut input = bytes;
        DECODING.with_borrow_mut(|decoding| {
            loop {
                let Decoding {
                    section,
                    strings,
                    limits,
                } = decoding;
                let received = state
                    .h2
                    .receive(&mut input, section, strings, limits, now_ms);
                match received? {
                    H2ClientEvent::More => return Ok::<(), H2ConnectionError>(()),
                    H2ClientEvent::Handled => {}
                    H2ClientEvent::Interim { work } => {
                        work.push_head(std::mem::take(section), false);
                    }
                    H2ClientEvent::Response { work, ended } => {
                        state.answers += 1;
                        work.push_head(std::mem::take(section), ended);
                    }
                    H2ClientEvent::Data { work, bytes, ended } => {
                        // The window of the stream alone bounds unread content, so that a slow client holds
                        // up no other response.
                        state.h2.release_connection_capacity(bytes.len() as u32);
                        work.push_content(bytes, ended);
                    }
                    H2ClientEvent::Trailers { work } => work.end(section.trailers()),
                    H2ClientEvent::Failed { work, failure } => work.fail(failure.into()),
                }
                while let Some(mailbox) = state.h2.take_unprocessed() {
                    mailbox.fail(H2Failure::Refused);
                }
            }
        })?;
        self.rest = input.to_vec();
        state.record_arrival();
        Ok(())
    }

    /// Waits with a deadline for the current state: without a request the idle timeout, and while the member
    /// takes no bytes the silence timeout.
    fn poll_timers(&mut self, cx: &mut Context<'_>, is_written: bool) -> Poll<ConnectionEnd> {
        if self.shared.0.borrow().h2.open() > 0 {
            if !self.end_idle()
                && let Some(usage) = &self.shared.0.borrow().usage
            {
                // A request began while the connection was given up.
                let usage = Arc::clone(usage);
                self.conn.hold(descriptors().enter_member_again(usage));
            }
            self.conn.release_absent_client();
        } else if is_written {
            return self.poll_idle(cx);
        }
        if is_written {
            self.timer = None;
            self.free_long_buffers();
            return Poll::Pending;
        }
        let timeout = self.pool.settings.silence_timeout;
        ready!(self.poll_timer(cx, timeout));
        Poll::Ready(ConnectionEnd::Left(Some(io::ErrorKind::TimedOut.into())))
    }

    /// Frees the empty buffers of an upload. The upload may wait long for a window of the member.
    fn free_long_buffers(&mut self) {
        let mut state = self.shared.0.borrow_mut();
        for buffer in [&mut self.sending, &mut state.h2.out] {
            if buffer.is_empty() && buffer.capacity() > H2_MEMBER_KEPT_BUFFER_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    /// Waits without a request. Ready once the connection is no longer needed.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let mut state = self.shared.0.borrow_mut();
        if state.awaits_greeting {
            return Poll::Pending;
        }
        let leads_to_member = self.pool.leads_to(&mut state.origin);
        let is_needed = leads_to_member && !state.is_retired && !state.h2.is_going_away();
        // An idle connection holds no buffers.
        state.h2.shrink();
        state.h2.out = Vec::new();
        self.sending = Vec::new();
        drop(state);
        if self.idle.is_none() && is_needed {
            let ticket = self.pool.enter_idle_h2(&mut self.conn, cx.waker());
            self.idle = ticket.map(|ticket| (ticket, Instant::now()));
            self.timer = None;
        }
        let is_kept = |(ticket, since): &(IdleH2Ticket, Instant)| {
            since.elapsed() < self.pool.settings.idle_timeout && self.pool.keeps_idle_h2(ticket)
        };
        if !is_needed || self.pool.is_closed() || !self.idle.as_ref().is_some_and(is_kept) {
            return Poll::Ready(ConnectionEnd::Unneeded);
        }
        let pause = Duration::from_millis(MEMBER_IDLE_SWEEP_MILLISECONDS);
        if self.poll_timer(cx, pause).is_ready() {
            self.timer = None;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Records that the connection is in use, or closed. Returns false if the idle connection has been given up for
    /// want of descriptors.
    fn end_idle(&mut self) -> bool {
        let Some((ticket, _)) = self.idle.take() else {
            return true;
        };
        self.timer = None;
        self.pool.leave_idle_h2(&ticket, &mut self.conn)
    }

    /// Ready if `timeout` has passed since the first call of the current wait.
    fn poll_timer(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        let new = || CoarseTimer::new(Instant::now() + timeout, cx.waker());
        if self.timer.get_or_insert_with(new).has_passed() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Ends the connection: tells the member the reason, and each request its failure.
    fn finish(&mut self, end: ConnectionEnd, cx: &mut Context<'_>) {
        self.end_idle();
        let (code, reason) = match &end {
            ConnectionEnd::Protocol(error) => (error.code, error.reason),
            _ => (H2ErrorCode::NO_ERROR, ""),
        };
        self.shared.0.borrow_mut().h2.close(code, reason);
        if !matches!(end, ConnectionEnd::Left(_)) {
            // The connection does not wait until the member has taken the last bytes.
            let _ = self.poll_send(cx);
        }
        let mut state = self.shared.0.borrow_mut();
        state.has_ended = true;
        let is_reused = state.answers > 0;
        if !state.h2.is_greeted() {
            state.failure = Some(greeting_failure(end));
            return state.wake_waiting();
        }
        state.wake_waiting();
        let mut streams = Vec::new();
        while let Some(mailbox) = state.h2.take_stream() {
            streams.push(mailbox);
        }
        state.blocked = Vec::new();
        state.h2.out = Vec::new();
        drop(state);
        let mut source = match end {
            ConnectionEnd::Left(source) => source,
            ConnectionEnd::Protocol(error) => {
                return fail(&streams, || H2Failure::Protocol(error));
            }
            ConnectionEnd::Unneeded => None,
        };
        fail(&streams, || H2Failure::Left {
            source: source.take(),
            is_reused,
        });
    }
}

/// Returns the failure of a connection that ended before SETTINGS of the member.
fn greeting_failure(end: ConnectionEnd) -> io::Error {
    match end {
        ConnectionEnd::Left(Some(error)) => error,
        ConnectionEnd::Left(None) | ConnectionEnd::Unneeded => {
            let what = "the member closed the connection before SETTINGS of HTTP/2";
            io::Error::new(io::ErrorKind::UnexpectedEof, what)
        }
        ConnectionEnd::Protocol(_) => io::Error::new(io::ErrorKind::InvalidData, NotHttp2),
    }
}

fn fail(streams: &[Rc<Mailbox>], mut failure: impl FnMut() -> H2Failure) {
    streams.iter().for_each(|mailbox| mailbox.fail(failure()));
}

impl Future for H2Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.shared.0.borrow_mut().task = Some(cx.waker().clone());
        let end = ready!(self.poll_end(cx));
        self.finish(end, cx);
        Poll::Ready(())
    }
}

impl Drop for H2Driver {
    /// Ends the requests if the task itself is dropped, at the end of the worker.
    fn drop(&mut self) {
        self.end_idle();
        if let Ok(mut state) = self.shared.0.try_borrow_mut() {
            state.has_ended = true;
        }
    }
}
