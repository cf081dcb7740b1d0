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

use crate::ledger::admission::AdmissionControl;
use crate::ledger::backend_queue::SentRequest;
use crate::limits::{
    BACKEND_CONNECTIONS_MAX, BACKEND_HANDOVER_AGE_MILLISECONDS_MAX, BACKEND_IDLE_MILLISECONDS,
    BACKEND_KEEP_RETRY_SECONDS, BACKEND_KEEP_RETRY_SECONDS_MAX, BACKEND_PROBE_MILLISECONDS,
    BACKEND_PROBE_MILLISECONDS_MAX, BACKEND_QUEUED_DIVISOR, BACKEND_STALLED_MILLISECONDS,
    BACKEND_UNREAD_POLL_MICROSECONDS, BACKEND_UNREAD_QUEUED_MILLISECONDS,
    BACKEND_UNREAD_RETRY_MILLISECONDS,
};
use crate::upstream::backend::conn::IdleConn;
use base::sys;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;
use wire::fastcgi;

/// Known state of a backend's queue.
pub(crate) struct HandoverState {
    /// Sent requests that the backend may not have read.
    unread: Vec<UnreadRequest>,
    /// Total number of answered calls.
    answers: u64,
    answered_at: Option<Instant>,
    checked_at: Instant,
    /// Number of requests found waiting at the last check, less the requests taken up by processes that
    /// became free since the check.
    queued: usize,
    /// Number of processes that became free since the last check and may be about to take up a request.
    freed: usize,
    probe: CapacityProbe,
    stats: HandoverStats,
    /// Number of consecutive connections closed by the backend in spite of being meant for reuse.
    lost_in_a_row: u32,
    /// End of the pause without connection reuse.
    paused_until: Option<Instant>,
    /// Length of the last pause caused by slow reading of handed-over requests.
    slow_pause: Duration,
    /// Bytes that the kernel counts for an empty record sent separately; None if the kernel does not report
    /// unread bytes.
    empty_record_bytes: Option<usize>,
}

/// A request sent on a connection.
struct UnreadRequest {
    conn: Weak<OwnedFd>,
    sent_at: Instant,
    /// The connection had been used before, so no other process can take up the request.
    is_reused: bool,
    /// The process of the reused connection was slow to read the request.
    is_slow: bool,
    /// The request no longer counts as waiting: the connection has ended, or reading took too long.
    is_ignored: bool,
}

/// Search for spare capacity: the number of slots is raised by one to find out whether the backend works at
/// more calls than estimated.
struct CapacityProbe {
    next: Instant,
    /// Pause until the next probe; doubled after each failed probe.
    pause: Duration,
    is_running: bool,
}

/// Counts of requests on reused connections, in all and slow.
#[derive(Default)]
struct HandoverStats {
    all: u32,
    slow: u32,
}

/// Repeated check of the handed-over connections of one backend, at intervals of [`IDLE_MAX`].
pub(crate) struct HandoverCheck {
    /// Number of answered calls at the last check.
    answers: u64,
    /// Time of the last check that found a new answer.
    answered_at: Instant,
}

/// Maximum age of a connection to be handed over.
const AGE_MAX: Duration = Duration::from_millis(BACKEND_HANDOVER_AGE_MILLISECONDS_MAX);
/// Time without an answer after which all slots are restored.
const STALLED: Duration = Duration::from_millis(BACKEND_STALLED_MILLISECONDS);
/// Time for which an idle connection waits for the next call.
pub(crate) const IDLE_MAX: Duration = Duration::from_millis(BACKEND_IDLE_MILLISECONDS);
const CHECK_INTERVAL: Duration = Duration::from_micros(BACKEND_UNREAD_POLL_MICROSECONDS);
const QUEUED_AGE: Duration = Duration::from_millis(BACKEND_UNREAD_QUEUED_MILLISECONDS);
const RETRY_AGE: Duration = Duration::from_millis(BACKEND_UNREAD_RETRY_MILLISECONDS);
const PROBE_PAUSE: Duration = Duration::from_millis(BACKEND_PROBE_MILLISECONDS);
const PROBE_PAUSE_MAX: Duration = Duration::from_millis(BACKEND_PROBE_MILLISECONDS_MAX);
const PAUSE: Duration = Duration::from_secs(BACKEND_KEEP_RETRY_SECONDS);
const PAUSE_MAX: Duration = Duration::from_secs(BACKEND_KEEP_RETRY_SECONDS_MAX);
/// Number of consecutive lost connections that starts a pause. A single lost connection may be chance: a
/// process ends after its configured number of calls.
const LOST_MAX: u32 = 2;
/// Number of slow requests tolerated as chance.
const SLOW_MAX: u32 = 8;
/// Number of requests after which the counts of [`HandoverStats`] restart.
const STATS_REQUESTS_MAX: u32 = 1_024;

