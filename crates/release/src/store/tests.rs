//! Tests of changes of a store.

use super::*;
use crate::limits::{STORE_BUFFER_BYTES, STORE_MARKS_MAX};
use crate::manifest::{BlobRef, ManifestLine, ManifestWriter};
use crate::release_pointer::ReleasePointer;
use base::digest::{hex, sha256};
use std::borrow::Cow;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use tempfile::TempDir;

const OWNER: DraftOwner<'static> = DraftOwner {
    site: "www",
    publisher: None,
};

fn store() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn add(writer: &StoreWriter, bytes: &[u8]) -> BlobRef {
    let mut draft = writer.draft().expect("a draft");
    draft.write_all(bytes).expect("a write");
    let (content, _) = draft.finish().expect("a content");
    writer.sync().expect("a sync");
    content
}

/// Adds a release with one file.
fn release(writer: &StoreWriter, content: &[u8]) -> [u8; 32] {
    let content = add(writer, content);
    let mut manifest = ManifestWriter::default();
    manifest.push(&ManifestLine::File {
        path: Cow::Borrowed(b"index.html"),
        content,
        is_hashed: false,
    });
    let manifest = manifest.finish();
    writer
        .add_manifest(manifest.as_bytes())
        .expect("a manifest")
}

fn flip(
    writer: &StoreWriter,
    release: [u8; 32],
    seen: Option<u64>,
    time: u64,
) -> Result<ReleasePointer, StoreWriteError> {
    let publisher = "ann@laptop".to_owned();
    let site = SiteWriter::lock(writer, "www").expect("a lock");
    let flip = Flip {
        release,
        seen,
        time,
        publisher,
    };
    site.flip(flip, ReleasePointer::text)
}

fn files(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(self::files(&path))
        } else {
            files.push(path.file_name().expect("a name").to_string_lossy().into())
        }
    }
    files.sort();
    files
}

#[test]
fn a_publication_is_read_as_written() {
    let folder = store();
    let writer = StoreWriter::open(&folder.path().join("store")).expect("a store");
    let one = release(&writer, b"one");
    let two = release(&writer, b"two");
    assert_eq!(flip(&writer, one, None, 100).expect("a flip").sequence, 1);
    assert_eq!(flip(&writer, two, Some(1), 50).expect("a flip").sequence, 2);
    let store = writer.reader();
    let records = SiteRecords::read(store, "www").expect("records");
    assert_eq!(records.served, Some(2));
    assert_eq!(records.releases(), [two, one]);
    assert_eq!(sites(store).expect("sites"), ["www"]);
    let contents = release_contents(store, &one).expect("contents");
    assert_eq!(contents.len(), 2);
    assert_eq!(contents[1].digest, sha256(b"one"));
    for content in &contents {
        assert!(verify_content(store, content).is_ok());
    }
    assert!(files(&folder.path().join("store/drafts")).is_empty());
}

#[test]
fn a_store_needs_the_folder_above() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = StoreWriter::open(&folder.path().join("missing/store")).err();
    assert_eq!(
        error.expect("a refusal").to_string(),
        "the folder above is missing, and must be made first"
    );
}

#[test]
fn the_second_of_two_publishers_is_refused() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let one = release(&writer, b"one");
    flip(&writer, one, None, 1).expect("a flip");
    for seen in [None, Some(2)] {
        let error = flip(&writer, one, seen, 1).expect_err("a refusal");
        assert!(
            error
                .to_string()
                .starts_with("ann@laptop published sequence 1 meanwhile"),
            "{error}"
        );
    }
}

#[test]
fn a_missing_record_is_written_by_the_next_publisher() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let (one, two) = (release(&writer, b"one"), release(&writer, b"two"));
    flip(&writer, one, None, 1).expect("a flip");
    let record = folder.path().join("sites/www/pointers/1");
    fs::remove_file(&record).expect("a removal");
    flip(&writer, two, Some(1), 2).expect("a flip");
    assert!(record.exists());
    // The sequence rises after the loss of the pointer too.
    fs::remove_file(folder.path().join("sites/www/pointer")).expect("a removal");
    assert_eq!(flip(&writer, one, None, 3).expect("a flip").sequence, 3);
    fs::write(folder.path().join("sites/www/pointer"), "x").expect("a write");
    let error = flip(&writer, one, Some(3), 3).expect_err("a refusal");
    assert!(
        error.to_string().starts_with("sites/www/pointer: "),
        "{error}"
    );
}

