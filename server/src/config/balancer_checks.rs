//! Doubtful balancers: the server itself as a member, balancers without a route, and shared cookies.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::config::balancer::BalancerConfig;
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::site_table::SiteConfig;
use crate::config::values::ListenAddress;
use balancer::settings::{MemberHost, StickySettings};

/// Returns the position of a member at an address of the server itself, with the address. A host name
/// other than `localhost` and those of /etc/hosts is not resolved, and an address of the machine other than a loopback address is only
/// known if the server listens on the very address.
pub(super) fn own_listener(
    config: &Config,
    balancer: &BalancerConfig,
) -> Option<(Range<usize>, ListenAddress)> {
    let members = balancer.settings.members.iter().zip(&balancer.member_spans);
    members
        .filter_map(|(member, span)| Some((span.clone(), listener_of(config, &member.url.host)?)))
        .next()
}

/// Returns the address of the server itself that a connection to `host` reaches, as [`own_listener`] decides.
pub fn listener_of(config: &Config, host: &MemberHost) -> Option<ListenAddress> {
    let manager = config.manager.iter().flat_map(|manager| &manager.listen);
    let public = config.server.https.iter().chain(&config.server.http);
    let listeners = public.chain(manager).map(|listener| *listener.get_ref());
    let of_sites = config.sites.iter().flat_map(|site| &site.listen);
    let of_sites = of_sites.map(|listener| listener.get_ref().address);
    let mut listeners = listeners.chain(of_sites);
    listeners.find(|listener| reaches(host, listener))
}

/// Returns true if a connection to `host` reaches the listener.
fn reaches(host: &MemberHost, listener: &ListenAddress) -> bool {
    let (v4, v6) = (
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    );
    let (addresses, port) = match host {
        MemberHost::Unix(_) => return false,
        MemberHost::Name(name, port) if &**name == "localhost" => (vec![v4, v6], *port),
        MemberHost::Name(name, port) => match addresses_of(name) {
            addresses if addresses.is_empty() => return false,
            addresses => (addresses, *port),
        },
        // A connection to the unspecified address reaches the loopback address.
        MemberHost::Address(to) => match to.ip().to_canonical() {
            ip if !ip.is_unspecified() => (vec![ip], to.port()),
            IpAddr::V4(_) => (vec![v4], to.port()),
            IpAddr::V6(_) => (vec![v6], to.port()),
        },
    };
    let own = listener.address.ip().to_canonical();
    let covers = |address: &IpAddr| match own {
        IpAddr::V4(own) if own.is_unspecified() => address.is_ipv4() && address.is_loopback(),
        IpAddr::V6(own) if own.is_unspecified() => {
            address.is_loopback() && (address.is_ipv6() || !listener.v6_only)
        }
        own => own == *address,
    };
    // Port 0 stands for a free port, which no member has.
    port == listener.address.port() && addresses.iter().any(covers)
}

/// Returns the addresses of a name in /etc/hosts. Other names are not resolved.
pub(super) fn addresses_of(name: &str) -> Vec<IpAddr> {
    let Ok(file) = std::fs::File::open("/etc/hosts") else {
        return Vec::new();
    };
    let mut text = Vec::new();
    if file.take(HOSTS_BYTES_MAX).read_to_end(&mut text).is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let entries = lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words
            .any(|word| word.eq_ignore_ascii_case(name))
            .then_some(address)
    });
    entries.collect()
}

/// Part of /etc/hosts that is read.
const HOSTS_BYTES_MAX: u64 = 256 << 10;

/// Returns a warning for each balancer that no route names.
pub(super) fn unused_balancers(config: &Config) -> impl Iterator<Item = OperatorError> {
    let named = |name: &str| {
        let mut names = config.sites.iter().flat_map(SiteConfig::named_balancers);
        names.any(|named| named.get_ref() == name)
    };
    let unused = config.balancers.iter();
    let unused = unused.filter(move |balancer| !named(&balancer.settings.name));
    unused.map(|balancer| {
        let name = &balancer.settings.name;
        let what = format!(
            "no route uses the balancer `{name}`: write balance = \"{name}\" in a [[site.route]]"
        );
        config.point(balancer.span.clone(), what, "")
    })
}

/// Returns a warning for each two balancers of a site that share a cookie, which one of them sets for the whole site.
pub(super) fn shared_cookies(config: &Config) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    for site in &config.sites {
        let mut used: Vec<(&str, &StickySettings)> = Vec::new();
        for name in site.named_balancers().map(|name| &**name.get_ref()) {
            let mut balancers = config.balancers.iter();
            let balancer = balancers.find(|balancer| *balancer.settings.name == *name);
            let Some(sticky) = balancer.and_then(|balancer| balancer.settings.sticky.as_ref())
            else {
                continue;
            };
            if used.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let is_shared = |other: &StickySettings| {
                other.cookie == sticky.cookie && (other.is_signed || sticky.is_signed)
            };
            if let Some((other, _)) = used.iter().find(|(_, other)| is_shared(other)) {
                let what = format!(
                    "the balancers `{other}` and `{name}` share the cookie `{}` in {}, so their sessions \
                     end each other: write another `cookie` in `sticky` of one",
                    sticky.cookie, site.name,
                );
                warnings.push(config.point(site.span.clone(), what, ""));
            }
            used.push((name, sticky));
        }
    }
    warnings
}
