//! Sites with releases: stores written by hand, served by the real server.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base::digest::{hex, sha256};
use release::receive_frame::{ContentPlace, FrameKind, HELLO};
use release::release_pointer::ReleasePointer;
use release::store::FrameWriter;

use crate::lifecycle::{in_own_mounts, is_root};
use crate::support::h2::H2;
use crate::support::release_store::{TestStore, pointer, wait_until_served, write};
use crate::support::wire::{Over, Wire};
use crate::support::{EndOnDrop, Folder, Got, Server, eventually, finish, tool};

/// Returns a configuration with one site, served from the release `www`.
fn config(server: &str, site: &str) -> String {
    format!(
        "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
         control = \"anthill.sock\"\nworkers = 2\nh2c = true\n{server}\n\
         [[site]]\nnames = [\"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n{site}\n"
    )
}

fn get(server: &Server, path: &str) -> Got {
    server.keep_alive().get(path)
}

fn shown(server: &Server, path: &str) -> (u16, String) {
    let got = get(server, path);
    (got.status, got.text())
}

/// Waits until a path has a status.
fn wait_for_status(server: &Server, path: &str, status: u16) {
    eventually(&format!("{status} at {path}"), || {
        (get(server, path).status == status).then_some(())
    });
}

fn wait_for_error(server: &Server, parts: &[&str]) {
    server
        .errors
        .wait_for(&format!("{parts:?} in the log"), |line| {
            parts.iter().all(|part| line.contains(part))
        });
}

#[test]
fn a_site_waits_for_its_first_release() {
    let server = Server::start_in(Folder::new(), &config("", ""));
    assert_eq!(get(&server, "/").status, 503);
    server
        .output
        .wait_for("the rule", |line| line.contains("R514"));
    wait_for_error(
        &server,
        &[
            "the site www has no release",
            "anthill publish DIR HOST:www",
        ],
    );
    let store = TestStore::of(&server.folder);
    let release = store.publish_page(1, "one");
    wait_until_served(&server, release, 1);
    assert_eq!(shown(&server, "/"), (200, "one".to_owned()));
    wait_for_error(&server, &["the site www serves the release", "sequence 1"]);
}

#[test]
fn a_read_only_store_is_served() {
    let folder = Folder::new();
    TestStore::of(&folder).publish_page(1, "page");
    folder.write("anthill.toml", config("", ""));
    let mounts = "mount --bind state/releases state/releases
                  mount -o remount,ro,bind state/releases
                  ! touch state/releases/file 2> refused
                  grep -qi 'read-only' refused";
    let server = Server::launch(Folder::new(), in_own_mounts(&folder, mounts));
    assert_eq!(shown(&server, "/"), (200, "page".to_owned()));
    // The acknowledgment is in the state folder, outside of the store.
    eventually("the acknowledgment", || {
        folder.path("state/served/www").is_file().then_some(())
    });
    // A release that comes into the store from elsewhere is served: the folder has a second way, which is not read-only.
    let store = TestStore::of(&folder);
    let release = store.publish_page(2, "next page");
    eventually("the next release", || {
        let text = fs::read_to_string(folder.path("state/served/www")).unwrap_or_default();
        text.contains(&hex(&release)).then_some(())
    });
    assert_eq!(shown(&server, "/"), (200, "next page".to_owned()));
}

