//! Tests of sinks with real files, full disks and pipes without readers.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::Duration;

use flate2::write::GzEncoder;

use super::*;
use crate::limits::LOG_COMPRESS_STEP_BYTES;

/// Returns a deadline that no test reaches.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

/// Messages passed to the report function.
type Said = Arc<Mutex<Vec<String>>>;

fn sinks(queue_bytes_max: usize) -> (Sinks, Said) {
    let said = Said::default();
    let writes = Arc::clone(&said);
    let report = move |_, text| writes.lock().unwrap().push(text);
    (Sinks::with_queue(Arc::new(report), queue_bytes_max), said)
}

fn submit(sink: &Sink, lines: &str) {
    let mut buffer = lines.as_bytes().to_vec();
    sink.submit(&mut buffer);
    assert!(buffer.is_empty());
}

#[test]
fn lines_arrive_in_order_and_buffers_are_reused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    fs::write(&path, "before\n").unwrap();
    let (sinks, said) = sinks(1 << 20);
    let sink = sinks.open(&LogDestination::File(path.clone())).unwrap();
    let mut expected = String::from("before\n");
    for n in 0..100 {
        submit(&sink, &format!("line {n}\n"));
        expected += &format!("line {n}\n");
    }
    assert!(sinks.flush(far()));
    assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    let mut buffer = b"last\n".to_vec();
    sink.submit(&mut buffer);
    assert!(buffer.capacity() > 0, "a reused buffer");
    assert_eq!((sinks.lines_lost(), said.lock().unwrap().len()), (0, 0));
}

#[test]
fn one_file_under_two_names_is_opened_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let (sinks, _) = sinks(1 << 20);
    let open = |path: &str| sinks.open(&LogDestination::File(folder.path().join(path)));
    let (one, two) = (open("a").unwrap(), open("sub/../a").unwrap());
    let (Some(first), Some(second)) = (&one.0, &two.0) else {
        panic!("not off");
    };
    assert!(Arc::ptr_eq(first, second));
    assert_eq!(sinks.all().len(), 1);
    drop((one, two));
    let _other = open("b").unwrap();
    assert_eq!(sinks.all().len(), 1, "an unused sink is removed");

    assert!(open("missing/a").is_err());
    assert!(sinks.open(&LogDestination::File("/".into())).is_err());
    let off = sinks.open(&LogDestination::Off).unwrap();
    assert!(off.is_off() && Sink::off().is_off());
    submit(&off, "gone\n");
    assert!(off.flush(far()));
}

#[test]
fn lines_of_a_dropped_sink_are_still_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let (sinks, _) = sinks(1 << 20);
    let sink = sinks.open(&LogDestination::File(path.clone())).unwrap();
    let mut batch = LogBatch::new(sink);
    batch.lines.extend_from_slice(b"last words\n");
    drop(batch);
    assert!(sinks.flush(far()));
    assert_eq!(fs::read_to_string(path).unwrap(), "last words\n");
}

#[test]
fn lines_lost_to_a_full_disk_are_counted_and_reported_once() {
    let (sinks, said) = sinks(1 << 20);
    let sink = sinks
        .open(&LogDestination::File("/dev/full".into()))
        .unwrap();
    for _ in 0..3 {
        submit(&sink, "one\ntwo\n");
        assert!(sink.flush(far()));
    }
    assert!(sink.is_failing());
    assert_eq!((sink.lines_lost(), sinks.lines_lost()), (6, 6));
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 1);
    assert!(
        said[0].starts_with("log /dev/full: No space left"),
        "{said:?}"
    );
}

