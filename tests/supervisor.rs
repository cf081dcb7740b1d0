//! The supervisor, `serve --supervise`: what it heals, and what it leaves to the operator.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::lifecycle::is_root;
use crate::support::{Folder, Server, eventually, program, run, server_table, site_table, tool};

/// Deadline of every wait: longer than the slowest step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Returns a configuration with two workers.
pub fn config() -> String {
    let server = server_table("").replace("workers = 1", "workers = 2");
    server + &site_table("http = \"serve\"\n")
}

/// Starts a supervisor with its server, through a command that takes the program as its next argument or is the program.
pub fn supervised_by(mut command: Command, config: &str) -> Server {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    folder.write("anthill.toml", config);
    command.args(["serve", "--supervise"]);
    command.arg(folder.path("anthill.toml"));
    Server::launch(folder, command)
}

pub fn supervised(config: &str) -> Server {
    supervised_by(Command::new(program()), config)
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

pub fn kill(signal: &str, process: &str) {
    let ran = run("sh", &["-c", &format!("kill -{signal} {process}")], b"");
    assert!(ran.success, "kill -{signal} {process}: {}", ran.errors());
}

/// Returns the number of the server's process, which differs from `former`.
fn server_process(server: &Server, former: &str) -> String {
    eventually("a server", || {
        status(server, "status['pid']").filter(|pid| pid != former)
    })
}

/// Sends a request over a connection of its own, and returns the whole response.
pub fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn a_killed_server_is_started_again_without_a_refused_connection() {
    let server = supervised(&config());
    let (done, answered, refused) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match get(server.http_port, "/") {
                        Ok(text) if text.ends_with("<p>hello</p>\n") => {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        // The killed server had accepted the connection.
                        _ => {}
                    }
                }
            });
        }
        let mut process = server_process(&server, "");
        for _ in 0..3 {
            let before = answered.load(Ordering::Relaxed);
            eventually("load", || {
                (answered.load(Ordering::Relaxed) > before + 20).then_some(())
            });
            kill("KILL", &process);
            process = server_process(&server, &process);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(refused.into_inner(), 0);
    let record = status(&server, "status['restarts']").expect("a status");
    assert_eq!(record, "{'count': 3, 'reason': 'signal 9 (SIGKILL)'}");
    let shown = server.ask(&["status"]).stdout;
    let warning = "ago (signal 9 (SIGKILL)), restart 3 since its own start";
    assert!(shown.contains(warning), "{shown}");
    let metrics = server.ask(&["metrics"]).stdout;
    assert!(
        metrics.contains("\nanthill_restarts_total 3\n"),
        "{metrics}"
    );
    // The kernel ends the server before the supervisor for want of memory.
    let score = |process: &str| -> i32 {
        let text = fs::read_to_string(format!("/proc/{process}/oom_score_adj"));
        text.expect("a process").trim().parse().expect("a score")
    };
    let own = score(&server.pid().to_string());
    assert_eq!(score(&server_process(&server, "")), (own + 200).min(1_000));
}

#[cfg(feature = "http3")]
#[test]
fn the_next_server_gets_the_datagram_sockets_too() {
    let server = supervised(&config());
    assert_eq!(crate::h3::ask_once(&server), "200");
    let process = server_process(&server, "");
    kill("KILL", &process);
    server_process(&server, &process);
    assert_eq!(crate::h3::ask_once(&server), "200");
}

#[test]
fn a_refused_configuration_is_tried_again_with_growing_pauses() {
    let server = supervised(&config());
    server
        .folder
        .write("anthill.toml", config() + "lisiting = true\n");
    kill("KILL", &server_process(&server, ""));
    let supervisor_lines = |lines: &[String]| -> Vec<String> {
        let said = lines
            .iter()
            .filter_map(|line| line.split_once("supervisor: "));
        said.map(|it| it.1.to_owned()).collect()
    };
    let said = server.errors.wait_until(PATIENCE, "three pauses", |lines| {
        Some(supervisor_lines(lines)).filter(|said| said.len() >= 3)
    });
    let refused = "the server ended (exit status 2), and starts again in";
    let expected = [
        "the server ended (signal 9 (SIGKILL)), and starts again at once".to_owned(),
        format!("{refused} 1 s"),
        format!("{refused} 2 s"),
    ];
    assert_eq!(said, expected);
    server.folder.write("anthill.toml", config());
    server
        .errors
        .wait_for("a server", |line| line.contains("serving again"));
    assert!(
        get(server.http_port, "/")
            .expect("a response")
            .contains("hello")
    );
}

