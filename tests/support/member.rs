//! An HTTP server behind the proxy: records each request as received, and answers by a function of the test.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net;

use super::lossy;
use super::wire::wait_until;

/// A member. Its threads end with the test process.
pub struct Member {
    pub port: u16,
    listener: Arc<TcpListener>,
    state: Arc<State>,
}

struct State {
    /// True while the member accepts connections.
    is_up: Mutex<bool>,
    restarted: Condvar,
    /// Connections, to be closed when the member stops.
    streams: Mutex<Vec<TcpStream>>,
    requests: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    answer: Box<dyn Fn(&Received) -> Answer + Send + Sync>,
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct Received {
    /// Number of the connection, from 1.
    pub connection: usize,
    /// Request line and field lines.
    pub head: String,
    /// Body without its framing.
    pub body: Vec<u8>,
    /// Trailer lines of a chunked body.
    pub trailers: String,
}

impl Received {
    /// Returns the request line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the values of all fields with the name.
    pub fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1);
        let fields = lines.filter_map(|line| line.split_once(": "));
        let named = fields.filter(|(its, _)| its.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value).collect()
    }
}

/// Answer to a request.
pub enum Answer {
    /// Bytes, after which the connection stays open.
    Keep(Vec<u8>),
    /// Bytes, after which the connection is closed.
    Close(Vec<u8>),
    /// Bytes with pauses between them, after which the connection stays open.
    Parts(Vec<Vec<u8>>),
    /// No answer, and an open connection.
    Silence,
    /// The connection is closed without an answer.
    Hang,
}

/// Returns a response with status 200 and the content.
pub fn ok(content: impl AsRef<[u8]>) -> Answer {
    let content = content.as_ref();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    Answer::Keep([head.as_bytes(), content].concat())
}

impl Member {
    /// Starts a member on a free port.
    pub fn start(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Member {
        Member::start_on(bind(), answer)
    }

    /// Starts a member on a bound socket.
    pub fn start_on(
        listener: TcpListener,
        answer: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Member {
        let listener = Arc::new(listener);
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            is_up: Mutex::new(true),
            restarted: Condvar::new(),
            streams: Mutex::default(),
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            answer: Box::new(answer),
        });
        let (accepting, shared) = (Arc::clone(&listener), Arc::clone(&state));
        thread::spawn(move || {
            loop {
                let Ok((stream, _)) = accepting.accept() else {
                    let up = shared.is_up.lock().expect("the state");
                    drop(shared.restarted.wait_while(up, |up| !*up));
                    continue;
                };
                let state = Arc::clone(&shared);
                let connection = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
                let twin = stream.try_clone().expect("a descriptor");
                state.streams.lock().expect("the connections").push(twin);
                thread::spawn(move || serve(stream, connection, &state));
            }
        });
        Member {
            port,
            listener,
            state,
        }
    }

    /// Closes all connections and refuses new connections until [`Member::restart`]. The port stays
    /// reserved.
    pub fn stop(&self) {
        *self.state.is_up.lock().expect("the state") = false;
        net::shutdown(&self.listener, net::Shutdown::Both).expect("a closed port");
        for stream in self
            .state
            .streams
            .lock()
            .expect("the connections")
            .drain(..)
        {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub fn restart(&self) {
        net::listen(&self.listener, 128).expect("an open port");
        *self.state.is_up.lock().expect("the state") = true;
        self.state.restarted.notify_all();
    }

    /// Returns the requests received with `part` in the request line.
    pub fn requests_with(&self, part: &str) -> Vec<Received> {
        let mut requests = self.requests();
        requests.retain(|request| request.line().contains(part));
        requests
    }

    /// Returns all requests received.
    pub fn requests(&self) -> Vec<Received> {
        self.state.requests.lock().expect("the requests").clone()
    }

    /// Waits for `count` requests and returns the last of them.
    pub fn wait_for(&self, count: usize) -> Received {
        wait_until(Duration::from_secs(20), "enough requests", || {
            self.requests().get(count - 1).cloned()
        })
    }

    /// Returns the number of connections accepted.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns the URL of the member.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Binds a socket to a free port by the port's number. The kernel then keeps the port reserved while the
/// socket does not listen.
fn bind() -> TcpListener {
    loop {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        if let Ok(listener) = TcpListener::bind(address) {
            return listener;
        }
    }
}

fn serve(mut stream: TcpStream, connection: usize, state: &State) {
    let mut ahead = Vec::new();
    while let Some(request) = receive(&mut stream, &mut ahead, connection) {
        state
            .requests
            .lock()
            .expect("the requests")
            .push(request.clone());
        let keeps = match (state.answer)(&request) {
            Answer::Keep(bytes) => stream.write_all(&bytes).is_ok(),
            Answer::Close(bytes) => {
                let _ = stream.write_all(&bytes);
                false
            }
            Answer::Parts(parts) => parts.iter().all(|part| {
                let sent = stream.write_all(part).is_ok();
                thread::sleep(Duration::from_millis(30));
                sent
            }),
            Answer::Silence => true,
            Answer::Hang => false,
        };
        if !keeps {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
    // The state has a copy of the descriptor, so dropping the stream would not end the connection.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads a request; None at the end of the connection or after malformed bytes.
fn receive(stream: &mut TcpStream, ahead: &mut Vec<u8>, connection: usize) -> Option<Received> {
    let head = take_until(stream, ahead, b"\r\n\r\n")?;
    let mut request = Received {
        connection,
        head: lossy(&head),
        body: Vec::new(),
        trailers: String::new(),
    };
    let length = request
        .fields("content-length")
        .first()
        .map(|it| it.to_string());
    if let Some(length) = length {
        let length: usize = length.parse().expect("a length");
        while ahead.len() < length {
            more(stream, ahead)?;
        }
        request.body = ahead.drain(..length).collect();
    } else if request.fields("transfer-encoding") == ["chunked"] {
        loop {
            let size = take_until(stream, ahead, b"\r\n")?;
            let size = usize::from_str_radix(&lossy(&size), 16).expect("a chunk size");
            if size == 0 {
                break;
            }
            while ahead.len() < size + 2 {
                more(stream, ahead)?;
            }
            request.body.extend(ahead.drain(..size));
            assert_eq!(
                ahead.drain(..2).collect::<Vec<_>>(),
                b"\r\n",
                "a chunk's end"
            );
        }
        loop {
            let line = take_until(stream, ahead, b"\r\n")?;
            if line.is_empty() {
                break;
            }
            request.trailers += &format!("{}\n", lossy(&line));
        }
    }
    Some(request)
}

/// Takes the bytes before `end`, and drops `end`.
fn take_until(stream: &mut TcpStream, ahead: &mut Vec<u8>, end: &[u8]) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = ahead.windows(end.len()).position(|window| window == end) {
            let taken = ahead.drain(..at).collect();
            ahead.drain(..end.len());
            return Some(taken);
        }
        more(stream, ahead)?;
    }
}

fn more(stream: &mut TcpStream, ahead: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 16 * 1024];
    match stream.read(&mut bytes) {
        Ok(0) | Err(_) => None,
        Ok(read) => {
            ahead.extend_from_slice(&bytes[..read]);
            Some(())
        }
    }
}
