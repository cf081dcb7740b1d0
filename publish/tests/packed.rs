//! Packed releases: a folder is written to one file, and the file is published as if it were the folder.

mod support;

use base::digest::{hex, sha256};
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{Done, Site, run, tool};

/// Returns a command of `anthill-publish` with a cache of its own, in the folder of the site.
fn command(site: &Site, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anthill-publish"));
    command
        .args(words)
        .current_dir(site.path("."))
        .env("XDG_CACHE_HOME", site.path("cache"));
    command
}

fn publish(site: &Site, words: &[&str]) -> Done {
    run(command(site, &[&["publish"], words].concat()))
}

fn publish_well(site: &Site, words: &[&str]) -> Done {
    let done = publish(site, words);
    assert_eq!(done.code, Some(0), "{words:?} {done:?}");
    done
}

/// Returns a site with texts that are coded, equal files and rules.
fn filled_site() -> Site {
    let site = Site::new();
    site.write("index.html", &"<title>Hello</title>\n".repeat(100));
    site.write("copy/index.html", &"<title>Hello</title>\n".repeat(100));
    site.write("empty.txt", "");
    site.write("data.bin", "\u{1}\u{2}\u{3}");
    site.write("_redirects", "/old /index.html\n");
    site
}

#[test]
fn a_packed_release_is_published_as_its_folder() {
    let site = filled_site();
    let done = publish_well(&site, &["site", "www.release"]);
    assert!(
        done.stdout.contains(": written to www.release, "),
        "{done:?}"
    );
    publish_well(&site, &["site", "./direct"]);
    let done = publish_well(&site, &["--dry-run", "www.release", "./store"]);
    assert!(done.stdout.contains("4 files"), "{done:?}");
    assert!(!site.path("store").exists());
    let done = publish_well(&site, &["www.release", "./store"]);
    assert!(done.stdout.contains("4 added, 0 changed"), "{done:?}");
    site.assert_whole();
    let release = |store: &str| {
        let pointer = fs::read_to_string(site.path(store).join("sites/www/pointer"));
        let pointer = pointer.expect("a pointer");
        let line = pointer.lines().find(|line| line.starts_with("release "));
        line.expect("a release").to_owned()
    };
    assert_eq!(release("store"), release("direct"));
    // The next publication of the same file changes nothing, and a label is set as for a folder.
    let done = publish_well(&site, &["www.release", "./store"]);
    assert!(done.stdout.contains("unchanged, sequence 1"), "{done:?}");
    let done = publish_well(&site, &["--preview", "next", "www.release", "./store"]);
    assert!(done.stdout.contains("labelled next"), "{done:?}");
}

#[test]
fn the_same_folder_gives_the_same_file() {
    let files = [filled_site(), filled_site()].map(|site| {
        // The second run finds the contents in its store.
        publish_well(&site, &["site", "one.release"]);
        publish_well(&site, &["site", "two.release"]);
        let read = |name: &str| fs::read(site.path(name)).expect("a file");
        assert_eq!(read("one.release"), read("two.release"));
        read("one.release")
    });
    assert_eq!(files[0], files[1]);
}

/// Publishes a file with other bytes, and asserts that the publication is refused and leaves the store.
fn assert_refused(site: &Site, bytes: &[u8], reason: &str) {
    fs::write(site.path("bad.release"), bytes).expect("a file");
    let before = site.store_files();
    let done = publish(site, &["bad.release", "./store"]);
    assert_eq!(done.code, Some(2), "{reason}: {done:?}");
    assert!(done.stderr.contains("bad.release: "), "{done:?}");
    assert!(done.stderr.contains(reason), "{reason}: {done:?}");
    assert_eq!(site.store_files(), before, "{reason}");
}

