//! Hostile requests over HTTP/1.1, HTTP/2 and HTTP/3 to a proxied route. Each request is refused by its rule, or
//! arrives clean at a strict member. The next request then gets its own response: client, proxy and member
//! agree on the end of each message.

use std::time::Duration;

use anthill::wire::h2::{H2ErrorCode, frame};

use crate::hostile_rows::Expected::{self, Broken, Clean, Own, Refused, Reset};
use crate::hostile_rows::{COMMON, HTTP_1, Pair, STREAMS};
use crate::support::h2::H2;
use crate::support::strict_member::{StrictMember, StrictRequest};
use crate::support::wire::{Over, Wire};
use crate::support::{Server, server_table, site_table};

/// Outcome of a request for the client.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Response(u16, String),
    /// The stream was reset as malformed.
    Reset,
    /// Another end, which no row expects.
    Other(String),
}

/// Deadline for a line of the log.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(member: &StrictMember) -> Server {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\n",
        member.url()
    );
    Server::start(&(server_table("") + &site_table("http = \"serve\"\n") + &route))
}

/// Server and member of a test, with the mismatches of all rows.
struct Bench {
    member: StrictMember,
    server: Server,
    mismatches: Vec<String>,
    /// Purposes of the refused rows, and the ends of their lines in the log.
    rules: Vec<(&'static str, String)>,
    rows: usize,
}

impl Bench {
    fn start() -> Bench {
        let member = StrictMember::start();
        Bench {
            server: start(&member),
            member,
            mismatches: Vec::new(),
            rules: Vec::new(),
            rows: 0,
        }
    }

    /// Compares the outcomes of a row with the expectation, and then the requests at the member.
    fn check(&mut self, purpose: &'static str, expected: Expected, outcomes: &[Outcome]) {
        self.rows += 1;
        let requests = self.member.take_requests();
        if let Err(mismatch) = compare(expected, outcomes, &requests) {
            self.mismatches.push(format!(
                "{purpose}: {mismatch}; outcomes {outcomes:?}, requests {requests:?}"
            ));
        }
        if let Refused(_, rule) | Reset(rule) = expected {
            self.rules.push((purpose, format!("rule=R{rule}")));
        }
    }

    /// Checks the next request behind a row.
    fn check_next(&mut self, purpose: &str, path: &str, outcome: Outcome) {
        let line = format!("GET {path} HTTP/1.1");
        let requests = self.member.take_requests();
        let is_own = outcome == Outcome::Response(200, line.clone())
            && matches!(&requests[..], [request] if request.line == line);
        if !is_own {
            self.mismatches.push(format!(
                "behind {purpose}: {outcome:?}, requests {requests:?}"
            ));
        }
    }

