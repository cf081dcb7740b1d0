//! HTTP/3 with real clients: aioquic, which also plays a faulty client; niquests, which follows Alt-Svc;
//! and Chromium.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use crate::git::Watch;
use crate::h2::{large, server};
use crate::support::pebble::free_port;
use crate::support::python::{python, script};
use crate::support::{
    Folder, Server, anthill, eventually, finish, journal, run, server_table, site_table, spawn,
};

/// A running member in Python. Drop ends the process.
pub struct PythonMember {
    child: Child,
    pub port: u16,
}

impl PythonMember {
    /// Starts a script of tests/support. The script prints the port, and ends with the end of its input.
    pub fn start(name: &str, arguments: &[&Path]) -> PythonMember {
        let mut command = python();
        command.arg(script(name)).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(&mut command).expect("Python");
        let output = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        let port = line.trim().parse().expect("a port");
        PythonMember { child, port }
    }
}

impl Drop for PythonMember {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a scenario of tests/support/h3_client.py and returns the client's output.
pub fn run_scenario(server: &Server, scene: &[&str]) -> String {
    run_scenario_at(server.https_port, scene)
}

/// Runs a scenario of h3_client.py against the server at a port of 127.0.0.1. Returns the client's output.
pub fn run_scenario_at(port: u16, scene: &[&str]) -> String {
    let mut command = python();
    command
        .arg(script("h3_client.py"))
        .arg(port.to_string())
        .args(scene);
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{scene:?}: {done:?}");
    done.stdout.trim().to_owned()
}

/// A client program that holds connections open.
pub struct Holder {
    client: Child,
    said: BufReader<ChildStdout>,
}

impl Holder {
    /// Opens `count` connections and makes one request over each.
    pub fn begin(server: &Server, count: u64) -> Holder {
        Holder::start(server, &["hold", &count.to_string()], "held")
    }

    /// Opens `count` connections on which the server may not open its control stream.
    pub fn without_control_stream(server: &Server, count: u64) -> Holder {
        Holder::start(server, &["hold_mute", &count.to_string()], "held")
    }

    /// Starts a scenario and waits until the client prints `begun`.
    fn start(server: &Server, scene: &[&str], begun: &str) -> Holder {
        let mut command = python();
        command
            .arg(script("h3_client.py"))
            .arg(server.https_port.to_string())
            .args(scene)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut client = spawn(&mut command).expect("a client");
        let said = BufReader::new(client.stdout.take().expect("a pipe"));
        let mut holder = Holder { client, said };
        assert_eq!(holder.line(), begun);
        holder
    }

    /// Waits until `count` connections have ended. Returns the number of connections closed with
    /// H3_NO_ERROR.
    pub fn wait_for_ends(&mut self, count: u64) -> u64 {
        let mut input = self.client.stdin.take().expect("a pipe");
        writeln!(input, "{count}").expect("a client that reads");
        self.line().parse().expect("a number")
    }

    /// Opens a tunnel on one connection.
    pub fn with_tunnel(server: &Server, path: &str) -> Holder {
        Holder::start(server, &["hold_tunnel", path], "open")
    }

    /// Opens a connection with a server name. Each [`Holder::echo`] requests the front page of the named host, and
    /// returns the status; `goaway` waits for GOAWAY.
    pub fn with_site(server: &Server, name: &str) -> Holder {
        Holder::start(server, &["kept", name], "open")
    }

    /// Requests pages on one connection, and takes no byte of the responses.
    pub fn with_requests(server: &Server, paths: &[&str]) -> Holder {
        Holder::start(server, &[&["hold_requests"], paths].concat(), "asked")
    }

    /// Begins an upload over one connection.
    pub fn with_upload(server: &Server, path: &str) -> Holder {
        Holder::start(server, &["reset_upload", path], "sent")
    }

    /// Resets the upload.
    pub fn reset_upload(&mut self) {
        let input = self.client.stdin.as_mut().expect("a pipe");
        writeln!(input).expect("a client that reads");
    }

