//! `[[site]]`: names, files, certificate and policies of a site.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::auth_table::RouteAuthConfig;
use crate::config::balancer::BalancerConfig;
use crate::config::declared_table::{DeclaredTable, ShownValue, declare_table};
use crate::config::error::OperatorError;
use crate::config::file_rules::{
    CacheControlConfig, CacheRules, EncodingConfig, EncodingRules, ErrorPages, HeaderRules,
    HeadersConfig, HideGlobs, MediaTypes, hsts_of_rules,
};
use crate::config::log_table::{SiteLogConfig, SiteLogTable};
use crate::config::paths;
use crate::config::proxy_table::{BalancerRef, ProxyConfig};
use crate::config::redirect_table::{self, RedirectKeys};
use crate::config::release_table::{self, ReleaseConfig, ReleaseKeys};
use crate::config::request_table::{self, RequestKeys};
use crate::config::route_table::{RouteConfig, Routes, TargetConfig};
use crate::config::server_table::ServerConfig;
use crate::config::site_listener::SiteListener;
use crate::config::site_paths::{FileName, TryPaths};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText, TableReader};
use crate::config::value_types::{Seconds, SiteName};
use data_plane::ledger::client_rate::RateLimit;
use data_plane::world::cors::CorsSettings;
use release::redirect_map::MappedRedirect;
use wire::request_target::is_below;

/// Default `root` of a `[[site]]`.
pub const DEFAULT_ROOT: &str = "public";
/// Seconds of `hsts = true`: one year, the value in the examples of RFC 6797 §6.1.1 and of the preload
/// lists.
pub const HSTS_SECONDS: u64 = 31_536_000;

