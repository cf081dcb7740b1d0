//! Where log lines go: one queue and one writing thread for each destination, shared by all workers.
//!
//! Handing over a buffer takes a lock for a moment and never waits for the destination. If that is
//! slower than the lines come, or fails (a full disk, a closed pipe), lines are dropped and counted,
//! and the error log says so when it begins and how many they were when it is over.

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
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;

use crate::base::log::access_log::{AccessLogFormat, AccessLogLine};
use crate::base::sys;
use crate::base::trusted_path::{LastLink, MissingFolder, TrustedPath};
use crate::limits::{LOG_BATCH_BYTES, LOG_QUEUE_BYTES, LOG_SPARE_BUFFERS_MAX};

/// Where lines go, as the operator says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogDestination {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of this file (or a pipe of this name, if somebody reads it).
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

/// Tells the operator what happened to a destination; called from any thread, must not block.
pub type ReportFn = Arc<dyn Fn(Level, String) + Send + Sync>;

/// All destinations in use: the same one asked for twice is opened once.
pub struct Sinks {
    report: ReportFn,
    queue_bytes_max: usize,
    known: Mutex<Vec<OpenSink>>,
    /// Lines lost by destinations that are not in use any more.
    lost_before: AtomicU64,
}

struct OpenSink {
    shared: Arc<SinkShared>,
    handle: Weak<SinkHandle>,
}

impl Default for Sinks {
    /// Sinks that report to the error log.
    fn default() -> Sinks {
        Sinks::new(Arc::new(|level, text| log::log!(level, "{text}")))
    }
}

impl Sinks {
    /// Sinks that report their failures by `report`.
    pub fn new(report: ReportFn) -> Sinks {
        Sinks::with_queue(report, LOG_QUEUE_BYTES)
    }

    fn with_queue(report: ReportFn, queue_bytes_max: usize) -> Sinks {
        Sinks {
            report,
            queue_bytes_max,
            known: Mutex::default(),
            lost_before: AtomicU64::new(0),
        }
    }

    /// The sink of `destination`. A file is opened here and now, by whom we are now, and made if it
    /// isn't there; the thread begins with the first line (so privileges can be dropped between).
    pub fn open(&self, destination: &LogDestination) -> io::Result<Sink> {
        if *destination == LogDestination::Off {
            return Ok(Sink(None));
        }
        let named = destination;
        let destination = one_name(named)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|known| {
            let stays = known.handle.strong_count() > 0 || !known.shared.is_done();
            if !stays {
                let lost = known.shared.lost.load(Relaxed);
                self.lost_before.fetch_add(lost, Relaxed);
            }
            stays
        });
        let same = known
            .iter()
            .filter(|known| known.shared.destination == destination)
            .find_map(|known| known.handle.upgrade());
        if let Some(handle) = same {
            return Ok(Sink(Some(handle)));
        }
        let output = SinkOutput::open(named)?;
        let shared = Arc::new(SinkShared {
            destination,
            named: named.clone(),
            queue_bytes_max: self.queue_bytes_max,
            report: Arc::clone(&self.report),
            state: Mutex::new(SinkState {
                output: Some(output),
                ..SinkState::default()
            }),
            work: Condvar::new(),
            done: Condvar::new(),
            lost: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        });
        let handle = Arc::new(SinkHandle(Arc::clone(&shared)));
        known.push(OpenSink {
            shared,
            handle: Arc::downgrade(&handle),
        });
        Ok(Sink(Some(handle)))
    }

    /// Opens all files anew (they were renamed by who rotates logs): what was submitted before goes
    /// to the old ones, what comes after to the new. If a new one can't be opened, the old one is
    /// kept, and that is reported.
    pub fn reopen(&self) {
        for shared in self.all() {
            if let LogDestination::File(_) = shared.destination {
                shared.queue(SinkJob::Reopen);
            }
        }
    }

    /// Waits until all lines are written or dropped, at most until `deadline`; returns whether they
    /// are.
    pub fn flush(&self, deadline: Instant) -> bool {
        let mut done = true;
        // Each is asked, even when time is up: a stuck one says nothing about the others.
        for shared in self.all() {
            done &= shared.flush(deadline);
        }
        done
    }

    /// Lines lost so far, of all destinations.
    pub fn lines_lost(&self) -> u64 {
        // Counted under the lock, lest a destination that goes counts twice or not at all.
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = known.iter().map(|known| known.shared.lost.load(Relaxed));
        lost.sum::<u64>() + self.lost_before.load(Relaxed)
    }

    fn all(&self) -> Vec<Arc<SinkShared>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|known| known.shared.clone()).collect()
    }
}