#[test]
fn a_withdrawn_release_is_not_published_again() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let (one, two, three) = (
        release(&writer, b"one"),
        release(&writer, b"two"),
        release(&writer, b"three"),
    );
    flip(&writer, one, None, 1).expect("a flip");
    flip(&writer, two, Some(1), 1).expect("a flip");
    flip(&writer, three, Some(2), 1).expect("a flip");
    let site = SiteWriter::lock(&writer, "www").expect("a lock");
    site.mark(ReleaseMark::Withdrawn, &two).expect("a mark");
    drop(site);
    assert!(writer.reader().is_withdrawn("www", &two).expect("a mark"));
    let error = flip(&writer, two, Some(3), 1).expect_err("a refusal");
    assert!(matches!(error, StoreWriteError::Withdrawn));
}

#[test]
fn labels_and_pins_are_set_and_removed() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let one = release(&writer, b"one");
    let site = SiteWriter::lock(&writer, "www").expect("a lock");
    site.set_label("next", &one, LabelEditor::LOCAL)
        .expect("a label");
    site.mark(ReleaseMark::Pinned, &one).expect("a pin");
    let label = writer.reader().label("www", "next").expect("a label");
    assert_eq!(label, Some(one));
    let records = SiteRecords::read(writer.reader(), "www").expect("records");
    assert_eq!(records.pins, [one]);
    assert_eq!(records.releases(), [one]);
    site.remove_label("next", LabelEditor::LOCAL)
        .expect("a removal");
    site.unpin(&one).expect("a removal");
    site.unpin(&one).expect("no pin");
    let records = SiteRecords::read(writer.reader(), "www").expect("records");
    assert_eq!(records, SiteRecords::default());
    assert!(site.set_label("../x", &one, LabelEditor::LOCAL).is_err());
    assert!(SiteWriter::lock(&writer, "../www").is_err());
}

#[test]
fn a_present_content_stays_and_a_cut_one_is_replaced() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let content = add(&writer, b"content");
    let name = hex(&content.digest);
    let path = folder.path().join(format!("blobs/{}/{name}", &name[..2]));
    let inode = fs::metadata(&path).expect("a content").ino();
    add(&writer, b"content");
    assert_eq!(fs::metadata(&path).expect("a content").ino(), inode);
    fs::write(&path, "cont").expect("a write");
    assert!(!writer.has(&content).expect("a look"));
    assert!(verify_content(writer.reader(), &content).is_err());
    add(&writer, b"content");
    assert_eq!(fs::read(&path).expect("a content"), b"content");
    let large = vec![7; 3 * STORE_BUFFER_BYTES + 1];
    let large = add(&writer, &large);
    assert!(verify_content(writer.reader(), &large).is_ok());
    drop(writer.draft().expect("a draft"));
    assert!(files(&folder.path().join("drafts")).is_empty());
}

#[test]
fn links_in_a_store_are_refused() {
    let outside = store();
    for place in ["blobs", "drafts", "sites", "lock"] {
        let folder = store();
        symlink(outside.path(), folder.path().join(place)).expect("a link");
        let writer = StoreWriter::open(folder.path());
        let refused = writer.and_then(|writer| SiteWriter::lock(&writer, "www").map(|_| ()));
        let error = refused.expect_err(place);
        assert!(error.to_string().contains("link"), "{place}: {error}");
    }
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let one = release(&writer, b"one");
    flip(&writer, one, None, 1).expect("a flip");
    for place in ["pointer", "pointers", "lock", "labels"] {
        let path = folder.path().join("sites/www").join(place);
        let _ = fs::remove_dir_all(&path);
        let _ = fs::remove_file(&path);
        symlink(outside.path().join("x"), &path).expect("a link");
        let site = SiteWriter::lock(&writer, "www");
        let changed = site.and_then(|site| {
            site.set_label("a", &one, LabelEditor::LOCAL)?;
            drop(site);
            flip(&writer, one, Some(1), 1)
        });
        assert!(changed.is_err(), "{place}");
        fs::remove_file(&path).expect("a removal");
        flip(&writer, one, Some(1), 1).ok();
    }
    assert!(files(outside.path()).is_empty());
    let content = sha256(b"one");
    let name = hex(&content);
    let path = folder.path().join(format!("blobs/{}/{name}", &name[..2]));
    fs::remove_file(&path).expect("a removal");
    symlink("/etc/passwd", &path).expect("a link");
    let content = BlobRef {
        size: 3,
        digest: content,
    };
    assert!(writer.has(&content).is_err());
}

