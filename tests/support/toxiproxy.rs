//! toxiproxy: TCP proxies that disturb the connections between the server and its members. A disturbance is a
//! "toxic" of one direction: upstream are the bytes to the member, downstream are the bytes of the member.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pebble::free_port;
use super::{built_tool, eventually, lossy, spawn};

/// A running toxiproxy. Drop kills the process.
pub struct Toxiproxy {
    child: Child,
    port: u16,
}

/// A TCP proxy to one member.
pub struct DisturbedLink<'t> {
    toxiproxy: &'t Toxiproxy,
    name: String,
    /// Port of the proxy.
    pub port: u16,
}

impl Toxiproxy {
    pub fn start() -> Toxiproxy {
        let port = free_port();
        let mut command = Command::new(built_tool("toxiproxy-server"));
        command.args(["-host", "127.0.0.1", "-port", &port.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = spawn(&mut command).expect("toxiproxy-server");
        eventually("toxiproxy's port", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Toxiproxy { child, port }
    }

    /// Opens a proxy to a port of the loopback address.
    pub fn link(&self, to: u16) -> DisturbedLink<'_> {
        static LINKS: AtomicUsize = AtomicUsize::new(0);
        let name = format!("link-{}", LINKS.fetch_add(1, Ordering::Relaxed));
        let body = format!(
            r#"{{"name":"{name}","listen":"127.0.0.1:0","upstream":"127.0.0.1:{to}","enabled":true}}"#
        );
        let created = self.exchange("POST", "/proxies", &body);
        let address = created.split_once(r#""listen":"127.0.0.1:"#);
        let port = address.and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
        DisturbedLink {
            toxiproxy: self,
            name,
            port: port.unwrap_or_else(|| panic!("no port in {created}")),
        }
    }

    /// Sends a request to the control port and returns the answer. The status must be 2xx.
    fn exchange(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: toxiproxy\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 2"), "{path} {body}: {answer}");
        answer
    }
}

impl DisturbedLink<'_> {
    /// Adds a toxic to all present and coming connections, with attributes as JSON without braces.
    pub fn add(&self, stream: Stream, kind: &str, attributes: &str) {
        self.add_with(stream, kind, 1, attributes);
    }

    /// Makes the end of each coming connection a reset (RST) instead of an orderly end (FIN). toxiproxy sets
    /// SO_LINGER for a toxic `reset_peer`, also for a toxic that applies to 0 % of the connections.
    pub fn reset_at_end(&self) {
        self.add_with(Stream::Downstream, "reset_peer", 0, r#""timeout":0"#);
    }

    fn add_with(&self, stream: Stream, kind: &str, toxicity: u8, attributes: &str) {
        let stream = stream.name();
        let toxic = format!(
            r#"{{"name":"{kind}-{stream}","type":"{kind}","stream":"{stream}","toxicity":{toxicity},"attributes":{{{attributes}}}}}"#
        );
        let path = format!("/proxies/{}/toxics", self.name);
        self.toxiproxy.exchange("POST", &path, &toxic);
    }

    /// Removes a toxic.
    pub fn remove(&self, stream: Stream, kind: &str) {
        let path = format!("/proxies/{}/toxics/{kind}-{}", self.name, stream.name());
        self.toxiproxy.exchange("DELETE", &path, "");
    }

    /// Closes or opens the port of the proxy. All connections end with the port.
    pub fn set_open(&self, is_open: bool) {
        let path = format!("/proxies/{}", self.name);
        let body = format!(r#"{{"enabled":{is_open}}}"#);
        self.toxiproxy.exchange("POST", &path, &body);
    }

    /// Returns the URL of the member behind the proxy.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Direction of bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stream {
    /// From the server to the member.
    Upstream,
    /// From the member to the server.
    Downstream,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Stream::Upstream => "upstream",
            Stream::Downstream => "downstream",
        }
    }
}

impl Drop for Toxiproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
