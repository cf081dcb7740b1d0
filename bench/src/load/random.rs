//! Pseudo-random pauses. The sequence is the same in every run, to keep runs comparable. Both event loops, of
//! HTTP/1.1 and of multiplexed connections, take their pauses from here.

use super::timeline::{Nanos, nanos};

/// A pseudo-random number generator (xorshift64*), one for each thread.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: usize) -> Random {
        Random((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }

    /// Returns a duration between `from` and `to` seconds.
    pub(super) fn between(&mut self, from: f64, to: f64) -> Nanos {
        nanos(from + (to - from) * self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_over_their_range() {
        let mut random = Random::new(0);
        let pauses: Vec<Nanos> = (0..10_000).map(|_| random.between(1.0, 3.0)).collect();
        assert!(
            pauses
                .iter()
                .all(|pause| (nanos(1.0)..nanos(3.0)).contains(pause))
        );
        let mean = pauses.iter().sum::<Nanos>() / 10_000;
        assert!((nanos(1.95)..nanos(2.05)).contains(&mean), "{mean}");
    }
}
