//! Hostile and broken HTTP/2 clients: the server stops each within one second of processor time, with the
//! correct error code, and still serves further clients.

use std::time::{Duration, Instant};

use wire::h2::H2ErrorCode;
use wire::h2::frame::{self, PREFACE};

use crate::h2::server;
use crate::support::Server;
use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Wire};

/// One second of the server's processor time, in ticks. The load of the machine does not count.
const SOON: u64 = 100;

/// Floods the server with the bytes from `part` until the server ends the connection. Returns the error
/// code.
fn flood(
    server: &Server,
    over: Over,
    settings: &[u8],
    part: &mut dyn FnMut(&mut H2) -> Vec<u8>,
) -> u32 {
    let mut h2 = H2::open_with(server, over, settings);
    // The read timeout is shorter than the server's shortest deadlines of 10 s.
    h2.wire.patience(Duration::from_secs(8));
    let before = server.cpu_ticks();
    // The flood stays below the number of bytes that the server reads and discards after GOAWAY. A longer
    // flood would cause a TCP reset, and the client could lose the GOAWAY.
    let mut sent = 0;
    while sent < 700_000 {
        let bytes = part(&mut h2);
        sent += bytes.len();
        if !h2.wire.send(bytes) {
            break;
        }
    }
    let code = loop {
        match h2.next() {
            Some(frame) if frame.kind == frame::GOAWAY => break frame.code(),
            Some(_) => {}
            None => panic!("no GOAWAY"),
        }
    };
    let took = server.cpu_ticks() - before;
    assert!(took < SOON, "{took} ticks");
    // Another client is still served.
    assert_eq!(Wire::plain(server).get("/", "").status, 200);
    code
}

/// Returns the bytes of `count` frames.
fn frames(count: u32, frame: &dyn Fn(&mut Vec<u8>, u32)) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|nth| frame(&mut bytes, nth));
    bytes
}

fn push(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    frame::header(bytes, payload.len(), kind, flags, stream);
    bytes.extend_from_slice(payload);
}

fn get(path: &str) -> Vec<u8> {
    H2::block(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
    ])
}

const CALM: u32 = H2ErrorCode::ENHANCE_YOUR_CALM.0;

#[test]
fn rapid_reset() {
    let server = server("");
    for over in BOTH {
        for path in ["/", "/large.bin", "/endless", "/slow"] {
            let block = get(path);
            let mut next = 1;
            let code = flood(&server, over, b"", &mut |_| {
                let begin = next;
                next += 200;
                frames(100, &|bytes, nth| {
                    let id = begin + 2 * nth;
                    push(bytes, frame::HEADERS, 5, id, &block);
                    push(bytes, frame::RST_STREAM, 0, id, &[0, 0, 0, 8]);
                })
            });
            assert_eq!(code, CALM, "{path} {over:?}");
        }
    }
}

/// The client sends no RST_STREAM, and provokes the server's.
#[test]
fn provoked_resets() {
    let server = server("");
    type Provoke = fn(&mut Vec<u8>, u32);
    let provocations: [Provoke; 5] = [
        |bytes, id| push(bytes, frame::WINDOW_UPDATE, 0, id, &[0, 0, 0, 0]),
        |bytes, id| {
            push(
                bytes,
                frame::WINDOW_UPDATE,
                0,
                id,
                &[0x7f, 0xff, 0xff, 0xff],
            )
        },
        |bytes, id| push(bytes, frame::PRIORITY, 0, id, &[0, 0, 0]),
        |bytes, id| {
            let on = id.to_be_bytes();
            push(
                bytes,
                frame::PRIORITY,
                0,
                id,
                &[on[0], on[1], on[2], on[3], 0],
            );
        },
        |bytes, id| push(bytes, frame::HEADERS, 5, id, &[0x82]),
    ];
    let block = get("/endless");
    for provoke in provocations {
        let mut next = 1;
        let code = flood(&server, Over::Plain, b"", &mut |_| {
            let begin = next;
            next += 200;
            frames(100, &|bytes, nth| {
                let id = begin + 2 * nth;
                push(bytes, frame::HEADERS, 5, id, &block);
                provoke(bytes, id);
            })
        });
        assert_eq!(code, CALM);
    }
    // Malformed requests.
    let bad = H2::block(&[(":method", "GET")]);
    let mut next = 1;
    let code = flood(&server, Over::Plain, b"", &mut |_| {
        let begin = next;
        next += 200;
        frames(100, &|bytes, nth| {
            push(bytes, frame::HEADERS, 5, begin + 2 * nth, &bad)
        })
    });
    assert_eq!(code, CALM);
}

