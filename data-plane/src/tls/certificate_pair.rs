//! Certificate and private key from PEM files: both in one file or in two, in any order, checked against
//! each other. An error names the file and a command as remedy.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SigningKey};

use crate::limits::MANAGER_CERTIFICATE_DAYS_MIN;
use crate::tls::der::DerCertificate;
use crate::tls::error::{TlsError, TlsPart};
use base::atomic_file;
use base::digest::base64;

/// Certificate chain and key in the form required by rustls.
#[derive(Debug)]
pub(super) struct CertificatePair {
    pub certified: Arc<CertifiedKey>,
    /// First second of validity of the first certificate, Unix time.
    pub not_before: u64,
    pub not_after: u64,
    /// True if the file didn't begin with the certificate of the key. The chain is then put in order.
    pub reordered: bool,
}

impl CertificatePair {
    /// Reads a pair. Without `key`, the certificate's file contains the private key.
    pub(super) fn load(
        certificate: &Path,
        key: Option<&Path>,
    ) -> Result<CertificatePair, TlsError> {
        let chain_file = PemFile::read(certificate, TlsPart::Certificate)?;
        if chain_file.certificates.is_empty() {
            return Err(no_certificate(&chain_file, certificate));
        }
        let Some(key) = key else {
            return CertificatePair::match_up(chain_file.certificates, chain_file.keys, || {
                no_key(&chain_file.sections, certificate, true)
            })
            .map_err(|error| error.in_file(certificate));
        };
        let key_file = PemFile::read(key, TlsPart::Key)?;
        CertificatePair::match_up(chain_file.certificates, key_file.keys, || {
            no_key(&key_file.sections, key, false)
        })
        .map_err(|error| error.in_file(key))
    }

    /// Finds the certificate that matches one of the keys, and puts the certificate's chain in order.
    pub(super) fn match_up(
        certificates: Vec<CertificateDer<'static>>,
        keys: Vec<PrivateKeyDer<'static>>,
        no_key: impl FnOnce() -> TlsError,
    ) -> Result<CertificatePair, TlsError> {
        if keys.is_empty() {
            return Err(no_key());
        }
        for der in keys {
            let key = signing_key(&der)?;
            let Some(leaf) = certificates.iter().position(|der| belongs(der, &*key)) else {
                continue;
            };
            let chain = in_order(certificates, leaf);
            let Some(first) = chain.first().and_then(|der| DerCertificate::parse(der)) else {
                break;
            };
            let (not_before, not_after) = (first.not_before, first.not_after);
            return Ok(CertificatePair {
                certified: Arc::new(CertifiedKey::new(chain, key)),
                not_before,
                not_after,
                reordered: leaf != 0,
            });
        }
        let mut error = TlsError::new(
            TlsPart::Key,
            "the private key does not belong to the certificate",
            "both must come from the same certificate request; after a renewal, copy both files",
        );
        error.mismatch = true;
        Err(error)
    }

