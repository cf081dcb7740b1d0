//! Colours of comments, strings and keywords in the page of a file, by the ending of the name.
//!
//! The lexer knows a line and whether the line begins within a comment or a string. A construct that the lexer does not
//! know gets a wrong colour and never a wrong text.

use crate::git::browse::render::html::Html;
use crate::git::limits::GIT_LINE_BYTES_MAX;

/// Lexical rules of a language.
struct Grammar {
    /// Endings of file names, or whole names, each between spaces.
    names: &'static str,
    /// Beginnings of a comment up to the end of the line.
    comments: &'static [&'static str],
    /// Beginning and end of a comment over several lines.
    block: Option<(&'static str, &'static str)>,
    /// Delimiters of strings within a line.
    quotes: &'static [u8],
    /// Delimiters of strings over several lines.
    long_quotes: &'static [&'static str],
    /// Keywords, each between spaces.
    keywords: &'static str,
}

const C_BLOCK: Option<(&str, &str)> = Some(("/*", "*/"));

static GRAMMARS: [Grammar; 11] = [
    Grammar {
        names: " rs ",
        comments: &["//"],
        block: C_BLOCK,
        quotes: b"\"",
        long_quotes: &[],
        keywords: " as async await break const continue crate dyn else enum extern false fn for if impl in let loop \
                   match mod move mut pub ref return self Self static struct super trait true type unsafe use where \
                   while ",
    },
    Grammar {
        names: " c h cc cpp cxx hh hpp ino ",
        comments: &["//"],
        block: C_BLOCK,
        quotes: b"\"'",
        long_quotes: &[],
        keywords: " auto bool break case catch char class const constexpr continue default delete do double else enum \
                   extern false float for goto if inline int long namespace new nullptr operator private protected \
                   public return short signed sizeof static struct switch template this throw true try typedef union \
                   unsigned using virtual void volatile while ",
    },
    Grammar {
        names: " js mjs cjs jsx ts tsx ",
        comments: &["//"],
        block: C_BLOCK,
        quotes: b"\"'",
        long_quotes: &["`"],
        keywords: " async await break case catch class const continue default delete do else enum export extends false \
                   finally for from function if implements import in instanceof interface let new null of return \
                   static super switch this throw true try type typeof undefined var void while yield ",
    },
    Grammar {
        names: " go ",
        comments: &["//"],
        block: C_BLOCK,
        quotes: b"\"'",
        long_quotes: &["`"],
        keywords: " break case chan const continue default defer else fallthrough false for func go goto if import \
                   interface map nil package range return select struct switch true type var ",
    },
    Grammar {
        names: " java kt cs swift dart scala php ",
        comments: &["//"],
        block: C_BLOCK,
        quotes: b"\"'",
        long_quotes: &[],
        keywords: " abstract as async await boolean break case catch char class const continue default do double else \
                   enum extends false final finally float for foreach fun func function guard if implements import in \
                   int interface internal is let long namespace new nil null object override package private \
                   protected public return static struct super switch this throw throws true try use using val var \
                   void when while ",
    },
    Grammar {
        names: " py pyi ",
        comments: &["#"],
        block: None,
        quotes: b"\"'",
        long_quotes: &["\"\"\"", "'''"],
        keywords: " and as assert async await break class continue def del elif else except False finally for from \
                   global if import in is lambda None nonlocal not or pass raise return True try while with yield ",
    },
    Grammar {
        names: " sh bash zsh ",
        comments: &["#"],
        block: None,
        quotes: b"\"'",
        long_quotes: &[],
        keywords: " case do done elif else esac exit export fi for function if in local return set shift then until \
                   while ",
    },
    Grammar {
        names: " rb pl pm toml yaml yml ini conf cfg cmake mk Makefile Dockerfile ",
        comments: &["#"],
        block: None,
        quotes: b"\"'",
        long_quotes: &[],
        keywords: " and begin class def do else elsif end ensure false foreach if module my nil not or require rescue \
                   return self sub then true undef unless use while yield ",
    },
    Grammar {
        names: " sql lua hs elm ",
        comments: &["--"],
        block: None,
        quotes: b"\"'",
        long_quotes: &[],
        keywords: " and as create delete do else elseif end false for from function if in insert into join local nil \
                   not null or order by primary key repeat return select set table then true until update values where \
                   while SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN ON AND OR NOT NULL VALUES SET \
                   ORDER BY GROUP AS PRIMARY KEY ",
    },
    Grammar {
        names: " css scss json ",
        comments: &[],
        block: C_BLOCK,
        quotes: b"\"'",
        long_quotes: &[],
        keywords: " true false null ",
    },
    Grammar {
        names: " html htm xml svg ",
        comments: &[],
        block: Some(("<!--", "-->")),
        quotes: b"",
        long_quotes: &[],
        keywords: "",
    },
];

