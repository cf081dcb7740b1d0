//! Collection of the values of the metrics, and of the samples of the history.

use super::publish::Publisher;
use crate::admin::limits::HISTORY_MEMBERS_MAX;
use crate::admin::metrics::history::{History, MemberCounts};
use crate::admin::metrics::{Metrics, MetricsFacts, MetricsFormat, RouteMetrics};
use crate::admin::overview::Overview;
use crate::admin::status::Status;
use base::clock::{monotonic_ms, unix_seconds_now};
use base::machine::{MachineFacts, ProcessFacts, resident_bytes};
use data_plane::ledger::route_counters::RouteCounters;
use data_plane::ledger::stats::Stats;
use data_plane::world::World;
use std::sync::Arc;

/// Returns the metrics of the server in a format. `status` is the present status.
pub(super) fn render(
    status: &Status,
    world: &World,
    stats: &Stats,
    format: MetricsFormat,
) -> String {
    with_metrics(status, world, stats, &|metrics| metrics.render(format))
}

/// Returns the state of the server at a glance.
pub(super) fn overview(status: &Status, world: &World, stats: &Stats, history: &History) -> String {
    with_metrics(status, world, stats, &|metrics| {
        let samples = history.samples().copied().collect();
        Overview { metrics, samples }.text()
    })
}

fn with_metrics(
    status: &Status,
    world: &World,
    stats: &Stats,
    render: &dyn Fn(Metrics<'_>) -> String,
) -> String {
    let now_ms = monotonic_ms();
    let plans = world.balancers.iter();
    let balancers: Vec<_> = plans.map(|plan| plan.balancer().report(now_ms)).collect();
    render(Metrics {
        status,
        balancers: &balancers,
        facts: &facts(world, stats),
    })
}

/// Returns the facts of the metrics beside the status and the balancers.
pub(super) fn facts(world: &World, stats: &Stats) -> MetricsFacts {
    let totals = stats.totals();
    MetricsFacts {
        routes: routes(world),
        latency: totals.latency,
        refusals: totals.refusals,
        process: ProcessFacts::read(),
        machine: MachineFacts::read(),
    }
}

/// Returns the responses of requests without a site, and of each route.
fn routes(world: &World) -> Vec<RouteMetrics> {
    let routes = world.hosts.iter().flat_map(|host| host.routes.routes());
    let cached = routes.filter(|route| route.has_cache());
    let cached: Vec<_> = cached.map(|route| Arc::as_ptr(&route.counters)).collect();
    let metrics = |counters: &Arc<RouteCounters>| RouteMetrics {
        totals: counters.totals(),
        has_cache: cached.contains(&Arc::as_ptr(counters)),
    };
    let first = std::iter::once(&world.without_site);
    first.chain(&world.routes).map(metrics).collect()
}

/// Adds a sample of the counters to the history.
pub(super) fn sample(history: &mut History, publisher: &Publisher) {
    history.record(
        unix_seconds_now(),
        publisher.stats().totals(),
        resident_bytes(),
    );
    let mut left = HISTORY_MEMBERS_MAX;
    for plan in &publisher.world().balancers {
        if left == 0 {
            return;
        }
        let balancer = plan.balancer();
        for member in balancer.members().iter().take(left) {
            let (requests, errors) = member.request_counts();
            history.record_member(&MemberCounts {
                balancer: balancer.name(),
                member: member.name(),
                requests,
                errors,
            });
            left -= 1;
        }
    }
}
