//! Records of contents that a publisher of a site has sent completely, and that no release of the site has yet.
//!
//! Sites share contents, and a publisher of one site may know the digest of a content of another site. A publisher
//! therefore sends each content that no release of the own site has, as a proof of possession. After a broken
//! connection, a record lets the next publisher of the site go on without sending the completed contents again.

use super::StoreError;
use super::folder::StoreFolder;
use super::folder_access::{create_unique, each_name, open_file, open_folder};
use super::write_error::StoreWriteError;
use super::writer::StoreWriter;
use crate::limits::MANIFEST_BYTES_MAX;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

/// Beginning of the names of records in the folder of drafts. Drafts of contents have other names, since their contents come
/// from a publisher.
pub(super) const RECEIVED: &str = "received+";

/// Records that a publisher of a site has sent contents, for a day and as long as the session lives.
pub fn record_received(
    store: &StoreWriter,
    site: &str,
    contents: &[[u8; 32]],
) -> Result<(), StoreWriteError> {
    if contents.is_empty() {
        return Ok(());
    }
    // The name of the session tells a sweep whether the record is in use.
    let kind = format!("{RECEIVED}{site}+{}", store.session());
    let (mut file, name) = create_unique(store.drafts(), &kind, store.modes())
        .map_err(StoreWriteError::at("drafts"))?;
    let written = file.write_all(contents.as_flattened());
    written.map_err(|error| StoreWriteError::at(format!("drafts/{name}"))(error))
}

/// Returns the contents that publishers of a site have sent within about a day.
pub fn received_contents(store: &StoreFolder, site: &str) -> Vec<[u8; 32]> {
    let Ok(drafts) = open_folder(store.root(), "drafts") else {
        return Vec::new();
    };
    let begin = format!("{RECEIVED}{site}+");
    let mut contents = Vec::new();
    // An unreadable folder proves nothing.
    let _ = each_name(&drafts, |name| {
        if name.starts_with(&begin) {
            contents.extend(read(&drafts, name));
        }
        Ok::<(), StoreError>(())
    });
    contents
}

/// Reads a record. An unreadable record has no contents: a publisher sends the contents again.
pub(super) fn read(drafts: &OwnedFd, name: &str) -> Vec<[u8; 32]> {
    let mut bytes = Vec::new();
    if let Ok(file) = open_file(drafts, name) {
        let _ = file.take(MANIFEST_BYTES_MAX as u64).read_to_end(&mut bytes);
    }
    bytes.as_chunks().0.to_vec()
}
