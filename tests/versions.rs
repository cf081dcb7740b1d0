//! Comparison of responses to equal requests over HTTP/1.1, HTTP/1.1 with TLS, HTTP/2, HTTP/3 and as a
//! subrequest: status, fields, content, rule and log line are equal, except for the rows of
//! [`DIFFERENCES`].

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::h2::H2;
use crate::support::python::{python, script};
use crate::support::wire::{Over, Response, Wire};
use crate::support::{
    EndOnDrop, Folder, Server, eventually, finish, run, server_table, site_table,
};

/// Transport of a request to the server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Via {
    Plain,
    Tls,
    Http2,
    Http3,
    /// Internal redirect by the `Location: /path` of a CGI script (RFC 3875 §6.2.2).
    Subrequest,
}

/// Transports compared with plain HTTP/1.1.
const OTHERS: [Via; 4] = [Via::Tls, Via::Http2, Via::Http3, Via::Subrequest];

/// The content of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Content {
    None,
    /// Content with a Content-Length field.
    Length(usize),
    /// Content without a Content-Length field: chunked over HTTP/1.1.
    Open(usize),
    /// A Content-Length field without content.
    Withheld(usize),
}

use Content::{Length, None as Nothing, Open, Withheld};

/// A request: a label, the method, the path, fields and the content.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    Content,
);

/// Credentials `ant:crumb`, accepted by the server.
const RIGHT: (&str, &str) = ("authorization", "Basic YW50OmNydW1i");
/// Credentials `ant:bread`, refused by the server.
const WRONG: (&str, &str) = ("authorization", "Basic YW50OmJyZWFk");
const EXPECT: (&str, &str) = ("expect", "100-continue");
const ORIGIN: (&str, &str) = ("origin", "https://a.example");
const PREFLIGHT: (&str, &str) = ("access-control-request-method", "PUT");
const GZIP: (&str, &str) = ("accept-encoding", "gzip");

/// Length of content larger than the limit `body_discard_bytes` of the tests' server.
const DISCARD_PASSED: usize = 3_000;
/// Length of content larger than `body_bytes` of the route `/echo/small`.
const SMALL_PASSED: usize = 1_500;
/// Length of content larger than the limit `body_bytes` of the tests' server.
const BODY_PASSED: usize = 6_000;