#[test]
fn a_flip_fails_no_request() {
    const FLIPS: u64 = 20;
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    let publish = |sequence: u64| {
        let page = format!("release {sequence} ").repeat(200);
        let files = [
            ("asset", "the same in all releases"),
            ("index.html", &page[..]),
        ];
        let release = store.manifest("cache 60 asset\n", &files);
        store.point(&pointer(release, sequence).text());
        release
    };
    publish(1);
    let server = Server::start_in(folder, &config("", ""));
    let (is_over, requests, served) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(1));
    // Each client keeps one connection, and sees the releases in their order.
    let check = |last: &mut u64, at_least: u64, status: u16, text: &str| {
        assert_eq!(status, 200);
        let sequence = text
            .split(' ')
            .nth(1)
            .and_then(|it| it.parse().ok())
            .unwrap_or(0);
        assert!(
            sequence >= *last && sequence >= at_least,
            "{sequence} after {last}"
        );
        assert_eq!(text, format!("release {sequence} ").repeat(200));
        *last = sequence;
        requests.fetch_add(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                let (mut client, mut last) = (server.keep_alive(), 0);
                while !is_over.load(Ordering::Relaxed) {
                    let at_least = served.load(Ordering::Acquire);
                    let got = client.get("/");
                    check(&mut last, at_least, got.status, &got.text());
                    assert_eq!(client.get("/asset").status, 200);
                    // The control plane needs the processor too.
                    thread::sleep(Duration::from_millis(2));
                }
            });
            scope.spawn(|| {
                let (mut client, mut last) = (H2::open(&server, Over::Tls), 0);
                while !is_over.load(Ordering::Relaxed) {
                    let at_least = served.load(Ordering::Acquire);
                    let got = client.get("/");
                    let text = String::from_utf8_lossy(&got.body).into_owned();
                    check(&mut last, at_least, got.status, &text);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        for sequence in 2..=FLIPS {
            let release = publish(sequence);
            wait_until_served(&server, release, sequence);
            // From the acknowledgment on, no worker serves an earlier release.
            served.store(sequence, Ordering::Release);
            let before = requests.load(Ordering::Relaxed);
            eventually("further requests", || {
                (requests.load(Ordering::Relaxed) > before + 8).then_some(())
            });
        }
    });
}

#[test]
fn a_site_changes_from_a_folder_to_a_release_and_back_without_a_refusal() {
    let folder = Folder::new();
    folder.write("public/index.html", "folder");
    let site = |keys: &str| config("", "").replace("release = \"www\"\n", &format!("{keys}\n"));
    let both = site("root = \"public\"\nrelease = \"www\"");
    let server = Server::start_in(folder, &site("root = \"public\""));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.keep_alive();
                while !is_over.load(Ordering::Relaxed) {
                    let got = client.get("/");
                    assert_eq!(got.status, 200, "{}", got.text());
                    // The control plane needs the processor too.
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        server.reload(&both);
        wait_for_error(
            &server,
            &[
                "the site www serves the folder ",
                "/public until its first release",
                "anthill publish DIR ",
            ],
        );
        assert_eq!(shown(&server, "/"), (200, "folder".to_owned()));
        let line = "www has no release, and serves its folder until the first one\n";
        let status = server.ask(&["status"]).stdout;
        assert!(status.contains(line), "{status}");
        let checked = server.ask(&["check"]);
        let warning = "the site www has no release yet, and serves the folder ";
        let text = checked.stdout + &checked.stderr;
        assert!(text.contains(warning), "{text}");
        // The folder is followed as long as it is served.
        server.folder.write("public/index.html", "changed folder");
        assert_eq!(shown(&server, "/"), (200, "changed folder".to_owned()));
        // A pointer that is refused leaves the folder.
        let store = TestStore::of(&server.folder);
        store.point("no pointer\n");
        wait_for_error(
            &server,
            &[
                "the published release of the site www",
                "the folder stays served",
            ],
        );
        assert_eq!(shown(&server, "/"), (200, "changed folder".to_owned()));

        let release = store.publish_page(1, "one");
        wait_until_served(&server, release, 1);
        assert_eq!(shown(&server, "/"), (200, "one".to_owned()));
        // A later release is noticed in the new place, and the folder never returns.
        server.folder.write("public/index.html", "folder");
        let release = store.publish_page(2, "two");
        wait_until_served(&server, release, 2);
        assert_eq!(shown(&server, "/"), (200, "two".to_owned()));
        server.reload(&both);
        assert_eq!(shown(&server, "/"), (200, "two".to_owned()));
        server.reload(&config("", ""));
        assert_eq!(shown(&server, "/"), (200, "two".to_owned()));
        // The way back.
        server.reload(&both);
        server.reload(&site("root = \"public\""));
        assert_eq!(shown(&server, "/"), (200, "folder".to_owned()));
    });
}

