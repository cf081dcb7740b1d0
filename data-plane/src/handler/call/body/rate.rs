//! Minimum rates of clients. A client that sends its request body or takes its response too slowly loses
//! the call's slot to a waiting call.
//!
//! A call starts once a short body, or the beginning of a long body, has arrived; the rest is streamed. A
//! client that drips the rest would keep a script waiting while other calls wait for the slot. The client
//! therefore loses the slot, but only if a call is waiting. A client that takes a response too slowly, or
//! sends a body at less than the rate of [`TransferRate`], loses the slot to a call of another client.

use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader};
use crate::ledger::admission::ClientPace;
use crate::limits::{
    DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_GRACE_SECONDS, DOWNLOAD_GRACE_SECONDS_OVER_SHARE,
    DOWNLOAD_RATE_CHECK_MILLISECONDS, DRIP_CHECK_MILLISECONDS, DRIP_WINDOW_SECONDS,
    RATE_WINDOW_CHECKS, UPLOAD_BYTES_PER_SECOND, UPLOAD_GRACE_SECONDS,
};
use base::limits::DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Pipe with the rest of a request body, and the measured rate of the client.
pub(crate) struct RatedPipe {
    reader: PipeReader,
    rate: TransferRate,
    /// True for a client that may pause for longer than [`UPLOAD_GRACE_SECONDS`].
    is_patient: bool,
}

impl RatedPipe {
    /// Makes the reader for a client that may pause for `patience`, or for the general grace period if
    /// longer.
    pub(crate) fn new(reader: PipeReader, patience: Duration) -> RatedPipe {
        let grace_seconds = patience.as_secs().max(UPLOAD_GRACE_SECONDS);
        RatedPipe {
            reader,
            rate: TransferRate::with_minimum(UPLOAD_BYTES_PER_SECOND, grace_seconds),
            is_patient: grace_seconds > UPLOAD_GRACE_SECONDS,
        }
    }

    /// Takes bytes of the body, as [`PipeReader::poll_take`] does.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        let taken = self.reader.poll_take(cx, out, max);
        match &taken {
            Poll::Pending => {
                self.rate.wait(cx);
            }
            Poll::Ready(Ok(PipeRead::Bytes(count))) => self.rate.take(*count),
            Poll::Ready(_) => self.rate.end_wait(),
        }
        taken
    }

    /// Returns true if the call is waiting for the client.
    pub(crate) fn is_awaited(&self) -> bool {
        self.rate.is_awaited()
    }

    /// Returns true if the call is waiting for a client below the minimum rate.
    pub(crate) fn is_too_slow(&self) -> bool {
        self.is_awaited() && self.rate.bucket.is_too_slow
    }

    /// Returns the pace of the client.
    pub(crate) fn pace(&self) -> ClientPace {
        if self.is_awaited() && !self.is_patient {
            self.rate.pace()
        } else {
            ClientPace::Fast
        }
    }
}

/// Rate at which a client takes a response, or sends a request. Only the time in which the call waits for the client
/// counts.
pub(crate) struct TransferRate {
    /// Minimum rate of any client.
    bucket: TokenBucket,
    /// Minimum rate of a client over its share of the slots.
    bucket_over_share: TokenBucket,
    average: AverageRate,
    waits: WaitClock,
}

impl TransferRate {
    /// Makes the state for a new transfer.
    pub(crate) fn new() -> TransferRate {
        TransferRate::with_minimum(DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_GRACE_SECONDS)
    }

    fn with_minimum(bytes_per_second: u64, grace_seconds: u64) -> TransferRate {
        let bucket = |bytes_per_second, grace_seconds| {
            TokenBucket::new(
                bytes_per_second / CHECKS_PER_SECOND,
                grace_seconds * CHECKS_PER_SECOND,
            )
        };
        TransferRate {
            bucket: bucket(bytes_per_second, grace_seconds),
            bucket_over_share: bucket(
                DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE,
                DOWNLOAD_GRACE_SECONDS_OVER_SHARE,
            ),
            average: AverageRate::default(),
            waits: WaitClock::default(),
        }
    }

    /// Counts the time of waiting for the client and returns the client's pace. Wakes the task for the next
    /// check.
    pub(crate) fn wait(&mut self, cx: &mut Context<'_>) -> ClientPace {
        for _ in 0..self.waits.poll(cx) {
            self.end_period();
        }
        self.pace()
    }

    /// Returns true if the call is waiting for the client.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waits.since.is_some()
    }

    fn end_period(&mut self) {
        self.average.add(self.bucket_over_share.transferred);
        self.bucket.wait();
        self.bucket_over_share.wait();
    }

    fn pace(&self) -> ClientPace {
        match (self.bucket.is_too_slow, self.bucket_over_share.is_too_slow) {
            (true, _) => ClientPace::Slow,
            (false, true) => ClientPace::SlowForMany(self.average.0 / 1024),
            (false, false) => ClientPace::Fast,
        }
    }

    /// Records that the call does not wait for the client.
    pub(crate) fn end_wait(&mut self) {
        self.waits.end();
    }

    /// Counts `bytes` taken or sent by the client.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.waits.end();
        self.bucket.add(bytes as u64);
        self.bucket_over_share.add(bytes as u64);
    }
}

