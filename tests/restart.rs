//! `anthill restart`: the supervisor replaces its server, and no client notices.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Folder, Server, eventually, program, run, server_table, site_table};

/// Deadline of every read: longer than the slowest step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn config() -> String {
    let server = server_table("").replace("workers = 1", "workers = 2");
    server + &site_table("http = \"serve\"\n")
}

/// Starts a supervisor with its server. The program is a copy in the folder.
fn supervised() -> Server {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.write("anthill.toml", config());
    let copy = folder.path("anthill");
    fs::copy(program(), &copy).expect("a copy of the program");
    let mut command = Command::new(copy);
    command.args(["serve", "--supervise"]);
    command.arg(folder.path("anthill.toml"));
    Server::launch(folder, command)
}

/// Puts another program in the place of the copy.
fn replace_program(server: &Server, text: &str) {
    let new = server.folder.path("anthill.new");
    fs::write(&new, text).expect("a file");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::rename(new, server.folder.path("anthill")).expect("a program");
}

/// Returns a part of `anthill status --json`, evaluated by Python; None while no server answers.
fn status(server: &Server, look: &str) -> Option<String> {
    let done = server.ask(&["status", "--json"]);
    if done.code != Some(0) {
        return None;
    }
    let look = format!("import json, sys; status = json.load(sys.stdin); print({look})");
    let ran = run("python3", &["-c", &look], done.stdout.as_bytes());
    assert!(ran.success, "{}\n{}", ran.errors(), done.stdout);
    Some(ran.text().trim().to_owned())
}

fn process(server: &Server) -> String {
    eventually("a server", || status(server, "status['pid']"))
}

fn get(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn a_restart_fails_no_request_and_says_who_serves() {
    let mut server = supervised();
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut kept = server.connect();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let text = get(server.http_port).expect("a response");
                    assert!(text.ends_with("<p>hello</p>\n"), "{text}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut former = process(&server);
        for _ in 0..4 {
            let before = answered.load(Ordering::Relaxed);
            eventually("load", || {
                (answered.load(Ordering::Relaxed) > before + 20).then_some(())
            });
            let restart = server.ask(&["restart"]);
            assert_eq!(restart.code, Some(0), "{restart:?}");
            let process = process(&server);
            assert_ne!(process, former);
            let version = env!("CARGO_PKG_VERSION");
            let start = format!(
                "anthill {version} serves (process {process}); process {former} ({version}) keeps "
            );
            assert!(restart.stdout.starts_with(&start), "{restart:?}");
            former = process;
        }
        done.store(true, Ordering::Relaxed);
    });
    // The connection of the first server is still open.
    kept.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("a request");
    let mut text = String::new();
    kept.read_to_string(&mut text)
        .expect("a response, and the end");
    assert!(text.ends_with("<p>hello</p>\n"), "{text}");
    assert_eq!(
        status(&server, "status['restarts']['count']").as_deref(),
        Some("0")
    );
    let stop = server.ask(&["stop"]);
    assert_eq!(stop.code, Some(0), "{stop:?}");
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn a_refused_configuration_leaves_the_server_in_use() {
    let server = supervised();
    let own = process(&server);
    server
        .folder
        .write("anthill.toml", config() + "lisiting = true\n");
    let restart = server.ask(&[
        "restart",
        "--control",
        server.folder.path("anthill.sock").to_str().expect("text"),
    ]);
    server.folder.write("anthill.toml", config());
    assert_eq!(restart.code, Some(1), "{restart:?}");
    assert!(restart.stderr.contains("lisiting"), "{restart:?}");
    let end = format!(
        "; anthill {} (process {own}) stays in use",
        env!("CARGO_PKG_VERSION")
    );
    assert!(restart.stderr.contains(&end), "{restart:?}");
    assert_eq!(process(&server), own);
    let restart = server.ask(&["restart"]);
    assert_eq!(restart.code, Some(0), "{restart:?}");
}

#[test]
fn a_reload_that_needs_a_restart_restarts() {
    let server = supervised();
    let own = process(&server);
    let text = config().replace("workers = 2", "workers = 3");
    let said = server.reload(&text);
    assert!(said.contains(&format!("process {own} (")), "{said}");
    assert_ne!(process(&server), own);
    assert_eq!(status(&server, "status['workers']").as_deref(), Some("3"));
    let same = process(&server);
    let said = server.reload(&(text + "hits = true\n"));
    assert!(said.contains("is served"), "{said}");
    assert_eq!(process(&server), same);
}

#[test]
fn a_program_that_can_t_take_over_changes_nothing() {
    let server = supervised();
    let own = process(&server);
    for text in ["#!/bin/sh\nexit 3\n", "no program\n", ""] {
        replace_program(&server, text);
        let restart = server.ask(&["restart"]);
        assert_eq!(restart.code, Some(1), "{text}: {restart:?}");
        assert!(
            restart.stderr.contains("stays in use"),
            "{text}: {restart:?}"
        );
        assert_eq!(process(&server), own);
        assert!(get(server.http_port).is_ok());
    }
}

#[test]
fn a_new_program_that_dies_soon_gives_way_to_the_previous_one() {
    let server = supervised();
    let own = process(&server);
    // The second start of the new program fails.
    let marker = server.folder.path("started");
    let text = format!(
        "#!/bin/sh\n[ -e {marker:?} ] && exit 1\ntouch {marker:?}\nexec {:?} \"$@\"\n",
        program()
    );
    replace_program(&server, &text);
    let restart = server.ask(&["restart"]);
    assert_eq!(restart.code, Some(0), "{restart:?}");
    let new = process(&server);
    assert_ne!(new, own);
    let ran = run("sh", &["-c", &format!("kill -KILL {new}")], b"");
    assert!(ran.success, "{}", ran.errors());
    let previous = eventually("the previous program", || {
        status(&server, "status['pid']").filter(|pid| *pid != new)
    });
    assert!(get(server.http_port).is_ok());
    let file = fs::read_link(format!("/proc/{previous}/exe")).expect("a program");
    assert!(file.to_string_lossy().contains("(deleted)"), "{file:?}");
    server.errors.wait_for("the reason", |line| {
        line.contains("the previous program starts in its place")
    });
}

#[test]
fn a_server_without_a_supervisor_names_two_ways() {
    let server = Server::start(&config());
    let restart = server.ask(&["restart"]);
    assert_eq!(restart.code, Some(1), "{restart:?}");
    assert!(
        restart
            .stderr
            .starts_with("error: the server has no supervisor\n"),
        "{restart:?}"
    );
    for way in ["anthill serve --replace", "anthill serve --supervise"] {
        assert!(restart.stderr.contains(way), "{restart:?}");
    }
}

#[test]
fn a_server_with_a_supervisor_is_not_replaced_from_elsewhere() {
    let server = supervised();
    let done = server.ask(&["serve", "--replace"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("the server has a supervisor"),
        "{done:?}"
    );
    assert!(done.stderr.contains("anthill restart"), "{done:?}");
}
