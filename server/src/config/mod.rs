//! Configuration: the typed form of `anthill.toml`.
//!
//! A value that a later stage may refuse, for example an address in use or a certificate that does not
//! match its key, keeps its span in the file. [`Config::point`] makes an error with the line of the value.
//! All paths are absolute. The module opens no socket and serves no file. [`check`] only reads the file
//! system.

mod unix_account;
mod acme;
mod balancer;
mod balancer_table;
mod check;
mod connection_table;
mod declared_table;
mod deploy;
mod error;
mod field_variables;
mod foreign_words;
mod manager_table;
mod member_url;
mod proxy_table;
mod proxy_values;
mod redirect_table;
mod release_table;
mod request_table;
mod scripts;
mod suggestion;
mod paths;
mod toml_reader;
mod schema;
mod secret_paths;
mod value_types;
mod values;

#[cfg(test)]
mod proxy_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::client_rate::RateLimit;
use crate::limits::Limits;
use crate::world::cors::CorsSettings;
use crate::world::method_set::MethodSet;

pub use crate::config::paths::{ConfigSource, Overrides, control_sockets, prepare_folder, reason};
pub use crate::config::suggestion::suggest;
pub use crate::config::unix_account::UnixAccount;
pub use crate::wire::redirect_map::MappedRedirect;
pub use acme::{AcmeConfig, ChallengeType, EabConfig, ManagedCertificate};
pub use balancer::{BalancerConfig, listener_of, read_balancer};
pub use check::check;
pub use deploy::{Deployment, DeploymentTarget, RootState, deployed_folder, inspect_root};
pub use error::OperatorError;
pub use manager_table::{ManagerConfig, speaks_tls};
pub use member_url::{parse_member_url, shown_url};
pub use proxy_table::{BalancerRef, ProxyConfig};
pub use redirect_table::RouteRedirectConfig;
pub use toml::Spanned;
pub use values::{ListenAddress, parse_bytes, parse_duration, parse_seconds};

/// Usual name of the configuration file, looked up in a folder given instead of a file.
pub const FILE_NAME: &str = "anthill.toml";
/// Default `root` of a `[[site]]`.
pub const DEFAULT_ROOT: &str = "public";
/// Seconds of `hsts = true`: one year, the value in the examples of RFC 6797 §6.1.1 and of the preload
/// lists.
pub const HSTS_SECONDS: u64 = 31_536_000;
/// Default of `stale_if_error` in seconds, for a route with `seconds`: the time for which a stored page
/// replaces the response of a failing handler.
pub const STALE_IF_ERROR_SECONDS: u64 = 3_600;

/// Complete configuration, with all defaults filled in.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    /// Absolute path of the file; `None` for a folder served without a file.
    pub path: Option<PathBuf>,
    /// Absolute folder that relative paths are resolved against.
    pub folder: PathBuf,
    /// Name of the file as the operator typed the name, for messages.
    pub shown: String,
    /// Text of the file, indexed by the spans.
    pub source: Arc<str>,
    /// Settings of `[server]`.
    pub server: ServerConfig,
    /// Settings of `[log]`.
    pub log: LogConfig,
    /// Settings of `[tls]`.
    pub tls: TlsConfig,
    /// Sites (`[[site]]`) in the order of the file; at least one.
    pub sites: Vec<SiteConfig>,
    /// Balancers (`[[balancer]]`) in the order of the file, each with its own name.
    pub balancers: Vec<BalancerConfig>,
    /// Settings of `[manager]`; `None` = no manager.
    pub manager: Option<ManagerConfig>,
}

/// Settings of `[server]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses for HTTPS. `https` and `http` are never both empty.
    pub https: Vec<Spanned<ListenAddress>>,
    /// Addresses for plain HTTP.
    pub http: Vec<Spanned<ListenAddress>>,
    /// Whether clients may use HTTP/2 without TLS with prior knowledge (RFC 9113 §3.3).
    pub h2c: bool,
    /// HTTP/3 beside HTTPS; `None` = if possible.
    pub http3: Option<Spanned<bool>>,
    /// HTTPS port in the URLs of redirects; `None` = the port of the first HTTPS address.
    pub public_port: Option<u16>,
    /// Number of worker threads; `None` = one per core.
    pub workers: Option<Spanned<usize>>,
    /// Account of the process after binding.
    pub user: Option<Spanned<String>>,
    /// Memory for contents and caches in bytes; `None` = chosen by the memory of the machine.
    pub memory_max: Option<u64>,
    /// State folder: self-signed certificates, ticket keys and other state.
    pub state: Spanned<PathBuf>,
    /// Store of releases; `None` = the folder `releases` in the state folder.
    pub releases: Option<Spanned<PathBuf>>,
    /// Path of the control socket, never longer than a socket address can hold.
    pub control: Spanned<PathBuf>,
    /// Limits set by the operator.
    pub limits: Limits,
    /// Networks of proxies in front of the server.
    pub trust: Vec<Spanned<String>>,
}

