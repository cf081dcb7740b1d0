//! Backup of files that may change during the backup. A file that changed while being read is read again,
//! so that no file in the archive mixes two versions. The archive appears complete or not at all.

use super::{ABOUT, BackupFolder, HITS, MAGIC, SUMS, at, folders, real, sum_line, untrusted};
use crate::backup::limits::{
    BACKUP_DEPTH_MAX, BACKUP_ENTRIES_MAX, BACKUP_LISTINGS_MAX, BACKUP_MEMORY_BYTES,
    BACKUP_TRIES_MAX,
};
use crate::config::{OperatorError, ServerConfig, SiteConfig, reason};
use base::digest::Digest;
use base::limits::TAR_NAME_BYTES_MAX;
use base::tar;
use base::tar::{TarEntry, TarEntryKind};
use base::trusted_path::{FOLDER, LastLink, MissingFolder, TrustedPath, may_be_planted, names};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, renameat, statat, unlinkat,
};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Summary of a backup.
#[derive(Debug, Default)]
pub struct SaveSummary {
    /// Number of files in the archive.
    pub files: u64,
    /// Total bytes of the files.
    pub bytes: u64,
    /// Paths left out of the archive because the type is neither file, folder nor symbolic link.
    pub passed_over: Vec<PathBuf>,
    /// Files left out of the archive because of several hard links and an owner other than the folder's
    /// owner.
    pub planted: Vec<PathBuf>,
}

/// Writes the content of `site` and the hit counts into the file `to`. The state folder is left out, even
/// inside a folder of the site.
pub fn save(
    site: &SiteConfig,
    hits: Option<&[u8]>,
    server: &ServerConfig,
    now: u64,
    to: &Path,
) -> Result<SaveSummary, OperatorError> {
    let failed = |error: io::Error| {
        let what = format!("the backup {}: {}", to.display(), reason(&error));
        OperatorError::failure(what)
    };
    let out = BackupOutput::of(to).map_err(failed)?;
    let saved = write(site, hits, server, now, &out).and_then(|saved| {
        out.rename_into_place()
            .map_err(|error| failed(error.into()))?;
        Ok(saved)
    });
    if saved.is_err() {
        // The first error is the error to report.
        let _ = unlinkat(out.destination.folder(), &out.draft, AtFlags::empty());
    }
    saved
}

/// Destination of an archive. All operations use one open folder, so that a user able to change the path to
/// the folder cannot spread the archive over several folders.
struct BackupOutput {
    destination: TrustedPath,
    /// Name of the incomplete archive.
    draft: OsString,
    /// Name of the spool file for content too large for memory.
    spool: OsString,
}

impl BackupOutput {
    fn of(to: &Path) -> io::Result<BackupOutput> {
        let destination = TrustedPath::resolve(to, LastLink::Keep, MissingFolder::Fail)?;
        let temporary_name = |what: &str| {
            let name = destination.name().to_string_lossy();
            OsString::from(format!(".{name}.{}{what}", std::process::id()))
        };
        let (draft, spool) = (temporary_name(""), temporary_name(".spool"));
        Ok(BackupOutput {
            destination,
            draft,
            spool,
        })
    }

    /// Returns the path of the draft, for messages.
    fn shown(&self) -> PathBuf {
        self.destination.beside(&self.draft)
    }

    fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(
            self.destination.folder(),
            name,
            flags | OFlags::CLOEXEC,
            mode,
        )?;
        Ok(file.into())
    }

    fn rename_into_place(&self) -> rustix::io::Result<()> {
        let folder = self.destination.folder();
        renameat(folder, &self.draft, folder, self.destination.name())?;
        self.destination.sync();
        Ok(())
    }
}

fn write(
    site: &SiteConfig,
    hits: Option<&[u8]>,
    server: &ServerConfig,
    now: u64,
    out: &BackupOutput,
) -> Result<SaveSummary, OperatorError> {
    let folders = folders(site, server);
    if folders.is_empty() {
        let what = "the site has no folder to save";
        return Err(OperatorError::failure(what));
    }
    let archive = out.destination.path();
    if let Some(folder) = folders
        .iter()
        .find(|it| archive.starts_with(real(&it.place)))
    {
        let (archive, folder) = (archive.display(), folder.place.display());
        let what =
            format!("the backup {archive} would lie in {folder}, which is part of the backup");
        let help = format!("name a file outside of {folder}");
        return Err(OperatorError::failure(what).help(help));
    }
    let name = site.name.as_str();
    let mut writer = BackupWriter::create(out, server.state.get_ref())?;
    writer.metadata_entry(ABOUT, &manifest(name, now, &folders), now)?;
    for folder in &folders {
        if let Some(release) = &folder.release {
            writer.release(release, folder.name.as_bytes(), now)?;
            continue;
        }
        let open = open_top(&folder.place)?;
        writer.folder(&open, folder.name.as_bytes(), &folder.place, 0)?;
    }
    if let Some(hits) = hits {
        writer.metadata_entry(HITS, hits, now)?;
    }
    let sums = std::mem::take(&mut writer.sums);
    writer.metadata_entry(SUMS, &sums, now)?;
    writer.finish()
}

