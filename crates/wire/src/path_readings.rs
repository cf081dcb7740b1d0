//! Readings of a request's path: the paths as which an application may understand the path that it gets.
//!
//! The server compares and opens one path, decoded and normalised. An application behind the server may take an
//! encoded slash for a separator or for a part of a name, remove parameters such as `;jsessionid=1`, and merge
//! doubled slashes or not. A rule for the path that the application finds in the end must hold, although the server
//! does not know which reading is the application's. [`PathReadings`] lists all of them, and each rule by path asks
//! the list. A path without an encoded slash, a parameter and a doubled slash has one reading and costs nothing.
//!
//! The readings are made from the path that the application gets, [`sent_path`], and not from the path of the client:
//! the server resolves `x%2Fy/../c` to `c`, and readings of the longer text would miss the readings of the shorter.

use crate::normal_path::{hex_digit, normalise, push_decoded};
use crate::reject::Reject;
use std::borrow::Cow;

/// Treatment of doubled slashes in the path for an application.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Slashes {
    /// The application gets the slashes as sent by the client.
    #[default]
    Keep,
    /// Doubled slashes become one.
    Merge,
}

/// Readings of a path beside the normalised path. All readings are decoded and begin with a slash.
///
/// Dot segments are resolved, except in one reading for programs that decode `/a%2F..%2Fb` to `/a/../b` and look for the
/// beginning `/a`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PathReadings {
    /// Readings without doubled slashes, other than the normalised path.
    merged: Vec<Vec<u8>>,
    /// Readings with doubled slashes. Without the doubled slashes each is the normalised path or in `merged`.
    doubled: Vec<Vec<u8>>,
}

impl PathReadings {
    /// Returns the readings of a requested path by an application that gets the path with `slashes`; None if the
    /// normalised path, `path`, is the only reading. `raw_path` is the path as sent by the client.
    pub fn of(raw_path: &[u8], path: &[u8], slashes: Slashes) -> Option<Box<PathReadings>> {
        // The usual path costs one comparison and one search.
        if raw_path == path && !path.iter().any(|byte| matches!(byte, b'%' | b';')) {
            return None;
        }
        let has_other = has_encoded_slash(raw_path)
            || has_parameters(path)
            || (slashes == Slashes::Keep && has_doubled_slash(raw_path));
        has_other.then(|| PathReadings::of_sent(&sent_path(raw_path, slashes), path))?
    }

    /// Returns the readings of a path that the server has chosen, such as the target of a rewrite. The path is decoded
    /// and normalised, and the application gets the path encoded anew, so only parameters make further readings.
    pub fn of_rewritten(path: &[u8]) -> Option<Box<PathReadings>> {
        let mut readings = PathReadings::default();
        if has_parameters(path) {
            let plain = resolved(path, Slashes::Merge, |segment, out| {
                out.extend_from_slice(without_parameters(segment));
            });
            readings.add(plain, path);
        }
        readings.some()
    }

    fn of_sent(sent: &[u8], path: &[u8]) -> Option<Box<PathReadings>> {
        let mut readings = PathReadings::default();
        let separated = has_encoded_slash(sent).then(|| with_separators(sent));
        for text in separated.as_deref().into_iter().chain([sent]) {
            for is_plain in [false, true] {
                let decode = |segment: &[u8], out: &mut Vec<u8>| {
                    let start = out.len();
                    push_opaque(segment, out);
                    if is_plain {
                        let length = without_parameters(&out[start..]).len();
                        out.truncate(start + length);
                    }
                };
                readings.add(resolved(text, Slashes::Merge, decode), path);
                readings.add(resolved(text, Slashes::Keep, decode), path);
                readings.add(resolved_by(text, Slashes::Merge, is_empty, decode), path);
            }
        }
        readings.some()
    }

    fn add(&mut self, reading: Vec<u8>, path: &[u8]) {
        if has_doubled_slash(&reading) {
            self.add(merged_slashes(&reading), path);
            if !self.doubled.contains(&reading) {
                self.doubled.push(reading);
            }
        } else if reading != path && !self.merged.contains(&reading) {
            self.merged.push(reading);
        }
    }

    fn some(self) -> Option<Box<PathReadings>> {
        let is_single = self.merged.is_empty() && self.doubled.is_empty();
        (!is_single).then(|| Box::new(self))
    }

    /// Returns the readings beside the normalised path.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.merged.iter().chain(&self.doubled).map(Vec::as_slice)
    }

    /// Returns the readings that differ from the normalised path by more than doubled slashes, without doubled
    /// slashes.
    pub fn merged(&self) -> impl Iterator<Item = &[u8]> {
        self.merged.iter().map(Vec::as_slice)
    }
}

