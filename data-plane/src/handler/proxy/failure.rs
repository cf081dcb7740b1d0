//! Failed attempt of a call: the decision whether the request is repeated, which is pure, the cause for the log, and the log
//! lines of the proxy.

use crate::handler::Request;
use crate::handler::proxy::route::{NAME, ProxyRoute};
use crate::limits::PROXY_QUOTED_BYTES_MAX;
use crate::upstream;
use crate::upstream::Lease;
use crate::upstream::{ConnectFault, H2Failure, MemberTlsFailure, NotHttp2};
use balancer::{MemberId, PlaceReport, StateChange};
use base::log::FAILURE_LINES;
use std::io;
use std::time::Duration;
use wire::h1::response_head::faulty_lines;
use wire::h2::H2ConnectionError;
use wire::reject::Reject;
use wire::request_head::Method;

/// Failure of one attempt to get a response.
#[derive(Debug)]
pub(super) struct AttemptFailure {
    /// Stage of the failure.
    pub(super) stage: FailureStage,
    /// Response for the client, if the request is not repeated.
    pub(super) reject: Reject,
    /// Cause, for the log.
    pub(super) source: Option<io::Error>,
    /// Member of the attempt, for the log.
    pub(super) member: Option<MemberId>,
}

/// Stage at which an attempt failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum FailureStage {
    /// No connection for a request could be made, so the member has received nothing.
    Connect,
    /// No connection could be made because of a shortage that says nothing about the member's health.
    Shortage(ConnectFault),
    /// The member closed a kept connection without a byte of a response. Most members close idle connections
    /// after a while, so the failure says nothing about the member.
    StaleConnection,
    /// The member closed a new connection without a byte of a response.
    BeforeResponse,
    /// The member has not processed the request, as stated by the member in HTTP/2 (RFC 9113 §8.7).
    Refused,
    /// The member sent nothing in time.
    Silent,
    /// The response began, and was malformed or broken off.
    InResponse,
    /// Active checks found the member down while its response was awaited.
    MemberDown,
    /// No member is usable.
    NoMember,
    /// The client broke the request off, or sent a request that can't be forwarded.
    Client,
}

impl AttemptFailure {
    pub(super) fn new(stage: FailureStage, reject: Reject) -> AttemptFailure {
        AttemptFailure {
            stage,
            reject,
            source: None,
            member: None,
        }
    }

    /// Adds the cause for the log.
    pub(super) fn because(self, why: impl Into<String>) -> AttemptFailure {
        AttemptFailure {
            source: Some(io::Error::other(why.into())),
            ..self
        }
    }

    /// Makes the failure of a request without a member.
    pub(super) fn none(reject: Reject) -> AttemptFailure {
        AttemptFailure::new(FailureStage::NoMember, reject)
    }

    /// Makes the failure of a connection that could not be made. A failed handshake of TLS counts, since the
    /// member has received nothing of the request.
    pub(super) fn connect(source: io::Error) -> AttemptFailure {
        let reject = match &source {
            source if MemberTlsFailure::is_in(source) => Reject::UPSTREAM_TLS_FAILED,
            source if NotHttp2::is_in(source) => Reject::UPSTREAM_FRAME_MALFORMED,
            _ => Reject::UPSTREAM_UNREACHABLE,
        };
        AttemptFailure {
            source: Some(source),
            ..AttemptFailure::new(FailureStage::Connect, reject)
        }
    }

    /// Makes the failure of a connection that a shortage prevented: of this machine, or of room in the queue of
    /// the member's socket.
    pub(super) fn shortage(fault: ConnectFault, source: io::Error) -> AttemptFailure {
        let (reject, source) = match fault {
            ConnectFault::Backlog => {
                let full = io::Error::other("the queue of the Unix socket is full");
                (Reject::UPSTREAM_BUSY, full)
            }
            _ => (Reject::UPSTREAM_LOCAL, source),
        };
        AttemptFailure {
            source: Some(source),
            ..AttemptFailure::new(FailureStage::Shortage(fault), reject)
        }
    }

    /// Makes the failure of a member without a response within `first_byte_timeout`.
    pub(super) fn silent(timeout: Duration) -> AttemptFailure {
        let why = timeout_cause("first_byte_timeout", timeout);
        AttemptFailure::new(FailureStage::Silent, Reject::UPSTREAM_SLOW).because(why)
    }

    /// Makes the failure of a member that sends bytes before a request, and is therefore no HTTP server.
    pub(super) fn unasked_bytes() -> AttemptFailure {
        AttemptFailure::new(FailureStage::Connect, Reject::UPSTREAM_BYTES_UNASKED)
    }

    /// Makes the failure of a connection that the member ended at `stage`. A member may refuse the client
    /// certificate of TLS 1.3 only after the request is sent.
    pub(super) fn left(stage: FailureStage, source: Option<io::Error>) -> AttemptFailure {
        let source = source.filter(MemberTlsFailure::is_in);
        let reject = match source {
            Some(_) => Reject::UPSTREAM_TLS_FAILED,
            None => Reject::UPSTREAM_LEFT,
        };
        AttemptFailure {
            source,
            ..AttemptFailure::new(stage, reject)
        }
    }

