//! What was done and how long it took: counters and a histogram for each worker.
//!
//! Each worker writes its own, so counting costs a load and a store and no cache line travels;
//! whoever asks (status, metrics) sums them up, and may see one a request ahead of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`, on the one thread that this counter belongs to (of two that add at once, one would
    /// be lost: they take [`Counter::add_shared`]).
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds 1, like [`Counter::add`].
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n` from whichever thread, where all do so.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// What it stands at.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($( $name:ident $doc:literal; )*) => {
        /// One worker's counters. Aligned so that two workers never write to one cache line (nor to
        /// the pair of lines that some processors fetch together).
        #[derive(Default, Debug)]
        #[repr(align(128))]
        pub struct Counters {
            $( #[doc = $doc] pub $name: Counter, )*
            /// Responses by the first digit of their status: index 1 for 1xx to 5 for 5xx.
            pub statuses: [Counter; 6],
            /// Microseconds from a request's last byte read to its response handed to the kernel.
            pub latency: Histogram,
        }

        /// Sums over all workers at one moment.
        #[derive(Clone, Default, PartialEq, Eq, Debug)]
        pub struct Totals {
            $( #[doc = $doc] pub $name: u64, )*
            /// Responses by the first digit of their status.
            pub statuses: [u64; 6],
            /// Microseconds of all responses.
            pub latency: LatencyTotals,
        }

        impl Totals {
            /// Adds one worker's counters.
            pub fn add(&mut self, counters: &Counters) {
                $( self.$name += counters.$name.value(); )*
                for (sum, counter) in self.statuses.iter_mut().zip(&counters.statuses) {
                    *sum += counter.value();
                }
                self.latency.add(&counters.latency);
            }

            /// The plain counters, each with its name and one clause that explains it.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$( (stringify!($name), $doc, self.$name), )*].into_iter()
            }
        }
    };
}

counters! {
    requests "Requests answered, refused ones too";
    bytes_sent "Bytes handed to the kernel, before encryption";
    bytes_received "Bytes read, after decryption";
    connections_opened "Connections accepted";
    connections_closed "Connections ended";
    handshakes_full "Full TLS handshakes";
    handshakes_resumed "Resumed TLS handshakes";
    handshakes_failed "TLS handshakes that failed";
    rejects "Requests refused by a rule";
    deadlines "Connections ended because the peer was too slow";
    panics "Panics caught";
    h2_connections "Connections that speak HTTP/2";
    h2_resets "HTTP/2 streams that ended without a whole response";
    h2_errors "HTTP/2 connections ended because the peer broke a rule or flooded us";
    h3_connections "Connections that speak HTTP/3";
    h3_resets "HTTP/3 requests that ended without a whole response";
    h3_errors "HTTP/3 connections ended because the peer broke a rule or flooded us";
    h3_retries "Clients that were asked to show that their address is theirs before HTTP/3 is spoken with them";
    cache_hits "Requests answered with a kept page, on the spot";
    gzip_bytes_in "Bytes compressed in the background";
    gzip_bytes_out "Bytes that came out of compressing";
}

impl Counters {
    /// Counts one answered request.
    #[inline]
    pub fn response(&self, status: u16, bytes_sent: u64, micros: u64) {
        self.requests.increment();
        self.bytes_sent.add(bytes_sent);
        if let Some(counter) = self.statuses.get(usize::from(status / 100)) {
            counter.increment();
        }
        self.latency.record(micros);
    }
}

/// The counters of all workers, which each takes its own from.
#[derive(Clone, Debug)]
pub struct Stats {
    workers: Arc<[Arc<Counters>]>,
}

impl Stats {
    /// Counters for `workers` threads, and one set more for all other threads.
    pub fn new(workers: usize) -> Stats {
        Stats {
            workers: (0..=workers).map(|_| Arc::default()).collect(),
        }
    }

    /// Those of worker `index`; past the last, those that the other threads share (by
    /// [`Counter::add_shared`]).
    pub fn worker(&self, index: usize) -> Arc<Counters> {
        let last = self.workers.len() - 1;
        Arc::clone(&self.workers[index.min(last)])
    }

    /// Those that all threads share which are no workers: add with [`Counter::add_shared`].
    pub fn others(&self) -> Arc<Counters> {
        self.worker(usize::MAX)
    }

    /// The sums.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in self.workers.iter() {
            totals.add(counters);
        }
        totals
    }
}

impl Totals {
    /// Connections that are open now.
    pub fn connections(&self) -> u64 {
        self.connections_opened
            .saturating_sub(self.connections_closed)
    }
}

/// How often which duration occurred. Buckets are log-linear: exact below 16, then 16 to each
/// doubling, so a value is known to a sixteenth; the last takes all from 2^32 µs (71 minutes) on.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { Counter(AtomicU64::new(0)) }; BUCKETS],
            sum: Counter::default(),
        }
    }
}

impl Histogram {
    /// Counts one duration, microseconds.
    #[inline]
    pub fn record(&self, micros: u64) {
        self.buckets[bucket_of(micros)].increment();
        self.sum.add(micros);
    }
}

/// Durations of all workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencyTotals {
    buckets: Box<[u64]>,
    /// Microseconds in all.
    pub sum: u64,
    /// How many.
    pub count: u64,
}

impl Default for LatencyTotals {
    fn default() -> LatencyTotals {
        LatencyTotals {
            buckets: vec![0; BUCKETS].into(),
            sum: 0,
            count: 0,
        }
    }
}

impl LatencyTotals {
    fn add(&mut self, histogram: &Histogram) {
        for (sum, counter) in self.buckets.iter_mut().zip(&histogram.buckets) {
            let value = counter.value();
            *sum += value;
            self.count += value;
        }
        self.sum += histogram.sum.value();
    }

    /// The duration that `thousandths` of all stay within, microseconds (500 = median, 990 = p99),
    /// at most a sixteenth too high; 0 if there are none.
    pub fn percentile(&self, thousandths: u64) -> u64 {
        let wanted = (self.count * thousandths.min(1_000)).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if count > 0 && seen >= wanted {
                return highest_of(index);
            }
        }
        0
    }

    /// How many took at most `micros` (which is taken as the end of its bucket).
    pub fn at_most(&self, micros: u64) -> u64 {
        self.buckets[..=bucket_of(micros)].iter().sum()
    }
}

/// Buckets to each doubling, as a power of two.
const FINE_BITS: u32 = 4;
const FINE: usize = 1 << FINE_BITS;
/// The highest power of two that is told apart.
const TOP_BITS: u32 = 32;
const BUCKETS: usize = ((TOP_BITS - FINE_BITS + 1) as usize) << FINE_BITS;

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < FINE as u64 {
        return value as usize;
    }
    let doublings = value.ilog2() - FINE_BITS;
    let fine = (value >> doublings) as usize - FINE;
    (((doublings + 1) as usize) * FINE + fine).min(BUCKETS - 1)
}

/// The highest value in a bucket.
fn highest_of(bucket: usize) -> u64 {
    if bucket < FINE {
        return bucket as u64;
    }
    let doublings = bucket / FINE - 1;
    ((FINE + bucket % FINE + 1) as u64) * (1 << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bucket() {
        let mut last = 0;
        for value in 0..100_000 {
            let bucket = bucket_of(value);
            assert!(bucket == last || bucket == last + 1);
            last = bucket;
        }
        let powers = (4..32).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + power / 3]
        });
        for value in (0..100_000).chain(powers) {
            let bucket = bucket_of(value);
            assert!(highest_of(bucket) >= value);
            assert!(bucket == 0 || highest_of(bucket - 1) < value);
            assert!(highest_of(bucket) - value <= value / 16);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_of((1 << 32) - 1), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_known_durations() {
        let stats = Stats::new(2);
        assert_eq!(stats.totals().latency.percentile(500), 0);
        for micros in 1..=1_000 {
            stats.worker(micros as usize % 2).latency.record(micros);
        }
        let latency = stats.totals().latency;
        assert_eq!((latency.count, latency.sum), (1_000, 500_500));
        for (thousandths, exact) in [
            (0, 1),
            (1, 1),
            (10, 10),
            (500, 500),
            (990, 990),
            (1_000, 1_000),
        ] {
            let found = latency.percentile(thousandths);
            assert!(
                found >= exact && found <= exact + exact / 16,
                "{thousandths}: {found}"
            );
        }
        assert_eq!(latency.at_most(10), 10);
        assert_eq!(latency.at_most(u64::MAX), 1_000);
    }

    #[test]
    fn sums_over_workers_and_others() {
        let stats = Stats::new(2);
        stats.worker(0).response(200, 5_100, 40);
        stats.worker(1).response(404, 300, 12);
        stats.worker(1).response(999, 0, 12);
        stats.worker(0).connections_opened.add(3);
        stats.worker(1).connections_closed.increment();
        stats.others().gzip_bytes_in.add_shared(1_000);
        let totals = stats.totals();
        assert_eq!((totals.requests, totals.bytes_sent), (3, 5_400));
        assert_eq!(totals.statuses, [0, 0, 1, 0, 1, 0]);
        assert_eq!(totals.connections(), 2);
        assert_eq!(totals.latency.count, 3);
        let named: Vec<_> = totals.each().collect();
        assert!(named.contains(&("gzip_bytes_in", "Bytes compressed in the background", 1_000)));
        assert_eq!(align_of::<Counters>(), 128);
    }
}
