//! Previews: releases under host names of their own, before they are served.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use base::digest::hex;

use crate::support::release_store::{TestStore, pointer, wait_until_served};
use crate::support::{EndOnDrop, Folder, Server, anthill, eventually, run};

/// Returns a configuration with one site and its previews.
fn config(site: &str) -> String {
    format!(
        "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
         control = \"anthill.sock\"\nworkers = 2\n\
         [[site]]\nnames = [\"www.test\"]\nhttp = \"serve\"\nrelease = \"www\"\n\
         preview = \"*.preview.test\"\n{site}\n"
    )
}

/// Returns a folder with the user `ann` and the password `crumb`.
fn folder_with_user() -> Folder {
    let hash = run("openssl", &["passwd", "-6", "-stdin"], b"crumb");
    Folder::new().with("users", format!("ann:{}", hash.text()))
}

/// Response with the header section in lower case.
#[derive(Debug)]
struct Seen {
    status: String,
    head: String,
    body: String,
}

/// Requests a path of a host with curl.
fn ask(server: &Server, options: &[&str], scheme: &str, host: &str, path: &str) -> Seen {
    let port = match scheme {
        "https" => server.https_port,
        _ => server.http_port,
    };
    let address = format!("{host}:{port}:127.0.0.1");
    let url = format!("{scheme}://{host}:{port}{path}");
    let all = [options, &["-ski", "--resolve", &address, &url]].concat();
    let text = server.curl(&all).text();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Seen {
        status: head.split(' ').nth(1).unwrap_or_default().to_owned(),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

fn assert_is_private(seen: &Seen) {
    for line in ["x-robots-tag: noindex", "cache-control: no-store"] {
        let count = seen.head.lines().filter(|it| it == &line).count();
        assert_eq!(count, 1, "{line} in {seen:?}");
    }
    assert_eq!(seen.head.matches("cache-control").count(), 1, "{seen:?}");
}

const LOGIN: &[&str] = &["-u", "ann:crumb"];

#[test]
fn a_label_needs_a_login_and_an_id_needs_none() {
    let folder = folder_with_user();
    let store = TestStore::of(&folder);
    store.publish_page(1, "served");
    let rules =
        "error 404 lost.html\ncache 60 **\nfields **\nfield X-Rule 1\nfield X-Robots-Tag all\n";
    let next = store.manifest(
        rules,
        &[
            ("index.html", "next"),
            ("lost.html", "lost"),
            ("team/x", "team"),
        ],
    );
    store.label("Next", &next);
    let site = "preview_users = \"users\"\nhsts = \"1d\"\ncache = [{ files = \"*\", max_age = \"1h\" }]\n\
        [[site.route]]\npath = \"/team\"\nallow = [\"192.0.2.1\"]\n\
        [[site.route]]\npath = \"/away\"\nredirect = \"https://example.org/\"\n";
    let server = Server::start_in(folder, &config(site));
    let id = hex(&next);
    for version in ["--http1.1", "--http2"] {
        for scheme in ["http", "https"] {
            let ask = |options: &[&str], host: &str, path: &str| {
                let host = format!("{host}.preview.test");
                ask(
                    &server,
                    &[options, &[version]].concat(),
                    scheme,
                    &host,
                    path,
                )
            };
            for (options, host, path, status, body) in [
                (&[][..], "next", "/", "401", ""),
                (&["-u", "ann:wrong"], "next", "/", "401", ""),
                (LOGIN, "next", "/", "200", "next"),
                (LOGIN, "NEXT", "/none", "404", "lost"),
                (LOGIN, "next", "/team/x", "403", ""),
                (LOGIN, "next", "/away", "308", ""),
                (&[], "other", "/", "401", ""),
                (LOGIN, "other", "/", "404", ""),
                (&[], &id[..16], "/", "200", "next"),
                (&[], &id[..63], "/", "200", "next"),
                (&[], &id[..16], "/team/x", "403", ""),
                (&[], &id[..15], "/", "401", ""),
                (&[], "0123456789abcdef", "/", "401", ""),
            ] {
                let seen = ask(options, host, path);
                assert_eq!(
                    seen.status, status,
                    "{version} {scheme} {host}{path}: {seen:?}"
                );
                assert!(seen.body.contains(body), "{host}{path}: {seen:?}");
                assert_is_private(&seen);
                assert!(
                    seen.head.contains("x-rule: 1") || body.is_empty(),
                    "{seen:?}"
                );
                let has_hsts = seen.head.contains("strict-transport-security");
                assert_eq!(has_hsts, scheme == "https", "{seen:?}");
            }
            let served = self::ask(&server, &[version], scheme, "www.test", "/");
            assert_eq!((&*served.status, &*served.body), ("200", "served"));
            assert!(!served.head.contains("x-robots-tag"), "{served:?}");
        }
    }
    // The preview is no published release.
    wait_until_served(&server, store_release(&server), 1);
}

/// Returns the release that the pointer names.
fn store_release(server: &Server) -> [u8; 32] {
    let text = fs::read_to_string(server.folder.path("state/served/www")).expect("read");
    let digits = text
        .lines()
        .nth(1)
        .expect("a line")
        .trim_start_matches("release ");
    base::digest::from_hex(digits.as_bytes()).expect("a digest")
}

#[cfg(feature = "http3")]
#[test]
fn http3_serves_previews_too() {
    let folder = Folder::new();
    let store = TestStore::of(&folder);
    store.publish_page(1, "served");
    let next = store.manifest("", &[("index.html", "next")]);
    store.label("next", &next);
    let server = Server::start_in(folder, &config(""));
    let host = format!("{}.preview.test", &hex(&next)[..20]);
    let got = crate::h3::run_scenario(&server, &["get_as", &host, "/"]);
    for part in [
        "200",
        "next",
        "x-robots-tag: noindex",
        "cache-control: no-store",
    ] {
        assert!(got.contains(part), "{got}");
    }
}

#[test]
fn without_users_a_label_needs_the_login_of_the_site() {
    let start = |config: &str| {
        let folder = folder_with_user();
        let store = TestStore::of(&folder);
        store.publish_page(1, "served");
        let next = store.manifest("", &[("index.html", "next")]);
        store.label("next", &next);
        let id = format!("{}.preview.test", &hex(&next)[..16]);
        (Server::start_in(folder, config), id)
    };
    let (server, id) = start(&config(""));
    let status = |options: &[&str], host: &str| ask(&server, options, "https", host, "/").status;
    assert_eq!(status(LOGIN, "next.preview.test"), "404");
    assert_eq!(status(&[], &id), "200");
    let guarded = config("[[site.route]]\npath = \"/\"\nusers = \"users\"\n");
    server.reload(&guarded);
    assert_eq!(status(&[], "next.preview.test"), "401");
    assert_eq!(status(LOGIN, "next.preview.test"), "200");
    assert_eq!(status(&[], &id), "401", "all guards of the site apply");
    assert_eq!(status(LOGIN, &id), "200");
    // A label of an attacker with access to the store is unsigned.
    let signed = format!("publishers = [\"{}\"]", "ab".repeat(32));
    let (server, id) = start(&config(&signed));
    assert_eq!(ask(&server, &[], "https", &id, "/").status, "404");
}

#[test]
fn a_single_name_serves_its_label_alone() {
    let folder = folder_with_user();
    let store = TestStore::of(&folder);
    let served = store.publish_page(1, "served");
    let (next, other) = ("next", "other");
    for text in [next, other] {
        let release = store.manifest("", &[("index.html", text)]);
        store.label(text, &release);
    }
    let config = config("preview_users = \"users\"").replace("*.preview.test", "next.test");
    let server = Server::start_in(folder, &config);
    wait_until_served(&server, served, 1);
    let see = |options: &[&str], scheme: &str, host: &str| {
        let seen = ask(&server, options, scheme, host, "/");
        (seen.status, seen.body)
    };
    let page = |text: &str| ("200".to_owned(), text.to_owned());
    for scheme in ["http", "https"] {
        assert_eq!(see(&[], scheme, "next.test").0, "401");
        assert_eq!(see(LOGIN, scheme, "next.test"), page("next"));
        assert_eq!(see(&[], scheme, "www.test"), page("served"));
        // Neither another label nor an id has a name.
        let id = format!("{}.test", &hex(&served)[..16]);
        for host in ["other.test", &id] {
            assert_ne!(see(LOGIN, scheme, host).0, "200", "{host}");
        }
    }
    let seen = ask(&server, LOGIN, "https", "next.test", "/");
    assert_is_private(&seen);
    let moved = store.manifest("", &[("index.html", "moved")]);
    store.label(next, &moved);
    eventually("the moved label", || {
        (see(LOGIN, "https", "next.test") == page("moved")).then_some(())
    });
    // Publishers learn the address.
    let text = fs::read_to_string(server.folder.path("state/served/www")).expect("read");
    let line = format!("\npreview https://next.test:{}/\n", server.https_port);
    assert!(text.contains(&line), "{text}");
}

#[test]
fn labels_move_and_withdrawn_previews_end() {
    let folder = folder_with_user();
    let store = TestStore::of(&folder);
    store.publish_page(1, "served");
    let server = Server::start_in(folder, &config("preview_users = \"users\""));
    let store = TestStore::of(&server.folder);
    let see = || ask(&server, LOGIN, "https", "next.preview.test", "/");
    assert_eq!(see().status, "404");
    let mut releases = Vec::new();
    for text in ["one", "two", "three", "four", "five", "six"] {
        let release = store.manifest("", &[("index.html", text)]);
        store.label("next", &release);
        store.label(text, &release);
        eventually("the label", || (see().body == text).then_some(()));
        releases.push((text, release));
    }
    // Only a few are open, and each is opened again.
    for (text, _) in &releases {
        let host = format!("{text}.preview.test");
        assert_eq!(ask(&server, LOGIN, "https", &host, "/").body, *text);
    }
    for (text, release) in &releases {
        store.withdraw(release);
        let host = format!("{text}.preview.test");
        eventually("the end", || {
            let seen = ask(&server, LOGIN, "https", &host, "/");
            (seen.status == "503").then(|| assert_is_private(&seen))
        });
    }
    server
        .output
        .wait_for("the rule", |line| line.contains("R515"));
    // A release without its contents cannot be opened, and the site itself stays.
    store.label("next", &[7; 32]);
    eventually("the reason", || {
        assert_eq!(see().status, "503");
        let lines = server.errors.all();
        let mut reasons = lines.iter();
        reasons
            .find(|line| line.contains("a preview can't be opened"))
            .map(drop)
    });
    assert_eq!(ask(&server, &[], "https", "www.test", "/").body, "served");
}

#[test]
fn a_publication_leaves_previews_and_the_site_apart() {
    let folder = folder_with_user();
    let store = TestStore::of(&folder);
    store.publish_page(1, "release 1");
    let next = store.manifest("", &[("index.html", "next")]);
    store.label("next", &next);
    let server = Server::start_in(folder, &config("preview_users = \"users\""));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let seen = ask(&server, LOGIN, "https", "next.preview.test", "/");
                assert_eq!(seen.body, "next", "{seen:?}");
            }
        });
        let store = TestStore::of(&server.folder);
        for sequence in 2..6 {
            let release = store.publish_page(sequence, &format!("release {sequence}"));
            store.record(&pointer(release, sequence));
            wait_until_served(&server, release, sequence);
            let seen = ask(&server, &[], "https", "www.test", "/");
            assert_eq!(seen.body, format!("release {sequence}"));
        }
        // An earlier release is found by its digits.
        let release = store.manifest("", &[("index.html", "release 3")]);
        let host = format!("{}.preview.test", &hex(&release)[..32]);
        eventually("the earlier release", || {
            (ask(&server, &[], "https", &host, "/").body == "release 3").then_some(())
        });
    });
}

