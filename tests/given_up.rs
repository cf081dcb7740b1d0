//! Eviction of connections at the connection limit: idle connections of the client with the most
//! connections are closed, and every other client is served. The clients have different loopback addresses.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use wire::h2::H2ErrorCode;

use crate::h3::{Holder, ask_once};
use crate::support::h2::H2;
use crate::support::wire::{Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table};

/// Deadline of every wait: at least ten times the longest deadline of the tests' servers.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connection limit of the servers.
const ALL: u64 = 8;
const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// A request that stays unfinished for the whole test.
const UNENDING: &str = "GET /slow?lines=1000&pause_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HTTP: &[&[u8]] = &[b"http/1.1"];

/// Addresses of the client with too many connections, of the last client, and of a client with few
/// connections.
const LARGE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const NEW: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const SMALL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
/// Address of a further client.
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);

fn config(workers: usize, limits: &str) -> String {
    // The server's deadlines are longer than the tests.
    let limits = format!(
        "limits = {{ {limits}, idle_seconds = 600, head_seconds = 600, handshake_seconds = 600 }}"
    );
    server_table(&limits).replace("workers = 1", &format!("workers = {workers}"))
        + "[log]\naccess = \"off\"\n"
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n"
}

fn server(workers: usize) -> Server {
    Server::start(&config(workers, &format!("connections = {ALL}")))
}

/// Connects from an address and writes the bytes.
fn connect_and_send(port: u16, from: Ipv4Addr, bytes: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let own = SocketAddr::from((from, 0)).into();
    socket.bind(&own).expect("an address");
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into();
    socket.connect(&to).expect("a connection");
    let mut stream = TcpStream::from(socket);
    stream.write_all(bytes).expect("written");
    stream
}

fn plain(server: &Server, from: Ipv4Addr) -> Wire {
    Wire::of(server, IpAddr::V4(from))
}

/// Waits until the server has accepted `count` connections in all.
fn wait_until_opened(server: &Server, count: u64) {
    wait_until(PATIENCE, "the connections", || {
        (server.counter("connections_opened") >= count).then_some(())
    });
}

/// A function that opens an idle connection.
type Hold = fn(&Server) -> Box<dyn Send>;

const IDLE_CONNECTIONS: [(&str, Hold); 7] = [
    ("silent", |server| {
        Box::new(connect_and_send(server.http_port, LARGE, b""))
    }),
    ("half a head", |server| {
        Box::new(connect_and_send(
            server.http_port,
            LARGE,
            &GET.as_bytes()[..20],
        ))
    }),
    ("between requests", |server| {
        let mut wire = plain(server, LARGE);
        assert_eq!(wire.get("/", "").status, 200);
        Box::new(wire)
    }),
    ("silent before TLS", |server| {
        Box::new(connect_and_send(server.https_port, LARGE, b""))
    }),
    ("half a handshake", |server| {
        let hello = b"\x16\x03\x01\x02\x00\x01\x00";
        Box::new(connect_and_send(server.https_port, LARGE, hello))
    }),
    ("between requests over TLS", |server| {
        let mut wire = Wire::tls_from(server, LARGE, "localhost", HTTP);
        assert_eq!(wire.get("/", "").status, 200);
        Box::new(wire)
    }),
    ("HTTP/2 without streams", |server| {
        let mut h2 = H2::open_from(server, LARGE);
        assert_eq!(h2.get("/").status, 200);
        Box::new(h2)
    }),
];

/// Asserts that the last client is served over every version of HTTP, each on a persistent connection, and
/// that the only connection of another client survives, although it is idle for the longest time.
fn assert_last_client_is_served(server: &Server, what: &str, mut hold: impl FnMut()) {
    let mut small = plain(server, SMALL);
    assert_eq!(small.get("/", "").status, 200);
    for _ in 1..ALL {
        hold();
    }
    wait_until_opened(server, ALL);
    assert_eq!(server.counter("connections_given_up"), 0, "{what}");
    let mut first = plain(server, NEW);
    assert_eq!(first.get("/", "").status, 200, "{what}");
    let mut second = Wire::tls_from(server, NEW, "localhost", HTTP);
    assert_eq!(second.get("/", "").status, 200, "{what}");
    let mut third = H2::open_from(server, NEW);
    assert_eq!(third.get("/").status, 200, "{what}");
    assert_eq!(ask_once(server), "200", "{what}");
    // The last client's four connections each take a place from the largest holder. While a connection is
    // ending, the server may evict another one.
    assert!(server.counter("connections_given_up") >= 4, "{what}");
    assert_eq!(first.get("/", "").status, 200, "{what}");
    assert_eq!(second.get("/", "").status, 200, "{what}");
    assert_eq!(third.get("/").status, 200, "{what}");
    assert_eq!(small.get("/", "").status, 200, "{what}");
}

