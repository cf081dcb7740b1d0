//! Call of a member: attempts to get a response, at further members where a request may be repeated. A failed attempt is
//! reported to the balancer; then the request is repeated, or the client gets an error.

use crate::handler::pipe::{PipeReader, pipe};
use crate::handler::proxy::attempt::Attempt;
use crate::handler::proxy::body::OutgoingBody;
use crate::handler::proxy::failure::{
    AttemptFailure, FailureStage, is_idempotent, line, log_change, place,
};
use crate::handler::proxy::h2_attempt::H2Attempt;
use crate::handler::proxy::place::{PlacePace, ShortageWait, wants_tunnel};
use crate::handler::proxy::response_head::HeadReader;
use crate::handler::proxy::route::{NAME, ProxyRoute};
use crate::handler::proxy::{failure, request_head};
use crate::handler::{HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::ledger::access_log::MemberCall;
use crate::ledger::shared_limit::SharedLimit;
use crate::limits::{GRPC_PAUSE_SECONDS, PROXY_REFUSALS_MAX, TUNNEL_CLAIM_MILLISECONDS};
use crate::upstream::{
    H2Connecting, Lease, LeftRequest, Member, MemberConnecting, MemberPool, QueueTicket,
};
use balancer::{
    ChooseRequest, MemberId, NoMember, PlaceReport, SessionUse, WaitRefused, Waited, client_hash,
    session_value,
};
use base::clock::monotonic_ms;
use base::coarse_timer::CoarseTimer;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use wire::fields::Fields;
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Starts the call of a member with the client's request.
pub(super) fn begin(
    route: &Arc<ProxyRoute>,
    mut request: Request,
) -> LocalBoxFuture<Result<Response, HandlerError>> {
    if let Err(reject) = request_head::check(&request, route) {
        return Box::pin(std::future::ready(Err(HandlerError::new(NAME, reject))));
    }
    if request_head::ends_here(&request) {
        let response = Response::new(
            Status::NO_CONTENT,
            ResponseFields::default(),
            ResponseBody::Empty,
        );
        return Box::pin(std::future::ready(Ok(response)));
    }
    let route = Arc::clone(route);
    match request.length {
        // The content of a request for a protocol switch is the client's part of the tunnel.
        _ if request.upgrade.is_some() => {
            let body = OutgoingBody::none(BodyLength::None);
            Box::pin(ProxyCall::new(route, request, body))
        }
        BodyLength::None | BodyLength::Length(0) => {
            let body = OutgoingBody::none(request.length);
            Box::pin(ProxyCall::new(route, request, body))
        }
        BodyLength::Chunked if route.balancer.settings().connection.is_http2 => {
            let (_, nothing) = pipe(1);
            let mut reader = std::mem::replace(&mut request.body, nothing);
            reader.hold(request.expects_continue);
            grant_pauses(&mut reader, Fields(&request.fields));
            let body = OutgoingBody::streamed(reader, BodyLength::Chunked);
            Box::pin(ProxyCall::new(route, request, body))
        }
        length => {
            request.body.hold(request.expects_continue);
            Box::pin(async move {
                let body = OutgoingBody::receive(&mut request, length).await?;
                ProxyCall::new(route, request, body).await
            })
        }
    }
}

/// Lets the client of a gRPC call pause between two messages of its body, for any time. `fields` are those of the request.
fn grant_pauses(body: &mut PipeReader, fields: Fields<'_>) {
    if is_grpc(fields) {
        body.be_patient(Duration::from_secs(GRPC_PAUSE_SECONDS));
    }
}

/// Returns true for the fields of a gRPC call. The body of the call is a stream of messages.
fn is_grpc(fields: Fields<'_>) -> bool {
    let media_type = fields.first("content-type");
    media_type.is_some_and(|it| it.starts_with(b"application/grpc"))
}

/// A call in progress, until the head of the response has arrived.
pub(super) struct ProxyCall {
    pub(super) route: Arc<ProxyRoute>,
    pub(super) request: Request,
    pub(super) body: OutgoingBody,
    pub(super) state: CallState,
    /// Member of the current attempt.
    pub(super) lease: Option<Lease>,
    /// Members that failed to answer the request.
    pub(super) tried: Vec<MemberId>,
    /// Attempts that a member left without a byte of an answer.
    pub(super) left: Vec<LeftRequest>,
    /// Number of attempts, for the log.
    pub(super) tries: u32,
    /// Beginning of the current connection attempt; None on a kept connection.
    pub(super) connecting_since: Option<Instant>,
    /// Reason of the last failed attempt.
    pub(super) last_failure: Option<AttemptFailure>,
    /// True if the next attempt needs a new connection, because the request must not meet a connection that
    /// the member is about to close.
    pub(super) needs_new_connection: bool,
    /// Time since which a connection of HTTP/2 must have been opened, after a failure of an older one.
    pub(super) h2_since: Option<Instant>,
    /// Number of attempts that a member refused without processing the request.
    pub(super) refusals: u32,
    /// True if the request waits on for the answer of a member that went down.
    pub(super) stays: bool,
    pub(super) timer: Option<CoarseTimer>,
    /// Members without room for a connection, and the wait for room.
    pub(super) shortage: ShortageWait,
    /// Rate at which the client sends the request.
    upload: PlacePace,
}

pub(super) enum CallState {
    /// A member is to be chosen.
    Choosing,
    /// All usable members are busy, or the member of the session is.
    Queued(QueuedRequest),
    /// No member has room for a connection.
    AwaitingRoom,
    /// A connection is being established.
    Connecting(MemberConnecting),
    /// The request is on its way, or the response is awaited.
    Attempting(Box<Attempt>),
    /// A connection of HTTP/2 is awaited.
    ConnectingH2(H2Connecting),
    /// The request is on its way over HTTP/2, or the response is awaited.
    AttemptingH2(Box<H2Attempt>),
}

/// Request in the queue of a balancer.
pub(super) struct QueuedRequest {
    ticket: QueueTicket,
    /// Member that the request needs; None for any member.
    session_member: Option<MemberId>,
    /// Time of the next claim to the place of a silent tunnel.
    claim: Option<CoarseTimer>,
}

impl ProxyCall {
    fn new(route: Arc<ProxyRoute>, request: Request, body: OutgoingBody) -> ProxyCall {
        ProxyCall {
            needs_new_connection: !is_idempotent(request.method) || request.upgrade.is_some(),
            route,
            request,
            body,
            state: CallState::Choosing,
            lease: None,
            tried: Vec::new(),
            left: Vec::new(),
            tries: 0,
            connecting_since: None,
            last_failure: None,
            h2_since: None,
            refusals: 0,
            stays: false,
            timer: None,
            shortage: ShortageWait::default(),
            upload: PlacePace::default(),
        }
    }

    /// Chooses a member and takes a connection.
    fn choose(&mut self) -> Result<CallState, AttemptFailure> {
        let chosen = self.with_question(|balancer, question| balancer.choose(question));
        match chosen {
            Ok(lease) => self.connect(lease),
            Err(NoMember::Busy { session_member }) => {
                let waits = self
                    .with_question(|balancer, question| balancer.wait(question, session_member));
                match waits {
                    Ok(ticket) => {
                        self.request.active.wait_for_member();
                        Ok(CallState::Queued(QueuedRequest {
                            ticket,
                            session_member,
                            claim: None,
                        }))
                    }
                    Err(WaitRefused::QueueFull) => {
                        Err(self.busy(session_member, failure::queue_full_cause))
                    }
                    Err(WaitRefused::NoMember(NoMember::SessionLost)) => Err(self.session_lost()),
                    Err(WaitRefused::NoMember(_)) => Err(self.none_usable()),
                }
            }
            Err(NoMember::NoneUsable | NoMember::SessionLost) if self.may_await_room() => {
                self.request.active.wait_for_member();
                Ok(CallState::AwaitingRoom)
            }
            Err(NoMember::NoneUsable) => Err(self.none_usable()),
            Err(NoMember::SessionLost) => Err(self.session_lost()),
        }
    }

    /// Returns the failure of a request that finds all members busy, with its cause. A share of the client is counted.
    fn busy(
        &self,
        session_member: Option<MemberId>,
        cause: impl FnOnce(&PlaceReport) -> String,
    ) -> AttemptFailure {
        let places = self
            .with_question(|balancer, question| balancer.place_report(question, session_member));
        if places.is_share_taken {
            self.route.refusals.increment(SharedLimit::MemberPlaces);
        }
        AttemptFailure::none(Reject::UPSTREAM_BUSY).because(cause(&places))
    }

    /// Calls `ask` with the balancer and the question for a member.
    pub(super) fn with_question<T>(
        &self,
        ask: impl FnOnce(&crate::upstream::Balancer, &ChooseRequest<'_>) -> T,
    ) -> T {
        let route = &*self.route;
        // The operator may change the sessions at runtime.
        let settings = route.balancer.settings();
        let session = settings.sticky.as_ref().and_then(|sticky| {
            let target = std::str::from_utf8(&self.request.raw_path).unwrap_or_default();
            let cookies = Fields(&self.request.fields).all("cookie");
            let cookies = cookies.filter_map(|cookie| std::str::from_utf8(cookie).ok());
            session_value(sticky, target, cookies)
        });
        let client = self.request.peer.into();
        let question = ChooseRequest {
            client,
            client_hash: client_hash(client),
            session,
            tried: &self.tried,
            is_gathered: !self.body.has_rest(),
            is_tunnel: settings.is_bounded() && wants_tunnel(&self.request),
            now_ms: monotonic_ms(),
        };
        ask(&route.balancer, &question)
    }

    /// Returns the failure of a request without a usable member: the failure of the last member tried, if
    /// any.
    fn none_usable(&mut self) -> AttemptFailure {
        let last = self.last_failure.take();
        let last = last.map(|failure| AttemptFailure {
            stage: FailureStage::NoMember,
            ..failure
        });
        last.unwrap_or_else(|| AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE))
    }

    /// Returns the failure of a request in a session with an unusable member, if `strict` keeps the session at that
    /// member.
    fn session_lost(&mut self) -> AttemptFailure {
        let member = self.with_question(|balancer, question| balancer.session_member(question));
        let failure = self.none_usable();
        match member {
            Some(member) if failure.source.is_none() => {
                let name = member.name();
                failure.because(format!("`strict` binds the session to {name}"))
            }
            _ => failure,
        }
    }

    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::Queued(queued) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Choosing));
        };
        let session_member = queued.session_member;
        match queued.poll(&self.route, cx) {
            Poll::Ready(Waited::Lease(mut lease)) => {
                lease.leave_queue(monotonic_ms());
                Poll::Ready(self.connect(lease))
            }
            Poll::Ready(Waited::ChooseAgain) => Poll::Ready(Ok(CallState::Choosing)),
            Poll::Ready(Waited::Dropped) => {
                self.route.refusals.increment(SharedLimit::MemberPlaces);
                let places = self.with_question(|balancer, question| {
                    balancer.place_report(question, session_member)
                });
                let busy = AttemptFailure::none(Reject::UPSTREAM_BUSY);
                Poll::Ready(Err(busy.because(failure::queue_share_cause(&places))))
            }
            Poll::Pending => {
                let timeout = self.route.balancer.settings().connection.queue_timeout;
                ready!(self.poll_timer(cx, timeout));
                let cause = |places: &PlaceReport| failure::queue_timeout_cause(places, timeout);
                Poll::Ready(Err(self.busy(session_member, cause)))
            }
        }
    }

    /// Continues the attempt. Ready with the response, or with the failure of the attempt.
    fn poll_attempt(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response, AttemptFailure>> {
        let may_move =
            !self.stays && is_idempotent(self.request.method) && self.body.is_replayable();
        let mut reader = HeadReader {
            request: &mut self.request,
            route: &self.route,
            lease: &mut self.lease,
            tries: self.tries,
        };
        let (polled, has_answer) = match &mut self.state {
            CallState::Attempting(attempt) => (attempt.poll(&mut reader, cx), attempt.has_answer()),
            CallState::AttemptingH2(attempt) => {
                (attempt.poll(&mut reader, cx), attempt.has_answer())
            }
            _ => return Poll::Pending,
        };
        if polled.is_pending() && self.gives_way(cx) {
            let slow = AttemptFailure::new(FailureStage::Client, Reject::BODY_SLOW);
            return Poll::Ready(Err(slow));
        }
        let may_move = may_move && polled.is_pending() && !has_answer;
        if may_move && self.poll_member_down(cx) {
            self.stays = !self.takes_move();
            if !self.stays {
                let reject = Reject::UPSTREAM_NONE_USABLE;
                let down = AttemptFailure::new(FailureStage::MemberDown, reject);
                return Poll::Ready(Err(down.because(failure::MEMBER_DOWN)));
            }
        }
        polled
    }

    /// Returns true if the client sends the request so slowly that a request of another client gets the place of the member. A
    /// gRPC client may pause between two messages while its call has one of the places of tunnels. Otherwise a few clients
    /// that begin a gRPC call and fall silent would hold all places.
    fn gives_way(&mut self, cx: &mut Context<'_>) -> bool {
        let (waits, sent_bytes) = match &self.state {
            CallState::Attempting(attempt) => attempt.upload(),
            CallState::AttemptingH2(attempt) => attempt.upload(),
            _ => return false,
        };
        let mut lease = self.lease.as_mut();
        let may_pause = waits
            && is_grpc(Fields(&self.request.fields))
            && lease.as_deref_mut().is_none_or(Lease::begin_tunnel);
        if waits && !may_pause {
            let refusals = &self.route.refusals;
            return self.upload.wait(lease, sent_bytes, refusals, cx);
        }
        self.upload.progress(lease, sent_bytes);
        false
    }

    /// Returns true if an idempotent request leaves a member that went down for another member, and takes the move
    /// from the budget. Any other request waits on, since the member may answer all the same.
    fn takes_move(&self) -> bool {
        let settings = self.route.balancer.settings();
        let is_bound = settings.sticky.as_ref().is_some_and(|it| it.is_strict)
            && matches!(&self.lease, Some(lease) if lease.session() == SessionUse::Kept);
        !is_bound && !self.is_last_attempt() && self.take_retry(monotonic_ms())
    }

    /// Returns true if active checks found the member of the attempt down.
    pub(super) fn poll_member_down(&mut self, cx: &Context<'_>) -> bool {
        let lease = self
            .lease
            .as_mut()
            .filter(|lease| lease.member().has_checks());
        lease.is_some_and(|lease| lease.poll_member_down(cx).is_ready())
    }

    /// Ready if `timeout` has passed since the first call of the current wait.
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        CoarseTimer::poll_timeout(&mut self.timer, timeout, cx)
    }
}

