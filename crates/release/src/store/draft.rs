//! Draft of a content: a file in the folder of drafts, hashed while written. A draft has a unique name, or the site, the
//! publisher and the digest of its content in the name, so that a later session of the publisher goes on where the
//! connection of an earlier one ended. A publisher of another site has a draft of its own, as a proof that the publisher
//! has the content.

use super::StoreError;
use super::blob_folder::BlobFolder;
use super::folder_access::{Missing, create_unique, open_file, open_locked};
use super::write_error::StoreWriteError;
use crate::limits::STORE_BUFFER_BYTES;
use crate::manifest::BlobRef;
use base::digest::{Digest, hex, sha256};
use rustix::fs::{AtFlags, renameat, unlinkat};
use std::fs::File;
use std::io::{self, Read as _, Write};

/// Beginning of the names of drafts that stay for a day.
pub(super) const KEPT: &str = "part-";
/// Bytes of the digest of a publisher's name in the name of a draft: publishers are few, and the name of a file is short.
const PUBLISHER_BYTES: usize = 8;

/// Publisher that may go on with a draft.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DraftOwner<'n> {
    /// Name of the site in the store.
    pub site: &'n str,
    /// Name that the operator gave to the publisher; None for a publisher without a name.
    pub publisher: Option<&'n str>,
}

impl DraftOwner<'_> {
    /// Returns the name of the draft of a known content. The name of a site has no plus sign, and the name of a publisher
    /// has any sign.
    pub(super) fn kept_name(&self, content: &BlobRef) -> String {
        let name = format!("{KEPT}{}+{}", self.site, hex(&content.digest));
        self.with_publisher(name)
    }

    /// Returns the name of a record about the owner.
    pub(super) fn record_name(&self, kind: &str) -> String {
        self.with_publisher(format!("{kind}{}", self.site))
    }

    fn with_publisher(&self, name: String) -> String {
        match self.publisher {
            None => name,
            Some(publisher) => {
                let digest = sha256(publisher.as_bytes());
                format!("{name}+{}", hex(&digest[..PUBLISHER_BYTES]))
            }
        }
    }
}

/// Returns the part of a kept draft's name that tells its owner.
pub(super) fn owner_of(name: &str) -> String {
    let mut parts = name.splitn(3, '+');
    let site = parts.next().unwrap_or_default();
    let publisher = parts.nth(1).unwrap_or_default();
    format!("{site}+{publisher}")
}

/// Draft of a content. A dropped draft with a unique name is removed, and another draft stays for a day.
pub struct Draft<'s> {
    folder: &'s BlobFolder,
    file: File,
    /// Name in the folder of drafts; empty once the folder of contents keeps the draft.
    name: String,
    digest: Digest,
    size: u64,
    /// True for a draft with the digest in its name.
    is_kept: bool,
}

impl<'s> Draft<'s> {
    /// Begins a draft.
    pub(super) fn begin(folder: &'s BlobFolder) -> Result<Draft<'s>, StoreWriteError> {
        let (file, name) = create_unique(&folder.drafts, folder.draft_kind(), folder.modes)
            .map_err(StoreWriteError::at("drafts"))?;
        Ok(Draft {
            folder,
            file,
            name,
            digest: Digest::new(),
            size: 0,
            is_kept: false,
        })
    }

    /// Goes on with a publisher's draft of a known content, or begins the draft. The written part is hashed again. While
    /// another session writes the draft, the new draft has a unique name.
    pub(super) fn resume(
        folder: &'s BlobFolder,
        owner: &DraftOwner<'_>,
        content: &BlobRef,
    ) -> Result<Draft<'s>, StoreWriteError> {
        let name = owner.kept_name(content);
        let at = || format!("drafts/{name}");
        let file = match folder.take_promised(&name) {
            Some(file) => Ok(Some(file)),
            None => open_locked(&folder.drafts, &name, Missing::Make, folder.modes),
        };
        let file = file.map_err(|error| StoreWriteError::at(at())(error))?;
        let Some(file) = file else {
            return Draft::begin(folder);
        };
        let mut draft = Draft {
            folder,
            file,
            name,
            digest: Digest::new(),
            size: 0,
            is_kept: true,
        };
        let read = draft.hash_again(content.size);
        read.map_err(|error| StoreWriteError::at(draft.path())(error))?;
        Ok(draft)
    }

    /// Hashes the written part. A part that is longer than the content is none of it.
    fn hash_again(&mut self, size: u64) -> io::Result<()> {
        if self.file.metadata()?.len() > size {
            self.file.set_len(0)?;
        }
        let mut buffer = vec![0; STORE_BUFFER_BYTES];
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(()),
                count => {
                    self.digest.update(&buffer[..count]);
                    self.size += count as u64;
                }
            }
        }
    }

    /// Completes a known content as [`Draft::finish`] does. A draft with another content is removed, and is an error.
    pub fn finish_as(mut self, content: &BlobRef) -> Result<(), StoreWriteError> {
        self.is_kept = false;
        let path = self.path();
        let digest = std::mem::take(&mut self.digest);
        let found = BlobRef {
            size: self.size,
            digest: digest.finish(),
        };
        if found == *content {
            self.place_alone(content)
        } else {
            let error = StoreError::Corrupt("the sent content differs from its digest");
            Err(StoreWriteError::at(path)(error))
        }
    }

    /// Opens the written part for reading.
    pub fn read_back(&self) -> io::Result<File> {
        open_file(&self.folder.drafts, &self.name).map_err(|error| match error {
            StoreError::Io(error) => error,
            error => io::Error::other(error),
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
        let is_new = self.place(&content)?;
        Ok((content, is_new))
    }

    /// Completes a draft with the digest in its name under a unique name, so that no other publisher goes on with it.
    fn place_alone(&mut self, content: &BlobRef) -> Result<(), StoreWriteError> {
        let folder = self.folder;
        let kind = folder.draft_kind();
        let unique = create_unique(&folder.drafts, kind, folder.modes).and_then(|(_, unique)| {
            renameat(&folder.drafts, &self.name, &folder.drafts, &unique)?;
            Ok(unique)
        });
        self.name = unique.map_err(|error| StoreWriteError::at(self.path())(error))?;
        self.place(content).map(|_| ())
    }

    /// Moves the draft to the contents. Returns false if the content was present.
    fn place(&mut self, content: &BlobRef) -> Result<bool, StoreWriteError> {
        let is_new = !self.folder.has(content)? && self.folder.keep(&self.name, *content);
        if is_new {
            self.name.clear();
        }
        Ok(is_new)
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
        let is_kept = self.is_kept && self.size > 0;
        if !self.name.is_empty() && !is_kept {
            // A draft that stays is removed by the next sweep.
            let _ = unlinkat(&self.folder.drafts, &self.name, AtFlags::empty());
        }
    }
}
