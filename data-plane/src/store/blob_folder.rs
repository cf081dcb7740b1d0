//! Folder of the contents of a store, for adding contents.

use super::StoreError;
use super::folder_access::{StoreModes, make_folder, names, open_folder, sync_folder};
use super::write_error::StoreWriteError;
use crate::base::digest::hex;
use crate::limits::STORE_UNSYNCED_SECONDS;
use crate::wire::manifest::BlobRef;
use rustix::fs::{AtFlags, FileType, renameat, statat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Folder of the contents of a store, for adding contents. Several threads may add contents at the same time.
pub(super) struct BlobFolder {
    blobs: OwnedFd,
    /// Folder of incomplete contents.
    pub(super) drafts: OwnedFd,
    /// Permissions of new files.
    pub(super) modes: StoreModes,
    /// Marks of the folders with a rename that is perhaps not on the disk, by the first byte of the digests.
    unsynced: [AtomicBool; 256],
}

impl BlobFolder {
    /// Opens the folder of contents and the folder of drafts, and makes missing folders.
    pub(super) fn open(root: &OwnedFd, modes: StoreModes) -> Result<BlobFolder, StoreWriteError> {
        let make = |name: &str| make_folder(root, name, modes).map_err(StoreWriteError::at(name));
        Ok(BlobFolder {
            blobs: make("blobs")?,
            drafts: make("drafts")?,
            modes,
            unsynced: [const { AtomicBool::new(false) }; 256],
        })
    }

    /// Returns true if the store has a content with the digest and the size. The content is not verified.
    pub(super) fn has(&self, content: &BlobRef) -> Result<bool, StoreWriteError> {
        let name = hex(&content.digest);
        let at = || format!("blobs/{}/{name}", &name[..2]);
        let folder = match open_folder(&self.blobs, &name[..2]) {
            Err(StoreError::Missing) => return Ok(false),
            folder => folder.map_err(|error| StoreWriteError::at(at())(error))?,
        };
        let stat = match statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            stat => stat.map_err(|error| StoreWriteError::at(at())(error))?,
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let error = StoreError::Corrupt("a link or a folder stands in place of a content");
            return Err(StoreWriteError::at(at())(error));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        let changed = u64::try_from(stat.st_ctime).unwrap_or(0);
        if changed.saturating_add(STORE_UNSYNCED_SECONDS) > now {
            self.mark_unsynced(content);
        }
        Ok(u64::try_from(stat.st_size) == Ok(content.size))
    }

    /// Returns the bytes of all contents.
    pub(super) fn used_bytes(&self) -> Result<u64, StoreWriteError> {
        let mut sum: u64 = 0;
        for byte in 0..=255_u8 {
            let prefix = format!("{byte:02x}");
            let listed = match open_folder(&self.blobs, &prefix) {
                Err(StoreError::Missing) => continue,
                folder => folder.and_then(|folder| names(&folder).map(|names| (folder, names))),
            };
            let (folder, names) =
                listed.map_err(|error| StoreWriteError::at(format!("blobs/{prefix}"))(error))?;
            for name in names {
                // A content that a sweep removed meanwhile has no bytes.
                let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
                sum += stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
            }
        }
        Ok(sum)
    }

    /// Moves a synced draft to the place of its content.
    pub(super) fn place(&self, draft: &str, content: &BlobRef) -> Result<(), StoreWriteError> {
        let name = hex(&content.digest);
        let prefix = &name[..2];
        let at = || format!("blobs/{prefix}/{name}");
        let folder = make_folder(&self.blobs, prefix, self.modes);
        let folder = folder.map_err(|error| StoreWriteError::at(at())(error))?;
        renameat(&self.drafts, draft, &folder, &name)
            .map_err(|error| StoreWriteError::at(at())(error))?;
        self.mark_unsynced(content);
        Ok(())
    }

    /// Syncs the folders with added contents.
    pub(super) fn sync(&self) -> Result<(), StoreWriteError> {
        for (byte, mark) in self.unsynced.iter().enumerate() {
            if mark.swap(false, Ordering::Relaxed) {
                let prefix = format!("{byte:02x}");
                open_folder(&self.blobs, &prefix)
                    .and_then(|folder| sync_folder(&folder))
                    .map_err(|error| StoreWriteError::at(format!("blobs/{prefix}"))(error))?;
            }
        }
        Ok(())
    }

    fn mark_unsynced(&self, content: &BlobRef) {
        self.unsynced[usize::from(content.digest[0])].store(true, Ordering::Relaxed);
    }
}
