//! Certificates that the server requests by ACME: the sites with a managed certificate.

use std::net::IpAddr;
use std::path::PathBuf;

use toml::Spanned;

use crate::config::acme_table::{AcmeConfig, ChallengeType};
use crate::config::configuration::Config;
use crate::config::error::OperatorError;
use crate::config::server_table::ServerConfig;
use crate::config::site_table::SiteConfig;
use crate::config::toml_reader::SourceText;

/// Certificate requested for a site through ACME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCertificate {
    /// Names in the certificate; never empty.
    pub names: Vec<String>,
    /// File with the key and the chain.
    pub file: PathBuf,
}

impl Config {
    /// Returns the certificates to request: a certificate for each site without a configured certificate
    /// and with at least one name that the directory can validate.
    pub(crate) fn managed_certificates(&self) -> Vec<ManagedCertificate> {
        let wanted = self.sites.iter().filter_map(|site| {
            let file = self.acme_file(site)?;
            let names = certified(site).map(str::to_owned).collect();
            Some(ManagedCertificate { names, file })
        });
        wanted.collect()
    }

    /// Returns the names without a requested certificate, each with the reason.
    pub(crate) fn unmanaged_names(&self) -> Vec<(String, &'static str)> {
        let mut skipped = Vec::new();
        if self.tls.acme.is_none() {
            return skipped;
        }
        for site in self.sites.iter().filter(|site| site.certificate.is_none()) {
            for name in site.all_names() {
                if let Some(why) = unfit(name.get_ref()) {
                    skipped.push((name.get_ref().clone(), why));
                }
            }
        }
        skipped
    }

    /// Returns the file of the managed certificate of a site; `None` for a site without a managed
    /// certificate.
    pub(crate) fn acme_file(&self, site: &SiteConfig) -> Option<PathBuf> {
        if self.tls.acme.is_none()
            || site.certificate.is_some()
            || !site.is_served_by_https(&self.server)
        {
            return None;
        }
        let first = certified(site).next()?;
        let mut file = self.server.state.get_ref().join("acme/certificates");
        // `*` in a file name would be expanded by shells.
        file.push(first.replace('*', "_"));
        file.push("certificate.pem");
        Some(file)
    }
}

/// Returns the names of a site that a directory can validate.
pub(super) fn certified(site: &SiteConfig) -> impl Iterator<Item = &str> {
    let names = site.all_names().map(|name| name.get_ref().as_str());
    names.filter(|name| unfit(name).is_none())
}

/// Returns the reason why no directory validates a name, or `None` for a valid name.
fn unfit(name: &str) -> Option<&'static str> {
    if name == "*" {
        return Some("a certificate cannot name every host");
    }
    if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
        return Some("certificates for IP addresses are not requested");
    }
    let host = name.strip_prefix("*.").unwrap_or(name);
    let Some((_, last)) = host.rsplit_once('.') else {
        return Some("no public authority certifies a local name");
    };
    let local = LOCAL.contains(&last) || host.ends_with(".home.arpa");
    local.then_some("no public authority certifies a local name")
}

/// Top-level names reserved for local use (RFC 6761, 6762, 7686, 8375, 9476, and the name that ICANN
/// reserves for private networks), and names that home routers assign without a reservation.
const LOCAL: [&str; 12] = [
    "local",
    "localhost",
    "internal",
    "lan",
    "test",
    "invalid",
    "onion",
    "alt",
    "home",
    "localdomain",
    "intranet",
    "private",
];

/// Refuses settings of `acme` that other tables make impossible.
pub(super) fn refuse_impossible(
    source: &SourceText<'_>,
    acme: &AcmeConfig,
    server: &ServerConfig,
    sites: &[SiteConfig],
) -> Result<(), OperatorError> {
    let at_acme = |what: &str, help: &str| Err(source.error(acme.span.clone(), what, help));
    if !sites.iter().any(|site| site.is_served_by_https(server)) {
        return at_acme(
            "`acme` requests certificates, but the server has no https address",
            "give `https` in [server] an address, or remove `acme`",
        );
    }
    if acme.challenge == Some(ChallengeType::Http01) && server.http.is_empty() {
        return at_acme(
            "the challenge http-01 needs plain HTTP",
            "give `http` in [server] an address, or choose another challenge",
        );
    }
    if acme.challenge == Some(ChallengeType::Dns01) {
        return Ok(());
    }
    for site in sites.iter().filter(|site| site.certificate.is_none()) {
        let wildcard = |name: &&Spanned<String>| name.get_ref().starts_with("*.");
        if let Some(name) = site.all_names().find(wildcard) {
            let what = format!(
                "only the challenge dns-01 can validate `{}`",
                name.get_ref()
            );
            let of_preview = site.release.as_ref().and_then(|it| it.preview.as_ref());
            let help = if of_preview == Some(name) {
                "write the name of one label, such as preview = \"next.example.org\" for the label `next`, or acme = { \
                 challenge = \"dns-01\", hook = \"…\" }, or give the site its own `certificate`"
            } else {
                "write acme = { challenge = \"dns-01\", hook = \"…\" }, use names without `*`, or give the site its own \
                 `certificate`"
            };
            return Err(source.error(name.span(), what, help));
        }
    }
    Ok(())
}
