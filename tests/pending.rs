//! Requests under way by client: shares of one address in the request slots and in the memory for heads,
//! deadlines of responses held by a client, and the release of memory.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use wire::h2::H2ErrorCode;
use wire::h2::frame;

use crate::h2::server;
use crate::support::h2::{Frame, H2};
use crate::support::wire::{Over, Wire, wait_until};
use crate::support::{Folder, Server, run, server_table, site_table};

/// SETTINGS_INITIAL_WINDOW_SIZE of 0: the server sends no byte of a response body.
const NO_WINDOW: &[u8] = b"\0\x04\0\0\0\0";
const PATIENCE: Duration = Duration::from_secs(60);

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// Requests a page with its body held back by the window. Returns the stream.
fn hold(h2: &mut H2) -> u32 {
    h2.ask("GET", "/middle.bin", &[], true)
}

/// Returns the streams reset so far, with their error codes.
fn resets(h2: &mut H2) -> Vec<(u32, u32)> {
    h2.frame(frame::PING, 0, 0, b"are you?");
    let mut resets = Vec::new();
    loop {
        let frame: Frame = h2.next().expect("a frame");
        match frame.kind {
            frame::RST_STREAM => resets.push((frame.stream, frame.code())),
            frame::PING => return resets,
            _ => {}
        }
    }
}

