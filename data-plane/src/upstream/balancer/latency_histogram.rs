//! Histogram of the latencies of a member: the times from a request sent to the head of the answer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper ends of the buckets in microseconds, from a member on the same machine to a slow report.
pub const LATENCY_BUCKET_MICROS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// Number of buckets: one for each upper end, and one for all longer times.
const BUCKETS: usize = LATENCY_BUCKET_MICROS.len() + 1;

/// Histogram of the latencies of a member, shared by all workers. An answer costs two additions beside the
/// member's other counters.
#[derive(Default)]
pub(super) struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
    sum_micros: AtomicU64,
}

/// Latencies of a member at one moment.
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
    pub(super) fn record(&self, micros: u64) {
        let bucket = LATENCY_BUCKET_MICROS.partition_point(|end| *end < micros);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }

    /// Returns the latencies counted so far.
    pub(super) fn read(&self) -> LatencyBuckets {
        LatencyBuckets {
            counts: std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed)),
            sum_micros: self.sum_micros.load(Relaxed),
        }
    }
}

impl LatencyBuckets {
    /// Returns the bucket of the latency that `thousandths` of all latencies stay within (500 = median, 990 = p99);
    /// None without latencies.
    pub fn percentile_bucket(&self, thousandths: u64) -> Option<usize> {
        let count: u64 = self.counts.iter().sum();
        let wanted = (count * thousandths.min(1_000)).div_ceil(1_000).max(1);
        let mut seen = 0;
        self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
