//! Strict parser of HTTP/1.0 and HTTP/1.1 response heads (RFC 9112 §4), for responses of members and of ACME
//! directories.
//!
//! The parser makes one pass over the bytes and copies nothing. Response splitting and cache poisoning exploit
//! two parsers that disagree on a message; each line therefore has a single interpretation, and a doubtful
//! line is refused.
//!
//! The result depends on the bytes alone, never on their split: lines are checked in order, each after its
//! line feed has arrived or the head is too large.

use crate::byte_search;
use crate::fields::{Fields, items};
use crate::framing_fields::{TransferCoding, content_length};
use crate::h1::body_decoder::BodyLength;
use crate::h1::field_line::{LINE_END, MalformedFieldLine, ParsedFieldLine, field_line};
use crate::reject::Reject;
use crate::request_head::Method;
use crate::status::Status;

/// Result of parsing the bytes received so far.
#[derive(Debug)]
pub enum ParsedResponse<'a> {
    /// Complete head.
    Complete {
        /// The response head.
        head: ResponseHead<'a>,
        /// Length of the head; the body or the next response follows.
        head_bytes: usize,
    },
    /// The head is incomplete.
    Partial,
}

/// Head of a response, interim or final.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// Status, 100 to 599.
    pub status: Status,
    /// Minor version of HTTP/1, 0 or 1.
    pub minor_version: u8,
    /// Reason phrase without control characters; may be empty.
    pub reason: &'a [u8],
    /// Every field line, in order.
    pub fields: Fields<'a>,
    /// Framing of the response's body.
    pub body: ResponseLength,
    /// Value of Content-Length. A response to HEAD and a response with status 304 have no body and may state
    /// the length of the representation.
    pub content_length: Option<u64>,
    /// The connection may serve another request after the response (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// At least one Connection line was sent.
    pub has_connection_options: bool,
    /// Value of Upgrade, which names the new protocol in a response with status 101; empty if sent twice.
    pub upgrade: Option<&'a [u8]>,
    /// At least one Trailer line was sent.
    pub has_trailer: bool,
    /// At least one Date line was sent.
    pub has_date: bool,
    /// At least one Server line was sent.
    pub has_server: bool,
}

/// Length of a response's body (RFC 9112 §6.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ResponseLength {
    /// No body.
    None,
    /// Known length, from Content-Length.
    Length(u64),
    /// Unknown length, with the end marked by the framing.
    Chunked,
    /// Unknown length, with the end of the connection as the end of the body.
    UntilClose,
}

impl ResponseLength {
    /// Returns the length for a `BodyDecoder`; `None` for a body that ends with the connection.
    pub fn framed(self) -> Option<BodyLength> {
        match self {
            ResponseLength::None => Some(BodyLength::None),
            ResponseLength::Length(length) => Some(BodyLength::Length(length)),
            ResponseLength::Chunked => Some(BodyLength::Chunked),
            ResponseLength::UntilClose => None,
        }
    }
}

/// Bounds of a response head.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ResponseHeadBounds {
    /// Largest head in bytes.
    pub head_bytes: usize,
    /// Largest number of field lines.
    pub fields: usize,
}

/// Parses the response head at the start of `buf`, an answer to a request with `request_method`.
///
/// The caller keeps `scanned` between calls and sets 0 for a new head: the number of bytes already
/// examined. A head that arrives byte by byte then costs one search for each byte and one parse for each
/// line.
///
/// # Errors
/// The bytes are no HTTP/1.x response, their framing is doubtful, or the head exceeds a bound.
pub fn parse_response_head<'a>(
    buf: &'a [u8],
    scanned: &mut usize,
    request_method: Method,
    bounds: &ResponseHeadBounds,
) -> Result<ParsedResponse<'a>, Reject> {
    if is_without_new_line(buf, *scanned) {
        *scanned = buf.len();
        return partial(buf, bounds);
    }
    let parsed = parse(buf, request_method, bounds)?;
    if matches!(parsed, ParsedResponse::Partial) {
        *scanned = buf.len();
    }
    Ok(parsed)
}

/// Returns true if the bytes behind `scanned` complete no line. The first bytes go through the full parse,
/// which refuses another protocol at once.
fn is_without_new_line(buf: &[u8], scanned: usize) -> bool {
    scanned > VERSION_BYTES && byte_search::find(buf, b'\n', scanned).is_none()
}

/// Returns the result for an incomplete line at the end of `buf`.
fn partial<'a>(buf: &[u8], bounds: &ResponseHeadBounds) -> Result<ParsedResponse<'a>, Reject> {
    if buf.len() > bounds.head_bytes {
        return Err(Reject::UPSTREAM_HEAD_TOO_LARGE);
    }
    Ok(ParsedResponse::Partial)
}

