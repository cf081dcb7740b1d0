//! `anthill serve`: starts the server.

use crate::cli::shared_options::{
    CONTROL, CommandSpec, HTTP, HTTPS, LISTING, LOG, STATE, USER, WHAT, WORKERS,
};
use cli::CommandOption;
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::{ConfigSource, OperatorError, Overrides};
use crate::control::{self, ServeOptions};
#[cfg(feature = "restart")]
use crate::supervisor;

/// The command `serve`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "serve",
    about: "Serve a folder or a configuration",
    details: &[
        "For a folder (by default the current folder), the server reads its anthill.toml. A \
         folder without the file is served over HTTPS on port 8443 with a self-signed \
         certificate, made once and kept; port 8080 redirects to HTTPS.",
        "Options override the configuration, also after a reload.",
        "With --supervise, a small process starts the server, and starts it again when the server \
         has ended or hangs. The process keeps the listening sockets, so connections wait \
         meanwhile.",
        "With --replace, the server takes over from the running server of the same configuration, \
         and no connection is refused or cut. The running server serves its open connections to their end, and stays in use \
         if the configuration has a mistake. Only root may replace a server that starts programs. \
         A server with a supervisor is replaced by `anthill restart`.",
        "SIGTERM and SIGINT stop the server after the requests under way are answered, a \
         second signal at once. SIGHUP reloads the configuration. SIGUSR1 reopens the log \
         files.",
    ],
    operands: &[WHAT],
    options: &[
        REPLACE, SUPERVISE, HTTPS, HTTP, LOG, WORKERS, LISTING, USER, STATE, CONTROL,
    ],
    run,
};

/// Name of the option for the supervisor.
pub(super) const SUPERVISE_NAME: &str = "supervise";
const SUPERVISE: CommandOption = CommandOption {
    long: SUPERVISE_NAME,
    short: None,
    value: None,
    about: "Start the server again when the server has ended or hangs",
};

/// Name of the option for a successor.
const REPLACE_NAME: &str = "replace";
const REPLACE: CommandOption = CommandOption {
    long: REPLACE_NAME,
    short: None,
    value: None,
    about: "Take over from the running server without an outage",
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    if typed.has(SUPERVISE_NAME) {
        return supervise();
    }
    match control::serve(&options(typed)?, typed.has(REPLACE_NAME))? {}
}

/// Runs the supervisor with the server that the other arguments of the process describe.
#[cfg(feature = "restart")]
fn supervise() -> Result<ExitCode, OperatorError> {
    let failed = |error| OperatorError::failure(format!("the supervisor can't start: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut is_option = true;
    let arguments = std::env::args_os().skip(1).filter(|argument| {
        is_option &= argument != "--";
        !(is_option && argument == "--supervise")
    });
    let status = supervisor::supervise(program, arguments.collect()).map_err(failed)?;
    Ok(ExitCode::from(status))
}

#[cfg(not(feature = "restart"))]
fn supervise() -> Result<ExitCode, OperatorError> {
    Err(OperatorError::new("this build has no supervisor")
        .help("leave out --supervise, or install a build with the supervisor"))
}

/// Converts the arguments of `serve` and `check` into options of the server.
pub(super) fn options(typed: &ParsedArguments) -> Result<ServeOptions, OperatorError> {
    Ok(ServeOptions {
        overrides: overrides(typed)?,
        chosen: ConfigSource::of(typed.path_at(0))?,
    })
}

/// Returns the options that override the configuration.
pub(super) fn overrides(typed: &ParsedArguments) -> Result<Overrides, OperatorError> {
    let workers = match typed.text("workers")? {
        Some(text) if text != "auto" => {
            let number = text
                .parse()
                .ok()
                .filter(|number| (1..=1_024).contains(number));
            Some(number.ok_or_else(|| {
                OperatorError::new(format!("--workers: `{text}` is not a number of threads"))
                    .help("write a number between 1 and 1024, or auto for one thread per core")
            })?)
        }
        _ => None,
    };
    Ok(Overrides {
        https: typed.texts("https")?,
        http: typed.texts("http")?,
        state: typed.path("state"),
        control: typed.path("control"),
        workers,
        log: typed.last("log").map(Into::into),
        user: typed.text("user")?,
        listing: typed.has("listing"),
        settled: None,
    })
}
