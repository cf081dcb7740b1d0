//! TLS 1.3 connections after their handshake: key updates, idle time, fragmented and broken records, and
//! close_notify.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, Error};

use crate::clients::Authority;
use crate::support::trust::client_config_with;
use crate::support::{Folder, Server, lossy, server_table, site_table, spawn, tool};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HELLO: &str = "<p>hello</p>\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn server() -> Server {
    Server::start(&(server_table("") + &site_table("")))
}

/// A TLS client with access to its raw records.
struct Client {
    tls: ClientConnection,
    socket: TcpStream,
}

impl Client {
    /// Connects and makes `exchanges` requests.
    fn after(server: &Server, exchanges: usize) -> Client {
        let name = ServerName::try_from("localhost").expect("a name");
        let config = client_config_with(&[b"http/1.1"]);
        let socket = TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
        socket.set_nodelay(true).expect("no delay");
        socket.set_read_timeout(Some(PATIENCE)).expect("a deadline");
        let tls = ClientConnection::new(config, name).expect("a client");
        let mut client = Client { tls, socket };
        for _ in 0..exchanges {
            client.exchange();
        }
        client
    }

    /// Returns the records of `plain`, and of all other pending bytes.
    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::new();
        self.tls.writer().write_all(plain).expect("sealed");
        while self.tls.wants_write() {
            self.tls.write_tls(&mut sealed).expect("into a Vec");
        }
        sealed
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    /// Sends one request and reads the response.
    fn exchange(&mut self) {
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        stream.write_all(REQUEST).expect("sent");
        self.answered();
    }

    fn answered(&mut self) {
        let mut stream = rustls::Stream::new(&mut self.tls, &mut self.socket);
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(HELLO.as_bytes()) {
            stream.read_exact(&mut byte).expect("a response");
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", lossy(&answer));
    }

    /// Reads to the end of the connection and returns the alert, the only permitted bytes.
    fn refused(mut self) -> Option<AlertDescription> {
        let mut said = Vec::new();
        // The connection may be reset, because the server does not read further bytes after a refusal.
        let _ = self.socket.read_to_end(&mut said);
        let mut rest = &said[..];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest).expect("from a slice");
            match self.tls.process_new_packets() {
                Ok(_) => {}
                Err(Error::AlertReceived(alert)) => return Some(alert),
                Err(error) => panic!("{error}"),
            }
        }
        None
    }
}

#[test]
fn keys_are_renewed_at_any_time() {
    let server = server();
    for exchanges in [1, 2, 5] {
        let mut client = Client::after(&server, exchanges);
        for _ in 0..3 {
            client.tls.refresh_traffic_keys().expect("new keys");
            client.exchange();
        }
    }
}

/// The first KeyUpdate arrives while rustls still owns the connection.
#[test]
fn keys_are_renewed_with_the_first_request() {
    let server = server();
    let mut client = Client::after(&server, 0);
    let mut hello = rustls::Stream::new(&mut client.tls, &mut client.socket);
    hello.flush().expect("a handshake");
    while client.tls.is_handshaking() {
        client
            .tls
            .complete_io(&mut client.socket)
            .expect("a handshake");
    }
    for _ in 0..4 {
        client.tls.refresh_traffic_keys().expect("new keys");
        client.exchange();
        client.exchange();
    }
}

/// openssl s_client renews its keys by an interactive command and requests the server's new keys.
#[test]
fn openssl_renews_its_keys() {
    let server = server();
    let address = format!("127.0.0.1:{}", server.https_port);
    let mut client = Interactive::start(&["s_client", "-tls1_3", "-connect", &address]);
    for _ in 0..3 {
        client.write(REQUEST);
        client.read_until(HELLO);
        client.write(b"K\n");
        client.wait_for("KEYUPDATE");
    }
    client.write(REQUEST);
    client.read_until(HELLO);
}

/// A worker with more than 100 connections releases the memory of a connection as soon as the connection is idle, and
/// not after a second of silence.
#[test]
fn a_connection_outlives_the_release_of_its_memory() {
    let server = server();
    let others: Vec<TcpStream> = (0..101).map(|_| server.connect()).collect();
    for exchanges in [1, 2] {
        let mut client = Client::after(&server, exchanges);
        client.exchange();
        client.tls.refresh_traffic_keys().expect("new keys");
        client.exchange();
    }
    drop(others);
}

#[test]
fn records_may_arrive_in_any_pieces() {
    let server = server();
    for exchanges in [1, 2] {
        let mut client = Client::after(&server, exchanges);
        let mut sealed = client.seal(&REQUEST[..10]);
        sealed.extend(client.seal(&REQUEST[10..]));
        for byte in sealed {
            client.send(&[byte]);
            thread::sleep(Duration::from_millis(1));
        }
        client.answered();
        // Many records in one segment.
        let mut sealed = Vec::new();
        for byte in REQUEST {
            sealed.extend(client.seal(&[*byte]));
        }
        client.send(&sealed);
        client.answered();
    }
}

