//! Request target (RFC 9112 §3.2). A target is decoded and normalised once; every later stage compares and
//! opens the normalised path.
//!
//! Known means to bypass path comparisons are refused rather than repaired: `..` above the root, encoded
//! slashes, backslashes and NUL. Only with [`EncodedSlash::Separator`] an encoded slash passes, and the caller
//! then has to compare all [readings of the path](crate::path_readings).

use crate::byte_search;
use crate::limits::HeadLimits;
use crate::normal_path::normalise;
use crate::path_readings;
use crate::reject::Reject;
use crate::request_head::Method;
use std::borrow::Cow;

/// Components of a request target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestTarget<'a> {
    /// Host and port of the absolute form or of CONNECT; always a valid host.
    pub authority: Option<&'a [u8]>,
    /// Path as sent by the client; `/` for an absolute form without a path, `*` for `OPTIONS *` and
    /// CONNECT.
    pub raw_path: &'a [u8],
    /// Decoded and normalised path; `*` for `OPTIONS *` and CONNECT. A borrowed path has a single
    /// [reading](crate::path_readings).
    pub path: Cow<'a, [u8]>,
    /// Query without the `?`, not decoded.
    pub query: Option<&'a [u8]>,
}

/// Treatment of an encoded slash, `%2F`, in a path.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum EncodedSlash {
    /// The path is refused.
    #[default]
    Refuse,
    /// The decoded path has a separator in place of the encoded slash.
    Separator,
}

impl EncodedSlash {
    /// Returns the treatment by the limits of the operator.
    pub fn of(limits: &HeadLimits) -> EncodedSlash {
        if limits.has_encoded_slashes {
            EncodedSlash::Separator
        } else {
            EncodedSlash::Refuse
        }
    }
}

/// Parses a target in a form that `method` allows, without an encoded slash. Errors: rules 110 to 115.
pub fn parse_target(method: Method, target: &[u8]) -> Result<RequestTarget<'_>, Reject> {
    parse_target_with(method, target, EncodedSlash::Refuse)
}

/// Parses a target in a form that `method` allows. Errors: rules 110 to 115.
pub fn parse_target_with(
    method: Method,
    target: &[u8],
    slash: EncodedSlash,
) -> Result<RequestTarget<'_>, Reject> {
    // RFC 3986 allows fewer characters, but browsers send `|`, `^`, `"`, `{` and `}` unencoded. A fragment
    // never belongs in a request.
    if !target.iter().all(|&byte| TARGET[usize::from(byte)]) {
        return Err(Reject::TARGET_MALFORMED);
    }
    match target {
        _ if method == Method::Connect => {
            valid_host(target).ok_or(Reject::TARGET_MALFORMED)?;
            Ok(asterisk(Some(target)))
        }
        [b'/', ..] => origin(None, target, slash),
        b"*" if method == Method::Options => Ok(asterisk(None)),
        _ => absolute(target, slash),
    }
}

fn asterisk(authority: Option<&[u8]>) -> RequestTarget<'_> {
    RequestTarget {
        authority,
        raw_path: b"*",
        path: Cow::Borrowed(b"*"),
        query: None,
    }
}

/// Parses the origin form, `/path?query`.
fn origin<'a>(
    authority: Option<&'a [u8]>,
    target: &'a [u8],
    slash: EncodedSlash,
) -> Result<RequestTarget<'a>, Reject> {
    let (raw_path, query) = match byte_search::find(target, b'?', 0) {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    };
    let raw_path = if raw_path.is_empty() { b"/" } else { raw_path };
    let path = match normalise(raw_path) {
        Err(Reject::TARGET_SLASH) if slash == EncodedSlash::Separator => {
            Cow::Owned(path_readings::separated_path(raw_path)?)
        }
        path => path?,
    };
    Ok(RequestTarget {
        authority,
        raw_path,
        path,
        query,
    })
}

