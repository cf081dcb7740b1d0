//! FastCGI and SCGI with real backends (php-fpm, and a Python application under uWSGI) and with a scripted
//! backend that violates the protocols.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::shares::trickle;
use crate::support::programs;
use crate::support::wire::{BOTH, Wire, wait_until};
use crate::support::{
    EndOnDrop, Folder, Server, eventually, run, server_table, site_table, tool,
    truncate_spooled_body,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A backend that runs until drop.
pub struct Backend(Child);

impl Backend {
    fn start(mut command: Command, socket: &Path) -> Backend {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn();
        let backend = Backend(child.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        eventually("a backend that listens", || {
            UnixStream::connect(socket).ok()
        });
        backend
    }

    /// Starts php-fpm with a number of processes, at `fpm.sock`.
    pub fn php(folder: &Folder, children: u32) -> Backend {
        let path = |name: &str| folder.path(name).display().to_string();
        folder.write(
            "fpm.conf",
            format!(
                "[global]\nerror_log = {}\ndaemonize = no\n[www]\nlisten = {}\nuser = nobody\n\
                 group = nogroup\nlisten.mode = 0666\npm = static\npm.max_children = {children}\n",
                path("fpm.log"),
                path("fpm.sock"),
            ),
        );
        // The processes run as the user `nobody` and read the test's files.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(""), everybody).expect("a mode");
        let mut command = Command::new(tool("php-fpm8.2"));
        command.arg("-F").arg("-y").arg(folder.path("fpm.conf"));
        Backend::start(command, &folder.path("fpm.sock"))
    }

    /// Starts a Python application under uWSGI, with `protocol` at `app.sock`.
    pub fn python(folder: &Folder, protocol: &str) -> Backend {
        folder.write("app.py", APP);
        let mut command = Command::new(tool("uwsgi-core"));
        command.args([
            "--plugins-dir",
            "/usr/lib/uwsgi/plugins",
            "--plugin",
            "python3",
        ]);
        command
            .arg(format!("--{protocol}-socket"))
            .arg(folder.path("app.sock"));
        command.arg("--wsgi-file").arg(folder.path("app.py"));
        command.args(["--need-app", "--die-on-term", "--buffer-size", "32768"]);
        // uWSGI's default is to wait 4 s for a body and to answer without the rest.
        command.args(["--socket-timeout", "60"]);
        Backend::start(command, &folder.path("app.sock"))
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        programs::end(&mut self.0);
    }
}

const APP: &str = "def application(environ, start_response):\n\
    \x20   start_response('200 OK', [('Content-Type', 'text/plain')])\n\
    \x20   body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))\n\
    \x20   said = ' '.join(environ.get(name, '-') for name in\n\
    \x20       ('REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'HTTP_X_A', 'HTTP_PROXY'))\n\
    \x20   yield said.encode() + b'\\n'\n\
    \x20   yield body\n";

const PHP: &str = "<?php /* SECRET */ header('X-Php: yes');\n\
    echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '', ' ',\n\
    $_GET['q'] ?? '', ' ', $_POST['p'] ?? '', ' ', strlen(file_get_contents('php://input')), \"\\n\";\n";

pub fn php_folder() -> Folder {
    Folder::new()
        .with("public/index.php", PHP)
        .with("public/sub/index.php", PHP)
        .with("public/page.html", "page")
        .with("public/guarded/a.php", PHP)
        .with(
            "public/fails.php",
            "<?php error_log('oh no'); header('Status: 500'); echo 'failed';",
        )
        .with(
            "public/status.php",
            "<?php http_response_code(418); setcookie('a', 'b'); setcookie('c', 'd');",
        )
        .with("public/to.php", "<?php header('Location: /page.html');")
        .with("public/pid.php", "<?php echo getmypid();")
        .with(
            "public/echo.php",
            "<?php $in = fopen('php://input', 'r'); while (!feof($in)) echo fread($in, 8192);",
        )
        .with("public/sleep.php", "<?php sleep(60);")
}

fn php_server(folder: Folder, limits: &str, more: &str) -> Server {
    let site =
        site_table("http = \"serve\"\nindex = [\"index.php\"]\ntry = [\"$path\", \"/index.php\"]");
    let route = format!(
        "[[site.route]]\npath = \"/\"\nfastcgi = \"unix:fpm.sock\"\nfiles = \".php\"\n{more}\n\
         [[site.route]]\npath = \"/guarded/\"\nallow = []\n\
         [[site.route]]\npath = \"/old/\"\nrewrite = \"/sub/index.php\"\n"
    );
    Server::start_in(folder, &(server_table(limits) + &site + &route))
}

#[test]
fn php_applications() {
    for keep in ["", "keep = 1"] {
        let folder = php_folder();
        let _php = Backend::php(&folder, 1);
        let server = php_server(folder, "", keep);
        for (path, text) in [
            ("/?q=1", "GET /index.php  1  0\n"),
            ("/index.php/more/x?q=2", "GET /index.php /more/x 2  0\n"),
            ("/sub/", "GET /sub/index.php    0\n"),
            // Paths of a front controller, by `try` and by `rewrite`.
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
            }
            let ran = server.curl(&["--http2", &server.https(path)]);
            assert_eq!(ran.text(), text, "{path}: {}", ran.errors());
        }
        #[cfg(feature = "http3")]
        assert_eq!(
            crate::h3::run_scenario(&server, &["fetch", "/?q=5"]),
            "200 GET /index.php  5  0"
        );
        let mut wire = Wire::plain(&server);
        let status = wire.get("/status.php", "");
        let cookies = status
            .fields
            .iter()
            .filter(|(name, _)| name == "set-cookie" || name == "Set-Cookie");
        assert_eq!((status.status, cookies.count()), (418, 2), "{status:?}");
        let to = wire.get("/to.php", "");
        assert_eq!((to.status, to.field("location")), (302, Some("/page.html")));
        let head = wire.ask("HEAD", "/index.php", "");
        assert_eq!((head.status, head.field("content-length")), (200, None));
        // A response already complete with its head gets a Content-Length, which keeps the connections of
        // HTTP/1.0 clients.
        eventually("a length", || {
            let short = wire.get("/?q=1", "");
            assert_eq!(short.text(), "GET /index.php  1  0\n");
            (short.field("content-length") == Some("21")).then_some(())
        });
        eventually("a connection that is kept", || {
            let mut old = Wire::plain(&server);
            old.send("GET /?q=1 HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
            let response = old.next_response("GET")?;
            (response.field("connection") == Some("keep-alive")).then_some(())
        });
        let asked = wire.ask("PROPFIND", "/index.php/dav/", "");
        assert_eq!(asked.text(), "PROPFIND /index.php /dav/   0\n");
        let failed = wire.get("/fails.php?why", "");
        assert_eq!((failed.status, failed.text().as_str()), (500, "failed"));
        server.errors.wait_for("the output of the script", |line| {
            line.contains("GET /fails.php?why: script stderr: ") && line.contains("oh no")
        });
        let guarded = wire.get("/guarded/a.php", "");
        assert!(guarded.status == 403 && !guarded.text().contains("SECRET"));
        for field in ["X-A: b", "Transfer-Encoding: chunked"] {
            let sent = ["-d", "p=value", "-H", field];
            let ran = server.curl(&[&sent[..], &[&server.https("/index.php?q=1")]].concat());
            assert_eq!(ran.text(), "POST /index.php  1 value 7\n", "{field}");
        }
    }
}

#[test]
fn large_bodies_in_both_directions_at_once() {
    let folder = php_folder();
    let body: Vec<u8> = (0..(20u64 << 20) / 8)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    folder.write("body", &body);
    let _php = Backend::php(&folder, 1);
    let server = php_server(folder, "", "keep = 1");
    let file = format!("@{}", server.folder.path("body").display());
    for how in ["--http1.1", "--http2"] {
        for _ in 0..2 {
            let sent = [
                how,
                "-H",
                "Expect:",
                "-H",
                "Content-Type: x/y",
                "--data-binary",
                &file,
            ];
            let ran = server.curl(&[&sent[..], &[&server.https("/echo.php")]].concat());
            assert!(
                ran.stdout == body,
                "{how}: {} bytes {}",
                ran.stdout.len(),
                ran.errors()
            );
        }
    }
    // A body without a length is counted before the backend gets the request.
    for url in [server.http("/echo.php"), server.https("/echo.php")] {
        let sent = [
            "-H",
            "Transfer-Encoding: chunked",
            "-H",
            "Content-Type: x/y",
        ];
        let ran = server.curl(&[&sent[..], &["--data-binary", &file, &url]].concat());
        assert!(
            ran.stdout == body,
            "{} bytes {}",
            ran.stdout.len(),
            ran.errors()
        );
    }
}

/// The server keeps at most `keep` idle connections and passes each from one client's request to the next.
#[test]
fn idle_connections_are_passed_from_client_to_client() {
    let folder = php_folder();
    let _php = Backend::php(&folder, 2);
    let server = php_server(folder, "", "keep = 2");
    let asked: Vec<_> = (0..6)
        .map(|_| {
            let url = server.http("/pid.php?[1-30]");
            thread::spawn(move || run("curl", &["-sS", "-w", "\\n", &url], b"").text())
        })
        .collect();
    let mut pids: Vec<String> = asked
        .into_iter()
        .flat_map(|it| {
            it.join()
                .expect("curl")
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(pids.len(), 180);
    pids.sort_unstable();
    pids.dedup();
    assert!((1..=2).contains(&pids.len()), "{pids:?}");
    // At most two connections to the backend are open.
    let sockets = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("its descriptors");
    let socket = format!("{}", server.folder.path("fpm.sock").display());
    drop(sockets);
    let unix = fs::read_to_string("/proc/net/unix").expect("sockets");
    let connected = unix
        .lines()
        .filter(|line| line.ends_with(&socket) && line.contains(" 03 "));
    assert!(connected.count() <= 2, "{unix}");
}

#[test]
fn a_restarted_backend_is_used() {
    let folder = php_folder();
    let php = Backend::php(&folder, 1);
    let server = php_server(folder, "", "keep = 1");
    let mut wire = Wire::plain(&server);
    let before = wire.get("/pid.php", "").text();
    drop(php);
    // No backend runs.
    let gone = wire.get("/pid.php", "");
    assert_eq!(gone.status, 502, "{gone:?}");
    let line = server
        .output
        .wait_for("a refusal", |line| line.contains(" 502 "));
    assert!(line.contains("rule=R716"), "{line}");
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("GET /pid.php: unix:")
    });
    // The status names the dead backend until a connection succeeds.
    let has_fault = || {
        let status = server.ask(&["status"]).stdout;
        let fault = "error: the last connection to the backend unix:";
        status.contains(fault)
    };
    assert!(has_fault());
    let php = Backend::php(&server.folder, 1);
    let after = wire.get("/pid.php", "");
    assert_eq!(after.status, 200, "{after:?}");
    assert!(!has_fault());
    assert_ne!(after.text(), before);
    // The kept connection has ended with its process. The next connection is made without an error.
    let pid = after.text();
    assert!(
        Command::new("kill")
            .args(["-KILL", &pid])
            .status()
            .expect("kill")
            .success()
    );
    wait_until(PATIENCE, "the end of the process", || {
        (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    let again = wire.get("/pid.php", "");
    assert_eq!(again.status, 200, "{again:?}");
    assert_ne!(again.text(), pid);
    drop(php);
}

#[test]
fn a_silent_backend_times_out() {
    let folder = php_folder();
    let _php = Backend::php(&folder, 2);
    let server = php_server(folder, "limits = { script_silent_seconds = 3 }", "");
    let response = Wire::plain(&server).get("/sleep.php", "");
    assert_eq!(response.status, 504, "{response:?}");
    // On a busy machine the next process may itself be silent for longer than the limit.
    wait_until(PATIENCE, "a response of the other process", || {
        let status = Wire::plain(&server).get("/index.php", "").status;
        (status == 200).then_some(())
    });
}

#[test]
fn a_python_application() {
    for (key, protocol) in [("fastcgi", "fastcgi"), ("scgi", "scgi")] {
        let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
        let _app = Backend::python(&folder, protocol);
        let route = format!(
            "[[site.route]]\npath = \"/app\"\n{key} = \"unix:app.sock\"\nenv = {{ \"HTTP_X_A\" = \"set\" }}\n\
             [[site.route]]\npath = \"/old\"\nrewrite = \"/app/\"\n"
        );
        let config = server_table("") + &site_table("http = \"serve\"") + &route;
        let server = Server::start_in(folder, &config);
        for over in BOTH {
            let mut wire = Wire::over(&server, over);
            let response = wire.get("/app/some/where?q=1", "Proxy: evil\r\n");
            assert_eq!(
                response.text(),
                "GET /app /some/where q=1 set -\n",
                "{protocol}"
            );
            wire.send("POST /app HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
            assert_eq!(
                wire.response("POST").text(),
                "POST /app   set -\nhello",
                "{protocol}"
            );
            assert_eq!(wire.get("/", "").text(), "<p>hello</p>\n");
            let led = wire.get("/old/x/y?q=2", "");
            assert_eq!(led.text(), "GET /app /x/y q=2 set -\n", "{protocol}");
        }
        let body = "x".repeat(3_000_000);
        server.folder.write("body", &body);
        let file = format!("@{}", server.folder.path("body").display());
        for how in ["--http1.1", "--http2"] {
            let ran = server.curl(&[
                how,
                "-H",
                "Expect:",
                "--data-binary",
                &file,
                &server.https("/app/"),
            ]);
            let expected = format!("POST /app /  set -\n{body}");
            assert!(ran.text() == expected, "{protocol} {how}: {}", ran.errors());
            let sent = [
                how,
                "-H",
                "Transfer-Encoding: chunked",
                "--data-binary",
                &file,
            ];
            let ran = server.curl(&[&sent[..], &[&server.https("/app/")]].concat());
            assert!(ran.text() == expected, "{protocol} {how}: {}", ran.errors());
        }
    }
}

/// Starts a backend with one scene for each connection, in turn. The receiver gets the result of each
/// scene.
fn actor(folder: &Folder, scenes: Vec<Scene>) -> mpsc::Receiver<String> {
    let listener = UnixListener::bind(folder.path("actor.sock")).expect("a socket");
    let (said, hears) = mpsc::channel();
    thread::spawn(move || {
        for scene in scenes {
            let (mut stream, _) = listener.accept().expect("a connection");
            read_request(&mut stream);
            let _ = said.send(scene(&mut stream));
        }
    });
    hears
}

type Scene = Box<dyn FnOnce(&mut UnixStream) -> String + Send>;

/// Reads a request up to its empty STDIN record. Returns the request id and the content.
fn read_request(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    let mut first = [0];
    stream.read_exact(&mut first).expect("a record");
    read_records(stream, first[0]).expect("the end of the request")
}

/// Reads the rest of a request after its first byte.
fn read_records(stream: &mut UnixStream, first: u8) -> io::Result<(u8, Vec<u8>)> {
    let mut header = [first, 0, 0, 0, 0, 0, 0, 0];
    let mut from = 1;
    let mut all = Vec::new();
    loop {
        stream.read_exact(&mut header[from..])?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; length + usize::from(header[6])];
        stream.read_exact(&mut content)?;
        if header[1] == 5 && length == 0 {
            return Ok((header[3], all));
        }
        all.extend(content);
        from = 0;
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    record_of(1, kind, content)
}

fn record_of(id: u8, kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, id, high, low, 3, 0], content, &[0; 3]].concat()
}

fn scene(bytes: Vec<u8>) -> Scene {
    Box::new(move |stream| {
        stream.write_all(&bytes).expect("written");
        String::new()
    })
}

fn actor_server(folder: Folder) -> Server {
    Server::start_in(folder, &actor_config(""))
}

fn actor_config(more: &str) -> String {
    let route = "[[site.route]]\npath = \"/app\"\nfastcgi = \"unix:actor.sock\"\nfiles = \"*\"\n";
    server_table("") + &site_table("http = \"serve\"") + route + more
}

#[test]
fn records_in_single_bytes_truncated_and_invalid() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let head = record(6, b"Content-Type: text/plain\r\n\r\n");
    let good = [
        head.clone(),
        record(7, b"a word\n"),
        record(6, b"hello"),
        record(3, &[0; 8]),
    ]
    .concat();
    let bytewise = good.clone();
    let scenes: Vec<Scene> = vec![
        scene(good.clone()),
        Box::new(move |stream| {
            for byte in bytewise {
                stream.write_all(&[byte]).expect("written");
            }
            String::new()
        }),
        // An end without a byte.
        scene(Vec::new()),
        // Half a record header, and half a head.
        scene(good[..5].to_vec()),
        scene(head[..20].to_vec()),
        // A whole head without an end of the request.
        scene([head.clone(), record(6, b"half")].concat()),
        scene([head.clone(), record(6, b"half"), record(9, b"x")].concat()),
        // An end record with a failure as its application status.
        scene(
            [
                head.clone(),
                record(6, b"hello"),
                record(3, &[0, 0, 0, 7, 0, 0, 0, 0]),
            ]
            .concat(),
        ),
        // Another protocol, another record type, and another request id.
        scene(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        scene(record(9, b"x")),
        scene({
            let mut other = record(6, b"x");
            other[3] = 2;
            other
        }),
        scene(record(3, &[0, 0, 0, 0, 2, 0, 0, 0])),
        scene(record(3, &[0, 0, 0, 0, 1, 0, 0, 0])),
        scene(record(3, &[0; 8])),
        scene([record(6, b"no head\n\n"), record(3, &[0; 8])].concat()),
        scene(good.clone()),
    ];
    let count = scenes.len();
    let played = actor(&folder, scenes);
    let server = actor_server(folder);
    let expected = [
        (200, "none"),
        (200, "none"),
        (502, "717"),
        (502, "717"),
        (502, "717"),
        (200, "broken 717"),
        (200, "broken 718"),
        (200, "none"),
        (502, "718"),
        (502, "718"),
        (502, "718"),
        (503, "719"),
        (502, "718"),
        (502, "711"),
        (502, "712"),
        (200, "none"),
    ];
    assert_eq!(expected.len(), count);
    for (nth, (status, rule)) in expected.into_iter().enumerate() {
        let path = format!("/app/{nth}/");
        let response = Wire::plain(&server).get(&path, "");
        assert_eq!(response.status, status, "{nth}: {response:?}");
        assert_eq!(
            response.whole,
            !rule.starts_with("broken"),
            "{nth}: {response:?}"
        );
        let line = server.output.wait_for(&path, |line| line.contains(&path));
        match rule.strip_prefix("broken ") {
            None if rule == "none" => assert_eq!(response.text(), "hello", "{nth}"),
            Some(_) => assert_eq!(response.text(), "half"),
            None => {}
        }
        let number = rule.rsplit(' ').next().filter(|number| *number != "none");
        if let Some(number) = number {
            assert!(line.contains(&format!("rule=R{number}")), "{nth}: {line}");
        }
        assert_eq!(
            response.field("retry-after").is_some(),
            status == 503,
            "{nth}"
        );
        played.recv_timeout(PATIENCE).expect("played");
    }
    server.errors.wait_for("the message", |line| {
        line.contains("GET /app/0/: script stderr: a word")
    });
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("GET /app/5/: backend: ") && line.contains("closed the connection")
    });
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("GET /app/6/: backend: ") && line.contains("(rule R718)")
    });
    server.errors.wait_for("the exit status", |line| {
        line.contains("GET /app/7/: backend: exit status 7")
    });
}

