//! The course of one run in time, the same for all threads: when counting begins and ends, who may
//! still ask, and what is counted.
//!
//! Times are nanoseconds since the run's beginning, in one integer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::plan::{Length, Pace, Plan};

/// Nanoseconds since the run's beginning.
pub(super) type Nanos = u64;

/// The run's clock and bounds.
#[derive(Debug)]
pub(super) struct Course {
    epoch: Instant,
    begin: Nanos,
    length: Bound,
    open: bool,
    stopped: AtomicBool,
}

#[derive(Debug)]
enum Bound {
    /// Counting ends at this time.
    Until(Nanos),
    /// Counting ends with the last of so many.
    Tickets { taken: AtomicU64, all: u64 },
}

/// A request from when it is wanted until its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// When it was due: in a closed loop, when the user wanted it.
    pub due: Nanos,
    /// When it was sent, or the connection begun that had to be made for it.
    pub begun: Nanos,
    /// Whether it took one of the tickets of a run that ends with a number of requests.
    ticket: bool,
}

impl Course {
    /// The course of `plan`, which begins now.
    pub(super) fn new(plan: &Plan) -> Course {
        let begin = nanos(plan.warm_up_seconds);
        let length = match plan.length {
            Length::Seconds(seconds) => Bound::Until(begin + nanos(seconds)),
            Length::Requests(all) => Bound::Tickets {
                taken: AtomicU64::new(0),
                all,
            },
        };
        let open = matches!(plan.pace, Pace::Open { .. });
        Course {
            epoch: Instant::now(),
            begin,
            length,
            open,
            stopped: AtomicBool::new(false),
        }
    }

    /// The time.
    pub(super) fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    /// The instant of a time.
    pub(super) fn instant(&self, at: Nanos) -> Instant {
        self.epoch + std::time::Duration::from_nanos(at)
    }

    /// Whether it is to end at once.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends it at once.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// When counting begins.
    pub(super) fn begin(&self) -> Nanos {
        self.begin
    }

    /// When counting ends, if that is known.
    pub(super) fn end(&self) -> Option<Nanos> {
        match self.length {
            Bound::Until(end) => Some(end),
            Bound::Tickets { .. } => None,
        }
    }

    /// Whether nothing more may be asked that falls due now or later.
    pub(super) fn over(&self, now: Nanos) -> bool {
        match &self.length {
            Bound::Until(end) => now >= *end,
            Bound::Tickets { taken, all } => taken.load(Ordering::Relaxed) >= *all,
        }
    }

    /// Leave for a request that is due at `due` and wanted at `now`; `None` when the run is over.
    pub(super) fn ask(&self, due: Nanos, now: Nanos) -> Option<Asked> {
        let ticket = match &self.length {
            Bound::Until(end) if due >= *end => return None,
            Bound::Until(_) => false,
            Bound::Tickets { .. } if due < self.begin => false,
            Bound::Tickets { taken, all } => {
                if taken.fetch_add(1, Ordering::Relaxed) >= *all {
                    return None;
                }
                true
            }
        };
        Some(Asked {
            due,
            begun: now,
            ticket,
        })
    }

    /// Whether a response that is whole at `now` is one of the measured.
    ///
    /// A closed loop counts what ended within the window: what hangs over at one side is left out and
    /// at the other taken in. An open loop counts what was due within it, however late it came, since
    /// leaving out the late ones would hide just those.
    pub(super) fn counts(&self, asked: &Asked, now: Nanos) -> bool {
        match self.length {
            Bound::Tickets { .. } => asked.ticket,
            Bound::Until(end) if self.open => (self.begin..end).contains(&asked.due),
            Bound::Until(end) => (self.begin..end).contains(&now),
        }
    }

    /// Whether a failure at `now` is one of the measured; `None` for one without a request, as of a
    /// connection that was made in advance.
    ///
    /// Failures after the end count too: what was asked within the window is waited for.
    pub(super) fn counts_failure(&self, asked: Option<&Asked>, now: Nanos) -> bool {
        match (asked, &self.length) {
            (Some(asked), Bound::Tickets { .. }) => asked.ticket,
            // Else a run whose connections all fail would never come to its end.
            (None, Bound::Tickets { taken, all }) => {
                now >= self.begin && taken.fetch_add(1, Ordering::Relaxed) < *all
            }
            (Some(asked), Bound::Until(end)) if self.open => {
                (self.begin..*end).contains(&asked.due)
            }
            (_, Bound::Until(_)) => now >= self.begin,
        }
    }

    /// Whether bytes that come at `now` are counted.
    pub(super) fn counts_bytes(&self, now: Nanos) -> bool {
        now >= self.begin && self.end().is_none_or(|end| now < end || self.open)
    }
}

/// The due times of an open loop on one of its threads.
#[derive(Debug, Clone)]
pub(super) struct Dues {
    interval: f64,
    threads: u64,
    next: u64,
}

impl Dues {
    /// The dues of thread `thread` of `threads` that together keep `rate`, evenly interleaved.
    pub(super) fn new(rate: f64, thread: usize, threads: usize) -> Dues {
        Dues {
            interval: 1e9 / rate,
            threads: threads as u64,
            next: thread as u64,
        }
    }

    /// When the next request is due.
    pub(super) fn next(&self) -> Nanos {
        // From the index and not by adding up, so that no error adds up either.
        (self.next as f64 * self.interval) as Nanos
    }

    /// The next one was sent, or given up.
    pub(super) fn advance(&mut self) {
        self.next += self.threads;
    }
}

/// Nanoseconds of so many seconds.
pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_due_times_evenly() {
        let mut all: Vec<Nanos> = Vec::new();
        for thread in 0..3 {
            let mut dues = Dues::new(1000.0, thread, 3);
            for _ in 0..4 {
                all.push(dues.next());
                dues.advance();
            }
        }
        all.sort_unstable();
        let expected: Vec<Nanos> = (0..12).map(|index| index * 1_000_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_number_of_requests_is_given_out_once() {
        let plan = Plan {
            length: Length::Requests(2),
            warm_up_seconds: 1.0,
            ..Plan::default()
        };
        let course = Course::new(&plan);
        let warm = course.ask(0, 0).expect("warming up");
        assert!(!course.counts(&warm, course.begin() + 1));
        let at = course.begin();
        let first = course.ask(at, at).expect("the first");
        assert!(course.counts(&first, at + 5));
        assert!(course.ask(at, at).is_some());
        assert!(course.ask(at, at).is_none());
        assert!(course.over(at));
    }

    #[test]
    fn the_open_loop_counts_what_was_due_and_the_closed_what_ended() {
        let mut plan = Plan {
            warm_up_seconds: 1.0,
            ..Plan::default()
        };
        let (before, within, after) = (nanos(0.9), nanos(1.5), nanos(2.5));
        let closed = Course::new(&plan);
        let early = closed.ask(before, before).expect("not over");
        assert!(closed.counts(&early, within));
        assert!(!closed.counts(&early, after));
        plan.pace = Pace::Open { rate: 1.0 };
        let open = Course::new(&plan);
        assert!(!open.counts(&early, within));
        let late = open.ask(within, after).expect("due in time");
        assert!(open.counts(&late, after));
        assert!(open.ask(after, after).is_none());
    }
}
