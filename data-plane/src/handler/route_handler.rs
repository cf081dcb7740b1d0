//! Handlers of a site's routes: each adds the operator's response fields, and passes on the script and the
//! rewrite found by dispatch.

use crate::handler::compression::{CompressionQuestion, CompressionRule, note_variation};
use crate::handler::private_response::keep_from_shared_caches;
use crate::handler::{
    Handler, HandlerError, HandlerPlan, LocalBoxFuture, Request, Response, ResponseBody, Rewrite,
    Script, operator_fields,
};
use crate::site::{HeaderRules, is_of_cors};
use std::sync::Arc;
use wire::request_target::is_below;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Handler of a route, with the operator's response fields of its site. The page cache calls a route
/// handler, so stored pages have the operator's fields.
#[derive(Clone)]
pub struct RouteHandler {
    handler: Arc<dyn Handler>,
    /// The `headers` of the site; None where the site has no `headers`.
    headers: Option<Arc<HeaderRules>>,
    /// Prefixes of the paths with `cors`, where the server writes the fields of cross-origin access.
    cors_paths: CorsPaths,
    compression: CompressionRule,
}

/// Prefixes of the paths of a site with `cors`, without final slash.
pub type CorsPaths = Arc<[Box<[u8]>]>;

impl RouteHandler {
    /// Creates the handler of a route, for a site with the settings `headers` and `cors`.
    pub fn new(
        handler: Arc<dyn Handler>,
        headers: &Arc<HeaderRules>,
        cors_paths: &CorsPaths,
    ) -> RouteHandler {
        let headers = (!headers.is_empty()).then(|| Arc::clone(headers));
        RouteHandler {
            handler,
            headers,
            cors_paths: Arc::clone(cors_paths),
            compression: CompressionRule::Never,
        }
    }

    /// Returns the handler with a rule for the compression of its responses. The rule holds for calls of clients. The page
    /// cache stores the plain content.
    #[must_use]
    pub fn with_compression(self, compression: CompressionRule) -> RouteHandler {
        RouteHandler {
            compression,
            ..self
        }
    }

    /// Returns the rule for the compression of the responses.
    pub(crate) fn compression(&self) -> CompressionRule {
        self.compression
    }

    /// Returns true if the handler can answer with a tunnel.
    pub(crate) fn accepts_tunnels(&self) -> bool {
        self.handler.accepts_tunnels()
    }

    /// Returns true if the handler knows methods without a registration.
    pub(crate) fn accepts_any_method(&self) -> bool {
        self.handler.accepts_any_method()
    }

    /// Returns what the handler would do with a request, and the operator's field lines for a page of the path.
    pub(crate) fn plan(&self, request: &Request) -> HandlerPlan {
        let mut plan = self.handler.plan(request);
        let paths = match &request.script {
            Some(script) => vec![script.name.clone()],
            None => request.readings(),
        };
        let mut page = Response::new(Status::OK, ResponseFields::default(), ResponseBody::Empty);
        if let Some(headers) = &self.headers {
            operator_fields::apply(headers, &paths, &mut page);
        }
        plan.fields.extend_from_slice(page.fields.lines());
        plan
    }

    /// Calls the handler and applies the operator's fields to the response. The path of the script's file,
    /// or else each reading of the path requested by the client, selects the fields. The target of an internal redirect
    /// keeps the target's own fields.
    pub(crate) fn call(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let headers = self.headers.clone();
        if headers.is_none() && self.cors_paths.is_empty() {
            return self.handler.handle(request);
        }
        let paths = request.readings();
        let mut cors_paths = self.cors_paths.iter();
        let has_cors = cors_paths.any(|prefix| paths.iter().any(|path| is_below(path, prefix)));
        if headers.is_none() && !has_cors {
            return self.handler.handle(request);
        }
        let paths = match &request.script {
            Some(script) => vec![script.name.clone()],
            None => paths,
        };
        let response = self.handler.handle(request);
        Box::pin(async move {
            let mut response = response.await?;
            if has_cors {
                // Browsers refuse a response with two values of Access-Control-Allow-Origin.
                response.fields.retain(|name, _| !is_of_cors(name));
            }
            if let Some(headers) = headers.filter(|_| !response.has_operator_fields) {
                operator_fields::apply(&headers, &paths, &mut response);
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
            cors_paths: Arc::default(),
            compression: CompressionRule::Never,
        }
    }
}

/// Call of a route's handler for one request, as decided by dispatch.
#[derive(Clone)]
pub(crate) struct HandlerCall {
    /// The handler.
    pub handler: RouteHandler,
    /// Script of the site that answers.
    pub script: Option<Script>,
    /// Path and query replacing the client's path and query.
    pub rewrite: Rewrite,
    /// True if the client's password stays with this server, as in [`Request::hides_login`].
    pub hides_login: bool,
    /// Field lines about the user, as in [`Request::identity`].
    pub identity: Vec<u8>,
    /// True if no shared cache between the server and the client may store the response.
    pub is_private: bool,
    /// Compression of the response; None for a response that is sent as it is.
    pub compression: Option<CompressionQuestion>,
}

impl HandlerCall {
    /// Starts the call with the client's request.
    pub(crate) fn start(self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        if !self.is_private {
            return self.started(request);
        }
        let response = self.started(request);
        Box::pin(async move {
            let mut response = response.await?;
            keep_from_shared_caches(&mut response.fields);
            Ok(response)
        })
    }

    fn started(self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let mut request = Request {
            script: self.script,
            rewrite: self.rewrite,
            hides_login: self.hides_login,
            identity: self.identity,
            ..request
        };
        let Some(question) = self.compression else {
            return self.handler.call(request);
        };
        if let Some(fields) = question.fields_for_handler(&request.fields) {
            request.fields = fields;
        }
        if !question.accepts_coding() && !question.knows_weak_tag() {
            let response = self.handler.call(request);
            return Box::pin(async move {
                let mut response = response.await?;
                note_variation(&mut response);
                Ok(response)
            });
        }
        let compression = question.with(&request);
        let response = self.handler.call(request);
        Box::pin(async move { Ok(compression.apply(response.await?).await) })
    }
}