#[test]
fn a_sweep_keeps_each_release_in_use() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let mut releases = Vec::new();
    for number in 0..15_u64 {
        let content = format!("content {number}");
        let one = release(&writer, content.as_bytes());
        let seen = Some(number).filter(|it| *it > 0);
        flip(&writer, one, seen, 1_000 * number).expect("a flip");
        releases.push(one);
    }
    let labelled = release(&writer, b"labelled");
    let site = SiteWriter::lock(&writer, "www").expect("a lock");
    site.set_label("next", &labelled, LabelEditor::LOCAL)
        .expect("a label");
    site.mark(ReleaseMark::Pinned, &releases[0]).expect("a pin");
    site.mark(ReleaseMark::Withdrawn, &releases[13])
        .expect("a mark");
    drop(site);
    fs::write(folder.path().join("drafts/old"), "x").expect("a draft");
    let store = StoreFolder::open(folder.path()).expect("a store");
    let retention = Retention {
        releases: 3,
        seconds: 5_000,
        bytes: u64::MAX,
    };
    let busy = sweep(&store, &retention, 14_999).expect_err("a lock");
    assert!(matches!(busy, StoreWriteError::Busy));
    drop(writer);
    let report = sweep(&store, &retention, 14_999).expect("a sweep");
    // The releases 9 to 14 were replaced within 5,000 s, release 13 is withdrawn, and release 0 is pinned.
    assert_eq!(report.publications, 9);
    assert_eq!(report.contents, 2 * 9 + 1);
    let is_whole = |release: &[u8; 32]| {
        let contents = release_contents(&store, release);
        contents.is_ok_and(|all| all.iter().all(|it| verify_content(&store, it).is_ok()))
    };
    let whole: Vec<usize> = (0..15).filter(|at| is_whole(&releases[*at])).collect();
    assert_eq!(whole, [0, 9, 10, 11, 12, 14]);
    assert!(is_whole(&labelled));
    // The bound in bytes leaves the served, the labelled and the pinned release.
    let narrow = Retention {
        bytes: 1,
        ..retention
    };
    sweep(&store, &narrow, 14_999).expect("a sweep");
    let whole: Vec<usize> = (0..15).filter(|at| is_whole(&releases[*at])).collect();
    assert_eq!(whole, [0, 14]);
    assert!(is_whole(&labelled));
    assert_eq!(
        sweep(&store, &narrow, 14_999).expect("a sweep"),
        SweepReport::default()
    );
    // An unreadable served release ends a sweep before the first removal.
    let name = hex(&releases[14]);
    fs::write(
        folder.path().join(format!("blobs/{}/{name}", &name[..2])),
        "x",
    )
    .expect("a write");
    let before = files(folder.path());
    assert!(sweep(&store, &narrow, u64::MAX).is_err());
    assert_eq!(files(folder.path()), before);
}

#[test]
fn a_wrong_time_of_a_publication_does_not_end_the_releases_before() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let times = [100, 90_000, 0, 90_010];
    let releases: Vec<[u8; 32]> = (times.iter().zip(0..))
        .map(|(time, seen)| {
            let one = release(&writer, format!("content {seen}").as_bytes());
            flip(&writer, one, Some(seen).filter(|it| *it > 0), *time).expect("a flip");
            one
        })
        .collect();
    drop(writer);
    let store = StoreFolder::open(folder.path()).expect("a store");
    let retention = Retention {
        releases: 1,
        seconds: 1_000,
        bytes: u64::MAX,
    };
    // The first release was replaced at 90,000 s, the second not before 90,000 s, and the third at 90,010 s.
    for (now, left) in [(90_999, &releases[..]), (91_000, &releases[2..])] {
        sweep(&store, &retention, now).expect("a sweep");
        let records = SiteRecords::read(&store, "www").expect("records");
        let published = records.publications.values();
        let kept: Vec<_> = published.map(|it| it.pointer.release).collect();
        assert_eq!(kept, left, "{now}");
    }
}

