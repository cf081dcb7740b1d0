//! Reverse proxy: requests as members receive them, and answers of members, good and bad.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use crate::support::h2::H2;
use crate::support::member::{Answer, Member, Received, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Server, server_table, site_table};

/// Starts a server with a route `/` to the member, with further keys in the route's `proxy` table.
fn proxy(member: &Member, keys: &str) -> Server {
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"{}\"{keys} }}\n",
        member.url()
    );
    let site = site_table("http = \"serve\"\n");
    Server::start(&format!("{}{site}{route}", server_table("")))
}

/// Starts a member that answers each request with its method and the length of its body.
fn counting_member() -> Member {
    Member::start(|request| {
        ok(format!(
            "{} {}",
            &request.line()[..4].trim(),
            request.body.len()
        ))
    })
}

#[test]
fn members_receive_requests_written_anew() {
    let member = Member::start(|_| ok("hello"));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    wire.send(
        "GET /a%3Bb/./c/%2e%2E/d//e?x=%2F HTTP/1.1\r\nHost: www.example.org:80\r\nX-Own: 1\r\n\
         Connection: x-hop, keep-alive\r\nX-Hop: 2\r\nKeep-Alive: 3\r\nProxy-Connection: x\r\n\
         TE: gzip, trailers\r\nUpgrade: h2c\r\nX-Forwarded-For: 10.9.9.9\r\nForwarded: for=10.9.9.9\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\nVia: 1.1 front\r\nCookie: a=b\r\n\r\n",
    );
    let response = wire.response("GET");
    assert_eq!(
        (response.status, response.text()),
        (200, "hello".to_owned())
    );
    let request = member.wait_for(1);
    assert_eq!(request.line(), "GET /a%3Bb/d//e?x=%2F HTTP/1.1");
    let expected: &[(&str, &[&str])] = &[
        ("host", &["www.example.org:80"]),
        ("x-own", &["1"]),
        ("cookie", &["a=b"]),
        ("x-hop", &[]),
        ("keep-alive", &[]),
        ("proxy-connection", &[]),
        ("upgrade", &[]),
        ("te", &["trailers"]),
        ("connection", &["TE"]),
        ("x-forwarded-for", &["127.0.0.1"]),
        ("x-forwarded-proto", &["http"]),
        ("x-forwarded-host", &["www.example.org:80"]),
        ("content-length", &[]),
    ];
    for (name, values) in expected {
        assert_eq!(request.fields(name), *values, "{name} in {}", request.head);
    }
    let via = request.fields("via");
    assert!(via[0].starts_with("1.1 front, 1.1 anthill-"), "{via:?}");
}

#[test]
fn a_route_replaces_the_fields_of_the_proxy() {
    let member = Member::start(|_| ok("hello"));
    let keys = ", request_headers = { \"X-Forwarded-Proto\" = \"https\", x-forwarded-for = \"\", \
         Forwarded = \"for=_hidden\", \"X-Forwarded-Host\" = \"a.test\", \"X-Real-IP\" = \"{client}\", \
         \"X-Both\" = \"<{client}>, {client}\" }";
    let server = proxy(&member, keys);
    let forged =
        "X-Real-IP: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: ftp\r\nX-Both: c\r\n";
    assert_eq!(Wire::plain(&server).get("/", forged).status, 200);
    let request = member.wait_for(1);
    let expected: &[(&str, &[&str])] = &[
        ("x-forwarded-proto", &["https"]),
        ("x-forwarded-for", &[]),
        ("x-forwarded-host", &["a.test"]),
        ("forwarded", &["for=_hidden"]),
        ("x-real-ip", &["127.0.0.1"]),
        ("x-both", &["<127.0.0.1>, 127.0.0.1"]),
    ];
    for (name, values) in expected {
        assert_eq!(request.fields(name), *values, "{name} in {}", request.head);
    }
}

#[test]
fn a_request_that_came_through_this_server_is_a_loop() {
    let member = Member::start(|_| ok("hello"));
    let server = proxy(&member, "");
    Wire::plain(&server).get("/", "");
    let via = member.wait_for(1).fields("via")[0].to_owned();
    let looped = Wire::plain(&server).get("/", &format!("Via: {via}, 1.1 other\r\n"));
    assert_eq!(looped.status, 508);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R745"));
    // Another instance of the program is no loop.
    let other = via.replace("anthill-", "anthill-f");
    let passed = Wire::plain(&server).get("/", &format!("Via: {other}\r\n"));
    assert_eq!(passed.status, 200);
}

