//! Settings that contradict one another, or that lead requests nowhere: redirects in a circle over several sites, members that
//! are this server or one server twice, rules that another rule defeats, keys for files that only a handler reads.

use crate::config::acme_table::AcmeConfig;
use crate::config::balancer::BalancerConfig;
use crate::config::balancer_checks::addresses_of;
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::file_rules::HeadersConfig;
use crate::config::folder_contents::VisibleFiles;
use crate::config::guard_checks::covers;
use crate::config::limits::CONFIG_CHECKED_FILES_MAX;
use crate::config::managed_certificates::certified;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::script_table::BackendAddressConfig;
use crate::config::site_table::SiteConfig;
use crate::config::useless_settings::{key_of, own_files};
use crate::config::values::ListenAddress;
use balancer::settings::MemberHost;
use data_plane::limits::Limits;
use release::glob::Glob;
use std::net::{IpAddr, UdpSocket};
use toml::Spanned;
use wire::request_head::Method;

/// Returns the warnings of settings that contradict one another.
pub(super) fn doubtful_settings(config: &Config) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    warnings.extend(small_head(config));
    warnings.extend((config.tls.acme.as_ref()).and_then(|acme| example_address(config, acme)));
    for (nth, site) in config.sites.iter().enumerate() {
        warnings.extend(redirect_circle(config, nth));
        warnings.extend(self_signed(config, site));
        warnings.extend(defeated_cache_rule(config, site));
        warnings.extend(immutable_pages(config, site));
        warnings.extend(unused_listing(config, site));
        for route in &site.routes {
            warnings.extend(php_for_all_files(config, route));
            warnings.extend(unread_keys(config, site, route));
        }
    }
    for balancer in config.all_balancers() {
        warnings.extend(one_member_twice(config, balancer));
        warnings.extend(own_member(config, balancer));
    }
    warnings
}

/// Warns of bounds of a head that a browser exceeds, or that contradict one another.
fn small_head(config: &Config) -> Option<OperatorError> {
    let head = &config.server.limits.head;
    let usual = Limits::default().head;
    let key = |name: &str| config.source.key_of_table("[server]", name);
    let at = |name: &str| match key(name) {
        place if place.is_empty() => key("limits"),
        place => place,
    };
    if head.head_bytes < HEAD_BYTES_OF_BROWSERS {
        let what = format!(
            "head_bytes = {} is less than the heads of browsers, which have up to 8 KiB with their cookies: larger \
             requests get 431",
            head.head_bytes
        );
        let help = "write head_bytes = \"8KiB\" or more, or remove the key";
        return Some(config.point(at("head_bytes"), what, help));
    }
    let is_own = head.request_line_bytes != usual.request_line_bytes;
    (is_own && head.head_bytes < head.request_line_bytes).then(|| {
        let what = format!(
            "head_bytes = {} is less than request_line_bytes = {}, and a head includes its request line: a longer line \
             gets 431 in place of 414",
            head.head_bytes, head.request_line_bytes
        );
        let help = "raise head_bytes, or lower request_line_bytes";
        config.point(at("head_bytes"), what, help)
    })
}

/// Least bytes of `head_bytes` without a warning, 2 KiB: a browser sends 500 to 1,500 bytes without any cookie.
const HEAD_BYTES_OF_BROWSERS: usize = 2 * 1024;

/// Warns of an e-mail address of an example, which Let's Encrypt refuses.
fn example_address(config: &Config, acme: &AcmeConfig) -> Option<OperatorError> {
    let email = acme.email.as_ref()?;
    let (_, host) = email.rsplit_once('@')?;
    let host = host.to_ascii_lowercase();
    let is_example = ["example.org", "example.com", "example.net"]
        .iter()
        .any(|name| host == *name || host.ends_with(&format!(".{name}")));
    let is_public = acme.directory.contains(".letsencrypt.org/");
    (is_example && is_public).then(|| {
        let what = format!(
            "{email} is an address of an example: Let's Encrypt refuses {host}, so no certificate comes"
        );
        let help = "write your own e-mail address, or remove `email`";
        config.point(acme.span.clone(), what, help)
    })
}

/// Redirect of a site that leads to another site.
struct Hop<'c> {
    route: &'c RouteConfig,
    to: &'c Spanned<String>,
    next: usize,
    /// Path of the destination.
    path: String,
}

