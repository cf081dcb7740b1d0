//! The start-up message on the terminal: the served sites, and the addresses reachable from the local
//! machine and from the network.

use crate::admin::status::StatusAddress;
use crate::config::{Config, PlainHttp, SiteConfig};
use crate::control::listeners::Listeners;
use base::sys;
use data_plane::serve::worker::Audience;
use data_plane::tls::SelfSigned;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Prints the start-up message to standard error, since standard output is for the access log.
pub(super) fn print(config: &Config, listeners: &Listeners, self_signed: Option<&SelfSigned>) {
    let mut text = format!(
        "anthill {} serves {}\n",
        env!("CARGO_PKG_VERSION"),
        what(config)
    );
    let mut at_server = config.sites.iter().filter(|site| site.listen.is_empty());
    let all_redirect = at_server.all(|site| site.http == PlainHttp::Redirect);
    let has_https = listeners.bound(Audience::Public).any(|(_, secure)| secure);
    for (address, secure) in listeners.bound(Audience::Public) {
        let scheme = if secure { "https" } else { "http" };
        let note = if !secure && all_redirect && has_https {
            "  (redirects to https)"
        } else {
            ""
        };
        let (hosts, more) = hosts(config, address);
        for host in hosts {
            text.push_str(&format!(
                "  {scheme}://{host}{}{note}\n",
                port(scheme, address.port())
            ));
        }
        if more > 0 {
            text.push_str(&format!("  and {more} more names\n"));
        }
    }
    for (sites, urls) in own_urls(config, listeners) {
        for url in urls {
            text.push_str(&format!("  {url}  (site {sites})\n"));
        }
    }
    for url in manager_urls(listeners) {
        text.push_str(&format!("manager: {url}\n"));
    }
    if let Some(self_signed) = self_signed
        && config.sites.iter().any(|site| is_self_signed(config, site))
    {
        text.push_str("certificate: self-signed, browsers will ask once; SHA-256 fingerprint\n");
        text.push_str(&format!("  {}\n", self_signed.fingerprint()));
    }
    if let Some(note) = nothing_at_the_top(config) {
        text.push_str(&note);
    }
    text.push_str("ready; Ctrl-C stops\n");
    // Earlier log lines appear before the message.
    log::logger().flush();
    eprint!("{text}");
}

/// Returns the URLs of the addresses in `listen` of the sites, each with the names of its sites.
fn own_urls(config: &Config, listeners: &Listeners) -> Vec<(String, Vec<String>)> {
    let (addresses, _) = listeners.status(config);
    let own = addresses.into_iter().filter(|it| !it.sites.is_empty());
    let url = |listener: StatusAddress| {
        let scheme = if listener.is_secure { "https" } else { "http" };
        let port = port(scheme, listener.address.port());
        let sites = config.sites.iter();
        let mut sites = sites.filter(|site| listener.sites.contains(&site.name));
        let names: Vec<&str> = sites
            .clone()
            .flat_map(|site| &site.names)
            .map(|name| name.get_ref().as_str())
            .collect();
        let hosts = if names.contains(&"*") {
            reachable(listener.address)
        } else {
            let first = sites.find_map(|site| site.names.first());
            first
                .map(|name| name.get_ref().clone())
                .into_iter()
                .collect()
        };
        let urls = hosts
            .into_iter()
            .map(|host| format!("{scheme}://{host}{port}"));
        (listener.sites.join(", "), urls.collect())
    };
    own.map(url).collect()
}

/// Returns a URL for each address of the manager.
pub(super) fn manager_urls(listeners: &Listeners) -> Vec<String> {
    let url = |(address, secure): (SocketAddr, bool)| {
        let scheme = if secure { "https" } else { "http" };
        let host = reachable(address).into_iter().next()?;
        Some(format!(
            "{scheme}://{host}{}/",
            port(scheme, address.port())
        ))
    };
    listeners.bound(Audience::Manager).filter_map(url).collect()
}

/// Returns a note if the first page of a folder served without a configuration file will be "not found".
fn nothing_at_the_top(config: &Config) -> Option<String> {
    let site = config.sites.first()?;
    let root = site.root.as_ref()?.get_ref();
    let is_there = |name: &String| root.join(name).exists();
    if config.path.is_some() || site.listing || site.index.iter().any(is_there) {
        return None;
    }
    let name = site.index.first().map_or("index.html", String::as_str);
    let folder = shown_in_a_shell(&root.to_string_lossy());
    Some(format!(
        "note: there is no {name} in this folder, so clients get \"not found\" for its first page; to list the files:\n  \
         anthill serve {folder} --listing\n"
    ))
}

