//! The control plane: what `anthill serve` and `anthill check` do.

mod rebuild;
mod deployments;
mod deployment_events;
mod banner;
mod listeners;
mod plane;
mod publish;
mod socket;
mod startup;
mod status;
mod watch;

#[cfg(test)]
mod tests;

use crate::base::clock;
use crate::base::fair_share::RefusalCounters;
use crate::base::log::{ErrorLog, Sinks};
use crate::cache::PageCache;
use crate::config::{self, Config, ConfigSource, OperatorError, Overrides};
use crate::control::startup::logins;
use crate::handler::call::process::ProcessRunner;
use crate::handler::git::browse::limiter::BrowseLimiter;
use crate::handler::git::post_receive::PushNotifier;
use crate::site::ContentBudget;
use crate::tls::{SelfSigned, TicketKeys};
use crate::upstream::Backends;
use crate::world::build::{self, SharedResources};
use log::LevelFilter;
use plane::ControlPlane;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

/// What the command line asked to serve.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The configuration file, or the folder without one.
    pub chosen: ConfigSource,
    /// What options change in it, also after a reload.
    pub overrides: Overrides,
}

/// What `anthill check` found, when nothing is wrong.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// One line for standard output.
    pub summary: String,
    /// What works but probably isn't meant.
    pub warnings: Vec<String>,
    /// Which certificates would come by themselves, and which not; which branches become sites.
    pub notes: Vec<String>,
}

/// Serves until told to stop; ends the process after everything was drained.
pub fn serve(options: &ServeOptions) -> Result<Infallible, OperatorError> {
    let error_log = ErrorLog::install(LevelFilter::Info)
        .map_err(|error| OperatorError::failure(format!("the error log: {error}")))?;
    // The words of a panic go where the operator looks, and wait for no pipe.
    std::panic::set_hook(Box::new(|panic| {
        log::error!("{}", panic.to_string().replace('\n', " "));
    }));
    let plane = ControlPlane::start(options.chosen.clone(), options.overrides.clone(), error_log);
    let Err(error) = plane.and_then(ControlPlane::run);
    // What is left to be said of an error stands below what led to it.
    log::logger().flush();
    Err(error)
}

/// Tests a configuration without serving it: everything is read and built as for serving, but no
/// address is bound and nothing is written.
pub fn check(options: &ServeOptions) -> Result<CheckReport, OperatorError> {
    let config = options.chosen.read(&options.overrides)?;
    let mut warnings = config::check(&config)?;
    let now = clock::unix_seconds_now();
    let made = |error: crate::tls::TlsError| OperatorError::failure(error.to_string());
    let budget = Arc::new(ContentBudget::new(0));
    let refusals = Arc::<RefusalCounters>::default();
    let supplies = SharedResources {
        hits: Arc::default(),
        cache: Arc::new(PageCache::new(Instant::now(), budget.clone())),
        budget,
        sinks: Arc::new(Sinks::default()),
        logins: logins(&refusals)?,
        tickets: Some(Arc::new(TicketKeys::in_memory(now).map_err(made)?)),
        self_signed: Some(Arc::new(SelfSigned::in_memory(&[], now).map_err(made)?)),
        https_port: config.https_port(),
        challenges: Arc::default(),
        h3_port: None,
        programs: Arc::new(ProcessRunner::new(
            config.server.limits.scripts,
            config.server.state.get_ref(),
            &refusals,
        )),
        readers: Arc::new(BrowseLimiter::new(config.server.limits.scripts, &refusals)),
        backends: Arc::new(Backends::new(&refusals)),
        pushes: PushNotifier::new().0,
        lag: Arc::default(),
        refusals,
    };
    let world = build::build(&build::without_side_effects(&config), &supplies, None, now)?;
    warnings.extend(world.tls.iter().flat_map(|tls| tls.warnings().to_vec()));
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
        "{} is right: {} {sites}, for {}",
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
    Ok(CheckReport {
        summary,
        warnings,
        notes,
    })
}

/// What would be asked for, from whom.
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
