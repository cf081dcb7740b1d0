//! Settings that never apply, or that can never succeed: rules behind a broader rule, pages that do not exist, keys without the
//! listener or the file that they need.

use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use toml::Spanned;

use crate::config::balancer::BalancerConfig;
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::file_rules::CacheControlConfig;
use crate::config::guard_checks::{covers, similar_path};
use crate::config::limits::CONFIG_CHECKED_FILES_MAX;
use crate::config::log_table::LogTarget;
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::script_table::ScriptsConfig;
use crate::config::site_table::SiteConfig;
use balancer::settings::{AdminState, MemberHost};
use wire::request_head::Method;

/// Returns the warnings of settings without effect.
pub(super) fn useless_settings(config: &Config) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    let server = &config.server;
    let key = |table: &str, key: &str| config.source.key_of_table(table, key);
    let own_plain = config.sites.iter().flat_map(|site| &site.listen);
    let has_plain = !server.http.is_empty() || own_plain.into_iter().any(|it| !it.get_ref().secure);
    if server.h2c && !has_plain {
        let what = "`h2c` has no effect, because the server has no address for plain HTTP";
        let help = "give `http` in [server] an address, or remove `h2c`";
        warnings.push(config.point(key("[server]", "h2c"), what, help));
    }
    if let Some(http3) = server
        .http3
        .as_ref()
        .filter(|it| *it.get_ref() && server.https.is_empty())
    {
        let what = "`http3` has no effect, because [server] has no address for HTTPS";
        let help = "give `https` in [server] an address, or remove `http3`";
        warnings.push(config.point(http3.span(), what, help));
    }
    let logs = [&config.log.access, &config.log.errors];
    let logs = logs.into_iter().chain(
        config
            .sites
            .iter()
            .filter_map(|site| site.log.access.as_ref()),
    );
    let mut files = logs.filter(|log| matches!(log.get_ref(), LogTarget::File(_)));
    if config.log.rotate.is_some() && files.next().is_none() {
        let what = "`rotate` has no effect, because no log is a file";
        let help = "write access = \"access.log\" in [log], or remove `rotate`";
        warnings.push(config.point(key("[log]", "rotate"), what, help));
    }
    for site in &config.sites {
        warnings.extend(unsent_hsts(config, site));
        warnings.extend(later_cache_rule(config, site));
        warnings.extend(later_redirect(config, site));
        warnings.extend(unused_index(config, site));
        warnings.extend(missing_pages(config, site));
        for route in &site.routes {
            warnings.extend(unanswered_methods(config, route));
            warnings.extend(unfit_programs(config, route));
        }
    }
    for balancer in config.all_balancers() {
        warnings.extend(without_member(config, balancer));
        warnings.extend(unfit_member(config, balancer));
    }
    warnings
}

/// Returns the position of a key of a site, or of its table.
pub(super) fn key_of(config: &Config, site: &SiteConfig, key: &str) -> Range<usize> {
    config.source.key_below(&site.span, key)
}

fn unsent_hsts(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let is_useless = site.hsts.is_some() && !site.is_served_by_https(&config.server);
    is_useless.then(|| {
        let what = format!(
            "`hsts` has no effect, because {} has no address for HTTPS",
            site.name
        );
        let help = "remove `hsts`, or give the site an address with https";
        config.point(key_of(config, site, "hsts"), what, help)
    })
}

/// Warns of a rule of `cache` behind a rule for all files.
fn later_cache_rule(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let is_all = |rule: &CacheControlConfig| {
        // The rule `"hashed"` holds for names with a hash alone.
        matches!(rule.files.get_ref().as_str(), "*" | "**" | "/**") && !rule.rule.only_hashed
    };
    let first = site.cache.iter().position(is_all)?;
    let later = site.cache.get(first + 1)?;
    let (all, glob) = (site.cache[first].files.get_ref(), later.files.get_ref());
    let what = format!(
        "the rule of `cache` for `{glob}` never applies, because `{all}` stands in front, and the first rule counts"
    );
    let help = format!("write the rule for `{all}` as the last one");
    Some(config.point(later.files.span(), what, help))
}

