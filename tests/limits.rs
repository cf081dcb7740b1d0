//! Deadlines towards slow peers, and limits on the resources of one peer. A limit of one second gets ten
//! seconds to take effect: the tests check that a limit takes effect, not its precision.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::wire::{BOTH, Response, Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table, tool};

const NEXT: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// A request that stays unfinished for the whole test.
const UNENDING: &str = "GET /slow?lines=1000&pause_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Ten times the limits of the tests.
const PATIENCE: Duration = Duration::from_secs(20);
/// Size of a file too large for memory and for the socket buffers.
const LARGE: usize = 40_000_000;

fn config(limits: &str, more: &str) -> String {
    server_table(&format!("limits = {{ {limits} }}\n{more}"))
        + "[log]\naccess = \"off\"\n"
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n"
        + "[[site.route]]\npath = \"/endless\"\ntest = \"endless\"\n"
}

fn server(limits: &str) -> Server {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/large.bin", vec![b'x'; LARGE]);
    Server::start_in(folder, &config(limits, ""))
}

fn final_response(wire: &mut Wire, what: &str) -> Response {
    wire.patience(PATIENCE);
    let response = wire.response("GET");
    assert!(response.closes(), "{what}: {response:?}");
    wire.ends();
    response
}

/// Runs a client in a thread. The test waits for the server's reaction, not for the thread.
fn in_background<T: Send + 'static>(
    what: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::spawn(what)
}

#[test]
fn a_head_must_arrive_in_time() {
    let server = server("head_seconds = 1");
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send(&NEXT[..20]);
        assert_eq!(final_response(&mut wire, "half a head").status, 408);
        let mut wire = Wire::over(&server, over);
        wire.send(format!("{NEXT}{}", &NEXT[..3]));
        assert_eq!(wire.response("GET").status, 200);
        assert_eq!(final_response(&mut wire, "half a second head").status, 408);
    }
}

#[test]
fn a_dripping_head_has_the_same_deadline() {
    let server = server("head_seconds = 1");
    let mut dripping = Wire::plain(&server);
    let started = Instant::now();
    while dripping.send("G") && started.elapsed() < PATIENCE {
        // Each byte arrives well before the deadline.
        thread::sleep(Duration::from_millis(100));
    }
    assert!(started.elapsed() < PATIENCE, "it dripped for {PATIENCE:?}");
}

/// Each head has a deadline of its own. A client that always has a part of the next head in flight meets
/// all deadlines.
#[test]
fn each_head_has_its_own_deadline() {
    let server = server("head_seconds = 8");
    let mut wire = Wire::plain(&server);
    let (begin, end) = NEXT.split_at(20);
    wire.send(begin);
    // In all longer than the deadline of one head, and fast enough for every single head, even on a busy
    // machine.
    for _ in 0..14 {
        wire.send(format!("{end}{begin}"));
        assert_eq!(wire.response("GET").status, 200);
        thread::sleep(Duration::from_millis(600));
    }
    wire.send(end);
    assert_eq!(wire.response("GET").status, 200);
}

#[test]
fn a_silent_connection_is_closed_without_a_response() {
    let server = server("idle_seconds = 2");
    for over in BOTH {
        let mut asked = Wire::over(&server, over);
        asked.patience(PATIENCE);
        assert_eq!(asked.get("/", "").status, 200);
        let mut large = Wire::over(&server, over);
        large.patience(PATIENCE);
        assert_eq!(large.get("/large.bin", "").body.len(), LARGE);
        let mut live = Wire::over(&server, over);
        live.patience(PATIENCE);
        assert_eq!(
            live.ask("POST", "/echo", "Content-Length: 0\r\n").status,
            200
        );
        asked.ends();
        large.ends();
        live.ends();
    }
    let mut fresh = Wire::plain(&server);
    fresh.patience(PATIENCE);
    fresh.ends();
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let server = server("write_stall_seconds = 1");
    let mut stalled = Vec::new();
    for target in ["/large.bin", "/endless"] {
        for over in BOTH {
            let mut wire = Wire::over(&server, over);
            wire.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            stalled.push(wire);
        }
    }
    wait_until(PATIENCE, "cut off", || {
        (server.counter("connections_closed") == 4).then_some(())
    });
    for mut wire in stalled {
        let response = wire.response("GET");
        assert!(!response.whole, "{response:?}");
    }
}

