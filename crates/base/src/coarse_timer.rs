//! Coarse timers of a worker, for deadlines that rarely pass.
//!
//! A timer of the runtime costs each request several hundred instructions for its place in a sorted wheel.
//! A coarse timer is a row in a table of the thread. A task looks through the table every 250 ms while the
//! table has rows. So a timer fires up to 250 ms after its deadline.

use crate::limits::COARSE_TIMER_MILLISECONDS;
use crate::task::spawn_local;
use std::cell::RefCell;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// Timer of a task on the current thread. Dropping the value removes the timer.
pub struct CoarseTimer {
    row: usize,
    deadline: Instant,
    /// Timers stay on their thread.
    _thread: std::marker::PhantomData<*const ()>,
}

#[derive(Default)]
struct TimerTable {
    rows: Vec<Option<TimerRow>>,
    free: Vec<usize>,
    /// True while the task of the thread looks through the table.
    is_watched: bool,
}

struct TimerRow {
    deadline: Instant,
    waker: Waker,
}

thread_local! {
    static TABLE: RefCell<TimerTable> = RefCell::default();
}

impl CoarseTimer {
    /// Creates a timer that wakes `waker` after `deadline`.
    pub fn new(deadline: Instant, waker: &Waker) -> CoarseTimer {
        let waker = waker.clone();
        let row = TABLE.with_borrow_mut(|table| {
            let row = table.insert(TimerRow { deadline, waker });
            if !std::mem::replace(&mut table.is_watched, true) {
                spawn_local(watch());
            }
            row
        });
        CoarseTimer {
            row,
            deadline,
            _thread: std::marker::PhantomData,
        }
    }

    /// Ready once `timeout` has passed since the first call with an empty `timer`. The call creates the timer.
    pub fn poll_timeout(
        timer: &mut Option<CoarseTimer>,
        timeout: Duration,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let has_passed = match timer {
            Some(timer) => timer.has_passed(),
            None => {
                *timer = Some(CoarseTimer::new(Instant::now() + timeout, cx.waker()));
                timeout.is_zero()
            }
        };
        if has_passed {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Returns true if the deadline has passed.
    pub fn has_passed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sets another deadline, and the waker of the task that now waits.
    pub fn set(&mut self, deadline: Instant, waker: &Waker) {
        self.deadline = deadline;
        TABLE.with_borrow_mut(|table| {
            let Some(Some(row)) = table.rows.get_mut(self.row) else {
                return;
            };
            row.deadline = deadline;
            row.waker.clone_from(waker);
        });
    }
}

impl Drop for CoarseTimer {
    fn drop(&mut self) {
        // The table may be gone at the end of the thread.
        let _ = TABLE.try_with(|table| table.borrow_mut().remove(self.row));
    }
}

impl TimerTable {
    fn insert(&mut self, row: TimerRow) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.rows[at] = Some(row);
                at
            }
            None => {
                self.rows.push(Some(row));
                self.rows.len() - 1
            }
        }
    }

    fn remove(&mut self, at: usize) {
        self.rows[at] = None;
        self.free.push(at);
        if self.free.len() == self.rows.len() && self.rows.len() > ROWS_KEPT_MAX {
            self.rows = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Returns the wakers of the timers whose deadline has passed.
    fn due(&self, now: Instant) -> Vec<Waker> {
        let due = self.rows.iter().flatten().filter(|row| row.deadline <= now);
        due.map(|row| row.waker.clone()).collect()
    }
}

/// Rows that an empty table keeps for the next timers.
const ROWS_KEPT_MAX: usize = 64;

/// Wakes the tasks whose timers have passed, until the table is empty.
async fn watch() {
    loop {
        tokio::time::sleep(Duration::from_millis(COARSE_TIMER_MILLISECONDS)).await;
        let due = TABLE.with_borrow_mut(|table| {
            table.is_watched = table.free.len() < table.rows.len();
            if table.is_watched {
                Some(table.due(Instant::now()))
            } else {
                None
            }
        });
        match due {
            Some(due) => due.into_iter().for_each(Waker::wake),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    /// Waits until the timer of `after` has passed and returns the time that the wait took.
    async fn waited(after: Duration) -> Duration {
        let start = Instant::now();
        let mut timer = None;
        poll_fn(|cx| {
            let timer = timer.get_or_insert_with(|| CoarseTimer::new(start + after, cx.waker()));
            if timer.has_passed() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        start.elapsed()
    }

    fn on_paused_clock(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime.expect("a runtime"), test);
    }

    #[test]
    fn timers_fire_after_their_deadlines_and_within_one_interval() {
        on_paused_clock(async {
            let interval = Duration::from_millis(COARSE_TIMER_MILLISECONDS);
            for millis in [0, 1, 250, 10_000] {
                let after = Duration::from_millis(millis);
                let took = waited(after).await;
                assert!(took >= after && took <= after + 2 * interval, "{took:?}");
            }
        });
    }

    #[test]
    fn a_dropped_timer_leaves_its_row_to_the_next() {
        on_paused_clock(async {
            let deadline = Instant::now() + Duration::from_secs(1);
            let first = CoarseTimer::new(deadline, Waker::noop());
            let second = CoarseTimer::new(deadline, Waker::noop());
            let row = first.row;
            drop(first);
            let third = CoarseTimer::new(deadline, Waker::noop());
            assert_eq!((third.row, second.row), (row, 1 - row));
        });
    }
}
