//! Access logs of a World.

use super::resources::SharedResources;
use crate::base::log::{AccessLogFormat, LogDestination, Sink, Sinks};
use crate::config::{Config, LogFormat, LogTarget, OperatorError, Spanned};
use crate::world::AccessLog;

pub(super) fn access(
    config: &Config,
    to: &Spanned<LogTarget>,
    supplies: &SharedResources,
) -> Result<Option<AccessLog>, OperatorError> {
    let destination = destination(to.get_ref());
    let sink = open(config, to, &destination, &supplies.sinks)?;
    let format = match config.log.format {
        LogFormat::Combined => AccessLogFormat::Combined,
        LogFormat::Json => AccessLogFormat::Json,
    };
    Ok((!sink.is_off()).then_some(AccessLog { sink, format }))
}

/// Opens the destination of a log. The error points at the value in the configuration.
pub fn open(
    config: &Config,
    to: &Spanned<LogTarget>,
    destination: &LogDestination,
    sinks: &Sinks,
) -> Result<Sink, OperatorError> {
    sinks.open(destination).map_err(|error| {
        let what = format!("the log {destination} can't be opened: {error}");
        config.point(
            to.span(),
            what,
            "a file in a folder that the server may write to, \"-\" or \"off\"",
        )
    })
}

/// Converts a log target of the configuration to the destination for the log.
pub fn destination(to: &LogTarget) -> LogDestination {
    match to {
        LogTarget::Off => LogDestination::Off,
        LogTarget::Stdout => LogDestination::Stdout,
        LogTarget::Stderr => LogDestination::Stderr,
        LogTarget::File(path) => LogDestination::File(path.clone()),
    }
}
