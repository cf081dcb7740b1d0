//! Draft of a content: a file with a unique name in the folder of drafts, hashed while written.

use super::blob_folder::BlobFolder;
use super::folder_access::{DRAFT, create_unique};
use super::write_error::StoreWriteError;
use crate::base::digest::Digest;
use crate::wire::manifest::BlobRef;
use rustix::fs::{AtFlags, unlinkat};
use std::fs::File;
use std::io::{self, Write};

/// Draft of a content. A dropped draft is removed.
pub struct Draft<'s> {
    folder: &'s BlobFolder,
    file: File,
    /// Name in the folder of drafts; empty once the folder of contents keeps the draft.
    name: String,
    digest: Digest,
    size: u64,
}

impl<'s> Draft<'s> {
    /// Begins a draft.
    pub(super) fn begin(folder: &'s BlobFolder) -> Result<Draft<'s>, StoreWriteError> {
        let (file, name) = create_unique(&folder.drafts, DRAFT, folder.modes)
            .map_err(StoreWriteError::at("drafts"))?;
        Ok(Draft {
            folder,
            file,
            name,
            digest: Digest::new(),
            size: 0,
        })
    }

    /// Returns the size of the written part in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Completes the content, and returns true if the store has no such content. [`super::StoreWriter::sync`] moves the
    /// draft to the contents.
    pub fn finish(mut self) -> Result<(BlobRef, bool), StoreWriteError> {
        let digest = std::mem::take(&mut self.digest).finish();
        let content = BlobRef {
            size: self.size,
            digest,
        };
        let is_new = !self.folder.has(&content)? && self.folder.keep(&self.name, content);
        if is_new {
            self.name.clear();
        }
        Ok((content, is_new))
    }

    /// Returns the path of the draft below the store.
    pub fn path(&self) -> String {
        format!("drafts/{}", self.name)
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.digest.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // A draft that stays is removed by the next sweep.
            let _ = unlinkat(&self.folder.drafts, &self.name, AtFlags::empty());
        }
    }
}
