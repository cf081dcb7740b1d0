//! Head of a member's response on its way to the client, over any version of HTTP to the member.

use crate::handler::interim::InterimResponse;
use crate::handler::pipe::pipe;
use crate::handler::proxy::failure::log_change;
use crate::handler::proxy::response_head;
use crate::handler::proxy::route::{ForwardedHost, ProxyRoute};
use crate::handler::{Request, Response, ResponseBody};
use crate::ledger::access_log::MemberCall;
use crate::upstream::Lease;
use base::clock::monotonic_ms_at;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wire::cookie::CookieScope;
use wire::fields::Fields;
use wire::h1::response_head::ResponseHead;
use wire::hop_by_hop::{TooManyConnectionOptions, copy_response_fields};
use wire::location::LocationScope;
use wire::reject::Reject;
use wire::request_head::Version;
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Returns the fields of a response without the fields of the connection and the fields that the driver
/// writes. URLs and cookies are rewritten.
pub(super) fn fields(
    head: &ResponseHead<'_>,
    request: &Request,
    route: &ProxyRoute,
    member_host: &[u8],
) -> Result<ResponseFields, Reject> {
    let rewriter = Rewriter {
        request,
        route,
        member_host,
    };
    let replaced = &route.forward.response_fields;
    let is_replaced = |name: &[u8]| {
        let mut names = replaced.iter().map(|(own, _)| own.as_bytes());
        names.any(|own| name.eq_ignore_ascii_case(own))
    };
    let has_rewritten = Cell::new(false);
    let mut out = Vec::with_capacity(head.fields.0.len());
    let copied = copy_response_fields(head.fields, &mut out, |name, value| {
        if name.eq_ignore_ascii_case(b"content-length") || is_replaced(name) {
            return true;
        }
        let is_rewritten = rewriter.rewritten(name, value).is_some();
        has_rewritten.set(has_rewritten.get() || is_rewritten);
        is_rewritten
    });
    copied.map_err(|TooManyConnectionOptions| Reject::UPSTREAM_FIELD_MALFORMED)?;
    let mut fields = ResponseFields::from_lines(out);
    if has_rewritten.get() {
        for (name, value) in head.fields.iter().filter(|(name, _)| !is_replaced(name)) {
            if let Some(rewritten) = rewriter.rewritten(name, value) {
                fields.push(name, &rewritten);
            }
        }
    }
    for (name, value) in replaced.iter().filter(|(_, value)| !value.is_empty()) {
        fields.push(name.as_bytes(), value.as_bytes());
    }
    Ok(fields)
}

/// Rewriting of a member's URLs and cookies for the client of one request.
struct Rewriter<'r> {
    request: &'r Request,
    route: &'r ProxyRoute,
    /// Host of the member's URL.
    member_host: &'r [u8],
}

impl Rewriter<'_> {
    /// Returns the value of a field for the client; None for a field that stays as sent by the member.
    fn rewritten(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        match name.len() {
            7 if name.eq_ignore_ascii_case(b"refresh") => {
                self.with_urls(|scope| scope.rewritten_refresh(value))
            }
            8 if name.eq_ignore_ascii_case(b"location") => {
                self.with_urls(|scope| scope.rewritten(value))
            }
            16 if name.eq_ignore_ascii_case(b"content-location") => {
                self.with_urls(|scope| scope.rewritten(value))
            }
            10 if name.eq_ignore_ascii_case(b"set-cookie") => self.cookie(value),
            _ => None,
        }
    }

    /// Returns the path of the route, with a slash at its end, if members get another path.
    fn moved_path(&self) -> Option<(&[u8], Vec<u8>)> {
        let prefix = self.route.forward.prefix.as_deref()?.as_bytes();
        Some((prefix, [&self.route.path, &b"/"[..]].concat()))
    }

    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let (prefix, path) = self.moved_path()?;
        let scope = CookieScope {
            path: Some((prefix, &path)),
            domain: None,
        };
        let mut cookie = Vec::with_capacity(value.len() + path.len());
        scope.push_set_cookie(value, &mut cookie);
        Some(cookie)
    }

    fn with_urls(
        &self,
        rewrite: impl FnOnce(LocationScope<'_>) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        if self.route.forward.keeps_urls {
            return None;
        }
        let path = self.moved_path();
        let request = self.request;
        let host = Fields(&request.fields).first("host");
        let forwarding = request.forwarding.as_ref();
        let forwarded_host = forwarding.and_then(|forwarding| forwarding.host.as_deref());
        let sent_host = match &self.route.forward.host {
            ForwardedHost::Fixed(host) => host.as_bytes(),
            ForwardedHost::Client | ForwardedHost::Member => self.member_host,
        };
        rewrite(LocationScope {
            client_hosts: [
                host.unwrap_or(&request.host),
                forwarded_host.unwrap_or_default(),
            ],
            member_hosts: [self.member_host, sent_host],
            path: path.as_ref().map(|(prefix, path)| (*prefix, &path[..])),
            is_secure: request.secure,
        })
    }
}

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
        if let Some(change) = lease.record_answer(status.0, micros, monotonic_ms_at(now.into_std()))
        {
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

/// Returns the body of a response to HEAD with the length of the content of a GET. A member may leave the length out
/// (RFC 9110 §9.3.2), and then the client gets none: 0 would be the length of an empty content (§8.6).
pub(super) fn announced(length: Option<u64>) -> ResponseBody {
    let (writer, reader) = pipe(0);
    writer.finish();
    ResponseBody::Stream {
        length,
        reader,
        work: Box::pin(std::future::ready(())),
    }
}

/// Adds the call of the member to a response, for the log.
pub(super) fn with_member(response: Response, member: Option<Box<MemberCall>>) -> Response {
    Response { member, ..response }
}
