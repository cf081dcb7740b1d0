//! Background of the figures: confidence, failures, machine, versions, configurations, commands and every
//! raw round.

use crate::import;
use crate::report::document::{Block, Entry, Folded, Row, Table};
use crate::report::machines;
use crate::report::metric;
use crate::report::number;
use crate::report::view::View;
use crate::result::{Cell, ContenderFacts, Parameter, Round, Run, Scenario, Usage};
use crate::statistics;

/// Returns a paragraph on the number of rounds and the confidence of the figures.
pub(super) fn method(run: &Run) -> Block {
    let rounds = || run.cells.iter().filter(|cell| !cell.rounds.is_empty());
    let counts = || rounds().map(|cell| cell.rounds.len());
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    let number = if least == most {
        most.to_string()
    } else {
        format!("{least} to {most}")
    };
    let seconds: Vec<f64> = rounds()
        .flat_map(|cell| &cell.rounds)
        .map(|round| round.seconds)
        .collect();
    let mut text = match most {
        0 => "Nothing was measured.".to_owned(),
        1 => "One round: the figures have no confidence interval.".to_owned(),
        _ => format!("Medians of {number} interleaved rounds"),
    };
    if most > 1 {
        // Page loads are shorter than 0.5 s; their duration is left out.
        if let Some(seconds) = statistics::median(&seconds).filter(|seconds| *seconds >= 0.5) {
            text += &format!(" of {} s", number::plain(seconds));
        }
        text += ". ";
        let values: Vec<f64> = (0..most).map(|round| round as f64).collect();
        if let Some(interval) = statistics::interval(&values) {
            let sure = (interval.confidence * 100.0).floor();
            text += &format!(
                "Small print and whiskers show the interval of the median with {sure} % confidence; \
                 comparisons without a proven difference are marked “within the noise”."
            );
        }
    }
    Block::Text(text)
}

/// Returns the warnings shown before the figures: missing parts, failures, limits of the figures.
pub(super) fn warnings(run: &Run) -> Vec<Block> {
    let mut warnings = Vec::new();
    if !run.complete {
        warnings.push("The run was interrupted or a part of it failed: results are missing, and figures marked “failed in part” say little about a server's speed.".to_owned());
    }
    let title = |name: &str| {
        let facts = run.contenders.iter().find(|facts| facts.name == name);
        facts.map_or(name.to_owned(), |facts| facts.title.clone())
    };
    for failure in failures(run) {
        let names: Vec<String> = failure.contenders.into_iter().map(title).collect();
        // Titles of scenarios may contain commas.
        let several = names.len() + failure.scenarios.len() > 2;
        let between = if several { "; " } else { ", " };
        warnings.push(format!(
            "{}{between}{}: {}",
            names.join(", "),
            failure.scenarios.join("; "),
            failure.reason
        ));
    }
    let mut bound: Vec<String> = run
        .cells
        .iter()
        .filter(|cell| is_client_bound(cell))
        .map(|cell| title(&cell.contender))
        .collect();
    bound.sort();
    bound.dedup();
    if !bound.is_empty() {
        warnings.push(format!(
            "The client was the limit in at least one row of {}: there requests/s measure the client, and only CPU per request distinguishes servers.",
            bound.join(", ")
        ));
    }
    warnings
        .into_iter()
        .map(Block::Warning)
        .chain(run.notes.iter().cloned().map(Block::Text))
        .collect()
}

/// One reason of failures, with all contenders and scenarios that it concerns.
struct Failure<'r> {
    contenders: Vec<&'r str>,
    /// Titles of the scenarios.
    scenarios: Vec<&'r str>,
    reason: &'r str,
}

/// Returns the failures of a run; equal failures are merged, of a scenario first.
fn failures(run: &Run) -> Vec<Failure<'_>> {
    let mut by_scenario: Vec<Failure<'_>> = Vec::new();
    for cell in &run.cells {
        let Some(reason) = &cell.failure else {
            continue;
        };
        let mut scenarios = run.scenarios.iter();
        let scenario = scenarios.find(|scenario| scenario.id == cell.scenario);
        let scenario = scenario.map_or(cell.scenario.as_str(), |scenario| &scenario.title);
        let alike = |it: &&mut Failure<'_>| it.scenarios == [scenario] && it.reason == reason;
        match by_scenario.iter_mut().find(alike) {
            Some(failure) => failure.contenders.push(&cell.contender),
            None => by_scenario.push(Failure {
                contenders: vec![&cell.contender],
                scenarios: vec![scenario],
                reason,
            }),
        }
    }
    let mut all: Vec<Failure<'_>> = Vec::new();
    for new in by_scenario {
        let alike =
            |it: &&mut Failure<'_>| it.contenders == new.contenders && it.reason == new.reason;
        match all.iter_mut().find(alike) {
            Some(failure) => failure.scenarios.extend(new.scenarios),
            None => all.push(new),
        }
    }
    all
}