/// Returns a word as typed in a shell: in quotes, if the word has other characters than those of ordinary paths.
fn shown_in_a_shell(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,@%".contains(&byte);
    if word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Returns true if a site has neither a certificate file nor a managed certificate.
fn is_self_signed(config: &Config, site: &SiteConfig) -> bool {
    site.certificate.is_none() && config.acme_file(site).is_none()
}

fn what(config: &Config) -> String {
    let names: Vec<&str> = config
        .sites
        .iter()
        .map(|site| site.name.as_str())
        .filter(|name| *name != "*")
        .collect();
    match (
        names.as_slice(),
        config.sites.first().and_then(|site| site.root.as_ref()),
    ) {
        ([], Some(root)) => root.get_ref().display().to_string(),
        ([], None) => config.shown.clone(),
        (names, _) => shown_names(names, names.len()),
    }
}

/// Returns the first names of a list, and the number of further names among `all`.
pub(super) fn shown_names(names: &[&str], all: usize) -> String {
    let shown = &names[..names.len().min(NAMES_SHOWN_MAX)];
    let more = match all - shown.len() {
        0 => String::new(),
        1 => " and 1 more name".to_owned(),
        more => format!(" and {more} more names"),
    };
    shown.join(", ") + &more
}

fn port(scheme: &str, port: u16) -> String {
    match (scheme, port) {
        ("https", 443) | ("http", 80) => String::new(),
        _ => format!(":{port}"),
    }
}

/// Returns the hosts to show, and the number of further hosts. If no site answers to every name, the server
/// would refuse the addresses of the local machine, so the hosts are the names of the sites.
fn hosts(config: &Config, address: SocketAddr) -> (Vec<String>, usize) {
    let names = |site: &SiteConfig| -> Vec<String> {
        let names = site.names.iter().map(|name| name.get_ref().clone());
        names.collect()
    };
    let mut at_server = config.sites.iter().filter(|site| site.listen.is_empty());
    if at_server.any(|site| names(site).contains(&"*".into())) {
        return (reachable(address), 0);
    }
    let shown = |site: &SiteConfig| {
        let names = names(site);
        let exact = names.iter().find(|name| !name.starts_with('*'));
        exact.or(names.first()).cloned()
    };
    let at_server = config.sites.iter().filter(|site| site.listen.is_empty());
    let mut hosts: Vec<String> = at_server.filter_map(shown).collect();
    let more = hosts.len().saturating_sub(NAMES_SHOWN_MAX);
    hosts.truncate(NAMES_SHOWN_MAX);
    (hosts, more)
}

/// Maximum number of names in the message. Further names would push the rest of the message off the screen.
const NAMES_SHOWN_MAX: usize = 5;

/// Returns the names and addresses that reach `address`, those of the local machine first.
fn reachable(address: SocketAddr) -> Vec<String> {
    let show = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    if !address.ip().is_unspecified() {
        let localhost: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        return vec![if localhost.contains(&address.ip()) {
            "localhost".into()
        } else {
            show(address.ip())
        }];
    }
    let families = |ip: &IpAddr| address.is_ipv6() || ip.is_ipv4();
    let others = sys::local_addresses()
        .into_iter()
        .filter(|ip| !ip.is_loopback())
        .filter(families);
    std::iter::once("localhost".to_owned())
        .chain(others.map(show))
        .collect()
}

/// Returns the names for the self-signed certificate: the names of the sites and the addresses of the local
/// machine.
pub(super) fn self_signed_names(config: &Config) -> Vec<String> {
    let names = config
        .sites
        .iter()
        .flat_map(|site| &site.names)
        .map(|name| name.get_ref().clone());
    let mut names: Vec<String> = names.filter(|name| name != "*").collect();
    names.extend(sys::local_addresses().iter().map(IpAddr::to_string));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_address_is_shown_as_reached() {
        for (address, host) in [
            ("127.0.0.1:80", "localhost"),
            ("[::1]:80", "localhost"),
            // A client of localhost would reach 127.0.0.1.
            ("127.0.0.11:80", "127.0.0.11"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:db8::1]:80", "[2001:db8::1]"),
        ] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(reachable(address), [host]);
        }
    }
}