/// Returns the redirect that answers a path of a site, if the destination is a site of the configuration.
fn hop<'c>(config: &'c Config, nth: usize, path: &str) -> Option<Hop<'c>> {
    let routes = config.sites[nth].routes.iter();
    let answers = routes.filter(|it| it.target.is_some() && covers(it.path.get_ref(), path));
    let route = answers.max_by_key(|it| it.path.get_ref().len())?;
    let Some(TargetConfig::Redirect(redirect)) = &route.target else {
        return None;
    };
    let to = redirect.to.get_ref();
    let rest = to
        .strip_prefix("https://")
        .or_else(|| to.strip_prefix("http://"))?;
    let (authority, _) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = rest[authority.len()..].split(['?', '#']).next();
    let path = path.filter(|it| !it.is_empty()).unwrap_or("/").to_owned();
    let host = authority
        .strip_suffix(":443")
        .or_else(|| authority.strip_suffix(":80"));
    let host = host.unwrap_or(authority).to_ascii_lowercase();
    let is_named = |site: &SiteConfig| {
        site.listen.is_empty() && site.names.iter().any(|name| *name.get_ref() == host)
    };
    let next = config.sites.iter().position(is_named)?;
    let is_plain = !route.files_first && !path.contains(['$', '{', '%']);
    is_plain.then_some(Hop {
        route,
        to: &redirect.to,
        next,
        path,
    })
}

/// Warns of redirects that lead from a site over other sites to the site again.
fn redirect_circle(config: &Config, first: usize) -> Option<OperatorError> {
    let start = hop(config, first, "/").filter(|it| it.next > first)?;
    let name = |nth: usize| config.sites[nth].names[0].get_ref();
    let mut way = vec![format!("{}/", name(first))];
    let (mut next, mut path) = (start.next, start.path.clone());
    for _ in 0..config.sites.len() {
        way.push(format!("{}{path}", name(next)));
        if next == first {
            let is_same = covers(start.route.path.get_ref(), &path);
            return is_same.then(|| {
                let what = format!("the redirects lead in a circle: {}", way.join(" -> "));
                let help = format!(
                    "remove one of the redirects: the site that keeps its pages has no redirect of {}",
                    start.route.path.get_ref()
                );
                config.point(start.to.span(), what, help)
            });
        }
        // The circle is reported once, at its first site.
        let step = hop(config, next, &path).filter(|step| step.next >= first)?;
        (next, path) = (step.next, step.path);
    }
    None
}

/// Warns of a public name at the port of HTTPS whose certificate no browser accepts.
fn self_signed(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let https = config.server.https.iter().map(|it| *it.get_ref());
    let own = site.listen.iter().map(Spanned::get_ref);
    let mut addresses: Box<dyn Iterator<Item = ListenAddress>> = if site.listen.is_empty() {
        Box::new(https)
    } else {
        Box::new(own.filter(|it| it.secure).map(|it| it.address))
    };
    let is_public = addresses.any(|it| it.address.port() == 443 && is_public(it.address.ip()));
    if !is_public || site.certificate.is_some() || config.acme_file(site).is_some() {
        return None;
    }
    // A proxy in front has the certificate for the browsers.
    if !config.server.trust.is_empty() {
        return None;
    }
    let is_example = |name: &&str| {
        let is_example = |it: &str| *name == it || name.ends_with(&format!(".{it}"));
        ["example.org", "example.com", "example.net", "example"]
            .into_iter()
            .any(is_example)
    };
    let name = certified(site).find(|name| !is_example(name))?;
    let span = site.names.iter().find(|it| it.get_ref() == name)?.span();
    let what = format!("{name} at port 443 has a self-signed certificate, which browsers refuse");
    let help = "write acme = { email = \"YOUR ADDRESS\" } in [tls] for a certificate of Let's Encrypt, or `certificate` and \
                `key` in the site";
    Some(config.point(span, what, help))
}

/// Returns true for an address that clients of the internet can reach.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !address.is_loopback() && !address.is_private() && !address.is_link_local()
        }
        IpAddr::V6(address) => {
            !address.is_loopback() && !address.is_unique_local() && !address.is_unicast_link_local()
        }
    }
}

fn is_all(glob: &str) -> bool {
    matches!(glob, "*" | "**" | "/**")
}

