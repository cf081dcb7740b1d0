//! Tests of a whole site: requests as text, responses as the bytes for a client.

use super::file::{SiteFile, VariantKind};
use super::folder::FolderEntry;
use super::*;
use ::release::glob::Glob;
use proptest::prelude::*;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use wire::fields::ContentCoding;
use wire::h1::request::{ParsedHead, parse_head};
use wire::limits::HeadLimits;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::status::Status;

const TEXT: &str = "The ants go marching one by one, hurrah, hurrah. ";

/// Root in a temporary folder, with room for files outside of the root.
struct Place {
    base: TempDir,
}

impl Place {
    fn new() -> Place {
        let base = tempfile::tempdir().expect("a folder");
        fs::create_dir(base.path().join("public")).expect("made");
        Place { base }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base
            .path()
            .canonicalize()
            .expect("there")
            .join("public")
            .join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Place {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, content).expect("written");
        self
    }

    fn age(&self, name: &str, seconds: u64) -> &Place {
        let file = fs::File::options()
            .write(true)
            .open(self.path(name))
            .expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .expect("set");
        self
    }

    fn rules(&self) -> SiteRules {
        SiteRules::new(self.path(""))
    }

    fn site(&self) -> Site {
        self.site_with(|_| {})
    }

    fn site_with(&self, change: impl FnOnce(&mut SiteRules)) -> Site {
        let mut rules = self.rules();
        change(&mut rules);
        Site::open(rules, Arc::new(ContentBudget::new(8 << 20))).expect("opens")
    }
}

/// Response as received by a client.
#[derive(Debug, Default)]
pub(in crate::site) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub rule: u16,
    pub location: String,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn tag(&self) -> String {
        self.field("ETag").unwrap_or_default().to_owned()
    }
}

/// Returns the response without running loads.
pub(in crate::site) fn answer(site: &Site, request: &str) -> SiteResponse {
    let mut lines = request.lines();
    let line = lines.next().expect("a request line");
    let fields: String = lines.map(|field| format!("{}\r\n", field.trim())).collect();
    let text = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    match parse_head(
        text.as_bytes(),
        &mut Vec::new(),
        &mut 0,
        &HeadLimits::default(),
    ) {
        Ok(ParsedHead::Complete { head, .. }) => site.answer(&head, &site.resolve(&head.path)),
        Ok(ParsedHead::Partial) => panic!("a whole head"),
        Err(reject) => SiteResponse::Refuse(reject),
    }
}

/// Returns the response after all required loads.
pub(in crate::site) fn ask(site: &Site, request: &str) -> Reply {
    for _ in 0..4 {
        match answer(site, request) {
            SiteResponse::Load(load) => load.run(),
            other => return reply(other),
        }
    }
    panic!("loads without end: {request}");
}

pub(in crate::site) fn get(site: &Site, path: &str) -> Reply {
    ask(site, &format!("GET {path}"))
}

fn reply(answer: SiteResponse) -> Reply {
    match answer {
        SiteResponse::Stored(stored) => {
            let mut scratch = b"rest of before".to_vec();
            let head = String::from_utf8(stored.head(&mut scratch).to_vec()).expect("text");
            assert!(
                head.ends_with("\r\n") && !head.contains("\r\n\r\n"),
                "{head}"
            );
            let mut body = Vec::new();
            let mut nth = 0;
            while let Some(piece) = stored.piece(nth) {
                nth += 1;
                match piece {
                    BodyPiece::Bytes(bytes) => body.extend_from_slice(bytes),
                    BodyPiece::File {
                        content,
                        offset,
                        len,
                    } => {
                        let mut bytes = vec![0; len as usize];
                        content
                            .file
                            .read_exact_at(&mut bytes, offset)
                            .expect("there");
                        body.extend_from_slice(&bytes);
                    }
                }
            }
            assert_eq!(body.len() as u64, stored.body_len());
            let status = head[9..12].parse().expect("a status");
            assert_eq!(status, stored.status.0);
            let rule = stored.reject().map_or(0, |reject| reject.rule);
            Reply {
                status,
                head,
                body,
                rule,
                ..Reply::default()
            }
        }
        SiteResponse::Listing(mut listing) => {
            let head = String::from_utf8(listing.head(&mut Vec::new()).to_vec()).expect("text");
            let mut body = Vec::new();
            let mut before = 0;
            while listing.next_chunk(&mut body) {
                assert!(body.len() - before <= crate::limits::LISTING_CHUNK_BYTES);
                before = body.len();
            }
            Reply {
                status: 200,
                head,
                body,
                ..Reply::default()
            }
        }
        SiteResponse::Redirect { path } => Reply {
            status: 301,
            location: String::from_utf8(path).expect("text"),
            ..Reply::default()
        },
        SiteResponse::Moved { status, location } => Reply {
            status: status.0,
            location: String::from_utf8(location).expect("text"),
            ..Reply::default()
        },
        SiteResponse::Options => Reply {
            status: 204,
            ..Reply::default()
        },
        SiteResponse::Refuse(Reject { status, rule, .. }) => Reply {
            status: status.0,
            rule,
            ..Reply::default()
        },
        SiteResponse::Load(_) => panic!("a load is no reply"),
    }
}

#[test]
fn paths_and_methods_have_their_statuses() {
    let place = Place::new();
    place
        .write("index.html", "home")
        .write("a b.txt", "space")
        .write("sub/index.html", "sub");
    place
        .write("bare/x", "x")
        .write(".secret", "S")
        .write("sub/.git/config", "S");
    place
        .write(".well-known/security.txt", "s")
        .write("\u{e9}/index.html", "e");
    let site = place.site();
    for (request, status, rule, body) in [
        ("GET /", 200, 0, "home"),
        ("GET /index.html", 200, 0, "home"),
        ("GET /a%20b.txt", 200, 0, "space"),
        ("GET /sub/", 200, 0, "sub"),
        ("GET /.well-known/security.txt", 200, 0, "s"),
        ("GET /sub", 301, 0, ""),
        ("GET /index.html/", 404, 501, ""),
        ("GET /nothing", 404, 501, ""),
        ("GET /sub/nothing/", 404, 501, ""),
        ("GET /bare/", 404, 504, ""),
        ("GET /bare", 404, 504, ""),
        ("GET /.secret", 404, 502, ""),
        ("GET /.not-there", 404, 502, ""),
        ("GET /sub/.git/config", 404, 502, ""),
        ("HEAD /", 200, 0, ""),
        ("OPTIONS /", 204, 0, ""),
        ("OPTIONS /nothing", 404, 501, ""),
        ("POST /", 405, 505, ""),
        ("DELETE /sub", 405, 505, ""),
        ("PUT /nothing", 404, 501, ""),
    ] {
        let reply = ask(&site, request);
        let got = (
            reply.status,
            reply.rule,
            String::from_utf8_lossy(&reply.body),
        );
        assert_eq!(got, (status, rule, body.into()), "{request}");
    }
    assert_eq!(get(&site, "/sub").location, "/sub/");
    assert_eq!(get(&site, "/%c3%A9").location, "/%C3%A9/");
    let head = ask(&site, "HEAD /");
    assert_eq!(head.field("Content-Length"), Some("4"));
    assert_eq!(head.head, get(&site, "/").head);
    assert_eq!(site.count(), (6, 15));
}

#[test]
fn a_mount_without_slash_is_redirected() {
    let place = Place::new();
    place.write("index.html", "home");
    let site = place.site();
    let text = b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut copy = Vec::new();
    let parsed = parse_head(text, &mut copy, &mut 0, &HeadLimits::default());
    let Ok(ParsedHead::Complete { head, .. }) = parsed else {
        panic!("a head")
    };
    assert_eq!(
        reply(site.answer(&head, &site.resolve(b""))).location,
        "/docs/"
    );
}

#[test]
fn clean_urls_and_single_page_applications_resolve() {
    let place = Place::new();
    place
        .write("index.html", "home")
        .write("about.html", "about")
        .write("app/shell.html", "shell");
    place
        .write("both/x", "x")
        .write("both.html", "both")
        .write("full/index.html", "full");
    place
        .write("full.html", "other")
        .write("en/only", "english")
        .write("dir/default.htm", "default");
    let tries = ["$path", "$path.html", "/en/$path", "$path/default.htm"];
    let clean = place.site_with(|rules| rules.try_paths = tries.map(String::from).into());
    for (path, status, body) in [
        ("/about", 200, "about"),
        ("/about.html", 200, "about"),
        ("/about/", 404, ""),
        ("/both", 200, "both"),
        ("/both/", 404, ""),
        ("/full", 301, ""),
        ("/full/", 200, "full"),
        ("/only", 200, "english"),
        ("/dir", 200, "default"),
        ("/dir/", 200, "default"),
        ("/nothing", 404, ""),
        ("/.about", 404, ""),
    ] {
        let reply = get(&clean, path);
        let got = (reply.status, String::from_utf8_lossy(&reply.body));
        assert_eq!(got, (status, body.into()), "{path}");
    }
    let tries = ["$path", "/app/shell.html"];
    let single = place.site_with(|rules| rules.try_paths = tries.map(String::from).into());
    for (path, status, body) in [
        ("/", 200, "home"),
        ("/users/7", 200, "shell"),
        ("/users/", 200, "shell"),
        ("/both/", 200, "shell"),
        ("/.env", 404, ""),
    ] {
        let reply = get(&single, path);
        let got = (reply.status, String::from_utf8_lossy(&reply.body));
        assert_eq!(got, (status, body.into()), "{path}");
    }
    let mut rules = place.rules();
    rules.try_paths = vec!["$uri".into()];
    assert!(matches!(
        Site::open(rules, Arc::new(ContentBudget::new(0))),
        Err(SiteError::Try(..))
    ));
    let rules = SiteRules::new(place.path("nowhere"));
    assert!(matches!(
        Site::open(rules, Arc::new(ContentBudget::new(0))),
        Err(SiteError::Root(..))
    ));
}

