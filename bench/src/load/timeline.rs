//! Timeline of one run, shared by all threads: the beginning and the end of the measured window, the permits
//! for requests, and the rules by which requests are counted.
//!
//! Times are nanoseconds since the beginning of the run, in one integer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::workload::{Length, Pace, Workload};

/// Nanoseconds since the beginning of the run.
pub(super) type Nanos = u64;

/// Clock and bounds of one run.
#[derive(Debug)]
pub(super) struct Timeline {
    epoch: Instant,
    begin: Nanos,
    length: Bound,
    open: bool,
    stopped: AtomicBool,
}

#[derive(Debug)]
enum Bound {
    /// Counting ends at a fixed time.
    Until(Nanos),
    /// Counting ends with request number `all`.
    Tickets { taken: AtomicU64, all: u64 },
}

/// A request from the time when the request is due until the response has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingRequest {
    /// Time when the request was due. In a closed loop, the time when the user wanted to send the request.
    pub due: Nanos,
    /// Time when the request was sent, or when the connection for the request was begun.
    pub begun: Nanos,
    /// Whether the request holds a ticket of a run with a fixed number of requests.
    ticket: bool,
}

impl Timeline {
    /// Creates the timeline of `workload`, beginning now.
    pub(super) fn new(workload: &Workload) -> Timeline {
        let begin = nanos(workload.warm_up_seconds);
        let length = match workload.length {
            Length::Seconds(seconds) => Bound::Until(begin + nanos(seconds)),
            Length::Requests(all) => Bound::Tickets {
                taken: AtomicU64::new(0),
                all,
            },
        };
        let open = matches!(workload.pace, Pace::Open { .. });
        Timeline {
            epoch: Instant::now(),
            begin,
            length,
            open,
            stopped: AtomicBool::new(false),
        }
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    /// Converts a time of the run to an [`Instant`].
    pub(super) fn instant(&self, at: Nanos) -> Instant {
        self.epoch + std::time::Duration::from_nanos(at)
    }

    /// Returns true if the run is to end at once.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ends the run at once.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns the time when counting begins.
    pub(super) fn begin(&self) -> Nanos {
        self.begin
    }

    /// Returns the time when counting ends, or `None` in a run with a fixed number of requests.
    pub(super) fn end(&self) -> Option<Nanos> {
        match self.length {
            Bound::Until(end) => Some(end),
            Bound::Tickets { .. } => None,
        }
    }

    /// Returns true if no request due now or later may be sent.
    pub(super) fn over(&self, now: Nanos) -> bool {
        match &self.length {
            Bound::Until(end) => now >= *end,
            Bound::Tickets { taken, all } => taken.load(Ordering::Relaxed) >= *all,
        }
    }

    /// Grants a request that is due at `due` and is sent at `now`. Returns `None` when the run is over.
    pub(super) fn grant(&self, due: Nanos, now: Nanos) -> Option<PendingRequest> {
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
        Some(PendingRequest {
            due,
            begun: now,
            ticket,
        })
    }

    /// Returns true if a response complete at `now` belongs to the measured window.
    ///
    /// A closed loop counts responses that end within the window: requests that straddle the beginning are
    /// counted and requests that straddle the end are left out. An open loop counts requests due within the
    /// window, however late the response, because leaving out late responses would hide exactly the stalls.
    pub(super) fn counts(&self, pending: &PendingRequest, now: Nanos) -> bool {
        match self.length {
            Bound::Tickets { .. } => pending.ticket,
            Bound::Until(end) if self.open => (self.begin..end).contains(&pending.due),
            Bound::Until(end) => (self.begin..end).contains(&now),
        }
    }

    /// Returns true if a failure at `now` belongs to the measured window. `pending` is `None` for a failure
    /// without a request, for example of a connection opened in advance.
    ///
    /// Failures after the end of the window count too, because requests sent within the window are awaited.
    pub(super) fn counts_failure(&self, pending: Option<&PendingRequest>, now: Nanos) -> bool {
        match (pending, &self.length) {
            (Some(pending), Bound::Tickets { .. }) => pending.ticket,
            // A failed connection takes a ticket. Otherwise a run in which every connection fails would
            // never end.
            (None, Bound::Tickets { taken, all }) => {
                now >= self.begin && taken.fetch_add(1, Ordering::Relaxed) < *all
            }
            (Some(pending), Bound::Until(end)) if self.open => {
                (self.begin..*end).contains(&pending.due)
            }
            (_, Bound::Until(_)) => now >= self.begin,
        }
    }

    /// Returns true if bytes received at `now` are counted.
    pub(super) fn counts_bytes(&self, now: Nanos) -> bool {
        now >= self.begin && self.end().is_none_or(|end| now < end || self.open)
    }
}

/// Due times of an open loop on one of its threads.
#[derive(Debug, Clone)]
pub(super) struct DueTimes {
    interval: f64,
    threads: u64,
    next: u64,
}

impl DueTimes {
    /// Creates the due times of thread `thread` of `threads`. The threads together keep `rate`, evenly
    /// interleaved.
    pub(super) fn new(rate: f64, thread: usize, threads: usize) -> DueTimes {
        DueTimes {
            interval: 1e9 / rate,
            threads: threads as u64,
            next: thread as u64,
        }
    }

    /// Returns the due time of the next request.
    pub(super) fn next(&self) -> Nanos {
        // Computed from the index rather than by addition, to avoid accumulating rounding errors.
        (self.next as f64 * self.interval) as Nanos
    }

    /// Moves on to the next request after the current request was sent or abandoned.
    pub(super) fn advance(&mut self) {
        self.next += self.threads;
    }
}

/// Converts seconds to nanoseconds.
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
            let mut due_times = DueTimes::new(1000.0, thread, 3);
            for _ in 0..4 {
                all.push(due_times.next());
                due_times.advance();
            }
        }
        all.sort_unstable();
        let expected: Vec<Nanos> = (0..12).map(|index| index * 1_000_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn tickets_are_granted_up_to_the_number_of_requests() {
        let workload = Workload {
            length: Length::Requests(2),
            warm_up_seconds: 1.0,
            ..Workload::default()
        };
        let timeline = Timeline::new(&workload);
        let warm = timeline.grant(0, 0).expect("warming up");
        assert!(!timeline.counts(&warm, timeline.begin() + 1));
        let at = timeline.begin();
        let first = timeline.grant(at, at).expect("the first");
        assert!(timeline.counts(&first, at + 5));
        assert!(timeline.grant(at, at).is_some());
        assert!(timeline.grant(at, at).is_none());
        assert!(timeline.over(at));
    }

    #[test]
    fn the_open_loop_counts_by_due_time_and_the_closed_loop_by_end() {
        let mut workload = Workload {
            warm_up_seconds: 1.0,
            ..Workload::default()
        };
        let (before, within, after) = (nanos(0.9), nanos(1.5), nanos(2.5));
        let closed = Timeline::new(&workload);
        let early = closed.grant(before, before).expect("not over");
        assert!(closed.counts(&early, within));
        assert!(!closed.counts(&early, after));
        workload.pace = Pace::Open { rate: 1.0 };
        let open = Timeline::new(&workload);
        assert!(!open.counts(&early, within));
        let late = open.grant(within, after).expect("due in time");
        assert!(open.counts(&late, after));
        assert!(open.grant(after, after).is_none());
    }
}
