//! Memory of many requests under way: clients that wait, read nothing or send slowly, in front of slow members.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::Duration;

use data_plane::limits::{CALL_RESERVED_BYTES, MEMBER_UNSENT_BYTES};

use crate::h2_members::nghttpd;
use crate::support::h2::H2;
use crate::support::member::{Answer, Member, ok};
use crate::support::memory_group::MemoryGroup;
use crate::support::programs::free_port;
use crate::support::wire::{BOTH, Wire, wait_until};
use crate::support::{Folder, Lines, Server, server_table, site_table, spawn, tool};

const MIB: u64 = 1 << 20;
/// Ten times the second within which a request of another site is answered.
const FRESH: Duration = Duration::from_secs(10);
/// Time for all clients of a crowd.
const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of the page of tests/support/crowd.py.
const PAGE_BYTES: usize = 512 * 1024;

/// Clients of tests/support/crowd.py with the same address.
const CLIENTS_OF_ADDRESS: usize = 100;

/// Process of tests/support/crowd.py.
struct Crowd {
    process: Child,
    input: ChildStdin,
    lines: Lines,
}

impl Crowd {
    fn start(arguments: &[&str]) -> Crowd {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/support/crowd.py");
        let mut command = Command::new(tool("python3"));
        command.arg(script).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = spawn(&mut command).expect("a crowd");
        Crowd {
            input: process.stdin.take().expect("a pipe"),
            lines: Lines::of(process.stdout.take().expect("a pipe")),
            process,
        }
    }

    /// Starts the member. Returns the member and its port.
    fn member() -> (Crowd, u16) {
        let member = Crowd::start(&["member"]);
        let port = member.lines.wait_for("a port", |line| !line.is_empty());
        (member, port.parse().expect("a port"))
    }

    /// Starts `count` clients of `kind`, and waits until all have sent their requests.
    fn clients(kind: &str, server: &Server, count: usize) -> Crowd {
        let (port, number) = (server.http_port.to_string(), count.to_string());
        let crowd = Crowd::start(&[kind, &port, &number]);
        crowd.wait("the requests", |line| (line == "asked").then_some(()));
        crowd
    }

    fn wait<T>(&self, name: &str, look: impl Fn(&str) -> Option<T>) -> T {
        let any = |lines: &[String]| lines.iter().find_map(|line| look(line));
        self.lines.wait_until(PATIENCE, name, any)
    }

    fn go(&mut self) {
        self.input.write_all(b"go\n").expect("a crowd that listens");
    }