#[test]
fn sidecars_are_negotiated() {
    let place = Place::new();
    place
        .write("a.css", "plain")
        .write("a.css.gz", "gz")
        .write("a.css.br", "br");
    place
        .write("a.css.zst", "zst")
        .write("b.css", "plain")
        .write("b.css.br", "old");
    place.write("c.png", "png");
    place.age("a.css", 50).age("b.css.br", 50);
    let site = place.site();
    let asked =
        |path: &str, accept: &str| ask(&site, &format!("GET {path}\nAccept-Encoding: {accept}"));
    for (accept, body, coding) in [
        ("gzip, deflate, br, zstd", "br", Some("br")),
        ("gzip, zstd", "zst", Some("zstd")),
        ("gzip", "gz", Some("gzip")),
        ("br;q=0.5, gzip;q=0.9", "gz", Some("gzip")),
        ("br;q=0, *", "zst", Some("zstd")),
        ("deflate", "plain", None),
        ("identity, gzip;q=0.5", "plain", None),
        ("identity;q=0", "plain", None),
    ] {
        let reply = asked("/a.css", accept);
        assert_eq!(String::from_utf8_lossy(&reply.body), body, "{accept}");
        assert_eq!(reply.field("Content-Encoding"), coding, "{accept}");
        assert_eq!(reply.field("Vary"), Some("Accept-Encoding"));
        assert_eq!(reply.field("Content-Type"), Some("text/css; charset=utf-8"));
    }
    assert_eq!(get(&site, "/a.css").body, b"plain");
    // A sidecar older than the file belongs to another version.
    assert_eq!(asked("/b.css", "br").body, b"plain");
    // All codings have the file's date, and each coding has an entity tag of its own.
    let all = ["identity", "gzip", "br", "zstd"].map(|accept| asked("/a.css", accept));
    let tags: HashSet<String> = all.iter().map(Reply::tag).collect();
    assert_eq!(tags.len(), 4);
    assert!(
        all.iter()
            .all(|reply| reply.field("Last-Modified") == all[0].field("Last-Modified"))
    );
    // Requested by name, a sidecar is a file like any other.
    let own = asked("/a.css.gz", "gzip");
    assert_eq!(
        (own.field("Content-Type"), own.field("Content-Encoding")),
        (Some("application/gzip"), None)
    );
    assert_eq!(get(&site, "/c.png").field("Vary"), None);
    // An unreadable sidecar is ignored.
    fs::remove_file(place.path("a.css.br")).expect("removed");
    let again = place.site();
    place.write("a.css.br", "br");
    let reply = ask(&again, "GET /a.css\nAccept-Encoding: br, gzip;q=0.1");
    assert_eq!(reply.body, b"gz");
    fs::remove_file(place.path("a.css.gz")).expect("removed");
    let third = place.site();
    fs::remove_file(place.path("a.css.br")).expect("removed");
    let reply = ask(&third, "GET /a.css\nAccept-Encoding: br");
    assert_eq!(reply.body, b"plain");
    assert_eq!(third.take_stale(), [PathBuf::from("a.css.br")]);
    assert!(third.take_stale().is_empty());
}

#[test]
fn gzip_is_generated_in_the_background() {
    let place = Place::new();
    let text = TEXT.repeat(100);
    let noise: Vec<u8> = (0..2000_u32)
        .flat_map(|n| base::digest::sha256(&n.to_be_bytes()))
        .collect();
    place
        .write("a.txt", &text)
        .write("noise.txt", &noise)
        .write("tiny.txt", "tiny")
        .write("a.png", &text);
    let large = TEXT.repeat(10_000);
    place.write("large.js", &large);
    let site = place.site();
    let queue = site.shared.budget.gzip();
    let request = "GET /a.txt\nAccept-Encoding: gzip";
    let plain = ask(&site, request);
    assert_eq!(
        (plain.body.len(), plain.field("Content-Encoding")),
        (text.len(), None)
    );
    queue.try_next().expect("queued").run();
    let coded = ask(&site, request);
    assert_eq!(coded.field("Content-Encoding"), Some("gzip"));
    assert_eq!(
        coded.field("Content-Length"),
        Some(&*coded.body.len().to_string())
    );
    assert_eq!(coded.field("Vary"), Some("Accept-Encoding"));
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&coded.body[..])
        .read_to_string(&mut unpacked)
        .expect("gzip");
    assert_eq!(unpacked, text);
    assert_eq!(
        coded.tag(),
        format!("{}-gz\"", plain.tag().trim_end_matches('"'))
    );
    assert_eq!(get(&site, "/a.txt").tag(), plain.tag());
    // Useless compression is attempted only once.
    for path in ["/noise.txt", "/tiny.txt", "/a.png"] {
        let request = format!("GET {path}\nAccept-Encoding: gzip");
        ask(&site, &request);
        if let Some(job) = queue.try_next() {
            job.run();
        }
        assert_eq!(
            ask(&site, &request).field("Content-Encoding"),
            None,
            "{path}"
        );
        assert!(queue.try_next().is_none(), "{path}");
    }
    // Too large for memory, but small enough for compression.
    let request = "GET /large.js\nAccept-Encoding: gzip";
    assert_eq!(ask(&site, request).body.len(), large.len());
    queue.try_next().expect("queued").run();
    assert!(ask(&site, request).body.len() < large.len() / 20);
    queue.close();
    assert!(queue.wait().is_none());
}

#[test]
fn a_known_tag_of_any_coding_is_304() {
    let place = Place::new();
    place
        .write("a.txt", TEXT.repeat(100))
        .write("b.txt", "plain")
        .write("b.txt.br", "br");
    let site = place.site();
    let plain = get(&site, "/a.txt").tag();
    let made = format!("{}-gz\"", plain.trim_end_matches('"'));
    let check = |accept: &str, tag: &str| {
        ask(
            &site,
            &format!("GET /a.txt\nAccept-Encoding: {accept}\nIf-None-Match: {tag}"),
        )
    };
    // The gzip variant does not exist now, but the entity tag is recognized.
    let reply = check("gzip", &made);
    assert_eq!((reply.status, reply.tag()), (304, made.clone()));
    assert_eq!(reply.field("Vary"), Some("Accept-Encoding"));
    assert_eq!(
        (reply.field("Content-Length"), reply.field("Content-Type")),
        (None, None)
    );
    assert_eq!(check("br", &made).status, 200);
    site.shared.budget.gzip().try_next().expect("queued").run();
    assert_eq!(check("gzip", &made).tag(), made);
    let reply = check("gzip", &format!("\"x\", W/{plain}"));
    assert_eq!((reply.status, reply.tag()), (304, plain.clone()));
    assert_eq!(check("identity;q=0, gzip", &plain).status, 200);
    assert_eq!(check("br", &made).status, 200);
    assert_eq!(check("gzip", "*").status, 304);
    let br = ask(&site, "GET /b.txt\nAccept-Encoding: br").tag();
    let other = ask(
        &site,
        &format!("GET /b.txt\nAccept-Encoding: br;q=0.1, identity\nIf-None-Match: {br}"),
    );
    assert_eq!((other.status, other.tag()), (304, br));
}

#[test]
fn conditions_select_304_and_412() {
    let place = Place::new();
    place.write("a.txt", "0123456789");
    let site = place.site_with(|rules| {
        let glob = Glob::parse("*").expect("valid");
        rules.cache = vec![(
            glob.clone(),
            CacheControlRule {
                max_age_seconds: 7,
                immutable: false,
                only_hashed: false,
            },
        )];
        rules.headers = vec![(glob, vec![("X-A".into(), "1".into())])];
    });
    let page = get(&site, "/a.txt");
    let modified = page.field("Last-Modified").expect("a date").to_owned();
    let tag = page.tag();
    for (fields, status) in [
        (format!("If-None-Match: {tag}"), 304),
        (format!("If-None-Match: \"x\"\nIf-None-Match: W/{tag}"), 304),
        (format!("If-Modified-Since: {modified}"), 304),
        (
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT".into(),
            200,
        ),
        (format!("If-Match: {tag}"), 200),
        ("If-Match: \"x\"".into(), 412),
        (format!("If-Unmodified-Since: {modified}"), 200),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT".into(),
            412,
        ),
        (format!("If-Match: \"x\"\nIf-None-Match: {tag}"), 412),
        (format!("If-None-Match: {tag}\nRange: bytes=0-1"), 304),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = ask(&site, &format!("{method} /a.txt\n{fields}"));
            assert_eq!(reply.status, status, "{method} {fields}");
            if status != 200 {
                assert!(reply.body.is_empty());
            }
        }
    }
    let known = ask(&site, &format!("GET /a.txt\nIf-None-Match: {tag}"));
    let head = format!(
        "HTTP/1.1 304 Not Modified\r\nServer: anthill\r\nETag: {tag}\r\nCache-Control: max-age=7\r\n\
        X-A: 1\r\nVary: Accept-Encoding\r\n"
    );
    assert_eq!(known.head, head);
    let failed = ask(&site, "GET /a.txt\nIf-Match: \"x\"");
    let head = "HTTP/1.1 412 Precondition Failed\r\nServer: anthill\r\nAccept-Ranges: bytes\r\nX-A: 1\r\n\
        Vary: Accept-Encoding\r\nContent-Length: 0\r\n";
    assert_eq!((failed.head.as_str(), failed.rule), (head, 506));
}

/// Sets the modification time of a file, in seconds since 1970.
fn set_modified(place: &Place, name: &str, seconds: u64) {
    let file = fs::File::options().write(true).open(place.path(name));
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.expect("there").set_modified(time).expect("set");
}

