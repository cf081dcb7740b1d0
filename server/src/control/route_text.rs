//! Routes in words: what answers, the guards, and the rules by request.

use crate::config::{
    BackendAddressConfig, BackendConfig, BalancerRef, Config, RouteAuthConfig, RouteConfig,
    ScriptsConfig, Spanned, TargetConfig, shown_url,
};

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
    lines.extend(users.map(|users| format!("users of {}", users.get_ref().display())));
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

/// Returns the rules by request of a route.
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
    lines.extend(route.cache.as_ref().map(|cache| match cache.seconds {
        Some(seconds) => format!("page cache of {seconds} s"),
        None => "page cache".to_owned(),
    }));
    let of_files = route.file_rule_names();
    if !of_files.is_empty() {
        lines.push(format!("own {} for files", of_files.join(", ")));
    }
    lines
}
