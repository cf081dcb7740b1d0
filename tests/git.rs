//! Repositories over HTTP with the real git on both ends: clone, fetch, push, and failures.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anthill::git::limits;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::wire::wait_until;
use crate::support::{Done, Folder, Server, finish, run, server_table, site_table, tool};

const PATIENCE: Duration = Duration::from_secs(60);
/// Routes to the same repositories with different rules.
const ROUTES: &str = "[[site.route]]\npath = \"/git/\"\ngit = \"repos\"\n\
    [[site.route]]\npath = \"/all/\"\ngit = \"repos\"\nexport = \"all\"\n\
    [[site.route]]\npath = \"/read/\"\ngit = \"repos\"\nexport = \"all\"\nusers = \"users\"\n\
    [[site.route]]\npath = \"/push/\"\ngit = \"repos\"\nexport = \"all\"\nusers = \"users\"\npush = true\n\
    env = { GREETING = \"hello\", GIT_TEST_ASSUME_DIFFERENT_OWNER = \"1\" }\n\
    [[site.route]]\npath = \"/open/\"\ngit = \"repos\"\nexport = \"all\"\npush_users = \"users\"\n\
    [[site.route]]\npath = \"/open/deep\"\nusers = \"users\"\n\
    [[site.route]]\npath = \"/bare/\"\ngit = \"repos\"\nexport = \"all\"\npush_users = \"users\"\npages = false\n";