impl QueuedRequest {
    /// Polls the wait for a member. A request for a tunnel claims the place of a silent tunnel once in a while.
    fn poll(&mut self, route: &ProxyRoute, cx: &mut Context<'_>) -> Poll<Waited<MemberPool>> {
        let waited = Pin::new(&mut self.ticket).poll(cx);
        if waited.is_pending() && self.ticket.is_tunnel() {
            let pause = Duration::from_millis(TUNNEL_CLAIM_MILLISECONDS);
            while CoarseTimer::poll_timeout(&mut self.claim, pause, cx).is_ready() {
                self.claim = None;
                route.balancer.claim_tunnel(&self.ticket, monotonic_ms());
            }
        }
        waited
    }
}

impl Future for ProxyCall {
    type Output = Result<Response, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        loop {
            let next = match &call.state {
                CallState::Choosing => call.choose(),
                CallState::Queued(_) => ready!(call.poll_queued(cx)),
                CallState::AwaitingRoom => Ok(ready!(call.poll_room(cx))),
                CallState::Connecting(_) => ready!(call.poll_connected(cx)),
                CallState::ConnectingH2(_) => ready!(call.poll_connected_h2(cx)),
                CallState::Attempting(_) | CallState::AttemptingH2(_) => {
                    match ready!(call.poll_attempt(cx)) {
                        Ok(response) => {
                            if !call.left.is_empty() {
                                call.report_left(&response);
                            }
                            return Poll::Ready(Ok(response));
                        }
                        Err(failure) => Err(failure),
                    }
                }
            };
            call.state = match next {
                Ok(state) => state,
                Err(failure) => match call.after(failure) {
                    None => CallState::Choosing,
                    Some(error) => return Poll::Ready(Err(error)),
                },
            };
        }
    }
}

