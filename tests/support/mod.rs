//! Starts the real binary on ports chosen by the system and speaks to the server with real clients.
//!
//! No test relies on a fixed sleep. A server counts as started after its start-up message, a log line is
//! awaited until the line arrives, and an expired deadline fails the test with the output seen so far.

// Not every test needs every client.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, LazyLock, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;

pub mod fault;
pub mod h2;
pub mod h2_member;
pub mod member;
pub mod memory_group;
pub mod lossy;
pub mod nginx;
pub mod pebble;
pub mod programs;
pub mod python;
pub mod release_store;
pub mod strict_member;
pub mod systemd_machine;
pub mod toxiproxy;
pub mod trust;
pub mod wire;

/// Deadline for a start-up and for an expected line or event. The long limit allows for debug builds on a
/// busy machine.
const START: Duration = Duration::from_secs(60);
/// Read timeout of a raw connection.
const READ: Duration = Duration::from_secs(10);
/// Deadline for a client program: longer than the deadlines of client programs with a limit of their own.
const CLIENT: Duration = Duration::from_secs(180);

/// Client programs and their Debian packages, which `tools/setup.sh` installs.
const TOOLS: [(&str, &str); 33] = [
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshd", "openssh-server"),
    ("dropbear", "dropbear-bin"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("wget", "wget"),
    ("python3", "python3"),
    ("ps", "procps"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("strace", "strace"),
    ("nghttp", "nghttp2-client"),
    ("nginx", "nginx-light"),
    ("h2load", "nghttp2-client"),
    ("chromium", "chromium"),
    ("perl", "perl-base"),
    ("git", "git"),
    ("php-cgi8.2", "php8.2-cgi"),
    ("php-fpm8.2", "php8.2-fpm"),
    ("uwsgi-core", "uwsgi-core"),
    ("apache2", "apache2"),
    ("nghttpd", "nghttp2-server"),
    ("haproxy", "haproxy"),
    ("fail2ban-regex", "fail2ban"),
    ("caddy", "caddy"),
    ("promtool", "prometheus"),
    ("prometheus", "prometheus"),
    ("tar", "tar"),
    ("sha256sum", "coreutils"),
];

/// Returns the path of a tool. Fails the test with the package's name if the tool is missing. Servers are in
/// folders outside of an ordinary user's PATH.
pub fn tool(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let places = folders.map(|folder| folder.join(name));
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

/// Returns the folder of the programs that `tools/setup.sh` builds.
pub fn tools_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    target.join("tools")
}

/// Returns the path of a program that `tools/setup.sh` builds into target/tools.
pub fn built_tool(name: &str) -> PathBuf {
    let file = tools_folder().join(name);
    if file.is_file() { file } else { tool(name) }
}

/// Lock between file writes and the start of child processes.
///
/// Between fork(2) and execve(2) a child holds a copy of every descriptor of the test process. A file open
/// for writing in the child still counts as being written: the server would load the file later, and a
/// script could not be run (ETXTBSY). Therefore no test writes a file while a child starts.
static SPAWN_LOCK: RwLock<()> = RwLock::new(());

/// Starts a program while no [`Folder::write`] is in progress.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _no_write = SPAWN_LOCK.write().expect("no panic while the lock is held");
    // `spawn` returns after the child's execve(2).
    command.spawn()
}

/// A temporary folder with a server's configuration and files, deleted on drop.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Writes a file and creates the folders above the file.
    pub fn with(self, name: &str, content: impl AsRef<[u8]>) -> Folder {
        self.write(name, content);
        self
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a new folder");
        let _no_spawn = SPAWN_LOCK.read().expect("no panic while the lock is held");
        fs::write(file, content).expect("a written file");
    }

    /// Writes an executable file by way of a child process. A descriptor open for writing in the test
    /// process could be inherited by a program started by another test at the same moment, and the kernel
    /// refuses to run a file open for writing (ETXTBSY).
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

/// Returns a `[server]` table with ports chosen by the system, the state inside the folder, and the keys in
/// `more`.
pub fn server_table(more: &str) -> String {
    format!(
        "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
         control = \"anthill.sock\"\nworkers = 1\n{more}\n"
    )
}

/// Returns a `[[site]]` table for all names with the root `public` and the keys in `more`.
pub fn site_table(more: &str) -> String {
    format!("[[site]]\nnames = [\"*\"]\nroot = \"public\"\n{more}\n")
}

/// A running server. Drop kills the server's process and no other process.
pub struct Server {
    child: Child,
    pub https_port: u16,
    pub http_port: u16,
    pub folder: Folder,
    /// Standard output: the access log, unless the configuration sends the log elsewhere.
    pub output: Lines,
    /// Standard error: the start-up message and the error log.
    pub errors: Lines,
}

/// Returns the program under test: the one that the variable `ANTHILL_TEST_PROGRAM` names, such as a release or a script
/// that runs a program for another processor in an emulator, or else Cargo's build.
pub fn program() -> &'static str {
    static PROGRAM: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("ANTHILL_TEST_PROGRAM").ok());
    PROGRAM.as_deref().unwrap_or(env!("CARGO_BIN_EXE_anthill"))
}

