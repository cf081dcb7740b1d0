//! Summary of source document 000: one setup on several machines, a column per machine, including the cost
//! of the requests of a day.

use crate::published::Source;
use crate::report::document::{Block, Entry, Folded, Row, Section, Table};
use crate::report::metric::Metric;
use crate::report::number;
use crate::report::view::{View, is_ours};
use crate::result::{Machine, Price, Run, Scenario};

/// Returns the summary of runs of one suite on several machines; `None` for a single machine.
pub(super) fn summary(runs: &[&Run], sources: &[Source]) -> Option<Section> {
    let first = runs.first()?;
    if runs
        .iter()
        .all(|run| run.machine.name == first.machine.name)
    {
        return None;
    }
    let shared = |name: &str| runs.iter().all(|run| most_loaded(run, name).is_some());
    let contenders = first.contenders.iter().filter(|facts| shared(&facts.name));
    let (mut blocks, mut folded) = (Vec::new(), Vec::new());
    for facts in contenders {
        let table = Block::Table(table(runs, &facts.name, sources));
        if is_ours(&facts.name) {
            blocks.extend([Block::Heading(facts.title.clone()), table]);
        } else {
            let summary = facts.title.clone();
            folded.push(Block::Folded(Folded {
                summary,
                blocks: vec![table],
            }));
        }
    }
    blocks.extend(folded);
    Some(Section {
        heading: format!("{}, by machine", first.suite),
        blocks,
    })
}

/// Column of a machine: name, facts, and figures under the heaviest load.
struct Column {
    name: String,
    facts: Vec<Entry>,
    figures: Vec<Entry>,
}

fn table(runs: &[&Run], contender: &str, sources: &[Source]) -> Table {
    let mut columns: Vec<Column> = runs
        .iter()
        .filter_map(|run| measured_column(run, contender))
        .collect();
    if is_ours(contender) || contender == "stunnel-busybox" {
        columns.extend(sources.iter().flat_map(published_columns));
    }
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(|column| column.name.clone()));
    let titles = FACTS
        .map(str::to_owned)
        .into_iter()
        .chain(METRICS.map(Metric::title));
    let titles = titles.chain(["requests/day per £, €, …".to_owned()]);
    let row = |(number, title): (usize, String)| {
        let mut cells = vec![Entry::new(title)];
        let of = |column: &Column| {
            let mut all = column.facts.iter().chain(&column.figures);
            all.nth(number).cloned().unwrap_or_else(Entry::none)
        };
        cells.extend(columns.iter().map(of));
        Row {
            cells,
            ..Row::default()
        }
    };
    let mut rows: Vec<Row> = titles.enumerate().map(row).collect();
    rows.retain(|row| row.cells.iter().skip(1).any(|entry| entry.text != "–"));
    Table {
        head,
        rows,
        ..Table::default()
    }
}

fn measured_column(run: &Run, contender: &str) -> Option<Column> {
    let scenario = most_loaded(run, contender)?;
    let view = View { run };
    let mut figures: Vec<Entry> = METRICS
        .iter()
        .map(|metric| view.entry(*metric, scenario, contender))
        .collect();
    let a_day = view.estimate(Metric::PerDay, scenario, contender);
    figures.push(match (&run.machine.price, a_day) {
        (Some(price), Some(a_day)) => Entry::new(for_money(a_day.median, price)),
        _ => Entry::none(),
    });
    let connections = scenario
        .number("connections")
        .map_or(scenario.title.clone(), number::whole);
    Some(Column {
        name: match view.standing(scenario, contender).mark() {
            Some(mark) => format!("{} ({mark})", run.machine.name),
            None => run.machine.name.clone(),
        },
        facts: facts(&run.machine, connections),
        figures,
    })
}

fn facts(machine: &Machine, connections: String) -> Vec<Entry> {
    let price = machine.price.as_ref().map_or("–".to_owned(), cost);
    let memory = number::memory(machine.memory_bytes);
    vec![
        format!("{} × {}", machine.cpus, machine.cpu).into(),
        machine.architecture.clone().into(),
        memory.into(),
        price.into(),
        connections.into(),
    ]
}

fn published_columns(source: &Source) -> Vec<Column> {
    let column = |figure: &crate::published::Figure| {
        let machine = source.machine_of(figure)?;
        let value = |metric: Metric| {
            figure
                .value(metric)
                .map_or(Entry::none(), |value| Entry::new(metric.format(value)))
        };
        let mut figures: Vec<Entry> = METRICS.into_iter().map(value).collect();
        let for_money = figure.values.get("requests_per_price");
        figures.push(for_money.map_or(Entry::none(), |value| Entry::new(number::whole(*value))));
        let connections = figure
            .scenario
            .get("connections")
            .map_or(String::new(), |_| figure.load());
        Some(Column {
            name: format!("{}: {}, published", machine.name, figure.title),
            facts: vec![
                machine.cpu.clone().into(),
                Entry::new(&machine.class),
                machine.memory.clone().into(),
                machine.price.as_ref().map_or("–".to_owned(), cost).into(),
                connections.into(),
            ],
            figures,
        })
    };
    source
        .figures
        .iter()
        .filter(|figure| figure.summary)
        .filter_map(column)
        .collect()
}

/// Returns the scenario with the most connections in which the contender was measured.
fn most_loaded<'r>(run: &'r Run, contender: &str) -> Option<&'r Scenario> {
    let view = View { run };
    let measured = view
        .scenarios()
        .into_iter()
        .filter(|scenario| view.cell(scenario, contender).is_some());
    let connections = |scenario: &Scenario| scenario.number("connections").unwrap_or(0.0);
    measured.max_by(|a, b| connections(a).total_cmp(&connections(b)))
}

/// Returns requests per day for each unit of the price.
pub(super) fn for_money(requests_a_day: f64, price: &Price) -> String {
    if price.amount > 0.0 {
        number::whole(requests_a_day / price.amount)
    } else {
        "–".to_owned()
    }
}

/// Formats a price: `£2,500`, `14.40 CHF`.
pub(super) fn cost(price: &Price) -> String {
    let amount = if price.amount.fract() == 0.0 {
        number::whole(price.amount)
    } else {
        format!("{:.2}", price.amount)
    };
    match currency(&price.currency) {
        sign if sign.chars().count() == 1 => format!("{sign}{amount}"),
        code => format!("{amount} {code}"),
    }
}

/// Returns the sign of a widely known currency, otherwise its code.
pub(super) fn currency(code: &str) -> &str {
    match code {
        "GBP" => "£",
        "EUR" => "€",
        "USD" => "$",
        other => other,
    }
}

const FACTS: [&str; 5] = [
    "processors",
    "architecture",
    "memory",
    "cost",
    "connections",
];
const METRICS: [Metric; 7] = [
    Metric::Rate,
    Metric::Percentile("50"),
    Metric::Percentile("99"),
    Metric::PerDay,
    Metric::Extra("temperature_celsius"),
    Metric::Memory,
    Metric::CpuShare,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_written_as_in_000() {
        let price = |amount: f64, currency: &str| Price {
            amount,
            currency: currency.to_owned(),
        };
        assert_eq!(cost(&price(2500.0, "GBP")), "£2,500");
        assert_eq!(cost(&price(14.4, "GBP")), "£14.40");
        assert_eq!(cost(&price(20.0, "CHF")), "20 CHF");
        assert_eq!(for_money(60_652_800.0, &price(96.0, "GBP")), "631,800");
        assert_eq!(for_money(1.0, &price(0.0, "GBP")), "–");
    }
}
