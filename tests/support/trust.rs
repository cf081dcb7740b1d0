//! A TLS client without certificate verification, for tests of other subjects than certificates.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ALL_VERSIONS, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme,
    SupportedProtocolVersion,
};

/// Returns a configuration that accepts any certificate and stores no session.
pub fn client_config() -> Arc<ClientConfig> {
    client_config_with(&[])
}

/// Returns a configuration that accepts any certificate, stores no session, and offers the application
/// protocols.
#[allow(dead_code, reason = "this file is in two programs")]
pub fn client_config_with(alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut config = builder(ALL_VERSIONS).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// Returns a configuration with a single TLS version. The client stores its sessions.
#[allow(dead_code, reason = "this file is in two programs")]
pub fn client_config_of(version: &'static SupportedProtocolVersion) -> ClientConfig {
    builder(&[version]).with_no_client_auth()
}

/// Returns a configuration with the client certificate and key from the PEM text.
#[allow(dead_code, reason = "this file is in two programs")]
pub fn client_config_with_certificate(pem: &str) -> ClientConfig {
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes());
    let chain = chain.collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key");
    let config = builder(ALL_VERSIONS).with_client_auth_cert(chain, key);
    config.expect("a client's certificate")
}

fn builder(
    versions: &[&'static SupportedProtocolVersion],
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(TrustAll(provider.clone()));
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("protocol versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
}

#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