/// Contents of equal size and time, as reproducible builds make them.
#[test]
fn other_bytes_have_another_tag() {
    for size in [1_000, 3_000_000] {
        let place = Place::new();
        let version = |byte: u8, name: &str| {
            place.write(name, vec![byte; size]);
            set_modified(&place, name, 1_000_000_000);
        };
        version(b'a', "f.bin");
        let mut site = place.site();
        let mut tags = vec![get(&site, "/f.bin").tag()];
        // Another file takes the place of the file, and the file is overwritten in place.
        version(b'b', "new");
        fs::rename(place.path("new"), place.path("f.bin")).expect("renamed");
        site = site.with_changes(&["f.bin".into()]);
        let reply = get(&site, "/f.bin");
        assert_eq!(reply.body[0], b'b', "{size}");
        tags.push(reply.tag());
        version(b'c', "f.bin");
        site = site.with_changes(&["f.bin".into()]);
        let reply = get(&site, "/f.bin");
        assert_eq!(reply.body[0], b'c', "{size}");
        tags.push(reply.tag());
        assert!(tags.iter().all(|tag| tag.starts_with('"')), "{tags:?}");
        for earlier in &tags[..2] {
            let fields = format!("GET /f.bin\nIf-None-Match: {earlier}");
            assert_eq!(ask(&site, &fields).status, 200, "{size} {tags:?}");
            let fields = format!("GET /f.bin\nIf-Range: {earlier}\nRange: bytes=10-19");
            assert_eq!(ask(&site, &fields).status, 200, "{size} {tags:?}");
        }
        let fields = format!("GET /f.bin\nIf-Range: {}\nRange: bytes=10-19", tags[2]);
        assert_eq!(ask(&site, &fields).status, 206, "{size}");
        let again = place.site();
        assert_eq!(get(&again, "/f.bin").tag(), tags[2], "{size}");
    }
}

/// The watch has not reported the change yet.
#[test]
fn an_overwritten_large_file_is_not_sent_with_the_former_tag() {
    let place = Place::new();
    let write = |byte: u8| {
        place.write("f.bin", vec![byte; 3_000_000]);
        set_modified(&place, "f.bin", 1_000_000_000);
    };
    write(b'a');
    let site = place.site();
    let first = get(&site, "/f.bin");
    assert_eq!((first.status, first.body[0]), (200, b'a'));
    write(b'b');
    let second = get(&site, "/f.bin");
    assert!(
        second.status == 503 || second.tag() != first.tag(),
        "{} {}",
        second.status,
        second.tag()
    );
}

#[test]
fn times_that_all_files_have_are_no_last_modified() {
    let place = Place::new();
    for (seconds, is_sent) in [
        (0, false),
        (1, false),
        (315_532_800, false),
        (315_619_200, true),
        (1_000_000_000, true),
    ] {
        place.write("a.html", seconds.to_string());
        set_modified(&place, "a.html", seconds);
        let reply = get(&place.site(), "/a.html");
        let sent = reply.field("Last-Modified");
        assert_eq!(sent.is_some(), is_sent, "{seconds} {sent:?}");
    }
}

#[test]
fn a_page_that_goes_back_to_an_earlier_time_is_sent() {
    let place = Place::new();
    place.write("a.html", "new");
    set_modified(&place, "a.html", 1_000_000_100);
    let site = place.site();
    let new = get(&site, "/a.html");
    let date = new.field("Last-Modified").expect("a date").to_owned();
    let fields = format!("GET /a.html\nIf-Modified-Since: {date}");
    assert_eq!(ask(&site, &fields).status, 304);
    place.write("a.html", "old page");
    set_modified(&place, "a.html", 1_000_000_000);
    let site = site.with_changes(&["a.html".into()]);
    let reply = ask(&site, &fields);
    assert_eq!((reply.status, &*reply.body), (200, &b"old page"[..]));
}

#[test]
fn files_that_are_compressed_on_disk_have_their_coding() {
    let place = Place::new();
    let text = TEXT.repeat(20);
    let coded = gzip(text.as_bytes(), 1 << 20).expect("smaller");
    place
        .write("a.svgz", &coded)
        .write("Build/game.js.gz", &coded)
        .write("Build/game.wasm.br", "not decoded by the server")
        .write("down/load.svgz", &coded)
        .write("plain.js.gz", &coded);
    let glob = |text: &str| Glob::parse(text).expect("valid");
    let site = place.site_with(|rules| {
        rules.encodings = vec![
            (glob("/Build/*.gz"), ContentCoding::Gzip),
            (glob("*.wasm.br"), ContentCoding::Br),
            (glob("/down/**"), ContentCoding::Identity),
        ];
    });
    for (path, kind, coding) in [
        ("/a.svgz", "image/svg+xml", Some("gzip")),
        (
            "/Build/game.js.gz",
            "text/javascript; charset=utf-8",
            Some("gzip"),
        ),
        ("/Build/game.wasm.br", "application/wasm", Some("br")),
        ("/down/load.svgz", "image/svg+xml", None),
        ("/plain.js.gz", "application/gzip", None),
    ] {
        for accept in [
            "",
            "Accept-Encoding: gzip, br",
            "Accept-Encoding: identity;q=1, *;q=0",
        ] {
            let reply = ask(&site, &format!("GET {path}\n{accept}"));
            assert_eq!(reply.status, 200, "{path}");
            assert_eq!(reply.field("Content-Type"), Some(kind), "{path}");
            assert_eq!(reply.field("Content-Encoding"), coding, "{path} {accept}");
            // The server has no other coding of the file, so the response does not depend on the request.
            assert_eq!(reply.field("Vary"), None, "{path}");
            if path != "/Build/game.wasm.br" {
                assert_eq!(reply.body, &coded[..], "{path}");
            }
        }
        let tag = get(&site, path).tag();
        let known = ask(&site, &format!("GET {path}\nIf-None-Match: {tag}"));
        assert_eq!(known.status, 304, "{path}");
    }
    assert!(
        site.shared.budget.gzip().try_next().is_none(),
        "no second coding"
    );
}

/// Checks that a response never has two codings: the coding of the file on disk, and that of a file beside it.
#[test]
fn files_that_are_compressed_on_disk_have_no_sidecars() {
    let place = Place::new();
    place
        .write("a.svgz", "stored")
        .write("a.svgz.br", "br")
        .write("b.js", "stored")
        .write("b.js.gz", "gz");
    place
        .write("sub/c.css", "stored")
        .write("sub/c.css.zst", "zst");
    let glob = |text: &str| Glob::parse(text).expect("valid");
    let site = place.site_with(|rules| {
        rules.encodings = vec![
            (glob("*.js"), ContentCoding::Br),
            (glob("/sub/**"), ContentCoding::Identity),
        ];
    });
    for (path, coding) in [
        ("/a.svgz", Some("gzip")),
        ("/b.js", Some("br")),
        ("/sub/c.css", None),
    ] {
        let reply = ask(
            &site,
            &format!("GET {path}\nAccept-Encoding: gzip, br, zstd"),
        );
        assert_eq!(reply.body, b"stored", "{path}");
        assert_eq!(reply.field("Content-Encoding"), coding, "{path}");
        assert_eq!(reply.field("Vary"), None, "{path}");
    }
}