#[test]
fn the_backend_notices_a_client_that_leaves() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let scenes: Vec<Scene> = (0..2)
        .map(|_| -> Scene {
            Box::new(|stream| {
                let head = record(6, b"Content-Type: text/plain\r\n\r\n");
                stream.write_all(&head).expect("written");
                let mut seen = 0;
                while stream.write_all(&record(6, &[b'x'; 1_000])).is_ok() {
                    seen += 1;
                }
                format!("left after {seen}")
            })
        })
        .collect();
    let played = actor(&folder, scenes);
    let server = actor_server(folder);
    for over in BOTH {
        let mut wire = Wire::over(&server, over);
        wire.send("GET /app HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wire.take(100_000);
        drop(wire);
        let said = played.recv_timeout(PATIENCE).expect("played");
        assert!(said.starts_with("left after"), "{said}");
    }
}

#[test]
fn contradictory_configurations_are_refused() {
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("public/a.php", "");
    for (routes, what) in [
        ("fastcgi = \"php-fpm\"", "is not an address of a backend"),
        ("fastcgi = \"unix:\"", "is not an address of a backend"),
        (
            "fastcgi = \"127.0.0.1:9\"\nscgi = \"127.0.0.1:9\"",
            "not both `fastcgi` and `scgi`",
        ),
        (
            "fastcgi = \"127.0.0.1:9\"\ncgi = \"public\"",
            "or as programs",
        ),
        (
            "fastcgi = \"127.0.0.1:9\"\nroot = \"public\"",
            "a route has one target",
        ),
        (
            "scgi = \"127.0.0.1:9\"\nkeep = 2",
            "`keep` has no effect with `scgi`",
        ),
        (
            "fastcgi = \"127.0.0.1:9\"\nfiles = \"php\"",
            "begin the file ending with a dot: \".php\"",
        ),
        ("fastcgi = \"127.0.0.1:9\"\nfiles = []", "`files` is empty"),
        (
            "fastcgi = \"127.0.0.1:9\"\nscript_root = \"www\"",
            "the absolute path as seen by the backend",
        ),
        ("files = \".php\"", "no effect without `fastcgi`"),
    ] {
        let text = server_table("") + &site_table("") + "[[site.route]]\npath = \"/x\"\n" + routes;
        folder.write("anthill.toml", text);
        let file = folder.path("anthill.toml");
        let done = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
        assert_ne!(done.code, Some(0), "{routes}");
        assert!(done.stderr.contains(what), "{routes}: {}", done.stderr);
    }
}