    /// Fails with all mismatches. Compares the rules in the log with the rules of the rows, in their order.
    fn finish(self, rows_min: usize) {
        let (count, mismatches) = (self.mismatches.len(), self.mismatches.join("\n"));
        assert_eq!(count, 0, "of {} rows:\n{mismatches}", self.rows);
        assert!(self.rows >= rows_min, "{} rows", self.rows);
        let refused = |lines: &[String]| {
            let lines = lines.iter().filter(|line| line.contains(" rule=R"));
            lines.cloned().collect::<Vec<_>>()
        };
        let logged = self
            .server
            .output
            .wait_until(PATIENCE, "a line for each refusal", |lines| {
                let refused = refused(lines);
                (refused.len() >= self.rules.len()).then_some(refused)
            });
        for (line, (purpose, rule)) in logged.iter().zip(&self.rules) {
            assert!(line.ends_with(rule), "{purpose}: {line}, not {rule}");
        }
        assert_eq!(logged.len(), self.rules.len());
        assert_eq!(self.server.counter("panics"), 0);
    }
}

fn compare(
    expected: Expected,
    outcomes: &[Outcome],
    requests: &[StrictRequest],
) -> Result<(), String> {
    let Clean(lines) = expected else {
        let is_expected = match (expected, outcomes) {
            (Refused(status, _) | Own(status), [Outcome::Response(got, _)]) => *got == status,
            (Reset(_) | Broken, [outcome]) => *outcome == Outcome::Reset,
            _ => false,
        };
        return match is_expected && requests.is_empty() {
            true => Ok(()),
            false => Err(format!("not {expected:?}")),
        };
    };
    let mut left = requests.iter();
    let mut request = None;
    for line in lines {
        if line.ends_with(" HTTP/1.1") {
            request = left.next();
        }
        let Some(request) = request else {
            return Err(format!("no {line}"));
        };
        if !has(request, line) {
            return Err(format!("not {line:?}"));
        }
    }
    let answered = requests.iter().map(|request| {
        let is_head = request.line.starts_with("HEAD ");
        let text = if is_head { "" } else { &request.line };
        Outcome::Response(200, text.to_owned())
    });
    match left.next().is_none() && answered.eq(outcomes.iter().cloned()) {
        true => Ok(()),
        false => Err("other requests or responses".to_owned()),
    }
}

/// Returns true if a line of [`Clean`] holds for the request.
fn has(request: &StrictRequest, line: &str) -> bool {
    if line.ends_with(" HTTP/1.1") {
        return request.line == line;
    }
    if let Some(body) = line.strip_prefix('=') {
        return request.body == body.as_bytes();
    }
    if let Some(name) = line.strip_prefix('!') {
        return request.values(name).is_empty();
    }
    if let Some((name, value)) = line.strip_prefix('+').and_then(|it| it.split_once(": ")) {
        let trailer = (name.to_owned(), value.to_owned());
        return request.trailers == [trailer];
    }
    let (name, value) = line.split_once(": ").expect("a field");
    request.values(name) == [value]
}

/// Returns the bytes of a common row.
fn http_1(row: &(&str, &str, &str, &[Pair], Option<&str>, Expected)) -> Vec<u8> {
    let (_, method, path, fields, body, _) = row;
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    for (name, value) in *fields {
        bytes.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    let has_length = fields
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    if let Some(body) = body.filter(|_| !has_length) {
        bytes.extend(format!("Content-Length: {}\r\n", body.len()).into_bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body.unwrap_or_default().as_bytes());
    bytes
}

#[test]
fn over_http_1() {
    let mut bench = Bench::start();
    let common = COMMON.iter().map(|row| (row.0, http_1(row), row.5));
    let own = HTTP_1
        .iter()
        .map(|(purpose, bytes, expected)| (*purpose, bytes.to_vec(), *expected));
    for (nth, (purpose, bytes, expected)) in common.chain(own).enumerate() {
        let mut wire = Wire::plain(&bench.server);
        wire.send(&bytes);
        let count = match expected {
            Clean(lines) => lines
                .iter()
                .filter(|line| line.ends_with(" HTTP/1.1"))
                .count(),
            _ => 1,
        };
        let method = if bytes.starts_with(b"HEAD ") {
            "HEAD"
        } else {
            "GET"
        };
        let mut outcomes = Vec::new();
        let mut closes = false;
        for _ in 0..count {
            let Some(response) = wire.next_response(method) else {
                outcomes.push(Outcome::Other("the connection ended".to_owned()));
                closes = true;
                break;
            };
            closes = response.closes() || bytes.windows(9).any(|it| it == b" HTTP/1.0");
            outcomes.push(match response.status {
                200 => Outcome::Response(200, response.text()),
                status => Outcome::Response(status, String::new()),
            });
        }
        bench.check(purpose, expected, &outcomes);
        if closes {
            wire = Wire::plain(&bench.server);
        }
        let path = format!("/next/{nth}");
        let next = wire.get(&path, "");
        bench.check_next(purpose, &path, Outcome::Response(next.status, next.text()));
    }
    bench.finish(80);
}

/// Request of HTTP/2 or HTTP/3.
struct StreamRequest {
    fields: Vec<(String, String)>,
    body: Option<String>,
    trailers: Vec<(String, String)>,
}

fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(name, value): &(&str, &str)| (String::from(*name), String::from(*value));
    fields.iter().map(own).collect()
}

/// Returns the usual fields with the changes of a row.
fn changed(changes: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut fields = owned(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", "/a"),
    ]);
    for (name, value) in changes {
        let usual = fields.iter().position(|(own, _)| own == name);
        match (usual.filter(|_| name.starts_with(':')), *value) {
            (Some(at), "-") => {
                fields.remove(at);
            }
            (Some(at), value) => fields[at].1 = String::from(value),
            (None, value) => {
                let name = name.strip_prefix('+').unwrap_or(name);
                fields.push((String::from(name), String::from(value)));
            }
        }
    }
    fields
}

impl StreamRequest {
    fn get(path: &str) -> StreamRequest {
        StreamRequest {
            fields: changed(&[(":path", path)]),
            body: None,
            trailers: Vec::new(),
        }
    }
}

/// Returns the requests of the common rows and of the rows for streams.
fn stream_rows() -> Vec<(&'static str, StreamRequest, Expected)> {
    let common = COMMON
        .iter()
        .map(|(purpose, method, path, fields, body, expected)| {
            let lower = |(name, value): &Pair| (name.to_ascii_lowercase(), String::from(*value));
            let mut all = changed(&[(":method", method), (":path", path)]);
            all.extend(fields.iter().map(lower));
            let request = StreamRequest {
                fields: all,
                body: body.map(String::from),
                trailers: Vec::new(),
            };
            (*purpose, request, *expected)
        });
    let own = STREAMS
        .iter()
        .map(|(purpose, changes, body, trailers, expected)| {
            let request = StreamRequest {
                fields: changed(changes),
                body: body.map(String::from),
                trailers: owned(trailers),
            };
            (*purpose, request, *expected)
        });
    common.chain(own).collect()
}

/// Appends an integer with a prefix of `bits` bits (RFC 7541 §5.1).
fn push_integer(number: usize, bits: u32, pattern: u8, out: &mut Vec<u8>) {
    let max = (1 << bits) - 1;
    if number < max {
        return out.push(pattern | number as u8);
    }
    out.push(pattern | max as u8);
    let mut rest = number - max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Returns a field block of HPACK, in which each field is a literal.
fn hpack(fields: &[(String, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_integer(text.len(), 7, 0, &mut block);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Returns the response to a request on a new connection of HTTP/2, or on `h2`.
fn ask_h2(h2: &mut H2, id: u32, request: &StreamRequest) -> Outcome {
    let ends = |is_last: bool| if is_last { frame::END_STREAM } else { 0 };
    let has_trailers = !request.trailers.is_empty();
    let head = ends(request.body.is_none() && !has_trailers) | frame::END_HEADERS;
    h2.frame(frame::HEADERS, head, id, &hpack(&request.fields));
    if let Some(body) = &request.body {
        h2.frame(frame::DATA, ends(!has_trailers), id, body.as_bytes());
    }
    if has_trailers {
        let flags = frame::END_STREAM | frame::END_HEADERS;
        h2.frame(frame::HEADERS, flags, id, &hpack(&request.trailers));
    }
    while let Some(frame) = h2.next() {
        if frame.kind == frame::GOAWAY {
            return Outcome::Other(format!("GOAWAY {}", frame.code()));
        }
        if frame.kind == frame::RST_STREAM && frame.stream == id {
            return match frame.code() {
                code if code == H2ErrorCode::PROTOCOL_ERROR.0 => Outcome::Reset,
                code => Outcome::Other(format!("RST_STREAM {code}")),
            };
        }
        h2.record_frame(&frame);
        if frame.ends() && frame.stream == id {
            let response = h2.partial_response(id).expect("a response");
            return of_response(response.status, response.text());
        }
    }
    Outcome::Other("the connection ended".to_owned())
}

fn of_response(status: u16, text: String) -> Outcome {
    match status {
        200 => Outcome::Response(200, text),
        status => Outcome::Response(status, String::new()),
    }
}

#[test]
fn over_http_2() {
    let mut bench = Bench::start();
    for (nth, (purpose, request, expected)) in stream_rows().iter().enumerate() {
        let mut h2 = H2::open(&bench.server, Over::Tls);
        let outcome = ask_h2(&mut h2, 1, request);
        bench.check(purpose, *expected, &[outcome]);
        let path = format!("/next/{nth}");
        let next = ask_h2(&mut h2, 3, &StreamRequest::get(&path));
        bench.check_next(purpose, &path, next);
    }
    bench.finish(80);
}

/// Client program that sends bytes of HTTP/3 streams as given.
#[cfg(feature = "http3")]
struct H3Streams {
    client: std::process::Child,
    said: std::io::BufReader<std::process::ChildStdout>,
}

#[cfg(feature = "http3")]
impl H3Streams {
    fn start(server: &Server) -> H3Streams {
        let mut command = crate::h3::python();
        command
            .arg(crate::h3::support("h3_client.py"))
            .arg(server.https_port.to_string())
            .arg("streams")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut client = crate::support::spawn(&mut command).expect("a client");
        let said = std::io::BufReader::new(client.stdout.take().expect("a pipe"));
        H3Streams { client, said }
    }

    /// Sends a request, over a new connection if `is_new`, and returns the outcome.
    fn ask(&mut self, request: &StreamRequest, is_new: bool) -> Outcome {
        use std::io::{BufRead, Write};
        let input = self.client.stdin.as_mut().expect("a pipe");
        let new = if is_new { "new " } else { "" };
        let bytes = hexadecimal(&h3_stream(request));
        writeln!(input, "{new}{bytes}").expect("a client that reads");
        let mut line = String::new();
        self.said
            .read_line(&mut line)
            .expect("a client that speaks");
        let parts: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
        let [status, reset, over, body] = parts[..] else {
            return Outcome::Other(line);
        };
        let bytes = body.as_bytes().chunks(2);
        let bytes = bytes.map(|pair| u8::from_str_radix(&crate::support::lossy(pair), 16));
        let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().expect("hexadecimal digits");
        match (status.parse(), reset, over) {
            // H3_MESSAGE_ERROR (RFC 9114 §8.1).
            (_, "270", "None") => Outcome::Reset,
            (Ok(status @ 1..), "None", "None") => {
                of_response(status, crate::support::lossy(&bytes))
            }
            _ => Outcome::Other(line),
        }
    }
}

#[cfg(feature = "http3")]
impl Drop for H3Streams {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

#[cfg(feature = "http3")]
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of a request's stream.
#[cfg(feature = "http3")]
fn h3_stream(request: &StreamRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_h3_frame(1, &qpack(&request.fields), &mut bytes);
    if let Some(body) = &request.body {
        push_h3_frame(0, body.as_bytes(), &mut bytes);
    }
    if !request.trailers.is_empty() {
        push_h3_frame(1, &qpack(&request.trailers), &mut bytes);
    }
    bytes
}

/// Appends a frame with a length of 2 bytes (RFC 9000 §16).
#[cfg(feature = "http3")]
fn push_h3_frame(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u16 | 0x4000).to_be_bytes());
    out.extend_from_slice(payload);
}

/// Returns a field section of QPACK, in which each field is a literal (RFC 9204 §4.5.6).
#[cfg(feature = "http3")]
fn qpack(fields: &[(String, String)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        push_integer(name.len(), 3, 0x20, &mut section);
        section.extend_from_slice(name.as_bytes());
        push_integer(value.len(), 7, 0, &mut section);
        section.extend_from_slice(value.as_bytes());
    }
    section
}

#[cfg(feature = "http3")]
#[test]
fn over_http_3() {
    let mut bench = Bench::start();
    let mut client = H3Streams::start(&bench.server);
    for (nth, (purpose, request, expected)) in stream_rows().iter().enumerate() {
        let outcome = client.ask(request, true);
        bench.check(purpose, *expected, &[outcome]);
        let path = format!("/next/{nth}");
        let next = client.ask(&StreamRequest::get(&path), false);
        bench.check_next(purpose, &path, next);
    }
    bench.finish(80);
}
