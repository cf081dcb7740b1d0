//! Fields that a driver adds to a response head: Server, Date, Connection and the site's security fields;
//! and the head of a handler's response in HTTP/2 and HTTP/3.

use crate::handler::{Response, ResponseBody};
use crate::serve::connection::AfterResponse;
use crate::world::SecureFields;
use wire::fields::Fields;
use wire::h2::hpack;
#[cfg(feature = "http3")]
use wire::h3::qpack;
use wire::request_head::Version;
use wire::status::Status;

/// Compression of fields in a version of HTTP.
pub(super) trait FieldCompression {
    /// Appends `:status`, the first field of a response.
    fn push_status(status: u16, out: &mut Vec<u8>);
    /// Begins a trailer section.
    fn begin_trailers(out: &mut Vec<u8>);
    /// Appends a field.
    fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>);
    /// Appends the fields in lines of HTTP/1.1.
    fn push_lines(lines: &[u8], out: &mut Vec<u8>);
    /// Appends Date.
    fn push_date(value: &[u8; 29], out: &mut Vec<u8>);
    /// Returns the encoded security fields.
    fn encoded(fields: &SecureFields) -> &[u8];
}

/// HPACK, the compression of HTTP/2.
pub(super) enum Hpack {}

/// QPACK, the compression of HTTP/3.
#[cfg(feature = "http3")]
pub(super) enum Qpack {}

impl FieldCompression for Hpack {
    fn push_status(status: u16, out: &mut Vec<u8>) {
        hpack::push_status(status, out);
    }

    fn begin_trailers(_out: &mut Vec<u8>) {}

    fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        hpack::push_field(name, value, out);
    }

    fn push_lines(lines: &[u8], out: &mut Vec<u8>) {
        hpack::push_lines(lines, out);
    }

    fn push_date(value: &[u8; 29], out: &mut Vec<u8>) {
        hpack::push_date(value, out);
    }

    fn encoded(fields: &SecureFields) -> &[u8] {
        &fields.block
    }
}

#[cfg(feature = "http3")]
impl FieldCompression for Qpack {
    fn push_status(status: u16, out: &mut Vec<u8>) {
        qpack::push_status(status, out);
    }

    fn begin_trailers(out: &mut Vec<u8>) {
        qpack::begin_section(out);
    }

    fn push_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        qpack::push_field(name, value, out);
    }

    fn push_lines(lines: &[u8], out: &mut Vec<u8>) {
        qpack::push_lines(lines, out);
    }

    fn push_date(value: &[u8; 29], out: &mut Vec<u8>) {
        qpack::push_date(value, out);
    }

    fn encoded(fields: &SecureFields) -> &[u8] {
        &fields.section
    }
}

/// Appends `block`, the field lines `lines`, the security fields and `date`, a field line. `date` is None if
/// `block` has a Date.
#[inline]
pub(super) fn push_fields<C: FieldCompression>(
    block: &[u8],
    lines: &[u8],
    secure_fields: Option<&SecureFields>,
    date: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(block);
    if !lines.is_empty() {
        C::push_lines(lines, out);
    }
    if let Some(secure) = secure_fields {
        out.extend_from_slice(C::encoded(secure));
    }
    let value = date.and_then(|date| date.get(DATE_NAME_BYTES..));
    if let Some(value) = value.and_then(<[u8]>::first_chunk) {
        C::push_date(value, out);
    }
}

/// Returns the encoded head of a handler's response, without the security fields. `date` is the field line
/// with the current time.
pub(super) fn handler_block<C: FieldCompression>(response: &Response, date: &[u8]) -> Vec<u8> {
    let status = *response.status;
    let mut block = Vec::new();
    C::push_status(status.0, &mut block);
    let mut lines = Vec::with_capacity(64);
    push_server_and_date(response, date, &mut lines);
    C::push_lines(&lines, &mut block);
    C::push_lines(response.fields.lines(), &mut block);
    let length = content_length(&response.body);
    if let Some(length) = length.filter(|_| !is_without_content(status)) {
        C::push_field(b"content-length", length.to_string().as_bytes(), &mut block);
    }
    block
}

/// Returns the length of a handler's content, if the handler announced a length.
pub(super) fn content_length(body: &ResponseBody) -> Option<u64> {
    match body {
        ResponseBody::Empty => Some(0),
        ResponseBody::Whole(bytes) => Some(bytes.len() as u64),
        ResponseBody::Stream { length, .. } => *length,
    }
}

/// Returns true if a response with the status has no content (RFC 9110 §6.4.1).
pub(super) fn is_without_content(status: Status) -> bool {
    matches!(status.0, 100..=199 | 204 | 304)
}

/// Appends the Server and Date lines for a handler's response, except a line already present as a field of
/// the response: the operator may have set another Server, and a script or a page may carry the Date of its
/// content. `date` is the line with the current time.
pub(super) fn push_server_and_date(response: &Response, date: &[u8], out: &mut Vec<u8>) {
    let present = Fields(response.fields.lines()).contain(["Server", "Date"]);
    for (line, is_present) in [&b"Server: anthill\r\n"[..], date].into_iter().zip(present) {
        if !is_present {
            out.extend_from_slice(line);
        }
    }
}

/// Appends the fields of an HTTP/1.1 connection: Connection, and the site's security fields under TLS.
#[inline]
pub(super) fn push_connection_lines(
    fields: &mut Vec<u8>,
    version: Version,
    after: AfterResponse,
    secure_fields: Option<&SecureFields>,
) {
    match (after, version) {
        (AfterResponse::Keep, Version::Http11) => {}
        (AfterResponse::Keep, Version::Http10) => {
            fields.extend_from_slice(b"Connection: keep-alive\r\n")
        }
        _ => fields.extend_from_slice(b"Connection: close\r\n"),
    }
    if let Some(secure) = secure_fields {
        fields.extend_from_slice(&secure.lines);
    }
}

/// Length of `Date: `.
const DATE_NAME_BYTES: usize = 6;
