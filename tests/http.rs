//! HTTP/1.1 byte by byte: valid and malformed requests, their responses, and the state of the connection
//! afterwards.

use std::os::unix::fs::symlink;

use crate::support::wire::{BOTH, Over, Response, Wire};
use crate::support::{Folder, Server, lossy, server_table, site_table};

const PAGE: &str = "<p>this very page</p>\n";
const NEXT: &str = "GET /page.html HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn server() -> Server {
    server_with("", "")
}

fn server_with(server: &str, site: &str) -> Server {
    let folder = Folder::new()
        .with("public/page.html", PAGE)
        .with("public/other.txt", "other\n")
        .with("public/full/index.html", "<p>full</p>\n")
        .with("public/empty/nothing.txt", "")
        .with("public/.hidden", "hidden")
        .with("public/.git/config", "hidden")
        .with("public/.well-known/security.txt", "known\n")
        .with("outside/secret.txt", "secret");
    symlink(folder.path("outside"), folder.path("public/leaves")).expect("a link");
    symlink("../outside/secret.txt", folder.path("public/leaves.txt")).expect("a link");
    let config =
        server_table(server) + "[log]\naccess = \"off\"\n" + &site_table("http = \"serve\"\n");
    Server::start_in(folder, &(config + site))
}

/// Returns the only response to the bytes sent. The connection must end after the response.
fn refused(wire: &mut Wire, what: &str) -> Response {
    let response = wire.response("GET");
    assert!(response.closes(), "{what}: {response:?}");
    let rest = wire.rest();
    assert!(
        rest.is_empty(),
        "{what}: after the refusal came {:?}",
        lossy(&rest)
    );
    response
}

/// Request lines with their statuses; `Host` follows.
const LINES: [(&str, u16); 26] = [
    ("GET /page.html", 400),
    ("GET  /page.html HTTP/1.1", 400),
    ("GET /page.html  HTTP/1.1", 400),
    ("GET /page.html HTTP/1.1 ", 400),
    (" GET /page.html HTTP/1.1", 400),
    ("GET\t/page.html\tHTTP/1.1", 400),
    ("GET /page.html HTTP/1.x", 400),
    ("GET /page.html http/1.1", 400),
    ("GET /page.html HTTP/11", 400),
    ("GET page.html HTTP/1.1", 400),
    ("GET * HTTP/1.1", 400),
    ("GET /page.html#part HTTP/1.1", 400),
    ("GET /page\0.html HTTP/1.1", 400),
    ("GET /page.html\x7f HTTP/1.1", 400),
    ("GET /page.html HTTP/2.0", 505),
    ("GET /page.html HTTP/0.9", 505),
    ("BREW /page.html HTTP/1.1", 501),
    ("get /page.html HTTP/1.1", 501),
    ("G@T /page.html HTTP/1.1", 400),
    ("GET /../page.html HTTP/1.1", 400),
    ("GET /page.html%zz HTTP/1.1", 400),
    ("GET /page.html%0 HTTP/1.1", 400),
    ("GET /page%00.html HTTP/1.1", 400),
    ("GET /full%2Findex.html HTTP/1.1", 400),
    ("GET /full\\index.html HTTP/1.1", 400),
    ("GET /full%5cindex.html HTTP/1.1", 400),
];

