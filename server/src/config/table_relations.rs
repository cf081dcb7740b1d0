//! Contradictions between the tables of a configuration.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use toml::Spanned;

use crate::config::auth_table::RouteAuthConfig;
use crate::config::balancer::BalancerConfig;
use crate::config::error::OperatorError;
use crate::config::log_table::{LogConfig, LogTarget};
use crate::config::proxy_table::BalancerRef;
use crate::config::release_table::ReleaseConfig;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::server_table::{ServerConfig, shared_address};
use crate::config::site_listener::SiteListener;
use crate::config::site_table::SiteConfig;
use crate::config::toml_reader::SourceText;
use crate::config::values::ListenAddress;
use base::heap_sort::sort;
use cli::suggest;
use data_plane::handler::proxy::route::USER_PLACEHOLDER;
use data_plane::world::allow_list::AllowList;
use data_plane::world::log_skip::SkipRule;
use data_plane::world::method_set::MethodSet;
use wire::request_head::Method;
use wire::request_target::is_below;

/// Reports each name of two sites, and each repeated name of one site. `is_whole` is false if the names of a site
/// could not be read, so that the site has the default name.
pub(super) fn report_shared_names(source: &SourceText<'_>, sites: &[SiteConfig], is_whole: bool) {
    let mut seen: HashMap<NameAtListener<'_>, (usize, Range<usize>)> = HashMap::new();
    for (nth, site) in sites.iter().enumerate() {
        let names = site.all_names();
        for (listener, name) in names.flat_map(|name| listeners(site).map(move |it| (it, name))) {
            let span = if name.span().is_empty() {
                if !is_whole {
                    continue;
                }
                site.span.clone()
            } else {
                name.span()
            };
            let key = (listener, name.get_ref().as_str());
            let Some((first, place)) = seen.insert(key, (nth, span.clone())) else {
                continue;
            };
            let name = name.get_ref();
            if first == nth {
                let what = format!("the site has the name `{name}` twice");
                source.report(source.error(span, what, "remove one of the two"));
                continue;
            }
            let place = source.place(place.start, &span);
            let what = match listener {
                None => format!("two sites have the name `{name}`"),
                Some(listener) => format!("two sites have the name `{name}` at {listener}"),
            };
            let help = match listener {
                None => format!("the first site is in {place}; give each site its own names"),
                Some(_) => format!(
                    "the first site is in {place}; give each site its own `names`, or another port in `listen`"
                ),
            };
            source.report(source.error(span, what, help));
        }
    }
}

/// Name of a site at a listener; None stands for the addresses of `[server]`.
type NameAtListener<'s> = (Option<SiteListener>, &'s str);

/// Returns the listeners at which the names of a site hold; None for those of `[server]`.
fn listeners(site: &SiteConfig) -> impl Iterator<Item = Option<SiteListener>> + Clone {
    let own = site.listen.iter();
    let own = own.map(|listener| Some(*listener.get_ref()));
    own.chain(site.listen.is_empty().then_some(None))
}

/// Reports each log with a name that the rotation gives to an older file of another log.
pub(super) fn report_rotated_names(source: &SourceText<'_>, log: &LogConfig, sites: &[SiteConfig]) {
    if log.rotate.is_none() {
        return;
    }
    let of_sites = sites.iter().filter_map(|site| site.log.access.as_ref());
    let logs = [&log.access, &log.errors].into_iter().chain(of_sites);
    let files = logs.filter_map(|log| match log.get_ref() {
        LogTarget::File(path) => Some((path.as_os_str().as_bytes(), log.span())),
        _ => None,
    });
    let mut names: Vec<&[u8]> = files.clone().map(|(name, _)| name).collect();
    sort(&mut names);
    for (name, span) in files {
        let numbered = name.strip_suffix(b".gz").unwrap_or(name);
        let Some(dot) = numbered.iter().rposition(|byte| *byte == b'.') else {
            continue;
        };
        let (stem, number) = (&numbered[..dot], &numbered[dot + 1..]);
        let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        if is_number && names.binary_search(&stem).is_ok() {
            let stem = String::from_utf8_lossy(stem);
            let what = format!("the rotation of the log {stem} replaces this log");
            source.report(source.error(span, what, "give the log another name"));
        }
    }
}

