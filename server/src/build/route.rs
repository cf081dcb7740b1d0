//! Routes of a site and the handlers of the routes.

use super::host::{HostBuilder, endings};
use super::route_key::route_key;
use crate::config::{self, OperatorError, Spanned};
use crate::git::browse::handler::BrowseHandler;
use crate::git::browse::settings::BrowseSettings;
use crate::git::http::GitHttpHandler;
use crate::git::limits::GIT_COMMIT_PAGE_RECHECK_SECONDS;
use crate::git::program::{find_git, find_http_backend};
use crate::git::repository::GitSettings;
use balancer::settings::BalancerSettings;
use data_plane::cache::{CacheLayer, CookieRule, PageCacheRule};
use data_plane::handler::Handler;
use data_plane::handler::call::body::request_body::SpoolLimit;
use data_plane::handler::call::script_call::CallLimits;
use data_plane::handler::compression::CompressionRule;
use data_plane::handler::proxy::forward_auth::{ForwardAuth, ForwardAuthSettings};
use data_plane::handler::proxy::proxy_handler::ProxyHandler;
use data_plane::handler::proxy::route::CLIENT_PLACEHOLDER;
use data_plane::handler::proxy::route::ProxyRoute;
use data_plane::handler::route_handler::RouteHandler;
use data_plane::handler::script::backend::{BackendHandler, BackendProtocol, BackendSettings};
use data_plane::handler::script::cgi;
use data_plane::handler::script::cgi::CgiHandler;
#[cfg(feature = "test-handlers")]
use data_plane::handler::test_handler::TestHandler;
use data_plane::hits::HitsHandler;
use data_plane::ledger::route_counters::RouteCounters;
use data_plane::limits::CACHE_PAGE_BYTES;
use data_plane::site::{SecretPaths, SiteRoot};
use data_plane::upstream::BackendRoute;
use data_plane::world::query_pattern::QueryPattern;
use data_plane::world::{
    PathReader, Route, RouteAuth, RouteRedirect, RouteTarget, SiteScripts, TryEnd,
};
use release::glob::Glob;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::status::Status;

