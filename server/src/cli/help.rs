//! `anthill help`, with the reasons of rules, `--help` and `anthill version`.

use std::fmt::Write;
use std::process::ExitCode;

use super::parse::{ParsedArguments, rule_number};
use crate::cli::commands::{COMMANDS, CommandSpec};
use crate::config::OperatorError;
use crate::wire::reject::Reject;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let word = typed.operand_at(0).and_then(|word| word.to_str());
    let text = match word.and_then(rule_number) {
        Some(number) => rule(number)?,
        None => word.and_then(super::find).map_or_else(overview, command),
    };
    Ok(super::print_result(&text))
}

/// Returns the text of `anthill help R742`: the reason of the rule, and the section of the guide.
pub(super) fn rule(number: u16) -> Result<String, OperatorError> {
    let Some(reason) = Reject::reason_of(number) else {
        let what = format!("there is no rule R{number}");
        return Err(
            OperatorError::new(what).help("the guide lists all rules in docs/src/rejects.md")
        );
    };
    let section = match number {
        ..200 => "Request line",
        200..300 => "Fields",
        300..400 => "Request body",
        400..500 => "Routing and access",
        500..600 => "Resource",
        600..700 => "Time and load",
        700..730 => "Scripts and backends",
        730.. => "Members of a balancer",
    };
    Ok(format!(
        "R{number}: {reason}\n\nThe guide has the causes in docs/src/rejects.md, \"{section}\".\n"
    ))
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
