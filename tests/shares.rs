//! Shares of one client in the resources of the proxy: places at members, places in the queue, local ports,
//! descriptors and idle connections. The clients have different loopback addresses.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

use crate::lifecycle::is_root;
use crate::support::h2::H2;
use crate::support::h2_member::{self, Frames, H2Answer, H2Member};
use crate::support::member::{Answer, Member, Received, ok};
use crate::support::wire::{Wire, wait_until};
use crate::support::{EndOnDrop, Folder, Server, run, server_table, site_table, tool};
use crate::two_networks::entry;
use wire::h2::frame;

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Address of the client with many requests.
const LARGE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Addresses of clients with one request.
const SMALL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

const TUNNEL: &str = "GET /tunnel HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// Returns a configuration with a balancer of the members for all paths.
fn balanced(members: &[String], keys: &str) -> String {
    let site = site_table("http = \"serve\"\n");
    let route = "[[site.route]]\npath = \"/\"\nbalance = \"b\"\n";
    let balancer = format!("[[balancer]]\nname = \"b\"\nmembers = {members:?}\n{keys}");
    format!("{}{site}{route}{balancer}", server_table(""))
}

/// Starts a member with tunnels, long responses and requests without a response.
fn slow_member() -> Member {
    Member::start(
        |request: &Received| match request.line().split(' ').nth(1) {
            Some("/tunnel") => {
                let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
                Answer::Keep(head.into())
            }
            Some("/long") => ok(vec![b'x'; 20_000_000]),
            Some("/events") => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
                Answer::Keep(head.into())
            }
            Some("/drip") => {
                Answer::Keep("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx".into())
            }
            Some("/silent") => Answer::Silence,
            _ => ok("short"),
        },
    )
}

