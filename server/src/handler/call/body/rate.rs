//! Pace of clients: whether the client of a waiting call is fast enough for the call to keep its place.
//! The call waits for the rest of the request body or for the client to take the response.
//!
//! A call takes a place only after a short body has arrived, or as many bytes of a long body; the rest is
//! streamed. A client that drips the rest would make a script wait while other calls wait for the place.
//! So the client loses the place, but only to a waiting call. A client that takes the response slowly
//! loses the place too, to a call of another client.

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

/// The rest of a body, with the time for which the call waited for the client.
pub struct RatedBody {
    rest: BodyRest,
    pace: TokenBucket,
    waits: WaitClock,
}

impl RatedBody {
    /// Makes the reader for a client that may pause for `patience`, or for the general grace time if
    /// longer.
    pub fn new(rest: BodyRest, patience: Duration) -> RatedBody {
        let grace_seconds = patience.as_secs().max(UPLOAD_GRACE_SECONDS);
        RatedBody {
            rest,
            pace: TokenBucket::new(UPLOAD_BYTES_PER_SECOND, grace_seconds),
            waits: WaitClock::default(),
        }
    }

    /// Takes bytes of the body, as `Reader::poll_take` of a pipe does.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<PipeRead, PipeBroken>> {
        let reader = match &mut self.rest {
            BodyRest::Coming(reader) => reader,
            // A kept body comes from the disk, so no wait for the client counts.
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

    /// Whether the client sent the whole body before the call began.
    pub fn is_kept(&self) -> bool {
        matches!(self.rest, BodyRest::Kept(_))
    }

    /// Whether the call now waits for the client.
    pub fn is_awaited(&self) -> bool {
        self.waits.since.is_some()
    }

    /// Whether the call waits for a client that sends next to nothing.
    pub fn is_dripping(&self) -> bool {
        self.is_awaited() && self.pace.is_drip
    }
}

/// Rate at which a client takes a response, while the call waits only for the client.
pub struct DownloadRate {
    /// Rate demanded of any client.
    pace: TokenBucket,
    /// Rate demanded of a client over its share of the places.
    pace_over_share: TokenBucket,
    waits: WaitClock,
}

impl DownloadRate {
    /// Makes the state for a response of which no byte has been taken.
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

    /// Counts the wait for the client and returns the client's pace. Wakes the task for the next look.
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

    /// Counts `bytes` of room that the client has made and returns the client's pace.
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
    /// Time waited, without the periods returned by [`WaitClock::poll`] and the time since `since`.
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

    /// Stops waiting for the client.
    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// Token bucket for the bytes of a client. Each period of waiting costs, and bytes sent or taken pay. The
/// credit has a maximum: no burst at the beginning buys hours, and a slow beginning is forgiven.
struct TokenBucket {
    /// Cost of a period in bytes.
    cost: u64,
    credit: u64,
    credit_max: u64,
    /// Bytes sent or taken since the last period of waiting ended.
    brought: u64,
    is_drip: bool,
}

impl TokenBucket {
    /// Makes a bucket of `cost` bytes for each period, with a credit of `grace` periods.
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

    /// Charges for a whole period of waiting.
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

    /// Returns the seconds in which a client drips, from the bytes brought in each second.
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
        // A burst buys no more than the grace.
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
