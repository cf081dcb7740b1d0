//! Summary printed at the end of a run: tables of medians for the terminal.

use crate::agreement::{Agreement, agreements};
use crate::result::{Cell, Round, Run};
use crate::soundness::Standing;
use crate::statistics::{Numbered, compare_rounds, interval, median};

/// Returns one table per scenario: sound contenders first, fastest first, then contenders that refused
/// requests, then contenders that failed in part.
pub(crate) fn text(run: &Run) -> String {
    let mut text = String::new();
    for scenario in &run.scenarios {
        let cells = run.cells.iter().filter(|cell| cell.scenario == scenario.id);
        let mut rows: Vec<Row> = cells.filter_map(|cell| Row::of(run, cell)).collect();
        if rows.is_empty() {
            continue;
        }
        if rows.iter().all(|row| loads_pages(row.cell)) {
            text.push_str(&pages(&scenario.title, &mut rows));
            continue;
        }
        rows.sort_by(|a, b| {
            let order = a.standing.rank().cmp(&b.standing.rank());
            order.then(b.rate.total_cmp(&a.rate))
        });
        let failures = rows.iter().any(|row| failed(row.cell) > 0);
        let head = if failures { "failed" } else { "" };
        let added = if rows.iter().any(|row| has_added(row.cell)) {
            format!("{:>14}", "added p99 ms")
        } else {
            String::new()
        };
        let head = format!(
            "  {:<26}{:>12}{:>21}{:>12}{:>10}{added}{:>10}{head:>18}",
            "", "requests/s", "interval", "µs CPU each", "p99 ms", "MB"
        );
        text.push_str(&format!("\n{}\n{}\n", scenario.title, head.trim_end()));
        for (nth, row) in rows.iter().enumerate() {
            let before = nth.checked_sub(1).map(|before| &rows[before]);
            let before = before.filter(|before| before.standing != Standing::Failed);
            let line = row.line(before, failures);
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    text
}

/// Figures of a contender in a scenario.
struct Row<'r> {
    cell: &'r Cell,
    /// Median of the requests/s.
    rate: f64,
    standing: Standing,
}

impl Row<'_> {
    /// Returns the row of a cell; `None` if the cell has no rounds.
    fn of<'r>(run: &Run, cell: &'r Cell) -> Option<Row<'r>> {
        Some(Row {
            cell,
            rate: median(&values(cell, Round::rate))?,
            standing: Standing::of(run, cell),
        })
    }

    /// Formats the row. `before` is the row above, unless its contender failed.
    fn line(&self, before: Option<&Row>, failures: bool) -> String {
        let Row {
            cell,
            rate,
            standing,
        } = self;
        let interval = interval(&values(cell, Round::rate)).map_or(String::new(), |interval| {
            format!(
                "{:.0}–{:.0} ({:.0} %)",
                interval.low,
                interval.high,
                interval.confidence * 100.0
            )
        });
        let of = |value: fn(&Round) -> Option<f64>| {
            let known: Vec<f64> = cell.rounds.iter().filter_map(value).collect();
            median(&known).map_or("–".to_owned(), |value| format!("{value:.1}"))
        };
        let compared = before.and_then(|before| compare_rounds(&rates(cell), &rates(before.cell)));
        let remark = match (
            standing.mark(),
            compared.map_or("", |compared| compared.remark()),
        ) {
            (Some(mark), _) => format!("  {mark}"),
            (None, "") => String::new(),
            (None, remark) => format!("  (compared with the row above: {remark})"),
        };
        let failed = match (failures, failed(cell)) {
            (false, _) => String::new(),
            (true, 0) => format!("{:>18}", "–"),
            (true, failed) => {
                let asked = failed + cell.rounds.iter().map(|round| round.requests).sum::<u64>();
                let share = failed as f64 / asked as f64 * 100.0;
                format!("{:>18}", format!("{failed} ({share:.2} %)"))
            }
        };
        let added = if has_added(cell) {
            format!("{:>14}", of(added_p99))
        } else {
            String::new()
        };
        format!(
            "  {:<26}{rate:>12.0}{interval:>21}{:>12}{:>10}{added}{:>10}{failed}{remark}",
            cell.contender,
            of(Round::server_us_per_request),
            of(p99),
            of(memory)
        )
    }
}

