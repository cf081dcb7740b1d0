//! A raw connection, plain or TLS. The client sends exactly the bytes given, and reads response by response
//! with the strict framing of RFC 9112 §6.3.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

use super::trust::client_config_with;
use super::{Server, lossy, spawn};

/// Calls `look` every few milliseconds until `look` returns a value. Fails after the deadline.
pub fn wait_until<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "after {deadline:?} not {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Both transports of a server, for tests that expect equal responses over both.
pub const BOTH: [Over; 2] = [Over::Plain, Over::Tls];

/// The transport of a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Over {
    Plain,
    Tls,
}

trait Bytes: Read + Write + Send {}
impl<T: Read + Write + Send> Bytes for T {}

/// A connection and its bytes read ahead.
pub struct Wire {
    stream: Box<dyn Bytes>,
    /// The TCP socket below TLS or below plain HTTP.
    pub socket: TcpStream,
    ahead: Vec<u8>,
}

/// A parsed response. Two responses are equal if they differ in their dates alone.
#[derive(Clone)]
pub struct Response {
    pub status: u16,
    /// Fields with their names as sent.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the body reached the end announced by its framing.
    pub whole: bool,
    /// Fields of the trailer section.
    pub trailers: Vec<(String, String)>,
    /// Interim responses before the response. Over HTTP/1.1 each interim response is read by itself.
    pub interim: Vec<Response>,
}

impl Response {
    /// Returns the value of the only field with the name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self
            .fields
            .iter()
            .filter(|(its, _)| its.eq_ignore_ascii_case(name));
        let value = values.next();
        assert!(values.next().is_none(), "{name} twice in {self:?}");
        value.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        lossy(&self.body)
    }

    /// Returns true if the response announces the end of the connection.
    pub fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }
}

impl PartialEq for Response {
    fn eq(&self, other: &Response) -> bool {
        let undated = |response: &Response| {
            let mut fields = response.fields.clone();
            fields.retain(|(name, _)| name != "Date");
            (response.status, fields, response.whole)
        };
        undated(self) == undated(other) && self.body == other.body
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.fields {
            writeln!(f, "{name}: {value}")?;
        }
        let shown = &self.body[..self.body.len().min(200)];
        let whole = if self.whole { "whole" } else { "cut" };
        write!(f, "({} bytes, {whole}) {}", self.body.len(), lossy(shown))
    }
}

impl Wire {
    pub fn plain(server: &Server) -> Wire {
        let socket = server.connect();
        let stream = Box::new(socket.try_clone().expect("a second descriptor"));
        Wire {
            stream,
            socket,
            ahead: Vec::new(),
        }
    }

    /// Takes a connected socket without TLS.
    pub fn plain_on(socket: TcpStream) -> Wire {
        let patience = Some(super::READ);
        socket.set_read_timeout(patience).expect("a read time-out");
        Wire {
            stream: Box::new(socket.try_clone().expect("a second descriptor")),
            socket,
            ahead: Vec::new(),
        }
    }

    /// Connects from another loopback address.
    pub fn of(server: &Server, address: IpAddr) -> Wire {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let from = SocketAddr::new(address, 0);
        socket.bind(&from.into()).expect("another address");
        let to: SocketAddr = ([127, 0, 0, 1], server.http_port).into();
        socket.connect(&to.into()).expect("a connection");
        let socket = TcpStream::from(socket);
        let patience = Some(super::READ);
        socket.set_read_timeout(patience).expect("a read time-out");
        Wire {
            stream: Box::new(socket.try_clone().expect("a second descriptor")),
            socket,
            ahead: Vec::new(),
        }
    }

    /// Shrinks the socket's receive buffer to 4 KiB. Without the limit the kernel takes megabytes for a
    /// client that does not read.
    pub fn shrink_receive_buffer(&self) {
        let socket = socket2::SockRef::from(&self.socket);
        socket.set_recv_buffer_size(4_096).expect("a small buffer");
    }

