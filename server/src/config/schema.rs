//! Reading of a configuration: the tables of the first file and of all included files.
//!
//! An error is recorded, and the reading goes on: a configuration with mistakes has the values that could be read.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::DeTable;

use crate::config::acme_table::AcmeTable;
use crate::config::balancer::{self, BalancerConfig, balancers};
use crate::config::balancer_table::{
    BalancerTable, EjectTable, HealthTable, MemberTable, RetriesTable, StickyTable,
};
use crate::config::configuration::Config;
use crate::config::connection_table::ConnectionKeys;
use crate::config::declared_table::DeclaredTable;
use crate::config::deployments;
use crate::config::error::OperatorError;
use crate::config::included_files::{FileCollector, IncludedFiles};
use crate::config::limits_table::LimitsTable;
use crate::config::listen_addresses::settle_addresses;
use crate::config::log_table::LogTable;
use crate::config::managed_certificates;
use crate::config::manager_table::{self, ManagerTable};
use crate::config::paths::{self, DefaultPaths};
use crate::config::proxy_table::{BalanceTable, ForwardKeys, ProxyTable};
use crate::config::route_table::RouteTable;
use crate::config::server_table::{ServerConfig, ServerTable, server};
use crate::config::site_table::{SiteConfig, SiteTable, site};
use crate::config::source_files::SourceFiles;
use crate::config::syntax_errors::{early_table, syntax_error};
use crate::config::table_relations::{
    refuse_untrusted_listener, report_rotated_names, report_shared_datagram_ports,
    report_shared_names, report_unknown_balancers,
};
use crate::config::tls_table::{TlsConfig, TlsTable};
use crate::config::toml_reader::{SourceText, TableReader, TableSchema};
use crate::config::variables::{DocumentSettler, Environment};

/// Keys of the first file.
static FIRST_FILE: TableSchema = TableSchema {
    name: "the file",
    keys: &[
        "include", "server", "log", "tls", "site", "balancer", "manager",
    ],
    later: &["cluster"],
    foreign: FOREIGN,
};
/// Keys of an included file.
static INCLUDED_FILE: TableSchema = TableSchema {
    name: "an included file",
    keys: &["include", "site", "balancer"],
    later: &[],
    foreign: &[
        ("server", FIRST_FILE_HELP),
        ("log", FIRST_FILE_HELP),
        ("tls", FIRST_FILE_HELP),
        ("manager", FIRST_FILE_HELP),
        ("upstream", BALANCER_HELP),
        ("upstreams", BALANCER_HELP),
        ("backend", BALANCER_HELP),
    ],
};
/// Words of other servers for tables.
const FOREIGN: &[(&str, &str)] = &[
    ("upstream", BALANCER_HELP),
    ("upstreams", BALANCER_HELP),
    ("backend", BALANCER_HELP),
    ("proxy", PROXY_HELP),
    ("proxy_pass", PROXY_HELP),
    ("reverse_proxy", PROXY_HELP),
    ("http", "write http = [\":80\"] in [server]"),
    ("https", "write https = [\":443\"] in [server]"),
    (
        "location",
        "write [[site.route]] with `path`, below a [[site]]",
    ),
    (
        "route",
        "write [[site.route]] with `path`, below a [[site]]",
    ),
    (
        "sites",
        "write [[site]], or include = [\"sites.d/*.toml\"] for files with sites",
    ),
    ("vhost", "write [[site]] with `names`"),
    ("VirtualHost", "write [[site]] with `names`"),
    (
        "acme",
        "write [tls] with acme = { email = \"me@example.org\" }",
    ),
    ("limits", "write limits = { … } in [server]"),
    ("import", "write include = [\"sites.d/*.toml\"]"),
    ("Include", "write include = [\"sites.d/*.toml\"]"),
];
/// Help for a table of the first file in an included file.
const FIRST_FILE_HELP: &str =
    "included files hold [[site]] and [[balancer]]; write this table in the first file";
/// Help for words of other servers that mean a group of servers.
const BALANCER_HELP: &str =
    "write [[balancer]] with `name` and `members`, and `balance` in a route";
/// Help for words of other servers that mean a proxied path.
const PROXY_HELP: &str =
    "write `proxy = \"http://127.0.0.1:9000\"` in a [[site.route]] with `path`";
