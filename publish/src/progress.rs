//! Progress of a work with the time left: a line that is written anew on a terminal, and a line every 10 s elsewhere.

use crate::text;
use rustix::termios::isatty;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Pause between two lines on a terminal.
const TERMINAL_PAUSE: Duration = Duration::from_millis(200);
/// Time without a line on a terminal: a short publication prints only the summary.
const TERMINAL_QUIET: Duration = Duration::from_millis(500);
/// Pause before each line of a log: of a service, a file, or a job of a forge.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// Widest bar in characters.
const BAR_LENGTH: usize = 20;

/// Work of a publication.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Files are hashed, and stored without a coding.
    Read,
    /// Texts are coded.
    Code,
    /// A packed release is read or written.
    Copy,
    /// Contents are sent to hosts.
    Send,
}

impl Work {
    fn word(self) -> &'static str {
        match self {
            Work::Read => "reading",
            Work::Code => "compressing",
            Work::Copy => "copying",
            Work::Send => "sending",
        }
    }
}

/// Progress of a work.
pub(crate) struct Progress {
    work: Work,
    /// Bytes of the work for the line.
    bytes: u64,
    /// Weight of the whole work.
    total: u64,
    /// Weight of the part that is done.
    done: AtomicU64,
    is_ended: Mutex<bool>,
    ended: Condvar,
    /// True if standard error is a terminal.
    is_terminal: bool,
}

impl Progress {
    /// Returns a progress without work done. Each byte of the work has the same weight.
    pub(crate) fn new(work: Work, bytes: u64) -> Progress {
        Progress::weighted(work, bytes, bytes)
    }

    /// Returns a progress of a work with bytes of different weights, and a total weight of `total`.
    pub(crate) fn weighted(work: Work, bytes: u64, total: u64) -> Progress {
        Progress {
            work,
            bytes,
            total,
            done: AtomicU64::new(0),
            is_ended: Mutex::new(false),
            ended: Condvar::new(),
            is_terminal: isatty(std::io::stderr()),
        }
    }

    /// Adds the weight of a part that is done.
    pub(crate) fn add(&self, weight: u64) {
        self.done.fetch_add(weight, Ordering::Relaxed);
    }

    /// Ends [`Progress::show`].
    fn end(&self) {
        if let Ok(mut is_ended) = self.is_ended.lock() {
            *is_ended = true;
            self.ended.notify_all();
        }
    }

    /// Runs a work, and shows its progress.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let line = scope.spawn(|| self.show());
            let result = work();
            self.end();
            // The line has no result.
            let _ = line.join();
            result
        })
    }

    /// Shows the progress until the end of the work.
    fn show(&self) {
        let start = Instant::now();
        let mut has_line = false;
        let Ok(mut is_ended) = self.is_ended.lock() else {
            return;
        };
        while !*is_ended {
            let pause = pause(self.is_terminal, has_line);
            let Ok((lock, waited)) = self.ended.wait_timeout(is_ended, pause) else {
                return;
            };
            is_ended = lock;
            if waited.timed_out() && !*is_ended {
                let text = self.line(start.elapsed().as_secs_f64());
                // A failed write of the line does not end the work.
                let _ = if self.is_terminal {
                    write!(std::io::stderr(), "\r\x1b[K{text}")
                } else {
                    writeln!(std::io::stderr(), "{text}")
                };
                has_line = true;
            }
        }
        if has_line && self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Returns the line after some seconds: the part that is done, and the time left at the speed so far.
    fn line(&self, seconds: f64) -> String {
        let done = self.done.load(Ordering::Relaxed);
        let part = (done as f64 / self.total.max(1) as f64).min(1.0);
        let bar = if self.is_terminal {
            let filled = (part * BAR_LENGTH as f64) as usize;
            let empty = BAR_LENGTH - filled;
            format!(" [{}{}]", "#".repeat(filled), ".".repeat(empty))
        } else {
            String::new()
        };
        let left = if part > 0.01 {
            format!(", {} left", text::seconds(seconds / part - seconds))
        } else {
            String::new()
        };
        format!(
            "{}{bar} {} of {}{left}",
            self.work.word(),
            text::bytes((part * self.bytes as f64) as u64),
            text::bytes(self.bytes)
        )
    }
}

/// Returns the pause before the next line.
fn pause(is_terminal: bool, has_line: bool) -> Duration {
    match (is_terminal, has_line) {
        (true, false) => TERMINAL_QUIET,
        (true, true) => TERMINAL_PAUSE,
        (false, _) => LOG_PAUSE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_left() {
        let line = |is_terminal: bool, done: u64, total: u64, seconds: f64| {
            let mut progress = Progress::new(Work::Send, total);
            progress.is_terminal = is_terminal;
            progress.add(done);
            progress.line(seconds)
        };
        let empty = ".".repeat(20);
        assert_eq!(
            line(true, 0, 1_000, 9.0),
            format!("sending [{empty}] 0 B of 1.0 KB")
        );
        assert_eq!(
            line(true, 250, 1_000, 10.0),
            "sending [#####...............] 250 B of 1.0 KB, 30 s left"
        );
        assert_eq!(
            line(false, 250, 1_000, 10.0),
            "sending 250 B of 1.0 KB, 30 s left"
        );
        assert_eq!(line(false, 0, 0, 0.0), "sending 0 B of 0 B");
    }

    #[test]
    fn the_weight_decides_about_the_part() {
        let mut progress = Progress::weighted(Work::Code, 1_000, 50_000);
        progress.is_terminal = false;
        progress.add(25_000);
        assert_eq!(
            progress.line(4.0),
            "compressing 500 B of 1.0 KB, 4.0 s left"
        );
        // An estimate that was too low never shows more than the whole.
        progress.add(50_000);
        assert_eq!(
            progress.line(4.0),
            "compressing 1.0 KB of 1.0 KB, 0.0 s left"
        );
    }

    #[test]
    fn a_log_has_a_line_each_10_seconds_at_most() {
        assert_eq!(pause(false, false), Duration::from_secs(10));
        assert_eq!(pause(false, true), Duration::from_secs(10));
        assert!(pause(true, true) < pause(true, false));
    }
}
