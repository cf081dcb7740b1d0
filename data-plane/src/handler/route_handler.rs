//! Handlers of a site's routes: each adds the operator's response fields, and passes on the script and the
//! rewrite found by dispatch.

use crate::handler::{
    Handler, HandlerError, LocalBoxFuture, Request, Response, Rewrite, Script, operator_fields,
};
use crate::site::HeaderRules;
use std::sync::Arc;

/// Handler of a route, with the operator's response fields of its site. The page cache calls a route
/// handler, so stored pages have the operator's fields.
#[derive(Clone)]
pub struct RouteHandler {
    handler: Arc<dyn Handler>,
    /// The `headers` of the site; None where the site has no `headers`.
    headers: Option<Arc<HeaderRules>>,
}

impl RouteHandler {
    /// Creates the handler of a route, for a site with the setting `headers`.
    pub fn new(handler: Arc<dyn Handler>, headers: &Arc<HeaderRules>) -> RouteHandler {
        let headers = (!headers.is_empty()).then(|| Arc::clone(headers));
        RouteHandler { handler, headers }
    }

    /// Returns true if the handler can answer with a tunnel.
    pub(crate) fn accepts_tunnels(&self) -> bool {
        self.handler.accepts_tunnels()
    }

    /// Calls the handler and applies the operator's fields to the response. The path of the script's file,
    /// or else the path requested by the client, selects the fields. The target of an internal redirect
    /// keeps the target's own fields.
    pub(crate) fn call(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let Some(headers) = self.headers.clone() else {
            return self.handler.handle(request);
        };
        let path = match &request.script {
            Some(script) => script.name.clone(),
            None => request.path.clone(),
        };
        let response = self.handler.handle(request);
        Box::pin(async move {
            let mut response = response.await?;
            if !response.has_operator_fields {
                operator_fields::apply(&headers, &path, &mut response);
            }
            Ok(response)
        })
    }
}

impl From<Arc<dyn Handler>> for RouteHandler {
    /// Makes a route handler without operator's fields.
    fn from(handler: Arc<dyn Handler>) -> RouteHandler {
        RouteHandler {
            handler,
            headers: None,
        }
    }
}

/// Call of a route's handler for one request, as decided by dispatch.
#[derive(Clone)]
pub struct HandlerCall {
    /// The handler.
    pub handler: RouteHandler,
    /// Script of the site that answers.
    pub script: Option<Script>,
    /// Path and query replacing the client's path and query.
    pub rewrite: Rewrite,
}

impl HandlerCall {
    /// Starts the call with the client's request.
    pub(crate) fn start(self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        self.handler.call(Request {
            script: self.script,
            rewrite: self.rewrite,
            ..request
        })
    }
}
