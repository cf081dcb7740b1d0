//! HTTP/2 with a raw client: responses equal to HTTP/1.1, bodies in both directions, priorities, and
//! draining.

use std::thread;
use std::time::{Duration, Instant};

use wire::h2::H2ErrorCode;
use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Response, Wire, wait_until};
use crate::support::{Folder, Server, lossy, server_table, site_table};

const HELLO: &str = "<p>hello</p>\n";
/// Field names and values.
type Fields<'a> = &'a [(&'a str, &'a str)];

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server with stored pages, listings, redirects, denied paths and test handlers.
pub fn server(more: &str) -> Server {
    let config = server_table(&format!("h2c = true\n{more}"))
        + &site_table(
            "http = \"serve\"\nlisting = true\nhsts = true\nerrors = { 404 = \"lost.html\" }",
        )
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n"
        + "[[site.route]]\npath = \"/endless\"\ntest = \"endless\"\n"
        + "[[site.route]]\npath = \"/old\"\nredirect = \"/new/\"\n"
        + "[[site.route]]\npath = \"/denied\"\nallow = [\"192.0.2.1\"]\n";
    let folder = Folder::new()
        .with("public/index.html", HELLO)
        .with("public/lost.html", "<p>lost</p>\n")
        .with("public/empty.txt", "")
        .with("public/large.bin", large())
        .with("public/middle.bin", vec![b'm'; 100_000])
        .with("public/sub/a.txt", "a\n")
        .with("public/page.txt.gz", "not really gzip")
        .with("public/page.txt", "plain text\n".repeat(100));
    Server::start_in(folder, &config)
}

/// Returns more bytes than the server keeps in memory, without repetition.
pub fn large() -> Vec<u8> {
    let words = (0..150_000u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Returns a response without the fields specific to one version of HTTP.
fn comparable(response: &Response) -> (u16, Vec<(String, String)>, String, bool) {
    let own = ["date", "connection", "transfer-encoding"];
    let mut fields: Vec<_> = response
        .fields
        .iter()
        .map(|(name, value)| (name.to_lowercase(), value.clone()))
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .collect();
    fields.sort();
    (
        response.status,
        fields,
        lossy(&response.body),
        response.whole,
    )
}

#[test]
fn responses_equal_those_of_http_1() {
    let server = server("");
    let tag = server.curl(&["--http1.1", "-I", &server.https("/")]).text();
    let tag = tag.lines().find_map(|line| line.strip_prefix("ETag: "));
    let tag = tag.expect("a tag").to_owned();
    #[rustfmt::skip] // A table reads better in columns.
    let table: &[(&str, &str, Fields<'_>)] = &[
        ("GET", "/", &[]),
        ("HEAD", "/", &[]),
        ("OPTIONS", "/", &[]),
        ("OPTIONS", "*", &[]),
        ("POST", "/", &[]),
        ("TRACE", "/", &[]),
        ("BREW", "/", &[]),
        ("GET", "/nowhere", &[]),
        ("HEAD", "/nowhere", &[]),
        ("GET", "/empty.txt", &[]),
        ("GET", "/large.bin", &[]),
        ("HEAD", "/large.bin", &[]),
        ("GET", "/middle.bin", &[]),
        ("GET", "/page.txt", &[("accept-encoding", "gzip")]),
        ("GET", "/sub", &[]),
        ("GET", "/sub?x=y", &[]),
        ("GET", "/sub/", &[]),
        ("GET", "/sub/?format=json", &[]),
        ("HEAD", "/sub/", &[]),
        ("GET", "/old/x", &[]),
        ("GET", "/denied", &[]),
        ("GET", "/.hidden", &[]),
        ("GET", "/../x", &[]),
        ("GET", "/a%2fb", &[]),
        ("GET", "/%zz", &[]),
        ("GET", "/", &[("if-none-match", &tag)]),
        ("GET", "/", &[("if-match", "\"x\"")]),
        ("GET", "/", &[("range", "bytes=3-7")]),
        ("GET", "/", &[("range", "bytes=100-")]),
        ("GET", "/large.bin", &[("range", "bytes=0-9, 1000000-1000009, 5-6")]),
        ("GET", "/", &[("expect", "more")]),
        ("POST", "/", &[("content-length", "x")]),
        ("GET", "/slow?lines=2&pause_ms=1", &[]),
        ("HEAD", "/slow?lines=2&pause_ms=1", &[]),
        ("POST", "/echo", &[]),
    ];
    for over in BOTH {
        // The first requests load and compress all pages.
        for (_, path, _) in table {
            Wire::over(&server, over).get(path, "");
        }
        let mut h2 = H2::open(&server, over);
        for (method, path, fields) in table {
            let lines: String = fields
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"))
                .collect();
            let old = Wire::over(&server, over).ask(method, path, &lines);
            let id = h2.ask(method, path, fields, true);
            let new = h2.response(id);
            assert_eq!(
                comparable(&new),
                comparable(&old),
                "{method} {path} {fields:?} {over:?}"
            );
        }
    }
}

#[test]
fn many_requests_at_once_on_one_connection() {
    let server = server("");
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        let paths = [
            "/",
            "/large.bin",
            "/slow?lines=3&pause_ms=20",
            "/sub/",
            "/nowhere",
        ];
        let ids: Vec<_> = (0..60)
            .map(|nth| h2.ask("GET", paths[nth % paths.len()], &[], true))
            .collect();
        let mut left = ids.len();
        while left > 0 {
            let frame = h2.next().expect("a frame");
            assert_ne!(frame.kind, frame::RST_STREAM, "{frame:?}");
            left -= usize::from(frame.ends());
            h2.record_frame(&frame);
        }
        for (nth, id) in ids.iter().enumerate() {
            let response = h2.partial_response(*id).expect("a response");
            let expected = match nth % paths.len() {
                0 => HELLO.as_bytes().to_vec(),
                1 => large(),
                2 => b"line 0\nline 1\nline 2\n".to_vec(),
                3 => continue,
                _ => b"<p>lost</p>\n".to_vec(),
            };
            assert!(response.whole && response.body == expected, "{response:?}");
        }
    }
}

#[test]
fn the_log_and_the_counters_show_http_2() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Tls);
    assert_eq!(h2.get("/?x").text(), HELLO);
    h2.get("/slow?lines=1");
    h2.ask("GET", "/", &[("connection", "close")], true);
    assert_eq!(
        h2.until(frame::RST_STREAM).code(),
        H2ErrorCode::PROTOCOL_ERROR.0
    );
    for (fits, what) in [
        ("\"GET /?x HTTP/2.0\" 200 13 ", "a page"),
        ("\"GET /slow?lines=1 HTTP/2.0\" 200 7 ", "a call"),
        (
            "\"GET / HTTP/2.0\" 400 - \"-\" \"-\" rule=R216",
            "a refusal",
        ),
    ] {
        server.output.wait_for(what, |line| line.contains(fits));
    }
    assert_eq!(server.counter("h2_connections"), 1);
    assert_eq!(server.counter("requests"), 2);
    assert_eq!(server.counter("h2_errors"), 0);
}

