//! Tests of globs. The oracle is an earlier matcher, which expands the braces and tries wildcards again and again.

use super::*;
use proptest::prelude::*;

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

/// Returns whether a glob matches a path, and the steps of the match.
fn counted(glob: &Glob, path: &[u8]) -> (bool, u64) {
    let mut steps = 0;
    (glob.matches_counted(path, &mut steps), steps)
}

#[test]
fn the_steps_of_a_match_grow_with_the_path_and_not_with_the_tries() {
    for (text, words) in [
        ("**a*a*a*a*a*a**a*a*a*a*ab".to_owned(), 1),
        (format!("***{}b", "a".repeat(60)), 5),
        (format!("**{}b", "*a".repeat(120)), 5),
        (format!("***{}b{{,c}}{{,c}}{{,c}}", "a".repeat(200)), 5 + 12),
        ("{,*a}{,*a}{,*a}b".to_owned(), 1 + 12),
        ("?".repeat(255) + "*", 5),
    ] {
        let glob = Glob::parse_published(text.as_bytes()).expect(&text);
        for length in [1_024, 4_095] {
            let (matches, steps) = counted(&glob, &vec![b'a'; length]);
            assert_eq!(matches, text.ends_with('*'), "{text}");
            // Braces are followed in at most 10 rounds, and all other globs in 2.
            let rounds = if text.contains('{') { 10 } else { 2 };
            let bound = (length as u64 + 1) * words * rounds + 1;
            assert!(steps <= bound, "{text}: {steps} steps, at most {bound}");
        }
    }
}

#[test]
fn ordinary_globs_compare_texts_alone() {
    for (glob, path) in [
        ("*.html", "a/b/index.html"),
        ("/assets/**", "assets/a/b.css"),
        ("/a/*.js", "a/b.js"),
        ("**/x.css", "a/b/x.css"),
        ("/index.html", "index.html"),
        ("*", "a"),
    ] {
        let glob = Glob::parse(glob).expect(glob);
        assert_eq!(counted(&glob, path.as_bytes()), (true, 1), "{path}");
        assert!(glob.memory_bytes() < 16);
    }
}

#[test]
fn braces_take_no_multiple_of_the_text() {
    let text = format!("{}{}", "{,a}".repeat(6), "x".repeat(900));
    let glob = Glob::parse(&text).expect("a glob of an operator");
    let bytes = glob.memory_bytes();
    assert!(bytes < 8 * text.len(), "{bytes} bytes");
    let path = "a".repeat(6) + &"x".repeat(900);
    assert!(glob.matches(path.as_bytes()));
    assert!(!glob.matches(&path.as_bytes()[..905]));
}

#[test]
fn globs_of_publishers_have_narrow_bounds() {
    let published = |text: &str| Glob::parse_published(text.as_bytes()).map_err(|it| it.what);
    assert!(published(&"a".repeat(256)).is_ok());
    assert_eq!(
        published(&"a".repeat(257)),
        Err("the glob is longer than 256 bytes")
    );
    assert!(published("{a,b,c,d,e,f,g,h}").is_ok());
    for text in ["{a,b,c,d,e,f,g,h,i}", "{a,b}{a,b}{a,b}{a,b}"] {
        assert_eq!(
            published(text),
            Err("the braces of the glob expand to more than 8 alternatives")
        );
    }
    assert!(Glob::parse(&"a".repeat(1_024)).is_ok());
    assert!(Glob::parse(&"a".repeat(1_025)).is_err());
    assert!(Glob::parse_published(b"\xff").is_err());
}

#[test]
fn a_literal_glob_is_known() {
    let literal = |text| {
        let glob = Glob::parse(text).expect("valid");
        let found = glob.literal();
        found.map(|(whole, path)| (whole, String::from_utf8_lossy(path).into_owned()))
    };
    assert_eq!(literal("/a/b"), Some((true, "a/b".to_owned())));
    assert_eq!(literal("a\\*"), Some((false, "a*".to_owned())));
    assert_eq!(literal("{a}"), Some((false, "a".to_owned())));
    assert_eq!(literal("a*"), None);
}

fn short_glob() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => Just("a"),
        4 => Just("b"),
        4 => Just("/"),
        4 => Just("*"),
        2 => Just("**"),
        2 => Just("/**/"),
        2 => Just("?"),
        1 => Just("[ab]"),
        1 => Just("[!a]"),
        3 => Just("{"),
        3 => Just(","),
        3 => Just("}"),
        1 => Just("\u{e9}"),
        1 => Just("\\*"),
    ];
    proptest::collection::vec(part, 1..14).prop_map(|parts| parts.concat())
}