/// Settings of `[log]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Destination of the access log.
    pub access: Spanned<LogTarget>,
    /// Destination of the error log.
    pub errors: Spanned<LogTarget>,
    /// Format of the lines of the access log.
    pub format: LogFormat,
}

/// Destination of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogTarget {
    /// The log is discarded.
    Off,
    /// Standard output, `-`.
    Stdout,
    /// Standard error.
    Stderr,
    /// Absolute path of a file to append to.
    File(PathBuf),
}

/// Format of a line of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Combined log format, the common format of log tools.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// Settings of `[tls]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Oldest accepted version of TLS.
    pub min_version: TlsVersion,
    /// Names of the cipher suites in order of preference; `None` = chosen by the hardware.
    pub ciphers: Option<Vec<Spanned<String>>>,
    /// File with ticket keys shared with other nodes; `None` = own keys in the state folder.
    pub tickets: Option<Spanned<PathBuf>>,
    /// Automatic certificates (ACME); `None` = none.
    pub acme: Option<AcmeConfig>,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Settings of one `[[site]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Span of the site's table header in the file.
    pub span: Range<usize>,
    /// Host names in lower case: exact names, `*.example.org` or `*`. The first name is the canonical name.
    pub names: Vec<Spanned<String>>,
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
    /// Media types by file ending, the ending with its dot.
    pub mime: Vec<(String, String)>,
    /// Rules for Cache-Control by file; the first matching rule applies.
    pub cache: Vec<CacheControlConfig>,
    /// Rules for response fields by file; all matching rules apply.
    pub headers: Vec<HeadersConfig>,
    /// Whether page views are counted.
    pub hits: bool,
    /// Access log of the site; `None` = the access log of the server.
    pub log: Option<Spanned<LogTarget>>,
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

/// Release of a site (`release`, `publishers`, `preview` and `preview_users`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseConfig {
    /// Name of the site in the store.
    pub name: Spanned<String>,
    /// Ed25519 public keys of the publishers. Empty = an unsigned pointer is accepted.
    pub publishers: Vec<[u8; 32]>,
    /// Wildcard name of the previews, such as `*.preview.example.org`; `None` = no previews.
    pub preview: Option<Spanned<String>>,
    /// File of the users that may see previews by their labels.
    pub preview_users: Option<Spanned<PathBuf>>,
}

impl SiteConfig {
    /// Returns all host names: the names of the site, and the name of the previews.
    pub fn all_names(&self) -> impl Iterator<Item = &Spanned<String>> {
        let preview = self.release.as_ref().and_then(|it| it.preview.as_ref());
        self.names.iter().chain(preview)
    }

    /// Returns the user file of the previews.
    pub fn preview_users(&self) -> Option<&Spanned<PathBuf>> {
        self.release.as_ref()?.preview_users.as_ref()
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

/// Rule of `cache` of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheControlConfig {
    /// Glob pattern of the files.
    pub files: Spanned<String>,
    /// `max-age` of Cache-Control in seconds.
    pub max_age: u64,
    /// Whether Cache-Control also has `immutable` (RFC 8246).
    pub immutable: bool,
}

/// Rule of `headers` of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadersConfig {
    /// Glob pattern of the files.
    pub files: Spanned<String>,
    /// Names and values of response fields, valid on the wire.
    pub set: Vec<(String, String)>,
}

/// Settings of one `[[site.route]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// Span of the route's table header in the file.
    pub span: Range<usize>,
    /// Decoded path prefix, beginning with `/`.
    pub path: Spanned<String>,
    /// Target of requests below the path; a route without target only guards.
    pub target: Option<TargetConfig>,
    /// Networks of permitted clients; `None` = all networks, an empty list = no network.
    pub allow: Option<Vec<Spanned<String>>>,
    /// Networks of refused clients; an address of both `allow` and `deny` is refused.
    pub deny: Option<Vec<Spanned<String>>>,
    /// Password file with the permitted users.
    pub users: Option<Spanned<PathBuf>>,
    /// Methods to which `allow` and `users` apply; `None` = all methods.
    pub guard_methods: Option<MethodSet>,
    /// Methods that are answered; `None` = all methods.
    pub methods: Option<MethodSet>,
    /// Largest content of a request to a handler in bytes; `None` = the limit `body_bytes`.
    pub body_bytes: Option<u64>,
    /// Request rate of each client.
    pub rate: Option<Spanned<RateLimit>>,
    /// Cross-origin access.
    pub cors: Option<CorsSettings>,
    /// Rule that runs some of the site's files instead of sending the files.
    pub scripts: Option<ScriptsConfig>,
    /// Page cache for the responses of the handler.
    pub cache: Option<PageCacheConfig>,
    /// Whether paths with an encoded slash (`%2F`) reach the members of a proxied route.
    pub encoded_slash: bool,
}

