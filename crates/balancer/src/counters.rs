//! Measurements of a member, shared by all workers: counters and latencies of its requests, and the load that the member
//! announces. A request adds to atomics, without a lock.
//!
//! The weights of the average latency decay with time, and the average means equally much for a member with few and with
//! many requests.

use crate::limits::{HEARTBEAT_EXPIRY_MILLISECONDS, LATENCY_DECAY_MILLISECONDS};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use wire::heartbeat::Heartbeat;

/// Counters of a member since the member was added.
#[derive(Default)]
pub(crate) struct MemberCounters {
    /// Requests given to the member.
    pub(crate) elected: AtomicU64,
    /// Requests given to the member after another member failed.
    pub(crate) retries: AtomicU64,
    /// Failed requests.
    pub(crate) errors: AtomicU64,
    /// Bytes sent to the member.
    pub(crate) sent_bytes: AtomicU64,
    /// Bytes received from the member.
    pub(crate) received_bytes: AtomicU64,
}

/// Average latency, shared by all workers. Two simultaneous samples may count as one.
#[derive(Default)]
pub(crate) struct LatencyAverage {
    /// Average in nanoseconds; 0 before the first sample.
    nanos: AtomicU64,
    /// Time of the last sample in milliseconds.
    sampled_at_ms: AtomicU64,
}

impl LatencyAverage {
    /// Adds a sample.
    pub(crate) fn record(&self, micros: u64, now_ms: u64) {
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
    pub(crate) fn micros_at_last_sample(&self) -> Option<f64> {
        match self.nanos.load(Relaxed) {
            0 => None,
            nanos => Some(nanos as f64 / 1_000.0),
        }
    }

    /// Returns the average for the method `p2c`, in microseconds; None before the first sample. Without samples
    /// the average falls towards zero, so that a member with a slow past is tried again.
    pub(crate) fn decayed_micros(&self, now_ms: u64) -> Option<f64> {
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

/// Upper ends of the buckets in microseconds, from a member on the same machine to a slow report.
pub const LATENCY_BUCKET_MICROS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// Number of buckets: one for each upper end, and one for all longer times.
const BUCKETS: usize = LATENCY_BUCKET_MICROS.len() + 1;

/// Histogram of the latencies of a member or of a backend, shared by all workers. An answer costs two additions beside
/// the other counters.
#[derive(Default)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

/// Latencies of a member or of a backend at one moment.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LatencyBuckets {
    /// Number of latencies within each bucket: above the upper end of the bucket before, and at most the end
    /// in [`LATENCY_BUCKET_MICROS`]. The last bucket has no end.
    pub counts: [u64; BUCKETS],
    /// Sum of all latencies in microseconds.
    pub sum_micros: u64,
}

impl LatencyHistogram {
    /// Counts a latency.
    pub fn record(&self, micros: u64) {
        let bucket = LATENCY_BUCKET_MICROS.partition_point(|end| *end < micros);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// Returns the latencies counted so far.
    pub fn read(&self) -> LatencyBuckets {
        LatencyBuckets {
            counts: std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed)),
            sum_micros: self.sum_micros.load(Relaxed),
        }
    }
}

impl LatencyBuckets {
    /// Returns a bound of the latency that `thousandths` of all latencies stay within (500 = median): the end of its
    /// bucket in microseconds, and true if the latency lies beyond the end. None without latencies.
    pub fn percentile_bound(&self, thousandths: u64) -> Option<(u64, bool)> {
        let bucket = self.percentile_bucket(thousandths)?;
        let last = LATENCY_BUCKET_MICROS.len() - 1;
        Some((LATENCY_BUCKET_MICROS[bucket.min(last)], bucket > last))
    }

    /// Returns the bucket of the latency that `thousandths` of all latencies stay within (500 = median, 990 = p99);
    /// None without latencies.
    fn percentile_bucket(&self, thousandths: u64) -> Option<usize> {
        let count: u64 = self.counts.iter().sum();
        let wanted = (count * thousandths.min(1_000)).div_ceil(1_000).max(1);
        let mut seen = 0;
        self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })
    }
}

/// Returns the weight of a member in a random choice. A member without busy workers probably started a moment
/// ago and counts a quarter, as in Apache's mod_lbmethod_heartbeat, but at least 1.
fn weight(heartbeat: Heartbeat) -> u32 {
    match heartbeat {
        Heartbeat { ready, busy: 0, .. } if ready > 0 => (ready / 4).max(1),
        Heartbeat { ready, .. } => ready,
    }
}

