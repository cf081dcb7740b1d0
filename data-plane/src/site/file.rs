//! File of the tree: metadata, and the slots for loaded variants.

use super::variant::Variant;
use crate::limits::{OPEN_FILE_QUIET_SECONDS, WRONG_CONTENT_SECONDS};
use arc_swap::ArcSwapOption;
use release::manifest::BlobRef;
use rustix::fs::{FileType, Stat};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::fields::ContentCoding;
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
    pub fn of(stat: &Stat) -> FileMeta {
        FileMeta {
            size: number(stat.st_size),
            mtime_ns: nanoseconds(number(stat.st_mtime), number(stat.st_mtime_nsec)),
            ctime_ns: nanoseconds(number(stat.st_ctime), number(stat.st_ctime_nsec)),
            ino: number(stat.st_ino),
            dev: number(stat.st_dev),
        }
    }

    /// Returns true if both values describe the same file with the same content. Mode and owner may differ.
    pub fn same_content(&self, other: &FileMeta) -> bool {
        let same = |meta: &FileMeta| FileMeta {
            ctime_ns: 0,
            ..*meta
        };
        same(self) == same(other)
    }

    /// Returns true if both values describe the same file, possibly with different content.
    pub fn same_file(&self, other: &FileMeta) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Returns true if the file has not changed for [`OPEN_FILE_QUIET_SECONDS`]. A time in the future counts as a
    /// change long ago: a clock that was set back must not keep the file from being served.
    pub fn is_quiet(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
        let quiet_ns = OPEN_FILE_QUIET_SECONDS as i64 * 1_000_000_000;
        !(0..quiet_ns).contains(&now_ns.saturating_sub(self.ctime_ns))
    }

    /// Returns the modification time in seconds since 1970; 0 for earlier times.
    pub fn mtime_seconds(&self) -> u64 {
        u64::try_from(self.mtime_ns.div_euclid(1_000_000_000)).unwrap_or(0)
    }
}

/// Version of a file. Files with equal versions have equal content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileVersion {
    /// File of a folder, by its metadata as of the last scan.
    Disk(FileMeta),
    /// Content of a release.
    Blob(BlobVersion),
}

/// Version of a file of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlobVersion {
    /// Size and digest of the content.
    pub content: BlobRef,
    /// True if the name contains a hash of the content, so that caches may keep the file for ever.
    pub is_hashed: bool,
}

impl FileVersion {
    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        match self {
            FileVersion::Disk(meta) => meta.size,
            FileVersion::Blob(blob) => blob.content.size,
        }
    }

    /// Returns the metadata of a file of a folder; None for a file of a release.
    pub fn disk(&self) -> Option<&FileMeta> {
        match self {
            FileVersion::Disk(meta) => Some(meta),
            FileVersion::Blob(_) => None,
        }
    }

    /// Returns true for a file of a release with a hash of the content in its name.
    pub fn is_hashed(&self) -> bool {
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
        }
    }

    fn from_code(code: u32) -> Option<FileError> {
        [
            FileError::NotFound,
            FileError::LinkLeaves,
            FileError::Unreadable,
            FileError::Changing,
            FileError::Overloaded,
            FileError::Secret,
            FileError::LeftOut,
            FileError::WrongContent,
        ]
        .into_iter()
        .find(|why| *why as u32 == code)
    }
}

/// Slot for a variant, empty before the load and after the eviction.
pub type VariantSlot = ArcSwapOption<Variant>;

/// Kind of a file's variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VariantKind {
    /// The file without content coding.
    Identity,
    /// The gzip variant generated by the server.
    GeneratedGzip,
    /// The sidecar file with the extension of the coding.
    Sidecar(ContentCoding),
}

/// Regular file. The struct is small, because a site may have 100,000 files.
pub struct SiteFile {
    /// Version as of the last scan, or by the manifest of the release.
    pub version: FileVersion,
    /// Precompressed files beside the file.
    pub sidecars: Option<Box<Sidecars>>,
    identity: VariantSlot,
    generated: VariantSlot,
    failure: LoadFailure,
    /// State of the generated gzip variant; see [`SiteFile::claim_gzip`].
    gzip: AtomicU8,
}

