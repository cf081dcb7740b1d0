//! Push to deploy, with the real git and curl: what a branch says is what the site is, whole or not at
//! all, and nobody who reads it meanwhile is disturbed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::wire::wait_until;
use crate::support::{Done, Folder, Server, finish, run, server_table, tool};

const PATIENCE: Duration = Duration::from_secs(30);
const DEPLOY: &str =
    "deploy = { repository = \"tools/site.git\", branch = \"main\", site = \"www.test\" }\n";

/// git in this folder, with nobody's configuration.
fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(tool("git"));
    command.env_clear().current_dir(folder.path(""));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", folder.path("home"));
    for (name, value) in [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_SSL_NO_VERIFY", "1"),
        ("GIT_AUTHOR_NAME", "Ant"),
        ("GIT_AUTHOR_EMAIL", "ant@example.org"),
        ("GIT_COMMITTER_NAME", "Ant"),
        ("GIT_COMMITTER_EMAIL", "ant@example.org"),
    ] {
        command.env(name, value);
    }
    command.args(arguments);
    command
}

fn try_git(folder: &Folder, arguments: &[&str]) -> Done {
    finish(command(folder, arguments), b"")
}

/// What it says, for it must work.
fn git(folder: &Folder, arguments: &[&str]) -> String {
    let done = try_git(folder, arguments);
    assert_eq!(done.code, Some(0), "git {arguments:?}: {done:?}");
    done.stdout.trim().to_owned()
}

/// A work tree `seed`, and `repos/tools/site.git` with the first commit of its branch.
fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    git(&folder, &["init", "-q", "-b", "main", "seed"]);
    fs::create_dir_all(folder.path("repos/tools")).expect("folders");
    let bare = ["init", "-q", "--bare", "-b", "main", "repos/tools/site.git"];
    git(&folder, &bare);
    commit(&folder, "index.html", b"first");
    git(
        &folder,
        &[
            "-C",
            "seed",
            "push",
            "-q",
            "../repos/tools/site.git",
            "main",
        ],
    );
    folder
}

/// Commits all that lies in the work tree; the new commit.
fn commit(folder: &Folder, name: &str, content: &[u8]) -> String {
    folder.write(&format!("seed/{name}"), content);
    git(folder, &["-C", "seed", "add", "-A", "-f"]);
    git(folder, &["-C", "seed", "commit", "-q", "-m", "more"]);
    git(folder, &["-C", "seed", "rev-parse", "HEAD"])
}

/// Two sites: one that answers to all names and has the repositories, and one that is deployed.
fn config_with(server: &str, push: &str, deploy: &str, site: &str) -> String {
    server_table(server)
        + "[[site]]\nnames = [\"*\"]\nroot = \"public\"\nhttp = \"serve\"\n\
           [[site.route]]\npath = \"/push/\"\ngit = \"repos\"\nexport = \"all\"\nusers = \"users\"\n"
        + push
        + deploy
        + "[[site]]\nnames = [\"www.test\"]\nroot = \"www\"\nhttp = \"serve\"\n"
        + site
}

fn config(server: &str) -> String {
    config_with(server, "push = true\n", DEPLOY, "")
}

fn start() -> Server {
    Server::start_in(folder(), &config(""))
}

fn url(server: &Server, path: &str) -> String {
    server.http(path).replacen("://", "://ant:crumb@", 1)
}

