//! Bad answers of a member: refused with a rule, or a broken response once the response has begun, over HTTP/1.1,
//! HTTP/2 and HTTP/3. No bad answer is stored, and its connection serves no further request.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::clients::Authority;
use crate::raw_streams::{Outcome, StreamRequest, ask_h2};
use crate::support::h2::H2;
use crate::support::member::{Answer, Member, Received};
use crate::support::wire::{Over, Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table};

use Expected::{Broken, Refused, Whole};

/// Result of a bad answer.
#[derive(Copy, Clone, Debug)]
enum Expected {
    /// Status and rule.
    Refused(u16, u16),
    /// Rule for which a response is broken off.
    Broken(u16),
    /// Content of a complete response. The bytes behind the response are dropped.
    Whole(&'static str),
}

/// End of an answer.
#[derive(Copy, Clone, PartialEq)]
enum End {
    Keeps,
    Closes,
}
use End::{Closes, Keeps};

/// Answers: purpose, bytes, end, result.
type Row = (&'static str, Vec<u8>, End, Expected);

/// Deadline for lines of the logs.
const PATIENCE: Duration = Duration::from_secs(60);

#[rustfmt::skip]
const HEADS: &[(&str, &str, Expected)] = &[
    // Status lines.
    ("no HTTP", "SSH-2.0-OpenSSH_9.6\r\n", Refused(502, 730)),
    ("HTTP/0.9", "<html>hello</html>", Refused(502, 730)),
    ("HTTP/2", "HTTP/2 200\r\n\r\n", Refused(502, 730)),
    ("SETTINGS of HTTP/2", "\0\0\0\x04\0\0\0\0\0", Refused(502, 730)),
    ("a later minor version", "HTTP/1.2 200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a version in lower case", "http/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a status below 100", "HTTP/1.1 99 Low\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a status above 599", "HTTP/1.1 600 High\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a status without digits", "HTTP/1.1 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("two spaces", "HTTP/1.1  200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a control character in the reason", "HTTP/1.1 200 O\x1bK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("LF behind the status line", "HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("an empty line first", "\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("bytes before the response", "aHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    ("a byte order mark", "\u{feff}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 730)),
    // Field lines.
    ("a folded field", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\na", Refused(502, 732)),
    ("a folded length", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\t2\r\n\r\na", Refused(502, 732)),
    ("a first field that is folded", "HTTP/1.1 200 OK\r\n X: a\r\n\r\n", Refused(502, 732)),
    ("no colon", "HTTP/1.1 200 OK\r\nX\r\nContent-Length: 1\r\n\r\na", Refused(502, 731)),
    ("no name", "HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 1\r\n\r\na", Refused(502, 731)),
    ("a space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na", Refused(502, 731)),
    ("a space in a name", "HTTP/1.1 200 OK\r\nX Y: a\r\nContent-Length: 1\r\n\r\na", Refused(502, 731)),
    ("NUL in a value", "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 1\r\n\r\na", Refused(502, 731)),
    ("CR in a value", "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 1\r\n\r\na", Refused(502, 731)),
    ("LF behind a field", "HTTP/1.1 200 OK\r\nX: a\nContent-Length: 1\r\n\r\na", Refused(502, 731)),
    ("LF at the end of the head", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\na", Refused(502, 731)),
    // Framing.
    ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", Refused(502, 734)),
    ("two equal lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\na", Refused(502, 734)),
    ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na", Refused(502, 734)),
    ("a length and a coding", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused(502, 734)),
    ("a coding and a length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", Refused(502, 734)),
    ("a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na", Refused(502, 734)),
    ("a length with a sign", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na", Refused(502, 734)),
    ("a hexadecimal length", "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\na", Refused(502, 734)),
    ("an overflowing length", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551617\r\n\r\na", Refused(502, 734)),
    ("an empty length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\na", Refused(502, 734)),
    ("two lengths of an interim response", "HTTP/1.1 103 Early Hints\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", Refused(502, 734)),
    ("a coding before chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Refused(502, 735)),
    ("a coding behind chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", Refused(502, 735)),
    ("chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused(502, 735)),
    ("an unknown coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Refused(502, 735)),
    ("chunks of HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", Refused(502, 735)),
    // Other protocols.
    ("a switch of protocols that was not requested", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", Refused(502, 737)),
];

/// Answers of which the connection ends too early.
#[rustfmt::skip]
const CUT: &[(&str, &str, Expected)] = &[
    ("no answer", "", Refused(502, 740)),
    ("a head that is cut", "HTTP/1.1 200 OK\r\nContent-Le", Refused(502, 740)),
    ("nothing behind an interim response", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", Refused(502, 740)),
    ("content that is cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Broken(746)),
    ("no content", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", Broken(746)),
    ("a cut behind a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Broken(746)),
    ("a cut within a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", Broken(746)),
    ("a cut within the trailer section", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n", Broken(746)),
    ("no chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Broken(746)),
];

/// Chunks behind a correct head.
#[rustfmt::skip]
const CHUNKS: &[(&str, &str)] = &[
    ("a chunk size without digits", "3\r\nabc\r\nx\r\n"),
    ("a chunk size with a prefix", "3\r\nabc\r\n0x1\r\na\r\n0\r\n\r\n"),
    ("a chunk size with a sign", "3\r\nabc\r\n+1\r\na\r\n0\r\n\r\n"),
    ("an overflowing chunk size", "3\r\nabc\r\n10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("a chunk longer than its size", "3\r\nabcdef\r\n0\r\n\r\n"),
    ("LF behind a chunk size", "3\r\nabc\r\n1\na\r\n0\r\n\r\n"),
    ("LF behind a chunk", "3\r\nabc\n0\r\n\r\n"),
    ("CR in a chunk extension", "3\r\nabc\r\n1;a=\rb\r\na\r\n0\r\n\r\n"),
    ("LF in the trailer section", "3\r\nabc\r\n0\r\nX: y\n\r\n"),
    ("a folded trailer field", "3\r\nabc\r\n0\r\nX: y\r\n z\r\n\r\n"),
    ("a trailer field without a colon", "3\r\nabc\r\n0\r\nHTTP/1.1 200 OK\r\n\r\n"),
];

/// Responses with bytes behind their end.
#[rustfmt::skip]
const SURPLUS: &[(&str, &str, Expected)] = &[
    ("a response behind content", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", Whole("a")),
    ("content longer than its length", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc", Whole("a")),
    ("a response behind chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", Whole("a")),
    ("content of no length", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", Whole("")),
    ("content of 204", "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", Refused(204, 0)),
    ("content of 304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", Refused(304, 0)),
];

fn rows() -> Vec<Row> {
    let bytes = |text: &str| text.as_bytes().to_vec();
    let heads = HEADS.iter().map(|row| (row.0, bytes(row.1), Keeps, row.2));
    let cut = CUT.iter().map(|row| (row.0, bytes(row.1), Closes, row.2));
    let surplus = SURPLUS
        .iter()
        .map(|row| (row.0, bytes(row.1), Keeps, row.2));
    let mut rows: Vec<Row> = heads.chain(cut).chain(surplus).collect();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (purpose, chunks) in CHUNKS {
        rows.push((
            purpose,
            bytes(&format!("{head}{chunks}")),
            Keeps,
            Broken(739),
        ));
    }
    let long = "x".repeat(40_000);
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n";
    for (purpose, text, expected) in [
        (
            "a huge field",
            format!("HTTP/1.1 200 OK\r\nX: {long}\r\nContent-Length: 1\r\n\r\na"),
            Refused(502, 733),
        ),
        (
            "a huge reason",
            format!("HTTP/1.1 200 {long}\r\nContent-Length: 1\r\n\r\na"),
            Refused(502, 733),
        ),
        (
            "a field without end",
            format!("HTTP/1.1 200 OK\r\n{long}"),
            Refused(502, 733),
        ),
        (
            "many fields",
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(300)),
            Refused(502, 733),
        ),
        (
            "a flood of interim responses",
            hint.repeat(100),
            Refused(502, 736),
        ),
        (
            "a huge trailer section",
            format!("{head}3\r\nabc\r\n0\r\nX: {}\r\n\r\n", &long[..5_000]),
            Broken(739),
        ),
        (
            "a huge chunk extension",
            format!("{head}3;a={}\r\nabc\r\n0\r\n\r\n", &long[..300]),
            Broken(739),
        ),
    ] {
        rows.push((purpose, text.into_bytes(), Keeps, expected));
    }
    rows
}

/// Returns the number in the path of a request.
fn number(request: &Received) -> usize {
    let number = request.line().split(['/', ' ']).nth(3);
    number.and_then(|it| it.parse().ok()).expect("a number")
}

/// Routes of the server: responses of the second are stored.
const ROUTES: [&str; 2] = ["/plain", "/kept"];

fn start(member: &Member, keys: &str) -> Server {
    let route = |path: &str, cache: &str| {
        let proxy = format!("proxy = {{ url = \"{}\"{keys} }}", member.url());
        format!("[[site.route]]\npath = \"{path}\"\n{proxy}\n{cache}")
    };
    let config = server_table("")
        + &site_table("http = \"serve\"\n")
        + &route(ROUTES[0], "")
        + &route(ROUTES[1], "cache = { seconds = 1000 }\n");
    Server::start(&config)
}

/// Returns the outcome of a GET over HTTP/1.1, behind all interim responses.
fn ask_http_1(server: &Server, path: &str) -> Outcome {
    let mut wire = Wire::plain(server);
    let mut response = wire.get(path, "");
    while response.status < 200 {
        response = wire.response("GET");
    }
    if response.whole {
        Outcome::complete(response.status, response.text())
    } else {
        Outcome::Broken
    }
}

/// Asks twice for each path over each version, and returns the outcomes of each path.
fn ask_twice(server: &Server, paths: &[String]) -> Vec<Vec<Outcome>> {
    let mut h2 = H2::open(server, Over::Tls);
    let mut id = 1;
    #[cfg(feature = "http3")]
    let mut h3 = crate::raw_streams::h3::H3Streams::start(server);
    let outcomes = paths.iter().map(|path| {
        let request = StreamRequest::get(path);
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            outcomes.push(ask_http_1(server, path));
            outcomes.push(ask_h2(&mut h2, id, &request));
            #[cfg(feature = "http3")]
            outcomes.push(h3.ask(&request, id == 1));
            id += 2;
        }
        outcomes
    });
    outcomes.collect()
}

fn outcome(expected: Expected) -> Outcome {
    match expected {
        Refused(status, _) => Outcome::Response(status, String::new()),
        Broken(_) => Outcome::Broken,
        Whole(text) => Outcome::Response(200, text.to_owned()),
    }
}

/// Checks the rows on both routes. A response to a row without an error is stored, if its route stores responses.
fn check(rows: &[Row], keys: &str) {
    let answers: Vec<(Vec<u8>, End)> = rows.iter().map(|row| (row.1.clone(), row.2)).collect();
    let member = Member::start(move |request| {
        let (bytes, end) = answers[number(request)].clone();
        match end {
            Keeps => Answer::Keep(bytes),
            Closes => Answer::Close(bytes),
        }
    });
    let server = start(&member, keys);
    let paths = ROUTES.map(|route| (0..rows.len()).map(move |nth| format!("{route}/{nth}")));
    let paths: Vec<String> = paths.into_iter().flatten().collect();
    let mut mismatches = Vec::new();
    for (nth, outcomes) in ask_twice(&server, &paths).iter().enumerate() {
        let (purpose, _, _, expected) = &rows[nth % rows.len()];
        let path = &paths[nth];
        if outcomes.iter().any(|it| *it != outcome(*expected)) {
            mismatches.push(format!("{path}, {purpose}: {outcomes:?}, not {expected:?}"));
        }
        let is_stored = path.starts_with(ROUTES[1]) && matches!(expected, Whole(_));
        if !is_stored {
            // A late member may still be about to receive the last request.
            wait_until(
                PATIENCE,
                &format!("every request for {path}, {purpose}"),
                || {
                    let requests = member.requests_with(&format!(" {path} "));
                    (requests.len() == outcomes.len()).then_some(())
                },
            );
        }
        let rule = match expected {
            Refused(_, rule @ 1..) | Broken(rule) => *rule,
            _ => continue,
        };
        let logged = |lines: &[String]| {
            let own = lines
                .iter()
                .filter(|line| line.contains(&format!("GET {path} ")));
            own.filter(|line| line.ends_with(&format!("rule=R{rule}")))
                .count()
        };
        let what = format!("R{rule} of {path}, {purpose}");
        server.output.wait_until(PATIENCE, &what, |lines| {
            (logged(lines) == outcomes.len()).then_some(())
        });
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    // Each connection served one request.
    let requests = member.requests();
    let connections: HashSet<usize> = requests.iter().map(|it| it.connection).collect();
    assert_eq!(connections.len(), requests.len());
    assert_eq!(server.counter("panics"), 0);
}

#[test]
fn bad_answers_are_refused_or_broken_off() {
    check(&rows(), "");
}

/// Checks that the log names the member that sends bytes behind its responses.
#[test]
fn bytes_behind_a_response_are_logged() {
    let member = Member::start(|request| {
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
        if request.line().starts_with("HEAD") {
            Answer::Keep(format!("{response}a").into_bytes())
        } else {
            Answer::Keep(format!("{response}ab").into_bytes())
        }
    });
    let server = start(&member, "");
    let mut wire = Wire::plain(&server);
    for method in ["GET", "HEAD"] {
        assert_eq!(wire.ask(method, "/plain/0", "").status, 200);
        let start = format!("bytes of a member behind a response: {method} /plain/0: balancer ");
        let end = format!(": {}; the connection was closed (rule R738)", member.url());
        server.errors.wait_for("the rule", |line| {
            line.contains("warn") && line.contains(&start) && line.ends_with(&end)
        });
    }
    assert_eq!(member.connections(), 2);
}

#[test]
fn silent_members_are_late() {
    let rows = [
        ("silence", ""),
        ("silence within the head", "HTTP/1.1 200 OK\r\nContent-Le"),
        (
            "silence behind a hint",
            "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n",
        ),
    ];
    let rows = rows.map(|(purpose, text)| (purpose, text.into(), Keeps, Refused(504, 741)));
    check(&rows, ", first_byte_timeout = \"100ms\"");
    let rows = [
        (
            "silence within content",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        ),
        (
            "silence behind a chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ),
    ];
    let rows = rows.map(|(purpose, text)| (purpose, text.into(), Keeps, Broken(741)));
    check(&rows, ", silence_timeout = \"100ms\"");
}

/// Starts a member over TLS that sends a response behind its handshake, before any request. Returns the URL, and
/// the channel of the bytes that the member reads from each connection.
fn early_member(authority: &Authority) -> (String, Receiver<Vec<u8>>) {
    let leaf = authority.server(&["127.0.0.1"]);
    let chain = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key);
    let mut config = config.expect("a pair");
    // The response is in the member's first flight.
    config.send_half_rtt_data = true;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}", listener.local_addr().expect("its address"));
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, socket.expect("a connection"));
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly";
            stream.conn.writer().write_all(response).expect("a buffer");
            let mut request = Vec::new();
            let _ = stream.read_to_end(&mut request);
            let _ = sender.send(request);
        }
    });
    (url, receiver)
}

#[test]
fn bytes_before_a_request_are_no_response() {
    let authority = Authority::new("the members' CA");
    let (url, requests) = early_member(&authority);
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("ca.pem", &authority.pem);
    let route =
        format!("[[site.route]]\npath = \"/\"\nproxy = {{ url = \"{url}\", ca = \"ca.pem\" }}\n");
    let config = server_table("") + &site_table("http = \"serve\"\n") + &route;
    let server = Server::start_in(folder, &config);
    for _ in 0..2 {
        assert_eq!(
            ask_http_1(&server, "/"),
            Outcome::Response(502, String::new())
        );
        // The member got no request.
        assert_eq!(requests.recv_timeout(PATIENCE), Ok(Vec::new()));
    }
    server.output.wait_until(PATIENCE, "two refusals", |lines| {
        let refused = lines.iter().filter(|line| line.ends_with("rule=R738"));
        (refused.count() == 2).then_some(())
    });
}

#[test]
fn the_log_quotes_the_malformed_lines_of_a_member() {
    let table = [
        ("SSH-2.0-x\r\n", "\"SSH-2.0-x\" (rule R730)"),
        (
            "HTTP/1.1 200 OK\r\nA: 1\r\nB : 2\r\n\r\n",
            "\"B : 2\" (rule R731)",
        ),
        (
            "HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n\r\n",
            "\" folded\" (rule R732)",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "\"Content-Length: 1\", \"Content-Length: 2\" (rule R734)",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "\"Transfer-Encoding: gzip\" (rule R735)",
        ),
    ];
    let answers = table.map(|(answer, _)| answer);
    let member = Member::start(move |request| Answer::Keep(answers[number(request)].into()));
    let server = start(&member, "");
    let mut wire = Wire::plain(&server);
    for (nth, (_, quoted)) in table.iter().enumerate() {
        assert_eq!(wire.get(&format!("/plain/{nth}"), "").status, 502);
        let start = format!("GET /plain/{nth}: balancer ");
        server.errors.wait_for(quoted, |line| {
            line.contains(&start) && line.ends_with(quoted)
        });
    }
}