/// Returns the number of failures of all rounds and kinds.
fn failed(cell: &Cell) -> u64 {
    cell.rounds.iter().map(Round::failed).sum()
}

fn loads_pages(cell: &Cell) -> bool {
    cell.rounds
        .iter()
        .all(|round| round.extra.contains_key(LOAD))
}

/// Returns the table of the page suite: load times as seen by one visitor, shortest first.
fn pages(title: &str, rows: &mut [Row]) -> String {
    let mut text = format!(
        "\n{title}\n  {:<26}{:>20}{:>12}\n",
        "", "DOMContentLoaded ms", "load ms"
    );
    let of = |cell: &Cell, name: &str| {
        let known = cell.rounds.iter();
        let known = known.filter_map(|round| round.extra.get(name).copied());
        median(&known.collect::<Vec<f64>>()).unwrap_or(f64::INFINITY)
    };
    rows.sort_by(|a, b| {
        let order = a.standing.rank().cmp(&b.standing.rank());
        order.then(of(a.cell, LOAD).total_cmp(&of(b.cell, LOAD)))
    });
    for Row { cell, standing, .. } in rows {
        let (parsed, loaded) = (of(cell, "dom_content_loaded_ms"), of(cell, LOAD));
        let mark = standing.mark().unwrap_or_default();
        let line = format!(
            "  {:<26}{parsed:>20.1}{loaded:>12.1}  {mark}",
            cell.contender
        );
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    text
}

/// Returns the agreement between the kit's load generator and wrk; empty for other suites.
pub(crate) fn agreement(run: &Run) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let line = |agreement: Agreement| {
        let (found, ours, wrks) = (agreement.found, agreement.ours, agreement.wrks);
        format!(
            "\n{}, {}: our generator against wrk {:+.1} % ({:+.1} to {:+.1}, {:.0} % confidence, {}): {}\n  \
             CPU use: server {:.0} % (our generator) and {:.0} % (wrk), our generator {:.0} %, wrk {:.0} %\n",
            agreement.contender,
            agreement.protocol,
            percent(found.ratio),
            percent(found.low),
            percent(found.high),
            found.confidence * 100.0,
            agreement.pairs_in_words(),
            agreement.verdict().words(),
            ours.server * 100.0,
            wrks.server * 100.0,
            ours.client * 100.0,
            wrks.client * 100.0,
        )
    };
    agreements(run).into_iter().map(line).collect()
}

fn values(cell: &Cell, value: fn(&Round) -> f64) -> Vec<f64> {
    cell.rounds.iter().map(value).collect()
}

fn rates(cell: &Cell) -> Vec<Numbered> {
    let rounds = cell.rounds.iter();
    rounds.map(|round| (round.number, round.rate())).collect()
}

fn p99(round: &Round) -> Option<f64> {
    Some(round.latency.as_ref()?.percentiles_us.get("99")? / 1e3)
}

/// Returns the added latency of a balancer in milliseconds, if measured.
fn added_p99(round: &Round) -> Option<f64> {
    Some(round.extra.get("added_p99_us")? / 1e3)
}

fn has_added(cell: &Cell) -> bool {
    cell.rounds.iter().any(|round| added_p99(round).is_some())
}

fn memory(round: &Round) -> Option<f64> {
    match round.server.peak_pss_bytes {
        0 => None,
        bytes => Some(bytes as f64 / 1e6),
    }
}

/// Name of a value present only in rounds of the page suite.
const LOAD: &str = "load_ms";
