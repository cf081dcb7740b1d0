//! A file of the tree: what we know of it, and the places where its loaded variants hang.

use super::variant::Variant;
use crate::wire::fields::ContentCoding;
use crate::wire::reject::Reject;
use arc_swap::ArcSwapOption;
use rustix::fs::{FileType, Stat};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMeta {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Inode and device.
    pub ino: u64,
    /// See `ino`.
    pub dev: u64,
}

impl FileMeta {
    /// None for what is no regular file.
    pub fn of_file(stat: &Stat) -> Option<FileMeta> {
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| FileMeta::of(stat))
    }

    /// Of whatever it is.
    pub fn of(stat: &Stat) -> FileMeta {
        FileMeta {
            size: number(stat.st_size),
            mtime_ns: nanoseconds(number(stat.st_mtime), number(stat.st_mtime_nsec)),
            ctime_ns: nanoseconds(number(stat.st_ctime), number(stat.st_ctime_nsec)),
            ino: number(stat.st_ino),
            dev: number(stat.st_dev),
        }
    }

    /// Is it the same file, and has nobody written to it in between? Its mode may be another.
    pub fn same_content(&self, other: &FileMeta) -> bool {
        let same = |meta: &FileMeta| FileMeta {
            ctime_ns: 0,
            ..*meta
        };
        same(self) == same(other)
    }

    /// Seconds since 1970, never before.
    pub fn mtime_seconds(&self) -> u64 {
        u64::try_from(self.mtime_ns.div_euclid(1_000_000_000)).unwrap_or(0)
    }
}

/// The fields of `stat` have another width on every architecture.
fn number<N: TryInto<T>, T: Default>(number: N) -> T {
    number.try_into().unwrap_or_default()
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Why something can't be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileError {
    /// It isn't there, or nothing that is served.
    NotFound = 1,
    /// A link leads out of the root.
    LinkLeaves,
    /// We may not, or the disk fails.
    Unreadable,
    /// It isn't what it was when we last looked.
    Changing,
    /// No descriptor or no memory left.
    Overloaded,
    /// A file of the server's own: its configuration, passwords, keys, state or logs.
    Secret,
    /// A folder that the scan leaves out, though it exists: a link to a folder above the link, or one more
    /// folder behind links than the scan reads.
    LeftOut,
}

impl FileError {
    /// As an answer.
    pub fn reject(self) -> Reject {
        match self {
            FileError::NotFound | FileError::LeftOut => Reject::NOT_FOUND,
            FileError::LinkLeaves => Reject::LINK_LEAVES,
            FileError::Unreadable => Reject::UNREADABLE,
            FileError::Changing => Reject::CHANGING,
            FileError::Overloaded => Reject::OVERLOADED,
            FileError::Secret => Reject::SERVERS_OWN,
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
        ]
        .into_iter()
        .find(|why| *why as u32 == code)
    }
}

/// A place for a variant, empty until it is loaded and again after its eviction.
pub type VariantSlot = ArcSwapOption<Variant>;

/// Which of a file's variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VariantKind {
    /// The file as it is.
    Identity,
    /// The gzip that we made.
    GeneratedGzip,
    /// The file beside it with the extension of this coding.
    Sidecar(ContentCoding),
}

/// A regular file. Small: there may be a hundred thousand.
pub struct SiteFile {
    /// As of the last scan.
    pub meta: FileMeta,
    /// Files beside it that hold it coded.
    pub sidecars: Option<Box<Sidecars>>,
    identity: VariantSlot,
    made: VariantSlot,
    failure: LoadFailure,
    /// What became of the gzip we want to make; see [`SiteFile::claim_gzip`].
    gzip: AtomicU8,
}

/// The sidecars of one file.
#[derive(Default)]
pub struct Sidecars {
    /// `.gz`
    pub gzip: Option<Sidecar>,
    /// `.br`
    pub br: Option<Sidecar>,
    /// `.zst`
    pub zstd: Option<Sidecar>,
}

/// One file beside another that holds it coded.
pub struct Sidecar {
    /// As of the last scan.
    pub meta: FileMeta,
    slot: VariantSlot,
    failure: LoadFailure,
}

/// What a scan found of sidecars: gzip, br, zstd.
pub type SidecarMetas = [Option<FileMeta>; 3];

/// The codings that sidecars have, and what their names end in.
pub const SIDECARS: [(ContentCoding, &str); 3] = [
    (ContentCoding::Gzip, ".gz"),
    (ContentCoding::Br, ".br"),
    (ContentCoding::Zstd, ".zst"),
];