#[test]
fn one_address_cannot_take_all_slots() {
    let server = server("limits = { streams = 40 }");
    let mut victim = H2::open_from(&server, address(3));
    for path in ["/", "/middle.bin"] {
        assert_eq!(victim.get(path).status, 200);
    }
    let mut connections: Vec<H2> = (0..4)
        .map(|_| H2::open_from_with(&server, address(2), NO_WINDOW))
        .collect();
    let mut refused = 0;
    for h2 in &mut connections {
        for _ in 0..20 {
            hold(h2);
        }
        let resets = resets(h2);
        assert!(
            resets
                .iter()
                .all(|(_, code)| *code == H2ErrorCode::REFUSED_STREAM.0)
        );
        refused += resets.len();
    }
    // One address gets three quarters of the 40 slots, and 80 requests were sent.
    assert_eq!(refused, 50);
    assert_eq!(server.counter("streams_refused"), 50);
    // The connection with the most refusals is still served: refusals are not counted against a connection.
    let h2 = &mut connections[3];
    h2.frame(frame::SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff");
    h2.settle();
    let id = h2.ask("GET", "/", &[], true);
    assert_eq!(h2.response(id).status, 200);
    // Another address still has slots.
    assert_eq!(victim.get("/").status, 200);
    assert_eq!(victim.get("/middle.bin").body.len(), 100_000);
    let call = victim.ask("POST", "/echo", &[], true);
    assert_eq!(victim.response(call).status, 200);
    assert_eq!(server.counter("streams_refused"), 50);
}

#[test]
fn at_the_bound_the_longest_stalled_request_of_the_largest_holder_ends() {
    let server = server("limits = { streams = 16 }");
    assert_eq!(H2::open(&server, Over::Tls).get("/middle.bin").status, 200);
    let open = |last| H2::open_from_with(&server, address(last), NO_WINDOW);
    let (mut greedy, mut second) = (open(2), open(2));
    // The oldest response has been stalled for longer than the responses of the other connection.
    let oldest = hold(&mut greedy);
    greedy.settle();
    thread::sleep(Duration::from_millis(20));
    for _ in 0..6 {
        hold(&mut second);
    }
    assert_eq!(resets(&mut second), []);
    for _ in 0..5 {
        hold(&mut greedy);
    }
    assert_eq!(resets(&mut greedy), []);
    // Two small holders fill the remaining slots.
    let mut small = [open(3), open(4)];
    for h2 in &mut small {
        let held = [hold(h2), hold(h2)];
        assert_eq!(resets(h2), [], "{held:?}");
        let more = hold(h2);
        assert_eq!(resets(h2), [(more, H2ErrorCode::REFUSED_STREAM.0)]);
    }
    let before = server.counter("streams_refused");
    let mut last = open(5);
    hold(&mut last);
    assert_eq!(resets(&mut last), []);
    let reset = greedy.until(frame::RST_STREAM);
    assert_eq!(
        (reset.stream, reset.code()),
        (oldest, H2ErrorCode::CANCEL.0)
    );
    assert_eq!(server.counter("streams_refused"), before + 1);
    assert_eq!(resets(&mut second), []);
    for h2 in &mut small {
        assert_eq!(resets(h2), []);
    }
}

#[test]
#[cfg(feature = "http3")]
fn slots_are_shared_over_http_3() {
    let server = server("limits = { streams = 16 }");
    assert_eq!(crate::h3::run_scenario(&server, &["shared"]), "shared");
    assert!(server.counter("streams_refused") >= 4);
}

/// One byte of window now and then is no progress, neither of a stream's window nor of the connection's.
#[test]
fn a_response_with_window_granted_byte_by_byte_ends() {
    let server = server("limits = { write_stall_seconds = 1 }");
    let mut h2 = H2::open_from_with(&server, address(2), NO_WINDOW);
    h2.grants = false;
    let drip = hold(&mut h2);
    let got = grant_bytes_until(&mut h2, drip, frame::RST_STREAM);
    assert!(got > 0, "it was granted, and sent");
    // Only the stream has ended.
    h2.grant(0, 1_000_000);
    h2.frame(frame::SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff");
    let id = h2.ask("GET", "/", &[], true);
    assert_eq!(h2.response(id).status, 200);
    // A connection window of 65,535 bytes for all streams.
    let mut h2 = H2::open_from_with(&server, address(2), b"\0\x04\x00\x10\0\0");
    h2.grants = false;
    hold(&mut h2);
    grant_bytes_until(&mut h2, 0, frame::GOAWAY);
}

/// Grants one byte at a time for far longer than the write deadline, until a frame of the type arrives.
/// Returns the number of body bytes received meanwhile.
fn grant_bytes_until(h2: &mut H2, id: u32, kind: u8) -> usize {
    let mut got = 0;
    // At least 50 s, against a deadline of 1 s.
    for _ in 0..1_000 {
        h2.grant(id, 1);
        if id != 0 {
            h2.grant(0, 1);
        }
        h2.frame(frame::PING, 0, 0, b"are you?");
        loop {
            let frame = h2.next().expect("a frame");
            match frame.kind {
                it if it == kind => return got,
                frame::DATA => got += frame.payload.len(),
                frame::PING => break,
                _ => {}
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("it went on for {got} bytes")
}

/// A connection with a field of 3,900 bytes in the dynamic table, for requests that reference the field
/// four times.
struct Amplified {
    h2: H2,
    sent: usize,
    next: u32,
}

impl Amplified {
    /// Connects and sends a first request that inserts the field into the dynamic table.
    fn open(server: &Server, settings: &[u8]) -> Amplified {
        let mut h2 = H2::open_from_with(server, address(2), settings);
        // Literal with incremental indexing (RFC 7541 §6.2.1): `x-large` and the length of its value.
        let mut block = Amplified::pseudo_fields("GET", "/");
        block.extend_from_slice(b"\x40\x07x-large\x7f");
        block.extend_from_slice(&[0xbd, 0x1d]);
        block.extend_from_slice(&[b'x'; 3_900]);
        h2.frame(
            frame::HEADERS,
            frame::END_HEADERS | frame::END_STREAM,
            1,
            &block,
        );
        Amplified {
            h2,
            sent: block.len(),
            next: 3,
        }
    }

    fn pseudo_fields(method: &str, path: &str) -> Vec<u8> {
        H2::block(&[
            (":method", method),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
        ])
    }

    /// Sends requests with heads of 15.6 KB and endless bodies.
    fn ask(&mut self, count: usize, method: &str, path: &str, flags: u8) {
        let mut block = Amplified::pseudo_fields(method, path);
        // Four references to the newest entry of the dynamic table (RFC 7541 §2.3.3).
        block.extend_from_slice(&[0x80 | 62; 4]);
        for nth in 1..=count {
            self.h2.frame(
                frame::HEADERS,
                frame::END_HEADERS | flags,
                self.next,
                &block,
            );
            self.sent += block.len();
            self.next += 2;
            // Frames that wait for the turn of the connection count against the client's share of memory. Beyond the
            // share the connection ends, so the server reads each group of frames before the next one.
            if nth % 8 == 0 {
                self.h2.settle();
            }
        }
    }
}

/// Starts a server with 1 MiB for the heads of waiting requests.
fn small_server() -> Server {
    server("memory_max = \"16 MiB\"\n")
}

const HEADS: usize = 20 * 99;
const HEAD_BYTES: usize = 4 * 3_900;

/// Heads of 31 MB in all, encoded in a few bytes each. Requests without an interest in the body are
/// answered, and their heads are released.
#[test]
fn heads_of_answered_requests_are_released() {
    let server = small_server();
    assert_eq!(H2::open(&server, Over::Tls).get("/").status, 200);
    let before = server.resident_kib();
    let mut all: Vec<_> = (0..20).map(|_| Amplified::open(&server, b"")).collect();
    for it in &mut all {
        it.ask(99, "POST", "/", 0);
        let last = it.next - 2;
        // The last request is answered, and so are all requests before.
        assert_eq!(it.h2.response(last).status, 405);
        it.h2.settle();
    }
    let sent: usize = all.iter().map(|it| it.sent).sum();
    let held = server.resident_kib().saturating_sub(before) as usize * 1024;
    // The 15.6 KB of each head have been released: each stream has only its entry in a table.
    assert!(held < HEADS * HEAD_BYTES / 8, "{held} bytes are held");
    assert!(
        held < 20 * sent,
        "{held} bytes are held for {sent} that were sent"
    );
    assert_eq!(server.counter("heads_refused"), 0);
}

/// Heads of requests that wait for a body, for a password check, or for the window.
#[test]
fn heads_of_waiting_requests_are_bounded_and_released() {
    let server = small_server();
    assert_eq!(H2::open(&server, Over::Tls).get("/middle.bin").status, 200);
    let before = server.resident_kib();
    for (method, path, flags, settings) in [
        ("POST", "/echo", 0, &b""[..]),
        ("GET", "/middle.bin", frame::END_STREAM, NO_WINDOW),
        ("GET", "/middle.bin", 0, NO_WINDOW),
    ] {
        let refused = server.counter("heads_refused") + server.counter("streams_refused");
        let mut all: Vec<_> = (0..20)
            .map(|_| Amplified::open(&server, settings))
            .collect();
        for it in &mut all {
            it.ask(99, method, path, flags);
            it.h2.settle();
        }
        let held = server.resident_kib().saturating_sub(before);
        assert!(held < 8 * 1024, "{method} {path}: {held} KiB are held");
        if method == "POST" {
            let more = server.counter("heads_refused") - refused;
            assert!(more > 1_000, "{more} were refused");
        }
        // Another address is served meanwhile, with a large head of its own.
        let mut victim = H2::open_from(&server, address(3));
        let large = "x".repeat(10_000);
        let id = victim.ask("POST", "/echo", &[("x-large", &large)], false);
        victim.data(id, b"hello", true);
        let got = victim.response(id);
        assert_eq!(
            (got.status, got.text().as_str()),
            (200, "hello"),
            "{method} {path}"
        );
        drop((all, victim));
        let back = || {
            let more = server.resident_kib().saturating_sub(before);
            (more < 3 * 1024).then_some(())
        };
        wait_until(PATIENCE, "the memory to be given back", back);
    }
}

/// Unfinished HTTP/1.1 heads of 16 KB each, sent in full by the client.
#[test]
fn unfinished_heads_are_bounded() {
    let server = small_server();
    let head = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}",
        "x".repeat(15_000)
    );
    let mut wires = Vec::new();
    for _ in 0..100 {
        let mut wire = Wire::tls_from(&server, address(2), "localhost", &[]);
        wire.send(&head);
        wires.push(wire);
    }
    // Three quarters of 1 MiB hold 52 heads.
    let refused = || (server.counter("heads_refused") >= 48).then_some(());
    wait_until(PATIENCE, "48 refusals", refused);
    let mut victim = Wire::tls_from(&server, address(3), "localhost", &[]);
    let field = format!("X-Large: {}\r\n", "x".repeat(15_000));
    assert_eq!(victim.get("/", &field).status, 200);
    let answered = wires.iter_mut().filter_map(|wire| {
        wire.patience(Duration::from_secs(60));
        wire.next_response("GET").map(|it| it.status)
    });
    let answered: Vec<u16> = answered.collect();
    assert_eq!(answered.iter().filter(|status| **status == 503).count(), 48);
    assert_eq!(answered.iter().filter(|status| **status == 408).count(), 52);
    let lines = server
        .output
        .wait_until(PATIENCE, "the log lines", |lines| {
            (lines.len() >= 101).then(|| lines.to_vec())
        });
    assert!(lines.iter().any(|line| line.contains(" 503 ")), "{lines:?}");
}

/// POSTs with heads of 15 KB and endless bodies keep their heads. If several addresses hold nearly all of
/// the memory, one of their requests ends for a client without a request.
#[test]
fn heads_of_http_1_make_room_for_other_clients() {
    let server = small_server();
    let field = format!("X-Large: {}\r\n", "x".repeat(15_000));
    let mut wires = Vec::new();
    for last in 10..16 {
        for _ in 0..40 {
            let mut wire = Wire::tls_from(&server, address(last), "localhost", &[]);
            wire.send(format!(
                "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n{field}\r\n"
            ));
            wires.push(wire);
        }
    }
    // The clients sent 240 heads, and 69 heads fill 1 MiB. A part of the other heads is refused, and a part
    // ends requests of the largest holder.
    let refused = || (server.counter("heads_refused") >= 80).then_some(());
    wait_until(PATIENCE, "refusals", refused);
    for last in 3..8 {
        let mut victim = H2::open_from(&server, address(last));
        let large = "x".repeat(10_000);
        let id = victim.ask("POST", "/echo", &[("x-large", &large)], false);
        victim.data(id, b"hello", true);
        let got = victim.response(id);
        assert_eq!((got.status, got.text().as_str()), (200, "hello"), "{last}");
    }
}

/// A pipelined request without room for its head ends the connection only after the response in progress is
/// complete.
#[test]
fn a_refusal_never_appears_within_a_response() {
    let server = small_server();
    let mut warm = Wire::plain(&server);
    let large = warm.get("/large.bin", "").body;
    let head = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}",
        "x".repeat(15_000)
    );
    let mut wires = Vec::new();
    for last in 10..16 {
        for _ in 0..20 {
            let mut wire = Wire::of(&server, address(last).into());
            wire.send(&head);
            wires.push(wire);
        }
    }
    let refused = || (server.counter("heads_refused") >= 40).then_some(());
    wait_until(PATIENCE, "refusals", refused);
    // The client's own share is full too, so no other request ends for the client.
    let mut own: Vec<Wire> = Vec::new();
    for _ in 0..20 {
        let mut wire = Wire::of(&server, address(20).into());
        wire.send(&head);
        own.push(wire);
    }
    let mut wire = Wire::of(&server, address(20).into());
    wire.send(format!(
        "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n{head}"
    ));
    let got = wire.response("GET");
    assert_eq!(got.status, 200);
    assert!(got.whole && got.body == large, "{} bytes", got.body.len());
}

/// The share of memory for heads is full, and a request with content arrives in one piece. The content is never
/// dropped: the bytes of a later request would take its place.
#[test]
fn content_without_room_is_refused_and_never_replaced() {
    let hash = run("openssl", &["passwd", "-6", "-stdin"], b"strong");
    let config = server_table("memory_max = \"16 MiB\"\n")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/closed\"\nusers = \"users\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/old\"\nredirect = \"/new/\"\n"
        + "[[site.route]]\npath = \"/denied\"\nallow = [\"192.0.2.1\"]\n";
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    let server = Server::start_in(folder, &config);
    assert_eq!(Wire::plain(&server).get("/", "").status, 200);
    // Unfinished heads of 15 KB, 3 KB and 1.1 KB leave less than 1.1 KB of the share.
    let mut fill = Vec::new();
    for (bytes, count) in [(15_000, 100), (3_000, 40), (1_100, 40)] {
        for _ in 0..count {
            let mut wire = Wire::of(&server, address(2).into());
            wire.send(format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}",
                "x".repeat(bytes)
            ));
            fill.push(wire);
        }
    }
    let refused = || (server.counter("heads_refused") >= 100).then_some(());
    wait_until(PATIENCE, "refusals", refused);
    let login = "Authorization: Basic YW50OnN0cm9uZw==\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (path, field) in [
        ("/echo", ""),
        ("/closed", login),
        ("/", ""),
        ("/old", ""),
        ("/denied", ""),
    ] {
        for framing in ["Content-Length: 6000", "Transfer-Encoding: chunked"] {
            let mut wire = Wire::of(&server, address(2).into());
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{field}{framing}\r\n\r\n");
            let is_chunked = framing.contains("chunked");
            let framed = |content: &str| {
                if is_chunked {
                    format!("1770\r\n{content}\r\n0\r\n\r\n")
                } else {
                    content.to_owned()
                }
            };
            wire.send(format!("{head}{}", framed(&"A".repeat(6_000))));
            let got = wire.next_response("POST");
            let status = got.as_ref().map(|it| it.status);
            // A client that continues has the bytes of a request within the next content.
            let padding = "x".repeat(6_000 - smuggled.len() - 100);
            let content = format!("{}{smuggled}{padding}", "x".repeat(100));
            wire.send(format!("{head}{}", framed(&content)));
            wire.finish();
            let rest = wire.rest();
            let rest = String::from_utf8_lossy(&rest);
            assert!(
                !rest.contains("POST /"),
                "{path}, {framing}: a request became content: {rest}"
            );
            match (path, status) {
                // The request needs no content: the content may be discarded as it arrives.
                ("/" | "/old" | "/denied", Some(403 | 405 | 503 | 308 | 301)) => {}
                ("/echo" | "/closed", Some(503)) => assert!(got.is_some_and(|it| it.closes())),
                // A part of the other requests may have ended for the request.
                ("/echo" | "/closed", Some(200)) => {
                    let content = got.expect("a response").body;
                    assert!(content == "A".repeat(6_000).as_bytes(), "{path}, {framing}");
                }
                _ => panic!("{path}, {framing}: {status:?}"),
            }
        }
    }
    drop(fill);
    server
        .output
        .wait_for("a refusal for lack of room", |line| {
            line.contains("POST /echo") && line.contains("rule=R608")
        });
    let lines = server.output.all();
    assert!(
        !lines.iter().any(|line| line.contains("smuggled")),
        "{lines:?}"
    );
}

