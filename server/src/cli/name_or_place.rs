//! An operand that is a name known to the server, or the folder or file that names the server.
//!
//! A folder may have the name of a balancer or of a site by chance. The name goes first, since the operator thinks of the
//! server; the folder is meant if the server knows no such name. A word with a slash, or `.`, is always a place.

use super::control_client::{ask, exchange_quietly, print_response};
use crate::admin::command::Command;
use crate::cli::arguments::ParsedArguments;
use crate::config::{FILE_NAME, OperatorError};
use cli::output::print_message;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Sends a command about the name at the operand `nth`, or about everything. `kind` is the word for a name, such as
/// `balancer`; `command` makes the command for a name, or None for a name that no command can have.
pub(super) fn ask_about(
    typed: &ParsedArguments,
    nth: usize,
    kind: &str,
    command: impl Fn(Option<&str>) -> Result<Command, OperatorError>,
    patience: Duration,
) -> Result<ExitCode, OperatorError> {
    let patience = Some(patience);
    let all = || ask(typed, nth, &command(None)?, patience);
    let Some(word) = typed.operand_at(nth) else {
        return all();
    };
    let path = Path::new(word);
    // A second operand is the place, so the first is the name.
    if typed.operand_at(nth + 1).is_some() || !path.exists() {
        let name = word.to_str().unwrap_or_default();
        return ask(typed, nth + 1, &command(Some(name))?, patience);
    }
    let Some(name) = word.to_str().filter(|_| !is_place(word)) else {
        return all();
    };
    let Ok(by_name) = command(Some(name)) else {
        return all();
    };
    match exchange_quietly(typed, nth + 1, &by_name, patience) {
        Ok((response, found)) if response.is_ok() => {
            if let Some(found) = found {
                print_message(&found);
            }
            if is_configuration(path) {
                print_message(&format!(
                    "(the {kind} {name}; ./{name} is the {} of the same name)",
                    if path.is_dir() { "folder" } else { "file" }
                ));
            }
            print_response(&response)
        }
        Ok(_) => all().map_err(|error| {
            let help = format!("the server of the current folder has no {kind} `{name}`, so `{name}` was read as a place");
            error.help(help)
        }),
        Err(_) => all(),
    }
}

/// Returns true if a word can only be a folder or file.
fn is_place(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    matches!(bytes, b"." | b"..")
        || bytes.starts_with(b"./")
        || bytes.starts_with(b"../")
        || bytes.starts_with(b"/")
        || bytes.ends_with(b"/")
        || bytes.ends_with(b".toml")
}

/// Returns true if a path is a configuration, or the folder of one.
fn is_configuration(path: &Path) -> bool {
    path.is_file() || path.join(FILE_NAME).exists()
}
