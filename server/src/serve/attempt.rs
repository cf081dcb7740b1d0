//! The policy for the steps after a dispatch of a request, equal for all versions of HTTP and for
//! subrequests.
//!
//! A driver dispatches a request, passes the outcome to [`Attempt::of`] and executes the step. After a wait
//! the driver dispatches the request again. Pure: no clock, no I/O.

use crate::base::change_tracker::CatchUp;
use crate::handler::route_handler::HandlerCall;
use crate::limits::Limits;
use crate::serve::dispatch::{DispatchOutcome, Dispatched, with_page};
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{FileLoad, Listing, VariantResponse};
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::request_head::RequestHead;
use crate::world::users::UnverifiedLogin;
use crate::world::{Host, World};

/// Maximum of file loads and login checks for one request: index page, content coding, error page, logins.
const ERRANDS_MAX: u8 = 16;

/// Progress of one request over its dispatches.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    /// Number of file loads and login checks. The wait for changes on disk does not count: a request waits
    /// at most once.
    errands: u8,
    /// The queue of login checks was full.
    logins_busy: bool,
    has_checked_login: bool,
    has_waited_for_disk: bool,
}

impl Progress {
    /// Returns true if the next dispatch may wait for changes on disk. A request with content never waits:
    /// the content may be lost by then.
    pub(super) fn may_wait(&self, body: RequestBody) -> bool {
        body == RequestBody::Complete && !self.has_waited_for_disk
    }

    /// Records the load of a file, whether or not the load succeeded.
    pub(super) fn record_load(&mut self) {
        self.errands = self.errands.saturating_add(1);
        self.logins_busy = false;
    }

    /// Records a login check.
    pub(super) fn record_login(&mut self, is_busy: bool) {
        self.errands = self.errands.saturating_add(1);
        self.logins_busy = is_busy;
        self.has_checked_login = true;
    }

    /// Records the wait for changes on disk.
    pub(super) fn record_disk_wait(&mut self) {
        self.has_waited_for_disk = true;
    }
}

/// The content of a request at the time of a dispatch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestBody {
    /// The request has no content.
    Complete,
    /// The content is for a handler, if a handler is called.
    Pending,
    /// The content was read and discarded, or is being discarded.
    Discarded,
}

/// The treatment of pending content.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum BodyAction {
    /// No content is pending.
    None,
    /// The handler reads the content.
    Stream,
    /// The content waits for the next dispatch.
    Keep,
    /// The content is read and discarded, up to the limit `body_discard_bytes`.
    Discard,
    /// The content is not read.
    Refuse,
}

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
    Load(FileLoad),
    Login(Box<UnverifiedLogin>),
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

/// The kinds of dispatch outcomes that the policy distinguishes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum OutcomeKind {
    Load,
    Login,
    AwaitCatchUp,
    Call,
    /// The login of the request was wrong, or the client had too many wrong logins.
    LoginRefused,
    Response,
}

/// The decision after one dispatch of a request.
pub(super) struct Attempt<'w> {
    pub(super) step: Step,
    pub(super) body: BodyAction,
    /// The site, if one has the requested name.
    pub(super) host: Option<&'w Host>,
    /// The account that logged in.
    pub(super) user: Option<String>,
}

impl<'w> Attempt<'w> {
    /// Decides the next step of a request and the treatment of its content.
    #[inline]
    pub(super) fn of(
        dispatched: Dispatched<'w>,
        world: &World,
        head: &RequestHead<'_>,
        body: RequestBody,
        progress: &Progress,
    ) -> Attempt<'w> {
        let Dispatched {
            host, user, reply, ..
        } = dispatched;
        let kind = match &reply {
            DispatchOutcome::Load(_) => OutcomeKind::Load,
            DispatchOutcome::Login(_) => OutcomeKind::Login,
            DispatchOutcome::AwaitCatchUp(_) => OutcomeKind::AwaitCatchUp,
            DispatchOutcome::Call(_) => OutcomeKind::Call,
            DispatchOutcome::Refuse {
                reject: Reject::LOGIN_WRONG | Reject::LOGINS_FAILED,
                ..
            } => OutcomeKind::LoginRefused,
            _ => OutcomeKind::Response,
        };
        let length = match head.body {
            BodyLength::Length(length) => Some(length),
            _ => None,
        };
        let content = (body, length, head.expect_continue);
        let (refused, body) = decide(kind, content, progress, &world.limits);
        let reply = match refused {
            None => reply,
            Some(Reject::BODY_TOO_LARGE) if progress.errands < ERRANDS_MAX => {
                with_page(host, Reject::BODY_TOO_LARGE, head.method)
            }
            Some(reject) => DispatchOutcome::Refuse { reject, page: None },
        };
        Attempt {
            step: step(reply),
            body,
            host,
            user,
        }
    }

    /// Returns true if the content of the request is too large, and the response is complete.
    pub(super) fn is_too_large(&self) -> bool {
        let Step::Send(ReadyResponse::Refuse { reject, .. }) = &self.step else {
            return false;
        };
        *reject == Reject::BODY_TOO_LARGE
    }
}