impl HandoverState {
    pub(super) fn new() -> HandoverState {
        let now = Instant::now();
        HandoverState {
            unread: Vec::new(),
            answers: 0,
            answered_at: None,
            checked_at: now,
            queued: 0,
            freed: 0,
            probe: CapacityProbe {
                next: now,
                pause: PROBE_PAUSE,
                is_running: false,
            },
            stats: HandoverStats::default(),
            lost_in_a_row: 0,
            paused_until: None,
            slow_pause: Duration::ZERO,
            empty_record_bytes: empty_record_bytes(),
        }
    }

    /// Returns true if connections may be handed over.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.empty_record_bytes.is_some() && !self.is_paused(now)
    }

    /// Returns true during a pause without connection reuse.
    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Records a request sent on a connection.
    pub(crate) fn record_sent(&mut self, conn: &Arc<OwnedFd>, is_reused: bool, now: Instant) {
        if self.unread.len() >= 2 * BACKEND_CONNECTIONS_MAX {
            self.remove_read_requests(now);
        }
        if is_reused {
            self.stats.all += 1;
        }
        self.unread.push(UnreadRequest {
            conn: Arc::downgrade(conn),
            sent_at: now,
            is_reused,
            is_slow: false,
            is_ignored: false,
        });
    }

    /// Returns the record of a request sent on the connection, with a separate empty record at its end. None if the kernel
    /// does not report unread bytes.
    pub(super) fn sent_request(&self, conn: &Arc<OwnedFd>) -> Option<SentRequest> {
        let read_bytes = self.empty_record_bytes?;
        Some(SentRequest::new(conn, read_bytes))
    }

    /// Returns true if the request on the connection may be unread.
    pub(crate) fn may_be_unread(&self, conn: &Arc<OwnedFd>) -> bool {
        self.unread.iter().any(|unread| unread.is_on(conn))
    }

    /// Records an answered call. Returns true if the connection may be handed over to the next call.
    pub(super) fn record_answer(
        &mut self,
        conn: &IdleConn,
        now: Instant,
        slots: &AdmissionControl,
    ) -> bool {
        if conn.answers() > 1 {
            self.lost_in_a_row = 0;
        }
        self.answers += 1;
        let last = self.answered_at.replace(now);
        let is_busy = last.is_some_and(|last| now.duration_since(last) < IDLE_MAX);
        if let Some(at) = self.unread.iter().position(|it| it.is_on(conn.fd())) {
            self.unread.swap_remove(at);
        }
        if now.duration_since(self.checked_at) >= CHECK_INTERVAL {
            self.check_queue(now, slots);
        }
        let is_reduced = slots.withheld() > 0;
        if is_reduced && slots.taken() <= 1 && !slots.has_queued() {
            slots.lift_limit();
        }
        if self.queued > 0 {
            // The freed process takes up a waiting request.
            self.queued -= 1;
            self.freed += 1;
            return false;
        }
        let is_allowed = self.is_allowed(now);
        if is_allowed && is_reduced && now >= self.probe.next && slots.has_queued() {
            self.start_probe(now, slots);
        }
        // With few calls, no call is likely to arrive in time for the connection.
        let is_wanted = is_busy || slots.has_queued();
        is_allowed && is_wanted && now.duration_since(conn.history.created_at) < AGE_MAX
    }

    /// Queries the kernel for all requests that may be unread. If requests have waited too long, reduces
    /// the slots to the number of calls the backend works at.
    fn check_queue(&mut self, now: Instant, slots: &AdmissionControl) {
        self.checked_at = now;
        self.remove_read_requests(now);
        let is_queued = |it: &&UnreadRequest| {
            let is_waited_for = !it.is_reused && !it.is_ignored;
            is_waited_for && now.duration_since(it.sent_at) >= QUEUED_AGE
        };
        let queued = self.unread.iter().filter(is_queued).count();
        let had_queued = std::mem::replace(&mut self.queued, queued) > 0;
        let freed = std::mem::take(&mut self.freed);
        if queued == 0 || !self.is_allowed(now) {
            return;
        }
        slots.limit_temporarily(slots.taken().saturating_sub(queued.saturating_sub(freed)));
        if !had_queued {
            let has_failed = std::mem::take(&mut self.probe.is_running);
            let longer = (self.probe.pause * 2).min(PROBE_PAUSE_MAX);
            self.probe.pause = if has_failed { longer } else { PROBE_PAUSE };
            self.probe.next = now + self.probe.pause;
        }
    }

    /// Removes requests that the backend has read. Requests younger than [`QUEUED_AGE`] are not checked.
    fn remove_read_requests(&mut self, now: Instant) {
        let Some(empty_record_bytes) = self.empty_record_bytes else {
            return;
        };
        // Requests found slow at the same time may have one cause and count once.
        let mut is_slow = false;
        self.unread.retain_mut(|it| {
            let Some(fd) = it.conn.upgrade() else {
                return false;
            };
            if it.is_ignored || now.duration_since(it.sent_at) < QUEUED_AGE {
                return true;
            }
            // The empty record at the end is not counted: php-fpm reads the record with the next request.
            let is_unread =
                sys::output_queue_bytes(fd.as_fd()).is_ok_and(|unread| unread > empty_record_bytes);
            is_slow |= is_unread && it.is_reused && !std::mem::replace(&mut it.is_slow, true);
            // A closing peer discards its unread bytes, so a read request can no longer be told from an
            // unread request.
            it.is_ignored = !is_unread && has_ended(fd.as_fd());
            is_unread || it.is_ignored
        });
        self.stats.slow += u32::from(is_slow);
    }

    fn start_probe(&mut self, now: Instant, slots: &AdmissionControl) {
        if std::mem::replace(&mut self.probe.is_running, true) {
            // The backend took up the previous probe.
            self.probe.pause = PROBE_PAUSE;
        }
        self.probe.next = now + self.probe.pause;
        slots.raise_limit(1);
    }

    /// Records that the backend closed a connection meant for reuse. Returns true if a pause without reuse
    /// begins.
    pub(crate) fn record_lost(&mut self, now: Instant) -> bool {
        self.lost_in_a_row += 1;
        let is_paused = self.lost_in_a_row >= LOST_MAX;
        if is_paused {
            self.pause_reuse(now, PAUSE);
        }
        is_paused
    }

    /// Starts a pause without connection reuse.
    fn pause_reuse(&mut self, now: Instant, pause: Duration) {
        self.lost_in_a_row = 0;
        self.stats = HandoverStats::default();
        self.paused_until = self.paused_until.max(Some(now + pause));
    }

    /// Starts the longest pause, for a backend that does not support reused connections.
    pub(crate) fn pause_for_long(&mut self, now: Instant) {
        self.pause_reuse(now, PAUSE_MAX);
    }

    /// Starts a pause because of slow reading. The pause is four times as long if the previous pause ended
    /// less than [`PAUSE_MAX`] ago.
    fn pause_for_slow_reading(&mut self, now: Instant) {
        let is_reused = self
            .paused_until
            .is_some_and(|until| now < until + PAUSE_MAX);
        self.slow_pause = if is_reused {
            (self.slow_pause * 4).clamp(PAUSE, PAUSE_MAX)
        } else {
            PAUSE
        };
        self.pause_reuse(now, self.slow_pause);
    }

    /// Checks the unread requests on reused connections: the process may have answered the previous request
    /// and continued with other work. A connection with a request unread for [`RETRY_AGE`] is shut down.
    /// Returns true while unread requests remain.
    pub(crate) fn check_reused(&mut self, now: Instant, slots: &AdmissionControl) -> bool {
        self.remove_read_requests(now);
        let (mut has_unread, mut has_overdue) = (false, false);
        let reused = self.unread.iter_mut();
        for unread in reused.filter(|it| it.is_reused && !it.is_ignored) {
            has_unread = true;
            let is_overdue = now.duration_since(unread.sent_at) >= RETRY_AGE;
            if let Some(fd) = unread.conn.upgrade().filter(|_| is_overdue) {
                (unread.is_ignored, has_overdue) = (true, true);
                // The waiting call retries with another process; the present process may still read the
                // request.
                let _ = shutdown(&fd, Shutdown::Both);
            }
        }
        let HandoverStats { all, slow } = self.stats;
        let are_slow = slow >= SLOW_MAX && slow * BACKEND_QUEUED_DIVISOR > all;
        if has_overdue || are_slow {
            self.pause_for_slow_reading(now);
            slots.lift_limit();
        } else if all >= STATS_REQUESTS_MAX {
            self.stats = HandoverStats::default();
        }
        has_unread
    }
}

