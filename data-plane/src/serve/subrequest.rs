//! Subrequests: requests of handlers to the server itself, for example for a script's `Location: /path`.
//!
//! A subrequest passes the same dispatch as a client's request. The handler receives the result as a
//! response.

use crate::handler::pipe::{PipeReader, PipeWriter, pipe};
use crate::handler::route_handler::HandlerCall;
use crate::handler::{
    self, AccessCheck, Admission, Endpoints, HandlerError, LocalBoxFuture, Request, Response,
    Subrequest, Subrequests,
};
use crate::ledger::body_memory::BodyAccount;
use crate::limits;
use crate::serve::attempt::{Attempt, Progress, RequestContent};
use crate::serve::auth_answers::AuthAnswers;
use crate::serve::context::WorkerContext;
use crate::serve::dispatch::{Dispatched, RequestBuilder, admit};
use crate::serve::dispatch_context::{DispatchContext, EndpointLookup, RateCheck};
use crate::serve::forwarding::stated_client;
use crate::serve::handler_request::handler_request;
use crate::serve::redispatch;
use crate::serve::response_body::{BodyFill, BodyReader};
use crate::serve::ruled_request::Visitor;
use crate::serve::step::{ReadyResponse, Step};
use crate::serve::synthetic_response::{SyntheticResponse, lines_beside, refusal_fields};
use crate::site::{SERVER, VariantResponse};
use crate::world::World;
use std::cell::Cell;
use std::rc::Rc;
use wire::fields::Fields;
use wire::h1::request::{ParsedHead, parse_head};
use wire::identity_fields::without_identity;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead, Version};
use wire::response_fields::ResponseFields;
use wire::status::Status;

/// Access to the server for the handlers of one client's request.
pub(super) struct WorkerSubrequests {
    pub(super) context: Rc<WorkerContext>,
    pub(super) dispatch_context: DispatchContext,
    ends: Endpoints,
    /// Fingerprint of the guards at the time of the client's request.
    guards: u64,
    /// Flag set if a guard applied to a subrequest; None if the caller does not need the information.
    guarded: Option<Rc<Cell<bool>>>,
    /// Answers of servers for forward authentication to the request.
    answers: Option<AuthAnswers>,
    /// Memory of the client's request and response.
    memory: BodyAccount,
}

/// Creates the owned request of a client for a handler, with access to the server.
pub(super) fn client_request(
    context: &Rc<WorkerContext>,
    head: &RequestHead<'_>,
    dispatch_context: &DispatchContext,
    visitor: Visitor,
    body: PipeReader,
    memory: BodyAccount,
) -> Request {
    let mut ends = match dispatch_context.endpoints {
        EndpointLookup::Row(row) => context.endpoints(row),
        EndpointLookup::Known(ends) => ends,
    };
    let world = context.world();
    let mut dispatch_context = *dispatch_context;
    let mut client_host = None;
    if !world.trust.is_empty() {
        // The dispatch has refused a request with contradictory fields.
        dispatch_context = dispatch_context
            .behind_proxy(&world.trust, head)
            .unwrap_or(dispatch_context);
        let stated = |proxy| stated_client(&world.trust, proxy, head.fields).ok();
        if let Some(client) = dispatch_context.forwarded_by.and_then(stated) {
            // A proxy that sends a request of its own has the port of the connection.
            if dispatch_context.forwarded_by != Some(dispatch_context.peer) {
                ends.client_port = client.port;
            }
            client_host = client.host;
        }
    }
    let subrequests = Rc::new(WorkerSubrequests {
        context: Rc::clone(context),
        // The client's request counts once, and its subrequests do not.
        dispatch_context: DispatchContext {
            rate: RateCheck::EXEMPT,
            ..dispatch_context
        },
        ends,
        guards: world.guards,
        guarded: None,
        answers: visitor.answers,
        memory: memory.clone(),
    });
    let user = visitor.user;
    let mut request = handler_request(head, user, &dispatch_context, ends, body, subrequests);
    request.memory = memory;
    remove_identity(&world, &mut request);
    if let Some(forwarding) = &mut request.forwarding {
        forwarding.host = client_host.map(<[u8]>::to_vec);
    }
    request
}