/// Field lines after a valid request line and `Host`, with their statuses.
const FIELDS: [(&str, u16); 46] = [
    ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
    ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
    ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
    ("Content-Length: 5, 5\r\n", 400),
    ("Content-Length: 5,6\r\n", 400),
    ("Content-Length: +5\r\n", 400),
    ("Content-Length: -5\r\n", 400),
    ("Content-Length: 0x5\r\n", 400),
    ("Content-Length: 5 \u{b}\r\n", 400),
    ("Content-Length: 5a\r\n", 400),
    ("Content-Length: 5.0\r\n", 400),
    ("Content-Length:\r\n", 400),
    ("Content-Length: 18446744073709551616\r\n", 400),
    ("Content-Length: 99999999999999999999999999\r\n", 400),
    ("Transfer-Encoding: gzip\r\n", 400),
    ("Transfer-Encoding: gzip, chunked\r\n", 501),
    ("Transfer-Encoding: chunked, gzip\r\n", 400),
    ("Transfer-Encoding: chunked, chunked\r\n", 400),
    (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        400,
    ),
    ("Transfer-Encoding: identity\r\n", 400),
    ("Transfer-Encoding: xchunked\r\n", 400),
    ("Transfer-Encoding: \"chunked\"\r\n", 400),
    ("Transfer-Encoding:\r\n", 400),
    ("Transfer-Encoding: chunked,\r\n", 400),
    ("Transfer-Encoding: chunked;a=b\r\n", 400),
    ("Transfer-Encoding : chunked\r\n", 400),
    ("Content-Length : 5\r\n", 400),
    ("X-Folded: a\r\n b\r\n", 400),
    ("X-Folded: a\r\n\tb\r\n", 400),
    (" X-Space: a\r\n", 400),
    ("X-Bare: a\rb\r\n", 400),
    ("X-Bare: a\nX-Other: b\r\n", 400),
    ("X-Nul: a\0b\r\n", 400),
    ("X-Control: a\x01b\r\n", 400),
    ("X-Control: a\x7fb\r\n", 400),
    ("X Space: a\r\n", 400),
    ("X(Name): a\r\n", 400),
    ("No colon\r\n", 400),
    (": no name\r\n", 400),
    ("Host: localhost\r\n", 400),
    ("Host: other\r\n", 400),
    ("host: localhost\r\n", 400),
    ("Expect: 200-ok\r\n", 417),
    ("Expect: 100-continue, more\r\n", 417),
    (
        "Authorization: Basic YTph\r\nAuthorization: Basic YTpi\r\n",
        400,
    ),
];

