//! What a backend has not taken up yet, and so how many calls it works at: from that alone it is told
//! whether a connection may be passed on, for the backend itself never says.
//!
//! A process of php-fpm has one connection at a time, and the connections beyond wait in the queue of
//! the socket, each with its request. What was said to a socket in the file system and isn't read yet
//! can be asked for; so whoever waits there is known. While somebody does, connections are closed when
//! their call is over, and those that come wait here instead ([`Slots`] are made as few as the backend
//! works at). When nobody does any more, a connection goes to the next who waits here, and its process
//! neither closes nor accepts.

use super::super::slots::Slots;
use crate::base::sys;
use crate::limits::{
    BACKEND_CONNECTIONS_MAX, BACKEND_IDLE_MILLISECONDS, BACKEND_LOOK_MICROSECONDS,
    BACKEND_PROBE_MILLISECONDS, BACKEND_PROBE_MILLISECONDS_MAX, BACKEND_SHY_SECONDS,
    BACKEND_UNHEARD_SHY_SECONDS, BACKEND_UNREAD_MILLISECONDS,
};
use crate::wire::fcgi;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

/// What is known of a backend's queue.
pub(super) struct Backlog {
    /// What was said and perhaps not read yet.
    asked: Vec<Asked>,
    /// Calls that were answered, in all, and when the last was.
    answers: u64,
    answered_at: Option<Instant>,
    looked_at: Instant,
    /// When it was last looked, so many had been waiting for a while, but for those that a process was
    /// set free for since.
    late: usize,
    /// So many were set free since: some of them may be about to take one up.
    freed: usize,
    probe: Probe,
    /// Connections that were to stay and didn't, one after the other.
    spoiled: u32,
    /// Until then none is to stay.
    shy_until: Option<Instant>,
}

/// A request that was said on a connection.
struct Asked {
    on: Weak<OwnedFd>,
    at: Instant,
    /// The connection had been used before, so no other process can take it up.
    is_again: bool,
}

/// Whether the backend works at more calls than it was thought to is found by giving it one more.
struct Probe {
    next: Instant,
    /// Longer each time that it doesn't.
    pause: Duration,
    is_out: bool,
}

/// What becomes of those who were passed on a connection; see [`Backlog::look_after`].
pub(super) struct Passed {
    /// It isn't known of all of them yet whether they are heard.
    pub is_awaited: bool,
    /// These are not: another process has to be asked.
    pub unheard: Vec<Arc<OwnedFd>>,
}

const IDLE: Duration = Duration::from_millis(BACKEND_IDLE_MILLISECONDS);
const LOOK: Duration = Duration::from_micros(BACKEND_LOOK_MICROSECONDS);
const UNREAD: Duration = Duration::from_millis(BACKEND_UNREAD_MILLISECONDS);
const PROBE: Duration = Duration::from_millis(BACKEND_PROBE_MILLISECONDS);
const PROBE_MAX: Duration = Duration::from_millis(BACKEND_PROBE_MILLISECONDS_MAX);
const SHY: Duration = Duration::from_secs(BACKEND_SHY_SECONDS);
const SHY_OF_UNHEARD: Duration = Duration::from_secs(BACKEND_UNHEARD_SHY_SECONDS);
/// One may be by chance: a process has served as many calls as it was to, and ends.
const SPOILED_MAX: u32 = 2;

impl Backlog {
    pub fn new() -> Backlog {
        let now = Instant::now();
        Backlog {
            asked: Vec::new(),
            answers: 0,
            answered_at: None,
            looked_at: now,
            late: 0,
            freed: 0,
            probe: Probe {
                next: now,
                pause: PROBE,
                is_out: false,
            },
            spoiled: 0,
            shy_until: None,
        }
    }

    /// Is a connection to be passed on, if it can be?
    pub fn is_open(&mut self) -> bool {
        let is_over = self.shy_until.is_some_and(|until| Instant::now() >= until);
        if is_over {
            self.shy_until = None;
        }
        self.shy_until.is_none() && LAST_RECORD.is_some()
    }

    /// Calls that were answered, in all.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// A request is about to be said on this connection. One that another worker looks for before it is
    /// said is taken for read, which does no harm.
    pub fn asks(&mut self, on: &Arc<OwnedFd>, is_again: bool, at: Instant) {
        if self.asked.len() >= 2 * BACKEND_CONNECTIONS_MAX {
            self.asked.retain(Asked::is_unread);
        }
        let on = Arc::downgrade(on);
        self.asked.push(Asked { on, at, is_again });
    }

