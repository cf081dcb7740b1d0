//! The next step of a request: a response without a handler, the call of a handler, or a wait before the next dispatch.

use crate::handler::proxy::forward_auth::AuthQuestion;
use crate::handler::route_handler::HandlerCall;
use crate::ledger::change_tracker::CatchUp;
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{FileLoad, Listing, VariantResponse};
use crate::world::users::UnverifiedLogin;
use wire::reject::Reject;
use wire::status::Status;

/// The next step of a request.
pub(super) enum Step {
    /// Wait, then dispatch again.
    Wait(Wait),
    /// Call a handler.
    Call(HandlerCall),
    /// Send a response.
    Send(ReadyResponse),
}

/// A wait before the next dispatch of a request.
pub(super) enum Wait {
    /// The load of a file on the thread pool.
    Load(FileLoad),
    /// The check of a password on the thread pool.
    Login(Box<UnverifiedLogin>),
    /// The question to a server for forward authentication.
    Auth(Box<AuthQuestion>),
    /// The control plane reads the changes on disk: a missing file may exist by then.
    CatchUp(CatchUp),
}

/// A response without a handler.
pub(super) enum ReadyResponse {
    /// A page of the site or of the page cache.
    Stored(VariantResponse),
    /// A response of the server itself.
    Synthetic(SyntheticResponse),
    /// A directory listing.
    Listing(Box<Listing>),
    /// A refusal.
    Refuse {
        reject: Reject,
        /// The site's page for the status, if the site has one.
        page: Option<VariantResponse>,
    },
}

impl ReadyResponse {
    /// Returns a refusal without a page of the site.
    pub(super) fn refusal(reject: Reject) -> ReadyResponse {
        ReadyResponse::Refuse { reject, page: None }
    }
}

impl Step {
    /// Returns the refusal of a request, without a page of the site.
    pub(super) fn refuse(reject: Reject) -> Step {
        Step::Send(ReadyResponse::refusal(reject))
    }

    /// Returns the redirect of a request to `location`.
    pub(super) fn redirect(status: Status, location: &[u8]) -> Step {
        Step::small(SyntheticResponse::redirect(status, location))
    }

    /// Returns a response of the server itself.
    pub(super) fn small(response: SyntheticResponse) -> Step {
        Step::Send(ReadyResponse::Synthetic(response))
    }

    /// Leaves out the fields of a release for cross-origin access, on a path with `cors`.
    #[inline(never)]
    pub(super) fn go_beside_cors(&mut self) {
        match self {
            Step::Send(ReadyResponse::Stored(page))
            | Step::Send(ReadyResponse::Refuse {
                page: Some(page), ..
            }) => page.go_beside_cors(),
            Step::Send(ReadyResponse::Listing(listing)) => listing.go_beside_cors(),
            Step::Send(_) | Step::Call(_) | Step::Wait(_) => {}
        }
    }

    /// Returns the wait for the changes on disk.
    pub(super) fn catch_up(changes: CatchUp) -> Step {
        Step::Wait(Wait::CatchUp(changes))
    }
}
