//! Section of imported results: a chart and a table per load generator, limited to the figures that the
//! generator printed.

use crate::report::document::Block;
use crate::report::metric::Metric;
use crate::report::tables;
use crate::report::view::View;
use crate::result::{ContenderFacts, Scenario};

/// Returns the blocks of a run.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let mut blocks = Vec::new();
    for scenario in view.scenarios() {
        blocks.push(Block::Heading(scenario.title.clone()));
        if view.contenders_in(scenario).len() > 1 {
            let mut bars = tables::bars(view, scenario, Metric::Rate);
            bars.in_markdown = true;
            blocks.push(Block::Bars(bars));
        }
        if SETTINGS
            .iter()
            .any(|setting| differs(view, scenario, *setting))
        {
            blocks.push(Block::Warning(UNEQUAL.to_owned()));
        }
        blocks.push(Block::Table(tables::scenario(view, scenario, &PRINTED)));
    }
    blocks
}

fn differs(view: View, scenario: &Scenario, setting: Metric) -> bool {
    let of = |facts: &ContenderFacts| {
        let estimate = view.estimate(setting, scenario, &facts.name);
        estimate.map(|estimate| estimate.median)
    };
    let mut values = view.contenders_in(scenario).into_iter().map(of);
    let first = values.next();
    values.any(|value| Some(value) != first)
}

const UNEQUAL: &str = "The settings differ: only rows with the same settings and lengths can be \
                       compared.";
const SETTINGS: [Metric; 4] = [
    Metric::Extra("connections"),
    Metric::Extra("threads"),
    Metric::Extra("users"),
    Metric::Extra("body_bytes"),
];
const PRINTED: [Metric; 15] = [
    Metric::Rate,
    Metric::Extra("connections"),
    Metric::Extra("threads"),
    Metric::Extra("users"),
    Metric::Extra("body_bytes"),
    Metric::Throughput,
    Metric::Mean,
    Metric::Percentile("50"),
    Metric::Percentile("90"),
    Metric::Percentile("95"),
    Metric::Percentile("99"),
    Metric::Longest,
    Metric::Extra("concurrency"),
    Metric::Failed,
    Metric::Extra("availability_percent"),
];
