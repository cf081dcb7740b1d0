//! The lifecycle of a server: reloads and stops under load, users and privileges, sockets passed in by a
//! service manager, the control socket, and full disks.

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::wire::Wire;
use crate::support::{
    Folder, KeepAlive, Server, anthill, eventually, finish, run, server_table, site_table, tool,
};

/// Deadline of every wait: longer than the slowest step on a busy machine and the drain of a stop.
const PATIENCE: Duration = Duration::from_secs(90);

fn config(server: &str, site: &str) -> String {
    server_table(server) + &site_table(&format!("http = \"serve\"\n{site}"))
}

fn two_workers(config: &str) -> String {
    config.replace("workers = 1", "workers = 2")
}

/// Evaluates `look`, a Python expression over `status`, on the output of `anthill status --json`.
fn status(server: &Server, look: &str) -> String {
    let done = server.ask(&["status", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let program = format!("import json, sys; status = json.load(sys.stdin); print({look})");
    let ran = run("python3", &["-c", &program], done.stdout.as_bytes());
    assert!(ran.success, "{}\n{}", ran.errors(), done.stdout);
    ran.text().trim().to_owned()
}

pub fn is_root() -> bool {
    run("python3", &["-c", "import os; print(os.geteuid())"], b"")
        .text()
        .trim()
        == "0"
}

/// Sends requests until `done` is set, and returns the number of responses.
fn request_until<S: Read + Write>(mut client: KeepAlive<S>, done: &AtomicBool) -> usize {
    let mut answers = 0;
    while !done.load(Ordering::Relaxed) {
        let got = client.get("/");
        assert_eq!((got.status, got.text().as_str()), (200, "<p>hello</p>\n"));
        answers += 1;
    }
    answers
}

#[test]
fn reloads_under_load_fail_no_request_and_close_no_connection() {
    let text = two_workers(&config("", ""));
    let server = Server::start(&text);
    let mut idle: Vec<_> = (0..10).map(|_| server.keep_alive()).collect();
    let mut idle_tls: Vec<_> = (0..10).map(|_| server.keep_alive_tls()).collect();
    idle.iter_mut().for_each(|client| drop(client.get("/")));
    idle_tls.iter_mut().for_each(|client| drop(client.get("/")));
    let done = AtomicBool::new(false);
    let answers = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                answers.fetch_add(request_until(server.keep_alive(), &done), Ordering::Relaxed)
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                answers.fetch_add(
                    request_until(server.keep_alive_tls(), &done),
                    Ordering::Relaxed,
                )
            });
        }
        for round in 0..20 {
            let age = format!("cache = [{{ files = \"*\", max_age = \"{round}s\" }}]");
            let said = server.reload(&two_workers(&config("", &age)));
            assert!(said.contains("is served"), "{said}");
        }
        for round in 0..5 {
            server.signal("HUP");
            server
                .errors
                .wait_until(PATIENCE, "a reload by signal", |lines| {
                    let reloads = lines.iter().filter(|line| line.contains("reloaded"));
                    (reloads.count() > 20 + round).then_some(())
                });
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(answers.into_inner() > 0);
    for client in &mut idle {
        assert!(client.get("/").head.contains("max-age=19"));
    }
    for client in &mut idle_tls {
        assert_eq!(client.get("/").text(), "<p>hello</p>\n");
    }
}

#[test]
fn a_reload_returns_when_every_worker_serves_it() {
    let server = Server::start(&two_workers(&config("", "")));
    for round in 0..5 {
        server
            .folder
            .write("public/index.html", format!("round {round}"));
        let set = format!("headers = [{{ files = \"*\", set = {{ \"X-Round\" = \"{round}\" }} }}]");
        server.reload(&two_workers(&config("", &set)));
        for _ in 0..50 {
            let got = server.keep_alive().get("/");
            assert_eq!(got.text(), format!("round {round}"));
            assert!(
                got.head.contains(&format!("X-Round: {round}\r\n")),
                "{}",
                got.head
            );
        }
    }
}