/// Opens a folder of the site. Root refuses a folder if a user other than the folder's owner controls the
/// path: the archive would expose files unreadable to the other user.
fn open_top(place: &Path) -> Result<OwnedFd, OperatorError> {
    let failed = |error: io::Error| at(place, error);
    let path =
        TrustedPath::resolve(place, LastLink::Follow, MissingFolder::Fail).map_err(failed)?;
    let open = path.open(FOLDER, Mode::empty()).map_err(failed)?;
    let owner = fstat(&open).map_err(|error| at(place, error))?.st_uid;
    path.must_be_controlled_by(owner)
        .map_err(|error| untrusted(&error))?;
    Ok(open)
}

/// Returns the names in a folder. A listing can miss a file that another file replaces meanwhile, by a rename. So a folder
/// that changes is listed several times, and each name of a listing counts.
fn all_names(open: &OwnedFd) -> io::Result<BTreeSet<OsString>> {
    let mut all = BTreeSet::new();
    for _ in 0..BACKUP_LISTINGS_MAX {
        let before = fstat(open)?;
        let began = base::clock::unix_seconds_now();
        all.extend(names(open.as_fd())?);
        let after = fstat(open)?;
        let changed = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
        // The system's times are exact to some milliseconds.
        let is_quiet = (before.st_mtime as u64).saturating_add(1) < began;
        if is_quiet && changed(&before) == changed(&after) {
            break;
        }
    }
    Ok(all)
}

fn manifest(site: &str, now: u64, folders: &[BackupFolder]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("{MAGIC}\nversion {version}\nsite {site}\ntime {now}\n");
    for folder in folders {
        text.push_str(&format!("folder {} {}\n", folder.name, folder.role));
    }
    text.into_bytes()
}

/// Flags to open a file. NONBLOCK avoids waiting for the writer of a FIFO.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Complete content of a file: in memory, or in the spool file if large.
enum FileContent {
    Here(Vec<u8>),
    Spooled,
}

/// Archive in the making.
pub(super) struct BackupWriter {
    out: GzEncoder<BufWriter<File>>,
    /// Path of the draft, for messages.
    draft: PathBuf,
    spool: File,
    pub(super) sums: Vec<u8>,
    pub(super) saved: SaveSummary,
    entries: u64,
    /// Device and inode numbers of the archive and the state folder, which are not content.
    left_out: Vec<(u64, u64)>,
}

impl BackupWriter {
    fn create(out: &BackupOutput, state: &Path) -> Result<BackupWriter, OperatorError> {
        let draft = out.shown();
        let failed = |error: io::Error| at(&draft, error);
        let file = out.create(&out.draft).map_err(failed)?;
        let made = out.create(&out.spool).map_err(failed)?;
        // The unlinked spool file disappears with the process, however the process ends.
        let removed = unlinkat(out.destination.folder(), &out.spool, AtFlags::empty());
        removed.map_err(|error| failed(error.into()))?;
        let state = std::fs::metadata(state).ok();
        let all = [file.metadata().ok(), state];
        let left_out = all.iter().flatten().map(|it| (it.dev(), it.ino()));
        Ok(BackupWriter {
            left_out: left_out.collect(),
            out: GzEncoder::new(BufWriter::new(file), Compression::default()),
            draft,
            spool: made,
            sums: Vec::new(),
            saved: SaveSummary::default(),
            entries: 0,
        })
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), OperatorError> {
        let written = self.out.write_all(bytes);
        written.map_err(|error| at(&self.draft, error))
    }