/// A client that reads slowly may take longer than the deadline.
#[test]
fn a_slow_reader_is_not_cut_off() {
    let server = server("write_stall_seconds = 8");
    let reader = |over| {
        let mut wire = Wire::over(&server, over);
        in_background(move || {
            wire.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let mut taken = 0;
            // About 10 s in all, without a pause near the deadline, even on a busy machine.
            loop {
                match wire.take(1_000_000).len() {
                    0 => return taken,
                    some => taken += some,
                }
                thread::sleep(Duration::from_millis(250));
            }
        })
    };
    for reader in BOTH.map(reader) {
        assert!(reader.join().expect("a reader") > LARGE);
    }
}

/// Starts a server on listening sockets with small send buffers for their connections. The kernel enlarges
/// the buffers of other sockets to megabytes, and then takes at least 10 KB at a time.
const SMALL_BUFFERS: &str = "
import os, socket, sys
binary, path = sys.argv[1:]
sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]
text = open(path).read()
for key, listener in zip(['https', 'http'], sockets):
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    port = listener.getsockname()[1]
    text = text.replace(key + ' = [\"127.0.0.1:0\"]', key + ' = [\"127.0.0.1:%d\"]' % port)
open(path, 'w').write(text)
high = [os.dup2(listener.fileno(), 20 + n) for n, listener in enumerate(sockets)]
for n, fd in enumerate(high): os.dup2(fd, 3 + n, inheritable=True)
os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))
os.execv(binary, [binary, 'serve', path])
";

/// A client that reads a few bytes before each deadline does not keep its connection for ever: progress
/// means at least 8 KiB.
#[test]
fn a_response_that_is_read_in_drips_is_cut_off() {
    let folder = Folder::new().with("public/large.bin", vec![b'x'; LARGE]);
    folder.write("anthill.toml", config("write_stall_seconds = 4", ""));
    let mut command = Command::new(tool("python3"));
    command
        .args(["-c", SMALL_BUFFERS, crate::support::program()])
        .arg(folder.path("anthill.toml"));
    let server = Server::launch(folder, command);
    let address = SocketAddr::from(([127, 0, 0, 1], server.http_port));
    let ask = |target| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(1).expect("a small buffer");
        socket.connect(&address.into()).expect("a connection");
        socket.set_nonblocking(true).expect("no waiting");
        let mut stream = TcpStream::from(socket);
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).expect("written");
        stream
    };
    let mut dripping = ["/large.bin", "/endless"].map(ask);
    // The clients read 2 KB every 2 s.
    wait_until(3 * PATIENCE, "cut off", || {
        for stream in &mut dripping {
            let _ = stream.read(&mut [0; 100]);
        }
        thread::sleep(Duration::from_millis(90));
        (server.counter("connections_closed") == 2).then_some(())
    });
    assert_eq!(server.counter("deadlines"), 2);
}

#[test]
fn a_handshake_must_end_in_time() {
    let server = server("handshake_seconds = 1");
    let address = ("127.0.0.1", server.https_port);
    // An empty handshake, and the beginning of a ClientHello.
    for hello in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00"] {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("patience");
        std::io::Write::write_all(&mut stream, hello).expect("written");
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(
            !ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
            "it still waits"
        );
        assert_eq!(rest, b"");
    }
}

#[test]
fn a_body_must_arrive_at_a_minimum_rate() {
    let server = server("body_rate_bytes_per_second = 1000");
    let mut waiting = Vec::new();
    for over in BOTH {
        for target in ["/", "/echo"] {
            for framing in [
                "Content-Length: 100000\r\n\r\n",
                "Transfer-Encoding: chunked\r\n\r\n186A0\r\n",
            ] {
                let mut wire = Wire::over(&server, over);
                wire.send(format!(
                    "POST {target} HTTP/1.1\r\nHost: localhost\r\n{framing}hello"
                ));
                waiting.push((target, wire));
            }
        }
    }
    for (target, mut wire) in waiting {
        wire.patience(Duration::from_secs(60));
        let response = wire.response("POST");
        if target == "/" {
            assert_eq!(response.status, 408, "{response:?}");
        } else {
            // The echo has begun.
            assert_eq!(
                (response.status, response.whole),
                (200, false),
                "{response:?}"
            );
        }
        wire.ends();
    }
}