/// Sidecars of one file.
#[derive(Default)]
pub struct Sidecars {
    /// `.gz`
    pub gzip: Option<Sidecar>,
    /// `.br`
    pub br: Option<Sidecar>,
    /// `.zst`
    pub zstd: Option<Sidecar>,
}

/// Sidecar: coded content of a file, in a folder a file of its own.
pub struct Sidecar {
    /// Version as of the last scan, or by the manifest of the release.
    pub version: FileVersion,
    slot: VariantSlot,
    failure: LoadFailure,
}

/// Versions of the sidecars of a file: gzip, br, zstd.
pub type SidecarVersions = [Option<FileVersion>; 3];

/// Codings of sidecars, with the file name extensions.
pub const SIDECARS: [(ContentCoding, &str); 3] = [
    (ContentCoding::Gzip, ".gz"),
    (ContentCoding::Br, ".br"),
    (ContentCoding::Zstd, ".zst"),
];

impl SiteFile {
    /// Returns the bytes of memory of the file and its sidecars, without loaded contents.
    pub fn memory_bytes(&self) -> usize {
        // The allocator and the reference counts add 32 bytes.
        let sidecars = self.sidecars.as_ref().map_or(0, |_| size_of::<Sidecars>());
        32 + size_of::<SiteFile>() + sidecars
    }

    /// Creates a file without loaded variants.
    pub fn new(version: FileVersion, sidecars: SidecarVersions) -> SiteFile {
        let sidecars = sidecars.iter().any(Option::is_some).then(|| {
            let [gzip, br, zstd] = sidecars.map(|version| version.map(Sidecar::new));
            Box::new(Sidecars { gzip, br, zstd })
        });
        SiteFile {
            version,
            sidecars,
            identity: VariantSlot::empty(),
            generated: VariantSlot::empty(),
            failure: LoadFailure::default(),
            gzip: AtomicU8::new(GZIP_UNASKED),
        }
    }

    /// Returns true if the file and the sidecars have exactly the given versions.
    pub fn is(&self, version: &FileVersion, sidecars: &SidecarVersions) -> bool {
        self.version == *version
            && SIDECARS.iter().zip(sidecars).all(|((coding, _), found)| {
                self.sidecar(*coding).map(|sidecar| sidecar.version) == *found
            })
    }

    /// Returns true if the load of the file or of a sidecar has failed before.
    pub fn has_failed(&self) -> bool {
        let sidecars = SIDECARS
            .iter()
            .filter_map(|(coding, _)| self.sidecar(*coding));
        let mut failures = sidecars.map(|sidecar| &sidecar.failure);
        self.failure.is_set() || failures.any(LoadFailure::is_set)
    }

    /// Forgets failed loads, after the watch reported that the writer closed the file.
    pub fn forget_failure(&self) {
        self.failure.0.store(0, Ordering::Relaxed);
    }

    /// Returns true if the loaded content comes from the file with the metadata `meta`, and a process still has the
    /// file open for writing. The metadata as of the last scan lags behind such a file.
    pub fn is_open_at(&self, meta: &FileMeta) -> bool {
        let loaded = self.identity.load();
        loaded
            .as_ref()
            .is_some_and(|variant| variant.is_of_open_file(meta))
    }

    /// Returns the sidecar for a coding.
    pub fn sidecar(&self, coding: ContentCoding) -> Option<&Sidecar> {
        let sidecars = self.sidecars.as_ref()?;
        match coding {
            ContentCoding::Identity => None,
            ContentCoding::Gzip => sidecars.gzip.as_ref(),
            ContentCoding::Br => sidecars.br.as_ref(),
            ContentCoding::Zstd => sidecars.zstd.as_ref(),
        }
    }

