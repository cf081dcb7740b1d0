//! The access log and the error log, and independence of the service from slow or failing logs.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::clients::{anthill, ask, command, reload, visit, visit_with, wait_until};
use crate::support::{Folder, Server, lossy, run, server_table, site_table, spawn};

/// Deadline of every wait: longer than a stop or a log line takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn site_folder() -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("public/large.bin", vec![7; 3_000_000])
}

fn config(log: &str, site: &str) -> String {
    let plain = format!("http = \"serve\"\n{site}");
    format!("{}[log]\n{log}\n{}", server_table(""), site_table(&plain))
}

/// Waits until the file has `count` complete lines, and returns all lines.
fn wait_for_lines(folder: &Folder, name: &str, count: usize) -> Vec<String> {
    wait_until(&format!("{count} lines in {name}"), || {
        let text = fs::read_to_string(folder.path(name)).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count && text.ends_with('\n')).then_some(lines)
    })
}

/// Sends one plain request byte by byte as given, and returns the response.
fn send(server: &Server, request: &str) -> String {
    lossy(&server.http_raw(request.as_bytes()))
}

/// Makes every kind of exchange in a fixed order. Returns the part of each combined log line between the
/// time and the line's end.
fn exchanges(server: &Server) -> Vec<String> {
    let get = |target: &str, more: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")
    };
    let mut expected = Vec::new();
    let mut exchange = |request: String, status: u16, bytes: &str, rest: &str| {
        let answer = send(server, &request);
        assert!(
            answer.contains(&format!(" {status} ")),
            "{request}: {answer}"
        );
        let line = request.split("\r\n").next().unwrap_or_default().to_owned();
        expected.push(format!("\"{line}\" {status} {bytes} {rest}"));
    };
    let nobody = "\"-\" \"-\"";
    exchange(get("/", ""), 200, "13", nobody);
    exchange(
        get("/?q", "Referer: http://x/\r\nUser-Agent: ant/1\r\n"),
        200,
        "13",
        "\"http://x/\" \"ant/1\"",
    );
    exchange(get("/", "").replace("GET", "HEAD"), 200, "-", nobody);
    exchange(get("/large.bin", ""), 200, "3000000", nobody);
    exchange(
        get("/large.bin", "Range: bytes=1-1000000\r\n"),
        206,
        "1000000",
        nobody,
    );
    exchange(get("/", "If-None-Match: *\r\n"), 304, "-", nobody);
    exchange(
        get("/echo", "Content-Length: 5\r\n").replace("GET", "POST") + "hello",
        200,
        "5",
        nobody,
    );
    exchange(get("/", "").replace("GET", "OPTIONS"), 204, "-", nobody);
    // Responses made by the server, of any length.
    let mut refused = |request: String, status: u16, rule: u16| {
        let answer = send(server, &request);
        assert!(
            answer.contains(&format!(" {status} ")),
            "{request}: {answer}"
        );
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        let line = request.split("\r\n").next().unwrap_or_default();
        let bytes = body.len();
        let rule = match rule {
            0 => String::new(),
            rule => format!(" rule=R{rule}"),
        };
        expected.push(format!("\"{line}\" {status} {bytes} {nobody}{rule}"));
    };
    refused(get("/old", ""), 308, 0);
    refused(get("/nothing", ""), 404, 501);
    refused(get("/", "").replace("GET", "POST"), 405, 505);
    refused(get("/..", ""), 400, 111);
    refused("GET / HTTP/1.1\r\n\r\n".to_owned(), 400, 210);
    refused(get("/closed", ""), 403, 403);
    refused(get("/", "").replace("GET", "BREW"), 501, 103);
    refused("nonsense\r\n\r\n".to_owned(), 400, 101);
    expected
}

const ROUTES: &str = "[[site.route]]\npath = \"/echo\"\ntest = \"echo\"\n\
                      [[site.route]]\npath = \"/closed\"\nallow = []\n\
                      [[site.route]]\npath = \"/old\"\nredirect = \"/\"\n";

#[test]
fn combined_lines_describe_each_exchange() {
    let server = Server::start_in(site_folder(), &config("", ROUTES));
    let expected = exchanges(&server);
    let said = server
        .output
        .wait_until(Duration::from_secs(60), "all lines", |lines| {
            (lines.len() >= expected.len()).then(|| lines.to_vec())
        });
    for (line, expected) in said.iter().zip(&expected) {
        let (before, rest) = line.split_once("] ").expect("a time");
        assert!(before.starts_with("127.0.0.1 - - ["), "{line}");
        assert_eq!(rest, expected, "{line}");
        let time = before.split_once('[').expect("a time").1;
        // Format: 20/Nov/2026:19:53:29 +0000
        assert!(time.len() == 26 && time.ends_with(" +0000"), "{line}");
    }
}

