//! A served folder from a client's view: conditional requests, ranges, content codings, listings, and
//! attempts to leave the root.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::wire::{BOTH, Response, Wire, wait_until};
use crate::support::{Folder, Server, lossy, run, server_table, site_table};

/// Deadline of every wait. Background compression may take long on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sizes of the four storage classes: in memory, in memory but sent from the file, on disk with a content
/// ETag, and on disk with an ETag of size and time.
const SIZES: [(&str, usize); 4] = [
    ("/small.bin", 10_000),
    ("/memory.bin", 100_000),
    ("/disk.bin", 300_000),
    ("/large.bin", 2_000_000),
];

fn config(site: &str) -> String {
    server_table("") + "[log]\naccess = \"off\"\n" + &site_table("http = \"serve\"") + site
}

/// Returns bytes without repetition.
fn content(size: usize) -> Vec<u8> {
    let words = (0..size.div_ceil(8) as u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(size);
    bytes
}

fn with_sizes() -> Server {
    let folder = Folder::new().with("public/empty.bin", "");
    for (name, size) in SIZES {
        folder.write(&format!("public{name}"), content(size));
    }
    Server::start_in(folder, &config(""))
}

fn set_age(file: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let file = fs::File::options().write(true).open(file).expect("a file");
    file.set_modified(time).expect("a time");
}

#[test]
fn ranges_are_byte_for_byte() {
    let server = with_sizes();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for (name, size) in SIZES {
            let bytes = content(size);
            let whole = wire.get(name, "");
            assert!(whole.body == bytes, "{name} over {over:?}");
            assert_eq!(whole.field("accept-ranges"), Some("bytes"));
            for (range, start, end) in [
                ("0-", 0, size),
                ("0-0", 0, 1),
                ("1-1", 1, 2),
                ("-1", size - 1, size),
                ("-9999999", 0, size),
                ("0-9999999", 0, size),
                ("5000-", 5_000, size),
                ("4095-4097", 4_095, 4_098),
                ("16383-16385", 16_383.min(size), 16_386.min(size)),
                ("32767-99998", 32_767.min(size), 99_999.min(size)),
            ] {
                if start >= size {
                    continue;
                }
                let response = wire.get(name, &format!("Range: bytes={range}\r\n"));
                let what = format!("{name} {range} over {over:?}: {response:?}");
                assert_eq!(response.status, 206, "{what}");
                let expected = format!("bytes {start}-{}/{size}", end - 1);
                assert_eq!(response.field("content-range"), Some(&*expected), "{what}");
                assert!(response.body == bytes[start..end], "{what}");
                assert_eq!(response.field("etag"), whole.field("etag"), "{what}");
            }
            for ignored in [
                "bytes=5-2",
                "bytes=",
                "bytes=-",
                "bytes=a-b",
                "bytes=1-2,x",
                "lines=1-2",
                "bytes=0-99,50-149",
                "bytes=0-0,2-2,4-4,6-6,8-8,10-10,12-12,14-14,16-16",
            ] {
                let response = wire.get(name, &format!("Range: {ignored}\r\n"));
                assert_eq!(response.status, 200, "{name} {ignored}: {response:?}");
                assert!(response.body == bytes, "{name} {ignored}");
            }
            for behind in [
                format!("bytes={size}-"),
                "bytes=-0".into(),
                "bytes=9999999-".into(),
            ] {
                let response = wire.get(name, &format!("Range: {behind}\r\n"));
                assert_eq!(response.status, 416, "{name} {behind}: {response:?}");
                let expected = format!("bytes */{size}");
                assert_eq!(response.field("content-range"), Some(&*expected));
            }
        }
        let response = wire.get("/empty.bin", "Range: bytes=0-\r\n");
        assert_eq!((response.status, response.body.len()), (200, 0));
    }
}

