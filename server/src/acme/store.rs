//! ACME files in the state folder, kept so that a restart continues where the server stopped: accounts,
//! pending orders, certificates, and times of the next attempts. Each file is replaced atomically.
//!
//! ```text
//! acme/lock
//! acme/directories/HOST…/account.key      PEM, 0600
//! acme/directories/HOST…/account.json
//! acme/certificates/NAME/certificate.pem  key and chain, 0600
//! acme/certificates/NAME/order.json       0600: contains the key for the ordered certificate
//! acme/certificates/NAME/state.json
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::jws::AccountKey;
use super::schedule::RenewalState;
use crate::acme::error::AcmeError;
use crate::config::ManagedCertificate;
use base::atomic_file;
use data_plane::tls::IssuedCertificate;
use wire::json::{Json, quoted};

/// Folder `acme` of the state folder.
#[derive(Clone)]
pub(super) struct AcmeStore {
    folder: PathBuf,
}

/// Account registered with a directory.
pub(super) struct AcmeAccount {
    pub(super) kid: String,
    /// Email address registered with the account.
    pub(super) email: Option<String>,
}

/// Order stored for resumption.
#[derive(Clone)]
pub(super) struct StoredOrder {
    pub(super) url: String,
    pub(super) directory: String,
    pub(super) names: Vec<String>,
    /// PEM key for the ordered certificate.
    pub(super) key: String,
    /// Number of resumptions after a restart or a failure.
    pub(super) resumes: u64,
}

/// Files of one certificate.
pub(super) struct CertificateStore {
    folder: PathBuf,
}

impl AcmeStore {
    pub(super) fn new(state: &Path) -> AcmeStore {
        AcmeStore {
            folder: state.join("acme"),
        }
    }

    /// Takes the lock, which is held as long as the returned file is open; None if another server holds the
    /// lock.
    pub(super) fn lock(&self) -> Result<Option<File>, AcmeError> {
        let path = self.folder.join("lock");
        let open = || {
            crate::config::prepare_folder(&self.folder, None)?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.open(&path)
        };
        let file = open().map_err(|error| cannot("open", &path, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(cannot("lock", &path, &error.into())),
        }
    }

    fn directory(&self, url: &str) -> PathBuf {
        let name = url.strip_prefix("https://").unwrap_or(url);
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let name: String = name
            .trim_matches('/')
            .chars()
            .map(|c| if fits(c) { c } else { '_' })
            .collect();
        self.folder.join("directories").join(name)
    }

    /// Returns the account key for a directory, and the account if registered.
    pub(super) fn account(
        &self,
        directory: &str,
    ) -> Result<Option<(AccountKey, Option<AcmeAccount>)>, AcmeError> {
        let folder = self.directory(directory);
        let key_file = folder.join("account.key");
        let Some(pem) = read(&key_file)? else {
            return Ok(None);
        };
        let key = AccountKey::from_pem(&pem).map_err(|it| it.during(key_file.display()))?;
        let json = read(&folder.join("account.json"))?;
        let account = json.and_then(|text| {
            let json = Json::parse(text.as_bytes())?;
            Some(AcmeAccount {
                kid: json.text("kid")?.to_owned(),
                email: json.text("email").map(str::to_owned),
            })
        });
        Ok(Some((key, account)))
    }

    pub(super) fn keep_account_key(
        &self,
        directory: &str,
        key: &AccountKey,
    ) -> Result<(), AcmeError> {
        let file = self.directory(directory).join("account.key");
        write(&file, key.pem(), 0o600)
    }

    pub(super) fn keep_account(
        &self,
        directory: &str,
        account: &AcmeAccount,
    ) -> Result<(), AcmeError> {
        let email = account.email.as_ref();
        let email = email.map_or("null".to_owned(), |email| quoted(email));
        let text = format!("{{\"kid\":{},\"email\":{email}}}\n", quoted(&account.kid));
        write(
            &self.directory(directory).join("account.json"),
            &text,
            0o600,
        )
    }

    /// Deletes the account after the directory has lost the account: the next session registers again with
    /// the same key.
    pub(super) fn forget_account(&self, directory: &str) {
        let _ = fs::remove_file(self.directory(directory).join("account.json"));
    }
}

impl CertificateStore {
    pub(super) fn new(wanted: &ManagedCertificate) -> CertificateStore {
        let folder = wanted.file.parent().map(Path::to_owned);
        CertificateStore {
            folder: folder.unwrap_or_default(),
        }
    }

    /// Returns the stored certificate; None if the file holds no usable certificate.
    pub(super) fn certificate(&self, names: &[String]) -> Option<IssuedCertificate> {
        let text = read(&self.folder.join(CERTIFICATE)).ok().flatten()?;
        IssuedCertificate::read(text.as_bytes(), names).ok()
    }

