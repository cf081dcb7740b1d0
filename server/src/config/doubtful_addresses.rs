//! Addresses that are probably not meant: members without a port, members by HTTPS whose certificate no authority issues,
//! and the ports of HTTP and HTTPS exchanged.

use crate::config::balancer::BalancerConfig;
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::member_url::shown_url;
use balancer::settings::{MemberHost, MemberUrl};
use std::net::IpAddr;
use std::ops::Range;

/// Returns the warnings of addresses that are probably not meant.
pub(super) fn doubtful_addresses(config: &Config) -> Vec<OperatorError> {
    let mut warnings = Vec::new();
    for balancer in config.all_balancers() {
        let members = balancer.settings.members.iter();
        for (member, span) in members.zip(&balancer.member_spans) {
            let url = &member.url;
            warnings.extend(without_port(config, url, span));
            warnings.extend(uncertified(config, balancer, url, span));
        }
    }
    warnings.extend(exchanged_ports(config));
    warnings
}

/// Host of a member on this machine, or on a private network.
struct NearHost {
    name: String,
    port: u16,
    is_loopback: bool,
}

impl NearHost {
    fn of(url: &MemberUrl) -> Option<NearHost> {
        let (name, port, is_loopback) = match &url.host {
            MemberHost::Address(address) => {
                let ip = address.ip().to_canonical();
                let is_private = match ip {
                    IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
                    IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
                };
                if !ip.is_loopback() && !is_private {
                    return None;
                }
                (ip.to_string(), address.port(), ip.is_loopback())
            }
            MemberHost::Name(name, port) if &**name == "localhost" => {
                (name.to_string(), *port, true)
            }
            MemberHost::Name(..) | MemberHost::Unix(_) => return None,
        };
        Some(NearHost {
            name,
            port,
            is_loopback,
        })
    }
}

/// Warns of a member of this machine without a port: applications seldom have port 80.
fn without_port(config: &Config, url: &MemberUrl, span: &Range<usize>) -> Option<OperatorError> {
    let host = NearHost::of(url).filter(|host| host.is_loopback && host.port == 80)?;
    let text = config.source.text().get(span.clone())?;
    let (_, rest) = text.split_once("http://")?;
    let authority = rest.split(['/', '"', '\'']).next()?;
    let last = authority.rsplit(']').next()?;
    (!url.is_tls && !last.contains(':')).then(|| {
        let shown = shown_url(url);
        let what = format!("{shown} has no port, so requests go to port 80 of {}", host.name);
        let help = format!(
            "write the port of the application, such as \"{shown}:3000\", or \"{shown}:80\" if port 80 is meant"
        );
        config.point(span.clone(), what, help)
    })
}

/// Warns of a member by HTTPS at a private address: its certificate is verified, and no public authority issues one for such
/// an address.
fn uncertified(
    config: &Config,
    balancer: &BalancerConfig,
    url: &MemberUrl,
    span: &Range<usize>,
) -> Option<OperatorError> {
    let host = NearHost::of(url).filter(|_| url.is_tls)?;
    if balancer.ca.is_some() || balancer.settings.connection.tls.server_name.is_some() {
        return None;
    }
    let shown = shown_url(url);
    let what = format!(
        "the certificate of {shown} is verified, and no public authority issues one for {}: requests get 502 unless this \
         machine trusts the authority of the member",
        host.name
    );
    let plain = shown.replacen("https://", "http://", 1);
    let help = format!(
        "write {plain} if the application speaks plain HTTP there; otherwise name its certificate with ca = \"FILE\", or the \
         name in its certificate with server_name = \"app.example.org\""
    );
    Some(config.point(span.clone(), what, help))
}

/// Warns of HTTPS at the port of HTTP, and of HTTP at the port of HTTPS.
fn exchanged_ports(config: &Config) -> Vec<OperatorError> {
    let server = &config.server;
    let https = server
        .https
        .iter()
        .map(|it| (it.span(), it.get_ref().address, true));
    let http = server
        .http
        .iter()
        .map(|it| (it.span(), it.get_ref().address, false));
    let sites = config.sites.iter().flat_map(|site| &site.listen);
    let own = sites.map(|it| (it.span(), it.get_ref().address.address, it.get_ref().secure));
    let all = https.chain(http).chain(own);
    all.filter_map(|(span, address, is_secure)| {
        let (what, help) = match (address.port(), is_secure) {
            (443, false) => (
                "port 443 without TLS: browsers speak HTTPS there, and show no page",
                "write the address in `https`, and http = [\":80\"]; in `listen` of a site write \"https://:443\"",
            ),
            (80, true) => (
                "port 80 with TLS: browsers speak plain HTTP there, and show no page",
                "write the address in `http`, and https = [\":443\"]; in `listen` of a site write \"http://:80\"",
            ),
            _ => return None,
        };
        Some(config.point(span, what, help))
    })
    .collect()
}
