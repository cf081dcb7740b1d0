//! World: one complete configuration of the server, immutable after the build.
//!
//! The control thread builds a [`World`] from the configuration, all or nothing, and gives the new World to
//! every worker. A request uses one World from its first byte to its last, so no request sees a
//! half-applied configuration.

pub mod allow_list;
pub mod log_skip;
pub mod cors;
pub mod doubtful_files;
pub mod method_set;
pub mod own_listener;
pub(crate) mod path_policy;
pub mod preview;
pub mod query_pattern;
pub mod request_rules;
mod route_table;
mod secure_fields;
pub mod users;

use crate::cache::CachedHandler;
use crate::handler::proxy::forward_auth::ForwardAuth;
use crate::handler::route_handler::RouteHandler;
use crate::hits::{Hits, SiteHits};
use crate::ledger::access_log::AccessLogFormat;
use crate::ledger::change_tracker::SiteChangeTracker;
use crate::ledger::route_counters::{RouteCounters, RouteLedger};
use crate::limits::Limits;
use crate::site::{ReleaseRules, Site, SiteRules};
use crate::tls::{PendingChallenges, SiteIdentity, Tls, TlsClient};
use crate::upstream::Balancers;
use crate::upstream::{
    Backend, BackendRoute, Backends, BalancerPlan, ReusePolicy, log_change, log_doubt,
};
use crate::world::allow_list::AllowList;
use crate::world::log_skip::{SkipRule, StatusSet};
use crate::world::method_set::MethodSet;
use crate::world::own_listener::OwnListener;
use crate::world::preview::{PreviewState, Previews};
use crate::world::query_pattern::QueryPattern;
use base::clock::monotonic_ms;
use base::log::Sink;
use release::redirects::Redirects;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use users::{Logins, Users};
use wire::path_readings::{self, PathReadings, Slashes};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::request_target;
use wire::status::Status;

pub use crate::world::path_policy::PathPolicy;
pub use crate::world::route_table::RouteTable;
pub use crate::world::secure_fields::SecureFields;

/// Complete configuration, ready to serve. A clone is cheap.
#[derive(Clone)]
pub struct World {
    /// Number of the World, incremented with every publication.
    pub generation: u64,
    /// Number of the set of guarded paths of all sites. Worlds with the same number guard the same paths.
    pub guards: u64,
    /// Limits set by the operator.
    pub limits: Limits,
    /// Certificates of the sites at the addresses of `[server]`; `None` when no address uses TLS.
    pub tls: Option<Arc<Tls>>,
    /// Certificates at each listener that serves some sites alone and uses TLS.
    pub own_tls: Vec<(OwnListener, Arc<Tls>)>,
    /// Sites by host name.
    pub hosts: Hosts,
    /// Access log for requests without a site.
    pub access: Option<AccessLog>,
    /// Ledger of recent logins, shared by all Worlds.
    pub logins: Arc<Logins>,
    /// HTTPS port in the URLs of redirects; `None` without HTTPS.
    pub https_port: Option<u16>,
    /// Whether clients may use HTTP/2 without TLS with prior knowledge.
    pub h2c: bool,
    /// Ledger of pending ACME challenges; `None` without automatic certificates.
    pub challenges: Option<Arc<PendingChallenges>>,
    /// Networks of proxies in front of the server.
    pub trust: AllowList,
    /// Port of HTTP/3 in Alt-Svc; `None` without HTTP/3.
    pub h3_port: Option<u16>,
    /// Backends, each backend once.
    pub backends: Vec<BackendPlan>,
    /// Balancers of all routes, each balancer once.
    pub balancers: Vec<BalancerPlan>,
    /// Clients for TLS to members. The next World takes over the clients whose settings and files are
    /// unchanged.
    pub tls_clients: Vec<Arc<TlsClient>>,
    /// Hit counts of all sites with counts.
    pub counts: Vec<SiteCounts>,
    /// Counters of the responses of all routes, each once.
    pub routes: Vec<Arc<RouteCounters>>,
    /// Counters of the responses to requests without a site.
    pub without_site: Arc<RouteCounters>,
    /// Fields about the user that a server for forward authentication sets. Requests of clients lose the fields on every
    /// route of every site, since another route may lead to the same application by another name.
    pub identity_fields: Arc<[Box<str>]>,
    /// Whether a route asks a server for forward authentication.
    pub has_forward_auth: bool,
    /// Handler of the manager's listener; `None` without a manager.
    pub manager: Option<RouteHandler>,
}

