//! `anthill check`: the mistakes and the warnings of a configuration, without serving.

use super::banner::shown_names;
use super::releases;
use super::startup::new_manager;
use crate::build::{self, SharedResources};
use crate::config::{
    self, ChallengeType, Config, ConfigSource, OperatorError, Overrides, RouteConfig,
    ScriptsConfig, TargetConfig,
};
use crate::manager::manager_handler;
use base::{clock, sys};
use std::path::PathBuf;
use std::time::Instant;

/// Result of `anthill check`.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// All mistakes; `None` for a valid configuration.
    pub error: Option<OperatorError>,
    /// Summary of a valid configuration for standard output, one line.
    pub summary: String,
    /// Warnings about valid settings that are probably unintended.
    pub warnings: Vec<OperatorError>,
    /// Certificates that the server would request, names without a managed certificate, and sites deployed
    /// from branches.
    pub notes: Vec<String>,
    /// Routes of each site, one a line.
    pub routes: Vec<String>,
}

/// Returns the warnings about a configuration, or all mistakes. The mistakes that only the construction of a World
/// finds are added to other mistakes; alone, they appear when the World is built.
pub(super) fn checked(config: &Config) -> Result<Vec<OperatorError>, OperatorError> {
    let (mut errors, mut warnings) = config::inspect(config);
    warnings.extend(scripts_of_root(config));
    if errors.is_empty() {
        return Ok(warnings);
    }
    let now = clock::unix_seconds_now();
    let resources = SharedResources::in_memory(config, now)?;
    let config = build::without_missing_roots(config.clone());
    errors.extend(build::build(&config, &resources, None, now).err());
    OperatorError::all(errors).map_or(Ok(warnings), Err)
}

/// Checks the configuration of a source.
pub(super) fn check(
    chosen: &ConfigSource,
    overrides: &Overrides,
) -> Result<CheckReport, OperatorError> {
    let config = chosen.read(overrides)?;
    let (mut errors, mut warnings) = config::inspect(&config);
    warnings.extend(scripts_of_root(&config));
    let now = clock::unix_seconds_now();
    let resources = SharedResources::in_memory(&config, now)?;
    let names: Vec<&str> = config
        .sites
        .iter()
        .map(|site| match site.name.as_str() {
            "*" => "any name",
            name => name,
        })
        .collect();
    let sites = if names.len() == 1 { "site" } else { "sites" };
    let all_names: usize = config.sites.iter().map(|it| it.all_names().count()).sum();
    // A mistyped folder would otherwise pass for a configuration.
    let validity = match config.path {
        Some(_) => "is valid".to_owned(),
        None => format!(
            "has no {}, and is valid as a folder to serve",
            config::FILE_NAME
        ),
    };
    let summary = format!(
        "{} {validity}: {} {sites}, for {}",
        config.shown,
        names.len(),
        shown_names(&names, all_names)
    );
    let (mut notes, unmanaged) = certificates(&config);
    notes.extend(config.deployments().iter().map(|it| {
        let (deploy, name) = (it.deploy, &it.site.name);
        let (branch, repository) = (deploy.branch.get_ref(), deploy.repository.get_ref());
        format!("{name} is deployed from {branch} of {repository}")
    }));
    let routes = super::explain::route_lines(&config);
    let (manager, _) = new_manager(Instant::now())?;
    errors.extend(manager_handler(&config, &resources.logins, &manager).err());
    let config = build::without_missing_roots(config);
    match build::build(&config, &resources, None, now) {
        Ok(world) => {
            warnings.extend(unmanaged.into_iter().filter(|_| errors.is_empty()));
            let tls = world.all_tls().flat_map(|tls| tls.warnings());
            warnings.extend(tls.map(|warning| at_certificate(&config, warning)));
            let releases = releases::warnings(&world).into_iter();
            warnings.extend(releases.map(OperatorError::new));
            warnings.extend(world.doubtful_files().iter().map(|files| {
                let (what, help) = files.text();
                OperatorError::new(what).help(help)
            }));
        }
        Err(error) => errors.push(error),
    }
    let hide = |text| config.source.hide_variables(text);
    Ok(CheckReport {
        error: OperatorError::all(errors),
        summary: hide(summary),
        warnings,
        notes: notes.into_iter().map(hide).collect(),
        routes: routes.into_iter().map(hide).collect(),
    })
}

