//! TLS of a World: certificates, protocol versions and ciphers.

use super::resources::SharedResources;
use crate::config::{self, Config, OperatorError, SiteConfig, Spanned};
use data_plane::tls::{Ciphers, MinVersion, PairSpec, PendingChallenges, Tls, TlsSettings};
use data_plane::world::World;
use data_plane::world::own_listener::OwnListener;
use std::path::PathBuf;
use std::sync::Arc;

/// Returns the ledger of pending challenges if the configuration has ACME.
pub(super) fn challenges(
    config: &Config,
    resources: &SharedResources,
) -> Option<Arc<PendingChallenges>> {
    let acme = config.tls.acme.as_ref();
    acme.map(|_| Arc::clone(&resources.challenges))
}

fn pair(config: &Config, site: &config::SiteConfig) -> PairSpec {
    let path = |path: &Option<Spanned<PathBuf>>| path.as_ref().map(|path| path.get_ref().clone());
    PairSpec {
        names: site
            .all_names()
            .map(|name| name.get_ref().clone())
            .collect(),
        certificate: path(&site.certificate).or_else(|| config.acme_file(site)),
        key: path(&site.key),
        client_ca: path(&site.client_ca),
        is_managed: site.certificate.is_none(),
    }
}

/// Certificates of a World: at the addresses of `[server]`, and at each listener with TLS that serves some sites alone.
#[derive(Default)]
pub(super) struct ListenerTls {
    pub(super) public: Option<Arc<Tls>>,
    pub(super) own: Vec<(OwnListener, Arc<Tls>)>,
}

impl ListenerTls {
    pub(super) fn new(
        config: &Config,
        resources: &SharedResources,
        previous: Option<&World>,
        now: u64,
    ) -> Result<ListenerTls, OperatorError> {
        let at = |listener: Option<OwnListener>, sites: Vec<&SiteConfig>| {
            let previous = previous.and_then(|world| world.tls_at(listener));
            tls(config, &sites, resources, previous.map(Arc::as_ref), now)
        };
        let public = config.sites.iter().filter(|it| it.listen.is_empty());
        let public = at(None, public.collect())?;
        let mut own: Vec<(OwnListener, Arc<Tls>)> = Vec::new();
        for address in config.sites.iter().flat_map(SiteConfig::secure_addresses) {
            let listener = OwnListener::at(address);
            if own.iter().any(|(it, _)| *it == listener) {
                continue;
            }
            let names_it = |site: &&SiteConfig| site.secure_addresses().any(|it| it == address);
            let sites = config.sites.iter().filter(names_it).collect();
            own.extend(at(Some(listener), sites)?.map(|tls| (listener, tls)));
        }
        Ok(ListenerTls { public, own })
    }

    /// Returns the certificates of a site.
    pub(super) fn of(&self, site: &SiteConfig) -> Option<&Tls> {
        if site.listen.is_empty() {
            return self.public.as_deref();
        }
        let listener = OwnListener::at(site.secure_addresses().next()?);
        let mut own = self.own.iter();
        own.find_map(|(it, tls)| (*it == listener).then_some(&**tls))
    }
}

/// Returns the certificates of some sites.
fn tls(
    config: &Config,
    sites: &[&SiteConfig],
    resources: &SharedResources,
    previous: Option<&Tls>,
    now: u64,
) -> Result<Option<Arc<Tls>>, OperatorError> {
    let (Some(tickets), Some(self_signed)) = (&resources.tickets, &resources.self_signed) else {
        return Ok(None);
    };
    let mut settings = TlsSettings::new(tickets.clone());
    settings.min_version = match config.tls.min_version {
        config::TlsVersion::Tls12 => MinVersion::Tls12,
        config::TlsVersion::Tls13 => MinVersion::Tls13,
    };
    if let Some(names) = &config.tls.ciphers {
        let names = names.iter().map(|name| name.get_ref().clone()).collect();
        settings.ciphers = Ciphers::List(names);
    }
    settings.challenges = challenges(config, resources);
    let mut pairs: Vec<PairSpec> = sites.iter().map(|site| pair(config, site)).collect();
    if pairs.is_empty() && config.manager.as_ref().is_some_and(|it| it.uses_tls()) {
        // Every site has `listen`, and the manager alone uses these certificates.
        pairs.push(PairSpec {
            names: vec!["*".to_owned()],
            ..PairSpec::default()
        });
    }
    match Tls::build(&pairs, &settings, self_signed, previous, now) {
        Ok(tls) => Ok(Some(Arc::new(tls))),
        Err(error) => Err(point_tls(config, sites, &error)),
    }
}

/// Converts a TLS error to an error that points at the refused value.
fn point_tls(
    config: &Config,
    sites: &[&SiteConfig],
    error: &data_plane::tls::TlsError,
) -> OperatorError {
    use data_plane::tls::TlsPart;
    let site = error.pair.and_then(|index| sites.get(index));
    let span = match (error.part, site) {
        (TlsPart::Certificate, Some(site)) => site.certificate.as_ref().map(Spanned::span),
        (TlsPart::Key, Some(site)) => site
            .key
            .as_ref()
            .or(site.certificate.as_ref())
            .map(Spanned::span),
        (TlsPart::ClientCa, Some(site)) => site.client_ca.as_ref().map(Spanned::span),
        (TlsPart::Ciphers, _) => config
            .tls
            .ciphers
            .as_ref()
            .and_then(|ciphers| {
                ciphers
                    .iter()
                    .find(|name| error.what.contains(name.get_ref().as_str()))
            })
            .map(Spanned::span),
        (TlsPart::Tickets, _) => config.tls.tickets.as_ref().map(Spanned::span),
        _ => None,
    };
    let what = match &error.file {
        Some(file) => format!("{}: {}", file.display(), error.what),
        None => error.what.clone(),
    };
    let certificate =
        site.and_then(|site| site.certificate.as_ref().filter(|_| site.key.is_some()));
    let fitting = certificate.and_then(|file| error.fitting_key(file.get_ref()));
    let help = match fitting {
        Some(key) => format!("the key of the certificate is {}", key.display()),
        None => error.hint.clone(),
    };
    config.point(span.unwrap_or(0..0), what, help)
}