declare_table! {
    /// Keys of `[[site]]`.
    pub(super) struct SiteTable: "[[site]]" {
        /// Host names. The first name is canonical; the other names redirect to it. `"*.example.org"` means any single
        /// label below, `"*"` any name. Two sites cannot share a name.
        names: SiteNames = optional("`[\"*\"]`"),
            also ["name", "domain", "domains", "host", "hosts", "hostname", "server_name", "server_names", "ServerName"],
            example "[\"www.example.org\", \"example.org\"]";
        /// Addresses that serve the site alone, such as `"https://:8001"` or `"http://127.0.0.1:8002"`; without a scheme,
        /// for HTTPS. See [sites by port](sites.md#sites-by-port).
        listen: Vec<Spanned<SiteListener>> = optional("the addresses of `[server]`"), also ["port", "bind", "Listen"],
            example "[\"https://:8001\"]";
        /// Served folder.
        root: PathBuf = optional("`\"public\"`"),
            also ["document_root", "DocumentRoot", "webroot", "folder", "dir", "directory", "path", "www"],
            example "\"/srv/www\"";
        /// Behaviour of plain HTTP: `"redirect"` to HTTPS, or `"serve"`.
        http: PlainHttp = default(PlainHttp::Redirect), example "\"serve\"";
        /// Files for a folder; the first existing file is served.
        index: Vec<FileName> = default(vec![FileName("index.html".to_owned())]), also ["DirectoryIndex"],
            example "[\"index.html\", \"index.php\"]";
        /// Paths to look for, in order. `"$path.html"` makes clean URLs; `"/index.html"` at the end suits a single-page
        /// application. Responses of a route's [script](cgi.md) or of a [member](proxy.md) may stand in the list too,
        /// and the last path may have [a query](cgi.md#query-of-a-rewrite).
        r#try: TryPaths = default(TryPaths::default()), example "[\"$path\", \"$path.html\"]";
        /// Pages by status: `{ 404 = "not-found.html" }`, relative to the root; see
        /// [error pages](sites.md#error-pages-and-response-fields).
        errors: ErrorPages = optional("none"), also ["error_page", "error_pages", "handle_errors", "ErrorDocument"],
            example "{ 404 = \"not-found.html\" }";
        /// Listing of a folder without index file, as HTML, or as JSON to a client that prefers JSON.
        listing: bool = default(false), also ["autoindex", "browse", "file_server", "directory_listing", "Indexes"],
            example "true";
        /// Files and folders that no client gets, by [globs](sites.md#files-by-glob): a request gets 404. `[]` hides none. See
        /// [hidden files](sites.md#hidden-files).
        hide: HideGlobs = default(HideGlobs::default()), also ["hidden", "exclude", "ignore", "deny_files"],
            example "[\"*~\", \"*.bak\"]";
        /// Symbolic links to follow: `"inside"` links within the root, `"follow"` all links.
        symlinks: SymlinksConfig = default(SymlinksConfig::Inside), also ["disable_symlinks", "FollowSymLinks"],
            example "\"follow\"";
        /// PEM file with the certificate chain, and with the key unless `key` is set.
        certificate: PathBuf = optional("self-signed"),
            also ["ssl_certificate", "cert", "pem", "SSLCertificateFile"],
            example "\"/etc/anthill/example.org.pem\"";
        /// PEM file with the key.
        key: PathBuf = optional("in `certificate`"), also ["ssl_certificate_key", "private_key", "SSLCertificateKeyFile"],
            example "\"/etc/anthill/example.org.key\"";
        /// PEM file of authorities for required [client certificates](tls.md#client-certificates); not with
        /// `http = "serve"`.
        client_ca: PathBuf = optional("none"), also ["ssl_client_certificate", "client_auth", "SSLCACertificateFile"],
            example "\"clients-ca.pem\"";
        /// `Strict-Transport-Security`: `true` (one year) or a duration.
        hsts: Hsts = default(Hsts(None)), example "\"180d\"";
        /// Media types by ending, name or [glob](sites.md#media-types): `{ ".wasm" = "application/wasm" }`, before the
        /// built-in types.
        mime: MediaTypes = optional("none"), also ["types", "mime_types", "AddType", "default_type"],
            example "{ \".wasm\" = \"application/wasm\" }";
        /// Codings of files that are [compressed on disk](sites.md#compressed-files):
        /// `{ files = "*.js.gz", set = "gzip" }`. The first matching rule applies; `.svgz` has gzip without a rule.
        encodings: EncodingRules = optional("none"), also ["AddEncoding", "encoding", "content_encoding"],
            example "[{ files = \"*.js.gz\", set = \"gzip\" }]";
        /// Rules for `Cache-Control`: `{ files = "*.jpg", max_age = "30d" }`, optionally with `immutable = true`, and
        /// `"hashed"` for [names with a hash](sites.md#cache-control). The first matching rule applies; a file without a
        /// rule has no such field.
        cache: CacheRules = optional("none"), also ["expires", "cache_control", "ExpiresByType"],
            example "[{ files = \"*.jpg\", max_age = \"30d\" }]";
        /// Added fields: `{ files = "*", set = { "X-Content-Type-Options" = "nosniff" } }`. All matching rules apply,
        /// to files and to [scripts](sites.md#error-pages-and-response-fields). Fields under control of the server
        /// (`Content-Length`, `Date`, …) cannot be set.
        headers: HeaderRules = optional("none"), also ["header", "add_header", "Header"],
            example "[{ files = \"*\", set = { \"X-Content-Type-Options\" = \"nosniff\" } }]";
        /// Files that processes append to, such as logs, by [globs](sites.md#files-by-glob). While a process has such a
        /// file open for writing, a response has the length at the time of the request. See
        /// [open files](changes.md#files-that-stay-open).
        growing: Vec<Spanned<String>> = default(Vec::new()),
            also ["append", "logs", "tail"], example "[\"*.log\"]";
        /// Counting of page views; see [Hit counts](hits.md).
        hits: bool = default(true), example "false";
        /// Access log for the site alone, or [a table](#log-of-a-site) with its format and skipped lines.
        log: SiteLogTable = optional("the server's"), also ["access_log", "CustomLog"],
            example "\"/var/log/anthill/www.log\"";
        /// Tables of [routes](#siteroute).
        route: Routes = optional("none"), also ["routes", "location", "locations", "Location"],
            example "[{ path = \"/old/\", redirect = \"/new/\" }]";
        ..release: ReleaseKeys;
        ..redirects: RedirectKeys;
        ..requests: RequestKeys;
    }
}