#[test]
fn a_sweep_keeps_the_acknowledged_release() {
    let above = store();
    let path = above.path().join("releases");
    let writer = StoreWriter::open(&path).expect("a store");
    let [first, second, third] = [&b"first"[..], b"second", b"third"].map(|content| {
        let one = release(&writer, content);
        let records = SiteRecords::read(writer.reader(), "www").expect("records");
        flip(&writer, one, records.served, 1).expect("a flip");
        one
    });
    drop(writer);
    let store = StoreFolder::open(&path).expect("a store");
    let acknowledge = |release| {
        let (sequence, time) = (1, 0);
        let served = ServedRelease {
            release,
            sequence,
            time,
        };
        let folder = served_folder(&path);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("www"), served.text()).expect("written");
    };
    let narrow = Retention {
        releases: 0,
        seconds: 0,
        bytes: 0,
    };
    let has = |release: [u8; 32]| has_contents(&store, &release);
    // The server serves the first release, and has refused the other ones.
    acknowledge(first);
    sweep(&store, &narrow, 1_000).expect("a sweep");
    assert_eq!([first, second, third].map(has), [true, false, true]);
    let records = SiteRecords::read(&store, "www").expect("records");
    assert!(records.publications.keys().eq([&1, &3]));
    // The acknowledgment of another store changes nothing.
    acknowledge([7; 32]);
    sweep(&store, &narrow, 1_000).expect("a sweep");
    assert_eq!([first, third].map(has), [false, true]);
}

#[test]
fn a_shared_store_gets_the_modes_of_a_group() {
    let folder = store();
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.path().join(name)).expect(name);
        metadata.mode() & 0o7777
    };
    fs::set_permissions(folder.path(), Permissions::from_mode(0o2770)).expect("a mode");
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let one = release(&writer, b"one");
    flip(&writer, one, None, 1).expect("a flip");
    for name in [
        "blobs",
        "drafts",
        "sites",
        "sites/www",
        "sites/www/pointers",
    ] {
        assert_eq!(mode(name), 0o2770, "{name}");
    }
    for name in ["lock", "sites/www/lock"] {
        assert_eq!(mode(name), 0o660, "{name}");
    }
    for name in ["sites/www/pointer", "sites/www/pointers/1"] {
        assert_eq!(mode(name), 0o640, "{name}");
    }
}

#[test]
fn a_broken_upload_goes_on_where_it_ended() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    let content = BlobRef {
        size: 6,
        digest: sha256(b"abcdef"),
    };
    assert_eq!(store.resumable_bytes(&OWNER, &content), 0);
    let mut draft = store.resume(&OWNER, &content).expect("done");
    draft.write_all(b"abc").expect("done");
    // Another publisher of the same content has a draft of its own meanwhile, and goes on with no byte of this one.
    assert_eq!(store.resumable_bytes(&OWNER, &content), 0);
    assert_eq!(store.resume(&OWNER, &content).expect("done").size(), 0);
    drop(draft);
    assert_eq!(store.resumable_bytes(&OWNER, &content), 3);
    let mut draft = store.resume(&OWNER, &content).expect("done");
    assert_eq!(draft.size(), 3);
    draft.write_all(b"def").expect("done");
    draft.finish_as(&content).expect("done");
    assert!(store.has(&content).expect("done"));
    assert_eq!(store.resumable_bytes(&OWNER, &content), 0);
    let other = BlobRef {
        size: 3,
        digest: sha256(b"xyz"),
    };
    let mut draft = store.resume(&OWNER, &other).expect("done");
    draft.write_all(b"abc").expect("done");
    assert!(draft.finish_as(&other).is_err());
    assert_eq!(
        store.resumable_bytes(&OWNER, &other),
        0,
        "a wrong content is removed"
    );
    assert!(!store.has(&other).expect("done"));
}

#[test]
fn a_file_in_place_of_a_draft_does_not_stop_a_publisher() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    let content = BlobRef {
        size: 3,
        digest: sha256(b"abc"),
    };
    let path = folder
        .path()
        .join("drafts")
        .join(format!("part-www+{}", hex(&content.digest)));
    let replace = |step: usize| match step {
        0 => symlink("/etc/hostname", &path).expect("a link"),
        _ => {
            fs::remove_file(&path).expect("removed");
            fs::create_dir(&path).expect("a folder");
        }
    };
    for step in 0..2 {
        replace(step);
        assert_eq!(store.resumable_bytes(&OWNER, &content), 0);
        let mut draft = store.resume(&OWNER, &content).expect("a draft");
        draft.write_all(b"abc").expect("a write");
        draft.finish_as(&content).expect("a content");
    }
    assert!(store.has(&content).expect("done"));
}

