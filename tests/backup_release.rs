//! Backup and restore of a site with `release`: the files are ordinary files in the archive, and a restore publishes them.

use std::fs;
use std::os::unix::fs::chown;

use base::digest::hex;
use release::store::{SiteRecords, StoreFolder};

use crate::lifecycle::is_root;
use crate::support::release_store::{TestStore, pointer, wait_until_served};
use crate::support::{Done, Folder, Server, anthill, run, server_table};

/// Returns a configuration with a site `www.test` and its release.
fn config(site: &str) -> String {
    server_table("")
        + "[[site]]\nnames = [\"www.test\", \"*\"]\nhttp = \"serve\"\n"
        + site
        + "[[site.route]]\npath = \"/files\"\nroot = \"public\"\n"
}

const RELEASE: &str = "release = \"www\"\n";
const RULES: &str = "error 404 lost.html\nfields **\nfield X-Rule 1\nredirect 302 /old/* /:splat\n";

/// Returns a folder with a published release.
fn folder() -> Folder {
    let folder = Folder::new()
        .with("anthill.toml", config(RELEASE))
        .with("public/route.txt", "route");
    let store = TestStore::of(&folder);
    let large = "large ".repeat(100_000);
    let files = [
        ("a/b/deep.html", "deep"),
        ("a/c", ""),
        ("a-b", "1"),
        ("app-3f2a91c8.js", "script"),
        ("index.html", "page"),
        ("large.txt", &large[..]),
        ("lost.html", "lost"),
    ];
    let release = store.manifest(RULES, &files);
    store.point(&pointer(release, 7).text());
    folder
}

fn command(word: &str, folder: &Folder, words: &[&str]) -> Done {
    let config = folder.path("anthill.toml").display().to_string();
    let words = [&[word], words, &[&config]].concat();
    anthill(&words)
}

