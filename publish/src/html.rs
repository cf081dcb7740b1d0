//! References and identifiers of an HTML page.
//!
//! The reader is a tokenizer for tags, as in the HTML standard (§13.2.5) without its rare states. Scripts, styles and
//! comments are skipped.

use memchr::{memchr_iter, memmem};

/// Reference of a page: the value of `href` or `src`, without surrounding space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// Line of the tag, from 1.
    pub line: usize,
    /// Value with character references decoded.
    pub target: String,
}

/// References and identifiers of a page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Page {
    /// Values of `href` and `src` in their order.
    pub references: Vec<Reference>,
    /// Values of `id`, and of `name` of `a`.
    pub identifiers: Vec<String>,
    /// Value of `href` of the first `base`.
    pub base: Option<String>,
}

impl Page {
    /// Reads a page.
    pub(crate) fn read(text: &[u8]) -> Page {
        let mut page = Page::default();
        let mut reader = TagReader {
            text,
            at: 0,
            line: 1,
        };
        while let Some(tag) = reader.next_tag() {
            page.add(&tag);
            if RAW.contains(&tag.name.as_str()) {
                reader.skip_raw(&tag.name);
            }
        }
        page
    }

    fn add(&mut self, tag: &Tag) {
        // A hint for the browser to open a connection leads to no page.
        let is_connection = tag
            .value("rel")
            .is_some_and(|rel| rel.contains("preconnect") || rel.contains("dns-prefetch"));
        for (name, value) in &tag.attributes {
            match name.as_str() {
                "href" if tag.name == "base" => {
                    self.base.get_or_insert_with(|| value.trim().to_owned());
                }
                "href" | "src" if !is_connection => self.references.push(Reference {
                    line: tag.line,
                    target: value.trim().to_owned(),
                }),
                "id" => self.identifiers.push(value.clone()),
                "name" if tag.name == "a" => self.identifiers.push(value.clone()),
                _ => {}
            }
        }
    }
}

/// Elements with raw text up to their end tag.
const RAW: [&str; 4] = ["script", "style", "textarea", "title"];

/// Start tag.
struct Tag {
    line: usize,
    /// Lower-case name.
    name: String,
    /// Lower-case names and decoded values.
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.attributes.iter();
        all.find(|(its, _)| its == name)
            .map(|(_, value)| &value[..])
    }
}

struct TagReader<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
}

impl TagReader<'_> {
    /// Returns the next start tag.
    fn next_tag(&mut self) -> Option<Tag> {
        loop {
            self.skip_to(b"<")?;
            let rest = &self.text[self.at..];
            if rest.starts_with(b"<!--") {
                self.advance(4);
                self.skip_to(b"-->")?;
                continue;
            }
            self.advance(1);
            match self.text.get(self.at) {
                Some(byte) if byte.is_ascii_alphabetic() => return self.tag(),
                Some(b'!' | b'?' | b'/') => self.skip_to(b">")?,
                _ => {}
            }
        }
    }

    fn tag(&mut self) -> Option<Tag> {
        let line = self.line;
        let name = self.word(|byte| byte.is_ascii_whitespace() || b"/>".contains(&byte));
        let mut tag = Tag {
            line,
            name,
            attributes: Vec::new(),
        };
        loop {
            self.word(|byte| !byte.is_ascii_whitespace() && byte != b'/');
            match self.text.get(self.at)? {
                b'>' => {
                    self.advance(1);
                    return Some(tag);
                }
                _ => {
                    let attribute = self.attribute()?;
                    tag.attributes.push(attribute);
                }
            }
        }
    }

    fn attribute(&mut self) -> Option<(String, String)> {
        let start = self.at;
        let mut name = self.word(|byte| byte.is_ascii_whitespace() || b"/>=".contains(&byte));
        if self.at == start {
            // A tag with an equals sign in place of a name.
            self.advance(1);
            name = "=".to_owned();
        }
        self.word(|byte| !byte.is_ascii_whitespace());
        if self.text.get(self.at)? != &b'=' {
            return Some((name, String::new()));
        }
        self.advance(1);
        self.word(|byte| !byte.is_ascii_whitespace());
        let start = self.at;
        match self.text.get(start)? {
            quote @ (b'"' | b'\'') => {
                self.advance(1);
                self.skip_to(&[*quote])?;
                let value = decode(&self.text[start + 1..self.at]);
                self.advance(1);
                Some((name, value))
            }
            _ => {
                let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'>';
                let rest = &self.text[start..];
                let length = rest.iter().position(is_end).unwrap_or(rest.len());
                self.advance(length);
                Some((name, decode(&rest[..length])))
            }
        }
    }

    /// Takes the bytes before the first byte that fits, in lower case.
    fn word(&mut self, ends: impl Fn(u8) -> bool) -> String {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|byte| ends(*byte));
        let length = length.unwrap_or(rest.len());
        let word = String::from_utf8_lossy(&rest[..length]).to_ascii_lowercase();
        self.advance(length);
        word
    }

    /// Skips the raw text of an element.
    fn skip_raw(&mut self, name: &str) {
        while self.skip_to(b"</").is_some() {
            self.advance(2);
            let rest = &self.text[self.at..];
            let is_end = rest
                .get(..name.len())
                .is_some_and(|end| end.eq_ignore_ascii_case(name.as_bytes()));
            if is_end {
                return;
            }
        }
    }

    /// Moves to the next occurrence of a pattern; None, at the end of the text, without an occurrence.
    fn skip_to(&mut self, pattern: &[u8]) -> Option<()> {
        let rest = &self.text[self.at..];
        let found = memmem::find(rest, pattern);
        self.advance(found.unwrap_or(rest.len()));
        found.map(drop)
    }

    fn advance(&mut self, count: usize) {
        let end = (self.at + count).min(self.text.len());
        let passed = &self.text[self.at..end];
        self.line += memchr_iter(b'\n', passed).count();
        self.at = end;
    }
}

