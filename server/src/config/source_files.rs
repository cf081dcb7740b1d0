//! Texts of a configuration: the first file and all included files, joined into one text.
//!
//! A position of the configuration is a position in the joined text, so a value carries its file with its position.
//! An error shows the line of the right file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::config::error::OperatorError;

/// Texts of a configuration, and the variables of the environment that were put into values.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceFiles {
    /// All texts, each followed by a line feed.
    text: String,
    /// Files in the order of their texts.
    files: Vec<SourceFile>,
    /// Variables in the order of the values.
    variables: Vec<UsedVariable>,
    /// Number of the first value of each variable in `variables`.
    first_uses: Vec<usize>,
}

#[derive(Debug, PartialEq, Eq)]
struct SourceFile {
    /// Position of the first byte.
    start: usize,
    /// Name in messages.
    shown: String,
    /// Absolute path; `None` for a text without a file.
    path: Option<PathBuf>,
}

/// Variable of the environment that was put into a value.
#[derive(Debug, PartialEq, Eq)]
struct UsedVariable {
    /// Position of the value.
    span: Range<usize>,
    name: String,
    /// Text of the variable. Messages show the name instead, since a variable may hold a password.
    text: String,
}

impl SourceFiles {
    /// Returns the texts of a configuration with a single file.
    pub(super) fn single(text: &str, shown: &str) -> SourceFiles {
        let mut files = SourceFiles::default();
        files.push(text, shown.to_owned(), None);
        files
    }

    /// Adds a file, and returns the position of its first byte.
    pub(super) fn push(&mut self, text: &str, shown: String, path: Option<PathBuf>) -> usize {
        let start = self.text.len();
        self.text.push_str(text);
        self.text.push('\n');
        self.files.push(SourceFile { start, shown, path });
        start
    }

    /// Records that the variable `name` was put into the value at `span`.
    pub(super) fn used(&mut self, span: Range<usize>, name: &str, text: &str) {
        let mut known = self.first_uses.iter().map(|nth| &self.variables[*nth]);
        if !known.any(|variable| variable.name == name) {
            self.first_uses.push(self.variables.len());
        }
        self.variables.push(UsedVariable {
            span,
            name: name.to_owned(),
            text: text.to_owned(),
        });
    }

    /// Returns the name of the first empty variable in the value at `span`.
    pub(super) fn empty_variable(&self, span: &Range<usize>) -> Option<&str> {
        let mut variables = self.variables.iter();
        let empty = variables.find(|it| it.span == *span && it.text.trim().is_empty())?;
        Some(&empty.name)
    }

    /// Returns the line of a key below the header of a table, or the header if the key is elsewhere.
    pub(super) fn key_below(&self, header: &Range<usize>, key: &str) -> Range<usize> {
        let mut at = header.end;
        let rest = self.text.get(at..).unwrap_or_default();
        for line in rest.split_inclusive('\n') {
            let code = line.trim();
            if at > header.end && code.starts_with('[') {
                break;
            }
            let value = code.strip_prefix(key);
            if value.is_some_and(|value| value.trim_start().starts_with('=')) {
                let start = at + line.len() - line.trim_start().len();
                return start..start + code.len();
            }
            at += line.len();
        }
        header.clone()
    }

    /// Returns the line of a key of a table that a file has once, such as `[server]`; an empty position if there is none.
    pub(super) fn key_of_table(&self, table: &str, key: &str) -> Range<usize> {
        let mut headers = self.text.match_indices(table).map(|(at, _)| at);
        let header = headers.find(|at| *at == 0 || self.text.as_bytes()[at - 1] == b'\n');
        header.map_or(0..0, |at| self.key_below(&(at..at + table.len()), key))
    }

    /// Returns the joined text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the absolute paths of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter_map(|file| file.path.as_deref())
    }

    /// Returns the number of bytes of all files.
    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the file at a position: its name, its text, and the position of its first byte.
    fn file_at(&self, at: usize) -> (&str, &str, usize) {
        let after = self.files.partition_point(|file| file.start <= at);
        let end = self.files.get(after).map_or(self.text.len(), |it| it.start);
        match after.checked_sub(1).and_then(|nth| self.files.get(nth)) {
            Some(file) => {
                let text = &self.text[file.start..end];
                (
                    &file.shown,
                    text.strip_suffix('\n').unwrap_or(text),
                    file.start,
                )
            }
            None => ("", "", 0),
        }
    }

    /// Makes an error at `span`. An empty span names the first file alone.
    #[cold]
    #[inline(never)]
    pub(super) fn error(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> OperatorError {
        let (shown, text, start) = self.file_at(span.start);
        let (what, help) = (what.into(), help.into());
        let error = OperatorError::new(self.without_variables(&span, what))
            .help(self.without_variables(&span, help));
        let order = if span.is_empty() {
            usize::MAX
        } else {
            span.start
        };
        error
            .at(shown, text, span.start - start..span.end - start)
            .in_order(order)
    }

    /// Makes an error at a single position, such as the end of a text.
    pub(super) fn error_at(&self, at: usize, what: String, help: String) -> OperatorError {
        let (shown, text, start) = self.file_at(at);
        let error = OperatorError::new(what).help(help);
        error.at_point(shown, text, at - start).in_order(at)
    }

    /// Returns the file and the line of `at`, such as `anthill.toml:12`.
    pub(crate) fn location(&self, at: usize) -> String {
        let (shown, text, start) = self.file_at(at);
        let line = text[..at - start].matches('\n').count() + 1;
        format!("{shown}:{line}")
    }

    /// Returns the place of `at` in words: its line, and its file unless `here` is in the same file.
    pub(super) fn place(&self, at: usize, here: usize) -> String {
        let (shown, text, start) = self.file_at(at);
        let line = text[..at - start].matches('\n').count() + 1;
        if start == self.file_at(here).2 {
            format!("line {line}")
        } else {
            format!("line {line} of {shown}")
        }
    }

    /// Replaces the texts of variables by their names in a message: of all variables in the value at `span` with the parts
    /// of their texts, since a message may show a value in lower case, cut or normalised; and of further variables with a
    /// text that is too long for a chance match.
    fn without_variables(&self, span: &Range<usize>, mut message: String) -> String {
        let is_here = |it: &&UsedVariable| span.start < it.span.end && it.span.start < span.end;
        for variable in self.variables.iter().filter(is_here) {
            message = variable.hide(&message, PART_CHARACTERS_MIN);
        }
        let distinct = self.first_uses.iter().map(|nth| &self.variables[*nth]);
        for variable in distinct.filter(|it| it.text.len() >= CHANCE_BYTES_MAX) {
            message = variable.hide(&message, usize::MAX);
        }
        message
    }

    /// Replaces the texts of variables by their names in a message without a position.
    pub(crate) fn hide_variables(&self, message: String) -> String {
        self.without_variables(&(0..0), message)
    }
}

