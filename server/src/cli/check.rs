//! `anthill check`: checks the configuration without serving it.

use crate::cli::shared_options::{
    CONTROL, CommandSpec, HTTP, HTTPS, LISTING, LOG, STATE, USER, WHAT, WORKERS,
};
use cli::CommandOption;
use cli::output::print_message;
use cli::output::print_result;
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use crate::control::{self, CheckReport};

/// Option for the list of routes.
const ROUTES: CommandOption = CommandOption {
    long: "routes",
    short: None,
    value: None,
    about: "Print the routes of each site, with what answers and the guards",
};

/// The command `check`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "check",
    about: "Test a configuration without serving",
    details: &[
        "Prints all mistakes, each with its place and a correction. The exit status is 2 after a mistake.",
    ],
    operands: &[WHAT],
    options: &[
        ROUTES, HTTPS, HTTP, LOG, WORKERS, LISTING, USER, STATE, CONTROL,
    ],
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let checked = control::check(&super::serve::options(typed)?)?;
    print_messages(&checked);
    if let Some(error) = checked.error {
        return Ok(ExitCode::from(error.exit_code()));
    }
    let mut text = checked.summary;
    let routes = checked.routes.iter().filter(|_| typed.has("routes"));
    for line in checked.notes.iter().chain(routes) {
        text.push('\n');
        text.push_str(line);
    }
    Ok(print_result(&text))
}

/// Prints the mistakes and warnings of a configuration.
pub(super) fn print_messages(checked: &CheckReport) {
    let errors = checked.error.iter().map(OperatorError::to_string);
    let warnings = checked.warnings.iter().map(OperatorError::as_warning);
    let messages: Vec<String> = errors.chain(warnings).collect();
    if !messages.is_empty() {
        print_message(&messages.join("\n\n"));
    }
}
