//! TLS: which certificate a name gets, in which ciphers, and how a client comes back cheaply.
//!
//! A [`Tls`] is frozen: all certificates of one World, read and checked before it exists. Built
//! again when files change, it takes over from the previous one what can't be replaced yet. The
//! ticket keys ([`TicketKeys`]) outlive it.

// A test may panic: that is how it fails.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod challenges;
mod der;
mod error;
mod connection;
mod csr;
mod server_names;
mod certificate_pair;
mod provider;
mod record_layer;
mod self_signed;
mod ticket_keys;
mod tbs_certificate;

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

pub use crate::tls::connection::{HelloReader, HelloResult, TlsConnection};
pub use crate::tls::csr::{CsrKey, IssuedCertificate, authorities};
pub use crate::tls::record_layer::{
    OpenedRecords, RECORD_BYTES_MAX, RecordBoundaryFinder, RecordLayer, TrafficSecrets,
};
pub use crate::tls::ticket_keys::{TicketKeys, was_ticket_opened};
pub use challenges::{ACME_TLS_ALPN, PendingChallenges, PostedChallenge};
pub use error::{TlsError, TlsPart};
pub use provider::{Ciphers, aes_in_hardware, provider};
pub use self_signed::SelfSigned;

use crate::tls::certificate_pair::CertificatePair;
use crate::tls::server_names::{NameMatch, ServerNames};

/// A certificate and the names that get it, as the operator wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairSpec {
    /// Exact names, `*.parent` for one label in its place, or `*` for any name and for none.
    pub names: Vec<String>,
    /// PEM file; None = the self-signed certificate.
    pub certificate: Option<PathBuf>,
    /// PEM file of the private key, if it isn't in the certificate's.
    pub key: Option<PathBuf>,
    /// PEM file of the CAs that must have signed a client's certificate; None = none is asked for.
    pub client_ca: Option<PathBuf>,
    /// The certificate comes by itself, and may not be there yet: until then, and where its file
    /// can't be used, the self-signed one stands in for it.
    pub is_managed: bool,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 alone.
    Tls13,
}

/// What holds for all certificates.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The oldest version.
    pub min_version: MinVersion,
    /// Cipher suites and their order.
    pub ciphers: Ciphers,
    /// Application protocols (ALPN), the most wanted first.
    pub alpn: Vec<Vec<u8>>,
    /// The keys of session tickets.
    pub tickets: Arc<TicketKeys>,
    /// Whether AES is cheap here; decides the order of [`Ciphers::Auto`].
    pub aes_in_hardware: bool,
    /// Challenges to be answered in handshakes; None where no certificate comes by itself.
    pub challenges: Option<Arc<PendingChallenges>>,
}

impl TlsSettings {
    /// Default settings: TLS 1.2 and 1.3, ciphers chosen for this machine's hardware, HTTP/2, HTTP/1.1
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
        }
    }
}

/// Stands for one set of certificate, key and demanded client CA: a connection that was given one
/// may only be used for sites with the same (else 421). A hash of the files' names and of the client
/// CAs themselves: the same after a reload, unless a client that was let in before might not be now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PairFingerprint(pub u64);

impl PairFingerprint {
    /// No certificate at all: this name is refused.
    pub const NONE: PairFingerprint = PairFingerprint(0);

    fn of(
        certificate: Option<&Path>,
        key: Option<&Path>,
        client_ca: Option<&Path>,
        authorities: &[CertificateDer<'_>],
    ) -> PairFingerprint {
        let mut hash = digest::Context::new(&digest::SHA256);
        for authority in authorities {
            hash.update(digest::digest(&digest::SHA256, authority).as_ref());
        }
        for path in [certificate, key, client_ca] {
            let bytes = path.map_or(&[][..], |path| path.as_os_str().as_encoded_bytes());
            hash.update(&(bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        }
        let hash = hash.finish();
        let (first, _) = hash.as_ref().split_at(8);
        PairFingerprint(u64::from_be_bytes(first.try_into().unwrap_or([1; 8])))
    }
}

/// What `anthill status` says of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSummary {
    /// Its names.
    pub names: Vec<String>,
    /// Its certificate's file; None = self-signed.
    pub certificate: Option<PathBuf>,
    /// The self-signed certificate stands in for it so far.
    pub stands_in: bool,
    /// Last second of validity, Unix time.
    pub not_after: u64,
    /// Whether clients must have a certificate.
    pub client_certificate: bool,
}

impl PairSummary {
    /// Whole days that the certificate is still valid at `now` (Unix time); negative once expired.
    pub fn days_left(&self, now: u64) -> i64 {
        let seconds = i128::from(self.not_after) - i128::from(now);
        seconds.div_euclid(86_400) as i64
    }
}

/// What QUIC is spoken with.
#[derive(Clone)]
pub struct QuicTls {
    /// TLS 1.3 alone, and HTTP/3 alone; refuses names whose pair demands a client certificate.
    pub config: Arc<ServerConfig>,
    /// What stateless resets and tokens are made with: the same for as long as the newest ticket key
    /// is, also after a restart.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for QuicTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quic").finish_non_exhaustive()
    }
}

/// All certificates of one World. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tls {
    shared: Arc<TlsShared>,
}

