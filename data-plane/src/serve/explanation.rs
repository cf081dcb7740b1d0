//! Explanation of a request: the site, the route, the guards and the response, without a connection. The dispatch is that
//! of the requests of clients, so the explanation can't differ from the server. No handler is called.

use crate::handler::pipe::pipe;
use crate::handler::route_handler::HandlerCall;
use crate::handler::{
    AccessCheck, Admission, Endpoints, HandlerError, HandlerPlan, LocalBoxFuture, Request,
    Response, Subrequest, Subrequests,
};
use crate::serve::attempt::{Attempt, Progress, RequestContent};
use crate::serve::dispatch::RequestBuilder;
use crate::serve::dispatch_context::{Audience, DispatchContext, EndpointLookup, RateCheck};
use crate::serve::handler_request::handler_request;
use crate::serve::matched_request::MatchedRequest;
use crate::serve::step::{ReadyResponse, Step, Wait};
use crate::serve::synthetic_response::{SyntheticResponse, lines_beside, refusal_fields};
use crate::site::{FileLoad, VariantResponse};
use crate::world::own_listener::OwnListener;
use crate::world::users::UnverifiedLogin;
use crate::world::{Host, PathPolicy, Route, RouteAuth, RouteTarget, World};
use std::cell::Cell;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::rc::Rc;
use wire::h1::body_decoder::BodyLength;
use wire::h1::request::{ParsedHead, parse_head};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::status::StatusLine;

/// Request to explain.
pub struct ExplainedRequest<'r> {
    /// Listener of sites with `listen`; None for an address of `[server]`.
    pub listener: Option<OwnListener>,
    /// True for a request over TLS.
    pub is_secure: bool,
    /// Address of the client.
    pub client: IpAddr,
    /// Head of the request in HTTP/1.1, with the empty line at its end.
    pub head: &'r [u8],
}

/// Explanation of a request.
pub struct Explanation<'w> {
    /// Site of the requested host name; None if no site has the name.
    pub host: Option<&'w Host>,
    /// Decoded path.
    pub path: Vec<u8>,
    /// Route with the longest prefix among the routes with a target.
    pub route: Option<&'w Route>,
    /// Guards of the path, in the order of the configuration.
    pub guards: Vec<ExplainedGuard<'w>>,
    /// User that logged in.
    pub user: Option<String>,
    /// Refusal of the request.
    pub refusal: Option<Reject>,
    /// Response, or the handler that would answer.
    pub outcome: ExplainedOutcome<'w>,
}

/// Guard of a path, as far as it concerns one request.
pub struct ExplainedGuard<'w> {
    /// Route with the guard.
    pub route: &'w Route,
    /// True if `allow` and `users` concern the method of the request.
    pub is_for_method: bool,
    /// True if `deny` names the client, or `allow` does not.
    pub refuses_address: bool,
    /// True if `methods` leaves the method out.
    pub refuses_method: bool,
    /// True if the guard has a server for forward authentication, and a route with `auth = false` turns it off.
    pub is_auth_off: bool,
}

/// Response to a request, or the handler that would answer.
pub enum ExplainedOutcome<'w> {
    /// The server answers without a handler.
    Response {
        /// Status line and field lines, apart from Date.
        head: Vec<u8>,
        /// File with the content.
        file: Option<PathBuf>,
        /// True for the list of a folder.
        is_listing: bool,
    },
    /// A handler answers.
    Handler {
        /// Route of the handler; None for a script below the root of the site.
        route: Option<&'w Route>,
        /// Path and query for the handler, if a rewrite or the end of `try` replaces those of the request.
        rewritten: Option<Vec<u8>>,
        /// Path of the script below the root.
        script: Option<Vec<u8>>,
        /// Description of the work of the handler.
        plan: HandlerPlan,
    },
}