/// Backend with the settings of a configuration.
#[derive(Clone)]
pub struct BackendPlan {
    /// The backend.
    pub backend: Arc<Backend>,
    /// Policy for connections after the end of a call.
    pub keep: ReusePolicy,
    /// Routes with the backend.
    pub routes: Vec<BackendRoute>,
}

/// Hit counts of a site, and the prefixes of routes excluded from the counts.
pub type SiteCounts = (Arc<SiteHits>, Vec<Box<[u8]>>);

impl World {
    /// Registers the backends, the balancers, the hit counts and the counters of the routes in the ledgers of
    /// the process, and applies the policies of the configuration to the entries. All Worlds share the
    /// entries, so the caller waits until the World is about to be served.
    pub fn register(
        &self,
        backends: &Backends,
        balancers: &Balancers,
        hits: &Hits,
        routes: &RouteLedger,
    ) {
        routes.register(&self.routes);
        for plan in &self.backends {
            backends.register(&plan.backend);
            plan.backend.set_reuse_policy(plan.keep);
        }
        let now_ms = monotonic_ms();
        for plan in &self.balancers {
            let name = plan.balancer().name();
            let report = plan.put_in_force(balancers, now_ms);
            for (member, change) in report.changes {
                log_change(name, member.url(), change);
            }
            if let Some(doubt) = report.doubt {
                log_doubt(plan.balancer(), doubt);
            }
        }
        for (site, excluded) in &self.counts {
            hits.register(site);
            for prefix in excluded {
                site.exclude(prefix);
            }
        }
    }

    /// Returns the certificates at a listener with TLS.
    pub fn tls_at(&self, listener: Option<OwnListener>) -> Option<&Arc<Tls>> {
        let Some(listener) = listener else {
            return self.tls.as_ref();
        };
        let mut own = self.own_tls.iter();
        own.find_map(|(it, tls)| (*it == listener).then_some(tls))
    }

    /// Returns the certificates at all listeners.
    pub fn all_tls(&self) -> impl Iterator<Item = &Arc<Tls>> {
        self.tls
            .iter()
            .chain(self.own_tls.iter().map(|(_, tls)| tls))
    }

    /// Returns a site with exactly the same rules.
    pub fn site_with(&self, rules: &SiteRules) -> Option<Arc<Site>> {
        fn of_route(route: &Route) -> Option<&Arc<Site>> {
            match &route.target {
                Some(RouteTarget::Site(site)) => Some(site),
                _ => None,
            }
        }
        let mut sites = self.hosts.iter().flat_map(|host| {
            let routes = host.routes.routes().iter();
            let of_routes = routes.filter_map(|route| of_route(route));
            host.site.iter().chain(&host.awaited).chain(of_routes)
        });
        // A reload compares each new site with each present one, and bytes are compared faster than components.
        let root = rules.root.as_os_str();
        let same = sites.find(|site| {
            let its = site.rules();
            its.root.as_os_str() == root && its == rules
        });
        same.cloned()
    }

    /// Returns a site with the same release, perhaps with other rules.
    pub fn site_of_release(&self, release: &ReleaseRules) -> Option<&Arc<Site>> {
        let mut sites = self.hosts.iter().filter_map(|host| host.release_site());
        sites.find(|site| site.rules().release.as_ref() == Some(release))
    }
}

/// Destination and format of an access log, and the responses without a line.
#[derive(Clone)]
pub struct AccessLog {
    /// Destination, shared by all sites with the same destination.
    pub sink: Sink,
    /// Format of a line.
    pub format: AccessLogFormat,
    /// Rules for the responses without a line.
    pub skip: Arc<[SkipRule]>,
}

