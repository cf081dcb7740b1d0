//! File `_headers`: a line with a path begins the response fields of the path, and each further line has one field.
//!
//! ```text
//! # All pages
//! /*
//!   X-Frame-Options: DENY
//! /fonts/*
//!   Access-Control-Allow-Origin: *
//! ```
//!
//! A field that occurs several times under one path has all values, divided by commas (RFC 9110 §5.3).

use crate::problem::Problem;
use base::visible_text::shortened;
use release::limits::{RELEASE_FIELD_NAME_BYTES_MAX, RELEASE_FIELD_VALUE_BYTES_MAX};
use release::manifest::field_refusal;
use release::manifest::valid_value;
use release::redirect_map::MISTAKES_MAX;

/// Name of the file.
const FILE: &str = "_headers";

/// Response fields of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathFields {
    /// Line of the path, from 1.
    pub line: usize,
    /// Path with initial slash, perhaps with `*` for any text and `:name` for one name.
    pub path: String,
    /// Names and values.
    pub fields: Vec<(String, String)>,
}

/// Reads the file. An error has the mistakes of all lines in their order.
pub(crate) fn read(text: &str) -> Result<Vec<PathFields>, Vec<Problem>> {
    let mut reader = HeadersReader::default();
    for (line, words) in (1..).zip(text.lines()) {
        let words = words.trim();
        if !words.is_empty() && !words.starts_with('#') {
            reader.line(line, words);
        }
        if reader.mistakes.len() >= MISTAKES_MAX {
            break;
        }
    }
    reader.finish()
}

/// Sections of the file as far as they are read, with the mistakes and their lines.
#[derive(Default)]
struct HeadersReader {
    sections: Vec<PathFields>,
    mistakes: Vec<(usize, Problem)>,
    /// True while the fields of a refused path follow.
    skips_fields: bool,
    /// True if the current section has a line with a field, right or wrong.
    has_field: bool,
}

impl HeadersReader {
    fn line(&mut self, line: usize, words: &str) {
        if words.starts_with('/') {
            self.end_section();
            self.sections.push(PathFields {
                line,
                path: words.to_owned(),
                fields: Vec::new(),
            });
            (self.skips_fields, self.has_field) = (false, false);
        } else if words.starts_with("https://") || words.starts_with("http://") {
            self.end_section();
            let help = "begin the line with the path, and publish the other host as its own site";
            self.refuse(
                line,
                refused(FILE, line, "a path for one host is not supported").help(help),
            );
            (self.skips_fields, self.has_field) = (true, true);
        } else if !self.skips_fields
            && let Err(mistake) = self.field(line, words)
        {
            self.refuse(line, mistake);
        }
    }

    fn field(&mut self, line: usize, words: &str) -> Result<(), Problem> {
        self.has_field = true;
        let Some(section) = self.sections.last_mut() else {
            self.skips_fields = true;
            return Err(refused(FILE, line, "a field stands before the first path")
                .help("begin with a path such as `/*`"));
        };
        let (name, value) = field(line, words)?;
        if add(section, name, value) > RELEASE_FIELD_VALUE_BYTES_MAX {
            let name = shortened(name);
            let what = format!("the value of the field `{name}` is longer than 8 KiB");
            return Err(refused(FILE, line, what).help("write a shorter value"));
        }
        Ok(())
    }

    /// Refuses a path without a field.
    fn end_section(&mut self) {
        if let Some(section) = self.sections.last().filter(|_| !self.has_field) {
            let line = section.line;
            let mistake = refused(FILE, line, "the path has no field");
            self.refuse(line, mistake.help("write `Name: value` in the next line"));
        }
    }

    fn refuse(&mut self, line: usize, mistake: Problem) {
        self.mistakes.push((line, mistake));
    }

    fn finish(mut self) -> Result<Vec<PathFields>, Vec<Problem>> {
        self.end_section();
        if self.mistakes.is_empty() {
            return Ok(self.sections);
        }
        self.mistakes.sort_by_key(|(line, _)| *line);
        self.mistakes.truncate(MISTAKES_MAX);
        Err(self
            .mistakes
            .into_iter()
            .map(|(_, mistake)| mistake)
            .collect())
    }
}

fn field(line: usize, words: &str) -> Result<(&str, &str), Problem> {
    let Some((name, value)) = words.split_once(':') else {
        let help = "a line is a path with an initial slash, or `Name: value`";
        let what = format!("`{}` is no field", shortened(words));
        return Err(refused(FILE, line, what).help(help));
    };
    let (name, value) = (name.trim_end(), value.trim_start());
    if name.eq_ignore_ascii_case("basic-auth") {
        return Err(refused(FILE, line, "Basic-Auth is not supported")
            .help("guard the route in anthill.toml with `users`"));
    }
    let shown = shortened(name);
    if let Some(reason) = field_refusal(name.as_bytes()) {
        let what = format!("a site cannot set the field `{shown}`: {reason}");
        let help = if name.is_ascii() && !name.contains(char::is_whitespace) {
            "remove the line; `headers` in anthill.toml sets fields of the operator"
        } else {
            "write a name of letters, digits and hyphens"
        };
        return Err(refused(FILE, line, what).help(help));
    }
    if name.len() > RELEASE_FIELD_NAME_BYTES_MAX {
        let what = format!("the name of the field `{shown}` is longer than 128 bytes");
        return Err(refused(FILE, line, what).help("write a shorter name"));
    }
    if value.is_empty() || !valid_value(value) {
        return Err(refused(
            FILE,
            line,
            format!("the field `{shown}` has no valid value"),
        )
        .help("write visible characters after the colon"));
    }
    Ok((name, value))
}

