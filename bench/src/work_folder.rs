//! The folder in which a run keeps its site, configurations and logs, and the browser its profile.
//! It goes away with the run; what a run that was killed could not remove, the next one does.
//!
//! A lock tells which folders are in use. Process ids would not: they are given out again, and
//! containers that share a folder have their own.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use tempfile::TempDir;

/// A temporary folder that is locked as long as this lives.
#[derive(Debug)]
pub struct WorkFolder {
    folder: TempDir,
    _lock: File,
}

impl WorkFolder {
    /// A new one below a folder for temporary files.
    pub fn create(below: &Path) -> io::Result<WorkFolder> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(below)?;
        // Under its name only once it is held: until then nobody may think that it is stale.
        let unnamed = folder.path().join("lock.new");
        let lock = File::create(&unnamed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unnamed, folder.path().join(LOCK))?;
        Ok(WorkFolder {
            folder,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes those of runs that were killed. What isn't ours to remove stays.
    pub fn remove_stale(below: &Path) {
        for entry in fs::read_dir(below).into_iter().flatten().flatten() {
            let folder = entry.path();
            let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
            if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            // Anybody may write there: a pipe would keep us waiting.
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

const PREFIX: &str = "anthill-bench-";
const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, mknodat};

    use super::*;

    #[test]
    fn only_what_nobody_uses_is_removed() {
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
        drop(used);
        assert!(!path.exists());
    }
}
