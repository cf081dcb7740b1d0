//! The last lines on the terminal: a table of medians, for those who don't make a report of it.

use crate::agreement::{Agreement, agreements};
use crate::result::{Cell, Round, Run};
use crate::statistics::{compare, interval, median};

/// One table for each scenario, fastest first by CPU time for each request, where that is known.
pub fn text(run: &Run) -> String {
    let mut text = String::new();
    for scenario in &run.scenarios {
        let cells = run.cells.iter().filter(|cell| cell.scenario == scenario.id);
        let mut rows: Vec<(&Cell, f64)> = cells
            .filter_map(|cell| Some((cell, median(&values(cell, Round::rate))?)))
            .collect();
        rows.sort_by(|a, b| b.1.total_cmp(&a.1));
        if rows.is_empty() {
            continue;
        }
        if rows.iter().all(|(cell, _)| loads_pages(cell)) {
            text.push_str(&pages(&scenario.title, &rows));
            continue;
        }
        text.push_str(&format!(
            "\n{}\n  {:<26}{:>12}{:>21}{:>12}{:>10}{:>10}\n",
            scenario.title, "", "requests/s", "interval", "µs CPU each", "p99 ms", "MB"
        ));
        for (nth, (cell, rate)) in rows.iter().enumerate() {
            let before = nth.checked_sub(1).map(|before| rows[before].0);
            text.push_str(&row(cell, *rate, before));
        }
    }
    text
}

fn loads_pages(cell: &Cell) -> bool {
    cell.rounds
        .iter()
        .all(|round| round.extra.contains_key(LOAD))
}

/// A browser's figures: what one visitor waits for.
fn pages(title: &str, rows: &[(&Cell, f64)]) -> String {
    let mut text = format!(
        "\n{title}\n  {:<26}{:>20}{:>12}\n",
        "", "DOMContentLoaded ms", "load ms"
    );
    for (cell, _) in rows {
        let of = |name: &str| {
            let known = cell
                .rounds
                .iter()
                .filter_map(|round| round.extra.get(name).copied());
            let known: Vec<f64> = known.collect();
            median(&known).map_or("–".to_owned(), |value| format!("{value:.1}"))
        };
        let (parsed, loaded) = (of("dom_content_loaded_ms"), of(LOAD));
        text.push_str(&format!(
            "  {:<26}{parsed:>20}{loaded:>12}\n",
            cell.contender
        ));
    }
    text
}

/// Of the suite that has our generator beside wrk: how far they agree; empty of any other.
pub fn agreement(run: &Run) -> String {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let line = |agreement: Agreement| {
        let (found, ours, wrks) = (agreement.found, agreement.ours, agreement.wrks);
        format!(
            "\n{}, {}: ours to wrk {:+.1} % ({:+.1} to {:+.1}, {:.0} % sure, {} pairs): {}\n  busy: \
             the server {:.0} % and {:.0} %, our generator {:.0} %, wrk {:.0} %\n",
            agreement.contender,
            agreement.protocol,
            percent(found.ratio),
            percent(found.low),
            percent(found.high),
            found.confidence * 100.0,
            agreement.pairs,
            agreement.verdict().words(),
            ours.server * 100.0,
            wrks.server * 100.0,
            ours.client * 100.0,
            wrks.client * 100.0,
        )
    };
    agreements(run).into_iter().map(line).collect()
}

fn row(cell: &Cell, rate: f64, before: Option<&Cell>) -> String {
    let rates = values(cell, Round::rate);
    let interval = interval(&rates).map_or(String::new(), |interval| {
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
    let compared = before.and_then(|before| compare(&rates, &values(before, Round::rate)));
    let remark = compared.map_or("", |compared| compared.verdict.remark());
    let remark = if remark.is_empty() {
        String::new()
    } else {
        format!("  (to the one above: {remark})")
    };
    format!(
        "  {:<26}{rate:>12.0}{interval:>21}{:>12}{:>10}{:>10}{remark}\n",
        cell.contender,
        of(Round::server_us_per_request),
        of(p99),
        of(memory)
    )
}

fn values(cell: &Cell, value: fn(&Round) -> f64) -> Vec<f64> {
    cell.rounds.iter().map(value).collect()
}

fn p99(round: &Round) -> Option<f64> {
    Some(round.latency.as_ref()?.percentiles_us.get("99")? / 1e3)
}

fn memory(round: &Round) -> Option<f64> {
    match round.server.peak_pss_bytes {
        0 => None,
        bytes => Some(bytes as f64 / 1e6),
    }
}

/// What only rounds of the page suite have.
const LOAD: &str = "load_ms";
