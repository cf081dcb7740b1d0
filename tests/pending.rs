//! Requests under way by client: one address takes neither all places nor the memory for heads, a
//! response that its client holds makes progress or ends, and what was held goes back to the system.

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use anthill::wire::h2::Code;
use anthill::wire::h2::frame;

use crate::h2::server;
use crate::support::h2::{Frame, H2};
use crate::support::wire::{Over, Wire, wait_until};
use crate::support::{Folder, Server, run, server_table, site_table};

/// SETTINGS_INITIAL_WINDOW_SIZE of 0: no response has a byte of its body sent.
const NO_WINDOW: &[u8] = b"\0\x04\0\0\0\0";
const PATIENCE: Duration = Duration::from_secs(60);

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// Asks for a page whose body the window holds; its stream.
fn hold(h2: &mut H2) -> u32 {
    h2.ask("GET", "/middle.bin", &[], true)
}

/// The streams that have been reset so far, with their codes.
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
fn one_address_cannot_take_all_places() {
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
                .all(|(_, code)| *code == Code::REFUSED_STREAM.0)
        );
        refused += resets.len();
    }
    // Three quarters of 40 were taken, and 80 requests came.
    assert_eq!(refused, 50);
    assert_eq!(server.counter("streams_refused"), 50);
    // The connection that was refused most often is still served: the refusals cost it nothing.
    let h2 = &mut connections[3];
    h2.frame(frame::SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff");
    h2.settle();
    let id = h2.ask("GET", "/", &[], true);
    assert_eq!(h2.response(id).status, 200);
    // Another address has room for what needs a place.
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
    // The first of them has stood still for longer than those of another connection.
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
    // Two small holders fill the rest.
    let mut small = [open(3), open(4)];
    for h2 in &mut small {
        let held = [hold(h2), hold(h2)];
        assert_eq!(resets(h2), [], "{held:?}");
        let more = hold(h2);
        assert_eq!(resets(h2), [(more, Code::REFUSED_STREAM.0)]);
    }
    let before = server.counter("streams_refused");
    let mut last = open(5);
    hold(&mut last);
    assert_eq!(resets(&mut last), []);
    let reset = greedy.until(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (oldest, Code::CANCEL.0));
    assert_eq!(server.counter("streams_refused"), before + 1);
    assert_eq!(resets(&mut second), []);
    for h2 in &mut small {
        assert_eq!(resets(h2), []);
    }
}

#[test]
#[cfg(feature = "http3")]
fn places_are_shared_over_http_3() {
    let server = server("limits = { streams = 16 }");
    assert_eq!(crate::h3::play(&server, &["shared"]), "shared");
    assert!(server.counter("streams_refused") >= 4);
}