/// Adds a field, or a value to a field of the section. Returns the bytes of the whole value.
fn add(section: &mut PathFields, name: &str, value: &str) -> usize {
    let mut known = section.fields.iter_mut();
    match known.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, values)) => {
            values.push_str(", ");
            values.push_str(value);
            values.len()
        }
        None => {
            section.fields.push((name.to_owned(), value.to_owned()));
            value.len()
        }
    }
}

/// Returns an error with the file and the line.
fn refused(file: &str, line: usize, what: impl Into<String>) -> Problem {
    Problem::usage(format!("{file}, line {line}: {}", what.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the single mistake of a file.
    fn refusal(text: &str) -> String {
        let mistakes = read(text).expect_err("a refusal");
        let [mistake] = &mistakes[..] else {
            panic!("{text}: {mistakes:?}");
        };
        mistake.to_string()
    }

    #[test]
    fn all_mistakes_are_found_in_the_order_of_their_lines() {
        let text = "/a\n/b\n  X-A\n  X-B: 1\nhttps://c.test/*\n  X-C: 1\n  X-D\n/d\n  Set-Cookie: a=b\n/e\n";
        let mistakes = read(text).expect_err("refusals");
        let lines: Vec<String> = mistakes
            .iter()
            .map(|mistake| {
                let text = mistake.to_string();
                let line = text.split(':').nth(1).unwrap_or_default();
                line.trim().to_owned()
            })
            .collect();
        let expected = [1, 3, 5, 9, 10].map(|line| format!("_headers, line {line}"));
        assert_eq!(lines, expected, "{mistakes:?}");
        // A file of another format has a mistake in each line.
        let long = "/a\n".repeat(10_000);
        assert_eq!(read(&long).expect_err("refusals").len(), MISTAKES_MAX);
    }

    #[test]
    fn sections_are_read() {
        let text = "# comment\n\n/*\n  X-Frame-Options: DENY\n\tLink: </a.css>; rel=preload\n  link: </b.js>\n\
                    /a/:id/*\nCache-Control:no-cache\n";
        let sections = read(text).expect("sections");
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].path, "/*");
        let link = (
            "Link".to_owned(),
            "</a.css>; rel=preload, </b.js>".to_owned(),
        );
        assert_eq!(sections[0].fields[1], link);
        assert_eq!(sections[1].line, 7);
        assert_eq!(sections[1].path, "/a/:id/*");
        assert_eq!(sections[1].fields[0].1, "no-cache");
        assert_eq!(read("").expect("nothing"), []);
    }

    #[test]
    fn long_fields_are_refused_with_their_line() {
        let value = |bytes: usize| format!("/*\n  X-A: {}\n", "b".repeat(bytes));
        assert!(read(&value(8 * 1024)).is_ok());
        let parts = value(8 * 1024) + "  x-a: c\n";
        let name = format!("/*\n  {}: b\n", "a".repeat(129));
        for (text, line, part) in [
            (value(8 * 1024 + 1), 2, "`X-A` is longer than 8 KiB"),
            (parts, 3, "`x-a` is longer than 8 KiB"),
            (name, 2, "longer than 128 bytes"),
        ] {
            let error = refusal(&text);
            let start = format!("error: _headers, line {line}: ");
            assert!(error.starts_with(&start) && error.contains(part), "{error}");
        }
        let error = refusal(&"a".repeat(100_000));
        assert!(error.len() < 300, "{error}");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, part) in [
            ("X-A: b", 1, "before the first path"),
            ("/*\n\n  X-A", 3, "is no field"),
            ("/*\n  Content-Length: 1", 2, "only the server sets"),
            (
                "/*\n  X-A: 1\n  Set-Cookie: a=b",
                3,
                "`Set-Cookie`: this field concerns",
            ),
            ("/a\n  alt-svc: clear", 2, "concerns the whole host"),
            ("/a\n  NEL: {}", 2, "concerns the whole host"),
            ("/a\n  Via: 1.1 a", 2, "for caches and proxies"),
            (
                "/*\n  X-\u{c4}: 1",
                2,
                "`X-\u{c4}`: the name of the field is invalid",
            ),
            ("/*\n  X-A:", 2, "no valid value"),
            ("/*\n  X-A: \u{1}", 2, "no valid value"),
            ("/*\n  Basic-Auth: a:b", 2, "Basic-Auth"),
            ("/a\n/b\n  X-A: 1", 1, "no field"),
            ("https://a.example/*\n  X-A: 1", 1, "one host"),
        ] {
            let error = refusal(text);
            let start = format!("error: _headers, line {line}: ");
            assert!(error.starts_with(&start) && error.contains(part), "{error}");
        }
    }
}
