//! Loading of variants, the only code of a site that reads files.
//!
//! Loads run on a blocking pool. A client must never receive a mix of two versions of a file, so a load
//! succeeds only if the metadata equals the known metadata both before and after the read. The content of a
//! release must have the size and the digest in the manifest.
//!
//! A file that a process has open for writing is never read into memory. The file is sent as it stands if it has not
//! changed for 2 s ([`OPEN_FILE_QUIET_SECONDS`](crate::limits::OPEN_FILE_QUIET_SECONDS)), or up to its present length
//! if processes append to it.

use super::file::{SiteFile, VariantKind};
use super::file_version::{FileError, FileMeta, FileVersion};
use super::gzip_file::GzipFileJob;
use super::loaded_facts::{LoadedFacts, coding_mark};
use super::release::ReleaseRules;
use super::shared::SiteShared;
use super::variant::{DiskContent, FileWriting, Variant, VariantContent};
use crate::limits::{
    CONTENT_FILE_BYTES_MAX, DIGEST_FILE_BYTES_MAX, LAST_MODIFIED_SECONDS_MIN, SENDFILE_BYTES_MIN,
};
use base::digest::{Digest, base64url};
use base::log::FAILURE_LINES;
use base::sys::{self, OpenWriters};
use base::visible_text::shortened;
use release::manifest::BlobRef;
use release::store::StoreError;
use rustix::fs::fstat;
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::fields::ContentCoding;
use wire::reject::Reject;

/// Load to run before the request can be answered.
pub struct FileLoad {
    pub(super) shared: Arc<SiteShared>,
    pub(super) file: Arc<SiteFile>,
    pub(super) which: VariantKind,
    /// Path of the file, not of the sidecar, below the root.
    pub(super) path: Box<[u8]>,
}

impl FileLoad {
    /// Reads the file; blocks. Afterwards the caller repeats the request to the site: the content is
    /// loaded, or the failure is recorded (for one second, or until the file changes). Under a small budget
    /// the content may already be evicted again, so a driver repeats the request a few times and then gives
    /// up.
    pub(crate) fn run(self) {
        let Some(slot) = self.file.slot(self.which) else {
            return;
        };
        if slot
            .load()
            .as_ref()
            .is_some_and(|loaded| loaded.is_current())
        {
            return;
        }
        let (coding, ending) = match self.which {
            VariantKind::Sidecar(ContentCoding::Gzip) => (ContentCoding::Gzip, ".gz"),
            VariantKind::Sidecar(ContentCoding::Br) => (ContentCoding::Br, ".br"),
            VariantKind::Sidecar(ContentCoding::Zstd) => (ContentCoding::Zstd, ".zst"),
            _ => (ContentCoding::Identity, ""),
        };
        let path = [&self.path, ending.as_bytes()].concat();
        match self.variant(&path, coding) {
            Ok(variant) => {
                let is_open = variant.is_open();
                self.shared.budget.keep(&self.file, self.which, variant);
                if self.which == VariantKind::Identity && !is_open {
                    GzipFileJob::queue(&self.shared, &self.file, || path);
                }
            }
            Err(why) => {
                if let Some(failure) = self.file.failure(self.which) {
                    failure.set(why, self.shared.now());
                }
                if matches!(why, FileError::Changing | FileError::NotFound) {
                    self.shared.note_stale(&path);
                }
            }
        }
    }

    /// Reads the content at `path`, possibly of a sidecar.
    fn variant(&self, path: &[u8], coding: ContentCoding) -> Result<Variant, FileError> {
        let known = self.file.version_of(self.which);
        let loaded = match known.ok_or(FileError::NotFound)? {
            FileVersion::Disk(known) => self.load_from_folder(path, known)?,
            FileVersion::Blob(known) => self.load_from_store(&known.content)?,
        };
        let LoadedContent {
            disk,
            bytes,
            tag,
            modified,
        } = loaded;
        let size = disk.size();
        let tag = coded_tag(&tag, coding);
        let facts = LoadedFacts {
            size,
            modified,
            tag: &tag,
            coding: match coding {
                ContentCoding::Identity => self.shared.rules.coding(&self.path),
                coding => coding,
            },
            is_open: disk.is_open(),
        };
        let heads = facts.heads(&self.shared, &self.file, &self.path);
        Ok(match bytes {
            Some(bytes) => {
                let kept = (size >= SENDFILE_BYTES_MIN).then_some(disk);
                Variant::new(heads, modified, coding, VariantContent::Memory(bytes), kept)
            }
            None => Variant::new(heads, modified, coding, VariantContent::Disk(disk), None),
        })
    }

