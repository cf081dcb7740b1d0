//! Command line: a table describes all commands, and each command has a file.

mod import;
mod list;
mod load;
mod problem;
mod report;
mod run;
mod table;
mod typed;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::interrupt;
use crate::nearest::nearest;
pub use problem::{INTERRUPTED, Problem};
use table::{COMMANDS, Command};

/// Result of a command: an exit status, or a problem to report.
pub type Done = Result<ExitCode, Problem>;

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

fn carry_out(word: &str, arguments: Vec<OsString>) -> Done {
    match word {
        "-h" | "--help" | "help" => return print(&table::overview()),
        "-V" | "--version" | "version" => return print(&format!("{}\n", crate::TOOL)),
        interrupt::CLEAN_UP => return Ok(interrupt::clean_up(&arguments)),
        _ => {}
    }
    let command = find(word)?;
    let typed = typed::parse(command, arguments)?;
    if typed.has("help") {
        return print(&table::help(command));
    }
    (command.run)(&typed)
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

/// Prints to standard output. A closed pipe is not an error, since the reader may stop early.
fn print(text: &str) -> Done {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Problem::failure(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a text to a file, or to standard output without a file.
fn put(text: &str, file: Option<&Path>) -> Done {
    let Some(file) = file else {
        return print(text);
    };
    let failed = |error| Problem::failure(format!("{}: {error}", file.display()));
    std::fs::write(file, text).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