/// Refuses a listener with the PROXY protocol if no address is trusted: every connection would be refused.
pub(super) fn refuse_untrusted_listener(
    source: &SourceText<'_>,
    server: &ServerConfig,
) -> Result<(), OperatorError> {
    let mut listeners = server.https.iter().chain(&server.http);
    match listeners.find(|listener| listener.get_ref().proxy_protocol) {
        Some(listener) if server.trust.is_empty() => {
            let what = "`proxy_protocol` needs the addresses of the proxies in `trust`";
            let help =
                "add trust = [\"192.0.2.1\"] to [server], the addresses of the proxies in front";
            Err(source.error(listener.span(), what, help))
        }
        _ => Ok(()),
    }
}

/// Reports each UDP address of `heartbeat` that another balancer's address or HTTP/3 covers. Balancers with equal addresses
/// share a socket.
pub(super) fn report_shared_datagram_ports(
    source: &SourceText<'_>,
    server: &ServerConfig,
    balancers: &[BalancerConfig],
) {
    let http3 = server.http3.as_ref().map(|http3| *http3.get_ref());
    let quic = server.https.iter().filter(|listener| {
        http3.unwrap_or(cfg!(feature = "http3")) && !listener.get_ref().proxy_protocol
    });
    let mut taken: Vec<(&str, &Spanned<ListenAddress>)> =
        quic.map(|listener| ("https", listener)).collect();
    let heartbeats = balancers.iter();
    for this in heartbeats.filter_map(|balancer| balancer.heartbeat.as_ref()) {
        let address = this.get_ref();
        let mut others = taken.iter().filter(|(key, other)| {
            let is_shared = *key == "heartbeat" && other.get_ref().address == address.address;
            !is_shared && address.meets(other.get_ref())
        });
        if let Some((key, other)) = others.next() {
            let what = shared_address(("heartbeat", address), (key, other.get_ref()));
            let help = match *key {
                "https" => {
                    "choose another port: HTTP/3 receives its datagrams on the port of `https`, unless http3 = false"
                }
                _ => "write one address for both balancers, or choose another port",
            };
            source.report(source.error(this.span(), what, help));
        }
        taken.push(("heartbeat", this));
    }
}

/// Reports each `balance` that names no balancer.
pub(super) fn report_unknown_balancers(
    source: &SourceText<'_>,
    balancers: &[BalancerConfig],
    sites: &[SiteConfig],
) {
    let names = || balancers.iter().map(|balancer| &*balancer.settings.name);
    for name in sites.iter().flat_map(SiteConfig::named_balancers) {
        let typed = name.get_ref().as_str();
        if names().any(|name| name == typed) {
            continue;
        }
        let what = format!("there is no balancer `{typed}`");
        let help = match (suggest(typed, names()), names().next()) {
            (Some(meant), _) => format!("did you mean \"{meant}\"?"),
            (None, Some(_)) => format!(
                "the balancers are {}",
                names().collect::<Vec<_>>().join(", ")
            ),
            (None, None) => format!("add [[balancer]] with name = \"{typed}\""),
        };
        source.report(source.error(name.span(), what, help));
    }
}

/// Advises a site with `publishers` to set `site_id`, since the publishers may sign for other sites with the same name.
pub(super) fn unbound_signatures(release: &ReleaseConfig) -> Option<(Range<usize>, String)> {
    if release.publishers.is_empty() || release.site_id.is_some() {
        return None;
    }
    let name = release.name.get_ref();
    let what = format!(
        "a release that a publisher signed for another site with the name `{name}` is valid here too: publish with a `site_id` in the key file, and then write the same text as `site_id` of the site"
    );
    Some((release.name.span(), what))
}

