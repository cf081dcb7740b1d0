//! Push to deploy, with the real git and curl: the site equals the branch's tree, completely or not at all,
//! and no reader of the site is disturbed by a deployment.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::cgi::is_alive;
use crate::git::{Pusher, as_ant, assert_sound, command, git, noise, try_git};
use crate::lifecycle::in_own_mounts;
use crate::support::wire::wait_until;
use crate::support::{Done, Folder, KeepAlive, Server, finish, run, server_table, tool};

pub const PATIENCE: Duration = Duration::from_secs(60);
pub const DEPLOY: &str =
    "deploy = { repository = \"tools/site.git\", branch = \"main\", site = \"www.test\" }\n";

/// Returns a folder with a work tree `seed`, and `repos/tools/site.git` with the first commit of its
/// branch.
pub fn folder() -> Folder {
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

/// Writes a file into the work tree, commits all files, and returns the commit.
pub fn commit(folder: &Folder, name: &str, content: &[u8]) -> String {
    folder.write(&format!("seed/{name}"), content);
    git(folder, &["-C", "seed", "add", "-A", "-f"]);
    git(folder, &["-C", "seed", "commit", "-q", "-m", "more"]);
    git(folder, &["-C", "seed", "rev-parse", "HEAD"])
}

/// Returns a configuration with two sites: one for all names with the repositories, and one as the target
/// of deployments.
pub fn config_with(server: &str, push: &str, deploy: &str, site: &str) -> String {
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

/// Pushes over HTTP and returns the output of git.
pub fn push(server: &Server, more: &[&str]) -> Done {
    let url = as_ant(&server.http("/push/tools/site.git"));
    let arguments = [&["-C", "seed", "push", &url][..], more].concat();
    let done = try_git(&server.folder, &arguments);
    assert_eq!(done.code, Some(0), "{done:?}");
    done
}

/// Returns status and body of a path of the deployed site.
pub fn page(server: &Server, path: &str) -> (String, String) {
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

fn assert_served(server: &Server, path: &str, text: &str) {
    assert_eq!(page(server, path), ("200".to_owned(), text.to_owned()));
}

fn wait_until_served(server: &Server, path: &str, text: &str) {
    wait_until(PATIENCE, &format!("`{text}` at {path}"), || {
        (page(server, path) == ("200".to_owned(), text.to_owned())).then_some(())
    });
}

pub fn status(server: &Server) -> String {
    let done = server.ask(&["status"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

/// Returns the names of the retained trees.
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
fn a_pushed_commit_is_served_when_the_push_returns() {
    let server = start();
    let folder = &server.folder;
    // The root did not exist before the first push.
    assert_served(&server, "/", "first");
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
        let url = as_ant(&server.https("/push/tools/site"));
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
        assert_served(&server, "/", &text);
        assert_served(&server, "/deep/er/page.html", &text);
        commits.push(commit);
    }
    // Few old trees are retained.
    let mut kept: Vec<String> = commits[2..].to_vec();
    kept.sort();
    wait_until(PATIENCE, "old trees gone", || {
        (trees(folder) == kept).then_some(())
    });
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
fn forced_pushes_deleted_branches_and_other_branches() {
    let server = start();
    let folder = &server.folder;
    let first = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    commit(folder, "index.html", b"second");
    push(&server, &["main"]);
    assert_served(&server, "/", "second");
    // The branch returns to an earlier commit. The commit's tree exists already, and still the push is a
    // new deployment.
    git(folder, &["-C", "seed", "reset", "-q", "--hard", &first]);
    let done = push(&server, &["--force", "main"]);
    assert!(
        done.stderr.contains(&format!("deployed {}", &first[..7])),
        "{done:?}"
    );
    assert_served(&server, "/", "first");
    // Another branch or a tag deploys nothing.
    git(folder, &["-C", "seed", "checkout", "-q", "-b", "other"]);
    commit(folder, "index.html", b"other");
    git(folder, &["-C", "seed", "tag", "main"]);
    let done = push(&server, &["refs/heads/other", "refs/tags/main"]);
    // The pusher learns why nothing is deployed.
    let told =
        "remote: not deployed: www.test takes the branch main, which the push did not change";
    assert!(done.stderr.contains(told), "{done:?}");
    assert_served(&server, "/", "first");
    // A branch with the deployed branch's name as its prefix deploys nothing.
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
    let told = "remote: not deployed: www.test takes the branch main, which does not exist";
    assert!(done.stderr.contains(told), "{done:?}");
    push(&server, &["refs/heads/other:refs/heads/main/sub"]);
    assert_served(&server, "/", "first");
    let said = status(&server);
    assert!(said.contains(&format!("{} since", &first[..7])), "{said}");
    assert!(said.contains("the branch does not exist"), "{said}");
    assert!(
        said.contains("warning: www.test is not deployed: "),
        "{said}"
    );
    push(&server, &[":refs/heads/main/sub"]);
    push(&server, &["refs/heads/other:refs/heads/main"]);
    assert_served(&server, "/", "other");
    assert!(!status(&server).contains("the branch does not exist"));
}

#[test]
fn pushes_past_the_server_are_deployed() {
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
    wait_until_served(&server, "/", "by ssh");
    // After `git pack-refs` a branch is in another file.
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
    wait_until_served(&server, "/", "after packing");
    // A push while no server runs.
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    commit(&server.folder, "index.html", b"meanwhile");
    git(&server.folder, &local);
    let server = Server::start_in(server.into_folder(), &config(""));
    wait_until_served(&server, "/", "meanwhile");
}

#[test]
fn a_branch_created_later_is_deployed_without_the_push_key() {
    let folder = folder();
    git(&folder, &["-C", "seed", "checkout", "-q", "-b", "web/live"]);
    commit(&folder, "index.html", b"live");
    let deploy = DEPLOY.replace("\"main\"", "\"web/live\"");
    let server = Server::start_in(folder, &config_with("", "", &deploy, ""));
    assert_eq!(page(&server, "/").0, "404");
    wait_until(PATIENCE, "a look at the branch", || {
        let said = status(&server);
        let there = said.contains("nothing is deployed, the branch does not exist\n");
        there.then_some(())
    });
    let push = [
        "-C",
        "seed",
        "push",
        "-q",
        "../repos/tools/site.git",
        "web/live",
    ];
    git(&server.folder, &push);
    wait_until_served(&server, "/", "live");
    // Another repository with only another branch takes the place.
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
    wait_until_served(&server, "/", "live again");
    assert_eq!(trees(&server.folder).len(), 3, "the empty one among them");
}

#[test]
fn a_repository_readable_only_after_the_start_is_deployed() {
    let folder = folder();
    let file = "repos/tools/site.git/config";
    let config_of_git = fs::read(folder.path(file)).expect("there");
    folder.write(file, "[core\n");
    let server = server_that_records_git(folder, &config(""));
    let complains = |said: &str| said.contains("bad config line 1");
    wait_until(PATIENCE, "a look at it", || {
        complains(&status(&server)).then_some(())
    });
    assert_eq!(page(&server, "/").0, "404");
    let failed_at = || {
        let said = status(&server);
        let line = said.lines().find(|line| line.contains("failed at"));
        line.map(str::to_owned)
    };
    let since = failed_at();
    // The start looks at the branch, and two later checks follow.
    wait_until_called(&server, LOOK, 3);
    server.folder.write(file, config_of_git);
    assert!(since.is_some() && failed_at().is_none_or(|line| Some(line) == since));
    wait_until_served(&server, "/", "first");
    wait_until(PATIENCE, "the end of the failure", || {
        failed_at().is_none().then_some(())
    });
    server.errors.wait_for("the deployed commit", |line| {
        line.contains("of tools/site.git is deployed")
    });
    // The failure is logged once before the first deployment and once afterwards.
    let complaints = server.errors.all();
    let complaints = complaints.iter().filter(|line| complains(line)).count();
    assert_eq!(complaints, 2);
}

#[test]
fn a_recreated_repository_is_watched() {
    let server = Server::start_in(folder(), &config_with("", "", DEPLOY, ""));
    let folder = &server.folder;
    assert_served(&server, "/", "first");
    let (there, away) = ("repos/tools/site.git", "away.git");
    fs::rename(folder.path(there), folder.path(away)).expect("moved");
    let until_failed = |has: bool| {
        wait_until(PATIENCE, "a look at it", || {
            (status(&server).contains("is not a repository") == has).then_some(())
        });
    };
    until_failed(true);
    fs::rename(folder.path(away), folder.path(there)).expect("moved back");
    until_failed(false);
    // The first commit may be found by the check after the repository's return.
    for content in ["second", "third"] {
        let id = commit(folder, "index.html", content.as_bytes());
        git(
            folder,
            &["-C", there, "fetch", "-q", "../../../seed", "main"],
        );
        git(folder, &["-C", there, "update-ref", "refs/heads/main", &id]);
        wait_until_served(&server, "/", content);
    }
}

#[test]
fn a_failure_is_cleared_with_its_branch() {
    let server = start();
    let folder = &server.folder;
    symlink("/etc/passwd", folder.path("seed/out")).expect("a link");
    commit(folder, "index.html", b"second");
    let done = push(&server, &["main"]);
    assert!(
        done.stderr.contains("NOT DEPLOYED: the link out"),
        "{done:?}"
    );
    assert!(status(&server).contains("failed at"));
    let delete = [
        "-C",
        "repos/tools/site.git",
        "update-ref",
        "-d",
        "refs/heads/main",
    ];
    git(folder, &delete);
    wait_until(PATIENCE, "the end of the failure", || {
        let said = status(&server);
        let is_over = !said.contains("failed at") && said.contains("the branch does not exist");
        is_over.then_some(())
    });
    assert_served(&server, "/", "first");
}

/// strace makes the opening of a commit's tree fail with EMFILE for a while.
struct Unreadable {
    strace: std::process::Child,
    log: std::path::PathBuf,
}

impl Unreadable {
    fn begin(server: &Server, id: &str) -> Unreadable {
        let folder = server.folder.path("").canonicalize().expect("the folder");
        let log = folder.join("strace");
        let mut strace = Command::new(tool("strace"));
        strace
            .args(["-f", "-qq", "-o"])
            .arg(&log)
            .args(["-e", "trace=openat", "-e", "inject=openat:error=EMFILE"])
            .arg("-P")
            .arg(folder.join(".www.deployed").join(id))
            .arg("-p")
            .arg(server.pid().to_string());
        let strace = strace.spawn().expect("strace");
        let tasks = || {
            let folder = format!("/proc/{}/task", server.pid());
            let all = fs::read_dir(folder).expect("its threads");
            all.map(|task| fs::read_to_string(task.expect("a thread").path().join("status")))
                .all(|status| status.is_ok_and(|status| !status.contains("TracerPid:\t0\n")))
        };
        wait_until(PATIENCE, "the tracer", || tasks().then_some(()));
        Unreadable { strace, log }
    }

    /// Returns the number of failed attempts.
    fn failed_attempts(&self) -> usize {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| line.contains("EMFILE")).count()
    }

    fn end(mut self) {
        let pid = self.strace.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.strace.wait();
    }
}

const UNREADABLE: &str = "the deployed tree can't be read yet";

fn wait_until_deployed(server: &Server, id: &str) {
    server.errors.wait_for("the deployed commit", |line| {
        line.contains(&format!("{} of tools/site.git is deployed", &id[..7]))
    });
}

#[test]
fn an_unreadable_tree_is_served_once_readable() {
    let server = start();
    let id = commit(&server.folder, "index.html", b"second");
    let unreadable = Unreadable::begin(&server, &id);
    let told = format!("NOT DEPLOYED: {UNREADABLE}");
    let done = push(&server, &["main"]);
    assert!(done.stderr.contains(&told), "{done:?}");
    assert_served(&server, "/", "first");
    assert!(status(&server).contains(UNREADABLE));
    let complains = |line: &str| line.contains("is not taken over");
    server.errors.wait_for("the reason in the log", complains);
    // A push of another branch looks at the deployed branch, and reports the same failure.
    let done = push(&server, &["main:other"]);
    assert!(done.stderr.contains(&told), "{done:?}");
    assert!(status(&server).contains(UNREADABLE));
    let before = unreadable.failed_attempts();
    wait_until(PATIENCE, "a further attempt", || {
        (unreadable.failed_attempts() > before).then_some(())
    });
    unreadable.end();
    wait_until_served(&server, "/", "second");
    wait_until(PATIENCE, "the end of the failure", || {
        (!status(&server).contains("failed at")).then_some(())
    });
    wait_until_deployed(&server, &id);
    // The retries are logged once.
    let all = server.errors.all();
    assert_eq!(all.iter().filter(|line| complains(line)).count(), 1);
}

/// Starts a server with a page cache and a last tree that cannot be read.
fn server_with_unreadable_tree() -> (Server, String, Unreadable) {
    let script = |said: &str| format!("echo Content-Type: text/plain; echo; echo {said}");
    let folder = folder();
    commit(&folder, "page.sh", script("first").as_bytes());
    let repository = "../repos/tools/site.git";
    git(&folder, &["-C", "seed", "push", "-q", repository, "main"]);
    let site = "[[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n\
                cache = { seconds = 100000 }\n";
    let server = server_that_records_git(folder, &config_with("", "push = true\n", DEPLOY, site));
    for _ in 0..2 {
        assert_served(&server, "/page.sh", "first\n");
    }
    let id = commit(&server.folder, "page.sh", script("second").as_bytes());
    let unreadable = Unreadable::begin(&server, &id);
    let done = push(&server, &["main"]);
    assert!(done.stderr.contains(UNREADABLE), "{done:?}");
    (server, id, unreadable)
}

#[test]
fn an_unreadable_tree_is_retried_after_a_refused_tree() {
    let (server, id, unreadable) = server_with_unreadable_tree();
    let link = server.folder.path("seed/out");
    symlink("/etc/passwd", link).expect("a link");
    commit(&server.folder, "index.html", b"third");
    let done = push(&server, &["main"]);
    let told = "NOT DEPLOYED: the link out";
    assert!(done.stderr.contains(told), "{done:?}");
    // The push triggers an archive, and the watch may have triggered another one before.
    let archives = git_calls(&server, "archive");
    wait_until_called(&server, LOOK, git_calls(&server, LOOK) + 2);
    assert!(status(&server).contains("the link out"));
    assert_served(&server, "/page.sh", "first\n");
    unreadable.end();
    wait_until_served(&server, "/page.sh", "second\n");
    wait_until_deployed(&server, &id);
    assert!(status(&server).contains("the link out"));
    // A refused tree is not made again.
    assert_eq!(git_calls(&server, "archive"), archives);
}

#[test]
fn an_unreadable_tree_is_retried_after_its_branch_is_deleted() {
    let (server, id, unreadable) = server_with_unreadable_tree();
    let repository = "repos/tools/site.git";
    git(
        &server.folder,
        &["-C", repository, "update-ref", "-d", "refs/heads/main"],
    );
    wait_until(PATIENCE, "a look at the branch", || {
        let said = status(&server);
        let both = said.contains("the branch does not exist") && said.contains(UNREADABLE);
        both.then_some(())
    });
    unreadable.end();
    wait_until_served(&server, "/page.sh", "second\n");
    wait_until_deployed(&server, &id);
    wait_until(PATIENCE, "the end of the failure", || {
        (!status(&server).contains("failed at")).then_some(())
    });
}

#[test]
fn deployments_and_pages_share_their_repositories() {
    let folder = folder().with("state/deploy/sha1/HEAD", "ref: refs/heads/none\n");
    let server = Server::start_in(folder, &config(""));
    assert_served(&server, "/", "first");
    let is_there = |name: &str| server.folder.path(name).exists();
    assert!(is_there("state/git/sha1/config") && !is_there("state/deploy"));
    let page = as_ant(&server.http("/push/tools/site/"));
    let ran = server.curl(&["-f", &page]);
    assert!(ran.success, "{}", ran.errors());
}

/// Processes left in git's process group end, after a deployment or a snapshot that has finished or has
/// been cancelled.
#[test]
fn background_processes_of_git_are_ended() {
    let folder = folder();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = archive ]; then\n  \
         '{1}' 1000 < /dev/null > /dev/null 2>&1 &\n  echo $! >> '{0}/left'\n  \
         while [ -e '{0}/hold' ]; do '{1}' 0.02; done\nfi\nexec '{2}' \"$@\"\n",
        folder.path("").display(),
        tool("sleep").display(),
        tool("git").display(),
    );
    let server = server_with_git(folder, &script);
    let folder = &server.folder;
    let left = |count: usize| {
        wait_until(PATIENCE, "what git started", || {
            let text = fs::read_to_string(folder.path("left")).unwrap_or_default();
            (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
        })
    };
    let all_end = |count: usize| {
        let pids = left(count);
        wait_until(PATIENCE, "the end of what it left", || {
            (!pids.lines().any(is_alive)).then_some(())
        });
    };
    assert_served(&server, "/", "first");
    all_end(1);
    let snapshot = as_ant(&server.http("/push/tools/site/snapshot/site-main.tar.gz"));
    let ran = server.curl(&[&snapshot]);
    assert!(
        ran.success && ran.stdout.starts_with(b"\x1f\x8b"),
        "{}",
        ran.errors()
    );
    all_end(2);
    folder.write("hold", "");
    let mut curl = Command::new(tool("curl"));
    let mut curl = curl.args(["-s", &snapshot]).spawn().expect("curl");
    left(3);
    curl.kill().expect("killed");
    let _ = curl.wait();
    all_end(3);
    let push = push_in_background(&server, "second");
    left(4);
    server.reload(&config_with("", "push = true\n", "", ""));
    push_output(push);
    all_end(4);
}

/// The output of a push names a failure's place on the site, and the log names the place on the disk.
#[test]
fn a_push_reveals_no_path_of_the_disk() {
    let folder = folder();
    let root = folder.path("").display().to_string();
    let root = root.trim_end_matches('/');
    // git's message about a damaged pack depends on its version.
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = archive ] && [ -e '{root}/damaged' ]; then\n  \
         echo \"fatal: '{root}/repos/tools/site.git/objects' is damaged\" >&2; exit 128\nfi\n\
         exec '{}' \"$@\"\n",
        tool("git").display()
    );
    let server = server_with_git(folder, &script);
    let folder = &server.folder;
    let fails = |text: &str, told: &str, logged: &str| {
        commit(folder, "index.html", text.as_bytes());
        let done = push(&server, &["main"]);
        assert!(
            done.stderr.contains(&format!("NOT DEPLOYED: {told}")),
            "{done:?}"
        );
        assert!(!done.stderr.contains(root), "{done:?}");
        server
            .errors
            .wait_for(logged, |line| line.contains(&format!("{root}/{logged}")));
        assert!(status(&server).contains(&format!("{root}/{logged}")));
    };
    fs::rename(folder.path(".www.deployed"), folder.path("trees")).expect("moved");
    folder.write(".www.deployed", "a file");
    let told = "the folder of deployed trees beside the site's: ";
    fails("second", told, ".www.deployed: ");
    fs::remove_file(folder.path(".www.deployed")).expect("removed");
    fs::remove_file(folder.path("www")).expect("removed");
    folder.write("www/index.html", "by hand");
    fails(
        "third",
        "the site's folder: it holds files",
        "www: it holds files",
    );
    fs::remove_dir_all(folder.path("www")).expect("removed");
    folder.write("damaged", "");
    let told = "git failed; see the server's error log";
    fails("fourth", told, "repos/tools/site.git/objects");
}

#[test]
fn repositories_with_a_work_tree_or_with_sha256_ids_are_deployed() {
    let folder = folder();
    // A repository with a work tree, and a repository with SHA-256 ids and an empty tree.
    git(&folder, &["init", "-q", "-b", "main", "repos/tree"]);
    git(
        &folder,
        &[
            "init",
            "-q",
            "--object-format=sha256",
            "-b",
            "main",
            "repos/long",
        ],
    );
    folder.write("repos/tree/index.html", "first");
    git(&folder, &["-C", "repos/tree", "add", "-A"]);
    for tree in ["repos/tree", "repos/long"] {
        git(
            &folder,
            &["-C", tree, "commit", "-q", "--allow-empty", "-m", "one"],
        );
    }
    let list = "deploy = [{ repository = \"tree\", site = \"www.test\" },\n\
                { repository = \"long\", site = \"b.test\" }]\n";
    let second = "[[site]]\nnames = [\"b.test\"]\nroot = \"b\"\nhttp = \"serve\"\n";
    let server = Server::start_in(folder, &config_with("", "", list, second));
    let folder = &server.folder;
    let commit = |tree: &str, text: &str| {
        folder.write(&format!("{tree}/index.html"), text);
        git(folder, &["-C", tree, "add", "-A"]);
        git(folder, &["-C", tree, "commit", "-q", "-m", "more"]);
    };
    assert_served(&server, "/", "first");
    commit("repos/tree", "second");
    wait_until_served(&server, "/", "second");
    let of_b = || {
        let asked = [
            "-H",
            "Host: b.test",
            "-w",
            "%{http_code}",
            &server.http("/"),
        ];
        server.curl(&asked).text()
    };
    assert!(of_b().ends_with("404"));
    let link = fs::read_link(folder.path("b")).expect("a link");
    assert_eq!(link.file_name().expect("an id").len(), 64);
    commit("repos/long", "long");
    wait_until(PATIENCE, "a page", || (of_b() == "long200").then_some(()));
}

#[test]
fn a_push_through_any_route_is_deployed() {
    let other = "[[site.route]]\npath = \"/git/\"\ngit = \"repos\"\n";
    let push_at = format!("push = true\n{other}");
    let server = Server::start_in(folder(), &config_with("", &push_at, DEPLOY, ""));
    commit(&server.folder, "index.html", b"second");
    let done = push(&server, &["main"]);
    assert!(done.stderr.contains("remote: deployed "), "{done:?}");
    assert_served(&server, "/", "second");
    // A push to a repository without a deployment is unaffected.
    let bare = [
        "init",
        "-q",
        "--bare",
        "-b",
        "main",
        "repos/tools/other.git",
    ];
    git(&server.folder, &bare);
    commit(&server.folder, "index.html", b"elsewhere");
    let url = as_ant(&server.http("/push/tools/other.git"));
    let done = try_git(&server.folder, &["-C", "seed", "push", &url, "main"]);
    assert!(
        done.code == Some(0) && !done.stderr.contains("remote:"),
        "{done:?}"
    );
    assert_served(&server, "/", "second");
    // The JSON status is readable by programs.
    let json = server.ask(&["status", "--json"]).stdout;
    let read = "import json, sys; print(json.load(sys.stdin)['deployments'][0]['branch'])";
    assert_eq!(
        run("python3", &["-c", read], json.as_bytes()).text(),
        "main\n"
    );
}

#[test]
fn an_aborted_push_changes_nothing() {
    let server = start();
    let folder = &server.folder;
    for repository in ["seed", "repos/tools/site.git"] {
        git(
            folder,
            &["-C", repository, "config", "core.compression", "0"],
        );
    }
    for (nth, part) in noise(30 << 20).chunks(1 << 19).enumerate() {
        folder.write(&format!("seed/large/{nth}"), part);
    }
    commit(folder, "index.html", b"large");
    let url = as_ant(&server.http("/push/tools/site.git"));
    let pusher = Pusher::start(folder, &url);
    pusher.hold(folder, "repos/tools/site.git");
    drop(pusher);
    let parent = server.pid().to_string();
    wait_until(PATIENCE, "the end of git", || {
        let children = run("ps", &["-o", "pid=", "--ppid", &parent], b"");
        children.text().trim().is_empty().then_some(())
    });
    assert_sound(folder, "repos/tools/site.git");
    assert_served(&server, "/", "first");
    assert_eq!(trees(folder).len(), 1);
    push(&server, &["main"]);
    assert_served(&server, "/", "large");
}

#[test]
fn a_deployed_tree_equals_the_tree_in_git() {
    let server = start();
    let folder = &server.folder;
    folder.write(
        "seed/.gitattributes",
        "drafts export-ignore\n*.src export-ignore\nv.txt export-subst\n",
    );
    folder.write("seed/drafts/secret.html", "secret");
    folder.write("seed/page.src", "source");
    folder.write("seed/v.txt", "$Format:%H$");
    folder.write("seed/run.sh", "#!/bin/sh\n");
    folder.write("seed/größe/a page.html", "odd names");
    let (deep, long) = ("deep/".repeat(40), "n".repeat(120));
    folder.write(&format!("seed/{deep}page.html"), "deep");
    folder.write(&format!("seed/{long}/{long}.html"), "long");
    let mode = |name: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(name), mode).expect("a mode");
    };
    mode("seed/run.sh", 0o755);
    symlink("index.html", folder.path("seed/again.html")).expect("a link");
    symlink("../largely/../index.html", folder.path("seed/drafts/up")).expect("a link");
    symlink("x".repeat(150), folder.path("seed/dangling")).expect("a link");
    git(folder, &["init", "-q", "-b", "main", "other"]);
    git(
        folder,
        &["-C", "other", "commit", "-q", "--allow-empty", "-m", "one"],
    );
    let other = folder.path("other");
    let other = other.to_str().expect("plain");
    let add = [
        "-c",
        "protocol.file.allow=always",
        "-C",
        "seed",
        "submodule",
        "--quiet",
        "add",
        other,
        "sub",
    ];
    git(folder, &add);
    commit(folder, "index.html", b"whole");
    push(&server, &["main"]);
    assert_served(&server, "/", "whole");
    assert_served(&server, "/again.html", "whole");
    assert_served(&server, "/v.txt", "$Format:%H$");
    assert_served(&server, "/gr%C3%B6%C3%9Fe/a%20page.html", "odd names");
    assert_served(&server, &format!("/{deep}page.html"), "deep");
    assert_served(&server, &format!("/{long}/{long}.html"), "long");
    for missing in [
        "/drafts/secret.html",
        "/page.src",
        "/dangling",
        "/.gitattributes",
    ] {
        assert_eq!(page(&server, missing).0, "404", "{missing}");
    }
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.path("www").join(name)).expect("there");
        metadata.mode() & 0o7777
    };
    assert_eq!(mode("run.sh"), 0o755);
    assert_eq!(mode("index.html"), 0o644);
    assert_eq!((mode(""), mode("deep"), mode("sub")), (0o755, 0o755, 0o755));
    let sub = fs::read_dir(folder.path("www/sub")).expect("a folder");
    assert_eq!(sub.count(), 0);
    // Unchanged files keep their times, so browsers keep their copies.
    let modified = |name: &str| {
        let metadata = fs::metadata(folder.path("www").join(name)).expect("there");
        metadata.modified().expect("a time")
    };
    let (same, other) = (modified("run.sh"), modified("index.html"));
    commit(folder, "index.html", b"WHOLE");
    push(&server, &["main"]);
    assert_eq!(modified("run.sh"), same);
    assert_ne!(modified("index.html"), other);
}