/// Returns true if in most rounds the client's processors were busy and the server's were not.
fn is_client_bound(cell: &Cell) -> bool {
    let bound = |round: &Round| {
        let client = round.client.busy(round.seconds).unwrap_or(0.0);
        let server = round.server.busy(round.seconds).unwrap_or(1.0);
        client > 0.95 && server < 0.9
    };
    !cell.rounds.is_empty()
        && cell.rounds.iter().filter(|round| bound(round)).count() * 2 > cell.rounds.len()
}

/// Returns the folded background sections.
pub(super) fn details(run: &Run) -> Vec<Block> {
    let mut blocks = vec![
        fold("The machine", vec![Block::Table(machine(run))]),
        fold("Versions", vec![Block::Table(versions(run))]),
    ];
    let configurations: Vec<Block> = run.contenders.iter().flat_map(configuration).collect();
    if !configurations.is_empty() {
        blocks.push(fold("Configurations and commands", configurations));
    }
    blocks.push(fold("Every round", rounds(run)));
    blocks
}

fn fold(summary: &str, blocks: Vec<Block>) -> Block {
    Block::Folded(Folded {
        summary: summary.to_owned(),
        blocks,
    })
}

fn machine(run: &Run) -> Table {
    let machine = &run.machine;
    let price = machine
        .price
        .as_ref()
        .map(machines::cost)
        .unwrap_or_default();
    let tool = if import::is_imported(run) {
        "imported with"
    } else {
        "measured with"
    };
    // Imported results have zero processors and no other facts about the machine.
    let known = |cpus: u32, fact: String| if cpus > 0 { fact } else { String::new() };
    let facts = [
        ("name", machine.name.clone()),
        ("processor", machine.cpu.clone()),
        ("processors", known(machine.cpus, machine.cpus.to_string())),
        ("architecture", machine.architecture.clone()),
        (
            "memory",
            known(machine.cpus, number::memory(machine.memory_bytes)),
        ),
        ("system", machine.system.clone()),
        ("kernel", machine.kernel.clone()),
        ("governor", machine.governor.clone().unwrap_or_default()),
        (
            "congestion control",
            machine.congestion_control.clone().unwrap_or_default(),
        ),
        ("price", price),
        ("begun", run.begun.clone()),
        ("ended", run.ended.clone()),
        (tool, run.tool.clone()),
        ("command", run.command.clone()),
    ];
    let row = |(name, value): (&str, String)| Row {
        cells: vec![name.into(), value.into()],
        ..Row::default()
    };
    let rows = facts
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(row)
        .collect();
    Table {
        head: vec![String::new(), String::new()],
        rows,
        ..Table::default()
    }
}

fn versions(run: &Run) -> Table {
    let row = |facts: &ContenderFacts| {
        let size = match facts.program_bytes {
            0 => Entry::none(),
            bytes => Entry::new(number::bytes(bytes as f64)),
        };
        let version = match &facts.missing {
            Some(why) => format!("took no part: {why}"),
            None => facts.version.clone(),
        };
        let cells = vec![
            Entry::new(&facts.title),
            version.into(),
            Entry::new(&facts.program),
            size,
        ];
        Row {
            cells,
            ours: crate::report::view::is_ours(&facts.name),
            published: false,
        }
    };
    let head = ["server", "version", "program", "program size"]
        .map(str::to_owned)
        .to_vec();
    known_columns(Table {
        head,
        rows: run.contenders.iter().map(row).collect(),
        ..Table::default()
    })
}

/// Removes the columns without any known value.
fn known_columns(mut table: Table) -> Table {
    let unknown = |entry: &Entry| entry.text.is_empty() || entry.text == "–";
    for column in (1..table.head.len()).rev() {
        let mut cells = table.rows.iter().filter_map(|row| row.cells.get(column));
        if cells.all(unknown) {
            table.head.remove(column);
            for row in &mut table.rows {
                row.cells.remove(column);
            }
        }
    }
    table
}

