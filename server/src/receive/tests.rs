//! Tests of sessions, with the frames of a publisher in memory.

use super::incoming_manifest::IncomingText;
use super::*;
use base::clock::unix_seconds_now;
use base::digest::{hex, sha256};
use release::manifest::{BlobRef, ManifestLine, ManifestWriter, difference};
use release::receive_frame::{ContentPlace, GzipAndText, HELLO, STATE_WITH_OWNERS};
use release::release_pointer::ReleasePointer;
use release::store::{
    ReleaseStore as _, ReleaseSupport, Retention, SiteRecords, StoreFolder, sweep,
};
use std::borrow::Cow;
use std::io::{Read as _, Write as _};
use std::path::Path;
use tempfile::TempDir;
use wire::content_coding::ContentCoding;

/// Answer of a receiver.
type Answer = (FrameKind, Vec<u8>);

/// Frames of a publisher.
struct Frames(FrameWriter<Vec<u8>>);

impl Frames {
    fn new() -> Frames {
        Frames(FrameWriter::new(Vec::new())).add(FrameKind::Hello, HELLO.as_bytes())
    }

    fn add(mut self, kind: FrameKind, payload: &[u8]) -> Frames {
        self.0.write(kind, payload).expect("memory");
        self
    }

    fn command(self, text: &str) -> Frames {
        self.add(FrameKind::Command, text.as_bytes())
    }

    fn manifest(self, manifest: &str) -> Frames {
        self.add(FrameKind::Manifest, manifest.as_bytes())
            .add(FrameKind::Release, &sha256(manifest.as_bytes()))
    }

    fn content(self, number: u32, offset: u64, bytes: &[u8]) -> Frames {
        let place = ContentPlace { number, offset };
        let frames = self.add(FrameKind::Blob, &place.bytes());
        let frames = if bytes.is_empty() {
            frames
        } else {
            frames.add(FrameKind::Data, bytes)
        };
        frames.add(FrameKind::Data, b"")
    }

    fn pointer(self, manifest: &str, sequence: u64) -> Frames {
        self.add(
            FrameKind::Pointer,
            pointer(manifest, sequence).text().as_bytes(),
        )
    }
}

/// Receiver with a store of its own.
struct Receiver {
    _folder: TempDir,
    options: ReceiveOptions,
}

impl Receiver {
    fn new(rights: Rights) -> Receiver {
        let folder = tempfile::tempdir().expect("a folder");
        let options = ReceiveOptions {
            site: "www".to_owned(),
            store: folder.path().join("releases"),
            served: folder.path().join("served"),
            rights,
            publisher: None,
            quota: None,
            support: ReleaseSupport::find().expect("the feature"),
        };
        Receiver {
            _folder: folder,
            options,
        }
    }

    /// Runs a session, and returns the answers without the greeting.
    fn answers(&self, frames: Frames) -> Vec<Answer> {
        self.answers_to(&frames.0.into_inner()).1
    }

    fn answers_to(&self, bytes: &[u8]) -> (Result<(), ReceiveError>, Vec<Answer>) {
        let mut output = Vec::new();
        let done = receive(&self.options, bytes, &mut output);
        let mut reader = FrameReader::new(&output[..]);
        let mut answers = Vec::new();
        while let Some((kind, payload)) = reader.read().expect("frames") {
            if kind != FrameKind::Hello {
                answers.push((kind, payload.to_vec()));
            }
        }
        (done, answers)
    }

