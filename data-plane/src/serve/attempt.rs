//! One dispatch of a request with its policy: whether the content of the request is streamed, discarded or refused, and
//! how often a request may wait. The policy is equal for all versions of HTTP and for subrequests.
//!
//! A driver calls [`Attempt::dispatch`] and executes the step. After a wait the driver dispatches the request again.
//! Pure: no clock, no I/O.

use crate::handler::proxy::forward_auth::AuthAnswer;
use crate::limits::AUTH_QUESTIONS_MAX;
use crate::serve::auth_answers::AuthAnswers;
use crate::serve::dispatch::{Dispatched, RequestBuilder, dispatch, with_page};
use crate::serve::dispatch_context::{DispatchContext, RateCheck};
use crate::serve::matched_request::MatchedRequest;
use crate::serve::step::{Step, Wait};
use crate::world::World;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::RequestHead;

/// Maximum number of file loads and login checks for one request: index page, content coding, error page,
/// logins. A request needs more only if files change during the loads, if loaded files are evicted before
/// the next dispatch, or if the queue of loads is full.
const LOADS_AND_LOGINS_MAX: u8 = 16;

/// Progress of one request over its dispatches.
#[derive(Default, Debug)]
pub(super) struct Progress {
    /// Number of file loads and login checks. The wait for changes on disk does not count: a request waits
    /// at most once.
    loads_and_logins: u8,
    /// The queue of login checks was full.
    logins_busy: bool,
    has_waited_for_disk: bool,
    /// State towards the request rates, for the next dispatch.
    rate: RateCheck,
    /// Number of questions for servers for forward authentication.
    questions: u8,
    /// Answers of servers for forward authentication; None for most requests.
    answers: Option<Box<AuthAnswers>>,
}

impl Progress {
    /// Returns true if the next dispatch may wait for changes on disk. A request with content never waits:
    /// the content may be lost by then.
    fn may_wait(&self, content: RequestContent) -> bool {
        content == RequestContent::None && !self.has_waited_for_disk
    }

    /// Returns the progress of a request that no rate counts.
    pub(super) fn exempt() -> Progress {
        Progress {
            rate: RateCheck::EXEMPT,
            ..Progress::default()
        }
    }

    /// Records the load of a file, whether or not the load succeeded.
    pub(super) fn record_load(&mut self) {
        self.loads_and_logins = self.loads_and_logins.saturating_add(1);
        self.logins_busy = false;
    }

    /// Records a login check.
    pub(super) fn record_login(&mut self, is_busy: bool) {
        self.loads_and_logins = self.loads_and_logins.saturating_add(1);
        self.logins_busy = is_busy;
    }

    /// Records the answer of a server for forward authentication.
    pub(super) fn record_answer(&mut self, answer: AuthAnswer) {
        self.logins_busy = false;
        self.questions = self.questions.saturating_add(1);
        self.answers.get_or_insert_default().push(answer);
    }

    /// Returns the progress of a request of a handler, with the answers to the request of the client.
    #[must_use]
    pub(super) fn with_answers(self, answers: Option<&AuthAnswers>) -> Progress {
        Progress {
            answers: answers.map(|answers| Box::new(answers.inherited())),
            ..self
        }
    }

    /// Returns the answers of servers for forward authentication.
    #[inline]
    pub(super) fn answers(&self) -> Option<&AuthAnswers> {
        self.answers.as_deref()
    }

    /// Records the wait for changes on disk.
    pub(super) fn record_disk_wait(&mut self) {
        self.has_waited_for_disk = true;
    }
}

/// The content of a request at the time of a dispatch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestContent {
    /// The request has no content.
    None,
    /// The content is for a handler, if a handler is called.
    Pending,
    /// The content was read and discarded, or is being discarded.
    Discarded,
}

/// The treatment of the content of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ContentAction {
    /// The request has no pending content.
    None,
    /// The handler reads the content.
    Stream,
    /// The content waits for the next dispatch.
    Keep,
    /// The content is read and discarded. Over HTTP/1.1, up to `body_discard_bytes` are read before the response, to
    /// keep the connection.
    Discard,
    /// The response does not wait for the content. The server reads on behind the response for a while, and then
    /// closes the connection of HTTP/1.1 or ends the stream.
    Refuse,
}

