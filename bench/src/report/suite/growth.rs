//! Section of source document 004: figures over the number of users and of nodes. The section also covers
//! the document's comparison of Apache with nginx, with rising numbers of users over three kinds of page.

use crate::report::axis::Scale;
use crate::report::document::{Block, Curve, Curves, Folded, Point};
use crate::report::metric::{Estimate, Metric};
use crate::report::number;
use crate::report::tables;
use crate::report::view::View;
use crate::result::{ContenderFacts, Scenario};

/// Returns the blocks of a run; `other` is the parameter that varies besides the users.
pub(super) fn blocks(view: View, other: &str) -> Vec<Block> {
    let mut blocks = charts(view, "users", Metric::Rate);
    for metric in [Metric::Mean, Metric::Longest, Metric::Availability] {
        blocks.extend(folded_charts(view, "users", metric));
    }
    if other == "nodes" {
        let mut by_nodes = charts(view, "nodes", Metric::Rate);
        // The last chart has the most users and shows the effect of more nodes; few users do not need many
        // nodes.
        blocks.extend(by_nodes.pop());
        if !by_nodes.is_empty() {
            let summary = "Requests/s by nodes, with fewer users".to_owned();
            blocks.push(Block::Folded(Folded {
                summary,
                blocks: by_nodes,
            }));
        }
        blocks.extend(folded_charts(view, "nodes", Metric::Shortest));
        blocks.extend(folded_charts(view, "nodes", Metric::Longest));
    }
    let scenarios = view.scenarios();
    for metric in tables::present(view, &scenarios, &METRICS) {
        let table = Block::Table(tables::metric(view, &scenarios, metric));
        if IN_SIGHT.contains(&metric) {
            blocks.push(table);
        } else {
            let summary = format!("Table: {}", tables::caption(metric));
            blocks.push(Block::Folded(Folded {
                summary,
                blocks: vec![table],
            }));
        }
    }
    blocks
}

/// Returns a chart per group of scenarios that differ only in `key`; charts of more users come last.
fn charts(view: View, key: &str, metric: Metric) -> Vec<Block> {
    let mut groups = view.groups_over(key);
    let users = |group: &Vec<&Scenario>| {
        group
            .first()
            .and_then(|scenario| scenario.number("users"))
            .unwrap_or(0.0)
    };
    if key != "users" {
        groups.sort_by(|a, b| users(a).total_cmp(&users(b)));
    }
    groups
        .iter()
        .filter_map(|group| over(view, group, key, metric))
        .map(Block::Curves)
        .collect()
}

fn folded_charts(view: View, key: &str, metric: Metric) -> Option<Block> {
    let blocks = charts(view, key, metric);
    let summary = format!("{} by {key}", tables::caption(metric));
    (!blocks.is_empty()).then_some(Block::Folded(Folded { summary, blocks }))
}

/// Returns a chart of a metric over the parameter `key`; `None` for a single scenario, and for availability
/// without any failure.
fn over(view: View, group: &[&Scenario], key: &str, metric: Metric) -> Option<Curves> {
    if group.len() < 2 {
        return None;
    }
    let measured: Vec<(&ContenderFacts, Vec<(f64, Estimate)>)> = view
        .contenders()
        .into_iter()
        .map(|facts| (facts, values(view, group, key, metric, facts)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let all = || measured.iter().flat_map(|(_, values)| values);
    if all().next().is_none()
        || (metric == Metric::Availability && all().all(|(_, e)| e.median >= 100.0))
    {
        return None;
    }
    let values_of = all().flat_map(|(_, estimate)| [estimate.median, estimate.ends().1]);
    // Rates are compared by their largest values, times by their ratios.
    let up = match metric {
        Metric::Rate | Metric::Availability => Scale::linear(values_of),
        _ => Scale::fitting(values_of),
    };
    let places: Vec<f64> = group
        .iter()
        .filter_map(|scenario| scenario.number(key))
        .collect();
    let curve = |(facts, values): &(&ContenderFacts, Vec<(f64, Estimate)>)| Curve {
        series: view.marked_series(group, facts),
        points: values
            .iter()
            .map(|(at, found)| {
                let here: Vec<&Scenario> = group
                    .iter()
                    .copied()
                    .filter(|scenario| scenario.number(key) == Some(*at))
                    .collect();
                let name = view.marked(&here, facts);
                let (low, high) = found.ends();
                Point {
                    across: place(*at, &places),
                    up: up.place(found.median),
                    whisker: found.interval.map(|_| (up.place(low), up.place(high))),
                    text: format!(
                        "{name}, {} {key}: {}",
                        number::whole(*at),
                        metric.format(found.median)
                    ),
                }
            })
            .collect(),
        marked: true,
    };
    let mut across = up.axis(key, |_| String::new());
    across.ticks = places
        .iter()
        .map(|at| (place(*at, &places), number::whole(*at)))
        .collect();
    let name = view.name_of(group);
    let of = if name.is_empty() {
        String::new()
    } else {
        format!(": {name}")
    };
    Some(Curves {
        caption: format!("{} by {key}{of}", tables::caption(metric)),
        across,
        up: up.axis("", |value| tick(metric, value)),
        curves: measured.iter().map(curve).collect(),
    })
}

fn values(
    view: View,
    group: &[&Scenario],
    key: &str,
    metric: Metric,
    facts: &ContenderFacts,
) -> Vec<(f64, Estimate)> {
    let value = |scenario: &&Scenario| {
        Some((
            scenario.number(key)?,
            view.estimate(metric, scenario, &facts.name)?,
        ))
    };
    group.iter().filter_map(value).collect()
}

/// Returns the position of a load on the axis: loads grow by factors, so the steps are equally wide.
fn place(value: f64, places: &[f64]) -> f64 {
    let last = places.len().saturating_sub(1).max(1) as f64;
    let number = places.iter().position(|place| *place == value).unwrap_or(0);
    number as f64 / last
}

fn tick(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Rate => number::short(value),
        Metric::Availability => format!("{} %", number::whole(value)),
        _ => metric.format(value),
    }
}

const METRICS: [Metric; 12] = [
    Metric::Rate,
    Metric::Availability,
    Metric::Mean,
    Metric::Longest,
    Metric::Shortest,
    Metric::Percentile("50"),
    Metric::Percentile("99"),
    Metric::CpuPerRequest,
    Metric::Memory,
    Metric::Failed,
    Metric::Extra("balancer_memory_bytes"),
    Metric::Extra("balancer_cpu_percent"),
];
const IN_SIGHT: [Metric; 4] = [
    Metric::Rate,
    Metric::Availability,
    Metric::Longest,
    Metric::Shortest,
];
