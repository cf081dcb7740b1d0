//! Keys about requests: `rate` and `cors` of `[[site]]` and of a route, and `methods`, `guard_methods`, `deny` and
//! `body_bytes` of a route.

use std::time::Duration;

use toml::Spanned;

use crate::config::declared_table::declare_table;
use crate::config::error::OperatorError;
use crate::config::limits::{
    CONFIG_CORS_SECONDS_MAX, CONFIG_RATE_PERIOD_SECONDS_MAX, CONFIG_RATE_REQUESTS_MAX,
};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::value_types::{ByteSize, Network, networks};
use crate::config::values::{InvalidValue, is_token, wrong};
use cli::suggest;
use data_plane::ledger::client_rate::RateLimit;
use data_plane::world::cors::CorsSettings;
use data_plane::world::method_set::MethodSet;
use wire::request_head::Method;

declare_table! {
    /// Keys of `[[site]]` and of a route about requests.
    pub(super) struct RequestKeys: "requests" {
        /// [Request rate](routes.md#request-rates) of each client, or a [table](#rate). Further requests get 429.
        rate: RateTable = optional("none"),
            also ["limit_req", "rate_limit", "ratelimit"], example "{ requests = 60, per = \"1m\", burst = 20 }";
        /// Origin of the pages of another site that may read the responses ([CORS](routes.md#cross-origin-access)), or
        /// a [table](#cors).
        cors: CorsTable = optional("none"), also ["access_control", "allow_origin"],
            example "\"https://app.example.org\"";
    }
}

declare_table! {
    /// Keys of a route about requests.
    pub(super) struct RouteRequestKeys: "[[site.route]]" {
        /// Methods that are answered; `"GET"` includes HEAD. All other methods get 405.
        methods: Vec<MethodName> = optional("all"), also ["limit_except", "method"],
            example "[\"GET\", \"POST\"]";
        /// Methods to which `allow`, `users` and `auth` apply. All other methods are open to every client.
        guard_methods: Vec<MethodName> = optional("all"), example "[\"POST\", \"PUT\", \"DELETE\"]";
        /// [Networks](routes.md#guards-by-address) without access, also those that `allow` permits.
        deny: Vec<Spanned<Network>> = optional("none"), also ["block", "blocklist"],
            example "[\"192.0.2.0/24\"]";
        /// Largest content of a request to a handler, in place of `body_bytes` of `limits`. A larger content gets 413.
        body_bytes: ByteSize = optional("`body_bytes` of `limits`"),
            also ["max_size", "request_body"], example "\"64MiB\"";
        ..requests: RequestKeys;
    }
}

declare_table! {
    /// Keys of `rate`.
    pub(super) struct RateTable: "the table `rate`", short requests "a number of requests in a second", "10" {
        /// Requests that a client may send in each period. A /64 network of IPv6 counts as one client.
        requests: u32 = required, within(1, CONFIG_RATE_REQUESTS_MAX), also ["rate", "events"], example "60";
        /// Length of the period.
        per: Duration = default(Duration::from_secs(1)),
            within(Duration::from_secs(1), Duration::from_secs(CONFIG_RATE_PERIOD_SECONDS_MAX)),
            also ["window", "period"], example "\"1m\"";
        /// Requests that a client may send at once after a pause.
        burst: u32 = optional("`requests`"), within(1, CONFIG_RATE_REQUESTS_MAX), example "20";
    }
}

declare_table! {
    /// Keys of `cors`.
    pub(super) struct CorsTable: "the table `cors`", short origins "an origin", "\"https://app.example.org\"" {
        /// Origins as browsers send them, scheme and host, or `"*"` for all. An empty list allows no origin.
        origins: Vec<Spanned<CorsOrigin>> = required, also ["origin", "allow_origin", "allowed_origins"],
            example "[\"https://app.example.org\"]";
        /// Methods that a page may use.
        methods: Vec<MethodName> = optional("GET, HEAD and POST"),
            also ["allow_methods", "allowed_methods"], example "[\"GET\", \"PUT\"]";
        /// Request fields that a page may set, beside those that any page may set; `"*"` for all.
        headers: Vec<Spanned<FieldName>> = optional("none"),
            also ["allow_headers", "allowed_headers"], example "[\"Content-Type\"]";
        /// Response fields that a page may read, beside those that any page may read; `"*"` for all.
        expose: Vec<Spanned<FieldName>> = optional("none"),
            also ["expose_headers", "exposed_headers"], example "[\"X-Total\"]";
        /// `true`: the page's requests may have cookies and logins. Not with `"*"`.
        credentials: bool = default(false), also ["allow_credentials"], example "true";
        /// Time for which a browser may remember the answer to a preflight.
        max_age: Duration = default(Duration::from_secs(600)),
            within(Duration::ZERO, Duration::from_secs(CONFIG_CORS_SECONDS_MAX)), example "\"1h\"";
    }
}

