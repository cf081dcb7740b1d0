//! Destinations of logs, and the opening of a World's access logs.

use crate::config::{Config, LogTarget, OperatorError, Spanned};
use base::log::{LogDestination, Sinks};
use data_plane::world::World;
use std::io;
use std::iter::once;

/// Opens the access logs of a World built from `config`. The caller opens the logs when the World is about
/// to be served. The error points at the value in the configuration.
pub fn open_access_logs(
    world: &World,
    config: &Config,
    sinks: &Sinks,
) -> Result<(), OperatorError> {
    let sites = config.sites.iter().zip(world.hosts.iter());
    let sites = sites.filter_map(|(site, host)| Some((site.log.access.as_ref()?, &host.access)));
    for (to, log) in once((&config.log.access, &world.access)).chain(sites) {
        if let Some(log) = log {
            let opened = sinks.open_new(&log.sink);
            opened.map_err(|error| cannot_open(config, to, &error))?;
        }
    }
    Ok(())
}

/// Returns the error for a log that can't be opened, pointing at the value in the configuration.
pub fn cannot_open(config: &Config, to: &Spanned<LogTarget>, error: &io::Error) -> OperatorError {
    let what = format!(
        "the log {} can't be opened: {error}",
        destination(to.get_ref())
    );
    let help = "a file in a folder that the server may write to, \"-\" or \"off\"";
    config.point(to.span(), what, help)
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