#[test]
fn bodies_reach_the_member_whole_over_every_version() {
    let member = counting_member();
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    for length in [0, 1, 10_000, 65_536, 65_537, 1_000_000] {
        let expected = format!("POST {length}");
        let body = vec![b'x'; length];
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        wire.send(&body);
        assert_eq!(wire.response("POST").text(), expected);

        wire.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for part in body.chunks(100_000) {
            wire.send([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
        }
        wire.send("0\r\n\r\n");
        assert_eq!(wire.response("POST").text(), expected, "chunked");

        server.folder.write("body", &body);
        let file = format!("@{}", server.folder.path("body").display());
        let url = server.https("/");
        let ran = server.curl(&["--http2", "--data-binary", &file, &url]);
        assert_eq!(ran.text(), expected, "over HTTP/2");
    }
    // A short body of unknown length is counted before the member gets the request.
    let short = &member.requests()[4];
    assert_eq!(short.fields("content-length"), ["1"], "{}", short.head);
}

#[test]
fn idempotent_requests_share_a_connection_and_others_get_their_own() {
    let member = counting_member();
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    for _ in 0..3 {
        assert_eq!(wire.get("/", "").status, 200);
    }
    assert_eq!(member.connections(), 1);
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(wire.response("POST").text(), "POST 2");
    assert_eq!(member.connections(), 2);
    assert_eq!(wire.get("/", "").status, 200);
    assert_eq!(member.connections(), 2);
}

#[test]
fn a_get_on_a_stale_connection_is_sent_again() {
    // The member closes each connection at its second request, without an answer.
    let member = Member::start(|request| match request.connection {
        1 if request.line().contains("/second") => Answer::Hang,
        _ => ok("hello"),
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/first", "").status, 200);
    assert_eq!(wire.get("/second", "").text(), "hello");
    assert_eq!((member.connections(), member.requests().len()), (2, 3));
}

#[test]
fn a_post_is_never_sent_twice() {
    let member = Member::start(|_| Answer::Hang);
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(wire.response("POST").status, 502);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R740"));
    assert_eq!(member.requests().len(), 1);
}

#[test]
fn responses_without_content_keep_their_meaning() {
    let answer = |request: &Received| {
        let bytes: &[u8] = match request.line().split(' ').nth(1) {
            Some("/head") => b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
            Some("/204") => b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
            Some("/304") => b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
            Some("/reason") => b"HTTP/1.1 200 Well Done\r\nContent-Length: 2\r\n\r\nab",
            Some("/empty") => b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
            _ => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        };
        Answer::Keep(bytes.to_vec())
    };
    let member = Member::start(answer);
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    let head = wire.ask("HEAD", "/head", "");
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("77"))
    );
    let none = wire.get("/204", "");
    assert_eq!((none.status, none.field("x-a")), (204, Some("b")));
    let unchanged = wire.get("/304", "If-None-Match: \"a\"\r\n");
    assert_eq!(
        (unchanged.status, unchanged.field("etag")),
        (304, Some("\"a\""))
    );
    assert_eq!(wire.get("/reason", "").text(), "ab");
    assert_eq!(wire.get("/empty", "").text(), "");
    assert_eq!(wire.get("/chunked", "").text(), "abc");
    assert_eq!(member.connections(), 1);
}

#[test]
fn a_head_of_unknown_length_has_no_length() {
    let answer = |request: &Received| {
        let is_head = request.line().starts_with("HEAD ");
        let text = if is_head { "" } else { "3\r\nabc\r\n0\r\n\r\n" };
        let kind = "Content-Type: text/html\r\n";
        let chunked = format!("HTTP/1.1 200 OK\r\n{kind}Transfer-Encoding: chunked\r\n\r\n{text}");
        match request.line().split(' ').nth(1) {
            Some("/close") => {
                let closing = format!("HTTP/1.1 200 OK\r\n{kind}Connection: close\r\n\r\n");
                Answer::Close(closing.into_bytes())
            }
            Some("/empty") => {
                Answer::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec())
            }
            _ => Answer::Keep(chunked.into_bytes()),
        }
    };
    let member = Member::start(answer);
    let server = proxy(&member, "");
    let (mut wire, mut h2) = (Wire::plain(&server), H2::open(&server, Over::Tls));
    let coding = [("accept-encoding", "gzip")];
    for (path, length) in [("/chunked", None), ("/close", None), ("/empty", Some("0"))] {
        for fields in [&[][..], &coding] {
            let lines = fields
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"));
            let head = wire.ask("HEAD", path, &lines.collect::<String>());
            assert_eq!(
                (head.status, head.field("content-length")),
                (200, length),
                "{path}"
            );
            assert!(!head.closes(), "{path}");
            let id = h2.ask("HEAD", path, fields, true);
            let head = h2.response(id);
            assert_eq!(
                (head.status, head.field("content-length")),
                (200, length),
                "{path}"
            );
            #[cfg(feature = "http3")]
            {
                let told = crate::h3::run_scenario(&server, &["ask", &format!("HEAD {path}")]);
                let has_length = told.contains("\"content-length\"");
                assert_eq!(has_length, length.is_some(), "{path}: {told}");
            }
        }
    }
    // The connection serves further requests.
    assert_eq!(wire.get("/chunked", "").text(), "abc");
    let old = "Connection: keep-alive\r\n\r\n";
    wire.send(format!(
        "HEAD /chunked HTTP/1.0\r\nHost: localhost\r\n{old}"
    ));
    let head = wire.response("HEAD");
    assert_eq!(
        (head.field("content-length"), head.field("connection")),
        (None, Some("keep-alive"))
    );
    assert_eq!(wire.get("/chunked", "").text(), "abc");
}

#[test]
fn bad_answers_are_refused_with_their_rules() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    let flood = "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n".repeat(100);
    let table: &[(&str, u16, u16)] = &[
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            502,
            734,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            502,
            734,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 502, 734),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            502,
            735,
        ),
        ("HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", 502, 732),
        ("HTTP/1.1 200 OK\r\nX : a\r\n\r\n", 502, 731),
        ("HTTP/1.1 200 OK\nX: a\n\n", 502, 730),
        ("HTTP/2 200\r\n\r\n", 502, 730),
        ("SSH-2.0-OpenSSH_9.6\r\n", 502, 730),
        ("HTTP/1.1 99 Low\r\n\r\n", 502, 730),
        (&long, 502, 733),
        (&flood, 502, 736),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
            502,
            737,
        ),
        ("HTTP/1.1 200 O", 502, 740),
        ("", 502, 740),
    ];
    let answers: Vec<Vec<u8>> = table.iter().map(|row| row.0.as_bytes().to_vec()).collect();
    let member = Member::start(move |request| {
        let nth = request
            .line()
            .split(['/', ' '])
            .nth(2)
            .and_then(|nth| nth.parse().ok());
        Answer::Close(answers[nth.unwrap_or(0_usize)].clone())
    });
    let server = proxy(&member, "");
    for (nth, (answer, status, rule)) in table.iter().enumerate() {
        let shown = &answer[..answer.len().min(60)];
        let mut wire = Wire::plain(&server);
        let mut response = wire.get(&format!("/{nth}"), "");
        while response.status < 200 {
            response = wire.response("GET");
        }
        assert_eq!(response.status, *status, "{shown}");
        let is_logged = |line: &str| {
            line.contains(&format!(" /{nth} ")) && line.contains(&format!("rule=R{rule}"))
        };
        server.output.wait_for(shown, is_logged);
    }
}

