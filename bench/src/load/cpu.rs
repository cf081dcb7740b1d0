//! CPU time of the calling thread, and CPU pinning.

use std::fs;
use std::io;

use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::timeline::{Nanos, Timeline};

/// Consumed CPU time, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spent {
    pub user: f64,
    pub system: f64,
}

impl Spent {
    /// Returns the CPU time that the calling thread has used.
    ///
    /// The sum is exact. The split between user mode and system mode has the resolution of the kernel's
    /// clock tick.
    pub(super) fn of_this_thread() -> Spent {
        let exact = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = exact.tv_sec as f64 + exact.tv_nsec as f64 / 1e9;
        let (user, system) = ticks().unwrap_or((0.0, 0.0));
        let counted = user + system;
        let share = if counted > 0.0 { user / counted } else { 0.5 };
        Spent {
            user: seconds * share,
            system: seconds * (1.0 - share),
        }
    }

    /// Returns the CPU time used since `earlier`.
    pub(super) fn since(self, earlier: Spent) -> Spent {
        let between = |now: f64, then: f64| (now - then).max(0.0);
        Spent {
            user: between(self.user, earlier.user),
            system: between(self.system, earlier.system),
        }
    }
}

/// Returns the seconds in user mode and in the kernel, in clock ticks (proc_pid_stat(5), fields 14 and 15).
fn ticks() -> Option<(f64, f64)> {
    let stat = fs::read_to_string("/proc/thread-self/stat").ok()?;
    // The process name may contain spaces and parentheses. Field 3 follows the last parenthesis.
    let fields = stat.rsplit_once(')')?.1;
    let mut times = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(times.next()?.parse::<f64>().ok()? / clock_ticks_per_second() as f64);
    Some((seconds()?, seconds()?))
}

/// Pins the calling thread to one processor.
pub(super) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Samples the thread's CPU time at the beginning and the end of the window.
#[derive(Debug, Default)]
pub(super) struct Meter {
    begin: Option<Spent>,
    end: Option<Spent>,
}

impl Meter {
    /// Takes a sample if `now` has reached the beginning or the end of the window. Must be called at least at
    /// both times.
    pub(super) fn at(&mut self, now: Nanos, timeline: &Timeline) {
        if self.begin.is_none() && now >= timeline.begin() {
            self.begin = Some(Spent::of_this_thread());
        }
        if self.end.is_none() && timeline.end().is_some_and(|end| now >= end) {
            self.end = Some(Spent::of_this_thread());
        }
    }

    /// Returns the time of the next sample.
    pub(super) fn next_mark(&self, timeline: &Timeline) -> Option<Nanos> {
        match (self.begin, self.end) {
            (None, _) => Some(timeline.begin()),
            (_, None) => timeline.end(),
            _ => None,
        }
    }

    /// Returns the CPU time used within the window. A window not yet ended ends now.
    pub(super) fn spent(self) -> Spent {
        let Some(begin) = self.begin else {
            return Spent::default();
        };
        self.end.unwrap_or_else(Spent::of_this_thread).since(begin)
    }
}