impl SiteFile {
    /// A file that nobody asked for yet.
    pub fn new(meta: FileMeta, sidecars: SidecarMetas) -> SiteFile {
        let sidecars = sidecars.iter().any(Option::is_some).then(|| {
            let [gzip, br, zstd] = sidecars.map(|meta| meta.map(Sidecar::new));
            Box::new(Sidecars { gzip, br, zstd })
        });
        SiteFile {
            meta,
            sidecars,
            identity: VariantSlot::empty(),
            made: VariantSlot::empty(),
            failure: LoadFailure::default(),
            gzip: AtomicU8::new(GZIP_UNASKED),
        }
    }

    /// Is it still exactly this?
    pub fn is(&self, meta: &FileMeta, sidecars: &SidecarMetas) -> bool {
        self.meta == *meta
            && SIDECARS.iter().zip(sidecars).all(|((coding, _), found)| {
                self.sidecar(*coding).map(|sidecar| sidecar.meta) == *found
            })
    }

    /// The sidecar for a coding.
    pub fn sidecar(&self, coding: ContentCoding) -> Option<&Sidecar> {
        let sidecars = self.sidecars.as_ref()?;
        match coding {
            ContentCoding::Identity => None,
            ContentCoding::Gzip => sidecars.gzip.as_ref(),
            ContentCoding::Br => sidecars.br.as_ref(),
            ContentCoding::Zstd => sidecars.zstd.as_ref(),
        }
    }

    /// The slot of a variant; None where there is no such sidecar.
    pub fn slot(&self, which: VariantKind) -> Option<&VariantSlot> {
        match which {
            VariantKind::Identity => Some(&self.identity),
            VariantKind::GeneratedGzip => Some(&self.made),
            VariantKind::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.slot),
        }
    }

    /// What we know of the file that a variant is made from.
    pub fn meta_of(&self, which: VariantKind) -> Option<&FileMeta> {
        match which {
            VariantKind::Identity | VariantKind::GeneratedGzip => Some(&self.meta),
            VariantKind::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.meta),
        }
    }

    /// Where a failed load of a variant is remembered.
    pub fn failure(&self, which: VariantKind) -> Option<&LoadFailure> {
        match which {
            VariantKind::Identity | VariantKind::GeneratedGzip => Some(&self.failure),
            VariantKind::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.failure),
        }
    }

    /// True for the first who wants the gzip made: he queues it.
    pub fn claim_gzip(&self) -> bool {
        // The cheap look first: this is asked once a request while the gzip isn't there.
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

    /// The gzip wasn't made or was evicted: somebody may claim it anew.
    pub fn release_gzip(&self) {
        self.gzip.store(GZIP_UNASKED, Ordering::Release);
    }

    /// The gzip isn't smaller: don't ask again while the file is this.
    pub fn give_up_gzip(&self) {
        self.gzip.store(GZIP_USELESS, Ordering::Release);
    }
}

impl Sidecar {
    fn new(meta: FileMeta) -> Sidecar {
        Sidecar {
            meta,
            slot: VariantSlot::empty(),
            failure: LoadFailure::default(),
        }
    }
}

const GZIP_UNASKED: u8 = 0;
const GZIP_CLAIMED: u8 = 1;
const GZIP_USELESS: u8 = 2;

/// That a load failed, and when: it isn't tried again at once. Zero is no failure; else the reason
/// in the low bits and the tick above.
#[derive(Default)]
pub struct LoadFailure(AtomicU32);

/// Ticks of the clock of failures in a second.
pub const TICKS_PER_SECOND: u128 = 4;

impl LoadFailure {
    /// Remembers; `now` in ticks of any clock that starts with the site.
    pub fn set(&self, why: FileError, now: u32) {
        self.0.store((now << 4) | why as u32, Ordering::Relaxed);
    }

    /// The reason, if it is no older than a second. The clock is asked only after a failure.
    pub fn recent(&self, now: impl FnOnce() -> u32) -> Option<FileError> {
        let value = self.0.load(Ordering::Relaxed);
        let why = FileError::from_code(value & 15)?;
        // 28 bits of ticks come round every two years.
        let age = now().wrapping_sub(value >> 4) & 0x0fff_ffff;
        (age <= TICKS_PER_SECOND as u32).then_some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_forgotten() {
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
        let file = SiteFile::new(meta, [None; 3]);
        assert!(file.claim_gzip() && !file.claim_gzip());
        file.release_gzip();
        assert!(file.claim_gzip());
        file.give_up_gzip();
        assert!(!file.claim_gzip());
    }
}