#[test]
fn a_reload_adds_and_drops_addresses_and_sites() {
    let server = Server::start(&config("", ""));
    let mut kept = server.keep_alive();
    kept.get("/");
    server.folder.write("other/index.html", "another site");
    let address = |ip: &str| {
        let look = format!("[l['address'] for l in status['listening'] if '{ip}' in l['address']]");
        status(&server, &look)
    };
    let more = config("", "").replace("http = [", "http = [\"127.0.0.2:0\", ")
        + "[[site]]\nnames = [\"other.test\"]\nroot = \"other\"\nhttp = \"serve\"\n";
    server.reload(&more);
    let second = address("127.0.0.2:")
        .trim_matches(['[', ']', '\''])
        .to_owned();
    let ask = |host: &str| {
        let mut stream = TcpStream::connect(&second).expect("the new address");
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    assert!(ask("other.test").ends_with("another site"));
    assert!(ask("localhost").ends_with("<p>hello</p>\n"));
    let mut there = TcpStream::connect(&second).expect("the new address");
    there.set_read_timeout(Some(PATIENCE)).expect("set");
    server.reload(&config("", ""));
    assert_eq!(address("127.0.0.2:"), "[]");
    eventually("the end of the address", || {
        TcpStream::connect(&second).err()
    });
    // A connection from before the reload stays open and reaches the new sites.
    let request = "GET / HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n";
    there.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    there.read_to_string(&mut answer).expect("answered");
    assert!(answer.ends_with("<p>hello</p>\n"), "{answer}");
    assert_eq!(kept.get("/").status, 200);
}

#[test]
fn redirects_follow_a_moved_https_address() {
    let redirects = server_table("") + &site_table("");
    let server = Server::start(&redirects);
    server.reload(&redirects.replace("https = [\"127.0.0.1:0\"]", "https = [\"127.0.0.3:0\"]"));
    let port = status(
        &server,
        "[l['address'] for l in status['listening'] if l['tls']][0].split(':')[1]",
    );
    let got = server.keep_alive().get("/page?q");
    let to = format!("Location: https://localhost:{port}/page?q\r\n");
    assert!(got.head.contains(&to), "{}", got.head);
}

#[test]
fn a_broken_configuration_is_refused_and_the_old_configuration_stays() {
    let server = Server::start(&config("", ""));
    let mut kept = server.keep_alive();
    kept.get("/");
    let refused = |config: &str, words: &[&str]| {
        server.folder.write("anthill.toml", config);
        let done = server.ask(&["reload"]);
        assert_eq!(done.code, Some(1), "{done:?}");
        for word in words {
            assert!(done.stderr.contains(word), "no {word} in {}", done.stderr);
        }
        server.keep_alive().get("/")
    };
    refused(
        &(config("", "") + "lisiting = true\n"),
        &["anthill.toml:", "lisiting", "^^^", "listing"],
    );
    refused(
        &config("", "").replace("\"public\"", "\"publik\""),
        &["publik", "did you mean"],
    );
    // An address bound before a later failure is released.
    let before = status(&server, "len(status['listening'])");
    let late = config("", "try = [\"$oops\"]").replace("http = [", "http = [\"127.0.0.2:0\", ");
    refused(&late, &["$oops"]);
    assert_eq!(status(&server, "len(status['listening'])"), before);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let late = config("", "").replace("http = [", &format!("http = [\"{address}\", "));
    refused(&late, &[&address, "in use"]);
    server.signal("HUP");
    server
        .errors
        .wait_until(PATIENCE, "the refusal of the signal", |lines| {
            let refusals = lines.iter().filter(|line| line.contains("reload refused"));
            (refusals.count() == 5).then_some(())
        });
    assert_eq!(kept.get("/").text(), "<p>hello</p>\n");
    assert!(server.reload(&config("", "")).contains("is served"));
}

#[test]
fn keys_that_need_a_restart_are_reported_at_each_reload() {
    let server = Server::start(&config("", ""));
    let changed = config("memory_max = \"9 MiB\"", "")
        .replace("workers = 1", "workers = 3")
        .replace("state = \"state\"", "state = \"elsewhere\"");
    for _ in 0..2 {
        let said = server.reload(&changed);
        for key in ["workers", "state", "memory_max"] {
            assert!(said.contains(&format!("`{key}` changed")), "{said}");
        }
        assert_eq!(status(&server, "status['workers']"), "1");
    }
    assert!(!server.reload(&config("", "")).contains("changed"));
}

/// Sends requests until the server closes the connection. Every response must be complete.
fn request_until_closed<S: Read + Write>(mut client: KeepAlive<S>, answers: &AtomicUsize) {
    while let Some(got) = client.try_get("/") {
        assert_eq!((got.status, got.text().as_str()), (200, "<p>hello</p>\n"));
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sigterm_and_sigint_under_load_end_the_server_in_order() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&two_workers(&config("", "")));
        let mut idle: Vec<_> = (0..5).map(|_| server.keep_alive()).collect();
        let mut idle_tls: Vec<_> = (0..5).map(|_| server.keep_alive_tls()).collect();
        idle.iter_mut().for_each(|client| drop(client.get("/")));
        idle_tls.iter_mut().for_each(|client| drop(client.get("/")));
        let answers = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| request_until_closed(server.keep_alive(), &answers));
            }
            scope.spawn(|| request_until_closed(server.keep_alive_tls(), &answers));
            eventually("some load", || {
                (answers.load(Ordering::Relaxed) > 50).then_some(())
            });
            server.signal(signal);
        });
        assert!(idle.iter_mut().all(KeepAlive::is_closed));
        assert!(idle_tls.iter_mut().all(KeepAlive::is_closed));
        assert_eq!(server.wait(PATIENCE), Some(0), "{signal}");
        assert!(!server.folder.path("anthill.sock").exists());
        // All connections ended by themselves, and none was cut off.
        let said = server.errors.all();
        assert!(!said.iter().any(|line| line.contains("still open")));
    }
}