/// Connections with requests under way are not evicted. `given_up` tests the eviction of idle connections.
#[test]
fn a_connection_over_the_limit_waits_for_a_free_place() {
    let server = server("connections = 2");
    let [mut first, mut second] = BOTH.map(|over| Wire::over(&server, over));
    for wire in [&mut first, &mut second] {
        wire.send(UNENDING);
        assert_eq!(wire.take(12), b"HTTP/1.1 200");
    }
    let mut third = Wire::plain(&server);
    third.patience(PATIENCE);
    third.send(NEXT);
    assert_eq!(server.counter("connections_opened"), 2);
    drop(first);
    assert_eq!(third.response("GET").status, 200);
    assert_eq!(server.counter("connections_given_up"), 0);
}

/// Checks that clients with silent uploads, which come back after each loss, keep no newcomer out.
#[test]
fn newcomers_are_served_beside_slow_clients_that_come_back() {
    let server = server("connections = 5");
    let from = |last: u8| {
        let wire = Wire::of(&server, [127, 0, 0, last].into());
        wire.patience(PATIENCE);
        wire
    };
    let upload = |last: u8| {
        let mut wire = from(last);
        wire.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhello");
        wire
    };
    let has_place = |wire: &mut Wire| assert_eq!(wire.take(12), b"HTTP/1.1 200");
    let mut slow: Vec<Wire> = (10..15).map(upload).collect();
    slow.iter_mut().for_each(has_place);
    // Each newcomer takes the place of a client that sends nothing.
    let mut newcomers: Vec<Wire> = (20..25).map(upload).collect();
    newcomers.iter_mut().for_each(has_place);
    slow.iter_mut().for_each(|wire| drop(wire.rest()));
    assert_eq!(server.counter("connections_given_up"), 5);
    // The losers come back at once, and wait.
    let _back: Vec<Wire> = (10..15).map(upload).collect();
    for last in 30..33 {
        let mut newcomer = from(last);
        newcomer.send(NEXT);
        assert_eq!(newcomer.response("GET").status, 200);
    }
}

#[test]
fn the_limit_per_address_covers_all_workers() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let config = config("connections_per_address = 3", "").replace("workers = 1", "workers = 2");
    let server = Server::start_in(folder, &config);
    let mut open: Vec<Wire> = Vec::new();
    for _ in 0..16 {
        let mut wire = Wire::plain(&server);
        wire.send(NEXT);
        if wire.next_response("GET").is_some() {
            open.push(wire);
        }
    }
    assert_eq!(open.len(), 3);
    // A client with another address is not affected.
    let mut other = Wire::of(&server, [127, 0, 0, 2].into());
    other.send(NEXT);
    assert_eq!(other.response("GET").status, 200);
    // A closed connection makes room.
    open.pop();
    wait_until(PATIENCE, "an accepted connection", || {
        let mut wire = Wire::plain(&server);
        wire.send(NEXT);
        wire.next_response("GET")
    });
}

/// Without descriptors and without an idle connection, the server pauses accepting. The server does not
/// spin, and later serves the waiting connections.
#[test]
fn without_descriptors_accepting_pauses() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let mut command = Command::new("sh");
    let binary = crate::support::program();
    command.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\"", binary]);
    let server = Server::start_by(command, folder, &config("idle_seconds = 600", ""));
    let started = Instant::now();
    // Each accepted connection already has a request, so no connection is idle.
    let waiting = server.while_stopped(|| {
        let mut waiting: Vec<Wire> = (0..60).map(|_| Wire::plain(&server)).collect();
        for wire in &mut waiting {
            wire.patience(PATIENCE);
            wire.send(UNENDING);
        }
        waiting
    });
    server
        .errors
        .wait_for("a message about missing descriptors", |line| {
            line.contains("accepting pauses")
        });
    let before = server.cpu_ticks();
    thread::sleep(Duration::from_secs(1));
    let spent = server.cpu_ticks() - before;
    assert!(spent < 20, "{spent} ticks of 10 ms in a second of waiting");
    // Accepted connections are served, and closed connections make room for the waiting ones.
    for mut wire in waiting {
        assert_eq!(wire.take(12), b"HTTP/1.1 200");
    }
    let said = server
        .errors
        .all()
        .iter()
        .filter(|line| line.contains("accepting pauses"))
        .count();
    // The log has at most one line a second, and the test itself may be delayed by many seconds.
    let seconds = started.elapsed().as_secs() as usize;
    assert!(
        said <= 2 + seconds,
        "said {said} times within {seconds} seconds"
    );
}
