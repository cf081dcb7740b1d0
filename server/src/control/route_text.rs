//! Routes in words: what answers, the guards, and the rules by request.

use crate::config::{
    BackendAddressConfig, BackendConfig, BalancerRef, Config, RouteAuthConfig, RouteConfig,
    ScriptsConfig, SiteConfig, Spanned, TargetConfig, shown_url,
};
use base::atomic_file::read_bounded;
use std::path::Path;

/// Returns what answers for the paths of a route. A route of guards and rules alone has the answer of the longest other path
/// that fits, or of the files of the site.
pub(super) fn answer_text(config: &Config, site: &SiteConfig, route: &RouteConfig) -> String {
    if let Some(text) = target_text(config, route).filter(|_| route.target.is_some()) {
        return match &route.target {
            Some(TargetConfig::Root(_)) => text + &try_text(route),
            _ => text,
        };
    }
    if let Some(other) = covering_targets(site, route.path.get_ref().as_bytes()).next() {
        return format!("as {}", other.path.get_ref());
    }
    let text = files_text(site) + &try_text(route);
    match target_text(config, route) {
        Some(scripts) => format!("{scripts}, else {text}"),
        None => text,
    }
}

/// Returns the routes with a target that fit a path, the longest first: the first answers.
pub(super) fn covering_targets<'s>(
    site: &'s SiteConfig,
    path: &[u8],
) -> impl Iterator<Item = &'s RouteConfig> {
    let mut routes: Vec<&RouteConfig> = site
        .routes
        .iter()
        .filter(|route| route.target.is_some() && covers(route, path))
        .collect();
    routes.sort_by_key(|route| std::cmp::Reverse(route.path.get_ref().trim_end_matches('/').len()));
    routes.into_iter()
}

/// Returns true if a path is the path of a route, or below.
pub(super) fn covers(route: &RouteConfig, path: &[u8]) -> bool {
    let prefix = route.path.get_ref().trim_end_matches('/').as_bytes();
    wire::request_target::is_below(path, prefix)
}

/// Returns the source of the files of a site.
pub(super) fn files_text(site: &SiteConfig) -> String {
    match (&site.root, &site.release) {
        (_, Some(release)) => format!("release {}", release.name.get_ref()),
        (Some(root), None) => format!("files of {}", root.get_ref().display()),
        (None, None) => "no files".to_owned(),
    }
}

/// Returns the paths that a route tries in place of those of the site.
fn try_text(route: &RouteConfig) -> String {
    let paths = route.files.try_paths.as_ref();
    paths.map_or_else(String::new, |paths| {
        format!(", by try {}", paths.join(", "))
    })
}

/// Returns what answers for the paths of a route; None for a route of guards and rules alone.
pub(super) fn target_text(config: &Config, route: &RouteConfig) -> Option<String> {
    let target = match (&route.target, &route.scripts) {
        (Some(target), _) => target,
        (None, Some(scripts)) => return Some(scripts_text(scripts)),
        (None, None) => return None,
    };
    let text = match target {
        TargetConfig::Redirect(redirect) => {
            format!("redirect {} to {}", redirect.status, redirect.to.get_ref())
        }
        TargetConfig::Rewrite(to) => format!("rewrite to {}", to.get_ref()),
        TargetConfig::Root(root) => format!("files of {}", root.get_ref().display()),
        TargetConfig::Cgi(cgi) => format!("CGI programs of {}", cgi.folder.get_ref().display()),
        TargetConfig::Backend(backend) => backend_text(backend),
        TargetConfig::Git(git) => format!("repositories of {}", git.folder.get_ref().display()),
        TargetConfig::Proxy(proxy) => {
            let (name, members) = match &proxy.balancer {
                BalancerRef::Own(balancer) => (None, &balancer.settings.members),
                BalancerRef::Named(name) => {
                    let mut all = config.balancers.iter();
                    let named = all.find(|it| *it.settings.name == **name.get_ref())?;
                    (Some(name.get_ref()), &named.settings.members)
                }
            };
            let members: Vec<String> = members.iter().map(|it| shown_url(&it.url)).collect();
            let to = proxy.forward.prefix.as_ref();
            let to = to.map_or_else(String::new, |prefix| format!(", as {prefix}"));
            match name {
                Some(name) => format!("balancer {name} of {}{to}", members.join(", ")),
                None => format!("proxy to {}{to}", members.join(", ")),
            }
        }
        TargetConfig::Hits(_) => "hit counts".to_owned(),
        TargetConfig::Closed(status) => format!("closed with {}", status.get_ref()),
        #[cfg(feature = "test-handlers")]
        TargetConfig::Test(_) => "a handler for tests".to_owned(),
    };
    Some(if route.files_first {
        format!("a file of the site first, else {text}")
    } else {
        text
    })
}

