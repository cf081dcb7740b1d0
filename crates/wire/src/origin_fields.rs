//! Request fields by which a proxy states the client of a request, or the scheme, the host, the port or the URL of
//! the client's request. Applications believe these fields, so a field sent by the client itself must not reach
//! an application.

/// Returns true if the field states the client or the URL of a request. Case does not matter, and `_` counts as
/// `-`, because many applications read `X_Real_IP` as X-Real-IP.
///
/// The common fields of a request are told apart by their first letter or by their length.
#[inline]
pub fn states_origin(name: &[u8]) -> bool {
    let first = name.first().map_or(0, u8::to_ascii_lowercase);
    matches!(first, b'c' | b'f' | b'p' | b't' | b'w' | b'x') && is_listed(name)
}

fn is_listed(name: &[u8]) -> bool {
    PREFIXES.iter().any(|prefix| starts_with(name, prefix))
        || ORIGIN_FIELDS
            .iter()
            .any(|known| known.len() == name.len() && starts_with(name, known))
}

/// Returns true if `name` begins with `start`, a text in lower case.
fn starts_with(name: &[u8], start: &str) -> bool {
    let folded = |byte: &u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    name.len() >= start.len()
        && name
            .iter()
            .map(folded)
            .zip(start.bytes())
            .all(|(a, b)| a == b)
}

/// Prefixes of X-Forwarded-For, -Host, -Port, -Prefix, -Proto, -Scheme, -Server, -Ssl and -User, and of
/// X-SSL-Client-Verify, -Cert and -DN (the client certificate), among more fields.
const PREFIXES: [&str; 2] = ["x-forwarded-", "x-ssl-client-"];

/// Fields beside those with one of the [`PREFIXES`], in lower case.
const ORIGIN_FIELDS: [&str; 30] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "client-ip",
    "cloudfront-viewer-address",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "front-end-https",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-envoy-original-path",
    "x-forward-for",
    "x-forwarded",
    "x-http-host-override",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-user",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_state_the_client_are_known() {
        let more = [
            "X-Forwarded-For",
            "x-forwarded-anything",
            "X_FORWARDED_Host",
            "X-SSL-Client-Verify",
        ];
        for name in ORIGIN_FIELDS.iter().chain(&more) {
            let names = [
                (*name).to_owned(),
                name.to_uppercase(),
                name.replace('-', "_"),
            ];
            for name in names {
                assert!(states_origin(name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn other_fields_are_no_statement_of_the_client() {
        for name in [
            "",
            "x",
            "Host",
            "Cookie",
            "Content-Type",
            "From",
            "TE",
            "Via",
            "X-Forwarde",
            "X-Forwardedfor",
            "X-SSL-Client",
            "X-Schemes",
            "X-Real-IPs",
            "X-Request-Id",
            "X-Requested-With",
            "Client-IPs",
            "My-Client-IP",
        ] {
            assert!(!states_origin(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn each_name_is_in_lower_case_and_begins_with_a_known_letter() {
        for name in ORIGIN_FIELDS {
            assert_eq!(name, name.to_lowercase());
            assert!(b"cfptwx".contains(&name.as_bytes()[0]), "{name}");
        }
    }
}
