//! `[[site.route]]`: the response to paths below a prefix, and the guards of the paths.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::auth_table::{AuthChoice, AuthConfig, RouteAuthConfig};
use crate::config::declared_table::{DeclaredTable, declare_table};
use crate::config::error::OperatorError;
use crate::config::git_table::{GitConfig, GitKeys};
use crate::config::page_cache_table::{CompressionChoice, PageCacheChoice, PageCacheConfig};
use crate::config::page_key::PageKey;
use crate::config::proxy_table::{ProxyConfig, RouteKeys};
use crate::config::redirect_table::{self, RouteRedirectConfig, RouteRedirectTable};
use crate::config::request_table::{RouteRequestKeys, RouteRequestsConfig};
use crate::config::route_files::{
    KeyPosition, RouteAnswer, RouteFileKeys, RouteFiles, RouteFilesConfig,
    refuse_rules_without_files, refuse_useless_files, refuse_wrong_try,
};
use crate::config::script_table::{BackendConfig, CgiConfig, Programs, ScriptKeys, ScriptsConfig};
use crate::config::site_paths::{RewritePath, RoutePath};
use crate::config::toml_reader::{FromToml, KeyedValue, SourceText, TableReader};
use crate::config::value_types::{Network, networks};
use data_plane::handler::compression::CompressionRule;

declare_table! {
    /// Keys of `[[site.route]]`.
    pub(super) struct RouteTable: "[[site.route]]" {
        /// Path prefix, decoded; see [path matching](routes.md#path-matching).
        path: RoutePath = required, also ["location", "prefix", "from", "match", "url"], example "\"/private/\"";
        /// URL or path of the site for [redirects](routes.md#redirects), or a [table](#the-table-redirect).
        redirect: RouteRedirectTable = optional("none"), also ["return", "redir", "Redirect", "to"], example "\"/new/\"";
        /// Status of all responses: `404`, `403`, `410` or `451`. The route is [closed](routes.md#closed-paths).
        status: ClosedStatus = optional("none"), example "404";
        /// Path of the site to [serve instead](routes.md#rewrites).
        rewrite: RewritePath = optional("none"), also ["RewriteRule"], example "\"/app/index.html\"";
        /// Another folder to serve below the path.
        root: PathBuf = optional("none"), also ["alias", "Alias", "folder", "dir"], example "\"/srv/other\"";
        /// `true`: the route returns [hit counts](hits.md#counts-on-a-page) as JSON.
        hits: bool = default(false), example "true";
        /// [Page cache](#cache) for the responses of a script, a backend or a [member](proxy.md); or rules for the
        /// `Cache-Control` of files, `[{ files = "*.jpg", max_age = "30d" }]`, which go before the site's.
        cache: PageCacheChoice = optional("`false`"), also ["proxy_cache", "fastcgi_cache"], example "{ seconds = 10 }";
        /// [Compression](routes.md#compression) of the responses of a script, a backend or a member: `false` for none,
        /// `"always"` for pages of one user too.
        compress: CompressionChoice = default(CompressionChoice(CompressionRule::Texts)),
            also ["gzip", "encode", "compression", "deflate"], example "false";
        /// [Networks](routes.md#guards-by-address) with access; all other addresses get 403.
        allow: Vec<Spanned<Network>> = optional("all networks"), also ["remote_ip", "Require"],
            example "[\"192.0.2.0/24\"]";
        /// File of [passwords](routes.md#guards-by-password); a client without a valid login gets 401.
        users: PathBuf = optional("none"),
            also ["auth_basic_user_file", "basic_auth", "basicauth", "htpasswd", "password", "AuthUserFile"],
            example "\"users.htpasswd\"";
        /// Server that decides about each request ([forward authentication](routes.md#forward-authentication)): a URL, or a
        /// [table](#auth). `false`: the `auth` of outer routes has no effect on the paths.
        auth: AuthChoice = optional("that of the outer routes"), also ["forward_auth", "ForwardAuth", "auth_request"],
            example "{ url = \"http://127.0.0.1:9091/api/authz/forward-auth\", copy = [\"Remote-User\"] }";
        /// `true`: an address of `allow` needs no login, and a login stands for the address. Only with `allow`, and with
        /// `users` or `auth`.
        any: bool = default(false), also ["satisfy", "Satisfy"], example "true";
        ..files: RouteFileKeys;
        ..requests: RouteRequestKeys;
        ..scripts: ScriptKeys;
        ..git: GitKeys;
        ..proxy: RouteKeys;
        ..test: TestKeys;
    }
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
    /// Password file with the permitted users.
    pub users: Option<Spanned<PathBuf>>,
    /// Forward authentication.
    pub auth: Option<RouteAuthConfig>,
    /// Whether an address of `allow` needs no login.
    pub any: bool,
    /// Rules for requests.
    pub requests: RouteRequestsConfig,
    /// Rule that runs some of the site's files instead of sending the files.
    pub scripts: Option<ScriptsConfig>,
    /// Page cache for the responses of the handler.
    pub cache: Option<PageCacheConfig>,
    /// Compression of the responses of the handler.
    pub compression: CompressionRule,
    /// Whether paths with an encoded slash (`%2F`) reach the members of a proxied route.
    pub encoded_slash: bool,
    /// Whether requests for a tunnel bypass the page cache.
    pub upgrade: bool,
    /// Rules for the files below the path.
    pub files: RouteFilesConfig,
    /// Whether a file of the site goes before the handler of the target.
    pub files_first: bool,
    /// Keys about files in the order of the declaration, each with its position.
    pub(super) file_keys: Vec<KeyPosition>,
}