#[test]
fn several_ranges_give_a_multipart_response() {
    let server = with_sizes();
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for (name, size) in SIZES {
            let bytes = content(size);
            let response = wire.get(name, "Range: bytes=0-9, 5000-5999 ,-100,100-199\r\n");
            assert_eq!(response.status, 206, "{name}: {response:?}");
            assert_eq!(response.field("content-range"), None);
            let kind = response.field("content-type").expect("a type");
            let boundary = kind.strip_prefix("multipart/byteranges; boundary=");
            let boundary = boundary.unwrap_or_else(|| panic!("{kind}"));
            let mut expected = Vec::new();
            for (start, end) in [(0, 10), (5_000, 6_000), (size - 100, size), (100, 200)] {
                let opening = if expected.is_empty() { "" } else { "\r\n" };
                let last = end - 1;
                expected.extend_from_slice(
                    format!(
                        "{opening}--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                         Content-Range: bytes {start}-{last}/{size}\r\n\r\n"
                    )
                    .as_bytes(),
                );
                expected.extend_from_slice(&bytes[start..end]);
            }
            expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            assert!(
                response.body == expected,
                "{name} over {over:?}: {response:?}"
            );
        }
    }
}

#[test]
fn conditional_requests() {
    let server = with_sizes();
    let mut wire = Wire::plain(&server);
    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Fri, 01 Jan 2100 00:00:00 GMT";
    for (name, size) in SIZES {
        let page = wire.get(name, "");
        let tag = page.field("etag").expect("a tag").to_owned();
        let date = page.field("last-modified").expect("a date").to_owned();
        for (fields, status) in [
            (format!("If-None-Match: {tag}"), 304),
            (format!("If-None-Match: W/{tag}"), 304),
            (format!("If-None-Match: \"x\", {tag}"), 304),
            (format!("If-None-Match: \"x\"\r\nIf-None-Match: {tag}"), 304),
            ("If-None-Match: *".into(), 304),
            ("If-None-Match: \"x\"".into(), 200),
            (format!("If-Modified-Since: {date}"), 304),
            // The file may have gone back to an earlier version.
            (format!("If-Modified-Since: {NEW}"), 200),
            (format!("If-Modified-Since: {OLD}"), 200),
            ("If-Modified-Since: yesterday".into(), 200),
            (
                format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {NEW}"),
                200,
            ),
            (format!("If-Match: {tag}"), 200),
            ("If-Match: *".into(), 200),
            (format!("If-Match: W/{tag}"), 412),
            ("If-Match: \"x\"".into(), 412),
            (format!("If-Match: \"x\", {tag}"), 200),
            (format!("If-Unmodified-Since: {date}"), 200),
            (format!("If-Unmodified-Since: {OLD}"), 412),
            (
                format!("If-Match: {tag}\r\nIf-Unmodified-Since: {OLD}"),
                200,
            ),
            (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}"), 412),
            (format!("Range: bytes=1-3\r\nIf-Range: {tag}"), 206),
            (format!("Range: bytes=1-3\r\nIf-Range: {date}"), 206),
            ("Range: bytes=1-3\r\nIf-Range: \"x\"".into(), 200),
            (format!("Range: bytes=1-3\r\nIf-Range: W/{tag}"), 200),
            (format!("Range: bytes=1-3\r\nIf-Range: {OLD}"), 200),
            (format!("Range: bytes=1-3\r\nIf-None-Match: {tag}"), 304),
            ("Range: bytes=1-3\r\nIf-Match: \"x\"".into(), 412),
            (format!("Range: bytes={size}-\r\nIf-Range: \"x\""), 200),
        ] {
            for method in ["GET", "HEAD"] {
                let response = wire.ask(method, name, &format!("{fields}\r\n"));
                // A range applies to GET alone (RFC 9110 §14.2).
                let expected = if method == "HEAD" && status == 206 {
                    200
                } else {
                    status
                };
                let what = format!("{method} {name} {fields:?}: {response:?}");
                assert_eq!(response.status, expected, "{what}");
                if expected == 304 {
                    assert_eq!(response.field("etag"), Some(&*tag), "{what}");
                }
                if method == "GET" && expected == 200 {
                    assert!(response.body == page.body, "{what}");
                }
                if expected == 206 {
                    assert!(response.body == page.body[1..4], "{what}");
                }
            }
        }
    }
}

