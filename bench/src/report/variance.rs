//! Table of source document 001: two setups and the variance between them.

use crate::report::document::{Entry, Row, Table};
use crate::report::metric::Metric;
use crate::report::number;
use crate::report::tables;
use crate::report::view::{View, is_ours};
use crate::result::{ContenderFacts, Scenario};
use crate::statistics;

/// Returns the table of 001's two setups if both were measured, otherwise of the fastest peer and anthill;
/// `None` without two setups.
pub(super) fn of_setups(view: View, scenario: &Scenario) -> Option<Table> {
    let contenders = view.contenders_in(scenario);
    let named = |name: &str| contenders.iter().copied().find(|facts| facts.name == name);
    let ours = contenders
        .iter()
        .copied()
        .find(|facts| is_ours(&facts.name));
    let (first, second) = match (named("socat-busybox"), named("stunnel-busybox"), ours) {
        (Some(socat), Some(stunnel), None) => (socat, stunnel),
        (_, Some(stunnel), Some(ours)) => (stunnel, ours),
        (_, _, Some(ours)) => (fastest_peer(view, scenario, &contenders)?, ours),
        _ => return None,
    };
    Some(table(view, scenario, first, second))
}

fn fastest_peer<'r>(
    view: View,
    scenario: &Scenario,
    contenders: &[&'r ContenderFacts],
) -> Option<&'r ContenderFacts> {
    let rate = |facts: &ContenderFacts| {
        view.estimate(Metric::Rate, scenario, &facts.name)
            .map_or(0.0, |found| found.median)
    };
    let peers = contenders
        .iter()
        .copied()
        .filter(|facts| !is_ours(&facts.name));
    let rank = |facts: &ContenderFacts| view.standing(scenario, &facts.name).rank();
    peers.max_by(|a, b| {
        let order = rank(b).cmp(&rank(a));
        order.then(rate(a).total_cmp(&rate(b)))
    })
}

fn table(
    view: View,
    scenario: &Scenario,
    first: &ContenderFacts,
    second: &ContenderFacts,
) -> Table {
    let row = |metric: &Metric| {
        let a = view.estimate(*metric, scenario, &first.name)?;
        let b = view.estimate(*metric, scenario, &second.name)?;
        let found = statistics::compare_rounds(&b.values, &a.values);
        let remark = found.map_or("", |found| found.remark());
        let variance = number::signed(b.median - a.median, |value| metric.format(value));
        let cells = vec![
            metric.title().into(),
            metric.format(a.median).into(),
            metric.format(b.median).into(),
            Entry::with(variance, remark),
        ];
        Some(Row {
            cells,
            ..Row::default()
        })
    };
    let metrics = tables::present(view, &[scenario], &METRICS);
    Table {
        caption: "Two setups, and the variance between them".into(),
        head: vec![
            "metric".into(),
            view.marked(&[scenario], first),
            view.marked(&[scenario], second),
            "variance".into(),
        ],
        rows: metrics.iter().filter_map(row).collect(),
        our_columns: Vec::from_iter(is_ours(&second.name).then_some(2)),
    }
}

const METRICS: [Metric; 7] = [
    Metric::Rate,
    Metric::Throughput,
    Metric::Percentile("50"),
    Metric::Percentile("90"),
    Metric::Percentile("99"),
    Metric::CpuShare,
    Metric::Memory,
];
