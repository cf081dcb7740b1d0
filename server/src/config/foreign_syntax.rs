//! Lines of a configuration that are no TOML, with the evident cause: text copied from a page, a terminal or a diff, or a file of
//! another program.

use std::ops::Range;

use crate::config::odd_characters::odd_in_code;

/// Position, mistake and correction.
pub(super) type Explanation = (Range<usize>, String, String);

/// Line of a file with a syntax error.
pub(super) struct ErrorLine<'t> {
    /// Text of the file.
    file: &'t str,
    /// Position of the error.
    at: usize,
    /// Position of the line.
    line: Range<usize>,
    /// Line without spaces at both ends.
    code: &'t str,
    /// Position of `code`.
    span: Range<usize>,
}

impl<'t> ErrorLine<'t> {
    /// Returns the line of byte `at` of a file.
    pub(super) fn new(file: &'t str, at: usize) -> ErrorLine<'t> {
        let begin = file[..at].rfind('\n').map_or(0, |end| end + 1);
        let end = file[at..].find('\n').map_or(file.len(), |end| at + end);
        let text = file[begin..end].trim_end();
        let code = text.trim_start();
        ErrorLine {
            file,
            at,
            line: begin..end,
            code,
            span: begin + text.len() - code.len()..begin + text.len(),
        }
    }

    fn explain(&self, what: &str, help: impl Into<String>) -> Option<Explanation> {
        Some((self.span.clone(), what.to_owned(), help.into()))
    }

    /// Returns the number of the line with a byte.
    fn number(&self, at: usize) -> usize {
        self.file[..at].matches('\n').count() + 1
    }

    /// Returns the explanation of text that was copied with marks of another program, or of odd characters.
    pub(super) fn copied_text(&self) -> Option<Explanation> {
        self.nul()
            .or_else(|| self.conflict())
            .or_else(|| self.copied_marks())
            .or_else(|| self.html_entity())
            .or_else(|| self.odd_character())
            .or_else(|| self.foreign_file())
    }

    fn nul(&self) -> Option<Explanation> {
        let at = self.file[self.line.clone()].find('\0')? + self.line.start;
        let what = "the line has a NUL byte".to_owned();
        let help = "delete the byte, and save the file as UTF-8 text".to_owned();
        Some((at..at + 1, what, help))
    }

    /// Returns the explanation of the marks that a merge of git leaves in a file.
    fn conflict(&self) -> Option<Explanation> {
        let lines = || {
            let mut start = 0;
            self.file.split('\n').map(move |line| {
                let at = start;
                start += line.len() + 1;
                (at, line)
            })
        };
        let (start, line) = lines().find(|(_, line)| line.starts_with("<<<<<<< "))?;
        let (end, _) = lines().find(|(at, line)| *at > start && line.starts_with(">>>>>>> "))?;
        if self.at < start || self.line.start > end {
            return None;
        }
        let what = format!(
            "the lines {} to {} have the marks of a merge conflict of git",
            self.number(start),
            self.number(end)
        );
        let help =
            "keep the lines of one side, and remove the lines with <<<<<<<, ======= and >>>>>>>";
        Some((start..start + line.trim_end().len(), what, help.to_owned()))
    }

    /// Returns the explanation of a line with a mark of Markdown, of a diff, of a listing or of a terminal.
    fn copied_marks(&self) -> Option<Explanation> {
        let code = self.code;
        if code.starts_with("```") || code.starts_with("~~~") {
            let help = format!("remove the lines with {}", &code[..3]);
            return self.explain("the line is a mark of Markdown around the text", help);
        }
        if code == "..." || code == "\u{2026}" {
            let help = "remove the line, and write the lines that the dots stand for";
            return self.explain("the dots stand for lines that were left out", help);
        }
        if let Some(command) = code.strip_prefix("$ ") {
            let help = format!("remove the line, and run the command in a terminal: {command}");
            return self.explain("the line is a command of the shell", help);
        }
        let is_toml = |rest: &str| {
            let rest = rest.trim_start();
            let key = rest.split_once('=').map(|(key, _)| key.trim());
            rest.starts_with('[') || key.is_some_and(is_key)
        };
        let of_diff = self.file[self.line.clone()].strip_prefix(['+', '-']);
        if let Some(rest) = of_diff.filter(|rest| is_toml(rest)) {
            let mark = &code[..1];
            let what = format!("the line begins with the `{mark}` of a diff");
            return self.explain(&what, format!("write the line as: {}", rest.trim()));
        }
        let digits = code.bytes().take_while(u8::is_ascii_digit).count();
        let rest = code[digits..].trim_start_matches([':', '|', '.', ')']);
        let is_listed = digits > 0 && rest.starts_with([' ', '\t']) && is_toml(rest);
        let help = format!("write the line as: {}", rest.trim());
        is_listed.then(|| self.explain("the line begins with its number", help))?
    }

    fn html_entity(&self) -> Option<Explanation> {
        let entities = ENTITIES.iter();
        let (entity, _) = entities
            .filter_map(|(entity, text)| Some((entity, (self.code.find(entity)?, text))))
            .min_by_key(|(_, (at, _))| *at)?;
        let plain = ENTITIES
            .iter()
            .fold(self.code.to_owned(), |line, (entity, text)| {
                line.replace(entity, text)
            });
        self.explain(
            &format!("`{entity}` is a character of HTML"),
            format!("write {plain}"),
        )
    }

    fn odd_character(&self) -> Option<Explanation> {
        let line = &self.file[self.line.clone()];
        let (at, odd) = odd_in_code(line)?;
        let length = line[at..].chars().next().map_or(1, char::len_utf8);
        let at = self.line.start + at;
        Some((
            at..at + length,
            odd.what,
            format!("write {}", odd.corrected),
        ))
    }

    /// Returns the explanation of a whole file in the format of another program.
    fn foreign_file(&self) -> Option<Explanation> {
        let code = self.code;
        let text = self.file.trim_start();
        let first = self.number(self.at) == self.number(self.file.len() - text.len());
        if first && text.starts_with('{') {
            let mut names = text.split('"');
            let table = names.nth(1).filter(|name| is_key(name)).unwrap_or("server");
            let help = format!("write [{table}], and `key = value` in the lines below");
            return self.explain("this looks like JSON; anthill.toml is TOML", help);
        }
        if code.starts_with("</")
            || (code.starts_with('<') && code[1..].starts_with(|c: char| c.is_ascii_alphabetic()))
        {
            let name = self
                .word_after(&["ServerName", "servername"])
                .unwrap_or("www.example.org");
            let help = format!(
                "write [[site]], and names = [\"{name}\"] and root = \"public\" in the lines below"
            );
            let what = "this looks like a file of Apache httpd; anthill.toml is TOML";
            return self.explain(what, help);
        }
        let word = code.split_ascii_whitespace().next().unwrap_or_default();
        let words = code.split_ascii_whitespace().count();
        let is_haproxy = matches!(
            (word, words),
            ("global" | "defaults", 1) | ("frontend" | "backend" | "listen", 2)
        );
        if is_haproxy && !code.contains(['=', '{', '[', ':', ';']) {
            let what = "this looks like a file of HAProxy; anthill.toml is TOML";
            let help = "write https = [\":443\"] in [server] for `bind`, and [[balancer]] with `name` and `members` for a backend";
            return self.explain(what, help);
        }
        let table = code.strip_suffix(':').filter(|key| is_key(key));
        if let Some(table) = table {
            let header = match table {
                "site" | "sites" => "[[site]]".to_owned(),
                other => format!("[{other}]"),
            };
            let help = format!("write {header}, and `key = value` in the lines below");
            return self.explain("this looks like YAML; anthill.toml is TOML", help);
        }
        if code == "---" {
            return self.explain(
                "this looks like YAML; anthill.toml is TOML",
                "remove the line",
            );
        }
        let item = code.strip_prefix("- ")?.trim();
        let help = match item.split_once(':') {
            Some((key, value)) if is_key(key) && !value.trim().is_empty() => {
                format!(
                    "write {} = {} below its table, such as [[site]]",
                    key,
                    quoted(value.trim())
                )
            }
            _ => format!("write a list in brackets: [{}]", quoted(item)),
        };
        self.explain("this looks like YAML; anthill.toml is TOML", help)
    }

    /// Returns the word after one of the given words in the file.
    fn word_after(&self, words: &[&str]) -> Option<&'t str> {
        let mut lines = self.file.lines();
        lines.find_map(|line| {
            let mut parts = line.split_ascii_whitespace();
            parts.next().filter(|word| words.contains(word))?;
            parts.next()
        })
    }

