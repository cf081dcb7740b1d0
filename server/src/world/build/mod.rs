//! Construction of a World from a configuration, all or nothing.

mod guards;
mod route_key;

use crate::base::change_tracker::{ChangeTracker, SiteChangeTracker};
use crate::base::fair_share::RefusalCounters;
use crate::base::log::{AccessLogFormat, LogDestination, Sink, Sinks};
use crate::cache::{CacheLayer, PageCache, PageCacheRule};
use crate::config::{self, Config, LogFormat, LogTarget, OperatorError, PlainHttp, Spanned};
use crate::handler::Handler;
use crate::handler::call::body::request_body::SpoolLimit;
use crate::handler::call::process::ProcessRunner;
use crate::handler::call::script_call::CallLimits;
use crate::handler::git::browse::handler::BrowseHandler;
use crate::handler::git::browse::limiter::BrowseLimiter;
use crate::handler::git::browse::settings::BrowseSettings;
use crate::handler::git::http::GitHttpHandler;
use crate::handler::git::post_receive::PushNotifier;
use crate::handler::git::program::{find_git, find_http_backend};
use crate::handler::git::repository::GitSettings;
use crate::handler::route_handler::RouteHandler;
use crate::handler::script::backend::{BackendHandler, BackendProtocol, BackendSettings};
use crate::handler::script::cgi;
use crate::handler::script::cgi::CgiHandler;
#[cfg(feature = "test-handlers")]
use crate::handler::test_handler::TestHandler;
use crate::hits::{Hits, HitsHandler, SiteHits};
use crate::limits::{CACHE_PAGE_BYTES, GIT_COMMIT_PAGE_RECHECK_SECONDS};
use crate::site::{
    CacheControlRule, ContentBudget, Glob, HeaderRules, SecretPaths, Site, SiteRoot, SiteRules,
    Symlinks,
};
use crate::tls::{
    Ciphers, MinVersion, PairFingerprint, PairSpec, PendingChallenges, SelfSigned, TicketKeys, Tls,
    TlsSettings,
};
use crate::upstream::{BackendAddress, Backends, ReusePolicy};
use crate::world::allow_list::AllowList;
use crate::world::query_pattern::QueryPattern;
use crate::world::users::{Logins, Users};
use crate::world::{
    AccessLog, BackendReuse, Fallback, Host, Hosts, Route, RouteTarget, SecureFields, SiteScripts,
    World,
};
use guards::{guards, guards_number};
use route_key::route_key;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Resources of the process that outlive a World, shared by all Worlds.
#[derive(Clone)]
pub struct SharedResources {
    /// Budget for the contents of all sites.
    pub budget: Arc<ContentBudget>,
    /// Open log destinations, each destination once.
    pub sinks: Arc<Sinks>,
    /// Page cache for responses of handlers.
    pub cache: Arc<PageCache>,
    /// Counters of page views.
    pub hits: Arc<Hits>,
    /// Ledger of recent logins.
    pub logins: Arc<Logins>,
    /// Session ticket keys; `None` when no address uses TLS.
    pub tickets: Option<Arc<TicketKeys>>,
    /// Certificate for sites without a certificate; `None` when no address uses TLS.
    pub self_signed: Option<Arc<SelfSigned>>,
    /// HTTPS port in the URLs of redirects.
    pub https_port: Option<u16>,
    /// Ledger of pending ACME challenges.
    pub challenges: Arc<PendingChallenges>,
    /// Port of HTTP/3 in Alt-Svc; `None` without HTTP/3.
    pub h3_port: Option<u16>,
    /// Starter of programs for requests.
    pub programs: Arc<ProcessRunner>,
    /// Limiter of repository browsing.
    pub readers: Arc<BrowseLimiter>,
    /// FastCGI and SCGI backends.
    pub backends: Arc<Backends>,
    /// Sender of push notices.
    pub pushes: PushNotifier,
    /// Tracker of changes on disk not served yet.
    pub lag: Arc<ChangeTracker>,
    /// Counters of requests refused because a client's share of a limit was taken.
    pub refusals: Arc<RefusalCounters>,
}