impl RouteConfig {
    /// Returns the user files of the route.
    pub(crate) fn user_files(&self) -> impl Iterator<Item = &Spanned<PathBuf>> {
        let pushers = match &self.target {
            Some(TargetConfig::Git(git)) => git.push_users.as_ref(),
            _ => None,
        };
        self.users.iter().chain(pushers)
    }

    /// Returns the names of the keys about files that the route sets.
    pub(crate) fn file_rule_names(&self) -> Vec<&'static str> {
        let files = &self.files;
        let lists = [
            ("errors", files.errors.is_empty()),
            ("cache", files.cache.is_empty()),
            ("headers", files.headers.is_empty()),
        ];
        let lists = lists.into_iter().filter(|(_, is_empty)| !is_empty);
        let names = self.file_keys.iter().map(|(key, _)| *key);
        names.chain(lists.map(|(key, _)| key)).collect()
    }

    /// Returns the server that decides about the requests of the route.
    pub(crate) fn auth_server(&self) -> Option<&AuthConfig> {
        match &self.auth {
            Some(RouteAuthConfig::By(auth)) => Some(auth),
            Some(RouteAuthConfig::Off) | None => None,
        }
    }

    /// Returns true if the route sets a rule for files.
    pub(crate) fn has_file_rules(&self) -> bool {
        self.files != RouteFilesConfig::default()
    }

    /// Returns the position of `hide`.
    pub(super) fn hide_span(&self) -> Option<Range<usize>> {
        self.files.hide.as_ref().map(Spanned::span)
    }
}

/// Target of requests below the path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetConfig {
    /// Redirect to a URL, or to a path of the site.
    Redirect(RouteRedirectConfig),
    /// Refusal of all requests with a status.
    Closed(Spanned<u16>),
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
    pub(crate) fn backend(&self) -> Option<&BackendConfig> {
        match (&self.target, &self.scripts) {
            (Some(TargetConfig::Backend(backend)), _)
            | (_, Some(ScriptsConfig::Backend(backend))) => Some(backend),
            _ => None,
        }
    }
}

impl TargetConfig {
    /// Adds the settings to the key of pages.
    pub(crate) fn add_to_page_key(&self, key: &mut PageKey) {
        match self {
            TargetConfig::Redirect(to) => {
                key.number(1);
                key.text(to.to.get_ref());
            }
            TargetConfig::Rewrite(to) => {
                key.number(2);
                key.text(to.get_ref());
            }
            TargetConfig::Root(root) => {
                key.number(3);
                key.path(root.get_ref());
            }
            TargetConfig::Cgi(cgi) => {
                key.number(4);
                cgi.add_to_page_key(key);
            }
            TargetConfig::Backend(backend) => {
                key.number(5);
                backend.add_to_page_key(key);
            }
            TargetConfig::Git(git) => {
                key.number(6);
                git.add_to_page_key(key);
            }
            TargetConfig::Hits(shown) => {
                key.number(7);
                key.number((*shown.get_ref()).into());
            }
            #[cfg(feature = "test-handlers")]
            TargetConfig::Test(test) => {
                key.number(8);
                key.number(*test as u64);
            }
            TargetConfig::Proxy(proxy) => {
                key.number(9);
                proxy.add_to_page_key(key);
            }
            TargetConfig::Closed(status) => {
                key.number(10);
                key.number((*status.get_ref()).into());
            }
        }
    }

