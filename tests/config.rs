//! Configuration errors as reported to the operator: the error, its position, and the correction.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::clients::{
    Authority, Ended, anthill, anthill_with_input, ask, command, reload, visit, wait_until,
};
use crate::support::pebble::free_port;
use crate::support::{Folder, Server, run, server_table, site_table};

/// Returns a folder with the files referenced by the configurations of the tests.
fn site_folder() -> Folder {
    fill_site_folder(Folder::new())
}

fn fill_site_folder(folder: Folder) -> Folder {
    let authority = Authority::new("anthill's test CA");
    let (one, two) = (authority.server(&["a.test"]), authority.server(&["a.test"]));
    folder
        .with("public/index.html", "<p>hello</p>\n")
        .with("one.pem", one.combined())
        .with("one.crt", &one.certificate)
        .with("two.key", &two.key)
        .with("empty.pem", "")
        .with("users", "# nobody yet\nant:plain text\n")
        .with("short.keys", "0123\n")
}

fn is_root() -> bool {
    run("id", &["-u"], b"").text().trim() == "0"
}

/// A parsed message: the error, its position, the text above the carets, and the help.
#[derive(Debug, PartialEq)]
struct Message {
    what: String,
    place: String,
    marked: String,
    help: String,
}

impl Message {
    fn parse(text: &str) -> Message {
        let whole = || panic!("not a message of an operator:\n{text}");
        let line = |mark: &str| {
            let line = text
                .lines()
                .find_map(|line| line.trim_start().strip_prefix(mark));
            line.unwrap_or_else(whole).to_owned()
        };
        let lines: Vec<&str> = text.lines().collect();
        let caret = lines
            .iter()
            .position(|line| line.trim_start().starts_with("| ") && line.ends_with('^'));
        let caret = caret.unwrap_or_else(|| panic!("no carets in:\n{text}"));
        let (source, carets) = (lines[caret - 1], lines[caret]);
        let start = carets.chars().position(|c| c == '^').expect("a caret");
        let length = carets.chars().filter(|c| *c == '^').count();
        Message {
            what: line("error: "),
            place: line("--> "),
            marked: source.chars().skip(start).take(length).collect(),
            help: line("help: "),
        }
    }
}

/// Asserts that `check` and `serve` refuse the configuration with the same message and exit code 2.
fn refusal(folder: &Folder, config: &str) -> Message {
    folder.write("anthill.toml", config);
    let at = folder.path(".");
    let checked = anthill(&at, &["check", "anthill.toml"]);
    assert_eq!(checked.code, Some(2), "check: {checked:?}\n{config}");
    assert_eq!(checked.stdout, "");
    let served = anthill(&at, &["serve", "anthill.toml"]);
    assert_eq!(served.code, Some(2), "serve: {served:?}\n{config}");
    assert!(!served.stderr.contains("ready"), "{served:?}");
    assert_eq!(checked.stderr, served.stderr, "{config}");
    Message::parse(&checked.stderr)
}