#[test]
fn a_folder_does_not_return_after_the_first_release() {
    let folder = Folder::new();
    folder.write("public/index.html", "folder");
    let both = config("", "root = \"public\"");
    let store = TestStore::of(&folder);
    let release = store.publish_page(1, "one");
    let server = Server::start_in(folder, &both);
    wait_until_served(&server, release, 1);
    let folder = server.into_folder();
    // The store has lost its contents, and the server has acknowledged a release before.
    fs::remove_dir_all(folder.path("state/releases/blobs")).expect("removed");
    let server = Server::start_in(folder, &both);
    assert_eq!(get(&server, "/").status, 503);
}

#[test]
fn wrong_content_is_never_sent() {
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    let large = "x".repeat(300_000);
    let release = store.manifest(
        "",
        &[("fine", "fine"), ("large", &large), ("small", "small")],
    );
    store.point(&pointer(release, 1).text());
    write(&store.blob(&sha256(b"small")), b"smell");
    let mut wrong = large.clone().into_bytes();
    wrong[299_999] = b'y';
    write(&store.blob(&sha256(large.as_bytes())), &wrong);
    let server = Server::start_in(folder, &config("", ""));
    assert_eq!(shown(&server, "/fine"), (200, "fine".to_owned()));
    for (path, content) in [("/small", "small"), ("/large", &large)] {
        assert_eq!(get(&server, path).status, 500, "{path}");
        assert_eq!(
            server
                .curl(&[
                    "--http2-prior-knowledge",
                    "-so",
                    "/dev/null",
                    "-w",
                    "%{http_code}",
                    &server.http(path)
                ])
                .text(),
            "500"
        );
        let name = hex(&sha256(content.as_bytes()));
        wait_for_error(&server, &[&name, &path[1..], "publish again"]);
    }
    server
        .output
        .wait_for("the rule", |line| line.contains("R513"));
}

#[test]
fn a_broken_release_leaves_the_last_good_release() {
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    store.publish_page(1, "one");
    let server = Server::start_in(folder, &config("", ""));
    let torn = store.put(b"anthill release 1\nfile 1 x ../escape\n");
    let withdrawn = store.manifest("", &[("index.html", "withdrawn")]);
    store.withdraw(&withdrawn);
    for (text, reason) in [
        ("no pointer\n".to_owned(), "this is no pointer"),
        (pointer([7; 32], 2).text(), "missing from the store"),
        (pointer(torn, 2).text(), "line 2 of the manifest"),
        (pointer(withdrawn, 2).text(), "is withdrawn"),
    ] {
        store.point(&text);
        wait_for_error(&server, &["www is not served", reason, "stays served"]);
        assert_eq!(shown(&server, "/"), (200, "one".to_owned()));
    }
    // A reload with other rules keeps the last good release too.
    let reloaded = config("", "headers = [{ files = \"*\", set = { X-New = \"1\" } }]");
    server.reload(&reloaded);
    let got = get(&server, "/");
    assert_eq!((got.status, got.text()), (200, "one".to_owned()));
    assert!(got.head.contains("X-New: 1"), "{}", got.head);
    // Links in the store are not followed.
    let outside = server.folder.path("outside");
    fs::write(&outside, pointer(torn, 3).text()).expect("written");
    let path = store.0.join("sites/www/pointer");
    fs::remove_file(&path).expect("removed");
    symlink(&outside, &path).expect("linked");
    wait_for_error(&server, &["a link stands in place of a file"]);
    fs::remove_file(&path).expect("removed");
    let release = store.publish_page(4, "four");
    wait_until_served(&server, release, 4);
    assert_eq!(shown(&server, "/"), (200, "four".to_owned()));
    // After a restart with a broken pointer, the last acknowledged release is served.
    let folder = server.into_folder();
    let store = TestStore::of(&folder);
    store.point("no pointer\n");
    let server = Server::start_in(folder, &config("", ""));
    assert_eq!(shown(&server, "/"), (200, "four".to_owned()));
    wait_for_error(&server, &["www is not served", "stays served"]);
    let status = server.ask(&["status"]).stdout;
    assert!(
        status.contains("the published release of the site www is not served"),
        "{status}"
    );
    // Without the acknowledged release too, the site refuses requests, and the server runs.
    let folder = server.into_folder();
    let store = TestStore::of(&folder);
    fs::remove_file(store.blob(&release)).expect("removed");
    let server = Server::start_in(folder, &config("", ""));
    assert_eq!(get(&server, "/").status, 503);
    wait_for_error(&server, &["www is not served", "the site answers 503"]);
    let done = server.ask(&["check"]);
    assert!(
        done.stderr
            .contains("the release of the site www can't be served"),
        "{done:?}"
    );
    let release = store.publish_page(5, "five");
    wait_until_served(&server, release, 5);
    assert_eq!(shown(&server, "/"), (200, "five".to_owned()));
}

