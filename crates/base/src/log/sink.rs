//! Log destinations: one queue and one writer thread for each destination, shared by all workers.
//!
//! Submitting a buffer takes a lock for a moment and never waits for the destination. If the destination is
//! slower than the workers, or fails (a full disk, a closed pipe), lines are dropped and counted. The error
//! log reports the beginning of a loss, and the number of lost lines once works again.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use log::Level;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;
use tokio::sync::oneshot;

use crate::limits::{LOG_BATCH_BYTES, LOG_QUEUE_BYTES, LOG_SPARE_BUFFERS_MAX};
use crate::log::rotation::{LogCompression, LogFolder, Rotation, copy_owner};
use crate::sys;
use crate::trusted_path::{LastLink, MissingFolder, TrustedPath};

/// Destination of log lines, as configured by the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogDestination {
    /// No log.
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Lines are appended to the file, or written to a named pipe that has a reader.
    File(PathBuf),
}

impl fmt::Display for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDestination::Off => f.write_str("off"),
            LogDestination::Stdout => f.write_str("standard output"),
            LogDestination::Stderr => f.write_str("standard error"),
            LogDestination::File(path) => path.display().fmt(f),
        }
    }
}

/// Callback that reports the state of a destination to the operator. Any thread may call the function, and
/// the function must not block.
pub type ReportFn = Arc<dyn Fn(Level, String) + Send + Sync>;

/// All destinations in use. A destination opened twice has one sink.
pub struct Sinks {
    report: ReportFn,
    queue_bytes_max: usize,
    /// Rotation of all files; `None` = the server rotates no file.
    rotation: Arc<Mutex<Option<Rotation>>>,
    known: Mutex<Vec<OpenSink>>,
    /// Lines lost by destinations no longer in use.
    lost_before: AtomicU64,
}

struct OpenSink {
    shared: Arc<SinkShared>,
    handle: Weak<SinkHandle>,
}

impl Default for Sinks {
    /// Makes a set of sinks that report to the error log.
    fn default() -> Sinks {
        Sinks::new(Arc::new(|level, text| log::log!(level, "{text}")))
    }
}

impl Sinks {
    /// Makes a set of sinks that report failures by `report`.
    pub fn new(report: ReportFn) -> Sinks {
        Sinks::with_queue(report, LOG_QUEUE_BYTES)
    }

    fn with_queue(report: ReportFn, queue_bytes_max: usize) -> Sinks {
        Sinks {
            report,
            queue_bytes_max,
            rotation: Arc::default(),
            known: Mutex::default(),
            lost_before: AtomicU64::new(0),
        }
    }

    /// Returns the sink of `destination`. A file is opened at once with the current privileges, and created
    /// if missing. The writer thread starts with the first line, so the process may drop privileges in
    /// between.
    pub fn open(&self, destination: &LogDestination) -> io::Result<Sink> {
        let sink = self.find_or_new(destination, &[]);
        self.open_new(&sink)?;
        Ok(sink)
    }

    /// Returns the open sink of `destination`, else the sink of `destination` among `new`, else a new sink
    /// that takes no lines until [`Sinks::open_new`]. Opens no file and leaves the set as it is.
    pub fn find_or_new(&self, destination: &LogDestination, new: &[Sink]) -> Sink {
        if *destination == LogDestination::Off {
            return Sink(None);
        }
        let named = destination;
        // If the folder can't be read, `open_new` returns the error.
        let destination = one_name(named).unwrap_or_else(|_| named.clone());
        let open = self
            .lock()
            .iter()
            .filter(|known| known.shared.destination == destination)
            .find_map(|known| known.handle.upgrade());
        let mut new = new.iter().filter_map(|sink| sink.0.as_ref());
        let found = open.or_else(|| new.find(|it| it.0.destination == destination).cloned());
        Sink(Some(found.unwrap_or_else(|| {
            Arc::new(SinkHandle(Arc::new(SinkShared {
                destination,
                named: named.clone(),
                queue_bytes_max: self.queue_bytes_max,
                report: Arc::clone(&self.report),
                rotation: Arc::clone(&self.rotation),
                state: Mutex::default(),
                work: Condvar::new(),
                done: Condvar::new(),
                lost: AtomicU64::new(0),
                failing: AtomicBool::new(false),
            })))
        })))
    }

