//! Hostile requests over HTTP/1.1, HTTP/2 and HTTP/3 to a proxied route. Each request is refused by its rule, or
//! arrives clean at a strict member. The next request then gets its own response: client, proxy and member
//! agree on the end of each message.

use std::time::Duration;

use crate::hostile_rows::Expected::{self, Clean, Own, Refused, Reset};
use crate::hostile_rows::{COMMON, CommonRow, HTTP_1, Pair, STREAMS};
use crate::raw_streams::{Outcome, StreamRequest, ask_h2, changed, owned};
use crate::support::h2::H2;
use crate::support::strict_member::{StrictMember, StrictRequest};
use crate::support::wire::{Over, Wire};
use crate::support::{Server, server_table, site_table};

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
            (Reset(_), [outcome]) => *outcome == Outcome::Reset,
            _ => false,
        };
        return if is_expected && requests.is_empty() {
            Ok(())
        } else {
            Err(format!("not {expected:?}"))
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
    if left.next().is_none() && answered.eq(outcomes.iter().cloned()) {
        Ok(())
    } else {
        Err("other requests or responses".to_owned())
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
fn http_1(row: &CommonRow) -> Vec<u8> {
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

/// Sends the bytes of a row. Returns the outcomes, and the connection if the server keeps it open.
fn ask_http_1(bench: &Bench, bytes: &[u8], expected: Expected) -> (Vec<Outcome>, Option<Wire>) {
    let mut wire = Wire::plain(&bench.server);
    wire.send(bytes);
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
    for _ in 0..count {
        let Some(response) = wire.next_response(method) else {
            outcomes.push(Outcome::Other("the connection ended".to_owned()));
            return (outcomes, None);
        };
        outcomes.push(Outcome::complete(response.status, response.text()));
        if response.closes() {
            // Bytes behind a refused request get no response.
            wire.finish();
            wire.ends();
            return (outcomes, None);
        }
    }
    (outcomes, Some(wire))
}

#[test]
fn over_http_1() {
    let mut bench = Bench::start();
    let common = COMMON.iter().map(|row| (row.0, http_1(row), row.5));
    let own = HTTP_1
        .iter()
        .map(|(purpose, bytes, expected)| (*purpose, bytes.to_vec(), *expected));
    for (nth, (purpose, bytes, expected)) in common.chain(own).chain(long_rows()).enumerate() {
        let (outcomes, wire) = ask_http_1(&bench, &bytes, expected);
        bench.check(purpose, expected, &outcomes);
        let mut wire = wire.unwrap_or_else(|| Wire::plain(&bench.server));
        let path = format!("/next/{nth}");
        let next = wire.get(&path, "");
        bench.check_next(purpose, &path, Outcome::complete(next.status, next.text()));
    }
    bench.finish(80);
}

/// Returns long requests of HTTP/1.1, most of which exceed a bound.
fn long_rows() -> Vec<(&'static str, Vec<u8>, Expected)> {
    let get =
        |fields: &str| format!("GET /a HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes();
    let chunked = |rest: &str| {
        let head = "POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{rest}").into_bytes()
    };
    let long = "x".repeat(20_000);
    let line = format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let extension = format!("1;a={}\r\na\r\n0\r\n\r\n", &long[..300]);
    let trailers = format!("0\r\nX: {}\r\n\r\n", &long[..5_000]);
    let streamed = format!(
        "11170\r\n{}\r\n0\r\nX_Sum: 1\r\nSum: 2\r\n\r\n",
        "x".repeat(70_000)
    );
    vec![
        ("a long request line", line.into_bytes(), Refused(414, 102)),
        (
            "a long field",
            get(&format!("X: {long}\r\n")),
            Refused(431, 206),
        ),
        (
            "many fields",
            get(&"X: y\r\n".repeat(300)),
            Refused(431, 207),
        ),
        (
            "a long chunk extension",
            chunked(&extension),
            Refused(400, 307),
        ),
        ("long trailers", chunked(&trailers), Refused(431, 310)),
        (
            "ambiguous trailers of a long body",
            chunked(&streamed),
            Clean(&["POST /a HTTP/1.1", "+Sum: 2"]),
        ),
    ]
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

#[cfg(feature = "http3")]
#[test]
fn over_http_3() {
    let mut bench = Bench::start();
    let mut client = crate::raw_streams::h3::H3Streams::start(&bench.server);
    for (nth, (purpose, request, expected)) in stream_rows().iter().enumerate() {
        let outcome = client.ask(request, true);
        bench.check(purpose, *expected, &[outcome]);
        let path = format!("/next/{nth}");
        let next = client.ask(&StreamRequest::get(&path), false);
        bench.check_next(purpose, &path, next);
    }
    bench.finish(80);
}

/// The request is complete with its head, so the member may get the request before the content arrives. Its
/// response is then complete, or broken off by the content.
#[test]
fn content_announced_as_none_reaches_no_member() {
    let bench = Bench::start();
    let request = StreamRequest {
        fields: changed(&[(":method", "POST"), ("content-length", "0")]),
        body: Some("GET /evil HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned()),
        trailers: Vec::new(),
    };
    let next = StreamRequest::get("/next");
    let mut h2 = H2::open(&bench.server, Over::Tls);
    let outcomes = [ask_h2(&mut h2, 1, &request), ask_h2(&mut h2, 3, &next)];
    assert_without_content(&bench, outcomes);
    #[cfg(feature = "http3")]
    {
        let mut h3 = crate::raw_streams::h3::H3Streams::start(&bench.server);
        let outcomes = [h3.ask(&request, true), h3.ask(&next, false)];
        assert_without_content(&bench, outcomes);
    }
}

/// Checks the outcomes of a request with unannounced content and of the next request.
fn assert_without_content(bench: &Bench, [outcome, next]: [Outcome; 2]) {
    let is_clean = matches!(
        outcome,
        Outcome::Reset | Outcome::Broken | Outcome::Response(200, _)
    );
    assert!(is_clean, "{outcome:?}");
    assert_eq!(
        next,
        Outcome::Response(200, "GET /next HTTP/1.1".to_owned())
    );
    for request in bench.member.take_requests() {
        let is_known = ["POST /a HTTP/1.1", "GET /next HTTP/1.1"].contains(&&*request.line);
        assert!(is_known && request.body.is_empty(), "{request:?}");
    }
}
