//! `anthill check`.

use std::process::ExitCode;

use super::parse::Typed;
use crate::config::OperatorError;
use crate::control;

pub(super) fn run(typed: &Typed) -> Result<ExitCode, OperatorError> {
    let checked = control::check(&super::serve::options(typed)?)?;
    for warning in &checked.warnings {
        super::say(&format!("warning: {warning}"));
    }
    let mut text = checked.summary;
    for note in &checked.notes {
        text.push('\n');
        text.push_str(note);
    }
    Ok(super::done(&text))
}
