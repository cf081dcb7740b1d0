//! Variant: one file in one content coding, loaded, with prepared response heads.

use crate::limits::{FILE_STAT_INTERVAL_MICROSECONDS_MIN, FILE_STAT_PERIOD_MILLISECONDS_LOG2};
use crate::site::file_version::FileMeta;
use crate::site::prepared_heads::PreparedHeads;
use base::sys::{self, OpenWriters};
use rustix::fs::fstat;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use wire::fields::ContentCoding;
use wire::status::{Status, StatusLine};

/// Loaded representation of a file, or a cached response.
pub struct Variant {
    pub(super) heads: PreparedHeads,
    /// Value of Last-Modified, seconds since 1970; None without the field.
    pub modified: Option<u64>,
    /// Content coding.
    pub coding: ContentCoding,
    /// Content in memory or on disk.
    pub content: VariantContent,
    /// Open file with the same content as the memory, if the descriptor is kept.
    pub(super) kept: Option<DiskContent>,
    /// 200, or the status of a cached response.
    pub(super) status: Status,
    /// Whether the head contains Date, so that the driver adds no Date field.
    pub(super) is_dated: bool,
    /// Memory accounting of the cache, released on drop.
    _lease: Option<Box<dyn Send + Sync>>,
    /// Time of the last comparison with the disk, in steps of 2^[`FILE_STAT_PERIOD_MILLISECONDS_LOG2`] ms.
    looked: AtomicU32,
    /// Uses since the last visit of the budget: 0 = never used, 1 = not used again, 2 = used again.
    touched: AtomicU8,
}

/// Content of a variant.
pub enum VariantContent {
    /// The content itself.
    Memory(Box<[u8]>),
    /// The open file with the content.
    Disk(DiskContent),
}

impl VariantContent {
    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        match self {
            VariantContent::Memory(bytes) => bytes.len() as u64,
            VariantContent::Disk(disk) => disk.known.size,
        }
    }
}

/// Open file with content to send.
pub struct DiskContent {
    pub(super) file: File,
    pub(super) known: FileMeta,
    writing: FileWriting,
    /// Time of the last check that found the file unchanged, microseconds; 0 = never.
    seen_us: AtomicU64,
}

/// Whether a process had the file open for writing when the file was loaded.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum FileWriting {
    /// No process is known to have the file open for writing.
    Closed,
    /// A process has the file open for writing. The file counts as broken off if the file changes.
    Open,
    /// A process appends to the file. The content is the first part of the file, up to the length at the time of
    /// opening.
    Growing,
    /// Content of a release, compared with its digest. A publisher that owns the file could change it and set the
    /// modification time back, but not the time of the last status change: before the next response, a difference leads to
    /// another comparison.
    Blob,
    /// Content of a release that is in memory as well. After any change of the file, the content is sent from memory.
    KeptBlob,
}

impl DiskContent {
    pub(super) fn new(file: File, known: FileMeta, writing: FileWriting) -> DiskContent {
        DiskContent {
            file,
            known,
            writing,
            seen_us: AtomicU64::new(0),
        }
    }

    /// Returns the descriptor for `sendfile` and `pread`.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.known.size
    }

    /// Returns true if size and modification time equal the metadata in the head. The check runs before and
    /// after sending; after a failure, the connection must be closed. A renamed, replaced or deleted file
    /// keeps the content, so other metadata is not compared: a sweep, a backup with hard links and a change of the mode
    /// cut no download. A growing file keeps its first part.
    pub(crate) fn unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| {
            let now = FileMeta::of(&stat);
            match self.writing {
                FileWriting::Growing => now.size >= self.known.size,
                FileWriting::Closed | FileWriting::Open | FileWriting::Blob => {
                    now.size == self.known.size && now.mtime_ns == self.known.mtime_ns
                }
                // The response goes on from memory.
                FileWriting::KeptBlob => now == self.known,
            }
        })
    }

    /// Returns true if a process had the file open for writing when the file was loaded.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.writing, FileWriting::Open | FileWriting::Growing)
    }

    /// Returns true if a new response may be sent from the content. A file that a process had open for writing must
    /// be as it was when it was loaded, and still be open for writing.
    pub(super) fn is_current(&self) -> bool {
        match self.writing {
            FileWriting::KeptBlob => self.unchanged(),
            // A program may write into a file and set the modification time back, as rsync with `--inplace` does. The
            // entity tag tells the two contents apart by the time of the last status change.
            FileWriting::Closed => fstat(&self.file).is_ok_and(|stat| {
                let is_removed = stat.st_nlink == 0;
                let now = FileMeta::of(&stat);
                now.size == self.known.size
                    && now.mtime_ns == self.known.mtime_ns
                    && (is_removed || now.ctime_ns == self.known.ctime_ns)
            }),
            FileWriting::Blob => {
                fstat(&self.file).is_ok_and(|stat| FileMeta::of(&stat) == self.known)
            }
            FileWriting::Open | FileWriting::Growing => {
                fstat(&self.file).is_ok_and(|stat| FileMeta::of(&stat) == self.known)
                    && self.may_have_writers()
            }
        }
    }

    fn may_have_writers(&self) -> bool {
        !matches!(sys::open_writers(self.fd()), OpenWriters::None(_))
    }

    /// Returns true if the file is unchanged, or was unchanged at a check a moment ago. The relaxed check
    /// suffices for sendfile: sendfile queues pages instead of copies, so data in the socket buffer changes
    /// with the file anyway. Concurrent requests for a file thereby share one system call. `now_us` is a
    /// process-wide clock.
    pub(crate) fn was_unchanged(&self, now_us: u64) -> bool {
        let seen_us = self.seen_us.load(Ordering::Relaxed);
        // The clock of another worker may be ahead.
        if seen_us != 0 && now_us.saturating_sub(seen_us) < FILE_STAT_INTERVAL_MICROSECONDS_MIN {
            return true;
        }
        let is_unchanged = self.unchanged();
        if is_unchanged {
            self.seen_us.store(now_us, Ordering::Relaxed);
        }
        is_unchanged
    }
}