#[test]
fn a_server_that_hangs_is_ended_and_started_again() {
    let mut command = Command::new(program());
    command.env("ANTHILL_SILENCE_SECONDS", "2");
    let server = supervised_by(command, &config());
    let process = server_process(&server, "");
    kill("STOP", &process);
    server.errors.wait_for("the state of the thread", |line| {
        line.contains(&format!("thread {process} anthill: T (stopped)"))
    });
    server_process(&server, &process);
    assert!(
        get(server.http_port, "/")
            .expect("a response")
            .contains("hello")
    );
    let reason = status(&server, "status['restarts']['reason']").expect("a status");
    assert_eq!(reason, "silence for 2 s");
}

#[test]
fn sockets_of_former_addresses_are_closed() {
    let server = supervised(&config());
    let more = config().replace("http = [", "http = [\"127.0.0.2:0\", ");
    server.reload(&more);
    let look = "sorted(l['address'] for l in status['listening'])";
    let before = status(&server, look).expect("a status");
    let process = server_process(&server, "");
    kill("KILL", &process);
    let process = server_process(&server, &process);
    // A port chosen by the kernel stays as well, so the server got the sockets of the reload.
    assert_eq!(status(&server, look).expect("a status"), before);
    let second = "[l['address'] for l in status['listening'] if '127.0.0.2' in l['address']][0]";
    let second: SocketAddr = status(&server, second)
        .expect("a status")
        .parse()
        .expect("an address");
    assert!(TcpStream::connect(second).is_ok());
    // The address leaves the configuration before the end of the server.
    server.folder.write(
        "anthill.toml",
        config().replace("workers = 2", "workers = 1"),
    );
    kill("KILL", &process);
    let process = server_process(&server, &process);
    let error = TcpStream::connect(second).expect_err("a former address");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    // No connection waits at the socket of a worker that is no more.
    for _ in 0..20 {
        assert!(
            get(server.http_port, "/")
                .expect("a response")
                .contains("hello")
        );
    }
    // A reload closes an address as well, together with the duplicates of the supervisor.
    server.reload(&config().replace("http = [\"127.0.0.1:0\"]", "http = []"));
    eventually("the end of the address", || {
        TcpStream::connect(("127.0.0.1", server.http_port)).err()
    });
    kill("KILL", &process);
    server_process(&server, &process);
    assert_eq!(
        status(&server, "len(status['listening'])").as_deref(),
        Some("1")
    );
}

#[test]
fn the_supervisor_ends_with_the_server_and_its_status() {
    let slow = "[[site.route]]\npath = \"/slow\"\ntest = \"slow\"\n";
    for stop in ["TERM", "INT", "stop"] {
        let mut server = supervised(&(config() + slow));
        let port = server.http_port;
        let (begun, answer) = std::sync::mpsc::channel();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            let request = "GET /slow?lines=40&pause_ms=20 HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request.as_bytes()).expect("asked");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            let mut text = vec![0];
            stream.read_exact(&mut text).expect("the beginning");
            begun.send(()).expect("a receiver");
            stream.read_to_end(&mut text).expect("the rest");
            String::from_utf8_lossy(&text).into_owned()
        });
        answer.recv_timeout(PATIENCE).expect("a response");
        if stop == "stop" {
            assert_eq!(server.ask(&["stop"]).stdout, "stopped\n");
        } else {
            server.signal(stop);
        }
        assert_eq!(server.wait(PATIENCE), Some(0), "{stop}");
        let text = client.join().expect("a response");
        assert!(text.ends_with("0\r\n\r\n"), "the whole response: {text}");
        assert!(!server.folder.path("anthill.sock").exists());
    }
}