#[test]
fn labels_and_pins_are_bounded_and_a_label_is_no_id() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    let site = SiteWriter::lock(&store, "www").expect("a lock");
    for label in ["abcd", "0123456789", "DEADBEEF"] {
        let refused = site.set_label(label, &[1; 32], LabelEditor::LOCAL);
        assert!(
            matches!(refused, Err(StoreWriteError::Digits(_))),
            "{label}"
        );
    }
    site.set_label("abc", &[1; 32], LabelEditor::LOCAL)
        .expect("a short label");
    site.set_label("v-1", &[1; 32], LabelEditor::LOCAL)
        .expect("a label");
    let pins = folder.path().join("sites/www/pins");
    fs::create_dir(&pins).expect("a folder");
    for number in 0..STORE_MARKS_MAX {
        fs::write(pins.join(format!("{number:064x}")), b"").expect("a pin");
    }
    let refused = site.mark(ReleaseMark::Pinned, &[0xff; 32]);
    assert!(matches!(refused, Err(StoreWriteError::TooMany(_))));
    site.mark(ReleaseMark::Pinned, &[0; 32])
        .expect("a present pin");
    site.unpin(&[0; 32]).expect("done");
    site.mark(ReleaseMark::Pinned, &[0xff; 32])
        .expect("a pin with room");
}

#[test]
fn a_label_of_another_owner_stays_without_the_right_to_change_all_labels() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    let site = SiteWriter::lock(&store, "www").expect("a lock");
    let editor = |name: &'static str| LabelEditor {
        name: Some(name),
        may_change_all: false,
    };
    let labels = || SiteRecords::read(store.reader(), "www").expect("records");
    let owner = |label: &str| labels().label_owners.get(label).cloned();
    site.set_label("next", &[1; 32], editor("ann"))
        .expect("a new label");
    site.set_label("next", &[2; 32], editor("ann"))
        .expect("an own label");
    let refused = |done: Result<(), StoreWriteError>| {
        matches!(done, Err(StoreWriteError::ForeignLabel { .. }))
    };
    assert!(refused(site.set_label("next", &[3; 32], editor("bob"))));
    // A preview is found by its label in any case.
    assert!(refused(site.set_label("NEXT", &[3; 32], editor("bob"))));
    assert!(refused(site.remove_label("next", editor("bob"))));
    assert_eq!(labels().labels["next"], [2; 32]);
    assert_eq!(owner("next").as_deref(), Some("ann"));
    // A label of an earlier version, and a label that cannot be read, belong to nobody.
    let path = folder.path().join("sites/www/labels");
    fs::write(path.join("old"), format!("{}\n", hex(&[4; 32]))).expect("a label");
    fs::write(path.join("broken"), "x").expect("a label");
    for label in ["old", "broken"] {
        assert!(
            refused(site.set_label(label, &[3; 32], editor("bob"))),
            "{label}"
        );
        assert!(refused(site.remove_label(label, editor("bob"))), "{label}");
    }
    assert_eq!((labels().labels["old"], owner("old")), ([4; 32], None));
    let chief = LabelEditor {
        may_change_all: true,
        ..editor("chief")
    };
    for label in ["next", "old", "broken"] {
        site.set_label(label, &[5; 32], chief)
            .expect("a taken label");
        assert_eq!(owner(label).as_deref(), Some("chief"), "{label}");
        assert!(
            refused(site.set_label(label, &[3; 32], editor("ann"))),
            "{label}"
        );
    }
    assert_eq!(
        store.reader().label("www", "next").expect("a label"),
        Some([5; 32])
    );
    site.remove_label("next", chief).expect("removed");
    site.set_label("next", &[6; 32], editor("bob"))
        .expect("a free label");
    site.remove_label("next", editor("bob")).expect("removed");
}

