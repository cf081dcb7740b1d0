//! Work folder of a run: a temporary folder for the site, configurations, logs and the browser's profile.
//!
//! The folder is removed at the end of the run. A folder left by a killed run is removed by the next run. A
//! file lock marks folders in use; process ids would not do, since ids are reused, and containers that
//! share a folder have separate ids. The process has a list of its work folders, for a second interrupt.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use tempfile::TempDir;

/// A temporary folder, locked and kept for the lifetime of the value.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    folder: TempDir,
    _lock: File,
}

impl WorkFolder {
    /// Creates a work folder below a folder for temporary files.
    pub(crate) fn create(below: &Path) -> io::Result<WorkFolder> {
        // No folder exists outside of the list, not even for a moment: the list stays locked meanwhile.
        let mut own = WorkFolder::all();
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(below)?;
        own.push(folder.path().to_owned());
        drop(own);
        // The lock file gets its final name only once locked: until then no other run may take the folder
        // for stale.
        let unnamed = folder.path().join("lock.new");
        let lock = File::create(&unnamed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unnamed, folder.path().join(LOCK))?;
        Ok(WorkFolder {
            folder,
            _lock: lock,
        })
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the work folders of the process. Until the drop of the result, no work folder is created, and a removed
    /// folder stays in the list.
    pub(crate) fn all() -> MutexGuard<'static, Vec<PathBuf>> {
        OWN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the work folders of killed runs: folders with the kit's prefix and an unlocked lock file.
    pub(crate) fn remove_stale(below: &Path) {
        for entry in fs::read_dir(below).into_iter().flatten().flatten() {
            let folder = entry.path();
            let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            // The parent folder may be writable by all users: opening a FIFO without `NONBLOCK` would
            // block.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(lock) = open(folder.join(LOCK), flags, Mode::empty()) else {
                continue;
            };
            if !fstat(&lock).is_ok_and(|lock| FileType::from_raw_mode(lock.st_mode).is_file()) {
                continue;
            }
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let path = self.folder.path();
        let _ = fs::remove_dir_all(path);
        if !path.exists() {
            WorkFolder::all().retain(|own| own != path);
        }
    }
}

/// Work folders of the process.
static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

const PREFIX: &str = "anthill-bench-";
const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, mknodat};

    use super::*;

    #[test]
    fn only_unused_work_folders_are_removed() {
        let temporary = tempfile::tempdir().expect("a folder");
        let used = WorkFolder::create(temporary.path()).expect("a folder");
        let dead = temporary.path().join("anthill-bench-dead");
        let strange = temporary.path().join("anthill-bench-of-a-user");
        for folder in [&dead, &strange] {
            fs::create_dir_all(folder.join("logs")).expect("a folder");
        }
        File::create(dead.join(LOCK)).expect("a lock");
        let pipe = temporary.path().join("anthill-bench-of-a-joker");
        fs::create_dir(&pipe).expect("a folder");
        mknodat(CWD, pipe.join(LOCK), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        WorkFolder::remove_stale(temporary.path());
        assert!(used.path().exists() && strange.exists() && pipe.exists());
        assert!(!dead.exists());
        let path = used.path().to_owned();
        assert!(WorkFolder::all().contains(&path));
        drop(used);
        assert!(!path.exists() && !WorkFolder::all().contains(&path));
    }
}