/// HEAD has GET's fields without GET's content.
#[test]
fn head_is_get_without_its_body() {
    let folder = Folder::new()
        .with("public/page.html", "<p>page</p>\n".repeat(100))
        .with("public/page.html.gz", "coded")
        .with("public/lost.html", "<p>lost</p>\n")
        .with("public/list/file.txt", "file")
        .with("public/large.bin", content(300_000));
    let server = Server::start_in(
        folder,
        &config(
            "errors = { 404 = \"lost.html\" }\nlisting = true\n[[site.route]]\npath = \"/old\"\nredirect = \"/new\"\n",
        ),
    );
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for (target, fields) in [
            ("/page.html", ""),
            ("/page.html", "Accept-Encoding: gzip\r\n"),
            ("/large.bin", ""),
            ("/nothing", ""),
            ("/list", ""),
            ("/list/", ""),
            ("/list/?format=json", ""),
            ("/old", ""),
            ("/page.html", "If-None-Match: *\r\n"),
            ("/page.html", "If-Match: \"x\"\r\n"),
        ] {
            let named = |response: &Response| {
                let fields = response.fields.iter();
                let fields = fields.filter(|(name, _)| name != "Date");
                (response.status, fields.cloned().collect::<Vec<_>>())
            };
            let get = wire.get(target, fields);
            let head = wire.ask("HEAD", target, fields);
            assert_eq!(named(&head), named(&get), "{target} {fields:?}");
        }
    }
}