    /// Returns the explanation of a line that is almost TOML. `what` is the message of the parser.
    pub(super) fn near_toml(&self, what: &str) -> Option<Explanation> {
        self.arrow()
            .or_else(|| self.open_list(what))
            .or_else(|| self.inner_quote(what))
            .or_else(|| self.bare_value(what))
            .or_else(|| self.last_comma())
            .or_else(|| self.missing_equals(what))
            .or_else(|| self.escape(what))
            .or_else(|| self.second_of_two(what))
    }

    fn arrow(&self) -> Option<Explanation> {
        let (key, value) = self
            .code
            .split_once("=>")
            .or_else(|| self.code.split_once(":="))?;
        let key = key.trim();
        is_key(key).then(|| {
            let help = format!(
                "write {key} = {}",
                quoted(value.trim().trim_end_matches(','))
            );
            self.explain("a value stands behind `=`", help)
        })?
    }

    /// Returns the explanation of a list without its closing bracket: the parser sees the next key as an item of the list.
    fn open_list(&self, what: &str) -> Option<Explanation> {
        if !what.contains("comma between array elements") && !what.contains("unclosed array") {
            return None;
        }
        let is_key_line = self
            .code
            .split_once('=')
            .is_some_and(|(key, _)| is_key(key.trim()));
        let is_next = is_key_line || self.code.starts_with('[') || what.contains("unclosed array");
        let open = open_bracket(&self.file[..self.line.start])?;
        let line = ErrorLine::new(self.file, open);
        if !is_next || line.line == self.line || line.code.starts_with('[') {
            return None;
        }
        let end = self.number(self.at);
        let code = line.code.split('#').next().unwrap_or_default().trim_end();
        let help = if self.number(open) + 1 == end {
            format!("write {}]", code.trim_end_matches(','))
        } else {
            format!("write `]` at the end of the list, above line {end}")
        };
        Some((
            open..open + 1,
            "the list has no closing bracket".to_owned(),
            help,
        ))
    }

