//! Prepared response heads of a variant, for the statuses 200 and 304, built once when the variant is
//! loaded: as text for HTTP/1.1, as field blocks for HTTP/2, and as field sections for HTTP/3.
//!
//! A text head ends with the line end of the last field. The driver adds Date, Connection,
//! Strict-Transport-Security and the empty line.

use crate::site::published_rules::PublishedRules;
use crate::site::rules::{SiteRules, is, is_of_cors, operator_fields};
use std::ops::Range;
use wire::date::format_imf;
use wire::fields::ContentCoding;
use wire::h2::hpack;
use wire::h3::qpack;
use wire::status::{Status, StatusLine};

/// All heads of a variant in one allocation.
pub(crate) struct PreparedHeads {
    bytes: Box<[u8]>,
    /// Starts of all heads except the first: the text for 304, the field blocks for 200 and 304, and the
    /// field sections for 200 and 304.
    splits: [usize; 5],
    /// Position of the ETag value in the head for 200.
    tag: Range<usize>,
    /// Heads without the fields of a release for cross-origin access; None where the heads are equal.
    beside_cors: Option<Box<PreparedHeads>>,
}

/// Facts from which a head is built.
pub(crate) struct HeadFacts<'a> {
    /// Path of the file, not of a sidecar, below the root.
    pub path: &'a [u8],
    /// Bytes of the content.
    pub size: u64,
    /// Modification time in seconds since 1970; None without Last-Modified.
    pub modified: Option<u64>,
    /// Entity tag with quotes.
    pub tag: &'a str,
    pub coding: ContentCoding,
    /// Whether the response depends on Accept-Encoding.
    pub varies: bool,
    /// Whether the name of the file contains a hash of the content.
    pub is_hashed: bool,
    /// Whether a process has the file open for writing: no cache may keep the response, and the response has no
    /// validator.
    pub is_open: bool,
}

impl PreparedHeads {
    /// Builds the heads by the rules of the operator and of the release.
    pub(crate) fn new(
        rules: &SiteRules,
        published: &PublishedRules,
        facts: &HeadFacts<'_>,
    ) -> PreparedHeads {
        let heads = |set: &[(&str, &str)]| {
            let fields = fields(rules, published, facts, set);
            let fields = fields.iter();
            let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            PreparedHeads::of(&Status::OK.into(), fields)
        };
        let set = set_fields(rules, published, facts.path, CorsSource::Release);
        let beside_cors = rules.has_cors.then(|| {
            let beside = set_fields(rules, published, facts.path, CorsSource::Rule);
            (beside != set).then(|| Box::new(heads(&beside)))
        });
        PreparedHeads {
            beside_cors: beside_cors.flatten(),
            ..heads(&set)
        }
    }

    /// Builds the heads of a response with the given status and fields, in the given order.
    pub(crate) fn of<'f>(
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
            beside_cors: None,
        }
    }

    /// Returns the heads for a path with `cors`, without the fields of a release for cross-origin access.
    pub(crate) fn beside_cors(&self) -> &PreparedHeads {
        self.beside_cors.as_deref().unwrap_or(self)
    }

    /// Returns the text head for 200, or for the status passed to [`PreparedHeads::of`].
    pub(crate) fn ok(&self) -> &[u8] {
        &self.bytes[..self.splits[0]]
    }

    /// Returns the text head for 304.
    pub(crate) fn not_modified(&self) -> &[u8] {
        &self.bytes[self.splits[0]..self.splits[1]]
    }

    /// Returns the field block for 200.
    pub(crate) fn ok_block(&self) -> &[u8] {
        &self.bytes[self.splits[1]..self.splits[2]]
    }

    /// Returns the field block for 304.
    pub(crate) fn not_modified_block(&self) -> &[u8] {
        &self.bytes[self.splits[2]..self.splits[3]]
    }

    /// Returns the field section for 200; empty in a build without HTTP/3.
    #[cfg(feature = "http3")]
    pub(crate) fn ok_section(&self) -> &[u8] {
        &self.bytes[self.splits[3]..self.splits[4]]
    }

    /// Returns the field section for 304; empty in a build without HTTP/3.
    #[cfg(feature = "http3")]
    pub(crate) fn not_modified_section(&self) -> &[u8] {
        &self.bytes[self.splits[4]..]
    }

    /// Returns the entity tag with quotes.
    pub(crate) fn tag(&self) -> &[u8] {
        &self.bytes[self.tag.clone()]
    }

    /// Returns the bytes of all heads together.
    pub(crate) fn len(&self) -> usize {
        let beside_cors = self.beside_cors.as_deref();
        self.bytes.len() + beside_cors.map_or(0, |heads| size_of::<PreparedHeads>() + heads.len())
    }

    /// Copies the field lines of the head for 200 for which `wanted` returns true.
    pub(crate) fn copy_fields(&self, out: &mut Vec<u8>, wanted: impl Fn(&[u8]) -> bool) {
        for (name, line) in lines(self.ok()) {
            if wanted(name) {
                out.extend_from_slice(line);
            }
        }
    }

    /// Returns the names and values of the fields in the head for 200.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        lines(self.ok()).map(|(name, line)| (name, line[name.len() + 1..].trim_ascii()))
    }

    /// Returns the value of a field in the head for 200.
    pub(crate) fn value(&self, field: &str) -> Option<&[u8]> {
        let (name, line) = lines(self.ok()).find(|(name, _)| is(name, field))?;
        Some(line[name.len() + 1..].trim_ascii())
    }
}

/// Appends one field line.
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    push_line(out, name.as_bytes(), value);
}

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Returns true for a field about the content that a 304 omits (RFC 9110 §15.4.5).
pub fn is_content_field(name: &[u8]) -> bool {
    ["Accept-Ranges", "Last-Modified"]
        .iter()
        .any(|field| is(name, field))
        || is_framing(name)
}

