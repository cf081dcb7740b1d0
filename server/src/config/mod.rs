//! What the operator wrote: the typed mirror of `anthill.toml`.
//!
//! A value that a later stage may refuse (an address in use, a certificate that doesn't fit its
//! key) keeps its place in the file, so that whoever refuses it can point at it with
//! [`Config::point`]. All paths are absolute. Nothing here opens a socket or serves a file;
//! [`check`] looks at the file system, and only looks.

mod account;
mod acme;
mod check;
mod deploy;
mod error;
mod live;
mod nearest;
mod places;
mod read;
mod schema;
mod secrets;
mod values;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::limits::Limits;

pub use account::Account;
pub use acme::{Acme, Challenge, Eab, Wanted};
pub use check::check;
pub use deploy::{Deployment, Found, deployed_folder, found_at};
pub use error::OperatorError;
pub use nearest::nearest;
pub use places::{Chosen, Overrides, control_sockets, prepare_folder, reason};
pub use toml::Spanned;
pub use values::{Listen, parse_bytes, parse_seconds};

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
    pub server: Server,
    /// `[log]`
    pub log: Log,
    /// `[tls]`
    pub tls: TlsConfig,
    /// `[[site]]`, in their order; at least one.
    pub sites: Vec<Site>,
}

/// `[server]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Addresses for HTTPS; may be empty, but not together with `http`.
    pub https: Vec<Spanned<Listen>>,
    /// Addresses for plain HTTP.
    pub http: Vec<Spanned<Listen>>,
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
pub struct Log {
    /// Where the access log goes.
    pub access: Spanned<LogTo>,
    /// Where the error log goes.
    pub errors: Spanned<LogTo>,
    /// How an access-log line looks.
    pub format: LogFormat,
}

/// One destination of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogTo {
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
    pub acme: Option<Acme>,
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
pub struct Site {
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
    pub symlinks: Symlinks,
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
    pub cache: Vec<CacheFiles>,
    /// Fields by file; all that match apply.
    pub headers: Vec<HeaderFiles>,
    /// Whether views of its pages are counted.
    pub hits: bool,
    /// An access log of its own; `None` = the server's.
    pub log: Option<Spanned<LogTo>>,
    /// `[[site.route]]`, in their order.
    pub routes: Vec<Route>,
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
pub enum Symlinks {
    /// Those that stay inside the root.
    #[default]
    Inside,
    /// All.
    Follow,
}

/// One rule of `cache`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFiles {
    /// The glob that chooses the files.
    pub files: Spanned<String>,
    /// Cache-Control's max-age in seconds.
    pub max_age: u64,
    /// Whether Cache-Control also says `immutable` (RFC 8246).
    pub immutable: bool,
}

/// One rule of `headers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFiles {
    /// The glob that chooses the files.
    pub files: Spanned<String>,
    /// Field names and values, checked to be safe on the wire.
    pub set: Vec<(String, String)>,
}

/// `[[site.route]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where its header stands in the file.
    pub span: Range<usize>,
    /// The decoded prefix; begins with `/`.
    pub path: Spanned<String>,
    /// What answers; a route without target only guards.
    pub target: Option<Target>,
    /// Networks that may ask; `None` = all, an empty list = nobody.
    pub allow: Option<Vec<Spanned<String>>>,
    /// The password file that a client must be in.
    pub users: Option<Spanned<PathBuf>>,
    /// What runs some of the site's files instead of sending them.
    pub scripts: Option<Scripts>,
    /// Whether what a handler answers is kept for others.
    pub cache: Option<PageCache>,
}

/// What runs files of a site, by their endings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scripts {
    /// A program for each request.
    Cgi {
        /// Which program, by ending; at least one.
        interpreters: Vec<Interpreter>,
        /// Variables beside those of the request.
        variables: Vec<(String, String)>,
    },
    /// A backend.
    Backend(Backend),
}

/// A server that runs scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// It speaks SCGI and not FastCGI.
    pub is_scgi: bool,
    /// Where it listens.
    pub address: Spanned<BackendAddress>,
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
pub enum BackendAddress {
    /// A socket in the file system, absolute.
    Unix(PathBuf),
    /// TCP.
    Tcp(std::net::SocketAddr),
}

/// What runs files with one ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// With its dot.
    pub ending: String,
    /// The program, which gets the file as its argument.
    pub program: Spanned<PathBuf>,
}

/// A folder of scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgi {
    /// Where they lie.
    pub folder: Spanned<PathBuf>,
    /// What runs those with an ending; the others are run themselves.
    pub interpreters: Vec<Interpreter>,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
}

/// A folder of repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Git {
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
    pub deploy: Vec<Deploy>,
}

/// `deploy` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deploy {
    /// Below the folder of repositories.
    pub repository: Spanned<String>,
    /// Without `refs/heads/`.
    pub branch: Spanned<String>,
    /// A name of a site of this file, which has a root.
    pub site: Spanned<String>,
}

/// `cache` of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCache {
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
pub enum Target {
    /// Sends the client there: a URL, or a path of this site.
    Redirect(Spanned<String>),
    /// Answers as if this path had been asked for, be it a file or another route's handler.
    Rewrite(Spanned<String>),
    /// Another folder.
    Root(Spanned<PathBuf>),
    /// Programs that are run.
    Cgi(Cgi),
    /// A backend that runs scripts.
    Backend(Backend),
    /// Repositories of git.
    Git(Git),
    /// How often the page was seen whose path follows.
    Hits(Spanned<bool>),
    /// A handler that only tests need.
    Test(TestHandler),
}

impl Route {
    /// The backend that answers here, or runs files of the site.
    pub fn backend(&self) -> Option<&Backend> {
        match (&self.target, &self.scripts) {
            (Some(Target::Backend(backend)), _) | (_, Some(Scripts::Backend(backend))) => {
                Some(backend)
            }
            _ => None,
        }
    }
}

impl Target {
    /// Does a handler answer there?
    pub fn is_live(&self) -> bool {
        !matches!(
            self,
            Target::Redirect(_) | Target::Rewrite(_) | Target::Root(_)
        )
    }
}

/// The live handlers that exist to test the machinery of live calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestHandler {
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
    let text = places::read_text(path)?;
    let absolute = places::absolute(path)?;
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
    let folder = places::absolute(dir)?;
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
