//! Bounds of reading on behind a complete response, while the client may still send the content of the request.
//!
//! The content is discarded, so the server holds no place and no memory for it. The bounds are equal for a
//! connection of HTTP/1.1 and for a stream of HTTP/2 or HTTP/3. Pure: the caller passes the time.

use crate::limits::{LINGER_BYTES_MAX, LINGER_SECONDS, LINGER_SILENCE_SECONDS};

/// Progress of a client that sends content behind a complete response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Linger {
    /// Time of the end of the response, in milliseconds.
    since_ms: u64,
    /// Time of the last byte, in milliseconds.
    heard_ms: u64,
    /// Number of discarded bytes.
    bytes: u64,
}

impl Linger {
    /// Starts at the end of the response.
    pub(super) fn new(now_ms: u64) -> Linger {
        Linger {
            since_ms: now_ms,
            heard_ms: now_ms,
            bytes: 0,
        }
    }

    /// Records discarded bytes.
    pub(super) fn note(&mut self, bytes: usize, now_ms: u64) {
        self.heard_ms = now_ms;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Returns the time of the end, in milliseconds, if no further byte arrives.
    pub(super) fn due_ms(&self) -> u64 {
        if self.bytes > LINGER_BYTES_MAX {
            self.heard_ms
        } else {
            let silence_ms = self.heard_ms + LINGER_SILENCE_SECONDS * 1_000;
            silence_ms.min(self.since_ms + LINGER_SECONDS * 1_000)
        }
    }

    /// Returns true after the end.
    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_client_is_left_after_5_seconds() {
        let mut linger = Linger::new(1_000);
        assert_eq!(linger.due_ms(), 6_000);
        linger.note(1, 5_999);
        assert!(!linger.is_over(10_998) && linger.is_over(10_999));
    }

    #[test]
    fn a_client_that_sends_without_end_is_left_after_30_seconds() {
        let mut linger = Linger::new(1_000);
        for now_ms in (1_000..31_000).step_by(100) {
            assert!(!linger.is_over(now_ms), "{now_ms}");
            linger.note(1_000_000, now_ms);
        }
        assert_eq!(linger.due_ms(), 31_000);
        assert!(linger.is_over(31_000));
    }

    #[test]
    fn a_client_is_left_after_too_many_bytes() {
        let mut linger = Linger::new(0);
        let part = 1 << 30;
        for now_ms in 1..=LINGER_BYTES_MAX / part {
            linger.note(part as usize, now_ms);
            assert!(!linger.is_over(now_ms));
        }
        linger.note(1, 10);
        assert!(linger.is_over(10));
    }
}