/// Settings of one `[[site]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Span of the site's table header in the file.
    pub span: Range<usize>,
    /// Host names in lower case: exact names, `*.example.org` or `*`. The first name is the canonical name.
    pub names: Vec<Spanned<String>>,
    /// Addresses that serve the site; empty for the addresses of `[server]`.
    pub listen: Vec<Spanned<SiteListener>>,
    /// Name of the site in logs, counters, caches and commands: the first host name, with the address for a site with
    /// `listen`.
    pub name: String,
    /// Folder of the site's files; `None` with a release, or when a route answers for `/`.
    pub root: Option<Spanned<PathBuf>>,
    /// Release with the site's files; `None` for a folder.
    pub release: Option<ReleaseConfig>,
    /// Response to requests over plain HTTP.
    pub http: PlainHttp,
    /// Span of the value of `http` in the file; empty for the default.
    pub http_span: Range<usize>,
    /// Names of index files in order of preference.
    pub index: Vec<String>,
    /// Paths to try in order: `$path` with a prefix or a suffix, or a fixed path of the site.
    pub try_paths: Vec<String>,
    /// Error pages: a status, and a path of the site relative to the root.
    pub errors: Vec<(u16, Spanned<String>)>,
    /// Whether the server lists folders without an index file.
    pub listing: bool,
    /// Globs of the files and folders that no client gets.
    pub hide: Vec<String>,
    /// Whether the file has the key `hide`, so that the operator has decided about all doubtful files.
    pub has_own_hide: bool,
    /// Policy for symbolic links.
    pub symlinks: SymlinksConfig,
    /// Certificate chain (PEM); `None` = an automatic or a self-signed certificate.
    pub certificate: Option<Spanned<PathBuf>>,
    /// Private key of the certificate; `None` = the key is in the file of the certificate.
    pub key: Option<Spanned<PathBuf>>,
    /// CA certificates for client certificates. If set, every client needs a certificate signed by a CA of
    /// the file.
    pub client_ca: Option<Spanned<PathBuf>>,
    /// `max-age` of Strict-Transport-Security in seconds.
    pub hsts: Option<u64>,
    /// Media types by ending with its dot, by name, or by glob.
    pub mime: Vec<(String, String)>,
    /// Codings of files that are compressed on disk; the first matching rule applies.
    pub encodings: Vec<EncodingConfig>,
    /// Rules for Cache-Control by file; the first matching rule applies.
    pub cache: Vec<CacheControlConfig>,
    /// Patterns of files that processes append to.
    pub growing: Vec<Spanned<String>>,
    /// Rules for response fields by file; all matching rules apply.
    pub headers: Vec<HeadersConfig>,
    /// Whether page views are counted.
    pub hits: bool,
    /// Access log of the site.
    pub log: SiteLogConfig,
    /// Redirects of `redirects` in the order of the file, each with the position of its path.
    pub redirects: Vec<Spanned<MappedRedirect>>,
    /// File with further redirects.
    pub redirect_map: Option<Spanned<PathBuf>>,
    /// Request rate of each client.
    pub rate: Option<Spanned<RateLimit>>,
    /// Cross-origin access.
    pub cors: Option<CorsSettings>,
    /// Routes (`[[site.route]]`) in the order of the file.
    pub routes: Vec<RouteConfig>,
}

