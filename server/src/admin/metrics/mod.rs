//! Metrics of the server in the text formats of Prometheus and OpenMetrics. The facts are the status, the
//! balancers and the counters; the table of families says how the facts are named.

mod exposition;
mod families;
pub mod history;

pub use crate::admin::metrics::exposition::MetricsFormat;

use crate::admin::metrics::exposition::Exposition;
use crate::admin::metrics::families::FAMILIES;
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

impl Metrics {
    /// Renders the metrics.
    pub fn render(&self, format: MetricsFormat) -> String {
        let mut out = Exposition::new(format);
        for family in FAMILIES {
            out.begin(family);
            (family.write)(self, &mut out);
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests;
