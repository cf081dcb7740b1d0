//! Files first, else the member: `try = ["$path", "proxy"]` beside the root of the site, with the guards, methods and
//! spellings of both.

use crate::support::h2::H2;
use crate::support::member::{Member, ok};
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Server, run, server_table, site_table, tool};

/// Starts a server with a member behind the files, and returns the member's requests as its responses.
fn start(member: &Member, more: &str) -> Server {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("public/index.html", "front page")
        .with("public/about.html", "about")
        .with("public/assets/app.css", "styles of the application")
        .with("public/docs/index.html", "index of the docs")
        .with("public/plain/a.txt", "a")
        .with("public/copy.html~", "hidden")
        .with("public/.env", "hidden")
        .with("public/private/page.html", "private page")
        .with("public/near/page.html", "page for the neighbours")
        .with("public/closed/page.html", "closed page")
        .with("public/a/b.txt", "below a slash")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    let routes = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\ntry = [\"$path\", \"$path.html\", \"proxy\"]\n{more}\
         [[site.route]]\npath = \"/private/\"\nusers = \"users\"\n\
         [[site.route]]\npath = \"/near/\"\nallow = [\"192.0.2.1\"]\n\
         [[site.route]]\npath = \"/closed/\"\nstatus = 404\n",
        member.url()
    );
    Server::start_in(
        folder,
        &(server_table("") + &site_table("http = \"serve\"") + &routes),
    )
}

fn member() -> Member {
    Member::start(|request| ok(request.line()))
}

/// Requests, each with the status and the text of the response.
#[rustfmt::skip]
const ROWS: &[(&str, &str, u16, &str)] = &[
    ("GET", "/", 200, "front page"),
    ("GET", "/about", 200, "about"),
    ("GET", "/about.html?x=1", 200, "about"),
    ("GET", "/assets/app.css", 200, "styles of the application"),
    ("GET", "/%61ssets//app.css", 200, "styles of the application"),
    ("GET", "/docs/", 200, "index of the docs"),
    // The member answers for everything else.
    ("GET", "/login", 200, "GET /login HTTP/1.1"),
    ("GET", "/about/", 200, "GET /about/ HTTP/1.1"),
    ("GET", "/login?next=%2F", 200, "GET /login?next=%2F HTTP/1.1"),
    ("GET", "/plain/", 200, "GET /plain/ HTTP/1.1"),
    ("GET", "/plain", 200, "GET /plain HTTP/1.1"),
    ("GET", "/missing~", 200, "GET /missing~ HTTP/1.1"),
    ("GET", "/.auth/login", 200, "GET /.auth/login HTTP/1.1"),
    ("GET", "/about;v=2", 200, "GET /about;v=2 HTTP/1.1"),
    ("POST", "/", 200, "POST / HTTP/1.1"),
    ("POST", "/about.html", 200, "POST /about.html HTTP/1.1"),
    ("PUT", "/assets/app.css", 200, "PUT /assets/app.css HTTP/1.1"),
    ("DELETE", "/about", 200, "DELETE /about HTTP/1.1"),
    ("OPTIONS", "/about", 200, "OPTIONS /about HTTP/1.1"),
];

#[test]
fn a_file_goes_first_and_the_member_answers_for_the_rest() {
    let member = member();
    let server = start(&member, "");
    let mut h2 = H2::open(&server, Over::Tls);
    for (method, path, status, text) in ROWS {
        let fields = if *method == "GET" {
            ""
        } else {
            "Content-Length: 0\r\n"
        };
        let response = Wire::plain(&server).ask(method, path, fields);
        assert_eq!(
            (response.status, response.text().as_str()),
            (*status, *text),
            "{method} {path}"
        );
        if *method == "GET" {
            let response = h2.get(path);
            assert_eq!(
                (response.status, response.text().as_str()),
                (*status, *text),
                "{path} over HTTP/2"
            );
        }
    }
    // A folder with an index file has the redirect of a site, and a file its validators and ranges.
    let moved = Wire::plain(&server).get("/docs?x=1", "");
    assert_eq!(
        (moved.status, moved.field("Location")),
        (301, Some("/docs/?x=1"))
    );
    let part = Wire::plain(&server).get("/about", "Range: bytes=1-2\r\n");
    assert_eq!((part.status, part.text().as_str()), (206, "bo"));
    let head = Wire::plain(&server).ask("HEAD", "/about", "");
    assert_eq!(
        (head.status, head.field("Content-Length")),
        (200, Some("5"))
    );
    let tag = head.field("ETag").expect("a tag").to_owned();
    let known = Wire::plain(&server).get("/about", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(known.status, 304);
    let head = Wire::plain(&server).ask("HEAD", "/login", "");
    assert_eq!(head.status, 200);
    assert!(member.requests_with("HEAD /login").len() == 1);
    // A tunnel is the member's, at the path of a file too.
    let _ = Wire::plain(&server).get(
        "/about.html",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
    );
    assert_eq!(member.requests_with("GET /about.html").len(), 1);
}

/// Neither the file nor the member is reached without the guard.
#[test]
fn guards_hold_for_the_file_and_for_the_member() {
    let member = member();
    let server = start(&member, "");
    let login = "Authorization: Basic YW50OmNydW1i\r\n";
    let refused = [
        ("/private/page.html", 401),
        ("/private/page", 401),
        ("/private/app", 401),
        ("/near/page.html", 403),
        ("/near/app", 403),
        ("/%6eear/app", 403),
        ("/near;x/app", 400),
        ("/x/../near/page", 403),
        ("/closed/page.html", 404),
        ("/closed/app", 404),
        ("/copy.html~", 404),
        ("/copy.html%7E", 404),
        ("/copy.html~/x", 404),
        ("/a%2Fb.txt", 400),
    ];
    for (path, status) in refused {
        for method in ["GET", "POST"] {
            // Hidden files concern the methods that files answer.
            if method == "POST" && path.contains("copy") {
                continue;
            }
            let response = Wire::plain(&server).ask(method, path, "Content-Length: 0\r\n");
            assert_eq!(response.status, status, "{method} {path}");
        }
    }
    assert!(member.requests().is_empty());
    for (path, text) in [
        ("/private/page.html", "private page"),
        ("/private/page", "private page"),
        ("/private/app", "GET /private/app HTTP/1.1"),
    ] {
        let response = Wire::plain(&server).get(path, login);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, text),
            "{path}"
        );
    }
}

