//! TLS: choice of certificates by server name, cipher suites, resumption, and the client side of connections
//! to other servers.
//!
//! A [`Tls`] is immutable: all certificates of one World, read and checked during construction. A new
//! [`Tls`] is built when files change, and takes over pairs that can't be replaced yet from the previous
//! [`Tls`]. The ticket keys ([`TicketKeys`]) live longer than a [`Tls`].

// Tests may panic to report a failure.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod authorities;
mod challenges;
mod client;
mod client_connection;
mod der;
mod error;
mod handshake_failure;
mod identity;
mod key_schedule;
mod connection;
mod csr;
mod server_names;
mod server_verifier;
mod certificate_pair;
mod provider;
mod record_boundary;
mod record_layer;
mod self_signed;
mod ticket_keys;
mod tbs_certificate;
mod traffic_secrets;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, DnsName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{NoKeyLog, ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion};

pub use crate::tls::client::{TlsClient, TlsClientSettings, TlsEndpoint};
pub(crate) use crate::tls::client_connection::TlsClientConnection;
pub(crate) use crate::tls::connection::{HelloResult, TlsConnection};
pub use crate::tls::csr::{CsrKey, IssuedCertificate};
pub(crate) use crate::tls::record_boundary::RecordBoundaryFinder;
pub use crate::tls::record_layer::RECORD_BYTES_MAX;
pub(crate) use crate::tls::record_layer::{OpenedRecords, RecordLayer};
pub(crate) use crate::tls::server_verifier::UnlistedSelfSigned;
pub use crate::tls::ticket_keys::TicketKeys;
#[cfg(feature = "http3")]
pub(crate) use crate::tls::ticket_keys::was_ticket_opened;
pub(crate) use crate::tls::traffic_secrets::TrafficSecrets;
pub(crate) use challenges::ACME_TLS_ALPN;
pub use challenges::{PendingChallenges, PostedChallenge};
pub use error::{TlsError, TlsPart};
pub(crate) use handshake_failure::HandshakeFailure;
pub use identity::SiteIdentity;
pub(crate) use identity::{Acceptance, ConnectionIdentity};
pub(crate) use provider::aes_in_hardware;
pub use provider::{Ciphers, provider};
pub use self_signed::SelfSigned;

use crate::tls::certificate_pair::CertificatePair;
use crate::tls::identity::{DemandFingerprint, PairFingerprint, authority_digests};
use crate::tls::server_names::{NameMatch, ServerNames};

/// Certificate and its server names, as configured by the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairSpec {
    /// Exact names, `*.parent` for any one label before the parent, or `*` for any name and for clients
    /// without a name.
    pub names: Vec<String>,
    /// PEM file of the certificate, or None for the self-signed certificate.
    pub certificate: Option<PathBuf>,
    /// PEM file of the private key, unless the certificate's file contains the key.
    pub key: Option<PathBuf>,
    /// PEM file of the CAs for client certificates, or None if clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// True if ACME obtains the certificate. The self-signed certificate takes its place until the file
    /// exists, and while the file is unusable.
    pub is_managed: bool,
}

/// Oldest accepted version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// Only TLS 1.3.
    Tls13,
}

/// Settings of all certificates.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Oldest accepted version of TLS.
    pub min_version: MinVersion,
    /// Cipher suites and their order.
    pub ciphers: Ciphers,
    /// Application protocols (ALPN) in the order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Keys of session tickets.
    pub tickets: Arc<TicketKeys>,
    /// True if the processor has AES instructions. The flag decides the order of [`Ciphers::Auto`].
    pub aes_in_hardware: bool,
    /// Challenges to be answered in handshakes, or None without certificates by ACME.
    pub challenges: Option<Arc<PendingChallenges>>,
    /// Number of the reload, the same for all listeners of a World. A later reload has a greater number.
    pub generation: u64,
}

impl TlsSettings {
    /// Makes default settings: TLS 1.2 and 1.3, ciphers chosen for the machine's hardware, HTTP/2, HTTP/1.1
    /// and HTTP/1.0 by ALPN.
    pub fn new(tickets: Arc<TicketKeys>) -> TlsSettings {
        TlsSettings {
            min_version: MinVersion::Tls12,
            ciphers: Ciphers::Auto,
            // `curl -0` offers only `http/1.0`.
            alpn: ["h2", "http/1.1", "http/1.0"].map(Into::into).into(),
            tickets,
            aes_in_hardware: aes_in_hardware(),
            challenges: None,
            generation: 1,
        }
    }
}

