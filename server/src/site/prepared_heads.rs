//! The ready-made heads of a variant: for 200 and for 304, made once when it is loaded, as text for
//! HTTP/1.1, as field blocks for HTTP/2 and as field sections for HTTP/3.
//!
//! A head of text ends with the line end of its last field. Date, Connection, Strict-Transport-Security and
//! the empty line are the driver's.

use crate::site::mime;
use crate::site::rules::{HeaderRules, SiteRules, settable, valid_value};
use crate::wire::date::format_imf;
use crate::wire::fields::ContentCoding;
use crate::wire::h2::hpack;
use crate::wire::h3::qpack;
use crate::wire::status::{Status, StatusLine};
use std::ops::Range;

/// All heads in one piece of memory.
pub struct PreparedHeads {
    bytes: Box<[u8]>,
    /// Where each but the first begins: for 304, then the field blocks for 200 and 304, then the
    /// field sections for both.
    splits: [usize; 5],
    /// The ETag in the head for 200.
    tag: Range<usize>,
}

/// What a head is made from.
pub struct HeadFacts<'a> {
    /// Of the file whose content it is, not of a sidecar; below the root.
    pub path: &'a [u8],
    /// Bytes of the body.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: u64,
    /// With its quotes.
    pub tag: &'a str,
    pub coding: ContentCoding,
    /// Does the answer depend on Accept-Encoding?
    pub varies: bool,
}

impl PreparedHeads {
    /// Puts them together by the rules.
    pub fn new(rules: &SiteRules, facts: &HeadFacts<'_>) -> PreparedHeads {
        let fields = fields(rules, facts);
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        PreparedHeads::of(&Status::OK.into(), fields)
    }

    /// Of a response with this status and these fields, in their order.
    pub fn of<'f>(
        status: &StatusLine,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) -> PreparedHeads {
        let mut bytes = Vec::new();
        status.push(&mut bytes);
        let mut tag = 0..0;
        for (name, value) in fields.clone() {
            if name.eq_ignore_ascii_case(b"ETag") {
                let start = bytes.len() + name.len() + 2;
                tag = start..start + value.len();
            }
            push_line(&mut bytes, name, value);
        }
        let split = bytes.len();
        StatusLine::from(Status::NOT_MODIFIED).push(&mut bytes);
        for (name, value) in fields {
            if !is_content_field(name) {
                push_line(&mut bytes, name, value);
            }
        }
        let end = bytes.len();
        let mut splits = [split, end, 0, 0, 0];
        let mut made = Vec::new();
        hpack::push_head(status.0, &bytes[..split], &mut made);
        splits[2] = end + made.len();
        hpack::push_head(304, &bytes[split..], &mut made);
        splits[3] = end + made.len();
        if cfg!(feature = "http3") {
            qpack::push_head(status.0, &bytes[..split], &mut made);
        }
        splits[4] = end + made.len();
        if cfg!(feature = "http3") {
            qpack::push_head(304, &bytes[split..], &mut made);
        }
        bytes.extend_from_slice(&made);
        PreparedHeads {
            bytes: bytes.into_boxed_slice(),
            splits,
            tag,
        }
    }

    /// For 200, or whichever status is the response's own.
    pub fn ok(&self) -> &[u8] {
        &self.bytes[..self.splits[0]]
    }

    /// For 304.
    pub fn not_modified(&self) -> &[u8] {
        &self.bytes[self.splits[0]..self.splits[1]]
    }

    /// For 200, as a field block.
    pub fn ok_block(&self) -> &[u8] {
        &self.bytes[self.splits[1]..self.splits[2]]
    }

    /// For 304, as a field block.
    pub fn not_modified_block(&self) -> &[u8] {
        &self.bytes[self.splits[2]..self.splits[3]]
    }

    /// For 200, as a field section; empty in a build without HTTP/3.
    pub fn ok_section(&self) -> &[u8] {
        &self.bytes[self.splits[3]..self.splits[4]]
    }

    /// For 304, as a field section; empty in a build without HTTP/3.
    pub fn not_modified_section(&self) -> &[u8] {
        &self.bytes[self.splits[4]..]
    }

    /// With its quotes.
    pub fn tag(&self) -> &[u8] {
        &self.bytes[self.tag.clone()]
    }

    /// Bytes of all.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Copies the fields of the head for 200 that `wanted` says, as whole lines.
    pub fn copy_fields(&self, out: &mut Vec<u8>, wanted: impl Fn(&[u8]) -> bool) {
        for (name, line) in lines(self.ok()) {
            if wanted(name) {
                out.extend_from_slice(line);
            }
        }
    }

    /// The fields of the head for 200, names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines(self.ok()).map(|(name, line)| (name, line[name.len() + 1..].trim_ascii()))
    }

    /// The value of a field of the head for 200.
    pub fn value(&self, field: &str) -> Option<&[u8]> {
        let (name, line) = lines(self.ok()).find(|(name, _)| is(name, field))?;
        Some(line[name.len() + 1..].trim_ascii())
    }
}

/// Appends one field line.
pub fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    push_line(out, name.as_bytes(), value);
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Is it this field?
pub fn is(name: &[u8], field: &str) -> bool {
    name.eq_ignore_ascii_case(field.as_bytes())
}

