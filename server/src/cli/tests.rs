//! Tests of the command line: parsing, the commands, and the texts made from the table.

// Failed setup fails the test.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::init_system::InitSystem;
use super::installed_service::InstalledService;
use super::running_servers::ServerProcess;
use super::service::ServiceDefinition;
use super::service_text::SUPERVISE;
use super::*;
use crate::cli::arguments::ParsedArguments;
use crate::config::FILE_NAME;
use cli::{ValueKind, output::paint};
use wire::reject::Reject;

fn typed(command: &str, words: &[&str]) -> Result<ParsedArguments, OperatorError> {
    let words = words.iter().map(OsString::from).collect();
    let command = PROGRAM.find(command).expect("a command of the table");
    Ok(cli::parse(&PROGRAM, command, words)?)
}

fn refused(command: &str, words: &[&str]) -> String {
    match typed(command, words) {
        Ok(_) => panic!("accepted: {command} {words:?}"),
        Err(error) => {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        }
    }
}

#[test]
fn operands_and_options_are_parsed() {
    let serve = typed(
        "serve",
        &["--https", ":1", "dir", "--https=:2", "--workers", "2"],
    )
    .unwrap();
    assert_eq!(serve.texts("https").unwrap(), [":1", ":2"]);
    assert_eq!(serve.text("workers").unwrap().as_deref(), Some("2"));
    assert_eq!(serve.path_at(0), Some(Path::new("dir")));
    assert_eq!(serve.path("state"), None);
    let status = typed("status", &["--json"]).unwrap();
    assert!(status.has("json"));
    assert!(
        typed("passwd", &["-h"]).unwrap().has("help"),
        "`--help` needs no operands"
    );
    assert_eq!(
        typed("serve", &["--", "--dir"]).unwrap().path_at(0),
        Some(Path::new("--dir"))
    );
}

#[test]
fn an_action_may_be_left_out_before_a_folder() {
    let list = typed("balancer", &["/"]).unwrap();
    assert_eq!(list.path_at(0), Some(Path::new("/")));
    let (_folder, path, server) = answering("ok\n");
    let control = path.to_str().unwrap();
    let list = typed("balancer", &["/", "--control", control]).unwrap();
    (PROGRAM.find("balancer").unwrap().run)(&list).unwrap();
    assert_eq!(server.join().unwrap(), "balancer text\n");
}

#[test]
fn a_folder_in_place_of_a_member_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("none");
    let words = ["enable", "app", "/", "--control", control.to_str().unwrap()];
    let error = (PROGRAM.find("balancer").unwrap().run)(&typed("balancer", &words).unwrap());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("help: `/` was read as MEMBER: write MEMBER before"),
        "{error}"
    );
}

