//! Construction of a World from a configuration: all or nothing, and without side effects.

mod file_rules;
mod guards;
mod host;
mod ledger_entries;
mod limits;
mod logs;
mod member_tls;
mod redirects;
mod request_rules;
mod resources;
mod route_key;
mod route;
mod tls;
#[cfg(test)]
mod tests;

pub use host::{allow_list, read_users, release_rules};
pub use logs::{cannot_open, destination, open_access_logs};
pub use resources::{SharedResources, new_balancers, new_logins, new_pseudonym};

use crate::config::{self, Config, OperatorError};
use data_plane::ledger::change_tracker::SiteChangeTracker;
use data_plane::limits::Limits;
use data_plane::site::SecretPaths;
use data_plane::world::{Hosts, World};
use file_rules::headers;
use guards::guards_number;
use host::HostBuilder;
use ledger_entries::LedgerEntries;
use member_tls::MemberTlsClients;
use request_rules::cors_paths;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tls::{ListenerTls, challenges};
use wire::identity_fields::is_identity;

/// Builds a World without side effects: no log is opened, and the ledgers in `resources` stay as they are.
/// Before the World is served, [`open_access_logs`] opens the logs and [`World::register`] registers the
/// new entries. Sites of `previous` with the same rules are reused with all loaded files, since a watch
/// keeps the files up to date. `now` is the Unix time in seconds.
pub fn build(
    config: &Config,
    resources: &SharedResources,
    previous: Option<&World>,
    now: u64,
) -> Result<World, OperatorError> {
    let entries = LedgerEntries::new(config, resources);
    let member_tls = MemberTlsClients::new(config, previous);
    let secrets = SecretPaths::new(config.secret_paths());
    let server_access = entries.access();
    let identity_fields = identity_fields(config);
    let mut errors = Vec::new();
    let tls = ListenerTls::new(config, resources, previous, now).unwrap_or_else(|error| {
        errors.push(error);
        ListenerTls::default()
    });
    let quic = tls.public.as_ref().and_then(|tls| tls.quic());
    let h3_port = resources.h3_port.filter(|_| quic.is_some());
    // A mistake in one site does not hide the mistakes in further sites.
    let sites = config.sites.iter().enumerate();
    let hosts = OperatorError::collect(sites.map(|(at, site)| {
        let before = previous.and_then(|world| world.hosts.iter().nth(at));
        let builder = HostBuilder {
            config,
            site,
            resources,
            entries: &entries,
            member_tls: &member_tls,
            previous,
            h3_port,
            secrets: secrets.clone(),
            headers: Arc::new(headers(config, site, b"")?),
            identity_fields: Arc::clone(&identity_fields),
            varying_fields: varying_fields(config),
            cors_paths: cors_paths(site),
            tls: &tls,
            change_tracker: before.map_or_else(
                || SiteChangeTracker::new(&resources.change_tracker),
                |host| host.change_tracker.clone(),
            ),
        };
        Ok(Arc::new(builder.host(&server_access)?))
    }));
    let balancers = config.balancers.iter();
    let balancers =
        OperatorError::collect(balancers.map(|it| entries.balancer(it, &it.settings, &member_tls)));
    errors.extend(balancers.err());
    let hosts = hosts.unwrap_or_else(|error| {
        errors.push(error);
        Vec::new()
    });
    if let Some(error) = OperatorError::all(errors) {
        return Err(error);
    }
    let entries = entries.finish();
    Ok(World {
        generation: previous.map_or(1, |world| world.generation + 1),
        guards: guards_number(config),
        limits: limits(config),
        tls: tls.public,
        own_tls: tls.own,
        hosts: Hosts::new(hosts),
        access: server_access,
        logins: resources.logins.clone(),
        https_port: resources.https_port,
        h2c: config.server.h2c,
        challenges: challenges(config, resources),
        trust: allow_list(config, &config.server.trust)?,
        h3_port,
        backends: entries.backends,
        balancers: entries.balancers,
        tls_clients: member_tls.finish(),
        counts: entries.counts,
        routes: entries.routes,
        without_site: Arc::clone(resources.routes.without_site()),
        has_forward_auth: auth_servers(config).next().is_some(),
        identity_fields,
        manager: None,
    })
}

/// Returns every server for forward authentication, once for each route.
fn auth_servers(config: &Config) -> impl Iterator<Item = &config::AuthConfig> {
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(config::RouteConfig::auth_server)
}

/// Returns the fields that servers for forward authentication set. An application believes all fields of a server that it
/// knows, so the further fields of a known server are removed from requests as well.
fn identity_fields(config: &Config) -> Arc<[Box<str>]> {
    let mut names: Vec<Box<str>> = Vec::new();
    let copied = auth_servers(config).flat_map(|auth| &auth.copy);
    let related = auth_servers(config).flat_map(config::AuthConfig::related_fields);
    for name in copied.cloned().chain(related.map(Box::from)) {
        if !is_identity(name.as_bytes(), &names) {
            names.push(name);
        }
    }
    names.into()
}

/// Returns the fields that servers for forward authentication set beside the name of the user. The page cache knows pages
/// by the user alone.
fn varying_fields(config: &Config) -> Arc<[Box<str>]> {
    let further = auth_servers(config).flat_map(|auth| auth.copy.iter().skip(1));
    further.cloned().collect()
}

/// Returns the limits of the operator. The parser of requests learns if any route takes encoded slashes.
fn limits(config: &Config) -> Limits {
    let mut routes = config.sites.iter().flat_map(|site| &site.routes);
    let mut limits = config.server.limits.clone();
    limits.head.has_encoded_slashes = routes.any(|route| route.encoded_slash);
    limits
}

/// Returns the configuration without the roots to be created by the first deployment, without the folder `/`, and without the rules
/// that run files of such a root, so that a World can be built before the deployment.
pub(crate) fn without_missing_roots(mut config: Config) -> Config {
    let deployments = config.deployments();
    let to_come = |site: &config::SiteConfig| {
        let deployment = deployments.iter().find(|it| it.fills(site));
        let root = deployment.and_then(|it| it.root());
        // The check refuses the folder of the whole machine, and a walk through all of its files would take minutes.
        let is_machine = |root: &config::Spanned<PathBuf>| {
            let real = root.get_ref().canonicalize();
            real.is_ok_and(|real| real == Path::new("/"))
        };
        root.is_some_and(|root| !root.exists()) || site.root.as_ref().is_some_and(is_machine)
    };
    let to_come: Vec<bool> = config.sites.iter().map(to_come).collect();
    for (site, _) in config.sites.iter_mut().zip(to_come).filter(|(_, is)| *is) {
        site.root = None;
        for route in &mut site.routes {
            route.scripts = None;
        }
    }
    config
}