fn short_path() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        6 => Just(&b"a"[..]),
        3 => Just(&b"b"[..]),
        3 => Just(&b"/"[..]),
        1 => Just(&b"*"[..]),
        1 => Just("\u{e9}".as_bytes()),
        1 => Just(&b"\xa9"[..]),
        1 => Just(&b"\xc3"[..]),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn invariants_of_arbitrary_globs(text in "[a*?/{},\\\\\\[\\]!]{0,90}", path in "[a/]{0,300}") {
        let bytes = [text.as_bytes(), b"\0", path.as_bytes()].concat();
        crate::invariants::glob(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn matches_are_those_of_the_matcher_with_tries(
        text in short_glob(),
        paths in proptest::collection::vec(short_path(), 4),
    ) {
        // A final slash has a meaning of its own.
        let glob = Glob::parse_within(&text, &OPERATOR);
        let oracle = oracle::Glob::parse(&text);
        let (Ok(glob), Ok(oracle)) = (&glob, &oracle) else {
            prop_assert_eq!(glob.err(), oracle.err(), "{}", text);
            return Ok(());
        };
        if oracle.has_folders_inside_a_name() {
            return Ok(());
        }
        for path in paths {
            prop_assert_eq!(
                glob.matches(&path),
                oracle.matches(&path),
                "{} and {:?}",
                text,
                String::from_utf8_lossy(&path)
            );
        }
    }
}

mod oracle {
    use super::super::parser::Token;
    use super::GlobError;

    pub(super) struct Glob {
        /// Token sequences with the braces expanded. A path matches if one of the sequences matches.
        alternatives: Vec<Vec<Token>>,
        whole_path: bool,
    }

    impl Glob {
        /// Parses a glob.
        pub(super) fn parse(glob: &str) -> Result<Glob, GlobError> {
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
        pub(super) fn matches(&self, path: &[u8]) -> bool {
            let path = path.strip_prefix(b"/").unwrap_or(path);
            let text = if self.whole_path {
                path
            } else {
                path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
            };
            self.alternatives.iter().any(|tokens| matches(tokens, text))
        }

        /// Returns true if `**/` follows another byte than a slash. The oracle then tries the folders only at the shortest match
        /// of an earlier `*`, and misses other matches.
        pub(super) fn has_folders_inside_a_name(&self) -> bool {
            let inside = |tokens: &Vec<Token>| {
                let mut pairs = tokens.windows(2);
                pairs.any(|pair| pair[1] == Token::Folders && pair[0] != Token::Byte(b'/'))
            };
            self.alternatives.iter().any(inside)
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
                        if out.len() * choices.len() > 64 {
                            return Err(self.wrong(super::super::OPERATOR.too_many));
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
                    return Err(self
                        .wrong("a class may only contain ASCII characters other than the slash"));
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
}

#[test]
fn a_glob_within_a_folder_matches_there_alone() {
    for (glob, below, path, is_match) in [
        ("*.css", "a/b", "a/b/x.css", true),
        ("*.css", "a/b", "/a/b/c/x.css", true),
        ("*", "a/b", "a/b", true),
        ("*.css", "a/b", "a/bc/x.css", false),
        ("*.css", "a/b", "x.css", false),
        ("/a/b/*.css", "a/b", "a/b/x.css", true),
        ("/x.css", "a", "a/x.css", false),
        ("*.css", "", "x.css", true),
    ] {
        let parsed = Glob::parse(glob).expect("a glob").within(below.as_bytes());
        assert_eq!(
            parsed.matches(path.as_bytes()),
            is_match,
            "{glob} {below} {path}"
        );
    }
    let name = Glob::parse("x").expect("a glob");
    assert!(name.literal().is_some() && name.within(b"a").literal().is_none());
}

#[test]
fn a_final_slash_of_the_operator_stands_for_all_paths_below() {
    let matches = |glob: &str, path: &str| {
        let glob = Glob::parse(glob).expect("a glob");
        glob.matches(path.as_bytes())
    };
    for glob in ["/a/b/", "a/b/", "/a/{b,c}/", "/a/*/", "**/b/"] {
        assert!(matches(glob, "a/b/x.html"), "{glob}");
        assert!(matches(glob, "/a/b/c/x.html"), "{glob}");
        assert!(!matches(glob, "a/b"), "{glob}");
        assert_eq!(matches(glob, "a/bc/x.html"), glob == "/a/*/", "{glob}");
    }
    // The manifest of a release has the rules of its version.
    let published = Glob::parse_published(b"/a/").expect("a glob");
    assert!(!published.matches(b"a/x.html"));
}