impl HostBuilder<'_> {
    /// Builds a route. A route without a target shares `counters` with the site's own files.
    pub(super) fn route(
        &self,
        route: &config::RouteConfig,
        counters: &Arc<RouteCounters>,
    ) -> Result<Route, OperatorError> {
        let prefix: Box<[u8]> = route.path.get_ref().trim_end_matches('/').as_bytes().into();
        let target = match &route.target {
            None => None,
            Some(target) => {
                let target = self.target(target, route, &prefix)?;
                Some(if route.files_first {
                    RouteTarget::FilesFirst(Box::new(target))
                } else {
                    target
                })
            }
        };
        let networks = |networks: &Option<Vec<Spanned<String>>>| {
            let networks = networks.as_ref();
            networks.map(|networks| self.allow(networks)).transpose()
        };
        let users = match &route.users {
            None => None,
            Some(path) => Some(Arc::new(self.users(path)?)),
        };
        let auth = match &route.auth {
            None => RouteAuth::Inherited,
            Some(config::RouteAuthConfig::Off) => RouteAuth::Off,
            Some(config::RouteAuthConfig::By(auth)) => RouteAuth::By(self.auth(auth)?),
        };
        let scripts = route.scripts.as_ref();
        let scripts = scripts.map(|scripts| self.scripts(scripts, route));
        let scripts = scripts.transpose()?;
        Ok(Route {
            counters: match target {
                Some(_) => self.route_counters(&prefix),
                None => Arc::clone(counters),
            },
            prefix,
            target,
            allow: networks(&route.allow)?,
            deny: networks(&route.requests.deny)?,
            users,
            auth,
            any: route.any,
            guard_methods: route.requests.guard_methods.clone(),
            methods: route.requests.methods.clone(),
            scripts,
            try_end: route.files.try_paths.as_ref().map(|paths| {
                Arc::new(if route.files_first {
                    TryEnd::default()
                } else {
                    self.try_end(paths)
                })
            }),
            has_encoded_slashes: route.encoded_slash,
            reader: path_reader(route),
        })
    }

    fn target(
        &self,
        target: &config::TargetConfig,
        route: &config::RouteConfig,
        prefix: &[u8],
    ) -> Result<RouteTarget, OperatorError> {
        Ok(match target {
            config::TargetConfig::Redirect(redirect) => RouteTarget::Redirect(RouteRedirect {
                status: Status(redirect.status),
                to: redirect.to.get_ref().as_bytes().into(),
                keeps_query: redirect.keeps_query,
            }),
            config::TargetConfig::Closed(status) => RouteTarget::Closed(Status(*status.get_ref())),
            config::TargetConfig::Rewrite(to) => {
                let (path, query) = QueryPattern::split(to.get_ref());
                RouteTarget::Rewrite {
                    path: path.as_bytes().into(),
                    query,
                }
            }
            config::TargetConfig::Root(root) => {
                RouteTarget::Site(self.open_site(root, Some(prefix))?)
            }
            config::TargetConfig::Cgi(cgi) => {
                let scripts = self.cgi(&cgi.folder, prefix, &cgi.interpreters, &cgi.variables)?;
                self.live(scripts, route)
            }
            config::TargetConfig::Backend(backend) => {
                self.live(self.backend(backend, prefix)?, route)
            }
            config::TargetConfig::Git(git) => self.git_target(git, route, prefix)?,
            config::TargetConfig::Proxy(proxy) => self.live(self.proxy(proxy, prefix)?, route),
            config::TargetConfig::Hits(_) => {
                let counts = self.entries.counts(&self.site.name, Some(prefix));
                self.live(HitsHandler::new(counts, prefix), route)
            }
            #[cfg(feature = "test-handlers")]
            config::TargetConfig::Test(test) => {
                let handler = match test {
                    config::TestHandlerConfig::Echo => TestHandler::Echo,
                    config::TestHandlerConfig::Slow => TestHandler::Slow,
                    config::TestHandlerConfig::Endless => TestHandler::Endless,
                    config::TestHandlerConfig::Page => TestHandler::Page(Arc::default()),
                    config::TestHandlerConfig::Hints => TestHandler::Hints,
                    config::TestHandlerConfig::Hold => TestHandler::Hold(Arc::default()),
                    config::TestHandlerConfig::Trailers => TestHandler::Trailers,
                    config::TestHandlerConfig::Tunnel => TestHandler::Tunnel(Arc::default()),
                };
                self.live(handler, route)
            }
        })
    }

    fn scripts(
        &self,
        scripts: &config::ScriptsConfig,
        route: &config::RouteConfig,
    ) -> Result<SiteScripts, OperatorError> {
        let Some(root) = &self.site.root else {
            let help = "set `root` of the site to the folder with the scripts";
            let what = "a site with `scripts` needs a `root`";
            return Err(self.config.point(self.site.span.clone(), what, help));
        };
        let endings: Arc<[String]> = endings(scripts).cloned().collect();
        // Error pages are sent unprocessed, so a script can't be an error page.
        let of_routes = self.site.routes.iter().flat_map(|it| &it.files.errors);
        for (_, page) in self.site.errors.iter().chain(of_routes) {
            let name = page.get_ref();
            if endings
                .iter()
                .any(|ending| cgi::has_ending(name.as_bytes(), ending))
            {
                let what = format!("`{name}` is a script, and a script can't be an error page");
                let help = "name a page that is sent unprocessed";
                return Err(self.config.point(page.span(), what, help));
            }
        }
        let handler: Arc<dyn Handler> = match scripts {
            config::ScriptsConfig::Cgi {
                interpreters,
                variables,
            } => Arc::new(self.cgi(root, b"", interpreters, variables)?),
            config::ScriptsConfig::Backend(backend) => Arc::new(self.backend(backend, b"")?),
        };
        let handler = self.route_handler(handler, route);
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

    fn backend(
        &self,
        backend: &config::BackendConfig,
        prefix: &[u8],
    ) -> Result<BackendHandler, OperatorError> {
        let root = match (&backend.script_root, &self.site.root) {
            (Some(root), _) => root.trim_end_matches('/').as_bytes().to_vec(),
            (None, Some(root)) => {
                let root = root.get_ref();
                let real = root.canonicalize().unwrap_or_else(|_| root.clone());
                real.into_os_string().into_vec()
            }
            (None, None) => Vec::new(),
        };
        Ok(BackendHandler::new(BackendSettings {
            backend: self.entries.backend(
                backend,
                BackendRoute {
                    site: self.site.name.clone(),
                    path: (String::from_utf8_lossy(prefix) + "/").into_owned(),
                    files: backend.files.clone(),
                    is_scgi: backend.is_scgi,
                },
            )?,
            protocol: if backend.is_scgi {
                BackendProtocol::Scgi
            } else {
                BackendProtocol::FastCgi
            },
            bounds: self.bounds(),
            prefix: prefix.into(),
            root: root.into(),
            variables: backend.variables.clone(),
        }))
    }

    fn proxy(
        &self,
        proxy: &config::ProxyConfig,
        prefix: &[u8],
    ) -> Result<ProxyHandler, OperatorError> {
        let (balancer, settings) = match &proxy.balancer {
            config::BalancerRef::Own(balancer) => {
                let path = String::from_utf8_lossy(prefix);
                let settings = BalancerSettings {
                    name: self.site.own_balancer_name(&path).into(),
                    ..balancer.settings.clone()
                };
                (&**balancer, settings)
            }
            config::BalancerRef::Named(name) => {
                let mut all = self.config.balancers.iter();
                let named = all.find(|it| *it.settings.name == **name.get_ref());
                let named = named.ok_or_else(|| {
                    let what = format!("no balancer has the name `{}`", name.get_ref());
                    let help = "add a [[balancer]] with the name";
                    self.config.point(name.span(), what, help)
                })?;
                (named, named.settings.clone())
            }
        };
        Ok(ProxyHandler::new(ProxyRoute {
            balancer: self
                .entries
                .balancer(balancer, &settings, self.member_tls)?,
            forward: proxy.forward.clone(),
            path: prefix.into(),
            pseudonym: Arc::clone(&self.resources.pseudonym),
            refusals: Arc::clone(&self.resources.refusals),
            identity_fields: Arc::clone(&self.identity_fields),
        }))
    }

    /// Returns the server for forward authentication.
    fn auth(&self, auth: &config::AuthConfig) -> Result<Arc<ForwardAuth>, OperatorError> {
        let balancer = &auth.balancer;
        let settings = &balancer.settings;
        let balancer = self.entries.balancer(balancer, settings, self.member_tls)?;
        let settings = ForwardAuthSettings {
            url: auth.url.clone(),
            path: auth.path.as_bytes().into(),
            query: auth.query.as_ref().map(|query| query.as_bytes().into()),
            copy: auth.copy.as_slice().into(),
            login: auth.login.as_ref().map(|login| login.get_ref().clone()),
            pseudonym: Arc::clone(&self.resources.pseudonym),
            refusals: Arc::clone(&self.resources.refusals),
        };
        Ok(Arc::new(ForwardAuth::new(settings, balancer)))
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
            programs: Arc::clone(&self.resources.programs),
            bounds: self.bounds(),
            document_root: site_root
                .canonicalize()
                .unwrap_or_else(|_| site_root.clone()),
            root,
            prefix: prefix.into(),
            interpreters: interpreters.map(program).collect(),
            variables: variables.to_vec(),
            secrets: self.secrets.clone(),
            hide: self.hide_at(prefix),
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
            programs: Arc::clone(&self.resources.programs),
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
            pushes: if self.config.deployments().is_empty() {
                None
            } else {
                Some(self.resources.pushes.clone())
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
        let exchanges = Arc::new(GitHttpHandler::new(Arc::clone(&settings)));
        let exchanges = self.route_handler(exchanges, route);
        let pushers = git.push_users.as_ref();
        let pushers = pushers.map(|path| self.users(path).map(Arc::new));
        let pushers = pushers.transpose()?;
        if !git.pages || !cfg!(feature = "repository-pages") {
            return Ok(RouteTarget::Git {
                exchanges,
                pages: None,
                pushers,
            });
        }
        let program = find_git();
        let program =
            program.map_err(|(what, help)| self.config.point(git.folder.span(), what, help))?;
        let server = &self.config.server;
        let browse = BrowseSettings {
            limiter: Arc::clone(&self.resources.readers),
            git: program,
            sandbox: crate::git::sandbox_repository::home(server.state.get_ref()),
            is_private: self.is_guarded(prefix),
            heavy_per_minute: server.limits.git_heavy_per_minute,
            pages_per_minute: server.limits.git_pages_per_minute,
        };
        let pages = BrowseHandler::new(settings, browse);
        let pages = self.route_handler(Arc::new(pages), route);
        let cached = self.stage(route, PAGES_RULE).wrap(pages);
        Ok(RouteTarget::Git {
            exchanges,
            pages: Some(Arc::new(cached)),
            pushers,
        })
    }

    /// Returns the limits of one call of a script.
    fn bounds(&self) -> CallLimits {
        let limits = &self.config.server.limits;
        CallLimits {
            queue: limits.script_queue,
            silent: Duration::from_secs(limits.script_silent_seconds.into()),
            patience: Duration::ZERO,
            spool_limit: Some(SpoolLimit {
                spool: Arc::clone(self.resources.programs.spool()),
                bytes_max: limits.spooled_bytes,
            }),
            change_tracker: self.change_tracker.clone(),
            total: Duration::from_secs(limits.script_seconds.into()),
            output_bytes: limits.script_output_bytes,
            held_bytes: 0,
        }
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
            cookies: cookie_rule(cache),
            disk: cache.disk,
            seconds_max: u64::MAX,
            is_plain: route.compression == CompressionRule::Never,
            client_fields: [client_fields(route), self.varying_fields.to_vec()].concat(),
        };
        self.stage(route, rule)
    }

    fn stage(&self, route: &config::RouteConfig, rule: PageCacheRule) -> CacheLayer {
        let site: Arc<str> = self.site.name.as_str().into();
        CacheLayer {
            cache: self.resources.cache.clone(),
            rule,
            route: route_key(&site, self.site, route),
            passes_tunnels: route.upgrade,
            site,
        }
    }

    /// Returns the handler with the operator's response fields.
    fn route_handler(
        &self,
        handler: Arc<dyn Handler>,
        route: &config::RouteConfig,
    ) -> RouteHandler {
        RouteHandler::new(handler, &self.headers, &self.cors_paths)
            .with_compression(route.compression)
    }

    /// Returns the target with the handler, behind the page cache if the route has one.
    fn live(&self, handler: impl Handler + 'static, route: &config::RouteConfig) -> RouteTarget {
        let handler = self.route_handler(Arc::new(handler), route);
        match &route.cache {
            None => RouteTarget::Handler(handler),
            Some(cache) => {
                let cached = self.cache_stage(route, cache).wrap(handler);
                RouteTarget::Cached(Arc::new(cached))
            }
        }
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
    cookies: CookieRule::Ignored,
    disk: false,
    seconds_max: GIT_COMMIT_PAGE_RECHECK_SECONDS,
    client_fields: Vec::new(),
    is_plain: false,
};

/// Returns the rule about cookies of a page cache.
fn cookie_rule(cache: &config::PageCacheConfig) -> CookieRule {
    // The patterns were checked when the configuration was read.
    let globs = cache.bypass_cookies.iter();
    let globs: Vec<Glob> = globs.filter_map(|glob| Glob::parse(glob).ok()).collect();
    if !globs.is_empty() {
        CookieRule::Bypassed(globs)
    } else if cache.ignore_cookies {
        CookieRule::Ignored
    } else {
        CookieRule::Personal
    }
}

/// Returns the reader of the paths below a route.
fn path_reader(route: &config::RouteConfig) -> PathReader {
    match &route.target {
        Some(config::TargetConfig::Proxy(proxy)) => PathReader::Member(proxy.forward.slashes),
        Some(
            config::TargetConfig::Cgi(_)
            | config::TargetConfig::Backend(_)
            | config::TargetConfig::Rewrite(_),
        ) => PathReader::Script,
        #[cfg(feature = "test-handlers")]
        Some(config::TargetConfig::Test(_)) => PathReader::Script,
        None if route.scripts.is_some() => PathReader::Script,
        None
        | Some(
            config::TargetConfig::Redirect(_)
            | config::TargetConfig::Closed(_)
            | config::TargetConfig::Root(_)
            | config::TargetConfig::Git(_)
            | config::TargetConfig::Hits(_),
        ) => PathReader::Server,
    }
}

/// Returns the names of the request fields to which a proxy route writes the client's address.
fn client_fields(route: &config::RouteConfig) -> Vec<Box<str>> {
    let Some(config::TargetConfig::Proxy(proxy)) = &route.target else {
        return Vec::new();
    };
    let fields = proxy.forward.request_fields.iter();
    let of_client = fields.filter(|(_, value)| value.contains(CLIENT_PLACEHOLDER));
    of_client.map(|(name, _)| name.clone()).collect()
}