    /// Sends a line to the client, which a tunnel passes on, and returns the line that comes back.
    pub fn echo(&mut self, line: &str) -> String {
        let input = self.client.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("a client that reads");
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said
            .read_line(&mut line)
            .expect("a client that speaks");
        line.trim().to_owned()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// Returns the status of `/` over a new connection.
pub fn ask_once(server: &Server) -> String {
    run_scenario(server, &["once"])
}

#[test]
fn responses_equal_those_of_other_versions() {
    let server = server("");
    assert_eq!(run_scenario(&server, &["pages"]), "13 answers, 100 at once");
    assert_eq!(server.counter("h3_connections"), 1);
    assert_eq!(server.counter("h3_errors"), 0);
    let lines = server.output.wait_until(
        std::time::Duration::from_secs(60),
        "113 lines in the log",
        |lines| (lines.len() >= 113).then(|| lines.to_vec()),
    );
    let is_h3 = |line: &&String| line.contains(" HTTP/3.0\" ");
    assert_eq!(lines.iter().filter(is_h3).count(), lines.len(), "{lines:?}");
    assert!(
        lines[0].contains("\"GET / HTTP/3.0\" 200 13"),
        "{}",
        lines[0]
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("\"GET /denied HTTP/3.0\" 403"))
    );
}

#[test]
fn a_hundred_megabytes_arrive_whole() {
    let block = large();
    let mut huge = Vec::with_capacity(100 << 20);
    while huge.len() < 100 << 20 {
        huge.extend_from_slice(&block);
    }
    huge.truncate(100 << 20);
    let folder = Folder::new().with("public/huge.bin", &huge);
    let sum = run("sha256sum", &[folder.path("public/huge.bin")], b"");
    let digest = sum.text().split(' ').next().expect("a digest").to_owned();
    let server = Server::start_in(folder, &(server_table("") + &site_table("")));
    let length = huge.len().to_string();
    assert_eq!(
        run_scenario(&server, &["large", "/huge.bin", &length, &digest]),
        "whole"
    );
}

/// A client that opens windows byte by byte makes the server send a frame for each byte, and is cut off. A
/// client that opens windows by small steps is served on.
#[test]
fn windows_opened_byte_by_byte() {
    let server = server("");
    let ended = run_scenario(&server, &["windows", "/large.bin", "1", "1000"]);
    assert_eq!(ended, "0x107 windows opened byte by byte");
    assert_eq!(
        run_scenario(&server, &["windows", "/large.bin", "256", "300"]),
        "open"
    );
    assert_eq!(ask_once(&server), "200");
}

/// Without a common bound each connection would hold 4 MiB, because the first download opens its window.
/// The server ends each connection, even if QUIC has accepted the whole response.
#[test]
fn clients_that_acknowledge_nothing_hold_little_memory() {
    const COUNT: u64 = 12;
    const LENGTH: usize = 3_900_000;
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/big.bin", vec![b'b'; LENGTH]);
    let config = server_table("limits = { write_stall_seconds = 5 }") + &site_table("");
    let server = Server::start_in(folder, &config);
    let memory = Watch::start(server.pid());
    let (length, count) = (LENGTH.to_string(), COUNT.to_string());
    let _client = Holder::start(&server, &["silent", "/big.bin", &length, &count], "silent");
    eventually("each silent client is late", || {
        (server.counter("deadlines") >= COUNT).then_some(())
    });
    let most = memory.peak_bytes();
    println!("at most {most} bytes of memory");
    assert!(most < 28 << 20, "{most}");
    assert_eq!(server.counter("deadlines"), COUNT);
    assert_eq!(ask_once(&server), "200");
}

#[test]
fn live_calls() {
    let server = server("");
    let said = run_scenario(&server, &["live"]);
    assert_eq!(said, "echoed, slow, cancelled, broken off, trailed");
    eventually("two requests without a whole response", || {
        (server.counter("h3_resets") >= 2).then_some(())
    });
    assert_eq!(server.counter("h3_errors"), 0);
}

#[test]
fn a_client_resumes_its_session() {
    let server = server("");
    assert_eq!(
        run_scenario(&server, &["resumption"]),
        "resumed, no early data"
    );
    let handshakes = ["handshakes_full", "handshakes_resumed"].map(|name| server.counter(name));
    assert_eq!(handshakes, [1, 1]);
}

#[test]
fn requests_under_way_are_bounded_for_all_connections_together() {
    let server = server("limits = { streams = 3 }");
    assert_eq!(run_scenario(&server, &["crowded"]), "refused, then served");
}

/// With several workers, packets from the new port must reach the connection's worker.
#[test]
fn a_connection_migrates_to_another_port() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let config = server_table("").replace("workers = 1", "workers = 3")
        + &site_table("http = \"serve\"")
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n";
    let server = Server::start_in(folder, &config);
    for _ in 0..3 {
        assert_eq!(run_scenario(&server, &["migration"]), "moved");
    }
}

#[test]
fn protocol_errors_get_their_codes() {
    let server = server("");
    assert_eq!(
        run_scenario(&server, &["broken"]),
        "29 connections, 8 requests"
    );
    assert_eq!(server.counter("h3_errors"), 29);
    assert_eq!(server.counter("panics"), 0);
}

#[test]
fn floods_are_stopped() {
    let server = server("");
    assert_eq!(run_scenario(&server, &["resets"]), "calmed down");
    assert_eq!(run_scenario(&server, &["garbage"]), "still there");
    assert_eq!(server.counter("panics"), 0);
}

/// More simultaneous handshakes than the server accepts without address validation (Retry, RFC 9000
/// §8.1.2).
#[test]
fn many_simultaneous_handshakes_succeed() {
    let server = server("limits = { connections_per_address = 400 }");
    assert_eq!(run_scenario(&server, &["crowd", "100"]), "all came in");
    assert!(server.counter("h3_retries") >= 100);
}

#[test]
fn a_drain_finishes_requests_and_closes() {
    let server = server("");
    let pid = server.pid().to_string();
    assert_eq!(
        run_scenario(&server, &["drain", &pid]),
        "answered, then closed"
    );
}

/// Without HTTP/3 the server sends no Alt-Svc and opens no UDP port. A reload switches HTTP/3 on and off.
#[test]
fn http_3_is_switched_by_a_reload() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let config = |http3: &str| server_table(http3) + &site_table("http = \"serve\"");
    let server = Server::start_in(folder, &config("http3 = false"));
    let announced = || {
        let ran = server.curl(&["-o", "/dev/null", "-D-", &server.https("/")]);
        ran.text()
            .lines()
            .any(|line| line == format!("alt-svc: h3=\":{}\"; ma=86400", server.https_port))
    };
    assert!(!announced());
    server.reload(&config("http3 = true"));
    assert!(announced());
    assert_eq!(
        run_scenario(&server, &["resumption"]),
        "resumed, no early data"
    );
    server.reload(&config("http3 = false"));
    assert!(!announced());
    server.reload(&config(""));
    assert!(announced());
    assert_eq!(
        run_scenario(&server, &["resumption"]),
        "resumed, no early data"
    );
}

