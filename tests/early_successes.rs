//! Responses below 300 that are complete before the content of their request. curl up to 7.88 goes on to send behind
//! such a response and handles no frame of HTTP/2 any more, so it once waited for a window for ever.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use wire::h2::frame;

use crate::fastcgi::Backend;
use crate::support::h2::H2;
use crate::support::wire::BOTH;
use crate::support::{Folder, Server, run, server_table, site_table};

/// Length of the content, more than the windows of HTTP/2 and the buffers of the kernel hold.
const CONTENT_BYTES: usize = 12_000_000;

/// Answer of a member, and what the member does afterwards with the connection.
#[derive(Copy, Clone)]
enum Behind {
    ReadsNothing,
    ReadsSlowly,
    Closes,
}

/// Method, path, status, and number of content bytes of the responses.
const SUCCESSES: [(&str, &str, u16, usize); 11] = [
    ("PUT", "/length/x", 200, 5),
    ("PUT", "/slow/x", 200, 5),
    ("PUT", "/closes/x", 200, 5),
    ("PUT", "/chunked/x", 200, 5),
    ("PUT", "/empty/x", 201, 0),
    ("PUT", "/none/x", 204, 0),
    ("PUT", "/cgi/open", 200, 5),
    ("PUT", "/cgi/length", 200, 5),
    ("PUT", "/cgi/reads", 200, 5),
    ("PUT", "/early.php", 200, 5),
    ("GET", "/page.txt", 200, 7),
];

/// Starts a member that answers each request after the head. Returns its port.
fn member(answer: &'static str, behind: Behind) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer_early(stream, answer, behind));
        }
    });
    port
}