#[test]
fn lines_of_the_format_with_the_host_name_the_host_and_the_port() {
    let server = Server::start_in(
        site_folder(),
        &config("format = \"vhost_combined\"", ROUTES),
    );
    visit(&server, "www.Example.org", "/tls");
    ask(&server, "EXAMPLE.org:8080", "/");
    ask(&server, "[::1]", "/echo");
    send(&server, "GET / HTTP/1.0\r\n\r\n");
    send(&server, "nonsense\r\n\r\n");
    let https_port = server.https_port;
    for (start, end) in [
        (
            format!("www.example.org:{https_port} "),
            "\"GET /tls HTTP/2.0\" 404 ",
        ),
        (
            "example.org:80 ".to_owned(),
            "\"GET / HTTP/1.1\" 200 13 \"-\" \"-\"",
        ),
        ("[::1]:80 ".to_owned(), "\"GET /echo HTTP/1.1\" 200 "),
        ("-:80 ".to_owned(), "\"GET / HTTP/1.0\" 200 13 \"-\" \"-\""),
        ("-:80 ".to_owned(), "\"nonsense\" 400 "),
    ] {
        let start = start + "127.0.0.1 - - [";
        server.output.wait_for(&start, |line| {
            line.starts_with(&start) && line.contains(end)
        });
    }
}

#[test]
fn skipped_responses_have_no_line() {
    let log =
        "skip = [\"/health\", { path = \"/echo/\", status = \"2xx\" }, { status = [499, 304] }]\n";
    let sites = "[[site]]\nnames = [\"own.test\"]\nroot = \"public\"\nhttp = \"serve\"\n\
                 log = { skip = [{ path = \"*.html\", status = 200 }], format = \"json\" }\n";
    let config = config(log, ROUTES) + sites;
    let server = Server::start_in(site_folder().with("public/health", "well"), &config);
    let get = |target: &str, more: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n")
    };
    for (request, status) in [
        (get("/health", ""), 200),
        (get("/health?a", ""), 200),
        (get("/%68ealth", ""), 200),
        (get("/health/", ""), 404),
        (get("/", "If-None-Match: *\r\n"), 304),
        (get("/echo/a", ""), 200),
        (get("/echo", ""), 200),
        (get("/echo/a", "").replace("GET", "BREW"), 501),
        (
            get("/index.html", "").replace("Host: x", "Host: own.test"),
            200,
        ),
        (
            get("/none.html", "").replace("Host: x", "Host: own.test"),
            404,
        ),
        (get("/health", "").replace("Host: x", "Host: own.test"), 200),
        (get("/last", ""), 404),
    ] {
        let answer = send(&server, &request);
        assert!(
            answer.contains(&format!(" {status} ")),
            "{request}: {answer}"
        );
    }
    let said = server
        .output
        .wait_until(Duration::from_secs(60), "the last line", |lines| {
            let is_last = |line: &String| line.contains("GET /last ");
            lines.iter().any(is_last).then(|| lines.to_vec())
        });
    let said = said.iter().map(|line| {
        let request = line.split('"').find(|part| part.contains(" HTTP/1.1"));
        request.unwrap_or(line).to_owned()
    });
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            "GET /health/ HTTP/1.1",
            "GET /echo HTTP/1.1",
            "BREW /echo/a HTTP/1.1",
            "GET /none.html HTTP/1.1",
            "GET /health HTTP/1.1",
            "GET /last HTTP/1.1"
        ]
    );
    // Skipped responses are counted all the same.
    let status = anthill(
        &server.folder.path("."),
        &["status", "--json", "anthill.toml"],
    );
    assert!(status.stdout.contains("\"requests\":12"), "{status:?}");
}