#[rustfmt::skip] // A table reads better in columns.
const ROWS: &[Row] = &[
    ("page", "GET", "/", &[], Nothing),
    ("page, HEAD", "HEAD", "/", &[], Nothing),
    ("empty", "GET", "/empty.txt", &[], Nothing),
    ("gzip", "GET", "/page.txt", &[GZIP], Nothing),
    ("gzip, HEAD", "HEAD", "/page.txt", &[GZIP], Nothing),
    ("middle", "GET", "/middle.bin", &[], Nothing),
    ("large", "GET", "/large.bin", &[], Nothing),
    ("large, HEAD", "HEAD", "/large.bin", &[], Nothing),
    ("absent", "GET", "/absent", &[], Nothing),
    ("absent, HEAD", "HEAD", "/absent", &[], Nothing),
    ("absent, referer", "GET", "/absent", &[("referer", "https://localhost/")], Nothing),
    ("hidden", "GET", "/.hidden", &[], Nothing),
    ("bad escape", "GET", "/%zz", &[], Nothing),
    ("escaped slash", "GET", "/a%2fb", &[], Nothing),
    ("options", "OPTIONS", "/", &[], Nothing),
    ("options *", "OPTIONS", "*", &[], Nothing),
    ("trace", "TRACE", "/", &[], Nothing),
    ("unknown method", "BREW", "/", &[], Nothing),
    ("delete", "DELETE", "/page.txt", &[], Nothing),
    ("post", "POST", "/", &[], Nothing),
    ("folder", "GET", "/sub", &[], Nothing),
    ("folder, query", "GET", "/sub?x=y", &[], Nothing),
    ("listing", "GET", "/sub/", &[], Nothing),
    ("listing, JSON", "GET", "/sub/?format=json", &[], Nothing),
    ("listing, HEAD", "HEAD", "/sub/", &[], Nothing),
    ("redirect", "GET", "/old/x", &[], Nothing),
    ("redirect, HEAD", "HEAD", "/old/x", &[], Nothing),
    ("redirect, mapped", "GET", "/mapped/x?y=z", &[], Nothing),
    ("redirect, mapped, HEAD", "HEAD", "/mapped/x?y=z", &[], Nothing),
    ("redirect, forced", "GET", "/page.txt/old", &[], Nothing),
    ("redirect, gone", "GET", "/gone", &[], Nothing),
    ("address", "GET", "/denied/x", &[], Nothing),
    ("address, HEAD", "HEAD", "/denied/x", &[], Nothing),
    ("login missing", "GET", "/private/", &[], Nothing),
    ("login wrong", "GET", "/private/", &[WRONG], Nothing),
    ("login wrong, HEAD", "HEAD", "/private/", &[WRONG], Nothing),
    ("login right", "GET", "/private/", &[RIGHT], Nothing),
    ("login right, absent", "GET", "/private/absent", &[RIGHT], Nothing),
    ("login garbled", "GET", "/private/", &[("authorization", "Basic !")], Nothing),
    ("range", "GET", "/page.txt", &[("range", "bytes=3-7")], Nothing),
    ("range, suffix", "GET", "/page.txt", &[("range", "bytes=-5")], Nothing),
    ("range, several", "GET", "/large.bin", &[("range", "bytes=0-9, 1000000-1000009, 5-6")], Nothing),
    ("range passed", "GET", "/page.txt", &[("range", "bytes=5000-")], Nothing),
    ("range, HEAD", "HEAD", "/page.txt", &[("range", "bytes=3-7")], Nothing),
    ("not modified", "GET", "/page.txt", &[("if-none-match", "*")], Nothing),
    ("precondition", "GET", "/page.txt", &[("if-match", "\"x\"")], Nothing),
    ("precondition, HEAD", "HEAD", "/page.txt", &[("if-match", "\"x\"")], Nothing),
    ("expect unknown", "GET", "/", &[("expect", "more")], Nothing),
    ("cgi", "GET", "/run/plain", &[], Nothing),
    ("cgi, HEAD", "HEAD", "/run/plain", &[], Nothing),
    ("cgi, status", "GET", "/run/own", &[], Nothing),
    ("cgi, dies", "GET", "/run/dies", &[], Nothing),
    ("cgi, dies, HEAD", "HEAD", "/run/dies", &[], Nothing),
    ("cgi, absent", "GET", "/run/absent", &[], Nothing),
    ("cgi, 503", "GET", "/run/unavailable", &[], Nothing),
    ("slow", "GET", "/slow?lines=2&pause_ms=1", &[], Nothing),
    ("slow, HEAD", "HEAD", "/slow?lines=2&pause_ms=1", &[], Nothing),
    ("cached", "GET", "/cached/kept", &[], Nothing),
    ("cached 503", "GET", "/cached/unavailable", &[], Nothing),
    ("handler fails", "GET", "/test?status=fault", &[], Nothing),
    ("echo, nothing", "POST", "/echo", &[], Nothing),
    ("echo, empty", "POST", "/echo", &[], Length(0)),
    ("echo", "POST", "/echo", &[], Length(100)),
    ("echo, open", "POST", "/echo", &[], Open(100)),
    ("echo, expect", "POST", "/echo", &[EXPECT], Length(100)),
    ("echo, expect, open", "POST", "/echo", &[EXPECT], Open(100)),
    ("echo, too large", "POST", "/echo", &[], Length(BODY_PASSED)),
    ("echo, withheld too large", "POST", "/echo", &[EXPECT], Withheld(BODY_PASSED)),
    ("cgi, body", "POST", "/run/plain", &[], Length(100)),
    ("page, body", "GET", "/", &[], Length(100)),
    ("page, open body", "GET", "/", &[], Open(100)),
    ("page, body too large", "GET", "/", &[], Length(DISCARD_PASSED)),
    ("page, open body too large", "GET", "/", &[], Open(DISCARD_PASSED)),
    ("login wrong, body too large", "POST", "/private/echo", &[WRONG], Length(DISCARD_PASSED)),
    ("login wrong, open body too large", "POST", "/private/echo", &[WRONG], Open(DISCARD_PASSED)),
    ("login wrong, expect", "POST", "/private/echo", &[WRONG, EXPECT], Withheld(100)),
    ("page, withheld too large", "GET", "/", &[], Withheld(DISCARD_PASSED)),
    ("page, expect", "GET", "/", &[EXPECT], Withheld(100)),
    ("page, expect too large", "GET", "/", &[EXPECT], Withheld(DISCARD_PASSED)),
    ("post, body", "POST", "/", &[], Length(100)),
    ("post, expect", "POST", "/", &[EXPECT], Withheld(100)),
    ("absent, body", "POST", "/absent", &[], Length(100)),
    ("absent, body too large", "POST", "/absent", &[], Length(DISCARD_PASSED)),
    ("redirect, body", "POST", "/old/x", &[], Length(100)),
    ("redirect, body too large", "POST", "/old/x", &[], Length(BODY_PASSED)),
    ("redirect, open body too large", "POST", "/old/x", &[], Open(BODY_PASSED)),
    ("redirect, expect too large", "POST", "/old/x", &[EXPECT], Withheld(BODY_PASSED)),
    ("address, body too large", "POST", "/denied/x", &[], Length(BODY_PASSED)),
    ("address, open body too large", "POST", "/denied/x", &[], Open(BODY_PASSED)),
    ("login missing, body too large", "POST", "/private/echo", &[], Length(BODY_PASSED)),
    ("login missing, open body too large", "POST", "/private/echo", &[], Open(BODY_PASSED)),
    ("post, body too large", "POST", "/", &[], Length(BODY_PASSED)),
    ("post, open body too large", "POST", "/", &[], Open(BODY_PASSED)),
    ("address, expect", "POST", "/denied/x", &[EXPECT], Withheld(100)),
    ("login missing, expect", "POST", "/private/echo", &[EXPECT], Withheld(100)),
    ("login missing, body", "POST", "/private/echo", &[], Length(100)),
    ("login wrong, body", "POST", "/private/echo", &[WRONG], Length(100)),
    ("login right, body", "POST", "/private/echo", &[RIGHT], Length(100)),
    ("login right, too large", "POST", "/private/echo", &[RIGHT], Length(BODY_PASSED)),
    ("login right, page, body", "POST", "/private/", &[RIGHT], Length(100)),
    ("cors", "GET", "/page.txt", &[ORIGIN], Nothing),
    ("cors, other origin", "GET", "/page.txt", &[("origin", "https://b.example")], Nothing),
    ("cors, absent", "GET", "/absent", &[ORIGIN], Nothing),
    ("cors, login missing", "GET", "/private/", &[ORIGIN], Nothing),
    ("cors, redirect", "GET", "/old/x", &[ORIGIN], Nothing),
    ("cors, cgi", "GET", "/run/cors", &[ORIGIN], Nothing),
    ("cors, cached", "GET", "/cached/kept", &[ORIGIN], Nothing),
    ("cors, listing", "GET", "/sub/", &[ORIGIN], Nothing),
    ("preflight", "OPTIONS", "/page.txt", &[ORIGIN, PREFLIGHT], Nothing),
    ("preflight, other origin", "OPTIONS", "/page.txt", &[("origin", "null"), PREFLIGHT], Nothing),
    ("preflight, login", "OPTIONS", "/private/echo", &[ORIGIN, PREFLIGHT], Nothing),
    ("preflight, address", "OPTIONS", "/denied/x", &[ORIGIN, PREFLIGHT], Nothing),
    ("preflight, method", "OPTIONS", "/reads/a", &[ORIGIN, PREFLIGHT], Nothing),
    ("options, origin", "OPTIONS", "/page.txt", &[ORIGIN], Nothing),
    ("method", "HEAD", "/reads/page.txt", &[], Nothing),
    ("method, refused", "POST", "/reads/page.txt", &[], Length(100)),
    ("method, options", "OPTIONS", "/reads/page.txt", &[], Nothing),
    ("guarded method", "POST", "/edits/echo", &[], Length(100)),
    ("guarded method, login", "POST", "/edits/echo", &[RIGHT], Length(100)),
    ("open method", "GET", "/edits/page.txt", &[], Nothing),
    ("address, deny", "GET", "/blocked/x", &[], Nothing),
    ("route body", "POST", "/echo/small", &[], Length(100)),
    ("route body, too large", "POST", "/echo/small", &[], Length(SMALL_PASSED)),
    ("route body, larger", "POST", "/echo/large", &[], Length(BODY_PASSED)),
    ("route body, larger, open", "POST", "/echo/large", &[], Open(BODY_PASSED)),
    ("bad length", "POST", "/", &[("content-length", "x")], Nothing),
];

