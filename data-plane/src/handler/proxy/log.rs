//! Log lines of the proxy.

use crate::handler::Request;
use crate::handler::proxy::route::{NAME, ProxyRoute};
use crate::upstream;
use crate::upstream::balancer::{Lease, StateChange};
use wire::reject::Reject;

/// Logs the change of a member's state.
pub(super) fn log_change(route: &ProxyRoute, lease: &Lease, change: StateChange) {
    upstream::log_change(route.balancer.name(), lease.member().url(), change);
}

/// Logs a response that was broken off after its head was sent to the client.
pub(super) fn log_broken_off(line: &str, balancer: &str, member: Option<&str>, reject: Reject) {
    let place = place(balancer, member);
    log::error!(
        "{NAME}: {}: {line}: {place}; the response was broken off (rule R{})",
        break_cause(reject),
        reject.rule
    );
}

/// Returns the balancer and the member of a request for the log. A route with `proxy` has a balancer with the name
/// of the site and the path of the route.
pub(super) fn place(balancer: &str, member: Option<&str>) -> String {
    match member {
        Some(member) => format!("balancer {balancer}: {member}"),
        None => format!("balancer {balancer}"),
    }
}

/// Returns the cause of a response that was broken off after its beginning.
fn break_cause(reject: Reject) -> &'static str {
    if reject == Reject::UPSTREAM_SLOW {
        "member was silent within its response for longer than `silence_timeout`"
    } else {
        reject.reason
    }
}

/// Returns the request as `GET /path?query` for the log.
pub(super) fn line(request: &Request) -> String {
    let query = request.query.as_deref();
    crate::handler::call::request::line(request.method, &request.raw_path, query)
}

/// Logs bytes of a member behind the end of a response. The client has the response, and the connection serves no
/// further request.
pub(super) fn log_surplus(line: &str, balancer: &str, member: Option<&str>) {
    log::warn!(
        "{NAME}: bytes of a member behind a response: {line}: {}; the connection was closed (rule R{})",
        place(balancer, member),
        Reject::UPSTREAM_BYTES_UNASKED.rule
    );
}
