//! Trailers of requests and of responses, over HTTP/1.1, HTTP/2 and HTTP/3.

use wire::h2::{H2ErrorCode, frame};

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Response, Wire};
use crate::support::{Server, server_table, site_table};

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
const TE: &str = "TE: trailers\r\nConnection: TE\r\n";
const ENDS: u8 = frame::END_HEADERS | frame::END_STREAM;

fn server() -> Server {
    let config = server_table("h2c = true")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/trailers\"\ntest = \"trailers\"\n"
        + "[[site.route]]\npath = \"/kept\"\ntest = \"trailers\"\ncache = { seconds = 100 }\n"
        + "[[site.route]]\npath = \"/hints\"\ntest = \"hints\"\n";
    Server::start(&config)
}

fn post(path: &str, fields: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}")
}

/// Returns the trailers of a complete response, with names in lower case.
fn trailers(response: &Response) -> Vec<String> {
    assert!(response.whole, "{response:?}");
    let line = |(name, value): &(String, String)| format!("{}: {value}", name.to_lowercase());
    response.trailers.iter().map(line).collect()
}

/// Checks that fields with a meaning in a head are dropped in both directions, and that the next request is
/// read behind the trailer section.
#[test]
fn trailers_pass_through_a_handler_over_http_1_1() {
    let server = server();
    let body = "5\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: b\r\nContent-Length: 9\r\n\
        Transfer-Encoding: chunked\r\nAuthorization: Basic eA==\r\n\
        Content-Digest: sha-256=:AA==:\r\n\r\n";
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send(post("/trailers", &format!("{CHUNKED}{TE}"), body));
        let echoed = wire.response("POST");
        assert_eq!((echoed.status, echoed.text().as_str()), (200, "hello"));
        let expected = ["x-sum: 1", "content-digest: sha-256=:AA==:", "x-own: end"];
        assert_eq!(trailers(&echoed), expected);
        assert_eq!(wire.get("/", "").status, 200);
    }
}

/// Checks that a client gets trailers only if the client accepts trailers, and only behind chunked content.
#[test]
fn trailers_need_te_and_chunks_over_http_1_1() {
    let server = server();
    let mut wire = Wire::plain(&server);
    let chunks = "5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n";
    for (fields, body, expected) in [
        (CHUNKED.to_owned(), chunks, &[][..]),
        (format!("{CHUNKED}TE: gzip\r\n"), chunks, &[]),
        (format!("Content-Length: 5\r\n{TE}"), "hello", &[]),
        (
            format!("{CHUNKED}{TE}"),
            chunks,
            &["x-sum: 1", "x-own: end"],
        ),
    ] {
        wire.send(post("/trailers", &fields, body));
        let echoed = wire.response("POST");
        assert_eq!(echoed.text(), "hello", "{fields}");
        assert_eq!(trailers(&echoed), expected, "{fields}");
    }
    wire.send(format!(
        "GET /trailers HTTP/1.0\r\nHost: localhost\r\n{TE}\r\n"
    ));
    let old = wire.response("GET");
    assert_eq!((old.status, old.text().as_str()), (200, ""));
}

#[test]
fn a_long_trailer_section_is_refused() {
    let server = server();
    let long = "y".repeat(5_000);
    let body = format!("0\r\nX: {long}\r\n\r\n");
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send(post("/hints", CHUNKED, &body));
        let refused = wire.response("POST");
        assert_eq!((refused.status, refused.closes()), (431, true));

        let mut h2 = H2::open(&server, over);
        let id = h2.ask("POST", "/hints", &[], false);
        h2.until(frame::HEADERS);
        h2.frame(frame::HEADERS, ENDS, id, &H2::block(&[("x", &long)]));
        assert_eq!(h2.response(id).status, 431);
    }
}

#[test]
fn trailers_pass_through_a_handler_over_http_2() {
    let server = server();
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        for body in ["hello", ""] {
            let id = h2.ask("POST", "/trailers", &[], false);
            if !body.is_empty() {
                h2.data(id, body.as_bytes(), false);
            }
            let sent = [("x-sum", "1"), ("host", "b"), ("cookie", "c")];
            h2.frame(frame::HEADERS, ENDS, id, &H2::block(&sent));
            let echoed = h2.response(id);
            assert_eq!((echoed.status, echoed.text().as_str()), (200, body));
            assert_eq!(trailers(&echoed), ["x-sum: 1", "x-own: end"]);
        }
        // Content of known length has trailers as well.
        let id = h2.ask("POST", "/trailers", &[("content-length", "5")], false);
        h2.data(id, b"hello", true);
        let echoed = h2.response(id);
        assert_eq!(echoed.field("content-length"), Some("5"));
        assert_eq!(trailers(&echoed), ["x-own: end"]);

        for fields in [
            [(":path", "/")],
            [("connection", "close")],
            [("te", "gzip")],
        ] {
            let id = h2.ask("POST", "/hints", &[], false);
            h2.frame(frame::HEADERS, ENDS, id, &H2::block(&fields));
            let reset = h2.until(frame::RST_STREAM);
            assert_eq!(reset.code(), H2ErrorCode::PROTOCOL_ERROR.0, "{fields:?}");
            assert_eq!(reset.stream, id);
        }
        assert_eq!(h2.get("/").status, 200);
    }
}

/// Checks that the page cache stores content without its trailers (RFC 9111 §3.1).
#[test]
fn a_stored_page_has_no_trailers() {
    let server = server();
    let mut h2 = H2::open(&server, Over::Tls);
    for _ in 0..2 {
        let page = h2.get("/kept");
        assert_eq!((page.status, page.text().as_str()), (200, ""));
        assert!(trailers(&page).is_empty());
    }
    assert_eq!(trailers(&h2.get("/trailers")), ["x-own: end"]);
}

#[cfg(feature = "http3")]
#[test]
fn trailers_over_http_3() {
    let said = crate::h3::run_scenario(&server(), &["trailers"]);
    assert_eq!(said, "echoed, too long, malformed");
}