/// Warns of a rule of `cache` for files that get Cache-Control by `headers`.
fn defeated_cache_rule(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let sets = |rule: &&HeadersConfig| {
        let mut fields = rule.set.iter();
        fields.any(|(name, _)| name.eq_ignore_ascii_case("cache-control"))
    };
    let field = site.headers.iter().filter(sets).find_map(|headers| {
        let glob = headers.files.get_ref();
        let mut rules = site.cache.iter();
        let rule = rules.find(|rule| is_all(glob) || rule.files.get_ref() == glob)?;
        Some((headers, rule))
    });
    let (headers, rule) = field?;
    let place = config
        .source
        .place(headers.files.span().start, rule.files.span().start);
    let shown = if rule.rule.only_hashed {
        "\"hashed\" of `cache`".to_owned()
    } else {
        format!("the rule of `cache` for `{}`", rule.files.get_ref())
    };
    let what = format!(
        "{shown} has no effect, because `headers` in {place} sets Cache-Control for the same files"
    );
    let help = "remove Cache-Control from `headers`, or the rule of `cache`";
    Some(config.point(rule.files.span(), what, help))
}

/// Warns of pages that browsers never ask for again.
fn immutable_pages(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let root = own_files(config, site)?;
    if !site
        .cache
        .iter()
        .any(|rule| rule.rule.immutable && !rule.rule.only_hashed)
    {
        return None;
    }
    let rules: Vec<_> = (site.cache.iter())
        .filter(|rule| !rule.rule.only_hashed)
        .filter_map(|rule| Some((rule, Glob::parse(rule.files.get_ref()).ok()?)))
        .collect();
    let files = VisibleFiles::new(root).take(CONFIG_CHECKED_FILES_MAX);
    let mut pages = files.filter(|file| file.extension().is_some_and(|it| it == "html"));
    let (page, rule) = pages.find_map(|page| {
        let path = page.to_str()?.to_owned();
        let (rule, _) = rules
            .iter()
            .find(|(_, glob)| glob.matches(path.as_bytes()))?;
        rule.rule.immutable.then_some((path, *rule))
    })?;
    let what = format!(
        "`immutable` holds for the page {page}: browsers keep the page, and ask for no newer one until `max_age` is over"
    );
    let help = "put a rule for pages in front: { files = \"*.html\", max_age = \"5m\" }, or write cache = \"hashed\" for names \
                with a hash";
    Some(config.point(rule.files.span(), what, help))
}

/// Warns of `listing` of a site in which a handler answers every path.
fn unused_listing(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let is_files = |route: &RouteConfig| {
        matches!(route.target, Some(TargetConfig::Root(_))) || route.files_first
    };
    let mut routes = site.routes.iter();
    let all = routes.find(|it| it.path.get_ref() == "/" && it.target.is_some())?;
    let is_handled = all.target.as_ref().is_some_and(TargetConfig::is_handler);
    if !site.listing || !is_handled || site.release.is_some() || site.routes.iter().any(is_files) {
        return None;
    }
    let what = "`listing` has no effect, because the route / answers every path";
    let help = "remove `listing`, or give the files a path of their own: a route with `root`";
    Some(config.point(key_of(config, site, "listing"), what, help))
}

/// Warns of php-fpm for all files: pictures and uploads would run as scripts.
fn php_for_all_files(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let backend = route.backend().filter(|it| it.takes_all && !it.is_scgi)?;
    let BackendAddressConfig::Unix(socket) = backend.address.get_ref() else {
        return None;
    };
    let name = socket.to_str()?.to_ascii_lowercase();
    name.contains("php").then(|| {
        let what = format!(
            "php-fpm gets every path below {} by files = \"*\": pictures and style sheets are not sent, and an upload \
             /a.jpg/x.php may run as a script",
            route.path.get_ref()
        );
        let help = "write files = \".php\": the server sends all other files itself";
        config.point(backend.address.span(), what, help)
    })
}