/// Site with its names, routes and policies.
#[derive(Clone)]
pub struct Host {
    /// Name of the site in logs, counters, caches and commands: its first host name, with the address for a site with
    /// `listen`. Each site has its own.
    pub name: String,
    /// All host names in lower case, the first name canonical; `*` = any name.
    pub names: Vec<String>,
    /// Listeners at which the names hold; empty for the addresses of `[server]`.
    pub listeners: Vec<OwnListener>,
    /// Canonical name for the redirect from other names; `None` when the site answers to any name.
    pub canonical: Option<Box<[u8]>>,
    /// Whether plain HTTP only redirects to HTTPS.
    pub http_redirects: bool,
    /// Whether responses have Strict-Transport-Security (RFC 6797).
    pub hsts: bool,
    /// Response fields of the site as a whole, most of them over TLS only.
    pub secure_fields: Arc<SecureFields>,
    /// Files for paths without a route target; `None` when routes answer for all paths.
    pub site: Option<Arc<Site>>,
    /// Site of the release that takes the place of the folder in `site` with its first publication; `None` for a host that
    /// awaits no release.
    pub awaited: Option<Arc<Site>>,
    /// End of `try` for paths without a file, except where a route has an end of its own.
    pub try_end: TryEnd,
    /// Redirects of the operator; `None` without redirects, so that most requests skip both look-ups.
    pub redirects: Option<Arc<Redirects>>,
    /// Routes and request rules.
    pub routes: Arc<RouteTable>,
    /// Identity of the certificate files and the client CAs of the site, for connections reused by requests
    /// for several sites and for connections from before a reload.
    pub identity: SiteIdentity,
    /// Whether every client needs a certificate. If so, the site serves nothing over plain HTTP.
    pub demands_certificate: bool,
    /// Access log of the site.
    pub access: Option<AccessLog>,
    /// Counter of page views; `None` when page views are not counted.
    pub hits: Option<Arc<SiteHits>>,
    /// Tracker of changes on disk not served yet, shared by all Worlds.
    pub change_tracker: SiteChangeTracker,
    /// Counters of the responses that belong to no route with a target.
    pub counters: Arc<RouteCounters>,
    /// Previews of the releases of the site; `None` without `preview`.
    pub previews: Option<Arc<Previews>>,
    /// State of the preview that the host stands for; `None` for a site itself.
    pub preview: Option<PreviewState>,
}

/// Policy for the paths of a site below a prefix.
#[derive(Clone)]
pub struct Route {
    /// Prefix of the decoded path in whole components, beginning with `/`, without a trailing slash. Empty
    /// = all paths.
    pub prefix: Box<[u8]>,
    /// Target of requests; `None` for a route that only guards files.
    pub target: Option<RouteTarget>,
    /// Networks of permitted clients.
    pub allow: Option<AllowList>,
    /// Networks of refused clients, whether or not `allow` permits the clients.
    pub deny: Option<AllowList>,
    /// Permitted users.
    pub users: Option<Arc<Users>>,
    /// Forward authentication.
    pub auth: RouteAuth,
    /// Whether a client of `allow` needs no login.
    pub any: bool,
    /// Methods to which `allow`, `users` and `auth` apply; `None` = all methods.
    pub guard_methods: Option<MethodSet>,
    /// Methods of requests that are answered; `None` = all methods.
    pub methods: Option<MethodSet>,
    /// Rule that runs some of the site's files instead of sending the files.
    pub scripts: Option<SiteScripts>,
    /// End of the route's `try`, in place of the site's.
    pub try_end: Option<Arc<TryEnd>>,
    /// Whether the handler gets paths with an encoded slash.
    pub has_encoded_slashes: bool,
    /// Reader of the requested paths.
    pub reader: PathReader,
    /// Counters of the responses.
    pub counters: Arc<RouteCounters>,
}

/// End of `try` for paths without a file.
#[derive(Clone, Default)]
pub struct TryEnd {
    /// Path of another route's handler, or a script of the site with the requested path appended.
    pub fallback: Option<Fallback>,
    /// Query for the last entry, for a script of the site as well as for a handler.
    pub query: Option<QueryPattern>,
}

