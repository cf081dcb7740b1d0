//! Glob patterns that select files for the operator's rules.
//!
//! `*` and `?` match within one name, `**` matches across folders, `{a,b}` matches either alternative,
//! `[a-z]` matches a character of the class, and `\` escapes the next character. A glob without `/` is
//! matched against the file name at any depth, a glob with `/` against the whole path below the root.

use crate::limits::GLOB_ALTERNATIVES_MAX;
use std::fmt;

/// Parsed glob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    /// Token sequences with the braces expanded. A path matches if one of the sequences matches.
    alternatives: Vec<Vec<Token>>,
    whole_path: bool,
}

/// Syntax error of a glob, with the position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GlobError {
    /// Bytes from the start of the glob.
    pub at: usize,
    /// Reason, as one clause.
    pub what: &'static str,
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {} of the glob)", self.what, self.at)
    }
}

impl std::error::Error for GlobError {}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Byte(u8),
    /// `?`: one character other than a slash.
    One,
    /// `*`: any run of characters without a slash.
    Star,
    /// `**`: any run of characters.
    Across,
    /// `**/`: the empty text, or any run of characters with a final slash.
    Folders,
    /// `[…]`: one character within the ranges, or outside of the ranges if negated.
    Class {
        not: bool,
        ranges: Vec<(u8, u8)>,
    },
}

impl Glob {
    /// Parses a glob.
    pub fn parse(glob: &str) -> Result<Glob, GlobError> {
        if glob.is_empty() {
            return Err(GlobError {
                at: 0,
                what: "the glob is empty and matches no path",
            });
        }
        let mut parser = Parser {
            input: glob.as_bytes(),
            at: 0,
            whole_path: false,
        };
        let mut alternatives = parser.sequence(0)?;
        if parser.whole_path {
            // Paths are matched without the initial slash, whether or not the glob has an initial slash.
            for tokens in &mut alternatives {
                if tokens.first() == Some(&Token::Byte(b'/')) {
                    tokens.remove(0);
                }
            }
        }
        Ok(Glob {
            alternatives,
            whole_path: parser.whole_path,
        })
    }

    /// Returns true if the glob matches the path (below the root, with or without the initial slash).
    pub fn matches(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let text = if self.whole_path {
            path
        } else {
            path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
        };
        self.alternatives.iter().any(|tokens| matches(tokens, text))
    }
}

struct Parser<'a> {
    input: &'a [u8],
    at: usize,
    whole_path: bool,
}

