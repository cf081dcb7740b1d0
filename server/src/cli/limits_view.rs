//! `anthill limits`: prints the limits of open files that the server would start with.

use crate::cli::arguments::ParsedArguments;
use crate::cli::shared_options::CommandSpec;
use crate::config::OperatorError;
use cli::output::print_result;
use std::process::ExitCode;

/// The command `limits`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "limits",
    about: "Print the limit of open files",
    details: &["Prints the hard limit of open files, which the server raises its own limit to."],
    operands: &[],
    options: &[],
    run,
};

fn run(_typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let text = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Max open files"));
    Ok(print_result(&format!("{}\n", line.unwrap_or("unknown"))))
}