#[test]
fn trees_with_links_outside_or_over_a_limit_are_refused() {
    let limits = "limits = { deploy_files = 80, deploy_bytes = \"100 KiB\" }";
    let server = Server::start_in(folder(), &config(limits));
    let folder = &server.folder;
    let first = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    folder.write("secret", "never");
    let refused = |why: &str| {
        let done = push(&server, &["--force", "main"]);
        let lines: Vec<&str> = done
            .stderr
            .lines()
            .filter(|line| line.starts_with("remote:"))
            .collect();
        let [what, stays] = lines[..] else {
            panic!("{done:?}");
        };
        assert!(
            what.contains("NOT DEPLOYED: ") && what.contains(why),
            "{done:?}"
        );
        assert!(
            stays.contains(&format!(
                "www.test:{}/ stays at {}",
                server.https_port,
                &first[..7]
            )),
            "{done:?}"
        );
        server.errors.wait_for(why, |line| {
            line.contains("is not deployed") && line.contains(why)
        });
        assert!(status(&server).contains(why));
        assert_served(&server, "/", "first");
        assert_eq!(trees(folder).len(), 1);
        git(folder, &["-C", "seed", "reset", "-q", "--hard", &first]);
    };
    for target in ["../secret", "/etc/passwd", "a/../../secret"] {
        symlink(target, folder.path("seed/link")).expect("a link");
        commit(folder, "index.html", target.as_bytes());
        refused(&format!("the link link leads out of the tree, to {target}"));
    }
    fs::create_dir_all(folder.path("seed/a/b")).expect("folders");
    symlink("../..", folder.path("seed/a/b/up")).expect("a link");
    symlink("a/b/up/../secret", folder.path("seed/out")).expect("a link");
    commit(folder, "index.html", b"chain");
    refused("the link out leads out of the tree");
    folder.write(&format!("seed/{}page", "d/".repeat(65)), "deep");
    commit(folder, "index.html", b"deep");
    refused("folders are nested more than 64 deep");
    commit(folder, "large", &noise(101 << 10));
    refused("more than 102400 bytes (the limit `deploy_bytes`)");
    for nth in 0..81 {
        folder.write(&format!("seed/{nth}"), "");
    }
    commit(folder, "index.html", b"many");
    refused("more than 80 files (the limit `deploy_files`)");
    // A correct commit follows.
    commit(folder, "index.html", b"right");
    let done = push(&server, &["--force", "main"]);
    assert!(done.stderr.contains("remote: deployed"), "{done:?}");
    assert_served(&server, "/", "right");
    assert!(!status(&server).contains("failed at"));
}

