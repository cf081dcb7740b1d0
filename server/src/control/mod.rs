//! The control plane: the implementation of `anthill serve` and `anthill check`.

mod rebuild;
mod deployments;
mod deployment_events;
mod edits;
mod banner;
mod heartbeats;
mod listeners;
mod manager_requests;
mod member_edit;
mod metrics;
mod plane;
mod previews;
mod publish;
mod releases;
mod socket;
mod startup;
mod status;
mod watch;

#[cfg(test)]
mod tests;

use crate::base::clock;
use crate::base::log::ErrorLog;
use crate::build::{self, SharedResources};
use crate::config::{self, Config, ConfigSource, OperatorError, Overrides};
use crate::manager::manager_handler;
use log::LevelFilter;
use plane::ControlPlane;
use startup::new_manager;
use std::convert::Infallible;
use std::time::Instant;

/// Options of `anthill serve` and `anthill check`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Configuration file, or the served folder without a configuration file.
    pub chosen: ConfigSource,
    /// Values that options of the command line override, also after a reload.
    pub overrides: Overrides,
}

/// Result of `anthill check` for a valid configuration.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Summary for standard output, one line.
    pub summary: String,
    /// Warnings about valid settings that are probably unintended.
    pub warnings: Vec<String>,
    /// Certificates that the server would request, names without a managed certificate, and sites deployed
    /// from branches.
    pub notes: Vec<String>,
}

/// Serves until the server is stopped, and ends the process after the drain.
pub fn serve(options: &ServeOptions) -> Result<Infallible, OperatorError> {
    let error_log = ErrorLog::install(LevelFilter::Info)
        .map_err(|error| OperatorError::failure(format!("the error log: {error}")))?;
    // The message of a panic goes to the error log, and never waits for a pipe.
    std::panic::set_hook(Box::new(|panic| {
        log::error!("{}", panic.to_string().replace('\n', " "));
    }));
    let plane = ControlPlane::start(options.chosen.clone(), options.overrides.clone(), error_log);
    let Err(error) = plane.and_then(ControlPlane::run);
    // The caller prints the error after the log lines that led to the error.
    log::logger().flush();
    Err(error)
}

/// Checks a configuration without serving. Reads and builds everything as for serving, but binds no address
/// and writes no file.
pub fn check(options: &ServeOptions) -> Result<CheckReport, OperatorError> {
    let config = options.chosen.read(&options.overrides)?;
    let mut warnings = config::check(&config)?;
    let now = clock::unix_seconds_now();
    let supplies = SharedResources::in_memory(&config, now)?;
    let names: Vec<&str> = config
        .sites
        .iter()
        .map(|site| match site.names[0].get_ref().as_str() {
            "*" => "any name",
            name => name,
        })
        .collect();
    let sites = if names.len() == 1 { "site" } else { "sites" };
    let summary = format!(
        "{} is valid: {} {sites}, for {}",
        config.shown,
        names.len(),
        names.join(", ")
    );
    let mut notes = certificates(&config);
    notes.extend(config.deployments().iter().map(|it| {
        let (deploy, name) = (it.deploy, it.site.names[0].get_ref());
        let (branch, repository) = (deploy.branch.get_ref(), deploy.repository.get_ref());
        format!("{name} is deployed from {branch} of {repository}")
    }));
    let (manager, _) = new_manager(Instant::now())?;
    manager_handler(&config, &supplies.logins, &manager)?;
    let world = build::build(&build::without_missing_roots(config), &supplies, None, now)?;
    warnings.extend(world.tls.iter().flat_map(|tls| tls.warnings().to_vec()));
    warnings.extend(releases::warnings(&world));
    Ok(CheckReport {
        summary,
        warnings,
        notes,
    })
}

/// Describes the certificates that the server would request, with their certificate authority.
fn certificates(config: &Config) -> Vec<String> {
    let Some(acme) = &config.tls.acme else {
        return Vec::new();
    };
    let how = match (acme.challenge, config.server.http.is_empty()) {
        (Some(challenge), _) => challenge.name(),
        (None, true) => "tls-alpn-01",
        (None, false) => "http-01, else tls-alpn-01",
    };
    let wanted = config.managed_certificates();
    let mut notes: Vec<String> = wanted
        .iter()
        .map(|wanted| {
            let names = wanted.names.join(", ");
            format!("certificate from {} for {names}, by {how}", acme.directory)
        })
        .collect();
    for (name, why) in config.unmanaged_names() {
        notes.push(format!("no certificate is asked for `{name}`: {why}"));
    }
    notes
}
