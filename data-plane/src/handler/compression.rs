//! Compression of the responses of members and scripts with gzip or zstd.
//!
//! The decision depends on the heads, and on the length of the content. A response that is compressed for some clients names
//! `Accept-Encoding` in Vary for all clients. The compressed length of a page that has both a secret and text of an
//! attacker reveals the secret (BREACH), so a response for one user is compressed only for requests that no foreign page
//! can make.

mod coder;
mod compressed_stream;

pub(crate) use self::coder::{release_coders, release_unused_coders};
use crate::handler::compression::coder::{CODINGS, coder_bytes};
use crate::handler::compression::compressed_stream::compressed;
use crate::handler::pipe::pipe;
use crate::handler::{Request, Response, ResponseBody};
use crate::ledger::body_memory::{BodyAccount, BodyPurpose, BodyReservation};
use crate::limits::COMPRESSED_BYTES_MIN;
use release::mime::compressible;
use wire::cache_control::CacheControl;
use wire::etag::ETag;
use wire::fields::{AcceptedCodings, ContentCoding, Fields, items};
use wire::request_head::{Method, RequestHead};
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Rule of a route for the compression of its responses.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub enum CompressionRule {
    /// No response is compressed.
    Never,
    /// Texts are compressed, those for one user only where no foreign page can measure the length.
    #[default]
    Texts,
    /// All texts are compressed.
    Always,
}

/// Facts in the head of a request that decide about the compression of the response.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CompressionQuestion {
    rule: CompressionRule,
    /// Coding of the response; identity for a client that accepts neither gzip nor zstd.
    coding: ContentCoding,
    /// True if the client knows a response by a weak tag, which may be that of a compressed response.
    knows_weak_tag: bool,
    /// True if the request holds only for a response with a weak tag, which no handler has.
    matches_weak_tag: bool,
    /// True if the client asks for the rest of a response by the date of the response. The client may have the beginning of
    /// the compressed response.
    resumes_by_date: bool,
    /// True if the response may be for one user, or for few.
    is_personal: bool,
}

impl CompressionQuestion {
    /// Reads the head of a request. Returns None if the rule or the request excludes every change of the response. The usual
    /// request costs no search among its fields. `is_for_few` is true if a guard of the path admits some clients alone.
    pub(crate) fn of(
        rule: CompressionRule,
        head: &RequestHead<'_>,
        is_for_few: bool,
    ) -> Option<CompressionQuestion> {
        // A tunnel is no text.
        if rule == CompressionRule::Never || head.upgrade.is_some() {
            return None;
        }
        let known = &head.known_fields;
        let coding = if known.accept_encoding.is_none() {
            ContentCoding::Identity
        } else {
            AcceptedCodings::from_values(&known.accept_encoding).choose(&CODINGS)
        };
        Some(CompressionQuestion {
            rule,
            coding,
            knows_weak_tag: known.if_none_match.lines().any(has_weak_tag),
            matches_weak_tag: known.if_match.lines().any(has_weak_tag),
            resumes_by_date: known.range.is_some()
                && known
                    .if_range
                    .is_some_and(|value| ETag::parse(value).is_none()),
            is_personal: is_for_few || known.cookie || known.authorization.is_some(),
        })
    }

    /// Returns true if the client knows the response by a weak tag.
    pub(super) fn knows_weak_tag(&self) -> bool {
        self.knows_weak_tag
    }

    /// Returns the changed fields of the request for the handler; None if the handler gets the client's fields. The handler
    /// gets the strong form of each weak tag, which may be the tag of a compressed response, and no range that would
    /// continue a compressed response.
    pub(super) fn fields_for_handler(&self, lines: &[u8]) -> Option<Vec<u8>> {
        let has_tags = self.knows_weak_tag || self.matches_weak_tag;
        let resumes = self.resumes_by_date && self.accepts_coding();
        (has_tags || resumes).then(|| with_plain_conditions(lines, resumes))
    }

