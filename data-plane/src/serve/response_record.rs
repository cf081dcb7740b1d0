//! Record of a response that is sent later: the data for the counters and for the access log line. A response
//! that is sent at once is counted from its [`AccessLogEntry`].
//!
//! [`AccessLogEntry`]: crate::serve::access_log::AccessLogEntry

use crate::ledger::access_log::MemberCall;
use crate::ledger::active_requests::{ActiveRequestGuard, ActiveRequestHandle, RequestPhase};
use crate::ledger::route_counters::{CacheOutcome, ResponseSeries, RouteCounters};
use crate::serve::access_log::{AccessLogEntry, ClientInfo, OwnedAccessLogEntry};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use std::sync::Arc;
use wire::reject::Reject;
use wire::request_head::Version;
use wire::status::Status;

/// Record of a response that is sent later.
pub(super) struct ResponseRecord {
    /// Counters of the route; None without a site.
    pub(super) counters: Option<Arc<RouteCounters>>,
    pub(super) version: Version,
    pub(super) status: Status,
    /// Number of the rule that refused the request; 0 without a refusal.
    pub(super) rule: u16,
    pub(super) cache: CacheOutcome,
    /// False for the manager: its event streams last for minutes.
    pub(super) has_latency: bool,
    /// Data of the access log line; None where the response needs neither a line nor a count of the page view.
    pub(super) line: Option<Box<OwnedAccessLogEntry>>,
    /// Entry among the requests under way; None for a request of the manager or without a complete head.
    active: Option<ActiveRequestGuard>,
}

impl Default for ResponseRecord {
    fn default() -> ResponseRecord {
        ResponseRecord {
            counters: None,
            version: Version::default(),
            status: Status::OK,
            rule: 0,
            cache: CacheOutcome::None,
            has_latency: true,
            line: None,
            active: None,
        }
    }
}

impl AccessLogEntry<'_> {
    /// Copies the data of a response that is sent later, and enters the request among the requests under way.
    pub(super) fn keep(
        &self,
        status: Status,
        phase: RequestPhase,
        context: &WorkerContext,
        who: ClientInfo,
    ) -> ResponseRecord {
        let world = context.world();
        let who = self.client(&world, who);
        if let Some(reject) = self.reject {
            self.report(reject, context);
        }
        ResponseRecord {
            counters: self.counters.cloned(),
            version: self.version,
            status,
            rule: self.reject.map_or(0, |reject| reject.rule),
            cache: self.cache,
            has_latency: who.audience != Audience::Manager,
            line: self.keep_line(context, &world, who),
            active: self.enter(phase, context, who),
        }
    }

    /// Enters the request of a client among the requests under way. The manager's own requests are left out: its
    /// streams of events would be the oldest.
    fn enter(
        &self,
        phase: RequestPhase,
        context: &WorkerContext,
        client: ClientInfo,
    ) -> Option<ActiveRequestGuard> {
        let head = self.head.filter(|_| client.audience == Audience::Public)?;
        Some(context.active_requests.enter(|request| {
            request.started_us = self.started_us;
            request.client = client.peer;
            request.version = head.version.name();
            request.method = head.method.label();
            request.phase = phase;
            request.route = self.counters.cloned();
            request.target.set(head.host, &head.path);
        }))
    }
}

impl ResponseRecord {
    /// Returns the entry among the requests under way, for the handler.
    pub(super) fn active(&self) -> ActiveRequestHandle {
        let active = self.active.as_ref();
        active.map(ActiveRequestGuard::handle).unwrap_or_default()
    }

    /// Records the progress of the request, for the operator.
    pub(super) fn set_phase(&self, phase: RequestPhase) {
        if let Some(active) = &self.active {
            active.set_phase(phase);
        }
    }

    /// Records the refusal of the request's content. A response that has begun keeps its status.
    pub(super) fn refuse(&mut self, reject: Reject) {
        self.rule = reject.rule;
        if self.status == Status::CLIENT_LEFT {
            self.status = reject.status;
        }
    }

    /// Records the member that answered a proxied request, or that failed last.
    pub(super) fn set_member(&mut self, member: Option<Box<MemberCall>>) {
        if let Some(line) = &mut self.line {
            line.member = member;
        }
    }

    /// Counts the response with its duration in microseconds. A tunnel has no duration: the time depends on both
    /// ends of the tunnel, and is no latency of the server.
    pub(super) fn count(&self, bytes: u64, micros: Option<u64>, context: &WorkerContext) {
        match micros.filter(|_| self.has_latency) {
            Some(micros) => context.stats.response(self.status.0, bytes, micros),
            None => context.stats.tunnel(self.status.0, bytes),
        }
        let series = ResponseSeries {
            version: self.version as u8,
            cache: self.cache,
        };
        context.count_response(self.counters.as_ref(), series, self.status, bytes);
    }

    /// Counts the refusal, and writes the access log line after the end of the exchange.
    pub(super) fn log(&self, bytes: u64, context: &WorkerContext) {
        context.count_refusal(self.rule);
        if let Some(line) = &self.line {
            line.log(self.status, self.rule, bytes, context);
        }
    }
}
