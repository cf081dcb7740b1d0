//! Command line: a table describes the commands, and each command has a file.

mod command;
mod outcome;
mod output;
mod publish;
mod publish_hosts;
mod publish_order;
mod publish_run;
mod releases;
mod releases_of_host;
mod release_list;
mod rollback;
mod signed_records;
mod signing_key;
mod site_of_store;

use crate::problem::Problem;
use command::{CommandSpec, ParsedCommand};
use output::print;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// Commands by their names. `anthill NAME` runs `anthill-publish NAME`.
const COMMANDS: [&CommandSpec; 3] = [&publish::SPEC, &releases::SPEC, &rollback::SPEC];

/// Runs a command line, given without the name of the program.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let word = arguments.next().unwrap_or_default();
    let done = carry_out(&word.to_string_lossy(), arguments.collect());
    done.unwrap_or_else(|problem| {
        // No other place is left for the message.
        let _ = writeln!(std::io::stderr(), "{problem}");
        ExitCode::from(problem.code())
    })
}

fn carry_out(word: &str, arguments: Vec<OsString>) -> Result<ExitCode, Problem> {
    match word {
        "" | "-h" | "--help" | "help" => {
            let lines = COMMANDS.map(|command| format!("anthill {}\n", command.usage));
            return print(&lines.concat());
        }
        "-V" | "--version" => {
            return print(&format!("anthill-publish {}\n", env!("CARGO_PKG_VERSION")));
        }
        _ => {}
    }
    let command = COMMANDS.iter().find(|command| command.name == word);
    let Some(command) = command else {
        let what = format!("unknown command `{word}`");
        return Err(Problem::usage(what).help("publish, releases, rollback"));
    };
    let parsed = ParsedCommand::parse(command, arguments)?;
    if parsed.has("help") {
        return print(&command.help());
    }
    (command.run)(&parsed)
}