/// Returns a warning if programs for requests would run as root: a fault in one of them gives the whole machine away.
fn scripts_of_root(config: &Config) -> Option<OperatorError> {
    let mut routes = config.sites.iter().flat_map(|site| &site.routes);
    let runs_programs = |route: &RouteConfig| {
        matches!(
            route.target,
            Some(TargetConfig::Cgi(_) | TargetConfig::Git(_))
        ) || matches!(route.scripts, Some(ScriptsConfig::Cgi { .. }))
    };
    (config.server.user.is_none() && sys::is_root() && routes.any(runs_programs)).then(|| {
        OperatorError::new("a server started by root runs its scripts, git and hooks as root")
            .help("name an account with `user` in [server]")
    })
}

/// Returns a warning about a certificate at the certificate of the first site with the file.
fn at_certificate(config: &Config, warning: &str) -> OperatorError {
    let mut files = config.sites.iter().flat_map(|site| &site.certificate);
    let is_named = |file: &&config::Spanned<PathBuf>| {
        warning.starts_with(&format!("{}:", file.get_ref().display()))
    };
    let file = files.find(is_named);
    let help = if warning.contains("does not name") {
        "write the path of a certificate for the name, or remove the name from `names`"
    } else if warning.contains("expired") || warning.contains("ends soon") {
        "put a renewed certificate in the place of the file, or remove `certificate` for an automatic one"
    } else if warning.contains("alternative name") {
        "request the certificate with the names of the site as subject alternative names"
    } else {
        ""
    };
    config.point(file.map_or(0..0, config::Spanned::span), warning, help)
}

/// Returns a note if the authority connects to a port on which the server does not listen: a router or a container has to
/// forward the port.
fn other_ports(config: &Config, challenge: Option<ChallengeType>) -> Option<String> {
    let ports = |secure: bool| -> Vec<u16> {
        let server = &config.server;
        let addresses = if secure { &server.https } else { &server.http };
        addresses
            .iter()
            .map(|it| it.get_ref().address.port())
            .collect()
    };
    let (http, https) = (ports(false), ports(true));
    let is_missing = |port: u16, ports: &[u16]| !ports.is_empty() && !ports.contains(&port);
    let by_http = challenge != Some(ChallengeType::TlsAlpn01) && !http.is_empty();
    let (port, own) = match challenge {
        Some(ChallengeType::Dns01) => return None,
        _ if by_http && is_missing(80, &http) => (80, http[0]),
        _ if !by_http && is_missing(443, &https) => (443, https[0]),
        _ => return None,
    };
    Some(format!(
        "the authority connects to port {port} of each name, and the server listens on {own}: the router or container must \
         forward {port} to {own}, or no certificate comes"
    ))
}

/// Describes the certificates that the server would request, with their certificate authority. Without any
/// certificate to request, the reasons are warnings.
fn certificates(config: &Config) -> (Vec<String>, Vec<OperatorError>) {
    let Some(acme) = &config.tls.acme else {
        return (Vec::new(), Vec::new());
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
    if !wanted.is_empty() {
        notes.extend(other_ports(config, acme.challenge));
        if acme.directory.contains("staging") {
            notes.push(format!(
                "{} is a directory for tests, and browsers refuse its certificates: remove `directory` of `acme` afterwards",
                acme.directory
            ));
        }
    }
    let mut warnings = Vec::new();
    for (name, why) in config.unmanaged_names() {
        let what = format!("no certificate is asked for `{name}`: {why}");
        if !wanted.is_empty() {
            notes.push(what);
            continue;
        }
        let mut names = config.sites.iter().flat_map(config::SiteConfig::all_names);
        let place = names.find(|it| *it.get_ref() == name);
        let help = format!(
            "`{name}` keeps its self-signed certificate; add a public name to `names`, or set `certificate`"
        );
        warnings.push(config.point(place.map_or(0..0, config::Spanned::span), what, help));
    }
    (notes, warnings)
}