    fn load_from_folder(&self, path: &[u8], known: &FileMeta) -> Result<LoadedContent, FileError> {
        wait_for_a_tick(known);
        let root = self.shared.root().ok_or(FileError::NotFound)?;
        let file = root.open_same_file(path, known)?;
        if let Some(writing) = self.writing(&file) {
            return self.open_content(file, known, writing);
        }
        let plain = self.file.version.disk().unwrap_or(known);
        if self.which != VariantKind::Identity {
            // The sidecar may belong to an earlier content of a file that a process is writing to.
            let plain = root.open_same_file(&self.path, plain)?;
            if self.writing(&plain).is_some() {
                return Err(FileError::Changing);
            }
        }
        if FileMeta::of(&fstat(&file)?) != *known {
            return Err(FileError::Changing);
        }
        let (bytes, tag) = read(&file, known)?;
        if FileMeta::of(&fstat(&file)?) != *known {
            return Err(FileError::Changing);
        }
        Ok(LoadedContent {
            disk: DiskContent::new(file, *known, FileWriting::Closed),
            bytes,
            tag,
            modified: modified(plain),
        })
    }

    /// Returns how a process writes to the file; None if no process is known to have the file open for writing. The
    /// kernel cannot tell for some files. A growing file among them counts as open.
    fn writing(&self, file: &File) -> Option<FileWriting> {
        let is_growing = self.shared.rules.is_growing(&self.path);
        match sys::open_writers(file.as_fd()) {
            OpenWriters::None(_) => None,
            OpenWriters::Unknown => is_growing.then_some(FileWriting::Growing),
            OpenWriters::Some if is_growing => Some(FileWriting::Growing),
            OpenWriters::Some => Some(FileWriting::Open),
        }
    }

    /// Returns the content of a file that a process has open for writing. The file is sent from disk as it stands now,
    /// so a difference from the last scan does not matter.
    fn open_content(
        &self,
        file: File,
        known: &FileMeta,
        writing: FileWriting,
    ) -> Result<LoadedContent, FileError> {
        let meta = FileMeta::of(&fstat(&file)?);
        let is_served = writing == FileWriting::Growing || meta.is_quiet();
        if self.which != VariantKind::Identity || !is_served {
            return Err(FileError::Changing);
        }
        if meta != *known {
            // The next scan brings listings up to date.
            self.shared.note_stale(&self.path);
        }
        Ok(LoadedContent {
            disk: DiskContent::new(file, meta, writing),
            bytes: None,
            tag: String::new(),
            modified: None,
        })
    }

    /// Reads a content of a release, and compares the size and the digest with the manifest.
    fn load_from_store(&self, known: &BlobRef) -> Result<LoadedContent, FileError> {
        let release = &self.shared.rules.release;
        let release = release.as_ref().ok_or(FileError::NotFound)?;
        self.read_blob(release, known).inspect_err(|why| {
            let what = match why {
                FileError::WrongContent => {
                    "missing, or different from the digest; publish again to repair the store"
                }
                _ => "unreadable for the server",
            };
            let (blob, path) = (release.blob(&known.digest), shortened(&self.path));
            let rule = Reject::CONTENT_WRONG.rule;
            FAILURE_LINES.log(rule, log::Level::Error, &|| {
                format!("{}: the content of {path} is {what}", blob.display())
            });
        })
    }

    fn read_blob(
        &self,
        release: &ReleaseRules,
        known: &BlobRef,
    ) -> Result<LoadedContent, FileError> {
        let store = release.open_store()?;
        let file = store.open_blob(&known.digest)?;
        let meta = FileMeta::of(&fstat(&file)?);
        if meta.size != known.size {
            return Err(FileError::WrongContent);
        }
        if meta.size >= SENDFILE_BYTES_MIN {
            // A content in memory alone cannot change after the comparison.
            wait_for_a_tick(&meta);
        }
        let (bytes, digest) = read_all(&file, known.size).map_err(|why| match why {
            // The content was cut off since the look at its size.
            FileError::Changing => FileError::WrongContent,
            why => why,
        })?;
        let writing = match bytes {
            Some(_) => FileWriting::KeptBlob,
            None => FileWriting::Blob,
        };
        let disk = DiskContent::new(file, meta, writing);
        if digest != known.digest || !disk.is_current() {
            return Err(FileError::WrongContent);
        }
        // All codings of a file have one time.
        let plain = match &self.file.version {
            FileVersion::Blob(plain) if plain.content != *known => {
                let plain = store.open_blob(&plain.content.digest)?;
                FileMeta::of(&fstat(&plain)?)
            }
            _ => meta,
        };
        Ok(LoadedContent {
            disk,
            bytes,
            tag: digest_tag(&digest),
            modified: modified(&plain),
        })
    }
}

