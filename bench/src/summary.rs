//! Tables for a terminal: the medians of a run, for those who don't make a report of it, and what
//! changed between two.

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

/// What changed from one run to another, cell by cell. Rounds of two runs were never side by side, so
/// only what is larger than the noise within both is called a change.
pub fn changes(before: &Run, after: &Run) -> String {
    let mut text = String::new();
    for scenario in &after.scenarios {
        let mut rows = String::new();
        for new in after
            .cells
            .iter()
            .filter(|cell| cell.scenario == scenario.id)
        {
            let same =
                |cell: &&Cell| cell.scenario == new.scenario && cell.contender == new.contender;
            if let Some(old) = before.cells.iter().find(same) {
                rows.push_str(&change(old, new));
            }
        }
        if !rows.is_empty() {
            text.push_str(&format!("\n{}\n{rows}", scenario.title));
        }
    }
    if text.is_empty() {
        text.push_str("The two have no scenario and contender in common.\n");
    }
    if before.machine != after.machine {
        text.push_str("\nThe machines are not the same: these are differences of machines too.\n");
    }
    text
}

fn change(old: &Cell, new: &Cell) -> String {
    let mut text = String::new();
    for (name, of) in COMPARED {
        let known = |cell: &Cell| cell.rounds.iter().filter_map(of).collect::<Vec<f64>>();
        let (old_values, new_values) = (known(old), known(new));
        let (Some(was), Some(is)) = (median(&old_values), median(&new_values)) else {
            continue;
        };
        let verdict = match (interval(&old_values), interval(&new_values)) {
            (Some(old), Some(new)) if old.high < new.low || new.high < old.low => "",
            (Some(_), Some(_)) => "within the noise",
            _ => "too few rounds to tell",
        };
        let percent = if was == 0.0 {
            0.0
        } else {
            (is / was - 1.0) * 100.0
        };
        text.push_str(&format!(
            "  {:<26}{name:<14}{was:>12.1} → {is:<12.1}{percent:>+8.1} %  {verdict}\n",
            new.contender
        ));
    }
    text
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

fn rate(round: &Round) -> Option<f64> {
    Some(round.rate())
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

/// A figure of a round, if it has it.
type Figure = fn(&Round) -> Option<f64>;

const COMPARED: [(&str, Figure); 4] = [
    ("requests/s", rate),
    ("µs CPU each", Round::server_us_per_request),
    ("p99 ms", p99),
    ("MB", memory),
];