/// Warns of a redirect behind a redirect that matches the same paths, and of a redirect of an existing file.
fn later_redirect(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let stem = |from: &[u8]| {
        let stem = from.strip_suffix(b"*").unwrap_or(from);
        (
            stem.strip_suffix(b"/").unwrap_or(stem).to_vec(),
            from.ends_with(b"*"),
        )
    };
    let root = site
        .root
        .as_ref()
        .map(Spanned::get_ref)
        .filter(|_| site.release.is_none());
    for (nth, later) in site.redirects.iter().enumerate() {
        let redirect = later.get_ref();
        let (path, is_pattern) = stem(&redirect.from);
        let shown = String::from_utf8_lossy(&redirect.from);
        let first = site.redirects[..nth].iter().find(|first| {
            let (above, is_broad) = stem(&first.get_ref().from);
            let rest = path.strip_prefix(&above[..]);
            let is_below = rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            let is_met = if is_broad {
                is_below
            } else {
                above == path && !is_pattern
            };
            is_met && (first.get_ref().is_forced || !redirect.is_forced)
        });
        if let Some(first) = first {
            let above = String::from_utf8_lossy(&first.get_ref().from);
            let place = config.source.place(first.span().start, later.span().start);
            let what = format!(
                "the redirect of {shown} never applies, because {above} in {place} matches the path first"
            );
            let help = format!(
                "write the redirect of {shown} above the redirect of {above}, or remove one"
            );
            return Some(config.point(later.span(), what, help));
        }
        let file = root.map(|root| root.join(shown.trim_matches('/')));
        if let Some(file) = file.filter(|file| !redirect.is_forced && !is_pattern && file.is_file())
        {
            let what = format!(
                "the redirect of {shown} never applies, because the file {} answers",
                file.display()
            );
            return Some(config.point(
                later.span(),
                what,
                "add force = true to the redirect, or remove the file",
            ));
        }
    }
    None
}

/// Warns of an index page that `index` does not name.
fn unused_index(config: &Config, site: &SiteConfig) -> Option<OperatorError> {
    let root = own_files(config, site)?;
    let is_answered = |route: &RouteConfig| route.target.is_some() && route.path.get_ref() == "/";
    let has_fixed = site.try_paths.iter().any(|entry| !entry.contains("$path"));
    if site.listing
        || has_fixed
        || site.routes.iter().any(is_answered)
        || !site.redirects.is_empty()
    {
        return None;
    }
    let has = |name: &str| root.join(name).is_file();
    if site.index.iter().any(|name| has(name)) {
        return None;
    }
    let page = ["index.html", "index.htm", "index.php"]
        .into_iter()
        .find(|page| has(page))?;
    if page == "index.php" && !has_scripts(site) {
        return None;
    }
    let mut names: Vec<String> = site
        .index
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    let named = names.join(", ");
    names.push(format!("\"{page}\""));
    let what = format!(
        "the path / gets 404, because `index` is {named}, and the folder {} has {page}",
        root.display()
    );
    let help = format!("write index = [{}]", names.join(", "));
    Some(config.point(key_of(config, site, "index"), what, help))
}

fn has_scripts(site: &SiteConfig) -> bool {
    site.routes.iter().any(|route| route.scripts.is_some())
}

/// Returns the root of a site whose files are there at the check.
pub(super) fn own_files<'s>(config: &Config, site: &'s SiteConfig) -> Option<&'s Path> {
    let root = site.root.as_ref()?.get_ref();
    let is_deployed = config.deployments().iter().any(|it| it.fills(site));
    (root.is_dir() && site.release.is_none() && !is_deployed).then_some(root)
}