#[test]
fn each_error_is_shown_at_its_position() {
    let folder = site_folder();
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.path("two.key"), private).expect("a mode");
    let site = "[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n";
    let route = format!("{site}[[site.route]]\npath = \"/\"\n");
    // The columns: the text before and the faulty text, the error, the text above the carets, and the help.
    #[rustfmt::skip]
    let table: &[(&str, &str, &str, &str, &str)] = &[
        ("", "[sever]", "unknown key `sever`", "sever", "did you mean `server`?"),
        (site, "listening = true", "unknown key `listening` in [[site]]", "listening", "did you mean `listing`?"),
        (site, "workers = 2", "unknown key `workers` in [[site]]", "workers", "`workers` belongs in [server]"),
        (site, "listing = \"yes\"", "`listing` must be true or false, not text", "\"yes\"", "listing = true"),
        (site, "root = \"public\"", "`root` stands twice in the table", "root", "remove one"),
        (site, "index = [", "", "", ""),
        ("", "[[site]]\nroot = \"pubilc\"", "pubilc does not exist", "\"pubilc\"", "did you mean"),
        ("", "[[site]]\nroot = \"one.pem\"", "is a file, not a folder", "\"one.pem\"", "name the folder of the file"),
        (site, "[[site]]\nnames = [\"b.test\", \"A.Test\"]", "two sites have the name `a.test`", "\"A.Test\"", "line 6"),
        (site, "errors = { 404 = \"lost.html\" }", "lost.html does not exist", "\"lost.html\"", "remove 404"),
        (site, "certificate = \"none.pem\"", "none.pem does not exist", "\"none.pem\"", "did you mean"),
        (site, "certificate = \"empty.pem\"", "empty.pem: the file is empty", "\"empty.pem\"", "a PEM file begins with"),
        (site, "certificate = \"one.crt\"", "one.crt: the file has no private key", "\"one.crt\"", "`key`"),
        (site, "certificate = \"public\"", "is a folder, not a file", "\"public\"", "the path of the certificate"),
        (site, "certificate = \"one.crt\"\nkey = \"two.key\"", "two.key: the private key does not belong to the certificate", "\"two.key\"", "/one.pem"),
        (site, "certificate = \"one.pem\"\nclient_ca = \"two.key\"", "the file has no certificate", "\"two.key\"", "CA"),
        (site, "certificate = \"one.pem\"\nclient_ca = \"users\"", "users: the file is not PEM", "\"users\"", "client_ca = \"clients-ca.pem\""),
        (site, "cache = [ { files = \"*.{ico\", max_age = \"1d\" } ]", "the pattern `*.{ico` is invalid", "{ico", "`{a,b}`"),
        (site, "cache = [ { files = \"*\", max_age = \"1 eon\" } ]", "is not a duration", "\"1 eon\"", "\"30d\""),
        (site, "log = \"nowhere/a.log\"", "nowhere does not exist", "\"nowhere/a.log\"", "relative paths begin at"),
        ("", "[[site]]\nsymlinks = \"follow\"\nrelease = \"x\"", "`symlinks` is for a site with a folder, and the site has `release`", "\"follow\"", "remove `symlinks`"),
        (site, "publishers = [\"x\"]", "a key of `publishers` is no Ed25519 public key", "\"x\"", "64 lower-case"),
        (&route, "allow = [\"10.0.0.1\", \"192.168.0.5/24\"]", "within a network", "\"192.168.0.5/24\"", "`192.168.0.0/24`"),
        (&route, "allow = [\"10.0.0.0/33\"]", "prefix", "\"10.0.0.0/33\"", "0 to 32"),
        (&route, "users = \"users\"", "users:2: the hash of `ant` is not a hash", "\"users\"", "anthill passwd"),
        (&route, "users = \"people\"", "people does not exist", "\"people\"", "create the file: anthill passwd"),
        (&route, "balance = \"srv\"", "there is no balancer `srv`", "\"srv\"", "add [[balancer]]"),
        (&route, "proxy = \"127.0.0.1:9000\"", "is not the URL of an HTTP server", "\"127.0.0.1:9000\"", "\"http://127.0.0.1:9000\""),
        (&route, "proxy = { url = \"https://b.test\", ca = \"none.pem\" }", "none.pem does not exist", "\"none.pem\"", "did you mean"),
        (&route, "proxy = \"http://ant:secret@a.test\"", "has no user", "\"http://ant:secret@a.test\"", "\"http://a.test\""),
        (&route, "proxy = \"http://a.test\"\nbalance = \"srv\"", "not both `proxy` and `balance`", "\"srv\"", "remove one"),
        (&route, "redirect = \"/a\"\nrewrite = \"/b\"", "one target, not both", "\"/b\"", "remove one"),
        (&route, "redirect = \"//elsewhere\"", "is not a target for a redirect", "\"//elsewhere\"", "https://"),
        ("", "[tls]\nciphers = [\"TLS_AES_128_GCM_SHA256\", \"RC4-SHA\"]", "unknown cipher", "\"RC4-SHA\"", "the known ciphers are"),
        ("", "[tls]\nmin_version = \"1.1\"", "`min_version` can't be", "\"1.1\"", "\"1.2\""),
        ("", "[tls]\ntickets = \"nothing.keys\"", "the key file ", "\"nothing.keys\"", "openssl rand"),
        ("", "[tls]\nacme = { email = \"me@example\" }", "is not an e-mail address", "\"me@example\"", "me@example.org"),
        ("", "[tls]\nacme = { hook = \"nothing.sh\" }", "nothing.sh does not exist", "\"nothing.sh\"", "relative paths begin at"),
        ("", "[tls]\nacme = { hook = \"public\" }", "is not a program", "\"public\"", "the path of the program"),
        ("", "[tls]\nacme = { hook = \"one.crt\" }", "the current user cannot run", "\"one.crt\"", "chmod +x"),
        ("", "[tls]\nacme = { ca = \"nothing.pem\" }", "nothing.pem does not exist", "\"nothing.pem\"", "relative paths begin at"),
        ("", "[[balancer]]\nname = \"x\"", "[[balancer]] needs `members`", "[[balancer]]", "members = ["),
        ("", "[[balancer]]\nname = \"x\"\nmembers = []", "the balancer has no member", "[]", "\"http://127.0.0.1:9001\""),
        ("", "[[balancer]]\nname = \"x\"\nmethod = \"round-robin\"\nmembers = \"http://a.test\"", "`method` can't be \"round-robin\"", "\"round-robin\"", "\"byrequests\""),
        ("", "[[balancer]]\nname = \"x\"\nmembers = [\"http://a.test\", \"HTTP://A.test:80\"]", "is a member twice", "\"HTTP://A.test:80\"", "the first is in line"),
        ("", "[[balancer]]\nname = \"x\"\nmembers = [\"http://user@a.test\"]", "has no user", "\"http://user@a.test\"", "\"http://a.test\""),
        ("", "[log]\nformat = \"xml\"", "`format` can't be", "\"xml\"", "\"combined\""),
        ("", "[log]\nerrors = \"public\"", "is a folder, not a file", "\"public\"", "name a file in the folder"),
    ];
    let server =
        "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n";
    for (before, wrong, what, marked, help) in table {
        let config = format!("{server}{before}{wrong}\n");
        let message = refusal(&folder, &config);
        if what.is_empty() {
            continue; // the message comes from the TOML parser
        }
        assert!(message.what.contains(what), "{message:#?}\n{config}");
        assert_eq!(message.marked, *marked, "{message:#?}\n{config}");
        assert!(message.help.contains(help), "{message:#?}\n{config}");
        // FILE:LINE:COLUMN of the first marked character.
        let start = server.len() + before.len();
        let at = start + wrong.find(marked).expect("the marked text");
        let line = config[..at].matches('\n').count() + 1;
        let column = at - config[..at].rfind('\n').map_or(0, |at| at + 1) + 1;
        assert_eq!(
            message.place,
            format!("anthill.toml:{line}:{column}"),
            "{config}"
        );
    }
}

