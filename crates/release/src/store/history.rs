//! Records of a site in a store: publications, labels, pins and withdrawn releases.

use super::folder::StoreFolder;
use super::folder_access::{names, open_folder, read_small};
use super::write_error::StoreWriteError;
use super::{ReleaseLabel, ReleaseStore as _, StoreError};
use crate::release_pointer::{ReleasePointer, is_label};
use base::digest::from_hex;
use std::collections::{BTreeMap, HashSet};

/// Publication of a release.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publication {
    /// Pointer of the publication.
    pub pointer: ReleasePointer,
    /// Ed25519 public key of a signed pointer. The signature is not verified.
    pub key: Option<[u8; 32]>,
    /// Ed25519 signature of [`ReleasePointer::to_be_signed`] with the key.
    pub signature: Option<[u8; 64]>,
}

/// Records of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SiteRecords {
    /// Publications by their sequences.
    pub publications: BTreeMap<u64, Publication>,
    /// Sequence of the pointer; None before the first release.
    pub served: Option<u64>,
    /// Releases by their labels.
    pub labels: BTreeMap<String, [u8; 32]>,
    /// Owners by their labels. A label without an owner is not in the map.
    pub label_owners: BTreeMap<String, String>,
    /// Releases that are never swept.
    pub pins: Vec<[u8; 32]>,
    /// Releases that are never served again.
    pub withdrawn: Vec<[u8; 32]>,
}

impl SiteRecords {
    /// Reads the records of a site. A site without a folder has no records.
    pub fn read(store: &StoreFolder, site: &str) -> Result<SiteRecords, StoreWriteError> {
        let served = read_pointer(store, site)?;
        let mut records = SiteRecords::read_history(store, site)?;
        if let Some(served) = served {
            records.served = Some(served.pointer.sequence);
            records.publications.insert(served.pointer.sequence, served);
        }
        Ok(records)
    }

    /// Reads the records of a site without the pointer, which may be damaged.
    pub fn read_history(store: &StoreFolder, site: &str) -> Result<SiteRecords, StoreWriteError> {
        let mut records = SiteRecords::default();
        for (name, text) in read_texts(store, site, "pointers")? {
            // The file of a crashed publisher is no publication.
            if let Some(publication) = parse(&text)
                && publication.pointer.sequence.to_string() == name
            {
                let sequence = publication.pointer.sequence;
                records.publications.insert(sequence, publication);
            }
        }
        for (name, text) in read_texts(store, site, "labels")? {
            if let Some(label) = ReleaseLabel::parse(&text)
                && is_label(&name)
            {
                records.set_label(name, label);
            }
        }
        records.pins = read_marks(store, site, "pins")?;
        records.withdrawn = read_marks(store, site, "withdrawn")?;
        Ok(records)
    }

    /// Takes a label that was read.
    pub(super) fn set_label(&mut self, name: String, label: ReleaseLabel) {
        if let Some(owner) = label.owner {
            self.label_owners.insert(name.clone(), owner);
        }
        self.labels.insert(name, label.release);
    }

    /// Returns the publication that the pointer names.
    pub fn served(&self) -> Option<&Publication> {
        self.publications.get(&self.served?)
    }

    /// Returns the releases of the site, each once: the published ones from the newest to the oldest, then the
    /// labelled and the pinned ones.
    pub fn releases(&self) -> Vec<[u8; 32]> {
        let published = self
            .publications
            .values()
            .rev()
            .map(|it| it.pointer.release);
        let named = self.labels.values().chain(&self.pins).copied();
        let mut seen = HashSet::new();
        let releases = published.chain(named).filter(|it| seen.insert(*it));
        releases.collect()
    }
}

/// Returns the withdrawn releases of a site.
pub fn withdrawn_releases(store: &StoreFolder, site: &str) -> Result<Vec<[u8; 32]>, StoreError> {
    match read_marks(store, site, "withdrawn") {
        Err(StoreWriteError::File { error, .. }) => Err(error),
        marks => Ok(marks.unwrap_or_default()),
    }
}

/// Returns the names of the sites of a store, sorted.
pub fn sites(store: &StoreFolder) -> Result<Vec<String>, StoreWriteError> {
    let sites = match open_folder(store.root(), "sites") {
        Err(StoreError::Missing) => return Ok(Vec::new()),
        sites => sites.and_then(|folder| names(&folder)),
    };
    let mut sites = sites.map_err(StoreWriteError::at("sites"))?;
    sites.retain(|site| is_label(site));
    Ok(sites)
}

/// Reads the pointer of a site; None before the first release. A file with another text is an error.
pub(super) fn read_pointer(
    store: &StoreFolder,
    site: &str,
) -> Result<Option<Publication>, StoreWriteError> {
    let at = || format!("sites/{site}/pointer");
    let text = store.pointer(site);
    let Some(text) = text.map_err(|error| StoreWriteError::at(at())(error))? else {
        return Ok(None);
    };
    let refused = StoreError::Corrupt(
        "this is no pointer of a version that this program reads; remove the file to go on from the history",
    );
    match parse(&text) {
        Some(publication) if publication.pointer.site == site => Ok(Some(publication)),
        _ => Err(StoreWriteError::at(at())(refused)),
    }
}

fn parse(text: &[u8]) -> Option<Publication> {
    let (pointer, signature) = ReleasePointer::parse(text)?;
    Some(Publication {
        pointer,
        key: signature.map(|it| it.key),
        signature: signature.map(|it| it.signature),
    })
}

/// Reads all small files of a folder of a site.
fn read_texts(
    store: &StoreFolder,
    site: &str,
    kind: &str,
) -> Result<Vec<(String, Vec<u8>)>, StoreWriteError> {
    let Some((folder, names)) = list(store, site, kind)? else {
        return Ok(Vec::new());
    };
    let mut texts = Vec::with_capacity(names.len());
    for name in names {
        match read_small(&folder, &name) {
            Ok(text) => texts.push((name, text)),
            // Another publisher removed the file meanwhile.
            Err(StoreError::Missing) => {}
            Err(error) => {
                return Err(StoreWriteError::at(format!("sites/{site}/{kind}/{name}"))(
                    error,
                ));
            }
        }
    }
    Ok(texts)
}

/// Reads the digests that are the names of the files of a folder of a site.
fn read_marks(
    store: &StoreFolder,
    site: &str,
    kind: &str,
) -> Result<Vec<[u8; 32]>, StoreWriteError> {
    let names = list(store, site, kind)?.map_or_else(Vec::new, |(_, names)| names);
    let marks = names.iter().filter_map(|name| from_hex(name.as_bytes()));
    Ok(marks.collect())
}

type Listing = (std::os::fd::OwnedFd, Vec<String>);

/// Lists a folder of a site; None for a missing folder.
fn list(store: &StoreFolder, site: &str, kind: &str) -> Result<Option<Listing>, StoreWriteError> {
    let listed = open_folder(store.root(), "sites")
        .and_then(|sites| open_folder(&sites, site))
        .and_then(|site| open_folder(&site, kind))
        .and_then(|folder| names(&folder).map(|names| (folder, names)));
    match listed {
        Err(StoreError::Missing) => Ok(None),
        listed => listed
            .map(Some)
            .map_err(StoreWriteError::at(format!("sites/{site}/{kind}"))),
    }
}