/// Returns the rule that refuses the request instead of the outcome, if any, and the treatment of the
/// content. `content` holds the state and the announced length of the content, and true if the client waits
/// for 100 (Continue).
fn decide(
    kind: OutcomeKind,
    content: (RequestBody, Option<u64>, bool),
    progress: &Progress,
    limits: &Limits,
) -> (Option<Reject>, BodyAction) {
    let (body, length, expects_continue) = content;
    let is_errand = matches!(kind, OutcomeKind::Load | OutcomeKind::Login);
    let refused = match kind {
        OutcomeKind::Login if progress.logins_busy => Some(Reject::LOGINS_BUSY),
        _ if is_errand && progress.errands >= ERRANDS_MAX => Some(Reject::CHANGING),
        // A new World came while the content was discarded, and has a handler for the content.
        OutcomeKind::Call if body == RequestBody::Discarded => Some(Reject::CHANGING),
        _ => None,
    };
    if body != RequestBody::Pending {
        return (refused, BodyAction::None);
    }
    if refused.is_some() {
        return (refused, BodyAction::Refuse);
    }
    let (step, bytes_max) = match kind {
        OutcomeKind::Call => (BodyAction::Stream, limits.body_bytes),
        // A login is decided before the content is read.
        OutcomeKind::Login | OutcomeKind::AwaitCatchUp => (BodyAction::Keep, u64::MAX),
        // A client that waits for 100 (Continue) gets the final response. Whether the content comes
        // nevertheless can't be known (RFC 9110 §10.1.1).
        _ if expects_continue => (BodyAction::Refuse, u64::MAX),
        _ => (BodyAction::Discard, limits.body_discard_bytes),
    };
    match length.is_some_and(|length| length > bytes_max) {
        false => (None, step),
        // A wrong login is answered with 401 for any length of the content.
        true if kind == OutcomeKind::LoginRefused => (None, BodyAction::Refuse),
        // The file may be the site's page for 401.
        true if kind == OutcomeKind::Load && progress.has_checked_login => {
            (None, BodyAction::Refuse)
        }
        true => (Some(Reject::BODY_TOO_LARGE), BodyAction::Refuse),
    }
}

