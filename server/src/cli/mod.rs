//! Command line of anthill: a file for each larger command, and a table of all commands.
//!
//! `commands` defines the table. The parser, the help, the manual page and the shell completions are made
//! from the table.

mod backup;
mod balancer;
mod check;
mod completions;
mod control_client;
mod external;
mod help;
mod man;
mod parse;
mod passwd;
mod receive;
mod running_servers;
mod serve;
mod service;
mod service_folders;
mod service_publisher;
mod system_account;
mod commands;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use crate::cli::commands::{COMMANDS, CommandSpec};
use crate::config::{OperatorError, suggest};

/// Runs a command line, given without the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let outcome = match arguments.next() {
        None => Ok(print_result(&help::overview())),
        Some(word) => command(word, arguments.collect()),
    };
    outcome.unwrap_or_else(|error| fail(&error))
}

fn command(word: OsString, arguments: Vec<OsString>) -> Result<ExitCode, OperatorError> {
    let Some(word) = word.to_str() else {
        return Err(OperatorError::new("the command is not UTF-8").help("see `anthill help`"));
    };
    match word {
        "-h" | "--help" => return Ok(print_result(&help::overview())),
        "-V" | "--version" => return Ok(print_result(&help::version())),
        _ if word.starts_with('-') => {
            return Err(OperatorError::new(format!("unknown option `{word}`"))
                .help("options are written after the command; see `anthill help`"));
        }
        _ => {}
    }
    match find(word) {
        Some(command) => {
            let typed = parse::parse(command, arguments)?;
            if typed.has("help") {
                return Ok(print_result(&help::command(command)));
            }
            (command.run)(&typed)
        }
        None => external::run(word, &arguments).map_or_else(|| Err(unknown(word)), Err),
    }
}

fn find(word: &str) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|command| command.name == word)
}

fn unknown(word: &str) -> OperatorError {
    let error = OperatorError::new(format!("unknown command `{word}`"));
    if let Some(meant) = suggest(word, COMMANDS.iter().map(|command| command.name)) {
        return error.help(format!("did you mean `anthill {meant}`?"));
    }
    if std::path::Path::new(word).exists() {
        return error.help(format!("to serve the path: anthill serve {word}"));
    }
    error.help(format!(
        "see `anthill help`; a program anthill-{word} was not found either"
    ))
}

/// Prints a result to standard output. A closed pipe is no error, as in `anthill help | head`.
fn print_result(text: &str) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.is_empty() && !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Prints a message to standard error and ignores write errors.
fn print_message(text: &str) {
    let text = text.trim_end_matches('\n');
    let _ = writeln!(std::io::stderr().lock(), "{}", paint(text, colours()));
}

fn fail(error: &OperatorError) -> ExitCode {
    print_message(&error.to_string());
    ExitCode::from(error.exit_code())
}

/// Returns true if messages are coloured: only on a capable terminal and without NO_COLOR
/// (<https://no-color.org>).
fn colours() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stderr().is_terminal() && !set("NO_COLOR") && !dumb
}

/// Colours the leading word of each line and the carets of an error message.
fn paint(text: &str, colours: bool) -> String {
    const RED: &str = "\x1b[1;31m";
    const YELLOW: &str = "\x1b[1;33m";
    const CYAN: &str = "\x1b[1;36m";
    if !colours {
        return text.to_owned();
    }
    let mut painted = Vec::new();
    for line in text.lines() {
        let bars = line.trim_start_matches(' ').strip_prefix("| ");
        let carets = bars.is_some_and(|rest| rest.trim().bytes().all(|b| b == b'^'));
        let word = [("error:", RED), ("warning:", YELLOW), ("help:", CYAN)]
            .into_iter()
            .find(|(word, _)| line.starts_with(word));
        painted.push(match (word, line.find('^')) {
            (Some((word, colour)), _) => format!("{colour}{word}\x1b[0m{}", &line[word.len()..]),
            (None, Some(at)) if carets => format!("{}{RED}{}\x1b[0m", &line[..at], &line[at..]),
            _ => line.to_owned(),
        });
    }
    painted.join("\n")
}