#[test]
fn a_withdrawn_release_ends_at_once() {
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    let release = store.publish_page(1, "one");
    let server = Server::start_in(folder, &config("", ""));
    assert_eq!(shown(&server, "/"), (200, "one".to_owned()));
    store.withdraw(&release);
    wait_for_status(&server, "/", 503);
    let check = |server: &Server| {
        server
            .output
            .wait_for("the rule", |line| line.contains("R515"));
        wait_for_error(server, &["of the site www is withdrawn"]);
    };
    check(&server);
    // The rule stays over a restart.
    let server = Server::start_in(server.into_folder(), &config("", ""));
    assert_eq!(get(&server, "/").status, 503);
    check(&server);
    let store = TestStore::of(&server.folder);
    // The folder of withdrawn releases is watched from its first entry on.
    let next = store.publish_page(2, "two");
    wait_until_served(&server, next, 2);
    store.withdraw(&next);
    wait_for_status(&server, "/", 503);
    let third = store.publish_page(3, "three");
    wait_until_served(&server, third, 3);
    assert_eq!(shown(&server, "/"), (200, "three".to_owned()));
}

#[test]
fn only_publishers_publish_and_never_backwards() {
    let pair = Ed25519KeyPair::generate().expect("a key");
    let stranger = Ed25519KeyPair::generate().expect("a key");
    let key =
        |pair: &Ed25519KeyPair| <[u8; 32]>::try_from(pair.public_key().as_ref()).expect("32 bytes");
    let sign = |pair: &Ed25519KeyPair, pointer: &ReleasePointer| {
        let signature = pair.sign(pointer.to_be_signed(&key(pair)).as_bytes());
        pointer.signed_text(&key(pair), signature.as_ref().try_into().expect("64 bytes"))
    };
    let publishers = format!("publishers = [\"{}\"]", hex(&key(&pair)));
    let config = config("", &publishers);
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    let first = store.manifest("", &[("index.html", "first")]);
    let second = store.manifest("", &[("index.html", "second")]);
    store.point(&pointer(first, 5).text());
    let server = Server::start_in(folder, &config);
    assert_eq!(get(&server, "/").status, 503);
    wait_for_error(&server, &["the pointer is unsigned"]);
    store.point(&sign(&stranger, &pointer(first, 5)));
    wait_for_error(&server, &["is not among the `publishers`"]);
    store.point(&sign(&pair, &pointer(first, 5)));
    wait_until_served(&server, first, 5);
    store.point(&sign(&pair, &pointer(second, 4)));
    wait_for_error(
        &server,
        &["the sequence 4 is not above the last served sequence 5"],
    );
    assert_eq!(shown(&server, "/"), (200, "first".to_owned()));
    // The sequence survives a restart.
    let server = Server::start_in(server.into_folder(), &config);
    wait_for_error(
        &server,
        &["the sequence 4 is not above the last served sequence 5"],
    );
    assert_eq!(get(&server, "/").status, 503);
    // The record of the last served publication replaces the refused pointer.
    let folder = server.into_folder();
    let store = TestStore::of(&folder);
    let record = store.0.join("sites/www/pointers/5");
    write(&record, sign(&pair, &pointer(first, 5)).as_bytes());
    let server = Server::start_in(folder, &config);
    assert_eq!(shown(&server, "/"), (200, "first".to_owned()));
    wait_for_error(&server, &["the sequence 4", "stays served"]);
    store.point(&sign(&pair, &pointer(second, 6)));
    wait_until_served(&server, second, 6);
    assert_eq!(shown(&server, "/"), (200, "second".to_owned()));
    // Open pages get files of earlier releases with a signature alone.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let time = now.expect("a clock").as_secs();
    let record = |asset: &str, sequence: u64| {
        let release = store.manifest("", &[(asset, "an asset"), ("index.html", "page")]);
        ReleasePointer {
            time,
            ..pointer(release, sequence)
        }
    };
    let signed = sign(&pair, &record("a/signed-3f2a91c7.css", 7));
    write(&store.0.join("sites/www/pointers/7"), signed.as_bytes());
    store.record(&record("a/forged-3f2a91c8.css", 8));
    let last = record("a/last-3f2a91c9.css", 9);
    store.point(&sign(&pair, &last));
    wait_until_served(&server, last.release, 9);
    let server = Server::start_in(server.into_folder(), &config);
    for (path, status) in [
        ("/a/last-3f2a91c9.css", 200),
        ("/a/signed-3f2a91c7.css", 200),
        ("/a/forged-3f2a91c8.css", 404),
    ] {
        assert_eq!(get(&server, path).status, status, "{path}");
    }
}

