//! Rotation of a log file by the server: `access.log` becomes `access.log.1`, and earlier files move on by one number.
//!
//! The writer thread of a destination renames and compresses, so no request waits. Each step leaves the folder in a
//! state from which the next rotation goes on, so a crash between two steps loses no file: a number moves only onto a
//! free number, and a file is removed only after its compressed copy is on the disk under the final name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, fchmod,
    fchown, fstat, futimens, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::limits::{LOG_COMPRESS_STEP_BYTES, LOG_FILES_KEPT_MAX};
use crate::sys;
use crate::trusted_path::{LastLink, MissingFolder, TrustedPath, open_file};

/// Rotation of log files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// Size in bytes beyond which no line is added to a file.
    pub bytes_max: u64,
    /// Number of earlier files kept.
    pub keep: u32,
    /// Whether earlier files are compressed with gzip.
    pub is_compressed: bool,
}

/// Folder of a log file, with the names of the earlier files.
pub(super) struct LogFolder {
    way: TrustedPath,
}

impl LogFolder {
    /// Resolves the path of a log file, which may end with symbolic links. A server that stays root uses a folder of
    /// another user only if no third user could have chosen the path.
    pub(super) fn of(path: &Path) -> io::Result<LogFolder> {
        let way = TrustedPath::resolve(path, LastLink::Follow, MissingFolder::Fail)?;
        if sys::is_root()
            && (way.must_be_controlled_by(0).is_err() || way.lies_in_shared_folder()?)
        {
            way.must_stay_with_its_folder()?.map_err(io::Error::other)?;
        }
        Ok(LogFolder { way })
    }

    /// Returns true if the name of the log leads to the open file.
    pub(super) fn leads_to(&self, open: &Stat) -> bool {
        self.stat(self.way.name())
            .is_some_and(|stat| is_same_file(&stat, open))
    }

    /// Makes the log file the first of the earlier files. Returns the free number onto which the files below moved.
    pub(super) fn shift(&self, keep: u32) -> io::Result<u32> {
        for beyond in keep + 1..=LOG_FILES_KEPT_MAX {
            if !self.remove(beyond)? {
                break;
            }
        }
        let free = (1..=keep).find(|number| !self.exists(*number));
        let free = match free {
            Some(free) => free,
            None => {
                self.remove(keep)?;
                keep
            }
        };
        for number in (1..free).rev() {
            for ending in ENDINGS {
                self.rename(&self.name(number, ending), &self.name(number + 1, ending))?;
            }
        }
        self.rename(self.way.name(), &self.name(1, PLAIN))?;
        Ok(free)
    }

    /// Gives the log file its name back after a failure to open a new file.
    pub(super) fn take_back(&self) -> io::Result<()> {
        let folder = self.way.folder();
        let first = self.name(1, PLAIN);
        let flags = RenameFlags::NOREPLACE;
        Ok(renameat_with(
            folder,
            &first,
            folder,
            self.way.name(),
            flags,
        )?)
    }

    /// Returns the name of an earlier file.
    fn name(&self, number: u32, ending: &str) -> OsString {
        let mut name = self.way.name().to_owned();
        name.push(format!(".{number}{ending}"));
        name
    }

    /// Returns the name of a compressed file in the making. A leftover of a crash has the same name, and the next
    /// compression replaces the leftover.
    fn draft_name(&self) -> OsString {
        let name = self.way.name().as_bytes();
        OsStr::from_bytes(&[b".", name, b".gz.draft"].concat()).to_owned()
    }