/// Parts of a response and its log line in which a transport may differ.
type Parts = &'static [&'static str];

/// Intended differences from plain HTTP/1.1: labels of rows, the transport, the differing parts and the
/// reason.
#[rustfmt::skip]
const DIFFERENCES: &[(&[&str], Via, Parts, &str)] = &[
    (&["range passed", "precondition", "precondition, HEAD"], Via::Subrequest, &["rule"],
        "a stored response for a condition or a range is a response of the script"),
    (&["escaped slash"], Via::Subrequest, &["status", "fields", "content", "rule", "log"],
        "the script sent an invalid path, not the client (RFC 3875 §6.2.2)"),
    (&["login right", "login right, absent"], Via::Subrequest, &["log"],
        "the log line is the one of the client's request, whose path has no guard"),
];

/// A response with its log line, without the parts that differ between any two responses.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    /// Status code, or 0 if the server reset the stream.
    status: u16,
    fields: Vec<String>,
    content: String,
    rule: String,
    log: String,
}

impl Seen {
    fn differing_parts(&self, other: &Seen) -> Vec<&'static str> {
        let parts = [
            ("status", self.status != other.status),
            ("fields", self.fields != other.fields),
            ("content", self.content != other.content),
            ("rule", self.rule != other.rule),
            ("log", self.log != other.log),
        ];
        let differing = parts.iter().filter(|(_, differs)| *differs);
        differing.map(|(name, _)| *name).collect()
    }
}

/// A response without its log line.
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    length: usize,
    adler32: u32,
}

impl Answer {
    fn of(response: Option<Response>) -> Answer {
        let Some(response) = response else {
            return Answer {
                status: 0,
                fields: Vec::new(),
                length: 0,
                adler32: 1,
            };
        };
        Answer {
            status: response.status,
            length: response.body.len(),
            adler32: adler32(&response.body),
            fields: response.fields,
        }
    }

