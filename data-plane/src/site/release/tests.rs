//! Tests of sites from releases, with stores written by hand.

use super::*;
use crate::limits::{RETAINED_FILES_MAX, RETAINED_PATH_BYTES_MAX};
use crate::site::file::VariantKind;
use crate::site::file_version::FileMeta;
use crate::site::folder::FolderNode;
use crate::site::tests::{Reply, answer, ask, get};
use crate::site::{CacheControlRule, ContentBudget, Site, SiteResponse, SiteRules};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base::atomic_file;
use base::digest::{hex, sha256};
use release::glob::Glob;
use release::release_pointer::ReleasePointer;
use release::store::ReleaseSupport;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use wire::fields::ContentCoding;

/// Store in a temporary folder.
struct TestStore(TempDir);

impl TestStore {
    fn new() -> TestStore {
        TestStore(tempfile::tempdir().expect("a folder"))
    }

    fn rules(&self) -> ReleaseRules {
        ReleaseRules {
            store: self.0.path().join("store"),
            site: "www".to_owned(),
            publishers: Vec::new(),
            site_id: None,
            served: self.0.path().join("served"),
            support: ReleaseSupport::find().expect("the feature"),
        }
    }

    fn site(&self) -> Site {
        self.site_with(|_| {})
    }

    fn site_with(&self, change: impl FnOnce(&mut SiteRules)) -> Site {
        let mut rules = SiteRules::of_release(self.rules());
        change(&mut rules);
        Site::open(rules, Arc::new(ContentBudget::new(8 << 20))).expect("opens")
    }

    /// Stores a content, and returns its path.
    fn blob(&self, content: &[u8]) -> PathBuf {
        let path = self.rules().blob(&sha256(content));
        write(&path, content);
        path
    }

    /// Publishes a release. `{TEXT}` in a line stands for the size and the digest of the text, which is stored.
    fn publish(&self, sequence: u64, lines: &[&str]) -> [u8; 32] {
        let release = self.manifest(lines);
        write(
            &self.rules().pointer(),
            pointer(release, sequence).text().as_bytes(),
        );
        release
    }

    fn manifest(&self, lines: &[&str]) -> [u8; 32] {
        let mut text = "anthill release 1\n".to_owned();
        for line in lines {
            match line
                .split_once('{')
                .and_then(|(start, rest)| Some((start, rest.split_once('}')?)))
            {
                Some((start, (content, rest))) => {
                    self.blob(content.as_bytes());
                    let digest = hex(&sha256(content.as_bytes()));
                    text += &format!("{start}{} {digest}{rest}\n", content.len());
                }
                None => text += &format!("{line}\n"),
            }
        }
        self.blob(text.as_bytes());
        sha256(text.as_bytes())
    }

    fn withdraw(&self, release: [u8; 32]) {
        write(&self.rules().withdrawn().join(hex(&release)), b"");
    }
}

fn pointer(release: [u8; 32], sequence: u64) -> ReleasePointer {
    ReleasePointer {
        site: "www".to_owned(),
        site_id: None,
        release,
        sequence,
        time: 1_763_899_200,
        publisher: "ann@laptop".to_owned(),
    }
}

fn write(path: &std::path::Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, content).expect("written");
}

fn text(reply: &Reply) -> (u16, u16, &str) {
    let body = std::str::from_utf8(&reply.body).expect("text");
    (reply.status, reply.rule, body)
}

/// Returns the address of a loaded variant, to compare variants of two sites.
fn loaded(site: &Site, path: &str) -> Option<usize> {
    match site.tree.lookup(path.as_bytes(), b"") {
        Some(FolderNode::File(file)) => {
            let variant = file.slot(VariantKind::Identity)?.load_full()?;
            Some(Arc::as_ptr(&variant) as usize)
        }
        _ => None,
    }
}

