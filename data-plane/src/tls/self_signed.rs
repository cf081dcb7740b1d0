//! Self-signed certificate for a server without another certificate: made once, stored in the state folder,
//! and printed as a fingerprint. A browser warns once and then remembers the certificate.
//!
//! The certificate is valid for 397 days, since clients refuse a longer validity, and is replaced when
//! fewer than 30 days are left. The key stays.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::rand;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::error::{TlsError, TlsPart};
use crate::tls::certificate_pair::{CertificatePair, PemFile, pem};
use crate::tls::tbs_certificate::TbsCertificate;
use base::atomic_file;
use base::digest::sha256;

/// Self-signed certificate with its key.
#[derive(Clone, Debug)]
pub struct SelfSigned {
    pair: Arc<CertificatePair>,
}

impl SelfSigned {
    /// Loads the certificate in `state` (`self-signed.pem`, with the key in `self-signed.key`). Makes a new
    /// certificate if the file is missing or unreadable, or the certificate expires soon. A new certificate
    /// names localhost, the machine and `names`, which may be names and addresses. `now` is Unix time.
    ///
    /// # Errors
    /// Fails if the state folder isn't writable.
    pub fn load_or_make(state: &Path, names: &[String], now: u64) -> Result<SelfSigned, TlsError> {
        let path = state.join(CERTIFICATE_FILE);
        let key_path = state.join(KEY_FILE);
        let with_pair = |pair| SelfSigned {
            pair: Arc::new(pair),
        };
        if let Some(pair) = still_good(&path, &key_path, now) {
            return Ok(with_pair(pair));
        }
        let key = match read_key(&key_path) {
            Some(key) => key,
            None => {
                let key = new_key()?;
                keep(&key_path, "PRIVATE KEY", &pkcs8(&key)?, 0o600)?;
                key
            }
        };
        let certificate = sign(&key, names, now)?;
        keep(&path, "CERTIFICATE", &certificate, 0o644)?;
        Ok(with_pair(pair_up(&key, certificate)?))
    }

    /// Makes a certificate that is not stored, for a server without a writable state folder.
    ///
    /// # Errors
    /// Fails if the system has no randomness.
    pub fn in_memory(names: &[String], now: u64) -> Result<SelfSigned, TlsError> {
        let key = new_key()?;
        let certificate = sign(&key, names, now)?;
        Ok(SelfSigned {
            pair: Arc::new(pair_up(&key, certificate)?),
        })
    }

    /// Returns the SHA-256 of the certificate in the format of browsers and openssl: `AB:CD:…`.
    pub fn fingerprint(&self) -> String {
        let certificate = self.pair.certified.cert.first();
        let mut text = String::with_capacity(3 * 32);
        for byte in sha256(certificate.map_or(&[], |der| der)) {
            let colon = if text.is_empty() { "" } else { ":" };
            let _ = write!(text, "{colon}{byte:02X}"); // writing to a String never fails
        }
        text
    }

    /// Returns the last second of validity, Unix time. The caller loads the certificate again with fewer
    /// than 30 days left.
    pub fn not_after(&self) -> u64 {
        self.pair.not_after
    }

    pub(super) fn pair(&self) -> &Arc<CertificatePair> {
        &self.pair
    }

    pub(super) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.pair.certified
    }
}

/// Returns the stored certificate if the key exists and the certificate doesn't expire soon.
fn still_good(path: &Path, key_path: &Path, now: u64) -> Option<CertificatePair> {
    if !path.exists() {
        return None;
    }
    match CertificatePair::load(path, Some(key_path)) {
        // On a machine without a battery-backed clock, before the first synchronisation.
        Ok(pair) if now < CLOCK_STARTS => Some(pair),
        Ok(pair) if now >= pair.not_before && now + RENEWED_BEFORE_SECONDS <= pair.not_after => {
            Some(pair)
        }
        Ok(_) => {
            log::info!(
                "{}: expires soon, a new certificate is made",
                path.display()
            );
            None
        }
        Err(error) => {
            log::warn!("{error}; a new self-signed certificate is made");
            None
        }
    }
}

