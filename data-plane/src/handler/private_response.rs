//! Cache-Control of responses for one client: shared caches between the server and the client may not store them.
//!
//! A request with Authorization has this rule from RFC 9111 §3.5. A server for forward authentication knows clients by
//! cookies, and for cookies no rule exists.

use wire::fields::items;
use wire::response_fields::ResponseFields;

/// Adds `private` to Cache-Control, and removes `public`, `s-maxage` and the fields for single caches (RFC 9213), which
/// override Cache-Control. The other directives stay: the cache of the browser may store the response.
pub(crate) fn keep_from_shared_caches(fields: &mut ResponseFields) {
    let mut control = Vec::new();
    let directives = fields.all("cache-control").flat_map(items);
    for directive in directives.filter(|it| !is_for_shared_caches(it)) {
        control.extend_from_slice(directive);
        control.extend_from_slice(b", ");
    }
    control.extend_from_slice(b"private");
    fields.retain(|name, _| !is_control(name));
    fields.push(b"Cache-Control", &control);
}

fn is_for_shared_caches(directive: &[u8]) -> bool {
    let name = directive.split(|byte| *byte == b'=').next();
    let name = name.unwrap_or_default().trim_ascii();
    [&b"public"[..], b"private", b"s-maxage"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns true for Cache-Control, CDN-Cache-Control and their like.
fn is_control(name: &[u8]) -> bool {
    let endings: [&[u8]; 2] = [b"cache-control", b"surrogate-control"];
    endings.iter().any(|ending| {
        let start = name.len().checked_sub(ending.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(ending))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_the_browser_alone_may_store() {
        for (lines, expected) in [
            ("", "Cache-Control: private\r\n"),
            (
                "Cache-Control: public, max-age=600\r\nETag: \"a\"\r\n",
                "ETag: \"a\"\r\nCache-Control: max-age=600, private\r\n",
            ),
            (
                "cache-control: S-MaxAge = 5\r\nCache-Control: immutable, private=\"x, y\", max-age=1\r\n",
                "Cache-Control: immutable, max-age=1, private\r\n",
            ),
            (
                "CDN-Cache-Control: max-age=60\r\nSurrogate-Control: max-age=60\r\nCache-Control: no-store\r\n",
                "Cache-Control: no-store, private\r\n",
            ),
        ] {
            let mut fields = ResponseFields::from_lines(lines.as_bytes().to_vec());
            keep_from_shared_caches(&mut fields);
            assert_eq!(
                fields.lines().escape_ascii().to_string(),
                expected.as_bytes().escape_ascii().to_string()
            );
        }
    }
}