#[test]
fn json_lines_are_json_and_have_more_fields() {
    let server = Server::start_in(
        site_folder(),
        &config("access = \"access.json\"\nformat = \"json\"", ROUTES),
    );
    let expected = exchanges(&server);
    visit(&server, "localhost", "/tls");
    visit_with(
        &server,
        "localhost",
        "/large.bin",
        &["--tls-max", "1.2", "-o", "/dev/null", "-D", "-"],
    );
    let said = wait_for_lines(&server.folder, "access.json", expected.len() + 2);
    let check = r#"
import json, sys
for line in sys.stdin:
    o = json.loads(line)
    assert list(o) == [k for k in ("time", "remote", "user", "host", "request", "status", "bytes",
        "referer", "agent", "rule", "tls", "us") if k in o], o
    assert o["remote"] == "127.0.0.1" and o["time"].endswith("Z") and o["us"] >= 0, o
    print(o["request"], o["status"], o["bytes"], o.get("rule", 0), o.get("tls"), o.get("host"))
"#;
    let checked = run("python3", &["-c", check], said.join("\n").as_bytes());
    assert!(checked.success, "{}\n{}", checked.errors(), said.join("\n"));
    let text = checked.text();
    let told: Vec<&str> = text.lines().collect();
    let find = |start: &str| {
        let line = told.iter().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("no {start} in {told:#?}"))
            .strip_prefix(start)
            .expect("the start")
    };
    assert_eq!(find("GET / HTTP/1.1 200"), " 13 0 None localhost");
    assert_eq!(
        find("GET /large.bin HTTP/1.1 200"),
        " 3000000 0 None localhost"
    );
    assert_eq!(find("POST /echo HTTP/1.1 200"), " 5 0 None localhost");
    assert!(find("GET /nothing HTTP/1.1 404").ends_with(" 501 None localhost"));
    assert!(find("GET /closed HTTP/1.1 403").ends_with(" 403 None localhost"));
    assert!(find("GET /tls HTTP/2.0 404").ends_with(" 501 TLSv1.3 localhost"));
    assert!(
        told.contains(&"GET /large.bin HTTP/2.0 200 3000000 0 TLSv1.2 localhost"),
        "{told:#?}"
    );
}

