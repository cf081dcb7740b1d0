//! Failed attempts of a call: the report to the balancer, the repetition or the error for the client, and the log.

use crate::handler::proxy::call::{CallState, ProxyCall};
use crate::handler::proxy::cause;
use crate::handler::proxy::log::{line, log_change, place};
use crate::handler::proxy::retry::{AttemptFailure, FailureStage, is_idempotent};
use crate::handler::proxy::route::NAME;
use crate::handler::{HandlerError, Response};
use crate::ledger::access_log::MemberCall;
use crate::limits::PROXY_REFUSALS_MAX;
use crate::upstream::balancer::{Member, MemberId, client_hash};
use base::clock::monotonic_ms;
use std::sync::Arc;
use std::time::Instant;
use wire::reject::Reject;

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
    /// of the member proves nothing about the others.
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