impl Variant {
    pub(super) fn new(
        heads: PreparedHeads,
        modified: Option<u64>,
        coding: ContentCoding,
        content: VariantContent,
        kept: Option<DiskContent>,
    ) -> Variant {
        Variant {
            heads,
            modified,
            coding,
            content,
            kept,
            status: Status::OK,
            is_dated: false,
            _lease: None,
            looked: AtomicU32::new(0),
            touched: AtomicU8::new(0),
        }
    }

    /// Builds a variant from a handler's response, to be sent again unchanged: status, all fields
    /// (including Server, Date and Content-Length), and content. `lease` is dropped with the variant.
    pub(crate) fn of_response<'f>(
        status: &StatusLine,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
        content: Box<[u8]>,
        lease: Box<dyn Send + Sync>,
    ) -> Variant {
        let heads = PreparedHeads::of(status, fields);
        let content = VariantContent::Memory(content);
        Variant {
            status: **status,
            is_dated: true,
            _lease: Some(lease),
            ..Variant::new(heads, None, ContentCoding::Identity, content, None)
        }
    }

    /// Returns the variant with the coding of the content set.
    pub(crate) fn coded(self, coding: ContentCoding) -> Variant {
        Variant { coding, ..self }
    }

    /// Returns 200, or the status of the cached response.
    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// Returns the status with the reason phrase, which is stored only in the prepared head.
    pub(crate) fn status_line(&self) -> StatusLine {
        let head = self.heads.ok().get("HTTP/1.1 200 ".len()..);
        let head = head.unwrap_or_default();
        let end = head.iter().position(|byte| *byte == b'\r');
        StatusLine::new(self.status, &head[..end.unwrap_or(0)])
    }

    /// Returns the fields of the prepared head.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.heads.fields()
    }

    /// Returns the content in memory; empty for content on disk.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.content {
            VariantContent::Memory(bytes) => bytes,
            VariantContent::Disk(_) => &[],
        }
    }

    /// Returns true if a process had the file open for writing when the file was loaded. The response has no validator,
    /// and no cache may keep the response.
    pub(crate) fn is_open(&self) -> bool {
        matches!(&self.content, VariantContent::Disk(disk) if disk.is_open())
    }

    /// Returns true if a new response may be sent from the variant. Content in memory stays complete. Content on disk is
    /// compared with the file, so that a change leads to another load instead of a response that breaks off.
    pub(super) fn is_current(&self) -> bool {
        match &self.content {
            VariantContent::Memory(_) => true,
            VariantContent::Disk(disk) => disk.is_current(),
        }
    }

    /// Returns true if the variant comes from the file with the metadata `meta`, and a process still has the file open
    /// for writing.
    pub(super) fn is_of_open_file(&self, meta: &FileMeta) -> bool {
        match &self.content {
            VariantContent::Disk(disk) if disk.is_open() => {
                disk.known.same_file(meta) && disk.may_have_writers()
            }
            _ => false,
        }
    }

    /// Returns the entity tag with quotes, always a strong tag for files; empty for a file that a process had open for
    /// writing.
    pub(crate) fn tag(&self) -> &[u8] {
        self.heads.tag()
    }

    /// Returns the bytes of the content.
    pub(crate) fn size(&self) -> u64 {
        self.content.size()
    }

    /// Returns the open file, if any. Large content always has an open file; smaller content may have a
    /// file for sendfile on plain HTTP.
    pub(crate) fn disk(&self) -> Option<&DiskContent> {
        match &self.content {
            VariantContent::Disk(disk) => Some(disk),
            VariantContent::Memory(_) => self.kept.as_ref(),
        }
    }

    /// Returns the memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        let content = match &self.content {
            VariantContent::Memory(bytes) => bytes.len(),
            VariantContent::Disk(_) => 0,
        };
        // 64 bytes cover the counts of the Arc and the allocator's overhead for three blocks.
        size_of::<Variant>() + self.heads.len() + content + 64
    }

    /// Returns true once in each step of 2^[`FILE_STAT_PERIOD_MILLISECONDS_LOG2`] ms: the file is due for a
    /// comparison with the disk, although no change was reported. `now_ms` is the clock of the workers.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        // The step number overflows after 557 years.
        let step = (now_ms >> FILE_STAT_PERIOD_MILLISECONDS_LOG2) as u32;
        let is_due = self.looked.load(Ordering::Relaxed) != step;
        if is_due {
            self.looked.store(step, Ordering::Relaxed);
        }
        is_due
    }

    /// Records a use. Only the first two uses since the last visit of the budget write to shared memory.
    pub(crate) fn touch(&self) {
        let touched = self.touched.load(Ordering::Relaxed);
        if touched < 2 {
            self.touched.store(touched + 1, Ordering::Relaxed);
        }
    }

    /// Returns true if the variant was used again since the last call. The first use, for which the variant
    /// was loaded, does not count, so that content requested once does not displace content requested
    /// often.
    pub(crate) fn take_touch(&self) -> bool {
        let again = self.touched.load(Ordering::Relaxed) == 2;
        if again {
            self.touched.store(1, Ordering::Relaxed);
        }
        again
    }
}
