//! Members with HTTP/2: nghttpd with and without TLS, and hand-written members, good and bad.

use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use wire::h2::frame;

use crate::clients::Authority;
use crate::members::{Load, PAGE_BYTES, pages};
use crate::support::h2::H2;
use crate::support::h2_member::{Frames, H2Answer, H2Member, LAST, MORE, ok};
use crate::support::member::{Answer, Member};
use crate::support::programs::{Program, free_port};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, eventually, server_table, site_table, tool};

/// Returns a configuration with a route `/` to a member with HTTP/2, and further keys in the `proxy` table.
fn config(url: &str, keys: &str) -> String {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"{url}\", http2 = true{keys} }}\n"
    );
    let site = site_table("http = \"serve\"\n");
    format!("{}{site}{route}", server_table(""))
}

fn proxy(member: &H2Member, keys: &str) -> Server {
    Server::start(&config(&member.url(), keys))
}

/// Starts nghttpd with the pages in `public`, on a given port.
pub fn nghttpd(port: u16, folder: Folder, arguments: &[&str]) -> Program {
    let mut command = Command::new(tool("nghttpd"));
    command.args(["--address=127.0.0.1", "--htdocs"]);
    command.arg(folder.path("public")).args(arguments);
    command.arg(port.to_string());
    if !arguments.contains(&"--no-tls") {
        command
            .arg(folder.path("key.pem"))
            .arg(folder.path("chain.pem"));
    }
    Program::start(command, port, folder)
}

/// Asks nghttpd for pages and sends bodies.
fn ask_nghttpd(server: &Server) {
    let mut wire = Wire::plain(server);
    let page = wire.get("/page.html", "");
    assert_eq!((page.status, page.body.len()), (200, PAGE_BYTES));
    assert_eq!(page.field("content-type"), Some("text/html"));
    let big = wire.get("/big.bin", "");
    let size = (big.status, big.whole, big.body.len());
    assert_eq!(size, (200, true, 3_000_000));
    assert_eq!(wire.get("/nothing", "").status, 404);
    let head = wire.ask("HEAD", "/page.html", "");
    assert_eq!(head.field("content-length"), Some("5100"));
    let body: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    server.folder.write("body", &body);
    let file = format!("@{}", server.folder.path("body").display());
    for (version, more) in [
        ("--http1.1", "Expect: 100-continue"),
        ("--http2", "Expect:"),
    ] {
        let url = server.https("/echo");
        let ran = server.curl(&[version, "-H", more, "--data-binary", &file, &url]);
        assert!(ran.stdout == body, "{version}: {}", ran.errors());
    }
}

#[test]
fn nghttpd_behind_the_proxy_by_prior_knowledge() {
    let member = nghttpd(free_port(), pages(), &["--no-tls", "--echo-upload"]);
    ask_nghttpd(&Server::start(&config(&member.url(), "")));
}

#[test]
fn nghttpd_behind_the_proxy_over_tls() {
    let authority = Authority::new("the members' CA");
    let leaf = authority.server(&["127.0.0.1"]);
    let folder = pages()
        .with("chain.pem", &leaf.certificate)
        .with("key.pem", &leaf.key);
    let member = nghttpd(free_port(), folder, &["--echo-upload"]);
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("ca.pem", &authority.pem);
    let url = format!("https://127.0.0.1:{}", member.port);
    ask_nghttpd(&Server::start_in(
        folder,
        &config(&url, ", ca = \"ca.pem\""),
    ));
}

#[test]
fn trailers_of_nghttpd_reach_the_client() {
    let member = nghttpd(free_port(), pages(), &["--no-tls", "--trailer=x-sum: 5"]);
    let server = Server::start(&config(&member.url(), ""));
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("GET", "/page.html", &[("te", "trailers")], true);
    let page = h2.response(id);
    assert_eq!((page.status, page.body.len()), (200, PAGE_BYTES));
    assert_eq!(page.trailers, [("x-sum".to_owned(), "5".to_owned())]);
}

#[test]
fn a_head_of_unknown_length_has_no_length() {
    let member = H2Member::start(|request| {
        let length = ("content-length", "7");
        let fields = [(":status", "200"), ("content-type", "text/html"), length];
        let told = if request.path() == "/long" { 3 } else { 2 };
        keep(Frames::default().head(LAST, request.stream, &fields[..told]))
    });
    let server = proxy(&member, "");
    let (mut wire, mut h2) = (Wire::plain(&server), H2::open(&server, Over::Tls));
    for (path, length) in [("/", None), ("/long", Some("7"))] {
        let head = wire.ask("HEAD", path, "");
        assert_eq!((head.status, head.field("content-length")), (200, length));
        let id = h2.ask("HEAD", path, &[], true);
        let head = h2.response(id);
        assert_eq!((head.status, head.field("content-length")), (200, length));
    }
}

