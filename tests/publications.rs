//! Publications and rollbacks by the real publisher while clients of HTTP/1.1, HTTP/2 and HTTP/3 read the site.

use std::fs;
use std::io::Read as _;
#[cfg(feature = "http3")]
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

#[cfg(feature = "http3")]
use base::digest::{hex, sha256};

use crate::support::h2::H2;
use crate::support::release_store::publisher;
use crate::support::wire::Over;
use crate::support::{Done, EndOnDrop, Folder, Server, eventually, finish, spawn, tool};

/// The downloads stand still on purpose, on a slow machine for longer than the 30 s of `write_stall_seconds`.
const CONFIG: &str = "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
    control = \"anthill.sock\"\nworkers = 2\nlimits = { idle_seconds = 600, write_stall_seconds = 600 }\n\
    [[site]]\nnames = [\"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n";

/// Returns a folder with an empty state folder.
fn state_folder() -> Folder {
    let folder = Folder::new();
    fs::create_dir(folder.path("state")).expect("a folder");
    folder
}

/// Runs a command of the publisher in the folder.
fn publish(folder: &Folder, words: &[&str]) -> Done {
    let mut command = Command::new(publisher());
    command.args(words).current_dir(folder.path("."));
    command.env("XDG_CACHE_HOME", folder.path("cache"));
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
    done
}

/// Waits until all workers serve the publication with the sequence.
fn wait_for_sequence(folder: &Folder, sequence: u64) {
    let file = folder.path("state/served/www");
    let line = format!("sequence {sequence}");
    eventually(&line, || {
        let text = fs::read_to_string(&file).ok()?;
        text.lines().any(|it| it == line).then_some(())
    });
}

/// Writes the site with the number `number`: a page that names a style sheet and a script of its own.
fn write_site(folder: &Folder, number: u64) {
    let _ = fs::remove_dir_all(folder.path("site"));
    let assets = assets(number);
    let page = format!(
        "<!DOCTYPE html><title>{number}</title><link rel=\"stylesheet\" href=\"{}\"><script src=\"{}\"></script>",
        assets[0], assets[1]
    );
    folder.write("site/index.html", page);
    for asset in &assets {
        folder.write(&format!("site{asset}"), format!("/* asset of {number} */"));
    }
}

fn assets(number: u64) -> [String; 2] {
    [
        format!("/app-3f2a{number:04x}.css"),
        format!("/app-3f2b{number:04x}.js"),
    ]
}

/// Client that keeps one connection.
type Client<'s> = Box<dyn FnMut(&str) -> (u16, String) + Send + 's>;

/// Returns one client for each way to reach the server.
fn clients(server: &Server) -> Vec<Client<'_>> {
    let mut plain = server.keep_alive();
    let mut tls = server.keep_alive_tls();
    let mut h2 = H2::open(server, Over::Tls);
    let mut all: Vec<Client> = vec![
        Box::new(move |path| {
            let got = plain.get(path);
            (got.status, got.text())
        }),
        Box::new(move |path| {
            let got = tls.get(path);
            (got.status, got.text())
        }),
        Box::new(move |path| {
            let got = h2.get(path);
            (got.status, String::from_utf8_lossy(&got.body).into_owned())
        }),
    ];
    #[cfg(feature = "http3")]
    {
        use crate::raw_streams::{Outcome, StreamRequest, h3::H3Streams};
        let mut h3 = H3Streams::start(server);
        let mut is_first = true;
        all.push(Box::new(move |path| {
            let outcome = h3.ask(&StreamRequest::get(path), is_first);
            is_first = false;
            match outcome {
                Outcome::Response(status, text) => (status, text),
                other => panic!("{path}: {other:?}"),
            }
        }));
    }
    all
}

/// Numbers of the sites that were published, in the order of their sequences, and the last sequence that all workers
/// serve.
struct History {
    numbers: Mutex<Vec<u64>>,
    served: AtomicU64,
}

impl History {
    /// Adds a publication before its start. Returns its sequence.
    fn begin(&self, number: u64) -> u64 {
        let mut numbers = self.numbers.lock().expect("the numbers");
        numbers.push(number);
        numbers.len() as u64
    }

    /// Reads the page and all assets that the page names. Fails unless all belong to one site that was served at the
    /// time.
    fn read_page(&self, client: &mut Client) {
        let first = self.served.load(Ordering::Acquire);
        let (status, page) = client("/");
        let served = self.numbers.lock().expect("the numbers")[first as usize - 1..].to_vec();
        assert_eq!(status, 200, "{page}");
        let title = page.split_once("<title>").expect("a title").1;
        let number = title.split_once('<').expect("an end").0;
        let number: u64 = number.parse().expect("a number");
        assert!(served.contains(&number), "{number}, served: {served:?}");
        for asset in assets(number) {
            assert!(page.contains(&asset), "{page}");
            let expected = (200, format!("/* asset of {number} */"));
            assert_eq!(client(&asset), expected, "{asset}");
        }
    }
}

