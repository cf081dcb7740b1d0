//! Starts the real binary on ports that the system picks, and speaks to it with real clients.
//!
//! Nothing here sleeps for luck: a server is up when it says so, a line is there when it comes, and
//! whatever takes longer than its deadline is a failure that shows what was seen until then.

// Not every test needs every client.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub mod h2;
pub mod lossy;
pub mod pebble;
pub mod trust;
pub mod wire;

/// How long a server may take to come up, or to say or do something; a debug build on a busy machine
/// is slow.
const START: Duration = Duration::from_secs(60);
/// How long a raw exchange waits for bytes, or for the end.
const READ: Duration = Duration::from_secs(10);
/// How long a client program may take in all: more than those wait that have a deadline of their own.
const CLIENT: Duration = Duration::from_secs(180);

/// The clients, and the Debian packages they come in (tools/setup.sh installs them).
const TOOLS: [(&str, &str); 20] = [
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("wget", "wget"),
    ("python3", "python3"),
    ("ps", "procps"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("strace", "strace"),
    ("nghttp", "nghttp2-client"),
    ("h2load", "nghttp2-client"),
    ("chromium", "chromium"),
    ("perl", "perl-base"),
    ("git", "git"),
    ("php-cgi8.2", "php8.2-cgi"),
    ("php-fpm8.2", "php8.2-fpm"),
    ("uwsgi-core", "uwsgi-core"),
    ("tar", "tar"),
    ("sha256sum", "coreutils"),
];

/// Where a tool is; the test fails with the package's name if it is not there.
pub fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).map(|folder| folder.join(name));
    places
        .into_iter()
        .find(|file| file.is_file())
        .unwrap_or_else(|| {
            let package = TOOLS
                .iter()
                .find(|(tool, _)| *tool == name)
                .map(|(_, package)| *package);
            match package {
                Some(package) => {
                    panic!("{name} is not installed: Debian has it in the package `{package}`")
                }
                None => panic!("{name} is not installed: `make test` builds it (tools/setup.sh)"),
            }
        })
}

/// Until it becomes its program, a child has a copy of each of our descriptors. A file that one of them
/// writes to counts as being written for as long: a server takes it later, and a script can't be run.
/// So nothing is written while somebody is born.
static BIRTHS: RwLock<()> = RwLock::new(());

/// Starts a program while nothing is written by [`Folder::write`].
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _alone = BIRTHS.write().expect("nobody fails meanwhile");
    // It returns when the program runs.
    command.spawn()
}

/// A temporary folder that a server's configuration and files lie in; gone at the end.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Writes a file, with the folders above it.
    pub fn with(self, name: &str, content: impl AsRef<[u8]>) -> Folder {
        self.write(name, content);
        self
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a new folder");
        let _unborn = BIRTHS.read().expect("nobody fails meanwhile");
        fs::write(file, content).expect("a written file");
    }

    /// Writes a program, by another one. What we have open ourselves to write to it, a program that
    /// another test starts just then has open too, for a moment; and what somebody may write to isn't run.
    pub fn program(&self, name: &str, text: &str) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a new folder");
        let write = ["-c", "cat > \"$0\" && chmod 755 \"$0\""].map(OsStr::new);
        let arguments = [write[0], write[1], file.as_os_str()];
        let ran = run("sh", &arguments, text.as_bytes());
        assert!(ran.success, "{}", ran.errors());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// `[server]` with ports of the system's choice, everything kept in the folder, and `more` keys.
pub fn server_table(more: &str) -> String {
    format!(
        "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
         control = \"anthill.sock\"\nworkers = 1\n{more}\n"
    )
}

/// One site for all names in `public`, with `more` keys.
pub fn site_table(more: &str) -> String {
    format!("[[site]]\nnames = [\"*\"]\nroot = \"public\"\n{more}\n")
}

/// A running server. Dropping it kills that process and no other.
pub struct Server {
    child: Child,
    pub https_port: u16,
    pub http_port: u16,
    pub folder: Folder,
    /// Standard output: the access log, where the configuration leaves it there.
    pub output: Lines,
    /// Standard error: the start-up message and the error log.
    pub errors: Lines,
}

impl Server {
    /// With this configuration, and a `public/index.html` that says hello.
    pub fn start(config: &str) -> Server {
        Server::start_in(
            Folder::new().with("public/index.html", "<p>hello</p>\n"),
            config,
        )
    }

    /// With this configuration, in a folder that has been furnished.
    pub fn start_in(folder: Folder, config: &str) -> Server {
        Server::start_by(Command::new(env!("CARGO_BIN_EXE_anthill")), folder, config)
    }

