//! Syntax errors of a configuration file, with the mistake that is probably behind the error of the TOML parser.

use std::ops::Range;

use crate::config::error::{OperatorError, floor_boundary};
use crate::config::foreign_syntax::{ErrorLine, Explanation};
use crate::config::source_files::SourceFiles;

/// Returns the error of the TOML parser about the text that begins at `start` and ends with `text`.
pub(super) fn syntax_error(
    files: &SourceFiles,
    text: &str,
    start: usize,
    error: &toml::de::Error,
) -> OperatorError {
    let span = error.span().unwrap_or(0..0);
    // A position of the parser is never trusted to be within the text, or between two characters.
    let fitting = |at: usize| floor_boundary(text, at + start);
    let place = SyntaxPlace {
        text,
        start,
        span: fitting(span.start)..fitting(span.end),
    };
    let mut lines = error.message().lines();
    let what = lines.next().unwrap_or("the file is not valid TOML");
    let (span, what, help) = place
        .typographic_quote()
        .or_else(|| place.foreign_space())
        .or_else(|| place.of_line(ErrorLine::copied_text))
        .or_else(|| place.missing_quote())
        .or_else(|| place.missing_value())
        .or_else(|| place.foreign_comment())
        .or_else(|| place.early_subtable(what))
        .or_else(|| place.of_line(|line| line.near_toml(what)))
        .or_else(|| place.foreign_format())
        .unwrap_or_else(|| {
            let help = lines.collect::<Vec<_>>().join(", ");
            let help = if help.is_empty() {
                place.help(what)
            } else {
                help
            };
            (place.span.clone(), what.to_owned(), help)
        });
    if span.is_empty() {
        files.error_at(span.start, what, help)
    } else {
        files.error(span, what, help)
    }
}

/// Returns the lines of a `[[site.route]]` above its `[[site]]`, if the error of the parser is a consequence.
pub(super) fn early_table(
    text: &str,
    start: usize,
    error: &toml::de::Error,
) -> Option<Range<usize>> {
    let at = floor_boundary(text, error.span()?.start + start);
    let place = SyntaxPlace {
        text,
        start,
        span: at..at,
    };
    let (early, ..) = place.early_subtable(error.message())?;
    let next = text[early.end..at]
        .find("\n[")
        .map_or(at, |end| early.end + end);
    Some(early.start..next)
}

/// Place of a syntax error in the joined text.
struct SyntaxPlace<'t> {
    /// Joined text up to the end of the file.
    text: &'t str,
    /// Position of the file.
    start: usize,
    span: Range<usize>,
}