#[test]
fn a_release_is_served_like_a_folder() {
    let store = TestStore::new();
    store.publish(
        1,
        &[
            "error 404 404.html",
            "file {lost} 404.html",
            "file {a} a/b/c.txt",
            "file {sub} a/index.html",
            "file {dash} a-b.html",
            "hashed {code} app.0123abcd.js",
            "file {home} index.html",
            "gzip {coded}",
            "file {big} list/x",
        ],
    );
    let site = store.site_with(|rules| {
        rules.try_paths = vec!["$path".into(), "$path.html".into()];
        rules.listing = true;
    });
    assert_eq!(site.count(), (7, 4 + 1 + 3 + 4 + 4 + 4 + 3));
    for (request, status, rule, body) in [
        ("GET /", 200, 0, "home"),
        ("GET /index.html", 200, 0, "home"),
        ("HEAD /", 200, 0, ""),
        ("GET /a/", 200, 0, "sub"),
        ("GET /a/b/c.txt", 200, 0, "a"),
        ("GET /a-b", 200, 0, "dash"),
        ("GET /index.html.gz", 404, 501, ""),
        ("GET /a/b/c.txt/x", 404, 501, ""),
        ("GET /none", 404, 501, ""),
        ("POST /", 405, 505, ""),
        ("GET /.env", 404, 502, ""),
    ] {
        assert_eq!(
            text(&ask(&site, request)),
            (status, rule, body),
            "{request}"
        );
    }
    assert_eq!(get(&site, "/a").location, "/a/");
    let coded = ask(&site, "GET /\nAccept-Encoding: gzip");
    assert_eq!(coded.body, b"coded");
    assert_eq!(coded.field("Content-Encoding"), Some("gzip"));
    let plain = get(&site, "/");
    assert_eq!(coded.field("Last-Modified"), plain.field("Last-Modified"));
    assert_eq!(plain.field("Vary"), Some("Accept-Encoding"));
    let listing = get(&site, "/list/");
    assert!(String::from_utf8_lossy(&listing.body).contains("2025-11-23"));
    let app = get(&site, "/app.0123abcd.js");
    assert_eq!(
        app.field("Cache-Control"),
        Some("max-age=31536000, immutable")
    );
    assert_eq!(
        site.error_path(wire::status::Status(404), b"/"),
        Some(&b"404.html"[..])
    );
    // Equal content has one entity tag in a folder and in a release.
    let folder = store.0.path().join("folder");
    write(&folder.join("index.html"), b"home");
    let folder = Site::open(
        SiteRules::new(folder),
        Arc::new(ContentBudget::new(8 << 20)),
    );
    let of_folder = get(&folder.expect("opens"), "/");
    assert_eq!(of_folder.field("ETag"), plain.field("ETag"));
}

#[test]
fn rules_of_the_operator_win() {
    let store = TestStore::new();
    store.publish(
        1,
        &[
            "error 404 theirs.html",
            "error 410 gone.html",
            "cache 60 *.css",
            "cache 5 **",
            "fields **",
            "field X-A theirs",
            "field X-B theirs",
            "fields *.html",
            "field Cache-Control no-store",
            "file {c} a.css",
            "file {h} a.html",
            "hashed {j} a.js",
            "gzip {z}",
        ],
    );
    let site = store.site_with(|rules| {
        rules.errors = vec![(404, "ours.html".into())];
        rules.headers = vec![(
            Glob::parse("*").expect("a glob"),
            vec![("x-b".into(), "ours".into())],
        )];
    });
    let field = |site: &Site, path: &str, name: &str| {
        get(site, path).field(name).unwrap_or_default().to_owned()
    };
    assert_eq!(field(&site, "/a.css", "Cache-Control"), "max-age=60");
    assert_eq!(field(&site, "/a.js", "Cache-Control"), "max-age=5");
    assert_eq!(field(&site, "/a.html", "Cache-Control"), "no-store");
    assert_eq!(field(&site, "/a.css", "X-A"), "theirs");
    assert_eq!(field(&site, "/a.css", "X-B"), "ours");
    let page = |status| site.error_path(wire::status::Status(status), b"/");
    assert_eq!(page(404), Some(&b"ours.html"[..]));
    assert_eq!(page(410), Some(&b"gone.html"[..]));
    let rule = CacheControlRule {
        max_age_seconds: 7,
        immutable: false,
        only_hashed: false,
    };
    let site = store.site_with(|rules| {
        rules.cache = vec![(Glob::parse("*").expect("a glob"), rule)];
    });
    for path in ["/a.css", "/a.html", "/a.js"] {
        assert_eq!(field(&site, path, "Cache-Control"), "max-age=7", "{path}");
    }
    // A content with a coding by a rule is sent as published, without a second coding.
    let site = store.site_with(|rules| {
        rules.encodings = vec![(Glob::parse("*.js").expect("a glob"), ContentCoding::Br)];
    });
    let coded = ask(&site, "GET /a.js\nAccept-Encoding: gzip");
    assert_eq!(coded.body, b"j");
    assert_eq!(coded.field("Content-Encoding"), Some("br"));
}