    /// Returns warnings about a pair that can be served nevertheless. `names` is empty for a certificate that the
    /// server renews. `now` is Unix time.
    pub(super) fn warnings(&self, names: &[String], now: u64) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.reordered {
            warnings.push(
                "the chain does not begin with the server's own certificate; the server sends the \
                 chain in order"
                    .to_owned(),
            );
        }
        if now > self.not_after {
            let days = (now - self.not_after) / 86_400;
            let days = match days {
                1 => "1 day".to_owned(),
                _ => format!("{days} days"),
            };
            warnings.push(format!("the certificate expired {days} ago"));
        } else if self.not_after - now < self.soon_seconds(names.is_empty()) {
            let days = (self.not_after - now) / 86_400;
            warnings.push(format!("the certificate ends soon, days left: {days}"));
        } else if now < self.not_before {
            let days = (self.not_before - now).div_ceil(86_400);
            warnings.push(format!(
                "the certificate becomes valid in {days} days, unless the clock of the machine is \
                 wrong"
            ));
        }
        let leaf = self.certified.cert.first();
        let has_names = leaf.is_some_and(|der| der.windows(SAN.len()).any(|part| part == SAN));
        if !names.is_empty() && !has_names {
            warnings.push(
                "the certificate has no subject alternative name, and browsers refuse a certificate with a common \
                 name alone"
                    .to_owned(),
            );
            return warnings;
        }
        for name in self.missing(names) {
            warnings.push(format!("the certificate does not name {name}"));
        }
        warnings
    }

    /// Returns the entries of `names` not covered by the certificate.
    pub(super) fn missing(&self, names: &[String]) -> Vec<String> {
        let Some(Ok(leaf)) = self.certified.cert.first().map(ParsedCertificate::try_from) else {
            return Vec::new(); // X.509 v1, as made by `openssl x509 -req`, has no names to compare
        };
        let mut missing = Vec::new();
        for name in names.iter().filter(|name| *name != "*") {
            // Any label may replace the star.
            let example = match name.strip_prefix("*.") {
                Some(parent) => format!("any-label.{parent}"),
                None => name.clone(),
            };
            let covered = ServerName::try_from(example)
                .is_ok_and(|name| verify_server_name(&leaf, &name).is_ok());
            if !covered {
                missing.push(name.clone());
            }
        }
        missing
    }

    /// Returns the time before the expiry at which a warning is given. Short-lived certificates that the server renews
    /// get a later warning.
    fn soon_seconds(&self, is_renewed: bool) -> u64 {
        if !is_renewed {
            return MANAGER_CERTIFICATE_DAYS_MIN as u64 * 86_400;
        }
        let lifetime = self.not_after.saturating_sub(self.not_before);
        EXPIRES_SOON_SECONDS.min(lifetime / 4)
    }
}

impl TlsError {
    /// Returns a key file beside the refused key that belongs to the certificate.
    pub fn fitting_key(&self, certificate: &Path) -> Option<PathBuf> {
        let key = self.file.as_ref().filter(|_| self.mismatch)?;
        let files = fs::read_dir(key.parent()?).ok()?.take(KEY_FILES_MAX);
        let mut files = files.filter_map(|file| Some(file.ok()?.path()));
        files.find(|file| {
            let is_key = file
                .extension()
                .is_some_and(|ending| ending == "key" || ending == "pem");
            is_key && CertificatePair::load(certificate, Some(file)).is_ok()
        })
    }
}

/// Number of files in a folder that are searched for a key.
const KEY_FILES_MAX: usize = 200;

/// Returns the certificates of a CA file, for the check of clients.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = PemFile::read(path, TlsPart::ClientCa)?;
    if file.certificates.is_empty() {
        return Err(TlsError::new(
            TlsPart::ClientCa,
            format!("the file has no certificate, but {}", file.sections()),
            "name the file with the certificate of the CA that signs your clients' certificates",
        )
        .in_file(path));
    }
    Ok(file.certificates)
}