/// Warns of pages that `try`, `rewrite` and `redirects` name, and that the site has not.
fn missing_pages(config: &Config, site: &SiteConfig) -> Vec<OperatorError> {
    let Some(root) = own_files(config, site).filter(|_| !has_scripts(site)) else {
        return Vec::new();
    };
    let is_file = |path: &str| root.join(path.trim_matches('/')).exists();
    let mut warnings = Vec::new();
    let help = |path: &str| match similar_path(root, path.trim_matches('/')) {
        Some(meant) => format!("did you mean \"/{meant}\"?"),
        None => format!(
            "make the file {}",
            root.join(path.trim_matches('/')).display()
        ),
    };
    let is_routed = |path: &str| {
        site.routes
            .iter()
            .any(|route| route.target.is_some() && covers(route.path.get_ref(), path))
    };
    let fixed = |entry: &str| {
        let path = entry.split('?').next().unwrap_or_default().to_owned();
        (path.starts_with('/') && !path.contains('$')).then_some(path)
    };
    let last = site.try_paths.last().and_then(|entry| fixed(entry));
    if let Some(path) = last.filter(|path| !is_file(path) && !is_routed(path)) {
        let what = format!(
            "the site has no {path}, the last path of `try`: a path without a file gets 404"
        );
        warnings.push(config.point(key_of(config, site, "try"), what, help(&path)));
    }
    let entries = &site.try_paths[..site.try_paths.len().saturating_sub(1)];
    let early = entries
        .iter()
        .position(|entry| fixed(entry).is_some_and(|path| is_file(&path)));
    if let Some(nth) = early {
        let entry = &site.try_paths[nth];
        let mut sorted: Vec<String> = site
            .try_paths
            .iter()
            .map(|it| format!("\"{it}\""))
            .collect();
        let moved = sorted.remove(nth);
        sorted.push(moved);
        let what =
            format!("{entry} answers every request, so `try` never reaches the paths behind");
        let help = format!("write try = [{}]", sorted.join(", "));
        warnings.push(config.point(key_of(config, site, "try"), what, help));
    }
    // A fixed path of `try` answers for every missing file.
    let answers_all = site.try_paths.iter().any(|entry| !entry.contains("$path"));
    let exists = |path: &str| {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let mut tried = site.try_paths.iter();
        answers_all
            || is_file(path)
            || is_routed(path)
            || tried.any(|entry| is_file(&entry.replace("$path", path)))
    };
    for route in &site.routes {
        let Some(TargetConfig::Rewrite(to)) = &route.target else {
            continue;
        };
        let (path, from) = (to.get_ref().as_str(), route.path.get_ref());
        if from == "/" && path == "/index.html" && is_file(path) {
            let what = "the rewrite of / answers every request with /index.html, also requests for pictures and style sheets";
            let help = "for an application of one page write try = [\"$path\", \"/index.html\"] in [[site]] in place of the route";
            warnings.push(config.point(to.span(), what, help));
        } else if !path.ends_with('/') && !exists(path) {
            let what = format!("the site has no {path}, so the rewrite of {from} answers with 404");
            warnings.push(config.point(to.span(), what, help(path)));
        }
    }
    for redirect in site
        .redirects
        .iter()
        .filter(|_| site.redirect_map.is_none())
    {
        let (span, redirect) = (redirect.span(), redirect.get_ref());
        let to = redirect.to.split(['?', '#']).next().unwrap_or_default();
        let is_redirected = |path: &str| {
            site.redirects.iter().any(|other| {
                let from = String::from_utf8_lossy(&other.get_ref().from).into_owned();
                covers(from.trim_end_matches('*'), path)
            })
        };
        let is_path = to.starts_with('/') && !to.contains(":splat");
        // A browser sends a path with percent-encoding.
        if is_path
            && !to.contains('%')
            && !exists(to)
            && !is_redirected(to)
            && similar_path(root, to.trim_matches('/')).is_some()
        {
            let what = format!(
                "the site has no {to}, to which the redirect of {} leads",
                String::from_utf8_lossy(&redirect.from)
            );
            warnings.push(config.point(span, what, help(to)));
        }
    }
    warnings
}

/// Warns of `methods` without GET for files, which no other method reads.
fn unanswered_methods(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let methods = route.requests.methods.as_ref()?;
    let is_file = matches!(route.target, Some(TargetConfig::Root(_)));
    if !is_file || methods.contains(Method::Get) || methods.contains(Method::Head) {
        return None;
    }
    let what = format!(
        "every request below {} gets 405: `methods` lacks GET, and files have no other method",
        route.path.get_ref()
    );
    Some(config.point(
        route.path.span(),
        what,
        "add \"GET\" and \"HEAD\" to `methods`",
    ))
}

