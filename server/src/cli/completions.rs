//! `anthill completions`: shell completion scripts, made from the table of commands.

use crate::cli::shared_options::CommandSpec;
use cli::{Operand, ValueKind};
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::OperatorError;
use cli::completions::{bash, fish, zsh};
use cli::output::print_result;

/// The command `completions`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "completions",
    about: "Print completions for a shell",
    details: &[
        "bash: anthill completions bash > /etc/bash_completion.d/anthill",
        "zsh: anthill completions zsh > /usr/local/share/zsh/site-functions/_anthill",
        "fish: anthill completions fish > ~/.config/fish/completions/anthill.fish",
    ],
    operands: &[Operand {
        name: "SHELL",
        required: true,
        values: ValueKind::Words(&["bash", "zsh", "fish"]),
    }],
    options: &[],
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let shell = typed.operand_at(0).and_then(|shell| shell.to_str());
    let program = typed.program();
    Ok(print_result(&match shell {
        Some("zsh") => zsh(program),
        Some("fish") => fish(program),
        _ => bash(program),
    }))
}