    /// Connects with a receive buffer of 4 KiB, set before connect(2), so that the first TCP window is
    /// small too.
    pub fn with_small_receive_buffer(server: &Server, over: Over, alpn: &[&[u8]]) -> Wire {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4_096).expect("a small buffer");
        let port = match over {
            Over::Plain => server.http_port,
            Over::Tls => server.https_port,
        };
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into();
        socket.connect(&to).expect("a connection");
        let socket = TcpStream::from(socket);
        if over == Over::Tls {
            return Wire::tls_on(socket, "localhost", alpn);
        }
        let patience = Some(super::READ);
        socket.set_read_timeout(patience).expect("a read time-out");
        Wire {
            stream: Box::new(socket.try_clone().expect("a second descriptor")),
            socket,
            ahead: Vec::new(),
        }
    }

    /// Connects over TLS and accepts any certificate.
    pub fn tls(server: &Server) -> Wire {
        Wire::tls_as(server, "localhost", &[])
    }

    /// Connects over TLS with the server name and the application protocols.
    pub fn tls_as(server: &Server, name: &str, alpn: &[&[u8]]) -> Wire {
        let socket = TcpStream::connect(("127.0.0.1", server.https_port)).expect("a connection");
        Wire::tls_on(socket, name, alpn)
    }

    /// Connects over TLS from another loopback address.
    pub fn tls_from(server: &Server, from: Ipv4Addr, name: &str, alpn: &[&[u8]]) -> Wire {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let own = SocketAddr::from((from, 0)).into();
        socket.bind(&own).expect("an address");
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, server.https_port)).into();
        socket.connect(&to).expect("a connection");
        Wire::tls_on(socket.into(), name, alpn)
    }

    /// Begins TLS on a connected socket.
    pub fn tls_on(socket: TcpStream, name: &str, alpn: &[&[u8]]) -> Wire {
        Wire::tls_by(socket, name, client_config_with(alpn))
    }

    /// Begins TLS on a connected socket with a configuration of the client.
    pub fn tls_by(socket: TcpStream, name: &str, config: Arc<ClientConfig>) -> Wire {
        socket.set_nodelay(true).expect("no delay");
        let patience = Some(super::READ);
        socket.set_read_timeout(patience).expect("a read time-out");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connection = ClientConnection::new(config, name).expect("a TLS client");
        let below = socket.try_clone().expect("a second descriptor");
        Wire {
            stream: Box::new(StreamOwned::new(connection, below)),
            socket,
            ahead: Vec::new(),
        }
    }

    pub fn over(server: &Server, over: Over) -> Wire {
        match over {
            Over::Plain => Wire::plain(server),
            Over::Tls => Wire::tls(server),
        }
    }

    /// Sends bytes and returns true on success. A connection already closed by the server is no failure of
    /// the test: the server's response is the result.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream
            .write_all(bytes.as_ref())
            .and_then(|()| self.stream.flush())
            .is_ok()
    }

    /// Sends one byte at a time, each in its own packet.
    pub fn drip(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref() {
            if !self.send([*byte]) {
                return;
            }
        }
    }

    /// Sends `GET path` with further fields, each terminated by CRLF, and returns the response.
    pub fn get(&mut self, path: &str, fields: &str) -> Response {
        self.ask("GET", path, fields)
    }

    pub fn ask(&mut self, method: &str, path: &str, fields: &str) -> Response {
        self.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
        ));
        self.response(method)
    }

    /// Returns the next response, to a request with the method.
    pub fn response(&mut self, method: &str) -> Response {
        self.next_response(method)
            .expect("a response, but the server closed")
    }

    /// Returns the next response, or None if the server closes first.
    pub fn next_response(&mut self, method: &str) -> Option<Response> {
        let head = self.head()?;
        let mut lines = head.split("\r\n");
        let first = lines.next().expect("a status line");
        let status = first
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no status line: {first:?}"));
        let fields = lines.map(|line| {
            let (name, value) = line.split_once(':').expect("a colon");
            (name.to_owned(), value.trim().to_owned())
        });
        let mut response = Response {
            status,
            fields: fields.collect(),
            body: Vec::new(),
            whole: true,
            trailers: Vec::new(),
            interim: Vec::new(),
        };
        let bodiless = method == "HEAD" || matches!(status, 100..=199 | 204 | 304);
        if !bodiless {
            self.read_body(&mut response);
        }
        Some(response)
    }

    fn read_body(&mut self, response: &mut Response) {
        if response.field("transfer-encoding") == Some("chunked") {
            return self.read_chunks(response);
        }
        let Some(length) = response.field("content-length") else {
            response.body = self.rest();
            return;
        };
        let length = length.parse().expect("a length");
        response.body = self.take(length);
        response.whole = response.body.len() == length;
    }

    fn read_chunks(&mut self, response: &mut Response) {
        response.whole = false;
        loop {
            let Some(line) = self.until(b"\r\n") else {
                return;
            };
            let size = lossy(&line[..line.len() - 2]);
            let size = usize::from_str_radix(&size, 16).expect("a chunk's size");
            if size == 0 {
                return self.read_trailers(response);
            }
            let chunk = self.take(size + 2);
            if chunk.len() < size + 2 {
                response
                    .body
                    .extend_from_slice(&chunk[..chunk.len().min(size)]);
                return;
            }
            assert_eq!(&chunk[size..], b"\r\n", "the end of a chunk");
            response.body.extend_from_slice(&chunk[..size]);
        }
    }

    fn read_trailers(&mut self, response: &mut Response) {
        while let Some(line) = self.until(b"\r\n") {
            let line = lossy(&line[..line.len() - 2]);
            let Some((name, value)) = line.split_once(':') else {
                assert_eq!(line, "", "a trailer line");
                response.whole = true;
                return;
            };
            let field = (name.to_owned(), value.trim().to_owned());
            response.trailers.push(field);
        }
    }

    fn head(&mut self) -> Option<String> {
        let head = self.until(b"\r\n\r\n")?;
        Some(lossy(&head[..head.len() - 4]))
    }

    /// Waits for the first bytes of the next response without consuming them.
    pub fn begins(&mut self) {
        assert!(
            !self.ahead.is_empty() || self.read_more(),
            "the connection ended"
        );
    }

    /// Returns all bytes up to and including `end`, or None if the connection ends first.
    pub fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.ahead.windows(end.len()).position(|part| part == end);
            if let Some(at) = found {
                return Some(self.ahead.drain(..at + end.len()).collect());
            }
            if !self.read_more() {
                assert!(
                    self.ahead.is_empty(),
                    "the connection ended within {:?}",
                    lossy(&self.ahead)
                );
                return None;
            }
        }
    }

    /// Returns `count` bytes, or fewer if the connection ends first.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        while self.ahead.len() < count && self.read_more() {}
        let count = count.min(self.ahead.len());
        self.ahead.drain(..count).collect()
    }

    /// Returns all bytes up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.ahead)
    }

    /// Waits for the server to close. Fails if further bytes arrive.
    pub fn ends(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "unexpected bytes: {:?}", lossy(&rest));
    }

    /// Shuts the client's sending direction down.
    pub fn finish(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Sets the read timeout of all further reads.
    pub fn patience(&self, patience: Duration) {
        self.socket
            .set_read_timeout(Some(patience))
            .expect("a read time-out");
    }

    /// Reads more bytes. Returns false after the end of the connection, whether orderly or by an error.
    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.ahead.extend_from_slice(&buffer[..read]);
                true
            }
            Err(error) if is_timeout(error.kind()) => panic!(
                "neither bytes nor the end of the connection in time; received: {:?}",
                lossy(&self.ahead[..self.ahead.len().min(2_000)])
            ),
            // A TCP reset, or an end without TLS's close_notify.
            Err(_) => false,
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl Server {
    /// Returns a counter from `anthill status --json`.
    pub fn counter(&self, name: &str) -> u64 {
        let mut command = Command::new(crate::support::program());
        command
            .args(["status", "--json"])
            .arg(self.folder.path("anthill.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = spawn(&mut command).expect("anthill status");
        let ran = child.wait_with_output().expect("anthill status");
        let said = lossy(&ran.stdout);
        let value = said.split_once(&format!("\"{name}\":")).map(|(_, rest)| {
            let end = rest.find(|c: char| !c.is_ascii_digit());
            rest[..end.unwrap_or(rest.len())].parse()
        });
        match value {
            Some(Ok(value)) => value,
            _ => panic!("no {name} in {said}{}", lossy(&ran.stderr)),
        }
    }

    /// Returns the processor time used so far by all threads of the server, in ticks of 10 ms.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("stat");
        let (_, after_name) = stat.rsplit_once(") ").expect("a name");
        // utime and stime, the 14th and 15th field of proc(5), counted from the 3rd.
        let ticks = after_name.split(' ').skip(11).take(2);
        ticks
            .map(|ticks| ticks.parse::<u64>().expect("ticks"))
            .sum()
    }

    /// Returns the server's anonymous memory in KiB. Code pages do not count: the server releases code
    /// pages after the start, and later execution maps the pages again.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the process's status");
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let digits = line.and_then(|line| line.split_whitespace().nth(1));
        digits.expect("RssAnon").parse().expect("a number")
    }
}
