//! What a backend has not taken up yet, and so how many calls it works at: from that alone it is told
//! whether a connection may be passed on, for the backend itself never says.
//!
//! A process of php-fpm has one connection at a time, and the connections beyond wait in the queue of
//! the socket, each with its request. What was said to a socket in the file system and isn't read yet
//! can be asked for; so whoever waits there is known. While somebody does, connections are closed when
//! their call is over, and those that come wait here instead: there are as few places ([`AdmissionControl`]) as
//! the backend works at. When nobody does any more, a connection goes to the next who waits here, and
//! its process neither closes nor accepts. (Requests that may change something are not looked for: who
//! has a connection to pass on goes before them, for as long as it may be passed on.)

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

/// What is known of a backend's queue.
pub(crate) struct HandoverState {
    /// What was said and perhaps not read yet.
    pending: Vec<UnreadRequest>,
    /// Calls that were answered, in all, and when the last was.
    answers: u64,
    answered_at: Option<Instant>,
    looked_at: Instant,
    /// When it was last looked, so many had been waiting for a while, but for those that a process was
    /// set free for since.
    late: usize,
    /// So many were set free since: some of them may be about to take one up.
    freed: usize,
    probe: CapacityProbe,
    takers: HandoverStats,
    /// Connections that were to stay and didn't, one after the other.
    spoiled: u32,
    /// Until then none is to stay.
    shy_until: Option<Instant>,
    /// How long that was because of slow takers, the last time.
    shy_pause: Duration,
    /// What the kernel counts for an empty record that is sent by itself; None where it can't tell.
    last_record: Option<usize>,
}

/// A request that was said on a connection.
struct UnreadRequest {
    on: Weak<OwnedFd>,
    since: Instant,
    /// The connection had been used before, so no other process can take it up.
    is_again: bool,
    /// And its process was slow to do so.
    is_slow: bool,
    /// Nobody waits any more for its being read: it took too long, or the connection has ended.
    is_over: bool,
}

/// Whether the backend works at more calls than it was thought to is found by giving it one more.
struct CapacityProbe {
    next: Instant,
    /// Longer each time that it doesn't.
    pause: Duration,
    is_out: bool,
}

/// How those do that are passed on a connection.
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
/// One may be by chance: a process has served as many calls as it was to, and ends.
const SPOILED_MAX: u32 = 2;
/// So many times they may be slow by chance,
const SLOW_MAX: u32 = 8;
/// and after so many calls none is remembered.
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

    /// May connections be passed on?
    pub fn may_pass(&self, now: Instant) -> bool {
        self.last_record.is_some() && !self.is_shy(now)
    }

    /// Is a connection better not used twice?
    pub fn is_shy(&self, now: Instant) -> bool {
        self.shy_until.is_some_and(|until| now < until)
    }

    /// Calls that were answered, in all.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// A request was said on this connection.
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

    /// May the request on this connection not have been read?
    pub fn is_pending(&self, on: &Arc<OwnedFd>) -> bool {
        self.pending.iter().any(|pending| pending.is_on(on))
    }

    /// A request is over, or not to be looked for.
    pub fn ends(&mut self, on: &Arc<OwnedFd>) {
        if let Some(place) = self.pending.iter().position(|it| it.is_on(on)) {
            self.pending.swap_remove(place);
        }
    }

    /// A call on this connection was answered. True if who comes next may have it.
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
            // Its process takes up one of them.
            self.late -= 1;
            self.freed += 1;
            return false;
        }
        let may_pass = self.may_pass(now);
        if may_pass && is_narrow && now >= self.probe.next && slots.has_queued() {
            self.probe(now, slots);
        }
        // Nobody will come in time where hardly anybody comes.
        may_pass && (is_busy || slots.has_queued())
    }

    /// Asks the kernel for all that may be unread, and makes the places as few as is worked at if
    /// something was for long.
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

    /// Forgets what has been read. A moment is left to what was said just now.
    fn look_at_all(&mut self, now: Instant) {
        let Some(last_record) = self.last_record else {
            return;
        };
        // Those that are slow at the same time may be so for one reason, and count once.
        let mut is_slow = false;
        self.pending.retain_mut(|it| {
            let Some(fd) = it.on.upgrade() else {
                return false;
            };
            if it.is_over || now.duration_since(it.since) < UNREAD {
                return true;
            }
            // The empty record at the end doesn't count: php-fpm reads it with the next request.
            let is_unread =
                sys::output_queue_bytes(fd.as_fd()).is_ok_and(|unread| unread > last_record);
            is_slow |= is_unread && it.is_again && !std::mem::replace(&mut it.is_slow, true);
            // With the other end goes what it hasn't read: whether it had can't be told any more.
            it.is_over = !is_unread && has_ended(fd.as_fd());
            is_unread || it.is_over
        });
        self.takers.slow += u32::from(is_slow);
    }

    fn probe(&mut self, now: Instant, slots: &AdmissionControl) {
        if std::mem::replace(&mut self.probe.is_out, true) {
            // The last one was taken up.
            self.probe.pause = PROBE;
        }
        self.probe.next = now + self.probe.pause;
        slots.add(1);
    }

    /// A connection was used once more, and that went well.
    pub fn went_well(&mut self) {
        self.spoiled = 0;
    }

    /// A connection that was to stay didn't. True if none is to for a while.
    pub fn spoiled(&mut self, now: Instant) -> bool {
        self.spoiled += 1;
        let is_shy = self.spoiled >= SPOILED_MAX;
        if is_shy {
            self.be_shy(now, SHY);
        }
        is_shy
    }

    /// For so long no connection is passed on.
    fn be_shy(&mut self, now: Instant, pause: Duration) {
        self.spoiled = 0;
        self.takers = HandoverStats::default();
        self.shy_until = self.shy_until.max(Some(now + pause));
    }

    /// It can't have connections that are used twice.
    pub fn be_shy_for_long(&mut self, now: Instant) {
        self.be_shy(now, SHY_MAX);
    }

    /// For a while none, because of slow takers: longer each time that it comes again.
    fn be_slowly_shy(&mut self, now: Instant) {
        let is_again = self.shy_until.is_some_and(|until| now < until + SHY_MAX);
        self.shy_pause = match is_again {
            true => (self.shy_pause * 4).clamp(SHY, SHY_MAX),
            false => SHY,
        };
        self.be_shy(now, self.shy_pause);
    }

    /// Asks after those that got a connection from another: its process may have answered that one,
    /// and gone on with something else. Who isn't heard at all is told so, by the end of the connection.
    /// True while there is somebody to ask after.
    pub fn look_after(&mut self, now: Instant, slots: &AdmissionControl) -> bool {
        self.look_at_all(now);
        let (mut has_pending, mut has_unheard) = (false, false);
        let passed = self.pending.iter_mut();
        for pending in passed.filter(|it| it.is_again && !it.is_over) {
            has_pending = true;
            let is_unheard = now.duration_since(pending.since) >= UNHEARD;
            if let Some(fd) = pending.on.upgrade().filter(|_| is_unheard) {
                (pending.is_over, has_unheard) = (true, true);
                // Whoever waits for the answer asks another process; this one may still come to it.
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

/// Has the other end closed this connection?
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
