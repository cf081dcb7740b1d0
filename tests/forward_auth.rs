//! Forward authentication: a server decides about each request, and every failure refuses the request.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clients::Authority;
use crate::fastcgi::Backend;
use crate::support::h2::H2;
use crate::support::member::{Answer, Member, Received, ok};
use crate::support::nginx::Nginx;
use crate::support::programs::{Program, free_port};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, anthill, built_tool, run, server_table, site_table};

/// Answers as Authelia does: by the cookie of the session.
fn authelia(request: &Received) -> Answer {
    let cookie = request.fields("cookie").join("; ");
    let uri = request.fields("x-forwarded-uri").join(", ");
    let user = ["alice", "bob"]
        .into_iter()
        .find(|user| cookie.contains(user));
    match user {
        Some(user) if uri.contains("/only-bob") && user != "bob" => {
            text("403 Forbidden", "", "not for you")
        }
        Some(user) => Answer::Keep(
            format!(
                "HTTP/1.1 200 OK\r\nRemote-User: {user}\r\nRemote-Groups: ants, {user}s\r\nX-Own: secret\r\n\
                 Set-Cookie: seen={user}; Path=/\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok"
            )
            .into_bytes(),
        ),
        None if request.fields("accept").join("").contains("text/html") => {
            let location = format!("Location: https://auth.example.org/?rd={uri}\r\nSet-Cookie: state=1\r\n");
            text("302 Found", &location, "<a>login</a>")
        }
        None => text("401 Unauthorized", "WWW-Authenticate: Basic realm=\"auth\"\r\nX-Own: secret\r\n", "who?"),
    }
}

fn text(status: &str, fields: &str, content: &str) -> Answer {
    let length = content.len();
    Answer::Keep(
        format!("HTTP/1.1 {status}\r\n{fields}Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{content}")
            .into_bytes(),
    )
}

