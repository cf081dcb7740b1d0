//! Section of source document 003: requests/s over file sizes, measured and extrapolated, with a chart per
//! number of connections. As in the document, the fastest of several thread counts is shown.

use crate::report::document::{Bar, Block, Folded, Groups};
use crate::report::metric::Metric;
use crate::report::number;
use crate::report::tables;
use crate::report::view::View;
use crate::result::{ContenderFacts, Scenario};

/// Returns the blocks of a run.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut folded = Vec::new();
    let charts = charts(view);
    for (name, scenarios) in &charts {
        let measured = Block::Groups(groups(view, name, scenarios, Metric::Rate));
        let extrapolated = Block::Groups(groups(view, name, scenarios, Metric::Extrapolated));
        match place(&charts, scenarios) {
            Place::Fewest => {
                blocks.push(measured);
                folded.push(extrapolated);
            }
            Place::Many => blocks.extend([measured, extrapolated]),
            Place::Between => folded.extend([measured, extrapolated]),
        }
    }
    if !folded.is_empty() {
        let summary = "The other charts".to_owned();
        blocks.push(Block::Folded(Folded {
            summary,
            blocks: folded,
        }));
    }
    blocks.push(Block::Text(EXTRAPOLATION.into()));
    let scenarios = view.scenarios();
    for metric in tables::present(view, &scenarios, &METRICS) {
        let table = Block::Table(tables::metric(view, &scenarios, metric));
        let summary = format!("Table: {}", tables::caption(metric));
        blocks.push(Block::Folded(Folded {
            summary,
            blocks: vec![table],
        }));
    }
    blocks
}

/// Role of a chart among the charts of its protocol.
enum Place {
    /// The chart of the fewest connections: the document's first chart.
    Fewest,
    /// The chart of 16 connections per vCPU, the document's second and third, or of the most connections if
    /// 16 is missing.
    Many,
    /// Any other chart.
    Between,
}

fn place(charts: &[Chart], scenarios: &[&Scenario]) -> Place {
    let own = connections(scenarios);
    let same = charts
        .iter()
        .filter(|(_, other)| protocol(other) == protocol(scenarios));
    let all: Vec<f64> = same.map(|(_, other)| connections(other)).collect();
    let most = all.iter().copied().fold(0.0, f64::max);
    let many = if all.contains(&DOCUMENTED_CONNECTIONS) {
        DOCUMENTED_CONNECTIONS
    } else {
        most
    };
    match own {
        own if own == many => Place::Many,
        own if all.iter().all(|other| own <= *other) => Place::Fewest,
        _ => Place::Between,
    }
}

fn protocol<'r>(scenarios: &[&'r Scenario]) -> Option<&'r str> {
    scenarios
        .first()
        .and_then(|scenario| scenario.word("protocol"))
}

/// Returns a chart per protocol and number of connections, with rising sizes.
fn charts(view: View<'_>) -> Vec<Chart<'_>> {
    let mut charts: Vec<Chart> = Vec::new();
    for scenario in view.scenarios() {
        let name = chart_name(scenario);
        match charts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push(scenario),
            None => charts.push((name, vec![scenario])),
        }
    }
    for (_, members) in &mut charts {
        members.sort_by(|a, b| size(a).total_cmp(&size(b)));
    }
    charts
}

fn chart_name(scenario: &Scenario) -> String {
    let protocol = scenario.word("protocol").map(str::to_uppercase);
    let count = |key: &str, words: &str| {
        let count = scenario.number(key)?;
        let words = if count == 1.0 {
            words.replacen("connections", "connection", 1)
        } else {
            words.to_owned()
        };
        Some(format!("{} {words}", number::whole(count)))
    };
    let connections = count("connections_per_cpu", "connections per vCPU")
        .or_else(|| count("connections", "connections"));
    let parts: Vec<String> = [protocol, connections].into_iter().flatten().collect();
    parts.join(", ")
}

/// Returns the number of connections, per vCPU if the suite records the ratio.
fn connections(scenarios: &[&Scenario]) -> f64 {
    let of = |scenario: &&Scenario| {
        scenario
            .number("connections_per_cpu")
            .or_else(|| scenario.number("connections"))
    };
    scenarios.first().and_then(of).unwrap_or(0.0)
}

fn size(scenario: &Scenario) -> f64 {
    scenario.number("size").unwrap_or(0.0)
}

fn groups(view: View, name: &str, scenarios: &[&Scenario], metric: Metric) -> Groups {
    let contenders = view.contenders();
    let mut groups: Vec<(String, Vec<Bar>)> = Vec::new();
    for same_size in scenarios.chunk_by(|a, b| size(a) == size(b)) {
        let name = number::file_size(size(same_size[0]) as u64);
        let best = |facts: &&ContenderFacts| fastest(view, same_size, metric, facts);
        groups.push((name, contenders.iter().filter_map(best).collect()));
    }
    let series = contenders
        .iter()
        .map(|facts| view.marked_series(scenarios, facts))
        .collect();
    Groups {
        caption: format!("{}: {name}", tables::caption(metric)),
        groups,
        series,
    }
}

/// Returns the bar of the scenario with the highest measured rate, whichever metric the chart shows.
fn fastest(
    view: View,
    scenarios: &[&Scenario],
    metric: Metric,
    facts: &ContenderFacts,
) -> Option<Bar> {
    let rate = |scenario: &Scenario| {
        view.estimate(Metric::Rate, scenario, &facts.name)
            .map_or(0.0, |estimate| estimate.median)
    };
    let best = scenarios
        .iter()
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let mut bar = tables::bar(view, best, metric, facts)?;
    bar.text = number::short(bar.value);
    Some(bar)
}

const METRICS: [Metric; 7] = [
    Metric::Rate,
    Metric::Extrapolated,
    Metric::Throughput,
    Metric::CpuPerRequest,
    Metric::Mean,
    Metric::Percentile("99"),
    Metric::Failed,
];
/// Name and scenarios of a chart.
type Chart<'r> = (String, Vec<&'r Scenario>);

/// Connections per vCPU in the document's second chart.
const DOCUMENTED_CONNECTIONS: f64 = 16.0;
const EXTRAPOLATION: &str = "Extrapolated: requests/s ÷ CPU time of the server × CPU time of server and client together, as the source document does. The formula assigns the client's time to the server at equal efficiency, and is too low for a server that was not saturated.";
