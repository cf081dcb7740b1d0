//! Faults during a publication: strace kills the program at each system call of a kind, or makes the call fail. The old
//! or the new release is served, all its contents are whole, and the next publication heals the store.

mod support;

use std::process::Command;
use support::{Done, Site, run, tool};

/// System calls that change the store or its locks. Calls of openat are left out: a publication has hundreds, nearly all
/// for reading.
const CALLS: [&str; 6] = ["mkdirat", "write", "fsync", "/^rename", "unlinkat", "flock"];

/// Publishes under strace with a fault at the call number `number` of each thread.
fn publish_with(site: &Site, call: &str, fault: &str, number: usize) -> Done {
    let mut command = Command::new(tool("strace"));
    command
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:{fault}:when={number}"))
        .arg(env!("CARGO_BIN_EXE_anthill-publish"))
        .arg("publish")
        .args([site.source(), site.path("store")]);
    run(command)
}

/// Publishes with a fault at each call in turn, until a publication has fewer calls. The first `least` publications may
/// succeed in spite of a fault, such as a fault at a removed draft.
fn assert_old_or_new(call: &str, fault: &str, files: usize, least: usize) {
    for number in 1.. {
        let site = Site::new();
        site.write("index.html", "old");
        site.publish_well();
        let old = site.served().expect("a release").pointer;
        for file in 0..files {
            site.write(&format!("{file}.txt"), &format!("new {file}"));
        }
        let done = publish_with(&site, call, fault, number);
        let new = site.served().expect("a release").pointer;
        site.assert_whole();
        let is_new = new.sequence == 2 && new.release != old.release;
        assert!(is_new || new == old, "{call} {number}: {done:?}");
        assert!(is_new || done.code != Some(0), "{call} {number}: {done:?}");
        // The next publications serve the new release, write the missing records, and remove the drafts.
        for text in ["new", "newer"] {
            site.write("index.html", text);
            site.publish_well();
            site.assert_whole();
        }
        let last = site.served().expect("a release").pointer.sequence;
        for sequence in 1..=last {
            let record = format!("store/sites/www/pointers/{sequence}");
            assert!(site.path(&record).exists(), "{call} {number}: {record}");
        }
        let drafts = std::fs::read_dir(site.path("store/drafts")).expect("a folder");
        assert_eq!(drafts.count(), 0, "{call} {number}");
        if done.code == Some(0) && number > least {
            return;
        }
    }
}

#[test]
fn a_kill_at_each_system_call_leaves_the_old_or_the_new_release() {
    for call in CALLS {
        assert_old_or_new(call, "signal=KILL", 2, 12);
    }
}

#[test]
fn an_error_of_each_system_call_leaves_the_old_or_the_new_release() {
    for call in CALLS {
        assert_old_or_new(call, "error=ENOSPC", 2, 12);
    }
}

#[test]
fn many_files_are_synced_at_once_before_the_pointer() {
    assert_old_or_new("syncfs", "error=EIO", 100, 3);
    assert_old_or_new("syncfs", "signal=KILL", 100, 3);
}