impl SiteConfig {
    /// Returns all host names: the names of the site, and the name of the previews.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = &Spanned<String>> {
        let preview = self.release.as_ref().and_then(|it| it.preview.as_ref());
        self.names.iter().chain(preview)
    }

    /// Returns the names by which other tables and commands may call the site.
    pub(crate) fn called(&self) -> impl Iterator<Item = &str> {
        // Any number of sites with `listen` have the name `*`.
        let names = self.names.iter().map(|name| name.get_ref().as_str());
        let names = names.filter(|name| self.listen.is_empty() || *name != "*");
        let own = (!self.listen.is_empty()).then_some(self.name.as_str());
        own.into_iter().chain(names)
    }

    /// Returns true if `name` is a name of the site.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.called().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Returns true if the site has addresses of its own.
    pub(crate) fn has_own_listeners(&self) -> bool {
        !self.listen.is_empty()
    }

    /// Returns the addresses in `listen` that speak TLS.
    pub(crate) fn secure_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let listeners = self.listen.iter().map(Spanned::get_ref);
        listeners
            .filter(|it| it.secure)
            .map(|it| it.address.address)
    }

    /// Returns true if the site is served over HTTPS.
    pub(crate) fn is_served_by_https(&self, server: &ServerConfig) -> bool {
        if self.has_own_listeners() {
            self.listen.iter().any(|listener| listener.get_ref().secure)
        } else {
            !server.https.is_empty()
        }
    }

    /// Returns the user file of the previews.
    pub(crate) fn preview_users(&self) -> Option<&Spanned<PathBuf>> {
        self.release.as_ref()?.preview_users.as_ref()
    }

    /// Returns the name of the balancer of a route with `proxy`, from the path of the route.
    pub(crate) fn own_balancer_name(&self, path: &str) -> String {
        let site = &self.name;
        format!("{site}{}/", path.trim_end_matches('/'))
    }
}

impl SiteConfig {
    /// Returns the names in `balance` of all routes.
    pub(super) fn named_balancers(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.routes.iter().filter_map(|route| match &route.target {
            Some(TargetConfig::Proxy(ProxyConfig {
                balancer: BalancerRef::Named(name),
                ..
            })) => Some(name),
            _ => None,
        })
    }

    /// Returns the balancers of all routes with `proxy`, and those of their servers for forward authentication.
    pub(super) fn own_balancers(&self) -> impl Iterator<Item = &BalancerConfig> {
        let proxied = self.routes.iter().filter_map(|route| match &route.target {
            Some(TargetConfig::Proxy(ProxyConfig {
                balancer: BalancerRef::Own(balancer),
                ..
            })) => Some(&**balancer),
            _ => None,
        });
        let servers = self.routes.iter().filter_map(RouteConfig::auth_server);
        proxied.chain(servers.map(|auth| &auth.balancer))
    }

    /// Returns the routes with a server for forward authentication that decides about a path.
    pub(super) fn auths_of(&self, path: &str) -> impl Iterator<Item = &RouteConfig> {
        let prefix = |route: &RouteConfig| route.path.get_ref().trim_end_matches('/').len();
        let covering = move || {
            let routes = self.routes.iter();
            routes.filter(move |route| {
                let prefix = route.path.get_ref().trim_end_matches('/').as_bytes();
                is_below(path.as_bytes(), prefix)
            })
        };
        let turned_off = covering().filter(|route| route.auth == Some(RouteAuthConfig::Off));
        let turned_off = turned_off.map(prefix).max();
        covering().filter(move |route| {
            let is_covered = turned_off.is_some_and(|length| prefix(route) <= length);
            route.auth_server().is_some() && !is_covered
        })
    }
}

/// Response of a site to requests over plain HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// A redirect to HTTPS.
    #[default]
    Redirect,
    /// The content, as over HTTPS.
    Serve,
}

/// Policy for symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinksConfig {
    /// The server follows links to targets inside the root.
    #[default]
    Inside,
    /// The server follows all links.
    Follow,
}

/// Responses over plain HTTP by name, in the order of [`PlainHttp`].
const PLAIN: [(&str, PlainHttp); 2] = [
    ("redirect", PlainHttp::Redirect),
    ("serve", PlainHttp::Serve),
];
/// Policies for links by name, in the order of [`SymlinksConfig`].
const LINKS: [(&str, SymlinksConfig); 2] = [
    ("inside", SymlinksConfig::Inside),
    ("follow", SymlinksConfig::Follow),
];

