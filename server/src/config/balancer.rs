//! Balancers of the configuration: conversion of `[[balancer]]` to the settings of the core, and the
//! refusal of impossible balancers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;

use crate::config::balancer_table::{
    BalancerTable, EjectTable, HealthTable, MemberTable, RetriesTable, StickyTable,
};
use crate::config::connection_table::ConnectionKeys;
use crate::config::declared_table::DeclaredTable;
use crate::config::error::OperatorError;
use crate::config::limits::CONFIG_MEMBERS_MAX;
use crate::config::member_url::shown_url;
use crate::config::proxy_values::{CheckMethod, RouteName};
use crate::config::source_files::SourceFiles;
use crate::config::toml_reader::{KeyedValue, SourceText, TableReader, TableSchema};
use crate::config::values::ListenAddress;
use balancer::settings::{
    BalancerSettings, BalancingMethod, CheckKind, CheckSettings, EjectionSettings, MemberHost,
    MemberRole, MemberSettings, MemberUrl, RetrySettings, StickySettings,
};
use cli::suggest;

/// Balancer of the configuration: a `[[balancer]]`, or the single server of a route's `proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancerConfig {
    /// Position of the name of `[[balancer]]`, or of the URL of `proxy`.
    pub span: Range<usize>,
    /// Settings in the units of the core.
    pub settings: BalancerSettings,
    /// Positions of the members' URLs, in the order of the members.
    pub member_spans: Vec<Range<usize>>,
    /// Bound of simultaneous requests of members without a bound of their own.
    pub connections: Option<usize>,
    /// UDP address that receives the load of the members, for the method `heartbeat`.
    pub heartbeat: Option<Spanned<ListenAddress>>,
    /// File with the trusted certificate authorities.
    pub ca: Option<Spanned<PathBuf>>,
    /// File with the client certificate chain.
    pub client_certificate: Option<Spanned<PathBuf>>,
    /// File with the key of the client certificate; `None` = the key is in the file of the certificate.
    pub client_key: Option<Spanned<PathBuf>>,
}

impl BalancerConfig {
    /// Replaces the members. All new members get the position of the balancer.
    pub(crate) fn set_members(&mut self, members: Vec<MemberSettings>) {
        self.member_spans = vec![self.span.clone(); members.len()];
        self.settings.members = members;
    }

    /// Returns the file with the secret key of the client certificate, with the key in the configuration.
    pub(super) fn secret_file(&self) -> Option<(&'static str, &Spanned<PathBuf>)> {
        let key = self.client_key.as_ref().map(|file| ("client_key", file));
        let combined = self.client_certificate.as_ref();
        key.or(combined.map(|file| ("client_certificate", file)))
    }

    /// Returns the balancer of a route with `proxy`: a single member.
    pub(super) fn single(
        source: &SourceText<'_>,
        url: Spanned<MemberUrl>,
        connection: ConnectionKeys,
    ) -> Result<BalancerConfig, OperatorError> {
        let span = url.span();
        let url = url.into_inner();
        let member = MemberSettings {
            url: url.clone(),
            weight: 100,
            set: 0,
            role: MemberRole::default(),
            route: Box::default(),
            redirect: Box::default(),
            admin: Default::default(),
            ignores_errors: false,
            connections_max: connection.connections.as_ref().map(|it| *it.get_ref()),
            check: Default::default(),
        };
        let members = vec![member];
        let connections = connection.connections.as_ref().map(|it| *it.get_ref());
        let settings = BalancerSettings {
            name: shown_url(&url).into(),
            method: BalancingMethod::default(),
            connection: connection.settings(source, &members)?,
            members,
            sticky: None,
            check: None,
            ejection: EjectionSettings::default(),
            retry: RetrySettings::default(),
            slow_start: Duration::ZERO,
        };
        Ok(BalancerConfig {
            span: span.clone(),
            settings,
            member_spans: vec![span],
            connections,
            heartbeat: None,
            ca: connection.ca,
            client_certificate: connection.client_certificate,
            client_key: connection.client_key,
        })
    }
}

/// Reads the single `[[balancer]]` of a text. Relative paths begin at the root folder.
pub fn read_balancer(text: &str) -> Result<BalancerConfig, OperatorError> {
    let files = SourceFiles::single(text, "[[balancer]]");
    let source = SourceText::new(&files, Path::new("/"), |_, _| None);
    let document = DeTable::parse(text).map_err(|error| OperatorError::new(error.message()))?;
    let mut file = TableReader::new(&source, &BALANCER_FILE, 0..0, document.into_inner());
    let mut all = balancers(file.item("balancer"));
    // Unknown keys are recorded.
    let _ = file.finish();
    match OperatorError::all(source.into_errors()) {
        Some(error) => Err(error),
        None => all
            .pop()
            .ok_or_else(|| OperatorError::new("the text has no [[balancer]]")),
    }
}

