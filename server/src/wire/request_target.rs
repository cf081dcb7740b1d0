//! The request target (RFC 9112 §3.2): decoded and normalised once, so that every later stage
//! compares and opens the very same path.
//!
//! What has been used to slip past such comparisons is refused rather than repaired: `..` above
//! the root, encoded slashes, backslashes, NUL.

use crate::wire::byte_search;
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use std::borrow::Cow;

/// A request target, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestTarget<'a> {
    /// Host and port of the absolute form or of CONNECT; a valid host.
    pub authority: Option<&'a [u8]>,
    /// The path as it was sent; `/` if an absolute form has none, `*` for `OPTIONS *` and CONNECT.
    pub raw_path: &'a [u8],
    /// The path decoded and normalised, or `*` as above.
    pub path: Cow<'a, [u8]>,
    /// Without the `?`; not decoded.
    pub query: Option<&'a [u8]>,
}

/// Reads a target in the form that its method allows. Errors: the rules 110 to 115.
pub fn parse_target(method: Method, target: &[u8]) -> Result<RequestTarget<'_>, Reject> {
    // RFC 3986 has a smaller set, but browsers send `|`, `^`, `"`, `{` and `}` as they are.
    // A fragment never belongs in a request.
    if !target.iter().all(|&byte| TARGET[usize::from(byte)]) {
        return Err(Reject::TARGET_MALFORMED);
    }
    match target {
        _ if method == Method::Connect => {
            valid_host(target).ok_or(Reject::TARGET_MALFORMED)?;
            Ok(asterisk(Some(target)))
        }
        [b'/', ..] => origin(None, target),
        b"*" if method == Method::Options => Ok(asterisk(None)),
        _ => absolute(target),
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

/// `/path?query`
fn origin<'a>(authority: Option<&'a [u8]>, target: &'a [u8]) -> Result<RequestTarget<'a>, Reject> {
    let (raw_path, query) = match byte_search::find(target, b'?', 0) {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    };
    let raw_path = if raw_path.is_empty() { b"/" } else { raw_path };
    Ok(RequestTarget {
        authority,
        raw_path,
        path: normalise(raw_path)?,
        query,
    })
}

/// `http://host:port/path?query`
fn absolute(target: &[u8]) -> Result<RequestTarget<'_>, Reject> {
    let rest = without_scheme(target).ok_or(Reject::TARGET_MALFORMED)?;
    let authority_end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(authority_end);
    // User information in it is refused with the rest (RFC 9110 §4.2.4).
    valid_host(authority).ok_or(Reject::TARGET_MALFORMED)?;
    origin(Some(authority), path_and_query)
}

fn without_scheme(target: &[u8]) -> Option<&[u8]> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find_map(|scheme| {
            let (start, rest) = target.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        })
}

/// Decodes percent-encoding, resolves `.` and `..` (also encoded ones) and merges slashes. A
/// final slash stays. Errors: the rules 111 to 115, and 110 if it doesn't begin with `/`.
pub fn normalise(raw_path: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    let Some((b'/', components)) = raw_path.split_first() else {
        return Err(Reject::TARGET_MALFORMED);
    };
    if is_normal(raw_path) {
        return Ok(Cow::Borrowed(raw_path));
    }
    let mut path = Vec::with_capacity(raw_path.len());
    path.push(b'/');
    // `path` ends with a slash whenever a component begins.
    let mut ends_with_name = false;
    for component in components.split(|&byte| byte == b'/') {
        let start = path.len();
        decode(component, &mut path)?;
        ends_with_name = !matches!(path[start..], [] | [b'.'] | [b'.', b'.']);
        if ends_with_name {
            path.push(b'/');
            continue;
        }
        let climbs = path[start..] == *b"..";
        path.truncate(start);
        if climbs {
            // Without the slash that ends it, `path` is the folder that is to be left.
            path.pop();
            let parent = path.iter().rposition(|&byte| byte == b'/');
            path.truncate(parent.ok_or(Reject::TARGET_CLIMBS)? + 1);
        }
    }
    if ends_with_name {
        path.pop();
    }
    Ok(Cow::Owned(path))
}

/// Is there nothing to decode, resolve, merge or refuse? A name that begins with a dot is looked
/// at the long way.
fn is_normal(raw_path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in raw_path {
        match byte {
            b'%' | b'\\' | 0 => return false,
            b'/' | b'.' if after_slash => return false,
            _ => after_slash = byte == b'/',
        }
    }
    true
}

/// Decodes one component onto the end of `path`.
fn decode(component: &[u8], path: &mut Vec<u8>) -> Result<(), Reject> {
    let mut bytes = component.iter();
    while let Some(&byte) = bytes.next() {
        let decoded = match byte {
            b'%' => {
                let high = bytes.next().and_then(hex_digit);
                let low = bytes.next().and_then(hex_digit);
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(Reject::TARGET_PERCENT);
                };
                high << 4 | low
            }
            byte => byte,
        };
        match decoded {
            0 => return Err(Reject::TARGET_NUL),
            b'/' => return Err(Reject::TARGET_SLASH),
            b'\\' => return Err(Reject::TARGET_BACKSLASH),
            _ => path.push(decoded),
        }
    }
    Ok(())
}

fn hex_digit(byte: &u8) -> Option<u8> {
    let digit = char::from(*byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// Percent-encodes a path, for a Location or a listing: the result is also safe inside a quoted
/// HTML attribute.
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

/// Percent-encodes the value of a parameter of a query: a slash may stand in one as it is.
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

fn push_encoded(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[
        b'%',
        HEX[usize::from(byte >> 4)],
        HEX[usize::from(byte & 15)],
    ]);
}

/// Splits a Host value or authority into host and port; `None` if it is malformed or empty.
///
/// Stricter than RFC 3986: letters, digits, `-`, `_` and dots between names that aren't empty (one
/// dot may end it), or an IPv6 address, which keeps its brackets. So a valid host can be compared,
/// logged and put into a Location without another look.
pub fn valid_host(host: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let name_end = match host {
        [b'[', ..] => byte_search::find(host, b']', 0)? + 1,
        _ => host
            .iter()
            .position(|&byte| byte == b':')
            .unwrap_or(host.len()),
    };
    let (name, rest) = host.split_at(name_end);
    let is_valid = match name {
        [b'[', address @ .., b']'] => is_ipv6(address),
        _ => is_name(name),
    };
    let port = match rest {
        // A port may be empty (RFC 3986 §3.2.3).
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(port_number(digits)?),
        _ => return None,
    };
    is_valid.then_some((name, port))
}

/// The longest name that DNS allows, with its final dot.
const HOST_NAME_BYTES_MAX: usize = 254;

fn is_name(name: &[u8]) -> bool {
    let mut after_dot = true;
    for &byte in name {
        match byte {
            b'.' if after_dot => return false,
            b'.' => after_dot = true,
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => after_dot = false,
            _ => return false,
        }
    }
    !name.is_empty() && name.len() <= HOST_NAME_BYTES_MAX
}

/// Not the whole grammar: nothing is ever opened by it, it only has to be harmless.
fn is_ipv6(address: &[u8]) -> bool {
    let colons = address.iter().filter(|&&byte| byte == b':').count();
    let known = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    (2..=7).contains(&colons) && address.len() <= 45 && address.iter().all(known)
}

fn port_number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u16::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

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
