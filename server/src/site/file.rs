//! A file of the tree: what we know of it, and the places where its loaded variants hang.

use super::variant::Variant;
use crate::wire::fields::Coding;
use crate::wire::reject::Reject;
use arc_swap::ArcSwapOption;
use rustix::fs::{FileType, Stat};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// What tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
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

impl Meta {
    /// None for what is no regular file.
    pub fn of_file(stat: &Stat) -> Option<Meta> {
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| Meta::of(stat))
    }

    /// Of whatever it is.
    pub fn of(stat: &Stat) -> Meta {
        Meta {
            size: number(stat.st_size),
            mtime_ns: nanoseconds(number(stat.st_mtime), number(stat.st_mtime_nsec)),
            ctime_ns: nanoseconds(number(stat.st_ctime), number(stat.st_ctime_nsec)),
            ino: number(stat.st_ino),
            dev: number(stat.st_dev),
        }
    }

    /// Is it the same file, and has nobody written to it in between? Its mode may be another.
    pub fn same_content(&self, other: &Meta) -> bool {
        let same = |meta: &Meta| Meta {
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
pub enum Why {
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

impl Why {
    /// As an answer.
    pub fn reject(self) -> Reject {
        match self {
            Why::NotFound | Why::LeftOut => Reject::NOT_FOUND,
            Why::LinkLeaves => Reject::LINK_LEAVES,
            Why::Unreadable => Reject::UNREADABLE,
            Why::Changing => Reject::CHANGING,
            Why::Overloaded => Reject::OVERLOADED,
            Why::Secret => Reject::SERVERS_OWN,
        }
    }

    fn from_code(code: u32) -> Option<Why> {
        [
            Why::NotFound,
            Why::LinkLeaves,
            Why::Unreadable,
            Why::Changing,
            Why::Overloaded,
            Why::Secret,
            Why::LeftOut,
        ]
        .into_iter()
        .find(|why| *why as u32 == code)
    }
}

/// A place for a variant, empty until it is loaded and again after its eviction.
pub type Slot = ArcSwapOption<Variant>;

/// Which of a file's variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The file as it is.
    Identity,
    /// The gzip that we made.
    Made,
    /// The file beside it with the extension of this coding.
    Sidecar(Coding),
}

/// A regular file. Small: there may be a hundred thousand.
pub struct File {
    /// As of the last scan.
    pub meta: Meta,
    /// Files beside it that hold it coded.
    pub sidecars: Option<Box<Sidecars>>,
    identity: Slot,
    made: Slot,
    failure: Failure,
    /// What became of the gzip we want to make; see [`File::claim_gzip`].
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
    pub meta: Meta,
    slot: Slot,
    failure: Failure,
}

/// What a scan found of sidecars: gzip, br, zstd.
pub type SidecarMetas = [Option<Meta>; 3];

/// The codings that sidecars have, and what their names end in.
pub const SIDECARS: [(Coding, &str); 3] = [
    (Coding::Gzip, ".gz"),
    (Coding::Br, ".br"),
    (Coding::Zstd, ".zst"),
];

impl File {
    /// A file that nobody asked for yet.
    pub fn new(meta: Meta, sidecars: SidecarMetas) -> File {
        let sidecars = sidecars.iter().any(Option::is_some).then(|| {
            let [gzip, br, zstd] = sidecars.map(|meta| meta.map(Sidecar::new));
            Box::new(Sidecars { gzip, br, zstd })
        });
        File {
            meta,
            sidecars,
            identity: Slot::empty(),
            made: Slot::empty(),
            failure: Failure::default(),
            gzip: AtomicU8::new(GZIP_UNASKED),
        }
    }

    /// Is it still exactly this?
    pub fn is(&self, meta: &Meta, sidecars: &SidecarMetas) -> bool {
        self.meta == *meta
            && SIDECARS.iter().zip(sidecars).all(|((coding, _), found)| {
                self.sidecar(*coding).map(|sidecar| sidecar.meta) == *found
            })
    }

    /// The sidecar for a coding.
    pub fn sidecar(&self, coding: Coding) -> Option<&Sidecar> {
        let sidecars = self.sidecars.as_ref()?;
        match coding {
            Coding::Identity => None,
            Coding::Gzip => sidecars.gzip.as_ref(),
            Coding::Br => sidecars.br.as_ref(),
            Coding::Zstd => sidecars.zstd.as_ref(),
        }
    }

    /// The slot of a variant; None where there is no such sidecar.
    pub fn slot(&self, which: Which) -> Option<&Slot> {
        match which {
            Which::Identity => Some(&self.identity),
            Which::Made => Some(&self.made),
            Which::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.slot),
        }
    }

    /// What we know of the file that a variant is made from.
    pub fn meta_of(&self, which: Which) -> Option<&Meta> {
        match which {
            Which::Identity | Which::Made => Some(&self.meta),
            Which::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.meta),
        }
    }

    /// Where a failed load of a variant is remembered.
    pub fn failure(&self, which: Which) -> Option<&Failure> {
        match which {
            Which::Identity | Which::Made => Some(&self.failure),
            Which::Sidecar(coding) => self.sidecar(coding).map(|sidecar| &sidecar.failure),
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
    fn new(meta: Meta) -> Sidecar {
        Sidecar {
            meta,
            slot: Slot::empty(),
            failure: Failure::default(),
        }
    }
}

const GZIP_UNASKED: u8 = 0;
const GZIP_CLAIMED: u8 = 1;
const GZIP_USELESS: u8 = 2;

/// That a load failed, and when: it isn't tried again at once. Zero is no failure; else the reason
/// in the low bits and the tick above.
#[derive(Default)]
pub struct Failure(AtomicU32);

/// Ticks of the clock of failures in a second.
pub const TICKS_PER_SECOND: u128 = 4;

impl Failure {
    /// Remembers; `now` in ticks of any clock that starts with the site.
    pub fn set(&self, why: Why, now: u32) {
        self.0.store((now << 4) | why as u32, Ordering::Relaxed);
    }

    /// The reason, if it is no older than a second. The clock is asked only after a failure.
    pub fn recent(&self, now: impl FnOnce() -> u32) -> Option<Why> {
        let value = self.0.load(Ordering::Relaxed);
        let why = Why::from_code(value & 15)?;
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
        let failure = Failure::default();
        assert_eq!(
            failure.recent(|| unreachable!("no failure, no clock")),
            None
        );
        failure.set(Why::Changing, 100);
        assert_eq!(failure.recent(|| 104), Some(Why::Changing));
        assert_eq!(failure.recent(|| 105), None);
        failure.set(Why::Unreadable, u32::MAX);
        assert_eq!(failure.recent(|| 2), Some(Why::Unreadable));
    }

    #[test]
    fn a_gzip_is_claimed_once() {
        let meta = Meta {
            size: 1,
            mtime_ns: 0,
            ctime_ns: 0,
            ino: 1,
            dev: 1,
        };
        let file = File::new(meta, [None; 3]);
        assert!(file.claim_gzip() && !file.claim_gzip());
        file.release_gzip();
        assert!(file.claim_gzip());
        file.give_up_gzip();
        assert!(!file.claim_gzip());
    }
}
