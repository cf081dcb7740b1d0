//! Handler of a route with a proxy: the door of the room, apart from the call behind it.

use crate::handler::proxy::call::begin;
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response};
use std::sync::Arc;

/// Handler of a route with a proxy.
pub struct ProxyHandler {
    route: Arc<ProxyRoute>,
}

impl ProxyHandler {
    /// Creates the handler of `route`.
    pub fn new(route: ProxyRoute) -> ProxyHandler {
        ProxyHandler {
            route: Arc::new(route),
        }
    }
}

impl Handler for ProxyHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        begin(&self.route, request)
    }

    /// A tunnel needs a member with HTTP/1.1.
    fn accepts_tunnels(&self) -> bool {
        !self.route.balancer.settings().connection.is_http2
    }

    fn accepts_any_method(&self) -> bool {
        true
    }
}
