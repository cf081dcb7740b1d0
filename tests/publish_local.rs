//! Publications into the store of a server on the same machine.

use std::process::Command;

use base::digest::hex;
use release::store::{SiteRecords, StoreFolder};

use crate::support::release_store::publisher;
use crate::support::{Done, Folder, Server, eventually, finish};

const CONFIG: &str = "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
    control = \"anthill.sock\"\n\
    [[site]]\nnames = [\"*.www.test\", \"www.test\", \"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n\
    preview = \"*.preview.test\"\n";

/// Runs `anthill-publish` in the folder of a server, and fails the test if the program fails.
fn publish(folder: &Folder, words: &[&str]) -> Done {
    let done = run_publisher(folder, words);
    assert_eq!(done.code, Some(0), "{words:?} {done:?}");
    done
}

/// Runs `anthill-publish` in the folder of a server.
fn run_publisher(folder: &Folder, words: &[&str]) -> Done {
    let mut command = Command::new(publisher());
    command.args(words).current_dir(folder.path("."));
    finish(command, b"")
}

#[test]
fn the_summary_has_the_time_until_served_and_the_address() {
    let server = Server::start_in(Folder::new().with("site/index.html", "one"), CONFIG);
    let folder = &server.folder;
    let open = format!("\n  open https://www.test:{}/\n", server.https_port);
    for (sequence, page) in [(1, "one"), (2, "two")] {
        folder.write("site/index.html", page);
        let done = publish(folder, &["publish", "site", "./state/releases"]);
        let first = done.stdout.lines().next().unwrap_or_default();
        let clause = format!("published, sequence {sequence}, served by all workers after ");
        assert!(first.contains(&clause), "{done:?}");
        assert!(done.stdout.contains("\n  1 file, 3 B: "), "{done:?}");
        assert!(done.stdout.ends_with(&open), "{done:?}");
        assert_eq!(server.keep_alive().get("/").text(), page);
    }
    let done = publish(folder, &["publish", "site", "./state/releases"]);
    assert!(done.stdout.contains("unchanged, sequence 2"), "{done:?}");
    assert!(done.stdout.ends_with(&open), "{done:?}");
    folder.write("site/index.html", "next");
    let words = ["publish", "--preview", "Next", "site", "./state/releases"];
    let done = publish(folder, &words);
    let store = StoreFolder::open(&folder.path("state/releases")).expect("a store");
    let records = SiteRecords::read(&store, "www").expect("records");
    let id = hex(&records.labels["Next"]);
    let port = server.https_port;
    let open = format!(
        "\n  open https://next.preview.test:{port}/\n  open https://{}.preview.test:{port}/\n",
        &id[..16]
    );
    assert!(done.stdout.ends_with(&open), "{done:?}");
}