/// A file by the real path of its folder, so that one file under two names is opened once.
fn one_name(destination: &LogDestination) -> io::Result<LogDestination> {
    let LogDestination::File(path) = destination else {
        return Ok(destination.clone());
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    Ok(LogDestination::File(folder.canonicalize()?.join(name)))
}

/// One destination. Clones write to the same; when the last is dropped, what was submitted is
/// still written, then the destination is closed.
#[derive(Clone)]
pub struct Sink(Option<Arc<SinkHandle>>);

struct SinkHandle(Arc<SinkShared>);

impl Sink {
    /// A sink that throws everything away.
    pub fn off() -> Sink {
        Sink(None)
    }

    /// Whether lines needn't be formatted at all.
    pub fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Whether both write to one destination.
    pub fn is_same(&self, other: &Sink) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }

    /// Takes the whole lines in `full` and leaves an empty buffer, most often one that was used
    /// before. Never waits for the destination: if too much waits already, the lines are dropped.
    pub fn submit(&self, full: &mut Vec<u8>) {
        match &self.0 {
            Some(handle) => handle.0.submit(full),
            None => full.clear(),
        }
    }

    /// Whether the last write failed.
    pub fn is_failing(&self) -> bool {
        let failing = |handle: &Arc<SinkHandle>| handle.0.failing.load(Relaxed);
        self.0.as_ref().is_some_and(failing)
    }

    /// Lines lost so far.
    pub fn lines_lost(&self) -> u64 {
        let lost = |handle: &Arc<SinkHandle>| handle.0.lost.load(Relaxed);
        self.0.as_ref().map_or(0, lost)
    }

    /// Waits until all lines are written or dropped, at most until `deadline`; returns whether they
    /// are.
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

/// A worker's lines on their way to a sink: handed over when there are enough of them, and when the
/// worker says so (it does so from time to time, so that lines of a quiet server are seen soon).
pub struct LogBatch {
    sink: Sink,
    format: AccessLogFormat,
    lines: Vec<u8>,
}

impl LogBatch {
    /// Lines for `sink`, in `format`.
    pub fn new(sink: Sink, format: AccessLogFormat) -> LogBatch {
        LogBatch {
            sink,
            format,
            lines: Vec::new(),
        }
    }

    /// Whether lines needn't be gathered at all.
    pub fn is_off(&self) -> bool {
        self.sink.is_off()
    }

    /// Adds a line; `log_time` as in [`AccessLogLine::append`].
    pub fn push(&mut self, line: &AccessLogLine<'_>, log_time: &[u8]) {
        if self.is_off() {
            return;
        }
        line.append(self.format, log_time, &mut self.lines);
        if self.lines.len() >= LOG_BATCH_BYTES {
            self.flush();
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Hands over what there is.
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
    /// As the operator named it, with the links that it is led by.
    named: LogDestination,
    queue_bytes_max: usize,
    report: ReportFn,
    state: Mutex<SinkState>,
    /// Something for the writer to do.
    work: Condvar,
    /// The writer did something.
    done: Condvar,
    lost: AtomicU64,
    failing: AtomicBool,
}

#[derive(Default)]
struct SinkState {
    jobs: VecDeque<SinkJob>,
    /// Bytes in `jobs` and in the writer's hands.
    bytes: usize,
    spares: Vec<Vec<u8>>,
    /// Lines dropped that nobody was told of yet.
    unsaid: u64,
    /// The queue is full, and that was said.
    overflowing: bool,
    /// What to write to, until the writer takes it.
    output: Option<SinkOutput>,
    /// The writer is at a job.
    busy: bool,
    /// The writer waits for `work`.
    sleeping: bool,
    closed: bool,
}

enum SinkJob {
    Write(Vec<u8>),
    Reopen,
}

impl SinkShared {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        // Nothing that could panic half-way runs under the lock.
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
            state.unsaid += lines;
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
        // The closure is lost with what it holds if the thread can't begin, hence the way around.
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
            // Tried again with the next buffer; meanwhile the queue fills up.
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

/// The thread of one destination.
struct SinkWriter<'a> {
    shared: &'a SinkShared,
    output: SinkOutput,
    /// A write broke off within a line: the next begins a new one.
    within_line: bool,
}

impl<'a> SinkWriter<'a> {
    fn new(shared: &'a SinkShared, output: SinkOutput) -> SinkWriter<'a> {
        SinkWriter {
            shared,
            output,
            within_line: false,
        }
    }

    fn run(mut self) {
        while let Some(job) = self.next_job() {
            let spare = match job {
                SinkJob::Write(lines) => {
                    self.write(&lines);
                    Some(lines)
                }
                SinkJob::Reopen => {
                    self.reopen();
                    None
                }
            };
            self.finish(spare);
        }
    }

    fn next_job(&self) -> Option<SinkJob> {
        let mut state = self.shared.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.busy = true;
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.sleeping = true;
            let woken = self.shared.work.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.sleeping = false;
        }
    }

    /// Gives the buffer back, and owns up to losses once the destination has caught up.
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
        let lost = match works_again {
            true => std::mem::take(&mut state.unsaid),
            false => 0,
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
        if let Some(&last) = lines[..written].last() {
            self.within_line = last != b'\n';
        }
        let was_failing = self.shared.failing.swap(failure.is_some(), Relaxed);
        let Some(errno) = failure else { return };
        let lost = lines_in(&lines[written..]);
        self.shared.lost.fetch_add(lost, Relaxed);
        self.shared.lock().unsaid += lost;
        if !was_failing {
            let reason = io::Error::from(errno);
            let destination = &self.shared.destination;
            let text = format!("log {destination}: {reason}; lines are dropped until it works");
            (self.shared.report)(Level::Error, text);
        }
    }

    fn reopen(&mut self) {
        let destination = &self.shared.destination;
        match SinkOutput::open(&self.shared.named) {
            Ok(output) => {
                // Assigning closes the old one, now that there is a new.
                self.output = output;
                self.within_line = false;
            }
            Err(error) => {
                let text =
                    format!("log {destination}: can't be reopened, the old goes on: {error}");
                (self.shared.report)(Level::Error, text);
            }
        }
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

/// Opens a log to append to it. A server that stays root follows a path only to where root, or the owner
/// of the log's folder, could have led it: that owner could otherwise have root write into any file.
fn open_file(path: &Path) -> io::Result<File> {
    // Logs hold addresses: not everybody's business.
    const MODE: u32 = 0o640;
    // Opening a pipe without a reader would wait for a reader.
    const WITHOUT_WAITING: OFlags = OFlags::NONBLOCK;
    if sys::is_root() {
        let way = TrustedPath::resolve(path, LastLink::Follow, MissingFolder::Fail)?;
        if way.must_be_controlled_by(0).is_err() || way.lies_in_shared_folder()? {
            way.must_stay_with_its_folder()?.map_err(io::Error::other)?;
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | WITHOUT_WAITING;
            let file = File::from(way.open(flags, Mode::from_raw_mode(MODE))?);
            return match way.may_be_planted(&fstat(&file)?)? {
                true => Err(io::Error::other(
                    "it is a hard link that the folder's owner may have made to a file of root's",
                )),
                false => Ok(file),
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
            // Not the standard library's handles: those keep a buffer of their own.
            SinkOutput::Stdout => rustix::stdio::stdout(),
            SinkOutput::Stderr => rustix::stdio::stderr(),
            SinkOutput::File(file) => file.as_fd(),
        }
    }
}

/// Writes everything, waiting as long as it takes; or says how much was written before it failed.
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

/// The writer only formats a line when something fails.
const WRITER_STACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests;
