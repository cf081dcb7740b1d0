//! Handler that serves the hit counts of single pages as JSON: `/prefix/some/page` returns the counts of
//! `/some/page`.

use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::hits::report;
use crate::hits::site_hits::{SiteHits, today};
use crate::hits::table::PageHits;
use std::sync::Arc;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::status::Status;

/// Handler for the hit counts of one site's pages.
pub struct HitsHandler {
    site: Arc<SiteHits>,
    /// Path of the route, without the final slash.
    prefix: Box<[u8]>,
}

impl HitsHandler {
    /// Creates the handler for a route at `prefix`. [`SiteHits::exclude`] keeps requests below `prefix` out
    /// of the counts.
    pub fn new(site: Arc<SiteHits>, prefix: &[u8]) -> HitsHandler {
        HitsHandler {
            site,
            prefix: prefix.into(),
        }
    }

    fn answer(&self, request: &Request) -> Result<Response, HandlerError> {
        if !matches!(request.method, Method::Get | Method::Head) {
            return Err(HandlerError::new("hit counts", Reject::METHOD_NOT_ALLOWED));
        }
        let path = request.target_path().strip_prefix(&*self.prefix);
        let path = path.filter(|path| !path.is_empty()).unwrap_or(b"/");
        let nothing = PageHits::default();
        let table = self.site.table();
        let page = table.pages.get(path).unwrap_or(&nothing);
        let content = report::page_json(path, page, today()) + "\n";
        let fields = [
            (&b"Content-Type"[..], &b"application/json"[..]),
            (b"Cache-Control", b"no-store"),
        ];
        Ok(Response::new(
            Status::OK,
            fields.into_iter().collect(),
            ResponseBody::Whole(content.into_bytes()),
        ))
    }
}

impl Handler for HitsHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let answer = self.answer(&request);
        Box::pin(async move { answer })
    }
}