fn scripts_text(scripts: &ScriptsConfig) -> String {
    match scripts {
        ScriptsConfig::Cgi { interpreters, .. } => {
            let endings: Vec<&str> = interpreters.iter().map(|it| it.ending.as_str()).collect();
            format!("CGI for files with {}", endings.join(", "))
        }
        ScriptsConfig::Backend(backend) => backend_text(backend),
    }
}

fn backend_text(backend: &BackendConfig) -> String {
    let protocol = if backend.is_scgi { "SCGI" } else { "FastCGI" };
    let address = match backend.address.get_ref() {
        BackendAddressConfig::Unix(path) => format!("unix:{}", path.display()),
        BackendAddressConfig::Tcp(address) => address.to_string(),
    };
    match backend.files.as_slice() {
        [] => format!("{protocol} at {address}"),
        files => format!(
            "{protocol} at {address} for files with {}",
            files.join(", ")
        ),
    }
}

/// Returns the guards of a route.
pub(super) fn guard_lines(route: &RouteConfig) -> Vec<String> {
    let networks = |key: &str, networks: &Option<Vec<Spanned<String>>>| {
        let networks = networks.as_ref()?;
        let names: Vec<&str> = networks.iter().map(|it| it.get_ref().as_str()).collect();
        Some(match names.as_slice() {
            [] => format!("{key} nothing"),
            names => format!("{key} {}", names.join(", ")),
        })
    };
    let mut lines = Vec::new();
    lines.extend(networks("allow", &route.allow));
    lines.extend(networks("deny", &route.requests.deny));
    let users = route.users.as_ref();
    lines.extend(users.map(|users| users_text(users.get_ref())));
    lines.extend(route.auth.as_ref().map(|auth| match auth {
        RouteAuthConfig::Off => "no auth".to_owned(),
        RouteAuthConfig::By(auth) => format!("auth by {}", auth.url),
    }));
    if route.any {
        lines.push("any of them".to_owned());
    }
    let methods = route.requests.methods.as_ref();
    lines.extend(methods.map(|methods| format!("methods {}", methods.names())));
    lines
}

/// Returns a user file with the names of its first users.
fn users_text(file: &Path) -> String {
    // The caller may lack the right to read the file.
    let text = read_bounded(file, USERS_BYTES_SHOWN_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let names: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(':')?.0))
        .filter(|name| !name.is_empty())
        .collect();
    let shown = names[..names.len().min(USERS_SHOWN_MAX)].join(", ");
    let file = file.display();
    match names.len() {
        0 => format!("users of {file}"),
        1..=USERS_SHOWN_MAX => format!("users of {file} ({shown})"),
        count => format!(
            "users of {file} ({shown} and {} more)",
            count - USERS_SHOWN_MAX
        ),
    }
}

/// Users of a route whose names are shown: a line has room for them.
const USERS_SHOWN_MAX: usize = 5;
/// Bytes of a user file that are searched for the names of users.
const USERS_BYTES_SHOWN_MAX: u64 = 64 << 10;

/// Returns the rules of a route about requests, which hold beside those of all other routes that fit.
pub(super) fn rule_lines(route: &RouteConfig) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(route.requests.rate.as_ref().map(|rate| {
        let rate = rate.get_ref();
        let seconds = rate.period_ms as f64 / 1_000.0;
        format!(
            "rate of {} requests in {seconds} s, {} at once",
            rate.requests, rate.burst
        )
    }));
    let bytes = route.requests.body_bytes;
    lines.extend(bytes.map(|bytes| format!("at most {bytes} bytes of content")));
    lines.extend(
        route
            .requests
            .cors
            .as_ref()
            .map(|_| "cross-origin access by `cors`".to_owned()),
    );
    lines
}

/// Returns the rules of a route about its own answers.
pub(super) fn answer_rule_lines(route: &RouteConfig) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(route.cache.as_ref().map(|cache| match cache.seconds {
        Some(seconds) => format!("page cache of {seconds} s"),
        None => "page cache".to_owned(),
    }));
    let mut of_files = route.file_rule_names();
    of_files.retain(|name| *name != "try");
    if !of_files.is_empty() {
        lines.push(format!("own {} for files", of_files.join(", ")));
    }
    lines
}