/// Removes the fields about the user that a client has set.
#[inline]
fn remove_identity(world: &World, request: &mut Request) {
    if !world.identity_fields.is_empty() {
        request.fields = without_identity(&request.fields, &world.identity_fields);
    }
}

impl RequestBuilder for Rc<WorkerContext> {
    fn build(
        &self,
        head: &RequestHead<'_>,
        dispatch_context: &DispatchContext,
        user: Option<String>,
    ) -> Request {
        let (writer, body) = pipe(1);
        writer.finish();
        client_request(
            self,
            head,
            dispatch_context,
            Visitor {
                user,
                answers: None,
            },
            body,
            BodyAccount::default(),
        )
    }
}

impl Subrequests for WorkerSubrequests {
    fn fetch(&self, subrequest: Subrequest) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let asking = SubrequestTask {
            context: Rc::clone(&self.context),
            dispatch_context: DispatchContext {
                hides_login: subrequest.hides_login,
                ..self.dispatch_context
            },
            ends: self.ends,
            text: text(&subrequest),
            version: subrequest.version,
            hops: subrequest.hops,
            guards: self.guards,
            guarded: self.guarded.clone(),
            answers: self.answers.clone(),
            memory: self.memory.clone(),
        };
        Box::pin(asking.answer())
    }

    fn authorize(&self, admission: AccessCheck) -> LocalBoxFuture<Result<Admission, HandlerError>> {
        let admitting = AccessCheckTask {
            context: Rc::clone(&self.context),
            dispatch_context: DispatchContext {
                endpoints: EndpointLookup::Known(self.ends),
                ..self.dispatch_context
            },
            text: admission_text(&admission, self.context.world().has_forward_auth),
            path: admission.path,
            method: admission.method,
            guarded: self.guarded.clone(),
            answers: self.answers.clone(),
        };
        Box::pin(admitting.answer())
    }

    fn with_guard_flag(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Subrequests> {
        Rc::new(WorkerSubrequests {
            context: Rc::clone(&self.context),
            dispatch_context: self.dispatch_context,
            ends: self.ends,
            guards: self.guards,
            guarded: Some(guarded),
            answers: self.answers.clone(),
            memory: self.memory.clone(),
        })
    }
}