#[test]
fn help_has_the_row_of_each_rule() {
    for reject in Reject::ALL {
        let text = help::rule(reject.rule).unwrap();
        let status = reject.status.0;
        let first = format!("R{}: {}\nStatus {status}\n", reject.rule, reject.reason);
        assert!(text.starts_with(&first), "{text}");
        assert!(
            !text.contains("](") && !text.contains('|') && !text.contains("*Closes"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    let text = help::rule(102).unwrap();
    assert_eq!(
        text,
        "R102: request line too long\nStatus 414\n\nSee `request_line_bytes`. The connection closes.\n"
    );
    let text = help::rule(405).unwrap();
    assert_eq!(
        text,
        "R405: wrong user or password\nStatus 401\n\nSee failed logins.\n"
    );
    // Asterisks and brackets outside of links stay.
    let text = help::rule(104).unwrap();
    assert!(
        text.contains("`PRI\n* HTTP/2.0`") && text.contains("in `[server]`"),
        "{text}"
    );
    let unknown = help::rule(999).unwrap_err().to_string();
    assert!(
        unknown.starts_with("error: there is no rule R999\n"),
        "{unknown}"
    );
    assert!(typed("help", &["r742"]).is_ok() && typed("help", &["742"]).is_ok());
    assert!(typed("help", &["R"]).is_err());
}

#[test]
fn mistakes_have_a_message_and_a_correction() {
    let table: &[(&str, &[&str], &str)] = &[
        (
            "serve",
            &["--htps", "x"],
            "error: unknown option `--htps` of `anthill serve`\nhelp: did you mean `--https`?",
        ),
        (
            "serve",
            &["-x"],
            "error: unknown option `-x`\nhelp: see `anthill serve --help`",
        ),
        (
            "serve",
            &["--https"],
            "error: `--https` needs a value\nhelp: --https ADDR",
        ),
        (
            "serve",
            &["a", "b"],
            "error: unexpected argument `b`\nhelp: anthill serve [OPTIONS] [DIR|FILE]",
        ),
        (
            "passwd",
            &["file"],
            "error: `anthill passwd` needs USER\nhelp: anthill passwd [OPTIONS] FILE USER",
        ),
        (
            "service",
            &["instal"],
            "error: `instal` is not a valid action\nhelp: did you mean `install`?",
        ),
        (
            "service",
            &["print", "--init", "upstart"],
            "error: `upstart` is not a valid init\nhelp: systemd, openrc, runit, sysv, cron",
        ),
        (
            "completions",
            &["tcsh"],
            "error: `tcsh` is not a valid shell\nhelp: bash, zsh, fish",
        ),
        (
            "status",
            &["--json=1"],
            "error: unexpected argument for option '--json': \"1\"\nhelp: see `anthill status --help`",
        ),
    ];
    for (command, words, expected) in table {
        assert_eq!(refused(command, words), *expected, "{command} {words:?}");
    }
    assert!(
        unknown("sreve")
            .to_string()
            .contains("did you mean `anthill serve`?")
    );
    assert!(unknown("/").to_string().contains("anthill serve /"));
    assert!(unknown("zebra").to_string().contains("anthill-zebra"));
}

#[test]
fn the_table_of_commands_is_consistent() {
    for command in PROGRAM.commands {
        assert!(!command.about.ends_with('.'), "{}", command.name);
        let longs: Vec<&str> = command.options().map(|option| option.long).collect();
        let mut once = longs.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), longs.len(), "{}", command.name);
        let last_required = command
            .operands
            .iter()
            .rposition(|o| o.required)
            .map_or(0, |at| at + 1);
        assert!(
            command.operands[..last_required].iter().all(|o| o.required),
            "{}",
            command.name
        );
        let help = cli::help::command(&PROGRAM, command);
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
        for option in command.options() {
            assert!(help.contains(&format!("--{}", option.long)));
            assert!(man::page(&PROGRAM).contains(&format!("anthill {}", command.name)));
        }
        assert!(help::overview(&PROGRAM).contains(command.about));
    }
}

/// Feeds text to a tool and returns the tool's output, empty if the tool accepts the text. `None` if the
/// tool isn't installed.
fn taken_by(tool: &str, arguments: &[&str], text: &str) -> Option<String> {
    let child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.ok()?;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let complaints = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&complaints).into_owned())
}

#[test]
fn the_manual_page_passes_mandoc() {
    let page = man::page(&PROGRAM);
    assert!(page.contains(".SH COMMANDS\n"));
    assert!(page.contains("\\fB\\-\\-https\\fR \\fIADDR\\fR"));
    if let Some(complaints) = taken_by("mandoc", &["-T", "lint"], &page) {
        assert_eq!(complaints, "");
    }
}