/// Starts to download a file larger than the kernel's buffers, and pauses.
fn begin_download(server: &Server) -> (TcpStream, Vec<u8>) {
    let mut stream = server.connect();
    let request = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("asked");
    let mut begun = vec![0; 1_000];
    stream.read_exact(&mut begun).expect("the beginning");
    (stream, begun)
}

const LARGE: usize = 24 << 20;

fn with_large_file() -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/large", vec![b'x'; LARGE])
}

fn wait_until_stopping(server: &Server) {
    server
        .errors
        .wait_for("the end to begin", |line| line.contains("stopping"));
}

#[test]
fn stop_waits_for_a_download_that_ends_in_time() {
    let limits = "limits = { drain_seconds = 3600 }";
    let mut server = Server::start_in(with_large_file(), &config(limits, ""));
    let (mut stream, mut got) = begin_download(&server);
    thread::scope(|scope| {
        let asked = scope.spawn(|| server.ask(&["stop"]));
        wait_until_stopping(&server);
        // A second `stop` waits for the same end. The command is sent before the later commands, so the
        // server reads it before the end.
        let socket = server.folder.path("anthill.sock");
        let mut again = UnixStream::connect(socket).expect("a connection");
        again.set_read_timeout(Some(PATIENCE)).expect("set");
        again.write_all(b"stop\n").expect("asked");
        // The server answers `status` and refuses `reload`.
        assert_eq!(server.ask(&["status"]).code, Some(0));
        let refused = server.ask(&["reload"]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains("stopping"), "{refused:?}");
        eventually("closed listeners", || {
            TcpStream::connect(("127.0.0.1", server.http_port)).err()
        });
        stream.read_to_end(&mut got).expect("the rest");
        let done = asked.join().expect("stopped");
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), "stopped\n"),
            "{done:?}"
        );
        let mut answer = String::new();
        again.read_to_string(&mut answer).expect("answered");
        assert_eq!(answer, "ok\nstopped\n");
    });
    let head = got
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .expect("a head")
        + 4;
    assert_eq!(got.len() - head, LARGE);
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn a_download_that_does_not_end_is_cut_at_the_deadline() {
    let limits = "limits = { drain_seconds = 1 }";
    let mut server = Server::start_in(with_large_file(), &config(limits, ""));
    let (mut stream, mut got) = begin_download(&server);
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    // The connection may end in any manner, but not with the whole file.
    let _ = stream.read_to_end(&mut got);
    assert!(got.len() < LARGE);
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let limits = "limits = { drain_seconds = 3600 }";
    let mut server = Server::start_in(with_large_file(), &config(limits, ""));
    let held = begin_download(&server);
    server.signal("INT");
    wait_until_stopping(&server);
    server.signal("INT");
    assert_eq!(server.wait(PATIENCE), Some(0));
    drop(held);
}