#[test]
fn equal_content_stays_loaded_over_a_change_of_the_release() {
    let store = TestStore::new();
    let lines = [
        "cache 60 *.css",
        "file {c} a/a.css",
        "file {old} a/page",
        "file {p} b/page",
        "file {s} page",
        "gzip {z1}",
    ];
    store.publish(1, &lines);
    let site = store.site();
    let paths = ["a/a.css", "a/page", "b/page", "page"];
    let load_all = |site: &Site| {
        paths.map(|path| {
            assert_eq!(get(site, &format!("/{path}")).status, 200);
            loaded(site, path)
        })
    };
    let before = load_all(&site);
    assert!(before.iter().all(Option::is_some));
    let unchanged = site.reopened();
    assert!(unchanged.refused.is_none() && unchanged.site.same_tree(&site));
    // One page, and one coding of another page, change.
    let next = ["file {new} a/page", "gzip {z2}"];
    store.publish(
        2,
        &[lines[0], lines[1], next[0], lines[3], lines[4], next[1]],
    );
    let second = site.reopened();
    assert!(second.refused.is_none() && second.site.same_root(&site));
    let second = second.site;
    assert!(!second.same_tree(&site));
    let kept = paths.map(|path| loaded(&second, path));
    assert_eq!(kept, [before[0], None, before[2], None]);
    assert_eq!(get(&second, "/a/page").body, b"new");
    assert_eq!(
        get(&site, "/a/page").body,
        b"old",
        "the old release is still whole"
    );
    // Another rule changes the heads of one file.
    let before = load_all(&second);
    store.publish(
        3,
        &[
            "cache 61 *.css",
            lines[1],
            next[0],
            lines[3],
            lines[4],
            next[1],
        ],
    );
    let third = second.reopened().site;
    let kept = paths.map(|path| loaded(&third, path));
    assert_eq!(kept, [None, before[1], before[2], before[3]]);
    let style = get(&third, "/a/a.css");
    assert_eq!(style.field("Cache-Control"), Some("max-age=61"));
    // A higher sequence of an equal release.
    store.publish(
        4,
        &[
            "cache 61 *.css",
            lines[1],
            next[0],
            lines[3],
            lines[4],
            next[1],
        ],
    );
    let fourth = third.reopened().site;
    assert!(!fourth.same_tree(&third) && Arc::ptr_eq(&fourth.tree, &third.tree));
}

#[test]
fn wrong_content_is_refused() {
    let store = TestStore::new();
    let large = "x".repeat(200_000);
    let line = format!("file {{{large}}} large");
    let lines = [
        "file {b} coded",
        "gzip {z}",
        "file {a} fine",
        &line,
        "file {l} link",
        "file {m} missing",
        "file {p} pipe",
        "file {abc} short",
    ];
    store.publish(1, &lines);
    let of = |content: &str| store.rules().blob(&sha256(content.as_bytes()));
    // One byte differs in the middle.
    let mut wrong = large.clone().into_bytes();
    wrong[100_000] = b'y';
    fs::write(of(&large), wrong).expect("written");
    fs::write(of("abc"), "ab").expect("written");
    fs::write(of("z"), "Z").expect("written");
    fs::remove_file(of("m")).expect("removed");
    fs::rename(of("l"), store.0.path().join("target")).expect("renamed");
    symlink(store.0.path().join("target"), of("l")).expect("linked");
    fs::remove_file(of("p")).expect("removed");
    fs::create_dir(of("p")).expect("made");
    let site = store.site();
    for path in ["/large", "/link", "/missing", "/pipe", "/short"] {
        assert_eq!(text(&get(&site, path)), (500, 513, ""), "{path}");
    }
    assert_eq!(text(&get(&site, "/fine")), (200, 0, "a"));
    // A wrong coding is left out.
    let coded = ask(&site, "GET /coded\nAccept-Encoding: gzip");
    assert_eq!(text(&coded), (200, 0, "b"));
    // The next publication heals the store.
    fs::write(of(&large), &large).expect("written");
    store.publish(2, &[&line]);
    assert_eq!(get(&site.reopened().site, "/large").body, large.as_bytes());
}

