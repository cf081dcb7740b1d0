//! Progress display of a run: a bar with the remaining time on a terminal, otherwise a plain line per
//! round, so that the log of a run is readable.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::result::Round;

/// Progress of a run and the form of its display.
pub(crate) struct Progress {
    shown: Shown,
    done: usize,
    total: usize,
    begun: Instant,
}

enum Shown {
    /// A bar in the last line of a terminal of the given width, redrawn in place.
    Bar { width: usize },
    /// A line per round.
    Lines,
    /// Warnings only, for tests and `--silent`.
    Nothing,
}

/// The measurement in progress.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'s> {
    /// The scenario's identifier.
    pub scenario: &'s str,
    /// The contender's name.
    pub contender: &'s str,
    /// Number of the round, from 0.
    pub round: u32,
    /// Number of rounds in total.
    pub rounds: u32,
}

impl Progress {
    /// Returns a display on standard error: a bar if standard error is a terminal.
    pub(crate) fn on_stderr() -> Progress {
        let terminal = std::io::stderr();
        let shown = if terminal.is_terminal() {
            let size = rustix::termios::tcgetwinsize(&terminal);
            let width = size.map_or(80, |size| usize::from(size.ws_col).max(40));
            Shown::Bar { width }
        } else {
            Shown::Lines
        };
        Progress::new(shown)
    }

    /// Returns a display that shows warnings only.
    pub(crate) fn silent() -> Progress {
        Progress::new(Shown::Nothing)
    }

    fn new(shown: Shown) -> Progress {
        Progress {
            shown,
            done: 0,
            total: 0,
            begun: Instant::now(),
        }
    }

    /// Starts the display of a run of `total` rounds.
    pub(crate) fn begin(&mut self, total: usize) {
        (self.done, self.total, self.begun) = (0, total, Instant::now());
    }

    /// Shows the beginning of a round.
    pub(crate) fn step(&mut self, step: Step<'_>) {
        if let Shown::Bar { width } = self.shown {
            let left = time_left(self.begun.elapsed(), self.done, self.total);
            let bar = bar(width, self.done, self.total, left, step);
            say(&format!("\r\x1b[K{bar}"));
        }
    }

    /// Counts a measured round and shows its figures.
    pub(crate) fn measured(&mut self, step: Step<'_>, round: &Round) {
        self.done += 1;
        if matches!(self.shown, Shown::Lines) {
            let (done, total) = (self.done, self.total);
            say(&format!("[{done}/{total}] {}\n", line(step, round)));
        }
    }

    /// Counts rounds that will not take place.
    pub(crate) fn skip(&mut self, rounds: usize) {
        self.done += rounds;
    }

    /// Shows a warning immediately.
    pub(crate) fn warn(&mut self, text: &str) {
        let clear = if matches!(self.shown, Shown::Bar { .. }) {
            "\r\x1b[K"
        } else {
            ""
        };
        say(&format!("{clear}{text}\n"));
    }

    /// Ends the display: a bar is removed.
    pub(crate) fn end(&mut self) {
        if matches!(self.shown, Shown::Bar { .. }) {
            say("\r\x1b[K");
        }
    }
}

/// Writes to standard error. Errors are ignored: a closed standard error must not end the run.
fn say(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Estimates the remaining time from the mean duration of the finished rounds; `None` before the first.
fn time_left(spent: Duration, done: usize, total: usize) -> Option<Duration> {
    let each = spent.checked_div(u32::try_from(done).ok()?)?;
    Some(each * u32::try_from(total.saturating_sub(done)).ok()?)
}

fn bar(width: usize, done: usize, total: usize, left: Option<Duration>, step: Step<'_>) -> String {
    const CELLS: usize = 24;
    let full = CELLS * done / total.max(1);
    let left = left.map_or("…".to_owned(), |left| {
        let seconds = left.as_secs();
        format!("{}:{:02} left", seconds / 60, seconds % 60)
    });
    let text = format!(
        "{}{} {done}/{total}, {left}  {} · {} · round {} of {}",
        "█".repeat(full.min(CELLS)),
        "░".repeat(CELLS - full.min(CELLS)),
        step.scenario,
        step.contender,
        step.round + 1,
        step.rounds,
    );
    // A wrapped line could not be redrawn in place.
    text.chars().take(width.saturating_sub(1)).collect()
}

fn line(step: Step<'_>, round: &Round) -> String {
    let mut line = format!(
        "{} · {} · round {} of {}: ",
        step.scenario,
        step.contender,
        step.round + 1,
        step.rounds,
    );
    let extra = |name: &str| round.extra.get(name).copied();
    // A round of the page suite is one page load in a browser.
    if let Some(load) = extra("load_ms") {
        let parsed = extra("dom_content_loaded_ms").unwrap_or_default();
        line.push_str(&format!(
            "load {load:.1} ms, DOMContentLoaded {parsed:.1} ms"
        ));
        return line;
    }
    line.push_str(&format!("{:.0} requests/s", round.rate()));
    if let Some(us) = round.server_us_per_request() {
        line.push_str(&format!(", {us:.1} µs CPU each"));
    }
    let latency = round.latency.as_ref();
    if let Some(p99) = latency.and_then(|latency| latency.percentiles_us.get("99")) {
        line.push_str(&format!(", p99 {:.2} ms", p99 / 1e3));
    }
    for (kind, count) in &round.failures {
        line.push_str(&format!(", {count} {kind} failures"));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STEP: Step<'static> = Step {
        scenario: "tls-1500",
        contender: "nginx",
        round: 1,
        rounds: 5,
    };

    #[test]
    fn remaining_rounds_are_estimated_by_the_finished_ones() {
        let spent = Duration::from_secs(30);
        assert_eq!(time_left(spent, 3, 9), Some(Duration::from_secs(60)));
        assert_eq!(time_left(spent, 0, 9), None);
        assert_eq!(time_left(spent, 9, 9), Some(Duration::ZERO));
    }

    #[test]
    fn the_bar_fits_its_line() {
        let left = Some(Duration::from_secs(125));
        let wide = bar(200, 5, 10, left, STEP);
        assert!(wide.starts_with("████████████░░░░░░░░░░░░ 5/10, 2:05 left"));
        assert!(wide.ends_with("tls-1500 · nginx · round 2 of 5"));
        assert_eq!(bar(40, 5, 10, left, STEP).chars().count(), 39);
    }

    #[test]
    fn a_line_names_the_kinds_of_failure() {
        let round = Round {
            seconds: 2.0,
            requests: 1_000,
            failures: BTreeMap::from([("timeout".to_owned(), 7)]),
            ..Round::default()
        };
        let line = line(STEP, &round);
        assert!(
            line.starts_with("tls-1500 · nginx · round 2 of 5: 500 requests/s"),
            "{line}"
        );
        assert!(line.ends_with("7 timeout failures"), "{line}");
    }

    #[test]
    fn a_page_has_load_times_and_no_rate() {
        let extra = [("load_ms", 102.34), ("dom_content_loaded_ms", 88.0)];
        let round = Round {
            seconds: 0.1,
            requests: 5,
            extra: extra.map(|(key, value)| (key.to_owned(), value)).into(),
            ..Round::default()
        };
        assert_eq!(
            line(STEP, &round),
            "tls-1500 · nginx · round 2 of 5: load 102.3 ms, DOMContentLoaded 88.0 ms"
        );
    }
}