/// Returns a PEM section (RFC 7468).
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(PEM_LINE_BYTES) {
        pem.push_str(&base64(line));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// Relevant PEM sections of a file.
pub(super) struct PemFile {
    pub certificates: Vec<CertificateDer<'static>>,
    pub keys: Vec<PrivateKeyDer<'static>>,
    /// Labels of all sections in the order of the file.
    sections: Vec<String>,
}

impl PemFile {
    pub(super) fn read(path: &Path, part: TlsPart) -> Result<PemFile, TlsError> {
        let fail = |what: String, hint: String| TlsError::new(part, what, hint).in_file(path);
        let unreadable =
            |error: std::io::Error| fail(format!("cannot read the file: {error}"), String::new());
        let read = atomic_file::read_bounded(path, PEM_FILE_BYTES_MAX);
        let bytes = read.map_err(|error| match error.kind() {
            ErrorKind::IsADirectory => fail(
                "the path is a folder".to_owned(),
                "name a PEM file".to_owned(),
            ),
            ErrorKind::FileTooLarge => fail(
                "the file is too large for PEM".to_owned(),
                format!("at most {PEM_FILE_BYTES_MAX} bytes"),
            ),
            _ => unreadable(error),
        })?;
        PemFile::parse(&bytes).map_err(|(what, hint)| {
            let hint = match part {
                TlsPart::ClientCa if hint == BEGINS => {
                    "name the PEM file of the authorities: client_ca = \"clients-ca.pem\""
                        .to_owned()
                }
                _ => hint.replace("FILE", &path.display().to_string()),
            };
            fail(what, hint)
        })
    }

    /// Parses PEM. The error consists of the fault and the remedy, with FILE in place of the file's name.
    pub(super) fn parse(bytes: &[u8]) -> Result<PemFile, (String, String)> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let sections = section_labels(bytes);
        if sections.is_empty() {
            return Err(not_pem(bytes));
        }
        let mut file = PemFile {
            certificates: Vec::new(),
            keys: Vec::new(),
            sections,
        };
        if file
            .sections
            .iter()
            .any(|label| label == "ENCRYPTED PRIVATE KEY")
            || bytes.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED)
        {
            return Err((
                "the private key is encrypted, and the server has no password for the key"
                    .to_owned(),
                "to remove the password, run `openssl pkey -in FILE -out plain.key`".to_owned(),
            ));
        }
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
            let (kind, der) = section.map_err(|error| {
                let what = match error {
                    pem::Error::MissingSectionEnd { .. } => {
                        "the end is missing, so the file is incomplete".to_owned()
                    }
                    other => format!("invalid PEM: {other}"),
                };
                (what, "copy the file again".to_owned())
            })?;
            file.add(kind, der);
        }
        if let Some(bad) = file
            .certificates
            .iter()
            .position(|der| DerCertificate::parse(der).is_none())
        {
            return Err((
                format!(
                    "certificate {} of the file is not an X.509 certificate",
                    bad + 1
                ),
                "copy the file again".to_owned(),
            ));
        }
        Ok(file)
    }

    /// Adds a section. Sections other than certificates and keys are ignored.
    fn add(&mut self, kind: SectionKind, der: Vec<u8>) {
        match kind {
            SectionKind::Certificate => self.certificates.push(der.into()),
            SectionKind::PrivateKey => self.keys.push(PrivateKeyDer::Pkcs8(der.into())),
            SectionKind::EcPrivateKey => self.keys.push(PrivateKeyDer::Sec1(der.into())),
            SectionKind::RsaPrivateKey => self.keys.push(PrivateKeyDer::Pkcs1(der.into())),
            _ => {}
        }
    }

    /// Returns the labels of all sections, for an error message.
    fn sections(&self) -> String {
        self.sections.join(", ")
    }
}

/// Returns the labels of all sections in PEM text, in the order of the text.
fn section_labels(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == b'\n' || *byte == b'\r')
        .filter_map(|line| line.strip_prefix(b"-----BEGIN "))
        .map(|label| {
            let label = String::from_utf8_lossy(label);
            label.trim_end_matches(['-', ' ']).to_owned()
        })
        .collect()
}

fn not_pem(bytes: &[u8]) -> (String, String) {
    if bytes.is_empty() {
        return ("the file is empty".to_owned(), BEGINS.to_owned());
    }
    // A DER sequence with a length of two bytes. In PKCS #12 the first element is the version 3.
    if bytes.starts_with(&[0x30, 0x82]) {
        return if bytes.get(4..7) == Some(&[2, 1, 3]) {
            (
                "the file is PKCS #12, not PEM".to_owned(),
                "to convert the file, run `openssl pkcs12 -in FILE -nodes -out combined.pem`"
                    .to_owned(),
            )
        } else {
            (
                "the file is DER, not PEM".to_owned(),
                "to convert a certificate, run `openssl x509 -inform der -in FILE`; to convert a \
                 key, run `openssl pkey -inform der -in FILE`"
                    .to_owned(),
            )
        };
    }
    ("the file is not PEM".to_owned(), BEGINS.to_owned())
}

