//! Queue of background gzip compression: texts without a gzip sidecar, queued after the first load, and
//! content of the page cache.
//!
//! Requests never wait for the compression: until the gzip variant exists, the plain bytes are sent. One
//! thread of the lowest priority serves the queue.

use crate::limits::GZIP_QUEUE_MAX;
use crate::site::SiteShared;
use crate::site::file::{SiteFile, VariantKind};
use crate::site::load::{LoadedFacts, coding_mark, heads};
use crate::site::variant::{Variant, VariantContent};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use wire::fields::ContentCoding;

/// Bounded queue of texts to compress.
#[derive(Default)]
pub struct GzipQueue {
    state: Mutex<GzipQueueState>,
    arrived: Condvar,
}

#[derive(Default)]
struct GzipQueueState {
    jobs: VecDeque<GzipJob>,
    closed: bool,
}

/// Compression job.
pub enum GzipJob {
    /// A file of a site.
    File(GzipFileJob),
    /// A job of another module, such as the page cache.
    Other(Box<dyn FnOnce() + Send>),
}

/// File to compress.
pub struct GzipFileJob {
    /// Weak, because the queue belongs to the budget, and the site holds the budget.
    pub(super) shared: Weak<SiteShared>,
    pub(super) file: Weak<SiteFile>,
    pub(super) path: Box<[u8]>,
}

impl GzipQueue {
    /// Waits for the next job; None once the queue is closed.
    pub fn wait(&self) -> Option<GzipJob> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self
                .arrived
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the next job without waiting.
    pub fn try_next(&self) -> Option<GzipJob> {
        self.lock().jobs.pop_front()
    }

    /// Closes the queue: ends each [`GzipQueue::wait`] and drops the queued jobs.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.jobs.clear();
        self.arrived.notify_all();
    }

    /// Queues a job of another module; returns false if the queue is full.
    pub fn push_other(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.push(GzipJob::Other(Box::new(job)))
    }

    /// Queues a job; returns false if the queue is full. A closed queue accepts and drops all jobs.
    pub(super) fn push(&self, job: GzipJob) -> bool {
        let mut state = self.lock();
        if !state.closed && state.jobs.len() >= GZIP_QUEUE_MAX {
            return false;
        }
        if !state.closed {
            state.jobs.push_back(job);
            self.arrived.notify_one();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, GzipQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GzipJob {
    /// Compresses the text, and stores the result if worthwhile. Takes milliseconds.
    pub fn run(self) {
        match self {
            GzipJob::File(job) => job.run(),
            GzipJob::Other(job) => job(),
        }
    }
}

/// Compresses a text. Returns None if the result saves less than 5 % or exceeds `most` bytes: the memory
/// for the result would be wasted.
pub fn gzip(text: &[u8], most: usize) -> Option<Box<[u8]>> {
    let most = worth(text.len()).min(most);
    let made = encode(most, |encoder| encoder.write_all(text));
    made.ok().flatten().map(Vec::into_boxed_slice)
}

/// Returns the largest size of a compressed text that is worth the memory.
fn worth(size: usize) -> usize {
    size - size / 20
}

impl GzipFileJob {
    fn run(self) {
        let Some(file) = self.file.upgrade() else {
            return;
        };
        let Some(shared) = self.shared.upgrade() else {
            // The file belongs to another release by now. A request to the release may claim the compression again.
            return file.release_gzip();
        };
        let Some(plain) = file
            .slot(VariantKind::Identity)
            .and_then(|slot| slot.load_full())
            .filter(|plain| !plain.is_open())
        else {
            // The plain content was evicted meanwhile, or a process has opened the file for writing. The next load may claim the compression again.
            return file.release_gzip();
        };
        let size = usize::try_from(plain.size()).unwrap_or(usize::MAX);
        // The result must leave room in the budget for other content.
        let most = worth(size).min(shared.budget.bytes_max() / 4);
        match compress(&plain, most) {
            Ok(Some(bytes)) => {
                let variant = self.made(&shared, &file, &plain, bytes);
                shared
                    .budget
                    .keep(&file, VariantKind::GeneratedGzip, variant);
            }
            Ok(None) => file.give_up_gzip(),
            Err(_) => file.release_gzip(),
        }
    }

    fn made(
        &self,
        shared: &SiteShared,
        file: &SiteFile,
        plain: &Variant,
        bytes: Vec<u8>,
    ) -> Variant {
        let tag = String::from_utf8_lossy(&made_tag(plain)).into_owned();
        let size = bytes.len() as u64;
        let facts = LoadedFacts {
            size,
            modified: plain.modified,
            tag: &tag,
            coding: ContentCoding::Gzip,
            is_open: false,
        };
        let heads = heads(shared, file, &self.path, &facts);
        let content = VariantContent::Memory(bytes.into_boxed_slice());
        Variant::new(heads, plain.modified, ContentCoding::Gzip, content, None)
    }
}

/// Returns the entity tag of the generated gzip variant, whether or not the variant exists.
pub(super) fn made_tag(plain: &Variant) -> Vec<u8> {
    let tag = plain.tag();
    [
        &tag[..tag.len() - 1],
        b"-",
        coding_mark(ContentCoding::Gzip).as_bytes(),
        b"\"",
    ]
    .concat()
}

/// Compresses the content of a variant. Returns None if the result exceeds `most` bytes, and an error if
/// the file changed meanwhile.
fn compress(plain: &Variant, most: usize) -> io::Result<Option<Vec<u8>>> {
    encode(most, |encoder| match &plain.content {
        VariantContent::Memory(bytes) => encoder.write_all(bytes),
        VariantContent::Disk(disk) => copy_from(disk, encoder),
    })
}

/// Returns the compressed output for the input written by `feed`; None if the output exceeds `most` bytes.
fn encode(
    most: usize,
    feed: impl FnOnce(&mut BoundedGzEncoder) -> io::Result<()>,
) -> io::Result<Option<Vec<u8>>> {
    let out = BoundedBuffer {
        bytes: Vec::new(),
        most,
    };
    let mut encoder = GzBuilder::new().mtime(0).write(out, Compression::new(6));
    let finished = feed(&mut encoder).and_then(|()| encoder.finish());
    match finished {
        Ok(mut out) => {
            out.bytes.shrink_to_fit();
            Ok(Some(out.bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(None),
        Err(error) => Err(error),
    }
}

fn copy_from(disk: &crate::site::variant::DiskContent, to: &mut impl Write) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; 64 * 1024];
    let mut at = 0;
    while at < disk.size() {
        let piece = usize::try_from(disk.size() - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        disk.file.read_exact_at(&mut buffer[..piece], at)?;
        to.write_all(&buffer[..piece])?;
        at += piece as u64;
    }
    if disk.unchanged() {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

type BoundedGzEncoder = GzEncoder<BoundedBuffer>;

/// Buffer that fails with `StorageFull` beyond `most` bytes.
struct BoundedBuffer {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