/// Kind of a piece of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenKind {
    Plain,
    Comment,
    Text,
    Keyword,
}

/// Lexer of a file.
pub(crate) struct Highlighter {
    grammar: Option<&'static Grammar>,
    /// End of the comment or string within which the next line begins.
    open: Option<(TokenKind, &'static str)>,
}

impl Highlighter {
    /// Returns the lexer for a file. A file of an unknown language has no colours.
    pub(crate) fn of(path: &[u8]) -> Highlighter {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let ending = name.rsplit(|byte| *byte == b'.').next().unwrap_or(name);
        let grammar = std::str::from_utf8(ending).ok().and_then(|ending| {
            let mut all = GRAMMARS.iter();
            all.find(|grammar| has_word(grammar.names, ending))
        });
        Highlighter {
            grammar,
            open: None,
        }
    }

    /// Appends a line of the file; a long line is cut.
    pub(crate) fn push(&mut self, line: &[u8], page: &mut Html) {
        let Some(grammar) = self.grammar else {
            page.line(line);
            return;
        };
        let shown = &line[..line.len().min(GIT_LINE_BYTES_MAX)];
        let mut at = 0;
        while at < shown.len() {
            let (kind, length) = self.token(grammar, shown, at);
            let text = &shown[at..at + length];
            match kind {
                TokenKind::Plain => page.text(text),
                TokenKind::Comment => page.markup("<i class=c>").text(text).markup("</i>"),
                TokenKind::Text => page.markup("<i class=s>").text(text).markup("</i>"),
                TokenKind::Keyword => page.markup("<i class=k>").text(text).markup("</i>"),
            };
            at += length;
        }
        if shown.len() < line.len() {
            page.markup(" <i class=soft>…</i>");
        }
    }

    /// Returns the kind and the length of the token at `at`; the length is at least 1.
    fn token(&mut self, grammar: &Grammar, line: &[u8], at: usize) -> (TokenKind, usize) {
        let rest = &line[at..];
        if let Some((kind, end)) = self.open {
            return (kind, self.length_of_open(rest, 0, kind, end));
        }
        let is_after_space = at == 0 || line[at - 1].is_ascii_whitespace();
        for comment in grammar.comments {
            // A `#` within a word is no comment: `$#`, `a#b`.
            if rest.starts_with(comment.as_bytes()) && (is_after_space || *comment != "#") {
                return (TokenKind::Comment, rest.len());
            }
        }
        let blocks = grammar
            .block
            .iter()
            .map(|(begin, end)| (TokenKind::Comment, *begin, *end));
        let quotes = grammar
            .long_quotes
            .iter()
            .map(|it| (TokenKind::Text, *it, *it));
        for (kind, begin, end) in blocks.chain(quotes) {
            if rest.starts_with(begin.as_bytes()) {
                self.open = Some((kind, end));
                return (kind, self.length_of_open(rest, begin.len(), kind, end));
            }
        }
        if grammar.quotes.contains(&rest[0]) {
            return match quoted_length(rest) {
                Some(length) => (TokenKind::Text, length),
                None => (TokenKind::Plain, 1),
            };
        }
        // A character of Rust, which is no lifetime.
        for character in [&b"'\"'"[..], b"'\\\"'"] {
            if rest.starts_with(character) {
                return (TokenKind::Text, character.len());
            }
        }
        let word = rest.iter().take_while(|byte| is_word_byte(**byte)).count();
        if word == 0 {
            return (TokenKind::Plain, 1);
        }
        let text = std::str::from_utf8(&rest[..word]).unwrap_or_default();
        if has_word(grammar.keywords, text) {
            (TokenKind::Keyword, word)
        } else {
            (TokenKind::Plain, word)
        }
    }

