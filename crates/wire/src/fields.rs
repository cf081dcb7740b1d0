//! Field lines and their values (RFC 9110 §5).
//!
//! The lines stay in the read buffer instead of a map. A field outside of `KnownFields` is found by a
//! linear search.

use crate::byte_search;

pub use super::etag::{ETag, EntityTags, TagItem, entity_tags};
pub use crate::content_coding::{AcceptedCodings, ContentCoding};

/// Borrowed field lines of a head: the bytes between the request line and the empty line.
#[derive(Copy, Clone, Debug, Default)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Iterates over all lines as name and trimmed value, in order.
    pub fn iter(self) -> FieldLines<'a> {
        FieldLines { rest: self.0 }
    }

    /// Iterates over the values of all lines with this name, in any case.
    pub fn all<'n>(self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let mut rest = self.0;
        std::iter::from_fn(move || next_named(&mut rest, name.as_bytes()))
    }

    /// Returns the value of the first line with this name.
    pub fn first(self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Returns for each name whether a line has the name, in one pass over the lines.
    pub fn contain<const N: usize>(self, names: [&str; N]) -> [bool; N] {
        let mut found = [false; N];
        let mut lines = self.0;
        while !lines.is_empty() {
            for (name, found) in names.iter().zip(&mut found) {
                *found |= begins_with_name(lines, name.as_bytes());
            }
            let end = byte_search::find(lines, b'\n', 0).unwrap_or(lines.len());
            lines = lines.get(end + 1..).unwrap_or_default();
        }
        found
    }
}

impl<'a> IntoIterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = FieldLines<'a>;

    fn into_iter(self) -> FieldLines<'a> {
        self.iter()
    }
}

/// Returns true for the field line of a login with a password (RFC 7617). Every scheme that a lenient application could
/// take for `Basic` counts.
pub fn is_basic_login(name: &[u8], value: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"authorization")
        && value.split_at_checked(5).is_some_and(|(scheme, rest)| {
            scheme.eq_ignore_ascii_case(b"basic")
                && !rest.first().is_some_and(u8::is_ascii_alphanumeric)
        })
}

/// Iterator over (name, trimmed value).
#[derive(Clone, Debug)]
pub struct FieldLines<'a> {
    rest: &'a [u8],
}

impl<'a> FieldLines<'a> {
    /// Returns the lines that were not visited yet.
    #[inline]
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for FieldLines<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let end = byte_search::find(self.rest, b'\n', 0).unwrap_or(self.rest.len());
            let (line, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // A parsed head has no line without a colon.
            if let Some(colon) = byte_search::find(line, b':', 0) {
                return Some((&line[..colon], byte_search::trim(&line[colon + 1..])));
            }
        }
        None
    }
}

/// Takes lines from `rest` up to the next line with this name, and returns the trimmed value. The name is
/// compared before the end of the line is searched, so a line with another name costs one search.
fn next_named<'a>(rest: &mut &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    while !rest.is_empty() {
        let lines = *rest;
        let end = byte_search::find(lines, b'\n', 0).unwrap_or(lines.len());
        *rest = lines.get(end + 1..).unwrap_or_default();
        if begins_with_name(lines, name) {
            let value = &lines[name.len() + 1..end];
            return Some(byte_search::trim(
                value.strip_suffix(b"\r").unwrap_or(value),
            ));
        }
    }
    None
}

/// Returns true if the first line has this name.
#[inline]
fn begins_with_name(lines: &[u8], name: &[u8]) -> bool {
    lines.get(name.len()) == Some(&b':') && lines[..name.len()].eq_ignore_ascii_case(name)
}

/// Values of a list-valued field: absent, one line, or, rarely, several lines that form one list. The usual
/// single line needs neither a search nor an allocation.
#[derive(Copy, Clone, Debug, Default)]
pub enum FieldValues<'a> {
    /// The field is absent.
    #[default]
    None,
    /// Trimmed value of a single line.
    One(&'a [u8]),
    /// Several lines: all fields of the head, and the lower-case name to search for.
    Many(Fields<'a>, &'static str),
}