#[test]
fn shells_accept_the_completions() {
    for (shell, text) in [
        ("bash", cli::completions::bash(&PROGRAM)),
        ("zsh", cli::completions::zsh(&PROGRAM)),
        ("fish", cli::completions::fish(&PROGRAM)),
    ] {
        for command in PROGRAM.commands {
            assert!(text.contains(command.name), "{shell} {}", command.name);
            for option in command.options() {
                assert!(text.contains(option.long), "{shell} --{}", option.long);
                if let Some((_, ValueKind::Words(words))) = option.value {
                    assert!(text.contains(&words.join(" ")), "{shell} {words:?}");
                }
            }
        }
        if let Some(complaints) = taken_by(shell, &["-n"], &text) {
            assert_eq!(complaints, "", "{shell}");
        }
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    let ask = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let script = format!(
            "{}\nCOMP_WORDS=({}); COMP_CWORD={}; _anthill; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            cli::completions::bash(&PROGRAM),
            words
                .iter()
                .map(|word| format!("'{word}'"))
                .collect::<Vec<_>>()
                .join(" "),
            words.len() - 1
        );
        taken_by("bash", &[], &script)
    };
    let Some(commands) = ask("anthill s") else {
        return;
    };
    assert_eq!(commands, "serve\nstatus\nstop\nservice\n");
    assert_eq!(ask("anthill serve --ht").unwrap(), "--https\n--http\n");
    assert_eq!(ask("anthill service ").unwrap(), "install\nremove\nprint\n");
    assert_eq!(ask("anthill service --name x in").unwrap(), "install\n");
    assert_eq!(
        ask("anthill service print --init s").unwrap(),
        "systemd\nsysv\n"
    );
    assert_eq!(ask("anthill serve /et").unwrap(), "/etc\n");
}

#[test]
fn a_user_file_is_edited_line_by_line() {
    let before = "# people\nann:$1$a\nanna:$1$b\n\nbob:$1$c";
    assert_eq!(
        passwd::with(before, "ann:new", "ann"),
        "# people\nann:new\nanna:$1$b\n\nbob:$1$c\n"
    );
    assert_eq!(
        passwd::with(before, "eve:new", "eve"),
        format!("{before}\neve:new\n")
    );
    assert_eq!(passwd::with("a:1\na:2\n", "a:3", "a"), "a:3\n");
    assert_eq!(
        passwd::without(before, "bob").unwrap(),
        "# people\nann:$1$a\nanna:$1$b\n\n"
    );
    assert_eq!(passwd::without(before, "an"), None);
}

#[test]
fn a_password_is_hashed_as_apache_does() {
    let line = passwd::line("ann", "geheim ü").unwrap();
    let hash = line.strip_prefix("ann:").unwrap();
    assert!(hash.starts_with("$2y$10$"), "{hash}");
    assert_eq!(hash.len(), 60);
    assert!(bcrypt::verify("geheim ü", hash).unwrap());
    assert!(!bcrypt::verify("geheim u", hash).unwrap());
    assert_ne!(line, passwd::line("ann", "geheim ü").unwrap(), "salted");
}

#[test]
fn a_password_is_read_key_by_key() {
    let typed = |keys: &[u8]| passwd::read_keys(&mut &*keys);
    assert_eq!(typed(b"abc\n").unwrap(), "abc");
    assert_eq!(typed("aü\u{7f}b\r".as_bytes()).unwrap(), "ab");
    assert_eq!(typed(b"\x7fabc\x15d\n").unwrap(), "d");
    assert!(typed(b"abc\x03").is_err());
    assert!(typed(b"abc").is_err());
    assert!(typed(b"\xff\n").is_err());
}

#[test]
fn a_program_beside_or_on_the_path_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("anthill-press");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let path = || Some(OsString::from(folder.path()));
    assert_eq!(
        external::find("press", None, path()),
        None,
        "not executable"
    );
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(external::find("press", None, path()), Some(program.clone()));
    assert_eq!(
        external::find("press", Some(folder.path().to_owned()), None),
        Some(program)
    );
    assert_eq!(external::find("../press", None, path()), None);
    assert_eq!(external::find("bench", None, path()), None);
    assert_eq!(
        external::find("press", None, Some(":relative".into())),
        None
    );
}

/// Starts a control server that sends `answer` to the first client. The thread returns the client's
/// request.
fn answering(
    answer: &'static str,
) -> (tempfile::TempDir, PathBuf, std::thread::JoinHandle<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = Vec::new();
        let mut byte = [0];
        while asked.last() != Some(&b'\n') {
            stream.read_exact(&mut byte).unwrap();
            asked.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(asked).unwrap()
    });
    (folder, path, server)
}