/// A record may begin with as many bytes as a close_notify record has in all.
#[test]
fn the_beginning_of_a_record_is_no_close_notify() {
    let server = server();
    for exchanges in [1, 2] {
        for len in [5, 23, 24, 25] {
            let mut client = Client::after(&server, exchanges);
            let sealed = client.seal(REQUEST);
            client.send(&sealed[..len]);
            thread::sleep(Duration::from_millis(100));
            client.send(&sealed[len..]);
            client.answered();
            client.exchange();
        }
    }
}

/// Reads until the server ends the connection.
fn read_until_closed(socket: &mut TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).expect("a deadline");
    match socket.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        // The server does not read further bytes after a refusal.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_client_hello_without_end_is_refused() {
    // A handshake record with the beginning of a ClientHello of 65,535 bytes.
    let mut hello = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff, 3, 3];
    hello.resize(5 + 0x4000, 0);
    hello.extend_from_slice(&[0x16, 3, 1, 0x40, 0]);
    hello.resize(hello.len() + 1_000, 0);
    let guarded = "client_ca = \"ca.pem\"\n";
    for site in ["", guarded] {
        let folder = Folder::new()
            .with("public/index.html", HELLO)
            .with("ca.pem", Authority::new("a CA").pem);
        let config = server_table("limits = { handshake_seconds = 600 }") + &site_table("") + site;
        let server = Server::start_in(folder, &config);
        let connect = || TcpStream::connect(("127.0.0.1", server.https_port)).expect("there");
        let mut short = connect();
        short.write_all(&hello[..0x3000]).expect("sent");
        let mut socket = connect();
        socket.write_all(&hello).expect("sent");
        read_until_closed(&mut socket);
        short.set_nonblocking(true).expect("set");
        let waits = short.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(waits, Err(ErrorKind::WouldBlock), "12 KiB are allowed");
        assert_eq!(server.counter("handshakes_failed"), 1);
    }
}

#[test]
fn an_incomplete_record_has_the_deadline_of_a_head() {
    let limits = "limits = { head_seconds = 1, idle_seconds = 600 }";
    let server = Server::start(&(server_table(limits) + &site_table("")));
    for exchanges in [1, 2] {
        let mut idle = Client::after(&server, exchanges);
        let mut client = Client::after(&server, exchanges);
        let record = client.seal(&[b'x'; 1_000]);
        client.send(&record[..900]);
        read_until_closed(&mut client.socket);
        idle.exchange();
    }
    assert_eq!(server.counter("deadlines"), 2);
}

#[test]
fn a_broken_record_ends_only_its_connection() {
    let server = server();
    let mut other = Client::after(&server, 2);
    for exchanges in [1, 2, 3] {
        let mut client = Client::after(&server, exchanges);
        let mut sealed = client.seal(REQUEST);
        let last = sealed.len() - 1;
        sealed[last] ^= 1;
        client.send(&sealed);
        assert_eq!(client.refused(), Some(AlertDescription::BadRecordMac));
        let mut client = Client::after(&server, exchanges);
        client.send(b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(client.refused(), Some(AlertDescription::UnexpectedMessage));
    }
    other.exchange();
}

#[test]
fn a_close_notify_is_answered_with_a_close_notify() {
    let server = server();
    for exchanges in [1, 2, 3] {
        let mut client = Client::after(&server, exchanges);
        client.tls.send_close_notify();
        let goodbye = client.seal(b"");
        client.send(&goodbye);
        let mut rest = Vec::new();
        let mut stream = rustls::Stream::new(&mut client.tls, &mut client.socket);
        stream.read_to_end(&mut rest).expect("a goodbye, not a cut");
        assert_eq!(lossy(&rest), "");
    }
}

/// An interactive client, driven through its pipes.
struct Interactive {
    child: Child,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

impl Interactive {
    fn start(arguments: &[&str]) -> Interactive {
        let mut command = Command::new("timeout");
        command
            .arg("60")
            .arg(tool("openssl"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(&mut command).expect("openssl");
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        Interactive {
            child,
            stdout,
            stderr,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(bytes).expect("a listening client");
    }

    fn read_until(&mut self, end: &str) {
        until(&mut self.stdout, end);
    }

    fn wait_for(&mut self, end: &str) {
        until(&mut self.stderr, end);
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(pipe: &mut impl Read, end: &str) {
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(end.as_bytes()) {
        match pipe.read(&mut byte) {
            Ok(1) => said.push(byte[0]),
            _ => panic!("the output ended before {end:?}: {}", lossy(&said)),
        }
    }
}