/// Whole heads with their statuses.
const HEADS: [(&str, u16); 16] = [
    ("GET /page.html HTTP/1.1\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost:\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: a:99999\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: user@a\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    (
        "GET http://user@a/page.html HTTP/1.1\r\nHost: a\r\n\r\n",
        400,
    ),
    ("GET ftp://a/page.html HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /page.html HTTP/1.1\nHost: a\n\n", 400),
    ("GET /page.html HTTP/1.1\r\nHost: a\r\n\n", 400),
    ("\nGET /page.html HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("\r\n\r\nGET /page.html HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (
        "POST /page.html HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    ("\x16\x03\x01\x02\x00\x01\x00\x01\u{7c}\x03\x03", 400),
];

/// Chunked bodies with their statuses.
const CHUNKS: [(&str, u16); 22] = [
    ("5\nhello\r\n0\r\n\r\n", 400),
    ("5\r\nhello0\r\n\r\n", 400),
    ("5\r\nhelloXX0\r\n\r\n", 400),
    ("5\r\nhello\n0\r\n\r\n", 400),
    ("5\r\nhel\r\n0\r\n\r\n", 400),
    ("0x5\r\nhello\r\n0\r\n\r\n", 400),
    ("+5\r\nhello\r\n0\r\n\r\n", 400),
    ("-5\r\nhello\r\n0\r\n\r\n", 400),
    (" 5\r\nhello\r\n0\r\n\r\n", 400),
    ("\r\n0\r\n\r\n", 400),
    ("g\r\nhello\r\n0\r\n\r\n", 400),
    (";a=b\r\nhello\r\n0\r\n\r\n", 400),
    ("5 hello\r\nhello\r\n0\r\n\r\n", 400),
    ("10000000000000000\r\nhello\r\n0\r\n\r\n", 400),
    ("5;a\rb\r\nhello\r\n0\r\n\r\n", 400),
    ("5;\r\nhello\r\n0\r\n\r\n", 400),
    ("5;=b\r\nhello\r\n0\r\n\r\n", 400),
    ("5;a=\"b\r\nhello\r\n0\r\n\r\n", 400),
    ("5;a b\r\nhello\r\n0\r\n\r\n", 400),
    ("5\r\nhello\r\n0\r\nno colon\r\n\r\n", 400),
    ("5\r\nhello\r\n0\r\nA: b\r\n folded\r\n\r\n", 400),
    ("5\r\nhello\r\n0\r\nA: b\n\r\n", 400),
];

/// Returns all malformed requests with their statuses.
fn malformed() -> Vec<(Vec<u8>, u16)> {
    let mut all = Vec::new();
    let mut add = |text: String, status| all.push((text.into_bytes(), status));
    for (line, status) in LINES {
        add(format!("{line}\r\nHost: localhost\r\n\r\n"), status);
    }
    for (fields, status) in FIELDS {
        for method in ["GET", "POST"] {
            let line = format!("{method} /page.html HTTP/1.1\r\nHost: localhost\r\n");
            add(format!("{line}{fields}\r\n"), status);
        }
    }
    for (head, status) in HEADS {
        add(head.into(), status);
    }
    let chunked =
        "POST /page.html HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, status) in CHUNKS {
        add(format!("{chunked}{body}"), status);
    }
    let extension = "a".repeat(300);
    add(format!("{chunked}5;{extension}\r\nhello\r\n0\r\n\r\n"), 400);
    let trailers =
        "A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(100);
    add(format!("{chunked}5\r\nhello\r\n0\r\n{trailers}\r\n"), 431);
    let long = "a".repeat(9_000);
    add(
        format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        414,
    );
    for end in [" / HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n\r\n", ""] {
        add(format!("{long}{end}"), 501);
    }
    let head = "GET /page.html HTTP/1.1\r\nHost: localhost\r\n";
    add(format!("{head}A: {long}\r\nB: {long}\r\n\r\n"), 431);
    add(format!("{head}{}\r\n", "A: b\r\n".repeat(100)), 431);
    all
}

#[test]
fn malformed_requests_are_refused_and_end_the_connection() {
    let server = server();
    for (bytes, status) in malformed() {
        let shown = lossy(&bytes[..bytes.len().min(160)]);
        let mut wire = Wire::plain(&server);
        wire.send([&bytes, NEXT.as_bytes()].concat());
        let response = refused(&mut wire, &shown);
        assert_eq!(response.status, status, "{shown:?}: {response:?}");
        assert!(!response.text().contains(PAGE), "{shown:?}: {response:?}");
    }
}

#[test]
fn malformed_requests_are_refused_alike_after_a_good_request_and_over_tls() {
    let server = server();
    // The test uses a sample, because a TLS handshake for each request takes long in a debug build.
    for (bytes, status) in malformed().into_iter().step_by(9) {
        let shown = lossy(&bytes[..bytes.len().min(160)]);
        for over in BOTH {
            let mut wire = Wire::over(&server, over);
            wire.send([NEXT.as_bytes(), &bytes, NEXT.as_bytes()].concat());
            let good = wire.response("GET");
            assert_eq!(
                (good.status, good.text().as_str()),
                (200, PAGE),
                "{shown:?}"
            );
            let response = refused(&mut wire, &shown);
            assert_eq!(response.status, status, "{shown:?} {over:?}: {response:?}");
        }
    }
}

#[test]
fn a_refusal_does_not_depend_on_the_segmentation() {
    let server = server();
    let cases: Vec<_> = malformed()
        .into_iter()
        .filter(|(bytes, _)| bytes.len() < 140)
        .step_by(7)
        .collect();
    assert!(cases.len() > 10);
    for (bytes, status) in cases {
        let mut wire = Wire::plain(&server);
        wire.drip([&bytes, NEXT.as_bytes()].concat());
        let response = refused(&mut wire, &lossy(&bytes));
        assert_eq!(response.status, status, "{:?}: {response:?}", lossy(&bytes));
    }
}

/// Method, target, status and expected fields; all requests on one connection.
#[test]
fn statuses() {
    let server = server();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for (method, target, status, field) in [
            (
                "GET",
                "/page.html",
                200,
                "Content-Type: text/html; charset=utf-8",
            ),
            ("GET", "/page.html?a=b&c", 200, ""),
            ("GET", "/./full/../page.html", 200, ""),
            ("GET", "//page.html", 200, ""),
            ("GET", "/%70age.html", 200, ""),
            ("GET", "/page.html?|^\"{}", 200, ""),
            ("GET", "/|^\"{}", 404, ""),
            ("HEAD", "/page.html", 200, "Content-Length: 22"),
            ("OPTIONS", "/page.html", 204, "Allow: GET, HEAD, OPTIONS"),
            ("OPTIONS", "*", 204, "Allow: GET, HEAD, OPTIONS"),
            ("POST", "/page.html", 405, "Allow: GET, HEAD, OPTIONS"),
            ("PUT", "/page.html", 405, "Allow: GET, HEAD, OPTIONS"),
            ("DELETE", "/page.html", 405, "Allow: GET, HEAD, OPTIONS"),
            ("PATCH", "/page.html", 405, "Allow: GET, HEAD, OPTIONS"),
            ("TRACE", "/page.html", 405, "Allow: GET, HEAD, OPTIONS"),
            ("POST", "/nothing", 404, ""),
            ("OPTIONS", "/nothing", 404, ""),
            ("GET", "/nothing", 404, ""),
            ("HEAD", "/nothing", 404, ""),
            ("GET", "/page.html/", 404, ""),
            ("GET", "/page.html/more", 404, ""),
            ("GET", "/leaves/secret.txt", 404, ""),
            ("GET", "/leaves.txt", 404, ""),
            ("GET", "/.hidden", 404, ""),
            ("GET", "/.git/config", 404, ""),
            ("GET", "/full/.hidden", 404, ""),
            ("GET", "/.well-known/security.txt", 200, ""),
            ("GET", "/empty/", 404, ""),
            ("GET", "/full/", 200, ""),
            ("GET", "/full", 301, "Location: /full/"),
            ("GET", "/full?a=b&c", 301, "Location: /full/?a=b&c"),
            ("HEAD", "/full?a", 301, "Location: /full/?a"),
        ] {
            let response = wire.ask(method, target, "");
            assert_eq!(response.status, status, "{method} {target}: {response:?}");
            assert!(!response.closes(), "{method} {target}: {response:?}");
            if let Some((name, value)) = field.split_once(": ") {
                assert_eq!(response.field(name), Some(value), "{method} {target}");
            }
            assert!(response.field("date").is_some(), "{method} {target}");
            assert!(!response.text().contains("secret"), "{method} {target}");
        }
        // Bytes after a CONNECT are not HTTP, even if the bytes look like a request.
        wire.send(format!(
            "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n{NEXT}"
        ));
        let response = refused(&mut wire, "CONNECT");
        assert_eq!(response.status, 405, "{response:?}");
    }
}