    /// Opens a sink of [`Sinks::find_or_new`] as [`Sinks::open`] does. An open sink stays as it is; the
    /// function fails if the folder of its file is gone.
    pub fn open_new(&self, sink: &Sink) -> io::Result<()> {
        let Some(handle) = &sink.0 else { return Ok(()) };
        one_name(&handle.0.named)?;
        let mut known = self.lock();
        known.retain(|known| {
            let stays = known.handle.strong_count() > 0 || !known.shared.is_done();
            if !stays {
                let lost = known.shared.lost.load(Relaxed);
                self.lost_before.fetch_add(lost, Relaxed);
            }
            stays
        });
        if known.iter().any(|it| Arc::ptr_eq(&it.shared, &handle.0)) {
            return Ok(());
        }
        handle.0.lock().output = Some(SinkOutput::open(&handle.0.named)?);
        known.push(OpenSink {
            shared: Arc::clone(&handle.0),
            handle: Arc::downgrade(handle),
        });
        Ok(())
    }

    /// Sets the rotation of all files, from the next written lines on.
    pub fn set_rotation(&self, rotation: Option<Rotation>) {
        *self.rotation.lock().unwrap_or_else(PoisonError::into_inner) = rotation;
    }

    /// Reopens all files after another program has renamed the files. Lines submitted earlier go to the old files,
    /// later lines to the new files. If a new file can't be opened, the old file stays in use, and the error log
    /// reports the failure.
    pub fn reopen(&self) -> ReopenResults {
        let files = self.all().into_iter();
        let files = files.filter(|it| matches!(it.destination, LogDestination::File(_)));
        let results = files.map(|shared| {
            let (result, receiver) = oneshot::channel();
            shared.queue(SinkJob::Reopen(result));
            (shared.destination.to_string(), receiver)
        });
        ReopenResults(results.collect())
    }

    /// Waits until all lines are written or dropped, at most until `deadline`. Returns false at the
    /// deadline.
    pub fn flush(&self, deadline: Instant) -> bool {
        let mut done = true;
        // Each sink is flushed even after the deadline: a stuck sink says nothing about the other sinks.
        for shared in self.all() {
            done &= shared.flush(deadline);
        }
        done
    }

    /// Returns the lines lost so far by all destinations.
    pub fn lines_lost(&self) -> u64 {
        // The sum is taken under the lock, so that a destination removed meanwhile is counted once.
        let known = self.lock();
        let lost = known.iter().map(|known| known.shared.lost.load(Relaxed));
        lost.sum::<u64>() + self.lost_before.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenSink>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<Arc<SinkShared>> {
        self.lock()
            .iter()
            .map(|known| known.shared.clone())
            .collect()
    }
}

/// Results of [`Sinks::reopen`], one for each file.
pub struct ReopenResults(Vec<(String, oneshot::Receiver<Result<(), String>>)>);

impl ReopenResults {
    /// Waits until the writers have reopened the files. Returns the number of files, or the failures, one in a line. A
    /// writer held up by its disk has no result.
    pub async fn wait(self) -> Result<usize, String> {
        let count = self.0.len();
        let mut failures = String::new();
        for (destination, result) in self.0 {
            match result.await {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => failures += &format!("{failure}\n"),
                Err(_) => failures += &format!("log {destination}: the log is no longer in use\n"),
            }
        }
        if failures.is_empty() {
            Ok(count)
        } else {
            Err(failures)
        }
    }
}

/// Returns a file with the real path of its folder, so that one file under two names is opened once.
fn one_name(destination: &LogDestination) -> io::Result<LogDestination> {
    let LogDestination::File(path) = destination else {
        return Ok(destination.clone());
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    Ok(LogDestination::File(folder.canonicalize()?.join(name)))
}

/// Handle of one destination. Clones write to the same destination. After the last clone is dropped,
/// submitted lines are still written, then the destination is closed.
#[derive(Clone)]
pub struct Sink(Option<Arc<SinkHandle>>);

struct SinkHandle(Arc<SinkShared>);

impl Sink {
    /// Returns a sink that discards all lines.
    pub fn off() -> Sink {
        Sink(None)
    }

    /// Returns true if the sink discards all lines, so that lines need no formatting.
    pub fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if both sinks write to one destination.
    pub fn is_same(&self, other: &Sink) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// Takes the whole lines in `full` and leaves an empty buffer, most often a reused buffer. The call
    /// never waits for the destination: if the queue is full, the lines are dropped.
    pub fn submit(&self, full: &mut Vec<u8>) {
        match &self.0 {
            Some(handle) => handle.0.submit(full),
            None => full.clear(),
        }
    }

    /// Returns true if the last write failed.
    pub fn is_failing(&self) -> bool {
        let failing = |handle: &Arc<SinkHandle>| handle.0.failing.load(Relaxed);
        self.0.as_ref().is_some_and(failing)
    }

    /// Returns the lines lost so far.
    pub fn lines_lost(&self) -> u64 {
        let lost = |handle: &Arc<SinkHandle>| handle.0.lost.load(Relaxed);
        self.0.as_ref().map_or(0, lost)
    }

    /// Waits until all lines are written or dropped, at most until `deadline`. Returns false at the
    /// deadline.
    pub fn flush(&self, deadline: Instant) -> bool {
        let flush = |handle: &Arc<SinkHandle>| handle.0.flush(deadline);
        self.0.as_ref().is_none_or(flush)
    }
}

impl Drop for SinkHandle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_one();
    }
}

