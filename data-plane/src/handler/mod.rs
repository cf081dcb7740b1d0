//! Handlers for responses that are not precomputed, behind one trait.
//!
//! A request is copied from the read buffer into an owned [`Request`] and runs as a future on its
//! connection's worker. The bodies of request and response each go through a bounded [`pipe`]. Dropping the
//! future, or either end of a pipe, ends the work of the call. Handlers are independent of one another and
//! of the HTTP version of the connection.

pub mod pipe;
pub mod compression;
pub(crate) mod interim;
mod operator_fields;
pub mod route_handler;
#[cfg(feature = "test-handlers")]
pub mod test_handler;
pub mod call;
pub mod script;
mod private_response;
pub mod proxy;

use crate::handler::interim::InterimSender;
use crate::ledger::access_log::MemberCall;
use crate::ledger::active_requests::ActiveRequestHandle;
use crate::ledger::admission::AdmissionRefused;
use crate::ledger::body_memory::BodyAccount;
use crate::ledger::route_counters::CacheOutcome;
use base::log::FAILURE_LINES;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use wire::fields::Fields;
use wire::h1::body_decoder::BodyLength;
use wire::path_readings::{PathReadings, Slashes, has_parameters};
use wire::reject::Reject;
use wire::request_head::{Method, Version};
use wire::response_fields::ResponseFields;
use wire::status::StatusLine;

/// A future that stays on its worker.
pub type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// Handler of live requests. All workers share a handler, while each call runs on one worker.
pub trait Handler: Send + Sync {
    /// Starts a response. The request's body arrives while the response's body is sent; neither body waits
    /// for the other.
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>>;

    /// Returns what the handler would do with a request, for the operator. Nothing is contacted.
    fn plan(&self, _request: &Request) -> HandlerPlan {
        HandlerPlan::default()
    }

    /// Returns true if the handler can answer [`Request::upgrade`] with a tunnel. Any other handler gets no
    /// request with `upgrade`: Upgrade in HTTP/1.1 is then ignored, and an extended CONNECT is refused with
    /// 405.
    fn accepts_tunnels(&self) -> bool {
        false
    }

    /// Returns true if requests with a method without a registration, such as PURGE, reach the handler. For any other
    /// handler such a request is refused with 501.
    fn accepts_any_method(&self) -> bool {
        false
    }
}

/// Description of the request that a handler would make or of the program that it would start, for the operator.
#[derive(Default, Debug)]
pub struct HandlerPlan {
    /// Names and texts of lines, in their order.
    pub lines: Vec<(&'static str, String)>,
    /// Field lines that the configuration adds to a page of the handler.
    pub fields: Vec<u8>,
    /// Refusal of the request, without a call of another program.
    pub refusal: Option<Reject>,
}

/// A request in owned form.
pub struct Request {
    /// The method. A method without a registration reaches only handlers that accept any method.
    pub method: Method,
    /// HTTP version of the request.
    pub version: Version,
    /// Host without port, as sent.
    pub host: Vec<u8>,
    /// The path as sent, percent-encoded.
    pub raw_path: Vec<u8>,
    /// Path that the client requested, decoded and normalised.
    pub path: Vec<u8>,
    /// Query that the client sent, without the `?`.
    pub query: Option<Vec<u8>>,
    /// Path and query replacing the client's path and query.
    pub rewrite: Rewrite,
    /// Script of the site that answers; None where the handler has the whole route.
    pub script: Option<Script>,
    /// The field lines as sent, to be read with `wire::fields::Fields`.
    pub fields: Vec<u8>,
    /// Field lines about the user from the server for forward authentication. The client has no influence on them.
    pub identity: Vec<u8>,
    /// Address of the client.
    pub peer: IpAddr,
    /// Port of the client and address of the server.
    pub ends: Endpoints,
    /// True if the client uses TLS, to this server or to a trusted proxy in front.
    pub secure: bool,
    /// Trusted proxy that forwarded the request; None for a request sent by the client itself.
    pub forwarding: Option<Forwarding>,
    /// Name of the authenticated user, if the route requires a login.
    pub user: Option<String>,
    /// True if a guard of the path has users, whatever the guarded methods. The password of the client belongs to this
    /// server then, also in a request that was not checked: browsers send the password of a POST with each later GET.
    pub hides_login: bool,
    /// Framing of the body according to the head.
    pub length: BodyLength,
    /// True if the client waits for 100 (Continue) before it sends the body (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// The body without its framing. The end of the pipe is the end of the body.
    pub body: pipe::PipeReader,
    /// Protocol to which the client wants to switch on the connection or the stream (RFC 9110 §7.8, RFC
    /// 8441). The body is then the client's part of the tunnel and begins after the response. The response
    /// that opens the tunnel has a streamed body, and status 101, or 200 after an extended CONNECT. The
    /// tunnel ends with both directions, or a while after the end of one.
    pub upgrade: Option<Upgrade>,
    /// Way to the client for interim responses.
    pub(crate) interim: InterimSender,
    /// Access to other pages of the server.
    pub(crate) subrequests: Option<Rc<dyn Subrequests>>,
    /// Number of internal redirects before the request.
    pub hops: u8,
    /// Memory of the bodies of request and response.
    pub memory: BodyAccount,
    /// Entry of the request among the requests under way; without effect for a subrequest.
    pub(crate) active: ActiveRequestHandle,
}

/// Protocol switch requested by a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// Name of the protocol, such as `websocket`.
    pub protocol: Box<[u8]>,
    /// True for extended CONNECT in HTTP/2 or HTTP/3. A successful response then has the status 200.
    pub is_extended_connect: bool,
}

