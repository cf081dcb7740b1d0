//! What the operator wrote: the typed mirror of `anthill.toml`.
//!
//! A value that a later stage may refuse (an address in use, a certificate that doesn't fit its
//! key) keeps its place in the file, so that whoever refuses it can point at it with
//! [`Config::point`]. All paths are absolute. Nothing here opens a socket or serves a file;
//! [`check`] looks at the file system, and only looks.

mod unix_account;
mod acme;
mod check;
mod deploy;
mod error;
mod scripts;
mod suggestion;
mod paths;
mod toml_reader;
mod schema;
mod secret_paths;
mod values;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::limits::Limits;

pub use crate::config::paths::{ConfigSource, Overrides, control_sockets, prepare_folder, reason};
pub use crate::config::suggestion::suggest;
pub use crate::config::unix_account::UnixAccount;
pub use acme::{AcmeConfig, ChallengeType, EabConfig, ManagedCertificate};
pub use check::check;
pub use deploy::{Deployment, RootState, deployed_folder, inspect_root};
pub use error::OperatorError;
pub use toml::Spanned;
pub use values::{ListenAddress, parse_bytes, parse_seconds};

/// The file's usual name, looked for in a folder that is named instead of a file.
pub const FILE_NAME: &str = "anthill.toml";
/// Where `[[site]]` looks for its pages when it names no root.
pub const DEFAULT_ROOT: &str = "public";
/// `hsts = true` in seconds: a year, as RFC 6797 §6.1.1's examples and the preload lists have it.
pub const HSTS_SECONDS: u64 = 31_536_000;
/// How long a page of the page cache stands in for a handler that fails, where the operator says how
/// long pages are fresh.
pub const STALE_IF_ERROR_SECONDS: u64 = 3_600;

/// Everything that was configured, with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The file, absolute; `None` when a folder is served without one.
    pub path: Option<PathBuf>,
    /// The folder that relative paths start from, absolute.
    pub folder: PathBuf,
    /// The file's name as it was typed, for messages.
    pub shown: String,
    /// The file's text, which the spans index.
    pub source: Arc<str>,
    /// `[server]`
    pub server: ServerConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[tls]`
    pub tls: TlsConfig,
    /// `[[site]]`, in their order; at least one.
    pub sites: Vec<SiteConfig>,
}

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Addresses for HTTPS; may be empty, but not together with `http`.
    pub https: Vec<Spanned<ListenAddress>>,
    /// Addresses for plain HTTP.
    pub http: Vec<Spanned<ListenAddress>>,
    /// HTTP/2 without TLS, with who begins so (prior knowledge).
    pub h2c: bool,
    /// HTTP/3 beside HTTPS; `None` = if it can be.
    pub http3: Option<Spanned<bool>>,
    /// The HTTPS port that redirects name; `None` = the port of the first HTTPS address.
    pub public_port: Option<u16>,
    /// Worker threads; `None` = one per core.
    pub workers: Option<Spanned<usize>>,
    /// The account to drop to after binding.
    pub user: Option<Spanned<String>>,
    /// Bytes for contents and caches; `None` = decide by the machine.
    pub memory_max: Option<u64>,
    /// Certificates made here, ticket keys and the like.
    pub state: Spanned<PathBuf>,
    /// The control socket; never longer than a socket address can hold.
    pub control: Spanned<PathBuf>,
    /// Bounds that an operator may set.
    pub limits: Limits,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Where the access log goes.
    pub access: Spanned<LogTarget>,
    /// Where the error log goes.
    pub errors: Spanned<LogTarget>,
    /// How an access-log line looks.
    pub format: LogFormat,
}

/// One destination of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// Standard output, `-`.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file that is appended to, absolute.
    File(PathBuf),
}

/// How an access-log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined format that log tools read.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// `[tls]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The oldest version spoken.
    pub min_version: TlsVersion,
    /// Cipher suites by name, in order; `None` = by hardware.
    pub ciphers: Option<Vec<Spanned<String>>>,
    /// A key file shared with other nodes; `None` = keys of our own in the state folder.
    pub tickets: Option<Spanned<PathBuf>>,
    /// Where certificates come from by themselves; `None` = from nowhere.
    pub acme: Option<AcmeConfig>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2
    #[default]
    Tls12,
    /// TLS 1.3
    Tls13,
}