/// Lines of one worker, submitted to a sink when the batch is full and when the worker flushes the batch.
/// The worker flushes from time to time, so that lines of a quiet server appear soon.
pub struct LogBatch {
    sink: Sink,
    lines: Vec<u8>,
}

impl LogBatch {
    /// Makes an empty batch for `sink`.
    pub fn new(sink: Sink) -> LogBatch {
        LogBatch {
            sink,
            lines: Vec::new(),
        }
    }

    /// Returns true if the lines of the batch go to `sink`.
    pub fn is_for(&self, sink: &Sink) -> bool {
        self.sink.is_same(sink)
    }

    /// Adds the line that `append` appends to the buffer, with its newline. A log that is switched off takes no lines.
    #[inline]
    pub fn push(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        if self.sink.is_off() {
            return;
        }
        append(&mut self.lines);
        if self.lines.len() >= LOG_BATCH_BYTES {
            self.flush();
        }
    }

    /// Returns true if no line waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Submits all lines to the sink.
    pub fn flush(&mut self) {
        self.sink.submit(&mut self.lines);
    }
}

impl Drop for LogBatch {
    fn drop(&mut self) {
        self.flush();
    }
}

struct SinkShared {
    destination: LogDestination,
    /// The destination as the operator wrote it, with symbolic links unresolved.
    named: LogDestination,
    queue_bytes_max: usize,
    report: ReportFn,
    rotation: Arc<Mutex<Option<Rotation>>>,
    state: Mutex<SinkState>,
    /// Signals work for the writer.
    work: Condvar,
    /// Signals a completed job of the writer.
    done: Condvar,
    lost: AtomicU64,
    failing: AtomicBool,
}

#[derive(Default)]
struct SinkState {
    jobs: VecDeque<SinkJob>,
    /// Bytes in `jobs` and in the writer's current job.
    bytes: usize,
    spares: Vec<Vec<u8>>,
    /// Dropped lines not reported yet.
    unreported_lines: u64,
    /// True while the queue is full and the overflow is reported.
    overflowing: bool,
    /// The open output, from the opening until the writer thread takes the output.
    output: Option<SinkOutput>,
    /// True while the writer runs a job.
    busy: bool,
    /// True while the writer waits for `work`.
    sleeping: bool,
    closed: bool,
}

enum SinkJob {
    Write(Vec<u8>),
    /// Reopens the file, and sends the failure, if any.
    Reopen(oneshot::Sender<Result<(), String>>),
}