#[test]
fn rules_of_a_release_meet_the_operators_rules() {
    let folder = Folder::new().with("other/page", "other");
    let store = TestStore(folder.path("store"));
    let rules = "error 404 lost.html\nerror 410 gone.html\nfields **\nfield X-Theirs 1\nfield X-Both theirs\n\
        redirect 302 /old/* /new/:splat\nredirect 301 /other/x /never\nredirect 301 /secret/x /never\n\
        redirect 410 /gone\n";
    let files = [
        ("gone.html", "gone"),
        ("index.html", "home"),
        ("lost.html", "lost"),
        ("secret/page", "secret"),
    ];
    let release = store.manifest(rules, &files);
    store.point(&pointer(release, 1).text());
    let site = "headers = [{ files = \"*\", set = { X-Both = \"ours\" } }]\n\
        [[site.route]]\npath = \"/other\"\nroot = \"other\"\n\
        [[site.route]]\npath = \"/secret\"\nallow = [\"192.0.2.1\"]\n";
    let mut all = fs::read_dir(folder.path("store")).expect("listed").count();
    let server = Server::start_in(folder, &config("releases = \"store\"", site));
    wait_until_served(&server, release, 1);
    for version in ["--http1.1", "--http2"] {
        let ask = |path: &str| {
            let format = "\n%{http_code} %{redirect_url}";
            let url = server.https(path);
            server
                .curl(&[version, "-ski", "-w", format, &url])
                .text()
                .to_lowercase()
        };
        let home = ask("/");
        assert!(
            home.contains("x-theirs: 1") && home.contains("x-both: ours"),
            "{home}"
        );
        for (path, status, part) in [
            ("/none", " 404", "lost"),
            ("/gone", " 410", "gone"),
            ("/secret/page", " 403", ""),
            ("/secret/x", " 403", ""),
            ("/other/page", " 200", "other"),
            ("/other/x", " 404", ""),
            ("/old/a?b=c", " 302", "location: /new/a?b=c"),
        ] {
            let got = ask(path);
            let first = got.lines().next().unwrap_or_default();
            assert!(
                first.contains(status) && got.contains(part),
                "{version} {path}: {got}"
            );
        }
    }
    // The server writes nothing into the store.
    all -= fs::read_dir(server.folder.path("store"))
        .expect("listed")
        .count();
    assert_eq!(all, 0);
}