/// One byte of window now and then is no progress, whether it is a stream's or the connection's.
#[test]
fn a_response_that_is_granted_byte_by_byte_ends() {
    let server = server("limits = { write_stall_seconds = 1 }");
    let mut h2 = H2::open_from_with(&server, address(2), NO_WINDOW);
    h2.grants = false;
    let drip = hold(&mut h2);
    let got = drip_until(&mut h2, drip, frame::RST_STREAM);
    assert!(got > 0, "it was granted, and sent");
    // The stream alone has ended.
    h2.grant(0, 1_000_000);
    h2.frame(frame::SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff");
    let id = h2.ask("GET", "/", &[], true);
    assert_eq!(h2.response(id).status, 200);
    // 65,535 bytes for all streams, and no more.
    let mut h2 = H2::open_from_with(&server, address(2), b"\0\x04\x00\x10\0\0");
    h2.grants = false;
    hold(&mut h2);
    drip_until(&mut h2, 0, frame::GOAWAY);
}

/// Grants a byte at a time, far longer than a response may stand still, until a frame of this type
/// comes; the bytes that came meanwhile.
fn drip_until(h2: &mut H2, id: u32, kind: u8) -> usize {
    let mut got = 0;
    // At least 50 s, of which 1 is allowed.
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

/// A field of 3,900 bytes that the server remembers, and requests that name it four times.
struct Amplified {
    h2: H2,
    sent: usize,
    next: u32,
}

impl Amplified {
    /// A connection whose first request puts the field into the dynamic table.
    fn open(server: &Server, settings: &[u8]) -> Amplified {
        let mut h2 = H2::open_from_with(server, address(2), settings);
        // Literal with incremental indexing (RFC 7541 §6.2.1): `x-large`, and its value's length.
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

    /// Requests whose heads have 15.6 KB each, and whose bodies never end.
    fn ask(&mut self, count: usize, method: &str, path: &str, flags: u8) {
        let mut block = Amplified::pseudo_fields(method, path);
        // The newest entry of the dynamic table (RFC 7541 §2.3.3), four times.
        block.extend_from_slice(&[0x80 | 62; 4]);
        for _ in 0..count {
            self.h2.frame(
                frame::HEADERS,
                frame::END_HEADERS | flags,
                self.next,
                &block,
            );
            self.sent += block.len();
            self.next += 2;
        }
    }
}

/// A server with 1 MiB for the heads of waiting requests.
fn small_server() -> Server {
    server("memory_max = \"16 MiB\"\n")
}

const HEADS: usize = 20 * 99;
const HEAD_BYTES: usize = 4 * 3_900;

/// 31 MB of heads that a few bytes each stand for: where no handler wants the body, all are answered
/// and nothing is kept of them.
#[test]
fn heads_of_requests_that_are_answered_are_not_kept() {
    let server = small_server();
    assert_eq!(H2::open(&server, Over::Tls).get("/").status, 200);
    let before = server.resident_kib();
    let mut all: Vec<_> = (0..20).map(|_| Amplified::open(&server, b"")).collect();
    for it in &mut all {
        it.ask(99, "POST", "/", 0);
        let last = it.next - 2;
        // The last is answered, so all are.
        assert_eq!(it.h2.response(last).status, 405);
        it.h2.settle();
    }
    let sent: usize = all.iter().map(|it| it.sent).sum();
    let held = server.resident_kib().saturating_sub(before) as usize * 1024;
    // Nothing of the 15.6 KB of a head is there any more: each stream has its entry in a table.
    assert!(held < HEADS * HEAD_BYTES / 8, "{held} bytes are held");
    assert!(
        held < 20 * sent,
        "{held} bytes are held for {sent} that were sent"
    );
    assert_eq!(server.counter("heads_refused"), 0);
}

/// The same where they wait: for a body, for a password, for the window.
#[test]
fn heads_of_requests_that_wait_are_bounded_and_given_back() {
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

/// Heads of HTTP/1.1 that don't end: 16 KB each, which their client has to send.
#[test]
fn unfinished_heads_are_bounded_too() {
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
    // Three quarters of 1 MiB are 52 of them.
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
    let lines = server.output.wait_until(PATIENCE, "the log", |lines| {
        (lines.len() >= 101).then(|| lines.to_vec())
    });
    assert!(lines.iter().any(|line| line.contains(" 503 ")), "{lines:?}");
}

/// POSTs with heads of 15 KB whose bodies go on for ever hold their heads. Where several addresses hold
/// nearly all, one of theirs ends for a client that holds nothing.
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
    // 240 of them were sent, and 69 are 1 MiB.
    let refused = || (server.counter("heads_refused") >= 160).then_some(());
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

/// A request that finds no room behind a response that is on its way ends the connection, and leaves the
/// response as it is.
#[test]
fn a_refusal_never_stands_within_a_response() {
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
    // Its own share is taken as well, so that nothing is ended for it.
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

/// A listing is made as its client takes it: one that takes a byte of each holds little.
#[test]
fn listings_that_nobody_takes_hold_little() {
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

/// A body that comes while the password is checked reaches the handler, over each version of HTTP.
#[test]
fn a_body_that_comes_during_a_login_reaches_its_handler() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let config = server_table("")
        + &site_table("")
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\nusers = \"users\"\n";
    let mut users = String::new();
    for user in ["first", "second"] {
        // Slow on purpose, so that the body is there before the password is checked.
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
