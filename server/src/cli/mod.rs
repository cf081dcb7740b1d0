//! Command line of anthill: a file for each larger command, and a table of all commands.
//!
//! Each command stands beside the function that runs it, and has an entry in the table here. The crate `cli` makes the
//! parser, the help, the manual page and the shell completions from the table.

mod arguments;
mod backup;
mod balancer;
mod check;
mod completions;
mod confirmation;
mod explain;
mod control_client;
mod crontab;
mod external;
mod help;
mod hits;
mod init;
mod init_system;
mod installed_service;
mod log_place;
mod log_tail;
mod log_view;
mod man;
mod name_or_place;
mod passwd;
mod proxy;
mod receive;
mod running_servers;
mod runit_service;
mod serve;
mod server_choice;
mod service;
mod service_folders;
mod service_publisher;
mod service_text;
mod shared_options;
mod system_account;
mod trusted_socket;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::cli::external::SHARED_COMMANDS;
use crate::cli::help::rule_number;
use crate::cli::shared_options::CommandSpec;
use crate::config::OperatorError;
use cli::output::{print_message, print_result};
use cli::suggest;

/// The program anthill.
pub(super) static PROGRAM: cli::Program<OperatorError> = cli::Program {
    name: "anthill",
    commands: COMMANDS,
    foreign: &[
        SHARED_COMMANDS[0].word,
        SHARED_COMMANDS[1].word,
        SHARED_COMMANDS[2].word,
    ],
    is_topic: |word| rule_number(word).is_some(),
};

/// All commands, in the order of the help.
static COMMANDS: &[CommandSpec] = &[
    serve::COMMAND,
    proxy::COMMAND,
    init::COMMAND,
    check::COMMAND,
    explain::COMMAND,
    control_client::RELOAD,
    control_client::RESTART,
    control_client::REOPEN,
    control_client::STATUS,
    log_view::COMMAND,
    control_client::REQUESTS,
    control_client::METRICS,
    balancer::COMMAND,
    control_client::MANAGER,
    hits::HITS,
    control_client::PURGE,
    backup::BACKUP,
    receive::COMMAND,
    backup::RESTORE,
    control_client::STOP,
    passwd::COMMAND,
    service::COMMAND,
    completions::COMMAND,
    man::COMMAND,
    help::VERSION,
    help::HELP,
];

/// Runs a command line, given without the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let outcome = match arguments.next() {
        None => Ok(print_result(&help::overview(&PROGRAM))),
        Some(word) => command(word, arguments.collect()),
    };
    outcome.unwrap_or_else(|error| fail(&error))
}

fn command(word: OsString, arguments: Vec<OsString>) -> Result<ExitCode, OperatorError> {
    let Some(word) = word.to_str() else {
        return Err(OperatorError::new("the command is not UTF-8").help("see `anthill help`"));
    };
    match word {
        "-h" | "--help" => return Ok(print_result(&help::overview(&PROGRAM))),
        "-V" | "--version" => return Ok(print_result(&help::version())),
        _ if word.starts_with('-') => {
            return Err(OperatorError::new(format!("unknown option `{word}`"))
                .help("options are written after the command; see `anthill help`"));
        }
        _ => {}
    }
    match PROGRAM.find(word) {
        Some(command) => {
            let typed = cli::parse(&PROGRAM, command, arguments)?;
            if typed.has("help") {
                return Ok(print_result(&cli::help::command(&PROGRAM, command)));
            }
            (command.run)(&typed)
        }
        None => external::run(word, &arguments).map_or_else(|| Err(unknown(word)), Err),
    }
}

fn unknown(word: &str) -> OperatorError {
    let error = OperatorError::new(format!("unknown command `{word}`"));
    if let Some(meant) = suggest(word, PROGRAM.names()) {
        return error.help(format!("did you mean `anthill {meant}`?"));
    }
    if std::path::Path::new(word).exists() {
        return error.help(format!("to serve the path: anthill serve {word}"));
    }
    error.help(format!(
        "see `anthill help`; a program anthill-{word} was not found either"
    ))
}

fn fail(error: &OperatorError) -> ExitCode {
    print_message(&error.to_string());
    ExitCode::from(error.exit_code())
}