/// Returns the members: the server for authentication, and an application that sends the head of each request back.
fn members(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> (Member, Member) {
    (
        Member::start(answer),
        Member::start(|request| ok(&request.head)),
    )
}

/// Returns a route with an application behind the server for authentication.
fn route(path: &str, auth: &Member, app: &Member, more: &str) -> String {
    format!(
        "[[site.route]]\npath = \"{path}\"\nproxy = \"http://127.0.0.1:{}\"\n\
         auth = {{ url = \"http://127.0.0.1:{}/api/authz/forward-auth?v=1\", copy = [\"Remote-User\", \"Remote-Groups\"]{more} }}\n",
        app.port, auth.port
    )
}

fn start(routes: &str) -> Server {
    start_in(Folder::new().with("public/index.html", "front"), routes)
}

fn start_in(folder: Folder, routes: &str) -> Server {
    let site = site_table("http = \"serve\"\n");
    Server::start_in(
        folder,
        &format!("{}{site}{routes}", server_table("h2c = true\n")),
    )
}

const ALICE: &str = "Cookie: s=alice\r\n";
const BOB: &str = "Cookie: s=bob\r\n";
const BROWSER: &str = "Accept: text/html,*/*;q=0.8\r\n";

#[test]
fn the_server_gets_the_request_and_the_application_gets_the_user() {
    let (auth, app) = members(authelia);
    let server = start(&route("/app/", &auth, &app, ""));
    let mut wire = Wire::plain(&server);
    let forged = "Remote-User: root\r\nREMOTE_GROUPS: admins\r\nX-Forwarded-Uri: /public\r\nX-Forwarded-Method: HEAD\r\n\
                  X-Forwarded-Host: evil\r\nConnection: Remote-User\r\nX-Requested-With: XMLHttpRequest\r\nX-Other: 1\r\n";
    let fields = format!("{ALICE}{BROWSER}Authorization: Bearer t\r\n{forged}");
    let response = wire.ask(
        "POST",
        "/app/a%20b?c=%7B{user}",
        &format!("{fields}Content-Length: 0\r\n"),
    );
    assert_eq!(response.status, 200, "{response:?}");
    let asked = auth.wait_for(1);
    assert_eq!(asked.line(), "GET /api/authz/forward-auth?v=1 HTTP/1.1");
    let host = format!("127.0.0.1:{}", auth.port);
    for (name, values) in [
        ("host", vec![host.as_str()]),
        ("cookie", vec!["s=alice"]),
        ("authorization", vec!["Bearer t"]),
        ("accept", vec!["text/html,*/*;q=0.8"]),
        ("x-requested-with", vec!["XMLHttpRequest"]),
        ("x-forwarded-method", vec!["POST"]),
        ("x-forwarded-proto", vec!["http"]),
        ("x-forwarded-host", vec!["localhost"]),
        ("x-forwarded-uri", vec!["/app/a%20b?c=%7B%7Buser%7D"]),
        ("x-forwarded-for", vec!["127.0.0.1"]),
        ("remote-user", vec![]),
        ("x-other", vec![]),
        ("content-length", vec![]),
    ] {
        assert_eq!(asked.fields(name), values, "{name} in {}", asked.head);
    }
    let got = app.wait_for(1);
    assert_eq!(got.fields("remote-user"), ["alice"], "{}", got.head);
    assert_eq!(got.fields("remote-groups"), ["ants, alices"]);
    assert_eq!(got.fields("remote_groups"), [""; 0]);
    assert_eq!(got.fields("x-own"), [""; 0]);
    let cookies: Vec<_> = response
        .fields
        .iter()
        .filter(|(name, _)| name == "Set-Cookie")
        .collect();
    assert_eq!(cookies.len(), 2, "{response:?}");
    // The connection to the server is used again.
    wire.get("/app/", ALICE);
    assert_eq!((auth.wait_for(2).connection, auth.connections()), (1, 1));
}

/// Answers of a broken server, each with the status for the client.
fn behaviours() -> Vec<(&'static str, Answer, u16)> {
    let many: String = (0..20_000)
        .map(|nth| format!("X-Field-{nth}: {}\r\n", "a".repeat(40)))
        .collect();
    let flood: String = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1_000);
    let bytes = |text: &str| Answer::Close(text.as_bytes().to_vec());
    vec![
        ("no content", bytes("HTTP/1.1 204 No Content\r\n\r\n"), 200),
        (
            "after 103",
            bytes("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            200,
        ),
        (
            "a content until the end",
            bytes("HTTP/1.1 200 OK\r\n\r\nok"),
            200,
        ),
        (
            "299",
            bytes("HTTP/1.1 299 Fine\r\nContent-Length: 0\r\n\r\n"),
            200,
        ),
        (
            "300",
            bytes("HTTP/1.1 300 Choose\r\nContent-Length: 0\r\n\r\n"),
            300,
        ),
        (
            "303",
            bytes("HTTP/1.1 303 See\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"),
            303,
        ),
        (
            "404",
            bytes("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            404,
        ),
        (
            "429",
            bytes("HTTP/1.1 429 Slow\r\nContent-Length: 3\r\n\r\nnot"),
            429,
        ),
        ("304", bytes("HTTP/1.1 304 Not Modified\r\n\r\n"), 502),
        (
            "101",
            bytes("HTTP/1.1 101 Switch\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
            502,
        ),
        (
            "500",
            bytes("HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n"),
            502,
        ),
        (
            "503",
            bytes("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
            502,
        ),
        (
            "600",
            bytes("HTTP/1.1 600 What\r\nContent-Length: 0\r\n\r\n"),
            502,
        ),
        ("no HTTP", bytes("220 mail.example.org ESMTP\r\n\r\n"), 502),
        ("nothing", Answer::Hang, 502),
        ("a half head", bytes("HTTP/1.1 200 OK\r\nContent-Le"), 502),
        (
            "a half content",
            bytes("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"),
            502,
        ),
        (
            "a half denial",
            bytes("HTTP/1.1 403 No\r\nContent-Length: 10\r\n\r\nno"),
            502,
        ),
        (
            "10 GB",
            bytes("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n"),
            502,
        ),
        (
            "10 GB of a denial",
            bytes("HTTP/1.1 403 No\r\nContent-Length: 10000000000\r\n\r\n"),
            502,
        ),
        (
            "100 KiB without a length",
            Answer::Close(["HTTP/1.1 200 OK\r\n\r\n".as_bytes(), &[b'a'; 100_000]].concat()),
            502,
        ),
        (
            "1 MB of fields",
            Answer::Close(format!("HTTP/1.1 200 OK\r\n{many}\r\n").into_bytes()),
            502,
        ),
        (
            "1,000 interim responses",
            Answer::Close(format!("{flood}HTTP/1.1 200 OK\r\n\r\n").into_bytes()),
            502,
        ),
        (
            "a malformed field",
            bytes("HTTP/1.1 200 OK\r\nRemote-User : root\r\nContent-Length: 0\r\n\r\n"),
            502,
        ),
        (
            "two lengths",
            bytes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 1\r\n\r\n"),
            502,
        ),
    ]
}

#[test]
fn every_failure_of_the_server_refuses_the_request() {
    let count = behaviours().len();
    let (auth, app) = members(|request| {
        let uri = request.fields("x-forwarded-uri").join("");
        let nth: usize = uri.trim_start_matches("/app/").parse().expect("a number");
        behaviours().swap_remove(nth).1
    });
    let server = start(&route("/app/", &auth, &app, ""));
    let mut passed = 0;
    for (nth, (name, _, status)) in behaviours().into_iter().enumerate() {
        let path = format!("/app/{nth}");
        let plain = Wire::plain(&server).get(&path, "");
        let h2 = H2::open(&server, Over::Tls).get(&path);
        assert_eq!(
            (plain.status, h2.status),
            (status, status),
            "{name}: {plain:?}"
        );
        passed += usize::from(status == 200) * 2;
        assert_eq!(app.requests().len(), passed, "{name}");
        if status == 502 {
            assert!(plain.text().contains("502"), "{name}: {plain:?}");
        }
    }
    assert_eq!(count, behaviours().len());
    // The server works again at once.
    assert_eq!(Wire::plain(&server).get("/app/0", "").status, 200);
    assert!(
        server
            .errors
            .all()
            .iter()
            .any(|line| line.contains("auth: http://127.0.0.1:")),
        "{:?}",
        server.errors.all()
    );
}

#[test]
fn an_unreachable_server_refuses_and_a_restarted_one_admits_at_once() {
    let (auth, app) = members(authelia);
    let server = start(&route("/", &auth, &app, ""));
    auth.stop();
    for _ in 0..5 {
        assert_eq!(Wire::plain(&server).get("/", ALICE).status, 502);
    }
    assert!(app.requests().is_empty());
    auth.restart();
    assert_eq!(Wire::plain(&server).get("/", ALICE).status, 200);
}

#[test]
fn a_client_that_leaves_ends_its_question() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let routes = format!("[[site.route]]\npath = \"/\"\nauth = \"http://127.0.0.1:{port}/\"\n");
    let server = start(&routes);
    let mut wire = Wire::plain(&server);
    wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (mut question, _) = listener.accept().expect("a question");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        question.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    wire.socket.shutdown(Shutdown::Both).expect("an end");
    // The connection ends without an answer, by a reset.
    let ended = question.read(&mut [0]);
    assert!(!matches!(ended, Ok(1)), "{ended:?}");
    let lines = server.errors.all();
    assert!(
        lines
            .iter()
            .all(|line| !line.contains("no complete answer")),
        "{lines:?}"
    );
}

#[test]
fn denials_reach_the_client_with_the_fields_of_a_login_alone() {
    let (auth, app) = members(authelia);
    let server = start(&route("/app/", &auth, &app, ""));
    let denied = Wire::plain(&server).get("/app/", "");
    assert_eq!((denied.status, denied.text().as_str()), (401, "who?"));
    assert_eq!(
        denied.field("www-authenticate"),
        Some("Basic realm=\"auth\"")
    );
    assert_eq!(denied.field("cache-control"), Some("no-store"));
    assert_eq!(denied.field("x-own"), None);
    let moved = Wire::plain(&server).get("/app/x?y=1", BROWSER);
    assert_eq!((moved.status, moved.text().as_str()), (302, "<a>login</a>"));
    assert_eq!(
        moved.field("location"),
        Some("https://auth.example.org/?rd=/app/x?y=1")
    );
    assert_eq!(moved.field("set-cookie"), Some("state=1"));
    let head = Wire::plain(&server).ask("HEAD", "/app/", "");
    assert_eq!((head.status, head.body.len()), (401, 0));
    let forbidden = Wire::plain(&server).get("/app/only-bob", ALICE);
    assert_eq!(
        (forbidden.status, forbidden.text().as_str()),
        (403, "not for you")
    );
    assert_eq!(Wire::plain(&server).get("/app/only-bob", BOB).status, 200);
    assert_eq!(app.requests().len(), 1);
    #[cfg(feature = "http3")]
    {
        let told = crate::h3::run_scenario(&server, &["ask", "GET /app/", "GET /app/only-bob"]);
        assert_eq!(told.matches("\"status\": 401").count(), 2, "{told}");
    }
}

#[test]
fn a_login_page_stands_for_a_401_to_browsers() {
    let (auth, app) = members(|_| text("401 Unauthorized", "Set-Cookie: csrf=1\r\n", "who?"));
    let guarded = route("/", &auth, &app, ", login = \"/oauth2/start?rd={uri}&x=1\"");
    let open = format!(
        "[[site.route]]\npath = \"/oauth2/\"\nproxy = \"http://127.0.0.1:{}\"\nauth = false\n",
        app.port
    );
    let server = start(&format!("{guarded}{open}"));
    let ask =
        |method: &str, fields: &str| Wire::plain(&server).ask(method, "/a%20b/?q=/&r=\"", fields);
    let moved = ask("GET", BROWSER);
    assert_eq!(moved.status, 302, "{moved:?}");
    assert_eq!(
        moved.field("location"),
        Some("/oauth2/start?rd=%2Fa%2520b%2F%3Fq%3D%2F%26r%3D%22&x=1")
    );
    assert_eq!(moved.field("set-cookie"), Some("csrf=1"));
    let script = format!("{BROWSER}X-Requested-With: XMLHttpRequest\r\n");
    let posted = format!("{BROWSER}Content-Length: 0\r\n");
    for (method, fields) in [
        ("GET", ""),
        ("GET", "Accept: application/json\r\n"),
        ("GET", &script),
        ("HEAD", BROWSER),
        ("POST", &posted),
    ] {
        assert_eq!(ask(method, fields).status, 401, "{method} {fields}");
    }
    assert!(app.requests().is_empty());
    assert_eq!(
        Wire::plain(&server)
            .get("/oauth2/start?rd=x", BROWSER)
            .status,
        200
    );
    // A spelling of the guarded path does not become the open one.
    for path in [
        "/oauth2/../x",
        "/oauth2/%2e%2e/x",
        "/oauth2x",
        "//x/oauth2/",
        "/x/../x",
    ] {
        assert_eq!(Wire::plain(&server).get(path, "").status, 401, "{path}");
    }
}

#[test]
fn all_spellings_of_a_path_have_one_uri() {
    let (auth, app) = members(authelia);
    let server = start(&route("/app/", &auth, &app, ""));
    for path in [
        "/app/only-bob",
        "/app/only%2Dbob",
        "/app//only-bob",
        "/app/x/../only-bob",
        "/app/x/%2e%2e/only-bob",
        "/x/../app/only-bob",
        "/app/./only-bob?a=/public",
        "/app/%6fnly-bob",
        "/app/only-bob;v=1",
    ] {
        assert_eq!(Wire::plain(&server).get(path, ALICE).status, 403, "{path}");
    }
    assert!(app.requests().is_empty());
    for asked in auth.requests() {
        assert!(
            asked.fields("x-forwarded-uri")[0].starts_with("/app/only-bob"),
            "{}",
            asked.head
        );
    }
}

#[test]
fn every_path_to_a_reserved_file_is_asked_about() {
    let (auth, app) = members(authelia);
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("public/only-bob/index.html", "for bob")
        .with("public/only-bob/a.html", "for bob")
        .with("public/only-bob.html", "for bob");
    folder.program(
        "cgi/only-bob/a.sh",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nfor bob'\n",
    );
    let public = folder.path("public");
    std::os::unix::fs::symlink("only-bob", public.join("door")).expect("a link");
    std::os::unix::fs::symlink("only-bob/a.html", public.join("l.html")).expect("a link");
    let key = format!(
        "auth = {{ url = \"http://127.0.0.1:{}/\", copy = [\"Remote-User\"] }}\n",
        auth.port
    );
    let routes = format!(
        "[[site.route]]\npath = \"/\"\n{key}[[site.route]]\npath = \"/cgi/\"\ncgi = \"cgi\"\n\
         [[site.route]]\npath = \"/rw/\"\nrewrite = \"/only-bob/\"\n\
         [[site.route]]\npath = \"/script\"\nrewrite = \"/cgi/only-bob/a.sh\"\n\
         [[site.route]]\npath = \"/try/\"\ntry = [\"$path\", \"/only-bob/a.html\"]\n\
         [[site.route]]\npath = \"/app/\"\nproxy = \"http://127.0.0.1:{}\"\n",
        app.port
    );
    let server = start_in(folder, &routes);
    for path in [
        "/only-bob/a.html",
        "/cgi/only-bob/a.sh",
        "/only-bob",
        "/door/a.html",
        "/door/",
        "/l.html",
        "/rw/a.html",
        "/rw/",
        "/script",
        "/try/x",
    ] {
        let refused = Wire::plain(&server).get(path, ALICE);
        assert_eq!(
            (refused.status, refused.text().as_str()),
            (403, "not for you"),
            "{path}"
        );
    }
    for path in ["/door/a.html", "/l.html", "/rw/a.html", "/script", "/try/x"] {
        let page = Wire::plain(&server).get(path, BOB);
        assert_eq!(
            (page.status, page.text().as_str()),
            (200, "for bob"),
            "{path}"
        );
        let cookies = page.fields.iter().filter(|(name, _)| name == "Set-Cookie");
        assert_eq!(cookies.count(), 2, "{page:?}");
    }
    assert_eq!(Wire::plain(&server).get("/", ALICE).text(), "front");
}

#[test]
fn the_resources_of_webdav_are_asked_about() {
    // The server skips the login below /pub/.
    let auth = Member::start(|request| {
        let uri = request.fields("x-forwarded-uri").join(", ");
        if uri.starts_with("/dav/pub/") && !uri.contains("..") {
            text("200 OK", "", "")
        } else {
            authelia(request)
        }
    });
    let app = Member::start(|request| ok(&request.head));
    let mut dav = route("/dav/", &auth, &app, "");
    dav += "encoded_slash = \"pass\"\n";
    let server = start(&dav);
    let ask = |method: &str, fields: &str| {
        Wire::plain(&server)
            .ask(method, "/dav/pub/a", fields)
            .status
    };
    for url in [
        "http://localhost/dav/only-bob/x",
        "/dav/only-bob/x",
        "http://localhost/dav/%6fnly-bob/x",
        "http://localhost/dav/x/../only-bob/x",
        "http://localhost/dav/only-bob;a/x",
        "/dav/pub/..%2Fonly-bob",
        "/dav/pub%2F..%2Fonly-bob",
    ] {
        for method in ["COPY", "MOVE"] {
            let fields = format!("Destination: {url}\r\n");
            assert_eq!(ask(method, &fields), 401, "{method} {url}");
            let fields = format!("{ALICE}{fields}");
            assert_eq!(ask(method, &fields), 403, "{method} {url}");
        }
        let fields = format!("{ALICE}If: <{url}> (<urn:x>)\r\n");
        assert_eq!(ask("LOCK", &fields), 403, "{url}");
    }
    assert!(app.requests().is_empty());
    assert_eq!(ask("MOVE", "Destination: /dav/pub/b\r\n"), 200);
    let fields = format!("{BOB}Destination: /dav/only-bob/b?x=1\r\n");
    assert_eq!(ask("MOVE", &fields), 200);
    let asked = auth.requests();
    let last = asked.last().expect("a question");
    assert_eq!(last.fields("x-forwarded-uri"), ["/dav/only-bob/b"]);
    assert_eq!(last.fields("x-forwarded-method"), ["MOVE"]);
    // A client can't have the server asked without end.
    let many: String = (0..16)
        .map(|nth| format!("</dav//pub/{nth};a/b> (<urn:x>) "))
        .collect();
    assert_eq!(ask("LOCK", &format!("{ALICE}If: {many}\r\n")), 403);
    assert_eq!(auth.requests().len() - asked.len(), 32);
}

#[test]
fn an_encoded_slash_does_not_lead_out_of_a_skipped_path() {
    let auth = Member::start(|request| {
        let uri = request.fields("x-forwarded-uri").join(", ");
        text(
            if uri.starts_with("/all/public/") && !uri.contains("only-bob") {
                "200 OK"
            } else {
                "401 Unauthorized"
            },
            "",
            "",
        )
    });
    let app = Member::start(|request| ok(&request.head));
    let route = route("/all/", &auth, &app, "") + "encoded_slash = \"pass\"\n";
    let server = start(&route);
    for path in [
        "/all/public/..%2Fsecret",
        "/all/public/%2e%2e%2Fsecret",
        "/all/public%2F..%2Fsecret",
        "/all/public/x%2F..%2F..%2Fsecret",
        "/all/public/%2F..%2F..%2Fsecret",
        "/all/public/%6fnly-bob%2Fx",
        "/all/public//only-bob%2Fx",
    ] {
        let status = Wire::plain(&server).get(path, "").status;
        assert!(matches!(status, 400..=404), "{path}: {status}");
    }
    assert!(app.requests().is_empty());
    assert_eq!(
        Wire::plain(&server).get("/all/public/a%2Fb", "").status,
        200
    );
    assert_eq!(app.wait_for(1).line(), "GET /all/public/a%2Fb HTTP/1.1");
}

#[test]
fn a_shared_cache_stores_no_page_behind_a_login() {
    let auth = Member::start(authelia);
    let app = Member::start(|_| {
        let fields =
            "Cache-Control: public, max-age=600, s-maxage=60\r\nCDN-Cache-Control: max-age=60\r\n";
        text("200 OK", fields, "page")
    });
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("public/a/page.html", "page");
    let routes = format!(
        "cache = [{{ files = \"*.html\", max_age = \"5m\" }}]\n\
         {}cache = {{ seconds = 60, ignore_cookies = true }}\n{}\
         [[site.route]]\npath = \"/a/\"\nauth = \"http://127.0.0.1:{}/\"\n\
         [[site.route]]\npath = \"/open/\"\nproxy = \"http://127.0.0.1:{}\"\n",
        route("/cached/", &auth, &app, ""),
        route("/app/", &auth, &app, ""),
        auth.port,
        app.port
    );
    let server = start_in(folder, &routes);
    let control = |path: &str| {
        let page = Wire::plain(&server).get(path, ALICE);
        assert_eq!(page.status, 200, "{path}");
        let is_control = |name: &str| name.to_ascii_lowercase().ends_with("cache-control");
        let fields = page.fields.iter().filter(|(name, _)| is_control(name));
        let fields: Vec<_> = fields
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        fields.join(", ")
    };
    let private = "Cache-Control: max-age=600, private";
    assert_eq!(
        (control("/app/").as_str(), control("/cached/").as_str()),
        (private, private)
    );
    // A stored page and a file have the directive in a line of its own.
    assert!(control("/cached/").ends_with(", Cache-Control: private"));
    let file = "Cache-Control: max-age=300, Cache-Control: private";
    assert_eq!(control("/a/page.html"), file);
    assert!(control("/open/").contains("public"));
    assert!(!control("/").contains("private"));
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("GET", "/a/page.html", &[("cookie", "s=bob")], true);
    let page = h2.response(id);
    assert!(
        page.fields
            .contains(&("cache-control".into(), "private".into())),
        "{page:?}"
    );
}

#[test]
fn a_page_that_varies_by_the_groups_is_not_stored() {
    let auth = Member::start(|request| {
        let cookie = request.fields("cookie").join("");
        let groups = cookie.split('=').next_back().unwrap_or_default();
        text(
            "200 OK",
            &format!("Remote-User: ant\r\nRemote-Groups: {groups}\r\n"),
            "",
        )
    });
    let app = Member::start(|request| {
        let groups = request.fields("remote-groups").join("");
        let vary = if request.line().contains("/groups") {
            "Remote-Groups"
        } else {
            "Remote-User"
        };
        text(
            "200 OK",
            &format!("Cache-Control: public, max-age=60\r\nVary: {vary}\r\n"),
            &groups,
        )
    });
    let cached = route("/", &auth, &app, "") + "cache = { seconds = 60, ignore_cookies = true }\n";
    let server = start(&cached);
    for groups in ["a", "b", "a"] {
        let page = Wire::plain(&server).get("/groups", &format!("Cookie: g={groups}\r\n"));
        assert_eq!(page.text(), groups);
        Wire::plain(&server).get("/user", ALICE);
    }
    // The first call had no cookie, and was repeated with the cookie of its client.
    assert_eq!(app.requests_with("/groups").len(), 4);
    assert_eq!(app.requests_with("/user").len(), 1);
}

#[test]
fn broken_answers_are_known_at_once() {
    let bytes = |text: &str| Answer::Close(text.as_bytes().to_vec());
    let (auth, app) =
        members(
            move |request| match request.fields("x-forwarded-uri").join("").as_str() {
                "/cut" => bytes("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok"),
                "/denial" => bytes("HTTP/1.1 403 No\r\nContent-Length: 10\r\n\r\nno"),
                _ => bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"),
            },
        );
    let server = start(&route("/", &auth, &app, ""));
    for _ in 0..20 {
        for path in ["/cut", "/denial", "/chunk"] {
            assert_eq!(Wire::plain(&server).get(path, "").status, 502, "{path}");
        }
    }
    let lines = server.errors.all();
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert!(count("the content broke off") > 0, "{lines:?}");
    assert_eq!(count("no complete answer"), 0, "{lines:?}");
}

#[test]
fn the_location_of_a_denial_stays() {
    let auth = Member::start(|request| {
        let host = request.fields("host").join("");
        text(
            "302 Found",
            &format!("Location: http://{host}/login\r\n"),
            "",
        )
    });
    let app = Member::start(|request| ok(&request.head));
    let server = start(&route("/", &auth, &app, ""));
    let moved = Wire::plain(&server).get("/", "");
    let own = format!("http://127.0.0.1:{}/login", auth.port);
    assert_eq!(moved.field("location"), Some(own.as_str()));
}

#[test]
fn requests_of_a_handler_share_the_answers() {
    let auth = Member::start(authelia);
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("public/in/a.html", "inner");
    folder.program(
        "cgi/env.sh",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nenv\n",
    );
    folder.program(
        "cgi/go.sh",
        "#!/bin/sh\nprintf 'Location: /in/a.html\\n\\n'\n",
    );
    let key = format!(
        "auth = {{ url = \"http://127.0.0.1:{}/\", copy = [\"Remote-User\"] }}\n",
        auth.port
    );
    let routes = format!(
        "[[site.route]]\npath = \"/cgi/\"\ncgi = \"cgi\"\n{key}\
         [[site.route]]\npath = \"/open/\"\ncgi = \"cgi\"\n[[site.route]]\npath = \"/open/env.sh\"\n{key}\
         [[site.route]]\npath = \"/in/\"\n{key}"
    );
    let site = site_table("http = \"serve\"\n");
    let server = Server::start_in(
        folder,
        &format!(
            "{}{site}{routes}",
            server_table("trust = [\"127.0.0.1\"]\n")
        ),
    );
    let proxied = format!(
        "{ALICE}X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Host: real.test\r\nX-Forwarded-Proto: https\r\n"
    );
    for (nth, path) in ["/cgi/env.sh?a=b", "/open/env.sh", "/open/env"]
        .iter()
        .enumerate()
    {
        let page = Wire::plain(&server).get(path, &proxied);
        if page.status == 404 {
            continue;
        }
        assert_eq!(page.status, 200, "{path}: {page:?}");
        assert_eq!(auth.requests().len(), nth + 1, "{path}");
        assert!(!page.text().contains("AUTH_TYPE"), "{}", page.text());
    }
    for asked in auth.requests() {
        assert_eq!(
            asked.fields("x-forwarded-host"),
            ["real.test"],
            "{}",
            asked.head
        );
    }
    let cookies = |path: &str| {
        let page = Wire::plain(&server).get(path, ALICE);
        assert_eq!(
            (page.status, page.text().as_str()),
            (200, "inner"),
            "{page:?}"
        );
        let cookies = page.fields.iter().filter(|(name, _)| name == "Set-Cookie");
        cookies.count()
    };
    // The cookies of an internal redirect reach the client, each once.
    assert_eq!((cookies("/open/go.sh"), cookies("/cgi/go.sh")), (2, 2));
}

#[test]
fn one_client_has_a_share_of_the_questions() {
    let (auth, app) = members(|request| {
        if request.fields("cookie").join("").contains("slow") {
            Answer::Silence
        } else {
            authelia(request)
        }
    });
    let server = start(&route("/", &auth, &app, ", connections = 8"));
    let ask = |address: &str, fields: &str| {
        let mut wire = Wire::of(&server, address.parse::<IpAddr>().expect("an address"));
        wire.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        wire
    };
    let held: Vec<_> = (0..40)
        .map(|_| ask("127.0.0.2", "Cookie: slow\r\n"))
        .collect();
    auth.wait_for(6);
    // The last places are for the others.
    let mut other = ask("127.0.0.3", ALICE);
    assert_eq!(other.response("GET").status, 200);
    assert!(auth.connections() <= 8, "{}", auth.connections());
    drop(held);
}

#[test]
fn servers_behind_tls_and_unix_sockets_decide() {
    let authority = Authority::new("the authority of the login");
    let leaf = authority.server(&["127.0.0.1"]);
    let folder = Folder::new().with("pair.pem", leaf.combined());
    let nginx = Nginx::start_tls(
        folder,
        "ssl_certificate pair.pem;\nssl_certificate_key pair.pem;\n\
         location /auth { add_header Remote-User ant; return 204; }\n",
    );
    let app = Member::start(|request| ok(&request.head));
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("ca.pem", &authority.pem)
        .with("other.pem", &Authority::new("another authority").pem);
    let socket = folder.path("auth.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::thread::spawn(move || {
        for mut question in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && matches!(question.read(&mut byte), Ok(1)) {
                head.push(byte[0]);
            }
            let status = if head.windows(7).any(|part| part == b"s=alice") {
                "204 No Content\r\nRemote-User: alice"
            } else {
                "403 No\r\nContent-Length: 0"
            };
            let _ = write!(question, "HTTP/1.1 {status}\r\n\r\n");
        }
    });
    let route = |path: &str, auth: String| {
        format!(
            "[[site.route]]\npath = \"{path}\"\nproxy = \"http://127.0.0.1:{}\"\nauth = {{ {auth}, copy = [\"Remote-User\"] }}\n",
            app.port
        )
    };
    let tls = |ca: &str| format!("url = \"{}/auth\", ca = \"{ca}\"", nginx.url());
    let unix = format!(
        "url = \"http://unix:{}\", path = \"/auth?a=b\"",
        socket.display()
    );
    let routes = [
        route("/tls/", tls("ca.pem")),
        route("/unknown/", tls("other.pem")),
        route("/unix/", unix),
    ];
    let server = start_in(folder, &routes.concat());
    let get = |path: &str, fields: &str| Wire::plain(&server).get(path, fields);
    let page = get("/tls/", "");
    assert!(
        page.status == 200 && page.text().contains("Remote-User: ant\r\n"),
        "{page:?}"
    );
    assert_eq!(get("/unknown/", "").status, 502);
    let page = get("/unix/", ALICE);
    assert!(
        page.status == 200 && page.text().contains("Remote-User: alice\r\n"),
        "{page:?}"
    );
    assert_eq!(get("/unix/", BOB).status, 403);
}

#[test]
fn php_gets_the_user_and_no_scheme() {
    let auth = Member::start(authelia);
    let php = "<?php header('Content-Type: text/plain'); foreach ($_SERVER as $name => $value) echo \"$name=$value\\n\";";
    let folder = Folder::new()
        .with("public/app/index.php", php)
        .with("public/index.html", "front");
    let _php = Backend::php(&folder, 1);
    let socket = folder.path("fpm.sock").display().to_string();
    let routes = format!(
        "[[site.route]]\npath = \"/app/\"\nfastcgi = \"unix:{socket}\"\nfiles = \".php\"\n\
         auth = {{ url = \"http://127.0.0.1:{}/\", copy = [\"Remote-User\", \"Remote-Groups\"] }}\n",
        auth.port
    );
    let server = start_in(folder, &routes);
    assert_eq!(Wire::plain(&server).get("/app/index.php", "").status, 401);
    let forged = format!("{ALICE}Remote-User: root\r\nRemote_Groups: root\r\n");
    let page = Wire::plain(&server).get("/app/index.php", &forged);
    let text = page.text();
    for line in [
        "\nREMOTE_USER=alice\n",
        "\nHTTP_REMOTE_USER=alice\n",
        "\nHTTP_REMOTE_GROUPS=ants, alices\n",
    ] {
        assert!(text.contains(line), "{line:?}: {text}");
    }
    for part in ["root\n", "AUTH_TYPE", "PHP_AUTH_USER"] {
        assert!(!text.contains(part), "{part:?}: {text}");
    }
}

#[cfg(feature = "http3")]
#[test]
fn http3_passes_the_user_and_the_cookies() {
    let (auth, app) = members(authelia);
    let server = start(&route("/app/", &auth, &app, ""));
    let told = crate::h3::run_scenario(
        &server,
        &[
            "ask",
            "GET /app/ cookie:s=alice remote-user:root remote_groups:root",
        ],
    );
    assert!(told.contains("\"status\": 200"), "{told}");
    for part in [
        "Remote-User: alice",
        "Remote-Groups: ants, alices",
        "seen=alice; Path=/",
        "b=2",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("root"), "{told}");
    assert_eq!(auth.wait_for(1).fields("x-forwarded-proto"), ["https"]);
}

#[test]
fn no_client_sends_another_field_of_a_known_server() {
    let auth = Member::start(|_| text("200 OK", "X-Auth-Request-User: ant\r\n", ""));
    let app = Member::start(|request| ok(&request.head));
    let routes = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{}\"\n\
         auth = {{ url = \"http://127.0.0.1:{}/oauth2/auth\", copy = [\"X-Auth-Request-User\"] }}\n",
        app.port, auth.port
    );
    let server = start(&routes);
    let forged = "X-Auth-Request-Groups: admins\r\nx_auth_request_preferred_username: admins\r\nX-Other: a\r\n";
    assert_eq!(Wire::plain(&server).get("/", forged).status, 200);
    let got = app.wait_for(1);
    assert!(!got.head.contains("admins"), "{}", got.head);
    assert_eq!(got.fields("x-auth-request-user"), ["ant"]);
    assert_eq!(got.fields("x-other"), ["a"]);
}

