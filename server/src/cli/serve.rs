//! `anthill serve`: starts the server.

use crate::cli::shared_options::{CommandSpec, SERVE_OPTIONS, WHAT};
use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::{ConfigSource, OperatorError, Overrides};
use crate::control::{self, ServeOptions};

/// The command `serve`.
pub(super) const COMMAND: CommandSpec = CommandSpec {
    name: "serve",
    about: "Serve a folder or a configuration",
    details: &[
        "For a folder (by default the current folder), the server reads its anthill.toml. A \
         folder without the file is served over HTTPS on port 8443 with a self-signed \
         certificate, made once and kept; port 8080 redirects to HTTPS.",
        "Options override the configuration, also after a reload.",
        "SIGTERM and SIGINT stop the server after the requests under way are answered, a \
         second signal at once. SIGHUP reloads the configuration. SIGUSR1 reopens the log \
         files.",
    ],
    operands: &[WHAT],
    options: SERVE_OPTIONS,
    run,
};

pub(super) fn run(typed: &ParsedArguments) -> Result<ExitCode, OperatorError> {
    match control::serve(&options(typed)?)? {}
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
