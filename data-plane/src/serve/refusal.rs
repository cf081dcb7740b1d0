//! Refusal of a handler call as a response: the site's error page for the status, or the built-in page. An
//! error page that is not in memory is loaded first.

use crate::handler::{HandlerError, LocalBoxFuture, Response};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::subrequest;
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{FileLoad, Site, SiteResponse};
use std::rc::Rc;
use std::sync::Arc;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::status::Status;

/// Error pages for the calls of one request.
#[derive(Clone)]
pub(super) struct ErrorPages {
    /// Site with the pages.
    pub(super) site: Arc<Site>,
    /// Whether the requested path has `cors`, so a page has no fields of its release for cross-origin access.
    pub(super) has_cors: bool,
    /// Requested path; empty if all paths of the site have the same pages.
    pub(super) path: Box<[u8]>,
}

impl ErrorPages {
    /// Returns the page for a status, or the load of the page.
    fn page(&self, status: Status, method: Method) -> Option<SiteResponse> {
        let mut found = self.site.error_page(status, &self.path, method);
        if let Some(SiteResponse::Stored(page)) = &mut found
            && self.has_cors
        {
            page.go_beside_cors();
        }
        found
    }
}

/// Response to a refused call.
pub(super) enum Refusal {
    /// The response is complete.
    Now(Response),
    /// The future loads the error page and returns the response. The future never fails.
    Later(LocalBoxFuture<Result<Response, HandlerError>>),
}

impl Refusal {
    /// Creates the refusal, with the error page of `pages` if the site has one. `after_seconds` is the value
    /// of Retry-After, if known.
    pub(super) fn new(
        context: &Rc<WorkerContext>,
        audience: Audience,
        pages: Option<&ErrorPages>,
        is_head: bool,
        reject: Reject,
        after_seconds: Option<u64>,
    ) -> Refusal {
        let refused = PendingRefusal {
            context: Rc::clone(context),
            audience,
            pages: pages.cloned(),
            is_head,
            reject,
            after_seconds,
        };
        match refused.look() {
            Ok(response) => Refusal::Now(response),
            Err(load) => Refusal::Later(Box::pin(refused.loaded(load))),
        }
    }
}

struct PendingRefusal {
    context: Rc<WorkerContext>,
    audience: Audience,
    pages: Option<ErrorPages>,
    is_head: bool,
    reject: Reject,
    after_seconds: Option<u64>,
}

impl PendingRefusal {
    /// Returns the response, or the load of an error page that is not in memory.
    fn look(&self) -> Result<Response, FileLoad> {
        let method = if self.is_head {
            Method::Head
        } else {
            Method::Get
        };
        let pages = self.pages.as_ref();
        match pages.and_then(|pages| pages.page(self.reject.status, method)) {
            Some(SiteResponse::Stored(page)) => {
                Ok(self.timed(subrequest::error_page(&self.context, page, self.reject)))
            }
            Some(SiteResponse::Load(load)) => Err(load),
            _ => Ok(self.small()),
        }
    }

    fn small(&self) -> Response {
        self.timed(subrequest::from_synthetic(SyntheticResponse::refusal(
            self.reject,
            self.audience,
        )))
    }

    /// Sets the Retry-After field, if its value is known.
    fn timed(&self, mut response: Response) -> Response {
        if let Some(seconds) = self.after_seconds {
            let is_after = |name: &[u8]| name.eq_ignore_ascii_case(b"retry-after");
            response.fields.retain(|name, _| !is_after(name));
            let seconds = seconds.to_string();
            response.fields.push(b"Retry-After", seconds.as_bytes());
        }
        response
    }

    async fn loaded(self, mut load: FileLoad) -> Result<Response, HandlerError> {
        for _ in 0..LOADS_MAX {
            // The result of the load is not needed: the next look finds the page in memory or not.
            let _ = self.context.pool.run(move || load.run()).await;
            load = match self.look() {
                Ok(response) => return Ok(response),
                Err(load) => load,
            };
        }
        Ok(self.small())
    }
}

/// Maximum of loads for an error page. A page still missing after 4 loads is evicted by other pages again
/// and again, so the built-in page is sent.
const LOADS_MAX: u32 = 4;
