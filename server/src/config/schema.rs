//! Keys of `anthill.toml`, and their conversion to the typed configuration.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::error::OperatorError;
use super::values::{ListenAddress, is_field_value, is_token, reserved_field, share_ports};
use super::{
    CacheControlConfig, Config, DEFAULT_ROOT, HSTS_SECONDS, HeadersConfig, LogConfig, LogFormat,
    LogTarget, PageCacheConfig, PlainHttp, RouteConfig, STALE_IF_ERROR_SECONDS, ServerConfig,
    SiteConfig, SymlinksConfig, TargetConfig, TlsConfig, TlsVersion,
};
use super::{acme, deploy};
use crate::config::balancer::balancers;
use crate::config::balancer_table::{
    BalancerTable, EjectTable, HealthTable, MemberTable, RetriesTable, StickyTable,
};
use crate::config::connection_table::ConnectionKeys;
use crate::config::declared_table::{DeclaredTable, joined};
use crate::config::manager_table::{self, ManagerKeys, ManagerTable};
use crate::config::paths;
use crate::config::proxy_table::{
    self, BalanceTable, ForwardKeys, ListenerTable, ProxyTable, RouteKeys, TrustKeys,
};
use crate::config::redirect_table::{self, RedirectKeys, RouteRedirectTable};
use crate::config::release_table;
use crate::config::request_table::{self, RequestKeys, RouteRequestKeys};
use crate::config::scripts;
use crate::config::toml_reader::{KeyedValue, SourceText, TableReader, TableSchema};
use crate::config::value_types::{ByteSize, Seconds, SiteName};
use crate::limits::{CACHE_PAGE_BYTES, Limits, READ_BUFFER_BYTES};
use crate::wire::cache_control::SECONDS_MAX;

static FILE: TableSchema = TableSchema {
    name: "the file",
    keys: &["server", "log", "tls", "site", "balancer", "manager"],
    later: &["cluster"],
    foreign: &[
        ("upstream", BALANCER_HELP),
        ("upstreams", BALANCER_HELP),
        ("backend", BALANCER_HELP),
        ("proxy", PROXY_HELP),
        ("proxy_pass", PROXY_HELP),
        ("reverse_proxy", PROXY_HELP),
    ],
};
/// Help for words of other servers that mean a group of servers.
const BALANCER_HELP: &str =
    "write [[balancer]] with `name` and `members`, and `balance` in a route";
/// Help for words of other servers that mean a proxied path.
const PROXY_HELP: &str =
    "write `proxy = \"http://127.0.0.1:9000\"` in a [[site.route]] with `path`";
static SERVER: TableSchema = TableSchema {
    name: "[server]",
    keys: &joined::<_, { OWN_SERVER_KEYS.len() + TrustKeys::KEYS.len() + ManagerKeys::KEYS.len() }>(
        &[OWN_SERVER_KEYS, TrustKeys::KEYS, ManagerKeys::KEYS],
        "",
    ),
    later: &[],
    foreign: TrustKeys::FOREIGN,
};
/// Keys of `[server]` without a declaration.
const OWN_SERVER_KEYS: &[&str] = &[
    "https",
    "http",
    "h2c",
    "http3",
    "public_port",
    "workers",
    "user",
    "memory_max",
    "state",
    "releases",
    "control",
    "limits",
];
static LIMITS: TableSchema = TableSchema {
    name: "limits",
    keys: &[
        "connections",
        "connections_per_address",
        "streams",
        "request_line_bytes",
        "head_bytes",
        "fields",
        "handshake_seconds",
        "head_seconds",
        "idle_seconds",
        "write_stall_seconds",
        "body_rate_bytes_per_second",
        "body_discard_bytes",
        "body_bytes",
        "spooled_bytes",
        "drain_seconds",
        "scripts",
        "script_queue",
        "script_silent_seconds",
        "script_seconds",
        "script_output_bytes",
        "git_seconds",
        "deploy_files",
        "deploy_bytes",
        "git_heavy_per_minute",
        "git_pages_per_minute",
    ],
    later: &[],
    foreign: &[],
};
static LOG: TableSchema = TableSchema {
    name: "[log]",
    keys: &["access", "errors", "format"],
    later: &[],
    foreign: &[],
};
static TLS: TableSchema = TableSchema {
    name: "[tls]",
    keys: &["min_version", "ciphers", "tickets", "acme"],
    later: &[],
    foreign: &[],
};
static SITE: TableSchema = TableSchema {
    name: "[[site]]",
    keys: &joined::<_, { OWN_SITE_KEYS.len() + RedirectKeys::KEYS.len() + RequestKeys::KEYS.len() }>(
        &[OWN_SITE_KEYS, RedirectKeys::KEYS, RequestKeys::KEYS],
        "",
    ),
    later: &[],
    foreign: &joined::<
        _,
        { OWN_SITE_FOREIGN.len() + RedirectKeys::FOREIGN.len() + RequestKeys::FOREIGN.len() },
    >(
        &[
            OWN_SITE_FOREIGN,
            RedirectKeys::FOREIGN,
            RequestKeys::FOREIGN,
        ],
        ("", ""),
    ),
};
/// Keys of `[[site]]` without a declaration.
const OWN_SITE_KEYS: &[&str] = &[
    "names",
    "root",
    "release",
    "publishers",
    "preview",
    "preview_users",
    "http",
    "index",
    "try",
    "errors",
    "listing",
    "symlinks",
    "certificate",
    "key",
    "client_ca",
    "hsts",
    "mime",
    "cache",
    "headers",
    "hits",
    "log",
    "route",
];
/// Words of other servers for a key of `[[site]]` without a declaration.
const OWN_SITE_FOREIGN: &[(&str, &str)] = &[
    ("proxy", PROXY_HELP),
    ("proxy_pass", PROXY_HELP),
    ("reverse_proxy", PROXY_HELP),
    ("location", "write [[site.route]] with `path`"),
    ("upstream", BALANCER_HELP),
    ("balance", BALANCER_HELP),
    ("balancer", BALANCER_HELP),
];
static ERRORS: TableSchema = TableSchema {
    name: "errors",
    keys: &[],
    later: &[],
    foreign: &[],
};
static MIME: TableSchema = TableSchema {
    name: "mime",
    keys: &[],
    later: &[],
    foreign: &[],
};
static SET: TableSchema = TableSchema {
    name: "set",
    keys: &[],
    later: &[],
    foreign: &[],
};
static CACHE: TableSchema = TableSchema {
    name: "cache",
    keys: &["files", "max_age", "immutable"],
    later: &[],
    foreign: &[],
};
static HEADERS: TableSchema = TableSchema {
    name: "headers",
    keys: &["files", "set"],
    later: &[],
    foreign: &[],
};
static ROUTE: TableSchema = TableSchema {
    name: "[[site.route]]",
    keys: &joined::<
        _,
        { OWN_ROUTE_KEYS.len() + RouteKeys::KEYS.len() + RouteRequestKeys::KEYS.len() },
    >(
        &[OWN_ROUTE_KEYS, RouteKeys::KEYS, RouteRequestKeys::KEYS],
        "",
    ),
    later: &[],
    foreign: &joined::<_, { RouteKeys::FOREIGN.len() + RouteRequestKeys::FOREIGN.len() }>(
        &[RouteKeys::FOREIGN, RouteRequestKeys::FOREIGN],
        ("", ""),
    ),
};
/// Keys of `[[site.route]]` without a declaration.
const OWN_ROUTE_KEYS: &[&str] = &[
    "path",
    "allow",
    "users",
    "redirect",
    "rewrite",
    "root",
    "cgi",
    "interpreter",
    "fastcgi",
    "scgi",
    "files",
    "keep",
    "script_root",
    "env",
    "git",
    "export",
    "push",
    "deploy",
    "pages",
    "cache",
    "hits",
    #[cfg(feature = "test-handlers")]
    "test",
];
static PAGE_CACHE: TableSchema = TableSchema {
    name: "cache",
    keys: &[
        "seconds",
        "stale_while_revalidate",
        "stale_if_error",
        "page_bytes",
        "ignore_cookies",
        "disk",
    ],
    later: &[],
    foreign: &[],
};

