//! Command line: a table describes all commands, and each command has a file.

mod command;
mod import;
mod list;
mod load;
mod problem;
mod report;
mod run;
mod table;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use crate::interrupt;
use crate::nearest::nearest;

use command::Command;
use problem::{Done, Problem, print};
use table::COMMANDS;

/// Runs the command given by the arguments after the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let done = match arguments.next() {
        None => print(&table::overview()),
        Some(word) => carry_out(&word.to_string_lossy(), arguments.collect()),
    };
    done.unwrap_or_else(|problem| {
        // Errors are ignored: no other place is left for the message.
        let _ = writeln!(std::io::stderr(), "{problem}");
        ExitCode::from(problem.code())
    })
}

fn carry_out(word: &str, words: Vec<OsString>) -> Done {
    match word {
        "-h" | "--help" | "help" => return print(&table::overview()),
        "-V" | "--version" | "version" => return print(&format!("{}\n", crate::TOOL)),
        interrupt::CLEAN_UP => return Ok(interrupt::clean_up(&words)),
        _ => {}
    }
    let command = find(word)?;
    let arguments = command.parse(words)?;
    if arguments.has("help") {
        return print(&command.help());
    }
    (command.run)(&arguments)
}

fn find(word: &str) -> Result<&'static Command, Problem> {
    if let Some(command) = COMMANDS.iter().find(|command| command.name == word) {
        return Ok(command);
    }
    let problem = Problem::usage(format!("unknown command `{word}`"));
    let suites = crate::suite::SUITES.iter().map(|suite| suite.name);
    if suites.clone().any(|suite| suite == word) {
        return Err(problem.help(format!("a suite is run by `anthill bench run {word}`")));
    }
    let near = nearest(word, COMMANDS.iter().map(|command| command.name));
    Err(match near.first() {
        Some(near) => problem.help(format!("did you mean `anthill bench {near}`?")),
        None => problem.help("see `anthill bench --help`"),
    })
}
