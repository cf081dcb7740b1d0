//! Strict parser of HTTP/1.0 and HTTP/1.1 request heads (RFC 9112).
//!
//! The parser makes one pass over the bytes and copies nothing. Request smuggling exploits two parsers that
//! disagree on a message; each line therefore has a single interpretation, and a doubtful line is refused.
//!
//! The result depends on the bytes alone, never on their split: lines are checked in order, each after its
//! line feed has arrived or its limit is exceeded.

use crate::byte_search;
use crate::fields::Fields;
use crate::h1::field_line::{LINE_END, MalformedFieldLine, ParsedFieldLine, field_line};
use crate::limits::HeadLimits;
use crate::reject::Reject;
use crate::request_head::{Method, RequestHead, Version};
use crate::request_head_builder::{RequestHeadBuilder, RequestLine};
use crate::request_target::{EncodedSlash, encode_raw_text, is_raw_text, parse_target_with};

/// Result of parsing the bytes received so far.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every head arrives complete, and stays on the stack"
)]
pub enum ParsedHead<'a> {
    /// Complete head.
    Complete {
        /// The request head.
        head: RequestHead<'a>,
        /// Length of the head; the body or the next request follows.
        head_bytes: usize,
    },
    /// The head is incomplete.
    Partial,
}

/// Parses the head at the start of `buf`. A head with raw UTF-8 in its target is parsed from `copy`, an empty buffer that
/// receives the head with the target percent-encoded: the later stages meet a single spelling.
///
/// The caller keeps `scanned` between calls and sets 0 for a new head: the number of bytes already
/// examined. A head that arrives byte by byte then costs one search for each byte and one parse for each
/// line.
pub fn parse_head<'a>(
    buf: &'a [u8],
    copy: &'a mut Vec<u8>,
    scanned: &mut usize,
    limits: &HeadLimits,
) -> Result<ParsedHead<'a>, Reject> {
    let bounds = RequestHeadLimits::new(limits);
    if let Some(verdict) = without_new_line(buf, *scanned, &bounds) {
        *scanned = buf.len();
        return verdict.map(|()| ParsedHead::Partial);
    }
    let parsed = match parse(buf, &bounds) {
        Err(Reject::TARGET_MALFORMED) => parse_raw(buf, copy, &bounds)?,
        parsed => parsed?,
    };
    if matches!(parsed, ParsedHead::Partial) {
        *scanned = buf.len();
    }
    Ok(parsed)
}

/// Parses a head with a malformed target again, if the target is well-formed with its raw UTF-8 percent-encoded. The
/// limits hold for the encoded head.
#[cold]
fn parse_raw<'a>(
    buf: &[u8],
    copy: &'a mut Vec<u8>,
    bounds: &RequestHeadLimits,
) -> Result<ParsedHead<'a>, Reject> {
    let target = line_start(buf)?.and_then(|start| {
        let window = &buf[start..];
        let target = SplitRequestLine::new(window)?.target;
        let target_start = start + byte_search::token_end(window, 0) + 1;
        Some(target_start..target_start + target.len())
    });
    let Some(target) = target.filter(|target| is_raw_text(&buf[target.clone()])) else {
        return Err(Reject::TARGET_MALFORMED);
    };
    let end = buf
        .len()
        .min(bounds.head_bytes.saturating_add(LINE_END.len()));
    copy.extend_from_slice(&buf[..target.start]);
    encode_raw_text(&buf[target.clone()], copy);
    copy.extend_from_slice(&buf[target.end..end]);
    let added = copy.len() - end;
    Ok(match parse(copy, bounds)? {
        ParsedHead::Complete { head, head_bytes } => ParsedHead::Complete {
            head,
            head_bytes: head_bytes - added,
        },
        ParsedHead::Partial => ParsedHead::Partial,
    })
}

