//! End-to-end tests of `anthill-publish` with stores in folders: the program is run, and the store is read with the
//! library of the server.

mod support;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base::digest::{from_hex, hex, sha256};
use release::manifest::{ManifestLine, ManifestReader};
use release::release_pointer::ReleasePointer;
use release::store::{Flip, ReleaseStore as _, SiteWriter, StoreWriter, read_manifest};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use support::{Site, run, tool};

/// Text that is worth coding.
fn long_text(name: &str) -> String {
    format!("<title>{name}</title>\n").repeat(100)
}

#[test]
fn a_folder_becomes_a_release_with_its_rules() {
    let site = Site::new();
    site.write("index.html", &long_text("index"));
    site.write("app-3f2a91c8.css", "p{}");
    site.write("404.html", "lost");
    site.write("sub/photo.jpg", "\u{e9}");
    site.write("_headers", "/*\n  X-Frame-Options: DENY\n");
    site.write("_redirects", "/old/* /:splat 302!\n/gone 410\n");
    let done = site.publish(&[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains(
            " of www: published, sequence 1; no server is known to serve the store, since there is no folder "
        ),
        "{done:?}"
    );
    let served = site.served().expect("a release");
    let text = read_manifest(&site.store(), &served.pointer.release).expect("a manifest");
    let lines: Vec<String> = String::from_utf8(text.clone())
        .expect("a text")
        .lines()
        .map(|line| {
            line.split(' ')
                .filter(|it| it.len() != 64)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        lines[..6],
        [
            "anthill release 1",
            "error 404 404.html",
            "fields /**",
            "field X-Frame-Options DENY",
            "redirect! 302 /old/* /:splat",
            "redirect 410 /gone",
        ]
    );
    assert_eq!(
        lines[6..8],
        ["file 4 404.html", "hashed 3 app-3f2a91c8.css"]
    );
    assert!(lines[8].starts_with("file 2100 index.html"), "{lines:?}");
    let words: Vec<&str> = lines[9..11]
        .iter()
        .filter_map(|it| it.split(' ').next())
        .collect();
    // Zstandard is left out where Brotli is smaller.
    assert_eq!(words, ["gzip", "br"]);
    assert_eq!(lines[11..], ["file 2 sub/photo.jpg"]);
    site.assert_whole();
    // Each coded content has the text.
    let store = site.store();
    for line in ManifestReader::new(&text).expect("a manifest") {
        if let Ok(ManifestLine::Coded { coding, content }) = line {
            let blob = store.open_blob(&content.digest).expect("a content");
            let mut decoded = Vec::new();
            use std::io::Read as _;
            match coding.token() {
                "gzip" => drop(flate2::read::GzDecoder::new(blob).read_to_end(&mut decoded)),
                "br" => drop(brotli::Decompressor::new(blob, 4096).read_to_end(&mut decoded)),
                other => panic!("{other:?}"),
            }
            assert_eq!(decoded, long_text("index").into_bytes(), "{coding:?}");
        }
    }
}

#[test]
fn the_same_folder_has_the_same_id_in_each_environment() {
    let names = ["a.html", "b/c.css", "b-c.txt", "\u{fc}.txt", "z/index.html"];
    let mut ids = Vec::new();
    for (zone, locale, umask, is_reversed) in [
        ("UTC", "C", "022", false),
        ("Asia/Kathmandu", "tr_TR.UTF-8", "077", true),
        ("America/St_Johns", "de_DE.UTF-8", "000", false),
    ] {
        let site = Site::new();
        let mut order = names.to_vec();
        if is_reversed {
            order.reverse();
        }
        for name in order {
            site.write(name, &long_text(name));
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_anthill-publish"))
            .arg("publish")
            .args([site.source(), site.path("store")])
            .env("TZ", zone)
            .env("LC_ALL", locale)
            .env("LANG", locale);
        let done = run(command);
        assert_eq!(done.code, Some(0), "{done:?}");
        ids.push(site.served().expect("a release").pointer.release);
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
}

#[test]
fn a_dry_run_shows_the_changes_and_writes_nothing() {
    let site = Site::new();
    site.write("index.html", "one");
    let done = site.publish(&["--dry-run"]);
    assert!(done.stdout.contains("  added   index.html\n"), "{done:?}");
    assert!(!site.path("store").exists());
    site.publish_well();
    site.write("index.html", "two");
    site.write("new.html", "new");
    let before = site.store_files();
    let done = site.publish(&["--dry-run"]);
    for part in [
        "  changed index.html\n  added   new.html\n",
        "2 files, 6 B: 1 added, 1 changed, 0 removed",
        "6 B new",
    ] {
        assert!(done.stdout.contains(part), "{part}: {done:?}");
    }
    assert_eq!(site.store_files(), before);
    let promised = done.stdout.split(' ').nth(1).map(str::to_owned);
    let done = site.publish(&[]);
    assert_eq!(done.stdout.split(' ').nth(1).map(str::to_owned), promised);
    // Another publication of the same folder changes nothing.
    let before = site.store_files();
    let done = site.publish(&[]);
    assert!(done.stdout.contains("unchanged, sequence 2"), "{done:?}");
    assert_eq!(site.store_files(), before);
}

#[test]
fn a_dry_run_compresses_nothing_and_knows_the_id_of_a_compressed_folder() {
    let site = Site::new();
    site.write("index.html", &long_text("one"));
    site.write("copy.html", &long_text("one"));
    let done = site.publish(&["--dry-run"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], "the release is not published", "{done:?}");
    let left_out = "  1.9 KB new to the store without the compressed forms of 1 text with 1.9 KB, ";
    assert!(lines[4].starts_with(left_out), "{done:?}");
    let done = site.publish(&[]);
    let published = done.stdout.split(' ').nth(1).map(str::to_owned);
    let done = site.publish(&["--dry-run"]);
    let shown = done.stdout.split(' ').nth(1).map(str::to_owned);
    assert_eq!(shown, published, "{done:?}");
    assert!(
        done.stdout.contains(" equals the served release\n"),
        "{done:?}"
    );
}

#[test]
fn a_folder_that_returns_has_its_earlier_codings_and_id() {
    let site = Site::new();
    let text = long_text("index");
    // A first publication of many files has lower levels than a publication of one changed file.
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(text.as_bytes()).expect("a coding");
    let coded = coder.finish().expect("a coding");
    let writer = StoreWriter::open(&site.path("store")).expect("a store");
    let mut manifest = "anthill release 1\n".to_owned();
    for (word, content) in [("file", text.as_bytes()), ("gzip", &coded)] {
        let mut draft = writer.draft().expect("a draft");
        draft.write_all(content).expect("a content");
        let (content, _) = draft.finish().expect("a content");
        let end = if word == "file" { " index.html" } else { "" };
        let digest = hex(&content.digest);
        manifest.push_str(&format!("{word} {} {digest}{end}\n", content.size));
    }
    let first = writer.add_manifest(manifest.as_bytes()).expect("a release");
    let flip = Flip {
        release: first,
        seen: None,
        time: 1,
        publisher: "ann".to_owned(),
    };
    let lock = SiteWriter::lock(&writer, "www").expect("a lock");
    lock.flip(flip, ReleasePointer::text)
        .expect("a publication");
    drop(lock);
    drop(writer);
    for (text, is_first) in [(long_text("other"), false), (text, true)] {
        site.write("index.html", &text);
        site.publish_well();
        let served = site.served().expect("a release").pointer.release;
        assert_eq!(served == first, is_first);
    }
}

#[test]
fn a_preview_leaves_the_served_release() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    let served = site.served();
    site.write("index.html", "two");
    let done = site.publish(&["--preview", "next"]);
    assert!(done.stdout.contains("labelled next"), "{done:?}");
    assert_eq!(site.served(), served);
    let label = site.store().label("www", "next").expect("a label");
    assert!(label.is_some_and(|label| Some(label) != served.map(|it| it.pointer.release)));
    let done = site.publish(&["--preview", "../next"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    // A rollback to the label publishes the preview.
    let done = site.command("rollback", &["next"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(site.served().map(|it| it.pointer.release), label);
}

#[test]
fn a_rollback_has_a_new_sequence() {
    let site = Site::new();
    let mut releases = Vec::new();
    for text in ["one", "two", "three"] {
        site.write("index.html", text);
        site.publish_well();
        releases.push(site.served().expect("a release").pointer.release);
    }
    let served = |site: &Site| {
        let pointer = site.served().expect("a release").pointer;
        (pointer.sequence, pointer.release)
    };
    assert_eq!(site.command("rollback", &[]).code, Some(0));
    assert_eq!(served(&site), (4, releases[1]));
    assert_eq!(site.command("rollback", &[]).code, Some(0));
    assert_eq!(served(&site), (5, releases[2]));
    let id = base::digest::hex(&releases[0]);
    assert_eq!(site.command("rollback", &[&id[..8]]).code, Some(0));
    assert_eq!(served(&site), (6, releases[0]));
    let done = site.command("rollback", &["0"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    // A withdrawn release is not served again.
    let done = site.act("withdraw", &[&id]);
    assert!(
        done.stdout.contains("`anthill rollback` serves"),
        "{done:?}"
    );
    assert_eq!(site.command("rollback", &[]).code, Some(0));
    assert_eq!(served(&site), (7, releases[2]));
    let done = site.command("rollback", &[&id]);
    assert!(done.stderr.contains("the release is withdrawn"), "{done:?}");
    // A release without a content is not served.
    fs::remove_dir_all(site.path("store/blobs")).expect("a removal");
    let done = site.command("rollback", &[]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_eq!(served(&site), (7, releases[2]));
}

#[test]
fn releases_are_listed_with_their_marks() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    let one = base::digest::hex(&site.served().expect("a release").pointer.release);
    site.write("index.html", "two!");
    site.write("a.txt", "a");
    site.publish_well();
    assert_eq!(site.act("pin", &[&one]).code, Some(0));
    assert_eq!(site.act("label", &["old", &one]).code, Some(0));
    let list = site.command("releases", &[]).stdout;
    let rows: Vec<Vec<&str>> = list
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{list}");
    assert_eq!(rows[1][0], "2");
    assert_eq!(
        rows[1][6..],
        ["2", "5", "B", "+1", "~1", "-0", "published"],
        "{list}"
    );
    assert_eq!(rows[2][5], &one[..16]);
    assert_eq!(
        rows[2][6..],
        ["1", "3", "B", "-", "pinned,", "label", "old"],
        "{list}"
    );
    let json = site.command("releases", &["--json"]).stdout;
    for part in [
        "\"sequence\":2,",
        "\"files\":2,\"bytes\":5,\"added\":1,\"changed\":1,\"removed\":0,\"marks\":[\"published\"]",
        "\"marks\":[\"pinned\",\"label old\"]",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    assert_eq!(site.act("unpin", &["old"]).code, Some(0));
    assert_eq!(site.act("unlabel", &["old"]).code, Some(0));
    assert!(!site.command("releases", &[]).stdout.contains("pinned"));
    // A sweep for one release leaves the served one.
    let done = site.act("sweep", &["--keep", "1", "--seconds", "0"]);
    assert!(
        done.stdout.starts_with("removed 1 publication, 2 contents"),
        "{done:?}"
    );
    site.assert_whole();
}

#[test]
fn publications_that_were_never_served_are_marked() {
    let site = Site::new();
    let ids = ["one", "two", "three"].map(|text| {
        site.write("index.html", text);
        site.publish_well();
        base::digest::hex(&site.served().expect("a release").pointer.release)
    });
    // The server acknowledged the first publication, and refuses the third.
    let publication = |at: usize| format!("release {}\nsequence {}\n", ids[at], at + 1);
    site.write(
        "../served/www",
        &format!("anthill served 1\n{}", publication(0)),
    );
    let refused = format!(
        "anthill refused 1\n{}refused no signature\n",
        publication(2)
    );
    site.write("../served/www:refused", &refused);
    let list = site.command("releases", &[]).stdout;
    let marks: Vec<&str> = list
        .lines()
        .map(|row| row.rsplit("  ").next().expect("a mark"))
        .collect();
    assert_eq!(
        marks,
        ["MARKS", "refused", "never served", "served"],
        "{list}"
    );
    // A withdrawn publication that the server refused ends nothing, and the served one has no publication before.
    let done = site.act("withdraw", &[&ids[2]]).stdout;
    assert!(done.ends_with("withdrawn\n"), "{done}");
    let done = site.act("withdraw", &[&ids[0]]).stdout;
    assert!(
        done.contains("no release until the next publication"),
        "{done}"
    );
}

#[test]
fn a_damaged_content_is_found_and_healed() {
    let site = Site::new();
    site.write("index.html", "content");
    site.publish_well();
    let digest = base::digest::hex(&sha256(b"content"));
    let blob = site.path(&format!("store/blobs/{}/{digest}", &digest[..2]));
    fs::write(&blob, "CONTENT").expect("a write");
    let done = site.act("verify", &[]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stdout.contains(&format!("content {digest}: ")),
        "{done:?}"
    );
    assert_eq!(site.act("verify", &["--remove"]).code, Some(1));
    assert!(!blob.exists());
    site.publish_well();
    let done = site.act("verify", &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("1 release, 2 contents: 0 wrong"),
        "{done:?}"
    );
}

#[test]
fn a_wrong_coding_of_another_publisher_is_found_and_not_taken_over() {
    let site = Site::new();
    site.write("index.html", &long_text("index"));
    site.publish_well();
    let honest = site.served().expect("a release").pointer.release;
    let honest = read_manifest(&site.store(), &honest).expect("a manifest");
    let honest = String::from_utf8(honest).expect("a text");
    let line = |text: &str, word: &str| {
        let line = text.lines().find(|line| line.starts_with(word));
        line.expect("a line").to_owned()
    };
    // Another publisher names the codings of another text as the codings of the page.
    site.write("index.html", &long_text("another page"));
    site.publish_well();
    let other = site.served().expect("a release").pointer.release;
    let other = read_manifest(&site.store(), &other).expect("a manifest");
    let other = String::from_utf8(other).expect("a text");
    let poisoned = other.replace(&line(&other, "file "), &line(&honest, "file "));
    let writer = StoreWriter::open(&site.path("store")).expect("a store");
    let release = writer
        .add_manifest(poisoned.as_bytes())
        .expect("a manifest");
    let flip = Flip {
        release,
        seen: Some(2),
        time: 1,
        publisher: "mallory".to_owned(),
    };
    let lock = SiteWriter::lock(&writer, "www").expect("a lock");
    lock.flip(flip, ReleasePointer::text)
        .expect("a publication");
    drop(lock);
    drop(writer);
    let verified = site.act("verify", &[]);
    assert_eq!(verified.code, Some(1), "{verified:?}");
    assert!(
        verified.stdout.contains("index.html: the content ")
            && verified.stdout.contains("is no coding of the file"),
        "{verified:?}"
    );
    site.write("index.html", &long_text("index"));
    site.write("new.txt", "new");
    site.publish_well();
    let next = site.served().expect("a release").pointer.release;
    let next = read_manifest(&site.store(), &next).expect("a manifest");
    let next = String::from_utf8(next).expect("a text");
    assert_eq!(line(&next, "gzip "), line(&honest, "gzip "));
    assert!(!next.contains(&line(&other, "gzip ")), "{next}");
}

#[test]
fn a_key_signs_publications_and_rollbacks() {
    let site = Site::new();
    site.write("index.html", "one");
    let key = site.path("key.pem");
    let mut command = Command::new(env!("CARGO_BIN_EXE_anthill-publish"));
    command.args(["publish", "--new-key"]).arg(&key);
    let done = run(command);
    let public: [u8; 32] = {
        let first = done.stdout.lines().next().unwrap_or_default();
        let line = format!("publishers = [\"{first}\"]\n");
        assert!(done.stdout.ends_with(&line), "{done:?}");
        from_hex(first.as_bytes()).expect("a key")
    };
    let id = done.stdout.split('"').nth(1).map(str::to_owned);
    assert!(done.stdout.contains("\nsite_id = \""), "{done:?}");
    assert_eq!(
        fs::metadata(&key).expect("a key").permissions().mode() & 0o777,
        0o600
    );
    let key = key.to_string_lossy().into_owned();
    let assert_signed = |sequence: u64| {
        let text = site
            .store()
            .pointer("www")
            .expect("a store")
            .expect("a pointer");
        let (pointer, signature) = ReleasePointer::parse(&text).expect("a pointer");
        let signature = signature.expect("a signature");
        assert_eq!((pointer.sequence, signature.key), (sequence, public));
        assert_eq!(pointer.site_id, id);
        let key = UnparsedPublicKey::new(&ED25519, signature.key);
        assert!(key.verify(signature.signed, &signature.signature).is_ok());
    };
    // A published release is published again to be signed.
    site.publish_well();
    assert_eq!(site.publish(&["--key", &key]).code, Some(0));
    assert_signed(2);
    site.write("index.html", "two");
    let done = site.publish(&[]);
    assert!(done.stderr.contains("sign with --key FILE"), "{done:?}");
    assert_eq!(site.command("rollback", &["--key", &key]).code, Some(0));
    assert_signed(4);
    let done = site.publish(&["--key", "missing.pem"]);
    assert!(done.stderr.starts_with("error: missing.pem: "), "{done:?}");
}

#[test]
fn dead_links_are_reported_before_anything_is_written() {
    let site = Site::new();
    site.write(
        "index.html",
        "<a href=none.html></a><a href='#no'></a><a href=/api/x></a>",
    );
    let strict = site.publish(&["--strict", "--elsewhere", "/api/"]);
    assert_eq!(strict.code, Some(2), "{strict:?}");
    assert!(
        strict
            .stderr
            .contains("error: the release has 2 dead links\n"),
        "{strict:?}"
    );
    assert!(!site.path("store").exists());
    let done = site.publish(&[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let line = "warning: index.html, line 1: none.html: the release has no such file\n";
    assert!(done.stderr.contains(line), "{done:?}");
}

#[test]
fn refused_folders_leave_the_store_as_before() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    let before = site.store_files();
    site.write("index.html", "two");
    let refused = |arguments: &[&str], part: &str| {
        let done = site.publish(arguments);
        assert!(!matches!(done.code, Some(0) | None), "{done:?}");
        assert!(done.stderr.contains(part), "{part}: {done:?}");
        assert!(done.stderr.contains("\nhelp: "), "{done:?}");
        assert_eq!(site.store_files(), before);
    };
    refused(&["--build", "exit 3"], "the build failed: exit status: 3");
    let link = site.path("site/link");
    symlink("/etc", &link).expect("a link");
    refused(&[], "link: the link leads out of the folder, to /etc");
    fs::remove_file(&link).expect("a removal");
    site.write("_headers", "X-A: 1");
    refused(
        &[],
        "_headers, line 1: a field stands before the first path",
    );
    site.write("_headers", "");
    site.write("_redirects", "\n/a /b 200");
    refused(
        &[],
        "_redirects, line 2: a rewrite (status 200) is not supported",
    );
    site.write("_redirects", "");
    let build = format!("echo built > {}/built.txt", site.source().display());
    assert_eq!(site.publish(&["--build", &build]).code, Some(0));
    assert!(site.store_files().len() > before.len());
    let done = site.command_at(
        "publish",
        &[
            &site.source().to_string_lossy(),
            "pi@zero:www",
            "--ssh",
            "false",
        ],
    );
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("pi@zero: false ended too early"),
        "{done:?}"
    );
}

#[test]
fn links_in_a_store_are_refused() {
    let site = Site::new();
    site.write("index.html", "one");
    fs::create_dir_all(site.path("store")).expect("a folder");
    fs::create_dir_all(site.path("outside")).expect("a folder");
    for name in ["blobs", "drafts", "sites"] {
        let link = site.path("store").join(name);
        symlink(site.path("outside"), &link).expect("a link");
        let done = site.publish(&[]);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.stderr.contains("a link or a file stands in place"),
            "{done:?}"
        );
        fs::remove_file(&link).expect("a removal");
    }
    assert_eq!(
        fs::read_dir(site.path("outside"))
            .expect("a folder")
            .count(),
        0
    );
    site.publish_well();
}

#[test]
fn one_of_two_publishers_at_once_is_refused() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    site.write("index.html", "two");
    // The lock of the site holds both publishers after their comparison with the pointer.
    let lock = fs::File::open(site.path("store/sites/www/lock")).expect("a lock");
    lock.lock().expect("the lock");
    let publishers: Vec<_> = (0..2).map(|_| site.start(&[])).collect();
    for publisher in &publishers {
        support::wait_for_lock(publisher.id());
    }
    drop(lock);
    let done: Vec<_> = publishers.into_iter().map(support::finish).collect();
    let refused = match (done[0].code, done[1].code) {
        (Some(0), Some(1)) => &done[1],
        (Some(1), Some(0)) => &done[0],
        _ => panic!("{done:?}"),
    };
    assert!(
        refused.stderr.contains("published sequence 2 meanwhile"),
        "{refused:?}"
    );
    assert_eq!(site.served().map(|it| it.pointer.sequence), Some(2));
}

#[test]
fn a_withdrawn_release_is_not_published_again() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    let release = hex(&site.served().expect("a release").pointer.release);
    let mut command = support::program("releases");
    command
        .arg("withdraw")
        .arg(site.path("store"))
        .arg(&release[..12]);
    let done = run(command);
    assert!(
        done.stdout
            .contains("no release until the next publication"),
        "{done:?}"
    );
    let done = site.publish(&[]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("is withdrawn"), "{done:?}");
    site.write("index.html", "two");
    site.publish_well();
}

#[test]
fn a_store_is_never_part_of_a_site() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    let publish = |source: &str, store: &str| {
        let mut command = support::program("publish");
        command.args([site.path(source), site.path(store)]);
        run(command)
    };
    std::fs::create_dir(site.path("site/empty")).expect("a folder");
    for (source, store, reason) in [
        ("store", "site", "is a store of releases"),
        ("site", "site/empty", "lies in the folder to publish"),
        ("site", ".", "has other files, and is no store"),
    ] {
        let done = publish(source, store);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains(reason), "{done:?}");
    }
    assert!(!site.path("site/blobs").exists());
}

#[test]
fn a_full_disk_leaves_the_old_release() {
    let site = Site::new();
    site.write("index.html", "one");
    let script = "set -e; mkdir small; mount -t tmpfs -o size=512k none small\n\
        \"$0\" publish site small/store; cp small/store/sites/www/pointer before\n\
        head -c 700000 /dev/urandom > site/big.bin\n\
        ! \"$0\" publish site small/store\n\
        cmp before small/store/sites/www/pointer\n\
        test -z \"$(ls small/store/drafts)\"\n\
        rm site/big.bin; dd if=/dev/zero of=small/filler bs=4k 2>/dev/null || true\n\
        echo two > site/index.html\n\
        ! \"$0\" publish site small/store\n\
        cmp before small/store/sites/www/pointer\n\
        rm small/filler; \"$0\" publish site small/store; \"$0\" releases verify small/store";
    let mut command = Command::new(tool("unshare"));
    command.args(["--map-root-user", "--mount", "sh", "-c", script]);
    command
        .arg(env!("CARGO_BIN_EXE_anthill-publish"))
        .current_dir(site.path(""));
    let done = run(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let stderr = done.stderr.to_lowercase();
    assert_eq!(stderr.matches("the disk is full").count(), 2, "{done:?}");
    assert!(
        done.stdout.ends_with("2 releases, 4 contents: 0 wrong\n"),
        "{done:?}"
    );
}

#[test]
fn a_list_and_a_rollback_need_a_store_with_the_site() {
    let site = Site::new();
    site.write("index.html", "one");
    for (place, what) in [
        (site.path("missing"), "is no folder"),
        (site.source(), "has no releases"),
    ] {
        let place = format!("{}/", place.display());
        for word in ["releases", "rollback"] {
            let done = site.command_at(word, &[&place]);
            assert_eq!(done.code, Some(2), "{done:?}");
            assert!(done.stderr.contains(what), "{done:?}");
        }
    }
    site.publish_well();
    let other = format!("{}:blog", site.path("store").display());
    let done = site.command_at("releases", &[&other]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("has no site `blog`"), "{done:?}");
    assert!(done.stderr.ends_with(" are: www\n"), "{done:?}");
    // A withdrawn release is neither served nor published.
    let release = hex(&site.served().expect("a release").pointer.release);
    let done = site.act("withdraw", &[&release]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let list = site.command("releases", &[]).stdout;
    assert!(list.ends_with(" withdrawn\n"), "{list}");
    assert!(
        !list.contains("published") && !list.contains("served"),
        "{list}"
    );
}

#[test]
fn a_store_below_the_folder_is_refused_before_it_is_made() {
    let site = Site::new();
    site.write("index.html", "one");
    for store in ["site/store", "site/a/../b/store"] {
        let place = site.path(store).to_string_lossy().into_owned();
        let source = site.source().to_string_lossy().into_owned();
        let done = site.command_at("publish", &[&source, &place]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(
            done.stderr.contains("lies in the folder to publish"),
            "{done:?}"
        );
        assert_eq!(fs::read_dir(site.source()).expect("a folder").count(), 1);
    }
}

#[test]
fn a_dry_run_names_changed_rules() {
    let site = Site::new();
    site.write("index.html", "one");
    site.publish_well();
    let rules = "  changed rules: redirects, fields or error pages\n";
    let done = site.publish(&["--dry-run"]);
    assert!(!done.stdout.contains(rules), "{done:?}");
    site.write("_redirects", "/old /\n");
    let done = site.publish(&["--dry-run"]);
    assert!(done.stdout.contains(rules), "{done:?}");
    assert!(done.stdout.contains("is not published"), "{done:?}");
}

#[test]
fn labels_are_no_digits_and_a_missing_label_is_an_error() {
    let site = Site::new();
    site.write("index.html", "one");
    let done = site.publish(&["--preview", "beef"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("could be the start of a release id"),
        "{done:?}"
    );
    let done = site.publish(&["--preview", "next"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = site.act("label", &["2026", "next"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    let done = site.act("unlabel", &["other"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("no release has the label `other`"),
        "{done:?}"
    );
    let done = site.act("pim", &["next"]);
    assert!(done.stderr.contains("`pim` is no action"), "{done:?}");
    let key = site.path("key.pem").to_string_lossy().into_owned();
    let done = site.command_at("publish", &["--new-key", &key]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = site.command_at("publish", &["--new-key", &key]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("a key is never replaced"), "{done:?}");
}

#[test]
fn a_failed_ssh_has_a_message_of_its_own() {
    let site = Site::new();
    site.write("index.html", "one");
    for (ssh, what) in [
        (
            "sh -c 'exit 255'",
            "sh -c 'exit 255' could not connect or log in",
        ),
        (
            "sh -c 'exit 127'",
            "`sh -c 'exit 127'` is no command here, or",
        ),
        ("sh -c 'exit 1'", "sh -c 'exit 1' ended too early"),
    ] {
        let mut command = support::program("publish");
        command
            .args(["--ssh", ssh])
            .arg(site.source())
            .args(["zero", "one"]);
        command.env("XDG_CACHE_HOME", site.path("cache"));
        let done = run(command);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert_eq!(done.stderr.matches(what).count(), 2, "{done:?}");
        assert!(
            done.stderr.contains("\nno host has changed: zero, one\n"),
            "{done:?}"
        );
    }
}

#[test]
fn mistakes_of_the_folder_are_named_before_ssh_is_started() {
    let site = Site::new();
    site.write("index.html", "one");
    let started = site.path("started");
    let script = format!("#!/bin/sh\n: > {}\nexit 255\n", started.display());
    fs::write(site.path("ssh"), script).expect("a program");
    let publish = || {
        let ssh = format!("sh {}", site.path("ssh").display());
        let mut command = support::program("publish");
        command.args(["--ssh", &ssh]).arg(site.source());
        command.args(["zero", "one"]);
        command.env("XDG_CACHE_HOME", site.path("cache"));
        run(command)
    };
    let assert_refused = |place: &str| {
        let done = publish();
        assert_eq!(done.code, Some(2), "{place}: {done:?}");
        assert!(done.stderr.contains(place), "{place}: {done:?}");
        assert!(done.stderr.contains("\nhelp: "), "{place}: {done:?}");
        assert!(!started.exists(), "{place}: ssh was started: {done:?}");
    };
    let glob = format!("/*\n  X-A: 1\n/{}*\n  X-A: 1\n", "a".repeat(254));
    let long = format!("/a /b\n/c /{}\n", "b".repeat(2_048));
    for (file, text, place) in [
        ("_headers", &b"X-A b"[..], "_headers, line 1: "),
        ("_headers", b"/*\n  X-A: 1\n  X-B b\n", "_headers, line 3: "),
        ("_headers", glob.as_bytes(), "_headers, line 3: the glob"),
        (
            "_headers",
            b"/*\n  X-A: \xe4\n",
            "_headers, line 2: the text is not UTF-8",
        ),
        (
            "_redirects",
            b"/a /b\n/\xe4 /c\n",
            "_redirects, line 2: the text is not UTF-8",
        ),
        ("_redirects", b"/a b", "_redirects, line 1: "),
        ("_redirects", b"/a /b\n/b /c 200", "_redirects, line 2: "),
        ("_redirects", b"/a /b 3O1", "_redirects, line 1: "),
        ("_redirects", long.as_bytes(), "_redirects, line 2: "),
        ("_redirects", b"/* /none 404", "_redirects, line 1: no file"),
        (
            "_redirects",
            b"/a /b\n/b /a\n",
            "_redirects, line 1: the redirects lead in a circle",
        ),
    ] {
        fs::write(site.source().join(file), text).expect("a file");
        assert_refused(place);
        site.write(file, "");
    }
    let deep = "d/".repeat(64) + "page.html";
    site.write(&deep, "deep");
    assert_refused("page.html: a path lies below more than 64 folders");
    fs::remove_dir_all(site.path("site/d")).expect("a removal");
    symlink("/etc", site.path("site/link")).expect("a link");
    assert_refused("link: the link leads out of the folder");
    fs::remove_file(site.path("site/link")).expect("a removal");
    let done = publish();
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(started.exists(), "{done:?}");
}