/// Builds a World. Sites of `previous` with the same rules are reused with all loaded files, since a watch
/// keeps the files up to date. `now` is the Unix time in seconds.
pub fn build(
    config: &Config,
    supplies: &SharedResources,
    previous: Option<&World>,
    now: u64,
) -> Result<World, OperatorError> {
    let server_access = access(config, &config.log.access, supplies)?;
    let tls = tls(config, supplies, previous, now)?;
    let quic = tls.as_ref().and_then(|tls| tls.quic());
    let h3_port = supplies.h3_port.filter(|_| quic.is_some());
    let mut hosts = Vec::with_capacity(config.sites.len());
    for (at, site) in config.sites.iter().enumerate() {
        let before = previous.and_then(|world| world.hosts.iter().nth(at));
        let builder = HostBuilder {
            config,
            site,
            supplies,
            previous,
            h3_port,
            headers: Arc::new(headers(config, site)?),
            lag: before.map_or_else(
                || SiteChangeTracker::new(&supplies.lag),
                |host| host.lag.clone(),
            ),
        };
        hosts.push(Arc::new(builder.host(&server_access, tls.as_deref())?));
    }
    Ok(World {
        generation: previous.map_or(1, |world| world.generation + 1),
        guards: guards_number(config),
        limits: config.server.limits.clone(),
        tls,
        hosts: Hosts::new(hosts),
        access: server_access,
        logins: supplies.logins.clone(),
        https_port: supplies.https_port,
        h2c: config.server.h2c,
        challenges: challenges(config, supplies),
        h3_port,
        backends: backends(config, supplies)?,
    })
}

/// Returns the backends of all routes, each backend once. All routes to a backend share its connections, so
/// routes with different values of `keep` are refused.
fn backends(
    config: &Config,
    supplies: &SharedResources,
) -> Result<Vec<BackendReuse>, OperatorError> {
    let mut all: Vec<BackendReuse> = Vec::new();
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    for backend in routes.filter_map(config::RouteConfig::backend) {
        let keep = ReusePolicy::from_config(backend.keep);
        let found = supplies.backends.at(&address(&backend.address), keep);
        match all.iter().find(|(other, _)| Arc::ptr_eq(other, &found)) {
            None => all.push((found, keep)),
            Some((_, other)) if *other == keep => {}
            Some((_, other)) => {
                let said = |keep| match keep {
                    ReusePolicy::Handover => "no `keep`".to_owned(),
                    ReusePolicy::Never => "`keep = 0`".to_owned(),
                    ReusePolicy::UpTo(max) => format!("`keep = {max}`"),
                };
                let what = format!(
                    "{} has {} here, and {} on another route",
                    found.address,
                    said(keep),
                    said(*other)
                );
                let help = "all routes to a backend share its connections: give them the same `keep`, or none";
                return Err(config.point(backend.address.span(), what, help));
            }
        }
    }
    Ok(all)
}

fn address(address: &Spanned<config::BackendAddressConfig>) -> BackendAddress {
    match address.get_ref() {
        config::BackendAddressConfig::Unix(path) => BackendAddress::Unix(path.clone()),
        config::BackendAddressConfig::Tcp(address) => BackendAddress::Tcp(*address),
    }
}