fn send_from(server: &Server, address: Ipv4Addr, request: &str) -> Wire {
    let mut wire = Wire::of(server, address.into());
    wire.patience(PATIENCE);
    wire.send(request);
    wire
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn status_of(server: &Server, address: Ipv4Addr, request: &str) -> u16 {
    send_from(server, address, request).response("GET").status
}

/// Returns the report of `anthill balancer` as JSON.
fn report(server: &Server) -> String {
    server.ask(&["balancer", "list", "--json"]).stdout
}

/// Checks that no member was ejected and that no error was counted.
fn assert_members_are_up(server: &Server, count: usize) {
    let report = report(server);
    assert_eq!(
        report.matches("\"state\":\"up\"").count(),
        count,
        "{report}"
    );
    assert_eq!(report.matches("\"errors\":0").count(), count, "{report}");
}

#[test]
fn one_client_leaves_places_at_each_member_to_further_clients() {
    let upload = format!(
        "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    for request in [TUNNEL, &get("/long"), &get("/silent"), &upload] {
        let members = [slow_member(), slow_member()];
        let urls = members.each_ref().map(Member::url);
        let keys = "connections = 8\ntunnels = 8\nqueue = 8\n";
        let server = Server::start(&balanced(&urls, keys));
        let connections = || members.iter().map(Member::connections).sum::<usize>();
        let held: Vec<Wire> = (0..24)
            .map(|_| {
                let wire = send_from(&server, LARGE, request);
                wire.shrink_receive_buffer();
                wire
            })
            .collect();
        wait_until(PATIENCE, "three quarters of the places", || {
            (connections() == 12).then_some(())
        });
        // Places of the small clients stay free for the next request.
        for address in [SMALL, OTHER, SMALL] {
            assert_eq!(status_of(&server, address, &get("/short")), 200);
        }
        drop(held);
    }
}

/// Reads the head of a response and returns its status line.
fn status_line(wire: &mut Wire) -> String {
    let head = wire.until(b"\r\n\r\n").unwrap_or_default();
    String::from_utf8_lossy(&head)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn tunnels_and_event_streams_of_one_client_end_for_a_waiting_client() {
    for request in [TUNNEL, &get("/events")] {
        let member = slow_member();
        // The clients beside the large one hold the last place of the member.
        let keys = "connections = 4\ntunnels = 4\nqueue = 8\nqueue_timeout = \"60s\"\n";
        let server = Server::start(&balanced(&[member.url()], keys));
        // Each one runs before the next is requested. The workers of the server keep no order of simultaneous requests.
        let mut held = [LARGE, LARGE, LARGE, SMALL].map(|address| {
            let mut wire = send_from(&server, address, request);
            let line = status_line(&mut wire);
            assert!(line.contains(" 101 ") || line.contains(" 200 "), "{line}");
            wire
        });
        assert_eq!(status_of(&server, OTHER, &get("/short")), 200);
        // The oldest one of the large client has ended, and no other.
        if request.contains("Upgrade") {
            held[0].ends()
        } else {
            assert!(held[0].until(b"\r\n0\r\n\r\n").is_some())
        }
        assert_eq!(server.counter("member_places_refused"), 1);
        assert_eq!(server.counter("connections_given_up"), 0);
        let more = send_from(&server, OTHER, TUNNEL).until(b"\r\n\r\n");
        assert!(more.is_some_and(|head| head.starts_with(b"HTTP/1.1 101")));
    }
}

/// Program of clients in another network namespace: one tunnel from each address before the last, and then a request from
/// the last address. Prints the status line of the response, and the addresses of the tunnels that ended.
const V6_CLIENTS: &str = r#"
import select, socket, sys

port, request, *sources = sys.argv[1:]
tunnel = request.replace("/short", "/tunnel").replace("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")

def send(source, text):
    connection = socket.socket(socket.AF_INET6)
    connection.settimeout(60)
    connection.bind((source, 0))
    connection.connect(("::1", int(port)))
    connection.sendall(text.encode())
    reader = connection.makefile("rb")
    line = reader.readline()
    while reader.readline() != b"\r\n":
        pass
    return connection, line.decode().strip()

held = {}
for source in sources[:-1]:
    held[source], line = send(source, tunnel)
    assert " 101 " in line, line
print(send(sources[-1], request)[1])
ended = select.select(held.values(), [], [], 60)[0]
print(*(source for source, connection in held.items() if connection in ended))
"#;

/// Checks that the /64 networks of one /48 network count as one client: its oldest tunnel ends for another client, although
/// each /64 network has one place.
#[test]
fn a_wide_ipv6_network_gives_way_as_one_client() {
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("clients.py", V6_CLIENTS);
    let listener = UnixListener::bind(folder.path("member.sock")).expect("a socket");
    let member = format!("http://unix:{}", folder.path("member.sock").display());
    answer_all(listener);
    let wide = [
        "2001:db8:0:100::1",
        "2001:db8:0:200::1",
        "2001:db8:0:301::1",
    ];
    let [other, newcomer] = ["2001:db8:1::1", "2001:db8:2::1"];
    let all = [&wide[..], &[other, newcomer]].concat();
    let mut command = Command::new(tool("unshare"));
    command.arg("--net");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let script = "ip link set lo up\nfor address in $ADDRESSES; do\n\
        ip -6 addr add $address/64 dev lo nodad\ndone\nexec \"$@\"";
    command.args(["sh", "-euc", script, "sh", crate::support::program()]);
    command.env("ADDRESSES", all.join(" "));
    let keys = "connections = 4\ntunnels = 4\nqueue = 8\nqueue_timeout = \"60s\"\n";
    let config = balanced(&[member], keys).replace("127.0.0.1:0", "[::1]:0");
    let server = Server::start_by(command, folder, &config);
    let mut arguments = entry(&server.pid().to_string());
    let clients = server.folder.path("clients.py").display().to_string();
    let program = ["python3".to_owned(), clients, server.http_port.to_string()];
    arguments.extend(program.into_iter().chain([get("/short")]));
    arguments.extend(all.iter().map(|it| (*it).to_owned()));
    let ran = run("nsenter", &arguments, b"");
    let expected = format!("HTTP/1.1 200 OK\n{}\n", wide[0]);
    assert_eq!(ran.text(), expected, "{}", ran.errors());
    assert_eq!(server.counter("member_places_refused"), 1);
}

#[test]
fn tunnels_have_half_of_the_places_and_those_of_many_clients_stay() {
    let member = slow_member();
    let keys = "connections = 8\nqueue = 8\nqueue_timeout = \"200ms\"\n";
    let server = Server::start(&balanced(&[member.url()], keys));
    let mut held: Vec<Wire> = (10..14)
        .map(|last| send_from(&server, Ipv4Addr::new(127, 0, 0, last), TUNNEL))
        .collect();
    for wire in &mut held {
        assert!(status_line(wire).contains(" 101 "));
    }
    // No place of tunnels is left, also for an event stream that shows only in the response.
    assert_eq!(status_of(&server, SMALL, TUNNEL), 503);
    assert_eq!(status_of(&server, SMALL, &get("/events")), 503);
    assert_eq!(status_of(&server, SMALL, &get("/short")), 200);
    assert_eq!(server.counter("member_places_refused"), 0);
    drop(held.pop());
    // The member has to close its end as well before the place is free.
    wait_until(PATIENCE, "a place of a tunnel", || {
        let mut wire = send_from(&server, SMALL, TUNNEL);
        status_line(&mut wire).contains(" 101 ").then_some(())
    });
}

#[test]
fn slow_downloads_and_uploads_of_one_client_end_for_a_waiting_client() {
    let upload = format!(
        "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    for request in [&get("/long"), &upload] {
        let member = slow_member();
        let keys = "connections = 4\nqueue = 8\nqueue_timeout = \"60s\"\n";
        let server = Server::start(&balanced(&[member.url()], keys));
        let slow = |address| {
            let wire = send_from(&server, address, request);
            wire.shrink_receive_buffer();
            wire
        };
        let held = [LARGE, LARGE, LARGE, SMALL].map(slow);
        wait_until(PATIENCE, "all places", || {
            (member.connections() == 4).then_some(())
        });
        assert_eq!(status_of(&server, OTHER, &get("/short")), 200);
        assert_eq!(server.counter("member_places_refused"), 1);
        drop(held);
    }
}

/// Moves 4 KiB of each transfer every 250 ms until `is_over`. A rate of 16 KiB/s is enough for a client with an equal share.
pub fn trickle(wires: &mut [Wire], is_upload: bool, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        for wire in &mut *wires {
            if is_upload {
                wire.send([b'x'; 4_096]);
            } else {
                wire.take(4_096);
            }
        }
        thread::sleep(Duration::from_millis(250));
    }
}

#[test]
fn one_slow_transfer_of_many_clients_ends_for_a_newcomer() {
    let upload = format!(
        "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    // Two of the gRPC calls have the places of tunnels, and may pause.
    let grpc = upload.replace("Host:", "Content-Type: application/grpc\r\nHost:");
    for request in [&get("/long"), &upload, &grpc] {
        let member = slow_member();
        let keys = "connections = 4\nqueue = 8\nqueue_timeout = \"50s\"\n";
        let server = Server::start(&balanced(&[member.url()], keys));
        let mut held = [10, 11, 12, 13].map(|last| {
            let wire = send_from(&server, Ipv4Addr::new(127, 0, 0, last), request);
            wire.shrink_receive_buffer();
            wire
        });
        wait_until(PATIENCE, "all places", || {
            (member.connections() == 4).then_some(())
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = EndOnDrop(&is_over);
            scope.spawn(|| trickle(&mut held, request.starts_with("POST"), &is_over));
            assert_eq!(status_of(&server, SMALL, &get("/short")), 200);
        });
        assert_eq!(server.counter("member_places_refused"), 1);
    }
}

/// Responses that a member sends slowly for long have half of the places, and the other ones give way to a newcomer.
#[test]
fn one_response_that_drips_ends_for_a_newcomer() {
    let member = slow_member();
    let keys = "connections = 4\nqueue = 8\nqueue_timeout = \"50s\"\n";
    let server = Server::start(&balanced(&[member.url()], keys));
    let mut held = [10, 11, 12, 13].map(|last| {
        let mut wire = send_from(&server, Ipv4Addr::new(127, 0, 0, last), &get("/drip"));
        assert!(status_line(&mut wire).contains(" 200 "));
        wire
    });
    let mut newcomer = send_from(&server, SMALL, &get("/short"));
    newcomer.patience(PATIENCE);
    assert!(status_line(&mut newcomer).contains(" 200 "));
    assert_eq!(server.counter("member_places_refused"), 1);
    // The other three responses have not ended.
    let open = held.each_mut().map(|wire| {
        let _ = wire.socket.set_nonblocking(true);
        let mut end = [0; 4_096];
        !matches!(
            wire.socket
                .read(&mut end)
                .and_then(|_| wire.socket.read(&mut end)),
            Ok(0)
        )
    });
    assert_eq!(open.into_iter().filter(|is_open| *is_open).count(), 3);
}

#[test]
fn a_refusal_of_a_busy_balancer_names_its_cause() {
    let table = [
        (
            4,
            3,
            "queue = 0",
            "the client has its share (3 of 4 places), and `queue` (0) is full",
        ),
        (
            1,
            1,
            "queue = 0",
            "every place is taken, and `queue` (0) is full",
        ),
        (
            1,
            1,
            "queue = 1\nqueue_timeout = \"100ms\"",
            "every place is taken for longer than `queue_timeout` (100ms)",
        ),
    ];
    for (places, held, queue, cause) in table {
        let member = slow_member();
        let keys = format!("connections = {places}\n{queue}\n");
        let server = Server::start(&balanced(&[member.url()], &keys));
        let silent: Vec<Wire> = (0..held)
            .map(|_| send_from(&server, LARGE, &get("/silent")))
            .collect();
        member.wait_for(held);
        assert_eq!(status_of(&server, LARGE, &get("/short")), 503);
        let line = format!("members are busy: GET /short: balancer b: {cause} (rule R744)");
        server.errors.wait_for(cause, |it| it.ends_with(&line));
        let is_share = u64::from(cause.contains("share"));
        assert_eq!(server.counter("member_places_refused"), is_share);
        drop(silent);
    }
}

#[test]
fn a_full_queue_makes_room_for_a_client_without_requests_in_the_queue() {
    let member = slow_member();
    let keys = "connections = 1\nqueue = 2\nqueue_timeout = \"60s\"\n";
    let server = Server::start(&balanced(&[member.url()], keys));
    let held = send_from(&server, LARGE, &get("/silent"));
    member.wait_for(1);
    let mut queued = Vec::new();
    for count in 1..=2 {
        queued.push(send_from(&server, LARGE, &get("/short")));
        wait_until(PATIENCE, "a waiting request", || {
            report(&server)
                .contains(&format!("\"waiting\":{count}"))
                .then_some(())
        });
    }
    let mut small = send_from(&server, SMALL, &get("/short"));
    let dropped = queued[1].response("GET");
    assert_eq!(
        (dropped.status, dropped.field("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(server.counter("member_places_refused"), 1);
    server.errors.wait_for("the cause", |line| {
        line.contains(": balancer b: `queue` (2) is full, and the client has its share (rule R744)")
    });
    drop(held);
    assert_eq!(small.response("GET").status, 200);
    assert_eq!(queued[0].response("GET").status, 200);
}

#[test]
fn a_short_body_behind_expect_is_gathered_before_a_member_is_taken() {
    let member = slow_member();
    let server = Server::start(&balanced(&[member.url()], ""));
    let mut wire = Wire::plain(&server);
    wire.send(
        "POST /short HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(wire.response("POST").status, 100);
    assert_eq!(member.connections(), 0);
    wire.send("hello");
    assert_eq!(wire.response("POST").status, 200);
    let request = member.wait_for(1);
    assert_eq!(
        (request.fields("expect"), &request.body[..]),
        (vec![], &b"hello"[..])
    );
}

/// Returns the number of sockets in TIME_WAIT with the remote port.
fn time_waits(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
    let rows = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let to_port = format!(":{port:04X}");
    rows.filter(|row| row[2].ends_with(&to_port) && row[3] == "06")
        .count()
}

#[test]
fn connections_closed_by_the_server_leave_no_local_port_behind() {
    let member = slow_member();
    let server = Server::start(&balanced(&[member.url()], "idle = 0\n"));
    let mut wire = Wire::plain(&server);
    // Another program may have used the port before.
    let before = time_waits(member.port);
    for _ in 0..20 {
        wire.send("POST /short HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(wire.response("POST").status, 200);
    }
    assert_eq!(member.connections(), 20);
    assert!(time_waits(member.port) <= before);
}

#[test]
fn a_connection_opened_for_post_serves_later_requests() {
    let member = slow_member();
    let server = Server::start(&balanced(&[member.url()], ""));
    let mut wire = Wire::plain(&server);
    wire.send("POST /short HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(wire.response("POST").status, 200);
    for _ in 0..3 {
        assert_eq!(wire.get("/short", "").status, 200);
    }
    assert_eq!(member.connections(), 1);
}

#[test]
fn a_missing_local_address_ejects_no_member() {
    let member = slow_member();
    // No machine has an address of the documentation network.
    let keys = "from = \"192.0.2.1\"\nconnections = 64\nqueue_timeout = \"100ms\"\n";
    let server = Server::start(&balanced(&[member.url()], keys));
    let mut wire = Wire::plain(&server);
    let refused = wire.get("/short", "");
    assert_eq!(
        (refused.status, refused.field("retry-after")),
        (503, Some("1"))
    );
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R766"));
    server.errors.wait_for("advice", |line| {
        line.contains(
            "balancer b: no connection to a member: this machine lacks the address of `from`",
        )
    });
    server.errors.wait_for("the cause", |line| {
        line.ends_with(": this machine has no address 192.0.2.1 (`from`) (rule R766)")
    });
    // The address does not appear by a further attempt.
    let is_repeated = server.errors.wait_until(PATIENCE, "the log", |lines| {
        Some(lines.iter().any(|line| line.contains("tried again")))
    });
    assert!(!is_repeated);
    assert_members_are_up(&server, 1);
}

/// Binds a Unix socket with room for one connection in its queue, and fills the queue.
fn full_unix_member(folder: &Folder) -> (UnixListener, UnixStream) {
    let path = folder.path("member.sock");
    let bound = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    bind(&bound, &SocketAddrUnix::new(&path).expect("a path")).expect("a bound socket");
    listen(&bound, 0).expect("a listening socket");
    let first = UnixStream::connect(&path).expect("a connection");
    (bound.into(), first)
}

/// Answers the connections of a Unix socket.
fn answer_all(listener: UnixListener) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(1..) = stream.read(&mut bytes) {
                    let answer: &[u8] = if bytes.starts_with(b"GET /tunnel") {
                        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                    } else {
                        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nunix"
                    };
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn a_full_queue_of_a_unix_member_leads_to_the_next_member() {
    let member = slow_member();
    let folder = Folder::new().with("public/index.html", "hello");
    let _full = full_unix_member(&folder);
    let unix = format!("http://unix:{}", folder.path("member.sock").display());
    let server = Server::start_in(folder, &balanced(&[unix, member.url()], ""));
    let mut wire = Wire::plain(&server);
    for _ in 0..4 {
        assert_eq!(wire.get("/short", "").text(), "short");
    }
    server.errors.wait_for("the queue", |line| {
        line.contains(
            ": the queue of the Unix socket is full (rule R744); the request is tried again",
        )
    });
    assert_members_are_up(&server, 2);
}

#[test]
fn a_request_waits_for_room_in_the_queue_of_a_unix_member() {
    let folder = Folder::new().with("public/index.html", "hello");
    let (listener, first) = full_unix_member(&folder);
    let unix = format!("http://unix:{}", folder.path("member.sock").display());
    let server = Server::start_in(
        folder,
        &balanced(&[unix], "connections = 64\nqueue_timeout = \"60s\"\n"),
    );
    let mut waiting = send_from(&server, SMALL, &get("/"));
    wait_until(PATIENCE, "an attempt", || {
        report(&server).contains("\"elected\":").then_some(())
    });
    drop(first);
    answer_all(listener);
    assert_eq!(waiting.response("GET").text(), "unix");
    assert_members_are_up(&server, 1);
}

#[test]
fn tunnels_of_one_client_leave_descriptors_to_further_clients() {
    let member = slow_member();
    let config = balanced(&[member.url()], "")
        + "[[site]]\nnames = [\"files.example\"]\n"
        + "root = \"public\"\nhttp = \"serve\"\n";
    let server = start_with_64_descriptors(&config);
    let mut held: Vec<Wire> = (0..28).map(|_| send_from(&server, LARGE, TUNNEL)).collect();
    for wire in &mut held {
        assert_eq!(wire.take(12), b"HTTP/1.1 101");
    }
    // Further tunnels find no descriptor.
    let _refused: Vec<Wire> = (0..40).map(|_| send_from(&server, LARGE, TUNNEL)).collect();
    for address in [SMALL, OTHER, SMALL] {
        assert_eq!(status_of(&server, address, &get("/short")), 200);
        let file = "GET / HTTP/1.1\r\nHost: files.example\r\n\r\n";
        assert_eq!(status_of(&server, address, file), 200);
    }
    assert_members_are_up(&server, 1);
}

/// Starts a server with 64 descriptors for connections, 48 of them for connections to members.
fn start_with_64_descriptors(config: &str) -> Server {
    let folder = Folder::new().with("public/index.html", "hello");
    let mut command = Command::new("sh");
    let binary = crate::support::program();
    command.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\"", binary]);
    Server::start_by(command, folder, config)
}

/// Three clients with a connection each hold all descriptors for members by requests that the member never answers.
#[test]
fn a_silent_request_of_the_largest_client_gives_its_descriptor_to_a_newcomer() {
    let member = slow_member();
    let server = start_with_64_descriptors(&balanced(&[member.url()], ""));
    let mut held = Vec::new();
    let mut all = 0;
    for (address, requests) in [(LARGE, 36), (SMALL, 6), (OTHER, 6)] {
        let mut client = H2::open_from(&server, address);
        for _ in 0..requests {
            client.ask("GET", "/silent", &[], true);
        }
        all += requests;
        wait_until(PATIENCE, "all requests", || {
            (member.connections() == all).then_some(())
        });
        held.push(client);
    }
    let newcomer = Ipv4Addr::new(127, 0, 0, 9);
    assert_eq!(status_of(&server, newcomer, &get("/short")), 200);
    assert_eq!(server.counter("member_places_refused"), 1);
    let ended = held[0].until(frame::HEADERS).stream;
    assert_eq!(held[0].response(ended).status, 503);
    assert_members_are_up(&server, 1);
}

/// Starts a server with a member of HTTP/2 that never answers `/silent`. Each request has a connection of its own.
fn start_with_http_2_member() -> (Server, H2Member) {
    let member = H2Member::start(|request| match request.path() {
        "/silent" => H2Answer::Keep(Frames::default()),
        _ => h2_member::ok(request, "short"),
    });
    let keys = "http2 = true\nsend_proxy_header = \"v1\"\n";
    let server = start_with_64_descriptors(&balanced(&[member.url()], keys));
    (server, member)
}

#[test]
fn silent_requests_of_one_client_over_http_2_leave_descriptors_to_further_clients() {
    let (server, member) = start_with_http_2_member();
    let mut large = H2::open_from(&server, LARGE);
    for _ in 0..60 {
        large.ask("GET", "/silent", &[], true);
    }
    wait_until(PATIENCE, "the share of the client", || {
        (member.count("/silent") == 36).then_some(())
    });
    for address in [SMALL, OTHER] {
        assert_eq!(status_of(&server, address, &get("/short")), 200);
    }
    assert_eq!(member.count("/silent"), 36);
    assert_members_are_up(&server, 1);
}

/// Three clients hold all descriptors for members by requests that the member of HTTP/2 never answers.
#[test]
fn a_silent_request_over_http_2_gives_its_descriptor_to_a_newcomer() {
    let (server, member) = start_with_http_2_member();
    let mut held = Vec::new();
    let mut all = 0;
    for (address, requests) in [(LARGE, 36), (SMALL, 6), (OTHER, 6)] {
        let mut client = H2::open_from(&server, address);
        for _ in 0..requests {
            client.ask("GET", "/silent", &[], true);
        }
        all += requests;
        wait_until(PATIENCE, "all requests", || {
            (member.count("/silent") == all).then_some(())
        });
        held.push(client);
    }
    let newcomer = Ipv4Addr::new(127, 0, 0, 9);
    assert_eq!(status_of(&server, newcomer, &get("/short")), 200);
    assert_eq!(server.counter("member_places_refused"), 1);
    let ended = held[0].until(frame::HEADERS).stream;
    assert_eq!(held[0].response(ended).status, 503);
    assert_members_are_up(&server, 1);
}

#[test]
fn idle_connections_to_members_make_room_for_clients() {
    let member = slow_member();
    let server = start_with_64_descriptors(&balanced(&[member.url()], ""));
    let mut wires: Vec<Wire> = (0..30).map(|_| Wire::of(&server, LARGE.into())).collect();
    for wire in &mut wires {
        wire.send("POST /short HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(wire.response("POST").status, 200);
    }
    // 30 clients and 30 idle connections to the member leave 4 of 64 descriptors.
    let mut more: Vec<Wire> = (0..30).map(|_| Wire::of(&server, SMALL.into())).collect();
    for wire in &mut more {
        assert_eq!(wire.get("/short", "").status, 200);
    }
    assert_eq!(server.counter("connections_given_up"), 0);
    assert_members_are_up(&server, 1);
}

/// Checks that idle connections of HTTP/2 make room for clients, and that the next request opens a new connection.
#[test]
fn idle_connections_of_http_2_make_room_for_clients() {
    let members: Vec<H2Member> = (0..30)
        .map(|_| H2Member::start(|request| h2_member::ok(request, "short")))
        .collect();
    let urls: Vec<String> = members.iter().map(H2Member::url).collect();
    let folder = Folder::new().with("public/index.html", "hello");
    let mut command = Command::new("sh");
    let binary = crate::support::program();
    command.args(["-c", "ulimit -n 128; exec \"$0\" \"$@\"", binary]);
    let config = balanced(&urls, "http2 = true\n")
        + "[[site]]\nnames = [\"files.example\"]\n"
        + "root = \"public\"\nhttp = \"serve\"\n";
    let server = Server::start_by(command, folder, &config);
    let mut wire = Wire::of(&server, LARGE.into());
    for _ in &members {
        assert_eq!(wire.get("/short", "").status, 200);
    }
    let opened = || members.iter().map(H2Member::connections).sum::<usize>();
    assert_eq!(opened(), 30);
    // 30 idle connections leave 33 of 64 descriptors, and 8 of these are for members.
    let mut more: Vec<Wire> = (0..50).map(|_| Wire::of(&server, SMALL.into())).collect();
    for wire in &mut more {
        wire.send("GET / HTTP/1.1\r\nHost: files.example\r\n\r\n");
        assert_eq!(wire.response("GET").status, 200);
    }
    assert_eq!(server.counter("connections_given_up"), 0);
    drop(more);
    for _ in &members {
        assert_eq!(wire.get("/short", "").status, 200);
    }
    assert!(opened() > 30, "{}", opened());
    assert_members_are_up(&server, 30);
}

#[test]
fn a_reload_closes_idle_connections_to_removed_members() {
    let kept = slow_member();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, closed) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = [0; 4096];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return sender.send(None),
                Err(error) => return sender.send(Some(error.kind())),
                Ok(_) => {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngone";
                    stream.write_all(answer).expect("written");
                }
            }
        }
    });
    let server = Server::start(&balanced(&[kept.url(), url], ""));
    let mut wire = Wire::plain(&server);
    for _ in 0..4 {
        assert_eq!(wire.get("/short", "").status, 200);
    }
    server.reload(&balanced(&[kept.url()], ""));
    // The longest idle time is 60 s. The server resets the connection.
    let end = closed
        .recv_timeout(Duration::from_secs(30))
        .expect("the end");
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
}

#[test]
fn silent_connections_to_the_control_socket_make_room() {
    let server = Server::start(&balanced(&[slow_member().url()], ""));
    let path = server.folder.path("anthill.sock");
    let _silent: Vec<UnixStream> = (0..100)
        .map(|_| UnixStream::connect(&path).expect("a connection"))
        .collect();
    assert_eq!(server.counter("member_places_refused"), 0);
}

#[test]
fn the_port_of_an_absolute_target_reaches_the_member() {
    let member = slow_member();
    let server = Server::start(&balanced(&[member.url()], ""));
    let mut wire = Wire::plain(&server);
    wire.send("GET http://localhost:8080/short HTTP/1.1\r\nHost: other.example\r\n\r\n");
    assert_eq!(wire.response("GET").status, 200);
    wire.send("GET http://localhost:8080/short HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(wire.response("GET").status, 200);
    for request in member.requests() {
        assert_eq!(request.fields("host"), ["localhost:8080"]);
        assert_eq!(request.fields("x-forwarded-host"), ["localhost:8080"]);
    }
}

#[test]
fn a_client_that_leaves_before_the_response_is_logged_as_499() {
    let member = slow_member();
    let server = Server::start(&balanced(&[member.url()], ""));
    let upload = format!(
        "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n{}",
        "x".repeat(100_000)
    );
    drop(send_from(&server, SMALL, &upload));
    let line = server
        .output
        .wait_for("the upload", |line| line.contains("/upload"));
    assert!(line.contains("\" 499 "), "{line}");
}