/// Explains a request. Files are read, and a password is verified; members and scripts are not asked.
///
/// # Errors
/// The refusal of a malformed head.
pub fn explain<'w>(
    world: &'w World,
    request: &ExplainedRequest<'_>,
) -> Result<Explanation<'w>, Reject> {
    let mut copy = Vec::new();
    let head = match parse_head(request.head, &mut copy, &mut 0, &world.limits.head)? {
        ParsedHead::Complete { head, .. } => head,
        ParsedHead::Partial => return Err(Reject::LINE_MALFORMED),
    };
    let context = context(world, request, &head);
    let content = match head.body {
        BodyLength::Length(0) => RequestContent::None,
        _ => RequestContent::Pending,
    };
    let mut progress = Progress::default();
    let Attempt { step, request, .. } = loop {
        let attempt = Attempt::dispatch(world, &head, context, &NoCalls, content, &mut progress);
        match attempt.step {
            Step::Wait(wait) => waited(wait, &mut progress),
            _ => break attempt,
        }
    };
    let host = request.host;
    let policy = host.map(|host| host.policy(&head.path));
    Ok(Explanation {
        guards: policy.map_or_else(Vec::new, |policy| {
            let guards = policy.guards();
            guards
                .map(|route| guard(route, policy, &head, context.peer))
                .collect()
        }),
        route: policy.and_then(|policy| policy.route()),
        user: request.user.clone(),
        refusal: match &step {
            Step::Send(ReadyResponse::Refuse { reject, .. }) => Some(*reject),
            Step::Send(ReadyResponse::Stored(page)) => page.reject(),
            _ => None,
        },
        outcome: outcome(step, &head, &request, &context),
        host,
        path: head.path.to_vec(),
    })
}

fn context(
    world: &World,
    request: &ExplainedRequest<'_>,
    head: &RequestHead<'_>,
) -> DispatchContext {
    let tls = world.tls_at(request.listener).filter(|_| request.is_secure);
    let name = std::str::from_utf8(head.host).ok();
    DispatchContext {
        audience: request.listener.map_or(Audience::Public, Audience::Own),
        identity: tls.map(|tls| tls.identity(name)),
        peer: request.client,
        secure: request.is_secure,
        forwarded_by: None,
        endpoints: EndpointLookup::Known(Endpoints {
            client_port: None,
            server: None,
            server_port: None,
        }),
        now_ms: 0,
        may_wait: false,
        rate: RateCheck::EXEMPT,
        has_disk_changes: false,
        hides_login: false,
    }
}

/// Does the work that a request waits for.
fn waited(wait: Wait, progress: &mut Progress) {
    match wait {
        Wait::Load(load) => {
            FileLoad::run(load);
            progress.record_load();
        }
        Wait::Login(login) => progress.record_login(!verified(*login)),
        // An explanation asks nothing of the network, and goes on as if the server had let the request pass.
        Wait::Auth(question) => progress.record_answer(question.assumed()),
        Wait::CatchUp(_) => progress.record_disk_wait(),
    }
}

/// Verifies a password, and returns false without a verdict.
fn verified(login: UnverifiedLogin) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.is_ok_and(|runtime| runtime.block_on(login.answer()).is_ok())
}

fn guard<'w>(
    route: &'w Route,
    policy: &PathPolicy,
    head: &RequestHead<'_>,
    client: IpAddr,
) -> ExplainedGuard<'w> {
    let method = match head.method {
        Method::Connect if head.upgrade.is_some() => Method::Get,
        method => method,
    };
    let is_for_method = route.guards_method(method);
    let is_denied = route
        .deny
        .as_ref()
        .is_some_and(|deny| deny.contains(client));
    let allow = route.allow.as_ref();
    let allow = allow.filter(|_| is_for_method && !route.any);
    ExplainedGuard {
        route,
        is_for_method,
        refuses_address: is_denied || allow.is_some_and(|allow| !allow.contains(client)),
        refuses_method: route
            .methods
            .as_ref()
            .is_some_and(|methods| !methods.contains(method)),
        is_auth_off: matches!(route.auth, RouteAuth::By(_))
            && policy.auths().all(|(asked, _)| !ptr::eq(asked, route)),
    }
}

fn outcome<'w>(
    step: Step,
    head: &RequestHead<'_>,
    request: &MatchedRequest<'w>,
    context: &DispatchContext,
) -> ExplainedOutcome<'w> {
    let response = match step {
        Step::Call(call) => {
            let path = call.rewrite.path.as_deref().unwrap_or(&head.path);
            let policy = request.host.map(|host| host.policy(path));
            let has_rewrite = call.rewrite.path.is_some() || call.rewrite.query.is_some();
            let query = call.rewrite.query.as_deref().or(head.query);
            let query = query.filter(|query| !query.is_empty());
            let mut plan = planned(&call, head, request, context);
            push_site_fields(&mut plan.fields, request, context.secure);
            return ExplainedOutcome::Handler {
                route: match &call.script {
                    Some(_) => None,
                    None => policy.and_then(|policy| policy.route()),
                },
                rewritten: has_rewrite.then(|| match query {
                    Some(query) => [path, b"?", query].concat(),
                    None => path.to_vec(),
                }),
                script: call.script.map(|script| script.name),
                plan,
            };
        }
        Step::Send(response) => response,
        Step::Wait(_) => ReadyResponse::refusal(Reject::CHANGING),
    };
    let is_listing = matches!(response, ReadyResponse::Listing(_));
    let file = match &response {
        ReadyResponse::Stored(page) if page.reject().is_none() => file(request.host, &head.path),
        _ => None,
    };
    let mut lines = response_head(response, request);
    push_site_fields(&mut lines, request, context.secure);
    ExplainedOutcome::Response {
        head: lines,
        file,
        is_listing,
    }
}