/// Returns the subrequest as a header section of HTTP/1.1, to be parsed like a client's request.
fn text(subrequest: &Subrequest) -> Vec<u8> {
    let method: &[u8] = if subrequest.is_head {
        b"HEAD "
    } else {
        b"GET "
    };
    let scheme: &[u8] = if subrequest.host.is_empty() {
        b""
    } else {
        b"http://"
    };
    let version: &[u8] = match subrequest.version {
        Version::Http10 => b" HTTP/1.0\r\n",
        _ => b" HTTP/1.1\r\n",
    };
    let mut text = [method, scheme, &subrequest.host, &subrequest.path, version].concat();
    for (name, value) in Fields(&subrequest.fields) {
        // Fields of the client's content are omitted: a subrequest has no content, and needs no
        // 100 (Continue).
        let is_of_body = [
            "content-length",
            "content-type",
            "transfer-encoding",
            "expect",
        ];
        if !is_of_body
            .iter()
            .any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
        {
            [name, b": ", value, b"\r\n"]
                .iter()
                .for_each(|part| text.extend_from_slice(part));
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Returns a header section with the client's host name and login, for the guards. `has_forward_auth` is true in a World
/// with forward authentication, which has logins in further fields and questions about the target.
fn admission_text(admission: &AccessCheck, has_forward_auth: bool) -> Vec<u8> {
    let target = if has_forward_auth {
        &admission.target[..]
    } else {
        b"/"
    };
    let mut text = if admission.host.is_empty() {
        [b"GET ", target, b" HTTP/1.0\r\n"].concat()
    } else {
        let host = &admission.host[..];
        [b"GET ", target, b" HTTP/1.1\r\nHost: ", host, b"\r\n"].concat()
    };
    if let Some(value) = &admission.authorization {
        text.extend_from_slice(&[b"Authorization: ", &value[..], b"\r\n"].concat());
    }
    if has_forward_auth {
        text.extend_from_slice(&admission.login_fields);
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// A check of a path against the guards.
struct AccessCheckTask {
    context: Rc<WorkerContext>,
    dispatch_context: DispatchContext,
    text: Vec<u8>,
    path: Vec<u8>,
    method: Method,
    guarded: Option<Rc<Cell<bool>>>,
    /// Answers of servers for forward authentication to the request.
    answers: Option<AuthAnswers>,
}

impl AccessCheckTask {
    async fn answer(self) -> Result<Admission, HandlerError> {
        let mut progress = Progress::default().with_answers(self.answers.as_ref());
        loop {
            match self.look(&mut progress)? {
                AccessCheckStep::Admitted(admission) => return Ok(admission),
                AccessCheckStep::Wait(work) => progress = work.await,
            }
        }
    }

    fn look(&self, progress: &mut Progress) -> Result<AccessCheckStep, HandlerError> {
        let world = self.context.world();
        let mut copy = Vec::new();
        let Ok(ParsedHead::Complete { mut head, .. }) =
            parse_head(&self.text, &mut copy, &mut 0, &world.limits.head)
        else {
            return Err(refused(Reject::ADDRESS_DENIED));
        };
        head.method = self.method;
        let dispatch_context = DispatchContext {
            now_ms: self.context.clock.millis(),
            ..self.dispatch_context
        };
        let (admitted, is_guarded) = admit(
            &world,
            &head,
            &dispatch_context,
            &self.path,
            progress.answers(),
        );
        if let Some(note) = self.guarded.as_ref().filter(|_| is_guarded) {
            note.set(true);
        }
        let denied = match admitted {
            Ok(admission) => return Ok(AccessCheckStep::Admitted(admission)),
            Err(denied) => Dispatched::unguarded(None, denied),
        };
        let attempt = Attempt::of(denied, &world, &head, RequestContent::None, progress);
        match attempt.step {
            Step::Wait(wait) => {
                let work = redispatch::wait(wait, &self.context, std::mem::take(progress));
                Ok(AccessCheckStep::Wait(work))
            }
            Step::Send(ReadyResponse::Refuse { reject, .. }) => Err(refused(reject)),
            Step::Send(_) | Step::Call(_) => Err(refused(Reject::ADDRESS_DENIED)),
        }
    }
}

/// Result of one check against the guards.
enum AccessCheckStep {
    /// Access is granted.
    Admitted(Admission),
    /// Wait, then check again.
    Wait(LocalBoxFuture<Progress>),
}

struct SubrequestTask {
    context: Rc<WorkerContext>,
    dispatch_context: DispatchContext,
    ends: Endpoints,
    text: Vec<u8>,
    version: Version,
    hops: u8,
    guards: u64,
    guarded: Option<Rc<Cell<bool>>>,
    /// Answers of servers for forward authentication to the request.
    answers: Option<AuthAnswers>,
    /// Memory of the client's request and response.
    memory: BodyAccount,
}

/// Result of one dispatch of a subrequest.
enum SubrequestStep {
    Response(Result<Response, HandlerError>),
    /// Wait, then dispatch again.
    Wait(LocalBoxFuture<Progress>),
    Call(LocalBoxFuture<Result<Response, HandlerError>>),
}

impl SubrequestTask {
    async fn answer(self) -> Result<Response, HandlerError> {
        let mut progress = Progress::exempt().with_answers(self.answers.as_ref());
        loop {
            match self.look(&mut progress) {
                SubrequestStep::Response(response) => return response,
                SubrequestStep::Call(answering) => return answering.await,
                SubrequestStep::Wait(work) => progress = work.await,
            }
        }
    }

    fn look(&self, progress: &mut Progress) -> SubrequestStep {
        let world = self.context.world();
        let mut copy = Vec::new();
        let mut head = match parse_head(&self.text, &mut copy, &mut 0, &world.limits.head) {
            Ok(ParsedHead::Complete { head, .. }) => head,
            // The malformed request comes from the script and not from the client.
            other => return SubrequestStep::Response(Err(self.malformed_location(other.err()))),
        };
        head.version = self.version;
        // The script may have changed a file just before its redirect, so the poller looks for changes on
        // disk.
        self.context.poller.check_inotify();
        let dispatch_context = DispatchContext {
            now_ms: self.context.clock.millis(),
            has_disk_changes: self.context.poller.has_unread_changes(),
            // The client's connection may have closed, and its row may belong to another connection.
            endpoints: EndpointLookup::Known(self.ends),
            ..self.dispatch_context
        };
        let content = RequestContent::None;
        let client = dispatch_context;
        let attempt = Attempt::dispatch(&world, &head, client, &self.context, content, progress);
        // A response under other guards than at the time of the client's request counts as guarded, and is
        // not cached for all clients: a later configuration may restore the earlier guards, and cached
        // pages would become valid again.
        let is_guarded = attempt.request.is_guarded || world.guards != self.guards;
        if let Some(note) = self.guarded.as_ref().filter(|_| is_guarded) {
            note.set(true);
        }
        let ruled = attempt.request.ruled.unwrap_or_default();
        let (own_lines, answers) = (ruled.own_lines, ruled.answers);
        let response = match attempt.step {
            Step::Wait(wait) => {
                let work = redispatch::wait(wait, &self.context, std::mem::take(progress));
                return SubrequestStep::Wait(work);
            }
            Step::Call(handler) => {
                let visitor = Visitor {
                    user: attempt.request.user,
                    answers,
                };
                let response = self.call(handler, &head, visitor);
                return SubrequestStep::Call(if own_lines.is_empty() {
                    response
                } else {
                    Box::pin(async move { Ok(with_lines(response.await?, &own_lines)) })
                });
            }
            Step::Send(response) => response,
        };
        let response = match response {
            ReadyResponse::Stored(stored) => {
                let mut fields = Vec::new();
                stored.push_changing(&mut fields);
                Ok(streamed_page(&self.context, stored, &fields))
            }
            // The driver of the client's request sends the site's page and logs the rule.
            ReadyResponse::Refuse { reject, .. } => Err(refused(reject)),
            ReadyResponse::Synthetic(small) => Ok(from_synthetic(small)),
            ReadyResponse::Listing(listing) => {
                let mut scratch = Vec::new();
                let fields = fields(listing.head(&mut scratch));
                let body = BodyReader::listing(listing);
                Ok(streamed(&self.context, Status::OK, fields, body))
            }
        };
        SubrequestStep::Response(response.map(|response| with_lines(response, &own_lines)))
    }

    /// Returns the error for a script with a Location that does not make a valid request.
    fn malformed_location(&self, why: Option<Reject>) -> HandlerError {
        let line = self.text.split(|byte| *byte == b'\r').next();
        let line = line.unwrap_or_default();
        let line = line[..line.len().min(limits::SCRIPT_QUOTED_BYTES_MAX)].escape_ascii();
        let why = why.map_or("the head is incomplete", |reject| reject.reason);
        let why = format!("the Location field gives the malformed request \"{line}\": {why}");
        HandlerError::because(STAGE, Reject::SCRIPT_HEAD_MALFORMED, why)
    }

    fn call(
        &self,
        handler: HandlerCall,
        head: &RequestHead<'_>,
        visitor: Visitor,
    ) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let (writer, reader) = pipe(1);
        writer.finish();
        let view = WorkerSubrequests {
            context: Rc::clone(&self.context),
            dispatch_context: self.dispatch_context,
            ends: self.ends,
            guards: self.guards,
            guarded: self.guarded.clone(),
            answers: visitor.answers,
            memory: self.memory.clone(),
        };
        let mut request = handler_request(
            head,
            visitor.user,
            &self.dispatch_context,
            self.ends,
            reader,
            Rc::new(view),
        );
        request.hops = self.hops;
        request.memory = self.memory.clone();
        remove_identity(&self.context.world(), &mut request);
        handler.start(request)
    }
}

/// Returns the site's error page for a refusal. A small page in memory is returned whole instead of
/// streamed.
pub(super) fn error_page(
    context: &Rc<WorkerContext>,
    page: VariantResponse,
    reject: Reject,
) -> Response {
    let more = lines_beside(&page, refusal_fields(reject));
    let whole = page.whole_memory().map(<[u8]>::to_vec);
    let mut response = streamed_page(context, page, more);
    if let Some(bytes) = whole.filter(|bytes| bytes.len() <= limits::PIPE_BYTES) {
        response.body = handler::ResponseBody::Whole(bytes);
    }
    response
}

/// Returns a stored page in the form of a handler's response, with the additional field lines `more`.
fn streamed_page(context: &Rc<WorkerContext>, stored: VariantResponse, more: &[u8]) -> Response {
    let mut scratch = Vec::new();
    let mut fields = fields(stored.head(&mut scratch));
    fields.append(&lines(more));
    streamed(context, stored.status, fields, BodyReader::stored(stored))
}

/// Returns a streamed response. Its length is taken from the Content-Length field.
fn streamed(
    context: &Rc<WorkerContext>,
    status: Status,
    mut fields: ResponseFields,
    body: BodyReader,
) -> Response {
    let length = fields.first("content-length");
    let length = length.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-length"));
    let (writer, reader) = pipe(limits::PIPE_BYTES);
    Response::new(
        status,
        fields,
        handler::ResponseBody::Stream {
            length,
            reader,
            work: Box::pin(fill(Rc::clone(context), body, writer)),
        },
    )
}

/// Copies stored content into the pipe of a response. A pipe dropped before `finish` marks the response as
/// broken off.
async fn fill(context: Rc<WorkerContext>, mut body: BodyReader, mut writer: PipeWriter) {
    let mut part = Vec::new();
    loop {
        part.clear();
        let filled = body.fill(&mut part, limits::PIPE_BYTES / 4);
        if writer.write_all(&part).await.is_err() {
            return;
        }
        match filled {
            BodyFill::Some | BodyFill::Nothing => {}
            BodyFill::Last => return writer.finish(),
            BodyFill::Broken => return,
            BodyFill::Disk(read) => match context.pool.run(move || read.run()).await {
                Ok(Ok(bytes)) => body.feed(bytes),
                _ => return,
            },
        }
    }
}

/// Returns the fields of a header section after its status line, without the default Server field.
fn fields(head: &[u8]) -> ResponseFields {
    let start = head
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    lines(&head[start..])
}

fn lines(lines: &[u8]) -> ResponseFields {
    let fields = Fields(lines).iter();
    // Every response gets the default Server field later. A Server field set by the operator is kept.
    let is_said = |name: &[u8], value: &[u8]| {
        name.eq_ignore_ascii_case(b"server") && value == SERVER.as_bytes()
    };
    fields
        .filter(|(name, value)| !is_said(name, value))
        .collect()
}

/// Returns a synthetic response in the form of a handler's response.
pub(super) fn from_synthetic(small: SyntheticResponse) -> Response {
    Response::new(
        small.status,
        lines(&small.fields),
        if small.body.is_empty() {
            handler::ResponseBody::Empty
        } else {
            handler::ResponseBody::Whole(small.body)
        },
    )
}

/// Returns the response with the field lines of servers for forward authentication.
fn with_lines(mut response: Response, own_lines: &[u8]) -> Response {
    if !own_lines.is_empty() {
        response.fields.append(&lines(own_lines));
    }
    response
}

fn refused(reject: Reject) -> HandlerError {
    HandlerError::new(STAGE, reject)
}

const STAGE: &str = "internal redirect";