#[test]
fn previews_opened_in_turn_without_a_login_leave_the_site_to_its_users() {
    let folder = folder_with_user();
    let store = TestStore::of(&folder);
    store.publish_page(1, "served");
    let texts = ["one", "two", "three", "four", "five", "six"];
    let releases = texts.map(|text| {
        let release = store.manifest("", &[("index.html", text)]);
        store.label(text, &release);
        release
    });
    let server = Server::start_in(folder, &config("preview_users = \"users\""));
    let see = |nth: usize| {
        let host = format!("{}.preview.test", &hex(&releases[nth])[..16]);
        ask(&server, &[], "https", &host, "/")
    };
    for (nth, text) in texts.iter().enumerate().take(4) {
        assert_eq!(see(nth).body, *text);
    }
    for _ in 0..3 {
        for nth in [4, 5] {
            let seen = see(nth);
            assert_eq!(seen.status, "503");
            assert!(seen.head.contains("retry-after: "), "{seen:?}");
        }
    }
    server.errors.wait_for("the reason", |line| {
        line.contains("4 previews of the site are open, and each stays for 60 s after its opening")
    });
    // A user does not wait, and the preview then is open for all.
    let seen = ask(&server, LOGIN, "https", "six.preview.test", "/");
    assert_eq!(seen.body, "six");
    assert_eq!(
        (see(5).body, see(4).status),
        ("six".to_owned(), "503".to_owned())
    );
    let closed = [0, 1, 2, 3].map(|nth| see(nth).status);
    assert_eq!(closed, ["503", "200", "200", "200"]);
}