impl ProxyCall {
    /// Reports a failed attempt to the balancer. Returns the response for the client, or None if the request
    /// goes to a member again.
    pub(super) fn after(&mut self, mut failure: AttemptFailure) -> Option<HandlerError> {
        let now_ms = monotonic_ms();
        self.timer = None;
        if failure.stage == FailureStage::StaleConnection && self.h2_since.is_some() {
            // The second connection in a row: the request itself may be the cause.
            failure.stage = FailureStage::BeforeResponse;
        }
        let member = self.report(&failure, now_ms);
        failure.member = member.or(failure.member);
        let attempt = std::mem::replace(&mut self.state, CallState::Choosing);
        if let (FailureStage::Refused, CallState::AttemptingH2(attempt)) = (failure.stage, attempt)
        {
            attempt.give_back(&mut self.body);
        }
        if let FailureStage::Shortage(fault) = failure.stage {
            let member = member?;
            self.tried.push(member);
            self.shortage.add(member, fault, Instant::now());
            self.last_failure = Some(failure);
            return None;
        }
        let asks_member_again = match failure.stage {
            FailureStage::StaleConnection => true,
            FailureStage::Refused => self.may_ask_refusing_member(),
            _ => false,
        };
        if !self.may_repeat(&failure, asks_member_again, now_ms) {
            self.log_repeated();
            return Some(self.error(failure));
        }
        self.prepare_connection(failure.stage);
        if !asks_member_again {
            self.tried.extend(member);
        }
        self.last_failure = Some(failure);
        None
    }

