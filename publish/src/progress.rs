//! Progress line on a terminal, with the time left.

use crate::text;
use rustix::termios::isatty;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Pause between two progress lines.
const PAUSE: Duration = Duration::from_millis(200);
/// Time without a progress line: a short publication prints only the summary.
const QUIET: Duration = Duration::from_millis(500);

/// Progress of the work on the files.
pub(crate) struct Progress {
    /// Bytes of all files.
    total: u64,
    done: AtomicU64,
    is_ended: Mutex<bool>,
    ended: Condvar,
    /// True if standard error is a terminal.
    is_shown: bool,
}

impl Progress {
    /// Returns a progress without work done. A line is shown only if standard error is a terminal.
    pub(crate) fn new(total: u64) -> Progress {
        Progress {
            total,
            done: AtomicU64::new(0),
            is_ended: Mutex::new(false),
            ended: Condvar::new(),
            is_shown: isatty(std::io::stderr()),
        }
    }

    /// Adds bytes of completed files.
    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Ends [`Progress::show`].
    pub(crate) fn end(&self) {
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
        if !self.is_shown {
            return;
        }
        let start = Instant::now();
        let mut has_line = false;
        let Ok(mut is_ended) = self.is_ended.lock() else {
            return;
        };
        while !*is_ended {
            let pause = if has_line { PAUSE } else { QUIET };
            let Ok((lock, waited)) = self.ended.wait_timeout(is_ended, pause) else {
                return;
            };
            is_ended = lock;
            if waited.timed_out() && !*is_ended {
                let done = self.done.load(Ordering::Relaxed);
                let line = line(done, self.total, start.elapsed().as_secs_f64());
                // A failed write of the line does not end the work.
                let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
                has_line = true;
            }
        }
        if has_line {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// Returns the progress line: the part that is done, and the time left at the speed so far.
fn line(done: u64, total: u64, seconds: f64) -> String {
    let part = done as f64 / total.max(1) as f64;
    let filled = (part * 20.0) as usize;
    let bar: String = (0..20)
        .map(|at| if at < filled { '#' } else { '.' })
        .collect();
    let left = if part > 0.01 {
        format!(", {} left", text::seconds(seconds / part - seconds))
    } else {
        String::new()
    };
    format!(
        "[{bar}] {} of {}{left}",
        text::bytes(done),
        text::bytes(total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_left() {
        assert_eq!(line(0, 1_000, 9.0), "[....................] 0 B of 1.0 KB");
        assert_eq!(
            line(250, 1_000, 10.0),
            "[#####...............] 250 B of 1.0 KB, 30 s left"
        );
        assert_eq!(line(0, 0, 0.0), "[....................] 0 B of 0 B");
    }
}
