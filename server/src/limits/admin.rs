//! Bounds of `admin`: the history of the counters.

/// Interval of the samples of the counters. A chart of the last minutes shows each change of 5 s or more.
pub const HISTORY_INTERVAL_SECONDS: u64 = 5;
/// Samples of the counters, for the last 20 minutes. The samples take 13 KiB.
pub const HISTORY_SAMPLES_MAX: usize = 240;
/// Members of balancers with samples of requests and errors. The samples of a member take 2 KiB.
pub const HISTORY_MEMBERS_MAX: usize = 200;
