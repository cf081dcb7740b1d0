//! The server asked from within: what a script's `Location: /path` leads to, answered by the same
//! dispatch as if the client had asked, and handed to the handler as a response of its own.

use crate::handler::pipe::{PipeWriter, pipe};
use crate::handler::route_handler::HandlerCall;
use crate::handler::{
    self, AccessCheck, Endpoints, HandlerError, LocalBoxFuture, Response, Subrequest, Subrequests,
};
use crate::limits;
use crate::serve::attempt::{Attempt, ERRANDS_MAX, Progress, ReadyResponse, RequestBody, Step};
use crate::serve::body::{BodyFill, BodyReader};
use crate::serve::dispatch::{DispatchContext, DispatchOutcome, EndpointLookup, admit, dispatch};
use crate::serve::h1::call::handler_request;
use crate::serve::redispatch;
use crate::serve::synthetic_response::{SyntheticResponse, refusal_fields};
use crate::serve::worker::Worker;
use crate::site::{SERVER, VariantResponse};
use crate::wire::fields::Fields;
use crate::wire::h1::request::{ParsedHead, parse_head};
use crate::wire::reject::Reject;
use crate::wire::request_head::{RequestHead, Version};
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::Status;
use crate::world::users::UnverifiedLogin;
use std::cell::Cell;
use std::rc::Rc;

/// One client's view of the server.
pub(super) struct WorkerSubrequests {
    pub(super) worker: Rc<Worker>,
    pub(super) facts: DispatchContext,
    ends: Endpoints,
    /// What was guarded when the client asked.
    guards: u64,
    /// Where it is noted that an answer was guarded, if anybody wants to know.
    guarded: Option<Rc<Cell<bool>>>,
}

impl WorkerSubrequests {
    pub(super) fn of(
        worker: &Rc<Worker>,
        facts: DispatchContext,
        ends: Endpoints,
    ) -> Rc<dyn Subrequests> {
        Rc::new(WorkerSubrequests {
            worker: Rc::clone(worker),
            facts,
            ends,
            guards: worker.world().guards,
            guarded: None,
        })
    }
}

impl Subrequests for WorkerSubrequests {
    fn fetch(&self, question: Subrequest) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let asking = SubrequestTask {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
            ends: self.ends,
            text: text(&question),
            version: question.version,
            hops: question.hops,
            guards: self.guards,
            guarded: self.guarded.clone(),
        };
        Box::pin(asking.answer())
    }

    fn authorize(
        &self,
        admission: AccessCheck,
    ) -> LocalBoxFuture<Result<Option<String>, HandlerError>> {
        let admitting = AccessCheckTask {
            worker: Rc::clone(&self.worker),
            facts: DispatchContext {
                endpoints: EndpointLookup::Known(self.ends),
                ..self.facts
            },
            text: admission_text(&admission),
            path: admission.path,
            guarded: self.guarded.clone(),
        };
        Box::pin(admitting.answer())
    }

    fn with_guard_flag(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Subrequests> {
        Rc::new(WorkerSubrequests {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
            ends: self.ends,
            guards: self.guards,
            guarded: Some(guarded),
        })
    }
}

