//! Live calls: simultaneous bodies in both directions, back-pressure in each direction, and clients that
//! leave.

use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::support::wire::{BOTH, Over, Wire, wait_until};
use crate::support::{Server, lossy, server_table, site_table};

const NEXT: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HELLO: &str = "<p>hello</p>\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> Server {
    server_with("")
}

fn server_with(more: &str) -> Server {
    let config = server_table(more)
        + "[log]\naccess = \"off\"\n"
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n"
        + "[[site.route]]\npath = \"/endless\"\ntest = \"endless\"\n";
    Server::start(&config)
}

fn post(framing: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n")
}

/// Returns `count` MiB without repetition.
fn megabytes(count: usize) -> Vec<u8> {
    let numbers = 0..(count as u64) << 17;
    numbers
        .flat_map(|number| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
        .collect()
}

fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + body.len() / size * 12);
    for chunk in body.chunks(size) {
        write!(out, "{:x}\r\n", chunk.len()).expect("into a Vec");
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

#[test]
fn curl_gets_ten_megabytes_back() {
    let server = server();
    let body = megabytes(10);
    server.folder.write("body", &body);
    let file = format!("@{}", server.folder.path("body").display());
    for url in [server.http("/echo"), server.https("/echo")] {
        for fields in [
            &["Expect:"][..],
            &["Transfer-Encoding: chunked"],
            &["Expect: 100-continue"],
        ] {
            let mut arguments = vec!["--http1.1", "--data-binary", &file, &url];
            for field in fields {
                arguments.extend(["-H", field]);
            }
            let ran = server.curl(&arguments);
            assert!(ran.success, "{url} {fields:?}: {}", ran.errors());
            assert!(
                ran.stdout == body,
                "{url} {fields:?}: {} bytes",
                ran.stdout.len()
            );
        }
    }
    assert!(server.counter("bytes_received") > 6 * body.len() as u64);
}

#[test]
fn ten_megabytes_in_both_directions_at_once_and_the_connection_stays_open() {
    let server = server();
    let body = megabytes(10);
    for over in BOTH {
        for in_chunks in [false, true] {
            let what = format!("{over:?}, chunked: {in_chunks}");
            let mut wire = Wire::over(&server, over);
            let request = if in_chunks {
                [
                    post("Transfer-Encoding: chunked\r\n").into_bytes(),
                    chunked(&body, 10_007),
                ]
                .concat()
            } else {
                [
                    post("Content-Length: 10485760\r\n").into_bytes(),
                    body.clone(),
                ]
                .concat()
            };
            // The test's TLS client has one state for both directions, so writing must not wait for
            // reading: the client first sends the bytes that fit into the buffers, and then alternates.
            let response = match over {
                Over::Plain => {
                    let mut socket = wire.socket.try_clone().expect("a second descriptor");
                    let writer = thread::spawn(move || {
                        socket.write_all(&request).expect("a body");
                        socket.write_all(NEXT.as_bytes()).expect("a request");
                    });
                    let response = wire.response("POST");
                    writer.join().expect("a writer");
                    response
                }
                Over::Tls => {
                    // The body fits into the buffers on the path.
                    let small = &body[..200_000];
                    let head = if in_chunks {
                        "Transfer-Encoding: chunked\r\n"
                    } else {
                        "Content-Length: 200000\r\n"
                    };
                    wire.send(post(head));
                    wire.send(if in_chunks {
                        chunked(small, 10_007)
                    } else {
                        small.to_vec()
                    });
                    wire.send(NEXT);
                    wire.response("POST")
                }
            };
            assert_eq!(response.status, 200, "{what}");
            assert!(response.whole, "{what}");
            let expected = if over == Over::Plain {
                &body[..]
            } else {
                &body[..200_000]
            };
            assert!(
                response.body == expected,
                "{what}: {} bytes",
                response.body.len()
            );
            assert_eq!(
                response.field("content-length").is_some(),
                !in_chunks,
                "{what}"
            );
            // The server has read the whole body, so the next bytes are a request.
            assert_eq!(wire.response("GET").text(), HELLO, "{what}");
        }
    }
}

#[test]
fn calls_and_pages_follow_each_other_on_one_connection() {
    let server = server();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let echo = post("Content-Length: 5\r\n") + "hello";
        let chunks = post("Transfer-Encoding: chunked\r\n") + "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
        let slow = "GET /slow?lines=3&pause_ms=10 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let transcript = [NEXT, &echo, NEXT, &chunks, slow, &echo, NEXT].concat();
        let expected = [
            HELLO,
            "hello",
            HELLO,
            "hello",
            "line 0\nline 1\nline 2\n",
            "hello",
            HELLO,
        ];
        for dripped in [false, over == Over::Plain] {
            if dripped {
                wire.drip(&transcript);
            } else {
                wire.send(&transcript);
            }
            for text in expected {
                let response = wire.response("POST");
                assert!(response.whole, "{response:?}");
                assert_eq!(response.text(), text, "{over:?} {dripped}: {response:?}");
                assert!(!response.closes(), "{over:?} {dripped}: {response:?}");
            }
        }
    }
}

