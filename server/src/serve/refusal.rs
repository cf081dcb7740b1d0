//! The refusal of a live call as a response: the site's page for its status if it has one, else the
//! built-in one. A page that isn't in memory is loaded first.

use super::worker::Worker;
use crate::handler::{HandlerError, LocalBoxFuture, Response};
use crate::serve::subrequest;
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{FileLoad, Site, SiteResponse};
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use std::rc::Rc;
use std::sync::Arc;

/// What becomes of a call that is refused.
pub(super) enum Refusal {
    /// This is sent.
    Now(Response),
    /// This makes it; it doesn't fail.
    Later(LocalBoxFuture<Result<Response, HandlerError>>),
}

impl Refusal {
    /// By a page of `site`, if there is one; the same would be answered after so many seconds, if that
    /// is known.
    pub(super) fn new(
        worker: &Rc<Worker>,
        site: Option<&Arc<Site>>,
        is_head: bool,
        reject: Reject,
        after_seconds: Option<u64>,
    ) -> Refusal {
        let refused = PendingRefusal {
            worker: Rc::clone(worker),
            site: site.cloned(),
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
    worker: Rc<Worker>,
    site: Option<Arc<Site>>,
    is_head: bool,
    reject: Reject,
    after_seconds: Option<u64>,
}

impl PendingRefusal {
    /// The response, or what has to be loaded first.
    fn look(&self) -> Result<Response, FileLoad> {
        let method = match self.is_head {
            true => Method::Head,
            false => Method::Get,
        };
        let site = self.site.as_ref();
        match site.and_then(|site| site.error_page(self.reject.status, method)) {
            Some(SiteResponse::Stored(page)) => {
                Ok(self.timed(subrequest::error_page(&self.worker, page, self.reject)))
            }
            Some(SiteResponse::Load(load)) => Err(load),
            _ => Ok(self.small()),
        }
    }

    fn small(&self) -> Response {
        self.timed(subrequest::from_synthetic(SyntheticResponse::refusal(
            self.reject,
        )))
    }

    /// Says when to come again, where that is known.
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
            // Whatever came of it, looking again will tell.
            let _ = self.worker.pool.run(move || load.run()).await;
            load = match self.look() {
                Ok(response) => return Ok(response),
                Err(load) => load,
            };
        }
        Ok(self.small())
    }
}

/// A page that is still not there by then is pushed out again by others: it is done without.
const LOADS_MAX: u32 = 4;