/// `[[site]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Where its header stands in the file.
    pub span: Range<usize>,
    /// Host names in lower case: exact, `*.example.org` or `*`; the first is canonical.
    pub names: Vec<Spanned<String>>,
    /// The folder that is served; `None` when a route answers for `/`.
    pub root: Option<Spanned<PathBuf>>,
    /// What plain HTTP does.
    pub http: PlainHttp,
    /// Where that stands in the file; empty if it is the default.
    pub http_span: Range<usize>,
    /// Files that stand for their folder, in order.
    pub index: Vec<String>,
    /// Paths to try, in order: `$path` with what is around it, or a path of the site.
    pub try_paths: Vec<String>,
    /// Status and the page of the site that answers for it, relative to the root.
    pub errors: Vec<(u16, Spanned<String>)>,
    /// Whether a folder without an index is listed.
    pub listing: bool,
    /// Which symbolic links are followed.
    pub symlinks: SymlinksConfig,
    /// The certificate chain (PEM); `None` = by itself, or self-signed.
    pub certificate: Option<Spanned<PathBuf>>,
    /// Its key; `None` = it stands in the certificate's file.
    pub key: Option<Spanned<PathBuf>>,
    /// Demands a client certificate signed by one of these.
    pub client_ca: Option<Spanned<PathBuf>>,
    /// Strict-Transport-Security's max-age in seconds.
    pub hsts: Option<u64>,
    /// Ending with its dot, media type.
    pub mime: Vec<(String, String)>,
    /// Caching by file; the first match wins.
    pub cache: Vec<CacheControlConfig>,
    /// Fields by file; all that match apply.
    pub headers: Vec<HeadersConfig>,
    /// Whether views of its pages are counted.
    pub hits: bool,
    /// An access log of its own; `None` = the server's.
    pub log: Option<Spanned<LogTarget>>,
    /// `[[site.route]]`, in their order.
    pub routes: Vec<RouteConfig>,
}

/// What a site does on plain HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// Sends everyone to HTTPS.
    #[default]
    Redirect,
    /// Serves there too.
    Serve,
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymlinksConfig {
    /// Those that stay inside the root.
    #[default]
    Inside,
    /// All.
    Follow,
}

/// One rule of `cache`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheControlConfig {
    /// The glob that chooses the files.
    pub files: Spanned<String>,
    /// Cache-Control's max-age in seconds.
    pub max_age: u64,
    /// Whether Cache-Control also says `immutable` (RFC 8246).
    pub immutable: bool,
}

/// One rule of `headers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadersConfig {
    /// The glob that chooses the files.
    pub files: Spanned<String>,
    /// Field names and values, checked to be safe on the wire.
    pub set: Vec<(String, String)>,
}

/// `[[site.route]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// Where its header stands in the file.
    pub span: Range<usize>,
    /// The decoded prefix; begins with `/`.
    pub path: Spanned<String>,
    /// What answers; a route without target only guards.
    pub target: Option<TargetConfig>,
    /// Networks that may ask; `None` = all, an empty list = nobody.
    pub allow: Option<Vec<Spanned<String>>>,
    /// The password file that a client must be in.
    pub users: Option<Spanned<PathBuf>>,
    /// What runs some of the site's files instead of sending them.
    pub scripts: Option<ScriptsConfig>,
    /// Whether what a handler answers is kept for others.
    pub cache: Option<PageCacheConfig>,
}

/// What runs files of a site, by their endings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptsConfig {
    /// A program for each request.
    Cgi {
        /// Which program, by ending; at least one.
        interpreters: Vec<InterpreterConfig>,
        /// Variables beside those of the request.
        variables: Vec<(String, String)>,
    },
    /// A backend.
    Backend(BackendConfig),
}

/// A server that runs scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// It speaks SCGI and not FastCGI.
    pub is_scgi: bool,
    /// Where it listens.
    pub address: Spanned<BackendAddressConfig>,
    /// Endings of the site's files that it runs; empty: all below the route's path is its own.
    pub files: Vec<String>,
    /// That is said, by `files = "*"`.
    pub takes_all: bool,
    /// So many connections are kept, and no more made; 0: each is closed after its request; `None`:
    /// they are passed on for a moment.
    pub keep: Option<usize>,
    /// Where the backend sees the site's root; `None` = where it is.
    pub script_root: Option<String>,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
}

/// Where a backend listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendAddressConfig {
    /// A socket in the file system, absolute.
    Unix(PathBuf),
    /// TCP.
    Tcp(std::net::SocketAddr),
}

/// What runs files with one ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterConfig {
    /// With its dot.
    pub ending: String,
    /// The program, which gets the file as its argument.
    pub program: Spanned<PathBuf>,
}