#[test]
fn continuation_flood() {
    let server = server("");
    for (part, count) in [
        (&b""[..], 1_000),
        (b"\0\x01a\x01b", 1_000),
        (&[0; 16_000], 10),
    ] {
        let mut begun = false;
        let code = flood(&server, Over::Tls, b"", &mut |_| {
            let bytes = frames(count, &|bytes, nth| match (begun, nth) {
                (false, 0) => push(bytes, frame::HEADERS, 1, 1, part),
                _ => push(bytes, frame::CONTINUATION, 0, 1, part),
            });
            begun = true;
            bytes
        });
        assert_eq!(code, CALM);
    }
}

/// A few bytes that decode to many: the decoded size is bounded.
#[test]
fn header_bombs() {
    let server = server("");
    let mut block = get("/");
    // One entry of 4,000 bytes enters the dynamic table and is then referenced 8,000 times.
    block.extend_from_slice(&[0x40, 1, b'a', 0x7f, 0xa1, 0x1e]);
    block.extend_from_slice(&[b'x'; 4_000]);
    block.extend_from_slice(&[0xbe; 8_000]);
    let mut h2 = H2::open(&server, Over::Plain);
    h2.frame(frame::HEADERS, 5, 1, &block);
    assert_eq!(h2.goaway_code(), CALM);
    // A header section slightly over the limit gets a response, and the connection goes on.
    let mut h2 = H2::open(&server, Over::Plain);
    let id = h2.ask(
        "GET",
        "/",
        &[("x", &"x".repeat(15_000)), ("y", &"y".repeat(2_000))],
        true,
    );
    assert_eq!(h2.response(id).status, 431);
    let many: Vec<_> = (0..101).map(|_| ("x", "y")).collect();
    let id = h2.ask("GET", "/", &many, true);
    assert_eq!(h2.response(id).status, 431);
    assert_eq!(h2.get("/").status, 200);
}

#[test]
fn floods_of_small_frames() {
    let server = server("");
    type Push = fn(&mut Vec<u8>, u32);
    let floods: [(&str, Push); 8] = [
        ("SETTINGS", |bytes, _| {
            push(bytes, frame::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1])
        }),
        ("SETTINGS ACK", |bytes, _| {
            push(bytes, frame::SETTINGS, 1, 0, &[])
        }),
        ("PING", |bytes, _| {
            push(bytes, frame::PING, 0, 0, b"12345678")
        }),
        ("PRIORITY", |bytes, nth| {
            push(bytes, frame::PRIORITY, 0, 2 * nth + 1, &[0; 5]);
        }),
        ("PRIORITY_UPDATE", |bytes, nth| {
            let id = (2 * nth + 1).to_be_bytes();
            push(
                bytes,
                frame::PRIORITY_UPDATE,
                0,
                0,
                &[&id[..], b"u=1"].concat(),
            );
        }),
        ("WINDOW_UPDATE", |bytes, _| {
            push(bytes, frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        }),
        ("unknown", |bytes, _| push(bytes, 0xee, 0, 0, &[])),
        ("GOAWAY", |bytes, _| {
            push(bytes, frame::GOAWAY, 0, 0, &[0; 8])
        }),
    ];
    for (what, push_one) in floods {
        let code = flood(&server, Over::Plain, b"", &mut |_| {
            frames(1_000, &|bytes, nth| push_one(bytes, nth))
        });
        assert_eq!(code, CALM, "{what}");
    }
    for (kind, payload) in [(frame::DATA, &b""[..]), (frame::DATA, b"x")] {
        let block = H2::block(&[
            (":method", "POST"),
            (":scheme", "https"),
            (":path", "/echo"),
            (":authority", "localhost"),
        ]);
        let mut begun = false;
        let code = flood(&server, Over::Tls, b"", &mut |_| {
            let mut bytes = Vec::new();
            if !begun {
                push(&mut bytes, frame::HEADERS, 4, 1, &block);
                begun = true;
            }
            bytes.extend(frames(1_000, &|bytes, _| push(bytes, kind, 0, 1, payload)));
            bytes
        });
        assert_eq!(code, CALM);
    }
    assert!(server.counter("h2_errors") >= 10);
}

