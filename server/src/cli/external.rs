//! `anthill WORD`: runs a program `anthill-WORD`, as git and cargo do. Large tools can be commands of
//! anthill without being part of the server.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};

use crate::config::{OperatorError, reason};

/// Command of a program that has several.
pub(super) struct SharedCommand {
    /// Word of the command, which the program gets as its first argument.
    pub(super) word: &'static str,
    /// Word of the program.
    pub(super) program: &'static str,
    /// Description for `anthill --help`.
    pub(super) about: &'static str,
}

const fn publisher(word: &'static str, about: &'static str) -> SharedCommand {
    SharedCommand {
        word,
        program: "publish",
        about,
    }
}

/// Commands of programs that have several.
pub(super) const SHARED_COMMANDS: [SharedCommand; 3] = [
    publisher("publish", "Publish a folder as a release of a site"),
    publisher("releases", "List, label, pin and verify releases"),
    publisher("rollback", "Serve the previous release again"),
];

/// Replaces the process with the program `anthill-WORD`. Returns only on failure: `None` if no program is
/// found, otherwise the error of exec.
pub(super) fn run(word: &str, arguments: &[OsString]) -> Option<OperatorError> {
    let shared = SHARED_COMMANDS.iter().find(|it| it.word == word);
    let name = shared.map_or(word, |it| it.program);
    let Some(program) = find(name, beside(), std::env::var_os("PATH")) else {
        return shared.map(|_| missing(word, name));
    };
    let error = Command::new(&program)
        .args(shared.map(|it| it.word))
        .args(arguments)
        .exec();
    Some(OperatorError::failure(format!(
        "{}: {}",
        program.display(),
        reason(&error)
    )))
}

fn missing(word: &str, name: &str) -> OperatorError {
    OperatorError::new(format!("`anthill {word}` needs the program anthill-{name}")).help(format!(
        "install anthill-{name} beside anthill, or in a folder of PATH"
    ))
}

fn beside() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_owned)
}

pub(super) fn find(word: &str, beside: Option<PathBuf>, path: Option<OsString>) -> Option<PathBuf> {
    let word_is_plain = word
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if !word_is_plain {
        return None;
    }
    let path = path.unwrap_or_default();
    // Skips relative folders. An empty part of PATH means the current folder, from which programs must not
    // be run.
    let searched = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    beside
        .into_iter()
        .chain(searched)
        .map(|folder| folder.join(format!("anthill-{word}")))
        .find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok())
}