/// Status of a pair in `anthill status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSummary {
    /// Server names of the pair.
    pub names: Vec<String>,
    /// File of the certificate, or None for the self-signed certificate.
    pub certificate: Option<PathBuf>,
    /// True while the self-signed certificate takes the place of a missing certificate.
    pub awaits_certificate: bool,
    /// Server names of the pair that the operator's certificate does not cover.
    pub missing_names: Vec<String>,
    /// Last second of validity, Unix time.
    pub not_after: u64,
    /// True if clients must have a certificate.
    pub client_certificate: bool,
}

impl PairSummary {
    /// Returns the number of whole days that the certificate is valid at `now` (Unix time). The number is
    /// negative after the expiry.
    pub fn days_left(&self, now: u64) -> i64 {
        let seconds = i128::from(self.not_after) - i128::from(now);
        seconds.div_euclid(86_400) as i64
    }
}

/// TLS configuration for QUIC.
#[derive(Clone)]
pub struct QuicTls {
    /// Configuration with TLS 1.3 and HTTP/3 only. The configuration refuses names with a demand for client
    /// certificates.
    pub config: Arc<ServerConfig>,
    /// Secret for the tokens of Retry packets. The secret stays the same as long as the newest ticket key, even
    /// after a restart.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for QuicTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quic").finish_non_exhaustive()
    }
}

/// All certificates of one World. A clone is cheap.
#[derive(Clone, Debug)]
pub struct Tls {
    shared: Arc<TlsShared>,
}

