//! Entries of the process-wide ledgers for a World under construction: log sinks, backends, balancers, hit counts
//! and counters of routes.

use super::logs::destination;
use super::member_tls::MemberTlsClients;
use super::resources::SharedResources;
use crate::config::{self, Config, LogTarget, OperatorError, SiteLogConfig, Spanned};
use balancer::settings::BalancerSettings;
use base::clock::monotonic_ms;
use base::log::Sink;
use data_plane::hits::SiteHits;
use data_plane::ledger::route_counters::RouteCounters;
use data_plane::upstream::Balancer;
use data_plane::upstream::{Backend, BackendAddress, BackendRoute, BalancerPlan, ReusePolicy};
use data_plane::world::{AccessLog, BackendPlan, SiteCounts};
use std::cell::RefCell;
use std::sync::Arc;

/// Log sinks, backends, hit counts and counters of routes for a World under construction, each once. Registered entries are
/// reused. New entries stay out of the ledgers until the World is served, so a refused configuration leaves
/// no entry behind.
pub(super) struct LedgerEntries<'b> {
    config: &'b Config,
    resources: &'b SharedResources,
    sinks: RefCell<Vec<Sink>>,
    backends: RefCell<Vec<BackendPlan>>,
    balancers: RefCell<Vec<BalancerPlan>>,
    counts: RefCell<Vec<SiteCounts>>,
    routes: RefCell<Vec<Arc<RouteCounters>>>,
}

/// Entries of a complete World.
pub(super) struct WorldEntries {
    pub(super) backends: Vec<BackendPlan>,
    pub(super) balancers: Vec<BalancerPlan>,
    pub(super) counts: Vec<SiteCounts>,
    pub(super) routes: Vec<Arc<RouteCounters>>,
}