#[test]
fn a_call_under_way_is_finished() {
    let slow = "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n";
    let mut server = Server::start(&config("", slow));
    let mut stream = server.connect();
    let request = b"GET /slow?lines=20&pause_ms=20 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("asked");
    let mut got = vec![0; 40];
    stream.read_exact(&mut got).expect("the beginning");
    server.signal("TERM");
    stream.read_to_end(&mut got).expect("the rest");
    let text = String::from_utf8_lossy(&got);
    assert!(
        text.contains("line 19\n") && text.ends_with("0\r\n\r\n"),
        "{text}"
    );
    assert_eq!(server.wait(PATIENCE), Some(0));
}

/// Returns the numbers after `Uid:` of every thread.
fn uids(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let of = |thread: std::io::Result<fs::DirEntry>| {
        // A thread may have ended meanwhile.
        let status = fs::read_to_string(thread.ok()?.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    threads.filter_map(of).collect()
}

/// Returns a free port that only root may bind.
pub fn low_port() -> u16 {
    (600..1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port below 1024")
}

#[test]
fn root_becomes_the_user_after_binding() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    if !is_root() {
        folder.write("anthill.toml", config("user = \"root\"", ""));
        let done = anthill(&["serve".as_ref(), folder.path("anthill.toml").as_os_str()]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(
            done.stderr
                .contains("only root can switch to the account `root`"),
            "{done:?}"
        );
        return;
    }
    const NOBODY: u32 = 65_534;
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path("."), open).expect("the mode");
    fs::create_dir(folder.path("logs")).expect("a folder");
    chown(folder.path("logs"), Some(NOBODY), Some(NOBODY)).expect("the owner");
    let port = low_port();
    let text = config("user = \"nobody\"", "").replace(
        "http = [\"127.0.0.1:0\"]",
        &format!("http = [\"127.0.0.1:{port}\"]"),
    ) + "[log]\naccess = \"logs/access.log\"\nerrors = \"logs/errors.log\"\n";
    let text = text.replace("control = \"anthill.sock\"\n", "");
    // A run without `user` makes the state folder for root, with the keys.
    let ran_as_root = text.replace("user = \"nobody\"", "").replace("logs/", "");
    let mut first = Server::start_in(folder, &ran_as_root);
    first.signal("TERM");
    assert_eq!(first.wait(PATIENCE), Some(0));
    let folder = first.into_folder();
    folder.write("anthill.toml", &text);
    let state = folder.path("state");
    let refused = || {
        let done = anthill(&["serve".as_ref(), folder.path("anthill.toml").as_os_str()]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains("help: chown -R nobody "), "{done:?}");
    };
    // Root gives away neither a folder that others may enter, which could be one of the system, nor a folder of
    // another account.
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("the mode");
    refused();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("the mode");
    chown(&state, Some(12_345), None).expect("the owner");
    refused();
    // A file of root in the folder of the account could be a link that the account made, and stays root's.
    chown(&state, Some(NOBODY), Some(NOBODY)).expect("the owner");
    refused();
    chown(&state, Some(0), Some(0)).expect("the owner");
    let key = fs::read(state.join("self-signed.key")).expect("the key");
    // A private folder of root is given to the account, with the keys.
    let mut server = Server::start_in(folder, &text);
    assert_eq!(server.http_port, port);
    let kept = fs::read(server.folder.path("state/self-signed.key")).expect("the key");
    assert!(kept == key, "another key");
    assert_eq!(server.keep_alive().get("/").status, 200);
    server.keep_alive_tls().get("/");
    let expected = [NOBODY.to_string().as_str(); 4].join(" ");
    let uids = uids(server.pid());
    let state = server.folder.path("state");
    assert!(
        uids.len() > 2 && uids.iter().all(|uid| *uid == expected),
        "{uids:?}"
    );
    for entry in [state.clone()].into_iter().chain(
        fs::read_dir(&state)
            .expect("the state")
            .map(|entry| entry.expect("an entry").path()),
    ) {
        use std::os::unix::fs::MetadataExt;
        let owner = fs::symlink_metadata(&entry).expect("there").uid();
        assert_eq!(owner, NOBODY, "{}", entry.display());
    }

    server.folder.write("public/index.html", "changed");
    assert!(server.reload(&text).contains("is served"));
    let got = server.keep_alive().get("/");
    assert_eq!(
        got.text(),
        "changed",
        "{}",
        fs::read_to_string(server.folder.path("logs/errors.log")).unwrap()
    );
    let log = |name: &str| fs::read_to_string(server.folder.path(name)).unwrap_or_default();
    eventually("a line", || {
        log("logs/access.log").contains("GET /").then_some(())
    });
    fs::rename(
        server.folder.path("logs/access.log"),
        server.folder.path("logs/old.log"),
    )
    .expect("rotated");
    server.signal("USR1");
    eventually("the new file", || {
        server.folder.path("logs/access.log").exists().then_some(())
    });
    server.keep_alive().get("/?after");
    eventually("a line in it", || {
        log("logs/access.log").contains("/?after").then_some(())
    });
    assert!(!log("logs/old.log").contains("/?after"));
    assert!(log("logs/errors.log").contains("reloaded"));
    assert_eq!(server.ask(&["stop"]).code, Some(0));
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn sockets_that_are_passed_in_are_served_on() {
    const STARTER: &str = "
import os, socket, sys
binary, folder = sys.argv[1:]
sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(2)]
ports = [s.getsockname()[1] for s in sockets]
text = open(folder + '/anthill.toml').read()
text = text.replace('https = [\"127.0.0.1:0\"]', 'https = [\"127.0.0.1:%d\"]' % ports[0])
text = text.replace('http = [\"127.0.0.1:0\"]', 'http = [\"127.0.0.1:%d\"]' % ports[1])
open(folder + '/anthill.toml', 'w').write(text)
kept = [os.dup(s.fileno()) for s in sockets]
for s in sockets: s.close()
high = [os.dup2(fd, 20 + n) for n, fd in enumerate(kept)]
for n, fd in enumerate(high): os.dup2(fd, 3 + n, inheritable=True)
os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))
os.execv(binary, [binary, 'serve', folder + '/anthill.toml'])
";
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.write("anthill.toml", two_workers(&config("", "")));
    let mut command = Command::new(tool("python3"));
    command
        .args(["-c", STARTER, crate::support::program()])
        .arg(folder.path("."));
    let mut server = Server::launch(folder, command);
    let text = fs::read_to_string(server.folder.path("anthill.toml")).expect("the configuration");
    assert!(text.contains(&format!("https = [\"127.0.0.1:{}\"]", server.https_port)));
    for _ in 0..5 {
        assert_eq!(server.keep_alive().get("/").text(), "<p>hello</p>\n");
        assert_eq!(server.keep_alive_tls().get("/").text(), "<p>hello</p>\n");
    }
    // Passed-in sockets stay across reloads, and the server binds no other socket.
    let other = text.replace("http = [", "http = [\"127.0.0.2:0\", ");
    server.reload(&other);
    assert_eq!(status(&server, "len(status['listening'])"), "2");
    assert_eq!(server.keep_alive().get("/").status, 200);
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
}

