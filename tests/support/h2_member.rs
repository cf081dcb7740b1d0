//! A hand-written HTTP/2 server behind the proxy, without TLS: records each request as received, and answers with
//! exactly the frames of the test.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use wire::h2::frame::{self, H2FrameHeader, HEADER_BYTES, PREFACE};
use wire::h2::hpack::{HpackDecoder, HpackScratch};

use super::lossy;

/// Flags of a head that ends its stream, and of a head before content.
pub const LAST: u8 = frame::END_HEADERS | frame::END_STREAM;
pub const MORE: u8 = frame::END_HEADERS;

/// A member. Its threads end with the test process.
pub struct H2Member {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    greeting: Vec<u8>,
    requests: Mutex<Vec<H2Request>>,
    connections: AtomicUsize,
    /// Sockets of the connections accepted.
    sockets: Mutex<Vec<TcpStream>>,
    resets: AtomicUsize,
    data_bytes: AtomicUsize,
    ignores_pings: AtomicBool,
    answer: Box<dyn Fn(&H2Request) -> H2Answer + Send + Sync>,
}

impl State {
    fn acknowledges_pings(&self) -> bool {
        !self.ignores_pings.load(Ordering::SeqCst)
    }
}

/// A request as received, up to the end of its stream.
#[derive(Clone, Debug, Default)]
pub struct H2Request {
    /// Number of the connection, from 1.
    pub connection: usize,
    pub stream: u32,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl H2Request {
    /// Returns the values of all fields with the name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = self.fields.iter().filter(|(its, _)| its == name);
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the value of a pseudo-header field.
    pub fn path(&self) -> &str {
        self.all(":path")[0]
    }
}

/// Answer to a request.
pub enum H2Answer {
    /// Bytes, after which the connection stays open.
    Keep(Frames),
    /// Bytes, after which the connection is closed.
    Close(Frames),
}

/// Bytes of a server.
#[derive(Clone, Default)]
pub struct Frames(pub Vec<u8>);

impl Frames {
    /// Adds a frame.
    pub fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Frames {
        frame::header(&mut self.0, payload.len(), kind, flags, stream);
        self.0.extend_from_slice(payload);
        self
    }

    /// Adds HEADERS with the fields. Names keep their case.
    pub fn head(self, flags: u8, stream: u32, fields: &[(&str, &str)]) -> Frames {
        let mut block = Vec::new();
        for (name, value) in fields {
            block.extend_from_slice(&[0, name.len() as u8]);
            block.extend_from_slice(name.as_bytes());
            block.push(value.len() as u8);
            block.extend_from_slice(value.as_bytes());
        }
        self.frame(frame::HEADERS, flags, stream, &block)
    }

    /// Adds a whole response with status 200.
    pub fn ok(self, stream: u32, content: impl AsRef<[u8]>) -> Frames {
        let content = content.as_ref();
        let head = self.head(MORE, stream, &[(":status", "200")]);
        head.frame(frame::DATA, frame::END_STREAM, stream, content)
    }

    /// Adds GOAWAY without an error.
    pub fn goaway(self, last: u32) -> Frames {
        let payload = [&last.to_be_bytes()[..], &[0; 4]].concat();
        self.frame(frame::GOAWAY, 0, 0, &payload)
    }

    /// Adds RST_STREAM.
    pub fn reset(self, stream: u32, code: u32) -> Frames {
        self.frame(frame::RST_STREAM, 0, stream, &code.to_be_bytes())
    }
}

/// Returns a response with status 200 to the request.
pub fn ok(request: &H2Request, content: impl AsRef<[u8]>) -> H2Answer {
    H2Answer::Keep(Frames::default().ok(request.stream, content))
}

impl H2Member {
    /// Starts a member with empty SETTINGS.
    pub fn start(answer: impl Fn(&H2Request) -> H2Answer + Send + Sync + 'static) -> H2Member {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        H2Member::start_on(listener, answer)
    }

    /// Starts a member with empty SETTINGS on a bound socket.
    pub fn start_on(
        listener: TcpListener,
        answer: impl Fn(&H2Request) -> H2Answer + Send + Sync + 'static,
    ) -> H2Member {
        let greeting = Frames::default().frame(frame::SETTINGS, 0, 0, b"");
        H2Member::greeting_on(listener, greeting, answer)
    }

    /// Starts a member. Each connection begins with the bytes `greeting`.
    pub fn greeting(
        greeting: Frames,
        answer: impl Fn(&H2Request) -> H2Answer + Send + Sync + 'static,
    ) -> H2Member {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        H2Member::greeting_on(listener, greeting, answer)
    }

