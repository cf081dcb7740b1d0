//! Files that a process has open for writing: refused while they change, served without validator and for no cache
//! after 2 s without a change, and served as ordinary files once they are closed.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::wire::{BOTH, Response, Wire, wait_until};
use crate::support::{EndOnDrop, Folder, Server, server_table, site_table};

/// Ten times the longest delay of the server.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(folder: Folder, more: &str) -> Server {
    let site = site_table(&format!("http = \"serve\"\nlisting = true\n{more}"));
    Server::start_in(folder, &(server_table("") + &site))
}

/// Opens a file for appending; creates a missing file.
fn open(path: &Path) -> File {
    let mut options = File::options();
    options
        .create(true)
        .append(true)
        .open(path)
        .expect("opened")
}

/// Requires a response with a file that a process has open for writing.
fn must_be_restricted(response: &Response) {
    assert_eq!(
        response.field("cache-control"),
        Some("no-store"),
        "{response:?}"
    );
    for field in ["etag", "last-modified", "content-encoding", "vary"] {
        assert_eq!(response.field(field), None, "{response:?}");
    }
}

fn must_be_refused(server: &Server, response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    assert_eq!(response.field("retry-after"), Some("1"), "{response:?}");
    server
        .output
        .wait_for("the rule in the log", |line| line.contains("R508"));
}

/// Waits until the response for `path` is `text`, and returns the response.
fn wait_for_text(wire: &mut Wire, path: &str, text: &str) -> Response {
    let mut last = String::new();
    wait_until(PATIENCE, &format!("{path}: {text:?}"), || {
        let response = wire.get(path, "Accept-Encoding: gzip, br\r\n");
        last = format!("{response:?}");
        (response.status == 200 && response.text() == text).then_some(response)
    })
}

#[test]
fn a_new_file_that_stays_open_is_served_after_a_pause() {
    let server = start(Folder::new().with("public/page.html", "hello"), "");
    let path = server.folder.path("public/new.txt");
    let mut file = open(&path);
    let mut content = String::new();
    let mut wires = BOTH.map(|over| Wire::over(&server, over));
    let mut rounds = 0;
    while rounds < 20 {
        let written = Instant::now();
        content += "another line of text for the file\n";
        file.write_all(b"another line of text for the file\n")
            .expect("written");
        for wire in &mut wires {
            let response = wire.get("/new.txt", "");
            // A machine may be so slow that the file had its pause.
            if written.elapsed() < Duration::from_secs(2) {
                must_be_refused(&server, &response);
                rounds += 1;
            }
        }
    }
    for wire in &mut wires {
        must_be_restricted(&wait_for_text(wire, "/new.txt", &content));
        let part = wire.get("/new.txt", "Range: bytes=0-6\r\n");
        assert_eq!((part.status, part.text().as_str()), (206, "another"));
        must_be_restricted(&part);
        let listed = wire.get("/", "");
        assert!(listed.text().contains("new.txt"), "{listed:?}");
    }
    // The next change begins another pause.
    let written = Instant::now();
    content += "the last line\n";
    file.write_all(b"the last line\n").expect("written");
    let response = wires[0].get("/new.txt", "");
    assert!(
        response.status == 503 || written.elapsed() >= Duration::from_secs(2),
        "{response:?}"
    );
    drop(file);
    for wire in &mut wires {
        wait_until(PATIENCE, "an ordinary file", || {
            wait_for_text(wire, "/new.txt", &content)
                .field("etag")
                .map(|_| ())
        });
    }
}

/// A listing shows a file that stays open without any request for the file.
#[test]
fn a_new_file_that_stays_open_is_listed_after_a_pause() {
    let server = start(Folder::new().with("public/page.html", "hello"), "");
    let mut file = open(&server.folder.path("public/new.txt"));
    file.write_all(b"text").expect("written");
    let mut wire = Wire::plain(&server);
    wait_until(PATIENCE, "the name", || {
        wire.get("/", "").text().contains("new.txt").then_some(())
    });
    drop(file);
}

