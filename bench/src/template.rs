//! Templates of the configuration files of contenders.
//!
//! Configuration files contain braces and special characters of their own, so a placeholder is restricted
//! to a word of lower-case letters, digits and underscores in braces, `{root}`. A directive occupies a
//! whole line: `@if WORD`, `@unless WORD`, `@else`, `@each WORD`, `@end`. An unknown word is an error, to
//! avoid measuring a server with an incomplete configuration.

use std::collections::BTreeMap;

/// Values for the placeholders, conditions and lists of a template.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    words: BTreeMap<String, String>,
    flags: BTreeMap<String, bool>,
    lists: BTreeMap<String, Vec<Turn>>,
}

impl Values {
    /// Sets the text for `{name}`.
    pub(crate) fn word(&mut self, name: &str, text: impl ToString) -> &mut Self {
        self.words.insert(name.to_owned(), text.to_string());
        self
    }

    /// Sets the condition of `@if name`.
    pub(crate) fn flag(&mut self, name: &str, holds: bool) -> &mut Self {
        self.flags.insert(name.to_owned(), holds);
        self
    }

    /// Sets the list of `@each name`: pairs `(word, text)` for each repetition.
    pub(crate) fn list(&mut self, name: &str, turns: Vec<Vec<(&str, String)>>) -> &mut Self {
        let owned = |turn: Vec<(&str, String)>| {
            turn.into_iter()
                .map(|(word, text)| (word.to_owned(), text))
                .collect()
        };
        self.lists
            .insert(name.to_owned(), turns.into_iter().map(owned).collect());
        self
    }