    /// Returns the explanation of a quote in the middle of a text.
    fn inner_quote(&self, what: &str) -> Option<Explanation> {
        let before = &self.file[self.line.start..self.at];
        let is_adjacent = before.ends_with('"')
            && self.file[self.at..].starts_with(|c: char| c.is_alphanumeric());
        if !is_adjacent || !what.contains("comma") && !what.contains("newline") {
            return None;
        }
        let open = before[..before.len() - 1].rfind('"')?;
        let rest = &self.file[self.line.start + open..self.line.end];
        let end = rest
            .rfind('"')
            .filter(|end| !rest[1..*end].contains([',', '\'', '\\', '=']))?;
        let text = &rest[1..end];
        let start = self.line.start + open;
        let help = format!("write '{text}', or \\\" for each quote in the text");
        Some((
            start..start + end + 1,
            "a quote stands within the text".to_owned(),
            help,
        ))
    }

    /// Returns the explanation of a value without quotes: a variable, a number with a zero in front or with `k`, and a text
    /// in backticks.
    fn bare_value(&self, what: &str) -> Option<Explanation> {
        let (key, rest) = self.code.split_once('=')?;
        let start = self.file[..self.at]
            .rfind(['=', ' ', '[', ',', '\n'])
            .map_or(0, |at| at + 1);
        let text = &self.file[start..self.line.end];
        let text = text
            .split([',', ']', '}', '#'])
            .next()
            .unwrap_or_default()
            .trim();
        let inner = self.file[self.line.start..start]
            .trim_end()
            .strip_suffix('=')
            .unwrap_or_default();
        let inner = inner.rsplit(['{', ',', ' ']).find(|it| !it.is_empty());
        let key = inner
            .map(str::trim)
            .filter(|it| is_key(it))
            .unwrap_or(key.trim());
        let value = rest.trim();
        let marked = start..start + text.len();
        if let Some(inside) = value.strip_prefix('`').and_then(|it| it.strip_suffix('`')) {
            let help = format!("write {key} = \"{inside}\"");
            return self.explain("a text has straight quotes, not backticks", help);
        }
        if value.starts_with("${") && value.ends_with('}') {
            let help = match key {
                "workers" => format!(
                    "write the number itself, or give it at the start: anthill serve --workers \"{value}\""
                ),
                _ => format!(
                    "write {key} = \"{value}\" for a text; a number or true and false cannot come from a variable"
                ),
            };
            return self.explain("a variable stands within a text in quotes", help);
        }
        if what.contains("leading zero") {
            let number = value.trim_start_matches('0');
            let number = if number.is_empty() { "0" } else { number };
            let help = format!("write {key} = {number}");
            return self.explain("a number begins with another digit than 0", help);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let factor = match &text[digits..] {
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            _ => return None,
        };
        let is_size = ["bytes", "memory", "size", "rotate"]
            .iter()
            .any(|part| key.contains(part));
        let number = text[..digits].parse::<u64>().ok()?.checked_mul(factor)?;
        let is_count = COUNTS.contains(&key) || (factor == 1_000 && !is_size);
        is_count.then(|| {
            (
                marked,
                format!("`{text}` is not a number"),
                format!("write {key} = {number}"),
            )
        })
    }

    fn last_comma(&self) -> Option<Explanation> {
        let line = self.code.strip_suffix(',')?;
        let (key, _) = line.split_once('=')?;
        let is_at_comma = self.file[self.at..].starts_with(',');
        (is_at_comma && is_key(key.trim())).then(|| {
            let at = self.span.end - 1;
            (
                at..at + 1,
                "a line ends without a comma".to_owned(),
                format!("write {line}"),
            )
        })
    }

    /// Returns the explanation of a key and its value without the sign between the two.
    fn missing_equals(&self, what: &str) -> Option<Explanation> {
        let (key, value) = self.code.split_once([' ', '\t'])?;
        let value = value.trim().trim_end_matches(';');
        let begins = value.starts_with(['"', '\'', '['])
            || value.parse::<i64>().is_ok()
            || matches!(value, "true" | "false");
        let is_bare = what.contains("no value") || what.contains("expected `=`");
        (is_bare && is_key(key) && begins && !value.contains('=')).then(|| {
            self.explain(
                "the line lacks the sign `=`",
                format!("write {key} = {value}"),
            )
        })?
    }

    /// Returns the explanation of a backslash that begins no escape.
    fn escape(&self, what: &str) -> Option<Explanation> {
        if !what.contains("escape") {
            return None;
        }
        let line = &self.file[self.line.clone()];
        let at = self.at - self.line.start;
        let slash = line[..at]
            .rfind('\\')
            .or_else(|| line[at..].find('\\').map(|it| it + at))?;
        let open = line[..slash].rfind('"')?;
        let close = slash + line[slash..].find('"')?;
        let text = &line[open + 1..close];
        let shown: String = line[slash..].chars().take(2).collect();
        let help = if text.contains('\'') {
            format!("write two backslashes: \"{}\"", text.replace('\\', "\\\\"))
        } else {
            format!("write the text in single quotes: '{text}'")
        };
        let slash = self.line.start + slash;
        Some((
            slash..slash + shown.len(),
            format!("`{shown}` is no escape of a text in quotes"),
            help,
        ))
    }

    /// Returns the explanation of a table or a key that stands twice, with the line of the first.
    fn second_of_two(&self, what: &str) -> Option<Explanation> {
        if !what.contains("duplicate key") {
            return None;
        }
        let header = self.code.split('#').next().unwrap_or_default().trim();
        let above = || {
            let mut start = 0;
            self.file[..self.line.start]
                .split_inclusive('\n')
                .map(move |line| {
                    let at = start;
                    start += line.len();
                    (at, line.trim())
                })
        };
        if header.starts_with('[') {
            let name = header.trim_matches(['[', ']', ' ']);
            let last = name.rsplit('.').next().unwrap_or(name);
            let is_same = |line: &str| line.split('#').next().is_some_and(|it| it.trim() == header);
            let is_key = |line: &str| {
                line.strip_prefix(last)
                    .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
            };
            let mut lines = above();
            let (first, _) = lines
                .find(|(_, line)| is_same(line))
                .or_else(|| above().find(|(_, line)| is_key(line)))?;
            let (what, first) = (
                format!("{header} stands twice in the file"),
                self.number(first),
            );
            let help = format!("the first is in line {first}: join the two, or remove one");
            return self.explain(&what, help);
        }
        let key = header.split('=').next()?.trim();
        let start = above().fold(
            0,
            |start, (at, line)| {
                if line.starts_with('[') { at } else { start }
            },
        );
        let (first, _) = above().find(|(at, line)| {
            *at >= start
                && line
                    .strip_prefix(key)
                    .is_some_and(|rest| rest.trim_start().starts_with('='))
        })?;
        let help = format!(
            "the first is in line {}: a key may occur once in a table, so remove one of the two",
            self.number(first)
        );
        let span = self.span.start..self.span.start + key.len();
        is_key(key).then(|| (span, format!("`{key}` stands twice in the table"), help))
    }
}

/// Entities of HTML in copied text, each with its character.
static ENTITIES: &[(&str, &str)] = &[
    ("&quot;", "\""),
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&apos;", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&nbsp;", " "),
    ("&amp;", "&"),
];

