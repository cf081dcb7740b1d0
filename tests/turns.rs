//! Fairness between connections of one worker: a connection with many requests yields to the other
//! connections. The tests compare the order of the lines in a single worker's access log. A closed
//! connection is not served any more.

use std::thread;
use std::time::Duration;

use data_plane::limits::READ_BUFFER_BYTES;
use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table};

/// Requests of a flood: many times the number that a connection gets in one turn.
const FLOOD: usize = 2_000;
/// Target of the other client.
const OTHER: &str = "/other.txt?late";
const PATIENCE: Duration = Duration::from_secs(120);

fn server() -> Server {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/flood.txt", "f\n")
        .with("public/other.txt", "o\n");
    let config = server_table("h2c = true") + &site_table("http = \"serve\"");
    Server::start_in(folder, &config)
}

/// Asserts that the other request is answered within the first half of the flood.
fn assert_other_is_served_early(server: &Server, what: &str) {
    let answered = server
        .output
        .wait_until(PATIENCE, "a line for each answer", |lines| {
            let flood = lines.iter().filter(|line| line.contains("/flood.txt"));
            let is_whole = flood.count() == FLOOD && lines.iter().any(|line| line.contains(OTHER));
            is_whole.then(|| lines.to_vec())
        });
    let before = answered
        .iter()
        .take_while(|line| !line.contains(OTHER))
        .filter(|line| line.contains("/flood.txt"))
        .count();
    assert!(before < FLOOD / 2, "{what}: {before} answers came before");
}

#[test]
fn a_pipelined_flood_takes_turns_with_other_connections() {
    for over in BOTH {
        let server = server();
        let mut flood = Wire::over(&server, over);
        let mut other = Wire::over(&server, over);
        for wire in [&mut flood, &mut other] {
            wire.patience(PATIENCE);
            // The worker has registered the connection, and the files are in memory.
            assert_eq!(wire.get("/other.txt", "").status, 200);
            assert_eq!(wire.get("/flood.txt", "").status, 200);
        }
        // The connection has sent two requests already.
        let asked = "HEAD /flood.txt HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(FLOOD - 2);
        // The server finds the bytes of both clients at once, the flood first.
        server.while_stopped(|| {
            assert!(flood.send(asked));
            assert!(other.send(format!("GET {OTHER} HTTP/1.1\r\nHost: localhost\r\n\r\n")));
        });
        // The client reads, so that only the worker's scheduling delays the responses.
        let reader = thread::spawn(move || {
            (2..FLOOD)
                .map(|_| flood.response("HEAD").status)
                .all(|status| status == 200)
        });
        assert_eq!(other.response("GET").status, 200);
        assert!(reader.join().expect("a reader"));
        assert_other_is_served_early(&server, &format!("HTTP/1.1, {over:?}"));
    }
}

#[test]
fn a_flood_of_streams_takes_turns_with_other_connections() {
    for over in BOTH {
        let server = server();
        let mut flood = H2::open(&server, over);
        let mut other = H2::open(&server, over);
        for h2 in [&mut flood, &mut other] {
            h2.wire.patience(PATIENCE);
            assert_eq!(h2.get("/other.txt").status, 200);
            assert_eq!(h2.get("/flood.txt").status, 200);
        }
        let head = [
            (":method", "HEAD"),
            (":scheme", "https"),
            (":path", "/flood.txt"),
            (":authority", "localhost"),
        ];
        let block = H2::block(&head);
        let mut asked = Vec::new();
        // Each connection has sent two requests already.
        for nth in 2..FLOOD as u32 {
            let id = 2 * nth + 1;
            let flags = frame::END_HEADERS | frame::END_STREAM;
            frame::header(&mut asked, block.len(), frame::HEADERS, flags, id);
            asked.extend_from_slice(&block);
        }
        let mut id = 0;
        server.while_stopped(|| {
            assert!(flood.wire.send(asked));
            id = other.ask("GET", OTHER, &[], true);
        });
        let reader = thread::spawn(move || {
            let last = 2 * (FLOOD as u32 - 1) + 1;
            while flood.next().is_some_and(|frame| frame.stream != last) {}
        });
        assert_eq!(other.response(id).status, 200);
        reader.join().expect("a reader");
        assert_other_is_served_early(&server, &format!("HTTP/2, {over:?}"));
    }
}

/// A client sends requests and closes its connection without reading a response. The server would have to
/// encrypt and keep each response, because the socket accepts none after the first.
#[test]
fn a_closed_connection_gets_no_responses() {
    let server = server();
    let mut flood = Wire::tls(&server);
    // The client has read the session tickets by now. Unread tickets would turn the close into a reset.
    for _ in 0..3 {
        assert_eq!(flood.get("/flood.txt", "").status, 200);
    }
    let before = server.counter("requests");
    let request = "GET /flood.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let asked = request.repeat(FLOOD);
    server.while_stopped(|| {
        assert!(flood.send(asked));
        drop(flood);
    });
    wait_until(PATIENCE, "closed", || {
        (server.counter("connections_closed") == 1).then_some(())
    });
    // Far fewer requests than one read returns.
    let answered = server.counter("requests") - before;
    let read = (READ_BUFFER_BYTES / request.len()) as u64;
    assert!(answered < read / 2, "{answered} requests");
}
