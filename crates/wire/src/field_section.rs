//! Field section of an HTTP/2 or HTTP/3 message (RFC 9113 §8.3, RFC 9114 §4.3), stored as the field lines
//! that HTTP/1.1 would have sent. A [`RequestHead`] or a
//! [`ResponseHead`](crate::h1::response_head::ResponseHead) borrows the text, and later stages handle a
//! single kind of head for all versions.

use crate::byte_search;
use crate::fields::Fields;
use crate::h1::body_decoder::BodyLength;
use crate::limits::{HEAD_BOMB_FACTOR, HeadLimits, TRAILER_BYTES_MAX};
use crate::priority::Priority;
use crate::reject::Reject;
use crate::request_head::{Method, RequestHead, Version};
use crate::request_head_builder::{RequestHeadBuilder, RequestLine};
use crate::request_target::{EncodedSlash, encode_raw_text, is_raw_text, parse_target_with};
use crate::trailers::allowed_trailers;
use crate::upgrade::{carries_requests, is_protocol};
use std::ops::Range;

mod response;

/// Fields of one decoded field section, collected field by field and read by `head`.
#[derive(Clone, Default)]
pub struct FieldSection {
    version: Version,
    /// Values of the pseudo-header fields, the field lines, and the request line.
    text: Vec<u8>,
    method: Span,
    scheme: Span,
    authority: Span,
    path: Span,
    protocol: Span,
    status: Span,
    line: Span,
    /// Position of the first field line in `text`, once a field has arrived.
    fields_start: Option<usize>,
    fields_end: usize,
    /// Positions for each field line: first byte of the name, first byte of the value, end of the value.
    fields: Vec<[u32; 3]>,
    /// Cookie crumbs, joined into one field (RFC 9113 §8.2.3).
    cookie: Vec<u8>,
    priority: Option<Priority>,
    /// The peer ended the stream with this field section.
    ended: bool,
    kind: SectionKind,
    /// Size as the peer counts it (RFC 9113 §10.5.1).
    size: usize,
    count: usize,
    bounds: FieldSectionLimits,
    fault: Option<Reject>,
}

/// Kind of a field section, which decides on the pseudo-header fields and the bounds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum SectionKind {
    /// Head of a request.
    #[default]
    Request,
    /// Trailers of a request, without pseudo-header fields.
    RequestTrailers,
    /// Head of a response, interim or final.
    Response,
    /// Trailers of a response, without pseudo-header fields. gRPC sends its status in trailers, so the bounds
    /// are those of a head.
    ResponseTrailers,
}

/// Field section of several times the allowed size, which no honest client sends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FieldSectionBomb;

type Span = Option<(u32, u32)>;

#[derive(Copy, Clone, Default)]
struct FieldSectionLimits {
    line_bytes: usize,
    section_bytes: usize,
    /// Size of a section that no honest client sends.
    bomb_bytes: usize,
    fields: usize,
    slash: EncodedSlash,
}

impl FieldSection {
    /// Clears the section for a new field block.
    pub fn begin(&mut self, version: Version, limits: &HeadLimits, ended: bool, kind: SectionKind) {
        self.version = version;
        // Clearing in place keeps the buffers and copies nothing.
        self.text.clear();
        self.fields.clear();
        self.cookie.clear();
        self.method = None;
        self.scheme = None;
        self.authority = None;
        self.path = None;
        self.protocol = None;
        self.status = None;
        self.line = None;
        self.fields_start = None;
        self.fields_end = 0;
        self.priority = None;
        self.ended = ended;
        self.kind = kind;
        self.size = 0;
        self.count = 0;
        self.bounds = FieldSectionLimits {
            line_bytes: limits.request_line_bytes,
            section_bytes: match kind {
                SectionKind::RequestTrailers => TRAILER_BYTES_MAX,
                _ => limits.head_bytes,
            },
            bomb_bytes: limits.head_bytes * HEAD_BOMB_FACTOR,
            fields: limits.fields,
            slash: EncodedSlash::of(limits),
        };
        self.fault = None;
    }

