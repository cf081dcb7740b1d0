//! Facts of the metrics: plain values.

use crate::admin::status::Status;
use crate::base::machine::{MachineFacts, ProcessFacts};
use crate::base::route_counters::RouteTotals;
use crate::base::stats::LatencyTotals;
use crate::upstream::balancer::BalancerReport;

/// Facts for the metrics at one moment.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Status of the server.
    pub status: Status,
    /// Balancers of the configuration with their members.
    pub balancers: Vec<BalancerReport>,
    /// Responses of each route. Requests without a site are the first entry.
    pub routes: Vec<RouteMetrics>,
    /// Latencies of all responses.
    pub latency: LatencyTotals,
    /// Refused requests by the position of the rule in the table of all rules.
    pub refusals: Vec<u64>,
    /// Resources of the process.
    pub process: ProcessFacts,
    /// Temperature and throttling of the machine.
    pub machine: MachineFacts,
}

/// Responses of a route.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    /// Sums of the route's counters.
    pub totals: RouteTotals,
    /// True if the page cache may answer requests of the route.
    pub has_cache: bool,
}
