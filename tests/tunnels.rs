//! Tunnels after 101 (Switching Protocols) over HTTP/1.1, and after an extended CONNECT over HTTP/2 and
//! HTTP/3.

use std::io::Write;
use std::thread;
use std::time::Duration;

use wire::h2::{H2ErrorCode, frame};

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Response, Wire};
use crate::support::{Folder, Server, eventually, server_table, site_table};

const SWITCH: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn config(limits: &str) -> String {
    server_table(&format!("h2c = true\nlimits = {{ {limits} }}"))
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/tunnel\"\ntest = \"tunnel\"\n"
        + "[[site.route]]\npath = \"/kept\"\ntest = \"tunnel\"\ncache = { seconds = 100 }\nupgrade = true\n"
        + "[[site.route]]\npath = \"/stored\"\ntest = \"tunnel\"\ncache = { seconds = 100 }\n"
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n"
        + "[[site.route]]\npath = \"/page\"\ntest = \"page\"\ncache = { seconds = 100 }\n"
        + "[[site.route]]\npath = \"/denied\"\ntest = \"tunnel\"\nallow = [\"192.0.2.1\"]\n"
        + "[[site.route]]\npath = \"/private\"\ntest = \"tunnel\"\nusers = \"users\"\n"
        + "[[site.route]]\npath = \"/moved\"\nrewrite = \"/tunnel\"\n"
}

fn server(limits: &str) -> Server {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("users", "ant:$1$salt$nobody.knows.this.one.\n");
    Server::start_in(folder, &config(limits))
}

fn ask(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Opens a tunnel over HTTP/1.1.
fn open(server: &Server, over: Over, path: &str) -> Wire {
    let mut wire = Wire::over(server, over);
    wire.send(ask(path, SWITCH));
    let switched = wire.response("GET");
    assert_eq!(switched.status, 101, "{switched:?}");
    wire
}

fn assert_echo(wire: &mut Wire, bytes: &[u8]) {
    wire.send(bytes);
    assert_eq!(wire.take(bytes.len()), bytes);
}

/// Begins an extended CONNECT over HTTP/2, and returns the stream.
fn connect(h2: &mut H2, path: &str) -> u32 {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
    ];
    h2.ask_all(&fields, false)
}

/// Opens a tunnel over HTTP/2, and returns the stream.
fn open_h2(h2: &mut H2, path: &str) -> u32 {
    let id = connect(h2, path);
    let head = h2.until(frame::HEADERS);
    let opened = h2.partial_response(id).expect("a response");
    assert_eq!((opened.status, head.stream, head.ends()), (200, id, false));
    assert_eq!(opened.field("content-length"), None);
    id
}

/// Reads `count` bytes of a tunnel over HTTP/2.
fn read_h2(h2: &mut H2, id: u32, count: usize) -> Vec<u8> {
    loop {
        let body = &h2.partial_response(id).expect("a response").body;
        if body.len() >= count {
            return body.clone();
        }
        h2.until(frame::DATA);
    }
}

fn assert_echo_h2(h2: &mut H2, id: u32, before: &[u8], bytes: &[u8]) {
    h2.data(id, bytes, false);
    let all = [before, bytes].concat();
    assert_eq!(read_h2(h2, id, all.len()), all);
}

/// Waits until the totals of the tunnels of a route are as expected.
fn await_totals(server: &Server, path: &str, expected: &str) {
    eventually("the totals of the tunnels", || {
        (Wire::plain(server).get(path, "").text() == expected).then_some(())
    });
}

/// Returns bytes without repetition.
fn megabytes(count: u64) -> Vec<u8> {
    let words = (0..count << 17).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

#[test]
fn bytes_flow_in_both_directions_after_101() {
    let server = server("");
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        // Bytes behind the head belong to the tunnel.
        wire.send(ask("/tunnel", SWITCH) + "early");
        let switched = wire.response("GET");
        assert_eq!(switched.status, 101);
        assert_eq!(switched.field("connection"), Some("Upgrade"));
        assert_eq!(switched.field("upgrade"), Some("websocket"));
        assert_eq!(switched.field("content-length"), None);
        assert_eq!(switched.field("transfer-encoding"), None);
        assert_eq!(wire.take(5), b"early");
        assert_echo(&mut wire, b"GET / HTTP/1.1\r\n\r\n");
        wire.finish();
        assert_eq!(wire.rest(), b"bye");
        let line = server
            .output
            .wait_for("the tunnel", |line| line.contains("/tunnel"));
        assert!(line.contains("\"GET /tunnel HTTP/1.1\" 101 26 "), "{line}");
    }
    assert_eq!(server.counter("requests"), 2);
    assert_eq!(server.counter("bytes_sent"), 52);
}

