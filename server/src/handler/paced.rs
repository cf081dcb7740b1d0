//! The rest of a request's body, and whether its client is worth the place that its call has.
//!
//! A place is taken only once a short body is there, or as much of a long one; the rest is streamed. A
//! client that then drips would have a script wait for it while others wait for the place: so it loses
//! it, but only to them.

use super::asked::Rest;
use super::pipe::{Broken, Taken};
use crate::limits::{UPLOAD_BYTES_PER_SECOND, UPLOAD_GRACE_SECONDS};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// The rest of a body, and how long its client was waited for.
pub struct Paced {
    rest: Rest,
    pace: Pace,
    /// Waited for, but for this time and what `pace` knows of.
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// For a client that may pause for `patience`, or for as long as anybody may if that is longer.
    pub fn new(rest: Rest, patience: Duration) -> Paced {
        Paced {
            rest,
            pace: Pace::new(patience.as_secs().max(UPLOAD_GRACE_SECONDS)),
            waited: Duration::ZERO,
            since: None,
            timer: None,
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
            Poll::Pending => self.wait(cx),
            Poll::Ready(taken) => {
                if let Some(since) = self.since.take() {
                    self.waited += since.elapsed();
                }
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
        self.since.is_some()
    }

    /// Is it waited for, and brings next to nothing?
    pub fn is_dripping(&self) -> bool {
        self.is_awaited() && self.pace.is_drip
    }

    /// Looks at the pace, now and every second.
    fn wait(&mut self, cx: &mut Context<'_>) {
        self.since.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(SECOND)));
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            timer.as_mut().reset(now + SECOND);
            if let Some(since) = self.since.replace(now) {
                self.waited += now - since;
            }
            while let Some(rest) = self.waited.checked_sub(SECOND) {
                self.waited = rest;
                self.pace.wait_a_second();
            }
        }
    }
}

/// What a client may still owe. Each second of waiting costs, what it brings pays, and neither is
/// remembered for long: no burst at its beginning buys hours, and who was slow then isn't for ever.
struct Pace {
    credit: u64,
    credit_max: u64,
    /// Since the last second of waiting was over.
    brought: u64,
    is_drip: bool,
}

impl Pace {
    fn new(grace_seconds: u64) -> Pace {
        let credit = grace_seconds.saturating_mul(UPLOAD_BYTES_PER_SECOND);
        Pace {
            credit,
            credit_max: credit,
            brought: 0,
            is_drip: false,
        }
    }

    fn bring(&mut self, bytes: u64) {
        self.brought = self.brought.saturating_add(bytes);
        self.is_drip &= self.had() < UPLOAD_BYTES_PER_SECOND;
    }

    fn wait_a_second(&mut self) {
        let left = self.had().checked_sub(UPLOAD_BYTES_PER_SECOND);
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

const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = UPLOAD_BYTES_PER_SECOND;

    /// In which seconds it drips, if it brings so much in each.
    fn drips(grace_seconds: u64, brought: &[u64]) -> Vec<usize> {
        let mut pace = Pace::new(grace_seconds);
        let mut all = Vec::new();
        for (second, bytes) in brought.iter().enumerate() {
            pace.bring(*bytes);
            pace.wait_a_second();
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
        let mut pace = Pace::new(0);
        pace.wait_a_second();
        assert!(pace.is_drip);
        pace.bring(RATE - 1);
        assert!(pace.is_drip, "not enough");
        let mut pace = Pace::new(1);
        pace.wait_a_second();
        pace.wait_a_second();
        assert!(pace.is_drip);
        pace.bring(RATE);
        assert!(!pace.is_drip);
    }
}