/// Writes a backup to `site.tar.gz` in the folder, and returns the path.
fn backup(folder: &Folder) -> String {
    let archive = folder.path("site.tar.gz").display().to_string();
    let done = command("backup", folder, &["-o", &archive, "www.test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    archive
}

fn records(folder: &Folder) -> SiteRecords {
    let store = StoreFolder::open(&folder.path("state/releases")).expect("a store");
    SiteRecords::read(&store, "www").expect("records")
}

/// Returns the status, the content and the fields of a path that a release sets.
fn page(server: &Server, path: &str) -> (u16, Vec<u8>, bool) {
    let got = server.keep_alive().get(path);
    let has_rule = got.head.to_ascii_lowercase().contains("x-rule: 1");
    (got.status, got.body, has_rule)
}

#[test]
fn a_backup_is_restored_on_a_new_machine() {
    let old = folder();
    let archive = backup(&old);
    let server = Server::start_in(old, &config(RELEASE));
    let paths = [
        "/",
        "/a-b",
        "/a/b/deep.html",
        "/a/c",
        "/app-3f2a91c8.js",
        "/large.txt",
        "/missing",
        "/old/a-b",
        "/files/route.txt",
    ];
    let before = paths.map(|path| page(&server, path));
    assert_eq!(
        (before[0].0, &before[0].1[..], before[0].2),
        (200, &b"page"[..], true)
    );
    assert_eq!((before[6].0, &before[6].1[..]), (404, &b"lost"[..]));
    assert_eq!(before[7].0, 302);
    let listed = run("tar", &["tzf", &archive], b"").text();
    for name in [
        "root/a/b/deep.html",
        "root/index.html",
        "root-1/route.txt",
        "rules",
    ] {
        assert!(
            listed.lines().any(|line| line == name),
            "{name} in {listed}"
        );
    }

    let new = Folder::new().with("anthill.toml", config(RELEASE));
    let done = command("restore", &new, &[&archive, "www.test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let restored = records(&new).served().cloned().expect("a release");
    let release = hex(&restored.pointer.release);
    for line in [
        "8 files of www.test\n".to_owned(),
        format!("release {} of www: published, sequence 1\n", &release[..12]),
        "  7 files: 7 added, 0 changed, 0 removed".to_owned(),
    ] {
        assert!(done.stdout.contains(&line), "{line} in {done:?}");
    }
    // Nothing is left of the unpacked files.
    let names: Vec<_> = fs::read_dir(new.path("state"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["releases"]);
    let server = Server::start_in(new, &config(RELEASE));
    assert_eq!(paths.map(|path| page(&server, path)), before);
}

#[test]
fn a_folder_beside_a_release_is_the_content_until_the_first_release() {
    let both = config("root = \"site\"\nrelease = \"www\"\n");
    let listed = |folder: &Folder| {
        folder.write("anthill.toml", &both);
        let listed = run("tar", &["tzf", &backup(folder)], b"").text();
        fs::remove_file(folder.path("site.tar.gz")).expect("removed");
        listed
    };
    let released = folder().with("site/folder.html", "folder");
    let names = listed(&released);
    assert!(names.contains("root/index.html\n"), "{names}");
    assert!(!names.contains("folder.html"), "{names}");
    let waiting = Folder::new()
        .with("site/folder.html", "folder")
        .with("public/route.txt", "route");
    let names = listed(&waiting);
    assert!(names.contains("root/folder.html\n"), "{names}");
    // A restore brings the folder back.
    let archive = backup(&waiting);
    fs::remove_file(waiting.path("site/folder.html")).expect("removed");
    let done = command("restore", &waiting, &[&archive, "www.test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = fs::read_to_string(waiting.path("site/folder.html"));
    assert_eq!(text.expect("a file"), "folder");
}

#[test]
fn a_running_server_serves_the_restored_release() {
    let folder = folder();
    let archive = backup(&folder);
    let server = Server::start_in(folder, &config(RELEASE));
    let folder = &server.folder;
    let store = TestStore::of(folder);
    let other = store.manifest("", &[("index.html", "other")]);
    store.point(&pointer(other, 8).text());
    wait_until_served(&server, other, 8);
    let done = command("restore", folder, &[&archive, "www.test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("sequence 9\n"), "{done:?}");
    assert!(
        done.stdout
            .contains("7 files: 6 added, 1 changed, 0 removed"),
        "{done:?}"
    );
    assert_eq!(page(&server, "/").1, b"page");
}

#[test]
fn a_damaged_archive_or_store_changes_nothing() {
    let folder = folder();
    let archive = backup(&folder);
    let whole = fs::read(&archive).expect("an archive");
    for length in [whole.len() / 2, whole.len() - 9] {
        fs::write(&archive, &whole[..length]).expect("written");
        let done = command("restore", &folder, &[&archive, "www.test"]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert_eq!(records(&folder).served, Some(7));
    }
    // A damaged content is never saved, and the archive before stays.
    fs::write(&archive, &whole).expect("written");
    let store = TestStore::of(&folder);
    let page = store.put(b"page");
    fs::write(store.blob(&page), "rage").expect("written");
    let words = ["-o", &archive, "www.test"];
    let done = command("backup", &folder, &words);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("differs from its digest"), "{done:?}");
    assert_eq!(fs::read(&archive).expect("an archive"), whole);
    store.put(b"page");
    store.withdraw(
        &records(&folder)
            .served()
            .expect("a release")
            .pointer
            .release,
    );
    let done = command("backup", &folder, &words);
    assert!(done.stderr.contains("is withdrawn"), "{done:?}");
}

#[test]
fn releases_with_publishers_are_not_restored() {
    let folder = folder();
    let archive = backup(&folder);
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let site = format!("{RELEASE}publishers = [\"{key}\"]\n");
    folder.write("anthill.toml", config(&site));
    let done = command("restore", &folder, &[&archive, "www.test"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("a backup has no signature"),
        "{done:?}"
    );
    assert!(done.stderr.contains("anthill publish --key"), "{done:?}");
    assert_eq!(records(&folder).served, Some(7));
    let to = folder.path("files").display().to_string();
    let done = anthill(&["restore", &archive, "--to", &to]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = |name: &str| fs::read_to_string(folder.path(name)).expect("a file");
    assert_eq!(text("files/root/index.html"), "page");
    assert_eq!(text("files/root/_headers"), "/*\n  X-Rule: 1\n");
    let redirects = "/* /lost.html 404\n/old/* /:splat 302\n";
    assert_eq!(text("files/root/_redirects"), redirects);
}

#[test]
fn a_file_of_the_release_stays_in_place_of_its_rules() {
    let folder = folder();
    let store = TestStore::of(&folder);
    let files = [
        ("_headers", "own"),
        ("index.html", "page"),
        ("lost.html", ""),
    ];
    let rules = RULES.replace("fields", "error 410 index.html\nfields");
    let release = store.manifest(&rules, &files);
    store.point(&pointer(release, 8).text());
    let archive = backup(&folder);
    let to = folder.path("files").display().to_string();
    let done = anthill(&["restore", &archive, "--to", &to]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for line in [
        "left out: `error 410 index.html`: _headers and _redirects cannot express the rule",
        "left out: the rules of _headers: the release has a file of this name",
    ] {
        assert!(done.stdout.contains(line), "{done:?}");
    }
    let text = fs::read_to_string(folder.path("files/root/_headers"));
    assert_eq!(text.expect("a file"), "own");
    assert!(folder.path("files/root/_redirects").is_file());
}

#[test]
fn a_release_and_a_folder_replace_each_other() {
    let folder = folder();
    let archive = backup(&folder);
    folder.write("anthill.toml", config("root = \"www\"\n"));
    fs::create_dir(folder.path("www")).expect("made");
    let done = command("restore", &folder, &[&archive, "www.test"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        fs::read(folder.path("www/a/b/deep.html")).expect("a file"),
        b"deep"
    );
    // The backup of the folder becomes a release without hidden files.
    folder.write("www/.hidden", "hidden");
    let archive = backup(&folder);
    folder.write("anthill.toml", config(RELEASE));
    let done = command("restore", &folder, &[&archive, "www.test"]);
    assert!(
        done.stdout
            .contains("7 files: 0 added, 0 changed, 0 removed"),
        "{done:?}"
    );
    assert_eq!(records(&folder).served, Some(8));
}

#[test]
fn root_writes_to_no_store_of_another_account() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let archive = backup(&folder);
    chown(folder.path("state/releases"), Some(12_345), Some(12_345)).expect("an owner");
    let done = command("restore", &folder, &[&archive, "www.test"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("belongs to `12345`"), "{done:?}");
    assert_eq!(records(&folder).served, Some(7));
}

#[test]
fn a_backup_has_the_served_release_in_place_of_a_refused_pointer() {
    let folder = folder();
    let store = TestStore::of(&folder);
    let served = records(&folder)
        .served()
        .expect("a release")
        .pointer
        .clone();
    store.record(&served);
    folder.write(
        "state/served/www",
        format!(
            "anthill served 1\nrelease {}\nsequence 7\n",
            hex(&served.release)
        ),
    );
    store.point("damaged");
    let archive = backup(&folder);
    let to = folder.path("unpacked").display().to_string();
    let done = anthill(&["restore", "--to", &to, &archive]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("/_redirects"), "{done:?}");
    let page = fs::read_to_string(folder.path("unpacked/root/index.html"));
    assert_eq!(page.expect("a page"), "page");
    fs::remove_file(folder.path("state/served/www")).expect("removed");
    let archive = folder.path("other.tar.gz").display().to_string();
    let done = command("backup", &folder, &["-o", &archive, "www.test"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("this is no pointer"), "{done:?}");
}