    /// Returns true if the request may be sent again, and takes the repetition from the budget if need be.
    fn may_repeat(&self, failure: &AttemptFailure, asks_member_again: bool, now_ms: u64) -> bool {
        let is_idempotent = is_idempotent(self.request.method);
        if !failure.may_repeat(is_idempotent, self.body.is_replayable()) {
            return false;
        }
        if self.is_last_attempt() && !asks_member_again {
            return false;
        }
        let is_refused_again = failure.stage == FailureStage::Refused && self.refusals > 0;
        let needs_budget = failure.needs_budget() || is_refused_again;
        !needs_budget || self.take_retry(now_ms)
    }

    /// Records which connections the next attempt must not use.
    fn prepare_connection(&mut self, stage: FailureStage) {
        match stage {
            FailureStage::StaleConnection => {
                self.needs_new_connection = true;
                self.h2_since = Some(Instant::now());
            }
            FailureStage::Refused => {
                self.refusals += 1;
                if self.refusals > 1 {
                    // The member may refuse all requests on the connection.
                    self.h2_since = Some(Instant::now());
                }
            }
            _ => {}
        }
    }

    /// Reports a failure to the balancer, and ends the lease. Returns the member of the attempt.
    fn report(&mut self, failure: &AttemptFailure, now_ms: u64) -> Option<MemberId> {
        let mut lease = self.lease.take()?;
        let change = match failure.stage {
            FailureStage::Connect => match failure.reject {
                Reject::UPSTREAM_TLS_FAILED => lease.record_tls_failure(now_ms),
                Reject::UPSTREAM_FRAME_MALFORMED => lease.record_http2_failure(now_ms),
                _ => lease.record_connect_failure(now_ms),
            },
            FailureStage::BeforeResponse | FailureStage::Silent | FailureStage::InResponse => {
                lease.record_failure(now_ms)
            }
            FailureStage::StaleConnection
            | FailureStage::Shortage(_)
            | FailureStage::Refused
            | FailureStage::MemberDown
            | FailureStage::NoMember
            | FailureStage::Client => None,
        };
        if let Some(change) = change {
            log_change(&self.route, &lease, change);
        }
        if failure.stage == FailureStage::BeforeResponse {
            self.left.push(lease.left_request());
        }
        Some(lease.member().id())
    }