fn access(
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

/// Returns the configuration for a check without side effects: every log is off, so the check opens no log
/// file. A root to be created by the first deployment is left out, together with the rules that run files
/// of the root, so the check creates no folder.
pub fn without_side_effects(config: &Config) -> Config {
    let to_come = |site: &config::SiteConfig| {
        let deployment = config.deployment_to(site);
        deployment.is_some_and(|it| !it.root.get_ref().exists())
    };
    let to_come: Vec<bool> = config.sites.iter().map(to_come).collect();
    let mut config = config.clone();
    for (site, _) in config.sites.iter_mut().zip(to_come).filter(|(_, is)| *is) {
        site.root = None;
        for route in &mut site.routes {
            route.scripts = None;
        }
    }
    config.log.access = Spanned::new(0..0, LogTarget::Off);
    for site in &mut config.sites {
        site.log = None;
    }
    config
}

/// Returns the ledger of pending challenges if the configuration has ACME.
fn challenges(config: &Config, supplies: &SharedResources) -> Option<Arc<PendingChallenges>> {
    let acme = config.tls.acme.as_ref();
    acme.map(|_| Arc::clone(&supplies.challenges))
}

fn pair(config: &Config, site: &config::SiteConfig) -> PairSpec {
    let path = |path: &Option<Spanned<PathBuf>>| path.as_ref().map(|path| path.get_ref().clone());
    PairSpec {
        names: site
            .names
            .iter()
            .map(|name| name.get_ref().clone())
            .collect(),
        certificate: path(&site.certificate).or_else(|| config.acme_file(site)),
        key: path(&site.key),
        client_ca: path(&site.client_ca),
        is_managed: site.certificate.is_none(),
    }
}

fn tls(
    config: &Config,
    supplies: &SharedResources,
    previous: Option<&World>,
    now: u64,
) -> Result<Option<Arc<Tls>>, OperatorError> {
    let (Some(tickets), Some(self_signed)) = (&supplies.tickets, &supplies.self_signed) else {
        return Ok(None);
    };
    let mut settings = TlsSettings::new(tickets.clone());
    settings.min_version = match config.tls.min_version {
        config::TlsVersion::Tls12 => MinVersion::Tls12,
        config::TlsVersion::Tls13 => MinVersion::Tls13,
    };
    if let Some(names) = &config.tls.ciphers {
        let names = names.iter().map(|name| name.get_ref().clone()).collect();
        settings.ciphers = Ciphers::List(names);
    }
    settings.challenges = challenges(config, supplies);
    let sites = config.sites.iter();
    let pairs: Vec<PairSpec> = sites.map(|site| pair(config, site)).collect();
    let before = previous.and_then(|world| world.tls.as_deref());
    match Tls::build(&pairs, &settings, self_signed, before, now) {
        Ok(tls) => {
            for warning in tls.warnings() {
                log::warn!("{warning}");
            }
            Ok(Some(Arc::new(tls)))
        }
        Err(error) => Err(point_tls(config, &error)),
    }
}

/// Converts a TLS error to an error that points at the refused value.
fn point_tls(config: &Config, error: &crate::tls::TlsError) -> OperatorError {
    use crate::tls::TlsPart;
    let site = error.pair.and_then(|index| config.sites.get(index));
    let span = match (error.part, site) {
        (TlsPart::Certificate, Some(site)) => site.certificate.as_ref().map(Spanned::span),
        (TlsPart::Key, Some(site)) => site
            .key
            .as_ref()
            .or(site.certificate.as_ref())
            .map(Spanned::span),
        (TlsPart::ClientCa, Some(site)) => site.client_ca.as_ref().map(Spanned::span),
        (TlsPart::Ciphers, _) => config
            .tls
            .ciphers
            .as_ref()
            .and_then(|ciphers| {
                ciphers
                    .iter()
                    .find(|name| error.what.contains(name.get_ref().as_str()))
            })
            .map(Spanned::span),
        (TlsPart::Tickets, _) => config.tls.tickets.as_ref().map(Spanned::span),
        _ => None,
    };
    let what = match &error.file {
        Some(file) => format!("{}: {}", file.display(), error.what),
        None => error.what.clone(),
    };
    config.point(span.unwrap_or(0..0), what, error.hint.clone())
}

struct HostBuilder<'b> {
    config: &'b Config,
    site: &'b config::SiteConfig,
    supplies: &'b SharedResources,
    previous: Option<&'b World>,
    h3_port: Option<u16>,
    /// Response fields set by the operator for the site.
    headers: Arc<HeaderRules>,
    lag: SiteChangeTracker,
}

