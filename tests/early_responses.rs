//! Responses that are complete before the content of their request: a member's or a script's early answer, a refusal,
//! a redirect. Every client gets the response, with the right status, and the connection or the stream ends in order.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, eventually, finish, run, server_table, site_table};

/// Paths of requests with too much content, and the statuses of their responses.
const EARLY: [(&str, u16); 9] = [
    ("/early/x", 401),
    ("/cgi/no", 403),
    ("/down/x", 502),
    ("/small/x", 413),
    ("/page.txt", 405),
    ("/absent.txt", 404),
    ("/private/x", 401),
    ("/denied/x", 403),
    ("/old/x", 308),
];
/// Length of the content that the clients want to send: more than the buffers of the kernel hold, and more than
/// `body_discard_bytes`.
const CONTENT_BYTES: usize = 12_000_000;
/// Length of the page for the status 405, more than the buffers of the kernel hold.
const REFUSAL_BYTES: usize = 8_000_000;

/// A member that answers each request after the head, and never reads the content.
struct EarlyMember {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl EarlyMember {
    /// Starts a member with the answer `answer`. With `closes`, the member closes the connection right behind.
    fn start(answer: &'static str, closes: bool) -> EarlyMember {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let stream = answer_early(stream, answer);
                open.extend(stream.filter(|_| !closes));
            }
        });
        EarlyMember { port, connections }
    }
}

/// Starts a member that reads everything and answers nothing. Returns its port.
fn silent_member() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    port
}

/// Reads the head of a request byte by byte, and sends the answer.
fn answer_early(mut stream: TcpStream, answer: &str) -> Option<TcpStream> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    stream.write_all(answer.as_bytes()).ok()?;
    Some(stream)
}

const CLOSING_401: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\n\
    Content-Length: 4\r\nConnection: close\r\n\r\nauth";
const OPEN_401: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\n\
    Content-Length: 4\r\n\r\nauth";

/// Starts a server with the paths of [`EARLY`].
fn server(member: &EarlyMember, limits: &str) -> Server {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("users", format!("ant:{}\n", hash.text().trim()))
        .with("public/page.txt", "a page\n")
        .with("public/method.html", vec![b'm'; REFUSAL_BYTES]);
    folder.program(
        "scripts/no",
        "#!/bin/sh\nprintf 'Status: 403 Forbidden\\nContent-Type: text/plain\\n\\nno'\n",
    );
    let route = |path: &str, rest: &str| format!("[[site.route]]\npath = \"{path}\"\n{rest}\n");
    let proxy = format!("proxy = \"http://127.0.0.1:{}\"", member.port);
    let silent = format!("proxy = \"http://127.0.0.1:{}\"", silent_member());
    let mut config = server_table(&format!("h2c = true\nlimits = {{ {limits} }}"));
    config += &site_table("http = \"serve\"\nerrors = { 405 = \"method.html\" }");
    for (path, rest) in [
        ("/early/", proxy.clone()),
        ("/small/", format!("{silent}\nbody_bytes = \"1MiB\"")),
        ("/down/", "proxy = \"http://127.0.0.1:1\"".to_owned()),
        ("/cgi/", "cgi = \"scripts\"".to_owned()),
        ("/private/", format!("{proxy}\nusers = \"users\"")),
        ("/denied/", format!("{proxy}\ndeny = [\"127.0.0.0/8\"]")),
        ("/old/", "redirect = \"/new/\"".to_owned()),
    ] {
        config += &route(path, &rest);
    }
    Server::start_in(folder, &config)
}

/// A client that sends the whole content before it reads, as many do.
const SENDS_FIRST: &str = r#"
import http.client, ssl, sys
port, scheme, length = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for path in sys.argv[4:]:
    if scheme == "https":
        context = ssl._create_unverified_context()
        it = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
    else:
        it = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for chunked in [False, True]:
        try:
            body = b"\0" * length
            if chunked:
                it.request("PUT", path, iter([body]), encode_chunked=True)
            else:
                it.request("PUT", path, body)
            response = it.getresponse()
            print(path, response.status, len(response.read()))
        except Exception as error:
            print(path, repr(error))
        it.close()
"#;

#[test]
fn clients_that_send_all_before_they_read_get_every_response() {
    let member = EarlyMember::start(CLOSING_401, true);
    let server = server(&member, "");
    let paths: Vec<&str> = EARLY.iter().map(|(path, _)| *path).collect();
    for (scheme, port) in [("http", server.http_port), ("https", server.https_port)] {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", SENDS_FIRST, &port.to_string(), scheme]);
        python.arg(CONTENT_BYTES.to_string()).args(&paths);
        let done = finish(python, b"");
        for (path, status) in EARLY {
            let lines = done.stdout.lines();
            let told: Vec<&str> = lines
                .filter_map(|line| line.strip_prefix(path)?.strip_prefix(' '))
                .collect();
            let is_right = |told: &&str| told.starts_with(&format!("{status} "));
            assert!(
                told.len() == 2 && told.iter().all(is_right),
                "{scheme} {path}: {told:?}"
            );
            if status == 405 {
                let whole = format!("405 {REFUSAL_BYTES}");
                assert_eq!(told, [whole.as_str(); 2], "{scheme} {path}");
            }
        }
    }
}

