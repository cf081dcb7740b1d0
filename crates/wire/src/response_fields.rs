//! Field lines of a response in one buffer.

use crate::fields::{FieldLines, Fields};

/// Field lines of a response, each as `Name: value` with CRLF, ready to be sent over HTTP/1.1. One
/// buffer holds all lines, so a field costs no allocation of its own.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ResponseFields(Vec<u8>);

impl ResponseFields {
    /// Makes an empty list of fields.
    pub fn new() -> ResponseFields {
        ResponseFields::default()
    }

    /// Makes the list of the lines, each name, colon, space, value and CRLF.
    pub fn from_lines(lines: Vec<u8>) -> ResponseFields {
        ResponseFields(lines)
    }

    /// Appends a field line. The value has no CR and no LF.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(!value.contains(&b'\n'), "{}", value.escape_ascii());
        self.0.reserve(name.len() + value.len() + 4);
        for part in [name, b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }

    /// Appends all lines of `more`.
    pub fn append(&mut self, more: &ResponseFields) {
        self.0.extend_from_slice(&more.0);
    }

    /// Returns all field lines in the format of HTTP/1.1.
    pub fn lines(&self) -> &[u8] {
        &self.0
    }

    /// Iterates over names and values, in order.
    pub fn iter(&self) -> FieldLines<'_> {
        Fields(&self.0).iter()
    }

    /// Returns the values of all lines with this name, in any case.
    pub fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
        Fields(&self.0).all(name)
    }

    /// Returns the value of the first line with this name, in any case.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        Fields(&self.0).first(name)
    }

    /// Removes the lines for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&[u8], &[u8]) -> bool) {
        if self.iter().any(|(name, value)| !keep(name, value)) {
            let kept = self.iter().filter(|(name, value)| keep(name, value));
            *self = kept.collect();
        }
    }
}

impl<'f> FromIterator<(&'f [u8], &'f [u8])> for ResponseFields {
    fn from_iter<I: IntoIterator<Item = (&'f [u8], &'f [u8])>>(fields: I) -> ResponseFields {
        let mut all = ResponseFields::new();
        for (name, value) in fields {
            all.push(name, value);
        }
        all
    }
}

impl<'f> IntoIterator for &'f ResponseFields {
    type Item = (&'f [u8], &'f [u8]);
    type IntoIter = FieldLines<'f>;

    fn into_iter(self) -> FieldLines<'f> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_lines_in_order() {
        let mut fields = ResponseFields::new();
        for (name, value) in [("Vary", "A"), ("X-A", ""), ("vary", "B: c"), ("X-B", "1")] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        assert_eq!(
            fields.lines(),
            b"Vary: A\r\nX-A: \r\nvary: B: c\r\nX-B: 1\r\n"
        );
        assert_eq!(fields.all("Vary").collect::<Vec<_>>(), [&b"A"[..], b"B: c"]);
        assert_eq!(
            (fields.first("x-a"), fields.first("x")),
            (Some(&b""[..]), None)
        );
        let whole = fields.clone();
        fields.retain(|_, _| true);
        assert_eq!(fields, whole);
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"vary"));
        assert_eq!(fields.lines(), b"X-A: \r\nX-B: 1\r\n");
        fields.append(&whole);
        assert_eq!(fields.iter().count(), 6);
    }
}