impl UsedVariable {
    /// Replaces the text by the name in a message, in upper and lower case; and all parts of the text with at least
    /// `part_min` characters.
    fn hide(&self, message: &str, part_min: usize) -> String {
        // A message may recommend a scheme, which is no secret.
        let text = self.text.trim();
        let is_whole = part_min == usize::MAX;
        let schemes = if is_whole {
            &[][..]
        } else {
            &["https://", "http://"][..]
        };
        let secret = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
        let secret = folded(secret.unwrap_or(text));
        let part_min = part_min.min(secret.len()).max(1);
        let folded = folded(message);
        let (mut out, mut at, mut is_after_name) = (String::new(), 0, false);
        let mut characters = message.chars();
        while at < folded.len() {
            let starts = 0..(secret.len() + 1).saturating_sub(part_min);
            let common = |start: usize| {
                let pairs = secret[start..].iter().zip(&folded[at..]);
                pairs.take_while(|(one, other)| one == other).count()
            };
            let longest = starts.map(common).max().unwrap_or(0);
            let is_part = longest >= part_min;
            let skipped = if is_part { longest } else { 1 };
            let written = characters.by_ref().take(skipped);
            if !is_part {
                out.extend(written);
            } else {
                written.for_each(drop);
                if !is_after_name {
                    out += &format!("${{{}}}", self.name);
                }
            }
            at += skipped;
            is_after_name = is_part;
        }
        out
    }
}

/// Returns the characters of a text in lower case, each as one character.
fn folded(text: &str) -> Vec<char> {
    let lower = |letter: char| letter.to_lowercase().next().unwrap_or(letter);
    text.chars().map(lower).collect()
}

/// Least length of a part of a text that is replaced.
const PART_CHARACTERS_MIN: usize = 4;
/// Length of a text in bytes up to which a message may contain the text by chance.
const CHANCE_BYTES_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_line_of_its_file() {
        let mut files = SourceFiles::default();
        assert_eq!(files.push("a = 1\nb = 2", "one".to_owned(), None), 0);
        let second = files.push("c = 3\n", "two".to_owned(), None);
        let error = files.error(second..second + 1, "wrong", "").to_string();
        assert!(error.contains("--> two:1:1\n  |\n1 | c = 3\n"), "{error}");
        let error = files.error(6..7, "wrong", "").to_string();
        assert!(error.contains("--> one:2:1\n  |\n2 | b = 2\n"), "{error}");
        assert_eq!(files.place(6, 0), "line 2");
        assert_eq!(files.place(6, second), "line 2 of one");
        let end = files.error_at(second - 1, "wrong".to_owned(), String::new());
        assert!(end.to_string().contains("--> one:2:6\n"), "{end}");
    }

    #[test]
    fn a_message_has_the_names_of_variables_instead_of_their_texts() {
        let mut files = SourceFiles::single("a = \"${A}\"\nb = \"${LONG}\"", "file");
        files.used(4..10, "A", "x");
        files.used(15..24, "LONG", "a secret");
        let message = |span| files.error(span, "x and a secret", "x").what().to_owned();
        assert_eq!(message(4..10), "${A} and ${LONG}");
        assert_eq!(message(0..1), "x and ${LONG}");
        assert_eq!(files.hide_variables("a secret".to_owned()), "${LONG}");
    }

    #[test]
    fn a_message_shows_no_changed_text_of_a_variable() {
        let mut files = SourceFiles::single("a = \"${KEY}\"\nb = \"${URL}\"", "file");
        files.used(4..10, "KEY", "Tr\u{dc}mmer/../S3cret");
        files.used(15..23, "URL", "http://Ant:Crumb@db1");
        let message = |span, text: &str| files.error(span, text, "").what().to_owned();
        let here = [
            ("`tr\u{fc}mmer` is odd", "`${KEY}` is odd"),
            ("/srv/s3cret", "/srv${KEY}"),
            ("`Tr\u{dc}mmer/..…` is too long", "`${KEY}…` is too long"),
            ("no s3c", "no s3c"),
        ];
        for (text, shown) in here {
            assert_eq!(message(4..10, text), shown);
        }
        let shown = message(15..23, "`ant:crumb@` is no host: write http://localhost");
        assert_eq!(shown, "`${URL}` is no host: write http://localhost");
        // A message about another value hides the whole text alone.
        let shown = message(0..1, "TR\u{dc}MMER/../S3CRET and s3cret");
        assert_eq!(shown, "${KEY} and s3cret");
    }
}