impl Parser<'_> {
    /// Parses up to the end, or inside braces up to `,` or `}`.
    fn sequence(&mut self, depth: usize) -> Result<Vec<Vec<Token>>, GlobError> {
        let mut out = vec![Vec::new()];
        while let Some(&byte) = self.input.get(self.at) {
            match byte {
                b',' | b'}' if depth > 0 => break,
                b'}' => return Err(self.wrong("a closing brace without an opening brace")),
                b'{' => {
                    let choices = self.braces(depth + 1)?;
                    if out.len() * choices.len() > GLOB_ALTERNATIVES_MAX {
                        return Err(self.wrong("the braces expand to too many alternatives"));
                    }
                    out = product(&out, &choices);
                }
                _ => {
                    let token = self.token(byte)?;
                    out.iter_mut().for_each(|tokens| tokens.push(token.clone()));
                }
            }
        }
        Ok(out)
    }

    fn braces(&mut self, depth: usize) -> Result<Vec<Vec<Token>>, GlobError> {
        let open = self.at;
        if depth > 8 {
            return Err(self.wrong("the braces are nested too deeply"));
        }
        let mut choices = Vec::new();
        loop {
            self.at += 1;
            choices.extend(self.sequence(depth)?);
            match self.input.get(self.at) {
                Some(b',') => {}
                Some(_) => {
                    self.at += 1;
                    return Ok(choices);
                }
                None => {
                    return Err(GlobError {
                        at: open,
                        what: "an opening brace without a closing brace",
                    });
                }
            }
        }
    }

    fn token(&mut self, byte: u8) -> Result<Token, GlobError> {
        self.at += 1;
        Ok(match byte {
            b'?' => Token::One,
            b'[' => return self.class(),
            b'*' if self.eat(b'*') => {
                self.whole_path = true;
                if self.eat(b'/') {
                    Token::Folders
                } else {
                    Token::Across
                }
            }
            b'*' => Token::Star,
            b'\\' => match self.input.get(self.at) {
                Some(&escaped) => {
                    self.at += 1;
                    Token::Byte(escaped)
                }
                None => {
                    self.at -= 1;
                    return Err(self.wrong("a backslash at the end of the glob"));
                }
            },
            b'/' => {
                self.whole_path = true;
                Token::Byte(b'/')
            }
            other => Token::Byte(other),
        })
    }

    fn class(&mut self) -> Result<Token, GlobError> {
        let open = self.at - 1;
        let unclosed = GlobError {
            at: open,
            what: "an opening bracket without a closing bracket",
        };
        let not = self.eat(b'!') || self.eat(b'^');
        let mut ranges = Vec::new();
        loop {
            let first = *self.input.get(self.at).ok_or(unclosed)?;
            if first == b']' && !ranges.is_empty() {
                self.at += 1;
                return Ok(Token::Class { not, ranges });
            }
            if !first.is_ascii() || first == b'/' {
                return Err(
                    self.wrong("a class may only contain ASCII characters other than the slash")
                );
            }
            self.at += 1;
            let dash = self.input.get(self.at) == Some(&b'-');
            match self.input.get(self.at + 1) {
                Some(&last) if dash && last != b']' => {
                    if last < first || !last.is_ascii() {
                        self.at -= 1;
                        return Err(self.wrong("a range with its bounds in descending order"));
                    }
                    self.at += 2;
                    ranges.push((first, last));
                }
                _ => ranges.push((first, first)),
            }
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.input.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn wrong(&self, what: &'static str) -> GlobError {
        GlobError { at: self.at, what }
    }
}

fn product(heads: &[Vec<Token>], tails: &[Vec<Token>]) -> Vec<Vec<Token>> {
    heads
        .iter()
        .flat_map(|head| tails.iter().map(move |tail| [&head[..], tail].concat()))
        .collect()
}

/// Matches without recursion. On a mismatch, the last `*` takes one more character; if the next character
/// is a slash, the last `**` takes more instead. Earlier wildcards need no second attempt.
fn matches(tokens: &[Token], text: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut across: Option<(usize, usize, bool)> = None;
    loop {
        match tokens.get(token) {
            Some(Token::Star) => {
                token += 1;
                star = Some((token, at));
                continue;
            }
            Some(kind @ (Token::Across | Token::Folders)) => {
                token += 1;
                across = Some((token, at, *kind == Token::Folders));
                star = None;
                continue;
            }
            Some(single) => {
                if let Some(taken) = takes(single, &text[at..]) {
                    token += 1;
                    at += taken;
                    continue;
                }
            }
            None if at == text.len() => return true,
            None => {}
        }
        if let Some((back, from)) = star
            && text.get(from).is_some_and(|byte| *byte != b'/')
        {
            star = Some((back, from + 1));
            (token, at) = (back, from + 1);
            continue;
        }
        let Some((back, from, to_slash)) = across else {
            return false;
        };
        let step = if to_slash {
            text[from..]
                .iter()
                .position(|byte| *byte == b'/')
                .map(|slash| slash + 1)
        } else {
            (from < text.len()).then_some(1)
        };
        let Some(step) = step else { return false };
        across = Some((back, from + step, to_slash));
        star = None;
        (token, at) = (back, from + step);
    }
}

/// Returns the number of bytes that a token for one character matches at the start of `text`.
fn takes(token: &Token, text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    match token {
        Token::Byte(byte) => (*byte == first).then_some(1),
        Token::One if first == b'/' => None,
        // The continuation bytes of a UTF-8 character belong to the first byte.
        Token::One => Some(
            1 + text[1..]
                .iter()
                .take(3)
                .take_while(|byte| **byte & 0xc0 == 0x80)
                .count(),
        ),
        Token::Class { not, ranges } => {
            let inside = ranges
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&first));
            (inside != *not && first != b'/').then_some(1)
        }
        Token::Star | Token::Across | Token::Folders => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths() {
        for (glob, yes, no) in [
            ("*", &["a", "a/b.html", ""][..], &[][..]),
            (
                "*.html",
                &["a.html", "/a/b/c.html", ".html"],
                &["a.htm", "a.html/x"],
            ),
            (
                "*.{ico,png,j{s,pg}}",
                &["a.ico", "x/y.png", "a.js", "a.jpg"],
                &["a.j", "a.svg"],
            ),
            ("{,a,ab}c", &["c", "ac", "abc"], &["bc"]),
            (
                "/a/*.js",
                &["a/x.js", "/a/x.js"],
                &["a/b/x.js", "x.js", "b/a/x.js"],
            ),
            (
                "a/**/b",
                &["a/b", "a/x/b", "a/x/y/b"],
                &["ab", "a/xb", "a/b/c"],
            ),
            (
                "assets/**",
                &["assets/a", "assets/a/b", "assets/"],
                &["assets", "x/assets/a"],
            ),
            (
                "**/x*y/*.c",
                &["xy/a.c", "a/xzy/b.c", "a/b/xx1y/.c"],
                &["xy/b/a.c", "x/y/a.c"],
            ),
            ("a?c", &["abc", "a\u{e9}c", "a\u{1f41c}c"], &["ac", "abbc"]),
            ("a?c/d", &["abc/d"], &["a/c/d"]),
            ("[a-c]x[!0-9]", &["axb", "cx-"], &["dxb", "ax1"]),
            ("\\*a", &["*a"], &["xa"]),
            ("*a*b*c", &["abc", "xaybzc", "aabbcc"], &["acb", "ab"]),
        ] {
            let parsed = Glob::parse(glob).expect(glob);
            for path in yes {
                assert!(
                    parsed.matches(path.as_bytes()),
                    "{glob} should match {path}"
                );
            }
            for path in no {
                assert!(
                    !parsed.matches(path.as_bytes()),
                    "{glob} should not match {path}"
                );
            }
        }
    }

    #[test]
    fn syntax_errors_have_a_position() {
        for (glob, at) in [
            ("", 0),
            ("a{b", 1),
            ("a}b", 1),
            ("x[ab", 1),
            ("[z-a]", 1),
            ("ab\\", 2),
        ] {
            assert_eq!(
                Glob::parse(glob).map_err(|error| error.at),
                Err(at),
                "{glob}"
            );
        }
        assert!(Glob::parse("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}").is_err());
    }

    #[test]
    fn a_glob_with_many_wildcards_is_matched_in_bounded_time() {
        let glob = Glob::parse("**a*a*a*a*a*a**a*a*a*a*ab").expect("valid");
        assert!(!glob.matches(&[b'a'; 4096]));
    }
}
