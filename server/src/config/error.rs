//! Error message for the operator: the mistake, the position in the file, and a correction.
//!
//! The source line and the caret are rendered when the position is set, so the error can outlive the
//! configuration and be sent as text over the control socket. An error may hold further errors: a configuration
//! is read to its end, and all mistakes are reported at once.

use std::fmt;
use std::ops::Range;

use crate::config::limits::CONFIG_ERRORS_SHOWN_MAX;
use base::visible_text::is_hidden;

/// Error for the operator, with the position of the mistake and a correction.
///
/// The error is a single pointer. By value, the error is 112 bytes, which every `?` of some 270 functions would copy:
/// 50 KB of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorError(Box<ErrorParts>);

/// Parts of an error for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorParts {
    what: String,
    place: Option<SourceExcerpt>,
    help: Option<String>,
    exit_code: u8,
    /// Position among the errors of a configuration.
    order: usize,
    /// Further errors of the configuration.
    further: Vec<OperatorError>,
}

/// Position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceExcerpt {
    /// `file:line:col`, or the file alone.
    name: String,
    /// Source line and the carets below the marked text, each after a newline.
    excerpt: String,
    /// Width of the line number; the arrow before the name is indented by the same width.
    indent: usize,
}

impl From<cli::UsageError> for OperatorError {
    fn from(error: cli::UsageError) -> OperatorError {
        OperatorError::new(error.what).help(error.help.unwrap_or_default())
    }
}