#[test]
fn ten_requests_in_one_write_are_answered_in_order() {
    let server = server();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let targets = [
            "/page.html",
            "/nothing",
            "/full",
            "/other.txt",
            "/full/",
            "/page.html?1",
            "/.hidden",
            "/other.txt",
            "/empty/",
            "/page.html",
        ];
        let expected = [200, 404, 301, 200, 200, 200, 404, 200, 404, 200];
        let requests: Vec<String> = targets
            .iter()
            .enumerate()
            .map(|(nth, target)| {
                let method = if nth % 4 == 3 { "HEAD" } else { "GET" };
                format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
            })
            .collect();
        for _ in 0..2 {
            wire.send(requests.concat());
            for (nth, status) in expected.into_iter().enumerate() {
                let method = if nth % 4 == 3 { "HEAD" } else { "GET" };
                let response = wire.response(method);
                assert_eq!(response.status, status, "{nth} over {over:?}: {response:?}");
            }
        }
        // All requests once more, one byte at a time.
        if over == Over::Plain {
            wire.drip(requests.concat());
            for (nth, status) in expected.into_iter().enumerate() {
                let method = if nth % 4 == 3 { "HEAD" } else { "GET" };
                assert_eq!(wire.response(method).status, status, "{nth}");
            }
        }
    }
}

