//! Trailer fields (RFC 9110 §6.5) that may pass from one message to another.

use crate::fields::Fields;
use crate::hop_by_hop::{is_ambiguous, is_header_only};

/// Returns the lines of a trailer section, each with CRLF, without the fields that no trailer section may
/// contain (RFC 9110 §6.5.1): a recipient may merge trailers into the header section, where the fields
/// would change the framing, the route, the client or the login of a message after the check of its head.
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
    let folded = |byte: &u8| match byte {
        // Many applications read `Content_Length` as Content-Length.
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    let name: Vec<u8> = name.iter().map(folded).collect();
    // A digest of the content is known only at the end (RFC 9530 §2).
    let is_of_content = name.starts_with(b"content-") && name != b"content-digest";
    is_of_content || is_header_only(&name)
}

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
        let lines = b"X_Own: 1\r\nx-sum: 2\r\nX.Sum: 3\r\nHost: b\r\n";
        let allowed = allowed_request_trailers(lines);
        assert_eq!(allowed.escape_ascii().to_string(), "x-sum: 2\\r\\n");
        let all = allowed_trailers(lines);
        assert!(
            all.starts_with(b"X_Own: 1\r\n"),
            "a member may send such fields"
        );
    }

    #[test]
    #[rustfmt::skip] // Keeps the groups of the list.
    fn forbidden_names_are_dropped_in_any_spelling() {
        let names = [
            // Framing and connection.
            "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length",
            "proxy-connection", "http2-settings",
            // Routing.
            "host", "max-forwards", "via", "x-http-method-override", "location", "content-location",
            // Identity of the client.
            "forwarded", "x-forwarded-for", "x-forwarded-anything", "x-real-ip", "true-client-ip",
            "cf-connecting-ip", "x-original-url", "x-rewrite-url",
            // Request modifiers.
            "accept-encoding", "cache-control", "expect", "if-match", "pragma", "prefer", "range", "priority",
            // Authentication and sessions.
            "authorization", "proxy-authorization", "proxy-authenticate", "www-authenticate",
            "authentication-info", "cookie", "set-cookie", "remote-user", "x-remote-user",
            // Content and control data of responses.
            "content-type", "content-encoding", "content-range", "content-language", "content-disposition",
            "age", "date", "expires", "retry-after", "refresh", "status", "vary", "warning",
            // Security policies.
            "strict-transport-security", "content-security-policy", "x-frame-options",
            "x-content-type-options", "access-control-allow-origin", "cross-origin-opener-policy",
            "referrer-policy", "permissions-policy", "clear-site-data", "origin", "referer", "sec-fetch-site",
        ];
        for name in names {
            for name in [name.to_owned(), name.to_uppercase(), name.replace('-', "_")] {
                let line = format!("{name}: a\r\n");
                assert_eq!(allowed_trailers(line.as_bytes()), b"", "{name}");
            }
        }
    }

    #[test]
    #[rustfmt::skip] // Keeps the groups of the list.
    fn results_known_at_the_end_pass() {
        let names = [
            "grpc-status", "grpc-message", "grpc-status-details-bin", "my_metadata-bin", "Content-Digest",
            "Repr-Digest", "ETag", "Server-Timing", "Signature", "X-Checksum", "Last-Modified",
        ];
        for name in names {
            let line = format!("{name}: a\r\n");
            assert_eq!(allowed_trailers(line.as_bytes()), line.as_bytes(), "{name}");
        }
    }
}