/// Table of a text with balancers alone.
const BALANCER_FILE: TableSchema = TableSchema {
    name: "the text",
    keys: &["balancer"],
    later: &[],
    foreign: &[],
};

/// Reads all `[[balancer]]` of a file. Errors are recorded.
pub(super) fn balancers(item: Option<KeyedValue<'_, '_>>) -> Vec<BalancerConfig> {
    let Some(item) = item else {
        return Vec::new();
    };
    let source = item.source;
    let tables = source
        .keep(item.tables(BalancerTable::SCHEMA))
        .unwrap_or_default();
    let read = |table| balancer(source, BalancerTable::read_table(table)?.into_inner());
    let balancers = tables
        .into_iter()
        .filter_map(|table| source.keep(read(table)));
    balancers.collect()
}

/// Reports each second balancer of one name.
pub(super) fn report_shared_names(source: &SourceText<'_>, balancers: &[BalancerConfig]) {
    let mut known: HashMap<&str, &Range<usize>> = HashMap::new();
    for balancer in balancers {
        let name = &*balancer.settings.name;
        if let Some(first) = known.insert(name, &balancer.span) {
            let place = source.place(first.start, &balancer.span);
            let what = format!("two balancers have the name `{name}`");
            let help = format!("the first balancer is in {place}; give each balancer its own name");
            source.report(source.error(balancer.span.clone(), what, help));
        }
    }
}

fn balancer(
    source: &SourceText<'_>,
    table: BalancerTable,
) -> Result<BalancerConfig, OperatorError> {
    let span = table.name.span();
    let members = members(source, &table)?;
    refuse_impossible_heartbeat(source, &table)?;
    let check = table.health.as_ref();
    let check = check.map(|health| check_settings(source, health.get_ref(), health.span()));
    let sticky = table.sticky.as_ref();
    let sticky = sticky.map(|sticky| sticky_settings(source, sticky, table.members.get_ref()));
    let connections = table.connection.connections.as_ref();
    let connections = connections.map(|bound| *bound.get_ref());
    let settings = BalancerSettings {
        name: table.name.into_inner().0,
        method: table.method.into_inner(),
        connection: table.connection.settings(source, &members)?,
        members,
        sticky: sticky.transpose()?,
        check: check.transpose()?,
        ejection: ejection_settings(source, table.eject.into_inner())?,
        retry: retry_settings(table.retries.into_inner()),
        slow_start: table.slow_start.into_inner(),
    };
    let member_spans = table.members.into_inner().into_iter();
    Ok(BalancerConfig {
        span,
        settings,
        member_spans: member_spans
            .map(|member| member.into_inner().url.span())
            .collect(),
        connections,
        heartbeat: table.heartbeat,
        ca: table.connection.ca,
        client_certificate: table.connection.client_certificate,
        client_key: table.connection.client_key,
    })
}

/// Returns the settings of all members. Fails without a member that gets requests, and for a member or a
/// route that occurs twice.
fn members(
    source: &SourceText<'_>,
    table: &BalancerTable,
) -> Result<Vec<MemberSettings>, OperatorError> {
    let tables = table.members.get_ref();
    let refuse = |what: &str, help: &str| Err(source.error(table.members.span(), what, help));
    if tables.is_empty() {
        let help = "write the URLs of the members: [\"http://127.0.0.1:9001\"]";
        return refuse("the balancer has no member", help);
    }
    if tables.len() > CONFIG_MEMBERS_MAX {
        let what = format!("the balancer has more than {CONFIG_MEMBERS_MAX} members");
        return refuse(&what, "share the members among several balancers");
    }
    let common = table.connection.connections.as_ref();
    let common = common.map(|bound| *bound.get_ref());
    let mut members: Vec<MemberSettings> = Vec::with_capacity(tables.len());
    for (nth, table) in tables.iter().enumerate() {
        let new = member(source, table.get_ref(), common)?;
        if let Some(twin) = members.iter().position(|member| member.url == new.url) {
            let url = shown_url(&new.url);
            let here = tables[nth].get_ref().url.span();
            let place = source.place(tables[twin].get_ref().url.span().start, &here);
            let what = format!("`{url}` is a member twice");
            let help = format!("the first is in {place}; remove one of the two");
            return Err(source.error(here, what, help));
        }
        members.push(new);
    }
    if members
        .iter()
        .all(|member| member.role != MemberRole::Regular)
    {
        let help = "remove `standby` or `spare` of at least one member";
        return refuse("every member is a standby or a spare", help);
    }
    routes(source, tables, table.sticky.is_some())?;
    Ok(members)
}

