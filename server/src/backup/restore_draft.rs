//! Draft of a restored folder: a new folder beside the destination, which the destination's owner must
//! not enter before the content is complete.
//!
//! Root writes files here that will belong to another user. So root makes, gives away and changes every
//! file by descriptor and never by path, and follows no link. The top of the draft is given to the owner
//! last: until the end, the draft is closed (mode 0700) to every other user, and no file in the draft can
//! be exchanged for a link to a file of root's.

use crate::backup::{at, untrusted};
use crate::config::OperatorError;
use base::tar::TarEntry;
use base::trusted_path::{
    FOLDER, LastLink, MissingFolder, TrustedPath, must_be_new, remove_entries,
};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chownat,
    fchmod, fchown, fstat, futimens, mkdirat, openat, renameat, renameat_with, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A folder that is being restored. Dropping the draft removes the folder, unless the folder is in place.
pub(super) struct RestoreDraft {
    /// The destination.
    pub(super) destination: TrustedPath,
    /// The open folder of the draft; `None` before the entry of the folder has come.
    pub(super) top: Option<OwnedFd>,
    /// The name of the draft, beside the destination.
    name: OsString,
    /// The owner of the destination, or of the folder above a missing destination; `None` if the process
    /// is not root and gives no file away.
    owner: Option<(Uid, Gid)>,
    /// Folders with the mode and time to be set at the end.
    folders: Vec<(Vec<u8>, u32, u64)>,
    /// The folder of the last entry, since the next entry mostly lies in the same folder.
    last: Option<(Vec<u8>, OwnedFd)>,
    is_in_place: bool,
}