#[test]
fn five_thousand_files_are_deployed_at_once() {
    let server = start();
    let folder = &server.folder;
    for version in ["one", "two"] {
        for nth in 0..5_000 {
            folder.write(
                &format!("seed/{}/{nth}.html", nth % 50),
                format!("{version} {nth}"),
            );
        }
        commit(folder, "index.html", version.as_bytes());
        // All files are flushed to the disk, which may be slow, so the client has no timeout of its own.
        let url = as_ant(&server.http("/push/tools/site.git"));
        let done = command(folder, &["-C", "seed", "push", &url, "main"]).output();
        let done = done.expect("git");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(said.contains("remote: deployed"), "{said}");
        assert_served(&server, "/", version);
        for nth in [0, 1, 777, 2_500, 4_999] {
            assert_served(
                &server,
                &format!("/{}/{nth}.html", nth % 50),
                &format!("{version} {nth}"),
            );
        }
    }
    let line = server
        .errors
        .wait_for("how long it took", |line| line.contains("5001 files"));
    println!("{line}");
}

#[test]
fn hooks_still_run_and_old_clients_are_served() {
    let server = start();
    let folder = &server.folder;
    let hook = "repos/tools/site.git/hooks/post-receive";
    folder.write(hook, "#!/bin/sh\necho welcome\n");
    fs::set_permissions(folder.path(hook), fs::Permissions::from_mode(0o755)).expect("a mode");
    commit(folder, "index.html", b"hooked");
    let done = push(&server, &["main"]);
    let (hooked, deployed) = (
        done.stderr.find("remote: welcome"),
        done.stderr.find("remote: deployed"),
    );
    assert!(hooked.is_some() && hooked < deployed, "{done:?}");
    assert_served(&server, "/", "hooked");
    // A client without side-band: the report is git's own, and arrives after the deployment.
    let old = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    let new = commit(folder, "index.html", b"old client");
    let pack = command(
        folder,
        &["-C", "seed", "pack-objects", "--stdout", "--revs", "-q"],
    );
    let mut pack = pack;
    let mut child = pack
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(format!("{new}\n^{old}\n").as_bytes())
        .expect("written");
    drop(stdin);
    let mut bytes = Vec::new();
    let line = format!("{old} {new} refs/heads/main\0 report-status");
    bytes.extend_from_slice(format!("{:04x}{line}0000", line.len() + 4).as_bytes());
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_to_end(&mut bytes)
        .expect("read");
    assert!(child.wait().expect("its end").success());
    folder.write("request", bytes);
    let body = format!("@{}", folder.path("request").display());
    let ran = server.curl(&[
        "-u",
        "ant:crumb",
        "-H",
        "Content-Type: application/x-git-receive-pack-request",
        "--data-binary",
        &body,
        &server.http("/push/tools/site.git/git-receive-pack"),
    ]);
    assert_eq!(ran.text(), "000eunpack ok\n0017ok refs/heads/main\n0000");
    assert_served(&server, "/", "old client");
}