/// Is this a field about the content that a 304 doesn't have (RFC 9110 §15.4.5)?
pub fn is_content_field(name: &[u8]) -> bool {
    ["Accept-Ranges", "Last-Modified"]
        .iter()
        .any(|field| is(name, field))
        || is_framing(name)
}

/// Does this field describe the very body that is sent?
pub fn is_framing(name: &[u8]) -> bool {
    [
        "Content-Type",
        "Content-Length",
        "Content-Encoding",
        "Content-Language",
    ]
    .iter()
    .any(|field| is(name, field))
}

/// The fields that the operator's rules give a path below the root; of one name the last.
pub fn operator_fields<'r>(headers: &'r HeaderRules, path: &[u8]) -> Vec<(&'r str, &'r str)> {
    let mut fields: Vec<(&str, &str)> = Vec::new();
    for (_, set) in headers.iter().filter(|(glob, _)| glob.matches(path)) {
        for (name, value) in set {
            if settable(name) && valid_value(value) {
                fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                fields.push((name, value));
            }
        }
    }
    fields
}

fn fields<'r>(rules: &'r SiteRules, facts: &HeadFacts<'_>) -> Vec<(&'r str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    if rules.server_field {
        fields.push(("Server", SERVER.into()));
    }
    fields.push(("Content-Type", mime::of(facts.path, &rules.mime).into()));
    fields.push(("Content-Length", facts.size.to_string()));
    let modified = format_imf(facts.modified);
    fields.push((
        "Last-Modified",
        String::from_utf8_lossy(&modified).into_owned(),
    ));
    fields.push(("ETag", facts.tag.into()));
    fields.push(("Accept-Ranges", "bytes".into()));
    if let Some((_, rule)) = rules
        .cache
        .iter()
        .find(|(glob, _)| glob.matches(facts.path))
    {
        let immutable = if rule.immutable { ", immutable" } else { "" };
        fields.push((
            "Cache-Control",
            format!("max-age={}{immutable}", rule.max_age_seconds),
        ));
    }
    if facts.coding != ContentCoding::Identity {
        fields.push(("Content-Encoding", facts.coding.token().into()));
    }
    for (name, value) in operator_fields(&rules.headers, facts.path) {
        fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        fields.push((name, value.into()));
    }
    if facts.varies {
        // Last, for what the answer depends on adds up with the operator's word.
        fields.push(("Vary", "Accept-Encoding".into()));
    }
    fields
}

/// What we call ourselves.
pub const SERVER: &str = "anthill";

/// Field names and whole lines of a head, without its first line.
fn lines(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.split_inclusive(|byte| *byte == b'\n')
        .skip(1)
        .map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
            (&line[..colon], line)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::glob::Glob;
    use crate::site::rules::CacheControlRule;

    fn glob(text: &str) -> Glob {
        Glob::parse(text).expect("valid")
    }

    #[test]
    fn heads_by_the_rules() {
        let mut rules = SiteRules::new(".");
        rules.cache = vec![
            (
                glob("*.css"),
                CacheControlRule {
                    max_age_seconds: 60,
                    immutable: true,
                },
            ),
            (
                glob("*"),
                CacheControlRule {
                    max_age_seconds: 5,
                    immutable: false,
                },
            ),
        ];
        let set = |fields: &[(&str, &str)]| {
            fields
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect()
        };
        rules.headers = vec![
            (
                glob("*"),
                set(&[
                    ("X-A", "1"),
                    ("X-B", "1"),
                    ("Content-Length", "9"),
                    ("X-Bad", "a\r\nb"),
                ]),
            ),
            (glob("other"), set(&[("X-C", "1")])),
            (
                glob("sub/**"),
                set(&[("x-a", "2"), ("Vary", "Origin"), ("content-language", "en")]),
            ),
        ];
        let facts = HeadFacts {
            path: b"sub/a.css",
            size: 7,
            modified: 784_111_777,
            tag: "\"t-br\"",
            coding: ContentCoding::Br,
            varies: true,
        };
        let heads = PreparedHeads::new(&rules, &facts);
        let ok = "HTTP/1.1 200 OK\r\nServer: anthill\r\nContent-Type: text/css; charset=utf-8\r\n\
            Content-Length: 7\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"t-br\"\r\n\
            Accept-Ranges: bytes\r\nCache-Control: max-age=60, immutable\r\nContent-Encoding: br\r\n\
            X-B: 1\r\nx-a: 2\r\nVary: Origin\r\ncontent-language: en\r\nVary: Accept-Encoding\r\n";
        assert_eq!(String::from_utf8_lossy(heads.ok()), ok);
        let not_modified = "HTTP/1.1 304 Not Modified\r\nServer: anthill\r\nETag: \"t-br\"\r\n\
            Cache-Control: max-age=60, immutable\r\nX-B: 1\r\nx-a: 2\r\nVary: Origin\r\n\
            Vary: Accept-Encoding\r\n";
        assert_eq!(String::from_utf8_lossy(heads.not_modified()), not_modified);
        assert_eq!(heads.tag(), b"\"t-br\"");
        assert_eq!(
            heads.value("content-type"),
            Some(&b"text/css; charset=utf-8"[..])
        );
    }
}
