//! Entity tags (RFC 9110 §8.8.3) and their lists in If-Match and If-None-Match.

use super::fields::{FieldValueLines, FieldValues};
use crate::byte_search;

/// Entity tag.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ETag<'a> {
    /// The tag has the prefix `W/`.
    pub weak: bool,
    /// Opaque tag with its quotes.
    pub opaque: &'a [u8],
}

impl<'a> ETag<'a> {
    /// Parses a value that consists of a single entity tag (If-Range, or the server's own ETag).
    pub fn parse(value: &'a [u8]) -> Option<ETag<'a>> {
        match ETag::leading(value)? {
            (tag, b"") => Some(tag),
            _ => None,
        }
    }

    /// Returns true if two tags are equal by strong comparison (RFC 9110 §8.8.3.2), for If-Match and
    /// If-Range.
    pub fn strong_eq(&self, other: &ETag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Returns true if two tags are equal by weak comparison (RFC 9110 §8.8.3.2), for If-None-Match.
    pub fn weak_eq(&self, other: &ETag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// Parses the tag at the start of `bytes` and returns the tag and the rest.
    fn leading(bytes: &'a [u8]) -> Option<(ETag<'a>, &'a [u8])> {
        let (weak, quoted) = match bytes.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, bytes),
        };
        let inner = quoted.strip_prefix(b"\"")?;
        let length = inner
            .iter()
            .position(|&byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
        if inner[length] != b'"' {
            return None;
        }
        let (opaque, rest) = quoted.split_at(length + 2);
        Some((ETag { weak, opaque }, rest))
    }
}

/// Member of a list of entity tags.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TagItem<'a> {
    /// `*`, which must stand alone.
    Any,
    /// Entity tag.
    Tag(ETag<'a>),
}

/// Iterates over the tags of If-Match or If-None-Match. The first malformed member ends the list, and no
/// later member matches: the safe interpretation of both fields.
pub fn entity_tags<'a>(values: &FieldValues<'a>) -> EntityTags<'a> {
    let any = matches!(values, FieldValues::One(b"*"));
    let lines = if any {
        FieldValues::None.lines()
    } else {
        values.lines()
    };
    EntityTags {
        any,
        rest: b"",
        lines,
    }
}

/// Iterator over the members of a list of entity tags.
#[derive(Clone, Debug)]
pub struct EntityTags<'a> {
    any: bool,
    rest: &'a [u8],
    lines: FieldValueLines<'a>,
}

impl<'a> Iterator for EntityTags<'a> {
    type Item = TagItem<'a>;

    fn next(&mut self) -> Option<TagItem<'a>> {
        if std::mem::take(&mut self.any) {
            return Some(TagItem::Any);
        }
        loop {
            self.rest = byte_search::trim(self.rest);
            match self.rest {
                [] => self.rest = self.lines.next()?,
                [b',', rest @ ..] => self.rest = rest,
                _ => break,
            }
        }
        let Some((tag, rest)) = ETag::leading(self.rest) else {
            return self.end();
        };
        self.rest = byte_search::trim(rest);
        if !matches!(self.rest, [] | [b',', ..]) {
            return self.end();
        }
        Some(TagItem::Tag(tag))
    }
}

impl<'a> EntityTags<'a> {
    fn end(&mut self) -> Option<TagItem<'a>> {
        self.rest = b"";
        self.lines = FieldValues::None.lines();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::Fields;
    use super::*;

    fn shown(values: &FieldValues<'_>) -> String {
        let members: Vec<String> = entity_tags(values)
            .map(|item| match item {
                TagItem::Any => "any".to_owned(),
                TagItem::Tag(tag) => {
                    let weak = if tag.weak { "weak " } else { "" };
                    format!("{weak}{}", String::from_utf8_lossy(tag.opaque))
                }
            })
            .collect();
        members.join(" | ")
    }

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn lists_of_tags_are_parsed() {
        let table = [
            ("", ""),
            ("*", "any"),
            (r#""a""#, r#""a""#),
            (r#""""#, r#""""#),
            (r#"W/"a""#, r#"weak "a""#),
            (r#""a", "b","c""#, r#""a" | "b" | "c""#),
            (r#" ,, "a" ,W/"b" , "#, r#""a" | weak "b""#),
            (r#""a,b""#, r#""a,b""#),
            (r#""a\", "b""#, r#""a\" | "b""#),
            ("\"\u{e9}\"", "\"\u{e9}\""),
            // Malformed: the list ends there.
            (r#"*, "a""#, ""),
            (r#""a", *"#, r#""a""#),
            (r#"a"#, ""),
            (r#""a"#, ""),
            (r#""a" "b""#, ""),
            (r#""a", b, "c""#, r#""a""#),
            (r#"w/"a""#, ""),
            (r#"W/ "a""#, ""),
            (r#"W/"#, ""),
            (r#""a b""#, ""),
            (r#""a"x, "b""#, ""),
        ];
        for (value, expected) in table {
            assert_eq!(shown(&FieldValues::One(value.as_bytes())), expected, "{value}");
        }
        assert_eq!(shown(&FieldValues::None), "");
        let lines = b"If-Match: \"a\"\r\nIf-Match: W/\"b\", \"c\"\r\n";
        let values = FieldValues::Many(Fields(lines), "if-match");
        assert_eq!(shown(&values), r#""a" | weak "b" | "c""#);
    }

    #[test]
    fn strong_and_weak_comparison_differ() {
        // RFC 9110 §8.8.3.2, table 3.
        let table = [
            (r#"W/"1""#, r#"W/"1""#, false, true),
            (r#"W/"1""#, r#"W/"2""#, false, false),
            (r#"W/"1""#, r#""1""#, false, true),
            (r#""1""#, r#""1""#, true, true),
        ];
        for (left, right, strong, weak) in table {
            let left = ETag::parse(left.as_bytes()).expect(left);
            let right = ETag::parse(right.as_bytes()).expect(right);
            assert_eq!(left.strong_eq(&right), strong);
            assert_eq!(left.weak_eq(&right), weak);
        }
    }

    #[test]
    fn a_single_tag_is_parsed() {
        for value in ["", "*", "a", r#""a", "b""#, r#""a" "#, r#" "a""#] {
            assert_eq!(ETag::parse(value.as_bytes()), None, "{value}");
        }
    }
}
