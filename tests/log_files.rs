//! Rotation of log files by the server, with several workers and sites and after crashes, and `anthill reopen`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;

use crate::clients::{anthill, ask, command, reload, wait_until};
use crate::support::{Folder, Server, server_table, site_table};

fn site_folder() -> Folder {
    Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("logs/.keep", "")
}

/// Returns a configuration with 4 workers and two sites with one log file, which is rotated at 64 KiB.
fn rotating(rotate: &str) -> String {
    let site = |name: &str| {
        format!("[[site]]\nnames = [\"{name}\"]\nroot = \"public\"\nhttp = \"serve\"\n")
    };
    let server = server_table("").replace("workers = 1", "workers = 4");
    format!(
        "{server}[log]\naccess = \"logs/access.log\"\nrotate = {rotate}\n{}{}log = \"./logs/access.log\"\n",
        site("a.test"),
        site("b.test")
    )
}

/// Returns the log file and the earlier files, the oldest first. Waits until all earlier files are compressed if
/// `is_compressed`.
fn files(folder: &Folder, is_compressed: bool) -> Vec<PathBuf> {
    let at = |name: String| folder.path("logs").join(name);
    wait_until("the end of the compression", || {
        let mut all = vec![at("access.log".to_owned())];
        for number in 1.. {
            let (plain, gzip) = (
                at(format!("access.log.{number}")),
                at(format!("access.log.{number}.gz")),
            );
            match (plain.exists(), gzip.exists()) {
                (false, false) => break,
                (true, _) if is_compressed => return None,
                (true, false) => all.push(plain),
                (false, true) => all.push(gzip),
                (true, true) => panic!("{number} is there twice"),
            }
        }
        all.reverse();
        Some(all)
    })
}

fn text(file: &Path) -> String {
    let bytes = fs::read(file).expect("a file");
    let mut text = String::new();
    if file.extension().is_some_and(|ending| ending == "gz") {
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .expect("gzip")
    } else {
        (&bytes[..]).read_to_string(&mut text).expect("UTF-8")
    };
    text
}

/// Returns the query of a logged request: the number of the client and the number of the request.
fn numbers(line: &str) -> (u32, u32) {
    let query = line.split_once("GET /?").map(|(_, rest)| rest);
    let query = query.and_then(|rest| rest.split_once('.')).map(|it| it.0);
    let pair = query.and_then(|query| query.split_once('-'));
    let (client, request) = pair.unwrap_or_else(|| panic!("{line}"));
    (
        client.parse().expect("a number"),
        request.parse().expect("a number"),
    )
}

/// Text that makes a line longer.
fn filling() -> String {
    "x".repeat(150)
}

#[test]
fn workers_and_sites_with_one_file_rotate_the_file_together() {
    const CLIENTS: u32 = 4;
    const REQUESTS: u32 = 1_000;
    let config = rotating("{ size = \"64KiB\", keep = 100 }");
    let server = Server::start_in(site_folder(), &config);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut connection = server.keep_alive();
                let host = ["a.test", "b.test"][client as usize % 2];
                for request in 0..REQUESTS {
                    let path = format!("http://{host}/?{client}-{request}.{}", filling());
                    assert_eq!(connection.get(&path).status, 200);
                }
            });
        }
    });
    // All lines of earlier responses are in the files when the command returns.
    let done = command(&server, "reopen");
    assert_eq!(done.stdout, "1 log file is open again\n", "{done:?}");
    let files = files(&server.folder, true);
    assert!(files.len() > 8, "{files:?}");
    let mut next = [0; CLIENTS as usize];
    for file in &files {
        let text = text(file);
        assert!(text.len() <= 64 * 1024, "{file:?}: {} bytes", text.len());
        for line in text.lines() {
            let line = line
                .replace("http://a.test", "")
                .replace("http://b.test", "");
            let (client, request) = numbers(&line);
            // The lines of a connection are in order, over all files.
            assert_eq!(request, next[client as usize], "{line}");
            next[client as usize] += 1;
        }
    }
    assert_eq!(next, [REQUESTS; CLIENTS as usize]);
    // A reload without rotation leaves the files alone.
    reload(&server, &config.replace("rotate", "# rotate"));
    ask(&server, "a.test", "/after");
    command(&server, "reopen");
    assert!(text(&server.folder.path("logs/access.log")).contains("/after"));
}

