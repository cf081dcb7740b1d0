//! The client of the control socket: `anthill reload`, `reopen`, `status`, `requests`, `metrics`, `balancer`, `manager`,
//! `hits`, `purge` and `stop`.
//!
//! A request is one line. The response is `ok` or `error` on the first line, then text for the user, until
//! the server closes the connection.

use cli::output::print_message;
use cli::output::print_result;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::running_servers::{RunningServer, running_servers};
use crate::admin::command::{Command, HitsFormat, StatusFormat};
use crate::admin::metrics::MetricsFormat;
use crate::cli::arguments::ParsedArguments;
use crate::config::{ConfigSource, FILE_NAME, OperatorError, Overrides, control_sockets, reason};
use base::visible_text::visible_lines;

pub(super) fn reload(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    ask(typed, 0, &Command::Reload, Some(Duration::from_secs(120)))
}

pub(super) fn reopen(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    ask(typed, 0, &Command::Reopen, Some(Duration::from_secs(60)))
}

pub(super) fn status(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let format = match typed.has("json") {
        true => StatusFormat::Json,
        false => StatusFormat::Text,
    };
    ask(
        typed,
        0,
        &Command::Status(format),
        Some(Duration::from_secs(10)),
    )
}

pub(super) fn requests(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let format = match typed.has("json") {
        true => StatusFormat::Json,
        false => StatusFormat::Text,
    };
    let command = Command::Requests(format);
    ask(typed, 0, &command, Some(Duration::from_secs(10)))
}

pub(super) fn metrics(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let command = match (typed.has("openmetrics"), typed.has("history")) {
        (true, true) => {
            let what = "`--openmetrics` and `--history` can't be given together";
            return Err(OperatorError::new(what).help("see `anthill metrics --help`"));
        }
        (true, false) => Command::Metrics(MetricsFormat::OpenMetrics),
        (false, true) => Command::History,
        (false, false) => Command::Metrics(MetricsFormat::Prometheus),
    };
    ask(typed, 0, &command, Some(Duration::from_secs(10)))
}

pub(super) fn hits(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let format = match typed.has("json") {
        true => HitsFormat::Json,
        false => HitsFormat::Text,
    };
    let command = match typed.operand_at(0).map(|site| site.to_str()) {
        None => Command::hits(format, None),
        Some(None) => None,
        Some(site) => Command::hits(format, site),
    };
    let command = command.ok_or_else(|| {
        OperatorError::new("SITE is not a host name")
            .help("write a name of the site as in the configuration")
    })?;
    ask(typed, 1, &command, Some(Duration::from_secs(30)))
}

pub(super) fn purge(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let word = |nth| typed.operand_at(nth).and_then(|word| word.to_str());
    let words = word(0).zip(word(1));
    let command = words.and_then(|(site, path)| Command::purge(site, path));
    let command = command.ok_or_else(|| {
        OperatorError::new("SITE and PATH must be UTF-8, without line breaks")
            .help("for example: anthill purge example.org '/news/*'")
    })?;
    ask(typed, 2, &command, Some(Duration::from_secs(30)))
}

pub(super) fn manager(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    ask(
        typed,
        1,
        &Command::ManagerLogin,
        Some(Duration::from_secs(10)),
    )
}

pub(super) fn stop(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    // The drain takes up to the time set in the configuration, so the wait has no limit.
    ask(typed, 0, &Command::Stop, None)
}

/// Sends a command to the server of the configuration named by the nth operand, and prints the response.
pub(super) fn ask(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
    patience: Option<Duration>,
) -> Result<ExitCode, OperatorError> {
    print_response(&exchange_with(typed, nth, command, patience)?)
}

/// Response of a server.
pub(super) struct ServerResponse {
    /// Control socket of the server.
    path: PathBuf,
    /// First line `ok`, `error` or `ask`, and a text.
    pub(super) text: String,
}

/// Sends a command to the server of the configuration named by the nth operand, and returns the response.
pub(super) fn exchange_with(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
    patience: Option<Duration>,
) -> Result<ServerResponse, OperatorError> {
    let mut sockets = sockets(typed, nth)?;
    let (path, stream) = match connect(&sockets) {
        Err(error) if names_no_server(typed, nth) && changes_nothing(command) => {
            sockets = only_running_server(error)?;
            connect(&sockets)?
        }
        connected => connected?,
    };
    let answer = exchange(stream, command, patience).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "no response within the timeout".to_owned()
            }
            _ => reason(&error),
        };
        OperatorError::failure(format!("the server at {}: {why}", path.display()))
    })?;
    Ok(ServerResponse {
        path: path.to_owned(),
        text: answer,
    })
}

