//! Handlers as the routes of a site have them: with the operator's response fields, and with the script
//! and the rewrite that dispatch found for a request.

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
    /// Makes the handler of a route in a site with these `headers`.
    pub fn new(handler: Arc<dyn Handler>, headers: &Arc<HeaderRules>) -> RouteHandler {
        let headers = (!headers.is_empty()).then(|| Arc::clone(headers));
        RouteHandler { handler, headers }
    }

    /// Calls the handler and applies the operator's fields to the response. The fields are those for the
    /// script's file, or for the path that the client requested. The target of an internal redirect keeps
    /// its own fields.
    pub fn call(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
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

/// Call of a route's handler, as dispatch decided it for one request.
#[derive(Clone)]
pub struct HandlerCall {
    /// The handler.
    pub handler: RouteHandler,
    /// Script of the site that answers.
    pub script: Option<Script>,
    /// Path and query that replace those of the client.
    pub rewrite: Rewrite,
}

impl HandlerCall {
    /// Starts the call with the client's request.
    pub fn start(self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        self.handler.call(Request {
            script: self.script,
            rewrite: self.rewrite,
            ..request
        })
    }
}
