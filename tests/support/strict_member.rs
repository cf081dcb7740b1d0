//! Strict recording member of a proxy: an HTTP/1.1 server with a parser of its own, which shares no code with
//! the product, records each request, and records as a fault all that a careless application could misread.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::lossy;

/// A member. Its threads end with the test process.
pub struct StrictMember {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<StrictRequest>,
    faults: Vec<String>,
}

/// A request as received.
#[derive(Clone, Debug, Default)]
pub struct StrictRequest {
    pub line: String,
    /// Fields with names as received.
    pub fields: Vec<(String, String)>,
    /// Content without its framing.
    pub body: Vec<u8>,
    /// Fields of the trailer section.
    pub trailers: Vec<(String, String)>,
}

impl StrictRequest {
    /// Returns the values of all fields with the name.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let named = self
            .fields
            .iter()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }
}

impl StrictMember {
    /// Starts a member that answers each request with its request line.
    pub fn start() -> StrictMember {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&shared);
                thread::spawn(move || serve(stream, &seen));
            }
        });
        StrictMember { port, seen }
    }

    /// Returns the URL of the member.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the requests since the last call. Fails if a request was not clean.
    pub fn take_requests(&self) -> Vec<StrictRequest> {
        let mut seen = self.seen.lock().expect("the requests");
        let requests = std::mem::take(&mut seen.requests);
        assert!(seen.faults.is_empty(), "{:?}: {requests:?}", seen.faults);
        requests
    }
}

/// Reads requests until the end of the connection or until the first fault.
fn serve(mut stream: TcpStream, seen: &Mutex<Seen>) {
    let mut ahead = Vec::new();
    loop {
        let read = receive(&mut stream, &mut ahead);
        let is_behind = !ahead.is_empty() || has_bytes(&stream);
        let mut seen = seen.lock().expect("the requests");
        match read {
            Ok(Some(request)) => {
                let text = request.line.clone();
                seen.requests.push(request);
                if is_behind {
                    seen.faults.push(format!("bytes behind {text}"));
                    return;
                }
                drop(seen);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
                let content = if text.starts_with("HEAD ") { "" } else { &text };
                if stream.write_all((head + content).as_bytes()).is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(fault) => return seen.faults.push(fault),
        }
    }
}

/// Returns true if bytes wait in the socket, false if none wait or the client reset the connection.
fn has_bytes(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a mode");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a mode");
    match peeked {
        Ok(count) => count > 0,
        Err(error) => !matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::ConnectionReset
        ),
    }
}

/// Reads a request; None at the end of the connection, also within a body, since a client may break off.
fn receive(stream: &mut TcpStream, ahead: &mut Vec<u8>) -> Result<Option<StrictRequest>, String> {
    let Some(head) = take_until(stream, ahead, b"\r\n\r\n") else {
        return if ahead.is_empty() {
            Ok(None)
        } else {
            Err(format!("a head broke off: {:?}", lossy(ahead)))
        };
    };
    let mut request = parse_head(&head)?;
    check_fields(&request)?;
    let lengths = request.values("content-length");
    if let [length] = lengths[..] {
        let length = length.parse().map_err(|_| format!("length {length:?}"))?;
        match take(stream, ahead, length) {
            Some(body) => request.body = body,
            None => return Ok(None),
        }
    } else if !request.values("transfer-encoding").is_empty() {
        return receive_chunks(stream, ahead, request);
    }
    Ok(Some(request))
}

fn receive_chunks(
    stream: &mut TcpStream,
    ahead: &mut Vec<u8>,
    mut request: StrictRequest,
) -> Result<Option<StrictRequest>, String> {
    loop {
        let Some(line) = take_until(stream, ahead, b"\r\n") else {
            return Ok(None);
        };
        let text = lossy(&line);
        let is_hex = (1..=8).contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
        if !is_hex {
            return Err(format!("chunk size {text:?}"));
        }
        let size = usize::from_str_radix(&text, 16).expect("hexadecimal digits");
        if size == 0 {
            break;
        }
        let Some(chunk) = take(stream, ahead, size + 2) else {
            return Ok(None);
        };
        let Some(content) = chunk.strip_suffix(b"\r\n") else {
            return Err(format!("chunk without its end: {:?}", lossy(&chunk)));
        };
        request.body.extend_from_slice(content);
    }
    loop {
        match take_until(stream, ahead, b"\r\n") {
            None => return Ok(None),
            Some(line) if line.is_empty() => break,
            Some(line) => request.trailers.push(parse_field(&line)?),
        }
    }
    let forbidden = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "authorization",
    ];
    for (name, _) in &request.trailers {
        if forbidden.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(format!("{name} in a trailer section"));
        }
    }
    Ok(Some(request))
}

