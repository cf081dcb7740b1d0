//! Contradictions between the tables of a configuration.

use std::collections::HashMap;
use std::ops::Range;

use crate::config::balancer::BalancerConfig;
use crate::config::error::OperatorError;
use crate::config::server_table::ServerConfig;
use crate::config::site_table::SiteConfig;
use crate::config::suggestion::suggest;
use crate::config::toml_reader::SourceText;

/// Reports each name of two sites, and each repeated name of one site. `is_whole` is false if the names of a site
/// could not be read, so that the site has the default name.
pub(super) fn report_shared_names(source: &SourceText<'_>, sites: &[SiteConfig], is_whole: bool) {
    let mut seen: HashMap<&str, (usize, Range<usize>)> = HashMap::new();
    for (nth, site) in sites.iter().enumerate() {
        for name in site.all_names() {
            let span = if name.span().is_empty() {
                if !is_whole {
                    continue;
                }
                site.span.clone()
            } else {
                name.span()
            };
            let Some((first, place)) = seen.insert(name.get_ref(), (nth, span.clone())) else {
                continue;
            };
            let name = name.get_ref();
            if first == nth {
                let what = format!("the site has the name `{name}` twice");
                source.report(source.error(span, what, "remove one of the two"));
                continue;
            }
            let place = source.place(place.start, &span);
            let what = format!("two sites have the name `{name}`");
            let help = format!("the first site is in {place}; give each site its own names");
            source.report(source.error(span, what, help));
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