/// Forward authentication of a route.
#[derive(Clone, Default)]
pub enum RouteAuth {
    /// The routes with shorter prefixes decide.
    #[default]
    Inherited,
    /// No server is asked, even if a route with a shorter prefix names one.
    Off,
    /// The server that decides.
    By(Arc<ForwardAuth>),
}

/// Fallback path, answered by a handler or a script of the site for any requested path.
#[derive(Clone)]
pub struct Fallback {
    /// Complete path, or the start of the path.
    pub before: Box<[u8]>,
    /// Whether the requested path is appended.
    pub goes_on: bool,
    /// Whether the path begins with a script among the site's files.
    pub is_script: bool,
}

impl Fallback {
    /// Parses the last entry of `try`: `/app.cgi`, or `/app.cgi$path` to append the requested path. Returns
    /// `None` if the entry can only name files.
    pub fn parse(text: &str) -> Option<Fallback> {
        let (before, goes_on) = match text.split_once("$path") {
            None => (text, false),
            Some((before, "")) => (before.trim_end_matches('/'), true),
            Some(_) => return None,
        };
        let before = format!("/{}", before.trim_start_matches('/'));
        (before.len() > 1).then(|| Fallback {
            before: before.into_bytes().into(),
            goes_on,
            is_script: false,
        })
    }

    /// Returns the path to answer with for the requested path `asked`.
    pub(crate) fn path(&self, asked: &[u8]) -> Vec<u8> {
        let rest = if self.goes_on { asked } else { b"" };
        [&self.before, rest].concat()
    }
}

/// Rule that runs files of a site, selected by file ending.
#[derive(Clone)]
pub struct SiteScripts {
    /// File endings with their dots.
    pub endings: Arc<[String]>,
    /// Handler that runs the files.
    pub handler: RouteHandler,
    /// Same handler behind the page cache; `None` when no response is stored.
    pub cache: Option<Arc<CachedHandler>>,
}

/// Target of requests below the prefix of a route.
#[derive(Clone)]
pub enum RouteTarget {
    /// Redirect.
    Redirect(RouteRedirect),
    /// Internal rewrite to another path of the site.
    Rewrite {
        /// New path. If the path ends with a slash, the requested path after the prefix is appended.
        path: Box<[u8]>,
        /// Query for a script; `None` = the query of the request.
        query: Option<QueryPattern>,
    },
    /// Refusal of all requests with the status.
    Closed(Status),
    /// Files of another folder.
    Site(Arc<Site>),
    /// Handler without the page cache.
    Handler(RouteHandler),
    /// Handler behind the page cache.
    Cached(Arc<CachedHandler>),
    /// A file of the host's own site; for paths without a file, and for all methods but GET and HEAD, a handler with or
    /// without the page cache.
    FilesFirst(Box<RouteTarget>),
    /// Git repositories.
    Git {
        /// Handler for git clients.
        exchanges: RouteHandler,
        /// Pages for browsers, behind the page cache; `None` without pages.
        pages: Option<Arc<CachedHandler>>,
        /// Users with the right to push to repositories that clients without a login may read; `None` if the users
        /// of the route may push.
        pushers: Option<Arc<Users>>,
    },
}

/// Program that reads the path of a request below a route, perhaps in another way than this server does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PathReader {
    /// This server, or git, which opens the very path that the guards check.
    Server,
    /// A script or backend that gets the path decoded, and once more as sent by the client. A rewrite may lead to one.
    Script,
    /// HTTP servers behind a proxy, which get the path percent-encoded.
    Member(Slashes),
}

/// Redirect of all paths below the prefix of a route.
#[derive(Clone)]
pub struct RouteRedirect {
    /// 301, 302, 303, 307 or 308; 410 for pages that are gone.
    pub status: Status,
    /// URL or path. If the location ends with a slash, the path after the prefix is appended.
    pub to: Box<[u8]>,
    /// Whether the location gets the query of the request.
    pub keeps_query: bool,
}

