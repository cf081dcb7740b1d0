//! Active checks of the members of all balancers, made once for all workers.

use crate::limits::CHECKS_MAX;
use crate::upstream::check::exchange::CheckExchange;
use crate::upstream::plan::{log_change, log_doubt};
use crate::upstream::{Balancer, CheckRun, Member};
use balancer::{CheckFailure, CheckOutcome, NextCheck};
use base::clock::monotonic_ms;
use base::task;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Scheduler of active checks.
pub struct Checker {
    /// Monotonic clock in milliseconds.
    now_ms: fn() -> u64,
    balancers: Mutex<CheckedBalancers>,
    /// Reports an end of a check, and every other change of the time of the next check.
    changed: Notify,
    slots: Arc<Semaphore>,
}

/// Balancers with the turn of the next check.
#[derive(Default)]
struct CheckedBalancers {
    all: Vec<Arc<Balancer>>,
    /// Number of the balancer with the next turn.
    turn: usize,
}

/// Interval of the looks for the end of the first checks.
const FIRST_ROUND_POLL: Duration = Duration::from_millis(20);

impl Default for Checker {
    fn default() -> Checker {
        Checker::with_clock(monotonic_ms)
    }
}

impl Checker {
    fn with_clock(now_ms: fn() -> u64) -> Checker {
        Checker {
            now_ms,
            balancers: Mutex::default(),
            changed: Notify::new(),
            slots: Arc::new(Semaphore::new(CHECKS_MAX)),
        }
    }

    /// Replaces the list of balancers. Checks under way end as usual.
    pub fn follow(&self, balancers: Vec<Arc<Balancer>>) {
        self.lock().all = balancers;
        self.wake();
    }

    /// Looks for due checks again, after a change of a member's checks or state by the operator.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Waits until the checks that are due at the start have ended, while [`Checker::run`] makes them.
    pub async fn first_round(&self) {
        loop {
            tokio::time::sleep(FIRST_ROUND_POLL).await;
            if self.slots.available_permits() == CHECKS_MAX {
                return;
            }
        }
    }

    /// Makes all checks at their times. The future never ends.
    pub async fn run(self: Arc<Self>) {
        loop {
            let sleep = async {
                match self.start_due() {
                    Some(at_ms) => {
                        let wait_ms = at_ms.saturating_sub((self.now_ms)());
                        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Starts due checks, as far as slots are free. Returns the time of the next check; None if the next
    /// check depends on a change.
    fn start_due(self: &Arc<Self>) -> Option<u64> {
        let mut balancers = self.lock();
        let now_ms = (self.now_ms)();
        let count = balancers.all.len();
        let mut next_at_ms: Option<u64> = None;
        // Balancers without a further check in a row.
        let mut idle = 0;
        while idle < count {
            let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
            let balancer = Arc::clone(&balancers.all[balancers.turn % count]);
            balancers.turn = (balancers.turn + 1) % count;
            idle += 1;
            match balancer.next_check(now_ms) {
                NextCheck::Run(run) => {
                    let slot = CheckSlot {
                        checker: Arc::clone(self),
                        _permit: slot,
                    };
                    task::spawn(check(balancer, run, slot));
                    idle = 0;
                    next_at_ms = None;
                }
                NextCheck::At(at_ms) => {
                    next_at_ms = Some(next_at_ms.map_or(at_ms, |next| next.min(at_ms)));
                }
                NextCheck::None => {}
            }
        }
        next_at_ms
    }

    fn lock(&self) -> MutexGuard<'_, CheckedBalancers> {
        self.balancers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slot of a check under way. Dropping the slot wakes the scheduler.
struct CheckSlot {
    checker: Arc<Checker>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for CheckSlot {
    fn drop(&mut self) {
        self.checker.wake();
    }
}

/// Makes one check, and reports its result. The timeout covers the connection and the whole response.
async fn check(balancer: Arc<Balancer>, run: CheckRun, slot: CheckSlot) {
    // A member without connections belongs to a balancer that is not served yet.
    let Some(pool) = run.member().pool() else {
        return;
    };
    let settings = Arc::clone(run.settings());
    let deadline = Instant::now() + settings.timeout;
    let mut exchange = CheckExchange::new(pool, &settings);
    let timeout = CheckOutcome::Failed(CheckFailure::Timeout);
    let outcome = timeout_at(deadline, exchange.outcome()).await;
    let Some(outcome) = outcome.unwrap_or(Some(timeout)) else {
        return;
    };
    finish(&balancer, run, outcome, &slot.checker);
    let _ = timeout_at(deadline, exchange.drain()).await;
}

/// Records the result of a check, and logs the changes that follow from the result.
fn finish(balancer: &Balancer, run: CheckRun, outcome: CheckOutcome, checker: &Checker) {
    let member = Arc::clone(run.member());
    let report = balancer.finish_check(run, outcome, (checker.now_ms)());
    checker.wake();
    let is_same = |known: Arc<Member>| Arc::ptr_eq(&known, &member);
    if let Some(change) = report.change
        && balancer.member(member.url()).is_some_and(is_same)
    {
        log_change(balancer.name(), member.url(), change);
    }
    if let Some(doubt) = report.doubt {
        log_doubt(balancer, doubt);
    }
}

#[cfg(test)]
mod tests;
