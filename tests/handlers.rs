//! Handlers within a site: the site's error pages, fields and queries apply to handlers, over every version
//! of HTTP.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Response, Wire};
use crate::support::{Folder, Server, server_table, site_table, tool};

const PLAIN: &str = "printf 'Content-Type: text/plain\\n\\n'\n";
const ROUTE: &str = "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n";
const PAGE: &str = "<p>our own page for it</p>\n";

fn folder(scripts: &[(&str, &str)]) -> Folder {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/error.html", PAGE);
    fs::create_dir(folder.path("scripts")).expect("a folder");
    for (name, text) in scripts {
        let name = format!("scripts/{name}");
        folder.write(&name, format!("#!/bin/sh\n{text}\n"));
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(&name), mode).expect("a mode");
    }
    folder
}

/// Sends a request over HTTP/1.1 and HTTP/2, with and without TLS. Returns each response with a description
/// of its transport.
fn ask_all(server: &Server, method: &str, path: &str) -> Vec<(String, Response)> {
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

/// Sends requests over HTTP/3 and returns one line of JSON for each response.
#[cfg(feature = "http3")]
fn ask_h3(server: &Server, questions: &[&str]) -> Vec<String> {
    let said = crate::h3::run_scenario(server, &[&["ask"], questions].concat());
    said.lines().map(str::to_owned).collect()
}

#[test]
fn refusals_use_the_error_pages_of_the_site() {
    let folder = folder(&[
        ("dies", "exit 1"),
        ("silent", "sleep 1000"),
        (
            "own",
            "printf 'Status: 404 Gone\\nContent-Type: text/plain\\n\\nits own'",
        ),
        ("deaf", PLAIN),
        ("to-dead", "printf 'Location: /run/dies\\n\\n'"),
        ("to-none", "printf 'Location: /none\\n\\n'"),
    ]);
    folder.write("public/large.html", PAGE.repeat(10_000));
    folder.write("scripts/closed", "#!/bin/sh\n");
    let site = "http = \"serve\"\nerrors = { 403 = \"error.html\", 404 = \"error.html\", \
        405 = \"error.html\", 413 = \"error.html\", 502 = \"error.html\", 504 = \"large.html\" }\n\
        headers = [{ files = \"error.html\", set = { \"X-Page\" = \"error\" } }]\n";
    let config = server_table("limits = { body_bytes = 1000 }") + &site_table(site) + ROUTE;
    let server = Server::start_in(folder, &config);
    for (path, status) in [
        ("/run/dies", 502),
        ("/run/none", 404),
        ("/run/closed", 403),
        ("/run/to-dead", 502),
        ("/run/to-none", 404),
    ] {
        for (what, got) in ask_all(&server, "GET", path) {
            assert_eq!((got.status, got.text().as_str()), (status, PAGE), "{what}");
            assert_eq!(got.field("content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(got.field("x-page"), Some("error"), "{what}: {got:?}");
            assert_eq!(got.field("etag"), None, "{what}");
        }
        for (what, got) in ask_all(&server, "HEAD", path) {
            assert_eq!((got.status, got.body.len()), (status, 0), "{what}");
            let length = PAGE.len().to_string();
            assert_eq!(got.field("content-length"), Some(&*length), "{what}");
        }
    }
    // The response equals the response for an absent file.
    let mut wire = Wire::plain(&server);
    let [ours, files] = ["/run/none", "/none"].map(|path| {
        let mut fields = wire.get(path, "").fields;
        fields.retain(|(name, _)| name != "Date");
        fields.sort();
        fields
    });
    assert_eq!(ours, files);
    // A page too large to be sent at once. Only this part of the test runs with the short timeout.
    let limits = "body_bytes = 1000, script_silent_seconds = 1";
    server.reload(&config.replace("body_bytes = 1000", limits));
    for (what, got) in ask_all(&server, "GET", "/run/silent") {
        let whole = (got.status, got.body.len()) == (504, PAGE.len() * 10_000);
        assert!(whole && got.whole, "{what}: {got:?}");
    }
    server.reload(&config);
    for (what, got) in ask_all(&server, "TRACE", "/run/own") {
        assert_eq!((got.status, got.text().as_str()), (405, PAGE), "{what}");
        assert_eq!(got.field("allow"), Some("GET, HEAD, OPTIONS"), "{what}");
    }
    // A script's own response is unchanged.
    for (what, got) in ask_all(&server, "GET", "/run/own") {
        assert_eq!(
            (got.status, got.text().as_str()),
            (404, "its own"),
            "{what}"
        );
        assert_eq!(got.field("x-page"), None, "{what}");
    }
    // A body over the limit, with and without a declared length.
    for fields in ["Content-Length: 1001", "Transfer-Encoding: chunked"] {
        for over in BOTH {
            let mut wire = Wire::over(&server, over);
            let head = format!("POST /run/deaf HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n");
            wire.send(head + "3e9\r\n" + &"x".repeat(1001) + "\r\n0\r\n\r\n");
            let got = wire.response("POST");
            assert_eq!((got.status, got.text().as_str()), (413, PAGE), "{fields}");
            assert!(got.closes(), "{fields}: {got:?}");
            assert!(wire.rest().is_empty(), "{fields}");
        }
    }
    let mut h2 = H2::open(&server, Over::Tls);
    for fields in [&[("content-length", "1001")][..], &[]] {
        let id = h2.ask("POST", "/run/deaf", fields, false);
        h2.data(id, &[b'x'; 1001], true);
        let got = h2.response(id);
        assert_eq!((got.status, got.text().as_str()), (413, PAGE), "{fields:?}");
    }
    assert_eq!(h2.get("/").status, 200);
    let line = server
        .output
        .wait_for("a refusal", |line| line.contains("/run/dies HTTP/2"));
    assert!(
        line.contains(" 502 ") && line.contains(" rule=R711"),
        "{line}"
    );
    #[cfg(feature = "http3")]
    for (line, status) in ask_h3(
        &server,
        &["GET /run/dies", "GET /run/none", "TRACE /run/own"],
    )
    .iter()
    .zip([502, 404, 405])
    {
        assert!(line.contains(&format!("\"status\": {status}")), "{line}");
        assert!(line.contains("our own page for it"), "{line}");
        assert_eq!(line.contains("\"allow\""), status == 405, "{line}");
    }
}

/// Checks that an error page not held in memory is loaded while the client still sends content.
#[test]
fn an_error_page_is_loaded_while_its_client_waits() {
    for over in BOTH {
        for fields in ["Content-Length: 1001", "Transfer-Encoding: chunked"] {
            let site = "http = \"serve\"\nerrors = { 413 = \"error.html\" }\n";
            let limits = "limits = { body_bytes = 1000 }";
            let config = server_table(limits) + &site_table(site) + ROUTE;
            let server = Server::start_in(folder(&[("deaf", PLAIN)]), &config);
            let mut wire = Wire::over(&server, over);
            let head = format!("POST /run/deaf HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n");
            // The bytes after the content look like a request, and are discarded.
            let next = "GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n";
            wire.send(head + "3e9\r\n" + &"x".repeat(1001) + "\r\n0\r\n\r\n" + next);
            let got = wire.response("POST");
            assert_eq!((got.status, got.text().as_str()), (413, PAGE), "{fields}");
            assert!(got.closes() && wire.rest().is_empty(), "{fields}: {got:?}");
            if fields.starts_with("Content") {
                assert_eq!(server.counter("rejects"), 1, "{over:?}");
            }
        }
    }
    for fields in [&[("content-length", "1001")][..], &[]] {
        let site = "http = \"serve\"\nerrors = { 413 = \"error.html\" }\n";
        let limits = "limits = { body_bytes = 1000 }";
        let config = server_table(limits) + &site_table(site) + ROUTE;
        let server = Server::start_in(folder(&[("deaf", PLAIN)]), &config);
        let mut h2 = H2::open(&server, Over::Tls);
        let id = h2.ask("POST", "/run/deaf", fields, false);
        h2.data(id, &[b'x'; 1001], true);
        let got = h2.response(id);
        assert_eq!((got.status, got.text().as_str()), (413, PAGE), "{fields:?}");
        assert_eq!(h2.get("/").status, 200);
    }
}

/// Checks over HTTP/3 that an error page not held in memory is loaded while the client still sends content.
#[cfg(feature = "http3")]
#[test]
fn an_error_page_is_loaded_while_its_client_waits_over_http_3() {
    let site = "http = \"serve\"\nerrors = { 413 = \"error.html\" }\n";
    let config = server_table("limits = { body_bytes = 1000 }") + &site_table(site) + ROUTE;
    let server = Server::start_in(folder(&[("deaf", PLAIN)]), &config);
    for nth in 1..3 {
        let said = crate::h3::run_scenario(&server, &["withheld", "/run/deaf", "1001"]);
        assert_eq!(said, format!("413 {}", PAGE.trim_end()));
        assert_eq!(server.counter("rejects"), nth);
    }
}

/// Checks that an error page is complete although sending the page takes longer than the rest of the
/// request's content, both for content that is cut off and for content that ends.
#[test]
fn a_large_error_page_is_whole_after_a_cut_body() {
    let folder = folder(&[("reads", &format!("cat > /dev/null\n{PLAIN}"))]);
    folder.write("public/large.html", PAGE.repeat(200_000));
    let site = "http = \"serve\"\nerrors = { 408 = \"large.html\", 413 = \"large.html\" }\n";
    let limits = "limits = { body_bytes = 1000, body_rate_bytes_per_second = 1000 }";
    let config = server_table(limits) + &site_table(site) + ROUTE;
    let server = Server::start_in(folder, &config);
    let head =
        "POST /run/reads HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n";
    let mut waiting = Vec::new();
    for over in BOTH {
        let mut late = Wire::over(&server, over);
        late.send(format!("{head}x"));
        let mut long = Wire::over(&server, over);
        long.send(format!("{head}{}", "x".repeat(1001)));
        long.finish();
        waiting.extend([(413, over, long), (408, over, late)]);
    }
    for (status, over, mut wire) in waiting {
        wire.patience(Duration::from_secs(60));
        let got = wire.response("POST");
        let is_all = got.whole && got.body.len() == PAGE.len() * 200_000;
        assert!(is_all, "{status} over {over:?}: {}", got.body.len());
        assert_eq!(got.status, status, "{over:?}");
    }
}

/// Checks that a refused call sends one response, also when the error page is in memory and longer than a pipe.
#[test]
fn a_long_error_page_in_memory_is_the_only_response_over_http2() {
    let folder = folder(&[("reads", &format!("cat > /dev/null\n{PLAIN}"))]);
    let page = PAGE.repeat(200_000 / PAGE.len());
    folder.write("public/large.html", &page);
    let site = "http = \"serve\"\nerrors = { 413 = \"large.html\" }\n";
    let limits = "limits = { body_bytes = 1000 }";
    let config = server_table(limits) + &site_table(site) + ROUTE;
    let server = Server::start_in(folder, &config);
    let mut h2 = H2::open(&server, Over::Tls);
    // The first request loads the page.
    for _ in 0..3 {
        let id = h2.ask("POST", "/run/reads", &[], false);
        h2.data(id, &[b'x'; 600], false);
        h2.data(id, &[b'x'; 600], false);
        let got = h2.response(id);
        assert_eq!((got.status, got.whole), (413, true), "{got:?}");
        assert_eq!(got.text(), page);
        h2.data(id, &[b'x'; 600], true);
    }
    assert_eq!(server.counter("rejects"), 3);
    // curl 7.88 reports an error in place of the response if a reset follows the response at once. Over HTTP/2, curl
    // sends no length in place of `Transfer-Encoding`.
    server.folder.write("upload", vec![b'x'; 20_000_000]);
    let file = format!("@{}", server.folder.path("upload").display());
    let url = server.https("/run/reads");
    let length = "Transfer-Encoding: chunked";
    let words = ["--http2", "-H", length, "--data-binary", &file, &url];
    let ran = server.curl(&words);
    assert!(ran.success, "{}", ran.errors());
    assert_eq!(String::from_utf8_lossy(&ran.stdout), page);
}

/// Checks that the end of a request does not count before the last DATA frame has come whole.
#[test]
fn an_incomplete_last_frame_has_the_deadline_of_a_slow_body() {
    let folder = folder(&[("reads", &format!("cat > /dev/null\n{PLAIN}"))]);
    let limits = "limits = { body_bytes = 1000, body_rate_bytes_per_second = 1000 }";
    let config = server_table(limits) + &site_table("http = \"serve\"\n") + ROUTE;
    let server = Server::start_in(folder, &config);
    let open = || {
        let mut h2 = H2::open(&server, Over::Tls);
        h2.wire.patience(Duration::from_secs(100));
        let id = h2.ask("POST", "/run/reads", &[], false);
        (h2, id)
    };
    let send_begin_of_frame = |h2: &mut H2, id| {
        let mut bytes = Vec::new();
        frame::header(&mut bytes, 1000, frame::DATA, frame::END_STREAM, id);
        bytes.extend_from_slice(b"0123456789");
        h2.wire.send(bytes);
    };
    let (mut live, live_id) = open();
    send_begin_of_frame(&mut live, live_id);
    let (mut refused, refused_id) = open();
    refused.data(refused_id, &[b'x'; 1001], false);
    assert_eq!(refused.response(refused_id).status, 413);
    send_begin_of_frame(&mut refused, refused_id);
    assert_eq!(live.response(live_id).status, 408);
    let reset = refused.until(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (refused_id, 0));
}

/// Checks that content counts for `body_bytes` even if the content comes before the handler's call.
#[test]
fn content_during_a_login_is_bounded_over_http2() {
    let folder = folder(&[("reads", &format!("cat > /dev/null\n{PLAIN}"))]);
    // A hash of "open sesame" that is slow to check.
    let user = "ant:$2b$10$nSB0DrjYQ0dAEUIB9xDSS.Je0gXeV54V.jgF0hX33wgG1INXwoheG\n";
    folder.write("users", user);
    let limits = "limits = { body_bytes = 1000 }";
    let site = site_table("http = \"serve\"\n");
    let config = server_table(limits) + &site + ROUTE + "users = \"users\"\n";
    let server = Server::start_in(folder, &config);
    let login = ("authorization", "Basic YW50Om9wZW4gc2VzYW1l");
    // The password of the second request is known, so its call begins at once.
    for _ in 0..2 {
        let mut h2 = H2::open(&server, Over::Tls);
        let block = H2::block(&[
            (":method", "POST"),
            (":scheme", "https"),
            (":path", "/run/reads"),
            (":authority", "localhost"),
            login,
        ]);
        let mut bytes = Vec::new();
        frame::header(
            &mut bytes,
            block.len(),
            frame::HEADERS,
            frame::END_HEADERS,
            1,
        );
        bytes.extend_from_slice(&block);
        frame::header(&mut bytes, 10_000, frame::DATA, frame::END_STREAM, 1);
        bytes.extend_from_slice(&[b'x'; 10_000]);
        h2.wire.send(bytes);
        assert_eq!(h2.response(1).status, 413);
    }
}

/// Checks that a wrong password is refused with 401, for any length of the content.
#[test]
fn a_wrong_password_gets_a_401_at_any_body_length() {
    for page in ["", "errors = { 401 = \"error.html\" }\n"] {
        let folder = folder(&[("deaf", PLAIN)]);
        folder.write("users", "ant:$1$salt$nobody.knows.this.one.\n");
        let site = format!("http = \"serve\"\n{page}");
        let config = server_table("") + &site_table(&site) + ROUTE + "users = \"users\"\n";
        let server = Server::start_in(folder, &config);
        let mut h2 = H2::open(&server, Over::Tls);
        let fields = [
            ("authorization", "Basic YW50Ondyb25n"),
            ("content-length", "2000000"),
        ];
        let id = h2.ask("POST", "/run/deaf", &fields, false);
        let got = h2.response(id);
        assert_eq!(got.status, 401, "{got:?}");
        assert_eq!(got.text() == PAGE, !page.is_empty(), "{got:?}");
        #[cfg(feature = "http3")]
        {
            let login = "authorization:Basic YW50OnVua25vd24=";
            let scene = ["withheld", "/run/deaf", "2000000", login];
            let said = crate::h3::run_scenario(&server, &scene);
            assert!(said.starts_with("401 "), "{said}");
            assert_eq!(said.contains("our own page"), !page.is_empty(), "{said}");
        }
    }
}

#[test]
fn a_full_queue_uses_the_error_page_of_the_site() {
    // The script runs until a file exists.
    let wait = format!("echo $$ >> pids\nwhile [ ! -e go ]; do sleep 0.05; done\n{PLAIN}");
    let site = "http = \"serve\"\nerrors = { 503 = \"error.html\" }\n";
    let limits = "limits = { scripts = 1, script_queue = 1 }";
    let config = server_table(limits) + &site_table(site) + ROUTE;
    let server = Server::start_in(folder(&[("a", &wait)]), &config);
    let mut wires = [(); 3].map(|()| Wire::plain(&server));
    for wire in &mut wires {
        wire.send("GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    server
        .output
        .wait_for("a refusal", |line| line.contains(" rule=R714"));
    server.folder.write("scripts/go", "");
    let responses = wires.map(|mut wire| wire.response("GET"));
    let refused: Vec<_> = responses.iter().filter(|it| it.status == 503).collect();
    assert_eq!(refused.len(), 1, "{responses:?}");
    assert_eq!(refused[0].text(), PAGE);
    assert_eq!(refused[0].field("retry-after"), Some("1"));
}

const FIELDS: &str = "http = \"serve\"\nhsts = true\nindex = [\"index.sh\"]\nheaders = [\n\
    { files = \"*\", set = { \"X-All\" = \"FIRST\", Server = \"ants\", Vary = \"X-Y\", \
    \"X-Own\" = \"ours\" } },\n\
    { files = \"*.sh\", set = { \"X-Kind\" = \"script\" } },\n\
    { files = \"/run/**\", set = { \"X-Where\" = \"run\", \"Content-Language\" = \"en\" } },\n\
    { files = \"*.html\", set = { \"X-Kind\" = \"page\" } },\n]\n";

fn fields_config(first: &str, cache: &str) -> String {
    let shell = tool("sh").display().to_string();
    server_table("")
        + &site_table(&FIELDS.replace("FIRST", first))
        + &format!(
            "[[site.route]]\npath = \"/\"\ninterpreter = {{ \".sh\" = \"{shell}\" }}\n{cache}"
        )
        + &format!("[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n{cache}")
        + &format!("[[site.route]]\npath = \"/page\"\ntest = \"page\"\n{cache}")
}

#[test]
fn fields_of_the_site_are_on_responses_of_handlers() {
    let folder = folder(&[
        (
            "a.cgi",
            "printf 'Content-Type: text/plain\\nX-Own: theirs\\nVary: X-Z\\n\\n'; echo a",
        ),
        ("same", "printf 'Status: 304\\nETag: \"t\"\\n\\n'"),
        ("to-page", "printf 'Location: /page.html\\n\\n'"),
        ("to-script", "printf 'Location: /sub/b.sh\\n\\n'"),
    ]);
    folder.write("public/page.html", "page");
    folder.write("public/index.sh", format!("{PLAIN}echo index"));
    folder.write("public/sub/b.sh", format!("{PLAIN}echo b"));
    let server = Server::start_in(folder, &fields_config("one", ""));
    for (path, status, kind, place) in [
        ("/page.html", 200, Some("page"), None),
        ("/run/a.cgi", 200, None, Some("run")),
        ("/run/a.cgi/more", 200, None, Some("run")),
        ("/run/same", 304, None, Some("run")),
        // Fields of the target page.
        ("/run/to-page", 200, Some("page"), None),
        ("/run/to-script", 200, Some("script"), None),
        // Fields of the executed file.
        ("/", 200, Some("script"), None),
        ("/sub/b.sh", 200, Some("script"), None),
        ("/sub/b.sh/x.html", 200, Some("script"), None),
    ] {
        for (what, got) in ask_all(&server, "GET", path) {
            assert_eq!(got.status, status, "{what}: {got:?}");
            for (name, value) in [
                ("x-all", Some("one")),
                ("server", Some("ants")),
                ("x-own", Some("ours")),
                ("x-kind", kind),
                ("x-where", place),
                (
                    "content-language",
                    place.filter(|_| status == 200).map(|_| "en"),
                ),
            ] {
                assert_eq!(got.field(name), value, "{what}: {got:?}");
            }
            let is_secure = !what.ends_with("Plain");
            let hsts = got.field("strict-transport-security");
            assert_eq!(hsts.is_some(), is_secure, "{what}");
            let vary = got.fields.iter().filter(|(name, value)| {
                name.eq_ignore_ascii_case("vary") && !value.eq_ignore_ascii_case("accept-encoding")
            });
            let vary: Vec<&str> = vary.map(|(_, value)| value.as_str()).collect();
            let expected: &[&str] = if path.starts_with("/run/a") {
                &["X-Z", "X-Y"]
            } else {
                &["X-Y"]
            };
            assert_eq!(vary, expected, "{what}: {got:?}");
        }
    }
    #[cfg(feature = "http3")]
    for line in ask_h3(&server, &["GET /run/a.cgi", "GET /", "GET /run/to-page"]) {
        for field in [
            "[\"x-all\", \"one\"]",
            "[\"server\", \"ants\"]",
            "[\"x-own\", \"ours\"]",
        ] {
            assert_eq!(line.matches(field).count(), 1, "{line}");
        }
        assert!(!line.contains("anthill"), "{line}");
    }
}

#[test]
fn fields_of_the_site_are_on_stored_pages() {
    let cache = "cache = { seconds = 1000 }\n";
    let folder = folder(&[("a.cgi", PLAIN)]);
    folder.write("public/index.sh", PLAIN);
    let server = Server::start_in(folder, &fields_config("one", cache));
    for first in ["one", "two"] {
        server.reload(&fields_config(first, cache));
        for path in ["/page?f=ETag:%22t%22&f=X-Own:theirs", "/run/a.cgi", "/"] {
            for nth in 0..2 {
                for (what, got) in ask_all(&server, "GET", path) {
                    let what = format!("{what}, {nth}: {got:?}");
                    assert_eq!(got.status, 200, "{what}");
                    assert_eq!(got.field("x-all"), Some(first), "{what}");
                    assert_eq!(got.field("x-own"), Some("ours"), "{what}");
                    assert_eq!(got.field("server"), Some("ants"), "{what}");
                    let said = got.field("cache-status").unwrap_or_default();
                    assert!(nth == 0 || said.contains("hit"), "{what}");
                }
            }
        }
        // A 304 for a stored page has the same site fields as a full response.
        let known = "If-None-Match: \"t\"\r\n";
        let path = "/page?f=ETag:%22t%22&f=X-Own:theirs";
        let got = Wire::plain(&server).get(path, known);
        assert_eq!((got.status, got.field("x-all")), (304, Some(first)));
        // A 304 after a call of the handler has the site fields too.
        let path = format!("/page/{first}?f=ETag:%22t%22&f=X-Own:theirs");
        let got = Wire::plain(&server).get(&path, known);
        assert_eq!((got.status, got.field("x-all")), (304, Some(first)));
        assert_eq!(got.field("server"), Some("ants"));
    }
}

/// Checks the operator's fields in responses. Each row names the path with the fields of the response: the
/// requested path for a handler, the file for a script, the target of an internal redirect. `Link` values
/// accumulate, so a second application of the fields shows as a second line. Each request is sent twice:
/// the second response of a cached route comes from the page cache.
#[test]
fn operator_fields_are_applied_once_and_by_the_right_path() {
    let shell = tool("sh").display().to_string();
    let folder = folder(&[
        ("a", &format!("{PLAIN}echo a")),
        (
            "fails",
            "printf 'Status: 500\\nContent-Type: text/plain\\n\\nown'",
        ),
        ("to-page", "printf 'Location: /page.html\\n\\n'"),
        ("to-app", "printf 'Location: /app.sh\\n\\n'"),
        ("to-a", "printf 'Location: /run/a\\n\\n'"),
        ("to-short", "printf 'Location: /short/a\\n\\n'"),
        ("to-cached", "printf 'Location: /cached/a\\n\\n'"),
        ("twice", "printf 'Location: /run/to-app\\n\\n'"),
        ("to-none", "printf 'Location: /run/none\\n\\n'"),
    ]);
    folder.write("public/page.html", "page");
    folder.write("public/app.sh", format!("{PLAIN}echo app"));
    folder.write("public/kept/app.sh", format!("{PLAIN}echo kept"));
    let rule = |name: &str, files: &str| {
        format!(
            "{{ files = \"{files}\", set = {{ \"X-Place\" = \"{name}\", Link = \"</{name}>\" }} }},\n"
        )
    };
    let rules: String = ["run", "cached", "short", "quick", "about", "hint"]
        .map(|name| rule(name, &format!("/{name}/**")))
        .concat();
    let site = format!(
        "http = \"serve\"\nheaders = [\n{rules}{}{}{}]\n",
        rule("app", "/app.sh"),
        rule("kept", "/kept/app.sh"),
        rule("page", "/page.html")
    );
    let cache = "cache = { seconds = 1000 }\n";
    let interpreter = format!("interpreter = {{ \".sh\" = \"{shell}\" }}\n");
    let config = server_table("")
        + &site_table(&site)
        + ROUTE
        + &format!("[[site.route]]\npath = \"/cached\"\ncgi = \"scripts\"\n{cache}")
        + &format!("[[site.route]]\npath = \"/\"\n{interpreter}")
        + &format!("[[site.route]]\npath = \"/kept\"\n{interpreter}{cache}")
        + "[[site.route]]\npath = \"/short/\"\nrewrite = \"/run/\"\n\
           [[site.route]]\npath = \"/quick/\"\nrewrite = \"/cached/\"\n\
           [[site.route]]\npath = \"/about/\"\nrewrite = \"/app.sh\"\n\
           [[site.route]]\npath = \"/hint/\"\nrewrite = \"/kept/app.sh\"\n";
    let server = Server::start_in(folder, &config);
    for (path, status, place, is_cached) in [
        ("/run/a", 200, Some("run"), false),
        ("/run/a/more", 200, Some("run"), false),
        ("/run/fails", 500, Some("run"), false),
        ("/cached/a", 200, Some("cached"), true),
        ("/short/a", 200, Some("short"), false),
        ("/quick/a", 200, Some("quick"), true),
        ("/app.sh", 200, Some("app"), false),
        ("/app.sh/page.html", 200, Some("app"), false),
        ("/about/x", 200, Some("app"), false),
        ("/kept/app.sh", 200, Some("kept"), true),
        ("/hint/x", 200, Some("kept"), true),
        ("/run/to-page", 200, Some("page"), false),
        ("/run/to-app", 200, Some("app"), false),
        ("/run/to-a", 200, Some("run"), false),
        ("/run/to-short", 200, Some("short"), false),
        ("/run/to-cached", 200, Some("cached"), true),
        ("/run/twice", 200, Some("app"), false),
        ("/short/to-app", 200, Some("app"), false),
        ("/cached/to-app", 200, Some("app"), true),
        ("/cached/to-cached", 200, Some("cached"), true),
        // The server's own refusals have no fields of a handler.
        ("/run/none", 404, None, false),
        ("/run/to-none", 404, None, false),
    ] {
        for nth in 0..2 {
            for (what, got) in ask_all(&server, "GET", path) {
                let what = format!("{what}, {nth}: {got:?}");
                let all = |name: &str| -> Vec<&str> {
                    let is_it = |field: &&(String, String)| field.0.eq_ignore_ascii_case(name);
                    let found = got.fields.iter().filter(is_it);
                    found.map(|(_, value)| value.as_str()).collect()
                };
                assert_eq!(got.status, status, "{what}");
                let places: Vec<&str> = place.into_iter().collect();
                assert_eq!(all("x-place"), places, "{what}");
                let link = place.map(|place| format!("</{place}>"));
                let links: Vec<&str> = link.as_deref().into_iter().collect();
                assert_eq!(all("link"), links, "{what}");
                let is_hit = all("cache-status").iter().any(|it| it.contains("; hit"));
                assert!(nth == 0 || is_hit == is_cached, "{what}");
            }
        }
    }
}

/// Checks that a handler's own lifetime takes precedence over the lifetime of the site, and that
/// list-valued fields are combined.
#[test]
fn fields_of_the_site_do_not_replace_lifetimes_of_handlers() {
    let asked_again = "if [ \"$HTTP_IF_NONE_MATCH\" ]; then\n\
        printf 'Status: 304\\nETag: \"t\"\\n\\n'; exit\nfi\n\
        printf 'Content-Type: text/plain\\nETag: \"t\"\\nVary: Accept-Language\\n'\n\
        printf 'Cache-Control: max-age=0, stale-if-error=1000\\nLink: </b>\\n\\n'\n\
        echo \"<$HTTP_ACCEPT_LANGUAGE>\"";
    let says = |fields: &str| format!("printf 'Content-Type: text/plain\\n{fields}\\n'; echo $$");
    let folder = folder(&[
        ("again", asked_again),
        ("own", &says("Cache-Control: private\\n")),
        ("past", &says("Expires: 0\\n")),
        ("none", &says("")),
        ("cookies", &says("Set-Cookie: a=1\\nSet-Cookie: b=2\\n")),
    ]);
    let site = "http = \"serve\"\nheaders = [\n\
        { files = \"*\", set = { Vary = \"X-Y\", Link = \"</a>\", \
        \"Cache-Control\" = \"public, max-age=3600\" } },\n\
        { files = \"cookies\", set = { \"Set-Cookie\" = \"c=3\" } },\n]\n";
    let config = server_table("") + &site_table(site) + ROUTE + "cache = true\n";
    let server = Server::start_in(folder, &config);
    let all = |got: &Response, name: &str| -> Vec<String> {
        let is_it = |field: &&(String, String)| field.0.eq_ignore_ascii_case(name);
        let found = got.fields.iter().filter(is_it);
        found.map(|(_, value)| value.clone()).collect()
    };
    let mut wire = Wire::plain(&server);
    for (language, said) in [
        ("en", "fwd=uri-miss"),
        // The second revalidation uses the fields updated by the first 304.
        ("en", "fwd=stale"),
        ("en", "fwd=stale"),
        ("de", "fwd=vary-miss"),
        ("de", "fwd=stale"),
        ("en", "fwd=stale"),
    ] {
        let got = wire.get("/run/again", &format!("Accept-Language: {language}\r\n"));
        assert_eq!((got.status, got.text()), (200, format!("<{language}>\n")));
        let status = got.field("cache-status").unwrap_or_default();
        assert!(status.contains(said), "{language}: {got:?}");
        assert_eq!(all(&got, "link"), ["</b>", "</a>"], "{got:?}");
        let mut vary = all(&got, "vary");
        // The server itself adds `Accept-Encoding`.
        vary.retain(|value| value != "Accept-Encoding");
        assert_eq!(vary, ["Accept-Language", "X-Y"], "{got:?}");
        let control = all(&got, "cache-control");
        assert_eq!(control, ["max-age=0, stale-if-error=1000"], "{got:?}");
    }
    for (path, control, is_kept) in [
        ("/run/own", Some("private"), false),
        ("/run/past", None, false),
        ("/run/none", Some("public, max-age=3600"), true),
    ] {
        let [first, again] = [(); 2].map(|()| wire.get(path, ""));
        assert_eq!(first.field("cache-control"), control, "{first:?}");
        assert_eq!(again.field("cache-control"), control, "{again:?}");
        assert_eq!(first.text() == again.text(), is_kept, "{path}: {again:?}");
    }
    for (what, got) in ask_all(&server, "GET", "/run/cookies") {
        assert_eq!(all(&got, "set-cookie"), ["a=1", "b=2", "c=3"], "{what}");
    }
}

const TELL: &str = "echo \"$SCRIPT_NAME|$PATH_INFO|$QUERY_STRING|$REQUEST_URI\"";

#[test]
fn a_query_goes_with_try_and_rewrite() {
    let shell = tool("sh").display().to_string();
    let start = |last: &str| {
        let tell = format!("{PLAIN}{TELL}");
        let folder = folder(&[("app", &tell)]);
        folder.write("public/app.sh", &tell);
        folder.write("public/page.html", "page");
        let site = format!("http = \"serve\"\ntry = [\"$path\", \"{last}\"]");
        let config = server_table("")
            + &site_table(&site)
            + &format!("[[site.route]]\npath = \"/\"\ninterpreter = {{ \".sh\" = \"{shell}\" }}\n")
            + ROUTE
            + "cache = { seconds = 1000 }\n\
               [[site.route]]\npath = \"/wiki/\"\nrewrite = \"/run/app?title=$rest&$query\"\n\
               [[site.route]]\npath = \"/own/\"\nrewrite = \"/app.sh?$query&q=$path\"\n\
               [[site.route]]\npath = \"/about\"\nrewrite = \"/app.sh?page=about\"\n\
               [[site.route]]\npath = \"/below/\"\nrewrite = \"/run/app/?x=$path\"\n\
               [[site.route]]\npath = \"/file\"\nrewrite = \"/page.html?x=1\"\n\
               [[site.route]]\npath = \"/same/\"\nrewrite = \"/run/app\"\n";
        Server::start_in(folder, &config)
    };
    let routes = [
        (
            "/wiki/A%20b&c/d?x=1",
            "/run/app||title=A%20b%26c/d&x=1|/wiki/A%20b&c/d?x=1\n",
        ),
        ("/wiki/A", "/run/app||title=A|/wiki/A\n"),
        ("/wiki/A?", "/run/app||title=A|/wiki/A?\n"),
        ("/own/a?x=1&y", "/app.sh||x=1&y&q=/own/a|/own/a?x=1&y\n"),
        ("/own/a", "/app.sh||q=/own/a|/own/a\n"),
        ("/about?x=1", "/app.sh||page=about|/about?x=1\n"),
        ("/below/a?x=1", "/run/app|/a|x=/below/a|/below/a?x=1\n"),
        ("/same/a?x=1", "/run/app||x=1|/same/a?x=1\n"),
        ("/file?y", "page"),
        ("/page.html?y", "page"),
        ("/run/app/more?y", "/run/app|/more|y|/run/app/more?y\n"),
        ("/app.sh?y", "/app.sh||y|/app.sh?y\n"),
    ];
    for (last, script) in [
        ("/run/app?q=$path&$query", "/run/app"),
        ("/app.sh?q=$path&$query", "/app.sh"),
    ] {
        let server = start(last);
        let by_try = [
            ("/no/such", format!("{script}||q=/no/such|/no/such\n")),
            ("/no/such?", format!("{script}||q=/no/such|/no/such?\n")),
            (
                "/no%2C/su%20ch?x=%20&y",
                format!("{script}||q=/no%2C/su%20ch&x=%20&y|/no%2C/su%20ch?x=%20&y\n"),
            ),
        ];
        let routes = routes.map(|(path, text)| (path, text.to_owned()));
        for (path, text) in by_try.into_iter().chain(routes) {
            for (what, got) in ask_all(&server, "GET", path) {
                assert_eq!((got.status, got.text()), (200, text.clone()), "{what}");
            }
        }
        #[cfg(feature = "http3")]
        {
            let lines = ask_h3(&server, &["GET /no/such?x", "GET /wiki/A?x"]);
            assert!(lines[0].contains("q=/no/such&x|/no/such?x"), "{lines:?}");
            assert!(lines[1].contains("|title=A&x|/wiki/A?x"), "{lines:?}");
        }
        // A page is stored under its requested path.
        let mut wire = Wire::plain(&server);
        for (path, is_kept) in [("/wiki/A", true), ("/wiki/A?z", false), ("/wiki/B", false)] {
            let got = wire.get(path, "");
            let said = got.field("cache-status").unwrap_or_default();
            assert_eq!(said.contains("hit"), is_kept, "{path}: {got:?}");
        }
    }
    // A script of the site, with the requested path appended to the script's name.
    for (last, query) in [
        ("/app.sh$path?$query&q=1", "x=%20&q=1"),
        ("/app.sh$path", "x=%20"),
    ] {
        let folder = folder(&[]);
        folder.write("public/app.sh", format!("{PLAIN}{TELL}"));
        folder.write("public/sub/page.html", "page");
        folder.write("public/.hidden", "secret");
        let site =
            format!("http = \"serve\"\nindex = [\"none.html\"]\ntry = [\"$path\", \"{last}\"]");
        let config = server_table("")
            + &site_table(&site)
            + &format!("[[site.route]]\npath = \"/\"\ninterpreter = {{ \".sh\" = \"{shell}\" }}\n")
            + "[[site.route]]\npath = \"/app.sh/shut\"\nallow = []\n";
        let server = Server::start_in(folder, &config);
        for path in ["/no/such", "/", "/sub/", "/sub/none"] {
            for (what, got) in ask_all(&server, "GET", &format!("{path}?x=%20")) {
                let told = format!("/app.sh|{path}|{query}|{path}?x=%20\n");
                assert_eq!((got.status, got.text()), (200, told), "{what}");
            }
        }
        for (path, status) in [
            ("/sub/page.html", 200),
            ("/.hidden", 404),
            ("/shut/it", 403),
        ] {
            let got = Wire::plain(&server).get(path, "");
            assert_eq!(got.status, status, "{path}: {got:?}");
            assert!(!got.text().contains("app.sh"), "{path}: {got:?}");
        }
    }
    // A script of another route, with the name of a script among the site's files.
    let folder = folder(&[("app.sh", &format!("{PLAIN}{TELL}"))]);
    let site = "http = \"serve\"\ntry = [\"$path\", \"/run/app.sh$path\"]";
    let config = server_table("")
        + &site_table(site)
        + &format!("[[site.route]]\npath = \"/\"\ninterpreter = {{ \".sh\" = \"{shell}\" }}\n")
        + ROUTE;
    let server = Server::start_in(folder, &config);
    let got = Wire::plain(&server).get("/no/such", "");
    assert_eq!(got.text(), "/run/app.sh|/no/such||/no/such\n");
    // A query on a file's path is ignored.
    let server = start("/page.html?x=$path");
    assert_eq!(Wire::plain(&server).get("/none", "").text(), "page");
}

#[test]
fn methods_of_webdav_reach_handlers() {
    let tell = format!("{PLAIN}echo \"$REQUEST_METHOD $CONTENT_LENGTH\"; cat");
    let config = server_table("") + &site_table("http = \"serve\"") + ROUTE;
    let server = Server::start_in(folder(&[("dav", &tell)]), &config);
    for method in [
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "COPY",
        "MOVE",
        "LOCK",
        "UNLOCK",
        "REPORT",
        "SEARCH",
        "ACL",
        "BIND",
        "MKCALENDAR",
        "VERSION-CONTROL",
    ] {
        for (what, got) in ask_all(&server, method, "/run/dav") {
            let expected = (200, format!("{method} \n"));
            assert_eq!((got.status, got.text()), expected, "{what}");
        }
        for (what, got) in ask_all(&server, method, "/") {
            assert_eq!(got.status, 405, "{what}");
            assert_eq!(got.field("allow"), Some("GET, HEAD, OPTIONS"), "{what}");
        }
    }
    let mut wire = Wire::plain(&server);
    for _ in 0..2 {
        wire.send("PROPFIND /run/dav HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n<a>");
        assert_eq!(wire.response("PROPFIND").text(), "PROPFIND 3\n<a>");
    }
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("REPORT", "/run/dav", &[], false);
    h2.data(id, b"<a>", true);
    assert_eq!(h2.response(id).text(), "REPORT 3\n<a>");
    for (what, got) in ask_all(&server, "BREW", "/run/dav") {
        assert_eq!(
            (got.status, got.text().as_str()),
            (200, "BREW \n"),
            "{what}"
        );
    }
    for method in ["propfind", "PRI", "get"] {
        for (what, got) in ask_all(&server, method, "/run/dav") {
            assert_eq!(got.status, 501, "{what}");
        }
    }
    #[cfg(feature = "http3")]
    for (line, expected) in ask_h3(&server, &["PROPFIND /run/dav", "MKCOL /", "BREW /"])
        .iter()
        .zip(["PROPFIND", "\"status\": 405", "\"status\": 501"])
    {
        assert!(line.contains(expected), "{line}");
    }
}