    /// Parses a line of the HTTP/3 client: the status, the length and the checksum of the content, and the
    /// fields, separated by tabs.
    fn parse(line: &str) -> Answer {
        let mut parts = line.split('\t');
        let mut number = || {
            parts
                .next()
                .and_then(|part| part.parse().ok())
                .expect("a number")
        };
        let (status, length, adler32): (usize, usize, usize) = (number(), number(), number());
        let fields = parts.map(|field| {
            let (name, value) = field.split_once(": ").expect("a field");
            (name.to_owned(), value.to_owned())
        });
        Answer {
            status: status as u16,
            length,
            adler32: adler32 as u32,
            fields: fields.collect(),
        }
    }

    /// Adds the log line, given as JSON.
    fn with_log(self, line: &str) -> Seen {
        let own = ["date", "connection", "transfer-encoding", "alt-svc"];
        let steady = |name: &str, value: String| match name {
            "age" => String::new(),
            "cache-status" => value.split("ttl=").next().unwrap_or_default().to_owned(),
            _ => value
                .split("boundary=")
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        let fields = self.fields.into_iter();
        let fields = fields.map(|(name, value)| (name.to_lowercase(), value));
        let fields = fields.filter(|(name, _)| !own.contains(&name.as_str()));
        let mut fields: Vec<String> = fields
            .map(|(name, value)| format!("{name}: {}", steady(&name, value)))
            .collect();
        let is_multipart = fields.iter().any(|field| field.contains("multipart/"));
        fields.sort();
        let request = json_value(line, "request").replace("/run/to?", "");
        let request = request
            .rsplit_once(" HTTP/")
            .map_or("", |(request, _)| request);
        let mut log = format!("{request}\"");
        for key in ["status", "bytes", "host", "user", "referer"] {
            let _ = write!(log, " {key}={}", json_value(line, key));
        }
        Seen {
            status: self.status,
            fields,
            content: if is_multipart {
                self.length.to_string()
            } else {
                format!("{} bytes, {:08x}", self.length, self.adler32)
            },
            rule: json_value(line, "rule").to_owned(),
            log,
        }
    }
}

/// Returns the text of a value in a line of JSON, or an empty text.
fn json_value<'l>(line: &'l str, key: &str) -> &'l str {
    let Some((_, rest)) = line.split_once(&format!("\"{key}\":")) else {
        return "";
    };
    let end = rest.find(",\"").or(rest.find('}'));
    &rest[..end.unwrap_or(rest.len())]
}

/// Returns the Adler-32 checksum (RFC 1950 §8.2), available in Python as `zlib.adler32`.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}

fn body(bytes: usize) -> Vec<u8> {
    vec![b'b'; bytes]
}

