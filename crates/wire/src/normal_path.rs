//! Normalisation of the path of a target: percent-encoding is decoded, dots are resolved, slashes are merged.
//!
//! The result is the one spelling of a path that routes and folders compare.

use crate::reject::Reject;
use std::borrow::Cow;

/// Decodes percent-encoding, resolves `.` and `..` (also encoded) and merges slashes. A final slash stays.
/// Errors: rules 111 to 115, and 110 for a path without a leading `/`.
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
        push_decoded(component, &mut path)?;
        ends_with_name = !matches!(path[start..], [] | [b'.'] | [b'.', b'.']);
        if ends_with_name {
            path.push(b'/');
            continue;
        }
        let climbs = path[start..] == *b"..";
        path.truncate(start);
        if climbs {
            // Without its final slash, `path` names the folder to leave.
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

/// Returns true if `raw_path` has nothing to decode, resolve, merge or refuse, and has no parameter. An application
/// therefore reads the path as the server does. A name with a leading dot takes the slow path in `normalise`.
fn is_normal(raw_path: &[u8]) -> bool {
    let mut after_slash = false;
    for &byte in raw_path {
        match byte {
            b'%' | b'\\' | b';' | 0 => return false,
            b'/' | b'.' if after_slash => return false,
            _ => after_slash = byte == b'/',
        }
    }
    true
}

/// Appends one decoded component to `path`. Errors: rules 112 to 115.
pub(crate) fn push_decoded(component: &[u8], path: &mut Vec<u8>) -> Result<(), Reject> {
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

/// Returns the value of a hexadecimal digit.
pub(crate) fn hex_digit(byte: &u8) -> Option<u8> {
    let digit = char::from(*byte).to_digit(16)?;
    u8::try_from(digit).ok()
}
