//! Client side of TLS: trusted authorities, client certificate and resumption for connections to servers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection};

use crate::limits::TLS_CLIENT_TICKETS;
use crate::tls::authorities::Authorities;
use crate::tls::certificate_pair::CertificatePair;
use crate::tls::client_connection::TlsClientConnection;
use crate::tls::error::{TlsError, TlsPart};
use crate::tls::provider::{Ciphers, aes_in_hardware, provider};
use crate::tls::server_verifier::ServerVerifier;
use crate::tls::traffic_secrets::TrafficSecretLog;

/// Settings of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsClientSettings {
    /// PEM file with the trusted certificate authorities; None for the authorities of the system.
    pub authorities: Option<PathBuf>,
    /// PEM file with the client certificate chain, and PEM file with the key, possibly one file.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Application protocols (ALPN) in the order of preference; empty for none.
    pub alpn: Vec<Vec<u8>>,
}

/// Client with its authorities and its certificate, read and checked.
pub struct TlsClient {
    settings: TlsClientSettings,
    verifier: Arc<ServerVerifier>,
    certificate: Option<Arc<CertifiedKey>>,
    config: Arc<ClientConfig>,
}

/// Server to connect to: name in the certificate, and sessions to resume.
pub struct TlsEndpoint {
    /// Configuration with a session store of the endpoint's own.
    config: Arc<ClientConfig>,
    /// Configuration of the client, which identifies the client.
    of_client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsEndpoint {
    /// Returns true if both endpoints have one client and one name.
    pub(crate) fn is_same(&self, other: &TlsEndpoint) -> bool {
        Arc::ptr_eq(&self.of_client, &other.of_client) && self.name == other.name
    }
}

impl TlsClient {
    /// Reads and checks all files. If a client of `known` has equal settings and files with the same
    /// content, the function returns the known client.
    ///
    /// # Errors
    /// Returns an error for the first unusable file.
    pub fn load<'k>(
        settings: &TlsClientSettings,
        known: impl IntoIterator<Item = &'k Arc<TlsClient>>,
    ) -> Result<Arc<TlsClient>, TlsError> {
        let authorities = Authorities::load(settings.authorities.as_deref())?;
        let certificate = client_certificate(settings)?;
        let is_same = |client: &&Arc<TlsClient>| {
            client.settings == *settings
                && client.verifier.authorities().is_same(&authorities)
                && client.chain() == certificate.as_ref().map(|it| &it.cert[..])
        };
        if let Some(client) = known.into_iter().find(is_same) {
            return Ok(Arc::clone(client));
        }
        TlsClient::new(settings, authorities, certificate).map(Arc::new)
    }

    fn new(
        settings: &TlsClientSettings,
        authorities: Authorities,
        certificate: Option<Arc<CertifiedKey>>,
    ) -> Result<TlsClient, TlsError> {
        let provider = provider(&Ciphers::Auto, aes_in_hardware())?;
        let verifier = Arc::new(ServerVerifier::new(authorities, &provider)?);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(TlsPart::Ciphers, error.to_string(), ""))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as _);
        let mut config = match &certificate {
            Some(pair) => {
                let resolver = SingleCertAndKey::from(Arc::clone(pair));
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = settings.alpn.clone();
        config.resumption = Resumption::disabled();
        Ok(TlsClient {
            settings: settings.clone(),
            verifier,
            certificate,
            config: Arc::new(config),
        })
    }

    /// Returns the client's chain. The key belongs to the first certificate, so equal chains have equal
    /// keys.
    fn chain(&self) -> Option<&[CertificateDer<'static>]> {
        self.certificate.as_ref().map(|pair| &pair.cert[..])
    }

    /// Makes the endpoint of a server. `name` is a host name or an IP address in the server's certificate.
    /// Each endpoint has a session store of its own.
    ///
    /// # Errors
    /// Fails if no certificate can contain `name`.
    pub fn endpoint(&self, name: &str) -> Result<TlsEndpoint, TlsError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            let what = format!("\"{name}\" is not a name in a certificate");
            let hint =
                "write `server_name` with the host name or the IP address in the certificate";
            TlsError::new(TlsPart::ServerName, what, hint)
        })?;
        let mut config = ClientConfig::clone(&self.config);
        config.resumption = Resumption::in_memory_sessions(TLS_CLIENT_TICKETS);
        // The secrets let a connection go on without rustls.
        config.enable_secret_extraction = true;
        config.key_log = Arc::new(TrafficSecretLog);
        Ok(TlsEndpoint {
            config: Arc::new(config),
            of_client: Arc::clone(&self.config),
            name,
        })
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl TlsEndpoint {
    /// Returns true if the client offers HTTP/2 alone, so that a server without HTTP/2 is of no use.
    pub(crate) fn requires_h2(&self) -> bool {
        self.config.alpn_protocols == [b"h2"]
    }

    /// Begins a connection that is reduced to its record layer as soon as possible.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration, which indicates a bug, or without randomness.
    pub(crate) fn connect(&self) -> Result<TlsClientConnection, rustls::Error> {
        let config = Arc::clone(&self.config);
        ClientConnection::new(config, self.name.clone()).map(TlsClientConnection::new)
    }

    /// Begins a connection that stays with rustls, for a single request. Sessions are neither stored nor
    /// resumed.
    ///
    /// # Errors
    /// Fails if rustls rejects the configuration, which indicates a bug, or without randomness.
    pub fn connect_once(&self) -> Result<ClientConnection, rustls::Error> {
        let config = Arc::clone(&self.of_client);
        ClientConnection::new(config, self.name.clone())
    }
}

impl fmt::Debug for TlsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsEndpoint")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Reads the client certificate.
fn client_certificate(settings: &TlsClientSettings) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
    let Some((certificate, key)) = &settings.client_certificate else {
        return Ok(None);
    };
    let key = (key != certificate).then_some(key.as_path());
    let pair = CertificatePair::load(certificate, key).map_err(TlsError::of_client)?;
    Ok(Some(pair.certified))
}

#[cfg(test)]
mod tests;
