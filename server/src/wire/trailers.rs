//! Trailer fields (RFC 9110 §6.5) that may pass from one message to another.

use crate::wire::fields::Fields;
use crate::wire::hop_by_hop::is_ambiguous;

/// Returns the lines of a trailer section, each with CRLF, without the fields that no trailer section may
/// contain (RFC 9110 §6.5.1): a recipient may merge trailers into the header section, where the fields
/// would change the framing, the route or the login of a message after the check of its head.
pub fn allowed_trailers(lines: &[u8]) -> Vec<u8> {
    kept_lines(lines, |name| !is_forbidden(name))
}

/// Returns the lines of a request's trailer section, as [`allowed_trailers`] does, also without the fields that
/// a member could take for other fields by their names.
pub fn allowed_request_trailers(lines: &[u8]) -> Vec<u8> {
    kept_lines(lines, |name| !is_forbidden(name) && !is_ambiguous(name))
}

fn kept_lines(lines: &[u8], is_kept: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut kept = Vec::with_capacity(lines.len());
    for (name, value) in Fields(lines) {
        if is_kept(name) {
            for part in [name, b": ", value, b"\r\n"] {
                kept.extend_from_slice(part);
            }
        }
    }
    kept
}

fn is_forbidden(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    // A digest of the content is known only at the end (RFC 9530 §2).
    let is_of_content = name.starts_with(b"content-") && name != b"content-digest";
    is_of_content
        || [&b"if-"[..], b"proxy-", b"x-forwarded-"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || FORBIDDEN.iter().any(|it| it.as_bytes() == name)
}

/// Fields forbidden in a trailer section, in lower case: framing and connection, routing, request
/// modifiers, authentication, and control data of responses.
const FORBIDDEN: [&str; 28] = [
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "forwarded",
    "host",
    "max-forwards",
    "via",
    "x-real-ip",
    "accept-encoding",
    "cache-control",
    "expect",
    "pragma",
    "prefer",
    "range",
    "authorization",
    "cookie",
    "set-cookie",
    "www-authenticate",
    "age",
    "date",
    "expires",
    "location",
    "retry-after",
    "vary",
    "warning",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_a_meaning_in_the_head_are_dropped() {
        let lines = b"grpc-status: 0\r\nHost: b\r\ncontent-length:5\r\nServer-Timing:\tdb;dur=5 \r\n\
            Transfer-Encoding: chunked\r\nAuthorization: Basic eA==\r\nX-Forwarded-For: 192.0.2.1\r\n\
            Content-Digest: sha-256=:AA==:\r\nIf-Match: *\r\nETag: \"a\"\r\ncookie: a\r\n";
        let kept = b"grpc-status: 0\r\nServer-Timing: db;dur=5\r\n\
            Content-Digest: sha-256=:AA==:\r\nETag: \"a\"\r\n";
        let allowed = allowed_trailers(lines);
        assert_eq!(
            allowed.escape_ascii().to_string(),
            kept.escape_ascii().to_string()
        );
        assert_eq!(allowed_trailers(&allowed), allowed);
        assert_eq!(allowed_trailers(b""), b"");
    }

    #[test]
    fn ambiguous_names_are_dropped_from_requests() {
        let lines = b"X_Real_IP: 1\r\nx-sum: 2\r\nX.Sum: 3\r\nHost: b\r\n";
        let allowed = allowed_request_trailers(lines);
        assert_eq!(allowed.escape_ascii().to_string(), "x-sum: 2\\r\\n");
        let all = allowed_trailers(lines);
        assert!(
            all.starts_with(b"X_Real_IP: 1\r\n"),
            "a member may send such fields"
        );
    }

    #[test]
    fn forbidden_names_are_dropped_in_any_case() {
        for name in FORBIDDEN {
            for name in [name.to_owned(), name.to_uppercase()] {
                let line = format!("{name}: a\r\n");
                assert_eq!(allowed_trailers(line.as_bytes()), b"", "{name}");
            }
        }
    }
}