    /// The same through a command that becomes the server when `serve FILE` follows it.
    pub fn start_by(mut command: Command, folder: Folder, config: &str) -> Server {
        folder.write("anthill.toml", config);
        command.arg("serve").arg(folder.path("anthill.toml"));
        Server::launch(folder, command)
    }

    /// By this command, which becomes the server without a process between.
    pub fn launch(folder: Folder, mut command: Command) -> Server {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(&mut command).expect("the server's binary");
        let output = Lines::of(child.stdout.take().expect("a pipe"));
        let errors = Lines::of(child.stderr.take().expect("a pipe"));
        let mut server = Server {
            child,
            https_port: 0,
            http_port: 0,
            folder,
            output,
            errors,
        };
        let said = server.errors.wait_until(START, "`ready`", |lines| {
            lines
                .iter()
                .any(|line| line.starts_with("ready"))
                .then(|| lines.to_vec())
        });
        server.https_port = port_said(&said, "https");
        server.http_port = port_said(&said, "http");
        server
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name (`TERM`, `HUP`, `USR1`).
    pub fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(self.pid().to_string());
        let status = spawn(&mut kill).and_then(|mut kill| kill.wait());
        assert!(
            status.expect("kill").success(),
            "kill -{name} {}",
            self.pid()
        );
    }

    /// Waits for the server to end by itself; its exit code (None if a signal ended it).
    pub fn wait(&mut self, deadline: Duration) -> Option<i32> {
        let status = wait_for_child(&mut self.child, deadline);
        status
            .unwrap_or_else(|| panic!("still running after {deadline:?}"))
            .code()
    }

    pub fn https(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.https_port)
    }

    pub fn http(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.http_port)
    }

    /// A plain connection whose reads end after [`READ`].
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.http_port)).expect("a connection");
        stream
            .set_read_timeout(Some(READ))
            .expect("a read time-out");
        stream.set_nodelay(true).expect("no delay");
        stream
    }

    /// Writes these bytes over plain TCP and reads until the server closes.
    pub fn http_raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // A server that has refused already may have closed: what it said counts, not this.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => answer,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => answer,
            Err(error) => panic!(
                "no end after {READ:?} ({error}); so far: {:?}",
                lossy(&answer)
            ),
        }
    }

    /// The same over TLS, with openssl; no server name is sent where `sni` is empty.
    pub fn tls_raw(&self, sni: &str, bytes: &[u8]) -> Vec<u8> {
        let address = format!("127.0.0.1:{}", self.https_port);
        let mut arguments = vec!["s_client", "-quiet", "-connect", &address];
        match sni {
            "" => arguments.push("-noservername"),
            name => arguments.extend(["-servername", name]),
        }
        run("openssl", &arguments, bytes).stdout
    }

    /// curl, silent but for errors, the certificate taken as it is.
    pub fn curl<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ran {
        let mut all = vec![
            OsStr::new("-sSk"),
            OsStr::new("--max-time"),
            OsStr::new("30"),
        ];
        all.extend(arguments.iter().map(AsRef::as_ref));
        run("curl", &all, b"")
    }

    /// The body that curl gets from this path over HTTPS.
    pub fn body(&self, path: &str) -> Vec<u8> {
        let ran = self.curl(&[self.https(path)]);
        assert!(ran.success, "curl {path}: {}", ran.errors());
        ran.stdout
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the server said:\n{}", self.errors.all().join("\n"));
        }
    }
}

/// `listening https 127.0.0.1:40123` → 40123; 0 if it doesn't listen for that.
fn port_said(lines: &[String], scheme: &str) -> u16 {
    let prefix = format!("{scheme}://");
    let address = lines
        .iter()
        .find_map(|line| line.trim().strip_prefix(&prefix));
    let port = address.and_then(|address| address.split_whitespace().next()?.rsplit(':').next());
    port.map_or(0, |port| port.parse().expect("a port"))
}

/// What a program has written so far, line by line, collected by a thread of its own.
#[derive(Clone)]
pub struct Lines(Arc<(Mutex<Collected>, Condvar)>);

