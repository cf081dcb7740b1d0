//! The command line after a fresh installation from the archive.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Done, Folder, Server, anthill, finish, run, server_table, site_table, tool};

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns an `anthill` command with the arguments in the folder, isolated from the machine's state.
fn command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::support::program());
    command
        .args(arguments)
        .current_dir(folder.path("."))
        .env("STATE_DIRECTORY", folder.path("state"));
    command
}

fn done_in(folder: &Folder, arguments: &[&str]) -> Done {
    finish(command(folder, arguments), b"")
}

#[test]
fn a_folder_is_served_without_a_configuration() {
    let folder = Folder::new().with("site/index.html", "<p>hello</p>\n");
    let any = ["--https", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let serve = command(&folder, &[&["serve", "site"], &any[..]].concat());
    let mut server = Server::launch(folder, serve);
    let said = server.errors.all();
    let expected = [
        format!("anthill {} serves ", env!("CARGO_PKG_VERSION")),
        format!("  https://localhost:{}", server.https_port),
        format!(
            "  http://localhost:{}  (redirects to https)",
            server.http_port
        ),
        "certificate: self-signed, browsers will ask once; SHA-256 fingerprint".to_owned(),
        "  ".to_owned(),
        "ready; Ctrl-C stops".to_owned(),
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (line, begin) in said.iter().zip(&expected) {
        assert!(line.starts_with(begin), "{line} doesn't begin with {begin}");
    }
    assert!(said[0].ends_with("/site"), "{}", said[0]);
    assert_eq!(server.body("/"), b"<p>hello</p>\n");
    let got = server.keep_alive().get("/page?q");
    let to = format!(
        "Location: https://localhost:{}/page?q\r\n",
        server.https_port
    );
    assert!(got.status == 308 && got.head.contains(&to), "{}", got.head);
    // The printed fingerprint matches the certificate presented to clients.
    let address = format!("127.0.0.1:{}", server.https_port);
    let shown = run("openssl", &["s_client", "-connect", &address], b"").text();
    let print = ["x509", "-noout", "-fingerprint", "-sha256"];
    let print = run("openssl", &print, shown.as_bytes()).text();
    assert!(print.contains(said[4].trim()), "{print} {}", said[4]);
    server.output.wait_for("a line of the access log", |line| {
        line.contains("GET / HTTP/")
    });

    let ask = |words: &[&str]| done_in(&server.folder, words);
    assert_eq!(ask(&["reload", "site"]).code, Some(0));
    assert!(ask(&["status", "site"]).stdout.contains("connections"));
    assert_eq!(ask(&["stop", "site"]).code, Some(0));
    assert_eq!(server.wait(PATIENCE), Some(0));
    let gone = done_in(&server.folder, &["status", "site"]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("no anthill is running"), "{gone:?}");
    assert!(gone.stderr.contains("anthill serve"), "{gone:?}");
}

#[test]
fn an_empty_folder_is_served_with_a_notice() {
    let folder = Folder::new();
    let state = folder.path("state").display().to_string();
    fs::create_dir(folder.path("empty")).expect("a folder");
    let mut serve = command(
        &folder,
        &[
            "serve",
            "--https",
            "127.0.0.1:0",
            "--http",
            "off",
            "--state",
            &state,
        ],
    );
    serve.current_dir(folder.path("empty"));
    let server = Server::launch(folder, serve);
    let said = server.errors.all();
    assert!(
        said.iter()
            .any(|line| line.starts_with("note: there is no index.html")),
        "{said:?}"
    );
    assert_eq!(server.http_port, 0);
    assert_eq!(server.keep_alive_tls().get("/").status, 404);
    server.folder.write("empty/index.html", "here it is");
    crate::support::eventually("the page", || {
        (server.keep_alive_tls().get("/").text() == "here it is").then_some(())
    });
}

#[test]
fn check_reports_valid_and_invalid_configurations() {
    let folder = Folder::new().with("public/index.html", "");
    let check = |config: &str| {
        folder.write("anthill.toml", config);
        done_in(&folder, &["check"])
    };
    let right = check(&(server_table("") + &site_table("")));
    assert_eq!(
        (right.code, right.stderr.as_str()),
        (Some(0), ""),
        "{right:?}"
    );
    assert_eq!(
        right.stdout,
        "anthill.toml is valid: 1 site, for any name\n"
    );
    // The check creates no file and binds no port.
    assert!(!folder.path("state").exists() && !folder.path("anthill.sock").exists());
    let of_folder = done_in(&folder, &["check", "public"]);
    assert_eq!(
        of_folder.stdout,
        "public has no anthill.toml, and is valid as a folder to serve: 1 site, for any name\n"
    );
    assert_eq!(of_folder.stderr, "");
    std::fs::create_dir(folder.path("empty")).expect("a folder");
    let of_empty = done_in(&folder, &["check", "empty"]);
    assert!(
        of_empty
            .stderr
            .contains("/empty has neither an anthill.toml nor a file to serve\nhelp: "),
        "{of_empty:?}"
    );
    let hidden = server_table("").replace("state = \"state\"", "state = \".state\"");
    let warned = check(&(hidden + &site_table("").replace("public", ".")));
    assert_eq!(warned.code, Some(0));
    assert!(warned.stderr.starts_with("warning: "), "{warned:?}");
    let wrong = check(&(server_table("") + &site_table("indexx = [\"a\"]")));
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("anthill.toml:"), "{wrong:?}");
    assert!(
        wrong.stderr.contains("^^^^^^") && wrong.stderr.contains("index"),
        "{wrong:?}"
    );
    assert_eq!(check(&(server_table("") + &site_table(""))).code, Some(0));
    for (typed, words) in [
        (&["check", "nowhere"][..], "nowhere"),
        (&["check", "public/index.html"], "anthill serve public"),
        (&["serve", "--workers", "many"], "--workers"),
        (&["serve", "--https", "somewhere:1"], "somewhere:1"),
        (
            &["serve", "--https", "off", "--http", "off"],
            "no address to listen on",
        ),
    ] {
        let done = done_in(&folder, typed);
        assert_eq!(done.code, Some(2), "{typed:?}: {done:?}");
        assert!(
            done.stderr.contains(words) && done.stderr.contains("help: "),
            "{done:?}"
        );
    }
}

#[test]
fn a_password_set_by_passwd_is_required() {
    let folder = Folder::new().with("public/index.html", "secret page");
    let passwd = |arguments: &[&str], input: &[u8]| {
        finish(command(&folder, &[&["passwd"], arguments].concat()), input)
    };
    let added = passwd(&["users", "ann"], b"first\n");
    assert_eq!(added.stdout, "added `ann` in users\n", "{added:?}");
    let changed = passwd(&["users", "ann"], b"correct horse\n");
    assert_eq!(changed.stdout, "changed `ann` in users\n", "{changed:?}");
    assert_eq!(passwd(&["users", "bob"], b"another\n").code, Some(0));
    let text = fs::read_to_string(folder.path("users")).expect("the user file");
    assert!(
        text.lines().count() == 2 && !text.contains("horse"),
        "{text}"
    );
    let mode = fs::metadata(folder.path("users"))
        .expect("the user file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o007, 0);
    assert_eq!(passwd(&["users", "eve"], b"\n").code, Some(1));
    assert_eq!(passwd(&["users", "a:b"], b"x\n").code, Some(2));
    assert_eq!(passwd(&["--delete", "users", "eve"], b"").code, Some(1));

    let route = "[[site.route]]\npath = \"/\"\nusers = \"users\"\n";
    let server = Server::start_in(folder, &(server_table("") + &site_table(route)));
    let code = |login: &str| {
        let url = server.https("/");
        let mut words = vec!["-o", "/dev/null", "-w", "%{http_code}", &url];
        if !login.is_empty() {
            words.extend(["-u", login]);
        }
        server.curl(&words).text()
    };
    assert_eq!(code(""), "401");
    assert_eq!(code("ann:first"), "401");
    assert_eq!(code("ann:correct horse"), "200");
    assert_eq!(code("bob:another"), "200");
    let removed = done_in(&server.folder, &["passwd", "--delete", "users", "bob"]);
    assert_eq!(removed.stdout, "removed `bob` from users\n", "{removed:?}");
    crate::support::eventually("bob's end", || (code("bob:another") == "401").then_some(()));
    assert_eq!(code("ann:correct horse"), "200");
}

#[test]
fn every_command_and_option_has_help() {
    let overview = anthill(&["help"]);
    assert_eq!(overview.code, Some(0));
    assert_eq!(anthill::<&str>(&[]).stdout, overview.stdout);
    assert_eq!(anthill(&["--help"]).stdout, overview.stdout);
    let commands: Vec<&str> = overview
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        commands.contains(&"serve") && commands.len() > 8,
        "{commands:?}"
    );
    let man = anthill(&["man"]).stdout;
    for command in &commands {
        let help = anthill(&["help", command]);
        assert!(
            help.stdout.contains(&format!("Usage: anthill {command}")),
            "{help:?}"
        );
        assert_eq!(anthill(&[command, "--help"]).stdout, help.stdout);
        assert!(
            man.contains(&format!(".B anthill {command}")),
            "{command} isn't in {man}"
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        let completions = anthill(&["completions", shell]).stdout;
        for command in &commands {
            assert!(completions.contains(command), "{shell}: no {command}");
        }
    }
    let bash = anthill(&["completions", "bash"]).stdout
        + "\nCOMP_WORDS=(anthill rel)\nCOMP_CWORD=1\n"
        + "eval \"$(complete -p anthill | sed 's/.*-F \\([^ ]*\\).*/\\1/')\"\n"
        + "echo \"${COMPREPLY[@]}\"\n";
    assert_eq!(
        run("bash", &["-s"], bash.as_bytes()).text().trim(),
        "reload"
    );
    let version = format!("anthill {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(anthill(&["--version"]).stdout, version);
    assert_eq!(anthill(&["version"]).stdout, version);
}

#[test]
fn mistyped_commands_get_a_suggestion() {
    for (typed, words) in [
        (&["serv"][..], "did you mean `anthill serve`?"),
        (&["relaod"], "did you mean `anthill reload`?"),
        (&["serve", "--htps", ":1"], "--https"),
        (&["--state", "x"], "options are written after the command"),
        (&["no-such-thing"], "anthill-no-such-thing"),
        (&["status", "--json=yes"], "--json"),
        (&["passwd", "file"], "USER"),
        (&["serve", "a", "b"], "unexpected argument"),
    ] {
        let done = anthill(typed);
        assert_eq!(done.code, Some(2), "{typed:?}: {done:?}");
        assert!(
            done.stdout.is_empty() && done.stderr.starts_with("error: "),
            "{done:?}"
        );
        assert!(done.stderr.contains(words), "{typed:?}: {}", done.stderr);
    }
    let folder = Folder::new().with("site/index.html", "");
    let done = done_in(&folder, &["site"]);
    assert!(done.stderr.contains("anthill serve site"), "{done:?}");
}

#[test]
fn an_unknown_command_runs_the_program_of_its_name() {
    let folder = Folder::new();
    folder.program("bin/anthill-greet", "#!/bin/sh\necho \"$0 $*\"\nexit 7\n");
    let program = folder.path("bin/anthill-greet");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let with_ours = [folder.path("bin")]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let mut greet = command(&folder, &["greet", "--loud", "you"]);
    greet.env("PATH", std::env::join_paths(with_ours).expect("a path"));
    let done = finish(greet, b"");
    assert_eq!(done.code, Some(7), "{done:?}");
    assert_eq!(done.stdout, format!("{} --loud you\n", program.display()));
    // A command is not taken from the current folder.
    let mut greet = command(&folder, &["greet"]);
    greet.current_dir(folder.path("bin")).env("PATH", ":.");
    assert_eq!(finish(greet, b"").code, Some(2));
}

/// Three words share the program anthill-publish, which gets the word first. The program is searched beside the binary,
/// so the test copies the binary.
#[test]
fn the_words_of_publishing_run_one_program() {
    let folder = Folder::new();
    let copy = folder.path("anthill");
    let copied = run(
        "cp",
        &[crate::support::program().as_ref(), copy.as_os_str()],
        b"",
    );
    assert!(copied.success, "{}", copied.errors());
    let run_copy = |word: &str| {
        let mut command = Command::new(&copy);
        command
            .args([word, "a", "--b"])
            .env("PATH", "/usr/bin:/bin");
        finish(command, b"")
    };
    let missing = run_copy("publish");
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(
        missing
            .stderr
            .contains("`anthill publish` needs the program anthill-publish"),
        "{missing:?}"
    );
    folder.program("anthill-publish", "#!/bin/sh\necho \"$@\"\n");
    for word in ["publish", "releases", "rollback"] {
        assert_eq!(run_copy(word).stdout, format!("{word} a --b\n"));
    }
}

#[test]
fn a_service_definition_is_printed_for_each_system() {
    let folder = Folder::new().with("public/index.html", "");
    folder.write("anthill.toml", server_table("") + &site_table(""));
    let config = folder.path("anthill.toml").display().to_string();
    for (init, words) in [
        (
            "systemd",
            &["[Service]", "Type=notify", "ExecReload=", "User=anthill"][..],
        ),
        ("openrc", &["#!/sbin/openrc-run", "supervise-daemon"]),
        (
            "runit",
            &["exec \"$program\" serve --supervise --user anthill \"$config\""],
        ),
        ("sysv", &["### BEGIN INIT INFO", "start)"]),
    ] {
        let done = done_in(&folder, &["service", "print", "--init", init]);
        assert_eq!(done.code, Some(0), "{done:?}");
        for word in words
            .iter()
            .copied()
            .chain([config.as_str(), "anthill service remove"])
        {
            assert!(
                done.stdout.contains(word),
                "{init}: no {word} in {}",
                done.stdout
            );
        }
        if init != "systemd" {
            let checked = run("sh", &["-n"], done.stdout.as_bytes());
            assert!(checked.success, "{init}: {}", checked.errors());
        }
    }
    // The unit grants write access to the deployed folders and the push repositories too.
    let more = "[[site]]\nnames = [\"git.test\"]\n[[site.route]]\npath = \"/\"\ngit = \"repos\"\nusers = \"users\"\n\
                push = true\ndeploy = { repository = \"a\", site = \"www.test\" }\n\
                [[site]]\nnames = [\"www.test\"]\nroot = \"sites/www\"\n";
    folder.write("anthill.toml", server_table("") + &site_table("") + more);
    let unit = done_in(&folder, &["service", "print", "--init", "systemd"]).stdout;
    for written in ["sites", "repos"] {
        let line = format!("\nReadWritePaths=-{}\n", folder.path(written).display());
        assert!(unit.contains(&line), "{unit}");
    }
    folder.write(
        "anthill.toml",
        server_table("") + &site_table("") + &more.replace("push = true\n", ""),
    );
    let unit = done_in(&folder, &["service", "print", "--init", "systemd"]).stdout;
    assert!(!unit.contains("/repos\n"), "{unit}");
    let wrong = done_in(&folder, &["service", "print", "--publisher", "publish"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("leave out --publisher"), "{wrong:?}");
    let wrong = done_in(&folder, &["service", "print", "--init", "launchd"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.contains("systemd, openrc, runit, sysv, cron"),
        "{wrong:?}"
    );
    let unnamed = done_in(&folder, &["service"]);
    assert!(
        unnamed.stderr.contains("install|remove|print"),
        "{unnamed:?}"
    );
}

#[test]
fn a_closed_output_pipe_is_no_error() {
    let line = format!("{:?} man | head -n 1", Path::new(crate::support::program()));
    let ran = run("bash", &["-c", &format!("set -o pipefail; {line}")], b"");
    assert!(
        ran.success && ran.text().starts_with(".TH"),
        "{}",
        ran.errors()
    );
    let full = Command::new(tool("sh"))
        .args([
            "-c",
            "exec \"$0\" man > /dev/full",
            crate::support::program(),
        ])
        .status();
    assert_eq!(full.expect("a shell").code(), Some(1));
}

#[test]
fn the_help_names_the_commands_of_the_publisher() {
    let folder = Folder::new();
    let help = done_in(&folder, &["help"]).stdout;
    for word in ["publish", "releases", "rollback"] {
        assert!(help.contains(&format!("\n  {word} ")), "{help}");
        let help = done_in(&folder, &["help", word]).stdout;
        assert!(help.contains(&format!("`anthill {word} --help`")), "{help}");
    }
}

#[test]
fn a_login_by_hand_learns_the_purpose_of_the_key() {
    let folder = Folder::new();
    let done = done_in(&folder, &["receive", "www", "--store", "store"]);
    assert_eq!((done.code, &*done.stdout), (Some(0), ""), "{done:?}");
    assert!(done.stderr.contains("releases of the site www"), "{done:?}");
    assert!(!folder.path("store").exists());
}
