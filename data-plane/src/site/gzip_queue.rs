//! Queue of background gzip compression: texts without a gzip sidecar, queued after the first load, and
//! content of the page cache.
//!
//! Requests never wait for the compression: until the gzip variant exists, the plain bytes are sent. One
//! thread of the lowest priority serves the queue.

use crate::limits::GZIP_QUEUE_MAX;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

/// Compression job: a file of a site, or content of the page cache.
pub struct GzipJob(Box<dyn FnOnce() + Send>);

impl GzipJob {
    /// Compresses the text, and stores the result if worthwhile. Takes milliseconds.
    pub fn run(self) {
        (self.0)();
    }
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
    #[cfg(test)]
    pub(crate) fn try_next(&self) -> Option<GzipJob> {
        self.lock().jobs.pop_front()
    }

    /// Closes the queue: ends each [`GzipQueue::wait`] and drops the queued jobs.
    #[cfg(test)]
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.jobs.clear();
        self.arrived.notify_all();
    }

    /// Queues a job; returns false if the queue is full. A closed queue accepts and drops all jobs.
    pub(crate) fn push(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.lock();
        if !state.closed && state.jobs.len() >= GZIP_QUEUE_MAX {
            return false;
        }
        if !state.closed {
            state.jobs.push_back(GzipJob(Box::new(job)));
            self.arrived.notify_one();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, GzipQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(super) fn worth(size: usize) -> usize {
    size - size / 20
}

/// Returns the compressed output for the input written by `feed`; None if the output exceeds `most` bytes.
pub(super) fn encode(
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

pub(super) type BoundedGzEncoder = GzEncoder<BoundedBuffer>;

/// Buffer that fails with `StorageFull` beyond `most` bytes.
pub(super) struct BoundedBuffer {
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