/// Checks that the handler's end of its direction leaves the client's direction open.
#[test]
fn the_handler_ends_its_direction_first() {
    let server = server("");
    for (nth, over) in BOTH.into_iter().enumerate() {
        let mut wire = open(&server, over, "/tunnel?ends=5");
        wire.send("hello");
        assert_eq!(wire.rest(), b"hello");
        wire.send([b'x'; 1_000]);
        wire.finish();
        let totals = format!("{} bytes, {} ended\n", 1_005 * (nth + 1), nth + 1);
        await_totals(&server, "/tunnel", &totals);
    }
}

#[test]
fn ten_megabytes_flow_in_both_directions_at_once() {
    let server = server("body_bytes = 1000");
    let bytes = megabytes(10);
    let mut wire = open(&server, Over::Plain, "/tunnel");
    let mut socket = wire.socket.try_clone().expect("a second descriptor");
    let sent = bytes.clone();
    let writer = thread::spawn(move || socket.write_all(&sent).expect("an open tunnel"));
    assert!(wire.take(bytes.len()) == bytes);
    writer.join().expect("a writer");
    assert_echo(&mut wire, b"and more");
}

/// Checks that a handler that takes no bytes stops the client, and that a client that takes no bytes is
/// late.
#[test]
fn each_side_can_stop_the_other() {
    let server = server("write_stall_seconds = 1");
    let wire = open(&server, Over::Plain, "/tunnel?deaf");
    let patience = Some(Duration::from_secs(2));
    wire.socket.set_write_timeout(patience).expect("a time-out");
    let part = [b'x'; 65_536];
    let mut socket = &wire.socket;
    let parts = (0..1_000).take_while(|_| socket.write_all(&part).is_ok());
    assert!(parts.count() < 1_000, "the server took 64 MiB");
    assert!(server.counter("bytes_received") < 1 << 20);

    let unread = open(&server, Over::Plain, "/tunnel");
    unread.shrink_receive_buffer();
    let mut socket = unread.socket.try_clone().expect("a second descriptor");
    socket
        .set_write_timeout(Some(PATIENCE))
        .expect("a time-out");
    // The write ends with an error once the server ends the connection.
    while socket.write_all(&part).is_ok() {}
    assert!(server.counter("deadlines") > 0);
}

/// Checks that a refused or ignored switch of protocols leaves the connection to HTTP.
#[test]
fn a_request_without_a_tunnel_goes_on() {
    for over in BOTH {
        let server = server("");
        let mut wire = Wire::over(&server, over);
        for (path, fields, status, text) in [
            ("/tunnel?refuse=403", SWITCH, 403, "refused\n"),
            ("/tunnel?page", SWITCH, 200, "no tunnel\n"),
            ("/slow?lines=1", SWITCH, 200, "line 0\n"),
            ("/", SWITCH, 200, "<p>hello</p>\n"),
            ("/page", SWITCH, 200, "call 1 GET -\n"),
            ("/page", SWITCH, 200, "call 1 GET -\n"),
            (
                "/tunnel",
                "Upgrade: websocket\r\n",
                200,
                "0 bytes, 0 ended\n",
            ),
            (
                "/tunnel",
                "Connection: Upgrade\r\nUpgrade: h2c\r\n",
                200,
                "0 bytes, 0 ended\n",
            ),
            (
                "/tunnel",
                "Connection: Upgrade\r\nUpgrade: a, b\r\n",
                200,
                "0 bytes, 0 ended\n",
            ),
        ] {
            let got = wire.get(path, fields);
            let what = format!("{path} {fields}");
            assert_eq!((got.status, got.text().as_str()), (status, text), "{what}");
            assert!(!got.closes(), "{what}");
        }
        let body = format!("{SWITCH}Content-Length: 5\r\n");
        wire.send(ask("/tunnel", &body) + "hello");
        assert_eq!(wire.response("GET").text(), "0 bytes, 0 ended\n");
        wire.send(format!("GET /tunnel HTTP/1.0\r\n{SWITCH}\r\n"));
        assert_eq!(wire.response("GET").text(), "0 bytes, 0 ended\n");
    }
}

