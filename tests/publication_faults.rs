//! Faults of publications: strace kills the receiver or the server at each system call of a kind, or makes the call
//! fail. The old or the new release is served, a server starts from the store, and the next publication heals.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use base::digest::{hex, sha256};
use release::receive_frame::{ContentPlace, FrameKind, HELLO};
use release::store::FrameWriter;

use crate::support::fault::Fault;
use crate::support::release_store::publisher;
use crate::support::release_store::{TestStore, pointer, wait_until_served};
use crate::support::{Done, Folder, Server, eventually, finish, tool};

const CONFIG: &str = "[server]\nhttps = []\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
    control = \"anthill.sock\"\n[[site]]\nnames = [\"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n";

/// Deadline for the end of a killed server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes the folder `site` through a receiver that a command of the shell starts in place of ssh.
fn publish_through(folder: &Folder, receiver: &str) -> Done {
    let mut command = Command::new(publisher());
    // The words of ssh and of the remote command are left out.
    let ssh = format!("sh -c '{receiver}'");
    command
        .args(["publish", "--ssh", &ssh, "site", "host"])
        .current_dir(folder.path("."))
        .env("ANTHILL", crate::support::program())
        .env("STRACE", tool("strace"))
        .env("XDG_CACHE_HOME", folder.path("cache"));
    finish(command, b"")
}

#[test]
fn the_rest_of_a_cut_upload_makes_room_for_another_publisher() {
    let folder = Folder::new();
    fs::create_dir(folder.path("state")).expect("a folder");
    let quota = "--quota 400000";
    // A contributor sends the half of a content, and the connection ends.
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let manifest = format!(
        "anthill release 1\nfile {} {} large.bin\n",
        content.len(),
        hex(&sha256(&content))
    );
    let mut frames = FrameWriter::new(Vec::new());
    let mut send = |kind, payload: &[u8]| frames.write(kind, payload).expect("memory");
    send(FrameKind::Hello, HELLO.as_bytes());
    send(FrameKind::Manifest, manifest.as_bytes());
    send(FrameKind::Release, &sha256(manifest.as_bytes()));
    send(FrameKind::Blob, &[0; ContentPlace::BYTES]);
    for piece in content[..200_000].chunks(50_000) {
        send(FrameKind::Data, piece);
    }
    let mut command = Command::new(crate::support::program());
    command
        .args("receive www --store state/releases --rights preview --publisher eve".split(' '))
        .args(quota.split(' '))
        .current_dir(folder.path("."));
    let cut = finish(command, &frames.into_inner());
    assert_eq!(cut.code, Some(1), "{cut:?}");
    let parts = || {
        let drafts = fs::read_dir(folder.path("state/releases/drafts")).expect("a folder");
        let names = drafts.map(|entry| entry.expect("a file").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("part-www+"))
    };
    assert_eq!(parts().count(), 1);
    // Pages of another publisher fit beside the rest, and a large content does not.
    let publish = || publish_through(&folder, &format!("exec {RECEIVE} --publisher ann {quota}"));
    write_site(&folder, "small");
    assert_eq!(publish().code, Some(0));
    assert_eq!(parts().count(), 1);
    let large: Vec<u8> = (0..250_000_u32)
        .map(|at| (at.wrapping_mul(at) >> 7) as u8)
        .collect();
    folder.write("site/large.png", &large);
    let done = publish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(parts().count(), 0);
}

const RECEIVE: &str = "\"$ANTHILL\" receive www --store state/releases";