/// Alt-Svc is sent over TLS alone, in HTTP/1.1 and HTTP/2, and names the public port.
#[test]
fn http_3_is_announced_by_alt_svc() {
    let server = server("public_port = 4433");
    for version in ["--http1.1", "--http2"] {
        for path in ["/", "/lost", "/echo", "/old", "/sub/"] {
            let ran = server.curl(&["-D-", "-o", "/dev/null", version, &server.https(path)]);
            let head = ran.text().to_lowercase();
            assert!(
                head.contains("\r\nalt-svc: h3=\":4433\"; ma=86400\r\n"),
                "{version} {path}: {head}"
            );
        }
    }
    let ran = server.curl(&["-D-", "-o", "/dev/null", &server.http("/")]);
    assert!(
        !ran.text().to_lowercase().contains("alt-svc"),
        "{}",
        ran.text()
    );
}

/// HTTP/3 has no client certificate request after the handshake, so a site that requires certificates is
/// not served.
#[test]
fn sites_that_require_a_certificate_are_not_served() {
    let folder = Folder::new()
        .with("open/index.html", "open")
        .with("closed/index.html", "closed");
    let made = rcgen::generate_simple_self_signed(vec!["ca.example".to_owned()]);
    let made = made.expect("a certificate");
    folder.write("ca.pem", made.cert.pem());
    let config = server_table("")
        + "[[site]]\nnames = [\"open.example\"]\nroot = \"open\"\n"
        + "[[site]]\nnames = [\"closed.example\"]\nroot = \"closed\"\nclient_ca = \"ca.pem\"\n";
    let server = Server::start_in(folder, &config);
    assert_eq!(
        run_scenario(&server, &["alone", "closed.example", "open.example"]),
        "refused"
    );
}

