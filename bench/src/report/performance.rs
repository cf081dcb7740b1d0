//! Figures in docs/performance.md and README.md. The tables are written between marks from result files, so
//! that no figure is typed by hand and all figures of a table are of the same age.

use std::io;
use std::path::{Path, PathBuf};

use crate::report::document::{Block, Entry, Row, Section, Table};
use crate::report::metric::{Better, Estimate, Metric};
use crate::report::suite::{self, agreement_table, page_table, proxy_tables};
use crate::report::view::{View, is_ours};
use crate::report::{facts, markdown, number, tables};
use crate::result::{ContenderFacts, Run, Scenario};
use crate::statistics::{self, Verdict};

/// Error of writing figures into a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PerformanceError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not have exactly one pair of marks.
    #[error("{}: the file needs exactly one {BEGIN} followed by one {END}; the figures are written between them", path.display())]
    Marks {
        /// Path of the file.
        path: PathBuf,
    },
}

/// Replaces the figures between a file's marks and returns true if the file changed.
pub(crate) fn write(path: &Path, figures: &str) -> Result<bool, PerformanceError> {
    let failed = |source| PerformanceError::File {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let new = between_marks(&text, figures);
    let new = new.ok_or_else(|| PerformanceError::Marks {
        path: path.to_owned(),
    })?;
    if new == text {
        return Ok(false);
    }
    std::fs::write(path, new).map_err(failed)?;
    Ok(true)
}

/// Returns the text with its figures replaced; `None` unless the text has exactly one pair of marks.
fn between_marks(text: &str, figures: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (old, after) = rest.split_once(END)?;
    let once = !before.contains(END)
        && !old.contains(BEGIN)
        && !after.contains(BEGIN)
        && !after.contains(END);
    let figures = figures.trim();
    let stamp = stamp(figures);
    once.then(|| format!("{before}{BEGIN}\n{figures}\n\n{stamp}\n{END}{after}"))
}

/// Returns a comment with a checksum of the figures. A test compares the checksum, so that changes by hand
/// between the marks are detected.
fn stamp(figures: &str) -> String {
    // FNV-1a detects mistakes; forgery is not a concern.
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for byte in figures.bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("<!-- written by anthill bench report: {sum:016x} -->")
}

/// Returns all figures for docs/performance.md: each suite with its method and tables, then date, machine,
/// versions and command, since the runs may be of different dates.
///
/// Notes common to all runs appear once, above the suites.
pub(crate) fn figures(runs: &[Run]) -> String {
    let mut common: Vec<String> = runs.first().map_or(Vec::new(), |run| run.notes.clone());
    common.retain(|note| runs.iter().all(|run| run.notes.contains(note)));
    if runs.len() == 1 {
        common.clear();
    }
    let lead = Section {
        heading: String::new(),
        blocks: common.iter().cloned().map(Block::Text).collect(),
    };
    let sections = runs.iter().map(|run| section(run, &common));
    markdown::sections(&[lead].into_iter().chain(sections).collect::<Vec<_>>(), 3)
}

/// Returns the short table for the README: anthill and the best peers with their versions.
pub(crate) fn summary(runs: &[Run]) -> String {
    let rows: Vec<Row> = runs.iter().flat_map(summary_rows).collect();
    let has_rates = rows
        .iter()
        .any(|row| row.cells[0].text.ends_with(MORE_IS_BETTER));
    let direction = if has_rates {
        "Lower is better, unless the row says otherwise."
    } else {
        "Lower is better."
    };
    let table = Table {
        head: ["", "anthill", "the two best other servers"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        ..Table::default()
    };
    let text = format!("{} {direction}", origin(runs));
    let blocks = vec![Block::Text(text), Block::Table(table)];
    markdown::sections(
        &[Section {
            heading: String::new(),
            blocks,
        }],
        3,
    )
}

fn origin(runs: &[Run]) -> String {
    let mut machines: Vec<String> = runs.iter().map(machine).collect();
    machines.dedup();
    format!(
        "Servers measured side by side in the same run, {}.",
        machines.join("; ")
    )
}

fn machine(run: &Run) -> String {
    let machine = &run.machine;
    let day = run.begun.get(..10).unwrap_or_default();
    let memory = number::memory(machine.memory_bytes);
    format!(
        "{day}, {} × {}, {memory}, {}, Linux {}",
        machine.cpus, machine.cpu, machine.system, machine.kernel
    )
}

/// Returns the section of a run; notes in `said` already stand above all sections and are left out.
fn section(run: &Run, said: &[String]) -> Section {
    let view = View { run };
    let mut blocks = vec![facts::method(run)];
    blocks.extend(facts::warnings(run));
    blocks.retain(|block| !matches!(block, Block::Text(text) if said.contains(text)));
    blocks.extend(match run.suite.as_str() {
        "hello" => suite::blocks(view, &[])
            .into_iter()
            .filter(|block| !matches!(block, Block::Folded(_)))
            .collect(),
        "page" => vec![Block::Table(page_table(view))],
        "agreement" => vec![Block::Table(agreement_table(view))],
        "growth" => growth_tables(view),
        "proxy" => proxy_tables(view),
        _ => suite_tables(view),
    });
    blocks.push(Block::Text(format!("{}. {}", machine(run), versions(run))));
    blocks.push(Block::Verbatim(run.command.clone()));
    Section {
        heading: run.title.clone(),
        blocks,
    }
}

/// Returns a complete table per scenario, or one table per main metric if the scenarios are many.
fn suite_tables(view: View) -> Vec<Block> {
    let scenarios = telling(view);
    if scenarios.len() > SCENARIOS_WITH_TABLES {
        let metrics = [
            Metric::Rate,
            Metric::Extrapolated,
            Metric::CpuPerRequest,
            Metric::Percentile("99"),
            Metric::Failed,
        ];
        let mut present = tables::present(view, &scenarios, &metrics);
        // The extrapolated rate is a figure of Spare Cores' matrix, and is shown for no other suite.
        present.retain(|metric| view.run.suite == "matrix" || *metric != Metric::Extrapolated);
        let table = |metric| Block::Table(tables::metric(view, &scenarios, metric));
        return present.into_iter().map(table).collect();
    }
    let mut blocks = Vec::new();
    for scenario in scenarios {
        blocks.push(Block::Heading(scenario.title.clone()));
        blocks.push(Block::Table(tables::scenario(
            view,
            scenario,
            &tables::LOAD,
        )));
    }
    blocks
}

/// Column of the growth table: a contender on a number of nodes, with its scenarios by number of users.
struct Column<'r> {
    name: String,
    contender: &'r str,
    scenarios: Vec<(u64, &'r Scenario)>,
}

/// Returns the growth tables: a row per number of users, a column per contender and number of nodes.
fn growth_tables(view: View) -> Vec<Block> {
    let scenarios = view.scenarios();
    let mut users: Vec<u64> = Vec::new();
    let mut columns: Vec<Column> = Vec::new();
    for scenario in scenarios {
        let count = scenario.number("users").unwrap_or(0.0) as u64;
        if !users.contains(&count) {
            users.push(count);
        }
        // The title has the form `2 nodes, 800 users`.
        let setup = scenario
            .title
            .rsplit_once(", ")
            .map_or("", |(setup, _)| setup);
        for facts in view.contenders_in(scenario) {
            let name = format!("{setup}: {}", facts.title);
            match columns.iter_mut().find(|column| column.name == name) {
                Some(column) => column.scenarios.push((count, scenario)),
                None => columns.push(Column {
                    name,
                    contender: &facts.name,
                    scenarios: vec![(count, scenario)],
                }),
            }
        }
    }
    users.sort_unstable();
    let table = |metric: Metric| {
        let mut head = vec!["users".to_owned()];
        head.extend(columns.iter().map(|column| column.name.clone()));
        let row = |count: &u64| {
            let mut cells = vec![Entry::new(number::whole(*count as f64))];
            cells.extend(columns.iter().map(|column| {
                let mut scenarios = column.scenarios.iter();
                let scenario = scenarios.find(|(users, _)| users == count);
                scenario.map_or(Entry::none(), |(_, scenario)| {
                    view.entry(metric, scenario, column.contender)
                })
            }));
            Row {
                cells,
                ..Row::default()
            }
        };
        Block::Table(Table {
            caption: metric.title(),
            head,
            rows: users.iter().map(row).collect(),
            ..Table::default()
        })
    };
    let metrics = [Metric::Rate, Metric::Availability, Metric::Percentile("99")];
    metrics.map(table).into()
}

/// Returns the main scenarios: of the matrix 1 and 16 connections per processor with the fewest threads, of
/// other suites all scenarios.
fn telling<'r>(view: View<'r>) -> Vec<&'r Scenario> {
    let mut scenarios = view.scenarios();
    if view.run.suite == "matrix" {
        let threads = |scenario: &Scenario| scenario.number("threads").unwrap_or(1.0);
        let fewest = scenarios
            .iter()
            .map(|scenario| threads(scenario))
            .fold(f64::INFINITY, f64::min);
        let told = |scenario: &Scenario| {
            threads(scenario) == fewest
                && scenario
                    .number("connections_per_cpu")
                    .is_none_or(|count| count == 1.0 || count == 16.0)
        };
        scenarios.retain(|scenario| told(scenario));
    }
    scenarios
}