impl Server {
    /// Starts a server with the configuration and a `public/index.html` with a greeting.
    pub fn start(config: &str) -> Server {
        Server::start_in(
            Folder::new().with("public/index.html", "<p>hello</p>\n"),
            config,
        )
    }

    /// Starts a server with the configuration in a prepared folder.
    pub fn start_in(folder: Folder, config: &str) -> Server {
        Server::start_by(Command::new(program()), folder, config)
    }

    /// Starts a server through a command that accepts `serve FILE` as its last arguments and becomes the
    /// server.
    pub fn start_by(mut command: Command, folder: Folder, config: &str) -> Server {
        folder.write("anthill.toml", config);
        command.arg("serve").arg(folder.path("anthill.toml"));
        Server::launch(folder, command)
    }

    /// Starts a server through a command that becomes the server without a process in between.
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
        server.https_port = port_in_output(&said, "https");
        server.http_port = port_in_output(&said, "http");
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

    /// Runs `work` while all threads of the server are stopped. The kernel stops the threads some time after
    /// `kill` has returned, later on a busy machine, so this function waits for the stop.
    pub fn while_stopped<T>(&self, work: impl FnOnce() -> T) -> T {
        self.signal("STOP");
        wire::wait_until(
            Duration::from_secs(60),
            "all threads of the server are stopped",
            || self.are_all_threads_stopped().then_some(()),
        );
        let result = work();
        self.signal("CONT");
        result
    }

    fn are_all_threads_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the threads");
        let mut stats = tasks.map(|task| {
            let path = task.expect("a thread").path().join("stat");
            fs::read_to_string(path).expect("the state of a thread")
        });
        // The state follows the name of the thread, which is in parentheses and may contain spaces.
        stats.all(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Waits for the server to end without a signal from the test, and returns its exit code (None if a
    /// signal ended the server).
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

    /// Opens a plain connection with the read timeout [`READ`].
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.http_port)).expect("a connection");
        stream
            .set_read_timeout(Some(READ))
            .expect("a read time-out");
        stream.set_nodelay(true).expect("no delay");
        stream
    }

    /// Writes the bytes over plain TCP and reads until the server closes.
    pub fn http_raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // A write error is ignored: a server may close right after a refusal, and the refusal is the
        // result.
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

    /// Writes the bytes over TLS with openssl and reads until the server closes. An empty `sni` sends no
    /// server name.
    pub fn tls_raw(&self, sni: &str, bytes: &[u8]) -> Vec<u8> {
        let address = format!("127.0.0.1:{}", self.https_port);
        let mut arguments = vec!["s_client", "-quiet", "-connect", &address];
        match sni {
            "" => arguments.push("-noservername"),
            name => arguments.extend(["-servername", name]),
        }
        run("openssl", &arguments, bytes).stdout
    }

    /// Runs curl without progress output and without verification of the certificate.
    pub fn curl<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ran {
        let mut all = vec![
            OsStr::new("-sSk"),
            OsStr::new("--max-time"),
            OsStr::new("120"),
        ];
        all.extend(arguments.iter().map(AsRef::as_ref));
        run("curl", &all, b"")
    }

    /// Returns the body of a path, fetched with curl over HTTPS.
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

