//! Writes a backup, of files that may change meanwhile: each is read until it was the same before and
//! after, so that none is half of one version and half of another. The archive appears whole or not.

use super::{ABOUT, BackupFolder, HITS, MAGIC, SUMS, folders, real, sum_line, untrusted};
use crate::base::digest::Digest;
use crate::base::tar;
use crate::base::tar::{TarEntry, TarEntryKind};
use crate::base::trusted_path::{
    FOLDER, LastLink, MissingFolder, TrustedPath, may_be_planted, names,
};
use crate::config::{OperatorError, SiteConfig, reason};
use crate::limits::{
    BACKUP_DEPTH_MAX, BACKUP_ENTRIES_MAX, BACKUP_MEMORY_BYTES, BACKUP_NAME_BYTES_MAX,
    BACKUP_TRIES_MAX,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, renameat, statat, unlinkat,
};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What was saved.
#[derive(Debug, Default)]
pub struct SaveSummary {
    /// Files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is neither a file, a folder nor a link, and isn't in it.
    pub passed_over: Vec<PathBuf>,
    /// Files with several names, which belong to another user than their folder, and aren't in it.
    pub planted: Vec<PathBuf>,
}

/// Writes the content of `site`, with these hit counts, into the file `to`. What lies in `state` isn't
/// content, even if that folder is within the site's.
pub fn save(
    site: &SiteConfig,
    hits: Option<&[u8]>,
    state: &Path,
    now: u64,
    to: &Path,
) -> Result<SaveSummary, OperatorError> {
    let failed = |error: io::Error| {
        let what = format!("the backup {}: {}", to.display(), reason(&error));
        OperatorError::failure(what)
    };
    let out = BackupOutput::of(to).map_err(failed)?;
    let saved = write(site, hits, state, now, &out).and_then(|saved| {
        out.arrive().map_err(|error| failed(error.into()))?;
        Ok(saved)
    });
    if saved.is_err() {
        // The first error is the one to tell.
        let _ = unlinkat(out.way.folder(), &out.draft, AtFlags::empty());
    }
    saved
}

/// The destination of an archive. All is done in one open folder, so that a user that can change the path
/// to the folder can't have the archive written into several folders.
struct BackupOutput {
    way: TrustedPath,
    /// The name of the archive before it is complete.
    draft: OsString,
    /// The name of the file for what is too large for memory.
    spool: OsString,
}

impl BackupOutput {
    fn of(to: &Path) -> io::Result<BackupOutput> {
        let way = TrustedPath::resolve(to, LastLink::Keep, MissingFolder::Fail)?;
        let own = |what: &str| {
            let name = way.name().to_string_lossy();
            OsString::from(format!(".{name}.{}{what}", std::process::id()))
        };
        let (draft, spool) = (own(""), own(".spool"));
        Ok(BackupOutput { way, draft, spool })
    }

    /// The path of the draft, for messages.
    fn shown(&self) -> PathBuf {
        self.way.beside(&self.draft)
    }

    fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(self.way.folder(), name, flags | OFlags::CLOEXEC, mode)?;
        Ok(file.into())
    }

    fn arrive(&self) -> rustix::io::Result<()> {
        let folder = self.way.folder();
        renameat(folder, &self.draft, folder, self.way.name())?;
        self.way.sync();
        Ok(())
    }
}

fn write(
    site: &SiteConfig,
    hits: Option<&[u8]>,
    state: &Path,
    now: u64,
    out: &BackupOutput,
) -> Result<SaveSummary, OperatorError> {
    let folders = folders(site);
    if folders.is_empty() {
        let what = "the site has no folder, so there is nothing to save";
        return Err(OperatorError::failure(what));
    }
    let archive = out.way.path();
    if let Some(folder) = folders
        .iter()
        .find(|it| archive.starts_with(real(&it.place)))
    {
        let (archive, folder) = (archive.display(), folder.place.display());
        let what = format!("the backup {archive} would lie in {folder}, which it saves");
        let help = format!("write it to a file outside of {folder}");
        return Err(OperatorError::failure(what).help(help));
    }
    let name = site.names.first().map_or("*", |name| name.get_ref());
    let mut writer = BackupWriter::create(out, state)?;
    writer.own(ABOUT, &about(name, now, &folders), now)?;
    for folder in &folders {
        let open = open_top(&folder.place)?;
        writer.folder(&open, folder.name.as_bytes(), &folder.place, 0)?;
    }
    if let Some(hits) = hits {
        writer.own(HITS, hits, now)?;
    }
    let sums = std::mem::take(&mut writer.sums);
    writer.own(SUMS, &sums, now)?;
    writer.finish()
}