fn good_response() -> Vec<u8> {
    good_response_to(1)
}

fn good_response_to(id: u8) -> Vec<u8> {
    let head = record_of(id, 6, b"Content-Type: text/plain\r\n\r\nhello");
    [head, record_of(id, 3, &[0; 8])].concat()
}

/// Waits for the server to close the connection, and describes the remaining bytes.
fn until_closed(stream: &mut UnixStream) -> String {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    format!("closed after {} bytes more", rest.len())
}

/// The server does not reuse a kept connection after the backend has closed the connection or half of it. A
/// request on a connection closed in the meantime is repeated if the request is safe.
#[test]
fn closed_idle_connections_are_not_reused() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let (half, halves) = mpsc::channel();
    let closing = |asks_again: bool| -> Scene {
        let half = half.clone();
        Box::new(move |stream| {
            stream.write_all(&good_response()).expect("written");
            if asks_again {
                read_request(stream);
            }
            let ours = std::net::Shutdown::Write;
            stream.shutdown(ours).expect("half closed");
            half.send(()).expect("sent");
            until_closed(stream)
        })
    };
    let scenes: Vec<Scene> = vec![
        closing(false),
        closing(false),
        // The backend reads one more request and closes without a response.
        closing(true),
        closing(true),
        scene(good_response()),
    ];
    let played = actor(&folder, scenes);
    let server = Server::start_in(folder, &actor_config("keep = 1\n"));
    let mut wire = Wire::plain(&server);
    let mut ask = |method: &str, status: u16| {
        let (length, body) = match method {
            "POST" => ("Content-Length: 5\r\n", "hello"),
            _ => ("", ""),
        };
        wire.send(format!(
            "{method} /app HTTP/1.1\r\nHost: localhost\r\n{length}\r\n{body}"
        ));
        let response = wire.response(method);
        assert_eq!(response.status, status, "{method}: {response:?}");
    };
    let is_half_closed = || halves.recv_timeout(PATIENCE).expect("half closed");
    let is_closed = || {
        let said = played.recv_timeout(PATIENCE).expect("closed");
        assert_eq!(said, "closed after 0 bytes more");
    };
    ask("GET", 200);
    // The server detects the half-closed connection before the next request.
    is_half_closed();
    ask("POST", 200);
    is_closed();
    is_half_closed();
    ask("GET", 200);
    is_closed();
    // The kept connection ends upon the next request. PROPFIND is safe, so the server repeats the request.
    ask("PROPFIND", 200);
    is_half_closed();
    is_closed();
    // The kept connection ends upon the next request. The backend may have executed the POST, so the server
    // does not repeat the request.
    ask("POST", 502);
    is_half_closed();
    is_closed();
    ask("GET", 200);
}

