//! `auth` of a route: forward authentication, a server that decides whether a request goes on.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

use crate::config::balancer::BalancerConfig;
use crate::config::connection_table::ConnectionKeys;
use crate::config::declared_table::{DeclaredTable, declare_table};
use crate::config::error::OperatorError;
use crate::config::field_variables::{foreign_variable, unknown_placeholder};
use crate::config::limits::CONFIG_MEMBER_CONNECTIONS_MAX;
use crate::config::member_url::{proxy_url, shown_url};
use crate::config::proxy_values::{CertificateName, CheckPath};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText};
use crate::config::values::{InvalidValue, is_token, reserved_request_field, wrong};
use balancer::settings::MemberUrl;
use data_plane::handler::proxy::forward_auth::URI_PLACEHOLDER;
use wire::identity_fields::is_identity;

declare_table! {
    /// Keys of `auth`.
    pub(super) struct AuthTable: "the table `auth`", short url "a URL", "\"http://127.0.0.1:9091/api/authz/forward-auth\"" {
        /// URL of the GET that decides: `http://HOST:PORT/PATH`, `https://HOST/PATH` or `http://unix:SOCKET`.
        url: AuthUrl = required, also ["uri", "address", "endpoint", "to"],
            example "\"http://127.0.0.1:9091/api/authz/forward-auth\"";
        /// Path of the GET with its query, for a Unix socket.
        path: CheckPath = optional("the path of `url`"), example "\"/api/authz/forward-auth\"";
        /// Fields of the answer that the application gets. The first names the user. Clients cannot send the fields to
        /// any route of the server.
        copy: Vec<Spanned<CopiedField>> = optional("none"),
            also ["copy_headers", "authResponseHeaders", "auth_request_set", "headers"],
            example "[\"Remote-User\", \"Remote-Groups\"]";
        /// Page to which a browser goes in place of a 401: a path of the site, or a URL. `{uri}` stands for the path and
        /// the query of the request, encoded as a value of a query.
        login: LoginLocation = optional("the answer"),
            also ["signin", "auth_signin", "login_url", "error_page"], example "\"/oauth2/start?rd={uri}\"";
        /// PEM file with the authorities that sign the certificate of an `https` server.
        ca: PathBuf = optional("the authorities of the system"),
            also ["proxy_ssl_trusted_certificate", "ca_file"], example "\"auth-ca.pem\"";
        /// Name in the certificate of an `https` server, also sent as server name (SNI).
        server_name: CertificateName = optional("the host of the URL"),
            also ["proxy_ssl_name", "sni"], example "\"auth.example.org\"";
        /// Number of simultaneous questions. Further ones wait, and a client has at most three quarters of the places.
        connections: usize = default(QUESTIONS), within(1, CONFIG_MEMBER_CONNECTIONS_MAX),
            also ["max_conns", "maxconn"], example "32";
    }
}

/// Forward authentication of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAuthConfig {
    /// `auth = false`: the `auth` of shorter paths has no effect.
    Off,
    /// A server decides.
    By(Box<AuthConfig>),
}

/// Server that decides about requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Position of the URL.
    pub span: Range<usize>,
    /// URL as in the file.
    pub url: Box<str>,
    /// Balancer with the server as its single member.
    pub balancer: BalancerConfig,
    /// Path of the GET.
    pub path: Box<str>,
    /// Query of the GET.
    pub query: Option<Box<str>>,
    /// Fields of the answer for the application.
    pub copy: Vec<Box<str>>,
    /// Location of the login page.
    pub login: Option<Spanned<Box<str>>>,
}

/// Fields about the user that one server for forward authentication can set.
struct IdentityFamily {
    /// Path of the server's GET, or its beginning.
    path: &'static str,
    fields: &'static [&'static str],
}

