//! Parts of the texts of all services: templates, quotes and their inverse, and the option for the supervisor.

use std::path::Path;

use crate::config::OperatorError;

/// Option of `serve` for a service, in a build with the supervisor.
pub(super) const SUPERVISE: &str = if cfg!(feature = "restart") {
    "--supervise "
} else {
    ""
};

/// Refuses a path that no file of a service can hold.
pub(super) fn must_be_one_line(path: &Path) -> Result<(), OperatorError> {
    let text = path.to_str();
    if text.is_some_and(|path| !path.contains(char::is_control)) {
        return Ok(());
    }
    let what = format!("{} cannot be written into a service file", path.display());
    Err(OperatorError::new(what).help("choose a path in UTF-8 without line breaks"))
}

/// Fills a template in a single pass, so that placeholders in inserted values are not replaced.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some(at) = rest.find('@') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        match values.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                text.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                text.push('@');
                rest = &rest[1..];
            }
        }
    }
    text.push_str(rest);
    text.replace("\n\n\n", "\n\n")
}

/// Quotes a word for a shell.
pub(super) fn shell_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Splits the words of a command line of a unit, as `systemd_quoted` quotes them.
pub(super) fn systemd_words(line: &str) -> Vec<String> {
    let mut words = Words::default();
    let mut is_quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                words.begin();
            }
            '\\' => words.push(characters.next().unwrap_or('\\')),
            '%' | '$' if characters.peek() == Some(&character) => {
                characters.next();
                words.push(character);
            }
            ' ' if !is_quoted => words.end(),
            character => words.push(character),
        }
    }
    words.finish()
}

/// Splits the words of a shell's line, as `shell_quoted` quotes them.
pub(super) fn shell_words(line: &str) -> Vec<String> {
    let mut words = Words::default();
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                is_quoted = !is_quoted;
                words.begin();
            }
            '\\' if !is_quoted => words.push(characters.next().unwrap_or('\\')),
            ' ' if !is_quoted => words.end(),
            character => words.push(character),
        }
    }
    words.finish()
}

/// Words of a line, collected by character.
#[derive(Default)]
struct Words {
    complete: Vec<String>,
    word: Option<String>,
}

impl Words {
    fn begin(&mut self) {
        self.word.get_or_insert_default();
    }

    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().push(character);
    }

    fn end(&mut self) {
        self.complete.extend(self.word.take());
    }

    fn finish(mut self) -> Vec<String> {
        self.end();
        self.complete
    }
}