/// Returns the name of the table that a key of the table `wrong` belongs to, for the help of a key in the wrong
/// table.
pub(super) fn home_of(key: &str, wrong: &TableSchema) -> Option<&'static str> {
    let of_balancer = [
        BalancerTable::SCHEMA,
        MemberTable::SCHEMA,
        HealthTable::SCHEMA,
        StickyTable::SCHEMA,
        RetriesTable::SCHEMA,
        EjectTable::SCHEMA,
    ];
    let is_in_balancer = of_balancer.iter().any(|table| table.name == wrong.name);
    if ConnectionKeys::KEYS.contains(&key) {
        return Some(
            match is_in_balancer || wrong.name == BalanceTable::SCHEMA.name {
                true => BalancerTable::SCHEMA.name,
                false => "`proxy = { url = … }`, or with `balance` in [[balancer]]",
            },
        );
    }
    if ForwardKeys::KEYS.contains(&key) {
        return Some(match is_in_balancer {
            true => "the route: `balance = { name = … }`",
            false => "`proxy = { url = … }` or `balance = { name = … }` of a route",
        });
    }
    let shapes = [
        &SERVER,
        &LOG,
        &TLS,
        &SITE,
        &ROUTE,
        &LIMITS,
        &acme::ACME,
        ProxyTable::SCHEMA,
        ManagerTable::SCHEMA,
    ];
    let home = shapes
        .iter()
        .chain(&of_balancer)
        .find(|shape| shape.keys.contains(&key) || shape.later.contains(&key));
    home.map(|shape| shape.name)
}

/// Parses the text of a configuration. `path` is absolute, and need not exist: the function opens no file.
pub(super) fn parse(text: &str, path: Option<&Path>, shown: &str) -> Result<Config, OperatorError> {
    let folder = path
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"))
        .to_owned();
    let source = SourceText {
        text,
        shown,
        folder: &folder,
    };
    let document = DeTable::parse(text).map_err(|error| syntax_error(&source, &error))?;
    let mut file = TableReader::new(&source, &FILE, 0..0, document.into_inner());

    let path = path.map(Path::to_owned);
    let places = paths::DefaultPaths::of(path.as_deref().unwrap_or(&folder));
    let (mut server, short) = server(file.item("server"), &source, places)?;
    let log = log(file.item("log"), &source)?;
    let tls = tls(file.item("tls"), &source)?;
    let sites = match file.item("site") {
        Some(item) => item
            .tables(&SITE)?
            .into_iter()
            .map(site)
            .collect::<Result<Vec<_>, _>>()?,
        None => vec![site(TableReader::new(
            &source,
            &SITE,
            0..0,
            DeTable::new(),
        ))?],
    };
    let balancers = balancers(file.item("balancer"))?;
    let table = file.item("manager");
    let table = table.map(|item| {
        let example = "{ listen = \"127.0.0.1:8800\" }";
        ManagerTable::read_table(item.table_like(ManagerTable::SCHEMA, example)?)
    });
    let mut manager = manager_table::manager(&source, table.transpose()?, short)?;
    file.finish()?;
    if let Some(manager) = &mut manager {
        let server = server.https.iter_mut().chain(&mut server.http);
        refuse_shared_ports(&source, server.chain(&mut manager.listen).collect())?;
    }
    if sites.is_empty() {
        return Err(OperatorError::new("the file has no [[site]]")
            .help("add [[site]] with root = \"the folder to serve\"")
            .at(shown, text, 0..0));
    }
    refuse_shared_names(&source, &sites)?;
    proxy_table::refuse_unknown_balancers(&source, &balancers, &sites)?;
    proxy_table::refuse_untrusted_listener(&source, &server)?;
    deploy::refuse_impossible(&source, &sites)?;
    if let Some(acme) = &tls.acme {
        acme::refuse_impossible(&source, acme, &server, &sites)?;
    }
    Ok(Config {
        path,
        folder,
        shown: shown.to_owned(),
        source: text.into(),
        server,
        log,
        tls,
        sites,
        balancers,
        manager,
    })
}

/// Returns the configuration of a folder without a configuration file.
pub(super) fn guess(folder: &Path, shown: &str) -> Result<Config, OperatorError> {
    let source = SourceText {
        text: "",
        shown,
        folder,
    };
    let mut site = site(TableReader::new(&source, &SITE, 0..0, DeTable::new()))?;
    site.root = Some(Spanned::new(0..0, folder.to_owned()));
    Ok(Config {
        path: None,
        folder: folder.to_owned(),
        shown: shown.to_owned(),
        source: "".into(),
        server: server(None, &source, paths::DefaultPaths::of(folder))?.0,
        log: log(None, &source)?,
        tls: tls(None, &source)?,
        sites: vec![site],
        balancers: Vec::new(),
        manager: None,
    })
}

