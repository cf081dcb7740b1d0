//! Estimate of the unread requests and of the capacity of a backend. The estimate decides whether a
//! connection may be handed over to the next call, because the backend itself reports nothing.
//!
//! A process of php-fpm serves one connection at a time. Further connections wait in the queue of the
//! socket, each with its request. For a Unix socket the kernel reports the bytes that the peer has not
//! read, so the requests waiting in the backend's queue are known. While requests wait in the backend,
//! connections are closed at the end of their call, and new calls wait in the server instead: the number of
//! slots ([`AdmissionControl`]) is reduced to the number of calls the backend works at. With the backend's
//! queue empty, a connection is handed over to the next waiting call, and the process of the backend
//! neither closes nor accepts a connection. (Requests that may change state are not tracked: a call with a
//! handed-over connection takes precedence for as long as the connection may be handed over.)

use crate::base::admission::AdmissionControl;
use crate::base::sys;
use crate::limits::{
    BACKEND_CONNECTIONS_MAX, BACKEND_IDLE_MILLISECONDS, BACKEND_KEEP_RETRY_SECONDS,
    BACKEND_KEEP_RETRY_SECONDS_MAX, BACKEND_PROBE_MILLISECONDS, BACKEND_PROBE_MILLISECONDS_MAX,
    BACKEND_QUEUED_DIVISOR, BACKEND_UNREAD_POLL_MICROSECONDS, BACKEND_UNREAD_QUEUED_MILLISECONDS,
    BACKEND_UNREAD_RETRY_MILLISECONDS,
};
use crate::wire::fastcgi;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Known state of a backend's queue.
pub(crate) struct HandoverState {
    /// Sent requests that the backend may not have read.
    pending: Vec<UnreadRequest>,
    /// Total number of answered calls.
    answers: u64,
    answered_at: Option<Instant>,
    looked_at: Instant,
    /// Number of requests found waiting at the last look, less the requests taken up by processes that
    /// became free since the look.
    late: usize,
    /// Number of processes that became free since the last look and may be about to take up a request.
    freed: usize,
    probe: CapacityProbe,
    takers: HandoverStats,
    /// Number of consecutive connections closed by the backend in spite of being meant for reuse.
    spoiled: u32,
    /// End of the pause without connection reuse.
    shy_until: Option<Instant>,
    /// Length of the last pause caused by slow reading of handed-over requests.
    shy_pause: Duration,
    /// Bytes that the kernel counts for an empty record sent separately; None if the kernel does not report
    /// unread bytes.
    last_record: Option<usize>,
}

/// A request sent on a connection.
struct UnreadRequest {
    on: Weak<OwnedFd>,
    since: Instant,
    /// The connection had been used before, so no other process can take up the request.
    is_again: bool,
    /// The process of the reused connection was slow to read the request.
    is_slow: bool,
    /// The request no longer counts as waiting: the connection has ended, or reading took too long.
    is_over: bool,
}

/// Search for spare capacity: the number of slots is raised by one to find out whether the backend works at
/// more calls than estimated.
struct CapacityProbe {
    next: Instant,
    /// Pause until the next probe; doubled after each failed probe.
    pause: Duration,
    is_out: bool,
}

/// Counts of requests on reused connections, in all and slow.
#[derive(Default)]
struct HandoverStats {
    all: u32,
    slow: u32,
}

pub(crate) const IDLE_MAX: Duration = Duration::from_millis(BACKEND_IDLE_MILLISECONDS);
const LOOK: Duration = Duration::from_micros(BACKEND_UNREAD_POLL_MICROSECONDS);
const UNREAD: Duration = Duration::from_millis(BACKEND_UNREAD_QUEUED_MILLISECONDS);
const UNHEARD: Duration = Duration::from_millis(BACKEND_UNREAD_RETRY_MILLISECONDS);
const PROBE: Duration = Duration::from_millis(BACKEND_PROBE_MILLISECONDS);
const PROBE_MAX: Duration = Duration::from_millis(BACKEND_PROBE_MILLISECONDS_MAX);
const SHY: Duration = Duration::from_secs(BACKEND_KEEP_RETRY_SECONDS);
const SHY_MAX: Duration = Duration::from_secs(BACKEND_KEEP_RETRY_SECONDS_MAX);
/// Number of consecutive spoiled connections that starts a pause. A single spoiled connection may be
/// chance: a process ends after its configured number of calls.
const SPOILED_MAX: u32 = 2;
/// Number of slow requests tolerated as chance.
const SLOW_MAX: u32 = 8;
/// Number of requests after which the counts of [`HandoverStats`] restart.
const TAKERS: u32 = 1_024;