/// Returns the presumable request line of a refused head, for the log.
pub fn first_line(buf: &[u8]) -> &[u8] {
    let line = buf.strip_prefix(b"\r\n").unwrap_or(buf);
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    &line[..line.iter().position(is_end).unwrap_or(line.len())]
}

struct RequestHeadLimits {
    /// Largest request line without the line end.
    line_bytes: usize,
    /// Largest head.
    head_bytes: usize,
    /// Largest number of field lines.
    fields: usize,
    slash: EncodedSlash,
}

impl RequestHeadLimits {
    fn new(limits: &HeadLimits) -> RequestHeadLimits {
        RequestHeadLimits {
            line_bytes: limits.request_line_bytes.min(limits.head_bytes),
            head_bytes: limits.head_bytes,
            fields: limits.fields,
            slash: EncodedSlash::of(limits),
        }
    }
}

/// Checks a partial head without a new line feed, which can only exceed a limit. Returns `None` if the head
/// must be parsed.
fn without_new_line(
    buf: &[u8],
    scanned: usize,
    bounds: &RequestHeadLimits,
) -> Option<Result<(), Reject>> {
    // The first bytes go through the full parse, which refuses an impossible first byte at once.
    if scanned <= LINE_END.len() || byte_search::find(buf, b'\n', scanned).is_some() {
        return None;
    }
    let line_end_max = bounds.line_bytes.saturating_add(2 * LINE_END.len());
    if buf.len() <= bounds.line_bytes {
        Some(Ok(()))
    } else if scanned <= line_end_max {
        // Too long for a request line, if the bytes are still part of the request line.
        None
    } else if buf.len() <= bounds.head_bytes {
        Some(Ok(()))
    } else {
        Some(Err(Reject::HEAD_TOO_LARGE))
    }
}

fn parse<'a>(buf: &'a [u8], bounds: &RequestHeadLimits) -> Result<ParsedHead<'a>, Reject> {
    let Some(start) = line_start(buf)? else {
        return Ok(ParsedHead::Partial);
    };
    let Some(line) = request_line(&buf[start..], bounds)? else {
        return Ok(ParsedHead::Partial);
    };
    let fields_start = start + line.text.len() + LINE_END.len();
    // A line that ends behind the limit is not examined.
    let window = &buf[..buf.len().min(bounds.head_bytes)];
    let mut builder = RequestHeadBuilder::default();
    let mut at = fields_start;
    let mut count = 0;
    loop {
        match field_line(window, at).map_err(rule)? {
            ParsedFieldLine::Field { name, value, next } => {
                count += 1;
                if count > bounds.fields {
                    return Err(Reject::FIELDS_TOO_MANY);
                }
                builder.add_field(name, value)?;
                at = next;
            }
            ParsedFieldLine::Empty => break,
            ParsedFieldLine::Unfinished if buf.len() > bounds.head_bytes => {
                return Err(Reject::HEAD_TOO_LARGE);
            }
            ParsedFieldLine::Unfinished => return Ok(ParsedHead::Partial),
        }
    }
    Ok(ParsedHead::Complete {
        head: builder.finish(line, Fields(&buf[fields_start..at]))?,
        head_bytes: at + LINE_END.len(),
    })
}

/// Returns the rule that a malformed field line breaks.
#[cold]
fn rule(line: MalformedFieldLine) -> Reject {
    match line {
        MalformedFieldLine::LineEnd => Reject::LINE_END,
        MalformedFieldLine::Folded => Reject::FIELD_FOLDED,
        MalformedFieldLine::NoColon => Reject::FIELD_MALFORMED,
        MalformedFieldLine::Name => Reject::FIELD_NAME,
        MalformedFieldLine::Value => Reject::FIELD_VALUE,
    }
}