#[test]
fn missing_tables_and_keys_are_reported() {
    let folder = site_folder();
    let at = folder.path(".");
    for word in ["check", "serve"] {
        let missing = anthill(&at, &[word, "antill.toml"]);
        assert_eq!(missing.code, Some(2), "{missing:?}");
        assert!(missing.stderr.contains("antill.toml"), "{missing:?}");
        assert!(missing.stderr.contains("help: "), "{missing:?}");
        let option = anthill(&at, &[word, "--htps", "8443"]);
        assert_eq!(option.code, Some(2), "{option:?}");
        assert!(option.stderr.contains("--https"), "{option:?}");
    }
    let key = site_table("") + "[tls]\ntickets = \"short.keys\"\n";
    folder.write("anthill.toml", server_table("") + &key);
    let short = anthill(&at, &["serve", "anthill.toml"]);
    assert_eq!(short.code, Some(2), "{short:?}");
    let message = Message::parse(&short.stderr);
    assert!(message.what.contains("short.keys: line 1"), "{message:#?}");
    assert_eq!(message.marked, "\"short.keys\"");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let folder = site_folder();
    folder.write(
        "anthill.toml",
        format!(
            "[server]\nhttps = []\nstate = \"state\"\nhttp = [\"127.0.0.1:0\", \"{address}\"]\n"
        ),
    );
    // `check` binds no port: the running server holds the same ports.
    let checked = anthill(&folder.path("."), &["check", "anthill.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let served = anthill(&folder.path("."), &["serve", "anthill.toml"]);
    assert_eq!(served.code, Some(2), "{served:?}");
    let message = Message::parse(&served.stderr);
    assert_eq!(
        message.what,
        format!("{address} is in use by another program")
    );
    assert_eq!(message.marked, format!("\"{address}\""));
    assert!(
        message.place.starts_with("anthill.toml:4:24"),
        "{message:?}"
    );
    assert!(message.help.contains("ss -ltnp"), "{message:?}");
}

#[test]
fn unreadable_files_are_found_before_the_server_serves() {
    let folder = site_folder();
    let mode = |name: &str, mode| {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode(".", 0o755);
    mode("one.pem", 0o600);
    let config = |user: &str| {
        format!(
            "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
             user = \"{user}\"\n[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n\
             certificate = \"one.crt\"\nkey = \"one.pem\"\n"
        )
    };
    let message = refusal(&folder, &config("nobody-of-this-name"));
    assert_eq!(
        message.what,
        "there is no user `nobody-of-this-name` on this machine"
    );
    assert!(message.help.contains("useradd"), "{message:?}");
    if !is_root() {
        let message = refusal(&folder, &config("root"));
        assert!(
            message.what.contains("only root can switch to"),
            "{message:?}"
        );
        return;
    }
    let message = refusal(&folder, &config("nobody"));
    let key = folder.path("one.pem");
    let what = format!("user `nobody` cannot read {}", key.display());
    assert_eq!(message.what, what);
    assert_eq!(message.marked, "\"one.pem\"");
    // The help is a command, and the command corrects the error.
    let (_, right) = message.help.split_once("chgrp").expect("a command");
    let helped = run("sh", &["-c", &format!("chgrp{right}")], b"");
    assert!(helped.success, "{}", helped.errors());
    let checked = anthill(&folder.path("."), &["check", "anthill.toml"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");

    mode("public", 0o700);
    let message = refusal(&folder, &config("nobody"));
    assert!(
        message.what.contains("user `nobody` cannot read"),
        "{message:?}"
    );
    assert_eq!(message.marked, "\"public\"");
    mode("public", 0o755);
    fs::create_dir(folder.path("locked")).expect("a folder");
    fs::copy(folder.path("one.crt"), folder.path("locked/one.crt")).expect("a copy");
    mode("locked", 0o700);
    let inside = config("nobody").replace("\"one.crt\"", "\"locked/one.crt\"");
    let message = refusal(&folder, &inside);
    assert!(
        message.what.contains("user `nobody` cannot reach"),
        "{message:?}"
    );
    assert!(
        message.what.contains("locked is closed to the user"),
        "{message:?}"
    );

    // After the correction the server runs as the user and can still read its key.
    let server = Server::start_in(folder, &config("nobody"));
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("its status");
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:\t"));
    assert_eq!(uids, Some("65534\t65534\t65534\t65534"));
    assert_eq!(visit(&server, "a.test", "/").status, 200);
}

/// Returns the path, the time of the last change and the content of every file below a folder.
fn snapshot(folder: &Path) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("metadata");
            if metadata.is_dir() {
                folders.push(path);
            } else {
                let content = fs::read(&path).unwrap_or_default();
                files.push((path, metadata.modified().expect("a time"), content));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn check_beside_a_running_server_changes_nothing() {
    let folder = site_folder();
    let git = |arguments: &[&str]| {
        let done = run("git", arguments, b"");
        assert!(done.success, "{}", done.errors());
    };
    let repository = folder.path("repositories/a.git").display().to_string();
    git(&["init", "-q", "--bare", &repository]);
    let config = |logs: &str| {
        server_table("")
            + &format!("[log]\n{logs}\n")
            + &site_table("http = \"serve\"\nhits = true")
            + "[[site.route]]\npath = \"/page\"\ntest = \"page\"\n\
               cache = { seconds = 1000, disk = true }\n\
               [[site.route]]\npath = \"/git/\"\ngit = \"repositories\"\nexport = \"all\"\n\
               [[site.route]]\npath = \"/script/\"\nfastcgi = \"unix:app.sock\"\nkeep = 2\n"
    };
    let server = Server::start_in(folder, &config("access = \"off\""));
    let mut client = server.keep_alive();
    for path in ["/", "/page", "/page", "/git/a/"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    let ledgers = |server: &Server| {
        let status = server.ask(&["status", "--json"]).stdout;
        let of = |key: &str| {
            let (_, after) = status.split_once(key).expect(key);
            after.split(',').next().unwrap_or_default().to_owned()
        };
        let keys = ["\"generation\":", "\"kept_pages\":", "\"log_lines_lost\":"];
        let hits = server.ask(&["hits", "--json", "*"]).stdout;
        (keys.map(of), hits)
    };
    let before = ledgers(&server);
    // The name of a body's file just before the server unlinks the file.
    server.folder.write("state/.body.0123456789abcdef", "half");
    // A site, a backend, a backend with another `keep` and logs that the running server does not have.
    let logs = "access = \"access.log\"\nerrors = \"error.log\"";
    let other = config(logs).replace("keep = 2", "keep = 3")
        + "[[site]]\nnames = [\"other.test\"]\nroot = \"public\"\nhits = true\nlog = \"other.log\"\n\
           [[site.route]]\npath = \"/app/\"\nscgi = \"unix:other.sock\"\n\
           [[site.route]]\npath = \"/stats/\"\nhits = true\n";
    server.folder.write("anthill.toml", other);
    let files = snapshot(&server.folder.path("."));
    let checked = server.ask(&["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(files == snapshot(&server.folder.path(".")), "files differ");
    for log in ["access.log", "error.log", "other.log"] {
        assert!(!server.folder.path(log).exists(), "{log}");
    }
    assert_eq!(before, ledgers(&server));
}

/// Returns the `configuration N` of `status`.
fn generation(server: &Server) -> String {
    let status = command(server, "status");
    let (_, after) = status
        .stdout
        .split_once("configuration ")
        .expect("a configuration");
    after.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn a_refused_reload_changes_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address");
    let _held = TcpListener::bind(taken).ok();
    // A port outside the kernel's ephemeral range.
    let free_address = SocketAddr::from(([127, 0, 0, 1], free_port()));

    let folder = site_folder().with("people", "# nobody yet\n");
    let site = "http = \"serve\"\n[[site.route]]\npath = \"/closed/\"\nusers = \"people\"\n";
    let secure = "[[site]]\nnames = [\"s.test\"]\nroot = \"public\"\n";
    let good = server_table("") + &site_table(site) + secure;
    let server = Server::start_in(folder, &good);
    let before = generation(&server);
    let more_http = |address: &str| {
        good.replace(
            "http = [\"127.0.0.1:0\"]",
            &format!("http = [\"127.0.0.1:0\", \"{address}\"]"),
        )
    };
    let listens_too = more_http(&free_address.to_string());
    let mismatch = "certificate = \"one.crt\"\nkey = \"two.key\"\n";
    for (bad, what) in [
        (format!("{good}\n[broken"), "unclosed table"),
        (
            good.replace("\"public\"", "\"pubilc\""),
            "pubilc does not exist",
        ),
        (
            good.replace("\"people\"", "\"users\""),
            "the hash of `ant` is not a hash",
        ),
        (
            more_http("192.0.2.1:1"),
            "this machine has no address 192.0.2.1",
        ),
        (
            listens_too.replace("\"people\"", "\"users\""),
            "the hash of `ant`",
        ),
        (
            good.replace("workers = 1", "workers = 1\npublic_port = 9999") + mismatch,
            "does not belong to the certificate",
        ),
        (
            format!("{good}\n[log]\nerrors = \"/dev/null/x\""),
            "/dev/null is a file, not a folder",
        ),
    ] {
        assert_ne!(bad, good, "{what}");
        server.folder.write("anthill.toml", &bad);
        let lines = server.errors.all().len();
        let refused = command(&server, "reload");
        assert_eq!(refused.code, Some(1), "{what}: {refused:?}");
        assert_eq!(refused.stdout, "");
        let message = Message::parse(&refused.stderr);
        assert!(message.what.contains(what), "{message:#?}");
        // The error log has the same message on one line.
        let said = server
            .errors
            .wait_until(std::time::Duration::from_secs(60), what, |all| {
                let mut new = all[lines..].iter();
                new.find(|line| line.contains("reload refused")).cloned()
            });
        let expected = format!("{}: {}", message.place, message.what);
        assert!(said.contains(&expected), "{said}\n{expected}");
        assert!(
            said.contains(" error reload refused, the old configuration stays in use: "),
            "{said}"
        );
        assert_eq!(ask(&server, "localhost", "/").status, 200, "{what}");
        assert_eq!(generation(&server), before, "{what}");
    }
    assert!(
        TcpStream::connect(free_address).is_err(),
        "nobody listens there"
    );
    // A reload by signal is refused as well.
    server
        .folder
        .write("anthill.toml", "[server]\nnonsense = 1\n");
    server.signal("HUP");
    server
        .errors
        .wait_for("the error", |line| line.contains("unknown key `nonsense`"));

    // No part of a refused configuration takes effect later.
    server.folder.write("anthill.toml", &good);
    let told = anthill_with_input(
        &server.folder.path("."),
        &["passwd", "people", "bee"],
        "honey\n",
    );
    assert_eq!(told.code, Some(0), "{told:?}");
    wait_until("changed user file", || {
        (generation(&server) != before).then_some(())
    });
    let secure = ask(&server, "s.test", "/");
    assert_eq!(
        secure.location(),
        format!("https://s.test:{}/", server.https_port)
    );

    reload(
        &server,
        &good.replace("workers = 1", "workers = 1\npublic_port = 9999"),
    );
    let secure = ask(&server, "s.test", "/");
    assert_eq!(secure.location(), "https://s.test:9999/");
}

#[test]
fn warnings_about_certificates_name_the_remedy() {
    let expired = Authority::new("anthill's test CA").expired(&["a.test"]);
    let by_name = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=a.test \
                   -keyout /dev/stdout";
    let by_name: Vec<&str> = by_name.split(' ').collect();
    let folder = Folder::new()
        .with("public/index.html", "front")
        .with("expired.pem", expired.combined())
        .with("name.pem", run("openssl", &by_name, b"").text());
    let site = "[[site]]\nnames = [\"a.test\"]\nroot = \"public\"\n";
    for (text, parts) in [
        (
            format!("{site}certificate = \"expired.pem\"\n"),
            &[
                "expired.pem: the certificate expired ",
                "days ago",
                "help: put a renewed certificate in the place of the file",
            ][..],
        ),
        (
            format!("{site}certificate = \"name.pem\"\n"),
            &[
                "name.pem: the certificate ends soon, days left: ",
                "name.pem: the certificate has no subject alternative name",
                "help: request the certificate with the names of the site",
            ],
        ),
        (
            format!("[tls]\nacme = {{}}\n{site}"),
            &[
                "warning: no certificate is asked for `a.test`",
                "--> anthill.toml:",
                "help: `a.test` keeps its self-signed certificate; add a public name to `names`, or set `certificate`",
            ],
        ),
        (
            format!(
                "[tls]\nmin_version = \"1.3\"\nciphers = [\"TLS13_AES_128_GCM_SHA256\"]\n{site}"
            ),
            &[],
        ),
    ] {
        folder.write("anthill.toml", &(server_table("") + &text));
        let done = anthill(&folder.path("."), &["check", "anthill.toml"]);
        assert_eq!(done.code, Some(0), "{text}: {done:?}");
        for part in parts {
            assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        }
        assert_eq!(done.stderr.is_empty(), parts.is_empty(), "{}", done.stderr);
    }
}

#[test]
fn warnings_name_likely_mistakes() {
    let folder = site_folder();
    folder.write("people", "# nobody yet\n");
    folder.write(
        "anthill.toml",
        server_table("")
            + "[[site]]\nnames = [\"b.test\", \"www.b.test\"]\nroot = \"public\"\ncertificate = \"one.pem\"\n\
               http = \"serve\"\n[[site.route]]\npath = \"/x/\"\nusers = \"people\"\n",
    );
    let Ended {
        code,
        stdout,
        stderr,
    } = anthill(&folder.path("."), &["check", "anthill.toml"]);
    assert_eq!(
        (code, &*stdout),
        (
            Some(0),
            "anthill.toml is valid: 1 site, for b.test and 1 more name\n"
        )
    );
    assert!(stderr.contains("warning: "), "{stderr}");
    assert!(
        stderr.contains("the certificate does not name b.test"),
        "{stderr}"
    );
    assert!(
        stderr.contains("passwords are sent unencrypted"),
        "{stderr}"
    );
}

#[test]
fn all_mistakes_are_reported_by_one_check() {
    let folder = site_folder();
    let config = "[server]\nhttps = [\"127.0.0.1:0\"]\nhttp = \"off\"\nstate = \"users/state\"\nlimts = {}\n\
                  [[site]]\nroot = \"pubic\"\ncertificate = \"one.crt\"\n\
                  [[site]]\nnames = [\"b.test\"]\nroot = \"public\"\nerrors = { 404 = \"none.html\" }\n\
                  key = \"none.key\"\n[[site.route]]\npath = \"/\"\nusers = \"nobody\"\nallow = [\"x\"]\n";
    let places = |config: &str| {
        refusal(&folder, config);
        let checked = anthill(&folder.path("."), &["check", "anthill.toml"]);
        let lines = checked.stderr.lines();
        let places = lines.filter_map(|line| line.trim_start().strip_prefix("--> anthill.toml:"));
        places.map(str::to_owned).collect::<Vec<_>>()
    };
    // The values that could be read are checked in spite of the mistakes.
    assert_eq!(
        places(config),
        ["5:1", "7:8", "12:18", "13:7", "16:9", "17:10"]
    );
    // Without mistakes in the text, the certificates and the state folder are checked too.
    let config = config
        .replace("limts = {}\n", "")
        .replace("allow = [\"x\"]\n", "");
    let config = config.replace("\nkey = \"none.key\"", "");
    assert_eq!(places(&config), ["4:9", "6:8", "7:15", "11:18", "14:9"]);
}

#[test]
fn warnings_follow_the_mistakes() {
    let folder = site_folder();
    let config = "[[balancer]]\nname = \"app\"\nmembers = [\"http://127.0.0.1:9\"]\n[[site]]\nroot = \"none\"\n";
    folder.write("anthill.toml", config);
    let checked = anthill(&folder.path("."), &["check", "anthill.toml"]);
    let (errors, warnings) = checked.stderr.split_once("\n\nwarning: ").expect("both");
    assert!(errors.contains("none does not exist"), "{errors}");
    assert!(
        warnings.starts_with("no route uses the balancer `app`"),
        "{warnings}"
    );
    assert!(warnings.contains("--> anthill.toml:2:8\n"), "{warnings}");
    assert_eq!(checked.code, Some(2));
}

#[test]
fn included_files_are_read_again_by_a_reload() {
    let config = server_table("") + "[[site]]\nnames = [\"a.test\"]\nhttp = \"serve\"\n";
    let folder = site_folder().with("more/page.html", "<p>more</p>\n");
    let config = format!("include = [\"sites.d/*.toml\"]\n{config}");
    let folder = folder.with(
        "sites.d/b.toml",
        "[[site]]\nnames = [\"b.test\"]\nroot = \"more\"\nhttp = \"serve\"\n",
    );
    let server = Server::start_in(folder, &config);
    assert_eq!(ask(&server, "b.test", "/page.html").status, 200);
    assert_eq!(ask(&server, "c.test", "/page.html").status, 404);
    let third = "[[site]]\nnames = [\"c.test\"]\nroot = \"more\"\nhttp = \"serve\"\n";
    server.folder.write("sites.d/c.toml", third);
    reload(&server, &config);
    assert_eq!(ask(&server, "c.test", "/page.html").status, 200);
    server
        .folder
        .write("sites.d/c.toml", third.replace("http", "htpp"));
    let refused = command(&server, "reload");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let message = Message::parse(&refused.stderr);
    assert!(message.place.ends_with("sites.d/c.toml:4:1"), "{message:?}");
    assert_eq!(ask(&server, "c.test", "/page.html").status, 200);
    // A served folder hides the files of the configuration.
    let served = third.replace("more", "sites.d");
    server.folder.write("sites.d/c.toml", served);
    server.folder.write("sites.d/page.txt", "a page");
    reload(&server, &config);
    assert_eq!(ask(&server, "c.test", "/page.txt").status, 200);
    for file in ["/b.toml", "/c.toml"] {
        assert_eq!(ask(&server, "c.test", file).status, 404, "{file}");
    }
}

#[test]
fn variables_stand_in_values_and_never_in_messages() {
    let folder = site_folder();
    let check = |config: &str, variable: Option<&str>| {
        folder.write("anthill.toml", config);
        let mut command = std::process::Command::new(crate::support::program());
        command
            .args(["check", "anthill.toml"])
            .current_dir(folder.path("."));
        command.env_remove("ANTHILL_TEST");
        command.envs(variable.map(|text| ("ANTHILL_TEST", text)));
        let done = command.output().expect("the command runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let config = "[[site]]\nnames = [\"${ANTHILL_TEST}.test\"]\nroot = \"public\"\n";
    let (code, stdout, stderr) = check(config, Some("a-secret-name"));
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert_eq!(
        stdout,
        "anthill.toml is valid: 1 site, for ${ANTHILL_TEST}.test\n"
    );
    for (config, variable, what, place) in [
        (
            config,
            None,
            "the environment variable `ANTHILL_TEST` is not set",
            "2:10",
        ),
        (
            config,
            Some("hush\"]\nroot"),
            "`${ANTHILL_TEST}.test` is not a host name",
            "2:10",
        ),
        (
            "[[site]]\nroot = \"${ANTHILL_TEST}\"\n",
            Some("/hush"),
            "the folder ${ANTHILL_TEST} does not exist",
            "2:8",
        ),
        (
            "[server]\nuser = \"${ANTHILL_TEST}\"\n[[site]]\nroot = \"public\"",
            Some("hush"),
            "no user `${ANTHILL_TEST}`",
            "2:8",
        ),
        (
            "[log]\nformat = \"${ANTHILL_TEST}\"\n",
            Some("hush"),
            "can't be \"${ANTHILL_TEST}\"",
            "2:10",
        ),
    ] {
        let (code, stdout, stderr) = check(config, variable);
        assert_eq!((code, &*stdout), (Some(2), ""), "{stderr}");
        assert!(stderr.contains(what), "{stderr}");
        assert!(
            stderr.contains(&format!("--> anthill.toml:{place}\n")),
            "{stderr}"
        );
        assert!(!stderr.contains("hush"), "{stderr}");
    }
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_at_once() {
    let folder = fill_site_folder(Folder::on_disk());
    let path = |name: &str| folder.path(name);
    assert!(run("mkfifo", &[path("pipe")], b"").success);
    let site = "[[site]]\nroot = \"public\"\n";
    for text in [
        format!("include = [\"pipe\"]\n{site}"),
        format!("[tls]\ntickets = \"pipe\"\n{site}"),
        format!("{site}redirect_map = \"pipe\"\n"),
        format!("{site}certificate = \"pipe\"\n"),
        format!("{site}certificate = \"one.crt\"\nkey = \"pipe\"\n"),
        format!("{site}[[site.route]]\npath = \"/\"\nusers = \"pipe\"\n"),
        format!("{site}[[site.route]]\npath = \"/\"\nusers = \"/dev/zero\"\n"),
    ] {
        folder.write("anthill.toml", &text);
        let done = crate::support::anthill(&["check".as_ref(), path("anthill.toml").as_os_str()]);
        assert_eq!(done.code, Some(2), "{text}: {done:?}");
    }
    // The configuration itself may come from a pipe of the shell.
    let text = format!("[[site]]\nroot = {:?}\n", path("public"));
    let binary = crate::support::program();
    let done = run(binary, &["check", "/dev/stdin"], text.as_bytes());
    assert!(done.success, "{}", done.errors());
}
