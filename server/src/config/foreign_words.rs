//! Words of other servers, each with the key of this server.

use crate::config::foreign_values::BY_SIZE;

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
    ("backend", TARGET),
    ("balancer", BALANCER),
    ("balance", BALANCER),
    ("load_balancing", BALANCER),
    ("proxy", PROXY),
    ("proxy_pass", PROXY),
    ("reverse_proxy", PROXY),
    ("ProxyPass", PROXY),
    ("include", INCLUDE),
    ("import", INCLUDE),
    ("Include", INCLUDE),
    ("IncludeOptional", INCLUDE),
    ("https", LISTEN),
    ("listen", LISTEN),
    ("Listen", LISTEN),
    ("port", LISTEN),
    ("bind", LISTEN),
    ("gzip", COMPRESSED),
    ("gzip_types", COMPRESSED),
    ("brotli", COMPRESSED),
    ("zstd", COMPRESSED),
    ("compress", COMPRESSED),
    ("compression", COMPRESSED),
    ("encode", COMPRESSED),
    ("the table `proxy` compress", COMPRESS_OF_ROUTE),
    ("the table `balance` compress", COMPRESS_OF_ROUTE),
    ("[[balancer]] compress", COMPRESS_OF_ROUTE),
    ("a member compress", COMPRESS_OF_ROUTE),
    ("forward_auth", FORWARD_AUTH),
    ("ForwardAuth", FORWARD_AUTH),
    ("auth_request", FORWARD_AUTH),
    ("auth_url", FORWARD_AUTH),
    ("auth-url", FORWARD_AUTH),
    ("the table `proxy` auth", FORWARD_AUTH),
    ("the table `balance` auth", FORWARD_AUTH),
    ("[[site]] auth", FORWARD_AUTH),
    (
        "satisfy",
        "write any = true in [[site.route]], beside `allow` and `users` or `auth`",
    ),
    (
        "Satisfy",
        "write any = true in [[site.route]], beside `allow` and `users` or `auth`",
    ),
    ("acme dns", DNS_HOOK),
    ("acme dns_provider", DNS_HOOK),
    ("acme dns_challenge", DNS_HOOK),
    ("acme provider", DNS_HOOK),
    ("acme resolvers", DNS_HOOK),
    ("acme token", DNS_HOOK),
    ("acme api_token", DNS_HOOK),
    ("acme api_key", DNS_HOOK),
    ("acme credentials", DNS_HOOK),
    ("[[site.route]] symlinks", WHOLE_SITE),
    (
        "[[site.route]] try_files",
        "write try = [\"$path\", \"/index.html\"], or try = [\"$path\", \"proxy\"] beside `proxy`",
    ),
    ("[[site.route]] expires", RULE_OF_CACHE),
    ("[[site.route]] cache_control", RULE_OF_CACHE),
    (
        "[[site.route]] mime",
        "write mime = { \"/data/**\" = \"text/plain\" } in [[site]]",
    ),
    ("[[site.route]] names", OTHER_SITE),
    ("[[site.route]] certificate", OTHER_SITE),
    ("[[site.route]] http", OTHER_SITE),
    (
        "the table `redirect` permanent",
        "write status = 301; without the key the status is 308, permanent too",
    ),
    (
        "metrics",
        "write manager = \"127.0.0.1:9100\" in [server]: the manager serves /metrics",
    ),
    (
        "uwsgi",
        "write scgi = \"127.0.0.1:3031\" (uwsgi --scgi-socket), or proxy = \"http://127.0.0.1:3031\" (uwsgi --http-socket)",
    ),
    (
        "uwsgi_pass",
        "write scgi = \"127.0.0.1:3031\" (uwsgi --scgi-socket), or proxy = \"http://127.0.0.1:3031\" (uwsgi --http-socket)",
    ),
    ("httpchk", HEALTH),
    (
        "forwardfor",
        "remove the key: members get X-Forwarded-For without a setting",
    ),
    (
        "x_forwarded_for",
        "remove the key: members get X-Forwarded-For without a setting",
    ),
    ("sendfile", SERVED_WELL),
    ("tcp_nopush", SERVED_WELL),
    ("tcp_nodelay", SERVED_WELL),
    ("open_file_cache", SERVED_WELL),
    ("etag", SERVED_WELL),
    ("rate_limit", RATE),
    ("ratelimit", RATE),
    ("limit_req", RATE),
    ("limit_req_zone", RATE),
    (
        "limit_conn",
        "write limits = { connections_per_address = 100 } in [server]",
    ),
    ("tls", CERTIFICATE),
    ("ssl", CERTIFICATE),
    ("SSLEngine", CERTIFICATE),
    ("letsencrypt", ACME),
    ("certbot", ACME),
    ("acme", ACME),
    ("email", ACME),
    ("auto_https", ACME),
    ("rewrite", ROUTE_REWRITE),
    ("redirect", ROUTE_REDIRECT),
    ("redir", ROUTE_REDIRECT),
    ("return", ROUTE_REDIRECT),
    ("Redirect", ROUTE_REDIRECT),
    (
        "try_files",
        "write try = [\"$path\", \"/index.html\"] in [[site]]",
    ),
    (
        "FallbackResource",
        "write try = [\"$path\", \"/index.html\"] in [[site]]",
    ),
    ("handle", ROUTE),
    ("handle_path", ROUTE),
    ("location", ROUTE),
    ("Location", ROUTE),
    ("Directory", ROUTE),
    ("path", ROUTE),
    (
        "auth_basic",
        "remove the key: `users` names the file, and a browser shows the host as the realm",
    ),
    ("auth_basic_user_file", USERS),
    ("basic_auth", USERS),
    ("basicauth", USERS),
    ("users", USERS),
    ("password", USERS),
    ("[manager] password", MANAGER_USERS),
    ("[manager] passwords", MANAGER_USERS),
    ("document-root", DOCUMENT_ROOT),
    ("document_root", DOCUMENT_ROOT),
    ("the table `rotate` every", BY_SIZE),
    ("the table `rotate` interval", BY_SIZE),
    ("the table `rotate` when", BY_SIZE),
    ("AuthUserFile", USERS),
    (
        "allow",
        "write allow = [\"192.0.2.0/24\"] in a [[site.route]]",
    ),
    (
        "Require",
        "write allow = [\"192.0.2.0/24\"] in a [[site.route]]",
    ),
    ("php", PHP),
    ("php_fastcgi", PHP),
    ("fastcgi_pass", PHP),
    ("fastcgi", PHP),
    (
        "access_log",
        "write access = \"FILE\" in [log], or log = \"FILE\" in [[site]]",
    ),
    ("error_log", "write errors = \"FILE\" in [log]"),
    ("log_level", "remove the key: the error log has one level"),
    (
        "daemon",
        "remove the key: `anthill serve` stays in the foreground, and `anthill service install` starts it at boot",
    ),
    ("worker_processes", "write workers = 4 in [server]"),
    (
        "worker_connections",
        "write limits = { connections = 20000 } in [server]",
    ),
    (
        "keepalive_timeout",
        "write limits = { idle_seconds = 75 } in [server]",
    ),
    (
        "client_header_timeout",
        "write limits = { head_seconds = 10 } in [server]",
    ),
    (
        "send_timeout",
        "write limits = { write_stall_seconds = 30 } in [server]",
    ),
    (
        "server_tokens",
        "write headers = [{ files = \"*\", set = { Server = \"web\" } }] in [[site]]",
    ),
    (
        "http2",
        "remove the key: HTTP/2 needs no setting; for HTTP/3 write http3 = true in [server]",
    ),
    (
        "default_server",
        "write names = [\"*\"] in the [[site]] that answers for all other names",
    ),
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