impl<'t> SyntaxPlace<'t> {
    /// Returns the explanation that `explain` finds in the line of the error.
    fn of_line(
        &self,
        explain: impl FnOnce(&ErrorLine<'t>) -> Option<Explanation>,
    ) -> Option<Explanation> {
        let line = ErrorLine::new(&self.text[self.start..], self.span.start - self.start);
        let (span, what, help) = explain(&line)?;
        Some((span.start + self.start..span.end + self.start, what, help))
    }

    /// Returns the position of the line with `at`, without the line feed.
    fn line(&self, at: usize) -> Range<usize> {
        let begin = self.text[self.start..at].rfind('\n');
        let begin = begin.map_or(self.start, |end| self.start + end + 1);
        let end = self.text[at..]
            .find('\n')
            .map_or(self.text.len(), |end| at + end);
        begin..end
    }

    /// Returns the lines in which the mistake may be: the line of the error, and the line before.
    fn lines(&self) -> impl Iterator<Item = Range<usize>> {
        let line = self.line(self.span.start);
        let before = line.start.checked_sub(1).filter(|at| *at >= self.start);
        before.map(|at| self.line(at)).into_iter().chain([line])
    }

    /// Returns the explanation of quotes that a word processor has replaced.
    fn typographic_quote(&self) -> Option<Explanation> {
        let line = self.line(self.span.start);
        let (at, quote) = self.text[line.clone()]
            .char_indices()
            .find(|(_, c)| matches!(c, '“' | '”' | '„' | '‟' | '‘' | '’' | '«' | '»' | '″'))?;
        let at = line.start + at;
        // Within a text in quotes, any character is allowed.
        let quotes = self.text[line.start..at].matches(['"', '\'']).count();
        quotes.is_multiple_of(2).then(|| {
            (
                at..at + quote.len_utf8(),
                format!("`{quote}` is a typographic quote"),
                "write straight quotes: \"text\"".to_owned(),
            )
        })
    }

    /// Returns the explanation of a space or a mark that looks like nothing or like a space.
    fn foreign_space(&self) -> Option<Explanation> {
        let line = self.line(self.span.start);
        let (at, (name, _)) = self.text[line.clone()].char_indices().find_map(|(at, c)| {
            let name = match c {
                '\u{a0}' | '\u{202f}' | '\u{2007}' | '\u{3000}' => "a non-breaking or wide space",
                '\u{feff}' => "a byte order mark",
                '\u{200b}'..='\u{200f}' | '\u{2060}' => "an invisible character",
                '\r' if !self.text[line.start + at + 1..].starts_with('\n') => {
                    "a carriage return without a line feed"
                }
                _ => return None,
            };
            Some((at, (name, c)))
        })?;
        let at = line.start + at;
        let width = self.text[at..].chars().next().map_or(0, char::len_utf8);
        // Within a text in quotes, any character is allowed.
        let quotes = self.text[line.start..at].matches(['"', '\'']).count();
        quotes.is_multiple_of(2).then(|| {
            let what = format!("{name} stands between the words");
            let help = if name.starts_with("a carriage") {
                "save the file with line ends of Unix (LF) or of Windows (CR LF)"
            } else {
                "delete the character, and write ordinary spaces"
            };
            (at..at + width, what, help.to_owned())
        })
    }

    /// Returns the explanation of a key without a value.
    fn missing_value(&self) -> Option<Explanation> {
        let line = self.line(self.span.start);
        let code = self.text[line.clone()].split('#').next()?.trim_end();
        let key = code.strip_suffix('=')?.trim();
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (!key.is_empty() && key.bytes().all(is_key)).then(|| {
            (
                line.start..line.start + code.len(),
                format!("`{key}` has no value"),
                format!("write {key} = VALUE in one line, or remove the line"),
            )
        })
    }

    /// Returns the explanation of a comment in the format of another language, or of a semicolon at the end of a line.
    fn foreign_comment(&self) -> Option<Explanation> {
        let line = self.line(self.span.start);
        let text = self.text[line.clone()].trim_end();
        let code = text.trim_start();
        let span = line.start + text.len() - code.len()..line.start + text.len();
        let comments = ["//", "/*", "--", "<!--", ";"];
        if let Some(mark) = comments.iter().find(|mark| code.starts_with(**mark)) {
            let rest = code.trim_start_matches(mark).trim();
            let rest = rest
                .trim_end_matches("*/")
                .trim_end_matches("-->")
                .trim_end();
            let help = format!("write the comment as: # {rest}");
            return Some((span, "a comment begins with `#`".to_owned(), help));
        }
        let (key, value) = code.strip_suffix(';')?.split_once('=')?;
        let help = format!("write {} = {}", key.trim(), value.trim());
        Some((
            span.end - 1..span.end,
            "a line ends without a semicolon".to_owned(),
            help,
        ))
    }

    /// Returns the explanation of a text without a closing quote.
    fn missing_quote(&self) -> Option<Explanation> {
        self.lines().find_map(|line| {
            let text = &self.text[line.clone()];
            let code = text.split('#').next().unwrap_or(text);
            // In a text in quotes, the other quote and the backslash may be plain characters.
            let quote = |quote: char, others: [char; 2]| {
                let is_plain =
                    !code.contains(others) && !code.contains(&quote.to_string().repeat(3));
                let quotes = code.matches(quote).count();
                code.rfind(quote).filter(|_| is_plain && quotes % 2 == 1)
            };
            let open = quote('"', ['\'', '\\']).or_else(|| quote('\'', ['"', '"']))?;
            let end = code.trim_end().len();
            Some((
                line.start + open..line.start + end,
                "a text has no closing quote".to_owned(),
                "write a quote at both ends of the text: \"text\"".to_owned(),
            ))
        })
    }

    /// Returns the explanation of a `[[site.route]]` above the `[[site]]` to which the route belongs.
    fn early_subtable(&self, what: &str) -> Option<Explanation> {
        let line = self.line(self.span.start);
        let header = self.text[line.clone()].trim();
        let name = header.strip_prefix("[[")?.strip_suffix("]]")?;
        if !what.contains("duplicate key") {
            return None;
        }
        let early = format!("[[{name}.");
        let above = &self.text[self.start..line.start];
        let at = above.match_indices(&early).map(|(at, _)| self.start + at);
        let at = at.map(|at| self.line(at)).find(|line| {
            let before = &self.text[self.start..line.start];
            self.text[line.clone()].starts_with(&early) && !before.contains(header)
        })?;
        let sub = self.text[at.clone()].trim().to_owned();
        Some((
            at.start..at.start + sub.len(),
            format!("{sub} stands above its {header}"),
            format!("write {header} above {sub}, with the keys of the table between the two"),
        ))
    }

    /// Returns the explanation of a line in the format of nginx, of Caddy, of YAML or of JSON.
    fn foreign_format(&self) -> Option<Explanation> {
        let line = self.line(self.span.start);
        let text = self.text[line.clone()].trim_end();
        let code = text.trim_start();
        let span = line.start + text.len() - code.len()..line.start + text.len();
        let is_foreign = code.ends_with(['{', ';']) || code == "}";
        if is_foreign && !code.contains('=') {
            let what = "this looks like a file of nginx or Caddy; anthill.toml is TOML";
            let help = "write [[site]], and names = [\"a.test\"] in the lines below";
            return Some((span, what.to_owned(), help.to_owned()));
        }
        let (key, value) = code.split_once(':')?;
        let key = key.trim().trim_matches('"');
        let value = value.trim().trim_end_matches(',');
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if key.is_empty() || !key.bytes().all(is_key) || value.is_empty() {
            return None;
        }
        let is_value = value.starts_with(['"', '\'', '[', '{']) || value.parse::<u64>().is_ok();
        let help = if is_value || matches!(value, "true" | "false") {
            format!("write {key} = {value}")
        } else {
            format!("write {key} = \"{value}\"")
        };
        let what = format!("`{key}` is followed by a colon");
        Some((span, what, help))
    }

    /// Returns the help for an error without a remedy of the parser.
    fn help(&self, what: &str) -> String {
        let line = self.text[self.line(self.span.start)].trim();
        let marked = &self.text[self.span.clone()];
        if what.contains("duplicate key") && line.starts_with('[') {
            "join the two tables; lists such as [[site.route]] stand below their [[site]]"
                .to_owned()
        } else if what.contains("duplicate key") {
            "a key may occur once in a table: remove one of the two lines".to_owned()
        } else if what.contains("missing comma") {
            "write a comma between the two values, also at the end of the line before".to_owned()
        } else if line.starts_with('[') && !line.contains('=') {
            let name = line.split('#').next().unwrap_or(line).trim();
            let name = name.trim_matches(|c: char| c == '[' || c == ']' || c.is_whitespace());
            let is_list = ["site", "site.route", "balancer"].contains(&name);
            if line.starts_with("[[") || is_list {
                format!("write double brackets at both ends: [[{name}]]")
            } else {
                format!("write brackets at both ends: [{name}]")
            }
        } else if let Some(value) = boolean(marked) {
            let key = line.split('=').next().unwrap_or_default().trim();
            let has_word = ["http", "https", "log", "access", "errors"].contains(&key);
            match marked.to_ascii_lowercase().as_str() {
                "true" | "false" => format!("write {value} in lower case"),
                "off" if has_word => format!("write {key} = \"off\""),
                _ => format!("write {value}, or a text in quotes: \"{marked}\""),
            }
        } else if what.contains("must be quoted") && !marked.is_empty() {
            format!("write the text in quotes: \"{marked}\"")
        } else if what.contains("escape") {
            "write two backslashes for one, or single quotes around the text: 'text'".to_owned()
        } else if what.contains("newline") || what.contains("extra") {
            "write one `key = value` in a line, and text in quotes".to_owned()
        } else {
            "write `key = value` or a [table] in a line, and text in quotes".to_owned()
        }
    }
}

/// Returns `true` or `false` for a word of another format.
fn boolean(word: &str) -> Option<&'static str> {
    match word.to_ascii_lowercase().as_str() {
        "on" | "yes" | "true" => Some("true"),
        "off" | "no" | "false" => Some("false"),
        _ => None,
    }
}