/// A path with an encoded slash names no file.
#[test]
fn an_encoded_slash_is_a_path_of_the_member() {
    let member = member();
    let server = start(&member, "encoded_slash = \"pass\"\n");
    let response = Wire::plain(&server).get("/a%2Fb.txt", "");
    assert_eq!(
        (response.status, response.text().as_str()),
        (200, "GET /a%2Fb.txt HTTP/1.1")
    );
    assert_eq!(
        Wire::plain(&server).get("/a/b.txt", "").text(),
        "below a slash"
    );
}

#[test]
fn a_new_file_goes_first_at_once_and_a_removed_one_no_longer() {
    let member = member();
    let server = start(&member, "");
    let get = |path: &str| Wire::plain(&server).get(path, "").text();
    assert_eq!(get("/new.html"), "GET /new.html HTTP/1.1");
    server.folder.write("public/new.html", "a new page");
    assert_eq!(get("/new.html"), "a new page");
    std::fs::remove_file(server.folder.path("public/new.html")).expect("a file");
    assert_eq!(get("/new.html"), "GET /new.html HTTP/1.1");
}

/// The page cache keeps pages of the member; a file needs none.
#[test]
fn the_page_cache_keeps_the_pages_of_the_member_alone() {
    let member = member();
    let server = start(&member, "cache = { seconds = 60 }\n");
    let get = |path: &str| Wire::plain(&server).get(path, "").text();
    assert_eq!(get("/about"), "about");
    for _ in 0..3 {
        assert_eq!(get("/kept"), "GET /kept HTTP/1.1");
    }
    assert_eq!(member.requests().len(), 1);
    server.folder.write("public/kept.html", "a file");
    assert_eq!(get("/kept"), "a file");
}

/// A rewrite that leads to the route looks for a file too.
#[test]
fn a_rewrite_finds_the_file_and_then_the_member() {
    let member = member();
    let server = start(
        &member,
        "[[site.route]]\npath = \"/old/\"\nrewrite = \"/\"\n",
    );
    let get = |path: &str| Wire::plain(&server).get(path, "").text();
    assert_eq!(get("/old/about.html"), "about");
    assert_eq!(get("/old/login"), "GET /login HTTP/1.1");
}

/// A script among the files is the same script for each method, and its folder too. The member gets no such request.
#[test]
fn a_script_of_the_site_goes_first_for_each_method() {
    let member = member();
    let server = start(
        &member,
        &format!(
            "[[site.route]]\npath = \"/\"\ninterpreter = {{ \".sh\" = \"{}\" }}\n",
            tool("sh").display()
        ),
    );
    let script =
        "printf 'Content-Type: text/plain\\n\\nscript %s %s' \"$REQUEST_METHOD\" \"$PATH_INFO\"\n";
    server.folder.write("public/info.sh", script);
    let get = |path: &str| Wire::plain(&server).get(path, "").text();
    assert_eq!(get("/info.sh"), "script GET ");
    for method in [
        "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "PURGE",
    ] {
        let ask = |path: &str| {
            let fields = "Content-Length: 0\r\n";
            Wire::plain(&server).ask(method, path, fields).text()
        };
        assert_eq!(ask("/info.sh"), format!("script {method} "));
        assert_eq!(ask("/info.sh/more"), format!("script {method} /more"));
        assert_eq!(ask("/about.html"), format!("{method} /about.html HTTP/1.1"));
        assert_eq!(ask("/login"), format!("{method} /login HTTP/1.1"));
    }
    // A request for a tunnel runs the script too.
    let tunnel = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let _ = Wire::plain(&server).get("/info.sh", tunnel);
    assert!(member.requests_with("/info.sh").is_empty());
}