    /// Makes the failure of a request over HTTP/2. `has_begun` is true after a head of a response.
    pub(super) fn of_h2(failure: H2Failure, has_begun: bool) -> AttemptFailure {
        let before_response = if has_begun {
            FailureStage::InResponse
        } else {
            FailureStage::BeforeResponse
        };
        match failure {
            H2Failure::Refused if has_begun => {
                AttemptFailure::new(FailureStage::InResponse, Reject::UPSTREAM_REFUSED)
            }
            H2Failure::Refused => {
                AttemptFailure::new(FailureStage::Refused, Reject::UPSTREAM_REFUSED)
            }
            H2Failure::Reset(code) => AttemptFailure {
                source: Some(io::Error::other(format!("RST_STREAM with {code:?}"))),
                ..AttemptFailure::new(before_response, Reject::UPSTREAM_RESET)
            },
            H2Failure::Malformed(reject) => AttemptFailure::new(FailureStage::InResponse, reject),
            // Another request on the connection may have met the fault.
            H2Failure::Protocol(error) => AttemptFailure {
                source: Some(io::Error::other(h2_text(error))),
                ..AttemptFailure::new(before_response, Reject::UPSTREAM_FRAME_MALFORMED)
            },
            H2Failure::Left { source, is_reused } => {
                let stage = if is_reused && !has_begun {
                    FailureStage::StaleConnection
                } else {
                    before_response
                };
                AttemptFailure::left(stage, source)
            }
        }
    }

    /// Returns true if the request may go to a member again. A connection that can't be made leads any
    /// request on, and so does a member that states not to have processed the request. After that, a member may
    /// have executed the request, so only idempotent requests go on (RFC 9110 §9.2.2), and only before any byte
    /// of a response. `is_replayable` is true if the whole body is in memory or untouched.
    pub(super) fn may_repeat(&self, is_idempotent: bool, is_replayable: bool) -> bool {
        match self.stage {
            FailureStage::Connect | FailureStage::Shortage(_) => true,
            FailureStage::Refused => is_replayable,
            FailureStage::StaleConnection
            | FailureStage::BeforeResponse
            | FailureStage::MemberDown => is_idempotent && is_replayable,
            FailureStage::Silent
            | FailureStage::InResponse
            | FailureStage::NoMember
            | FailureStage::Client => false,
        }
    }

    /// Returns true if a repetition is still to be taken from the budget of retries. Repetitions that put no
    /// further load on a member don't count, and a request leaves a member that went down only within the budget.
    pub(super) fn needs_budget(&self) -> bool {
        self.stage == FailureStage::BeforeResponse
    }
}

/// Returns true if a repeated request has the effect of a single one (RFC 9110 §9.2.2).
pub(super) fn is_idempotent(method: Method) -> bool {
    method.is_safe() || matches!(method, Method::Put | Method::Delete)
}

/// Returns the text of a connection error for the log.
fn h2_text(error: H2ConnectionError) -> String {
    format!("{}, {:?}", error.reason, error.code)
}

/// Cause of a request that leaves a member, because the checks took the member out.
pub(super) const MEMBER_DOWN: &str = "the checks took the member out while the request waited";

/// Cause of a refused event stream, known by its response alone.
pub(super) const TUNNELS_FULL: &str = "every place of tunnels and event streams is taken";

/// Returns the cause of a wait that ended by a timeout: its key, and its value as written in the configuration.
pub(super) fn timeout_cause(key: &str, timeout: Duration) -> String {
    format!("longer than `{key}` ({timeout:?})")
}

/// Returns the cause of a request that may not wait for a busy member.
pub(super) fn queue_full_cause(places: &PlaceReport) -> String {
    format!("{places}, and `queue` ({}) is full", places.queue_max)
}

/// Returns the cause of a request that waited too long for a busy member.
pub(super) fn queue_timeout_cause(places: &PlaceReport, timeout: Duration) -> String {
    format!("{places} for longer than `queue_timeout` ({timeout:?})")
}

/// Returns the cause of a request that left a full queue for the request of another client.
pub(super) fn queue_share_cause(places: &PlaceReport) -> String {
    let queue_max = places.queue_max;
    format!("`queue` ({queue_max}) is full, and the client has its share")
}