#[test]
fn a_cut_or_damaged_file_changes_nothing() {
    let site = filled_site();
    publish_well(&site, &["site", "www.release"]);
    site.write("index.html", "another");
    site.publish_well();
    let whole = fs::read(site.path("www.release")).expect("a file");
    for length in [0, 1, 24, 40, 110, 200, whole.len() / 2, whole.len() - 1] {
        let reason = match length {
            0..100 => "this is no packed release",
            100..300 => "the file ends within the manifest",
            _ => "bytes, and the release",
        };
        assert_refused(&site, &whole[..length], reason);
    }
    let longer = [&whole[..], b"x"].concat();
    assert_refused(&site, &longer, "bytes, and the release");
    for (at, reason) in [
        (0, "this is no packed release"),
        (30, "packed release"),
        (200, "the manifest differs from its digest"),
        (whole.len() - 1, "differs from its digest"),
    ] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert_refused(&site, &damaged, reason);
    }
    assert!(!site.path("fresh").exists());
    fs::write(site.path("bad.release"), &whole[..whole.len() - 1]).expect("a file");
    let done = publish(&site, &["bad.release", "./fresh"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(!site.path("fresh").exists());
}

#[test]
fn names_come_from_a_valid_manifest_alone() {
    let site = filled_site();
    site.publish_well();
    let digest = hex(&sha256(b"x"));
    let other = hex(&sha256(b"y"));
    for (lines, content, reason) in [
        (format!("file 1 {digest} ../x\n"), "x", "of the manifest"),
        (format!("file 1 {digest} /etc/x\n"), "x", "of the manifest"),
        (format!("file 1 {digest} .hidden\n"), "x", "of the manifest"),
        (
            format!("file 1 {digest} a\nfile 1 {digest} a\n"),
            "x",
            "of the manifest",
        ),
        (
            format!("file 1 {other} a\n"),
            "x",
            "differs from its digest",
        ),
        (
            format!("file 2 {digest} a\n"),
            "x",
            "bytes, and the release",
        ),
        (
            format!("file 1 {digest} a\nfile 2 {digest} b\n"),
            "x",
            "has two sizes",
        ),
        (
            format!("file 18446744073709551615 {digest} a\n"),
            "x",
            "bad.release: ",
        ),
    ] {
        let manifest = format!("anthill release 1\n{lines}");
        let release = hex(&sha256(manifest.as_bytes()));
        let size = manifest.len();
        let file =
            format!("anthill packed release 1\nmanifest {size} {release}\n{manifest}{content}");
        assert_refused(&site, file.as_bytes(), reason);
    }
}

#[test]
fn options_and_places_without_sense_are_refused() {
    let site = filled_site();
    fs::write(site.path("old.release"), "x").expect("a file");
    for (words, reason) in [
        (
            &["site", "site/www.release"][..],
            "lies in the folder to publish",
        ),
        (
            &["--preview", "a", "site", "a.release"],
            "--preview has no effect",
        ),
        (
            &["site", "a.release", "b.release"],
            "among several destinations",
        ),
        (
            &["old.release", "new.release"],
            "is a packed release already",
        ),
        (
            &["--build", "true", "old.release", "./store"],
            "--build is for a folder",
        ),
        (&["missing.release", "./store"], "missing.release: "),
        (&["site", "missing/a.release"], "missing: "),
    ] {
        let done = publish(&site, words);
        assert_eq!(done.code, Some(2), "{words:?} {done:?}");
        assert!(done.stderr.contains(reason), "{words:?} {done:?}");
    }
    assert!(!site.path("store").exists() && !site.path("a.release").exists());
}

#[test]
fn a_fault_leaves_the_old_or_the_new_file() {
    for (call, fault) in [
        ("write", "error=ENOSPC"),
        ("write", "signal=KILL"),
        ("fsync", "error=EIO"),
        ("/^rename", "signal=KILL"),
        ("/^rename", "error=EIO"),
    ] {
        let site = filled_site();
        publish_well(&site, &["site", "www.release"]);
        let old = fs::read(site.path("www.release")).expect("a file");
        site.write("index.html", "new");
        publish_well(&site, &["site", "new.release"]);
        let new = fs::read(site.path("new.release")).expect("a file");
        for number in 1.. {
            fs::write(site.path("www.release"), &old).expect("a file");
            let mut traced = Command::new(tool("strace"));
            traced
                .args(["-f", "-qq", "-o", "/dev/null", "-e"])
                .arg(format!("trace={call}"))
                .arg("-e")
                .arg(format!("inject={call}:{fault}:when={number}"))
                .arg(env!("CARGO_BIN_EXE_anthill-publish"))
                .args(["publish", "site", "www.release"])
                .current_dir(site.path("."))
                .env("XDG_CACHE_HOME", site.path("cache"));
            let done = run(traced);
            let found = fs::read(site.path("www.release")).expect("a file");
            assert!(found == old || found == new, "{call} {number} {done:?}");
            assert!(found == new || done.code != Some(0), "{call} {number}");
            if !fault.contains("KILL") {
                assert_eq!(drafts(&site.path(".")), 0, "{call} {number} {done:?}");
            }
            if done.code == Some(0) && found == new {
                assert!(number > 1, "no call failed");
                break;
            }
        }
    }
}

/// Returns the number of drafts of packed releases in a folder.
fn drafts(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let drafts = names.filter(|name| name.to_string_lossy().starts_with(".www.release."));
    drafts.count()
}