#[test]
fn an_unpacked_backup_is_published_as_the_same_release() {
    let folder = Folder::new()
        .with("anthill.toml", CONFIG)
        .with("site/index.html", "page")
        .with("state/.keep", "")
        .with("site/lost.html", "lost")
        .with("site/a[1]/b.html", "page")
        .with(
            "site/_headers",
            "/*\n  X-A: 1\n/a[1]/b\n  Link: </a.css>; rel=preload\n/:name/*\n  X-B: 1, 2\n",
        )
        .with(
            "site/_redirects",
            "/old%20page /a[1]/b\n/blog/* https://example.org/:splat? 302!\n/gone 410\n/* /lost 404\n",
        );
    publish(&folder, &["publish", "site", "./state/releases"]);
    let path = |name: &str| folder.path(name).display().to_string();
    let (archive, config) = (path("www.tar.gz"), path("anthill.toml"));
    let run = |words: &[&str]| {
        let done = crate::support::anthill(words);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    run(&["backup", "-o", &archive, "www.test", &config]);
    let unpacked = run(&["restore", &archive, "--to", &path("unpacked")]);
    for name in ["_headers", "_redirects"] {
        let line = format!("rules of the release in {}", path("unpacked/root/"));
        assert!(unpacked.contains(&(line + name)), "{unpacked}");
    }
    assert!(!unpacked.contains("left out"), "{unpacked}");
    let words = ["publish", "unpacked/root", "./state/releases"];
    let done = publish(&folder, &words);
    assert!(done.stdout.contains("unchanged, sequence 1"), "{done:?}");
}

#[test]
fn the_address_follows_a_reload() {
    let server = Server::start_in(Folder::new().with("site/index.html", "one"), CONFIG);
    let folder = &server.folder;
    publish(folder, &["publish", "site", "./state/releases"]);
    let config = CONFIG.replace("\"www.test\"", "\"new.test\"");
    folder.write("anthill.toml", config);
    let words = ["reload".into(), folder.path("anthill.toml")];
    let reloaded = crate::support::anthill(&words);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    let done = publish(folder, &["publish", "site", "./state/releases"]);
    let open = format!("\n  open https://new.test:{}/\n", server.https_port);
    assert!(done.stdout.ends_with(&open), "{done:?}");
}

/// Reloads the server with another configuration.
fn reload(folder: &Folder, config: &str) -> Done {
    folder.write("anthill.toml", config);
    crate::support::anthill(&["reload".into(), folder.path("anthill.toml")])
}

#[test]
fn a_refused_publication_is_told_to_the_publisher() {
    let server = Server::start_in(Folder::new().with("site/index.html", "one"), CONFIG);
    let folder = &server.folder;
    let store = "./state/releases";
    publish(folder, &["publish", "site", store]);
    // The publisher waits for the workers for a short time only.
    eventually("the first release", || {
        (server.keep_alive().get("/").text() == "one").then_some(())
    });
    let made = publish(folder, &["publish", "--new-key", "key.pem"]);
    let key = made.stdout.lines().next().unwrap_or_default();
    let signed = CONFIG.replace("preview =", &format!("publishers = [\"{key}\"]\npreview ="));
    // The site would answer 503 with the unsigned release.
    let refused = reload(folder, &signed);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let reason = "the pointer is unsigned, and the site has `publishers`";
    assert!(refused.stderr.contains(reason), "{refused:?}");
    assert!(
        refused.stderr.contains("publish once with --key before"),
        "{refused:?}"
    );
    assert_eq!(server.keep_alive().get("/").text(), "one");
    let done = publish(folder, &["publish", "--key", "key.pem", "site", store]);
    assert!(done.stdout.contains("sequence 2, served by"), "{done:?}");
    let reloaded = reload(folder, &signed);
    assert_eq!(reloaded.code, Some(0), "{reloaded:?}");
    // An unsigned publication is in the store, and not served.
    folder.write("site/index.html", "two");
    for words in [
        ["publish", "site", store].as_slice(),
        &["publish", "site", store],
    ] {
        let done = run_publisher(folder, words);
        assert_eq!(done.code, Some(3), "{done:?}");
        assert!(
            done.stdout.contains(", sequence 3, but not served: "),
            "{done:?}"
        );
        assert!(
            done.stdout
                .contains(&format!("{reason}; sequence 2 was served last\n")),
            "{done:?}"
        );
        assert!(!done.stdout.contains("open "), "{done:?}");
        assert_eq!(server.keep_alive().get("/").text(), "one");
    }
    let list = publish(folder, &["releases", store]).stdout;
    let mark = |sequence: &str| {
        let line = list.lines().find(|line| line.starts_with(sequence));
        line.and_then(|line| line.split_whitespace().last())
    };
    assert_eq!(
        (mark("3 "), mark("2 ")),
        (Some("refused"), Some("served")),
        "{list}"
    );
    // A rollback counts from the served release, so the release is named here.
    let served = list.lines().find(|line| line.starts_with("2 "));
    let is_id = |word: &&str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let served = served.and_then(|line| line.split_whitespace().find(is_id));
    let done = run_publisher(folder, &["rollback", store, served.expect("a release")]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        done.stdout.contains("sequence 4, but not served: "),
        "{done:?}"
    );
    // A signed publication ends the refusal.
    let done = publish(folder, &["publish", "--key", "key.pem", "site", store]);
    assert!(
        done.stdout.contains("sequence 5, served by all"),
        "{done:?}"
    );
    let open = format!("\n  open https://www.test:{}/\n", server.https_port);
    assert!(done.stdout.ends_with(&open), "{done:?}");
    assert_eq!(server.keep_alive().get("/").text(), "two");
    assert!(!folder.path("state/served/www:refused").exists());
    let done = run_publisher(folder, &["rollback", store]);
    assert!(
        done.stderr
            .contains("warning: the previous release is signed"),
        "{done:?}"
    );
}

#[test]
fn a_receiver_tells_the_refusal_of_the_server() {
    let made = Folder::new().with("site/index.html", "one");
    let done = publish(&made, &["publish", "--new-key", "key.pem"]);
    let key = done.stdout.lines().next().unwrap_or_default();
    let config = CONFIG.replace("preview =", &format!("publishers = [\"{key}\"]\npreview ="));
    let server = Server::start_in(made, &config);
    let folder = &server.folder;
    let program = crate::support::program();
    let ssh = format!("sh -c 'exec {program} receive www --store state/releases'");
    let sent = |words: &[&str]| {
        let words = [&["publish", "--ssh", &ssh], words, &["site", "zero"]].concat();
        let mut command = Command::new(publisher());
        command.args(words).current_dir(folder.path("."));
        command.env("XDG_CACHE_HOME", folder.path("cache"));
        finish(command, b"")
    };
    let reason = "the site has `publishers`; the server serves no release of the site";
    for state in ["published", "unchanged"] {
        let done = sent(&[]);
        assert_eq!(done.code, Some(3), "{done:?}");
        let clause = format!("{state}, sequence 1, but not served: ");
        assert!(done.stdout.contains(&clause), "{done:?}");
        assert!(done.stdout.contains(reason), "{done:?}");
    }
    let done = sent(&["--key", "key.pem"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("sequence 2, served by all"),
        "{done:?}"
    );
}

#[test]
fn a_publication_without_a_server_says_so() {
    let server = Server::start_in(Folder::new().with("site/index.html", "one"), CONFIG);
    let folder = &server.folder;
    let other = "./state/releases:other";
    let done = publish(folder, &["publish", "site", other]);
    let clause = "sequence 1; no server has acknowledged it after 1 s, and none ever acknowledged a release of the site: no \
                  server runs with a site `release = \"other\"`\n";
    assert!(done.stdout.contains(clause), "{done:?}");
    let done = run_publisher(folder, &["publish", "site", other]);
    assert_eq!(done.code, Some(3), "{done:?}");
    let clause = "unchanged, sequence 1, but no server has acknowledged it\n";
    assert!(done.stdout.contains(clause), "{done:?}");
}
