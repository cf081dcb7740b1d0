//! Outcome of a command: its output, or an error message, and the exit status.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Result of a command: an exit status, or a problem to report.
pub(super) type Done = Result<ExitCode, Problem>;

/// An error message with optional help and an exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    text: String,
    help: Option<String>,
    code: u8,
}

/// Exit status for partial success: some results are missing or unsound.
pub(super) const INCOMPLETE: u8 = 1;
/// Exit status for invalid input; nothing was measured.
pub(super) const USAGE: u8 = 2;

impl Problem {
    /// Returns a problem with the command line or an input file.
    pub(super) fn usage(text: impl Into<String>) -> Problem {
        Problem {
            text: text.into(),
            help: None,
            code: USAGE,
        }
    }

    /// Returns a problem that occurred in spite of valid input.
    pub(super) fn failure(text: impl Into<String>) -> Problem {
        Problem {
            code: INCOMPLETE,
            ..Problem::usage(text)
        }
    }

    /// Adds a hint on valid input.
    pub(super) fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// Returns the exit status.
    pub(super) fn code(&self) -> u8 {
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

/// Prints to standard output. A closed pipe is not an error, since the reader may stop early.
pub(super) fn print(text: &str) -> Done {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Problem::failure(format!("standard output: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a text to a file, or to standard output without a file.
pub(super) fn put(text: &str, file: Option<&Path>) -> Done {
    let Some(file) = file else {
        return print(text);
    };
    let failed = |error| Problem::failure(format!("{}: {error}", file.display()));
    std::fs::write(file, text).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
