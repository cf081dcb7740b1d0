//! `anthill log`: prints or follows the logs of a server, wherever they are, and says where.

use crate::cli::shared_options::{CONTROL, CommandSpec, WHAT};
use cli::{CommandOption, Operand, ValueKind};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::log_place::{LogKind, LogPlace, LoggingServer};
use super::log_tail::{follow, print_last};
use super::running_servers::SystemdUnit;
use super::server_choice::{KnownServer, KnownServers, real, refuse_planted};
use crate::cli::arguments::ParsedArguments;
use crate::config::{ConfigSource, ConfiguredLogs, LogTarget, OperatorError, Overrides, reason};
use base::visible_text::visible_lines;
use cli::output::print_message;

/// The command `log`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "log",
    about: "Print or follow the logs",
    details: &[
        "Prints the last lines of the journal where systemd runs the server, else of the log files, and says where the \
         access log and the error log are. access and errors choose one of the logs.",
        "The server is that of the configuration in the current folder, or in the given folder or file, also while it is \
         stopped. In a folder without anthill.toml, the command finds the only running server or installed service \
         of the machine.",
    ],
    operands: &[
        Operand {
            name: "LOG",
            required: false,
            values: ValueKind::Words(KINDS),
        },
        WHAT,
    ],
    options: &[
        CommandOption {
            long: "follow",
            short: Some('f'),
            value: None,
            about: "Go on with new lines, until Ctrl-C",
        },
        CommandOption {
            long: "lines",
            short: Some('n'),
            value: Some(("LINES", ValueKind::Any)),
            about: "Number of lines, by default 20",
        },
        CONTROL,
    ],
    run,
};

/// Words for the log to print.
pub(super) const KINDS: &[&str] = &["access", "errors"];
/// Lines without `--lines`.
const LINES: u64 = 20;

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let word = typed.operand_at(0).and_then(|word| word.to_str());
    let kind = LogKind::ALL
        .into_iter()
        .find(|kind| word == Some(kind.word()));
    let nth = usize::from(kind.is_some());
    if let Some(word) = typed.operand_at(nth + 1) {
        let what = format!("unexpected argument `{}`", word.to_string_lossy());
        return Err(OperatorError::new(what).help("see `anthill log --help`"));
    }
    let shown = Shown {
        lines: lines(typed)?,
        follows: typed.has("follow"),
    };
    let (server, configuration) = logging_server(typed, nth)?;
    let arguments = server.process.as_ref();
    let arguments = arguments.and_then(|process| process.arguments(typed.program()));
    let places = LogKind::ALL.map(|kind| (kind, server.place(kind, arguments.as_ref())));
    let chosen: Vec<&LogPlace> = match kind {
        Some(kind) => places
            .iter()
            .filter(|it| it.0 == kind)
            .map(|it| &it.1)
            .collect(),
        None => by_default(&places),
    };
    let name = visible_lines(&configuration.display().to_string());
    print_message(&note(&name, &places));
    if kind == Some(LogKind::Access) {
        print_site_logs(&configuration);
    }
    if let Some(LogPlace::Journal(unit)) =
        chosen.iter().find(|it| matches!(it, LogPlace::Journal(_)))
    {
        return Err(shown.journal(unit));
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for place in chosen {
        if let LogPlace::File(path) = place
            && !files.contains(path)
        {
            files.push(path.clone());
        }
    }
    if files.is_empty() {
        return Err(nothing_to_read(&name));
    }
    shown.files(files)
}

/// Returns the value of `--lines`.
fn lines(typed: &ParsedArguments) -> Result<u64, OperatorError> {
    let Some(text) = typed.text("lines")? else {
        return Ok(LINES);
    };
    text.parse().map_err(|_| {
        OperatorError::new(format!("--lines: `{text}` is not a number of lines"))
            .help("write a number such as 100")
    })
}

/// Returns the places to print without a word: the journal, or else all files.
fn by_default(places: &[(LogKind, LogPlace)]) -> Vec<&LogPlace> {
    let places: Vec<&LogPlace> = places.iter().map(|it| &it.1).collect();
    let journal = places.iter().find(|it| matches!(it, LogPlace::Journal(_)));
    journal.map_or_else(|| places.clone(), |journal| vec![*journal])
}

/// Returns the message with the places of the logs.
fn note(name: &str, places: &[(LogKind, LogPlace)]) -> String {
    let place = |(kind, place): &(LogKind, LogPlace)| {
        let place = match place {
            LogPlace::Journal(unit) => {
                format!(
                    "in the journal: journalctl {}",
                    unit.journal_arguments().join(" ")
                )
            }
            LogPlace::File(path) => visible_lines(&path.display().to_string()),
            LogPlace::Off => "off".to_owned(),
            LogPlace::Elsewhere(place) => visible_lines(place),
        };
        format!("  {:10} {place}", kind.name())
    };
    let places: Vec<String> = places.iter().map(place).collect();
    format!("logs of {name}:\n{}", places.join("\n"))
}

/// Names the sites with an access log of their own.
fn print_site_logs(configuration: &Path) {
    let source = ConfigSource::of(Some(configuration)).ok();
    let config = source.and_then(|source| source.read(&Overrides::default()).ok());
    for site in config.iter().flat_map(|config| &config.sites) {
        let log = site.log.access.as_ref().map(|log| log.get_ref());
        if let Some(LogTarget::File(path)) = log {
            let names = site.names.iter().map(ToString::to_string);
            let name = names.take(1).next().unwrap_or_else(|| "a site".to_owned());
            let line = format!("  {name} has a log of its own: {}", path.display());
            print_message(&visible_lines(&line));
        }
    }
}

