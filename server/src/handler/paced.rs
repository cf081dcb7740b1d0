//! Whether a client that its call waits for is worth the place that the call has: with the rest of a
//! request's body, and with the response.
//!
//! A place is taken only once a short body is there, or as much of a long one; the rest is streamed. A
//! client that then drips would have a script wait for it while others wait for the place: so it loses
//! it, but only to them. A client that takes its response slowly loses the place too, to a call of
//! another client.

use super::asked::Rest;
use super::pipe::{Broken, Taken};
use super::slots;
use crate::limits::{
    DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE, DOWNLOAD_GRACE_SECONDS,
    DOWNLOAD_GRACE_SECONDS_OVER_SHARE, DOWNLOAD_LOOK_MILLISECONDS, UPLOAD_BYTES_PER_SECOND,
    UPLOAD_GRACE_SECONDS,
};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The rest of a body, and how long its client was waited for.
pub struct Paced {
    rest: Rest,
    pace: Pace,
    waits: Waits,
}

impl Paced {
    /// For a client that may pause for `patience`, or for as long as anybody may if that is longer.
    pub fn new(rest: Rest, patience: Duration) -> Paced {
        let grace_seconds = patience.as_secs().max(UPLOAD_GRACE_SECONDS);
        Paced {
            rest,
            pace: Pace::new(UPLOAD_BYTES_PER_SECOND, grace_seconds),
            waits: Waits::default(),
        }
    }

    /// As `Reader::poll_take` of a pipe.
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<Taken, Broken>> {
        let reader = match &mut self.rest {
            Rest::Coming(reader) => reader,
            // It is the disk that is waited for.
            Rest::Kept(kept) => return kept.poll_take(cx, out, max),
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
                if let Ok(Taken::Bytes(count)) = taken {
                    self.pace.bring(*count as u64);
                }
            }
        }
        taken
    }

    /// Did its client send it all before its call began?
    pub fn is_kept(&self) -> bool {
        matches!(self.rest, Rest::Kept(_))
    }

    /// Is it waited for just now?
    pub fn is_awaited(&self) -> bool {
        self.waits.since.is_some()
    }

    /// Is it waited for, and brings next to nothing?
    pub fn is_dripping(&self) -> bool {
        self.is_awaited() && self.pace.is_drip
    }
}

/// How fast a client takes a response, while its call waits for nothing else.
pub struct Download {
    /// By what is asked of any client.
    pace: Pace,
    /// By what is asked of a client with more than its share of the places.
    pace_over_share: Pace,
    waits: Waits,
}

impl Download {
    /// Of which nothing was taken yet.
    pub fn new() -> Download {
        const LOOKS: u64 = 1_000 / DOWNLOAD_LOOK_MILLISECONDS;
        let pace = |bytes_per_second, grace_seconds| {
            Pace::new(bytes_per_second / LOOKS, grace_seconds * LOOKS)
        };
        Download {
            pace: pace(DOWNLOAD_BYTES_PER_SECOND, DOWNLOAD_GRACE_SECONDS),
            pace_over_share: pace(
                DOWNLOAD_BYTES_PER_SECOND_OVER_SHARE,
                DOWNLOAD_GRACE_SECONDS_OVER_SHARE,
            ),
            waits: Waits::default(),
        }
    }

    /// The client is waited for: how fast it is. Wakes to look again.
    pub fn wait(&mut self, cx: &mut Context<'_>) -> slots::Pace {
        for _ in 0..self.waits.poll(cx, DOWNLOAD_LOOK) {
            self.pace.wait();
            self.pace_over_share.wait();
        }
        self.pace()
    }

    fn pace(&self) -> slots::Pace {
        match (self.pace.is_drip, self.pace_over_share.is_drip) {
            (true, _) => slots::Pace::Slow,
            (false, true) => slots::Pace::SlowForMany,
            (false, false) => slots::Pace::Fast,
        }
    }

    /// The client has made room for this much: how fast it is.
    pub fn take(&mut self, bytes: usize) -> slots::Pace {
        self.waits.end();
        self.pace.bring(bytes as u64);
        self.pace_over_share.bring(bytes as u64);
        self.pace()
    }
}

/// How long a client was waited for.
#[derive(Default)]
struct Waits {
    /// Waited for, but for what was told by [`Waits::poll`] and the time since `since`.
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Waits {
    /// The client is waited for: how many periods have gone in which it was, since this was last asked.
    /// Wakes after each.
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

    /// The client is waited for no more.
    fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// What a client may still owe. Each period of waiting costs, what it brings or takes pays, and neither
/// is remembered for long: no burst at its beginning buys hours, and who was slow then isn't for ever.
struct Pace {
    /// What a period costs, bytes.
    cost: u64,
    credit: u64,
    credit_max: u64,
    /// Since the last period of waiting was over.
    brought: u64,
    is_drip: bool,
}

impl Pace {
    /// Of `cost` bytes for each period; so many periods may be owed.
    fn new(cost: u64, grace: u64) -> Pace {
        let credit = grace.saturating_mul(cost);
        Pace {
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

    /// A period of waiting is over.
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

const DOWNLOAD_LOOK: Duration = Duration::from_millis(DOWNLOAD_LOOK_MILLISECONDS);
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = UPLOAD_BYTES_PER_SECOND;

    /// In which seconds it drips, if it brings so much in each.
    fn drips(grace_seconds: u64, brought: &[u64]) -> Vec<usize> {
        let mut pace = Pace::new(RATE, grace_seconds);
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
        // Who was slow early isn't for ever.
        assert_eq!(drips(3, &[0, 0, 0, 0, 0, RATE, RATE]), [3, 4]);
        assert_eq!(drips(300, &[0; 302]), [300, 301]);
    }

    #[test]
    fn what_comes_ends_a_drip() {
        let mut pace = Pace::new(RATE, 0);
        pace.wait();
        assert!(pace.is_drip);
        pace.bring(RATE - 1);
        assert!(pace.is_drip, "not enough");
        let mut pace = Pace::new(RATE, 1);
        pace.wait();
        pace.wait();
        assert!(pace.is_drip);
        pace.bring(RATE);
        assert!(!pace.is_drip);
    }
}
