//! Words of other servers, each with the key or the value of this server.

/// Keys of other servers, with a help that holds in every table. Words with a meaning in a single table are
/// part of that table.
static KEYS: &[(&str, &str)] = &[
    ("proxy_read_timeout", READ_TIMEOUT),
    ("read_timeout", READ_TIMEOUT),
    ("max_fails", EJECT),
    ("fail_timeout", EJECT),
    ("check", HEALTH),
    ("health_check", HEALTH),
    ("health_uri", HEALTH),
    ("ip_hash", "write method = \"ip-hash\" in [[balancer]]"),
    (
        "least_conn",
        "write method = \"bybusyness\" in [[balancer]]",
    ),
    ("insecure", VERIFIED),
    ("insecure_skip_verify", VERIFIED),
    ("tls_insecure_skip_verify", VERIFIED),
    ("proxy_ssl_verify", VERIFIED),
    ("ssl_verify", VERIFIED),
    ("tls_verify", VERIFIED),
    ("verify", VERIFIED),
    ("websocket", NOT_NEEDED),
    ("websockets", NOT_NEEDED),
    ("proxy_http_version", NOT_NEEDED),
    ("buffering", NOT_NEEDED),
    ("proxy_buffering", NOT_NEEDED),
    ("flush_interval", NOT_NEEDED),
    ("proxy_redirect", CHANGED_BACK),
    ("proxy_cookie_path", CHANGED_BACK),
    (
        "client_max_body_size",
        "write body_bytes = \"100MiB\" in the route, or limits = { body_bytes = \"100MiB\" } in [server]",
    ),
    (
        "strip_prefix",
        "write prefix = \"/\" in the table `proxy` or `balance` of the route",
    ),
    ("upstream", TARGET),
    (
        "down",
        "write status = \"disabled\" in the table of the member",
    ),
    ("proxy_set_header", REQUEST_FIELDS),
    ("header_up", REQUEST_FIELDS),
    ("proxy_hide_header", RESPONSE_FIELDS),
    ("header_down", RESPONSE_FIELDS),
    ("sticky_cookie", STICKY),
    ("sticky_session", STICKY),
    ("stickysession", STICKY),
    (
        "proxy_protocol",
        "write https = [{ listen = \":8443\", proxy_protocol = true }] in [server]",
    ),
];

const READ_TIMEOUT: &str = "did you mean `first_byte_timeout` (until the response begins) or `silence_timeout` (within it)?";
const TARGET: &str =
    "did you mean `proxy` (a URL) or `balance` (the name of a [[balancer]]) in the route?";
const REQUEST_FIELDS: &str =
    "write request_headers = { … } in the table `proxy` or `balance` of the route";
const RESPONSE_FIELDS: &str =
    "write response_headers = { … } in the table `proxy` or `balance` of the route";
const STICKY: &str = "write sticky = { cookie = \"ROUTE\", signed = true } in [[balancer]]";
const EJECT: &str = "write eject = { failures = 3, pause = \"10s\" } in [[balancer]]";
const HEALTH: &str = "write health = { path = \"/health\" } in [[balancer]]";
const VERIFIED: &str =
    "remove the key: https is always verified; for an authority of your own write ca = \"FILE\"";
const NOT_NEEDED: &str =
    "remove the key: WebSockets pass, and responses leave as they arrive, without a setting";
const CHANGED_BACK: &str =
    "remove the key: with `prefix`, redirects and cookie paths are changed back";

/// Balancing methods of other servers in lower case, without `-` and `_`.
pub(super) static METHODS: &[(&str, &str)] = &[
    ("roundrobin", "byrequests"),
    ("rr", "byrequests"),
    ("leastconn", "bybusyness"),
    ("leastconnections", "bybusyness"),
    ("source", "ip-hash"),
    ("hash", "maglev"),
    ("random", "p2c"),
    ("leasttime", "p2c"),
];

/// Returns the help for a key of another server.
pub(super) fn key_help(word: &str) -> Option<&'static str> {
    find(KEYS, word)
}

/// Returns the second word of the pair that begins with `word`.
pub(super) fn find(
    pairs: &'static [(&'static str, &'static str)],
    word: &str,
) -> Option<&'static str> {
    let pair = pairs.iter().find(|(foreign, _)| *foreign == word);
    pair.map(|(_, own)| *own)
}