/// Keys with a count, for which `M` is a million.
static COUNTS: &[&str] = &[
    "connections",
    "connections_per_address",
    "requests",
    "tunnels",
    "queue",
];

fn is_key(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// Returns a value of another format as TOML.
fn quoted(value: &str) -> String {
    let is_value = value.starts_with(['"', '\'', '[', '{']) || value.parse::<i64>().is_ok();
    if is_value || matches!(value, "true" | "false") {
        value.to_owned()
    } else {
        format!("\"{value}\"")
    }
}

/// Returns the position of the last bracket of a list that no bracket closes.
fn open_bracket(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    let (mut quote, mut is_comment, mut is_escaped) = (None, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match (byte, quote) {
            (b'\n', _) => (quote, is_comment, is_escaped) = (None, false, false),
            _ if is_comment => {}
            (b'\\', Some(b'"')) if !is_escaped => is_escaped = true,
            (_, Some(open)) => {
                if byte == open && !is_escaped {
                    quote = None;
                }
                is_escaped = false;
            }
            (b'"' | b'\'', None) => quote = Some(byte),
            (b'#', None) => is_comment = true,
            (b'[' | b'{', None) => open.push((at, byte)),
            (b']' | b'}', None) => drop(open.pop()),
            _ => {}
        }
    }
    let (at, byte) = open.pop()?;
    (byte == b'[').then_some(at)
}