fn publish_well(folder: &Folder) {
    let done = publish_through(folder, &format!("exec {RECEIVE}"));
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Publishes while a fault happens at the call number `nth` of the receiver. Returns the outcome, and true if the fault
/// happened.
fn publish_with(folder: &Folder, call: &str, fault: &str, nth: usize) -> (Done, bool) {
    let strace = format!(
        "exec \"$STRACE\" -f -q -o strace -e trace={call} -e inject={call}:{fault}:when={nth}"
    );
    let done = publish_through(folder, &format!("{strace} {RECEIVE}"));
    let text = fs::read_to_string(folder.path("strace")).expect("a log");
    let happened = text.contains("INJECTED") || text.contains("killed by");
    (done, happened)
}

fn write_site(folder: &Folder, text: &str) {
    folder.write("site/index.html", text);
    for file in 0..3 {
        folder.write(&format!("site/{file}.txt"), format!("{text} {file}"));
    }
}

/// Returns the text of the site, after a check that all files belong to the same release.
fn site_text(server: &Server) -> String {
    let mut client = server.keep_alive();
    let mut get = |path: &str| {
        let got = client.get(path);
        assert_eq!(got.status, 200, "{path}");
        got.text()
    };
    let text = get("/");
    for file in 0..3 {
        assert_eq!(get(&format!("/{file}.txt")), format!("{text} {file}"));
    }
    text
}

/// Publishes with a fault at each call of the receiver in turn. Returns the number of faults.
fn fail_each_call(call: &str, fault: &str) -> usize {
    let mut folder = Folder::new();
    fs::create_dir(folder.path("state")).expect("a folder");
    write_site(&folder, "first");
    publish_well(&folder);
    let mut text = "first".to_owned();
    for nth in 1.. {
        let new = format!("{call} {nth}");
        write_site(&folder, &new);
        // Without an acknowledgment the receiver does not wait long for the stopped server.
        let _ = fs::remove_dir_all(folder.path("state/served"));
        let (done, happened) = publish_with(&folder, call, fault, nth);
        let server = Server::start_in(folder, CONFIG);
        let served = site_text(&server);
        let is_new = served == new;
        assert!(is_new || served == text, "{call} {nth}: {served}, {done:?}");
        assert!(is_new || done.code != Some(0), "{call} {nth}: {done:?}");
        if !happened {
            assert!(is_new, "{call} {nth}: {done:?}");
            return nth - 1;
        }
        // The next publication reaches the same server.
        text = format!("{new} healed");
        write_site(&server.folder, &text);
        publish_well(&server.folder);
        eventually(&text, || (site_text(&server) == text).then_some(()));
        folder = server.into_folder();
    }
    unreachable!("each publication ends")
}

/// System calls by which the receiver changes the store or answers the publisher, with the least number in a
/// publication.
const CHANGES: [(&str, usize); 6] = [
    ("mkdirat", 1),
    ("write", 10),
    ("fsync", 4),
    ("/^rename", 3),
    ("unlinkat", 1),
    ("flock", 1),
];

/// Fails each call of each kind. The kinds run at the same time, because a receiver without a server mostly waits for
/// the acknowledgment.
fn fail_each_kind_of_call(fault: &str) {
    thread::scope(|scope| {
        for (call, least) in CHANGES {
            scope.spawn(move || {
                let faults = fail_each_call(call, fault);
                assert!(faults >= least, "{call}: {faults}");
            });
        }
    });
}

#[test]
fn a_kill_at_each_call_of_the_receiver_leaves_the_old_or_the_new_release() {
    fail_each_kind_of_call("signal=KILL");
}

#[test]
fn an_error_of_each_call_of_the_receiver_leaves_the_old_or_the_new_release() {
    fail_each_kind_of_call("error=ENOSPC");
}

/// Returns the paths that the server reads and writes for the release with the digest.
fn paths(server: &Server, release: &[u8; 32]) -> Vec<PathBuf> {
    let state = server.folder.path("state").canonicalize().expect("a path");
    let store = state.join("releases");
    let site = store.join("sites/www");
    let manifest = TestStore(store.clone()).blob(release);
    let served = state.join("served");
    vec![
        served.join(format!(".www.{}", server.pid())),
        served,
        site.join("pointer"),
        site,
        manifest.parent().expect("a folder").to_owned(),
        manifest,
        store,
    ]
}

/// Publishes a page while a fault happens at the call number `nth` of the server. Returns the text of the page, and true
/// if the fault happened.
fn flip_with(
    server: &Server,
    sequence: u64,
    (call, fault): (&str, &str),
    nth: u32,
) -> (String, bool) {
    let store = TestStore::of(&server.folder);
    let text = format!("page {sequence}");
    let release = store.manifest("", &[("index.html", &text)]);
    let fault = Fault::inject(server, call, nth, fault, &paths(server, &release));
    store.point(&pointer(release, sequence).text());
    let acknowledgment = server.folder.path("state/served/www");
    let line = format!("sequence {sequence}");
    eventually("the acknowledgment or the fault", || {
        let text = fs::read_to_string(&acknowledgment).unwrap_or_default();
        (fault.happened() || text.lines().any(|it| it == line)).then_some(())
    });
    // A killed call may take effect, and strace may end before it notes the end of the server.
    let happened = fault.end() || server.ask(&["status"]).code != Some(0);
    (text, happened)
}

/// System calls by which the control plane acknowledges a release.
const FLIP_CALLS: [&str; 6] = ["openat", "read", "write", "fsync", "/^rename", "unlinkat"];

/// Least number of these calls in a flip.
const FAULTS_MIN: usize = 5;

fn start_with_page() -> Server {
    let folder = Folder::new();
    TestStore::of(&folder).publish_page(1, "page 1");
    Server::start_in(folder, CONFIG)
}

#[test]
fn a_kill_at_each_call_of_a_flip_leaves_the_old_or_the_new_release() {
    let mut server = start_with_page();
    let (mut sequence, mut faults) = (1, 0);
    for call in FLIP_CALLS {
        for nth in 1.. {
            sequence += 1;
            let (text, happened) = flip_with(&server, sequence, (call, "signal=KILL"), nth);
            if !happened {
                assert_eq!(server.keep_alive().get("/").text(), text);
                break;
            }
            faults += 1;
            assert_eq!(server.wait(PATIENCE), None);
            server = Server::start_in(server.into_folder(), CONFIG);
            assert_eq!(server.keep_alive().get("/").text(), text, "{call} {nth}");
        }
    }
    assert!(faults >= FAULTS_MIN, "{faults}");
}

#[test]
fn an_error_of_each_call_of_a_flip_leaves_the_old_or_the_new_release() {
    let server = start_with_page();
    let (mut sequence, mut faults) = (1, 0);
    let mut old = "page 1".to_owned();
    for call in FLIP_CALLS {
        for nth in 1.. {
            sequence += 1;
            let (new, happened) = flip_with(&server, sequence, (call, "error=EIO"), nth);
            let shown = server.keep_alive().get("/").text();
            assert!(shown == old || shown == new, "{call} {nth}: {shown}");
            if !happened {
                assert_eq!(shown, new, "{call} {nth}");
                old = new;
                break;
            }
            faults += 1;
            // The fault keeps the next publication from nothing.
            sequence += 1;
            old = format!("page {sequence}");
            let release = TestStore::of(&server.folder).publish_page(sequence, &old);
            wait_until_served(&server, release, sequence);
            assert_eq!(server.keep_alive().get("/").text(), old, "{call} {nth}");
        }
    }
    assert!(faults >= FAULTS_MIN, "{faults}");
}