/// Another process holds the UDP port: the server warns and sends no Alt-Svc. With `http3 = true` the start
/// fails.
#[test]
fn a_udp_port_in_use() {
    // The TCP port has to stay free until the server starts.
    let port = free_port();
    let _taken = std::net::UdpSocket::bind(("127.0.0.1", port)).expect("a port");
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let config = |http3: &str| {
        server_table(http3).replace(
            "https = [\"127.0.0.1:0\"]",
            &format!("https = [\"127.0.0.1:{port}\"]"),
        ) + &site_table("http = \"serve\"")
    };
    folder.write("anthill.toml", config("http3 = true"));
    let file = folder.path("anthill.toml");
    let done = anthill(&["serve".as_ref(), file.as_os_str()]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("by UDP, which HTTP/3 needs"),
        "{done:?}"
    );
    let server = Server::start_in(folder, &config(""));
    server.errors.wait_for("a warning", |line| {
        line.contains("the address is served without HTTP/3")
    });
    let ran = server.curl(&["-D-", &server.https("/")]);
    assert!(ran.success && !ran.text().to_lowercase().contains("alt-svc"));
}

#[test]
fn niquests_follows_the_announcement() {
    let server = server("");
    let mut command = python();
    command.arg(script("alt_svc.py")).arg(server.https("/"));
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout.trim(), "HTTP/2.0, then HTTP/3.0", "{done:?}");
}

#[test]
fn chromium_loads_the_journal() {
    let root = journal().join("public");
    let root = root.to_str().expect("a path");
    let config = server_table("") + &format!("[[site]]\nnames = [\"*\"]\nroot = \"{root}\"\n");
    let server = Server::start(&config);
    let profile = server.folder.path("profile");
    let origin = format!("localhost:{}", server.https_port);
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        &format!("--origin-to-force-quic-on={origin}"),
        // Chromium would try ::1 first, and no other address.
        "--host-resolver-rules=MAP localhost 127.0.0.1",
        &format!("--ignore-certificate-errors-spki-list={}", key_pin(&server)),
        "--virtual-time-budget=5000",
        &format!("--user-data-dir={}", profile.display()),
        "--dump-dom",
        &format!("https://{origin}/"),
    ];
    let ran = run("chromium", &arguments, b"");
    assert!(
        ran.text().contains("</html>"),
        "{}{}",
        ran.text(),
        ran.errors()
    );
    for path in ["/", "/journal.css", "/journal.js", "/fonts/vollkorn.woff2"] {
        server.output.wait_for(path, |line| {
            line.contains(&format!("\"GET {path} HTTP/3.0\" 200 "))
        });
    }
    let lines = server.output.all();
    let old: Vec<_> = lines
        .iter()
        .filter(|line| !line.contains("HTTP/3.0\""))
        .collect();
    assert!(old.is_empty(), "{old:?}");
}

/// Returns the digest of the server's public key in Chromium's format.
fn key_pin(server: &Server) -> String {
    let made = "openssl s_client -connect \"$0\" </dev/null 2>/dev/null | openssl x509 -pubkey -noout \
        | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64";
    let address = format!("127.0.0.1:{}", server.https_port);
    let ran = run("sh", &["-c", made, &address], b"");
    assert!(ran.success, "{}", ran.errors());
    ran.text().trim().to_owned()
}
