//! Errors of deployments, with one text for the log and the status, and one text for the client of the
//! push. The text for the client contains no paths of the server's disk.

use std::fmt;
use std::io;
use std::path::Path;

use crate::config::reason;

/// Error of a deployment. Both texts are one line without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployError {
    for_log: String,
    for_client: String,
}

/// Characters of the longest text. Texts may contain foreign names and output of git.
const CHARS_MAX: usize = 500;

impl DeployError {
    /// Creates an error with one text for both the log and the client. The text may contain foreign names.
    pub(crate) fn new(what: impl AsRef<str>) -> DeployError {
        let line = line(what.as_ref());
        DeployError {
            for_client: line.clone(),
            for_log: line,
        }
    }

    /// Replaces the text for the log.
    pub(crate) fn logged_as(self, what: impl AsRef<str>) -> DeployError {
        DeployError {
            for_log: line(what.as_ref()),
            ..self
        }
    }

    /// Creates the error of a file or folder in the tree, named by the path in the tree.
    pub(crate) fn at(name: &Path, error: &io::Error) -> DeployError {
        DeployError::new(format!("{}: {}", name.display(), reason(error)))
    }

    /// Creates the error of a path on the server's disk. The client sees `what` instead of the path.
    pub(crate) fn on_disk(what: &str, place: &Path, error: &io::Error) -> DeployError {
        let why = reason(error);
        DeployError::new(format!("{what}: {why}")).logged_as(format!("{}: {why}", place.display()))
    }

    /// Creates an error from git's standard error. A text with a slash may contain a path of the disk, and
    /// is only logged.
    pub(crate) fn of_git(output: &str) -> DeployError {
        if output.contains('/') {
            DeployError::new("git failed; see the server's error log")
                .logged_as(format!("git: {output}"))
        } else {
            DeployError::new(format!("git: {output}"))
        }
    }

    /// Creates the error of a cancelled deployment.
    pub(crate) fn unwanted() -> DeployError {
        DeployError::new("the deployment was cancelled")
    }

    /// Returns the text for the client of the push.
    pub(crate) fn client_message(&self) -> &str {
        &self.for_client
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
    /// Writes the text for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.for_log)
    }
}

impl std::error::Error for DeployError {}