#[test]
fn cors_of_the_operator_replaces_the_fields_of_a_release() {
    let folder = Folder::new();
    let store = TestStore(folder.path("store"));
    let rules = "error 404 lost.html\nerror 502 lost.html\nfields **\n\
        field Access-Control-Allow-Origin *\nfield Access-Control-Max-Age 5\nfield X-Theirs 1\n";
    let files = [
        ("app/data.json", "{\"data\": 1}"),
        ("font.woff2", "font"),
        ("lost.html", "lost"),
        ("none/data.json", "{\"data\": 2}"),
    ];
    let release = store.manifest(rules, &files);
    store.point(&pointer(release, 1).text());
    let site = "headers = [{ files = \"app/**\", set = { Access-Control-Max-Age = \"9\" } }]\n\
        [[site.route]]\npath = \"/app\"\ncors = \"https://good.example\"\n\
        [[site.route]]\npath = \"/app/broken\"\nproxy = \"http://127.0.0.1:1\"\n\
        [[site.route]]\npath = \"/none\"\ncors = { origins = [] }\n\
        [[site.route]]\npath = \"/renamed\"\ncors = { origins = [] }\nrewrite = \"/font.woff2\"\n";
    let server = Server::start_in(folder, &config("releases = \"store\"", site));
    wait_until_served(&server, release, 1);
    let tag = Wire::plain(&server).get("/app/data.json", "");
    let tag = tag.field("etag").expect("a tag").to_owned();
    let good = "https://good.example";
    #[rustfmt::skip] // A table reads better in columns.
    let table = [
        ("/font.woff2", good, ("", ""), 200, "*,5"),
        ("/absent", good, ("", ""), 404, "*,5"),
        ("/app/data.json", good, ("", ""), 200, "9,https://good.example"),
        ("/app/data.json", good, ("if-none-match", &*tag), 304, "9,https://good.example"),
        ("/app/data.json", good, ("range", "bytes=1-3"), 206, "9,https://good.example"),
        ("/app/data.json", good, ("range", "bytes=99-"), 416, "9,https://good.example"),
        ("/app/data.json", "https://evil.example", ("", ""), 200, "9"),
        ("/app/absent", good, ("", ""), 404, "https://good.example"),
        ("/app/absent", "https://evil.example", ("", ""), 404, ""),
        ("/app/broken", good, ("", ""), 502, "https://good.example"),
        ("/app/broken", "https://evil.example", ("", ""), 502, ""),
        ("/none/data.json", good, ("", ""), 200, ""),
        ("/none/absent", good, ("", ""), 404, ""),
        ("/renamed", good, ("", ""), 200, ""),
    ];
    for (path, origin, (name, value), status, expected) in table {
        let more = if name.is_empty() {
            String::new()
        } else {
            format!("{name}: {value}\r\n")
        };
        let lines = format!("Origin: {origin}\r\n{more}");
        let mut fields = vec![("origin", origin)];
        fields.extend((!name.is_empty()).then_some((name, value)));
        let mut h2 = H2::open(&server, Over::Tls);
        let id = h2.ask("GET", path, &fields, true);
        for (version, response) in [
            ("HTTP/1.1", Wire::plain(&server).get(path, &lines)),
            ("HTTP/2", h2.response(id)),
        ] {
            let what = format!("{version} {path} {origin} {more}: {:?}", response.fields);
            let access = response.fields.iter().filter(|(name, _)| {
                let name = name.to_ascii_lowercase();
                name.starts_with("access-control-")
            });
            let access: Vec<_> = access.map(|(_, value)| &**value).collect();
            assert_eq!(
                (response.status, access.join(",")),
                (status, expected.to_owned()),
                "{what}"
            );
            assert_eq!(response.field("x-theirs"), Some("1"), "{what}");
        }
    }
}

