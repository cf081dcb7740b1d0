//! Log lines of the proxy.

use crate::handler::Request;
use crate::handler::proxy::route::ProxyRoute;
use crate::upstream;
use crate::upstream::balancer::{Lease, StateChange};
use crate::wire::reject::Reject;

/// Logs the change of a member's state.
pub(super) fn log_change(route: &ProxyRoute, lease: &Lease, change: StateChange) {
    upstream::log_change(route.balancer.name(), lease.member().url(), change);
}

/// Returns the request as `GET /path?query` for the log.
pub(super) fn line(request: &Request) -> String {
    let query = request.query.as_deref();
    crate::handler::call::request::line(request.method, &request.raw_path, query)
}

/// Logs bytes of a member behind the end of a response. The connection serves no further request.
pub(super) fn log_surplus(line: &str, member: &[u8]) {
    let reject = Reject::UPSTREAM_BYTES_UNASKED;
    log::error!(
        "{line}: {}: {} (rule R{})",
        String::from_utf8_lossy(member),
        reject.reason,
        reject.rule
    );
}