#[test]
fn no_route_to_the_application_takes_the_fields_of_the_user() {
    let (auth, app) = members(authelia);
    let open = format!(
        "[[site.route]]\npath = \"/open/\"\nproxy = \"http://localhost:{}\"\n[[site.route]]\npath = \"/cgi/\"\ncgi = \"cgi\"\n\
         [[site]]\nnames = [\"other.test\"]\nhttp = \"serve\"\n[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{}\"\n",
        app.port, app.port
    );
    let folder = Folder::new().with("public/index.html", "front");
    folder.program(
        "cgi/env.sh",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nenv\n",
    );
    let server = start_in(
        folder,
        &format!("{}{open}", route("/app/", &auth, &app, "")),
    );
    let forged =
        "Remote-User: root\r\nremote_user: root\r\nREMOTE-GROUPS: root\r\nRemote_Groups: root\r\n";
    for (host, path) in [("localhost", "/open/"), ("other.test", "/")] {
        let mut wire = Wire::plain(&server);
        wire.send(format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{forged}Transfer-Encoding: chunked\r\nTrailer: Remote-User\r\n\r\n\
             1\r\na\r\n0\r\nRemote-User: root\r\nremote_groups: root\r\nX-Sum: 1\r\n\r\n"));
        assert_eq!(wire.response("POST").status, 200, "{host}{path}");
    }
    for request in app.requests() {
        let all = format!("{}{}", request.head, request.trailers);
        assert!(!all.contains("root"), "{all}");
    }
    let variables = Wire::plain(&server).get("/cgi/env.sh", forged);
    assert_eq!(variables.status, 200, "{variables:?}");
    assert!(!variables.text().contains("=root"), "{}", variables.text());
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask(
        "GET",
        "/open/",
        &[("remote-user", "root"), ("remote_user", "root")],
        true,
    );
    assert!(!h2.response(id).text().contains("root"));
}

#[test]
fn scripts_and_files_get_the_user_and_the_cookies() {
    let (auth, _) = members(authelia);
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("files/page.html", "a page for one user".repeat(100));
    folder.program(
        "cgi/env.sh",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nenv\n",
    );
    let auth_key = format!(
        "auth = {{ url = \"http://127.0.0.1:{}/\", copy = [\"Remote-User\"] }}\n",
        auth.port
    );
    let routes = format!(
        "[[site.route]]\npath = \"/cgi/\"\ncgi = \"cgi\"\n{auth_key}[[site.route]]\npath = \"/files/\"\nroot = \"files\"\n{auth_key}"
    );
    let server = start_in(folder, &routes);
    let variables = Wire::plain(&server).get("/cgi/env.sh", ALICE);
    let text = variables.text();
    assert!(
        text.contains("\nHTTP_REMOTE_USER=alice\n") && text.contains("\nREMOTE_USER=alice\n"),
        "{text}"
    );
    assert!(!text.contains("AUTH_TYPE"), "{text}");
    for _ in 0..2 {
        let page = Wire::plain(&server).get(
            "/files/page.html",
            &format!("{ALICE}Accept-Encoding: gzip\r\n"),
        );
        assert_eq!(page.status, 200);
        assert_eq!(
            page.fields
                .iter()
                .filter(|(name, _)| name == "Set-Cookie")
                .count(),
            2,
            "{page:?}"
        );
    }
    assert_eq!(Wire::plain(&server).get("/files/page.html", "").status, 401);
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("GET", "/files/page.html", &[("cookie", "s=bob")], true);
    let page = h2.response(id);
    assert_eq!(
        page.fields
            .iter()
            .filter(|(name, _)| name == "set-cookie")
            .count(),
        2,
        "{page:?}"
    );
    assert!(
        server
            .errors
            .all()
            .iter()
            .all(|line| !line.contains("panic")),
        "{:?}",
        server.errors.all()
    );
}

#[test]
fn an_upload_is_refused_before_its_content() {
    let (auth, app) = members(authelia);
    let server = start(&route("/app/", &auth, &app, ""));
    let mut wire = Wire::plain(&server);
    wire.send("PUT /app/file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(wire.response("PUT").status, 401);
    let mut wire = Wire::plain(&server);
    wire.send("PUT /app/file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n");
    assert_eq!(wire.response("PUT").status, 401);
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("PUT", "/app/file", &[("content-length", "10000000")], false);
    assert_eq!(h2.response(id).status, 401);
    assert!(app.requests().is_empty());
    let content = vec![b'a'; 10_000_000];
    let mut wire = Wire::plain(&server);
    wire.send(format!(
        "PUT /app/file HTTP/1.1\r\nHost: localhost\r\n{ALICE}Content-Length: {}\r\n\r\n",
        content.len()
    ));
    wire.send(&content);
    assert_eq!(wire.response("PUT").status, 200);
    assert!(app.wait_for(1).body == content);
}

#[test]
fn a_websocket_is_refused_or_passed() {
    let auth = Member::start(authelia);
    let app = Member::start(|_| {
        Answer::Parts(vec![
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello".to_vec(),
        ])
    });
    let server = start(&route("/", &auth, &app, ""));
    let ask = |fields: &str| {
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "GET /chat HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        ));
        let status = wire.response("GET").status;
        (wire, status)
    };
    assert_eq!(ask("").1, 401);
    assert!(app.requests().is_empty());
    let (mut wire, status) = ask(ALICE);
    assert_eq!((status, wire.take(5)), (101, b"hello".to_vec()));
    assert_eq!(app.wait_for(1).fields("remote-user"), ["alice"]);
    let mut h2 = H2::open(&server, Over::Tls);
    let connect = |cookie: &'static str| {
        [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "localhost"),
            ("cookie", cookie),
        ]
    };
    let id = h2.ask_all(&connect("s=none"), false);
    assert_eq!(h2.response(id).status, 401);
    h2.ask_all(&connect("s=bob"), false);
    assert_eq!(app.wait_for(2).fields("remote-user"), ["bob"]);
    assert!(
        auth.requests()
            .iter()
            .all(|asked| asked.fields("x-forwarded-method") == ["GET"])
    );
}

