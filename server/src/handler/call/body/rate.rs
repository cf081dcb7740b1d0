//! Minimum rates of clients. A client that sends its request body or takes its response too slowly loses
//! the call's place to a waiting call.
//!
//! A call starts once a short body, or the beginning of a long body, has arrived; the rest is streamed. A
//! client that drips the rest would keep a script waiting while other calls wait for the place. The client
//! therefore loses the place, but only if a call is waiting. A client that takes a response too slowly
//! loses the place too, but only to a call of another client.

use crate::base::admission;
use crate::handler::call::request::BodyRest;
use crate::handler::pipe::{PipeBroken, PipeRead};
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

/// The rest of a request body, with the measured rate of the client.
pub struct RatedBody {
    rest: BodyRest,
    pace: TokenBucket,
    waits: WaitClock,
}

impl RatedBody {
    /// Makes the reader for a client that may pause for `patience`, or for the general grace period if
    /// longer.
    pub fn new(rest: BodyRest, patience: Duration) -> RatedBody {
        let grace_seconds = patience.as_secs().max(UPLOAD_GRACE_SECONDS);
        RatedBody {
            rest,
            pace: TokenBucket::new(UPLOAD_BYTES_PER_SECOND, grace_seconds),
            waits: WaitClock::default(),
        }
    }

    /// Takes bytes of the body, as `PipeReader::poll_take` does.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        let reader = match &mut self.rest {
            BodyRest::Coming(reader) => reader,
            // A spooled body is read from the disk, so the client's rate doesn't matter.
            BodyRest::Kept(kept) => return kept.poll_take(cx, out, max),
        };
        let taken = reader.poll_take(cx, out, max);
        match &taken {
            Poll::Pending => {
                for _ in 0..self.waits.poll(cx, SECOND) {
                    self.pace.wait();
                }
            }
            Poll::Ready(taken) => {
                self.waits.end();
                if let Ok(PipeRead::Bytes(count)) = taken {
                    self.pace.bring(*count as u64);
                }
            }
        }
        taken
    }

    /// Returns true if the whole body was spooled before the call began.
    pub fn is_kept(&self) -> bool {
        matches!(self.rest, BodyRest::Kept(_))
    }

    /// Returns true if the call is waiting for the client.
    pub fn is_awaited(&self) -> bool {
        self.waits.since.is_some()
    }

    /// Returns true if the call is waiting for a client below the minimum rate.
    pub fn is_dripping(&self) -> bool {
        self.is_awaited() && self.pace.is_drip
    }
}

/// Rate at which a client takes a response. Only the time in which the call waits for the client counts.
pub struct DownloadRate {
    /// Minimum rate of any client.
    pace: TokenBucket,
    /// Minimum rate of a client over its share of the places.
    pace_over_share: TokenBucket,
    waits: WaitClock,
}

impl DownloadRate {
    /// Makes the state for a new response.
    pub fn new() -> DownloadRate {
        const LOOKS: u64 = 1_000 / DOWNLOAD_RATE_CHECK_MILLISECONDS;
        let pace = |bytes_per_second, grace_seconds| {
            TokenBucket::new(bytes_per_second / LOOKS, grace_seconds * LOOKS)
        };
        DownloadRate {
            pace: pace(DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_GRACE_SECONDS),
            pace_over_share: pace(
                DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE,
                DOWNLOAD_GRACE_SECONDS_OVER_SHARE,
            ),
            waits: WaitClock::default(),
        }
    }

    /// Counts the time of waiting for the client and returns the client's pace. Wakes the task for the next
    /// check.
    pub fn wait(&mut self, cx: &mut Context<'_>) -> admission::ClientPace {
        for _ in 0..self.waits.poll(cx, DOWNLOAD_LOOK) {
            self.pace.wait();
            self.pace_over_share.wait();
        }
        self.pace()
    }

    fn pace(&self) -> admission::ClientPace {
        match (self.pace.is_drip, self.pace_over_share.is_drip) {
            (true, _) => admission::ClientPace::Slow,
            (false, true) => admission::ClientPace::SlowForMany,
            (false, false) => admission::ClientPace::Fast,
        }
    }

    /// Counts `bytes` taken by the client and returns the client's pace.
    pub fn take(&mut self, bytes: usize) -> admission::ClientPace {
        self.waits.end();
        self.pace.bring(bytes as u64);
        self.pace_over_share.bring(bytes as u64);
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
    brought: u64,
    is_drip: bool,
}

impl TokenBucket {
    /// Makes a bucket with a cost of `cost` bytes for each period and a credit of `grace` periods.
    fn new(cost: u64, grace: u64) -> TokenBucket {
        let credit = grace.saturating_mul(cost);
        TokenBucket {
            cost,
            credit,
            credit_max: credit,
            brought: 0,
            is_drip: false,
        }
    }

    fn bring(&mut self, bytes: u64) {
        self.brought = self.brought.saturating_add(bytes);
        self.is_drip &= self.had() < self.cost;
    }

    /// Charges the cost of a period of waiting.
    fn wait(&mut self) {
        let left = self.had().checked_sub(self.cost);
        self.is_drip = left.is_none();
        self.credit = left.unwrap_or(0);
        self.brought = 0;
    }

    fn had(&self) -> u64 {
        self.credit
            .saturating_add(self.brought)
            .min(self.credit_max)
    }
}

const DOWNLOAD_LOOK: Duration = Duration::from_millis(DOWNLOAD_RATE_CHECK_MILLISECONDS);
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = UPLOAD_BYTES_PER_SECOND;

    /// Returns the seconds in which a client is below the minimum rate, given the bytes transferred in each
    /// second.
    fn drips(grace_seconds: u64, brought: &[u64]) -> Vec<usize> {
        let mut pace = TokenBucket::new(RATE, grace_seconds);
        let mut all = Vec::new();
        for (second, bytes) in brought.iter().enumerate() {
            pace.bring(*bytes);
            pace.wait();
            if pace.is_drip {
                all.push(second);
            }
        }
        all
    }

    #[test]
    fn what_is_a_drip() {
        assert_eq!(drips(3, &[0, 0, 0]), []);
        assert_eq!(drips(3, &[0, 0, 0, 0, 0]), [3, 4]);
        assert_eq!(drips(3, &[RATE; 9]), []);
        assert_eq!(drips(3, &[RATE - 1, RATE - 1, 0, 0, 0]), [3, 4]);
        // A burst earns no more than the grace.
        assert_eq!(drips(3, &[1 << 30, 0, 0, 0]), [3]);
        // A slow beginning is forgiven.
        assert_eq!(drips(3, &[0, 0, 0, 0, 0, RATE, RATE]), [3, 4]);
        assert_eq!(drips(300, &[0; 302]), [300, 301]);
    }

    #[test]
    fn what_comes_ends_a_drip() {
        let mut pace = TokenBucket::new(RATE, 0);
        pace.wait();
        assert!(pace.is_drip);
        pace.bring(RATE - 1);
        assert!(pace.is_drip, "not enough");
        let mut pace = TokenBucket::new(RATE, 1);
        pace.wait();
        pace.wait();
        assert!(pace.is_drip);
        pace.bring(RATE);
        assert!(!pace.is_drip);
    }
}