/// Converts an outcome into a step.
fn step(outcome: DispatchOutcome) -> Step {
    Step::Send(match outcome {
        DispatchOutcome::Load(load) => return Step::Wait(Wait::Load(load)),
        DispatchOutcome::Login(login) => return Step::Wait(Wait::Login(login)),
        DispatchOutcome::AwaitCatchUp(catch_up) => return Step::Wait(Wait::CatchUp(catch_up)),
        DispatchOutcome::Call(handler) => return Step::Call(handler),
        DispatchOutcome::Stored(stored) => ReadyResponse::Stored(stored),
        DispatchOutcome::Listing(listing) => ReadyResponse::Listing(listing),
        DispatchOutcome::Refuse { reject, page } => ReadyResponse::Refuse { reject, page },
        DispatchOutcome::Redirect { status, location } => {
            ReadyResponse::Synthetic(SyntheticResponse::redirect(status, &location))
        }
        DispatchOutcome::Options => ReadyResponse::Synthetic(SyntheticResponse::options()),
        DispatchOutcome::Challenge(content) => {
            ReadyResponse::Synthetic(SyntheticResponse::challenge(content))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use OutcomeKind::{AwaitCatchUp, Call, Load, Login, LoginRefused, Response};
    use RequestBody::{Complete, Discarded, Pending};

    const SHORT: Option<u64> = Some(10);
    /// More than the tests' `body_discard_bytes`.
    const LONG: Option<u64> = Some(200);
    /// More than the tests' `body_bytes`.
    const TOO_LONG: Option<u64> = Some(2_000);

    fn limits() -> Limits {
        Limits {
            body_discard_bytes: 100,
            body_bytes: 1_000,
            ..Limits::default()
        }
    }

    fn progress(errands: u8, logins_busy: bool, has_checked_login: bool) -> Progress {
        Progress {
            errands,
            logins_busy,
            has_checked_login,
            has_waited_for_disk: false,
        }
    }

    #[test]
    #[rustfmt::skip] // A table reads better in columns.
    fn every_row_of_the_policy() {
        let new = progress(0, false, false);
        let loaded = progress(1, false, false);
        let busy = progress(1, true, true);
        let checked = progress(1, false, true);
        let last = progress(ERRANDS_MAX - 1, false, false);
        let spent = progress(ERRANDS_MAX, false, false);
        let (logins_busy, changing, too_large) =
            (Some(Reject::LOGINS_BUSY), Some(Reject::CHANGING), Some(Reject::BODY_TOO_LARGE));
        use BodyAction::{Discard, Keep, Refuse, Stream};
        let none = BodyAction::None;
        let table = [
            // No content.
            (Response,     (Complete, None, false),     new,     None,        none),
            (Load,         (Complete, None, false),     new,     None,        none),
            (Login,        (Complete, None, false),     new,     None,        none),
            (AwaitCatchUp, (Complete, None, false),     new,     None,        none),
            (Call,         (Complete, None, false),     new,     None,        none),
            // Errands.
            (Load,         (Complete, None, false),     last,    None,        none),
            (Load,         (Complete, None, false),     spent,   changing,    none),
            (Login,        (Complete, None, false),     spent,   changing,    none),
            (AwaitCatchUp, (Complete, None, false),     spent,   None,        none),
            (Call,         (Complete, None, false),     spent,   None,        none),
            (Response,     (Complete, None, false),     spent,   None,        none),
            (Load,         (Pending, SHORT, false),     spent,   changing,    Refuse),
            // A full queue of logins refuses only a login.
            (Login,        (Complete, None, false),     busy,    logins_busy, none),
            (Login,        (Pending, SHORT, false),     busy,    logins_busy, Refuse),
            (Login,        (Pending, TOO_LONG, false),  busy,    logins_busy, Refuse),
            (Load,         (Complete, None, false),     busy,    None,        none),
            (Call,         (Complete, None, false),     busy,    None,        none),
            (Response,     (Complete, None, false),     busy,    None,        none),
            // A handler reads the content.
            (Call,         (Pending, SHORT, false),     new,     None,        Stream),
            (Call,         (Pending, None, false),      new,     None,        Stream),
            (Call,         (Pending, LONG, true),       new,     None,        Stream),
            (Call,         (Pending, TOO_LONG, false),  new,     too_large,   Refuse),
            (Call,         (Pending, TOO_LONG, true),   new,     too_large,   Refuse),
            (Call,         (Pending, TOO_LONG, false),  loaded,  too_large,   Refuse),
            (Call,         (Pending, SHORT, false),     loaded,  None,        Stream),
            (Call,         (Discarded, SHORT, false),   new,     changing,    none),
            // Content that no handler reads.
            (Response,     (Pending, SHORT, false),     new,     None,        Discard),
            (Response,     (Pending, None, false),      new,     None,        Discard),
            (Response,     (Pending, LONG, false),      new,     too_large,   Refuse),
            (Response,     (Pending, LONG, false),      loaded,  too_large,   Refuse),
            (Response,     (Pending, SHORT, true),      new,     None,        Refuse),
            (Response,     (Pending, LONG, true),       new,     None,        Refuse),
            (Response,     (Discarded, LONG, false),    new,     None,        none),
            (Load,         (Pending, SHORT, false),     new,     None,        Discard),
            (Load,         (Pending, LONG, false),      new,     too_large,   Refuse),
            (Load,         (Pending, LONG, true),       new,     None,        Refuse),
            (Load,         (Discarded, SHORT, false),   new,     None,        none),
            // A login is decided first.
            (Login,        (Pending, SHORT, false),     new,     None,        Keep),
            (Login,        (Pending, TOO_LONG, false),  new,     None,        Keep),
            (Login,        (Pending, None, true),       new,     None,        Keep),
            (LoginRefused, (Complete, None, false),     new,     None,        none),
            (LoginRefused, (Pending, SHORT, false),     new,     None,        Discard),
            (LoginRefused, (Pending, None, false),      new,     None,        Discard),
            (LoginRefused, (Pending, LONG, false),      new,     None,        Refuse),
            (Load,         (Pending, LONG, false),      checked, None,        Refuse),
            (Load,         (Pending, SHORT, false),     checked, None,        Discard),
            (Response,     (Pending, LONG, false),      checked, too_large,   Refuse),
            (LoginRefused, (Pending, SHORT, true),      loaded,  None,        Refuse),
            (AwaitCatchUp, (Pending, SHORT, false),     new,     None,        Keep),
        ];
        for (kind, content, progress, refused, body) in table {
            let decided = decide(kind, content, &progress, &limits());
            assert_eq!(decided, (refused, body), "{kind:?} {content:?} {progress:?}");
        }
    }

    #[test]
    fn a_request_waits_once_for_the_disk() {
        let mut progress = Progress::default();
        assert!(progress.may_wait(Complete));
        assert!(!progress.may_wait(Pending) && !progress.may_wait(Discarded));
        progress.record_load();
        progress.record_login(true);
        assert!(progress.may_wait(Complete));
        progress.record_disk_wait();
        assert!(!progress.may_wait(Complete));
    }

    #[test]
    fn a_later_check_replaces_the_full_queue() {
        let mut progress = Progress::default();
        progress.record_login(true);
        assert!(progress.logins_busy);
        progress.record_login(false);
        assert!(!progress.logins_busy);
        assert_eq!(progress.errands, 2);
    }
}