/// A UDP socket bound to the address of a passed-in TCP socket is used for HTTP/3.
#[test]
fn datagram_sockets_that_are_passed_in_serve_http_3() {
    const STARTER: &str = "
import os, socket, sys
binary, folder = sys.argv[1:]
while True:
    stream = socket.create_server(('127.0.0.1', 0))
    port = stream.getsockname()[1]
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        datagrams.bind(('127.0.0.1', port))
        break
    except OSError:
        # A number that is free for streams may be somebody's for datagrams.
        stream.close()
        datagrams.close()
text = open(folder + '/anthill.toml').read()
text = text.replace('https = [\"127.0.0.1:0\"]', 'https = [\"127.0.0.1:%d\"]' % port)
open(folder + '/anthill.toml', 'w').write(text)
high = [os.dup2(s.fileno(), 20 + n) for n, s in enumerate([stream, datagrams])]
for n, fd in enumerate(high): os.dup2(fd, 3 + n, inheritable=True)
for fd in high: os.close(fd)
os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))
os.execv(binary, [binary, 'serve', folder + '/anthill.toml'])
";
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let text = config("", "").replace("http = [\"127.0.0.1:0\"]", "http = []");
    folder.write("anthill.toml", text);
    let mut command = Command::new(tool("python3"));
    command
        .args(["-c", STARTER, crate::support::program()])
        .arg(folder.path("."));
    let server = Server::launch(folder, command);
    assert_eq!(crate::h3::ask_once(&server), "200");
    assert_eq!(server.counter("h3_connections"), 1);
    // The server binds no other socket, UDP included.
    let table = fs::read_to_string(format!("/proc/{}/net/udp", server.pid())).expect("a table");
    let port = format!(":{:04X} ", server.https_port);
    assert_eq!(table.lines().filter(|line| line.contains(&port)).count(), 1);
}