    /// Returns true if a handler makes the responses of the target.
    pub(crate) fn is_handler(&self) -> bool {
        !matches!(
            self,
            TargetConfig::Redirect(_)
                | TargetConfig::Closed(_)
                | TargetConfig::Rewrite(_)
                | TargetConfig::Root(_)
        )
    }
}

/// Status of a closed route.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedStatus(u16);

impl FromToml for ClosedStatus {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let Some(number) = item.value.get_ref().as_integer() else {
            return Err(item.mistyped("404, 403, 410 or 451", "404"));
        };
        let number = number.as_str();
        let mut known = CLOSED_STATUSES.iter();
        if let Some(status) = known.find(|status| number.parse() == Ok(**status)) {
            return Ok(ClosedStatus(*status));
        }
        let help = match number {
            "301" | "302" | "303" | "307" | "308" => {
                format!("write redirect = {{ to = \"/new/\", status = {number} }}")
            }
            "401" => "write users = \"FILE\": a client without a valid login gets 401".to_owned(),
            "405" => "write methods = [\"GET\", \"HEAD\"]: all other methods get 405".to_owned(),
            _ => "for example status = 404".to_owned(),
        };
        let what = "the `status` of a route must be 404, 403, 410 or 451";
        Err(item.refuse(what, help))
    }
}

/// Statuses of a closed route. Any other status says something that is not true of a closed path.
const CLOSED_STATUSES: [u16; 4] = [403, 404, 410, 451];

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

/// Handlers for tests by name.
#[cfg(feature = "test-handlers")]
const TEST_HANDLERS: [(&str, TestHandlerConfig); 8] = [
    ("echo", TestHandlerConfig::Echo),
    ("slow", TestHandlerConfig::Slow),
    ("endless", TestHandlerConfig::Endless),
    ("page", TestHandlerConfig::Page),
    ("hints", TestHandlerConfig::Hints),
    ("hold", TestHandlerConfig::Hold),
    ("trailers", TestHandlerConfig::Trailers),
    ("tunnel", TestHandlerConfig::Tunnel),
];

#[cfg(feature = "test-handlers")]
impl FromToml for TestHandlerConfig {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        item.word(&TEST_HANDLERS)
    }
}

#[cfg(feature = "test-handlers")]
declare_table! {
    /// Keys of `[[site.route]]` in builds for tests.
    pub(super) struct TestKeys: "" {
        /// Handler for tests.
        test: TestHandlerConfig = optional("none"), example "\"echo\"";
    }
}

#[cfg(not(feature = "test-handlers"))]
declare_table! {
    /// Keys of `[[site.route]]` in builds for tests.
    pub(super) struct TestKeys: "" {}
}

/// Routes of a site.
#[derive(Clone, Debug)]
pub(super) struct Routes(pub(super) Vec<RouteConfig>);

impl FromToml for Routes {
    fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
        let source = item.source;
        let tables = item.tables(RouteTable::SCHEMA)?.into_iter();
        // An error is recorded, and the other routes are read.
        let routes: Vec<RouteConfig> = tables.filter_map(|it| source.keep(route(it))).collect();
        source.keep(refuse_shared_paths(source, &routes));
        Ok(Routes(routes))
    }
}

