//! Compression of what members and scripts answer.

use std::io::Read;
use std::process::Command;

use flate2::read::GzDecoder;

use crate::support::h2::H2;
use crate::support::member::{Answer, Member, Received};
use crate::support::wire::{Over, Response, Wire};
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
        let head = done.stderr.to_lowercase();
        assert!(head.contains("content-encoding: "), "{head}");
    }
}

/// What arrives over a version of HTTP: the coding, Vary and the compressed bytes.
type Arrived = (Option<String>, Option<String>, Vec<u8>);

fn arrived(response: &Response) -> Arrived {
    let field = |name| response.field(name).map(str::to_owned);
    let coding = field("content-encoding");
    (coding, field("vary"), response.body.clone())
}

#[cfg(feature = "http3")]
fn arrived_over_http_3(server: &Server, accept: &str) -> Arrived {
    let accept = format!("accept-encoding={accept}");
    let told = crate::h3::run_scenario(server, &["fetch_coded", "/", &accept]);
    let words: Vec<&str> = told.split_whitespace().collect();
    let field = |nth: usize| words.get(nth).map(|&word| word.to_owned());
    let hex = words.get(3).map_or("", |&hex| hex);
    let bytes = (0..hex.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
    assert_eq!(words.first(), Some(&"200"));
    (field(1), field(2), bytes.collect())
}

#[test]
fn a_text_is_compressed_over_every_version_of_http() {
    let content = json(60_000);
    let member = member(content.clone());
    let server = Server::start(&config(&proxy(&member, "/", "")));
    // A browser names zstd last, and gets it: the coding that costs the least.
    for (accept, coding) in [
        ("gzip, deflate, br", Some("gzip")),
        #[cfg(feature = "zstd")]
        ("gzip, deflate, br, zstd", Some("zstd")),
        #[cfg(feature = "zstd")]
        ("zstd;q=0.5, gzip", Some("gzip")),
        ("br", None),
        ("gzip;q=0.5, identity;q=1", None),
        ("gzip;q=0", None),
    ] {
        let field = format!("Accept-Encoding: {accept}\r\n");
        let mut all = Vec::new();
        for over in [Over::Plain, Over::Tls] {
            all.push(arrived(&Wire::over(&server, over).get("/", &field)));
        }
        let mut h2 = H2::open(&server, Over::Tls);
        let stream = h2.ask("GET", "/", &[("accept-encoding", accept)], true);
        all.push(arrived(&h2.response(stream)));
        #[cfg(feature = "http3")]
        all.push(arrived_over_http_3(&server, accept));
        for (nth, (named, vary, bytes)) in all.into_iter().enumerate() {
            let named = named.filter(|name| name != "None");
            assert_eq!(named.as_deref(), coding, "{accept} {nth}");
            assert_eq!(vary.as_deref(), Some("Accept-Encoding"), "{accept} {nth}");
            let plain = match coding {
                Some("zstd") => String::from_utf8(zstd::decode_all(&bytes[..]).expect("zstd")),
                Some(_) => Ok(gunzip(&bytes)),
                None => String::from_utf8(bytes),
            };
            assert!(plain.expect("a text") == content, "{accept} {nth}");
        }
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

/// A page behind a guard by address or by client certificate is not for all either: the browser of an attacked user passes
/// the guard for a foreign page.
#[test]
fn no_foreign_page_measures_a_page_for_few() {
    let content = json(20_000);
    let member = member(content.clone());
    let routes = [
        proxy(&member, "/", ""),
        proxy(&member, "/home/", "allow = [\"127.0.0.0/8\"]"),
        proxy(
            &member,
            "/kept/",
            "allow = [\"127.0.0.0/8\"]\ncache = { seconds = 60 }",
        ),
        proxy(
            &member,
            "/always/",
            "allow = [\"127.0.0.0/8\"]\ncache = { seconds = 60 }\ncompress = \"always\"",
        ),
        proxy(&member, "/open/", "deny = [\"192.0.2.1\"]"),
    ];
    let server = Server::start(&config(&routes.concat()));
    let mut wire = Wire::plain(&server);
    let own = format!("{GZIP}Sec-Fetch-Site: same-origin\r\n");
    let foreign = format!("{GZIP}Sec-Fetch-Site: cross-site\r\n");
    // The cache has the page in both forms.
    for path in ["/kept/", "/always/"] {
        crate::support::eventually("a compressed page of the cache", || {
            let response = wire.get(path, &own);
            let is_coded = response.field("cache-status")?.contains("hit")
                && response.field("content-encoding") == Some("gzip");
            is_coded.then_some(())
        });
    }
    for (path, is_for_few) in [
        ("/", false),
        ("/home/", true),
        ("/kept/", true),
        ("/always/", false),
        ("/open/", false),
    ] {
        assert_gzip(&wire.get(path, &own), &content);
        let response = wire.get(path, &foreign);
        if is_for_few {
            assert_eq!(response.text(), content, "{path}");
            assert_eq!(response.field("content-encoding"), None, "{path}");
        } else {
            assert_gzip(&response, &content);
        }
    }
}

#[test]
fn nothing_is_compressed_where_the_operator_says_so() {
    let content = json(20_000);
    let member = member(content.clone());
    let route = proxy(
        &member,
        "/",
        "compress = false\ncache = { seconds = 60, disk = true }",
    );
    let mut folder = Folder::new().with("public/index.html", "");
    // The cache keeps its pages over a restart.
    for _ in 0..2 {
        let server = Server::start_in(folder, &config(&route));
        let mut wire = Wire::plain(&server);
        for _ in 0..3 {
            let response = wire.get("/", GZIP);
            assert_eq!(response.text(), content);
            assert_eq!(response.field("vary"), None, "{response:?}");
        }
        folder = server.into_folder();
    }
}

/// A client that continues a broken download has bytes of the compressed content, and names a time that both contents have.
#[test]
fn a_broken_download_does_not_go_on_in_another_coding() {
    let content = json(20_000);
    let whole = content.clone();
    let member = Member::start(move |request: &Received| {
        if request.fields("range").is_empty() {
            return answer("Content-Type: text/css\r\n", &whole);
        }
        let part = &whole[9..];
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Type: text/css\r\nContent-Range: bytes 9-{}/{}\r\n\
             Content-Length: {}\r\n\r\n",
            whole.len() - 1,
            whole.len(),
            part.len()
        );
        Answer::Keep([head.as_bytes(), part.as_bytes()].concat())
    });
    let server = Server::start(&config(&proxy(&member, "/", "")));
    let mut wire = Wire::plain(&server);
    let resume = "Range: bytes=9-\r\nIf-Range: Sat, 01 Jan 2000 00:00:00 GMT\r\n";
    assert_gzip(&wire.get("/", &format!("{GZIP}{resume}")), &content);
    let part = wire.get("/", resume);
    assert_eq!((part.status, part.text()), (206, content[9..].to_owned()));
}

/// The tag of a compressed response also protects a change (RFC 9110 §13.1.1).
#[test]
fn a_change_is_made_under_the_tag_of_a_compressed_response() {
    let member = Member::start(|request: &Received| {
        let tags = request.fields("if-match").join(", ");
        let status = match tags.split(", ").any(|tag| tag == "\"v1\"") {
            true => "204 No Content",
            false => "412 Precondition Failed",
        };
        Answer::Keep(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes())
    });
    let server = Server::start(&config(&proxy(&member, "/", "")));
    let mut wire = Wire::plain(&server);
    for (tag, status) in [("W/\"v1\"", 204), ("\"v1\"", 204), ("W/\"v2\"", 412)] {
        let fields = format!("{GZIP}If-Match: {tag}\r\nContent-Length: 0\r\n");
        assert_eq!(wire.ask("PUT", "/", &fields).status, status, "{tag}");
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
