//! What is said to the user when something isn't right, and with which exit status.

use std::fmt;

/// A message, perhaps with advice, and an exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    text: String,
    help: Option<String>,
    code: u8,
}

/// Something was measured or made, but not all of it.
pub const INCOMPLETE: u8 = 1;
/// What was asked for makes no sense; nothing was done.
pub const USAGE: u8 = 2;
/// The user ended it: as shells report a program that SIGINT ended.
pub const INTERRUPTED: u8 = 130;

impl Problem {
    /// What the user typed or wrote can't be done.
    pub fn usage(text: impl Into<String>) -> Problem {
        Problem {
            text: text.into(),
            help: None,
            code: USAGE,
        }
    }

    /// It was right, and went wrong all the same.
    pub fn failure(text: impl Into<String>) -> Problem {
        Problem {
            code: INCOMPLETE,
            ..Problem::usage(text)
        }
    }

    /// With what would be right.
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// The exit status.
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
