//! The rest of a request's body, and whether its client is worth the place that its call has.
//!
//! A place is taken only once a short body is there, or as much of a long one; the rest is streamed. A
//! client that then drips would have a script wait for it while others wait for the place: so it loses
//! it, but only to them.

use super::pipe::{Broken, Reader, Taken};
use super::slots::Slots;
use crate::limits::{UPLOAD_BYTES_PER_SECOND, UPLOAD_GRACE_SECONDS};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// A reader that knows how long it was waited for.
pub struct Paced {
    reader: Reader,
    slots: Arc<Slots>,
    bytes: u64,
    /// In all, but for this time.
    waited: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    is_dripping: bool,
}

impl Paced {
    /// For a call that has one of these places.
    pub fn new(reader: Reader, slots: Arc<Slots>) -> Paced {
        Paced {
            reader,
            slots,
            bytes: 0,
            waited: Duration::ZERO,
            since: None,
            timer: None,
            is_dripping: false,
        }
    }

    /// As [`Reader::poll_take`].
    pub fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        max: usize,
    ) -> Poll<Result<Taken, Broken>> {
        let taken = self.reader.poll_take(cx, out, max);
        match &taken {
            Poll::Pending => self.wait(cx),
            Poll::Ready(taken) => {
                if let Some(since) = self.since.take() {
                    self.waited += since.elapsed();
                }
                if let Ok(Taken::Bytes(count)) = taken {
                    self.bytes += *count as u64;
                }
            }
        }
        taken
    }

    /// Do others wait for the place of a client that sends next to nothing?
    pub fn is_dripping(&self) -> bool {
        self.is_dripping
    }

    /// Looks at the pace, now and every second.
    fn wait(&mut self, cx: &mut Context<'_>) {
        let since = *self.since.get_or_insert_with(Instant::now);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + LOOK);
            let is_drip = is_drip(self.waited + since.elapsed(), self.bytes);
            self.is_dripping |= is_drip && self.slots.are_wanted();
        }
    }
}

/// Is this next to nothing for so long a wait?
fn is_drip(waited: Duration, bytes: u64) -> bool {
    let seconds = waited.as_secs();
    seconds >= UPLOAD_GRACE_SECONDS && bytes < seconds.saturating_mul(UPLOAD_BYTES_PER_SECOND)
}

const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_drip() {
        let rate = UPLOAD_BYTES_PER_SECOND;
        for (seconds, bytes, is) in [
            (0, 0, false),
            (UPLOAD_GRACE_SECONDS - 1, 0, false),
            (UPLOAD_GRACE_SECONDS, 0, true),
            (10, 10 * rate - 1, true),
            (10, 10 * rate, false),
        ] {
            let waited = Duration::from_secs(seconds);
            assert_eq!(is_drip(waited, bytes), is, "{seconds} {bytes}");
        }
    }
}