/// A folder of scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgiConfig {
    /// Where they lie.
    pub folder: Spanned<PathBuf>,
    /// What runs those with an ending; the others are run themselves.
    pub interpreters: Vec<InterpreterConfig>,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
}

/// A folder of repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitConfig {
    /// Where they lie.
    pub folder: Spanned<PathBuf>,
    /// Also those that aren't marked with `git-daemon-export-ok`.
    pub exports_all: bool,
    /// Who has logged in may push.
    pub push: bool,
    /// They can be read in a browser.
    pub pages: bool,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
    /// Branches that become the folders of sites.
    pub deploy: Vec<DeployConfig>,
}

/// `deploy` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeployConfig {
    /// Below the folder of repositories.
    pub repository: Spanned<String>,
    /// Without `refs/heads/`.
    pub branch: Spanned<String>,
    /// A name of a site of this file, which has a root.
    pub site: Spanned<String>,
}

/// `cache` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCacheConfig {
    /// Seconds that a response is fresh which doesn't say so itself; `None` = it isn't kept.
    pub seconds: Option<u64>,
    /// Seconds more that it may be used while a new one is made.
    pub stale_while_revalidate: u64,
    /// Seconds more that it may be used while the handler fails.
    pub stale_if_error: u64,
    /// Bytes of a content that is kept at most.
    pub page_bytes: u64,
    /// Whether pages are the same for everybody whatever the Cookie.
    pub ignore_cookies: bool,
    /// Whether pages are kept over a restart.
    pub disk: bool,
}

/// What answers below a route's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetConfig {
    /// Sends the client there: a URL, or a path of this site.
    Redirect(Spanned<String>),
    /// Answers as if this path had been asked for, be it a file or another route's handler.
    Rewrite(Spanned<String>),
    /// Another folder.
    Root(Spanned<PathBuf>),
    /// Programs that are run.
    Cgi(CgiConfig),
    /// A backend that runs scripts.
    Backend(BackendConfig),
    /// Repositories of git.
    Git(GitConfig),
    /// How often the page was seen whose path follows.
    Hits(Spanned<bool>),
    /// A handler that only tests need.
    #[cfg(feature = "test-handlers")]
    Test(TestHandlerConfig),
}

impl RouteConfig {
    /// The backend that answers here, or runs files of the site.
    pub fn backend(&self) -> Option<&BackendConfig> {
        match (&self.target, &self.scripts) {
            (Some(TargetConfig::Backend(backend)), _)
            | (_, Some(ScriptsConfig::Backend(backend))) => Some(backend),
            _ => None,
        }
    }
}

impl TargetConfig {
    /// Does a handler answer there?
    pub fn is_handler(&self) -> bool {
        !matches!(
            self,
            TargetConfig::Redirect(_) | TargetConfig::Rewrite(_) | TargetConfig::Root(_)
        )
    }
}

/// The live handlers that exist to test the machinery of live calls.
#[cfg(feature = "test-handlers")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestHandlerConfig {
    /// Sends the request's body back.
    Echo,
    /// Answers a little at a time.
    Slow,
    /// Never ends its answer.
    Endless,
    /// Answers as its query says.
    Page,
}

/// Reads and validates a configuration file (not the files that it names: see [`check`]).
pub fn load(path: &Path) -> Result<Config, OperatorError> {
    let text = paths::read_text(path)?;
    let absolute = paths::absolute(path)?;
    schema::parse(&text, Some(&absolute), &path.display().to_string())
}

/// Understands a configuration's text as if it stood in `path`, which need not exist. Opens no
/// file, and takes any text without a panic: the door for fuzzing.
pub fn parse(text: &str, path: &Path) -> Result<Config, OperatorError> {
    schema::parse(text, Some(path), &path.display().to_string())
}

/// What serving a folder without any file means: the folder under every name, on HTTPS and on
/// plain HTTP that redirects to it.
pub fn guess(dir: &Path) -> Result<Config, OperatorError> {
    let folder = paths::absolute(dir)?;
    schema::guess(&folder, &dir.display().to_string())
}

impl Config {
    /// An error that points at `span` of the file; an empty span (a default, or an option of the
    /// command line) has no line to show.
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

    /// The port that redirects to HTTPS name, as far as the configuration alone decides it.
    pub fn https_port(&self) -> Option<u16> {
        let first = self
            .server
            .https
            .first()
            .map(|a| a.get_ref().address.port());
        self.server.public_port.or(first)
    }
}