#[test]
fn without_tls_http_2_needs_the_key_h2c() {
    let mut on = server("");
    for preface in [
        &frame::PREFACE[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let mut wire = Wire::plain(&on);
        wire.drip(preface);
        assert_eq!(wire.take(9)[3], frame::SETTINGS);
    }
    let config = server_table("") + &site_table("http = \"serve\"");
    on.reload(&config);
    let mut wire = Wire::plain(&on);
    wire.send(frame::PREFACE);
    assert!(wire.response("GET").status >= 400);
    // A request with Upgrade does not switch to HTTP/2 either.
    let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n";
    assert_eq!(Wire::plain(&on).get("/", upgrade).status, 200);
    // Over TLS HTTP/2 still works, and a client without ALPN gets HTTP/1.1.
    assert_eq!(H2::open(&on, Over::Tls).get("/").text(), HELLO);
    assert_eq!(Wire::tls(&on).get("/", "").text(), HELLO);
    on.signal("TERM");
    assert_eq!(on.wait(PATIENCE), Some(0));
}

#[test]
fn bodies_in_both_directions_at_once() {
    let server = server("");
    let body = large();
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        let id = h2.ask("POST", "/echo", &[], false);
        let (mut sent, mut window) = (0, 65_535usize);
        // The client alternates between sending the granted bytes and reading the echo.
        while !h2.partial_response(id).is_some_and(|it| it.whole) {
            while sent < body.len() && window > 0 {
                let part = (body.len() - sent).min(window).min(10_000);
                let ends = sent + part == body.len();
                h2.data(id, &body[sent..sent + part], ends);
                sent += part;
                window -= part;
            }
            let frame = h2.next().expect("a frame");
            if frame.kind == frame::WINDOW_UPDATE && frame.stream == id {
                window += frame.code() as usize;
            }
            h2.record_frame(&frame);
        }
        assert!(
            h2.partial_response(id).is_some_and(|it| it.body == body),
            "{over:?}"
        );
        assert_eq!(h2.get("/").text(), HELLO);
    }
}

