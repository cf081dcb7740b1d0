//! Import of outputs of other load generators as a result: from an earlier run, or from a web page with
//! outputs. A text may contain several outputs among other text. Each output becomes a row.

use std::collections::BTreeMap;
use std::path::Path;

use crate::driver::reading::{self, ReadError, Reading};
use crate::driver::{Driver, ab, h2load, siege, wrk};
use crate::result::{Cell, ContenderFacts, FORMAT, Machine, Round, Run, Scenario};

/// Error of an import.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImportError {
    /// The text has no output of a known load generator.
    #[error("{name}: no output of wrk, ab, siege or h2load found")]
    Nothing {
        /// Name of the file.
        name: String,
    },
    /// An output is incomplete or invalid.
    #[error("{name}, line {line}: the output of {driver}: {source}")]
    Bad {
        /// Name of the file.
        name: String,
        /// Line where the output begins.
        line: usize,
        /// Load generator of the output.
        driver: Driver,
        /// The cause.
        source: ReadError,
    },
}

/// A text with outputs.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Name of the file, for titles and messages.
    pub name: String,
    /// Content of the file.
    pub text: String,
}

/// Converts texts to a run. All outputs of a load generator are rows of one table. A row is named after the
/// heading above its output, or after the file. Only the operator knows the date and
/// the machine of the measurement.
pub(crate) fn import(sources: &[Source], command: &str) -> Result<Run, ImportError> {
    let mut run = empty(command);
    let mut names = Vec::new();
    for Source { name, text } in sources {
        let pieces = pieces(text);
        if pieces.is_empty() {
            return Err(ImportError::Nothing { name: name.clone() });
        }
        for piece in &pieces {
            let reading = piece.read().map_err(|source| ImportError::Bad {
                name: name.clone(),
                line: piece.line,
                driver: piece.driver,
                source,
            })?;
            add(&mut run, name, piece, reading);
        }
        let file = Path::new(name).file_name();
        names.push(file.map_or(name.as_str().into(), |file| file.to_string_lossy()));
    }
    run.title = format!("{TITLE}{}", names.join(", "));
    Ok(run)
}

/// Returns true if a run was imported.
pub(crate) fn is_imported(run: &Run) -> bool {
    run.suite == SUITE
}

/// Merges imported runs, so that all outputs of a load generator are in one table. Each run of a suite has
/// a table of its own.
pub(crate) fn together(runs: &[&Run]) -> Run {
    let mut all = empty("");
    let titles: Vec<&str> = runs
        .iter()
        .map(|run| run.title.strip_prefix(TITLE).unwrap_or(&run.title))
        .collect();
    all.title = format!("{TITLE}{}", titles.join(", "));
    let commands: Vec<&str> = runs.iter().map(|run| run.command.as_str()).collect();
    all.command = commands.join("\n");
    for run in runs {
        for note in &run.notes {
            if !all.notes.contains(note) {
                all.notes.push(note.clone());
            }
        }
        for cell in &run.cells {
            let scenario = run.scenarios.iter().find(|s| s.id == cell.scenario);
            let facts = run.contenders.iter().find(|f| f.name == cell.contender);
            if let (Some(scenario), Some(facts)) = (scenario, facts) {
                place(&mut all, scenario, facts, cell.rounds.clone());
            }
        }
    }
    all
}

/// Creates an empty run.
fn empty(command: &str) -> Run {
    Run {
        format: FORMAT,
        tool: crate::TOOL.to_owned(),
        suite: SUITE.to_owned(),
        title: String::new(),
        // The time of the measurement is unknown.
        begun: String::new(),
        ended: String::new(),
        complete: true,
        command: command.to_owned(),
        machine: Machine {
            name: "another machine".to_owned(),
            ..Machine::default()
        },
        contenders: Vec::new(),
        scenarios: Vec::new(),
        cells: Vec::new(),
        notes: vec![
            "Imported: the date, the machine and the server's resource usage are unknown."
                .to_owned(),
        ],
    }
}

/// One output within a text.
struct Piece {
    driver: Driver,
    /// Line number, from 1.
    line: usize,
    /// Heading before the output, usually the name of the server: `## Nginx`.
    heading: Option<String>,
    /// Number of siege's users, from the command or the first lines of the output.
    users: Option<u64>,
    text: String,
}