/// Clients get the earlier content of a file for a while, then a refusal, and in the end the new content.
#[test]
fn the_earlier_content_of_a_changing_file_is_dropped() {
    let folder = Folder::new()
        .with("public/index.html", "earlier")
        .with("public/index.html.gz", "coded")
        .with("public/index.htm", "another index");
    let server = start(folder, "index = [\"index.html\", \"index.htm\"]");
    let path = server.folder.path("public/index.html");
    let is_done = AtomicBool::new(false);
    let mut wires = BOTH.map(|over| Wire::over(&server, over));
    for wire in &mut wires {
        assert_eq!(wire.get("/", "").text(), "earlier");
    }
    let mut file = open(&path);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                file.write_all(b".").expect("written");
                thread::sleep(Duration::from_millis(50));
            }
        });
        for wire in &mut wires {
            let refused = wait_until(PATIENCE, "a refusal", || {
                let response = wire.get("/", "Accept-Encoding: gzip\r\n");
                (response.status == 503).then_some(response)
            });
            must_be_refused(&server, &refused);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let content = fs::read_to_string(&path).expect("a file");
    for wire in &mut wires {
        must_be_restricted(&wait_for_text(wire, "/", &content));
    }
    drop(file);
    for wire in &mut wires {
        wait_until(PATIENCE, "an ordinary file", || {
            wait_for_text(wire, "/", &content).field("etag").map(|_| ())
        });
    }
}

#[test]
fn a_growing_file_is_served_up_to_its_present_length() {
    let folder = Folder::new()
        .with("public/old.log", "first line\n")
        .with("public/large.log", vec![b'a'; 300_000]);
    folder.program(
        "scripts/to",
        "#!/bin/sh\nprintf 'Location: /%s\\n\\n' \"$QUERY_STRING\"\n",
    );
    let routes = "growing = [\"*.log\"]\n[[site.route]]\npath = \"/cached\"\ncgi = \"scripts\"\ncache = {}\n";
    let server = start(folder, routes);
    for name in ["old.log", "large.log", "new.log"] {
        let path = server.folder.path("public").join(name);
        let url = format!("/{name}");
        let mut wires = BOTH.map(|over| Wire::over(&server, over));
        let mut file = open(&path);
        file.write_all(b"begun\n").expect("written");
        let content = fs::read_to_string(&path).expect("a file");
        for wire in &mut wires {
            must_be_restricted(&wait_for_text(wire, &url, &content));
        }
        for round in 0..10 {
            file.write_all(b"another line\n").expect("written");
            let content = fs::read_to_string(&path).expect("a file");
            for wire in &mut wires {
                let response = wire.get(&url, "Accept-Encoding: gzip\r\n");
                assert_eq!(
                    (response.status, response.text()),
                    (200, content.clone()),
                    "{round}"
                );
                must_be_restricted(&response);
                // The page cache keeps no copy.
                let redirected = wire.get(&format!("/cached/to?{name}"), "");
                assert_eq!(redirected.text(), content, "{round}: {redirected:?}");
            }
        }
        drop(file);
        let content = fs::read_to_string(&path).expect("a file");
        for wire in &mut wires {
            wait_until(PATIENCE, "an ordinary file", || {
                let response = wire.get(&url, "");
                assert_eq!((response.status, response.text()), (200, content.clone()));
                response.field("etag").map(|_| ())
            });
        }
    }
}

/// A download of a growing file ends at the announced length.
#[test]
fn a_growing_file_grows_during_a_download() {
    const SIZE: usize = 20_000_000;
    let folder = Folder::new().with("public/large.log", vec![b'a'; SIZE]);
    let server = start(folder, "growing = [\"*.log\"]");
    let mut file = open(&server.folder.path("public/large.log"));
    for over in BOTH {
        let before = file.metadata().expect("a file").len() as usize;
        let mut wire = Wire::over(&server, over);
        wire.patience(PATIENCE);
        wire.send("GET /large.log HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut all = wire.take(500_000);
        file.write_all(&[b'b'; 100_000]).expect("written");
        all.extend(wire.rest());
        let head = all.windows(4).position(|part| part == b"\r\n\r\n");
        let body = &all[head.expect("a head") + 4..];
        assert_eq!(body.len(), before, "{over:?}");
    }
}

/// A script that is being written for the first time is neither run nor sent.
#[test]
fn a_script_in_the_making_is_refused() {
    let interpreter = "[[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n";
    let server = start(Folder::new().with("public/page.html", "hello"), interpreter);
    let text = "printf 'Content-Type: text/plain\\n\\n'\necho ran\n";
    let mut file = open(&server.folder.path("public/new.sh"));
    file.write_all(text.as_bytes()).expect("written");
    let written = Instant::now();
    let mut wire = Wire::plain(&server);
    let response = wire.get("/new.sh", "");
    if written.elapsed() < Duration::from_secs(2) {
        must_be_refused(&server, &response);
    }
    drop(file);
    assert_eq!(wait_for_text(&mut wire, "/new.sh", "ran\n").status, 200);
}