#[test]
fn two_users_never_see_a_page_of_each_other() {
    let auth = Member::start(authelia);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let app = Member::start(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        let user = request.fields("remote-user").join(",");
        Answer::Keep(
            format!("HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\nContent-Length: {}\r\n\r\n{user}", user.len())
                .into_bytes(),
        )
    });
    let cached =
        route("/app/", &auth, &app, "") + "cache = { seconds = 60, ignore_cookies = true }\n";
    let unnamed = format!(
        "[[site.route]]\npath = \"/unnamed/\"\nproxy = \"http://127.0.0.1:{}\"\nauth = \"http://127.0.0.1:{}/\"\n\
         cache = {{ seconds = 60, ignore_cookies = true }}\n",
        app.port, auth.port
    );
    let server = start(&format!("{cached}{unnamed}"));
    for _ in 0..3 {
        for (fields, user) in [(ALICE, "alice"), (BOB, "bob")] {
            let page = Wire::plain(&server).get("/app/page", fields);
            assert_eq!((page.status, page.text().as_str()), (200, user), "{page:?}");
        }
        assert_eq!(Wire::plain(&server).get("/app/page", "").status, 401);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 2, "each user has a page");
    for _ in 0..2 {
        assert_eq!(Wire::plain(&server).get("/unnamed/page", ALICE).status, 200);
        assert_eq!(Wire::plain(&server).get("/unnamed/page", "").status, 401);
    }
    assert_eq!(
        calls.load(Ordering::SeqCst),
        4,
        "a page of an unnamed user is not stored"
    );
}