    /// Runs a session that fails, and returns the reason that the publisher gets.
    fn refusal(&self, frames: Frames) -> String {
        let answers = self.answers(frames);
        match answers.last() {
            Some((FrameKind::Failed, text)) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn records(&self) -> SiteRecords {
        let store = StoreFolder::open(&self.options.store).expect("a store");
        SiteRecords::read(&store, "www").expect("records")
    }

    fn served(&self) -> Option<[u8; 32]> {
        self.records().served().map(|it| it.pointer.release)
    }
}

/// Returns the manifest of files with their contents.
fn manifest(files: &[(&str, &[u8])]) -> String {
    let mut writer = ManifestWriter::default();
    for (path, bytes) in files {
        writer.push(&ManifestLine::File {
            path: Cow::Borrowed(path.as_bytes()),
            content: BlobRef {
                size: bytes.len() as u64,
                digest: sha256(bytes),
            },
            is_hashed: false,
        });
    }
    writer.finish()
}

fn pointer(manifest: &str, sequence: u64) -> ReleasePointer {
    ReleasePointer {
        site: "www".to_owned(),
        site_id: None,
        release: sha256(manifest.as_bytes()),
        sequence,
        time: 1_763_899_200,
        publisher: "ann@laptop".to_owned(),
    }
}

/// Returns the missing contents of an answer.
fn needs(answers: &[Answer]) -> Vec<ContentPlace> {
    let needs = answers.iter().filter(|(kind, _)| *kind == FrameKind::Need);
    let entries = needs.flat_map(|(_, payload)| payload.as_chunks::<12>().0);
    entries.map(ContentPlace::parse).collect()
}

fn done(text: &str) -> (FrameKind, Vec<u8>) {
    (FrameKind::Done, text.as_bytes().to_vec())
}

#[test]
fn a_release_is_received_and_served() {
    let receiver = Receiver::new(Rights::Publish);
    let first = manifest(&[("a", b"one"), ("b", b"two"), ("c", b"one")]);
    let frames = Frames::new().add(FrameKind::List, b"").manifest(&first);
    let answers = receiver.answers(frames);
    assert_eq!(
        answers[0],
        (FrameKind::List, b"site www\nrights publish\n".to_vec())
    );
    let expected = [0, 1].map(|number| ContentPlace { number, offset: 0 });
    assert_eq!(needs(&answers), expected, "equal contents are sent once");
    let frames = Frames::new()
        .add(FrameKind::List, b"")
        .manifest(&first)
        .content(0, 0, b"one")
        .content(1, 0, b"two")
        .pointer(&first, 1);
    let answers = receiver.answers(frames);
    assert_eq!(answers.last(), Some(&done("sequence 1\nwaiting\n")));
    assert_eq!(receiver.served(), Some(sha256(first.as_bytes())));
    // The second release comes as a difference, and needs the changed content alone.
    let second = manifest(&[("a", b"one"), ("b", b"three")]);
    let mut steps = sha256(first.as_bytes()).to_vec();
    steps.extend_from_slice(difference(&first, &second).as_bytes());
    let frames = Frames::new()
        .add(FrameKind::List, b"")
        .add(FrameKind::Difference, &steps)
        .add(FrameKind::Release, &sha256(second.as_bytes()))
        .content(1, 0, b"three")
        .pointer(&second, 2);
    let answers = receiver.answers(frames);
    assert_eq!(
        needs(&answers),
        [ContentPlace {
            number: 1,
            offset: 0
        }]
    );
    assert_eq!(answers.last(), Some(&done("sequence 2\nwaiting\n")));
    // A rollback is a new sequence.
    let frames = Frames::new().add(FrameKind::List, b"").pointer(&first, 3);
    assert_eq!(
        receiver.answers(frames).last(),
        Some(&done("sequence 3\nwaiting\n"))
    );
    assert_eq!(receiver.served(), Some(sha256(first.as_bytes())));
    let frames = Frames::new().command(&format!("manifest {}", hex(&sha256(second.as_bytes()))));
    let answers = receiver.answers(frames);
    assert_eq!(answers[0], (FrameKind::Manifest, second.into_bytes()));
}

#[test]
fn a_session_that_is_cut_anywhere_leaves_the_old_release() {
    let receiver = Receiver::new(Rights::Publish);
    let old = manifest(&[("a", b"old")]);
    let frames = Frames::new()
        .manifest(&old)
        .content(0, 0, b"old")
        .pointer(&old, 1);
    receiver.answers(frames);
    let new = manifest(&[("a", b"new content")]);
    let frames = Frames::new()
        .add(FrameKind::List, b"")
        .manifest(&new)
        .content(0, 0, b"new content")
        .pointer(&new, 2);
    let bytes = frames.0.into_inner();
    for end in bytes.len() - 300..bytes.len() {
        let (result, _) = receiver.answers_to(&bytes[..end]);
        assert_eq!(receiver.served(), Some(sha256(old.as_bytes())), "{end}");
        // The next publisher goes on, or finds the content of an earlier turn complete.
        drop(result);
    }
    let answers = receiver.answers(Frames::new().manifest(&new));
    let mut frames = Frames::new().add(FrameKind::List, b"").manifest(&new);
    for place in needs(&answers) {
        let rest = &b"new content"[place.offset as usize..];
        frames = frames.content(place.number, place.offset, rest);
    }
    let answers = receiver.answers(frames.pointer(&new, 2));
    assert_eq!(answers.last(), Some(&done("sequence 2\nwaiting\n")));
}

#[test]
fn a_broken_upload_goes_on() {
    let receiver = Receiver::new(Rights::Publish);
    let release = manifest(&[("a", b"abcdef")]);
    let place = ContentPlace {
        number: 0,
        offset: 0,
    };
    let frames = Frames::new()
        .manifest(&release)
        .add(FrameKind::Blob, &place.bytes())
        .add(FrameKind::Data, b"abc");
    assert!(receiver.refusal(frames).contains("ended within a request"));
    let answers = receiver.answers(Frames::new().manifest(&release));
    assert_eq!(
        needs(&answers),
        [ContentPlace {
            number: 0,
            offset: 3
        }]
    );
    let frames = Frames::new()
        .manifest(&release)
        .content(0, 3, b"def")
        .pointer(&release, 1);
    assert_eq!(
        receiver.answers(frames).last(),
        Some(&done("sequence 1\nwaiting\n"))
    );
    let store = StoreFolder::open(&receiver.options.store).expect("a store");
    assert!(store.open_blob(&sha256(b"abcdef")).is_ok());
}

fn blob(bytes: &[u8]) -> BlobRef {
    BlobRef {
        size: bytes.len() as u64,
        digest: sha256(bytes),
    }
}

/// Returns a text with its gzip content, and the manifest of both.
fn gzip_and_text() -> (Vec<u8>, Vec<u8>, String) {
    let text = b"a text with repetitions, ".repeat(9_000);
    let mut gzip = Vec::new();
    let mut encoder = flate2::write::GzEncoder::new(&mut gzip, flate2::Compression::best());
    encoder.write_all(&text).expect("memory");
    encoder.finish().expect("memory");
    let mut writer = ManifestWriter::default();
    writer.push(&ManifestLine::File {
        path: Cow::Borrowed(b"a.txt"),
        content: blob(&text),
        is_hashed: false,
    });
    writer.push(&ManifestLine::Coded {
        coding: ContentCoding::Gzip,
        content: blob(&gzip),
    });
    (text, gzip, writer.finish())
}

#[test]
fn a_text_is_decoded_from_its_gzip_content() {
    let (text, gzip, release) = gzip_and_text();
    let receiver = Receiver::new(Rights::Publish);
    let both = GzipAndText { gzip: 1, text: 0 };
    let mut frames = Frames::new()
        .add(FrameKind::List, b"")
        .manifest(&release)
        .add(FrameKind::GzipAndText, &both.bytes());
    for piece in gzip.chunks(7) {
        frames = frames.add(FrameKind::Data, piece);
    }
    let frames = frames.add(FrameKind::Data, b"").pointer(&release, 1);
    let answers = receiver.answers(frames);
    assert_eq!(answers.last(), Some(&done("sequence 1\nwaiting\n")));
    let store = StoreFolder::open(&receiver.options.store).expect("a store");
    for content in [&text, &gzip] {
        let mut stored = Vec::new();
        let mut blob = store.open_blob(&sha256(content)).expect("a content");
        blob.read_to_end(&mut stored).expect("a content");
        assert_eq!(&stored, content);
    }
}

#[test]
fn verify_names_a_gzip_content_with_another_text() {
    let receiver = Receiver::new(Rights::Publish);
    let (text, gzip, release) = gzip_and_text();
    let other = b"another text".repeat(100);
    let wrong = release.replace(&hex(&sha256(&text)), &hex(&sha256(&other)));
    let wrong = wrong.replace(
        &format!("file {} ", text.len()),
        &format!("file {} ", other.len()),
    );
    let verified = |release: &str, text: &[u8], sequence| {
        let digest = hex(&sha256(release.as_bytes()));
        let frames = Frames::new()
            .add(FrameKind::List, b"")
            .manifest(release)
            .content(0, 0, text);
        let frames = match sequence {
            1 => frames.content(1, 0, &gzip),
            _ => frames,
        };
        let frames = frames
            .pointer(release, sequence)
            .command(&format!("verify {digest}"));
        let answers = receiver.answers(frames);
        String::from_utf8_lossy(&answers[answers.len() - 1].1).into_owned()
    };
    assert_eq!(verified(&release, &text, 1), "contents 3\n");
    let report = verified(&wrong, &other, 2);
    assert!(
        report.contains("the gzip content decodes to another text"),
        "{report}"
    );
}

/// The text stands in 6 files, each with a gzip content of its own, and in a seventh with the gzip content of the first.
#[test]
fn verify_decodes_few_gzip_contents_of_a_text() {
    let receiver = Receiver::new(Rights::Publish);
    let (text, gzip, _) = gzip_and_text();
    let mut writer = ManifestWriter::default();
    let mut codings = Vec::new();
    for nth in 0..7_u8 {
        let mut coded = gzip.clone();
        // The seconds of the change (RFC 1952, section 2.3.1).
        coded[4] = nth % 6;
        writer.push(&ManifestLine::File {
            path: Cow::Owned(format!("{nth}.txt").into_bytes()),
            content: blob(&text),
            is_hashed: false,
        });
        writer.push(&ManifestLine::Coded {
            coding: ContentCoding::Gzip,
            content: blob(&coded),
        });
        codings.push(coded);
    }
    let release = writer.finish();
    let mut frames = Frames::new()
        .add(FrameKind::List, b"")
        .manifest(&release)
        .content(0, 0, &text);
    for (nth, coded) in codings.iter().enumerate().take(6) {
        frames = frames.content(2 * nth as u32 + 1, 0, coded);
    }
    let digest = hex(&sha256(release.as_bytes()));
    let frames = frames
        .pointer(&release, 1)
        .command(&format!("verify {digest}"));
    let answers = receiver.answers(frames);
    let report = String::from_utf8_lossy(&answers[answers.len() - 1].1).into_owned();
    let refused = report.matches("too many gzip contents to decode each");
    assert_eq!(refused.count(), 2, "{report}");
    assert_eq!(report.lines().count(), 3, "{report}");
}

#[test]
fn a_gzip_content_with_another_text_is_refused() {
    let (text, gzip, release) = gzip_and_text();
    let refusal = |numbers: GzipAndText, bytes: &[u8]| {
        let receiver = Receiver::new(Rights::Publish);
        let mut frames = Frames::new()
            .manifest(&release)
            .add(FrameKind::GzipAndText, &numbers.bytes());
        if !bytes.is_empty() {
            frames = frames.add(FrameKind::Data, bytes);
        }
        let refused = receiver.refusal(frames.add(FrameKind::Data, b""));
        let store = StoreFolder::open(&receiver.options.store).expect("a store");
        assert!(store.open_blob(&sha256(&text)).is_err(), "{refused}");
        refused
    };
    let both = GzipAndText { gzip: 1, text: 0 };
    for (bytes, reason) in [
        (&b""[..], "no text"),
        (b"no gzip", "no text"),
        (&gzip[..gzip.len() - 1], "no text"),
        (&text[..gzip.len() + 1], "longer than in the manifest"),
    ] {
        let refused = refusal(both, bytes);
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    let mut damaged = gzip.clone();
    damaged[gzip.len() / 2] ^= 1;
    let refused = refusal(both, &damaged);
    let reasons = ["no text", "differs from its digest", "longer than"];
    let is_known = reasons.iter().any(|reason| refused.contains(reason));
    assert!(is_known, "{refused}");
    // The numbers of the other content, and numbers outside of the manifest.
    let swapped = GzipAndText { gzip: 0, text: 1 };
    assert!(refusal(swapped, &gzip).contains("longer than in the manifest"));
    let outside = GzipAndText { gzip: 2, text: 0 };
    assert!(refusal(outside, &gzip).contains("not missing"));
    // After a connection that broke, the parts of both contents stay, and each goes on by itself.
    let receiver = Receiver::new(Rights::Publish);
    let half = &gzip[..gzip.len() / 2];
    let frames = Frames::new()
        .manifest(&release)
        .add(FrameKind::GzipAndText, &both.bytes())
        .add(FrameKind::Data, half);
    assert!(receiver.refusal(frames).contains("ended within a request"));
    let answers = receiver.answers(Frames::new().manifest(&release));
    let [of_text, of_gzip] = needs(&answers)[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(of_gzip.offset, half.len() as u64);
    let frames = Frames::new()
        .add(FrameKind::List, b"")
        .manifest(&release)
        .content(0, of_text.offset, &text[of_text.offset as usize..])
        .content(1, of_gzip.offset, &gzip[half.len()..])
        .pointer(&release, 1);
    let answers = receiver.answers(frames);
    assert_eq!(answers.last(), Some(&done("sequence 1\nwaiting\n")));
}

#[test]
fn a_content_of_another_site_is_sent_as_a_proof() {
    let mut receiver = Receiver::new(Rights::Publish);
    let place = |number, offset| ContentPlace { number, offset };
    let of_shop = manifest(&[("price", b"secret"), ("rest", b"abcdef")]);
    receiver.options.site = "shop".to_owned();
    let pointer_of_shop = ReleasePointer {
        site: "shop".to_owned(),
        ..pointer(&of_shop, 1)
    };
    let frames = Frames::new()
        .manifest(&of_shop)
        .content(0, 0, b"secret")
        .content(1, 0, b"abcdef")
        .add(FrameKind::Pointer, pointer_of_shop.text().as_bytes());
    let answers = receiver.answers(frames);
    assert_eq!(answers.last(), Some(&done("sequence 1\nwaiting\n")));
    // An incomplete content of the other site is no part of a proof either.
    let partial = manifest(&[("a", b"partial")]);
    let frames = Frames::new()
        .manifest(&partial)
        .add(FrameKind::Blob, &place(0, 0).bytes())
        .add(FrameKind::Data, b"partia");
    receiver.refusal(frames);
    assert_eq!(
        needs(&receiver.answers(Frames::new().manifest(&partial))),
        [place(0, 6)]
    );
    receiver.options.site = "www".to_owned();
    let own = manifest(&[
        ("copy", b"secret"),
        ("index.html", b"own"),
        ("partial", b"partial"),
        ("release", of_shop.as_bytes()),
    ]);
    let all = [0, 1, 2, 3].map(|number| place(number, 0));
    let upload = || Frames::new().add(FrameKind::List, b"").manifest(&own);
    assert_eq!(needs(&receiver.answers(upload())), all);
    let digest = hex(&sha256(own.as_bytes()));
    let label = |frames: Frames| frames.command(&format!("label next {digest}"));
    let refusal = receiver.refusal(label(upload().content(1, 0, b"own")));
    assert!(refusal.contains("3 contents of the release are missing"));
    let wrong = receiver.refusal(upload().content(0, 0, b"secreT"));
    assert!(wrong.contains("differs from its digest"), "{wrong}");
    // With the content itself the release is accepted, and the next one needs no proof.
    let frames = upload()
        .content(0, 0, b"secret")
        .content(2, 0, b"partial")
        .content(3, 0, of_shop.as_bytes());
    assert_eq!(receiver.answers(label(frames)).last(), Some(&done("")));
    let next = manifest(&[("moved", b"secret"), ("page", b"own")]);
    assert_eq!(needs(&receiver.answers(Frames::new().manifest(&next))), []);
}

#[test]
fn completed_contents_of_a_broken_upload_stay_for_the_next_one() {
    let receiver = Receiver::new(Rights::Publish);
    let release = manifest(&[("a", b"one"), ("b", b"two"), ("c", b"three")]);
    let frames = Frames::new()
        .manifest(&release)
        .content(0, 0, b"one")
        .content(1, 0, b"two")
        .add(
            FrameKind::Blob,
            &ContentPlace {
                number: 2,
                offset: 0,
            }
            .bytes(),
        );
    receiver.refusal(frames);
    let sweep_at = |now| {
        let store = StoreFolder::open(&receiver.options.store).expect("a store");
        sweep(&store, &Retention::default(), now).expect("a sweep");
        needs(&receiver.answers(Frames::new().manifest(&release)))
    };
    let now = unix_seconds_now();
    assert_eq!(
        sweep_at(now),
        [ContentPlace {
            number: 2,
            offset: 0
        }]
    );
    assert_eq!(sweep_at(now + 90_000).len(), 3, "after more than a day");
}

#[test]
fn the_quota_counts_drafts_until_the_manifest_is_added() {
    let mut receiver = Receiver::new(Rights::Publish);
    let release = manifest(&[("a", b"abcdef")]);
    receiver.options.quota = Some(4 * 4_096);
    let frames = Frames::new().manifest(&release).content(0, 0, b"abcdef");
    // Another session writes a content after the upload began.
    let store = StoreWriter::open(&receiver.options.store).expect("a store");
    let mut input = frames.0.into_inner();
    let begun = input.len();
    input.extend(Frames::new().pointer(&release, 1).0.into_inner()[HELLO.len() + 4..].iter());
    let mut draft = None;
    let input = Meanwhile {
        bytes: &input,
        pause_at: begun,
        read: 0,
        run: || {
            let mut other = store.draft().expect("a draft");
            other.write_all(&[0; 3 * 4_096]).expect("a write");
            draft = Some(other);
        },
    };
    let mut output = Vec::new();
    let error = receive(&receiver.options, input, &mut output).expect_err("a refusal");
    assert!(error.to_string().contains("the quota is"), "{error}");
    assert_eq!(receiver.served(), None);
    drop(draft);
}

/// Input that runs a step once before the byte at a place is read.
struct Meanwhile<'b, F> {
    bytes: &'b [u8],
    pause_at: usize,
    read: usize,
    run: F,
}

impl<F: FnMut()> std::io::Read for Meanwhile<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.pause_at {
            (self.run)();
        }
        let end = if self.read < self.pause_at {
            self.pause_at
        } else {
            self.bytes.len()
        };
        let count = (&self.bytes[self.read..end]).read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

#[test]
fn the_text_of_a_broken_gzip_content_leaves_no_draft() {
    let receiver = Receiver::new(Rights::Publish);
    let (_, gzip, release) = gzip_and_text();
    let both = GzipAndText { gzip: 1, text: 0 };
    let frames = Frames::new()
        .manifest(&release)
        .add(FrameKind::GzipAndText, &both.bytes())
        .add(FrameKind::Data, &gzip[..gzip.len() - 1]);
    receiver.refusal(frames);
    let needs = needs(&receiver.answers(Frames::new().manifest(&release)));
    let place = |number, offset| ContentPlace { number, offset };
    assert_eq!(needs[0], place(0, 0), "the text");
    assert_eq!(
        needs[1],
        place(1, gzip.len() as u64 - 1),
        "the gzip content"
    );
}

#[test]
fn wrong_requests_are_refused() {
    let release = manifest(&[("a", b"abc")]);
    let digest = hex(&sha256(release.as_bytes()));
    let upload = || Frames::new().add(FrameKind::List, b"").manifest(&release);
    let complete = || upload().content(0, 0, b"abc");
    let other_site = ReleasePointer {
        site: "shop".to_owned(),
        ..pointer(&release, 1)
    };
    let cookie = "anthill release 1\nfields **\nfield Clear-Site-Data *\n";
    let two_sizes = format!("{release}file 4 {} b\n", hex(&sha256(b"abc")));
    let climbing = "anthill release 1\nfile 1 00 ../x\n";
    for (frames, reason) in [
        (
            Frames(FrameWriter::new(Vec::new())).add(FrameKind::List, b""),
            "begins with a greeting",
        ),
        (
            Frames(FrameWriter::new(Vec::new())).add(FrameKind::Hello, b"anthill receive 2"),
            "version 1",
        ),
        (Frames::new().add(FrameKind::Need, b""), "no place here"),
        (Frames::new().add(FrameKind::Release, &[0; 31]), "32 bytes"),
        (
            Frames::new().add(FrameKind::Release, &[0; 32]),
            "differs from its digest",
        ),
        (
            Frames::new().manifest(climbing),
            "the release is refused: line 2 of the manifest",
        ),
        (
            Frames::new().manifest(cookie),
            "the release is refused: line 3 of the manifest: this field concerns the whole host",
        ),
        (
            Frames::new()
                .add(FrameKind::Difference, b"=1\n")
                .add(FrameKind::Release, &[0; 32]),
            "malformed",
        ),
        (
            Frames::new().manifest(&two_sizes),
            "one digest with two sizes",
        ),
        (Frames::new().content(0, 0, b"abc"), "after its manifest"),
        (upload().content(1, 0, b"abc"), "not missing"),
        (
            upload().content(0, 1, b"bc"),
            "another publisher sends the same content",
        ),
        (
            upload().content(0, 0, b"abcd"),
            "longer than in the manifest",
        ),
        (upload().content(0, 0, b"abd"), "differs from its digest"),
        (upload().content(0, 0, b"ab"), "differs from its digest"),
        (
            upload().pointer(&release, 1),
            "1 contents of the release are missing",
        ),
        (
            complete().add(FrameKind::Pointer, other_site.text().as_bytes()),
            "for the site `shop`",
        ),
        (complete().add(FrameKind::Pointer, b"anthill"), "malformed"),
        (complete().pointer(&release, 7), "the next one is 1"),
        (
            Frames::new()
                .add(FrameKind::List, b"")
                .pointer(&manifest(&[]), 1),
            "the site has no release",
        ),
        (
            Frames::new().command(&format!("manifest {digest}")),
            "the site has no release",
        ),
        (Frames::new().command("manifest x"), "64 hexadecimal digits"),
        (
            Frames::new().command(&format!("pin {digest}")),
            "the site has no release",
        ),
        (Frames::new().command("rm -rf /"), "unknown"),
        (
            complete().command(&format!("label ../x {digest}")),
            "is no name",
        ),
        (
            complete().command(&format!("withdraw {digest}")),
            "only the rights `all` withdraw releases",
        ),
    ] {
        let receiver = Receiver::new(Rights::Publish);
        let refusal = receiver.refusal(frames);
        assert!(refusal.contains(reason), "{refusal} / {reason}");
        assert_eq!(receiver.served(), None, "{reason}");
    }
}

#[test]
fn a_publisher_of_previews_changes_the_own_labels_alone() {
    let mut receiver = Receiver::new(Rights::Publish);
    let (reviewed, evil) = (manifest(&[("a", b"reviewed")]), manifest(&[("a", b"evil")]));
    let upload = |text: &str, content: &[u8], command: &str| {
        Frames::new()
            .manifest(text)
            .content(0, 0, content)
            .command(command)
    };
    let label = |name: &str, text: &str| format!("label {name} {}", hex(&sha256(text.as_bytes())));
    // The publisher without a name sets a label that belongs to nobody, and the publisher with a name one of its own.
    receiver.answers(upload(&reviewed, b"reviewed", &label("next", &reviewed)));
    receiver.options.publisher = Some("chief".to_owned());
    receiver.answers(Frames::new().command(&label("final", &reviewed)));
    receiver.options.rights = Rights::Preview;
    receiver.options.publisher = Some("ann".to_owned());
    let own = upload(&evil, b"evil", &label("ann-1", &evil));
    assert_eq!(receiver.answers(own).last(), Some(&done("")));
    for (name, owner) in [("next", "nobody"), ("final", "chief"), ("FINAL", "chief")] {
        let refusal = receiver.refusal(Frames::new().command(&label(name, &evil)));
        assert!(
            refusal.contains(&format!("belongs to {owner}, and only the rights")),
            "{refusal}"
        );
    }
    for name in ["next", "final"] {
        let refusal = receiver.refusal(Frames::new().command(&format!("unlabel {name}")));
        assert!(refusal.contains("belongs to"), "{refusal}");
        assert_eq!(receiver.records().labels[name], sha256(reviewed.as_bytes()));
    }
    // Without a name, an account with the rights to previews has no labels.
    receiver.options.publisher = None;
    let refusal = receiver.refusal(Frames::new().command(&label("free", &reviewed)));
    assert!(refusal.contains("add --publisher NAME"), "{refusal}");
    receiver.options.rights = Rights::Publish;
    let taken = receiver.answers(Frames::new().command(&label("ann-1", &reviewed)));
    assert_eq!(taken.last(), Some(&done("")));
    assert_eq!(receiver.records().label_owners.get("ann-1"), None);
    receiver.answers(Frames::new().command("unlabel final"));
    assert!(!receiver.records().labels.contains_key("final"));
}

#[test]
fn the_state_has_owners_and_identities_for_publishers_that_ask() {
    let mut receiver = Receiver::new(Rights::Publish);
    receiver.options.publisher = Some("ann".to_owned());
    let release = manifest(&[("a", b"abc")]);
    let digest = hex(&sha256(release.as_bytes()));
    let bound = ReleasePointer {
        site_id: Some("9f0c5ad24e8b41d7a3c6".to_owned()),
        publisher: "ann".to_owned(),
        ..pointer(&release, 1)
    };
    let signed = bound.signed_text(&[1; 32], &[2; 64]);
    let frames = Frames::new()
        .add(FrameKind::List, STATE_WITH_OWNERS.as_bytes())
        .manifest(&release)
        .content(0, 0, b"abc")
        .add(FrameKind::Pointer, signed.as_bytes())
        .command(&format!("label next {digest}"));
    let answers = receiver.answers(frames);
    assert_eq!(answers.last(), Some(&done("")));
    let state = |payload: &[u8]| {
        let answers = receiver.answers(Frames::new().add(FrameKind::List, payload));
        String::from_utf8(answers[0].1.clone()).expect("a text")
    };
    let new = state(STATE_WITH_OWNERS.as_bytes());
    assert!(
        new.starts_with("state 2\nsite www\nrights publish\npublisher ann\n"),
        "{new}"
    );
    assert!(
        new.contains(&format!(" 9f0c5ad24e8b41d7a3c6\nlabel next {digest} ann\n")),
        "{new}"
    );
    // A publisher of an earlier version reads no further words.
    let first = state(b"");
    assert!(
        first.starts_with("site www\n") && !first.contains("9f0c5ad2"),
        "{first}"
    );
    assert!(
        first.ends_with(&format!("\nlabel next {digest}\n")),
        "{first}"
    );
    let record = receiver.options.store.join("sites/www/pointers/1");
    assert_eq!(std::fs::read_to_string(record).expect("a record"), signed);
}

#[test]
fn rights_bound_the_requests() {
    let mut receiver = Receiver::new(Rights::Preview);
    receiver.options.publisher = Some("ann".to_owned());
    let release = manifest(&[("a", b"abc")]);
    let digest = hex(&sha256(release.as_bytes()));
    let frames = Frames::new()
        .manifest(&release)
        .content(0, 0, b"abc")
        .command(&format!("label next {digest}"))
        .command(&format!("verify {digest}"));
    let answers = receiver.answers(frames);
    assert_eq!(
        answers[answers.len() - 2..],
        [done(""), done("contents 2\n")]
    );
    assert_eq!(receiver.records().labels.len(), 1);
    let frames = Frames::new().add(FrameKind::List, b"").pointer(&release, 1);
    let refusal = receiver.refusal(frames);
    assert!(
        refusal.contains("`publish` choose the served release"),
        "{refusal}"
    );
    for command in ["pin", "unpin", "withdraw"] {
        let refusal = receiver.refusal(Frames::new().command(&format!("{command} {digest}")));
        assert!(refusal.contains("has the rights `preview`"), "{refusal}");
    }
    let all = ReceiveOptions {
        rights: Rights::All,
        ..receiver.options.clone()
    };
    let receiver = Receiver {
        options: all,
        ..receiver
    };
    receiver.answers(Frames::new().command(&format!("withdraw {digest}")));
    let frames = Frames::new().add(FrameKind::List, b"").pointer(&release, 1);
    assert!(receiver.refusal(frames).contains("withdrawn"));
}

#[test]
fn two_publishers_do_not_overwrite_one_another() {
    let receiver = Receiver::new(Rights::Publish);
    let (ours, theirs) = (manifest(&[("a", b"ours")]), manifest(&[("a", b"theirs")]));
    let frames = Frames::new().manifest(&theirs).content(0, 0, b"theirs");
    let frames = frames.pointer(&theirs, 1);
    receiver.answers(frames);
    // This publisher did not look at the state after the other publication.
    let frames = Frames::new().manifest(&ours).content(0, 0, b"ours");
    let refusal = receiver.refusal(frames.pointer(&ours, 1));
    assert!(
        refusal.contains("ann@laptop published sequence 1 meanwhile"),
        "{refusal}"
    );
    assert_eq!(receiver.served(), Some(sha256(theirs.as_bytes())));
}

#[test]
fn the_quota_and_the_name_of_the_publisher_are_the_receivers() {
    let mut receiver = Receiver::new(Rights::Publish);
    let release = manifest(&[("a", b"abcdef")]);
    // The manifest and the content take a block of the disk each.
    receiver.options.quota = Some(2 * 4_096 - 1);
    let refusal = receiver.refusal(Frames::new().manifest(&release));
    assert!(refusal.contains("the quota is"), "{refusal}");
    receiver.options.quota = Some(2 * 4_096);
    receiver.options.publisher = Some("ci".to_owned());
    let frames = Frames::new().manifest(&release).content(0, 0, b"abcdef");
    receiver.answers(frames.pointer(&release, 1));
    let records = receiver.records();
    let publisher = records.served().map(|it| it.pointer.publisher.as_str());
    assert_eq!(publisher, Some("ci"));
    let ahead = ReleasePointer {
        time: unix_seconds_now() + 90_000,
        publisher: "ci".to_owned(),
        ..pointer(&release, 2)
    };
    let frames = Frames::new().add(FrameKind::List, b"");
    let ahead = ahead.signed_text(&[1; 32], &[2; 64]);
    let refusal = receiver.refusal(frames.add(FrameKind::Pointer, ahead.as_bytes()));
    assert!(refusal.contains("more than a day ahead"), "{refusal}");
    let signed = pointer(&release, 2).signed_text(&[1; 32], &[2; 64]);
    let frames = Frames::new().add(FrameKind::List, b"");
    let refusal = receiver.refusal(frames.add(FrameKind::Pointer, signed.as_bytes()));
    assert!(refusal.contains("belongs to `ci`"), "{refusal}");
    receiver.options.publisher = None;
    let push = ReleasePointer {
        publisher: "push@site.git".to_owned(),
        ..pointer(&release, 2)
    };
    let frames = Frames::new().add(FrameKind::List, b"");
    let refusal = receiver.refusal(frames.add(FrameKind::Pointer, push.text().as_bytes()));
    assert!(refusal.contains("belong to pushes"), "{refusal}");
}

/// Session under way on pipes, for tests with several sessions.
struct LiveSession {
    publisher: FrameWriter<std::io::PipeWriter>,
    answers: FrameReader<std::io::PipeReader>,
    session: std::thread::JoinHandle<Result<(), ReceiveError>>,
}

impl LiveSession {
    fn begin(options: &ReceiveOptions) -> LiveSession {
        let (input, publisher) = std::io::pipe().expect("a pipe");
        let (answers, output) = std::io::pipe().expect("a pipe");
        let options = options.clone();
        let session = std::thread::spawn(move || receive(&options, input, output));
        let mut live = LiveSession {
            publisher: FrameWriter::new(publisher),
            answers: FrameReader::new(answers),
            session,
        };
        live.send(FrameKind::Hello, HELLO.as_bytes());
        assert_eq!(live.answer().0, FrameKind::Hello);
        live
    }

    fn send(&mut self, kind: FrameKind, payload: &[u8]) {
        self.publisher.write(kind, payload).expect("a session");
    }

    fn answer(&mut self) -> Answer {
        let answer = self.answers.read().expect("a session");
        let (kind, payload) = answer.expect("an answer");
        (kind, payload.to_vec())
    }

    /// Sends a manifest, and returns the number of needed contents, or the reason of the refusal.
    fn offer(&mut self, manifest: &str) -> Result<usize, String> {
        self.send(FrameKind::Manifest, manifest.as_bytes());
        self.send(FrameKind::Release, &sha256(manifest.as_bytes()));
        let mut count = 0;
        loop {
            match self.answer() {
                (FrameKind::Need, entries) if entries.is_empty() => return Ok(count),
                (FrameKind::Need, entries) => count += entries.len() / ContentPlace::BYTES,
                (_, reason) => return Err(String::from_utf8_lossy(&reason).into_owned()),
            }
        }
    }

    fn content(&mut self, bytes: &[u8]) {
        let place = ContentPlace {
            number: 0,
            offset: 0,
        };
        self.send(FrameKind::Blob, &place.bytes());
        self.send(FrameKind::Data, bytes);
        self.send(FrameKind::Data, b"");
    }

    fn label(&mut self, manifest: &str) -> Answer {
        let digest = hex(&sha256(manifest.as_bytes()));
        self.send(
            FrameKind::Command,
            format!("label next {digest}").as_bytes(),
        );
        self.answer()
    }

    /// Breaks the connection.
    fn end(self) {
        drop(self.publisher);
        let _ = self.session.join().expect("a session");
    }
}

#[test]
fn the_quota_holds_for_sessions_together_and_an_ended_session_gives_its_bytes_back() {
    let mut receiver = Receiver::new(Rights::Publish);
    receiver.options.quota = Some(100_000);
    let contents = [b'a', b'b'].map(|byte| vec![byte; 60_000]);
    let [one, two] = [0, 1].map(|at| manifest(&[("file", &contents[at])]));
    let mut first = LiveSession::begin(&receiver.options);
    assert_eq!(first.offer(&one), Ok(1));
    let mut second = LiveSession::begin(&receiver.options);
    let refusal = second.offer(&two).expect_err("a refusal");
    assert!(refusal.contains("the quota is 100000 bytes"), "{refusal}");
    second.end();
    // The first session loses the half of its content with the connection, and its reservation.
    first.end();
    let mut second = LiveSession::begin(&receiver.options);
    assert_eq!(second.offer(&two), Ok(1));
    second.content(&contents[1]);
    assert_eq!(second.label(&two), done(""));
    // The written bytes count, and not the reservation as well.
    let small = manifest(&[("file", &[b'c'; 20_000])]);
    assert_eq!(second.offer(&small), Ok(1));
    second.end();
    // The file of a killed session has no lock, and no bytes.
    let killed = receiver.options.store.join("drafts/session-1-2-3");
    std::fs::write(&killed, u64::MAX.to_le_bytes()).expect("a file");
    let mut third = LiveSession::begin(&receiver.options);
    assert_eq!(third.offer(&small), Ok(1));
    assert!(!killed.exists());
    third.end();
    let left = std::fs::read_dir(receiver.options.store.join("drafts")).expect("a folder");
    let left: Vec<_> = left
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    assert_eq!(left, ["stalled-www"], "the record of the publisher alone");
}

/// Lets the last progress of all sessions be long ago: at the start of the machine.
fn let_be_silent(store: &Path) {
    for entry in std::fs::read_dir(store.join("drafts")).expect("a folder") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a file");
        std::fs::write(path, [&bytes[..8], &[0; 8]].concat()).expect("a file");
    }
}

#[test]
fn questions_without_an_upload_hold_no_reservation() {
    let mut receiver = Receiver::new(Rights::Publish);
    receiver.options.quota = Some(100_000);
    let contents = [b'a', b'b'].map(|byte| vec![byte; 60_000]);
    let [one, two] = [0, 1].map(|at| manifest(&[("file", &contents[at])]));
    let mut silent = LiveSession::begin(&receiver.options);
    assert_eq!(silent.offer(&one), Ok(1));
    let_be_silent(&receiver.options.store);
    silent.send(FrameKind::List, b"");
    assert_eq!(silent.answer().0, FrameKind::List);
    assert_eq!(silent.answer(), (FrameKind::List, Vec::new()));
    let mut second = LiveSession::begin(&receiver.options);
    assert_eq!(second.offer(&two), Ok(1));
    second.content(&contents[1]);
    assert_eq!(second.label(&two), done(""));
    second.end();
    // The first session may ask, and has no room any more.
    silent.send(FrameKind::List, b"");
    while !silent.answer().1.is_empty() {}
    let reason = silent.offer(&one).expect_err("a refusal");
    assert!(reason.contains("the quota is 100000 bytes"), "{reason}");
    silent.end();
}

#[test]
fn contents_of_a_cut_upload_give_way_to_an_upload_that_needs_their_room() {
    let mut receiver = Receiver::new(Rights::Publish);
    receiver.options.quota = Some(100_000);
    let contents = [b'a', b'b', b'c'].map(|byte| vec![byte; 30_000]);
    let cut = manifest(&[
        ("a", &contents[0]),
        ("b", &contents[1]),
        ("c", &contents[2]),
    ]);
    let frames = Frames::new().manifest(&cut);
    receiver.answers(
        frames
            .content(0, 0, &contents[0])
            .content(1, 0, &contents[1]),
    );
    let has = |content: &[u8]| {
        let store = StoreFolder::open(&receiver.options.store).expect("a store");
        store.open_blob(&sha256(content)).is_ok()
    };
    assert!(has(&contents[0]) && has(&contents[1]));
    let own = vec![b'd'; 60_000];
    let other = manifest(&[("d", &own)]);
    // Nothing goes for an upload that does not fit all the same.
    let large = manifest(&[("e", &[b'e'; 120_000])]);
    let refusal = receiver.refusal(Frames::new().manifest(&large));
    assert!(refusal.contains("the quota is 100000 bytes"), "{refusal}");
    assert!(has(&contents[0]));
    // The next session of the cut upload goes on while its contents are there.
    assert_eq!(
        needs(&receiver.answers(Frames::new().manifest(&cut))).len(),
        1
    );
    let mut second = LiveSession::begin(&receiver.options);
    assert_eq!(second.offer(&other), Ok(1));
    assert!(!has(&contents[0]) && !has(&contents[1]));
    second.content(&own);
    assert_eq!(second.label(&other), done(""));
    second.end();
    assert!(has(&own));
}

#[test]
fn the_same_content_of_two_sessions_fits_if_both_copies_fit() {
    let mut receiver = Receiver::new(Rights::Publish);
    receiver.options.quota = Some(150_000);
    let content = vec![b'a'; 60_000];
    let release = manifest(&[("file", &content)]);
    let mut sessions = [(); 2].map(|()| LiveSession::begin(&receiver.options));
    for session in &mut sessions {
        assert_eq!(session.offer(&release), Ok(1));
    }
    for session in &mut sessions {
        session.content(&content);
        assert_eq!(session.label(&release), done(""));
    }
    let small = manifest(&[("file", &[b'c'; 60_000])]);
    let [mut first, second] = sessions;
    second.end();
    assert_eq!(first.offer(&small), Ok(1));
    first.end();
}

#[test]
fn a_silent_session_keeps_no_sweep_away_and_loses_nothing_by_it() {
    let receiver = Receiver::new(Rights::Publish);
    let store = || StoreFolder::open(&receiver.options.store).expect("a store");
    let sweep_all = || {
        let retention = Retention {
            releases: 1,
            seconds: 0,
            bytes: u64::MAX,
        };
        sweep(&store(), &retention, u64::MAX).expect("a sweep")
    };
    let old = manifest(&[("file", b"of an old release")]);
    let new = manifest(&[("file", b"of a new release")]);
    for (release, content, sequence) in [
        (&old, &b"of an old release"[..], 1),
        (&new, b"of a new release", 2),
    ] {
        let frames = Frames::new().add(FrameKind::List, b"");
        let frames = frames.manifest(release).content(0, 0, content);
        receiver.answers(frames.pointer(release, sequence));
    }
    // One session has sent a content that is in no release yet, and one counts on a content of the old release.
    let own = manifest(&[("file", b"own content")]);
    let mut sending = LiveSession::begin(&receiver.options);
    assert_eq!(sending.offer(&own), Ok(1));
    sending.content(b"own content");
    let counting_on_old = manifest(&[("copy", b"of an old release")]);
    let mut counting = LiveSession::begin(&receiver.options);
    assert_eq!(counting.offer(&counting_on_old), Ok(0));
    // An answered request behind the content shows that the session waits again.
    sending.send(FrameKind::List, b"");
    while !sending.answer().1.is_empty() {}
    assert_eq!(sweep_all().publications, 1);
    assert_eq!(sending.label(&own), done(""));
    let (kind, reason) = counting.label(&counting_on_old);
    let reason = String::from_utf8_lossy(&reason);
    assert_eq!(kind, FrameKind::Failed);
    assert!(
        reason.contains("was swept from the store during the upload; publish again"),
        "{reason}"
    );
    sending.end();
    counting.end();
    let mut again = LiveSession::begin(&receiver.options);
    assert_eq!(again.offer(&counting_on_old), Ok(1));
    again.content(b"of an old release");
    assert_eq!(again.label(&counting_on_old), done(""));
    again.end();
}

#[test]
fn a_long_manifest_is_no_burden_before_its_digest_is_verified() {
    let receiver = Receiver::new(Rights::Publish);
    let store = StoreWriter::open(&receiver.options.store).expect("a store");
    let account =
        QuotaAccount::begin(&store, receiver.options.draft_owner(), None).expect("an account");
    let text = || IncomingText::new(&store, &account);
    let old: String = (0..60_000)
        .map(|at| format!("line {at} of the manifest\n"))
        .collect();
    let new = old
        .replace("line 7 ", "line seven ")
        .replace("line 59999 ", "");
    let mut blob = store.draft().expect("a draft");
    blob.write_all(old.as_bytes()).expect("a write");
    let (base, _) = blob.finish().expect("a content");
    store.sync().expect("a sync");
    let open = |digest: &[u8; 32]| {
        assert_eq!(*digest, base.digest);
        Ok(std::io::BufReader::new(
            store.reader().open_blob(digest).expect("a blob"),
        ))
    };
    let from = |steps: &[u8]| {
        let mut text = text();
        for piece in [&base.digest[..], steps].concat().chunks(65_536) {
            text.append(piece).expect("a piece");
        }
        text.apply(open)
    };
    let made = from(difference(&old, &new).as_bytes()).expect("a manifest");
    assert_eq!(made.memory_bytes(), 0, "a text of 1.5 MB is in a draft");
    let whole = made.into_manifest(&sha256(new.as_bytes()));
    assert!(whole.expect("the digest") == new.as_bytes());
    let wrong = from(difference(&old, &new).as_bytes()).expect("a manifest");
    assert!(wrong.into_manifest(&[0; 32]).is_err());
    for steps in [
        "=60001\n",
        "=x\n",
        "=1",
        "*1\n",
        "\n",
        "= 1\n",
        "=-1\n",
        "=99999999999999999999999\n",
    ] {
        assert!(from(steps.as_bytes()).is_err(), "{steps:?}");
    }
    let mut long = text();
    let piece = [b'x'; 65_536];
    let refused = (0..=512).find_map(|_| long.append(&piece).err());
    let refused = refused.expect("a refusal").to_string();
    assert_eq!(refused, "the manifest is longer than 32 MiB");
    assert_eq!(long.memory_bytes(), 0);
}
