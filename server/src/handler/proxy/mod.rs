//! Reverse proxy: requests answered by HTTP servers behind this server.

mod call;
mod request;
mod response;
pub mod settings;

use crate::handler::proxy::call::ProxyCall;
use crate::handler::proxy::settings::ForwardSettings;
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response};
use crate::upstream::MemberPool;
use std::sync::Arc;

/// Handler of a route with a proxy.
pub(crate) struct ProxyHandler {
    route: Arc<ProxyRoute>,
}

/// Settings of a route with a proxy, and the connections to its members.
pub(crate) struct ProxyRoute {
    /// Connections to the member.
    pub(crate) pool: Arc<MemberPool>,
    /// Rules for the rewriting of requests and responses.
    pub(crate) forward: ForwardSettings,
    /// Path of the route, without a slash at its end.
    pub(crate) path: Box<[u8]>,
    /// Host and port of the member's URL.
    pub(crate) member_host: Box<[u8]>,
}

impl ProxyHandler {
    /// Creates the handler of `route`.
    pub(crate) fn new(route: ProxyRoute) -> ProxyHandler {
        ProxyHandler {
            route: Arc::new(route),
        }
    }
}

impl Handler for ProxyHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let head = request::encode_head(&request, &self.route, request.length);
        Box::pin(ProxyCall::new(
            Arc::clone(&self.route),
            request.method,
            head,
        ))
    }
}