/// A reload with another `keep` takes effect at once, and a refused reload changes nothing.
#[test]
fn a_reload_changes_the_number_of_idle_connections() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let scenes: Vec<Scene> = vec![
        Box::new(|stream| {
            stream.write_all(&good_response()).expect("written");
            let (id, _) = read_request(stream);
            stream.write_all(&good_response_to(id)).expect("written");
            until_closed(stream)
        }),
        Box::new(|stream| {
            stream.write_all(&good_response()).expect("written");
            until_closed(stream)
        }),
    ];
    let played = actor(&folder, scenes);
    let server = Server::start_in(folder, &actor_config("keep = 2\n"));
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/app", "").text(), "hello");
    let other = "[[site.route]]\npath = \"/x\"\nfastcgi = \"unix:actor.sock\"\nfiles = \"*\"\n";
    // A second route with a different `keep` for the same backend is refused.
    server
        .folder
        .write("anthill.toml", actor_config(&format!("keep = 2\n{other}")));
    let done = server.ask(&["reload"]);
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(
        done.stderr
            .contains("has no `keep` here, and `keep = 2` on another route"),
        "{done:?}"
    );
    assert_eq!(wire.get("/app", "").text(), "hello");
    // With `keep = 0` the idle connection is closed without a further request.
    server
        .folder
        .write("anthill.toml", actor_config("keep = 0\n"));
    assert_eq!(server.ask(&["reload"]).code, Some(0));
    let closed = || played.recv_timeout(PATIENCE).expect("closed");
    assert_eq!(closed(), "closed after 0 bytes more");
    assert_eq!(wire.get("/app", "").text(), "hello");
    assert_eq!(closed(), "closed after 0 bytes more");
}

