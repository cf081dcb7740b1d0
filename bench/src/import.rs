//! Outputs of other load generators as a result: of a run of one's own from years ago, of a page
//! that shows them. A text may hold several outputs among other words; each is a row.

use std::collections::BTreeMap;
use std::path::Path;

use crate::driver::reading::{self, ReadError, Reading};
use crate::driver::{Driver, ab, h2load, siege, wrk};
use crate::result::{Cell, ContenderFacts, FORMAT, Machine, Round, Run, Scenario};

/// Why nothing was imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// No driver knows it.
    #[error("{name}: no output of wrk, ab, siege or h2load is in it")]
    Nothing {
        /// The file.
        name: String,
    },
    /// One of them wrote it, but it isn't whole.
    #[error("{name}, line {line}: the output of {driver}: {source}")]
    Bad {
        /// The file.
        name: String,
        /// Where the output begins.
        line: usize,
        /// Who wrote it.
        driver: Driver,
        /// What is wrong.
        source: ReadError,
    },
}

/// A text with outputs in it.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file's name, for titles and messages.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Makes a run of some texts. Outputs of one generator are rows of one table; a row is named by the heading above its output, else by its file. When it was
/// measured, and where, only the user knows.
pub fn import(sources: &[Source], command: &str) -> Result<Run, ImportError> {
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

/// Whether a run is of outputs that others printed.
pub fn is_imported(run: &Run) -> bool {
    run.suite == SUITE
}

/// Imported runs as one, so that their outputs of one generator stand in one table; a run of a suite has
/// its own.
pub fn together(runs: &[&Run]) -> Run {
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

/// A run with nothing in it yet.
fn empty(command: &str) -> Run {
    Run {
        format: FORMAT,
        tool: crate::TOOL.to_owned(),
        suite: SUITE.to_owned(),
        title: String::new(),
        // Nobody said when.
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
            "Imported: when and on what machine it was measured isn't known, nor what the server \
             used."
                .to_owned(),
        ],
    }
}

/// One output in a text.
struct Piece {
    driver: Driver,
    /// From 1.
    line: usize,
    /// What stands before it and names the server: `## Nginx`, or ab's own field.
    heading: Option<String>,
    /// siege's users, from its command or its first words.
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

    /// The server's name for itself, which ab prints.
    fn software(&self) -> Option<String> {
        let line = self
            .text
            .lines()
            .find_map(|l| l.strip_prefix("Server Software:"))?;
        Some(line.trim().to_owned()).filter(|name| !name.is_empty())
    }
}

/// The first words of an output, by which one is told from the next.
fn beginning(line: &str) -> Option<Driver> {
    let line = line.trim_start();
    let (driver, _) = [
        (
            Driver::Wrk,
            line.starts_with("Running ") && line.contains("test @ "),
        ),
        (Driver::Ab, line.starts_with("Server Software:")),
        // Behind other words too: pages show all of it in one line.
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
                // What stands far above was about something else.
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
            // The layout of a page that shows it: indented, or quoted.
            piece.text.push_str(unindented(line, piece.driver));
            piece.text.push('\n');
        }
    }
    for piece in &mut pieces {
        if piece.driver == Driver::Siege {
            // Its brace stands alone in the line before.
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

/// ab's fields begin their lines; the columns of the others are found by their labels.
fn unindented(line: &str, driver: Driver) -> &str {
    match driver {
        Driver::Ab => line.strip_prefix("    ").unwrap_or(line),
        _ => line,
    }
}

/// `siege -d1 -c200 -t1m`, `** Preparing 200 concurrent users for battle.`: 200.
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
    // As columns: 002 compared pages of different lengths, and one server with fewer connections.
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

/// Adds a row; a second one of the same name is another's, or measured after something was changed,
/// and gets a number.
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

/// `https://www.example.org/page.html`: its host.
fn server_of(target: &str) -> String {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// The suite's name in results.
const SUITE: &str = "import";
const TITLE: &str = "Imported from ";
/// From siege's command to its output, with words between.
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
    fn an_output_of_each() {
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
            assert_eq!(run.begun, "", "nobody said when it was measured");
        }
    }

    /// A page as people write them: outputs indented under headings. Those of one generator are compared,
    /// though addresses and lengths differ.
    #[test]
    fn a_page_with_several() {
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
    fn files_name_their_rows() {
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

    /// As pages show it: all of siege's words in one line, its command somewhere above.
    #[test]
    fn siege_in_one_line() {
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
    fn what_is_no_output() {
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

    /// Cut anywhere, an output is never taken as whole, but where only its last line's figures are
    /// shorter by a digit.
    #[test]
    fn an_output_cut_off_is_refused() {
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