#[derive(Default)]
struct Collected {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(source: impl Read + Send + 'static) -> Lines {
        let lines = Lines(Arc::default());
        let into = lines.clone();
        thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            while source
                .read_until(b'\n', &mut line)
                .is_ok_and(|length| length > 0)
            {
                into.change(|collected| collected.lines.push(lossy(&line).trim_end().to_owned()));
                line.clear();
            }
            into.change(|collected| collected.ended = true);
        });
        lines
    }

    fn change(&self, how: impl FnOnce(&mut Collected)) {
        how(&mut self.0.0.lock().expect("the lines"));
        self.0.1.notify_all();
    }

    pub fn all(&self) -> Vec<String> {
        self.0.0.lock().expect("the lines").lines.clone()
    }

    /// The first line, of those that are there and those to come, that fits.
    pub fn wait_for(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        self.wait_until(START, what, |lines| {
            lines.iter().find(|line| fits(line)).cloned()
        })
    }

    /// Looks at all lines whenever one comes, until `look` finds what it wants.
    pub fn wait_until<T>(
        &self,
        deadline: Duration,
        what: &str,
        look: impl Fn(&[String]) -> Option<T>,
    ) -> T {
        let until = Instant::now() + deadline;
        let (lock, changed) = &*self.0;
        let mut collected = lock.lock().expect("the lines");
        loop {
            if let Some(found) = look(&collected.lines) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || collected.ended {
                let why = if collected.ended {
                    "it ended"
                } else {
                    "time is up"
                };
                let lines = collected.lines.join("\n");
                drop(collected); // or whoever looks next finds a poisoned lock
                panic!("{why} without {what}; it said:\n{lines}");
            }
            collected = changed.wait_timeout(collected, left).expect("the lines").0;
        }
    }
}

/// A client program that has run.
pub struct Ran {
    pub success: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Ran {
    pub fn text(&self) -> String {
        lossy(&self.stdout)
    }

    pub fn errors(&self) -> String {
        lossy(&self.stderr)
    }
}

/// Runs one of [`TOOLS`] with this on its standard input, to its end or [`CLIENT`].
pub fn run<A: AsRef<OsStr>>(name: &str, arguments: &[A], input: &[u8]) -> Ran {
    let mut command = Command::new(tool(name));
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A thread for each pipe: none of the three may hold up the others.
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = read_in_thread(child.stdout.take().expect("a pipe"));
    let stderr = read_in_thread(child.stderr.take().expect("a pipe"));
    let status = wait_for_child(&mut child, CLIENT);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let _ = writer.join();
    let ran = Ran {
        success: status.is_some_and(|status| status.success()),
        stdout: stdout.join().expect("a reader"),
        stderr: stderr.join().expect("a reader"),
    };
    assert!(
        status.is_some(),
        "{name} took longer than {CLIENT:?}; it said: {}{}",
        ran.text(),
        ran.errors()
    );
    ran
}

fn read_in_thread(mut source: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let _ = source.read_to_end(&mut all);
        all
    })
}

/// Its status once it has ended; None if it hasn't by then. There is no waiting for a child with a
/// deadline in the standard library, so this one looks every few milliseconds. It is the looks that are
/// counted: while the machine stands still, so does the child.
fn wait_for_child(child: &mut Child, deadline: Duration) -> Option<std::process::ExitStatus> {
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 0..=deadline.as_millis() / PAUSE.as_millis() {
        if let Some(status) = child.try_wait().expect("the child's status") {
            return Some(status);
        }
        thread::sleep(PAUSE);
    }
    None
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The folder of the example site.
pub fn journal() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/journal")
}

/// What `anthill` has come to.
#[derive(Debug)]
pub struct Done {
    /// None if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `anthill` with these arguments to its end.
pub fn anthill<A: AsRef<OsStr>>(arguments: &[A]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anthill"));
    command.args(arguments);
    finish(command, b"")
}

/// Runs a command with this on its standard input, to its end or [`CLIENT`], and what it started with
/// it: that would go on holding its pipes.
pub fn finish(mut command: Command, input: &[u8]) -> Done {
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = read_in_thread(child.stdout.take().expect("a pipe"));
    let stderr = read_in_thread(child.stderr.take().expect("a pipe"));
    let status = wait_for_child(&mut child, CLIENT);
    if status.is_none() {
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = child.wait();
    }
    let _ = writer.join();
    let done = Done {
        code: status.and_then(|status| status.code()),
        stdout: lossy(&stdout.join().expect("a reader")),
        stderr: lossy(&stderr.join().expect("a reader")),
    };
    assert!(
        status.is_some(),
        "{command:?} took longer than {CLIENT:?}: {done:?}"
    );
    done
}

/// The files without a name that a server keeps requests' bodies in, by its descriptors.
pub fn kept_bodies(server: &Server) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("descriptors");
    let paths = open.filter_map(|fd| Some(fd.ok()?.path()));
    let is_kept = |path: &PathBuf| {
        let link = fs::read_link(path).map(|link| link.display().to_string());
        link.is_ok_and(|name| name.contains("/state/") && name.ends_with("(deleted)"))
    };
    paths.filter(is_kept).collect()
}