impl HostBuilder<'_> {
    fn host(
        &self,
        server_access: &Option<AccessLog>,
        tls: Option<&Tls>,
    ) -> Result<Host, OperatorError> {
        let site = self.site;
        let names: Vec<String> = site
            .names
            .iter()
            .map(|name| name.get_ref().clone())
            .collect();
        let canonical = match names.first() {
            Some(name) if !names.iter().any(|name| name.starts_with('*')) => {
                Some(name.as_bytes().into())
            }
            _ => None,
        };
        let routes = site
            .routes
            .iter()
            .map(|route| self.route(route))
            .collect::<Result<Vec<_>, _>>()?;
        let root = site
            .root
            .as_ref()
            .map(|root| self.open_site(root, true))
            .transpose()?;
        let log = match &site.log {
            Some(log) => access(self.config, log, self.supplies)?,
            None => server_access.clone(),
        };
        // The name selects the certificate of the fingerprint: the first name of the site, or no name for
        // `*`, as for a client without SNI.
        let name = names
            .first()
            .map(String::as_str)
            .filter(|name| *name != "*");
        let name = name.map(|name| name.replacen('*', "x", 1));
        Ok(Host {
            canonical,
            http_redirects: site.http == PlainHttp::Redirect,
            hsts: site.hsts.is_some(),
            secure_fields: Arc::new(SecureFields::new(
                site.hsts,
                // HTTP/3 can't request client certificates, so a site with `client_ca` does not announce
                // HTTP/3.
                self.h3_port.filter(|_| site.client_ca.is_none()),
            )),
            site: root,
            fallback: self.fallback(),
            try_query: self.last_try().and_then(|(_, query)| query),
            guarded: routes
                .iter()
                .any(|route| route.allow.is_some() || route.users.is_some()),
            scripted: routes.iter().any(|route| route.scripts.is_some()),
            routes,
            identity: tls.map_or(PairFingerprint::NONE, |tls| tls.identity(name.as_deref())),
            demands_certificate: site.client_ca.is_some(),
            access: log,
            hits: self.hits(),
            lag: self.lag.clone(),
            names,
        })
    }

    fn route(&self, route: &config::RouteConfig) -> Result<Route, OperatorError> {
        let prefix: Box<[u8]> = route.path.get_ref().trim_end_matches('/').as_bytes().into();
        let target = match &route.target {
            None => None,
            Some(config::TargetConfig::Redirect(to)) => {
                Some(RouteTarget::Redirect(to.get_ref().as_bytes().into()))
            }
            Some(config::TargetConfig::Rewrite(to)) => {
                let (path, query) = QueryPattern::split(to.get_ref());
                Some(RouteTarget::Rewrite {
                    path: path.as_bytes().into(),
                    query,
                })
            }
            Some(config::TargetConfig::Root(root)) => {
                Some(RouteTarget::Site(self.open_site(root, false)?))
            }
            Some(config::TargetConfig::Cgi(cgi)) => {
                let scripts = self.cgi(&cgi.folder, &prefix, &cgi.interpreters, &cgi.variables)?;
                Some(self.live(scripts, route))
            }
            Some(config::TargetConfig::Backend(backend)) => {
                Some(self.live(self.backend(backend, &prefix), route))
            }
            Some(config::TargetConfig::Git(git)) => Some(self.git_target(git, route, &prefix)?),
            Some(config::TargetConfig::Hits(_)) => {
                let prefix = route.path.get_ref().trim_end_matches('/');
                let name = self.site.names.first().map_or("*", |name| name.get_ref());
                let views = HitsHandler::new(self.supplies.hits.of(name), prefix.as_bytes());
                Some(self.live(views, route))
            }
            #[cfg(feature = "test-handlers")]
            Some(config::TargetConfig::Test(test)) => {
                let handler = match test {
                    config::TestHandlerConfig::Echo => TestHandler::Echo,
                    config::TestHandlerConfig::Slow => TestHandler::Slow,
                    config::TestHandlerConfig::Endless => TestHandler::Endless,
                    config::TestHandlerConfig::Page => TestHandler::Page(Arc::default()),
                };
                Some(self.live(handler, route))
            }
        };
        let allow = route
            .allow
            .as_ref()
            .map(|networks| self.allow(networks))
            .transpose()?;
        let users = match &route.users {
            None => None,
            Some(path) => Some(Arc::new(self.users(path)?)),
        };
        let scripts = route.scripts.as_ref();
        let scripts = scripts.map(|scripts| self.scripts(scripts, route));
        let scripts = scripts.transpose()?;
        Ok(Route {
            prefix,
            target,
            allow,
            users,
            scripts,
        })
    }

    /// Returns the path and the query of the last entry of `try`.
    fn last_try(&self) -> Option<(&str, Option<QueryPattern>)> {
        self.site
            .try_paths
            .last()
            .map(|last| QueryPattern::split(last))
    }

    /// Returns the last entry of `try` if the entry leads to a handler, or to a script with the requested
    /// path appended. A script without an appended path is found like a file.
    fn fallback(&self) -> Option<Fallback> {
        let fallback = Fallback::parse(self.last_try()?.0)?;
        let covers = |route: &&config::RouteConfig| {
            let prefix = route.path.get_ref().trim_end_matches('/').as_bytes();
            let rest = fallback.before.strip_prefix(prefix);
            route.target.is_some() && rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let routes = self.site.routes.iter().filter(covers);
        let route = routes.max_by_key(|route| route.path.get_ref().trim_end_matches('/').len());
        match route.and_then(|route| route.target.as_ref()) {
            Some(target) => target.is_handler().then_some(fallback),
            None => (fallback.goes_on && self.is_script(&fallback.before)).then_some(Fallback {
                is_script: true,
                ..fallback
            }),
        }
    }

    /// Returns true if some route runs files with the ending of `path`.
    fn is_script(&self, path: &[u8]) -> bool {
        let routes = self.site.routes.iter();
        let mut scripts = routes.filter_map(|route| route.scripts.as_ref());
        scripts.any(|scripts| {
            let mut endings = endings(scripts);
            endings.any(|ending| cgi::has_ending(path, ending))
        })
    }

    fn scripts(
        &self,
        scripts: &config::ScriptsConfig,
        route: &config::RouteConfig,
    ) -> Result<SiteScripts, OperatorError> {
        let Some(root) = &self.site.root else {
            let help = "name the folder of its files as `root`";
            let what = "a site whose files are to be run has none";
            return Err(self.config.point(self.site.span.clone(), what, help));
        };
        let endings: Arc<[String]> = endings(scripts).cloned().collect();
        // Error pages are sent unprocessed, so a script can't be an error page.
        for (_, page) in &self.site.errors {
            let name = page.get_ref();
            if endings
                .iter()
                .any(|ending| cgi::has_ending(name.as_bytes(), ending))
            {
                let what = format!("`{name}` is a script, and an error page can't be one");
                let help = "a page that is sent as it is";
                return Err(self.config.point(page.span(), what, help));
            }
        }
        let handler: Arc<dyn Handler> = match scripts {
            config::ScriptsConfig::Cgi {
                interpreters,
                variables,
            } => Arc::new(self.cgi(root, b"", interpreters, variables)?),
            config::ScriptsConfig::Backend(backend) => Arc::new(self.backend(backend, b"")),
        };
        let handler = RouteHandler::new(handler, &self.headers);
        let cache = route.cache.as_ref();
        Ok(SiteScripts {
            endings,
            cache: cache.map(|cache| {
                let layer = self.cache_stage(route, cache);
                Arc::new(layer.wrap(handler.clone()))
            }),
            handler,
        })
    }

    fn backend(&self, backend: &config::BackendConfig, prefix: &[u8]) -> BackendHandler {
        let address = address(&backend.address);
        let root = match (&backend.script_root, &self.site.root) {
            (Some(root), _) => root.trim_end_matches('/').as_bytes().to_vec(),
            (None, Some(root)) => {
                let root = root.get_ref();
                let real = root.canonicalize().unwrap_or_else(|_| root.clone());
                real.into_os_string().into_vec()
            }
            (None, None) => Vec::new(),
        };
        BackendHandler::new(BackendSettings {
            backend: self
                .supplies
                .backends
                .at(&address, ReusePolicy::from_config(backend.keep)),
            protocol: match backend.is_scgi {
                true => BackendProtocol::Scgi,
                false => BackendProtocol::FastCgi,
            },
            bounds: self.bounds(),
            prefix: prefix.into(),
            root: root.into(),
            variables: backend.variables.clone(),
        })
    }

    fn cgi(
        &self,
        folder: &Spanned<PathBuf>,
        prefix: &[u8],
        interpreters: &[config::InterpreterConfig],
        variables: &[(String, String)],
    ) -> Result<CgiHandler, OperatorError> {
        let opened = SiteRoot::open(folder.get_ref(), self.symlinks(), None);
        let root = opened.map_err(|error| {
            let what = format!("{}: {error}", folder.get_ref().display());
            let help = "a folder that the server may enter";
            self.config.point(folder.span(), what, help)
        })?;
        let interpreters = interpreters.iter();
        let program =
            |it: &config::InterpreterConfig| (it.ending.clone(), it.program.get_ref().clone());
        let site_root = self.site.root.as_ref().unwrap_or(folder).get_ref();
        Ok(CgiHandler::new(cgi::CgiSettings {
            programs: Arc::clone(&self.supplies.programs),
            bounds: self.bounds(),
            document_root: site_root
                .canonicalize()
                .unwrap_or_else(|_| site_root.clone()),
            root,
            prefix: prefix.into(),
            interpreters: interpreters.map(program).collect(),
            variables: variables.to_vec(),
            secrets: SecretPaths::new(self.config.secret_paths()),
            is_guarded: self.has_guards_below(prefix),
        }))
    }

    /// Returns the settings of a git route.
    fn git_settings(
        &self,
        git: &config::GitConfig,
        prefix: &[u8],
    ) -> Result<Arc<GitSettings>, OperatorError> {
        let folder = &git.folder;
        let point = |what: String, help| self.config.point(folder.span(), what, help);
        let root = SiteRoot::open(folder.get_ref(), self.symlinks(), None).map_err(|error| {
            let what = format!("{}: {error}", folder.get_ref().display());
            point(what, "a folder that the server may enter")
        })?;
        let program = find_http_backend().map_err(|(what, help)| point(what, help))?;
        let seconds = self.config.server.limits.git_seconds;
        Ok(Arc::new(GitSettings {
            programs: Arc::clone(&self.supplies.programs),
            // A pack can be as large as its repository, and the transfer takes as long as the client's line
            // needs.
            bounds: CallLimits {
                total: Duration::from_secs(seconds.into()),
                output_bytes: u64::MAX,
                ..self.bounds()
            },
            root,
            prefix: prefix.into(),
            program,
            exports_all: git.exports_all,
            push: git.push,
            variables: git.variables.clone(),
            // The deployment of a repository may be set at another route than the route of the push.
            pushes: match self.config.deployments().is_empty() {
                true => None,
                false => Some(self.supplies.pushes.clone()),
            },
            secrets: SecretPaths::new(vec![self.config.server.state.get_ref().clone()]),
            is_guarded: self.has_guards_below(prefix),
        }))
    }

    /// Returns the target of a git route: the handler for git clients and, with `pages`, the pages for
    /// browsers.
    fn git_target(
        &self,
        git: &config::GitConfig,
        route: &config::RouteConfig,
        prefix: &[u8],
    ) -> Result<RouteTarget, OperatorError> {
        let settings = self.git_settings(git, prefix)?;
        let exchanges = GitHttpHandler::new(Arc::clone(&settings));
        if !git.pages {
            return Ok(self.live(exchanges, route));
        }
        let program = find_git();
        let program =
            program.map_err(|(what, help)| self.config.point(git.folder.span(), what, help))?;
        let server = &self.config.server;
        let browse = BrowseSettings {
            limiter: Arc::clone(&self.supplies.readers),
            git: program,
            sandbox: crate::handler::git::sandbox_repository::home(server.state.get_ref()),
            is_private: self.is_guarded(prefix),
            heavy_per_minute: server.limits.git_heavy_per_minute,
            pages_per_minute: server.limits.git_pages_per_minute,
        };
        let pages = BrowseHandler::new(settings, browse);
        let pages = RouteHandler::new(Arc::new(pages), &self.headers);
        let cached = self.stage(route, PAGES_RULE).wrap(pages);
        Ok(RouteTarget::Git {
            exchanges: RouteHandler::new(Arc::new(exchanges), &self.headers),
            pages: Arc::new(cached),
        })
    }

    /// Returns true if a path below `prefix` has a guard of its own, beyond the guards of `prefix`.
    fn has_guards_below(&self, prefix: &[u8]) -> bool {
        guards(self.site).any(|route| {
            let path = route.path.get_ref().trim_end_matches('/').as_bytes();
            path.starts_with(prefix) && path.len() > prefix.len()
        })
    }

    /// Returns true if a path at, above or below `prefix` is guarded, or if the site demands client
    /// certificates.
    fn is_guarded(&self, prefix: &[u8]) -> bool {
        let overlaps = |route: &config::RouteConfig| {
            let other = route.path.get_ref().trim_end_matches('/').as_bytes();
            prefix.starts_with(other) || other.starts_with(prefix)
        };
        self.site.client_ca.is_some() || guards(self.site).any(overlaps)
    }

    /// Returns the limits of one call of a script.
    fn bounds(&self) -> CallLimits {
        let limits = &self.config.server.limits;
        CallLimits {
            queue: limits.script_queue,
            silent: Duration::from_secs(limits.script_silent_seconds.into()),
            patience: Duration::ZERO,
            body_budget: Arc::clone(self.supplies.programs.body_budget()),
            spool_limit: Some(SpoolLimit {
                spool: Arc::clone(self.supplies.programs.spool()),
                bytes_max: limits.spooled_bytes,
            }),
            change_tracker: self.lag.clone(),
            total: Duration::from_secs(limits.script_seconds.into()),
            output_bytes: limits.script_output_bytes,
            held_bytes: 0,
        }
    }

    fn symlinks(&self) -> Symlinks {
        match self.site.symlinks {
            config::SymlinksConfig::Inside => Symlinks::Inside,
            config::SymlinksConfig::Follow => Symlinks::Follow,
        }
    }

    /// Returns the counter of page views, or None for a site without counting.
    fn hits(&self) -> Option<Arc<SiteHits>> {
        let name = self.site.names.first().map(Spanned::get_ref);
        let name = name.filter(|_| self.site.hits)?;
        Some(self.supplies.hits.of(name))
    }

    /// Returns the page cache layer for the live responses of a route.
    fn cache_stage(
        &self,
        route: &config::RouteConfig,
        cache: &config::PageCacheConfig,
    ) -> CacheLayer {
        let rule = PageCacheRule {
            seconds: cache.seconds,
            stale_while_revalidate: cache.stale_while_revalidate,
            stale_if_error: cache.stale_if_error,
            page_bytes: usize::try_from(cache.page_bytes).unwrap_or(usize::MAX),
            ignores_cookies: cache.ignore_cookies,
            disk: cache.disk,
            seconds_max: u64::MAX,
        };
        self.stage(route, rule)
    }

    fn stage(&self, route: &config::RouteConfig, rule: PageCacheRule) -> CacheLayer {
        let site = self.site.names.first().map(|name| name.get_ref().as_str());
        let site: Arc<str> = site.unwrap_or("*").into();
        CacheLayer {
            cache: self.supplies.cache.clone(),
            rule,
            route: route_key(&site, self.site, route),
            site,
        }
    }

    fn users(&self, path: &Spanned<PathBuf>) -> Result<Users, OperatorError> {
        let shown = path.get_ref().display();
        let text = std::fs::read(path.get_ref()).map_err(|error| {
            let what = format!("{shown} can't be read: {error}");
            self.config.point(
                path.span(),
                what,
                format!("`anthill passwd {shown} NAME` makes one"),
            )
        })?;
        Users::parse(&text).map_err(|error| {
            self.config.point(
                path.span(),
                format!("{shown}:{}: {}", error.line, error.what),
                error.help.replace("FILE", &shown.to_string()),
            )
        })
    }

    fn allow(&self, networks: &[Spanned<String>]) -> Result<AllowList, OperatorError> {
        let mut allow = AllowList::default();
        for network in networks {
            allow
                .add(network.get_ref())
                .map_err(|error| self.config.point(network.span(), error.what, error.help))?;
        }
        Ok(allow)
    }

    /// Opens the files of a folder: the site's own root if `is_own`, else the root of a route.
    fn open_site(&self, root: &Spanned<PathBuf>, is_own: bool) -> Result<Arc<Site>, OperatorError> {
        let rules = self.rules(root.get_ref(), is_own)?;
        if let Some(same) = self.previous.and_then(|world| world.site_with(&rules)) {
            return Ok(same);
        }
        let site = Site::open(rules, self.supplies.budget.clone());
        let site = site.map_err(|error| {
            self.config.point(
                root.span(),
                error.to_string(),
                "a folder that the server may read",
            )
        })?;
        Ok(Arc::new(site))
    }

    fn rules(&self, root: &Path, is_own: bool) -> Result<SiteRules, OperatorError> {
        let site = self.site;
        let mut rules = SiteRules::new(root);
        rules.index.clone_from(&site.index);
        rules.try_paths.clone_from(&site.try_paths);
        // The query is for scripts only; a file is found by its path.
        if let (Some(last), Some((path, _))) = (rules.try_paths.last_mut(), self.last_try()) {
            path.clone_into(last);
        }
        // The last entry of `try` with a response by a handler is no file, even if the handler's program
        // lies in the site. A route's own folder has no fallback.
        if is_own && self.fallback().is_some() {
            rules.try_paths.pop();
        }
        rules.errors = site
            .errors
            .iter()
            .map(|(status, page)| (*status, page.get_ref().clone()))
            .collect();
        rules.listing = site.listing;
        rules.symlinks = self.symlinks();
        rules.mime.clone_from(&site.mime);
        for cache in &site.cache {
            let rule = CacheControlRule {
                max_age_seconds: cache.max_age,
                immutable: cache.immutable,
            };
            rules.cache.push((glob(self.config, &cache.files)?, rule));
        }
        rules.headers.clone_from(&self.headers);
        rules.secrets = SecretPaths::new(self.config.secret_paths());
        Ok(rules)
    }

    /// Returns the target with the handler, behind the page cache if the route has one.
    fn live(&self, handler: impl Handler + 'static, route: &config::RouteConfig) -> RouteTarget {
        let handler = RouteHandler::new(Arc::new(handler), &self.headers);
        match &route.cache {
            None => RouteTarget::Handler(handler),
            Some(cache) => {
                let cached = self.cache_stage(route, cache).wrap(handler);
                RouteTarget::Cached(Arc::new(cached))
            }
        }
    }
}

