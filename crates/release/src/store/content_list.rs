//! Lists of the contents of releases, 16 bytes for each content, beside the manifests: a sweep asks for the contents of every
//! release of the store, and the manifests of a few labels may have 32 MiB each.
//!
//! A list is made once, by the publisher of the release or by the next sweep, and ends with a digest, since its file is
//! neither synced nor named by its content. A damaged list is made anew from the manifest.

use super::folder::StoreFolder;
use super::folder_access::{
    DRAFT, StoreModes, create_unique, make_folder, open_file, open_folder, remove_file,
};
use super::release_contents::release_contents;
use super::write_error::StoreWriteError;
use super::{ReleaseStore as _, StoreError};
use crate::limits::{MANIFEST_BYTES_MAX, MANIFEST_LISTED_BYTES_MIN};
use crate::manifest::BlobRef;
use base::digest::{hex, sha256};
use rustix::fs::{AtFlags, renameat, unlinkat};
use std::io::{Read as _, Write as _};

/// Folder of the lists in a store.
pub(super) const FOLDER: &str = "lists";
/// Bytes of a content in a list: the first bytes of the digest, and the size.
const ENTRY_BYTES: usize = 16;
/// Bytes of the digest at the end of a list.
const DIGEST_BYTES: usize = 32;

/// Content of a release, by the beginning of its digest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct ListedContent {
    /// First 8 bytes of the digest.
    pub(super) key: u64,
    /// Bytes.
    pub(super) size: u64,
}

impl ListedContent {
    /// Returns the first bytes of a digest.
    pub(super) fn key_of(digest: &[u8; 32]) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *digest;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    fn of(content: &BlobRef) -> ListedContent {
        ListedContent {
            key: ListedContent::key_of(&content.digest),
            size: content.size,
        }
    }
}

/// Returns the contents of a release, each once, with the manifest: from the list, or from the manifest.
pub(super) fn listed_contents(
    store: &StoreFolder,
    release: &[u8; 32],
) -> Result<Vec<ListedContent>, StoreWriteError> {
    match read(store, release) {
        Some(contents) => Ok(contents),
        None => {
            let contents = release_contents(store, release)?;
            Ok(contents.iter().map(ListedContent::of).collect())
        }
    }
}

/// Makes the list of a release with a long manifest, unless the store has the list. A release that is unreadable, and a
/// store that may not be written, have no list.
pub(super) fn make_list(store: &StoreFolder, release: &[u8; 32]) {
    let bytes = store
        .open_blob(release)
        .and_then(|file| Ok(file.metadata()?.len()));
    if bytes.is_ok_and(|bytes| bytes >= MANIFEST_LISTED_BYTES_MIN)
        && read(store, release).is_none()
        && let Ok(contents) = release_contents(store, release)
    {
        // Without a list, a sweep reads the manifest.
        let _ = write(store, release, &contents);
    }
}

fn read(store: &StoreFolder, release: &[u8; 32]) -> Option<Vec<ListedContent>> {
    let lists = open_folder(store.root(), FOLDER).ok()?;
    let file = open_file(&lists, &hex(release)).ok()?;
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    let entries = bytes.len().checked_sub(DIGEST_BYTES)?;
    let (entries, digest) = bytes.split_at(entries);
    let is_whole = sum(release, entries) == *digest;
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    let read = |entry: &[u8; ENTRY_BYTES]| {
        let (key, size) = entry.split_at(ENTRY_BYTES / 2);
        ListedContent {
            key: number(key),
            size: number(size),
        }
    };
    (is_whole && rest.is_empty()).then(|| entries.iter().map(read).collect())
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the digest of a list. The release is a part, so no list stands for another release.
fn sum(release: &[u8; 32], entries: &[u8]) -> [u8; DIGEST_BYTES] {
    sha256(&[&release[..], entries].concat())
}

fn write(store: &StoreFolder, release: &[u8; 32], contents: &[BlobRef]) -> Result<(), StoreError> {
    let mut entries = Vec::with_capacity(contents.len() * ENTRY_BYTES + DIGEST_BYTES);
    for content in contents.iter().map(ListedContent::of) {
        entries.extend_from_slice(&content.key.to_le_bytes());
        entries.extend_from_slice(&content.size.to_le_bytes());
    }
    let digest = sum(release, &entries);
    entries.extend_from_slice(&digest);
    // The descriptor of a store for reading cannot be synced.
    let root = open_folder(store.root(), ".")?;
    let modes = StoreModes::of(&root)?;
    let lists = make_folder(&root, FOLDER, modes)?;
    let (mut file, draft) = create_unique(&lists, DRAFT, modes)?;
    let written = file.write_all(&entries).map_err(StoreError::from);
    let placed = written.and_then(|()| Ok(renameat(&lists, &draft, &lists, hex(release))?));
    if placed.is_err() {
        let _ = unlinkat(&lists, &draft, AtFlags::empty());
    }
    placed
}

/// Removes the list of a release.
pub(super) fn remove_list(store: &StoreFolder, release: &[u8; 32]) -> Result<(), StoreError> {
    match open_folder(store.root(), FOLDER) {
        Err(StoreError::Missing) => Ok(()),
        lists => remove_file(&lists?, &hex(release)),
    }
}
