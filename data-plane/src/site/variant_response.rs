//! Response from a variant: the status, and the part of the content to send.

use crate::ledger::route_counters::CacheOutcome;
use crate::site::loaded_facts::coding_mark;
use crate::site::prepared_heads::{PreparedHeads, is_framing, push_field};
use crate::site::rules::is;
use crate::site::variant::{DiskContent, Variant, VariantContent};
use std::sync::Arc;
use wire::fields::ContentCoding;
use wire::h2::hpack;
#[cfg(feature = "http3")]
use wire::h3::qpack;
use wire::number_text::push_number;
use wire::range::RangeList;
use wire::reject::Reject;
use wire::status::{Status, StatusLine};

/// Response from a stored page or a cached response. The response holds all data, so the site may be
/// replaced while the response is sent.
pub struct VariantResponse {
    /// 200, 206, 304, 412, 416, or the status of an error page.
    pub status: Status,
    /// Variant to send.
    pub variant: Arc<Variant>,
    /// Part of the content to send.
    pub part: BodySelection,
    /// Whether the file is the fallback that `try` names for every missing path.
    pub is_fallback: bool,
    /// Whether a 304 refers to the generated gzip of the plain variant, and the gzip variant is missing
    /// now.
    pub(super) of_generated_gzip: bool,
    /// Whether the requested path has `cors`, so the fields of a release for cross-origin access are left out.
    pub(super) is_beside_cors: bool,
    /// Age and lifetime, for a response from the cache.
    pub(super) age_and_lifetime: Option<AgeAndLifetime>,
}

/// Age and lifetime of a cached response (RFC 9111 §5.1, RFC 9211).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AgeAndLifetime {
    /// Seconds since the response was generated.
    pub age_seconds: u64,
    /// Remaining seconds of freshness; negative for a stale response.
    pub ttl_seconds: i64,
}

/// Part of the content to send.
pub enum BodySelection {
    /// The whole content.
    Whole,
    /// No content: HEAD, 304, 412, 416.
    Nothing,
    /// The bytes from `start` up to but not including `end`.
    One {
        /// First byte.
        start: u64,
        /// Byte after the last byte.
        end: u64,
    },
    /// Several ranges as `multipart/byteranges`.
    Several(Box<Multipart>),
}

