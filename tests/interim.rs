//! Interim responses of handlers, and handlers that hold the request body back, over HTTP/1.1, HTTP/2 and
//! HTTP/3.

use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Response, Wire};
use crate::support::{Server, server_table, site_table};

const LINKS: [&str; 2] = ["</a.css>; rel=preload", "</b.js>; rel=preload"];
const PAGE: &str = "after the hints\n";
const EXPECTS: [(&str, &str); 1] = [("expect", "100-continue")];

fn server() -> Server {
    let config = server_table("h2c = true")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/hints\"\ntest = \"hints\"\n"
        + "[[site.route]]\npath = \"/kept\"\ntest = \"hints\"\ncache = { seconds = 100 }\n"
        + "[[site.route]]\npath = \"/hold\"\ntest = \"hold\"\n";
    Server::start(&config)
}

/// Opens a gate of the handler `hold`, over another connection.
fn open(server: &Server, gate: &str) {
    let path = format!("/hold?open={gate}");
    assert_eq!(Wire::plain(server).get(&path, "").text(), "open\n");
}

fn assert_hints(interim: &[Response]) {
    let seen: Vec<_> = interim
        .iter()
        .map(|it| (it.status, it.field("link")))
        .collect();
    assert_eq!(seen, LINKS.map(|link| (103, Some(link))), "{interim:?}");
}

#[test]
fn hints_arrive_before_the_request_body_is_complete() {
    let server = server();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for method in ["GET", "HEAD"] {
            wire.send(format!(
                "{method} /hints HTTP/1.1\r\nHost: localhost\r\n\r\n"
            ));
            assert_hints(&[wire.response(method), wire.response(method)]);
            let page = wire.response(method);
            assert_eq!((page.status, page.field("link")), (200, None));
            assert_eq!(page.text(), if method == "GET" { PAGE } else { "" });
        }
        wire.send("POST /hints HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n");
        assert_hints(&[wire.response("POST"), wire.response("POST")]);
        wire.send("12345");
        assert_eq!(wire.response("POST").text(), PAGE);
        assert_eq!(wire.get("/", "").status, 200);

        let mut h2 = H2::open(&server, over);
        let id = h2.ask("POST", "/hints", &[], false);
        for _ in 0..2 {
            let head = h2.until(frame::HEADERS);
            assert!(!head.ends());
        }
        h2.data(id, b"12345", true);
        let page = h2.response(id);
        assert_hints(&page.interim);
        assert_eq!((page.status, page.text().as_str()), (200, PAGE));
    }
}

#[test]
fn a_client_of_http_1_0_gets_no_interim_response() {
    let server = server();
    let mut wire = Wire::plain(&server);
    wire.send("GET /hints HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let page = wire.response("GET");
    assert_eq!((page.status, page.text().as_str()), (200, PAGE));
}

/// Checks that a page for all clients comes without the interim responses of the call that made the page.
#[test]
fn a_cached_route_sends_no_interim_response() {
    let server = server();
    let mut wire = Wire::plain(&server);
    for _ in 0..2 {
        let page = wire.get("/kept", "");
        assert_eq!((page.status, page.text().as_str()), (200, PAGE));
    }
}

/// Checks that 100 (Continue) comes only once the handler wants the body: behind the interim response that
/// the handler sends while the body is held back.
#[test]
fn a_held_body_delays_100_continue() {
    let server = server();
    let head = "POST /hold?gate=GATE HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\
        Expect: 100-continue\r\n\r\n";
    for over in BOTH {
        let gate = format!("{over:?}");
        let mut wire = Wire::over(&server, over);
        wire.send(head.replace("GATE", &gate));
        let held = wire.response("POST");
        assert_eq!((held.status, held.field("x-stage")), (103, Some("held")));
        open(&server, &gate);
        assert_eq!(wire.response("POST").status, 100);
        wire.send("12345");
        assert_eq!(wire.response("POST").text(), "12345");
        assert_eq!(wire.get("/", "").status, 200);

        let gate = format!("h2{over:?}");
        let mut h2 = H2::open(&server, over);
        let id = h2.ask("POST", &format!("/hold?gate={gate}"), &EXPECTS, false);
        h2.until(frame::HEADERS);
        let status = |h2: &H2| h2.partial_response(id).map(|it| it.status);
        assert_eq!(status(&h2), Some(103));
        open(&server, &gate);
        h2.until(frame::HEADERS);
        assert_eq!(status(&h2), Some(100));
        h2.data(id, b"12345", true);
        assert_eq!(h2.response(id).text(), "12345");
    }
}

/// Checks that a client with the announced expectation gets the refusal of the handler and no 100
/// (Continue).
#[test]
fn a_held_body_is_refused_unread() {
    let server = server();
    for status in [403, 417] {
        let path = format!("/hold?refuse={status}");
        for over in BOTH {
            let mut wire = Wire::over(&server, over);
            wire.send(format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\
                 Expect: 100-continue\r\n\r\n"
            ));
            assert_eq!(wire.response("POST").status, 103);
            let refused = wire.response("POST");
            assert_eq!((refused.status, refused.closes()), (status, true));
            wire.finish();
            wire.ends();

            let mut h2 = H2::open(&server, over);
            let id = h2.ask("POST", &path, &EXPECTS, false);
            let refused = h2.response(id);
            assert_eq!((refused.status, refused.interim.len()), (status, 1));
            assert_eq!(h2.get("/").status, 200);
        }
    }
}

/// Checks that a client of HTTP/2 gets no window beyond the initial window while the body is held back.
#[test]
fn a_held_body_gets_no_window() {
    const WINDOW: usize = 65_535;
    let server = server();
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("POST", "/hold?gate=window", &[], false);
    for part in vec![b'x'; WINDOW].chunks(16_384) {
        h2.data(id, part, false);
    }
    h2.frame(frame::PING, 0, 0, b"are you?");
    loop {
        let frame = h2.next().expect("an acknowledgement of the PING");
        h2.record_frame(&frame);
        let is_granted = frame.kind == frame::WINDOW_UPDATE && frame.stream == id;
        assert!(!is_granted, "a window for a body that is held back");
        if frame.kind == frame::PING && frame.flags & frame::ACK != 0 {
            break;
        }
    }
    open(&server, "window");
    while h2.until(frame::WINDOW_UPDATE).stream != id {}
    h2.data(id, b"y", true);
    let echoed = h2.response(id);
    assert_eq!((echoed.status, echoed.body.len()), (200, WINDOW + 1));
}

#[cfg(feature = "http3")]
#[test]
fn interim_responses_and_held_bodies_over_http_3() {
    let said = crate::h3::run_scenario(&server(), &["interim"]);
    assert_eq!(said, "hints, continued, refused, held");
}