/// Waits until a body of so many bytes is kept, and empties its file.
pub fn lose_kept_body(server: &Server, bytes: u64) {
    let is_whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == bytes);
    let kept = eventually("a body that is whole", || {
        kept_bodies(server).into_iter().find(is_whole)
    });
    let file = fs::OpenOptions::new().write(true).open(kept);
    file.and_then(|file| file.set_len(0)).expect("emptied");
}

/// Looks again and again, until it finds what it wants; [`START`] is patience enough.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + START;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "time is up without {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Server {
    /// `anthill COMMAND` about this server.
    pub fn ask(&self, arguments: &[&str]) -> Done {
        let config = self.folder.path("anthill.toml");
        let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        all.push(config.as_os_str());
        anthill(&all)
    }

    /// Writes another configuration and reloads, which must work; what was said.
    pub fn reload(&self, config: &str) -> String {
        self.folder.write("anthill.toml", config);
        let done = self.ask(&["reload"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    }

    /// The folder, which another server may use after this one has ended.
    pub fn into_folder(mut self) -> Folder {
        std::mem::replace(&mut self.folder, Folder::new())
    }

    /// A connection that is kept alive.
    pub fn keep(&self) -> KeepAlive<TcpStream> {
        KeepAlive::new(self.connect())
    }

    /// The same over TLS.
    pub fn keep_tls(&self) -> KeepAlive<Tls> {
        let stream = TcpStream::connect(("127.0.0.1", self.https_port)).expect("a connection");
        stream
            .set_read_timeout(Some(READ))
            .expect("a read time-out");
        stream.set_nodelay(true).expect("no delay");
        let name = "localhost".try_into().expect("a server name");
        let client = rustls::ClientConnection::new(trusting(), name).expect("a TLS client");
        KeepAlive::new(Tls::new(client, stream))
    }
}

/// A TLS connection of a client.
pub type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A client that takes any certificate.
fn trusting() -> Arc<rustls::ClientConfig> {
    static CONFIG: std::sync::OnceLock<Arc<rustls::ClientConfig>> = std::sync::OnceLock::new();
    let make = || {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting(provider)))
            .with_no_client_auth();
        Arc::new(config)
    };
    CONFIG.get_or_init(make).clone()
}

#[derive(Debug)]
struct Trusting(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection that asks again and again.
pub struct KeepAlive<S: Read + Write>(BufReader<S>);

/// One answer.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Got {
    pub fn text(&self) -> String {
        lossy(&self.body)
    }
}

impl<S: Read + Write> KeepAlive<S> {
    fn new(stream: S) -> KeepAlive<S> {
        KeepAlive(BufReader::new(stream))
    }

    /// GET with its answer, which must have a Content-Length; None if the connection was closed
    /// before a byte of it came, which a client may answer by asking again elsewhere.
    pub fn try_get(&mut self, path: &str) -> Option<Got> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if self.0.get_mut().write_all(request.as_bytes()).is_err() {
            return None;
        }
        let mut head = String::new();
        loop {
            let before = head.len();
            let read = self.0.read_line(&mut head);
            match read {
                Ok(1..) => {}
                Ok(0) if head.is_empty() => return None,
                Err(error) if head.is_empty() && error.kind() == ErrorKind::ConnectionReset => {
                    return None;
                }
                read => panic!("{path}: the head broke off ({read:?}): {head}"),
            }
            if head.len() - before == 2 {
                break;
            }
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .unwrap_or_else(|| panic!("{path}: no length in {head}"));
        let mut body = vec![0; length.trim().parse().expect("a number")];
        let read = self.0.read_exact(&mut body);
        assert!(
            read.is_ok(),
            "{path}: the body broke off ({read:?}) after {head}"
        );
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {head}"));
        Some(Got { status, head, body })
    }

    /// The same, and the connection must last.
    pub fn get(&mut self, path: &str) -> Got {
        self.try_get(path)
            .unwrap_or_else(|| panic!("{path}: the connection was closed"))
    }

    /// Waits for the server to close; whether it did so without a word.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest.is_empty()
    }
}

impl Folder {
    /// Where many files are quickly made, if the machine has such a place.
    pub fn in_memory() -> Folder {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Folder::new(), Folder)
    }
}
