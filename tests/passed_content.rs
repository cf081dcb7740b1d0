//! Long content of members over plain connections, which goes from socket to socket without a copy.

use std::fs;
use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::support::member::{Answer, Member, ok};
use crate::support::wire::{BOTH, Over, Wire, wait_until};
use crate::support::{Folder, Server, lossy, server_table, site_table, tool};

/// Lengths of content around the bounds: the copied end, one packet, the pipe, the window of the member.
const LENGTHS: [usize; 9] = [
    4_095, 4_096, 4_097, 16_384, 65_535, 65_536, 69_633, 524_288, 3_000_001,
];

/// Returns content of `length` bytes in which neighbouring blocks differ.
fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at % 251 + at / 4_096) as u8)
        .collect()
}

/// Returns the configuration of a server with all requests proxied to the member.
fn config(member: &Member) -> String {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\n",
        member.url()
    );
    format!(
        "{}{}{route}",
        server_table(""),
        site_table("http = \"serve\"\n")
    )
}

/// Starts a member that answers `/N` with N bytes of content.
fn member_of_lengths() -> Member {
    Member::start(|request| {
        let length = request.line().split(['/', ' ']).nth(2);
        ok(content(length.and_then(|it| it.parse().ok()).unwrap_or(0)))
    })
}

#[test]
fn content_of_any_length_arrives_unchanged_on_one_connection() {
    let member = member_of_lengths();
    let server = Server::start(&config(&member));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for length in LENGTHS {
            let response = wire.get(&format!("/{length}"), "");
            assert!(response.whole, "{length} over {over:?}");
            assert!(response.body == content(length), "{length} over {over:?}");
        }
    }
    // Connections that have passed long content serve further requests.
    assert_eq!(member.connections(), 1);
    server.output.wait_for("the bytes of the response", |line| {
        line.contains("/3000001 ") && line.contains(" 3000001")
    });
}

#[test]
fn a_slow_client_gets_the_bytes_in_order() {
    let member = member_of_lengths();
    let server = Server::start(&config(&member));
    let mut wire = Wire::with_small_receive_buffer(&server, Over::Plain, &[]);
    wire.send("GET /1000000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut received = Vec::new();
    let mut part = [0; 7_001];
    loop {
        let read = wire.socket.read(&mut part).expect("bytes");
        if read == 0 {
            break;
        }
        received.extend_from_slice(&part[..read]);
    }
    let head = received.windows(4).position(|four| four == b"\r\n\r\n");
    let begin = head.expect("a head") + 4;
    assert!(
        received[begin..] == content(1_000_000),
        "{}",
        received.len()
    );
}

#[test]
fn clients_at_once_get_their_own_bytes() {
    let member = Member::start(|request| {
        let letter = request.line().as_bytes()[5];
        ok(vec![letter; 400_000])
    });
    let server = Arc::new(Server::start(&config(&member)));
    let clients: Vec<_> = (b'a'..=b'p')
        .map(|letter| {
            let server = Arc::clone(&server);
            std::thread::spawn(move || {
                for round in 0..5 {
                    // Each other client reads slowly at first.
                    let mut wire = match letter % 2 {
                        0 => Wire::plain(&server),
                        _ => Wire::with_small_receive_buffer(&server, Over::Plain, &[]),
                    };
                    let response = wire.get(&format!("/{}", letter as char), "");
                    assert!(response.whole && response.body.len() == 400_000);
                    let is_own = response.body.iter().all(|byte| *byte == letter);
                    assert!(is_own, "round {round}: bytes of another client");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("a client's bytes");
    }
}

#[test]
fn surplus_bytes_behind_long_content_are_dropped_with_their_connection() {
    let whole = content(300_000);
    let sent = whole.clone();
    let member = Member::start(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", sent.len());
        Answer::Keep([head.as_bytes(), &sent, b"HTTP/1.1 200 OK\r\n\r\n"].concat())
    });
    let server = Server::start(&config(&member));
    let mut wire = Wire::plain(&server);
    for _ in 0..3 {
        let response = wire.get("/", "");
        assert!(response.whole && response.body == whole);
    }
    assert_eq!(member.connections(), 3);
}

#[test]
fn long_content_that_breaks_off_is_not_complete() {
    let member = Member::start(|_| {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".to_vec();
        Answer::Close([head, content(200_000)].concat())
    });
    let server = Server::start(&config(&member));
    let response = Wire::plain(&server).get("/", "");
    assert!(!response.whole);
    assert!(response.body == content(200_000), "{}", response.body.len());
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R7"));
}

/// Returns the number of bytes that calls of `name` have moved, by the trace.
fn bytes_of(trace: &str, name: &str) -> usize {
    let calls = trace.lines().filter(|line| line.contains(name));
    let results = calls.filter_map(|line| line.rsplit_once("= ")?.1.trim().parse::<usize>().ok());
    results.sum()
}

#[test]
fn long_content_of_a_plain_connection_is_not_copied() {
    const LENGTH: usize = 4_000_000;
    let member = member_of_lengths();
    let folder = Folder::new().with("public/index.html", "");
    let trace = folder.path("trace");
    let mut strace = Command::new(tool("strace"));
    // -D: the server is the child of this process, and strace a grandchild that ends with the server.
    strace
        .args(["-D", "-f", "-qq", "-s", "0", "-e", "trace=splice", "-o"])
        .arg(&trace);
    strace.arg(crate::support::program());
    let server = Server::start_by(strace, folder, &config(&member));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let before = lossy(&fs::read(&trace).unwrap_or_default()).len();
        // A client that is slower than the member gets a part as a copy.
        wait_until(Duration::from_secs(60), "passed", || {
            let response = wire.get(&format!("/{LENGTH}"), "");
            assert!(response.body == content(LENGTH));
            let text = lossy(&fs::read(&trace).expect("a trace"));
            let moved = bytes_of(&text[before..], "splice(");
            match over {
                // Each byte is moved into the kernel's pipe and out of the pipe.
                Over::Plain => (moved > LENGTH).then_some(()),
                // The bytes of a client over TLS have to be encrypted.
                Over::Tls => (moved == 0).then_some(()),
            }
        });
    }
}
