//! Figures published in the kit's source documents, for comparison with the kit's own runs. The figures
//! come from other machines, and every report that shows one says so.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::report::metric::Metric;
use crate::result::{Parameter, Price, Scenario};

/// A source document and its figures: one of `published/*.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Number of the document in this kit: `002`.
    pub id: String,
    /// Title of the document.
    pub title: String,
    /// Author, or empty if the document names none.
    pub author: String,
    /// Publication date, or the year alone.
    pub published: String,
    /// Machines on which the document's figures were measured.
    #[serde(rename = "machine")]
    pub machines: Vec<PublishedMachine>,
    /// Figures of the document.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
}

/// A machine as described in a source document.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PublishedMachine {
    /// Identifier, unique in the document.
    pub id: String,
    /// Name for tables.
    pub name: String,
    /// Class of machine: `Legacy SBC`.
    pub class: String,
    /// Processor model.
    pub cpu: String,
    /// Clock speed.
    pub speed: String,
    /// Memory.
    pub memory: String,
    /// Processor instructions for cryptography, if any.
    pub cryptography: String,
    /// Cooling: `fan`, `passive`.
    pub cooling: String,
    /// Price.
    pub price: Option<Price>,
}

/// Figures of one contender under one load.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// Name of the suite that repeats the measurement.
    pub suite: String,
    /// [`PublishedMachine::id`] of the machine.
    pub machine: String,
    /// The contender's name in the catalogue.
    pub contender: String,
    /// The contender's name in the document.
    pub title: String,
    /// Parameters of the scenario.
    #[serde(default)]
    pub scenario: BTreeMap<String, Parameter>,
    /// Remark for readers of the figures.
    #[serde(default)]
    pub note: String,
    /// True if the figure is part of the document's summary of its machines.
    #[serde(default)]
    pub summary: bool,
    /// Values by [`Metric::key`]; some keys are not metrics of this kit.
    pub values: BTreeMap<String, f64>,
}

/// Returns all source documents in order of number.
pub(crate) fn sources() -> Vec<Source> {
    let parse = |text: &str| toml::from_str(text).expect("the kit's own files are tested to parse");
    SOURCES.into_iter().map(parse).collect()
}

impl Source {
    /// Returns a citation: `002: Raspberry Pi httpd benchmark, 2015`.
    pub(crate) fn citation(&self) -> String {
        let author = if self.author.is_empty() {
            String::new()
        } else {
            format!("{}, ", self.author)
        };
        format!("{}: {author}{}, {}", self.id, self.title, self.published)
    }

    /// Returns the machine of a figure.
    pub(crate) fn machine_of(&self, figure: &Figure) -> Option<&PublishedMachine> {
        self.machines
            .iter()
            .find(|machine| machine.id == figure.machine)
    }
}

/// A figure with the name of its column in a report: contender, machine, and the word `published`.
#[derive(Debug, Clone)]
pub(crate) struct NamedFigure {
    pub name: String,
    pub figure: Figure,
}

impl Figure {
    /// Returns the value of a metric, if published.
    pub(crate) fn value(&self, metric: Metric) -> Option<f64> {
        self.values.get(&metric.key()).copied()
    }

    /// Returns true if the figure is of the contender and suite, and all its parameters equal those of the
    /// scenario.
    pub(crate) fn is_about(&self, suite: &str, scenario: &Scenario, contender: &str) -> bool {
        self.suite == suite
            && self.contender == contender
            && self
                .scenario
                .iter()
                .all(|(key, value)| scenario.parameters.get(key) == Some(value))
    }

    /// Returns the load in words: `200 users, 4 nodes`.
    pub(crate) fn load(&self) -> String {
        let part = |(key, value): (&String, &Parameter)| match (key.as_str(), value) {
            ("size", Parameter::Count(bytes)) => crate::report::number::file_size(*bytes),
            ("nodes", Parameter::Count(1)) => "1 node".to_owned(),
            (_, Parameter::Count(count)) => {
                let count = crate::report::number::whole(*count as f64);
                format!("{count} {}", key.replace("_per_cpu", " per vCPU"))
            }
            (_, Parameter::Number(number)) => format!("{number} {key}"),
            (_, Parameter::Word(word)) => word.clone(),
            (_, Parameter::Flag(flag)) => format!("{key}: {}", if *flag { "yes" } else { "no" }),
        };
        self.scenario
            .iter()
            .map(part)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

const SOURCES: [&str; 5] = [
    include_str!("../published/000.toml"),
    include_str!("../published/001.toml"),
    include_str!("../published/002.toml"),
    include_str!("../published/003.toml"),
    include_str!("../published/004.toml"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_documents_parse_and_name_machines_that_they_have() {
        let sources = sources();
        assert_eq!(sources.len(), 5);
        for source in &sources {
            for figure in &source.figures {
                assert!(
                    source.machine_of(figure).is_some(),
                    "{}: {}",
                    source.id,
                    figure.machine
                );
                assert!(!figure.values.is_empty(), "{}: {}", source.id, figure.title);
            }
        }
    }

    #[test]
    fn every_contender_is_in_the_catalogue() {
        let catalogue = crate::catalogue::Catalogue::load(None).unwrap();
        for source in sources() {
            for figure in &source.figures {
                let known = catalogue.contender(&figure.contender);
                assert!(known.is_ok(), "{}: {}", source.id, figure.contender);
            }
        }
    }

    /// Compares the figures with the chart of 002, read from the top.
    #[test]
    fn the_bar_chart_of_002_is_complete() {
        let source = sources().swap_remove(2);
        let mut rates: Vec<f64> = source
            .figures
            .iter()
            .filter_map(|figure| figure.value(Metric::Rate))
            .collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(
            rates,
            [
                351.49, 341.85, 247.20, 125.97, 66.86, 66.37, 59.46, 28.17, 17.63
            ]
        );
    }

    /// Documents 000 and 001 calculated requests per day from their rates, as this kit does.
    #[test]
    fn requests_a_day_are_the_rate_times_a_day() {
        for source in sources() {
            for figure in &source.figures {
                let (Some(rate), Some(day)) =
                    (figure.value(Metric::Rate), figure.value(Metric::PerDay))
                else {
                    continue;
                };
                // The documents multiply the truncated rate: 2,678,400 is 31 × 86,400, from 31.96
                // requests/s of the Pi Zero. The rates 702.19 and 10,429.40 were truncated likewise.
                assert_eq!(day, rate.floor() * 86_400.0, "{}", figure.machine);
            }
        }
    }

    #[test]
    fn a_figure_is_found_by_contender_and_load() {
        let source = sources().swap_remove(0);
        let scenario = |connections| Scenario {
            id: "s".into(),
            title: "S".into(),
            parameters: [
                ("connections".to_owned(), Parameter::Count(connections)),
                ("protocol".to_owned(), Parameter::Word("https".into())),
            ]
            .into(),
        };
        let found = |connections, contender: &str| {
            let is_about =
                |figure: &&Figure| figure.is_about("journal", &scenario(connections), contender);
            source.figures.iter().filter(is_about).count()
        };
        assert_eq!(found(1500, "stunnel-busybox"), 1);
        assert_eq!(found(500, "stunnel-busybox"), 2);
        assert_eq!(found(1500, "nginx"), 0);
        assert_eq!(source.figures[0].load(), "1,500 connections");
    }
}