/// The kinds of steps that the policy distinguishes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum StepKind {
    Load,
    Login,
    Question,
    CatchUp,
    Call,
    Send,
}

/// The decision after one dispatch of a request.
pub(super) struct Attempt<'w> {
    pub(super) step: Step,
    pub(super) content: ContentAction,
    pub(super) request: MatchedRequest<'w>,
}

impl<'w> Attempt<'w> {
    /// Dispatches a request of `client`, and decides the next step and the treatment of the content.
    pub(super) fn dispatch(
        world: &'w World,
        head: &RequestHead<'_>,
        client: DispatchContext,
        builder: &dyn RequestBuilder,
        content: RequestContent,
        progress: &mut Progress,
    ) -> Attempt<'w> {
        let context = DispatchContext {
            may_wait: progress.may_wait(content),
            rate: progress.rate,
            ..client
        };
        let dispatched = dispatch(world, head, &context, builder, progress.answers());
        let mut attempt = Attempt::of(dispatched, world, head, content, progress);
        if let Some(ruled) = &attempt.request.ruled {
            // The request counts once in each rate.
            progress.rate = ruled.rate;
            if ruled.has_cors {
                attempt.step.go_beside_cors();
            }
        }
        attempt
    }

    /// Decides the next step of a request and the treatment of its content.
    #[inline(always)]
    pub(super) fn of(
        dispatched: Dispatched<'w>,
        world: &World,
        head: &RequestHead<'_>,
        content: RequestContent,
        progress: &Progress,
    ) -> Attempt<'w> {
        let Dispatched { step, mut request } = dispatched;
        let kind = match &step {
            Step::Wait(Wait::Load(_)) => StepKind::Load,
            Step::Wait(Wait::Login(_)) => StepKind::Login,
            Step::Wait(Wait::Auth(_)) => StepKind::Question,
            Step::Wait(Wait::CatchUp(_)) => StepKind::CatchUp,
            Step::Call(_) => StepKind::Call,
            Step::Send(_) => StepKind::Send,
        };
        let length = match head.body {
            BodyLength::Length(length) => Some(length),
            _ => None,
        };
        let content = AnnouncedContent {
            state: content,
            length,
            expects_continue: head.expect_continue,
        };
        let ruled = request.ruled.as_mut();
        let body_bytes = ruled.as_ref().and_then(|ruled| ruled.body_bytes);
        let bounds = ContentBounds {
            handler_bytes_max: body_bytes.unwrap_or(world.limits.body_bytes),
            discarded_bytes_max: world.limits.body_discard_bytes,
        };
        let (refused, content) = decide(kind, content, progress, bounds);
        if let Some(ruled) = ruled.filter(|_| refused.is_some()) {
            ruled.refusal_fields = None;
        }
        let step = match refused {
            None => step,
            Some(Reject::BODY_TOO_LARGE) if progress.loads_and_logins < LOADS_AND_LOGINS_MAX => {
                with_page(request.host, Reject::BODY_TOO_LARGE, head)
            }
            Some(reject) => Step::refuse(reject),
        };
        Attempt {
            step,
            content,
            request,
        }
    }
}

/// Content of a request as announced by its head, and as far as it was read.
#[derive(Copy, Clone, Debug)]
struct AnnouncedContent {
    state: RequestContent,
    /// Announced length in bytes.
    length: Option<u64>,
    /// True if the client waits for 100 (Continue) before it sends the content.
    expects_continue: bool,
}

/// Bounds for the content of a request, in bytes.
#[derive(Copy, Clone)]
struct ContentBounds {
    /// Largest content for a handler.
    handler_bytes_max: u64,
    /// Largest content that is read and discarded.
    discarded_bytes_max: u64,
}

