//! CGI with real programs, correct and faulty, over every version of HTTP.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wire::h2::{H2ErrorCode, frame};

use crate::support::h2::H2;
use crate::support::wire::{BOTH, Over, Wire, wait_until};
use crate::support::{
    EndOnDrop, Folder, Ran, Server, eventually, lossy, run, server_table, site_table,
    spooled_bodies, truncate_spooled_body,
};

const ROUTE: &str = "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n";
const PATIENCE: Duration = Duration::from_secs(60);
const PLAIN: &str = "printf 'Content-Type: text/plain\\n\\n'\n";

/// Writes an executable shell script.
fn shell(folder: &Folder, name: &str, text: &str) {
    script(folder, name, &format!("#!/bin/sh\n{text}\n"));
}

fn script(folder: &Folder, name: &str, text: &str) {
    let name = format!("scripts/{name}");
    folder.write(&name, text);
    executable(&folder.path(&name));
}

fn executable(file: &Path) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("a mode");
}

fn folder() -> Folder {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    fs::create_dir(folder.path("scripts")).expect("a folder");
    folder
}

fn config(server: &str, site: &str) -> String {
    server_table(server) + &site_table("http = \"serve\"") + ROUTE + site
}

fn start(folder: Folder) -> Server {
    Server::start_in(folder, &config("", ""))
}

fn with_script(name: &str, text: &str) -> Server {
    let folder = folder();
    shell(&folder, name, text);
    start(folder)
}

/// Returns the rule number of the access log's line with the path.
fn rule(server: &Server, path: &str) -> String {
    let line = server.output.wait_for(path, |line| line.contains(path));
    let rule = line.split(" rule=R").nth(1).unwrap_or("none");
    rule.split(' ').next().unwrap_or_default().to_owned()
}

fn curl(server: &Server, arguments: &[&str], url: &str) -> Ran {
    let ran = server.curl(&[arguments, &[url]].concat());
    assert!(ran.success, "{arguments:?} {url}: {}", ran.errors());
    ran
}

/// Returns true if a process with the id exists and is no zombie.
pub fn is_alive(pid: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

/// Waits until a script has written `count` process ids into a file of its folder, and returns the ids.
fn wait_for_pids(server: &Server, file: &str, count: usize) -> Vec<String> {
    let file = server.folder.path("scripts").join(file);
    eventually("process numbers", || {
        let text = fs::read_to_string(&file).ok()?;
        let pids: Vec<String> = text.lines().map(str::to_owned).collect();
        (pids.len() >= count && text.ends_with('\n')).then_some(pids)
    })
}

fn wait_until_ended(pids: &[String]) {
    wait_until(PATIENCE, "the end of all its processes", || {
        (!pids.iter().any(|pid| is_alive(pid))).then_some(())
    });
}

/// Waits until the server has no zombie children.
fn no_zombies(server: &Server) {
    wait_until(PATIENCE, "no zombies", || {
        let parent = server.pid().to_string();
        let children = run("ps", &["-o", "pid=", "--ppid", &parent], b"");
        children.text().trim().is_empty().then_some(())
    });
}

#[test]
fn scripts_answer_alike_over_every_version_of_http() {
    let server = with_script(
        "a.cgi",
        &format!("{PLAIN}echo \"$SERVER_PROTOCOL $PATH_INFO\""),
    );
    // The addresses of both ends, compared with the client's own.
    shell(
        &server.folder,
        "ends",
        &format!("{PLAIN}echo \"$REMOTE_ADDR $REMOTE_PORT $SERVER_ADDR\""),
    );
    for (how, url) in [
        ("--http1.1", server.http("/run/ends")),
        ("--http1.1", server.https("/run/ends")),
        ("--http2", server.https("/run/ends")),
    ] {
        let known = "%{local_ip} %{local_port} %{remote_ip}\\n";
        let ran = curl(&server, &[how, "-w", known], &url);
        let text = ran.text();
        let (told, known) = text.split_once('\n').expect("two lines");
        assert_eq!(told, known.trim_end(), "{how} {url}");
    }
    #[cfg(feature = "http3")]
    {
        let told = crate::h3::run_scenario(&server, &["fetch", "/run/ends"]);
        let words: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(
            (words[0], words[1], words[3]),
            ("200", "127.0.0.1", "127.0.0.1"),
            "{told}"
        );
        assert!(words[2].parse::<u16>().is_ok_and(|port| port > 0), "{told}");
    }
    for (how, url, protocol) in [
        ("--http1.0", server.http(""), "HTTP/1.0"),
        ("--http1.1", server.https(""), "HTTP/1.1"),
        ("--http2", server.https(""), "HTTP/2.0"),
    ] {
        let ran = curl(&server, &["-i", how], &(url + "/run/a.cgi/more/x%20y"));
        assert!(
            ran.text().ends_with(&format!("{protocol} /more/x y\n")),
            "{}",
            ran.text()
        );
        assert!(
            ran.text()
                .to_lowercase()
                .contains("content-type: text/plain\r\n")
        );
    }
    #[cfg(feature = "http3")]
    assert_eq!(
        crate::h3::run_scenario(&server, &["fetch", "/run/a.cgi/more"]),
        "200 HTTP/3.0 /more"
    );
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for _ in 0..3 {
            let response = wire.get("/run/a.cgi", "");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "HTTP/1.1 \n")
            );
            let head = wire.ask("HEAD", "/run/a.cgi", "");
            assert_eq!(
                (head.status, head.field("content-type")),
                (200, Some("text/plain"))
            );
        }
    }
    no_zombies(&server);
}

#[test]
fn a_script_gets_exactly_its_cgi_variables() {
    let folder = folder();
    let text = "#!/usr/bin/env python3\nimport json, os, sys, signal\n\
        open_files = sorted(int(fd) for fd in os.listdir('/proc/self/fd'))\n\
        print('Content-Type: application/json\\n')\n\
        print(json.dumps({'env': dict(os.environ), 'argv': sys.argv, 'cwd': os.getcwd(),\n\
        'fds': open_files, 'group': os.getpgrp() == os.getpid(), 'session': os.getsid(0) == os.getpid(),\n\
        'mask': len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),\n\
        'pipe': '0000000000001000' in open('/proc/self/status').read().split('SigIgn:')[1][:20]}))\n";
    script(&folder, "env.py", text);
    let server = Server::start_in(
        folder,
        &(config(
            "",
            "env = { \"APP\" = \"ant\", \"SERVER_PORT\" = \"443\" }\n",
        )),
    );
    let mut arguments = vec!["-d", "x=1"];
    for field in [
        "Proxy: http://evil.test",
        "X-A: one",
        "X_A: two",
        "X-A: three",
        "Content_Type: evil",
        "Authorization: Basic eDp5",
    ] {
        arguments.extend(["-H", field]);
    }
    let ran = curl(
        &server,
        &arguments,
        &server.http("/run/env.py/in/fo?-s+-d%20a"),
    );
    let said: serde::Value = serde::parse(&ran.text());
    let env = |name: &str| said.text(&["env", name]);
    let folder = server.folder.path("").canonicalize().expect("there");
    let scripts = folder.join("scripts");
    let file = scripts.join("env.py");
    for (name, value) in [
        ("REQUEST_METHOD", "POST"),
        ("QUERY_STRING", "-s+-d%20a"),
        ("SCRIPT_NAME", "/run/env.py"),
        ("PATH_INFO", "/in/fo"),
        ("REQUEST_URI", "/run/env.py/in/fo?-s+-d%20a"),
        ("SCRIPT_FILENAME", file.to_str().expect("plain")),
        ("CONTENT_LENGTH", "3"),
        ("CONTENT_TYPE", "application/x-www-form-urlencoded"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", "443"),
        ("HTTP_X_A", "one, three"),
        ("APP", "ant"),
    ] {
        assert_eq!(
            env(name).as_deref(),
            Some(value),
            "{name} in {}",
            ran.text()
        );
    }
    for name in [
        "HTTP_PROXY",
        "HTTP_CONTENT_TYPE",
        "HTTPS",
        "HOME",
        "CARGO_MANIFEST_DIR",
    ] {
        assert_eq!(env(name), None, "{name}");
    }
    assert_eq!(
        said.text(&["argv"]).as_deref(),
        Some(format!("[\"{}\"]", file.display()).as_str())
    );
    assert_eq!(said.text(&["cwd"]).as_deref(), scripts.to_str());
    // The three standard descriptors, and the descriptor of the listed folder.
    assert_eq!(said.text(&["fds"]).as_deref(), Some("[0, 1, 2, 3]"));
    for what in ["group", "session"] {
        assert_eq!(said.text(&[what]).as_deref(), Some("true"), "{what}");
    }
    assert_eq!(said.text(&["mask"]).as_deref(), Some("0"));
}

/// A minimal JSON reader, which runs the interpreter that wrote the JSON.
mod serde {
    use crate::support::run;

    pub struct Value(String);

    pub fn parse(text: &str) -> Value {
        Value(text.to_owned())
    }

    impl Value {
        pub fn text(&self, path: &[&str]) -> Option<String> {
            let code = "import json, sys\nit = json.load(sys.stdin)\n\
                for name in sys.argv[1:]:\n    it = it.get(name)\n\
                print('\\0' if it is None else it if isinstance(it, str) else json.dumps(it), end='')";
            let arguments = [&["-c", code], path].concat();
            let ran = run("python3", &arguments, self.0.as_bytes());
            assert!(ran.success, "{}", ran.errors());
            Some(ran.text()).filter(|text| text != "\0")
        }
    }
}

#[test]
fn a_path_without_a_script_is_refused_with_its_rule() {
    let folder = folder();
    folder.write("secret/key", "SECRET\n");
    folder.write("scripts/plain.cgi", "#!/bin/sh\necho SECRET\n");
    folder.write("scripts/sub/x", "SECRET\n");
    shell(&folder, ".hidden", PLAIN);
    script(&folder, "lost", "#!/not/there\nSECRET\n");
    script(&folder, "none", "SECRET\n");
    symlink("../secret/key", folder.path("scripts/out")).expect("a link");
    let server = start(folder);
    for (path, status, rule_number) in [
        ("/run/nothing", 404, "501"),
        ("/run/", 404, "501"),
        ("/run", 404, "501"),
        ("/run/sub", 404, "501"),
        ("/run/sub/", 404, "501"),
        ("/run/sub/x", 403, "510"),
        ("/run/plain.cgi", 403, "510"),
        ("/run/plain.cgi/info", 403, "510"),
        ("/run/.hidden", 404, "502"),
        ("/run/sub/.x/y", 404, "502"),
        ("/run/out", 404, "503"),
        ("/run/lost", 502, "710"),
        ("/run/none", 502, "710"),
    ] {
        let mut wire = Wire::plain(&server);
        let response = wire.get(path, "");
        assert_eq!(response.status, status, "{path}: {response:?}");
        assert!(!response.text().contains("SECRET"), "{path}: {response:?}");
        assert_eq!(rule(&server, &format!("{path} ")), rule_number, "{path}");
    }
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.ask("TRACE", "/run/none", "").status, 405);
    let said = |what: &str| server.errors.wait_for(what, |line| line.contains(what));
    said("GET /run/plain.cgi: ");
    said("chmod +x");
    said("the interpreter named in the first line (#!) is missing");
    said("is not a program");
}