/// Answers every request on a connection until the server closes. Returns the number of requests.
fn answer_all(stream: &mut UnixStream) -> usize {
    let mut asked = 0;
    let mut first = [0];
    loop {
        // The server may close between two requests, and within an upload that gives way.
        let request = match stream.read(&mut first) {
            Ok(1) => read_records(stream, first[0]),
            _ => return asked,
        };
        let Ok((id, _)) = request else {
            return asked;
        };
        asked += 1;
        if stream.write_all(&good_response_to(id)).is_err() {
            return asked;
        }
    }
}

/// Counts of a backend with a few processes, each with one connection at a time.
#[derive(Default)]
struct BackendCounts {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

/// Starts a backend with `count` processes at `actor.sock`.
fn start_processes(folder: &Folder, count: usize) -> Arc<BackendCounts> {
    let listener = UnixListener::bind(folder.path("actor.sock")).expect("a socket");
    let seen = Arc::new(BackendCounts::default());
    for _ in 0..count {
        let listener = listener.try_clone().expect("its socket");
        let seen = Arc::clone(&seen);
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                seen.connections.fetch_add(1, Ordering::Relaxed);
                let asked = answer_all(&mut stream);
                seen.requests.fetch_add(asked, Ordering::Relaxed);
            }
        });
    }
    seen
}

/// Runs `clients` parallel clients, each with `times` sequential requests.
fn ask_at_once(server: &Server, clients: usize, times: usize) {
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut wire = Wire::plain(server);
                for _ in 0..times {
                    let got = wire.get("/app", "");
                    assert_eq!((got.status, got.text().as_str()), (200, "hello"));
                }
            });
        }
    });
}