/// Average rate over the last [`RATE_WINDOW_CHECKS`], in bytes a second. The system moves bytes in bursts, and the last
/// burst of a client may be seconds ago.
struct AverageRate(u64);

impl Default for AverageRate {
    /// Returns the rate of a new transfer, which counts as fast.
    fn default() -> AverageRate {
        AverageRate(AVERAGE_RATE_MAX)
    }
}

impl AverageRate {
    /// Adds a period of waiting with its bytes. The time of a fast beginning is soon forgotten.
    fn add(&mut self, bytes: u64) {
        let others = self.0 * (RATE_WINDOW_CHECKS - 1);
        let rate = bytes.saturating_mul(CHECKS_PER_SECOND);
        self.0 = (others.saturating_add(rate) / RATE_WINDOW_CHECKS).min(AVERAGE_RATE_MAX);
    }
}

/// Rate of a response over the whole time, including the waits for the script and for the client. A response below
/// [`DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE`] for [`DRIP_WINDOW`] drips: the script holds its slot like an event stream.
#[derive(Default)]
pub(crate) struct DripClock {
    /// Beginning of the current window; None before the beginning of the content.
    since: Option<Instant>,
    /// Bytes of the current window.
    bytes: u64,
    /// Rate of the last window in KiB/s, if the response dripped.
    rate: Option<u64>,
}

impl DripClock {
    /// Records the beginning of the content.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Counts `bytes` of the content.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Returns the rate of a response that drips, in KiB/s.
    pub(crate) fn check(&mut self, now: Instant) -> Option<u64> {
        let elapsed = now.saturating_duration_since(self.since?);
        if elapsed >= DRIP_WINDOW {
            let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let per_second = self.bytes.saturating_mul(1_000) / milliseconds.max(1);
            self.rate =
                (per_second < DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE).then_some(per_second / 1024);
            (self.since, self.bytes) = (Some(now), 0);
        }
        self.rate
    }

    /// Returns the time of the next check.
    pub(crate) fn next_check(&self, now: Instant) -> Instant {
        match (self.since, self.rate) {
            (Some(_), Some(_)) => now + DRIP_CHECK,
            // A call that waits for its client is not checked.
            (Some(since), None) => (since + DRIP_WINDOW).max(now + DRIP_CHECK),
            (None, _) => now + DRIP_WINDOW,
        }
    }
}

/// Clock of the time spent waiting for a client.
#[derive(Default)]
struct WaitClock {
    /// Measured time not yet returned as periods by [`WaitClock::poll`], excluding the time since `since`.
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl WaitClock {
    /// Starts or continues waiting, and returns the number of whole periods waited since the last call.
    /// Wakes the task after each period.
    fn poll(&mut self, cx: &mut Context<'_>) -> u32 {
        self.since.get_or_insert_with(Instant::now);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep(CHECK_INTERVAL)));
        let mut periods = 0;
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            timer.as_mut().reset(now + CHECK_INTERVAL);
            if let Some(since) = self.since.replace(now) {
                self.waited += now - since;
            }
            while let Some(rest) = self.waited.checked_sub(CHECK_INTERVAL) {
                self.waited = rest;
                periods += 1;
            }
        }
        periods
    }

    /// Stops the clock.
    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// Token bucket for a client's minimum rate. Each period of waiting costs tokens, and transferred bytes
/// earn tokens. The credit is capped, so a burst at the beginning doesn't allow hours of silence. The debt
/// is not kept, so a slow beginning is forgiven.
struct TokenBucket {
    /// Cost of a period, in bytes.
    cost: u64,
    credit: u64,
    credit_max: u64,
    /// Bytes transferred since the end of the last period.
    transferred: u64,
    is_too_slow: bool,
}

impl TokenBucket {
    /// Makes a bucket with a cost of `cost` bytes for each period and a credit of `grace` periods.
    fn new(cost: u64, grace: u64) -> TokenBucket {
        let credit = grace.saturating_mul(cost);
        TokenBucket {
            cost,
            credit,
            credit_max: credit,
            transferred: 0,
            is_too_slow: false,
        }
    }

    fn add(&mut self, bytes: u64) {
        self.transferred = self.transferred.saturating_add(bytes);
        self.is_too_slow &= self.tokens() < self.cost;
    }

    /// Charges the cost of a period of waiting.
    fn wait(&mut self) {
        let left = self.tokens().checked_sub(self.cost);
        self.is_too_slow = left.is_none();
        self.credit = left.unwrap_or(0);
        self.transferred = 0;
    }

    fn tokens(&self) -> u64 {
        self.credit
            .saturating_add(self.transferred)
            .min(self.credit_max)
    }
}