impl SinkShared {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        // No code under the lock can panic halfway, so the state behind a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(self: &Arc<SinkShared>, full: &mut Vec<u8>) {
        if full.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.bytes + full.len() > self.queue_bytes_max {
            let first = !std::mem::replace(&mut state.overflowing, true);
            let lines = lines_in(full);
            state.unreported_lines += lines;
            drop(state);
            self.lost.fetch_add(lines, Relaxed);
            full.clear();
            if first {
                let text = format!("log {}: too slow, lines are dropped", self.destination);
                (self.report)(Level::Warn, text);
            }
            return;
        }
        state.bytes += full.len();
        let spare = state.spares.pop().unwrap_or_default();
        let job = SinkJob::Write(std::mem::replace(full, spare));
        self.push(state, job);
    }

    fn queue(self: &Arc<SinkShared>, job: SinkJob) {
        self.push(self.lock(), job);
    }

    fn push(self: &Arc<SinkShared>, mut state: MutexGuard<'_, SinkState>, job: SinkJob) {
        state.jobs.push_back(job);
        if let Some(output) = state.output.take() {
            drop(state);
            self.start_writer(output);
        } else if std::mem::take(&mut state.sleeping) {
            drop(state);
            self.work.notify_one();
        }
    }

    fn start_writer(self: &Arc<SinkShared>, output: SinkOutput) {
        // If the thread can't start, the closure is dropped with its contents. The shared slot keeps the
        // output.
        let handed_over = Arc::new(Mutex::new(Some(output)));
        let (shared, taken) = (Arc::clone(self), Arc::clone(&handed_over));
        let begun = thread::Builder::new()
            .name("log".to_owned())
            .stack_size(WRITER_STACK_BYTES)
            .spawn(move || {
                let output = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(output) = output {
                    SinkWriter::new(&shared, output).run();
                }
            });
        if begun.is_err() {
            // The next buffer starts another attempt. Meanwhile the queue fills up.
            let mut output = handed_over.lock().unwrap_or_else(PoisonError::into_inner);
            self.lock().output = output.take();
        }
    }

    fn is_done(&self) -> bool {
        let state = self.lock();
        state.jobs.is_empty() && !state.busy
    }

    fn flush(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        while !state.jobs.is_empty() || state.busy {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.done.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// Writer thread of one destination.
struct SinkWriter<'a> {
    shared: &'a SinkShared,
    output: SinkOutput,
    /// True after a write that ended within a line: the next write begins a new line.
    within_line: bool,
    /// Bytes of a regular file; `None` for any other destination, which is not rotated.
    size: Option<u64>,
    /// Bytes of the file at a failed rotation, from which the next attempt counts.
    rotation_failed_at: u64,
    compression: Option<LogCompression>,
    /// Buffer of the compression.
    part: Vec<u8>,
}

/// Next task of a writer.
enum SinkTask {
    Job(SinkJob),
    /// No job waits, and a compression is under way.
    Compress,
    /// The destination is no longer in use.
    End,
}

impl<'a> SinkWriter<'a> {
    fn new(shared: &'a SinkShared, output: SinkOutput) -> SinkWriter<'a> {
        SinkWriter {
            shared,
            size: output.size(),
            output,
            within_line: false,
            rotation_failed_at: 0,
            compression: None,
            part: Vec::new(),
        }
    }

    fn run(mut self) {
        // A former server may have ended before its compression.
        self.begin_compression();
        loop {
            match self.next_task() {
                SinkTask::Job(SinkJob::Write(lines)) => {
                    self.rotate_before(lines.len() as u64);
                    self.write(&lines);
                    self.finish(Some(lines));
                    self.compress();
                }
                SinkTask::Job(SinkJob::Reopen(result)) => {
                    // The control plane may have stopped waiting.
                    let _ = result.send(self.reopen());
                    self.finish(None);
                }
                SinkTask::Compress => self.compress(),
                SinkTask::End => break,
            }
        }
        if let Some(compression) = &self.compression {
            compression.abandon();
        }
    }

    fn next_task(&self) -> SinkTask {
        let mut state = self.shared.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.busy = true;
                return SinkTask::Job(job);
            }
            if state.closed {
                return SinkTask::End;
            }
            if self.compression.is_some() {
                return SinkTask::Compress;
            }
            state.sleeping = true;
            let woken = self.shared.work.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.sleeping = false;
        }
    }

    /// Returns the buffer to the spares, and reports lost lines once works again.
    fn finish(&self, spare: Option<Vec<u8>>) {
        let mut state = self.shared.lock();
        if let Some(mut lines) = spare {
            state.bytes -= lines.len();
            lines.clear();
            if state.spares.len() < LOG_SPARE_BUFFERS_MAX && lines.capacity() <= 2 * LOG_BATCH_BYTES
            {
                state.spares.push(lines);
            }
        }
        let works_again = state.jobs.is_empty() && !self.shared.failing.load(Relaxed);
        let lost = if works_again {
            std::mem::take(&mut state.unreported_lines)
        } else {
            0
        };
        if works_again {
            state.overflowing = false;
        }
        if lost > 0 {
            drop(state);
            let destination = &self.shared.destination;
            let text = format!("log {destination}: works again, {lost} lines were lost");
            (self.shared.report)(Level::Warn, text);
            state = self.shared.lock();
        }
        state.busy = false;
        drop(state);
        self.shared.done.notify_all();
    }

    fn write(&mut self, lines: &[u8]) {
        if self.within_line && write_all(self.output.as_fd(), b"\n").is_ok() {
            self.within_line = false;
        }
        let (written, failure) = match write_all(self.output.as_fd(), lines) {
            Ok(()) => (lines.len(), None),
            Err((written, errno)) => (written, Some(errno)),
        };
        self.size = self.size.map(|size| size + written as u64);
        if let Some(&last) = lines[..written].last() {
            self.within_line = last != b'\n';
        }
        let was_failing = self.shared.failing.swap(failure.is_some(), Relaxed);
        let Some(errno) = failure else { return };
        let lost = lines_in(&lines[written..]);
        self.shared.lost.fetch_add(lost, Relaxed);
        self.shared.lock().unreported_lines += lost;
        if !was_failing {
            let reason = io::Error::from(errno);
            let destination = &self.shared.destination;
            let text = format!("log {destination}: {reason}; lines are dropped until it works");
            (self.shared.report)(Level::Error, text);
        }
    }

    fn reopen(&mut self) -> Result<(), String> {
        let opened = SinkOutput::open(&self.shared.named);
        opened
            .map(|output| self.use_output(output))
            .map_err(|error| {
                let destination = &self.shared.destination;
                let text = format!(
                    "log {destination}: cannot reopen the file, the old file stays in use: {error}"
                );
                (self.shared.report)(Level::Error, text.clone());
                text
            })
    }

    /// Writes to `output` from now on. The assignment closes the old file.
    fn use_output(&mut self, output: SinkOutput) {
        self.size = output.size();
        self.output = output;
        self.within_line = false;
        self.rotation_failed_at = 0;
    }

    fn rotation(&self) -> Option<Rotation> {
        let rotation = self.shared.rotation.lock();
        *rotation.unwrap_or_else(PoisonError::into_inner)
    }

    /// Rotates the file if `more` bytes would make the file too large.
    fn rotate_before(&mut self, more: u64) {
        let (Some(rotation), Some(size)) = (self.rotation(), self.size) else {
            return;
        };
        let counted = size.saturating_sub(self.rotation_failed_at);
        if counted == 0 || counted.saturating_add(more) <= rotation.bytes_max {
            return;
        }
        if let Err(error) = self.rotate(rotation) {
            self.rotation_failed_at = size;
            let destination = &self.shared.destination;
            let text = format!(
                "log {destination}: cannot rotate the file, lines go on in the old file: {error}; the server needs \
                 write access to the folder"
            );
            (self.shared.report)(Level::Error, text);
        }
    }

    fn rotate(&mut self, rotation: Rotation) -> io::Result<()> {
        let (SinkOutput::File(file), LogDestination::File(path)) =
            (&self.output, &self.shared.named)
        else {
            return Ok(());
        };
        let stat = fstat(file)?;
        let folder = LogFolder::of(path)?;
        if !folder.leads_to(&stat) {
            // Another program has renamed or removed the file.
            self.use_output(SinkOutput::open(&self.shared.named)?);
            return Ok(());
        }
        let shifted = folder.shift(rotation.keep);
        if let Some(compression) = &mut self.compression {
            let follows = |free: &u32| compression.follow(*free, rotation.keep);
            if !shifted.as_ref().is_ok_and(follows) {
                compression.abandon();
                self.compression = None;
            }
        }
        shifted?;
        match SinkOutput::open(&self.shared.named) {
            Ok(output) => {
                if let SinkOutput::File(file) = &output {
                    copy_owner(file, &stat);
                }
                self.use_output(output);
            }
            Err(error) => {
                folder.take_back()?;
                return Err(error);
            }
        }
        self.begin_compression();
        Ok(())
    }

    /// Begins to compress an earlier file, unless a compression is under way.
    fn begin_compression(&mut self) {
        let LogDestination::File(path) = &self.shared.named else {
            return;
        };
        let Some(rotation) = self.rotation().filter(|it| it.is_compressed) else {
            return;
        };
        if self.compression.is_none() && self.size.is_some() {
            let folder = LogFolder::of(path);
            match folder.and_then(|folder| LogCompression::begin(folder, rotation.keep)) {
                Ok(compression) => self.compression = compression,
                Err(error) => self.report_compression(&error),
            }
        }
    }

    /// Takes a step of the compression under way, and goes on with the next file after the last step.
    fn compress(&mut self) {
        let Some(compression) = &mut self.compression else {
            return;
        };
        match compression.step(&mut self.part) {
            Ok(false) => {}
            Ok(true) => {
                self.compression = None;
                self.begin_compression();
            }
            Err(error) => {
                compression.abandon();
                self.compression = None;
                self.report_compression(&error);
            }
        }
    }

    fn report_compression(&self, error: &io::Error) {
        let destination = &self.shared.destination;
        let text = format!("log {destination}: an earlier file can't be compressed: {error}");
        (self.shared.report)(Level::Warn, text);
    }
}