#[test]
fn a_response_may_come_before_the_end_of_the_request() {
    let member = nghttpd(free_port(), pages(), &["--no-tls", "--early-response"]);
    let server = Server::start(&config(&member.url(), ""));
    let mut h2 = H2::open(&server, Over::Tls);
    for _ in 0..3 {
        let id = h2.ask("POST", "/page.html", &[], false);
        h2.data(id, b"begin", false);
        let response = h2.response(id);
        assert_eq!((response.status, response.body.len()), (200, PAGE_BYTES));
        // The rest of the request is not needed.
        let reset = h2.until(frame::RST_STREAM);
        assert_eq!((reset.stream, reset.code()), (id, 0));
    }
    assert_eq!(h2.get("/page.html").status, 200);
}

#[test]
fn no_get_fails_while_members_with_http2_restart() {
    let ports = [free_port(), free_port()];
    let mut members = ports.map(|port| Some(nghttpd(port, pages(), &["--no-tls"])));
    let urls = ports.map(|port| format!("\"http://127.0.0.1:{port}\""));
    let site = site_table("http = \"serve\"\n");
    let server = Server::start(&format!(
        "{}{site}[[site.route]]\npath = \"/\"\nbalance = \"pool\"\n\n[[balancer]]\nname = \"pool\"\n\
         http2 = true\neject = {{ pause = \"100ms\" }}\nmembers = [{}]\n",
        server_table(""),
        urls.join(", ")
    ));
    let load = Load::start(&server, 8, "GET");
    for (nth, signal) in ["KILL", "TERM", "INT", "KILL"].into_iter().enumerate() {
        load.wait_for(300);
        let slot = &mut members[nth % 2];
        let member = slot.take().expect("a member");
        member.signal(signal);
        let (port, folder) = (member.port, member.into_folder());
        load.wait_for(300);
        *slot = Some(nghttpd(port, folder, &["--no-tls"]));
    }
    load.wait_for(300);
    assert_eq!(load.end(), 0);
}

#[test]
fn a_request_is_written_anew_for_a_member_with_http2() {
    let member = H2Member::start(|request| ok(request, "hello"));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    wire.send(
        "GET /a%3Bb/./c/%2e%2E/d//e?x=%2F HTTP/1.1\r\nHost: www.example.org:80\r\nX-Own: 1\r\n\
         Connection: x-hop, keep-alive, TE\r\nX-Hop: 2\r\nKeep-Alive: 3\r\nProxy-Connection: x\r\n\
         TE: gzip, trailers\r\nX-Forwarded-For: 10.9.9.9\r\nVia: 1.1 front\r\nCookie: a=b\r\n\r\n",
    );
    let response = wire.response("GET");
    assert_eq!(
        (response.status, response.text()),
        (200, "hello".to_owned())
    );
    let request = member.requests().remove(0);
    let pseudo: Vec<&str> = request
        .fields
        .iter()
        .take(4)
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(pseudo, [":method", ":scheme", ":authority", ":path"]);
    let expected: &[(&str, &[&str])] = &[
        (":method", &["GET"]),
        (":scheme", &["http"]),
        (":authority", &["www.example.org:80"]),
        (":path", &["/a%3Bb/d//e?x=%2F"]),
        ("host", &[]),
        ("x-own", &["1"]),
        ("cookie", &["a=b"]),
        ("x-hop", &[]),
        ("keep-alive", &[]),
        ("proxy-connection", &[]),
        ("connection", &[]),
        ("te", &["trailers"]),
        ("x-forwarded-for", &["127.0.0.1"]),
        ("x-forwarded-proto", &["http"]),
        ("content-length", &[]),
    ];
    for (name, values) in expected {
        assert_eq!(request.all(name), *values, "{name} in {:?}", request.fields);
    }
    let via = request.all("via");
    assert!(via[0].starts_with("1.1 front, 1.1 anthill-"), "{via:?}");
    // The version in Via is the version in which the client asked.
    H2::open(&server, Over::Tls).get("/second");
    let via = member.requests()[1].all("via").concat();
    assert!(via.starts_with("2.0 anthill-"), "{via}");
    // A body and its trailers.
    let mut h2 = H2::open(&server, Over::Tls);
    let fields = [("te", "trailers"), ("trailer", "x-sum")];
    let id = h2.ask("POST", "/body", &fields, false);
    h2.data(id, b"hello", false);
    h2.frame(frame::HEADERS, LAST, id, &H2::block(&[("x-sum", "5")]));
    assert_eq!(h2.response(id).status, 200);
    let request = member.requests().remove(2);
    assert_eq!(request.body, b"hello");
    assert_eq!(request.trailers, [("x-sum".to_owned(), "5".to_owned())]);
    // Trailers share no connection.
    assert_eq!(member.connections(), 2);
}

