//! Pending ACME challenges: the responses expected by a directory that validates a name of the server, over
//! plain HTTP (http-01, RFC 8555 §8.3) or in a handshake (tls-alpn-01, RFC 8737).
//!
//! All workers share one ledger. Ordinary requests never touch the ledger: only the paths of http-01 and
//! handshakes that offer nothing but `acme-tls/1` consult the ledger.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::signature::EcdsaKeyPair;
use rustls::sign::CertifiedKey;

use super::error::TlsError;
use super::self_signed::{new_key, pair_up, serial};
use crate::tls::tbs_certificate::TbsCertificate;
use base::digest::sha256;

/// ALPN protocol of a directory that validates by tls-alpn-01 (RFC 8737 §6.2).
pub(crate) const ACME_TLS_ALPN: &[u8] = b"acme-tls/1";

/// Ledger of pending challenges.
#[derive(Default)]
pub struct PendingChallenges(Mutex<Vec<PendingChallenge>>);

struct PendingChallenge {
    name: String,
    proof: ChallengeProof,
}

enum ChallengeProof {
    Http { token: String, answer: String },
    Alpn(Arc<CertifiedKey>),
}

/// Challenge in the ledger. A drop removes the challenge.
pub struct PostedChallenge {
    ledger: Arc<PendingChallenges>,
    entry: (String, Option<String>),
}

impl PendingChallenges {
    /// Posts the response to http-01 for `name`: `answer` under `token`.
    pub fn post_http(self: &Arc<Self>, name: &str, token: &str, answer: &str) -> PostedChallenge {
        let proof = ChallengeProof::Http {
            token: token.to_owned(),
            answer: answer.to_owned(),
        };
        self.post(name, proof, Some(token.to_owned()))
    }

    /// Posts the response to tls-alpn-01 for `name`: a certificate made for the challenge. `now` is Unix
    /// time.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub fn post_alpn(
        self: &Arc<Self>,
        name: &str,
        answer: &str,
        now: u64,
    ) -> Result<PostedChallenge, TlsError> {
        let key = new_key()?;
        let certificate = certificate(&key, name, sha256(answer.as_bytes()), now)?;
        let pair = pair_up(&key, certificate)?;
        Ok(self.post(name, ChallengeProof::Alpn(pair.certified), None))
    }

    fn post(
        self: &Arc<Self>,
        name: &str,
        proof: ChallengeProof,
        token: Option<String>,
    ) -> PostedChallenge {
        let name = name.to_ascii_lowercase();
        let entry = (name.clone(), token);
        self.entries().push(PendingChallenge { name, proof });
        PostedChallenge {
            ledger: Arc::clone(self),
            entry,
        }
    }

    /// Returns the response to http-01 for `token` on `host`, if a challenge is pending.
    pub(crate) fn http(&self, host: &[u8], token: &[u8]) -> Option<Vec<u8>> {
        let host = host.strip_suffix(b".").unwrap_or(host);
        self.entries()
            .iter()
            .find_map(|pending| match &pending.proof {
                ChallengeProof::Http { token: its, answer }
                    if its.as_bytes() == token
                        && pending.name.as_bytes().eq_ignore_ascii_case(host) =>
                {
                    Some(answer.clone().into_bytes())
                }
                _ => None,
            })
    }

    /// Returns the certificate for tls-alpn-01 of `name`, if a challenge is pending.
    pub(super) fn alpn(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.entries()
            .iter()
            .find_map(|pending| match &pending.proof {
                ChallengeProof::Alpn(certified) if pending.name.eq_ignore_ascii_case(name) => {
                    Some(Arc::clone(certified))
                }
                _ => None,
            })
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<PendingChallenge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostedChallenge {
    fn drop(&mut self) {
        let (name, token) = &self.entry;
        self.ledger.entries().retain(|pending| {
            let same = match &pending.proof {
                ChallengeProof::Http { token: its, .. } => token.as_ref() == Some(its),
                ChallengeProof::Alpn(_) => token.is_none(),
            };
            !same || pending.name != *name
        });
    }
}

impl fmt::Debug for PendingChallenges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenges({})", self.entries().len())
    }
}

/// Makes a certificate that names the host and contains the challenge's digest in a critical extension.
fn certificate(
    key: &EcdsaKeyPair,
    name: &str,
    digest: [u8; 32],
    now: u64,
) -> Result<Vec<u8>, TlsError> {
    let unsigned = TbsCertificate {
        serial: serial()?,
        common_name: "anthill, acme challenge",
        names: &[name.to_owned()],
        not_before: now.saturating_sub(DAY_SECONDS),
        not_after: now + DAY_SECONDS,
        acme_identifier: Some(digest),
    };
    unsigned.sign(key).map_err(super::self_signed::failed)
}

/// Validity of a challenge's certificate, before and after the present. Directories don't check the
/// validity.
const DAY_SECONDS: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_until_it_is_dropped() {
        let ledger = Arc::new(PendingChallenges::default());
        let posted = ledger.post_http("A.test", "token", "token.print");
        assert_eq!(
            ledger.http(b"a.TEST.", b"token"),
            Some(b"token.print".to_vec())
        );
        assert_eq!(ledger.http(b"a.test", b"other"), None);
        assert_eq!(ledger.http(b"b.test", b"token"), None);
        assert!(ledger.alpn("a.test").is_none());
        drop(posted);
        assert_eq!(ledger.http(b"a.test", b"token"), None);
        let posted = ledger.post_alpn("a.test", "token.print", 1_800_000_000);
        let posted = posted.unwrap();
        assert!(ledger.alpn("A.TEST").is_some());
        assert!(ledger.alpn("b.test").is_none());
        drop(posted);
        assert!(ledger.alpn("a.test").is_none());
    }
}
