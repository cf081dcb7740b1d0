//! Request fields of WebDAV that name further resources: Destination (RFC 4918 §10.3) and the tags of If (RFC 4918
//! §10.4). Clients write their URLs with the scheme, the host and the path of the server in front, and a server behind a
//! proxy has others.

use crate::location::{is_same_host, split_authority, split_scheme};
use std::ops::Range;

/// Returns the path and the query of a URL with one of the hosts, or of a path; None for a URL of another host. The scheme
/// makes no difference: a proxy in front may end TLS.
pub fn own_reference<'u>(url: &'u [u8], hosts: &[&[u8]]) -> Option<&'u [u8]> {
    let (scheme, rest) = split_scheme(url);
    match (scheme, rest) {
        (None, [b'/', b'/' | b'\\', ..]) => None,
        (None, [b'/', ..]) => Some(rest),
        (Some(_), [b'/', b'/', rest @ ..]) => {
            let (authority, rest) = split_authority(rest);
            let mut hosts = hosts.iter();
            let is_own = hosts.any(|host| is_same_host(authority, scheme, host));
            let target = match rest {
                [] => b"/",
                rest => rest,
            };
            (is_own && target[0] == b'/').then_some(target)
        }
        _ => None,
    }
}

/// Returns the positions of the URLs in the resource tags of If. The URLs in parentheses are tokens of locks, and name no
/// resource.
pub fn resource_tags(value: &[u8]) -> impl Iterator<Item = Range<usize>> + use<'_> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at
                + value
                    .get(at..)?
                    .iter()
                    .position(|byte| b"<(".contains(byte))?;
            if value[start] == b'<' {
                let end = end_of(value, start, b'>')?;
                at = end + 1;
                return Some(start + 1..end);
            }
            at = list_end(value, start)? + 1;
        }
    })
}

/// Returns the value of If with each resource tag in the form of `rewrite`. A tag without another form stays as sent.
pub fn with_resource_tags(value: &[u8], rewrite: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut at = 0;
    for tag in resource_tags(value) {
        if let Some(rewritten) = rewrite(&value[tag.clone()]) {
            out.extend_from_slice(&value[at..tag.start]);
            out.extend_from_slice(&rewritten);
            at = tag.end;
        }
    }
    out.extend_from_slice(&value[at..]);
    out
}

/// Returns the position of the parenthesis that ends the list at `start`. Parentheses within tokens of locks and within
/// entity tags don't count.
fn list_end(value: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at = match value.get(at)? {
            b')' => return Some(at),
            b'<' => end_of(value, at, b'>')? + 1,
            b'"' => end_of(value, at, b'"')? + 1,
            _ => at + 1,
        };
    }
}

/// Returns the position of the byte `end` behind `start`.
fn end_of(value: &[u8], start: usize, end: u8) -> Option<usize> {
    let rest = value.get(start + 1..)?;
    Some(start + 1 + rest.iter().position(|byte| *byte == end)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn references_to_the_own_host_have_a_path() {
        let hosts: [&[u8]; 2] = [b"dav.test:8443", b"front.test"];
        let table = [
            ("https://dav.test:8443/a/b?c", Some("/a/b?c")),
            ("http://DAV.test:8443/a", Some("/a")),
            ("HTTPS://front.test/a", Some("/a")),
            ("http://front.test:80/a", Some("/a")),
            ("https://front.test", Some("/")),
            ("/a/b", Some("/a/b")),
            ("https://dav.test/a", None),
            ("https://dav.test:444/a", None),
            ("https://evil.test/a", None),
            ("https://a@dav.test:8443/a", None),
            ("https://dav.test:8443\\a", None),
            ("https://dav.test:8443?a", None),
            ("//dav.test:8443/a", None),
            ("/\\dav.test:8443/a", None),
            ("https:/a", None),
            ("ftp://dav.test:8443/a", None),
            ("a/b", None),
            ("", None),
        ];
        for (url, expected) in table {
            let found = own_reference(url.as_bytes(), &hosts);
            assert_eq!(found, expected.map(str::as_bytes), "{url}");
        }
        assert_eq!(own_reference(b"https:///a", &[b"", b""]), None);
    }

    #[test]
    #[rustfmt::skip] // Keeps the columns of the table.
    fn tags_outside_of_lists_are_rewritten() {
        let table = [
            ("<http://a/x> (<urn:uuid:1>)", "<HTTP://A/X> (<urn:uuid:1>)"),
            ("<http://a/x> (<urn:1> [\"e>t)a<g\"]) (Not <DAV:no>) <http://b> (<urn:2>)",
             "<HTTP://A/X> (<urn:1> [\"e>t)a<g\"]) (Not <DAV:no>) <HTTP://B> (<urn:2>)"),
            ("(<urn:uuid:1>) ([W/\"a\"])", "(<urn:uuid:1>) ([W/\"a\"])"),
            ("<same> (<urn:1>)", "<same> (<urn:1>)"),
            ("<http://a", "<http://a"),
            ("(<urn:1>", "(<urn:1>"),
            ("", ""),
        ];
        for (value, expected) in table {
            let upper = |url: &[u8]| (url != b"same").then(|| url.to_ascii_uppercase());
            let rewritten = with_resource_tags(value.as_bytes(), upper);
            assert_eq!(String::from_utf8_lossy(&rewritten), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn tags_lie_within_the_value_and_do_not_overlap(value in "[a<>()\"\\[\\] ]{0,40}") {
            let value = value.as_bytes();
            let mut end = 0;
            for tag in resource_tags(value) {
                prop_assert!(tag.start > end || end == 0);
                prop_assert_eq!((value[tag.start - 1], value[tag.end]), (b'<', b'>'));
                prop_assert!(!value[tag.clone()].contains(&b'>'));
                end = tag.end;
            }
            prop_assert_eq!(with_resource_tags(value, |url| Some(url.to_vec())), value);
        }
    }
}