    /// Adds a field. A fault is recorded instead of returned, since decoding must reach the end of the
    /// block: the compression state of the next block depends on each field.
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldSectionBomb> {
        self.size += name.len() + value.len() + FIELD_OVERHEAD;
        if self.size > self.bounds.bomb_bytes {
            return Err(FieldSectionBomb);
        }
        if self.fault.is_none()
            && let Err(reject) = self.take(name, value)
        {
            self.fault = Some(reject);
        }
        Ok(())
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        if self.size > self.bounds.section_bytes {
            return Err(match self.kind {
                SectionKind::RequestTrailers => Reject::TRAILER_TOO_LARGE,
                _ => Reject::HEAD_TOO_LARGE,
            });
        }
        if byte_search::value_end(value, 0) != value.len()
            || byte_search::trim(value).len() != value.len()
        {
            return Err(Reject::FIELD_VALUE);
        }
        if let Some((b':', name)) = name.split_first() {
            return self.pseudo(name, value);
        }
        if name.is_empty() || !name.iter().all(|byte| is_name(*byte)) {
            return Err(Reject::FIELD_NAME);
        }
        self.count += 1;
        if self.count > self.bounds.fields {
            return Err(Reject::FIELDS_TOO_MANY);
        }
        self.begin_fields();
        match name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding"
            | b"upgrade" => return Err(Reject::FIELD_OF_HTTP_1),
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(Reject::FIELD_OF_HTTP_1);
            }
            b"cookie" if self.kind == SectionKind::Request => {
                let glue: &[u8] = if self.cookie.is_empty() { b"" } else { b"; " };
                self.cookie.extend_from_slice(glue);
                self.cookie.extend_from_slice(value);
                return Ok(());
            }
            // Host may repeat `:authority`; a different value would be a second host.
            b"host" if self.authority.is_some() => {
                let is_same = self
                    .value(self.authority)
                    .is_some_and(|it| it.eq_ignore_ascii_case(value));
                return is_same.then_some(()).ok_or(Reject::HOST_DUPLICATE);
            }
            b"priority" => self.priority = Some(Priority::parse(value)),
            _ => {}
        }
        self.push_line(name, value);
        Ok(())
    }

    /// Adds a pseudo-header field (RFC 9113 §8.3): known, at most once, and before all other fields.
    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        if self.fields_start.is_some() {
            return Err(Reject::PSEUDO_FIELDS);
        }
        let start = self.text.len() as u32;
        if name == b"path" && is_raw_text(value) {
            // The later stages meet a single spelling of a target.
            encode_raw_text(value, &mut self.text)
        } else {
            self.text.extend_from_slice(value)
        }
        let end = self.text.len() as u32;
        let span = match (self.kind, name) {
            (SectionKind::Request, b"method") => &mut self.method,
            (SectionKind::Request, b"scheme") => &mut self.scheme,
            (SectionKind::Request, b"authority") => &mut self.authority,
            (SectionKind::Request, b"path") => &mut self.path,
            (SectionKind::Request, b"protocol") => &mut self.protocol,
            (SectionKind::Response, b"status") => &mut self.status,
            _ => return Err(Reject::PSEUDO_FIELDS),
        };
        match span.replace((start, end)) {
            None => Ok(()),
            Some(_) => Err(Reject::PSEUDO_FIELDS),
        }
    }

    /// Starts the field lines with Host, taken from `:authority`.
    fn begin_fields(&mut self) {
        if self.fields_start.is_some() {
            return;
        }
        self.fields_start = Some(self.text.len());
        if let Some(authority) = self.range(self.authority) {
            let start = self.text.len();
            self.text.extend_from_slice(b"host: ");
            let value = self.text.len();
            self.text.extend_from_within(authority);
            self.end_line(start, value);
        }
    }

    fn push_line(&mut self, name: &[u8], value: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(name);
        self.text.push(b':');
        self.text.push(b' ');
        let value_start = self.text.len();
        self.text.extend_from_slice(value);
        self.end_line(start, value_start);
    }

    fn end_line(&mut self, start: usize, value: usize) {
        let places = [start, value, self.text.len()];
        self.fields.push(places.map(|place| place as u32));
        self.text.push(b'\r');
        self.text.push(b'\n');
    }

    /// Completes the section after its last field: adds the Cookie line and the request line.
    pub fn end(&mut self) {
        self.begin_fields();
        if !self.cookie.is_empty() {
            let cookie = std::mem::take(&mut self.cookie);
            self.push_line(b"cookie", &cookie);
            self.cookie = cookie;
            self.cookie.clear();
        }
        self.fields_end = self.text.len();
        if self.kind == SectionKind::Request {
            if self.fault.is_none() && !self.has_required_pseudo_fields() {
                self.fault = Some(Reject::PSEUDO_FIELDS);
            }
            self.push_request_line();
        }
    }

    /// Returns the first fault found in the fields.
    pub fn fault(&self) -> Option<Reject> {
        self.fault
    }

    /// Returns the trailers that may pass to the handler, as field lines with CRLF.
    pub fn trailers(&self) -> Vec<u8> {
        let start = self.fields_start.unwrap_or(self.fields_end);
        allowed_trailers(&self.text[start..self.fields_end])
    }

    /// Returns true if the required pseudo-header fields are present (RFC 9113 §8.3.1, §8.5), and
    /// `:protocol` only in an extended CONNECT (RFC 8441 §4).
    fn has_required_pseudo_fields(&self) -> bool {
        let path = self.value(self.path);
        let has_target = self.scheme.is_some() && path.is_some_and(|path| !path.is_empty());
        match (self.value(self.method), self.value(self.protocol)) {
            (None, _) => false,
            (Some(b"CONNECT"), None) => {
                self.path.is_none() && self.scheme.is_none() && self.authority.is_some()
            }
            (Some(b"CONNECT"), Some(protocol)) => {
                has_target && self.authority.is_some() && is_protocol(protocol)
            }
            (Some(_), protocol) => has_target && protocol.is_none(),
        }
    }

    /// Appends the request line in the form of HTTP/1.1, for the log and for `head`.
    fn push_request_line(&mut self) {
        let start = self.text.len() as u32;
        let target = self.range(self.path.or(self.authority));
        for part in [self.range(self.method), target].into_iter().flatten() {
            self.text.extend_from_within(part);
            self.text.push(b' ');
        }
        self.text.extend_from_slice(match self.version {
            Version::Http3 => b"HTTP/3.0",
            _ => b"HTTP/2.0",
        });
        self.line = Some((start, self.text.len() as u32));
    }

    /// Returns the request line for the log, as far as known.
    pub fn line(&self) -> &[u8] {
        self.value(self.line).unwrap_or_default()
    }

    /// Records that the peer ended the stream right behind this section.
    pub fn end_stream(&mut self) {
        self.ended = true;
    }

    /// Returns the memory that a copy of the section takes, in bytes.
    pub fn held_bytes(&self) -> usize {
        size_of::<FieldSection>() + self.text.len() + size_of_val(&self.fields[..])
    }

    /// Returns the parsed Priority field.
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Builds the request head, or returns the first fault.
    pub fn head(&self) -> Result<RequestHead<'_>, Reject> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut builder = RequestHeadBuilder::default();
        for [name, value, end] in &self.fields {
            let [name, value, end] = [*name as usize, *value as usize, *end as usize];
            builder.add_field(&self.text[name..value - 2], &self.text[value..end])?;
        }
        let fields = &self.text[self.fields_start.unwrap_or(self.fields_end)..self.fields_end];
        let mut head = builder.finish(self.request_line()?, Fields(fields))?;
        head.upgrade = self.value(self.protocol);
        if let Some(protocol) = head.upgrade {
            check_tunnel(protocol, head.body)?;
        }
        match head.body {
            BodyLength::None if !self.ended => head.body = BodyLength::Chunked,
            BodyLength::Length(1..) if self.ended => return Err(Reject::BODY_LENGTH),
            _ => {}
        }
        Ok(head)
    }

    fn request_line(&self) -> Result<RequestLine<'_>, Reject> {
        let text = self.line();
        if text.len() > self.bounds.line_bytes {
            return Err(Reject::LINE_TOO_LONG);
        }
        let name = self.value(self.method).unwrap_or_default();
        let method = Method::from_name(name).ok_or(Reject::METHOD_UNKNOWN)?;
        let scheme = self.value(self.scheme).unwrap_or(b"https");
        let web_schemes = [&b"https"[..], b"http"];
        if !web_schemes.iter().any(|it| it.eq_ignore_ascii_case(scheme)) {
            return Err(Reject::TARGET_MALFORMED);
        }
        // The target of an extended CONNECT is a path, as in other requests (RFC 8441 §4).
        let target_method = match self.protocol {
            Some(_) => Method::Get,
            None => method,
        };
        let target = match (target_method, self.value(self.path)) {
            (Method::Connect, _) => self.value(self.authority),
            (_, Some(path @ [b'/', ..])) => Some(path),
            (Method::Options, Some(b"*")) => Some(&b"*"[..]),
            _ => None,
        };
        Ok(RequestLine {
            text,
            method,
            version: self.version,
            target: parse_target_with(
                target_method,
                target.ok_or(Reject::TARGET_MALFORMED)?,
                self.bounds.slash,
            )?,
        })
    }

    fn value(&self, span: Span) -> Option<&[u8]> {
        self.range(span).map(|range| &self.text[range])
    }

    fn range(&self, span: Span) -> Option<Range<usize>> {
        span.map(|(start, end)| start as usize..end as usize)
    }
}

/// Checks an extended CONNECT: the stream is the tunnel and has no content before, so Content-Length is
/// contradictory.
fn check_tunnel(protocol: &[u8], body: BodyLength) -> Result<(), Reject> {
    if body != BodyLength::None {
        return Err(Reject::BODY_LENGTH);
    }
    if carries_requests(protocol) {
        Err(Reject::PROTOCOL_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Bytes counted for each field beside its name and value (RFC 9113 §6.5.2, RFC 9114 §4.2.2).
const FIELD_OVERHEAD: usize = 32;

/// Returns true if `byte` may stand in a field name (RFC 9113 §8.2.1).
fn is_name(byte: u8) -> bool {
    byte_search::is_token(byte) && !byte.is_ascii_uppercase()
}
