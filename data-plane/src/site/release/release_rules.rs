//! Release to serve, as configured: the store, the verified pointer, and the releases that the server remembers.
//!
//! A pointer is verified by the site, the signature of a publisher, the identity of the site, and the sequence.

use crate::limits::RELEASES_REMEMBERED_MAX;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base::atomic_file;
use base::digest::{from_hex, hex};
use release::release_pointer::{PointerSignature, ReleasePointer};
use release::store::{
    ReleaseStore, ReleaseSupport, ServedRelease, SiteRecords, StoreError, StoreFolder,
    has_contents, read_manifest, withdrawn_releases,
};
use std::collections::HashSet;
use std::path::PathBuf;
use std::{fmt, io};

/// Release to serve, as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReleaseRules {
    /// Folder of the store.
    pub store: PathBuf,
    /// Name of the site in the store.
    pub site: String,
    /// Ed25519 public keys of the publishers. Empty = an unsigned pointer is accepted.
    pub publishers: Vec<[u8; 32]>,
    /// Identity of the site in the signatures; None = a signature for any site of the name counts.
    pub site_id: Option<String>,
    /// File with the last served release, which is served after a restart with a damaged pointer. With `publishers`, an
    /// older pointer does not replace the release.
    pub served: PathBuf,
    /// Support of releases in this build.
    pub support: ReleaseSupport,
}

/// Refusal of a release.
#[derive(Debug, PartialEq, Eq)]
pub struct ReleaseError {
    /// File of the store that is refused.
    pub path: PathBuf,
    /// Reason, as one clause.
    pub what: String,
    /// Release and sequence of the refused pointer; None for a pointer that cannot be read.
    pub publication: Option<([u8; 32], u64)>,
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for ReleaseError {}

impl ReleaseRules {
    /// Opens the store.
    pub fn open_store(&self) -> Result<Box<dyn ReleaseStore>, StoreError> {
        Ok(Box::new(StoreFolder::open(&self.store)?))
    }

    /// Returns the folder of the site in the store.
    pub fn folder(&self) -> PathBuf {
        self.store.join("sites").join(&self.site)
    }

    /// Returns the path of the pointer.
    pub fn pointer(&self) -> PathBuf {
        self.folder().join("pointer")
    }

    /// Returns the folder with the labels of releases.
    pub fn labels(&self) -> PathBuf {
        self.folder().join("labels")
    }

    /// Returns the folder with the published pointers.
    pub fn history_folder(&self) -> PathBuf {
        self.folder().join("pointers")
    }

    /// Reads the publications, labels and withdrawn releases of the site; blocks. A missing store has no records.
    pub fn history(&self) -> Result<SiteRecords, ReleaseError> {
        let store = match StoreFolder::open(&self.store) {
            Err(StoreError::Missing) => return Ok(SiteRecords::default()),
            store => store.map_err(|error| refused(self.store.clone(), &error))?,
        };
        SiteRecords::read_history(&store, &self.site).map_err(|error| ReleaseError {
            path: self.store.clone(),
            what: error.to_string(),
            publication: None,
        })
    }

    /// Returns the folder with a file for each withdrawn release.
    pub fn withdrawn(&self) -> PathBuf {
        self.folder().join("withdrawn")
    }

    /// Returns the path of a content or a manifest.
    pub fn blob(&self, digest: &[u8; 32]) -> PathBuf {
        let name = hex(digest);
        self.store.join("blobs").join(&name[..2]).join(name)
    }

    /// Returns the size of a content, 0 for a missing content.
    pub(super) fn blob_bytes(&self, digest: &[u8; 32]) -> u64 {
        let file = self.open_store().and_then(|store| store.open_blob(digest));
        let metadata = file.and_then(|file| file.metadata().map_err(StoreError::from));
        metadata.map_or(0, |metadata| metadata.len())
    }

    /// Returns true if a release is withdrawn.
    pub(in crate::site) fn is_withdrawn(&self, release: &[u8; 32]) -> Result<bool, ReleaseError> {
        if self.remembered().contains(release) {
            return Ok(true);
        }
        let withdrawn = |store: Box<dyn ReleaseStore>| store.is_withdrawn(&self.site, release);
        let withdrawn = self.open_store().and_then(withdrawn);
        withdrawn.map_err(|error| refused(self.withdrawn(), &error))
    }

