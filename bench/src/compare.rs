//! Comparison of two results: improvements, regressions, and differences within the noise.
//!
//! The rounds of two runs were not interleaved, so the machine may have drifted between the runs, and
//! rounds have no counterpart in the other run. Only a difference larger than the scatter of the rounds and
//! the usual drift of a machine is reported as a difference. Conditions that make the comparison doubtful
//! are listed first.

use crate::report::document::{Block, Document, Entry, Row, Section, Table};
use crate::report::metric::{Better, Estimate, Metric};
use crate::report::number;
use crate::report::view::{View, entry, is_ours};
use crate::result::{Run, Scenario};
use crate::soundness::Standing;
use crate::statistics::{self, Verdict};

/// Result of comparing two runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comparison {
    /// Scenarios and contenders present in both runs.
    pub changes: Vec<Change>,
    /// Scenarios and contenders present in only one run: a sentence each.
    pub unmatched: Vec<String>,
    /// Conditions that make the comparison doubtful: a sentence each.
    pub doubts: Vec<String>,
}

/// One metric of a contender in a scenario, in both runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The scenario's title.
    pub scenario: String,
    /// The contender's name.
    pub contender: String,
    /// The contender's title.
    pub title: String,
    /// The compared metric.
    pub metric: Metric,
    /// Value in the first run.
    pub before: Estimate,
    /// Value in the second run.
    pub after: Estimate,
    /// Median of the second run divided by the median of the first; `None` if the first is zero.
    pub ratio: Option<f64>,
    /// Whether the second run has more, has less, or the data support no conclusion.
    pub verdict: Verdict,
}

impl Change {
    /// Returns the meaning of the change for a user of the server: better, worse, or a neutral remark.
    pub(crate) fn remark(&self) -> &'static str {
        match (self.verdict, self.metric.better()) {
            (Verdict::More, Some(Better::More)) | (Verdict::Less, Some(Better::Less)) => "better",
            (Verdict::More, Some(Better::Less)) | (Verdict::Less, Some(Better::More)) => "worse",
            (Verdict::More, None) => "more",
            (Verdict::Less, None) => "less",
            (verdict, _) => verdict.remark(),
        }
    }
}

/// Compares the second run with the first.
pub(crate) fn compare(before: &Run, after: &Run) -> Comparison {
    let mut comparison = Comparison {
        changes: Vec::new(),
        unmatched: Vec::new(),
        doubts: doubts(before, after),
    };
    let (old, new) = (View { run: before }, View { run: after });
    for scenario in old.scenarios() {
        let Some(same) = new
            .scenarios()
            .into_iter()
            .find(|other| other.id == scenario.id)
        else {
            comparison
                .unmatched
                .push(format!("Only the first run has “{}”.", scenario.title));
            continue;
        };
        if scenario.parameters != same.parameters {
            let doubt = format!("The parameters of “{}” differ.", scenario.title);
            comparison.doubts.push(doubt);
        }
        comparison.scenario(old, new, scenario, same);
    }
    for scenario in new.scenarios() {
        if !old.scenarios().iter().any(|other| other.id == scenario.id) {
            comparison
                .unmatched
                .push(format!("Only the second run has “{}”.", scenario.title));
        }
    }
    comparison
}

impl Comparison {
    fn scenario(&mut self, old: View, new: View, before: &Scenario, after: &Scenario) {
        let names = |view: View, scenario: &Scenario| -> Vec<String> {
            view.contenders_in(scenario)
                .iter()
                .map(|facts| facts.name.clone())
                .collect()
        };
        let (first, second) = (names(old, before), names(new, after));
        for name in &first {
            if !second.contains(name) {
                self.unmatched.push(format!(
                    "Only the first run has {name} in “{}”.",
                    before.title
                ));
                continue;
            }
            let facts = old.run.contenders.iter().find(|facts| facts.name == *name);
            let title = facts.map_or(name.as_str(), |facts| &facts.title);
            let both = |metric: Metric| {
                Some((
                    old.estimate(metric, before, name)?,
                    new.estimate(metric, after, name)?,
                ))
            };
            self.changes
                .extend(METRICS.into_iter().filter_map(|metric| {
                    let (old, new) = both(metric)?;
                    let something = old.median != 0.0 || new.median != 0.0;
                    something.then(|| Change {
                        scenario: before.title.clone(),
                        contender: name.clone(),
                        title: title.to_owned(),
                        metric,
                        ratio: (old.median != 0.0).then(|| new.median / old.median),
                        verdict: statistics::compare_runs(&new.alone(), &old.alone()),
                        before: old,
                        after: new,
                    })
                }));
        }
        for name in second.iter().filter(|name| !first.contains(name)) {
            self.unmatched.push(format!(
                "Only the second run has {name} in “{}”.",
                after.title
            ));
        }
    }

