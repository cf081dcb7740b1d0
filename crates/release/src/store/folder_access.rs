//! Steps on the folders and files of a store, relative to open folders and without following links.
//!
//! The permissions follow the folder of the store. If the folder belongs to a group of publishers, with the setgid bit
//! and write access for the group (`chmod 2770`), then new folders have the mode 02770, files 0640 and locks 0660,
//! with every umask: each member of the group may publish, and a server in the group may read. Otherwise new folders
//! have the mode 0755, files 0644 and locks 0600, all limited by the umask, so that only the owner publishes. A lock is opened
//! for writing, so an account that only reads the store holds no lock.

use super::StoreError;
use crate::limits::RELEASE_POINTER_BYTES_MAX;
use crate::limits::STORE_NAMES_MAX;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RawMode, fchmod, flock, fstat, fsync,
    mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Kind of the files of incomplete contents.
pub(super) const DRAFT: &str = "draft";

/// Permissions of new files and folders.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct StoreModes {
    folder: RawMode,
    file: RawMode,
    lock: RawMode,
    /// True if the modes hold with every umask.
    is_shared: bool,
}

impl StoreModes {
    /// Returns the permissions for a store with a folder.
    pub(super) fn of(root: &OwnedFd) -> Result<StoreModes, StoreError> {
        const SHARED: RawMode = 0o2020;
        Ok(match fstat(root)?.st_mode & SHARED {
            SHARED => StoreModes {
                folder: 0o2770,
                file: 0o640,
                lock: 0o660,
                is_shared: true,
            },
            _ => StoreModes {
                folder: 0o755,
                file: 0o644,
                lock: 0o600,
                is_shared: false,
            },
        })
    }

    fn set(&self, file: impl AsFd, mode: RawMode) -> Result<(), Errno> {
        if self.is_shared {
            fchmod(file, Mode::from_raw_mode(mode))
        } else {
            Ok(())
        }
    }
}

/// Kind of a lock.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum LockKind {
    /// Waits for a shared lock.
    Shared,
    /// Waits for an exclusive lock.
    Exclusive,
    /// Takes an exclusive lock if the file is not locked.
    ExclusiveNow,
}

/// Treatment of a missing file.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    /// The file is made.
    Make,
    /// The file stays missing.
    Leave,
}

/// Opens a folder for listing and syncing.
pub(super) fn open_folder(above: &OwnedFd, name: &str) -> Result<OwnedFd, StoreError> {
    openat(above, name, FOLDER, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => {
            StoreError::Corrupt("a link or a file stands in place of a folder of the store")
        }
        error => error.into(),
    })
}

/// Opens a folder, and makes a missing folder. The folder above is synced after the making.
pub(super) fn make_folder(
    above: &OwnedFd,
    name: &str,
    modes: StoreModes,
) -> Result<OwnedFd, StoreError> {
    match open_folder(above, name) {
        Err(StoreError::Missing) => {
            let folder = make_unsynced_folder(above, name, modes)?;
            sync_folder(above)?;
            Ok(folder)
        }
        folder => folder,
    }
}