impl<'b> LedgerEntries<'b> {
    /// Returns no entries.
    pub(super) fn new(config: &'b Config, resources: &'b SharedResources) -> LedgerEntries<'b> {
        LedgerEntries {
            config,
            resources,
            sinks: RefCell::default(),
            backends: RefCell::default(),
            balancers: RefCell::default(),
            counts: RefCell::default(),
            routes: RefCell::default(),
        }
    }

    /// Returns the access log of the server; `None` for no log.
    pub(super) fn access(&self) -> Option<AccessLog> {
        let log = &self.config.log;
        let sink = self.sink(&log.access);
        (!sink.is_off()).then(|| AccessLog {
            sink,
            format: log.format,
            skip: log.skip.as_slice().into(),
        })
    }

    /// Returns the access log of a site, with the settings of the server where the site has none; `None` for no log.
    pub(super) fn site_access(
        &self,
        log: &SiteLogConfig,
        server: &Option<AccessLog>,
    ) -> Option<AccessLog> {
        let sink = match &log.access {
            Some(access) => self.sink(access),
            None => server.as_ref()?.sink.clone(),
        };
        if sink.is_off() {
            return None;
        }
        let skip = match (&log.skip, server) {
            (None, Some(server)) => Arc::clone(&server.skip),
            (rules, _) => rules
                .as_ref()
                .unwrap_or(&self.config.log.skip)
                .as_slice()
                .into(),
        };
        let format = log.format.unwrap_or(self.config.log.format);
        Some(AccessLog { sink, format, skip })
    }

    fn sink(&self, to: &Spanned<LogTarget>) -> Sink {
        let mut sinks = self.sinks.borrow_mut();
        let destination = destination(to.get_ref());
        let sink = self.resources.sinks.find_or_new(&destination, &sinks);
        sinks.push(sink.clone());
        sink
    }

    /// Returns the backend of a route. All routes to a backend share its connections, so routes with
    /// different values of `keep` are refused.
    pub(super) fn backend(
        &self,
        backend: &config::BackendConfig,
        route: BackendRoute,
    ) -> Result<Arc<Backend>, OperatorError> {
        let mut all = self.backends.borrow_mut();
        let keep = ReusePolicy::from_config(backend.keep);
        let address = address(&backend.address);
        let mut plans = all.iter_mut();
        let Some(known) = plans.find(|it| it.backend.address == address) else {
            let found = self.resources.backends.find_or_new(&address, keep);
            all.push(BackendPlan {
                backend: Arc::clone(&found),
                keep,
                routes: vec![route],
            });
            return Ok(found);
        };
        if known.keep == keep {
            if !known.routes.contains(&route) {
                known.routes.push(route);
            }
            return Ok(Arc::clone(&known.backend));
        }
        let shown = |keep| match keep {
            ReusePolicy::Handover => "no `keep`".to_owned(),
            ReusePolicy::Never => "`keep = 0`".to_owned(),
            ReusePolicy::UpTo(max) => format!("`keep = {max}`"),
        };
        let what = format!(
            "{address} has {} here, and {} on another route",
            shown(keep),
            shown(known.keep)
        );
        let help =
            "all routes to a backend share its connections: give them the same `keep`, or none";
        Err(self.config.point(backend.address.span(), what, help))
    }

    /// Returns the balancer with the name of `settings`, configured by `config`.
    pub(super) fn balancer(
        &self,
        config: &config::BalancerConfig,
        settings: &BalancerSettings,
        clients: &MemberTlsClients<'_>,
    ) -> Result<Arc<Balancer>, OperatorError> {
        let mut all = self.balancers.borrow_mut();
        let known = all
            .iter()
            .find(|plan| plan.settings().name == settings.name);
        if let Some(plan) = known {
            return Ok(Arc::clone(plan.balancer()));
        }
        let endpoints = 0..settings.members.len();
        let endpoints = endpoints.map(|member| clients.endpoint(config, member));
        let tls = endpoints.collect::<Result<_, _>>()?;
        let (balancers, resolver) = (&self.resources.balancers, &self.resources.resolver);
        let plan = BalancerPlan::new(balancers, resolver, settings, tls, monotonic_ms());
        let balancer = Arc::clone(plan.balancer());
        all.push(plan);
        Ok(balancer)
    }

    /// Returns the hit counts of the site with the first name `name`. The World excludes the paths below
    /// `excluded` from the counts.
    pub(super) fn counts(&self, name: &str, excluded: Option<&[u8]>) -> Arc<SiteHits> {
        let mut all = self.counts.borrow_mut();
        let at = all.iter().position(|(known, _)| known.name() == name);
        let at = at.unwrap_or_else(|| {
            all.push((self.resources.hits.find_or_new(name), Vec::new()));
            all.len() - 1
        });
        let (counts, prefixes) = &mut all[at];
        prefixes.extend(excluded.map(Box::from));
        Arc::clone(counts)
    }

    /// Returns the counters of the responses of a route of the site with the first name `site`. Routes with
    /// equal prefixes share the counters; an empty prefix stands for the site's own files.
    pub(super) fn route_counters(&self, site: &str, prefix: &[u8]) -> Arc<RouteCounters> {
        let route = String::from_utf8_lossy(prefix) + "/";
        let mut all = self.routes.borrow_mut();
        self.resources.routes.find_or_new(site, &route, &mut all)
    }

    /// Returns the backends, the balancers, the hit counts and the counters of routes.
    pub(super) fn finish(self) -> WorldEntries {
        WorldEntries {
            backends: self.backends.into_inner(),
            balancers: self.balancers.into_inner(),
            counts: self.counts.into_inner(),
            routes: self.routes.into_inner(),
        }
    }
}

fn address(address: &Spanned<config::BackendAddressConfig>) -> BackendAddress {
    match address.get_ref() {
        config::BackendAddressConfig::Unix(path) => BackendAddress::Unix(path.clone()),
        config::BackendAddressConfig::Tcp(address) => BackendAddress::Tcp(*address),
    }
}