#[test]
fn a_script_that_fails_before_its_response_gives_a_502() {
    let folder = folder();
    for (name, text) in [
        (
            "mid",
            "printf 'Content-Type: text/plain\\nX-Half: '; exit 3",
        ),
        ("nothing", "echo oh no >&2; exit 1"),
        ("killed", "kill -9 $$"),
        ("untyped", "printf 'X-A: b\\n\\nSECRET'"),
        ("bare", "echo SECRET; echo; echo SECRET"),
        (
            "large",
            "printf 'X-A: '; yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | tr -d '\\n'",
        ),
        (
            "twice",
            "printf 'Content-Type: a/b\\nContent-Type: c/d\\n\\n'",
        ),
        (
            "split",
            "printf 'Content-Type: a/b\\nX-A: b\\rX-B: c\\n\\n'",
        ),
        (
            "chunked",
            "printf 'Content-Type: a/b\\nTransfer-Encoding: chunked\\n\\n'",
        ),
    ] {
        shell(&folder, name, text);
    }
    let server = start(folder);
    for (name, rule_number) in [
        ("mid", "711"),
        ("nothing", "711"),
        ("killed", "711"),
        ("untyped", "712"),
        ("bare", "712"),
        ("large", "713"),
        ("twice", "712"),
        ("split", "712"),
        ("chunked", "712"),
    ] {
        let path = format!("/run/{name}");
        for over in BOTH {
            let mut wire = Wire::over(&server, over);
            let response = wire.get(&path, "");
            assert_eq!(response.status, 502, "{name}: {response:?}");
            assert!(!response.text().contains("SECRET"), "{name}: {response:?}");
            assert_eq!(wire.get("/", "").status, 200);
        }
        assert_eq!(rule(&server, &format!("{path} ")), rule_number, "{name}");
    }
    let said = |what: &str| server.errors.wait_for(what, |line| line.contains(what));
    said("GET /run/nothing: script stderr: oh no");
    said("GET /run/nothing: exit status 1");
    said("GET /run/killed: ended by signal 9");
    no_zombies(&server);
}

#[test]
fn a_script_that_dies_during_its_response_breaks_the_response_off() {
    let server = with_script("a", &format!("{PLAIN}echo some; kill -9 $$"));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let response = wire.get("/run/a", "");
        assert_eq!(
            (response.status, response.whole),
            (200, false),
            "{response:?}"
        );
    }
    let ran = server.curl(&["--http2", &server.https("/run/a")]);
    assert!(!ran.success, "taken for whole");
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("/run/a") && line.contains("signal 9")
    });
    // A script with an error exit status after its output has sent a complete response.
    let server = with_script("b", &format!("{PLAIN}echo all; exit 5"));
    let response = Wire::plain(&server).get("/run/b", "");
    assert!(response.whole && response.text() == "all\n", "{response:?}");
    server.errors.wait_for("the message", |line| {
        line.contains("GET /run/b: script: exit status 5")
    });
}

/// A failure is in both logs, as text and as a rule number, over every version of HTTP.
#[test]
fn failures_are_logged_with_text_and_rule() {
    let folder = folder();
    let head =
        |length: &str| format!("printf 'Content-Type: a/b\\nContent-Length: {length}\\n\\n'\n");
    for (name, text) in [
        ("page", "printf '<html>\\033[1m'".to_owned()),
        ("long", "printf '<%0200d' 1".to_owned()),
        ("bare", "echo '<html>'; echo; echo".to_owned()),
        ("place", "printf 'Location: /a%%zz\\n\\n'".to_owned()),
        ("less", format!("{}echo half", head("9"))),
        ("more", format!("{}echo more", head("2"))),
        ("killed", format!("{PLAIN}echo some; kill -9 $$")),
        ("endless", format!("{PLAIN}exec yes")),
        ("silent", format!("{PLAIN}echo some; exec sleep 1000")),
        (
            "talks",
            format!("{PLAIN}while :; do echo .; sleep 0.3; done"),
        ),
    ] {
        shell(&folder, name, &text);
    }
    let limits =
        "limits = { script_output_bytes = 100000, script_silent_seconds = 3, script_seconds = 5 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let logged = |name: &str, number: &str, words: &str| {
        for version in VERSIONS {
            let path = format!("/run/{name}?{version} ");
            assert_eq!(rule(&server, &path), number, "{path}");
            server.errors.wait_for(words, |line| {
                line.contains(path.trim()) && line.contains(words)
            });
        }
    };
    let ask = |name: &str| {
        let ask = |how: &str, query: &str, url: String| {
            server.curl(&[
                how,
                "-w",
                "%{http_code}",
                &format!("{url}/run/{name}?{query}"),
            ])
        };
        let ran = [
            ask("--http1.1", "h1", server.http("")),
            ask("--http2", "h2", server.https("")),
        ];
        #[cfg(feature = "http3")]
        crate::h3::run_scenario(&server, &["ended", &format!("/run/{name}?h3")]);
        ran
    };
    for (name, words) in [
        (
            "page",
            "the empty line at the end of the head; the output begins with \"<html>\\x1b[1m\"",
        ),
        ("long", "000…\""),
        (
            "bare",
            "a line without colon; the output begins with \"<html>\\n",
        ),
        ("place", "malformed percent-encoding in the path"),
    ] {
        for ran in ask(name) {
            assert!(ran.text().ends_with("502"), "{name}: {}", ran.text());
        }
        logged(name, "712", words);
    }
    for (name, number, words) in [
        ("less", "721", "4 bytes shorter than Content-Length"),
        ("more", "721", "longer than Content-Length"),
        ("killed", "721", "signal 9"),
        (
            "endless",
            "721",
            "more output than script_output_bytes allows",
        ),
        ("silent", "702", "s in the response"),
        ("talks", "702", "the call lasted longer than 5 s"),
    ] {
        for ran in ask(name) {
            assert!(!ran.success, "{name}: taken for whole");
        }
        logged(name, number, words);
        logged(name, number, &format!("(rule R{number})"));
    }
    no_zombies(&server);
}

/// A request body that stalls after the response has begun breaks the response off, with rule 602 in the
/// log.
#[test]
fn a_body_that_stalls_during_the_response_is_logged() {
    let folder = folder();
    shell(
        &folder,
        "begins",
        &format!("{PLAIN}echo begun; count=$(wc -c); echo $count"),
    );
    let limits = "h2c = true\nlimits = { body_rate_bytes_per_second = 1000000 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let body = "x".repeat(60_000);
    let stop_h1 = || {
        let mut h1 = Wire::plain(&server);
        h1.patience(PATIENCE);
        h1.send(
            "POST /run/begins?h1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
        );
        h1.send("x".repeat(70_000));
        let begun = h1.response("POST");
        assert!(begun.status == 200 && !begun.whole, "{begun:?}");
    };
    let stop_h2 = || {
        let mut wire = Wire::plain(&server);
        wire.patience(PATIENCE);
        wire.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut h2 = H2::on(wire);
        h2.frame(frame::SETTINGS, 0, 0, b"");
        let length = [("content-length", "100000")];
        let id = h2.ask("POST", "/run/begins?h2", &length, false);
        for part in body.as_bytes().chunks(10_000) {
            h2.data(id, part, false);
        }
        // The windows allow the rest of the bytes buffered before a script starts.
        while h2.until(frame::WINDOW_UPDATE).stream != id {}
        h2.data(id, &body.as_bytes()[..10_000], false);
        let begun = h2.response(id);
        assert!(begun.status == 200 && !begun.whole, "{begun:?}");
    };
    thread::scope(|scope| {
        scope.spawn(stop_h1);
        scope.spawn(stop_h2);
        #[cfg(feature = "http3")]
        scope.spawn(|| {
            let told = crate::h3::run_scenario(&server, &["stalled", "/run/begins?h3"]);
            assert_eq!(told, "broken off");
        });
    });
    for version in VERSIONS {
        assert_eq!(rule(&server, &format!("/run/begins?{version} ")), "602");
    }
    no_zombies(&server);
}

