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

/// Reads the file.
pub(crate) fn read(text: &str) -> Result<Vec<PathFields>, Problem> {
    let mut sections: Vec<PathFields> = Vec::new();
    for (line, words) in (1..).zip(text.lines()) {
        let words = words.trim();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        if words.starts_with('/') {
            sections.push(PathFields {
                line,
                path: words.to_owned(),
                fields: Vec::new(),
            });
        } else if words.starts_with("https://") || words.starts_with("http://") {
            let help = "begin the line with the path, and publish the other host as its own site";
            return Err(refused(FILE, line, "a path for one host is not supported").help(help));
        } else {
            let Some(section) = sections.last_mut() else {
                return Err(refused(FILE, line, "a field stands before the first path")
                    .help("begin with a path such as `/*`"));
            };
            let (name, value) = field(line, words)?;
            if add(section, name, value) > RELEASE_FIELD_VALUE_BYTES_MAX {
                let name = shortened(name);
                let what = format!("the value of the field `{name}` is longer than 8 KiB");
                return Err(refused(FILE, line, what).help("write a shorter value"));
            }
        }
    }
    for section in &sections {
        if section.fields.is_empty() {
            return Err(refused(FILE, section.line, "the path has no field")
                .help("write `Name: value` in the next line"));
        }
    }
    Ok(sections)
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
            let error = read(&text).expect_err("a refusal").to_string();
            let start = format!("error: _headers, line {line}: ");
            assert!(error.starts_with(&start) && error.contains(part), "{error}");
        }
        let error = read(&"a".repeat(100_000))
            .expect_err("a refusal")
            .to_string();
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
            let error = read(text).expect_err("a refusal").to_string();
            let start = format!("error: _headers, line {line}: ");
            assert!(error.starts_with(&start) && error.contains(part), "{error}");
        }
    }
}