#[test]
fn the_configuration_of_previews_is_checked() {
    let folder = Folder::new();
    for (text, reason) in [
        (
            config("").replace("release = \"www\"\n", ""),
            "`preview` is for a site with `release`",
        ),
        (
            config("").replace("*.preview.test", "next.test"),
            "the preview `next.test` does not answer with the label `next`, since no login guards them",
        ),
        (
            config("[[site]]\nnames = [\"*.preview.test\"]\nroot = \".\""),
            "two sites have the name `*.preview.test`",
        ),
        (config("preview_users = \"missing\""), "missing"),
        (
            config(""),
            "the previews `*.preview.test` answer no labels, since no login guards them: add `preview_users`",
        ),
        (
            config("[tls]\nacme = { email = \"a@example.org\", challenge = \"http-01\" }")
                .replace(".test", ".example.org"),
            "only the challenge dns-01 can validate `*.preview.example.org`",
        ),
    ] {
        folder.write("anthill.toml", &text);
        let path = folder.path("anthill.toml");
        let done = anthill(&["check".as_ref(), path.as_os_str()]);
        assert!(done.stderr.contains(reason), "{reason}: {done:?}");
    }
    folder.write("team", "");
    folder.write("anthill.toml", config("preview_users = \"team\""));
    let path = folder.path("anthill.toml");
    let done = anthill(&["check".as_ref(), path.as_os_str()]);
    assert!(!done.stderr.contains("answer no labels"), "{done:?}");
    // The members of a preview learn the name of its user.
    let route = "[[site.route]]\npath = \"/app/\"\nproxy = { url = \"http://127.0.0.1:9\", \
                 request_headers = { Remote-User = \"{user}\" } }";
    for (users, is_warned) in [("", true), ("preview_users = \"team\"\n", false)] {
        folder.write("anthill.toml", config(&format!("{users}{route}")));
        let done = anthill(&["check".as_ref(), path.as_os_str()]);
        let warns = done.stderr.contains("never reaches the member");
        assert_eq!((done.code, warns), (Some(0), is_warned), "{done:?}");
    }
}