#[cfg(feature = "http3")]
const VERSIONS: [&str; 3] = ["h1", "h2", "h3"];
#[cfg(not(feature = "http3"))]
const VERSIONS: [&str; 2] = ["h1", "h2"];

#[test]
fn fifty_megabytes_in_both_directions_at_once() {
    let folder = folder();
    let body: Vec<u8> = (0..(50u64 << 20) / 8)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    folder.write("body", &body);
    shell(&folder, "echo", &format!("{PLAIN}exec cat"));
    let server = start(folder);
    let file = format!("@{}", server.folder.path("body").display());
    for (how, field, url) in [
        ("--http1.1", "Expect:", server.http("/run/echo")),
        (
            "--http1.1",
            "Transfer-Encoding: chunked",
            server.http("/run/echo"),
        ),
        (
            "--http1.1",
            "Expect: 100-continue",
            server.https("/run/echo"),
        ),
        ("--http2", "X-A: b", server.https("/run/echo")),
    ] {
        let ran = curl(&server, &[how, "-H", field, "--data-binary", &file], &url);
        assert!(
            ran.stdout == body,
            "{how} {field}: {} bytes",
            ran.stdout.len()
        );
    }
    #[cfg(feature = "http3")]
    assert_eq!(
        crate::h3::run_scenario(&server, &["script", "/run/echo", "8"]),
        "echoed"
    );
    no_zombies(&server);
}

#[test]
fn bodies_that_are_counted_first_or_not_read_at_all() {
    let folder = folder();
    shell(
        &folder,
        "length",
        &format!("{PLAIN}echo \"$CONTENT_LENGTH\"; cat"),
    );
    shell(&folder, "deaf", &format!("{PLAIN}echo deaf"));
    shell(
        &folder,
        "late",
        "body=$(cat | wc -c)\nprintf 'Content-Type: a/b\\n\\n'; echo $body",
    );
    let server = start(folder);
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send(
            "POST /run/length HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        );
        assert_eq!(wire.response("POST").text(), "5\nhello");
        wire.send("POST /run/deaf HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(wire.response("POST").text(), "deaf\n");
    }
    let file = server.folder.path("large");
    fs::write(&file, vec![b'x'; 3_000_000]).expect("written");
    let file = format!("@{}", file.display());
    for how in ["--http1.1", "--http2"] {
        let sent = ["-H", "Expect:", "--data-binary", &file, how];
        let ran = curl(&server, &sent, &server.https("/run/late"));
        assert_eq!(ran.text(), "3000000\n");
        let ran = curl(
            &server,
            &["-F", &format!("a={file}"), how],
            &server.https("/run/late"),
        );
        assert!(ran.text().trim().parse::<u32>().expect("a number") > 3_000_000);
    }
    // An unread body ends the connection, but only after the response has arrived.
    let ran = server.curl(&[
        "-H",
        "Expect:",
        "--data-binary",
        &file,
        &server.http("/run/deaf"),
    ]);
    assert_eq!(ran.text(), "deaf\n", "{}", ran.errors());
    no_zombies(&server);
}

/// Sends a body without Content-Length over HTTP/2, within the windows.
fn send_over_h2(server: &Server, over: Over, path: &str, body: &[u8]) -> String {
    let mut h2 = H2::open(server, over);
    let id = h2.ask("POST", path, &[], false);
    let (mut window, mut all, mut at) = (65_535, 65_535, 0);
    while at < body.len() {
        let part = (body.len() - at).min(window).min(all).min(16_384);
        if part > 0 {
            h2.data(id, &body[at..at + part], false);
            (at, window, all) = (at + part, window - part, all - part);
            continue;
        }
        let frame = h2.next().expect("a frame");
        if frame.kind == frame::WINDOW_UPDATE {
            let more = if frame.stream == id {
                &mut window
            } else {
                &mut all
            };
            *more += frame.code() as usize;
        }
        h2.record_frame(&frame);
    }
    h2.data(id, b"", true);
    h2.response(id).text()
}

const COUNTED: &str = "<?php echo $_SERVER['CONTENT_LENGTH'] ?? '-', ' ', \
    md5(file_get_contents('php://input'));";

/// Most programs read exactly CONTENT_LENGTH bytes. A body without a length is counted first, at any
/// size and over every version of HTTP.
#[test]
fn long_bodies_without_a_length_are_counted() {
    let folder = folder();
    folder.write("public/count.php", COUNTED);
    let php = crate::support::tool("php-cgi8.2").display().to_string();
    let route = format!("[[site.route]]\npath = \"/\"\ninterpreter = {{ \".php\" = \"{php}\" }}\n");
    let server = Server::start_in(folder, &config("h2c = true", &route));
    let left = || {
        let state = fs::read_dir(server.folder.path("state")).expect("the state folder");
        let mut names: Vec<_> = state
            .map(|entry| entry.expect("a file").file_name())
            .collect();
        names.sort();
        names
    };
    let before = left();
    for size in [65_536, 65_537, 3_000_000] {
        let body: Vec<u8> = (0..size as u32).map(|at| (at % 251) as u8).collect();
        let file = server.folder.path("body");
        fs::write(&file, &body).expect("written");
        let sum = run("md5sum", &[&file], b"").text();
        let sum = sum.split(' ').next().expect("a sum").to_owned();
        let expected = format!("{size} {sum}");
        let data = format!("@{}", file.display());
        for url in [server.http("/count.php"), server.https("/count.php")] {
            let sent = ["--http1.1", "-H", "Transfer-Encoding: chunked"];
            let ran = curl(
                &server,
                &[&sent[..], &["--data-binary", &data]].concat(),
                &url,
            );
            assert_eq!(ran.text(), expected);
        }
        for over in BOTH {
            assert_eq!(send_over_h2(&server, over, "/count.php", &body), expected);
        }
    }
    #[cfg(feature = "http3")]
    assert_eq!(
        crate::h3::run_scenario(&server, &["counted", "/count.php", "3000000"]),
        "counted"
    );
    assert_eq!(left(), before);
    no_zombies(&server);
}

/// Returns the number of spooled bodies.
fn spooled_count(server: &Server) -> usize {
    spooled_bodies(server).len()
}

/// Returns the bytes of all spooled bodies.
fn spooled_bytes(server: &Server) -> u64 {
    let files = spooled_bodies(server).into_iter();
    files
        .filter_map(|file| Some(fs::metadata(file).ok()?.len()))
        .sum()
}

/// A body on its way is in an unlinked file and holds no script slot.
#[test]
fn spooled_bodies_leave_no_files_behind() {
    let folder = folder();
    shell(
        &folder,
        "count",
        &format!("count=$(wc -c)\n{PLAIN}echo $count"),
    );
    let config = config("limits = { scripts = 1, body_bytes = 250000 }", "");
    let mut server = Server::start_in(folder, &config);
    let begin = |over| {
        let mut slow = Wire::over(&server, over);
        slow.send(
            "POST /run/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        slow.send(format!("30d40\r\n{}\r\n", "x".repeat(200_000)));
        eventually("a file without a name", || {
            (spooled_count(&server) == 1).then_some(())
        });
        slow
    };
    for over in BOTH {
        let mut slow = begin(over);
        assert_eq!(
            Wire::over(&server, over).get("/run/count", "").text(),
            "0\n"
        );
        slow.send("1\r\nx\r\n0\r\n\r\n");
        assert_eq!(slow.response("POST").text(), "200001\n");
        wait_until(PATIENCE, "the end of the file", || {
            (spooled_count(&server) == 0).then_some(())
        });
        // The file goes with its client's connection.
        drop(begin(over));
        wait_until(PATIENCE, "the end of the file", || {
            (spooled_count(&server) == 0).then_some(())
        });
    }
    let mut large = begin(Over::Plain);
    large.send(format!("c351\r\n{}\r\n", "x".repeat(50_001)));
    assert_eq!(large.response("POST").status, 413);
    drop(large);
    wait_until(PATIENCE, "the end of the file", || {
        (spooled_count(&server) == 0).then_some(())
    });
    let slow = begin(Over::Plain);
    let names = || {
        fs::read_dir(server.folder.path("state"))
            .expect("the state folder")
            .count()
    };
    let before = names();
    server.signal("KILL");
    assert_eq!(names(), before);
    drop(slow);
    assert_eq!(server.wait(PATIENCE), None);
}

#[test]
fn bodies_that_cannot_be_spooled_are_refused() {
    let folder = folder();
    shell(
        &folder,
        "count",
        &format!("count=$(wc -c)\n{PLAIN}echo $count"),
    );
    let limits = "limits = { spooled_bytes = 1000000 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let send = |query: &str, over, bytes: usize| {
        let mut wire = Wire::over(&server, over);
        wire.send(format!(
            "POST /run/count?{query} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
             {bytes:x}\r\n{}\r\n0\r\n\r\n",
            "x".repeat(bytes)
        ));
        wire.response("POST")
    };
    for (nth, over) in BOTH.into_iter().enumerate() {
        assert_eq!(send("fits", over, 250_000).text(), "250000\n");
        let full = send(&format!("full{nth}"), over, 250_001);
        assert_eq!(full.status, 503, "{full:?}");
        assert!(full.field("retry-after").is_some(), "{full:?}");
        assert_eq!(rule(&server, &format!("full{nth} ")), "722");
    }
    // A body with a known length is not spooled.
    let mut wire = Wire::plain(&server);
    wire.send("POST /run/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 280000\r\n\r\n");
    wire.send("x".repeat(280_000));
    assert_eq!(wire.response("POST").text(), "280000\n");
    // The spool folder is missing.
    let state = server.folder.path("state");
    fs::rename(&state, server.folder.path("elsewhere")).expect("renamed");
    assert_eq!(send("gone", Over::Plain, 100_000).status, 507);
    assert_eq!(rule(&server, "gone "), "723");
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("POST /run/count?gone: the request body can't be spooled in")
            && line.contains("No such file")
            && line.contains("(rule R723)")
    });
    assert_eq!(send("short", Over::Plain, 60_000).text(), "60000\n");
}