/// Opens the windows of 100 streams by steps of `bytes`, `rounds` times; returns the code of a GOAWAY. The
/// initial window is 0, so the server sends no data before.
fn open_windows(
    server: &Server,
    over: Over,
    bytes: u32,
    rounds: u32,
    by_settings: bool,
) -> Option<u32> {
    let mut h2 = H2::open_with(server, over, b"\0\x04\0\0\0\0");
    h2.grants = false;
    h2.grant(0, 0x7000_0000);
    let streams: Vec<u32> = (0..100)
        .map(|_| h2.ask("GET", "/large.bin", &[], true))
        .collect();
    for round in 1..=rounds {
        let mut updates = Vec::new();
        if by_settings {
            let window = [&b"\0\x04"[..], &(round * bytes).to_be_bytes()].concat();
            push(&mut updates, frame::SETTINGS, 0, 0, &window);
        } else {
            for id in &streams {
                push(
                    &mut updates,
                    frame::WINDOW_UPDATE,
                    0,
                    *id,
                    &bytes.to_be_bytes(),
                );
            }
        }
        // The server's PING acknowledgement follows the data allowed by the windows.
        push(&mut updates, frame::PING, 0, 0, b"a round.");
        h2.wire.send(updates);
        loop {
            let frame = h2.next().expect("a frame");
            match frame.kind {
                frame::GOAWAY => return Some(frame.code()),
                frame::PING => break,
                _ => {}
            }
        }
    }
    None
}

/// A client that opens windows byte by byte makes the server send a frame for each byte, and is cut off. A
/// client that opens windows by small steps as it reads is served on.
#[test]
fn windows_opened_byte_by_byte() {
    let server = server("");
    for over in BOTH {
        for bytes in [1, 8] {
            assert_eq!(open_windows(&server, over, bytes, 100, false), Some(CALM));
        }
        assert_eq!(open_windows(&server, over, 1, 150, true), Some(CALM));
        assert_eq!(open_windows(&server, over, 256, 100, false), None);
    }
    assert_eq!(Wire::plain(&server).get("/", "").status, 200);
}

/// The server bounds the replies queued for a client that reads nothing.
#[test]
fn a_flood_with_unread_responses_is_bounded() {
    let server = server("limits = { write_stall_seconds = 1 }");
    let before = server.resident_kib();
    let mut held = Vec::new();
    for _ in 0..20 {
        let mut h2 = H2::open_with(&server, Over::Plain, b"\0\x04\x7f\xff\xff\xff");
        h2.grant(0, 0x7000_0000);
        for _ in 0..60 {
            h2.ask("GET", "/large.bin", &[], true);
        }
        held.push(h2);
    }
    crate::support::wire::wait_until(Duration::from_secs(20), "cut off", || {
        (server.counter("connections_closed") >= 20).then_some(())
    });
    let more = server.resident_kib().saturating_sub(before);
    assert!(more < 20 * 100, "{more} KiB");
}