    fn greeting_on(
        listener: TcpListener,
        greeting: Frames,
        answer: impl Fn(&H2Request) -> H2Answer + Send + Sync + 'static,
    ) -> H2Member {
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            greeting: greeting.0,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            sockets: Mutex::default(),
            resets: AtomicUsize::new(0),
            data_bytes: AtomicUsize::new(0),
            ignores_pings: AtomicBool::new(false),
            answer: Box::new(answer),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                let socket = stream.try_clone().expect("a socket");
                state.sockets.lock().expect("the sockets").push(socket);
                let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
                thread::spawn(move || Connection::new(stream, number).serve(&state));
            }
        });
        H2Member { port, state }
    }

    /// Returns all requests received.
    pub fn requests(&self) -> Vec<H2Request> {
        self.state.requests.lock().expect("the requests").clone()
    }

    /// Returns the number of requests received for the path.
    pub fn count(&self, path: &str) -> usize {
        let requests = self.requests();
        requests.iter().filter(|it| it.path() == path).count()
    }

    /// Returns the number of connections accepted.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Sends frames on the connection with the number, from 1.
    pub fn send(&self, connection: usize, frames: &Frames) {
        let sockets = self.state.sockets.lock().expect("the sockets");
        let sent = (&sockets[connection - 1]).write_all(&frames.0);
        sent.expect("an open connection");
    }

    /// Acknowledges no further PING, as a member that is gone without a trace.
    pub fn ignore_pings(&self) {
        self.state.ignores_pings.store(true, Ordering::SeqCst);
    }

    /// Returns the number of RST_STREAM frames received.
    pub fn resets(&self) -> usize {
        self.state.resets.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes received in DATA frames.
    pub fn data_bytes(&self) -> usize {
        self.state.data_bytes.load(Ordering::SeqCst)
    }

    /// Returns the URL of the member.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

struct Connection {
    stream: TcpStream,
    number: usize,
    decoder: HpackDecoder,
    /// Requests that have not ended.
    begun: HashMap<u32, H2Request>,
}

impl Connection {
    fn new(stream: TcpStream, number: usize) -> Connection {
        Connection {
            stream,
            number,
            decoder: HpackDecoder::default(),
            begun: HashMap::new(),
        }
    }

    /// Answers requests until the end of the connection.
    fn serve(mut self, state: &State) {
        let mut preface = [0; PREFACE.len()];
        let mut begins = self.stream.read_exact(&mut preface).is_ok();
        if preface.starts_with(b"PROXY ") {
            // The line of a PROXY header is longer than the preface.
            let mut byte = [0];
            while byte != *b"\n" && self.stream.read_exact(&mut byte).is_ok() {}
            begins = self.stream.read_exact(&mut preface).is_ok();
        }
        if !begins || preface != *PREFACE || self.stream.write_all(&state.greeting).is_err() {
            return;
        }
        while let Some((header, payload)) = self.next() {
            let ended = self.take(&header, &payload, state);
            let Some(request) = ended.and_then(|stream| self.begun.remove(&stream)) else {
                continue;
            };
            let requests = &state.requests;
            requests.lock().expect("the requests").push(request.clone());
            match (state.answer)(&request) {
                H2Answer::Keep(frames) => drop(self.stream.write_all(&frames.0)),
                H2Answer::Close(frames) => {
                    let _ = self.stream.write_all(&frames.0);
                    let _ = self.stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    /// Handles a frame. Returns the stream if its request has ended.
    fn take(&mut self, header: &H2FrameHeader, payload: &[u8], state: &State) -> Option<u32> {
        let id = header.stream;
        match header.kind {
            frame::SETTINGS if !header.has(frame::ACK) => {
                let mut ack = Vec::new();
                frame::settings_ack(&mut ack);
                let _ = self.stream.write_all(&ack);
            }
            frame::HEADERS => {
                let fields = self.fields(payload);
                match self.begun.get_mut(&id) {
                    Some(request) => request.trailers = fields,
                    None => drop(self.begun.insert(
                        id,
                        H2Request {
                            connection: self.number,
                            stream: id,
                            fields,
                            ..H2Request::default()
                        },
                    )),
                }
            }
            frame::DATA => {
                state.data_bytes.fetch_add(payload.len(), Ordering::SeqCst);
                let request = self.begun.get_mut(&id)?;
                request.body.extend_from_slice(payload);
            }
            frame::PING if !header.has(frame::ACK) && state.acknowledges_pings() => {
                let pong = Frames::default().frame(frame::PING, frame::ACK, 0, payload);
                let _ = self.stream.write_all(&pong.0);
            }
            frame::RST_STREAM => {
                state.resets.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
        let has_body = matches!(header.kind, frame::HEADERS | frame::DATA);
        (has_body && header.has(frame::END_STREAM)).then_some(id)
    }

    fn fields(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let mut strings = HpackScratch::default();
        let decoded = self.decoder.decode(block, &mut strings, |name, value| {
            fields.push((lossy(name), lossy(value)));
            Ok(())
        });
        decoded.expect("a field block");
        fields
    }

    fn next(&mut self) -> Option<(H2FrameHeader, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).ok()?;
        let header = H2FrameHeader::parse(&header);
        let mut payload = vec![0; header.length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((header, payload))
    }
}