#[test]
fn keep_alive_follows_the_request() {
    let server = server();
    for (version, field, kept) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.1", "Connection: x, close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: close\r\n", false),
    ] {
        for target in ["/page.html", "/nothing", "/full"] {
            let mut wire = Wire::plain(&server);
            let request = format!("GET {target} HTTP/{version}\r\nHost: localhost\r\n{field}\r\n");
            wire.send(request.repeat(2));
            let response = wire.response("GET");
            assert_eq!(
                response.closes(),
                !kept,
                "{version} {field:?}: {response:?}"
            );
            if version == "1.0" && kept {
                assert_eq!(response.field("connection"), Some("keep-alive"));
            }
            if kept {
                assert_eq!(wire.response("GET"), response);
            } else {
                wire.ends();
            }
        }
    }
    // HTTP/1.0 without Host.
    let mut wire = Wire::plain(&server);
    wire.send("GET /page.html HTTP/1.0\r\n\r\n");
    assert_eq!(wire.response("GET").text(), PAGE);
    wire.ends();
}

#[test]
fn one_empty_line_may_precede_each_request() {
    let server = server();
    let mut wire = Wire::plain(&server);
    wire.send(format!("\r\n{NEXT}\r\n{NEXT}"));
    for _ in 0..2 {
        assert_eq!(wire.response("GET").text(), PAGE);
    }
}

#[test]
fn an_absolute_target_takes_precedence_over_host() {
    let server = server();
    let mut wire = Wire::plain(&server);
    for target in [
        "http://localhost/page.html",
        "HTTP://LOCALHOST:1/page.html",
        "https://localhost/page.html?a",
    ] {
        let response = wire.get(target, "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, PAGE),
            "{target}"
        );
    }
    let response = wire.ask("OPTIONS", "http://localhost", "");
    assert!(matches!(response.status, 204 | 404), "{response:?}");
}

#[test]
fn a_body_sent_to_a_stored_page_is_discarded_and_the_connection_stays_open() {
    let server = server();
    let fixed = "Content-Length: 5\r\n\r\nhello";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nhel\r\n002\r\nlo\r\n0\r\nTrailer: t\r\n\r\n";
    let any_case = "transfer-encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for over in BOTH {
        for body in [fixed, chunked, any_case, "Content-Length: 0\r\n\r\n"] {
            for (method, target, status) in [
                ("POST", "/page.html", 405),
                ("POST", "/nothing", 404),
                ("GET", "/page.html", 200),
                ("GET", "/full", 301),
                ("HEAD", "/page.html", 200),
                ("OPTIONS", "*", 204),
            ] {
                let what = format!("{method} {target} {body:?} {over:?}");
                let request = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{body}");
                let mut wire = Wire::over(&server, over);
                wire.send(format!("{request}{NEXT}"));
                let response = wire.response(method);
                assert_eq!(response.status, status, "{what}: {response:?}");
                assert!(!response.closes(), "{what}: {response:?}");
                assert_eq!(wire.response("GET").text(), PAGE, "{what}");
                if over == Over::Plain {
                    wire.drip(format!("{request}{NEXT}"));
                    assert_eq!(wire.response(method), response, "{what}");
                    assert_eq!(wire.response("GET").text(), PAGE, "{what}");
                }
            }
        }
    }
}

/// The first request for a page waits for the file, with and without a body behind the head.
#[test]
fn a_body_behind_the_first_request_for_a_page() {
    for body in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        let server = server_with("", "errors = { 404 = \"other.txt\" }");
        let mut wire = Wire::plain(&server);
        for target in ["/page.html", "/nothing"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{body}");
            wire.send(format!("{request}{NEXT}"));
            let response = wire.response("GET");
            assert!(!response.closes(), "{target}: {response:?}");
            let expected = if target == "/nothing" {
                "other\n"
            } else {
                PAGE
            };
            assert_eq!(response.text(), expected);
            assert_eq!(wire.response("GET").text(), PAGE, "{target}");
        }
    }
}