#[test]
fn sidecars_are_negotiated() {
    let plain = "<p>plain</p>\n".repeat(100);
    let folder = Folder::new()
        .with("public/page.html", &plain)
        .with("public/page.html.br", "as brotli")
        .with("public/page.html.zst", "as zstandard")
        .with("public/page.html.gz", "as gzip")
        .with("public/old.bin", "plain")
        .with("public/old.bin.gz", "older");
    set_age(&folder.path("public/old.bin.gz"), 100);
    let server = Server::start_in(folder, &config(""));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let mut tags = Vec::new();
        for (accept, coding, body) in [
            ("", None, &*plain),
            ("Accept-Encoding:\r\n", None, &plain),
            ("Accept-Encoding: identity\r\n", None, &plain),
            ("Accept-Encoding: deflate\r\n", None, &plain),
            ("Accept-Encoding: gzip;q=0\r\n", None, &plain),
            ("Accept-Encoding: gzip;q=0.1, identity\r\n", None, &plain),
            ("Accept-Encoding: gzip\r\n", Some("gzip"), "as gzip"),
            ("Accept-Encoding: GZIP\r\n", Some("gzip"), "as gzip"),
            ("Accept-Encoding: zstd\r\n", Some("zstd"), "as zstandard"),
            ("Accept-Encoding: br\r\n", Some("br"), "as brotli"),
            (
                "Accept-Encoding: gzip, deflate, br, zstd\r\n",
                Some("br"),
                "as brotli",
            ),
            (
                "Accept-Encoding: gzip, br;q=0.5, zstd;q=0.9\r\n",
                Some("gzip"),
                "as gzip",
            ),
            (
                "Accept-Encoding: br;q=0, zstd;q=0.2, gzip;q=0.1\r\n",
                Some("zstd"),
                "as zstandard",
            ),
            ("Accept-Encoding: *\r\n", Some("br"), "as brotli"),
            (
                "Accept-Encoding: *;q=0.1, br;q=0\r\n",
                Some("zstd"),
                "as zstandard",
            ),
            (
                "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n",
                Some("br"),
                "as brotli",
            ),
        ] {
            let response = wire.get("/page.html", accept);
            let what = format!("{accept:?} over {over:?}: {response:?}");
            assert_eq!(response.field("content-encoding"), coding, "{what}");
            assert_eq!(response.text(), body, "{what}");
            assert_eq!(response.field("vary"), Some("Accept-Encoding"), "{what}");
            let kind = Some("text/html; charset=utf-8");
            assert_eq!(response.field("content-type"), kind, "{what}");
            let tag = response.field("etag").expect("a tag").to_owned();
            assert!(tag.starts_with('"'), "{what}");
            tags.push((coding, tag.clone()));
            let known = wire.get("/page.html", &format!("{accept}If-None-Match: {tag}\r\n"));
            assert_eq!(known.status, 304, "{what}");
            assert_eq!(known.field("etag"), Some(&*tag), "{what}");
            assert_eq!(known.field("vary"), Some("Accept-Encoding"), "{what}");
        }
        tags.sort();
        tags.dedup();
        assert_eq!(
            tags.len(),
            4,
            "each coding has one tag of its own: {tags:?}"
        );

        // A range applies to the identity representation, unless the request names a coding's tag.
        let range = "Accept-Encoding: br\r\nRange: bytes=3-5\r\n";
        let response = wire.get("/page.html", range);
        assert_eq!(response.text(), &plain[3..6]);
        assert_eq!(response.field("content-encoding"), None);
        let brotli = &tags
            .iter()
            .find(|(coding, _)| *coding == Some("br"))
            .expect("br")
            .1;
        let response = wire.get("/page.html", &format!("{range}If-Range: {brotli}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (206, "bro"));
        assert_eq!(response.field("content-encoding"), Some("br"));

        let response = wire.get("/old.bin", "Accept-Encoding: gzip\r\n");
        assert_eq!(
            response.text(),
            "plain",
            "a sidecar older than its file is ignored"
        );
        assert_eq!(wire.get("/page.html.gz", "").text(), "as gzip");
    }
}

#[test]
fn text_is_compressed_by_the_server() {
    let text = "all work and no play makes an ant a dull insect\n".repeat(1_000);
    let folder = Folder::new()
        .with("public/text.txt", &text)
        .with("public/noise.txt", content(20_000))
        .with("public/picture.png", &text);
    let server = Server::start_in(folder, &config(""));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let coded = wait_until(PATIENCE, "compressed", || {
            let response = wire.get("/text.txt", "Accept-Encoding: gzip\r\n");
            assert_eq!(response.status, 200);
            assert_eq!(response.field("vary"), Some("Accept-Encoding"));
            if response.field("content-encoding").is_none() {
                assert_eq!(response.text(), text);
                return None;
            }
            Some(response)
        });
        assert_eq!(coded.field("content-encoding"), Some("gzip"));
        assert!(coded.body.len() < 1_000, "{coded:?}");
        let mut plain = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&coded.body[..]);
        decoder.read_to_string(&mut plain).expect("gzip");
        assert_eq!(plain, text);
        let identity = wire.get("/text.txt", "");
        assert_eq!(identity.text(), text);
        assert_ne!(identity.field("etag"), coded.field("etag"));
        // Incompressible and already compressed files are sent without gzip.
        let response = wire.get("/noise.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!(response.field("content-encoding"), None);
        let response = wire.get("/picture.png", "Accept-Encoding: gzip\r\n");
        assert_eq!(response.field("content-encoding"), None);
        assert_eq!(response.field("vary"), None, "{response:?}");
    }
}