/// Parses the absolute form, `http://host:port/path?query`.
fn absolute(target: &[u8], slash: EncodedSlash) -> Result<RequestTarget<'_>, Reject> {
    let rest = without_scheme(target).ok_or(Reject::TARGET_MALFORMED)?;
    let authority_end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(authority_end);
    // An authority with user information is refused as well (RFC 9110 §4.2.4).
    valid_host(authority).ok_or(Reject::TARGET_MALFORMED)?;
    origin(Some(authority), path_and_query, slash)
}

fn without_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| {
            let (start, rest) = target.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        })
}

/// Returns true if a decoded path is `prefix`, or lies below `prefix` in whole components. The prefix has no final slash;
/// all paths lie below the empty prefix.
pub fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.first().is_none_or(|next| *next == b'/'))
}

/// Percent-encodes a path for a Location field or a listing. The result is also safe inside a quoted HTML
/// attribute.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b'~'
            | b'/'
            | b'!'
            | b'$'
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b'='
            | b'@' => out.push(byte),
            _ => push_encoded(byte, out),
        }
    }
}

/// Returns true for text with characters outside of US-ASCII, all in UTF-8. Browsers encode such characters in a target,
/// and other programs often send the bytes as they are.
pub fn is_raw_text(text: &[u8]) -> bool {
    !text.is_ascii() && std::str::from_utf8(text).is_ok()
}

/// Appends text with each byte outside of US-ASCII percent-encoded.
pub fn encode_raw_text(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte.is_ascii() {
            out.push(byte)
        } else {
            push_encoded(byte, out)
        }
    }
}

/// Percent-encodes the value of a query parameter. A slash stays unencoded.
pub fn encode_value(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        match byte {
            b'!' | b'$' | b'(' | b')' | b'*' | b'+' | b',' | b'=' | b'@' => {
                push_encoded(byte, out);
            }
            byte => encode_path(&[byte], out),
        }
    }
}

/// Appends a byte in percent-encoding.
pub fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        b'%',
        HEX[usize::from(byte >> 4)],
        HEX[usize::from(byte & 15)],
    ]);
}

/// Splits a Host value or an authority into host and port; `None` if malformed or empty.
///
/// Stricter than RFC 3986: the host is an IPv6 address with its brackets, or consists of non-empty names of
/// letters, digits, `-` and `_`, separated by dots, with at most one final dot. A valid host can be
/// compared, logged and written into a Location without another check.
pub fn valid_host(host: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let (is_valid, name_end) = match host {
        [b'[', ..] => {
            let end = byte_search::find(host, b']', 0)?;
            (is_ipv6(&host[1..end]), end + 1)
        }
        _ => {
            let end = name_end(host);
            ((1..=HOST_NAME_BYTES_MAX).contains(&end), end)
        }
    };
    let (name, rest) = host.split_at(name_end);
    let port = match rest {
        // A port may be empty (RFC 3986 §3.2.3).
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(port_number(digits)?),
        _ => return None,
    };
    is_valid.then_some((name, port))
}

/// Length of the longest DNS name with its final dot.
const HOST_NAME_BYTES_MAX: usize = 254;

/// Returns the length of the host name at the start of `host`: non-empty labels, separated by dots, with at
/// most one final dot.
fn name_end(host: &[u8]) -> usize {
    let mut label = 0;
    for (at, &byte) in host.iter().enumerate() {
        if byte == b'.' && at > label {
            label = at + 1;
        } else if !LABEL[usize::from(byte)] {
            return at;
        }
    }
    host.len()
}

/// Returns true if `address` has the characters and the length of an IPv6 address. The server never
/// connects to the address, and only its harmless spelling matters.
fn is_ipv6(address: &[u8]) -> bool {
    let colons = address.iter().filter(|&&byte| byte == b':').count();
    let known = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    (2..=7).contains(&colons) && address.len() <= 45 && address.iter().all(known)
}

fn port_number(digits: &[u8]) -> Option<u16> {
    let mut number = 0u32;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        number = number * 10 + u32::from(digit);
        if digit > 9 || number > u32::from(u16::MAX) {
            return None;
        }
    }
    u16::try_from(number).ok()
}

/// Bytes of a label of a host name: letters, digits, `-` and `_`.
static LABEL: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'_');
        byte += 1;
    }
    table
};

static TARGET: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = byte as u8 != b'#';
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