#[test]
fn a_deployment_disturbs_no_reader() {
    const VERSIONS: usize = 4;
    let text = |page: &str, version: usize| -> Vec<u8> {
        let line = format!("{page} of version {version}\n");
        let lines = if page == "/large.html" { 6_000 } else { 20 };
        line.repeat(lines).into_bytes()
    };
    let folder = folder();
    let pages = ["/", "/small.html", "/large.html"];
    let write = |folder: &Folder, version| {
        for page in pages {
            let name = if page == "/" { "/index.html" } else { page };
            folder.write(&format!("seed{name}"), text(page, version));
        }
        commit(folder, "version", version.to_string().as_bytes());
    };
    write(&folder, 0);
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
    let deploy = DEPLOY.replace("www.test", "localhost");
    let both =
        config_with("", "push = true\n", &deploy, "").replace("\"www.test\"", "\"localhost\"");
    let server = Server::start_in(folder, &both.replace("workers = 1", "workers = 2"));
    let tags: Mutex<HashMap<(usize, usize), String>> = Mutex::default();
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));

    fn hammer<S: Read + Write>(
        mut client: KeepAlive<S>,
        stop: &AtomicBool,
        asked: &AtomicUsize,
        mut check: impl FnMut(usize, &crate::support::Got) -> usize,
    ) {
        let mut last = 0;
        for nth in 0..1_000_000 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let page = nth % 3;
            let got = client.get(["/", "/small.html", "/large.html"][page]);
            let version = check(page, &got);
            assert!(version >= last, "from {last} back to {version}");
            last = version;
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }
    let check = |page: usize, got: &crate::support::Got| -> usize {
        assert_eq!(got.status, 200, "{got:?}");
        let version = (0..VERSIONS).find(|version| text(pages[page], *version) == got.body);
        let version = version.expect("a body of one version");
        let mut lines = got.head.lines();
        let tag = lines
            .find(|line| line.to_lowercase().starts_with("etag:"))
            .expect("a tag");
        let mut tags = tags.lock().expect("tags");
        let known = tags
            .entry((page, version))
            .or_insert_with(|| tag.to_owned());
        assert_eq!(known, tag);
        version
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let client = server.keep_alive();
            scope.spawn(|| hammer(client, &stop, &asked, check));
        }
        let client = server.keep_alive_tls();
        scope.spawn(|| hammer(client, &stop, &asked, check));
        // The readers see the first version and each later version.
        let more = |count: usize| {
            let until = asked.load(Ordering::Relaxed) + count;
            wait_until(PATIENCE, "requests", || {
                (asked.load(Ordering::Relaxed) >= until).then_some(())
            });
        };
        more(100);
        for version in 1..VERSIONS {
            write(&server.folder, version);
            let url =
                as_ant(&server.http("/push/tools/site.git")).replace("localhost", "127.0.0.1");
            git(&server.folder, &["-C", "seed", "push", "-q", &url, "main"]);
            let ran = server.curl(&[server.http("/small.html")]);
            assert_eq!(ran.stdout, text("/small.html", version));
            more(100);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let tags = tags.lock().expect("tags");
    assert_eq!(tags.len(), 3 * VERSIONS);
    println!("{} requests", asked.load(Ordering::Relaxed));
}