fn ask_h1(server: &Server, over: Over, row: &Row, path: &str) -> Answer {
    let (_, method, _, fields, content) = row;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in *fields {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    let mut request = match content {
        Nothing => request + "\r\n",
        Length(bytes) | Withheld(bytes) => format!("{request}Content-Length: {bytes}\r\n\r\n"),
        Open(bytes) => format!("{request}Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n"),
    }
    .into_bytes();
    match content {
        Length(bytes) => request.extend(body(*bytes)),
        Open(bytes) => {
            request.extend(body(*bytes));
            request.extend_from_slice(b"\r\n0\r\n\r\n");
        }
        Nothing | Withheld(_) => {}
    }
    let mut wire = Wire::over(server, over);
    wire.send(request);
    let mut response = wire.next_response(method);
    while response.as_ref().is_some_and(|it| it.status == 100) {
        response = wire.next_response(method);
    }
    Answer::of(response)
}

fn ask_h2(server: &Server, row: &Row) -> Answer {
    let (_, method, path, fields, content) = row;
    let mut fields: Vec<(&str, &str)> = fields.to_vec();
    let length = match content {
        Length(bytes) | Withheld(bytes) => bytes.to_string(),
        Nothing | Open(_) => String::new(),
    };
    if !length.is_empty() {
        fields.push(("content-length", &length));
    }
    let mut h2 = H2::open(server, Over::Tls);
    let id = h2.ask(method, path, &fields, *content == Nothing);
    if let Length(bytes) | Open(bytes) = content {
        h2.data(id, &body(*bytes), true);
    }
    while let Some(frame) = h2.next() {
        let is_reset = frame.kind == wire::h2::frame::RST_STREAM;
        h2.record_frame(&frame);
        if frame.stream == id && (frame.ends() || is_reset) {
            break;
        }
    }
    Answer::of(h2.partial_response(id).cloned())
}

/// Sends the requests over HTTP/3 with a single client program, each over a separate connection.
fn ask_h3(server: &Server, rows: &[Row]) -> Vec<Answer> {
    let mut input = String::new();
    for (_, method, path, fields, content) in rows {
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("[{name:?}, {value:?}]"))
            .collect();
        let (kind, bytes) = match content {
            Nothing => ("nothing", 0),
            Length(bytes) => ("length", *bytes),
            Open(bytes) => ("open", *bytes),
            Withheld(bytes) => ("withheld", *bytes),
        };
        let fields = fields.join(", ");
        let _ = writeln!(
            input,
            "[{method:?}, {path:?}, [{fields}], {kind:?}, {bytes}]"
        );
    }
    let mut command = python();
    command
        .arg(script("h3_client.py"))
        .arg(server.https_port.to_string())
        .arg("versions");
    let done = finish(command, input.as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout.lines().map(Answer::parse).collect()
}

/// Returns true if a script can redirect to the request: a subrequest has the method GET or HEAD, no
/// content and a valid path.
fn fits_subrequest(row: &Row) -> bool {
    let (label, method, _, _, content) = row;
    matches!(*method, "GET" | "HEAD") && *content == Nothing && *label != "bad escape"
}

/// Sends the requests one after another, and returns the responses with their log lines.
fn ask(server: &Server, via: Via, rows: &[Row]) -> Vec<Seen> {
    let before = server.output.all().len();
    let answers: Vec<Answer> = match via {
        Via::Plain | Via::Tls => {
            let over = if via == Via::Plain {
                Over::Plain
            } else {
                Over::Tls
            };
            rows.iter()
                .map(|row| ask_h1(server, over, row, row.2))
                .collect()
        }
        Via::Http2 => rows.iter().map(|row| ask_h2(server, row)).collect(),
        Via::Http3 => ask_h3(server, rows),
        Via::Subrequest => {
            let path = |row: &Row| format!("/run/to?{}", row.2);
            rows.iter()
                .map(|row| ask_h1(server, Over::Plain, row, &path(row)))
                .collect()
        }
    };
    let lines = server
        .output
        .wait_until(Duration::from_secs(60), "all log lines", |lines| {
            (lines.len() >= before + rows.len()).then(|| lines[before..].to_vec())
        });
    assert_eq!(lines.len(), rows.len(), "{via:?}: {lines:#?}");
    let mut seen = Vec::new();
    for ((answer, line), row) in answers.into_iter().zip(lines).zip(rows) {
        let request = json_value(&line, "request");
        assert!(request.contains(row.2), "{via:?} {row:?}: {line}");
        seen.push(answer.with_log(&line));
    }
    seen
}

/// Compares each transport with plain HTTP/1.1, and returns descriptions of unexpected differences.
fn compare(server: &Server, rows: &[Row], others: &[Via]) -> Vec<String> {
    let plain = ask(server, Via::Plain, rows);
    let mut unexpected = Vec::new();
    for via in others {
        let chosen: Vec<usize> = (0..rows.len())
            .filter(|at| *via != Via::Subrequest || fits_subrequest(&rows[*at]))
            .collect();
        let asked: Vec<Row> = chosen.iter().map(|at| rows[*at]).collect();
        for (at, seen) in chosen.iter().zip(ask(server, *via, &asked)) {
            let (label, expected) = (rows[*at].0, &plain[*at]);
            let differing = expected.differing_parts(&seen);
            let intended = DIFFERENCES
                .iter()
                .find(|(labels, of, ..)| of == via && labels.contains(&label));
            if differing != intended.map_or(&[][..], |(_, _, parts, _)| parts) {
                unexpected.push(format!(
                    "{label:?} over {via:?}: {differing:?}\n  plain: {expected:?}\n  other: {seen:?}"
                ));
            }
        }
    }
    unexpected
}

fn config(limits: &str) -> String {
    server_table(&format!(
        "limits = {{ body_bytes = 5000, body_discard_bytes = 2000, {limits} }}"
    )) + "[log]\nformat = \"json\"\n"
        + &site_table(
            "http = \"serve\"\nlisting = true\nerrors = { 404 = \"lost.html\", 413 = \"large.html\" }\n\
             redirects = [{ from = \"/mapped/*\", to = \"/new/:splat\", status = 302 }, \
             { from = \"/page.txt/old\", to = \"https://localhost/\", status = 303, force = true }, \
             { from = \"/gone\", status = 410 }]\n\
             cors = { origins = [\"https://c.example\", \"https://a.example\"], credentials = true, \
             headers = [\"X-A\", \"Content-Type\"], methods = [\"GET\", \"PUT\"], expose = [\"X-B\"] }\n\
             rate = { requests = 1000000, burst = 1000000 }",
        )
        + "[[site.route]]\npath = \"/echo/small\"\nbody_bytes = 1000\n"
        + "[[site.route]]\npath = \"/echo/large\"\nbody_bytes = 10000\n"
        + "[[site.route]]\npath = \"/reads\"\nmethods = [\"GET\"]\nrewrite = \"/\"\n"
        + "[[site.route]]\npath = \"/edits\"\nguard_methods = [\"POST\"]\nusers = \"users\"\n"
        + "[[site.route]]\npath = \"/edits/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/blocked\"\nallow = [\"127.0.0.1\"]\ndeny = [\"127.0.0.0/8\"]\n"
        + "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n"
        + "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n"
        + "[[site.route]]\npath = \"/test\"\ntest = \"page\"\n"
        + "[[site.route]]\npath = \"/cached\"\ncgi = \"scripts\"\ncache = {}\n"
        + "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n"
        + "[[site.route]]\npath = \"/old\"\nredirect = \"/new/\"\n"
        + "[[site.route]]\npath = \"/denied\"\nallow = [\"192.0.2.1\"]\n"
        + "[[site.route]]\npath = \"/private/\"\nusers = \"users\"\n"
        + "[[site.route]]\npath = \"/private/echo\"\ntest = \"echo\"\n"
}

fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("users", format!("ant:{}\n", hash.text().trim()))
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/lost.html", "<p>lost</p>\n")
        .with("public/large.html", "<p>too large</p>\n")
        .with("public/private/index.html", "<p>private</p>\n")
        .with("public/edits/page.txt", "an edited page\n")
        .with("public/empty.txt", "")
        .with("public/large.bin", crate::h2::large())
        .with("public/middle.bin", vec![b'm'; 100_000])
        .with("public/sub/a.txt", "a\n")
        .with("public/page.txt.gz", "not really gzip")
        .with("public/page.txt", "plain text\n".repeat(100));
    let plain = "printf 'Content-Type: text/plain\\n\\n'\n";
    for (name, text) in [
        ("plain", format!("{plain}echo plain")),
        (
            "kept",
            "printf 'Cache-Control: max-age=600\\nContent-Type: text/plain\\n\\nkept'".to_owned(),
        ),
        (
            "own",
            "printf 'Status: 404 Gone\\nContent-Type: text/plain\\n\\nits own'".to_owned(),
        ),
        ("dies", "exit 1".to_owned()),
        (
            "cors",
            "printf 'Access-Control-Allow-Origin: *\\nVary: Cookie\\nContent-Type: text/plain\\n\\ncors'"
                .to_owned(),
        ),
        (
            "unavailable",
            "printf 'Status: 503\\nCache-Control: max-age=600\\nContent-Type: text/plain\\n\\nlater'".to_owned(),
        ),
        (
            "to",
            "printf 'Location: %s\\n\\n' \"$QUERY_STRING\"".to_owned(),
        ),
        (
            "waits",
            // The script also ends with the folder of the test.
            format!("while [ -e \"$0\" ] && [ ! -e go ]; do sleep 0.05; done\n{plain}"),
        ),
    ] {
        folder.program(&format!("scripts/{name}"), &format!("#!/bin/sh\n{text}\n"));
    }
    folder
}