/// Rule that runs files of a site, selected by file ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptsConfig {
    /// CGI: a program is started for each request.
    Cgi {
        /// Programs by file ending; at least one.
        interpreters: Vec<InterpreterConfig>,
        /// Environment variables in addition to the variables of the request.
        variables: Vec<(String, String)>,
    },
    /// A FastCGI or SCGI backend.
    Backend(BackendConfig),
}

/// Settings of a FastCGI or SCGI backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Whether the protocol of the backend is SCGI; otherwise FastCGI.
    pub is_scgi: bool,
    /// Address of the backend.
    pub address: Spanned<BackendAddressConfig>,
    /// File endings of the site's files that the backend runs. If empty, the backend answers for all paths
    /// below the route's path.
    pub files: Vec<String>,
    /// Whether the operator set `files = "*"`.
    pub takes_all: bool,
    /// Maximum number of connections, all kept open for reuse. With 0, each connection is closed after its
    /// request. With `None`, a connection is handed over to a call that waits or arrives within a few
    /// milliseconds.
    pub keep: Option<usize>,
    /// Path of the site's root on the backend; `None` = the path of the root on the server.
    pub script_root: Option<String>,
    /// Variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
}

/// Address of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendAddressConfig {
    /// Absolute path of a Unix socket.
    Unix(PathBuf),
    /// IP address and port.
    Tcp(std::net::SocketAddr),
}

/// Interpreter for files with one ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterConfig {
    /// File ending with its dot.
    pub ending: String,
    /// Program, started with the path of the file as its argument.
    pub program: Spanned<PathBuf>,
}

/// Settings of a folder of CGI scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiConfig {
    /// Folder of the scripts.
    pub folder: Spanned<PathBuf>,
    /// Interpreters by file ending. Scripts with another ending are started directly.
    pub interpreters: Vec<InterpreterConfig>,
    /// Environment variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
}

/// Settings of a folder of git repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitConfig {
    /// Folder of the repositories.
    pub folder: Spanned<PathBuf>,
    /// Whether repositories without `git-daemon-export-ok` are exported too.
    pub exports_all: bool,
    /// Whether logged-in users may push.
    pub push: bool,
    /// Whether browsers can read the repositories as pages.
    pub pages: bool,
    /// Environment variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
    /// Branches deployed to the folders of sites.
    pub deploy: Vec<DeployConfig>,
}

/// Deployment of a branch (`deploy` of a route).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployConfig {
    /// Path of the repository below the folder of repositories.
    pub repository: Spanned<String>,
    /// Name of the branch without `refs/heads/`.
    pub branch: Spanned<String>,
    /// Name of a site in the same file; the site has a root.
    pub site: Spanned<String>,
}

/// Settings of the page cache (`cache` of a route).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCacheConfig {
    /// Freshness lifetime in seconds of a response without one; `None` = the response is not stored.
    pub seconds: Option<u64>,
    /// Seconds after the freshness lifetime for which a page is served while the handler makes a new page.
    pub stale_while_revalidate: u64,
    /// Seconds after the freshness lifetime for which a page is served while the handler fails.
    pub stale_if_error: u64,
    /// Maximum size of the content of a stored response in bytes.
    pub page_bytes: u64,
    /// Whether pages are the same for all clients, independent of the Cookie field.
    pub ignore_cookies: bool,
    /// Whether pages are stored on disk and survive a restart.
    pub disk: bool,
}

/// Target of requests below the path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetConfig {
    /// Redirect to a URL, or to a path of the site.
    Redirect(RouteRedirectConfig),
    /// Internal rewrite to a path of the site: a file, or a path of another route's handler.
    Rewrite(Spanned<String>),
    /// Files of another folder.
    Root(Spanned<PathBuf>),
    /// CGI scripts of a folder.
    Cgi(CgiConfig),
    /// A FastCGI or SCGI backend.
    Backend(BackendConfig),
    /// Git repositories.
    Git(GitConfig),
    /// HTTP servers behind the server.
    Proxy(ProxyConfig),
    /// View count of the page with the path after the prefix.
    Hits(Spanned<bool>),
    /// Handler for tests.
    #[cfg(feature = "test-handlers")]
    Test(TestHandlerConfig),
}

impl RouteConfig {
    /// Returns the backend that answers for the route, or that runs files of the site.
    pub fn backend(&self) -> Option<&BackendConfig> {
        match (&self.target, &self.scripts) {
            (Some(TargetConfig::Backend(backend)), _)
            | (_, Some(ScriptsConfig::Backend(backend))) => Some(backend),
            _ => None,
        }
    }
}