/// The server grants window only as the handler consumes the upload, and the handler consumes only as the
/// client reads the echo.
#[test]
fn an_upload_waits_for_its_echo() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Plain);
    h2.grants = false;
    let id = h2.ask("POST", "/echo", &[], false);
    let (mut sent, mut window) = (0usize, 65_535usize);
    let idle = |h2: &mut H2| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| h2.next())).unwrap_or(None)
    };
    loop {
        while window > 0 {
            let part = window.min(16_384);
            h2.data(id, &vec![b'x'; part], false);
            sent += part;
            window -= part;
        }
        // The first 100,000 bytes are expected on a slow machine too.
        h2.wire.patience(if sent > 100_000 {
            Duration::from_millis(700)
        } else {
            PATIENCE
        });
        let Some(frame) = idle(&mut h2) else { break };
        if frame.kind == frame::WINDOW_UPDATE && frame.stream == id {
            window += frame.code() as usize;
        }
    }
    // The bound covers two pipes, the stream's window towards the client, and bytes in flight.
    assert!(sent < 400_000, "{sent} bytes were taken");
    assert!(sent > 100_000, "{sent} bytes only");
}

#[test]
fn unwanted_bodies_and_bodies_over_the_limit() {
    let server = server("limits = { body_bytes = 1000, body_discard_bytes = 2000 }");
    let mut h2 = H2::open(&server, Over::Tls);
    // The body is discarded, and the request is answered.
    let id = h2.ask("POST", "/", &[("content-length", "5")], false);
    h2.data(id, b"hello", true);
    assert_eq!(h2.response(id).status, 405);
    // The request is answered at once, and the body is discarded, also of a client that waits for 100 (Continue).
    for (path, fields, status) in [
        ("/echo", &[("content-length", "1001")], 413),
        ("/", &[("content-length", "3000")], 405),
        ("/", &[("expect", "100-continue")], 405),
    ] {
        let id = h2.ask("POST", path, fields, false);
        assert_eq!(h2.response(id).status, status);
        let length = if path == "/" { 3_000 } else { 1_001 };
        h2.data(id, &vec![b'x'; length], true);
    }
    // A body longer than the limit, without a declared length. The call of a handler without a response ends with
    // the refusal; where the handler has begun its response, the stream is reset.
    let id = h2.ask("POST", "/", &[], false);
    h2.data(id, &[b'x'; 3_000], true);
    assert_eq!(h2.response(id).status, 405);
    let id = h2.ask("POST", "/echo", &[], false);
    h2.data(id, &[b'x'; 2_001], true);
    while !h2.partial_response(id).is_some_and(|it| it.whole) {
        let frame = h2.next().expect("a frame");
        h2.record_frame(&frame);
        if frame.kind == frame::RST_STREAM {
            assert_eq!(frame.code(), H2ErrorCode::CANCEL.0);
            break;
        }
        assert!(
            frame.stream != id
                || h2
                    .partial_response(id)
                    .is_none_or(|it| !it.whole || it.status == 413)
        );
    }
    // A handler sends 100 Continue.
    let id = h2.ask("POST", "/echo", &[("expect", "100-continue")], false);
    h2.until(frame::HEADERS);
    assert_eq!(h2.partial_response(id).map(|it| it.status), Some(100));
    h2.data(id, b"hello", true);
    let response = h2.response(id);
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
}

#[test]
fn an_endless_call_ends_with_its_stream_and_the_connection_stays_open() {
    let server = server("");
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        let id = h2.ask("GET", "/endless", &[], true);
        let mut got = 0;
        while got < 1_000_000 {
            let frame = h2.until(frame::DATA);
            got += frame.payload.len();
        }
        h2.frame(
            frame::RST_STREAM,
            0,
            id,
            &H2ErrorCode::CANCEL.0.to_be_bytes(),
        );
        assert_eq!(h2.get("/").text(), HELLO);
        let quiet = || {
            let before = server.cpu_ticks();
            thread::sleep(Duration::from_millis(300));
            (server.cpu_ticks() - before <= 1).then_some(())
        };
        wait_until(PATIENCE, "an idle server", quiet);
        // The server notices the end of a client during a silent call too.
        let closed = server.counter("connections_closed");
        h2.ask("GET", "/slow?lines=9&pause_ms=60000", &[], true);
        h2.until(frame::DATA);
        drop(h2);
        wait_until(PATIENCE, "the end of the call", || {
            (server.counter("connections_closed") > closed).then_some(())
        });
    }
}