#[test]
fn files_follow_the_operators_settings() {
    let folder = Folder::new()
        .with("public/home.htm", "home")
        .with("public/index.html", "index")
        .with("public/about.html", "about")
        .with("public/data.nsp", "data")
        .with("public/pic.png", "png")
        .with("public/js/app.js", "app")
        .with("public/js/app.12ab.js", "hashed")
        .with("public/app/deep.html", "deep")
        .with("public/lost.html", "lost")
        .with("public/denied.html", "denied");
    let server = Server::start_in(
        folder,
        &config(
            r#"
index = ["home.htm", "index.html"]
try = ["$path", "$path.html"]
errors = { 404 = "lost.html", 405 = "denied.html" }
mime = { ".nsp" = "application/x-nsp", ".png" = "image/x-png" }
cache = [
    { files = "*.??ab.js", max_age = "365d", immutable = true },
    { files = "*.{js,png}", max_age = "30d" },
    { files = "/app/**", max_age = "1h" },
    { files = "*.html", max_age = "7d" },
]
headers = [
    { files = "*", set = { "X-Content-Type-Options" = "nosniff", "X-Name" = "all" } },
    { files = "*.js", set = { "X-Name" = "script" } },
]
"#,
        ),
    );
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for (target, status, body, kind, cache, name) in [
            ("/", 200, "home", "text/html; charset=utf-8", None, "all"),
            (
                "/about",
                200,
                "about",
                "text/html; charset=utf-8",
                Some("max-age=604800"),
                "all",
            ),
            (
                "/about.html",
                200,
                "about",
                "text/html; charset=utf-8",
                Some("max-age=604800"),
                "all",
            ),
            ("/data.nsp", 200, "data", "application/x-nsp", None, "all"),
            (
                "/pic.png",
                200,
                "png",
                "image/x-png",
                Some("max-age=2592000"),
                "all",
            ),
            (
                "/js/app.js",
                200,
                "app",
                "text/javascript; charset=utf-8",
                Some("max-age=2592000"),
                "script",
            ),
            (
                "/js/app.12ab.js",
                200,
                "hashed",
                "text/javascript; charset=utf-8",
                Some("max-age=31536000, immutable"),
                "script",
            ),
            (
                "/app/deep",
                200,
                "deep",
                "text/html; charset=utf-8",
                Some("max-age=3600"),
                "all",
            ),
            (
                "/nothing",
                404,
                "lost",
                "text/html; charset=utf-8",
                None,
                "all",
            ),
            ("/js/", 404, "lost", "text/html; charset=utf-8", None, "all"),
        ] {
            for _ in 0..2 {
                let response = wire.get(target, "");
                let what = format!("{target} over {over:?}: {response:?}");
                assert_eq!(
                    (response.status, response.text().as_str()),
                    (status, body),
                    "{what}"
                );
                assert_eq!(response.field("content-type"), Some(kind), "{what}");
                assert_eq!(response.field("cache-control"), cache, "{what}");
                assert_eq!(
                    response.field("x-content-type-options"),
                    Some("nosniff"),
                    "{what}"
                );
                assert_eq!(response.field("x-name"), Some(name), "{what}");
                if status == 404 {
                    assert_eq!(response.field("etag"), None, "{what}");
                }
            }
        }
        let response = wire.ask("POST", "/about", "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (405, "denied"),
            "{response:?}"
        );
        assert_eq!(response.field("allow"), Some("GET, HEAD, OPTIONS"));
        // Conditions and ranges do not apply to error pages.
        let response = wire.get("/nothing", "Range: bytes=0-1\r\nIf-None-Match: *\r\n");
        assert_eq!(
            (response.status, response.text().as_str()),
            (404, "lost"),
            "{response:?}"
        );
    }
}

const NASTY: [&[u8]; 14] = [
    b"<script>alert(1)<!--",
    b"a\"b'c&d",
    b"&amp;",
    b"with space",
    b"%41",
    b"tab\there",
    b"new\nline",
    b"\xff\xfe not UTF-8",
    b"javascript:alert(1)",
    b"what?query=1",
    b"with#fragment",
    b"..fine",
    b"caf\xc3\xa9",
    b"~tilde;semi,comma",
];

/// A Python program that prints the decoded targets of all links in a listing's table, one repr a line.
const LINKS: &str = r#"
import sys
from html.parser import HTMLParser
class Links(HTMLParser):
    depth = 0
    def handle_starttag(self, tag, attributes):
        if tag == 'tbody': self.depth = 1
        if tag == 'nav': self.depth = 0
        if tag == 'a' and self.depth: print(dict(attributes)['href'])
        assert tag != 'script', attributes
Links().feed(sys.stdin.buffer.read().decode('utf-8'))
"#;

fn links(page: &Response) -> Vec<String> {
    let ran = run("python3", &["-c", LINKS], &page.body);
    assert!(ran.success, "{}", ran.errors());
    ran.text().lines().map(str::to_owned).collect()
}

