//! Tests of sinks with real files, full disks and pipes without readers.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;

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
    let mut batch = LogBatch::new(sink, AccessLogFormat::Combined);
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
    sinks.reopen();
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
    sinks.reopen();
    submit(&sink, "three\n");
    assert!(sink.flush(far()));
    assert_eq!(fs::read_to_string(&old).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");

    // If the new file can't be opened, the old file stays in use.
    fs::rename(&path, &old).unwrap();
    fs::create_dir(&path).unwrap();
    sinks.reopen();
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
    let mut batch = LogBatch::new(sink.clone(), AccessLogFormat::Combined);
    let line = AccessLogLine {
        peer: "192.0.2.1".parse().unwrap(),
        user: None,
        unix_ms: 0,
        request: &[b'x'; 1_000],
        status: 200,
        bytes: 0,
        referer: None,
        agent: None,
        host: None,
        rule: 0,
        tls: None,
        micros: 0,
        member: None,
    };
    let mut pushed = 0;
    while pushed == 0 || !batch.lines.is_empty() {
        batch.push(&line, b"[]");
        pushed += 1;
    }
    assert!(sink.flush(far()));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), pushed);
    batch.push(&line, b"[]");
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