/// Returns the lines of a malformed head, escaped and shortened; None for a rule about the whole head.
pub(super) fn malformed_head_cause(head: &[u8], reject: Reject) -> Option<String> {
    let lines = faulty_lines(head, reject).into_iter().map(quoted);
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Returns bytes of a member in quotation marks.
fn quoted(line: &[u8]) -> String {
    let end = line.len().min(PROXY_QUOTED_BYTES_MAX);
    let more = if end < line.len() { "…" } else { "" };
    format!("\"{}{more}\"", line[..end].escape_ascii())
}

/// Logs the change of a member's state.
pub(super) fn log_change(route: &ProxyRoute, lease: &Lease, change: StateChange) {
    upstream::log_change(route.balancer.name(), lease.member().url(), change);
}

/// Logs a response that was broken off after its head was sent to the client.
pub(super) fn log_broken_off(line: &str, balancer: &str, member: Option<&str>, reject: Reject) {
    FAILURE_LINES.log(reject.rule, log::Level::Error, &|| {
        let (cause, place) = (break_cause(reject), place(balancer, member));
        let rule = reject.rule;
        format!("{NAME}: {cause}: {line}: {place}; the response was broken off (rule R{rule})")
    });
}

/// Returns the balancer and the member of a request for the log. A route with `proxy` has a balancer with the name
/// of the site and the path of the route.
pub(super) fn place(balancer: &str, member: Option<&str>) -> String {
    match member {
        Some(member) => format!("balancer {balancer}: {member}"),
        None => format!("balancer {balancer}"),
    }
}

/// Returns the cause of a response that was broken off after its beginning.
fn break_cause(reject: Reject) -> &'static str {
    if reject == Reject::UPSTREAM_SLOW {
        "member was silent within its response for longer than `silence_timeout`"
    } else {
        reject.reason
    }
}

/// Returns the request as `GET /path?query` for the log.
pub(super) fn line(request: &Request) -> String {
    let query = request.query.as_deref();
    crate::handler::call::request::line(request.method, &request.raw_path, query)
}

/// Logs bytes of a member behind the end of a response. The client has the response, and the connection serves no
/// further request.
pub(super) fn log_surplus(line: &str, balancer: &str, member: Option<&str>) {
    let rule = Reject::UPSTREAM_BYTES_UNASKED.rule;
    FAILURE_LINES.log(rule, log::Level::Warn, &|| {
        let place = place(balancer, member);
        format!(
            "{NAME}: bytes of a member behind a response: {line}: {place}; the connection was closed (rule R{rule})"
        )
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip] // A table reads better in columns.
    fn every_stage_of_a_failure() {
        use FailureStage::*;
        // Stage; repeated if idempotent and replayable, idempotent alone, replayable alone, neither.
        let table = [
            (Connect,         [true, true, true, true]),
            (Shortage(ConnectFault::LocalPorts), [true, true, true, true]),
            (StaleConnection, [true, false, false, false]),
            (BeforeResponse,  [true, false, false, false]),
            (Refused,         [true, false, true, false]),
            (Silent,          [false, false, false, false]),
            (InResponse,      [false, false, false, false]),
            (MemberDown,      [true, false, false, false]),
            (NoMember,        [false, false, false, false]),
            (Client,          [false, false, false, false]),
        ];
        for (stage, expected) in table {
            let failure = AttemptFailure::new(stage, Reject::UPSTREAM_LEFT);
            let cases = [(true, true), (true, false), (false, true), (false, false)];
            let repeats = cases.map(|(idempotent, replayable)| failure.may_repeat(idempotent, replayable));
            assert_eq!(repeats, expected, "{stage:?}");
        }
    }

    #[test]
    fn idempotent_methods() {
        let idempotent = [
            Method::Get,
            Method::Head,
            Method::Options,
            Method::Put,
            Method::Delete,
        ];
        assert!(idempotent.into_iter().all(is_idempotent));
        assert!(![Method::Post, Method::Patch].into_iter().any(is_idempotent));
    }

    #[test]
    fn the_lines_of_a_malformed_head_are_quoted() {
        let fields = "HTTP/1.1 200 OK\r\nA: 1\r\nB : 2\r\nC: 3\r\n\r\n";
        let lengths = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nA: 1\r\nContent-Length: 2\r\n\r\nTransfer-Encoding: x";
        let table = [
            (fields, Reject::UPSTREAM_FIELD_MALFORMED, Some("\"B : 2\"")),
            (
                lengths,
                Reject::UPSTREAM_LENGTHS,
                Some("\"content-length: 1\", \"Content-Length: 2\""),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                Reject::UPSTREAM_CODING,
                Some("\"Transfer-Encoding: gzip\""),
            ),
            (
                "\x15\x03\x03\0\x02",
                Reject::UPSTREAM_LINE_MALFORMED,
                Some("\"\\x15\\x03\\x03\\x00\\x02\""),
            ),
            (fields, Reject::UPSTREAM_HEAD_TOO_LARGE, None),
        ];
        for (head, reject, expected) in table {
            let quoted = malformed_head_cause(head.as_bytes(), reject);
            assert_eq!(quoted.as_deref(), expected);
        }
    }

    #[test]
    fn long_lines_are_cut() {
        let line = "x".repeat(PROXY_QUOTED_BYTES_MAX + 1);
        let cut = malformed_head_cause(line.as_bytes(), Reject::UPSTREAM_LINE_MALFORMED);
        assert_eq!(
            cut,
            Some(format!("\"{}…\"", "x".repeat(PROXY_QUOTED_BYTES_MAX)))
        );
    }
}
