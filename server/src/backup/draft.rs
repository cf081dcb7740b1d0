//! A folder on its way into its place: a new folder beside it, which the owner of the place must not
//! enter before all in it is done.
//!
//! Root writes here what will belong to another user. So everything is made, given away and changed by
//! descriptor and never by path, no link is followed, and the top of the folder is given to its owner
//! last: until then it is closed (mode 0700) to every other user, and nothing in it can be exchanged for
//! a link to a file of root's.

use super::restore::at;
use super::tar::Entry;
use super::untrusted;
use crate::base::trusted_path::{FOLDER, LastLink, Missing, TrustedPath, empty, must_be_new};
use crate::config::OperatorError;
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

/// A folder on its way into its place. Dropping it takes it away, unless it has arrived.
pub(super) struct Draft {
    /// The place.
    pub(super) way: TrustedPath,
    /// The draft, open; `None` before its entry has come.
    pub(super) top: Option<OwnedFd>,
    /// The name of the draft, beside the place.
    name: OsString,
    /// The owner of what was there before; `None` if this process is not root, and gives nothing away.
    owner: Option<(Uid, Gid)>,
    /// Folders with their mode and time, which they get at the end.
    folders: Vec<(Vec<u8>, u32, u64)>,
    /// The folder of the last entry, since the next one mostly lies there too.
    last: Option<(Vec<u8>, OwnedFd)>,
    is_in_place: bool,
}

impl Draft {
    pub(super) fn begin(place: &Path) -> Result<Draft, OperatorError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                OperatorError::failure(format!("{} can't be replaced", place.display()))
            }
            _ => at(place, &error),
        };
        let way = TrustedPath::resolve(place, LastLink::Follow, Missing::Make).map_err(failed)?;
        let (uid, gid) = way.owner().map_err(failed)?;
        way.must_be_led_by(uid).map_err(|error| untrusted(&error))?;
        let shown = way.name().to_string_lossy();
        let name = OsString::from(format!(".{shown}.restore-{}", std::process::id()));
        let is_root = rustix::process::geteuid().is_root();
        Ok(Draft {
            owner: is_root.then(|| (Uid::from_raw(uid), Gid::from_raw(gid))),
            way,
            top: None,
            name,
            folders: Vec::new(),
            last: None,
            is_in_place: false,
        })
    }

    /// The path of an entry, for messages.
    pub(super) fn shown(&self, name: &[u8]) -> PathBuf {
        let draft = self.way.beside(&self.name);
        match name {
            b"" => draft,
            name => draft.join(OsStr::from_bytes(name)),
        }
    }

    /// Makes a folder; the draft itself, if the name is empty.
    pub(super) fn folder(&mut self, name: &[u8], entry: &Entry) -> Result<(), Errno> {
        match name {
            b"" => {
                mkdirat(self.way.folder(), &self.name, Mode::RWXU)?;
                let top = openat(self.way.folder(), &self.name, FOLDER, Mode::empty())?;
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

    /// Makes a file, open to write to it.
    pub(super) fn file(&mut self, name: &[u8]) -> Result<File, Errno> {
        let (parent, name) = self.parent(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(parent, name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Owner, mode and time of a file or folder.
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
        // A time that the disk can't have is no reason to fail.
        let _ = futimens(&open, &times);
        Ok(())
    }

    /// Owners, modes and times of the folders, the innermost first, and the top last of all.
    pub(super) fn settle_folders(&mut self) -> Result<(), OperatorError> {
        self.last = None;
        for (name, mode, modified) in std::mem::take(&mut self.folders).into_iter().rev() {
            let settled = match (&name[..], &self.top) {
                (b"", Some(top)) => self.settle(top, mode, modified),
                _ => self
                    .walk(&name)
                    .and_then(|open| self.settle(open, mode, modified)),
            };
            settled.map_err(|error| at(&self.shown(&name), &error.into()))?;
        }
        Ok(())
    }

    /// The folder of an entry, open, and the entry's name in it.
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

    /// Opens a folder of the draft, part by part, so that no link is followed.
    fn walk(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let top = self.top.as_ref().ok_or(Errno::NOENT)?;
        let mut open = openat(top, ".", FOLDER, Mode::empty())?;
        for part in name.split(|byte| *byte == b'/') {
            open = openat(&open, part, FOLDER, Mode::empty())?;
        }
        Ok(open)
    }

    /// Puts the draft into its place. What was there is kept beside it, under the name that is returned.
    pub(super) fn swap(&mut self, now: u64) -> io::Result<Option<OsString>> {
        let (folder, place) = (self.way.folder(), self.way.name());
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
            // What was there is now the draft, and must not go with it.
            Ok(()) => {
                if let Err(error) = rename_new(folder, &self.name, &kept) {
                    let back = RenameFlags::EXCHANGE;
                    let _ = renameat_with(folder, &self.name, folder, place, back);
                    return Err(error.into());
                }
            }
            // File systems that can't exchange have a moment without either.
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

    /// Fails if there is something else under the draft's name: the owner of the folder above, who may
    /// do so, is told.
    fn must_be_here(&self) -> io::Result<()> {
        let top = fstat(self.top.as_ref().ok_or(Errno::NOENT)?)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match statat(self.way.folder(), &self.name, flags) {
            Ok(here) if (here.st_dev, here.st_ino) == (top.st_dev, top.st_ino) => Ok(()),
            _ => Err(io::Error::other(
                "what was unpacked beside it was moved away meanwhile",
            )),
        }
    }

    /// Takes the draft out of its place again, to be removed.
    pub(super) fn undo(&mut self, kept: Option<&OsStr>) {
        let (folder, place) = (self.way.folder(), self.way.name());
        // The first error, for which all is undone, is the one to tell.
        let out = rename_new(folder, place, &self.name);
        self.is_in_place = out.is_err();
        if let (Ok(()), Some(kept)) = (out, kept) {
            let _ = rename_new(folder, kept, place);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(top) = self.top.as_ref().filter(|_| !self.is_in_place) else {
            return;
        };
        // By the descriptor: under its name there may be something else by now, which is not removed
        // unless it is an empty folder.
        let _ = fchmod(top, Mode::RWXU);
        let _ = empty(top.as_fd());
        let _ = unlinkat(self.way.folder(), &self.name, AtFlags::REMOVEDIR);
    }
}

/// Renames where nothing has the new name. File systems that can't refuse to replace may replace an
/// empty folder.
fn rename_new(folder: BorrowedFd<'_>, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    match renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => renameat(folder, from, folder, to),
        other => other,
    }
}
