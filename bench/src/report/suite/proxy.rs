//! Section of the balancers: CPU per request and memory over all scenarios, then each scenario with its latency
//! and the latency added to that of a member.

use crate::report::document::Block;
use crate::report::metric::Metric;
use crate::report::tables;
use crate::report::view::View;
use crate::result::Scenario;

/// Returns the blocks of a run.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let mut blocks = overview(view);
    for scenario in view.scenarios() {
        blocks.push(Block::Heading(scenario.title.clone()));
        blocks.extend(tables::bar_blocks(view, scenario, &BARS));
        let table = tables::scenario(view, scenario, &METRICS);
        blocks.push(Block::Table(table));
    }
    blocks
}

/// Returns a table for each main metric, with a row per scenario and a column per contender.
pub(crate) fn overview(view: View) -> Vec<Block> {
    let scenarios = view.scenarios();
    let table = |metric: Metric| {
        let measured = |scenario: &&Scenario| view.has(metric, &[scenario]);
        let scenarios: Vec<&Scenario> = scenarios.iter().copied().filter(measured).collect();
        let table = || Block::Table(tables::metric(view, &scenarios, metric));
        (!scenarios.is_empty()).then(table)
    };
    OVERVIEW.into_iter().filter_map(table).collect()
}

const OVERVIEW: [Metric; 5] = [
    Metric::CpuPerRequest,
    Metric::Rate,
    Metric::Percentile("99"),
    ADDED,
    Metric::Memory,
];
/// No bar for the added latency: noise makes a small difference negative.
const BARS: [Metric; 2] = [Metric::CpuPerRequest, Metric::Memory];
const METRICS: [Metric; 11] = [
    Metric::CpuPerRequest,
    Metric::Rate,
    Metric::CpuShare,
    Metric::Memory,
    Metric::Percentile("50"),
    Metric::Percentile("99"),
    Metric::Extra("added_p50_us"),
    ADDED,
    Metric::Extra("direct_p99_us"),
    Metric::Longest,
    Metric::Failed,
];
const ADDED: Metric = Metric::Extra("added_p99_us");