/// Starts a server with a git that pauses an archive while a file `hold` exists.
fn server_with_slow_git() -> Server {
    server_with_slow_git_in(folder())
}

fn server_with_slow_git_in(folder: Folder) -> Server {
    let real = tool("git");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = archive ]; then\n  echo x >> '{0}/archives'\n  \
         while [ -e '{0}/hold' ]; do '{2}' 0.02; done\n  ulimit -d >> '{0}/memory'\nfi\n\
         exec '{1}' \"$@\"\n",
        folder.path("").display(),
        real.display(),
        tool("sleep").display()
    );
    server_with_git(folder, &script)
}

/// Starts a server with the script as git.
fn server_with_git(folder: Folder, script: &str) -> Server {
    start_server_with_git(folder, script, &config("limits = { drain_seconds = 10 }"))
}

fn start_server_with_git(folder: Folder, script: &str, config: &str) -> Server {
    folder.program("bin/git", script);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = vec![folder.path("bin")];
    all.extend(std::env::split_paths(&path));
    let mut server = Command::new(crate::support::program());
    server.env("PATH", std::env::join_paths(all).expect("a path"));
    Server::start_by(server, folder, config)
}

/// Starts a server with a git that records its subcommands.
fn server_that_records_git(folder: Folder, config: &str) -> Server {
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> '{}/calls'\nexec '{}' \"$@\"\n",
        folder.path("").display(),
        tool("git").display()
    );
    start_server_with_git(folder, &script, config)
}

/// The git command run to look at a branch.
const LOOK: &str = "for-each-ref";

fn git_calls(server: &Server, what: &str) -> usize {
    let text = fs::read_to_string(server.folder.path("calls")).unwrap_or_default();
    text.lines().filter(|line| *line == what).count()
}

fn wait_until_called(server: &Server, what: &str, times: usize) {
    wait_until(2 * PATIENCE, &format!("{times} calls of {what}"), || {
        (git_calls(server, what) >= times).then_some(())
    });
}

fn archives(server: &Server) -> usize {
    let text = fs::read_to_string(server.folder.path("archives")).unwrap_or_default();
    text.lines().count()
}