/// Last heartbeat of a member, shared by all workers.
#[derive(Default)]
pub(crate) struct LastHeartbeat {
    /// Idle workers in the upper half, busy workers in the lower half.
    numbers: AtomicU64,
    /// Time of the heartbeat in milliseconds, plus 1; 0 before the first heartbeat.
    heard_at: AtomicU64,
}

impl LastHeartbeat {
    /// Replaces the heartbeat.
    pub(crate) fn record(&self, heartbeat: Heartbeat, now_ms: u64) {
        let numbers = u64::from(heartbeat.ready) << 32 | u64::from(heartbeat.busy);
        self.numbers.store(numbers, Relaxed);
        self.heard_at.store(now_ms.saturating_add(1), Relaxed);
    }

    /// Returns the heartbeat, without its port, unless expired.
    pub(crate) fn fresh(&self, now_ms: u64) -> Option<Heartbeat> {
        let heard_at_ms = self.heard_at.load(Relaxed).checked_sub(1)?;
        let age_ms = now_ms.saturating_sub(heard_at_ms);
        let numbers = self.numbers.load(Relaxed);
        (age_ms < HEARTBEAT_EXPIRY_MILLISECONDS).then_some(Heartbeat {
            ready: (numbers >> 32) as u32,
            busy: numbers as u32,
            port: None,
        })
    }

    /// Returns the weight of the member in a random choice; 0 without a fresh heartbeat.
    pub(crate) fn weight(&self, now_ms: u64) -> u32 {
        self.fresh(now_ms).map_or(0, weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn a_latency_counts_in_the_bucket_with_the_next_end() {
        let histogram = LatencyHistogram::default();
        for micros in [0, 500, 501, 1_000, 10_000_000, 10_000_001, 60_000_000] {
            histogram.record(micros);
        }
        let read = histogram.read();
        assert_eq!(read.counts[..3], [2, 2, 0]);
        assert_eq!(read.counts[BUCKETS - 2..], [1, 2]);
        assert_eq!(read.counts.iter().sum::<u64>(), 7);
        assert_eq!(read.sum_micros, 80_002_002);
        assert!(LATENCY_BUCKET_MICROS.is_sorted());
    }

    #[test]
    fn percentiles_are_buckets() {
        let histogram = LatencyHistogram::default();
        assert_eq!(histogram.read().percentile_bucket(500), None);
        for _ in 0..98 {
            histogram.record(400);
        }
        for micros in [700, 20_000_000] {
            histogram.record(micros);
        }
        let read = histogram.read();
        for (thousandths, bucket) in [(0, 0), (500, 0), (980, 0), (990, 1), (991, 14), (1_000, 14)]
        {
            let found = read.percentile_bucket(thousandths);
            assert_eq!(found, Some(bucket), "{thousandths}");
        }
        assert_eq!(read.percentile_bound(500), Some((500, false)));
        assert_eq!(read.percentile_bound(1_000), Some((10_000_000, true)));
    }

    fn heartbeat(ready: u32, busy: u32) -> Heartbeat {
        Heartbeat {
            ready,
            busy,
            port: None,
        }
    }

    #[test]
    fn heartbeats_expire() {
        let last = LastHeartbeat::default();
        assert_eq!(last.weight(0), 0);
        last.record(heartbeat(8, 1), 0);
        assert_eq!(last.weight(HEARTBEAT_EXPIRY_MILLISECONDS - 1), 8);
        assert_eq!(last.weight(HEARTBEAT_EXPIRY_MILLISECONDS), 0);
    }

    #[test]
    fn a_member_without_busy_workers_counts_a_quarter() {
        let weight = |ready, busy| weight(heartbeat(ready, busy));
        assert_eq!([weight(80, 1), weight(80, 0), weight(3, 0)], [80, 20, 1]);
        assert_eq!([weight(0, 0), weight(0, 9)], [0, 0]);
    }

    proptest! {
        #[test]
        fn a_recorded_heartbeat_is_read(ready: u32, busy: u32) {
            let last = LastHeartbeat::default();
            last.record(heartbeat(ready, busy), 5);
            prop_assert_eq!(last.fresh(6), Some(heartbeat(ready, busy)));
        }
    }
}