    /// Returns all withdrawn releases of the site.
    pub(super) fn withdrawn_releases(&self) -> Result<HashSet<[u8; 32]>, StoreError> {
        let store = StoreFolder::open(&self.store)?;
        let mut withdrawn: HashSet<_> = withdrawn_releases(&store, &self.site)?
            .into_iter()
            .collect();
        withdrawn.extend(self.remembered());
        Ok(withdrawn)
    }

    /// Returns the file with the releases that the server saw withdrawn. No site of a store has a plus sign in its name.
    fn remembered_file(&self) -> PathBuf {
        let mut path = self.served.clone().into_os_string();
        path.push("+withdrawn");
        path.into()
    }

    /// Returns the releases of a site with `publishers` that the server saw withdrawn, the oldest first. The owner of the
    /// store could remove the mark of the withdrawal, and has no key of a publisher.
    fn remembered(&self) -> Vec<[u8; 32]> {
        if self.publishers.is_empty() {
            return Vec::new();
        }
        let text = atomic_file::read(&self.remembered_file()).unwrap_or_default();
        let lines = text.split(|byte| *byte == b'\n');
        lines.filter_map(from_hex).collect()
    }

    /// Remembers a withdrawn release of a site with `publishers` over the removal of its mark and over a restart. A file
    /// that cannot be written leaves the mark in the store alone.
    pub(super) fn remember_withdrawn(&self, release: &[u8; 32]) {
        let mut remembered = self.remembered();
        if self.publishers.is_empty() || remembered.contains(release) {
            return;
        }
        remembered.push(*release);
        let first = remembered.len().saturating_sub(RELEASES_REMEMBERED_MAX);
        let lines = remembered[first..].iter().map(|it| hex(it) + "\n");
        let text: String = lines.collect();
        let _ = atomic_file::write(&self.remembered_file(), text.as_bytes(), 0o644);
    }

    /// Reads and verifies the pointer. Returns None before the first release. `last` is the last release of the site.
    pub(super) fn read_pointer(
        &self,
        last: Option<&ServedRelease>,
    ) -> Result<Option<ServedRelease>, ReleaseError> {
        let store = match self.open_store() {
            Err(StoreError::Missing) if last.is_none() => return Ok(None),
            store => store.map_err(|error| refused(self.store.clone(), &error))?,
        };
        let text = store.pointer(&self.site);
        let text = text.map_err(|error| refused(self.pointer(), &error))?;
        let text = match (text, last) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(refused(self.pointer(), &StoreError::Missing)),
            (Some(text), _) => text,
        };
        let release = verify(self, &text);
        release.map(Some).map_err(|what| ReleaseError {
            path: self.pointer(),
            what,
            publication: ReleasePointer::parse(&text)
                .map(|(pointer, _)| (pointer.release, pointer.sequence)),
        })
    }

    /// Returns the release that the server acknowledged last; None before the first release.
    pub fn acknowledged(&self) -> Option<ServedRelease> {
        ServedRelease::parse(&atomic_file::read(&self.served).ok()?)
    }

    /// Returns the acknowledged release if it can be served in place of a damaged pointer: all contents are in the store,
    /// and, with `publishers`, the record of the publication is signed.
    pub(super) fn restored(&self, acknowledged: &ServedRelease) -> Option<ServedRelease> {
        let store = StoreFolder::open(&self.store).ok()?;
        let record = store
            .record(&self.site, acknowledged.sequence)
            .ok()
            .flatten();
        let record = record.and_then(|text| verify(self, &text).ok());
        let record = record.filter(|record| {
            (record.release, record.sequence) == (acknowledged.release, acknowledged.sequence)
        });
        let found = if self.publishers.is_empty() {
            record.unwrap_or(*acknowledged)
        } else {
            record?
        };
        has_contents(&store, &found.release).then_some(found)
    }

    /// Reads and verifies the pointer, and reads the manifest; blocks. In place of a pointer that is refused stands the
    /// last acknowledged release, as after a restart of the server. Returns None before the first release.
    pub fn published(&self) -> Result<Option<(ServedRelease, Vec<u8>)>, ReleaseError> {
        let release = match self.read_pointer(None) {
            Err(error) => {
                let acknowledged = self.acknowledged();
                let restored = acknowledged.and_then(|release| self.restored(&release));
                restored.ok_or(error)?
            }
            Ok(Some(release)) => release,
            Ok(None) => return Ok(None),
        };
        Ok(Some((release, self.read_text(&release)?)))
    }