/// Returns the port of `scheme` from the start-up message: `listening https 127.0.0.1:40123` → 40123, or 0
/// if no address has the scheme.
fn port_in_output(lines: &[String], scheme: &str) -> u16 {
    let prefix = format!("{scheme}://");
    let address = lines
        .iter()
        .find_map(|line| line.trim().strip_prefix(&prefix));
    let port = address.and_then(|address| address.split_whitespace().next()?.rsplit(':').next());
    port.map_or(0, |port| port.parse().expect("a port"))
}

/// Lines written so far by a program, collected by a thread.
#[derive(Clone)]
pub struct Lines(Arc<(Mutex<Collected>, Condvar)>);

#[derive(Default)]
struct Collected {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    /// Collects the lines of a program.
    pub fn of(source: impl Read + Send + 'static) -> Lines {
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

    /// Returns the first matching line among the present and the coming lines.
    pub fn wait_for(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        self.wait_until(START, what, |lines| {
            lines.iter().find(|line| fits(line)).cloned()
        })
    }

    /// Calls `look` with all lines after each new line until `look` returns a value.
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
                    "the program ended"
                } else {
                    "the deadline passed"
                };
                let lines = collected.lines.join("\n");
                drop(collected); // so that the panic does not poison the lock
                panic!("{why} without {what}; its output:\n{lines}");
            }
            collected = changed.wait_timeout(collected, left).expect("the lines").0;
        }
    }
}

/// The result of a client program.
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

/// Runs one of [`TOOLS`] with `input` on its standard input until the program ends or [`CLIENT`] expires.
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
    // Each pipe has a thread of its own, so that no pipe blocks another pipe.
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
        "{name} took longer than {CLIENT:?}; its output: {}{}",
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

/// Returns the child's exit status, or None if the child is still running at the deadline. The function counts the time
/// that the machine runs, because the child stands still while the machine is suspended.
fn wait_for_child(child: &mut Child, deadline: Duration) -> Option<std::process::ExitStatus> {
    /// Time for which the parent waits again where a tracer has not released the ended child yet.
    const RELEASE: Duration = Duration::from_millis(5);
    const SLICE: Timespec = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    if let Some(status) = child.try_wait().expect("the child's status") {
        return Some(status);
    }
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a descriptor");
    let mut waited = Duration::ZERO;
    while waited < deadline {
        // A descriptor of a process is readable after the end of the process.
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&SLICE)) {
            Ok(0) => waited += Duration::from_secs(1),
            Err(Errno::INTR) => {}
            outcome => {
                assert_eq!(outcome, Ok(1), "the wait for a child");
                if let Some(status) = child.try_wait().expect("the child's status") {
                    return Some(status);
                }
                thread::sleep(RELEASE);
                waited += RELEASE;
            }
        }
    }
    None
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the folder of the example site.
pub fn journal() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/journal")
}