/// Warns of keys that only a handler reads, in a route for files.
fn unread_keys(config: &Config, site: &SiteConfig, route: &RouteConfig) -> Option<OperatorError> {
    let path = route.path.get_ref();
    let is_answered = |other: &RouteConfig| {
        let is_near = covers(other.path.get_ref(), path) || covers(path, other.path.get_ref());
        let target = other.target.as_ref();
        let is_folder = matches!(target, Some(TargetConfig::Root(_)));
        is_near && (other.scripts.is_some() || target.is_some() && !is_folder)
    };
    let has_files = site.root.is_some() || site.release.is_some();
    if !has_files || site.routes.iter().any(is_answered) {
        return None;
    }
    let is_guard = route.target.is_none();
    if let Some(methods) = &route.requests.methods
        && is_guard
        && !methods.contains(Method::Get)
        && !methods.contains(Method::Head)
    {
        let what = format!(
            "every request below {path} gets 405: `methods` lacks GET, and files have no other method"
        );
        let help = "add \"GET\" and \"HEAD\" to `methods`, or give the route a handler";
        return Some(config.point(route.path.span(), what, help));
    }
    route.requests.body_bytes.map(|_| {
        let what = format!(
            "`body_bytes` of the route {path} has no effect: the route has files, which take no content"
        );
        let help = "remove `body_bytes`, or write the key in the route of the handler";
        config.point(config.source.key_below(&route.span, "body_bytes"), what, help)
    })
}

/// Warns of two URLs of one member.
fn one_member_twice(config: &Config, balancer: &BalancerConfig) -> Option<OperatorError> {
    let members = &balancer.settings.members;
    let is_local = |name: &str| name == "localhost";
    let is_same = |one: &MemberHost, other: &MemberHost| match (one, other) {
        (MemberHost::Name(name, port), MemberHost::Address(address))
        | (MemberHost::Address(address), MemberHost::Name(name, port)) => {
            is_local(name) && *port == address.port() && address.ip().to_canonical().is_loopback()
        }
        _ => false,
    };
    for (nth, member) in members.iter().enumerate() {
        let mut before = members[..nth].iter();
        if let Some(first) = before.find(|it| is_same(&it.url.host, &member.url.host)) {
            let what = format!(
                "{} and {} are one server, which gets the requests of two members",
                first.url.authority(),
                member.url.authority()
            );
            let help = "remove one of the members, or write the address of the second server";
            return Some(config.point(balancer.member_spans[nth].clone(), what, help));
        }
    }
    None
}

/// Warns of a member that is perhaps this server: a name of a site, or an address of this machine, with a port of this
/// server.
fn own_member(config: &Config, balancer: &BalancerConfig) -> Option<OperatorError> {
    let of_sites = config.sites.iter().flat_map(|site| &site.listen);
    let of_sites = of_sites.map(|it| it.get_ref().address);
    let of_server = config.server.https.iter().chain(&config.server.http);
    let listeners: Vec<ListenAddress> = of_server.map(|it| *it.get_ref()).chain(of_sites).collect();
    let is_own_port = |port: u16| {
        // A name of a site at a usual port leads to the address that clients use.
        matches!(port, 80 | 443)
            || Some(port) == config.server.public_port
            || listeners.iter().any(|it| it.address.port() == port)
    };
    let members = balancer.settings.members.iter().zip(&balancer.member_spans);
    for (member, span) in members {
        let what = match &member.url.host {
            MemberHost::Name(name, port) => {
                let mut names = config.sites.iter().flat_map(SiteConfig::all_names);
                let is_site = names.any(|it| **it.get_ref() == **name) && is_own_port(*port);
                // A name of /etc/hosts leads to a known address, which is compared elsewhere.
                if !is_site || &**name == "localhost" || !addresses_of(name).is_empty() {
                    continue;
                }
                format!(
                    "the member {name} is a name of this server, so a request perhaps comes back, and gets 508"
                )
            }
            MemberHost::Address(address) => {
                let ip = address.ip().to_canonical();
                let is_taken = listeners.iter().any(|it| {
                    let own = it.address.ip();
                    own.is_unspecified()
                        && it.address.port() == address.port()
                        && (ip.is_ipv4() || own.is_ipv6())
                });
                let is_distant = !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast();
                // A socket can be bound to an address of this machine alone.
                if !is_taken || !is_distant || UdpSocket::bind((ip, 0)).is_err() {
                    continue;
                }
                format!(
                    "the member {address} is this server: {ip} is an address of this machine, and the server listens on \
                     port {} of all addresses",
                    address.port()
                )
            }
            MemberHost::Unix(_) => continue,
        };
        let help = "write the address of the application, which needs a port of its own";
        return Some(config.point(span.clone(), what, help));
    }
    None
}
