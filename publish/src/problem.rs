//! Error messages of the command line and their exit statuses.

use std::fmt;

/// Error message with optional help and an exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    text: String,
    help: Option<String>,
    code: u8,
}

/// Exit status of a failure in spite of a valid command line.
const FAILURE: u8 = 1;
/// Exit status for an invalid command line or an invalid source folder.
const USAGE: u8 = 2;
/// Mistakes of a file that a message shows, more than a publisher mends before the next attempt.
const MISTAKES_SHOWN_MAX: usize = 20;

impl Problem {
    /// Returns a problem with the command line or with the source folder.
    pub(crate) fn usage(text: impl Into<String>) -> Problem {
        Problem {
            text: text.into(),
            help: None,
            code: USAGE,
        }
    }

    /// Returns a problem that occurred in spite of valid input.
    pub(crate) fn failure(text: impl Into<String>) -> Problem {
        Problem {
            code: FAILURE,
            ..Problem::usage(text)
        }
    }

    /// Adds a hint to the message.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// Returns one problem with the messages of all; None for no problem.
    pub(crate) fn all(problems: Vec<Problem>) -> Option<Problem> {
        let mut problems = problems.into_iter();
        let first = problems.next()?;
        Some(problems.fold(first, |mut all, next| {
            all.text = format!("{}\nerror: {}", all.text, next.text);
            all.help = all.help.or(next.help);
            all
        }))
    }

    /// Returns one problem with the messages and the hints of several mistakes; None for no mistake. Beyond
    /// [`MISTAKES_SHOWN_MAX`], the mistakes are left out.
    pub(crate) fn list(mistakes: Vec<Problem>) -> Option<Problem> {
        let code = mistakes.first()?.code;
        let shown: Vec<String> = mistakes
            .iter()
            .take(MISTAKES_SHOWN_MAX)
            .map(Problem::to_string)
            .collect();
        let text = shown.join("\n\n");
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        // The reading of a file ends at some number of mistakes, so the rest is not counted.
        let further = if mistakes.len() > MISTAKES_SHOWN_MAX {
            "\n\nand further mistakes"
        } else {
            ""
        };
        Some(Problem {
            text: format!("{text}{further}"),
            help: None,
            code,
        })
    }

    /// Adds a line to the message, before the hint.
    pub(crate) fn with_line(mut self, line: &str) -> Problem {
        self.text = format!("{}\n{line}", self.text);
        self
    }

    /// Returns the exit status.
    pub(crate) fn code(&self) -> u8 {
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