impl RouteRedirect {
    /// Returns the location for `rest`, the path after the prefix.
    pub fn location(&self, rest: &[u8], query: Option<&[u8]>) -> Vec<u8> {
        let mut location = self.to.to_vec();
        if self.to.ends_with(b"/") {
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            request_target::encode_path(rest, &mut location);
        }
        if let Some(query) = query.filter(|_| self.keeps_query) {
            add_query(&mut location, query);
        }
        location
    }
}

/// Adds the query of the request to a location of a route. The location may have a query and a fragment of its own.
fn add_query(location: &mut Vec<u8>, query: &[u8]) {
    let end = location.iter().position(|byte| *byte == b'#');
    let fragment = location.split_off(end.unwrap_or(location.len()));
    let has_query = location.contains(&b'?');
    location.push(if has_query { b'&' } else { b'?' });
    location.extend_from_slice(query);
    location.extend_from_slice(&fragment);
}

/// Calls `use_readings` with all readings of the requested path; with none for a request that could not be parsed.
fn with_readings<T>(head: Option<&RequestHead<'_>>, use_readings: impl FnOnce(&[&[u8]]) -> T) -> T {
    let Some(head) = head else {
        return use_readings(&[]);
    };
    let others = match &head.path {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => PathReadings::of(head.raw_path, path, Slashes::Keep),
    };
    match others {
        None => use_readings(&[&head.path]),
        Some(others) => use_readings(&others.iter().chain([&*head.path]).collect::<Vec<_>>()),
    }
}

impl AccessLog {
    /// Returns true if a response has no line. `head` is the head of the request, if the request could be parsed.
    pub(crate) fn skips(&self, head: Option<&RequestHead<'_>>, status: u16) -> bool {
        let skips = |readings: &[&[u8]]| log_skip::skips(&self.skip, readings, status);
        !self.skip.is_empty() && with_readings(head, skips)
    }

    /// Returns the statuses with which a response to a request has no line, for a response that is sent later; `None`
    /// for none.
    pub(crate) fn skipped_statuses(
        &self,
        head: Option<&RequestHead<'_>>,
    ) -> Option<Box<StatusSet>> {
        let skipped = |readings: &[&[u8]]| log_skip::skipped_statuses(&self.skip, readings);
        (!self.skip.is_empty()).then(|| with_readings(head, skipped))?
    }
}

impl Route {
    /// Returns true if the page cache may answer requests of the route.
    pub fn has_cache(&self) -> bool {
        let scripts = self.scripts.as_ref();
        let has_cached_scripts = scripts.is_some_and(|scripts| scripts.cache.is_some());
        let target = match &self.target {
            Some(RouteTarget::FilesFirst(handler)) => Some(&**handler),
            target => target.as_ref(),
        };
        has_cached_scripts
            || matches!(
                target,
                Some(RouteTarget::Cached(_) | RouteTarget::Git { pages: Some(_), .. })
            )
    }

    /// Returns true if `path` is the prefix, or lies below the prefix in whole components.
    pub(crate) fn covers(&self, path: &[u8]) -> bool {
        request_target::is_below(path, &self.prefix)
    }

    /// Returns the number of segments of the prefix.
    pub(crate) fn depth(&self) -> usize {
        self.prefix.iter().filter(|byte| **byte == b'/').count()
    }

    /// Returns true if the route has a guard or limits the methods.
    pub fn has_guard(&self) -> bool {
        self.allow.is_some()
            || self.deny.is_some()
            || self.users.is_some()
            || !matches!(self.auth, RouteAuth::Inherited)
            || self.methods.is_some()
    }

    /// Returns the status of a closed route.
    pub(crate) fn closed(&self) -> Option<Status> {
        match self.target {
            Some(RouteTarget::Closed(status)) => Some(status),
            _ => None,
        }
    }

    /// Returns true if the address of a client stands for a login: the route has `any`, and `allow` has the address.
    pub fn admits_without_login(&self, peer: IpAddr) -> bool {
        self.any
            && self
                .allow
                .as_ref()
                .is_some_and(|allow| allow.contains(peer))
    }

