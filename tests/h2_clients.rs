//! HTTP/2 with real clients: curl, nghttp, h2load, Python's h2 and Chromium; and the conformance suite
//! h2spec.

use std::path::Path;
use std::process::Command;

use crate::h2::{large, server};
use crate::support::member::{Member, ok};
use crate::support::{Server, built_tool, finish, journal, run, server_table, site_table};

#[test]
fn curl_over_tls_and_with_prior_knowledge() {
    let server = server("");
    let body = large().repeat(8);
    server.folder.write("body", &body);
    let file = format!("@{}", server.folder.path("body").display());
    for (how, url) in [
        ("--http2", server.https("")),
        ("--http2-prior-knowledge", server.http("")),
    ] {
        let ask = |arguments: &[&str]| {
            let ran = server.curl(&[&[how], arguments].concat());
            assert!(ran.success, "{how} {arguments:?}: {}", ran.errors());
            ran.stdout
        };
        let version = ["-o", "/dev/null", "-w", "%{http_version} %{http_code}"];
        let root = format!("{url}/");
        assert_eq!(ask(&[&version[..], &[&root]].concat()), b"2 200");
        assert_eq!(ask(&[&format!("{url}/large.bin")]), large());
        let part = ask(&["-r", "1000-1009", &format!("{url}/large.bin")]);
        assert_eq!(part, large()[1_000..1_010]);
        let echo = format!("{url}/echo");
        for fields in ["Expect:", "Expect: 100-continue"] {
            let echoed = ask(&["-H", fields, "--data-binary", &file, &echo]);
            assert!(echoed == body, "{how} {fields}: {} bytes", echoed.len());
        }
        let slow = format!("{url}/slow?lines=3&pause_ms=10");
        assert_eq!(ask(&[&slow]), b"line 0\nline 1\nline 2\n");
        if how == "--http2-prior-knowledge" {
            // curl 7.88 cannot multiplex without TLS, with any server.
            continue;
        }
        let many: Vec<String> = (0..50)
            .map(|nth| format!("{url}/middle.bin?{nth}"))
            .collect();
        let mut arguments = vec!["--parallel"];
        arguments.extend(many.iter().map(String::as_str));
        assert_eq!(ask(&arguments).len(), 50 * 100_000);
    }
}

/// curl 7.88 reports an error in place of the response if a reset follows the response at once.
#[test]
fn curl_gets_the_refusal_of_an_unfinished_upload() {
    let server = server("limits = { body_bytes = 1000 }");
    server.folder.write("body", vec![b'x'; 20_000_000]);
    let file = format!("@{}", server.folder.path("body").display());
    let more = ["--http2", "--data-binary", &file, "-o", "/dev/null"];
    // Over HTTP/2, curl sends no length in place of `Transfer-Encoding`. The handler `/echo` would begin its response
    // before the limit.
    for (path, length, status) in [
        ("/", "Expect:", "405"),
        ("/echo", "Expect:", "413"),
        ("/", "Transfer-Encoding: chunked", "405"),
    ] {
        let url = server.https(path);
        let arguments = [&more[..], &["-w", "%{http_code}", "-H", length, &url]].concat();
        let ran = server.curl(&arguments);
        assert!(ran.success, "{path} {length}: {}", ran.errors());
        let told = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(told, status, "{path} {length}");
    }
}

#[test]
fn nghttp_and_h2load() {
    let server = server("");
    for url in [server.https("/"), server.http("/")] {
        let more = format!("{url}large.bin");
        let ran = run("nghttp", &["-nsy", "--no-verify", &url, &more], b"");
        assert!(ran.success, "{}", ran.errors());
        assert_eq!(ran.text().matches(" 200 ").count(), 2, "{}", ran.text());
        let ran = run("h2load", &["-n2000", "-c10", "-m10", &url, &more], b"");
        let said = "2000 succeeded, 0 failed, 0 errored, 0 timeout";
        assert!(ran.text().contains(said), "{}{}", ran.text(), ran.errors());
    }
}