/// Time over which the rate of a response is measured.
pub(crate) const DRIP_WINDOW: Duration = Duration::from_secs(DRIP_WINDOW_SECONDS);
const DRIP_CHECK: Duration = Duration::from_millis(DRIP_CHECK_MILLISECONDS);
const CHECK_INTERVAL: Duration = Duration::from_millis(DOWNLOAD_RATE_CHECK_MILLISECONDS);
const CHECKS_PER_SECOND: u64 = 1_000 / DOWNLOAD_RATE_CHECK_MILLISECONDS;
const AVERAGE_RATE_MAX: u64 = 2 * DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE;

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = UPLOAD_BYTES_PER_SECOND;

    /// Returns the seconds in which a client is below the minimum rate, given the bytes transferred in each
    /// second.
    fn slow_seconds(grace_seconds: u64, transferred: &[u64]) -> Vec<usize> {
        let mut bucket = TokenBucket::new(RATE, grace_seconds);
        let mut all = Vec::new();
        for (second, bytes) in transferred.iter().enumerate() {
            bucket.add(*bytes);
            bucket.wait();
            if bucket.is_too_slow {
                all.push(second);
            }
        }
        all
    }

    #[test]
    fn a_client_below_the_minimum_rate_is_too_slow_after_its_grace() {
        assert_eq!(slow_seconds(3, &[0, 0, 0]), []);
        assert_eq!(slow_seconds(3, &[0, 0, 0, 0, 0]), [3, 4]);
        assert_eq!(slow_seconds(3, &[RATE; 9]), []);
        assert_eq!(slow_seconds(3, &[RATE - 1, RATE - 1, 0, 0, 0]), [3, 4]);
        // A burst earns no more than the grace.
        assert_eq!(slow_seconds(3, &[1 << 30, 0, 0, 0]), [3]);
        // A slow beginning is forgiven.
        assert_eq!(slow_seconds(3, &[0, 0, 0, 0, 0, RATE, RATE]), [3, 4]);
        assert_eq!(slow_seconds(300, &[0; 302]), [300, 301]);
    }

    /// Returns the lowest rate in KiB/s at which a client counts as slow, given the bytes that move in each period.
    fn lowest_rate(periods: impl IntoIterator<Item = u64>) -> Option<u64> {
        let mut rate = TransferRate::new();
        let rates = periods.into_iter().filter_map(|bytes| {
            rate.take(bytes as usize);
            rate.end_period();
            match rate.pace() {
                ClientPace::SlowForMany(rate) => Some(rate),
                ClientPace::Slow => Some(0),
                ClientPace::Fast => None,
            }
        });
        rates.min()
    }

    #[test]
    fn the_average_of_bursts_is_the_rate_of_the_client() {
        const KIB: u64 = 1024;
        // 64 KiB in each burst, and the rate in KiB/s by the number of periods between two bursts.
        for (periods, [least, most]) in [(6, [32, 42]), (8, [22, 31]), (16, [8, 15])] {
            let bursts = (0..400).map(|nth| if nth % periods == 0 { 64 * KIB } else { 0 });
            let rate = lowest_rate(bursts).expect("a slow moment");
            assert!((least..=most).contains(&rate), "{periods}: {rate}");
        }
        assert_eq!(lowest_rate([8 * KIB; 400]), None);
        assert_eq!(lowest_rate([5 * KIB; 400]), Some(20));
        // A fast beginning is forgotten within 4 s, and silence counts as no rate after 10 s.
        let stall = |periods| [10 << 20; 40].into_iter().chain(vec![0; periods]);
        assert!(lowest_rate(stall(16)).is_some_and(|rate| rate < 32));
        assert_eq!(lowest_rate(stall(41)), Some(0));
    }

    #[test]
    fn a_sufficient_transfer_ends_the_slowness() {
        let mut bucket = TokenBucket::new(RATE, 0);
        bucket.wait();
        assert!(bucket.is_too_slow);
        bucket.add(RATE - 1);
        assert!(bucket.is_too_slow, "not enough");
        let mut bucket = TokenBucket::new(RATE, 1);
        bucket.wait();
        bucket.wait();
        assert!(bucket.is_too_slow);
        bucket.add(RATE);
        assert!(!bucket.is_too_slow);
    }

    #[test]
    fn a_response_below_the_rate_for_a_window_drips() {
        let begun = Instant::now();
        let mut drip = DripClock::default();
        let rate_min = DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE as usize;
        let seconds = Duration::from_secs;
        assert_eq!(drip.check(begun + seconds(99)), None, "no content yet");
        drip.begin(begun);
        drip.take(5_000);
        assert_eq!(drip.check(begun + DRIP_WINDOW - seconds(1)), None);
        assert_eq!(drip.next_check(begun), begun + DRIP_WINDOW);
        assert_eq!(drip.check(begun + DRIP_WINDOW), Some(0));
        let now = begun + DRIP_WINDOW;
        assert_eq!(drip.next_check(now), now + DRIP_CHECK);
        drip.take(DRIP_WINDOW_SECONDS as usize * rate_min);
        assert_eq!(
            drip.check(now + seconds(1)),
            Some(0),
            "until the next window"
        );
        assert_eq!(drip.check(now + DRIP_WINDOW), None);
        // A call that waits for its client for a whole window does not ask without pause.
        let late = now + 3 * DRIP_WINDOW;
        assert!(drip.next_check(late) > late);
    }
}