/// Returns a git command in the folder, isolated from the machine's configuration.
pub fn command(folder: &Folder, arguments: &[&str]) -> Command {
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

pub fn try_git(folder: &Folder, arguments: &[&str]) -> Done {
    finish(command(folder, arguments), b"")
}

/// Runs git, which must succeed, and returns its output.
pub fn git(folder: &Folder, arguments: &[&str]) -> String {
    let done = try_git(folder, arguments);
    assert_eq!(done.code, Some(0), "git {arguments:?}: {done:?}");
    done.stdout.trim().to_owned()
}

/// Returns a folder with `seed`, a work tree with three commits, and two bare copies: `repos/a.git` with
/// the export mark, and `repos/deep/er/b.git` without.
fn folder() -> Folder {
    let hash = run("openssl", &["passwd", "-1", "-stdin"], b"crumb");
    let folder = Folder::new()
        .with("public/index.html", "<p>hello</p>\n")
        .with("users", format!("ant:{}\n", hash.text().trim()));
    git(&folder, &["init", "-q", "-b", "main", "seed"]);
    for text in ["one", "two", "three"] {
        commit(&folder, "seed", "a.txt", text.as_bytes());
    }
    for name in ["repos/a.git", "repos/deep/er/b.git"] {
        fs::create_dir_all(folder.path("repos/deep/er")).expect("folders");
        git(&folder, &["clone", "-q", "--bare", "seed", name]);
    }
    folder.write("repos/a.git/git-daemon-export-ok", "");
    folder
}

pub fn commit(folder: &Folder, tree: &str, name: &str, content: &[u8]) {
    folder.write(&format!("{tree}/{name}"), content);
    git(folder, &["-C", tree, "add", "-A"]);
    git(folder, &["-C", tree, "commit", "-q", "-m", "more"]);
}

fn config(server: &str) -> String {
    server_table(server) + &site_table("http = \"serve\"") + ROUTES
}

fn start() -> Server {
    Server::start_in(folder(), &config(""))
}

pub fn as_ant(url: &str) -> String {
    url.replacen("://", "://ant:crumb@", 1)
}

pub fn head(folder: &Folder, repository: &str) -> String {
    git(folder, &["-C", repository, "rev-parse", "main"])
}

/// Asserts that a repository is consistent and free of temporary files.
pub fn assert_sound(folder: &Folder, repository: &str) {
    let said = git(folder, &["-C", repository, "fsck", "--full", "--strict"]);
    assert_eq!(said, "", "git fsck");
    // A terminated git removes its temporary files a moment later.
    wait_until(PATIENCE, "nothing left over", || {
        let path = folder.path(repository);
        let path = path.to_str().expect("plain");
        let kinds = ["(", "-name", "*.lock", "-o", "-name", "tmp_*", ")"];
        let found = run("find", &[&[path][..], &kinds].concat(), b"");
        found.text().is_empty().then_some(())
    });
}

/// Returns incompressible bytes.
pub fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Returns status and rule of a refused request.
fn refused(server: &Server, method: &str, path: &str) -> (String, String) {
    let ran = server.curl(&[
        "--path-as-is",
        "-X",
        method,
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        &server.http(path),
    ]);
    let line = server
        .output
        .wait_for(path, |line| line.contains(&format!("\"{method} {path} ")));
    let rule = line.split(" rule=R").nth(1).unwrap_or("none");
    let rule = rule.split(' ').next().unwrap_or_default();
    (ran.text(), rule.to_owned())
}

#[test]
fn clone_and_fetch_by_every_protocol() {
    let server = start();
    let folder = &server.folder;
    let mut nth = 0;
    for (http, url) in [
        ("HTTP/1.1", server.http("/git/a.git")),
        ("HTTP/1.1", server.https("/git/a")),
        ("HTTP/2", server.https("/git/a.git")),
    ] {
        for version in ["0", "2"] {
            nth += 1;
            let (version, http) = (
                format!("protocol.version={version}"),
                format!("http.version={http}"),
            );
            let with = ["-c", version.as_str(), "-c", http.as_str()];
            let name = |what: &str| format!("{what}{nth}");
            let (whole, shallow, partial) = (name("whole"), name("shallow"), name("partial"));
            let clone = |more: &[&str], to: &str| {
                git(
                    folder,
                    &[&with[..], &["clone", "-q"], more, &[&url, to]].concat(),
                )
            };
            clone(&[], &whole);
            assert_eq!(head(folder, &whole), head(folder, "seed"));
            assert_sound(folder, &whole);
            clone(&["--depth", "1"], &shallow);
            let count = |of: &str| git(folder, &["-C", of, "rev-list", "--count", "HEAD"]);
            assert_eq!(count(&shallow), "1");
            clone(&["--filter=blob:none", "--no-checkout"], &partial);
            let missing = ["rev-list", "--objects", "--missing=print", "HEAD"];
            let missing = git(folder, &[&["-C", &partial][..], &missing].concat());
            let missing = missing.lines().filter(|line| line.starts_with('?')).count();
            assert_eq!(missing, 2 + nth, "{missing}");
            // Protocol version 2 allows later requests for any object, version 0 does not.
            if version.ends_with('2') {
                git(folder, &["-C", &partial, "checkout", "-q", "main"]);
            }

            let before: usize = count(&whole).parse().expect("a number");
            commit(folder, "seed", "a.txt", format!("more {nth}").as_bytes());
            git(
                folder,
                &["-C", "seed", "push", "-q", "../repos/a.git", "main"],
            );
            let fetch = |of: &str, more: &[&str]| {
                git(
                    folder,
                    &[&["-C", of][..], &with, &["pull", "-q"], more].concat(),
                )
            };
            fetch(&whole, &[]);
            assert_eq!(head(folder, &whole), head(folder, "seed"));
            fetch(&shallow, &["--unshallow"]);
            assert_eq!(count(&shallow), (before + 1).to_string());
        }
    }
    let used_h2 = |line: &str| line.contains("git-upload-pack HTTP/2");
    server.output.wait_for("a fetch by HTTP/2", used_h2);
    assert!(!server.errors.all().iter().any(|line| line.contains("said")));
}

/// Cheap filters are open to every client, and expensive filters to logged-in clients, unless the
/// repository opens them to every client.
#[test]
fn expensive_filters_need_a_login() {
    let folder = folder();
    folder.write("seed/patterns", "/a.txt\n");
    commit(&folder, "seed", "b.txt", b"b");
    git(
        &folder,
        &["-C", "seed", "push", "-q", "../repos/a.git", "main"],
    );
    let server = Server::start_in(folder, &config(""));
    let folder = &server.folder;
    let mut nth = 0;
    let mut clone = |url: &str, filter: &str| {
        nth += 1;
        let (filter, to) = (format!("--filter={filter}"), format!("filtered{nth}"));
        try_git(folder, &["clone", "-q", "--no-checkout", &filter, url, &to])
    };
    let stranger = server.http("/git/a.git");
    let ant = as_ant(&server.http("/read/a.git"));
    for filter in ["blob:none", "blob:limit=1k", "tree:0"] {
        let done = clone(&stranger, filter);
        assert_eq!(done.code, Some(0), "{filter}: {done:?}");
    }
    for filter in ["sparse:oid=main:patterns", "tree:3"] {
        let done = clone(&stranger, filter);
        assert_ne!(done.code, Some(0), "{filter}");
        let done = clone(&ant, filter);
        assert_eq!(done.code, Some(0), "{filter}: {done:?}");
    }
    let allowed = ["config", "uploadpackfilter.sparse:oid.allow", "true"];
    git(folder, &[&["-C", "repos/a.git"][..], &allowed].concat());
    let done = clone(&stranger, "sparse:oid=main:patterns");
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// git and its hooks run with limits on memory and processor time.
#[test]
fn git_runs_with_resource_limits() {
    let server = start();
    let folder = &server.folder;
    let hook = "repos/a.git/hooks/pre-receive";
    folder.write(hook, "#!/bin/sh\necho bounds $(ulimit -d) $(ulimit -t)\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(hook), mode).expect("a mode");
    commit(folder, "seed", "b.txt", b"bounded");
    let url = as_ant(&server.http("/push/a.git"));
    let done = try_git(folder, &["-C", "seed", "push", &url, "main"]);
    let bounds = format!(
        "bounds {} {}",
        limits::GIT_EXCHANGE_MEMORY_BYTES / 1024,
        limits::GIT_EXCHANGE_CPU_SECONDS
    );
    assert!(done.stderr.contains(&bounds), "{done:?}");
}

#[test]
fn only_permitted_users_may_push() {
    let server = start();
    let folder = &server.folder;
    let push = |url: &str| try_git(folder, &["-C", "seed", "push", url, "main"]);
    let mut nth = 0;
    for (http, url) in [
        ("HTTP/1.1", server.http("/push/a.git")),
        ("HTTP/1.1", server.https("/push/deep/er/b")),
        ("HTTP/2", server.https("/push/a.git")),
    ] {
        nth += 1;
        commit(folder, "seed", "b.txt", format!("pushed {nth}").as_bytes());
        for unknown in [url.clone(), as_ant(&url).replace("crumb", "wrong")] {
            let done = push(&unknown);
            assert_ne!(done.code, Some(0), "{unknown}");
        }
        let http = format!("http.version={http}");
        let url = as_ant(&url);
        git(
            folder,
            &["-C", "seed", "-c", &http, "push", "-q", &url, "main"],
        );
    }
    for repository in ["repos/a.git", "repos/deep/er/b.git"] {
        assert_sound(folder, repository);
    }
    assert_eq!(head(folder, "repos/a.git"), head(folder, "seed"));

    let before = head(folder, "repos/a.git");
    commit(folder, "seed", "b.txt", b"never");
    for url in [
        server.http("/git/a.git"),
        server.http("/all/a.git"),
        as_ant(&server.http("/read/a.git")),
    ] {
        let done = push(&url);
        assert!(done.stderr.contains("403"), "{url}: {done:?}");
    }
    assert_eq!(head(folder, "repos/a.git"), before);
    let receive = "/git/a.git/info/refs?service=git-receive-pack";
    let denied = ("403".to_owned(), "407".to_owned());
    assert_eq!(refused(&server, "GET", receive), denied);
    assert_eq!(
        refused(&server, "POST", "/git/a.git/git-receive-pack"),
        denied
    );
    // An absent repository gets the same refusal, so the refusal does not reveal the existing repositories.
    assert_eq!(
        refused(&server, "POST", "/git/none.git/git-receive-pack"),
        denied
    );

    // A client with the right to push may delete branches, and a repository may refuse pushes.
    git(
        folder,
        &[
            "-C",
            "seed",
            "push",
            "-q",
            &as_ant(&server.http("/push/a")),
            "main:other",
        ],
    );
    git(
        folder,
        &[
            "-C",
            "seed",
            "push",
            "-q",
            &as_ant(&server.http("/push/a")),
            ":other",
        ],
    );
    git(
        folder,
        &["-C", "repos/a.git", "config", "http.receivepack", "false"],
    );
    let done = push(&as_ant(&server.http("/push/a.git")));
    assert!(done.stderr.contains("403"), "{done:?}");
}

#[test]
fn hooks_run_in_an_environment_of_their_own() {
    let server = start();
    let folder = &server.folder;
    let hook = |name: &str, text: &str| {
        let name = format!("repos/a.git/hooks/{name}");
        folder.write(&name, format!("#!/bin/sh\n{text}\n"));
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(&name), mode).expect("a mode");
    };
    let url = as_ant(&server.https("/push/a.git"));
    hook("post-receive", "env > environment; echo welcome");
    commit(folder, "seed", "b.txt", b"hooked");
    let evil = [
        "-c",
        "http.extraHeader=Proxy: http://evil.test",
        "-c",
        "http.extraHeader=X-Evil: 1",
    ];
    let done = try_git(
        folder,
        &[&["-C", "seed"][..], &evil, &["push", &url, "main"]].concat(),
    );
    assert!(
        done.code == Some(0) && done.stderr.contains("remote: welcome"),
        "{done:?}"
    );
    let text = fs::read_to_string(folder.path("repos/a.git/environment")).expect("written");
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|line| line.0 == name).map(|line| line.1)
    };
    for (name, is) in [
        ("REMOTE_USER", "ant"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("GREETING", "hello"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_COMMITTER_NAME", "ant"),
    ] {
        assert_eq!(value(name), Some(is), "{name} in {text}");
    }
    for name in [
        "HOME",
        "HTTP_PROXY",
        "HTTP_X_EVIL",
        "CARGO_MANIFEST_DIR",
        "HTTP_AUTHORIZATION",
    ] {
        assert_eq!(value(name), None, "{name} in {text}");
    }

    let before = head(folder, "repos/a.git");
    hook("pre-receive", "echo no such thing >&2; exit 1");
    commit(folder, "seed", "b.txt", b"refused");
    let done = try_git(folder, &["-C", "seed", "push", &url, "main"]);
    assert!(
        done.code != Some(0) && done.stderr.contains("no such thing"),
        "{done:?}"
    );
    assert_eq!(head(folder, "repos/a.git"), before);
    assert_sound(folder, "repos/a.git");
}

#[test]
fn only_exported_repositories_are_served() {
    let server = start();
    let folder = &server.folder;
    let list = |path: &str| try_git(folder, &["ls-remote", &server.http(path)]).code == Some(0);
    assert!(list("/git/a.git") && list("/git/a") && list("/all/deep/er/b.git"));
    assert!(!list("/git/deep/er/b.git"));
    let path = "/git/deep/er/b.git/info/refs?service=git-upload-pack";
    let missing = ("404".to_owned(), "501".to_owned());
    assert_eq!(refused(&server, "GET", path), missing);
    server.errors.wait_for("the advice", |line| {
        line.contains("b.git isn't exported: create the file git-daemon-export-ok")
    });
    folder.write("repos/deep/er/b.git/git-daemon-export-ok", "");
    assert!(list("/git/deep/er/b.git"));
    // A repository with a work tree and without commits.
    git(folder, &["init", "-q", "-b", "main", "repos/tree"]);
    assert!(list("/all/tree") && !list("/git/tree"));
    folder.write("repos/tree/.git/git-daemon-export-ok", "");
    assert!(list("/git/tree"));
}

#[test]
fn other_files_and_repositories_are_not_served() {
    let server = start();
    let folder = &server.folder;
    let refs = "info/refs?service=git-upload-pack";
    git(folder, &["clone", "-q", "--bare", "seed", "outside.git"]);
    git(
        folder,
        &["clone", "-q", "--bare", "seed", "repos/.hidden.git"],
    );
    git(
        folder,
        &["clone", "-q", "--bare", "seed", "repos/a.git/inner.git"],
    );
    git(folder, &["init", "-q", "repos/tree"]);
    git(
        folder,
        &["clone", "-q", "--bare", "seed", "repos/tree/inner.git"],
    );
    symlink(folder.path("outside.git"), folder.path("repos/out.git")).expect("a link");
    symlink("a.git", folder.path("repos/in.git")).expect("a link");
    for (method, path, status, rule) in [
        ("GET", "/all/none.git/REFS", "404", "501"),
        ("GET", "/all/REFS", "404", "501"),
        ("GET", "/all/deep/REFS", "404", "501"),
        ("GET", "/all/.hidden.git/REFS", "404", "502"),
        ("GET", "/all/tree/.git/REFS", "404", "502"),
        ("GET", "/all/out.git/REFS", "404", "503"),
        ("GET", "/all/a.git/inner.git/REFS", "404", "501"),
        ("GET", "/all/tree/inner.git/REFS", "404", "501"),
        ("GET", "/all/../outside.git/REFS", "404", "501"),
        ("GET", "/all/%2e%2e/outside.git/REFS", "404", "501"),
        ("GET", "/../../outside.git/REFS", "400", "111"),
        ("GET", "/all/..%2foutside.git/REFS", "400", "114"),
        ("GET", "/all/a.git/info/refs", "403", "511"),
        (
            "GET",
            "/all/a.git/info/refs?service=git-upload-archive",
            "403",
            "511",
        ),
        ("GET", "/all/a.git/HEAD", "404", "501"),
        ("GET", "/all/a.git/config", "404", "501"),
        ("GET", "/all/a.git/objects/info/packs", "404", "501"),
        ("GET", "/all/a.git", "301", "none"),
        ("GET", "/all/.hidden.git/", "404", "502"),
        ("GET", "/all/out.git/", "404", "503"),
        ("GET", "/all/tree/.git/", "404", "501"),
        ("GET", "/all/a.git/inner.git/", "404", "501"),
        ("GET", "/all/a.git/git-upload-pack", "405", "505"),
        ("POST", "/all/a.git/git-upload-archive", "404", "501"),
        ("DELETE", "/all/a.git/git-upload-pack", "405", "505"),
    ] {
        let path = path.replace("REFS", refs);
        let seen = refused(&server, method, &path);
        assert_eq!(
            seen,
            (status.to_owned(), rule.to_owned()),
            "{method} {path}"
        );
    }
    assert_eq!(
        git(
            folder,
            &["ls-remote", "-q", "--heads", &server.http("/git/in.git")]
        )
        .len(),
        56
    );
}

#[test]
fn a_corrupt_repository_is_an_error_and_the_worker_continues() {
    let server = start();
    let folder = &server.folder;
    // The list of refs cannot be produced.
    folder.write("repos/a.git/packed-refs", "not a line of this file\n");
    let refs = "/git/a.git/info/refs?service=git-upload-pack";
    let seen = refused(&server, "GET", refs);
    assert_eq!(seen, ("502".to_owned(), "721".to_owned()));
    server
        .errors
        .wait_for("the reason in the log", |line| line.contains("packed-refs"));
    server.errors.wait_for("the failure", |line| {
        line.contains("script failed in its response")
    });
    // The folder is no longer a valid repository.
    folder.write("repos/damaged.git/HEAD", "garbage\n");
    for name in ["objects", "refs"] {
        fs::create_dir(folder.path("repos/damaged.git").join(name)).expect("a folder");
    }
    let refs = "/all/damaged.git/info/refs?service=git-upload-pack";
    let seen = refused(&server, "GET", refs);
    assert_eq!(seen, ("502".to_owned(), "721".to_owned()));
    server.errors.wait_for("the reason in the log", |line| {
        line.contains("damaged.git")
            && line.contains("git does not accept the folder as a repository")
    });
    // The list of refs can be produced, and the pack cannot.
    for object in run(
        "find",
        &[
            folder
                .path("repos/deep/er/b.git/objects")
                .to_str()
                .expect("plain"),
            "-type",
            "f",
        ],
        b"",
    )
    .text()
    .lines()
    {
        fs::set_permissions(object, fs::Permissions::from_mode(0o644)).expect("a mode");
        let length = fs::metadata(object).expect("there").len();
        if !object.ends_with(".idx") {
            fs::write(object, noise(length as usize)).expect("written");
        }
    }
    let done = try_git(
        folder,
        &["clone", &server.http("/all/deep/er/b.git"), "broken"],
    );
    assert_ne!(done.code, Some(0), "{done:?}");
    server.errors.wait_for("the rule", |line| {
        line.contains("git-upload-pack") && line.contains("rule R721")
    });
    assert_eq!(server.body("/"), b"<p>hello</p>\n");
}

#[test]
fn many_refs_and_gzipped_or_chunked_bodies() {
    let folder = folder();
    let mut stream = String::new();
    for nth in 0..3_000 {
        let parent = if nth == 0 {
            String::new()
        } else {
            format!("from :{nth}\n")
        };
        stream += &format!(
            "commit refs/heads/main\nmark :{}\ncommitter A <a@example.org> {} +0000\ndata 2\nm\n{parent}\n\
             reset refs/heads/b{nth}\nfrom :{}\n\n",
            nth + 1,
            1_700_000_000 + nth,
            nth + 1
        );
    }
    git(
        &folder,
        &["init", "-q", "--bare", "-b", "main", "repos/many.git"],
    );
    let import = command(&folder, &["-C", "repos/many.git", "fast-import", "--quiet"]);
    let done = finish(import, stream.as_bytes());
    assert_eq!(done.code, Some(0), "{done:?}");
    let server = Server::start_in(folder, &config(""));
    let folder = &server.folder;
    for (nth, (http, buffer, sign)) in [
        ("HTTP/1.1", "1048576", "content-encoding: gzip"),
        ("HTTP/2", "1048576", "content-encoding: gzip"),
        ("HTTP/1.1", "65536", "transfer-encoding: chunked"),
    ]
    .into_iter()
    .enumerate()
    {
        let (http, buffer) = (
            format!("http.version={http}"),
            format!("http.postBuffer={buffer}"),
        );
        let (url, to) = (server.https("/all/many.git"), format!("many{nth}"));
        let mut clone = command(
            folder,
            &[
                "-c",
                "protocol.version=0",
                "-c",
                &http,
                "-c",
                &buffer,
                "clone",
                "-q",
                "--mirror",
                &url,
                &to,
            ],
        );
        clone
            .env("GIT_TRACE_CURL", "1")
            .env("GIT_TRACE_CURL_NO_DATA", "1");
        let done = finish(clone, b"");
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(
            done.stderr.to_lowercase().contains(sign),
            "{sign}: {}",
            done.stderr
        );
        let refs = git(folder, &["-C", &to, "for-each-ref"]);
        assert_eq!(refs.lines().count(), 3_001);
    }
}

#[test]
fn a_large_repository_is_pushed_and_cloned() {
    let server = start();
    let folder = &server.folder;
    // git need not compress incompressible files.
    git(folder, &["-C", "seed", "config", "core.compression", "0"]);
    commit(folder, "seed", "large.bin", &noise(40 << 20));
    for (nth, (http, version)) in [("HTTP/1.1", "0"), ("HTTP/2", "2")].into_iter().enumerate() {
        let name = format!("repos/large{nth}.git");
        git(folder, &["init", "-q", "--bare", "-b", "main", &name]);
        git(folder, &["-C", &name, "config", "core.compression", "0"]);
        let url = as_ant(&server.https(&name.replace("repos", "/push")));
        let (http, version) = (
            format!("http.version={http}"),
            format!("protocol.version={version}"),
        );
        let mut with = vec!["-c", http.as_str(), "-c", version.as_str()];
        if nth == 1 {
            // The client sends the pack in one piece. The streamed upload of libcurl 7.88 over HTTP/2
            // sometimes stalls after its end, if the network is slower than git for a moment.
            with.extend(["-c", "http.postBuffer=67108864"]);
        }
        git(
            folder,
            &[&["-C", "seed"][..], &with, &["push", "-q", &url, "main"]].concat(),
        );
        assert_sound(folder, &name);
        let to = format!("large{nth}");
        git(folder, &[&with[..], &["clone", "-q", &url, &to]].concat());
        assert_eq!(head(folder, &to), head(folder, "seed"));
    }
}

/// A pack larger than the server's memory bound passes through the server.
#[test]
fn a_pack_larger_than_memory() {
    const BYTES_MAX: u64 = 48 << 20;
    let server = start();
    let folder = &server.folder;
    // Without compression git is faster, and git streams large files too.
    for (key, value) in [("core.compression", "0"), ("core.bigFileThreshold", "1m")] {
        git(folder, &["-C", "seed", "config", key, value]);
        git(folder, &["-C", "repos/a.git", "config", key, value]);
    }
    commit(folder, "seed", "large.bin", &noise(LARGE_BYTES));
    let watch = Watch::start(server.pid());
    let url = as_ant(&server.http("/push/a.git"));
    git(folder, &["-C", "seed", "push", "-q", &url, "main"]);
    let pushed = watch.peak_bytes();
    git(folder, &["clone", "-q", "--bare", &url, "copy.git"]);
    let cloned = watch.peak_bytes();
    for repository in ["repos/a.git", "copy.git"] {
        assert_eq!(head(folder, repository), head(folder, "seed"));
    }
    println!("at most {pushed} bytes of memory for a push, {cloned} with a clone");
    assert!(pushed.max(cloned) < BYTES_MAX, "{pushed}, {cloned}");
}

/// Length of the file: twice the bound.
const LARGE_BYTES: usize = 96 << 20;

/// A sampler of a process's anonymous memory.
pub struct Watch {
    most: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    pub fn start(pid: u32) -> Watch {
        let watch = Watch {
            most: Arc::default(),
            is_over: Arc::default(),
        };
        let (most, is_over) = (watch.most.clone(), watch.is_over.clone());
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(anonymous(pid), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
        });
        watch
    }

    /// Returns the largest sample so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let most = self.most.load(Ordering::Relaxed);
        assert!(most > 0, "nothing was looked at");
        most
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Returns a process's anonymous memory in bytes.
fn anonymous(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1_024
}

/// git has no HTTP/3, so the test replays git's exchanges: the pack is sent in DATA frames of all sizes,
/// many of them small, and comes back whole.
#[cfg(feature = "http3")]
#[test]
fn packs_over_http_3() {
    let server = start();
    let folder = &server.folder;
    let before = head(folder, "seed");
    commit(folder, "seed", "large.bin", &noise(3 << 20));
    let after = head(folder, "seed");
    let pkt = |line: String| format!("{:04x}{line}", line.len() + 4);
    let replay = |what: &str, sent: &[u8]| -> Vec<u8> {
        folder.write("sent", sent);
        let (path, kind) = (
            format!("/push/a.git/git-{what}"),
            format!("application/x-git-{what}-request"),
        );
        let (sent, got) = (folder.path("sent"), folder.path("got"));
        let (sent, got) = (sent.to_string_lossy(), got.to_string_lossy());
        let mut scene = vec!["exchange", &path, "ant:crumb", &kind, &sent, &got];
        scene.extend(["4096", "3", "600", "9", "1200", "16384", "1"]);
        assert_eq!(crate::h3::run_scenario(&server, &scene), "200");
        fs::read(&*got).expect("the response")
    };
    folder.write("new", format!("{after}\n^{before}\n"));
    let pack = {
        let mut objects = command(
            folder,
            &["-C", "seed", "pack-objects", "-q", "--revs", "--stdout"],
        );
        objects.stdin(fs::File::open(folder.path("new")).expect("a list"));
        objects.stderr(Stdio::null()).output().expect("git").stdout
    };
    assert!(pack.len() > 3 << 20, "{}", pack.len());
    let order = pkt(format!("{before} {after} refs/heads/main\0report-status\n"));
    let got = replay("receive-pack", &[order.as_bytes(), b"0000", &pack].concat());
    let said = String::from_utf8_lossy(&got).into_owned();
    assert!(
        said.contains("unpack ok") && said.contains("ok refs/heads/main"),
        "{said}"
    );
    assert_eq!(head(folder, "repos/a.git"), after);
    assert_sound(folder, "repos/a.git");

    let want = [
        pkt(format!("want {after} ofs-delta\n")),
        "0000".into(),
        pkt("done\n".into()),
    ];
    let got = replay("upload-pack", want.concat().as_bytes());
    let pack = got.strip_prefix(b"0008NAK\n").expect("a pack");
    git(folder, &["init", "-q", "--bare", "copy.git"]);
    folder.write("pack", pack);
    let mut index = command(folder, &["-C", "copy.git", "index-pack", "--stdin"]);
    index.stdin(fs::File::open(folder.path("pack")).expect("a pack"));
    assert!(index.output().expect("git").status.success());
    git(
        folder,
        &["-C", "copy.git", "update-ref", "refs/heads/main", &after],
    );
    assert_sound(folder, "copy.git");
}

/// A client with a large push, in a process group of its own.
pub struct Pusher(Child);

impl Pusher {
    pub fn start(folder: &Folder, url: &str) -> Pusher {
        let mut push = command(folder, &["-C", "seed", "push", "-q", url, "main"]);
        push.process_group(0)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        Pusher(push.spawn().expect("git"))
    }

    /// Stops the client after the server has received a part of the pack.
    pub fn hold(&self, folder: &Folder, repository: &str) {
        let objects = folder.path(repository).join("objects");
        // The client runs for a moment at a time and is stopped during each look, because the look may take
        // longer than the push.
        wait_until(PATIENCE, "a part of the pack", || {
            self.signal(Signal::STOP);
            if has_part(&objects) {
                return Some(());
            }
            self.signal(Signal::CONT);
            thread::sleep(Duration::from_millis(10));
            None
        });
    }

    fn signal(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.0), signal).expect("a group");
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Returns true if a part of a pack has arrived. The function reads the folder without a child process,
/// because the start of a process takes too long.
fn has_part(objects: &Path) -> bool {
    let mut left = vec![objects.to_owned()];
    while let Some(folder) = left.pop() {
        // A found file may vanish at any moment.
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            let path = entry.path();
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let is_incoming = path.to_string_lossy().contains("tmp_objdir");
            if metadata.is_dir() {
                left.push(path);
            } else if is_incoming && metadata.len() > 100 << 10 {
                return true;
            }
        }
    }
    false
}

#[test]
fn an_aborted_push_leaves_no_files() {
    let mut server = Server::start_in(folder(), &config("limits = { drain_seconds = 1 }"));
    let before = head(&server.folder, "repos/a.git");
    // git need not compress incompressible files.
    for repository in ["seed", "repos/a.git"] {
        git(
            &server.folder,
            &["-C", repository, "config", "core.compression", "0"],
        );
    }
    // Many files: git writes each file when the file is complete.
    for (nth, part) in noise(30 << 20).chunks(1 << 19).enumerate() {
        server.folder.write(&format!("seed/large/{nth}"), part);
    }
    commit(&server.folder, "seed", "b.txt", b"and one more");
    for url in [server.http("/push/a.git"), server.https("/push/a.git")] {
        let pusher = Pusher::start(&server.folder, &as_ant(&url));
        pusher.hold(&server.folder, "repos/a.git");
        drop(pusher);
        let parent = server.pid().to_string();
        wait_until(PATIENCE, "the end of git", || {
            let children = run("ps", &["-o", "pid=", "--ppid", &parent], b"");
            children.text().trim().is_empty().then_some(())
        });
        assert_sound(&server.folder, "repos/a.git");
        assert_eq!(head(&server.folder, "repos/a.git"), before);
    }

    let pusher = Pusher::start(&server.folder, &as_ant(&server.http("/push/a.git")));
    pusher.hold(&server.folder, "repos/a.git");
    server.signal("TERM");
    assert_eq!(server.wait(PATIENCE), Some(0));
    drop(pusher);
    assert_sound(&server.folder, "repos/a.git");
    assert_eq!(head(&server.folder, "repos/a.git"), before);

    let server = Server::start_in(server.into_folder(), &config(""));
    let url = as_ant(&server.http("/push/a.git"));
    git(&server.folder, &["-C", "seed", "push", "-q", &url, "main"]);
    assert_sound(&server.folder, "repos/a.git");
    assert_eq!(
        head(&server.folder, "repos/a.git"),
        head(&server.folder, "seed")
    );
}

#[test]
fn configuration_errors_are_explained() {
    let folder = folder();
    let told = |route: &str, path: Option<&str>| {
        let config =
            server_table("") + &site_table("") + "[[site.route]]\npath = \"/git/\"\n" + route;
        folder.write("anthill.toml", config);
        let mut check = Command::new(crate::support::program());
        check.arg("check").arg(folder.path("anthill.toml"));
        path.map(|path| check.env("PATH", path));
        finish(check, b"")
    };
    assert_eq!(told("git = \"repos\"", None).code, Some(0));
    for (route, path, what, help) in [
        ("git = \"none\"", None, "does not exist", ""),
        (
            "git = \"repos/a.git\"",
            None,
            "is a repository, not a folder of repositories",
            "name the folder of the repository",
        ),
        (
            "git = \"seed\"",
            None,
            "is a repository, not a folder of repositories",
            "name the folder of the repository",
        ),
        (
            "git = \"repos\"\nexport = \"some\"",
            None,
            "`export` can't be \"some\"",
            "\"all\"",
        ),
        (
            "git = \"repos\"\npush = true",
            None,
            "`push` requires a login",
            "anthill passwd",
        ),
        (
            "git = \"repos\"\npush = true",
            None,
            "`push` requires a login",
            "`push_users`",
        ),
        (
            "git = \"repos\"\npush = false\npush_users = \"users\"",
            None,
            "`push_users` contradicts `push = false`",
            "remove one",
        ),
        (
            "allow = []\npush_users = \"users\"",
            None,
            "no effect without `git`",
            "git = \"repositories\"",
        ),
        (
            "git = \"repos\"\ncache = true",
            None,
            "`cache` cannot be used with `git`",
            "remove `cache`",
        ),
        (
            "git = \"repos\"\ncgi = \"seed\"",
            None,
            "either repositories (`git`) or scripts",
            "remove ",
        ),
        (
            "git = \"repos\"\nkeep = 1",
            None,
            "either repositories (`git`) or scripts",
            "remove ",
        ),
        (
            "git = \"repos\"\nroot = \"seed\"",
            None,
            "one target, not both `git` and `root`",
            "remove ",
        ),
        (
            "allow = []\nexport = \"all\"",
            None,
            "no effect without `git`",
            "git = \"repositories\"",
        ),
        (
            "git = \"repos\"",
            Some("/nowhere"),
            "there is no program `git` in /nowhere",
            "apt-get install git",
        ),
    ] {
        let done = told(route, path);
        assert_ne!(done.code, Some(0), "{route}");
        assert!(
            done.stderr.contains(what) && done.stderr.contains(help),
            "{route}: {}",
            done.stderr
        );
        assert!(
            done.stderr.contains("anthill.toml:"),
            "{route}: {}",
            done.stderr
        );
    }
}

/// Reads without a login and pushes with a login at one address, with and without pages.
#[test]
fn one_address_serves_reading_to_all_and_pushes_to_users() {
    let server = start();
    let folder = &server.folder;
    for (nth, route) in ["open", "bare"].into_iter().enumerate() {
        let url = format!("http://127.0.0.1:{}/{route}/a.git", server.http_port);
        let tree = format!("tree-{route}");
        git(folder, &["clone", "-q", &url, &tree]);
        commit(folder, &tree, &format!("new-{nth}"), b"new");
        let refused = try_git(folder, &["-C", &tree, "push", "-q"]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(
            refused.stderr.contains("could not read Username"),
            "git asks for a login: {refused:?}"
        );
        let wrong = url.replacen("://", "://ant:wrong@", 1);
        let wrong = try_git(folder, &["-C", &tree, "push", "-q", &wrong, "main"]);
        assert!(wrong.stderr.contains("Authentication failed"), "{wrong:?}");
        // A login of the first request is not needed for the later ones to be checked.
        let body = server.curl(&[
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-X",
            "POST",
            "-H",
            "Content-Type: application/x-git-receive-pack-request",
            "--data",
            "0000",
            &format!("{url}/git-receive-pack"),
        ]);
        assert_eq!(body.text(), "401");
        assert_ne!(head(folder, "repos/a.git"), head(folder, &tree));
        git(folder, &["-C", &tree, "push", "-q", &as_ant(&url), "main"]);
        assert_eq!(head(folder, "repos/a.git"), head(folder, &tree));
        // Reading needs no login after the push either, and a login does no harm.
        git(folder, &["-C", &tree, "fetch", "-q", &url]);
        git(folder, &["-C", &tree, "fetch", "-q", &as_ant(&url)]);
        let page = server.curl(&[
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            &format!("http://127.0.0.1:{}/{route}/a/", server.http_port),
        ]);
        assert_eq!(page.text(), if route == "open" { "200" } else { "404" });
    }
    // A guard below the route applies to reading, too.
    let deep = format!("http://127.0.0.1:{}/open/deep/er/b.git", server.http_port);
    assert_ne!(try_git(folder, &["ls-remote", &deep]).code, Some(0));
    git(folder, &["ls-remote", &as_ant(&deep)]);
    assert_sound(folder, "repos/a.git");
}