    /// Reports to the balancer that a member answered a request that other members had left without an answer. An error
    /// of the member proves nothing about the other members.
    #[cold]
    pub(super) fn report_left(&self, response: &Response) {
        if response.status.0 < 500 {
            let now_ms = monotonic_ms();
            self.left
                .iter()
                .for_each(|left| left.record_answer_elsewhere(now_ms));
        }
    }

    /// Logs the failed attempt that the current attempt repeats, unless a line about the member was logged a short
    /// while ago. A connection closed by the member in an orderly way is no failure of the member.
    pub(super) fn log_repeated(&mut self) {
        let is_orderly = |it: &AttemptFailure| {
            matches!(
                it.stage,
                FailureStage::StaleConnection | FailureStage::Refused
            )
        };
        let Some(failure) = self.last_failure.take().filter(|it| !is_orderly(it)) else {
            return;
        };
        let member = failure.member.and_then(|id| self.member(id));
        if member.is_some_and(|member| member.takes_retry_line(monotonic_ms())) {
            log::warn!("{}", self.repeated_line(failure));
        }
    }

    /// Returns the log line about a failed attempt that is repeated. Another member was usable for a request that left
    /// a member.
    fn repeated_line(&self, failure: AttemptFailure) -> String {
        match failure.stage {
            FailureStage::MemberDown => {
                let member = failure.member.and_then(|id| self.member(id));
                let name = member.as_ref().map(|member| &**member.name());
                let place = place(self.route.balancer.name(), name);
                let (line, why) = (line(&self.request), failure::MEMBER_DOWN);
                format!("{NAME}: {line}: {place}: {why}; the request goes to another member")
            }
            FailureStage::Shortage(_) => {
                format!("{}; the request is tried again", self.error(failure))
            }
            _ => format!(
                "{}; the request goes to another member",
                self.error(failure)
            ),
        }
    }