const PROXY: &str = "write `proxy = \"http://127.0.0.1:9000\"` in a [[site.route]] with `path`";
const BALANCER: &str =
    "write [[balancer]] with `name` and `members`, and `balance` in a [[site.route]]";
const INCLUDE: &str =
    "write include = [\"sites.d/*.toml\"] at the top of the file, above the first table";
const LISTEN: &str = "write https = [\":443\"] or http = [\":80\"] in [server], or listen = [\"https://:8001\"] in a \
     [[site]] for that site alone";
const COMPRESSED: &str = "remove the key: text is compressed without a setting; for scripts and members, `compress` in \
     a [[site.route]] changes that";
const COMPRESS_OF_ROUTE: &str =
    "write `compress` in the route, beside `proxy` or `balance`: compress = false";
const FORWARD_AUTH: &str = "write auth = { url = \"http://127.0.0.1:9091/api/authz/forward-auth\", copy = [\"Remote-User\"] } in \
     [[site.route]]: a server decides about each request";
const DNS_HOOK: &str = "write hook = \"/usr/local/bin/dns-hook\", the path of a program that sets the DNS record and has \
     the login of the provider";
const WHOLE_SITE: &str =
    "write the key in [[site]], above the first [[site.route]]: it holds for the whole site";
const RULE_OF_CACHE: &str = "write cache = [{ files = \"*.png\", max_age = \"30d\" }]";
const OTHER_SITE: &str = "move the key above the first [[site.route]] of its site; for another site, write [[site]] above \
     the key";