/// Returns true if the command line names neither a folder, a file nor a socket.
fn names_no_server(typed: &ParsedArguments, nth: usize) -> bool {
    typed.path_at(nth).is_none() && typed.path("control").is_none() && typed.path("state").is_none()
}

/// Returns true for a command that may go to a server of another folder, since the command only reads.
fn changes_nothing(command: &Command) -> bool {
    matches!(
        command,
        Command::Status(_) | Command::Requests(_) | Command::Metrics(_) | Command::History
    )
}

/// Returns the control socket of the only server that runs on this machine. `error` says that no server runs with the
/// configuration of the current folder.
fn only_running_server(error: OperatorError) -> Result<Vec<PathBuf>, OperatorError> {
    let servers = running_servers();
    match &servers[..] {
        [] => Err(error),
        // In a folder with a configuration the status of another server would pass for the status of this one.
        [server] if !Path::new(FILE_NAME).exists() => {
            let control = server.control.clone();
            let note = format!("(the server with the control socket {})", control.display());
            print_message(&note);
            Ok(vec![control])
        }
        _ => {
            let what = match servers.len() {
                1 => "a server runs on this machine, but not with".to_owned(),
                count => format!("{count} servers run on this machine, and none with"),
            };
            let configurations = configurations_of(&servers);
            let choices = servers.iter().zip(configurations).map(|(server, file)| {
                let control = server.control.display();
                match file {
                    Some(file) => format!("--control {control}  for {}", file.display()),
                    None => format!("--control {control}"),
                }
            });
            let choices = choices.collect::<Vec<_>>().join("\n  ");
            let what = format!("{what} the configuration of this folder");
            Err(OperatorError::failure(what).help(format!("name one of them:\n  {choices}")))
        }
    }
}

/// Returns the configuration of each running server that responds. All servers are asked before the first response is
/// awaited, so a server that doesn't respond takes no time from the next one.
fn configurations_of(servers: &[RunningServer]) -> Vec<Option<PathBuf>> {
    let until = Instant::now() + STATUS_PATIENCE;
    let command = Command::Status(StatusFormat::Json);
    let ask = |server: &RunningServer| {
        let mut stream = UnixStream::connect(&server.control)?;
        send(&mut stream, &command).map(|()| stream)
    };
    let asked: Vec<io::Result<UnixStream>> = servers.iter().map(ask).collect();
    let configuration = |(server, stream): (&RunningServer, io::Result<UnixStream>)| {
        let rest = until.saturating_duration_since(Instant::now());
        // The system refuses a timeout of zero.
        let rest = rest.max(Duration::from_millis(1));
        let status = receive(stream.ok()?, Some(rest)).ok()?;
        let (_, rest) = status.split_once("\"configuration\":\"")?;
        let (name, _) = rest.split_once('"')?;
        Some(server.folder.join(name))
    };
    servers.iter().zip(asked).map(configuration).collect()
}

/// Time for the status of a server. On a busy machine a response takes seconds.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);

/// Prints a response.
pub(super) fn print_response(response: &ServerResponse) -> Result<ExitCode, OperatorError> {
    let path = &response.path;
    // Names and paths of the operator's file may contain characters that a terminal obeys.
    let answer = visible_lines(&response.text);
    match answer.split_once('\n').unwrap_or((&answer, "")) {
        ("ok", text) => Ok(print_result(text)),
        ("error", text) => {
            print_message(text);
            Ok(ExitCode::FAILURE)
        }
        _ => Err(OperatorError::failure(format!(
            "the server at {} closed the connection without a response",
            path.display()
        ))),
    }
}

/// Returns the possible control sockets of the server of the configuration named by the nth operand.
fn sockets(typed: &ParsedArguments, nth: usize) -> Result<Vec<PathBuf>, OperatorError> {
    if let Some(control) = typed.path("control") {
        return Ok(vec![control]);
    }
    let overrides = Overrides {
        state: typed.path("state"),
        ..Overrides::default()
    };
    control_sockets(&ConfigSource::of(typed.path_at(nth))?, &overrides)
}