#[test]
fn a_refused_release_leaves_the_last_good_release() {
    let store = TestStore::new();
    let empty = store.site();
    assert_eq!(text(&get(&empty, "/")), (503, 514, ""));
    assert!(empty.reopened().refused.is_none() && empty.reopened().site.same_tree(&empty));
    let first = store.publish(1, &["file {1} index.html"]);
    let site = empty.reopened().site;
    assert_eq!(text(&get(&site, "/")), (200, 0, "1"));
    let other_site = ReleasePointer {
        site: "other".to_owned(),
        ..pointer(first, 2)
    };
    let torn = store.manifest(&["file {1} b", "file {1} a"]);
    let damaged = store.manifest(&["file {2} index.html"]);
    fs::write(store.rules().blob(&damaged), "anthill release 1\n").expect("written");
    let redirect = store.manifest(&["redirect 301 /a javascript:x"]);
    let field = store.manifest(&["fields **", "field Content-Length 1"]);
    let cookie = store.manifest(&["fields **", "field X-A 1", "field set-cookie a=b"]);
    let deep = store.manifest(&[&format!("file {{1}} {}x", "a/".repeat(64))]);
    // An earlier version of the receiver accepted such manifests.
    let long_glob = format!("cache 1 *{}", "x".repeat(1_000_000));
    let long_glob = store.manifest(&[&long_glob, "file {1} index.html"]);
    let long_field = format!("field X-A {}", "b".repeat(8_000_000));
    let long_field = store.manifest(&["fields **", &long_field, "file {1} index.html"]);
    let withdrawn = store.manifest(&["file {3} index.html"]);
    store.withdraw(withdrawn);
    for (text_of_pointer, reason) in [
        (
            "anthill pointer 2\n".to_owned(),
            "this is no pointer of a version that this server reads",
        ),
        (other_site.text(), "the pointer is for the site `other`"),
        (pointer([7; 32], 2).text(), "it is missing from the store"),
        (
            pointer(torn, 2).text(),
            "line 3 of the manifest: the files are not in the order of their names",
        ),
        (
            pointer(damaged, 2).text(),
            "the manifest differs from its digest",
        ),
        (
            pointer(redirect, 2).text(),
            "the destination of a redirect is neither a path nor a URL of http or https",
        ),
        (
            pointer(field, 2).text(),
            "line 3 of the manifest: only the server sets this field",
        ),
        (
            pointer(cookie, 2).text(),
            "line 4 of the manifest: this field concerns the whole host, so only the operator sets the field",
        ),
        (
            pointer(deep, 2).text(),
            "a path lies below more than 64 folders",
        ),
        (
            pointer(long_glob, 2).text(),
            "line 2 of the manifest: the glob is longer than 256 bytes",
        ),
        (
            pointer(long_field, 2).text(),
            "line 3 of the manifest: the value of a field is longer than 8 KiB",
        ),
        (pointer(withdrawn, 2).text(), "is withdrawn"),
    ] {
        fs::write(store.rules().pointer(), text_of_pointer).expect("written");
        let reopened = site.reopened();
        let refused = reopened.refused.expect("a refusal");
        assert!(refused.what.ends_with(reason), "{refused}");
        assert!(reopened.site.same_tree(&site), "{reason}");
        let rule = if reason == "is withdrawn" { 515 } else { 514 };
        assert_eq!(text(&get(&store.site(), "/")), (503, rule, ""), "{reason}");
    }
    fs::remove_file(store.rules().pointer()).expect("removed");
    assert!(site.reopened().refused.is_some());
    symlink("/etc/passwd", store.rules().pointer()).expect("linked");
    let refused = site.reopened().refused.expect("a refusal");
    assert_eq!(
        refused.what,
        "a link stands in place of a file of the store"
    );
    // The withdrawal of the served release ends all answers, also with a broken pointer.
    store.withdraw(first);
    let ended = site.reopened();
    assert!(ended.refused.is_some());
    assert_eq!(text(&get(&ended.site, "/")), (503, 515, ""));
    assert_eq!(text(&get(&ended.site, "/none")), (503, 515, ""));
    assert!(ended.site.reopened().site.same_tree(&ended.site));
    fs::remove_file(store.rules().pointer()).expect("removed");
    store.publish(3, &["file {4} index.html"]);
    assert_eq!(text(&get(&ended.site.reopened().site, "/")), (200, 0, "4"));
}

fn key(pair: &Ed25519KeyPair) -> [u8; 32] {
    pair.public_key().as_ref().try_into().expect("32 bytes")
}

/// Returns the text of a pointer with a signature.
fn sign(pair: &Ed25519KeyPair, pointer: &ReleasePointer) -> String {
    let signature = pair.sign(pointer.to_be_signed(&key(pair)).as_bytes());
    pointer.signed_text(&key(pair), signature.as_ref().try_into().expect("64 bytes"))
}

#[test]
fn a_content_that_changes_with_its_old_time_is_never_sent() {
    let store = TestStore::new();
    let (large, small) = ("large ".repeat(40_000), "small ".repeat(2_000));
    let lines = [&large, &small].map(|text| format!("{{{text}}}"));
    store.publish(
        1,
        &[
            &format!("file {} a.txt", lines[0]),
            &format!("file {} b.txt", lines[1]),
        ],
    );
    let site = store.site();
    assert_eq!(get(&site, "/a.txt").body, large.as_bytes());
    assert_eq!(get(&site, "/b.txt").body, small.as_bytes());
    // A publisher that owns the files writes into them, and sets the modification time back.
    for text in [&large, &small] {
        let path = store.rules().blob(&sha256(text.as_bytes()));
        let file = fs::File::options()
            .write(true)
            .open(&path)
            .expect("a content");
        let modified = file
            .metadata()
            .and_then(|it| it.modified())
            .expect("a time");
        std::os::unix::fs::FileExt::write_all_at(&file, b"EVIL", 0).expect("a write");
        file.set_modified(modified).expect("a time");
    }
    assert_eq!(
        get(&site, "/a.txt").status,
        500,
        "another look finds another digest"
    );
    let SiteResponse::Stored(stored) = answer(&site, "GET /b.txt") else {
        panic!("a content in memory")
    };
    assert!(
        !stored.variant.disk().expect("a file").unchanged(),
        "the file is not sent"
    );
    assert_eq!(get(&site, "/b.txt").body, small.as_bytes());
}