impl RestoreDraft {
    pub(super) fn begin(place: &Path) -> Result<RestoreDraft, OperatorError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                OperatorError::failure(format!("{} cannot be replaced", place.display()))
            }
            _ => at(place, error),
        };
        let destination =
            TrustedPath::resolve(place, LastLink::Follow, MissingFolder::Make).map_err(failed)?;
        let (uid, gid) = destination.owner().map_err(failed)?;
        destination
            .must_be_controlled_by(uid)
            .map_err(|error| untrusted(&error))?;
        let shown = destination.name().to_string_lossy();
        let name = OsString::from(format!(".{shown}.restore-{}", std::process::id()));
        let is_root = rustix::process::geteuid().is_root();
        Ok(RestoreDraft {
            owner: is_root.then(|| (Uid::from_raw(uid), Gid::from_raw(gid))),
            destination,
            top: None,
            name,
            folders: Vec::new(),
            last: None,
            is_in_place: false,
        })
    }

    /// Returns the path of an entry, for messages.
    pub(super) fn shown(&self, name: &[u8]) -> PathBuf {
        let draft = self.destination.beside(&self.name);
        match name {
            b"" => draft,
            name => draft.join(OsStr::from_bytes(name)),
        }
    }

    /// Makes a folder; the draft itself if the name is empty.
    pub(super) fn folder(&mut self, name: &[u8], entry: &TarEntry) -> Result<(), Errno> {
        match name {
            b"" => {
                mkdirat(self.destination.folder(), &self.name, Mode::RWXU)?;
                let top = openat(self.destination.folder(), &self.name, FOLDER, Mode::empty())?;
                must_be_new(top.as_fd())?;
                self.top = Some(top);
            }
            name => {
                let (parent, name) = self.parent(name)?;
                mkdirat(parent, name, Mode::RWXU)?;
            }
        }
        self.folders
            .push((name.to_owned(), entry.mode, entry.modified));
        Ok(())
    }

    pub(super) fn link(&mut self, name: &[u8], target: &[u8]) -> Result<(), Errno> {
        let owner = self.owner;
        let (parent, name) = self.parent(name)?;
        symlinkat(target, parent, name)?;
        match owner {
            Some((uid, gid)) => chownat(
                parent,
                name,
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            ),
            None => Ok(()),
        }
    }

    /// Makes a file, open for writing.
    pub(super) fn file(&mut self, name: &[u8]) -> Result<File, Errno> {
        let (parent, name) = self.parent(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(parent, name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Sets owner, mode and time of a file or folder.
    pub(super) fn settle(&self, open: impl AsFd, mode: u32, modified: u64) -> Result<(), Errno> {
        if let Some((uid, gid)) = self.owner {
            fchown(&open, Some(uid), Some(gid))?;
        }
        fchmod(&open, Mode::from_raw_mode(mode))?;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: i64::try_from(modified).unwrap_or(0),
                tv_nsec: 0,
            },
        };
        // A time that the file system can't store is no reason to fail.
        let _ = futimens(&open, &times);
        Ok(())
    }

    /// Sets owners, modes and times of the folders, the innermost first and the top last.
    pub(super) fn settle_folders(&mut self) -> Result<(), OperatorError> {
        self.last = None;
        for (name, mode, modified) in std::mem::take(&mut self.folders).into_iter().rev() {
            let settled = match (&name[..], &self.top) {
                (b"", Some(top)) => self.settle(top, mode, modified),
                _ => self
                    .walk(&name)
                    .and_then(|open| self.settle(open, mode, modified)),
            };
            settled.map_err(|error| at(&self.shown(&name), error))?;
        }
        Ok(())
    }

    /// Returns the open folder of an entry, and the entry's name in the folder.
    fn parent<'n>(&mut self, name: &'n [u8]) -> Result<(BorrowedFd<'_>, &'n [u8]), Errno> {
        let Some(slash) = name.iter().rposition(|byte| *byte == b'/') else {
            let top = self.top.as_ref().ok_or(Errno::NOENT)?;
            return Ok((top.as_fd(), name));
        };
        let (folder, name) = (&name[..slash], &name[slash + 1..]);
        let open = match self.last.take() {
            Some(last) if last.0 == folder => last,
            _ => (folder.to_owned(), self.walk(folder)?),
        };
        Ok((self.last.insert(open).1.as_fd(), name))
    }

    /// Opens a folder of the draft name by name, without following a link.
    fn walk(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let top = self.top.as_ref().ok_or(Errno::NOENT)?;
        let mut open = openat(top, ".", FOLDER, Mode::empty())?;
        for part in name.split(|byte| *byte == b'/') {
            open = openat(&open, part, FOLDER, Mode::empty())?;
        }
        Ok(open)
    }

    /// Puts the draft into place. The former content is kept beside the destination, under the returned
    /// name.
    pub(super) fn swap(&mut self, now: u64) -> io::Result<Option<OsString>> {
        let (folder, place) = (self.destination.folder(), self.destination.name());
        self.must_be_here()?;
        let is_there = |name: &OsStr| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if !is_there(place) {
            rename_new(folder, &self.name, place)?;
            self.is_in_place = true;
            return Ok(None);
        }
        let shown = place.to_string_lossy();
        let names = (0..1_000).map(|nth| match nth {
            0 => OsString::from(format!(".{shown}.before-restore-{now}")),
            nth => OsString::from(format!(".{shown}.before-restore-{now}-{nth}")),
        });
        let mut names = names.filter(|name| !is_there(name));
        let kept = names.next().ok_or(Errno::EXIST)?;
        match renameat_with(folder, &self.name, folder, place, RenameFlags::EXCHANGE) {
            // The draft's name now holds the former content, which must not be removed with the draft.
            Ok(()) => {
                if let Err(error) = rename_new(folder, &self.name, &kept) {
                    let back = RenameFlags::EXCHANGE;
                    let _ = renameat_with(folder, &self.name, folder, place, back);
                    return Err(error.into());
                }
            }
            // On file systems without exchange, neither folder is in place for a moment.
            Err(Errno::INVAL | Errno::NOSYS) => {
                renameat(folder, place, folder, &kept)?;
                if let Err(error) = renameat(folder, &self.name, folder, place) {
                    let _ = renameat(folder, &kept, folder, place);
                    return Err(error.into());
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.is_in_place = true;
        Ok(Some(kept))
    }

    /// Fails if another file has taken the draft's name: the owner of the folder above may exchange
    /// names, and is told.
    fn must_be_here(&self) -> io::Result<()> {
        let top = fstat(self.top.as_ref().ok_or(Errno::NOENT)?)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match statat(self.destination.folder(), &self.name, flags) {
            Ok(here) if (here.st_dev, here.st_ino) == (top.st_dev, top.st_ino) => Ok(()),
            _ => Err(io::Error::other(
                "the unpacked folder beside it was moved away during the restore",
            )),
        }
    }

    /// Takes the draft out of place again, to be removed.
    pub(super) fn undo(&mut self, kept: Option<&OsStr>) {
        let (folder, place) = (self.destination.folder(), self.destination.name());
        // The first error, the reason for the undo, is the error to report.
        let out = rename_new(folder, place, &self.name);
        self.is_in_place = out.is_err();
        if let (Ok(()), Some(kept)) = (out, kept) {
            let _ = rename_new(folder, kept, place);
        }
    }
}

impl Drop for RestoreDraft {
    fn drop(&mut self) {
        let Some(top) = self.top.as_ref().filter(|_| !self.is_in_place) else {
            return;
        };
        // The content is removed by descriptor: the draft's name may belong to another file by now. The
        // name is removed only if an empty folder has the name.
        let _ = fchmod(top, Mode::RWXU);
        let _ = remove_entries(top.as_fd());
        let _ = unlinkat(self.destination.folder(), &self.name, AtFlags::REMOVEDIR);
    }
}

/// Renames if the new name is free. A file system that can't refuse to replace may replace an empty
/// folder.
fn rename_new(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(folder, from, folder, to),
        other => other,
    }
}
