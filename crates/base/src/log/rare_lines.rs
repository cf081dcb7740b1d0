//! Lines of the error log about events that any client can cause: a few lines of each kind in a minute, and the number
//! of the events without a line. A client can neither fill the disk nor hide other lines.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::{RARE_LINES_MAX, RARE_LINES_MILLISECONDS};

/// Kind of an event that a client causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RareEvent {
    /// A client asks in the TLS handshake for a name that no site has.
    UnknownServerName,
    /// A client presents no client certificate, or one that is refused.
    ClientCertificate,
    /// The server's account cannot read a requested file.
    UnreadableFile,
    /// A requested symbolic link leads out of the root.
    LinkOut,
    /// A handler refuses a request for a reason that concerns the operator.
    RefusedCall,
}

/// Kinds with the words for the line about the events without a line.
const KINDS: [(RareEvent, &str); 5] = [
    (
        RareEvent::UnknownServerName,
        "TLS connections for a name that no site has",
    ),
    (
        RareEvent::ClientCertificate,
        "TLS connections without an accepted client certificate",
    ),
    (
        RareEvent::UnreadableFile,
        "requests for a file that can't be read",
    ),
    (
        RareEvent::LinkOut,
        "requests for a link that leads out of the root",
    ),
    (RareEvent::RefusedCall, "requests that a handler refuses"),
];

/// Lines of all kinds, shared by all workers.
#[derive(Debug, Default)]
pub struct RareLines {
    kinds: Mutex<[LineWindow; KINDS.len()]>,
}

/// Lines of one kind since the beginning of the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineWindow {
    began_ms: u64,
    lines: u32,
    left_out: u64,
}

impl RareLines {
    /// Logs a line about an event, unless the kind has as many lines already.
    pub fn log(&self, event: RareEvent, now_ms: u64, text: &dyn Fn() -> String) {
        if self.admits(event, now_ms) {
            log::warn!("{}", text());
        }
    }

    /// Logs the number of events without a line, for each kind at the end of its window.
    pub fn log_left_out(&self, now_ms: u64) {
        for (event, words) in KINDS {
            let left_out = self.take_left_out(event, now_ms);
            if left_out > 0 {
                log::warn!("{left_out} more {words} in a minute, without a line for each");
            }
        }
    }

    /// Counts an event, and returns true if the event gets a line.
    fn admits(&self, event: RareEvent, now_ms: u64) -> bool {
        self.lock()[event as usize].admits(now_ms, RARE_LINES_MAX)
    }

    /// Returns the number of events without a line, once the window is over, and begins a new window.
    fn take_left_out(&self, event: RareEvent, now_ms: u64) -> u64 {
        self.lock()[event as usize].take_left_out(now_ms)
    }

    fn lock(&self) -> MutexGuard<'_, [LineWindow; KINDS.len()]> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LineWindow {
    /// Counts an event, and returns true if the event gets one of the `lines_max` lines of the window.
    pub(super) fn admits(&mut self, now_ms: u64, lines_max: u32) -> bool {
        if self.lines == 0 || (self.is_over(now_ms) && self.left_out == 0) {
            *self = LineWindow {
                began_ms: now_ms,
                ..LineWindow::default()
            };
        }
        let is_admitted = self.lines < lines_max;
        if is_admitted {
            self.lines += 1
        } else {
            self.left_out += 1
        }
        is_admitted
    }

    /// Returns the number of events without a line, once the window is over, and begins a new window.
    pub(super) fn take_left_out(&mut self, now_ms: u64) -> u64 {
        if self.is_over(now_ms) {
            std::mem::take(self).left_out
        } else {
            0
        }
    }

    fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.began_ms) >= RARE_LINES_MILLISECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RareEvent::{LinkOut, UnreadableFile};

    #[test]
    fn each_kind_has_a_few_lines_in_a_window_and_a_count_of_the_rest() {
        let lines = RareLines::default();
        let count = |event, now_ms, events: usize| {
            let admitted = (0..events).filter(|_| lines.admits(event, now_ms));
            admitted.count()
        };
        let max = RARE_LINES_MAX as usize;
        assert_eq!(count(LinkOut, 5, 1_000_000), max);
        assert_eq!(count(UnreadableFile, 5, max), max, "a window of its own");
        let end = 5 + RARE_LINES_MILLISECONDS;
        assert_eq!(lines.take_left_out(LinkOut, end - 1), 0);
        assert_eq!(count(LinkOut, end - 1, 7), 0);
        // The count precedes the lines of the next window.
        assert_eq!(count(LinkOut, end, 1), 0);
        assert_eq!(lines.take_left_out(LinkOut, end), 1_000_008 - max as u64);
        assert_eq!(lines.take_left_out(LinkOut, end), 0);
        assert_eq!(count(LinkOut, end, max + 1), max);
        // A kind without a left-out event begins a window with the next event.
        assert_eq!(count(UnreadableFile, end, 1), 1);
        assert_eq!(lines.take_left_out(UnreadableFile, end), 0);
        assert_eq!(count(UnreadableFile, end + 1, max), max - 1);
    }

    #[test]
    fn the_kinds_have_their_places() {
        for (place, (event, _)) in KINDS.into_iter().enumerate() {
            assert_eq!(event as usize, place);
        }
    }
}