#[derive(Debug)]
struct TlsShared {
    names: Arc<ServerNames>,
    entries: Vec<PairEntry>,
    /// Configuration for all names without a demand for client certificates.
    open: Arc<ServerConfig>,
    /// Configuration for QUIC for names without a demand for client certificates.
    quic: Option<QuicTls>,
    /// True if a pair demands client certificates, so that the ClientHello must be read first.
    choosing: bool,
    /// Number of the reload, for the identities of connections.
    generation: u64,
    /// Self-signed pair used for missing certificates.
    stand_in: Arc<CertificatePair>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct PairEntry {
    spec: PairSpec,
    identity: SiteIdentity,
    pair: Arc<CertificatePair>,
    /// Names of the specification that a certificate of the operator does not cover.
    missing_names: Vec<String>,
    /// Configuration that demands a client certificate, or None if the pair doesn't.
    demanding: Option<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads and checks all pairs. If only one of certificate and key was replaced, so that the two don't
    /// match, the pair of `previous` stays in use, and a warning is recorded. `now` is Unix time.
    ///
    /// # Errors
    /// Returns an error for the first unusable pair or setting.
    pub fn build(
        pairs: &[PairSpec],
        settings: &TlsSettings,
        self_signed: &SelfSigned,
        previous: Option<&Tls>,
        now: u64,
    ) -> Result<Tls, TlsError> {
        let builder = RustlsConfigBuilder::new(settings)?;
        let mut warnings = builder.warnings(settings);
        let mut names = ServerNames::default();
        let mut loaded = HashMap::new();
        let mut entries = Vec::with_capacity(pairs.len());
        for (index, spec) in pairs.iter().enumerate() {
            let mut entry = add_names(&mut names, spec, index)
                .and_then(|()| load(spec, self_signed, previous, &mut loaded, &mut warnings))
                .and_then(|pair| builder.entry(spec, pair))
                .map_err(|error| error.of_pair(index))?;
            if let (Some(file), false) = (&spec.certificate, entry.uses_self_signed(self_signed)) {
                let names = if spec.is_managed {
                    &[]
                } else {
                    &spec.names[..]
                };
                entry.missing_names = entry.pair.missing(names);
                for what in entry.pair.warnings(names, now) {
                    let warning = format!("{}: {what}", file.display());
                    // Sites may share a certificate, and each warning is shown once.
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
            }
            entries.push(entry);
        }
        if let Some(previous) = previous {
            previous.pass_identities(&names, &mut entries);
        }
        let names = Arc::new(names);
        let resolver = CertificateByName {
            names: Arc::clone(&names),
            pairs: entries.iter().map(PairEntry::without_demand).collect(),
            self_signed: Arc::clone(self_signed.certified()),
            challenges: settings.challenges.clone(),
        };
        let resolver: Arc<dyn ResolvesServerCert> = Arc::new(resolver);
        let quic = builder.quic(Arc::clone(&resolver))?;
        let open = builder.config(Arc::new(NoClientAuth), resolver, OPEN_SCOPE)?;
        Ok(Tls {
            shared: Arc::new(TlsShared {
                names,
                choosing: entries.iter().any(|entry| entry.demanding.is_some()),
                entries,
                open,
                quic,
                generation: previous.map_or(settings.generation, |previous| {
                    settings.generation.max(previous.shared.generation + 1)
                }),
                stand_in: Arc::clone(self_signed.pair()),
                warnings,
            }),
        })
    }

    /// Returns the configuration for QUIC, or None in a build without HTTP/3 or without TLS 1.3.
    pub fn quic(&self) -> Option<&QuicTls> {
        self.shared.quic.as_ref()
    }

    /// Returns the identity of a connection opened with a server name. `name` is None for a client without
    /// server name.
    pub(crate) fn identity(&self, name: Option<&str>) -> ConnectionIdentity {
        let pair = match self.shared.names.choose(name) {
            NameMatch::Pair(index) => self.shared.entries[index].identity.pair(),
            NameMatch::SelfSigned => self_signed_fingerprint(),
            NameMatch::Unknown => PairFingerprint::NONE,
        };
        ConnectionIdentity::new(pair, self.shared.generation)
    }

    /// Returns the identities of the connections that the site of a server name accepts.
    pub fn site_identity(&self, name: Option<&str>) -> SiteIdentity {
        match self.shared.names.choose(name) {
            NameMatch::Pair(index) => self.shared.entries[index].identity.clone(),
            NameMatch::SelfSigned => {
                SiteIdentity::new(self_signed_fingerprint(), DemandFingerprint::NONE)
            }
            NameMatch::Unknown => SiteIdentity::none(),
        }
    }

    /// Passes the identities of the pairs on to the pairs that have the names now. A name may be one of a
    /// wildcard before or after the reload, so both tables of names are asked.
    fn pass_identities(&self, names: &ServerNames, entries: &mut [PairEntry]) {
        let mut heirs = BTreeSet::new();
        let former = &self.shared.entries;
        for (index, entry) in former.iter().enumerate() {
            for name in entry.spec.names.iter().map(|name| sample_name(name)) {
                if let NameMatch::Pair(heir) = names.choose(name.as_deref()) {
                    heirs.insert((heir, index));
                }
            }
        }
        for (heir, entry) in entries.iter().enumerate() {
            for name in entry.spec.names.iter().map(|name| sample_name(name)) {
                if let NameMatch::Pair(index) = self.shared.names.choose(name.as_deref()) {
                    heirs.insert((heir, index));
                }
            }
        }
        for (heir, index) in heirs {
            let identity = &mut entries[heir].identity;
            identity.inherit(&former[index].identity, self.shared.generation);
        }
    }

    /// Returns true if a certificate exists for a server name. `name` is None for a client without server name.
    pub(crate) fn has(&self, name: Option<&str>) -> bool {
        self.shared.names.choose(name) != NameMatch::Unknown
    }

    /// Returns the identity of a connection over QUIC opened with a server name, or None if the pair demands client
    /// certificates, which a QUIC connection can't present. The handshake may have used an older
    /// configuration than `self`.
    #[cfg(feature = "http3")]
    pub(crate) fn identity_over_quic(&self, name: Option<&str>) -> Option<ConnectionIdentity> {
        let demands = match self.shared.names.choose(name) {
            NameMatch::Pair(index) => self.shared.entries[index].demanding.is_some(),
            NameMatch::SelfSigned | NameMatch::Unknown => false,
        };
        (!demands).then(|| self.identity(name))
    }

    /// Returns warnings about certificates that are served nevertheless, each with the name of the file.
    pub fn warnings(&self) -> &[String] {
        &self.shared.warnings
    }

    /// Returns the status of all pairs in the order of the configuration.
    pub fn summary(&self) -> Vec<PairSummary> {
        let of_entry = |entry: &PairEntry| PairSummary {
            names: entry.spec.names.clone(),
            certificate: entry.spec.certificate.clone(),
            awaits_certificate: entry.spec.certificate.is_some() && self.uses_self_signed(entry),
            missing_names: entry.missing_names.clone(),
            not_after: entry.pair.not_after,
            client_certificate: entry.demanding.is_some(),
        };
        self.shared.entries.iter().map(of_entry).collect()
    }

    fn uses_self_signed(&self, entry: &PairEntry) -> bool {
        Arc::ptr_eq(&entry.pair, &self.shared.stand_in)
    }

    /// Returns the pair read from the files of `spec`, unless the self-signed pair takes its place.
    fn pair_of(&self, spec: &PairSpec) -> Option<Arc<CertificatePair>> {
        let same = |entry: &&PairEntry| {
            entry.spec.certificate == spec.certificate && entry.spec.key == spec.key
        };
        let entry = self.shared.entries.iter().find(same)?;
        let uses_self_signed = spec.certificate.is_some() && self.uses_self_signed(entry);
        (!uses_self_signed).then(|| Arc::clone(&entry.pair))
    }
}

impl TlsShared {
    /// Returns the configuration for a ClientHello. The open configuration serves unknown names, too, and
    /// its resolver refuses the names. An ACME server that validates a name gets the open configuration
    /// since the server has no client certificate.
    fn config(&self, hello: &ClientHello<'_>) -> &Arc<ServerConfig> {
        if validates(hello) {
            return &self.open;
        }
        let name = hello.server_name();
        match self.names.choose(name) {
            NameMatch::Pair(index) => self.entries[index].demanding.as_ref().unwrap_or(&self.open),
            NameMatch::SelfSigned | NameMatch::Unknown => &self.open,
        }
    }
}

impl PairEntry {
    fn uses_self_signed(&self, self_signed: &SelfSigned) -> bool {
        Arc::ptr_eq(&self.pair, self_signed.pair())
    }

    fn without_demand(&self) -> Option<Arc<CertifiedKey>> {
        let open = self.demanding.is_none();
        open.then(|| Arc::clone(&self.pair.certified))
    }
}

fn add_names(names: &mut ServerNames, spec: &PairSpec, index: usize) -> Result<(), TlsError> {
    for name in &spec.names {
        let plain = name.strip_prefix("*.").unwrap_or(name);
        let plain = plain.strip_suffix('.').unwrap_or(plain);
        // A client never sends an address as a server name (RFC 6066 §3), but a site may have an address
        // for plain requests.
        let fits = name == "*" || DnsName::try_from(plain).is_ok() || is_address(plain);
        if !fits {
            let hint = if name.is_ascii() {
                "write a host name, `*.` before a host name, or `*` for every name"
            } else {
                "write the name in its ASCII form, which begins with xn--"
            };
            let what = format!("\"{name}\" is not a server name");
            return Err(TlsError::new(TlsPart::Names, what, hint));
        }
        if !names.add(name, index) {
            return Err(TlsError::new(
                TlsPart::Names,
                format!("\"{name}\" belongs to two sites"),
                "give the name to a single site",
            ));
        }
    }
    Ok(())
}

fn is_address(name: &str) -> bool {
    name.trim_matches(['[', ']'])
        .parse::<std::net::IpAddr>()
        .is_ok()
}

/// Files of a pair: certificate and key.
type PairFiles = (PathBuf, Option<PathBuf>);

/// Returns the pair of `spec`. Files named by several specs are read once.
fn load(
    spec: &PairSpec,
    self_signed: &SelfSigned,
    previous: Option<&Tls>,
    loaded: &mut HashMap<PairFiles, Arc<CertificatePair>>,
    warnings: &mut Vec<String>,
) -> Result<Arc<CertificatePair>, TlsError> {
    let Some(certificate) = &spec.certificate else {
        return Ok(Arc::clone(self_signed.pair()));
    };
    let files = (certificate.clone(), spec.key.clone());
    if let Some(pair) = loaded.get(&files) {
        return Ok(Arc::clone(pair));
    }
    let pair = match CertificatePair::load(certificate, spec.key.as_deref()) {
        Ok(pair) => Arc::new(pair),
        Err(error) => {
            let kept = previous.filter(|_| error.mismatch || spec.is_managed);
            match kept.and_then(|previous| previous.pair_of(spec)) {
                Some(pair) if error.mismatch => {
                    warnings.push(format!(
                        "{error}: the previous pair stays in use until both match"
                    ));
                    pair
                }
                Some(pair) => pair,
                None if spec.is_managed => Arc::clone(self_signed.pair()),
                None => return Err(error),
            }
        }
    };
    loaded.insert(files, Arc::clone(&pair));
    Ok(pair)
}

/// Builder of rustls configurations, which differ only in certificate, client CAs and ticket scope.
struct RustlsConfigBuilder<'a> {
    settings: &'a TlsSettings,
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
}

impl<'a> RustlsConfigBuilder<'a> {
    fn new(settings: &'a TlsSettings) -> Result<RustlsConfigBuilder<'a>, TlsError> {
        let provider = provider(&settings.ciphers, settings.aes_in_hardware)?;
        let versions = match settings.min_version {
            MinVersion::Tls12 => rustls::ALL_VERSIONS,
            MinVersion::Tls13 => TLS13_ALONE,
        };
        let builder = RustlsConfigBuilder {
            settings,
            provider,
            versions,
        };
        if settings.min_version == MinVersion::Tls13 && !builder.has(ProtocolVersion::TLSv1_3) {
            return Err(TlsError::new(
                TlsPart::Ciphers,
                "min_version is 1.3, but no cipher in the list is for TLS 1.3",
                "add a cipher such as TLS_AES_128_GCM_SHA256",
            ));
        }
        Ok(builder)
    }

    fn has(&self, version: ProtocolVersion) -> bool {
        let mut suites = self.provider.cipher_suites.iter();
        suites.any(|suite| suite.version().version == version)
    }

    fn warnings(&self, settings: &TlsSettings) -> Vec<String> {
        let list = matches!(settings.ciphers, Ciphers::List(_));
        let mut warnings = Vec::new();
        if list && !self.has(ProtocolVersion::TLSv1_3) {
            warnings.push("no cipher in the list is for TLS 1.3, so TLS 1.3 is off".to_owned());
        }
        if list && settings.min_version == MinVersion::Tls12 && !self.has(ProtocolVersion::TLSv1_2)
        {
            warnings.push("no cipher in the list is for TLS 1.2, so TLS 1.2 is off".to_owned());
        }
        warnings
    }

    fn entry(
        &self,
        spec: &PairSpec,
        certificate: Arc<CertificatePair>,
    ) -> Result<PairEntry, TlsError> {
        let authorities = match &spec.client_ca {
            Some(path) => certificate_pair::certificates(path)?,
            None => Vec::new(),
        };
        let demanding = match &spec.client_ca {
            Some(path) => Some(self.demanding(spec, path, &authorities, &certificate)?),
            None => None,
        };
        let demand = match demanding {
            Some(_) => DemandFingerprint::of(&authorities),
            None => DemandFingerprint::NONE,
        };
        let pair = PairFingerprint::of(spec.certificate.as_deref(), spec.key.as_deref(), demand);
        Ok(PairEntry {
            identity: SiteIdentity::new(pair, demand),
            spec: spec.clone(),
            pair: certificate,
            missing_names: Vec::new(),
            demanding,
        })
    }

    fn demanding(
        &self,
        spec: &PairSpec,
        client_ca: &Path,
        authorities: &[CertificateDer<'_>],
        pair: &CertificatePair,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let unusable = |error: &dyn std::fmt::Display| {
            TlsError::new(
                TlsPart::ClientCa,
                format!("the CA cannot verify client certificates: {error}"),
                "the file must contain an X.509 v3 certificate of a CA",
            )
            .in_file(client_ca)
        };
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots
                .add(authority.clone().into_owned())
                .map_err(|error| unusable(&error))?;
        }
        let provider = Arc::clone(&self.provider);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| unusable(&error))?;
        let resolver = SingleCertAndKey::from(Arc::clone(&pair.certified));
        self.config(verifier, Arc::new(resolver), &scope(spec, authorities))
    }

