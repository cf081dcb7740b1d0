//! Client side of TLS for a workload.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption as Sessions, Tls12ClientSessionValue, Tls12Resumption,
    Tls13ClientSessionValue, WantsClientCert, WebPkiServerVerifier,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, NamedGroup, RootCertStore, SignatureScheme,
};

use super::workload::{Error, Groups, Protocol, Resumption, Tls, Trust, Workload};

/// Builds the configuration shared by the connections of one thread. Each thread has its own, to avoid
/// contention for the lock of the session store.
pub(super) fn config(workload: &Workload, tls: &Tls) -> Result<ClientConfig, Error> {
    let mut provider = default_provider();
    // AES-128-GCM comes first: servers with an order of their own choose AES-128-GCM, and the other
    // servers follow the client's order.
    provider
        .cipher_suites
        .sort_by_key(|suite| *suite != TLS13_AES_128_GCM_SHA256);
    match tls.groups {
        Groups::X25519 => provider.kx_groups = vec![kx_group::X25519],
        Groups::X25519MLKEM768 => provider.kx_groups = vec![kx_group::X25519MLKEM768],
        Groups::Default => {}
    }
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = match workload.protocol {
        // QUIC requires TLS 1.3.
        Protocol::Http3 => builder.with_protocol_versions(&[&rustls::version::TLS13]),
        Protocol::Http1 | Protocol::Http2 => builder.with_safe_default_protocol_versions(),
    };
    let builder = builder.map_err(|error| Error::Tls(error.to_string()))?;
    let mut config = trusting(builder, &tls.trust, &provider)?.with_no_client_auth();
    config.alpn_protocols = vec![alpn(workload.protocol).to_vec()];
    config.resumption = match tls.resumption {
        Resumption::Full => Sessions::disabled(),
        Resumption::Resumed => {
            let store = SessionStore::new(workload.connections * TICKETS_PER_CONNECTION);
            Sessions::store(Arc::new(store)).tls12_resumption(Tls12Resumption::SessionIdOrTickets)
        }
    };
    Ok(config)
}

/// Returns the server name for SNI.
pub(super) fn server_name(tls: &Tls) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(tls.server_name.clone())
        .map_err(|_| Error::ServerName(tls.server_name.clone()))
}

/// Returns the ALPN protocol name.
pub(super) fn alpn(protocol: Protocol) -> &'static [u8] {
    match protocol {
        Protocol::Http1 => b"http/1.1",
        Protocol::Http2 => b"h2",
        Protocol::Http3 => b"h3",
    }
}

fn trusting(
    builder: ConfigBuilder<ClientConfig, rustls::WantsVerifier>,
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let verifier = Verifier {
        authority: match trust {
            Trust::Any => None,
            Trust::Authority(pem) => Some(authority(pem, provider)?),
        },
        provider: Arc::clone(provider),
    };
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier)))
}

fn authority(
    pem: &str,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let unreadable = |error: &dyn std::fmt::Display| Error::Authority(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        return Err(Error::Authority(
            "the PEM text holds no certificate".to_owned(),
        ));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| unreadable(&error))
}

thread_local! {
    /// Whether a server presented a certificate on the thread since the flag was reset.
    static SAW_CERTIFICATE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `does` and returns its result, and whether a server presented a certificate in the meantime.
pub(super) fn watching_for_certificates<T>(does: impl FnOnce() -> T) -> (T, bool) {
    SAW_CERTIFICATE.set(false);
    let done = does();
    (done, SAW_CERTIFICATE.get())
}

/// Certificate verifier of a workload. Without an authority the verifier accepts any certificate and skips the
/// signature, because verification costs only the client, and the client's speed is not measured.
#[derive(Debug)]
struct Verifier {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        SAW_CERTIFICATE.set(true);
        self.authority
            .as_ref()
            .map_or(Ok(ServerCertVerified::assertion()), |authority| {
                authority.verify_server_cert(certificate, intermediates, name, ocsp_response, now)
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority
            .as_ref()
            .map_or(Ok(HandshakeSignatureValid::assertion()), |authority| {
                authority.verify_tls12_signature(message, certificate, signature)
            })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority
            .as_ref()
            .map_or(Ok(HandshakeSignatureValid::assertion()), |authority| {
                authority.verify_tls13_signature(message, certificate, signature)
            })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Session tickets for one server, newest first. The store of rustls holds eight tickets, too few for the
/// number of concurrent connections.
#[derive(Debug)]
struct SessionStore {
    kept: Mutex<Kept>,
    tickets_max: usize,
}

#[derive(Default)]
struct Kept {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tls13: VecDeque<Tls13ClientSessionValue>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} tickets", self.tls13.len())
    }
}

impl SessionStore {
    fn new(tickets_max: usize) -> SessionStore {
        SessionStore {
            kept: Mutex::default(),
            tickets_max,
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for SessionStore {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.kept().tls12 = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.kept().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut kept = self.kept();
        if kept.tls13.len() >= self.tickets_max {
            kept.tls13.pop_front();
        }
        kept.tls13.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept().tls13.pop_back()
    }
}

/// Tickets kept for each connection. Servers send two tickets per full handshake, some four, and no
/// connection needs more at the same time.
const TICKETS_PER_CONNECTION: usize = 4;
