//! Counters and a latency histogram for each worker.
//!
//! Each worker writes its own counters, so counting costs a load and a store, and no cache line moves
//! between processors. Status and metrics sum up the counters of all workers. Counters of one sum may
//! differ by a request under way.

use base::counter::Counter;
use std::sync::Arc;
use wire::limits::REFUSAL_RULES_MAX;

macro_rules! counters {
    ($( $name:ident $doc:literal; )*) => {
        /// Counters of one worker. The alignment keeps two workers from writing to one cache line, and to
        /// the pair of lines that some processors fetch together.
        #[derive(Default, Debug)]
        #[repr(align(128))]
        pub struct Counters {
            $( #[doc = $doc] pub $name: Counter, )*
            /// Responses by the first digit of the status code: index 1 for 1xx to 5 for 5xx.
            pub statuses: [Counter; 6],
            /// Microseconds from the last byte of a request read to the response passed to the kernel.
            pub latency: Histogram,
            /// Refused requests by the position of the rule in the table of all rules.
            pub refusals: RuleCounters,
            /// Number of the worker.
            pub worker: usize,
        }

        /// Sums over all workers at one moment.
        #[derive(Clone, Default, PartialEq, Eq, Debug)]
        pub struct Totals {
            $( #[doc = $doc] pub $name: u64, )*
            /// Responses by the first digit of the status code.
            pub statuses: [u64; 6],
            /// Latencies of all responses in microseconds.
            pub latency: LatencyTotals,
            /// Refused requests by the position of the rule in the table of all rules.
            pub refusals: Vec<u64>,
        }

        impl Totals {
            /// Adds the counters of one worker.
            pub fn add(&mut self, counters: &Counters) {
                $( self.$name += counters.$name.value(); )*
                for (sum, counter) in self.statuses.iter_mut().zip(&counters.statuses) {
                    *sum += counter.value();
                }
                self.latency.add(&counters.latency);
                self.refusals.resize(REFUSAL_RULES_MAX, 0);
                for (sum, counter) in self.refusals.iter_mut().zip(&counters.refusals.0) {
                    *sum += counter.value();
                }
            }

            /// Returns the plain counters, each with its name and a description.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$( (stringify!($name), $doc, self.$name), )*].into_iter()
            }
        }
    };
}

counters! {
    requests "Requests answered, including refused requests";
    bytes_sent "Bytes handed to the kernel, before encryption";
    bytes_received "Bytes read, after decryption";
    connections_opened "Connections accepted";
    connections_closed "Connections ended";
    handshakes_full "Full TLS handshakes";
    handshakes_resumed "Resumed TLS handshakes";
    handshakes_failed "TLS handshakes that failed";
    rejects "Requests and connections refused by a rule";
    deadlines "Connections ended because the peer was too slow";
    panics "Panics caught";
    h2_connections "Connections that speak HTTP/2";
    h2_connections_closed "Connections that spoke HTTP/2 and ended";
    h2_resets "HTTP/2 streams that ended without a whole response";
    h2_errors "HTTP/2 connections ended because the peer broke a rule or flooded the server";
    h3_connections "Connections that speak HTTP/3";
    h3_connections_closed "Connections that spoke HTTP/3 and ended";
    h3_resets "HTTP/3 requests that ended without a whole response";
    h3_errors "HTTP/3 connections ended because the peer broke a rule or flooded the server";
    h3_retries "HTTP/3 clients asked to validate their address before the handshake";
    cache_hits "Requests answered immediately from the page cache";
}

impl Counters {
    /// Counts one response.
    #[inline]
    pub fn response(&self, status: u16, bytes_sent: u64, micros: u64) {
        self.tunnel(status, bytes_sent);
        self.latency.record(micros);
    }

    /// Counts one tunnel at its end. The duration of a tunnel depends on both of its ends, and is no
    /// latency of the server.
    #[inline]
    pub(crate) fn tunnel(&self, status: u16, bytes_sent: u64) {
        self.requests.increment();
        self.bytes_sent.add(bytes_sent);
        if let Some(counter) = self.statuses.get(usize::from(status / 100)) {
            counter.increment();
        }
    }
}

/// Guard that counts the end of a connection when dropped.
pub(crate) struct ClosedCount<'c>(pub &'c Counter);

impl Drop for ClosedCount<'_> {
    fn drop(&mut self) {
        self.0.increment();
    }
}

/// Counters of refused requests by rule.
#[derive(Debug)]
pub struct RuleCounters([Counter; REFUSAL_RULES_MAX]);

impl Default for RuleCounters {
    fn default() -> RuleCounters {
        RuleCounters([const { Counter::new() }; REFUSAL_RULES_MAX])
    }
}

impl RuleCounters {
    /// Counts a request refused by the rule at `index` of the table of all rules.
    pub fn increment(&self, index: usize) {
        if let Some(counter) = self.0.get(index) {
            counter.increment();
        }
    }
}