/// Request method.
#[derive(Clone, Copy, Debug)]
pub(super) struct MethodName(Method);

impl FromToml for MethodName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse("a method in quotes", "\"GET\"", |text| {
            let method = Method::from_name(text.as_bytes());
            if let Some(method) = method.filter(|method| !method.is_unregistered()) {
                return Ok(MethodName(method));
            }
            // A name near a known one is probably a typing mistake. Any other name in capitals may be a method that
            // members know, such as PURGE.
            let what = format!("`{text}` is not a method");
            match (suggest(text, Method::known_names()), method) {
                (Some(meant), _) => wrong(what, format!("did you mean \"{meant}\"?")),
                (None, Some(method)) if !text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                    Ok(MethodName(method))
                }
                (None, _) => {
                    let names: Vec<&str> = Method::ALL.iter().map(|it| it.label()).collect();
                    let names = names.join(", ");
                    wrong(
                        what,
                        format!("the methods are {names}, and others in capitals"),
                    )
                }
            }
        })
    }
}

/// Name of a field, or `*`.
#[derive(Clone, Debug)]
pub(super) struct FieldName(String);

impl FromToml for FieldName {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse("a field name in quotes", "\"Content-Type\"", |text| {
            if is_token(text) {
                Ok(FieldName(text.to_owned()))
            } else {
                wrong(
                    format!("`{text}` is not a field name"),
                    "write letters, digits and hyphens, such as \"Content-Type\"",
                )
            }
        })
    }
}

/// Origin (RFC 6454 §6.2), or `*`.
#[derive(Clone, Debug)]
pub(super) struct CorsOrigin(String);

impl FromToml for CorsOrigin {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let example = "\"https://app.example.org\"";
        item.parse("an origin in quotes", example, origin)
    }
}

fn origin(text: &str) -> Result<CorsOrigin, InvalidValue> {
    let what = format!("`{text}` is not an origin");
    let lower = text.to_ascii_lowercase();
    if lower.contains('*') && lower != "*" {
        let help = "write each origin, such as \"https://app.example.org\", or \"*\" for all";
        return wrong(what, help);
    }
    let Some((scheme, host)) = lower.split_once("://") else {
        return match lower.as_str() {
            "*" => Ok(CorsOrigin(lower)),
            "null" => wrong(
                what,
                "any page can have the origin null: write \"*\" for all origins",
            ),
            _ => wrong(what, format!("write the scheme too: \"https://{lower}\"")),
        };
    };
    let end = host.find(['/', '?', '#']).unwrap_or(host.len());
    if end < host.len() {
        let help = format!(
            "an origin has no path: write \"{scheme}://{}\"",
            &host[..end]
        );
        return wrong(what, help);
    }
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    if !default_port.is_empty()
        && let Some(host) = host.strip_suffix(default_port)
    {
        let help = format!("browsers leave the usual port out: write \"{scheme}://{host}\"");
        return wrong(what, help);
    }
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if !host.is_empty() && host.bytes().all(is_valid) && is_token(scheme) {
        Ok(CorsOrigin(lower))
    } else {
        wrong(
            what,
            "write scheme and host, such as \"https://app.example.org\"",
        )
    }
}

/// Settings of a route about requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRequestsConfig {
    /// Methods that are answered; `None` = all methods.
    pub methods: Option<MethodSet>,
    /// Methods to which `allow`, `users` and `auth` apply; `None` = all methods.
    pub guard_methods: Option<MethodSet>,
    /// Networks of refused clients; an address of both `allow` and `deny` is refused.
    pub deny: Option<Vec<Spanned<String>>>,
    /// Largest content of a request to a handler in bytes; `None` = the limit `body_bytes`.
    pub body_bytes: Option<u64>,
    /// Request rate of each client.
    pub rate: Option<Spanned<RateLimit>>,
    /// Cross-origin access.
    pub cors: Option<CorsSettings>,
}

impl RouteRequestKeys {
    /// Refuses `guard_methods` in a route without the guards that the methods limit.
    pub(super) fn refuse_useless_guard_methods(
        &self,
        source: &SourceText<'_>,
    ) -> Result<(), OperatorError> {
        let Some(methods) = &self.guard_methods else {
            return Ok(());
        };
        let what = "`guard_methods` has no effect without `allow`, `users` or `auth`";
        let help = "add `users`, or write `methods` to refuse all other methods";
        Err(source.error(methods.span(), what, help))
    }