fn syntax_error(source: &SourceText<'_>, error: &toml::de::Error) -> OperatorError {
    let mut lines = error.message().lines();
    let what = lines
        .next()
        .unwrap_or("the file is not valid TOML")
        .to_owned();
    let help = lines.collect::<Vec<_>>().join(", ");
    let begins_table = error.span().is_some_and(|span| {
        let line = source.text[..span.start].rfind('\n').map_or(0, |at| at + 1);
        source.text[line..].starts_with('[')
    });
    let help = if what.contains("duplicate key") && begins_table {
        "join the two tables; lists such as [[site.route]] stand below their [[site]]".to_owned()
    } else if help.is_empty() {
        syntax_help(&what).to_owned()
    } else {
        help
    };
    let error_here = OperatorError::new(what).help(help);
    match error.span() {
        Some(span) if !span.is_empty() => error_here.at(source.shown, source.text, span),
        Some(span) => error_here.at_point(source.shown, source.text, span.start),
        None => error_here.at(source.shown, source.text, 0..0),
    }
}

/// Returns the help for a syntax error that the TOML parser reports without a remedy.
fn syntax_help(what: &str) -> &'static str {
    if what.contains("duplicate key") {
        "a key may occur once in a table: remove one of the two lines"
    } else if what.contains("newline") || what.contains("extra") {
        "write one `key = value` in a line, and text in quotes"
    } else {
        "write `key = value` or a [table] in a line, and text in quotes"
    }
}

/// Wraps a default value in an empty span: the value has no place in the file.
fn nowhere<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn open<'s, 'i>(
    item: Option<KeyedValue<'s, 'i>>,
    source: &'s SourceText<'s>,
    shape: &'static TableSchema,
) -> Result<TableReader<'s, 'i>, OperatorError> {
    match item {
        Some(item) => item.table(shape),
        None => Ok(TableReader::new(source, shape, 0..0, DeTable::new())),
    }
}

fn http3(
    table: &mut TableReader<'_, '_>,
    source: &SourceText<'_>,
) -> Result<Option<Spanned<bool>>, OperatorError> {
    let http3 = table.take::<Spanned<bool>>("http3")?;
    match &http3 {
        Some(wanted) if *wanted.get_ref() && !cfg!(feature = "http3") => {
            let help = "remove the key, or install a build with HTTP/3";
            Err(source.error(wanted.span(), "this build has no HTTP/3", help))
        }
        _ => Ok(http3),
    }
}

/// Addresses of the manager in `[server]`.
type ShortManager = Spanned<Vec<Spanned<ListenAddress>>>;

/// Reads `[server]`, with the addresses of the manager.
fn server<'s>(
    item: Option<KeyedValue<'s, '_>>,
    source: &'s SourceText<'s>,
    places: paths::DefaultPaths,
) -> Result<(ServerConfig, Option<ShortManager>), OperatorError> {
    let mut table = open(item, source, &SERVER)?;
    let mut https = addresses(&mut table, "https", 8443)?;
    let mut http = addresses(&mut table, "http", 8080)?;
    if https.is_empty() && http.is_empty() {
        let help = "give `https` or `http` an address, such as \":8443\"";
        return Err(table.refuse("there is no address to listen on", help));
    }
    refuse_shared_ports(source, https.iter_mut().chain(http.iter_mut()).collect())?;
    let h2c = table.take("h2c")?.unwrap_or(false);
    let http3 = http3(&mut table, source)?;
    let public_port = table.within("public_port", 1..=65_535)?;
    let workers = match table.item("workers") {
        Some(item) if item.text() == Some("auto") => None,
        Some(item) => Some(workers(item)?),
        None => None,
    };
    let user = table.take::<Spanned<String>>("user")?;
    let memory_max = match table.item("memory_max") {
        Some(item) if item.text() == Some("auto") => None,
        Some(item) => Some(read::<ByteSize>(item)?.0),
        None => None,
    };
    let state = match table.take::<Spanned<PathBuf>>("state")? {
        Some(state) => state,
        None => nowhere(places.state()),
    };
    let control = match table.take::<Spanned<PathBuf>>("control")? {
        Some(control) if !paths::fits_socket(control.get_ref()) => {
            let what = format!(
                "the control socket's path is longer than {} bytes",
                paths::SOCKET_PATH_MAX
            );
            let help = "write a shorter path, such as \"/run/anthill.sock\"";
            return Err(source.error(control.span(), what, help));
        }
        Some(control) => control,
        None => nowhere(places.control(state.get_ref())),
    };
    let releases = table.take("releases")?;
    let limits = limits(table.item("limits"), source)?;
    let TrustKeys { trust } = TrustKeys::take(&mut table)?;
    let ManagerKeys { manager } = ManagerKeys::take(&mut table)?;
    table.finish()?;
    let config = ServerConfig {
        https,
        http,
        h2c,
        http3,
        public_port,
        workers,
        user,
        memory_max,
        state,
        releases,
        control,
        limits,
        trust: trust.into_inner(),
    };
    Ok((config, manager))
}

fn read<T: crate::config::toml_reader::FromToml>(
    item: KeyedValue<'_, '_>,
) -> Result<T, OperatorError> {
    T::read(item)
}

fn workers(item: KeyedValue<'_, '_>) -> Result<Spanned<usize>, OperatorError> {
    if !item.value.get_ref().is_integer() {
        return Err(item.mistyped("a number or \"auto\"", "4"));
    }
    let source = item.source;
    let workers = read::<Spanned<usize>>(item)?;
    if (1..=WORKERS_MAX).contains(workers.get_ref()) {
        return Ok(workers);
    }
    let help =
        format!("write a number between 1 and {WORKERS_MAX}, or \"auto\" for one worker per core");
    Err(source.error(workers.span(), "`workers` is out of bounds", help))
}

/// Maximum number of workers, above the core count of any supported machine. A larger number is a typing
/// mistake.
const WORKERS_MAX: usize = 1_024;

fn addresses(
    table: &mut TableReader<'_, '_>,
    key: &'static str,
    default_port: u16,
) -> Result<Vec<Spanned<ListenAddress>>, OperatorError> {
    match table.item(key) {
        Some(item) if item.text() == Some("off") => Ok(Vec::new()),
        Some(item) => {
            let listeners = read::<Vec<ListenerTable>>(item)?.into_iter();
            Ok(listeners.map(proxy_table::listener).collect())
        }
        None => Ok(vec![nowhere(ListenAddress::all(default_port))]),
    }
}