/// Reads the response fields set by the operator for a site (`headers`).
fn headers(config: &Config, site: &config::SiteConfig) -> Result<HeaderRules, OperatorError> {
    let headers = site.headers.iter();
    headers
        .map(|rule| Ok((glob(config, &rule.files)?, rule.set.clone())))
        .collect()
}

fn glob(config: &Config, glob: &Spanned<String>) -> Result<Glob, OperatorError> {
    Glob::parse(glob.get_ref()).map_err(|error| {
        let help = "`*` stands for any part of a name, `?` for one character, `{a,b}` for a or b, `**` for folders";
        config.point(glob.span(), format!("this pattern can't be understood: {error}"), help)
    })
}

/// Returns the file endings of the scripts with their dots.
fn endings(scripts: &config::ScriptsConfig) -> Box<dyn Iterator<Item = &String> + '_> {
    match scripts {
        config::ScriptsConfig::Cgi { interpreters, .. } => {
            Box::new(interpreters.iter().map(|it| &it.ending))
        }
        config::ScriptsConfig::Backend(backend) => Box::new(backend.files.iter()),
    }
}

/// Page cache rule for pages of repositories. The pages carry their own freshness lifetime: pages of a
/// commit never change, and other pages are fresh until git reports a new commit. `seconds_max` bounds the
/// lifetime, since the operator may withdraw the repository.
const PAGES_RULE: PageCacheRule = PageCacheRule {
    seconds: None,
    stale_while_revalidate: 0,
    stale_if_error: 0,
    page_bytes: CACHE_PAGE_BYTES as usize,
    ignores_cookies: true,
    disk: false,
    seconds_max: GIT_COMMIT_PAGE_RECHECK_SECONDS,
};

impl World {
    /// Returns a site with exactly the same rules.
    fn site_with(&self, rules: &SiteRules) -> Option<Arc<Site>> {
        let of_route = |route: &Route| match &route.target {
            Some(RouteTarget::Site(site)) => Some(site.clone()),
            _ => None,
        };
        self.hosts
            .iter()
            .flat_map(|host| {
                host.site
                    .iter()
                    .cloned()
                    .chain(host.routes.iter().filter_map(of_route))
            })
            .find(|site| site.rules() == rules)
    }
}
