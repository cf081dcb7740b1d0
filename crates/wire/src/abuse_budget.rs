//! Abuse budget of a connection. Frames without use for a response cost points; time and completed
//! responses refund points (prices are in `limits`). A peer without points is disconnected, in HTTP/2 with
//! ENHANCE_YOUR_CALM.

use crate::limits::{
    ABUSE_POINTS_MAX, ABUSE_POINTS_PER_SECOND, DATA_POINT_BYTES, DATA_POINT_BYTES_LARGE,
    DATA_POINTS,
};

/// Exhausted abuse budget, with the name of the last expense.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AbuseBudgetExhausted(pub &'static str);

/// Points of a connection.
pub struct AbuseBudget {
    points: u32,
    /// Time of the last refund for elapsed time, in the driver's milliseconds.
    at_ms: u64,
}

impl Default for AbuseBudget {
    fn default() -> AbuseBudget {
        AbuseBudget {
            points: ABUSE_POINTS_MAX,
            at_ms: 0,
        }
    }
}

impl AbuseBudget {
    /// Charges `price` points for `what`.
    pub fn spend(
        &mut self,
        price: u32,
        now_ms: u64,
        what: &'static str,
    ) -> Result<(), AbuseBudgetExhausted> {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        let back = passed_ms.saturating_mul(u64::from(ABUSE_POINTS_PER_SECOND)) / 1_000;
        if back > 0 {
            self.at_ms = now_ms;
            self.refund(u32::try_from(back).unwrap_or(u32::MAX));
        }
        self.points = self
            .points
            .checked_sub(price)
            .ok_or(AbuseBudgetExhausted(what))?;
        Ok(())
    }

    /// Refunds points for sent bytes of a response. Small parts are refunded too, because a window opened
    /// byte by byte makes a small part cost as much work as a large one.
    pub fn refund_sent_bytes(&mut self, bytes: usize) {
        let points = (bytes / DATA_POINT_BYTES).min(DATA_POINTS) + bytes / DATA_POINT_BYTES_LARGE;
        self.refund(points as u32);
    }

    /// Refunds `points`, up to the initial number.
    pub fn refund(&mut self, points: u32) {
        self.points = self.points.saturating_add(points).min(ABUSE_POINTS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_ends_and_a_trickle_does_not() {
        let mut calm = AbuseBudget::default();
        let burst = ABUSE_POINTS_MAX / 100;
        assert!((0..burst).all(|_| calm.spend(100, 5, "burst").is_ok()));
        assert_eq!(
            calm.spend(100, 5, "flood"),
            Err(AbuseBudgetExhausted("flood"))
        );
        // A tenth of the refund for elapsed time is spent for an hour.
        for second in 1..3_600 {
            let spent = calm.spend(ABUSE_POINTS_PER_SECOND / 10, second * 1_000, "trickle");
            assert_eq!(spent, Ok(()));
        }
    }
}