/// Without `keep`, a request within a moment gets the connection of the request before. After that moment
/// no backend process is occupied.
#[test]
fn connections_are_passed_on_under_load() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let seen = start_processes(&folder, 2);
    let server = actor_server(folder);
    let mut asked = 0;
    eventually("a connection for several", || {
        ask_at_once(&server, 8, 20);
        asked += 160;
        // Every process returns to accept, so all its requests are counted.
        wait_until(PATIENCE, "all to be closed", || {
            (seen.requests.load(Ordering::Relaxed) >= asked).then_some(())
        });
        (seen.connections.load(Ordering::Relaxed) < asked).then_some(())
    });
}

/// With `keep = 0` no connection is passed on.
#[test]
fn no_connection_is_passed_on_with_keep_0() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let seen = start_processes(&folder, 2);
    let server = Server::start_in(folder, &actor_config("keep = 0\n"));
    ask_at_once(&server, 8, 20);
    wait_until(PATIENCE, "all to be closed", || {
        (seen.requests.load(Ordering::Relaxed) == 160).then_some(())
    });
    assert_eq!(seen.connections.load(Ordering::Relaxed), 160);
}

/// Clients of a second server get responses from the shared backend while many requests run on the first.
#[test]
fn another_server_can_use_the_same_backend() {
    let folder = php_folder();
    let _php = Backend::php(&folder, 1);
    let server = php_server(folder, "", "");
    let socket = server.folder.path("fpm.sock").display().to_string();
    let config = server_table("") + &site_table("http = \"serve\"");
    let route = format!(
        "[[site.route]]\npath = \"/\"\nfastcgi = \"unix:{socket}\"\nfiles = \".php\"\nkeep = 0\n"
    );
    let root = server.folder.path("public").display().to_string();
    let config = config.replace("root = \"public\"", &format!("root = \"{root}\""));
    assert!(config.contains(&root), "{config}");
    let other = Server::start_in(Folder::new(), &(config + &route));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for _ in 0..6 {
            scope.spawn(|| {
                let mut wire = Wire::plain(&server);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(wire.get("/pid.php", "").status, 200);
                }
            });
        }
        let got: Vec<u16> = (0..20)
            .map(|_| Wire::plain(&other).get("/pid.php", "").status)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(got, [200; 20]);
    });
}

/// Work of a script after its response delays no other request.
#[test]
fn a_script_that_runs_on_after_its_response_delays_no_request() {
    let folder = php_folder().with(
        "public/goes_on.php",
        "<?php echo 'done'; fastcgi_finish_request(); sleep(60);",
    );
    let _php = Backend::php(&folder, 3);
    let server = php_server(folder, "limits = { script_silent_seconds = 50 }", "");
    let mut wire = Wire::plain(&server);
    // The load is high enough for connections to be passed on.
    for _ in 0..50 {
        assert_eq!(wire.get("/pid.php", "").status, 200);
    }
    for _ in 0..2 {
        assert_eq!(wire.get("/goes_on.php", "").text(), "done");
        for _ in 0..5 {
            assert_eq!(wire.get("/pid.php", "").status, 200);
        }
    }
}

/// Output of a script after its response does not appear in another response.
#[test]
fn output_after_a_response_is_in_no_other_response() {
    for keep in ["", "keep = 1"] {
        let says_more = "<?php echo 'done'; fastcgi_finish_request(); usleep(20000);\n\
            echo str_repeat('SECRET', 3000); flush(); usleep(20000);";
        let folder = php_folder().with("public/says_more.php", says_more);
        let _php = Backend::php(&folder, 1);
        let server = php_server(folder, "", keep);
        let mut wire = Wire::plain(&server);
        for _ in 0..5 {
            // The load is high enough for connections to be passed on.
            for _ in 0..5 {
                assert_eq!(wire.get("/?q=1", "").text(), "GET /index.php  1  0\n");
            }
            assert_eq!(wire.get("/says_more.php", "").text(), "done", "{keep}");
            let next = wire.get("/?q=2", "");
            assert_eq!(next.text(), "GET /index.php  2  0\n", "{keep}: {next:?}");
        }
    }
}

/// A script that dies is not called twice, even on a reused connection.
#[test]
fn a_script_that_dies_is_called_once() {
    let dies = "<?php file_put_contents('%', 'x', FILE_APPEND); usleep(200000);\n\
        exec('kill -9 ' . getmypid()); sleep(1);";
    let folder = php_folder().with("calls", "");
    let calls = folder.path("calls");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&calls, everybody).expect("a mode");
    let dies = dies.replace('%', &calls.display().to_string());
    let folder = folder.with("public/dies.php", &dies);
    let _php = Backend::php(&folder, 2);
    let server = php_server(folder, "", "");
    let mut wire = Wire::plain(&server);
    for _ in 0..20 {
        assert_eq!(wire.get("/?q=1", "").status, 200);
    }
    for times in 1..=3 {
        let got = wire.get("/dies.php", "");
        assert_eq!(got.status, 502, "{got:?}");
        assert_eq!(fs::read_to_string(&calls).expect("calls").len(), times);
        for _ in 0..20 {
            assert_eq!(wire.get("/?q=1", "").status, 200);
        }
    }
}

/// As many slow scripts run at once as the backend has processes, and no request is refused.
#[test]
fn slow_scripts_use_all_processes_of_the_backend() {
    let folder = php_folder().with("public/slow.php", "<?php usleep(300000); echo 'slow';");
    let _php = Backend::php(&folder, 3);
    let server = php_server(folder, "", "");
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let mut wire = Wire::plain(&server);
                for path in ["/pid.php", "/slow.php", "/pid.php", "/slow.php"] {
                    assert_eq!(wire.get(path, "").status, 200, "{path}");
                }
            });
        }
    });
}

