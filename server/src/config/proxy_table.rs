//! Keys of the reverse proxy: `proxy`, `balance`, `encoded_slash`, `slashes`, `upgrade` and `early_hints` of a route,
//! `trust` of `[server]`, and listeners with the PROXY protocol.

use std::ops::Range;

use toml::Spanned;

use crate::config::balancer::BalancerConfig;
use crate::config::connection_table::{ConnectionKeys, add_connection};
use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::field_variables::{foreign_variable, unknown_placeholder};
use crate::config::file_rules::field;
use crate::config::member_url::{ProxyUrl, add_member_url};
use crate::config::page_key::PageKey;
use crate::config::proxy_values::{BalancerName, EarlyHints, EncodedSlash, Prefix};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText, TableSchema};
use crate::config::value_types::Network;
use crate::config::values::{
    InvalidValue, ListenAddress, reserved_request_field, reserved_response_field, wrong,
};
use data_plane::handler::proxy::route::{
    CLIENT_PLACEHOLDER, ForwardSettings, ForwardedHost, USER_PLACEHOLDER,
};
use wire::path_readings::Slashes;

declare_table! {
    /// Keys of `[server]` about proxies in front of the server.
    pub(super) struct TrustKeys: "[server]" {
        /// Networks of proxies in front of the server. The client's address is the first address outside of
        /// the networks, read from the right of `Forwarded` or `X-Forwarded-For`.
        trust: Vec<Spanned<Network>> = default(Vec::new()),
            also ["set_real_ip_from", "real_ip", "trusted_proxies"], example "[\"10.0.0.0/8\", \"::1\"]";
    }
}

declare_table! {
    /// Keys of a listener in `http` or `https`.
    pub(super) struct ListenerTable: "a listener", short listen "an address to listen on", "[\":8443\"]" {
        /// Address to listen on.
        listen: ListenAddress = required, also ["address", "bind", "port"], example "\":8443\"";
        /// `true`: every connection begins with a header of the PROXY protocol, version 1 or 2, and comes
        /// from an address in `trust`.
        proxy_protocol: bool = default(false), also ["accept-proxy", "accept_proxy"], example "true";
    }
}

declare_table! {
    /// Keys of a route about proxies.
    pub(super) struct RouteKeys: "[[site.route]]" {
        /// URL of an HTTP server that answers the requests, or a [table](#proxy).
        proxy: ProxyTable = optional("none"),
            also ["proxy_pass", "reverse_proxy", "ProxyPass", "target"],
            example "\"http://127.0.0.1:9000\"";
        /// Name of a [balancer](#balancer) that passes the requests to its members, or a [table](#balance).
        balance: BalanceTable = optional("none"),
            also ["balancer", "backend", "use_backend", "load_balance"], example "\"app\"";
        /// Paths with an encoded slash, `%2F`: refused, or passed to the member unchanged. Only with `proxy` or
        /// `balance`.
        encoded_slash: EncodedSlash = default(EncodedSlash::Refuse),
            also ["AllowEncodedSlashes"], example "\"pass\"";
        /// [Doubled slashes](proxied-applications.md#doubled-slashes) in the path for the member: `"keep"` passes them as sent, `"merge"`
        /// makes one of them. Only with `proxy` or `balance`.
        slashes: Slashes = default(Slashes::default()), also ["merge_slashes", "MergeSlashes"], example "\"merge\"";
        /// `true`: requests with `Upgrade`, such as those of [WebSockets](proxied-applications.md#websocket-and-other-protocols), bypass
        /// the page cache. Only with `cache`; without `cache` they always reach the member.
        upgrade: bool = default(false), example "true";
        /// Clients that get 103 (Early Hints) of the member: those with HTTP/2 and HTTP/3, or with `"http1"` also those
        /// with HTTP/1.1. Only with `proxy` or `balance`.
        early_hints: EarlyHints = default(EarlyHints::Http2), example "\"http1\"";
    }
}