#[test]
fn the_last_of_many_pushes_is_deployed() {
    let server = server_with_slow_git();
    let folder = &server.folder;
    assert_eq!(archives(&server), 1);
    folder.write("hold", "");
    let push = |name: &str| {
        commit(folder, "index.html", name.as_bytes());
        let url = as_ant(&server.http("/push/tools/site.git"));
        let mut push = command(folder, &["-C", "seed", "push", &url, "main"]);
        let push = push.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        // The push has arrived, and its client waits for the deployment.
        let commit = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
        wait_until(PATIENCE, "the branch", || {
            let there = git(folder, &["-C", "repos/tools/site.git", "rev-parse", "main"]);
            (there == commit).then_some(())
        });
        push.expect("git")
    };
    let mut pushes = vec![push("one")];
    wait_until(PATIENCE, "git at work", || {
        (archives(&server) == 2).then_some(())
    });
    pushes.push(push("two"));
    pushes.push(push("three"));
    assert_served(&server, "/", "first");
    assert!(status(&server).contains("deployment under way"));
    let waits = |push: &mut std::process::Child| push.try_wait().expect("a status").is_none();
    assert!(pushes.iter_mut().all(waits));
    fs::remove_file(folder.path("hold")).expect("removed");
    let last = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    for (nth, push) in pushes.into_iter().enumerate() {
        let done = push.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.success() && said.contains("remote: deployed "),
            "{said}"
        );
        assert!(nth == 0 || said.contains(&last[..7]), "{said}");
    }
    assert_served(&server, "/", "three");
    // The second commit is never deployed.
    assert_eq!(archives(&server), 3);
}

/// Commits and pushes in the background. Returns once the branch has moved.
fn push_in_background(server: &Server, content: &str) -> std::process::Child {
    let folder = &server.folder;
    let commit = commit(folder, "index.html", content.as_bytes());
    let url = as_ant(&server.http("/push/tools/site.git"));
    let mut push = command(folder, &["-C", "seed", "push", &url, "main"]);
    let push = push.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    wait_until(PATIENCE, "the branch", || {
        let there = git(folder, &["-C", "repos/tools/site.git", "rev-parse", "main"]);
        (there == commit).then_some(())
    });
    push.expect("git")
}

/// Returns the output of a push, which must succeed.
fn push_output(push: std::process::Child) -> String {
    let done = push.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

#[test]
fn a_start_and_a_reload_do_not_wait_for_ever() {
    let folder = folder();
    folder.write("hold", "");
    let server = server_with_slow_git_in(folder);
    let folder = &server.folder;
    server.errors.wait_for("that it takes a while", |line| {
        line.contains("empty until main of tools/site.git is deployed")
    });
    assert_eq!(page(&server, "/").0, "404");
    // The deployment goes on in the background, and git has resource limits.
    wait_until(PATIENCE, "git at work", || {
        (archives(&server) == 2).then_some(())
    });
    // A start or a reload does not wait for another deployment meanwhile.
    let list = "deploy = [{ repository = \"tools/site\", site = \"www.test\" },\n\
                { repository = \"tools/site.git\", site = \"b.test\" }]\n";
    let second = "[[site]]\nnames = [\"b.test\"]\nroot = \"b\"\nhttp = \"serve\"\n";
    server.reload(&config_with("", "push = true\n", list, second));
    let of_b = || {
        let ran = server.curl(&["-H", "Host: b.test", &server.http("/")]);
        ran.text()
    };
    assert_ne!(of_b(), "first");
    fs::remove_file(folder.path("hold")).expect("removed");
    wait_until_served(&server, "/", "first");
    wait_until(PATIENCE, "the other one", || {
        (of_b() == "first").then_some(())
    });
    let memory = fs::read_to_string(folder.path("memory")).expect("a limit");
    // The limit of the paused git. Another git may have recorded a line before.
    let first = memory.lines().next();
    assert_eq!(first, Some((512 * 1024).to_string().as_str()), "KiB");
}

#[test]
fn a_waiting_push_learns_when_a_reload_changes_or_ends_its_deployment() {
    let server = server_with_slow_git();
    let folder = &server.folder;
    folder.write("hold", "");
    let push = push_in_background(&server, "second");
    wait_until(PATIENCE, "git at work", || {
        (archives(&server) == 2).then_some(())
    });
    // The deployment restarts with new limits.
    server.reload(&config("limits = { deploy_bytes = \"1 MiB\" }"));
    wait_until(PATIENCE, "git at work again", || {
        (archives(&server) == 3).then_some(())
    });
    fs::remove_file(folder.path("hold")).expect("removed");
    let told = push_output(push);
    assert!(told.contains("remote: deployed "), "{told}");
    assert_served(&server, "/", "second");
    // A push retries a failed commit, and the watch does not. The watch may run before the push's client
    // has its report, so the test waits for a running git.
    folder.write("seed/large", noise(2 << 20));
    commit(folder, "index.html", b"third");
    let done = self::push(&server, &["main"]);
    assert!(done.stderr.contains("more than 1048576 bytes"), "{done:?}");
    let before = archives(&server);
    folder.write("hold", "");
    let url = as_ant(&server.http("/push/tools/site.git"));
    let mut push = command(folder, &["-C", "seed", "push", &url, "main:other"]);
    let push = push.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    wait_until(PATIENCE, "git at work", || {
        (archives(&server) > before).then_some(())
    });
    server.reload(&config_with("", "push = true\n", "", ""));
    let told = push_output(push.expect("git"));
    assert!(
        told.contains("remote: not deployed: the deployment was removed"),
        "{told}"
    );
    assert_served(&server, "/", "second");
}

#[test]
fn programs_configured_in_a_repository_are_not_run() {
    let folder = folder();
    let repository = "repos/tools/site.git";
    let run_it = format!("touch '{}'; cat", folder.path("ran").display());
    for key in ["filter.x.smudge", "filter.x.clean"] {
        git(&folder, &["-C", repository, "config", key, &run_it]);
    }
    let required = ["-C", repository, "config", "filter.x.required", "true"];
    git(&folder, &required);
    let gpg = format!("#!/bin/sh\ntouch '{}'\n", folder.path("checked").display());
    folder.write("bin/gpg", gpg);
    fs::set_permissions(folder.path("bin/gpg"), fs::Permissions::from_mode(0o755)).expect("a mode");
    folder.write(
        "seed/.gitattributes",
        "*.html filter=x\nv.txt export-subst\n",
    );
    folder.write("seed/v.txt", "$Format:%H %G?$");
    commit(&folder, "index.html", b"filtered");
    // The commit carries a signature, to provoke a signature check.
    let signed = git(&folder, &["-C", "seed", "cat-file", "commit", "HEAD"]);
    let signature =
        "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n";
    folder.write("signed", signed.replacen("\n\n", signature, 1) + "\n");
    let hash = [
        "-C",
        "seed",
        "hash-object",
        "-t",
        "commit",
        "-w",
        "../signed",
    ];
    let id = git(&folder, &hash);
    git(&folder, &["-C", "seed", "reset", "-q", "--hard", &id]);
    let local = [
        "-C",
        "seed",
        "push",
        "-q",
        "../repos/tools/site.git",
        "main",
    ];
    git(&folder, &local);
    // git itself would run both programs.
    let mut all = vec![folder.path("bin")];
    let path = std::env::var_os("PATH").unwrap_or_default();
    all.extend(std::env::split_paths(&path));
    let mut archive = command(&folder, &["-C", repository, "archive", "main"]);
    archive.env("PATH", std::env::join_paths(all).expect("a path"));
    let done = finish(archive, b"");
    assert_eq!(done.code, Some(0), "{done:?}");
    for name in ["ran", "checked"] {
        fs::remove_file(folder.path(name)).expect("the witness of the program");
    }
    let server = server_with_slow_git_in(folder);
    assert_served(&server, "/", "filtered");
    let (_, version) = page(&server, "/v.txt");
    assert_eq!(version, "$Format:%H %G?$");
    for name in ["ran", "checked"] {
        assert!(!server.folder.path(name).exists(), "{name}");
    }
}

#[test]
fn a_large_push_after_a_probe_request_is_deployed() {
    let server = start();
    for repository in ["seed", "repos/tools/site.git"] {
        let plain = ["-C", repository, "config", "core.compression", "0"];
        git(&server.folder, &plain);
    }
    let buffer = ["-C", "seed", "config", "http.postBuffer", "65536"];
    git(&server.folder, &buffer);
    server.folder.write("seed/large", noise(1 << 19));
    commit(&server.folder, "index.html", b"second");
    let done = push(&server, &["main"]);
    let told = done.stderr.matches("remote: deployed ").count();
    assert_eq!(told, 1, "{done:?}");
    assert_served(&server, "/", "second");
}

#[test]
fn a_stop_waits_for_no_deployment() {
    let mut server = server_with_slow_git();
    server.folder.write("hold", "");
    let commit = commit(&server.folder, "index.html", b"second");
    let url = as_ant(&server.http("/push/tools/site.git"));
    let mut push = command(&server.folder, &["-C", "seed", "push", &url, "main"]);
    let push = push
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git");
    wait_until(PATIENCE, "git at work", || {
        (archives(&server) == 2).then_some(())
    });
    // The branch moves before the response is held back.
    wait_until(PATIENCE, "the branch", || {
        let there = git(
            &server.folder,
            &["-C", "repos/tools/site.git", "rev-parse", "main"],
        );
        (there == commit).then_some(())
    });
    server.signal("TERM");
    let done = push.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.success() && said.contains("remote: not deployed yet"),
        "{said}"
    );
    assert_eq!(server.wait(PATIENCE), Some(0));
    let folder = server.into_folder();
    assert_eq!(trees(&folder).len(), 1, "nothing is left over");
    fs::remove_file(folder.path("hold")).expect("removed");
    let server = Server::start_in(folder, &config(""));
    wait_until_served(&server, "/", "second");
    assert_eq!(trees(&server.folder).len(), 2);
}