/// Opens a folder, and makes a missing folder. The caller syncs the folder above.
pub(super) fn make_unsynced_folder(
    above: &OwnedFd,
    name: &str,
    modes: StoreModes,
) -> Result<OwnedFd, StoreError> {
    match open_folder(above, name) {
        Err(StoreError::Missing) => {}
        folder => return folder,
    }
    match mkdirat(above, name, Mode::from_raw_mode(modes.folder)) {
        // Another publisher made the folder meanwhile.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = open_folder(above, name)?;
    // The mode of a folder of another publisher cannot be changed, and needs no change.
    match modes.set(&folder, modes.folder) {
        Ok(()) | Err(Errno::PERM) => Ok(folder),
        Err(error) => Err(error.into()),
    }
}

/// Writes the entries of a folder to the disk.
pub(super) fn sync_folder(folder: &OwnedFd) -> Result<(), StoreError> {
    match fsync(folder) {
        // File systems without sync for folders, such as some network file systems.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes a new file with a unique name, and returns the file and the name. The name begins with `kind` and a hyphen.
pub(super) fn create_unique(
    folder: &OwnedFd,
    kind: &str,
    modes: StoreModes,
) -> Result<(File, String), StoreError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos());
        let name = format!("{kind}-{time:x}-{:x}-{number:x}", std::process::id());
        match openat(folder, &name, NEW_FILE, Mode::from_raw_mode(modes.file)) {
            Ok(file) => {
                modes.set(&file, modes.file)?;
                return Ok((File::from(file), name));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a file for reading and writing, alone: the file is locked until it is closed. `missing` decides about a missing
/// file. Returns None for a file that another publisher writes, that belongs to another account, that was moved meanwhile,
/// or that is no regular file: no other account may stop a publication with such a file.
pub(super) fn open_locked(
    folder: &OwnedFd,
    name: &str,
    missing: Missing,
    modes: StoreModes,
) -> Result<Option<File>, StoreError> {
    let flags = match missing {
        Missing::Make => KEPT_FILE.union(OFlags::CREATE),
        Missing::Leave => KEPT_FILE,
    };
    let file = match openat(folder, name, flags, Mode::from_raw_mode(modes.file)) {
        Err(Errno::ACCESS | Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
            return Ok(None);
        }
        file => file?,
    };
    let opened = fstat(&file)?;
    if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    // The earlier holder of the lock may have moved the file to the contents, which never change.
    let there = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_there = there.is_ok_and(|it| (it.st_dev, it.st_ino) == (opened.st_dev, opened.st_ino));
    if !is_there {
        return Ok(None);
    }
    match modes.set(&file, modes.file) {
        Ok(()) => Ok(Some(File::from(file))),
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a small file by a draft from the folder of drafts: the draft is synced before the rename, and the folder
/// after the rename.
pub(super) fn replace_file(
    drafts: &OwnedFd,
    folder: &OwnedFd,
    name: &str,
    content: &[u8],
    modes: StoreModes,
) -> Result<(), StoreError> {
    let (mut file, draft) = create_unique(drafts, DRAFT, modes)?;
    let renamed = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| Ok(renameat(drafts, &draft, folder, name)?));
    if let Err(error) = renamed {
        // The error of the write is reported.
        let _ = unlinkat(drafts, &draft, AtFlags::empty());
        return Err(error.into());
    }
    sync_folder(folder)
}

/// Removes a file, and syncs the folder. A missing file is no error.
pub(super) fn remove_file(folder: &OwnedFd, name: &str) -> Result<(), StoreError> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => sync_folder(folder),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a regular file for reading.
pub(super) fn open_file(folder: &OwnedFd, name: &str) -> Result<File, StoreError> {
    let file = openat(folder, name, OLD_FILE, Mode::empty()).map_err(link_refused)?;
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(File::from(file)),
        _ => Err(StoreError::Corrupt(
            "a file of the store is no regular file",
        )),
    }
}

/// Reads a small file.
pub(super) fn read_small(folder: &OwnedFd, name: &str) -> Result<Vec<u8>, StoreError> {
    let mut text = Vec::new();
    open_file(folder, name)?
        .take(RELEASE_POINTER_BYTES_MAX as u64 + 1)
        .read_to_end(&mut text)?;
    match text.len() {
        0..=RELEASE_POINTER_BYTES_MAX => Ok(text),
        _ => Err(StoreError::Corrupt("a file of the store is too long")),
    }
}

/// Locks a file until the returned file is closed, and makes a missing file. Returns None if the file is locked and
/// the kind does not wait.
pub(super) fn lock(
    folder: &OwnedFd,
    name: &str,
    kind: LockKind,
    modes: StoreModes,
) -> Result<Option<File>, StoreError> {
    let file = match openat(folder, name, KEPT_FILE, Mode::empty()) {
        Err(Errno::NOENT) => {
            let flags = KEPT_FILE.union(OFlags::CREATE);
            let file = openat(folder, name, flags, Mode::from_raw_mode(modes.lock));
            let file = file.map_err(link_refused)?;
            // The mode of a file of another publisher cannot be changed, and needs no change.
            match modes.set(&file, modes.lock) {
                Ok(()) | Err(Errno::PERM) => file,
                Err(error) => return Err(error.into()),
            }
        }
        file => file.map_err(link_refused)?,
    };
    let operation = match kind {
        LockKind::Shared => FlockOperation::LockShared,
        LockKind::Exclusive => FlockOperation::LockExclusive,
        LockKind::ExclusiveNow => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(Some(File::from(file))),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns true if another holder has locked a file exclusively. A file that cannot be opened counts as locked.
pub(super) fn is_locked(folder: &OwnedFd, name: &str) -> bool {
    match openat(folder, name, OLD_FILE, Mode::empty()) {
        Err(Errno::NOENT) => false,
        Err(_) => true,
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
    }
}

/// Removes a file that no holder has locked. Returns false for a locked file, and for a file that cannot be opened. A link in
/// place of the file is removed.
pub(super) fn remove_unlocked(folder: &OwnedFd, name: &str) -> Result<bool, StoreError> {
    let _locked = match openat(folder, name, OLD_FILE, Mode::empty()) {
        Ok(file) if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() => Some(file),
        // `O_NOFOLLOW`: the name is a link.
        Err(Errno::LOOP) => None,
        _ => return Ok(false),
    };
    // A publisher that opens the file meanwhile finds the lock, or compares the names after the lock.
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::ISDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Calls `see` for each name in a folder, in any order and with any number of names. Names outside of ASCII belong to no
/// store, and are left out.
pub(super) fn each_name<E: From<StoreError>>(
    folder: &OwnedFd,
    mut see: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |error: Errno| E::from(error.into());
    for entry in Dir::read_from(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_str().unwrap_or_default();
        if !name.is_empty() && name.is_ascii() && !name.starts_with('.') {
            see(name)?;
        }
    }
    Ok(())
}

/// Returns the names in a folder, sorted. Names outside of ASCII belong to no store, and are left out.
pub(super) fn names(folder: &OwnedFd) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    each_name(folder, |name| {
        names.push(name.to_owned());
        match names.len() {
            0..=STORE_NAMES_MAX => Ok(()),
            _ => Err(StoreError::Corrupt(
                "a folder of the store has too many files",
            )),
        }
    })?;
    names.sort_unstable();
    Ok(names)
}

fn link_refused(error: Errno) -> StoreError {
    match error {
        Errno::LOOP => StoreError::Corrupt("a link stands in place of a file of the store"),
        error => error.into(),
    }
}

/// Flags for a folder.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Flags for a present file. `NONBLOCK` keeps the reader from waiting for a pipe.
const OLD_FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Flags for a lock, and for a file that a publisher goes on to write.
const KEPT_FILE: OFlags = OFlags::RDWR
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Flags for a new file.
const NEW_FILE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