/// One client cannot use the whole spool, and a body for an absent script uses none.
#[test]
fn bodies_of_one_client_leave_spool_space_for_other_clients() {
    let folder = folder();
    shell(
        &folder,
        "count",
        &format!("count=$(wc -c)\n{PLAIN}echo $count"),
    );
    let limits = "limits = { spooled_bytes = 1000000 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let begin = |host: u8, path: &str| {
        let mut wire = Wire::of(&server, [127, 0, 0, host].into());
        wire.send(format!(
            "POST /run/{path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
             30d40\r\n{}\r\n",
            "x".repeat(200_000)
        ));
        wire
    };
    assert_eq!(begin(1, "nobody").response("POST").status, 404);
    let mut slow = begin(1, "count?slow");
    // A body that still arrives would compete with the next one for the client's quarter. Each part of 64 KiB is written
    // when it is whole, so the last part stays in memory.
    eventually("all whole parts in a file", || {
        (spooled_bytes(&server) == 196_608).then_some(())
    });
    let full = begin(1, "count?full").response("POST");
    assert_eq!(full.status, 503, "{full:?}");
    assert_eq!(rule(&server, "full "), "722");
    let end = "0\r\n\r\n";
    let mut other = begin(2, "count?other");
    other.send(end);
    assert_eq!(other.response("POST").text(), "200000\n");
    slow.send(end);
    assert_eq!(slow.response("POST").text(), "200000\n");
    wait_until(PATIENCE, "the end of the files", || {
        (spooled_count(&server) == 0).then_some(())
    });
}

/// A spooled body that cannot be read back is lost, with one error in the log.
#[test]
fn a_lost_spooled_body_is_logged() {
    let folder = folder();
    shell(
        &folder,
        "waits",
        "while [ ! -e go ]; do sleep 0.05; done\nexec cat",
    );
    let server = start(folder);
    let mut wire = Wire::plain(&server);
    wire.send(format!(
        "POST /run/waits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         f4240\r\n{}\r\n0\r\n\r\n",
        "x".repeat(1_000_000)
    ));
    // The body is complete, and a part is in the script's pipe.
    truncate_spooled_body(&server, 1_000_000);
    server.folder.write("scripts/go", "");
    assert_eq!(wire.response("POST").status, 507);
    assert_eq!(rule(&server, "/run/waits "), "723");
    let is_said = |line: &str| line.contains("can't be read from the disk");
    server.errors.wait_for("the reason in the log", is_said);
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("POST /run/waits: ")
            && line.contains("the rest of the spooled request body can't be read")
    });
    no_zombies(&server);
    let said = server.errors.all();
    assert_eq!(said.iter().filter(|line| is_said(line)).count(), 1);
}

/// A full disk, played by the process's limit on file sizes.
#[test]
fn a_full_disk_is_logged() {
    let folder = folder();
    shell(
        &folder,
        "count",
        &format!("count=$(wc -c)\n{PLAIN}echo $count"),
    );
    let mut command = Command::new("sh");
    let text = "trap '' XFSZ; ulimit -f 200; exec \"$0\" \"$@\"";
    command.args(["-c", text, crate::support::program()]);
    let server = Server::start_by(command, folder, &config("", ""));
    let mut wire = Wire::plain(&server);
    wire.send(format!(
        "POST /run/count?full HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         493e0\r\n{}\r\n0\r\n\r\n",
        "x".repeat(300_000)
    ));
    assert_eq!(wire.response("POST").status, 507);
    assert_eq!(rule(&server, "full "), "723");
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("File too large")
    });
    assert_eq!(Wire::plain(&server).get("/run/count", "").text(), "0\n");
}

#[test]
fn statuses_and_redirects() {
    let folder = folder();
    shell(
        &folder,
        "missing",
        "printf 'Status: 404 Not Here\\nContent-Type: text/plain\\n\\ngone'",
    );
    shell(
        &folder,
        "cookies",
        "printf 'Content-Type: a/b\\nSet-Cookie: a\\nSet-Cookie: b\\nDate: x\\nServer: x\\nConnection: close\\n\\n'",
    );
    shell(&folder, "empty", "printf 'Status: 204\\n\\n'");
    shell(&folder, "away", "printf 'Location: https://a.test/b\\n\\n'");
    shell(&folder, "page", "printf 'Location: /index.html?a=b\\n\\n'");
    shell(
        &folder,
        "script",
        "printf 'Location: /run/told?from=script\\n\\n'",
    );
    shell(
        &folder,
        "told",
        &format!("{PLAIN}echo \"$REQUEST_METHOD $QUERY_STRING $CONTENT_LENGTH\""),
    );
    shell(
        &folder,
        "typed",
        "printf 'Location: /index.html\\nContent-Type: text/plain\\n\\nover there'",
    );
    shell(
        &folder,
        "anchor",
        "printf 'Location: /index.html#entry\\n\\n'",
    );
    shell(&folder, "odd", "printf 'Location: /index page\\n\\n'");
    shell(&folder, "loop", "printf 'Location: /run/loop\\n\\n'");
    shell(&folder, "lost", "printf 'Location: /nothing\\n\\n'");
    shell(&folder, "guarded", "printf 'Location: /guarded/\\n\\n'");
    shell(&folder, "folder", "printf 'Location: /sub\\n\\n'");
    shell(&folder, "large", "printf 'Location: /large.bin\\n\\n'");
    folder.write("public/guarded/index.html", "SECRET");
    folder.write("public/sub/index.html", "sub");
    let large = vec![b'x'; 3_000_000];
    folder.write("public/large.bin", &large);
    let guard = "[[site.route]]\npath = \"/guarded\"\nallow = []\n";
    let server = Server::start_in(folder, &config("", guard));
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        let mut get = |path: &str| {
            let response = wire.get(path, "");
            assert!(response.whole, "{path}: {response:?}");
            response
        };
        let missing = get("/run/missing");
        assert_eq!((missing.status, missing.text().as_str()), (404, "gone"));
        let cookies = get("/run/cookies");
        let count = |name: &str| {
            let named = cookies
                .fields
                .iter()
                .filter(|(its, _)| its.eq_ignore_ascii_case(name));
            named.count()
        };
        assert_eq!(
            (count("set-cookie"), count("date"), count("server")),
            (2, 1, 1)
        );
        assert!(!cookies.closes());
        assert_eq!(get("/run/empty").status, 204);
        let away = get("/run/away");
        assert_eq!(
            (away.status, away.field("location")),
            (302, Some("https://a.test/b"))
        );
        // With further fields besides the path, the Location goes to the client.
        let typed = get("/run/typed");
        assert_eq!((typed.status, typed.text().as_str()), (302, "over there"));
        assert_eq!(typed.field("location"), Some("/index.html"));
        let anchor = get("/run/anchor");
        assert_eq!(anchor.status, 302);
        assert_eq!(anchor.field("location"), Some("/index.html#entry"));
        assert_eq!(get("/run/odd").status, 502);
        let page = get("/run/page");
        assert_eq!((page.status, page.text().as_str()), (200, "<p>hello</p>\n"));
        assert!(page.field("etag").is_some());
        assert_eq!(get("/run/script").text(), "GET from=script \n");
        assert_eq!(get("/run/lost").status, 404);
        assert_eq!(get("/run/guarded").status, 403);
        let slash = get("/run/folder");
        assert_eq!(
            (slash.status, slash.field("location")),
            (301, Some("/sub/"))
        );
        assert_eq!(get("/run/loop").status, 508);
        assert!(get("/run/large").body == large);
        // The body belongs to the first request alone.
        let sent = "POST /run/script HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
        wire.send(sent);
        assert_eq!(wire.response("POST").text(), "GET from=script \n");
        let head = wire.ask("HEAD", "/run/page", "");
        assert_eq!(
            (head.status, head.field("content-length")),
            (200, Some("13"))
        );
    }
    for how in ["--http1.1", "--http2"] {
        let ran = curl(&server, &[how], &server.https("/run/large"));
        assert!(ran.stdout == large, "{how}");
    }
    server.errors.wait_for("what is wrong with it", |line| {
        line.contains("the Location field gives the malformed request \"GET http://localhost/index page HTTP/1.1\"")
    });
    assert_eq!(rule(&server, "/run/odd "), "712");
    assert_eq!(rule(&server, "/run/loop "), "715");
    assert_eq!(rule(&server, "/run/guarded "), "403");
    no_zombies(&server);
}