    /// Returns the settings. A key with an error is recorded, and counts as missing.
    pub(super) fn settings(self, source: &SourceText<'_>) -> RouteRequestsConfig {
        let methods = source.keep(method_set(source, "methods", self.methods));
        let guarded = method_set(source, "guard_methods", self.guard_methods);
        let guard_methods = source.keep(guarded);
        let cors = source.keep(cors_settings(source, self.requests.cors));
        RouteRequestsConfig {
            methods: methods.flatten(),
            guard_methods: guard_methods.flatten(),
            deny: self.deny.map(|deny| networks(deny.into_inner())),
            body_bytes: self.body_bytes.map(|bytes| bytes.into_inner().0),
            rate: rate_limit(self.requests.rate),
            cors: cors.flatten(),
        }
    }
}

impl RouteRequestsConfig {
    /// Returns true if a route with the settings has an effect without a target.
    pub(super) fn has_effect(&self) -> bool {
        self.methods.is_some()
            || self.deny.is_some()
            || self.body_bytes.is_some()
            || self.rate.is_some()
            || self.cors.is_some()
    }
}

/// Returns a set of methods. An empty list is a mistake.
fn method_set(
    source: &SourceText<'_>,
    key: &str,
    names: Option<Spanned<Vec<MethodName>>>,
) -> Result<Option<MethodSet>, OperatorError> {
    match names {
        Some(names) if names.get_ref().is_empty() => {
            let what = format!("`{key}` is empty");
            Err(source.error(
                names.span(),
                what,
                format!("write {key} = [\"GET\"], or remove the key"),
            ))
        }
        names => Ok(names.map(|names| {
            let names = names.into_inner();
            MethodSet::new(names.into_iter().map(|name| name.0))
        })),
    }
}

/// Returns the limit of `rate`.
pub(super) fn rate_limit(rate: Option<Spanned<RateTable>>) -> Option<Spanned<RateLimit>> {
    rate.map(|rate| {
        let (span, table) = (rate.span(), rate.into_inner());
        let requests = *table.requests.get_ref();
        let limit = RateLimit {
            requests,
            period_ms: table.per.get_ref().as_millis() as u64,
            burst: table.burst.map_or(requests, Spanned::into_inner),
        };
        Spanned::new(span, limit)
    })
}

/// Returns the settings of `cors`. Browsers refuse credentials for all origins, and read `*` in a list of fields as a name
/// if the request has credentials (Fetch §3.2.5).
pub(super) fn cors_settings(
    source: &SourceText<'_>,
    cors: Option<Spanned<CorsTable>>,
) -> Result<Option<CorsSettings>, OperatorError> {
    let Some(table) = cors.map(Spanned::into_inner) else {
        return Ok(None);
    };
    let [headers, expose] =
        [table.headers, table.expose].map(|names| names.map_or_else(Vec::new, Spanned::into_inner));
    if *table.credentials.get_ref() {
        let origins = table.origins.get_ref().iter();
        let mut all = origins
            .filter(|it| it.get_ref().0 == "*")
            .map(Spanned::span);
        let names = headers.iter().chain(&expose);
        let mut any = names.filter(|it| it.get_ref().0 == "*").map(Spanned::span);
        if let Some(span) = all.next() {
            let what = "`credentials` can't be combined with the origin \"*\"";
            let help = "list the origins, or remove `credentials`: with both, every page could act for its visitors";
            return Err(source.error(span, what, help));
        }
        if let Some(span) = any.next() {
            let what = "`credentials` can't be combined with \"*\": browsers take it for the name of a field";
            return Err(source.error(span, what, "list the fields"));
        }
    }
    let names = |names: &[Spanned<FieldName>]| {
        let names = names.iter().map(|name| name.get_ref().0.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let methods = match table.methods.map(Spanned::into_inner) {
        None => "GET, HEAD, POST".to_owned(),
        Some(methods) => {
            let names = methods.iter().map(|method| method.0.name());
            names.collect::<Vec<_>>().join(", ")
        }
    };
    let mut lines = String::new();
    if *table.credentials.get_ref() {
        lines += "Access-Control-Allow-Credentials: true\r\n";
    }
    if !expose.is_empty() {
        lines += &format!("Access-Control-Expose-Headers: {}\r\n", names(&expose));
    }
    let seconds = table.max_age.get_ref().as_secs();
    let mut preflight =
        format!("Access-Control-Allow-Methods: {methods}\r\nAccess-Control-Max-Age: {seconds}\r\n");
    if !headers.is_empty() {
        preflight += &format!("Access-Control-Allow-Headers: {}\r\n", names(&headers));
    }
    let origins = table.origins.into_inner().into_iter();
    Ok(Some(CorsSettings {
        origins: origins.map(|origin| origin.into_inner().0).collect(),
        lines: lines.into_bytes(),
        preflight: preflight.into_bytes().into(),
    }))
}
