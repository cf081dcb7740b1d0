//! `anthill help`, `--help` and `anthill version`.

use std::fmt::Write;
use std::process::ExitCode;

use super::parse::ParsedArguments;
use crate::cli::commands::{COMMANDS, CommandSpec};
use crate::config::OperatorError;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let named = typed
        .operand_at(0)
        .and_then(|word| super::find(word.to_str()?));
    Ok(super::print_result(&named.map_or_else(overview, command)))
}

pub(super) fn run_version(_typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    Ok(super::print_result(&version()))
}

pub(super) fn version() -> String {
    format!("anthill {}\n", env!("CARGO_PKG_VERSION"))
}

/// Returns the text of `anthill --help`.
pub(super) fn overview() -> String {
    let mut text = version();
    text.push_str(
        "A web server the size of an ant\n\nUsage: anthill COMMAND [OPTIONS]\n\nCommands:\n",
    );
    let rows: Vec<(String, &str)> = COMMANDS
        .iter()
        .map(|c| (c.name.to_owned(), c.about))
        .collect();
    columns(&mut text, &rows);
    text.push_str(
        "\nanthill serve          serves the current folder on https://localhost:8443\n\
         anthill serve DIR      serves the folder DIR\n\
         anthill COMMAND --help prints the help of a command\n\
         anthill WORD           runs the program anthill-WORD, if installed\n",
    );
    text
}

/// Returns the text of `anthill COMMAND --help`.
pub(super) fn command(command: &'static CommandSpec) -> String {
    let mut text = format!("{}\n\nUsage: anthill {}\n", command.about, command.usage());
    for paragraph in command.details {
        text.push('\n');
        wrap(&mut text, paragraph);
    }
    text.push_str("\nOptions:\n");
    let rows: Vec<(String, &str)> = command
        .options()
        .map(|option| (option.usage(), option.about))
        .collect();
    columns(&mut text, &rows);
    text
}

fn columns(text: &mut String, rows: &[(String, &str)]) {
    let width = rows.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
    for (left, right) in rows {
        let _ = writeln!(text, "  {left:width$}  {right}");
    }
}

/// Appends a paragraph in lines of at most 80 columns, each with a line end.
fn wrap(text: &mut String, paragraph: &str) {
    for line in wrapped(paragraph, 80) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// Breaks a paragraph into lines of at most `width` columns.
pub(super) fn wrapped(paragraph: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in paragraph.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