/// Small responses come first, urgent responses next, and responses without a priority take turns.
#[test]
fn responses_are_sent_by_priority() {
    let server = server("");
    Wire::plain(&server).get("/middle.bin", "");
    // The initial window of 0 holds all streams until every request has been sent.
    let mut h2 = H2::open_with(&server, Over::Plain, b"\0\x04\0\0\0\0");
    h2.grants = false;
    let with = |priority| [("priority", priority)];
    let lazy = h2.ask("GET", "/middle.bin", &with("u=7"), true);
    let first = h2.ask("GET", "/middle.bin", &with("u=3"), true);
    let second = h2.ask("GET", "/middle.bin", &with("u=3"), true);
    let urgent = h2.ask("GET", "/middle.bin", &with("u=6"), true);
    let small = h2.ask("GET", "/page.txt", &with("u=3"), true);
    let update = [&urgent.to_be_bytes()[..], b"u=0"].concat();
    h2.frame(frame::PRIORITY_UPDATE, 0, 0, &update);
    for _ in 0..5 {
        h2.until(frame::HEADERS);
    }
    // The streams' windows are opened first and the connection's window last; the connection has its
    // initial 65,535 bytes.
    let mut grants = Vec::new();
    for id in [lazy, first, second, urgent, small] {
        frame::window_update(&mut grants, id, 1 << 20);
    }
    frame::window_update(&mut grants, 0, 1 << 20);
    h2.wire.send(grants);
    let mut order = Vec::new();
    while order.len() < 5 {
        let frame = h2.until(frame::DATA);
        if frame.ends() {
            order.push(frame.stream);
        }
    }
    assert_eq!(order, [urgent, small, first, second, lazy]);
    // Two incremental responses take turns.
    let turns = [
        h2.ask("GET", "/middle.bin", &with("i"), true),
        h2.ask("GET", "/middle.bin", &[], true),
    ];
    for _ in 0..2 {
        h2.until(frame::HEADERS);
    }
    let mut grants = Vec::new();
    for id in turns {
        frame::window_update(&mut grants, id, 1 << 20);
    }
    h2.wire.send(grants);
    let mut seen = Vec::new();
    while seen.iter().filter(|(_, ends)| *ends).count() < 2 {
        let frame = h2.until(frame::DATA);
        seen.push((frame.stream, frame.ends()));
    }
    let changes = seen.windows(2).filter(|two| two[0].0 != two[1].0).count();
    assert!(changes >= 4, "{seen:?}");
}

#[test]
fn a_reload_closes_nothing() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Tls);
    assert_eq!(h2.get("/").text(), HELLO);
    let slow = h2.ask("GET", "/slow?lines=4&pause_ms=200", &[], true);
    h2.until(frame::HEADERS);
    let config = server_table("h2c = true") + "[[site]]\nnames = [\"*\"]\nroot = \"public/sub\"\n";
    server.reload(&config);
    // A new request is answered from the new World, and an earlier request from the old World.
    assert_eq!(h2.get("/a.txt").text(), "a\n");
    assert!(h2.response(slow).whole);
}