#[test]
fn open_pages_get_their_assets_after_a_flip() {
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("a clock").as_secs();
    // Each release has an asset of its own. The ages are in seconds.
    let publish = |sequence: u64, asset: &str, age: u64| {
        let assets = format!("assets/{asset}.css");
        let release = store.manifest("", &[(&assets[..], asset), ("index.html", "index")]);
        let pointer = ReleasePointer {
            time: now - age,
            ..pointer(release, sequence)
        };
        store.record(&pointer);
        store.point(&pointer.text());
        release
    };
    const DAY: u64 = 86_400;
    publish(1, "old-3f2a91c1", 9 * DAY);
    publish(2, "old-3f2a91c2", 2 * DAY);
    publish(3, "old-3f2a91c3", DAY / 2);
    let fourth = publish(4, "new-3f2a91c4", DAY / 3);
    let config = config("", "try = [\"$path\", \"/index.html\"]");
    let server = Server::start_in(folder, &config);
    wait_until_served(&server, fourth, 4);
    let check = |server: &Server, rows: &[(&str, u16)]| {
        for (asset, status) in rows {
            for version in ["--http1.1", "--http2"] {
                let url = server.https(&format!("/assets/{asset}.css"));
                let got = server.curl(&[version, "-i", &url]).text().to_lowercase();
                let (head, body) = got.split_once("\r\n\r\n").expect("a head");
                let expected = format!(" {status}");
                assert!(
                    head.lines().next().is_some_and(|it| it.contains(&expected)),
                    "{got}"
                );
                let age = match status {
                    200 => "cache-control: max-age=31536000, immutable",
                    _ => "cache-control: no-store",
                };
                assert!(head.contains(age), "{asset}: {got}");
                assert_eq!(body == *asset, *status == 200, "{asset}: {got}");
            }
        }
    };
    // The first release was replaced 2 days ago.
    check(
        &server,
        &[
            ("old-3f2a91c1", 404),
            ("old-3f2a91c2", 200),
            ("old-3f2a91c3", 200),
            ("new-3f2a91c4", 200),
            ("none-3f2a91c5", 404),
        ],
    );
    assert_eq!(shown(&server, "/assets/page"), (200, "index".to_owned()));
    let store = TestStore::of(&server.folder);
    let fifth = store.publish_page(5, "five");
    wait_until_served(&server, fifth, 5);
    let rows = [
        ("old-3f2a91c2", 200),
        ("new-3f2a91c4", 200),
        ("none-3f2a91c5", 404),
    ];
    check(&server, &rows);
    // The end of a withdrawn release is the end of its assets.
    store.withdraw(&fourth);
    wait_for_status(&server, "/assets/new-3f2a91c4.css", 404);
    check(&server, &[("old-3f2a91c2", 200), ("new-3f2a91c4", 404)]);
    // A restart and a reload find the earlier releases in the store.
    let store = TestStore::of(&server.folder);
    store.record(&ReleasePointer {
        time: now,
        ..pointer(fifth, 5)
    });
    let server = Server::start_in(server.into_folder(), &config);
    check(&server, &[("old-3f2a91c3", 200), ("new-3f2a91c4", 404)]);
    server.reload(&config.replace("$path", "$path.html\", \"$path"));
    check(&server, &[("old-3f2a91c3", 200), ("new-3f2a91c4", 404)]);
}

