//! What it takes to have a certificate issued by somebody else: a key, a request for it, and a look
//! at what came.

use std::path::Path;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair,
};

use crate::base::digest::base64url;
use crate::tls::certificate_pair::{CertificatePair, PemFile, pem};
use crate::tls::der::DerCertificate;
use crate::tls::error::{TlsError, TlsPart};
use crate::tls::{self_signed, tbs_certificate};

/// The private key of a certificate that is asked for, on P-256.
#[derive(Debug)]
pub struct CsrKey(EcdsaKeyPair);

impl CsrKey {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn generate() -> Result<CsrKey, TlsError> {
        self_signed::new_key().map(CsrKey)
    }

    /// The key in this PEM text; None if there is none on P-256.
    pub fn from_pem(text: &str) -> Option<CsrKey> {
        let file = PemFile::parse(text.as_bytes()).ok()?;
        let der = file.keys.first()?.secret_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
        key.ok().map(CsrKey)
    }

    /// The same key, for signatures of fixed length, as JSON has them (RFC 7518 §3.4).
    pub fn into_fixed(self) -> Option<EcdsaKeyPair> {
        let der = self_signed::pkcs8(&self.0).ok()?;
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).ok()
    }

    /// PKCS #8 as PEM.
    ///
    /// # Errors
    /// The key can't be written down, which it has no reason to.
    pub fn to_pem(&self) -> Result<String, TlsError> {
        Ok(pem("PRIVATE KEY", &self_signed::pkcs8(&self.0)?))
    }

    /// The DER of a request (PKCS #10) for a certificate with these names.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn request(&self, names: &[String]) -> Result<Vec<u8>, TlsError> {
        tbs_certificate::request(names, &self.0).map_err(|error| {
            let what = format!("can't sign the request for a certificate: {error}");
            TlsError::new(TlsPart::Key, what, "")
        })
    }
}

/// A certificate that was issued to us, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// First second of validity, Unix time.
    pub not_before: u64,
    /// Last second of validity, Unix time.
    pub not_after: u64,
    /// What renewal information is asked for by (RFC 9773 §4.1); None if the certificate doesn't
    /// name its authority's key.
    pub renewal_id: Option<String>,
    /// Names that it was wanted for and doesn't have.
    pub missing: Vec<String>,
}

impl IssuedCertificate {
    /// Looks at a key and the chain that was issued for it, one PEM text.
    ///
    /// # Errors
    /// It can't be served: no PEM, a part is missing, the parts don't belong together.
    pub fn read(text: &[u8], names: &[String]) -> Result<IssuedCertificate, TlsError> {
        let wrong = |(what, hint)| TlsError::new(TlsPart::Certificate, what, hint);
        let file = PemFile::parse(text).map_err(wrong)?;
        let no_key = || TlsError::new(TlsPart::Key, "no private key with it", "");
        let pair = CertificatePair::match_up(file.certificates, file.keys, no_key)?;
        let leaf = pair.certified.cert.first();
        let leaf = leaf.and_then(|der| DerCertificate::parse(der));
        let renewal_id = leaf.and_then(|leaf| {
            let (authority, serial) = (base64url(leaf.authority_key?), base64url(leaf.serial));
            Some(format!("{authority}.{serial}"))
        });
        Ok(IssuedCertificate {
            not_before: pair.not_before,
            not_after: pair.not_after,
            renewal_id,
            missing: pair.missing(names),
        })
    }
}

/// Every certificate in a PEM file, as its DER: the authorities that a system or an operator trusts.
///
/// # Errors
/// The file can't be read, or holds none.
pub fn authorities(
    path: &Path,
) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, TlsError> {
    let file = PemFile::read(path, TlsPart::Certificate)?;
    if file.certificates.is_empty() {
        let hint = "the certificate of the authority belongs here";
        let error = TlsError::new(TlsPart::Certificate, "no certificate in this file", hint);
        return Err(error.in_file(path));
    }
    Ok(file.certificates)
}
