//! Freshness after a write: a file written just before a request is served, over every version of HTTP, and
//! a script's redirect leads to the file written by the script.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use wire::h2::frame;

use crate::support::h2::H2;
use crate::support::wire::{Over, Wire};
use crate::support::{Folder, Got, KeepAlive, Server, eventually, lossy, server_table, site_table};

const ROUTES: &str = "[[site.route]]\npath = \"/run\"\ncgi = \"scripts\"\n\
    [[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n";
/// A CGI script that writes its query into the file of its path, with the folder if needed, and redirects
/// the client to the file.
const WRITE: &str = "#!/bin/sh\nfile=../public$PATH_INFO\nmkdir -p \"${file%/*}\"\n\
    echo \"$QUERY_STRING\" > \"$file\"\n\
    printf 'Location: %s\\nCache-Control: no-store\\n\\n' \"$PATH_INFO\"\n";
/// A CGI script that writes a file and redirects to the file inside the server.
const SHOW: &str = "#!/bin/sh\necho \"$QUERY_STRING\" > \"../public$PATH_INFO\"\n\
    printf 'Location: %s\\n\\n' \"$PATH_INFO\"\n";
/// A CGI script that removes a file and confirms the removal.
const REMOVE: &str = "#!/bin/sh\ncat > /dev/null\nrm \"../public$PATH_INFO\"\n\
    printf 'Content-Type: text/plain\\n\\nremoved\\n'\n";

fn start(keys: &str) -> Server {
    let folder = Folder::new().with("public/index.html", "front");
    for (name, text) in [("write", WRITE), ("show", SHOW), ("remove", REMOVE)] {
        let name = format!("scripts/{name}");
        folder.write(&name, text);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(&name), mode).expect("a mode");
    }
    let site = site_table(&format!("http = \"serve\"\n{keys}"));
    Server::start_in(folder, &(server_table("") + &site + ROUTES))
}

fn curl(server: &Server, arguments: &[&str], url: &str) -> String {
    let ran = server.curl(&[arguments, &[url]].concat());
    assert!(ran.success, "{arguments:?} {url}: {}", ran.errors());
    ran.text()
}

#[test]
fn a_redirect_of_a_script_leads_to_its_new_file() {
    let server = start("");
    for round in 0..50 {
        // A new file, an existing file, and a file in a new folder.
        for path in [
            format!("/new-{round}"),
            "/same".to_owned(),
            format!("/made/{round}/deep/page"),
        ] {
            let url = server.http(&format!("/run/write{path}?text-{round}"));
            let got = curl(&server, &["-L", "--http1.1"], &url);
            assert_eq!(got, format!("text-{round}\n"), "{path}");
        }
    }
    for round in 50..60 {
        for path in [format!("/new-{round}"), "/same".to_owned()] {
            let url = server.https(&format!("/run/write{path}?text-{round}"));
            let got = curl(&server, &["-L", "--http2"], &url);
            assert_eq!(got, format!("text-{round}\n"), "{path}");
            let url = server.https(&format!("/run/show{path}?shown-{round}"));
            let got = curl(&server, &[], &url);
            assert_eq!(got, format!("shown-{round}\n"), "{path}");
        }
    }
}

#[test]
fn a_file_removed_by_a_script_is_gone() {
    let server = start("");
    for round in 0..10 {
        let url = server.http(&format!("/run/write/page?text-{round}"));
        assert_eq!(curl(&server, &["-L"], &url), format!("text-{round}\n"));
        let url = server.http("/run/remove/page");
        assert_eq!(curl(&server, &["-d", "x"], &url), "removed\n");
        let status = ["-o", "/dev/null", "-w", "%{http_code}"];
        assert_eq!(curl(&server, &status, &server.http("/page")), "404");
    }
}

#[cfg(feature = "http3")]
#[test]
fn a_redirect_of_a_script_leads_to_its_new_file_over_http_3() {
    let server = start("");
    let questions: Vec<String> = (0..10)
        .flat_map(|round| {
            [
                format!("GET /run/write/a/{round}?text-{round}"),
                format!("GET /a/{round}"),
                format!("GET /run/write/same?text-{round}"),
                "GET /same".to_owned(),
            ]
        })
        .collect();
    let mut scene = vec!["ask"];
    scene.extend(questions.iter().map(String::as_str));
    let said = crate::h3::run_scenario(&server, &scene);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 40);
    for (at, answers) in lines.chunks(4).enumerate() {
        for (leads, shows) in [(answers[0], answers[1]), (answers[2], answers[3])] {
            assert!(leads.contains("\"status\": 302"), "{leads}");
            assert!(shows.contains(&format!("text-{at}\\n")), "{shows}");
        }
    }
}

/// A shell process that writes files. A file opened by the test process itself could be inherited for a
/// moment by a program of another test, and would count as still being written.
struct Writer {
    shell: Child,
    said: BufReader<ChildStdout>,
}

impl Writer {
    fn new(server: &Server) -> Writer {
        let mut shell = Command::new("sh");
        shell.arg("-e").current_dir(server.folder.path("."));
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut shell = shell.expect("a shell");
        let said = BufReader::new(shell.stdout.take().expect("its output"));
        Writer { shell, said }
    }

