//! Compression of what members and scripts answer.

use std::io::Read;
use std::process::Command;

use flate2::read::GzDecoder;

use crate::support::member::{Answer, Member, Received};
use crate::support::wire::{Response, Wire};
use crate::support::{Folder, Server, finish, server_table, site_table};

/// Returns a text of JSON like that of an interface.
fn json(bytes: usize) -> String {
    let mut text = String::from("[");
    let mut nth = 0u64;
    while text.len() < bytes {
        nth += 1;
        let price = nth.wrapping_mul(2_654_435_761) % 100_000;
        text.push_str(&format!(
            "{{\"id\":{nth},\"name\":\"Item {}\",\"price\":{price},\"tags\":[\"new\",\"sale\"]}},\n",
            price % 97
        ));
    }
    text.truncate(bytes);
    text
}

/// Returns a response of a member with further fields.
fn answer(fields: &str, content: &str) -> Answer {
    let length = content.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n");
    Answer::Keep([head.as_bytes(), content.as_bytes()].concat())
}

/// Starts a member with a text. The tag of the text is `"v1"`.
fn member(content: String) -> Member {
    Member::start(move |request: &Received| {
        let knows = request.fields("if-none-match").join(", ");
        if knows.split(", ").any(|tag| tag == "\"v1\"") {
            return Answer::Keep(b"HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n".to_vec());
        }
        answer(
            "Content-Type: application/json\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\n",
            &content,
        )
    })
}

fn config(routes: &str) -> String {
    format!(
        "{}{}{routes}",
        server_table(""),
        site_table("http = \"serve\"\n")
    )
}

fn proxy(member: &Member, path: &str, keys: &str) -> String {
    let url = member.url();
    format!("[[site.route]]\npath = \"{path}\"\nproxy = \"{url}\"\n{keys}\n")
}

fn gunzip(bytes: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(bytes)
        .read_to_string(&mut text)
        .expect("gzip");
    text
}

fn assert_gzip(response: &Response, content: &str) {
    let fields = (response.field("content-encoding"), response.field("vary"));
    assert_eq!(
        fields,
        (Some("gzip"), Some("Accept-Encoding")),
        "{response:?}"
    );
    assert_eq!(gunzip(&response.body), content);
}

const GZIP: &str = "Accept-Encoding: gzip, deflate, br\r\n";

#[test]
fn a_text_of_a_member_is_compressed() {
    let content = json(60_000);
    let member = member(content.clone());
    let server = Server::start(&config(&proxy(&member, "/", "")));
    let mut wire = Wire::plain(&server);
    let response = wire.get("/", GZIP);
    assert_gzip(&response, &content);
    assert!(
        response.body.len() <= 60_000 * 15 / 100,
        "{}",
        response.body.len()
    );
    assert_eq!(response.field("etag"), Some("W/\"v1\""));
    assert_eq!(
        (
            response.field("accept-ranges"),
            response.field("content-length")
        ),
        (None, None)
    );
    // The member compares tags as texts, and knows only its own.
    let again = wire.get("/", &format!("{GZIP}If-None-Match: W/\"v1\"\r\n"));
    assert_eq!((again.status, again.field("etag")), (304, Some("W/\"v1\"")));
    let head = wire.ask("HEAD", "/", GZIP);
    assert_eq!(
        (head.field("content-encoding"), head.field("etag")),
        (Some("gzip"), Some("W/\"v1\""))
    );
    assert_eq!(head.field("content-length"), None);
    // A client without gzip gets the content of the member.
    let plain = wire.get("/", "");
    assert_eq!(
        (plain.text(), plain.field("etag")),
        (content.clone(), Some("\"v1\""))
    );
    assert_eq!(
        (plain.field("vary"), plain.field("content-length")),
        (Some("Accept-Encoding"), Some("60000"))
    );
    for version in ["--http1.1", "--http2"] {
        let mut curl = Command::new("curl");
        let url = format!("https://localhost:{}/", server.https_port);
        curl.args(["-sSk", "--compressed", "-D", "/dev/stderr", version, &url]);
        let done = finish(curl, b"");
        assert_eq!(done.stdout, content, "{version}: {}", done.stderr);
        assert!(
            done.stderr
                .to_lowercase()
                .contains("content-encoding: gzip"),
            "{}",
            done.stderr
        );
    }
}

