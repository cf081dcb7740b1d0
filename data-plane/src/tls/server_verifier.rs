//! Verification of a server's certificate by a client.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use crate::tls::authorities::Authorities;
use crate::tls::der::DerCertificate;
use crate::tls::error::{TlsError, TlsPart};
use base::digest::sha256;

/// Verifier of chains that end at a trusted authority, and of single certificates in the operator's file.
///
/// `openssl req -x509` makes a self-signed certificate that is an authority and the server's certificate at
/// once. The verification of chains refuses such a certificate, but curl, nginx and Go accept the
/// certificate if the file of the authorities contains the very certificate.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    chains: Arc<WebPkiServerVerifier>,
    authorities: Authorities,
}

/// Refusal of a self-signed certificate that the operator has not listed as trusted.
#[derive(Debug)]
pub(crate) struct UnlistedSelfSigned;

impl fmt::Display for UnlistedSelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate is self-signed")
    }
}

impl std::error::Error for UnlistedSelfSigned {}

impl ServerVerifier {
    /// Makes a verifier that trusts `authorities`.
    pub(super) fn new(
        authorities: Authorities,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ServerVerifier, TlsError> {
        let roots = Arc::clone(&authorities.roots);
        let chains = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
        let chains = chains.build().map_err(|error| {
            let what = format!("the authorities can't be used: {error}");
            TlsError::new(TlsPart::Authorities, what, "")
        })?;
        Ok(ServerVerifier {
            chains,
            authorities,
        })
    }

    /// Returns the trusted authorities.
    pub(super) fn authorities(&self) -> &Authorities {
        &self.authorities
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.authorities.listed.contains(&sha256(end_entity)) {
            is_valid_at(end_entity, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.chains.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        verified.map_err(|error| match error {
            Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_),
            ) if is_self_signed(end_entity) => {
                CertificateError::Other(OtherError(Arc::new(UnlistedSelfSigned))).into()
            }
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Checks the period of validity.
fn is_valid_at(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let parsed = DerCertificate::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
    let (not_before, not_after) = (parsed.not_before, parsed.not_after);
    match now.as_secs() {
        now_seconds if now_seconds < not_before => Err(CertificateError::NotValidYetContext {
            time: now,
            not_before: at(not_before),
        }),
        now_seconds if now_seconds > not_after => Err(CertificateError::ExpiredContext {
            time: now,
            not_after: at(not_after),
        }),
        _ => Ok(()),
    }
}

fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    DerCertificate::parse(certificate).is_some_and(|parsed| parsed.issuer == parsed.subject)
}
