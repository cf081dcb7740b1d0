//! Routes that guard files and pages by address or login.

use crate::config::{Config, RouteAuthConfig, RouteConfig, SiteConfig, TargetConfig};
use base::heap_sort::sort;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Routes of a site with `allow`, `deny`, `users`, `auth` or `status`.
pub(super) fn guards(site: &SiteConfig) -> impl Iterator<Item = &RouteConfig> {
    let guards = |route: &&RouteConfig| {
        is_closed(route)
            || route.allow.is_some()
            || route.requests.deny.is_some()
            || route.users.is_some()
            || route.auth.is_some()
    };
    site.routes.iter().filter(guards)
}

fn is_closed(route: &RouteConfig) -> bool {
    matches!(route.target, Some(TargetConfig::Closed(_)))
}

/// Paths of the guards of a site, sorted. The path of a guard for some methods has the methods appended, since a page
/// that was public may be guarded with further methods.
pub(super) fn guarded_paths(site: &SiteConfig) -> Vec<String> {
    let paths = guards(site).map(|route| {
        let path = with_auth(route);
        // `deny` and `status` apply to all methods.
        match route
            .requests
            .guard_methods
            .as_ref()
            .filter(|_| route.requests.deny.is_none() && !is_closed(route))
        {
            None => path,
            // No path contains NUL.
            Some(methods) => format!("{path}\0{}", methods.names()),
        }
    });
    let mut paths: Vec<String> = paths.collect();
    sort(&mut paths);
    paths
}

/// Returns the path of a guard, with its server for forward authentication: another server may name other users.
fn with_auth(route: &RouteConfig) -> String {
    let path = route.path.get_ref();
    match &route.auth {
        None if route.any => format!("{path}\0any"),
        None => path.clone(),
        Some(RouteAuthConfig::Off) => format!("{path}\0auth"),
        Some(RouteAuthConfig::By(auth)) => {
            let any = if route.any { "any" } else { "all" };
            let fields = auth.copy.join(" ");
            let query = auth.query.as_deref().unwrap_or_default();
            let name = &auth.balancer.settings.name;
            format!("{path}\0{any} {name} {}?{query} {fields}", auth.path)
        }
    }
}

/// Number of the set of guarded paths and methods of all sites. Two configurations with the same set have the same
/// number within one process.
pub(super) fn guards_number(config: &Config) -> u64 {
    let mut hasher = DefaultHasher::new();
    for site in &config.sites {
        let names: Vec<_> = site.names.iter().map(|name| name.get_ref()).collect();
        (&site.name, names, guarded_paths(site)).hash(&mut hasher);
    }
    hasher.finish()
}
