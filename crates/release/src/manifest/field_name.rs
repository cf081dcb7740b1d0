//! Names and values of the response fields that a manifest may set.

/// Fields that frame the message or that the responses of a site depend on.
const SERVER_FIELDS: [&str; 13] = [
    "accept-ranges",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that concern the whole host: a browser remembers them for all paths. Routes of the operator share the host with
/// the files of a release, so only the operator sets the fields. Reporting-Endpoints and Origin-Trial hold for one page.
const HOST_FIELDS: [&str; 19] = [
    // Client hints that a browser sends with every later request (RFC 8942 §3.1).
    "accept-ch",
    "accept-ch-lifetime",
    "critical-ch",
    "alt-svc",
    "clear-site-data",
    "set-cookie",
    "set-cookie2",
    // Sessions bound to a device, and the state of a login (FedCM).
    "sec-session-challenge",
    "sec-session-registration",
    "secure-session-challenge",
    "secure-session-registration",
    "set-login",
    // Rules for certificates and for plain HTTP.
    "expect-ct",
    "public-key-pins",
    "public-key-pins-report-only",
    "strict-transport-security",
    // Reports about every request to the host, and with `include_subdomains` to the hosts below.
    "nel",
    "report-to",
    // The first page of an origin decides for all pages.
    "origin-agent-cluster",
];

/// Fields of the caches and proxies between the server and the client. A proxy in front of the server would believe the
/// fields, and some commands to a proxy open files of the proxy.
const PROXY_FIELDS: [&str; 13] = [
    "age",
    "cache-status",
    "http2-settings",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-connection",
    "proxy-status",
    "via",
    "warning",
    "x-accel-redirect",
    "x-lighttpd-send-file",
    "x-reproxy-url",
    "x-sendfile",
];

/// Returns true if a rule may set the field.
pub fn is_settable(name: &str) -> bool {
    is_token(name) && !is_one_of(name, &SERVER_FIELDS)
}

/// Returns true for a valid name of a field (RFC 9110 §5.1).
fn is_token(name: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(token)
}

/// Returns the reason why a manifest may not set a field, as one clause; None for a field that a manifest may set.
pub fn field_refusal(name: &[u8]) -> Option<&'static str> {
    let name = std::str::from_utf8(name).unwrap_or_default();
    match name {
        _ if !is_token(name) => Some("the name of the field is invalid"),
        _ if !is_settable(name) => Some("only the server sets this field"),
        _ if is_one_of(name, &HOST_FIELDS) => {
            Some("this field concerns the whole host, so only the operator sets the field")
        }
        _ if is_one_of(name, &PROXY_FIELDS) => {
            Some("this field is for caches and proxies, so only the operator sets the field")
        }
        _ => None,
    }
}

/// Returns true for a valid field value (RFC 9110 §5.5).
pub fn valid_value(value: &str) -> bool {
    !value
        .bytes()
        .any(|byte| (byte < 32 && byte != b'\t') || byte == 127)
}

fn is_one_of(name: &str, fields: &[&str]) -> bool {
    fields.iter().any(|field| field.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_malformed_fields_are_refused() {
        assert!(is_settable("X-Frame-Options") && is_settable("Cache-Control"));
        assert!(is_settable("Set-Cookie"), "the operator may");
        assert!(!is_settable("content-length") && !is_settable("a b") && !is_settable(""));
        for field in ["X-Frame-Options", "Reporting-Endpoints", "Origin-Trial"] {
            assert_eq!(field_refusal(field.as_bytes()), None, "{field}");
        }
        for (field, clause) in [
            ("Date", "only the server"),
            ("Set-Cookie2", "the whole host"),
            ("NEL", "the whole host"),
            ("Report-To", "the whole host"),
            ("Accept-CH", "the whole host"),
            ("Via", "caches and proxies"),
            ("Age", "caches and proxies"),
            ("X-Accel-Redirect", "caches and proxies"),
        ] {
            let refusal = field_refusal(field.as_bytes());
            assert!(
                refusal.is_some_and(|refusal| refusal.contains(clause)),
                "{field}"
            );
        }
        assert!(is_settable("NEL") && is_settable("Via"), "the operator may");
        assert!(valid_value("a\tb \u{e9}") && !valid_value("a\r\nb"));
    }
}
