//! The client of the control socket: `anthill reload`, `reopen`, `status`, `requests`, `metrics`, `balancer`, `manager`,
//! `purge` and `stop`.
//!
//! A request is one line. The response is `ok` or `error` on the first line, then text for the user, until
//! the server closes the connection.

use crate::cli::shared_options::{
    CLIENT_DETAILS, CONFIRMED_DETAILS, CONTROL, CommandSpec, JSON, STATE, WHAT, YES,
};
use cli::output::print_message;
use cli::output::print_result;
use cli::{CommandOption, Operand, ValueKind};
use std::io::{self, IsTerminal as _, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::confirmation::confirms;
use super::installed_service::InstalledService;
use super::server_choice::{ChosenServer, choose, is_missing, sockets};
use super::trusted_socket::connect;
use crate::admin::command::{Command, StatusFormat};
use crate::admin::metrics::MetricsFormat;
use crate::cli::arguments::ParsedArguments;
use crate::config::{OperatorError, reason};
use base::visible_text::visible_lines;

/// The command `reload`.
pub(super) const RELOAD: CommandSpec = CommandSpec {
    name: "reload",
    about: "Apply the changed configuration",
    details: &[
        "No connection is closed. The command returns when every worker uses the new \
         configuration. If the new configuration has a mistake, the command prints the \
         mistake, and the server keeps the old configuration.",
        CLIENT_DETAILS,
    ],
    operands: &[WHAT],
    options: &[STATE, CONTROL],
    run: reload,
};

/// The command `restart`.
pub(super) const RESTART: CommandSpec = CommandSpec {
    name: "restart",
    about: "Start the program anew in place of the running server, without an outage",
    details: &[
        "For a new version of the program, and for keys of the configuration that a reload can't change. The supervisor \
         (`serve --supervise`) starts the program, which takes over from the running server: no connection is refused or \
         cut. The running server serves its open connections to their end, for at most `restart_seconds`.",
        "The exit status is 1 if the new server is not ready within 30 s, or refuses the configuration; the running server \
         then stays in use.",
        CLIENT_DETAILS,
    ],
    operands: &[WHAT],
    options: &[STATE, CONTROL],
    run: restart,
};

/// The command `reopen`.
pub(super) const REOPEN: CommandSpec = CommandSpec {
    name: "reopen",
    about: "Open the log files again",
    details: &[
        "For logrotate and other programs that rename log files. The command returns when all log files are open; \
         lines of earlier responses are in the old files. The exit status is 1 if a file can't be opened, and \
         the old file stays in use.",
        CLIENT_DETAILS,
    ],
    operands: &[WHAT],
    options: &[STATE, CONTROL],
    run: reopen,
};

/// The command `status`.
pub(super) const STATUS: CommandSpec = CommandSpec {
    name: "status",
    about: "Print the state of the running server",
    details: &[
        "Prints what is wrong, then addresses, certificates, rates of the last minutes, responses of the sites by \
         class of the status, refusals by rule, and counters.",
        CLIENT_DETAILS,
    ],
    operands: &[WHAT],
    options: &[JSON, STATE, CONTROL],
    run: status,
};

/// The command `requests`.
pub(super) const REQUESTS: CommandSpec = CommandSpec {
    name: "requests",
    about: "List the requests under way, the oldest first",
    details: &[
        "Prints the oldest 100 requests without a complete response, with the age, the state, the client, the \
         path without the query, the site and the member of a balancer. Requests of the manager page are left out.",
        CLIENT_DETAILS,
    ],
    operands: &[WHAT],
    options: &[JSON, STATE, CONTROL],
    run: requests,
};

/// The command `metrics`.
pub(super) const METRICS: CommandSpec = CommandSpec {
    name: "metrics",
    about: "Print the metrics of the running server",
    details: &[
        "Prints the counters in the text format of Prometheus: requests by site, route, protocol \
         and status, latencies, members of balancers, certificates, memory.",
        CLIENT_DETAILS,
    ],
    operands: &[WHAT],
    options: &[
        CommandOption {
            long: "openmetrics",
            short: None,
            value: None,
            about: "Print the format OpenMetrics",
        },
        CommandOption {
            long: "history",
            short: None,
            value: None,
            about: "Print the counters of the last 20 minutes, every 5 s, as JSON",
        },
        STATE,
        CONTROL,
    ],
    run: metrics,
};

/// The command `manager`.
pub(super) const MANAGER: CommandSpec = CommandSpec {
    name: "manager",
    about: "Log in to the manager page",
    details: &[
        "login prints a URL that opens the manager page in a browser with the right to edit. The URL is valid \
         once, for 5 min; the login ends after 8 h, or with the server.",
        CLIENT_DETAILS,
    ],
    operands: &[
        Operand {
            name: "ACTION",
            required: true,
            values: ValueKind::Words(&["login"]),
        },
        WHAT,
    ],
    options: &[STATE, CONTROL],
    run: manager,
};

/// The command `purge`.
pub(super) const PURGE: CommandSpec = CommandSpec {
    name: "purge",
    about: "Remove pages from the page cache",
    details: &[
        "SITE is a name of the site as written in the configuration. PATH is a decoded path, \
         and covers every query of the path. A path with * at the end covers all paths with \
         the same beginning: anthill purge example.org '/news/*'",
        "Responses that handlers are producing at the same moment are not stored either.",
        CLIENT_DETAILS,
        CONFIRMED_DETAILS,
    ],
    operands: &[
        Operand {
            name: "SITE",
            required: true,
            values: ValueKind::Any,
        },
        Operand {
            name: "PATH",
            required: true,
            values: ValueKind::Any,
        },
        WHAT,
    ],
    options: &[YES, STATE, CONTROL],
    run: purge,
};

/// The command `stop`.
pub(super) const STOP: CommandSpec = CommandSpec {
    name: "stop",
    about: "Stop the running server",
    details: &[
        "Requests under way are answered first.",
        CLIENT_DETAILS,
        CONFIRMED_DETAILS,
    ],
    operands: &[WHAT],
    options: &[YES, STATE, CONTROL],
    run: stop,
};

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

pub(super) fn restart(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    ask(typed, 0, &Command::Restart, Some(Duration::from_secs(120)))
}

pub(super) fn purge(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    let word = |nth| typed.operand_at(nth).and_then(|word| word.to_str());
    let words = word(0).zip(word(1));
    let command = words.and_then(|(site, path)| Command::purge(site, path));
    let command = command.ok_or_else(|| {
        OperatorError::new("SITE and PATH must be UTF-8, without line breaks")
            .help("for example: anthill purge example.org '/news/*'")
    })?;
    let patience = Some(Duration::from_secs(30));
    ask_if_confirmed(typed, 2, &command, patience, "nothing was removed")
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
    ask_if_confirmed(typed, 0, &Command::Stop, None, "the server goes on")
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

/// Sends a command again, which the operator has confirmed, and prints the response. The server was named before.
pub(super) fn ask_again(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
    patience: Option<Duration>,
) -> Result<ExitCode, OperatorError> {
    print_response(&exchange_on(choose(typed, nth)?, command, patience)?)
}

/// Response of a server.
pub(super) struct ServerResponse {
    /// Control socket of the server.
    path: PathBuf,
    /// First line `ok`, `error` or `ask`, and a text.
    pub(super) text: String,
}

impl ServerResponse {
    /// Returns true if the server carried the command out.
    pub(super) fn is_ok(&self) -> bool {
        self.text.starts_with("ok\n")
    }
}

/// Sends a command to the server of the configuration named by the nth operand, and returns the response. A message names
/// a server that was found on the machine.
pub(super) fn exchange_with(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
    patience: Option<Duration>,
) -> Result<ServerResponse, OperatorError> {
    let server = choose(typed, nth)?;
    if let Some(found) = &server.found {
        print_message(&format!("(the server of {})", found.shown()));
    }
    exchange_on(server, command, patience)
}

/// Sends a command as [`exchange_with`] does. Returns the note about a server that was found on the machine, for the caller to
/// print.
pub(super) fn exchange_quietly(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
    patience: Option<Duration>,
) -> Result<(ServerResponse, Option<String>), OperatorError> {
    let server = choose(typed, nth)?;
    let found = server.found.as_ref();
    let note = found.map(|found| format!("(the server of {})", found.shown()));
    Ok((exchange_on(server, command, patience)?, note))
}

fn exchange_on(
    server: ChosenServer,
    command: &Command,
    patience: Option<Duration>,
) -> Result<ServerResponse, OperatorError> {
    let ChosenServer { path, stream, .. } = server;
    let answer = exchange(stream, command, patience).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                "no response within the timeout".to_owned()
            }
            _ => reason(&error),
        };
        OperatorError::failure(format!("the server at {}: {why}", path.display()))
    })?;
    Ok(ServerResponse { path, text: answer })
}