fn refuse_shared_ports(
    source: &SourceText<'_>,
    mut addresses: Vec<&mut Spanned<ListenAddress>>,
) -> Result<(), OperatorError> {
    let Err((earlier, later)) = share_ports(&mut addresses) else {
        return Ok(());
    };
    let (earlier, later) = (&addresses[earlier], &addresses[later]);
    let what = format!("the address `{}` is used twice", later.get_ref());
    let (span, help) = if later.span().is_empty() {
        (
            earlier.span(),
            "choose another port: the default of `http` is :8080",
        )
    } else if earlier.span().is_empty() {
        (
            later.span(),
            "choose another port: the default of `https` is :8443",
        )
    } else {
        (
            later.span(),
            "choose another port, or remove one of the two",
        )
    };
    Err(source.error(span, what, help))
}

fn limits<'s>(
    item: Option<KeyedValue<'s, '_>>,
    source: &'s SourceText<'s>,
) -> Result<Limits, OperatorError> {
    let mut table = open(item, source, &LIMITS)?;
    let usual = Limits::default();
    let head_max = READ_BUFFER_BYTES as u64;
    let bytes = |table: &mut TableReader<'_, '_>, key, range, usual| {
        let value = table.within::<ByteSize>(key, range)?;
        Ok::<u64, OperatorError>(value.map_or(usual, |bytes| bytes.0))
    };
    // At most one year: practically unlimited, and safe from overflow.
    let seconds = |table: &mut TableReader<'_, '_>, key, usual| {
        let value = table.within::<Seconds>(key, 1..=31_536_000)?;
        Ok::<u32, OperatorError>(value.map_or(usual, |seconds| seconds.0 as u32))
    };
    let t = &mut table;
    let limits = Limits {
        connections: t
            .within("connections", 1..=u64::MAX)?
            .unwrap_or(usual.connections),
        connections_per_address: t
            .take("connections_per_address")?
            .unwrap_or(usual.connections_per_address),
        streams: t.within("streams", 1..=u64::MAX)?.unwrap_or(usual.streams),
        request_line_bytes: bytes(
            t,
            "request_line_bytes",
            64..=head_max,
            usual.request_line_bytes as u64,
        )? as usize,
        head_bytes: bytes(t, "head_bytes", 256..=head_max, usual.head_bytes as u64)? as usize,
        fields: t.within("fields", 1..=head_max)?.unwrap_or(usual.fields),
        handshake_seconds: seconds(t, "handshake_seconds", usual.handshake_seconds)?,
        head_seconds: seconds(t, "head_seconds", usual.head_seconds)?,
        idle_seconds: seconds(t, "idle_seconds", usual.idle_seconds)?,
        write_stall_seconds: seconds(t, "write_stall_seconds", usual.write_stall_seconds)?,
        body_rate_bytes_per_second: t
            .take("body_rate_bytes_per_second")?
            .unwrap_or(usual.body_rate_bytes_per_second),
        body_discard_bytes: bytes(
            t,
            "body_discard_bytes",
            0..=u64::MAX,
            usual.body_discard_bytes,
        )?,
        body_bytes: bytes(t, "body_bytes", 0..=u64::MAX, usual.body_bytes)?,
        spooled_bytes: bytes(t, "spooled_bytes", 0..=u64::MAX, usual.spooled_bytes)?,
        drain_seconds: seconds(t, "drain_seconds", usual.drain_seconds)?,
        scripts: t.within("scripts", 1..=100_000)?.unwrap_or(usual.scripts),
        script_queue: t.take("script_queue")?.unwrap_or(usual.script_queue),
        script_silent_seconds: seconds(t, "script_silent_seconds", usual.script_silent_seconds)?,
        script_seconds: seconds(t, "script_seconds", usual.script_seconds)?,
        script_output_bytes: bytes(
            t,
            "script_output_bytes",
            1..=u64::MAX,
            usual.script_output_bytes,
        )?,
        has_encoded_slashes: usual.has_encoded_slashes,
        git_seconds: seconds(t, "git_seconds", usual.git_seconds)?,
        deploy_files: t
            .within("deploy_files", 1..=u64::MAX)?
            .unwrap_or(usual.deploy_files),
        deploy_bytes: bytes(t, "deploy_bytes", 1..=u64::MAX, usual.deploy_bytes)?,
        git_heavy_per_minute: t
            .within("git_heavy_per_minute", 1..=1_000_000)?
            .unwrap_or(usual.git_heavy_per_minute),
        git_pages_per_minute: t
            .within("git_pages_per_minute", 1..=1_000_000)?
            .unwrap_or(usual.git_pages_per_minute),
    };
    table.finish()?;
    Ok(limits)
}

fn log<'s>(
    item: Option<KeyedValue<'s, '_>>,
    source: &'s SourceText<'s>,
) -> Result<LogConfig, OperatorError> {
    let mut table = open(item, source, &LOG)?;
    let access = log_to(&mut table, "access")?.unwrap_or(nowhere(LogTarget::Stdout));
    let errors = log_to(&mut table, "errors")?.unwrap_or(nowhere(LogTarget::Stderr));
    let formats = [("combined", LogFormat::Combined), ("json", LogFormat::Json)];
    let format = table.word("format", &formats)?.unwrap_or_default();
    table.finish()?;
    Ok(LogConfig {
        access,
        errors,
        format,
    })
}

fn log_to(
    table: &mut TableReader<'_, '_>,
    key: &'static str,
) -> Result<Option<Spanned<LogTarget>>, OperatorError> {
    let Some(item) = table.item(key) else {
        return Ok(None);
    };
    let span = item.value.span();
    let to = match item.text() {
        Some("-" | "stdout") => LogTarget::Stdout,
        Some("stderr") => LogTarget::Stderr,
        Some("off") => LogTarget::Off,
        Some(_) => LogTarget::File(read(item)?),
        None => return Err(item.mistyped("\"-\", \"stderr\", \"off\" or a file", "\"access.log\"")),
    };
    Ok(Some(Spanned::new(span, to)))
}

