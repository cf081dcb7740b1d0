//! A route with a proxy, as an attempt sees the route: the balancer, and the settings of the forwarded request.

use crate::handler::proxy::settings::ForwardSettings;
use crate::ledger::shared_limit::RefusalCounters;
use crate::upstream::balancer::Balancer;
use std::sync::Arc;

/// Name of the handler in the log.
pub(super) const NAME: &str = "proxy";

/// Settings of a route with a proxy.
pub struct ProxyRoute {
    /// Balancer that chooses the member.
    pub balancer: Arc<Balancer>,
    /// Rules for the rewriting of requests and responses.
    pub forward: ForwardSettings,
    /// Path of the route, without a slash at its end.
    pub path: Box<[u8]>,
    /// Name of this server in Via, unique to the process.
    pub pseudonym: Arc<str>,
    /// Counters of refusals because of shares already taken.
    pub refusals: Arc<RefusalCounters>,
}

impl ProxyRoute {
    /// Returns the number of segments in the path of the route.
    pub(super) fn segments(&self) -> usize {
        self.path.iter().filter(|byte| **byte == b'/').count()
    }
}
