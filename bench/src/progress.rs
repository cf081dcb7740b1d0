//! What is shown while a run goes on: on a terminal a bar with the time that is left, elsewhere a
//! plain line for each round, so that a log of a run can be read.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::result::Round;

/// Where a run stands, and to whom it is shown.
pub struct Progress {
    shown: Shown,
    done: usize,
    total: usize,
    begun: Instant,
}

enum Shown {
    /// A bar in the last line of a terminal of that width, drawn over and over.
    Bar { width: usize },
    /// A line for each round.
    Lines,
    /// Nothing but warnings, which tests and `--silent` want.
    Nothing,
}

/// What is being measured.
#[derive(Debug, Clone, Copy)]
pub struct Step<'s> {
    /// The scenario's identifier.
    pub scenario: &'s str,
    /// The contender's name.
    pub contender: &'s str,
    /// From 0.
    pub round: u32,
    /// How many there will be.
    pub rounds: u32,
}

impl Progress {
    /// On standard error: a bar if that is a terminal.
    pub fn on_stderr() -> Progress {
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

    /// Shows only what went wrong.
    pub fn silent() -> Progress {
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

    /// A run of so many rounds begins.
    pub fn begin(&mut self, total: usize) {
        (self.done, self.total, self.begun) = (0, total, Instant::now());
    }

    /// A round begins.
    pub fn step(&mut self, step: Step<'_>) {
        if let Shown::Bar { width } = self.shown {
            let left = time_left(self.begun.elapsed(), self.done, self.total);
            let bar = bar(width, self.done, self.total, left, step);
            say(&format!("\r\x1b[K{bar}"));
        }
    }

    /// A round was measured.
    pub fn measured(&mut self, step: Step<'_>, round: &Round) {
        self.done += 1;
        if matches!(self.shown, Shown::Lines) {
            let (done, total) = (self.done, self.total);
            say(&format!("[{done}/{total}] {}\n", line(step, round)));
        }
    }

    /// So many rounds will not take place.
    pub fn skip(&mut self, rounds: usize) {
        self.done += rounds;
    }

    /// Something that the user should know, now.
    pub fn warn(&mut self, text: &str) {
        let clear = if matches!(self.shown, Shown::Bar { .. }) {
            "\r\x1b[K"
        } else {
            ""
        };
        say(&format!("{clear}{text}\n"));
    }

    /// The run is over: the bar goes.
    pub fn end(&mut self) {
        if matches!(self.shown, Shown::Bar { .. }) {
            say("\r\x1b[K");
        }
    }
}

/// If nobody listens on standard error, nobody is told.
fn say(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// As long for each of the rest as for each so far; unknown until something is done.
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
    // A line that wraps can't be drawn over.
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
    // A browser's round is one load of a page.
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
    fn the_rest_takes_as_long_as_the_past() {
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
    fn a_line_names_what_failed() {
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