#[derive(Debug)]
struct TlsShared {
    names: Arc<ServerNames>,
    entries: Vec<PairEntry>,
    /// For every name whose pair demands no client certificate.
    open: Arc<ServerConfig>,
    /// The same over QUIC, where nothing else is offered.
    quic: Option<QuicTls>,
    /// Whether some pair does demand one, so that the hello must be read first.
    choosing: bool,
    self_signed: PairFingerprint,
    /// The pair that stands in for what comes later.
    stand_in: Arc<CertificatePair>,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct PairEntry {
    spec: PairSpec,
    identity: PairFingerprint,
    pair: Arc<CertificatePair>,
    /// The configuration that demands a client certificate, if the pair does.
    demanding: Option<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads and checks all pairs. Where a file was replaced but its counterpart not yet, so that
    /// certificate and key don't match, the pair of `previous` stays, with a warning. `now` is Unix
    /// time.
    ///
    /// # Errors
    /// The first pair or setting that can't be used.
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
            let entry = add_names(&mut names, spec, index)
                .and_then(|()| load(spec, self_signed, previous, &mut loaded, &mut warnings))
                .and_then(|pair| builder.entry(spec, pair))
                .map_err(|error| error.of_pair(index))?;
            if let (Some(file), false) = (&spec.certificate, entry.stands_in(self_signed)) {
                let names = if spec.is_managed {
                    &[]
                } else {
                    &spec.names[..]
                };
                for what in entry.pair.warnings(names, now) {
                    let warning = format!("{}: {what}", file.display());
                    // Sites may share a certificate.
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
            }
            entries.push(entry);
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
                self_signed: PairFingerprint::of(None, None, None, &[]),
                stand_in: Arc::clone(self_signed.pair()),
                warnings,
            }),
        })
    }

    /// The server's end of a new connection.
    ///
    /// # Errors
    /// rustls refuses its own configuration, which it has no reason to.
    pub fn accept(&self) -> Result<TlsConnection, rustls::Error> {
        if self.shared.choosing {
            let choosing = HelloReader::new(Arc::clone(&self.shared));
            return Ok(TlsConnection::AwaitingHello(Box::new(choosing)));
        }
        connection::connect(&self.shared.open).map(TlsConnection::Ready)
    }

    /// What QUIC is spoken with; None in a build without HTTP/3, or where TLS 1.3 is off.
    pub fn quic(&self) -> Option<&QuicTls> {
        self.shared.quic.as_ref()
    }

    /// What a connection with this server name was given, or what a site with this name wants: a
    /// site may answer on a connection where both are the same. None = the client named nobody.
    pub fn identity(&self, name: Option<&str>) -> PairFingerprint {
        match self.shared.names.choose(name) {
            NameMatch::Pair(index) => self.shared.entries[index].identity,
            NameMatch::SelfSigned => self.shared.self_signed,
            NameMatch::Nobody => PairFingerprint::NONE,
        }
    }

    /// The same for a connection of QUIC, which can't show a client certificate: None where one is
    /// demanded. The configuration that its handshake was done with may be older than this one.
    pub fn identity_over_quic(&self, name: Option<&str>) -> Option<PairFingerprint> {
        let demands = match self.shared.names.choose(name) {
            NameMatch::Pair(index) => self.shared.entries[index].demanding.is_some(),
            NameMatch::SelfSigned | NameMatch::Nobody => false,
        };
        (!demands).then(|| self.identity(name))
    }

    /// Every file that was read, to watch for changes.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        for PairEntry { spec, .. } in &self.shared.entries {
            let named = [&spec.certificate, &spec.key, &spec.client_ca];
            files.extend(named.into_iter().flatten().cloned());
        }
        files
    }

    /// What is strange but didn't keep the certificates from being served, with the file's name.
    pub fn warnings(&self) -> &[String] {
        &self.shared.warnings
    }

    /// The pairs in the order of the configuration.
    pub fn summary(&self) -> Vec<PairSummary> {
        let of_entry = |entry: &PairEntry| PairSummary {
            names: entry.spec.names.clone(),
            certificate: entry.spec.certificate.clone(),
            stands_in: entry.spec.certificate.is_some() && self.stands_in(entry),
            not_after: entry.pair.not_after,
            client_certificate: entry.demanding.is_some(),
        };
        self.shared.entries.iter().map(of_entry).collect()
    }

    fn stands_in(&self, entry: &PairEntry) -> bool {
        Arc::ptr_eq(&entry.pair, &self.shared.stand_in)
    }

    /// The pair that these files had here.
    fn pair_of(&self, spec: &PairSpec) -> Option<Arc<CertificatePair>> {
        let same = |entry: &&PairEntry| {
            entry.spec.certificate == spec.certificate && entry.spec.key == spec.key
        };
        let entry = self.shared.entries.iter().find(same)?;
        let stands_in = spec.certificate.is_some() && self.stands_in(entry);
        (!stands_in).then(|| Arc::clone(&entry.pair))
    }
}