/// Fields of the usual servers.
const FAMILIES: [IdentityFamily; 3] = [
    // Authelia; `Remote-User` is the usual name for programs of one's own, too.
    IdentityFamily {
        path: "/api/authz/",
        fields: &[
            "Remote-User",
            "Remote-Groups",
            "Remote-Email",
            "Remote-Name",
        ],
    },
    // Authentik.
    IdentityFamily {
        path: "/outpost.goauthentik.io/",
        fields: &[
            "X-authentik-username",
            "X-authentik-groups",
            "X-authentik-entitlements",
            "X-authentik-email",
            "X-authentik-name",
            "X-authentik-uid",
            "X-authentik-jwt",
            "X-authentik-meta-jwks",
            "X-authentik-meta-outpost",
            "X-authentik-meta-provider",
            "X-authentik-meta-app",
            "X-authentik-meta-version",
        ],
    },
    // oauth2-proxy.
    IdentityFamily {
        path: "/oauth2/auth",
        fields: &[
            "X-Auth-Request-User",
            "X-Auth-Request-Email",
            "X-Auth-Request-Groups",
            "X-Auth-Request-Preferred-Username",
            "X-Auth-Request-Access-Token",
        ],
    },
];

impl AuthConfig {
    /// Returns all fields about the user of the usual server that the configuration names, by its path or by a copied
    /// field.
    pub(crate) fn related_fields(&self) -> impl Iterator<Item = &'static str> {
        let is_copied = |field: &&str| is_identity(field.as_bytes(), &self.copy);
        let families = FAMILIES.iter().filter(move |family| {
            self.path.starts_with(family.path) || family.fields.iter().any(is_copied)
        });
        families.flat_map(|family| family.fields.iter().copied())
    }
}

/// URL of a GET: the server, the path and the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthUrl {
    text: Box<str>,
    member: MemberUrl,
    /// Path and query; `None` for a URL without a path.
    target: Option<Box<str>>,
}

impl FromToml for AuthUrl {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let folder = item.source.folder;
        item.parse(
            "a URL",
            "\"http://127.0.0.1:9091/api/authz/forward-auth\"",
            |text| auth_url(text, folder),
        )
    }
}

/// Parses the URL of a GET. `folder` is the folder of a relative Unix socket.
fn auth_url(text: &str, folder: &Path) -> Result<AuthUrl, InvalidValue> {
    if let Some(variable) = foreign_variable(text) {
        return wrong(
            format!("the variable `{variable}` in the URL would reach the server as text"),
            "write the URL without variables: the server gets the request in X-Forwarded-Method, -Proto, -Host, -Uri and -For",
        );
    }
    if text.contains(['#', '{', '}', '\\']) {
        return wrong(
            format!("the URL `{text}` has a fragment or a character that no URL has"),
            "write the URL of the server alone, such as \"http://127.0.0.1:9091/api/authz/forward-auth\"",
        );
    }
    let start = text.find("://").map_or(0, |at| at + 3);
    let is_unix = text[start..].starts_with("unix:");
    let end = text[start..].find(['/', '?']).filter(|_| !is_unix);
    let (server, target) = text.split_at(end.map_or(text.len(), |end| start + end));
    let member = proxy_url(server, folder)?.member;
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(
            format!("the URL `{text}` has a space or another character that no URL has"),
            "write the URL without spaces and in ASCII",
        );
    }
    let target = match target {
        "" => None,
        query if query.starts_with('?') => Some(format!("/{query}").into()),
        target => Some(target.into()),
    };
    Ok(AuthUrl {
        text: text.into(),
        member,
        target,
    })
}

/// Field of an answer for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopiedField(Box<str>);

