//! Average latency of a member: an exponentially weighted moving average. The weights decay with time, and
//! the average means equally much for a member with few and with many requests.

use crate::limits::LATENCY_DECAY_MILLISECONDS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Average latency, shared by all workers. Two simultaneous samples may count as one.
#[derive(Default)]
pub(super) struct LatencyAverage {
    /// Average in nanoseconds; 0 before the first sample.
    nanos: AtomicU64,
    /// Time of the last sample in milliseconds.
    sampled_at_ms: AtomicU64,
}

impl LatencyAverage {
    /// Adds a sample.
    pub(super) fn record(&self, micros: u64, now_ms: u64) {
        let sample = micros.clamp(1, u64::from(u32::MAX)) * 1_000;
        let old = self.nanos.load(Relaxed);
        let elapsed_ms = now_ms.saturating_sub(self.sampled_at_ms.swap(now_ms, Relaxed));
        let new = match old {
            0 => sample,
            _ => {
                // The clock has a resolution of 1 ms: each sample counts for at least 1 ms.
                let old_share = decay(elapsed_ms.max(1));
                (old as f64 * old_share + sample as f64 * (1.0 - old_share)) as u64
            }
        };
        self.nanos.store(new.max(1), Relaxed);
    }

    /// Returns the average as of the last sample, in microseconds; None before the first sample.
    pub(super) fn micros_at_last_sample(&self) -> Option<f64> {
        match self.nanos.load(Relaxed) {
            0 => None,
            nanos => Some(nanos as f64 / 1_000.0),
        }
    }

    /// Returns the average for the method `p2c`, in microseconds; None before the first sample. Without samples
    /// the average falls towards zero, so that a member with a slow past is tried again.
    pub(super) fn decayed_micros(&self, now_ms: u64) -> Option<f64> {
        let micros = self.micros_at_last_sample()?;
        let elapsed_ms = now_ms.saturating_sub(self.sampled_at_ms.load(Relaxed));
        Some(match elapsed_ms {
            0..=DECAY_FREE_MILLISECONDS => micros,
            _ => micros * decay(elapsed_ms),
        })
    }
}

/// Age of a sample below which decay is negligible and is not computed.
const DECAY_FREE_MILLISECONDS: u64 = 10;

/// Returns the share that remains of an average after `elapsed_ms`.
fn decay(elapsed_ms: u64) -> f64 {
    (-(elapsed_ms as f64) / LATENCY_DECAY_MILLISECONDS as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_is_the_average() {
        let average = LatencyAverage::default();
        assert_eq!(average.decayed_micros(5), None);
        average.record(300, 1_000);
        assert_eq!(average.decayed_micros(1_000), Some(300.0));
    }

    #[test]
    fn the_average_follows_a_change_within_the_time_constant() {
        let average = LatencyAverage::default();
        average.record(1_000, 0);
        for now_ms in 1..=LATENCY_DECAY_MILLISECONDS {
            average.record(11_000, now_ms);
        }
        // 1 - 1/e of the way.
        let micros = average.decayed_micros(LATENCY_DECAY_MILLISECONDS).unwrap();
        assert!((7_000.0..7_700.0).contains(&micros), "{micros}");
    }

    #[test]
    fn the_average_falls_without_samples() {
        let average = LatencyAverage::default();
        average.record(1_000_000, 0);
        let micros = average
            .decayed_micros(3 * LATENCY_DECAY_MILLISECONDS)
            .unwrap();
        assert!((49_000.0..51_000.0).contains(&micros), "{micros}");
        assert_eq!(average.micros_at_last_sample(), Some(1_000_000.0));
    }

    #[test]
    fn samples_out_of_range_are_bounded() {
        let average = LatencyAverage::default();
        average.record(u64::MAX, 0);
        assert_eq!(average.decayed_micros(0), Some(f64::from(u32::MAX)));
        let average = LatencyAverage::default();
        average.record(0, 0);
        assert_eq!(average.decayed_micros(0), Some(1.0));
    }
}