impl TlsShared {
    /// The configuration for a client that said this hello. A name that nobody answers to gets the
    /// open one, whose resolver refuses it; so does who validates a name, and has no certificate to
    /// show for it.
    fn config(&self, hello: &ClientHello<'_>) -> &Arc<ServerConfig> {
        if validates(hello) {
            return &self.open;
        }
        let name = hello.server_name();
        match self.names.choose(name) {
            NameMatch::Pair(index) => self.entries[index].demanding.as_ref().unwrap_or(&self.open),
            NameMatch::SelfSigned | NameMatch::Nobody => &self.open,
        }
    }
}

impl PairEntry {
    fn stands_in(&self, self_signed: &SelfSigned) -> bool {
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
        // An address is never sent as a server name (RFC 6066 §3); the site may have one for its
        // plain requests.
        let fits = name == "*" || DnsName::try_from(plain).is_ok() || is_address(plain);
        if !fits {
            let hint = if name.is_ascii() {
                "a host name, *.parent for one label in its place, or * for any"
            } else {
                "certificates have such names in their ASCII form, xn--…"
            };
            let what = format!("\"{name}\" is no server name");
            return Err(TlsError::new(TlsPart::Names, what, hint));
        }
        if !names.add(name, index) {
            return Err(TlsError::new(
                TlsPart::Names,
                format!("\"{name}\" stands with another site already"),
                "each name belongs to one site",
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

/// Files that a pair is read from.
type PairFiles = (PathBuf, Option<PathBuf>);

/// The spec's pair, read once however many specs name its files.
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
                    warnings.push(format!("{error}: the previous pair stays until both match"));
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

/// Makes rustls configurations that differ in certificate, client's CA and ticket scope alone.
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
                "TLS_AES_128_GCM_SHA256 is, for one",
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
            warnings.push("no cipher in the list is for TLS 1.3, so it is off".to_owned());
        }
        if list && settings.min_version == MinVersion::Tls12 && !self.has(ProtocolVersion::TLSv1_2)
        {
            warnings.push("no cipher in the list is for TLS 1.2, so it is off".to_owned());
        }
        warnings
    }

    fn entry(&self, spec: &PairSpec, pair: Arc<CertificatePair>) -> Result<PairEntry, TlsError> {
        let authorities = match &spec.client_ca {
            Some(path) => certificate_pair::certificates(path)?,
            None => Vec::new(),
        };
        let demanding = match &spec.client_ca {
            Some(path) => Some(self.demanding(spec, path, &authorities, &pair)?),
            None => None,
        };
        Ok(PairEntry {
            identity: PairFingerprint::of(
                spec.certificate.as_deref(),
                spec.key.as_deref(),
                spec.client_ca.as_deref(),
                &authorities,
            ),
            spec: spec.clone(),
            pair,
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
                format!("this CA can't check clients: {error}"),
                "an X.509 v3 certificate of a CA belongs here",
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
        // QUIC keeps its keys itself.
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
            // The last choice, so that only who offers nothing else gets it.
            config.alpn_protocols.push(ACME_TLS_ALPN.to_vec());
        }
        config.ignore_client_order = true;
        // Tickets are the only way back: a cache of sessions would cost memory per client.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = self.settings.tickets.producer(ticket_scope)?;
        // One is what a client uses; each more costs it bytes and us a sealing.
        config.send_tls13_tickets = 1;
        // Early data can be replayed, and our clients have nothing to say that early.
        config.max_early_data_size = 0;
        // A connection that stays goes on with these and without rustls.
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(record_layer::TrafficSecretLog);
        Ok(Arc::new(config))
    }
}

/// What the tickets of a pair that demands client certificates are bound to: its names, and the
/// authorities themselves, so that an authority that was taken away can't come back by ticket.
/// Nothing of this machine, so that other nodes agree.
fn scope(spec: &PairSpec, authorities: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut hash = digest::Context::new(&digest::SHA256);
    for name in &spec.names {
        hash.update(name.to_ascii_lowercase().as_bytes());
        hash.update(b"\0");
    }
    for authority in authorities {
        hash.update(digest::digest(&digest::SHA256, authority).as_ref());
    }
    [b"client ", hash.finish().as_ref()].concat()
}

static TLS13_ALONE: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Scope of all pairs that demand no client certificate. rustls itself holds a ticket to the
/// server name that it was issued for.
const OPEN_SCOPE: &[u8] = b"open";

/// The same over QUIC: a ticket remembers what was agreed on there.
const QUIC_SCOPE: &[u8] = b"quic";

/// Chooses among the pairs that demand no client certificate.
#[derive(Debug)]
struct CertificateByName {
    names: Arc<ServerNames>,
    /// None where a client certificate is demanded, which this configuration can't do.
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
            NameMatch::Nobody => None,
        }
    }
}

/// Whether this is somebody who validates a name by tls-alpn-01: `acme-tls/1` is all that is offered
/// (RFC 8737 §3). Whoever offers more is an ordinary client, and gets what those get.
fn validates(hello: &ClientHello<'_>) -> bool {
    let Some(mut offered) = hello.alpn() else {
        return false;
    };
    offered.next() == Some(ACME_TLS_ALPN) && offered.next().is_none()
}