#[test]
fn the_labels_of_each_owner_are_bounded_apart() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    let site = SiteWriter::lock(&store, "www").expect("a lock");
    let labels = folder.path().join("sites/www/labels");
    fs::create_dir(&labels).expect("a folder");
    let text = format!("{}\nowner ann\n", hex(&[1; 32]));
    for number in 0..STORE_MARKS_MAX {
        fs::write(labels.join(format!("v-{number}")), &text).expect("a label");
    }
    let editor = |name| LabelEditor {
        name,
        may_change_all: false,
    };
    let refused = site.set_label("next", &[1; 32], editor(Some("ann")));
    assert!(matches!(refused, Err(StoreWriteError::TooManyLabels(_))));
    site.set_label("v-1", &[2; 32], editor(Some("ann")))
        .expect("a present label");
    site.set_label("next", &[1; 32], editor(Some("bob")))
        .expect("room of another owner");
    site.set_label("mine", &[1; 32], LabelEditor::LOCAL)
        .expect("room of nobody");
}

#[test]
fn small_files_and_drafts_count_for_the_quota() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    add(&store, b"one");
    assert_eq!(store.used_bytes().expect("done"), 4_096);
    let mut draft = store.draft().expect("a draft");
    draft.write_all(&[0; 10_000]).expect("a write");
    assert_eq!(store.used_bytes().expect("done"), 14_096);
}

/// Writes a part of a content as a session of a publisher that is cut. The parts of later calls are newer.
fn leave_part(store: &StoreWriter, publisher: Option<&str>, number: u8, bytes: usize) -> BlobRef {
    let content = BlobRef {
        size: 1_000_000,
        digest: [number; 32],
    };
    let owner = DraftOwner { publisher, ..OWNER };
    let mut draft = store.resume(&owner, &content).expect("a draft");
    draft.write_all(&vec![number; bytes]).expect("a write");
    let path = store.reader().path().join(draft.path());
    let file = fs::File::options().write(true).open(path).expect("a file");
    let written = std::time::UNIX_EPOCH + std::time::Duration::from_secs(u64::from(number));
    file.set_modified(written).expect("a time");
    content
}

#[test]
fn leftovers_give_way_to_an_upload_that_needs_their_room_the_oldest_first() {
    let folder = store();
    let store = StoreWriter::open(folder.path()).expect("a store");
    let account = QuotaAccount::begin(&store, OWNER, Some(100_000)).expect("an account");
    let [old, used, new] = [1, 2, 3].map(|number| leave_part(&store, Some("ann"), number, 20_000));
    let owner = DraftOwner {
        publisher: Some("ann"),
        ..OWNER
    };
    let other = StoreWriter::open(folder.path()).expect("a store");
    // A live session was told to go on with a part.
    assert_eq!(other.resumable_bytes(&owner, &used), 20_000);
    // Nothing goes for an upload that does not fit all the same.
    let refused = account.reserve(90_000).expect_err("a refusal");
    assert!(
        matches!(refused, StoreWriteError::Quota { .. }),
        "{refused}"
    );
    assert_eq!(store.used_bytes().expect("done"), 60_000);
    account.reserve(60_000).expect("room");
    assert_eq!(store.resumable_bytes(&owner, &old), 0);
    assert_eq!(store.used_bytes().expect("done"), 40_000);
    account.reserve(80_000).expect("room");
    assert_eq!(store.resumable_bytes(&owner, &new), 0);
    let draft = other.resume(&owner, &used).expect("a draft");
    assert_eq!(draft.size(), 20_000);
}

#[test]
fn a_publisher_has_few_leftovers_and_a_sweep_removes_them_after_their_time() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let parts: Vec<BlobRef> = (1..=6)
        .map(|number| leave_part(&writer, Some("ann"), number, 100))
        .collect();
    let other = leave_part(&writer, Some("bob"), 1, 100);
    let owner = |publisher| DraftOwner {
        publisher: Some(publisher),
        ..OWNER
    };
    // The next session of any publisher enforces the bound, and leaves the parts of all other publishers.
    drop(QuotaAccount::begin(&writer, OWNER, None).expect("an account"));
    let sizes: Vec<u64> = (parts.iter())
        .map(|part| writer.resumable_bytes(&owner("ann"), part))
        .collect();
    assert_eq!(sizes, [0, 0, 100, 100, 100, 100]);
    assert_eq!(writer.resumable_bytes(&owner("bob"), &other), 100);
    assert_eq!(
        writer.resumable_bytes(&OWNER, &parts[5]),
        0,
        "of a publisher"
    );
    drop(writer);
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let live = writer.resumable_bytes(&owner("ann"), &parts[2]);
    assert_eq!(live, 100);
    writer.leave_lock();
    let store = StoreFolder::open(folder.path()).expect("a store");
    let retention = Retention {
        seconds: 10,
        ..Retention::default()
    };
    // The parts 3 to 6 were written at as many seconds.
    let report = sweep(&store, &retention, 15).expect("a sweep");
    assert_eq!((report.contents, report.bytes), (2, 2 * 4_096));
    writer.take_lock().expect("a lock");
    let sizes: Vec<u64> = (parts.iter())
        .map(|part| writer.resumable_bytes(&owner("ann"), part))
        .collect();
    assert_eq!(sizes, [0, 0, 100, 0, 100, 100]);
}

