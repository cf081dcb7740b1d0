//! Contents of a release, and their verification.

use super::content_index::ContentIndex;
use super::folder::StoreFolder;
use super::manifest_text::read_manifest;
use super::write_error::StoreWriteError;
use super::{ReleaseStore as _, StoreError};
use crate::limits::STORE_BUFFER_BYTES;
use crate::manifest::{BlobRef, ManifestLine, ManifestReader};
use base::digest::{Digest, hex};
use std::io::Read as _;

/// Returns the contents of a release, each once, with the manifest first.
pub fn release_contents(
    store: &StoreFolder,
    release: &[u8; 32],
) -> Result<Vec<BlobRef>, StoreWriteError> {
    let at = || format!("release {}", hex(release));
    let text = read_manifest(store, release).map_err(|error| StoreWriteError::at(at())(error))?;
    let mut contents = Vec::with_capacity(line_count(&text) + 1);
    contents.push(BlobRef {
        size: text.len() as u64,
        digest: *release,
    });
    let refused = |_| {
        let error = StoreError::Corrupt("the manifest is not valid for this version");
        StoreWriteError::at(at())(error)
    };
    for line in ManifestReader::new(&text).map_err(refused)? {
        let (ManifestLine::File { content, .. } | ManifestLine::Coded { content, .. }) =
            line.map_err(refused)?
        else {
            continue;
        };
        contents.push(content);
    }
    drop(text);
    let index = ContentIndex::new(&contents);
    let numbers = 0..u32::try_from(contents.len()).unwrap_or(u32::MAX);
    let is_first: Vec<bool> = numbers
        .map(|number| index.is_first(&contents, number))
        .collect();
    let mut is_first = is_first.into_iter();
    contents.retain(|_| is_first.next() == Some(true));
    Ok(contents)
}

/// Returns the number of lines of a manifest, for a list of contents: a list that grows would take up to three times the
/// memory.
pub fn line_count(manifest: &[u8]) -> usize {
    manifest.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns true if the store has all contents of a release with their sizes. The contents are not read.
pub fn has_contents(store: &StoreFolder, release: &[u8; 32]) -> bool {
    let has = |content: &BlobRef| {
        let size = store
            .open_blob(&content.digest)
            .and_then(|file| Ok(file.metadata()?.len()));
        size.is_ok_and(|size| size == content.size)
    };
    release_contents(store, release).is_ok_and(|contents| contents.iter().all(has))
}

/// Reads a content, and compares the size and the digest.
pub fn verify_content(store: &StoreFolder, content: &BlobRef) -> Result<(), StoreError> {
    let mut file = store.open_blob(&content.digest)?;
    let mut digest = Digest::new();
    let mut size = 0;
    let mut buffer = vec![0; STORE_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => {
                digest.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
    if size == content.size && digest.finish() == content.digest {
        Ok(())
    } else {
        Err(StoreError::Corrupt("the content differs from its digest"))
    }
}