/// Returns the rule that refuses the request instead of the outcome, if any, and the treatment of the content.
///
/// Guards, redirects and methods are decided by dispatch, for content of any length. Only the call of a handler is
/// refused for the length of the content, because only a handler reads the content: a client with too large a content
/// learns first that the content needs a login, belongs elsewhere or has the wrong method.
fn decide(
    kind: StepKind,
    content: AnnouncedContent,
    progress: &Progress,
    bounds: ContentBounds,
) -> (Option<Reject>, ContentAction) {
    let is_load_or_login = matches!(kind, StepKind::Load | StepKind::Login);
    let refused = match kind {
        StepKind::Login if progress.logins_busy => Some(Reject::LOGINS_BUSY),
        StepKind::Question if progress.questions >= AUTH_QUESTIONS_MAX => {
            Some(Reject::AUTH_QUESTIONS)
        }
        _ if is_load_or_login && progress.loads_and_logins >= LOADS_AND_LOGINS_MAX => {
            Some(Reject::CHANGING)
        }
        // A reload during the discarding of the content led the request to a handler, and the handler needs
        // the content. The client may send the request again.
        StepKind::Call if content.state == RequestContent::Discarded => Some(Reject::CHANGING),
        _ => None,
    };
    if content.state != RequestContent::Pending {
        return (refused, ContentAction::None);
    }
    if refused.is_some() {
        return (refused, ContentAction::Refuse);
    }
    let is_longer = |bytes_max| content.length.is_some_and(|length| length > bytes_max);
    match kind {
        StepKind::Call if is_longer(bounds.handler_bytes_max) => {
            (Some(Reject::BODY_TOO_LARGE), ContentAction::Refuse)
        }
        StepKind::Call => (None, ContentAction::Stream),
        // A login is decided before the content is read.
        StepKind::Login | StepKind::Question | StepKind::CatchUp => (None, ContentAction::Keep),
        // A client that waits for 100 (Continue) gets the final response. Whether the content comes
        // nevertheless can't be known (RFC 9110 §10.1.1).
        _ if content.expects_continue || is_longer(bounds.discarded_bytes_max) => {
            (None, ContentAction::Refuse)
        }
        _ => (None, ContentAction::Discard),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RequestContent::{Discarded, None as NoContent, Pending};
    use StepKind::{Call, CatchUp, Load, Login, Question, Send};

    const SHORT: Option<u64> = Some(10);
    /// More than the tests' `body_discard_bytes`.
    const LONG: Option<u64> = Some(200);
    /// More than the tests' `body_bytes`.
    const TOO_LONG: Option<u64> = Some(2_000);

    /// `body_bytes` and `body_discard_bytes`.
    const BOUNDS: ContentBounds = ContentBounds {
        handler_bytes_max: 1_000,
        discarded_bytes_max: 100,
    };

    fn progress(loads_and_logins: u8, logins_busy: bool) -> Progress {
        Progress {
            loads_and_logins,
            logins_busy,
            has_waited_for_disk: false,
            rate: RateCheck::default(),
            questions: 0,
            answers: None,
        }
    }

    #[test]
    #[rustfmt::skip] // A table reads better in columns.
    fn every_row_of_the_policy() {
        let new = &progress(0, false);
        let loaded = &progress(1, false);
        let busy = &progress(1, true);
        let last = &progress(LOADS_AND_LOGINS_MAX - 1, false);
        let spent = &progress(LOADS_AND_LOGINS_MAX, false);
        let (logins_busy, changing, too_large) =
            (Some(Reject::LOGINS_BUSY), Some(Reject::CHANGING), Some(Reject::BODY_TOO_LARGE));
        use ContentAction::{Discard, Keep, Refuse, Stream};
        let none = ContentAction::None;
        let table = [
            // No content.
            (Send,         (NoContent, None, false),    new,     None,        none),
            (Load,         (NoContent, None, false),    new,     None,        none),
            (Login,        (NoContent, None, false),    new,     None,        none),
            (CatchUp,      (NoContent, None, false),    new,     None,        none),
            (Call,         (NoContent, None, false),    new,     None,        none),
            // Loads and login checks.
            (Load,         (NoContent, None, false),    last,    None,        none),
            (Load,         (NoContent, None, false),    spent,   changing,    none),
            (Login,        (NoContent, None, false),    spent,   changing,    none),
            (CatchUp,      (NoContent, None, false),    spent,   None,        none),
            (Call,         (NoContent, None, false),    spent,   None,        none),
            (Send,         (NoContent, None, false),    spent,   None,        none),
            (Load,         (Pending, SHORT, false),     spent,   changing,    Refuse),
            // A full queue of logins refuses only a login.
            (Login,        (NoContent, None, false),    busy,    logins_busy, none),
            (Login,        (Pending, SHORT, false),     busy,    logins_busy, Refuse),
            (Login,        (Pending, TOO_LONG, false),  busy,    logins_busy, Refuse),
            (Load,         (NoContent, None, false),    busy,    None,        none),
            (Call,         (NoContent, None, false),    busy,    None,        none),
            (Send,         (NoContent, None, false),    busy,    None,        none),
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
            (Send,         (Pending, SHORT, false),     new,     None,        Discard),
            (Send,         (Pending, None, false),      new,     None,        Discard),
            (Send,         (Pending, LONG, false),      new,     None,        Refuse),
            (Send,         (Pending, LONG, false),      loaded,  None,        Refuse),
            (Send,         (Pending, TOO_LONG, false),  new,     None,        Refuse),
            (Send,         (Pending, TOO_LONG, true),   new,     None,        Refuse),
            (Send,         (Pending, SHORT, true),      new,     None,        Refuse),
            (Send,         (Pending, LONG, true),       new,     None,        Refuse),
            (Send,         (Discarded, LONG, false),    new,     None,        none),
            (Load,         (Pending, SHORT, false),     new,     None,        Discard),
            (Load,         (Pending, LONG, false),      new,     None,        Refuse),
            (Load,         (Pending, LONG, true),       new,     None,        Refuse),
            (Load,         (Discarded, SHORT, false),   new,     None,        none),
            // A login is decided first.
            (Login,        (Pending, SHORT, false),     new,     None,        Keep),
            (Login,        (Pending, TOO_LONG, false),  new,     None,        Keep),
            (Login,        (Pending, None, true),       new,     None,        Keep),
            (CatchUp,      (Pending, SHORT, false),     new,     None,        Keep),
        ];
        for (kind, content, progress, refused, body) in table {
            let (state, length, expects_continue) = content;
            let content = AnnouncedContent {
                state,
                length,
                expects_continue,
            };
            let decided = decide(kind, content, progress, BOUNDS);
            assert_eq!(decided, (refused, body), "{kind:?} {content:?} {progress:?}");
        }
    }

    #[test]
    fn a_request_has_a_bound_of_questions() {
        let content = AnnouncedContent {
            state: Pending,
            length: SHORT,
            expects_continue: false,
        };
        let asked = |questions| Progress {
            questions,
            ..Progress::default()
        };
        let decided = |questions| decide(Question, content, &asked(questions), BOUNDS);
        let last = AUTH_QUESTIONS_MAX - 1;
        assert_eq!(decided(last), (None, ContentAction::Keep));
        let refused = (Some(Reject::AUTH_QUESTIONS), ContentAction::Refuse);
        assert_eq!(decided(AUTH_QUESTIONS_MAX), refused);
        // Files and logins have a bound of their own.
        assert_eq!(
            decide(Load, content, &asked(AUTH_QUESTIONS_MAX), BOUNDS).0,
            None
        );
    }

    #[test]
    fn a_request_waits_once_for_the_disk() {
        let mut progress = Progress::default();
        assert!(progress.may_wait(NoContent));
        assert!(!progress.may_wait(Pending) && !progress.may_wait(Discarded));
        progress.record_load();
        progress.record_login(true);
        assert!(progress.may_wait(NoContent));
        progress.record_disk_wait();
        assert!(!progress.may_wait(NoContent));
    }

    #[test]
    fn a_later_check_replaces_the_full_queue() {
        let mut progress = Progress::default();
        progress.record_login(true);
        assert!(progress.logins_busy);
        progress.record_login(false);
        assert!(!progress.logins_busy);
        assert_eq!(progress.loads_and_logins, 2);
    }
}