fn tls<'s>(
    item: Option<KeyedValue<'s, '_>>,
    source: &'s SourceText<'s>,
) -> Result<TlsConfig, OperatorError> {
    let mut table = open(item, source, &TLS)?;
    let versions = [("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
    let min_version = table.word("min_version", &versions)?.unwrap_or_default();
    let ciphers = match table.item("ciphers") {
        Some(item) if item.text() == Some("auto") => None,
        Some(item) if item.value.get_ref().is_array() => {
            let (source, span) = (item.source, item.value.span());
            let list: Vec<Spanned<String>> = read(item)?;
            if list.is_empty() {
                let help = "write \"auto\", or at least one cipher suite";
                return Err(source.error(span, "`ciphers` is empty", help));
            }
            Some(list)
        }
        Some(item) => {
            return Err(item.mistyped("\"auto\" or a list", "[\"TLS13_AES_128_GCM_SHA256\"]"));
        }
        None => None,
    };
    let tickets = match table.item("tickets") {
        Some(item) if item.text() == Some("state") => None,
        Some(item) => Some(read(item)?),
        None => None,
    };
    let acme = table.item("acme").map(acme::acme).transpose()?;
    table.finish()?;
    Ok(TlsConfig {
        min_version,
        ciphers,
        tickets,
        acme,
    })
}

fn site(mut table: TableReader<'_, '_>) -> Result<SiteConfig, OperatorError> {
    let source = table.source();
    let names = match table.item("names") {
        Some(item) => names(item)?,
        None => vec![nowhere("*".to_owned())],
    };
    let routes = match table.item("route") {
        Some(item) => item
            .tables(&ROUTE)?
            .into_iter()
            .map(route)
            .collect::<Result<Vec<_>, _>>()?,
        None => Vec::new(),
    };
    refuse_shared_paths(source, &routes)?;
    let release = release_table::release(&mut table)?;
    let root = match table.take::<Spanned<PathBuf>>("root")? {
        Some(root) => Some(root),
        None if release.is_some() => None,
        None if routes
            .iter()
            .any(|r| r.path.get_ref() == "/" && r.target.is_some()) =>
        {
            None
        }
        None => Some(Spanned::new(
            table.span.clone(),
            paths::join(source.folder, DEFAULT_ROOT),
        )),
    };
    let plain = [
        ("redirect", PlainHttp::Redirect),
        ("serve", PlainHttp::Serve),
    ];
    let links = [
        ("inside", SymlinksConfig::Inside),
        ("follow", SymlinksConfig::Follow),
    ];
    let symlinks = table.spanned_word("symlinks", &links)?;
    if let Some(release) = &release {
        let root = root.as_ref().map(Spanned::span);
        let symlinks = symlinks.as_ref().map(Spanned::span);
        let others = [("root", root), ("symlinks", symlinks)];
        release_table::refuse_keys_of_folders(source, release, others, &routes)?;
    }
    let certificate = table.take("certificate")?;
    let key = table.take::<Spanned<PathBuf>>("key")?;
    if let (None, Some(key)) = (&certificate, &key) {
        let help = "add certificate = \"…\", the chain for the key";
        return Err(source.error(
            key.span(),
            "the site has a `key` but no `certificate`",
            help,
        ));
    }
    let RedirectKeys {
        redirects,
        redirect_map,
    } = RedirectKeys::take(&mut table)?;
    let requests = RequestKeys::take(&mut table)?;
    let http = table.spanned_word("http", &plain)?;
    let http = http.unwrap_or(Spanned::new(0..0, PlainHttp::default()));
    let site = SiteConfig {
        names,
        root,
        release,
        http: *http.get_ref(),
        http_span: http.span(),
        index: index(&mut table)?,
        try_paths: try_paths(&mut table)?,
        errors: error_pages(&mut table)?,
        listing: table.take("listing")?.unwrap_or(false),
        symlinks: symlinks.map(Spanned::into_inner).unwrap_or_default(),
        certificate,
        key,
        client_ca: table.take("client_ca")?,
        hsts: hsts(&mut table)?,
        mime: mime(&mut table)?,
        cache: cache(&mut table)?,
        headers: headers(&mut table)?,
        hits: table.take("hits")?.unwrap_or(true),
        log: log_to(&mut table, "log")?,
        redirects: redirect_table::redirects(source, redirects)?,
        redirect_map,
        rate: request_table::rate_limit(requests.rate),
        cors: request_table::cors_settings(source, requests.cors)?,
        routes,
        span: table.span.clone(),
    };
    table.finish()?;
    Ok(site)
}

fn names(item: KeyedValue<'_, '_>) -> Result<Vec<Spanned<String>>, OperatorError> {
    let (source, span) = (item.source, item.value.span());
    let names: Vec<Spanned<SiteName>> = read(item)?;
    if names.is_empty() {
        let help = "write the name of the site, or \"*\" for every name";
        return Err(source.error(span, "`names` is empty", help));
    }
    Ok(names
        .into_iter()
        .map(|name| Spanned::new(name.span(), name.into_inner().0))
        .collect())
}

/// Refuses a name of two sites, or a repeated name of one site.
fn refuse_shared_names(source: &SourceText<'_>, sites: &[SiteConfig]) -> Result<(), OperatorError> {
    let mut seen: HashMap<&str, (usize, Range<usize>)> = HashMap::new();
    for (nth, site) in sites.iter().enumerate() {
        for name in site.all_names() {
            let span = if name.span().is_empty() {
                site.span.clone()
            } else {
                name.span()
            };
            let Some((first, place)) = seen.insert(name.get_ref(), (nth, span.clone())) else {
                continue;
            };
            let name = name.get_ref();
            let line = source.line(place.start);
            if first == nth {
                let what = format!("the site has the name `{name}` twice");
                return Err(source.error(span, what, "remove one of the two"));
            }
            let what = format!("two sites have the name `{name}`");
            let help = format!("the first site is in line {line}; give each site its own names");
            return Err(source.error(span, what, help));
        }
    }
    Ok(())
}

fn index(table: &mut TableReader<'_, '_>) -> Result<Vec<String>, OperatorError> {
    let Some(list) = table.take::<Vec<Spanned<String>>>("index")? else {
        return Ok(vec!["index.html".to_owned()]);
    };
    for name in &list {
        if name.get_ref().is_empty() || name.get_ref().contains(['/', '\0']) {
            let what = format!("`{}` is not a file name", name.get_ref());
            let help = "write a name without a folder, such as \"index.html\"";
            return Err(table.source().error(name.span(), what, help));
        }
    }
    Ok(list.into_iter().map(Spanned::into_inner).collect())
}

fn try_paths(table: &mut TableReader<'_, '_>) -> Result<Vec<String>, OperatorError> {
    let Some(list) = table.take::<Vec<Spanned<String>>>("try")? else {
        return Ok(vec!["$path".to_owned()]);
    };
    for (nth, path) in list.iter().enumerate() {
        let (text, query) = match path.get_ref().split_once('?') {
            Some((text, query)) => (text, Some(query)),
            None => (path.get_ref().as_str(), None),
        };
        if let Some(query) = query {
            let refuse = |what: String, help| Err(table.source().error(path.span(), what, help));
            if nth + 1 < list.len() {
                let what = format!("`{text}` has a query but is not the last entry of `try`");
                let help =
                    "only the last entry, which handles all remaining paths, may have a query";
                return refuse(what, help);
            }
            if !text.starts_with('/') || text.trim_start_matches('/').starts_with("$path") {
                let what = format!(
                    "`{text}` cannot have a query, since the entry stands for the requested file"
                );
                let help = "a query needs a fixed script, such as \"/index.php?q=$path\"";
                return refuse(what, help);
            }
            query_of(table.source(), path.span(), query)?;
        }
        let fixed = text.strip_prefix("$path");
        let fixed = fixed.or_else(|| text.strip_suffix("$path"));
        let fixed = fixed.unwrap_or(text);
        let begins = text.starts_with('/') || text.starts_with("$path");
        if !begins || fixed.contains(['$', '\0']) || fixed.split('/').any(|part| part == "..") {
            let what = format!("`{text}` is not a path for `try`");
            let help =
                "write \"$path\", \"$path.html\" or a page of the site such as \"/index.html\"";
            return Err(table.source().error(path.span(), what, help));
        }
    }
    Ok(list.into_iter().map(Spanned::into_inner).collect())
}

/// Validates the query of the last entry of `try`, or of `rewrite`.
fn query_of(source: &SourceText<'_>, span: Range<usize>, query: &str) -> Result<(), OperatorError> {
    let refuse = |what: String, help| Err(source.error(span.clone(), what, help));
    let is_odd = |byte: u8| !byte.is_ascii_graphic() || byte == b'#';
    if query.bytes().any(is_odd) {
        let what = format!("`{query}` is not a query");
        let help =
            "write the query as in a URL: without spaces or `#`, percent-encoded where needed";
        return refuse(what, help);
    }
    for part in query.split('&').filter(|part| *part != "$query") {
        let known = part.replace("$path", "").replace("$rest", "");
        if known.contains("$query") {
            let what = format!("`$query` is only a part of the parameter `{part}`");
            let help =
                "`$query` stands for the whole query of the request: write it alone between `&`";
            return refuse(what, help);
        }
        if known.contains('$') {
            let what = format!("`{part}` has a `$` without a known name");
            let help = "the names are `$path`, `$rest` and `$query`; write %24 for a literal `$`";
            return refuse(what, help);
        }
    }
    Ok(())
}

fn error_pages(
    table: &mut TableReader<'_, '_>,
) -> Result<Vec<(u16, Spanned<String>)>, OperatorError> {
    let Some(item) = table.item("errors") else {
        return Ok(Vec::new());
    };
    let mut pages = Vec::new();
    for (key, item) in item.table(&ERRORS)?.rest() {
        let source = item.source;
        let status = match key.get_ref().parse::<u16>() {
            Ok(status) if (400..=599).contains(&status) => status,
            _ => {
                let what = format!("`{}` is not the status of an error", key.get_ref());
                return Err(source.error(
                    key.span(),
                    what,
                    "write a number from 400 to 599, such as 404",
                ));
            }
        };
        let page: Spanned<String> = read(item)?;
        let path = page.get_ref().trim_start_matches('/');
        let inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !inside || path.contains('\0') {
            let what = format!("`{}` is not a page of the site", page.get_ref());
            return Err(source.error(
                page.span(),
                what,
                "write a path below the root, such as \"404.html\"",
            ));
        }
        pages.push((status, Spanned::new(page.span(), path.to_owned())));
    }
    Ok(pages)
}

fn hsts(table: &mut TableReader<'_, '_>) -> Result<Option<u64>, OperatorError> {
    let Some(item) = table.item("hsts") else {
        return Ok(None);
    };
    match item.value.get_ref().as_bool() {
        Some(true) => Ok(Some(HSTS_SECONDS)),
        Some(false) => Ok(None),
        None if item.text().is_none() && !item.value.get_ref().is_integer() => {
            Err(item.mistyped("true, false or a duration", "\"365d\""))
        }
        None => Ok(Some(read::<Seconds>(item)?.0)),
    }
}

fn mime(table: &mut TableReader<'_, '_>) -> Result<Vec<(String, String)>, OperatorError> {
    let Some(item) = table.item("mime") else {
        return Ok(Vec::new());
    };
    let mut types = Vec::new();
    for (ending, item) in item.table(&MIME)?.rest() {
        let source = item.source;
        let name = ending.get_ref();
        if !name.starts_with('.') || name.len() < 2 || name.contains('/') {
            let what = format!("`{name}` is not a file ending");
            let right = name.trim_start_matches(['*', '.']).replace('/', "");
            let help = format!("begin the file ending with a dot: \".{right}\"");
            return Err(source.error(ending.span(), what, help));
        }
        let media: Spanned<String> = read(item)?;
        let essence = media
            .get_ref()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim_end();
        let halves = essence.split_once('/');
        if !halves.is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
            || !is_field_value(media.get_ref())
        {
            let what = format!("`{}` is not a media type", media.get_ref());
            return Err(source.error(
                media.span(),
                what,
                "write a type such as \"text/html; charset=utf-8\"",
            ));
        }
        types.push((name.to_ascii_lowercase(), media.into_inner()));
    }
    Ok(types)
}

fn cache(table: &mut TableReader<'_, '_>) -> Result<Vec<CacheControlConfig>, OperatorError> {
    let Some(item) = table.item("cache") else {
        return Ok(Vec::new());
    };
    let mut rules = Vec::new();
    for mut rule in item.tables(&CACHE)? {
        let files = rule.take("files")?;
        let max_age = rule.take::<Seconds>("max_age")?;
        let immutable = rule.take("immutable")?.unwrap_or(false);
        let (Some(files), Some(Seconds(max_age))) = (files, max_age) else {
            return Err(rule.lacks(
                "a rule of `cache` needs `files` and `max_age`",
                "{ files = \"*.png\", max_age = \"30d\" }",
            ));
        };
        rule.finish()?;
        rules.push(CacheControlConfig {
            files,
            max_age,
            immutable,
        });
    }
    Ok(rules)
}

fn headers(table: &mut TableReader<'_, '_>) -> Result<Vec<HeadersConfig>, OperatorError> {
    let Some(item) = table.item("headers") else {
        return Ok(Vec::new());
    };
    let mut rules = Vec::new();
    for mut rule in item.tables(&HEADERS)? {
        let files = rule.take("files")?;
        let set = rule.item("set");
        let (Some(files), Some(set)) = (files, set) else {
            return Err(rule.lacks(
                "a rule of `headers` needs `files` and `set`",
                "{ files = \"*\", set = { \"X-Content-Type-Options\" = \"nosniff\" } }",
            ));
        };
        rule.finish()?;
        let set = set.table(&SET)?.rest();
        let set = set.into_iter().map(|entry| field(entry, reserved_field));
        let set = set.collect::<Result<Vec<_>, _>>()?;
        rules.push(HeadersConfig { files, set });
    }
    Ok(rules)
}

/// Reads a field with its value. `reserved` returns the reason why a field cannot be set.
pub(super) fn field(
    (name, item): (Spanned<String>, KeyedValue<'_, '_>),
    reserved: fn(&str) -> Option<&'static str>,
) -> Result<(String, String), OperatorError> {
    let source = item.source;
    if !is_token(name.get_ref()) {
        let what = format!("`{}` is not a field name", name.get_ref());
        let help = "write letters, digits and hyphens, such as \"X-Frame-Options\"";
        return Err(source.error(name.span(), what, help));
    }
    if let Some(help) = reserved(name.get_ref()) {
        let what = format!("the field `{}` cannot be set", name.get_ref());
        return Err(source.error(name.span(), what, help));
    }
    let value: Spanned<String> = read(item)?;
    if !is_field_value(value.get_ref()) {
        let what = format!("the value is not valid for the field `{}`", name.get_ref());
        let help = "write one line without control characters, and without spaces at either end";
        return Err(source.error(value.span(), what, help));
    }
    Ok((name.into_inner(), value.into_inner()))
}

/// Values of `test`.
#[cfg(feature = "test-handlers")]
const TEST_HANDLERS: [(&str, super::TestHandlerConfig); 8] = [
    ("echo", super::TestHandlerConfig::Echo),
    ("slow", super::TestHandlerConfig::Slow),
    ("endless", super::TestHandlerConfig::Endless),
    ("page", super::TestHandlerConfig::Page),
    ("hints", super::TestHandlerConfig::Hints),
    ("hold", super::TestHandlerConfig::Hold),
    ("trailers", super::TestHandlerConfig::Trailers),
    ("tunnel", super::TestHandlerConfig::Tunnel),
];

fn route(mut table: TableReader<'_, '_>) -> Result<RouteConfig, OperatorError> {
    let source = table.source();
    let Some(path) = table.take::<Spanned<String>>("path")? else {
        return Err(table.lacks(
            "a [[site.route]] needs `path`",
            "for example path = \"/private/\"",
        ));
    };
    route_path(source, &path)?;
    refuse_wildcard(source, &path)?;
    let allow = table.take("allow")?;
    let users = table.take("users")?;
    let RouteRequestKeys {
        methods,
        guard_methods,
        deny,
        body_bytes,
        requests,
    } = RouteRequestKeys::take(&mut table)?;
    if let (Some(methods), None, None) = (&guard_methods, &allow, &users) {
        let what = "`guard_methods` has no effect without `allow` or `users`";
        let help = "add `users`, or write `methods` to refuse all other methods";
        return Err(source.error(methods.span(), what, help));
    }
    let methods = request_table::method_set(source, "methods", methods)?;
    let guard_methods = request_table::method_set(source, "guard_methods", guard_methods)?;
    let cors = request_table::cors_settings(source, requests.cors)?;

    // Targets in the order of the file, so that the error points at the second target.
    let mut targets: Vec<(&str, Range<usize>, TargetConfig)> = Vec::new();
    let mut add = |name, span: Range<usize>, target| {
        let place = targets.partition_point(|(_, other, _)| other.start < span.start);
        targets.insert(place, (name, span, target));
    };
    if let Some(redirect) = table.take::<Spanned<RouteRedirectTable>>("redirect")? {
        let span = redirect.span();
        let redirect = redirect_table::route_redirect(source, redirect.into_inner(), span.clone())?;
        add("redirect", span, TargetConfig::Redirect(redirect));
    }
    if let Some(to) = table.take::<Spanned<String>>("rewrite")? {
        match to.get_ref().split_once('?') {
            None => route_path(source, &to)?,
            Some((path, query)) => {
                route_path(source, &Spanned::new(to.span(), path.to_owned()))?;
                query_of(source, to.span(), query)?;
            }
        }
        add("rewrite", to.span(), TargetConfig::Rewrite(to));
    }
    if let Some(root) = table.take::<Spanned<PathBuf>>("root")? {
        add("root", root.span(), TargetConfig::Root(root));
    }
    if let Some(hits) = table.take::<Spanned<bool>>("hits")?
        && *hits.get_ref()
    {
        add("hits", hits.span(), TargetConfig::Hits(hits));
    }
    #[cfg(feature = "test-handlers")]
    if let Some(test) = table.word("test", &TEST_HANDLERS)? {
        add("test", table.span.clone(), TargetConfig::Test(test));
    }
    let proxied = proxy_table::proxy_targets(&mut table)?;
    for (name, span, target) in proxied.targets {
        add(name, span, target);
    }
    let live = scripts::handler_keys(&mut table, users.is_some())?;
    if let Some((name, span, target)) = live.target {
        add(name, span, target);
    }
    if let [(first, ..), (second, span, _), ..] = targets.as_slice() {
        let what = format!("a route has one target, not both `{first}` and `{second}`");
        return Err(source.error(span.clone(), what, "remove one of the two"));
    }
    if let (Some((name, span, target)), true) = (targets.first(), live.scripts.is_some())
        && !matches!(target, TargetConfig::Rewrite(_))
    {
        let what = format!(
            "`{name}` handles all requests of the route, so the route cannot run files of the \
             site as scripts"
        );
        let help = "move the target to a route of its own, or remove the scripts";
        return Err(source.error(span.clone(), what, help));
    }
    let target = targets.pop().map(|(.., target)| target);
    let cache = page_cache(&mut table, target.as_ref(), live.scripts.is_some())?;
    let span = table.span.clone();
    table.finish()?;
    let has_guard = allow.is_some() || deny.is_some() || users.is_some() || methods.is_some();
    let has_rule = body_bytes.is_some() || requests.rate.is_some() || cors.is_some();
    if target.is_none() && !has_guard && !has_rule && live.scripts.is_none() {
        let help = "add a target (redirect, rewrite, root, cgi, fastcgi, proxy, git) or a guard (allow, deny, users)";
        return Err(source.error(span, "the route has no effect", help));
    }
    Ok(RouteConfig {
        span,
        path,
        target,
        allow,
        deny: deny.map(Spanned::into_inner),
        users,
        guard_methods,
        methods,
        body_bytes: body_bytes.map(|bytes| bytes.into_inner().0),
        rate: request_table::rate_limit(requests.rate),
        cors,
        scripts: live.scripts,
        cache,
        encoded_slash: proxied.encoded_slash,
    })
}

/// Reads `cache` of a route: a boolean, or a table with settings.
fn page_cache(
    table: &mut TableReader<'_, '_>,
    target: Option<&TargetConfig>,
    has_scripts: bool,
) -> Result<Option<PageCacheConfig>, OperatorError> {
    let Some(item) = table.item("cache") else {
        return Ok(None);
    };
    if matches!(target, Some(TargetConfig::Git(_))) {
        let what = "`cache` cannot be used with `git`: the response depends on the objects that \
                    the client already has";
        return Err(item.refuse(what, "remove `cache`"));
    }
    let is_stored = matches!(
        target,
        None | Some(
            TargetConfig::Root(_)
                | TargetConfig::Redirect(_)
                | TargetConfig::Rewrite(_)
                | TargetConfig::Hits(_)
        )
    );
    if is_stored && !has_scripts {
        let help = "files are served from memory; to set how long browsers keep files, use \
                    `cache` of the [[site]]";
        return Err(item.refuse(
            "`cache` stores responses of a handler, but the route has no handler",
            help,
        ));
    }
    match item.value.get_ref().as_bool() {
        Some(false) => return Ok(None),
        Some(true) => {
            return Ok(Some(PageCacheConfig {
                seconds: None,
                stale_while_revalidate: 0,
                stale_if_error: 0,
                page_bytes: CACHE_PAGE_BYTES,
                ignore_cookies: false,
                disk: false,
            }));
        }
        None if !item.value.get_ref().is_table() => {
            return Err(item.mistyped("true or a table", "{ seconds = 10 }"));
        }
        None => {}
    }
    let mut table = item.table(&PAGE_CACHE)?;
    let seconds = table.within::<Seconds>("seconds", 1..=SECONDS_MAX)?;
    let seconds = seconds.map(u64::from);
    let while_revalidate = table.within::<Seconds>("stale_while_revalidate", 0..=SECONDS_MAX)?;
    let if_error = table.within::<Seconds>("stale_if_error", 0..=SECONDS_MAX)?;
    let page_bytes = table.within::<ByteSize>("page_bytes", 1..=u64::MAX)?;
    let cache = PageCacheConfig {
        seconds,
        // Defaults of a route with `seconds`: while the handler makes a new page, the old page may be
        // served for another freshness lifetime. While the handler fails, the old page may be served for
        // one hour after the freshness lifetime, since an old page is better than an error.
        stale_while_revalidate: while_revalidate.map_or(seconds.unwrap_or(0), u64::from),
        stale_if_error: if_error.map_or(seconds.map_or(0, |_| STALE_IF_ERROR_SECONDS), u64::from),
        page_bytes: page_bytes.map_or(CACHE_PAGE_BYTES, u64::from),
        ignore_cookies: table.take("ignore_cookies")?.unwrap_or(false),
        disk: table.take("disk")?.unwrap_or(false),
    };
    table.finish()?;
    Ok(Some(cache))
}

/// Refuses a path of a route with `*` at the end. The path is a prefix, and no request would match.
fn refuse_wildcard(source: &SourceText<'_>, path: &Spanned<String>) -> Result<(), OperatorError> {
    let Some(prefix) = path.get_ref().strip_suffix('*') else {
        return Ok(());
    };
    let prefix = prefix.trim_end_matches('*');
    let what = format!("`{}` has a wildcard", path.get_ref());
    let help = format!("a path is a prefix: write \"{prefix}\"");
    Err(source.error(path.span(), what, help))
}

/// Validates the path of a route. The path is compared with decoded, normalised paths, so the path has to
/// be in the same form.
fn route_path(source: &SourceText<'_>, path: &Spanned<String>) -> Result<(), OperatorError> {
    let text = path.get_ref().as_str();
    let refuse = |help: String| {
        Err(source.error(
            path.span(),
            format!("`{text}` is not a path of a site"),
            help,
        ))
    };
    if text.starts_with(['~', '^', '=']) {
        return refuse("a path is a prefix, without modifiers or regular expressions".to_owned());
    }
    if !text.starts_with('/') {
        return refuse(format!("begin the path with a slash: \"/{text}\""));
    }
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if bytes
        .iter()
        .enumerate()
        .any(|(at, &b)| b == b'%' && is_hex(at + 1) && is_hex(at + 2))
    {
        return refuse(
            "write the path decoded, without percent-encoding: \"/my files/\"".to_owned(),
        );
    }
    let mut parts = text.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        if matches!(part, "." | "..") || (part.is_empty() && parts.peek().is_some()) {
            return refuse("write the path without `.`, `..` or doubled slashes".to_owned());
        }
    }
    if text.contains(['\\', '?', '#']) || text.chars().any(char::is_control) {
        return refuse(
            "write the path alone, without `?`, `#`, backslash or control characters".to_owned(),
        );
    }
    Ok(())
}

/// Refuses two routes of a site with targets for the same path.
fn refuse_shared_paths(
    source: &SourceText<'_>,
    routes: &[RouteConfig],
) -> Result<(), OperatorError> {
    for (nth, route) in routes.iter().enumerate() {
        let component = |route: &RouteConfig| route.path.get_ref().trim_end_matches('/').to_owned();
        let twin = routes[..nth].iter().find(|other| {
            other.target.is_some() && route.target.is_some() && component(other) == component(route)
        });
        if let Some(twin) = twin {
            let line = source.line(twin.path.span().start);
            let what = format!("two routes have a target for `{}`", route.path.get_ref());
            let help =
                format!("the first is in line {line}; remove one of the two, or change its path");
            return Err(source.error(route.path.span(), what, help));
        }
    }
    Ok(())
}