/// Pushes this by HTTP; what the client said.
fn push(server: &Server, more: &[&str]) -> Done {
    let url = url(server, "/push/tools/site.git");
    let arguments = [&["-C", "seed", "push", &url][..], more].concat();
    let done = try_git(&server.folder, &arguments);
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

/// Status and body that the deployed site has here.
fn page(server: &Server, path: &str) -> (String, String) {
    let ran = server.curl(&[
        "--path-as-is",
        "-H",
        "Host: www.test",
        "-w",
        "\n%{http_code}",
        &server.http(path),
    ]);
    let text = ran.text();
    let (body, status) = text.rsplit_once('\n').expect("a status");
    (status.to_owned(), body.to_owned())
}

fn serves(server: &Server, path: &str, text: &str) {
    assert_eq!(page(server, path), ("200".to_owned(), text.to_owned()));
}

fn until_served(server: &Server, path: &str, text: &str) {
    wait_until(PATIENCE, &format!("`{text}` at {path}"), || {
        (page(server, path) == ("200".to_owned(), text.to_owned())).then_some(())
    });
}

fn status(server: &Server) -> String {
    let done = server.ask(&["status"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

/// Trees that are kept.
fn trees(folder: &Folder) -> Vec<String> {
    let all = fs::read_dir(folder.path(".www.deployed")).expect("trees");
    let mut names: Vec<String> = all
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("plain")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_pushed_is_served_when_the_push_returns() {
    let server = start();
    let folder = &server.folder;
    // The root wasn't there before.
    serves(&server, "/", "first");
    let link = fs::read_link(folder.path("www")).expect("a link");
    let first = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    assert_eq!(link, std::path::Path::new(".www.deployed").join(&first));
    let mut commits = vec![first];
    for (nth, http) in ["HTTP/1.1", "HTTP/2", "HTTP/1.1", "HTTP/2"]
        .iter()
        .enumerate()
    {
        let text = format!("version {nth}");
        folder.write("seed/deep/er/page.html", &text);
        let commit = commit(folder, "index.html", text.as_bytes());
        let url = server
            .https("/push/tools/site")
            .replacen("://", "://ant:crumb@", 1);
        let http = format!("http.version={http}");
        let done = try_git(folder, &["-C", "seed", "-c", &http, "push", &url, "main"]);
        let port = server.https_port;
        let said = format!(
            "remote: deployed {} to https://www.test:{port}/",
            &commit[..7]
        );
        assert!(
            done.code == Some(0) && done.stderr.contains(&said),
            "{done:?}"
        );
        serves(&server, "/", &text);
        serves(&server, "/deep/er/page.html", &text);
        commits.push(commit);
    }
    // Few are kept.
    let mut kept: Vec<String> = commits[2..].to_vec();
    kept.sort();
    assert_eq!(trees(folder), kept);
    let said = status(&server);
    let line = format!(
        "www.test is main of tools/site.git: {} since ",
        &commits[4][..7]
    );
    assert!(said.contains(&line), "{said}");
    let json = server.ask(&["status", "--json"]).stdout;
    let part = format!(
        "\"branch\":\"main\",\"has_branch\":true,\"commit\":\"{}\"",
        commits[4]
    );
    assert!(json.contains(&part), "{json}");
}

#[test]
fn branches_that_are_forced_deleted_or_others() {
    let server = start();
    let folder = &server.folder;
    let first = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    commit(folder, "index.html", b"second");
    push(&server, &["main"]);
    serves(&server, "/", "second");
    // Back to where it was: a tree of that commit is there already, and still it is a new one.
    git(folder, &["-C", "seed", "reset", "-q", "--hard", &first]);
    let done = push(&server, &["--force", "main"]);
    assert!(
        done.stderr.contains(&format!("deployed {}", &first[..7])),
        "{done:?}"
    );
    serves(&server, "/", "first");
    // Another branch, or a tag, says nothing of the site.
    git(folder, &["-C", "seed", "checkout", "-q", "-b", "other"]);
    commit(folder, "index.html", b"other");
    git(folder, &["-C", "seed", "tag", "main"]);
    let done = push(&server, &["refs/heads/other", "refs/tags/main"]);
    assert!(!done.stderr.contains("deployed"), "{done:?}");
    serves(&server, "/", "first");
    // Nor does one whose name begins with the branch's.
    git(
        folder,
        &[
            "-C",
            "repos/tools/site.git",
            "config",
            "receive.denyDeleteCurrent",
            "ignore",
        ],
    );
    let done = push(&server, &[":refs/heads/main"]);
    assert!(!done.stderr.contains("deployed"), "{done:?}");
    push(&server, &["refs/heads/other:refs/heads/main/sub"]);
    serves(&server, "/", "first");
    let said = status(&server);
    assert!(said.contains(&format!("{} since", &first[..7])), "{said}");
    assert!(said.contains("the branch isn't there"), "{said}");
    push(&server, &[":refs/heads/main/sub"]);
    push(&server, &["refs/heads/other:refs/heads/main"]);
    serves(&server, "/", "other");
    assert!(!status(&server).contains("the branch isn't there"));
}

#[test]
fn pushes_that_dont_come_by_us_are_seen_too() {
    let mut server = start();
    commit(&server.folder, "index.html", b"by ssh");
    let local = [
        "-C",
        "seed",
        "push",
        "-q",
        "../repos/tools/site.git",
        "main",
    ];
    git(&server.folder, &local);
    until_served(&server, "/", "by ssh");
    // Packed away, a branch is in another file.
    git(
        &server.folder,
        &[
            "-C",
            "repos/tools/site.git",
            "pack-refs",
            "--all",
            "--prune",
        ],
    );
    commit(&server.folder, "index.html", b"after packing");
    git(&server.folder, &local);
    until_served(&server, "/", "after packing");
    // While nobody serves.
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    commit(&server.folder, "index.html", b"meanwhile");
    git(&server.folder, &local);
    let server = Server::start_in(server.into_folder(), &config(""));
    until_served(&server, "/", "meanwhile");
}

#[test]
fn without_push_and_with_a_branch_that_comes_later() {
    let folder = folder();
    git(&folder, &["-C", "seed", "checkout", "-q", "-b", "web/live"]);
    commit(&folder, "index.html", b"live");
    let deploy = DEPLOY.replace("\"main\"", "\"web/live\"");
    let server = Server::start_in(folder, &config_with("", "", &deploy, ""));
    assert_eq!(page(&server, "/").0, "404");
    assert!(status(&server).contains("nothing is deployed, the branch isn't there"));
    let push = [
        "-C",
        "seed",
        "push",
        "-q",
        "../repos/tools/site.git",
        "web/live",
    ];
    git(&server.folder, &push);
    until_served(&server, "/", "live");
    // One that takes its place, with nothing in it but another one.
    git(
        &server.folder,
        &[
            "-C",
            "seed",
            "push",
            "-q",
            "../repos/tools/site.git",
            ":web/live",
        ],
    );
    commit(&server.folder, "index.html", b"live again");
    git(&server.folder, &push);
    until_served(&server, "/", "live again");
    assert_eq!(trees(&server.folder).len(), 3, "the empty one among them");
}