/// Returns the path of a request for an application: dot segments, also percent-encoded ones, are resolved, and the
/// percent-encoding of all other segments stays, since applications may distinguish `;` from `%3B`.
///
/// With [`Slashes::Keep`] doubled slashes stay as well, unless a dot segment makes the path ambiguous: `/a//../b` is
/// `/b` for a recipient that merges slashes first, and `/a/b` for others. Such a path is sent as the server reads it.
pub fn sent_path(raw_path: &[u8], slashes: Slashes) -> Cow<'_, [u8]> {
    // A dot segment begins with a dot or an encoded dot.
    let is_candidate = |pair: &[u8]| match pair {
        b"/." | b"/%" => true,
        b"//" => slashes == Slashes::Merge,
        _ => false,
    };
    if !raw_path.windows(2).any(is_candidate) {
        return Cow::Borrowed(raw_path);
    }
    let merged = resolved_encoded(raw_path, Slashes::Merge);
    if slashes == Slashes::Keep && has_doubled_slash(raw_path) {
        let kept = resolved_encoded(raw_path, Slashes::Keep);
        if merged_slashes(&kept) == merged {
            return Cow::Owned(kept);
        }
    }
    Cow::Owned(merged)
}

/// Returns the path in the keys of the page cache: the path for an application, with letters, digits, `-`, `.`, `_` and
/// `~` decoded (RFC 3986 §6.2.2.2). The path is shorter than `raw_path` if the client wrote the path in another way.
pub fn page_path(raw_path: &[u8]) -> Cow<'_, [u8]> {
    let sent = sent_path(raw_path, Slashes::Keep);
    if !sent.contains(&b'%') {
        return sent;
    }
    let mut path = Vec::with_capacity(sent.len());
    let mut rest = &*sent;
    while let [first, after @ ..] = rest {
        let encoded = rest.get(..3).and_then(unreserved);
        path.push(encoded.unwrap_or(*first));
        rest = encoded.map_or(after, |_| &rest[3..]);
    }
    Cow::Owned(path)
}

/// Returns the normalised path of a path with encoded slashes, in the reading that takes the slashes for separators.
///
/// # Errors
/// As for [`normalise`], for each of both readings.
pub fn separated_path(raw_path: &[u8]) -> Result<Vec<u8>, Reject> {
    opaque_path(raw_path)?;
    let sent = sent_path(raw_path, Slashes::Merge);
    Ok(normalise(&with_separators(&sent))?.into_owned())
}

/// Returns the normalised path in the reading that takes an encoded slash for a part of a name. The slash stays
/// encoded.
///
/// # Errors
/// As for [`normalise`], without rule 114.
pub fn opaque_path(raw_path: &[u8]) -> Result<Vec<u8>, Reject> {
    Ok(normalise(&with_escaped_slashes(raw_path))?.into_owned())
}

/// Returns true if the path of a request leaves the path of its route, which has `depth` segments, in the reading
/// that takes encoded slashes for separators: `/shop/%2e%2e%2Fshop/a` leaves `/shop` and comes back. With a path of
/// the member in place of `/shop`, such a path ends elsewhere.
pub fn leaves_route(raw_path: &[u8], depth: usize) -> bool {
    let sent = sent_path(raw_path, Slashes::Merge);
    let mut names = 0;
    for segment in with_separators(&sent).split(|byte| *byte == b'/') {
        match dots(segment) {
            Some(2) if names <= depth => return true,
            Some(2) => names -= 1,
            Some(_) => {}
            None => names += 1,
        }
    }
    false
}

/// Returns true if the path has an encoded slash.
pub fn has_encoded_slash(raw_path: &[u8]) -> bool {
    raw_path.windows(ENCODED_SLASH.len()).any(is_encoded_slash)
}

/// Returns true if a segment of the decoded path has a parameter, as in `/a;x=1`.
pub fn has_parameters(path: &[u8]) -> bool {
    path.contains(&b';')
}

/// Returns true if a segment of the path has a parameter before or after the decoding, as in `/a;x=1` and
/// `/a%3Bx=1`.
pub fn has_raw_parameters(raw_path: &[u8]) -> bool {
    let is_encoded = |it: &[u8]| it.eq_ignore_ascii_case(b"%3b");
    has_parameters(raw_path) || raw_path.windows(3).any(is_encoded)
}

/// Returns true if the path has an empty segment before its end.
pub fn has_doubled_slash(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"//")
}

