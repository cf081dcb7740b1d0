//! Section of source document 000's second table: a page in a browser, with a row per metric and columns
//! for each server, cold and cached.

use crate::report::document::{Block, Entry, Row, Table};
use crate::report::metric::Metric;
use crate::report::tables;
use crate::report::view::{View, is_ours};
use crate::result::{ContenderFacts, Scenario};

/// Returns the blocks of a run.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let mut blocks = vec![Block::Table(table(view)), Block::Text(MEANING.into())];
    for scenario in view.scenarios() {
        let mut bars = tables::bars(view, scenario, Metric::Extra("load_ms"));
        bars.caption = format!("Load (less is better): {}", scenario.title);
        blocks.push(Block::Bars(bars));
    }
    blocks
}

/// Returns the table with a row per metric and columns for each server, cold and cached.
pub(crate) fn table(view: View) -> Table {
    let scenarios = view.scenarios();
    let mut columns = Vec::new();
    for facts in view.contenders() {
        let measured = scenarios
            .iter()
            .filter(|scenario| view.cell(scenario, &facts.name).is_some());
        columns.extend(measured.map(|scenario| (facts, *scenario)));
    }
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(|(facts, scenario)| {
        let cache = scenario.word("cache").unwrap_or(&scenario.title);
        format!("{}, {cache}", view.marked(&[scenario], facts))
    }));
    let row = |metric: Metric| {
        let mut cells = vec![Entry::new(metric.title())];
        cells.extend(
            columns
                .iter()
                .map(|(facts, scenario)| view.entry(metric, scenario, &facts.name)),
        );
        Row {
            cells,
            ..Row::default()
        }
    };
    let is_ours = |(place, (facts, _)): (usize, &(&ContenderFacts, &Scenario))| {
        is_ours(&facts.name).then_some(place + 1)
    };
    let ours = columns.iter().enumerate().filter_map(is_ours).collect();
    Table {
        head,
        rows: tables::present(view, &scenarios, &METRICS)
            .into_iter()
            .map(row)
            .collect(),
        our_columns: ours,
        ..Table::default()
    }
}

const METRICS: [Metric; 7] = [
    Metric::Extra("requests"),
    Metric::Extra("from_cache"),
    Metric::Extra("transferred_bytes"),
    Metric::Extra("resource_bytes"),
    Metric::Extra("finish_ms"),
    Metric::Extra("dom_content_loaded_ms"),
    Metric::Extra("load_ms"),
];
const MEANING: &str = "Cold: nothing cached, no connection yet. Cached: the page loaded again, all but the HTML from the browser's cache. Times count from the start of the navigation; finish is the end of the last transfer.";