#[test]
fn new_links_modes_and_removals_cut_no_download_of_a_content() {
    let store = TestStore::new();
    let large = "large ".repeat(40_000);
    store.publish(1, &[&format!("file {{{large}}} a.txt")]);
    let site = store.site();
    assert_eq!(get(&site, "/a.txt").body, large.as_bytes());
    let SiteResponse::Stored(stored) = answer(&site, "GET /a.txt") else {
        panic!("a loaded content")
    };
    let content = stored.variant.disk().expect("a file");
    let path = store.rules().blob(&sha256(large.as_bytes()));
    let link = path.with_extension("backup");
    type Change<'a> = &'a dyn Fn() -> std::io::Result<()>;
    let changes: [(&str, Change); 4] = [
        ("another link", &|| fs::hard_link(&path, &link)),
        ("another mode", &|| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o400))
        }),
        ("a removal beside a link", &|| fs::remove_file(&path)),
        ("the last removal", &|| fs::remove_file(&link)),
    ];
    for (what, change) in changes {
        change().expect(what);
        assert!(content.unchanged(), "{what}");
        assert!(
            !content.is_current(),
            "{what}: the next response compares the content again"
        );
    }
}

#[test]
fn a_withdrawn_release_stays_withdrawn_without_its_mark() {
    let pair = Ed25519KeyPair::generate().expect("a key");
    for publishers in [Vec::new(), vec![key(&pair)]] {
        let store = TestStore::new();
        let release = store.manifest(&["file {one} index.html"]);
        let text = sign(&pair, &pointer(release, 1));
        write(&store.rules().pointer(), text.as_bytes());
        let rules = ReleaseRules {
            publishers: publishers.clone(),
            ..store.rules()
        };
        let open = || store.site_with(|site| site.release = Some(rules.clone()));
        let served = open();
        assert!(matches!(
            served.release_state(),
            Some(ReleaseState::Served(_))
        ));
        store.withdraw(release);
        let withdrawn = served.reopened().site;
        let is_withdrawn =
            |site: &Site| matches!(site.release_state(), Some(ReleaseState::Withdrawn(_)));
        assert!(is_withdrawn(&withdrawn));
        // An attacker with access to the store removes the mark.
        fs::remove_file(rules.withdrawn().join(hex(&release))).expect("removed");
        let reopened = withdrawn.reopened();
        assert!(is_withdrawn(&reopened.site));
        let refused = reopened.refused.expect("a refusal");
        assert!(refused.what.contains("is withdrawn"), "{refused}");
        // The state folder remembers the withdrawal over a restart of a site with publishers.
        assert_eq!(is_withdrawn(&open()), !publishers.is_empty());
    }
}

#[test]
fn with_publishers_only_newer_signed_pointers_are_served() {
    let store = TestStore::new();
    let publisher = Ed25519KeyPair::generate().expect("a key");
    let stranger = Ed25519KeyPair::generate().expect("a key");
    let release = store.publish(5, &["file {5} index.html"]);
    let other = store.manifest(&["file {6} index.html"]);
    let site = || {
        store.site_with(|rules| {
            let publishers = vec![key(&publisher)];
            rules.release = Some(ReleaseRules {
                publishers,
                ..store.rules()
            });
        })
    };
    let refused = site().reopened().refused.expect("a refusal");
    assert_eq!(
        refused.what,
        "the pointer is unsigned, and the site has `publishers`"
    );
    let put = |text: String| fs::write(store.rules().pointer(), text).expect("written");
    put(sign(&stranger, &pointer(release, 5)));
    let refused = site().reopened().refused.expect("a refusal");
    assert!(
        refused.what.ends_with("is not among the `publishers`"),
        "{refused}"
    );
    put(sign(&publisher, &pointer(release, 5)).replace("sequence 5", "sequence 6"));
    let refused = site().reopened().refused.expect("a refusal");
    assert_eq!(refused.what, "the signature of the pointer is wrong");
    put(sign(&publisher, &pointer(release, 5)));
    let served = site();
    assert_eq!(text(&get(&served, "/")), (200, 0, "5"));
    let state = served.release_state().and_then(ReleaseState::last);
    let acknowledgment = state.expect("a release").text();
    atomic_file::write(&store.rules().served, acknowledgment.as_bytes(), 0o600).expect("written");
    for (release, sequence) in [(release, 4), (other, 5)] {
        put(sign(&publisher, &pointer(release, sequence)));
        let refused = served.reopened().refused.expect("a refusal");
        assert!(
            refused
                .what
                .contains("is not above the last served sequence 5"),
            "{refused}"
        );
        assert_eq!(get(&site(), "/").status, 503, "after a restart");
    }
    put(sign(&publisher, &pointer(other, 6)));
    assert_eq!(text(&get(&served.reopened().site, "/")), (200, 0, "6"));
}

