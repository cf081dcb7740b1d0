//! Edits of balancers and members: kept over reloads and restarts, undone, and refused in words.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::lifecycle::in_own_mounts;
use crate::members::{Load, PAGE_BYTES};
use crate::support::fault::Fault;
use crate::support::member::{Answer, Member, ok};
use crate::support::programs::free_port;
use crate::support::wire::Wire;
use crate::support::{
    Done, Folder, Server, eventually, run, server_table, site_table, spawn, tool,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a configuration with a route `/` to the balancer `app` with the members, each an item of TOML.
fn config(members: &[String], keys: &str) -> String {
    format!(
        "{}[[balancer]]\nname = \"app\"\nmembers = [{}]\n{keys}\n{}[[site.route]]\npath = \"/\"\nbalance = \"app\"\n",
        server_table(""),
        members.join(", "),
        site_table("http = \"serve\"\n")
    )
}

/// Returns the items of members without keys.
fn items(members: &[&Member]) -> Vec<String> {
    let urls = members.iter().map(|member| format!("\"{}\"", member.url()));
    urls.collect()
}

fn member(name: &'static str) -> Member {
    Member::start(move |_| ok(name))
}

/// Runs `anthill balancer`, which must succeed.
fn edit(server: &Server, words: &[&str]) -> String {
    let done = balancer(server, words);
    assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
    done.stdout
}

/// Runs `anthill balancer`, which must fail.
fn refused(server: &Server, words: &[&str]) -> String {
    let done = balancer(server, words);
    assert_eq!(done.code, Some(1), "{words:?}: {done:?}");
    done.stderr
}

fn balancer(server: &Server, words: &[&str]) -> Done {
    server.ask(&[&["balancer"], words].concat())
}

/// Returns the contents of `count` requests, one after another, in their order of the alphabet.
fn contents(server: &Server, count: usize) -> String {
    let mut wire = Wire::plain(server);
    let mut all: Vec<String> = (0..count).map(|_| wire.get("/", "").text()).collect();
    all.sort_unstable();
    all.concat()
}

/// Kills the server, and starts another server in the folder.
fn restart(server: Server, config: &str) -> Server {
    Server::start_in(server.into_folder(), config)
}

/// Returns the path of the state file.
fn state_file(folder: &Folder) -> PathBuf {
    let files = fs::read_dir(folder.path("state")).expect("the state folder");
    let mut files = files.map(|file| file.expect("a file").path());
    let found = files.find(|file| file.extension().is_some_and(|it| it == "edits"));
    found.expect("a state file")
}

#[test]
fn edits_hold_over_reloads_and_restarts_and_yield_to_the_file() {
    let (a, b) = (member("a"), member("b"));
    let file = config(&items(&[&a, &b]), "");
    let server = Server::start(&file);
    let said = edit(&server, &["set", "app", &a.url(), "weight=3", "set=0"]);
    let line = format!("app: {}: weight changed from 1 to 3 (entry 1)\n", a.url());
    assert_eq!(said, line);
    edit(&server, &["disable", "app", &b.url()]);
    edit(&server, &["set", "app", "method=bybusyness", "attempts=1"]);
    let unchanged = edit(&server, &["set", "app", &a.url(), "weight=3.00"]);
    assert_eq!(
        unchanged,
        "nothing changed: the values are in force already\n"
    );
    assert_eq!(contents(&server, 4), "aaaa");
    server.reload(&file);
    assert_eq!(contents(&server, 4), "aaaa");
    let server = restart(server, &file);
    assert_eq!(contents(&server, 4), "aaaa");
    let list = edit(&server, &["list"]);
    assert!(list.starts_with("app: bybusyness\n"), "{list}");
    let history = edit(&server, &["history", "--json", "app"]);
    let root = format!("\"user\":\"{} (control socket)\"", user());
    assert!(history.contains(&root), "{history}");
    assert_eq!(history.matches("\"id\":").count(), 4, "{history}");
    // The file changes the status of `b`: the edit yields.
    let changed = format!("{{ url = \"{}\", status = \"draining\" }}", b.url());
    let draining = config(&[items(&[&a]).remove(0), changed], "");
    server.reload(&draining);
    server.errors.wait_for("the log line", |line| {
        line.contains("an edit yields to anthill.toml: app: ")
            && line.ends_with("state changed from disabled to draining")
    });
    let history = edit(&server, &["history"]);
    let line = "anthill.toml: app: http://127.0.0.1:";
    assert!(
        history.lines().next().is_some_and(|it| it.contains(line)),
        "{history}"
    );
    assert!(
        history.contains("state changed from disabled to draining"),
        "{history}"
    );
    server.reload(&file);
    assert_eq!(contents(&server, 8), "aaaaaabb");
    let differences = edit(&server, &["differences"]);
    assert!(!differences.contains("state is"), "{differences}");
    // An edit of a stopped server yields too.
    let folder = server.into_folder();
    let server = Server::start_in(folder, &config(&items(&[&b]), "method = \"p2c\""));
    let differences = edit(&server, &["differences"]);
    assert!(
        differences.starts_with("app: attempts is 1 instead of 3, by "),
        "{differences}"
    );
    assert_eq!(
        differences.matches("instead of").count(),
        1,
        "{differences}"
    );
}

/// Returns the name of the user of the test.
fn user() -> String {
    let done = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

#[test]
fn each_entry_can_be_undone() {
    let (a, b) = (member("a"), member("b"));
    let server = Server::start(&config(&items(&[&a, &b]), ""));
    edit(&server, &["drain", "app", &a.url()]);
    assert_eq!(contents(&server, 2), "bb");
    edit(&server, &["undo", "1"]);
    assert_eq!(contents(&server, 2), "ab");
    assert!(edit(&server, &["differences"]).starts_with("no edit is in force"));
    let again = refused(&server, &["undo", "1"]);
    assert!(again.contains("entry 1 is undone by entry 2"), "{again}");
    let unknown = refused(&server, &["undo", "77"]);
    assert!(unknown.contains("the entries are 1 to 2"), "{unknown}");
    edit(&server, &["remove", "app", &a.url()]);
    assert_eq!(contents(&server, 2), "bb");
    edit(&server, &["undo", "3"]);
    assert_eq!(contents(&server, 2), "ab");
}

#[test]
fn wrong_edits_are_refused_in_words_and_change_nothing() {
    let a = member("a");
    // Port 0 stands for a free port, so only a fixed port is known as the server's own.
    let port = free_port();
    let http = format!("http = [\"127.0.0.1:{port}\"]");
    let file = config(&items(&[&a]), "").replace("http = [\"127.0.0.1:0\"]", &http);
    let server = Server::start(&file);
    let own = format!("http://localhost:{port}");
    let url = a.url();
    for (words, message) in [
        (
            &["set", "app", &url, "weight=2", "set=100"][..],
            "`set` can't be `100`",
        ),
        (&["set", "app", &url, "wight=2"], "did you mean `weight`?"),
        (&["set", "app", "weight=2"], "write MEMBER after BALANCER"),
        (&["set", "ap", "method=p2c"], "did you mean `app`?"),
        (
            &["set", "app", "127.0.0.1:1", "weight=2"],
            "no member `127.0.0.1:1`",
        ),
        (&["add", "app", &url], "is a member of `app` already"),
        (&["add", "app", &own], "the member is this server"),
        (&["add", "app", "http://a.test/path"], "has a path"),
        (
            &["add", "app", "http://unix:/run/a.sock"],
            "a Unix socket can't be added",
        ),
        (
            &["remove", "app", &url],
            "the last member of `app` can't be removed",
        ),
        (&["undo", "1"], "the history of edits is empty"),
    ] {
        let said = refused(&server, words);
        assert!(said.contains(message), "{words:?}: {said}");
    }
    for words in [&["set", "app"][..], &["undo", "x"], &["set", "app", &url]] {
        let done = server.ask(&[&["balancer"], words].concat());
        assert_eq!(done.code, Some(2), "{words:?}: {done:?}");
    }
    assert_eq!(
        edit(&server, &["history"]),
        "the history of edits is empty\n"
    );
    assert_eq!(contents(&server, 1), "a");
}

#[test]
fn members_join_and_leave_without_a_failed_request() {
    let page = || ok(vec![b'p'; PAGE_BYTES]);
    let first = Member::start(move |request| {
        if request.line().contains("/ws") {
            Answer::Keep(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                .to_vec(),
        )
        } else {
            page()
        }
    });
    let second = Member::start(move |_| page());
    let file = config(&items(&[&first]), "");
    let server = Server::start(&file);
    let mut tunnel = Wire::plain(&server);
    tunnel.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(tunnel.response("GET").status, 101);
    let mut idle = Wire::plain(&server);
    assert_eq!(idle.get("/", "").status, 200);
    let load = Load::start(&server, 4, "GET");
    load.wait_for(50);
    let url = second.url();
    for nth in 0..5 {
        edit(&server, &["add", "app", &url]);
        edit(&server, &["enable", "app", &url]);
        load.wait_for(10);
        edit(
            &server,
            &["set", "app", &url, &format!("weight={}", nth + 2)],
        );
        server.reload(&file);
        edit(&server, &["remove", "app", &url]);
        server.reload(&file);
        load.wait_for(10);
    }
    for nth in 0..10 {
        edit(
            &server,
            &["set", "app", &first.url(), &format!("weight={}", nth + 2)],
        );
        server.reload(&file);
    }
    load.wait_for(50);
    assert_eq!(load.end(), 0);
    assert!(!second.requests().is_empty());
    // The first member has one connection for each of the 4 concurrent requests, for the tunnel and for the idle
    // client. Closed connections would have been replaced by new connections.
    let connections = first.connections();
    assert!(connections <= 6, "{connections} connections");
    assert_eq!(idle.get("/", "").status, 200);
    tunnel.send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(tunnel.response("GET").status, 200);
}

#[test]
fn an_added_member_is_disabled_first_and_stays_over_a_restart() {
    let (a, b) = (member("a"), member("b"));
    let file = config(&items(&[&a]), "");
    let server = Server::start(&file);
    edit(&server, &["add", "app", &b.url()]);
    assert_eq!(contents(&server, 2), "aa");
    edit(
        &server,
        &["set", "app", &b.url(), "state=enabled", "route=b"],
    );
    assert_eq!(contents(&server, 2), "ab");
    edit(&server, &["remove", "app", &a.url()]);
    let server = restart(server, &file);
    assert_eq!(contents(&server, 2), "bb");
    // The lines of the differences make the edits part of the file.
    let differences = edit(&server, &["differences"]);
    let (_, lines) = differences.split_once("\"app\":\n").expect("lines");
    assert!(
        lines.contains(&format!("{{ url = \"{}\", route = \"b\" }}", b.url())),
        "{lines}"
    );
    let pasted = config(&[], lines).replace("members = []\n", "");
    server.folder.write("anthill.toml", &pasted);
    let checked = server.ask(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    server.reload(&pasted);
    assert!(edit(&server, &["differences"]).starts_with("no edit is in force"));
    assert_eq!(contents(&server, 2), "bb");
}

#[test]
fn requests_under_way_at_a_removed_member_complete() {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let slow = Member::start(move |_| {
        let _ = gate.lock().expect("the gate").recv();
        ok("slow")
    });
    let other = member("b");
    let server = Server::start(&config(&items(&[&slow, &other]), ""));
    let mut wire = Wire::plain(&server);
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    slow.wait_for(1);
    edit(&server, &["remove", "app", &slow.url()]);
    assert_eq!(contents(&server, 3), "bbb");
    release.send(()).expect("a waiting member");
    assert_eq!(wire.response("GET").text(), "slow");
}

/// Ctrl-C ends the wait for a drained member, and the member stays drained.
#[test]
fn an_interrupted_wait_says_what_stays() {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let slow = Member::start(move |_| {
        let _ = gate.lock().expect("the gate").recv();
        ok("slow")
    });
    let other = member("b");
    let server = Server::start(&config(&items(&[&slow, &other]), ""));
    let mut wire = Wire::plain(&server);
    wire.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    slow.wait_for(1);
    let file = server.folder.path("anthill.toml");
    let url = slow.url();
    let mut command = Command::new(crate::support::program());
    command.args(["balancer", "drain", "app", &url, "--wait", "5m"]);
    command
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let waiting = spawn(&mut command).expect("anthill");
    let changes = |line: &str, states: &str| line.contains(&url) && line.contains(states);
    server.errors.wait_for("a drained member", |line| {
        changes(line, "changed from up to draining")
    });
    let pid = waiting.id().to_string();
    assert!(run("kill", &["-INT", &pid], b"").success);
    let done = waiting.wait_with_output().expect("the output");
    assert_eq!(done.status.code(), Some(130), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr);
    let stays = format!("{url} of app stays draining");
    assert!(said.contains(&stays), "{said}");
    let (_, enable) = said.split_once("help: anthill ").expect("a command");
    let enable: Vec<&str> = enable.trim().split(' ').collect();
    assert_eq!(enable[..4], ["balancer", "enable", "app", &url], "{said}");
    assert_eq!(enable[4], file.display().to_string());
    edit(&server, &enable[1..4]);
    server.errors.wait_for("an enabled member", |line| {
        changes(line, "changed from draining to up")
    });
    release.send(()).expect("a waiting member");
    assert_eq!(wire.response("GET").text(), "slow");
}

#[test]
fn sessions_and_checks_follow_edits() {
    let (a, b) = (member("a"), member("b"));
    let server = Server::start(&config(&items(&[&a, &b]), ""));
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", "").field("set-cookie"), None);
    edit(&server, &["set", "app", "sticky=S signed"]);
    let response = wire.get("/", "");
    let cookie = response.field("set-cookie").expect("a cookie");
    let (cookie, _) = cookie.split_once(';').expect("attributes");
    let text = response.text();
    for _ in 0..4 {
        let again = wire.get("/", &format!("Cookie: {cookie}\r\n"));
        assert_eq!(again.text(), text);
    }
    let url = a.url();
    let values = [
        "check_method=get",
        "check_uri=/health",
        "check_interval=20ms",
    ];
    edit(&server, &[&["set", "app", &url][..], &values].concat());
    eventually("a check", || a.requests_with("/health").pop());
    edit(&server, &["set", "app", &url, "check_method=off"]);
    edit(&server, &["set", "app", &url, "check_failed=on"]);
    let list = edit(&server, &["list"]);
    assert!(list.contains("check failed"), "{list}");
}

#[test]
fn a_state_file_that_cannot_be_read_stays_and_refuses_edits() {
    let a = member("a");
    let file = config(&items(&[&a]), "");
    let server = Server::start(&file);
    edit(&server, &["set", "app", &a.url(), "weight=2"]);
    let path = state_file(&server.folder);
    let whole = fs::read(&path).expect("the file");
    let mut folder = server.into_folder();
    let later = b"anthill edits 2\nanything\n".to_vec();
    for (content, fault) in [
        (whole[..whole.len() / 2].to_vec(), "is cut off or damaged"),
        (Vec::new(), "is cut off or damaged"),
        (
            later,
            "a later version of anthill wrote the file (format 2)",
        ),
    ] {
        fs::write(&path, &content).expect("a write");
        let server = Server::start_in(folder, &file);
        assert_eq!(contents(&server, 1), "a");
        let status = server.ask(&["status"]).stdout;
        assert!(
            status.contains("edits are refused: ") && status.contains(fault),
            "{status}"
        );
        let json = server.ask(&["status", "--json"]).stdout;
        assert!(
            json.contains("\"edits\":{\"in_force\":0,\"fault\":\"edits are"),
            "{json}"
        );
        let said = refused(&server, &["set", "app", &a.url(), "weight=3"]);
        assert!(
            said.contains(fault) && said.contains("mend or remove the file"),
            "{said}"
        );
        assert_eq!(fs::read(&path).expect("the file"), content);
        // The mended file counts from the next reload on.
        fs::write(&path, &whole).expect("a write");
        server.reload(&file);
        let differences = edit(&server, &["differences"]);
        assert!(
            differences.contains("weight is 2 instead of 1"),
            "{differences}"
        );
        fs::remove_file(&path).expect("a removal");
        folder = server.into_folder();
    }
    let server = Server::start_in(folder, &file);
    edit(&server, &["set", "app", &a.url(), "weight=3"]);
}

/// Runs `anthill balancer` on a terminal, types `answer`, and returns the exit status and the output.
fn on_a_terminal(server: &Server, words: &[&str], answer: &str) -> String {
    let program = "import os, pty, sys\n\
                   pid, terminal = pty.fork()\n\
                   if pid == 0:\n\
                   \x20   os.execv(sys.argv[2], sys.argv[2:])\n\
                   os.write(terminal, sys.argv[1].encode() + b'\\n')\n\
                   said = b''\n\
                   try:\n\
                   \x20   while part := os.read(terminal, 4096): said += part\n\
                   except OSError: pass\n\
                   print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode())\n";
    let config = server.folder.path("anthill.toml").display().to_string();
    let begin = ["-c", program, answer, crate::support::program(), "balancer"];
    run("python3", &[&begin[..], words, &[&config]].concat(), b"").text()
}

#[test]
fn dangerous_edits_ask_on_a_terminal() {
    let (a, b) = (member("a"), member("b"));
    let server = Server::start(&config(&items(&[&a, &b]), ""));
    let (first, second) = (a.url(), b.url());
    let removal = ["remove", "app", &first];
    for answer in ["n", "", "no"] {
        let said = on_a_terminal(&server, &removal, answer);
        let question = format!("{first} leaves the balancer `app`. Go on? [y/N] ");
        assert!(said.starts_with("1 ") && said.contains(&question), "{said}");
        assert!(said.contains("nothing was changed"), "{said}");
    }
    // Another member is usable.
    let said = on_a_terminal(&server, &["disable", "app", &first], "n");
    assert!(said.starts_with("0 ") && !said.contains("Go on?"), "{said}");
    let said = on_a_terminal(&server, &["drain", "app", &second], "n");
    let question = format!(
        "{second} is the last usable member of the balancer `app`: without a usable member, requests get 503. Go on?"
    );
    assert!(said.starts_with("1 ") && said.contains(&question), "{said}");
    assert_eq!(contents(&server, 1), "b");
    let said = on_a_terminal(&server, &["drain", "--yes", "app", &second], "n");
    assert!(said.starts_with("0 ") && !said.contains("Go on?"), "{said}");
    let said = on_a_terminal(&server, &removal, "y");
    assert!(said.starts_with("0 ") && said.contains("Go on?"), "{said}");
    assert!(!edit(&server, &["list"]).contains(&first[7..]));
}

/// Runs a command in the mount namespace of the server.
fn in_mounts_of(server: &Server, words: &[&str]) {
    let mut command = Command::new(tool("nsenter"));
    command.args(["-t", &server.pid().to_string(), "-m"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["-U", "--preserve-credentials"]);
    }
    let status = command.args(words).status().expect("nsenter");
    assert!(status.success(), "{words:?}");
}

#[test]
fn an_edit_that_cannot_be_stored_is_refused() {
    let a = member("a");
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("state/here", "");
    let file = config(&items(&[&a]), "").replace("anthill.sock", "control.sock");
    folder.write("anthill.toml", file);
    let mounts = "mount -t tmpfs -o size=64k none state";
    let command = in_own_mounts(&folder, mounts);
    let server = Server::launch(folder, command);
    let state = server.folder.path("state").display().to_string();
    let set = |weight: &str| balancer(&server, &["set", "app", &a.url(), weight]);
    assert_eq!(set("weight=2").code, Some(0));
    let fill = format!("dd if=/dev/zero of={state}/filler bs=4k 2>/dev/null || true");
    in_mounts_of(&server, &["sh", "-c", &fill]);
    let full = set("weight=3");
    assert_eq!(full.code, Some(1), "{full:?}");
    assert!(full.stderr.contains("can't be stored"), "{full:?}");
    assert!(
        full.stderr.to_lowercase().contains("no space left"),
        "{full:?}"
    );
    let status = server.ask(&["status"]).stdout;
    assert!(status.contains("edits can't be stored: "), "{status}");
    in_mounts_of(&server, &["rm", &format!("{state}/filler")]);
    assert_eq!(set("weight=4").code, Some(0));
    assert!(!server.ask(&["status"]).stdout.contains("edits can't"));
    in_mounts_of(&server, &["mount", "-o", "remount,ro", &state]);
    let read_only = set("weight=5");
    assert!(
        read_only.stderr.to_lowercase().contains("read-only"),
        "{read_only:?}"
    );
    let differences = edit(&server, &["differences"]);
    assert!(
        differences.contains("weight is 4 instead of 1"),
        "{differences}"
    );
    assert_eq!(contents(&server, 1), "a");
}

/// Injects a fault into the call number `nth` of `call` on the state folder or on the new file.
fn inject(server: &Server, call: &str, nth: u32, fault: &str) -> Fault {
    let state = server.folder.path("state").canonicalize().expect("a path");
    let file = state_file(&server.folder);
    let name = file
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let draft = state.join(format!(".{name}.{}", server.pid()));
    Fault::inject(server, call, nth, fault, &[state, draft])
}

/// System calls that replace the state file, each with the number among the calls of its name.
const CALLS: [(&str, u32); 8] = [
    ("mkdir", 1),
    ("openat", 1),
    ("unlinkat", 1),
    ("openat", 2),
    ("write", 1),
    ("fsync", 1),
    ("renameat", 1),
    ("fsync", 2),
];

/// Returns the weight in force.
fn weight(server: &Server) -> u32 {
    let differences = edit(server, &["differences"]);
    let (_, rest) = differences.split_once("weight is ").expect("an edit");
    let (weight, _) = rest.split_once(' ').expect("a number");
    weight.parse().expect("a number")
}

#[test]
fn an_error_of_each_system_call_leaves_the_old_or_the_new_value() {
    let a = member("a");
    let file = config(&items(&[&a]), "");
    let mut server = Server::start(&file);
    edit(&server, &["set", "app", &a.url(), "weight=2"]);
    let mut failed = Vec::new();
    for (nth, (call, number)) in CALLS.into_iter().enumerate() {
        let (old, new) = (weight(&server), 3 + nth as u32);
        let fault = inject(&server, call, number, "error=ENOSPC");
        let done = balancer(&server, &["set", "app", &a.url(), &format!("weight={new}")]);
        fault.end();
        let is_stored = done.code == Some(0);
        failed.extend((!is_stored).then_some((call, number)));
        let expected = if is_stored { new } else { old };
        assert_eq!(weight(&server), expected, "{call} {number}: {done:?}");
        server = restart(server, &file);
        assert_eq!(weight(&server), expected, "{call} {number}: {done:?}");
    }
    // An error of the last sync comes after the file was replaced.
    assert_eq!(failed, CALLS[..CALLS.len() - 1]);
}

#[test]
fn a_kill_at_each_system_call_leaves_the_old_or_the_new_value() {
    let a = member("a");
    let file = config(&items(&[&a]), "");
    let mut server = Server::start(&file);
    edit(&server, &["set", "app", &a.url(), "weight=2"]);
    for (nth, (call, number)) in CALLS.into_iter().enumerate() {
        let (old, new) = (weight(&server), 3 + nth as u32);
        let fault = inject(&server, call, number, "signal=KILL");
        let done = balancer(&server, &["set", "app", &a.url(), &format!("weight={new}")]);
        assert_ne!(done.code, Some(0), "{call} {number}: {done:?}");
        let _ = server.wait(PATIENCE);
        fault.end();
        server = restart(server, &file);
        let status = server.ask(&["status"]).stdout;
        assert!(!status.contains("edits are refused"), "{status}");
        let weight = weight(&server);
        let is_renamed = matches!((call, number), ("fsync", 2));
        assert!(
            weight == new || weight == old && !is_renamed,
            "{call} {number}: {weight}"
        );
    }
}