#[test]
fn a_reload_begins_and_ends_deployments() {
    let folder = folder();
    git(&folder, &["-C", "seed", "checkout", "-q", "-b", "next"]);
    commit(&folder, "index.html", b"next");
    git(
        &folder,
        &[
            "-C",
            "seed",
            "push",
            "-q",
            "../repos/tools/site.git",
            "next",
        ],
    );
    git(&folder, &["-C", "seed", "checkout", "-q", "main"]);
    folder.write("www/index.html", "by hand");
    let without = config_with("", "push = true\n", "", "");
    let server = Server::start_in(folder, &without);
    let folder = &server.folder;
    assert_served(&server, "/", "by hand");
    // The operator's files in the root belong to the operator.
    folder.write("anthill.toml", config(""));
    let done = server.ask(&["reload"]);
    assert_ne!(done.code, Some(0));
    let text = "holds files that did not come from a deployment";
    assert!(
        done.stderr.contains(text) && done.stderr.contains("mv "),
        "{done:?}"
    );
    assert!(done.stderr.contains("anthill.toml:"), "{done:?}");
    assert_served(&server, "/", "by hand");
    fs::rename(folder.path("www"), folder.path("www.before")).expect("moved away");
    server.reload(&config(""));
    assert_served(&server, "/", "first");
    // Another branch, and a second site.
    let list = "deploy = [{ repository = \"tools/site\", branch = \"next\", site = \"www.test\" },\n\
                { repository = \"tools/site.git\", site = \"b.test\" }]\n";
    let second = "[[site]]\nnames = [\"a.test\", \"b.test\"]\nroot = \"b\"\nhttp = \"serve\"\n";
    let two = config_with("", "push = true\n", list, second);
    server.reload(&two);
    wait_until_served(&server, "/", "next");
    let of_b = || {
        let ran = server.curl(&["-H", "Host: a.test", &server.http("/")]);
        ran.text()
    };
    assert_eq!(of_b(), "first");
    // One push to two sites.
    commit(folder, "index.html", b"for b");
    git(folder, &["-C", "seed", "checkout", "-q", "next"]);
    commit(folder, "index.html", b"for www");
    let done = push(&server, &["main", "next"]);
    assert_eq!(
        done.stderr.matches("remote: deployed ").count(),
        2,
        "{done:?}"
    );
    assert_eq!(of_b(), "for b");
    assert_served(&server, "/", "for www");
    // A configuration without deployments.
    server.reload(&without);
    commit(folder, "index.html", b"in vain");
    let done = push(&server, &["next"]);
    assert!(!done.stderr.contains("deployed"), "{done:?}");
    assert_served(&server, "/", "for www");
    assert!(!status(&server).contains("tools/site"));
}

#[test]
fn a_full_disk_keeps_the_served_tree() {
    let folder = folder();
    fs::create_dir(folder.path("small")).expect("a folder");
    let text = config("").replace("root = \"www\"", "root = \"small/www\"");
    folder.write("anthill.toml", text);
    let server = in_own_mounts(&folder, "mount -t tmpfs -o size=2m none small");
    let server = Server::launch(folder, server);
    let folder = &server.folder;
    assert_served(&server, "/", "first");
    let first = git(folder, &["-C", "seed", "rev-parse", "HEAD"]);
    commit(folder, "large", &noise(3 << 20));
    let done = push(&server, &["main"]);
    assert!(
        done.stderr
            .contains("NOT DEPLOYED: large: no space left on device"),
        "{done:?}"
    );
    assert_served(&server, "/", "first");
    assert_eq!(page(&server, "/large").0, "404");
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("no space left")
    });
    git(folder, &["-C", "seed", "reset", "-q", "--hard", &first]);
    // The failed tree has been deleted, so space is left.
    folder.write("seed/middle", noise(1 << 20));
    commit(folder, "index.html", b"second");
    let done = push(&server, &["--force", "main"]);
    assert!(done.stderr.contains("remote: deployed"), "{done:?}");
    assert_served(&server, "/", "second");
}

#[test]
fn files_in_place_of_the_link_are_left_alone() {
    let server = start();
    let folder = &server.folder;
    // Files of an operator replace the link.
    fs::remove_file(folder.path("www")).expect("removed");
    folder.write("www/index.html", "by hand");
    wait_until_served(&server, "/", "by hand");
    commit(folder, "index.html", b"second");
    let done = push(&server, &["main"]);
    assert!(
        done.stderr.contains("NOT DEPLOYED: ") && done.stderr.contains("move it away"),
        "{done:?}"
    );
    assert_served(&server, "/", "by hand");
    fs::rename(folder.path("www"), folder.path("away")).expect("moved");
    // A file stands in the place of the folder for trees.
    fs::rename(folder.path(".www.deployed"), folder.path("trees")).expect("moved");
    folder.write(".www.deployed", "a file");
    let touch = |text: &str| {
        commit(folder, "index.html", text.as_bytes());
        push(&server, &["main"])
    };
    let done = touch("third");
    assert!(done.stderr.contains("NOT DEPLOYED: "), "{done:?}");
    fs::remove_file(folder.path(".www.deployed")).expect("removed");
    let done = touch("fourth");
    assert!(done.stderr.contains("remote: deployed"), "{done:?}");
    assert_served(&server, "/", "fourth");
}