#[test]
fn a_login_or_an_address_suffices_with_any() {
    let (auth, app) = members(authelia);
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("public/home/index.html", "home")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    let home = "allow = [\"127.0.0.1\"]\nany = true\n";
    let routes = format!(
        "{}{home}[[site.route]]\npath = \"/home/\"\nusers = \"users\"\n{home}\
         [[site.route]]\npath = \"/closed/\"\nroot = \"public\"\nusers = \"users\"\n{home}deny = [\"127.0.0.1\"]\n",
        route("/app/", &auth, &app, "")
    );
    let server = start_in(folder, &routes);
    const ANT: &str = "Authorization: Basic YW50OmNydW1i\r\n";
    let get = |address: &str, path: &str, fields: &str| {
        Wire::of(&server, address.parse::<IpAddr>().expect("an address"))
            .get(path, fields)
            .status
    };
    for (address, path, fields, status) in [
        ("127.0.0.1", "/app/", "", 200),
        ("127.0.0.2", "/app/", "", 401),
        ("127.0.0.2", "/app/", ALICE, 200),
        ("127.0.0.1", "/home/", "", 200),
        ("127.0.0.2", "/home/", "", 401),
        ("127.0.0.2", "/home/", ANT, 200),
        ("127.0.0.1", "/closed/", ANT, 403),
        ("127.0.0.2", "/closed/", ANT, 200),
        ("127.0.0.2", "/closed/", "", 401),
    ] {
        assert_eq!(
            get(address, path, fields),
            status,
            "{address} {path} {fields}"
        );
    }
    // Nothing asks the server about a client at home, and the client has no user.
    assert_eq!(auth.requests().len(), 2);
    assert_eq!(app.wait_for(1).fields("remote-user"), [""; 0]);
}

