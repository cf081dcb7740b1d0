//! `anthill WORD`: runs a program `anthill-WORD`, as git and cargo do. Large tools can be commands of
//! anthill without being part of the server.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};

use crate::config::{OperatorError, reason};

/// Commands of one program under several words: the word of the command, and the word of the program. The program gets
/// the word of the command as its first argument.
const SHARED_PROGRAMS: [(&str, &str); 3] = [
    ("publish", "publish"),
    ("releases", "publish"),
    ("rollback", "publish"),
];

/// Replaces the process with the program `anthill-WORD`. Returns only on failure: `None` if no program is
/// found, otherwise the error of exec.
pub(super) fn run(word: &str, arguments: &[OsString]) -> Option<OperatorError> {
    let shared = SHARED_PROGRAMS.iter().find(|(command, _)| *command == word);
    let name = shared.map_or(word, |(_, program)| program);
    let Some(program) = find(name, beside(), std::env::var_os("PATH")) else {
        return shared.map(|_| missing(word, name));
    };
    let error = Command::new(&program)
        .args(shared.map(|(command, _)| command))
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