const SERVED_WELL: &str = "remove the key: files are served well without a setting";
const RATE: &str = "write `rate = { requests = 60, per = \"1m\" }` in [[site]] or [[site.route]]";
const CERTIFICATE: &str = "write `certificate` and `key` in [[site]], or acme = { email = \"me@example.org\" } in [tls] \
     for automatic certificates";
const ACME: &str = "write [tls] with acme = { email = \"me@example.org\" }";
const ROUTE: &str = "write [[site.route]] with `path`, below the [[site]]";
const ROUTE_REDIRECT: &str = "write [[site.route]] with path = \"/old/\" and redirect = \"/new/\"";
const ROUTE_REWRITE: &str = "write [[site.route]] with path = \"/old/\" and rewrite = \"/new/\"";
const USERS: &str =
    "write users = \"FILE\" in a [[site.route]]; `anthill passwd FILE NAME` makes the file";
const MANAGER_USERS: &str =
    "write users = \"managers\" in [manager]; `anthill passwd managers NAME` makes the file";
const DOCUMENT_ROOT: &str = "write root = \"public\" in a [[site]]";
pub(super) const PHP: &str = "write [[site.route]] with path = \"/\", fastcgi = \"unix:/run/php/php-fpm.sock\" and files = \".php\"";

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

/// Returns the help for a key of another server in a table.
pub(super) fn key_help(table: &str, word: &str) -> Option<&'static str> {
    find(KEYS, &format!("{table} {word}")).or_else(|| find(KEYS, word))
}

/// Examples for keys with any text or path: the key and the value.
static EXAMPLES: &[(&str, &str)] = &[
    ("certificate", "\"example.org.pem\""),
    ("growing", "[\"*.log\"]"),
    ("key", "\"example.org.key\""),
    ("profile", "\"shortlived\""),
    (
        "publishers",
        "[\"d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a\"]",
    ),
    ("root", "\"public\""),
    ("user", "\"anthill\""),
    ("users", "\"users.htpasswd\""),
];

/// Returns the example of a key with any text or path.
pub(super) fn example(key: &str) -> Option<&'static str> {
    find(EXAMPLES, key)
}

/// Returns the second word of the pair that begins with `word`.
pub(super) fn find(
    pairs: &'static [(&'static str, &'static str)],
    word: &str,
) -> Option<&'static str> {
    let pair = pairs.iter().find(|(foreign, _)| *foreign == word);
    pair.map(|(_, own)| *own)
}
