//! The filter and the jails for fail2ban, read by fail2ban itself.

use std::fs;
use std::process::Command;

use crate::clients::{command, wait_until};
use crate::papers::paper;
use crate::support::{Folder, Server, finish, run, server_table, tool};

const FILTER: &str = "packaging/fail2ban/filter.d/anthill.conf";
const JAILS: &str = "packaging/fail2ban/jail.d/anthill.conf";

/// Requests with the answered status. The number of a request is the last octet of the client's address.
const REQUESTS: &[(&str, u16)] = &[
    ("GET / HTTP/1.1\r\nHost: a\r\n", 200),
    // Request 1: a wrong password (`ant:wrong`).
    (
        "GET /private/ HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YW50Ondyb25n\r\n",
        401,
    ),
    // A request without a login, as each browser sends at first.
    ("GET /private/ HTTP/1.1\r\nHost: a\r\n", 401),
    // Request 3: a hidden name.
    ("GET /.git/config HTTP/1.1\r\nHost: a\r\n", 404),
    ("GET /nothing HTTP/1.1\r\nHost: a\r\n", 404),
    // Requests 5 to 8: texts that look like other lines.
    (
        "GET /nothing HTTP/1.1\r\nHost: a\r\nUser-Agent: x\" rule=R405\r\n",
        404,
    ),
    (
        "GET /nothing HTTP/1.1\r\nHost: a\r\nUser-Agent: x\",\"rule\":405,\"a\":\"\r\n",
        404,
    ),
    (
        "GET /192.0.2.66%20-%20- HTTP/1.1\r\nHost: a\r\nReferer: 192.0.2.66 - - [20/Nov/2026:18:39:14 +0000] \"GET \
         / HTTP/1.1\" 401 - \"-\" \"-\" rule=R405\r\n",
        404,
    ),
    (
        "GET /?\"remote\":\"192.0.2.66\",\"rule\":405, HTTP/1.1\r\nHost: a\r\nUser-Agent: rule=R405\r\n",
        200,
    ),
    // Request 9: a method that no server knows.
    ("BREW / HTTP/1.1\r\nHost: a\r\n", 501),
];

/// Returns the addresses that fail2ban finds in the log by a filter.
fn found(folder: &Folder, log: &str, filter: &str) -> Vec<String> {
    let log = folder.path(log).to_string_lossy().into_owned();
    let done = run("fail2ban-regex", &["-o", "ip", &log, filter], b"");
    assert!(done.success, "{}", done.errors());
    done.text().lines().map(str::to_owned).collect()
}