#[test]
fn the_end_of_a_failure_is_reported_with_the_lost_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let (sinks, said) = sinks(1 << 20);
    let sink = sinks.open(&LogDestination::File(path.clone())).unwrap();
    submit(&sink, "one\ntwo\n");
    assert!(sink.flush(far()));
    fs::remove_file(&path).unwrap();
    drop(sinks.reopen());
    submit(&sink, "three\n");
    assert!(sink.flush(far()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    assert!(!sink.is_failing());
    let said = said.lock().unwrap();
    assert_eq!(said.len(), 2);
    assert!(
        said[1].ends_with("works again, 2 lines were lost"),
        "{said:?}"
    );
}

#[test]
fn reopening_after_a_rename_writes_to_the_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
    let (sinks, said) = sinks(1 << 20);
    let sink = sinks.open(&LogDestination::File(path.clone())).unwrap();
    submit(&sink, "one\n");
    assert!(sink.flush(far()));
    fs::rename(&path, &old).unwrap();
    submit(&sink, "two\n");
    drop(sinks.reopen());
    submit(&sink, "three\n");
    assert!(sink.flush(far()));
    assert_eq!(fs::read_to_string(&old).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");

    // If the new file can't be opened, the old file stays in use.
    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    drop(sinks.reopen());
    submit(&sink, "four\n");
    assert!(sink.flush(far()));
    assert_eq!(fs::read_to_string(&old).unwrap(), "three\nfour\n");
    assert!(said.lock().unwrap()[0].contains("cannot reopen the file"));
}

#[test]
fn a_full_pipe_blocks_no_worker() {
    let (mut reader, pipe) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let (sinks, said) = sinks(256 * 1024);
    let sink = sinks.open(&LogDestination::File(path.into())).unwrap();
    drop(pipe);
    let line = "x".repeat(1023) + "\n";
    let mut submitted = 0;
    while sink.lines_lost() < 10 {
        submit(&sink, &line);
        submitted += 1;
    }
    assert!(!sink.flush(Instant::now()), "flush returns at the deadline");
    assert_eq!(said.lock().unwrap().len(), 1, "reported once");

    let read = thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    });
    assert!(sink.flush(far()));
    let lost = sink.lines_lost();
    assert_eq!(lost, 10);
    drop(sink);
    let all = read.join().unwrap().unwrap();
    assert_eq!(all, line.repeat(submitted - lost as usize).as_bytes());
    let said = said.lock().unwrap();
    assert!(said[0].ends_with("too slow, lines are dropped"));
    assert!(said[1].ends_with("works again, 10 lines were lost"));
    assert_eq!(said.len(), 2);
}

#[test]
fn a_pipe_with_a_closed_reader_is_a_failure() {
    let (reader, pipe) = io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let (sinks, said) = sinks(1 << 20);
    let sink = sinks.open(&LogDestination::File(path.into())).unwrap();
    drop(reader);
    submit(&sink, "one\n");
    assert!(sink.flush(far()));
    assert_eq!(sink.lines_lost(), 1);
    assert!(said.lock().unwrap()[0].contains("Broken pipe"));
}

#[test]
fn a_partial_line_is_ended_before_the_next_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let destination = LogDestination::File(path.clone());
    let (sinks, _) = sinks(1 << 20);
    let sink = sinks.open(&destination).unwrap();
    let shared = &sink.0.as_ref().unwrap().0;
    let mut writer = SinkWriter::new(shared, SinkOutput::open(&destination).unwrap());
    writer.write(b"one\nbroken");
    writer.write(b"two\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\nbroken\ntwo\n");
}

#[test]
fn full_batches_are_submitted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (sinks, _) = sinks(1 << 20);
    let sink = sinks.open(&LogDestination::File(path.clone())).unwrap();
    let mut batch = LogBatch::new(sink.clone());
    let line = [&[b'x'; 1_000][..], b"\n"].concat();
    let append = |out: &mut Vec<u8>| out.extend_from_slice(&line);
    let mut pushed = 0;
    while pushed == 0 || !batch.lines.is_empty() {
        batch.push(append);
        pushed += 1;
    }
    assert!(sink.flush(far()));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), pushed);
    batch.push(append);
    batch.flush();
    assert!(sink.flush(far()));
    assert_eq!(
        fs::read_to_string(&path).unwrap().lines().count(),
        pushed + 1
    );
}

#[test]
fn a_new_sink_opens_its_file_with_open_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let destination = LogDestination::File(path.clone());
    let (sinks, _) = sinks(1 << 20);
    let sink = sinks.find_or_new(&destination, &[]);
    assert!(sink.is_same(&sinks.find_or_new(&destination, std::slice::from_ref(&sink))));
    assert!(!sink.is_same(&sinks.find_or_new(&destination, &[])));
    assert!(!path.exists() && sinks.all().is_empty());
    submit(&sink, "early\n");
    sinks.open_new(&sink).unwrap();
    sinks.open_new(&sink).unwrap();
    assert_eq!(sinks.all().len(), 1);
    assert!(sink.is_same(&sinks.open(&destination).unwrap()));
    submit(&sink, "late\n");
    assert!(sinks.flush(far()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "early\nlate\n");
    let absent = LogDestination::File(folder.path().join("absent/log"));
    let absent = sinks.find_or_new(&absent, &[]);
    assert!(sinks.open_new(&absent).is_err());
    assert_eq!(sinks.all().len(), 1);
    drop(folder);
    assert!(sinks.open_new(&sink).is_err(), "the folder is gone");
}

