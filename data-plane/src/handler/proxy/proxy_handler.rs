//! Handler of a route with a proxy: the door of the room, apart from the call behind it.

use crate::handler::proxy::call::begin;
use crate::handler::proxy::request_head::{MemberOrigin, check, encode, target};
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::{Handler, HandlerError, HandlerPlan, LocalBoxFuture, Request, Response};
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

    fn plan(&self, request: &Request) -> HandlerPlan {
        let members = self.route.balancer.members();
        let mut plan = HandlerPlan::default();
        let origin = members.first().map(|member| member.url());
        let sent = check(request, &self.route).and_then(|()| {
            let Some(url) = origin else {
                return Ok(Vec::new());
            };
            let host = url.authority();
            let origin = MemberOrigin::new(url.is_tls, host.as_bytes());
            encode(request, &self.route, origin, request.length, false)
        });
        let target = target(request, &self.route);
        let urls = members
            .iter()
            .map(|member| format!("{}{target}", member.url()));
        let urls: Vec<String> = urls.collect();
        plan.lines.push((
            "sends",
            format!("{} {}", request.method.name(), urls.join(" or ")),
        ));
        match sent {
            Ok(sent) => {
                let sent = String::from_utf8_lossy(&sent).into_owned();
                let fields = sent.lines().skip(1).filter(|line| !line.is_empty());
                let fields = fields.map(|line| ("", line.to_owned()));
                plan.lines.extend(fields);
            }
            Err(reject) => plan.refusal = Some(reject),
        }
        plan
    }

    /// A tunnel needs a member with HTTP/1.1.
    fn accepts_tunnels(&self) -> bool {
        !self.route.balancer.settings().connection.is_http2
    }

    fn accepts_any_method(&self) -> bool {
        true
    }
}