/// A receiver under another account waits for the acknowledgment of a server with a narrow umask.
#[test]
fn a_receiver_under_another_account_reads_the_acknowledgment() {
    /// Account of the receiver.
    const PUBLISHER: u32 = 12_345;
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).expect("a mode");
    let store = TestStore::of(&folder);
    let first = store.publish_page(1, "one");
    // The group of the receiver may pass the state folder. The store belongs to the receiver.
    chown(folder.path("state"), None, Some(PUBLISHER)).expect("a group");
    fs::set_permissions(folder.path("state"), Permissions::from_mode(0o710)).expect("a mode");
    let done = Command::new("chown")
        .arg("-R")
        .arg(PUBLISHER.to_string())
        .arg(&store.0)
        .status();
    assert!(done.expect("chown").success());
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]);
    command.arg(crate::support::program());
    let server = Server::start_by(command, folder, &config("", ""));
    wait_until_served(&server, first, 1);
    let mode = |name: &str| {
        let metadata = fs::metadata(server.folder.path(name)).expect("there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(
        ["state/served", "state/served/www", "state/self-signed.key"].map(mode),
        [0o755, 0o644, 0o600]
    );
    let page = b"two";
    let digest = hex(&sha256(page));
    let manifest = format!("anthill release 1\nfile 3 {digest} index.html\n");
    let release = sha256(manifest.as_bytes());
    let mut frames = FrameWriter::new(Vec::new());
    let place = ContentPlace {
        number: 0,
        offset: 0,
    };
    for (kind, payload) in [
        (FrameKind::Hello, HELLO.as_bytes()),
        (FrameKind::List, b""),
        (FrameKind::Manifest, manifest.as_bytes()),
        (FrameKind::Release, &release),
        (FrameKind::Blob, &place.bytes()),
        (FrameKind::Data, page),
        (FrameKind::Data, b""),
        (FrameKind::Pointer, pointer(release, 2).text().as_bytes()),
    ] {
        frames.write(kind, payload).expect("memory");
    }
    let mut command = Command::new(tool("setpriv"));
    let account = PUBLISHER.to_string();
    command.args(["--reuid", &account, "--regid", &account, "--clear-groups"]);
    command.arg(crate::support::program());
    command.args(["receive", "www", "--store"]).arg(&store.0);
    let done = finish(command, &frames.into_inner());
    assert!(
        done.stdout
            .ends_with("sequence 2\nserved\nacknowledged 2\n"),
        "{:?} {}",
        done.stdout,
        done.stderr
    );
}

#[test]
fn the_status_has_the_release_and_its_refusal() {
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    let server = Server::start_in(folder, &config("", ""));
    let missing = server.ask(&["status"]).stdout;
    assert!(
        missing.contains("www has no release, and answers 503 since "),
        "{missing}"
    );
    let release = store.publish_page(17, "one");
    wait_until_served(&server, release, 17);
    let id = hex(&release);
    let line = format!("release {} of www, sequence 17: served since ", &id[..12]);
    eventually("the release in the status", || {
        server.ask(&["status"]).stdout.contains(&line).then_some(())
    });
    store.point("no pointer\n");
    let refused = "the published release of the site www is not served: ";
    let text = eventually("the refusal in the status", || {
        let text = server.ask(&["status"]).stdout;
        text.contains(refused).then_some(text)
    });
    assert!(text.contains(&line), "{text}");
    let json = server.ask(&["status", "--json"]).stdout;
    let begin = format!(
        "{{\"site\":\"www\",\"release\":\"{id}\",\"sequence\":17,\"withdrawn\":false,\"since\":"
    );
    for part in [
        &begin,
        &format!("\"refusal\":\"{refused}"),
        &format!("\"refusals\":[\"{refused}"),
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    // The time of the acknowledgment survives a restart.
    let since = |json: &str| {
        let (_, rest) = json.split_once("\"since\":").expect("a time");
        rest.split(',').next().unwrap_or_default().to_owned()
    };
    let before = since(&json);
    store.point(&pointer(release, 17).text());
    let server = Server::start_in(server.into_folder(), &config("", ""));
    wait_until_served(&server, release, 17);
    let json = server.ask(&["status", "--json"]).stdout;
    assert_eq!(before, since(&json));
    assert!(json.contains("\"refusal\":null"), "{json}");
}