#[test]
fn content_that_breaks_off_is_never_taken_for_complete() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_owned(),
        format!("{head}3\r\nabc\r\n"),
        format!("{head}3\r\nabc\r\nx\r\n"),
        format!("{head}3\r\nabcdef\r\n"),
    ];
    let count = answers.len();
    let member = Member::start(move |request| {
        let nth = request
            .line()
            .split(['/', ' '])
            .nth(2)
            .and_then(|nth| nth.parse().ok());
        Answer::Close(answers[nth.unwrap_or(0_usize)].clone().into_bytes())
    });
    let server = proxy(&member, "");
    for nth in 0..count {
        let response = Wire::plain(&server).get(&format!("/{nth}"), "");
        assert!(!response.whole, "{nth}: {response:?}");
    }
}

#[test]
fn a_connection_with_surplus_bytes_serves_no_further_request() {
    let member = Member::start(|_| {
        Answer::Keep(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n\r\n".to_vec(),
        )
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    for _ in 0..3 {
        assert_eq!(wire.get("/", "").text(), "a");
    }
    assert_eq!(member.connections(), 3);
}

#[test]
fn a_silent_member_is_answered_with_504() {
    let member = Member::start(|_| Answer::Silence);
    let server = proxy(&member, ", first_byte_timeout = \"300ms\"");
    assert_eq!(Wire::plain(&server).get("/", "").status, 504);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R741"));
    server.errors.wait_for("the key", |line| {
        line.ends_with(": longer than `first_byte_timeout` (300ms) (rule R741)")
    });
}

#[test]
fn a_member_that_falls_silent_breaks_the_response_off() {
    let member = Member::start(|_| {
        Answer::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec())
    });
    let server = proxy(&member, ", silence_timeout = \"300ms\"");
    assert!(!Wire::plain(&server).get("/", "").whole);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R741"));
    // The log does not call a response that had begun missing.
    server.errors.wait_for("the cause", |line| {
        line.contains("member was silent within its response for longer than `silence_timeout`")
            && line.contains("the response was broken off (rule R741)")
    });
}

#[test]
fn an_unreachable_member_is_answered_with_502() {
    let member = Member::start(|_| Answer::Hang);
    let url = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    drop(member);
    let site = site_table("http = \"serve\"\n");
    let route = format!("[[site.route]]\npath = \"/\"\nproxy = \"{url}\"\n");
    let server = Server::start(&format!("{}{site}{route}", server_table("")));
    assert_eq!(Wire::plain(&server).get("/", "").status, 502);
    server
        .output
        .wait_for("the rule", |line| line.contains("rule=R742"));
}

#[test]
fn an_event_stream_arrives_event_by_event() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let member = Member::start(move |_| {
        Answer::Parts(vec![
            [head.as_bytes(), b"data: 1\n\n"].concat(),
            b"data: 2\n\n".to_vec(),
        ])
    });
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("data: 2") {
        seen.extend(wire.take(1));
    }
    // The member keeps the stream open, so the events arrived before its end.
    let _ = wire.socket.flush();
    assert!(String::from_utf8_lossy(&seen).contains("data: 1"));
}