fn member(
    source: &SourceText<'_>,
    table: &MemberTable,
    common: Option<usize>,
) -> Result<MemberSettings, OperatorError> {
    let role = match (*table.standby.get_ref(), *table.spare.get_ref()) {
        (true, true) => {
            let what = "a member is either a standby or a spare";
            return Err(source.error(table.spare.span(), what, "remove `standby` or `spare`"));
        }
        (true, false) => MemberRole::Standby,
        (false, true) => MemberRole::Spare,
        (false, false) => MemberRole::Regular,
    };
    let name = |name: &Option<Spanned<RouteName>>| match name {
        Some(name) => name.get_ref().0.clone(),
        None => Box::default(),
    };
    let own = table.connections.as_ref().map(|bound| *bound.get_ref());
    Ok(MemberSettings {
        url: table.url.get_ref().clone(),
        weight: table.weight.get_ref().0,
        set: *table.set.get_ref(),
        role,
        route: name(&table.route),
        redirect: name(&table.redirect),
        admin: *table.status.get_ref(),
        ignores_errors: *table.ignore_errors.get_ref(),
        connections_max: own.or(common),
        check: Default::default(),
    })
}

/// Refuses a route of two members, a `redirect` that leads to no other member, and a `redirect` without
/// sticky sessions.
fn routes(
    source: &SourceText<'_>,
    tables: &[Spanned<MemberTable>],
    is_sticky: bool,
) -> Result<(), OperatorError> {
    let routes = tables
        .iter()
        .filter_map(|table| table.get_ref().route.as_ref());
    let routes: Vec<&Spanned<RouteName>> = routes.collect();
    for (nth, route) in routes.iter().enumerate() {
        if routes[..nth].contains(route) {
            let what = format!("two members have the route `{}`", route.get_ref().0);
            return Err(source.error(route.span(), what, "give each member its own route"));
        }
    }
    for table in tables.iter().map(Spanned::get_ref) {
        let Some(redirect) = &table.redirect else {
            continue;
        };
        if !is_sticky {
            let what = "`redirect` has no effect without `sticky` in [[balancer]]";
            let help = "add sticky = { cookie = \"ROUTE\", signed = true }, or remove `redirect`";
            return Err(source.error(redirect.span(), what, help));
        }
        let name = &*redirect.get_ref().0;
        let own = table.route.as_ref().map(|route| &*route.get_ref().0);
        let names = routes.iter().map(|route| &*route.get_ref().0);
        if own != Some(name) && names.clone().any(|route| route == name) {
            continue;
        }
        let what = format!("`{name}` is not the route of another member");
        let help = match suggest(name, names.filter(|route| own != Some(*route))) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "write the `route` of the member that replaces this member".to_owned(),
        };
        return Err(source.error(redirect.span(), what, help));
    }
    Ok(())
}

/// Refuses the method `heartbeat` without the address of the datagrams, or with members that have no IP
/// address, and refuses the address for another method.
fn refuse_impossible_heartbeat(
    source: &SourceText<'_>,
    table: &BalancerTable,
) -> Result<(), OperatorError> {
    let is_heartbeat = *table.method.get_ref() == BalancingMethod::Heartbeat;
    match &table.heartbeat {
        None if is_heartbeat => {
            let what = "the method `heartbeat` needs an address that receives the datagrams";
            let help = "add heartbeat = \"0.0.0.0:27999\"";
            return Err(source.error(table.method.span(), what, help));
        }
        Some(address) if !is_heartbeat => {
            let what = "`heartbeat` has no effect with another method";
            let help = "write method = \"heartbeat\", or remove `heartbeat`";
            return Err(source.error(address.span(), what, help));
        }
        _ => {}
    }
    let members = table.members.get_ref().iter();
    let mut urls = members.map(|member| &member.get_ref().url);
    let on_socket = urls.find(|url| matches!(url.get_ref().host, MemberHost::Unix(_)));
    match on_socket {
        Some(url) if is_heartbeat => {
            let what = "a member on a Unix socket sends no heartbeats";
            let help = "write an IP address and a port, or choose another method";
            Err(source.error(url.span(), what, help))
        }
        _ => Ok(()),
    }
}

fn check_settings(
    source: &SourceText<'_>,
    table: &HealthTable,
    span: Range<usize>,
) -> Result<CheckSettings, OperatorError> {
    let every = *table.every.get_ref();
    let timeout = match &table.timeout {
        Some(timeout) if *timeout.get_ref() > every => {
            let what = "`timeout` is longer than `every`: the checks would overlap";
            let help = "write a shorter timeout, or a longer time in `every`";
            return Err(source.error(timeout.span(), what, help));
        }
        Some(timeout) => *timeout.get_ref(),
        None => CHECK_TIMEOUT.min(every),
    };
    Ok(CheckSettings {
        kind: check_kind(source, table, span)?,
        every,
        timeout,
        rise: *table.rise.get_ref(),
        fall: *table.fall.get_ref(),
    })
}