#[test]
fn a_loop_through_the_guarded_site_ends() {
    // The check knows this server by its address, but not a proxy in front of it.
    let (port, front) = front();
    let (_, app) = members(authelia);
    let server = start(&format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{}\"\nauth = \"http://127.0.0.1:{port}/auth\"\n",
        app.port
    ));
    front.store(server.http_port.into(), Ordering::SeqCst);
    assert_eq!(Wire::plain(&server).get("/", "").status, 502);
    assert!(app.requests().is_empty());
}

/// Starts a TCP relay. Returns its port, and the place of the port behind it.
fn front() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let behind = Arc::new(AtomicUsize::new(0));
    let to = Arc::clone(&behind);
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let port = to.load(Ordering::SeqCst) as u16;
            let mut server = TcpStream::connect(("127.0.0.1", port)).expect("the server");
            let (mut from, mut into) = (
                client.try_clone().expect("a twin"),
                server.try_clone().expect("a twin"),
            );
            std::thread::spawn(move || std::io::copy(&mut from, &mut into));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.flush();
            });
        }
    });
    (port, behind)
}

#[test]
fn check_knows_the_mistakes() {
    let folder = Folder::new().with("public/index.html", "front");
    let table = [
        ("auth = true", "can't be true"),
        ("auth = \"127.0.0.1:9091\"", "not the URL"),
        (
            "auth = \"http://127.0.0.1:9091/$request_uri\"",
            "the variable `$request_uri`",
        ),
        ("auth = \"http://127.0.0.1:8080/auth\"", "this server"),
        (
            "auth = \"http://a.test:8080/auth\"",
            "leads to a site of this server",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", copy = [\"Host\"] }",
            "can't be copied",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", copy = [\"content_length\"] }",
            "can't be copied",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", copy = [\"Connection\"] }",
            "can't be copied",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", copy = [\"Cookie\"] }",
            "can't be copied",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", copy = [\"Remote-*\"] }",
            "is a pattern",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", copy = [\"A-B\", \"a_b\"] }",
            "copied twice",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", login = \"//{uri}\" }",
            "not the location",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", login = \"/{uri}\" }",
            "open redirect",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", login = \"/x?rd={url}\" }",
            "the placeholder `{url}`",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", login = \"/login?rd={uri}\" }",
            "needs a login itself",
        ),
        (
            "auth = { url = \"http://127.0.0.1:9\", timeout = 5 }",
            "unknown key",
        ),
        ("any = true\nusers = \"users\"", "needs two guards"),
        ("any = true\nallow = [\"127.0.0.1\"]", "needs two guards"),
        ("forward_auth = \"http://127.0.0.1:9\"", "auth"),
        ("auth_request = \"/auth\"", "auth"),
    ];
    for (keys, expected) in table {
        folder.write("anthill.toml", format!(
            "[server]\nhttp = [\":8080\"]\nhttps = []\nstate = \"state\"\ncontrol = \"control\"\n[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n\
             [[site.route]]\npath = \"/\"\n{keys}\n"
        ));
        let done = anthill(&["check", &folder.path("anthill.toml").display().to_string()]);
        let text = format!("{}{}", done.stdout, done.stderr);
        assert!(
            done.code == Some(2) && text.contains(expected),
            "{keys}: {text}"
        );
    }
}