    pub(super) fn keep_certificate(&self, text: &str) -> Result<(), AcmeError> {
        write(&self.folder.join(CERTIFICATE), text, 0o600)
    }

    pub(super) fn order(&self) -> Option<StoredOrder> {
        let text = read(&self.folder.join(ORDER)).ok().flatten()?;
        let json = Json::parse(text.as_bytes())?;
        let names = json.list("names").iter().filter_map(|name| match name {
            Json::Text(name) => Some(name.clone()),
            _ => None,
        });
        Some(StoredOrder {
            url: json.text("url")?.to_owned(),
            directory: json.text("directory")?.to_owned(),
            names: names.collect(),
            key: json.text("key")?.to_owned(),
            resumes: json.number("resumes")?,
        })
    }

    pub(super) fn keep_order(&self, order: &StoredOrder) -> Result<(), AcmeError> {
        let names: Vec<String> = order.names.iter().map(|name| quoted(name)).collect();
        let text = format!(
            "{{\"url\":{},\"directory\":{},\"names\":[{}],\"key\":{},\"resumes\":{}}}\n",
            quoted(&order.url),
            quoted(&order.directory),
            names.join(","),
            quoted(&order.key),
            order.resumes
        );
        write(&self.folder.join(ORDER), &text, 0o600)
    }

    pub(super) fn forget_order(&self) {
        let _ = fs::remove_file(self.folder.join(ORDER));
    }

    /// Returns the stored history, empty if the file is unreadable.
    pub(super) fn state(&self) -> RenewalState {
        let text = read(&self.folder.join(STATE)).ok().flatten();
        let json = text.and_then(|text| Json::parse(text.as_bytes()));
        json.map(|json| RenewalState::from_json(&json))
            .unwrap_or_default()
    }

    pub(super) fn keep_state(&self, state: &RenewalState) -> Result<(), AcmeError> {
        write(&self.folder.join(STATE), &state.to_json(), 0o600)
    }
}

const CERTIFICATE: &str = "certificate.pem";
const ORDER: &str = "order.json";
const STATE: &str = "state.json";
/// Bytes of the largest file read. Regular files are a hundred times smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the text of a file; None if the file is missing.
fn read(path: &Path) -> Result<Option<String>, AcmeError> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), AcmeError> {
    atomic_file::write(path, text.as_bytes(), mode).map_err(|error| cannot("write", path, &error))
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> AcmeError {
    AcmeError::new(format!("can't {verb} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn stored_files_are_read_back() {
        let state = tempfile::tempdir().unwrap();
        let store = AcmeStore::new(state.path());
        let url = "https://ca.test:14000/acme/dir";
        assert!(store.account(url).unwrap().is_none());
        let key = AccountKey::generate().unwrap();
        store.keep_account_key(url, &key).unwrap();
        assert!(store.account(url).unwrap().unwrap().1.is_none());
        let account = AcmeAccount {
            kid: "https://ca.test/1".to_owned(),
            email: None,
        };
        store.keep_account(url, &account).unwrap();
        let (again, account) = store.account(url).unwrap().unwrap();
        assert_eq!(again.authorization("a"), key.authorization("a"));
        assert_eq!(account.unwrap().kid, "https://ca.test/1");
        let file = "acme/directories/ca.test_14000_acme_dir/account.key";
        let mode = fs::metadata(state.path().join(file)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
        store.forget_account(url);
        assert!(store.account(url).unwrap().unwrap().1.is_none());

        let site = CertificateStore::new(&ManagedCertificate {
            names: Vec::new(),
            file: state.path().join("acme/certificates/a/certificate.pem"),
        });
        assert!(site.order().is_none());
        let order = StoredOrder {
            url: "https://ca.test/2".to_owned(),
            directory: url.to_owned(),
            names: vec!["a.test".to_owned()],
            key: "PEM\n".to_owned(),
            resumes: 3,
        };
        site.keep_order(&order).unwrap();
        let kept = site.order().unwrap();
        assert_eq!((kept.key, kept.names), (order.key, order.names));
        assert_eq!((kept.url, kept.resumes), (order.url, 3));
        site.forget_order();
        assert!(site.order().is_none());
    }

    #[test]
    fn one_server_at_a_time_holds_the_lock() {
        let state = tempfile::tempdir().unwrap();
        let store = AcmeStore::new(state.path());
        let held = store.lock().unwrap();
        assert!(held.is_some());
        assert!(store.lock().unwrap().is_none());
        drop(held);
        // A child process being forked by another test holds a copy of the descriptor for a moment. A lock
        // never released makes the test hang.
        while store.lock().unwrap().is_none() {
            std::thread::yield_now();
        }
    }
}