#[test]
fn with_a_site_id_a_pointer_of_another_site_is_refused_and_the_served_release_stays() {
    let store = TestStore::new();
    let publisher = Ed25519KeyPair::generate().expect("a key");
    let own = "9f0c5ad24e8b41d7a3c6b1e2f4058d97";
    let site = |site_id: Option<&str>| {
        store.site_with(|rules| {
            rules.release = Some(ReleaseRules {
                publishers: vec![key(&publisher)],
                site_id: site_id.map(str::to_owned),
                ..store.rules()
            });
        })
    };
    let put = |text: &str| fs::write(store.rules().pointer(), text).expect("written");
    let bound = |release, sequence, id: &str| {
        let site_id = Some(id.to_owned());
        let pointer = ReleasePointer {
            site_id,
            ..pointer(release, sequence)
        };
        sign(&publisher, &pointer)
    };
    let first = store.publish(5, &["file {5} index.html"]);
    let vulnerable = store.manifest(&["file {6} index.html"]);
    let unbound = sign(&publisher, &pointer(first, 5));
    put(&unbound);
    // Before the first acknowledgment, a pointer without the identity is refused.
    assert_eq!(get(&site(Some(own)), "/").status, 503);
    let served = site(None);
    let state = served.release_state().and_then(ReleaseState::last);
    let acknowledgment = state.expect("a release").text();
    atomic_file::write(&store.rules().served, acknowledgment.as_bytes(), 0o600).expect("written");
    // The identity is added to the configuration: the served release stays, also over a restart.
    let with_id = site(Some(own));
    assert_eq!(text(&get(&with_id, "/")), (200, 0, "5"));
    assert!(with_id.reopened().refused.is_none());
    // The old signed pointer of another host with the same site name and publisher.
    for (text_of_pointer, reason) in [
        (
            sign(&publisher, &pointer(vulnerable, 6)),
            "the signature has no `site_id`",
        ),
        (
            bound(vulnerable, 6, "0123456789abcdef"),
            "the pointer is for the site with the `site_id` 0123456789abcdef",
        ),
    ] {
        put(&text_of_pointer);
        let refused = with_id.reopened().refused.expect("a refusal");
        assert!(refused.what.starts_with(reason), "{refused}");
        assert_eq!(text(&get(&with_id.reopened().site, "/")), (200, 0, "5"));
        // A site without an identity verifies as before.
        assert_eq!(text(&get(&served.reopened().site, "/")), (200, 0, "6"));
    }
    put(&bound(vulnerable, 6, own).replace("site_id 9f", "site_id 8f"));
    let refused = with_id.reopened().refused.expect("a refusal");
    assert_eq!(refused.what, "the signature of the pointer is wrong");
    put(&bound(vulnerable, 6, own));
    let published = with_id.reopened().site;
    assert_eq!(text(&get(&published, "/")), (200, 0, "6"));
    // From now on, the release from before the identity is refused too.
    let state = published.release_state().and_then(ReleaseState::last);
    let acknowledgment = state.expect("a release").text();
    atomic_file::write(&store.rules().served, acknowledgment.as_bytes(), 0o600).expect("written");
    put(&unbound.replace("sequence 5", "sequence 7"));
    assert!(published.reopened().refused.is_some());
    put(&sign(&publisher, &pointer(first, 7)));
    let refused = published.reopened().refused.expect("a refusal");
    assert!(
        refused.what.starts_with("the signature has no `site_id`"),
        "{refused}"
    );
}