/// Warns of the command line program of PHP as an interpreter of CGI, and of a folder of CGI without an executable file.
fn unfit_programs(config: &Config, route: &RouteConfig) -> Option<OperatorError> {
    let interpreters = match (&route.target, &route.scripts) {
        (Some(TargetConfig::Cgi(cgi)), _) => &cgi.interpreters[..],
        (_, Some(ScriptsConfig::Cgi { interpreters, .. })) => interpreters,
        _ => &[],
    };
    let cli = interpreters.iter().find(|it| {
        let name = it
            .program
            .get_ref()
            .file_name()
            .and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix("php"))
            .is_some_and(|rest| {
                rest.bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.')
            })
    });
    if let Some(cli) = cli {
        let shown = cli.program.get_ref().display();
        let what =
            format!("{shown} is PHP for the command line, and no CGI program: every page is a 502");
        let help = format!("install php-cgi and write \"{shown}-cgi\", or run PHP with `fastcgi`");
        return Some(config.point(cli.program.span(), what, help));
    }
    let Some(TargetConfig::Cgi(cgi)) = &route.target else {
        return None;
    };
    let folder = cgi.folder.get_ref();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files = entries
        .take(CONFIG_CHECKED_FILES_MAX)
        .filter(|entry| entry.path().is_file())
        .peekable();
    let first = files.peek()?.path();
    let is_runnable = |entry: std::fs::DirEntry| {
        std::fs::metadata(entry.path()).is_ok_and(|it| it.permissions().mode() & 0o111 != 0)
    };
    if !cgi.interpreters.is_empty() || files.any(is_runnable) {
        return None;
    }
    let has_folder = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(CONFIG_CHECKED_FILES_MAX)
        .any(|entry| entry.path().is_dir());
    (!has_folder).then(|| {
        let what = format!(
            "no file of {} is executable, so each script is a 403",
            folder.display()
        );
        config.point(
            cgi.folder.span(),
            what,
            format!("chmod +x {}", first.display()),
        )
    })
}

fn without_member(config: &Config, balancer: &BalancerConfig) -> Option<OperatorError> {
    let members = &balancer.settings.members;
    let is_off = |state: AdminState| matches!(state, AdminState::Disabled | AdminState::Stopped);
    (!members.is_empty() && members.iter().all(|member| is_off(member.admin))).then(|| {
        let what = format!(
            "no member of the balancer `{}` is enabled: every request gets 503",
            balancer.settings.name
        );
        let help = "remove `status` of one member, or write status = \"enabled\"";
        config.point(
            balancer
                .member_spans
                .first()
                .cloned()
                .unwrap_or(balancer.span.clone()),
            what,
            help,
        )
    })
}

/// Warns of a member with the name of a balancer as its host, and of a member whose port is that of the other scheme.
fn unfit_member(config: &Config, balancer: &BalancerConfig) -> Option<OperatorError> {
    let members = balancer.settings.members.iter().zip(&balancer.member_spans);
    members.into_iter().find_map(|(member, span)| {
        let port = match &member.url.host {
            MemberHost::Address(address) => address.port(),
            MemberHost::Name(name, port) => {
                let is_named = config
                    .balancers
                    .iter()
                    .any(|other| other.settings.name == *name);
                let mut named = config.sites.iter().flat_map(SiteConfig::named_balancers);
                if is_named && !named.any(|other| **other.get_ref() == **name) {
                    let what = format!(
                        "`{name}` is the name of a [[balancer]], and a URL has the name of a host"
                    );
                    return Some(config.point(
                        span.clone(),
                        what,
                        format!("write balance = \"{name}\""),
                    ));
                }
                *port
            }
            MemberHost::Unix(_) => return None,
        };
        let (scheme, other) = match (member.url.is_tls, port) {
            (false, 443) => ("http", "https"),
            (true, 80) => ("https", "http"),
            _ => return None,
        };
        let what =
            format!("port {port} is the port of {other}, and the URL begins with {scheme}://");
        Some(config.point(
            span.clone(),
            what,
            format!("write {other}:// in the URL, or another port"),
        ))
    })
}