/// The result of an `anthill` command.
#[derive(Debug)]
pub struct Done {
    /// The exit code, or None if a signal ended the command.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `anthill` with the arguments until the command ends.
pub fn anthill<A: AsRef<OsStr>>(arguments: &[A]) -> Done {
    let mut command = Command::new(program());
    command.args(arguments);
    finish(command, b"")
}

/// Runs a command with `input` on its standard input until the command ends or [`CLIENT`] expires. Kills
/// the whole process group at the deadline, because a surviving child process would keep the pipes open.
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

/// Returns the server's spooled request bodies: unlinked files, found through the descriptors below
/// `/proc`.
pub fn spooled_bodies(server: &Server) -> Vec<PathBuf> {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("descriptors");
    let paths = open.filter_map(|fd| Some(fd.ok()?.path()));
    let is_kept = |path: &PathBuf| {
        let link = fs::read_link(path).map(|link| link.display().to_string());
        link.is_ok_and(|name| name.contains("/state/") && name.ends_with("(deleted)"))
    };
    paths.filter(is_kept).collect()
}

/// Waits until a body of `bytes` bytes is spooled, and truncates its file.
pub fn truncate_spooled_body(server: &Server, bytes: u64) {
    let is_whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == bytes);
    let kept = eventually("a body that is whole", || {
        spooled_bodies(server).into_iter().find(is_whole)
    });
    let file = fs::OpenOptions::new().write(true).open(kept);
    file.and_then(|file| file.set_len(0)).expect("emptied");
}

/// Calls `look` repeatedly until `look` returns a value. Fails after [`START`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + START;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "the deadline passed without {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

impl Server {
    /// Runs `anthill COMMAND` with the server's configuration.
    pub fn ask(&self, arguments: &[&str]) -> Done {
        let config = self.folder.path("anthill.toml");
        let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        all.push(config.as_os_str());
        anthill(&all)
    }

    /// Writes another configuration, reloads the server, and returns the output. The reload must succeed.
    pub fn reload(&self, config: &str) -> String {
        self.folder.write("anthill.toml", config);
        let done = self.ask(&["reload"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    }

    /// Ends the server and returns its folder for another server.
    pub fn into_folder(mut self) -> Folder {
        std::mem::replace(&mut self.folder, Folder::new())
    }

    /// Opens a persistent plain connection.
    pub fn keep_alive(&self) -> KeepAlive<TcpStream> {
        KeepAlive::new(self.connect())
    }

    /// Opens a persistent TLS connection.
    pub fn keep_alive_tls(&self) -> KeepAlive<Tls> {
        let stream = TcpStream::connect(("127.0.0.1", self.https_port)).expect("a connection");
        stream
            .set_read_timeout(Some(READ))
            .expect("a read time-out");
        stream.set_nodelay(true).expect("no delay");
        let name = "localhost".try_into().expect("a server name");
        let client = rustls::ClientConnection::new(client_config(), name).expect("a TLS client");
        KeepAlive::new(Tls::new(client, stream))
    }
}

/// A client's TLS connection.
pub type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// Returns a client configuration that accepts any certificate.
fn client_config() -> Arc<rustls::ClientConfig> {
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

/// A persistent connection for one request after another.
pub struct KeepAlive<S: Read + Write>(BufReader<S>);

/// One response.
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

    /// Sends a GET and returns the response, which must have a Content-Length. Returns None if the
    /// connection closed before the first byte of the response, where a client may repeat the request on
    /// another connection.
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

    /// Sends a GET and returns the response. Fails if the connection is closed.
    pub fn get(&mut self, path: &str) -> Got {
        self.try_get(path)
            .unwrap_or_else(|| panic!("{path}: the connection was closed"))
    }

    /// Waits for the server to close. Returns true if no byte arrived before the end.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest.is_empty()
    }
}

impl Folder {
    /// Returns a folder in memory, where many files are created quickly, or an ordinary temporary folder if
    /// the machine has no `/dev/shm`.
    pub fn in_memory() -> Folder {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Folder::new(), Folder)
    }

    /// Returns a folder outside of `/dev`, where a configuration may be read from a pipe. The temporary folders of
    /// `make test` are below `/dev/shm`.
    pub fn on_disk() -> Folder {
        Folder(tempfile::tempdir_in("/var/tmp").expect("a temporary folder"))
    }
}

/// Ends the loops of other threads when a test's scope ends, also by a failed assertion: a scope waits
/// for all its threads, so a loop without an end would hang the test.
pub struct EndOnDrop<'f>(pub &'f std::sync::atomic::AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
