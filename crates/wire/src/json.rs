//! JSON (RFC 8259), as far as the server's own requests to APIs need: parsing of whole values, and quoting
//! of text.
//!
//! Numbers keep their spelling. The server reads counts from JSON and computes nothing.

use std::fmt::Write as _;

use crate::limits::JSON_DEPTH_MAX;

/// JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// Number in its original spelling.
    Number(String),
    /// String with its escapes resolved.
    Text(String),
    /// `[…]`
    List(Vec<Json>),
    /// `{…}`, in the original order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a single value without trailing content. `None` for malformed JSON, for text other than
    /// UTF-8, or for nesting deeper than [`JSON_DEPTH_MAX`].
    pub fn parse(bytes: &[u8]) -> Option<Json> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut reader = JsonReader { rest: text };
        let value = reader.value(JSON_DEPTH_MAX)?;
        reader.space();
        reader.rest.is_empty().then_some(value)
    }

    /// Returns the member with this name; `None` without a member, or if the value is no object.
    pub fn field(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the text of the member with this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.field(name)? {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the whole number of the member with this name.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.field(name)? {
            Json::Number(number) => number.parse().ok(),
            _ => None,
        }
    }

    /// Returns the values of the list with this name; empty without a list.
    pub fn list(&self, name: &str) -> &[Json] {
        match self.field(name) {
            Some(Json::List(values)) => values,
            _ => &[],
        }
    }
}

/// Quotes text as a JSON string (RFC 8259 §7).
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

struct JsonReader<'t> {
    rest: &'t str,
}

impl JsonReader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    /// Consumes `word` if the input begins with `word`.
    fn take(&mut self, word: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        self.space();
        match self.rest.bytes().next()? {
            b'"' => self.string().map(Json::Text),
            b'{' => self.object(depth.checked_sub(1)?),
            b'[' => self.array(depth.checked_sub(1)?),
            b'n' => self.take("null").map(|()| Json::Null),
            b't' => self.take("true").map(|()| Json::Bool(true)),
            b'f' => self.take("false").map(|()| Json::Bool(false)),
            _ => self.number().map(Json::Number),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.take("{")?;
        let mut fields = Vec::new();
        self.space();
        if self.take("}").is_some() {
            return Some(Json::Object(fields));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            self.take(":")?;
            fields.push((name, self.value(depth)?));
            self.space();
            if self.take(",").is_none() {
                self.take("}")?;
                return Some(Json::Object(fields));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.take("[")?;
        let mut values = Vec::new();
        self.space();
        if self.take("]").is_some() {
            return Some(Json::List(values));
        }
        loop {
            values.push(self.value(depth)?);
            self.space();
            if self.take(",").is_none() {
                self.take("]")?;
                return Some(Json::List(values));
            }
        }
    }

    /// Parses a number (RFC 8259 §6).
    fn number(&mut self) -> Option<String> {
        let start = self.rest;
        let _ = self.take("-");
        if self.take("0").is_none() {
            self.digits()?;
        }
        if self.take(".").is_some() {
            self.digits()?;
        }
        if self.take("e").or_else(|| self.take("E")).is_some() {
            let _ = self.take("+").or_else(|| self.take("-"));
            self.digits()?;
        }
        Some(start[..start.len() - self.rest.len()].to_owned())
    }

    fn digits(&mut self) -> Option<()> {
        let rest = self.rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let has_digits = rest.len() < self.rest.len();
        self.rest = rest;
        has_digits.then_some(())
    }

    fn string(&mut self) -> Option<String> {
        self.take("\"")?;
        let mut out = String::new();
        loop {
            let end = self.rest.find(['"', '\\'])?;
            let (plain, rest) = self.rest.split_at(end);
            if plain.bytes().any(|byte| byte < b' ') {
                return None;
            }
            out.push_str(plain);
            self.rest = rest;
            if self.take("\"").is_some() {
                return Some(out);
            }
            self.take("\\")?;
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.unit()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                self.take("\\u")?;
                let second = self.unit()?.checked_sub(0xdc00).filter(|it| *it < 0x400)?;
                return char::from_u32(0x10000 + ((first - 0xd800) << 10 | second));
            }
            _ => return None,
        })
    }

    /// Parses four hexadecimal digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.rest.get(..4)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<Json> {
        Json::parse(text.as_bytes())
    }

    #[test]
    fn values_of_every_kind_are_parsed() {
        let json = read(
            " { \"a\" : [1, -2.5e+3, true, false, null], \"b\":{\"c\":\"x\\n\\u00e9\\ud83d\\ude00\\/\"},\
             \"n\": 42, \"empty\": [ ], \"none\": { } } ",
        )
        .unwrap();
        assert_eq!(json.list("a").len(), 5);
        assert_eq!(json.list("a")[1], Json::Number("-2.5e+3".to_owned()));
        assert_eq!(json.field("b").unwrap().text("c"), Some("x\né😀/"));
        assert_eq!(json.number("n"), Some(42));
        assert_eq!(json.list("empty"), []);
        assert_eq!(json.text("n"), None);
        assert_eq!(json.field("missing"), None);
    }

    #[test]
    fn malformed_json_is_refused() {
        for text in [
            "",
            "{",
            "}",
            "{\"a\"}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "01",
            "1.",
            "-",
            "+1",
            "1e",
            "nul",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\n\"",
            "'a'",
            "1 1",
            "{a:1}",
            "\u{feff}1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Json::parse(b"\"\xff\""), None);
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(&deep(JSON_DEPTH_MAX)).is_some());
        assert_eq!(read(&deep(JSON_DEPTH_MAX + 1)), None);
        assert_eq!(read(&"[".repeat(100_000)), None);
    }

    proptest! {
        #[test]
        fn quoted_text_is_parsed_back(text in any::<String>()) {
            prop_assert_eq!(read(&quoted(&text)), Some(Json::Text(text)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Json::parse(&bytes);
        }
    }
}