#[test]
fn a_damaged_pointer_is_replaced_by_the_acknowledged_release_after_a_restart() {
    let store = TestStore::new();
    let acknowledge = |release, sequence| {
        let time = 0;
        let served = ServedRelease {
            release,
            sequence,
            time,
        };
        fs::write(store.rules().served, served.text()).expect("written");
    };
    let first = store.publish(1, &["file {1} index.html", "gzip {coded}"]);
    let damaged = store.manifest(&["file {2} index.html"]);
    fs::write(store.rules().blob(&damaged), "anthill release 1\n").expect("written");
    acknowledge(first, 1);
    let put = |text: &str| fs::write(store.rules().pointer(), text).expect("written");
    for pointer in [pointer(damaged, 2).text(), "no pointer\n".to_owned()] {
        put(&pointer);
        let site = store.site();
        assert_eq!(text(&get(&site, "/")), (200, 0, "1"), "{pointer}");
        assert!(site.reopened().refused.is_some(), "{pointer}");
    }
    fs::remove_file(store.rules().pointer()).expect("removed");
    let site = store.site();
    assert_eq!(text(&get(&site, "/")), (200, 0, "1"));
    assert!(site.reopened().refused.is_some());
    // A release with a missing or short content is not complete.
    for content in ["1", "coded"] {
        let path = store.rules().blob(&sha256(content.as_bytes()));
        fs::write(&path, "").expect("written");
        assert_eq!(text(&get(&store.site(), "/")), (503, 514, ""));
        fs::remove_file(&path).expect("removed");
        assert_eq!(text(&get(&store.site(), "/")), (503, 514, ""));
        store.blob(content.as_bytes());
    }
    assert_eq!(text(&get(&store.site(), "/")), (200, 0, "1"));
    // A withdrawn release is never served, and the acknowledged release stays in place of another one.
    let second = store.publish(2, &["file {2} index.html"]);
    store.withdraw(second);
    assert_eq!(text(&get(&store.site(), "/")), (200, 0, "1"));
    store.withdraw(first);
    assert_eq!(text(&get(&store.site(), "/")), (503, 515, ""));
    put("no pointer\n");
    assert_eq!(text(&get(&store.site(), "/")), (503, 515, ""));
}

#[test]
fn with_publishers_the_acknowledged_release_needs_a_signed_record() {
    let publisher = Ed25519KeyPair::generate().expect("a key");
    let stranger = Ed25519KeyPair::generate().expect("a key");
    let store = TestStore::new();
    let first = store.publish(7, &["file {7} index.html"]);
    let other = store.manifest(&["file {6} index.html"]);
    let site = || {
        store.site_with(|rules| {
            let publishers = vec![key(&publisher)];
            rules.release = Some(ReleaseRules {
                publishers,
                ..store.rules()
            });
        })
    };
    let served = ServedRelease {
        release: first,
        sequence: 7,
        time: 0,
    };
    fs::write(store.rules().served, served.text()).expect("written");
    fs::write(store.rules().pointer(), "no pointer\n").expect("written");
    let missing = (503, 514, "");
    assert_eq!(text(&get(&site(), "/")), missing, "without a record");
    let record = store.rules().history_folder().join("7");
    for (kind, refused) in [
        ("unsigned", pointer(first, 7).text()),
        ("of a stranger", sign(&stranger, &pointer(first, 7))),
        ("another release", sign(&publisher, &pointer(other, 7))),
        ("older", sign(&publisher, &pointer(first, 6))),
        ("newer", sign(&publisher, &pointer(other, 8))),
    ] {
        write(&record, refused.as_bytes());
        assert_eq!(text(&get(&site(), "/")), missing, "{kind}");
    }
    write(&record, sign(&publisher, &pointer(first, 7)).as_bytes());
    assert_eq!(text(&get(&site(), "/")), (200, 0, "7"));
    store.withdraw(first);
    assert_eq!(text(&get(&site(), "/")), (503, 515, ""));
}

#[test]
fn redirects_apply_before_or_after_files() {
    let store = TestStore::new();
    store.publish(
        1,
        &[
            "redirect 301 /page /never",
            "redirect! 302 /forced /new",
            "redirect 307 /old/* /new/:splat",
            "redirect 410 /gone",
            "file {f} forced",
            "file {home} index.html",
            "file {p} page",
        ],
    );
    let site = store.site_with(|rules| {
        rules.try_paths = vec!["$path".into(), "/index.html".into()];
    });
    for (request, status, expected) in [
        ("GET /page", 200, ""),
        ("GET /forced?a=b", 302, "/new?a=b"),
        ("GET /old/x%20y", 307, "/new/x%20y"),
        ("POST /old/x", 307, "/new/x"),
        ("GET /gone", 410, ""),
        ("GET /other", 200, ""),
        ("GET /.hidden", 404, ""),
    ] {
        let reply = ask(&site, request);
        assert_eq!(
            (reply.status, &reply.location[..]),
            (status, expected),
            "{request}"
        );
    }
}

#[test]
fn a_file_of_a_release_is_small() {
    // A site has 100,000 files: 8 bytes for each file cost 0.8 MB.
    assert!(size_of::<crate::site::file::SiteFile>() <= size_of::<FileMeta>() + 40);
}

