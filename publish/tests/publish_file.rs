//! End-to-end tests of `publish.toml`, and of the messages for missing arguments.

mod support;

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Done, Site, run, tool};

/// File with a build that makes the folder and leaves a mark.
const FILE: &str = "folder = \"public\"\nhosts = [\"./store\"]\n\
                    build = \"touch built && mkdir -p public && echo page > public/index.html\"\n";

/// Runs `anthill publish ARGUMENTS` in the folder of the site, with a state of its own.
fn publish(site: &Site, arguments: &[&str]) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anthill-publish"));
    command
        .arg("publish")
        .args(arguments)
        .current_dir(site.path("blog"))
        .env("XDG_STATE_HOME", site.path("state"));
    run(command)
}

/// Returns a folder `blog` with a file `publish.toml`.
fn blog(text: &str) -> Site {
    let site = Site::new();
    let blog = site.path("blog");
    fs::create_dir(&blog).expect("a folder");
    // The umask of the machine must not open the folder to other users.
    fs::set_permissions(&blog, Permissions::from_mode(0o755)).expect("a mode");
    fs::write(blog.join("publish.toml"), text).expect("a file");
    fs::set_permissions(blog.join("publish.toml"), Permissions::from_mode(0o644)).expect("a mode");
    site
}

fn assert_refused(site: &Site, done: &Done, what: &str) {
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains(what), "{what}: {done:?}");
    assert!(!site.path("blog/built").exists(), "{what}");
    assert!(!site.path("blog/store").exists(), "{what}");
}

#[test]
fn a_file_is_published_after_one_consent_until_it_changes() {
    let site = blog(FILE);
    let done = publish(&site, &[]);
    assert_refused(&site, &done, "needs your consent, and there is no terminal");
    // The question shows the folder, the host and the command.
    for part in [
        "/blog/public\n",
        "  host    ./store\n",
        "  build   touch built && ",
    ] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    let done = publish(&site, &["--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("1 added"), "{done:?}");
    fs::remove_file(site.path("blog/built")).expect("a mark");
    let done = publish(&site, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("unchanged, sequence 1"), "{done:?}");
    assert_eq!(done.stderr, "");
    assert!(site.path("blog/built").exists(), "the build has run");
    // Another command, and the same file in another folder, need a new consent.
    fs::remove_file(site.path("blog/built")).expect("a mark");
    fs::write(
        site.path("blog/publish.toml"),
        FILE.replace("touch", "touch -c"),
    )
    .expect("a file");
    let done = publish(&site, &[]);
    assert_eq!(done.code, Some(2), "{done:?}");
    fs::write(site.path("blog/publish.toml"), FILE).expect("a file");
    fs::rename(site.path("blog"), site.path("stranger")).expect("a folder");
    fs::create_dir(site.path("blog")).expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_anthill-publish"));
    command
        .arg("publish")
        .current_dir(site.path("stranger"))
        .env("XDG_STATE_HOME", site.path("state"));
    let done = run(command);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(!site.path("stranger/built").exists());
}

#[test]
fn a_question_on_a_terminal_is_answered_by_yes() {
    for (answer, is_published) in [("y\n", true), ("\n", false), ("n\n", false)] {
        let site = blog(FILE);
        let program = env!("CARGO_BIN_EXE_anthill-publish");
        let mut child = Command::new(tool("script"))
            .args(["-qec", &format!("{program} publish"), "/dev/null"])
            .current_dir(site.path("blog"))
            .env("XDG_STATE_HOME", site.path("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script");
        let mut input = child.stdin.take().expect("an input");
        input.write_all(answer.as_bytes()).expect("an answer");
        let output = child.wait_with_output().expect("an output");
        drop(input);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Publish so from now on? [y/N]"), "{text}");
        assert_eq!(
            site.path("blog/store/sites/www/pointer").exists(),
            is_published,
            "{text}"
        );
        assert_eq!(site.path("blog/built").exists(), is_published, "{text}");
    }
}

#[test]
fn a_file_that_other_users_may_change_is_refused() {
    let site = blog(FILE);
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    };
    let (folder, file) = (site.path("blog"), site.path("blog/publish.toml"));
    for (path, mode) in [(&file, 0o646), (&folder, 0o757)] {
        let before = fs::metadata(path).expect("a file").permissions();
        set(path, mode);
        let done = publish(&site, &["--yes"]);
        assert_refused(&site, &done, "is not read, since every user may change ");
        assert!(
            done.stderr.contains(&format!("{}\n", path.display())),
            "{done:?}"
        );
        fs::set_permissions(path, before).expect("a mode");
    }
    // Only root gives a file to another user. `nobody` has the number 65534.
    if chown(&file, Some(65_534), None).is_ok() {
        let done = publish(&site, &["--yes"]);
        assert_refused(&site, &done, "`nobody` may change ");
        chown(&file, Some(0), None).expect("an owner");
        chown(&folder, Some(65_534), None).expect("an owner");
        let done = publish(&site, &["--yes"]);
        assert_refused(&site, &done, "`nobody` may change ");
    }
}

#[test]
fn mistakes_of_the_file_and_of_the_arguments_are_named() {
    let site = blog("folder = \"public\"\nhosts = [\"./store\"]\nbild = \"make\"\n");
    let done = publish(&site, &["--yes"]);
    assert_refused(&site, &done, "publish.toml, line 3: unknown key `bild`");
    let done = publish(&site, &["public"]);
    let help = "help: run `anthill publish` without arguments to publish as publish.toml says";
    assert_refused(&site, &done, help);
    let site = blog("folder = \".\"\nhosts = [\"./store\"]\n");
    let done = publish(&site, &["--yes"]);
    assert_refused(&site, &done, "publish.toml lies in the folder to publish");
    fs::remove_file(site.path("blog/publish.toml")).expect("a file");
    let done = publish(&site, &[]);
    assert_refused(
        &site,
        &done,
        "there is nothing to publish: no arguments, and no publish.toml here",
    );
    let done = publish(&site, &["public"]);
    assert_refused(
        &site,
        &done,
        "`anthill publish public` has no destination\nhelp: name a host of your ssh or a store",
    );
    for destination in ["./store", "pi@zero", "www.release"] {
        let done = publish(&site, &["nofolder", destination]);
        assert_refused(
            &site,
            &done,
            "error: nofolder: there is no such file or folder\nhelp: name the folder",
        );
    }
}

#[test]
fn a_build_makes_the_folder_that_is_published() {
    let site = blog("");
    let build = "mkdir -p public && echo page > public/index.html";
    let done = publish(&site, &["--build", build, "public", "www.release"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(site.path("blog/www.release").is_file());
}