#[test]
fn a_killed_server_loses_no_file_and_repeats_no_line() {
    let mut folder = site_folder();
    let config =
        rotating("{ size = \"64KiB\", keep = 1000 }").replace("workers = 4", "workers = 1");
    let mut sent = 0;
    let mut seen = Vec::new();
    for round in 0..5 {
        let server = Server::start_in(folder, &config);
        let before = files_now(&server.folder);
        let mut connection = server.keep_alive();
        // The server is killed in the middle of a rotation or of a compression, each round at another point.
        while files_now(&server.folder) < before + 2 + round % 3 {
            let path = format!("http://a.test/?{round}-{sent}.{}", filling());
            assert_eq!(connection.get(&path).status, 200);
            sent += 1;
        }
        server.signal("KILL");
        folder = server.into_folder();
        let lines = all_lines(&folder);
        assert!(
            lines.starts_with(&seen),
            "round {round}: lines of an earlier round are gone"
        );
        let written = lines.iter().map(|line| numbers(line).1).collect::<Vec<_>>();
        assert!(written.is_sorted_by(|one, next| one < next), "{written:?}");
        seen = lines;
    }
    assert!(seen.len() > 1_000, "{} lines", seen.len());
}

/// Returns the number of earlier files, without waiting.
fn files_now(folder: &Folder) -> usize {
    let entries = fs::read_dir(folder.path("logs")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    names.filter(|name| name.starts_with("access.log.")).count()
}

/// Returns the lines of all files, the oldest first. Of a file and its compressed copy, the file counts.
fn all_lines(folder: &Folder) -> Vec<String> {
    let at = |name: String| folder.path("logs").join(name);
    let mut lines = Vec::new();
    for number in (1..=1000).rev() {
        let plain = at(format!("access.log.{number}"));
        let gzip = at(format!("access.log.{number}.gz"));
        let file = [plain, gzip].into_iter().find(|file| file.exists());
        lines.extend(file.iter().flat_map(|file| whole_lines(&text(file))));
    }
    let log = at("access.log".to_owned());
    if log.exists() {
        lines.extend(whole_lines(&text(&log)));
    }
    lines
}

fn whole_lines(text: &str) -> Vec<String> {
    let lines = text.lines();
    let lines = lines.map(|line| {
        line.replace("http://a.test", "")
            .replace("http://b.test", "")
    });
    lines.collect()
}

#[test]
fn reopen_names_the_file_that_cannot_be_opened() {
    let logs = "access = \"logs/access.log\"\nerrors = \"logs/errors.log\"\n";
    let config = format!(
        "{}[log]\n{logs}{}",
        server_table(""),
        site_table("http = \"serve\"")
    );
    let server = Server::start_in(site_folder(), &config);
    let at = |name: &str| server.folder.path("logs").join(name);
    ask(&server, "x", "/one");
    fs::rename(at("access.log"), at("access.log.1")).expect("a rename");
    ask(&server, "x", "/two");
    let done = command(&server, "reopen");
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "2 log files are open again\n")
    );
    ask(&server, "x", "/three");
    fs::rename(at("access.log"), at("access.log.2")).expect("a rename");
    fs::create_dir(at("access.log")).expect("a folder");
    let failed = command(&server, "reopen");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(
        failed
            .stderr
            .contains("access.log: cannot reopen the file, the old file stays in use"),
        "{failed:?}"
    );
    let lines = |name: &str| {
        let text = text(&at(name));
        let requests = text.lines().filter_map(|line| line.split('"').nth(1));
        requests.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines("access.log.1"),
        ["GET /one HTTP/1.1", "GET /two HTTP/1.1"]
    );
    assert_eq!(lines("access.log.2"), ["GET /three HTTP/1.1"]);
    wait_until("a message in the error log", || {
        text(&at("errors.log"))
            .contains("cannot reopen the file")
            .then_some(())
    });
}

#[test]
fn check_points_at_a_folder_in_which_no_file_can_be_made() {
    // Root may write anywhere, so the check runs for another account.
    if !crate::lifecycle::is_root() {
        return;
    }
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = site_folder().with("logs/access.log", "");
    chown(folder.path("logs/access.log"), Some(65534), None).expect("an owner");
    fs::set_permissions(folder.path("logs"), fs::Permissions::from_mode(0o755)).expect("a mode");
    for (rotate, code) in [("", 0), ("rotate = \"1GiB\"", 2)] {
        let config = format!(
            "{}user = \"nobody\"\n[log]\naccess = \"logs/access.log\"\n{rotate}\n{}",
            // The default control socket is in a folder of the account, the state folder.
            server_table("").replace("control = \"anthill.sock\"\n", ""),
            site_table("")
        );
        folder.write("anthill.toml", config);
        let checked = anthill(&folder.path("."), &["check"]);
        assert_eq!(checked.code, Some(code), "{rotate}: {checked:?}");
        assert!(code == 0 || checked.stderr.contains("logs"), "{checked:?}");
    }
}

#[test]
fn the_guide_prints_the_recipe_of_the_repository() {
    let recipe = crate::papers::paper("packaging/logrotate/anthill");
    let guide = crate::papers::paper("docs/src/logs.md");
    assert!(guide.contains(&format!("```\n{recipe}```\n")), "{recipe}");
}