fn versions(run: &Run) -> String {
    let view = View { run };
    let name = |facts: &ContenderFacts| {
        format!("{} {}", facts.title, facts.version)
            .trim_end()
            .to_owned()
    };
    let all: Vec<String> = view.contenders().into_iter().map(name).collect();
    format!("Versions: {}.", all.join(", "))
}

/// Returns a suite's rows of the short table, which has eight rows for all suites of a visitor's interest: many kept
/// connections and their memory, new connections, full handshakes, HTTP/2 and HTTP/3, a page of the page cache, and a
/// proxied page over TLS. Other suites have a row for each main scenario.
fn summary_rows(run: &Run) -> Vec<Row> {
    let view = View { run };
    let mut scenarios = telling(view);
    let metrics: &[Metric] = match run.suite.as_str() {
        "journal" => {
            keep_most(&mut scenarios, "connections");
            &[Metric::CpuPerRequest, Metric::Memory]
        }
        "page" => &[Metric::Extra("load_ms")],
        "matrix" => {
            keep_most(&mut scenarios, "size");
            &[Metric::CpuPerRequest]
        }
        "dynamic" => {
            let is_cached = |it: &&Scenario| {
                it.word("page")
                    .is_some_and(|page| page.contains("page cache"))
            };
            scenarios.retain(is_cached);
            keep_most(&mut scenarios, "users");
            &[Metric::CpuPerRequest]
        }
        "proxy" => {
            scenarios.retain(|it| it.word("protocol") == Some("https"));
            keep_most(&mut scenarios, "connections");
            &[Metric::CpuPerRequest]
        }
        "handshake" => {
            scenarios.retain(|it| it.word("resumption") != Some("resumed"));
            &[Metric::CpuPerRequest]
        }
        "protocols" => {
            scenarios.retain(|it| matches!(it.word("protocol"), Some("h2" | "h3")));
            &[Metric::CpuPerRequest]
        }
        "growth" => {
            keep_most(&mut scenarios, "users");
            &[Metric::Rate]
        }
        _ => &[Metric::CpuPerRequest],
    };
    let rows = |scenario: &&Scenario| {
        let rows = metrics.iter();
        let rows = rows.filter_map(|metric| summary_row(view, scenario, *metric));
        rows.collect::<Vec<Row>>()
    };
    scenarios.iter().flat_map(rows).collect()
}