impl FromToml for CopiedField {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse("a field name in quotes", "\"Remote-User\"", |text| {
            if text.contains('*') {
                return wrong(
                    format!("`{text}` is a pattern"),
                    "write the name of each field: [\"Remote-User\", \"Remote-Groups\"]",
                );
            }
            if !is_token(text) {
                return wrong(
                    format!("`{text}` is not a field name"),
                    "write letters, digits and hyphens, such as \"Remote-User\"",
                );
            }
            let is_own = |name: &&str| is_identity(text.as_bytes(), &[(*name).into()]);
            if reserved_request_field(&text.replace('_', "-")).is_some()
                || OWN_FIELDS.iter().any(is_own)
            {
                return wrong(
                    format!("the field `{text}` can't be copied: no client could send it any more"),
                    "write fields about the user, such as \"Remote-User\"",
                );
            }
            Ok(CopiedField(text.into()))
        })
    }
}

/// Fields of ordinary requests beside those of the connection. Clients could no longer send a copied field.
const OWN_FIELDS: [&str; 31] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "forwarded",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "location",
    "origin",
    "range",
    "referer",
    "set-cookie",
    "user-agent",
    "www-authenticate",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-requested-with",
];

/// Location of the login page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoginLocation(Box<str>);

impl FromToml for LoginLocation {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.parse("a path or a URL", "\"/oauth2/start?rd={uri}\"", |text| {
            login_location(text).map(LoginLocation)
        })
    }
}

fn login_location(text: &str) -> Result<Box<str>, InvalidValue> {
    let help =
        "write a path of the site or a URL, with {uri} in the query: \"/oauth2/start?rd={uri}\"";
    if let Some(variable) = foreign_variable(text) {
        let what = format!("the variable `{variable}` in `login` would reach browsers as text");
        return wrong(what, help);
    }
    if let Some(placeholder) = unknown_placeholder(text, &[URI_PLACEHOLDER]) {
        let what =
            format!("the placeholder `{placeholder}` in `login` would reach browsers as text");
        let help = "the only placeholder is {uri}, the path and the query of the request";
        return wrong(what, help);
    }
    let is_path = text.starts_with('/') && !text.starts_with("//");
    let is_url = ["http://", "https://"].iter().any(|scheme| {
        let rest = text.strip_prefix(scheme);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?']))
    });
    let is_visible = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if !(is_path || is_url) || !text.bytes().all(is_visible) {
        return wrong(
            format!("`{text}` is not the location of a login page"),
            help,
        );
    }
    let (before, after) = text.split_once(URI_PLACEHOLDER).unwrap_or((text, ""));
    if before.len() < text.len() && !before.contains('?') {
        let what = "`login` is an open redirect: {uri} stands before the query, and a client chooses its text";
        return wrong(what, help);
    }
    if after.contains(URI_PLACEHOLDER) {
        return wrong("`login` has {uri} twice", help);
    }
    Ok(text.into())
}

/// Value of `auth` of a route: `false`, or a table.
#[derive(Clone, Debug)]
pub(super) struct AuthChoice(Option<AuthTable>);

impl FromToml for AuthChoice {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        match item.value.get_ref().as_bool() {
            Some(false) => Ok(AuthChoice(None)),
            Some(true) => {
                let what = "`auth` can't be true";
                let help = "write auth = { url = \"http://127.0.0.1:9091/api/authz/forward-auth\" }, or auth = false for paths \
                            without the `auth` of an outer route";
                Err(item.refuse(what, help))
            }
            None => AuthTable::read(item).map(|table| AuthChoice(Some(table))),
        }
    }
}

