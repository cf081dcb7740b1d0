//! Minimum rates of clients. A client that sends its request body or takes its response too slowly loses
//! the call's slot to a waiting call.
//!
//! A call starts once a short body, or the beginning of a long body, has arrived; the rest is streamed. A
//! client that drips the rest would keep a script waiting while other calls wait for the slot. The client
//! therefore loses the slot, but only if a call is waiting. A client that takes a response too slowly
//! loses the slot too, but only to a call of another client.

use crate::base::admission::ClientPace;
use crate::handler::pipe::{PipeBroken, PipeRead, PipeReader};
use crate::limits::{
    DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE, DOWNLOAD_GRACE_SECONDS,
    DOWNLOAD_GRACE_SECONDS_OVER_SHARE, DOWNLOAD_RATE_CHECK_MILLISECONDS, UPLOAD_BYTES_PER_SECOND,
    UPLOAD_GRACE_SECONDS,
};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Pipe with the rest of a request body, and the measured rate of the client.
pub(crate) struct RatedPipe {
    reader: PipeReader,
    bucket: TokenBucket,
    waits: WaitClock,
}

impl RatedPipe {
    /// Makes the reader for a client that may pause for `patience`, or for the general grace period if
    /// longer.
    pub fn new(reader: PipeReader, patience: Duration) -> RatedPipe {
        let grace_seconds = patience.as_secs().max(UPLOAD_GRACE_SECONDS);
        RatedPipe {
            reader,
            bucket: TokenBucket::new(UPLOAD_BYTES_PER_SECOND, grace_seconds),
            waits: WaitClock::default(),
        }
    }

    /// Takes bytes of the body, as [`PipeReader::poll_take`] does.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        let taken = self.reader.poll_take(cx, out, max);
        match &taken {
            Poll::Pending => {
                for _ in 0..self.waits.poll(cx, SECOND) {
                    self.bucket.wait();
                }
            }
            Poll::Ready(taken) => {
                self.waits.end();
                if let Ok(PipeRead::Bytes(count)) = taken {
                    self.bucket.add(*count as u64);
                }
            }
        }
        taken
    }

    /// Returns true if the call is waiting for the client.
    pub fn is_awaited(&self) -> bool {
        self.waits.since.is_some()
    }

    /// Returns true if the call is waiting for a client below the minimum rate.
    pub fn is_too_slow(&self) -> bool {
        self.is_awaited() && self.bucket.is_too_slow
    }
}

/// Rate at which a client takes a response, or sends a request to a member. Only the time in which the call waits for the
/// client counts.
pub(crate) struct TransferRate {
    /// Minimum rate of any client.
    bucket: TokenBucket,
    /// Minimum rate of a client over its share of the slots.
    bucket_over_share: TokenBucket,
    waits: WaitClock,
}

impl TransferRate {
    /// Makes the state for a new transfer.
    pub fn new() -> TransferRate {
        const CHECKS_PER_SECOND: u64 = 1_000 / DOWNLOAD_RATE_CHECK_MILLISECONDS;
        let bucket = |bytes_per_second, grace_seconds| {
            TokenBucket::new(
                bytes_per_second / CHECKS_PER_SECOND,
                grace_seconds * CHECKS_PER_SECOND,
            )
        };
        TransferRate {
            bucket: bucket(DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_GRACE_SECONDS),
            bucket_over_share: bucket(
                DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE,
                DOWNLOAD_GRACE_SECONDS_OVER_SHARE,
            ),
            waits: WaitClock::default(),
        }
    }

    /// Counts the time of waiting for the client and returns the client's pace. Wakes the task for the next
    /// check.
    pub fn wait(&mut self, cx: &mut Context<'_>) -> ClientPace {
        for _ in 0..self.waits.poll(cx, CHECK_INTERVAL) {
            self.bucket.wait();
            self.bucket_over_share.wait();
        }
        self.pace()
    }

    fn pace(&self) -> ClientPace {
        match (self.bucket.is_too_slow, self.bucket_over_share.is_too_slow) {
            (true, _) => ClientPace::Slow,
            (false, true) => ClientPace::SlowForMany,
            (false, false) => ClientPace::Fast,
        }
    }

    /// Counts `bytes` taken or sent by the client and returns the client's pace.
    pub fn take(&mut self, bytes: usize) -> ClientPace {
        self.waits.end();
        self.bucket.add(bytes as u64);
        self.bucket_over_share.add(bytes as u64);
        self.pace()
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
    fn poll(&mut self, cx: &mut Context<'_>, period: Duration) -> u32 {
        self.since.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(period)));
        let mut periods = 0;
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            timer.as_mut().reset(now + period);
            if let Some(since) = self.since.replace(now) {
                self.waited += now - since;
            }
            while let Some(rest) = self.waited.checked_sub(period) {
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

const CHECK_INTERVAL: Duration = Duration::from_millis(DOWNLOAD_RATE_CHECK_MILLISECONDS);
const SECOND: Duration = Duration::from_secs(1);

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
}