    /// Reads the manifest of a release. A withdrawn release is refused.
    pub(super) fn read_text(&self, release: &ServedRelease) -> Result<Vec<u8>, ReleaseError> {
        if self.is_withdrawn(&release.release)? {
            return Err(ReleaseError {
                path: self.blob(&release.release),
                what: format!("the release {} is withdrawn", hex(&release.release)),
                publication: None,
            });
        }
        let store = self.open_store();
        let store = store.map_err(|error| refused(self.store.clone(), &error))?;
        let text = read_manifest(&*store, &release.release);
        text.map_err(|error| refused(self.blob(&release.release), &error))
    }
}

/// Returns the release of a pointer. The error is a clause with the reason that the pointer is refused.
fn verify(rules: &ReleaseRules, text: &[u8]) -> Result<ServedRelease, String> {
    let Some((pointer, signature)) = ReleasePointer::parse(text) else {
        return Err("this is no pointer of a version that this server reads".to_owned());
    };
    if pointer.site != rules.site {
        return Err(format!("the pointer is for the site `{}`", pointer.site));
    }
    if !rules.publishers.is_empty() {
        verify_signature(&rules.publishers, signature)?;
        verify_site_id(rules, &pointer)?;
        refuse_older(rules, &pointer)?;
    }
    Ok(ServedRelease {
        release: pointer.release,
        sequence: pointer.sequence,
        time: pointer.time,
    })
}

/// Returns true if a record of the history is for the release, and has the signature of a publisher or needs none.
pub(super) fn is_signed(rules: &ReleaseRules, text: &[u8], release: &[u8; 32]) -> bool {
    ReleasePointer::parse(text).is_some_and(|(pointer, signature)| {
        pointer.site == rules.site
            && pointer.release == *release
            && (rules.publishers.is_empty()
                || verify_signature(&rules.publishers, signature).is_ok()
                    && is_bound(rules, &pointer))
    })
}

fn verify_signature(
    publishers: &[[u8; 32]],
    signature: Option<PointerSignature<'_>>,
) -> Result<(), String> {
    let Some(signature) = signature else {
        return Err("the pointer is unsigned, and the site has `publishers`".to_owned());
    };
    if !publishers.contains(&signature.key) {
        let key = hex(&signature.key);
        return Err(format!("the key {key} is not among the `publishers`"));
    }
    let key = UnparsedPublicKey::new(&ED25519, signature.key);
    let verified = key.verify(signature.signed, &signature.signature);
    verified.map_err(|_| "the signature of the pointer is wrong".to_owned())
}

/// Returns true if a pointer is for the identity of the site. A site without an identity takes the pointer of any site of
/// its name.
fn is_bound(rules: &ReleaseRules, pointer: &ReleasePointer) -> bool {
    rules.site_id.is_none() || rules.site_id == pointer.site_id
}

/// Refuses the pointer of another site. The release that the server acknowledged last stays served if its pointer is from
/// the time before the site got its identity.
fn verify_site_id(rules: &ReleaseRules, pointer: &ReleasePointer) -> Result<(), String> {
    let is_acknowledged = || {
        let last = rules.acknowledged();
        last.is_some_and(|last| {
            (last.release, last.sequence) == (pointer.release, pointer.sequence)
        })
    };
    if is_bound(rules, pointer) || is_acknowledged() {
        return Ok(());
    }
    Err(match &pointer.site_id {
        None => "the signature has no `site_id`, and the site has one; publish with --key, and with the site_id of anthill.toml \
                 in the key file or in --site-id"
            .to_owned(),
        Some(id) => format!("the pointer is for the site with the `site_id` {id}"),
    })
}

/// Refuses a pointer that is older than the last served pointer, since an attacker could restore an old release with its
/// valid signature. A rollback has a new sequence.
fn refuse_older(rules: &ReleaseRules, pointer: &ReleasePointer) -> Result<(), String> {
    let file = rules.served.display();
    let last = match atomic_file::read(&rules.served) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        last => last.map_err(|error| format!("the last sequence is unknown: {file}: {error}"))?,
    };
    let Some(last) = ServedRelease::parse(&last) else {
        return Err(format!("the last sequence is unknown: {file} is damaged"));
    };
    let is_other = pointer.sequence == last.sequence && pointer.release != last.release;
    if pointer.sequence < last.sequence || is_other {
        Err(format!(
            "the sequence {} is not above the last served sequence {}; publish again, or remove {file} after the move to a \
             new store",
            pointer.sequence, last.sequence
        ))
    } else {
        Ok(())
    }
}

fn refused(path: PathBuf, error: &StoreError) -> ReleaseError {
    ReleaseError {
        path,
        what: error.to_string(),
        publication: None,
    }
}
