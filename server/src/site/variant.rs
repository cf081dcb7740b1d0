//! A variant: one file in one coding, loaded, with its heads ready to be sent.

use super::file::FileMeta;
use crate::limits::{FILE_STAT_INTERVAL_MICROSECONDS_MIN, FILE_STAT_PERIOD_MILLISECONDS_LOG2};
use crate::site::prepared_heads::PreparedHeads;
use crate::wire::fields::ContentCoding;
use crate::wire::status::{Status, StatusLine};
use rustix::fs::fstat;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What is sent for a file, all of it decided.
pub struct Variant {
    pub(super) heads: PreparedHeads,
    /// Last-Modified, seconds since 1970.
    pub modified: u64,
    /// How the content is coded.
    pub coding: ContentCoding,
    /// The body.
    pub content: VariantContent,
    /// Beside content in memory: the same in its file, where one may be kept open.
    pub(super) kept: Option<DiskContent>,
    /// 200, but for the response of a handler that was kept.
    pub(super) status: Status,
    /// The head says when it was made: nobody else does.
    pub(super) is_dated: bool,
    /// Goes when this does: the account of whoever keeps it.
    _lease: Option<Box<dyn Send + Sync>>,
    /// The time at which the file was last compared with the disk, in steps of 2^[`FILE_STAT_PERIOD_MILLISECONDS_LOG2`]
    /// ms.
    looked: AtomicU32,
    /// How it was used since the ledger last looked: 0 = never yet, 1 = not again, 2 = again.
    touched: AtomicU8,
}

/// The body of a variant.
pub enum VariantContent {
    /// All of it.
    Memory(Box<[u8]>),
    /// Where it is.
    Disk(DiskContent),
}

impl VariantContent {
    /// Bytes.
    pub fn size(&self) -> u64 {
        match self {
            VariantContent::Memory(bytes) => bytes.len() as u64,
            VariantContent::Disk(disk) => disk.known.size,
        }
    }
}

/// A file that stays open while somebody sends it.
pub struct DiskContent {
    pub(super) file: File,
    pub(super) known: FileMeta,
    /// When it was last found unchanged, microseconds; 0 = never.
    seen_us: AtomicU64,
}

impl DiskContent {
    pub(super) fn new(file: File, known: FileMeta) -> DiskContent {
        DiskContent {
            file,
            known,
            seen_us: AtomicU64::new(0),
        }
    }

    /// For `sendfile` and `pread`.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.known.size
    }

    /// Is the file still what its head says? Asked before and after sending: if not, the connection
    /// must be cut. A file that was renamed, replaced by another or deleted keeps its content, so
    /// only size and mtime are compared.
    pub fn unchanged(&self) -> bool {
        fstat(&self.file).is_ok_and(|stat| {
            let now = FileMeta::of(&stat);
            now.size == self.known.size && now.mtime_ns == self.known.mtime_ns
        })
    }

    /// The same for what goes by sendfile, where a look a moment ago is as good as one now: it sends
    /// pages, not copies, so what lies in a socket changes with the file all the same. `now_us` is of
    /// a clock of this process. It spares a file that many ask for at once a system call each.
    pub fn was_unchanged(&self, now_us: u64) -> bool {
        let seen_us = self.seen_us.load(Ordering::Relaxed);
        // Another worker's clock may be ahead.
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
        modified: u64,
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

    /// A handler's response, to be sent again as it is: its status, all its fields (Server, Date and
    /// Content-Length among them), and its content. `lease` is dropped when nobody holds it any more.
    pub fn of_response<'f>(
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
            ..Variant::new(heads, 0, ContentCoding::Identity, content, None)
        }
    }

    /// The same, of a content that is coded so.
    pub fn coded(self, coding: ContentCoding) -> Variant {
        Variant { coding, ..self }
    }

    /// 200, or what the handler said.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The status with its reason phrase, which is stored only in the ready-made head.
    pub fn status_line(&self) -> StatusLine {
        let head = self.heads.ok().get("HTTP/1.1 200 ".len()..);
        let head = head.unwrap_or_default();
        let end = head.iter().position(|byte| *byte == b'\r');
        StatusLine::new(self.status, &head[..end.unwrap_or(0)])
    }

    /// The fields of its own head.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.heads.fields()
    }

    /// The content, where it is in memory.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            VariantContent::Memory(bytes) => bytes,
            VariantContent::Disk(_) => &[],
        }
    }

    /// The ETag with its quotes; always a strong one.
    pub fn tag(&self) -> &[u8] {
        self.heads.tag()
    }

    /// Bytes of the body.
    pub fn size(&self) -> u64 {
        self.content.size()
    }

    /// The open file, where there is one: for large content always, for smaller content so that
    /// plain HTTP may send it without copying.
    pub fn disk(&self) -> Option<&DiskContent> {
        match &self.content {
            VariantContent::Disk(disk) => Some(disk),
            VariantContent::Memory(_) => self.kept.as_ref(),
        }
    }

    /// What it costs in memory, bytes.
    pub fn weight(&self) -> usize {
        let content = match &self.content {
            VariantContent::Memory(bytes) => bytes.len(),
            VariantContent::Disk(_) => 0,
        };
        // The counts of the Arc, and what an allocator adds to three blocks.
        size_of::<Variant>() + self.heads.len() + content + 64
    }

    /// Returns true once in each step of 2^[`FILE_STAT_PERIOD_MILLISECONDS_LOG2`] ms: the file is then compared with the
    /// disk, although no change was reported. `now_ms` is the clock of the workers.
    pub fn is_due(&self, now_ms: u64) -> bool {
        // The step number overflows after 557 years.
        let step = (now_ms >> FILE_STAT_PERIOD_MILLISECONDS_LOG2) as u32;
        let is_due = self.looked.load(Ordering::Relaxed) != step;
        if is_due {
            self.looked.store(step, Ordering::Relaxed);
        }
        is_due
    }

    /// Notes a use; only the first two since the ledger looked write to shared memory.
    pub fn touch(&self) {
        let touched = self.touched.load(Ordering::Relaxed);
        if touched < 2 {
            self.touched.store(touched + 1, Ordering::Relaxed);
        }
    }

    /// Was it used since this was last asked? Its very first use, which it was loaded for, doesn't
    /// count: so what is asked for once doesn't displace what is asked for often.
    pub fn take_touch(&self) -> bool {
        let again = self.touched.load(Ordering::Relaxed) == 2;
        if again {
            self.touched.store(1, Ordering::Relaxed);
        }
        again
    }
}