    /// Writes an entry of the backup itself.
    pub(super) fn metadata_entry(
        &mut self,
        name: &[u8],
        content: &[u8],
        now: u64,
    ) -> Result<(), OperatorError> {
        let digest = base::digest::sha256(content);
        self.put(&tar::head(&TarEntry {
            name: name.to_vec(),
            kind: TarEntryKind::File,
            mode: 0o600,
            modified: now,
            size: content.len() as u64,
            link: Vec::new(),
        }))?;
        self.put(content)?;
        self.put(&[0; 512][..tar::padding(content.len() as u64)])?;
        self.sums.extend(sum_line(&digest, name));
        Ok(())
    }

    /// Writes a folder and the content of the folder. Files deleted meanwhile are left out.
    fn folder(
        &mut self,
        open: &OwnedFd,
        name: &[u8],
        place: &Path,
        depth: usize,
    ) -> Result<(), OperatorError> {
        if depth > BACKUP_DEPTH_MAX {
            let what = format!("{}: folders are nested too deeply", place.display());
            return Err(OperatorError::failure(what));
        }
        let stat = fstat(open).map_err(|error| at(place, error))?;
        if self.is_left_out(&stat) {
            return Ok(());
        }
        self.head(name, TarEntryKind::Folder, &stat, 0, Vec::new())?;
        for child in all_names(open).map_err(|error| at(place, error))? {
            let path = [name, b"/", child.as_bytes()].concat();
            let place = place.join(&child);
            if path.len() > TAR_NAME_BYTES_MAX {
                let what = format!("{}: the path is too long", place.display());
                return Err(OperatorError::failure(what));
            }
            match self.child(open, &child, path, &place, depth) {
                Ok(()) => {}
                Err(SaveError::Gone) => {}
                Err(SaveError::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn child(
        &mut self,
        parent: &OwnedFd,
        child: &OsStr,
        name: Vec<u8>,
        place: &Path,
        depth: usize,
    ) -> Result<(), SaveError> {
        let failed = |error: rustix::io::Errno| SaveError::at(place, error.into());
        let stat = statat(parent, child, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let open = openat(parent, child, FOLDER, Mode::empty()).map_err(failed)?;
                Ok(self.folder(&open, &name, place, depth + 1)?)
            }
            FileType::Symlink => {
                let link = readlinkat(parent, child, Vec::new()).map_err(failed)?;
                Ok(self.head(&name, TarEntryKind::Link, &stat, 0, link.into_bytes())?)
            }
            FileType::RegularFile if self.is_left_out(&stat) => Ok(()),
            FileType::RegularFile => self.file(parent, child, &name, place),
            _ => {
                self.saved.passed_over.push(place.to_owned());
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        parent: &OwnedFd,
        child: &OsStr,
        name: &[u8],
        place: &Path,
    ) -> Result<(), SaveError> {
        for _ in 0..BACKUP_TRIES_MAX {
            let open = openat(parent, child, FILE, Mode::empty());
            let mut file = File::from(open.map_err(|error| SaveError::at(place, error.into()))?);
            let before = fstat(&file).map_err(|error| SaveError::at(place, error.into()))?;
            // The file was replaced since the check of the type.
            if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
                return Err(SaveError::Gone);
            }
            if self.is_planted(parent, &before, place)? {
                return Ok(());
            }
            let mut digest = Digest::new();
            let Some(content) = self.content(&mut file, &before, &mut digest, place)? else {
                continue;
            };
            let size = before.st_size as u64;
            self.head(name, TarEntryKind::File, &before, size, Vec::new())?;
            match content {
                FileContent::Here(bytes) => self.put(&bytes)?,
                FileContent::Spooled => self.unspool(size)?,
            }
            self.put(&[0; 512][..tar::padding(size)])?;
            self.sums.extend(sum_line(&digest.finish(), name));
            self.saved.files += 1;
            self.saved.bytes += size;
            return Ok(());
        }
        let what = format!("{} changes too often to be read whole", place.display());
        let help = "save it while no process writes to it, or move it out of the site's folders";
        Err(SaveError::Error(OperatorError::failure(what).help(help)))
    }

    /// Reads a complete file; `None` if the file changed meanwhile.
    fn content(
        &mut self,
        file: &mut File,
        before: &Stat,
        digest: &mut Digest,
        place: &Path,
    ) -> Result<Option<FileContent>, OperatorError> {
        let size = before.st_size as u64;
        let is_large = size > BACKUP_MEMORY_BYTES;
        let mut here = Vec::new();
        if is_large {
            let emptied = self.spool.set_len(0).and_then(|()| self.spool.rewind());
            emptied.map_err(|error| at(&self.draft, error))?;
        }
        let (mut buffer, mut read) = (vec![0; 64 * 1024], 0);
        loop {
            let length = match file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| at(place, error))?,
            };
            read += length as u64;
            // Stops at a file that grew, because the file may grow faster than the reads.
            if length == 0 || read > size {
                break;
            }
            digest.update(&buffer[..length]);
            if is_large {
                let spooled = self.spool.write_all(&buffer[..length]);
                spooled.map_err(|error| at(&self.draft, error))?;
            } else {
                here.extend_from_slice(&buffer[..length]);
            }
        }
        let after = fstat(file.as_fd()).map_err(|error| at(place, error))?;
        let version = |stat: &Stat| {
            let times = (
                stat.st_mtime,
                stat.st_mtime_nsec,
                stat.st_ctime,
                stat.st_ctime_nsec,
            );
            (stat.st_size, times)
        };
        let is_same = version(before) == version(&after) && read == size;
        Ok(is_same.then_some(if is_large {
            FileContent::Spooled
        } else {
            FileContent::Here(here)
        }))
    }

    fn unspool(&mut self, size: u64) -> Result<(), OperatorError> {
        let copied = self.spool.seek(SeekFrom::Start(0)).and_then(|_| {
            let mut spooled = Read::by_ref(&mut self.spool).take(size);
            io::copy(&mut spooled, &mut self.out)
        });
        match copied {
            Ok(copied) if copied == size => Ok(()),
            Ok(_) => Err(at(
                &self.draft,
                io::Error::from(io::ErrorKind::UnexpectedEof),
            )),
            Err(error) => Err(at(&self.draft, error)),
        }
    }

    fn head(
        &mut self,
        name: &[u8],
        kind: TarEntryKind,
        stat: &Stat,
        size: u64,
        link: Vec<u8>,
    ) -> Result<(), OperatorError> {
        self.counted_head(&TarEntry {
            name: name.to_vec(),
            kind,
            mode: stat.st_mode & kind.mode_bits(),
            modified: u64::try_from(stat.st_mtime).unwrap_or(0),
            size,
            link,
        })
    }

    /// Writes the head of an entry, and counts the entry.
    pub(super) fn counted_head(&mut self, entry: &TarEntry) -> Result<(), OperatorError> {
        self.entries += 1;
        if self.entries > BACKUP_ENTRIES_MAX {
            let what = format!("the site has more than {BACKUP_ENTRIES_MAX} files");
            return Err(OperatorError::failure(what));
        }
        self.put(&tar::head(entry))
    }

    /// Returns true if the file may belong to another user, with a hard link made by the folder's owner.
    /// Root could read the file, and would disclose the content in the archive.
    fn is_planted(
        &mut self,
        parent: &OwnedFd,
        file: &Stat,
        place: &Path,
    ) -> Result<bool, OperatorError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(false);
        }
        let folder = fstat(parent).map_err(|error| at(place, error))?;
        let is_planted = may_be_planted(&folder, file);
        if is_planted {
            self.saved.planted.push(place.to_owned());
        }
        Ok(is_planted)
    }

    #[allow(clippy::unnecessary_cast)] // the width differs by processor
    fn is_left_out(&self, stat: &Stat) -> bool {
        let id = (stat.st_dev as u64, stat.st_ino as u64);
        self.left_out.contains(&id)
    }

    fn finish(mut self) -> Result<SaveSummary, OperatorError> {
        self.put(&tar::END)?;
        let draft = &self.draft;
        let ended = self.out.finish().and_then(|out| {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()
        });
        ended.map_err(|error| at(draft, error))?;
        Ok(self.saved)
    }
}

/// Reason that an entry is missing from the archive.
enum SaveError {
    /// The file was deleted during the backup, which is no failure.
    Gone,
    Error(OperatorError),
}

impl SaveError {
    /// Classifies an error. A file replaced by a file of another type counts as deleted.
    fn at(place: &Path, error: io::Error) -> SaveError {
        let errno = error
            .raw_os_error()
            .map(rustix::io::Errno::from_raw_os_error);
        use rustix::io::Errno;
        match errno {
            Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::INVAL) => SaveError::Gone,
            _ => SaveError::Error(at(place, error)),
        }
    }
}

impl From<OperatorError> for SaveError {
    fn from(error: OperatorError) -> SaveError {
        SaveError::Error(error)
    }
}
