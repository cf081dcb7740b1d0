//! One site of a World: the files, the names and the policies. A site with equal rules is taken over from the previous
//! World, with all loaded files.

use super::guards::guards;
use super::ledger_entries::LedgerEntries;
use super::member_tls::MemberTlsClients;
use super::redirects::SiteRedirects;
use super::resources::SharedResources;
use super::tls::ListenerTls;
use crate::build::limits::USER_FILE_BYTES_MAX;
use crate::config::{self, Config, OperatorError, PlainHttp, Spanned};
use base::atomic_file;
use data_plane::handler::route_handler::CorsPaths;
use data_plane::handler::script::cgi;
use data_plane::hits::SiteHits;
use data_plane::ledger::change_tracker::SiteChangeTracker;
use data_plane::ledger::route_counters::RouteCounters;
use data_plane::site::{
    HeaderRules, ReleaseRules, ReleaseState, SecretPaths, Site, SiteError, SiteRules, Symlinks,
};
use data_plane::world::allow_list::AllowList;
use data_plane::world::own_listener::OwnListener;
use data_plane::world::preview::Previews;
use data_plane::world::query_pattern::QueryPattern;
use data_plane::world::users::Users;
use data_plane::world::{AccessLog, Fallback, Host, RouteTable, SecureFields, TryEnd, World};
use release::glob::Glob;
use release::mime::{MediaPattern, MediaRules};
use release::store::SiteRecords;
use std::path::PathBuf;
use std::sync::Arc;

/// Builder of one site.
pub(super) struct HostBuilder<'b> {
    pub(super) config: &'b Config,
    pub(super) site: &'b config::SiteConfig,
    pub(super) resources: &'b SharedResources,
    pub(super) entries: &'b LedgerEntries<'b>,
    pub(super) member_tls: &'b MemberTlsClients<'b>,
    pub(super) tls: &'b ListenerTls,
    pub(super) previous: Option<&'b World>,
    pub(super) h3_port: Option<u16>,
    /// Files of the server that no site serves.
    pub(super) secrets: SecretPaths,
    /// Fields that servers for forward authentication set.
    pub(super) identity_fields: Arc<[Box<str>]>,
    /// Fields of servers for forward authentication that differ between the requests of one user.
    pub(super) varying_fields: Arc<[Box<str>]>,
    /// Response fields set by the operator for the site.
    pub(super) headers: Arc<HeaderRules>,
    /// Paths with cross-origin access.
    pub(super) cors_paths: CorsPaths,
    pub(super) change_tracker: SiteChangeTracker,
}