    /// Returns true if `allow`, `users` and `auth` apply to requests with the method.
    pub(crate) fn guards_method(&self, method: Method) -> bool {
        let methods = self.guard_methods.as_ref();
        methods.is_none_or(|methods| method.is_unregistered() || methods.contains(method))
    }
}

impl Host {
    /// Returns the site of the release: the awaited one, or the one that is served. Without a release, returns the site of
    /// the folder.
    pub fn release_site(&self) -> Option<&Arc<Site>> {
        self.awaited.as_ref().or(self.site.as_ref())
    }

    /// Returns the names by which commands may call the site.
    pub fn called(&self) -> impl Iterator<Item = &str> {
        // Any number of sites with `listen` have the name `*`.
        let names = self.names.iter().map(String::as_str);
        let names = names.filter(|name| self.listeners.is_empty() || *name != "*");
        let own = (!self.listeners.is_empty()).then_some(self.name.as_str());
        own.into_iter().chain(names)
    }

    /// Returns true if `name` is a name of the site.
    pub fn is_called(&self, name: &str) -> bool {
        self.called().any(|own| own == name)
    }

    /// Returns the policy of a path.
    #[inline]
    pub fn policy(&self, path: &[u8]) -> &PathPolicy {
        self.routes.policy(path)
    }

    /// Returns the end of `try` for the paths with a policy.
    #[inline]
    pub(crate) fn try_end<'h>(&'h self, policy: &'h PathPolicy) -> &'h TryEnd {
        policy.try_end().unwrap_or(&self.try_end)
    }

    /// Returns the readings of a requested path beside the normalised path; None for an application without further
    /// readings, and for paths that the server itself opens. `policy` is the policy of the path, and `raw_path` the path as sent by
    /// the client.
    ///
    /// # Errors
    /// An encoded slash that the route does not pass, or a path that a member could read as a path of another route,
    /// with other guards or outside of the path of the route.
    pub(crate) fn readings(
        &self,
        policy: &PathPolicy,
        raw_path: &[u8],
        path: &[u8],
    ) -> Result<Option<Box<PathReadings>>, Reject> {
        let route = policy.route();
        let has_slash = path_readings::has_encoded_slash(raw_path);
        // An application server may cut a parameter off before or after the decoding of a slash within the parameter.
        let passes_slash = route.is_some_and(|route| route.has_encoded_slashes)
            && !path_readings::has_raw_parameters(raw_path);
        if has_slash && !passes_slash {
            return Err(Reject::TARGET_SLASH);
        }
        let reader = match route {
            Some(route) => route.reader,
            // A script of the site, or the handler at the end of `try`, may answer.
            None if self.routes.has_scripts() => PathReader::Script,
            None if self.try_end(policy).fallback.is_some() => PathReader::Script,
            None => PathReader::Server,
        };
        let slashes = match reader {
            PathReader::Server => return Ok(None),
            PathReader::Script => Slashes::Keep,
            PathReader::Member(slashes) => slashes,
        };
        let Some(readings) = PathReadings::of(raw_path, path, slashes) else {
            return Ok(None);
        };
        if let (PathReader::Member(_), Some(route)) = (reader, route) {
            if readings
                .merged()
                .any(|other| !policy.is_alike(self.policy(other)))
            {
                return Err(if has_slash {
                    Reject::TARGET_SLASH
                } else {
                    Reject::TARGET_PARAMETER
                });
            }
            if has_slash && path_readings::leaves_route(raw_path, route.depth()) {
                return Err(Reject::TARGET_LEAVES_ROUTE);
            }
        }
        Ok(Some(readings))
    }

    /// Returns the readings of a path that the server has chosen, such as the target of a rewrite, beside the path
    /// itself.
    ///
    /// # Errors
    /// A member could read the path as a path of another route or with other guards.
    pub(crate) fn rewritten_readings(
        &self,
        path: &[u8],
    ) -> Result<Option<Box<PathReadings>>, Reject> {
        let policy = self.policy(path);
        let reader = policy.route().map(|route| route.reader);
        let readings = match reader {
            None | Some(PathReader::Server) => None,
            Some(_) => PathReadings::of_rewritten(path),
        };
        let is_unlike = |readings: &PathReadings| {
            let mut merged = readings.merged();
            merged.any(|other| !policy.is_alike(self.policy(other)))
        };
        match readings {
            Some(readings)
                if matches!(reader, Some(PathReader::Member(_))) && is_unlike(&readings) =>
            {
                Err(Reject::TARGET_PARAMETER)
            }
            readings => Ok(readings),
        }
    }

