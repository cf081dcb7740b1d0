//! Requests after a change on disk: the server notices files made by every system call, and no request
//! after the return of rename(2) gets the old file.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::lifecycle::{in_own_mounts, is_root};
use crate::support::h2::H2;
use crate::support::wire::{Over, Wire};
use crate::support::{
    EndOnDrop, Folder, KeepAlive, Server, anthill, eventually, finish, lossy, run, server_table,
    site_table, spawn, tool,
};

/// Number of files for each system call.
const FILES: usize = 200;
/// Number of mounts on served folders; each mount runs four programs.
const MOUNTS: usize = 20;
/// Number of renames in each round.
const RENAMES: usize = 150;

/// A Python program that makes files. The writer is a separate process, because a descriptor of the test
/// process may be inherited for a moment by a program of another test, and the server takes a file as whole
/// only after its last writer has closed the file.
const WRITER: &str = r#"
import fcntl, mmap, os, sys

def put(path, text, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags, 0o644)
    os.write(fd, text)
    os.close(fd)

def beside(path):
    return os.path.join(os.path.dirname(path), '.beside')

def write(path, text):
    put(path, text)

def in_place(path, text):
    fd = os.open(path, os.O_WRONLY)
    os.ftruncate(fd, 0)
    os.write(fd, text)
    os.close(fd)

def rename(path, text):
    put(beside(path), text)
    os.rename(beside(path), path)

def link(path, text):
    put(beside(path), text)
    os.link(beside(path), path)
    os.unlink(beside(path))

def name_it(fd, path):
    # With a folder's descriptor, os.link() calls linkat(2), and linkat(2) follows the link.
    here = os.open('.', os.O_RDONLY)
    os.link('/proc/self/fd/%d' % fd, path, src_dir_fd=here, follow_symlinks=True)
    os.close(here)
    os.close(fd)

def tmpfile(path, text):
    fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(fd, text)
    # Read-only from here on, as linkat(2) doesn't wait for the writer.
    name = '/proc/self/fd/%d' % fd
    reading = os.open(name, os.O_RDONLY)
    os.close(fd)
    name_it(reading, path)

def tmpfile_open(path, text):
    fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o644)
    os.write(fd, text)
    name_it(fd, path)

def outside(path, text):
    name = 'outside/' + os.path.basename(path)
    put(name, text)
    os.link(name, path)

def through_outside(path, text):
    put('outside/' + os.path.basename(path), text)

def reflink(path, text):
    put(beside(path), text)
    source = os.open(beside(path), os.O_RDONLY)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    fcntl.ioctl(fd, 0x40049409, source)
    os.close(fd)
    os.close(source)

def mapped(path, text):
    fd = os.open(path, os.O_RDWR)
    os.ftruncate(fd, len(text))
    memory = mmap.mmap(fd, len(text))
    os.close(fd)
    memory[:] = text
    memory.close()

for line in sys.stdin:
    way, path, text = line.rstrip('\n').split(' ', 2)
    try:
        globals()[way](path, text.encode())
        print('done', flush=True)
    except OSError as error:
        print(error, flush=True)
"#;

struct Writer {
    python: Child,
    said: BufReader<ChildStdout>,
}

impl Writer {
    /// Starts a writer in the folder of the server, as seen in the server's mount namespace.
    fn new(server: &Server) -> Writer {
        let folder = server.folder.path(".").canonicalize().expect("a folder");
        let below = folder.strip_prefix("/").expect("absolute");
        let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
        let mut python = Command::new(tool("python3"));
        python.args(["-c", WRITER]).current_dir(root.join(below));
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = spawn(&mut python).expect("a writer");
        let said = BufReader::new(python.stdout.take().expect("its output"));
        Writer { python, said }
    }

    /// Makes a file at `path` with the given system call, and returns when the file exists. The error is
    /// the system's message.
    fn try_make(&mut self, way: &str, path: &str, text: &str) -> Result<(), String> {
        let stdin = self.python.stdin.as_mut().expect("its input");
        writeln!(stdin, "{way} {path} {text}").expect("taken");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("a line");
        match line.trim_end() {
            "done" => Ok(()),
            why => Err(why.to_owned()),
        }
    }

    fn make(&mut self, way: &str, path: &str, text: &str) {
        let made = self.try_make(way, path, text);
        assert_eq!(made, Ok(()), "{way} {path}");
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.python.stdin.take());
        let _ = self.python.wait();
    }
}