    /// Returns true if the response may be compressed.
    pub(super) fn accepts_coding(&self) -> bool {
        self.coding != ContentCoding::Identity
    }

    /// Adds the facts about `request` that its head does not give.
    pub(super) fn with(self, request: &Request) -> CompressionRequest {
        CompressionRequest {
            question: CompressionQuestion {
                is_personal: self.is_personal || request.user.is_some(),
                ..self
            },
            is_head: request.method == Method::Head,
            is_own: is_own_page(Fields(&request.fields)),
            memory: request.memory.clone(),
        }
    }
}

/// Request of a client that accepts a coding, or that knows a response by a weak tag.
pub(super) struct CompressionRequest {
    question: CompressionQuestion,
    is_head: bool,
    /// True if the request comes from a page of the same origin, or from the user.
    is_own: bool,
    /// Account of the call.
    memory: BodyAccount,
}

impl CompressionRequest {
    /// Returns the response, compressed where the rule allows. Waits for the beginning of a content of unknown length.
    pub(super) async fn apply(self, mut response: Response) -> Response {
        if *response.status == Status::NOT_MODIFIED {
            if self.question.knows_weak_tag {
                // The tag of the stored response is the weak one.
                weaken_tag(&mut response.fields);
            }
            note_variation(&mut response);
            return response;
        }
        // The target of an internal redirect, a file or the page of a handler, already has its own coding.
        if response.has_operator_fields || !vary_if_text(&mut response) {
            return response;
        }
        let coding = self.question.coding;
        if coding == ContentCoding::Identity || !self.may_compress(&response.fields) {
            return response;
        }
        let mut memory = BodyReservation::new(&self.memory);
        if !self.is_head && !memory.try_grow(coder_bytes(coding), BodyPurpose::ReadAhead) {
            return response;
        }
        let body = std::mem::replace(&mut response.body, ResponseBody::Empty);
        let (body, is_coded) = if self.is_head {
            (nothing_of_unknown_length(), true)
        } else {
            compressed(body, coding, memory).await
        };
        response.body = body;
        if is_coded {
            describe_as(coding, &mut response.fields);
        }
        response
    }

    /// Returns true if the length of the compressed response may be seen.
    fn may_compress(&self, fields: &ResponseFields) -> bool {
        if self.question.rule == CompressionRule::Always || self.is_own {
            return true;
        }
        let control = CacheControl::read(fields.all("cache-control"));
        let is_for_one =
            self.question.is_personal || control.private || fields.first("set-cookie").is_some();
        !is_for_one
    }
}

/// Returns true if a request comes from a page of the same origin, or from the user.
pub(crate) fn is_own_page(fields: Fields<'_>) -> bool {
    let site = fields.first("sec-fetch-site");
    matches!(site, Some(b"same-origin" | b"none"))
}