impl HandoverState {
    pub fn new() -> HandoverState {
        let now = Instant::now();
        HandoverState {
            pending: Vec::new(),
            answers: 0,
            answered_at: None,
            looked_at: now,
            late: 0,
            freed: 0,
            probe: CapacityProbe {
                next: now,
                pause: PROBE,
                is_out: false,
            },
            takers: HandoverStats::default(),
            spoiled: 0,
            shy_until: None,
            shy_pause: Duration::ZERO,
            last_record: last_record(),
        }
    }

    /// Returns true if connections may be handed over.
    pub fn may_pass(&self, now: Instant) -> bool {
        self.last_record.is_some() && !self.is_shy(now)
    }

    /// Returns true during a pause without connection reuse.
    pub fn is_shy(&self, now: Instant) -> bool {
        self.shy_until.is_some_and(|until| now < until)
    }

    /// Returns the total number of answered calls.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Records a request sent on a connection.
    pub fn begins(&mut self, on: &Arc<OwnedFd>, is_again: bool, now: Instant) {
        if self.pending.len() >= 2 * BACKEND_CONNECTIONS_MAX {
            self.look_at_all(now);
        }
        if is_again {
            self.takers.all += 1;
        }
        self.pending.push(UnreadRequest {
            on: Arc::downgrade(on),
            since: now,
            is_again,
            is_slow: false,
            is_over: false,
        });
    }

    /// Returns true if the request on the connection may be unread.
    pub fn is_pending(&self, on: &Arc<OwnedFd>) -> bool {
        self.pending.iter().any(|pending| pending.is_on(on))
    }

    /// Removes a request that has ended or is not to be tracked.
    pub fn ends(&mut self, on: &Arc<OwnedFd>) {
        if let Some(place) = self.pending.iter().position(|it| it.is_on(on)) {
            self.pending.swap_remove(place);
        }
    }

    /// Records an answered call. Returns true if the connection may be handed over to the next call.
    pub fn answered(&mut self, on: &Arc<OwnedFd>, now: Instant, slots: &AdmissionControl) -> bool {
        self.answers += 1;
        let last = self.answered_at.replace(now);
        let is_busy = last.is_some_and(|last| now.duration_since(last) < IDLE_MAX);
        self.ends(on);
        if now.duration_since(self.looked_at) >= LOOK {
            self.look(now, slots);
        }
        let is_narrow = slots.missing() > 0;
        if is_narrow && slots.taken() <= 1 && !slots.has_queued() {
            slots.widen();
        }
        if self.late > 0 {
            // The freed process takes up a waiting request.
            self.late -= 1;
            self.freed += 1;
            return false;
        }
        let may_pass = self.may_pass(now);
        if may_pass && is_narrow && now >= self.probe.next && slots.has_queued() {
            self.probe(now, slots);
        }
        // With few calls, no call is likely to arrive in time for the connection.
        may_pass && (is_busy || slots.has_queued())
    }

    /// Queries the kernel for all requests that may be unread. If requests have waited too long, reduces
    /// the slots to the number of calls the backend works at.
    fn look(&mut self, now: Instant, slots: &AdmissionControl) {
        self.looked_at = now;
        self.look_at_all(now);
        let is_late = |it: &&UnreadRequest| {
            let is_waited_for = !it.is_again && !it.is_over;
            is_waited_for && now.duration_since(it.since) >= UNREAD
        };
        let late = self.pending.iter().filter(is_late).count();
        let was_behind = std::mem::replace(&mut self.late, late) > 0;
        let freed = std::mem::take(&mut self.freed);
        if late == 0 || !self.may_pass(now) {
            return;
        }
        slots.set_for_now(slots.taken().saturating_sub(late.saturating_sub(freed)));
        if !was_behind {
            let is_in_vain = std::mem::take(&mut self.probe.is_out);
            let longer = (self.probe.pause * 2).min(PROBE_MAX);
            self.probe.pause = if is_in_vain { longer } else { PROBE };
            self.probe.next = now + self.probe.pause;
        }
    }