    fn quic(&self, resolver: Arc<dyn ResolvesServerCert>) -> Result<Option<QuicTls>, TlsError> {
        if !cfg!(feature = "http3") || !self.has(ProtocolVersion::TLSv1_3) {
            return Ok(None);
        }
        let builder = RustlsConfigBuilder {
            settings: self.settings,
            provider: Arc::clone(&self.provider),
            versions: TLS13_ALONE,
        };
        let config = builder.config(Arc::new(NoClientAuth), resolver, QUIC_SCOPE)?;
        let mut config = Arc::unwrap_or_clone(config);
        config.alpn_protocols = vec![b"h3".to_vec()];
        config.ticketer = Arc::new(ticket_keys::ResumptionObserver(config.ticketer));
        // The QUIC library manages the traffic keys.
        config.enable_secret_extraction = false;
        config.key_log = Arc::new(NoKeyLog);
        Ok(Some(QuicTls {
            config: Arc::new(config),
            secret: self.settings.tickets.secret(QUIC_SCOPE)?,
        }))
    }

    fn config(
        &self,
        verifier: Arc<dyn ClientCertVerifier>,
        resolver: Arc<dyn ResolvesServerCert>,
        ticket_scope: &[u8],
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(self.versions)
            .map_err(|error| TlsError::new(TlsPart::Ciphers, error.to_string(), ""))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        config.alpn_protocols = self.settings.alpn.clone();
        if self.settings.challenges.is_some() {
            // The protocol has the lowest preference, so that only clients without another protocol
            // negotiate `acme-tls/1`.
            config.alpn_protocols.push(ACME_TLS_ALPN.to_vec());
        }
        config.ignore_client_order = true;
        // Sessions are resumed only by tickets: a session cache would cost memory per client.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = self.settings.tickets.producer(ticket_scope)?;
        // A client uses 1 ticket. Each further ticket costs the client bytes and the server an encryption.
        config.send_tls13_tickets = 1;
        // Early data can be replayed, and clients of the server have no need for early data.
        config.max_early_data_size = 0;
        // The secrets let a kept-alive connection go on without rustls.
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(traffic_secrets::TrafficSecretLog);
        Ok(Arc::new(config))
    }
}

/// Returns the ticket scope of a pair that demands client certificates: the names and the contents of the
/// CAs, so that a client of a removed CA can't resume by ticket. The scope contains nothing specific to the
/// machine, so that other nodes compute the same scope, and does not depend on the order of names and CAs.
fn scope(spec: &PairSpec, authorities: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut hash = digest::Context::new(&digest::SHA256);
    let names = spec.names.iter().map(|name| name.to_ascii_lowercase());
    for name in names.collect::<BTreeSet<_>>() {
        hash.update(name.as_bytes());
        hash.update(b"\0");
    }
    for authority in authority_digests(authorities) {
        hash.update(&authority);
    }
    [b"client ", hash.finish().as_ref()].concat()
}

/// Returns the fingerprint of the self-signed pair, presented to clients without server name.
fn self_signed_fingerprint() -> PairFingerprint {
    PairFingerprint::of(None, None, DemandFingerprint::NONE)
}

/// Returns a server name of a client for a name of the configuration; None for `*`, which has the clients
/// without server name.
fn sample_name(name: &str) -> Option<String> {
    (name != "*").then(|| name.replacen('*', "x", 1))
}

static TLS13_ALONE: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Ticket scope of all pairs without a demand for client certificates. rustls itself binds a ticket to its
/// server name.
const OPEN_SCOPE: &[u8] = b"open";

/// Ticket scope for QUIC. Tickets contain parameters negotiated over QUIC.
const QUIC_SCOPE: &[u8] = b"quic";

/// Certificate resolver for the pairs without a demand for client certificates.
#[derive(Debug)]
struct CertificateByName {
    names: Arc<ServerNames>,
    /// Certificates by index of the pair; None for a pair that demands client certificates, which the open
    /// configuration can't check.
    pairs: Vec<Option<Arc<CertifiedKey>>>,
    self_signed: Arc<CertifiedKey>,
    challenges: Option<Arc<PendingChallenges>>,
}

impl ResolvesServerCert for CertificateByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if validates(&hello) {
            return self.challenges.as_ref()?.alpn(hello.server_name()?);
        }
        match self.names.choose(hello.server_name()) {
            NameMatch::Pair(index) => self.pairs.get(index)?.clone(),
            NameMatch::SelfSigned => Some(Arc::clone(&self.self_signed)),
            NameMatch::Unknown => None,
        }
    }
}

/// Returns true if the client validates a name by tls-alpn-01: `acme-tls/1` is the only protocol offered
/// (RFC 8737 §3). A client that offers further protocols is an ordinary client.
fn validates(hello: &ClientHello<'_>) -> bool {
    let Some(mut offered) = hello.alpn() else {
        return false;
    };
    offered.next() == Some(ACME_TLS_ALPN) && offered.next().is_none()
}