    /// A call is over, and with it what was asked on this connection. True if who comes next may have
    /// it.
    pub fn answered(&mut self, on: &Arc<OwnedFd>, now: Instant, slots: &Slots) -> bool {
        self.answers += 1;
        let last = self.answered_at.replace(now);
        let is_busy = last.is_some_and(|last| now.duration_since(last) < IDLE);
        let its = |asked: &Asked| std::ptr::eq(asked.on.as_ptr(), Arc::as_ptr(on));
        if let Some(place) = self.asked.iter().position(its) {
            self.asked.swap_remove(place);
        }
        if now.duration_since(self.looked_at) >= LOOK {
            self.look(now, slots);
        }
        let is_narrow = slots.missing() > 0;
        if is_narrow && slots.taken() <= 1 && !slots.are_wanted() {
            slots.widen();
        }
        if self.late > 0 {
            // Its process takes up one of them.
            self.late -= 1;
            self.freed += 1;
            return false;
        }
        let has_room = self.is_open();
        if has_room && is_narrow && now >= self.probe.next && slots.are_wanted() {
            self.probe(now, slots);
        }
        // Nobody will come in time where hardly anybody comes.
        has_room && (is_busy || slots.are_wanted())
    }

    /// Asks the kernel for all that may be unread, and makes the places as few as is worked at if
    /// something was for long.
    fn look(&mut self, now: Instant, slots: &Slots) {
        self.looked_at = now;
        self.asked.retain(Asked::is_unread);
        let is_late = |asked: &&Asked| !asked.is_again && now.duration_since(asked.at) >= UNREAD;
        let late = self.asked.iter().filter(is_late).count();
        let was_behind = std::mem::replace(&mut self.late, late) > 0;
        let freed = std::mem::take(&mut self.freed);
        if late == 0 || !self.is_open() {
            return;
        }
        slots.narrow(slots.taken().saturating_sub(late.saturating_sub(freed)));
        if !was_behind {
            let is_in_vain = std::mem::take(&mut self.probe.is_out);
            let longer = (self.probe.pause * 2).min(PROBE_MAX);
            self.probe.pause = if is_in_vain { longer } else { PROBE };
            self.probe.next = now + self.probe.pause;
        }
    }

    fn probe(&mut self, now: Instant, slots: &Slots) {
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

    /// A connection that was to stay was closed by the other end. True if none is to stay for a while.
    pub fn spoiled(&mut self) -> bool {
        self.spoiled += 1;
        let is_shy = self.spoiled >= SPOILED_MAX;
        if is_shy {
            self.be_shy(SHY);
        }
        is_shy
    }

    /// For so long no connection is passed on.
    fn be_shy(&mut self, pause: Duration) {
        self.spoiled = 0;
        self.shy_until = Some(Instant::now() + pause);
    }

    /// Asks after those that got a connection from another: its process may have answered that one,
    /// and gone on with something else.
    pub fn look_after(&mut self, now: Instant, patience: Duration) -> Passed {
        let mut passed = Passed {
            is_awaited: false,
            unheard: Vec::new(),
        };
        self.asked.retain(|asked| {
            if !asked.is_again {
                return true;
            }
            let Some(fd) = asked.unread() else {
                return false;
            };
            let is_late = now.duration_since(asked.at) >= patience;
            match is_late {
                true => passed.unheard.push(fd),
                false => passed.is_awaited = true,
            }
            !is_late
        });
        if !passed.unheard.is_empty() {
            self.be_shy(SHY_OF_UNHEARD);
        }
        passed
    }
}

impl Asked {
    fn is_unread(&self) -> bool {
        self.unread().is_some()
    }

    /// The connection, if what was said on it isn't read yet. The empty record at the end doesn't
    /// count: php-fpm reads it when the next request has come.
    fn unread(&self) -> Option<Arc<OwnedFd>> {
        let fd = self.on.upgrade()?;
        let unread = sys::unread(fd.as_fd()).ok()?;
        (unread > (*LAST_RECORD)?).then_some(fd)
    }
}

/// What the kernel counts for that record, which is sent by itself; None where it can't tell.
static LAST_RECORD: LazyLock<Option<usize>> = LazyLock::new(|| {
    let (ours, _theirs) = UnixStream::pair().ok()?;
    (&ours).write_all(&[0; fcgi::HEADER_BYTES]).ok()?;
    let counted = sys::unread(ours.as_fd()).ok()?;
    (counted > 0).then_some(counted)
});