impl HandoverCheck {
    /// Creates the check, with `now` as the time of the last answer.
    pub(super) fn new(now: Instant) -> HandoverCheck {
        HandoverCheck {
            answers: 0,
            answered_at: now,
        }
    }

    /// Checks the unread requests, and restores all slots if the backend has answered no call for
    /// [`STALLED`]: waiting calls then use the backend's own queue. Returns true while unread requests
    /// remain.
    pub(super) fn run(
        &mut self,
        state: &mut HandoverState,
        now: Instant,
        slots: &AdmissionControl,
    ) -> bool {
        let has_unread = state.check_reused(now, slots);
        if std::mem::replace(&mut self.answers, state.answers) != state.answers {
            self.answered_at = now;
        }
        if now.duration_since(self.answered_at) >= STALLED {
            slots.lift_limit();
        }
        has_unread
    }
}

impl UnreadRequest {
    fn is_on(&self, conn: &Arc<OwnedFd>) -> bool {
        std::ptr::eq(self.conn.as_ptr(), Arc::as_ptr(conn))
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

fn empty_record_bytes() -> Option<usize> {
    let (ours, _theirs) = UnixStream::pair().ok()?;
    (&ours).write_all(&[0; fastcgi::HEADER_BYTES]).ok()?;
    let counted = sys::output_queue_bytes(ours.as_fd()).ok()?;
    (counted > 0).then_some(counted)
}