/// Target of a route with its key and its position.
type KeyedTarget = (&'static str, Range<usize>, TargetConfig);

/// Converts the table of a route. Errors are recorded. A route with an error in its table has the values that could
/// be read, and no error about a combination of keys.
fn route(mut table: TableReader<'_, '_>) -> Result<RouteConfig, OperatorError> {
    let source = table.source();
    let span = table.span.clone();
    let keys = RouteTable::take(&mut table);
    let is_whole = table.finish().is_ok();
    let keys = keys?;
    let errors = source.error_count();
    let mut targets: Vec<KeyedTarget> = Vec::new();
    if let Some(redirect) = keys.redirect {
        let span = redirect.span();
        let redirect = redirect_table::route_redirect(source, redirect.into_inner(), span.clone());
        if let Some(redirect) = source.keep(redirect) {
            targets.push(("redirect", span, TargetConfig::Redirect(redirect)));
        }
    }
    if let Some(status) = keys.status {
        let (span, status) = (status.span(), status.into_inner().0);
        let target = TargetConfig::Closed(Spanned::new(span.clone(), status));
        targets.push(("status", span, target));
    }
    if let Some(to) = keys.rewrite {
        let (span, to) = (to.span(), Spanned::new(to.span(), to.into_inner().0));
        targets.push(("rewrite", span, TargetConfig::Rewrite(to)));
    }
    if let Some(root) = keys.root {
        targets.push(("root", root.span(), TargetConfig::Root(root)));
    }
    if *keys.hits.get_ref() {
        targets.push(("hits", keys.hits.span(), TargetConfig::Hits(keys.hits)));
    }
    #[cfg(not(feature = "test-handlers"))]
    let TestKeys {} = keys.test;
    #[cfg(feature = "test-handlers")]
    if let Some(test) = keys.test.test {
        targets.push(("test", test.span(), TargetConfig::Test(test.into_inner())));
    }
    let upgrade = (keys.proxy.upgrade.span(), *keys.proxy.upgrade.get_ref());
    let proxied = kept(source, is_whole, keys.proxy.targets(source));
    let (proxied, encoded_slash) = proxied.unwrap_or_default();
    let proxied = proxied.into_iter();
    targets.extend(proxied.map(|(key, span, proxy)| (key, span, TargetConfig::Proxy(proxy))));
    let has_users = keys.users.is_some();
    let auth = keys.auth.map(|auth| auth.into_inner().settings(source));
    let auth = auth.and_then(|auth| kept(source, is_whole, auth));
    let asks = matches!(auth, Some(RouteAuthConfig::By(_)));
    if *keys.any.get_ref() && !(keys.allow.is_some() && (has_users || asks)) {
        let what = "`any` needs two guards: `allow`, and `users` or `auth`";
        let help = "add allow = [\"192.0.2.0/24\"], the network without a login, or remove `any`";
        let error = source.error(keys.any.span(), what, help);
        kept(source, is_whole, Err::<(), _>(error));
    }
    if keys.allow.is_none() && !has_users && !asks {
        let refused = keys.requests.refuse_useless_guard_methods(source);
        kept(source, is_whole, refused);
    }
    let requests = keys.requests.settings(source);
    let variables = keys.scripts.variables();
    let git = keys.git.settings(source, &variables, has_users);
    let git = kept(source, is_whole, git).flatten();
    let programs = match &git {
        Some(_) => {
            kept(source, is_whole, keys.scripts.refuse_beside_git(source));
            None
        }
        None => kept(source, is_whole, keys.scripts.settings(source)).flatten(),
    };
    if let Some(git) = git {
        targets.push(("git", git.folder.span(), TargetConfig::Git(git)));
    }
    let mut scripts = None;
    match programs {
        Some(Programs::Backend(backend)) if backend.files.is_empty() => {
            let name = if backend.is_scgi { "scgi" } else { "fastcgi" };
            targets.push((name, backend.address.span(), TargetConfig::Backend(backend)));
        }
        Some(Programs::Backend(backend)) => scripts = Some(ScriptsConfig::Backend(backend)),
        Some(Programs::Folder(cgi)) => {
            targets.push(("cgi", cgi.folder.span(), TargetConfig::Cgi(cgi)));
        }
        Some(Programs::Scripts(rule)) => scripts = Some(rule),
        None => {}
    }
    // The order of the file, so that the error points at the second target.
    targets.sort_by_key(|(_, span, _)| span.start);
    let is_whole = is_whole && source.error_count() == errors;
    // A useless `cache` or `compress` has an error of its own.
    let has_login = has_users || auth.is_some();
    let has_guard = keys.allow.is_some() || has_login || requests.has_effect();
    let has_useless = keys.cache.is_some() || !keys.compress.span().is_empty();
    let RouteFiles {
        mut config,
        keys: file_keys,
        handler: first_handler,
    } = keys.files.read();
    let has_files =
        !file_keys.is_empty() || !config.errors.is_empty() || !config.headers.is_empty();
    let guards = has_guard || has_useless || has_files;
    if is_whole {
        source.keep(refuse_targets(
            source,
            &span,
            &targets,
            scripts.is_some(),
            guards,
        ));
    }
    let target = (!targets.is_empty()).then(|| targets.swap_remove(0).2);
    if is_whole {
        source.keep(refuse_useless_compress(
            source,
            keys.compress.span(),
            target.as_ref(),
            scripts.is_some(),
        ));
    }
    let files_first = first_handler.is_some();
    let cache = keys.cache.filter(|_| is_whole).and_then(|choice| {
        if let PageCacheChoice::Files(rules) = choice.get_ref() {
            let answer = route_answer(target.as_ref());
            let refused = refuse_rules_without_files(source, choice.span(), &answer, files_first);
            source.keep(refused)?;
            config.cache.clone_from(rules);
            return None;
        }
        source.keep(refuse_useless_cache(
            source,
            choice.span(),
            target.as_ref(),
            scripts.is_some(),
        ))?;
        choice.into_inner().settings()
    });
    if is_whole {
        let answer = route_answer(target.as_ref());
        source.keep(refuse_wrong_try(
            source,
            &file_keys,
            &answer,
            first_handler.as_ref(),
        ));
        source.keep(refuse_useless_files(
            source,
            &file_keys,
            &answer,
            files_first,
        ));
        source.keep(refuse_useless_upgrade(
            source,
            upgrade.0,
            target.as_ref(),
            cache.is_some(),
        ));
    }
    Ok(RouteConfig {
        span,
        path: Spanned::new(keys.path.span(), keys.path.into_inner().0),
        target,
        allow: keys.allow.map(|allow| networks(allow.into_inner())),
        users: keys.users,
        auth,
        any: keys.any.into_inner(),
        requests,
        scripts,
        cache,
        compression: keys.compress.get_ref().0,
        encoded_slash,
        upgrade: upgrade.1,
        files: config,
        files_first,
        file_keys,
    })
}

/// Returns the value, or records the error. In a table that is not whole, the error is probably a consequence.
fn kept<T>(source: &SourceText<'_>, is_whole: bool, result: Result<T, OperatorError>) -> Option<T> {
    if is_whole {
        source.keep(result)
    } else {
        result.ok()
    }
}

/// Refuses two targets, a target beside scripts, and a route without effect. `targets` are in the order of the file.
fn refuse_targets(
    source: &SourceText<'_>,
    route: &Range<usize>,
    targets: &[KeyedTarget],
    has_scripts: bool,
    has_guards: bool,
) -> Result<(), OperatorError> {
    match targets {
        [(first, ..), (second, span, _), ..] => {
            let what = format!("a route has one target, not both `{first}` and `{second}`");
            Err(source.error(span.clone(), what, "remove one of the two"))
        }
        [(name, span, target)] if has_scripts && !matches!(target, TargetConfig::Rewrite(_)) => {
            let what = format!(
                "`{name}` handles all requests of the route, so the route cannot run files of the \
                 site as scripts"
            );
            let help = "move the target to a route of its own, or remove the scripts";
            Err(source.error(span.clone(), what, help))
        }
        [] if !has_scripts && !has_guards => {
            let help = "add a target (redirect, rewrite, status, root, cgi, fastcgi, scgi, proxy, balance, git), a guard (allow, deny, users, auth), methods, rate, cors, body_bytes, or a key about files (index, try, errors, listing, headers, cache, hide)";
            Err(source.error(route.clone(), "the route has no effect", help))
        }
        _ => Ok(()),
    }
}

/// Refuses a page cache for a route without a handler of responses for the cache.
fn refuse_useless_cache(
    source: &SourceText<'_>,
    span: Range<usize>,
    target: Option<&TargetConfig>,
    has_scripts: bool,
) -> Result<(), OperatorError> {
    if matches!(target, Some(TargetConfig::Git(_))) {
        let what = "`cache` cannot be used with `git`: the response depends on the objects that \
                    the client already has";
        return Err(source.error(span, what, "remove `cache`"));
    }
    let is_stored = matches!(
        target,
        None | Some(
            TargetConfig::Root(_)
                | TargetConfig::Redirect(_)
                | TargetConfig::Closed(_)
                | TargetConfig::Rewrite(_)
                | TargetConfig::Hits(_)
        )
    );
    if is_stored && !has_scripts {
        let what = "`cache` stores responses of a handler, but the route has no handler";
        let help = "files are served from memory; to set how long browsers keep files, use \
                    `cache` of the [[site]]";
        return Err(source.error(span, what, help));
    }
    Ok(())
}

/// Refuses `compress`, with the position `key`, in a route without a handler. An empty position stands for a route without
/// the key.
fn refuse_useless_compress(
    source: &SourceText<'_>,
    key: Range<usize>,
    target: Option<&TargetConfig>,
    has_scripts: bool,
) -> Result<(), OperatorError> {
    if key.is_empty() || has_scripts || target.is_some_and(TargetConfig::is_handler) {
        return Ok(());
    }
    let what = "`compress` has no effect without a script, a backend or a member in the same route";
    let help = "write the target of the outer route in this route too, such as proxy = \"http://127.0.0.1:3000\"; for files, \
                write encodings = [{ files = \"*.json\", set = \"identity\" }] in the site";
    Err(source.error(key, what, help))
}

/// Refuses `upgrade`, with the position `key`, in a route without the page cache or without tunnels. An empty position
/// stands for a missing key.
fn refuse_useless_upgrade(
    source: &SourceText<'_>,
    key: Range<usize>,
    target: Option<&TargetConfig>,
    has_cache: bool,
) -> Result<(), OperatorError> {
    let has_tunnels = match target {
        Some(TargetConfig::Proxy(_)) => true,
        #[cfg(feature = "test-handlers")]
        Some(TargetConfig::Test(_)) => true,
        _ => false,
    };
    match () {
        () if key.is_empty() => Ok(()),
        () if !has_tunnels => {
            let what = "`upgrade` has no effect without `proxy` or `balance` in the same route";
            Err(source.error(key, what, "remove the key, or add `proxy`"))
        }
        () if !has_cache => {
            let what = "`upgrade` has no effect without `cache`: requests with `Upgrade` reach the member anyway";
            Err(source.error(key, what, "remove the key"))
        }
        () => Ok(()),
    }
}

/// Returns the answer of a route, as far as keys about files are concerned.
fn route_answer(target: Option<&TargetConfig>) -> RouteAnswer {
    match target {
        None | Some(TargetConfig::Root(_)) => RouteAnswer::Files,
        Some(TargetConfig::Proxy(_)) => RouteAnswer::Handler("proxy"),
        Some(TargetConfig::Backend(backend)) if backend.is_scgi => RouteAnswer::Handler("scgi"),
        Some(TargetConfig::Backend(_)) => RouteAnswer::Handler("fastcgi"),
        Some(TargetConfig::Cgi(_)) => RouteAnswer::Handler("cgi"),
        Some(_) => RouteAnswer::Other,
    }
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
            let place = source.place(twin.path.span().start, &route.path.span());
            let what = format!("two routes have a target for `{}`", route.path.get_ref());
            let help =
                format!("the first is in {place}; remove one of the two, or change its path");
            return Err(source.error(route.path.span(), what, help));
        }
        for (key, span) in &route.file_keys {
            let sets = |other: &&RouteConfig| {
                component(other) == component(route)
                    && other.file_keys.iter().any(|(other, _)| other == key)
            };
            if let Some(twin) = routes[..nth].iter().find(sets) {
                let place = source.place(twin.path.span().start, span);
                let path = route.path.get_ref();
                let what = format!("two routes set `{key}` for `{path}`");
                let help = format!("the first is in {place}; remove one of the two");
                return Err(source.error(span.clone(), what, help));
            }
        }
    }
    Ok(())
}
