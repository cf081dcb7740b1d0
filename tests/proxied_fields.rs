//! Fields, trailers and URLs on their way between clients and members: statements that only a trusted proxy may
//! make, trailers that belong in a head, and redirects of members.

use crate::support::h2::H2;
use crate::support::member::{Answer, Member, ok};
use crate::support::wire::{BOTH, Wire};
use crate::support::{Server, server_table, site_table};

/// Starts a server that trusts 127.0.0.2, with a route `/` to the member and further keys of `proxy`.
fn proxy(member: &Member, path: &str, keys: &str) -> Server {
    let route = format!(
        "[[site.route]]\npath = \"{path}\"\nproxy = {{ url = \"{}\"{keys} }}\n",
        member.url()
    );
    let table = server_table("trust = [\"127.0.0.2\"]\nh2c = true");
    Server::start(&(table + &site_table("http = \"serve\"\n") + &route))
}

/// Fields by which proxies state the client, beside those that this server writes.
const STATEMENTS: [&str; 34] = [
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "CF-Pseudo-IPv4",
    "Client-IP",
    "CloudFront-Viewer-Address",
    "Fastly-Client-IP",
    "Fly-Client-IP",
    "Front-End-Https",
    "Proxy-Client-IP",
    "True-Client-IP",
    "WL-Proxy-Client-IP",
    "X-AppEngine-User-IP",
    "X-Azure-ClientIP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Envoy-External-Address",
    "X-Envoy-Original-Path",
    "X-Forward-For",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Forwarded-Anything",
    "X-HTTP-Host-Override",
    "X-Original-Forwarded-For",
    "X-Original-Host",
    "X-Original-URL",
    "X-Originating-IP",
    "X-Real-IP",
    "X-Remote-User",
    "X-Rewrite-URL",
    "X-Scheme",
    "X-SSL-Client-Verify",
    "X-Url-Scheme",
];

#[test]
fn only_a_trusted_proxy_states_the_client() {
    let member = Member::start(|_| ok("hello"));
    let server = proxy(&member, "/", "");
    let lines: String = STATEMENTS
        .iter()
        .map(|name| format!("{name}: 6.6.6.6\r\n{}: 6.6.6.6\r\n", name.replace('-', "_")))
        .collect();
    let fields = format!("{lines}X-Request-Id: 1\r\n");
    for (nth, (address, passes)) in [([127, 0, 0, 1], false), ([127, 0, 0, 2], true)]
        .into_iter()
        .enumerate()
    {
        let mut wire = Wire::of(&server, address.into());
        assert_eq!(wire.get("/", &fields).status, 200);
        let request = member.wait_for(nth + 1);
        let expected: &[&str] = if passes { &["6.6.6.6"] } else { &[] };
        for name in STATEMENTS {
            assert_eq!(request.fields(name), expected, "{name} from {address:?}");
            assert!(request.fields(&name.replace('-', "_")).is_empty(), "{name}");
        }
        assert_eq!(request.fields("x-request-id"), ["1"]);
    }
}

const TRAILERS: &str = "grpc-status: 0\r\nX-Sum: 1\r\nX-Real-IP: 6.6.6.6\r\nX_Forwarded_For: 6.6.6.6\r\n\
    Forwarded: for=6.6.6.6\r\nVia: 1.1 a\r\nHost: b\r\nAuthorization: Basic eA==\r\nCookie: a=b\r\n\
    Set-Cookie: a=b\r\nContent-Type: a/b\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\
    Strict-Transport-Security: max-age=0\r\nLocation: /x\r\ngrpc-message: a%20b\r\n";

#[test]
fn trailers_with_a_meaning_in_a_head_pass_in_neither_direction() {
    let chunks = format!("5\r\nhello\r\n0\r\n{TRAILERS}\r\n");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = format!("{head}{chunks}");
    let member = Member::start(move |_| Answer::Keep(answer.clone().into_bytes()));
    let server = proxy(&member, "/", "");
    for (nth, over) in BOTH.into_iter().enumerate() {
        let mut wire = Wire::over(&server, over);
        let fields = "Transfer-Encoding: chunked\r\nTE: trailers\r\nConnection: TE\r\n";
        // A body above 64 KiB streams with its trailers.
        let body = format!("11170\r\n{}\r\n0\r\n{TRAILERS}\r\n", "x".repeat(70_000));
        wire.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"));
        let response = wire.response("POST");
        let names = |pairs: &[(String, String)]| -> Vec<String> {
            pairs.iter().map(|(name, _)| name.to_lowercase()).collect()
        };
        let expected = ["grpc-status", "x-sum", "grpc-message"];
        assert_eq!(names(&response.trailers), expected, "{over:?}");
        let trailers = member.wait_for(2 * nth + 1).trailers;
        assert_eq!(trailers, "grpc-status: 0\nX-Sum: 1\ngrpc-message: a%20b\n");

        let response = H2::open(&server, over).get("/");
        assert_eq!(names(&response.trailers), expected, "{over:?} HTTP/2");
    }
}

/// Returns the fields of the member's answer that the client gets.
fn redirected(server: &Server, name: &str) -> String {
    let response = Wire::plain(server).get("/shop/x", "");
    assert_eq!(response.status, 302);
    response.field(name).unwrap_or_default().to_owned()
}

fn redirecting_member(
    name: &'static str,
    value: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Member {
    Member::start(move |request| {
        let host = request.fields("host").join("");
        let value = value(&host);
        let head = format!("HTTP/1.1 302 Found\r\n{name}: {value}\r\nContent-Length: 0\r\n\r\n");
        Answer::Keep(head.into_bytes())
    })
}

#[test]
fn urls_of_a_member_become_urls_of_the_route() {
    for name in ["Location", "Content-Location"] {
        let member = redirecting_member(name, |host| format!("http://{host}/app/a?b"));
        for host in ["client", "member", "app.test"] {
            let keys = format!(", host = \"{host}\", prefix = \"/app/\"");
            let server = proxy(&member, "/shop", &keys);
            assert_eq!(redirected(&server, name), "/shop/a?b", "{name} {host}");
        }
    }
    let member = redirecting_member("Refresh", |_| "0; url=/app/a".to_owned());
    let server = proxy(&member, "/shop", ", prefix = \"/app/\"");
    assert_eq!(redirected(&server, "refresh"), "0; url=/shop/a");
}

#[test]
fn a_member_is_hidden_on_routes_without_another_path() {
    let member = redirecting_member("Location", |host| format!("http://{host}//evil.test/"));
    let server = proxy(&member, "/", ", host = \"member\"");
    assert_eq!(redirected(&server, "location"), "/evil.test/");
    // The client's own host stays.
    let server = proxy(&member, "/", "");
    assert_eq!(
        redirected(&server, "location"),
        "http://localhost//evil.test/"
    );
}

#[test]
fn a_prefix_never_makes_a_redirect_to_another_host() {
    let member = redirecting_member("Location", |_| "/app//evil.test/".to_owned());
    let server = proxy(&member, "/", ", prefix = \"/app/\"");
    assert_eq!(redirected(&server, "location"), "/evil.test/");
    // A redirect to another host is the member's own.
    let member = redirecting_member("Location", |_| "//evil.test/".to_owned());
    let server = proxy(&member, "/shop", ", prefix = \"/\"");
    assert_eq!(redirected(&server, "location"), "//evil.test/");
    let member = redirecting_member("Location", |_| "/".to_owned());
    let server = proxy(
        &member,
        "/shop",
        ", prefix = \"/\", response_headers = { Location = \"/own\" }",
    );
    assert_eq!(redirected(&server, "location"), "/own");
}