#[test]
fn a_listing_shows_all_public_entries_and_no_more() {
    let folder = Folder::new()
        .with("public/list/sub/file.txt", "below")
        .with("public/list/.hidden", "hidden")
        .with("outside.txt", "secret");
    for name in NASTY {
        // Some names are not UTF-8, unlike `Folder`'s names.
        let mut path = folder.path("public/list").into_os_string();
        path.push("/");
        path.push(OsStr::from_bytes(name));
        fs::write(path, name).expect("a file");
    }
    symlink(
        folder.path("outside.txt"),
        folder.path("public/list/leaves"),
    )
    .expect("a link");
    let server = Server::start_in(folder, &config("listing = true\n"));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let page = wire.get("/list/", "");
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        let links = links(&page);
        assert_eq!(links[0], "../");
        assert_eq!(links[1], "./sub/");
        let shown: Vec<Vec<u8>> = links[2..]
            .iter()
            .map(|link| {
                let name = link.strip_prefix("./").expect("a link to a neighbour");
                let response = wire.get(&format!("/list/{name}"), "");
                assert_eq!(response.status, 200, "{link}: {response:?}");
                response.body
            })
            .collect();
        let visible: Vec<_> = NASTY
            .iter()
            .filter(|name| !name.starts_with(b"."))
            .collect();
        assert_eq!(shown.len(), visible.len(), "{links:?}");
        for name in visible {
            assert!(shown.iter().any(|body| body == name), "{}", lossy(name));
        }
        assert!(!page.text().contains("leaves") && !page.text().contains("hidden"));
    }
}

#[test]
fn long_listings_are_paged_and_available_as_json() {
    let folder = Folder::new();
    for number in 0..2_500 {
        folder.write(&format!("public/{number:04}.txt"), vec![b'x'; number]);
    }
    let server = Server::start_in(folder, &config("listing = true\n"));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let mut shown = Vec::new();
        for (page, count) in [("", 1_000), ("?page=2", 1_000), ("?page=3", 500)] {
            let page = wire.get(&format!("/{page}"), "");
            let links = links(&page);
            assert_eq!(links.len(), count);
            shown.extend(links);
        }
        let expected: Vec<_> = (0..2_500)
            .map(|number| format!("./{number:04}.txt"))
            .collect();
        assert_eq!(shown, expected);
        let largest = links(&wire.get("/?sort=size", ""));
        assert_eq!(largest[0], "./2499.txt");
        let json = wire.get("/", "Accept: application/json\r\n");
        assert_eq!(json.field("content-type"), Some("application/json"));
        assert_eq!(json.field("vary"), Some("Accept"));
        let read = "import json, sys\nfor e in json.load(sys.stdin)['entries']: print(e['name'], e['size'])";
        let ran = run("python3", &["-c", read], &json.body);
        assert!(ran.success, "{}", ran.errors());
        let expected: Vec<_> = (0..2_500)
            .map(|number| format!("{number:04}.txt {number}"))
            .collect();
        assert_eq!(ran.text().lines().collect::<Vec<_>>(), expected);
        // An HTTP/1.0 client gets the same listing.
        let mut old = Wire::over(&server, over);
        old.send("GET /?format=json HTTP/1.0\r\nHost: localhost\r\n\r\n");
        assert_eq!(old.response("GET").body, json.body);
    }
}

/// Common path traversal attacks.
const ESCAPES: [&str; 44] = [
    "/../secret.txt",
    "/..",
    "/../",
    "/./../secret.txt",
    "/sub/../../secret.txt",
    "/sub/../../../../../../../../etc/passwd",
    "/%2e%2e/secret.txt",
    "/%2E%2E/secret.txt",
    "/.%2e/secret.txt",
    "/%2e./secret.txt",
    "/%2e%2e%2fsecret.txt",
    "/..%2fsecret.txt",
    "/sub%2f..%2f..%2fsecret.txt",
    "/..\\secret.txt",
    "/..%5csecret.txt",
    "/%2e%2e%5csecret.txt",
    "/sub/..\\..\\secret.txt",
    "/%252e%252e/secret.txt",
    "/%252e%252e%252fsecret.txt",
    "/..%252fsecret.txt",
    "/%c0%ae%c0%ae/secret.txt",
    "/..%c0%afsecret.txt",
    "/%e0%80%ae%e0%80%ae/secret.txt",
    "/%uff0e%uff0e/secret.txt",
    "/..%00/secret.txt",
    "/page.html%00.txt",
    "/%00../secret.txt",
    "/....//secret.txt",
    "/.../secret.txt",
    "/..;/secret.txt",
    "/..%3bx/secret.txt",
    "//../secret.txt",
    "/sub//../..//secret.txt",
    "/../public/../secret.txt",
    "/../public-twin/secret.txt",
    "//etc/passwd",
    "/etc/passwd",
    "/file:///etc/passwd",
    "/proc/self/root/etc/passwd",
    "/~root/.profile",
    "/.%09./secret.txt",
    "/sub/.%2e/%2e./secret.txt",
    "/..%ef%bc%8fsecret.txt",
    "http://localhost/../secret.txt",
];