impl Piece {
    fn read(&self) -> Result<Reading, ReadError> {
        match self.driver {
            Driver::Wrk => wrk::parse(&self.text),
            Driver::Ab => ab::parse(&self.text),
            Driver::Siege => siege::parse(&self.text),
            Driver::H2load => h2load::parse(&self.text),
            Driver::Embedded => Err(ReadError::Missing("an output")),
        }
    }

    /// Returns the server's name from the `Server Software:` line of ab.
    fn software(&self) -> Option<String> {
        let line = self
            .text
            .lines()
            .find_map(|l| l.strip_prefix("Server Software:"))?;
        Some(line.trim().to_owned()).filter(|name| !name.is_empty())
    }
}

/// Detects the first line of an output and returns the load generator.
fn beginning(line: &str) -> Option<Driver> {
    let line = line.trim_start();
    let (driver, _) = [
        (
            Driver::Wrk,
            line.starts_with("Running ") && line.contains("test @ "),
        ),
        (Driver::Ab, line.starts_with("Server Software:")),
        // Not only at the start of a line: some web pages show the whole output in one line.
        (
            Driver::Siege,
            line.split_once("Transactions:")
                .is_some_and(|(_, count)| count.contains(" hits")),
        ),
        (Driver::Siege, line.contains("\"transactions\":")),
        (Driver::H2load, line.starts_with("starting benchmark...")),
    ]
    .into_iter()
    .find(|(_, begins)| *begins)?;
    Some(driver)
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut heading = None;
    let mut users: Option<(usize, u64)> = None;
    for (nth, line) in text.lines().enumerate() {
        users = users_in(line).map(|users| (nth, users)).or(users);
        if let Some(driver) = beginning(line) {
            pieces.push(Piece {
                driver,
                line: nth + 1,
                heading: heading.clone(),
                // A command far above belongs to a different output.
                users: users
                    .take()
                    .filter(|(at, _)| driver == Driver::Siege && nth - at <= LINES_TO_COMMAND)
                    .map(|(_, users)| users),
                text: String::new(),
            });
        } else if let Some(words) = line.strip_prefix("##").filter(|l| !l.starts_with('#')) {
            heading = Some(words.trim().to_owned());
        }
        if let Some(piece) = pieces.last_mut() {
            // Removes the indentation of a web page or a quotation.
            piece.text.push_str(unindented(line, piece.driver));
            piece.text.push('\n');
        }
    }
    for piece in &mut pieces {
        if piece.driver == Driver::Siege {
            // The opening brace is in the preceding line.
            piece.text = piece
                .text
                .replace("{\t\"transactions\"", "\"transactions\"");
            if piece.text.contains(siege::MARK_JSON) {
                piece.text.insert(0, '{');
            }
        }
    }
    pieces
}

/// Removes indentation from the output of ab, where labels begin the line. The figures of the other load
/// generators are found by label anywhere in the line.
fn unindented(line: &str, driver: Driver) -> &str {
    match driver {
        Driver::Ab => line.strip_prefix("    ").unwrap_or(line),
        _ => line,
    }
}

/// Returns the number of users in a line, for example 200 in `siege -d1 -c200 -t1m` or `** Preparing 200
/// concurrent users for battle.`.
fn users_in(line: &str) -> Option<u64> {
    if let Some((_, rest)) = line.split_once("** Preparing ") {
        return reading::count(reading::first_word(rest)).ok();
    }
    let (_, options) = line.split_once("siege -")?;
    let first = options.strip_prefix('c');
    let rest = first.or_else(|| Some(options.split_once(" -c")?.1))?;
    let digits = rest.trim_start_matches([' ', '=']);
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

fn add(run: &mut Run, file: &str, piece: &Piece, mut reading: Reading) {
    if let Some(users) = piece.users {
        reading.settings.entry("users".to_owned()).or_insert(users);
    }
    // Settings become columns. Published comparisons contain pages of different lengths, and one server
    // with fewer connections.
    for (name, value) in std::mem::take(&mut reading.settings) {
        reading.extra.insert(name, value as f64);
    }
    let target = reading.target.take();
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str());
    let host = || target.as_deref().map(server_of);
    let name = match (&piece.heading, stem) {
        (Some(heading), _) => heading.clone(),
        (None, Some("-") | None) => host().unwrap_or_else(|| "unknown".to_owned()),
        (None, Some(stem)) => stem.to_owned(),
    };
    let scenario = Scenario {
        id: piece.driver.name().to_owned(),
        title: piece.driver.name().to_owned(),
        parameters: BTreeMap::new(),
    };
    let mut round = reading.into_round(piece.driver.name());
    round.command = target.unwrap_or_default();
    let facts = ContenderFacts {
        name: name.clone(),
        title: name,
        version: piece.software().unwrap_or_default(),
        ..ContenderFacts::default()
    };
    place(run, &scenario, &facts, vec![round]);
}