impl<'a> FieldValues<'a> {
    /// Returns true if the field is absent.
    pub fn is_none(&self) -> bool {
        matches!(self, FieldValues::None)
    }

    /// Iterates over the trimmed value of each line, in order.
    pub fn lines(&self) -> FieldValueLines<'a> {
        match *self {
            FieldValues::None => FieldValueLines(RemainingLines::One(None)),
            FieldValues::One(line) => FieldValueLines(RemainingLines::One(Some(line))),
            FieldValues::Many(fields, name) => {
                FieldValueLines(RemainingLines::Many(fields.iter(), name))
            }
        }
    }

    /// Iterates over the trimmed members of the list, without empty members (RFC 9110 §5.6.1.2).
    pub fn items(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.lines().flat_map(items)
    }
}

/// Iterator over the lines of one field.
#[derive(Clone, Debug)]
pub struct FieldValueLines<'a>(RemainingLines<'a>);

#[derive(Clone, Debug)]
enum RemainingLines<'a> {
    One(Option<&'a [u8]>),
    Many(FieldLines<'a>, &'static str),
}

impl<'a> Iterator for FieldValueLines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match &mut self.0 {
            RemainingLines::One(line) => line.take(),
            RemainingLines::Many(lines, name) => next_named(&mut lines.rest, name.as_bytes()),
        }
    }
}

/// Iterates over the members of a single line: split at commas outside quoted strings, trimmed, without
/// empty members.
pub fn items(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = item_end(rest);
            let item = byte_search::trim(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            if !item.is_empty() {
                return Some(item);
            }
        }
        None
    })
}

/// Returns the position of the first comma outside a quoted string (RFC 9110 §5.6.4), or the length.
fn item_end(list: &[u8]) -> usize {
    let mut quoted = false;
    let mut escaped = false;
    for (at, &byte) in list.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    list.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[u8] =
        b"Host: a\r\nAccept-Encoding:gzip, br\r\nX:\r\naccept-encoding:\t zstd \r\n";

    #[test]
    fn lines_come_in_order_with_trimmed_values() {
        let fields: Vec<_> = Fields(LINES).iter().collect();
        let expected: [(&[u8], &[u8]); 4] = [
            (b"Host", b"a"),
            (b"Accept-Encoding", b"gzip, br"),
            (b"X", b""),
            (b"accept-encoding", b"zstd"),
        ];
        assert_eq!(fields, expected);
        assert_eq!(
            Fields(LINES).first("ACCEPT-ENCODING"),
            Some(&b"gzip, br"[..])
        );
        assert_eq!(Fields(LINES).first("accept"), None);
        assert_eq!(Fields(LINES).all("accept-encoding").count(), 2);
        let names = ["accept-encoding", "accept", "HOST", "X"];
        assert_eq!(Fields(LINES).contain(names), [true, false, true, true]);
    }

    #[test]
    fn values_of_several_lines_form_one_list() {
        let many = FieldValues::Many(Fields(LINES), "accept-encoding");
        let items: Vec<_> = many.items().collect();
        assert_eq!(items, [&b"gzip"[..], b"br", b"zstd"]);
        assert!(FieldValues::None.is_none() && !many.is_none());
        assert_eq!(FieldValues::None.items().count(), 0);
    }

    #[test]
    fn items_are_split_outside_quotes() {
        #[rustfmt::skip] // Keeps the columns of the table.
        let table: &[(&str, &[&str])] = &[
            ("", &[]),
            (" , ,", &[]),
            ("a", &["a"]),
            ("a,b", &["a", "b"]),
            (" a ,\tb ,, c", &["a", "b", "c"]),
            (r#""a,b", c"#, &[r#""a,b""#, "c"]),
            (r#"x="a\",b", c"#, &[r#"x="a\",b""#, "c"]),
            (r#""open, c"#, &[r#""open, c"#]),
            (r"a\,b", &[r"a\", "b"]),
        ];
        for (line, expected) in table {
            let found: Vec<_> = items(line.as_bytes())
                .map(String::from_utf8_lossy)
                .collect();
            assert_eq!(found, *expected, "{line}");
        }
    }
}