/// Keeps the scenario with the largest value of a parameter; of equals, the last.
fn keep_most(scenarios: &mut Vec<&Scenario>, key: &str) {
    let value = |scenario: &&Scenario| scenario.number(key).unwrap_or(0.0);
    let most = scenarios.iter().copied();
    let most = most.max_by(|a, b| value(a).total_cmp(&value(b)));
    *scenarios = Vec::from_iter(most);
}

/// Returns the row of a metric: anthill, and the two best peers even if ahead of anthill.
///
/// `None` if the rounds were too few to compare anthill with either peer, or if anthill differs from neither: the short
/// table states no figure that another run could turn over and no row that proves nothing. The complete tables have the
/// figure with its mark.
fn summary_row(view: View, scenario: &Scenario, metric: Metric) -> Option<Row> {
    let ours = view.estimate(metric, scenario, &view.ours()?.name)?;
    let more_is_better = metric.better() == Some(Better::More);
    let mut peers: Vec<_> = view
        .contenders_in(scenario)
        .into_iter()
        .filter(|facts| !is_ours(&facts.name))
        .filter_map(|facts| Some((facts, view.estimate(metric, scenario, &facts.name)?)))
        .collect();
    peers.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
    if more_is_better {
        peers.reverse();
    }
    let standing = |name: &str| view.standing(scenario, name);
    peers.sort_by_key(|(facts, _)| standing(&facts.name).rank());
    if peers.is_empty() {
        return None;
    }
    peers.truncate(PEERS_IN_SUMMARY);
    let verdict = |peer: &Estimate| {
        statistics::compare_rounds(&ours.values, &peer.values).map(|found| found.verdict)
    };
    let mut verdicts = peers.iter().filter_map(|(_, peer)| verdict(peer));
    let is_undecided = verdicts.clone().any(|verdict| verdict == Verdict::TooFew);
    if is_undecided || verdicts.all(|verdict| verdict == Verdict::WithinNoise) {
        return None;
    }
    let beside: Vec<String> = peers
        .iter()
        .map(|(facts, peer)| {
            let found = statistics::compare_rounds(&ours.values, &peer.values);
            let remark = found.map_or("", |found| found.remark()).to_owned();
            let remark = match standing(&facts.name).mark().unwrap_or(remark) {
                none if none.is_empty() => none,
                remark => format!(" ({remark})"),
            };
            let figure = metric.format(peer.median);
            format!("{}: {figure}{remark}", title_and_version(facts))
        })
        .collect();
    let direction = if more_is_better { MORE_IS_BETTER } else { "" };
    // The titles of the suite of balancers do not repeat that the pages come from members.
    let kind = if view.run.suite == "proxy" {
        "proxied, "
    } else {
        ""
    };
    let title = &scenario.title;
    let name = format!("{}: {kind}{title}{direction}", metric.title());
    let mut our_own = Entry::new(metric.format(ours.median));
    if let Some(mark) = standing(&view.ours()?.name).mark() {
        our_own.text.push_str(&format!(" ({mark})"));
    }
    let cells = vec![Entry::new(name), our_own, beside.join(", ").into()];
    Some(Row {
        cells,
        ..Row::default()
    })
}