/// The question as a head of HTTP/1.1, which is read like any other.
fn text(question: &Subrequest) -> Vec<u8> {
    let method: &[u8] = if question.is_head { b"HEAD " } else { b"GET " };
    let scheme: &[u8] = if question.host.is_empty() {
        b""
    } else {
        b"http://"
    };
    let version: &[u8] = match question.version {
        Version::Http10 => b" HTTP/1.0\r\n",
        _ => b" HTTP/1.1\r\n",
    };
    let mut text = [method, scheme, &question.host, &question.path, version].concat();
    for (name, value) in Fields(&question.fields) {
        // There is no body any more, and nobody waits for our word about it.
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

/// The head of a request by the same client, which the guards look at.
fn admission_text(admission: &AccessCheck) -> Vec<u8> {
    let mut text = match admission.host.is_empty() {
        true => b"GET / HTTP/1.0\r\n".to_vec(),
        false => [b"GET / HTTP/1.1\r\nHost: ", &admission.host[..], b"\r\n"].concat(),
    };
    if let Some(value) = &admission.authorization {
        text.extend_from_slice(&[b"Authorization: ", &value[..], b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// A path before the guards.
struct AccessCheckTask {
    worker: Rc<Worker>,
    facts: DispatchContext,
    text: Vec<u8>,
    path: Vec<u8>,
    guarded: Option<Rc<Cell<bool>>>,
}

impl AccessCheckTask {
    async fn answer(self) -> Result<Option<String>, HandlerError> {
        for _ in 0..ERRANDS_MAX {
            match self.look()? {
                AccessCheckStep::Admitted(user) => return Ok(user),
                // Asking again tells what came of it.
                AccessCheckStep::Login(ask) => {
                    let answered = ask.answer().await;
                    answered.map_err(|_| refused(Reject::LOGINS_BUSY))?;
                }
            }
        }
        Err(refused(Reject::CHANGING))
    }

    fn look(&self) -> Result<AccessCheckStep, HandlerError> {
        let world = self.worker.world();
        let Ok(ParsedHead::Complete { head, .. }) = parse_head(&self.text, &mut 0, &world.limits)
        else {
            return Err(refused(Reject::ADDRESS_DENIED));
        };
        let facts = DispatchContext {
            now_ms: self.worker.clock.millis(),
            ..self.facts
        };
        let (admitted, is_guarded) = admit(&world, &head, &facts, &self.path);
        if let Some(note) = self.guarded.as_ref().filter(|_| is_guarded) {
            note.set(true);
        }
        match admitted {
            Ok(user) => Ok(AccessCheckStep::Admitted(user)),
            Err(DispatchOutcome::Login(ask)) => Ok(AccessCheckStep::Login(ask)),
            Err(DispatchOutcome::Refuse { reject, .. }) => Err(refused(reject)),
            Err(_) => Err(refused(Reject::ADDRESS_DENIED)),
        }
    }
}

/// What a look at the guards came to.
enum AccessCheckStep {
    /// They let the client in, with this user.
    Admitted(Option<String>),
    /// This password must be checked first.
    Login(Box<UnverifiedLogin>),
}

struct SubrequestTask {
    worker: Rc<Worker>,
    facts: DispatchContext,
    ends: Endpoints,
    text: Vec<u8>,
    version: Version,
    hops: u8,
    guards: u64,
    guarded: Option<Rc<Cell<bool>>>,
}

/// What a look at the question came to.
enum SubrequestStep {
    Response(Result<Response, HandlerError>),
    /// A wait, then another dispatch.
    Wait(LocalBoxFuture<Progress>),
    Call(LocalBoxFuture<Result<Response, HandlerError>>),
}

impl SubrequestTask {
    async fn answer(self) -> Result<Response, HandlerError> {
        let mut progress = Progress::default();
        loop {
            match self.look(&progress) {
                SubrequestStep::Response(response) => return response,
                SubrequestStep::Call(answering) => return answering.await,
                SubrequestStep::Wait(work) => progress = work.await,
            }
        }
    }

    fn look(&self, progress: &Progress) -> SubrequestStep {
        let world = self.worker.world();
        let mut head = match parse_head(&self.text, &mut 0, &world.limits) {
            Ok(ParsedHead::Complete { head, .. }) => head,
            // It was a script that made it so, not the client.
            other => return SubrequestStep::Response(Err(self.misled(other.err()))),
        };
        head.version = self.version;
        // The script may have changed a file just before its redirect, so the poller looks for changes
        // on disk.
        self.worker.poller.check_inotify();
        let facts = DispatchContext {
            now_ms: self.worker.clock.millis(),
            has_disk_changes: self.worker.poller.has_disk_changes(),
            // The connection may have gone, and another be in its row.
            endpoints: EndpointLookup::Known(self.ends),
            may_wait: progress.may_wait(RequestBody::Complete),
            ..self.facts
        };
        let dispatched = dispatch(&world, &head, &facts);
        let guarded = dispatched.guarded;
        // What others are guarded by than when the client asked is no page for all either: the guards may
        // be again what they were then, and so would be the pages that are kept.
        let guarded = guarded || world.guards != self.guards;
        if let Some(note) = self.guarded.as_ref().filter(|_| guarded) {
            note.set(true);
        }
        let attempt = Attempt::of(dispatched, &world, &head, RequestBody::Complete, progress);
        let response = match attempt.step {
            Step::Wait(wait) => {
                let work = redispatch::wait(wait, &self.worker.pool, *progress);
                return SubrequestStep::Wait(work);
            }
            Step::Call(handler) => {
                return SubrequestStep::Call(self.call(handler, &head, attempt.user));
            }
            Step::Send(response) => response,
        };
        SubrequestStep::Response(match response {
            ReadyResponse::Stored(stored) => {
                let mut fields = Vec::new();
                stored.push_changing(&mut fields);
                Ok(streamed_page(&self.worker, stored, &fields))
            }
            // The driver of the client's request sends the site's page, and logs the rule.
            ReadyResponse::Refuse { reject, .. } => Err(refused(reject)),
            ReadyResponse::Synthetic(small) => Ok(from_synthetic(small)),
            ReadyResponse::Listing(listing) => {
                let mut scratch = Vec::new();
                let fields = fields(listing.head(&mut scratch));
                let body = BodyReader::listing(listing);
                Ok(streamed(&self.worker, Status::OK, fields, body))
            }
        })
    }

    /// Where a script leads to is no place.
    fn misled(&self, why: Option<Reject>) -> HandlerError {
        let line = self.text.split(|byte| *byte == b'\r').next();
        let line = line.unwrap_or_default();
        let line = line[..line.len().min(limits::SCRIPT_QUOTED_BYTES_MAX)].escape_ascii();
        let why = why.map_or("it has no end", |reject| reject.reason);
        let why = format!("its Location makes \"{line}\" of the request: {why}");
        HandlerError::because(STAGE, Reject::SCRIPT_HEAD_MALFORMED, why)
    }

    fn call(
        &self,
        handler: HandlerCall,
        head: &RequestHead<'_>,
        user: Option<String>,
    ) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let (writer, reader) = pipe(1);
        writer.finish();
        let view = WorkerSubrequests {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
            ends: self.ends,
            guards: self.guards,
            guarded: self.guarded.clone(),
        };
        let view = Some(Rc::new(view) as Rc<dyn Subrequests>);
        let mut request = handler_request(head, user, &self.facts, self.ends, reader, view);
        request.hops = self.hops;
        handler.start(request)
    }
}

/// The site's page for a refusal. One that is in memory and small is there at once.
pub(super) fn error_page(worker: &Rc<Worker>, page: VariantResponse, reject: Reject) -> Response {
    let more = refusal_fields(reject);
    let whole = page.whole_memory().map(<[u8]>::to_vec);
    let mut response = streamed_page(worker, page, more);
    if let Some(bytes) = whole.filter(|bytes| bytes.len() <= limits::PIPE_BYTES) {
        response.body = handler::ResponseBody::Whole(bytes);
    }
    response
}

/// A stored page as a handler would have made it, with these field lines more.
fn streamed_page(worker: &Rc<Worker>, stored: VariantResponse, more: &[u8]) -> Response {
    let mut scratch = Vec::new();
    let mut fields = fields(stored.head(&mut scratch));
    fields.append(&lines(more));
    streamed(worker, stored.status, fields, BodyReader::stored(stored))
}

/// Its length is what its own head says.
fn streamed(
    worker: &Rc<Worker>,
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
            work: Box::pin(fill(Rc::clone(worker), body, writer)),
        },
    )
}

/// Moves a stored body into a response's pipe; dropping it unfinished tells that it broke off.
async fn fill(worker: Rc<Worker>, mut body: BodyReader, mut writer: PipeWriter) {
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
            BodyFill::Disk(read) => match worker.pool.run(move || read.run()).await {
                Ok(Ok(bytes)) => body.feed(bytes),
                _ => return,
            },
        }
    }
}

/// The fields of a head with its first line, but for those that every response has.
fn fields(head: &[u8]) -> ResponseFields {
    let start = head
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    lines(&head[start..])
}

fn lines(lines: &[u8]) -> ResponseFields {
    let fields = Fields(lines).iter();
    // That one is said anyway, unless the operator said another.
    let is_said = |name: &[u8], value: &[u8]| {
        name.eq_ignore_ascii_case(b"server") && value == SERVER.as_bytes()
    };
    fields
        .filter(|(name, value)| !is_said(name, value))
        .collect()
}

/// A small response, as a handler would have made it.
pub(super) fn from_synthetic(small: SyntheticResponse) -> Response {
    Response::new(
        small.status,
        lines(&small.fields),
        match small.body.is_empty() {
            true => handler::ResponseBody::Empty,
            false => handler::ResponseBody::Whole(small.body),
        },
    )
}

fn refused(reject: Reject) -> HandlerError {
    HandlerError::new(STAGE, reject)
}

const STAGE: &str = "redirect within the server";
