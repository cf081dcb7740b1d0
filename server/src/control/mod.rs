//! The control plane: the implementation of `anthill serve` and `anthill check`.

mod rebuild;
mod deployments;
mod deployment_events;
mod edits;
mod explain;
mod banner;
mod check;
mod heartbeats;
mod kept_sockets;
pub(crate) mod limits;
mod listeners;
mod liveness;
mod manager_requests;
mod member_edit;
mod metrics;
mod plane;
#[cfg(feature = "releases")]
mod previews;
mod publish;
mod releases;
mod route_text;
mod scans;
mod front;
mod socket;
mod startup;
mod status;
mod takeover;
mod watch;

#[cfg(test)]
mod tests;

use crate::config::{ConfigSource, OperatorError, Overrides};
use base::log::ErrorLog;
pub use check::CheckReport;
pub(crate) use explain::Question;
use log::LevelFilter;
use plane::ControlPlane;
use std::convert::Infallible;

/// Options of `anthill serve` and `anthill check`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Configuration file, or the served folder without a configuration file.
    pub chosen: ConfigSource,
    /// Values that options of the command line override, also after a reload.
    pub overrides: Overrides,
}

/// Serves until the server is stopped, and ends the process after the drain. A successor takes over from the running server
/// of the configuration.
pub(crate) fn serve(
    options: &ServeOptions,
    is_successor: bool,
) -> Result<Infallible, OperatorError> {
    let error_log = ErrorLog::install(LevelFilter::Info)
        .map_err(|error| OperatorError::failure(format!("the error log: {error}")))?;
    // The message of a panic goes to the error log, and never waits for a pipe.
    std::panic::set_hook(Box::new(|panic| {
        log::error!("{}", panic.to_string().replace('\n', " "));
    }));
    let (chosen, overrides) = (options.chosen.clone(), options.overrides.clone());
    let plane = ControlPlane::start(chosen, overrides, error_log, is_successor);
    let Err(error) = plane.and_then(ControlPlane::run);
    // The caller prints the error after the log lines that led to the error.
    log::logger().flush();
    Err(error)
}

/// Checks a configuration without serving. Reads and builds everything as for serving, but binds no address
/// and writes no file.
pub fn check(options: &ServeOptions) -> Result<CheckReport, OperatorError> {
    check::check(&options.chosen, &options.overrides)
}

/// Explains what the server would do with a request, as lines of text.
///
/// # Errors
/// A mistake in the configuration, or a request that no client could send.
pub(crate) fn explained(
    options: &ServeOptions,
    question: &Question,
) -> Result<String, OperatorError> {
    explain::explained(&options.chosen, &options.overrides, question)
}
