//! Clients that read a response slowly or not at all: the bytes held by the kernel for each client, and the
//! time of the server's close.

use std::thread;
use std::time::{Duration, Instant};

use data_plane::limits::SOCKET_UNSENT_BYTES;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table};

/// A file larger than all buffers of the server and the kernel.
const LARGE_BYTES: usize = 40_000_000;
/// A file in the server's memory.
const MIDDLE_BYTES: usize = 100_000;
/// The largest windows of HTTP/2, so that only the socket bounds the bytes sent.
const OPEN_WINDOWS: &[u8] = b"\0\x04\x7f\xff\xff\xff";

fn server(limits: &str) -> Server {
    let folder = Folder::new()
        .with("public/large.bin", vec![b'x'; LARGE_BYTES])
        .with("public/middle.bin", vec![b'm'; MIDDLE_BYTES]);
    let config = server_table(&format!("h2c = true\nlimits = {{ {limits} }}"))
        + "[log]\naccess = \"off\"\n"
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/endless\"\ntest = \"endless\"\n";
    Server::start_in(folder, &config)
}

/// Opens an HTTP/1.1 connection and sends `count` requests at once.
fn connect_and_request(server: &Server, over: Over, path: &str, count: usize) -> Wire {
    let mut wire = Wire::with_small_receive_buffer(server, over, &[]);
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(count));
    wire
}

/// Opens an HTTP/2 connection with the largest windows and sends `count` requests.
fn connect_and_request_h2(server: &Server, over: Over, path: &str, count: usize) -> Wire {
    let wire = Wire::with_small_receive_buffer(server, over, &[b"h2"]);
    let mut h2 = H2::on(wire).begin(OPEN_WINDOWS);
    h2.grant(0, 0x7000_0000);
    for _ in 0..count {
        h2.ask("GET", path, &[], true);
    }
    h2.wire
}

/// Returns the bytes held by the kernel for each client of the server: unsent bytes, and unacknowledged
/// bytes.
fn held_by_the_kernel(server: &Server) -> Vec<u32> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let hex = |text: &str| u32::from_str_radix(text, 16).expect("a number");
    let connections = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let port = hex(columns[1].split_once(':')?.1);
        let is_ours = [server.http_port, server.https_port]
            .map(u32::from)
            .contains(&port);
        let is_established = columns[3] == "01";
        (is_ours && is_established).then(|| hex(columns[4].split(':').next().expect("a queue")))
    });
    connections.collect()
}

#[test]
fn the_kernel_holds_little_for_clients_that_do_not_read() {
    let server = server("");
    let mut clients = Vec::new();
    for over in BOTH {
        for (path, count) in [("/large.bin", 1), ("/middle.bin", 60), ("/endless", 1)] {
            clients.push(connect_and_request(&server, over, path, count));
            clients.push(connect_and_request_h2(&server, over, path, count));
        }
    }
    let mut before = Vec::new();
    let held = wait_until(Duration::from_secs(60), "full sockets", || {
        let held = held_by_the_kernel(&server);
        let is_full = held.len() == clients.len() && held.iter().all(|bytes| *bytes > 16_384);
        let is_still = is_full && held == before;
        thread::sleep(Duration::from_millis(200));
        before = held;
        is_still.then(|| before.clone())
    });
    // The kernel accepts up to one packet above the bound, and one packet may be unacknowledged.
    // Without the bound the kernel holds 0.5 to 4 MB for each client.
    let most = SOCKET_UNSENT_BYTES + 2 * 65_536;
    assert!(held.iter().all(|bytes| *bytes <= most), "{held:?}");
}

/// The socket of a slow client becomes writable once in 4 seconds or more, because the kernel reports room
/// only after 32 KiB were sent. In between, the acknowledged bytes show that the client reads.
#[test]
fn a_client_that_reads_slowly_is_not_cut_off() {
    let server = server("write_stall_seconds = 3");
    let mut readers = Vec::new();
    for over in BOTH {
        for path in ["/large.bin", "/endless"] {
            readers.push(connect_and_request(&server, over, path, 1));
            readers.push(connect_and_request_h2(&server, over, path, 1));
        }
    }
    let count = readers.len();
    let readers: Vec<_> = readers
        .into_iter()
        .map(|mut wire| {
            thread::spawn(move || {
                let started = Instant::now();
                // The client reads 8 KiB a second, three times the minimum rate, for 4 times the write deadline.
                while started.elapsed() < Duration::from_secs(12) {
                    assert_eq!(wire.take(1_024).len(), 1_024);
                    thread::sleep(Duration::from_millis(125));
                }
                wire
            })
        })
        .collect();
    let readers: Vec<Wire> = readers
        .into_iter()
        .map(|it| it.join().expect("a reader that was served"))
        .collect();
    assert_eq!(server.counter("connections_closed"), 0);
    // The server closes the connections when the clients stop reading.
    wait_until(Duration::from_secs(60), "cut off", || {
        (server.counter("connections_closed") == count as u64).then_some(())
    });
    drop(readers);
}

/// Programs with a rate limit read a large part at once and then pause.
#[test]
fn a_client_that_has_read_much_may_pause() {
    let server = server("write_stall_seconds = 6");
    let mut readers = BOTH.map(|over| Wire::over(&server, over));
    for reader in &mut readers {
        reader.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(reader.take(400_000).len(), 400_000);
    }
    // A client that never reads is cut off after 6 s, so the readers pause for longer than the write deadline, and for
    // less than twice the deadline.
    let silent = connect_and_request(&server, Over::Plain, "/large.bin", 1);
    wait_until(Duration::from_secs(60), "cut off", || {
        (server.counter("connections_closed") == 1).then_some(())
    });
    drop(silent);
    for reader in &mut readers {
        assert_eq!(reader.take(400_000).len(), 400_000);
    }
    assert_eq!(server.counter("connections_closed"), 1);
}
