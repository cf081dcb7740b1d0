//! Push to deploy into a site with `release`: each push is a publication in the store of releases.

use std::fs;
use std::os::unix::fs::symlink;

use base::digest::hex;
use release::release_pointer::ReleasePointer;
use release::store::{Flip, SiteRecords, SiteWriter, StoreFolder, StoreWriter};

use crate::deploy::{DEPLOY, commit, config_with, folder, page, push, status};
use crate::support::{Folder, Server, eventually};

/// Returns a configuration with a site `www.test` that a push fills with releases.
fn config(server: &str) -> String {
    let config = config_with(server, "push = true\n", DEPLOY, "");
    config.replace("root = \"www\"\n", "release = \"www\"\n")
}

fn records(folder: &Folder) -> SiteRecords {
    let store = StoreFolder::open(&folder.path("state/releases")).expect("a store");
    SiteRecords::read(&store, "www").expect("records")
}

/// Returns the sequence of the served release.
fn sequence(folder: &Folder) -> Option<u64> {
    records(folder).served
}

/// Waits until a page is served.
fn wait_until_served(server: &Server, path: &str, text: &str) {
    eventually(&format!("`{text}` at {path}"), || {
        (page(server, path).1 == text).then_some(())
    });
}

#[test]
fn a_push_publishes_a_release_and_reports_in_the_words_of_a_publication() {
    let server = Server::start_in(folder(), &config(""));
    let folder = &server.folder;
    // The branch is deployed at the start.
    wait_until_served(&server, "/", "first");
    folder.write("seed/.hidden", "hidden");
    folder.write("seed/_headers", "/*\n  X-A: 1\n");
    folder.write("seed/404.html", "lost");
    folder.write("seed/deep/page.html", "deep");
    symlink("deep", folder.path("seed/link")).expect("a link");
    symlink("missing", folder.path("seed/dangling")).expect("a link");
    let second = commit(folder, "index.html", b"second");
    let done = push(&server, &["main"]);
    let release = records(folder).served().expect("a release").pointer.release;
    for line in [
        format!(
            "remote: deployed {} to https://www.test:{}/",
            &second[..7],
            server.https_port
        ),
        format!(
            "remote: release {} of www: published, sequence 2, served by all workers after ",
            &hex(&release)[..12]
        ),
        "remote:   4 files: 3 added, 1 changed, 0 removed".to_owned(),
        "remote:   _headers has no effect and is not served".to_owned(),
    ] {
        assert!(done.stderr.contains(&line), "{line} in {done:?}");
    }
    let served = |path: &str| page(&server, path);
    assert_eq!(served("/"), ("200".to_owned(), "second".to_owned()));
    assert_eq!(served("/link/page.html").1, "deep");
    for path in ["/.hidden", "/_headers", "/dangling"] {
        assert_eq!(
            served(path),
            ("404".to_owned(), "lost".to_owned()),
            "{path}"
        );
    }
    assert!(status(&server).contains(&second[..7]));
    // A removed file is gone with the next push, and nothing is left of the tree.
    fs::remove_file(folder.path("seed/deep/page.html")).expect("removed");
    commit(folder, "index.html", b"third");
    let done = push(&server, &["main"]);
    let line = "2 files: 0 added, 1 changed, 2 removed";
    assert!(done.stderr.contains(line), "{done:?}");
    assert_eq!(served("/deep/page.html").0, "404");
    let drafts = fs::read_dir(folder.path("state/deployed")).expect("a folder");
    assert_eq!(drafts.count(), 0);
}

#[test]
fn a_restart_publishes_no_second_release() {
    let server = Server::start_in(folder(), &config(""));
    wait_until_served(&server, "/", "first");
    commit(&server.folder, "index.html", b"second");
    push(&server, &["main"]);
    assert_eq!(sequence(&server.folder), Some(2));
    let folder = server.into_folder();
    let server = Server::start_in(folder, &config(""));
    wait_until_served(&server, "/", "second");
    // The deployment at the start is over when a push is answered.
    commit(&server.folder, "index.html", b"third");
    let done = push(&server, &["main"]);
    assert!(done.stderr.contains("sequence 3"), "{done:?}");
}

#[test]
fn another_release_stays_until_the_next_push() {
    let server = Server::start_in(folder(), &config(""));
    let folder = &server.folder;
    wait_until_served(&server, "/", "first");
    commit(folder, "index.html", b"second");
    push(&server, &["main"]);
    let records = records(folder);
    let first = records.publications[&1].pointer.release;
    let store = StoreWriter::open(&folder.path("state/releases")).expect("a store");
    let flip = Flip {
        release: first,
        seen: records.served,
        time: 1,
        publisher: "ann@laptop".to_owned(),
    };
    let site = SiteWriter::lock(&store, "www").expect("a site");
    site.flip(flip, ReleasePointer::text).expect("a rollback");
    drop(site);
    drop(store);
    wait_until_served(&server, "/", "first");
    let done = server.ask(&["reload"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    commit(folder, "index.html", b"third");
    let done = push(&server, &["main"]);
    // The reload published nothing: the sequences are of two pushes, the rollback and this push.
    assert!(done.stderr.contains("sequence 4"), "{done:?}");
    assert_eq!(page(&server, "/").1, "third");
}

#[test]
fn a_refused_tree_leaves_the_release() {
    let server = Server::start_in(folder(), &config("limits = { deploy_files = 3 }"));
    let folder = &server.folder;
    wait_until_served(&server, "/", "first");
    symlink("../../outside", folder.path("seed/link")).expect("a link");
    commit(folder, "index.html", b"second");
    let done = push(&server, &["main"]);
    assert!(
        done.stderr
            .contains("NOT DEPLOYED: the link link leads out"),
        "{done:?}"
    );
    fs::remove_file(folder.path("seed/link")).expect("removed");
    for nth in 0..3 {
        folder.write(&format!("seed/{nth}"), "x");
    }
    commit(folder, "index.html", b"third");
    let done = push(&server, &["main"]);
    assert!(done.stderr.contains("the limit `deploy_files`"), "{done:?}");
    for nth in 0..3 {
        fs::remove_file(folder.path(&format!("seed/{nth}"))).expect("removed");
    }
    // A file stands in place of a folder of the store.
    let drafts = folder.path("state/releases/drafts");
    fs::remove_dir(&drafts).expect("removed");
    fs::write(&drafts, "").expect("written");
    commit(folder, "index.html", b"fourth");
    let done = push(&server, &["main"]);
    assert!(
        done.stderr.contains("NOT DEPLOYED: the store: drafts: "),
        "{done:?}"
    );
    assert!(
        !done
            .stderr
            .contains(&folder.path(".").display().to_string())
    );
    assert_eq!(
        (sequence(folder), page(&server, "/").1),
        (Some(1), "first".to_owned())
    );
    fs::remove_file(&drafts).expect("removed");
    commit(folder, "index.html", b"fifth");
    let done = push(&server, &["main"]);
    assert!(done.stderr.contains("sequence 2"), "{done:?}");
    assert_eq!(page(&server, "/").1, "fifth");
}
