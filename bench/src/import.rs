//! Outputs of other load generators as a result: of a run of one's own from years ago, of a page
//! that shows them. A text may hold several outputs among other words; each is a row.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::driver::reading::{ReadError, Reading};
use crate::driver::{Driver, ab, h2load, siege, wrk};
use crate::result::{Cell, ContenderFacts, FORMAT, Machine, Parameter, Run, Scenario};

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

/// Makes a run of a text, one row for each output in it. `name` is the file's, for titles and
/// messages; when it was measured, and where, only the user knows.
pub fn import(name: &str, text: &str, command: &str) -> Result<Run, ImportError> {
    let pieces = pieces(text);
    if pieces.is_empty() {
        return Err(ImportError::Nothing {
            name: name.to_owned(),
        });
    }
    let now = Timestamp::now().to_string();
    let mut run = Run {
        format: FORMAT,
        tool: crate::TOOL.to_owned(),
        suite: "import".to_owned(),
        title: format!("Imported from {name}"),
        begun: now.clone(),
        ended: now,
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
    };
    for (nth, piece) in pieces.iter().enumerate() {
        let reading = piece.read().map_err(|source| ImportError::Bad {
            name: name.to_owned(),
            line: piece.line,
            driver: piece.driver,
            source,
        })?;
        add(&mut run, nth, piece, reading);
    }
    Ok(run)
}

/// One output in a text.
struct Piece {
    driver: Driver,
    /// From 1.
    line: usize,
    /// What stands before it and names the server: `## Nginx`, or ab's own field.
    heading: Option<String>,
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
        (Driver::Siege, line.starts_with("Transactions:")),
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
    for (nth, line) in text.lines().enumerate() {
        if let Some(driver) = beginning(line) {
            pieces.push(Piece {
                driver,
                line: nth + 1,
                heading: heading.clone(),
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

fn add(run: &mut Run, nth: usize, piece: &Piece, reading: Reading) {
    let target = reading.target.clone();
    let contender = piece
        .heading
        .clone()
        .or_else(|| target.as_deref().map(server_of))
        .unwrap_or_else(|| "unknown".to_owned());
    if !run.contenders.iter().any(|known| known.name == contender) {
        run.contenders.push(ContenderFacts {
            name: contender.clone(),
            title: contender.clone(),
            ..ContenderFacts::default()
        });
    }
    let mut parameters: BTreeMap<String, Parameter> = reading
        .settings
        .iter()
        .map(|(name, value)| (name.clone(), Parameter::Count(*value)))
        .collect();
    let settings: Vec<String> = reading
        .settings
        .iter()
        .map(|(name, value)| format!("{value} {name}"))
        .collect();
    if let Some(target) = &target {
        parameters.insert("target".to_owned(), Parameter::Word(target.clone()));
    }
    let title = format!(
        "{}, {} ({})",
        target.as_deref().unwrap_or("no address given"),
        piece.driver,
        settings.join(", ")
    );
    let id = format!("{}-{}", piece.driver, nth + 1);
    run.scenarios.push(Scenario {
        id: id.clone(),
        title,
        parameters,
    });
    run.cells.push(Cell {
        scenario: id,
        contender,
        rounds: vec![reading.into_round(piece.driver.name())],
        failure: None,
    });
}

/// `https://www.example.org/page.html`: its host.
fn server_of(target: &str) -> String {
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_of_each() {
        for (name, text) in [
            ("wrk", include_str!("../tests/drivers/wrk.txt")),
            ("ab", include_str!("../tests/drivers/ab.txt")),
            ("siege", include_str!("../tests/drivers/siege.txt")),
            ("siege", include_str!("../tests/drivers/siege-text.txt")),
            ("h2load", include_str!("../tests/drivers/h2load.txt")),
        ] {
            let run = import("a.txt", text, "").expect("an output");
            assert_eq!(run.cells.len(), 1, "{name}");
            assert_eq!(run.cells[0].rounds[0].driver, name);
            assert!(run.cells[0].rounds[0].requests > 0);
        }
    }

    /// A page as people write them: three outputs, indented under headings.
    #[test]
    fn a_page_with_several() {
        let ab = include_str!("../tests/drivers/ab.txt").replace('\n', "\n    ");
        let wrk = include_str!("../tests/drivers/wrk.txt").replace('\n', "\n  ");
        let page = format!(
            "# Benchmarks\n\n##Nginx\n\n    {ab}\n\n## Go\n\nwith\n\n    {ab}\n\n  {wrk}\n"
        );
        let run = import("page.md", &page, "").expect("outputs");
        let names: Vec<&str> = run.contenders.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["Nginx", "Go"]);
        assert_eq!(run.scenarios.len(), 3);
        assert_eq!(run.scenarios[2].id, "wrk-3");
        assert_eq!(run.cells[1].rounds[0].requests, 1_000);
    }

    #[test]
    fn the_server_is_named_by_its_address() {
        let text = include_str!("../tests/drivers/wrk.txt");
        let run = import("wrk.txt", text, "").expect("an output");
        assert_eq!(run.cells[0].contender, "127.0.0.1:28080");
    }

    #[test]
    fn what_is_no_output() {
        let nothing = import("notes.txt", "so fast\n", "").expect_err("no output");
        assert!(nothing.to_string().starts_with("notes.txt: no output"));
        let whole = include_str!("../tests/drivers/wrk.txt");
        let cut = format!("\n{}", &whole[..whole.len() / 2]);
        let bad = import("wrk.txt", &cut, "").expect_err("cut off");
        assert!(
            bad.to_string()
                .starts_with("wrk.txt, line 2: the output of wrk")
        );
    }
}
