//! `anthill check`: checks the configuration without serving it.

use crate::cli::shared_options::{CommandSpec, SERVE_OPTIONS, WHAT};
use cli::output::print_message;
use cli::output::print_result;
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use crate::control::{self, CheckReport};

/// The command `check`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "check",
    about: "Test a configuration without serving",
    details: &[
        "Prints all mistakes, each with its place and a correction. The exit status is 2 after a mistake.",
    ],
    operands: &[WHAT],
    options: SERVE_OPTIONS,
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let checked = control::check(&super::serve::options(typed)?)?;
    print_messages(&checked);
    if let Some(error) = checked.error {
        return Ok(ExitCode::from(error.exit_code()));
    }
    let mut text = checked.summary;
    for note in &checked.notes {
        text.push('\n');
        text.push_str(note);
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
