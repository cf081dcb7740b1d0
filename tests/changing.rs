//! Files that change while being served: a client gets the old content, the new content, or a broken
//! connection. A client never gets half a file or a mixture.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{iter, thread};

use crate::support::wire::{BOTH, Response, Wire, wait_until};
use crate::support::{Folder, Server, server_table, site_table};

const PATIENCE: Duration = Duration::from_secs(60);
/// More bytes than all buffers between the server and the client hold.
const LARGE: usize = 20_000_000;

fn start(folder: Folder) -> Server {
    let site = site_table("http = \"serve\"");
    let config = server_table("") + "[log]\naccess = \"off\"\n" + &site;
    Server::start_in(folder, &config)
}

/// Returns the byte that a whole, uniform body consists of.
fn uniform_byte(response: &Response) -> u8 {
    assert!(response.whole, "{response:?}");
    let first = *response.body.first().expect("a body");
    assert!(
        response.body.iter().all(|byte| *byte == first),
        "{} and others: {response:?}",
        char::from(first)
    );
    first
}

#[test]
fn changes_are_served_and_the_old_content_is_whole_until_then() {
    // Sizes of a file in memory, of a file on disk with a content ETag, and of a file on disk with a time
    // ETag.
    for size in [1_000, 300_000, 3_000_000] {
        let folder = Folder::new()
            .with("public/in-place.bin", vec![b'a'; size])
            .with("public/replaced.bin", vec![b'a'; size])
            .with("public/removed.bin", vec![b'a'; size])
            .with("public/renamed.bin", vec![b'a'; size]);
        let path = |name: &str| folder.path("public").join(name);
        let [in_place, replaced, removed, renamed] =
            ["in-place.bin", "replaced.bin", "removed.bin", "renamed.bin"].map(path);
        let [new_name, added, waiting] = ["new-name.bin", "added.bin", ".waiting"].map(path);
        let server = start(folder);
        let mut wires = BOTH.map(|over| Wire::over(&server, over));
        let mut tags = Vec::new();
        for wire in &mut wires {
            for name in ["in-place", "replaced", "removed", "renamed"] {
                let response = wire.get(&format!("/{name}.bin"), "");
                assert_eq!(uniform_byte(&response), b'a');
                tags.push(response.field("etag").expect("a tag").to_owned());
            }
        }
        fs::write(&in_place, vec![b'b'; size]).expect("written");
        fs::write(&waiting, vec![b'b'; size]).expect("written");
        fs::rename(&waiting, &replaced).expect("renamed");
        fs::remove_file(&removed).expect("removed");
        fs::rename(&renamed, &new_name).expect("renamed");
        fs::write(&added, vec![b'b'; size + 1]).expect("written");
        for wire in &mut wires {
            for (name, expected) in [
                ("in-place", Some(b'b')),
                ("replaced", Some(b'b')),
                ("removed", None),
                ("renamed", None),
                ("new-name", Some(b'a')),
                ("added", Some(b'b')),
            ] {
                wait_until(PATIENCE, &format!("{name} of {size} bytes seen"), || {
                    wire.send(format!(
                        "GET /{name}.bin HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    ));
                    let Some(response) = wire.next_response("GET") else {
                        // The response was cut, because the file on disk no longer matched the promised
                        // content.
                        *wire = Wire::plain(&server);
                        return None;
                    };
                    if !response.whole {
                        *wire = Wire::plain(&server);
                        return None;
                    }
                    match (response.status, expected) {
                        (200, Some(byte)) => (uniform_byte(&response) == byte).then(|| {
                            let tag = response.field("etag").expect("a tag").to_owned();
                            assert!(byte == b'a' || !tags.contains(&tag), "{name}: {tag}");
                        }),
                        (200, None) => {
                            assert_eq!(uniform_byte(&response), b'a', "{name}");
                            None
                        }
                        (404, None) => Some(()),
                        (404 | 503, _) => None,
                        _ => panic!("{name}: {response:?}"),
                    }
                });
            }
        }
    }
}

/// A change to a file during a download.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Change {
    Replaced,
    Removed,
    Renamed,
    Truncated,
    /// The file is truncated and rewritten with other bytes to its old length.
    Rewritten,
    /// Other bytes replace the old bytes in place, without a change of length.
    Overwritten,
    OverwrittenAtItsEnd,
    Longer,
}

impl Change {
    const ALL: [Change; 8] = [
        Change::Replaced,
        Change::Removed,
        Change::Renamed,
        Change::Truncated,
        Change::Rewritten,
        Change::Overwritten,
        Change::OverwrittenAtItsEnd,
        Change::Longer,
    ];

    fn apply(self, file: &Path, size: usize) {
        let beside = file.with_extension("beside");
        let write_at = |at: u64, count: usize| {
            let mut file = File::options().write(true).open(file).expect("a file");
            file.seek(SeekFrom::Start(at)).expect("a place");
            file.write_all(&vec![b'b'; count]).expect("written");
        };
        match self {
            Change::Replaced => {
                fs::write(&beside, vec![b'b'; size]).expect("written");
                fs::rename(&beside, file).expect("renamed");
            }
            Change::Removed => fs::remove_file(file).expect("removed"),
            Change::Renamed => fs::rename(file, &beside).expect("renamed"),
            Change::Truncated => {
                let file = File::options().write(true).open(file).expect("a file");
                file.set_len(size as u64 / 2).expect("cut");
            }
            Change::Rewritten => fs::write(file, vec![b'b'; size]).expect("written"),
            Change::Overwritten => write_at(0, size),
            Change::OverwrittenAtItsEnd => write_at(size as u64 - 10, 10),
            Change::Longer => write_at(size as u64, 10),
        }
    }

    /// Returns true if the open file keeps its content, so that the client must get all of it.
    fn is_harmless(self) -> bool {
        matches!(self, Change::Replaced | Change::Removed | Change::Renamed)
    }
}

#[test]
fn a_download_during_a_change_is_whole_or_cut() {
    let server = start(Folder::new().with("public/first.txt", "first"));
    for over in BOTH {
        for change in Change::ALL {
            let name = format!("{change:?}-{over:?}.bin");
            let file = server.folder.path("public").join(&name);
            fs::write(&file, vec![b'a'; LARGE]).expect("written");
            let mut wire = Wire::over(&server, over);
            wait_until(PATIENCE, "seen", || {
                (wire.ask("HEAD", &format!("/{name}"), "").status == 200).then_some(())
            });
            wire.patience(PATIENCE);
            wire.send(format!(
                "GET /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            ));
            // The download has begun and cannot be over.
            let mut all = wire.take(500_000);
            change.apply(&file, LARGE);
            all.extend(wire.rest());
            let head = all.windows(4).position(|part| part == b"\r\n\r\n");
            let body = &all[head.expect("a head") + 4..];
            let what = format!("{change:?} over {over:?}: {} bytes came", body.len());
            if change.is_harmless() {
                assert_eq!(body.len(), LARGE, "{what}");
                assert!(body.iter().all(|byte| *byte == b'a'), "{what}");
            } else {
                assert!(body.len() < LARGE, "{what}");
            }
            // The disk may lack space for all files at once.
            let _ = fs::remove_file(&file);
            let _ = fs::remove_file(file.with_extension("beside"));
        }
    }
}

/// Downloads of all sizes while the file is replaced continuously with other bytes.
#[test]
fn replacing_a_file_disturbs_no_download() {
    let server = start(Folder::new().with("public/first.txt", "first"));
    let stop = AtomicBool::new(false);
    let sizes = [500, 60_000, 100_000, 200_000, 2_000_000];
    for size in sizes {
        server
            .folder
            .write(&format!("public/{size}.bin"), vec![b'a'; size]);
    }
    wait_until(PATIENCE, "all changes", || {
        let mut wire = Wire::plain(&server);
        let seen = |size| wire.get(&format!("/{size}.bin"), "").status == 200;
        sizes.into_iter().all(seen).then_some(())
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = (b'b'..=b'z').cycle();
            for byte in bytes.take_while(|_| !stop.load(Ordering::Relaxed)) {
                for size in sizes {
                    let beside = server.folder.path("beside.bin");
                    fs::write(&beside, vec![byte; size]).expect("written");
                    let file = server.folder.path(&format!("public/{size}.bin"));
                    fs::rename(&beside, file).expect("renamed");
                }
                thread::sleep(Duration::from_millis(7));
            }
        });
        let readers = BOTH.map(|over| {
            let server = &server;
            scope.spawn(move || {
                let mut wire = Wire::over(server, over);
                let started = Instant::now();
                let mut kinds = Vec::new();
                // The loop runs for 2 s, or until the server has picked up several changes.
                while started.elapsed() < Duration::from_secs(2)
                    || (kinds.len() <= 3 && started.elapsed() < PATIENCE)
                {
                    for size in sizes {
                        let response = wire.get(&format!("/{size}.bin"), "");
                        // A file replaced every few milliseconds may change faster than the server can
                        // load.
                        if response.status == 503 {
                            continue;
                        }
                        assert_eq!((response.status, response.body.len()), (200, size));
                        kinds.push(uniform_byte(&response));
                        kinds.dedup();
                    }
                }
                kinds.len()
            })
        });
        let seen = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        for seen in seen {
            assert!(seen.expect("a reader") > 3, "the changes were seen");
        }
    });
}

/// A writer that takes seconds, in place or with a new file, and a reader that polls continuously.
#[test]
fn half_a_file_is_never_served() {
    const SIZE: usize = 50_000;
    const PART: usize = 1_000;
    let folder = Folder::new()
        .with("public/warm.bin", vec![b'a'; SIZE])
        .with("public/cold.bin", vec![b'a'; SIZE])
        .with("public/over.bin", vec![b'a'; SIZE]);
    let server = start(folder);
    let mut wire = Wire::plain(&server);
    assert_eq!(uniform_byte(&wire.get("/warm.bin", "")), b'a');
    assert_eq!(uniform_byte(&wire.get("/over.bin", "")), b'a');
    let names = ["warm", "cold", "new", "over"];
    let mut files = names.map(|name| {
        let path = server.folder.path(&format!("public/{name}.bin"));
        let mut options = File::options();
        options.write(true).create(true).truncate(name != "over");
        options.open(path).expect("a file")
    });
    let mut look = |when: &str, written: Instant| {
        for name in names {
            let response = wire.get(&format!("/{name}.bin"), "");
            let is_open = response.field("cache-control") == Some("no-store");
            match response.status {
                // A machine may be so slow that an open file had its pause of 2 s.
                200 if is_open && written.elapsed() >= Duration::from_secs(2) => {}
                200 => {
                    assert_eq!(response.body.len(), SIZE, "{name} {when}: {response:?}");
                    let byte = uniform_byte(&response);
                    assert!(
                        byte == b'a' || when == "after",
                        "{name} {when}: {response:?}"
                    );
                }
                503 => {}
                404 => assert_eq!(name, "new", "{when}"),
                status => panic!("{name} {when}: {status}"),
            }
        }
    };
    // 4 s in all: longer than any interval of the server's rescans.
    for part in iter::repeat_n([b'b'; PART], SIZE / PART) {
        let written = Instant::now();
        for file in &mut files {
            file.write_all(&part).expect("written");
        }
        look("while it is written", written);
        thread::sleep(Duration::from_millis(80));
    }
    drop(files);
    look("after", Instant::now());
    for name in names {
        wait_until(PATIENCE, &format!("{name} seen"), || {
            let response = wire.get(&format!("/{name}.bin"), "");
            (response.status == 200 && uniform_byte(&response) == b'b').then_some(())
        });
    }
}

/// Bytes handed to the kernel before a file is rewritten. No server can recall the bytes, so the bytes must
/// not change. (An in-place overwrite without a truncation does reach pages handed over by sendfile.)
#[test]
fn bytes_in_flight_stay_unchanged() {
    for change in [Change::Replaced, Change::Removed, Change::Rewritten] {
        for size in [20_000, 100_000, 300_000] {
            for over in BOTH {
                let server = start(Folder::new().with("public/file.bin", vec![b'a'; size]));
                let mut wire = Wire::over(&server, over);
                assert_eq!(uniform_byte(&wire.get("/file.bin", "")), b'a');
                wire.send("GET /file.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
                // The kernel takes a part of a long response at once, and the rest as the client reads.
                wire.begins();
                change.apply(&server.folder.path("public/file.bin"), size);
                let response = wire.response("GET");
                let about = format!("{change:?} {size} over {over:?}: {response:?}");
                // A truncated and rewritten file has lost its content. The server notices the change
                // between two parts, and sends the rest from memory or breaks the response off. A part
                // handed to the kernel at the same moment may have new bytes.
                if matches!(change, Change::Rewritten) && size > 20_000 {
                    assert_eq!(response.whole, response.body.len() == size, "{about}");
                } else {
                    assert_eq!(uniform_byte(&response), b'a', "{about}");
                    assert_eq!(response.body.len(), size);
                }
            }
        }
    }
}