/// Converts the table of a site. Errors are recorded. A site with an error in its table has the values that
/// could be read, and neither the default root nor an error about a combination of keys.
pub(super) fn site(mut table: TableReader<'_, '_>) -> Result<SiteConfig, OperatorError> {
    let source = table.source();
    let span = table.span.clone();
    let keys = SiteTable::take(&mut table);
    let is_whole = table.finish().is_ok();
    let keys = keys?;
    let routes = keys.route.map(|routes| routes.into_inner().0);
    let routes = routes.unwrap_or_default();
    let release = source
        .keep(keys.release.settings(source, is_whole))
        .flatten();
    let is_answered = |route: &RouteConfig| {
        route.path.get_ref() == "/" && route.target.is_some() && !route.files_first
    };
    let root = match keys.root {
        Some(root) => Some(root),
        None if !is_whole || release.is_some() || routes.iter().any(is_answered) => None,
        None => Some(Spanned::new(
            span.clone(),
            paths::join(source.folder, DEFAULT_ROOT),
        )),
    };
    if let Some(release) = release.as_ref().filter(|_| is_whole) {
        let written = |span: Range<usize>| (!span.is_empty()).then_some(span);
        let others = [
            ("symlinks", written(keys.symlinks.span())),
            ("hide", written(keys.hide.span())),
        ];
        let has_root = root.is_some();
        let folders =
            release_table::refuse_keys_of_folders(source, release, others, has_root, &routes);
        source.keep(folders);
    }
    if root.is_none() && release.is_none() && is_whole {
        source.keep(refuse_keys_without_folder(source, &routes));
    }
    if let (None, Some(key), true) = (&keys.certificate, &keys.key, is_whole) {
        let what = "the site has a `key` but no `certificate`";
        let help = "add certificate = \"…\", the chain for the key";
        source.report(source.error(key.span(), what, help));
    }
    let names = keys.names.map(|names| names.into_inner().0);
    let names = names.unwrap_or_else(|| vec![Spanned::new(0..0, "*".to_owned())]);
    let listen = keys.listen.map(Spanned::into_inner);
    if listen.as_ref().is_some_and(Vec::is_empty) {
        let what = "`listen` is empty";
        let help = "write an address such as \"https://:8001\", or remove the key";
        source.report(source.error(span.clone(), what, help));
    }
    let listen = listen.unwrap_or_default();
    let (mut http, http_span) = (*keys.http.get_ref(), keys.http.span());
    if !listen.is_empty() {
        if !http_span.is_empty() && is_whole {
            let what = "`http` has no meaning for a site with `listen`";
            let help =
                "remove `http`: the addresses in `listen` say what is served over plain HTTP";
            source.report(source.error(http_span.clone(), what, help));
        }
        http = PlainHttp::Serve;
    }
    let mut headers = keys
        .headers
        .map_or_else(Vec::new, |rules| rules.into_inner().0);
    let mut hsts = keys.hsts.into_inner().0;
    hsts_of_rules(source, &mut headers, &mut hsts);
    Ok(SiteConfig {
        name: own_name(&names, &listen),
        names,
        listen,
        root,
        release,
        http,
        http_span,
        index: keys.index.into_inner().into_iter().map(|it| it.0).collect(),
        try_paths: keys.r#try.into_inner().0,
        errors: keys
            .errors
            .map_or_else(Vec::new, |pages| pages.into_inner().0),
        listing: keys.listing.into_inner(),
        has_own_hide: !keys.hide.span().is_empty(),
        hide: keys.hide.into_inner().0,
        symlinks: keys.symlinks.into_inner(),
        certificate: keys.certificate,
        key: keys.key,
        client_ca: keys.client_ca,
        hsts,
        mime: keys
            .mime
            .map_or_else(Vec::new, |types| types.into_inner().0),
        encodings: keys
            .encodings
            .map_or_else(Vec::new, |rules| rules.into_inner().0),
        cache: keys
            .cache
            .map_or_else(Vec::new, |rules| rules.into_inner().0),
        growing: keys.growing.into_inner(),
        headers,
        hits: keys.hits.into_inner(),
        log: keys.log.map_or_else(SiteLogConfig::default, |log| {
            log.into_inner().settings(source)
        }),
        redirects: redirect_table::redirects(source, keys.redirects.redirects),
        redirect_map: keys.redirects.redirect_map,
        rate: request_table::rate_limit(keys.requests.rate),
        cors: source
            .keep(request_table::cors_settings(source, keys.requests.cors))
            .flatten(),
        routes,
        span,
    })
}

