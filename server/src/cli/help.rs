//! `anthill help`, with the reasons of rules, `--help` and `anthill version`.

use crate::cli::shared_options::CommandSpec;
use cli::{Operand, ValueKind};
use std::process::ExitCode;

use super::external::SHARED_COMMANDS;
use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use cli::Program;
use cli::help::{columns, command, wrap};
use cli::output::print_result;
use flate2::{Decompress, FlushDecompress};

/// The command `version`.
pub(super) const VERSION: CommandSpec = CommandSpec {
    name: "version",
    about: "Print the version",
    details: &[],
    operands: &[],
    options: &[],
    run: run_version,
};

/// The command `help`.
pub(super) const HELP: CommandSpec = CommandSpec {
    name: "help",
    about: "Print the help of a command, or the reason of a rule",
    details: &["anthill help R742 prints the causes of the rule R742 in a log."],
    operands: &[Operand {
        name: "COMMAND",
        required: false,
        values: ValueKind::Commands,
    }],
    options: &[],
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let program = typed.program();
    let word = typed.operand_at(0).and_then(|word| word.to_str());
    let text = match word.and_then(rule_number) {
        Some(number) => rule(number)?,
        None => match SHARED_COMMANDS.iter().find(|it| word == Some(it.word)) {
            Some(it) => format!(
                "{}\n\n`anthill {} --help` prints the help. The command belongs to the program anthill-{}.\n",
                it.about, it.word, it.program
            ),
            None => match word.and_then(|word| program.find(word)) {
                Some(found) => command(program, found),
                None => overview(program),
            },
        },
    };
    Ok(print_result(&text))
}

/// Rows of the guide's table of rules (docs/src/rejects.md), compressed by build.rs.
const RULES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rejects"));
/// Largest number of bytes of the rows.
const RULES_BYTES_MAX: usize = 64 * 1024;

/// Returns the rows of the guide's table of rules.
fn rules() -> String {
    let mut rows = Vec::with_capacity(RULES_BYTES_MAX);
    let mut inflater = Decompress::new(false);
    // The bytes come from the build, and a test reads the rows of all rules.
    let _ = inflater.decompress_vec(RULES, &mut rows, FlushDecompress::Finish);
    String::from_utf8(rows).unwrap_or_default()
}

/// Returns the text of `anthill help R742`: the row of the guide with the status, the reason and the causes.
pub(super) fn rule(number: u16) -> Result<String, OperatorError> {
    let start = format!("| R{number} | ");
    let rows = rules();
    let row = rows.lines().find_map(|line| line.strip_prefix(&start));
    let mut cells = row.unwrap_or_default().splitn(3, " | ");
    let (Some(status), Some(reason), Some(causes)) = (cells.next(), cells.next(), cells.next())
    else {
        let what = format!("there is no rule R{number}");
        return Err(OperatorError::new(what).help("write a rule of the log, such as R742"));
    };
    let mut text = format!("R{number}: {reason}\nStatus {status}\n");
    let causes = plain(causes.trim_end_matches(['|', ' ']));
    if !causes.is_empty() {
        text.push('\n');
        wrap(&mut text, &causes);
    }
    Ok(text)
}

/// Returns Markdown without links and emphasis.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, target)) = rest.split_once("](") {
        let (before, label) = before.rsplit_once('[').unwrap_or((before, ""));
        text.push_str(before);
        text.push_str(label);
        rest = target.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.replace("*Closes.*", "The connection closes.")
}

pub(super) fn run_version(_typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    Ok(print_result(&version()))
}

pub(super) fn version() -> String {
    format!("anthill {}\n", env!("CARGO_PKG_VERSION"))
}

/// Returns the text of `anthill --help`.
pub(super) fn overview(program: &Program<OperatorError>) -> String {
    let mut text = version();
    text.push_str(
        "A web server the size of an ant\n\nUsage: anthill COMMAND [OPTIONS]\n\nCommands:\n",
    );
    let rows: Vec<(String, &str)> = program
        .commands
        .iter()
        .map(|c| (c.name.to_owned(), c.about))
        .collect();
    columns(&mut text, &rows);
    text.push_str("\nCommands of the program anthill-publish:\n");
    let shared = SHARED_COMMANDS.iter();
    let rows: Vec<(String, &str)> = shared.map(|it| (it.word.to_owned(), it.about)).collect();
    columns(&mut text, &rows);
    text.push_str(
        "\nanthill serve          serves the current folder on https://localhost:8443\n\
         anthill serve DIR      serves the folder DIR\n\
         anthill COMMAND --help prints the help of a command\n\
         anthill WORD           runs the program anthill-WORD, if installed\n",
    );
    text
}

/// Returns the number of a rule as in the log: `R742`, or `742` in JSON.
pub(super) fn rule_number(word: &str) -> Option<u16> {
    word.strip_prefix(['R', 'r']).unwrap_or(word).parse().ok()
}
