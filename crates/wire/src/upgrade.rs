//! Protocols to which a client wants to switch: the value of Upgrade (RFC 9110 §7.8) or of `:protocol`
//! (RFC 8441 §4, RFC 9220).

use crate::byte_search;

/// Returns true if `value` names a single protocol: a token, and perhaps a slash and a version.
pub(super) fn is_protocol(value: &[u8]) -> bool {
    let mut parts = value.splitn(2, |byte| *byte == b'/');
    parts.all(|part| !part.is_empty() && byte_search::token_end(part, 0) == part.len())
        && !value.is_empty()
}

/// Returns true if a connection of the protocol carries further requests of HTTP: HTTP itself, HTTP/2
/// without TLS (`h2c`, RFC 7540 §3.2) and TLS (RFC 2817). Requests inside a tunnel would pass no route and
/// no guard.
pub(super) fn carries_requests(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next();
    let name = name.unwrap_or_default();
    [&b"http"[..], b"h2c", b"h2", b"h3", b"tls"]
        .iter()
        .any(|it| it.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_a_token_with_a_version() {
        for (value, expected) in [
            ("websocket", true),
            ("WebSocket", true),
            ("connect-udp", true),
            ("IRC/6.9", true),
            ("", false),
            ("/", false),
            ("a/", false),
            ("/1", false),
            ("a/1/2", false),
            ("a b", false),
            ("websocket, h2c", false),
            ("a;b", false),
        ] {
            assert_eq!(is_protocol(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn protocols_of_further_requests_are_known() {
        for protocol in ["h2c", "H2C", "HTTP/2.0", "http", "TLS/1.0", "h2", "h3"] {
            assert!(carries_requests(protocol.as_bytes()), "{protocol}");
        }
        for protocol in ["websocket", "h2cc", "httpx", "", "a/http"] {
            assert!(!carries_requests(protocol.as_bytes()), "{protocol}");
        }
    }
}
