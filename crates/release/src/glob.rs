//! Glob patterns that select files for the rules of operators and of publishers.
//!
//! `*` and `?` match within one name, `**` matches across folders, `{a,b}` matches either alternative,
//! `[a-z]` matches a character of the class, and `\` escapes the next character. A glob without `/` is
//! matched against the file name at any depth, a glob with `/` against the whole path below the root.
//!
//! A publisher chooses the globs of a release, and the server matches each glob with the path of each file. Therefore
//! the cost of a match grows with the length of the path times the length of the glob, and never faster: an automaton
//! follows all possible matches at once, a machine word of states at a time, and nothing is tried twice. Ordinary globs
//! need no automaton, since the literal beginning and end of a glob and one wildcard between the two decide.

mod automaton;
mod parser;

#[cfg(test)]
mod tests;

use crate::limits::{
    GLOB_ALTERNATIVES_MAX, GLOB_BYTES_MAX, RELEASE_GLOB_ALTERNATIVES_MAX, RELEASE_GLOB_BYTES_MAX,
};
use automaton::Automaton;
use parser::{Node, Parser, Token};
use wire::request_target::is_below;

pub use parser::GlobError;

/// Parsed glob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob {
    /// Prefix of the paths in whole components, without a slash at either end.
    below: Box<[u8]>,
    whole_path: bool,
    /// Bytes that each match begins with.
    head: Box<[u8]>,
    middle: Middle,
    /// Bytes that each match ends with.
    tail: Box<[u8]>,
}

/// Part of a glob between the literal beginning and the literal end.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Middle {
    Empty,
    /// `*`
    Star,
    /// `**`
    Across,
    /// `**/`
    Folders,
    /// Anything else.
    Automaton(Box<Automaton>),
}

/// Bounds of a glob, with the reasons for a refusal.
struct Bounds {
    bytes_max: usize,
    too_long: &'static str,
    alternatives_max: usize,
    too_many: &'static str,
}

/// Bounds of the operator's globs.
const OPERATOR: Bounds = Bounds {
    bytes_max: GLOB_BYTES_MAX,
    too_long: "the glob is longer than 1,024 bytes",
    alternatives_max: GLOB_ALTERNATIVES_MAX,
    too_many: "the braces expand to too many alternatives, more than 64",
};

/// Bounds of the globs of a release.
const RELEASE: Bounds = Bounds {
    bytes_max: RELEASE_GLOB_BYTES_MAX,
    too_long: "the glob is longer than 256 bytes",
    alternatives_max: RELEASE_GLOB_ALTERNATIVES_MAX,
    too_many: "the braces of the glob expand to more than 8 alternatives",
};

impl Glob {
    /// Parses a glob of the operator. A glob that ends with a slash stands for all paths below the folder, since no file
    /// has such a path.
    pub fn parse(glob: &str) -> Result<Glob, GlobError> {
        if glob.ends_with('/') {
            Glob::parse_within(&format!("{glob}**"), &OPERATOR)
        } else {
            Glob::parse_within(glob, &OPERATOR)
        }
    }

    /// Parses a glob of a release, with the narrower bounds for publishers.
    pub fn parse_published(glob: &[u8]) -> Result<Glob, GlobError> {
        match std::str::from_utf8(glob) {
            Ok(glob) => Glob::parse_within(glob, &RELEASE),
            Err(error) => Err(GlobError {
                at: error.valid_up_to(),
                what: "the glob is no UTF-8",
            }),
        }
    }

    fn parse_within(glob: &str, bounds: &Bounds) -> Result<Glob, GlobError> {
        let refuse = |what| Err(GlobError { at: 0, what });
        if glob.is_empty() {
            return refuse("the glob is empty and matches no path");
        }
        if glob.len() > bounds.bytes_max {
            return refuse(bounds.too_long);
        }
        let mut parser = Parser::new(glob, bounds.alternatives_max, bounds.too_many);
        let nodes = parser.parse()?;
        Ok(Glob::new(&nodes, parser.whole_path))
    }

    fn new(nodes: &[Node], whole_path: bool) -> Glob {
        let literal = |node: &Node| match node {
            Node::Token(Token::Byte(byte)) => Some(*byte),
            _ => None,
        };
        let head: Vec<u8> = nodes.iter().map_while(literal).collect();
        let rest = &nodes[head.len()..];
        let tail = rest.iter().rev().map_while(literal).count();
        let (middle, tail) = rest.split_at(rest.len() - tail);
        let middle = match middle {
            [] => Middle::Empty,
            [Node::Token(Token::Star)] => Middle::Star,
            [Node::Token(Token::Across)] => Middle::Across,
            [Node::Token(Token::Folders)] => Middle::Folders,
            nodes => Middle::Automaton(Box::new(Automaton::new(
                nodes,
                whole_path && head.is_empty(),
            ))),
        };
        // Paths are matched without the initial slash, whether or not the glob has an initial slash.
        let head = match head.strip_prefix(b"/") {
            Some(rest) if whole_path => rest.into(),
            _ => head.into(),
        };
        Glob {
            below: Box::default(),
            whole_path,
            head,
            middle,
            tail: tail.iter().filter_map(literal).collect(),
        }
    }

    /// Returns the glob for the paths below a prefix alone. The prefix has no slash at either end.
    pub fn within(self, below: &[u8]) -> Glob {
        Glob {
            below: below.into(),
            ..self
        }
    }

    /// Returns true if the glob matches the path (below the root, with or without the initial slash).
    pub fn matches(&self, path: &[u8]) -> bool {
        self.matches_counted(path, &mut 0)
    }

    /// Returns true if the glob matches the path, like [`Glob::matches`]. Adds the steps of the match to `steps`: a step
    /// changes a machine word of states, or compares a literal text.
    pub fn matches_counted(&self, path: &[u8], steps: &mut u64) -> bool {
        *steps += 1;
        let path = path.strip_prefix(b"/").unwrap_or(path);
        if !self.below.is_empty() && !is_below(path, &self.below) {
            return false;
        }
        let text = if self.whole_path {
            path
        } else {
            path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
        };
        let middle = text.strip_prefix(&*self.head);
        let Some(middle) = middle.and_then(|rest| rest.strip_suffix(&*self.tail)) else {
            return false;
        };
        match &self.middle {
            Middle::Empty => middle.is_empty(),
            Middle::Star => !middle.contains(&b'/'),
            Middle::Across => true,
            Middle::Folders => middle.last().is_none_or(|byte| *byte == b'/'),
            Middle::Automaton(automaton) => automaton.matches(middle, steps),
        }
    }

    /// Returns the only path or name that the glob matches; None for a glob with wildcards or braces. The first part is
    /// true for a path below the root, without initial slash.
    pub fn literal(&self) -> Option<(bool, &[u8])> {
        let is_literal = matches!(self.middle, Middle::Empty) && self.below.is_empty();
        is_literal.then_some((self.whole_path, &self.head))
    }

    /// Returns the bytes of memory of the glob beside the value itself.
    pub fn memory_bytes(&self) -> usize {
        let middle = match &self.middle {
            Middle::Automaton(automaton) => automaton.memory_bytes(),
            _ => 0,
        };
        self.below.len() + self.head.len() + self.tail.len() + middle
    }
}
