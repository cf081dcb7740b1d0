//! Folder of the contents of a store, for adding contents.
//!
//! Completed drafts stay in the folder of drafts until a sync, which writes all drafts to the disk, renames the drafts,
//! and syncs the folders of the contents. During the renames a mark in the folder of drafts tells other publishers that
//! the names of contents are perhaps not on the disk. A publisher that finds the mark of another publisher, perhaps of
//! a killed one, syncs the folders of all contents of its release.

use super::StoreError;
use super::folder_access::{
    DRAFT, Missing, StoreModes, create_unique, each_name, make_folder, make_unsynced_folder,
    open_file, open_folder, open_locked, sync_folder,
};
use super::write_error::StoreWriteError;
use crate::limits::{STORE_FILE_BYTES_MIN, STORE_FSYNC_MAX};
use crate::manifest::BlobRef;
use base::digest::hex;
use rustix::fs::{AtFlags, FileType, renameat, statat, syncfs, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Prefix of the names of the files of sessions.
pub(super) const SESSION: &str = "session-";
/// Beginning of the names of records of publishers without progress.
pub(super) const STALLED: &str = "stalled-";

/// Beginning of the names of the drafts of a session. The name of the session and a hyphen follow.
pub(super) const OF_SESSION: &str = "draft+";
/// Kind of the marks of publishers that rename contents.
const MARK: &str = "adding";

/// Folder of the contents of a store, for adding contents. Several threads may add contents at the same time.
pub(super) struct BlobFolder {
    blobs: OwnedFd,
    /// Folder of incomplete contents.
    pub(super) drafts: OwnedFd,
    /// Permissions of new files.
    pub(super) modes: StoreModes,
    /// Names of the completed drafts by digests.
    completed: Mutex<BTreeMap<[u8; 32], CompletedDraft>>,
    /// Parts of contents that the publisher was told to go on with, by the names of the drafts. The locks of the files tell
    /// other sessions that the parts are in use.
    promised: Mutex<BTreeMap<String, File>>,
    /// Kind of the drafts, with the name of the session if a session writes them.
    draft_kind: OnceLock<String>,
    /// Folders with contents of the release, by the first byte of the digests.
    used: [AtomicBool; 256],
    /// Folders in use, by the first byte of the digests.
    open: Box<[OnceLock<OwnedFd>; 256]>,
}

/// Draft with all bytes of its content.
struct CompletedDraft {
    name: String,
    size: u64,
}

impl BlobFolder {
    /// Opens the folder of contents and the folder of drafts, and makes missing folders.
    pub(super) fn open(root: &OwnedFd, modes: StoreModes) -> Result<BlobFolder, StoreWriteError> {
        let make = |name: &str| make_folder(root, name, modes).map_err(StoreWriteError::at(name));
        let blobs = make("blobs")?;
        reserve_descriptors(&blobs);
        Ok(BlobFolder {
            blobs,
            drafts: make("drafts")?,
            modes,
            completed: Mutex::default(),
            promised: Mutex::default(),
            draft_kind: OnceLock::new(),
            used: [const { AtomicBool::new(false) }; 256],
            open: Box::new([const { OnceLock::new() }; 256]),
        })
    }

    /// Returns true if the store, or a completed draft, has a content with the digest and the size. The content is not
    /// verified.
    pub(super) fn has(&self, content: &BlobRef) -> Result<bool, StoreWriteError> {
        let completed = self.completed().get(&content.digest).map(|it| it.size);
        if completed == Some(content.size) {
            return Ok(true);
        }
        let name = hex(&content.digest);
        let at = || format!("blobs/{}/{name}", &name[..2]);
        let folder = match self.folder_of(&content.digest, &name) {
            Err(StoreError::Missing) => return Ok(false),
            folder => folder.map_err(|error| StoreWriteError::at(at())(error))?,
        };
        let stat = match statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            stat => stat.map_err(|error| StoreWriteError::at(at())(error))?,
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let error = StoreError::Corrupt("a link or a folder stands in place of a content");
            return Err(StoreWriteError::at(at())(error));
        }
        self.used[usize::from(content.digest[0])].store(true, Ordering::Relaxed);
        Ok(u64::try_from(stat.st_size) == Ok(content.size))
    }

    /// Returns the folder of a content. A publication of thousands of contents asks for each, so the folders stay open.
    fn folder_of(&self, digest: &[u8; 32], name: &str) -> Result<&OwnedFd, StoreError> {
        let open = &self.open[usize::from(digest[0])];
        match open.get() {
            Some(folder) => Ok(folder),
            None => {
                let folder = open_folder(&self.blobs, &name[..2])?;
                Ok(open.get_or_init(|| folder))
            }
        }
    }

    /// Returns the bytes of all contents and drafts. A file takes at least a block of the disk.
    pub(super) fn used_bytes(&self) -> Result<u64, StoreWriteError> {
        let mut sum: u64 = 0;
        let mut add = |folder: &OwnedFd| {
            each_name(folder, |name| {
                // The file of a session is gone with the session, and a record is one small file of a publisher.
                if name.starts_with(SESSION) || name.starts_with(STALLED) {
                    return Ok::<(), StoreError>(());
                }
                // A content that a sweep removed meanwhile has no bytes.
                let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
                let bytes = stat.map_or(0, |stat| {
                    disk_bytes(u64::try_from(stat.st_size).unwrap_or(0))
                });
                sum = sum.saturating_add(bytes);
                Ok::<(), StoreError>(())
            })
        };
        add(&self.drafts).map_err(StoreWriteError::at("drafts"))?;
        for byte in 0..=255_u8 {
            let prefix = format!("{byte:02x}");
            let added = match open_folder(&self.blobs, &prefix) {
                Err(StoreError::Missing) => continue,
                folder => folder.and_then(|folder| add(&folder)),
            };
            added.map_err(StoreWriteError::at(format!("blobs/{prefix}")))?;
        }
        Ok(sum)
    }

    /// Returns the bytes of a kept draft, and keeps the draft for [`BlobFolder::take_promised`]. A draft in use by another
    /// session has none, and so has a draft longer than `size`.
    pub(super) fn promise(&self, name: String, size: u64) -> u64 {
        let mut promised = self.promised();
        let file = promised.remove(&name);
        let file = file.or_else(|| {
            let file = open_locked(&self.drafts, &name, Missing::Leave, self.modes);
            file.ok().flatten()
        });
        let bytes = file.as_ref().and_then(|file| file.metadata().ok());
        let bytes = bytes.map_or(0, |it| it.len());
        match file {
            Some(file) if (1..=size).contains(&bytes) => {
                promised.insert(name, file);
                bytes
            }
            _ => 0,
        }
    }

    /// Returns a promised draft.
    pub(super) fn take_promised(&self, name: &str) -> Option<File> {
        self.promised().remove(name)
    }

    fn promised(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        // The map is whole after a panic of another thread.
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the drafts the name of a session, once.
    pub(super) fn name_drafts(&self, session: &str) {
        self.draft_kind
            .get_or_init(|| format!("{OF_SESSION}{session}"));
    }

    /// Returns the kind of the drafts.
    pub(super) fn draft_kind(&self) -> &str {
        self.draft_kind.get().map_or(DRAFT, |kind| kind)
    }

    /// Keeps a completed draft until the sync. Returns false if another draft has the content.
    pub(super) fn keep(&self, draft: &str, content: BlobRef) -> bool {
        let mut completed = self.completed();
        let is_new = !completed.contains_key(&content.digest);
        if is_new {
            let name = draft.to_owned();
            let size = content.size;
            completed.insert(content.digest, CompletedDraft { name, size });
        }
        is_new
    }

    /// Writes the completed drafts to the disk, moves the drafts to the contents, and syncs the folders.
    pub(super) fn sync(&self) -> Result<(), StoreWriteError> {
        let mut completed = self.completed();
        let mut touched = [false; 256];
        let mut mark = None;
        if !completed.is_empty() {
            self.sync_drafts(&completed)?;
            let (_, name) = create_unique(&self.drafts, MARK, self.modes)
                .map_err(StoreWriteError::at("drafts"))?;
            mark = Some(name);
        }
        while let Some((digest, draft)) = completed.first_key_value() {
            touched[usize::from(digest[0])] = true;
            self.place(&draft.name, digest)?;
            completed.pop_first();
        }
        let mut has_other = false;
        each_name(&self.drafts, |name| {
            has_other |= name.starts_with(MARK) && Some(name) != mark.as_deref();
            Ok(())
        })
        .map_err(StoreWriteError::at::<StoreError>("drafts"))?;
        if has_other {
            for (touched, used) in touched.iter_mut().zip(&self.used) {
                *touched |= used.load(Ordering::Relaxed);
            }
        }
        self.sync_folders(&touched)?;
        if let Some(mark) = mark {
            // A mark that stays costs time, and is removed by the next sweep.
            let _ = unlinkat(&self.drafts, &mark, AtFlags::empty());
        }
        Ok(())
    }

    fn sync_drafts(
        &self,
        completed: &BTreeMap<[u8; 32], CompletedDraft>,
    ) -> Result<(), StoreWriteError> {
        if completed.len() > STORE_FSYNC_MAX {
            return syncfs(&self.drafts).map_err(StoreWriteError::at("drafts"));
        }
        for CompletedDraft { name, .. } in completed.values() {
            open_file(&self.drafts, name)
                .and_then(|draft| Ok(draft.sync_all()?))
                .map_err(StoreWriteError::at(format!("drafts/{name}")))?;
        }
        Ok(())
    }

    /// Moves a synced draft to the place of its content.
    fn place(&self, draft: &str, digest: &[u8; 32]) -> Result<(), StoreWriteError> {
        let name = hex(digest);
        let prefix = &name[..2];
        make_unsynced_folder(&self.blobs, prefix, self.modes)
            .and_then(|folder| Ok(renameat(&self.drafts, draft, &folder, &name)?))
            .map_err(StoreWriteError::at(format!("blobs/{prefix}/{name}")))
    }

    fn sync_folders(&self, touched: &[bool; 256]) -> Result<(), StoreWriteError> {
        if touched.iter().filter(|it| **it).count() > STORE_FSYNC_MAX {
            return syncfs(&self.blobs).map_err(StoreWriteError::at("blobs"));
        }
        for (byte, _) in touched.iter().enumerate().filter(|(_, it)| **it) {
            let prefix = format!("{byte:02x}");
            open_folder(&self.blobs, &prefix)
                .and_then(|folder| sync_folder(&folder))
                .map_err(StoreWriteError::at(format!("blobs/{prefix}")))?;
        }
        if touched.contains(&true) {
            // A folder of the contents is perhaps new.
            sync_folder(&self.blobs).map_err(StoreWriteError::at("blobs"))
        } else {
            Ok(())
        }
    }

    fn completed(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], CompletedDraft>> {
        // The map is whole after a panic of another thread.
        self.completed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for the descriptors of all folders. In a process with several threads, each growth of the kernel's table of
/// descriptors waits for all processors (`synchronize_rcu`), which takes up to 20 ms. A publisher opens its store before it
/// starts threads.
fn reserve_descriptors(folder: &OwnedFd) {
    // Without room for a high number, the table grows later.
    drop(fcntl_dupfd_cloexec(folder, DESCRIPTORS));
}

/// Descriptors of the folders of contents, and of other files.
const DESCRIPTORS: i32 = 384;

/// Returns the bytes of a file on the disk.
pub fn disk_bytes(size: u64) -> u64 {
    size.max(STORE_FILE_BYTES_MIN)
}

impl Drop for BlobFolder {
    fn drop(&mut self) {
        for draft in self.completed().values() {
            // A draft that stays is removed by the next sweep.
            let _ = unlinkat(&self.drafts, &draft.name, AtFlags::empty());
        }
    }
}