#[test]
fn the_first_start_refuses_a_configuration_as_without_a_supervisor() {
    let folder = Folder::new().with("anthill.toml", config() + "lisiting = true\n");
    let ended = |options: &[&str]| {
        let mut command = Command::new(program());
        command
            .arg("serve")
            .args(options)
            .arg(folder.path("anthill.toml"));
        let done = command.output().expect("the program");
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let (code, errors) = ended(&["--supervise"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("lisiting"), "{errors}");
    assert_eq!((code, errors), ended(&[]));
}

#[test]
fn a_killed_supervisor_ends_its_server() {
    let mut server = supervised(&config());
    server.signal("KILL");
    assert_eq!(server.wait(PATIENCE), None);
    eventually("the end of the address", || {
        TcpStream::connect(("127.0.0.1", server.http_port)).err()
    });
}

#[test]
fn reloads_and_the_state_reach_the_server_and_the_service_manager() {
    let folder = Folder::new();
    let socket = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    // The supervisor itself answers the watchdog of the manager.
    let told = || loop {
        let mut bytes = [0; 1_000];
        let length = socket.recv(&mut bytes).expect("a message");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if text != "WATCHDOG=1" {
            return text;
        }
    };
    let mut command = Command::new(program());
    command
        .env("NOTIFY_SOCKET", folder.path("notify"))
        .env("WATCHDOG_USEC", "60000000");
    let mut server = supervised_by(command, &config());
    assert_eq!(told(), "READY=1");
    server.signal("HUP");
    assert_eq!([told(), told()], ["RELOADING=1", "READY=1"]);
    kill("KILL", &server_process(&server, ""));
    let ended = "STATUS=the server ended (signal 9 (SIGKILL)), and starts again at once";
    let again = "STATUS=serving again, restart 1";
    assert_eq!([told(), told(), told()], [ended, "READY=1", again]);
    server.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn process_1_of_a_namespace_waits_for_orphans() {
    if !is_root() {
        eprintln!("nothing is tested: a PID namespace needs root (sudo -E make test)");
        return;
    }
    let mut command = Command::new(tool("unshare"));
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    command.arg(program());
    let mut server = supervised_by(command, &config());
    let children = |process: &str| {
        let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        text.expect("a process").trim().to_owned()
    };
    let first = children(&server.pid().to_string());
    let served = children(&first);
    let ended = server.folder.path("ended");
    let orphan = format!("(touch '{}') &", ended.display());
    let arguments = ["--target", &first, "--pid", "--mount", "sh", "-c", &orphan];
    assert!(run("nsenter", &arguments, b"").success);
    eventually("the end of the orphan", || ended.exists().then_some(()));
    eventually("no zombie", || (children(&first) == served).then_some(()));
    kill("KILL", &served);
    eventually("the next server", || {
        Some(children(&first)).filter(|next| !next.is_empty() && *next != served)
    });
    server
        .errors
        .wait_for("a server", |line| line.contains("serving again"));
    assert!(
        get(server.http_port, "/")
            .expect("a response")
            .contains("hello")
    );
    kill("TERM", &first);
    assert_eq!(server.wait(PATIENCE), Some(0));
}

#[test]
fn a_start_that_hangs_is_ended_and_repeated() {
    let mut command = Command::new(program());
    command.env("ANTHILL_SILENCE_SECONDS", "2");
    let server = supervised_by(command, &config());
    let process = server_process(&server, "");
    // The next server waits for a writer of the pipe, without an end.
    let file = server.folder.path("state/pages");
    let path = file.display().to_string();
    assert!(run("mkfifo", &[&path], b"").success);
    kill("KILL", &process);
    let waits = server.errors.wait_for("the state of the thread", |line| {
        line.contains(" anthill: S")
    });
    assert!(waits.contains("supervisor: thread"), "{waits}");
    fs::remove_file(&file).expect("removed");
    server_process(&server, &process);
    assert!(
        get(server.http_port, "/")
            .expect("a response")
            .contains("hello")
    );
    let reason = status(&server, "status['restarts']['reason']").expect("a status");
    assert_eq!(reason, "no work in its start for 4 s");
}

/// A quick machine reads a small site before the first look at its start.
#[test]
fn a_long_start_asks_the_service_manager_for_more_time() {
    let mut statements = [20_000, 60_000, 180_000]
        .into_iter()
        .map(first_statement_of_start);
    let slow = statements.find(|statement| statement != "READY=1");
    assert_eq!(slow.as_deref(), Some("EXTEND_TIMEOUT_USEC=4000000"));
}

/// Returns the first statement of the supervisor of a server with a site of so many files.
fn first_statement_of_start(files: usize) -> String {
    let folder = Folder::new();
    let socket = UnixDatagram::bind(folder.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let site = Folder::new().with("anthill.toml", config());
    for number in 0..files {
        let name = format!("public/{}/{number}.html", number / 500);
        site.write(&name, "<p>hello</p>\n");
    }
    let mut command = Command::new(program());
    command.args(["serve", "--supervise"]);
    command.arg(site.path("anthill.toml"));
    command
        .env("NOTIFY_SOCKET", folder.path("notify"))
        .env("ANTHILL_SILENCE_SECONDS", "1");
    let server = Server::launch(site, command);
    let mut first = [0; 1_000];
    let length = socket.recv(&mut first).expect("a message");
    let restarts = status(&server, "status['restarts']['count']");
    assert_eq!(restarts.as_deref(), Some("0"));
    String::from_utf8_lossy(&first[..length]).into_owned()
}
