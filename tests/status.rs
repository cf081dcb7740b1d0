//! `anthill status`: the state of a server at a glance, from any folder.

use std::process::Command;

use crate::clients::Authority;
use crate::support::wire::Wire;
use crate::support::{Done, Folder, Server, finish, server_table};

fn start() -> Server {
    let site =
        "[[site]]\nnames = [\"localhost\", \"a.example\"]\nroot = \"public\"\nhttp = \"serve\"\n";
    Server::start(&(server_table("") + site))
}

/// Runs the program in a folder without a configuration.
fn run_elsewhere(folder: &Folder, arguments: &[&str]) -> Done {
    let mut command = Command::new(crate::support::program());
    command.args(arguments).current_dir(folder.path("."));
    finish(command, b"")
}

#[test]
fn the_text_has_the_state_at_a_glance() {
    let server = start();
    let mut wire = Wire::plain(&server);
    assert_eq!(wire.get("/", "").status, 200);
    for _ in 0..3 {
        assert_eq!(wire.get("/missing", "").status, 404);
    }
    let done = server.ask(&["status"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = done.stdout;
    let mut lines = text.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("anthill ")),
        "{text}"
    );
    // The problems come next.
    assert_eq!(lines.next(), Some("no problems found"), "{text}");
    let words = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // Requests, then the classes of the status.
    assert_eq!(words("localhost")[1..6], ["4", "1", "0", "3", "0"]);
    assert_eq!(words("3 R501")[..3], ["3", "R501", "404"]);
    assert_eq!(words("rejects")[1], "3");
    assert!(
        text.contains("certificate for localhost, a.example"),
        "{text}"
    );
    assert!(text.contains("LAST") && text.contains("1 min"), "{text}");
    // A counter at 0 is in the JSON alone.
    assert!(!text.contains("panics") && !text.contains("gzip"), "{text}");
    assert_eq!(server.counter("panics"), 0);
    assert_eq!(server.counter("rejects"), 3);
}

#[test]
fn a_problem_comes_first() {
    let server = start();
    let wrong = server_table("") + "[[site]]\nlisting = 7\n";
    server.folder.write("anthill.toml", wrong);
    assert_ne!(server.ask(&["reload"]).code, Some(0));
    let text = server.ask(&["status"]).stdout;
    let problem = text.lines().nth(1).unwrap_or_default();
    assert!(
        problem.starts_with("error: the last reload is refused"),
        "{text}"
    );
}

#[test]
fn a_site_without_a_release_and_a_certificate_of_other_names_are_problems() {
    let authority = Authority::new("anthill's test CA");
    let folder = Folder::new()
        .with("public/index.html", "")
        .with("one.pem", authority.server(&["a.test"]).combined());
    let text = server_table("")
        + "[[site]]\nnames = [\"localhost\"]\nrelease = \"www\"\nhttp = \"serve\"\n\
           [[site]]\nnames = [\"a.test\", \"b.test\"]\nroot = \"public\"\ncertificate = \"one.pem\"\n";
    let server = Server::start_in(folder, &text);
    let text = server.ask(&["status"]).stdout;
    let problems: Vec<&str> = text.lines().skip(1).take(2).collect();
    assert_eq!(
        problems,
        [
            "error: the certificate of a.test, b.test does not name b.test, so browsers refuse the site there",
            "error: www has no release, so the site answers 503: publish one with `anthill publish`",
        ],
        "{text}"
    );
    assert_eq!(Wire::plain(&server).get("/", "").status, 503);
}

/// Other tests run servers at the same time, so the command either finds the only server or lists all servers.
#[test]
fn a_running_server_is_found_from_any_folder() {
    let server = start();
    let elsewhere = Folder::new();
    let control = run_elsewhere(&elsewhere, &["status"]);
    let path = server.folder.path("anthill.sock");
    let path = path.canonicalize().unwrap_or(path);
    let path = path.display().to_string();
    let folder = server.folder.path("").display().to_string();
    assert!(control.stderr.contains(&folder), "{folder}: {control:?}");
    let is_only = control.code == Some(0);
    assert!(
        is_only || control.stderr.contains("servers run on this machine"),
        "{control:?}"
    );
    let named = run_elsewhere(&elsewhere, &["status", "--control", &path]);
    assert!(named.stdout.starts_with("anthill "), "{named:?}");
    // A folder with a configuration of its own gets no status of another server, but a list of the servers.
    let own = Folder::new().with("anthill.toml", server_table(""));
    let refused = run_elsewhere(&own, &["status"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let line = refused.stderr.lines().find(|line| line.contains(&path));
    let line = line.unwrap_or_else(|| panic!("{path}: {refused:?}"));
    assert!(
        line.contains("--control ") && line.ends_with("anthill.toml"),
        "{line}"
    );
    // A command with an effect needs a confirmation, and several servers a choice.
    let stopped = run_elsewhere(&elsewhere, &["stop"]);
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert!(
        stopped.stderr.contains("--yes") || stopped.stderr.contains("servers run on this machine"),
        "{stopped:?}"
    );
    assert_eq!(Wire::plain(&server).get("/", "").status, 200);
}