#[test]
fn hostile_requests_are_refused_or_arrive_clean() {
    let member = Member::start(|_| ok("hello"));
    let server = proxy(&member, "");
    let table: &[(&str, &str)] = &[
        (
            "two lengths",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        ),
        (
            "length and coding",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "spaced coding",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "tabbed coding",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\x0b\r\n\r\n0\r\n\r\n",
        ),
        ("folded", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n"),
        ("bare LF", "GET / HTTP/1.1\nHost: a\n\n"),
        ("NUL", "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
        ("CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
        (
            "dots with parameter",
            "GET /a/..;/b HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "dots with encoded parameter",
            "GET /a/..%3b/b HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        ("climbs", "GET /../a HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("encoded slash", "GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("backslash", "GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ("host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        (
            "chunk size",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
        ),
        ("TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ];
    for (what, request) in table {
        let mut wire = Wire::plain(&server);
        wire.send(request);
        let response = wire.response("GET");
        assert!(
            (400..600).contains(&response.status),
            "{what}: {response:?}"
        );
    }
    assert_eq!(member.requests().len(), 0, "{:?}", member.requests());

    // A foreign absolute form goes to the route's own member, with the host of the form.
    let mut wire = Wire::plain(&server);
    wire.send("GET http://evil.example/x HTTP/1.1\r\nHost: a\r\nConnection: Host, Content-Length\r\nX_Under: 1\r\n\r\n");
    assert_eq!(wire.response("GET").status, 200);
    let request = member.wait_for(1);
    assert_eq!(request.line(), "GET /x HTTP/1.1");
    assert_eq!(request.fields("host"), ["evil.example"]);
}

#[test]
fn the_json_log_names_the_member_and_its_times() {
    let member = Member::start(|request| {
        if request.line().contains("/bad") {
            Answer::Close(b"SSH-2.0\r\n".to_vec())
        } else {
            ok("hello")
        }
    });
    let route = format!(
        "[log]\nformat = \"json\"\n{}[[site.route]]\npath = \"/\"\nproxy = \"{}\"\n",
        site_table("http = \"serve\"\n"),
        member.url()
    );
    let server = Server::start(&format!("{}{route}", server_table("")));
    let mut wire = Wire::plain(&server);
    for path in ["/first", "/second", "/bad"] {
        wire.get(path, "");
    }
    let line = |path: &str| server.output.wait_for(path, |line| line.contains(path));
    let (first, second, bad) = (line("GET /first "), line("GET /second "), line("GET /bad "));
    let url = format!("\"member\":\"{}\",\"tries\":1", member.url());
    for line in [&first, &second, &bad] {
        assert!(line.contains(&url), "{line}");
    }
    assert!(
        first.contains("\"connect_us\":") && first.contains("\"first_byte_us\":"),
        "{first}"
    );
    // The second request went over the kept connection.
    assert!(!second.contains("\"connect_us\":"), "{second}");
    assert!(
        bad.contains("\"rule\":730") && !bad.contains("first_byte_us"),
        "{bad}"
    );
}

#[test]
fn a_reload_keeps_idle_connections_to_unchanged_members() {
    let member = Member::start(|_| ok("hello"));
    let server = proxy(&member, "");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", "").status, 200);
    let text = std::fs::read_to_string(server.folder.path("anthill.toml")).expect("a file");
    server.reload(&text);
    assert_eq!(wire.get("/", "").status, 200);
    assert_eq!(member.connections(), 1);
    server.reload(&text.replace("url = ", "idle_timeout = \"9s\", url = "));
    assert_eq!(wire.get("/", "").status, 200);
    assert_eq!(member.connections(), 2);
}

/// Member that reads nothing, behind a route `/` with a long timeout.
struct UnreadMember {
    listener: TcpListener,
    server: Server,
}

impl UnreadMember {
    fn new() -> UnreadMember {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let bounded = SockRef::from(&listener).set_recv_buffer_size(4_096);
        bounded.expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let route = format!(
            "[[site.route]]\npath = \"/\"\nproxy = {{ url = \"http://127.0.0.1:{port}\", \
             first_byte_timeout = \"600s\" }}\n"
        );
        let config = server_table("") + &site_table("http = \"serve\"\n") + &route;
        let server = Server::start(&config);
        UnreadMember { listener, server }
    }

    /// Waits until the upload of a client stands still, and returns the connection of the server to the member.
    fn connection(&self) -> TcpStream {
        let (connection, _) = self.listener.accept().expect("the server's connection");
        let (mut seen, mut calm) = (0, 0);
        while calm < 20 {
            let now = self.server.counter("bytes_received");
            calm = if now == seen { calm + 1 } else { 0 };
            seen = now;
            thread::sleep(Duration::from_millis(10));
        }
        connection
    }
}

/// Waits until the server has reset the connection, without reading the bytes that wait.
fn wait_for_reset(connection: &TcpStream) {
    let mut watched = [PollFd::new(connection, PollFlags::empty())];
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    poll(&mut watched, Some(&patience)).expect("an event");
    let reset = PollFlags::HUP | PollFlags::ERR;
    assert!(watched[0].revents().intersects(reset));
}

/// Checks that the reset of a client is noticed while the member reads nothing and further bytes of the body wait.
#[test]
fn a_reset_within_an_upload_frees_the_member_at_once() {
    let member = UnreadMember::new();
    let port = member.server.http_port;
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n";
    client.write_all(head).expect("written");
    client.set_nonblocking(true).expect("a socket");
    let mut calm = 0;
    while calm < 20 {
        match client.write(&[b'x'; 65_536]) {
            Ok(written) => calm = if written > 0 { 0 } else { calm + 1 },
            Err(_) => {
                calm += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    let connection = member.connection();
    let closes_with_reset = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    closes_with_reset.expect("a socket");
    drop(client);
    wait_for_reset(&connection);
}

#[cfg(feature = "http3")]
#[test]
fn a_reset_within_an_upload_over_http_3_frees_the_member_at_once() {
    let member = UnreadMember::new();
    let mut client = crate::h3::Holder::with_upload(&member.server, "/");
    let connection = member.connection();
    client.reset_upload();
    wait_for_reset(&connection);
}