/// Counters of all workers of the process.
#[derive(Clone, Debug)]
pub struct Stats {
    workers: Arc<[Arc<Counters>]>,
}

impl Stats {
    /// Makes counters for `workers` threads, and one more set for all other threads.
    pub fn new(workers: usize) -> Stats {
        Stats {
            workers: (0..=workers)
                .map(|worker| {
                    Arc::new(Counters {
                        worker,
                        ..Counters::default()
                    })
                })
                .collect(),
        }
    }

    /// Returns the counters of worker `index`. An index past the last worker returns the set shared by all
    /// other threads, which use [`Counter::add_shared`].
    pub fn worker(&self, index: usize) -> Arc<Counters> {
        let last = self.workers.len() - 1;
        Arc::clone(&self.workers[index.min(last)])
    }

    /// Returns the sums over all workers.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for counters in self.workers.iter() {
            totals.add(counters);
        }
        totals
    }
}

/// Open connections by the version of HTTP. A connection without a request counts as HTTP/1.1.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct OpenConnections {
    pub http1: u64,
    pub http2: u64,
    pub http3: u64,
}

impl Totals {
    /// Returns the number of open connections by the version of HTTP.
    pub fn open_connections(&self) -> OpenConnections {
        let http2 = self
            .h2_connections
            .saturating_sub(self.h2_connections_closed);
        let http3 = self
            .h3_connections
            .saturating_sub(self.h3_connections_closed);
        OpenConnections {
            http1: self.connections().saturating_sub(http2 + http3),
            http2,
            http3,
        }
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> u64 {
        self.connections_opened
            .saturating_sub(self.connections_closed)
    }
}

/// Histogram of durations. Buckets are log-linear: exact below 16 µs, then 16 buckets to each doubling, so
/// the error of a value is at most a sixteenth. The last bucket takes all durations from 2^32 µs (71
/// minutes) on.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: [const { Counter::new() }; BUCKETS],
            sum: Counter::default(),
        }
    }
}

impl Histogram {
    /// Counts one duration in microseconds.
    #[inline]
    pub(crate) fn record(&self, micros: u64) {
        self.buckets[bucket_of(micros)].increment();
        self.sum.add(micros);
    }
}

/// Durations of all workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencyTotals {
    buckets: Box<[u64]>,
    /// Sum of all durations in microseconds.
    pub sum: u64,
    /// Number of durations.
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

    /// Returns the durations that were added since `earlier`.
    pub fn since(&self, earlier: &LatencyTotals) -> LatencyTotals {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        LatencyTotals {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
            count: self.count.saturating_sub(earlier.count),
        }
    }

    /// Returns the duration that `thousandths` of all durations stay within, in microseconds (500 = median,
    /// 990 = p99). The result is at most a sixteenth too high, and 0 without durations.
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

    /// Returns the number of durations of at most `micros`, rounded up to the end of the bucket.
    pub fn at_most(&self, micros: u64) -> u64 {
        self.buckets[..=bucket_of(micros)].iter().sum()
    }
}

/// Buckets to each doubling, as a power of two.
const FINE_BITS: u32 = 4;
const FINE: usize = 1 << FINE_BITS;
/// Exponent of the upper end of the histogram: the last bucket begins at 2^32 µs.
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

/// Returns the highest value in a bucket.
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
    fn connections_are_counted_by_version() {
        let stats = Stats::new(2);
        stats.worker(0).connections_opened.add(9);
        stats.worker(1).connections_closed.add(2);
        stats.worker(0).h2_connections.add(4);
        stats.worker(1).h2_connections_closed.add(1);
        stats.worker(1).h3_connections.add(2);
        let open = OpenConnections {
            http1: 2,
            http2: 3,
            http3: 2,
        };
        assert_eq!(stats.totals().open_connections(), open);
        stats.worker(1).connections_closed.add(7);
        assert_eq!(stats.totals().open_connections().http1, 0);
    }

    #[test]
    fn totals_include_workers_and_other_threads() {
        let stats = Stats::new(2);
        stats.worker(0).response(200, 5_100, 40);
        stats.worker(1).response(404, 300, 12);
        stats.worker(1).response(999, 0, 12);
        stats.worker(0).connections_opened.add(3);
        stats.worker(1).connections_closed.increment();
        stats.worker(usize::MAX).panics.add_shared(1_000);
        let totals = stats.totals();
        assert_eq!((totals.requests, totals.bytes_sent), (3, 5_400));
        assert_eq!(totals.statuses, [0, 0, 1, 0, 1, 0]);
        assert_eq!(totals.connections(), 2);
        assert_eq!(totals.latency.count, 3);
        let named: Vec<_> = totals.each().collect();
        assert!(named.contains(&("panics", "Panics caught", 1_000)));
        assert_eq!(align_of::<Counters>(), 128);
    }
}