#[test]
fn curl_gets_every_response_over_both_versions() {
    let member = EarlyMember::start(CLOSING_401, true);
    let server = server(&member, "");
    server.folder.write("body", vec![0; CONTENT_BYTES]);
    let file = server.folder.path("body").display().to_string();
    let mut wrong = String::new();
    for version in ["--http1.1", "--http2"] {
        for fields in [
            &["Expect:"][..],
            &["Expect: 100-continue"],
            &["Expect:", "Transfer-Encoding: chunked"],
        ] {
            for (path, status) in EARLY {
                let url = server.https(path);
                let mut arguments = vec![version, "-T", &file, "-o", "/dev/null"];
                arguments.extend(["-w", "%{http_code}", &url]);
                arguments.extend(fields.iter().flat_map(|field| ["-H", *field]));
                let ran = server.curl(&arguments);
                let told = String::from_utf8_lossy(&ran.stdout);
                if told != status.to_string() {
                    let _ = writeln!(wrong, "{version} {fields:?} {path}: {told}");
                }
            }
        }
    }
    assert_eq!(wrong, "");
}

#[cfg(feature = "http3")]
#[test]
fn clients_of_http3_get_every_response() {
    let member = EarlyMember::start(CLOSING_401, true);
    let server = server(&member, "");
    for kind in ["length", "open", "expect"] {
        let bytes = 3_000_000.to_string();
        let mut scene = vec!["uploads", kind, &bytes];
        scene.extend(EARLY.iter().map(|(path, _)| *path));
        let said = crate::h3::run_scenario(&server, &scene);
        let expected: Vec<String> = EARLY
            .iter()
            .map(|(path, status)| format!("{path} {status} None"))
            .collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{kind}");
    }
}

/// Sends `bytes` of content within the window of the stream, whatever the server answers meanwhile. The window of the
/// connection is larger. The stream must not be reset.
fn upload(h2: &mut H2, id: u32, bytes: usize) {
    let (mut left, mut window) = (bytes, 65_535_usize);
    while left > 0 {
        let part = left.min(window).min(16_384);
        if part == 0 {
            let frame = h2.next().expect("a frame");
            match frame.kind {
                frame::RST_STREAM => panic!("{left} bytes left: {frame:?}"),
                frame::WINDOW_UPDATE if frame.stream == id => window += frame.code() as usize,
                _ => {}
            }
            h2.record_frame(&frame);
            continue;
        }
        left -= part;
        window -= part;
        h2.data(id, &vec![b'x'; part], left == 0);
    }
}

#[test]
fn the_rest_of_an_upload_over_http2_is_discarded_behind_the_response() {
    let member = EarlyMember::start(OPEN_401, false);
    let server = server(&member, "body_discard_bytes = 2000");
    let length = ("content-length", "3000000");
    for over in [Over::Plain, Over::Tls] {
        for fields in [&[length][..], &[], &[length, ("expect", "100-continue")]] {
            let mut h2 = H2::open(&server, over);
            for (path, status) in EARLY {
                let id = h2.ask("PUT", path, fields, false);
                upload(&mut h2, id, 3_000_000);
                let response = h2.response(id);
                assert_eq!(response.status, status, "{over:?} {path} {fields:?}");
                assert!(response.whole, "{over:?} {path} {fields:?}");
                // The connection goes on.
                assert_eq!(h2.get("/page.txt").text(), "a page\n");
            }
        }
    }
}

/// The member answers before the end of the content and keeps the connection open, but the rest of the content would
/// be the beginning of the next request.
#[test]
fn a_connection_to_a_member_with_an_unsent_content_is_not_used_again() {
    let member = EarlyMember::start(OPEN_401, false);
    let server = server(&member, "");
    for count in 1..=3 {
        let mut wire = Wire::plain(&server);
        wire.send("PUT /early/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n");
        wire.send(vec![b'x'; 200_000]);
        assert_eq!(wire.response("PUT").status, 401);
        assert_eq!(member.connections.load(Ordering::SeqCst), count);
    }
}

/// A client with its response that goes on sending gives way to new clients.
#[test]
fn connections_behind_early_responses_give_way() {
    let member = EarlyMember::start(OPEN_401, false);
    let server = server(&member, "connections = 8");
    let early = |over| {
        let mut wire = Wire::over(&server, over);
        wire.send("PUT /old/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n");
        assert_eq!(wire.response("PUT").status, 308);
        wire
    };
    let mut lingering: Vec<Wire> = (0..4).map(|_| early(Over::Plain)).collect();
    lingering.extend((0..4).map(|_| early(Over::Tls)));
    let mut streams: Vec<H2> = Vec::new();
    for _ in 0..8 {
        for wire in &mut lingering {
            wire.send("x");
        }
        let mut wire = Wire::plain(&server);
        assert_eq!(wire.get("/page.txt", "").text(), "a page\n");
    }
    for _ in 0..8 {
        let mut h2 = H2::open(&server, Over::Plain);
        let id = h2.ask("PUT", "/old/x", &[("content-length", "9000000")], false);
        assert_eq!(h2.response(id).status, 308);
        h2.data(id, b"x", false);
        streams.push(h2);
    }
    for _ in 0..8 {
        for h2 in &mut streams {
            h2.data(1, b"x", false);
        }
        let mut wire = Wire::plain(&server);
        assert_eq!(wire.get("/page.txt", "").text(), "a page\n");
    }
    // A client that is done closes its connection, and the server at once does the same.
    drop((lingering, streams));
    eventually("closed connections", || {
        let open = server.counter("connections_opened") - server.counter("connections_closed");
        (open <= 1).then_some(())
    });
}