/// Response of a server that may not be running.
pub(super) enum ControlResponse {
    Answer(String),
    /// No server listens at the control socket.
    NoServer,
    /// The user may not access the path of the socket, so the client cannot find out whether a server
    /// listens.
    Closed(PathBuf),
}

/// Sends a command to the server of the configuration named by the nth operand, if the server is running.
pub(super) fn ask_if_running(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
) -> Result<ControlResponse, OperatorError> {
    use io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    let sockets = sockets(typed, nth)?;
    let mut closed = None;
    let mut open = None;
    for path in &sockets {
        match UnixStream::connect(path) {
            Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => {}
            Err(error) if error.kind() == PermissionDenied => closed = closed.or(Some(path)),
            tried => {
                open = Some((path, tried));
                break;
            }
        }
    }
    let Some((path, tried)) = open else {
        return Ok(closed.map_or(ControlResponse::NoServer, |path| {
            ControlResponse::Closed(path.clone())
        }));
    };
    let said = tried
        .and_then(|stream| exchange(stream, command, Some(Duration::from_secs(120))))
        .map_err(|error| {
            let what = format!("the server at {}: {}", path.display(), reason(&error));
            OperatorError::failure(what)
                .help("run the command as the server's user, or as root (sudo)")
        })?;
    match said.split_once('\n') {
        Some(("ok", text)) => Ok(ControlResponse::Answer(text.to_owned())),
        Some((_, text)) => {
            let text = text.trim_end().trim_start_matches("error: ");
            Err(OperatorError::failure(format!(
                "the running server refused the command: {text}"
            )))
        }
        None => Ok(ControlResponse::NoServer),
    }
}

/// Connects to the first socket with a listening server.
fn connect(sockets: &[PathBuf]) -> Result<(&Path, UnixStream), OperatorError> {
    let mut forbidden = None;
    for path in sockets {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok((path, stream)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                io::ErrorKind::PermissionDenied => forbidden = forbidden.or(Some(path)),
                _ => {
                    let what = format!("the control socket {}: {}", path.display(), reason(&error));
                    return Err(OperatorError::failure(what));
                }
            },
        }
    }
    // No socket has a listening server. A socket without access may belong to a server of another user.
    if let Some(path) = forbidden {
        let what = format!(
            "permission denied for the control socket {}",
            path.display()
        );
        let help = "if the server uses the socket, run the command as the server's user or as \
                    root (sudo)";
        return Err(OperatorError::failure(what).help(help));
    }
    let path = sockets
        .first()
        .map_or(Path::new("?"), PathBuf::as_path)
        .display();
    Err(OperatorError::failure(format!(
        "no anthill is running with this configuration (no control socket at {path})"
    ))
    .help(
        "start a server with `anthill serve`, or give another control socket with --control PATH",
    ))
}

fn exchange(
    mut stream: UnixStream,
    command: &Command,
    patience: Option<Duration>,
) -> io::Result<String> {
    send(&mut stream, command)?;
    receive(stream, patience)
}

fn send(stream: &mut UnixStream, command: &Command) -> io::Result<()> {
    stream.write_all(format!("{command}\n").as_bytes())
}

fn receive(stream: UnixStream, patience: Option<Duration>) -> io::Result<String> {
    stream.set_read_timeout(patience)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Maximum length of a response, 64 MiB: the metrics of 20,000 routes, or of 15,000 members.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    /// The first server responds after the second has been asked, as on a busy machine.
    #[test]
    fn all_running_servers_are_asked_before_a_response_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let servers = ["a", "b"].map(|name| RunningServer {
            control: folder.path().join(name),
            folder: folder.path().to_owned(),
        });
        let listeners = [0, 1].map(|nth: usize| UnixListener::bind(&servers[nth].control).unwrap());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let asked = listeners.map(|listener| {
                    let (stream, _) = listener.accept().unwrap();
                    let mut line = String::new();
                    BufReader::new(&stream).read_line(&mut line).unwrap();
                    stream
                });
                for (mut stream, name) in asked.into_iter().zip(["a.toml", "b.toml"]) {
                    let text = format!("ok\n{{\"configuration\":\"{name}\"}}");
                    stream.write_all(text.as_bytes()).unwrap();
                }
            });
            let expected = ["a.toml", "b.toml"].map(|name| Some(folder.path().join(name)));
            assert_eq!(configurations_of(&servers), expected);
        });
    }
}
