//! Beginning of a run's section: one sentence with the result, and a chart of the rates, both for the scenario with the
//! highest load.

use crate::report::document::Block;
use crate::report::metric::Metric;
use crate::report::tables;
use crate::report::view::{View, is_ours};
use crate::result::{ContenderFacts, Scenario};
use crate::statistics::{self, Verdict};

/// Returns the sentence and the chart of a run; none for a run without a comparable figure.
pub(super) fn blocks(view: View) -> Vec<Block> {
    let Some(scenario) = main_scenario(view) else {
        return Vec::new();
    };
    let Some(text) = sentence(view, scenario) else {
        return Vec::new();
    };
    let mut blocks = vec![Block::Text(text)];
    // The other suites begin with the same chart anyway.
    if matches!(
        view.run.suite.as_str(),
        "journal" | "matrix" | "growth" | "dynamic" | "proxy"
    ) {
        let mut bars = tables::bars(view, scenario, Metric::Rate);
        if !bars.bars.is_empty() {
            bars.caption = format!("{}: {}", scenario.title, bars.caption);
            blocks.push(Block::Bars(bars));
        }
    }
    blocks
}

/// Returns the scenario with the highest load: the most users, else the most connections, else the first.
fn main_scenario<'r>(view: View<'r>) -> Option<&'r Scenario> {
    let load = |scenario: &Scenario| {
        let load = scenario
            .number("users")
            .or_else(|| scenario.number("connections"));
        load.unwrap_or(0.0)
    };
    let scenarios = view.scenarios().into_iter();
    // `max_by` returns the last of equal scenarios, and the first one is wanted.
    scenarios.rev().max_by(|a, b| load(a).total_cmp(&load(b)))
}

fn sentence(view: View, scenario: &Scenario) -> Option<String> {
    let metrics = [
        Metric::CpuPerRequest,
        Metric::Rate,
        Metric::Extra("load_ms"),
    ];
    let metric = metrics.into_iter().find(|metric| {
        let contenders = view.contenders_in(scenario);
        let mut sound = contenders.iter().filter(|it| is_sound(view, scenario, it));
        sound.any(|facts| view.estimate(*metric, scenario, &facts.name).is_some())
    })?;
    let ranked = ranked(view, scenario, metric);
    let ours = ranked.iter().find(|facts| is_ours(&facts.name));
    let best_peer = ranked.iter().find(|facts| !is_ours(&facts.name));
    let title = &scenario.title;
    let text = match (ours, best_peer) {
        (Some(ours), None) => format!("{title}: {}.", achievement(view, scenario, metric, ours)),
        (None, Some(best)) => {
            let best = achievement(view, scenario, metric, best);
            format!("{title}: {best}, the best of all measured servers.")
        }
        (Some(ours), Some(peer)) => {
            let (first, second) = (
                achievement(view, scenario, metric, ours),
                achievement(view, scenario, metric, peer),
            );
            let verdict = conclusion(view, scenario, metric, ours, peer);
            format!("{title}: {first}. The best other server: {second}. {verdict}")
        }
        (None, None) => return None,
    };
    Some(text)
}

/// Returns the contenders without failures, the best first.
fn ranked<'r>(view: View<'r>, scenario: &Scenario, metric: Metric) -> Vec<&'r ContenderFacts> {
    let mut contenders = view.contenders_in(scenario);
    contenders.retain(|facts| {
        is_sound(view, scenario, facts) && view.estimate(metric, scenario, &facts.name).is_some()
    });
    tables::sort(view, scenario, metric, &mut contenders);
    contenders
}

fn is_sound(view: View, scenario: &Scenario, facts: &ContenderFacts) -> bool {
    view.standing(scenario, &facts.name).mark().is_none()
}

/// Returns what a server achieved: `nginx took 15.2 µs of CPU time per request and answered 64,369 requests/s`.
fn achievement(view: View, scenario: &Scenario, metric: Metric, facts: &ContenderFacts) -> String {
    let figure = |metric: Metric| {
        let estimate = view.estimate(metric, scenario, &facts.name)?;
        Some(metric.format(estimate.median))
    };
    let (name, value) = (&facts.title, figure(metric).unwrap_or_default());
    match (metric, figure(Metric::Rate)) {
        (Metric::CpuPerRequest, Some(rate)) => {
            format!("{name} took {value} of CPU time per request and answered {rate} requests/s")
        }
        (Metric::CpuPerRequest, None) => format!("{name} took {value} of CPU time per request"),
        (Metric::Rate, _) => format!("{name} answered {value} requests/s"),
        _ => format!("{name} took {value} for the page"),
    }
}

fn conclusion(
    view: View,
    scenario: &Scenario,
    metric: Metric,
    ours: &ContenderFacts,
    peer: &ContenderFacts,
) -> String {
    let values = |facts: &ContenderFacts| {
        let estimate = view.estimate(metric, scenario, &facts.name);
        estimate.map(|estimate| estimate.values).unwrap_or_default()
    };
    let Some(found) = statistics::compare_rounds(&values(peer), &values(ours)) else {
        return String::new();
    };
    let (peer, ours) = (&peer.title, &ours.title);
    match found.verdict {
        Verdict::More | Verdict::Less => {
            let ratio = format!("{:.2}", found.ratio);
            format!("The figure of {peer} is {ratio} times the figure of {ours}.")
        }
        Verdict::WithinNoise => "The difference is within the noise.".to_owned(),
        Verdict::TooFew => "The rounds are too few to tell which is better.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Run;
    use std::path::Path;

    fn sample(name: &str) -> Run {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
        Run::read(&folder.join(format!("sample-{name}.json"))).unwrap()
    }

    fn text_of(run: &Run) -> String {
        match blocks(View { run }).first() {
            Some(Block::Text(text)) => text.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_begins_with_its_result() {
        let run = sample("journal-desktop");
        let text = text_of(&run);
        assert!(
            text.starts_with("TLS, 1,500 connections: anthill took "),
            "{text}"
        );
        assert!(text.contains("The best other server: "), "{text}");
        let chart = blocks(View { run: &run }).into_iter().nth(1);
        let Some(Block::Bars(bars)) = chart else {
            panic!("{chart:?}");
        };
        assert!(bars.caption.contains("Requests/s"), "{}", bars.caption);
        assert!(bars.bars.len() > 1);
    }

    #[test]
    fn a_failed_server_is_never_the_best_other_server() {
        let mut run = sample("hello");
        for cell in &mut run.cells {
            if cell.contender == "nginx" {
                let round = &mut cell.rounds[0];
                round.failures.insert("closed".to_owned(), round.requests);
            }
        }
        let text = text_of(&run);
        assert!(!text.contains("nginx"), "{text}");
    }

    #[test]
    fn equal_servers_are_called_equal() {
        let mut run = sample("hello");
        let ours = run.cells.iter().find(|cell| is_ours(&cell.contender));
        let ours = ours.expect("a cell of anthill").rounds.clone();
        for cell in &mut run.cells {
            cell.rounds.clone_from(&ours);
        }
        let text = text_of(&run);
        assert!(
            text.ends_with("The difference is within the noise."),
            "{text}"
        );
    }

    #[test]
    fn a_run_without_anthill_names_the_best() {
        let mut run = sample("hello");
        run.cells.retain(|cell| !is_ours(&cell.contender));
        let text = text_of(&run);
        assert!(
            text.ends_with("the best of all measured servers."),
            "{text}"
        );
    }
}