/// Returns the name of the table that a key of the table `wrong` belongs to, for the help of a key in the wrong
/// table.
fn home_of(key: &str, wrong: &TableSchema) -> Option<&'static str> {
    let of_balancer = [
        BalancerTable::SCHEMA,
        MemberTable::SCHEMA,
        HealthTable::SCHEMA,
        StickyTable::SCHEMA,
        RetriesTable::SCHEMA,
        EjectTable::SCHEMA,
    ];
    if key == "include" {
        return Some("the top of the file, above the first table");
    }
    let is_in_balancer = of_balancer.iter().any(|table| table.name == wrong.name);
    if ConnectionKeys::KEYS.contains(&key) {
        return Some(
            if is_in_balancer || wrong.name == BalanceTable::SCHEMA.name {
                BalancerTable::SCHEMA.name
            } else {
                "`proxy = { url = … }`, or with `balance` in [[balancer]]"
            },
        );
    }
    if ForwardKeys::KEYS.contains(&key) {
        return Some(if is_in_balancer {
            "the route: `balance = { name = … }`"
        } else {
            "`proxy = { url = … }` or `balance = { name = … }` of a route"
        });
    }
    let shapes = [
        ServerTable::SCHEMA,
        LogTable::SCHEMA,
        TlsTable::SCHEMA,
        SiteTable::SCHEMA,
        RouteTable::SCHEMA,
        LimitsTable::SCHEMA,
        AcmeTable::SCHEMA,
        ProxyTable::SCHEMA,
        ManagerTable::SCHEMA,
    ];
    let mut shapes = shapes.into_iter().chain(of_balancer);
    let home = shapes.find(|shape| shape.keys.contains(&key));
    home.map(|shape| shape.name)
}

/// Configuration as far as it could be read, with the mistakes.
pub(super) struct Reading {
    pub(super) config: Config,
    pub(super) errors: Vec<OperatorError>,
}

impl Reading {
    /// Returns the configuration, or all mistakes.
    pub(super) fn whole(self) -> Result<Config, OperatorError> {
        match OperatorError::all(self.errors) {
            Some(error) => Err(error),
            None => Ok(self.config),
        }
    }
}

/// Reads a configuration file and the included files. Fails if the file itself can't be read.
pub(super) fn load(path: &Path) -> Result<Reading, OperatorError> {
    let text = paths::read_text(path)?;
    let absolute = paths::absolute(path)?;
    let shown = path.display().to_string();
    read(
        &text,
        &absolute,
        &shown,
        |name| std::env::var_os(name),
        true,
    )
}

/// Parses the text of a configuration. `path` is absolute, and need not exist. The function opens no file, and knows
/// no variable of the environment.
pub(super) fn parse(text: &str, path: &Path) -> Result<Reading, OperatorError> {
    read(text, path, &path.display().to_string(), |_| None, false)
}

/// Returns the configuration of a folder without a configuration file.
pub(super) fn guess(folder: &Path) -> Result<Reading, OperatorError> {
    let shown = folder.display().to_string();
    let folder = paths::absolute(folder)?;
    let files = SourceFiles::single("", &shown);
    let mut reading = tables(
        files,
        vec![Some(DeTable::new())],
        false,
        None,
        &folder,
        &shown,
    )?;
    for site in &mut reading.config.sites {
        site.root = Some(Spanned::new(0..0, folder.clone()));
    }
    Ok(reading)
}

/// Returns the configuration of `anthill proxy`: a site for any name, whose requests reach the application at `url`.
///
/// # Errors
/// If the current folder has no path.
pub(super) fn proxy(url: &str) -> Result<Reading, OperatorError> {
    let text = format!("[[site]]\n[[site.route]]\npath = \"/\"\nproxy = \"{url}\"\n");
    let files = SourceFiles::single(&text, url);
    let document = DeTable::parse(&text).map_err(|error| OperatorError::new(error.to_string()))?;
    let folder = paths::proxy_path(url)?;
    tables(
        files,
        vec![Some(document.into_inner())],
        false,
        None,
        &folder,
        url,
    )
}