#[test]
fn an_aborted_download_is_logged_with_the_bytes_sent() {
    let server = Server::start_in(site_folder(), &config("", ""));
    let mut client = server.connect();
    client
        .write_all(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("a request");
    client.read_exact(&mut [0; 1000]).expect("the first bytes");
    drop(client);
    let line = server
        .output
        .wait_for("its line", |line| line.contains("/large.bin"));
    let bytes = line
        .split("\" 200 ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let bytes: u64 = bytes.expect("bytes").parse().expect("a number");
    assert!((1..=3_000_000).contains(&bytes), "{line}");
}

#[test]
fn each_site_has_its_log_and_other_lines_go_to_the_servers_log() {
    let site = |name: &str, log: &str| {
        format!("[[site]]\nnames = [\"{name}\"]\nroot = \"public\"\nhttp = \"serve\"\n{log}\n")
    };
    let table = server_table("") + "[log]\naccess = \"rest.log\"\n";
    let sites = site("a.test", "log = \"a.log\"")
        + &site("b.test", "log = \"./a.log\"")
        + &site("c.test", "")
        + &site("d.test", "log = \"off\"");
    let server = Server::start_in(site_folder(), &(table + &sites));
    for (host, target) in [
        ("a.test", "/a"),
        ("b.test", "/b"),
        ("d.test", "/d"),
        ("c.test", "/c"),
        ("unknown.test", "/u"),
    ] {
        ask(&server, host, target);
    }
    send(&server, "nonsense\r\n\r\n");
    let targets = |lines: Vec<String>| -> Vec<String> {
        let request = |line: &String| line.split('"').nth(1).map(str::to_owned);
        lines.iter().filter_map(request).collect()
    };
    assert_eq!(
        targets(wait_for_lines(&server.folder, "a.log", 2)),
        ["GET /a HTTP/1.1", "GET /b HTTP/1.1"]
    );
    assert_eq!(
        targets(wait_for_lines(&server.folder, "rest.log", 3)),
        ["GET /c HTTP/1.1", "GET /u HTTP/1.1", "nonsense"]
    );
    let last = wait_for_lines(&server.folder, "rest.log", 3);
    assert!(last[1].ends_with(" rule=R401"), "{last:?}");
}

#[test]
fn nothing_that_a_client_sends_can_steer_a_terminal_or_forge_a_line() {
    let server = Server::start_in(site_folder(), &config("", ""));
    let agents = [
        ("quote\" 200 5 \"-", "quote\\\" 200 5 \\\"-"),
        ("back\\slash", "back\\\\slash"),
        ("caf\u{e9} \u{1f41c}", "caf\u{e9} \u{1f41c}"),
        ("c1 \u{9b}31m", "c1 \\xc2\\x9b31m"),
    ];
    for (agent, _) in agents {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
        );
        assert!(send(&server, &request).contains(" 200 "), "{agent}");
    }
    for (_, logged) in agents {
        server
            .output
            .wait_for(logged, |line| line.ends_with(&format!(" \"{logged}\"")));
    }
    // The requests are refused, and are logged all the same.
    for (bytes, logged) in [
        (
            &b"GET /\x1b[31m\x07 HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            "GET /\\x1b[31m\\x07 HTTP/1.1",
        ),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 \r\n\r\n",
            "\\x16\\x03\\x01\\x02\\x00\\x01\\x00\\x01\\xfc\\x03\\x03 ",
        ),
        (
            b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /\\xff\\xfe HTTP/1.1",
        ),
    ] {
        server.http_raw(bytes);
        let quoted = format!(" \"{logged}\" 400 ");
        server
            .output
            .wait_for(logged, |line| line.contains(&quoted));
    }
    let count = server.output.all().len();
    assert_eq!(count, agents.len() + 3, "one line for each request");
}

#[test]
fn renamed_logs_are_reopened_on_sigusr1() {
    let log = "access = \"logs/access.log\"\nerrors = \"logs/errors.log\"";
    let config = config(log, "");
    let server = Server::start_in(site_folder().with("logs/.keep", ""), &config);
    let at = |name: &str| server.folder.path("logs").join(name);
    ask(&server, "x", "/one");
    wait_for_lines(&server.folder, "logs/access.log", 1);
    fs::rename(at("access.log"), at("access.log.1")).expect("a rename");
    fs::rename(at("errors.log"), at("errors.log.1")).expect("a rename");
    // Until the signal, lines go to the renamed file.
    ask(&server, "x", "/two");
    wait_for_lines(&server.folder, "logs/access.log.1", 2);
    assert!(!at("access.log").exists());
    server.signal("USR1");
    wait_until("new logs", || {
        (at("access.log").exists() && at("errors.log").exists()).then_some(())
    });
    ask(&server, "x", "/three");
    let new = wait_for_lines(&server.folder, "logs/access.log", 1);
    assert!(new[0].contains("GET /three "), "{new:?}");
    assert_eq!(
        wait_for_lines(&server.folder, "logs/access.log.1", 2).len(),
        2
    );
    server.folder.write("anthill.toml", config + "nonsense");
    assert_eq!(command(&server, "reload").code, Some(1));
    let refused = wait_for_lines(&server.folder, "logs/errors.log", 1);
    assert!(refused[0].contains("reload refused"), "{refused:?}");
}

fn lines_lost(folder: &Folder) -> u64 {
    let status = anthill(&folder.path("."), &["status", "--json", "anthill.toml"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let (_, after) = status
        .stdout
        .split_once("\"log_lines_lost\":")
        .expect("a count");
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
fn a_full_disk_loses_only_log_lines() {
    let server = Server::start_in(
        site_folder(),
        &config("access = \"/dev/full\"\nerrors = \"/dev/full\"", ""),
    );
    for _ in 0..20 {
        assert_eq!(ask(&server, "x", "/").status, 200);
    }
    // The error log's own disk is full too, so the server reports the failure on standard error.
    server
        .errors
        .wait_for("an error about the full disk", |line| {
            line.contains("log /dev/full: No space left on device")
        });
    wait_until("count of lost lines", || {
        (lines_lost(&server.folder) >= 20).then_some(())
    });
    let people = command(&server, "status");
    assert!(people.stdout.contains("log lines lost"), "{people:?}");
    // The next reload switches to a working log, and the count of lost lines stays.
    reload(&server, &config("access = \"access.log\"", ""));
    ask(&server, "x", "/after");
    let after = wait_for_lines(&server.folder, "access.log", 1);
    assert!(after[0].contains("/after"), "{after:?}");
    assert!(lines_lost(&server.folder) >= 20);
}

/// A server with output that is not read after the start.
struct PipedServer {
    child: Child,
    folder: Folder,
    http_port: u16,
    output: PipeReader,
}

impl PipedServer {
    /// Starts a server with a pipe as its standard output and, if `both`, as its standard error.
    fn start(folder: Folder, config: &str, both: bool) -> PipedServer {
        folder.write("anthill.toml", config);
        let (output, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(crate::support::program());
        command
            .arg("serve")
            .arg(folder.path("anthill.toml"))
            .stdin(Stdio::null());
        if both {
            command.stderr(writer.try_clone().expect("a pipe"));
        } else {
            command.stderr(Stdio::piped());
        }
        let mut child = spawn(command.stdout(writer)).expect("the server's binary");
        // The server is the pipe's only writer, so the test sees the server's end.
        drop(command);
        let mut said: Box<dyn BufRead> = match child.stderr.take() {
            Some(errors) => Box::new(BufReader::new(errors)),
            None => Box::new(BufReader::new(output.try_clone().expect("a pipe"))),
        };
        let mut http_port = 0;
        let mut line = String::new();
        while !line.starts_with("ready") {
            line.clear();
            assert!(
                said.read_line(&mut line).expect("a line") > 0,
                "the output ended"
            );
            if let Some(address) = line.trim().strip_prefix("http://localhost:") {
                let port = address.split(' ').next().expect("a port");
                http_port = port.parse().expect("a port");
            }
        }
        PipedServer {
            child,
            folder,
            http_port,
            output,
        }
    }

    /// Sends `count` requests on one connection, each with a log line of 4 KB. All requests must be
    /// answered.
    fn flood(&self, count: usize) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http_port)).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a time-out");
        let agent = "a".repeat(4_000);
        let request = format!("HEAD / HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n");
        let mut answers = BufReader::new(stream.try_clone().expect("the same connection"));
        for _ in 0..count {
            stream.write_all(request.as_bytes()).expect("a request");
            let mut line = String::new();
            while line != "\r\n" {
                if line.starts_with("HTTP/1.1 ") {
                    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
                }
                line.clear();
                assert!(
                    answers.read_line(&mut line).expect("an answer") > 0,
                    "it closed"
                );
            }
        }
    }
}

impl Drop for PipedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_unread_log_pipe_stops_no_request() {
    for both in [false, true] {
        let server = PipedServer::start(site_folder(), &config("", ""), both);
        // Twice the number of lines that a log's queue holds.
        server.flood(2_000);
        let lost = lines_lost(&server.folder);
        assert!((1..2_000).contains(&lost), "{lost} lines lost");
        // A stop does not wait for the pipe either.
        let stopped = anthill(&server.folder.path("."), &["stop", "anthill.toml"]);
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
    }
}

#[test]
fn a_log_pipe_that_is_read_again_reports_lost_lines() {
    let server = PipedServer::start(site_folder(), &config("errors = \"errors.log\"", ""), false);
    server.flood(2_000);
    let said = wait_for_lines(&server.folder, "errors.log", 1);
    assert!(
        said[0].contains("log standard output: too slow, lines are dropped"),
        "{said:?}"
    );
    // The number of lost lines is final only after all lines have left the queue.
    let output = BufReader::new(server.output.try_clone().expect("a pipe"));
    let (told, tells) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = output.lines().map_while(Result::ok);
        lines.try_for_each(|line| told.send(line))
    });
    let said = wait_for_lines(&server.folder, "errors.log", 2);
    let lost = said[1]
        .split_once("log standard output: works again, ")
        .and_then(|(_, rest)| rest.strip_suffix(" lines were lost")?.parse().ok());
    let lost: u64 = lost.unwrap_or_else(|| panic!("{said:?}"));
    assert_eq!(lost, lines_lost(&server.folder));
    for _ in lost..2_000 {
        let line = tells.recv_timeout(PATIENCE).expect("a line");
        assert!(
            line.starts_with("127.0.0.1 - - [") && line.ends_with("a\""),
            "{line}"
        );
    }
}

