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

use super::refused;
use crate::problem::Problem;
use anthill_data_plane::site::rules::valid_value;
use anthill_data_plane::wire::manifest::field_refusal;

/// Name of the file.
const FILE: &str = "_headers";

/// Response fields of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathFields {
    /// Line of the path, from 1.
    pub line: usize,
    /// Path with initial slash, perhaps with `*` for any text and `:name` for one name.
    pub path: String,
    /// Names and values.
    pub fields: Vec<(String, String)>,
}

/// Reads the file.
pub fn read(text: &str) -> Result<Vec<PathFields>, Problem> {
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
            add(section, name, value);
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
        return Err(refused(FILE, line, format!("`{words}` is no field")).help(help));
    };
    let (name, value) = (name.trim_end(), value.trim_start());
    if name.eq_ignore_ascii_case("basic-auth") {
        return Err(refused(FILE, line, "Basic-Auth is not supported")
            .help("guard the route in anthill.toml with `users`"));
    }
    if let Some(reason) = field_refusal(name.as_bytes()) {
        let what = format!("a site cannot set the field `{name}`: {reason}");
        return Err(refused(FILE, line, what)
            .help("remove the line; `headers` in anthill.toml sets fields of the operator"));
    }
    if value.is_empty() || !valid_value(value) {
        return Err(
            refused(FILE, line, format!("the field `{name}` has no valid value"))
                .help("write visible characters after the colon"),
        );
    }
    Ok((name, value))
}

/// Adds a field, or a value to a field of the section.
fn add(section: &mut PathFields, name: &str, value: &str) {
    let mut known = section.fields.iter_mut();
    match known.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, values)) => {
            values.push_str(", ");
            values.push_str(value);
        }
        None => section.fields.push((name.to_owned(), value.to_owned())),
    }
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