declare_table! {
    /// Keys of `proxy` and `balance` about the forwarded requests and their responses.
    pub(super) struct ForwardKeys: "forwarded requests" {
        /// Host field for the member: the client's (`"client"`), the host of the member's URL (`"member"`) or
        /// a fixed host.
        host: ForwardedHost = default(ForwardedHost::default()),
            also ["preserve_host", "ProxyPreserveHost"], example "\"app.example.org\"";
        /// Path that replaces the path of the route, written as in a URL; `"/"` strips the path of the route.
        /// `Location` and cookie paths of responses are changed back.
        prefix: Prefix = optional("the client's path"), also ["path"],
            example "\"/base/\"";
        /// Fields for the member, instead of the client's and of those that the server writes; an empty value
        /// removes the field. `{client}` in a value stands for the client's address, and `{user}` for the name with
        /// which the client logged in; without a login, a field with `{user}` is removed.
        request_headers: RequestFields = optional("none"),
            also ["proxy_set_header", "request_header", "header_up", "headers"],
            example "{ \"X-Real-IP\" = \"{client}\", \"Accept-Encoding\" = \"\" }";
        /// Fields for the client, instead of the member's; an empty value removes the field. With an empty `Server`,
        /// the response has the `Server` of anthill.
        response_headers: ResponseFields = optional("none"),
            also ["add_header", "proxy_hide_header", "response_header", "header_down"],
            example "{ \"X-Powered-By\" = \"\" }";
        /// `true`: the member gets `Authorization: Basic` of a client on paths with `users`. Without the key, the password
        /// stays with this server, also with methods that `guard_methods` leaves out.
        pass_login: bool = default(false), example "true";
    }
}

declare_table! {
    /// Keys of `proxy` as a table.
    pub(super) struct ProxyTable: "the table `proxy`", short url "a URL", "\"http://127.0.0.1:9000\"" {
        /// URL of the server: `http://HOST:PORT`, `https://HOST:PORT` or `http://unix:PATH`. A path in the
        /// URL, even a lone `/`, means the same as `prefix`.
        url: ProxyUrl = required, also ["to", "target", "upstream"],
            example "\"http://127.0.0.1:9000\"";
        ..forward: ForwardKeys;
        ..connection: ConnectionKeys;
    }
}

declare_table! {
    /// Keys of `balance` as a table.
    pub(super) struct BalanceTable: "the table `balance`", short name "a name in quotes", "\"app\"" {
        /// Name of the balancer.
        name: BalancerName = required, also ["balancer", "to"], example "\"app\"";
        ..forward: ForwardKeys;
    }
}

/// Proxied requests of a route (`proxy` or `balance`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Balancer that chooses the member.
    pub balancer: BalancerRef,
    /// Changes of requests and responses.
    pub forward: ForwardSettings,
}

/// Balancer of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BalancerRef {
    /// Balancer of the route alone, with the server of `proxy` as its single member.
    Own(Box<BalancerConfig>),
    /// Name of a `[[balancer]]` in the same file.
    Named(Spanned<String>),
}