    /// Waits for all answers. Returns their numbers by status.
    fn results(&self) -> HashMap<String, usize> {
        let counts = self.wait("all answers", |line| {
            let counts = line.strip_prefix('{')?.strip_suffix('}')?;
            Some(counts.to_owned())
        });
        let count = |pair: &str| {
            let (status, number) = pair.rsplit_once(": ").expect("a status and a number");
            let number = number.parse().expect("a number");
            (status.trim().trim_matches('"').to_owned(), number)
        };
        counts.split(',').map(count).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a configuration with the proxied site `proxied`, and a site of files for all other names.
fn config(member: u16, more: &str) -> String {
    server_table(&format!("h2c = true\n{more}"))
        + "[log]\naccess = \"off\"\n"
        + "[[site]]\nnames = [\"static\"]\nroot = \"public\"\nhttp = \"serve\"\n"
        + "[[site]]\nnames = [\"proxied\"]\nroot = \"public\"\nhttp = \"serve\"\n"
        + &format!("[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{member}\"\n")
}

fn folder() -> Folder {
    Folder::new().with("public/index.html", "<p>hello</p>\n")
}

/// Requests a page of another site on a new connection.
fn assert_fresh(server: &Server) {
    let mut wire = Wire::plain(server);
    wire.patience(FRESH);
    wire.send("GET / HTTP/1.1\r\nHost: static\r\n\r\n");
    let page = wire.response("GET");
    assert_eq!((page.status, page.text().as_str()), (200, "<p>hello</p>\n"));
}

/// Checks that each of `count` clients got a whole answer, a refusal with Retry-After, or a broken connection for the sake
/// of a client from an address with an eighth of the requests. Returns the number of whole answers.
fn assert_all_answered(results: &HashMap<String, usize>, count: usize) -> usize {
    let number = |name: &str| results.get(name).copied().unwrap_or(0);
    let (served, refused, broken) = (number("200"), number("503"), number("broken"));
    assert_eq!(served + refused + broken, count, "{results:?}");
    // Each broken request has given its place to another one. The first request of each address takes a place of any client
    // with two. A request that took a place may lose the place after a second without progress, and a crowd connects for
    // several seconds.
    let addresses = count.div_ceil(CLIENTS_OF_ADDRESS);
    assert!(broken <= 3 * (served + addresses), "{results:?}");
    served
}

/// The server has the memory of a small machine, and serves three crowds one after another.
#[test]
fn crowds_are_served_or_refused_in_128_mib() {
    let group = MemoryGroup::new(128 * MIB);
    let (mut member, port) = Crowd::member();
    let command = group.command(crate::support::program());
    let server = Server::start_by(command, folder(), &config(port, ""));
    // An eighth of the group's memory is for contents and bodies, and a third of the eighth for bodies.
    let body_bytes_max = server.counter("body_bytes_max");
    assert_eq!(body_bytes_max, 16 * MIB / 3);
    for (kind, count) in [("wait", 9_000), ("unread", 9_000), ("drip", 2_000)] {
        let mut clients = Crowd::clients(kind, &server, count);
        assert_fresh(&server);
        match kind {
            "wait" => member.go(),
            _ => clients.go(),
        }
        assert_fresh(&server);
        let served = assert_all_answered(&clients.results(), count);
        assert!(served >= 64, "{kind}: {served}");
        assert_fresh(&server);
    }
    let peak = group.peak();
    assert!(peak <= 128 * MIB, "{peak}");
    drop(server);
}

/// 9,000 waiting requests take 18,000 of the 18,464 descriptors that a limit of 20,000 leaves for connections of both
/// sides.
#[test]
fn waiting_requests_take_little_memory() {
    const COUNT: usize = 9_000;
    const BYTES_MAX: u64 = 64_000_000;
    let (mut member, port) = Crowd::member();
    let more = "memory_max = \"256 MiB\"\nlimits = { connections = 20000 }";
    let server = Server::start_in(folder(), &config(port, more));
    let clients = Crowd::clients("wait", &server, COUNT);
    wait_until(PATIENCE, "the calls", || {
        let bytes = server.counter("body_bytes") as usize;
        (bytes >= COUNT * CALL_RESERVED_BYTES).then_some(())
    });
    let pss = pss_bytes(&server);
    member.go();
    let results = clients.results();
    assert_eq!(
        results,
        HashMap::from([("200".to_owned(), COUNT)]),
        "needs `ulimit -Hn 20000`"
    );
    assert!(pss <= BYTES_MAX, "{pss}");
}

/// Returns the server's share of the memory in use.
fn pss_bytes(server: &Server) -> u64 {
    let path = format!("/proc/{}/smaps_rollup", server.pid());
    let rollup = std::fs::read_to_string(path).expect("the memory of the server");
    let line = rollup.lines().find(|line| line.starts_with("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    1_024 * kib.and_then(|kib| kib.parse::<u64>().ok()).expect("PSS")
}

#[test]
fn streams_with_a_closed_window_hold_the_minimum() {
    let member = Member::start(|_| ok(vec![b'x'; PAGE_BYTES]));
    let config = config(member.port, "memory_max = \"8 MiB\"");
    assert_minimum_is_held(&Server::start_in(folder(), &config));
}

/// Checks that the windows of the member's streams take no memory either.
#[test]
fn streams_with_a_closed_window_hold_the_minimum_in_front_of_http_2() {
    let pages = Folder::new().with("public/page", vec![b'x'; PAGE_BYTES]);
    let member = nghttpd(free_port(), pages, &["--no-tls"]);
    let config = config(member.port, "memory_max = \"8 MiB\"");
    let url = format!("\"http://127.0.0.1:{}\"", member.port);
    let http2 = config.replace(&url, &format!("{{ url = {url}, http2 = true }}"));
    assert!(http2 != config, "{config}");
    assert_minimum_is_held(&Server::start_in(folder(), &http2));
}

/// Checks that each response of 400 streams with a closed window holds no more than the minimum of a call, and that a
/// client with another address gets its response.
fn assert_minimum_is_held(server: &Server) {
    let closed_window = b"\0\x04\0\0\0\0";
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/page"),
        (":authority", "proxied"),
    ];
    let mut connections: Vec<H2> = (0..4)
        .map(|_| {
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7));
            let mut h2 = H2::on(Wire::of(server, from)).begin(closed_window);
            for _ in 0..100 {
                h2.ask_all(&fields, true);
            }
            h2
        })
        .collect();
    let refused = || (server.counter("memory_refused") > 0).then_some(());
    wait_until(PATIENCE, "refusals", refused);
    let refused: Vec<_> = connections
        .iter_mut()
        .flat_map(|h2| {
            h2.settle();
            let responses = (0..100).filter_map(|nth| h2.partial_response(2 * nth + 1));
            let refused = responses.filter(|response| response.status == 503);
            refused
                .map(|response| response.field("retry-after").map(str::to_owned))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        !refused.is_empty() && refused.iter().all(|it| it.as_deref() == Some("1")),
        "{refused:?}"
    );
    let [bytes, bytes_max] = ["body_bytes", "body_bytes_max"].map(|name| server.counter(name));
    assert!(bytes <= bytes_max, "{bytes} of {bytes_max}");
    let mut other = Wire::plain(server);
    other.send("GET /page HTTP/1.1\r\nHost: proxied\r\n\r\n");
    let page = other.response("GET");
    assert_eq!(
        (page.status, page.whole, page.body.len()),
        (200, true, PAGE_BYTES)
    );
    // An accepted response completes once the client opens the window.
    let h2 = &mut connections[0];
    h2.grant(0, PAGE_BYTES as u32);
    h2.grant(1, PAGE_BYTES as u32);
    let page = h2.response(1);
    assert_eq!(
        (page.status, page.whole, page.body.len()),
        (200, true, PAGE_BYTES)
    );
    drop(connections);
    wait_until(PATIENCE, "the end of all calls", || {
        (server.counter("body_bytes") <= bytes_max / 32).then_some(())
    });
}

/// Silent requests of 11 clients with an eighth each reserve the whole memory.
#[test]
fn silent_requests_of_many_clients_leave_memory_to_newcomers() {
    let member = Member::start(|request| match request.line() {
        "GET /silent HTTP/1.1" => Answer::Silence,
        _ => ok("hello"),
    });
    let server = Server::start_in(folder(), &config(member.port, "memory_max = \"4 MiB\""));
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/silent"),
        (":authority", "proxied"),
    ];
    let _held: Vec<H2> = (10..21)
        .map(|last| {
            let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
            let mut h2 = H2::on(Wire::of(&server, from)).begin(b"");
            for _ in 0..20 {
                h2.ask_all(&fields, true);
            }
            h2
        })
        .collect();
    wait_until(PATIENCE, "refusals", || {
        (server.counter("memory_refused") > 0).then_some(())
    });
    for last in 99..104 {
        let mut newcomer = Wire::of(&server, IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        newcomer.send("GET /page HTTP/1.1\r\nHost: proxied\r\nConnection: close\r\n\r\n");
        let got = newcomer.response("GET");
        assert_eq!((got.status, got.text().as_str()), (200, "hello"));
    }
}

/// 30 clients with 7 uploads each send a part of the content that the member does not take. The uploads are less than 10 s
/// old, so none of them counts as silent.
#[test]
fn uploads_of_many_clients_over_http_2_keep_the_bound_and_leave_memory_to_newcomers() {
    let member = member_of_uploads();
    let server = Server::start_in(folder(), &config(member.port, "memory_max = \"4 MiB\""));
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/silent"),
        (":authority", "proxied"),
        ("content-length", "50000000"),
    ];
    let begin = |last| {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let mut h2 = H2::on(Wire::of(&server, from)).begin(b"");
        let ids: Vec<_> = (0..7).map(|_| h2.ask_all(&fields, false)).collect();
        ids.iter()
            .for_each(|id| h2.data(*id, &[b'u'; 16_000], false));
        h2
    };
    let _held: Vec<H2> = (10..40).map(begin).collect();
    assert_newcomers_are_served(&server);
}

#[test]
fn uploads_of_many_clients_keep_the_bound_and_leave_memory_to_newcomers() {
    let member = member_of_uploads();
    let server = Server::start_in(folder(), &config(member.port, "memory_max = \"4 MiB\""));
    let head = "POST /silent HTTP/1.1\r\nHost: proxied\r\nContent-Length: 50000000\r\n\r\n";
    let begin = |nth: u8| {
        let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10 + nth / 7));
        let mut wire = Wire::of(&server, from);
        wire.send(head);
        wire.send([b'u'; 16_000]);
        wire
    };
    let _held: Vec<Wire> = (0..210).map(begin).collect();
    assert_newcomers_are_served(&server);
}