    /// Returns the member with a number.
    fn member(&self, id: MemberId) -> Option<Arc<Member>> {
        let mut members = self.route.balancer.members().into_iter();
        members.find(|known| known.id() == id)
    }

    /// Returns the error of an attempt, with details for the log.
    fn error(&self, failure: AttemptFailure) -> HandlerError {
        let line = line(&self.request);
        let member = failure.member.and_then(|id| self.member(id));
        let name = member.as_ref().map(|member| &**member.name());
        let place = place(self.route.balancer.name(), name);
        let why = match failure.source {
            Some(source) => format!("{line}: {place}: {source}"),
            None => format!("{line}: {place}"),
        };
        let member = member.map(|member| MemberCall {
            url: Arc::clone(member.name()),
            tries: self.tries,
            connect_micros: None,
            first_byte_micros: None,
        });
        // Any client can cause the end of requests by shares, so the access log has the rule, and the error log no line.
        let error = if failure.reject == Reject::CALL_SHARE_TAKEN {
            HandlerError::new(NAME, failure.reject)
        } else {
            HandlerError::because(NAME, failure.reject, why)
        };
        HandlerError {
            member: member.map(Box::new),
            ..error
        }
    }

    /// Returns true if a request that a member has not processed may go to that member again. The member may have closed
    /// one connection, and accept the request on the next. After that, members that are still to be tried come first.
    fn may_ask_refusing_member(&self) -> bool {
        let others = self.route.balancer.members().len() > self.tried.len() + 1;
        match self.refusals {
            0 => true,
            refusals => !others && refusals < PROXY_REFUSALS_MAX,
        }
    }

    /// Returns true if the request may go to no further member. The first attempt counts as one of the members tried.
    /// Members without room for a connection do not count.
    pub(super) fn is_last_attempt(&self) -> bool {
        let settings = self.route.balancer.settings();
        let failed = self.tried.len() - self.shortage.members();
        failed >= usize::from(settings.retry.attempts_max)
    }

    /// Takes a retry from the budget of the balancer.
    pub(super) fn take_retry(&self, now_ms: u64) -> bool {
        let client = client_hash(self.request.peer.into());
        self.route.balancer.take_retry(client, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BODY_GRACE_SECONDS;

    #[test]
    fn the_client_of_a_grpc_call_may_pause() {
        for (fields, seconds) in [
            (
                &b"Content-Type: application/grpc\r\n"[..],
                GRPC_PAUSE_SECONDS,
            ),
            (
                b"content-type: application/grpc+proto\r\n",
                GRPC_PAUSE_SECONDS,
            ),
            (b"content-type: application/json\r\n", BODY_GRACE_SECONDS),
            (b"", BODY_GRACE_SECONDS),
        ] {
            let (writer, mut reader) = pipe(1);
            grant_pauses(&mut reader, Fields(fields));
            let text = fields.escape_ascii();
            assert_eq!(writer.patience(), Duration::from_secs(seconds), "{text}");
        }
    }
}