/// Warns of the first redirect that never applies, because a route with a target answers for all of its paths.
pub(super) fn shadowed_redirect(site: &SiteConfig) -> Option<(Range<usize>, String)> {
    let redirects = site.redirects.iter();
    let mut unforced = redirects.filter(|redirect| !redirect.get_ref().is_forced);
    unforced.find_map(|redirect| {
        let (span, redirect) = (redirect.span(), redirect.get_ref());
        let stem = redirect.from.strip_suffix(b"*").unwrap_or(&redirect.from);
        let stem = stem.strip_suffix(b"/").unwrap_or(stem);
        let covers = |route: &&RouteConfig| {
            let prefix = route.path.get_ref().trim_end_matches('/').as_bytes();
            let rest = stem.strip_prefix(prefix);
            route.target.is_some() && rest.is_some_and(|it| it.is_empty() || it[0] == b'/')
        };
        let route = site.routes.iter().find(covers)?;
        let what = format!(
            "the redirect of {} never applies, because the route {} answers: write force = true",
            String::from_utf8_lossy(&redirect.from),
            route.path.get_ref()
        );
        Some((span, what))
    })
}

/// Warns of a path with a placeholder of another server, such as `/users/:id`, which matches the text itself alone.
pub(super) fn placeholder_in_path(route: &RouteConfig) -> Option<String> {
    let path = route.path.get_ref();
    let is_placeholder = |part: &&str| {
        let inside = part.strip_prefix(':');
        let inside = inside.or_else(|| part.strip_prefix('{')?.strip_suffix('}'));
        inside.is_some_and(|name| !name.is_empty())
    };
    let placeholder = path.split('/').find(is_placeholder)?;
    let (before, _) = path.split_once(placeholder)?;
    Some(format!(
        "the path {path} matches the text `{placeholder}` alone, because a path is a prefix without placeholders: write \
         path = \"{before}\" for everything below"
    ))
}

/// Warns of a route that permits no client, because `deny` covers each network of `allow`.
pub(super) fn denied_all(route: &RouteConfig) -> Option<String> {
    let (allow, deny) = (route.allow.as_ref()?, route.requests.deny.as_ref()?);
    let entries = |list: &[Spanned<String>]| {
        AllowList::parse(list.iter().map(|it| it.get_ref().as_str())).ok()
    };
    let deny = entries(deny)?;
    (!allow.is_empty() && entries(allow)?.is_within(&deny)).then(|| {
        format!(
            "the route {} refuses every client, because `deny` covers all networks of `allow`: remove `deny`, or \
             write allow = [] for a closed route",
            route.path.get_ref()
        )
    })
}

/// Returns true if a rule leaves all responses without a refusal out of the access log.
pub(super) fn skips_all(rules: &[SkipRule]) -> bool {
    rules.iter().any(|rule| {
        let samples = [&b"/"[..], b"/a.b", b"/c/d/"];
        let is_all = |path: &&[u8]| rule.paths.iter().any(|glob| glob.matches(path));
        samples.iter().all(is_all) && (200..400).all(|status| rule.statuses.contains(status))
    })
}

/// Returns the text of the warning about a route with `auth = false` below a route where a login stands for the address:
/// without the login, nothing is left of `allow`. The login page and the server's own pages are for clients elsewhere.
pub(super) fn lifted_addresses(site: &SiteConfig, route: &RouteConfig) -> Option<String> {
    let is_off = matches!(route.auth, Some(RouteAuthConfig::Off));
    if !is_off || route.allow.is_some() || route.users.is_some() {
        return None;
    }
    let path = route.path.get_ref().as_str();
    let is_home = |outer: &&RouteConfig| {
        let prefix = outer.path.get_ref().trim_end_matches('/');
        outer.any && outer.users.is_none() && is_below(path.as_bytes(), prefix.as_bytes())
    };
    let outer = site.routes.iter().find(is_home)?;
    let auth = outer.auth_server()?;
    let is_login = auth
        .login
        .as_ref()
        .is_some_and(|login| login.get_ref().starts_with(path));
    let is_of_server = match &route.target {
        Some(TargetConfig::Proxy(proxy)) => match &proxy.balancer {
            BalancerRef::Own(own) => {
                let url = |config: &BalancerConfig| {
                    let members = &config.settings.members;
                    members.first().map(|member| member.url.clone())
                };
                url(own) == url(&auth.balancer)
            }
            BalancerRef::Named(_) => false,
        },
        _ => false,
    };
    (!is_login && !is_of_server).then(|| {
        format!(
            "the route {path} is open to every client, because auth = false lifts `allow` of the route {} with `any` too: \
             write `allow` in the route {path} as well",
            outer.path.get_ref()
        )
    })
}

