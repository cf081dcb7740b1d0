//! Half-closed tunnels through the proxy: after the end of one direction, no byte of the other direction is lost.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Wire};
use crate::support::{Server, server_table, site_table};

const PATIENCE: Duration = Duration::from_secs(60);
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
/// Bytes of the direction that goes on, more than all buffers between the client and the member hold.
const LONG: usize = 4 << 20;

/// Starts a member that opens tunnels. Returns the port, and the numbers of bytes that tunnels received up to the
/// end of the client's direction.
fn start_member() -> (u16, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || serve(stream, &sender));
        }
    });
    (port, receiver)
}

fn serve(mut stream: TcpStream, received: &Sender<usize>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let ends_first = head.starts_with(b"GET /ends-first");
    // Bytes behind the head arrive together with the head.
    stream
        .write_all(format!("{SWITCH}early").as_bytes())
        .expect("an open connection");
    if ends_first {
        stream.shutdown(Shutdown::Write).expect("an open socket");
    }
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    if !ends_first {
        let _ = stream.write_all(&vec![b'y'; LONG]);
    }
    let _ = received.send(bytes.len());
}

fn proxy(port: u16, limits: &str) -> Server {
    let route = format!("[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{port}\"\n");
    let table = server_table(&format!("h2c = true\nlimits = {{ {limits} }}"));
    Server::start(&(table + &site_table("http = \"serve\"\n") + &route))
}

/// Opens a tunnel over HTTP/1.1, and takes the first bytes of the member.
fn open(server: &Server, over: Over, path: &str) -> Wire {
    let mut wire = Wire::over(server, over);
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    assert_eq!(wire.get(path, fields).status, 101);
    assert_eq!(wire.take(5), b"early");
    wire
}

/// Opens a tunnel over HTTP/2, and returns the stream.
fn open_h2(h2: &mut H2, path: &str) -> u32 {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
    ];
    let id = h2.ask_all(&fields, false);
    while h2.partial_response(id).is_none_or(|it| it.body.len() < 5) {
        let frame = h2.next().expect("a frame");
        h2.record_frame(&frame);
    }
    id
}

fn received(members: &Receiver<usize>) -> usize {
    members
        .recv_timeout(PATIENCE)
        .expect("an end at the member")
}

#[test]
fn bytes_of_the_client_arrive_after_the_end_of_the_member() {
    let (port, members) = start_member();
    let server = proxy(port, "");
    for over in BOTH {
        let mut wire = open(&server, over, "/ends-first");
        assert_eq!(wire.rest(), b"", "the end of the member's direction");
        assert!(wire.send(vec![b'x'; LONG]));
        wire.finish();
        assert_eq!(received(&members), LONG, "{over:?}");

        let mut h2 = H2::open(&server, over);
        let id = open_h2(&mut h2, "/ends-first");
        while !h2.partial_response(id).is_some_and(|it| it.whole) {
            let frame = h2.next().expect("a frame");
            assert_ne!(frame.kind, frame::RST_STREAM, "{frame:?}");
            h2.record_frame(&frame);
        }
        h2.data(id, &[b'x'; 10_000], false);
        h2.data(id, &[b'x'; 10_000], true);
        assert_eq!(received(&members), 20_000, "{over:?} HTTP/2");
        h2.settle();
    }
}

#[test]
fn bytes_of_the_member_arrive_after_the_end_of_the_client() {
    let (port, members) = start_member();
    let server = proxy(port, "");
    for over in BOTH {
        let mut wire = open(&server, over, "/");
        wire.send("hello");
        wire.finish();
        assert_eq!(wire.rest().len(), LONG, "{over:?}");
        assert_eq!(received(&members), 5);

        let mut h2 = H2::open(&server, over);
        let id = open_h2(&mut h2, "/");
        h2.data(id, b"hello", true);
        let ended = h2.response(id);
        assert_eq!(
            (ended.whole, ended.body.len()),
            (true, 5 + LONG),
            "{over:?}"
        );
        assert_eq!(received(&members), 5);
    }
}

/// Checks that a half-closed tunnel ends after `idle_seconds` without bytes.
#[test]
fn a_silent_client_does_not_hold_a_half_closed_tunnel() {
    let (port, members) = start_member();
    let server = proxy(port, "idle_seconds = 1");
    for over in BOTH {
        let mut wire = open(&server, over, "/ends-first");
        assert_eq!(wire.rest(), b"");
        assert_eq!(received(&members), 0, "{over:?}");

        let mut h2 = H2::open(&server, over);
        open_h2(&mut h2, "/ends-first");
        assert_eq!(received(&members), 0, "{over:?} HTTP/2");
    }
}

#[cfg(feature = "http3")]
#[test]
fn each_side_ends_first_over_http_3() {
    let (port, members) = start_member();
    let server = proxy(port, "");
    let said = crate::h3::run_scenario(&server, &["half_closed"]);
    assert_eq!(said, "both directions were complete");
    let mut counts = [received(&members), received(&members)];
    counts.sort_unstable();
    assert_eq!(counts, [5, 20_000]);
}