impl TargetConfig {
    /// Returns true if a handler makes the responses of the target.
    pub fn is_handler(&self) -> bool {
        !matches!(
            self,
            TargetConfig::Redirect(_) | TargetConfig::Rewrite(_) | TargetConfig::Root(_)
        )
    }
}

/// Handlers for tests of live responses.
#[cfg(feature = "test-handlers")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestHandlerConfig {
    /// Sends the content of the request back.
    Echo,
    /// Sends the response slowly, in small pieces.
    Slow,
    /// Sends a response without end.
    Endless,
    /// Makes the response from the parameters of the query.
    Page,
    /// Sends interim responses before the response.
    Hints,
    /// Holds the content of the request back.
    Hold,
    /// Sends the content and the trailers of the request back.
    Trailers,
    /// Opens tunnels.
    Tunnel,
}

/// Reads and validates a configuration file. [`check`] validates the files named in the configuration.
pub fn load(path: &Path) -> Result<Config, OperatorError> {
    let text = paths::read_text(path)?;
    let absolute = paths::absolute(path)?;
    schema::parse(&text, Some(&absolute), &path.display().to_string())
}

/// Parses the text of a configuration as the content of the file `path`. The file need not exist. The
/// function opens no file and never panics, and is therefore the entry point for fuzzing.
pub fn parse(text: &str, path: &Path) -> Result<Config, OperatorError> {
    schema::parse(text, Some(path), &path.display().to_string())
}

/// Returns the configuration of a folder served without a file: the folder answers for every name over
/// HTTPS, and plain HTTP redirects to HTTPS.
pub fn guess(dir: &Path) -> Result<Config, OperatorError> {
    let folder = paths::absolute(dir)?;
    schema::guess(&folder, &dir.display().to_string())
}

impl SiteConfig {
    /// Returns the name of the balancer of a route with `proxy`, from the path of the route.
    pub fn own_balancer_name(&self, path: &str) -> String {
        let site = self.names.first().map_or("*", |name| name.get_ref());
        format!("{site}{}/", path.trim_end_matches('/'))
    }
}

impl ServerConfig {
    /// Returns the folder of the store of releases.
    pub fn releases_folder(&self) -> PathBuf {
        match &self.releases {
            Some(folder) => folder.get_ref().clone(),
            None => self.state.get_ref().join("releases"),
        }
    }
}

impl Config {
    /// Returns an error that points at `span` of the file. An empty span, for a default or an option of the
    /// command line, shows no line.
    pub fn point(
        &self,
        span: Range<usize>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> OperatorError {
        let error = OperatorError::new(what).help(help);
        match &self.path {
            Some(_) => error.at(&self.shown, &self.source, span),
            None => error,
        }
    }

    /// Returns the balancers of the file, then the balancers of routes with `proxy`.
    pub fn all_balancers(&self) -> impl Iterator<Item = &BalancerConfig> {
        let own = self.sites.iter().flat_map(proxy_table::own_balancers);
        self.balancers.iter().chain(own)
    }

    /// Returns the user files of the manager with their keys.
    pub fn manager_files(&self) -> impl Iterator<Item = (&'static str, &Spanned<PathBuf>)> {
        self.manager.iter().flat_map(ManagerConfig::user_files)
    }

    /// Returns true if any address of the server speaks TLS.
    pub fn uses_tls(&self) -> bool {
        let manager = self.manager.as_ref();
        !self.server.https.is_empty() || manager.is_some_and(ManagerConfig::uses_tls)
    }

    /// Returns the state file with the edits of the balancers. Another configuration with the same state
    /// folder has another file.
    pub fn edits_file(&self) -> PathBuf {
        let path = self.path.as_ref().unwrap_or(&self.folder);
        let name = paths::DefaultPaths::of(path).edits_name();
        self.server.state.get_ref().join(name)
    }

    /// Returns the balancers of routes with `proxy`, each with the name of the balancer in the World.
    pub fn own_balancers(&self) -> impl Iterator<Item = (String, &BalancerConfig)> {
        self.sites.iter().flat_map(|site| {
            site.routes.iter().filter_map(|route| {
                let Some(TargetConfig::Proxy(proxy)) = &route.target else {
                    return None;
                };
                let BalancerRef::Own(balancer) = &proxy.balancer else {
                    return None;
                };
                Some((site.own_balancer_name(route.path.get_ref()), &**balancer))
            })
        })
    }

    /// Returns the HTTPS port in the URLs of redirects, as far as the configuration alone determines the
    /// port.
    pub fn https_port(&self) -> Option<u16> {
        let first = self
            .server
            .https
            .first()
            .map(|a| a.get_ref().address.port());
        self.server.public_port.or(first)
    }
}