/// Checks that a request for a tunnel gets the stored page of a route with the page cache and without `upgrade`, and
/// that an extended CONNECT is refused there.
#[test]
fn a_field_passes_no_page_cache_by() {
    let server = server("");
    for path in ["/page", "/stored"] {
        for part in ["fwd=uri-miss", "hit"] {
            let answer = Wire::plain(&server).get(path, SWITCH);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let told = answer.field("cache-status").expect("Cache-Status");
            // The handler of tunnels makes no page for the cache.
            assert!(path != "/page" || told.contains(part), "{path}: {told}");
        }
        let mut h2 = H2::open(&server, Over::Tls);
        let id = connect(&mut h2, path);
        assert_eq!(h2.response(id).status, 405, "{path}");
    }
}

/// Checks that guards and rewrites apply to tunnels, and that `upgrade` passes the page cache by.
#[test]
fn tunnels_are_routed_and_guarded() {
    let server = server("");
    for (path, status) in [("/denied", 403), ("/private", 401), ("/none", 404)] {
        let mut wire = Wire::plain(&server);
        assert_eq!(wire.get(path, SWITCH).status, status, "{path}");
        let mut h2 = H2::open(&server, Over::Tls);
        let id = connect(&mut h2, path);
        assert_eq!(h2.response(id).status, status, "{path}");
    }
    for path in ["/kept", "/kept", "/moved", "/a/../tunnel"] {
        assert_echo(&mut open(&server, Over::Tls, path), b"hello");
        let mut h2 = H2::open(&server, Over::Tls);
        let id = open_h2(&mut h2, path);
        assert_echo_h2(&mut h2, id, b"", b"hello");
    }
}

/// Checks that a handler can't switch protocols on its own.
#[test]
fn a_switch_that_was_not_requested_is_refused() {
    let server = server("");
    let mut wire = Wire::plain(&server);
    for (path, fields) in [
        ("/tunnel?switch=websocket", ""),
        (
            "/tunnel?switch=websocket",
            "Connection: Upgrade\r\nUpgrade: a\r\n",
        ),
        ("/tunnel?switch=a", SWITCH),
        ("/tunnel?refuse=101", SWITCH),
    ] {
        let refused = wire.get(path, fields);
        assert_eq!((refused.status, refused.closes()), (502, false), "{path}");
    }
    let mut h2 = H2::open(&server, Over::Tls);
    for ask in [
        |h2: &mut H2| h2.ask("GET", "/tunnel?switch=websocket", &[], true),
        |h2: &mut H2| connect(h2, "/tunnel?switch=websocket"),
        |h2: &mut H2| connect(h2, "/tunnel?refuse=200"),
    ] {
        let id = ask(&mut h2);
        assert_eq!(h2.response(id).status, 502);
    }
    let is_refused = |line: &&String| line.contains("502") && line.contains("rule=R737");
    server.output.wait_until(PATIENCE, "6 refusals", |lines| {
        (lines.iter().filter(is_refused).count() == 6).then_some(())
    });
}

/// Checks that a tunnel with one direction left ends after a silence of `idle_seconds`, while a silent
/// tunnel with both directions stays.
#[test]
fn half_closed_tunnels_end_in_silence() {
    let server = server("idle_seconds = 1");
    let mut silent = open(&server, Over::Tls, "/tunnel");
    let mut silent_h2 = H2::open(&server, Over::Tls);
    let silent_id = open_h2(&mut silent_h2, "/tunnel");
    let mut kept = Vec::new();
    for over in BOTH {
        let mut wire = open(&server, over, "/tunnel?mute");
        assert_echo(&mut wire, b"hello");
        wire.finish();
        assert_eq!(wire.rest(), b"");

        let mut wire = open(&server, over, "/tunnel?ends=5");
        wire.send("hello");
        assert_eq!(wire.take(6), b"hello");
        kept.push(wire);
    }
    // The server ends the connections although the clients keep their direction open.
    server.output.wait_until(PATIENCE, "two ends", |lines| {
        let is_half = |line: &&String| line.contains("GET /tunnel?ends=5");
        (lines.iter().filter(is_half).count() == 2).then_some(())
    });
    let mut h2 = H2::open(&server, Over::Tls);
    let id = open_h2(&mut h2, "/tunnel?mute");
    h2.data(id, b"hello", true);
    let reset = h2.until(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (id, H2ErrorCode::CANCEL.0));
    let id = open_h2(&mut h2, "/tunnel?ends=5");
    h2.data(id, b"hello", false);
    let reset = h2.until(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (id, H2ErrorCode::NO_ERROR.0));
    // The tunnels were silent for the whole time.
    assert_echo(&mut silent, b"still here");
    assert_echo_h2(&mut silent_h2, silent_id, b"", b"still here");
}

