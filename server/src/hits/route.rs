//! What a page may read of its own counts: `/prefix/some/page` gives those of `/some/page`, as JSON.

use super::table::Page;
use super::{SiteHits, shown, today};
use crate::handler::{Body, Fault, Handler, LocalBoxFuture, Request, Response};
use crate::wire::head::Method;
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use std::borrow::Cow;
use std::sync::Arc;

/// Tells how often a page was seen.
pub struct Views {
    site: Arc<SiteHits>,
    /// The route's path, without its last slash.
    prefix: Box<[u8]>,
}

impl Views {
    /// Of the pages of `site`, below `prefix`.
    pub fn new(site: Arc<SiteHits>, prefix: &[u8]) -> Views {
        site.table().leave_out(prefix);
        Views {
            site,
            prefix: prefix.into(),
        }
    }

    fn answer(&self, request: &Request) -> Result<Response, Fault> {
        if !matches!(request.method, Method::Get | Method::Head) {
            return Err(Fault::new("hit counts", Reject::METHOD_NOT_ALLOWED));
        }
        let path = request.path.strip_prefix(&*self.prefix);
        let path = path.filter(|path| !path.is_empty()).unwrap_or(b"/");
        let nothing = Page::default();
        let table = self.site.table();
        let page = table.pages.get(path).unwrap_or(&nothing);
        let content = shown::page_json(path, page, today()) + "\n";
        let fields = [
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-store"),
        ];
        Ok(Response {
            status: Status::OK.into(),
            fields: fields
                .map(|(name, value)| (Cow::Borrowed(name), value.into()))
                .into(),
            body: Body::Whole(content.into_bytes()),
        })
    }
}

impl Handler for Views {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        let answer = self.answer(&request);
        Box::pin(async move { answer })
    }
}