fn configuration(facts: &ContenderFacts) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !facts.commands.is_empty() || !facts.configuration.is_empty() {
        blocks.push(Block::Heading(facts.title.clone()));
    }
    if !facts.commands.is_empty() {
        blocks.push(Block::Verbatim(facts.commands.join("\n")));
    }
    for (name, text) in &facts.configuration {
        blocks.push(Block::Text(name.clone()));
        blocks.push(Block::Verbatim(text.clone()));
    }
    blocks
}

/// Returns a table of raw rounds per scenario, complete except for the histograms.
fn rounds(run: &Run) -> Vec<Block> {
    let view = View { run };
    let mut blocks = Vec::new();
    for scenario in view.scenarios() {
        let parameter =
            |(key, value): (&String, &Parameter)| format!("{key} = {}", parameter(value));
        let parameters: Vec<String> = scenario.parameters.iter().map(parameter).collect();
        let mut rows = Vec::new();
        for facts in view.contenders_in(scenario) {
            if let Some(cell) = view.cell(scenario, &facts.name) {
                rows.extend(cell.rounds.iter().map(|round| raw(facts, round)));
            }
        }
        let caption = match parameters.as_slice() {
            [] => scenario.title.clone(),
            some => format!("{} ({})", scenario.title, some.join(", ")),
        };
        let head = RAW.map(str::to_owned).to_vec();
        blocks.push(Block::Table(known_columns(Table {
            caption,
            head,
            rows,
            our_columns: Vec::new(),
        })));
        blocks.extend(asked(run, scenario));
    }
    blocks
}

/// Returns the client commands of a scenario: one for all contenders, but one per output in imported
/// results.
fn asked(run: &Run, scenario: &Scenario) -> Option<Block> {
    let cells = run.cells.iter().filter(|c| c.scenario == scenario.id);
    let rounds = cells.filter_map(|cell| cell.rounds.first());
    let rounds = rounds.filter(|round| !round.command.is_empty());
    let mut lines: Vec<String> = rounds
        .map(|round| format!("{}: {}", round.driver, round.command))
        .collect();
    if !import::is_imported(run) {
        lines.truncate(1);
    }
    lines.dedup();
    (!lines.is_empty()).then(|| Block::Verbatim(lines.join("\n")))
}

fn parameter(value: &Parameter) -> String {
    match value {
        Parameter::Flag(flag) => flag.to_string(),
        Parameter::Count(count) => count.to_string(),
        Parameter::Number(number) => number.to_string(),
        Parameter::Word(word) => word.clone(),
    }
}

fn raw(facts: &ContenderFacts, round: &Round) -> Row {
    let failures: Vec<String> = round
        .failures
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    let extra: Vec<String> = round
        .extra
        .iter()
        .map(|(key, value)| metric::extra(key, *value))
        .collect();
    let latency = round.latency.as_ref();
    let percentile = |key: &str| latency.and_then(|latency| latency.percentiles_us.get(key));
    let memory = match round.server.peak_pss_bytes {
        0 => "–".to_owned(),
        bytes => number::bytes(bytes as f64),
    };
    let cells = [
        format!("{} {}", facts.title, round.number + 1),
        format!("{:.2}", round.seconds),
        number::whole(round.requests as f64),
        number::plain(round.rate()),
        cpu_seconds(&round.server),
        cpu_seconds(&round.client),
        memory,
        latency.map_or("–".to_owned(), |latency| number::time(latency.mean_us)),
        percentile("50").map_or("–".to_owned(), |time| number::time(*time)),
        percentile("99").map_or("–".to_owned(), |time| number::time(*time)),
        latency.map_or("–".to_owned(), |latency| number::time(latency.max_us)),
        failures.join(", "),
        extra.join(", "),
    ];
    Row {
        cells: cells.into_iter().map(Entry::new).collect(),
        ..Row::default()
    }
}

/// Formats CPU time as `1.20 + 0.31`, user and system; zero means that CPU time was not measured.
fn cpu_seconds(usage: &Usage) -> String {
    if usage.cpu_seconds() == 0.0 {
        return "–".to_owned();
    }
    format!("{:.2} + {:.2}", usage.user_seconds, usage.system_seconds)
}

const RAW: [&str; 13] = [
    "round",
    "seconds",
    "requests",
    "requests/s",
    "server CPU s, user + system",
    "client CPU s",
    "memory",
    "mean",
    "median",
    "99 %",
    "longest",
    "failures",
    "other values",
];