enum SinkOutput {
    Stdout,
    Stderr,
    File(File),
}

impl SinkOutput {
    fn open(destination: &LogDestination) -> io::Result<SinkOutput> {
        match destination {
            LogDestination::Off => Err(io::ErrorKind::Unsupported.into()),
            LogDestination::Stdout => Ok(SinkOutput::Stdout),
            LogDestination::Stderr => Ok(SinkOutput::Stderr),
            LogDestination::File(path) => open_file(path).map(SinkOutput::File),
        }
    }
}

impl SinkOutput {
    /// Returns the bytes of a regular file; `None` for any other destination.
    fn size(&self) -> Option<u64> {
        let SinkOutput::File(file) = self else {
            return None;
        };
        let stat = fstat(file).ok()?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_regular.then(|| u64::try_from(stat.st_size).unwrap_or(0))
    }
}

/// Opens a log file for appending. A server that stays root follows a path only to places chosen by root or
/// by the owner of the log's folder. Another user could otherwise make root write into any file.
fn open_file(path: &Path) -> io::Result<File> {
    // Logs contain client addresses, so other users have no access.
    const MODE: u32 = 0o640;
    // Without the flag, opening a pipe without a reader would block.
    const WITHOUT_WAITING: OFlags = OFlags::NONBLOCK;
    if sys::is_root() {
        let way = TrustedPath::resolve(path, LastLink::Follow, MissingFolder::Fail)?;
        if way.must_be_controlled_by(0).is_err() || way.lies_in_shared_folder()? {
            way.must_stay_with_its_folder()?.map_err(io::Error::other)?;
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | WITHOUT_WAITING;
            let file = File::from(way.open(flags, Mode::from_raw_mode(MODE))?);
            return if way.may_be_planted(&fstat(&file)?)? {
                Err(io::Error::other(
                    "the file is a hard link, and the folder's owner may have linked a file of root",
                ))
            } else {
                Ok(file)
            };
        }
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(WITHOUT_WAITING.bits() as i32)
        .open(path)
}

impl AsFd for SinkOutput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            // The standard library's handles have a buffer of their own and are therefore avoided.
            SinkOutput::Stdout => rustix::stdio::stdout(),
            SinkOutput::Stderr => rustix::stdio::stderr(),
            SinkOutput::File(file) => file.as_fd(),
        }
    }
}

/// Writes all bytes and waits as long as necessary. An error contains the number of bytes written before
/// the failure.
fn write_all(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), (usize, Errno)> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::write(fd, &bytes[written..]) {
            Ok(0) => return Err((written, Errno::NOSPC)),
            Ok(some) => written += some,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut ready = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                match poll(&mut ready, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err((written, errno)),
                }
            }
            Err(errno) => return Err((written, errno)),
        }
    }
    Ok(())
}

fn lines_in(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Stack size of the writer thread. A build without optimisation makes the tables of the compression, 300 KiB, on the
/// stack.
const WRITER_STACK_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