impl HostBuilder<'_> {
    pub(super) fn host(&self, server_access: &Option<AccessLog>) -> Result<Host, OperatorError> {
        let site = self.site;
        let names: Vec<String> = site
            .names
            .iter()
            .map(|name| name.get_ref().clone())
            .collect();
        let counters = self.route_counters(b"");
        let routes = site.routes.iter();
        let routes = OperatorError::collect(routes.map(|route| self.route(route, &counters)));
        let release = site.release.as_ref();
        let released = release.map(|it| self.open_release(it)).transpose()?;
        let root = site.root.as_ref();
        // The folder answers until the first release, so a site changes from one to the other without a refusal.
        let root = root.filter(|_| released.as_deref().is_none_or(awaits_first_release));
        let folder = root.map(|root| self.open_site(root, None)).transpose()?;
        let routes = routes?;
        let previews = match release {
            Some(release) => self.previews(release, released.as_deref())?,
            None => None,
        };
        let (files, awaited) = match folder {
            Some(folder) => (Some(folder), released),
            None => (released, None),
        };
        let log = self.entries.site_access(&site.log, server_access);
        let redirects = SiteRedirects::read(self.config, site)?;
        let secure_fields = SecureFields::new(
            site.hsts,
            // HTTP/3 can't request client certificates, so a site with `client_ca` does not announce
            // HTTP/3.
            // The port of HTTP/3 serves none of the sites with `listen`.
            self.h3_port
                .filter(|_| site.client_ca.is_none() && site.listen.is_empty()),
        );
        let request_rules = self.request_rules(&secure_fields)?;
        let host = Host {
            name: site.name.clone(),
            listeners: own_listeners(site),
            // A site with `listen` answers to any name at its port.
            canonical: canonical_name(&names).filter(|_| site.listen.is_empty()),
            http_redirects: site.http == PlainHttp::Redirect,
            hsts: site.hsts.is_some(),
            secure_fields: Arc::new(secure_fields),
            site: files,
            awaited,
            try_end: self.try_end(&site.try_paths),
            redirects: redirects.tables()?,
            routes: Arc::new(RouteTable::new(
                routes.into_iter().map(Arc::new).collect(),
                request_rules,
            )),
            identity: self.tls.identity(self.site, &names),
            demands_certificate: site.client_ca.is_some(),
            access: log,
            hits: self.hits(),
            change_tracker: self.change_tracker.clone(),
            counters,
            names,
            previews: previews.map(Arc::new),
            preview: None,
        };
        redirects.refuse_loops(&host)?;
        Ok(host)
    }

    /// Returns the counters of the responses of the route with `prefix`.
    pub(super) fn route_counters(&self, prefix: &[u8]) -> Arc<RouteCounters> {
        self.entries.route_counters(&self.site.name, prefix)
    }

    /// Returns the end of a `try` of the site or of a route.
    pub(super) fn try_end(&self, paths: &[String]) -> TryEnd {
        TryEnd {
            fallback: self.fallback(paths),
            query: last_try(paths).and_then(|(_, query)| query),
        }
    }

    /// Returns the last entry of `try` if the entry leads to a handler, or to a script with the requested
    /// path appended. A script without an appended path is found like a file.
    fn fallback(&self, paths: &[String]) -> Option<Fallback> {
        let fallback = Fallback::parse(last_try(paths)?.0)?;
        let covers = |route: &&config::RouteConfig| {
            let prefix = route.path.get_ref().trim_end_matches('/').as_bytes();
            let rest = fallback.before.strip_prefix(prefix);
            route.target.is_some() && rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let routes = self.site.routes.iter().filter(covers);
        let route = routes.max_by_key(|route| route.path.get_ref().trim_end_matches('/').len());
        match route.and_then(|route| Some((route, route.target.as_ref()?))) {
            // A fixed page of the site beside the handler is a file.
            Some((route, _)) if route.files_first && !fallback.goes_on => None,
            Some((_, target)) => target.is_handler().then_some(fallback),
            None => (fallback.goes_on && self.is_script(&fallback.before)).then_some(Fallback {
                is_script: true,
                ..fallback
            }),
        }
    }

    /// Returns the entries of a `try` that name files of a folder. `ends` is false if the last entry is a file too.
    pub(super) fn file_tries(&self, paths: &[String], ends: bool) -> Vec<String> {
        let mut tries = paths.to_vec();
        // The query is for scripts only; a file is found by its path.
        if let (Some(last), Some((path, _))) = (tries.last_mut(), last_try(paths)) {
            path.clone_into(last);
        }
        // The last entry of `try` with a response by a handler is no file, even if the handler's program lies in the
        // site.
        if ends && self.fallback(paths).is_some() {
            tries.pop();
        }
        tries
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

    /// Returns true if a path below `prefix` has a guard of its own, beyond the guards of `prefix`.
    pub(super) fn has_guards_below(&self, prefix: &[u8]) -> bool {
        guards(self.site).any(|route| {
            let path = route.path.get_ref().trim_end_matches('/').as_bytes();
            path.starts_with(prefix) && path.len() > prefix.len()
        })
    }

    /// Returns true if a path at, above or below `prefix` is guarded, or if the site demands client
    /// certificates.
    pub(super) fn is_guarded(&self, prefix: &[u8]) -> bool {
        let overlaps = |route: &config::RouteConfig| {
            let other = route.path.get_ref().trim_end_matches('/').as_bytes();
            prefix.starts_with(other) || other.starts_with(prefix)
        };
        self.site.client_ca.is_some() || guards(self.site).any(overlaps)
    }

    pub(super) fn symlinks(&self) -> Symlinks {
        match self.site.symlinks {
            config::SymlinksConfig::Inside => Symlinks::Inside,
            config::SymlinksConfig::Follow => Symlinks::Follow,
        }
    }

    /// Returns the counter of page views, or None for a site without counting.
    fn hits(&self) -> Option<Arc<SiteHits>> {
        self.site
            .hits
            .then(|| self.entries.counts(&self.site.name, None))
    }

    pub(super) fn users(&self, path: &Spanned<PathBuf>) -> Result<Users, OperatorError> {
        read_users(self.config, path)
    }

    pub(super) fn allow(&self, networks: &[Spanned<String>]) -> Result<AllowList, OperatorError> {
        allow_list(self.config, networks)
    }

    /// Opens the files of a folder: the root of the route with the path `mount`, or the site's own root.
    pub(super) fn open_site(
        &self,
        root: &Spanned<PathBuf>,
        mount: Option<&[u8]>,
    ) -> Result<Arc<Site>, OperatorError> {
        let rules = self.rules(SiteRules::new(root.get_ref()), mount)?;
        self.open_or_reuse(rules).map_err(|error| {
            self.config.point(
                root.span(),
                error.to_string(),
                "a folder that the server may read",
            )
        })
    }

    /// Opens the release of the site. A site without a release that can be served answers 503.
    fn open_release(&self, release: &config::ReleaseConfig) -> Result<Arc<Site>, OperatorError> {
        let rules = SiteRules::of_release(release_rules(release, &self.config.server));
        self.open_or_reuse(self.rules(rules, None)?)
            .map_err(|error| {
                let help = "the log names the file of the store";
                self.config
                    .point(release.name.span(), error.to_string(), help)
            })
    }

    /// Returns the previews of the site. All previews are closed, and a request opens a preview.
    fn previews(
        &self,
        release: &config::ReleaseConfig,
        site: Option<&Site>,
    ) -> Result<Option<Previews>, OperatorError> {
        let rules = site.and_then(|site| site.rules().release.as_ref());
        let (Some(name), Some(rules)) = (&release.preview, rules) else {
            return Ok(None);
        };
        let users = release.preview_users.as_ref();
        let users = users.map(|path| self.users(path)).transpose()?;
        // A damaged store must not stop the server. The next change in the store is read anew.
        let records = rules.history().unwrap_or_else(|error| {
            log::error!("the site {} has no previews: {error}", rules.site);
            SiteRecords::default()
        });
        let names = [name.get_ref().clone()];
        Ok(Some(Previews {
            name: name.get_ref().as_str().into(),
            identity: self.tls.identity(self.site, &names),
            users: users.map(Arc::new),
            ids_need_login: !release.publishers.is_empty(),
            records: Arc::new(records),
            open: Vec::new(),
            wanted: Arc::default(),
        }))
    }

    /// Returns a site of the previous World with equal rules, or opens the site.
    fn open_or_reuse(&self, rules: SiteRules) -> Result<Arc<Site>, SiteError> {
        if let Some(same) = self.previous.and_then(|world| world.site_with(&rules)) {
            return Ok(same);
        }
        let release = self.previous.zip(rules.release.as_ref());
        let former = release.and_then(|(world, release)| world.site_of_release(release));
        let budget = self.resources.budget.clone();
        Site::open_after(rules, budget, former.map(|site| &**site)).map(Arc::new)
    }

    /// Completes the rules for a source of files: of the route with the path `mount`, or of the site itself.
    fn rules(
        &self,
        mut rules: SiteRules,
        mount: Option<&[u8]>,
    ) -> Result<SiteRules, OperatorError> {
        let site = self.site;
        rules.symlinks = self.symlinks();
        rules.mime = media_rules(&site.mime);
        for rule in &site.encodings {
            let files = glob(self.config, &rule.files)?;
            rules.encodings.push((files, rule.coding));
        }
        let growing = site.growing.iter();
        rules.growing = growing
            .map(|files| glob(self.config, files))
            .collect::<Result<_, _>>()?;
        // A folder sets no fields of its own.
        rules.has_cors = rules.release.is_some() && !self.cors_paths.is_empty();
        rules.secrets = self.secrets.clone();
        self.set_file_rules(&mut rules, mount)?;
        Ok(rules)
    }
}

/// Returns true if the site has no release that can be served, and never had one. The server has acknowledged no release.
fn awaits_first_release(site: &Site) -> bool {
    let is_missing = matches!(site.release_state(), Some(ReleaseState::Missing));
    let rules = site.rules().release.as_ref();
    is_missing && rules.is_some_and(|rules| rules.acknowledged().is_none())
}

/// Returns the place of a release in the store, and the publishers.
pub fn release_rules(
    release: &config::ReleaseConfig,
    server: &config::ServerConfig,
) -> ReleaseRules {
    let name = release.name.get_ref();
    ReleaseRules {
        store: server.releases_folder(),
        site: name.clone(),
        publishers: release.publishers.clone(),
        site_id: release.site_id.clone(),
        served: server.state.get_ref().join("served").join(name),
        support: release.support,
    }
}

/// Returns the listeners that serve a site with `listen`.
pub(super) fn own_listeners(site: &config::SiteConfig) -> Vec<OwnListener> {
    let addresses = site.listen.iter();
    let addresses = addresses.map(|listener| listener.get_ref().address.address);
    addresses.map(OwnListener::at).collect()
}

/// Returns the name to which requests for other names are redirected; `None` for a site with a wildcard.
fn canonical_name(names: &[String]) -> Option<Box<[u8]>> {
    let name = names.first()?;
    let has_wildcard = names.iter().any(|name| name.starts_with('*'));
    (!has_wildcard).then(|| name.as_bytes().into())
}

/// Reads a user file of the configuration.
pub fn read_users(config: &Config, path: &Spanned<PathBuf>) -> Result<Users, OperatorError> {
    let shown = path.get_ref().display();
    let read = atomic_file::read_bounded(path.get_ref(), USER_FILE_BYTES_MAX);
    let text = read.map_err(|error| {
        if error.kind() == std::io::ErrorKind::PermissionDenied
            && let Some(error) = config::unreadable(config, path)
        {
            return error;
        }
        let what = format!("{shown} can't be read: {error}");
        let help = format!("`anthill passwd {shown} NAME` makes one");
        config.point(path.span(), what, help)
    })?;
    Users::parse(&text).map_err(|error| {
        let what = format!("{shown}:{}: {}", error.line, error.what);
        config.point(
            path.span(),
            what,
            error.help.replace("FILE", &shown.to_string()),
        )
    })
}

/// Parses a list of networks of the configuration.
pub fn allow_list(
    config: &Config,
    networks: &[Spanned<String>],
) -> Result<AllowList, OperatorError> {
    let mut allow = AllowList::default();
    for network in networks {
        allow
            .add(network.get_ref())
            .map_err(|error| config.point(network.span(), error.what, error.help))?;
    }
    Ok(allow)
}

/// Returns the path and the query of the last entry of a `try`.
fn last_try(paths: &[String]) -> Option<(&str, Option<QueryPattern>)> {
    paths.last().map(|last| QueryPattern::split(last))
}

pub(super) fn glob(config: &Config, glob: &Spanned<String>) -> Result<Glob, OperatorError> {
    Glob::parse(glob.get_ref()).map_err(|error| {
        let help = "`*` stands for any part of a name, `?` for one character, `{a,b}` for a or b, `**` for folders";
        config.point(glob.span(), format!("the pattern is invalid: {error}"), help)
    })
}

/// Returns the media types of the configuration in the order of precedence: patterns with a slash, then names and
/// other patterns, the longer ones first. The table of the configuration has no order.
fn media_rules(types: &[(String, String)]) -> MediaRules {
    let mut types: Vec<&(String, String)> = types.iter().collect();
    types.sort_by(|(one, _), (other, _)| {
        let rank = |key: &str| (!key.contains('/'), std::cmp::Reverse(key.len()));
        rank(one).cmp(&rank(other)).then_with(|| one.cmp(other))
    });
    let rules = types.into_iter().filter_map(|(key, media)| {
        let pattern = if config::is_ending(key) {
            MediaPattern::Ending(key.clone())
        } else {
            // The reader of the configuration has refused invalid patterns.
            MediaPattern::Files(Glob::parse(key).ok()?)
        };
        Some((pattern, media.clone()))
    });
    rules.collect()
}

/// Returns the file endings of the scripts with their dots.
pub(super) fn endings(scripts: &config::ScriptsConfig) -> Box<dyn Iterator<Item = &String> + '_> {
    match scripts {
        config::ScriptsConfig::Cgi { interpreters, .. } => {
            Box::new(interpreters.iter().map(|it| &it.ending))
        }
        config::ScriptsConfig::Backend(backend) => Box::new(backend.files.iter()),
    }
}