    fn stat(&self, name: &OsStr) -> Option<Stat> {
        statat(self.way.folder(), name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    fn exists(&self, number: u32) -> bool {
        let mut endings = ENDINGS.iter();
        endings.any(|ending| self.stat(&self.name(number, ending)).is_some())
    }

    /// Renames a file; a missing file is no error.
    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let folder = self.way.folder();
        match renameat(folder, from, folder, to) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the files with the number. Returns true if a file existed.
    fn remove(&self, number: u32) -> io::Result<bool> {
        let mut existed = false;
        for ending in ENDINGS {
            existed |= self.unlink(&self.name(number, ending))?;
        }
        Ok(existed)
    }

    fn unlink(&self, name: &OsStr) -> io::Result<bool> {
        match unlinkat(self.way.folder(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the earlier file with the lowest number that has no compressed copy. A file beside a
    /// complete copy, as after a crash before the removal of the file, is removed.
    fn uncompressed(&self, keep: u32) -> io::Result<Option<(u32, File, Stat)>> {
        for number in 1..=keep {
            let name = self.name(number, PLAIN);
            let Some(stat) = self.stat(&name) else {
                continue;
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                continue;
            }
            let copy = TrustedPath::resolve(
                &self.way.beside(&self.name(number, GZIP)),
                LastLink::Keep,
                MissingFolder::Fail,
            )?;
            match copy.stat()? {
                Some(_) => {
                    if is_copy_of(&copy, &stat) {
                        self.unlink(&name)?;
                    }
                }
                None => {
                    let flags =
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let file = openat(self.way.folder(), &name, flags, Mode::empty())?;
                    let stat = fstat(&file)?;
                    if !self.way.may_be_planted(&stat)? {
                        return Ok(Some((number, File::from(file), stat)));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Gives a new log file the mode and the owner of the file before. A server without the right keeps the mode and the
/// owner of a new file.
pub(super) fn copy_owner(new: &File, before: &Stat) {
    let owner = Some(Uid::from_raw(before.st_uid));
    let group = Some(Gid::from_raw(before.st_gid));
    if fchown(new, owner, group).is_err() {
        let _ = fchown(new, None, group);
    }
    let _ = fchmod(new, Mode::from_raw_mode(before.st_mode & 0o777));
}

/// Compression of an earlier file in steps, between which the writer writes lines.
pub(super) struct LogCompression {
    folder: LogFolder,
    number: u32,
    source: File,
    stat: Stat,
    encoder: GzEncoder<File>,
}

impl LogCompression {
    /// Begins to compress the newest earlier file without a compressed copy; `None` without such a file.
    pub(super) fn begin(folder: LogFolder, keep: u32) -> io::Result<Option<LogCompression>> {
        let Some((number, source, stat)) = folder.uncompressed(keep)? else {
            return Ok(None);
        };
        let draft = folder.draft_name();
        folder.unlink(&draft)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let draft = openat(folder.way.folder(), &draft, flags, Mode::RUSR | Mode::WUSR)?;
        let draft = File::from(draft);
        copy_owner(&draft, &stat);
        let encoder = GzEncoder::new(draft, Compression::default());
        Ok(Some(LogCompression {
            folder,
            number,
            source,
            stat,
            encoder,
        }))
    }

    /// Compresses the next part. Returns true at the end of the file.
    pub(super) fn step(&mut self, part: &mut Vec<u8>) -> io::Result<bool> {
        part.clear();
        let mut source = (&self.source).take(LOG_COMPRESS_STEP_BYTES as u64);
        if source.read_to_end(part)? > 0 {
            self.encoder.write_all(part)?;
            return Ok(false);
        }
        self.encoder.try_finish()?;
        self.complete()?;
        Ok(true)
    }

    /// Puts the compressed copy in place of the file.
    fn complete(&self) -> io::Result<()> {
        let draft = self.encoder.get_ref();
        let time = Timespec {
            tv_sec: self.stat.st_mtime,
            tv_nsec: self.stat.st_mtime_nsec as _,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        futimens(draft.as_fd(), &times)?;
        draft.sync_all()?;
        let folder = self.folder.way.folder();
        let (name, copy) = (
            self.folder.name(self.number, PLAIN),
            self.folder.name(self.number, GZIP),
        );
        let flags = RenameFlags::NOREPLACE;
        renameat_with(folder, self.folder.draft_name(), folder, &copy, flags)?;
        self.folder.way.sync();
        // Another program may have renamed the file meanwhile.
        let is_named = self.folder.stat(&name);
        if is_named.is_some_and(|stat| is_same_file(&stat, &self.stat)) {
            self.folder.unlink(&name)?;
        }
        Ok(())
    }

    /// Follows a rotation in which the files below the number `free` moved on by one. Returns false if the rotation
    /// removed the file.
    pub(super) fn follow(&mut self, free: u32, keep: u32) -> bool {
        if self.number < free {
            self.number += 1;
        }
        let name = self.folder.name(self.number, PLAIN);
        let stat = self.folder.stat(&name);
        self.number <= keep && stat.is_some_and(|stat| is_same_file(&stat, &self.stat))
    }

    /// Removes the incomplete copy.
    pub(super) fn abandon(&self) {
        let _ = self.folder.unlink(&self.folder.draft_name());
    }
}

/// Returns true if the gzip file ends with the length of the file (RFC 1952 §2.3.1, ISIZE). The server gives a
/// compressed copy its name only when the copy is complete.
fn is_copy_of(copy: &TrustedPath, file: &Stat) -> bool {
    use std::os::unix::fs::FileExt as _;
    let Ok((copy, stat)) = open_file(copy) else {
        return false;
    };
    let mut end = [0; 4];
    let at = u64::try_from(stat.st_size).unwrap_or(0).checked_sub(4);
    let read = at.map(|at| copy.read_exact_at(&mut end, at));
    matches!(read, Some(Ok(()))) && u32::from_le_bytes(end) == file.st_size as u32
}

fn is_same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

const PLAIN: &str = "";
const GZIP: &str = ".gz";
const ENDINGS: [&str; 2] = [PLAIN, GZIP];
