//! Settings of a route with a proxy.

use crate::base::fair_share::RefusalCounters;
use crate::handler::proxy::settings::ForwardSettings;
use crate::upstream::balancer::Balancer;
use std::sync::Arc;

/// Name of the handler in the log.
pub(super) const NAME: &str = "proxy";

/// Settings of a route with a proxy.
pub(crate) struct ProxyRoute {
    /// Balancer that chooses the member.
    pub(crate) balancer: Arc<Balancer>,
    /// Rules for the rewriting of requests and responses.
    pub(crate) forward: ForwardSettings,
    /// Path of the route, without a slash at its end.
    pub(crate) path: Box<[u8]>,
    /// Name of this server in Via, unique to the process.
    pub(crate) pseudonym: Arc<str>,
    /// Counters of refusals because of shares already taken.
    pub(crate) refusals: Arc<RefusalCounters>,
}

impl ProxyRoute {
    /// Returns the number of segments in the path of the route.
    pub(super) fn segments(&self) -> usize {
        self.path.iter().filter(|byte| **byte == b'/').count()
    }
}