thread_local! {
    /// Seconds of the virtual clock.
    static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(1_000) };
}

/// Begins the account of a publisher under the virtual clock, with a quota of 100 MiB.
fn begin_as<'s>(publisher: &'s str, store: &'s StoreWriter) -> QuotaAccount<'s> {
    let owner = DraftOwner {
        publisher: Some(publisher),
        ..OWNER
    };
    let quota = Some(100 << 20);
    QuotaAccount::begin_with_clock(store, owner, quota, || NOW.get()).expect("an account")
}

/// Checks under a virtual clock that a publisher that connects again and again reserves no longer than one that stays
/// connected.
#[test]
fn the_time_without_progress_goes_on_over_connections() {
    const MIB: u64 = 1 << 20;
    let wait = |seconds| NOW.set(NOW.get() + seconds);
    let folder = store();
    let open = || StoreWriter::open(folder.path()).expect("a store");
    let own = open();
    let other = begin_as("bob", &own);
    let is_free = || {
        let free = other.reserve(30 * MIB).is_ok();
        other.settle(0).expect("a note");
        free
    };
    let connect = |bytes: u64| {
        let writer = open();
        let account = begin_as("ann", &writer);
        account.reserve_upload(90 * MIB - bytes).expect("room");
        let free = is_free();
        if bytes > 0 {
            account.before_write(bytes).expect("reserved");
            account.after_write(bytes).expect("a note");
        }
        free
    };
    // The publisher leaves its connection each 20 s.
    let mut free = Vec::new();
    for _ in 0..6 {
        free.push(connect(0));
        wait(20);
    }
    assert_eq!(free, [false, false, false, true, true, true]);
    // Another publisher of the site is not concerned.
    let third = open();
    let third = begin_as("eve", &third);
    third.reserve_upload(90 * MIB).expect("room");
    assert!(!is_free());
    drop(third);
    // Few bytes in each connection are progress together.
    assert!(connect(MIB / 2));
    assert!(connect(MIB / 2));
    assert!(!connect(0));
    // After a time without a connection, the publisher begins anew.
    wait(60);
    assert!(connect(0));
    wait(599);
    assert!(connect(0));
    wait(600);
    assert!(!connect(0));
}

/// Checks under a virtual clock that bytes stay reserved by progress alone.
#[test]
fn a_reservation_lapses_without_progress_whatever_the_session_asks() {
    const MIB: u64 = 1 << 20;
    let wait = |seconds| NOW.set(NOW.get() + seconds);
    let folder = store();
    let stores = [(); 2].map(|()| StoreWriter::open(folder.path()).expect("a store"));
    let begin = |store| begin_as("ann", store);
    let [held, other] = [begin(&stores[0]), begin_as("bob", &stores[1])];
    let is_free = || {
        let free = other.reserve(30 * MIB).is_ok();
        other.settle(0).expect("a note");
        free
    };
    held.reserve_upload(90 * MIB).expect("room");
    // Progress of 1 MiB within 30 s keeps the reservation for any time.
    for _ in 0..10 {
        wait(25);
        held.before_write(MIB).expect("reserved");
        held.after_write(MIB).expect("a note");
        assert!(!is_free());
    }
    // A few bytes, and one upload after the other, are no progress.
    wait(25);
    held.before_write(100).expect("reserved");
    held.after_write(100).expect("a note");
    wait(25);
    held.reserve_upload(85 * MIB).expect("room");
    assert!(!is_free());
    wait(9);
    assert!(!is_free());
    wait(1);
    assert!(is_free());
    held.reserve_upload(85 * MIB).expect("room");
    assert!(is_free(), "the new upload of the session is as old");
    // The next byte of the slow upload has room of its own, and no more.
    held.before_write(100).expect("room");
    assert!(is_free());
    // An upload that has written again is promised the rest.
    held.after_write(MIB).expect("a note");
    held.reserve_upload(85 * MIB).expect("room");
    assert!(!is_free());
    // A session that comes back is refused if the room has gone.
    wait(60);
    other.reserve_upload(99 * MIB + MIB / 2).expect("room");
    held.before_write(MIB / 4).expect("a small part");
    let refused = held.before_write(MIB).expect_err("a refusal");
    assert!(matches!(refused, StoreWriteError::Quota { .. }));
}