/// Publishes a release with hashed files and a record of the publication, each a minute after the one before.
fn publish_assets(store: &TestStore, sequence: u64, paths: &[String]) -> [u8; 32] {
    let digest = hex(&sha256(b"asset"));
    store.blob(b"asset");
    let mut lines = vec![format!("file {{home {sequence}}} index.html")];
    let assets = paths.iter();
    lines.extend(assets.map(|path| format!("hashed 5 {digest} {path}")));
    lines.sort_by_key(|line| line.rsplit(' ').next().map(str::to_owned));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let release = store.manifest(&lines);
    let pointer = ReleasePointer {
        time: FIRST_TIME + 60 * sequence,
        ..pointer(release, sequence)
    };
    let record = store.rules().history_folder().join(sequence.to_string());
    write(&record, pointer.text().as_bytes());
    write(&store.rules().pointer(), pointer.text().as_bytes());
    release
}

/// Time before the first publication of [`publish_assets`].
const FIRST_TIME: u64 = 1_763_899_200;
const DAY: u64 = 24 * 60 * 60;

/// Returns the files that a starting server retains beside the release of the pointer.
fn history(store: &TestStore, now: u64) -> RetainedFiles {
    let rules = store.rules();
    let served = rules
        .read_pointer(None)
        .expect("a pointer")
        .expect("a release");
    let site = SiteRules::of_release(rules.clone());
    let content = ReleaseContent::open(&rules, &served, &site, None).expect("a tree");
    RetainedFiles::read_history(&rules, &site, (&served, &content), now)
}

#[test]
fn each_asset_stays_for_a_day_after_its_replacement_whatever_the_number_of_publications() {
    let store = TestStore::new();
    let path = |sequence: u64| format!("app-{sequence:08x}.js");
    let mut site = store.site();
    for sequence in 1..=40 {
        publish_assets(&store, sequence, &[path(sequence)]);
        site = site.reopened().site;
    }
    let status = |path: &str| get(&site, &format!("/{path}")).status;
    for sequence in 1..=40 {
        assert_eq!(status(&path(sequence)), 200, "{sequence}");
    }
    // A start reads the same files. A release is replaced when the next one is published.
    let started = history(&store, FIRST_TIME + 60 * 41);
    for sequence in 1..=39 {
        let replaced = FIRST_TIME + 60 * (sequence + 1);
        let found = |now| started.find(path(sequence).as_bytes(), || now).is_some();
        assert!(found(replaced + DAY - 1), "{sequence}");
        assert!(!found(replaced + DAY), "{sequence}");
    }
    // The day of the first 20 releases is over.
    let later = history(&store, FIRST_TIME + 60 * 21 + DAY);
    let found = |sequence: u64| later.find(path(sequence).as_bytes(), || 0).is_some();
    let found: Vec<u64> = (1..=39).filter(|sequence| found(*sequence)).collect();
    assert_eq!(found, (21..=39).collect::<Vec<_>>());
}

#[test]
fn retained_files_have_one_bound_in_a_running_and_in_a_starting_server() {
    let store = TestStore::new();
    let paths = |folder: &str, count: usize| -> Vec<String> {
        let names = 0..count;
        names
            .map(|number| format!("{folder}/{number:05}.js"))
            .collect()
    };
    let (first, second) = (paths("a", 15_000), paths("b", 15_000));
    let mut site = store.site();
    for (sequence, paths) in [(1, &first), (2, &second), (3, &Vec::new())] {
        publish_assets(&store, sequence, paths);
        site = site.reopened().site;
    }
    let started = history(&store, FIRST_TIME + 60 * 4);
    for retained in [&site.shared.retained, &started] {
        let count = |paths: &[String]| {
            let found = paths.iter();
            found
                .filter(|path| retained.find(path.as_bytes(), || 0).is_some())
                .count()
        };
        // The files that were replaced last stay.
        assert_eq!(count(&second), second.len());
        assert_eq!(count(&first), RETAINED_FILES_MAX - second.len());
    }
    // Long paths have a bound of their own.
    let store = TestStore::new();
    let folder = vec!["x".repeat(199); 10].join("/");
    let long = paths(&folder, 1_500);
    let mut site = store.site();
    for (sequence, paths) in [(1, &long), (2, &Vec::new())] {
        publish_assets(&store, sequence, paths);
        site = site.reopened().site;
    }
    let started = history(&store, FIRST_TIME + 60 * 4);
    for retained in [&site.shared.retained, &started] {
        let found = long.iter();
        let found = found.filter(|path| retained.find(path.as_bytes(), || 0).is_some());
        assert_eq!(found.count(), RETAINED_PATH_BYTES_MAX / long[0].len());
    }
}
