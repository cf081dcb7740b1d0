//! Lines of the error log about failed requests: for each rule a bounded number in a minute, and the number of the
//! failures without a line. While a member is down, or the process has no descriptors, any client causes a failure with
//! each request, and must not fill the disk.

use super::rare_lines::LineWindow;
use crate::limits::FAILURE_LINES_MAX;
use crate::sys::monotonic_nanos;
use log::Level;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Failure lines of the process.
pub static FAILURE_LINES: FailureLines = FailureLines::new();

/// Lines about failures by rule, shared by all workers.
#[derive(Debug)]
pub struct FailureLines {
    /// Windows by the numbers of the rules, which the program declares.
    rules: Mutex<BTreeMap<u16, LineWindow>>,
}

impl FailureLines {
    const fn new() -> FailureLines {
        FailureLines {
            rules: Mutex::new(BTreeMap::new()),
        }
    }

    /// Logs a line about a failure with a rule, unless the rule has as many lines already.
    #[cold]
    pub fn log(&self, rule: u16, level: Level, text: &dyn Fn() -> String) {
        // The lock is free before the line is written.
        let is_admitted = self.admits(rule, now_ms());
        if is_admitted {
            log::log!(level, "{}", text());
        }
    }

    /// Logs the number of failures without a line, for each rule at the end of its window.
    pub fn log_left_out(&self) {
        for (rule, left_out) in self.take_left_out(now_ms()) {
            log::warn!(
                "{left_out} more failures with rule R{rule} in a minute, without a line for each"
            );
        }
    }

    fn admits(&self, rule: u16, now_ms: u64) -> bool {
        let mut rules = self.lock();
        rules
            .entry(rule)
            .or_default()
            .admits(now_ms, FAILURE_LINES_MAX)
    }

    fn take_left_out(&self, now_ms: u64) -> Vec<(u16, u64)> {
        let mut rules = self.lock();
        let windows = rules.iter_mut();
        let left_out = windows.map(|(rule, window)| (*rule, window.take_left_out(now_ms)));
        left_out.filter(|(_, left_out)| *left_out > 0).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, LineWindow>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_ms() -> u64 {
    monotonic_nanos() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RARE_LINES_MILLISECONDS;

    #[test]
    fn each_rule_has_a_bounded_number_of_lines_in_a_window() {
        let lines = FailureLines::new();
        let max = FAILURE_LINES_MAX as usize;
        let count = |rule, now_ms, failures: usize| {
            let admitted = (0..failures).filter(|_| lines.admits(rule, now_ms));
            admitted.count()
        };
        assert_eq!(count(766, 5, 1_000_000), max);
        assert_eq!(count(742, 5, max), max, "a window of its own");
        assert_eq!(lines.take_left_out(4 + RARE_LINES_MILLISECONDS), []);
        let end = 5 + RARE_LINES_MILLISECONDS;
        assert_eq!(lines.take_left_out(end), [(766, 1_000_000 - max as u64)]);
        assert_eq!(lines.take_left_out(end), []);
        assert_eq!(count(766, end, max + 1), max);
    }
}
