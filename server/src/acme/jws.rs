//! Account key and JSON Web Signatures: ES256 (RFC 7515, RFC 7518 §3.4) in the flattened serialization
//! required by RFC 8555 §6.2.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{EcdsaKeyPair, KeyPair as _};

use crate::acme::error::AcmeError;
use crate::config::EabConfig;
use base::digest::{base64url, sha256};
use data_plane::tls::CsrKey;
use wire::json::quoted;

/// P-256 key of an account.
pub(super) struct AccountKey {
    key: EcdsaKeyPair,
    pem: String,
}

/// Identification of the signing account in the protected header.
pub(super) enum Signer<'s> {
    /// The public key, for an account unknown to the directory (`jwk`).
    Key,
    /// The URL of the account (`kid`).
    Account(&'s str),
}

impl AccountKey {
    /// Generates a key.
    pub(super) fn generate() -> Result<AccountKey, AcmeError> {
        let failed = |error: data_plane::tls::TlsError| AcmeError::new(error.to_string());
        let pem = CsrKey::generate().and_then(|key| key.to_pem());
        AccountKey::from_pem(&pem.map_err(failed)?)
    }

    /// Parses a key in PEM.
    pub(super) fn from_pem(pem: &str) -> Result<AccountKey, AcmeError> {
        let key = CsrKey::from_pem(pem).and_then(|key| key.into_fixed());
        let key = key.ok_or_else(|| AcmeError::new("not a PEM private key on P-256"))?;
        Ok(AccountKey {
            key,
            pem: pem.to_owned(),
        })
    }

    /// Returns the key in PEM.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the public key as a JWK (RFC 7517), with the members in the order required by the
    /// thumbprint.
    fn jwk(&self) -> String {
        // The byte 4, then both coordinates (SEC 1 §2.3.3).
        let point = self.key.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
        format!(
            "{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{}\",\"y\":\"{}\"}}",
            base64url(x),
            base64url(y)
        )
    }

    /// Returns the key authorization for a challenge token (RFC 8555 §8.1).
    pub(super) fn authorization(&self, token: &str) -> String {
        format!("{token}.{}", base64url(&sha256(self.jwk().as_bytes())))
    }

    /// Returns `payload` signed for `url`.
    pub(super) fn sign(
        &self,
        signer: &Signer<'_>,
        nonce: &str,
        url: &str,
        payload: &str,
    ) -> Result<String, AcmeError> {
        let who = match signer {
            Signer::Key => format!("\"jwk\":{}", self.jwk()),
            Signer::Account(kid) => format!("\"kid\":{}", quoted(kid)),
        };
        let protected = format!(
            "{{\"alg\":\"ES256\",{who},\"nonce\":{},\"url\":{}}}",
            quoted(nonce),
            quoted(url)
        );
        let sign = |input: &[u8]| {
            let signature = self.key.sign(&SystemRandom::new(), input);
            signature.map(|signature| signature.as_ref().to_vec())
        };
        flattened(&protected, payload, sign)
    }

    /// Returns the external account binding: the public key, signed with the MAC key that the CA issued to
    /// the operator (RFC 8555 §7.3.4).
    pub(super) fn bind(&self, eab: &EabConfig, url: &str) -> Result<String, AcmeError> {
        let protected = format!(
            "{{\"alg\":\"HS256\",\"kid\":{},\"url\":{}}}",
            quoted(&eab.kid),
            quoted(url)
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, &eab.key);
        flattened(&protected, &self.jwk(), |input| {
            Ok(hmac::sign(&key, input).as_ref().to_vec())
        })
    }
}

/// Returns the flattened JWS JSON serialization (RFC 7515 §7.2.2).
fn flattened(
    protected: &str,
    payload: &str,
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, aws_lc_rs::error::Unspecified>,
) -> Result<String, AcmeError> {
    let protected = base64url(protected.as_bytes());
    let payload = base64url(payload.as_bytes());
    let signature = sign(format!("{protected}.{payload}").as_bytes());
    let signature = signature.map_err(|_| AcmeError::new("can't sign: no randomness"))?;
    Ok(format!(
        "{{\"protected\":\"{protected}\",\"payload\":\"{payload}\",\"signature\":\"{}\"}}",
        base64url(&signature)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use wire::json::Json;

    #[test]
    fn signatures_verify() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::from_pem(key.pem()).unwrap();
        assert_eq!(key.jwk(), again.jwk());
        let url = "https://ca.test/order";
        let signed = again.sign(&Signer::Account("https://ca.test/1"), "nonce", url, "{}");
        let signed = Json::parse(signed.unwrap().as_bytes()).unwrap();
        let part = |name: &str| signed.text(name).unwrap().to_owned();
        let decode = |text: &str| {
            let eab = format!("acme = {{ eab = {{ kid = \"k\", key = \"{text}\" }} }}");
            let config = crate::config::parse(&format!("[tls]\n{eab}"), "/a.toml".as_ref());
            config.unwrap().tls.acme.unwrap().eab.unwrap().key
        };
        let input = format!("{}.{}", part("protected"), part("payload"));
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.key.public_key());
        let signature = decode(&part("signature"));
        assert_eq!(signature.len(), 64);
        public.verify(input.as_bytes(), &signature).unwrap();
        let protected = Json::parse(&decode(&part("protected"))).unwrap();
        assert_eq!(protected.text("alg"), Some("ES256"));
        assert_eq!(protected.text("kid"), Some("https://ca.test/1"));
        assert_eq!(protected.text("url"), Some(url));
        assert_eq!(key.authorization("abc").len(), 3 + 1 + 43);
        let eab = EabConfig {
            kid: "k".to_owned(),
            key: vec![1; 32],
        };
        assert!(key.bind(&eab, url).unwrap().contains("\"signature\""));
    }
}
