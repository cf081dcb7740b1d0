//! A request with its match in the World: the site, the counters of the route, the user and the rules by request.

use crate::ledger::route_counters::RouteCounters;
use crate::serve::ruled_request::RuledRequest;
use crate::world::Host;
use std::sync::Arc;

/// The match of a request in the World.
#[derive(Default)]
pub(super) struct MatchedRequest<'w> {
    /// Site of the requested host name; None if no site has the name.
    pub(super) host: Option<&'w Host>,
    /// User that logged in.
    pub(super) user: Option<String>,
    /// True if at least one guard applied, so the step depends on the client.
    pub(super) is_guarded: bool,
    /// Counters of the responses of the requested route; None if no site has the requested name.
    pub(super) counters: Option<&'w Arc<RouteCounters>>,
    /// Effect of the rules by request, if any.
    pub(super) ruled: Option<Box<RuledRequest<'w>>>,
}