fn parse<'a>(
    buf: &'a [u8],
    request_method: Method,
    bounds: &ResponseHeadBounds,
) -> Result<ParsedResponse<'a>, Reject> {
    // A line that ends behind the limit is not examined.
    let window = &buf[..buf.len().min(bounds.head_bytes)];
    let Some(line) = StatusLineParts::parse(window)? else {
        return partial(buf, bounds);
    };
    let mut builder = ResponseHeadBuilder::default();
    let mut at = line.bytes;
    let mut count = 0;
    loop {
        match field_line(window, at).map_err(rule)? {
            ParsedFieldLine::Field { name, value, next } => {
                count += 1;
                if count > bounds.fields {
                    return Err(Reject::UPSTREAM_HEAD_TOO_LARGE);
                }
                builder.add_field(name, value)?;
                at = next;
            }
            ParsedFieldLine::Empty => break,
            ParsedFieldLine::Unfinished => return partial(buf, bounds),
        }
    }
    Ok(ParsedResponse::Complete {
        head: builder.finish(&line, Fields(&window[line.bytes..at]), request_method)?,
        head_bytes: at + LINE_END.len(),
    })
}

/// Returns the lines of a refused head that break the rule, without their ends, for a log. The list is empty for a
/// rule about the whole head.
pub fn faulty_lines(head: &[u8], broken: Reject) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut at = line_bytes(head, 0);
    if broken == Reject::UPSTREAM_LINE_MALFORMED {
        return vec![head[..at].trim_ascii_end()];
    }
    let is_framing = |name: &[u8]| {
        let names: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];
        [Reject::UPSTREAM_LENGTHS, Reject::UPSTREAM_CODING].contains(&broken)
            && names.iter().any(|it| name.eq_ignore_ascii_case(it))
    };
    loop {
        match field_line(head, at) {
            Ok(ParsedFieldLine::Field { name, next, .. }) => {
                if is_framing(name) {
                    lines.push(head[at..next].trim_ascii_end());
                }
                at = next;
            }
            Ok(ParsedFieldLine::Empty | ParsedFieldLine::Unfinished) => return lines,
            Err(line) => {
                if rule(line) == broken {
                    lines.push(head[at..line_bytes(head, at)].trim_ascii_end());
                }
                return lines;
            }
        }
    }
}

/// Returns the position behind the line at `at`.
fn line_bytes(head: &[u8], at: usize) -> usize {
    let line_feed = byte_search::find(head, b'\n', at);
    line_feed.map_or(head.len(), |line_feed| line_feed + 1)
}

/// Returns the rule that a malformed field line breaks.
#[cold]
fn rule(line: MalformedFieldLine) -> Reject {
    match line {
        MalformedFieldLine::Folded => Reject::UPSTREAM_FIELD_FOLDED,
        MalformedFieldLine::LineEnd
        | MalformedFieldLine::NoColon
        | MalformedFieldLine::Name
        | MalformedFieldLine::Value => Reject::UPSTREAM_FIELD_MALFORMED,
    }
}

/// Bytes of `HTTP/1.1 `, the start of every status line.
const VERSION_BYTES: usize = 9;

/// Components of a status line.
struct StatusLineParts<'a> {
    minor_version: u8,
    status: Status,
    reason: &'a [u8],
    /// Length of the line with its end.
    bytes: usize,
}