#[test]
fn concurrent_requests_share_one_connection() {
    // The member answers once 100 requests wait.
    let waiting: Mutex<Vec<u32>> = Mutex::default();
    let member = H2Member::start(move |request| {
        let mut waiting = waiting.lock().expect("the requests");
        waiting.push(request.stream);
        let streams = waiting.iter().filter(|_| waiting.len() == 100);
        keep(streams.fold(Frames::default(), |frames, stream| frames.ok(*stream, "x")))
    });
    let server = proxy(&member, "");
    let mut h2 = H2::open(&server, Over::Tls);
    let ids: Vec<u32> = (0..100).map(|_| h2.ask("GET", "/", &[], true)).collect();
    for id in ids {
        let response = h2.response(id);
        assert_eq!((response.status, response.text()), (200, "x".to_owned()));
    }
    assert_eq!(member.connections(), 1);
}

#[test]
fn the_member_bounds_the_requests_of_a_connection() {
    // Three streams at once.
    let settings = Frames::default().frame(frame::SETTINGS, 0, 0, b"\0\x03\0\0\0\x03");
    let waiting: Mutex<Vec<(usize, u32)>> = Mutex::default();
    let member = H2Member::greeting(settings, move |request| {
        let mut waiting = waiting.lock().expect("the requests");
        waiting.push((request.connection, request.stream));
        let own = |it: &&(usize, u32)| it.0 == request.connection;
        assert!(waiting.iter().filter(own).count() <= 3);
        if waiting.len() < 9 {
            return H2Answer::Keep(Frames::default());
        }
        ok(request, "x")
    });
    let server = proxy(&member, ", first_byte_timeout = \"60s\"");
    let mut h2 = H2::open(&server, Over::Tls);
    for _ in 0..9 {
        h2.ask("GET", "/", &[], true);
    }
    eventually("nine requests", || {
        (member.requests().len() == 9).then_some(())
    });
    assert_eq!(member.connections(), 3);
}

/// Answer of a bad member, with the rule of its refusal.
type BadAnswer = (fn(u32) -> H2Answer, u16);

fn flood(kind: u8, stream: u32, bytes: usize) -> H2Answer {
    let payload = vec![0; bytes];
    let frames = (0..3_000).fold(Frames::default(), |frames, _| {
        frames.frame(kind, 0, stream, &payload)
    });
    H2Answer::Keep(frames)
}

fn keep(frames: Frames) -> H2Answer {
    H2Answer::Keep(frames)
}

fn head(id: u32, fields: &[(&str, &str)]) -> Frames {
    Frames::default().head(LAST, id, fields)
}

const OK: (&str, &str) = (":status", "200");

/// Bad answers before any head of a response, with their rules.
const BAD_ANSWERS: [BadAnswer; 24] = [
    (|id| keep(head(id, &[])), 760),
    (|id| keep(head(id, &[("a", "b"), OK])), 760),
    (|id| keep(head(id, &[OK, (":path", "/")])), 760),
    (|id| keep(head(id, &[(":status", "099")])), 760),
    (|id| keep(head(id, &[(":status", "103")])), 760),
    (|id| keep(head(id, &[OK, ("X-Upper", "b")])), 731),
    (|id| keep(head(id, &[OK, ("connection", "close")])), 731),
    (|id| keep(head(id, &[OK, ("a", "b\r\nc: d")])), 731),
    (|id| keep(head(id, &[OK, ("content-length", "5")])), 734),
    (
        |id| {
            keep(head(
                id,
                &[OK, ("content-length", "0"), ("content-length", "0")],
            ))
        },
        734,
    ),
    (|id| keep(head(id, &[(":status", "101")])), 737),
    (
        |id| {
            keep((0..40).fold(Frames::default(), |frames, _| {
                frames.head(MORE, id, &[(":status", "103")])
            }))
        },
        736,
    ),
    (
        |id| keep(Frames::default().frame(frame::DATA, 1, id, b"early")),
        761,
    ),
    (
        |id| keep(Frames::default().frame(frame::PUSH_PROMISE, MORE, id, b"\0\0\0\x02\x82")),
        761,
    ),
    (|id| keep(Frames::default().head(LAST, id + 2, &[OK])), 761),
    (|_| keep(Frames(b"\xff\xff\xff\0\0\0\0\0\0".to_vec())), 761),
    (
        |id| keep(Frames::default().frame(frame::HEADERS, LAST, id, b"\xff\xff\xff")),
        761,
    ),
    (|_| flood(frame::PING, 0, 8), 761),
    (|_| flood(frame::SETTINGS, 0, 0), 761),
    (|id| flood(frame::PRIORITY, id, 5), 761),
    (|id| keep(Frames::default().reset(id, 2)), 762),
    (|id| keep(Frames::default().reset(id, 7)), 763),
    (|_| H2Answer::Close(Frames::default()), 740),
    (
        |id| H2Answer::Close(Frames(head(id, &[OK]).0[..12].to_vec())),
        740,
    ),
];

