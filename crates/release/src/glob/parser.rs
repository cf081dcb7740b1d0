//! Parser of globs.

use std::fmt;

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

/// Part of a parsed glob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Token(Token),
    /// `{…}` with at least two branches.
    Group(Vec<Vec<Node>>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
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

impl Token {
    /// Returns true if a class contains the byte.
    pub(super) fn class_contains(not: bool, ranges: &[(u8, u8)], byte: u8) -> bool {
        let mut ranges = ranges.iter();
        let inside = ranges.any(|(low, high)| (*low..=*high).contains(&byte));
        inside != not && byte != b'/'
    }
}

/// Parser of one glob.
pub(super) struct Parser<'a> {
    input: &'a [u8],
    at: usize,
    /// True after a slash or `**`: the glob is matched against the whole path.
    pub(super) whole_path: bool,
    alternatives_max: usize,
    too_many: &'static str,
}

/// Nesting of braces. Each level is a call of the parser, so the stack bounds the depth.
const DEPTH_MAX: usize = 8;

impl<'a> Parser<'a> {
    pub(super) fn new(
        glob: &'a str,
        alternatives_max: usize,
        too_many: &'static str,
    ) -> Parser<'a> {
        Parser {
            input: glob.as_bytes(),
            at: 0,
            whole_path: false,
            alternatives_max,
            too_many,
        }
    }

    pub(super) fn parse(&mut self) -> Result<Vec<Node>, GlobError> {
        self.sequence(0).map(|(nodes, _)| nodes)
    }

    /// Parses up to the end, or inside braces up to `,` or `}`. Returns the nodes, and the number of texts without
    /// braces that stand for the nodes.
    fn sequence(&mut self, depth: usize) -> Result<(Vec<Node>, usize), GlobError> {
        let mut nodes = Vec::new();
        let mut alternatives = 1;
        while let Some(&byte) = self.input.get(self.at) {
            match byte {
                b',' | b'}' if depth > 0 => break,
                b'}' => return Err(self.wrong("a closing brace without an opening brace")),
                b'{' => {
                    let (mut branches, choices) = self.braces(depth + 1)?;
                    alternatives *= choices;
                    if alternatives > self.alternatives_max {
                        return Err(self.wrong(self.too_many));
                    }
                    match (branches.len(), branches.pop()) {
                        (1, Some(only)) => only.into_iter().for_each(|node| push(&mut nodes, node)),
                        (_, last) => {
                            branches.extend(last);
                            nodes.push(Node::Group(branches));
                        }
                    }
                }
                _ => {
                    let token = self.token(byte)?;
                    push(&mut nodes, Node::Token(token));
                }
            }
        }
        Ok((nodes, alternatives))
    }

    fn braces(&mut self, depth: usize) -> Result<(Vec<Vec<Node>>, usize), GlobError> {
        let open = self.at;
        if depth > DEPTH_MAX {
            return Err(self.wrong("the braces are nested too deeply"));
        }
        let mut branches = Vec::new();
        let mut choices = 0;
        loop {
            self.at += 1;
            let (nodes, alternatives) = self.sequence(depth)?;
            branches.push(nodes);
            choices += alternatives;
            match self.input.get(self.at) {
                Some(b',') => {}
                Some(_) => {
                    self.at += 1;
                    return Ok((branches, choices));
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

/// Appends a node. Adjacent wildcards become one wildcard that matches the same texts, so that a long row of wildcards
/// costs no more than one.
fn push(nodes: &mut Vec<Node>, node: Node) {
    let joined = match (nodes.last(), &node) {
        (Some(Node::Token(last)), Node::Token(next)) => joined(last, next),
        _ => None,
    };
    match joined {
        Some(joined) => {
            nodes.pop();
            push(nodes, Node::Token(joined));
        }
        None => nodes.push(node),
    }
}

/// Returns the wildcard that matches the same texts as two adjacent wildcards; None for other tokens.
fn joined(last: &Token, next: &Token) -> Option<Token> {
    match (last, next) {
        (Token::Across, Token::Star | Token::Across | Token::Folders)
        | (Token::Star | Token::Folders, Token::Across)
        // The last name of a path follows folders without a name.
        | (Token::Folders, Token::Star) => Some(Token::Across),
        (Token::Star, Token::Star) => Some(Token::Star),
        (Token::Folders, Token::Folders) => Some(Token::Folders),
        _ => None,
    }
}
