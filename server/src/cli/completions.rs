//! `anthill completions`: shell completion scripts, made from the table of commands.

use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use cli::completions::{bash, fish, zsh};
use cli::output::print_result;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let shell = typed.operand_at(0).and_then(|shell| shell.to_str());
    let program = typed.program();
    Ok(print_result(&match shell {
        Some("zsh") => zsh(program),
        Some("fish") => fish(program),
        _ => bash(program),
    }))
}
