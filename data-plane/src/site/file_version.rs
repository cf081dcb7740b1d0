//! Version of a file, by which a changed file is noticed, and the reason that a file cannot be served.

use crate::limits::OPEN_FILE_QUIET_SECONDS;
use release::manifest::BlobRef;
use rustix::fs::{FileType, Stat};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::reject::Reject;

/// Metadata that distinguishes versions of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMeta {
    /// Size in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Status change time in nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Device number.
    pub dev: u64,
}

impl FileMeta {
    /// Returns the metadata of a regular file; None for any other type.
    pub fn of_file(stat: &Stat) -> Option<FileMeta> {
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| FileMeta::of(stat))
    }

    /// Returns the metadata regardless of the file type.
    pub(crate) fn of(stat: &Stat) -> FileMeta {
        FileMeta {
            size: number(stat.st_size),
            mtime_ns: nanoseconds(number(stat.st_mtime), number(stat.st_mtime_nsec)),
            ctime_ns: nanoseconds(number(stat.st_ctime), number(stat.st_ctime_nsec)),
            ino: number(stat.st_ino),
            dev: number(stat.st_dev),
        }
    }

    /// Returns true if both values describe the same file with the same content. Mode and owner may differ.
    pub(crate) fn same_content(&self, other: &FileMeta) -> bool {
        let same = |meta: &FileMeta| FileMeta {
            ctime_ns: 0,
            ..*meta
        };
        same(self) == same(other)
    }

    /// Returns true if both values describe the same file, possibly with different content.
    pub(crate) fn same_file(&self, other: &FileMeta) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Returns true if the file has not changed for [`OPEN_FILE_QUIET_SECONDS`]. A time in the future counts as a
    /// change long ago: a clock that was set back must not keep the file from being served.
    pub(crate) fn is_quiet(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
        let quiet_ns = OPEN_FILE_QUIET_SECONDS as i64 * 1_000_000_000;
        !(0..quiet_ns).contains(&now_ns.saturating_sub(self.ctime_ns))
    }

    /// Returns the modification time in seconds since 1970; 0 for earlier times.
    pub(crate) fn mtime_seconds(&self) -> u64 {
        u64::try_from(self.mtime_ns.div_euclid(1_000_000_000)).unwrap_or(0)
    }
}

/// Version of a file. Files with equal versions have equal content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileVersion {
    /// File of a folder, by its metadata as of the last scan.
    Disk(FileMeta),
    /// Content of a release.
    Blob(BlobVersion),
}

/// Version of a file of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlobVersion {
    /// Size and digest of the content.
    pub content: BlobRef,
    /// True if the name contains a hash of the content, so that caches may keep the file for ever.
    pub is_hashed: bool,
}

impl FileVersion {
    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            FileVersion::Disk(meta) => meta.size,
            FileVersion::Blob(blob) => blob.content.size,
        }
    }

    /// Returns the metadata of a file of a folder; None for a file of a release.
    pub(crate) fn disk(&self) -> Option<&FileMeta> {
        match self {
            FileVersion::Disk(meta) => Some(meta),
            FileVersion::Blob(_) => None,
        }
    }

    /// Returns true for a file of a release with a hash of the content in its name.
    pub(crate) fn is_hashed(&self) -> bool {
        matches!(self, FileVersion::Blob(blob) if blob.is_hashed)
    }
}

impl From<FileMeta> for FileVersion {
    fn from(meta: FileMeta) -> FileVersion {
        FileVersion::Disk(meta)
    }
}

/// Converts a field of `stat`. The widths of the fields differ by architecture.
fn number<N: TryInto<T>, T: Default>(number: N) -> T {
    number.try_into().unwrap_or_default()
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Reason that a file cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileError {
    /// The file is missing, or has a type that is not served.
    NotFound = 1,
    /// A link leads out of the root.
    LinkLeaves,
    /// Access was denied, or the disk failed.
    Unreadable,
    /// The file differs from the metadata of the scan, or a process is writing to the file.
    Changing,
    /// No descriptor or no memory is left.
    Overloaded,
    /// The file belongs to the server itself: configuration, passwords, keys, state or logs.
    Secret,
    /// An existing folder that the scan leaves out: a link to a folder above the link, or a folder behind a
    /// link beyond the limit of linked folders.
    LeftOut,
    /// The content in the store of releases is missing, or differs from the size and the digest in the manifest.
    WrongContent,
    /// The name matches a glob of `hide`.
    Hidden,
}

impl FileError {
    /// Returns the refusal for the client.
    pub fn reject(self) -> Reject {
        match self {
            FileError::NotFound | FileError::LeftOut => Reject::NOT_FOUND,
            FileError::LinkLeaves => Reject::LINK_LEAVES,
            FileError::Unreadable => Reject::UNREADABLE,
            FileError::Changing => Reject::CHANGING,
            FileError::Overloaded => Reject::OVERLOADED,
            FileError::Secret => Reject::SERVERS_OWN,
            FileError::WrongContent => Reject::CONTENT_WRONG,
            FileError::Hidden => Reject::HIDDEN,
        }
    }

    pub(super) fn from_code(code: u32) -> Option<FileError> {
        [
            FileError::NotFound,
            FileError::LinkLeaves,
            FileError::Unreadable,
            FileError::Changing,
            FileError::Overloaded,
            FileError::Secret,
            FileError::LeftOut,
            FileError::WrongContent,
            FileError::Hidden,
        ]
        .into_iter()
        .find(|why| *why as u32 == code)
    }
}
