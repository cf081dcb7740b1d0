//! Small thread pool for blocking work: file access, password hashes, scans, compression.
//!
//! A thread starts when work arrives and ends after 10 idle seconds, so an idle server has no pool threads.
//! The queue is bounded: a full queue gives an error ([`ThreadPoolError::Busy`]) instead of a wait. A panic
//! of a job is an error for the caller of the job and has no other effect.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::limits::POOL_IDLE_SECONDS;

/// Reason for a job without a result.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ThreadPoolError {
    /// The queue is full, or no thread could be started. The job was not started.
    Busy,
    /// The job panicked, or the pool was dropped before the job's start.
    Failed,
}

impl fmt::Display for ThreadPoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThreadPoolError::Busy => "the job queue is full",
            ThreadPoolError::Failed => "the job failed",
        })
    }
}

impl std::error::Error for ThreadPoolError {}

type PoolJob = Box<dyn FnOnce() + Send>;

/// Thread pool for blocking jobs. A dropped pool discards queued jobs, and its threads end after the
/// current jobs.
pub struct ThreadPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    name: &'static str,
    threads_max: usize,
    queue_max: usize,
    idle: Duration,
    /// Function called first on each thread.
    on_start: fn(),
    state: Mutex<PoolState>,
    work: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<PoolJob>,
    threads: usize,
    /// Threads that wait for work.
    waiting: usize,
    closed: bool,
}

impl ThreadPool {
    /// Makes a pool of threads with the name `name` (the system shows at most 15 bytes). At most
    /// `queue_max` jobs wait.
    pub fn new(name: &'static str, threads_max: usize, queue_max: usize) -> ThreadPool {
        let idle = Duration::from_secs(POOL_IDLE_SECONDS);
        ThreadPool::with(name, threads_max, queue_max, idle, || {})
    }

    /// Makes a pool for background work that delays no request. The threads have the lowest priority.
    pub fn background(name: &'static str, threads_max: usize, queue_max: usize) -> ThreadPool {
        let idle = Duration::from_secs(POOL_IDLE_SECONDS);
        let on_start = crate::sys::lowest_priority_thread;
        ThreadPool::with(name, threads_max, queue_max, idle, on_start)
    }

    /// Makes a pool for work that requests wait for, but that must not slow down other requests. The
    /// threads have a low priority, and still progress on a busy processor.
    pub fn low_priority(name: &'static str, threads_max: usize, queue_max: usize) -> ThreadPool {
        let idle = Duration::from_secs(POOL_IDLE_SECONDS);
        let on_start = crate::sys::low_priority_thread;
        ThreadPool::with(name, threads_max, queue_max, idle, on_start)
    }

    fn with(
        name: &'static str,
        threads_max: usize,
        queue_max: usize,
        idle: Duration,
        on_start: fn(),
    ) -> ThreadPool {
        let shared = PoolShared {
            name,
            threads_max: threads_max.max(1),
            queue_max,
            idle,
            on_start,
            state: Mutex::default(),
            work: Condvar::new(),
        };
        ThreadPool {
            shared: Arc::new(shared),
        }
    }

