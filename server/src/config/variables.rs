//! Variables of the environment in the strings of a configuration: `${NAME}` and `${NAME:-default}`.
//!
//! A variable is put into a string after the file is parsed, so a variable can change neither the keys nor the form
//! of the configuration, and the text of a variable is not searched for further variables.

use std::ffi::OsString;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::OperatorError;
use crate::config::source_files::SourceFiles;

/// Function that returns the text of a variable of the environment.
pub(super) type Environment = fn(&str) -> Option<OsString>;

/// Returns a text with the variables of the process's environment, or `None` for a text with a mistake.
pub(super) fn expanded(text: &str) -> Option<String> {
    let mut errors = Vec::new();
    let mut settler = DocumentSettler {
        files: &mut SourceFiles::default(),
        errors: &mut errors,
        environment: |name| std::env::var_os(name),
        start: 0,
    };
    let text = settler.text(text, &(0..0));
    errors.is_empty().then_some(text)
}

/// Puts variables into the strings of a document, and moves the positions of a document to the joined text.
pub(super) struct DocumentSettler<'f> {
    pub(super) files: &'f mut SourceFiles,
    pub(super) errors: &'f mut Vec<OperatorError>,
    pub(super) environment: Environment,
    /// Position of the document's text.
    pub(super) start: usize,
}

impl DocumentSettler<'_> {
    /// Returns a table with moved positions and with variables.
    pub(super) fn table<'i>(&mut self, table: DeTable<'i>) -> DeTable<'i> {
        let entries = table.into_iter().map(|(key, value)| {
            let span = self.moved(key.span());
            (Spanned::new(span, key.into_inner()), self.value(value))
        });
        entries.collect()
    }

    /// Returns a value with a moved position and with variables.
    pub(super) fn value<'i>(&mut self, value: Spanned<DeValue<'i>>) -> Spanned<DeValue<'i>> {
        let span = self.moved(value.span());
        let value = match value.into_inner() {
            DeValue::String(text) if text.contains("${") => {
                DeValue::String(self.text(&text, &span).into())
            }
            DeValue::Array(mut items) => {
                for item in items.iter_mut() {
                    let empty = Spanned::new(0..0, DeValue::Boolean(false));
                    *item = self.value(std::mem::replace(item, empty));
                }
                DeValue::Array(items)
            }
            DeValue::Table(table) => DeValue::Table(self.table(table)),
            other => other,
        };
        Spanned::new(span, value)
    }

    fn moved(&self, span: Range<usize>) -> Range<usize> {
        span.start + self.start..span.end + self.start
    }

    /// Returns the text of a value with its variables. An error leaves the variable as it is written.
    fn text(&mut self, written: &str, span: &Range<usize>) -> String {
        let mut text = String::with_capacity(written.len());
        let mut rest = written;
        while let Some(at) = rest.find("${") {
            let (before, variable) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                // `$${` stands for the text `${`.
                text.push_str(before);
                text.push_str("${");
                rest = &variable[2..];
                continue;
            }
            text.push_str(before);
            let length = variable.find('}').map_or(variable.len(), |end| end + 1);
            match self.variable(&variable[..length], span) {
                Ok(value) => text.push_str(&value),
                Err(error) => {
                    self.errors.push(error);
                    text.push_str(&variable[..length]);
                }
            }
            rest = &variable[length..];
        }
        text.push_str(rest);
        text
    }

    /// Returns the text of a variable, written as `${NAME}` or `${NAME:-default}`.
    fn variable(&mut self, written: &str, span: &Range<usize>) -> Result<String, OperatorError> {
        let refuse = |what: String, help: String| Err(self.files.error(span.clone(), what, help));
        let inside = written
            .strip_prefix("${")
            .and_then(|it| it.strip_suffix('}'));
        let (name, default) = match inside.map(|it| it.split_once(":-").ok_or(it)) {
            Some(Ok((name, default))) => (name, Some(default)),
            Some(Err(name)) => (name, None),
            None => ("", None),
        };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_letter) || name.as_bytes()[0].is_ascii_digit() {
            return refuse(
                format!("`{written}` is not a variable"),
                "write ${NAME} or ${NAME:-default}, and $${ for the characters ${".to_owned(),
            );
        }
        let set = (self.environment)(name).filter(|text| default.is_none() || !text.is_empty());
        match (set.map(OsString::into_string), default) {
            (Some(Ok(text)), _) => {
                self.files.used(span.clone(), name, &text);
                Ok(text)
            }
            (Some(Err(_)), _) => refuse(
                format!("the environment variable `{name}` is not UTF-8"),
                "set the variable to UTF-8 text".to_owned(),
            ),
            (None, Some(default)) => Ok(default.to_owned()),
            (None, None) => refuse(
                format!("the environment variable `{name}` is not set"),
                format!(
                    "set the variable, for example with `Environment={name}=…` in the systemd unit, or write a \
                     default: ${{{name}:-…}}"
                ),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of `a`, or the first error.
    fn settled(value: &str) -> Result<String, String> {
        let text = format!("a = {value}");
        let document = DeTable::parse(&text).expect("a document").into_inner();
        let mut files = SourceFiles::single(&text, "a.toml");
        let mut errors = Vec::new();
        let mut settler = DocumentSettler {
            files: &mut files,
            errors: &mut errors,
            environment: |name| match name {
                "HOST" => Some("example.org".into()),
                "EMPTY" => Some("".into()),
                "NESTED" => Some("${HOST}".into()),
                _ => None,
            },
            start: 0,
        };
        let document = settler.table(document);
        match errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(document["a"].get_ref().as_str().expect("text").to_owned()),
        }
    }

    #[test]
    fn variables_are_put_into_strings() {
        for (value, text) in [
            ("\"www.${HOST}\"", "www.example.org"),
            ("'${HOST}:${PORT:-80}'", "example.org:80"),
            ("\"${EMPTY}.\"", "."),
            ("\"${EMPTY:-x}\"", "x"),
            ("\"${NONE:-}\"", ""),
            ("\"${NONE:-a:-b}\"", "a:-b"),
            ("\"${NESTED}\"", "${HOST}"),
            ("\"${NONE:-${HOST}\"", "${HOST"),
            ("\"$${HOST}\"", "${HOST}"),
            ("\"$HOST $path $$\"", "$HOST $path $$"),
            ("\"\\u0024{HOST}\"", "example.org"),
        ] {
            assert_eq!(settled(value).as_deref(), Ok(text), "{value}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (value, what) in [
            (
                "\"x ${NONE}\"",
                "the environment variable `NONE` is not set",
            ),
            ("\"${}\"", "`${}` is not a variable"),
            ("\"${1A}\"", "`${1A}` is not a variable"),
            ("\"${A-b}\"", "`${A-b}` is not a variable"),
            ("\"${HOST\"", "`${HOST` is not a variable"),
        ] {
            let error = settled(value).expect_err(value);
            assert!(error.contains(&format!("error: {what}\n")), "{error}");
            assert!(error.contains("--> a.toml:1:5\n"), "{error}");
        }
    }
}
