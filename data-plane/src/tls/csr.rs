//! Certificates from a certificate authority: key, certificate request, and check of the issued
//! certificate.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair,
};

use crate::tls::certificate_pair::{CertificatePair, PemFile, pem};
use crate::tls::der::DerCertificate;
use crate::tls::error::{TlsError, TlsPart};
use crate::tls::{self_signed, tbs_certificate};
use base::digest::base64url;

/// Private key of a requested certificate, on P-256.
#[derive(Debug)]
pub struct CsrKey(EcdsaKeyPair);

impl CsrKey {
    /// Makes a new key.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub fn generate() -> Result<CsrKey, TlsError> {
        self_signed::new_key().map(CsrKey)
    }

    /// Parses a key in PEM. Returns None if `text` contains no key on P-256.
    pub fn from_pem(text: &str) -> Option<CsrKey> {
        let file = PemFile::parse(text.as_bytes()).ok()?;
        let der = file.keys.first()?.secret_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
        key.ok().map(CsrKey)
    }

    /// Converts the key to a key pair for signatures of fixed length, the format of JSON Web Signature (RFC
    /// 7518 §3.4). Returns None if the key can't be encoded, which indicates a bug.
    pub fn into_fixed(self) -> Option<EcdsaKeyPair> {
        let der = self_signed::pkcs8(&self.0).ok()?;
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).ok()
    }

    /// Returns the key in PKCS #8 as PEM.
    ///
    /// # Errors
    /// Fails if the key can't be encoded, which indicates a bug.
    pub fn to_pem(&self) -> Result<String, TlsError> {
        Ok(pem("PRIVATE KEY", &self_signed::pkcs8(&self.0)?))
    }

    /// Returns the DER of a certificate request (PKCS #10) for `names`.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub fn request(&self, names: &[String]) -> Result<Vec<u8>, TlsError> {
        tbs_certificate::request(names, &self.0).map_err(|error| {
            let what = format!("can't sign the request for a certificate: {error}");
            TlsError::new(TlsPart::Key, what, "")
        })
    }
}

/// Issued certificate, after the check that certificate and key belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// First second of validity, Unix time.
    pub not_before: u64,
    /// Last second of validity, Unix time.
    pub not_after: u64,
    /// Identifier for requests of renewal information (RFC 9773 §4.1), or None if the certificate doesn't
    /// name its authority's key.
    pub renewal_id: Option<String>,
    /// Requested names that the certificate lacks.
    pub missing: Vec<String>,
}

impl IssuedCertificate {
    /// Reads a PEM text with a key and the chain issued for the key. `names` are the requested names.
    ///
    /// # Errors
    /// Fails if the certificate can't be served: the text isn't PEM, a part is missing, or key and
    /// certificate don't match.
    pub fn read(text: &[u8], names: &[String]) -> Result<IssuedCertificate, TlsError> {
        let wrong = |(what, hint)| TlsError::new(TlsPart::Certificate, what, hint);
        let file = PemFile::parse(text).map_err(wrong)?;
        let no_key = || TlsError::new(TlsPart::Key, "the file has no private key", "");
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
