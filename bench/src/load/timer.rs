//! A timer among the epoll events of a thread. The timeout of epoll is rounded up to milliseconds, too
//! coarse for an open loop of more than a few hundred requests per second.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::timeline::Nanos;

/// A timerfd that becomes readable when the timer expires.
#[derive(Debug)]
pub(super) struct Timer {
    timer: OwnedFd,
    set: Option<Nanos>,
}

impl Timer {
    pub(super) fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Timer {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set: None,
        })
    }

    /// Arms the timer for `at` unless the timer is already armed for the same time.
    pub(super) fn set(&mut self, at: Nanos, now: Nanos) -> io::Result<()> {
        if self.set != Some(at) {
            // An expiry of 0 would disarm the timer.
            let left = at.saturating_sub(now).max(1);
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let value = Itimerspec {
                it_interval: zero,
                it_value: timespec(left),
            };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
            self.set = Some(at);
        }
        Ok(())
    }

    /// Records that the timer has expired.
    pub(super) fn expired(&mut self) {
        self.set = None;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

/// Converts a duration to the kernel's representation.
pub(super) fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span / 1_000_000_000) as i64,
        tv_nsec: (span % 1_000_000_000) as i64,
    }
}
