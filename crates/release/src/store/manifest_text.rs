//! Reading of a manifest from a store, with its digest verified.

use super::{ReleaseStore, StoreError};
use crate::limits::MANIFEST_BYTES_MAX;
use base::digest::sha256;
use std::io::Read as _;

/// Reads the manifest of a release, and verifies its digest. The text is not parsed.
pub fn read_manifest(store: &dyn ReleaseStore, release: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
    let file = store.open_blob(release)?;
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if size > MANIFEST_BYTES_MAX {
        return Err(StoreError::Corrupt("the manifest is longer than 32 MiB"));
    }
    let mut text = Vec::with_capacity(size);
    file.take(MANIFEST_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)?;
    if sha256(&text) == *release {
        Ok(text)
    } else {
        Err(StoreError::Corrupt("the manifest differs from its digest"))
    }
}