    /// Returns the comparison as a document for [`crate::report::write`].
    pub(crate) fn document(&self, before: &Run, after: &Run) -> Document {
        let subtitle = format!("First: {}. Second: {}.", origin(before), origin(after));
        let mut blocks: Vec<Block> = self.doubts.iter().cloned().map(Block::Warning).collect();
        blocks.push(Block::Text(self.summary()));
        for same in self
            .changes
            .chunk_by(|a, b| a.scenario == b.scenario && a.contender == b.contender)
        {
            blocks.push(Block::Table(table(same)));
        }
        blocks.extend(self.unmatched.iter().cloned().map(Block::Text));
        let section = Section {
            heading: String::new(),
            blocks,
        };
        Document {
            title: format!("{}: compared", after.title),
            subtitle,
            sections: vec![section],
        }
    }

    fn summary(&self) -> String {
        let count = |remark: &str| {
            self.changes
                .iter()
                .filter(|change| change.remark() == remark)
                .count()
        };
        let (better, worse) = (count("better"), count("worse"));
        let open = self.changes.len() - better - worse;
        match (self.changes.len(), better + worse) {
            (0, _) => "The two runs have no scenario and contender in common.".to_owned(),
            (_, 0) => format!("No difference in {open} figures beyond the noise."),
            _ => format!(
                "{better} figures better, {worse} worse, {open} without a difference beyond the noise."
            ),
        }
    }
}

/// Makes the table of a contender in a scenario: the variance table of source document 001, with the ratio
/// of the second run to the first and the verdict.
fn table(changes: &[Change]) -> Table {
    let row = |change: &Change| {
        let variance = number::signed(change.after.median - change.before.median, |value| {
            change.metric.format(value)
        });
        let ratio = change
            .ratio
            .map_or("–".to_owned(), |ratio| format!("{ratio:.3}"));
        let cells = vec![
            Entry::new(change.metric.title()),
            entry(change.metric, &change.before),
            entry(change.metric, &change.after),
            Entry::new(variance),
            Entry::new(ratio),
            Entry::new(change.remark()),
        ];
        Row {
            cells,
            ..Row::default()
        }
    };
    let caption = changes
        .first()
        .map(|change| format!("{}: {}", change.title, change.scenario));
    let head = ["", "first", "second", "variance", "ratio", "verdict"]
        .map(str::to_owned)
        .to_vec();
    Table {
        caption: caption.unwrap_or_default(),
        head,
        rows: changes.iter().map(row).collect(),
        ..Table::default()
    }
}

fn doubts(before: &Run, after: &Run) -> Vec<String> {
    let mut doubts = Vec::new();
    if before.suite != after.suite {
        doubts.push(format!(
            "The suites differ: {}, {}.",
            before.suite, after.suite
        ));
    }
    let (a, b) = (&before.machine, &after.machine);
    if (&a.name, &a.cpu, a.cpus) != (&b.name, &b.cpu, b.cpus) {
        doubts.push(format!(
            "The machines differ: {} ({}), {} ({}).",
            a.name, a.cpu, b.name, b.cpu
        ));
    }
    // Imported results name no kernel.
    if a.kernel != b.kernel && !a.kernel.is_empty() && !b.kernel.is_empty() {
        doubts.push(format!("The kernels differ: {}, {}.", a.kernel, b.kernel));
    }
    let drivers = |run: &Run| {
        let mut drivers: Vec<String> = run
            .cells
            .iter()
            .flat_map(|cell| &cell.rounds)
            .map(|round| round.driver.clone())
            .collect();
        drivers.sort();
        drivers.dedup();
        drivers.join(", ")
    };
    let (first, second) = (drivers(before), drivers(after));
    if first != second {
        doubts.push(format!("The clients differ: {first}; {second}."));
    }
    for (run, which) in [(before, "first"), (after, "second")] {
        let measured = run.cells.iter().filter(|cell| !cell.rounds.is_empty());
        let marked = measured.filter_map(|cell| Some((cell, Standing::of(run, cell).mark()?)));
        doubts.extend(marked.map(|(cell, mark)| {
            let mut scenarios = run.scenarios.iter();
            let scenario = scenarios.find(|scenario| scenario.id == cell.scenario);
            let title = scenario.map_or(&cell.scenario, |scenario| &scenario.title);
            format!(
                "In the {which} run, {} {mark} in “{title}”.",
                cell.contender
            )
        }));
    }
    for facts in before
        .contenders
        .iter()
        .filter(|facts| !is_ours(&facts.name))
    {
        let other = after
            .contenders
            .iter()
            .find(|other| other.name == facts.name);
        if let Some(other) = other.filter(|other| other.version != facts.version) {
            doubts.push(format!(
                "The versions of {} differ: {}, {}.",
                facts.title, facts.version, other.version
            ));
        }
    }
    doubts
}

fn origin(run: &Run) -> String {
    let when = run.begun.get(..16).unwrap_or(&run.begun).replace('T', " ");
    format!("{}, {when}, {}", run.title, run.machine.name)
}