/// Patience of the server with the server for authentication.
const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn a_server_that_hangs_refuses_after_its_time() {
    let (auth, app) = members(|_| Answer::Silence);
    let server = start(&route("/", &auth, &app, ""));
    let mut held: Vec<Wire> = (0..20).map(|_| Wire::plain(&server)).collect();
    for wire in &mut held {
        wire.patience(PATIENCE * 12);
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    // Pages without authentication are served meanwhile.
    for mut wire in held {
        assert_eq!(wire.response("GET").status, 502);
    }
    assert!(app.requests().is_empty());
}

/// Starts oauth2-proxy with the user `ant` and the password `crumb` in a file. The provider is never asked.
fn oauth2_proxy() -> Program {
    let folder = Folder::new().with("htpasswd", "ant:{SHA}9zqNNGKDW5lN+c5b/oFLyRHvXKw=\n");
    let port = free_port();
    let mut command = Command::new(built_tool("oauth2-proxy"));
    command.args([
        &format!("--http-address=127.0.0.1:{port}"),
        &format!("--htpasswd-file={}", folder.path("htpasswd").display()),
        "--provider=github",
        "--client-id=none",
        "--client-secret=none",
        "--cookie-secret=0123456789abcdef0123456789abcdef",
        "--cookie-secure=false",
        "--email-domain=*",
        "--upstream=static://202",
        "--reverse-proxy=true",
        "--set-xauthrequest=true",
    ]);
    Program::start(command, port, folder)
}

#[test]
fn oauth2_proxy_decides_about_passwords_and_sessions() {
    let auth = oauth2_proxy();
    let app = Member::start(|request| ok(&request.head));
    let routes = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"http://127.0.0.1:{}\"\n\
         auth = {{ url = \"http://127.0.0.1:{}/oauth2/auth\", copy = [\"X-Auth-Request-User\", \"X-Auth-Request-Email\"], \
         login = \"/oauth2/start?rd={{uri}}\" }}\n\
         [[site.route]]\npath = \"/oauth2/\"\nproxy = \"http://127.0.0.1:{}\"\nauth = false\n",
        app.port, auth.port, auth.port
    );
    let server = start(&routes);
    let get = |path: &str, fields: &str| Wire::plain(&server).get(path, fields);
    assert_eq!(get("/page", "").status, 401);
    let moved = get("/page?a=b", BROWSER);
    assert_eq!(
        (moved.status, moved.field("location")),
        (302, Some("/oauth2/start?rd=%2Fpage%3Fa%3Db"))
    );
    assert!(app.requests().is_empty());
    let by_password = get(
        "/page",
        "Authorization: Basic YW50OmNydW1i\r\nX-Auth-Request-User: root\r\n",
    );
    assert_eq!(by_password.status, 200, "{by_password:?}");
    assert_eq!(app.wait_for(1).fields("x-auth-request-user"), ["ant"]);
    assert_eq!(
        get("/page", "Authorization: Basic YW50Ondyb25n\r\n").status,
        401
    );
    // The form of the login page begins a session with a cookie.
    let page = get("/oauth2/sign_in", BROWSER);
    assert!(
        page.status == 200 && page.text().contains("<form"),
        "{page:?}"
    );
    let form = "username=ant&password=crumb&rd=%2Fpage";
    let mut wire = Wire::plain(&server);
    wire.send(format!(
        "POST /oauth2/sign_in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    ));
    let begun = wire.response("POST");
    assert_eq!(
        (begun.status, begun.field("location")),
        (302, Some("/page")),
        "{begun:?}"
    );
    let cookies = begun
        .fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookies: Vec<_> = cookies
        .filter_map(|(_, value)| value.split(';').next())
        .collect();
    let session = format!("Cookie: {}\r\n", cookies.join("; "));
    assert_eq!(get("/page", &session).status, 200);
    assert_eq!(app.wait_for(2).fields("x-auth-request-user"), ["ant"]);
}
