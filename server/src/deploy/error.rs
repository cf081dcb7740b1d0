//! Why a branch wasn't deployed, in words for the log and the status, and for who pushed: where things
//! lie on the server's disk is no business of theirs.

use std::fmt;
use std::io;
use std::path::Path;

use crate::config::reason;

/// Both are one line without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployError {
    logged: String,
    told: String,
}

/// Of names and words of others, so much is shown.
const CHARS_MAX: usize = 500;

impl DeployError {
    /// With these words for everybody, which may have names of somebody else's in them.
    pub fn new(what: impl AsRef<str>) -> DeployError {
        let line = line(what.as_ref());
        DeployError {
            told: line.clone(),
            logged: line,
        }
    }

    /// With other words for the log.
    pub fn logged_as(self, what: impl AsRef<str>) -> DeployError {
        DeployError {
            logged: line(what.as_ref()),
            ..self
        }
    }

    /// A file or folder of the tree, by its path in it.
    pub fn at(name: &Path, error: &io::Error) -> DeployError {
        DeployError::new(format!("{}: {}", name.display(), reason(error)))
    }

    /// The server's disk at this place, which is `what` to who pushed.
    pub fn on_disk(what: &str, place: &Path, error: &io::Error) -> DeployError {
        let why = reason(error);
        DeployError::new(format!("{what}: {why}")).logged_as(format!("{}: {why}", place.display()))
    }

    /// What git said. Words with a slash in them may be a path of the disk.
    pub fn of_git(said: &str) -> DeployError {
        match said.contains('/') {
            true => DeployError::new("git failed; see the server's error log")
                .logged_as(format!("git: {said}")),
            false => DeployError::new(format!("git: {said}")),
        }
    }

    /// Nobody wants it any more.
    pub fn unwanted() -> DeployError {
        DeployError::new("the deployment was cancelled")
    }

    /// In words for who pushed.
    pub fn client_message(&self) -> &str {
        &self.told
    }
}

fn line(what: &str) -> String {
    let printable = what.chars();
    let printable = printable.map(|c| if c.is_control() { ' ' } else { c });
    let mut text: String = printable.take(CHARS_MAX).collect();
    if what.chars().nth(CHARS_MAX).is_some() {
        text.push('…');
    }
    text.trim().to_owned()
}

impl fmt::Display for DeployError {
    /// In words for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.logged)
    }
}

impl std::error::Error for DeployError {}