/// Adds a row. If the name is taken, for example by a repeated measurement after a change, a number is
/// appended to the name.
fn place(run: &mut Run, scenario: &Scenario, facts: &ContenderFacts, rounds: Vec<Round>) {
    if !run.scenarios.iter().any(|known| known.id == scenario.id) {
        run.scenarios.push(scenario.clone());
    }
    let taken = |run: &Run, name: &str| {
        let cells = &mut run.cells.iter();
        cells.any(|cell| cell.scenario == scenario.id && cell.contender == name)
    };
    let mut facts = facts.clone();
    let mut number = 1;
    while taken(run, &facts.name) {
        number += 1;
        let title = &facts.title;
        facts.name = format!("{title} ({number})");
    }
    facts.title.clone_from(&facts.name);
    let contender = facts.name.clone();
    if !run.contenders.iter().any(|known| known.name == contender) {
        run.contenders.push(facts);
    }
    run.cells.push(Cell {
        scenario: scenario.id.clone(),
        contender,
        rounds,
        failure: None,
    });
}

/// Returns the host of a URL such as `https://www.example.org/page.html`.
fn server_of(target: &str) -> String {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// Name of the suite in results.
const SUITE: &str = "import";
const TITLE: &str = "Imported from ";
/// Maximum number of lines from siege's command to its output.
const LINES_TO_COMMAND: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, text: &str) -> Result<Run, ImportError> {
        let source = Source {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        import(&[source], "")
    }

    fn names(run: &Run) -> Vec<&str> {
        run.contenders.iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn an_output_of_each_load_generator_is_imported() {
        for (name, text, settings) in [
            (
                "wrk",
                include_str!("../tests/drivers/wrk.txt"),
                vec![("threads", 1.0), ("connections", 10.0)],
            ),
            (
                "ab",
                include_str!("../tests/drivers/ab.txt"),
                vec![("connections", 10.0), ("body_bytes", 228.0)],
            ),
            ("siege", include_str!("../tests/drivers/siege.txt"), vec![]),
            (
                "siege",
                include_str!("../tests/drivers/siege-text.txt"),
                vec![("users", 10.0)],
            ),
            (
                "h2load",
                include_str!("../tests/drivers/h2load.txt"),
                vec![("connections", 10.0)],
            ),
        ] {
            let run = one("a.txt", text).expect("an output");
            assert_eq!(run.cells.len(), 1, "{name}");
            assert_eq!(run.cells[0].rounds[0].driver, name);
            assert_eq!(run.scenarios[0].title, name);
            for (key, value) in settings {
                assert_eq!(run.cells[0].rounds[0].extra[key], value, "{name}: {key}");
            }
            assert!(run.cells[0].rounds[0].requests > 0);
            assert_eq!(
                run.begun, "",
                "the time of an imported measurement is unknown"
            );
        }
    }

    /// Checks a page with indented outputs under headings. Outputs of the same load generator are rows of
    /// one table, although addresses and lengths differ.
    #[test]
    fn a_page_with_several_outputs_is_imported() {
        let ab = include_str!("../tests/drivers/ab.txt").replace('\n', "\n    ");
        let other = ab
            .replace("/hello.html", "/")
            .replace("228 bytes", "19 bytes");
        let wrk = include_str!("../tests/drivers/wrk.txt").replace('\n', "\n  ");
        let page = format!(
            "# Benchmarks\n\n##Nginx\n\n    {ab}\n\n## Go\n\nwith\n\n    {other}\n\n  {wrk}\n"
        );
        let run = one("page.md", &page).expect("outputs");
        assert_eq!(names(&run), ["Nginx", "Go"]);
        let shapes: Vec<&str> = run.scenarios.iter().map(|s| s.id.as_str()).collect();
        assert_eq!(shapes, ["ab", "wrk"]);
        assert_eq!(run.cells.len(), 3);
        assert_eq!(run.cells[1].rounds[0].extra["body_bytes"], 19.0);
        assert_eq!(run.cells[1].rounds[0].requests, 1_000);
    }

    #[test]
    fn rows_are_named_after_files() {
        let text = include_str!("../tests/drivers/wrk.txt");
        let file = |name: &str, text: &str| Source {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        let files = [
            file("a/nginx.txt", text),
            file("a/go.txt", text),
            file("b/go.txt", text),
        ];
        let run = import(&files, "").expect("outputs");
        assert_eq!(names(&run), ["nginx", "go", "go (2)"]);
        assert_eq!(run.scenarios.len(), 1);
        let (one, two) = (import(&files[..1], ""), import(&files[1..], ""));
        let (one, two) = (one.expect("an output"), two.expect("outputs"));
        let both = together(&[&one, &two]);
        assert_eq!((both.cells, both.scenarios), (run.cells, run.scenarios));
        assert_eq!(both.title, run.title);
        let piped = import(&[file("-", text)], "").expect("an output");
        assert_eq!(names(&piped), ["127.0.0.1:28080"]);
    }

    /// Checks a web page with siege's whole output in one line and the command somewhere above.
    #[test]
    fn siege_output_in_one_line_is_imported() {
        let line = "Lifting the server siege... done. Transactions: 6492 hits Availability: 99.50 % \
            Elapsed time: 59.28 secs Data transferred: 38.86 MB Response time: 1.29 secs \
            Transaction rate: 109.51 trans/sec Throughput: 0.66 MB/sec Concurrency: 141.10 \
            Successful transactions: 6492 Failed transactions: 33 Longest transaction: 11.23 \
            Shortest transaction: 0.32";
        let far = "words\n".repeat(9);
        let page = format!(
            "$ siege -d1 -c200 -t1m\n\n{line}\n\nmore\n\n$ siege -c 800 {line}\n$ siege -c7\n{far}{line}\n"
        );
        let run = one("cluster.html", &page).expect("outputs");
        let users = |nth: usize| run.cells[nth].rounds[0].extra.get("users").copied();
        assert_eq!((users(0), users(1)), (Some(200.0), Some(800.0)));
        assert_eq!(
            (users(2), run.scenarios.len()),
            (None, 1),
            "that command is far above"
        );
        let round = &run.cells[0].rounds[0];
        assert_eq!((round.requests, round.failed()), (6_492, 33));
        assert_eq!(round.extra["availability_percent"], 99.5);
        assert_eq!(round.latency.as_ref().map(|l| l.max_us), Some(11_230_000.0));
    }

    #[test]
    fn text_without_output_is_rejected() {
        one("bank.txt", "Transactions: see below\n").expect_err("no output of siege");
        let nothing = one("notes.txt", "so fast\n").expect_err("no output");
        assert!(nothing.to_string().starts_with("notes.txt: no output"));
        let whole = include_str!("../tests/drivers/wrk.txt");
        let cut = format!("\n{}", &whole[..whole.len() / 2]);
        let bad = one("wrk.txt", &cut).expect_err("cut off");
        assert!(
            bad.to_string()
                .starts_with("wrk.txt, line 2: the output of wrk")
        );
    }

    /// Checks that an output truncated at any position is refused. Positions within the last line are
    /// excepted, where only the figures may be shorter.
    #[test]
    fn truncated_output_is_rejected() {
        for text in [
            include_str!("../tests/drivers/wrk.txt"),
            include_str!("../tests/drivers/wrk-without-latency.txt"),
            include_str!("../tests/drivers/ab.txt"),
            include_str!("../tests/drivers/siege-text.txt"),
            include_str!("../tests/drivers/siege-json.txt"),
            include_str!("../tests/drivers/h2load.txt"),
        ] {
            let whole = text.trim_end();
            let last = whole.rfind('\n').expect("lines");
            for end in 0..=last {
                let read = one("cut.txt", &whole[..end]);
                assert!(read.is_err(), "taken as whole: {}", &whole[..end]);
            }
            assert!(one("whole.txt", whole).is_ok(), "{text}");
        }
    }
}