/// Opens a folder of the site. Root saves none to which another user than its owner could have led it:
/// the archive would hold what that user may not read.
fn open_top(place: &Path) -> Result<OwnedFd, OperatorError> {
    let failed = |error: io::Error| at(place, error);
    let way = TrustedPath::resolve(place, LastLink::Follow, MissingFolder::Fail).map_err(failed)?;
    let open = way.open(FOLDER, Mode::empty()).map_err(failed)?;
    let owner = fstat(&open).map_err(|error| at(place, error))?.st_uid;
    way.must_be_controlled_by(owner)
        .map_err(|error| untrusted(&error))?;
    Ok(open)
}

fn about(site: &str, now: u64, folders: &[BackupFolder]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("{MAGIC}\nversion {version}\nsite {site}\ntime {now}\n");
    for folder in folders {
        text.push_str(&format!("folder {} {}\n", folder.name, folder.role));
    }
    text.into_bytes()
}

/// Without waiting for whoever writes to a pipe.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

fn at(place: &Path, error: impl Into<io::Error>) -> OperatorError {
    OperatorError::failure(format!("{}: {}", place.display(), reason(&error.into())))
}

/// A file whose content was read whole: here, or in the spool if it is large.
enum FileContent {
    Here(Vec<u8>),
    Spooled,
}

struct BackupWriter {
    out: GzEncoder<BufWriter<File>>,
    /// The path of the draft, for messages.
    draft: PathBuf,
    spool: File,
    sums: Vec<u8>,
    saved: SaveSummary,
    entries: u64,
    /// Device and number of what isn't content: the archive, the state folder.
    left_out: Vec<(u64, u64)>,
}

impl BackupWriter {
    fn create(out: &BackupOutput, state: &Path) -> Result<BackupWriter, OperatorError> {
        let draft = out.shown();
        let failed = |error: io::Error| at(&draft, error);
        let file = out.create(&out.draft).map_err(failed)?;
        let made = out.create(&out.spool).map_err(failed)?;
        // It goes with us, however we go.
        let removed = unlinkat(out.way.folder(), &out.spool, AtFlags::empty());
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

    fn put(&mut self, bytes: &[u8]) -> Result<(), OperatorError> {
        let written = self.out.write_all(bytes);
        written.map_err(|error| at(&self.draft, error))
    }

    /// Something that is ours, and no file of the site.
    fn own(&mut self, name: &[u8], content: &[u8], now: u64) -> Result<(), OperatorError> {
        let digest = crate::base::digest::sha256(content);
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

    /// A folder and all in it. What disappears meanwhile isn't there.
    fn folder(
        &mut self,
        open: &OwnedFd,
        name: &[u8],
        place: &Path,
        depth: usize,
    ) -> Result<(), OperatorError> {
        if depth > BACKUP_DEPTH_MAX {
            let what = format!("{}: folders are too deep in one another", place.display());
            return Err(OperatorError::failure(what));
        }
        let stat = fstat(open).map_err(|error| at(place, error))?;
        if self.is_left_out(&stat) {
            return Ok(());
        }
        self.head(name, TarEntryKind::Folder, &stat, 0, Vec::new())?;
        for child in names(open.as_fd()).map_err(|error| at(place, error))? {
            let path = [name, b"/", child.as_bytes()].concat();
            let place = place.join(&child);
            if path.len() > BACKUP_NAME_BYTES_MAX {
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
            // It was a file a moment ago, when it was looked at.
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
        let what = format!("{} changes all the time", place.display());
        let help = "save it when nobody writes to it, or keep it out of the site's folders";
        Err(SaveError::Error(OperatorError::failure(what).help(help)))
    }

    /// Reads a file whole; `None` if it changed meanwhile.
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
            // One that grows faster than it is read has no end.
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
        self.entries += 1;
        if self.entries > BACKUP_ENTRIES_MAX {
            let what = format!("there are more than {BACKUP_ENTRIES_MAX} files");
            return Err(OperatorError::failure(what));
        }
        self.put(&tar::head(&TarEntry {
            name: name.to_vec(),
            kind,
            mode: stat.st_mode & kind.mode_bits(),
            modified: u64::try_from(stat.st_mtime).unwrap_or(0),
            size,
            link,
        }))
    }

    /// Whether the file may be another user's, to which the folder's owner has made a hard link. Root
    /// could read it, and would hand it on with the archive.
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
        let own = (stat.st_dev as u64, stat.st_ino as u64);
        self.left_out.contains(&own)
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

/// Why an entry isn't in the archive.
enum SaveError {
    /// It disappeared, which is no mistake.
    Gone,
    Error(OperatorError),
}

impl SaveError {
    /// Another kind of thing under this name than a moment ago is gone too.
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
