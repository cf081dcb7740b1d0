//! Plain values behind the metrics: the status, the balancers and the counters of the server.

use crate::admin::status::Status;
use balancer::BalancerReport;
use base::machine::{MachineFacts, ProcessFacts};
use data_plane::ledger::route_counters::RouteTotals;
use data_plane::ledger::stats::LatencyTotals;

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

/// Responses of a site, over all its routes.
#[derive(Debug)]
pub(crate) struct SiteTotals<'a> {
    /// Name of the site; empty for requests without a site.
    pub name: &'a str,
    /// Responses by version of HTTP: 1.0, 1.1, 2 and 3.
    pub versions: [u64; 4],
    /// Responses by class of the status: index 0 for 1xx to 4 for 5xx.
    pub classes: [u64; 5],
    /// Bytes of contents.
    pub sent_bytes: u64,
    /// Responses from the page cache.
    pub from_cache: u64,
}

impl MetricsFacts {
    /// Returns the responses of each site.
    pub(crate) fn sites(&self) -> Vec<SiteTotals<'_>> {
        // Routes of a site follow one another.
        let sites = self.routes.chunk_by(|a, b| a.totals.site == b.totals.site);
        let totals = sites.map(|routes| {
            let mut site = SiteTotals {
                name: &routes[0].totals.site,
                versions: [0; 4],
                classes: [0; 5],
                sent_bytes: 0,
                from_cache: 0,
            };
            for RouteMetrics { totals, .. } in routes {
                for (version, counts) in site.versions.iter_mut().zip(&totals.statuses) {
                    for (class, number) in site.classes.iter_mut().zip(counts) {
                        *version += number;
                        *class += number;
                    }
                }
                site.sent_bytes += totals.bytes_sent;
                site.from_cache += totals.cache[0];
            }
            site
        });
        totals.collect()
    }
}

/// Responses of a route.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    /// Sums of the route's counters.
    pub totals: RouteTotals,
    /// True if the page cache may answer requests of the route.
    pub has_cache: bool,
}