/// Content of a file, read and compared with the known version.
struct LoadedContent {
    /// The open file.
    disk: DiskContent,
    /// The content, if small enough to be kept in memory.
    bytes: Option<Box<[u8]>>,
    /// Opaque part of the entity tag, without the suffix of a coding.
    tag: String,
    /// Value of Last-Modified, seconds since 1970; None without the field.
    modified: Option<u64>,
}

impl From<StoreError> for FileError {
    fn from(error: StoreError) -> FileError {
        match error {
            StoreError::Missing | StoreError::Corrupt(_) => FileError::WrongContent,
            StoreError::Io(error) => match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => FileError::Overloaded,
                _ => FileError::Unreadable,
            },
        }
    }
}

/// Returns the entity tag with quotes and with the suffix of the coding.
fn coded_tag(tag: &str, coding: ContentCoding) -> String {
    match coding_mark(coding) {
        "" => format!("\"{tag}\""),
        mark => format!("\"{tag}-{mark}\""),
    }
}

/// Returns the value of Last-Modified, which is never in the future (RFC 9110 §8.8.2.1). A time that tools give to all
/// files alike says nothing about the content, and is left out.
fn modified(meta: &FileMeta) -> Option<u64> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let modified = meta.mtime_seconds().min(now.as_secs());
    (modified >= LAST_MODIFIED_SECONDS_MIN).then_some(modified)
}

/// Waits for the end of the current timestamp tick. File systems store timestamps in ticks of up to 10 ms,
/// so two writes in one tick yield equal timestamps. A read after the tick of the last change ensures that
/// every further change shows.
fn wait_for_a_tick(known: &FileMeta) {
    const TICK_NS: i64 = 12_000_000;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let age = i64::try_from(now.as_nanos())
        .unwrap_or(i64::MAX)
        .saturating_sub(known.ctime_ns);
    if (0..TICK_NS).contains(&age) {
        std::thread::sleep(Duration::from_nanos((TICK_NS - age).unsigned_abs()));
    }
}

/// Content, if small enough to be kept in memory, and the opaque part of the entity tag.
type ReadContent = (Option<Box<[u8]>>, String);

/// Reads a file. The entity tag is a digest of the content, or of the metadata if the file is too large for a
/// digest of the content.
fn read(file: &File, known: &FileMeta) -> Result<ReadContent, FileError> {
    if known.size > DIGEST_FILE_BYTES_MAX {
        return Ok((None, metadata_tag(known)));
    }
    let (content, digest) = read_all(file, known.size)?;
    Ok((content, digest_tag(&digest)))
}

/// Returns the opaque part of the entity tag of a large file. Size and modification time alone do not tell two contents
/// apart: files of reproducible builds have all the same time. Every change of the content changes the time of the last
/// status change, which no program can set, or replaces the file by another inode. The numbers are hashed, so that the
/// tag tells clients nothing about the disk.
fn metadata_tag(meta: &FileMeta) -> String {
    let mut digest = Digest::new();
    for number in [meta.mtime_ns, meta.ctime_ns] {
        digest.update(&number.to_be_bytes());
    }
    digest.update(&meta.ino.to_be_bytes());
    format!("{:x}-{}", meta.size, digest_tag(&digest.finish()))
}

/// Returns the opaque part of an entity tag from the digest of the content. 120 bits in 20 characters make collisions
/// between versions of a file negligible.
fn digest_tag(digest: &[u8; 32]) -> String {
    base64url(&digest[..15])
}

/// Content, if small enough to be kept in memory, and its SHA-256.
type DigestedContent = (Option<Box<[u8]>>, [u8; 32]);

/// Reads a file of `size` bytes.
fn read_all(file: &File, size: u64) -> Result<DigestedContent, FileError> {
    let keep = size <= CONTENT_FILE_BYTES_MAX;
    let kept = if keep {
        usize::try_from(size).unwrap_or(0)
    } else {
        READ_BYTES
    };
    let mut buffer = vec![0; kept];
    let mut digest = Digest::new();
    let mut at = 0;
    while at < size {
        let left = usize::try_from(size - at).unwrap_or(usize::MAX);
        let piece = buffer.len().min(left);
        let piece = &mut buffer[..piece];
        file.read_exact_at(piece, at)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => FileError::Changing,
                _ => FileError::Unreadable,
            })?;
        digest.update(piece);
        at += piece.len() as u64;
    }
    Ok((keep.then(|| buffer.into_boxed_slice()), digest.finish()))
}

/// Size of one read of a file that is not kept in memory.
const READ_BYTES: usize = 64 * 1024;