    /// Runs `job` on the pool and returns the job's result. The job is queued at once, before the future is
    /// polled. A job is skipped if the future is dropped before the job's start.
    pub fn run<T, F>(
        &self,
        job: F,
    ) -> impl Future<Output = Result<T, ThreadPoolError>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let queued = self.spawn(move || {
            if !sender.is_closed() {
                // The caller may have dropped the future meanwhile. The result is then discarded.
                let _ = sender.send(job());
            }
        });
        async move {
            queued?;
            receiver.await.map_err(|_| ThreadPoolError::Failed)
        }
    }

    /// Runs `job` on the pool without a result.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) -> Result<(), ThreadPoolError> {
        self.enqueue(Box::new(job))
    }

    #[inline(never)]
    fn enqueue(&self, job: PoolJob) -> Result<(), ThreadPoolError> {
        let mut state = self.shared.lock();
        if state.queue.len() >= self.shared.queue_max {
            return Err(ThreadPoolError::Busy);
        }
        let lacks_thread =
            state.waiting <= state.queue.len() && state.threads < self.shared.threads_max;
        if lacks_thread && self.shared.start_thread() {
            state.threads += 1;
        }
        if state.threads == 0 {
            return Err(ThreadPoolError::Busy);
        }
        state.queue.push_back(job);
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Returns the number of queued jobs.
    pub fn queued(&self) -> usize {
        self.shared.lock().queue.len()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let dropped = std::mem::take(&mut state.queue);
        drop(state);
        // A dropped job may run destructors, so the jobs are dropped outside of the lock.
        drop(dropped);
        self.shared.work.notify_all();
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No job runs under the lock, so the state behind a poisoned lock is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(self: &Arc<PoolShared>) -> bool {
        let shared = Arc::clone(self);
        thread::Builder::new()
            .name(self.name.to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || shared.work())
            .is_ok()
    }

    fn work(&self) {
        (self.on_start)();
        while let Some(job) = self.next_job() {
            // The dropped channel of the job reports the failure to the caller, and the panic hook has
            // logged the panic.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Returns the next job, or `None` after the idle time or when the pool closes. After `None` the thread
    /// no longer counts.
    fn next_job(&self) -> Option<PoolJob> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            let mut timed_out = state.closed;
            if !timed_out {
                state.waiting += 1;
                let woken = self.work.wait_timeout(state, self.idle);
                let (back, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
                state = back;
                state.waiting -= 1;
                timed_out = timeout.timed_out() && state.queue.is_empty();
            }
            if timed_out || state.closed {
                state.threads -= 1;
                return None;
            }
        }
    }
}

/// Stack size of a pool thread. Hashing, reading and compressing need little stack.
const THREAD_STACK_BYTES: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn wait<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn results_come_back_and_panics_are_errors() {
        let pool = ThreadPool::new("test", 2, 8);
        assert_eq!(wait(pool.run(|| 6 * 7)), Ok(42));
        assert_eq!(
            wait(pool.run(|| panic!("on purpose"))),
            Err::<(), _>(ThreadPoolError::Failed)
        );
        assert_eq!(wait(pool.run(|| "alive")), Ok("alive"));
    }

    #[test]
    fn threads_and_queue_are_bounded() {
        let pool = ThreadPool::new("test", 2, 3);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (begun, begins) = mpsc::channel();
        let mut running = Vec::new();
        for _ in 0..2 {
            let (gate, begun) = (Arc::clone(&gate), begun.clone());
            running.push(pool.run(move || {
                begun.send(()).unwrap();
                gate.lock().unwrap().recv().unwrap();
            }));
        }
        begins.recv().unwrap();
        begins.recv().unwrap();
        // Both threads are busy: the next three jobs wait, the fourth is refused.
        let waiting: Vec<_> = (0..3).map(|n| pool.run(move || n)).collect();
        assert_eq!(pool.queued(), 3);
        assert_eq!(wait(pool.run(|| 3)), Err(ThreadPoolError::Busy));
        assert_eq!(pool.spawn(|| ()), Err(ThreadPoolError::Busy));
        assert_eq!(pool.shared.lock().threads, 2);
        release.send(()).unwrap();
        release.send(()).unwrap();
        for future in running {
            assert_eq!(wait(future), Ok(()));
        }
        for (n, future) in waiting.into_iter().enumerate() {
            assert_eq!(wait(future), Ok(n));
        }
    }

    #[test]
    fn a_dropped_future_cancels_its_queued_job() {
        let pool = ThreadPool::new("test", 1, 8);
        let (release, gate) = mpsc::channel::<()>();
        let first = pool.run(move || gate.recv().unwrap());
        let (ran, runs) = mpsc::channel::<()>();
        drop(pool.run(move || ran.send(()).unwrap()));
        release.send(()).unwrap();
        assert_eq!(wait(first), Ok(()));
        assert_eq!(wait(pool.run(|| ())), Ok(()));
        assert!(runs.recv().is_err(), "the sender was dropped unused");
    }

    #[test]
    fn idle_threads_end_and_new_threads_start() {
        let pool = ThreadPool::with("test", 1, 8, Duration::ZERO, || {});
        for round in 0..3 {
            assert_eq!(wait(pool.run(move || round)), Ok(round));
            while pool.shared.lock().threads > 0 {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn dropping_the_pool_drops_queued_jobs() {
        let pool = ThreadPool::background("test", 1, 8);
        let (release, gate) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let first = pool.run(move || {
            begun.send(()).unwrap();
            gate.recv().unwrap()
        });
        begins.recv().unwrap();
        let second = pool.run(|| ());
        drop(pool);
        assert_eq!(wait(second), Err(ThreadPoolError::Failed));
        release.send(()).unwrap();
        assert_eq!(wait(first), Ok(()));
    }
}