/// Trusted proxy in front of the server that forwarded a request of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forwarding {
    /// Address of the proxy.
    pub proxy: IpAddr,
    /// Host of the client's request, if a trusted proxy stated the host.
    pub host: Option<Vec<u8>>,
}

/// Ends of a connection as far as known, without the client's address.
#[derive(Copy, Clone, Default, Debug)]
pub struct Endpoints {
    /// Port of the client.
    pub client_port: Option<u16>,
    /// Address of the server on the connection.
    pub server: Option<IpAddr>,
    /// Port of the server on the connection.
    pub server_port: Option<u16>,
}

/// The server as seen by a handler, for a response of another path instead of the handler's own response.
pub(crate) trait Subrequests {
    /// Returns the response to a GET or HEAD request of the client for another path (percent-encoded, with
    /// an optional query). The same guards and the same World apply; the request has no body.
    fn fetch(&self, subrequest: Subrequest) -> LocalBoxFuture<Result<Response, HandlerError>>;

    /// Checks if the guards of the site allow the client to access a path.
    fn authorize(&self, check: AccessCheck) -> LocalBoxFuture<Result<Admission, HandlerError>>;

    /// Returns a handle that sets `guarded` to true when a response comes from a guarded path. A page with
    /// a guarded response must not be sent to every client with access to the page's own path.
    fn with_guard_flag(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Subrequests>;
}

/// Path about to be opened by a handler, if different from the requested path because of a link or an
/// omitted extension. Guards protect the opened file under all of its names.
pub(crate) struct AccessCheck {
    /// Path on the site, decoded.
    pub path: Vec<u8>,
    /// Path of the client's request with its query, as sent.
    pub target: Vec<u8>,
    /// Host without port; may be empty in HTTP/1.0.
    pub host: Vec<u8>,
    /// The client's Authorization field.
    pub authorization: Option<Vec<u8>>,
    /// Field lines of the request for a server for forward authentication, and those of a proxy in front of this server,
    /// without Authorization.
    pub login_fields: Vec<u8>,
    /// Method of the client's request.
    pub method: Method,
}

/// Result of a check of paths that grants access.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Name of the authenticated user, if a guard of a path required a login.
    pub user: Option<String>,
    /// True if a guard of a path has users, as in [`Request::hides_login`].
    pub hides_login: bool,
}

impl AccessCheck {
    /// Creates the check of `path` with the host and the credentials of a request.
    pub(crate) fn new(path: Vec<u8>, request: &Request) -> AccessCheck {
        let fields = Fields(&request.fields);
        let authorization = fields.first("authorization");
        let mut login_fields = Vec::new();
        for (name, value) in fields {
            let mut known = LOGIN_FIELDS.iter();
            if known.any(|known| name.eq_ignore_ascii_case(known.as_bytes())) {
                for part in [name, b": ", value, b"\r\n"] {
                    login_fields.extend_from_slice(part);
                }
            }
        }
        let mut target = request.raw_path.clone();
        if let Some(query) = &request.query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        AccessCheck {
            path,
            target,
            host: request.host.clone(),
            authorization: authorization.map(<[u8]>::to_vec),
            login_fields,
            method: request.method,
        }
    }
}

/// Fields beside Authorization from which the question for a server for forward authentication is made.
const LOGIN_FIELDS: [&str; 8] = [
    "accept",
    "cookie",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-requested-with",
];

/// Checks paths against the guards of the site. All guards must allow the access. A request without access to the server
/// is refused for every path.
pub async fn check_access(
    request: &Request,
    paths: Vec<Vec<u8>>,
) -> Result<Admission, HandlerError> {
    let mut all = Admission::default();
    for path in paths {
        let Some(subrequests) = &request.subrequests else {
            return Err(HandlerError::new("guard", Reject::ADDRESS_DENIED));
        };
        let check = AccessCheck::new(path, request);
        let admission = subrequests.authorize(check).await?;
        all.user = admission.user.or(all.user);
        all.hides_login |= admission.hides_login;
    }
    Ok(all)
}

/// A request made inside the server on behalf of a client.
pub(crate) struct Subrequest {
    /// True for HEAD, false for GET.
    pub is_head: bool,
    /// HTTP version of the client's request.
    pub version: Version,
    /// Host without port; may be empty in HTTP/1.0.
    pub host: Vec<u8>,
    /// Path with its query.
    pub path: Vec<u8>,
    /// The client's field lines.
    pub fields: Vec<u8>,
    /// True if the client's password stays with this server, as in [`Request::hides_login`].
    pub hides_login: bool,
    /// Number of internal redirects, including the subrequest.
    pub hops: u8,
}