/// A request without content, and the status of the response: the method, the path and fields.
type Decided = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    u16,
);

/// Requests that are refused or redirected whatever their content. The last ones are called, and a content is too large.
const DECIDED_BEFORE_CONTENT: &[Decided] = &[
    ("POST", "/page.txt", &[], 405),
    ("PUT", "/absent", &[], 404),
    ("GET", "/absent", &[], 404),
    ("POST", "/old/x", &[], 308),
    ("GET", "/mapped/x", &[], 302),
    ("GET", "/gone", &[], 410),
    ("POST", "/denied/x", &[], 403),
    ("POST", "/blocked/x", &[], 403),
    ("POST", "/private/echo", &[], 401),
    ("POST", "/private/echo", &[WRONG], 401),
    ("POST", "/edits/echo", &[], 401),
    ("POST", "/reads/page.txt", &[], 405),
    ("POST", "/echo/small", &[], 413),
    ("POST", "/private/echo", &[RIGHT], 413),
];

/// Returns the rows of [`DECIDED_BEFORE_CONTENT`] with a content.
fn with_content(content: Content, expects: bool) -> Vec<Row> {
    let rows = DECIDED_BEFORE_CONTENT.iter();
    let rows = rows.map(|(method, path, fields, _)| {
        let mut fields = fields.to_vec();
        fields.extend(expects.then_some(EXPECT));
        let fields: &'static [(&str, &str)] = fields.leak();
        ("before content", *method, *path, fields, content)
    });
    rows.collect()
}