/// Piece of a body.
pub enum BodyPiece<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// Bytes of an open file.
    File {
        /// The file; the caller checks [`DiskContent::unchanged`] before and after sending.
        content: &'a DiskContent,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// Multipart body: several ranges, with delimiters and part headers (RFC 9110 §14.6).
pub struct Multipart {
    boundary: String,
    /// All part headers in sequence, and the closing delimiter.
    text: Vec<u8>,
    /// For each part, the end of the header in `text` and the range.
    parts: Vec<(usize, u64, u64)>,
}

impl Multipart {
    /// Builds a multipart body. `ranges` are (first, last), both inclusive; `boundary` must not occur in
    /// the content.
    pub(super) fn new(ranges: &RangeList, boundary: String, kind: &[u8], size: u64) -> Multipart {
        let mut text = Vec::new();
        let mut parts = Vec::with_capacity(ranges.len());
        for (nth, (first, last)) in ranges.iter().enumerate() {
            let line_end = if nth == 0 { "" } else { "\r\n" };
            text.extend_from_slice(format!("{line_end}--{boundary}\r\nContent-Type: ").as_bytes());
            text.extend_from_slice(kind);
            let range = format!("\r\nContent-Range: bytes {first}-{last}/{size}\r\n\r\n");
            text.extend_from_slice(range.as_bytes());
            parts.push((text.len(), *first, last + 1));
        }
        text.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        Multipart {
            boundary,
            text,
            parts,
        }
    }

    fn len(&self) -> u64 {
        self.text.len() as u64
            + self
                .parts
                .iter()
                .map(|(_, start, end)| end - start)
                .sum::<u64>()
    }

    fn piece<'a>(&'a self, nth: usize, content: &'a VariantContent) -> Option<BodyPiece<'a>> {
        let part = nth / 2;
        let text_start = if part == 0 {
            0
        } else {
            self.parts.get(part - 1)?.0
        };
        let is_data = nth % 2 == 1;
        match self.parts.get(part) {
            Some((_, start, end)) if is_data => cut(content, *start, *end),
            Some((text_end, ..)) => Some(BodyPiece::Bytes(&self.text[text_start..*text_end])),
            None if is_data => None,
            None => Some(BodyPiece::Bytes(&self.text[text_start..])),
        }
    }
}

impl VariantResponse {
    pub(super) fn new(
        status: Status,
        variant: Arc<Variant>,
        part: BodySelection,
    ) -> VariantResponse {
        VariantResponse {
            status,
            variant,
            part,
            is_fallback: false,
            of_generated_gzip: false,
            is_beside_cors: false,
            age_and_lifetime: None,
        }
    }

    /// Leaves out the fields of a release for cross-origin access, on a path with `cors`.
    pub(crate) fn go_beside_cors(&mut self) {
        self.is_beside_cors = true;
    }

    #[inline]
    fn heads(&self) -> &PreparedHeads {
        if self.is_beside_cors {
            self.variant.heads.beside_cors()
        } else {
            &self.variant.heads
        }
    }

    /// Returns true if the response comes from the cache.
    pub(crate) fn is_from_cache(&self) -> bool {
        self.age_and_lifetime.is_some()
    }

    /// Returns the part of the page cache in the response.
    #[inline]
    pub(crate) fn cache_outcome(&self) -> CacheOutcome {
        match &self.age_and_lifetime {
            None => CacheOutcome::None,
            Some(kept) if kept.ttl_seconds < 0 => CacheOutcome::Stale,
            Some(_) => CacheOutcome::Hit,
        }
    }

    /// Returns true if the head contains Date, so that the driver must not add a Date field.
    pub(crate) fn is_dated(&self) -> bool {
        self.variant.is_dated
    }

    /// Appends the field lines that differ between sendings of one variant.
    pub(crate) fn push_changing(&self, out: &mut Vec<u8>) {
        if let Some(kept) = &self.age_and_lifetime {
            out.extend_from_slice(b"Age: ");
            push_number(out, kept.age_seconds);
            out.extend_from_slice(b"\r\nCache-Status: anthill; hit; ttl=");
            if kept.ttl_seconds < 0 {
                out.push(b'-');
            }
            push_number(out, kept.ttl_seconds.unsigned_abs());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Returns the head from the status line to the line end of the last field. The driver adds Date,
    /// Connection, Strict-Transport-Security and the empty line. The heads for 200 and 304 are prepared;
    /// other heads are built in `scratch`, overwriting the content.
    pub(crate) fn head<'s>(&'s self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let heads = self.heads();
        match self.status {
            status if status == self.variant.status => return heads.ok(),
            Status::NOT_MODIFIED if !self.of_generated_gzip => return heads.not_modified(),
            _ => scratch.clear(),
        }
        if self.status == Status::NOT_MODIFIED {
            self.replace_tag(scratch);
            return scratch;
        }
        StatusLine::from(self.status).push(scratch);
        match self.status {
            Status::PARTIAL_CONTENT => self.partial_fields(scratch),
            Status::PRECONDITION_FAILED | Status::RANGE_NOT_SATISFIABLE => {
                self.refusal_fields(scratch)
            }
            _ => heads.copy_fields(scratch, |name| {
                !NOT_IN_ERRORS.iter().any(|field| is(name, field))
            }),
        }
        scratch
    }

    /// Returns true if the operator or the server has set the field for the file.
    pub(crate) fn has_field(&self, field: &str) -> bool {
        self.heads().value(field).is_some()
    }

    /// Returns the head as a field block for HTTP/2, without the fields of the driver.
    pub(crate) fn block<'s>(&'s self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let heads = self.heads();
        match self.status {
            status if status == self.variant.status => return heads.ok_block(),
            Status::NOT_MODIFIED if !self.of_generated_gzip => return heads.not_modified_block(),
            _ => {}
        }
        let mut block = Vec::new();
        hpack::push_head(self.status.0, self.head(scratch), &mut block);
        *scratch = block;
        scratch
    }

    /// Returns the head as a field section for HTTP/3, without the fields of the driver.
    #[cfg(feature = "http3")]
    pub(crate) fn section<'s>(&'s self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let heads = self.heads();
        match self.status {
            status if status == self.variant.status => return heads.ok_section(),
            Status::NOT_MODIFIED if !self.of_generated_gzip => return heads.not_modified_section(),
            _ => {}
        }
        let mut section = Vec::new();
        qpack::push_head(self.status.0, self.head(scratch), &mut section);
        *scratch = section;
        scratch
    }

    /// Returns the bytes of the body.
    pub(crate) fn body_len(&self) -> u64 {
        match &self.part {
            BodySelection::Whole => self.variant.size(),
            BodySelection::Nothing => 0,
            BodySelection::One { start, end } => end - start,
            BodySelection::Several(multipart) => multipart.len(),
        }
    }

    /// Returns the piece of the body at index `nth`, never empty; None after the last piece.
    pub(crate) fn piece(&self, nth: usize) -> Option<BodyPiece<'_>> {
        let content = &self.variant.content;
        match &self.part {
            BodySelection::Whole if nth == 0 => cut(content, 0, content.size()),
            BodySelection::One { start, end } if nth == 0 => cut(content, *start, *end),
            BodySelection::Several(multipart) => multipart.piece(nth, content),
            _ => None,
        }
    }

    /// Returns the whole body, if the response has the whole content and the content is in memory.
    pub(crate) fn whole_memory(&self) -> Option<&[u8]> {
        match (&self.part, &self.variant.content) {
            (BodySelection::Whole, VariantContent::Memory(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the rule number for the log, if the response refuses a precondition or a range.
    pub(crate) fn reject(&self) -> Option<Reject> {
        match self.status {
            Status::PRECONDITION_FAILED => Some(Reject::PRECONDITION),
            Status::RANGE_NOT_SATISFIABLE => Some(Reject::RANGE),
            _ => None,
        }
    }

    fn partial_fields(&self, out: &mut Vec<u8>) {
        let several = matches!(self.part, BodySelection::Several(_));
        self.heads().copy_fields(out, |name| {
            !(is(name, "Content-Length") || (several && is(name, "Content-Type")))
        });
        match &self.part {
            BodySelection::Several(multipart) => {
                let kind = format!("multipart/byteranges; boundary={}", multipart.boundary);
                push_field(out, "Content-Type", kind.as_bytes());
            }
            BodySelection::One { start, end } => {
                let range = format!("bytes {start}-{}/{}", end - 1, self.variant.size());
                push_field(out, "Content-Range", range.as_bytes());
            }
            BodySelection::Whole | BodySelection::Nothing => {}
        }
        push_field(
            out,
            "Content-Length",
            self.body_len().to_string().as_bytes(),
        );
    }

    fn refusal_fields(&self, out: &mut Vec<u8>) {
        self.heads().copy_fields(out, |name| {
            let of_content = ["ETag", "Last-Modified", "Cache-Control"];
            !is_framing(name) && !of_content.iter().any(|field| is(name, field))
        });
        if self.status == Status::RANGE_NOT_SATISFIABLE {
            let range = format!("bytes */{}", self.variant.size());
            push_field(out, "Content-Range", range.as_bytes());
        }
        push_field(out, "Content-Length", b"0");
    }

    /// Writes the 304 head of the plain variant with the entity tag of the gzip variant, which the client
    /// has.
    fn replace_tag(&self, out: &mut Vec<u8>) {
        let head = self.heads().not_modified();
        let tag = self.variant.tag();
        let Some(at) = head.windows(tag.len()).position(|window| window == tag) else {
            return out.extend_from_slice(head);
        };
        let quote = at + tag.len() - 1;
        out.extend_from_slice(&head[..quote]);
        out.push(b'-');
        out.extend_from_slice(coding_mark(ContentCoding::Gzip).as_bytes());
        out.extend_from_slice(&head[quote..]);
    }
}

/// Fields omitted from error pages, which are not cached, compared, or sent in ranges.
const NOT_IN_ERRORS: [&str; 5] = [
    "ETag",
    "Last-Modified",
    "Accept-Ranges",
    "Cache-Control",
    "Vary",
];

fn cut(content: &VariantContent, start: u64, end: u64) -> Option<BodyPiece<'_>> {
    if start >= end {
        return None;
    }
    match content {
        // `start` and `end` lie within the content in memory, so both fit into usize.
        VariantContent::Memory(bytes) => {
            Some(BodyPiece::Bytes(bytes.get(start as usize..end as usize)?))
        }
        VariantContent::Disk(disk) => Some(BodyPiece::File {
            content: disk,
            offset: start,
            len: end - start,
        }),
    }
}