    /// Removes requests that the backend has read. Requests younger than [`UNREAD`] are not checked.
    fn look_at_all(&mut self, now: Instant) {
        let Some(last_record) = self.last_record else {
            return;
        };
        // Requests found slow at the same time may have one cause and count once.
        let mut is_slow = false;
        self.pending.retain_mut(|it| {
            let Some(fd) = it.on.upgrade() else {
                return false;
            };
            if it.is_over || now.duration_since(it.since) < UNREAD {
                return true;
            }
            // The empty record at the end is not counted: php-fpm reads the record with the next request.
            let is_unread =
                sys::output_queue_bytes(fd.as_fd()).is_ok_and(|unread| unread > last_record);
            is_slow |= is_unread && it.is_again && !std::mem::replace(&mut it.is_slow, true);
            // A closing peer discards its unread bytes, so a read request can no longer be told from an
            // unread request.
            it.is_over = !is_unread && has_ended(fd.as_fd());
            is_unread || it.is_over
        });
        self.takers.slow += u32::from(is_slow);
    }

    fn probe(&mut self, now: Instant, slots: &AdmissionControl) {
        if std::mem::replace(&mut self.probe.is_out, true) {
            // The backend took up the previous probe.
            self.probe.pause = PROBE;
        }
        self.probe.next = now + self.probe.pause;
        slots.add(1);
    }

    /// Records a successful reuse of a connection.
    pub fn went_well(&mut self) {
        self.spoiled = 0;
    }

    /// Records that the backend closed a connection meant for reuse. Returns true if a pause without reuse
    /// begins.
    pub fn spoiled(&mut self, now: Instant) -> bool {
        self.spoiled += 1;
        let is_shy = self.spoiled >= SPOILED_MAX;
        if is_shy {
            self.be_shy(now, SHY);
        }
        is_shy
    }

    /// Starts a pause without connection reuse.
    fn be_shy(&mut self, now: Instant, pause: Duration) {
        self.spoiled = 0;
        self.takers = HandoverStats::default();
        self.shy_until = self.shy_until.max(Some(now + pause));
    }

    /// Starts the longest pause, for a backend that does not support reused connections.
    pub fn be_shy_for_long(&mut self, now: Instant) {
        self.be_shy(now, SHY_MAX);
    }

    /// Starts a pause because of slow reading. The pause is four times as long if the previous pause ended
    /// less than [`SHY_MAX`] ago.
    fn be_slowly_shy(&mut self, now: Instant) {
        let is_again = self.shy_until.is_some_and(|until| now < until + SHY_MAX);
        self.shy_pause = match is_again {
            true => (self.shy_pause * 4).clamp(SHY, SHY_MAX),
            false => SHY,
        };
        self.be_shy(now, self.shy_pause);
    }

    /// Checks the unread requests on reused connections: the process may have answered the previous request
    /// and continued with other work. A connection with a request unread for [`UNHEARD`] is shut down.
    /// Returns true while unread requests remain.
    pub fn look_after(&mut self, now: Instant, slots: &AdmissionControl) -> bool {
        self.look_at_all(now);
        let (mut has_pending, mut has_unheard) = (false, false);
        let passed = self.pending.iter_mut();
        for pending in passed.filter(|it| it.is_again && !it.is_over) {
            has_pending = true;
            let is_unheard = now.duration_since(pending.since) >= UNHEARD;
            if let Some(fd) = pending.on.upgrade().filter(|_| is_unheard) {
                (pending.is_over, has_unheard) = (true, true);
                // The waiting call retries with another process; the present process may still read the
                // request.
                let _ = shutdown(&fd, Shutdown::Both);
            }
        }
        let HandoverStats { all, slow } = self.takers;
        let are_slow = slow >= SLOW_MAX && slow * BACKEND_QUEUED_DIVISOR > all;
        if has_unheard || are_slow {
            self.be_slowly_shy(now);
            slots.widen();
        } else if all >= TAKERS {
            self.takers = HandoverStats::default();
        }
        has_pending
    }
}

impl UnreadRequest {
    fn is_on(&self, on: &Arc<OwnedFd>) -> bool {
        std::ptr::eq(self.on.as_ptr(), Arc::as_ptr(on))
    }
}

/// Returns true if the peer has closed the connection.
fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match recv(fd, &mut [0], peek) {
        Ok((read, _)) => read == 0,
        Err(error) => error != Errno::AGAIN,
    }
}

fn last_record() -> Option<usize> {
    let (ours, _theirs) = UnixStream::pair().ok()?;
    (&ours).write_all(&[0; fastcgi::HEADER_BYTES]).ok()?;
    let counted = sys::output_queue_bytes(ours.as_fd()).ok()?;
    (counted > 0).then_some(counted)
}