/// Adds the strong form of each weak tag to If-None-Match and If-Match of a request. A compressed response has the weak form
/// of its handler's tag, and many handlers compare tags as texts. Where the handler's own tag is weak, the strong form
/// names no response. Without range if `drops_range`: the handler then answers with the whole content.
fn with_plain_conditions(lines: &[u8], drops_range: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + 64);
    for (name, value) in Fields(lines) {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if drops_range && (is(b"range") || is(b"if-range")) {
            continue;
        }
        for part in [name, b": ", value] {
            out.extend_from_slice(part);
        }
        if is(b"if-none-match") || is(b"if-match") {
            for strong in items(value).filter_map(|tag| tag.strip_prefix(b"W/")) {
                out.extend_from_slice(b", ");
                out.extend_from_slice(strong);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Returns true if a value of If-None-Match or If-Match has a weak tag.
fn has_weak_tag(value: &[u8]) -> bool {
    items(value).any(|tag| tag.starts_with(b"W/\""))
}

/// Names Accept-Encoding in Vary of a text for a client that accepts no coding, and of a 304 response, which has the fields of
/// the whole response (RFC 9110 §15.4.5).
pub(super) fn note_variation(response: &mut Response) {
    if response.has_operator_fields {
        return;
    }
    if *response.status == Status::NOT_MODIFIED {
        let media_type = response.fields.first("content-type");
        let media_type = media_type.map(std::str::from_utf8);
        // Most 304 responses do not tell the type.
        if media_type.is_none_or(|it| it.is_ok_and(compressible)) {
            vary(&mut response.fields);
        }
        return;
    }
    vary_if_text(response);
}

/// Names Accept-Encoding in Vary, and returns true, if the response is a text that compression makes shorter, and no other
/// party has coded it or forbids changes of its bytes.
fn vary_if_text(response: &mut Response) -> bool {
    let is_long = match &response.body {
        ResponseBody::Empty => false,
        ResponseBody::Whole(bytes) => bytes.len() >= COMPRESSED_BYTES_MIN,
        ResponseBody::Stream { length, .. } => {
            length.is_none_or(|length| length >= COMPRESSED_BYTES_MIN as u64)
        }
    };
    if !is_long || matches!(response.status.0, 100..=199 | 204 | 205 | 206 | 304) {
        return false;
    }
    let fields = Fields(response.fields.lines());
    let media_type = fields.first("content-type").map(std::str::from_utf8);
    if !media_type.is_some_and(|it| it.is_ok_and(compressible)) {
        return false;
    }
    let [has_coding, has_range, has_control, has_vary] =
        fields.contain(["content-encoding", "content-range", "cache-control", "vary"]);
    let forbids = || {
        let mut directives = fields.all("cache-control").flat_map(items);
        directives.any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
    };
    if has_coding || has_range || (has_control && forbids()) {
        return false;
    }
    if has_vary {
        vary(&mut response.fields);
    } else {
        response.fields.push(b"Vary", b"Accept-Encoding");
    }
    true
}

/// Names Accept-Encoding in Vary, unless a line names it or all fields.
fn vary(fields: &mut ResponseFields) {
    let is_coding = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    if !fields.all("vary").flat_map(items).any(is_coding) {
        fields.push(b"Vary", b"Accept-Encoding");
    }
}

/// Turns the fields of the plain content into those of the compressed content.
fn describe_as(coding: ContentCoding, fields: &mut ResponseFields) {
    fields.retain(|name, _| {
        !OF_THE_PLAIN_BYTES
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name))
    });
    weaken_tag(fields);
    fields.push(b"Content-Encoding", coding.token().as_bytes());
}

/// Fields that hold for the plain bytes alone.
const OF_THE_PLAIN_BYTES: [&[u8]; 6] = [
    b"Content-Length",
    b"Accept-Ranges",
    b"Content-MD5",
    b"Digest",
    b"Content-Digest",
    b"Repr-Digest",
];

/// Makes a strong ETag weak: the compressed bytes differ from those of the handler (RFC 9110 §8.8.1).
fn weaken_tag(fields: &mut ResponseFields) {
    if fields
        .first("etag")
        .is_none_or(|tag| tag.starts_with(b"W/"))
    {
        return;
    }
    let mut weak = ResponseFields::new();
    for (name, value) in fields.iter() {
        if name.eq_ignore_ascii_case(b"etag") && !value.starts_with(b"W/") {
            weak.push(name, &[b"W/", value].concat());
        } else {
            weak.push(name, value);
        }
    }
    *fields = weak;
}

/// Returns the body of a response to HEAD. The length of the compressed content is not known.
fn nothing_of_unknown_length() -> ResponseBody {
    let (writer, reader) = pipe(1);
    writer.finish();
    ResponseBody::Stream {
        length: None,
        reader,
        work: Box::pin(std::future::ready(())),
    }
}

#[cfg(test)]
mod tests;