#[test]
fn the_error_log_is_a_file_with_a_line_for_each_error() {
    let good = config("errors = \"errors.log\"", "");
    let server = Server::start_in(site_folder(), &good);
    let bad = good.replace("root = ", "rot = ");
    server.folder.write("anthill.toml", &bad);
    let refused = command(&server, "reload");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("\n   | ^^^"),
        "the whole, with carets: {refused:?}"
    );
    server.signal("HUP");
    let said = wait_for_lines(&server.folder, "errors.log", 2);
    let at = bad
        .lines()
        .position(|line| line.starts_with("rot"))
        .expect("the line")
        + 1;
    for line in said {
        assert!(
            line.contains(&format!(
                " error reload refused, the old configuration stays in use: {}:{at}:1: unknown key `rot`",
                server.folder.path("anthill.toml").display()
            )),
            "{line}"
        );
        assert!(!line.contains("\\x"), "{line}");
        assert!(line.contains("did you mean `root`?"), "{line}");
    }
    assert_eq!(ask(&server, "x", "/").status, 200);
}

#[test]
fn logs_that_are_off_write_nothing() {
    let config = config("access = \"off\"\nerrors = \"off\"", "");
    let mut server = Server::start_in(site_folder(), &config);
    ask(&server, "x", "/");
    server.folder.write("anthill.toml", config + "nonsense");
    assert_eq!(command(&server, "reload").code, Some(1));
    let said = server.errors.all();
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    assert_eq!(server.output.all(), [""; 0]);
    assert_eq!(server.errors.all(), said);
}