/// Runs a script with Debian's python3-h2.
#[test]
fn pythons_h2() {
    let server = server("");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/support/h2_client.py");
    // Debian's own Python: another Python may lack Debian's packages.
    let mut python = Command::new("/usr/bin/python3");
    python.arg(script).arg(server.https_port.to_string());
    let done = finish(python, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        done.stdout.trim(),
        "50 pages, 1 echo, 1 trailer",
        "{done:?}"
    );
}

/// Starts a server with the example site's configuration on other ports.
fn journal_server(more: &str) -> Server {
    let root = journal().join("public");
    let root = root.to_str().expect("a path");
    let config = server_table(more)
        + "[log]\nformat = \"combined\"\n"
        + &format!("[[site]]\nnames = [\"*\"]\nroot = \"{root}\"\nhttp = \"serve\"\n");
    Server::start(&config)
}

#[test]
fn chromium_loads_the_journal() {
    let server = journal_server("");
    let profile = server.folder.path("profile");
    let profile = format!("--user-data-dir={}", profile.display());
    let url = server.https("/");
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--ignore-certificate-errors",
        "--virtual-time-budget=5000",
        &profile,
        "--dump-dom",
        &url,
    ];
    let ran = run("chromium", &arguments, b"");
    assert!(
        ran.text().contains("</html>"),
        "{}{}",
        ran.text(),
        ran.errors()
    );
    for path in ["/", "/journal.css", "/journal.js", "/fonts/vollkorn.woff2"] {
        server.output.wait_for(path, |line| {
            line.contains(&format!("\"GET {path} HTTP/2.0\" 200 "))
        });
    }
    let lines = server.output.all();
    let old: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("HTTP/1.1\""))
        .collect();
    assert!(old.is_empty(), "{old:?}");
}

/// Runs h2spec against both ports of a server with `h2c`.
fn pass_h2spec(server: &Server) {
    // The plain port speaks HTTP/1.1 too and answers an invalid preface with HTTP/1.1, so the tests of
    // prefaces are left out there.
    let but_prefaces = [
        "generic", "hpack", "http2/4", "http2/5", "http2/6", "http2/7", "http2/8",
    ];
    for (port, how, least) in [
        (server.http_port, &but_prefaces[..], 140),
        (server.https_port, &["-t", "-k"], 145),
        (server.https_port, &["-t", "-k", "-S"], 146),
    ] {
        let mut command = Command::new(built_tool("h2spec"));
        command
            .args(["-h", "localhost", "-p", &port.to_string()])
            .args(how);
        let done = finish(command, b"");
        let said = &done.stdout;
        let sum = said.lines().rfind(|line| line.contains(" tests, "));
        let sum = sum.unwrap_or_else(|| panic!("{how:?}: {said}"));
        assert!(
            sum.ends_with(" passed, 0 skipped, 0 failed"),
            "{how:?}: {said}"
        );
        let count = sum.split(' ').next().and_then(|it| it.parse().ok());
        assert!(count.is_some_and(|count: u32| count >= least), "{sum}");
    }
}

#[test]
fn h2spec_passes() {
    pass_h2spec(&journal_server("h2c = true"));
}

/// Checks that proxied requests and responses keep to the protocol as files do. h2spec needs content longer than
/// the flow-control windows that it sets.
#[test]
fn h2spec_passes_through_the_proxy() {
    let member = Member::start(|_| ok([b'x'; 5_100]));
    let route = format!(
        "[[site.route]]\npath = \"/\"\nproxy = \"{}\"\n",
        member.url()
    );
    let site = site_table("http = \"serve\"\n");
    pass_h2spec(&Server::start(
        &(server_table("h2c = true") + &site + &route),
    ));
    assert!(member.requests().len() > 100);
}