#[test]
fn shut_windows_have_a_deadline() {
    let server = server("limits = { write_stall_seconds = 1 }");
    // A shut stream window: the server resets the stream alone, even if other frames arrive meanwhile.
    let mut h2 = H2::open_with(&server, Over::Tls, b"\0\x04\0\0\0\0");
    let shut = h2.ask("GET", "/middle.bin", &[], true);
    let started = Instant::now();
    loop {
        h2.frame(frame::PING, 0, 0, b"12345678");
        let frame = h2.next().expect("a frame");
        if frame.kind == frame::RST_STREAM {
            assert_eq!((frame.stream, frame.code()), (shut, H2ErrorCode::CANCEL.0));
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        // The default timeout is 30 s.
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    let id = h2.ask("GET", "/empty.txt", &[], true);
    assert_eq!(h2.response(id).status, 200);
    // A shut connection window: the server ends the connection.
    let mut h2 = H2::open_with(&server, Over::Tls, b"\0\x04\x00\x10\0\0");
    h2.grants = false;
    h2.ask("GET", "/large.bin", &[], true);
    h2.ask("GET", "/middle.bin", &[], true);
    assert_eq!(h2.goaway_code(), CALM);
}

#[test]
fn every_phase_has_a_deadline() {
    let server = server("limits = { head_seconds = 1, handshake_seconds = 1 }");
    let ends = |mut h2: H2, code: H2ErrorCode| {
        let started = Instant::now();
        // The client sends nothing, not even an acknowledgement.
        let last = std::iter::from_fn(|| h2.next()).last().expect("a frame");
        assert_eq!((last.kind, last.code()), (frame::GOAWAY, code.0));
        // The default timeout is 10 s.
        assert!(started.elapsed() < Duration::from_secs(9));
    };
    // Half a preface, and a preface without SETTINGS.
    for said in [&PREFACE[..20], &PREFACE[..]] {
        let mut h2 = H2::silent(&server, Over::Tls);
        h2.wire.send(said);
        ends(h2, H2ErrorCode::SETTINGS_TIMEOUT);
    }
    // Half a frame header, half a frame, and half a field block.
    for said in [
        &b"\0\0\x08\x06"[..],
        b"\0\0\x08\x06\0\0\0\0\0half",
        b"\0\0\x01\x01\x01\0\0\0\x01\x82",
    ] {
        let mut h2 = H2::open(&server, Over::Plain);
        h2.wire.send(said);
        ends(h2, H2ErrorCode::ENHANCE_YOUR_CALM);
    }
}

#[test]
fn streams_over_the_limit_of_a_connection_are_refused() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Plain);
    let held: Vec<_> = (0..100)
        .map(|_| h2.ask("POST", "/echo", &[], false))
        .collect();
    let more = h2.ask("GET", "/", &[], true);
    let reset = h2.until(frame::RST_STREAM);
    assert_eq!(
        (reset.stream, reset.code()),
        (more, H2ErrorCode::REFUSED_STREAM.0)
    );
    h2.data(held[0], b"", true);
    assert_eq!(h2.response(held[0]).status, 200);
    assert_eq!(h2.get("/").status, 200);
}

/// The bound covers all connections of a worker. A stored page does not count.
#[test]
fn streams_over_the_limit_of_a_worker_are_refused() {
    let server = server("limits = { streams = 3 }");
    let mut first = H2::open(&server, Over::Plain);
    // The requests load both pages into memory.
    assert_eq!(first.get("/").status, 200);
    assert_eq!(first.get("/absent").status, 404);
    let held: Vec<_> = (0..3)
        .map(|_| first.ask("POST", "/echo", &[], false))
        .collect();
    first.settle();
    let mut second = H2::open(&server, Over::Plain);
    assert_eq!(second.get("/").status, 200);
    assert_eq!(second.get("/absent").status, 404);
    let more = second.ask("POST", "/echo", &[], false);
    let reset = second.until(frame::RST_STREAM);
    assert_eq!(
        (reset.stream, reset.code()),
        (more, H2ErrorCode::REFUSED_STREAM.0)
    );
    first.data(held[0], b"", true);
    assert_eq!(first.response(held[0]).status, 200);
    let again = second.ask("POST", "/echo", &[], true);
    assert_eq!(second.response(again).status, 200);
}

/// The client sends more body than the granted window.
#[test]
fn windows_bound_received_bodies() {
    let server = server("");
    let mut h2 = H2::open(&server, Over::Plain);
    h2.grants = false;
    let id = h2.ask("POST", "/echo", &[], false);
    for _ in 0..40 {
        h2.data(id, &[b'x'; 16_384], false);
    }
    loop {
        let frame = h2.next().expect("a frame");
        if matches!(frame.kind, frame::RST_STREAM | frame::GOAWAY) {
            assert_eq!(frame.code(), H2ErrorCode::FLOW_CONTROL_ERROR.0);
            break;
        }
    }
}