/// Returns the position of the request line. One empty line before it is skipped (RFC 9112 §2.2). An
/// impossible first byte, such as TLS on a plain port, is refused without waiting for a line feed.
fn line_start(buf: &[u8]) -> Result<Option<usize>, Reject> {
    let start = match buf {
        [] | [b'\r'] => return Ok(None),
        [b'\r', b'\n', ..] => LINE_END.len(),
        [b'\r', ..] => return Err(Reject::LINE_END),
        _ => 0,
    };
    match buf.get(start) {
        None => Ok(None),
        Some(b'\n') => Err(Reject::LINE_END),
        Some(&byte) if !byte_search::is_token(byte) => Err(Reject::LINE_MALFORMED),
        Some(_) => Ok(Some(start)),
    }
}

/// Parses the request line at the start of `rest`; `None` if incomplete.
fn request_line<'a>(
    rest: &'a [u8],
    bounds: &RequestHeadLimits,
) -> Result<Option<RequestLine<'a>>, Reject> {
    let bytes_max = bounds.line_bytes;
    let window_end = bytes_max.saturating_add(LINE_END.len()).min(rest.len());
    let window = &rest[..window_end];
    let Some(split) = SplitRequestLine::new(window) else {
        return check_request_line(window, bytes_max).map(|()| None);
    };
    let version = match (split.major, split.minor) {
        (b'1', b'0') => Version::Http10,
        (b'1', _) => Version::Http11,
        _ => return Err(Reject::VERSION_UNSUPPORTED),
    };
    let method = Method::from_name(split.method).ok_or(Reject::METHOD_UNKNOWN)?;
    Ok(Some(RequestLine {
        text: split.text,
        method,
        version,
        target: parse_target_with(method, split.target, bounds.slash)?,
    }))
}

struct SplitRequestLine<'a> {
    text: &'a [u8],
    method: &'a [u8],
    target: &'a [u8],
    major: u8,
    minor: u8,
}

impl<'a> SplitRequestLine<'a> {
    /// Splits `method SP target SP HTTP/d.d CRLF` with single spaces; `None` for any other line.
    fn new(window: &'a [u8]) -> Option<SplitRequestLine<'a>> {
        let method_end = byte_search::token_end(window, 0);
        if window.get(method_end) != Some(&b' ') {
            return None;
        }
        let target_start = method_end + 1;
        let target_end = byte_search::visible_end(window, target_start);
        let rest = window.get(target_end..)?.first_chunk()?;
        let [
            b' ',
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            major,
            b'.',
            minor,
            b'\r',
            b'\n',
        ] = *rest
        else {
            return None;
        };
        let is_whole =
            target_end > target_start && major.is_ascii_digit() && minor.is_ascii_digit();
        is_whole.then(|| SplitRequestLine {
            text: &window[..target_end + rest.len() - LINE_END.len()],
            method: &window[..method_end],
            target: &window[target_start..target_end],
            major,
            minor,
        })
    }
}

/// Returns the reason why a request line could not be split; `Ok` if the line is only incomplete.
#[cold]
fn check_request_line(window: &[u8], bytes_max: usize) -> Result<(), Reject> {
    let line_feed = byte_search::find(window, b'\n', 0);
    let line = &window[..line_feed.unwrap_or(window.len())];
    let text = line.strip_suffix(b"\r");
    if text.unwrap_or(line).len() > bytes_max {
        // A method longer than every method that passes is answered with 501, even if the rest of the line is
        // invalid (RFC 9112 §3).
        let end = byte_search::token_end(line, 0);
        let is_method = matches!(line.get(end), None | Some(b' '));
        return Err(match Method::from_name(&line[..end]) {
            None if is_method => Reject::METHOD_UNKNOWN,
            _ => Reject::LINE_TOO_LONG,
        });
    }
    match (line_feed, text) {
        (None, _) => Ok(()),
        (Some(_), Some(text)) if !text.contains(&b'\r') => Err(Reject::LINE_MALFORMED),
        (Some(_), _) => Err(Reject::LINE_END),
    }
}

#[cfg(test)]
mod tests;
