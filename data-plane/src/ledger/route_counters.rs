//! Counters of responses by site and route. The number of counters depends on the configuration alone: a
//! request chooses among the counters of the configured routes and never adds counters.

use base::counter::Counter;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Number of versions of HTTP.
pub(crate) const VERSIONS: usize = 4;
/// Number of status classes: index 0 for 1xx to 4 for 5xx. An invalid code counts as 5xx (RFC 9110 §15).
pub(crate) const STATUS_CLASSES: usize = 5;

/// Part of the page cache in a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CacheOutcome {
    /// The request did not pass through the page cache.
    #[default]
    None,
    /// A fresh page of the cache.
    Hit,
    /// A page of the cache beyond its freshness, during revalidation or after an error.
    Stale,
    /// The response to a concurrent call for an equal request.
    Collapsed,
    /// The response to a call, because the cache had no usable page.
    Miss,
    /// The response to a call that the cache may not share.
    Bypass,
}

impl CacheOutcome {
    /// Number of outcomes with a counter.
    pub const COUNTED: usize = 5;
    /// Names of the outcomes with a counter, in the order of the counters.
    pub const NAMES: [&'static str; CacheOutcome::COUNTED] =
        ["hit", "stale", "collapsed", "miss", "bypass"];
}

/// Counters of one route on one worker. The alignment keeps two workers from writing to one cache line.
#[derive(Default, Debug)]
#[repr(align(64))]
struct WorkerCounters {
    statuses: [[Counter; STATUS_CLASSES]; VERSIONS],
    cache: [Counter; CacheOutcome::COUNTED],
    bytes_sent: Counter,
}

/// Series of a response within its route: the version of HTTP and the part of the page cache.
#[derive(Clone, Copy, Debug)]
pub struct ResponseSeries {
    /// Index of the version of HTTP, below [`VERSIONS`].
    pub version: u8,
    /// Part of the page cache.
    pub cache: CacheOutcome,
}

/// Counters of the responses of one route, or of a site's own files, or of requests without a site.
#[derive(Debug)]
pub struct RouteCounters {
    site: Box<str>,
    route: Box<str>,
    /// Counters of each worker, made by the first response of the worker.
    workers: Box<[OnceLock<Box<WorkerCounters>>]>,
}

/// Sums over all workers at one moment.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RouteTotals {
    /// First name of the site; empty for requests without a site.
    pub site: Box<str>,
    /// Path of the route with a slash at the end; empty for requests without a site.
    pub route: Box<str>,
    /// Responses by version of HTTP and by the first digit of the status code.
    pub statuses: [[u64; STATUS_CLASSES]; VERSIONS],
    /// Responses by the part of the page cache.
    pub cache: [u64; CacheOutcome::COUNTED],
    /// Bytes of content sent.
    pub bytes_sent: u64,
}