impl ProxyConfig {
    /// Adds the settings to the key of pages. A balancer counts by its name: all members serve the same pages, and a new
    /// member leaves the pages in the cache. The server of `proxy` counts by its URL.
    pub(super) fn add_to_page_key(&self, key: &mut PageKey) {
        let ProxyConfig { balancer, forward } = self;
        match balancer {
            BalancerRef::Named(name) => {
                key.number(1);
                key.text(name.get_ref());
            }
            BalancerRef::Own(balancer) => {
                key.number(2);
                let settings = &balancer.settings;
                key.list(settings.members.iter(), |key, member| {
                    add_member_url(key, &member.url);
                });
                add_connection(key, &settings.connection);
            }
        }
        let ForwardSettings {
            host,
            prefix,
            slashes,
            request_fields,
            response_fields,
            passes_login,
            // No key of a route.
            keeps_urls: _,
            // An interim response is no page.
            has_h1_hints: _,
        } = forward;
        match host {
            ForwardedHost::Client => key.number(1),
            ForwardedHost::Member => key.number(2),
            ForwardedHost::Fixed(host) => {
                key.number(3);
                key.text(host);
            }
        }
        key.option(prefix.as_ref(), |key, prefix| key.text(prefix));
        key.number(match slashes {
            Slashes::Keep => 0,
            Slashes::Merge => 1,
        });
        for fields in [request_fields, response_fields] {
            key.list(fields.iter(), |key, (name, value)| {
                key.text(name);
                key.text(value);
            });
        }
        // The keys of other routes stay as they were.
        if *passes_login {
            key.text("pass_login");
        }
    }
}

/// Names and values of fields.
type FieldValues = Vec<(Box<str>, Box<str>)>;

/// Fields of requests for a member.
#[derive(Clone, Debug)]
pub(super) struct RequestFields(FieldValues);

/// Fields of responses for the client.
#[derive(Clone, Debug)]
pub(super) struct ResponseFields(FieldValues);

impl FromToml for RequestFields {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        fields(item, reserved_request_field, check_request_value).map(RequestFields)
    }
}

impl FromToml for ResponseFields {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        fields(item, reserved_response_field, check_response_value).map(ResponseFields)
    }
}

static FIELDS: TableSchema = TableSchema::of_data("fields");

/// Help for a variable of another server.
const VARIABLE_HELP: &str = "write \"{client}\" for the client's address; the server itself writes Host, Forwarded, \
     X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host";

/// Refuses variables of other servers and unknown placeholders in the value of a field for members.
fn check_request_value(name: &str, value: &str) -> Result<(), InvalidValue> {
    if let Some(variable) = foreign_variable(value) {
        let what = format!("the variable `{variable}` in `{name}` would reach members as text");
        return wrong(what, VARIABLE_HELP);
    }
    match unknown_placeholder(value, &[CLIENT_PLACEHOLDER, USER_PLACEHOLDER]) {
        Some(placeholder) => wrong(
            format!("the placeholder `{placeholder}` in `{name}` would reach members as text"),
            "the placeholders are {client}, the client's address, and {user}, the name of the login",
        ),
        None => Ok(()),
    }
}

/// Refuses placeholders in the value of a field for clients.
fn check_response_value(name: &str, value: &str) -> Result<(), InvalidValue> {
    match unknown_placeholder(value, &[]) {
        Some(placeholder) => wrong(
            format!("the placeholder `{placeholder}` in `{name}` would reach clients as text"),
            "write a fixed text: fields of responses have no placeholders",
        ),
        None => Ok(()),
    }
}

/// Reads a table of field names and values. `reserved` returns the reason why a field cannot be set, and `check` refuses
/// a value, by the name and the value.
fn fields(
    item: KeyedValue<'_, '_>,
    reserved: fn(&str) -> Option<&'static str>,
    check: fn(&str, &str) -> Result<(), InvalidValue>,
) -> Result<FieldValues, OperatorError> {
    if !item.value.get_ref().is_table() {
        return Err(item.mistyped("a table of fields", "{ \"X-Site\" = \"a\" }"));
    }
    let source = item.source;
    let mut fields = FieldValues::new();
    for entry in item.table(&FIELDS)?.rest() {
        let (span, value_span) = (entry.0.span(), entry.1.value.span());
        let (name, value) = field(entry, reserved)?;
        check(&name, &value).map_err(|wrong| source.error(value_span, wrong.what, wrong.help))?;
        if fields
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(&name))
        {
            let what = format!("the field `{name}` is set twice");
            return Err(source.error(span, what, "remove one of the two"));
        }
        fields.push((name.into(), value.into()));
    }
    Ok(fields)
}