    /// Returns true if a login guards the whole site.
    pub fn has_login(&self) -> bool {
        let mut guards = self.policy(b"/").guards();
        guards.any(|route| route.users.is_some() && route.guards_method(Method::Get))
    }
}

/// Sites by listener and host name.
#[derive(Clone, Default)]
pub struct Hosts {
    all: Vec<Arc<Host>>,
    /// Names at the addresses of `[server]`.
    names: HostNames,
    /// Names at each listener that serves some sites alone.
    own: Vec<(OwnListener, HostNames)>,
    /// Hosts of the previews. Their indices follow the indices of the sites.
    previews: Vec<PreviewHosts>,
}

/// Indices of the sites by host name.
#[derive(Clone, Default)]
struct HostNames {
    /// Exact names in lower case, sorted.
    exact: Vec<(Box<[u8]>, usize)>,
    /// Wildcard names without their `*`, so beginning with a dot; the longest suffix first.
    suffixes: Vec<(Box<[u8]>, usize)>,
    any: Option<usize>,
}

impl Hosts {
    /// Indexes the names of the sites. The names at a listener are unique: the configuration refuses a name of two sites.
    pub fn new(all: Vec<Arc<Host>>) -> Hosts {
        let mut hosts = Hosts::default();
        for (index, host) in all.iter().enumerate() {
            let preview = host.previews.as_ref().map(|previews| {
                hosts.previews.push(PreviewHosts::new(host, previews));
                (&*previews.name, all.len() + hosts.previews.len() - 1)
            });
            let add = |names: &mut HostNames| {
                for name in &host.names {
                    names.add(name.as_bytes(), index);
                }
                if let Some((name, index)) = preview {
                    names.add(name.as_bytes(), index);
                }
            };
            if host.listeners.is_empty() {
                add(&mut hosts.names);
            }
            for listener in &host.listeners {
                let place = hosts.own.iter().position(|(it, _)| it == listener);
                let place = place.unwrap_or_else(|| {
                    hosts.own.push((*listener, HostNames::default()));
                    hosts.own.len() - 1
                });
                add(&mut hosts.own[place].1);
            }
        }
        hosts.all = all;
        hosts
    }

    /// Returns the site for a host name without port, at a listener; None stands for the addresses of `[server]`. Case does
    /// not matter, and a trailing dot is ignored.
    pub(crate) fn find(&self, listener: Option<OwnListener>, name: &[u8]) -> Option<&Arc<Host>> {
        let names = match listener {
            None => &self.names,
            Some(listener) => &self.own.iter().find(|(it, _)| *it == listener)?.1,
        };
        let index = names.find(name)?;
        match self.all.get(index) {
            Some(host) => Some(host),
            None => {
                let name = name.strip_suffix(b".").unwrap_or(name);
                Some(self.previews[index - self.all.len()].find(name))
            }
        }
    }

    /// Returns every site in the order of the configuration, without the previews.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Host>> + Clone {
        self.all.iter()
    }
}

impl HostNames {
    fn add(&mut self, name: &[u8], index: usize) {
        // Sorted insertion suffices for short lists, and saves the kilobytes of code of a sort.
        match name {
            b"*" => self.any = Some(index),
            [b'*', suffix @ ..] => add_suffix(&mut self.suffixes, suffix, index),
            name => {
                let place = self.exact.partition_point(|(it, _)| **it < *name);
                self.exact.insert(place, (name.into(), index));
            }
        }
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        // Fast path for the common set-up on a small machine: one site for any name.
        if self.exact.is_empty() && self.suffixes.is_empty() {
            return self.any;
        }
        let name = name.strip_suffix(b".").unwrap_or(name);
        let mut lower = [0; 255];
        let index = match lower.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                self.find_lower(lower)
            }
            None => None,
        };
        index.or(self.any)
    }

    fn find_lower(&self, name: &[u8]) -> Option<usize> {
        if let Ok(found) = self
            .exact
            .binary_search_by(|(exact, _)| (**exact).cmp(name))
        {
            return Some(self.exact[found].1);
        }
        self.suffixes
            .iter()
            .find(|(suffix, _)| {
                // The `*` of a wildcard matches one label only, as in certificates (RFC 6125 §6.4.3).
                name.strip_suffix(&**suffix)
                    .is_some_and(|label| !label.is_empty() && !label.contains(&b'.'))
            })
            .map(|(_, index)| *index)
    }
}

