//! Error messages of the command line and their exit statuses.

use std::fmt;

/// An error message with optional help and an exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    text: String,
    help: Option<String>,
    code: u8,
}

/// Exit status for partial success: some results are missing or unsound.
pub const INCOMPLETE: u8 = 1;
/// Exit status for invalid input; nothing was measured.
pub const USAGE: u8 = 2;
/// Exit status after Ctrl-C: 128 + SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

impl Problem {
    /// Returns a problem with the command line or an input file.
    pub fn usage(text: impl Into<String>) -> Problem {
        Problem {
            text: text.into(),
            help: None,
            code: USAGE,
        }
    }

    /// Returns a problem that occurred in spite of valid input.
    pub fn failure(text: impl Into<String>) -> Problem {
        Problem {
            code: INCOMPLETE,
            ..Problem::usage(text)
        }
    }

    /// Adds a hint on valid input.
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// Returns the exit status.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error: {}", self.text)?;
        match &self.help {
            Some(help) => write!(out, "\nhelp: {help}"),
            None => Ok(()),
        }
    }
}
