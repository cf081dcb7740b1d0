//! Applications behind the proxy, with the same rules as behind other proxies: logins, methods, WebDAV, redirects of
//! members without knowledge of TLS, early hints and raw UTF-8 in targets.

use std::fs::{Permissions, create_dir_all, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::clients::anthill;
use crate::support::h2::H2;
use crate::support::h2_member::{self, H2Member};
use crate::support::member::{Answer, Member, Received, ok};
use crate::support::programs::{Program, free_port};
use crate::support::wire::{BOTH, Over, Response, Wire};
use crate::support::{Folder, Server, server_table, site_table, tool};

/// Login of the user `ant` with the password `crumb`.
const LOGIN: &str = "Basic YW50OmNydW1i";
const HASH: &str = "$1$abcdefgh$v2KlVvLSPJgjkGRdvLf57.";

/// Starts a server with the routes, where `MEMBER` stands for the URL of the member. The files of users are `users`, with
/// `ant`, and `odd`, with a user whose name has further characters.
fn start(url: &str, routes: &str) -> Server {
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("public/q.txt", "a file")
        .with("public/\u{65e5}\u{672c}.txt", "a Japanese name")
        .with("users", format!("ant:{HASH}\n"))
        .with("odd", format!("a, b\"%\u{e9}:{HASH}\n"));
    let site = site_table("http = \"serve\"");
    let routes = routes.replace("MEMBER", url);
    Server::start_in(folder, &(server_table("h2c = true") + &site + &routes))
}

fn member() -> Member {
    Member::start(|_| ok("member"))
}

/// Sends a request over HTTP/1.1 and HTTP/2, and returns the requests that the member got.
fn forwarded(
    server: &Server,
    member: &Member,
    path: &str,
    fields: &[(&str, &str)],
) -> Vec<Received> {
    let before = member.requests().len();
    let lines: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    assert_eq!(Wire::plain(server).get(path, &lines).status, 200, "{path}");
    let lower: Vec<(String, &str)> = fields
        .iter()
        .map(|(name, value)| (name.to_lowercase(), *value))
        .collect();
    let lower: Vec<(&str, &str)> = lower
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let mut h2 = H2::open(server, Over::Tls);
    let id = h2.ask("GET", path, &lower, true);
    assert_eq!(h2.response(id).status, 200, "{path}");
    member.requests().split_off(before)
}

#[test]
fn a_login_stays_with_the_server() {
    let member = member();
    let server = start(
        &member.url(),
        "[[site.route]]\npath = \"/\"\nproxy = \"MEMBER\"\n\
         [[site.route]]\npath = \"/in/\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/kept/\"\nproxy = \"MEMBER\"\nusers = \"users\"\ncache = { seconds = 9 }\n\
         [[site.route]]\npath = \"/pass/\"\nproxy = { url = \"MEMBER\", pass_login = true }\nusers = \"users\"\n",
    );
    let login = [("Authorization", LOGIN)];
    for (path, fields, expected) in [
        ("/in/a", login, &[][..]),
        ("/kept/a", login, &[]),
        ("/pass/a", login, &[LOGIN]),
        // Without a check, the field is the member's.
        ("/a", login, &[LOGIN]),
        ("/a", [("Authorization", "Bearer token")], &["Bearer token"]),
    ] {
        for request in forwarded(&server, &member, path, &fields) {
            assert_eq!(
                request.fields("authorization"),
                expected,
                "{path} {request:?}"
            );
        }
    }
    assert_eq!(member.requests_with(" /in/a ").len(), 2);
}

#[test]
fn a_password_stays_with_the_server_for_methods_without_a_guard() {
    let member = member();
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("users", format!("ant:{HASH}\n"))
        .with(
            "scripts/told",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s|%s' \"$HTTP_AUTHORIZATION\" \"$REMOTE_USER\"\n",
        )
        .with("scripts/go", "#!/bin/sh\nprintf 'Location: /after/go\\n\\n'\n");
    for script in ["scripts/told", "scripts/go"] {
        set_permissions(folder.path(script), Permissions::from_mode(0o755)).expect("a mode");
    }
    let posts = "users = \"users\"\nguard_methods = [\"POST\"]";
    let routes = format!(
        "[[site.route]]\npath = \"/after/\"\nproxy = \"MEMBER\"\n\
         [[site.route]]\npath = \"/half/\"\nproxy = {{ url = \"MEMBER\", request_headers = {{ X-User = \"{{user}}\" }} }}\n{posts}\n\
         [[site.route]]\npath = \"/half/pass/\"\nproxy = {{ url = \"MEMBER\", pass_login = true }}\n\
         [[site.route]]\npath = \"/half/kept/\"\nproxy = \"MEMBER\"\ncache = {{ seconds = 9 }}\n\
         [[site.route]]\npath = \"/old/\"\nrewrite = \"/half/\"\n\
         [[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n{posts}\n\
         [[site.route]]\npath = \"/free\"\ncgi = \"scripts\"\n"
    )
    .replace("MEMBER", &member.url());
    let site = site_table("http = \"serve\"");
    let server = Server::start_in(folder, &(server_table("h2c = true") + &site + &routes));
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (path, login, expected) in [
        ("/half/a", LOGIN, &[][..]),
        ("/half/a", "bASIC  YW50OndyZW5n", &[]),
        ("/half/kept/a", LOGIN, &[]),
        ("/old/a", LOGIN, &[]),
        // The script of a path with users leads to a path without.
        ("/run/go", LOGIN, &[]),
        ("/free/go", LOGIN, &[LOGIN]),
        ("/half/pass/a", LOGIN, &[LOGIN]),
        ("/half/a", "Bearer token", &["Bearer token"]),
    ] {
        let seen = forwarded(
            &server,
            &member,
            path,
            &[("Authorization", login), ("X-User", "root")],
        );
        assert_eq!(seen.len(), 2, "{path}");
        for request in seen {
            assert_eq!(request.fields("authorization"), expected, "{path} {login}");
            let is_open = !path.starts_with("/half/a") && path != "/old/a";
            assert_eq!(request.fields("x-user").is_empty(), !is_open, "{path}");
        }
    }
    let login = format!("Authorization: {LOGIN}\r\n");
    let got = Wire::plain(&server).get("/half/socket", &(login.clone() + upgrade));
    assert_eq!(got.status, 200);
    let seen = member.requests_with(" /half/socket ");
    assert_eq!(seen[0].fields("upgrade"), ["websocket"]);
    assert!(seen[0].fields("authorization").is_empty());
    for (method, path, expected) in [
        ("GET", "/run/told", "|"),
        ("POST", "/run/told", "|ant"),
        ("GET", "/free/told", &format!("{LOGIN}|")),
    ] {
        let length = "Content-Length: 0\r\n";
        let got = Wire::plain(&server).ask(method, path, &(login.clone() + length));
        assert_eq!(
            (got.status, got.text().as_str()),
            (200, expected),
            "{method} {path}"
        );
    }
}

#[test]
fn members_learn_the_name_of_the_user() {
    let member = member();
    let proxy = "proxy = { url = \"MEMBER\", request_headers = { X-User = \"{user}\", X-Both = \"u={user};c={client}\" } }";
    let server = start(
        &member.url(),
        &format!(
            "[[site.route]]\npath = \"/\"\n{proxy}\n\
             [[site.route]]\npath = \"/in/\"\nusers = \"users\"\n\
             [[site.route]]\npath = \"/odd/\"\nusers = \"odd\"\n"
        ),
    );
    // base64 of `a, b"%é:crumb`
    let odd = "Basic YSwgYiIlw6k6Y3J1bWI=";
    for (path, login, user) in [
        ("/in/", LOGIN, "ant"),
        ("/odd/", odd, "a%2C%20b%22%25%C3%A9"),
    ] {
        let fields = [
            ("Authorization", login),
            ("X-User", "root"),
            ("x-both", "forged"),
        ];
        for request in forwarded(&server, &member, path, &fields) {
            assert_eq!(request.fields("x-user"), [user]);
            assert_eq!(request.fields("x-both"), [format!("u={user};c=127.0.0.1")]);
        }
    }
    // Without a login the fields are absent, also those of the client.
    let fields = [
        ("X-User", "root"),
        ("X-Both", "forged"),
        ("Authorization", LOGIN),
    ];
    for request in forwarded(&server, &member, "/open", &fields) {
        assert!(request.fields("x-user").is_empty() && request.fields("x-both").is_empty());
    }
}

fn ask(server: &Server, method: &str, path: &str) -> Vec<(String, Response)> {
    let mut all = Vec::new();
    for over in BOTH {
        let response = Wire::over(server, over).ask(method, path, "");
        all.push((format!("{method} {path} over 1.1, {over:?}"), response));
    }
    let mut h2 = H2::open(server, Over::Tls);
    let id = h2.ask(method, path, &[], true);
    all.push((format!("{method} {path} over 2"), h2.response(id)));
    all
}

#[test]
fn methods_without_a_registration_reach_members() {
    let member = member();
    let server = start(
        &member.url(),
        "[[site.route]]\npath = \"/app/\"\nproxy = \"MEMBER\"\n\
         [[site.route]]\npath = \"/kept/\"\nproxy = \"MEMBER\"\ncache = { seconds = 9 }\n\
         [[site.route]]\npath = \"/app/list/\"\nmethods = [\"GET\", \"PURGE\"]\n\
         [[site.route]]\npath = \"/app/closed/\"\nguard_methods = [\"POST\"]\nallow = []\n",
    );
    for method in ["PURGE", "BAN", "M-SEARCH", "QUERY", "LINK", "purge"] {
        for (what, got) in ask(&server, method, "/app/x") {
            assert_eq!((got.status, got.text().as_str()), (200, "member"), "{what}");
        }
        let line = format!("{method} /app/x HTTP/1.1");
        assert_eq!(member.requests_with(&line).len(), 3, "{method}");
    }
    let long = "A".repeat(25);
    for method in ["trace", "get", "TRACK", "PRI", &long] {
        for (what, got) in ask(&server, method, "/app/x") {
            assert_eq!(got.status, 501, "{what}");
        }
    }
    // Files know no further methods.
    for (what, got) in ask(&server, "PURGE", "/index.html") {
        assert_eq!(got.status, 501, "{what}");
    }
    let expected = [
        ("GET", "/app/list/x", 200),
        ("PURGE", "/app/list/x", 200),
        ("BAN", "/app/list/x", 405),
        ("purge", "/app/list/x", 405),
        ("GET", "/app/closed/x", 200),
        ("POST", "/app/closed/x", 403),
        // A list can't name every method that a member might take for POST.
        ("BAN", "/app/closed/x", 403),
    ];
    for (method, path, status) in expected {
        for (what, got) in ask(&server, method, path) {
            assert_eq!(got.status, status, "{what}");
        }
    }
    // The cache neither answers nor stores such a request, and forgets the page after it. Plain HTTP and TLS have a page
    // each.
    for (method, count) in [("GET", 2), ("PURGE", 3), ("GET", 4)] {
        for (what, got) in ask(&server, method, "/kept/x") {
            assert_eq!(got.status, 200, "{what}");
        }
        let line = format!("{method} /kept/x HTTP/1.1");
        assert_eq!(member.requests_with(&line).len(), count, "{method}");
    }
}

#[test]
fn early_hints_reach_clients_that_know_them() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let answer = format!("{hint}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let member = Member::start(move |_| Answer::Keep(answer.clone().into_bytes()));
    let server = start(
        &member.url(),
        "[[site.route]]\npath = \"/\"\nproxy = \"MEMBER\"\n\
         [[site.route]]\npath = \"/all/\"\nproxy = \"MEMBER\"\nearly_hints = \"http1\"\n",
    );
    for over in BOTH {
        let page = Wire::over(&server, over).get("/x", "");
        assert_eq!((page.status, page.text().as_str()), (200, "ok"), "{over:?}");
        let mut wire = Wire::over(&server, over);
        let first = wire.get("/all/x", "");
        assert_eq!(
            (first.status, first.field("link")),
            (103, Some("</a.css>; rel=preload"))
        );
        assert_eq!(wire.response("GET").text(), "ok");
        for path in ["/x", "/all/x"] {
            let page = H2::open(&server, over).get(path);
            let hints: Vec<u16> = page.interim.iter().map(|hint| hint.status).collect();
            assert_eq!(
                (page.text().as_str(), hints),
                ("ok", vec![103]),
                "{over:?} {path}"
            );
        }
    }
}

#[test]
fn raw_utf_8_in_a_target_is_read_in_its_encoded_form() {
    let member = member();
    let server = start(
        &member.url(),
        "[[site.route]]\npath = \"/app/\"\nproxy = \"MEMBER\"\ncache = { seconds = 99 }\n\
         [[site.route]]\npath = \"/app/\u{e9}/\"\nallow = []\n",
    );
    for (path, text) in [
        ("/\u{65e5}\u{672c}.txt", "a Japanese name"),
        ("/q.txt?s=\u{65e5}\u{672c}", "a file"),
        ("http://localhost/\u{65e5}\u{672c}.txt", "a Japanese name"),
    ] {
        for (what, got) in ask(&server, "GET", path) {
            if path.starts_with('/') || what.contains("1.1") {
                assert_eq!((got.status, got.text().as_str()), (200, text), "{what}");
            }
        }
    }
    for path in ["/app/\u{fc}?a=\u{65e5}&b", "/app/%C3%BC?a=%E6%97%A5&b"] {
        for (what, got) in ask(&server, "GET", path) {
            assert_eq!(got.status, 200, "{what}");
        }
    }
    // Both spellings are one page of the cache, for plain HTTP and for TLS.
    let lines: Vec<String> = member
        .requests()
        .iter()
        .map(|it| it.line().to_owned())
        .collect();
    assert_eq!(lines, ["GET /app/%C3%BC?a=%E6%97%A5&b HTTP/1.1"; 2]);
    let logged = server
        .output
        .wait_for("a line", |line| line.contains("/app/"));
    assert!(
        logged.contains("\"GET /app/%C3%BC?a=%E6%97%A5&b HTTP/1.1\""),
        "{logged}"
    );
    for (what, got) in ask(&server, "GET", "/app/\u{e9}/x") {
        assert_eq!(got.status, 403, "{what}");
    }
    // A body follows the head in its place, and the next request follows the body.
    let mut wire = Wire::plain(&server);
    wire.send("POST /app/\u{fc} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabcGET /q.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(
        (wire.response("POST").status, wire.response("GET").text()),
        (200, "a file".to_owned())
    );
    assert_eq!(member.requests_with("POST /app/%C3%BC ")[0].body, b"abc");
    // The bytes may arrive one by one.
    let mut wire = Wire::plain(&server);
    wire.drip("GET /\u{65e5}\u{672c}.txt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(wire.response("GET").text(), "a Japanese name");
    // Text in another coding has no certain reading.
    for target in [
        &b"/caf\xe9"[..],
        b"/q.txt?s=\xe9",
        b"/\xc0\xaf",
        b"/q.txt?\xed\xa0\x80",
    ] {
        let mut wire = Wire::plain(&server);
        wire.send([b"GET ", target, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat());
        assert_eq!(
            wire.response("GET").status,
            400,
            "{}",
            target.escape_ascii()
        );
    }
}

/// Starts Apache with further modules and lines. The children of Apache may write to the pages.
fn apache(folder: Folder, modules: &[&str], lines: &str) -> Program {
    let port = free_port();
    let root = folder.path("");
    let root = root.display();
    let modules = ["mpm_event", "authz_core", "dir", "mime"]
        .iter()
        .chain(modules);
    let modules: String = modules
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    create_dir_all(folder.path("locks")).expect("a folder");
    for writable in ["", "public", "locks"] {
        set_permissions(folder.path(writable), Permissions::from_mode(0o777)).expect("a folder");
    }
    let lines = lines.replace("ROOT", &root.to_string());
    folder.write(
        "apache.conf",
        format!(
            "{modules}ServerRoot {root}\nServerName backend.internal\nListen 127.0.0.1:{port}\n\
             PidFile {root}/apache.pid\nErrorLog {root}/error.log\nDocumentRoot {root}/public\n\
             TypesConfig /dev/null\nStartServers 1\nUser nobody\nGroup nogroup\n{lines}\n"
        ),
    );
    let mut command = Command::new(tool("apache2"));
    command.arg("-X").arg("-f").arg(folder.path("apache.conf"));
    Program::start(command, port, folder)
}

#[test]
fn redirects_of_a_member_without_tls_lead_back_through_the_proxy() {
    let folder = || Folder::new().with("public/docs/index.html", "docs");
    let apache = apache(
        folder(),
        &["rewrite"],
        "RewriteEngine On\nRewriteRule ^/.well-known/caldav /docs/ [R=301,L]",
    );
    let nginx = Program::nginx(folder(), "");
    for (name, port) in [("apache", apache.port), ("nginx", nginx.port)] {
        let server = start(
            &format!("http://127.0.0.1:{port}"),
            "[[site.route]]\npath = \"/\"\nproxy = \"MEMBER\"\n\
             [[site.route]]\npath = \"/in/\"\nproxy = { url = \"MEMBER/\", host = \"member\" }\n",
        );
        let secure = format!("localhost:{}", server.https_port);
        for (path, location) in [("/docs", "/docs/"), ("/in/docs", "/in/docs/")] {
            for host in ["localhost", secure.as_str()] {
                let mut wire = Wire::tls(&server);
                wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
                let got = wire.response("GET");
                assert_eq!(
                    (got.status, got.field("location")),
                    (301, Some(location)),
                    "{name} {host}"
                );
            }
            let got = H2::open(&server, Over::Tls).get(path);
            assert_eq!(
                (got.status, got.field("location")),
                (301, Some(location)),
                "{name}"
            );
        }
        if name == "apache" {
            let got = Wire::tls(&server).get("/.well-known/caldav", "");
            assert_eq!(got.field("location"), Some("/docs/"));
            // The client of plain HTTP stays there.
            let got = Wire::plain(&server).get("/docs", "");
            assert_eq!(got.field("location"), Some("http://localhost/docs/"));
        }
    }
}

/// Sends a request with Destination or If over TLS, and returns the status.
fn dav(server: &Server, method: &str, path: &str, fields: &str) -> u16 {
    Wire::tls(server).ask(method, path, fields).status
}

#[test]
fn webdav_moves_and_copies_behind_tls() {
    let folder = Folder::new()
        .with("public/secret/index.html", "secret")
        .with("public/login/index.html", "login");
    for guarded in ["secret", "login"] {
        let path = folder.path("public").join(guarded);
        set_permissions(path, Permissions::from_mode(0o777)).expect("a folder");
    }
    let dav_lines = "DavLockDB ROOT/locks/db\n<Directory ROOT/public>\nDav On\nRequire all granted\n</Directory>";
    let apache = apache(folder, &["dav", "dav_fs"], dav_lines);
    let server = start(
        &format!("http://127.0.0.1:{}", apache.port),
        "[[site.route]]\npath = \"/dav/\"\nproxy = \"MEMBER/\"\n\
         [[site.route]]\npath = \"/dav/secret/\"\nallow = []\n\
         [[site.route]]\npath = \"/dav/login/\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/dav/shut/\"\nredirect = { status = 410 }\n\
         [[site.route]]\npath = \"/other/\"\nproxy = \"MEMBER/\"\n",
    );
    let text = |path: &str| Wire::tls(&server).get(path, "").text();
    let put = "Content-Length: 4\r\n\r\ntext";
    let mut wire = Wire::tls(&server);
    wire.send(format!(
        "PUT /dav/a.txt HTTP/1.1\r\nHost: localhost\r\n{put}"
    ));
    assert_eq!(wire.response("PUT").status, 201);
    let to = |url: &str| format!("Destination: {url}\r\n");
    assert_eq!(
        dav(
            &server,
            "MOVE",
            "/dav/a.txt",
            &to("https://localhost/dav/b.txt")
        ),
        201
    );
    assert_eq!(
        (
            text("/dav/b.txt").as_str(),
            dav(&server, "GET", "/dav/a.txt", "")
        ),
        ("text", 404)
    );
    assert_eq!(
        dav(&server, "COPY", "/dav/b.txt", &to("/dav/c%20\u{e9}.txt")),
        201
    );
    assert_eq!(text("/dav/c%20%C3%A9.txt"), "text");
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask(
        "COPY",
        "/dav/b.txt",
        &[("destination", "https://localhost/dav/d.txt")],
        true,
    );
    assert_eq!(
        (h2.response(id).status, text("/dav/d.txt").as_str()),
        (201, "text")
    );

    // Every rule of a path holds for a destination.
    let login = format!("Authorization: {LOGIN}\r\n");
    let refused = [
        (to("https://localhost/dav/secret/x"), 403),
        (to("/dav/secret/x"), 403),
        (to("https://localhost/dav/%73ecret/x"), 403),
        (to("https://localhost/dav/x/../secret/x"), 403),
        (to("https://localhost//dav//secret/x"), 403),
        (to("https://localhost/dav/x%2F..%2Fsecret/x"), 400),
        (to("https://localhost/dav/secret;a/x"), 400),
        (to("https://localhost/dav/..;/secret/x"), 400),
        (to("https://localhost/dav/../../secret/x"), 400),
        (to("https://localhost/dav/login/x"), 401),
        (to("https://localhost/dav/shut/x"), 502),
        (to("https://localhost/other/x"), 502),
        (to("https://localhost/index.html"), 502),
        (to("https://evil.test/dav/x"), 502),
        (to("//localhost/dav/x"), 502),
        (to("/dav/x") + &to("/dav/secret/x"), 400),
        (
            "If: <https://localhost/dav/secret/index.html> ([\"a\"])\r\n".to_owned(),
            403,
        ),
    ];
    for (fields, status) in &refused {
        assert_eq!(
            dav(&server, "COPY", "/dav/b.txt", fields),
            *status,
            "{fields}"
        );
    }
    for (fields, rule) in [
        (to("https://localhost/dav/a b?space"), "R223"),
        (to("/dav/%zz?percent"), "R223"),
        (to("/dav/a#fragment"), "R223"),
        (to(""), "R223"),
        (
            "If: <https://localhost/dav/%zz> ([\"a\"])\r\n".to_owned(),
            "R223",
        ),
        (to("/dav/../../x"), "R111"),
    ] {
        let path = format!("/dav/b.txt?{}", fields.len());
        assert_eq!(dav(&server, "COPY", &path, &fields), 400, "{fields}");
        let line = server
            .output
            .wait_for("the rule", |line| line.contains(&path));
        assert!(line.contains(&format!("rule={rule}")), "{fields} {line}");
    }
    let at_secret = apache.folder.path("public/secret/x");
    assert!(!at_secret.exists() && !Path::new(&apache.folder.path("public/x")).exists());
    let fields = to("https://localhost/dav/login/x") + &login;
    assert_eq!(dav(&server, "COPY", "/dav/b.txt", &fields), 201);

    // A locked file moves with the token of its lock, in a list for the file.
    let body = "<?xml version=\"1.0\"?><lockinfo xmlns=\"DAV:\"><lockscope><exclusive/></lockscope>\
                <locktype><write/></locktype></lockinfo>";
    let mut wire = Wire::tls(&server);
    wire.send(format!(
        "LOCK /dav/d.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let locked = wire.response("LOCK");
    let token = locked.field("lock-token").expect("a token").to_owned();
    let fields = to("https://localhost/dav/e.txt");
    assert_eq!(dav(&server, "MOVE", "/dav/d.txt", &fields), 423);
    let fields = format!("{fields}If: <https://localhost/dav/d.txt> ({token})\r\n");
    assert_eq!(
        (
            dav(&server, "MOVE", "/dav/d.txt", &fields),
            text("/dav/e.txt").as_str()
        ),
        (201, "text")
    );
}

#[test]
fn members_of_http_2_get_logins_names_and_destinations_alike() {
    let member = H2Member::start(|request| h2_member::ok(request, "member"));
    let user = "request_headers = { X-User = \"{user}\" }";
    let server = start(
        &format!("{{ url = \"{}/\", http2 = true", member.url()),
        &format!(
            "[[site.route]]\npath = \"/in/\"\nproxy = MEMBER, {user} }}\nusers = \"users\"\n\
             [[site.route]]\npath = \"/pass/\"\nproxy = MEMBER, pass_login = true }}\nusers = \"users\"\n\
             [[site.route]]\npath = \"/open/\"\nproxy = MEMBER, {user} }}\n\
             [[site.route]]\npath = \"/open/in/\"\nusers = \"users\"\n\
             [[site.route]]\npath = \"/dav/\"\nproxy = MEMBER }}\n\
             [[site.route]]\npath = \"/dav/secret/\"\nallow = []\n"
        ),
    );
    let to = |path: &str| format!("https://localhost/dav/{path}");
    let none: &[&str] = &[];
    for (method, path, destination, status, [login, name, destinations]) in [
        ("GET", "/in/a", None, 200, [none, &["ant"], &[]]),
        ("GET", "/pass/a", None, 200, [&[LOGIN], &["root"], &[]]),
        ("GET", "/open/a", None, 200, [&[LOGIN], &[], &[]]),
        ("GET", "/open/in/a", None, 200, [&[], &["ant"], &[]]),
        (
            "COPY",
            "/dav/a",
            Some(to("b%20c")),
            200,
            [&[LOGIN], &["root"], &["http://localhost/b%20c"]],
        ),
        ("MOVE", "/dav/a", Some(to("secret/x")), 403, [none; 3]),
        (
            "PUT",
            "/dav/a",
            Some(to("b")),
            200,
            [&[LOGIN], &["root"], &[&to("b")]],
        ),
    ] {
        let mut fields = vec![("authorization", LOGIN), ("x-user", "root")];
        fields.extend(destination.as_deref().map(|it| ("destination", it)));
        let lines: String = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let before = member.requests().len();
        assert_eq!(
            Wire::tls(&server).ask(method, path, &lines).status,
            status,
            "{method} {path}"
        );
        let mut h2 = H2::open(&server, Over::Tls);
        let id = h2.ask(method, path, &fields, true);
        assert_eq!(h2.response(id).status, status, "{method} {path}");
        let seen = member.requests().split_off(before);
        assert_eq!(
            seen.len(),
            if status == 200 { 2 } else { 0 },
            "{method} {path}"
        );
        for request in seen {
            assert_eq!(request.all("authorization"), login, "{method} {path}");
            assert_eq!(request.all("x-user"), name, "{method} {path}");
            assert_eq!(request.all("destination"), destinations, "{method} {path}");
        }
    }
}

#[test]
fn destination_of_other_methods_stays_as_sent() {
    let member = member();
    let server = start(
        &member.url(),
        "[[site.route]]\npath = \"/\"\nproxy = \"MEMBER\"\n",
    );
    let fields = [("Destination", "Z\u{fc}rich"), ("If", "(<urn:uuid:1>)")];
    for request in forwarded(&server, &member, "/x", &fields) {
        assert_eq!(request.fields("destination"), ["Z\u{fc}rich"]);
        assert_eq!(request.fields("if"), ["(<urn:uuid:1>)"]);
    }
}

#[test]
fn check_warns_of_a_login_that_no_route_asks_for() {
    let folder = Folder::new()
        .with("public/index.html", "hello")
        .with("users", format!("ant:{HASH}\n"));
    let check = |keys: &str, more: &str| {
        let route = format!(
            "[[site.route]]\npath = \"/app/\"\nproxy = {{ url = \"http://127.0.0.1:9\", {keys} }}\n{more}"
        );
        folder.write("anthill.toml", server_table("") + &site_table("") + &route);
        let checked = anthill(&folder.path("."), &["check", "anthill.toml"]);
        assert_eq!(checked.code, Some(0), "{checked:?}");
        checked.stderr
    };
    let user = "request_headers = { X-User = \"{user}\" }";
    let warned = check(user, "");
    assert!(
        warned.contains("the field X-User of the route /app/ never reaches the member"),
        "{warned}"
    );
    let warned = check("pass_login = true", "");
    assert!(
        warned.contains("`pass_login` of the route /app/ has no effect"),
        "{warned}"
    );
    for keys in [user, "pass_login = true"] {
        let warned = check(
            keys,
            "[[site.route]]\npath = \"/app/in/\"\nusers = \"users\"\n",
        );
        assert!(!warned.contains("/app/"), "{warned}");
    }
}