    /// Runs commands and returns after their end.
    fn run(&mut self, commands: &str) {
        let stdin = self.shell.stdin.as_mut().expect("its input");
        writeln!(stdin, "{commands}\necho done").expect("taken");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        assert_eq!(line, "done\n", "{commands}");
    }

    /// Writes a file of the site.
    fn write(&mut self, path: &str, text: &str) {
        self.run(&format!("printf %s '{text}' > 'public{path}'"));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The shell ends at the end of its standard input.
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

#[test]
fn the_next_request_finds_a_new_file() {
    let server = start("");
    let mut writer = Writer::new(&server);
    let mut client = server.keep_alive();
    let mut h2 = H2::open(&server, Over::Tls);
    for round in 0..100 {
        // A watched folder, and a new folder.
        for path in [format!("/new-{round}"), format!("/{round}/b/c/page")] {
            let text = format!("text {round}");
            let folder = &path[..path.rfind('/').expect("a slash")];
            writer.run(&format!("mkdir -p 'public{folder}'"));
            writer.write(&path, &text);
            let got = match round % 2 {
                0 => {
                    let got = client.get(&path);
                    (got.status, got.text())
                }
                _ => {
                    let got = h2.get(&path);
                    (got.status, lossy(&got.body))
                }
            };
            assert_eq!(got, (200, text), "{path}");
            assert_eq!(client.get(&format!("{path}-not")).status, 404, "{path}");
            writer.run(&format!("rm 'public{path}'"));
        }
    }
}

#[test]
fn no_fallback_is_served_instead_of_a_new_file() {
    // Fallbacks: a page, a script among the site's files, and a CGI program of another route.
    for front in ["/front.html", "/front.sh", "/run/front$path"] {
        let server = start(&format!("try = [\"$path\", \"{front}\"]"));
        let mut writer = Writer::new(&server);
        let says = |what: &str| format!("printf \"Content-Type: text/plain\\n\\n{what}\"");
        writer.write("/front.html", "front");
        writer.write("/front.sh", &says("front"));
        let program = format!("#!/bin/sh\n{}", says("front"));
        writer.write("/../scripts/front", &program);
        writer.run("chmod +x scripts/front");
        let mut wire = Wire::over(&server, Over::Plain);
        let mut get = |path: &str| lossy(&wire.get(path, "").body);
        for round in 0..20 {
            let (file, run) = (format!("/file-{round}"), format!("/run-{round}.sh"));
            assert_eq!(get(&file), "front", "{front}");
            assert_eq!(get(&run), "front", "{front}");
            writer.write(&file, "file");
            assert_eq!(get(&file), "file", "{front}");
            writer.write(&run, &says("script"));
            assert_eq!(get(&run), "script", "{front}");
        }
    }
}

#[test]
fn a_listing_has_a_file_written_just_before() {
    let server = start("listing = true");
    let mut writer = Writer::new(&server);
    let mut wire = Wire::over(&server, Over::Plain);
    for round in 0..20 {
        writer.run(&format!("mkdir -p public/list/folder-{round}"));
        let list = lossy(&wire.get("/list/", "").body);
        assert!(list.contains(&format!("folder-{round}/")), "{list}");
        writer.write(&format!("/list/file-{round}"), "text");
        let list = lossy(&wire.get("/list/", "").body);
        assert!(list.contains(&format!("file-{round}")), "{list}");
    }
}

/// Writes a file and requests it, so that the server has processed all earlier change events.
fn process_events(writer: &mut Writer, client: &mut KeepAlive<TcpStream>, marker: &str) {
    writer.write(marker, "seen");
    assert_eq!(client.get(marker).text(), "seen");
}

/// Returns true for the response with an open file that has had its pause of 2 s since `written`, on a slow machine.
fn is_quiet(got: &Got, written: Instant) -> bool {
    got.head.contains("no-store") && written.elapsed() >= Duration::from_secs(2)
}

/// Some editors rename the old file, write a new file and close the new file.
#[test]
fn a_file_replaced_in_steps_is_never_served_in_part() {
    // The folder behind a link has two names.
    for pages in [&["/page"][..], &["/real/page", "/link/page"]] {
        let server = start("");
        let mut writer = Writer::new(&server);
        let mut client = server.keep_alive();
        writer.run("mkdir -p public/real; ln -s real public/link");
        if pages.len() == 1 {
            writer.run("rm public/link");
        }
        let file = format!("public{}", pages[0]);
        let mut old = "text 0".to_owned();
        writer.write(pages[0], &old);
        for round in 1..30 {
            process_events(&mut writer, &mut client, &format!("/before-{round}"));
            for page in pages {
                assert_eq!(client.get(page).text(), old, "{page}");
            }
            writer.run(&format!(
                "mv {file} {file}~; exec 3> {file}; printf half >&3"
            ));
            let written = Instant::now();
            for marker in ["", "/begun-", "/half-"] {
                if !marker.is_empty() {
                    process_events(&mut writer, &mut client, &format!("{marker}{round}"));
                }
                for page in pages {
                    let got = client.get(page);
                    let is_old = got.status == 200 && got.text() == old;
                    let is_refused = got.status == 404 || got.status == 503;
                    assert!(is_old || is_refused || is_quiet(&got, written), "{got:?}");
                }
            }
            old = format!("half and half {round}");
            writer.run(&format!("printf ' and half {round}' >&3; exec 3>&-"));
        }
    }
}

/// Some programs set a file's mode before the content is complete.
#[test]
fn a_file_with_a_changed_mode_is_never_served_in_part() {
    let server = start("");
    let mut writer = Writer::new(&server);
    let mut client = server.keep_alive();
    for round in 0..30 {
        let page = format!("/page-{round}");
        let file = format!("public{page}");
        writer.run(&format!(
            "exec 3> {file}; chmod 640 {file}; printf half >&3"
        ));
        let written = Instant::now();
        for marker in ["begun", "half"] {
            process_events(&mut writer, &mut client, &format!("/{marker}-{round}"));
            let got = client.get(&page);
            assert!(got.status == 503 || is_quiet(&got, written), "{got:?}");
        }
        writer.run("printf ' and half' >&3; exec 3>&-");
        assert_eq!(client.get(&page).text(), "half and half");
        // A complete file stays, even after a change of its mode.
        writer.run(&format!(
            "chmod 644 {file}; printf 'and whole' > {file}; chmod 600 {file}"
        ));
        process_events(&mut writer, &mut client, &format!("/whole-{round}"));
        assert_eq!(client.get(&page).text(), "and whole");
        writer.run(&format!("chmod 644 {file}"));
        process_events(&mut writer, &mut client, &format!("/touched-{round}"));
        assert_eq!(client.get(&page).text(), "and whole");
    }
}

/// A request with a body does not wait for the disk, because body bytes received during the wait would be
/// lost.
#[test]
fn a_request_with_a_body_does_not_wait() {
    // A file counts as open until the scan has seen its writer close the file.
    const PERMITTED: [u16; 4] = [200, 404, 405, 503];
    let server = start("");
    let mut writer = Writer::new(&server);
    let says = "printf \"Content-Type: text/plain\\n\\nran\"";
    for round in 0..10 {
        let script = format!("/new-{round}.sh");
        let mut wire = Wire::over(&server, Over::Plain);
        writer.write(&script, says);
        wire.send(format!(
            "POST {script} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"
        ));
        let got = wire.response("POST");
        assert!(PERMITTED.contains(&got.status), "{got:?}");
        let script = format!("/newer-{round}.sh");
        let mut h2 = H2::open(&server, Over::Tls);
        assert_eq!(h2.get("/").status, 200);
        writer.write(&script, says);
        let block = H2::block(&[
            (":method", "POST"),
            (":scheme", "https"),
            (":path", &script),
            (":authority", "localhost"),
        ]);
        // Both frames arrive in one segment, without a pause in between.
        let mut bytes = Vec::new();
        frame::header(
            &mut bytes,
            block.len(),
            frame::HEADERS,
            frame::END_HEADERS,
            3,
        );
        bytes.extend_from_slice(&block);
        frame::header(&mut bytes, 4, frame::DATA, frame::END_STREAM, 3);
        bytes.extend_from_slice(b"body");
        h2.wire.send(bytes);
        let got = h2.response(3);
        assert!(PERMITTED.contains(&got.status), "{got:?}");
    }
}

/// A response during the drain does not wait for change events, because the thread that reads the events
/// has ended.
#[test]
fn requests_do_not_wait_for_the_disk_during_a_stop() {
    let folder = Folder::new().with("public/index.html", "front");
    // Each call redirects to the next, and the first call waits for the test.
    let hop = "#!/bin/sh\nleft=${PATH_INFO#/}\n\
        [ $left = 7 ] && echo begun > ../begun && read go < ../go\n\
        echo text > ../public/file-$left\n\
        [ $left = 0 ] && printf 'Content-Type: text/plain\n\nthrough\n' && exit\n\
        printf 'Location: %s\n\n' /run/hop/$((left - 1))\n";
    folder.write("scripts/hop", hop);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path("scripts/hop"), mode).expect("a mode");
    let site = site_table("http = \"serve\"\n");
    // The drain is shorter than the calls would take with a wait of 1 s each.
    let limits = "limits = { drain_seconds = 6 }";
    let mut server = Server::start_in(folder, &(server_table(limits) + &site + ROUTES));
    let mut writer = Writer::new(&server);
    writer.run("mkfifo go");
    let mut wire = Wire::over(&server, Over::Plain);
    wire.send("GET /run/hop/7 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let begun = server.folder.path("begun");
    eventually("the first call", || begun.exists().then_some(()));
    server.signal("TERM");
    let is_stopping = |line: &str| line.contains("stopping");
    server.errors.wait_for("the end to begin", is_stopping);
    writer.run("echo go > go");
    let got = wire.response("GET");
    assert_eq!(
        (got.status, lossy(&got.body)),
        (200, "through\n".to_owned())
    );
    assert_eq!(server.wait(Duration::from_secs(30)), Some(0));
}
