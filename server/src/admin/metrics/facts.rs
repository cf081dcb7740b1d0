//! Facts of the metrics: plain values.

use crate::admin::status::Status;
use crate::base::machine::{MachineFacts, ProcessFacts};
use crate::base::route_counters::RouteTotals;
use crate::base::stats::LatencyTotals;
use crate::upstream::balancer::BalancerReport;

/// Metrics at one moment: the status, the balancers, and the facts beside both.
#[derive(Clone, Copy, Debug)]
pub struct Metrics<'a> {
    /// Status of the server.
    pub status: &'a Status,
    /// Balancers of the configuration with their members.
    pub balancers: &'a [BalancerReport],
    /// Facts beside the status and the balancers.
    pub facts: &'a MetricsFacts,
}

/// Facts of the metrics beside the status and the balancers.
#[derive(Clone, Default, Debug)]
pub struct MetricsFacts {
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
