//! Texts without a gzip sidecar are compressed in the background, after they were first loaded; and so
//! is whatever else keeps texts for long.
//!
//! Nobody waits for it: until it is made the plain bytes are sent. The queue is worked off by one
//! thread of the lowest priority.

use crate::limits::GZIP_QUEUE_MAX;
use crate::site::SiteShared;
use crate::site::file::{SiteFile, VariantKind};
use crate::site::load::{coding_mark, heads};
use crate::site::variant::{Variant, VariantContent};
use crate::wire::fields::ContentCoding;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// The texts that wait.
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

/// One text to be compressed.
pub enum GzipJob {
    /// A file of a site.
    File(GzipFileJob),
    /// What somebody else keeps.
    Other(Box<dyn FnOnce() + Send>),
}

/// A file to be compressed.
pub struct GzipFileJob {
    /// Weak: the queue is the budget's, and a site holds its budget.
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

    /// The next job if there is one.
    pub fn try_next(&self) -> Option<GzipJob> {
        self.lock().jobs.pop_front()
    }

    /// Ends every [`GzipQueue::wait`] and drops what waits.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.jobs.clear();
        self.arrived.notify_all();
    }

    /// Somebody else's text; false if there is no room now.
    pub fn push_other(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.push(GzipJob::Other(Box::new(job)))
    }

    /// False if there is no room now. A closed queue takes all and does nothing.
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
    /// Compresses and hangs the result into its place, if it is worth it. Takes milliseconds.
    pub fn run(self) {
        match self {
            GzipJob::File(job) => job.run(),
            GzipJob::Other(job) => job(),
        }
    }
}

/// The gzip of a text; None if it isn't smaller by 5 %, or is more than `most` bytes: then it would only
/// cost memory.
pub fn gzip(text: &[u8], most: usize) -> Option<Box<[u8]>> {
    let most = worth(text.len()).min(most);
    let made = encode(most, |encoder| encoder.write_all(text));
    made.ok().flatten().map(Vec::into_boxed_slice)
}

/// Of a text of this size no more is worth its memory.
fn worth(size: usize) -> usize {
    size - size / 20
}

impl GzipFileJob {
    fn run(self) {
        let (Some(shared), Some(file)) = (self.shared.upgrade(), self.file.upgrade()) else {
            return;
        };
        let Some(plain) = file
            .slot(VariantKind::Identity)
            .and_then(|slot| slot.load_full())
        else {
            // Evicted meanwhile; whoever loads it again may ask again.
            return file.release_gzip();
        };
        let size = usize::try_from(plain.size()).unwrap_or(usize::MAX);
        // It must leave room for others.
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
        let heads = heads(
            shared,
            file,
            &self.path,
            size,
            plain.modified,
            &tag,
            ContentCoding::Gzip,
        );
        let content = VariantContent::Memory(bytes.into_boxed_slice());
        Variant::new(heads, plain.modified, ContentCoding::Gzip, content, None)
    }
}

/// The tag that the gzip of a plain variant has or would have.
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

/// None if more than `most` bytes come out; an error if the file changed meanwhile.
fn compress(plain: &Variant, most: usize) -> io::Result<Option<Vec<u8>>> {
    encode(most, |encoder| match &plain.content {
        VariantContent::Memory(bytes) => encoder.write_all(bytes),
        VariantContent::Disk(disk) => copy_from(disk, encoder),
    })
}

/// What comes out of what `feed` puts in; None if it is more than `most` bytes.
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

/// Takes no more than so many bytes.
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