#[test]
fn configuration_errors_are_explained() {
    let folder = folder();
    let told = |deploy: &str, site: &str| {
        let site = match site {
            "" => "[[site]]\nnames = [\"www.test\", \"w.test\"]\nroot = \"www\"\n",
            site => site,
        };
        let config = server_table("")
            + "[[site]]\nnames = [\"*\"]\nroot = \"public\"\n\
               [[site.route]]\npath = \"/git/\"\ngit = \"repos\"\n"
            + deploy
            + "\n"
            + site;
        folder.write("anthill.toml", config);
        let mut check = Command::new(crate::support::program());
        check.arg("check").arg(folder.path("anthill.toml"));
        finish(check, b"")
    };
    let right = "{ repository = \"tools/site\", site = \"W.test\" }";
    let done = told(&format!("deploy = {right}"), "");
    assert_eq!(done.code, Some(0), "{done:?}");
    let said = format!("{}{}", done.stdout, done.stderr);
    assert!(
        said.contains("www.test is deployed from main of tools/site"),
        "{said}"
    );
    // The refused configurations have created nothing.
    assert!(!folder.path("www").exists() && !folder.path(".www.deployed").exists());
    fs::create_dir_all(folder.path("full")).expect("a folder");
    folder.write("full/page", "x");
    symlink("public", folder.path("linked")).expect("a link");
    let site = |root: &str| format!("[[site]]\nnames = [\"www.test\"]\nroot = \"{root}\"\n");
    let with = |more: &str| format!("deploy = {{ site = \"www.test\", {more} }}");
    let repository = "repository = \"tools/site.git\"";
    for (deploy, site, what, help) in [
        ("deploy = true".to_owned(), String::new(), "`deploy` must be a table or a list of tables", "for example"),
        ("deploy = []".to_owned(), String::new(), "`deploy` is empty", "remove `deploy`"),
        ("deploy = { site = \"www.test\" }".to_owned(), String::new(), "needs `repository`", "repository = "),
        (with("repository = \"tools/site.git\", to = 1"), String::new(), "unknown key `to` in the table `deploy`", "knows"),
        (with("repository = \"../site.git\""), String::new(), "is not the path of a repository of this route", "below the folder in `git`"),
        (with("repository = \"/srv/site.git\""), String::new(), "is not the path of a repository of this route", "below the folder in `git`"),
        (with("repository = \"tools/sit.git\""), String::new(), "sit.git does not exist", "did you mean"),
        (with("repository = \"none.git\""), String::new(), "none.git does not exist", "git init --bare"),
        (with(&format!("{repository}, branch = \"a b\"")), String::new(), "`a b` is not a valid name of a branch", "git branch"),
        (with(&format!("{repository}, branch = \"refs/heads/main\"")), String::new(), "is a ref, not the name of a branch", "write \"main\""),
        (format!("deploy = {{ {repository}, site = \"ww.test\" }}"), String::new(), "there is no site `ww.test`", "did you mean"),
        (
            format!("deploy = [{right}, {{ {repository}, branch = \"x\", site = \"www.test\" }}]"),
            String::new(), "two deployments replace", "the first is in line",
        ),
        (with(repository), site("full"), "holds files that did not come from a deployment", "mv "),
        (with(repository), site("public/index.html"), "holds files that did not come from", "mv "),
        (with(repository), site("linked"), "is a link to public, which is not a deployed tree", "rm "),
        (with(repository), site("none/www"), "does not exist", "relative paths"),
        (
            with(repository),
            "[[site]]\nnames = [\"www.test\"]\n[[site.route]]\npath = \"/\"\nredirect = \"https://a.test\"\n".to_owned(),
            "the site `www.test` has no root that a deployment can replace", "`root`",
        ),
    ] {
        let done = told(&deploy, &site);
        assert_ne!(done.code, Some(0), "{deploy}");
        assert!(done.stderr.contains(what) && done.stderr.contains(help), "{deploy}: {}", done.stderr);
        assert!(done.stderr.contains("anthill.toml:") && done.stderr.contains('^'), "{deploy}: {}", done.stderr);
    }
    let nested = format!(
        "deploy = [{{ {repository}, site = \"www.test\" }}, {{ {repository}, site = \"v.test\" }}]"
    );
    let sites = site("www") + "[[site]]\nnames = [\"v.test\"]\nroot = \"www/v\"\n";
    assert!(told(&nested, &sites).stderr.contains("are nested"));
    for target in [
        "cgi = \"www/cgi-bin\"",
        "cgi = \"www\"",
        "root = \"www/deep\"",
    ] {
        let sites = site("www") + &format!("[[site.route]]\npath = \"/x/\"\n{target}\n");
        let done = told(&with(repository), &sites);
        let said = &done.stderr;
        assert!(
            said.contains("each deployment replaces the whole folder") && said.contains('^'),
            "{done:?}"
        );
    }
    let alone =
        "[[site.route]]\npath = \"/x/\"\nallow = []\n".to_owned() + &format!("deploy = {right}\n");
    let done = told(&alone, "");
    assert!(done.stderr.contains("no effect without `git`"), "{done:?}");
}

#[test]
fn scripts_switch_with_their_site_and_their_pages_are_dropped() {
    let folder = folder();
    commit(
        &folder,
        "page.sh",
        b"echo Content-Type: text/plain; echo; echo first; cat other",
    );
    commit(&folder, "other", b"first");
    let push_here = [
        "-C",
        "seed",
        "push",
        "-q",
        "../repos/tools/site.git",
        "main",
    ];
    git(&folder, &push_here);
    let site = "[[site.route]]\npath = \"/\"\ninterpreter = { \".sh\" = \"/bin/sh\" }\n\
                cache = { seconds = 100000 }\n";
    let server = Server::start_in(folder, &config_with("", "push = true\n", DEPLOY, site));
    for _ in 0..3 {
        assert_served(&server, "/page.sh", "first\nfirst");
    }
    commit(
        &server.folder,
        "page.sh",
        b"echo Content-Type: text/plain; echo; echo second; cat other",
    );
    commit(&server.folder, "other", b"second");
    push(&server, &["main"]);
    assert_served(&server, "/page.sh", "second\nsecond");
}

/// Requires root, because the server changes its user.
#[test]
fn deployments_run_as_the_servers_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = folder();
    let mode = |name: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(name), mode).expect("a mode");
    };
    mode("", 0o755);
    mode("users", 0o644);
    fs::create_dir(folder.path("site")).expect("a folder");
    let own = |name: &str| {
        let path = folder.path(name);
        let ran = run(
            "sh",
            &[
                "-c",
                "chown -R nobody \"$0\"",
                path.to_str().expect("plain"),
            ],
            b"",
        );
        assert!(ran.success, "{}", ran.errors());
    };
    let text = config("user = \"nobody\"").replace("root = \"www\"", "root = \"site/www\"");
    let text = text.replace(
        "control = \"anthill.sock\"",
        "control = \"state/control.sock\"",
    );
    folder.write("anthill.toml", &text);
    let mut check = Command::new(crate::support::program());
    check.arg("check").arg(folder.path("anthill.toml"));
    let done = finish(check, b"");
    let what = format!(
        "user `nobody` cannot write {}",
        folder.path("site").display()
    );
    assert!(done.stderr.contains(&what), "{done:?}");
    own("site");
    own("repos");
    let server = Server::start_in(folder, &text);
    assert_served(&server, "/", "first");
    commit(&server.folder, "index.html", b"second");
    push(&server, &["main"]);
    assert_served(&server, "/", "second");
    let owner = |name: &str| {
        fs::symlink_metadata(server.folder.path(name))
            .expect("there")
            .uid()
    };
    assert_ne!(owner("site/www"), 0);
    assert_ne!(owner("site/www/index.html"), 0);
    // The user loses the write permission.
    let set = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(server.folder.path("site"), mode).expect("a mode");
    };
    set(0o555);
    commit(&server.folder, "index.html", b"third");
    let done = push(&server, &["main"]);
    assert!(
        done.stderr.contains("NOT DEPLOYED: ") && done.stderr.contains("permission denied"),
        "{done:?}"
    );
    assert_served(&server, "/", "second");
    set(0o755);
    // A reload retries the deployment.
    server.reload(&text);
    wait_until_served(&server, "/", "third");
}
