//! Why a branch wasn't deployed, in words for the log, the status and who pushed.

use std::fmt;
use std::io;
use std::path::Path;

use crate::config::reason;

/// One line without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

/// Of names and words of others, so much is shown.
const CHARS_MAX: usize = 500;

impl Failure {
    /// With these words, which may have names of somebody else's in them.
    pub fn new(what: impl AsRef<str>) -> Failure {
        let printable = what.as_ref().chars();
        let printable = printable.map(|c| if c.is_control() { ' ' } else { c });
        let mut text: String = printable.take(CHARS_MAX).collect();
        if what.as_ref().chars().nth(CHARS_MAX).is_some() {
            text.push('…');
        }
        Failure(text.trim().to_owned())
    }

    /// The disk, at this place.
    pub fn at(place: &Path, error: &io::Error) -> Failure {
        Failure::new(format!("{}: {}", place.display(), reason(error)))
    }

    /// Nobody wants it any more.
    pub fn unwanted() -> Failure {
        Failure::new("it was given up")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
