//! Requests under way on the manager page, in its JSON and in the list of `anthill requests`.

use std::net::TcpStream;

use crate::h3::Holder;
use crate::manager::{LOCAL, Manager, config};
use crate::manager_page::Viewer;
use crate::support::h2::H2;
use crate::support::member::{Answer, Member, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, eventually};

/// Size of a file larger than all buffers of the server and the kernel.
const LARGE_BYTES: usize = 40_000_000;
/// Query of all requests. No rendering shows the query.
const QUERY: &str = "gate=g&token=unseen";

/// Starts a server with a member that answers no request of `/app/`, and routes of test handlers.
fn start(member: &Member, keys: &str) -> Server {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/large.bin", vec![b'x'; LARGE_BYTES]);
    let config = config(LOCAL, &[&member.url()])
        .replace("h2c = true", &format!("h2c = true\n{keys}"))
        + "[[site.route]]\npath = \"/page\"\ntest = \"page\"\n"
        + "[[site.route]]\npath = \"/kept\"\ntest = \"page\"\ncache = { seconds = 100 }\n"
        + "[[site.route]]\npath = \"/tunnel\"\ntest = \"tunnel\"\n";
    Server::start_in(folder, &config)
}

fn silent_member() -> Member {
    Member::start(|request| {
        if request.line().contains("/quick") {
            ok("quick")
        } else {
            Answer::Silence
        }
    })
}