/// Returns a member that neither takes nor answers requests for /silent.
fn member_of_uploads() -> Member {
    Member::start(|request| match request.line() {
        "POST /silent HTTP/1.1" => Answer::Silence,
        _ => ok("hello"),
    })
}

/// Checks that the memory is reserved, but for a part for newcomers, and that newcomers get it.
fn assert_newcomers_are_served(server: &Server) {
    let bytes_max = server.counter("body_bytes_max");
    let bytes = || server.counter("body_bytes");
    wait_until(PATIENCE, "refusals", || {
        (server.counter("memory_refused") > 0).then_some(())
    });
    assert!(bytes() <= bytes_max, "{} of {bytes_max}", bytes());
    for last in 100..130 {
        let mut newcomer = Wire::of(server, IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)));
        newcomer.send("GET /page HTTP/1.1\r\nHost: proxied\r\nConnection: close\r\n\r\n");
        let got = newcomer.response("GET");
        assert_eq!((got.status, got.text().as_str()), (200, "hello"));
        assert!(bytes() <= bytes_max, "{} of {bytes_max}", bytes());
    }
}

/// The client is slower than the member, so the bytes for the client never run out.
#[test]
fn a_slow_reader_of_a_long_response_holds_little() {
    const LONG_BYTES: usize = 40_000_000;
    let member = Member::start(|_| ok(vec![b'x'; LONG_BYTES]));
    let site = "[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:";
    let config = server_table("") + &site_table("http = \"serve\"");
    let server = Server::start_in(folder(), &(config + &format!("{site}{}\"\n", member.port)));
    let resident_kib = server.resident_kib();
    for over in BOTH {
        let mut wire = Wire::with_small_receive_buffer(&server, over, &[]);
        wire.send("GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for _ in 0..200 {
            assert_eq!(wire.take(100_000).len(), 100_000);
        }
        let more_kib = server.resident_kib().saturating_sub(resident_kib);
        assert!(more_kib < 4_096, "{more_kib} KiB");
    }
}