/// The length of the content decides last, over all versions: a client learns first that its content needs a login,
/// belongs elsewhere or has the wrong method.
#[test]
fn guards_redirects_and_methods_come_before_the_length_of_the_content() {
    let server = Server::start_in(folder(), &config(""));
    let contents = [
        (Length(BODY_PASSED), false),
        (Withheld(BODY_PASSED), false),
        (Withheld(BODY_PASSED), true),
        (Open(BODY_PASSED), false),
        (Open(DISCARD_PASSED), false),
        (Length(DISCARD_PASSED), false),
    ];
    let mut wrong = Vec::new();
    for (content, expects) in contents {
        let rows = with_content(content, expects);
        for via in [Via::Plain, Via::Tls, Via::Http2, Via::Http3] {
            for (seen, expected) in ask(&server, via, &rows).iter().zip(DECIDED_BEFORE_CONTENT) {
                // Chunks beyond the limit cut the response that the handler has begun.
                let is_called = expected.3 == 413;
                let is_small = matches!(content, Length(DISCARD_PASSED) | Open(DISCARD_PASSED))
                    && expected.1 == "/private/echo";
                if is_called && (is_small || matches!(content, Open(_))) {
                    continue;
                }
                if seen.status != expected.3 {
                    wrong.push(format!(
                        "{via:?} {content:?} {expects}: {expected:?}: {}",
                        seen.status
                    ));
                }
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

fn check(unexpected: &[String]) {
    assert!(
        unexpected.is_empty(),
        "{} differences:\n{}",
        unexpected.len(),
        unexpected.join("\n")
    );
}

#[test]
fn every_version_gives_the_same_response_and_log_line() {
    let server = Server::start_in(folder(), &config(""));
    // The first requests load the pages, compress the pages and fill the page cache. The cache keeps
    // responses over TLS apart.
    ask(&server, Via::Plain, ROWS);
    ask(&server, Via::Tls, ROWS);
    check(&compare(&server, ROWS, &OTHERS));
}

/// Files that a process has open for writing have equal responses, without validator and for no cache.
#[test]
fn every_version_gives_the_same_response_for_open_files() {
    const GROWING: &str = "growing = [\"*.log\"]\n[[site.route]]";
    let config = config("").replacen("[[site.route]]", GROWING, 1);
    let server = Server::start_in(folder(), &config);
    let open = |name: &str| {
        let path = server.folder.path("public").join(name);
        let mut file = std::fs::File::create(path).expect("a file");
        file.write_all("some text\n".repeat(100).as_bytes())
            .expect("written");
        file
    };
    let _files = [open("quiet.txt"), open("page.log")];
    let rows: &[Row] = &[
        ("open", "GET", "/quiet.txt", &[GZIP], Nothing),
        ("open, HEAD", "HEAD", "/quiet.txt", &[], Nothing),
        (
            "open, range",
            "GET",
            "/quiet.txt",
            &[("range", "bytes=3-7")],
            Nothing,
        ),
        (
            "open, several ranges",
            "GET",
            "/quiet.txt",
            &[("range", "bytes=3-7,9-9")],
            Nothing,
        ),
        (
            "open, any tag",
            "GET",
            "/quiet.txt",
            &[("if-none-match", "*")],
            Nothing,
        ),
        (
            "precondition",
            "GET",
            "/quiet.txt",
            &[("if-match", "\"x\"")],
            Nothing,
        ),
        ("growing", "GET", "/page.log", &[GZIP], Nothing),
        ("growing, HEAD", "HEAD", "/page.log", &[], Nothing),
        (
            "growing, range",
            "GET",
            "/page.log",
            &[("range", "bytes=-5")],
            Nothing,
        ),
    ];
    let seen = eventually("the file after its pause", || {
        let seen = ask(&server, Via::Plain, rows);
        (seen[0].status == 200).then_some(seen)
    });
    for (seen, row) in seen.iter().zip(rows) {
        let has = |field: &str| seen.fields.iter().any(|it| it.starts_with(field));
        assert!(
            !has("etag:") && !has("last-modified:") && !has("content-encoding:"),
            "{row:?}: {seen:?}"
        );
        assert!(
            has("cache-control: no-store") || seen.status == 412,
            "{row:?}: {seen:?}"
        );
    }
    check(&compare(&server, rows, &OTHERS));
}

/// The refusal of a file that a process is writing to is equal as well.
#[test]
fn every_version_refuses_a_changing_file_in_the_same_way() {
    let server = Server::start_in(folder(), &config(""));
    let path = server.folder.path("public/changing.txt");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&is_done);
        scope.spawn(|| {
            let mut file = std::fs::File::create(path).expect("a file");
            while !is_done.load(Ordering::Relaxed) {
                file.write_all(b"more\n").expect("written");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let rows: &[Row] = &[
            ("changing", "GET", "/changing.txt", &[], Nothing),
            ("changing, HEAD", "HEAD", "/changing.txt", &[], Nothing),
        ];
        eventually("a refusal", || {
            (ask(&server, Via::Plain, rows)[0].rule == "508").then_some(())
        });
        check(&compare(&server, rows, &OTHERS));
    });
}

#[test]
fn every_version_refuses_a_call_beyond_the_slots_in_the_same_way() {
    let server = Server::start_in(folder(), &config("scripts = 1, script_queue = 1"));
    let mut wires = [(); 3].map(|()| Wire::plain(&server));
    for wire in &mut wires {
        wire.send("GET /run/waits HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    // The first call runs, the second call waits, and the third call is refused.
    server
        .output
        .wait_for("a refusal", |line| line.contains("\"rule\":714"));
    let rows: &[Row] = &[
        ("slots", "GET", "/run/plain", &[], Nothing),
        ("slots, HEAD", "HEAD", "/run/plain", &[], Nothing),
        ("slots, body", "POST", "/run/plain", &[], Length(100)),
    ];
    check(&compare(&server, rows, &OTHERS[..3]));
    server.folder.write("scripts/go", "");
}

/// Starts a server on which the verification of a password takes longer than the test, so no place in the queue of logins
/// becomes free.
fn server_with_slow_logins() -> Server {
    let folder = folder();
    let hash = format!("$6$rounds=900000000$saltsalt${}", "a".repeat(86));
    folder.write("users", format!("ant:{hash}\n"));
    Server::start_in(folder, &config(""))
}

/// Returns the number of refused logins.
fn refused_logins(server: &Server) -> usize {
    let lines = server.output.all();
    lines
        .iter()
        .filter(|line| line.contains("\"rule\":604"))
        .count()
}

/// Fills the queue of logins with guesses, `each` of them by one client. Returns the connections of the guesses.
fn fill_logins(server: &Server, each: usize) -> Vec<Wire> {
    let admitted = data_plane::limits::LOGIN_THREADS + data_plane::limits::LOGIN_QUEUE_MAX;
    let mut guesses = Vec::new();
    // A thread may be slow to take its first guess from the queue, and a guess received meanwhile is
    // refused. All places are taken when all guesses but `admitted` are refused.
    eventually("a full queue", || {
        let refused = refused_logins(server);
        if guesses.len() > admitted && refused == guesses.len() - admitted {
            return Some(());
        }
        let nth = guesses.len();
        if nth <= admitted || refused > nth - admitted {
            let mut wire = Wire::of(server, [127, 0, 1, (nth / each) as u8].into());
            let letters = [b"FJNR"[nth % 4], b'A' + (nth / 4) as u8].map(char::from);
            let login = format!("YW50Om{}{}", letters[0], letters[1]);
            wire.send(format!(
                "GET /private/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n\r\n"
            ));
            guesses.push(wire);
        }
        None
    });
    guesses
}

#[test]
fn a_login_displaced_by_one_of_a_further_client_is_refused() {
    let server = server_with_slow_logins();
    let guesses = fill_logins(&server, 8);
    let refused = refused_logins(&server);
    let mut newcomer = Wire::plain(&server);
    let (name, login) = RIGHT;
    newcomer.send(format!(
        "GET /private/newcomer HTTP/1.1\r\nHost: localhost\r\n{name}: {login}\r\n\r\n"
    ));
    eventually("a refusal", || {
        (refused_logins(&server) > refused).then_some(())
    });
    let lines = server.output.all();
    let of_newcomer = lines.iter().find(|line| line.contains("/private/newcomer"));
    assert_eq!(of_newcomer, None);
    drop(guesses);
}

#[test]
fn every_version_refuses_a_login_beyond_the_queue_in_the_same_way() {
    let server = server_with_slow_logins();
    // Each client has a single guess, so that a login of a further client displaces none.
    let _guesses = fill_logins(&server, 1);
    let rows: &[Row] = &[
        ("logins busy", "GET", "/private/", &[RIGHT], Nothing),
        ("logins busy, HEAD", "HEAD", "/private/", &[RIGHT], Nothing),
        (
            "logins busy, body",
            "POST",
            "/private/echo",
            &[RIGHT],
            Length(100),
        ),
        (
            "logins busy, too large",
            "POST",
            "/private/echo",
            &[RIGHT],
            Length(BODY_PASSED),
        ),
    ];
    check(&compare(&server, rows, &OTHERS));
}

#[test]
fn every_version_shows_a_change_on_disk_at_once() {
    let server = Server::start_in(folder(), &config(""));
    let rows: &[Row] = &[
        ("changed", "GET", "/sub/changed.txt", &[], Nothing),
        ("changed, HEAD", "HEAD", "/sub/changed.txt", &[], Nothing),
        ("removed", "GET", "/sub/removed.txt", &[], Nothing),
    ];
    let removed = server.folder.path("public/sub/removed.txt");
    for (round, via) in [Via::Plain].iter().chain(&OTHERS).enumerate() {
        let text = format!("round {round}\n");
        server.folder.write("public/sub/removed.txt", "here");
        assert_eq!(ask(&server, *via, &rows[2..])[0].status, 200, "{via:?}");
        server.folder.write("public/sub/changed.txt", &text);
        std::fs::remove_file(Path::new(&removed)).expect("removed");
        let seen = ask(&server, *via, rows);
        let expected = format!("{} bytes, {:08x}", text.len(), adler32(text.as_bytes()));
        assert_eq!(seen[0].content, expected, "{via:?}");
        assert_eq!(
            [0, 1, 2].map(|at| seen[at].status),
            [200, 200, 404],
            "{via:?}"
        );
    }
}