/// Sends a request over HTTP/1.1 by a client with a small receive buffer.
fn get(server: &Server, path: &str, fields: &str) -> Wire {
    let mut wire = Wire::with_small_receive_buffer(server, Over::Plain, &[]);
    wire.send(format!(
        "GET {path}?{QUERY} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ));
    wire
}

/// Returns the objects of the requests in a JSON list.
fn objects(json: &str) -> Vec<String> {
    let objects = json.split("{\"age_us\":").skip(1);
    objects.map(|it| it.trim_end().to_owned()).collect()
}

/// Waits until as many requests are under way, all with the text, and returns the list of `anthill requests --json`.
fn await_requests(server: &Server, count: usize, text: &str) -> String {
    eventually("the requests under way", || {
        let list = server.ask(&["requests", "--json"]).stdout;
        let found = objects(&list).iter().filter(|it| it.contains(text)).count();
        let is_all = list.starts_with(&format!("{{\"count\":{count},"));
        (is_all && found == count).then_some(list)
    })
}

/// Returns the state of the request with the path in a JSON list.
fn states(json: &str, path: &str) -> Vec<String> {
    let path = format!("\"path\":\"{path}\"");
    let objects = objects(json).into_iter().filter(|it| it.contains(&path));
    let state = |it: String| it.split('"').nth(3).map(str::to_owned);
    objects.filter_map(state).collect()
}

#[test]
fn requests_of_each_version_are_listed_until_their_end() {
    let member = silent_member();
    let server = start(&member, "");
    let manager = Manager::of(&server);
    assert_eq!(
        server.ask(&["requests"]).stdout,
        "no request is under way\n"
    );
    // The path of each request begins with its version, and its end is the place.
    let query = |path: &str| format!("{path}?{QUERY}");
    let first = get(&server, "/app/1", "");
    await_requests(&server, 1, "\"state\":\"member\"");
    let plain = [get(&server, "/page", ""), get(&server, "/large.bin", "")];
    let mut h2 = H2::open(&server, Over::Tls);
    for path in ["/app/2", "/page", "/large.bin", "/kept"] {
        h2.ask("GET", &query(path), &[], true);
    }
    let h3: Vec<String> = ["/app/3", "/page", "/large.bin"].map(query).into();
    let h3: Vec<&str> = h3.iter().map(String::as_str).collect();
    let mut h3 = Holder::with_requests(&server, &h3);
    let all = eventually("requests of three versions", || {
        let list = server.ask(&["requests", "--json"]).stdout;
        let is_all = list.starts_with("{\"count\":10,");
        let has_state = |path, state: &str| states(&list, path).iter().all(|it| it == state);
        let has_states = has_state("/large.bin", "response")
            && has_state("/app/2", "member")
            && has_state("/app/3", "member");
        (is_all && has_states).then_some(list)
    });
    assert_eq!(states(&all, "/page"), ["handler"; 3], "{all}");
    assert_eq!(states(&all, "/kept"), ["handler"], "{all}");
    assert_eq!(states(&all, "/large.bin"), ["response"; 3], "{all}");
    let oldest = &objects(&all)[0];
    for part in [
        "\"version\":\"HTTP/1.1\",\"method\":\"GET\",\"site\":\"*\"",
        "\"client\":\"127.0.0.1\",\"host\":\"localhost\",\"path\":\"/app/1\"",
        &format!("\"member\":\"{}\"", member.url()),
    ] {
        assert!(oldest.contains(part), "no {part}: {oldest}");
    }
    for version in ["HTTP/1.1", "HTTP/2", "HTTP/3"] {
        let version = format!("\"version\":\"{version}\"");
        assert!(all.matches(&version).count() >= 3, "{version} {all}");
    }
    assert_renderings(&server, &manager, &member);

    let opened = Wire::plain(&server).ask("POST", "/page?open=g", "Content-Length: 0\r\n");
    assert_eq!(opened.status, 200);
    // A line ends the client, which closes its connection.
    h3.echo("");
    drop((first, plain, h2));
    await_requests(&server, 0, "");
    assert!(manager.get("/requests.json").body.contains("\"count\":"));
}

/// Checks every rendering of the requests, with and without a login.
fn assert_renderings(server: &Server, manager: &Manager, member: &Member) {
    let text = server.ask(&["requests"]).stdout;
    let cookie = manager.session(server);
    let login = ["-b", &*cookie];
    let events = ["-N", "--max-time", "3"];
    let event_login = ["-N", "--max-time", "3", "-b", &cookie];
    for (name, shown, has_login) in [
        ("text", text, true),
        ("page", manager.curl("/", &login).body, true),
        ("JSON", manager.curl("/requests.json", &login).body, true),
        ("events", manager.curl("/events", &event_login).body, true),
        ("page", manager.get("/").body, false),
        ("JSON", manager.get("/requests.json").body, false),
        ("events", manager.curl("/events", &events).body, false),
    ] {
        for part in ["HTTP/1.1", "HTTP/2", "HTTP/3", "handler", "response"] {
            assert!(shown.contains(part), "{name}: no {part}: {shown}");
        }
        assert!(shown.contains(&member.url()), "{name}: {shown}");
        for part in ["/app/1", "/app/2", "/app/3", "/large.bin"] {
            assert_eq!(shown.contains(part), has_login, "{name}: {part}: {shown}");
        }
        assert!(!shown.contains("unseen"), "{name}: {shown}");
        assert!(!shown.contains("gate="), "{name}: {shown}");
    }
    let client = "</td><td>127.0.0.1</td>";
    assert!(manager.curl("/", &login).body.contains(client));
    let page = manager.get("/").body;
    assert!(!page.contains(client), "{page}");
    assert!(page.contains("Paths and clients are shown after a login"));
    let page = manager.curl("/", &login).body;
    assert!(page.contains("10 requests are under way"), "{page}");
}

/// Checks that the changes for viewers with and without a login do not mix.
#[test]
fn events_have_the_changes_with_and_without_paths() {
    let member = silent_member();
    let server = start(&member, "");
    let manager = Manager::of(&server);
    let cookie = manager.session(&server);
    let mut viewers = [
        (Viewer::start(&manager, &["-b", &cookie]), true),
        (Viewer::start(&manager, &["--compressed"]), false),
        (Viewer::start(&manager, &["-b", &cookie]), true),
        (Viewer::start(&manager, &[]), false),
    ];
    for (viewer, _) in &mut viewers {
        let first = viewer.event().join("\n");
        assert!(first.contains("no request is under way"), "{first}");
    }
    // A line feed in a path is no end of a line of the event.
    let _wire = get(&server, "/app/later%0Alive-server%200%20x", "");
    for (viewer, has_login) in &mut viewers {
        let event = loop {
            let event = viewer.event();
            if event.iter().any(|it| it.contains("1 request is under way")) {
                break event;
            }
        };
        let has_path = event.iter().any(|it| it.contains("/app/later"));
        assert_eq!(has_path, *has_login, "{event:?}");
        let is_section = |it: &String| it == "<section id=live-requests>";
        let begin = event.iter().position(is_section).expect("a whole section");
        let end = event.iter().skip(begin).position(|it| it == "</section>");
        let text = "live-server 0 x</td></tr>";
        let forged = event.iter().position(|it| it == text);
        assert_eq!(forged.is_some(), *has_login, "{event:?}");
        let end = begin + end.expect("an end");
        assert!(forged.is_none_or(|at| begin < at && at < end), "{event:?}");
    }
}

#[test]
fn tunnels_are_listed_until_their_end() {
    let member = silent_member();
    let server = start(&member, "");
    let switch = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut wire = Wire::plain(&server);
    wire.send(format!("GET /tunnel HTTP/1.1\r\nHost: a\r\n{switch}\r\n"));
    assert_eq!(wire.response("GET").status, 101);
    let mut h2 = H2::open(&server, Over::Tls);
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/tunnel"),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
    ];
    h2.ask_all(&fields, false);
    let mut h3 = Holder::with_tunnel(&server, "/tunnel");
    let list = await_requests(&server, 3, "\"state\":\"tunnel\"");
    for (version, method) in [("1.1", "GET"), ("2", "CONNECT"), ("3", "CONNECT")] {
        let part = format!("\"version\":\"HTTP/{version}\",\"method\":\"{method}\"");
        assert!(list.contains(&part), "no {part}: {list}");
    }
    // An empty line ends the client, which closes its connection.
    h3.echo("");
    drop((wire, h2));
    await_requests(&server, 0, "");
}

#[test]
fn texts_of_clients_are_escaped() {
    let member = silent_member();
    let server = start(&member, "");
    let manager = Manager::of(&server);
    // Markup, a right-to-left override and an escape character.
    let _wire = get(&server, "/app/%3Cb%3E%E2%80%AE%1B%22", "");
    let list = await_requests(&server, 1, "\"state\":\"member\"");
    assert!(list.contains("/app/<b>\\u202e\\u001b\\\"\""), "{list}");
    let text = server.ask(&["requests"]).stdout;
    assert!(text.contains("/app/<b>\\u{202e}\\u{1b}\\\""), "{text}");
    let cookie = manager.session(&server);
    let page = manager.curl("/", &["-b", &cookie]).body;
    assert!(
        page.contains("/app/&lt;b&gt;[U+202E]\u{241b}&quot;</td>"),
        "{page}"
    );
    assert!(!page.contains("/app/<b>") && !page.contains('\u{202e}'));
}

#[test]
fn the_client_behind_a_trusted_proxy_is_listed() {
    let member = silent_member();
    let server = start(&member, "trust = [\"127.0.0.1\"]");
    let _wire = get(&server, "/app/a", "X-Forwarded-For: 192.0.2.55\r\n");
    await_requests(&server, 1, "\"client\":\"192.0.2.55\"");
}

/// Checks that responses that leave at once, the manager's own requests and refused requests are not listed, and that
/// a client that leaves is removed.
#[test]
fn finished_and_own_requests_are_not_listed() {
    let member = silent_member();
    let server = start(&member, "");
    let manager = Manager::of(&server);
    let address = manager.url.trim_start_matches("http://");
    let socket = TcpStream::connect(address).expect("a connection");
    let mut events = Wire::plain_on(socket);
    events.send(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    events.until(b"data: ").expect("an event");
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", "").status, 200);
    assert_eq!(wire.get("/app/quick", "").status, 200);
    assert_eq!(wire.get("/missing", "").status, 404);
    await_requests(&server, 0, "");
    let leaving = get(&server, "/app/leaving", "");
    let mut h2 = H2::open(&server, Over::Plain);
    let id = h2.ask("GET", "/app/reset", &[], true);
    await_requests(&server, 2, "/app/");
    drop(leaving);
    await_requests(&server, 1, "/app/reset");
    // RST_STREAM with CANCEL.
    h2.frame(3, 0, id, &8u32.to_be_bytes());
    await_requests(&server, 0, "");
}