#[test]
fn no_path_leads_out_of_the_root() {
    let folder = Folder::new()
        .with("secret.txt", "secret")
        .with("public-twin/secret.txt", "secret")
        .with("outside/deep/secret.txt", "secret")
        .with("public/page.html", "page")
        .with("public/sub/inner.txt", "inner")
        .with("public/sub/deeper/leaf.txt", "leaf");
    let real = fs::canonicalize(folder.path("public")).expect("the root");
    let outside = fs::canonicalize(folder.path("outside")).expect("outside");
    let link = |to: &Path, name: &str| symlink(to, real.join(name)).expect("a link");
    // Links out of the root.
    link(&outside, "absolute");
    link(Path::new("../outside"), "relative");
    link(Path::new("../secret.txt"), "secret.txt");
    link(Path::new("../../secret.txt"), "sub/up.txt");
    link(Path::new("sub/../../secret.txt"), "roundabout.txt");
    link(Path::new("absolute/deep"), "chained");
    link(Path::new("/etc"), "etc-folder");
    link(Path::new("/etc/passwd"), "passwd");
    link(Path::new("/proc/self/root"), "root");
    link(Path::new("../public-twin/secret.txt"), "twin.txt");
    link(Path::new("loop"), "loop");
    // Links within the root.
    link(&real.join("page.html"), "inside-absolute.html");
    link(&real.join("sub"), "inside-folder");
    link(Path::new("../page.html"), "sub/inside-relative.html");
    link(Path::new("inside-absolute.html"), "inside-chain.html");
    link(Path::new("/sub/inner.txt"), "as-from-root.txt");
    let server = Server::start_in(folder, &config("listing = true\n"));
    let linked = [
        "/absolute/deep/secret.txt",
        "/absolute/",
        "/absolute",
        "/relative/deep/secret.txt",
        "/secret.txt",
        "/sub/up.txt",
        "/roundabout.txt",
        "/chained/secret.txt",
        "/etc-folder/passwd",
        "/passwd",
        "/root/etc/passwd",
        "/twin.txt",
        "/loop",
        "/sub/../absolute/deep/secret.txt",
        "/inside-folder/../../secret.txt",
    ];
    for over in BOTH {
        for target in ESCAPES.iter().chain(&linked) {
            let mut wire = Wire::over(&server, over);
            for method in ["GET", "HEAD"] {
                if let Some(response) = {
                    wire.send(format!(
                        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    ));
                    wire.next_response(method)
                } {
                    let refused = matches!(response.status, 400 | 404);
                    assert!(refused, "{method} {target}: {response:?}");
                    let text = response.text();
                    assert!(
                        !text.contains("secret") && !text.contains("root:"),
                        "{target}"
                    );
                }
            }
        }
        let mut wire = Wire::over(&server, over);
        for (target, body) in [
            ("/inside-absolute.html", "page"),
            ("/inside-folder/inner.txt", "inner"),
            ("/inside-folder/deeper/leaf.txt", "leaf"),
            ("/sub/inside-relative.html", "page"),
            ("/inside-chain.html", "page"),
            ("/as-from-root.txt", "inner"),
            ("/sub/deeper/../inner.txt", "inner"),
        ] {
            let response = wire.get(target, "");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, body),
                "{target}"
            );
        }
    }
}