/// Reads the head of a request byte by byte, and sends the answer.
fn answer_early(mut stream: TcpStream, answer: &str, behind: Behind) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    stream.write_all(answer.as_bytes()).ok()?;
    match behind {
        Behind::Closes => {}
        Behind::ReadsNothing => thread::sleep(Duration::from_secs(600)),
        Behind::ReadsSlowly => {
            while stream.read(&mut [0; 1_000]).ok()? > 0 {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
    None
}

const CHUNKED: &str =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n0\r\n\r\n";
const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly";
const EMPTY: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
const NONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// Starts a server with the paths of [`SUCCESSES`], and the FastCGI server for one of them.
fn server() -> (Server, Backend) {
    let folder = Folder::new().with("public/page.txt", "a page\n").with(
        "public/early.php",
        "<?php header('Content-Length: 5'); echo 'early';",
    );
    let length = "Content-Type: text/plain\\nContent-Length: 5";
    folder.program(
        "scripts/open",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nearly'\n",
    );
    folder.program(
        "scripts/length",
        &format!("#!/bin/sh\nprintf '{length}\\n\\nearly'\n"),
    );
    folder.program(
        "scripts/reads",
        &format!("#!/bin/sh\nprintf '{length}\\n\\nearly'\ncat > /dev/null\n"),
    );
    let backend = Backend::php(&folder, 1);
    let mut config = server_table("h2c = true");
    config += &site_table("http = \"serve\"");
    for (path, answer, behind) in [
        ("/length/", LENGTH, Behind::ReadsNothing),
        ("/slow/", LENGTH, Behind::ReadsSlowly),
        ("/closes/", LENGTH, Behind::Closes),
        ("/chunked/", CHUNKED, Behind::ReadsNothing),
        ("/empty/", EMPTY, Behind::ReadsNothing),
        ("/none/", NONE, Behind::ReadsNothing),
    ] {
        let port = member(answer, behind);
        config +=
            &format!("[[site.route]]\npath = \"{path}\"\nproxy = \"http://127.0.0.1:{port}\"\n");
    }
    config += "[[site.route]]\npath = \"/cgi/\"\ncgi = \"scripts\"\n";
    config += "[[site.route]]\npath = \"/\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\n";
    (Server::start_in(folder, &config), backend)
}

#[test]
fn curl_ends_every_upload_over_every_version() {
    let (server, _backend) = server();
    server.folder.write("body", vec![0; CONTENT_BYTES]);
    let file = server.folder.path("body").display().to_string();
    let mut wrong = String::new();
    let (http, https) = (server.http(""), server.https(""));
    for (version, root) in [
        ("--http1.1", &http),
        ("--http1.1", &https),
        ("--http2", &https),
        ("--http2-prior-knowledge", &http),
    ] {
        for fields in [
            &["Expect:"][..],
            &["Expect: 100-continue"],
            &["Expect:", "Transfer-Encoding: chunked"],
        ] {
            for (method, path, status, bytes) in SUCCESSES {
                let url = format!("{root}{path}");
                let mut arguments = vec![version, "-X", method, "-T", &file, "-o", "/dev/null"];
                arguments.extend([
                    "-w",
                    "%{http_code} %{size_download}",
                    "--max-time",
                    "20",
                    &url,
                ]);
                arguments.extend(fields.iter().flat_map(|field| ["-H", *field]));
                let ran = server.curl(&arguments);
                let told = String::from_utf8_lossy(&ran.stdout);
                let got = told.split_once(' ');
                let is_whole = got.is_some_and(|(code, size)| {
                    code == status.to_string() && size == bytes.to_string()
                });
                if !is_whole || !ran.success {
                    let what = ran.errors();
                    let _ = writeln!(wrong, "{version} {fields:?} {path}: {told}: {what}");
                }
            }
        }
    }
    assert_eq!(wrong, "");
}

/// curl with `--anyauth` sends the content behind the 401 as well, before it repeats the request.
#[test]
fn curl_repeats_an_upload_with_a_login() {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new().with("users", format!("ant:{}\n", hash.text().trim()));
    let port = member(LENGTH, Behind::ReadsNothing);
    let route = format!(
        "[[site.route]]\npath = \"/\"\nusers = \"users\"\nproxy = \"http://127.0.0.1:{port}\"\n"
    );
    let config = server_table("") + &site_table("http = \"serve\"") + &route;
    let server = Server::start_in(folder.with("public/page.txt", ""), &config);
    server.folder.write("body", vec![0; CONTENT_BYTES]);
    let file = server.folder.path("body").display().to_string();
    for version in ["--http1.1", "--http2"] {
        let mut arguments = vec![version, "--anyauth", "-u", "ant:crumb", "-H", "Expect:"];
        let url = server.https("/x");
        arguments.extend(["-T", &file, "-o", "/dev/null", "-w", "%{http_code}", &url]);
        let ran = server.curl(&arguments);
        assert!(ran.success, "{version}: {}", ran.errors());
        assert_eq!(ran.text(), "200", "{version}");
    }
}

/// The response of a member, a script or a file waits for no content.
#[test]
fn the_response_comes_before_the_content() {
    let (server, _backend) = server();
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        for (method, path, status, bytes) in SUCCESSES {
            let length = ("content-length", "3000000");
            let id = h2.ask(method, path, &[length], false);
            for bytes in [16_384, 16_384, 16_384, 16_383] {
                h2.data(id, &vec![b'x'; bytes], false);
            }
            // A proxied request begins with 64 KiB of the content.
            let mut has_window = false;
            while !has_window {
                let frame = h2.next().expect("a frame");
                has_window = frame.kind == frame::WINDOW_UPDATE && frame.stream == id;
                h2.record_frame(&frame);
            }
            h2.data(id, b"x", false);
            if path == "/cgi/reads" || path == "/early.php" {
                // The script goes on to read, and php-fpm reads the content before a script runs.
                continue;
            }
            let response = h2.response(id);
            assert_eq!(response.status, status, "{over:?} {path}");
            assert!(response.whole, "{over:?} {path}");
            assert_eq!(response.body.len(), bytes, "{over:?} {path}");
        }
        assert_eq!(h2.get("/page.txt").text(), "a page\n");
    }
}