/// The rest of a larger body is not read before the response, so the connection ends behind the response.
#[test]
fn a_connection_stays_open_up_to_the_limit_of_a_discarded_body() {
    let server = server_with("limits = { body_discard_bytes = 100000 }", "");
    let length = |length: usize| format!("Content-Length: {length}\r\n\r\n");
    let post = "POST /page.html HTTP/1.1\r\nHost: localhost\r\n";
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send(post.to_owned() + &length(100_000) + &"x".repeat(100_000) + NEXT);
        assert_eq!(wire.response("POST").status, 405);
        assert_eq!(wire.response("GET").text(), PAGE);
        let chunks = chunk.repeat(24);
        wire.send(format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n{NEXT}"
        ));
        assert_eq!(wire.response("POST").status, 405);
        assert_eq!(wire.response("GET").text(), PAGE);

        // The length is declared, so the response precedes the body.
        wire.send(post.to_owned() + &length(100_001));
        assert_eq!(refused(&mut wire, "a long body").status, 405);
        let mut wire = Wire::over(&server, over);
        let chunks = chunk.repeat(25);
        wire.send(format!(
            "{post}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n{NEXT}"
        ));
        assert_eq!(refused(&mut wire, "long chunks").status, 405);
    }
}

/// A stored page needs no body, so a client that expects 100 Continue gets the final status at once.
#[test]
fn an_expectation_on_a_stored_page_is_answered_at_once() {
    let server = server();
    for (target, status) in [("/page.html", 405), ("/nothing", 404)] {
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n"
        ));
        let response = wire.response("POST");
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.closes(), "{response:?}");
        // The client may send the body or not, so the following bytes are no request.
        wire.send(format!("hello{NEXT}"));
        wire.ends();
    }
    // HTTP/1.0 has no expectations (RFC 9110 §10.1.1), and a request without a body needs no 100 Continue.
    let mut wire = Wire::plain(&server);
    wire.send("POST /page.html HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(wire.response("POST").status, 405);
    assert_eq!(
        wire.get("/page.html", "Expect: 100-continue\r\n").status,
        200
    );
    assert_eq!(wire.get("/page.html", "").status, 200);
}

/// A client that shuts its sending side down after its requests still gets the responses.
#[test]
fn a_client_may_half_close_before_reading() {
    let server = server();
    let mut wire = Wire::plain(&server);
    wire.send(NEXT.repeat(3));
    wire.finish();
    for _ in 0..3 {
        assert_eq!(wire.response("GET").text(), PAGE);
    }
    wire.ends();
    // An incomplete request gets no response.
    let mut wire = Wire::plain(&server);
    wire.send(format!("{NEXT}{}", &NEXT[..20]));
    wire.finish();
    assert_eq!(wire.response("GET").text(), PAGE);
    wire.ends();
}

/// Responses to many pipelined requests stay in order when the client reads late.
#[test]
fn a_pipeline_that_is_read_late_arrives_whole() {
    let server = server();
    server
        .folder
        .write("public/large.bin", vec![b'l'; 3_000_000]);
    server.folder.write("public/middle.bin", vec![b'm'; 70_000]);
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let mut requests = String::new();
        for target in ["/large.bin", "/page.html", "/middle.bin", "/other.txt"].repeat(5) {
            requests += &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        crate::support::wire::wait_until(std::time::Duration::from_secs(60), "seen", || {
            let response = wire.get("/middle.bin", "");
            (response.status == 200 && wire.get("/large.bin", "").status == 200).then_some(())
        });
        wire.send(&requests);
        for _ in 0..5 {
            assert!(wire.response("GET").body == vec![b'l'; 3_000_000]);
            assert_eq!(wire.response("GET").text(), PAGE);
            assert!(wire.response("GET").body == vec![b'm'; 70_000]);
            assert_eq!(wire.response("GET").text(), "other\n");
        }
    }
}