const METRICS: [Metric; 13] = [
    Metric::Rate,
    Metric::CpuPerRequest,
    Metric::Memory,
    Metric::Percentile("50"),
    Metric::Percentile("90"),
    Metric::Percentile("99"),
    Metric::Percentile("99.9"),
    Metric::Failed,
    Metric::Extra("transferred_bytes"),
    Metric::Extra("dom_content_loaded_ms"),
    Metric::Extra("load_ms"),
    Metric::Extra("finish_ms"),
    Metric::Extra("balancer_memory_bytes"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Format, write};
    use crate::result::{Cell, ContenderFacts, FORMAT, Machine, Round, Usage};

    /// Returns a run of one cell; each round lasts 1 s, has the given number of requests and uses 20 µs of
    /// CPU time per request.
    fn run(rates: &[u64]) -> Run {
        let round = |(number, rate): (usize, &u64)| Round {
            number: number as u32,
            seconds: 1.0,
            requests: *rate,
            server: Usage {
                user_seconds: *rate as f64 * 20e-6,
                cpus: 1,
                ..Usage::default()
            },
            ..Round::default()
        };
        let cell = Cell {
            scenario: "s".into(),
            contender: "anthill".into(),
            rounds: rates.iter().enumerate().map(round).collect(),
            failure: None,
        };
        Run {
            format: FORMAT,
            tool: "anthill-bench".into(),
            suite: "hello".into(),
            title: "Hello".into(),
            begun: "2026-11-20T10:00:00Z".into(),
            ended: "2026-11-20T10:05:00Z".into(),
            complete: true,
            command: String::new(),
            machine: Machine {
                name: "here".into(),
                ..Machine::default()
            },
            contenders: vec![ContenderFacts {
                name: "anthill".into(),
                title: "anthill".into(),
                ..ContenderFacts::default()
            }],
            scenarios: vec![Scenario {
                id: "s".into(),
                title: "ten clients".into(),
                parameters: [].into(),
            }],
            cells: vec![cell],
            notes: Vec::new(),
        }
    }

    fn rate(comparison: &Comparison) -> &Change {
        comparison
            .changes
            .iter()
            .find(|change| change.metric == Metric::Rate)
            .unwrap()
    }

    fn differs(found: &Comparison) -> bool {
        let is_difference =
            |change: &Change| matches!(change.verdict, Verdict::More | Verdict::Less);
        found.changes.iter().any(is_difference)
    }

    #[test]
    fn a_run_is_equal_to_itself() {
        let run = run(&[1000, 1010, 990, 1005, 995, 1002]);
        let found = compare(&run, &run);
        assert!(!differs(&found));
        assert!(found.doubts.is_empty() && found.unmatched.is_empty());
        assert_eq!(
            (rate(&found).ratio, rate(&found).remark()),
            (Some(1.0), "within the noise")
        );
    }

    #[test]
    fn a_clear_difference_is_better_or_worse() {
        let (slow, fast) = (
            run(&[1000, 1010, 990, 1005, 995, 1002]),
            run(&[1200, 1190, 1210, 1205, 1195, 1201]),
        );
        let found = compare(&slow, &fast);
        assert_eq!(rate(&found).remark(), "better");
        assert!((rate(&found).ratio.unwrap() - 1.2).abs() < 0.01);
        assert_eq!(rate(&compare(&fast, &slow)).remark(), "worse");
        let text = write(&found.document(&slow, &fast), Format::Markdown);
        assert!(text.contains("1 figures better, 0 worse"), "{text}");
        let row = text
            .lines()
            .find(|line| line.starts_with("| requests/s"))
            .unwrap();
        assert!(
            row.contains("+199") && row.contains("1.199") && row.contains("better"),
            "{row}"
        );
    }

    #[test]
    fn noise_and_single_rounds_prove_nothing() {
        let noisy = run(&[1000, 1400, 700, 1200, 900, 1100]);
        let other = run(&[1100, 1500, 800, 1300, 1000, 1200]);
        assert_eq!(rate(&compare(&noisy, &other)).verdict, Verdict::WithinNoise);
        let single = compare(&run(&[1000]), &run(&[2000]));
        assert_eq!(rate(&single).remark(), "too few rounds to tell");
        assert!(!differs(&single));
    }

    #[test]
    fn parts_of_one_run_only_and_different_machines_are_reported() {
        let before = run(&[1000, 1000]);
        let mut after = run(&[1000, 1000]);
        after.machine.name = "elsewhere".into();
        after.scenarios[0].id = "t".into();
        after.cells[0].scenario = "t".into();
        let found = compare(&before, &after);
        assert_eq!(found.changes, []);
        assert_eq!(
            found.unmatched,
            [
                "Only the first run has “ten clients”.",
                "Only the second run has “ten clients”."
            ]
        );
        assert!(
            found.doubts[0].starts_with("The machines differ: here"),
            "{:?}",
            found.doubts
        );
        let text = write(&found.document(&before, &after), Format::Html);
        assert!(text.contains("The two runs have no scenario and contender in common."));
    }
}