/// Adds a release with many files of one content.
fn long_release(writer: &StoreWriter, name: &str) -> [u8; 32] {
    let content = add(writer, name.as_bytes());
    let mut manifest = ManifestWriter::default();
    for number in 0..1_000 {
        manifest.push(&ManifestLine::File {
            path: Cow::Owned(format!("{name}-{number:04}").into_bytes()),
            content,
            is_hashed: false,
        });
    }
    let manifest = manifest.finish();
    (writer.add_manifest(manifest.as_bytes())).expect("a manifest")
}

/// Checks that a sweep needs the manifest of a long release no more than once.
#[test]
fn a_sweep_reads_a_long_manifest_once() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let [one, two] = ["one", "two"].map(|name| long_release(&writer, name));
    let site = SiteWriter::lock(&writer, "www").expect("a lock");
    site.set_label("one", &one, LabelEditor::LOCAL)
        .expect("a label");
    site.set_label("two", &two, LabelEditor::LOCAL)
        .expect("a label");
    drop(site);
    drop(writer);
    let store = StoreFolder::open(folder.path()).expect("a store");
    let sweep = || sweep(&store, &Retention::default(), 1_000);
    let list = |release: &[u8; 32]| folder.path().join("lists").join(hex(release));
    // A release of an earlier program has no list, and a killed publisher leaves a part of one.
    fs::remove_file(list(&one)).expect("a list");
    let bytes = fs::read(list(&two)).expect("a list");
    assert_eq!(bytes.len(), 2 * 16 + 32, "the manifest and the content");
    fs::write(list(&two), &bytes[..40]).expect("a part");
    assert_eq!(sweep().expect("a sweep"), SweepReport::default());
    assert_eq!(fs::read(list(&two)).expect("a list"), bytes);
    assert!(list(&one).exists());
    assert!(has_contents(&store, &one) && has_contents(&store, &two));
    // With the lists, a sweep opens no manifest: a damaged one changes nothing.
    let name = hex(&one);
    let manifest = folder.path().join(format!("blobs/{}/{name}", &name[..2]));
    let text = fs::read(&manifest).expect("a manifest");
    fs::write(&manifest, vec![b'x'; text.len()]).expect("a write");
    assert_eq!(sweep().expect("a sweep"), SweepReport::default());
    fs::write(&manifest, &text).expect("a write");
    assert!(has_contents(&store, &one));
    // The list goes with the release.
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let site = SiteWriter::lock(&writer, "www").expect("a lock");
    site.remove_label("one", LabelEditor::LOCAL)
        .expect("a label");
    drop(site);
    drop(writer);
    assert_eq!(sweep().expect("a sweep").contents, 2);
    assert!(!list(&one).exists() && list(&two).exists());
    assert!(has_contents(&store, &two));
}

/// Checks that publishers have the store while a sweep reads manifests.
#[test]
fn a_sweep_reads_manifests_while_a_publisher_has_the_store() {
    let folder = store();
    let writer = StoreWriter::open(folder.path()).expect("a store");
    let one = long_release(&writer, "one");
    let site = SiteWriter::lock(&writer, "www").expect("a lock");
    site.set_label("one", &one, LabelEditor::LOCAL)
        .expect("a label");
    drop(site);
    let list = folder.path().join("lists").join(hex(&one));
    fs::remove_file(&list).expect("a list");
    let store = StoreFolder::open(folder.path()).expect("a store");
    let busy = sweep(&store, &Retention::default(), 1_000).expect_err("a lock");
    assert!(matches!(busy, StoreWriteError::Busy));
    assert!(list.exists(), "the manifest was read without the lock");
}