/// A backend that puts the same request id into every response gets one request per connection, and each
/// request is answered.
#[test]
fn a_backend_with_a_fixed_request_id_is_served() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let listener = UnixListener::bind(folder.path("actor.sock")).expect("a socket");
    for _ in 0..3 {
        let listener = listener.try_clone().expect("its socket");
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut first = [0];
                while stream.read(&mut first).is_ok_and(|read| read == 1) {
                    read_records(&mut stream, first[0]).expect("a request");
                    if stream.write_all(&good_response()).is_err() {
                        break;
                    }
                }
            }
        });
    }
    let server = actor_server(folder);
    ask_at_once(&server, 6, 40);
    server
        .folder
        .write("anthill.toml", actor_config("keep = 3\n"));
    assert_eq!(server.ask(&["reload"]).code, Some(0));
    ask_at_once(&server, 6, 40);
}

/// All waiting requests are answered while reloads change `keep`.
#[test]
fn reloads_under_load_lose_no_request() {
    let folder = php_folder().with("public/works.php", "<?php usleep(2000); echo getmypid();");
    let _php = Backend::php(&folder, 2);
    let server = php_server(folder, "limits = { script_silent_seconds = 50 }", "");
    let config = fs::read_to_string(server.folder.path("anthill.toml")).expect("its configuration");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut wire = Wire::plain(&server);
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(wire.get("/works.php", "").status, 200);
                }
            });
        }
        let mut done = Vec::new();
        for keep in [
            "keep = 2", "", "keep = 1", "keep = 2", "keep = 0", "", "keep = 2",
        ] {
            let files = "files = \".php\"";
            let text = config.replace(files, &format!("{files}\n{keep}"));
            server.folder.write("anthill.toml", text);
            done.push(server.ask(&["reload"]).code);
            // Ten further requests after each reload.
            for _ in 0..10 {
                let got = Wire::plain(&server).get("/works.php", "");
                done.push((got.status == 200).then_some(0));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(done.iter().all(|code| *code == Some(0)), "{done:?}");
    });
}

/// An unsafe request gets a connection of its own, even if an idle connection could be reused.
#[test]
fn unsafe_requests_are_never_sent_twice() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    // Every process answers once, and closes upon a second request.
    let listener = UnixListener::bind(folder.path("actor.sock")).expect("a socket");
    let posts = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let listener = listener.try_clone().expect("its socket");
        let posts = Arc::clone(&posts);
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let (_, asked) = read_request(&mut stream);
                let is_post = asked.windows(4).any(|it| it == b"POST");
                posts.fetch_add(usize::from(is_post), Ordering::Relaxed);
                let _ = stream.write_all(&good_response());
                // The process reads the second request and closes without a response.
                let _ = stream.read(&mut [0; 64]);
            }
        });
    }
    let server = actor_server(folder);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut wire = Wire::plain(&server);
                for _ in 0..25 {
                    assert_eq!(wire.get("/app", "").status, 200);
                    wire.send(
                        "POST /app HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi",
                    );
                    assert_eq!(wire.response("POST").status, 200);
                }
            });
        }
    });
    assert_eq!(posts.load(Ordering::Relaxed), 100);
}

/// A slow upload loses its backend connection to a waiting request.
#[test]
fn a_slow_upload_loses_its_connection_to_a_waiting_request() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let _app = Backend::python(&folder, "fastcgi");
    let route =
        "[[site.route]]\npath = \"/app\"\nfastcgi = \"unix:app.sock\"\nfiles = \"*\"\nkeep = 1\n";
    let config = server_table("") + &site_table("http = \"serve\"") + route;
    let server = Server::start_in(folder, &config);
    let mut slow = Wire::plain(&server);
    slow.send("POST /app HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
    slow.send("x".repeat(70_000));
    // The first GET may precede the upload's connection. A later GET waits for the connection and gets it.
    wait_until(PATIENCE, "an answer to the slow one", || {
        let got = Wire::plain(&server).get("/app", "");
        assert_eq!(got.status, 200, "{got:?}");
        slow.patience(Duration::from_millis(10));
        slow.socket.peek(&mut [0]).ok()
    });
    slow.patience(PATIENCE);
    assert_eq!(slow.response("POST").status, 408);
}

/// All processes of a backend write for a client that reads nothing. Another client's request, waiting in
/// the backend's own queue, makes the server free the processes.
#[test]
fn slow_readers_lose_backend_processes_to_other_clients() {
    const FLOOD: &str = "<?php for (;;) { echo str_repeat('x', 8192); }";
    for keep in ["", "keep = 2"] {
        let folder = php_folder().with("public/flood.php", FLOOD);
        let _php = Backend::php(&folder, 2);
        let server = php_server(folder, "", keep);
        let from = |nth| Wire::of(&server, [127, 0, 0, nth].into());
        let mut slow = [from(2), from(2)];
        for wire in &mut slow {
            wire.shrink_receive_buffer();
            wire.send("GET /flood.php HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // The head of the response shows that a process runs the request.
            assert_eq!(wire.take(12), b"HTTP/1.1 200");
        }
        let got = from(3).get("/pid.php", "");
        assert_eq!(got.status, 200, "{keep}: {got:?}");
        assert!(server.counter("calls_refused") > 0, "{keep}");
    }
}

/// Uploads of several clients occupy all processes of a backend, each too fast to end for any request. The request of a
/// newcomer waits in the backend's own queue, and the server ends the slowest uploads. With `keep = 0` the kernel does not
/// tell that the request is unread.
#[test]
fn slow_uploads_of_many_clients_end_for_a_newcomer() {
    let upload = format!(
        "POST /app HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    for keep in ["", "keep = 0\n"] {
        let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
        let seen = start_processes(&folder, 2);
        let server = Server::start_in(folder, &actor_config(keep));
        let mut held = [10, 11, 12].map(|last| {
            let mut wire = Wire::of(&server, [127, 0, 0, last].into());
            wire.send(&upload);
            wire
        });
        wait_until(PATIENCE, "all processes", || {
            (seen.connections.load(Ordering::Relaxed) == 2).then_some(())
        });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = EndOnDrop(&is_over);
            scope.spawn(|| trickle(&mut held, true, &is_over));
            let mut newcomer = Wire::of(&server, [127, 0, 0, 99].into());
            newcomer.patience(PATIENCE);
            let got = newcomer.get("/app", "");
            assert_eq!((got.status, got.text().as_str()), (200, "hello"), "{keep}");
        });
        assert!(server.counter("calls_refused") > 0, "{keep}");
    }
}