impl OperatorError {
    /// Makes an error of usage or configuration (exit code 2). `what` describes the mistake in a line
    /// without a full stop.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(what: impl Into<String>) -> OperatorError {
        OperatorError::with_exit_code(what.into(), 2)
    }

    /// Makes an error that the operator didn't cause (exit code 1).
    #[cold]
    #[inline(never)]
    pub(crate) fn failure(what: impl Into<String>) -> OperatorError {
        OperatorError::with_exit_code(what.into(), 1)
    }

    fn with_exit_code(what: String, exit_code: u8) -> OperatorError {
        OperatorError(Box::new(ErrorParts {
            what,
            place: None,
            help: None,
            exit_code,
            order: usize::MAX,
            further: Vec::new(),
        }))
    }

    /// Makes the placeholder for an error that the list of a configuration's errors already has.
    pub(super) fn reported() -> OperatorError {
        OperatorError::new("")
    }

    /// Joins errors into one, in the order of the file and without repetitions; `None` if the list is empty. Of
    /// two errors at one position, the first in the list is kept: the second is mostly a consequence.
    pub(crate) fn all(errors: Vec<OperatorError>) -> Option<OperatorError> {
        let mut all = Vec::with_capacity(errors.len());
        for mut error in errors {
            let further = std::mem::take(&mut error.0.further);
            all.push(error);
            all.extend(further);
        }
        all.retain(|error| !error.0.what.is_empty());
        all.sort_by_key(|error| error.0.order);
        all.dedup_by(|second, first| second.is_at_place_of(first));
        let mut all = all.into_iter();
        let mut first = all.next()?;
        first.0.further = all.collect();
        Some(first)
    }

    /// Appends an error, with all further errors of the error.
    pub(crate) fn followed_by(mut self, mut other: OperatorError) -> OperatorError {
        let further = std::mem::take(&mut other.0.further);
        self.0.further.push(other);
        self.0.further.extend(further);
        self
    }

    /// Returns all values, or all errors.
    pub(crate) fn collect<T>(
        results: impl Iterator<Item = Result<T, OperatorError>>,
    ) -> Result<Vec<T>, OperatorError> {
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => errors.push(error),
            }
        }
        match OperatorError::all(errors) {
            Some(error) => Err(error),
            None => Ok(values),
        }
    }

    fn is_at_place_of(&self, other: &OperatorError) -> bool {
        match (&self.0.place, &other.0.place) {
            (Some(place), Some(other)) if !place.excerpt.is_empty() => place.name == other.name,
            _ => self == other,
        }
    }

    /// Returns the errors: this error, and the further errors.
    fn each(&self) -> impl Iterator<Item = &ErrorParts> {
        let further = self.0.further.iter().map(|error| &*error.0);
        std::iter::once(&*self.0).chain(further)
    }

    /// Adds a correction.
    #[cold]
    #[inline(never)]
    pub(crate) fn help(mut self, help: impl Into<String>) -> OperatorError {
        let help = help.into();
        self.0.help = (!help.is_empty()).then_some(help);
        self
    }

    /// Sets the position to `span` (bytes) of `source`; an empty span names the file alone.
    #[cold]
    #[inline(never)]
    pub(crate) fn at(mut self, file: &str, source: &str, span: Range<usize>) -> OperatorError {
        self.0.place = Some(if span.is_empty() {
            SourceExcerpt {
                name: file.to_owned(),
                excerpt: String::new(),
                indent: 1,
            }
        } else {
            excerpt(file, source, span)
        });
        self
    }

    /// Sets the position to a single point, such as a syntax error at the end of the text.
    pub(super) fn at_point(mut self, file: &str, source: &str, at: usize) -> OperatorError {
        self.0.place = Some(excerpt(file, source, at..at));
        self
    }

    /// Sets the position among the errors of a configuration.
    pub(super) fn in_order(mut self, order: usize) -> OperatorError {
        self.0.order = order;
        self
    }

    /// Returns true for an error at the position `order` of a configuration.
    pub(super) fn is_at(&self, order: usize) -> bool {
        self.0.order == order && !self.0.what.is_empty()
    }

    /// Returns the description of the mistake, a single line.
    pub(crate) fn what(&self) -> &str {
        &self.0.what
    }

    /// Formats the whole error in a line for a log: `FILE:LINE:COL: MISTAKE (CORRECTION)`, and further errors after
    /// a `|`.
    pub(crate) fn in_one_line(&self) -> String {
        let lines: Vec<String> = self.each().map(ErrorParts::in_one_line).collect();
        lines.join(" | ")
    }

    /// Returns the correction.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// Formats the error as a warning.
    pub(crate) fn as_warning(&self) -> String {
        format!("warning: {}", self.0)
    }

    /// Returns the exit code: 2 for usage and configuration, 1 for all other errors.
    pub(crate) fn exit_code(&self) -> u8 {
        self.0.exit_code
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, error) in self.each().enumerate() {
            if nth == CONFIG_ERRORS_SHOWN_MAX {
                let left = self.0.further.len() + 1 - nth;
                return write!(f, "\n\nand {left} further errors");
            }
            let separator = if nth == 0 { "" } else { "\n\n" };
            write!(f, "{separator}error: {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for OperatorError {}

impl fmt::Display for ErrorParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(place) = &self.place {
            let indent = " ".repeat(place.indent);
            write!(f, "\n{indent}--> {}{}", place.name, place.excerpt)?;
        }
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

impl ErrorParts {
    fn in_one_line(&self) -> String {
        let place = self.place.as_ref();
        let place = place.map_or_else(String::new, |place| format!("{}: ", place.name));
        let help = self.help.as_ref();
        let help = help.map_or_else(String::new, |help| format!(" ({help})"));
        format!("{place}{}{help}", self.what).replace('\n', " ")
    }
}

/// Renders the position, the source line and the carets below the marked text.
fn excerpt(file: &str, source: &str, span: Range<usize>) -> SourceExcerpt {
    let start = floor_boundary(source, span.start);
    let end = floor_boundary(source, span.end).max(start);
    let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
    let line_end = source[start..]
        .find('\n')
        .map_or(source.len(), |at| start + at);
    let number = source[..line_start].bytes().filter(|&b| b == b'\n').count() + 1;
    let column = source[line_start..start].chars().count() + 1;

    let before = &source[line_start..start];
    let marked = &source[start..end.min(line_end)];
    let after = source[start + marked.len()..line_end].trim_end_matches('\r');
    let (before, marked, after) = clip(before, marked.trim_end_matches('\r'), after);

    let mut text = String::new();
    let mut carets = String::new();
    for c in before.chars() {
        text.push(printable(c));
        match c {
            '\t' => carets.push('\t'),
            _ => carets.extend(std::iter::repeat_n(' ', columns(c))),
        }
    }
    text.extend(marked.chars().map(printable));
    text.extend(after.chars().map(printable));
    let width = marked.chars().map(columns).sum::<usize>().max(1);
    carets.extend(std::iter::repeat_n('^', width));

    let number = number.to_string();
    let gutter = " ".repeat(number.len());
    SourceExcerpt {
        name: format!("{file}:{number}:{column}"),
        excerpt: format!("\n{gutter} |\n{number} | {text}\n{gutter} | {carets}"),
        indent: number.len(),
    }
}

/// Shortens a line to fit a screen, and keeps the marked text.
fn clip(before: &str, marked: &str, after: &str) -> (String, String, String) {
    let length = before.chars().count();
    let before = if length > BEFORE_MAX {
        let kept: String = before.chars().skip(length - BEFORE_MAX).collect();
        format!("…{kept}")
    } else {
        before.to_owned()
    };
    (before, head(marked, MARKED_MAX), head(after, AFTER_MAX))
}

fn head(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the last boundary between two characters up to `at`.
pub(super) fn floor_boundary(source: &str, at: usize) -> usize {
    let mut at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Replaces hidden characters, which a broken file must not send to the terminal.
fn printable(c: char) -> char {
    if is_hidden(c) && c != '\t' {
        '\u{fffd}'
    } else {
        c
    }
}

/// Returns the number of terminal columns of a character. The function covers enough of Unicode's East
/// Asian Width and combining marks to put the carets in the right place.
fn columns(c: char) -> usize {
    match c as u32 {
        0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Maximum number of characters shown before the marked text.
const BEFORE_MAX: usize = 60;
/// Maximum number of marked characters shown.
const MARKED_MAX: usize = 80;
/// Maximum number of characters shown after the marked text.
const AFTER_MAX: usize = 40;