/// Warns of settings about a login in a route for members, if neither a route nor the previews of the site ask for a login.
pub(super) fn useless_login(site: &SiteConfig, route: &RouteConfig) -> Option<String> {
    let Some(TargetConfig::Proxy(proxy)) = &route.target else {
        return None;
    };
    // Previews answer the routes of the site too.
    let has_login = |route: &RouteConfig| route.users.is_some() || route.auth_server().is_some();
    if site.preview_users().is_some() || site.routes.iter().any(has_login) {
        return None;
    }
    let mut fields = proxy.forward.request_fields.iter();
    let of_user = fields.find(|(_, value)| value.contains(USER_PLACEHOLDER));
    let path = route.path.get_ref();
    match of_user {
        Some((name, _)) => Some(format!(
            "the field {name} of the route {path} never reaches the member, because no route of the site has `users` or `auth`: \
             add `users`, or remove {USER_PLACEHOLDER}"
        )),
        None => proxy.forward.passes_login.then(|| {
            format!(
                "`pass_login` of the route {path} has no effect, because no route of the site has `users`: add `users`, \
                 or remove the key"
            )
        }),
    }
}

/// Warns of methods that change a resource and pass without the guard of a route, since `guard_methods` leaves the methods
/// out. The usual methods come first, and then those of WebDAV. `methods` of each route above the path counts.
pub(super) fn open_methods(site: &SiteConfig, route: &RouteConfig) -> Option<String> {
    let guarded = route.requests.guard_methods.as_ref()?;
    let prefix = |route: &RouteConfig| route.path.get_ref().trim_end_matches('/').len();
    let covers = |above: &&RouteConfig| {
        let above = above.path.get_ref().trim_end_matches('/').as_bytes();
        is_below(route.path.get_ref().as_bytes(), above)
    };
    let covering = || site.routes.iter().filter(covers);
    let target = covering().filter(|it| it.target.is_some());
    let target = target
        .max_by_key(|it| prefix(it))
        .and_then(|it| it.target.as_ref());
    let has_handler =
        target.is_some_and(TargetConfig::is_handler) || covering().any(|it| it.scripts.is_some());
    let is_open = |method: &Method| {
        let mut limits = covering().filter_map(|it| it.requests.methods.as_ref());
        !guarded.contains(*method) && limits.all(|methods| methods.contains(*method))
    };
    let usual = [Method::Post, Method::Put, Method::Patch, Method::Delete];
    let of_webdav = ["MKCOL", "COPY", "MOVE", "PROPPATCH", "LOCK"];
    let of_webdav = of_webdav
        .iter()
        .filter_map(|name| Method::from_name(name.as_bytes()));
    let open = |methods: Vec<Method>| MethodSet::new(methods.into_iter().filter(is_open));
    let found = [open(usual.into()), open(of_webdav.collect())];
    let mut found = found.iter().filter(|open| **open != MethodSet::new([]));
    let open = found.next().filter(|_| has_handler)?;
    Some(format!(
        "the route {} guards {}, and {} pass without the guard: add the methods to `guard_methods`, or write \
         `methods` to refuse all other methods",
        route.path.get_ref(),
        guarded.names(),
        open.names()
    ))
}