/// A listing is rendered as its client reads, so clients that read one byte of each hold little memory.
#[test]
fn unread_listings_use_little_memory() {
    let server = server("limits = { streams = 1000 }");
    for nth in 0..1_000 {
        let name = format!("public/sub/{}-{nth:04}.txt", "n".repeat(100));
        server.folder.write(&name, "x");
    }
    let is_seen = || {
        let page = Wire::plain(&server).get("/sub/?format=json", "").text();
        page.contains("-0999.txt").then_some(())
    };
    wait_until(PATIENCE, "the files to be seen", is_seen);
    let before = server.resident_kib();
    let one_byte = b"\0\x04\0\0\0\x01";
    let mut all: Vec<_> = (0..8)
        .map(|_| H2::open_from_with(&server, address(2), one_byte))
        .collect();
    for h2 in &mut all {
        for _ in 0..90 {
            h2.ask("GET", "/sub/", &[], true);
        }
        h2.settle();
    }
    let held = server.resident_kib().saturating_sub(before);
    assert!(held < 8 * 90 * 12, "{held} KiB are held by 720 listings");
}

/// A body received during the password check reaches the handler, over each version of HTTP.
#[test]
fn a_body_received_during_a_login_reaches_its_handler() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let config = server_table("")
        + &site_table("")
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\nusers = \"users\"\n";
    let mut users = String::new();
    for user in ["first", "second"] {
        // The hash is slow, so that the body arrives before the password is checked.
        let ran = run("openssl", &["passwd", "-6", "-stdin"], b"hill");
        users += &format!("{user}:{}\n", ran.text().trim());
    }
    folder.write("users", users);
    let server = Server::start_in(folder, &config);
    for (version, login) in [("--http1.1", "first:hill"), ("--http2", "second:hill")] {
        let url = server.https("/echo");
        let ran = run(
            "curl",
            &["-sk", version, "-u", login, "-d", "hello", &url],
            b"",
        );
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "hello", "{version}");
    }
}