/// A shell text that writes the ids of the script and a child into a file. Both ignore SIGTERM.
const STUBBORN: &str = "trap '' TERM\n(trap '' TERM; while :; do sleep 1; done) >/dev/null 2>&1 &\n\
    { echo $$; echo $!; } > pids\n";

#[test]
fn endless_output_ends_when_the_client_leaves() {
    let text = format!("{STUBBORN}{PLAIN}while :; do echo all work and no play; done");
    for over in BOTH {
        let server = with_script("a", &text);
        let mut wire = Wire::over(&server, over);
        wire.send("GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wire.take(100_000);
        let pids = wait_for_pids(&server, "pids", 2);
        assert!(pids.iter().all(|pid| is_alive(pid)));
        drop(wire);
        wait_until_ended(&pids);
        no_zombies(&server);
        assert_eq!(Wire::plain(&server).get("/", "").status, 200);
    }
}

#[test]
fn a_client_that_leaves_a_silent_script_ends_it() {
    let server = with_script("a", &format!("{STUBBORN}sleep 1000"));
    let mut wire = Wire::plain(&server);
    wire.send("GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let pids = wait_for_pids(&server, "pids", 2);
    drop(wire);
    wait_until_ended(&pids);
    no_zombies(&server);
}

#[test]
fn a_stream_reset_ends_its_script() {
    let server = with_script("a", &format!("{STUBBORN}{PLAIN}while :; do echo x; done"));
    let mut h2 = H2::open(&server, Over::Tls);
    let id = h2.ask("GET", "/run/a", &[], true);
    h2.until(frame::DATA);
    let pids = wait_for_pids(&server, "pids", 2);
    h2.frame(
        frame::RST_STREAM,
        0,
        id,
        &H2ErrorCode::CANCEL.0.to_be_bytes(),
    );
    wait_until_ended(&pids);
    no_zombies(&server);
    assert_eq!(h2.get("/").status, 200);
}

#[test]
fn a_silent_script_is_ended_with_its_children() {
    let folder = folder();
    shell(&folder, "a", &format!("{STUBBORN}sleep 1000"));
    shell(&folder, "b", &format!("{PLAIN}echo begun; sleep 1000"));
    // The timeout is long enough for both processes to start.
    let limits = "limits = { script_silent_seconds = 3 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let response = Wire::plain(&server).get("/run/a", "");
    assert_eq!(response.status, 504, "{response:?}");
    assert_eq!(rule(&server, "/run/a "), "702");
    wait_until_ended(&wait_for_pids(&server, "pids", 2));
    let response = Wire::plain(&server).get("/run/b", "");
    assert_eq!(
        (response.status, response.whole),
        (200, false),
        "{response:?}"
    );
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("GET /run/b: script: silent for")
    });
    no_zombies(&server);
}

#[test]
fn script_output_is_bounded() {
    let folder = folder();
    shell(&folder, "a", &format!("{PLAIN}yes"));
    let limits = "limits = { script_output_bytes = 1000000 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let response = Wire::plain(&server).get("/run/a", "");
    assert!(
        !response.whole && response.body.len() <= 1_100_000,
        "{}",
        response.body.len()
    );
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("more output than script_output_bytes allows")
    });
    no_zombies(&server);
}

#[test]
fn background_processes_of_a_script_are_ended() {
    // A background process with its output closed does not delay the response.
    let text = format!("{PLAIN}echo done\nsleep 1000 >/dev/null 2>&1 &\necho $! > pids");
    let server = with_script("a", &text);
    let response = Wire::plain(&server).get("/run/a", "");
    assert!(
        response.whole && response.text() == "done\n",
        "{response:?}"
    );
    wait_until_ended(&wait_for_pids(&server, "pids", 1));
    no_zombies(&server);
}

/// A child with the output open does not delay the response, and is ended.
#[test]
fn a_child_that_holds_the_output_open_is_ended() {
    let folder = folder();
    let child = "sleep 1000 &\necho $! >> pids";
    shell(&folder, "said", &format!("{PLAIN}echo done\n{child}"));
    shell(
        &folder,
        "length",
        &format!("printf 'Content-Type: a/b\\nContent-Length: 9\\n\\n'; echo done\n{child}"),
    );
    shell(&folder, "headless", child);
    // A child that writes now and then keeps the response open.
    shell(
        &folder,
        "speaks",
        &format!(
            "{PLAIN}echo one\n(sleep 0.2; echo two; sleep 0.2; echo three; exec sleep 1000) &"
        ),
    );
    // The daemon is started as the guide describes.
    let own = "setsid sh -c 'sleep 1000 & echo $! > own' </dev/null >/dev/null 2>&1";
    shell(&folder, "own", &format!("{PLAIN}echo done\n{own}"));
    let server = start(folder);
    for over in BOTH {
        let said = Wire::over(&server, over).get("/run/said", "");
        assert!(said.whole && said.text() == "done\n", "{said:?}");
        // On a busy machine the pauses may exceed the timeout now and then.
        eventually("all that it says", || {
            let speaks = Wire::over(&server, over).get("/run/speaks", "");
            assert!(
                speaks.whole && speaks.text().starts_with("one\n"),
                "{speaks:?}"
            );
            (speaks.text() == "one\ntwo\nthree\n").then_some(())
        });
    }
    let length = Wire::plain(&server).get("/run/length", "");
    assert_eq!((length.status, length.whole), (200, false), "{length:?}");
    assert_eq!(Wire::plain(&server).get("/run/headless", "").status, 502);
    assert_eq!(rule(&server, "/run/headless "), "711");
    for name in ["said", "length", "headless", "speaks"] {
        server.errors.wait_for("the reason in the log", |line| {
            line.contains(&format!("GET /run/{name}: script: "))
                && line.contains("a child process keeps the output open")
        });
    }
    wait_until_ended(&wait_for_pids(&server, "pids", 4));
    let own = Wire::plain(&server).get("/run/own", "");
    assert!(own.whole && own.text() == "done\n", "{own:?}");
    let own = &wait_for_pids(&server, "own", 1)[0];
    no_zombies(&server);
    assert!(is_alive(own));
    assert!(run("kill", &[own], b"").success);
}

/// A script may close its output and run on without delaying its response.
#[test]
fn a_script_may_finish_after_its_response() {
    let text = format!("{PLAIN}echo done\nexec >&- 2>&-\nsleep 1; echo later > after");
    let server = with_script("a", &text);
    let response = Wire::plain(&server).get("/run/a", "");
    assert!(
        response.whole && response.text() == "done\n",
        "{response:?}"
    );
    let after = server.folder.path("scripts/after");
    eventually("what it did then", || after.is_file().then_some(()));
    no_zombies(&server);
}

#[test]
fn calls_over_the_limit_wait_and_then_get_a_503() {
    let folder = folder();
    // The script runs until a file exists.
    let wait = "echo $$ >> pids\nwhile [ ! -e go ]; do sleep 0.05; done\n";
    shell(&folder, "a", &format!("{wait}{PLAIN}echo done"));
    let limits = "limits = { scripts = 1, script_queue = 1 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let ask = "GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = Wire::plain(&server);
    first.send(ask);
    wait_for_pids(&server, "pids", 1);
    // One of two further requests gets the only place in the queue.
    let mut others = [Wire::plain(&server), Wire::over(&server, BOTH[1])];
    let answers: Vec<_> = others
        .iter_mut()
        .map(|wire| {
            wire.send(ask);
        })
        .collect();
    assert_eq!(answers.len(), 2);
    server
        .output
        .wait_for("a refusal", |line| line.contains(" rule=R714"));
    server.folder.write("scripts/go", "");
    assert_eq!(first.response("GET").text(), "done\n");
    let mut statuses = Vec::new();
    for wire in &mut others {
        let response = wire.response("GET");
        statuses.push(response.status);
        let retry = response.field("retry-after").is_some();
        assert_eq!(retry, response.status == 503, "{response:?}");
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
    no_zombies(&server);
}

#[test]
fn a_stopping_server_ends_its_scripts() {
    let folder = folder();
    shell(
        &folder,
        "a",
        &format!("{STUBBORN}{PLAIN}while :; do echo x; sleep 1; done"),
    );
    let mut server = Server::start_in(folder, &config("limits = { drain_seconds = 1 }", ""));
    let mut wire = Wire::plain(&server);
    wire.send("GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wire.take(50);
    let pids = wait_for_pids(&server, "pids", 2);
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    // The server ends after its scripts.
    assert!(!pids.iter().any(|pid| is_alive(pid)));
}

#[test]
fn many_simultaneous_calls_are_all_answered() {
    let server = with_script("a", &format!("{PLAIN}echo hello"));
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let url = server.http("/run/a?[1-25]");
            thread::spawn(move || run("curl", &["-sS", &url], b"").text())
        })
        .collect();
    for answers in asked {
        assert_eq!(answers.join().expect("curl"), "hello\n".repeat(25));
    }
    no_zombies(&server);
}