/// Waits until `is_done` holds. Compression goes on after the flush.
fn wait_for(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = far();
    while !is_done() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the names in the folder with the sizes, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn unzipped(path: &Path) -> String {
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(File::open(path).unwrap());
    decoder.read_to_string(&mut text).unwrap();
    text
}

/// Log file that is rotated at 100 bytes, with lines of 50 bytes.
struct Rotated {
    folder: tempfile::TempDir,
    sinks: Sinks,
    said: Said,
    sink: Sink,
}

impl Rotated {
    fn new(keep: u32, is_compressed: bool) -> Rotated {
        let folder = tempfile::tempdir().unwrap();
        Rotated::open(folder, keep, is_compressed)
    }

    fn open(folder: tempfile::TempDir, keep: u32, is_compressed: bool) -> Rotated {
        let (sinks, said) = sinks(1 << 20);
        sinks.set_rotation(Some(Rotation {
            bytes_max: 100,
            keep,
            is_compressed,
        }));
        let path = folder.path().join("log");
        let sink = sinks.open(&LogDestination::File(path)).unwrap();
        Rotated {
            folder,
            sinks,
            said,
            sink,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns line `number`.
    fn line(number: usize) -> String {
        format!("{number:049}\n")
    }

    /// Writes the lines one after the other.
    fn write(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            submit(&self.sink, &Rotated::line(number));
            assert!(self.sink.flush(far()));
        }
    }

    fn text(numbers: std::ops::Range<usize>) -> String {
        numbers.map(Rotated::line).collect()
    }
}

#[test]
fn a_full_file_becomes_the_first_of_the_earlier_files() {
    use std::os::unix::fs::PermissionsExt;
    let log = Rotated::new(2, false);
    fs::set_permissions(log.path("log"), fs::Permissions::from_mode(0o604)).unwrap();
    log.write(0..2);
    assert_eq!(names(log.folder.path()), ["log"]);
    log.write(2..5);
    assert_eq!(names(log.folder.path()), ["log", "log.1", "log.2"]);
    let read = |name: &str| fs::read_to_string(log.path(name)).unwrap();
    assert_eq!(read("log"), Rotated::text(4..5));
    assert_eq!(read("log.1"), Rotated::text(2..4));
    assert_eq!(read("log.2"), Rotated::text(0..2));
    let mode = fs::metadata(log.path("log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o604, "the mode of the file before");
    // The oldest file makes room.
    log.write(5..8);
    assert_eq!(names(log.folder.path()), ["log", "log.1", "log.2"]);
    assert_eq!(read("log.2"), Rotated::text(2..4));
    // A smaller number removes the files beyond.
    log.sinks.set_rotation(Some(Rotation {
        bytes_max: 100,
        keep: 1,
        is_compressed: false,
    }));
    log.write(8..9);
    assert_eq!(names(log.folder.path()), ["log", "log.1"]);
    assert_eq!(read("log.1"), Rotated::text(6..8));
    // Without rotation the file grows.
    log.sinks.set_rotation(None);
    log.write(9..30);
    assert_eq!(read("log"), Rotated::text(8..30));
    assert_eq!(log.said.lock().unwrap().len(), 0);
}

#[test]
fn earlier_files_are_compressed_and_keep_their_time() {
    use std::os::unix::fs::MetadataExt;
    let log = Rotated::new(3, true);
    log.write(0..3);
    wait_for("a compressed file", || {
        names(log.folder.path()) == ["log", "log.1.gz"]
    });
    assert_eq!(unzipped(&log.path("log.1.gz")), Rotated::text(0..2));
    log.write(3..7);
    let all = ["log", "log.1.gz", "log.2.gz", "log.3.gz"];
    wait_for("three compressed files", || names(log.folder.path()) == all);
    for (number, lines) in [(1, 4..6), (2, 2..4), (3, 0..2)] {
        let path = log.path(&format!("log.{number}.gz"));
        assert_eq!(unzipped(&path), Rotated::text(lines));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }
    // A file that is larger than a step is compressed in parts, while further files are rotated.
    let large = "x".repeat(5 * LOG_COMPRESS_STEP_BYTES) + "\n";
    submit(&log.sink, &large);
    log.write(7..11);
    wait_for("all compressed files", || names(log.folder.path()) == all);
    assert_eq!(unzipped(&log.path("log.1.gz")), Rotated::text(7..9));
    assert_eq!(unzipped(&log.path("log.2.gz")), large);
    assert_eq!(log.said.lock().unwrap().len(), 0);
}

#[test]
fn a_crash_between_two_steps_loses_no_file() {
    // The states that a crash leaves: files with a gap in the numbers; an incomplete copy; a complete copy beside its
    // file; and no log file after the rename.
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("log.1", "newest\n");
    write("log.3", "third\n");
    write("log.4", "oldest\n");
    write(".log.gz.draft", "incomplete");
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
        io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    fs::write(folder.path().join("log.4.gz"), gzip("oldest\n")).unwrap();
    let log = Rotated::open(folder, 9, true);
    log.write(0..1);
    let all = ["log", "log.1.gz", "log.3.gz", "log.4.gz"];
    wait_for("the files of the crash", || names(log.folder.path()) == all);
    log.write(1..3);
    let all = ["log", "log.1.gz", "log.2.gz", "log.3.gz", "log.4.gz"];
    wait_for("the next rotation", || names(log.folder.path()) == all);
    for (number, text) in [
        (1, Rotated::text(0..2)),
        (2, "newest\n".to_owned()),
        (3, "third\n".to_owned()),
        (4, "oldest\n".to_owned()),
    ] {
        assert_eq!(unzipped(&log.path(&format!("log.{number}.gz"))), text);
    }
    // A compressed file of another content keeps both files.
    drop(log.sink.clone());
    fs::write(log.path("log.1"), "another\n").unwrap();
    log.write(3..5);
    wait_for("the pair", || {
        log.path("log.2.gz").exists() && log.path("log.2").exists()
    });
    assert_eq!(fs::read_to_string(log.path("log.2")).unwrap(), "another\n");
    assert_eq!(unzipped(&log.path("log.2.gz")), Rotated::text(0..2));
    assert_eq!(log.said.lock().unwrap().len(), 0);
}

#[test]
fn a_rotation_follows_a_link_and_leaves_other_destinations_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("disk")).unwrap();
    std::os::unix::fs::symlink("disk/real", folder.path().join("log")).unwrap();
    let log = Rotated::open(folder, 2, false);
    log.write(0..3);
    assert_eq!(names(log.folder.path()), ["disk", "log"]);
    assert_eq!(names(&log.path("disk")), ["real", "real.1"]);
    // A file that another program has renamed is not rotated again; lines go to the path of the log.
    log.write(3..4);
    fs::rename(log.path("disk/real"), log.path("disk/moved")).unwrap();
    log.write(4..5);
    assert_eq!(names(&log.path("disk")), ["moved", "real", "real.1"]);
    assert_eq!(
        fs::read_to_string(log.path("disk/moved")).unwrap(),
        Rotated::text(2..4)
    );
    assert_eq!(
        fs::read_to_string(log.path("disk/real")).unwrap(),
        Rotated::text(4..5)
    );

    let pipe = log.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
    let mut reader = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let sink = log.sinks.open(&LogDestination::File(pipe.clone())).unwrap();
    submit(&sink, &Rotated::text(0..5));
    submit(&sink, &Rotated::text(5..9));
    assert!(sink.flush(far()));
    let mut read = vec![0; 9 * 50];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(read, Rotated::text(0..9).as_bytes());
    assert!(!log.path("pipe.1").exists());
    assert_eq!(log.said.lock().unwrap().len(), 0);
}

#[test]
fn a_failed_rotation_is_reported_and_loses_no_line() {
    let log = Rotated::new(1, false);
    // A folder in the place of the earlier file can't be removed or replaced.
    fs::create_dir(log.path("log.1")).unwrap();
    fs::write(log.path("log.1/file"), "").unwrap();
    log.write(0..4);
    assert_eq!(
        fs::read_to_string(log.path("log")).unwrap(),
        Rotated::text(0..4)
    );
    let said = log.said.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("cannot rotate the file"), "{said:?}");
    // The next attempt comes after as many bytes again.
    fs::remove_dir_all(log.path("log.1")).unwrap();
    log.write(4..5);
    assert_eq!(names(log.folder.path()), ["log", "log.1"]);
    assert_eq!(
        fs::read_to_string(log.path("log.1")).unwrap(),
        Rotated::text(0..4)
    );
    assert_eq!(log.sinks.lines_lost(), 0);
}

#[test]
fn reopening_has_a_result_for_each_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| LogDestination::File(folder.path().join(name));
    let (sinks, _) = sinks(1 << 20);
    let _logs = (
        sinks.open(&path("a")).unwrap(),
        sinks.open(&path("b")).unwrap(),
    );
    let _stderr = sinks.open(&LogDestination::Stderr).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(runtime.block_on(sinks.reopen().wait()), Ok(2));
    fs::remove_file(folder.path().join("a")).unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let failed = runtime.block_on(sinks.reopen().wait()).unwrap_err();
    assert!(failed.contains("/a: cannot reopen the file"), "{failed}");
    assert_eq!(failed.lines().count(), 1, "{failed}");
}