#[test]
fn publications_and_rollbacks_fail_no_request() {
    const EACH: u64 = 20;
    let folder = state_folder();
    write_site(&folder, 1);
    publish(&folder, &["publish", "site", "state/releases:www"]);
    let server = Server::start_in(folder, CONFIG);
    let folder = &server.folder;
    let history = History {
        numbers: Mutex::new(vec![1]),
        served: AtomicU64::new(1),
    };
    let (is_over, pages) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut idle = clients(&server);
    for client in &mut idle {
        history.read_page(client);
    }
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for mut client in clients(&server) {
            let (history, is_over, pages) = (&history, &is_over, &pages);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    history.read_page(&mut client);
                    pages.fetch_add(1, Ordering::Relaxed);
                    // The publisher needs the processor too.
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let serve = |number: u64, words: &[&str]| {
            let sequence = history.begin(number);
            publish(folder, words);
            wait_for_sequence(folder, sequence);
            history.served.store(sequence, Ordering::Release);
            let before = pages.load(Ordering::Relaxed);
            eventually("further pages", || {
                (pages.load(Ordering::Relaxed) > before + 4).then_some(())
            });
        };
        for number in 2..2 + EACH {
            write_site(folder, number);
            serve(number, &["publish", "site", "state/releases:www"]);
            // The release before is the first one: each rollback but the first follows one.
            serve(1, &["rollback", "state/releases:www"]);
        }
    });
    for client in &mut idle {
        history.read_page(client);
    }
}

/// A download by curl into a pipe.
struct Download {
    curl: Child,
    content: ChildStdout,
}

impl Download {
    /// Begins a download, and reads the first bytes.
    fn begin(version: &str, url: &str) -> Download {
        let mut command = Command::new(tool("curl"));
        command.args(["-sSfk", version, url]).stdout(Stdio::piped());
        let mut curl = spawn(&mut command).expect("curl");
        let mut content = curl.stdout.take().expect("a pipe");
        let mut first = [0; 5];
        content.read_exact(&mut first).expect("the first bytes");
        assert_eq!(&first, b"begin");
        Download { curl, content }
    }

    /// Reads the rest, and compares the content with the content of the large file.
    fn finish(mut self) {
        let (mut bytes, mut last) = (5, Vec::new());
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = self.content.read(&mut buffer).expect("content");
            if count == 0 {
                break;
            }
            bytes += count as u64;
            last.extend_from_slice(&buffer[..count]);
            last.drain(..last.len().saturating_sub(4));
        }
        assert_eq!((bytes, &last[..]), (LARGE, &b"\0end"[..]));
        assert!(self.curl.wait().expect("an exit").success());
    }
}

/// Bytes of the large file.
const LARGE: u64 = 1 << 30;

/// Bytes of the file for the client of HTTP/3, which needs more time for each byte.
const MIDDLE: usize = 16 << 20;

/// The downloads begin, stand still during publications and a sweep, and go on.
#[test]
fn downloads_outlive_flips_and_sweeps() {
    let folder = state_folder();
    // The file has a hole between the first and the last bytes.
    folder.write("site/large.bin", "begin");
    let source = folder.path("site/large.bin");
    let file = fs::OpenOptions::new().write(true).open(&source);
    let file = file.expect("the file");
    file.write_all_at(b"end", LARGE - 3).expect("written");
    folder.write("site/middle.bin", vec![b'm'; MIDDLE]);
    publish(&folder, &["publish", "site", "state/releases:www"]);
    let server = Server::start_in(folder, CONFIG);
    let folder = &server.folder;
    wait_for_sequence(folder, 1);
    let downloads = [
        ("--http1.1", server.http("/large.bin")),
        ("--http1.1", server.https("/large.bin")),
        ("--http2", server.https("/large.bin")),
    ];
    let downloads = downloads.map(|(version, url)| Download::begin(version, &url));
    #[cfg(feature = "http3")]
    let h3 = PausedH3::begin(&server, "/middle.bin");
    for number in 2..4 {
        write_site(folder, number);
        publish(folder, &["publish", "site", "state/releases:www"]);
        wait_for_sequence(folder, number);
    }
    let content = fs::read_dir(folder.path("state/releases/blobs")).expect("a folder");
    let has_large = |folder: fs::DirEntry| {
        let mut files = fs::read_dir(folder.path()).expect("a folder");
        files.any(|file| file.expect("a file").metadata().expect("facts").len() == LARGE)
    };
    let words = "releases sweep --keep 1 --seconds 0 --bytes 1 state/releases";
    publish(folder, &words.split(' ').collect::<Vec<_>>());
    let is_kept = content.map(|it| it.expect("an entry")).any(has_large);
    assert!(!is_kept, "the sweep removes the content");
    assert_eq!(server.keep_alive().get("/large.bin").status, 404);
    #[cfg(feature = "http3")]
    h3.finish();
    for download in downloads {
        download.finish();
    }
}

/// A download over HTTP/3 that stands still.
#[cfg(feature = "http3")]
struct PausedH3 {
    client: Child,
    said: BufReader<ChildStdout>,
}

#[cfg(feature = "http3")]
impl PausedH3 {
    fn begin(server: &Server, path: &str) -> PausedH3 {
        use crate::support::python::{python, script};
        let digest = hex(&sha256(&vec![b'm'; MIDDLE]));
        let mut command = python();
        command
            .arg(script("h3_client.py"))
            .arg(server.https_port.to_string())
            .args(["paused", path, &MIDDLE.to_string(), &digest])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut client = spawn(&mut command).expect("a client");
        let said = BufReader::new(client.stdout.take().expect("a pipe"));
        let mut paused = PausedH3 { client, said };
        assert_eq!(paused.line(), "begun\n");
        paused
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        line
    }

    fn finish(mut self) {
        let mut input = self.client.stdin.take().expect("a pipe");
        input.write_all(b"\n").expect("a client that reads");
        assert_eq!(self.line(), "whole\n");
        assert!(self.client.wait().expect("an exit").success());
    }
}