/// Returns the character of a percent-encoding of three bytes, if the character means the same without the encoding.
fn unreserved(encoding: &[u8]) -> Option<u8> {
    let [b'%', high, low] = encoding else {
        return None;
    };
    let byte = hex_digit(high)? << 4 | hex_digit(low)?;
    (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)).then_some(byte)
}

const ENCODED_SLASH: &[u8] = b"%2F";

fn is_encoded_slash(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(ENCODED_SLASH)
}

/// Returns a decoded segment without its parameters.
fn without_parameters(segment: &[u8]) -> &[u8] {
    let end = segment.iter().position(|byte| *byte == b';');
    &segment[..end.unwrap_or(segment.len())]
}

/// Returns the path with a separator in place of each encoded slash.
fn with_separators(raw_path: &[u8]) -> Vec<u8> {
    replaced(raw_path, |_, out| out.push(b'/'))
}

/// Returns the path with each encoded slash encoded twice, so that the decoding leaves the encoded slash as sent.
fn with_escaped_slashes(raw_path: &[u8]) -> Vec<u8> {
    replaced(raw_path, |slash, out| {
        out.extend_from_slice(b"%25");
        out.extend_from_slice(&slash[1..]);
    })
}

/// Returns the path with each encoded slash replaced.
fn replaced(raw_path: &[u8], replace: impl Fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw_path.len() + 8);
    let mut rest = raw_path;
    while let [first, after @ ..] = rest {
        match rest.split_at_checked(ENCODED_SLASH.len()) {
            Some((slash, after)) if is_encoded_slash(slash) => {
                replace(slash, &mut out);
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Appends a decoded segment. An encoded slash stays encoded. The parser of the target has refused all malformed
/// encodings.
fn push_opaque(segment: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    if push_decoded(&with_escaped_slashes(segment), out).is_err() {
        out.truncate(start);
        out.extend_from_slice(segment);
    }
}

/// Returns the path with one slash in place of several.
pub fn merged_slashes(path: &[u8]) -> Vec<u8> {
    let mut merged = path.to_vec();
    merged.dedup_by(|next, last| *next == b'/' && *last == b'/');
    merged
}

/// Resolves dot segments of a percent-encoded path. The encoding stays.
fn resolved_encoded(raw_path: &[u8], slashes: Slashes) -> Vec<u8> {
    resolved_by(raw_path, slashes, dots, |segment, out| {
        out.extend_from_slice(segment);
    })
}

/// Resolves dot segments of a path, after the conversion of each segment by `push`.
fn resolved(path: &[u8], slashes: Slashes, push: impl Fn(&[u8], &mut Vec<u8>)) -> Vec<u8> {
    let plain_dots = |segment: &[u8]| match segment {
        b"" => Some(0),
        b"." => Some(1),
        b".." => Some(2),
        _ => None,
    };
    resolved_by(path, slashes, plain_dots, push)
}

/// Returns 0 for an empty segment, so that no dot segment is resolved.
fn is_empty(segment: &[u8]) -> Option<usize> {
    segment.is_empty().then_some(0)
}

/// Resolves the segments of a path for which `dots` returns 1 or 2, and with [`Slashes::Merge`] removes the segments
/// with 0. A climb above the root stays at the root, as with most recipients. A final slash stays.
fn resolved_by(
    path: &[u8],
    slashes: Slashes,
    dots: impl Fn(&[u8]) -> Option<usize>,
    push: impl Fn(&[u8], &mut Vec<u8>),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    out.push(b'/');
    // Positions in `out` where the segments begin.
    let mut starts = Vec::new();
    let segments = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments = segments.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let start = out.len();
        push(segment, &mut out);
        let is_last = segments.peek().is_none();
        match dots(&out[start..]) {
            None if is_last => break,
            // The final slash is no segment.
            Some(0) if is_last || slashes == Slashes::Merge => out.truncate(start),
            None | Some(0) => {
                starts.push(start);
                out.push(b'/');
            }
            Some(2) => out.truncate(starts.pop().unwrap_or(start)),
            Some(_) => out.truncate(start),
        }
    }
    out
}

/// Returns the number of dots of a segment of at most two dots, each a dot or `%2e`; None for another
/// segment.
fn dots(segment: &[u8]) -> Option<usize> {
    let mut rest = segment;
    let mut count = 0;
    while !rest.is_empty() {
        let dot = match rest {
            [b'.', ..] => 1,
            [b'%', b'2', b'e' | b'E', ..] => 3,
            _ => return None,
        };
        rest = &rest[dot..];
        count += 1;
    }
    (count <= 2).then_some(count)
}

#[cfg(test)]
mod tests;