/// Target of a route about proxies, with its key and its position.
type ProxyTarget = (&'static str, Range<usize>, ProxyConfig);

impl RouteKeys {
    /// Returns the targets, and whether paths with an encoded slash reach the members.
    pub(super) fn targets(
        self,
        source: &SourceText<'_>,
    ) -> Result<(Vec<ProxyTarget>, bool), OperatorError> {
        let slashes = self.slashes;
        let mut targets = Vec::new();
        if let Some(proxy) = self.proxy {
            let span = proxy.span();
            let mut target = proxy_target(source, proxy.into_inner())?;
            target.forward.slashes = *slashes.get_ref();
            targets.push(("proxy", span, target));
        }
        if let Some(balance) = self.balance {
            let span = balance.span();
            let BalanceTable { name, forward } = balance.into_inner();
            let name = Spanned::new(name.span(), name.into_inner().0.into());
            let target = ProxyConfig {
                balancer: BalancerRef::Named(name),
                forward: ForwardSettings {
                    slashes: *slashes.get_ref(),
                    ..forward.settings()
                },
            };
            targets.push(("balance", span, target));
        }
        let (slash, hints) = (self.encoded_slash, self.early_hints);
        let keys = [
            ("encoded_slash", slash.span()),
            ("early_hints", hints.span()),
        ];
        if targets.is_empty() {
            let lacking = "without `proxy` or `balance` in the same route";
            let merged =
                "remove the key; files and scripts are found by the path with merged slashes";
            let help = "remove the key, or add `proxy`";
            let errors = [
                source.refuse_useless(keys, lacking, help).err(),
                source
                    .refuse_useless([("slashes", slashes.span())], lacking, merged)
                    .err(),
            ];
            let errors = errors.into_iter().flatten().collect();
            OperatorError::all(errors).map_or(Ok(()), Err)?;
        }
        for (.., target) in &mut targets {
            target.forward.has_h1_hints = *hints.get_ref() == EarlyHints::Http1;
        }
        Ok((targets, *slash.get_ref() == EncodedSlash::Pass))
    }
}

fn proxy_target(source: &SourceText<'_>, table: ProxyTable) -> Result<ProxyConfig, OperatorError> {
    let span = table.url.span();
    let url = table.url.into_inner();
    let mut forward = table.forward;
    match (url.prefix, &forward.prefix) {
        (Some(_), Some(prefix)) => {
            let what = "the URL has a path, and `prefix` is set as well";
            let help = "remove the path from the URL, or remove `prefix`";
            return Err(source.error(prefix.span(), what, help));
        }
        (Some(path), None) => forward.prefix = Some(Spanned::new(span.clone(), Prefix(path))),
        (None, _) => {}
    }
    let member = Spanned::new(span, url.member);
    let balancer = BalancerConfig::single(source, member, table.connection)?;
    Ok(ProxyConfig {
        balancer: BalancerRef::Own(Box::new(balancer)),
        forward: forward.settings(),
    })
}

impl ForwardKeys {
    fn settings(self) -> ForwardSettings {
        let request_fields = self.request_headers.map(|fields| fields.into_inner().0);
        let response_fields = self.response_headers.map(|fields| fields.into_inner().0);
        ForwardSettings {
            host: self.host.into_inner(),
            prefix: self.prefix.map(|prefix| prefix.into_inner().0),
            slashes: Slashes::default(),
            request_fields: request_fields.unwrap_or_default(),
            response_fields: response_fields.unwrap_or_default(),
            passes_login: *self.pass_login.get_ref(),
            keeps_urls: false,
            has_h1_hints: false,
        }
    }
}

/// Returns the address of a listener, with the flag of the PROXY protocol.
pub(super) fn listener(table: ListenerTable) -> Spanned<ListenAddress> {
    let mut listen = table.listen;
    listen.get_mut().proxy_protocol = *table.proxy_protocol.get_ref();
    listen
}