fn no_certificate(file: &PemFile, path: &Path) -> TlsError {
    let has = |word: &str| file.sections.iter().any(|label| label.ends_with(word));
    let hint = if has("REQUEST") {
        "the file holds a request; name the file with the CA's answer"
    } else if has("PRIVATE KEY") {
        "the file holds a key; check whether `certificate` and `key` are exchanged"
    } else {
        "name the file with the server's certificate, followed by the chain"
    };
    TlsError::new(
        TlsPart::Certificate,
        format!("the file has no certificate, but {}", file.sections()),
        hint,
    )
    .in_file(path)
}

fn no_key(sections: &[String], path: &Path, combined: bool) -> TlsError {
    let hint = if let Some(other) = sections.iter().find(|label| label.ends_with("PRIVATE KEY")) {
        return TlsError::new(
            TlsPart::Key,
            format!("the key type {other} is not supported"),
            "use an RSA, ECDSA or Ed25519 key, as PKCS #8, PKCS #1 or SEC 1",
        )
        .in_file(path);
    } else if combined {
        "append the key to the file, or name the key's file with `key`"
    } else if sections.iter().any(|label| label == "CERTIFICATE") {
        "the file holds a certificate; check whether `certificate` and `key` are exchanged"
    } else {
        "name a file with a section BEGIN PRIVATE KEY"
    };
    TlsError::new(TlsPart::Key, "the file has no private key", hint).in_file(path)
}

fn signing_key(der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, TlsError> {
    any_supported_type(der).map_err(|error| {
        TlsError::new(
            TlsPart::Key,
            format!("the private key cannot be used: {error}"),
            "use RSA of at least 2048 bits, ECDSA on P-256, P-384 or P-521, or Ed25519",
        )
    })
}

/// Returns true if `certificate` contains the public key of `key`. rustls's comparison requires X.509 v3,
/// but a v1 certificate can be served as well.
fn belongs(certificate: &CertificateDer<'_>, key: &dyn SigningKey) -> bool {
    let Some(certificate) = DerCertificate::parse(certificate) else {
        return false;
    };
    key.public_key()
        .is_none_or(|public| public.as_ref() == certificate.public_key)
}

/// Returns the leaf, followed by its issuer, and so on. Certificates outside of the chain stay at the end:
/// RFC 8446 §4.4.2 allows extra certificates, and a cross-signed certificate may help an old client.
fn in_order(
    mut certificates: Vec<CertificateDer<'static>>,
    leaf: usize,
) -> Vec<CertificateDer<'static>> {
    let mut chain = vec![certificates.remove(leaf)];
    loop {
        let issuer = chain.last().and_then(|der| DerCertificate::parse(der));
        let next = issuer.and_then(|last| {
            certificates.iter().position(|der| {
                DerCertificate::parse(der).is_some_and(|other| other.subject == last.issuer)
            })
        });
        match next {
            Some(index) => chain.push(certificates.remove(index)),
            None => break,
        }
    }
    chain.append(&mut certificates);
    chain
}

/// Help for a file that is not PEM.
const BEGINS: &str = "a PEM file begins with -----BEGIN";
/// Bytes of one PEM line: 64 characters of base64 (RFC 7468 §2).
const PEM_LINE_BYTES: usize = 48;
/// Header of an encrypted key in the traditional format (RFC 1421 §4.6.1.1).
const ENCRYPTED: &[u8] = b"Proc-Type: 4,ENCRYPTED";
/// Bytes of a PEM file, 1 MiB. A certificate takes 1 to 3 KB, and a system's whole CA bundle 220 KB. A
/// larger file is refused.
const PEM_FILE_BYTES_MAX: u64 = 1 << 20;
/// Object identifier of the subject alternative name (RFC 5280 §4.2.1.6) in DER.
const SAN: &[u8] = &[6, 3, 0x55, 0x1d, 0x11];
/// Time before the expiry of a renewed certificate at which a warning is given. Renewal should have happened weeks
/// before.
const EXPIRES_SOON_SECONDS: u64 = 7 * 86_400;