#[test]
fn idle_connections_of_the_largest_holder_are_evicted() {
    for (what, hold) in IDLE_CONNECTIONS {
        let server = server(1);
        let mut held = Vec::new();
        assert_last_client_is_served(&server, what, || held.push(hold(&server)));
    }
}

/// No connection is idle, and each client has as few as the other clients.
#[test]
fn the_slowest_request_of_many_clients_ends_for_a_newcomer() {
    for workers in [1, 2] {
        let server = server(workers);
        let begin = |last: u64| {
            let from = Ipv4Addr::new(127, 0, 1, last as u8);
            let mut wire = plain(&server, from);
            wire.patience(PATIENCE);
            wire.send(UNENDING);
            wire.until(b"\r\n\r\n");
            wire
        };
        let _held: Vec<Wire> = (0..ALL).map(begin).collect();
        let mut new = plain(&server, NEW);
        new.patience(PATIENCE);
        assert_eq!(new.get("/", "").status, 200, "{workers} workers");
        // While one request ends, the server may end another one.
        let given_up = server.counter("connections_given_up");
        assert!(
            (1..ALL).contains(&given_up),
            "{workers} workers: {given_up}"
        );
    }
}

/// The accepting worker and the worker with all connections differ.
#[test]
fn idle_connections_are_evicted_for_another_worker() {
    for (what, hold) in IDLE_CONNECTIONS {
        let server = server(2);
        let mut held = Vec::new();
        assert_last_client_is_served(&server, what, || held.push(hold(&server)));
    }
}

#[test]
fn idle_connections_of_http_3_are_evicted() {
    for workers in [1, 2] {
        let server = server(workers);
        // The holder's address is 127.0.0.1.
        let mut holder = Holder::begin(&server, ALL);
        wait_until_opened(&server, ALL);
        let mut wire = plain(&server, NEW);
        assert_eq!(wire.get("/", "").status, 200);
        let mut h2 = H2::open_from(&server, NEW);
        assert_eq!(h2.get("/").status, 200);
        let given_up = server.counter("connections_given_up");
        assert!(given_up >= 2, "{given_up}");
        // The connections end with H3_NO_ERROR.
        assert_eq!(holder.wait_for_ends(given_up), given_up);
        assert_eq!(wire.get("/", "").status, 200);
    }
}

/// A client that prevents the server's control stream cannot delay the end of its connections.
#[test]
fn connections_of_http_3_without_a_control_stream_are_evicted() {
    let server = server(1);
    let mut small = plain(&server, SMALL);
    assert_eq!(small.get("/", "").status, 200);
    let mut holder = Holder::without_control_stream(&server, ALL - 1);
    wait_until_opened(&server, ALL);
    // Each connection has a deadline of 600 s for its control stream.
    let mut new = plain(&server, NEW);
    new.patience(PATIENCE);
    assert_eq!(new.get("/", "").status, 200);
    let mut h2 = H2::open_from(&server, NEW);
    assert_eq!(h2.get("/").status, 200);
    let given_up = server.counter("connections_given_up");
    assert!(given_up >= 2, "{given_up}");
    assert_eq!(holder.wait_for_ends(given_up), given_up);
    assert_eq!(small.get("/", "").status, 200);
    assert_eq!(new.get("/", "").status, 200);
}

#[test]
fn an_evicted_connection_ends_with_goaway() {
    let server = server(1);
    let mut held: Vec<H2> = (0..ALL).map(|_| H2::open_from(&server, LARGE)).collect();
    for h2 in &mut held {
        assert_eq!(h2.get("/").status, 200);
        // The server measures idle times in milliseconds.
        thread::sleep(Duration::from_millis(20));
    }
    // The oldest connection becomes the most recently used.
    assert_eq!(held[0].get("/").status, 200);
    let mut wire = plain(&server, NEW);
    assert_eq!(wire.get("/", "").status, 200);
    assert_eq!(server.counter("connections_given_up"), 1);
    assert_eq!(held.remove(1).goaway_code(), H2ErrorCode::NO_ERROR.0);
    for h2 in &mut held {
        assert_eq!(h2.get("/").status, 200);
    }
}