/// Sends a command that takes something away. If neither the command line nor the folder names the server, the operator
/// has to confirm the command. `declined` says what stays.
fn ask_if_confirmed(
    typed: &ParsedArguments,
    nth: usize,
    command: &Command,
    patience: Option<Duration>,
    declined: &str,
) -> Result<ExitCode, OperatorError> {
    let server = choose(typed, nth)?;
    if let Some(found) = &server.found {
        let (name, shown) = (typed.command_name(), found.shown());
        // A service manager starts a server again that stopped by itself.
        let service = found.service().filter(|_| *command == Command::Stop);
        let lasting = service.and_then(|service| service.lasting_stop_command());
        let warning = lasting.map_or_else(String::new, |command| {
            format!("\nthe service starts again; to stop the service: {command}")
        });
        let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
        if typed.has("yes") {
            print_message(&format!("(the server of {shown}){warning}"));
        } else if !is_interactive {
            let what = format!(
                "`anthill {name}` would go to the server of {shown}, which the command line does not name"
            );
            let help = format!(
                "confirm with --yes, or name the server: --control {}{warning}",
                server.path.display()
            );
            return Err(OperatorError::failure(what).help(help));
        } else if !confirms(&format!(
            "`anthill {name}` goes to the server of {shown}.{warning}"
        )) {
            print_message(declined);
            return Ok(ExitCode::FAILURE);
        }
    }
    print_response(&exchange_on(server, command, patience)?)
}

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
    let (sockets, trusted) = sockets(typed, nth, &InstalledService::all())?;
    let mut closed = None;
    let mut open = None;
    for socket in &sockets {
        let path = &socket.path;
        match connect(socket, &trusted) {
            Err(error) if is_missing(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                closed = closed.or(Some(path));
            }
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

fn exchange(
    mut stream: UnixStream,
    command: &Command,
    patience: Option<Duration>,
) -> io::Result<String> {
    stream.write_all(format!("{command}\n").as_bytes())?;
    stream.set_read_timeout(patience)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Maximum length of a response, 64 MiB: the metrics of 20,000 routes, or of 15,000 members.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
