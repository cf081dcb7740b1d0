//! TLS of a World: certificates, protocol versions and ciphers.

use super::resources::SharedResources;
use crate::config::{self, Config, OperatorError, SiteConfig, Spanned};
use data_plane::tls::{
    Ciphers, MinVersion, PairSpec, PendingChallenges, SiteIdentity, TicketKeys, Tls, TlsSettings,
};
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
        let generation = previous.map_or(1, |world| world.generation + 1);
        let at = |listener: Option<OwnListener>, sites: Vec<&SiteConfig>| {
            let builder = TlsBuilder {
                config,
                sites: &sites,
                resources,
                previous: previous.and_then(|world| world.tls_at(listener)),
                generation,
                now,
            };
            builder.build()
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

    /// Returns the identities of the connections that a site with some names accepts, of all its listeners together: a
    /// connection stays usable after a reload, wherever its address stands in `listen` then.
    pub(super) fn identity(&self, site: &SiteConfig, names: &[String]) -> SiteIdentity {
        // `*` has the certificate for a client without a server name.
        let name = names.first().filter(|name| *name != "*");
        let name = name.map(|name| name.replacen('*', "x", 1));
        let mut identity: Option<SiteIdentity> = None;
        let mut add = |tls: &Tls| {
            let one = tls.site_identity(name.as_deref());
            match &mut identity {
                None => identity = Some(one),
                Some(identity) => identity.join(&one),
            }
        };
        if site.listen.is_empty() {
            self.public.as_deref().into_iter().for_each(&mut add);
        }
        for address in site.secure_addresses() {
            let listener = OwnListener::at(address);
            let own = self.own.iter().filter(|(it, _)| *it == listener);
            own.for_each(|(_, tls)| add(tls));
        }
        identity.unwrap_or_else(SiteIdentity::none)
    }
}

/// Certificates of some sites, on their way.
struct TlsBuilder<'b> {
    config: &'b Config,
    sites: &'b [&'b SiteConfig],
    resources: &'b SharedResources,
    /// Certificates of the same listener in the World before.
    previous: Option<&'b Arc<Tls>>,
    /// Generation of the new World.
    generation: u64,
    /// Unix time in seconds.
    now: u64,
}

impl TlsBuilder<'_> {
    fn build(&self) -> Result<Option<Arc<Tls>>, OperatorError> {
        let TlsBuilder {
            config,
            sites,
            resources,
            ..
        } = *self;
        let (Some(tickets), Some(self_signed)) = (&resources.tickets, &resources.self_signed)
        else {
            return Ok(None);
        };
        let settings = self.settings(Arc::clone(tickets));
        let mut pairs: Vec<PairSpec> = sites.iter().map(|site| pair(config, site)).collect();
        if pairs.is_empty() && config.manager.as_ref().is_some_and(|it| it.uses_tls()) {
            // Every site has `listen`, and the manager alone uses these certificates.
            pairs.push(PairSpec {
                names: vec!["*".to_owned()],
                ..PairSpec::default()
            });
        }
        let previous = self.previous.map(Arc::as_ref);
        match Tls::build(&pairs, &settings, self_signed, previous, self.now) {
            Ok(tls) => Ok(Some(Arc::new(tls))),
            Err(error) => Err(point_tls(config, sites, &error)),
        }
    }

    fn settings(&self, tickets: Arc<TicketKeys>) -> TlsSettings {
        let config = self.config;
        let mut settings = TlsSettings::new(tickets);
        settings.generation = self.generation;
        settings.min_version = match config.tls.min_version {
            config::TlsVersion::Tls12 => MinVersion::Tls12,
            config::TlsVersion::Tls13 => MinVersion::Tls13,
        };
        if let Some(names) = &config.tls.ciphers {
            let names = names.iter().map(|name| name.get_ref().clone()).collect();
            settings.ciphers = Ciphers::List(names);
        }
        settings.challenges = challenges(config, self.resources);
        settings
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