#[test]
fn the_service_manager_is_notified() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.write("anthill.toml", config("", ""));
    let socket = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let told = || {
        let mut bytes = [0; 1_000];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = Command::new(crate::support::program());
    command
        .arg("serve")
        .arg(folder.path("anthill.toml"))
        .env("NOTIFY_SOCKET", folder.path("notify"));
    let mut server = Server::launch(folder, command);
    assert_eq!(told(), "READY=1");
    server.ask(&["reload"]);
    assert!(told().starts_with("RELOADING=1"));
    assert_eq!(told(), "READY=1");
    server.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn a_worker_that_hangs_is_named_and_ends_the_messages_to_the_watchdog() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let route = "[[site.route]]\npath = \"/page\"\ntest = \"page\"\n";
    folder.write("anthill.toml", two_workers(&config("", route)));
    let socket = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let told = || {
        let mut bytes = [0; 1_000];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = Command::new(crate::support::program());
    // The server asks its workers twice in the time of the watchdog.
    command
        .arg("serve")
        .arg(folder.path("anthill.toml"))
        .env("NOTIFY_SOCKET", folder.path("notify"))
        .env("WATCHDOG_USEC", "400000");
    let server = Server::launch(folder, command);
    assert_eq!(told(), "READY=1");
    for _ in 0..3 {
        assert_eq!(told(), "WATCHDOG=1");
    }
    assert_eq!(status(&server, "status['silent_workers']"), "[]");

    let go = server.folder.path("go");
    let mut hanging = Wire::plain(&server);
    let target = format!("/page?hang={}", go.display());
    hanging.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    eventually("a silent worker", || {
        let silent = status(&server, "len(status['silent_workers'])");
        (silent == "1").then_some(())
    });
    let shown = server.ask(&["status"]).stdout;
    assert!(shown.contains("(thread anthill-"), "{shown}");
    assert!(shown.contains("has been silent for"), "{shown}");
    // No message has followed the round in which the worker was last heard.
    socket.set_nonblocking(true).expect("a socket");
    while socket.recv(&mut [0; 1_000]).is_ok() {}
    status(&server, "status['workers']");
    assert!(
        socket.recv(&mut [0; 1_000]).is_err(),
        "the watchdog hears of a server that hangs"
    );

    fs::write(&go, "").expect("a file");
    socket.set_nonblocking(false).expect("a socket");
    assert_eq!(told(), "WATCHDOG=1");
    assert_eq!(hanging.response("GET").status, 200);
    assert_eq!(status(&server, "status['silent_workers']"), "[]");
}

#[test]
fn a_stale_control_socket_is_replaced_and_a_second_server_refused() {
    let mut killed = Server::start(&config("", ""));
    killed.signal("KILL");
    assert_eq!(killed.wait(PATIENCE), None);
    let folder = killed.into_folder();
    assert!(folder.path("anthill.sock").exists());
    let stale = anthill(&["status".as_ref(), folder.path("anthill.toml").as_os_str()]);
    assert_eq!(stale.code, Some(1));
    assert!(stale.stderr.contains("no anthill is running"), "{stale:?}");
    let server = Server::start_in(folder, &config("", ""));
    let socket = server.folder.path("anthill.sock");
    let mode = fs::metadata(&socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = server.ask(&["serve"]);
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("running already"), "{second:?}");
    assert!(second.stderr.contains("anthill reload"), "{second:?}");
    // The first server is unaffected.
    assert_eq!(server.ask(&["status"]).code, Some(0));
    assert_eq!(server.keep_alive().get("/").status, 200);
}

#[test]
fn a_long_state_path_works() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let long = ["a-folder-with-a-rather-long-name"; 5].join("/");
    let text = config("", "")
        .replace("state = \"state\"", &format!("state = \"{long}\""))
        .replace("control = \"anthill.sock\"\n", "");
    let mut server = Server::start_in(folder, &text);
    assert!(server.folder.path(&long).join("self-signed.pem").exists());
    assert_eq!(server.ask(&["reload"]).code, Some(0));
    assert_eq!(server.ask(&["stop"]).code, Some(0));
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn clients_of_the_control_socket_do_not_block_the_server() {
    let server = Server::start(&config("", ""));
    let socket = server.folder.path("anthill.sock");
    let silent: Vec<_> = (0..10)
        .map(|_| UnixStream::connect(&socket).expect("a connection"))
        .collect();
    let mut slow = UnixStream::connect(&socket).expect("a connection");
    slow.write_all(b"stat").expect("half a question");
    let answer = |question: &[u8]| {
        let mut stream = UnixStream::connect(&socket).expect("a connection");
        // The server may close before it has read the whole command.
        let _ = stream.write_all(question);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    for garbage in [
        &b"\n"[..],
        b"\xff\xfe\0\x1b[2J\n",
        b"reboot\n",
        b"status yaml\n",
        &[b'a'; 9_999],
    ] {
        let said = answer(garbage);
        assert!(said.starts_with("error\n"), "{said:?}");
        assert!(!said.contains('\x1b'), "{said:?}");
    }
    let huge = answer(&vec![b'x'; 4 << 20]);
    assert!(huge.is_empty() || huge.starts_with("error\n"), "{huge:?}");
    // The silent connections still wait, and further commands are answered.
    assert_eq!(server.ask(&["status"]).code, Some(0));
    assert!(answer(b"status\nreload\n").starts_with("ok\nanthill"));
    server.folder.write("public/index.html", "changed");
    eventually("the change", || {
        (server.keep_alive().get("/").text() == "changed").then_some(())
    });
    drop((silent, slow));
}

#[test]
fn status_counts_connections_and_requests() {
    let server = Server::start(&config("", ""));
    let mut clients: Vec<_> = (0..3).map(|_| server.keep_alive()).collect();
    for client in &mut clients {
        client.get("/");
        client.get("/nothing");
    }
    server.keep_alive_tls().get("/");
    eventually("four connections, three open", || {
        let look = "[status['connections'], status['counters']['connections_opened'], \
                    status['counters']['connections_closed'], status['counters']['requests'], \
                    status['counters']['handshakes_full'], status['pid'], status['workers']]";
        let expected = format!("[3, 4, 1, 7, 1, {}, 1]", server.pid());
        (status(&server, look) == expected).then_some(())
    });
    let text = server.ask(&["status"]).stdout;
    assert!(
        text.contains(&format!("process {}", server.pid())),
        "{text}"
    );
    assert!(
        text.contains(&format!("127.0.0.1:{}", server.https_port)),
        "{text}"
    );
    assert!(text.contains("days left, self-signed"), "{text}");
}

/// Returns a command that runs a server in a mount namespace of its own, after the shell commands in
/// `mounts`.
pub fn in_own_mounts(folder: &Folder, mounts: &str) -> Command {
    let mut command = Command::new(tool("unshare"));
    command
        .arg(if is_root() { "-m" } else { "-Urm" })
        .args(["sh", "-ec"]);
    command.arg(format!(
        "cd \"$1\"; {mounts}\nexec \"$0\" serve anthill.toml"
    ));
    command.arg(crate::support::program()).arg(folder.path("."));
    tool("mount");
    command
}

#[test]
fn a_full_state_folder_is_named_at_the_start() {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("state/here", "");
    folder.write("anthill.toml", config("", ""));
    let mounts = "mount -t tmpfs -o size=16k none state; \
                  dd if=/dev/zero of=state/filler bs=4k 2>/dev/null || true";
    let done = finish(in_own_mounts(&folder, mounts), b"");
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(
        done.stderr.contains("No space left") || done.stderr.contains("no space left"),
        "{done:?}"
    );
    assert!(done.stderr.contains("state"), "{done:?}");
}

#[test]
fn a_state_folder_that_fills_up_does_not_stop_serving() {
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("state/here", "");
    folder.write(
        "anthill.toml",
        config("", "").replace("anthill.sock", "state/control.sock"),
    );
    let command = in_own_mounts(&folder, "mount -t tmpfs -o size=64k none state");
    let server = Server::launch(folder, command);
    // The server's view of the file system.
    let state = format!(
        "/proc/{}/root{}",
        server.pid(),
        server.folder.path("state").display()
    );
    let full = fs::write(Path::new(&state).join("filler"), vec![0; 1 << 20]);
    assert_eq!(full.expect_err("full").kind(), ErrorKind::StorageFull);
    server.folder.write("public/index.html", "changed");
    eventually("the change", || {
        (server.keep_alive().get("/").text() == "changed").then_some(())
    });
    server.signal("HUP");
    server
        .errors
        .wait_for("a reload", |line| line.contains("reloaded"));
    assert_eq!(server.keep_alive_tls().get("/").text(), "changed");
}

#[test]
fn logs_that_cannot_be_written_are_lost_and_counted() {
    let logs = "[log]\naccess = \"/dev/full\"\nerrors = \"/dev/full\"\n";
    let server = Server::start(&(config("", "") + logs));
    let mut client = server.keep_alive();
    for _ in 0..50 {
        assert_eq!(client.get("/").status, 200);
    }
    eventually("lost lines in the status", || {
        let lost: u64 = status(&server, "status['log_lines_lost']")
            .parse()
            .expect("a number");
        (lost >= 50).then_some(())
    });
    server.errors.wait_for("the reason", |line| {
        line.contains("/dev/full") && line.to_lowercase().contains("no space")
    });
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn an_idle_server_sleeps() {
    let server = Server::start(&two_workers(&config("", "")));
    server.keep_alive().get("/");
    let wakes = || -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a process");
        let of = |thread: fs::DirEntry| {
            let status = fs::read_to_string(thread.path().join("status")).ok()?;
            let line = status
                .lines()
                .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
            line.trim().parse::<u64>().ok()
        };
        threads.filter_map(|thread| of(thread.ok()?)).sum()
    };
    // The start is followed by a few seconds of work, and then by three seconds with few wake-ups.
    let mut before = VecDeque::from([wakes()]);
    eventually("three quiet seconds", || {
        thread::sleep(Duration::from_secs(1));
        let now = wakes();
        before.push_back(now);
        if before.len() <= 3 {
            return None;
        }
        let earlier = before.pop_front()?;
        (now.saturating_sub(earlier) <= 6).then_some(())
    });
}