fn nothing_to_read(name: &str) -> OperatorError {
    let what = "no log can be read: there is neither a file nor a journal".to_owned();
    OperatorError::failure(what).help(format!(
        "ask the program that started the server, such as `docker logs`; or write access and errors in [log] of {name}, \
         for example\n  access = \"access.log\"\n  errors = \"errors.log\"\nand run `anthill reload`"
    ))
}

/// Extent of the output.
struct Shown {
    lines: u64,
    follows: bool,
}

impl Shown {
    /// Replaces the process by journalctl. Returns only on failure.
    fn journal(&self, unit: &SystemdUnit) -> OperatorError {
        let mut command = Command::new("journalctl");
        command.args(unit.journal_arguments());
        command.args(["--no-pager", "--lines", &self.lines.to_string()]);
        if self.follows {
            command.arg("--follow");
        }
        let error = command.exec();
        OperatorError::failure(format!("journalctl: {}", reason(&error)))
            .help("the journal is a part of systemd; install its programs, or name files in [log]")
    }

    fn files(&self, files: Vec<PathBuf>) -> Result<ExitCode, OperatorError> {
        let mut out = io::stdout().lock();
        let followed = match print_last(&files, self.lines, &mut out) {
            Ok(followed) => followed,
            Err((_, error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            Err((path, error)) => return Err(unreadable(&path, &error)),
        };
        if !self.follows {
            return Ok(ExitCode::SUCCESS);
        }
        match follow(followed, &mut out) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(OperatorError::failure(reason(&error)))
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> OperatorError {
    match error.kind() {
        io::ErrorKind::NotFound => OperatorError::failure(format!(
            "{} does not exist",
            path.display()
        ))
        .help("the server makes the file at its start, or at `anthill reload` after a change of [log]"),
        io::ErrorKind::PermissionDenied => {
            OperatorError::failure(format!("{}: permission denied", path.display()))
                .help("run the command as the server's user or as root (sudo)")
        }
        _ => OperatorError::failure(format!("{}: {error}", path.display())),
    }
}

/// Returns the server of the logs with its configuration: the named server, the server of the folder, or the only server of
/// the machine, running or installed.
fn logging_server(
    typed: &ParsedArguments,
    nth: usize,
) -> Result<(LoggingServer, PathBuf), OperatorError> {
    let known = KnownServers::find(typed.program());
    if let Some(control) = typed.path("control") {
        let control = real(&control);
        let found = known
            .servers
            .iter()
            .find(|server| server.control == control);
        let configuration = found.and_then(|server| server.configuration.clone());
        let Some(configuration) = configuration else {
            let what = format!(
                "no server of this user runs with the control socket {}",
                control.display()
            );
            return Err(
                OperatorError::failure(what).help("name the configuration: anthill log DIR")
            );
        };
        return Ok(of_configuration(known, &configuration));
    }
    let place = typed.path_at(nth);
    match ConfigSource::of(place)? {
        ConfigSource::File(file) => {
            if place.is_none() {
                refuse_planted(&file)?;
            }
            return Ok(of_configuration(known, &file));
        }
        ConfigSource::Folder(folder) => {
            let is_served = known.servers.iter().any(|server| serves(server, &folder));
            if is_served || place.is_some() {
                return Ok(of_configuration(known, &folder));
            }
        }
        ConfigSource::Proxy(_) => {}
    }
    let configuration = only(&known)?;
    Ok(of_configuration(known, &configuration))
}

/// Returns the only configuration of a running server or an installed service.
fn only(known: &KnownServers) -> Result<PathBuf, OperatorError> {
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for server in &known.servers {
        if let Some(configuration) = &server.configuration {
            found.push((
                real(configuration),
                format!("anthill log {}", configuration.display()),
            ));
        }
    }
    for service in &known.services {
        let target = service.configuration();
        if found.iter().all(|it| it.0 != target) {
            let choice = format!(
                "anthill log {}  (the service {})",
                target.display(),
                service.name
            );
            found.push((target, choice));
        }
    }
    match &found[..] {
        [(configuration, _)] => Ok(configuration.clone()),
        [] => {
            let absent =
                OperatorError::failure("no anthill is running, and no service is installed")
                    .help("name the folder or the file of the configuration: anthill log DIR");
            Err(known.nothing_runs(absent))
        }
        found => {
            let choices: Vec<&str> = found.iter().map(|it| &*it.1).collect();
            let what = format!("{} servers have logs on this machine", found.len());
            let help = visible_lines(&format!("name one of them:\n  {}", choices.join("\n  ")));
            Err(OperatorError::failure(what).help(help))
        }
    }
}

fn serves(server: &KnownServer, configuration: &Path) -> bool {
    let served = server.configuration.as_deref();
    served.is_some_and(|served| real(served) == real(configuration))
}

fn of_configuration(known: KnownServers, configuration: &Path) -> (LoggingServer, PathBuf) {
    let configuration = real(configuration);
    let mut servers = known.servers.into_iter();
    let running = servers.find(|server| serves(server, &configuration));
    let mut services = known.services.into_iter();
    let server = LoggingServer {
        process: running.and_then(|server| server.process),
        service: services.find(|service| service.configuration() == configuration),
        configured: ConfiguredLogs::of(&configuration),
    };
    (server, configuration)
}
