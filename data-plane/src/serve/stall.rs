//! Time for which a client has held up a response, and time for which a request has not moved. A response makes progress only by a minimum of bytes,
//! so a client that grants 1 byte at a time gains no time.

use crate::limits::{REQUEST_RATE_MILLISECONDS, RESPONSE_PROGRESS_BYTES_MIN};
use crate::serve::connection_entry::Activity;

/// Stall clock of one response, or of all responses of a connection together.
#[derive(Copy, Clone, Default)]
pub(super) struct StallClock {
    /// When the client began to hold the response, in milliseconds of the worker's clock.
    since_ms: Option<u64>,
    /// Bytes sent when the stall began.
    sent: u64,
}

impl StallClock {
    /// Records whether the client's window or socket is the only obstacle of the response, after `sent`
    /// bytes of the response in all. Returns true where the stall clock restarts.
    pub(super) fn note(&mut self, is_blocked: bool, sent: u64, now_ms: u64) -> bool {
        if !is_blocked {
            self.since_ms = None;
            return false;
        }
        let begins = self.since_ms.is_none() || sent >= self.sent + RESPONSE_PROGRESS_BYTES_MIN;
        if begins {
            self.since_ms = Some(now_ms);
            self.sent = sent;
        }
        begins
    }

    /// Restarts a running stall clock, because the client has acknowledged bytes that the kernel held.
    pub(super) fn restart(&mut self, now_ms: u64) {
        self.since_ms = Some(now_ms);
    }

    /// Returns when the response last began to make less than the required progress.
    pub(super) fn since_ms(self) -> Option<u64> {
        self.since_ms
    }
}

/// Moment at which a request under way last moved. Bytes that belong to no request, such as a PING, move nothing.
#[derive(Copy, Clone, Default)]
pub(super) struct ProgressClock {
    since_ms: u64,
    /// Count of the moved bytes, and whether only the client could move the request.
    count: u64,
    awaits_client: bool,
}

impl ProgressClock {
    /// Records the count of moved bytes, and returns the activity of the connection. The clock restarts with the wait for the
    /// other side.
    pub(super) fn note(&mut self, awaits_client: bool, count: u64, now_ms: u64) -> Activity {
        if self.since_ms == 0 || (awaits_client, count) != (self.awaits_client, self.count) {
            *self = ProgressClock {
                since_ms: now_ms,
                count,
                awaits_client,
            };
        }
        if awaits_client {
            Activity::AwaitsClient(self.since_ms)
        } else {
            Activity::Busy(self.since_ms)
        }
    }
}

/// Rate of the bytes that the requests of a connection have moved in the last seconds.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct RequestRate {
    /// The last two samples, each a moment in milliseconds and the bytes moved until then.
    samples: [(u64, u64); 2],
    /// Bytes moved until now.
    bytes: u64,
}

impl RequestRate {
    /// Records the bytes moved until now. The first call begins the measurement.
    pub(super) fn note(&mut self, bytes: u64, now_ms: u64) {
        if self.samples[1].0 == 0 {
            self.samples = [(now_ms, 0); 2];
        } else if now_ms >= self.samples[1].0 + REQUEST_RATE_MILLISECONDS {
            self.samples = [self.samples[1], (now_ms, bytes)];
        }
        self.bytes = bytes;
    }

    /// Returns the rate in bytes a second; None before the end of the first sample.
    pub(super) fn bytes_per_second(&self, now_ms: u64) -> Option<u64> {
        let [first, second] = self.samples;
        let age_ms = |sample: (u64, u64)| now_ms.saturating_sub(sample.0);
        let (at_ms, before) = if age_ms(second) >= REQUEST_RATE_MILLISECONDS {
            second
        } else {
            first
        };
        let passed_ms = age_ms((at_ms, before));
        let moved = self.bytes.saturating_sub(before);
        (at_ms > 0 && passed_ms >= REQUEST_RATE_MILLISECONDS)
            .then(|| moved.saturating_mul(1_000) / passed_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = RequestRate::default();
        assert_eq!(rate.bytes_per_second(9_000), None);
        rate.note(0, 1_000);
        assert_eq!(rate.bytes_per_second(2_999), None);
        rate.note(64_000, 1_100);
        assert_eq!(rate.bytes_per_second(3_000), Some(32_000));
        for now_ms in (3_000..20_000).step_by(400) {
            rate.note(64_000 + 2 * (now_ms - 1_000), now_ms);
        }
        let late = rate.bytes_per_second(20_000).expect("a rate");
        assert!((1_800..=2_000).contains(&late), "{late}");
        // A connection without news moves nothing.
        let silent = rate.bytes_per_second(60_000).expect("a rate");
        assert!(silent <= 100, "{silent}");
    }

    #[test]
    fn only_moved_bytes_and_the_other_side_restart_the_progress() {
        let mut progress = ProgressClock::default();
        assert_eq!(progress.note(false, 0, 10), Activity::Busy(10));
        assert_eq!(progress.note(false, 0, 2_000), Activity::Busy(10));
        assert_eq!(progress.note(false, 1, 3_000), Activity::Busy(3_000));
        assert_eq!(progress.note(true, 1, 9_000), Activity::AwaitsClient(9_000));
        assert_eq!(progress.note(true, 1, 9_900), Activity::AwaitsClient(9_000));
        assert_eq!(progress.note(false, 1, 9_990), Activity::Busy(9_990));
    }

    #[test]
    fn single_bytes_are_no_progress() {
        let mut stall = StallClock::default();
        stall.note(false, 0, 5);
        assert_eq!(stall.since_ms(), None);
        for nth in 0..100 {
            stall.note(true, nth, 1_000 + nth * 1_000);
            assert_eq!(stall.since_ms(), Some(1_000));
        }
        stall.note(true, RESPONSE_PROGRESS_BYTES_MIN, 200_000);
        assert_eq!(stall.since_ms(), Some(200_000));
        stall.note(true, 2 * RESPONSE_PROGRESS_BYTES_MIN - 1, 210_000);
        assert_eq!(stall.since_ms(), Some(200_000));
        // The handler kept the response waiting.
        stall.note(false, 2 * RESPONSE_PROGRESS_BYTES_MIN - 1, 220_000);
        assert_eq!(stall.since_ms(), None);
        stall.note(true, 2 * RESPONSE_PROGRESS_BYTES_MIN - 1, 230_000);
        assert_eq!(stall.since_ms(), Some(230_000));
    }
}