#[test]
fn commands_are_sent_to_the_running_server() {
    let ask = |command: &str, words: &[&str], answer| {
        let (_folder, path, server) = answering(answer);
        let mut words = words.to_vec();
        words.extend(["--control", path.to_str().unwrap()]);
        let run = PROGRAM.find(command).unwrap().run;
        let outcome = run(&typed(command, &words).unwrap());
        (server.join().unwrap(), outcome)
    };
    let (asked, outcome) = ask("status", &["--json"], "ok\n");
    assert_eq!(asked, "status json\n");
    assert_eq!(outcome.unwrap(), ExitCode::SUCCESS);
    let (asked, outcome) = ask("reload", &[], "error\nerror: unknown key\n");
    assert_eq!(asked, "reload\n");
    assert_eq!(outcome.unwrap(), ExitCode::FAILURE);
    let (asked, outcome) = ask("stop", &[], "");
    assert_eq!(asked, "stop\n");
    assert!(
        outcome
            .unwrap_err()
            .to_string()
            .contains("closed the connection without a response")
    );
}

#[test]
fn the_command_line_names_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE_NAME);
    std::fs::write(&file, "").unwrap();
    let of = |words: &[&str]| ServerProcess {
        folder: folder.path().to_owned(),
        words: words.iter().map(OsString::from).collect(),
        ..ServerProcess::default()
    };
    let file_of = |words: &[&str]| of(words).configuration(&PROGRAM);
    assert_eq!(file_of(&["/usr/bin/anthill", "serve"]), Some(file.clone()));
    assert_eq!(
        file_of(&["anthill", "serve", "--user", "web", "."]),
        Some(file)
    );
    assert_eq!(
        file_of(&["anthill", "serve", "/srv/a.toml", "--http", "off"]),
        Some("/srv/a.toml".into())
    );
    // A folder without a configuration stands for itself.
    assert_eq!(
        file_of(&["qemu-arm", "/usr/bin/anthill", "serve", "none"]),
        Some(folder.path().join("none"))
    );
    assert_eq!(file_of(&["anthill", "status"]), None);
}

#[test]
fn a_missing_server_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let ask = || {
        let typed = typed("stop", &["--control", path.to_str().unwrap()]).unwrap();
        let error = (PROGRAM.find("stop").unwrap().run)(&typed).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        error.to_string()
    };
    let expected = format!(
        "error: no anthill is running with this configuration (no control socket at {})\n",
        path.display()
    );
    assert!(ask().starts_with(&expected), "{}", ask());
    // A killed server leaves its socket file behind.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    assert!(ask().starts_with(&expected), "{}", ask());
}

#[test]
fn colours_mark_labels_and_carets() {
    let text = "error: x\n --> f:1:1\n  |\n1 | a^b\n  | ^^\nhelp: y";
    assert_eq!(paint(text, false), text);
    let painted = paint(text, true);
    assert!(
        painted.starts_with("\x1b[1;31merror:\x1b[0m x\n"),
        "{painted:?}"
    );
    assert!(painted.contains("1 | a^b\n"), "{painted:?}");
    assert!(painted.contains("  | \x1b[1;31m^^\x1b[0m\n"), "{painted:?}");
}

fn service(init: InitSystem) -> ServiceDefinition {
    ServiceDefinition::example(init, "/usr/local/bin/anthill", "/srv/my site's/100%", "web")
}

