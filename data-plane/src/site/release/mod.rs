//! Site from a release: the tree comes from the manifest, and the contents come from the store.
//!
//! The store may belong to another account than the server. A release is served only if the pointer, the manifest and
//! each content agree with their digests, and, with `publishers`, only if a publisher has signed the pointer.

mod from_folder;
mod open;
mod pointer;
mod retained;
mod tree;

#[cfg(test)]
mod tests;

pub use from_folder::FolderRelease;
pub use open::ReopenedSite;
pub use retained::RetainedFiles;
pub use tree::ReleaseContent;

use crate::limits::RELEASES_REMEMBERED_MAX;
use crate::site::folder::SiteFolder;
use crate::site::published_rules::PublishedRules;
use crate::site::rules::SiteRules;
use base::atomic_file;
use base::digest::{from_hex, hex};
use release::release_pointer::ReleasePointer;
use release::store::{
    ReleaseStore, ReleaseSupport, ServedRelease, SiteRecords, StoreError, StoreFolder,
    has_contents, read_manifest, withdrawn_releases,
};
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use wire::reject::Reject;

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

/// Release of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseState {
    /// Nothing is published yet, or nothing that can be served.
    Missing,
    /// The release is served.
    Served(ServedRelease),
    /// The release was served until its withdrawal.
    Withdrawn(ServedRelease),
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

impl ReleaseState {
    /// Returns the refusal of all requests; None for a release that is served.
    pub fn refusal(&self) -> Option<Reject> {
        match self {
            ReleaseState::Missing => Some(Reject::RELEASE_MISSING),
            ReleaseState::Served(_) => None,
            ReleaseState::Withdrawn(_) => Some(Reject::RELEASE_WITHDRAWN),
        }
    }

    /// Returns the last release of the site.
    pub fn last(&self) -> Option<&ServedRelease> {
        match self {
            ReleaseState::Missing => None,
            ReleaseState::Served(release) | ReleaseState::Withdrawn(release) => Some(release),
        }
    }
}

/// Tree and rules from which a new release takes over equal files.
pub(super) type FormerContent<'a> = (&'a Arc<SiteFolder>, &'a PublishedRules);

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
    fn blob_bytes(&self, digest: &[u8; 32]) -> u64 {
        let file = self.open_store().and_then(|store| store.open_blob(digest));
        let metadata = file.and_then(|file| file.metadata().map_err(StoreError::from));
        metadata.map_or(0, |metadata| metadata.len())
    }

    /// Returns true if a release is withdrawn.
    pub(super) fn is_withdrawn(&self, release: &[u8; 32]) -> Result<bool, ReleaseError> {
        if self.remembered().contains(release) {
            return Ok(true);
        }
        let withdrawn = |store: Box<dyn ReleaseStore>| store.is_withdrawn(&self.site, release);
        let withdrawn = self.open_store().and_then(withdrawn);
        withdrawn.map_err(|error| refused(self.withdrawn(), &error))
    }

    /// Returns all withdrawn releases of the site.
    fn withdrawn_releases(&self) -> Result<HashSet<[u8; 32]>, StoreError> {
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
        let release = pointer::verify(self, &text);
        release.map(Some).map_err(|what| ReleaseError {
            path: self.pointer(),
            what,
            publication: ReleasePointer::parse(&text)
                .map(|(pointer, _)| (pointer.release, pointer.sequence)),
        })
    }

    /// Returns the release that the server acknowledged last; None before the first release.
    pub(super) fn acknowledged(&self) -> Option<ServedRelease> {
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
        let record = record.and_then(|text| pointer::verify(self, &text).ok());
        let record = record.filter(|record| {
            (record.release, record.sequence) == (acknowledged.release, acknowledged.sequence)
        });
        let found = match self.publishers.is_empty() {
            true => record.unwrap_or(*acknowledged),
            false => record?,
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

    /// Reads the manifest of a release, and builds the tree. Files that are equal in `former` stay loaded. A withdrawn
    /// release is refused.
    pub(super) fn read_content(
        &self,
        release: &ServedRelease,
        site: &SiteRules,
        former: Option<FormerContent<'_>>,
    ) -> Result<ReleaseContent, ReleaseError> {
        let text = self.read_text(release)?;
        ReleaseContent::read(&text, site, former).map_err(|what| ReleaseError {
            path: self.blob(&release.release),
            what,
            publication: None,
        })
    }

    /// Reads the manifest of a release. A withdrawn release is refused.
    fn read_text(&self, release: &ServedRelease) -> Result<Vec<u8>, ReleaseError> {
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

fn refused(path: PathBuf, error: &StoreError) -> ReleaseError {
    ReleaseError {
        path,
        what: error.to_string(),
        publication: None,
    }
}
