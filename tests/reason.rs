//! The reason phrase of a script in the status line of HTTP/1.1 (RFC 9112 §4), for CGI, FastCGI and
//! SCGI.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::fastcgi::Backend;
use crate::support::h2::H2;
use crate::support::wire::Over;
use crate::support::{Folder, Server, eventually, lossy, server_table, site_table};

const PATIENCE: Duration = Duration::from_secs(60);
const KEPT: &str = "{ seconds = 1000, disk = true }";

fn config(routes: &str) -> String {
    server_table("h2c = true\n") + &site_table("http = \"serve\"") + routes
}

fn folder() -> Folder {
    Folder::new().with("public/index.html", "<p>hello</p>\n")
}

/// Sends a request and returns the first line of the response.
fn first_line(server: &Server, method: &str, path: &str, fields: &str) -> String {
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    let said = lossy(&server.http_raw(request.as_bytes()));
    said.split_once("\r\n")
        .map_or(&*said, |(line, _)| line)
        .to_owned()
}

fn get(server: &Server, path: &str) -> String {
    first_line(server, "GET", path, "")
}

#[test]
fn programs_set_the_reason_phrase() {
    let folder = folder();
    let long = "y".repeat(300);
    let heads = [
        ("own", "Status: 404 Something else\\n", "404 Something else"),
        (
            "fail",
            "Status: 500 Intentional Breakage\\n",
            "500 Intentional Breakage",
        ),
        ("latin", "Status: 200 caf\\351\\n", "200 caf\u{fffd}"),
        ("unknown", "Status: 299 Fine so far\\n", "299 Fine so far"),
        ("line", "HTTP/1.1 403 Keep out\\n", "403 Keep out"),
        ("none", "Status: 404\\n", "404 Not Found"),
        ("control", "HTTP/1.1 404 a\\001b\\n", "404 Not Found"),
        ("long", &format!("Status: 404 {long}\\n"), "404 Not Found"),
        ("split", "Status: 404 a\\rX-Forged: b\\n", "502 Bad Gateway"),
    ];
    for (name, head, _) in &heads {
        let text = format!("#!/bin/sh\nprintf '{head}Content-Type: text/plain\\n\\n'\necho body\n");
        folder.program(&format!("scripts/{name}"), &text);
        // The head comes long before the body, so the server streams the response.
        let text = text.replace("echo body", "sleep 0.3; yes | head -c 300000");
        folder.program(&format!("scripts/{name}-stream"), &text);
    }
    let server = Server::start_in(
        folder,
        &config("[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n"),
    );
    for (name, _, expected) in &heads {
        for kind in ["", "-stream"] {
            let path = format!("/run/{name}{kind}");
            let expected = format!("HTTP/1.1 {expected}");
            assert_eq!(get(&server, &path), expected, "{path}");
            assert_eq!(first_line(&server, "HEAD", &path, ""), expected, "{path}");
        }
    }
    // HTTP/2 has no reason phrase (RFC 9113 §8.3.2).
    let response = H2::open(&server, Over::Plain).get("/run/own");
    assert_eq!((response.status, response.text().as_str()), (404, "body\n"));
}

#[test]
fn php_sets_the_reason_phrase() {
    let folder = folder()
        .with(
            "public/own.php",
            "<?php header('HTTP/1.1 404 Something else');",
        )
        .with("public/plain.php", "<?php http_response_code(404);");
    let _backend = Backend::php(&folder, 1);
    let route = "[[site.route]]\npath = \"/\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\n";
    let server = Server::start_in(folder, &config(route));
    assert_eq!(get(&server, "/own.php"), "HTTP/1.1 404 Something else");
    assert_eq!(get(&server, "/plain.php"), "HTTP/1.1 404 Not Found");
}

#[test]
fn scgi_backends_set_the_reason_phrase() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            // A request without a body arrives in one piece.
            let _ = stream.read(&mut [0; 16 * 1024]);
            let _ =
                stream.write_all(b"Status: 409 Not so fast\r\nContent-Type: text/plain\r\n\r\nno");
        }
    });
    let route = format!("[[site.route]]\npath = \"/app/\"\nscgi = \"{address}\"\n");
    let server = Server::start_in(folder(), &config(&route));
    assert_eq!(get(&server, "/app/"), "HTTP/1.1 409 Not so fast");
}

/// A stored page keeps the script's phrase in its own status line; a 304 or a 206 of the page has the
/// phrase of the IANA registry.
#[test]
fn stored_pages_keep_the_reason_phrase() {
    let folder = folder();
    let page = "#!/bin/sh\nprintf 'Status: 200 As good as new\\nContent-Type: text/plain\\nETag: \"a\"\\n\\n'\n\
        seq 2000\n";
    folder.program("scripts/page", page);
    folder.program(
        "scripts/gone",
        "#!/bin/sh\nprintf 'Status: 410 Moved out\\nContent-Type: text/plain\\n\\ngone\\n'\n",
    );
    let config = config(&format!(
        "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\ncache = {KEPT}\n"
    ));
    let mut server = Server::start_in(folder, &config);
    let (own, gone) = ("HTTP/1.1 200 As good as new", "HTTP/1.1 410 Moved out");
    let raw = |path: &str, fields: &str| {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
        lossy(&server.http_raw(request.as_bytes()))
    };
    for (path, line) in [("/run/page", own), ("/run/gone", gone)] {
        eventually("a page that is kept", || {
            let said = raw(path, "");
            assert!(said.starts_with(line), "{said}");
            said.contains("Cache-Status: anthill; hit").then_some(())
        });
    }
    let calls = server.counter("cache_calls");
    let with = |server: &Server, fields: &str| first_line(server, "GET", "/run/page", fields);
    assert_eq!(first_line(&server, "HEAD", "/run/page", ""), own);
    assert_eq!(
        with(&server, "If-None-Match: \"a\"\r\n"),
        "HTTP/1.1 304 Not Modified"
    );
    assert_eq!(
        with(&server, "Range: bytes=0-3\r\n"),
        "HTTP/1.1 206 Partial Content"
    );
    assert_eq!(H2::open(&server, Over::Plain).get("/run/page").status, 200);
    // The compressed page is made on its first request.
    eventually("a compressed page", || {
        let said = raw("/run/page", "Accept-Encoding: gzip\r\n");
        assert!(said.starts_with(own), "{said}");
        said.contains("Content-Encoding: gzip").then_some(())
    });
    assert_eq!(server.counter("cache_calls"), calls);
    assert_eq!(server.ask(&["stop"]).code, Some(0));
    assert_eq!(server.wait(PATIENCE), Some(0));
    let server = Server::start_in(server.into_folder(), &config);
    assert_eq!(get(&server, "/run/page"), own);
    assert_eq!(get(&server, "/run/gone"), gone);
    assert_eq!(server.counter("cache_calls"), 0);
}