#[test]
fn listings_link_only_what_a_request_can_name() {
    let place = Place::new();
    let odd = [
        "100%",
        "a+b",
        "x#y",
        "x?y",
        "my:file",
        "semi;v=1",
        "and&amp;",
        "new\nline",
        "a b",
        "~t",
    ];
    for name in odd {
        place.write(&format!("d/{name}"), name);
    }
    place.write("d/c:\\win.txt", "x").write("e/only\\one", "x");
    let site = place.site_with(|rules| rules.listing = true);
    let json = String::from_utf8(get(&site, "/d/?format=json").body).expect("text");
    let links: Vec<&str> = json
        .split("\"href\":\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0))
        .collect();
    assert_eq!(links.len(), odd.len(), "{json}");
    let mut contents: Vec<Vec<u8>> = Vec::new();
    for link in &links {
        let path = link.strip_prefix("./").expect("relative");
        let reply = get(&site, &format!("/d/{path}"));
        assert_eq!(reply.status, 200, "{link}");
        contents.push(reply.body);
    }
    contents.sort();
    let mut expected = odd.map(|name| name.as_bytes().to_vec());
    expected.sort();
    assert_eq!(contents, expected);
    let html = |path: &str| String::from_utf8(get(&site, path).body).expect("text");
    assert_eq!(html("/d/").matches("<a href=\"./").count(), odd.len());
    assert!(html("/e/").contains("The folder is empty"));
}

#[test]
fn single_ranges_are_sent() {
    let place = Place::new();
    place.write("a.txt", "0123456789").write("empty", "");
    let site = place.site();
    let page = get(&site, "/a.txt");
    for (range, status, body, content_range) in [
        ("bytes=0-3", 206, "0123", Some("bytes 0-3/10")),
        ("bytes=5-", 206, "56789", Some("bytes 5-9/10")),
        ("bytes=-3", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-30", 206, "0123456789", Some("bytes 0-9/10")),
        ("bytes=9-100", 206, "9", Some("bytes 9-9/10")),
        ("bytes=10-", 416, "", Some("bytes */10")),
        ("bytes=5-2", 200, "0123456789", None),
        ("lines=0-3", 200, "0123456789", None),
        (
            "bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8",
            200,
            "0123456789",
            None,
        ),
        ("bytes=0-5,3-9", 200, "0123456789", None),
    ] {
        let reply = ask(
            &site,
            &format!("GET /a.txt\nRange: {range}\nAccept-Encoding: gzip"),
        );
        assert_eq!(reply.status, status, "{range}");
        assert_eq!(String::from_utf8_lossy(&reply.body), body, "{range}");
        assert_eq!(reply.field("Content-Range"), content_range, "{range}");
        assert_eq!(
            reply.field("Content-Length"),
            Some(&*body.len().to_string()),
            "{range}"
        );
        let expected = (status != 416).then_some(page.tag());
        assert_eq!(reply.field("ETag").map(str::to_owned), expected, "{range}");
    }
    assert_eq!(ask(&site, "HEAD /a.txt\nRange: bytes=0-3").status, 200);
    assert_eq!(ask(&site, "GET /a.txt\nRange: bytes=99-").rule, 507);
    let modified = page.field("Last-Modified").expect("a date");
    for (if_range, status) in [
        (page.tag().as_str(), 206),
        (modified, 206),
        ("\"other\"", 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
    ] {
        let reply = ask(
            &site,
            &format!("GET /a.txt\nRange: bytes=2-3\nIf-Range: {if_range}"),
        );
        assert_eq!(reply.status, status, "{if_range}");
    }
    let reply = ask(&site, "GET /a.txt\nRange: bytes=99-\nIf-Range: \"other\"");
    assert_eq!((reply.status, reply.body.len()), (200, 10));
    assert!(get(&site, "/empty").body.is_empty());
}

#[test]
fn several_ranges_are_sent_as_multipart() {
    let place = Place::new();
    let large: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    place
        .write("a.txt", "0123456789")
        .write("large.bin", &large);
    let site = place.site();
    let reply = ask(&site, "GET /a.txt\nRange: bytes=1-2, 4-4, -1");
    assert_eq!((reply.status, reply.field("Content-Range")), (206, None));
    let kind = reply.field("Content-Type").expect("a type");
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("multipart");
    let part = |range: &str, data: &str| {
        format!(
            "--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
            Content-Range: bytes {range}/10\r\n\r\n{data}\r\n"
        )
    };
    let body =
        part("1-2", "12") + &part("4-4", "4") + &part("9-9", "9") + &format!("--{boundary}--\r\n");
    assert_eq!(String::from_utf8_lossy(&reply.body), body);
    assert_eq!(
        reply.field("Content-Length"),
        Some(&*body.len().to_string())
    );
    // From disk, the pieces refer to the file.
    let reply = ask(&site, "GET /large.bin\nRange: bytes=0-9,100000-150000");
    let at = |needle: &[u8]| {
        reply
            .body
            .windows(needle.len())
            .any(|window| window == needle)
    };
    assert!(at(&large[0..10]) && at(&large[100_000..=150_000]));
    assert_eq!(
        ask(&site, "GET /large.bin\nRange: bytes=100-199999").body,
        &large[100..]
    );
}

#[test]
fn a_coded_variant_is_sent_in_ranges_only_by_tag() {
    let place = Place::new();
    place
        .write("a.txt", "0123456789")
        .write("a.txt.br", "abcdefghij");
    let site = place.site();
    let br = ask(&site, "GET /a.txt\nAccept-Encoding: br").tag();
    let asked = |if_range: &str, accept: &str| {
        let fields = format!("Range: bytes=0-1\nIf-Range: {if_range}\nAccept-Encoding: {accept}");
        ask(&site, &format!("GET /a.txt\n{fields}"))
    };
    let reply = asked(&br, "br");
    assert_eq!((reply.status, &reply.body[..]), (206, &b"ab"[..]));
    assert_eq!(
        (reply.field("Content-Encoding"), reply.tag()),
        (Some("br"), br.clone())
    );
    let reply = asked(&br, "gzip");
    assert_eq!((reply.status, &reply.body[..]), (200, &b"0123456789"[..]));
    let reply = ask(&site, "GET /a.txt\nRange: bytes=0-1\nAccept-Encoding: br");
    assert_eq!((reply.status, &reply.body[..]), (206, &b"01"[..]));
}

#[test]
fn error_pages_are_sent_whole() {
    let place = Place::new();
    place
        .write("not-found.html", "<p>lost")
        .write("index.html", "home");
    let site = place.site_with(|rules| {
        rules.errors = vec![(404, "/not-found.html".into()), (403, "none.html".into())];
        let glob = Glob::parse("*.html").expect("valid");
        rules.cache = vec![(
            glob,
            CacheControlRule {
                max_age_seconds: 99,
                immutable: false,
                only_hashed: false,
            },
        )];
    });
    let page = |method| match site.error_page(Status::NOT_FOUND, b"/", method) {
        Some(SiteResponse::Load(load)) => {
            load.run();
            site.error_page(Status::NOT_FOUND, b"/", method)
        }
        other => other,
    };
    let head = "HTTP/1.1 404 Not Found\r\nServer: anthill\r\nContent-Type: text/html; charset=utf-8\r\n\
        Content-Length: 7\r\n";
    let reply_to_get = reply(page(Method::Get).expect("a page"));
    assert_eq!(
        (reply_to_get.head.as_str(), &reply_to_get.body[..]),
        (head, &b"<p>lost"[..])
    );
    let reply_to_head = reply(page(Method::Head).expect("a page"));
    assert_eq!(
        (reply_to_head.head.as_str(), reply_to_head.body.len()),
        (head, 0)
    );
    assert!(
        site.error_page(Status::FORBIDDEN, b"/", Method::Get)
            .is_none()
    );
    assert!(
        site.error_page(Status::BAD_REQUEST, b"/", Method::Get)
            .is_none()
    );
    // Requested by name, the page is a file like any other.
    assert_eq!(get(&site, "/not-found.html").status, 200);
}

#[test]
fn folders_are_listed_as_html_and_json() {
    let place = Place::new();
    let odd = "<b>&\"'x:y?#%.txt";
    place
        .write(odd, "12345")
        .write("sub/x", "x")
        .write("Zebra", vec![0; 2048])
        .write("ape", "1");
    place.write(".hidden", "S").age("ape", 1000);
    symlink("/etc/passwd", place.path("out")).expect("made");
    let site = place.site_with(|rules| rules.listing = true);
    let page = get(&site, "/");
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(
        (page.field("Cache-Control"), page.field("ETag")),
        (Some("no-cache"), None)
    );
    let html = String::from_utf8(page.body).expect("text");
    assert!(html.contains(
        "<a href=\"./%3Cb%3E%26%22%27x%3Ay%3F%23%25.txt\">&lt;b&gt;&amp;&quot;&#39;x:y?#%.txt</a>"
    ), "{html}");
    assert!(html.contains("<a href=\"./sub/\">sub/</a>"));
    assert!(html.contains("title=\"2048 bytes\">2.0 KiB"));
    assert!(!html.contains("hidden") && !html.contains("out") && !html.contains("<b>"));
    assert!(!html.contains("\"../\""), "nothing above the root");
    assert!(
        html.contains("<title>a</title>") && html.contains("<nav class=path>a</nav>"),
        "{html}"
    );
    let below = String::from_utf8(get(&site, "/sub/").body).expect("text");
    assert!(below.contains("<title>sub \u{2013} a</title>"), "{below}");
    assert!(
        below.contains("<nav class=path><a href=\"../\">a</a><i>/</i>sub</nav>"),
        "{below}"
    );
    assert_eq!(get(&site, "/sub").location, "/sub/");
    let order = |query: &str| {
        let html = String::from_utf8(get(&site, query).body).expect("text");
        let mut names = ["sub/</a>", "%.txt</a>", "Zebra</a>", "ape</a>"];
        names.sort_by_key(|name| html.find(name).expect("listed"));
        names.concat().replace("</a>", " ")
    };
    assert_eq!(order("/"), "sub/ %.txt ape Zebra ");
    assert_eq!(order("/?sort=size"), "sub/ Zebra %.txt ape ");
    assert_eq!(order("/?sort=size&order=reverse"), "sub/ ape %.txt Zebra ");
    assert!(order("/?sort=date").ends_with("ape "));
    let head = match answer(&site, "HEAD /") {
        SiteResponse::Listing(listing) => listing.head_only(),
        _ => false,
    };
    assert!(head);
    for request in [
        "GET /?format=json",
        "GET /\nAccept: application/json, */*;q=0.1",
    ] {
        let json = ask(&site, request);
        assert_eq!(json.field("Content-Type"), Some("application/json"));
        let json = String::from_utf8(json.body).expect("text");
        assert!(
            json.starts_with("{\"path\":\"/\",\"entries\":[\n{\"name\":\"<b>&\\\"'x:y?#%.txt\","),
            "{json}"
        );
        assert!(json.contains("{\"name\":\"Zebra\",\"href\":\"./Zebra\",\"type\":\"file\",\"size\":2048,\"modified\":\""));
        assert!(json.contains(",\"type\":\"folder\",\"modified\":\"") && json.ends_with("\"}]}\n"));
        assert!(!json.contains("out"));
    }
    let html = ask(&site, "GET /\nAccept: text/html,application/json");
    assert_eq!(html.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(get(&place.site(), "/").rule, 504);
}

#[test]
fn a_listing_shows_the_readme_of_its_folder() {
    let place = Place::new();
    place
        .write("one/README.md", "# About & more")
        .write("one/readme.txt", "second choice")
        .write("large/README", "x".repeat(40_000))
        .write("none/page", "");
    for nth in 0..1_001 {
        place.write(&format!("many/{nth}"), "");
    }
    place.write("many/README", "of many");
    let site = place.site_with(|rules| {
        rules.listing = true;
        let renderer = |name: &str, content: &[u8]| {
            let content = String::from_utf8_lossy(content);
            format!("<article>{name}: {}</article>", content.to_uppercase())
        };
        rules.readme = Some(ReadmeRenderer(renderer));
    });
    let text = |path: &str| String::from_utf8(get(&site, path).body).expect("text");
    assert!(text("/one/").contains("</table><article>README.md: # ABOUT & MORE</article></main>"));
    assert!(text("/many/").contains("<article>README: OF MANY</article>"));
    for path in ["/many/?page=2", "/large/", "/none/", "/one/?format=json"] {
        assert!(!text(path).contains("<article>"), "{path}");
    }
    // A guard of the README guards the listing.
    assert!(
        site.resolve(b"/one/")
            .aliases()
            .contains(&b"/one/README.md".to_vec())
    );
    // A file in the making is not shown.
    let mut file = fs::File::create(place.path("none/README")).expect("made");
    std::io::Write::write_all(&mut file, b"half").expect("written");
    let site = site.with_changes(&["none".into()]);
    let listed = String::from_utf8(get(&site, "/none/").body).expect("text");
    assert!(!listed.contains("<article>"), "{listed}");
}

#[test]
fn long_listings_are_split_into_pages() {
    let place = Place::new();
    for nth in 0..2345 {
        place.write(&format!("many/{nth:05}"), "");
    }
    let site = place.site_with(|rules| rules.listing = true);
    let names = |query: &str| {
        let html = String::from_utf8(get(&site, query).body).expect("text");
        let names = html
            .split("<a href=\"./")
            .skip(1)
            .map(|rest| rest[..5].to_owned());
        (names.collect::<Vec<_>>(), html)
    };
    let (first, html) = names("/many/");
    assert_eq!(
        (first.len(), first[0].as_str(), first[999].as_str()),
        (1000, "00000", "00999")
    );
    assert!(
        html.contains("page 1 of 3 <a rel=next href=\"?page=2\">") && !html.contains("previous")
    );
    let (second, _) = names("/many/?page=2&sort=date");
    assert_eq!(second.len(), 1000);
    let (last, html) = names("/many/?page=99");
    assert_eq!((last.len(), last[344].as_str()), (345, "02344"));
    assert!(html.contains("href=\"?page=2\">previous</a> page 3 of 3</nav>"));
    let json = get(&site, "/many/?format=json").body;
    assert_eq!(
        String::from_utf8_lossy(&json).matches("\"name\"").count(),
        2345
    );
}

#[test]
fn links_are_followed_inside_the_root() {
    let place = Place::new();
    place
        .write("real/page", "page")
        .write("sub/x", "x")
        .write("deep/sub/y", "y");
    fs::write(place.base.path().join("outside"), "SECRET").expect("made");
    let link = |target: &str, name: &str| symlink(target, place.path(name)).expect("made");
    link("real/page", "near");
    link("real", "folder");
    link(&place.path("real/page").display().to_string(), "absolute");
    link("/real/page", "rooted");
    link("../outside", "out");
    link("nothing", "dangling");
    link("..", "sub/up");
    link(".", "deep/self");
    link("..", "deep/sub/up");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.path("fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .expect("made");
    for resolver in [PathResolver::Kernel, PathResolver::Walk] {
        let budget = Arc::new(ContentBudget::new(0));
        let site = Site::open_with(place.rules(), budget, Some(resolver)).expect("opens");
        for (path, status, rule) in [
            ("/near", 200, 0),
            ("/folder/page", 200, 0),
            ("/folder", 404, 504),
            ("/absolute", 200, 0),
            ("/rooted", 200, 0),
            ("/out", 404, 503),
            ("/dangling", 404, 501),
            ("/fifo", 404, 501),
            ("/sub/up/real/page", 404, 501),
            ("/deep/self/sub/y", 404, 501),
        ] {
            let reply = get(&site, path);
            assert_eq!(
                (reply.status, reply.rule),
                (status, rule),
                "{resolver:?} {path}"
            );
            assert!(status != 200 || reply.body == b"page");
        }
    }
    let follow = place.site_with(|rules| rules.symlinks = Symlinks::Follow);
    assert_eq!(get(&follow, "/out").body, b"SECRET");
}

/// Crossing links could multiply without bound.
#[test]
fn scans_of_crossing_links_are_bounded() {
    let place = Place::new();
    for nth in 0..40 {
        fs::create_dir(place.path(&format!("d{nth}"))).expect("made");
        for side in ["left", "right"] {
            symlink(
                format!("../d{}", nth + 1),
                place.path(&format!("d{nth}/{side}")),
            )
            .expect("made");
        }
    }
    let folders = place.site().folders().len();
    assert!(
        folders <= crate::limits::LINKED_FOLDERS_MAX + 41,
        "{folders}"
    );
}

/// A Kubernetes ConfigMap mount: links to links through a hidden link, which is switched atomically.
#[test]
fn the_switch_of_a_hidden_link_is_noticed() {
    let place = Place::new();
    place
        .write(".v1/page", "one")
        .write(".v2/page", "two")
        .write(".v1/f/x", "x1")
        .write(".v2/f/x", "x2");
    symlink(".v1", place.path("..data")).expect("made");
    symlink("..data/page", place.path("page")).expect("made");
    symlink("..data/f", place.path("f")).expect("made");
    let site = place.site();
    assert_eq!(
        (get(&site, "/page").body, get(&site, "/f/x").body),
        (b"one".into(), b"x1".into())
    );
    let watched: Vec<PathBuf> = site.folders().into_iter().map(|(_, real)| real).collect();
    assert!(watched.contains(&place.path(".v1")), "{watched:?}");
    symlink(".v2", place.path("..tmp")).expect("made");
    fs::rename(place.path("..tmp"), place.path("..data")).expect("renamed");
    let site = site.with_changes(&["..data".into()]);
    assert_eq!(
        (get(&site, "/page").body, get(&site, "/f/x").body),
        (b"two".into(), b"x2".into())
    );
    place.write(".v2/f/x", "changed");
    let site = site.with_changes(&[".v2/f/x".into()]);
    assert_eq!(get(&site, "/f/x").body, b"changed");
}

/// A watch reports only one path of a folder, and the change must show under all paths.
#[test]
fn a_change_shows_under_all_paths_of_a_folder() {
    let place = Place::new();
    place.write("a/x", "1").write("b/y", "");
    symlink("../a", place.path("b/alias")).expect("made");
    symlink("../b/alias/x", place.path("b/direct")).expect("made");
    let mut site = place.site();
    for (content, told) in [("22", "a/x"), ("333", "b/alias/x"), ("4444", "a")] {
        place.write("a/x", content);
        site = site.with_changes(&[told.into()]);
        for path in ["/a/x", "/b/alias/x", "/b/direct"] {
            assert_eq!(get(&site, path).body, content.as_bytes(), "{told} {path}");
        }
    }
}

#[test]
fn a_change_shares_unchanged_parts() {
    let place = Place::new();
    place
        .write("a/deep/x", "1")
        .write("a/deep/y", "y")
        .write("a/other/z", "z")
        .write("b/w", "w");
    let old = place.site();
    let folder = |site: &Site, path: &str| match site.tree.lookup(path.as_bytes(), b"") {
        Some(FolderNode::Folder(folder)) => Arc::clone(folder),
        _ => panic!("{path} is a folder"),
    };
    let file = |site: &Site, path: &str| match site.tree.lookup(path.as_bytes(), b"") {
        Some(FolderNode::File(file)) => Arc::clone(file),
        _ => panic!("{path} is a file"),
    };
    get(&old, "/a/deep/y");
    assert!(old.same_tree(&old.with_changes(&["a/deep/x".into(), "nothing/at/all".into()])));
    assert!(old.same_tree(&old.with_changes(&[PathBuf::new()])));
    place.write("a/deep/x", "22");
    let new = old.with_changes(&["a/deep/x".into()]);
    for path in ["a", "a/deep"] {
        assert!(
            !Arc::ptr_eq(&folder(&old, path), &folder(&new, path)),
            "{path}"
        );
    }
    for path in ["a/other", "b"] {
        assert!(
            Arc::ptr_eq(&folder(&old, path), &folder(&new, path)),
            "{path}"
        );
    }
    assert!(Arc::ptr_eq(
        &file(&old, "a/deep/y"),
        &file(&new, "a/deep/y")
    ));
    assert!(!Arc::ptr_eq(
        &file(&old, "a/deep/x"),
        &file(&new, "a/deep/x")
    ));
    // Loaded content stays loaded, even after a scan of the whole folder.
    let whole = new.with_changes(&[PathBuf::new()]);
    assert!(matches!(
        answer(&whole, "GET /a/deep/y"),
        SiteResponse::Stored(_)
    ));
    assert_eq!(get(&new, "/a/deep/x").body, b"22");
    assert_eq!(get(&old, "/a/deep/x").status, 503);
    // A sidecar is added and removed.
    place.write("b/w.gz", "gz");
    let with = new.with_changes(&["b/w.gz".into()]);
    assert_eq!(ask(&with, "GET /b/w\nAccept-Encoding: gzip").body, b"gz");
    fs::remove_file(place.path("b/w.gz")).expect("removed");
    let without = with.with_changes(&["b/w.gz".into()]);
    assert_eq!(ask(&without, "GET /b/w\nAccept-Encoding: gzip").body, b"w");
    fs::remove_dir_all(place.path("a")).expect("removed");
    let less = without.with_changes(&["a/deep/x".into(), "a".into()]);
    assert_eq!(get(&less, "/a/deep/y").status, 404);
    assert!(!less.root_moved());
    fs::rename(place.path(""), place.base.path().join("away")).expect("renamed");
    assert!(less.root_moved());
}

#[test]
fn a_file_that_changes_during_the_load_is_refused() {
    let place = Place::new();
    let large = "x".repeat(200_000);
    type Change = fn(&Place);
    let changes: [(&str, Change); 5] = [
        ("replaced", |place| {
            place.write("new", "replaced");
            fs::rename(place.path("new"), place.path("a")).expect("renamed");
        }),
        ("truncated", |place| {
            place.write("a", "");
        }),
        ("appended", |place| {
            let mut file = fs::File::options()
                .append(true)
                .open(place.path("a"))
                .expect("there");
            std::io::Write::write_all(&mut file, b"more").expect("written");
        }),
        ("removed", |place| {
            fs::remove_file(place.path("a")).expect("removed")
        }),
        ("a fifo", |place| {
            fs::remove_file(place.path("a")).expect("removed");
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, place.path("a"), kind, 0o600.into(), 0)
                .expect("made");
        }),
    ];
    for (what, change) in changes {
        for content in ["small", large.as_str()] {
            let _ = fs::remove_file(place.path("a"));
            place.write("a", content);
            let site = place.site();
            change(&place);
            let reply = get(&site, "/a");
            let gone = what == "removed" || what == "a fifo";
            assert_eq!(reply.status, if gone { 404 } else { 503 }, "{what}");
            // The failure is recorded, so the load is not repeated at once.
            assert!(
                matches!(answer(&site, "GET /a"), SiteResponse::Refuse(_)),
                "{what}"
            );
            assert_eq!(site.take_stale(), [PathBuf::from("a")], "{what}");
            let site = site.with_changes(&["a".into()]);
            let now = get(&site, "/a");
            if gone {
                assert_eq!(now.status, 404, "{what}");
            } else {
                assert_eq!(
                    (now.status, now.body),
                    (200, fs::read(place.path("a")).expect("there"))
                );
            }
        }
    }
}

#[test]
fn changes_of_a_file_on_disk_are_detected_while_sending() {
    let place = Place::new();
    let large = "x".repeat(200_000);
    place.write("a", &large).age("a", 9);
    let site = place.site();
    let SiteResponse::Load(load) = answer(&site, "GET /a") else {
        panic!("not loaded yet")
    };
    load.run();
    let SiteResponse::Stored(stored) = answer(&site, "GET /a") else {
        panic!("loaded")
    };
    assert!(stored.whole_memory().is_none());
    let Some(BodyPiece::File {
        content,
        offset: 0,
        len: 200_000,
    }) = stored.piece(0)
    else {
        panic!("from disk")
    };
    assert!(content.unchanged());
    // Replaced by another file: the old content is still complete.
    place.write("b", "new");
    fs::rename(place.path("b"), place.path("a")).expect("renamed");
    assert!(content.unchanged());
    let mut bytes = vec![0; 200_000];
    content.file.read_exact_at(&mut bytes, 0).expect("there");
    assert_eq!(bytes, large.as_bytes());
    place.write("c", &large).age("c", 9);
    let site = site.with_changes(&["c".into()]);
    get(&site, "/c");
    let SiteResponse::Stored(stored) = answer(&site, "GET /c") else {
        panic!("loaded")
    };
    fs::File::options()
        .write(true)
        .open(place.path("c"))
        .expect("there")
        .set_len(10)
        .expect("cut");
    assert!(!stored.variant.disk().expect("on disk").unchanged());
}

/// All senders of a file share a check for a moment.
#[test]
fn a_check_of_a_file_is_shared_for_a_moment() {
    let place = Place::new();
    place.write("a", "a".repeat(200_000)).age("a", 9);
    let site = place.site();
    get(&site, "/a");
    let SiteResponse::Stored(stored) = answer(&site, "GET /a") else {
        panic!("loaded")
    };
    let disk = stored.variant.disk().expect("on disk");
    let write = fs::File::options().write(true).open(place.path("a"));
    let file = write.expect("there");
    assert!(disk.was_unchanged(1_000));
    file.set_len(10).expect("cut");
    let moment = crate::limits::FILE_STAT_INTERVAL_MICROSECONDS_MIN;
    assert!(disk.was_unchanged(1_000 + moment - 1));
    // The clock of another worker may lag behind.
    assert!(disk.was_unchanged(900));
    assert!(!disk.was_unchanged(1_000 + moment));
    // A failed check is repeated each time.
    assert!(!disk.was_unchanged(1_001 + moment));
    file.set_len(200_000).expect("made longer");
    assert!(!disk.was_unchanged(1_002 + moment), "by its time");
}

/// Under constant replacement of a file, each response is a complete version.
#[test]
fn replaced_files_are_sent_whole_under_load() {
    let place = Place::new();
    let version = |byte: u8| vec![byte; 20_000 + usize::from(byte)];
    place.write("a", version(b'a'));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for byte in (b'b'..=b'z').cycle() {
                place.write("new", version(byte));
                fs::rename(place.path("new"), place.path("a")).expect("renamed");
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut site = place.site();
        for _ in 0..200 {
            site = site.with_changes(&["a".into()]);
            let reply = get(&site, "/a");
            match reply.status {
                200 => assert_eq!(reply.body, version(reply.body[0])),
                other => assert!(other == 503 || other == 404, "{other}"),
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A folder keeps turning into a link to the outside and back, during scans and loads.
#[test]
fn no_race_serves_files_outside_the_root() {
    let place = Place::new();
    place.write("a/file", "open");
    fs::create_dir(place.base.path().join("secret")).expect("made");
    fs::write(place.base.path().join("secret/file"), "SECRET").expect("made");
    symlink("../secret", place.path("trap")).expect("made");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (place.path("a"), place.path("trap"));
            let cwd = rustix::fs::CWD;
            while !done.load(Ordering::Relaxed) {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                if rustix::fs::renameat_with(cwd, &one, cwd, &other, swap).is_err() {
                    break;
                }
            }
        });
        for resolver in [PathResolver::Kernel, PathResolver::Walk] {
            let budget = Arc::new(ContentBudget::new(0));
            let mut site = Site::open_with(place.rules(), budget, Some(resolver)).expect("opens");
            for _ in 0..500 {
                site = site.with_changes(&["a".into(), "trap".into()]);
                for path in ["/a/file", "/trap/file"] {
                    assert_ne!(get(&site, path).body, b"SECRET", "{resolver:?}");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_content_budget_holds() {
    let place = Place::new();
    for nth in 0..40 {
        place.write(&format!("{nth}"), vec![b'x'; 8_000]);
        place.write(&format!("large{nth}"), vec![b'x'; 150_000]);
    }
    let budget = Arc::new(ContentBudget::exactly(100_000, 8));
    let site = Site::open(place.rules(), Arc::clone(&budget)).expect("opens");
    let loaded = |path: &str| {
        matches!(
            answer(&site, &format!("GET {path}")),
            SiteResponse::Stored(_)
        )
    };
    for nth in 0..40 {
        assert_eq!(get(&site, &format!("/{nth}")).status, 200);
        assert!(budget.bytes_used() <= 100_000);
        // A variant in constant use stays loaded.
        assert!(loaded("/0"), "after {nth}");
    }
    let there = (0..40).filter(|nth| loaded(&format!("/{nth}"))).count();
    assert!((5..12).contains(&there), "{there}");
    for nth in 0..40 {
        assert_eq!(get(&site, &format!("/large{nth}")).body.len(), 150_000);
    }
    let there = (0..40)
        .filter(|nth| loaded(&format!("/large{nth}")))
        .count();
    assert_eq!(there, 8);
    // A process that gives its contents up still answers from the disk.
    budget.give_up();
    assert_eq!((budget.bytes_used(), budget.descriptors_used()), (0, 0));
    for nth in 0..3 {
        assert_eq!(get(&site, &format!("/{nth}")).status, 200);
        assert!(budget.bytes_used() < 20_000);
        assert_eq!(get(&site, &format!("/large{nth}")).body.len(), 150_000);
        assert!(budget.descriptors_used() <= 1);
    }
    drop(site);
    assert_eq!(budget.bytes_used(), 0);
    // A budget too small for any content still permits responses.
    let site = Site::open(place.rules(), Arc::new(ContentBudget::exactly(1, 1))).expect("opens");
    for path in ["/1", "/2", "/large1", "/large2", "/1"] {
        assert_eq!(get(&site, path).status, 200, "{path}");
    }
}

#[test]
fn smaller_files_keep_a_descriptor_while_there_is_room() {
    let place = Place::new();
    for nth in 0..5 {
        place.write(&format!("{nth}"), vec![b'x'; 40_000]);
    }
    place.write("small", "small");
    let site =
        Site::open(place.rules(), Arc::new(ContentBudget::exactly(1 << 20, 6))).expect("opens");
    let mut kept = 0;
    for name in ["0", "1", "2", "3", "4", "small"] {
        get(&site, &format!("/{name}"));
        let SiteResponse::Stored(stored) = answer(&site, &format!("GET /{name}")) else {
            panic!("loaded")
        };
        assert!(stored.whole_memory().is_some());
        kept += usize::from(stored.variant.disk().is_some());
    }
    assert_eq!(kept, 3);
}

/// A tree of 100,000 files costs at most 200 bytes for each file, names excluded.
#[test]
fn a_tree_of_100_000_files_stays_small() {
    let place = Place::new();
    let inner = place.path("");
    for folder in 0..100 {
        let folder = inner.join(format!("folder{folder}"));
        fs::create_dir(&folder).expect("made");
        for nth in 0..1000 {
            fs::File::create(folder.join(format!("{nth}.html"))).expect("made");
        }
    }
    let site = place.site();
    assert_eq!(site.count().0, 100_000);
    // Allocator overhead: blocks of 16 bytes with 8 bytes of header, and the two counts of an Arc.
    let block = |bytes: usize| (bytes + 8).next_multiple_of(16);
    let each = size_of::<FolderEntry>() + block(size_of::<SiteFile>() + 2 * size_of::<usize>());
    let folders = 101 * (block(size_of::<SiteFolder>() + 2 * size_of::<usize>()) + 2 * 16);
    let all = 100_000 * each + folders;
    assert!(all <= 100_000 * 200, "{} bytes a file", all / 100_000);
    // After a change, one file is read and the rest of the tree shared.
    fs::write(inner.join("folder7/7.html"), "new").expect("written");
    let new = site.with_changes(&["folder7/7.html".into()]);
    let mut shared = 0;
    for (name, entry) in new.tree.iter() {
        let (FolderNode::Folder(new), Some(FolderNode::Folder(old))) =
            (&entry.node, site.tree.find(name).map(|entry| &entry.node))
        else {
            panic!("folders")
        };
        shared += usize::from(Arc::ptr_eq(new, old));
    }
    assert_eq!(shared, 99);
    assert_eq!(get(&new, "/folder7/7.html").body, b"new");
}

/// Writes all facts of a tree as text.
fn dump(folder: &SiteFolder, indent: usize, out: &mut String) {
    use std::fmt::Write;
    for (name, entry) in folder.iter() {
        let name = String::from_utf8_lossy(name);
        let link = if entry.link { "@" } else { "" };
        let _ = write!(out, "{:indent$}{name}{link} ", "");
        let _ = match &entry.node {
            FolderNode::Folder(below) => {
                let _ = writeln!(
                    out,
                    "{:?}",
                    (below.meta, below.holds_links, below.index().map(|i| i.0))
                );
                dump(below, indent + 1, out);
                Ok(())
            }
            FolderNode::File(file) => {
                let sidecars = [ContentCoding::Gzip, ContentCoding::Br, ContentCoding::Zstd]
                    .map(|coding| file.version_of(VariantKind::Sidecar(coding)));
                writeln!(out, "{:?} {sidecars:?}", file.version)
            }
            FolderNode::Refused(why) => writeln!(out, "{why:?}"),
        };
    }
}

fn dumped(site: &Site) -> String {
    let mut out = String::new();
    dump(&site.tree, 0, &mut out);
    out
}

#[derive(Clone, Debug)]
enum Change {
    Write(String, u8),
    Remove(String),
    Folder(String),
    Rename(String, String),
    Link(String, String),
}

fn some_path() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c"]),
        2 => prop::sample::select(vec!["a.gz", "a.br", "b.zst", "index.html"]),
        1 => prop::sample::select(vec![".h", ".well-known"]),
    ];
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn some_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (some_path(), any::<u8>()).prop_map(|(path, size)| Change::Write(path, size)),
        2 => some_path().prop_map(Change::Remove),
        2 => some_path().prop_map(Change::Folder),
        2 => (some_path(), some_path()).prop_map(|(from, to)| Change::Rename(from, to)),
        2 => (some_path(), prop_oneof![
            some_path(),
            some_path().prop_map(|path| format!("../{path}")),
            some_path().prop_map(|path| format!("/{path}")),
            Just("..".to_owned()),
            Just("../../outside".to_owned()),
        ]).prop_map(|(path, target)| Change::Link(path, target)),
    ]
}

/// Applies a change if possible inside the root. Returns the paths that a watch would report: the path as
/// given and the real path.
fn apply(place: &Place, change: &Change) -> Vec<PathBuf> {
    let root = place.path("").canonicalize().expect("there");
    let mut told = Vec::new();
    let mut real = |path: &str| {
        let path = Path::new(path);
        told.push(path.to_owned());
        let parent = root.join(path.parent()?).canonicalize().ok()?;
        let real = parent.join(path.file_name()?);
        told.push(real.strip_prefix(&root).ok()?.to_owned());
        Some(real)
    };
    let done = match change {
        Change::Write(path, size) => real(path)
            .filter(|real| !real.is_symlink())
            .map(|real| fs::write(real, vec![b'x'; usize::from(*size)])),
        Change::Remove(path) => {
            real(path).map(|real| fs::remove_file(&real).or_else(|_| fs::remove_dir_all(&real)))
        }
        Change::Folder(path) => real(path).map(fs::create_dir),
        Change::Rename(from, to) => {
            let both = real(from).zip(real(to));
            both.map(|(from, to)| fs::rename(from, to))
        }
        Change::Link(path, target) => real(path).map(|real| symlink(target, real)),
    };
    // A failed change leaves the tree unchanged, which is a valid test case too.
    drop(done);
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any reported changes, the updated tree equals the tree of a fresh scan.
    #[test]
    fn updated_trees_equal_fresh_scans(
        batches in prop::collection::vec(prop::collection::vec(some_change(), 1..6), 1..8)
    ) {
        let place = Place::new();
        for folder in ["a/b/c", "b/a", "c/.h", ".h/a/b", ".well-known/a"] {
            fs::create_dir_all(place.path(folder)).expect("made");
        }
        let mut site = place.site();
        for batch in batches {
            let told: Vec<PathBuf> = batch.iter().flat_map(|change| apply(&place, change)).collect();
            site = site.with_changes(&told);
            prop_assert_eq!(dumped(&site), dumped(&place.site()), "after {:?}", batch);
        }
    }
}

#[test]
fn unfinished_files_wait() {
    check_that_unfinished_files_wait(Place::new());
    // With a link in the tree, the possible target folders are examined under all paths.
    let place = Place::new();
    symlink("nowhere", place.path("link")).expect("made");
    check_that_unfinished_files_wait(place);
}

fn check_that_unfinished_files_wait(place: Place) {
    place
        .write("old", "1")
        .write("told", "1")
        .write("gone", "1");
    let site = place.site();
    place
        .write("old", "22")
        .write("told", "22")
        .write("new", "333");
    place
        .write("folder/told", "4444")
        .write("folder/met", "55555");
    // The file was removed and created again.
    fs::remove_file(place.path("gone")).expect("removed");
    place.write("gone", "666666");
    let waiting = ["folder/met", "folder/told", "gone", "new", "old", "told"].map(PathBuf::from);
    let open = |path: &PathBuf| {
        let mut writing = fs::OpenOptions::new();
        writing.append(true);
        let path = place.path(path.to_str().expect("a name"));
        writing.open(path).expect("opened")
    };
    let writers: Vec<_> = waiting.iter().map(open).collect();
    let paths = ["told", "folder", "folder/told", ""].map(|path| (path, WriteReport::Closed));
    let changes = |site: &Site, paths: &[(&str, WriteReport)], settled_ns| {
        let paths = paths
            .iter()
            .map(|(path, report)| (Path::new(path), *report));
        let unsure = [(Path::new("gone"), WriteReport::Unsure)];
        let (site, mut unsettled) = site.with_settled_changes(paths.chain(unsure), settled_ns);
        unsettled.sort();
        (site, unsettled)
    };
    // With `settled_ns` 0, all changes count as recent. The paths of closed files may have new writers.
    let (half, unsettled) = changes(&site, &paths[..3], 0);
    let met = ["folder/met", "folder/told", "gone", "told"].map(PathBuf::from);
    assert_eq!(unsettled, met);
    assert_eq!(half.count(), (3, 1 + 1 + 1));
    let (half, unsettled) = changes(&site, &paths, 0);
    assert_eq!(unsettled, waiting);
    assert_eq!(half.count(), (3, 1 + 1 + 1));
    // New files are refused, and known files keep their content until the writer is overdue.
    for (path, status) in [("/new", 503), ("/folder/met", 503), ("/told", 200)] {
        let refused = matches!(
            answer(&half, &format!("GET {path}")),
            SiteResponse::Refuse(Reject::CHANGING)
        );
        assert_eq!(refused, status == 503, "{path}");
    }
    let (late, unsettled) = changes(&half, &[("told", WriteReport::Overdue)], 0);
    assert_eq!(unsettled, ["gone", "told"].map(PathBuf::from));
    assert_eq!(late.count(), (2, 1 + 1));
    assert_eq!(get(&late, "/told").status, 503);
    assert!(!late.has_file(Path::new("told")) && late.has_name(Path::new("told")));
    for path in &waiting {
        let writers = site.writers(path);
        assert!(matches!(writers, OpenWriters::Some), "{}", path.display());
    }
    // Later, the files are taken regardless of writers.
    let (whole, unsettled) = changes(&late, &paths, i64::MAX);
    assert_eq!(unsettled, [""; 0].map(PathBuf::from));
    assert_eq!(whole.count(), (6, 2 + 2 + 3 + 4 + 5 + 6));
    // Without writers, all files are taken. A child process being forked by another test may hold copies of
    // the descriptors for a moment.
    drop(writers);
    let looks = (0..100_000).map(|_| changes(&half, &paths, 0));
    let writers = site.writers(Path::new("nothing"));
    assert!(matches!(writers, OpenWriters::Unknown));
    let settled = looks.map(|(whole, unsettled)| (whole.count(), unsettled.len()));
    let whole = ((6, 2 + 2 + 3 + 4 + 5 + 6), 0);
    assert!(settled.into_iter().any(|it| it == whole));
}

#[test]
fn first_stale_path_finds_differences_from_the_disk() {
    let place = Place::new();
    place
        .write("file", "1")
        .write("page.html", "1")
        .write("page.html.gz", "1")
        .write("folder/index.htm", "1")
        .write("front", "1");
    symlink("nothing", place.path("link")).expect("made");
    // The scan leaves a loop out, although the kernel follows the link.
    symlink(".", place.path("up")).expect("made");
    let site = place.site_with(|rules| {
        rules.try_paths = ["$path", "$path.html", "/front"].map(str::to_owned).into();
        rules.index = ["index.html", "index.htm"].map(str::to_owned).into();
    });
    let differs = |path: &str| site.first_stale_path(path.as_bytes());
    let all = [
        "/", "/file", "/page", "/folder/", "/folder", "/new", "/link",
    ];
    let more = ["/file/below", "/.hidden", "/new/below", "/up/", "/up/file"];
    for path in all.iter().chain(&more) {
        assert_eq!(differs(path), None, "{path}");
    }
    let named = |path: &str, by: &str| assert_eq!(differs(path), Some(by.into()), "{path}");
    place.write("file", "22");
    named("/file", "file");
    // A compressed sidecar of the page, and a name that takes precedence over the page.
    place.write("page.html.gz", "22");
    named("/page", "page.html.gz");
    place.write("page", "1");
    named("/page", "page");
    place.write("folder/index.html", "1");
    named("/folder/", "folder/index.html");
    place.write("nothing", "1").write("new/below", "1");
    named("/link", "link");
    named("/new", "new");
    fs::remove_file(place.path("front")).expect("removed");
    named("/other", "front");
    place.write(".hidden", "1");
    assert_eq!(differs("/.hidden"), None);
    // `first_unknown` names a path as the folder lists the path, and only if the folder lists the path.
    let first = |path: &str| site.first_unknown(Path::new(path));
    for (path, unknown) in [
        ("file", Some("file")),
        ("new/below", Some("new")),
        ("page", Some("page")),
        ("folder", Some("folder")),
        ("absent", None),
        ("folder/absent", None),
    ] {
        assert_eq!(first(path), unknown.map(PathBuf::from), "{path}");
    }
    fs::rename(place.path(""), place.base.path().join("moved")).expect("renamed");
    fs::create_dir(place.path("")).expect("made");
    named("/file", "");
}

#[test]
fn a_changed_mode_is_taken_despite_writers() {
    let place = Place::new();
    place.write("file", "1");
    let site = place.site();
    let _writer = fs::OpenOptions::new()
        .append(true)
        .open(place.path("file"))
        .expect("opened");
    let mode = fs::Permissions::from_mode(0o604);
    fs::set_permissions(place.path("file"), mode).expect("a mode");
    let touched = || [(Path::new("file"), WriteReport::Unsure)].into_iter();
    // A writer exists, but has written no bytes yet.
    let (same, unsettled) = site.with_settled_changes(touched(), 0);
    assert!(unsettled.is_empty() && !same.same_tree(&site));
    place.write("file", "22");
    let (half, unsettled) = same.with_settled_changes(touched(), 0);
    assert_eq!(unsettled, [PathBuf::from("file")]);
    assert!(half.same_tree(&same));
}

/// Fields of a response with a file that a process has open for writing.
fn must_be_restricted(reply: &Reply) {
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    for field in ["etag", "last-modified", "content-encoding", "vary"] {
        assert_eq!(reply.field(field), None, "{field}");
    }
}

#[test]
fn an_open_file_is_served_as_it_stands_after_a_pause() {
    let place = Place::new();
    let text = TEXT.repeat(40);
    place.write("page.txt", &text).write("page.txt.gz", "coded");
    let site = place.site();
    let request = "GET /page.txt\nAccept-Encoding: gzip";
    let open = || {
        let mut writing = fs::File::options();
        writing
            .append(true)
            .open(place.path("page.txt"))
            .expect("opened")
    };
    let writer = open();
    // The file has changed a moment ago.
    assert_eq!(ask(&site, request).status, 503);
    // Two seconds later, at the earliest.
    let mut reply = ask(&site, request);
    while reply.status == 503 {
        std::thread::sleep(Duration::from_millis(50));
        reply = ask(&site, request);
    }
    assert_eq!((reply.status, reply.body.len()), (200, text.len()));
    must_be_restricted(&reply);
    for (condition, status, length) in [
        ("If-None-Match: \"x\"", 200, text.len()),
        ("If-None-Match: *", 304, 0),
        ("If-Match: \"x\"", 412, 0),
        (
            "If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT",
            200,
            text.len(),
        ),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
            200,
            text.len(),
        ),
        ("Range: bytes=-10", 206, 10),
        ("Range: bytes=1-2,4-5", 200, text.len()),
        ("Range: bytes=-10\nIf-Range: \"x\"", 200, text.len()),
    ] {
        let reply = ask(&site, &format!("GET /page.txt\n{condition}"));
        assert_eq!(
            (reply.status, reply.body.len()),
            (status, length),
            "{condition}"
        );
    }
    assert_eq!(ask(&site, "HEAD /page.txt").body, b"");
    // A change is noticed without a report.
    std::io::Write::write_all(&mut &writer, b"more").expect("written");
    assert_eq!(ask(&site, request).status, 503);
    drop(writer);
    // The kernel may not have finished the close, or another test forks a process with the descriptor.
    let mut reply = ask(&site.with_changes(&["page.txt".into()]), request);
    while reply.status == 503 {
        reply = ask(&site.with_changes(&["page.txt".into()]), request);
    }
    assert_eq!((reply.status, reply.body.len()), (200, text.len() + 4));
    assert!(reply.field("etag").is_some());
}

#[test]
fn a_growing_file_is_served_up_to_its_length() {
    let place = Place::new();
    place.write("logs/a.log", "one\n");
    let site = place.site_with(|rules| {
        rules.growing = vec![Glob::parse("*.log").expect("a glob")];
    });
    let mut file = fs::File::options()
        .append(true)
        .open(place.path("logs/a.log"))
        .expect("opened");
    let mut content = "one\n".to_owned();
    for round in 0..20 {
        let reply = get(&site, "/logs/a.log");
        assert_eq!(
            (reply.status, reply.body.as_slice()),
            (200, content.as_bytes()),
            "{round}"
        );
        must_be_restricted(&reply);
        std::io::Write::write_all(&mut file, b"more\n").expect("written");
        content += "more\n";
    }
    // The content of a response ends at the length at the time of opening.
    let begun = answer(&site, "GET /logs/a.log");
    let begun = match begun {
        SiteResponse::Load(load) => {
            load.run();
            answer(&site, "GET /logs/a.log")
        }
        begun => begun,
    };
    std::io::Write::write_all(&mut file, b"later\n").expect("written");
    let reply = reply(begun);
    assert_eq!(
        (reply.status, reply.body.as_slice()),
        (200, content.as_bytes())
    );
    // A shortened file cannot be completed as announced.
    let SiteResponse::Load(load) = answer(&site, "GET /logs/a.log") else {
        panic!("the file has grown");
    };
    load.run();
    let SiteResponse::Stored(stored) = answer(&site, "GET /logs/a.log") else {
        panic!("loaded");
    };
    assert!(stored.variant.disk().expect("on disk").unchanged());
    file.set_len(2).expect("cut");
    assert!(!stored.variant.disk().expect("on disk").unchanged());
    // A single descriptor stands for all the loads.
    assert_eq!(site.shared.budget.descriptors_used(), 1);
}

/// Rules below `a` and below `a/b`, as of two routes.
fn rules_by_path(rules: &mut SiteRules) {
    let glob = |text: &str| Glob::parse(text).expect("valid");
    rules.errors = vec![(404, "of-site.html".into()), (503, "busy.html".into())];
    rules.below = vec![
        PathRules {
            below: b"a/b".as_slice().into(),
            listing: Some(false),
            try_paths: Some(vec!["$path".into(), "/fixed.html".into()]),
            hide: Some(Vec::new()),
            ..PathRules::default()
        },
        PathRules {
            below: b"a".as_slice().into(),
            index: Some(vec!["main.htm".into()]),
            listing: Some(true),
            hide: Some(vec![glob("*.bak")]),
            errors: vec![(404, "of-a.html".into())],
            ..PathRules::default()
        },
    ];
}

#[test]
fn the_longest_prefix_with_a_rule_decides() {
    let place = Place::new();
    for name in [
        "index.html",
        "fixed.html",
        "a/main.htm",
        "a/index.html",
        "a/old.bak",
        "a/list/x.html",
        "a/b/old.bak",
        "a/b/list/x.html",
        "ab/list/x.html",
        "ab/old.bak",
    ] {
        place.write(name, name);
    }
    let site = place.site_with(rules_by_path);
    for (path, status, body) in [
        ("/", 200, "index.html"),
        ("/a/", 200, "a/main.htm"),
        ("/a/old.bak", 404, ""),
        ("/a/none", 404, ""),
        // Below `a/b`, the fixed page stands for every missing one, and for a folder without an index file.
        ("/a/b/none", 200, "fixed.html"),
        ("/a/b/old.bak", 200, "a/b/old.bak"),
        ("/a/b/list/", 200, "fixed.html"),
        ("/ab/list/", 404, ""),
        ("/ab/old.bak", 200, "ab/old.bak"),
    ] {
        let reply = get(&site, path);
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.status, status, "{path} {reply:?}");
        assert!(body.is_empty() || text == body, "{path} {text}");
    }
    assert!(String::from_utf8_lossy(&get(&site, "/a/list/").body).contains("x.html"));
    let page = |status, path: &str| site.error_path(Status(status), path.as_bytes());
    assert_eq!(page(404, "/x"), Some(&b"of-site.html"[..]));
    assert_eq!(page(404, "/ab"), Some(&b"of-site.html"[..]));
    assert_eq!(page(404, "/a/b/x"), Some(&b"of-a.html"[..]));
    assert_eq!(page(503, "/a"), Some(&b"busy.html"[..]));
    // A change keeps the rules of its folder.
    place
        .write("a/more/main.htm", "new index")
        .write("a/more/old.bak", "hidden");
    let site = site.with_changes(&[PathBuf::from("a/more")]);
    assert_eq!(get(&site, "/a/more/").body, b"new index");
    assert_eq!(get(&site, "/a/more/old.bak").status, 404);
}

#[test]
fn backups_and_exports_are_counted_without_the_paths_left_out() {
    let place = Place::new();
    for name in [
        "a.sql",
        "b/c.bak",
        "b/d/e.OLD.gz",
        "b/d/f.txt",
        "g/h.sql",
        "g.sqlite",
    ] {
        place.write(name, name);
    }
    symlink("../a.sql", place.path("b/link.sql")).expect("a link");
    let site = place.site();
    let found = |left_out: &[&[u8]]| {
        let found = site.doubtful_files(left_out);
        found.map(|(count, first)| (count, first.to_string_lossy().into_owned()))
    };
    let some = |count, first: &str| Some((count, first.to_owned()));
    assert_eq!(found(&[]), some(5, "a.sql"));
    assert_eq!(found(&[b"a.sql", b"b/d"]), some(3, "b/c.bak"));
    assert_eq!(found(&[b"b", b"b/d", b"b", b"missing"]), some(2, "a.sql"));
    assert_eq!(found(&[b"a.sql", b"b"]), some(1, "g/h.sql"));
    assert_eq!(found(&[b""]), None);
    fs::remove_file(place.path("b/c.bak")).expect("removed");
    let site = site.with_changes(&[PathBuf::from("b/c.bak")]);
    assert_eq!(site.doubtful_files(&[]).map(|found| found.0), Some(4));
}