/// Checks that idle connections are closed for new connections, and a silent tunnel is not.
#[test]
fn a_silent_tunnel_is_no_idle_connection() {
    let server = server("connections = 6");
    let mut tunnel = open(&server, Over::Plain, "/tunnel");
    let mut idle = Vec::new();
    for _ in 0..12 {
        let mut wire = Wire::plain(&server);
        assert_eq!(wire.get("/", "").status, 200);
        idle.push(wire);
    }
    assert!(server.counter("connections_given_up") >= 6);
    assert_echo(&mut tunnel, b"still here");
}

#[test]
fn a_reload_keeps_tunnels() {
    let server = server("");
    let mut wires = BOTH.map(|over| open(&server, over, "/tunnel"));
    let mut h2 = H2::open(&server, Over::Tls);
    let id = open_h2(&mut h2, "/tunnel");
    assert_echo_h2(&mut h2, id, b"", b"before");
    #[cfg(feature = "http3")]
    let mut h3 = crate::h3::Holder::with_tunnel(&server, "/tunnel");
    server.reload(&config("").replace("/tunnel", "/elsewhere"));
    assert_eq!(Wire::plain(&server).get("/tunnel", SWITCH).status, 404);
    for wire in &mut wires {
        assert_echo(wire, b"hello");
    }
    assert_echo_h2(&mut h2, id, b"before", b" and after");
    #[cfg(feature = "http3")]
    assert_eq!(h3.echo("hello"), "hello");
}

/// Checks that a stop waits for tunnels as for other calls: up to `drain_seconds`.
#[test]
fn a_stop_ends_tunnels_after_the_drain() {
    let mut server = server("drain_seconds = 1");
    let mut wire = open(&server, Over::Plain, "/tunnel");
    let mut h2 = H2::open(&server, Over::Tls);
    let id = open_h2(&mut h2, "/tunnel");
    server.signal("TERM");
    h2.until(frame::GOAWAY);
    assert_echo(&mut wire, b"hello");
    assert_echo_h2(&mut h2, id, b"", b"hello");
    assert_eq!(server.wait(PATIENCE), Some(0));
    wire.ends();
}

#[test]
fn an_extended_connect_opens_a_tunnel_over_http_2() {
    let server = server("body_bytes = 1000");
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        let settings = h2.until(frame::SETTINGS).payload;
        let enabled = settings
            .chunks(6)
            .any(|setting| setting == b"\0\x08\0\0\0\x01");
        assert!(enabled, "{settings:?}");
        let ids = [0, 1].map(|_| open_h2(&mut h2, "/tunnel"));
        assert_eq!(h2.get("/").status, 200);
        for id in ids {
            assert_echo_h2(&mut h2, id, b"", b"hello");
        }
        let more = [b'x'; 5_000];
        for id in ids {
            assert_echo_h2(&mut h2, id, b"hello", &more);
            h2.data(id, b"", true);
            let ended = h2.response(id);
            let bytes = [b"hello", &more[..], b"bye"].concat();
            assert!(ended.whole && ended.body == bytes, "{ended:?}");
        }
    }
    server.output.wait_until(PATIENCE, "4 lines", |lines| {
        let is_tunnel = |line: &&String| line.contains("\"CONNECT /tunnel HTTP/2.0\" 200 5008 ");
        (lines.iter().filter(is_tunnel).count() == 4).then_some(())
    });
}

#[test]
fn directions_end_one_after_the_other_over_http_2() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Tls);
    let id = open_h2(&mut h2, "/tunnel?ends=5");
    h2.data(id, b"hello", false);
    let ended = h2.response(id);
    assert!(ended.whole && ended.body == b"hello", "{ended:?}");
    h2.data(id, &[b'x'; 1_000], false);
    h2.data(id, b"", true);
    await_totals(&server, "/tunnel", "1005 bytes, 1 ended\n");
    // The stream ended in order: no RST_STREAM comes before the next response.
    let next = h2.ask("GET", "/", &[], true);
    loop {
        let frame = h2.next().expect("a frame");
        assert_ne!(frame.kind, frame::RST_STREAM, "{frame:?}");
        h2.record_frame(&frame);
        if frame.stream == next && frame.ends() {
            break;
        }
    }
}