/// Adds a wildcard name without its `*`, the longest first.
fn add_suffix(sorted: &mut Vec<(Box<[u8]>, usize)>, suffix: &[u8], index: usize) {
    let place = sorted.partition_point(|(it, _)| it.len() >= suffix.len());
    sorted.insert(place, (suffix.into(), index));
}

/// Hosts of the previews of one site.
#[derive(Clone)]
struct PreviewHosts {
    previews: Arc<Previews>,
    /// Host of all names without an open release, and the host without a login.
    closed: [Arc<Host>; 2],
    /// Hosts of the open releases, with the login and without.
    open: Vec<[Arc<Host>; 2]>,
    has_login: bool,
}

impl PreviewHosts {
    fn new(host: &Host, previews: &Arc<Previews>) -> PreviewHosts {
        let guard = previews.users.as_ref().map(|users| {
            Arc::new(Route {
                prefix: Box::default(),
                target: None,
                allow: None,
                deny: None,
                users: Some(Arc::clone(users)),
                auth: RouteAuth::Inherited,
                any: false,
                guard_methods: None,
                methods: None,
                scripts: None,
                try_end: None,
                has_encoded_slashes: false,
                reader: PathReader::Server,
                counters: Arc::clone(&host.counters),
            })
        });
        let fields = Arc::new(host.secure_fields.with_plain(PREVIEW_FIELDS));
        let rules = host.routes.rules().with_fields(&fields);
        let table = |guard: Option<Arc<Route>>| {
            let routes = guard
                .into_iter()
                .chain(host.routes.routes().iter().cloned());
            Arc::new(RouteTable::new(routes.collect(), rules.clone()))
        };
        let (guarded, plain) = (table(guard), table(None));
        let pair = |site: Option<Arc<Site>>, state: PreviewState| {
            let plain = Host {
                names: vec![previews.name.to_string()],
                canonical: None,
                secure_fields: Arc::clone(&fields),
                routes: plain.clone(),
                site,
                identity: previews.identity.clone(),
                hits: None,
                awaited: None,
                previews: None,
                preview: Some(state),
                ..host.clone()
            };
            let guarded = Host {
                routes: guarded.clone(),
                ..plain.clone()
            };
            [Arc::new(guarded), Arc::new(plain)]
        };
        let closed = pair(None, PreviewState::Closed(Arc::clone(previews)));
        let open = previews.open.iter();
        let open = open.map(|it| {
            let state = PreviewState::Open(it.clone());
            pair(Some(Arc::clone(&it.site)), state)
        });
        PreviewHosts {
            open: open.collect(),
            has_login: closed[0].has_login(),
            closed,
            previews: Arc::clone(previews),
        }
    }

    /// Returns the host for a name of a preview. A name without a release has the host with the login, so that a client
    /// without a login learns nothing about labels.
    fn find(&self, name: &[u8]) -> &Arc<Host> {
        let Some(found) = self.previews.find(name, self.has_login) else {
            return &self.closed[0];
        };
        let mut open = self.previews.open.iter();
        let open = open.position(|it| it.release == found.release);
        let hosts = open
            .and_then(|at| self.open.get(at))
            .unwrap_or(&self.closed);
        &hosts[usize::from(!found.needs_login)]
    }
}

/// Fields of every response of a preview. Search engines and caches must not keep a draft.
const PREVIEW_FIELDS: &[u8] = b"X-Robots-Tag: noindex\r\nCache-Control: no-store\r\n";
