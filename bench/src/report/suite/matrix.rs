//! 003's matrix: requests a second over file sizes, a chart for each number of connections, measured
//! and extrapolated. As there, of several thread counts the fastest is taken.

use crate::report::document::{Bar, Block, Folded, Groups};
use crate::report::metric::Metric;
use crate::report::number;
use crate::report::tables;
use crate::report::view::View;
use crate::result::{ContenderFacts, Scenario};

/// The blocks of a run.
pub fn blocks(view: View) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut folded = Vec::new();
    for (number, (name, scenarios)) in charts(view).into_iter().enumerate() {
        let measured = Block::Groups(groups(view, &name, &scenarios, Metric::Rate));
        let extrapolated = Block::Groups(groups(view, &name, &scenarios, Metric::Extrapolated));
        if number < CHARTS_IN_SIGHT {
            blocks.push(measured);
            blocks.push(extrapolated);
        } else {
            folded.extend([measured, extrapolated]);
        }
    }
    if !folded.is_empty() {
        let summary = "Charts of the other numbers of connections".to_owned();
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

/// A chart for each combination of all parameters but size and threads: those at the ends of the
/// connections first, since the source document showed one and sixteen.
fn charts<'r>(view: View<'r>) -> Vec<(String, Vec<&'r Scenario>)> {
    let mut charts: Vec<(String, Vec<&Scenario>)> = Vec::new();
    for group in view
        .groups_over("threads")
        .into_iter()
        .chain(without_threads(view))
    {
        for scenario in group {
            let name = chart_name(scenario);
            match charts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, members)) => members.push(scenario),
                None => charts.push((name, vec![scenario])),
            }
        }
    }
    for (_, members) in &mut charts {
        members.sort_by(|a, b| size(a).total_cmp(&size(b)));
    }
    charts.sort_by_key(|(_, members)| std::cmp::Reverse(members.len()));
    if charts.len() > 2 {
        let most = charts
            .iter()
            .enumerate()
            .max_by(|a, b| connections(a.1).total_cmp(&connections(b.1)));
        if let Some(place) = most.map(|(place, _)| place) {
            let chart = charts.remove(place);
            charts.insert(1, chart);
        }
    }
    charts
}

fn without_threads(view: View<'_>) -> Vec<Vec<&Scenario>> {
    let all = view
        .scenarios()
        .into_iter()
        .filter(|scenario| scenario.number("threads").is_none());
    vec![all.collect()]
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

fn connections(chart: &(String, Vec<&Scenario>)) -> f64 {
    chart
        .1
        .first()
        .and_then(|scenario| scenario.number("connections"))
        .unwrap_or(0.0)
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
    let series = contenders.iter().map(|facts| view.series(facts)).collect();
    Groups {
        caption: format!("{}: {name}", tables::caption(metric)),
        groups,
        series,
    }
}

/// The scenario with the highest measured rate, whichever metric of it is drawn (COMPAT.md K4).
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
const CHARTS_IN_SIGHT: usize = 2;
const EXTRAPOLATION: &str = "Extrapolated: requests/s ÷ CPU time of the server × CPU time of server and client together, as the source document does. It gives the server the client's time at equal efficiency, and says too little of a server that was not saturated.";
