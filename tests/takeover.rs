//! Takeover: `serve --replace`. A running server hands its addresses to a successor, and no client notices.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{
    Folder, Lines, Server, anthill, eventually, program, run, server_table, site_table,
};

/// Deadline of every read: longer than the slowest step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Only browsers count for the hits.
const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Firefox/140.0";
/// Bytes of a file that no socket buffer holds.
const LARGE: usize = 32 << 20;

fn config() -> String {
    let server = server_table("").replace("workers = 1", "workers = 2");
    server + &site_table("http = \"serve\"\nhits = true\n")
}

fn server() -> Server {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    fs::write(folder.path("public/large.bin"), vec![b'x'; LARGE]).expect("a file");
    Server::start_in(folder, &config())
}

/// Process beside the first server. Drop kills the process.
struct Successor {
    child: Child,
    errors: Lines,
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Successor {
    /// Starts a program with the configuration of the server.
    fn start(server: &Server) -> Successor {
        let mut command = Command::new(program());
        command.args(["serve", "--replace"]);
        command.arg(server.folder.path("anthill.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a program");
        let errors = Lines::of(child.stderr.take().expect("a pipe"));
        Successor { child, errors }
    }

    /// Starts a successor, and returns when it serves.
    fn serving(server: &Server) -> Successor {
        let successor = Successor::start(server);
        let line = |line: &str| line.starts_with("ready");
        successor.errors.wait_for("`ready`", line);
        successor
    }
}

/// Returns a part of `anthill status --json`, evaluated by Python.
fn status(server: &Server, look: &str) -> String {
    let done = server.ask(&["status", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let look = format!("import json, sys; status = json.load(sys.stdin); print({look})");
    let ran = run("python3", &["-c", &look], done.stdout.as_bytes());
    assert!(ran.success, "{}\n{}", ran.errors(), done.stdout);
    ran.text().trim().to_owned()
}

fn is_alive(process: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{process}/stat"));
    state.is_ok_and(|stat| {
        !stat
            .rsplit_once(") ")
            .is_some_and(|it| it.1.starts_with('Z'))
    })
}

fn connect(port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends a request, and returns the response, which has the body of the index.
fn ask(stream: &mut TcpStream, connection: &str) -> std::io::Result<String> {
    let request = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\n{BROWSER}\r\nConnection: {connection}\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut text = Vec::new();
    while !text.ends_with(b"<p>hello</p>\n") {
        let mut bytes = [0; 4_096];
        match stream.read(&mut bytes)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => text.extend_from_slice(&bytes[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn get(port: u16) -> std::io::Result<String> {
    ask(&mut connect(port)?, "close")
}

#[test]
fn restarts_under_load_fail_no_request() {
    let server = server();
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut successors: Vec<Successor> = Vec::new();
    thread::scope(|scope| {
        let fresh = || {
            while !done.load(Ordering::Relaxed) {
                get(server.http_port).expect("a response");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        };
        let kept = || {
            let mut stream = connect(server.http_port).expect("a connection");
            while !done.load(Ordering::Relaxed) {
                let response = ask(&mut stream, "keep-alive").expect("a response");
                answered.fetch_add(1, Ordering::Relaxed);
                if response.to_ascii_lowercase().contains("connection: close") {
                    stream = connect(server.http_port).expect("a connection");
                }
            }
        };
        let secure = || {
            while !done.load(Ordering::Relaxed) {
                let url = server.https("/");
                let arguments = ["-sSk", "--max-time", "90", "-H", BROWSER, &url, &url];
                let ran = run("curl", &arguments, b"");
                assert_eq!(
                    ran.text(),
                    "<p>hello</p>\n<p>hello</p>\n",
                    "{}",
                    ran.errors()
                );
                answered.fetch_add(2, Ordering::Relaxed);
            }
        };
        let threads = [
            scope.spawn(fresh),
            scope.spawn(fresh),
            scope.spawn(kept),
            scope.spawn(kept),
            scope.spawn(secure),
        ];
        for _ in 0..6 {
            let before = answered.load(Ordering::Relaxed);
            eventually("load", || {
                let is_busy = answered.load(Ordering::Relaxed) > before + 20;
                let has_failed = threads.iter().any(|it| it.is_finished());
                (is_busy || has_failed).then_some(())
            });
            successors.push(Successor::serving(&server));
        }
        done.store(true, Ordering::Relaxed);
    });
    let youngest = successors.last().expect("a successor").child.id();
    assert_eq!(status(&server, "status['pid']"), youngest.to_string());
    // Servers that leave write their last counts at their end.
    eventually("the end of all former servers", || {
        let former = successors[..5].iter().map(|it| it.child.id());
        let mut former = former.chain([server.pid()]);
        (!former.any(is_alive)).then_some(())
    });
    eventually("an empty list", || {
        (status(&server, "status['predecessors']") == "[]").then_some(())
    });
    let hits = server.ask(&["hits", "--json", "*"]).stdout;
    let count = format!(
        "{{\"path\":\"/\",\"views\":{},",
        answered.load(Ordering::Relaxed)
    );
    assert!(hits.contains(&count), "{count} in:\n{hits}");
}

#[test]
fn connections_stay_until_their_next_response_and_transfers_until_their_end() {
    let server = server();
    let first = server.pid();
    let mut idle = connect(server.http_port).expect("a connection");
    ask(&mut idle, "keep-alive").expect("a response");
    let mut large = connect(server.http_port).expect("a connection");
    large
        .write_all(b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut start = [0; 1_000];
    large
        .read_exact(&mut start)
        .expect("the start of a response");
    let successor = Successor::serving(&server);
    let second = successor.child.id().to_string();
    assert_eq!(status(&server, "status['pid']"), second);
    let listed = eventually("connections", || {
        let look =
            "[(it['pid'], it['connections'], it['requests']) for it in status['predecessors']]";
        let listed = status(&server, look);
        listed.contains(", 2, 1)").then_some(listed)
    });
    assert_eq!(listed, format!("[({first}, 2, 1)]"));
    let shown = server.ask(&["status"]).stdout;
    assert!(
        shown.contains("leaves: 2 connections, 1 requests under way"),
        "{shown}"
    );
    let response = ask(&mut idle, "keep-alive").expect("a response");
    assert!(
        response.to_ascii_lowercase().contains("connection: close"),
        "{response}"
    );
    let mut rest = Vec::new();
    large.read_to_end(&mut rest).expect("a whole file");
    assert!(rest.len() + start.len() > LARGE);
    eventually("the end of the former server", || {
        (!is_alive(first)).then_some(())
    });
    let lines = server.errors.all();
    assert!(
        lines
            .iter()
            .any(|it| it.contains("the last connection has ended")),
        "{lines:?}"
    );
    assert!(get(server.http_port).is_ok());
    // The successor has the path of the control socket, and removes the socket at its end.
    let done = server.ask(&["stop"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!server.folder.path("anthill.sock").exists());
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let server = server();
    server
        .folder
        .write("anthill.toml", config() + "lisiting = true\n");
    let mut successor = Successor::start(&server);
    let ended = successor.child.wait().expect("an end");
    assert_eq!(ended.code(), Some(2));
    server.folder.write("anthill.toml", config());
    assert_eq!(status(&server, "status['pid']"), server.pid().to_string());
    assert!(get(server.http_port).is_ok());
}

#[test]
fn another_number_of_workers_and_other_addresses_are_taken_over() {
    let server = server();
    for workers in [5, 1, 3] {
        let text = format!("workers = {workers}");
        server
            .folder
            .write("anthill.toml", config().replace("workers = 2", &text));
        let waiting: Vec<_> = (0..20).map(|_| connect(server.http_port)).collect();
        let successor = Successor::serving(&server);
        assert_eq!(status(&server, "status['workers']"), workers.to_string());
        // No worker has seen the connections, or each of them is open.
        for stream in waiting {
            ask(&mut stream.expect("a connection"), "close").expect("a response");
        }
        for _ in 0..20 {
            get(server.http_port).expect("a response");
        }
        std::mem::forget(successor);
    }
    let done = server.ask(&["stop"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Part of a successor, in Python: asks, receives the link, and carries out the steps.
fn false_successor(server: &Server, steps: &str) -> String {
    let socket = server.folder.path("anthill.sock");
    let code = format!(
        "import array, os, socket, sys, time\n\
         control = socket.socket(socket.AF_UNIX)\n\
         control.connect({socket:?})\n\
         control.sendall(b'replace 1\\n')\n\
         data, passed, _, _ = socket.recv_fds(control, 4096, 8)\n\
         link = socket.socket(fileno=passed[0]) if passed else None\n\
         if link: link.setblocking(True)\n\
         def read():\n\
         \x20   packet, passed, _, _ = socket.recv_fds(link, 4096, 64)\n\
         \x20   return packet.decode()\n\
         def read_until(word):\n\
         \x20   packets = []\n\
         \x20   while not packets or not packets[-1].startswith(word):\n\
         \x20       packets.append(read())\n\
         \x20   return packets\n\
         {steps}\n"
    );
    let ran = run("python3", &["-c", &code], b"");
    assert!(ran.success, "{}", ran.errors());
    ran.text()
}

#[test]
fn a_successor_that_ends_at_any_stage_leaves_the_server_in_use() {
    let server = server();
    for steps in [
        "pass",
        "read()",
        "read_until('complete')",
        "read_until('complete'); link.send(b'nonsense')",
        "read_until('complete'); link.send(b'serving 1 1 0.0.0'); link.send(b'yield')",
        "read_until('complete'); link.send(b'yield')",
        "read_until('complete'); link.send(b'yield'); read_until('yielded')",
        "read_until('complete'); link.send(b'yield'); read_until('yielded'); link.send(b'\\xff')",
    ] {
        false_successor(&server, steps);
        let answer = get(server.http_port);
        assert!(answer.is_ok(), "{steps}: {answer:?}");
        eventually("commands", || {
            let done = server.ask(&["status", "--json"]);
            let own = format!("\"pid\":{},", server.pid());
            (done.code == Some(0) && done.stdout.contains(&own)).then_some(())
        });
        eventually("a reload", || {
            (server.ask(&["reload"]).code == Some(0)).then_some(())
        });
    }
    // A real successor still can take over.
    let successor = Successor::serving(&server);
    assert_eq!(
        status(&server, "status['pid']"),
        successor.child.id().to_string()
    );
}

#[test]
fn a_successor_that_hangs_gives_way_after_a_while() {
    let server = server();
    let steps = "read_until('complete'); link.send(b'yield'); read_until('yielded')\n\
                 print(read_until('refused')[-1])";
    let text = false_successor(&server, steps);
    assert_eq!(text.trim(), "refused it took too long");
    assert!(get(server.http_port).is_ok());
}

#[test]
fn one_successor_at_a_time() {
    let server = server();
    let second = "other = socket.socket(socket.AF_UNIX)\n\
                  other.connect(control.getpeername())\n\
                  other.sendall(b'replace 1\\n')\n\
                  print(other.recv(4096).decode())";
    let text = false_successor(&server, second);
    assert!(
        text.contains("another process takes over just now"),
        "{text}"
    );
    server.errors.wait_for("the end of the first", |line| {
        line.contains("does not serve")
    });
}

#[test]
fn without_a_server_nothing_is_replaced() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.write("anthill.toml", config());
    let done = anthill(&[
        "serve",
        "--replace",
        folder.path("anthill.toml").to_str().expect("text"),
    ]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr
            .contains("no server runs that could be replaced"),
        "{done:?}"
    );
}