    /// Returns the slot of a variant; None for a missing sidecar.
    pub fn slot(&self, which: VariantKind) -> Option<&VariantSlot> {
        match which {
            VariantKind::Identity => Some(&self.identity),
            VariantKind::GeneratedGzip => Some(&self.generated),
            VariantKind::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.slot),
        }
    }

    /// Returns the version of the content that a variant is loaded from.
    pub fn version_of(&self, which: VariantKind) -> Option<&FileVersion> {
        match which {
            VariantKind::Identity | VariantKind::GeneratedGzip => Some(&self.version),
            VariantKind::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.version),
        }
    }

    /// Returns the record of failed loads of a variant.
    pub fn failure(&self, which: VariantKind) -> Option<&LoadFailure> {
        match which {
            VariantKind::Identity | VariantKind::GeneratedGzip => Some(&self.failure),
            VariantKind::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.failure),
        }
    }

    /// Claims the generation of the gzip variant. Returns true for the first caller, which must queue the
    /// job.
    pub fn claim_gzip(&self) -> bool {
        // The load comes before the compare-and-swap, because the function runs for each request until the
        // gzip variant exists.
        self.gzip.load(Ordering::Relaxed) == GZIP_UNASKED
            && self
                .gzip
                .compare_exchange(
                    GZIP_UNASKED,
                    GZIP_CLAIMED,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Allows a new claim, after the gzip variant was not generated or was evicted.
    pub fn release_gzip(&self) {
        self.gzip.store(GZIP_UNASKED, Ordering::Release);
    }

    /// Marks the gzip variant as useless, because the result is not smaller. The file is never queued
    /// again.
    pub fn give_up_gzip(&self) {
        self.gzip.store(GZIP_USELESS, Ordering::Release);
    }
}

impl Sidecar {
    fn new(version: FileVersion) -> Sidecar {
        Sidecar {
            version,
            slot: VariantSlot::empty(),
            failure: LoadFailure::default(),
        }
    }
}

const GZIP_UNASKED: u8 = 0;
const GZIP_CLAIMED: u8 = 1;
const GZIP_USELESS: u8 = 2;

/// Record of a failed load, so that a load is not repeated at once. Zero means no failure; else the low 4
/// bits hold the reason, and the other bits the tick of the failure.
#[derive(Default)]
pub struct LoadFailure(AtomicU32);

/// Ticks in a second of the clock for failures.
pub const TICKS_PER_SECOND: u128 = 4;

impl LoadFailure {
    /// Records a failure; `now` in ticks since the site was opened.
    pub fn set(&self, why: FileError, now: u32) {
        self.0.store((now << 4) | why as u32, Ordering::Relaxed);
    }

    /// Returns true if a load has failed.
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Returns the reason of a recent failure, at most one second old. Wrong content of a release counts for 30 s, since
    /// each look at a large content reads the whole content. The clock is read only after a failure.
    pub fn recent(&self, now: impl FnOnce() -> u32) -> Option<FileError> {
        let value = self.0.load(Ordering::Relaxed);
        let why = FileError::from_code(value & 15)?;
        // 28 bits of ticks wrap around after two years.
        let age = now().wrapping_sub(value >> 4) & 0x0fff_ffff;
        let seconds = match why {
            FileError::WrongContent => WRONG_CONTENT_SECONDS,
            _ => 1,
        };
        (age <= TICKS_PER_SECOND as u32 * seconds).then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_failure_expires() {
        let failure = LoadFailure::default();
        assert_eq!(
            failure.recent(|| unreachable!("no failure, no clock")),
            None
        );
        failure.set(FileError::Changing, 100);
        assert_eq!(failure.recent(|| 104), Some(FileError::Changing));
        assert_eq!(failure.recent(|| 105), None);
        failure.set(FileError::Unreadable, u32::MAX);
        assert_eq!(failure.recent(|| 2), Some(FileError::Unreadable));
        failure.set(FileError::WrongContent, 100);
        assert_eq!(failure.recent(|| 220), Some(FileError::WrongContent));
        assert_eq!(failure.recent(|| 221), None);
    }

    #[test]
    fn a_gzip_is_claimed_once() {
        let meta = FileMeta {
            size: 1,
            mtime_ns: 0,
            ctime_ns: 0,
            ino: 1,
            dev: 1,
        };
        let file = SiteFile::new(meta.into(), [None; 3]);
        assert!(file.claim_gzip() && !file.claim_gzip());
        file.release_gzip();
        assert!(file.claim_gzip());
        file.give_up_gzip();
        assert!(!file.claim_gzip());
    }
}