#[test]
fn no_foreign_page_measures_a_page_of_one_user() {
    let content = json(20_000);
    let member = member(content.clone());
    let routes = [
        proxy(&member, "/", ""),
        proxy(&member, "/always/", "compress = \"always\""),
        proxy(&member, "/never/", "compress = false"),
    ];
    let server = Server::start(&config(&routes.concat()));
    let mut wire = Wire::plain(&server);
    for (path, fields, is_coded) in [
        ("/", "Cookie: a=b\r\n", false),
        ("/", "Cookie: a=b\r\nSec-Fetch-Site: cross-site\r\n", false),
        ("/", "Cookie: a=b\r\nSec-Fetch-Site: same-site\r\n", false),
        ("/", "Cookie: a=b\r\nSec-Fetch-Site: same-origin\r\n", true),
        ("/", "Authorization: Bearer x\r\n", false),
        (
            "/",
            "Authorization: Bearer x\r\nSec-Fetch-Site: none\r\n",
            true,
        ),
        (
            "/always/",
            "Cookie: a=b\r\nSec-Fetch-Site: cross-site\r\n",
            true,
        ),
        ("/never/", "", false),
    ] {
        let response = wire.get(path, &format!("{GZIP}{fields}"));
        if is_coded {
            assert_gzip(&response, &content);
        } else {
            assert_eq!(response.text(), content, "{path} {fields}");
            let vary = (path != "/never/").then_some("Accept-Encoding");
            assert_eq!(response.field("vary"), vary, "{path}");
        }
    }
}

#[test]
fn events_leave_at_once() {
    let member = Member::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
        Answer::Parts(vec![head.as_bytes().to_vec()])
    });
    let server = Server::start(&config(&proxy(&member, "/", "")));
    let mut wire = Wire::plain(&server);
    wire.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{GZIP}\r\n"));
    wire.until(b"\r\n\r\n").expect("a head");
    // The member has not ended its content, and sends nothing more. Each chunk begins with a line.
    let mut coded = Vec::new();
    let mut coder = flate2::Decompress::new_gzip(15);
    let mut plain = Vec::with_capacity(100);
    while plain != b"data: 1\n\n" {
        let line = wire.until(b"\r\n").expect("a chunk");
        let length = String::from_utf8_lossy(&line).trim().to_owned();
        let length = usize::from_str_radix(&length, 16).expect("a length");
        let part = wire.take(length);
        wire.take(2);
        coder
            .decompress_vec(&part, &mut plain, flate2::FlushDecompress::Sync)
            .expect("gzip");
        coded.extend(part);
        assert!(coded.len() < 1_000, "{}", plain.escape_ascii());
    }
}

#[test]
fn scripts_and_pages_of_the_cache_are_compressed() {
    let folder = Folder::new().with("public/index.html", "");
    folder.program(
        "scripts/page",
        "#!/bin/sh\nprintf 'Content-Type: text/html\\n\\n'\nyes 'a line of a page' | head -n 1000\n",
    );
    let scripts = "[[site.route]]\npath = \"/live/\"\ncgi = \"scripts\"\n\
                   [[site.route]]\npath = \"/kept/\"\ncgi = \"scripts\"\ncache = { seconds = 60 }\n";
    let server = Server::start_in(folder, &config(scripts));
    let content = "a line of a page\n".repeat(1_000);
    let mut wire = Wire::plain(&server);
    assert_gzip(&wire.get("/live/page", GZIP), &content);
    // The first client gets the compressed stream, and the cache keeps the page in both forms.
    assert_gzip(&wire.get("/kept/page", GZIP), &content);
    assert_eq!(wire.get("/kept/page", "").text(), content);
    crate::support::eventually("a compressed page of the cache", || {
        let response = wire.get("/kept/page", GZIP);
        let is_coded = response.field("content-encoding") == Some("gzip");
        is_coded.then(|| assert_gzip(&response, &content))
    });
}