/// Returns what a handler would do.
fn planned(
    call: &HandlerCall,
    head: &RequestHead<'_>,
    request: &MatchedRequest<'_>,
    context: &DispatchContext,
) -> HandlerPlan {
    let call = call.clone();
    let asked = Request {
        script: call.script,
        rewrite: call.rewrite,
        hides_login: call.hides_login,
        ..NoCalls.build(head, context, request.user.clone())
    };
    call.handler.plan(&asked)
}

/// Appends the field lines of the site.
fn push_site_fields(lines: &mut Vec<u8>, request: &MatchedRequest<'_>, is_secure: bool) {
    let ruled = request.ruled.as_ref().and_then(|ruled| ruled.secure_fields);
    let fields = ruled.or_else(|| request.host.map(|host| &host.secure_fields));
    if let Some(fields) = fields.and_then(|fields| fields.over(is_secure)) {
        lines.extend_from_slice(&fields.lines);
    }
}

/// Returns the file that answers at a path of a site.
fn file(host: Option<&Host>, path: &[u8]) -> Option<PathBuf> {
    let host = host?;
    let (site, rest) = match host.policy(path).target(path) {
        Some((RouteTarget::Site(site), rest)) => (site, rest),
        Some((RouteTarget::Rewrite { .. }, _)) => return None,
        _ => (host.site.as_ref()?, path),
    };
    let name = site.resolve(rest).file_path()?;
    let name = name.strip_prefix(b"/").unwrap_or(&name);
    Some(site.root().join(OsStr::from_bytes(name)))
}

/// Returns the status line and the field lines of a response, apart from Date and the fields of the site.
fn response_head(response: ReadyResponse, request: &MatchedRequest<'_>) -> Vec<u8> {
    match response {
        ReadyResponse::Stored(page) => stored_head(&page, b""),
        ReadyResponse::Synthetic(small) => small_head(&small),
        ReadyResponse::Listing(listing) => listing.head(&mut Vec::new()).to_vec(),
        ReadyResponse::Refuse { reject, page } => {
            let ruled = request.ruled.as_ref();
            let ruled = ruled.and_then(|ruled| ruled.refusal_fields.as_deref());
            let required = ruled.unwrap_or(refusal_fields(reject));
            match page {
                Some(page) => stored_head(&page, lines_beside(&page, required)),
                None => {
                    let small = SyntheticResponse::refusal_with(required, reject, Audience::Public);
                    small_head(&small)
                }
            }
        }
    }
}

fn stored_head(page: &VariantResponse, lines: &[u8]) -> Vec<u8> {
    let mut scratch = Vec::new();
    let mut head = page.head(&mut scratch).to_vec();
    if page.is_from_cache() {
        page.push_changing(&mut head);
    }
    head.extend_from_slice(lines);
    head
}

fn small_head(small: &SyntheticResponse) -> Vec<u8> {
    let mut head = Vec::new();
    StatusLine::from(small.status).push(&mut head);
    head.extend_from_slice(&small.lines());
    head
}

/// Builder of the requests of the page cache. The page cache of an explanation is empty, so no request is made.
struct NoCalls;

impl RequestBuilder for NoCalls {
    fn build(
        &self,
        head: &RequestHead<'_>,
        context: &DispatchContext,
        user: Option<String>,
    ) -> Request {
        let (writer, body) = pipe(1);
        writer.finish();
        let ends = match context.endpoints {
            EndpointLookup::Known(ends) => ends,
            EndpointLookup::Row(_) => Endpoints {
                client_port: None,
                server: None,
                server_port: None,
            },
        };
        handler_request(head, user, context, ends, body, Rc::new(NoSubrequests))
    }
}

/// Server without an answer for handlers.
struct NoSubrequests;

impl Subrequests for NoSubrequests {
    fn fetch(&self, _subrequest: Subrequest) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(async { Err(unanswered()) })
    }

    fn authorize(&self, _check: AccessCheck) -> LocalBoxFuture<Result<Admission, HandlerError>> {
        Box::pin(async { Err(unanswered()) })
    }

    fn with_guard_flag(&self, _guarded: Rc<Cell<bool>>) -> Rc<dyn Subrequests> {
        Rc::new(NoSubrequests)
    }
}

fn unanswered() -> HandlerError {
    HandlerError::new("explanation", Reject::CHANGING)
}
