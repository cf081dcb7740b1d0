//! Section of source documents 000 and 001: a table with a row per metric and a column per setup, latency
//! by percentile, requests per CPU second and per unit of money, and the variance between two setups.

use crate::published::{NamedFigure, Source};
use crate::report::document::{Block, Entry, Row, Table};
use crate::report::metric::Metric;
use crate::report::view::View;
use crate::report::{machines, percentiles, tables, variance};
use crate::result::{ContenderFacts, Scenario};

/// Returns the blocks of a run.
pub(super) fn blocks(view: View, sources: &[Source]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for scenario in view.scenarios() {
        let published = published(scenario, sources);
        blocks.push(Block::Heading(scenario.title.clone()));
        blocks.push(Block::Table(setups(view, scenario, &published)));
        blocks.extend(percentiles::curves(view, scenario, &published).map(Block::Curves));
        blocks.extend(tables::bar_blocks(
            view,
            scenario,
            &[Metric::PerCpuSecond, Metric::Memory],
        ));
        blocks.extend(variance::of_setups(view, scenario).map(Block::Table));
    }
    blocks
}

/// Returns the figures published for the same load, each with name and machine.
fn published(scenario: &Scenario, sources: &[Source]) -> Vec<NamedFigure> {
    let mut found: Vec<NamedFigure> = Vec::new();
    for source in sources {
        for figure in &source.figures {
            let is_about = figure.is_about("journal", scenario, &figure.contender);
            let machine = source
                .machine_of(figure)
                .map_or("", |machine| &machine.name);
            let name = format!("{}, {machine}, published", figure.title);
            // Document 000 repeats a setup of 001.
            if is_about && !found.iter().any(|known| known.name == name) {
                let figure = figure.clone();
                found.push(NamedFigure { name, figure });
            }
        }
    }
    found
}

/// Returns the table with a row per metric and a column per setup.
fn setups(view: View, scenario: &Scenario, published: &[NamedFigure]) -> Table {
    let contenders = view.contenders_in(scenario);
    let mut head = vec![String::new()];
    head.extend(
        contenders
            .iter()
            .map(|facts| view.marked(&[scenario], facts)),
    );
    head.extend(published.iter().map(|it| it.name.clone()));
    let metrics = tables::present(view, &[scenario], &METRICS);
    let mut rows: Vec<Row> = metrics
        .into_iter()
        .map(|metric| row(view, scenario, metric, &contenders, published))
        .collect();
    rows.extend(for_money(view, scenario, &contenders, published));
    let ours = contenders
        .iter()
        .position(|facts| crate::report::view::is_ours(&facts.name));
    Table {
        head,
        rows,
        our_columns: Vec::from_iter(ours.map(|place| place + 1)),
        ..Table::default()
    }
}

fn row(
    view: View,
    scenario: &Scenario,
    metric: Metric,
    contenders: &[&ContenderFacts],
    published: &[NamedFigure],
) -> Row {
    let mut cells = vec![Entry::new(metric.title())];
    cells.extend(
        contenders
            .iter()
            .map(|facts| view.entry(metric, scenario, &facts.name)),
    );
    cells.extend(published.iter().map(|it| {
        it.figure
            .value(metric)
            .map_or(Entry::none(), |value| Entry::new(metric.format(value)))
    }));
    Row {
        cells,
        ..Row::default()
    }
}

/// Returns the row of requests per day and unit of the machine's price, if the price is known.
fn for_money(
    view: View,
    scenario: &Scenario,
    contenders: &[&ContenderFacts],
    published: &[NamedFigure],
) -> Option<Row> {
    let price = view.run.machine.price.as_ref()?;
    let mut cells = vec![Entry::new(format!(
        "requests/day per {}",
        machines::currency(&price.currency)
    ))];
    cells.extend(contenders.iter().map(|facts| {
        let a_day = view.estimate(Metric::PerDay, scenario, &facts.name);
        a_day.map_or(Entry::none(), |found| {
            machines::for_money(found.median, price).into()
        })
    }));
    cells.extend(published.iter().map(|it| {
        let value = it.figure.values.get("requests_per_price");
        value.map_or(Entry::none(), |value| {
            Entry::new(crate::report::number::whole(*value))
        })
    }));
    Some(Row {
        cells,
        ..Row::default()
    })
}

const METRICS: [Metric; 15] = [
    Metric::Rate,
    Metric::Throughput,
    Metric::Percentile("50"),
    Metric::Percentile("75"),
    Metric::Percentile("90"),
    Metric::Percentile("99"),
    Metric::Percentile("99.9"),
    Metric::Longest,
    Metric::Failed,
    Metric::CpuShare,
    Metric::CpuPerRequest,
    Metric::PerCpuSecond,
    Metric::Memory,
    Metric::Extra("temperature_celsius"),
    Metric::PerDay,
];
