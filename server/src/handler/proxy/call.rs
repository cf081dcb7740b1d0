//! Call of a member: attempts to get a response, at further members where a request may be repeated.

use crate::base::clock::monotonic_ms;
use crate::base::coarse_timer::CoarseTimer;
use crate::base::fair_share::SharedLimit;
use crate::base::log::MemberCall;
use crate::handler::pipe::pipe;
use crate::handler::proxy::attempt::Attempt;
use crate::handler::proxy::body::OutgoingBody;
use crate::handler::proxy::cause;
use crate::handler::proxy::h2_attempt::H2Attempt;
use crate::handler::proxy::head_reader::HeadReader;
use crate::handler::proxy::log::{line, log_change, place};
use crate::handler::proxy::memory;
use crate::handler::proxy::proxy_header::proxy_header;
use crate::handler::proxy::request_head;
use crate::handler::proxy::retry::{AttemptFailure, FailureStage, is_idempotent};
use crate::handler::proxy::route::{NAME, ProxyRoute};
use crate::handler::proxy::shortage;
use crate::handler::proxy::shortage::ShortageWait;
use crate::handler::{HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::limits::{GRPC_PAUSE_SECONDS, PROXY_REFUSALS_MAX};
use crate::upstream::balancer::{
    ChooseRequest, Lease, Member, MemberId, NoMember, PlaceReport, QueueTicket, SessionUse,
    WaitRefused, Waited, client_hash, session_value,
};
use crate::upstream::{
    ConnectFault, H2Connecting, H2MemberConn, MemberConn, MemberConnecting, MemberPool,
};
use crate::wire::fields::Fields;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::Status;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

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
            if is_grpc(&request) {
                reader.be_patient(Duration::from_secs(GRPC_PAUSE_SECONDS));
            }
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

/// Returns true for a gRPC call. Its body is a stream of messages, and the client may pause between two messages.
fn is_grpc(request: &Request) -> bool {
    let media_type = Fields(&request.fields).first("content-type");
    media_type.is_some_and(|it| it.starts_with(b"application/grpc"))
}

/// A call in progress, until the head of the response has arrived.
struct ProxyCall {
    route: Arc<ProxyRoute>,
    request: Request,
    body: OutgoingBody,
    state: CallState,
    /// Member of the current attempt.
    lease: Option<Lease>,
    /// Members that failed to answer the request.
    tried: Vec<MemberId>,
    /// Number of attempts, for the log.
    tries: u32,
    /// Begin of the current connection attempt; None on a kept connection.
    connecting_since: Option<Instant>,
    /// Reason of the last failed attempt.
    last_failure: Option<AttemptFailure>,
    /// True if the next attempt needs a new connection, because the request must not meet a connection that
    /// the member is about to close.
    needs_new_connection: bool,
    /// Time since which a connection of HTTP/2 must have been opened, after a failure of an older one.
    h2_since: Option<Instant>,
    /// Number of attempts that a member refused without processing the request.
    refusals: u32,
    /// True if the request waits on for the answer of a member that went down.
    stays: bool,
    timer: Option<CoarseTimer>,
    /// Members without room for a connection, and the wait for room.
    shortage: ShortageWait,
}

enum CallState {
    /// A member is to be chosen.
    Choosing,
    /// All usable members are busy, or the member of the session is.
    Queued(QueueTicket, Option<MemberId>),
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
            tries: 0,
            connecting_since: None,
            last_failure: None,
            h2_since: None,
            refusals: 0,
            stays: false,
            timer: None,
            shortage: ShortageWait::default(),
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
                    Ok(ticket) => Ok(CallState::Queued(ticket, session_member)),
                    Err(WaitRefused::QueueFull) => {
                        Err(self.busy(session_member, cause::queue_full))
                    }
                    Err(WaitRefused::NoMember(NoMember::SessionLost)) => Err(self.session_lost()),
                    Err(WaitRefused::NoMember(_)) => Err(self.none_usable()),
                }
            }
            Err(NoMember::NoneUsable | NoMember::SessionLost) if self.may_await_room() => {
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
    fn with_question<T>(
        &self,
        ask: impl FnOnce(&crate::upstream::balancer::Balancer, &ChooseRequest<'_>) -> T,
    ) -> T {
        let route = &*self.route;
        let sticky = route.sticky.as_ref();
        let session = sticky.and_then(|sticky| {
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

    /// Returns the failure of a request whose session must not leave its unusable member.
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

    /// Takes an idle connection to the member, or starts a new one.
    fn connect(&mut self, lease: Lease) -> Result<CallState, AttemptFailure> {
        self.log_repeated();
        let pool = lease.member().pool();
        self.lease = Some(lease);
        self.stays = false;
        self.timer = None;
        let Some(pool) = pool else {
            return Err(AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE));
        };
        self.tries += 1;
        self.connecting_since = None;
        let is_http2 = pool.settings.is_http2;
        let idle = match self.needs_new_connection || is_http2 {
            true => None,
            false => pool.take_idle(memory::widest_idle(&self.request.memory)),
        };
        if let Some(conn) = idle {
            return self.attempt(conn);
        }
        self.connecting_since = Some(Instant::now());
        let version = pool.settings.send_proxy_header;
        let first = version.map(|version| proxy_header(version, &self.request));
        let first = first.unwrap_or_default();
        if is_http2 {
            let is_cautious = !is_idempotent(self.request.method);
            let upload = self.body.upload_length();
            let connecting = H2Connecting::new(pool, first, self.h2_since, is_cautious, upload);
            return Ok(CallState::ConnectingH2(connecting));
        }
        let timeout = pool.settings.connect_timeout;
        let connecting = MemberConnecting::new(pool, timeout, first);
        let client = self.request.peer.into();
        Ok(CallState::Connecting(connecting.for_client(client)))
    }

    /// Ends the wait for a connection. Returns the member's pool, and the time of a new connection.
    fn end_connecting(&mut self) -> Result<(Arc<MemberPool>, Option<Duration>), AttemptFailure> {
        self.timer = None;
        let pool = self.lease.as_ref().and_then(|lease| lease.member().pool());
        let pool = pool.ok_or(AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE))?;
        let connect_time = self.connecting_since.map(|since| since.elapsed());
        Ok((pool, connect_time))
    }

    /// Begins an attempt on a connection.
    fn attempt(&mut self, conn: MemberConn) -> Result<CallState, AttemptFailure> {
        let (pool, connect_time) = self.end_connecting()?;
        let attempt = Attempt::new(
            conn,
            pool,
            connect_time,
            &self.request,
            &self.route,
            &mut self.body,
        )?;
        Ok(CallState::Attempting(Box::new(attempt)))
    }

    /// Begins an attempt on a connection of HTTP/2.
    fn attempt_h2(&mut self, conn: &H2MemberConn) -> Result<CallState, AttemptFailure> {
        let (pool, connect_time) = self.end_connecting()?;
        if self.request.upgrade.is_some() {
            // The members changed to HTTP/2 by a reload since the request began.
            return Err(AttemptFailure::none(Reject::UPSTREAM_NONE_USABLE));
        }
        let attempt = H2Attempt::new(
            conn,
            pool,
            connect_time,
            &self.request,
            &self.route,
            &mut self.body,
        )?;
        Ok(CallState::AttemptingH2(Box::new(attempt)))
    }

    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::Queued(ticket, session_member) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Choosing));
        };
        let session_member = *session_member;
        match Pin::new(ticket).poll(cx) {
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
                Poll::Ready(Err(busy.because(cause::queue_share(&places))))
            }
            Poll::Pending => {
                let timeout = self.route.balancer.settings().connection.queue_timeout;
                ready!(self.poll_timer(cx, timeout));
                let cause = |places: &PlaceReport| cause::queue_timeout(places, timeout);
                Poll::Ready(Err(self.busy(session_member, cause)))
            }
        }
    }

    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::Connecting(connecting) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Choosing));
        };
        let connected = connecting.poll(cx);
        if connected.is_pending() {
            return self.poll_connect_timeout(cx).map(Err);
        }
        let mut conn = match ready!(connected) {
            Ok(conn) => conn,
            Err(error) => self.instead_of_new_connection(error)?,
        };
        if conn.has_unasked_bytes() {
            return Poll::Ready(Err(AttemptFailure::unasked_bytes()));
        }
        Poll::Ready(self.attempt(conn))
    }

    /// Returns a connection that has answered a moment ago, if no local port is left for a new connection.
    /// Otherwise classifies the failure of the connection attempt.
    fn instead_of_new_connection(
        &mut self,
        error: io::Error,
    ) -> Result<MemberConn, AttemptFailure> {
        let failure = self.connect_failure(error);
        if failure.stage == FailureStage::Shortage(ConnectFault::LocalPorts)
            && let Some(pool) = self.lease.as_ref().and_then(|lease| lease.member().pool())
            && let Some(conn) = pool.take_fresh(Instant::now())
        {
            return Ok(conn);
        }
        Err(failure)
    }

    /// Classifies the failure of a connection attempt, and logs a shortage of this machine.
    fn connect_failure(&self, error: io::Error) -> AttemptFailure {
        let pool = self.lease.as_ref().and_then(|lease| lease.member().pool());
        let is_unix = pool.is_some_and(|pool| pool.address.is_unix());
        let fault = ConnectFault::of(&error, is_unix);
        if fault.is_of_member() {
            return AttemptFailure::connect(error);
        }
        shortage::log(self.route.balancer.name(), fault);
        AttemptFailure::shortage(fault, error)
    }

    /// Returns true if the request may wait until a member has room for a connection.
    fn may_await_room(&self) -> bool {
        let queue_timeout = self.route.balancer.settings().connection.queue_timeout;
        self.shortage.may_go_on(Instant::now(), queue_timeout)
    }

    /// Ready after the pause before the next attempt at the members without room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<CallState> {
        ready!(self.shortage.poll_pause(cx));
        let short = self.shortage.take_members();
        self.tried.retain(|member| !short.contains(member));
        Poll::Ready(CallState::Choosing)
    }

    fn poll_connected_h2(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CallState, AttemptFailure>> {
        let CallState::ConnectingH2(connecting) = &mut self.state else {
            return Poll::Ready(Ok(CallState::Choosing));
        };
        let connected = connecting.poll(cx);
        if !connecting.has_waited() {
            self.connecting_since = None;
        }
        if connected.is_pending() {
            return self.poll_connect_timeout(cx).map(Err);
        }
        let conn = ready!(connected).map_err(|error| self.connect_failure(error))?;
        Poll::Ready(self.attempt_h2(&conn))
    }

    /// Ready with a failure if the connection takes too long, or the member went down.
    fn poll_connect_timeout(&mut self, cx: &mut Context<'_>) -> Poll<AttemptFailure> {
        if self.poll_member_down(cx) {
            let gone = io::Error::other(cause::MEMBER_DOWN);
            return Poll::Ready(AttemptFailure::connect(gone));
        }
        let settings = self.lease.as_ref().and_then(|lease| lease.member().pool());
        let timeout = settings.map_or(Duration::ZERO, |pool| pool.settings.connect_timeout);
        ready!(self.poll_timer(cx, timeout));
        let why = cause::timeout("connect_timeout", timeout);
        let slow = AttemptFailure::new(FailureStage::Connect, Reject::UPSTREAM_CONNECT_SLOW);
        Poll::Ready(slow.because(why))
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
        let may_move = may_move && polled.is_pending() && !has_answer;
        if may_move && self.poll_member_down(cx) {
            self.stays = !self.takes_move();
            if !self.stays {
                let reject = Reject::UPSTREAM_NONE_USABLE;
                let down = AttemptFailure::new(FailureStage::MemberDown, reject);
                return Poll::Ready(Err(down.because(cause::MEMBER_DOWN)));
            }
        }
        polled
    }

    /// Returns true if an idempotent request leaves a member that went down for another member, and takes the move
    /// from the budget. Any other request waits on, since the member may answer all the same.
    fn takes_move(&self) -> bool {
        let is_bound = self.route.sticky.as_ref().is_some_and(|it| it.is_strict)
            && matches!(&self.lease, Some(lease) if lease.session() == SessionUse::Kept);
        !is_bound && !self.is_last_attempt() && self.take_retry(monotonic_ms())
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
    fn is_last_attempt(&self) -> bool {
        let settings = self.route.balancer.settings();
        let failed = self.tried.len() - self.shortage.members();
        failed >= usize::from(settings.retry.attempts_max)
    }

    /// Takes a retry from the budget of the balancer.
    fn take_retry(&self, now_ms: u64) -> bool {
        let client = client_hash(self.request.peer.into());
        self.route.balancer.take_retry(client, now_ms)
    }

    /// Returns true if active checks found the member of the attempt down.
    fn poll_member_down(&mut self, cx: &Context<'_>) -> bool {
        let lease = self.lease.as_mut().filter(|_| self.route.watches_members);
        lease.is_some_and(|lease| lease.poll_member_down(cx).is_ready())
    }

    /// Ready if `timeout` has passed since the first call of the current wait.
    fn poll_timer(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        let deadline = tokio::time::Instant::now() + timeout;
        let new = || CoarseTimer::new(deadline, cx.waker());
        match self.timer.get_or_insert_with(new).has_passed() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Future for ProxyCall {
    type Output = Result<Response, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        loop {
            let next = match &call.state {
                CallState::Choosing => call.choose(),
                CallState::Queued(..) => ready!(call.poll_queued(cx)),
                CallState::AwaitingRoom => Ok(ready!(call.poll_room(cx))),
                CallState::Connecting(_) => ready!(call.poll_connected(cx)),
                CallState::ConnectingH2(_) => ready!(call.poll_connected_h2(cx)),
                CallState::Attempting(_) | CallState::AttemptingH2(_) => {
                    match ready!(call.poll_attempt(cx)) {
                        Ok(response) => return Poll::Ready(Ok(response)),
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
    fn after(&mut self, mut failure: AttemptFailure) -> Option<HandlerError> {
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
        let is_member_to_try = match failure.stage {
            FailureStage::StaleConnection => true,
            FailureStage::Refused => self.may_ask_refusing_member(),
            _ => false,
        };
        let may_repeat = failure.may_repeat(
            is_idempotent(self.request.method),
            self.body.is_replayable(),
        );
        let is_last = self.is_last_attempt() && !is_member_to_try;
        let is_refused_again = failure.stage == FailureStage::Refused && self.refusals > 0;
        let needs_budget = failure.needs_budget() || is_refused_again;
        let goes_on = may_repeat && !is_last && (!needs_budget || self.take_retry(now_ms));
        if !goes_on {
            self.log_repeated();
            return Some(self.error(failure));
        }
        match failure.stage {
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
        if !is_member_to_try {
            self.tried.extend(member);
        }
        self.last_failure = Some(failure);
        None
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
        Some(lease.member().id())
    }

    /// Logs the failed attempt that the current attempt repeats, unless a line about the member was logged a short
    /// while ago. A connection closed by the member in an orderly way is no failure of the member.
    fn log_repeated(&mut self) {
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
                let (line, why) = (line(&self.request), cause::MEMBER_DOWN);
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
        HandlerError {
            member: member.map(Box::new),
            ..HandlerError::because(NAME, failure.reject, why)
        }
    }
}