fn config(workers: usize, more: &str) -> String {
    let server = server_table("").replace("workers = 1", &format!("workers = {workers}"));
    server + "[log]\naccess = \"off\"\n" + &site_table(&format!("http = \"serve\"\n{more}"))
}

/// Makes [`FILES`] changes with the given system call, sends two requests after each change, and counts the
/// responses without the new file.
fn assert_found(server: &Server, writer: &mut Writer, way: &str, folder: &str, is_new: bool) {
    let mut client = server.keep_alive();
    let mut missed = [0, 0];
    for round in 0..FILES {
        let name = if is_new { round } else { 0 };
        let text = format!("{way} {round}");
        let path = format!("/{folder}{way}-{name}");
        writer.make(way, &format!("public{path}"), &text);
        for missed in &mut missed {
            let got = client.get(&path);
            *missed += usize::from(got.status != 200 || got.text() != text);
        }
    }
    println!("{folder}{way}: {missed:?} of {FILES} at the first and the second request");
    assert_eq!(
        missed[1], 0,
        "{folder}{way}: not found at the second request"
    );
}

/// The server starts as root and switches to an account that does not own the files, as is usual for a site
/// deployed by another account. Programs started by the server do not inherit the capabilities that the
/// server keeps.
#[test]
fn a_file_of_another_user_is_found() {
    if !is_root() {
        return;
    }
    let folder = Folder::new().with("public/index.html", "front");
    folder.write("outside/here", "");
    let user = "workers = 1\nuser = \"nobody\"";
    let text = config(1, "").replace("workers = 1", user);
    let text = text.replace("\"anthill.sock\"", "\"state/x.sock\"");
    let server = Server::start_in(folder, &text);
    let mut writer = Writer::new(&server);
    for way in [
        "write",
        "rename",
        "link",
        "tmpfile",
        "tmpfile_open",
        "outside",
    ] {
        assert_found(&server, &mut writer, way, "", true);
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("readable");
    let of = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    // CAP_LEASE is capability 28 (capabilities(7)).
    for name in ["CapPrm:", "CapEff:"] {
        assert_eq!(of(name), Some("0000000010000000"), "{name} {status}");
    }
    for name in ["CapInh:", "CapAmb:"] {
        assert_eq!(of(name), Some("0000000000000000"), "{name} {status}");
    }
}

#[test]
fn a_file_is_found_after_any_system_call_that_makes_files() {
    let folder = Folder::new().with("public/index.html", "front");
    folder.write("outside/here", "");
    let server = Server::start_in(folder, &config(1, ""));
    let mut writer = Writer::new(&server);
    for way in [
        "write",
        "rename",
        "link",
        "tmpfile",
        "tmpfile_open",
        "outside",
    ] {
        assert_found(&server, &mut writer, way, "", true);
    }
    for way in ["in_place", "mapped", "rename", "write"] {
        writer.make("write", &format!("public/{way}-0"), "before");
        assert_found(&server, &mut writer, way, "", false);
    }
    match writer.try_make("reflink", "public/reflink", "text") {
        Ok(()) => assert_found(&server, &mut writer, "reflink", "", true),
        Err(why) => println!("reflink: not tested, because this file system has none: {why}"),
    }
}

/// Without CAP_LEASE the server cannot know whether another user's file is complete. A new file is taken
/// after 0.4 s without a change, even under continuous requests. The test waits for at least 5 s.
#[test]
fn continuous_requests_do_not_delay_a_new_file() {
    if !is_root() {
        return;
    }
    let folder = Folder::new().with("public/index.html", "front");
    let owner = std::os::unix::fs::chown(folder.path("."), Some(65_534), Some(65_534));
    owner.expect("given away");
    let mut command = Command::new(tool("setpriv"));
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--inh-caps=-all", "--bounding-set=-all"])
        .arg(crate::support::program());
    let server = Server::start_by(command, folder, &config(1, ""));
    let mut client = server.keep_alive();
    for nth in 0..5 {
        let path = format!("/new-{nth}/below/page");
        server.folder.write(&format!("public{path}"), "whole");
        let mut asked = 0;
        while client.get(&path).status != 200 {
            asked += 1;
            assert!(asked < 100, "{path} is not found");
            thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Returns the error of a process that tries the mounts in its own namespace, or None if the machine allows
/// the mounts.
fn mount_error(folder: &Folder, mounts: &str) -> Option<String> {
    let mut command = Command::new(tool("unshare"));
    command.arg(if is_root() { "-m" } else { "-Urm" });
    command.args(["sh", "-ec", &format!("cd \"$0\"; {mounts}")]);
    command.arg(folder.path("."));
    let done = finish(command, b"");
    (done.code != Some(0)).then_some(done.stderr)
}

const BIND: &str = "mkdir -p other public/bound; mount --bind other public/bound";
const OVERLAY: &str = "mkdir -p layers public/over; mount -t tmpfs none layers; \
    mkdir layers/lower layers/upper layers/work; \
    for nth in 0 1 2 3; do echo old > layers/lower/low-$nth; done; mount -t overlay none \
    -o lowerdir=layers/lower,upperdir=layers/upper,workdir=layers/work public/over";

/// Runs a command in the server's mount namespace, in the server's folder.
fn run_in_namespace(server: &Server, words: &str) {
    let pid = server.pid().to_string();
    let mut arguments = vec!["-t", &pid, "-m"];
    if !is_root() {
        arguments.extend(["-U", "--preserve-credentials"]);
    }
    let folder = server.folder.path(".");
    let folder = folder.to_str().expect("text");
    let words = format!("cd '{folder}'; {words}");
    arguments.extend(["sh", "-ec", &words]);
    let ran = run("nsenter", &arguments, b"");
    assert!(ran.success, "{words}: {}", ran.errors());
}

#[test]
fn a_file_is_found_below_a_mount() {
    let folder = Folder::new().with("public/index.html", "front");
    if let Some(why) = mount_error(&folder, BIND) {
        return println!("bind mounts: not tested, because the machine allows none: {why}");
    }
    folder.write("anthill.toml", config(1, ""));
    let command = in_own_mounts(&folder, BIND);
    let server = Server::launch(folder, command);
    let mut writer = Writer::new(&server);
    for way in ["write", "rename", "link"] {
        assert_found(&server, &mut writer, way, "bound/", true);
    }
    // The writer changes files through the other name of the bind-mounted folder.
    let mut client = server.keep_alive();
    let mut missed = 0;
    for round in 0..FILES {
        let text = format!("other {round}");
        writer.make("link", &format!("other/page-{round}"), &text);
        client.get(&format!("/bound/page-{round}"));
        let got = client.get(&format!("/bound/page-{round}"));
        missed += usize::from(got.text() != text);
    }
    assert_eq!(missed, 0, "through the other name");
    // inotify does not report mounts, neither over a served folder nor in a new place.
    run_in_namespace(&server, "mkdir third; echo late > third/page");
    let mut missed = 0;
    for round in 0..MOUNTS {
        let place = format!("late-{round}");
        run_in_namespace(&server, &format!("mkdir public/{place}"));
        assert_eq!(client.get(&format!("/{place}/page")).status, 404);
        run_in_namespace(&server, &format!("mount --bind third public/{place}"));
        client.get(&format!("/{place}/page"));
        let got = client.get(&format!("/{place}/page"));
        missed += usize::from(got.text() != "late\n");
        run_in_namespace(
            &server,
            &format!("umount public/{place}; rmdir public/{place}"),
        );
    }
    assert_eq!(missed, 0, "mounted while it is served");
}

#[test]
fn a_file_is_found_in_an_overlay() {
    let folder = Folder::new().with("public/index.html", "front");
    if let Some(why) = mount_error(&folder, OVERLAY) {
        return println!("overlays: not tested, because the machine allows none: {why}");
    }
    folder.write("anthill.toml", config(1, ""));
    let command = in_own_mounts(&folder, OVERLAY);
    let server = Server::launch(folder, command);
    let mut writer = Writer::new(&server);
    for way in ["write", "rename", "link"] {
        assert_found(&server, &mut writer, way, "over/", true);
    }
    // inotify does not report a new file in the lower layer.
    let mut client = server.keep_alive();
    let mut missed = 0;
    for round in 0..FILES {
        let text = format!("lower {round}");
        writer.make("write", &format!("layers/lower/page-{round}"), &text);
        client.get(&format!("/over/page-{round}"));
        let got = client.get(&format!("/over/page-{round}"));
        missed += usize::from(got.text() != text);
    }
    println!("lower layer: {missed} of {FILES} missed at the second request");
    // The server finds a changed file of the lower layer by a comparison with the disk every few seconds.
    for nth in 0..4 {
        let path = format!("/over/low-{nth}");
        assert_eq!(client.get(&path).text(), "old\n");
        writer.make(
            "write",
            &format!("layers/lower/low-{nth}"),
            "new and longer",
        );
        until(&mut client, &path, "new and longer");
    }
}

fn until(client: &mut KeepAlive<TcpStream>, path: &str, text: &str) {
    let begun = std::time::Instant::now();
    eventually(&format!("`{text}` at {path}"), || {
        (client.get(path).text() == text).then_some(())
    });
    println!("{path}: {text} after {:?}", begun.elapsed());
}

/// inotify reports a write through another hard link only for the folder of the written link.
#[test]
fn a_change_through_a_hard_link_outside_of_the_root_is_found_within_seconds() {
    let folder = Folder::new().with("public/index.html", "front");
    folder.write("outside/here", "");
    let server = Server::start_in(folder, &config(2, ""));
    let mut writer = Writer::new(&server);
    let mut client = server.keep_alive();
    for round in 0..5 {
        let path = format!("/outside-{round}");
        writer.make("outside", &format!("public{path}"), "old");
        assert_eq!(client.get(&path).text(), "old");
        writer.make(
            "through_outside",
            &format!("public{path}"),
            "new and longer",
        );
        until(&mut client, &path, "new and longer");
    }
}

/// Protocols and connections of requests.
const OVER: [&str; 4] = ["kept", "new", "kept TLS", "HTTP/2"];

/// Returns a function that sends a GET with the given protocol and connection.
fn get<'s>(server: &'s Server, over: &str) -> Box<dyn FnMut(&str) -> String + 's> {
    match over {
        "kept" => {
            let mut kept = server.keep_alive();
            Box::new(move |path| kept.get(path).text())
        }
        "new" => Box::new(|path| server.keep_alive().get(path).text()),
        "kept TLS" => {
            let mut tls = Wire::over(server, Over::Tls);
            Box::new(move |path| lossy(&tls.get(path, "").body))
        }
        _ => {
            let mut h2 = H2::open(server, Over::Tls);
            Box::new(move |path| lossy(&h2.get(path).body))
        }
    }
}

fn assert_none_is_stale(workers: usize) {
    let server = Server::start_in(
        Folder::new()
            .with("public/index.html", "front")
            .with("public/other", "other"),
        &config(workers, ""),
    );
    let mut writer = Writer::new(&server);
    let is_over = AtomicBool::new(false);
    for is_loaded in [false, true] {
        thread::scope(|scope| {
            let _end = EndOnDrop(&is_over);
            let load = || {
                let mut client = server.keep_alive();
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(client.get("/other").text(), "other");
                }
            };
            is_over.store(false, Ordering::Relaxed);
            for _ in 0..if is_loaded { 4 } else { 0 } {
                scope.spawn(load);
            }
            for over in OVER {
                let mut get = get(&server, over);
                let mut stale = 0;
                for round in 0..RENAMES {
                    let text = format!("{over} {is_loaded} {round}");
                    writer.make("rename", "public/page", &text);
                    stale += usize::from(get("/page") != text);
                }
                println!(
                    "{workers} workers, loaded {is_loaded}, {over}: {stale} of {RENAMES} stale"
                );
                assert_eq!(stale, 0, "{workers} workers, loaded {is_loaded}, {over}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn no_request_after_a_rename_gets_the_old_file() {
    assert_none_is_stale(1);
    assert_none_is_stale(2);
}

/// The cases are the index of a folder, a page by its clean URL, a compressed sidecar and an error page.
#[test]
fn a_rename_is_seen_by_every_name_of_a_page() {
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("public/404.html", "old");
    let errors = "errors = { 404 = \"404.html\" }\ntry = [\"$path\", \"$path.html\"]";
    let server = Server::start_in(folder, &config(2, errors));
    let mut writer = Writer::new(&server);
    let mut client = server.keep_alive();
    let mut stale = Vec::new();
    writer.make("rename", "public/clean.html", "clean");
    for round in 0..RENAMES {
        let text = format!("text {round}");
        for (file, path) in [
            ("index.html", "/"),
            ("clean.html", "/clean"),
            ("404.html", "/nothing"),
        ] {
            writer.make("rename", &format!("public/{file}"), &text);
            let got = client.get(path).text();
            if got != text {
                stale.push((path, text.clone(), got));
            }
        }
    }
    assert!(stale.is_empty(), "{stale:?}");
    // The new file takes precedence over the file served before at the path.
    writer.make("rename", "public/clean", "first");
    assert_eq!(client.get("/clean").text(), "first");
}

/// One page changes continuously while another program fills a folder next to the page.
#[test]
fn a_page_is_fresh_in_a_storm_of_changes() {
    let server = Server::start_in(
        Folder::new()
            .with("public/index.html", "front")
            .with("public/storm/first", "first"),
        &config(2, ""),
    );
    let mut writer = Writer::new(&server);
    let mut client = server.keep_alive();
    let mut stale = 0;
    for round in 0..RENAMES {
        for nth in 0..20 {
            writer.make("write", &format!("public/storm/{round}-{nth}"), "text");
        }
        let text = format!("text {round}");
        writer.make("rename", "public/page", &text);
        stale += usize::from(client.get("/page").text() != text);
        assert_eq!(client.get("/").text(), "front");
        assert_eq!(client.get(&format!("/storm/{round}-19")).text(), "text");
    }
    assert_eq!(stale, 0);
}

#[test]
fn a_rewrite_may_lead_into_the_folder_of_another_route() {
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("more/page.html", "a page of the other folder")
        .with("more/deep/index.html", "deep")
        .with("more/run.sh", "echo secret")
        .with("closed/page", "closed");
    let routes = "[[site.route]]\npath = \"/more/\"\nroot = \"more\"\n\
        [[site.route]]\npath = \"/closed/\"\nroot = \"closed\"\nallow = []\n\
        [[site.route]]\npath = \"/one\"\nrewrite = \"/more/page.html\"\n\
        [[site.route]]\npath = \"/all/\"\nrewrite = \"/more/\"\n\
        [[site.route]]\npath = \"/shut/\"\nrewrite = \"/closed/\"\n\
        [[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n";
    let server = Server::start_in(folder, &(config(1, "") + routes));
    let mut client = server.keep_alive();
    for (path, status, text) in [
        ("/one", 200, "a page of the other folder"),
        ("/all/page.html", 200, "a page of the other folder"),
        ("/all/deep/", 200, "deep"),
        ("/all/nothing", 404, ""),
        // A guard protects the folder under each of its names.
        ("/shut/page", 403, ""),
        ("/closed/page", 403, ""),
    ] {
        let got = client.get(path);
        assert_eq!(got.status, status, "{path}: {got:?}");
        assert!(got.text().contains(text), "{path}: {got:?}");
    }
    let got = client.get("/all/deep");
    assert!(got.head.contains("Location: /all/deep/\r\n"), "{got:?}");
    for path in ["/all/run.sh", "/more/run.sh"] {
        let got = client.get(path);
        assert!(
            got.status != 200 && !got.text().contains("secret"),
            "{got:?}"
        );
    }
}

#[test]
fn check_reports_a_rewrite_to_an_absent_target() {
    let folder = Folder::new()
        .with("more/page", "page")
        .with("public/file", "text");
    let site = site_table("")
        + "[[site.route]]\npath = \"/more/\"\nroot = \"more\"\n\
        [[site.route]]\npath = \"/good/\"\nrewrite = \"/more/\"\n\
        [[site.route]]\npath = \"/moved\"\nredirect = \"/more/\"\n\
        [[site.route]]\npath = \"/file\"\nredirect = \"/more/\"\n\
        [[site.route]]\npath = \"/to-file\"\nrewrite = \"/file\"\n\
        [[site.route]]\npath = \"/to-moved\"\nrewrite = \"/moved\"\n\
        [[site.route]]\npath = \"/to-rewritten\"\nrewrite = \"/good/page\"\n";
    folder.write("anthill.toml", server_table("") + &site);
    let done = anthill(&[PathBuf::from("check"), folder.path("anthill.toml")]);
    let said = format!("{}{}", done.stdout, done.stderr);
    assert_eq!(done.code, Some(0), "{said}");
    for rewrite in [
        "/to-moved leads to /moved",
        "/to-rewritten leads to /good/page",
    ] {
        assert!(
            said.contains(&format!("the rewrite of {rewrite}")),
            "{said}"
        );
    }
    assert_eq!(said.matches("the rewrite of").count(), 2, "{said}");
}