fn read(
    text: &str,
    path: &Path,
    shown: &str,
    environment: Environment,
    opens_files: bool,
) -> Result<Reading, OperatorError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let IncludedFiles {
        mut files,
        starts,
        mut errors,
        doubts,
    } = FileCollector::read(text, Some(path), shown, folder, environment, opens_files);
    let mut text = files.text().to_owned();
    // The tables that remain without an early [[site.route]] are read, so that their mistakes are reported too.
    let mut has_gap = false;
    for &(start, end) in &starts {
        for _ in 0..EARLY_TABLES_MAX {
            let Err(error) = DeTable::parse(&text[start..end]) else {
                break;
            };
            let Some(early) = early_table(&text[..end], start, &error) else {
                break;
            };
            errors.push(syntax_error(&files, &text[..end], start, &error));
            let blank: String = text[early.clone()].bytes().map(blank).collect();
            text.replace_range(early, &blank);
            has_gap = true;
        }
    }
    let mut documents = Vec::with_capacity(starts.len());
    let mut has_include = false;
    for (start, end) in starts {
        match DeTable::parse(&text[start..end]) {
            Ok(document) => {
                let mut document = document.into_inner();
                has_include |= document.remove("include").is_some();
                let mut settler = DocumentSettler {
                    files: &mut files,
                    errors: &mut errors,
                    environment,
                    start,
                };
                documents.push(Some(settler.table(document)));
            }
            Err(error) => {
                errors.push(syntax_error(&files, &text[..end], start, &error));
                documents.push(None);
            }
        }
    }
    let mut reading = tables(files, documents, has_include, Some(path), folder, shown)?;
    for site in reading.config.sites.iter_mut().filter(|_| has_gap) {
        // The lost route may answer for all paths, so the default root may be unused.
        site.root.take_if(|root| root.span() == site.span);
    }
    if !errors.is_empty() || !doubts.is_empty() {
        // The sites are probably in the files that are not there.
        let lacks_sites = reading.errors.iter().any(|it| it.what() == NO_SITE);
        reading.errors.retain(|error| error.what() != NO_SITE);
        if lacks_sites && errors.is_empty() && reading.errors.is_empty() {
            errors.extend(doubts.iter().cloned());
        }
    }
    errors.append(&mut reading.errors);
    reading.errors = errors;
    reading.config.doubts.splice(0..0, doubts);
    Ok(reading)
}

/// Mistake of a configuration without a site.
const NO_SITE: &str = "the file has no [[site]]";

/// Number of tables above their list that are reported for a file. Each one costs a further parse.
const EARLY_TABLES_MAX: usize = 16;

/// Returns the character that takes the place of a byte of a removed table.
fn blank(byte: u8) -> char {
    match byte {
        b'\n' => '\n',
        _ => ' ',
    }
}

/// Reads the tables of all documents. A document is `None` if its file has a syntax error. `has_include` is true if the
/// first file includes files.
fn tables(
    files: SourceFiles,
    documents: Vec<Option<DeTable<'_>>>,
    has_include: bool,
    path: Option<&Path>,
    folder: &Path,
    shown: &str,
) -> Result<Reading, OperatorError> {
    let source = SourceText::new(&files, folder, home_of);
    let has_syntax = documents.iter().all(Option::is_some);
    let mut readers = Vec::with_capacity(documents.len());
    for (nth, document) in documents.into_iter().enumerate() {
        let schema = if nth == 0 {
            &FIRST_FILE
        } else {
            &INCLUDED_FILE
        };
        let document = document.unwrap_or_default();
        readers.push(TableReader::new(&source, schema, 0..0, document));
    }
    let mut counted = 0;
    let mut is_whole = || std::mem::replace(&mut counted, source.error_count()) == counted;

    let places = DefaultPaths::of(path.unwrap_or(folder));
    let server_reader = opened(&mut readers[0], "server", ServerTable::SCHEMA);
    let server_span = server_reader.span.clone();
    let (mut server, short) = server(server_reader, &places)?;
    let mut whole = WholeTables {
        server: is_whole(),
        ..WholeTables::default()
    };
    let log = keys::<LogTable>(opened(&mut readers[0], "log", LogTable::SCHEMA))?;
    let log = log.settings(&source);
    let tls = keys::<TlsTable>(opened(&mut readers[0], "tls", TlsTable::SCHEMA))?;
    let tls = tls.settings(&source);
    let manager = readers[0].item("manager").and_then(|item| {
        let example = "{ listen = \"127.0.0.1:8800\" }";
        let table = source.keep(item.table_like(ManagerTable::SCHEMA, example))?;
        source.keep(ManagerTable::read_table(table))
    });
    let manager = source.keep(manager_table::manager(&source, manager, short));
    let mut manager = manager.flatten();
    is_whole();
    let balancers: Vec<BalancerConfig> = readers
        .iter_mut()
        .flat_map(|file| balancers(file.item("balancer")))
        .collect();
    balancer::report_shared_names(&source, &balancers);
    whole.balancers = is_whole();
    let (mut sites, has_table) = sites(&mut readers);
    whole.sites = is_whole();
    for reader in readers {
        // Unknown tables are recorded.
        let _ = reader.finish();
    }

    let by_sites = !sites.is_empty() && sites.iter().all(SiteConfig::has_own_listeners);
    if by_sites {
        // The default addresses would serve nothing.
        server.https.retain(|address| !address.span().is_empty());
        server.http.retain(|address| !address.span().is_empty());
    }
    if whole.server {
        if !by_sites && server.https.is_empty() && server.http.is_empty() {
            let help = "give `https` or `http` an address, such as \":8443\"";
            source.report(source.error(server_span, "there is no address to listen on", help));
        }
        let settled = settle_addresses(&source, &mut server, manager.as_mut(), &mut sites);
        source.keep(settled);
    }
    if has_syntax {
        // With a mistake, the tables of a site probably have another name.
        if !has_table && !has_include && source.error_count() == 0 {
            let reader = TableReader::new(&source, SiteTable::SCHEMA, 0..0, DeTable::new());
            sites.push(site(reader)?);
        }
        report_rotated_names(&source, &log, &sites);
        report_contradictions(&source, &whole, (&server, &tls, &balancers, &sites));
    }
    let doubts = source.take_doubts();
    let errors = source.into_errors();
    Ok(Reading {
        config: Config {
            path: path.map(Path::to_owned),
            folder: folder.to_owned(),
            shown: shown.to_owned(),
            source: Arc::new(files),
            doubts,
            server,
            log,
            tls,
            sites,
            balancers,
            manager,
        },
        errors,
    })
}

