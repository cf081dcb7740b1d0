//! `anthill check`: checks the configuration without serving it.

use std::process::ExitCode;

use super::parse::ParsedArguments;
use crate::config::OperatorError;
use crate::control;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let checked = control::check(&super::serve::options(typed)?)?;
    for warning in &checked.warnings {
        super::print_message(&format!("warning: {warning}"));
    }
    let mut text = checked.summary;
    for note in &checked.notes {
        text.push('\n');
        text.push_str(note);
    }
    Ok(super::print_result(&text))
}