impl<'a> StatusLineParts<'a> {
    /// Parses `HTTP/1.x SP 3DIGIT [SP reason] CRLF` at the start of `window`; `None` if incomplete. Some
    /// servers omit the space before an empty reason.
    fn parse(window: &'a [u8]) -> Result<Option<StatusLineParts<'a>>, Reject> {
        let Some(line) = StatusLineParts::split(window) else {
            return check_status_line(window).map(|()| None);
        };
        Ok(Some(line))
    }

    #[inline]
    fn split(window: &'a [u8]) -> Option<StatusLineParts<'a>> {
        let [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            minor @ (b'0' | b'1'),
            b' ',
            a @ b'1'..=b'5',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            rest @ ..,
        ] = window
        else {
            return None;
        };
        let reason = match rest {
            [b' ', text @ ..] => &text[..byte_search::value_end(text, 0)],
            _ => b"",
        };
        let space = usize::from(rest.first() == Some(&b' '));
        let reason_end = space + reason.len();
        if rest.get(reason_end..reason_end + LINE_END.len()) != Some(LINE_END) {
            return None;
        }
        let [a, b, c] = [a, b, c].map(|digit| u16::from(digit - b'0'));
        Some(StatusLineParts {
            minor_version: minor - b'0',
            status: Status(a * 100 + b * 10 + c),
            reason,
            bytes: window.len() - rest.len() + reason_end + LINE_END.len(),
        })
    }
}

/// Refuses a status line that could not be split; `Ok` if the line is only incomplete. Another protocol, such
/// as SSH or HTTP/2, is refused at the first byte that differs, without waiting for a line feed.
#[cold]
fn check_status_line(window: &[u8]) -> Result<(), Reject> {
    let start = &window[..window.len().min(VERSION_BYTES)];
    let begins = [&b"HTTP/1.0 "[..], b"HTTP/1.1 "]
        .iter()
        .any(|version| version.starts_with(start));
    if !begins || byte_search::find(window, b'\n', 0).is_some() {
        return Err(Reject::UPSTREAM_LINE_MALFORMED);
    }
    Ok(())
}

/// Field values collected from the field lines added so far.
#[derive(Default)]
struct ResponseHeadBuilder<'a> {
    length: Option<&'a [u8]>,
    coding: TransferCoding,
    close: bool,
    keep_alive: bool,
    has_connection_options: bool,
    upgrade: Option<&'a [u8]>,
    has_trailer: bool,
    has_date: bool,
    has_server: bool,
}

impl<'a> ResponseHeadBuilder<'a> {
    /// Adds a field line.
    ///
    /// The length of the name is compared first, and most names then meet at most two comparisons.
    #[inline]
    fn add_field(&mut self, name: &'a [u8], value: &'a [u8]) -> Result<(), Reject> {
        match name.len() {
            4 if byte_search::is_name(name, b"date") => self.has_date = true,
            6 if byte_search::is_name(name, b"server") => self.has_server = true,
            7 if byte_search::is_name(name, b"trailer") => self.has_trailer = true,
            7 if byte_search::is_name(name, b"upgrade") => {
                self.upgrade = Some(if self.upgrade.is_some() { b"" } else { value });
            }
            10 if byte_search::is_name(name, b"connection") => self.add_connection(value),
            14 if byte_search::is_name(name, b"content-length") => self.add_length(value)?,
            17 if byte_search::is_name(name, b"transfer-encoding") => self.coding.add_line(value),
            _ => {}
        }
        Ok(())
    }

    fn add_length(&mut self, value: &'a [u8]) -> Result<(), Reject> {
        match self.length.replace(value) {
            None => Ok(()),
            Some(_) => Err(Reject::UPSTREAM_LENGTHS),
        }
    }

    fn add_connection(&mut self, value: &[u8]) {
        self.has_connection_options = true;
        for option in items(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Builds the head from the status line and the collected fields.
    fn finish(
        self,
        line: &StatusLineParts<'a>,
        fields: Fields<'a>,
        request_method: Method,
    ) -> Result<ResponseHead<'a>, Reject> {
        let sent = self.sent_length(line.minor_version)?;
        let (body, is_tunnel) = match (request_method, line.status.0) {
            (_, 101) | (Method::Connect, 200..300) => (ResponseLength::None, true),
            (Method::Head, _) | (_, 100..200 | 204 | 304) => (ResponseLength::None, false),
            _ => (sent, false),
        };
        let is_persistent = !self.close && (line.minor_version == 1 || self.keep_alive);
        Ok(ResponseHead {
            status: line.status,
            minor_version: line.minor_version,
            reason: line.reason,
            fields,
            body,
            content_length: match sent {
                ResponseLength::Length(length) => Some(length),
                _ => None,
            },
            keep_alive: is_persistent && !is_tunnel && body != ResponseLength::UntilClose,
            has_connection_options: self.has_connection_options,
            upgrade: self.upgrade,
            has_trailer: self.has_trailer,
            has_date: self.has_date,
            has_server: self.has_server,
        })
    }

    /// Determines the length by the fields alone, without the leniency that RFC 9112 §6.3 permits. The fields
    /// are checked even if the response has no body by its status or by the request's method.
    fn sent_length(&self, minor_version: u8) -> Result<ResponseLength, Reject> {
        match (self.coding, self.length) {
            (TransferCoding::Absent, None) => Ok(ResponseLength::UntilClose),
            (TransferCoding::Absent, Some(value)) => {
                let length = content_length(value).ok_or(Reject::UPSTREAM_LENGTHS)?;
                Ok(ResponseLength::Length(length))
            }
            (_, Some(_)) => Err(Reject::UPSTREAM_LENGTHS),
            (TransferCoding::Chunked, None) if minor_version == 1 => Ok(ResponseLength::Chunked),
            _ => Err(Reject::UPSTREAM_CODING),
        }
    }
}

#[cfg(test)]
mod tests;