/// Tables without mistakes. A contradiction is reported only between such tables, since a mistake may be its cause.
#[derive(Default)]
struct WholeTables {
    server: bool,
    balancers: bool,
    sites: bool,
}

/// Reports contradictions between tables.
fn report_contradictions(
    source: &SourceText<'_>,
    whole: &WholeTables,
    (server, tls, balancers, sites): (&ServerConfig, &TlsConfig, &[BalancerConfig], &[SiteConfig]),
) {
    if sites.is_empty() && source.error_count() == 0 {
        let help = "add [[site]] with root = \"the folder to serve\"";
        source.report(source.error(0..0, NO_SITE, help));
    }
    report_shared_names(source, sites, whole.sites);
    if whole.balancers {
        report_unknown_balancers(source, balancers, sites);
    }
    if whole.server {
        source.keep(refuse_untrusted_listener(source, server));
        report_shared_datagram_ports(source, server, balancers);
    }
    if whole.sites {
        source.keep(deployments::refuse_impossible(source, sites));
    }
    let acme = tls.acme.as_ref().filter(|_| whole.server && whole.sites);
    if let Some(acme) = acme {
        source.keep(managed_certificates::refuse_impossible(
            source, acme, server, sites,
        ));
    }
}

/// Opens a table of the file; a missing or refused table is empty.
fn opened<'s, 'i>(
    file: &mut TableReader<'s, 'i>,
    name: &'static str,
    schema: &'static TableSchema,
) -> TableReader<'s, 'i> {
    let source = file.source();
    let table = file
        .item(name)
        .and_then(|item| source.keep(item.table(schema)));
    table.unwrap_or_else(|| TableReader::new(source, schema, 0..0, DeTable::new()))
}

/// Takes the keys out of a table. Errors are recorded.
fn keys<T: DeclaredTable>(mut table: TableReader<'_, '_>) -> Result<T, OperatorError> {
    let keys = T::take(&mut table);
    let _ = table.finish();
    keys
}

/// Reads the sites of all files. The second value is false if no file has the key `site`.
fn sites(files: &mut [TableReader<'_, '_>]) -> (Vec<SiteConfig>, bool) {
    let mut sites = Vec::new();
    let mut has_table = false;
    for file in files {
        let source = file.source();
        let Some(item) = file.item("site") else {
            continue;
        };
        has_table = true;
        let tables = source
            .keep(item.tables(SiteTable::SCHEMA))
            .unwrap_or_default();
        sites.extend(
            tables
                .into_iter()
                .filter_map(|table| source.keep(site(table))),
        );
    }
    (sites, has_table)
}