/// Decodes the character references that occur in URLs and identifiers.
fn decode(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    if !text.contains('&') {
        return text.into_owned();
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.split_once(';').map(|(name, _)| &name[1..]);
        match reference.and_then(|name| character(name).map(|it| (name.len() + 2, it))) {
            Some((length, character)) => {
                decoded.push(character);
                rest = &rest[length..];
            }
            None => {
                decoded.push('&');
                rest = &rest[1..];
            }
        }
    }
    decoded + rest
}

fn character(name: &str) -> Option<char> {
    let number = |digits: &str, radix| char::from_u32(u32::from_str_radix(digits, radix).ok()?);
    if let Some(digits) = name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
        return number(digits, 16);
    }
    if let Some(digits) = name.strip_prefix('#') {
        return number(digits, 10);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => '\u{a0}',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        let page = Page::read(text.as_bytes());
        page.references.into_iter().map(|it| it.target).collect()
    }

    #[test]
    fn references_and_identifiers_are_found() {
        let page = Page::read(
            b"<!DOCTYPE html>\n<html><head><base href=/b/><title><a href=no></title>\n\
              <link rel=stylesheet href='a.css'><LINK REL=preconnect HREF=https://x>\n\
              <script src=a.js>if (a<b) '<a href=\"no\">'</script><!-- <a href=no> -->\n\
              <a name=x id = \"y&amp;z\" href=\" p?a=1&amp;b=2#c \">t</a><img src=i.png/><a href>",
        );
        assert_eq!(page.base.as_deref(), Some("/b/"));
        assert_eq!(page.identifiers, ["x", "y&z"]);
        let seen: Vec<(usize, &str)> = page
            .references
            .iter()
            .map(|it| (it.line, it.target.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (3, "a.css"),
                (4, "a.js"),
                (5, "p?a=1&b=2#c"),
                (5, "i.png/"),
                (5, "")
            ]
        );
    }

    #[test]
    fn broken_pages_are_read_without_a_panic() {
        for text in [
            "<",
            "<a",
            "<a ",
            "<a href",
            "<a href=",
            "<a href=\"",
            "<a href=\"x",
            "<!--",
            "<a =",
            "<a / =x>",
            "</",
            "<script>",
            "<a href=x",
            "&",
            "<a href='&#xffffffff;&#x41;&unknown;&'>",
            "a < b <a href=c>",
        ] {
            for end in 0..=text.len() {
                Page::read(&text.as_bytes()[..end]);
            }
        }
        assert_eq!(
            targets("<a href='&#xfffffff;&#x41;&x;&'>"),
            ["&#xfffffff;A&x;&"]
        );
        assert_eq!(targets("a < b <a href=c>"), ["c"]);
    }
}