#[test]
fn bad_answers_of_members_with_http2_are_refused() {
    let member = H2Member::start(|request| match request.path().strip_prefix("/bad/") {
        Some(number) => BAD_ANSWERS[number.parse::<usize>().expect("a number")].0(request.stream),
        None => ok(request, "good"),
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    for (number, (_, rule)) in BAD_ANSWERS.iter().enumerate() {
        let path = format!("/bad/{number}");
        let mut response = wire.get(&path, "");
        while response.status == 103 {
            response = wire.response("GET");
        }
        assert_eq!(response.status, 502, "{path}");
        server
            .errors
            .wait_for(&format!("R{rule} for {path}"), |line| {
                line.contains(&format!("{path}:")) && line.contains(&format!("R{rule}"))
            });
        let good = eventually("a usable member", || {
            Some(wire.get("/good", "")).filter(|it| it.status == 200)
        });
        assert_eq!(good.text(), "good", "after {path}");
    }
}

#[test]
fn a_response_that_fails_in_its_content_is_broken_off() {
    let member = H2Member::start(|request| {
        let id = request.stream;
        let head = Frames::default().head(MORE, id, &[OK, ("content-length", "9")]);
        let begun = head.clone().frame(frame::DATA, 0, id, b"begin");
        match request.path() {
            "/long" => keep(begun.frame(frame::DATA, frame::END_STREAM, id, b"too long")),
            "/short" => keep(begun.frame(frame::DATA, frame::END_STREAM, id, b"")),
            "/cut" => H2Answer::Close(begun),
            "/reset" => keep(begun.reset(id, 2)),
            "/protocol" => keep(begun.frame(frame::PUSH_PROMISE, MORE, id, b"\0\0\0\x02\x82")),
            "/window" => keep(
                Frames::default()
                    .head(MORE, id, &[OK])
                    .frame(frame::DATA, 0, id, &[0; 16_384])
                    .frame(frame::DATA, 0, id, &[0; 16_384])
                    .frame(frame::DATA, 0, id, &[0; 16_384])
                    .frame(frame::DATA, 0, id, &[0; 16_384]),
            ),
            "/trailers" => keep(
                Frames::default()
                    .head(MORE, id, &[OK])
                    .frame(frame::DATA, 0, id, b"x")
                    .head(LAST, id, &[OK]),
            ),
            _ => ok(request, "good"),
        }
    });
    let server = proxy(&member, "");
    for (path, rule) in [
        ("/long", 734),
        ("/short", 734),
        ("/cut", 746),
        ("/reset", 762),
        ("/protocol", 761),
        ("/window", 761),
        ("/trailers", 739),
    ] {
        let mut wire = Wire::plain(&server);
        let response = wire.get(path, "");
        assert!(
            response.status == 502 || !response.whole,
            "{path}: {response:?}"
        );
        server
            .errors
            .wait_for(&format!("R{rule} for {path}"), |line| {
                line.contains(&format!("{path}:")) && line.contains(&format!("R{rule}"))
            });
        eventually("a usable member", || {
            (Wire::plain(&server).get("/good", "").status == 200).then_some(())
        });
    }
}

#[test]
fn trailers_replace_no_field_of_the_route() {
    let fields = ", request_headers = { \"X-User\" = \"\", \"X-Tenant\" = \"own\" }";
    let trailers = "X-User: admin\r\nx-tenant: other\r\nX-Sum: 1\r\nProxy: http://a/\r\n";
    let wide = Frames::default()
        .frame(frame::SETTINGS, 0, 0, b"\0\x04\0\x10\0\0")
        .frame(frame::WINDOW_UPDATE, 0, 0, b"\0\x10\0\0");
    let only_set = "X-User: admin\r\nProxy: http://a/\r\n";
    // The first body is gathered, and the further bodies stream.
    for (size, count) in [(4, 1), (70_000, 1), (1_000, 100)] {
        let chunk = format!("{size:x}\r\n{}\r\n", "x".repeat(size)).repeat(count);
        for (trailers, expected) in [(trailers, vec![("x-sum", "1")]), (only_set, vec![])] {
            let post = format!(
                "POST / HTTP/1.1\r\nHost: a\r\nProxy: http://a/\r\nTrailer: X-Sum\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{chunk}0\r\n{trailers}\r\n"
            );
            let old = Member::start(|_| crate::support::member::ok("old"));
            let server =
                Server::start(&config(&old.url(), fields).replace("http2 = true", "http2 = false"));
            let mut wire = Wire::plain(&server);
            wire.send(&post);
            assert_eq!(wire.response("POST").text(), "old");
            let received = old.wait_for(1);
            let lines = expected
                .iter()
                .map(|(name, value)| format!("{name}: {value}\n"));
            assert_eq!(received.trailers.to_lowercase(), lines.collect::<String>());
            assert_eq!(received.fields("x-tenant"), ["own"]);
            assert!(received.fields("proxy").is_empty());

            let new = H2Member::greeting(wide.clone(), |request| ok(request, "new"));
            let server = proxy(&new, fields);
            let mut wire = Wire::plain(&server);
            wire.send(&post);
            assert_eq!(wire.response("POST").text(), "new");
            let received = new.requests().remove(0);
            let got: Vec<_> = received
                .trailers
                .iter()
                .map(|(name, value)| (&**name, &**value))
                .collect();
            assert_eq!((got, received.body.len()), (expected, size * count));
            assert_eq!(received.all("x-tenant"), ["own"]);
            assert!(received.all("proxy").is_empty());
        }
    }
}

#[test]
fn a_request_that_was_not_processed_is_sent_again() {
    let member = H2Member::start(|request| {
        let id = request.stream;
        match (request.path(), request.connection) {
            // The member closes its first connection in an orderly way.
            ("/goaway", 1) => H2Answer::Close(Frames::default().goaway(id - 2)),
            ("/refused", 2) if request.body == b"twice" => keep(Frames::default().reset(id, 7)),
            ("/refused", _) if request.body == b"other" => keep(Frames::default().reset(id, 7)),
            ("/closed", connection) if connection < 5 => {
                H2Answer::Close(Frames::default().goaway(id.saturating_sub(2)))
            }
            _ => ok(request, &request.body),
        }
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/first", "").status, 200);
    wire.send("POST /goaway HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(wire.response("POST").text(), "body");
    assert_eq!((member.count("/goaway"), member.connections()), (2, 2));
    // A body of unknown length streams, and its beginning is kept.
    wire.send("POST /goaway HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
    assert_eq!(wire.response("POST").text(), "body");
    wire.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nagain");
    assert_eq!(wire.response("POST").text(), "again");
    // After two refusals, the request takes a new connection.
    wire.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\ntwice");
    assert_eq!(wire.response("POST").text(), "twice");
    assert_eq!((member.count("/refused"), member.connections()), (4, 3));
    // Three connections in a row are closed by the member.
    wire.send("POST /closed HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(wire.response("POST").text(), "body");
    assert_eq!((member.count("/closed"), member.connections()), (4, 5));
    // The member refuses for ever: three repetitions, then the failure.
    wire.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nother");
    assert_eq!(wire.response("POST").status, 502);
    assert_eq!(member.count("/refused"), 8);
}

#[test]
fn a_post_on_a_connection_that_breaks_is_not_sent_again() {
    let member = H2Member::start(|request| match request.path() {
        "/breaks" => H2Answer::Close(Frames::default()),
        "/breaks-once" if request.connection == 2 => H2Answer::Close(Frames::default()),
        _ => ok(request, "good"),
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/first", "").status, 200);
    wire.send("POST /breaks HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(wire.response("POST").status, 502);
    assert_eq!(member.count("/breaks"), 1);
    eventually("a usable member", || {
        (wire.get("/first", "").status == 200).then_some(())
    });
    // A GET on a connection with earlier answers goes on.
    assert_eq!(wire.get("/breaks-once", "").status, 200);
    assert_eq!(member.count("/breaks-once"), 2);
}

#[test]
fn a_post_meets_no_idle_connection_that_is_dead() {
    let member = H2Member::start(|request| ok(request, &request.body));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    let mut post = || {
        // The connection is idle for longer than a request that must not be sent twice accepts unchecked.
        thread::sleep(Duration::from_secs(1));
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        assert_eq!(wire.response("POST").text(), "body");
    };
    post();
    post();
    assert_eq!(member.connections(), 1);
    member.ignore_pings();
    post();
    assert_eq!((member.requests().len(), member.connections()), (3, 2));
}

#[test]
fn a_connection_with_a_proxy_header_serves_one_request() {
    let member = H2Member::start(|request| ok(request, "good"));
    let server = proxy(&member, ", send_proxy_header = \"v1\"");
    let mut wire = Wire::plain(&server);
    for _ in 0..3 {
        assert_eq!(wire.get("/", "").status, 200);
    }
    let connections: Vec<usize> = member.requests().iter().map(|it| it.connection).collect();
    assert_eq!(connections, [1, 2, 3]);
}

#[test]
fn a_long_head_ends_no_connection_of_other_requests() {
    // A member such as nginx, which ends its connection at a long head.
    let member = H2Member::start(|request| match request.path() {
        "/slow" => keep(Frames::default()),
        path if path.starts_with("/long") => H2Answer::Close(Frames::default()),
        _ => ok(request, "good"),
    });
    let (before, after) = (server_table(""), server_table("trust = [\"127.0.0.1\"]\n"));
    let server = Server::start(&config(&member.url(), "").replace(&before, &after));
    let mut wire = Wire::plain(&server);
    let short = format!("X-A: {}\r\n", "z".repeat(7_000));
    assert_eq!(wire.get("/short", &short).status, 200);
    let mut slow = Wire::plain(&server);
    slow.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    eventually("a request under way", || {
        (member.count("/slow") == 1).then_some(())
    });
    let text = "z".repeat(8_000);
    let heads = [
        ("/long".to_owned(), format!("X-A: {text}\r\n")),
        ("/long".to_owned(), format!("Cookie: a={text}\r\n")),
        (format!("/long{text}"), String::new()),
        // Forwarded repeats the host for each address of the list.
        (
            "/long".to_owned(),
            format!(
                "X-Forwarded-Host: {}\r\nX-Forwarded-For: {}\r\n",
                "h".repeat(100),
                ["192.0.2.7"; 80].join(", ")
            ),
        ),
    ];
    for (path, fields) in &heads {
        assert_eq!(wire.get(path, fields).status, 502);
        wire = Wire::plain(&server);
    }
    let requests = member.requests();
    let connections = |is_long: bool| -> Vec<usize> {
        let wanted = requests
            .iter()
            .filter(|it| it.path().starts_with("/long") == is_long);
        wanted.map(|it| it.connection).collect()
    };
    assert_eq!(connections(false), [1, 1]);
    // Each attempt has a connection of its own.
    let own: Vec<usize> = (2..=member.connections()).collect();
    assert_eq!(connections(true), own);
    let stream = requests.iter().find(|it| it.path() == "/slow");
    let stream = stream.expect("a request").stream;
    member.send(1, &Frames::default().ok(stream, "in time"));
    assert_eq!(slow.response("POST").text(), "in time");
}

#[test]
fn trailers_of_a_request_share_no_connection() {
    // nginx 1.22 ends the whole connection at the trailers of a request.
    let member = H2Member::start(|request| ok(request, "good"));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/first", "").status, 200);
    let mut post = |announcement: &str, length: usize| {
        let body = "x".repeat(length);
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{announcement}Transfer-Encoding: chunked\r\n\r\n\
             {length:x}\r\n{body}\r\n0\r\nX-Sum: 1\r\n\r\n"
        ));
        assert_eq!(wire.response("POST").text(), "good");
        let request = member.requests().pop().expect("a request");
        assert_eq!(request.body.len(), length);
        (request.connection, request.trailers.len())
    };
    // Trailers without an announcement are dropped.
    assert_eq!(post("", 4), (1, 0));
    assert_eq!(post("", 20_000), (1, 0));
    assert_eq!(post("Trailer: X-Sum\r\n", 4), (2, 1));
    assert_eq!(post("Trailer: X-Sum\r\n", 20_000), (3, 1));
    assert_eq!(post("", 4), (1, 0));
}

#[test]
fn checks_use_http2() {
    let authority = Authority::new("the members' CA");
    let leaf = authority.server(&["127.0.0.1"]);
    let folder = pages()
        .with("chain.pem", &leaf.certificate)
        .with("key.pem", &leaf.key);
    let over_tls = nghttpd(free_port(), folder, &[]);
    let plain = nghttpd(free_port(), pages(), &["--no-tls"]);
    let https = format!("https://127.0.0.1:{}", over_tls.port);
    for (url, ca) in [(https, "ca = \"ca.pem\""), (plain.url(), "")] {
        let config = |path: &str| {
            format!(
                "{}{}[[site.route]]\npath = \"/\"\nbalance = \"pool\"\n\n[[balancer]]\nname = \"pool\"\n\
                 http2 = true\n{ca}\nmembers = [\"{url}\"]\nhealth = {{ path = \"{path}\", \
                 text = \"ppp\", every = \"100ms\", timeout = \"100ms\", rise = 1, fall = 1 }}\n",
                server_table(""),
                site_table("http = \"serve\"\n")
            )
        };
        let folder = Folder::new()
            .with("public/index.html", "")
            .with("ca.pem", &authority.pem);
        let server = Server::start_in(folder, &config("/nothing"));
        server.errors.wait_for("the failed check", |line| {
            line.contains("changed from up to check failed")
        });
        server.reload(&config("/page.html"));
        server.errors.wait_for("the passed check", |line| {
            line.contains("changed from check failed to up")
        });
        assert_eq!(Wire::plain(&server).get("/page.html", "").status, 200);
    }
}

#[test]
fn a_silent_member_loses_its_connection() {
    let member = H2Member::start(|request| match request.path() {
        "/silent" => H2Answer::Keep(Frames::default()),
        "/pause" => keep(Frames::default().head(MORE, request.stream, &[OK])),
        _ => ok(request, "good"),
    });
    let server = proxy(
        &member,
        ", first_byte_timeout = \"300ms\", silence_timeout = \"300ms\"",
    );
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/silent", "").status, 504);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R741"));
    assert_eq!(wire.get("/good", "").status, 200);
    assert_eq!(member.connections(), 2);
    assert!(!wire.get("/pause", "").whole);
    eventually("resets", || (member.resets() == 2).then_some(()));
}

#[test]
fn a_client_that_is_gone_cancels_its_stream_alone() {
    let member = H2Member::start(|request| match request.path() {
        "/silent" => H2Answer::Keep(Frames::default()),
        _ => ok(request, "good"),
    });
    let server = proxy(&member, "");
    let mut h2 = H2::open(&server, Over::Tls);
    for count in 1..=5 {
        let id = h2.ask("GET", "/silent", &[], true);
        eventually("the request", || {
            (member.requests().len() == count).then_some(())
        });
        h2.frame(frame::RST_STREAM, 0, id, &8_u32.to_be_bytes());
    }
    eventually("resets", || (member.resets() == 5).then_some(()));
    assert_eq!(h2.get("/good").status, 200);
    assert_eq!(member.connections(), 1);
}

#[test]
fn cancelled_requests_leave_the_requests_of_other_clients_alone() {
    let member = H2Member::start(|request| match request.path() {
        "/good" => ok(request, "good"),
        _ => H2Answer::Keep(Frames::default()),
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    wire.send("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    eventually("the POST", || (member.count("/post") == 1).then_some(()));
    for cancelled in [30, 60, 90, 120, 150] {
        let mut h2 = H2::open(&server, Over::Tls);
        let ids = [(); 30].map(|()| h2.ask("GET", "/silent", &[], true));
        eventually("the requests", || {
            (member.count("/silent") == cancelled).then_some(())
        });
        for id in ids {
            h2.frame(frame::RST_STREAM, 0, id, &8_u32.to_be_bytes());
        }
        eventually("resets", || (member.resets() == cancelled).then_some(()));
    }
    assert_eq!(Wire::plain(&server).get("/good", "").status, 200);
    let connections = member.requests().into_iter().map(|it| it.connection);
    assert_eq!(connections.filter(|it| *it == 2).count(), 31);
    assert_eq!(member.connections(), 2);
    let post = member.requests().remove(0);
    member.send(post.connection, &Frames::default().ok(post.stream, "done"));
    let response = wire.response("POST");
    assert_eq!((response.status, response.text()), (200, "done".to_owned()));
}

#[test]
fn an_unread_upload_leaves_the_uploads_of_other_clients_alone() {
    // The member grants 65,535 bytes for a connection, and no byte more.
    let member = H2Member::start(|request| ok(request, &request.body));
    let server = proxy(&member, "");
    let mut unread = Wire::plain(&server);
    unread.send("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    unread.send(vec![b'x'; 100_000]);
    eventually("a closed window", || {
        (member.data_bytes() == 65_535).then_some(())
    });
    let mut wire = Wire::plain(&server);
    for _ in 0..2 {
        let body = "y".repeat(100);
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{body}"
        ));
        assert_eq!(wire.response("POST").text(), body);
    }
    // A request without a body needs no window.
    assert_eq!(wire.get("/", "").status, 200);
    let connections: Vec<usize> = member.requests().iter().map(|it| it.connection).collect();
    assert_eq!(connections, [2, 2, 1]);
}

#[test]
fn an_unread_upload_leaves_the_uploads_that_began_earlier_alone() {
    // The member grants 65,535 bytes for a connection, and no byte more.
    let member = H2Member::start(|request| ok(request, request.body.len().to_string()));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    eventually("the first byte", || {
        (member.data_bytes() == 1).then_some(())
    });
    let mut unread = Wire::plain(&server);
    unread.send("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    unread.send(vec![b'x'; 100_000]);
    eventually("a closed window", || {
        (member.data_bytes() == 65_536).then_some(())
    });
    wire.send(format!("9c40\r\n{}\r\n0\r\n\r\n", "y".repeat(40_000)));
    assert_eq!(wire.response("POST").text(), "40001");
    assert_eq!(member.connections(), 2);
}

#[test]
fn interim_responses_and_trailers_only_pass() {
    let member = H2Member::start(|request| {
        let id = request.stream;
        keep(
            Frames::default()
                .head(MORE, id, &[(":status", "103"), ("link", "</a.css>")])
                .head(
                    LAST,
                    id,
                    &[
                        OK,
                        ("content-type", "application/grpc"),
                        ("grpc-status", "5"),
                    ],
                ),
        )
    });
    let server = proxy(&member, "");
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("GET", "/", &[("te", "trailers")], true);
    let interim = h2.until(frame::HEADERS);
    assert_eq!((interim.stream, interim.ends()), (id, false));
    let last = h2.until(frame::HEADERS);
    assert!(last.stream == id && last.ends(), "{last:?}");
}

#[test]
fn a_member_without_http2_is_named_in_the_log() {
    let member = Member::start(|_| Answer::Close(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    let server = Server::start(&config(&member.url(), ""));
    assert_eq!(Wire::plain(&server).get("/", "").status, 502);
    server.errors.wait_for("the reason", |line| {
        line.contains("R761") && line.contains("the member does not speak HTTP/2")
    });
    server.errors.wait_for("the ejection", |line| {
        line.ends_with(" changed from up to ejected: HTTP/2 failed")
    });
    let nginx = Program::nginx(pages(), "");
    let server = Server::start(&config(&nginx.url(), ""));
    assert_eq!(Wire::plain(&server).get("/page.html", "").status, 502);
    server.errors.wait_for("the reason", |line| {
        line.contains("R761") && line.contains("the member does not speak HTTP/2")
    });
}

#[test]
fn a_websocket_does_not_reach_a_member_with_http2() {
    let member = H2Member::start(|request| ok(request, "no tunnel"));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    // A server may ignore Upgrade (RFC 9110 §7.8).
    let response = wire.get("/socket", upgrade);
    assert_eq!(
        (response.status, response.text()),
        (200, "no tunnel".to_owned())
    );
    let request = member.requests().remove(0);
    assert_eq!(request.all("upgrade"), Vec::<&str>::new());
    let mut h2 = H2::open(&server, Over::Tls);
    let protocol = [(":protocol", "websocket")];
    let id = h2.ask("CONNECT", "/socket", &protocol, false);
    assert_eq!(h2.response(id).status, 405);
}

#[test]
fn a_reload_closes_idle_connections_of_a_removed_member() {
    let members = [(), ()].map(|()| H2Member::start(|request| ok(request, "good")));
    let server = proxy(&members[0], "");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", "").status, 200);
    server.reload(&config(&members[1].url(), ""));
    assert_eq!(wire.get("/", "").status, 200);
    assert_eq!(members[1].requests().len(), 1);
    assert_eq!(members[0].requests().len(), 1);
}