/// A member may fill a wide window at once, so a request without memory for the window takes a new connection.
#[test]
fn a_wide_connection_is_used_again_only_with_memory_for_its_window() {
    const WAITING: usize = 90;
    const CONTENT: &[u8] = &[b'x'; 100_000];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a member");
    let port = listener.local_addr().expect("an address").port();
    let server = Server::start_in(folder(), &config(port, "memory_max = \"4 MiB\""));
    let request = "GET /page HTTP/1.1\r\nHost: proxied\r\n\r\n";
    let mut client = Wire::plain(&server);
    client.send(request);
    let mut wide = accepted(&listener);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        CONTENT.len()
    );
    let (first, last) = CONTENT.split_at(50_000);
    wide.write_all(&[head.as_bytes(), first].concat())
        .expect("a response");
    // The first bytes reach the client after the window was widened.
    client.until(b"\r\n\r\n").expect("a head");
    // Each waiting request has a connection of its own, and together they take more than half of the memory.
    let waiting: Vec<_> = (0..WAITING)
        .map(|_| {
            let mut wire = Wire::of(&server, IpAddr::V4(Ipv4Addr::new(127, 0, 0, 7)));
            wire.send(request);
            (wire, accepted(&listener))
        })
        .collect();
    let [bytes, bytes_max] = ["body_bytes", "body_bytes_max"].map(|name| server.counter(name));
    assert!(bytes > bytes_max / 2, "{bytes} of {bytes_max}");
    wide.write_all(last).expect("a response");
    assert_eq!(client.take(CONTENT.len()), CONTENT);
    client.send(request);
    let mut narrow = accepted(&listener);
    narrow
        .write_all(&[head.as_bytes(), CONTENT].concat())
        .expect("a response");
    assert!(client.response("GET").body == CONTENT);
    // The wide connection was closed, by a reset or by an end.
    assert!(matches!(wide.read(&mut [0; 1]), Ok(0) | Err(_)));
    drop(waiting);
}

