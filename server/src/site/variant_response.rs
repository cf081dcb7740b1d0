//! An answer from a stored page: a variant, and which part of it is sent under which status.

use crate::base::number_text::push_number;
use crate::site::load::coding_mark;
use crate::site::prepared_heads::{is, is_framing, push_field};
use crate::site::variant::{DiskContent, Variant, VariantContent};
use crate::wire::fields::ContentCoding;
use crate::wire::h2::hpack;
use crate::wire::h3::qpack;
use crate::wire::range::RangeList;
use crate::wire::reject::Reject;
use crate::wire::status::{Status, StatusLine};
use std::sync::Arc;

/// What is sent for a stored page. It holds all it needs, so the site may be exchanged meanwhile.
pub struct VariantResponse {
    /// 200, 206, 304, 412, 416, or that of an error page.
    pub status: Status,
    /// What is sent.
    pub variant: Arc<Variant>,
    /// How much of it.
    pub part: BodySelection,
    /// It is what `try` names for every path at which there is nothing.
    pub stands_in: bool,
    /// The 304 is for the gzip of this plain variant, which isn't there now.
    pub(super) of_made: bool,
    /// A response that was kept says so.
    pub(super) kept: Option<AgeAndLifetime>,
}

/// What a response that was kept says of itself (RFC 9111 §5.1, RFC 9211).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AgeAndLifetime {
    /// Seconds since it was made.
    pub age_seconds: u64,
    /// Seconds for which it is fresh; negative once it is stale.
    pub ttl_seconds: i64,
}

/// How much of a variant is sent.
pub enum BodySelection {
    /// All.
    Whole,
    /// The head alone: HEAD, 304, 412, 416.
    Nothing,
    /// From `start` up to but not including `end`, bytes.
    One {
        /// The first byte.
        start: u64,
        /// The byte behind the last.
        end: u64,
    },
    /// Several ranges as `multipart/byteranges`.
    Several(Box<Multipart>),
}

/// A piece of a body.
pub enum BodyPiece<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// These bytes of an open file.
    File {
        /// The file; ask [`DiskContent::unchanged`] before and after sending.
        content: &'a DiskContent,
        /// Where they begin.
        offset: u64,
        /// How many.
        len: u64,
    },
}

/// Several ranges with what stands between them (RFC 9110 §14.6).
pub struct Multipart {
    boundary: String,
    /// All part heads one after the other, and the closing line.
    text: Vec<u8>,
    /// Of each part: where its head ends in `text`, and its range.
    parts: Vec<(usize, u64, u64)>,
}

impl Multipart {
    /// `ranges` as (first, last), both included; `boundary` must not occur in the content.
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
            stands_in: false,
            of_made: false,
            kept: None,
        }
    }

    /// Was it kept from an earlier request?
    pub fn is_from_cache(&self) -> bool {
        self.kept.is_some()
    }

    /// Does its head say when it was made? Then nobody else is to say it.
    pub fn is_dated(&self) -> bool {
        self.variant.is_dated
    }

    /// Appends the field lines that differ from one sending to the next.
    pub fn push_changing(&self, out: &mut Vec<u8>) {
        if let Some(kept) = &self.kept {
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

    /// The head from its first line to the line end of its last field. Date, Connection,
    /// Strict-Transport-Security and the empty line are the driver's. For 200 and 304 it is there
    /// already, else it is made in `scratch`, whose content is lost.
    pub fn head<'s>(&'s self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let heads = &self.variant.heads;
        match self.status {
            status if status == self.variant.status => return heads.ok(),
            Status::NOT_MODIFIED if !self.of_made => return heads.not_modified(),
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

    /// The same as a field block for HTTP/2, without what is the driver's.
    pub fn block<'s>(&'s self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let heads = &self.variant.heads;
        match self.status {
            status if status == self.variant.status => return heads.ok_block(),
            Status::NOT_MODIFIED if !self.of_made => return heads.not_modified_block(),
            _ => {}
        }
        let mut block = Vec::new();
        hpack::push_head(self.status.0, self.head(scratch), &mut block);
        *scratch = block;
        scratch
    }

    /// The same as a field section for HTTP/3, without what is the driver's.
    pub fn section<'s>(&'s self, scratch: &'s mut Vec<u8>) -> &'s [u8] {
        let heads = &self.variant.heads;
        match self.status {
            status if status == self.variant.status => return heads.ok_section(),
            Status::NOT_MODIFIED if !self.of_made => return heads.not_modified_section(),
            _ => {}
        }
        let mut section = Vec::new();
        qpack::push_head(self.status.0, self.head(scratch), &mut section);
        *scratch = section;
        scratch
    }

    /// Bytes of the body.
    pub fn body_len(&self) -> u64 {
        match &self.part {
            BodySelection::Whole => self.variant.size(),
            BodySelection::Nothing => 0,
            BodySelection::One { start, end } => end - start,
            BodySelection::Several(multipart) => multipart.len(),
        }
    }

    /// The body piece by piece, none of them empty; None behind the last.
    pub fn piece(&self, nth: usize) -> Option<BodyPiece<'_>> {
        let content = &self.variant.content;
        match &self.part {
            BodySelection::Whole if nth == 0 => cut(content, 0, content.size()),
            BodySelection::One { start, end } if nth == 0 => cut(content, *start, *end),
            BodySelection::Several(multipart) => multipart.piece(nth, content),
            _ => None,
        }
    }

    /// The whole body, where it is sent whole and is in memory.
    pub fn whole_memory(&self) -> Option<&[u8]> {
        match (&self.part, &self.variant.content) {
            (BodySelection::Whole, VariantContent::Memory(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The rule that the log prints, where the answer is a refusal of a condition or a range.
    pub fn reject(&self) -> Option<Reject> {
        match self.status {
            Status::PRECONDITION_FAILED => Some(Reject::PRECONDITION),
            Status::RANGE_NOT_SATISFIABLE => Some(Reject::RANGE),
            _ => None,
        }
    }

    fn partial_fields(&self, out: &mut Vec<u8>) {
        let several = matches!(self.part, BodySelection::Several(_));
        self.variant.heads.copy_fields(out, |name| {
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
        self.variant.heads.copy_fields(out, |name| {
            let of_the_page = ["ETag", "Last-Modified", "Cache-Control"];
            !is_framing(name) && !of_the_page.iter().any(|field| is(name, field))
        });
        if self.status == Status::RANGE_NOT_SATISFIABLE {
            let range = format!("bytes */{}", self.variant.size());
            push_field(out, "Content-Range", range.as_bytes());
        }
        push_field(out, "Content-Length", b"0");
    }

    /// The 304 of the plain variant with the tag of its gzip: the client has that one.
    fn replace_tag(&self, out: &mut Vec<u8>) {
        let head = self.variant.heads.not_modified();
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

/// An error page is nothing to be kept, compared or cut.
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
        // Both lie within the content, which is in memory, so they fit.
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
