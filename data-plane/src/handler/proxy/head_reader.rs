//! Head of a member's response on its way to the client, over any version of HTTP to the member.

use crate::handler::interim::InterimResponse;
use crate::handler::pipe::pipe;
use crate::handler::proxy::log::log_change;
use crate::handler::proxy::response_head;
use crate::handler::proxy::route::ProxyRoute;
use crate::handler::{Request, Response, ResponseBody};
use crate::ledger::access_log::MemberCall;
use crate::upstream::balancer::Lease;
use base::clock::monotonic_ms_at;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::h1::response_head::ResponseHead;
use wire::reject::Reject;
use wire::request_head::Version;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Call of an attempt, as far as the reader of the response needs the call.
pub(super) struct HeadReader<'c> {
    pub(super) request: &'c mut Request,
    pub(super) route: &'c ProxyRoute,
    pub(super) lease: &'c mut Option<Lease>,
    /// Number of attempts, for the log.
    pub(super) tries: u32,
}

/// Times of an attempt, for the log and for the balancer.
pub(super) struct AttemptTimes {
    started: Instant,
    /// Time to establish the connection; None on a kept connection.
    connect_time: Option<Duration>,
}

impl AttemptTimes {
    /// Returns the times of an attempt that begins now.
    pub(super) fn new(connect_time: Option<Duration>) -> AttemptTimes {
        AttemptTimes {
            started: Instant::now(),
            connect_time,
        }
    }
}

impl HeadReader<'_> {
    /// Returns the fields of a response for the client. `member_host` is the host of the member's URL.
    pub(super) fn fields(
        &self,
        head: &ResponseHead<'_>,
        member_host: &[u8],
    ) -> Result<ResponseFields, Reject> {
        response_head::fields(head, self.request, self.route, member_host)
    }

    /// Sends an interim response to the client. Many clients of HTTP/1.1 take 103 (Early Hints) for the final response,
    /// as RFC 8297 §3 warns, so 103 reaches them only if the route says so.
    pub(super) fn send_interim(
        &self,
        head: &ResponseHead<'_>,
        member_host: &[u8],
    ) -> Result<(), Reject> {
        let status = head.status;
        let has_hints = self.request.version != Version::Http11 || self.route.forward.has_h1_hints;
        if status == Status::EARLY_HINTS && !has_hints {
            return Ok(());
        }
        let fields = self.fields(head, member_host)?;
        self.request
            .interim
            .send(InterimResponse { status, fields });
        Ok(())
    }

    /// Reports the answer to the balancer, and sets the session cookie. Returns the call for the log.
    pub(super) fn report_answer(
        &mut self,
        status: Status,
        fields: &mut ResponseFields,
        times: &AttemptTimes,
    ) -> Option<Box<MemberCall>> {
        let lease = self.lease.as_mut()?;
        let now = Instant::now();
        let micros = now.duration_since(times.started).as_micros() as u64;
        if let Some(change) = lease.record_answer(status.0, micros, monotonic_ms_at(now)) {
            log_change(self.route, lease, change);
        }
        if let Some(value) = lease.new_cookie()
            && let Some(sticky) = &self.route.balancer.settings().sticky
        {
            let secure = if self.request.secure { "; Secure" } else { "" };
            let name = &sticky.cookie;
            let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}");
            fields.push(b"Set-Cookie", cookie.as_bytes());
        }
        Some(Box::new(MemberCall {
            url: Arc::clone(lease.member().name()),
            tries: self.tries,
            connect_micros: times.connect_time.map(|time| time.as_micros() as u64),
            first_byte_micros: Some(micros),
        }))
    }
}

/// Returns the body of a response to HEAD with the length of the content of a GET (RFC 9110 §9.3.2).
pub(super) fn announced(length: u64) -> ResponseBody {
    let (writer, reader) = pipe(0);
    writer.finish();
    ResponseBody::Stream {
        length: Some(length),
        reader,
        work: Box::pin(std::future::ready(())),
    }
}

/// Adds the call of the member to a response, for the log.
pub(super) fn with_member(response: Response, member: Option<Box<MemberCall>>) -> Response {
    Response { member, ..response }
}