fn read_key(path: &Path) -> Option<EcdsaKeyPair> {
    let file = PemFile::read(path, TlsPart::SelfSigned).ok()?;
    let der = file.keys.first()?.secret_der();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der).ok()
}

pub(super) fn new_key() -> Result<EcdsaKeyPair, TlsError> {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)
}

/// Returns the key in PKCS #8, for files and rustls.
pub(super) fn pkcs8(key: &EcdsaKeyPair) -> Result<Vec<u8>, TlsError> {
    Ok(key.to_pkcs8v1().map_err(failed)?.as_ref().to_vec())
}

/// Returns the DER of a new certificate for localhost, the machine and `names`.
fn sign(key: &EcdsaKeyPair, names: &[String], now: u64) -> Result<Vec<u8>, TlsError> {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut all = ["localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    all.push(host.clone());
    if !host.contains('.') {
        all.push(format!("{host}.local")); // the name in multicast DNS
    }
    all.extend(names.iter().map(|name| name.to_ascii_lowercase()));
    let mut once: Vec<String> = Vec::new();
    for name in all {
        if can_be_named(&name) && !once.contains(&name) {
            once.push(name);
        }
    }
    once.truncate(NAMES_MAX);

    let now = now.max(CLOCK_STARTS);
    let unsigned = TbsCertificate {
        serial: serial()?,
        common_name: "anthill, self-signed",
        names: &once,
        acme_identifier: None,
        // One hour in the past, for clients with a slow clock.
        not_before: now.saturating_sub(3600),
        not_after: now + VALID_SECONDS,
    };
    unsigned.sign(key).map_err(failed)
}

/// Returns a random serial number. Browsers refuse two certificates of one issuer with the same serial
/// number.
pub(super) fn serial() -> Result<[u8; 16], TlsError> {
    let mut serial = [0; 16];
    rand::fill(&mut serial).map_err(failed)?;
    serial[0] = serial[0] & 0x7f | 0x40; // positive, and of full length
    Ok(serial)
}

fn can_be_named(name: &str) -> bool {
    let is_name = !name.is_empty()
        && name.len() <= 253
        && name != "*"
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte));
    is_name || name.parse::<IpAddr>().is_ok()
}

pub(super) fn pair_up(
    key: &EcdsaKeyPair,
    certificate: Vec<u8>,
) -> Result<CertificatePair, TlsError> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pkcs8(key)?));
    CertificatePair::match_up(vec![CertificateDer::from(certificate)], vec![key], || {
        failed("the key is missing")
    })
}

/// Writes `der` as PEM (RFC 7468).
fn keep(path: &Path, label: &str, der: &[u8], mode: u32) -> Result<(), TlsError> {
    let pem = pem(label, der);
    atomic_file::write(path, pem.as_bytes(), mode).map_err(|error| {
        TlsError::new(
            TlsPart::SelfSigned,
            format!("cannot store the self-signed certificate: {error}"),
            "make the state folder writable",
        )
        .in_file(path)
    })
}

pub(super) fn failed(error: impl std::fmt::Display) -> TlsError {
    TlsError::new(
        TlsPart::SelfSigned,
        format!("cannot make a self-signed certificate: {error}"),
        "",
    )
}