impl RouteCounters {
    /// Returns counters for `workers` threads.
    pub fn new(site: &str, route: &str, workers: usize) -> RouteCounters {
        RouteCounters {
            site: site.into(),
            route: route.into(),
            workers: (0..workers).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Counts a response on the thread of the worker with the number `worker`. A number past the last worker
    /// counts nothing.
    #[inline]
    pub fn count(&self, worker: usize, series: ResponseSeries, status: u16, bytes: u64) {
        let Some(counters) = self.workers.get(worker) else {
            return;
        };
        let counters = counters.get_or_init(Box::default);
        let class = usize::from(status / 100).wrapping_sub(1);
        let class = class.min(STATUS_CLASSES - 1);
        counters.statuses[usize::from(series.version) % VERSIONS][class].increment();
        counters.bytes_sent.add(bytes);
        if series.cache != CacheOutcome::None {
            counters.cache[series.cache as usize - 1].increment();
        }
    }

    /// Returns the sums over all workers.
    pub fn totals(&self) -> RouteTotals {
        let mut totals = RouteTotals {
            site: self.site.clone(),
            route: self.route.clone(),
            ..RouteTotals::default()
        };
        for counters in self.workers.iter().filter_map(OnceLock::get) {
            let sums = totals.statuses.iter_mut().flatten();
            for (sum, counter) in sums.zip(counters.statuses.iter().flatten()) {
                *sum += counter.value();
            }
            for (sum, counter) in totals.cache.iter_mut().zip(&counters.cache) {
                *sum += counter.value();
            }
            totals.bytes_sent += counters.bytes_sent.value();
        }
        totals
    }

    /// Returns the first name of the site; empty for requests without a site.
    pub fn site(&self) -> &str {
        &self.site
    }

    fn is_for(&self, site: &str, route: &str) -> bool {
        *self.site == *site && *self.route == *route
    }
}

/// Ledger of the counters of all routes of the served configuration. A route that stays in the configuration
/// keeps its counters over a reload.
#[derive(Debug)]
pub struct RouteLedger {
    workers: usize,
    without_site: Arc<RouteCounters>,
    routes: Mutex<Vec<Arc<RouteCounters>>>,
}

impl RouteLedger {
    /// Returns a ledger for `workers` threads, without routes.
    pub fn new(workers: usize) -> RouteLedger {
        RouteLedger {
            workers,
            without_site: Arc::new(RouteCounters::new("", "", workers)),
            routes: Mutex::default(),
        }
    }

    /// Returns the counters of requests without a site: malformed requests, and unknown host names.
    pub fn without_site(&self) -> &Arc<RouteCounters> {
        &self.without_site
    }

    /// Returns the counters of a route from `new`, else from the ledger, else new counters. New counters are
    /// added to `new`, and the ledger stays as it is.
    pub fn find_or_new(
        &self,
        site: &str,
        route: &str,
        new: &mut Vec<Arc<RouteCounters>>,
    ) -> Arc<RouteCounters> {
        // The routes of a site follow each other.
        let mut same_site = new.iter().rev().take_while(|known| *known.site == *site);
        if let Some(known) = same_site.find(|known| *known.route == *route) {
            return Arc::clone(known);
        }
        let routes = self.lock();
        // The order of the routes rarely changes, so the counters of the route mostly stand at its old place.
        let guess = routes.get(new.len()).into_iter();
        let known = guess
            .chain(routes.iter())
            .find(|known| known.is_for(site, route));
        let counters = match known {
            Some(known) => Arc::clone(known),
            None => Arc::new(RouteCounters::new(site, route, self.workers)),
        };
        new.push(Arc::clone(&counters));
        counters
    }

    /// Replaces the routes by the routes of a World that is about to be served.
    pub(crate) fn register(&self, routes: &[Arc<RouteCounters>]) {
        *self.lock() = routes.to_vec();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<RouteCounters>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(version: u8) -> ResponseSeries {
        ResponseSeries {
            version,
            cache: CacheOutcome::None,
        }
    }

    #[test]
    fn sums_include_all_workers() {
        let route = RouteCounters::new("a.org", "/", 2);
        route.count(0, series(1), 200, 10);
        route.count(1, series(1), 204, 20);
        route.count(1, series(3), 503, 30);
        for cache in [CacheOutcome::Hit, CacheOutcome::Bypass] {
            let series = ResponseSeries { cache, ..series(2) };
            route.count(0, series, 999, 40);
        }
        route.count(2, series(1), 200, 1_000);
        let totals = route.totals();
        assert_eq!(totals.statuses[1], [0, 2, 0, 0, 0]);
        assert_eq!(totals.statuses[2], [0, 0, 0, 0, 2]);
        assert_eq!(totals.statuses[3], [0, 0, 0, 0, 1]);
        assert_eq!(totals.cache, [1, 0, 0, 0, 1]);
        assert_eq!(totals.bytes_sent, 140);
        assert_eq!(align_of::<WorkerCounters>(), 64);
    }

    #[test]
    fn a_route_keeps_its_counters_over_a_reload() {
        let ledger = RouteLedger::new(1);
        let mut first = Vec::new();
        let files = ledger.find_or_new("a.org", "/", &mut first);
        let app = ledger.find_or_new("a.org", "/app/", &mut first);
        let again = ledger.find_or_new("a.org", "/app/", &mut first);
        assert!(Arc::ptr_eq(&app, &again));
        // A configuration that is not served changes nothing.
        assert!(ledger.lock().is_empty());
        ledger.register(&first);
        app.count(0, series(1), 200, 5);
        files.count(0, series(1), 200, 7);
        let mut second = Vec::new();
        let kept = ledger.find_or_new("a.org", "/app/", &mut second);
        assert!(Arc::ptr_eq(&app, &kept));
        let other = ledger.find_or_new("b.org", "/app/", &mut second);
        assert!(!Arc::ptr_eq(&app, &other));
        ledger.register(&second);
        let totals: Vec<_> = second.iter().map(|route| route.totals()).collect();
        let names: Vec<_> = totals.iter().map(|it| (&*it.site, &*it.route)).collect();
        assert_eq!(names, [("a.org", "/app/"), ("b.org", "/app/")]);
        assert_eq!(totals[0].bytes_sent, 5);
    }

    #[test]
    fn requests_without_a_site_have_one_series() {
        let ledger = RouteLedger::new(1);
        for status in [400, 421] {
            ledger.without_site().count(0, series(1), status, 0);
        }
        assert_eq!(ledger.without_site().totals().statuses[1][3], 2);
    }
}