#[test]
fn the_filter_finds_the_addresses_of_refused_requests_in_each_format() {
    tool("fail2ban-regex");
    let users = "ant:$2y$04$PIZSrTTY7VhRtWpoG8Vwaui2uUHmK1bSz3ds1b6Yn7tNSlaFMR0jC\n";
    for (format, address) in [
        ("combined", "192.0.2."),
        ("vhost_combined", "192.0.2."),
        ("json", "192.0.2."),
        ("vhost_combined", "2001:db8::"),
    ] {
        let config = format!(
            "{}trust = [\"127.0.0.1\"]\n[log]\naccess = \"access.log\"\nformat = \"{format}\"\n\
             [[site]]\nnames = [\"*\"]\nroot = \"public\"\nhttp = \"serve\"\n\
             [[site.route]]\npath = \"/private\"\nusers = \"users\"\n",
            server_table("")
        );
        let folder = Folder::new()
            .with("public/index.html", "hello")
            .with("public/private/index.html", "secret");
        folder.program("users", users);
        fs::set_permissions(
            folder.path("users"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .expect("a mode");
        let server = Server::start_in(folder, &config);
        for (number, (request, status)) in REQUESTS.iter().enumerate() {
            let request =
                format!("{request}X-Forwarded-For: {address}{number}\r\nConnection: close\r\n\r\n");
            let answer = String::from_utf8(server.http_raw(request.as_bytes())).expect("UTF-8");
            assert!(answer.contains(&format!(" {status} ")), "{request}{answer}");
        }
        let brew = format!("{address}9");
        assert_eq!(command(&server, "reopen").code, Some(0));
        let filter = fs::canonicalize(repository().join(FILTER)).expect("a filter");
        let filter = filter.to_string_lossy();
        let found = |rules: &str| found(&server.folder, "access.log", &format!("{filter}{rules}"));
        assert_eq!(found(""), [format!("{address}1")], "{format}");
        assert_eq!(found("[rules='404']"), [format!("{address}2")], "{format}");
        let probes = [format!("{address}3"), brew];
        assert_eq!(
            found(&format!("[rules='{}']", probe_rules())),
            probes,
            "{format}"
        );
    }
}

fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the rules of the jail for scanners.
fn probe_rules() -> String {
    let jails = paper(JAILS);
    let rules = jails.split("rules=\"").nth(1);
    let rules = rules.and_then(|rest| rest.split('"').next());
    rules.expect("rules").to_owned()
}

#[test]
fn fail2ban_accepts_the_jails() {
    let folder = Folder::new().with("access.log", "");
    let log = folder.path("access.log");
    let etc = folder.path("fail2ban");
    let copied = run("cp", &["-r", "/etc/fail2ban", &etc.to_string_lossy()], b"");
    assert!(copied.success, "{}", copied.errors());
    // Jails of the machine may need logs of other programs.
    fs::remove_dir_all(etc.join("jail.d")).expect("the jails of the machine");
    folder.write("fail2ban/filter.d/anthill.conf", paper(FILTER));
    let jails = paper(JAILS).replace("/var/log/anthill/access.log", &log.to_string_lossy());
    folder.write("fail2ban/jail.d/anthill.conf", jails);
    let mut client = Command::new(tool("fail2ban-client"));
    client.arg("-c").arg(&etc).arg("-d");
    let done = finish(client, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    for expected in [
        "['start', 'anthill-login']".to_owned(),
        "['start', 'anthill-probe']".to_owned(),
        "rule=R(?:405|607)$".to_owned(),
        format!("rule=R(?:{})$", probe_rules()).replace('\\', "\\\\"),
        "['protocol', 'all']".to_owned(),
    ] {
        assert!(done.stdout.contains(&expected), "{expected}: {done:?}");
    }
}

/// A process that ends with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Runs fail2ban with the jails and an action that writes the banned address to a file.
#[test]
fn the_jail_bans_an_address_after_wrong_passwords() {
    if !crate::lifecycle::is_root() {
        // fail2ban-server is a program of root.
        return;
    }
    let folder = Folder::new().with("access.log", "");
    let at = |name: &str| folder.path(name).to_string_lossy().into_owned();
    let copied = run("cp", &["-r", "/etc/fail2ban", &at("fail2ban")], b"");
    assert!(copied.success, "{}", copied.errors());
    fs::remove_dir_all(folder.path("fail2ban/jail.d")).expect("the jails of the machine");
    folder.write("fail2ban/filter.d/anthill.conf", paper(FILTER));
    let jails = paper(JAILS)
        .replace("/var/log/anthill/access.log", &at("access.log"))
        .replace("%(banaction_allports)s", "to-file");
    folder.write("fail2ban/jail.d/anthill.conf", jails);
    folder.write(
        "fail2ban/action.d/to-file.conf",
        format!("[Definition]\nactionban = echo <ip> >> {}\n", at("banned")),
    );
    let mut server = Command::new(tool("fail2ban-server"));
    server.args([
        "-f",
        "-c",
        &at("fail2ban"),
        "-s",
        &at("socket"),
        "-p",
        &at("pid"),
    ]);
    server.args(["--logtarget", &at("fail2ban.log"), "--syslogsocket", "none"]);
    server.env("PYTHONDONTWRITEBYTECODE", "1");
    let database = "[Definition]\ndbfile = None\n";
    folder.write("fail2ban/fail2ban.local", database);
    let running = Running(crate::support::spawn(&mut server).expect("fail2ban-server"));
    let log = || fs::read_to_string(folder.path("fail2ban.log")).unwrap_or_default();
    wait_until("the jails", || {
        (log().matches("Jail 'anthill-").count() >= 2 && log().contains("'anthill-probe' started"))
            .then_some(())
    });
    let now = crate::support::run("date", &["-u", "+%d/%b/%Y:%H:%M:%S +0000"], b"").text();
    let line = |last: u8, rule: u16| {
        format!(
            "192.0.2.{last} - - [{}] \"GET / HTTP/1.1\" 401 100 \"-\" \"-\" rule=R{rule}\n",
            now.trim()
        )
    };
    let lines = line(1, 405).repeat(4) + &line(2, 405).repeat(5) + &line(3, 502).repeat(10);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(folder.path("access.log"))
        .expect("the log");
    std::io::Write::write_all(&mut file, lines.as_bytes()).expect("lines");
    wait_until("two banned addresses", || {
        let banned = fs::read_to_string(folder.path("banned")).unwrap_or_default();
        (banned.lines().count() >= 2).then_some(())
    });
    let mut banned: Vec<String> = fs::read_to_string(folder.path("banned"))
        .expect("addresses")
        .lines()
        .map(str::to_owned)
        .collect();
    banned.sort();
    assert_eq!(banned, ["192.0.2.2", "192.0.2.3"], "{}", log());
    drop(running);
}

#[test]
fn the_guide_prints_the_filter_and_the_jails() {
    let guide = paper("docs/src/logs.md");
    for file in [FILTER, JAILS] {
        assert!(
            guide.contains(&format!("```\n{}```\n", paper(file))),
            "{file}"
        );
    }
}