/// Refuses keys about files in the routes of a site without a folder.
fn refuse_keys_without_folder(
    source: &SourceText<'_>,
    routes: &[RouteConfig],
) -> Result<(), OperatorError> {
    let is_own = |route: &&RouteConfig| route.target.is_none() || route.files_first;
    let keys = routes.iter().filter(is_own);
    let keys = keys.flat_map(|route| route.file_keys.iter().cloned());
    let help = "add root = \"public\" to the [[site]], above its first [[site.route]]";
    source.refuse_useless(keys, "without a folder of the site", help)
}

/// Returns the name of a site in logs, counters, caches and commands, which no other site has.
fn own_name(names: &[Spanned<String>], listen: &[Spanned<SiteListener>]) -> String {
    let name = names.first().map_or("*", |name| name.get_ref());
    match listen.first() {
        None => name.to_owned(),
        Some(listener) => {
            let address = listener.get_ref().short();
            let port = address.strip_prefix(':').map(|_| address.as_str());
            match (name, port) {
                ("*", _) => address,
                (name, Some(port)) => format!("{name}{port}"),
                (name, None) => format!("{name}@{address}"),
            }
        }
    }
}

/// Names of a site, at least one.
#[derive(Clone, Debug)]
pub(super) struct SiteNames(Vec<Spanned<String>>);

impl FromToml for SiteNames {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let (source, span) = (item.source, item.value.span());
        let names: Vec<Spanned<SiteName>> = FromToml::read(item)?;
        if names.is_empty() {
            let help = "write the name of the site, or \"*\" for every name";
            return Err(source.error(span, "`names` is empty", help));
        }
        let names = names.into_iter();
        let names = names.map(|name| Spanned::new(name.span(), name.into_inner().0));
        Ok(SiteNames(names.collect()))
    }
}

/// `max-age` of Strict-Transport-Security in seconds; `None` for `false`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hsts(Option<u64>);

impl FromToml for Hsts {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.value.get_ref().as_bool() {
            Some(true) => Ok(Hsts(Some(HSTS_SECONDS))),
            Some(false) => Ok(Hsts(None)),
            None if item.text().is_none() && !item.value.get_ref().is_integer() => {
                Err(item.mistyped("true, false or a duration", "\"365d\""))
            }
            None => Seconds::read(item).map(|seconds| Hsts(Some(seconds.0))),
        }
    }
}

impl ShownValue for Hsts {
    fn shown(&self) -> String {
        self.0
            .map_or_else(|| "false".to_owned(), |seconds| Seconds(seconds).shown())
    }
}

impl FromToml for PlainHttp {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let value = item.value.get_ref();
        let is_port = item.text().is_some_and(|text| text.contains(':'));
        if is_port || value.is_array() || value.is_integer() {
            let what = "`http` of a site must be \"redirect\" or \"serve\"";
            return Err(item.refuse(what, item.source.listen_help("http", &item.value)));
        }
        item.word(&PLAIN)
    }
}

impl ShownValue for PlainHttp {
    fn shown(&self) -> String {
        format!("\"{}\"", PLAIN[*self as usize].0)
    }
}

impl FromToml for SymlinksConfig {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&LINKS)
    }
}

impl ShownValue for SymlinksConfig {
    fn shown(&self) -> String {
        format!("\"{}\"", LINKS[*self as usize].0)
    }
}