#[test]
fn interpreters_by_file_suffix() {
    let folder = folder();
    folder.write("scripts/a.py", "import os, sys\nprint('Content-Type: text/plain\\n')\nprint(sys.argv[0] == os.environ['SCRIPT_FILENAME'])\n");
    folder.write("scripts/b.pl", "print \"Content-Type: text/plain\\n\\n\"; print scalar(@ARGV), $ENV{PATH_INFO}, \"\\n\";\n");
    let tool = |name: &str| crate::support::tool(name).display().to_string();
    let more = format!(
        "interpreter = {{ \".py\" = \"{}\", \"*.pl\" = \"{}\" }}\n",
        tool("python3"),
        tool("perl")
    );
    let server = Server::start_in(folder, &config("", &more));
    assert_eq!(
        Wire::plain(&server).get("/run/a.py?-c+print", "").text(),
        "True\n"
    );
    assert_eq!(Wire::plain(&server).get("/run/b.pl/x", "").text(), "0/x\n");
}

const PHP: &str = "<?php /* SECRET */ header('X-Php: yes');\n\
    echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '', ' ',\n\
    $_GET['q'] ?? '', ' ', $_POST['p'] ?? '', ' ', strlen(file_get_contents('php://input')), \"\\n\";\n";

/// php-cgi runs the site's files with the suffix .php.
#[test]
fn php_among_the_files_of_a_site() {
    let folder = folder();
    folder.write("public/index.php", PHP);
    folder.write("public/sub/index.php", PHP);
    folder.write("public/sub/UPPER.PHP", PHP);
    folder.write("public/page.html", "page");
    folder.write("public/guarded/a.php", PHP);
    let site =
        site_table("http = \"serve\"\nindex = [\"index.php\"]\ntry = [\"$path\", \"/index.php\"]");
    let php = crate::support::tool("php-cgi8.2").display().to_string();
    let routes = format!(
        "[[site.route]]\npath = \"/\"\ninterpreter = {{ \".php\" = \"{php}\" }}\n\
         [[site.route]]\npath = \"/guarded/\"\nallow = []\n\
         [[site.route]]\npath = \"/old/\"\nrewrite = \"/sub/index.php\"\n"
    );
    let server = Server::start_in(folder, &(server_table("") + &site + &routes));
    for (path, text) in [
        ("/?q=1", "GET /index.php  1  0\n"),
        ("/index.php?q=2", "GET /index.php  2  0\n"),
        ("/index.php/more/x?q=2", "GET /index.php /more/x 2  0\n"),
        ("/sub/", "GET /sub/index.php    0\n"),
        ("/sub/UPPER.PHP", "GET /sub/UPPER.PHP    0\n"),
        // The paths of a front controller.
        ("/no/such/page?q=3", "GET /index.php  3  0\n"),
        ("/old/x?q=4", "GET /sub/index.php  4  0\n"),
        ("/page.html", "page"),
    ] {
        for over in BOTH {
            let response = Wire::over(&server, over).get(path, "");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, text),
                "{path}"
            );
            assert_eq!(response.field("x-php").is_some(), text != "page", "{path}");
        }
    }
    for path in ["/guarded/a.php", "/guarded/a.php/x", "/%67uarded/a.php"] {
        let response = Wire::plain(&server).get(path, "");
        assert_eq!(response.status, 403, "{path}");
        assert!(!response.text().contains("SECRET"));
    }
    // Bodies with and without a length.
    let posted = "POST /index.php  1 value 7\n";
    for field in ["X-A: b", "Transfer-Encoding: chunked"] {
        for how in ["--http1.1", "--http2"] {
            let sent = ["-d", "p=value", "-H", field, how];
            let ran = curl(&server, &sent, &server.https("/index.php?q=1"));
            assert_eq!(ran.text(), posted, "{how} {field}");
        }
    }
    no_zombies(&server);
}

#[test]
fn contradictory_configurations_are_refused() {
    let folder = folder();
    folder.write("public/404.php", "SECRET");
    let check = |routes: &str, site: &str| {
        let text =
            server_table("") + &site_table(site) + "[[site.route]]\npath = \"/x\"\n" + routes;
        folder.write("anthill.toml", text);
        let file = folder.path("anthill.toml");
        let done = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
        assert_ne!(done.code, Some(0), "{routes}");
        done.stderr
    };
    for (routes, site, what) in [
        ("cgi = \"nothing\"", "", "nothing does not exist"),
        (
            "cgi = \"scripts\"\nroot = \"public\"",
            "",
            "a route has one target",
        ),
        ("env = { A = \"b\" }", "", "`env` has no effect"),
        (
            "cgi = \"scripts\"\nenv = { \"A-B\" = \"c\" }",
            "",
            "is not a name of an environment variable",
        ),
        (
            "interpreter = { \"php\" = \"/bin/sh\" }",
            "",
            "begin the file ending with a dot: \".php\"",
        ),
        ("interpreter = {}", "", "`interpreter` is empty"),
        (
            "interpreter = { \".php\" = \"/not/there\" }",
            "",
            "the program /not/there does not exist",
        ),
        (
            "interpreter = { \".php\" = \"/bin/sh\" }",
            "errors = { 404 = \"404.php\" }",
            "a script can't be an error page",
        ),
    ] {
        let said = check(routes, site);
        assert!(said.contains(what), "{routes}: {said}");
    }
    // The scripts' folder is served as files too.
    folder.write("public/bin/a.cgi", "SECRET");
    let text = server_table("")
        + &site_table("")
        + "[[site.route]]\npath = \"/x\"\ncgi = \"public/bin\"\n";
    folder.write("anthill.toml", text);
    let done =
        crate::support::anthill(&["check".as_ref(), folder.path("anthill.toml").as_os_str()]);
    assert!(
        done.stderr
            .contains("clients can read the source of the scripts below /bin/"),
        "{done:?}"
    );
}

/// The server starts scripts without a copy of its own memory.
#[test]
fn a_script_starts_without_a_copy_of_the_server() {
    let server = with_script("a", &format!("{PLAIN}echo x"));
    let mut strace = Command::new(crate::support::tool("strace"));
    let log = server.folder.path("calls");
    strace.args(["-f", "-qq", "-e", "trace=clone,clone3,fork,vfork", "-o"]);
    strace.arg(&log).arg("-p").arg(server.pid().to_string());
    let mut tracing = strace.spawn().expect("strace");
    let seen = eventually("a traced start", || {
        assert_eq!(Wire::plain(&server).get("/run/a", "").status, 200);
        let text = lossy(&fs::read(&log).unwrap_or_default());
        text.lines()
            .find(|line| line.contains("CLONE_VFORK"))
            .map(str::to_owned)
    });
    let _ = Command::new("kill").arg(tracing.id().to_string()).status();
    let _ = tracing.wait();
    assert!(seen.contains("CLONE_VM"), "{seen}");
}

/// The example runs unchanged.
#[test]
fn the_scripts_example_runs_unchanged() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scripts");
    let example = example.canonicalize().expect("the example");
    let text = fs::read_to_string(example.join("anthill.toml")).expect("its configuration");
    let (_, site) = text.split_once("[[site]]").expect("a site");
    let at = |name: &str| format!("\"{}\"", example.join(name).display());
    let site = site.replace("\"public\"", &at("public"));
    let site = site.replace("\"programs\"", &at("programs"));
    let server = Server::start_in(Folder::new(), &(server_table("") + "[[site]]" + &site));
    let mut wire = Wire::plain(&server);
    let hello = wire.get("/run/hello?x", "").text();
    assert!(hello.ends_with("and asked for /run/hello?x.\n"), "{hello}");
    assert_eq!(wire.get("/run/home", "").body, wire.get("/", "").body);
    let sent = ["-d", "text=one+two+%3Cthree%3E"];
    let words = curl(&server, &sent, &server.https("/run/words.py")).text();
    assert!(
        words.contains("<p>3 words") && words.contains("&lt;three&gt;"),
        "{words}"
    );
}

/// Scripts are not run in a folder outside their route, and their source is not served either.
#[test]
fn script_sources_in_another_folder_are_not_served() {
    let folder = folder()
        .with("shop/config.sh", "secret=1\n")
        .with("shop/page.html", "<p>shop</p>\n")
        .with("shop/index.sh", "secret=2\n");
    let site = "index = [\"index.html\", \"index.sh\"]\nhttp = \"serve\"";
    let config = server_table("")
        + &site_table(site)
        + "[[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n"
        + "[[site.route]]\npath = \"/shop\"\nroot = \"shop\"\n";
    let server = Server::start_in(folder, &config);
    for (path, status) in [
        ("/shop/page.html", 200),
        ("/shop/config.sh", 403),
        ("/shop/config%2esh", 403),
        ("/shop/", 403),
        ("/shop/config.sh/x", 404),
    ] {
        let got = Wire::plain(&server).get(path, "");
        assert_eq!(got.status, status, "{path}");
        assert!(!got.text().contains("secret"), "{path}");
    }
}

/// The host of an absolute target takes precedence over the field Host (RFC 9112 §3.2.2).
#[test]
fn a_script_gets_the_requested_host() {
    let server = with_script("a", &format!("{PLAIN}echo \"$HTTP_HOST $SERVER_NAME\""));
    for (target, host, expected) in [
        ("/run/a", "localhost:81", "localhost:81 localhost\n"),
        (
            "http://localhost/run/a",
            "evil.test",
            "localhost localhost\n",
        ),
        (
            "http://localhost:82/run/a",
            "localhost:81",
            "localhost:82 localhost\n",
        ),
    ] {
        let mut wire = Wire::plain(&server);
        wire.send(format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        ));
        let got = wire.response("GET");
        assert_eq!(got.text(), expected, "{target} {host}");
    }
}