/// A script in a site, as found by dispatch. Paths are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Path of the script on the site.
    pub name: Vec<u8>,
    /// Rest of the request's path after the script.
    pub path_info: Vec<u8>,
}

/// Result of a rewrite, or of the last entry of `try`: the path and the query replacing the client's path
/// and query.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Path that the handler looks up, decoded; None for the client's path.
    pub path: Option<Vec<u8>>,
    /// Query for a script; None for the client's query.
    pub query: Option<Vec<u8>>,
}

impl Request {
    /// Adds the result of a check of further paths.
    pub fn record_admission(&mut self, admission: Admission) {
        self.user = self.user.take().or(admission.user);
        self.hides_login |= admission.hides_login;
    }

    /// Returns the path that the handler looks up: the path of the rewrite, or else the client's path.
    pub fn target_path(&self) -> &[u8] {
        self.rewrite.path.as_deref().unwrap_or(&self.path)
    }

    /// Returns the requested path, normalised, and its further readings by an application.
    pub(crate) fn readings(&self) -> Vec<Vec<u8>> {
        let mut paths = vec![self.path.clone()];
        if self.raw_path != self.path || has_parameters(&self.path) {
            let readings = PathReadings::of(&self.raw_path, &self.path, Slashes::Keep);
            paths.extend(readings.iter().flat_map(|it| it.iter().map(<[u8]>::to_vec)));
        }
        paths
    }
}

/// Response of a handler.
pub struct Response {
    /// A final status, and the reason phrase that a script may have chosen.
    pub status: StatusLine,
    /// Field lines in order; framing fields (Content-Length, Transfer-Encoding, Connection) and Date
    /// are the driver's and are left out here.
    pub fields: ResponseFields,
    /// The content.
    pub body: ResponseBody,
    /// Member that answered a proxied request, for the log.
    pub member: Option<Box<MemberCall>>,
    /// Part of the page cache, for the counters.
    pub cache: CacheOutcome,
    /// True if the response already has the operator's fields for its own path, for example as the target
    /// of an internal redirect.
    pub has_operator_fields: bool,
}

impl Response {
    /// Makes the response of a handler, without the operator's fields.
    pub fn new(
        status: impl Into<StatusLine>,
        fields: ResponseFields,
        body: ResponseBody,
    ) -> Response {
        Response {
            status: status.into(),
            fields,
            body,
            member: None,
            cache: CacheOutcome::None,
            has_operator_fields: false,
        }
    }

    /// Sets the part of the page cache in the response.
    pub(crate) fn with_cache(self, cache: CacheOutcome) -> Response {
        Response { cache, ..self }
    }
}

/// Content of a response.
pub enum ResponseBody {
    /// No content.
    Empty,
    /// Complete content.
    Whole(Vec<u8>),
    /// Content from a pipe.
    Stream {
        /// Length in bytes, if known beforehand.
        length: Option<u64>,
        /// Read end of the pipe.
        reader: pipe::PipeReader,
        /// Future that fills the pipe. The future runs as long as the call; dropping the call ends the
        /// future.
        work: LocalBoxFuture<()>,
    },
}

/// Failure of a handler.
#[derive(Debug)]
pub struct HandlerError {
    /// Activity of the handler, for the log.
    pub stage: &'static str,
    /// True if the request may be tried again: the backend may not have read the request, and no part of
    /// a response has been sent.
    pub retry: bool,
    /// Error response for the client.
    pub reject: Reject,
    /// Seconds until a retry may succeed, if known.
    pub after_seconds: Option<u64>,
    /// Member that failed last, for the log.
    pub member: Option<Box<MemberCall>>,
    /// Underlying cause.
    pub source: Option<std::io::Error>,
}

impl HandlerError {
    /// Creates an error without details.
    pub fn new(stage: &'static str, reject: Reject) -> HandlerError {
        HandlerError {
            stage,
            retry: false,
            reject,
            after_seconds: None,
            member: None,
            source: None,
        }
    }

    /// Creates an error with details for the log.
    pub fn because(stage: &'static str, reject: Reject, why: impl Into<String>) -> HandlerError {
        HandlerError {
            source: Some(std::io::Error::other(why.into())),
            ..HandlerError::new(stage, reject)
        }
    }

    /// Logs an error with details for the operator. Errors without details, such as requests for missing
    /// pages and refusals under load, appear only in the access log. A rule has a bounded number of lines.
    pub fn log(&self) {
        if self.source.is_some() {
            let level = match self.reject.status.0 {
                500.. => log::Level::Error,
                _ => log::Level::Warn,
            };
            FAILURE_LINES.log(self.reject.rule, level, &|| self.to_string());
        }
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.reject.reason)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        write!(f, " (rule R{})", self.reject.rule)
    }
}

impl std::error::Error for HandlerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}

impl From<AdmissionRefused> for Reject {
    fn from(refused: AdmissionRefused) -> Reject {
        match refused {
            AdmissionRefused::Full => Reject::CALLS_BUSY,
            AdmissionRefused::ShareTaken => Reject::CALL_SHARE_TAKEN,
        }
    }
}
