//! Tables common to all suites: all metrics of a scenario with a row per contender, and one metric of all
//! scenarios with a column per contender.

use crate::report::document::{Bar, Bars, Block, Entry, Row, Table};
use crate::report::metric::{Better, Metric};
use crate::report::view::{View, is_ours};
use crate::result::{ContenderFacts, Scenario};
use crate::soundness::Standing;
use crate::statistics;

/// Returns the table of a scenario: a row per contender, ordered by the first metric.
pub(super) fn scenario(view: View, scenario: &Scenario, metrics: &[Metric]) -> Table {
    let metrics = present(view, &[scenario], metrics);
    let mut contenders = view.contenders_in(scenario);
    if let Some(first) = metrics.first() {
        sort(view, scenario, *first, &mut contenders);
    }
    let mut head = vec!["server".to_owned()];
    head.extend(metrics.iter().map(|metric| metric.title()));
    let against = view.ours().filter(|_| contenders.len() > 1).filter(|ours| {
        let estimate = view.estimate(Metric::CpuPerRequest, scenario, &ours.name);
        estimate.is_some()
    });
    if against.is_some() {
        head.push("CPU per request, × anthill's".to_owned());
    }
    let row = |facts: &&ContenderFacts| {
        let mut cells = vec![name(view, scenario, facts)];
        cells.extend(
            metrics
                .iter()
                .map(|metric| view.entry(*metric, scenario, &facts.name)),
        );
        if let Some(ours) = against {
            cells.push(against_ours(view, scenario, facts, ours));
        }
        Row {
            cells,
            ours: is_ours(&facts.name),
            published: false,
        }
    };
    Table {
        head,
        rows: contenders.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Returns the table of a metric: a row per scenario, a column per contender.
pub(super) fn metric(view: View, scenarios: &[&Scenario], metric: Metric) -> Table {
    let measured = |facts: &&ContenderFacts| {
        scenarios
            .iter()
            .any(|scenario| view.estimate(metric, scenario, &facts.name).is_some())
    };
    let contenders: Vec<_> = view.contenders().into_iter().filter(measured).collect();
    let mut head = vec![String::new()];
    head.extend(contenders.iter().map(|facts| facts.title.clone()));
    let row = |scenario: &&Scenario| {
        let mut cells = vec![Entry::new(&scenario.title)];
        cells.extend(contenders.iter().map(|facts| {
            let mut cell = view.entry(metric, scenario, &facts.name);
            mark(&mut cell.detail, view.standing(scenario, &facts.name));
            cell
        }));
        Row {
            cells,
            ..Row::default()
        }
    };
    let ours = contenders.iter().position(|facts| is_ours(&facts.name));
    Table {
        caption: metric.title(),
        head,
        rows: scenarios.iter().map(row).collect(),
        our_columns: Vec::from_iter(ours.map(|place| place + 1)),
    }
}

/// Returns a chart with a bar per contender, the best first.
pub(super) fn bars(view: View, scenario: &Scenario, metric: Metric) -> Bars {
    let mut contenders = view.contenders_in(scenario);
    contenders.retain(|facts| view.estimate(metric, scenario, &facts.name).is_some());
    sort(view, scenario, metric, &mut contenders);
    let bars = contenders
        .iter()
        .filter_map(|facts| bar(view, scenario, metric, facts))
        .collect();
    Bars {
        caption: caption(metric),
        bars,
        ..Bars::default()
    }
}

/// Returns the bar of a contender, if measured.
pub(super) fn bar(
    view: View,
    scenario: &Scenario,
    metric: Metric,
    facts: &ContenderFacts,
) -> Option<Bar> {
    let estimate = view.estimate(metric, scenario, &facts.name)?;
    let series = view.series(facts);
    Some(Bar {
        name: view.marked(&[scenario], facts),
        contender: facts.name.clone(),
        value: estimate.median,
        text: metric.format(estimate.median),
        whisker: estimate
            .interval
            .map(|interval| (interval.low, interval.high)),
        series: series.colour,
        ours: series.ours,
        published: None,
    })
}

/// Returns the bar charts of the measured metrics as blocks.
pub(super) fn bar_blocks(view: View, scenario: &Scenario, metrics: &[Metric]) -> Vec<Block> {
    let metrics = present(view, &[scenario], metrics);
    metrics
        .into_iter()
        .map(|metric| Block::Bars(bars(view, scenario, metric)))
        .collect()
}

/// Returns the title of a metric with its direction of improvement.
pub(super) fn caption(metric: Metric) -> String {
    let mut title = metric.title();
    if let Some(first) = title.get(..1) {
        title = first.to_uppercase() + &title[1..];
    }
    match metric.better() {
        Some(Better::More) => format!("{title} (more is better)"),
        Some(Better::Less) => format!("{title} (less is better)"),
        None => title,
    }
}

/// Returns the metrics with at least one value. The number of resumed handshakes is recorded for all TLS
/// scenarios, but is shown only for the handshake suite.
pub(super) fn present(view: View, scenarios: &[&Scenario], metrics: &[Metric]) -> Vec<Metric> {
    let resumed = Metric::Extra("resumed_handshakes");
    let of_suite = |metric: &Metric| *metric != resumed || view.run.suite == "handshake";
    metrics
        .iter()
        .copied()
        .filter(of_suite)
        .filter(|metric| view.has(*metric, scenarios))
        .collect()
}

/// Returns a contender's name with its version and mark.
fn name(view: View, scenario: &Scenario, facts: &ContenderFacts) -> Entry {
    let mut name = Entry::with(&facts.title, &facts.version);
    mark(&mut name.detail, view.standing(scenario, &facts.name));
    name
}

/// Appends the mark of a contender to a detail text.
fn mark(detail: &mut String, standing: Standing) {
    let Some(mark) = standing.mark() else {
        return;
    };
    if !detail.is_empty() {
        detail.push_str("; ");
    }
    detail.push_str(&mark);
}

pub(super) fn sort(
    view: View,
    scenario: &Scenario,
    metric: Metric,
    contenders: &mut [&ContenderFacts],
) {
    let value = |facts: &ContenderFacts| {
        let found = view
            .estimate(metric, scenario, &facts.name)
            .map(|estimate| estimate.median);
        match metric.better() {
            Some(Better::Less) => found.unwrap_or(f64::INFINITY),
            _ => -found.unwrap_or(f64::NEG_INFINITY),
        }
    };
    // Contenders with a better standing come first, so a contender that failed in part is never above a
    // sound one.
    let rank = |facts: &ContenderFacts| view.standing(scenario, &facts.name).rank();
    contenders.sort_by(|a, b| {
        let order = rank(a).cmp(&rank(b));
        order.then(value(a).total_cmp(&value(b)))
    });
}

/// Returns the CPU time per request as a multiple of anthill's, with the interval or the remark that no
/// difference is known.
fn against_ours(
    view: View,
    scenario: &Scenario,
    facts: &ContenderFacts,
    ours: &ContenderFacts,
) -> Entry {
    if facts.name == ours.name {
        return Entry::new("1");
    }
    let values = |name: &str| {
        view.estimate(Metric::CpuPerRequest, scenario, name)
            .map(|found| found.values)
    };
    let (Some(theirs), Some(our_own)) = (values(&facts.name), values(&ours.name)) else {
        return Entry::none();
    };
    let Some(found) = statistics::compare_rounds(&theirs, &our_own) else {
        return Entry::none();
    };
    let ratio = format!("{:.2}×", found.ratio);
    match found.remark() {
        "" => Entry::with(ratio, format!("{:.2}–{:.2}", found.low, found.high)),
        remark => Entry::with(ratio, remark),
    }
}

/// Metrics of a server under load, the most important first.
pub(super) const LOAD: [Metric; 10] = [
    Metric::Rate,
    Metric::CpuPerRequest,
    Metric::PerCpuSecond,
    Metric::Memory,
    Metric::Percentile("50"),
    Metric::Percentile("99"),
    Metric::Percentile("99.9"),
    Metric::Longest,
    Metric::Failed,
    Metric::Extra("resumed_handshakes"),
];