impl AuthChoice {
    /// Returns the settings.
    pub(super) fn settings(
        self,
        source: &SourceText<'_>,
    ) -> Result<RouteAuthConfig, OperatorError> {
        let Some(table) = self.0 else {
            return Ok(RouteAuthConfig::Off);
        };
        let span = table.url.span();
        let name = balancer_name(&table.url.get_ref().member, &table);
        let url = table.url.into_inner();
        let target = match (url.target, table.path) {
            (Some(_), Some(path)) => {
                let what = "the URL has a path, and `path` is set as well";
                let help = "remove `path`, or the path from the URL";
                return Err(source.error(path.span(), what, help));
            }
            (Some(target), None) => target,
            (None, Some(path)) => path.into_inner().0,
            (None, None) => "/".into(),
        };
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path.into(), Some(query.into())),
            None => (target, None),
        };
        let mut keys = ConnectionKeys::read_empty(source)?;
        keys.ca = table.ca;
        keys.server_name = table.server_name;
        keys.connections = Some(table.connections);
        let member = Spanned::new(span.clone(), url.member);
        let mut balancer = BalancerConfig::single(source, member, keys)?;
        balancer.settings.name = name.into();
        // A failure of one request says nothing about the next: the request of a client may be the cause.
        for member in &mut balancer.settings.members {
            member.ignores_errors = true;
        }
        balancer.settings.connection.first_byte_timeout = PATIENCE;
        balancer.settings.connection.silence_timeout = PATIENCE;
        let mut copy: Vec<Box<str>> = Vec::new();
        for field in table.copy.map_or_else(Vec::new, Spanned::into_inner) {
            let (span, name) = (field.span(), field.into_inner().0);
            if is_identity(name.as_bytes(), &copy) {
                let what = format!("the field `{name}` is copied twice");
                return Err(source.error(span, what, "remove one of the two"));
            }
            copy.push(name);
        }
        let login = table.login;
        Ok(RouteAuthConfig::By(Box::new(AuthConfig {
            span,
            url: url.text,
            balancer,
            path,
            query,
            copy,
            login: login.map(|login| Spanned::new(login.span(), login.into_inner().0)),
        })))
    }
}

/// Longest silence of the server; the whole answer has as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the name of the balancer. Routes with the same server and the same TLS share the connections.
fn balancer_name(member: &MemberUrl, table: &AuthTable) -> String {
    let mut name = format!("auth {}", shown_url(member));
    if let Some(server_name) = &table.server_name {
        name += &format!(" as {}", server_name.get_ref().0);
    }
    if let Some(ca) = &table.ca {
        name += &format!(" by {}", ca.get_ref().display());
    }
    let connections = *table.connections.get_ref();
    if connections != QUESTIONS {
        name += &format!(" with {connections} connections");
    }
    name
}

/// Usual number of simultaneous questions. A server answers a question within milliseconds, so that more would only wait
/// inside the server.
const QUESTIONS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_server_and_a_target() {
        let table = [
            ("http://127.0.0.1:9091", "http://127.0.0.1:9091", None),
            ("http://[::1]:80/a/b", "http://[::1]", Some("/a/b")),
            (
                "https://a.example/x/?y=1",
                "https://a.example",
                Some("/x/?y=1"),
            ),
            ("http://a?y=/", "http://a", Some("/?y=/")),
            ("http://unix:/run/a.sock", "http://unix:/run/a.sock", None),
        ];
        for (text, server, target) in table {
            let url =
                auth_url(text, Path::new("/srv")).unwrap_or_else(|it| panic!("{text}: {it:?}"));
            assert_eq!(shown_url(&url.member), server, "{text}");
            assert_eq!(url.target.as_deref(), target, "{text}");
        }
        for text in [
            "",
            "127.0.0.1:9091",
            "http://a/#b",
            "http://a/$request_uri",
            "ftp://a/",
            "http://a/b c",
            "http://a/{uri}",
        ] {
            assert!(auth_url(text, Path::new("/srv")).is_err(), "{text}");
        }
    }

    #[test]
    fn a_login_page_is_no_open_redirect() {
        for text in [
            "/login",
            "/oauth2/start?rd={uri}",
            "https://auth.example.org/?rd={uri}&x=1",
            "/?{uri}",
        ] {
            assert_eq!(login_location(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "login",
            "//evil.example/",
            "{uri}",
            "/{uri}",
            "https://a{uri}",
            "https:///a",
            "/a?b={url}",
            "/a b",
            "/\\evil",
            "javascript:alert(1)",
            "/a?b=$request_uri",
            "/a?{uri}{uri}",
            "https://?{uri}",
        ] {
            assert!(login_location(text).is_err(), "{text}");
        }
    }
}
