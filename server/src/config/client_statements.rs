//! Doubtful trust in statements about the client: every address in `trust`, and a field that only some of the routes to a
//! member set.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::balancer::BalancerConfig;
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::proxy_table::{BalancerRef, ProxyConfig};
use crate::config::route_table::{RouteConfig, TargetConfig};
use crate::config::site_table::SiteConfig;
use balancer::settings::{MemberHost, MemberUrl};
use data_plane::handler::proxy::route::{CLIENT_PLACEHOLDER, USER_PLACEHOLDER};
use data_plane::world::allow_list::AllowList;
use wire::origin_fields::states_origin;

/// Returns a warning if each client of a family of addresses is a trusted proxy.
pub(super) fn trusts_everyone(config: &Config) -> Option<OperatorError> {
    let networks = &config.server.trust;
    let trust = AllowList::parse(networks.iter().map(|it| it.get_ref().as_str())).ok()?;
    // The halves also find a list such as ["0.0.0.0/1", "128.0.0.0/1"]. All public addresses of IPv6 are in 2000::/3.
    let families: [(&str, &[&str]); 2] = [
        ("IPv4", &["0.0.0.0/1", "128.0.0.0/1"]),
        ("IPv6", &["2000::/3"]),
    ];
    let is_trusted = |halves: &[&str]| {
        AllowList::parse(halves.iter().copied()).is_ok_and(|all| all.is_within(&trust))
    };
    let trusted: Vec<&str> = families
        .iter()
        .filter(|(_, halves)| is_trusted(halves))
        .map(|(family, _)| *family)
        .collect();
    let widest = networks
        .iter()
        .min_by_key(|it| prefix_length(it.get_ref()))?;
    (!trusted.is_empty()).then(|| {
        let what = format!(
            "`trust` has every address of {}, so every client can forge its address for guards, rates and logs",
            trusted.join(" and ")
        );
        let help = "write the addresses of the proxies in front of the server, such as trust = [\"10.0.0.5\"]; without a \
                    proxy, remove `trust`";
        config.point(widest.span(), what, help)
    })
}

/// Returns the length of the prefix of a network.
fn prefix_length(network: &str) -> u32 {
    let length = network.split_once('/').map(|(_, length)| length.parse());
    length.map_or(u32::MAX, |length| length.unwrap_or(u32::MAX))
}

/// Route to members.
struct ProxiedRoute<'c> {
    site: &'c SiteConfig,
    route: &'c RouteConfig,
    proxy: &'c ProxyConfig,
}

/// Returns a warning for each route that lets clients set a field which another route sets for the same member.
pub(super) fn forgeable_fields(config: &Config) -> Vec<OperatorError> {
    let routes = config.sites.iter().flat_map(|site| {
        site.routes.iter().filter_map(move |route| {
            let Some(TargetConfig::Proxy(proxy)) = &route.target else {
                return None;
            };
            Some(ProxiedRoute { site, route, proxy })
        })
    });
    let routes: Vec<ProxiedRoute<'_>> = routes.collect();
    let mut warnings = Vec::new();
    for setter in &routes {
        let fields = setter.proxy.forward.request_fields.iter();
        for (name, _) in fields.filter(|(name, value)| is_believed(name, value)) {
            for other in &routes {
                if warnings.len() < WARNINGS_MAX && other.lets_clients_set(name, setter, config) {
                    warnings.push(other.forgeable(name, setter, config));
                }
            }
        }
    }
    warnings
}

/// Warnings of one kind that a check prints, more than an operator reads.
const WARNINGS_MAX: usize = 20;

impl ProxiedRoute<'_> {
    /// Returns true if clients of the route can set a field that reaches a member of `setter`.
    fn lets_clients_set(&self, name: &str, setter: &ProxiedRoute<'_>, config: &Config) -> bool {
        let mut fields = self.proxy.forward.request_fields.iter();
        let is_closed = self.route.allow.as_ref().is_some_and(Vec::is_empty);
        !is_closed
            && !fields.any(|(own, _)| own.eq_ignore_ascii_case(name))
            && shares_member(self.proxy, setter.proxy, config)
    }

    fn forgeable(&self, name: &str, setter: &ProxiedRoute<'_>, config: &Config) -> OperatorError {
        let span = self.route.path.span();
        let line = config
            .source
            .place(setter.route.path.span().start, span.start);
        let what = format!(
            "clients can set the field {name} on the route {} of {}: the route {} of {} ({line}) sets the field for the same \
             member, which may believe it",
            self.route.path.get_ref(),
            self.site.names[0].get_ref(),
            setter.route.path.get_ref(),
            setter.site.names[0].get_ref(),
        );
        let help = format!(
            "write request_headers = {{ \"{name}\" = \"\" }} in the table `proxy` or `balance` of the route, which removes \
             the field of a client"
        );
        config.point(span, what, help)
    }
}

/// Returns true for a field that states something about the client, and that the server does not remove by itself.
fn is_believed(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_login = lower.starts_with("remote-")
        || ["-user", "webauth", "ssl-client"]
            .iter()
            .any(|part| lower.contains(part));
    let has_placeholder = value.contains(USER_PLACEHOLDER) || value.contains(CLIENT_PLACEHOLDER);
    let is_written = ["forwarded", "user-agent", "authorization"].contains(&lower.as_str());
    !value.is_empty()
        && (is_login || has_placeholder)
        && !is_written
        && !states_origin(lower.as_bytes())
}

/// Returns true if two routes have a common member.
fn shares_member(one: &ProxyConfig, other: &ProxyConfig, config: &Config) -> bool {
    let (one, other) = (members(one, config), members(other, config));
    std::ptr::eq(one, other) && !one.is_empty()
        || one.iter().any(|member| {
            let mut others = other.iter();
            others.any(|other| location(&member.url) == location(&other.url))
        })
}

fn members<'c>(
    proxy: &'c ProxyConfig,
    config: &'c Config,
) -> &'c [balancer::settings::MemberSettings] {
    let balancer: Option<&BalancerConfig> = match &proxy.balancer {
        BalancerRef::Own(balancer) => Some(balancer),
        BalancerRef::Named(name) => {
            let mut balancers = config.balancers.iter();
            balancers.find(|balancer| *balancer.settings.name == **name.get_ref())
        }
    };
    balancer.map_or(&[], |balancer| &balancer.settings.members)
}

/// Returns the host of a URL, with one address for all names of the machine itself.
fn location(url: &MemberUrl) -> MemberHost {
    let own = |port| MemberHost::Address(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    match &url.host {
        MemberHost::Name(name, port) if &**name == "localhost" => own(*port),
        MemberHost::Address(address)
            if address.ip() == Ipv6Addr::LOCALHOST || address.ip().is_unspecified() =>
        {
            own(address.port())
        }
        host => host.clone(),
    }
}
