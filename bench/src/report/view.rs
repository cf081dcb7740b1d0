//! Queries on a run for the sections of a report: contenders, cells, estimates and names of scenarios.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::report::document::{Entry, Series};
use crate::report::metric::{Estimate, Metric};
use crate::report::number;
use crate::result::{Cell, ContenderFacts, Parameter, Run, Scenario};
use crate::soundness::Standing;

/// Read-only view of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'r> {
    /// The run.
    pub run: &'r Run,
}

impl<'r> View<'r> {
    /// Returns the contenders with at least one round, in the order of the tables.
    pub(crate) fn contenders(self) -> Vec<&'r ContenderFacts> {
        let measured = |facts: &&ContenderFacts| {
            self.run
                .cells
                .iter()
                .any(|cell| cell.contender == facts.name && !cell.rounds.is_empty())
        };
        self.run.contenders.iter().filter(measured).collect()
    }

    /// Returns the contenders measured in a scenario.
    pub(crate) fn contenders_in(self, scenario: &Scenario) -> Vec<&'r ContenderFacts> {
        let mut all = self.contenders();
        all.retain(|facts| self.cell(scenario, &facts.name).is_some());
        all
    }

    /// Returns the scenarios with at least one round, in the order of the tables.
    pub(crate) fn scenarios(self) -> Vec<&'r Scenario> {
        let measured = |scenario: &&Scenario| {
            self.run
                .cells
                .iter()
                .any(|cell| cell.scenario == scenario.id && !cell.rounds.is_empty())
        };
        self.run.scenarios.iter().filter(measured).collect()
    }

    /// Returns the cell of a contender in a scenario, if measured.
    pub(crate) fn cell(self, scenario: &Scenario, contender: &str) -> Option<&'r Cell> {
        let is_it = |cell: &&Cell| {
            cell.scenario == scenario.id && cell.contender == contender && !cell.rounds.is_empty()
        };
        self.run.cells.iter().find(is_it)
    }

    /// Returns the standing of a contender in a scenario.
    pub(crate) fn standing(self, scenario: &Scenario, contender: &str) -> Standing {
        let cell = self.cell(scenario, contender);
        cell.map_or(Standing::Sound, |cell| Standing::of(self.run, cell))
    }

    /// Returns a contender's title with the mark of its worst standing in some scenarios.
    pub(crate) fn marked(self, scenarios: &[&Scenario], facts: &ContenderFacts) -> String {
        let standings = scenarios
            .iter()
            .map(|scenario| self.standing(scenario, &facts.name));
        let worst = standings.max_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        match worst.and_then(Standing::mark) {
            Some(mark) => format!("{} ({mark})", facts.title),
            None => facts.title.clone(),
        }
    }

    /// Returns the estimate of a metric for a contender in a scenario.
    pub(crate) fn estimate(
        self,
        metric: Metric,
        scenario: &Scenario,
        contender: &str,
    ) -> Option<Estimate> {
        metric.estimate(self.cell(scenario, contender)?)
    }

    /// Returns the estimate as a table cell.
    pub(crate) fn entry(self, metric: Metric, scenario: &Scenario, contender: &str) -> Entry {
        self.estimate(metric, scenario, contender)
            .map_or(Entry::none(), |found| entry(metric, &found))
    }

    /// Returns true if any cell of some scenarios has a value other than zero.
    pub(crate) fn has(self, metric: Metric, scenarios: &[&Scenario]) -> bool {
        let of_scenarios = |cell: &&Cell| {
            scenarios
                .iter()
                .any(|scenario| scenario.id == cell.scenario)
        };
        let mut rounds = self
            .run
            .cells
            .iter()
            .filter(of_scenarios)
            .flat_map(|cell| &cell.rounds);
        rounds.any(|round| metric.of(round).is_some_and(|value| value != 0.0))
    }

    /// Returns the name and colour of a contender, constant in the whole report.
    pub(crate) fn series(self, facts: &ContenderFacts) -> Series {
        let peers = self
            .run
            .contenders
            .iter()
            .filter(|facts| !is_ours(&facts.name));
        let colour = peers
            .clone()
            .position(|peer| peer.name == facts.name)
            .unwrap_or(0);
        Series {
            name: facts.title.clone(),
            colour,
            ours: is_ours(&facts.name),
            published: false,
        }
    }

    /// Returns name and colour of a contender with the mark of its worst standing in the drawn scenarios.
    pub(crate) fn marked_series(self, scenarios: &[&Scenario], facts: &ContenderFacts) -> Series {
        Series {
            name: self.marked(scenarios, facts),
            ..self.series(facts)
        }
    }

    /// Returns anthill's facts, if anthill was measured.
    pub(crate) fn ours(self) -> Option<&'r ContenderFacts> {
        self.contenders()
            .into_iter()
            .find(|facts| is_ours(&facts.name))
    }

    /// Returns groups of scenarios that differ only in the parameter `key`, sorted by its value. Scenarios
    /// without the parameter are left out.
    pub(crate) fn groups_over(self, key: &str) -> Vec<Vec<&'r Scenario>> {
        let mut groups: Vec<(BTreeMap<&str, &Parameter>, Vec<&Scenario>)> = Vec::new();
        for scenario in self
            .scenarios()
            .into_iter()
            .filter(|scenario| scenario.number(key).is_some())
        {
            let remaining = scenario.parameters.iter().filter(|(name, _)| *name != key);
            let remaining: BTreeMap<_, _> = remaining
                .map(|(name, value)| (name.as_str(), value))
                .collect();
            match groups.iter_mut().find(|(known, _)| *known == remaining) {
                Some((_, group)) => group.push(scenario),
                None => groups.push((remaining, vec![scenario])),
            }
        }
        let by_key = |a: &&Scenario, b: &&Scenario| {
            a.number(key)
                .unwrap_or(0.0)
                .total_cmp(&b.number(key).unwrap_or(0.0))
        };
        for (_, group) in &mut groups {
            group.sort_by(by_key);
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Returns the name of a group of scenarios: the parameters that vary in the run but not in the group.
    pub(crate) fn name_of(self, group: &[&Scenario]) -> String {
        let Some(first) = group.first() else {
            return String::new();
        };
        let varies = |among: &[&Scenario], key: &str| {
            among
                .iter()
                .any(|scenario| scenario.parameters.get(key) != first.parameters.get(key))
        };
        let all = self.scenarios();
        let told = first
            .parameters
            .iter()
            .filter(|(key, _)| varies(&all, key) && !varies(group, key));
        told.filter_map(|(key, value)| words(key, value))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl Scenario {
    /// Returns the value of a numeric parameter.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.parameters.get(key)? {
            Parameter::Count(count) => Some(*count as f64),
            Parameter::Number(number) => Some(*number),
            Parameter::Flag(_) | Parameter::Word(_) => None,
        }
    }

    /// Returns the value of a word parameter.
    pub fn word(&self, key: &str) -> Option<&str> {
        match self.parameters.get(key)? {
            Parameter::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Returns true if the contender is `anthill` or a variant such as `anthill-h2`.
pub(crate) fn is_ours(name: &str) -> bool {
    name == "anthill" || name.starts_with("anthill-")
}

/// Returns an estimate as a table cell: the median, and the interval in small print.
pub(crate) fn entry(metric: Metric, estimate: &Estimate) -> Entry {
    let text = metric.format(estimate.median);
    match estimate.interval {
        // Requests per day are proportional to the rate; the rate's interval is in the same table.
        Some(interval) if interval.low < interval.high && metric != Metric::PerDay => {
            Entry::with(text, range(metric, interval.low, interval.high))
        }
        _ => Entry::new(text),
    }
}

/// Formats a range, with the unit once if both ends have the same: `15.7–18.0 µs`.
pub(crate) fn range(metric: Metric, low: f64, high: f64) -> String {
    let (low, high) = (metric.format(low), metric.format(high));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((figure, unit)), Some((_, other))) if unit == other => format!("{figure}–{high}"),
        _ if low == high => low,
        _ => format!("{low}–{high}"),
    }
}

/// Formats a parameter in words.
fn words(key: &str, value: &Parameter) -> Option<String> {
    let name = key.replace('_', " ");
    Some(match (key, value) {
        ("size", Parameter::Count(bytes)) => number::file_size(*bytes),
        ("protocol", Parameter::Word(word)) => word.to_uppercase(),
        (_, Parameter::Word(word)) => word.clone(),
        (_, Parameter::Flag(true)) => name,
        (_, Parameter::Flag(false)) => format!("no {name}"),
        (_, Parameter::Count(1)) => format!("1 {}", name.strip_suffix('s').unwrap_or(&name)),
        (_, Parameter::Count(count)) => format!("{} {name}", number::whole(*count as f64)),
        (_, Parameter::Number(value)) => format!("{} {name}", number::plain(*value)),
    })
}