#[test]
fn services_are_written_for_each_system() {
    let unit = service(InitSystem::Systemd).render();
    assert!(
        unit.contains(&format!(
            "\nExecStart=/usr/local/bin/anthill serve {SUPERVISE}\"/srv/my site's/100%%\"\n"
        )),
        "{unit}"
    );
    assert!(
        unit.contains("\nUser=web\nAmbientCapabilities=CAP_NET_BIND_SERVICE CAP_LEASE\n"),
        "{unit}"
    );
    assert!(unit.contains("\nReadWritePaths=-/var/log/web\n"), "{unit}");
    assert!(unit.contains("\nStateDirectory=anthill\n"), "{unit}");
    assert!(unit.contains("\nTimeoutStopSec=40\n"), "{unit}");
    let logs = "\nLogsDirectory=anthill\nLogsDirectoryMode=0750\nUMask=0027\n";
    assert!(unit.contains(logs), "{unit}");
    // The account of the unit goes before another account of the configuration.
    let configured = |name: &str| ServiceDefinition {
        configured_user: Some(name.to_owned()),
        ..service(InitSystem::Systemd)
    };
    assert_eq!(configured("web").render(), unit);
    let other = configured("other").render();
    assert!(
        other.contains(&format!(
            "\nExecStart=/usr/local/bin/anthill serve {SUPERVISE}--user web \"/srv/my"
        )),
        "{other}"
    );
    assert!(other.contains("\nUser=web\n"), "{other}");

    for init in [InitSystem::OpenRc, InitSystem::Runit, InitSystem::SysV] {
        let script = service(init).render();
        assert!(!script.contains('@'), "{script}");
        let exported = "export LOGS_DIRECTORY=/var/log/anthill\n";
        assert!(script.contains(exported), "{script}");
        let without = ServiceDefinition {
            logs: None,
            ..service(init)
        };
        let without = without.render();
        assert!(!without.contains("LOGS_DIRECTORY"), "{without}");
        assert_eq!(without.lines().count() + 2, script.lines().count());
        if let Some(complaints) = taken_by("sh", &["-n"], &script) {
            assert_eq!(complaints, "", "{script}");
        }
    }
    // The arguments of the OpenRC command keep their boundaries when evaluated by the shell.
    let script = service(InitSystem::OpenRc).render();
    let line = script
        .lines()
        .find(|line| line.starts_with("command_args="))
        .unwrap();
    let words = taken_by(
        "sh",
        &[],
        &format!("{line}\neval \"set -- $command_args\"\nprintf '%s\\n' \"$@\""),
    );
    assert_eq!(
        words.unwrap(),
        "serve\n--supervise\n--user\nweb\n/srv/my site's/100%\n"
    );
}

#[test]
fn a_written_service_is_read_again() {
    let targets = [
        "/etc/anthill/anthill.toml",
        "/srv/my site's/100% $HOME \"a\\b",
    ];
    let programs = ["/usr/local/bin/anthill", "/opt/a b/anthill"];
    let systems = [
        InitSystem::Systemd,
        InitSystem::OpenRc,
        InitSystem::Runit,
        InitSystem::SysV,
    ];
    for (init, target) in systems
        .into_iter()
        .flat_map(|it| targets.map(|target| (it, target)))
    {
        for (program, configured) in programs.into_iter().zip([None, Some("other")]) {
            let logs = configured.map(|name| Path::new("/var/log").join(name));
            let service = ServiceDefinition {
                configured_user: configured.map(str::to_owned),
                logs: logs.clone(),
                ..ServiceDefinition::example(init, program, target, "web")
            };
            // OpenRC and the classic scripts share a folder.
            let folder_of = match init {
                InitSystem::Systemd | InitSystem::Runit => init,
                InitSystem::OpenRc | InitSystem::SysV => InitSystem::SysV,
            };
            let text = service.render();
            let expected = InstalledService {
                name: "www".to_owned(),
                init,
                target: target.into(),
                user: "web".to_owned(),
                logs,
            };
            let read = InstalledService::parse("www", folder_of, &text);
            assert_eq!(read, Some(expected), "{text}");
        }
    }
}

#[test]
fn a_file_of_another_program_or_user_is_no_service() {
    let text = ServiceDefinition::example(InitSystem::Systemd, "/a", "/b", "web").render();
    let unmarked = text.replace("`anthill service install`", "hand");
    let parse = |text: &str| InstalledService::parse("www", InitSystem::Systemd, text);
    assert_eq!(parse(&unmarked), None);
    assert_eq!(parse(&text.replace("ExecStart", "#")), None);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("www.service");
    std::fs::write(&file, &text).unwrap();
    let found = || InstalledService::in_folder(folder.path(), InitSystem::Systemd).len();
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(found(), usize::from(is_root));
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&file, mode(0o666)).unwrap();
    assert_eq!(found(), 0);
    std::fs::set_permissions(&file, mode(0o644)).unwrap();
    if is_root {
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert_eq!(found(), 0);
    }
}