/// Orphaned children of a script, dead and not yet reaped, hold no slot.
#[test]
fn orphans_hold_no_slot() {
    let folder = folder();
    // The server runs as the first process of a PID namespace and inherits all orphans.
    shell(&folder, "leaves", &format!("{PLAIN}sleep 0.1 & echo done"));
    folder.write(
        "anthill.toml",
        config("limits = { scripts = 2, script_queue = 0 }", ""),
    );
    let mut command = Command::new(crate::support::tool("unshare"));
    if !crate::lifecycle::is_root() {
        command.arg("-Ur");
    }
    command
        .args(["--fork", "--pid", "--kill-child"])
        .args([crate::support::program(), "serve"])
        .arg(folder.path("anthill.toml"));
    let server = Server::launch(folder, command);
    for _ in 0..6 {
        eventually("a free place", || {
            let got = Wire::plain(&server).get("/run/leaves", "");
            (got.status == 200).then_some(())
        });
    }
}

/// A root behind a link switches from one release to the next, and scripts switch with the files.
#[test]
fn scripts_switch_with_their_site() {
    let tell = |what: &str| format!("{PLAIN}echo {what} \"$DOCUMENT_ROOT\"\n");
    let folder = folder()
        .with("releases/1/a.sh", tell("one"))
        .with("releases/2/a.sh", tell("two"));
    symlink("releases/1", folder.path("current")).expect("a link");
    let site = site_table("http = \"serve\"").replace("\"public\"", "\"current\"");
    let config = server_table("")
        + &site
        + "[[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n";
    let server = Server::start_in(folder, &config);
    assert!(
        Wire::plain(&server)
            .get("/a.sh", "")
            .text()
            .starts_with("one ")
    );
    symlink("releases/2", server.folder.path("next")).expect("a link");
    fs::rename(server.folder.path("next"), server.folder.path("current")).expect("a turn");
    let told = eventually("the new release", || {
        let got = Wire::plain(&server).get("/a.sh", "");
        (got.status == 200 && got.text().starts_with("two ")).then(|| got.text())
    });
    assert!(told.ends_with("releases/2\n"), "{told}");
}

/// A front controller in a route of its own, reached by `rewrite` and by the last entry of `try`.
#[test]
fn front_controllers_of_another_route() {
    const TELL: &str = "echo \"$SCRIPT_NAME|$PATH_INFO|$REQUEST_URI|$QUERY_STRING\"; cat";
    let routes = "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\ncache = { seconds = 1000 }\n\
        [[site.route]]\npath = \"/old\"\nrewrite = \"/run/index.cgi\"\n\
        [[site.route]]\npath = \"/news/\"\nrewrite = \"/run/index.cgi/\"\n\
        [[site.route]]\npath = \"/older\"\nrewrite = \"/old/\"\n\
        [[site.route]]\npath = \"/closed\"\nallow = []\n";
    let start = |fallback: &str, more: &str| {
        let folder = folder()
            .with("public/page.html", "<p>page</p>\n")
            .with("public/empty/.keep", "")
            .with("public/closed/a.html", "<p>closed</p>\n")
            // A file at the program's path is not served.
            .with("public/run/index.cgi", "the source");
        shell(&folder, "index.cgi", &format!("{PLAIN}{TELL}"));
        let keys = format!("http = \"serve\"\ntry = [\"$path\", \"$path.html\", \"{fallback}\"]");
        Server::start_in(
            folder,
            &(server_table("") + &site_table(&keys) + routes + more),
        )
    };
    // Hidden names do not reach a handler, even as the only entry of `try`.
    let keys = "http = \"serve\"\ntry = [\"/run/index.cgi\"]";
    let alone = folder();
    shell(&alone, "index.cgi", &format!("{PLAIN}{TELL}"));
    let alone = Server::start_in(alone, &(server_table("") + &site_table(keys) + routes));
    assert_eq!(Wire::plain(&alone).get("/x", "").status, 200);
    assert_eq!(Wire::plain(&alone).get("/.x", "").status, 404);
    let server = start("/run/index.cgi", "");
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        for (path, expected) in [
            ("/page", "<p>page</p>\n"),
            ("/no/such?q=1", "/run/index.cgi||/no/such?q=1|q=1\n"),
            ("/x%20y", "/run/index.cgi||/x%20y|\n"),
            ("/empty/", "/run/index.cgi||/empty/|\n"),
            ("/old/x?a", "/run/index.cgi||/old/x?a|a\n"),
            (
                "/news/2026/x?b",
                "/run/index.cgi|/2026/x|/news/2026/x?b|b\n",
            ),
            // A single rewrite applies, and its target does not exist.
            ("/older/x", "/run/index.cgi||/older/x|\n"),
            ("/run/index.cgi/y", "/run/index.cgi|/y|/run/index.cgi/y|\n"),
        ] {
            for _ in 0..2 {
                let got = wire.get(path, "");
                assert_eq!((got.status, got.text().as_str()), (200, expected), "{path}");
            }
            let again = wire.get(path, "");
            let is_kept = again.field("cache-status");
            let is_kept = is_kept.is_some_and(|it| it.starts_with("anthill; hit"));
            assert_eq!(is_kept, path != "/page", "{path}: {again:?}");
        }
        for path in ["/no/such", "/old/such"] {
            let got = curl(&server, &["-d", "some words"], &server.http(path));
            assert_eq!(got.text(), format!("/run/index.cgi||{path}|\nsome words"));
        }
        for (path, status) in [("/.keep", 404), ("/closed/a", 403), ("/run/no", 404)] {
            assert_eq!(wire.get(path, "").status, status, "{path}");
        }
    }
    // A page is purged by its requested path.
    let purged = server.ask(&["purge", "*", "/no/such"]);
    assert!(purged.stdout.starts_with("2 pages"), "{purged:?}");
    // The guards of the target apply to every path that leads to the target.
    let server = start(
        "/run/index.cgi$path",
        "[[site.route]]\npath = \"/run/index.cgi/closed\"\nallow = []\n",
    );
    for (path, status, expected) in [
        ("/no/such", 200, "/run/index.cgi|/no/such|/no/such|\n"),
        ("/closed", 403, ""),
        ("/news/closed/x", 403, ""),
        ("/news/x", 200, "/run/index.cgi|/x|/news/x|\n"),
    ] {
        let got = Wire::plain(&server).get(path, "");
        assert_eq!(got.status, status, "{path}: {got:?}");
        assert!(status != 200 || got.text() == expected, "{path}: {got:?}");
    }
}

/// A client with a slow form has no slot yet. A client with a slow long body loses its slot to a waiting
/// client.
#[test]
fn slow_uploads_hold_no_slot() {
    let folder = folder();
    shell(
        &folder,
        "read",
        &format!("echo $$ >> pids\ncount=$(wc -c)\n{PLAIN}echo $count"),
    );
    let config = config("limits = { scripts = 1 }", "");
    let server = Server::start_in(folder, &config);
    let mut begun = 0;
    for over in BOTH {
        let mut form = Wire::over(&server, over);
        form.send("POST /run/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
        form.send("x".repeat(50_000));
        let mut other = Wire::over(&server, over);
        assert_eq!(other.get("/run/read", "").text(), "0\n");
        form.send("x".repeat(10_000));
        assert_eq!(form.response("POST").text(), "60000\n");

        let mut slow = Wire::over(&server, over);
        slow.send("POST /run/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
        slow.send("x".repeat(70_000));
        begun += 3;
        wait_for_pids(&server, "pids", begun);
        begun += 1;
        // The second client waits for the slot and gets it.
        assert_eq!(other.get("/run/read", "").text(), "0\n");
        assert_eq!(slow.response("POST").status, 408);
    }
    no_zombies(&server);
}

/// A client that reads none of its responses loses its slots to calls of other clients. A response that the
/// same client reads quickly goes on.
#[test]
fn slow_readers_lose_their_slots_to_other_clients() {
    let folder = folder();
    let flood = format!("echo $$ >> pids\n{PLAIN}exec cat /dev/zero");
    shell(&folder, "flood", &flood);
    shell(&folder, "hello", &format!("{PLAIN}echo hello"));
    let server = Server::start_in(folder, &config("limits = { scripts = 4 }", ""));
    let flood = "GET /run/flood HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let is_over = AtomicBool::new(false);
    let mut quick = Wire::of(&server, address(2));
    quick.send(flood);
    wait_for_pids(&server, "pids", 1);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        let takes = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(quick.take(65_536).len(), 65_536);
            }
            // More bytes than the buffers in between hold, so the script is still running.
            let left = (0..1_000).all(|_| quick.take(65_536).len() == 65_536);
            drop(quick);
            left
        });
        let mut slow: Vec<_> = (0..3).map(|_| Wire::of(&server, address(2))).collect();
        for wire in &mut slow {
            wire.shrink_receive_buffer();
            wire.send(flood);
        }
        wait_for_pids(&server, "pids", 4);
        // None of the four scripts ends without the server.
        for _ in 0..3 {
            let hello = Wire::of(&server, address(3)).get("/run/hello", "");
            assert_eq!((hello.status, hello.text().as_str()), (200, "hello\n"));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(takes.join().expect("a reader"));
    });
    let refused = server.counter("calls_refused");
    assert!((1..=3).contains(&refused), "{refused}");
    no_zombies(&server);
}