    /// Returns true if all conditions hold. A leading `!` negates a condition.
    pub(crate) fn hold(&self, conditions: &[String]) -> Result<bool, TemplateError> {
        for condition in conditions {
            let (name, wanted) = match condition.strip_prefix('!') {
                Some(name) => (name, false),
                None => (condition.as_str(), true),
            };
            if self.condition(name, 0)? != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Expands a template.
    pub(crate) fn fill(&self, template: &str) -> Result<String, TemplateError> {
        let mut expansion = Expansion {
            values: self,
            lines: template.lines().collect(),
            out: String::with_capacity(template.len() * 2),
        };
        let end = expansion.block(0, &Turn::new(), true)?;
        if end < expansion.lines.len() {
            Err(TemplateError {
                line: end + 1,
                problem: Problem::StrayEnd,
            })
        } else {
            Ok(expansion.out)
        }
    }

    /// Expands a single line, for example an argument of a command.
    pub(crate) fn fill_line(&self, text: &str) -> Result<String, TemplateError> {
        self.fill_words(text, 0, &Turn::new())
    }

    fn fill_words(&self, line: &str, at: usize, turn: &Turn) -> Result<String, TemplateError> {
        let mut out = String::with_capacity(line.len() + 64);
        let mut rest = line;
        while let Some((before, name, after)) = placeholder(rest) {
            let text = turn.get(name).or_else(|| self.words.get(name));
            out.push_str(before);
            out.push_str(text.ok_or_else(|| unknown(name, at))?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn condition(&self, name: &str, at: usize) -> Result<bool, TemplateError> {
        self.flags
            .get(name)
            .copied()
            .ok_or_else(|| unknown(name, at))
    }
}

/// A template during its expansion.
struct Expansion<'t> {
    values: &'t Values,
    lines: Vec<&'t str>,
    out: String,
}

/// Words of one repetition of a list.
type Turn = BTreeMap<String, String>;

impl Expansion<'_> {
    /// Expands the lines from `at` to the end of the block and returns the index of the last line. Nothing
    /// is written unless the block is `wanted`.
    fn block(&mut self, mut at: usize, turn: &Turn, wanted: bool) -> Result<usize, TemplateError> {
        while let Some(line) = self.lines.get(at).copied() {
            match Directive::of(line) {
                Some(Directive::End | Directive::Else) => return Ok(at),
                Some(Directive::If { name, not }) => {
                    let holds = self.values.condition(name, at)? != not;
                    at = self.branch(at, turn, wanted, holds)?;
                }
                Some(Directive::Each(name)) => at = self.turns(at, name, wanted)?,
                None if wanted => {
                    self.out.push_str(&self.values.fill_words(line, at, turn)?);
                    self.out.push('\n');
                }
                None => {}
            }
            at += 1;
        }
        Ok(at)
    }

    fn branch(
        &mut self,
        begin: usize,
        turn: &Turn,
        wanted: bool,
        holds: bool,
    ) -> Result<usize, TemplateError> {
        let mut end = self.block(begin + 1, turn, wanted && holds)?;
        let line = self.lines.get(end);
        if line.is_some_and(|line| matches!(Directive::of(line), Some(Directive::Else))) {
            end = self.block(end + 1, turn, wanted && !holds)?;
        }
        self.closed(begin, end)
    }

    fn turns(&mut self, begin: usize, name: &str, wanted: bool) -> Result<usize, TemplateError> {
        let turns = self.values.lists.get(name);
        let turns = turns.ok_or_else(|| unknown(name, begin))?;
        let mut end = self.block(begin + 1, &Turn::new(), false)?;
        for turn in turns {
            end = self.block(begin + 1, turn, wanted)?;
        }
        self.closed(begin, end)
    }

    fn closed(&self, begin: usize, end: usize) -> Result<usize, TemplateError> {
        let (line, problem) = match self.lines.get(end).and_then(|line| Directive::of(line)) {
            Some(Directive::End) => return Ok(end),
            Some(_) => (end + 1, Problem::StrayEnd),
            None => (begin + 1, Problem::Open),
        };
        Err(TemplateError { line, problem })
    }
}

/// Error of an invalid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct TemplateError {
    /// Line number, from 1.
    pub line: usize,
    problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("unknown word `{0}`")]
    Unknown(String),
    #[error("block without @end")]
    Open,
    #[error("@end or @else without an open block")]
    StrayEnd,
}

enum Directive<'a> {
    If { name: &'a str, not: bool },
    Else,
    Each(&'a str),
    End,
}

impl<'a> Directive<'a> {
    fn of(line: &'a str) -> Option<Directive<'a>> {
        let mut words = line.split_whitespace();
        let directive = match (words.next()?, words.next()) {
            ("@if", Some(name)) => Directive::If { name, not: false },
            ("@unless", Some(name)) => Directive::If { name, not: true },
            ("@each", Some(name)) => Directive::Each(name),
            ("@else", None) => Directive::Else,
            ("@end", None) => Directive::End,
            _ => return None,
        };
        words.next().is_none().then_some(directive)
    }
}

/// Returns the first placeholder of a text: the text before, the name, and the text after.
pub(crate) fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|open| open + from) {
        let is_first = |byte: &&u8| byte.is_ascii_lowercase();
        let is_next =
            |byte: &&u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || **byte == b'_';
        let name = text.as_bytes()[open + 1..].iter();
        let name_bytes = match name.clone().next().filter(is_first) {
            Some(_) => name.take_while(is_next).count(),
            None => 0,
        };
        let close = open + 1 + name_bytes;
        if name_bytes > 0 && text.as_bytes().get(close) == Some(&b'}') {
            return Some((&text[..open], &text[open + 1..close], &text[close + 1..]));
        }
        from = open + 1;
    }
    None
}

fn unknown(name: &str, at: usize) -> TemplateError {
    TemplateError {
        line: at + 1,
        problem: Problem::Unknown(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        let mut values = Values::default();
        values.word("root", "/srv/{not}").word("port", 8080);
        values.flag("tls", true).flag("cgi", false);
        values.list(
            "member",
            vec![
                vec![("member", "a:1".into())],
                vec![("member", "b:2".into())],
            ],
        );
        values
    }

    #[track_caller]
    fn filled(template: &str) -> String {
        values().fill(template).expect("a sound template")
    }

    #[test]
    fn placeholders_are_expanded_once_and_other_braces_are_kept() {
        assert_eq!(filled("root {root};"), "root /srv/{not};\n");
        assert_eq!(
            filled("events { a; }\nif {A} {{port}} {"),
            "events { a; }\nif {A} {8080} {\n"
        );
    }

    #[test]
    fn blocks_are_kept_dropped_and_repeated() {
        assert_eq!(filled("@if tls\nyes\n@else\nno\n@end\nx"), "yes\nx\n");
        assert_eq!(filled("  @unless tls\nyes\n@else\nno\n@end"), "no\n");
        assert_eq!(filled("@if cgi\n@if tls\na\n@end\n@else\nb\n@end"), "b\n");
        assert_eq!(
            filled("@each member\nserver {member} {port}\n@end"),
            "server a:1 8080\nserver b:2 8080\n"
        );
        assert_eq!(filled("@named path /x"), "@named path /x\n");
    }

    #[test]
    fn unknown_words_and_open_blocks_are_reported_with_their_line() {
        let error = |template: &str| {
            values()
                .fill(template)
                .expect_err("an unsound template")
                .to_string()
        };
        assert_eq!(error("a\n{missing}"), "line 2: unknown word `missing`");
        assert_eq!(error("@if missing\n@end"), "line 1: unknown word `missing`");
        assert_eq!(
            error("@each missing\n@end"),
            "line 1: unknown word `missing`"
        );
        assert_eq!(error("@if tls\na"), "line 1: block without @end");
        assert_eq!(
            error("a\n@end\nb"),
            "line 2: @end or @else without an open block"
        );
        assert_eq!(
            error("@each member\n@else\n@end"),
            "line 2: @end or @else without an open block"
        );
    }

    #[test]
    fn conditions_are_combined_with_and() {
        let hold = |conditions: &[&str]| {
            values().hold(
                &conditions
                    .iter()
                    .map(|c| (*c).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(hold(&[]), Ok(true));
        assert_eq!(hold(&["tls", "!cgi"]), Ok(true));
        assert_eq!(hold(&["tls", "cgi"]), Ok(false));
        assert!(hold(&["missing"]).is_err());
    }
}
