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

/// Fields that concern the whole host. Routes of the operator share the host with the files of a release, so only the
/// operator sets the fields.
const HOST_FIELDS: [&str; 4] = [
    "alt-svc",
    "clear-site-data",
    "set-cookie",
    "strict-transport-security",
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
        assert!(valid_value("a\tb \u{e9}") && !valid_value("a\r\nb"));
    }
}