fn parse_head(head: &[u8]) -> Result<StrictRequest, String> {
    let text = lossy(head);
    let mut lines = Vec::new();
    let mut rest = head;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    let (first, fields) = lines.split_first().expect("a line");
    let line = lossy(first);
    check_line(&line).map_err(|fault| format!("{fault}: {text:?}"))?;
    let fields = fields.iter().map(|line| parse_field(line));
    Ok(StrictRequest {
        line,
        fields: fields.collect::<Result<_, _>>()?,
        ..StrictRequest::default()
    })
}

/// Checks the three parts of a request line, and that the path is in normal form.
fn check_line(line: &str) -> Result<(), &'static str> {
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Err("not three parts");
    };
    if version != "HTTP/1.1" {
        return Err("another version");
    }
    if method.is_empty()
        || !method
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
    {
        return Err("a malformed method");
    }
    if target == "*" {
        return Ok(());
    }
    if !target.starts_with('/')
        || !target
            .bytes()
            .all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#')
    {
        return Err("a malformed target");
    }
    let path = target.split('?').next().unwrap_or_default();
    let lower = path.to_ascii_lowercase();
    // Doubled slashes are a part of the path as sent, unless a dot segment is behind them.
    if ["%00", "%2f", "%5c", "\\"]
        .iter()
        .any(|part| lower.contains(part))
    {
        return Err("an ambiguous path");
    }
    let decoded = lower.replace("%2e", ".").replace("%3b", ";");
    let has_dots = decoded.split('/').any(|segment| {
        let name = segment.split(';').next().unwrap_or_default();
        name == "." || name == ".."
    });
    if has_dots {
        Err("a dot segment")
    } else {
        Ok(())
    }
}

/// Splits a field line. Names consist of letters, digits and `-`, since applications confuse other characters.
fn parse_field(line: &[u8]) -> Result<(String, String), String> {
    let fault = |what: &str| format!("{what} in the field line {:?}", lossy(line));
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = line.split_at(colon.ok_or_else(|| fault("no colon"))?);
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    if name.is_empty() || !name.iter().all(is_name) {
        return Err(fault("a malformed name"));
    }
    let value = value[1..]
        .strip_prefix(b" ")
        .ok_or_else(|| fault("no space"))?;
    if value
        .iter()
        .any(|byte| (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f)
    {
        return Err(fault("a control character"));
    }
    if value.trim_ascii().len() != value.len() {
        return Err(fault("space around the value"));
    }
    Ok((lossy(name), lossy(value)))
}

/// Checks the framing, the host, and the fields that a proxy has to remove or to write anew.
fn check_fields(request: &StrictRequest) -> Result<(), String> {
    let fault = |what: &str| Err(format!("{what}: {request:?}"));
    let only = |name: &str| match request.values(name)[..] {
        [value] => Some(value),
        _ => None,
    };
    let framings = [
        request.values("content-length"),
        request.values("transfer-encoding"),
    ]
    .concat();
    if framings.len() > 1 {
        return fault("two framings");
    }
    let length = only("content-length");
    if length
        .is_some_and(|it| it.parse::<u64>().map(|number| number.to_string()) != Ok(it.to_owned()))
    {
        return fault("a malformed length");
    }
    if only("transfer-encoding").is_some_and(|coding| coding != "chunked") {
        return fault("another coding");
    }
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    match only("host") {
        Some(host) if !host.is_empty() && host.bytes().all(is_host) => {}
        _ => return fault("not one valid host"),
    }
    if only("x-forwarded-for") != Some("127.0.0.1") || only("x-forwarded-proto").is_none() {
        return fault("the client's own X-Forwarded fields");
    }
    if only("forwarded").is_none_or(|it| !it.starts_with("for=127.0.0.1;")) || only("via").is_none()
    {
        return fault("the client's own Forwarded or Via");
    }
    for name in [
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "http2-settings",
        "expect",
    ] {
        if !request.values(name).is_empty() {
            return fault(name);
        }
    }
    match (only("connection"), only("te"), only("upgrade")) {
        (None, None, None) if request.values("connection").is_empty() => Ok(()),
        (Some("TE"), Some("trailers"), None) | (Some("Upgrade"), None, Some(_)) => Ok(()),
        _ => fault("fields of the client's connection"),
    }
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

fn take(stream: &mut TcpStream, ahead: &mut Vec<u8>, count: usize) -> Option<Vec<u8>> {
    while ahead.len() < count {
        more(stream, ahead)?;
    }
    Some(ahead.drain(..count).collect())
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
