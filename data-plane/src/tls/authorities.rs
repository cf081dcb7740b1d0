//! Certificate authorities that certify servers: from a file of the operator, or the authorities of the
//! system.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::tls::certificate_pair::PemFile;
use crate::tls::error::{TlsError, TlsPart};
use base::digest::sha256;

/// Trusted certificates.
#[derive(Clone, Debug)]
pub(super) struct Authorities {
    /// Authorities, parsed.
    pub(super) roots: Arc<RootCertStore>,
    /// SHA-256 of every certificate of an operator's file; empty for the authorities of the system.
    pub(super) listed: Vec<[u8; 32]>,
}

impl Authorities {
    /// Reads the authorities of a PEM file, or the authorities of the system.
    pub(super) fn load(file: Option<&Path>) -> Result<Authorities, TlsError> {
        let Some(file) = file else {
            let roots = system_roots()?;
            let listed = Vec::new();
            return Ok(Authorities { roots, listed });
        };
        let certificates = certificates(file)?;
        let listed = certificates.iter().map(|der| sha256(der)).collect();
        let roots = Arc::new(roots(file, certificates)?);
        Ok(Authorities { roots, listed })
    }

    /// Returns true if both have the same certificates.
    pub(super) fn is_same(&self, other: &Authorities) -> bool {
        if self.listed.is_empty() {
            Arc::ptr_eq(&self.roots, &other.roots)
        } else {
            self.listed == other.listed
        }
    }
}

/// Authorities of the system, shared by all clients of the process. About 140 authorities take more than
/// 100 KB, so the memory is released with the last client.
static SYSTEM: Mutex<Option<SystemRoots>> = Mutex::new(None);

struct SystemRoots {
    file: PathBuf,
    /// Length of the file and time of its last change.
    version: (u64, Option<SystemTime>),
    roots: Weak<RootCertStore>,
}

/// Returns the authorities of the system. The file is read again only after a change.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    let file = system_store()?;
    let metadata = fs::metadata(&file).map(|it| (it.len(), it.modified().ok()));
    let version = metadata.unwrap_or_default();
    let mut system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
    let known = system
        .as_ref()
        .filter(|known| known.file == file && known.version == version);
    if let Some(roots) = known.and_then(|known| known.roots.upgrade()) {
        return Ok(roots);
    }
    let roots = Arc::new(roots(&file, certificates(&file)?)?);
    *system = Some(SystemRoots {
        file,
        version,
        roots: Arc::downgrade(&roots),
    });
    Ok(roots)
}

/// Returns the certificates of a PEM file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = PemFile::read(path, TlsPart::Authorities)?;
    if file.certificates.is_empty() {
        let hint = "name the PEM file with the certificate of the authority";
        let error = TlsError::new(TlsPart::Authorities, "the file has no certificate", hint);
        return Err(error.in_file(path));
    }
    Ok(file.certificates)
}

/// Parses the authorities. A certificate of an unknown kind is left out, as long as one is usable.
fn roots(
    path: &Path,
    certificates: Vec<CertificateDer<'static>>,
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        let hint = "name the PEM file with the certificate of the authority";
        let error = TlsError::new(TlsPart::Authorities, "no usable certificate", hint);
        return Err(error.in_file(path));
    }
    Ok(roots)
}

/// Returns the file with the trusted authorities of the Linux distribution.
fn system_store() -> Result<PathBuf, TlsError> {
    let is_here = |path: &&&str| Path::new(path).is_file();
    let found = SYSTEM_STORES.iter().find(is_here).map(PathBuf::from);
    found.ok_or_else(|| {
        TlsError::new(
            TlsPart::Authorities,
            "no list of trusted certificate authorities found",
            "install the package `ca-certificates`, or name a file with `ca`",
        )
    })
}

const SYSTEM_STORES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
    "/etc/ssl/ca-bundle.pem",             // openSUSE
    "/etc/ssl/cert.pem",                  // Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
];
