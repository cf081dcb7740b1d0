//! Reports from result files: Markdown, or a self-contained HTML page.

mod axis;
mod chart;
pub(crate) mod document;
mod facts;
mod headline;
mod html;
mod machines;
mod markdown;
pub(crate) mod metric;
pub(crate) mod number;
mod percentiles;
pub(crate) mod performance;
mod suite;
mod tables;
mod variance;
pub(crate) mod view;

use crate::import;
use crate::published::{self, Source};
use crate::report::document::{Block, Document, Entry, Folded, Row, Section, Table};
use crate::report::metric::Metric;
use crate::report::view::View;
use crate::result::Run;

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Markdown, for a README or a terminal.
    Markdown,
    /// A single HTML page including charts.
    Html,
}

impl Format {
    /// Returns the format for a file name: `.html` and `.htm` are HTML; `.md`, `.markdown`, `.txt` and
    /// names without extension are Markdown. Returns `None` for other extensions, so that no `.pdf` file is
    /// written with Markdown inside.
    pub fn of_file(path: &std::path::Path) -> Option<Format> {
        let ending = path.extension().unwrap_or_default();
        match ending.to_string_lossy().to_ascii_lowercase().as_str() {
            "html" | "htm" => Some(Format::Html),
            "" | "md" | "markdown" | "txt" => Some(Format::Markdown),
            _ => None,
        }
    }
}

/// Whether the figures of the source documents are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Published figures are shown, marked "published, other machine".
    Shown,
    /// Published figures are hidden.
    Hidden,
}

/// Returns the report of some runs, grouped by suite; several machines get a summary first.
pub fn report(runs: &[Run], format: Format, published: Published) -> String {
    write(&document(runs, published), format)
}

/// Writes a document as text.
pub(crate) fn write(document: &Document, format: Format) -> String {
    match format {
        Format::Markdown => markdown::document(document),
        Format::Html => html::document(document),
    }
}

/// Returns the report as a document.
pub(crate) fn document(runs: &[Run], published: Published) -> Document {
    let sources = match published {
        Published::Shown => published::sources(),
        Published::Hidden => Vec::new(),
    };
    let imported: Vec<&Run> = runs.iter().filter(|run| import::is_imported(run)).collect();
    let together = (imported.len() > 1).then(|| import::together(&imported));
    let mut runs: Vec<&Run> = runs.iter().collect();
    if let Some(together) = &together {
        runs.retain(|run| !import::is_imported(run));
        runs.push(together);
    }
    let mut sections = Vec::new();
    let mut suites: Vec<&str> = runs.iter().map(|run| run.suite.as_str()).collect();
    suites.sort();
    suites.dedup();
    for suite in suites {
        let of_suite = runs.iter().copied().filter(|run| run.suite == suite);
        let of_suite: Vec<&Run> = of_suite.collect();
        sections.extend(machines::summary(&of_suite, &sources));
        let several = of_suite.len() > 1;
        let alone = runs.len() == 1;
        sections.extend(
            of_suite
                .into_iter()
                .map(|run| section(run, &sources, several, alone)),
        );
    }
    Document {
        title: title(&runs),
        subtitle: subtitle(&runs),
        sections,
    }
}

fn title(runs: &[&Run]) -> String {
    match runs {
        [run] => run.title.clone(),
        _ => "Web servers side by side".to_owned(),
    }
}

fn subtitle(runs: &[&Run]) -> String {
    let mut machines: Vec<String> = runs.iter().map(|run| machine_line(run)).collect();
    machines.dedup();
    let days: Vec<&str> = runs.iter().filter_map(|run| run.begun.get(..10)).collect();
    let day = match (days.iter().min(), days.iter().max()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(first), _) => (*first).to_owned(),
        _ => return String::new(),
    };
    format!("{day} · {}", machines.join(" · "))
}

fn machine_line(run: &Run) -> String {
    let machine = &run.machine;
    // Imported results have no facts about the machine besides its name.
    if machine.cpus == 0 {
        return machine.name.clone();
    }
    let memory = number::memory(machine.memory_bytes);
    format!(
        "{}: {} × {}, {memory}, {}",
        machine.name, machine.cpus, machine.cpu, machine.system
    )
}

fn section(run: &Run, sources: &[Source], several: bool, alone: bool) -> Section {
    let view = View { run };
    let mut blocks = headline::blocks(view);
    blocks.push(facts::method(run));
    blocks.extend(facts::warnings(run));
    blocks.extend(suite::blocks(view, sources));
    blocks.extend(published_tables(run, sources));
    blocks.extend(facts::details(run));
    let day = run.begun.get(..10).unwrap_or_default();
    let heading = match (alone, several) {
        // The page's main heading is the run's title.
        (true, _) => String::new(),
        (_, true) => format!("{}: {}, {day}", run.title, run.machine.name),
        _ => run.title.clone(),
    };
    Section { heading, blocks }
}

/// Returns the published figures of a suite as folded tables, one per source document.
fn published_tables(run: &Run, sources: &[Source]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for source in sources {
        let figures: Vec<_> = source
            .figures
            .iter()
            .filter(|figure| figure.suite == run.suite)
            .collect();
        let metrics: Vec<Metric> = PUBLISHED
            .into_iter()
            .filter(|metric| figures.iter().any(|figure| figure.value(*metric).is_some()))
            .collect();
        if figures.is_empty() {
            continue;
        }
        let mut head = vec!["server".to_owned(), "machine".to_owned(), "load".to_owned()];
        head.extend(metrics.iter().map(|metric| metric.title()));
        head.push("note".to_owned());
        let row = |figure: &&crate::published::Figure| {
            let machine = source
                .machine_of(figure)
                .map_or("", |machine| &machine.name);
            let mut cells = vec![
                Entry::new(&figure.title),
                machine.into(),
                figure.load().into(),
            ];
            cells.extend(metrics.iter().map(|metric| {
                figure
                    .value(*metric)
                    .map_or(Entry::none(), |value| metric.format(value).into())
            }));
            cells.push(Entry::new(&figure.note));
            Row {
                cells,
                published: true,
                ..Row::default()
            }
        };
        let rows = figures.iter().map(row).collect();
        let summary = format!("Published, other machine: {}", source.citation());
        let table = Block::Table(Table {
            head,
            rows,
            ..Table::default()
        });
        blocks.push(Block::Folded(Folded {
            summary,
            blocks: vec![table],
        }));
    }
    blocks
}

const PUBLISHED: [Metric; 16] = [
    Metric::Rate,
    Metric::Throughput,
    Metric::Mean,
    Metric::Percentile("50"),
    Metric::Percentile("90"),
    Metric::Percentile("99"),
    Metric::Longest,
    Metric::Shortest,
    Metric::Availability,
    Metric::CpuShare,
    Metric::Memory,
    Metric::Extra("requests"),
    Metric::Extra("transferred_bytes"),
    Metric::Extra("finish_ms"),
    Metric::Extra("dom_content_loaded_ms"),
    Metric::Extra("load_ms"),
];