/// Uploads of 20 clients occupy the processes of a backend. The uploads that no process has taken up wait in the server, so
/// the request of a newcomer is the next one in the backend's own queue but one, and few uploads end for it.
#[test]
fn slow_uploads_of_many_addresses_do_not_precede_a_newcomer() {
    let upload = format!(
        "POST /up.php HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    for keep in ["", "keep = 0"] {
        let up = "<?php echo strlen(file_get_contents('php://input'));";
        let folder = php_folder().with("public/up.php", up);
        let _php = Backend::php(&folder, 2);
        let server = php_server(folder, "", keep);
        let mut held: Vec<_> = (10..30)
            .map(|last| {
                let mut wire = Wire::of(&server, [127, 0, 0, last].into());
                wire.send(&upload);
                wire
            })
            .collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = EndOnDrop(&is_over);
            scope.spawn(|| trickle(&mut held, true, &is_over));
            // The first upload that ends shows that the backend is busy.
            wait_until(PATIENCE, "an upload that gives way", || {
                (server.counter("calls_refused") > 0).then_some(())
            });
            let before = server.counter("calls_refused");
            let mut newcomer = Wire::of(&server, [127, 0, 0, 99].into());
            newcomer.patience(PATIENCE);
            let got = newcomer.get("/pid.php", "");
            assert_eq!(got.status, 200, "{keep}");
            let ended = server.counter("calls_refused") - before;
            assert!(ended < 10, "{keep}: {ended} uploads ended for one request");
        });
    }
}

/// Pages that drip keep half of the processes of a backend, and the other half serves newcomers.
#[test]
fn pages_that_drip_keep_half_of_the_processes_of_a_backend() {
    const DRIP: &str = "<?php while (ob_get_level()) ob_end_flush(); for (;;) { echo 'x'; flush(); usleep(5000); }";
    for keep in ["", "keep = 2"] {
        let folder = php_folder().with("public/drip.php", DRIP);
        let _php = Backend::php(&folder, 2);
        let server = php_server(folder, "", keep);
        let mut drips = [10, 11].map(|last| {
            let mut wire = Wire::of(&server, [127, 0, 0, last].into());
            wire.send("GET /drip.php HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(wire.take(12), b"HTTP/1.1 200");
            wire
        });
        // A call waits for a connection for 10 s, and it takes 10 s to see that a page drips.
        wait_until(PATIENCE, "an answer to a newcomer", || {
            let mut newcomer = Wire::of(&server, [127, 0, 0, 99].into());
            newcomer.patience(PATIENCE);
            (newcomer.get("/pid.php", "").status == 200).then_some(())
        });
        assert_eq!(server.counter("calls_refused"), 1, "{keep}");
        // The page that began first goes on, and the other one has ended within its content.
        let mut ended = drips.each_mut().map(|wire| {
            wire.patience(PATIENCE);
            wire.take(20_000).len() < 20_000
        });
        ended.sort_unstable();
        assert_eq!(ended, [false, true], "{keep}");
    }
}

/// A spooled body that cannot be read back is no fault of the backend.
#[test]
fn a_lost_spooled_body_is_logged() {
    let folder = Folder::new().with("public/index.html", "<p>hello</p>\n");
    let listener = UnixListener::bind(folder.path("actor.sock")).expect("a socket");
    let server = actor_server(folder);
    let mut wire = Wire::plain(&server);
    wire.send(format!(
        "POST /app/lost HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         2dc6c0\r\n{}\r\n0\r\n\r\n",
        "x".repeat(3_000_000)
    ));
    // The backend has read nothing, and the buffers in between cannot hold the whole body.
    let (mut backend, _) = listener.accept().expect("a connection");
    truncate_spooled_body(&server, 3_000_000);
    backend.read_to_end(&mut Vec::new()).expect("its end");
    assert_eq!(wire.response("POST").status, 507);
    let line = server
        .output
        .wait_for("the request", |line| line.contains("/app/lost"));
    assert!(line.contains("rule=R723"), "{line}");
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("POST /app/lost: ")
            && line.contains("the rest of the spooled request body can't be read")
    });
}

/// A backend for all paths may execute uploaded files, and the check warns.
#[test]
fn check_warns_of_a_backend_for_all_paths() {
    let folder = Folder::new().with("public/index.html", "");
    for (route, is_warned) in [
        ("fastcgi = \"127.0.0.1:9\"", true),
        ("fastcgi = \"127.0.0.1:9\"\nfiles = \"*\"", false),
        ("fastcgi = \"127.0.0.1:9\"\nfiles = \".php\"", false),
        ("scgi = \"127.0.0.1:9\"", false),
    ] {
        let text = server_table("") + &site_table("") + "[[site.route]]\npath = \"/x\"\n" + route;
        folder.write("anthill.toml", text);
        let file = folder.path("anthill.toml");
        let done = crate::support::anthill(&["check".as_ref(), file.as_os_str()]);
        assert_eq!(done.code, Some(0), "{route}: {done:?}");
        let said = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(said.contains("the fastcgi of /x"), is_warned, "{said}");
    }
}