/// Uploads of several clients at 16 KiB/s each give one slot to a client without a slot.
#[test]
fn one_slow_upload_of_many_clients_ends_for_a_newcomer() {
    let folder = folder();
    shell(&folder, "read", &format!("echo $$ >> pids\n{PLAIN}wc -c"));
    let limits = "limits = { scripts = 3 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let mut held = [2, 3, 4].map(|nth| {
        let mut wire = Wire::of(&server, address(nth));
        wire.send("POST /run/read HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n");
        wire.send("x".repeat(70_000));
        wire
    });
    wait_for_pids(&server, "pids", 3);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for wire in &mut held {
                    wire.send([b'x'; 4_096]);
                }
                thread::sleep(Duration::from_millis(250));
            }
        });
        let read = Wire::of(&server, address(5)).get("/run/read", "");
        assert_eq!((read.status, read.text().as_str()), (200, "0\n"));
    });
    assert_eq!(server.counter("calls_refused"), 1);
    drop(held);
    no_zombies(&server);
}

/// HTTP/2 clients with shut windows lose their slots to other clients, and each ended call is counted.
#[test]
fn unread_streams_lose_their_slots_to_other_clients() {
    // Either the window is shut, or the window is open and the client does not read.
    for is_open in [false, true] {
        let folder = folder();
        let flood = format!("echo $$ >> pids\n{PLAIN}head -c 30000000 /dev/zero");
        shell(&folder, "flood", &flood);
        shell(&folder, "hello", &format!("{PLAIN}echo hello"));
        let limits = "h2c = true\nlimits = { scripts = 4 }";
        let server = Server::start_in(folder, &config(limits, ""));
        let wire = Wire::of(&server, address(2));
        wire.shrink_receive_buffer();
        let mut slow = H2::on(wire).begin(b"");
        if is_open {
            slow.grant(0, 1 << 30);
        }
        for _ in 0..4 {
            let id = slow.ask("GET", "/run/flood", &[], true);
            if is_open {
                slow.grant(id, 1 << 30);
            }
        }
        wait_for_pids(&server, "pids", 4);
        let hello = Wire::of(&server, address(3)).get("/run/hello", "");
        let hello = (hello.status, hello.text());
        assert_eq!(hello, (200, "hello\n".to_owned()), "{is_open}");
        assert!(server.counter("calls_refused") > 0, "{is_open}");
        server.errors.wait_for("the reason in the log", |line| {
            line.contains("/run/flood")
                && line.contains("another client waits")
                && line.contains("724")
        });
        drop(slow);
        no_zombies(&server);
    }
}

/// One address cannot keep the queue full: its newest call makes room for another client's call, which runs
/// before the earlier ones.
#[test]
fn the_queue_of_calls_is_shared_between_addresses() {
    let folder = folder();
    let wait = "echo $REMOTE_ADDR >> began\nwhile [ ! -e go ]; do sleep 0.05; done\n";
    shell(&folder, "a", &format!("{wait}{PLAIN}echo done"));
    let limits = "limits = { scripts = 1, script_queue = 3 }";
    let server = Server::start_in(folder, &config(limits, ""));
    let begin = |nth, path: &str| {
        let mut wire = Wire::of(&server, address(nth));
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        wire
    };
    let mut first = begin(2, "/run/a");
    wait_for_pids(&server, "began", 1);
    let mut greedy: Vec<_> = (0..4).map(|_| begin(2, "/run/a")).collect();
    // One client alone has filled the queue.
    assert_eq!(rule(&server, "/run/a"), "714");
    let mut other = begin(3, "/run/a?other");
    let is_ended = |line: &str| line.contains("127.0.0.2") && line.contains("rule=R724");
    server.output.wait_for("a call that made room", is_ended);
    server.folder.write("scripts/go", "");
    assert_eq!(first.response("GET").status, 200);
    assert_eq!(other.response("GET").text(), "done\n");
    let answers = greedy.iter_mut().map(|wire| wire.response("GET"));
    let mut statuses: Vec<_> = answers
        .map(|got| (got.status, got.field("retry-after").is_some()))
        .collect();
    statuses.sort_unstable();
    let (ran, refused) = ((200, false), (503, true));
    assert_eq!(statuses, [ran, ran, refused, refused]);
    let began = fs::read_to_string(server.folder.path("scripts/began")).expect("addresses");
    let began: Vec<_> = began.lines().collect();
    let [one, another] = ["127.0.0.2", "127.0.0.3"];
    assert_eq!(began, [one, another, one, one]);
    assert_eq!(server.counter("calls_refused"), 1);
    no_zombies(&server);
}

/// Returns a loopback address.
fn address(nth: u8) -> IpAddr {
    [127, 0, 0, nth].into()
}

/// Waiting uploads of one client do not block the upload that has the slot.
#[test]
fn waiting_uploads_do_not_block_the_running_upload() {
    const BYTES: usize = 1 << 20;
    let folder = folder();
    shell(
        &folder,
        "read",
        &format!("count=$(wc -c)\n{PLAIN}echo $count"),
    );
    let config = config("h2c = true\nlimits = { scripts = 1 }", "");
    let server = Server::start_in(folder, &config);
    for over in BOTH {
        let mut h2 = H2::open(&server, over);
        let mut all = 65_535;
        let begin = |h2: &mut H2| {
            let id = h2.ask("POST", "/run/read", &[("content-length", "1048576")], false);
            (id, 65_535usize, BYTES)
        };
        let mut uploads: Vec<_> = (0..6).map(|_| begin(&mut h2)).collect();
        let is_whole = |h2: &H2, id: u32| h2.partial_response(id).is_some_and(|it| it.whole);
        while !uploads.iter().all(|(id, ..)| is_whole(&h2, *id)) {
            for (id, window, left) in &mut uploads {
                while *left > 0 && *window > 0 && all > 0 {
                    let part = (*left).min(*window).min(all).min(16_384);
                    *left -= part;
                    *window -= part;
                    all -= part;
                    h2.data(*id, &vec![b'x'; part], *left == 0);
                }
            }
            let frame = h2.next().expect("a frame");
            if frame.kind == frame::WINDOW_UPDATE {
                let more = frame.code() as usize;
                match uploads.iter_mut().find(|(id, ..)| *id == frame.stream) {
                    Some((_, window, _)) => *window += more,
                    None => all += more,
                }
            }
            h2.record_frame(&frame);
        }
        for (id, ..) in uploads {
            let response = h2.partial_response(id).expect("a response");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "1048576\n")
            );
        }
    }
    no_zombies(&server);
}

/// A server started with signals ignored or blocked reaps its children, and its scripts start with default
/// signals.
#[test]
fn scripts_do_not_inherit_ignored_signals() {
    let folder = folder();
    shell(
        &folder,
        "look",
        &format!("{PLAIN}grep -E 'Sig(Blk|Ign)' /proc/self/status"),
    );
    shell(&folder, "fails", "exit 3");
    let code = "import os, signal, sys\n\
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR2, signal.SIGPIPE):\n\
        \x20   signal.signal(number, signal.SIG_IGN)\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n\
        os.execv(sys.argv[1], sys.argv[1:])\n";
    let mut command = Command::new(crate::support::tool("python3"));
    command.args(["-c", code, crate::support::program()]);
    let mut server = Server::start_by(command, folder, &config("", ""));
    let mut wire = Wire::plain(&server);
    let looked = wire.get("/run/look", "").text();
    let sets: Vec<u64> = looked
        .lines()
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok())
        .collect();
    // The C library reserves two signals.
    let own = 0b11 << 31;
    assert_eq!((sets[0], sets[1] & !own), (0, 0), "{looked}");
    // The exit status is known.
    assert_eq!(wire.get("/run/fails", "").status, 502);
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("exit status 3")
    });
    no_zombies(&server);
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
}

/// An immediate stop while scripts start continuously leaves no script behind.
#[test]
fn scripts_started_during_a_stop_are_ended() {
    let folder = folder();
    shell(
        &folder,
        "a",
        "echo $$ >> pids; trap '' TERM; while :; do sleep 1; done",
    );
    let mut server = Server::start_in(
        folder,
        &config("limits = { scripts = 100, script_queue = 1000 }", ""),
    );
    let port = server.http_port;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                use std::io::Write;
                let mut open = Vec::new();
                while let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
                    let ask = b"GET /run/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
                    if stream.write_all(ask).is_err() || open.len() > 200 {
                        break;
                    }
                    open.push(stream);
                }
                open
            })
        })
        .collect();
    wait_for_pids(&server, "pids", 3);
    server.signal("TERM");
    server
        .errors
        .wait_for("stopping", |line| line.contains("stopping"));
    // A second SIGTERM ends the server without a drain.
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    let begun = fs::read_to_string(server.folder.path("scripts/pids")).expect("process numbers");
    let alive: Vec<&str> = begun.lines().filter(|pid| is_alive(pid)).collect();
    assert!(alive.is_empty(), "{alive:?}");
    for client in clients {
        drop(client.join().expect("a client"));
    }
}
