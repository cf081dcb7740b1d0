//! End of a blocking job before its result: at a deadline, or because its result is not wanted any more.
//!
//! A job that reads a whole tree or a whole store asks at each entry whether the job has to end. The thread knows the end,
//! so the functions between the pool and the loop need no parameter. The caller of the job drops the result of a job that
//! was over, so a loop that ends early may return anything.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// End of one job.
#[derive(Clone, Debug)]
pub struct JobEnd {
    deadline: Instant,
    /// Counts the calls to give up the jobs under way.
    given_up: Arc<AtomicU64>,
    /// Count at the beginning of the job.
    begun_at: u64,
}

/// Reason for a job without a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobOver {
    /// The deadline has passed.
    TooLong,
    /// The caller has no use for the result any more.
    GivenUp,
}

impl fmt::Display for JobOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobOver::TooLong => "the reading took too long",
            JobOver::GivenUp => "the reading was given up for an urgent command",
        })
    }
}

impl std::error::Error for JobOver {}

thread_local! {
    /// End of the job of the thread.
    static CURRENT: RefCell<Option<JobEnd>> = const { RefCell::new(None) };
    /// Calls of [`is_over`] until the next look at the clock.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Calls of [`is_over`] between two looks at the clock. A look costs as much as the read of a short name.
const CALLS_MAX: u32 = 64;

/// Returns true if the job of the thread has to end. A thread without a job is never over.
pub fn is_over() -> bool {
    CURRENT.with_borrow(|current| {
        let Some(end) = current else { return false };
        let calls = CALLS.get();
        CALLS.set((calls + 1) % CALLS_MAX);
        end.is_given_up() || (calls == 0 && end.is_late())
    })
}

impl JobEnd {
    /// Returns the end of a job that begins now. A change of `given_up` ends the job.
    pub fn new(deadline: Instant, given_up: &Arc<AtomicU64>) -> JobEnd {
        JobEnd {
            deadline,
            given_up: Arc::clone(given_up),
            begun_at: given_up.load(Ordering::Relaxed),
        }
    }

    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) != self.begun_at
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn over(&self) -> Option<JobOver> {
        match (self.is_given_up(), self.is_late()) {
            (true, _) => Some(JobOver::GivenUp),
            (false, true) => Some(JobOver::TooLong),
            (false, false) => None,
        }
    }

    /// Runs a job on the thread. A job that was over has no result.
    pub fn run<T>(self, job: impl FnOnce() -> T) -> Result<T, JobOver> {
        /// Removes the end from the thread, also after a panic of the job.
        struct Removal;
        impl Drop for Removal {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        CALLS.set(0);
        CURRENT.set(Some(self.clone()));
        let removal = Removal;
        let result = job();
        drop(removal);
        self.over().map_or(Ok(result), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[test]
    fn a_job_ends_at_its_deadline_or_when_it_is_given_up() {
        let given_up = Arc::new(AtomicU64::new(7));
        let end = JobEnd::new(later(), &given_up);
        assert_eq!(end.run(is_over), Ok(false));
        let late = JobEnd::new(Instant::now(), &given_up);
        assert_eq!(late.run(|| assert!(is_over())), Err(JobOver::TooLong));
        let end = JobEnd::new(later(), &given_up);
        let job = || {
            let before = is_over();
            given_up.fetch_add(1, Ordering::Relaxed);
            assert_eq!((before, is_over()), (false, true));
        };
        assert_eq!(end.run(job), Err(JobOver::GivenUp));
        // A job that begins later is not concerned.
        assert_eq!(JobEnd::new(later(), &given_up).run(is_over), Ok(false));
        assert!(!is_over(), "a thread without a job");
    }

    #[test]
    fn a_panic_leaves_no_end_on_the_thread() {
        let given_up = Arc::default();
        let end = JobEnd::new(Instant::now(), &given_up);
        let job = std::panic::AssertUnwindSafe(|| end.run(|| panic!("on purpose")));
        assert!(std::panic::catch_unwind(job).is_err());
        assert!(!is_over());
    }
}
