//! Blocking reads of sites and stores, and builds of Worlds, away from the control thread.
//!
//! A read has a deadline, and an urgent command of the operator ends a read: the end and the reload of the server wait
//! neither for a disk nor for the files of a publisher.

use crate::config::OperatorError;
use crate::control::limits::{SCAN_SECONDS_MAX, SCAN_THREADS};
use base::job_end::{JobEnd, JobOver};
use base::thread_pool::{ThreadPool, ThreadPoolError};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};

/// Maximum number of reads in the queue of the pool threads.
pub(super) const POOL_QUEUE: usize = 10_000;

/// Threads for reads of sites and stores, apart from the reads of requests.
pub(super) struct Scans {
    pool: ThreadPool,
    urgency: Urgency,
}

/// Word to the reads under way that a command of the operator waits. A clone speaks to the same reads.
#[derive(Clone, Default)]
pub(super) struct Urgency(Arc<UrgencyState>);

#[derive(Default)]
struct UrgencyState {
    /// Counts the commands for which reads were given up.
    given_up: Arc<AtomicU64>,
    is_urgent: AtomicBool,
    changed: Notify,
}

/// Reason for a read without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScanError {
    Pool(ThreadPoolError),
    Over(JobOver),
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScanError::Pool(error) => error.fmt(f),
            ScanError::Over(over) => over.fmt(f),
        }
    }
}

impl ScanError {
    /// Returns true if the read was given up, so that the read is to be repeated and is no failure.
    pub(super) fn is_given_up(self) -> bool {
        self == ScanError::Over(JobOver::GivenUp)
    }
}

impl Urgency {
    /// Ends the reads under way, and refuses new reads until [`Urgency::end`].
    pub(super) fn begin(&self) {
        self.0.given_up.fetch_add(1, Ordering::Relaxed);
        self.0.is_urgent.store(true, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }

    /// Permits reads again.
    pub(super) fn end(&self) {
        self.0.is_urgent.store(false, Ordering::Relaxed);
    }

    fn is_urgent(&self) -> bool {
        self.0.is_urgent.load(Ordering::Relaxed)
    }
}

impl Scans {
    pub(super) fn new() -> Scans {
        Scans {
            pool: ThreadPool::new("anthill-scan", SCAN_THREADS, POOL_QUEUE),
            urgency: Urgency::default(),
        }
    }

    /// Returns the word to the reads.
    pub(super) fn urgency(&self) -> Urgency {
        self.urgency.clone()
    }

    /// Runs a read. The caller gets an error at the deadline and for an urgent command, even if the disk does not answer
    /// and the read goes on.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ScanError> {
        if self.urgency.is_urgent() {
            return Err(ScanError::Over(JobOver::GivenUp));
        }
        let changed = self.urgency.0.changed.notified();
        let longest = Duration::from_secs(SCAN_SECONDS_MAX);
        let end = JobEnd::new(Instant::now() + longest, &self.urgency.0.given_up);
        let read = self.pool.run(move || end.run(job));
        tokio::select! {
            biased;
            read = read => match read {
                Ok(read) => read.map_err(ScanError::Over),
                Err(error) => Err(ScanError::Pool(error)),
            },
            () = changed => Err(ScanError::Over(JobOver::GivenUp)),
            () = tokio::time::sleep(longest) => Err(ScanError::Over(JobOver::TooLong)),
        }
    }

    /// Runs a short read without a deadline, also during an urgent command.
    pub(super) fn finish<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ThreadPoolError>> {
        self.pool.run(job)
    }
}

/// Runs a build on a thread of its own with a large stack. The calling thread answers meanwhile.
pub(super) async fn build_on_thread<T: Send + 'static>(
    build: impl FnOnce() -> Result<T, OperatorError> + Send + 'static,
) -> Result<T, OperatorError> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new()
        .name("anthill-build".to_owned())
        .stack_size(BUILD_STACK_BYTES)
        .spawn(move || {
            // A server that ends drops the receiver of the result.
            let _ = sender.send(build());
        })
        .map_err(|error| {
            OperatorError::failure(format!("no thread for the configuration: {error}"))
        })?;
    let built = receiver.await;
    built.unwrap_or_else(|_| {
        let what = "the configuration could not be read; the log has the reason";
        Err(OperatorError::failure(what))
    })
}

/// Stack of a thread that builds a World, as large as the stack of the main thread. Untouched pages take no memory.
const BUILD_STACK_BYTES: usize = 8 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use base::job_end;
    use std::sync::mpsc;

    fn wait<F: Future>(future: F) -> F::Output {
        wait_on_clock(false, future)
    }

    fn wait_on_clock<F: Future>(is_virtual: bool, future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(is_virtual)
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn an_urgent_command_ends_a_read_and_the_read_notices() {
        let scans = Scans::new();
        let urgency = scans.urgency();
        let (begun, begins) = mpsc::channel();
        let (ended, ends) = mpsc::channel();
        let read = move || {
            begun.send(()).unwrap();
            while !job_end::is_over() {
                thread::yield_now();
            }
            ended.send(()).unwrap();
        };
        let result = wait(async {
            let read = scans.run(read);
            let command = async {
                begins.recv().unwrap();
                urgency.begin();
            };
            // The read is polled first, and therefore runs when the command comes.
            let mut read = std::pin::pin!(read);
            tokio::select! {
                biased;
                result = &mut read => result,
                () = command => read.await,
            }
        });
        assert!(result.unwrap_err().is_given_up());
        ends.recv().unwrap();
        let refused = wait(scans.run(|| 1));
        assert!(
            refused.unwrap_err().is_given_up(),
            "until the command is done"
        );
        assert_eq!(wait(scans.finish(|| 1)), Ok(1));
        urgency.end();
        assert_eq!(wait(scans.run(|| 1)), Ok(1));
    }

    #[test]
    fn a_read_without_an_end_is_left_at_the_deadline() {
        let scans = Scans::new();
        let (release, gate) = mpsc::channel::<()>();
        // The virtual clock passes the deadline as soon as the control thread is idle.
        let result = wait_on_clock(true, scans.run(move || gate.recv()));
        assert_eq!(result, Err(ScanError::Over(JobOver::TooLong)));
        // The thread of the read still waits for the disk, and another thread reads meanwhile.
        assert_eq!(wait(scans.finish(|| 2)), Ok(2));
        drop(release);
    }

    #[test]
    fn a_build_that_panics_is_an_error() {
        assert_eq!(wait(build_on_thread(|| Ok(3))).unwrap(), 3);
        let failed = wait(build_on_thread::<()>(|| panic!("on purpose")));
        assert!(failed.is_err());
    }
}