/// Returns true for a field that describes the very content sent.
pub(crate) fn is_framing(name: &[u8]) -> bool {
    [
        "Content-Type",
        "Content-Length",
        "Content-Encoding",
        "Content-Language",
    ]
    .iter()
    .any(|field| is(name, field))
}

/// Source of the fields of cross-origin access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CorsSource {
    /// The fields of the release, for paths without `cors`.
    Release,
    /// The operator's `cors` for the requested path, so the fields of the release are left out.
    Rule,
}

/// Returns the fields that the rules of the operator and of the release set for a path. The operator's rules win.
pub(crate) fn set_fields<'r>(
    rules: &'r SiteRules,
    published: &'r PublishedRules,
    path: &[u8],
    cors: CorsSource,
) -> Vec<(&'r str, &'r str)> {
    let has_operators_age = rules.cache_control(path).is_some();
    let mut fields = published.fields(path, has_operators_age);
    if cors == CorsSource::Rule {
        fields.retain(|(name, _)| !is_of_cors(name.as_bytes()));
    }
    for (name, value) in operator_fields(&rules.headers, &[path]) {
        fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        fields.push((name, value));
    }
    // All responses of a preview have these fields already.
    let is_of_preview = |name: &str| {
        ["Cache-Control", "X-Robots-Tag"]
            .iter()
            .any(|it| is(name.as_bytes(), it))
    };
    fields.retain(|(name, _)| !(rules.is_preview && is_of_preview(name)));
    fields
}

fn fields<'r>(
    rules: &'r SiteRules,
    published: &'r PublishedRules,
    facts: &HeadFacts<'_>,
    set: &[(&'r str, &'r str)],
) -> Vec<(&'r str, String)> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    if rules.server_field {
        fields.push(("Server", SERVER.into()));
    }
    fields.push(("Content-Type", rules.media_type(facts.path).into()));
    fields.push(("Content-Length", facts.size.to_string()));
    if !facts.is_open {
        if let Some(modified) = facts.modified {
            let modified = format_imf(modified);
            let modified = String::from_utf8_lossy(&modified).into_owned();
            fields.push(("Last-Modified", modified));
        }
        fields.push(("ETag", facts.tag.into()));
    }
    fields.push(("Accept-Ranges", "bytes".into()));
    let published_age = || published.cache_control(facts.path, facts.is_hashed);
    let rule = rules.cache_control(facts.path).or_else(published_age);
    if facts.is_open {
        fields.push(("Cache-Control", "no-store".into()));
    } else if let Some(rule) = rule.filter(|_| !rules.is_preview) {
        let immutable = if rule.immutable { ", immutable" } else { "" };
        fields.push((
            "Cache-Control",
            format!("max-age={}{immutable}", rule.max_age_seconds),
        ));
    }
    if facts.coding != ContentCoding::Identity {
        fields.push(("Content-Encoding", facts.coding.token().into()));
    }
    for (name, value) in set {
        if facts.is_open && is_for_caches(name) {
            continue;
        }
        fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        fields.push((name, (*value).into()));
    }
    if facts.varies {
        // Vary goes last: the value is combined with a Vary field set by the operator.
        fields.push(("Vary", "Accept-Encoding".into()));
    }
    fields
}

/// Returns true for a field by which a cache may keep a response or ask for a change. Targeted fields, such as
/// CDN-Cache-Control, override Cache-Control (RFC 9213 §2.1).
fn is_for_caches(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("cache-control")
        || ["etag", "last-modified", "expires", "surrogate-control"].contains(&&*name)
}

/// Value of the Server field.
pub const SERVER: &str = "anthill";

/// Returns the field names and complete lines of a head, without the status line.
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
    use crate::site::rules::CacheControlRule;
    use release::glob::Glob;

    fn glob(text: &str) -> Glob {
        Glob::parse(text).expect("valid")
    }

    #[test]
    fn heads_follow_the_rules_of_the_site() {
        let mut rules = SiteRules::new(".");
        rules.cache = vec![
            (
                glob("*.css"),
                CacheControlRule {
                    max_age_seconds: 60,
                    immutable: true,
                    only_hashed: false,
                },
            ),
            (
                glob("*"),
                CacheControlRule {
                    max_age_seconds: 5,
                    immutable: false,
                    only_hashed: false,
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
            modified: Some(784_111_777),
            tag: "\"t-br\"",
            coding: ContentCoding::Br,
            varies: true,
            is_hashed: false,
            is_open: false,
        };
        let heads = PreparedHeads::new(&rules, &PublishedRules::default(), &facts);
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
        rules.headers.push((
            glob("*"),
            set(&[
                ("Cache-Control", "public"),
                ("CDN-Cache-Control", "max-age=60"),
                ("ETag", "\"mine\""),
            ]),
        ));
        let facts = HeadFacts {
            coding: ContentCoding::Identity,
            varies: false,
            is_open: true,
            ..facts
        };
        let open = PreparedHeads::new(&rules, &PublishedRules::default(), &facts);
        let ok = "HTTP/1.1 200 OK\r\nServer: anthill\r\nContent-Type: text/css; charset=utf-8\r\n\
            Content-Length: 7\r\nAccept-Ranges: bytes\r\nCache-Control: no-store\r\nX-B: 1\r\nx-a: 2\r\n\
            Vary: Origin\r\ncontent-language: en\r\n";
        assert_eq!(String::from_utf8_lossy(open.ok()), ok);
        assert_eq!(open.tag(), b"");
        assert_eq!(
            heads.value("content-type"),
            Some(&b"text/css; charset=utf-8"[..])
        );
    }
}