/// A client with nearly all connections, all with requests under way, loses a connection to another client,
/// but not to itself.
#[test]
fn requests_under_way_are_evicted_if_one_client_has_nearly_all_connections() {
    let server = server(1);
    let ask = || {
        let mut wire = plain(&server, LARGE);
        wire.patience(PATIENCE);
        wire.send(UNENDING);
        wire
    };
    let begun = |wire: &mut Wire| wire.take(12) == b"HTTP/1.1 200";
    let mut held = Vec::new();
    for _ in 0..ALL {
        held.push(ask());
        assert!(held.last_mut().is_some_and(begun));
    }
    // The extra connection of the large client waits, and connections behind it do not.
    let mut waiting = ask();
    let mut new = plain(&server, NEW);
    new.patience(PATIENCE);
    assert_eq!(new.get("/", "").status, 200);
    assert_eq!(server.counter("connections_given_up"), 1);
    assert_eq!(server.counter("connections_opened"), ALL + 1);
    let cut = held.remove(0).rest();
    assert!(!cut.ends_with(b"0\r\n\r\n"), "the response looks whole");
    // A free place goes to the waiting connection.
    drop(held.remove(0));
    assert!(begun(&mut waiting));
    assert_eq!(new.get("/", "").status, 200);
    assert_eq!(server.counter("connections_given_up"), 1);
}

/// Connection limit of a server on which one client may hold far more connections than another.
const MANY: usize = 32;

fn server_for_many() -> Server {
    Server::start(&config(1, &format!("connections = {MANY}")))
}

/// Opens connections with a request under way.
fn busy_connections(server: &Server, from: Ipv4Addr, count: usize) -> Vec<Wire> {
    let ask = |_| {
        let mut wire = plain(server, from);
        wire.patience(PATIENCE);
        wire.send(UNENDING);
        assert_eq!(wire.take(12), b"HTTP/1.1 200");
        wire
    };
    (0..count).map(ask).collect()
}

/// Opens more connections of one client than may wait for a place. The kernel queues connections in order,
/// so the server accepts all of them before a later connection.
fn flood(server: &Server, from: Ipv4Addr) -> Vec<TcpStream> {
    let one = |_| connect_and_send(server.http_port, from, UNENDING.as_bytes());
    (0..80).map(one).collect()
}

/// A client with only busy connections loses busy connections, and takes no idle connection of another
/// client.
#[test]
fn a_client_with_busy_connections_evicts_no_small_client() {
    let server = server_for_many();
    let mut small = plain(&server, SMALL);
    assert_eq!(small.get("/", "").status, 200);
    let _held = busy_connections(&server, LARGE, MANY - 1);
    let _flood = flood(&server, LARGE);
    let mut new = plain(&server, NEW);
    new.patience(PATIENCE);
    assert_eq!(new.get("/", "").status, 200);
    let _flood = flood(&server, LARGE);
    let mut other = plain(&server, OTHER);
    other.patience(PATIENCE);
    assert_eq!(other.get("/", "").status, 200);
    for wire in [&mut small, &mut new, &mut other] {
        assert_eq!(wire.get("/", "").status, 200);
    }
}

#[test]
fn two_clients_with_all_connections_lose_some_to_small_clients() {
    let server = server_for_many();
    let mut small = plain(&server, SMALL);
    assert_eq!(small.get("/", "").status, 200);
    let _held = busy_connections(&server, LARGE, MANY / 2);
    let _others = busy_connections(&server, OTHER, MANY / 2 - 1);
    assert_eq!(server.counter("connections_given_up"), 0);
    let _flood = [LARGE, OTHER].map(|from| flood(&server, from));
    let mut new = plain(&server, NEW);
    new.patience(PATIENCE);
    assert_eq!(new.get("/", "").status, 200);
    assert_eq!(small.get("/", "").status, 200);
    assert_eq!(new.get("/", "").status, 200);
    // Small clients have no idle connection either.
    drop((small, new));
    wait_until_opened(&server, MANY as u64 + 3);
    let mut new = plain(&server, NEW);
    new.patience(PATIENCE);
    assert_eq!(new.get("/", "").status, 200);
}

/// A process out of descriptors evicts idle connections too.
#[test]
fn idle_connections_are_evicted_when_descriptors_run_out() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let mut command = Command::new("sh");
    let binary = crate::support::program();
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", binary]);
    let server = Server::start_by(command, folder, &config(1, "connections = 1000"));
    let mut small = plain(&server, SMALL);
    assert_eq!(small.get("/", "").status, 200);
    let _held: Vec<TcpStream> = (0..100)
        .map(|_| connect_and_send(server.http_port, LARGE, &GET.as_bytes()[..20]))
        .collect();
    let mut new = plain(&server, NEW);
    new.patience(PATIENCE);
    assert_eq!(new.get("/", "").status, 200);
    // Eviction happens without waiting for a freed descriptor.
    assert!(server.counter("connections_given_up") > 0);
    assert_eq!(small.get("/", "").status, 200);
    let lines = server.errors.all();
    assert!(
        !lines.iter().any(|line| line.contains("accepting pauses")),
        "{lines:?}"
    );
}
