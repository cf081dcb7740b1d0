//! An alarm clock among a thread's events. epoll's own timeout is rounded up to milliseconds, which an
//! open loop of more than a few hundred requests a second can't live with.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::course::Nanos;

/// A timer that is readable when its time has come.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: OwnedFd,
    set: Option<Nanos>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Alarm {
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            set: None,
        })
    }

    /// Sets it to `at`, if it isn't.
    pub(super) fn set(&mut self, at: Nanos, now: Nanos) -> io::Result<()> {
        if self.set != Some(at) {
            // Zero would switch it off.
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

    /// It rang.
    pub(super) fn rang(&mut self) {
        self.set = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

/// A span of time as the kernel wants it.
pub(super) fn timespec(span: Nanos) -> Timespec {
    Timespec {
        tv_sec: (span / 1_000_000_000) as i64,
        tv_nsec: (span % 1_000_000_000) as i64,
    }
}