/// Returns the name of a contender with its version: `nginx 1.22.1`. A version of several programs is put into brackets.
fn title_and_version(facts: &ContenderFacts) -> String {
    match facts.version.as_str() {
        "" => facts.title.clone(),
        several if several.contains(' ') => format!("{} ({several})", facts.title),
        version => format!("{} {version}", facts.title),
    }
}

/// End of the name of a row with a rate.
const MORE_IS_BETTER: &str = " (higher is better)";
const BEGIN: &str = "<!-- performance -->";
const END: &str = "<!-- /performance -->";
const SCENARIOS_WITH_TABLES: usize = 6;
const PEERS_IN_SUMMARY: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(names: &[&str]) -> Vec<Run> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
        let read = |name: &&str| Run::read(&folder.join(format!("sample-{name}.json"))).unwrap();
        names.iter().map(read).collect()
    }

    #[test]
    fn figures_go_between_the_marks_and_nowhere_else() {
        let text = format!("# Performance\n\n{BEGIN}\nold\n{END}\n\nafter\n");
        let new = between_marks(&text, "| new |\n").unwrap();
        assert_eq!(
            new,
            format!(
                "# Performance\n\n{BEGIN}\n| new |\n\n{}\n{END}\n\nafter\n",
                stamp("| new |")
            )
        );
        assert_eq!(
            between_marks(&new, "| new |").unwrap(),
            new,
            "twice is once"
        );
        for wrong in ["", BEGIN, "<!-- /performance --><!-- performance -->"] {
            assert_eq!(between_marks(wrong, "x"), None, "{wrong}");
        }
        assert_eq!(
            between_marks(&format!("{text}{text}"), "x"),
            None,
            "two places"
        );
    }

    #[test]
    fn a_file_without_marks_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("README.md");
        std::fs::write(&path, "nothing").unwrap();
        let message = write(&path, "x").unwrap_err().to_string();
        assert!(
            message.contains("README.md") && message.contains("<!-- performance -->"),
            "{message}"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "nothing");
        std::fs::write(&path, format!("a\n{BEGIN}\n{END}\n")).unwrap();
        assert!(write(&path, "x").unwrap());
        assert!(
            !write(&path, "x").unwrap(),
            "nothing changes the second time"
        );
    }

    #[test]
    fn the_page_has_every_suite_with_its_command() {
        let text = figures(&samples(&["journal-desktop", "hello", "matrix", "page"]));
        for words in [
            "### Sample: a journal over TLS",
            "#### TLS, 1,500 connections",
            "■■■",
            "anthill bench run matrix",
            "DOMContentLoaded",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("2 threads"), "the matrix is cut down");
        assert!(!text.contains("<script>"));
    }

    /// The figures in the repository's own documents match their checksum.
    #[test]
    fn nothing_between_the_marks_is_typed_by_hand() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in ["docs/performance.md", "README.md"] {
            let text = std::fs::read_to_string(root.join(name)).unwrap();
            let (_, rest) = text.split_once(BEGIN).unwrap();
            let (between, _) = rest.split_once(END).unwrap();
            let (figures, stamped) = between.trim().rsplit_once('\n').unwrap();
            assert_eq!(
                stamped,
                stamp(figures.trim()),
                "{name}: changed by hand between the marks; `make bench` writes the figures"
            );
        }
    }

    #[test]
    fn each_section_says_when_where_and_how() {
        let text = figures(&samples(&["journal-desktop", "matrix"]));
        assert_eq!(
            text.matches("2026-11-20, 8 × Sample CPU").count(),
            2,
            "{text}"
        );
        assert_eq!(text.matches("Versions: ").count(), 2, "{text}");
        assert!(text.contains("requests/s, extrapolated"), "{text}");
    }

    #[test]
    fn the_readme_has_no_row_with_too_few_rounds() {
        let mut runs = samples(&["journal-desktop", "hello"]);
        let row = "CPU per request: TLS, 1,500 connections";
        assert!(summary(&runs).contains(row));
        for cell in &mut runs[0].cells {
            cell.rounds.truncate(1);
        }
        let text = summary(&runs);
        assert!(!text.contains("TLS, 1,500 connections"), "{text}");
        assert!(!text.contains(Verdict::TooFew.remark()), "{text}");
        assert!(text.contains("10 clients"), "{text}");
        // The complete tables have the scenario, with the mark.
        let text = figures(&runs);
        assert!(text.contains("TLS, 1,500 connections"), "{text}");
        assert!(text.contains(Verdict::TooFew.remark()), "{text}");
    }

    #[test]
    fn the_readme_also_shows_peers_ahead_of_anthill() {
        let text = summary(&samples(&["journal-desktop", "hello", "handshake"]));
        let row = |begin: &str| {
            text.lines()
                .find(|line| line.contains(begin))
                .unwrap_or_else(|| panic!("{text}"))
        };
        assert!(row("CPU per request: TLS, 1,500").contains("16."), "{text}");
        assert!(row("memory: TLS, 1,500").contains("17.8 MB"), "{text}");
        let hello = row("10 clients");
        assert!(
            hello.contains("nginx 1.22.1: 18.6 µs, Go fasthttp 1.58.0: "),
            "{hello}"
        );
        assert_eq!(text.matches("handshakes").count(), 1, "{text}");
    }

    #[test]
    fn the_readme_says_which_direction_is_better() {
        let mut runs = samples(&["hello"]);
        assert!(summary(&runs).contains(" Lower is better.\n"));
        assert!(!summary(&runs).contains("higher"));
        // The suite of rising users has a row with a rate.
        runs[0].suite = "growth".to_owned();
        let text = summary(&runs);
        assert!(
            text.contains("Lower is better, unless the row says otherwise."),
            "{text}"
        );
        let rate = text.lines().find(|line| line.contains("requests/s"));
        assert!(
            rate.is_some_and(|row| row.contains("(higher is better) |")),
            "{text}"
        );
    }

    #[test]
    fn the_readme_has_no_row_without_a_difference() {
        let mut runs = samples(&["hello"]);
        let ours = runs[0].cells.iter().find(|cell| is_ours(&cell.contender));
        let ours = ours.expect("a cell of anthill").rounds.clone();
        assert!(summary(&runs).contains("10 clients"));
        for cell in &mut runs[0].cells {
            cell.rounds.clone_from(&ours);
        }
        let text = summary(&runs);
        assert!(!text.contains("10 clients"), "{text}");
        // The complete tables still have the figures.
        assert!(figures(&runs).contains("nginx"));
    }

    #[test]
    fn a_server_of_several_programs_has_its_versions_in_brackets() {
        let mut run = samples(&["hello"]).swap_remove(0);
        let facts = &mut run.contenders[1];
        facts.version = "nginx 1.22.1, uwsgi 2.0.21".to_owned();
        assert_eq!(
            title_and_version(facts),
            "nginx (nginx 1.22.1, uwsgi 2.0.21)"
        );
        facts.version.clear();
        assert_eq!(title_and_version(facts), "nginx");
    }

    #[test]
    fn balancers_have_their_tables_and_rows() {
        let mut runs = samples(&["proxy"]);
        let text = figures(&runs);
        for words in ["CPU per request", "added 99 % latency", "memory"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        for cell in &mut runs[0].cells {
            let is_peer = !is_ours(&cell.contender);
            for round in cell.rounds.iter_mut().filter(|_| is_peer) {
                round.server.user_seconds *= 10.0;
                round.server.system_seconds *= 10.0;
            }
        }
        let text = summary(&runs);
        assert!(
            text.contains("CPU per request: proxied, TLS, 5,100 bytes, 200 connections"),
            "{text}"
        );
        assert!(!text.contains("32 connections"), "{text}");
    }

    #[test]
    fn the_readme_ranks_no_failed_contender() {
        let mut runs = samples(&["hello"]);
        for cell in &mut runs[0].cells {
            if cell.contender == "nginx" {
                let round = &mut cell.rounds[0];
                round.failures.insert("closed".to_owned(), round.requests);
            }
        }
        let text = summary(&runs);
        assert!(text.contains("10 clients"), "{text}");
        // A contender that failed in part is not among the best peers, even with the best figures.
        assert!(!text.contains("nginx"), "{text}");
    }
}
