//! `anthill serve`: starts the server.

use std::process::ExitCode;

use crate::cli::arguments::ParsedArguments;
use crate::config::{ConfigSource, OperatorError, Overrides};
use crate::control::{self, ServeOptions};

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