#[test]
fn a_drain_sends_goaway_twice_and_finishes_requests_under_way() {
    for over in BOTH {
        let mut server = server("");
        let mut h2 = H2::open(&server, over);
        let mut idle = H2::open(&server, over);
        assert_eq!(idle.get("/").text(), HELLO);
        let slow = h2.ask("GET", "/slow?lines=4&pause_ms=300", &[], true);
        h2.until(frame::HEADERS);
        server.signal("TERM");
        let first = h2.until(frame::GOAWAY);
        assert_eq!(first.payload[..4], [0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(first.code(), H2ErrorCode::NO_ERROR.0);
        // A stream opened before the client received GOAWAY is answered.
        let late = h2.ask("GET", "/", &[], true);
        let ping = h2.until(frame::PING);
        h2.frame(frame::PING, frame::ACK, 0, &ping.payload);
        let last = h2.until(frame::GOAWAY);
        assert_eq!(last.payload[..4], late.to_be_bytes());
        // A stream opened after GOAWAY is not answered.
        h2.ask("GET", "/", &[], true);
        assert!(h2.response(slow).whole);
        assert_eq!(
            h2.partial_response(late).map(|it| it.text()),
            Some(HELLO.to_owned())
        );
        while let Some(frame) = h2.next() {
            assert_ne!(frame.kind, frame::HEADERS);
        }
        // An idle connection is closed as well.
        assert_eq!(idle.goaway_code(), H2ErrorCode::NO_ERROR.0);
        assert_eq!(server.wait(PATIENCE), Some(0));
    }
}

#[test]
fn requests_for_another_site_on_the_same_connection() {
    let site = |name: &str, more: &str| {
        format!("[[site]]\nnames = [\"{name}\"]\nroot = \"public\"\n{more}\n")
    };
    let folder = Folder::new().with("public/index.html", HELLO);
    let leaf = crate::clients::Authority::new("Ants").server(&["c.test"]);
    let folder = folder
        .with("c.pem", &leaf.certificate)
        .with("c.key", &leaf.key);
    let config = server_table("")
        + &site("a.test", "")
        + &site("b.test", "")
        + &site("c.test", "certificate = \"c.pem\"\nkey = \"c.key\"");
    let server = Server::start_in(folder, &config);
    let mut h2 = H2::on(Wire::tls_as(&server, "a.test", &[b"h2"]));
    h2.wire.send(frame::PREFACE);
    h2.frame(frame::SETTINGS, 0, 0, b"");
    for (name, status) in [
        ("a.test", 200),
        ("b.test", 200),
        ("c.test", 421),
        ("d.test", 421),
        ("a.test", 200),
    ] {
        let id = h2.ask_all(
            &[
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/"),
                (":authority", name),
            ],
            true,
        );
        assert_eq!(h2.response(id).status, status, "{name}");
    }
}

#[test]
fn a_login_delays_only_its_own_stream() {
    let folder = Folder::new()
        .with("public/index.html", HELLO)
        // A hash of "open sesame" that is slow to check.
        .with(
            "users",
            "ant:$2b$10$nSB0DrjYQ0dAEUIB9xDSS.wmSTJjyCBdjYGIf8UTQO/rfPKNA3rZm\n",
        );
    let config = server_table("h2c = true")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/in\"\nusers = \"users\"\n";
    let server = Server::start_in(folder, &config);
    // The request loads the page into memory.
    assert_eq!(Wire::plain(&server).get("/", "").status, 200);
    let mut h2 = H2::open(&server, Over::Plain);
    let login = ("authorization", "Basic YW50Ondyb25n");
    let (wrong, none, page) = (1, 3, 5);
    // All requests arrive in one segment, so the last request is read before the hash is done.
    let mut asked = Vec::new();
    for (id, path, login) in [
        (wrong, "/in", Some(login)),
        (none, "/in", None),
        (page, "/", None),
    ] {
        let mut fields = vec![
            (":method", "GET"),
            (":scheme", "https"),
            (":path", path),
            (":authority", "localhost"),
        ];
        fields.extend(login);
        let block = H2::block(&fields);
        let flags = frame::END_HEADERS | frame::END_STREAM;
        frame::header(&mut asked, block.len(), frame::HEADERS, flags, id);
        asked.extend_from_slice(&block);
    }
    h2.wire.send(asked);
    // Neither response waits for the hash.
    assert_eq!(h2.response(page).status, 200);
    assert_eq!(h2.partial_response(none).map(|it| it.status), Some(401));
    assert!(h2.partial_response(wrong).is_none());
    assert_eq!(h2.response(wrong).status, 401);
    let challenge = h2
        .partial_response(none)
        .and_then(|it| it.field("www-authenticate"));
    assert!(challenge.is_some_and(|it| it.starts_with("Basic ")));
}

/// Memory of idle HTTP/2 connections.
#[test]
fn idle_connections_use_little_memory() {
    const COUNT: u64 = 300;
    let server = server("");
    for (over, kib_max) in [(Over::Plain, 6), (Over::Tls, 20)] {
        let asked = |nth: u64| {
            let mut h2 = H2::open(&server, over);
            let agent = format!("agent-{nth} {}", "x".repeat(200));
            for path in ["/", "/page.txt", "/nowhere"] {
                let id = h2.ask("GET", path, &[("user-agent", &agent)], true);
                h2.response(id);
            }
            h2
        };
        // The first connections warm up shared memory.
        let warm: Vec<_> = (0..20).map(asked).collect();
        let before = server.resident_kib();
        let held: Vec<_> = (0..COUNT).map(asked).collect();
        let each = server.resident_kib().saturating_sub(before) / COUNT;
        assert!(each <= kib_max, "{each} KiB each over {over:?}");
        drop((warm, held));
    }
}

#[test]
fn a_connection_without_requests_is_closed() {
    let server = server("limits = { idle_seconds = 1 }");
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        assert_eq!(h2.get("/").text(), HELLO);
        let started = Instant::now();
        // PING is no request.
        h2.frame(frame::PING, 0, 0, b"12345678");
        assert_eq!(h2.goaway_code(), H2ErrorCode::NO_ERROR.0);
        // The default timeout is 75 s.
        assert!(started.elapsed() < PATIENCE);
    }
}