const CERTIFICATE_FILE: &str = "self-signed.pem";
const KEY_FILE: &str = "self-signed.key";
/// Validity of the certificate. Public CAs may sign for 398 days, and some clients apply the limit to all
/// certificates.
const VALID_SECONDS: u64 = 397 * 86_400;
/// Time left at which the certificate is replaced: 30 days, longer than most machines run without a look at
/// the log.
const RENEWED_BEFORE_SECONDS: u64 = 30 * 86_400;
/// 2026-01-01. An earlier time means a wrong clock, and a certificate with an earlier validity would be
/// useless.
const CLOCK_STARTS: u64 = 1_767_225_600;
/// Maximum number of names in the certificate, since every full handshake contains the certificate. Further
/// names are left out.
const NAMES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    const NOW: u64 = 1_800_000_000;

    fn names() -> Vec<String> {
        [
            "a.test",
            "192.0.2.7",
            "fe80::1%eth0",
            "*",
            "ü.test",
            "A.test",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    #[test]
    fn the_certificate_is_made_once_and_stored() {
        let state = tempfile::tempdir().unwrap();
        let first = SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
        let second = SelfSigned::load_or_make(state.path(), &[], NOW + 300 * 86_400).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.fingerprint().len(), 95);
        assert_eq!(first.not_after(), NOW + 397 * 86_400);
        let mode = |name: &str| {
            let metadata = fs::metadata(state.path().join(name)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!(mode(KEY_FILE), 0o600);
        assert_eq!(mode(CERTIFICATE_FILE) & 0o600, 0o600);
        let covered = ["localhost", "127.0.0.1", "::1", "a.test", "192.0.2.7"].map(str::to_owned);
        assert_eq!(first.pair().warnings(&covered, NOW), [""; 0]);
    }

    #[test]
    fn a_certificate_is_replaced_before_its_expiry_and_keeps_its_key() {
        let state = tempfile::tempdir().unwrap();
        let first = SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
        let key = fs::read(state.path().join(KEY_FILE)).unwrap();
        let later = NOW + 368 * 86_400;
        let second = SelfSigned::load_or_make(state.path(), &names(), later).unwrap();
        assert_ne!(first.fingerprint(), second.fingerprint());
        assert_eq!(fs::read(state.path().join(KEY_FILE)).unwrap(), key);
        // The first certificate is not valid yet, and is therefore replaced, too.
        let third = SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
        assert_ne!(third.fingerprint(), second.fingerprint());
    }

    #[test]
    fn a_clock_that_was_not_set_yet_changes_nothing() {
        let state = tempfile::tempdir().unwrap();
        let early = SelfSigned::load_or_make(state.path(), &names(), 60).unwrap();
        assert_eq!(early.not_after(), CLOCK_STARTS + 397 * 86_400);
        let set = SelfSigned::load_or_make(state.path(), &names(), CLOCK_STARTS + 86_400).unwrap();
        let again = SelfSigned::load_or_make(state.path(), &names(), 30).unwrap();
        assert_eq!(early.fingerprint(), set.fingerprint());
        assert_eq!(early.fingerprint(), again.fingerprint());
    }

    #[test]
    fn openssl_reads_both_files() {
        let state = tempfile::tempdir().unwrap();
        SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
        let public_key = |arguments: [&str; 4], file: &str| {
            let output = Command::new("openssl")
                .args(arguments)
                .arg(state.path().join(file))
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let of_certificate = public_key(["x509", "-noout", "-pubkey", "-in"], CERTIFICATE_FILE);
        let of_key = public_key(["pkey", "-pubout", "-check", "-in"], KEY_FILE);
        assert!(of_certificate.starts_with("-----BEGIN PUBLIC KEY-----"));
        assert!(of_key.contains(&of_certificate), "{of_key}");
        let key = fs::read_to_string(state.path().join(KEY_FILE)).unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{key}");
        assert!(key.lines().all(|line| line.len() <= 64), "{key}");
    }

    #[test]
    fn a_key_that_openssl_made_is_kept() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(KEY_FILE);
        let output = Command::new("openssl")
            .args(["genpkey", "-algorithm", "EC"])
            .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-out"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let key = fs::read(&file).unwrap();
        SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
        assert_eq!(fs::read(&file).unwrap(), key);
    }

    #[test]
    fn broken_files_are_replaced() {
        let state = tempfile::tempdir().unwrap();
        SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
        for broken in [CERTIFICATE_FILE, KEY_FILE] {
            fs::write(state.path().join(broken), "-----BEGIN").unwrap();
            let made = SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
            let kept = SelfSigned::load_or_make(state.path(), &names(), NOW).unwrap();
            assert_eq!(made.fingerprint(), kept.fingerprint());
        }
        let error = SelfSigned::load_or_make(Path::new("/proc/nowhere"), &[], NOW).unwrap_err();
        assert!(error.what.contains("cannot store"), "{error}");
    }
}