#[test]
fn a_slow_call_arrives_line_by_line() {
    let server = server();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send("GET /slow?lines=3&pause_ms=200 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let response = wire.response("GET");
        assert_eq!(response.text(), "line 0\nline 1\nline 2\n");
        assert_eq!(response.field("transfer-encoding"), Some("chunked"));
        assert_eq!(wire.get("/", "").text(), HELLO);
    }
}

#[test]
fn http_1_0_clients_get_a_body_ended_by_the_close() {
    let server = server();
    for field in ["", "Connection: keep-alive\r\n"] {
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "GET /slow?lines=2&pause_ms=10 HTTP/1.0\r\n{field}\r\n{NEXT}"
        ));
        let response = wire.response("GET");
        assert_eq!(response.text(), "line 0\nline 1\n");
        assert_eq!(response.field("transfer-encoding"), None);
        assert!(response.closes(), "{response:?}");
    }
    // A response with a known length keeps the connection open.
    let mut wire = Wire::plain(&server);
    wire.send("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello");
    let response = wire.response("POST");
    assert_eq!(response.text(), "hello");
    assert_eq!(response.field("connection"), Some("keep-alive"));
    assert_eq!(wire.get("/", "").text(), HELLO);
}

#[test]
fn head_has_no_body() {
    let server = server();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for target in ["/slow?pause_ms=1", "/endless", "/echo"] {
            let response = wire.ask("HEAD", target, "");
            assert_eq!(response.status, 200, "{response:?}");
            assert_eq!(wire.get("/", "").text(), HELLO, "{target}");
        }
    }
}

#[test]
fn a_client_gets_100_continue() {
    let server = server();
    for over in BOTH {
        for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
            let mut wire = Wire::over(&server, over);
            wire.send(post(&format!("{framing}Expect: 100-continue\r\n")));
            let interim = wire.response("POST");
            assert_eq!(
                (interim.status, interim.fields.len()),
                (100, 0),
                "{interim:?}"
            );
            wire.send(if framing.starts_with('C') {
                "hello"
            } else {
                "5\r\nhello\r\n0\r\n\r\n"
            });
            let response = wire.response("POST");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "hello"),
                "{response:?}"
            );
            assert_eq!(wire.get("/", "").text(), HELLO);
        }
        // A client that sends its body without waiting gets no 100 Continue.
        let mut wire = Wire::over(&server, over);
        wire.send(post("Content-Length: 5\r\nExpect: 100-continue\r\n") + "hello");
        let response = wire.response("POST");
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "hello"),
            "{response:?}"
        );
    }
}

/// A late body is read to its end, and the connection goes on.
#[test]
fn a_late_body_does_not_end_the_connection() {
    let server = server();
    for (framing, parts) in [
        ("Content-Length: 10\r\n", &["", "hello", "hello"][..]),
        ("Content-Length: 10\r\n", &["hello", "hello"]),
        (
            "Transfer-Encoding: chunked\r\n",
            &["5\r\nhello\r\n", "5\r\nhello\r\n0\r\n", "\r\n"],
        ),
    ] {
        let mut wire = Wire::plain(&server);
        wire.send(post(framing) + parts[0]);
        for part in &parts[1..] {
            // The exchange on another connection separates the parts of the body in time.
            assert_eq!(Wire::plain(&server).get("/", "").status, 200);
            wire.send(part);
        }
        let response = wire.response("POST");
        assert_eq!(response.text(), "hellohello");
        assert!(!response.closes(), "{response:?}");
        assert_eq!(wire.get("/", "").text(), HELLO);
    }
}

/// The response ends before the request's body, and later body bytes are no request.
#[test]
fn an_unread_body_ends_the_connection() {
    let server = server();
    for target in ["/slow?lines=2&pause_ms=1", "/slow?lines=0"] {
        let mut wire = Wire::plain(&server);
        let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n");
        wire.send(head.clone() + "Content-Length: 1000\r\n\r\nhello");
        let response = wire.response("POST");
        assert!(response.whole, "{response:?}");
        wire.send(NEXT.repeat(10));
        wire.ends();
        // For a response without content the server announces the end of the connection.
        let mut wire = Wire::plain(&server);
        wire.send(head.replace("POST", "HEAD") + "Content-Length: 1000\r\n\r\nhello");
        assert!(wire.response("HEAD").closes());
        wire.ends();
    }
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let server = server_with("limits = { body_bytes = 1000 }");
    for over in BOTH {
        // A declared length over the limit is refused at once, and later bytes are no request.
        for expect in ["", "Expect: 100-continue\r\n"] {
            let mut wire = Wire::over(&server, over);
            wire.send(post(&format!("Content-Length: 1001\r\n{expect}")));
            let response = wire.response("POST");
            assert_eq!(response.status, 413, "{response:?}");
            assert!(response.closes(), "{response:?}");
            wire.send(NEXT.repeat(30));
            wire.ends();
        }
        // A body without a declared length is read up to the limit, and the handler never sees a regular
        // end.
        let mut wire = Wire::over(&server, over);
        wire.send(post("Transfer-Encoding: chunked\r\n"));
        wire.send(chunked(&[b'x'; 1001], 100));
        let response = wire.response("POST");
        assert!(response.status == 413 || !response.whole, "{response:?}");
        wire.ends();
        let mut wire = Wire::over(&server, over);
        wire.send(post("Content-Length: 1000\r\n") + &"x".repeat(1000));
        assert_eq!(wire.response("POST").body, [b'x'; 1000]);
    }
}

