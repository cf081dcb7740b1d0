//! Store in a plain folder, for adding contents.

use super::StoreError;
use super::blob_folder::{BlobFolder, OF_SESSION};
use super::content_list::make_list;
use super::draft::{Draft, DraftOwner};
use super::folder::StoreFolder;
use super::folder_access::{LockKind, StoreModes, lock, open_folder};
use super::release_support::ReleaseSupport;
use super::write_error::StoreWriteError;
use crate::manifest::BlobRef;
use rustix::fs::{CWD, FlockOperation, Mode, flock, mkdirat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Store in a plain folder, for adding contents. No sweep runs while a value exists, except between
/// [`StoreWriter::leave_lock`] and [`StoreWriter::take_lock`].
pub struct StoreWriter {
    folder: StoreFolder,
    /// Descriptor of the folder, for syncing.
    root: OwnedFd,
    blobs: BlobFolder,
    shared: File,
    _support: ReleaseSupport,
}

impl StoreWriter {
    /// Opens a store, and makes a missing folder in a present one. Waits for the end of a sweep.
    pub fn open(path: &Path) -> Result<StoreWriter, StoreWriteError> {
        let support = ReleaseSupport::find().ok_or_else(|| {
            StoreWriteError::at(".")(StoreError::Corrupt("this build has no releases"))
        })?;
        match mkdirat(CWD, path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => {
                let what = "the folder above is missing, and must be made first";
                return Err(StoreWriteError::at(".")(StoreError::Corrupt(what)));
            }
            Err(error) => return Err(StoreWriteError::at(".")(error)),
        }
        let folder = StoreFolder::open(path).map_err(StoreWriteError::at("."))?;
        let root = open_folder(folder.root(), ".").map_err(StoreWriteError::at("."))?;
        let modes = StoreModes::of(&root).map_err(StoreWriteError::at("."))?;
        let lock = lock(&root, "lock", LockKind::Shared, modes);
        let lock = lock.map_err(StoreWriteError::at("lock"))?;
        Ok(StoreWriter {
            blobs: BlobFolder::open(&root, modes)?,
            folder,
            root,
            shared: lock.ok_or(StoreWriteError::Busy)?,
            _support: support,
        })
    }

    /// Lets a sweep run until [`StoreWriter::take_lock`]. The drafts of a session with a [`super::QuotaAccount`] stay.
    pub fn leave_lock(&self) {
        // A lock that stays keeps sweeps away, and does no other harm.
        let _ = flock(&self.shared, FlockOperation::Unlock);
    }

    /// Waits for the end of a sweep, and keeps further sweeps away.
    pub fn take_lock(&self) -> Result<(), StoreWriteError> {
        loop {
            match flock(&self.shared, FlockOperation::LockShared) {
                Err(Errno::INTR) => {}
                locked => return locked.map_err(StoreWriteError::at("lock")),
            }
        }
    }

    /// Gives all further drafts the name of a session.
    pub(super) fn name_drafts(&self, session: &str) {
        self.blobs.name_drafts(session);
    }

    /// Returns the name of the session that writes the drafts; empty without one.
    pub(super) fn session(&self) -> &str {
        self.blobs
            .draft_kind()
            .strip_prefix(OF_SESSION)
            .unwrap_or_default()
    }

    /// Returns the store for reading.
    pub fn reader(&self) -> &StoreFolder {
        &self.folder
    }

    /// Returns true if the store has a content with the digest and the size. The content is not verified.
    pub fn has(&self, content: &BlobRef) -> Result<bool, StoreWriteError> {
        self.blobs.has(content)
    }

    /// Returns the bytes of all contents and drafts in the store, at least 4 KiB for each.
    pub fn used_bytes(&self) -> Result<u64, StoreWriteError> {
        self.blobs.used_bytes()
    }

    /// Begins a content.
    pub fn draft(&self) -> Result<Draft<'_>, StoreWriteError> {
        Draft::begin(&self.blobs)
    }

    /// Begins a known content, or goes on with the draft of an earlier connection of the publisher.
    pub fn resume(
        &self,
        owner: &DraftOwner<'_>,
        content: &BlobRef,
    ) -> Result<Draft<'_>, StoreWriteError> {
        Draft::resume(&self.blobs, owner, content)
    }

    /// Returns the bytes of a known content in the draft of an earlier connection of the publisher, and keeps the draft for
    /// [`StoreWriter::resume`]. A draft of another account, or of a connection that is still open, has no bytes for this
    /// publisher.
    pub fn resumable_bytes(&self, owner: &DraftOwner<'_>, content: &BlobRef) -> u64 {
        self.blobs.promise(owner.kept_name(content), content.size)
    }

    /// Writes all completed contents to the disk, and moves the contents to their places.
    pub fn sync(&self) -> Result<(), StoreWriteError> {
        self.blobs.sync()
    }

    /// Adds the manifest of a release after all contents, and returns the id of the release. All contents are on the
    /// disk before the manifest.
    pub fn add_manifest(&self, text: &[u8]) -> Result<[u8; 32], StoreWriteError> {
        self.blobs.sync()?;
        let mut draft = self.draft()?;
        let written = draft.write_all(text);
        written.map_err(|error| StoreWriteError::at(draft.path())(error))?;
        let (manifest, _) = draft.finish()?;
        self.blobs.sync()?;
        make_list(&self.folder, &manifest.digest);
        Ok(manifest.digest)
    }

    /// Returns the descriptor of the folder.
    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Returns the permissions of new files.
    pub(super) fn modes(&self) -> StoreModes {
        self.blobs.modes
    }

    /// Returns the folder of drafts.
    pub(super) fn drafts(&self) -> &OwnedFd {
        &self.blobs.drafts
    }
}