    /// Returns the length of an open comment or string up to its end, or to the end of the line.
    fn length_of_open(&mut self, rest: &[u8], begin: usize, kind: TokenKind, end: &str) -> usize {
        let mut at = begin;
        while at < rest.len() {
            if rest[at..].starts_with(end.as_bytes()) {
                self.open = None;
                return at + end.len();
            }
            // A backslash before a quote keeps the string open.
            let is_escape = kind == TokenKind::Text && rest[at] == b'\\';
            at += if is_escape { 2 } else { 1 };
        }
        rest.len()
    }
}

/// Returns the length of a string within a line, with its quotes; `None` without an end on the line.
fn quoted_length(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == rest[0] => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// Bytes beyond ASCII belong to words, so that no character is divided.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Returns true if the list has the word. Each word of the list is between spaces.
fn has_word(list: &str, word: &str) -> bool {
    !word.is_empty()
        && list
            .match_indices(word)
            .any(|(at, _)| list[..at].ends_with(' ') && list[at + word.len()..].starts_with(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(path: &str, text: &[u8]) -> String {
        let mut lexer = Highlighter::of(path.as_bytes());
        let mut page = Html::default();
        for line in text.split(|byte| *byte == b'\n') {
            lexer.push(line, &mut page);
            page.markup("\n");
        }
        page.into_string().trim_end_matches('\n').to_owned()
    }

    #[test]
    fn comments_strings_and_keywords_have_colours() {
        for (path, text, expected) in [
            (
                "a/b.rs",
                "let a = \"x // \\\" y\"; // <b>",
                "<i class=k>let</i> a = <i class=s>&quot;x // \\&quot; y&quot;</i>; <i class=c>// &lt;b&gt;</i>",
            ),
            (
                "b.rs",
                "fn f<'a>(b: &'a u8) { '\"' }",
                "<i class=k>fn</i> f&lt;&#39;a&gt;(b: &amp;&#39;a u8) { <i class=s>&#39;&quot;&#39;</i> }",
            ),
            (
                "b.c",
                "/* a\nb */ int integer;",
                "<i class=c>/* a</i>\n<i class=c>b */</i> <i class=k>int</i> integer;",
            ),
            (
                "b.py",
                "\"\"\"a\n'b' \"\"\" + x#y # z",
                "<i class=s>&quot;&quot;&quot;a</i>\n<i class=s>&#39;b&#39; &quot;&quot;&quot;</i> + x#y <i class=c># z</i>",
            ),
            (
                "b.sh",
                "if [ $# = 1 ]; then echo it\\'s; fi",
                "<i class=k>if</i> [ $# = 1 ]; <i class=k>then</i> echo it\\&#39;s; <i class=k>fi</i>",
            ),
            (
                "b.html",
                "<p> don't <!-- a -->",
                "&lt;p&gt; don&#39;t <i class=c>&lt;!-- a --&gt;</i>",
            ),
            ("Makefile", "# a", "<i class=c># a</i>"),
            ("b.txt", "if \"a\" // b", "if &quot;a&quot; // b"),
            ("b.c", "don't", "don&#39;t"),
            ("b.", "if", "if"),
            ("rs", "", ""),
        ] {
            assert_eq!(shown(path, text.as_bytes()), expected, "{path}: {text}");
        }
    }

    proptest! {
        #[test]
        fn the_text_stays_as_it_is(
            text in "[\\x20-\\x7e\u{e9}\u{1f41c}\"'`/*#<>!\\\\\n-]{0,300}",
            nth in 0..GRAMMARS.len(),
        ) {
            let ending = GRAMMARS[nth].names.split_whitespace().next().unwrap();
            let coloured = shown(&format!("a.{ending}"), text.as_bytes());
            let mut plain = coloured.replace("</i>", "");
            for class in ["<i class=c>", "<i class=s>", "<i class=k>"] {
                plain = plain.replace(class, "");
            }
            prop_assert_eq!(plain, shown("a.txt", text.as_bytes()));
        }

        #[test]
        fn no_bytes_break_the_lexer(bytes in proptest::collection::vec(any::<u8>(), 0..200), nth in 0..GRAMMARS.len()) {
            let ending = GRAMMARS[nth].names.split_whitespace().next().unwrap();
            shown(&format!("a.{ending}"), &bytes);
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let line = "a".repeat(GIT_LINE_BYTES_MAX) + "b";
        let text = shown("a.rs", line.as_bytes());
        assert!(text.ends_with("a <i class=soft>…</i>"), "{}", text.len());
    }
}