/// Returns the kind of the checks. Fails if the table has neither `tcp` nor `path`, or `tcp` with a key of
/// HTTP checks. A default has an empty span.
fn check_kind(
    source: &SourceText<'_>,
    table: &HealthTable,
    span: Range<usize>,
) -> Result<CheckKind, OperatorError> {
    if *table.tcp.get_ref() {
        let keys = [
            ("path", table.path.as_ref().map(Spanned::span)),
            ("method", Some(table.method.span())),
            ("host", table.host.as_ref().map(Spanned::span)),
            ("status", Some(table.status.span())),
            ("text", table.text.as_ref().map(Spanned::span)),
        ];
        let mut keys = keys
            .into_iter()
            .filter_map(|(key, span)| Some((key, span?)));
        return match keys.find(|(_, span)| !span.is_empty()) {
            None => Ok(CheckKind::Tcp),
            Some((key, span)) => {
                let what = format!("`{key}` has no effect: with `tcp`, a check sends no request");
                Err(source.error(span, what, format!("remove `tcp`, or remove `{key}`")))
            }
        };
    }
    let Some(path) = &table.path else {
        let help = "add path = \"/\", or tcp = true to check only the connection";
        return Err(source.error(span, "`health` needs `path` or `tcp`", help));
    };
    let is_head = *table.method.get_ref() == CheckMethod::Head;
    if let (true, Some(text)) = (is_head, &table.text) {
        let what = "the response to HEAD has no content that could contain `text`";
        return Err(source.error(text.span(), what, "remove `method` or `text`"));
    }
    let status = table.status.get_ref();
    Ok(CheckKind::Http {
        is_head,
        path: path.get_ref().0.clone(),
        host: table.host.as_ref().map(|host| host.get_ref().0.clone()),
        status: (status.0, status.1),
        text: table.text.as_ref().map(|text| text.get_ref().0.clone()),
    })
}

/// Returns the settings of sticky sessions. Fails if the members have no routes, which bind the sessions
/// unless the balancer signs a cookie.
fn sticky_settings(
    source: &SourceText<'_>,
    sticky: &Spanned<StickyTable>,
    members: &[Spanned<MemberTable>],
) -> Result<StickySettings, OperatorError> {
    let table = sticky.get_ref();
    let is_signed = *table.signed.get_ref();
    let without_route = members.iter().map(Spanned::get_ref);
    let mut without_route = without_route.filter(|member| member.route.is_none());
    match (is_signed, without_route.next(), &table.path_parameter) {
        (false, Some(member), _) => {
            let what = format!(
                "sticky sessions need a `route` for the member {}",
                shown_url(member.url.get_ref())
            );
            let help = "write { url = \"…\", route = \"a\" } with the route that the member adds \
                        to its cookie, or sticky = { cookie = \"…\", signed = true }";
            Err(source.error(member.url.span(), what, help))
        }
        (true, _, Some(parameter)) => {
            let what =
                "`path_parameter` has no effect with `signed`: the balancer signs cookies only";
            let help = "remove `path_parameter` or `signed`";
            Err(source.error(parameter.span(), what, help))
        }
        (_, _, parameter) => Ok(StickySettings {
            cookie: table.cookie.get_ref().0.clone(),
            path_parameter: parameter.as_ref().map(|name| name.get_ref().0.clone()),
            is_signed,
            is_strict: *table.strict.get_ref(),
        }),
    }
}

fn ejection_settings(
    source: &SourceText<'_>,
    table: EjectTable,
) -> Result<EjectionSettings, OperatorError> {
    let (pause, pause_max) = (&table.pause, &table.pause_max);
    if pause.get_ref() > pause_max.get_ref() {
        let what = "`pause` is longer than `pause_max`";
        let help = "write a shorter pause, or a longer time in `pause_max`";
        let later = [pause_max, pause].map(Spanned::span);
        let [max, first] = later;
        let span = if first.is_empty() { max } else { first };
        return Err(source.error(span, what, help));
    }
    let ranges = table.statuses.into_inner().into_iter();
    let mut statuses: Vec<u16> = ranges.flat_map(|range| range.0.0..=range.0.1).collect();
    statuses.sort_unstable();
    statuses.dedup();
    Ok(EjectionSettings {
        failures: table.failures.into_inner(),
        pause: table.pause.into_inner(),
        pause_max: table.pause_max.into_inner(),
        statuses,
    })
}

fn retry_settings(table: RetriesTable) -> RetrySettings {
    RetrySettings {
        attempts_max: table.attempts.into_inner(),
        budget_percent: table.budget.into_inner(),
    }
}

/// Longest duration of a check without `timeout`.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