#[test]
fn a_broken_body_breaks_the_response() {
    let server = server();
    for over in BOTH {
        for broken in [
            "5\r\nhello\r\nxyz\r\n",
            "5\r\nhelloXX",
            "5;a\nb\r\n",
            "-1\r\n",
        ] {
            let mut wire = Wire::over(&server, over);
            wire.send(post("Transfer-Encoding: chunked\r\n") + broken + NEXT);
            let response = wire.response("POST");
            let told = response.status == 400 && response.closes();
            assert!(told || !response.whole, "{broken:?}: {response:?}");
            wire.ends();
        }
    }
}

#[test]
fn half_a_body_is_never_taken_for_a_whole_body() {
    let server = server();
    for framing in [
        "Content-Length: 10\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\n{framing}"
        ));
        wire.finish();
        if let Some(response) = wire.next_response("POST") {
            assert!(!response.whole, "{response:?}");
        }
        wire.ends();
    }
    wait_until(PATIENCE, "the end of the call", || {
        (server.counter("connections_closed") == 2).then_some(())
    });
}

/// A call without a client ends.
#[test]
fn an_endless_call_ends_with_its_client() {
    let server = server();
    for over in BOTH {
        let closed = server.counter("connections_closed");
        let mut wire = Wire::over(&server, over);
        wire.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(wire.take(1_000_000).len(), 1_000_000);
        drop(wire);
        wait_until(PATIENCE, "the end of the call", || {
            (server.counter("connections_closed") > closed).then_some(())
        });
    }
    let quiet = || {
        let before = server.cpu_ticks();
        thread::sleep(Duration::from_millis(300));
        (server.cpu_ticks() - before <= 1).then_some(())
    };
    wait_until(PATIENCE, "an idle server", quiet);
    assert_eq!(server.body("/"), HELLO.as_bytes());
}

/// The server notices the end of a client between two lines of a slow call at once, not at the next line.
#[test]
fn a_client_that_leaves_a_silent_call_is_noticed() {
    let server = server();
    for over in BOTH {
        let closed = server.counter("connections_closed");
        let mut wire = Wire::over(&server, over);
        wire.send("GET /slow?lines=10&pause_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let first = lossy(&wire.take(12));
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");
        drop(wire);
        wait_until(PATIENCE, "the end of the call", || {
            (server.counter("connections_closed") > closed).then_some(())
        });
    }
}

/// A handler writes only as fast as its client reads: 40 clients that do not read cost one pipe and one
/// buffer each.
#[test]
fn a_client_that_does_not_read_stops_the_handler() {
    let server = server();
    for over in BOTH {
        let before = server.resident_kib();
        let mut wires: Vec<Wire> = (0..40).map(|_| Wire::over(&server, over)).collect();
        for wire in &mut wires {
            wire.send("GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(lossy(&wire.take(12)).starts_with("HTTP/1.1 200"));
        }
        // The server is idle once it uses no more processor time.
        wait_until(PATIENCE, "an idle server", || {
            let before = server.cpu_ticks();
            thread::sleep(Duration::from_millis(300));
            (server.cpu_ticks() - before <= 1).then_some(())
        });
        let each = server.resident_kib().saturating_sub(before) / 40;
        assert!(
            each < 400,
            "{each} KiB for each reader that doesn't read, over {over:?}"
        );
        drop(wires);
        wait_until(PATIENCE, "the end of the call", || {
            (server.counter("connections_closed") == server.counter("connections_opened"))
                .then_some(())
        });
    }
}

/// An upload with an unread echo stops, and occupies only its pipes.
#[test]
fn an_upload_waits_for_its_echo() {
    let server = server();
    let mut wire = Wire::plain(&server);
    let before = server.resident_kib();
    wire.send(post("Content-Length: 100000000\r\n"));
    wire.socket
        .set_write_timeout(Some(Duration::from_secs(2)))
        .expect("a write time-out");
    let block = vec![b'x'; 1 << 20];
    let sent = (0..95)
        .take_while(|_| wire.socket.write_all(&block).is_ok())
        .count();
    assert!(sent < 95, "all was taken");
    // A delayed worker may go on for a moment after the client's timeout.
    wait_until(PATIENCE, "an idle server", || {
        let ticks = server.cpu_ticks();
        thread::sleep(Duration::from_millis(300));
        (server.cpu_ticks() - ticks <= 1).then_some(())
    });
    let more = server.resident_kib().saturating_sub(before);
    assert!(more < 4_000, "{more} KiB");
}