/// Accepts a connection, and reads the head of a request.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket");
    let (mut stream, _) = wait_until(PATIENCE, "a connection", || listener.accept().ok());
    stream.set_nonblocking(false).expect("a socket");
    let mut head = Vec::new();
    let mut buffer = [0; 4_096];
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut buffer).expect("a request");
        assert!(read > 0, "{}", head.escape_ascii());
        head.extend_from_slice(&buffer[..read]);
    }
    stream
}

/// The kernel holds at most the bound and two packets of an upload for a member that does not read.
#[test]
fn an_upload_that_no_member_reads_waits_with_the_client() {
    const UPLOAD_BYTES: usize = 40_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a member");
    let port = listener.local_addr().expect("an address").port();
    let server = Server::start_in(folder(), &config(port, ""));
    let mut client = Wire::plain(&server);
    let head =
        format!("POST /form HTTP/1.1\r\nHost: proxied\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n");
    client.send(head);
    let sender = thread::spawn(move || {
        client.send(vec![b'u'; UPLOAD_BYTES]);
        client.response("POST")
    });
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut before = (0, 0);
    let held = wait_until(PATIENCE, "a full socket", || {
        let held = unsent_bytes(port);
        let is_still = held > 0 && before == (held, server.counter("bytes_received"));
        before = (held, server.counter("bytes_received"));
        thread::sleep(Duration::from_millis(200));
        is_still.then_some(held)
    });
    assert!(held <= MEMBER_UNSENT_BYTES + 2 * 65_536, "{held}");
    let mut left = UPLOAD_BYTES;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let read = stream.read(&mut buffer).expect("the upload");
        assert!(read > 0, "{left}");
        left -= buffer[..read]
            .iter()
            .filter(|byte| **byte == b'u')
            .count()
            .min(left);
    }
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    stream.write_all(response).expect("a response");
    assert_eq!(sender.join().expect("an answer").text(), "ok");
}

/// Returns the bytes that the kernel holds unsent or unacknowledged for the peer at `port`.
fn unsent_bytes(port: u16) -> u32 {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of connections");
    let hex = |text: &str| u32::from_str_radix(text, 16).expect("a number");
    let held = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_ours = hex(columns[2].split_once(':')?.1) == port.into();
        is_ours.then(|| hex(columns[4].split(':').next().expect("a queue")))
    });
    held.max().unwrap_or(0)
}