#[test]
fn four_megabytes_flow_in_both_directions_over_http_2() {
    let server = server("");
    let bytes = megabytes(4);
    let mut h2 = H2::open(&server, Over::Plain);
    let id = open_h2(&mut h2, "/tunnel");
    // The client sends the next part once the last part has come back, so no window is exceeded.
    let mut sent = 0;
    for part in bytes.chunks(16_384) {
        h2.data(id, part, false);
        sent += part.len();
        read_h2(&mut h2, id, sent);
    }
    assert!(read_h2(&mut h2, id, bytes.len()) == bytes);
}

#[test]
fn broken_tunnels_are_reset() {
    let server = server("");
    let mut wire = open(&server, Over::Plain, "/tunnel?cut=5");
    wire.send("hello");
    assert!(b"hello".starts_with(&wire.rest()[..]));

    let mut h2 = H2::open(&server, Over::Tls);
    let id = open_h2(&mut h2, "/tunnel?cut=5");
    h2.data(id, b"hello", false);
    let reset = h2.until(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (id, H2ErrorCode::CANCEL.0));
    // Only DATA may be sent in a tunnel.
    let id = open_h2(&mut h2, "/tunnel");
    let ends = frame::END_HEADERS | frame::END_STREAM;
    h2.frame(frame::HEADERS, ends, id, &H2::block(&[("a", "b")]));
    let reset = h2.until(frame::RST_STREAM);
    assert_eq!(
        (reset.stream, reset.code()),
        (id, H2ErrorCode::PROTOCOL_ERROR.0)
    );
    assert_eq!(h2.get("/").status, 200);
}

/// Checks that CONNECT reaches only handlers of tunnels, and never makes the server a proxy to other hosts.
#[test]
fn connect_is_refused_elsewhere() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Tls);
    for path in ["/", "/slow", "/page", "/.well-known/acme-challenge/x"] {
        let id = connect(&mut h2, path);
        let refused = h2.response(id);
        let is_missing = path.starts_with("/.");
        assert_eq!(refused.status, if is_missing { 404 } else { 405 }, "{path}");
    }
    let id = connect(&mut h2, "/tunnel?refuse=403");
    assert_eq!(h2.response(id).status, 403);
    let id = h2.ask_all(
        &[(":method", "CONNECT"), (":authority", "localhost:80")],
        false,
    );
    assert_eq!(h2.response(id).status, 405);
    let refused = |response: Response| response.status;
    let id = h2.ask_all(
        &[
            (":method", "CONNECT"),
            (":protocol", "h2c"),
            (":scheme", "https"),
            (":path", "/tunnel"),
            (":authority", "localhost"),
        ],
        false,
    );
    assert_eq!(refused(h2.response(id)), 501);
    let id = h2.ask("GET", "/tunnel", &[("x", "y")], true);
    assert_eq!(h2.response(id).text(), "0 bytes, 0 ended\n");
    let id = h2.ask_all(
        &[
            (":method", "GET"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/tunnel"),
            (":authority", "localhost"),
        ],
        true,
    );
    let reset = h2.until(frame::RST_STREAM);
    assert_eq!(
        (reset.stream, reset.code()),
        (id, H2ErrorCode::PROTOCOL_ERROR.0)
    );
}

#[cfg(feature = "http3")]
#[test]
fn an_extended_connect_opens_a_tunnel_over_http_3() {
    let server = server("idle_seconds = 1, body_bytes = 1000");
    let said = crate::h3::run_scenario(&server, &["tunnels"]);
    assert_eq!(said, "echoed, ended, broken off, refused, silent");
    await_totals(&server, "/tunnel", "101035 bytes, 4 ended\n");
    let is_tunnel = |line: &&String| line.contains("\"CONNECT /tunnel HTTP/3.0\" 200 100008 ");
    server.output.wait_until(PATIENCE, "a line", |lines| {
        lines.iter().find(is_tunnel).map(|_| ())
    });
}
