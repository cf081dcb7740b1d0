//! The server asked from within: what a script's `Location: /path` leads to, answered by the same
//! dispatch as if the client had asked, and handed to the handler as a response of its own.

use super::body::{Body, Filled};
use super::dispatch::{Dispatched, Facts, Reply, Way, admit, dispatch};
use super::live::owned;
use super::small::{Small, refusal_fields};
use super::worker::Worker;
use crate::base::lag::CatchUp;
use crate::handler::pipe::{Writer, pipe};
use crate::handler::{
    self, Admission, Ends, Fault, Handler, Inside, LocalBoxFuture, Question, Response,
};
use crate::limits;
use crate::site::{SERVER, Stored};
use crate::wire::fields::Fields;
use crate::wire::h1::{Parsed, parse_head};
use crate::wire::head::{Head, Version};
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use crate::world::users::Ask;
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// One client's view of the server.
pub(super) struct View {
    pub(super) worker: Rc<Worker>,
    pub(super) facts: Facts,
    ends: Ends,
    /// What was guarded when the client asked.
    guards: u64,
    /// Where it is noted that an answer was guarded, if anybody wants to know.
    guarded: Option<Rc<Cell<bool>>>,
}

impl View {
    pub(super) fn of(worker: &Rc<Worker>, facts: Facts, ends: Ends) -> Rc<dyn Inside> {
        Rc::new(View {
            worker: Rc::clone(worker),
            facts,
            ends,
            guards: worker.world().guards,
            guarded: None,
        })
    }
}

impl Inside for View {
    fn ask(&self, question: Question) -> LocalBoxFuture<Result<Response, Fault>> {
        let asking = Asking {
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

    fn admit(&self, admission: Admission) -> LocalBoxFuture<Result<Option<String>, Fault>> {
        let admitting = Admitting {
            worker: Rc::clone(&self.worker),
            facts: Facts {
                way: Way::Known(self.ends),
                ..self.facts
            },
            text: admission_text(&admission),
            path: admission.path,
            guarded: self.guarded.clone(),
        };
        Box::pin(admitting.answer())
    }

    fn noting(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Inside> {
        Rc::new(View {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
            ends: self.ends,
            guards: self.guards,
            guarded: Some(guarded),
        })
    }
}

/// The question as a head of HTTP/1.1, which is read like any other.
fn text(question: &Question) -> Vec<u8> {
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
fn admission_text(admission: &Admission) -> Vec<u8> {
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
struct Admitting {
    worker: Rc<Worker>,
    facts: Facts,
    text: Vec<u8>,
    path: Vec<u8>,
    guarded: Option<Rc<Cell<bool>>>,
}

impl Admitting {
    async fn answer(self) -> Result<Option<String>, Fault> {
        for _ in 0..ERRANDS_MAX {
            match self.look()? {
                Looked::Admitted(user) => return Ok(user),
                // Asking again tells what came of it.
                Looked::Login(ask) => {
                    let answered = ask.answer().await;
                    answered.map_err(|_| refused(Reject::LOGINS_BUSY))?;
                }
            }
        }
        Err(refused(Reject::CHANGING))
    }

    fn look(&self) -> Result<Looked, Fault> {
        let world = self.worker.world();
        let Ok(Parsed::Complete { head, .. }) = parse_head(&self.text, &mut 0, &world.limits)
        else {
            return Err(refused(Reject::ADDRESS_DENIED));
        };
        let facts = Facts {
            now_ms: self.worker.clock.millis(),
            ..self.facts
        };
        let (admitted, is_guarded) = admit(&world, &head, &facts, &self.path);
        if let Some(note) = self.guarded.as_ref().filter(|_| is_guarded) {
            note.set(true);
        }
        match admitted {
            Ok(user) => Ok(Looked::Admitted(user)),
            Err(Reply::Login(ask)) => Ok(Looked::Login(ask)),
            Err(Reply::Refuse { reject, .. }) => Err(refused(reject)),
            Err(_) => Err(refused(Reject::ADDRESS_DENIED)),
        }
    }
}

/// What a look at the guards came to.
enum Looked {
    /// They let the client in, with this user.
    Admitted(Option<String>),
    /// This password must be checked first.
    Login(Box<Ask>),
}

struct Asking {
    worker: Rc<Worker>,
    facts: Facts,
    ends: Ends,
    text: Vec<u8>,
    version: Version,
    hops: u8,
    guards: u64,
    guarded: Option<Rc<Cell<bool>>>,
}

/// What a look at the question came to.
enum Next {
    Response(Result<Response, Fault>),
    /// Ask again after this; too much to do, if true.
    Wait(LocalBoxFuture<bool>),
    /// Ask again after the disk's changes.
    Behind(CatchUp),
    Call(LocalBoxFuture<Result<Response, Fault>>),
}

impl Asking {
    async fn answer(self) -> Result<Response, Fault> {
        let mut has_waited = false;
        for _ in 0..ERRANDS_MAX {
            match self.look(!has_waited) {
                Next::Response(response) => return response,
                Next::Call(answering) => return answering.await,
                Next::Wait(work) => {
                    if work.await {
                        return Err(refused(Reject::LOGINS_BUSY));
                    }
                }
                Next::Behind(catch_up) => {
                    has_waited = true;
                    catch_up.done().await;
                }
            }
        }
        Err(refused(Reject::CHANGING))
    }

    fn look(&self, may_wait: bool) -> Next {
        let world = self.worker.world();
        let mut head = match parse_head(&self.text, &mut 0, &world.limits) {
            Ok(Parsed::Complete { head, .. }) => head,
            // It was a script that made it so, not the client.
            other => return Next::Response(Err(self.misled(other.err()))),
        };
        head.version = self.version;
        // The script may have changed a file just before its redirect, so the poller looks for changes
        // on disk.
        self.worker.poller.look();
        let facts = Facts {
            now_ms: self.worker.clock.millis(),
            is_told: self.worker.poller.is_told(),
            // The connection may have gone, and another be in its row.
            way: Way::Known(self.ends),
            may_wait,
            ..self.facts
        };
        let Dispatched {
            user,
            reply,
            guarded,
            ..
        } = dispatch(&world, &head, &facts);
        // What others are guarded by than when the client asked is no page for all either: the guards may
        // be again what they were then, and so would be the pages that are kept.
        let guarded = guarded || world.guards != self.guards;
        if let Some(note) = self.guarded.as_ref().filter(|_| guarded) {
            note.set(true);
        }
        let response = match reply {
            Reply::Load(load) => {
                let job = self.worker.pool.run(move || load.run());
                return Next::Wait(Box::pin(async move {
                    // Whatever came of it, asking again will tell.
                    let _ = job.await;
                    false
                }));
            }
            Reply::Login(ask) => {
                return Next::Wait(Box::pin(async move { ask.answer().await.is_err() }));
            }
            Reply::Behind(catch_up) => return Next::Behind(catch_up),
            Reply::Live(handler) => return Next::Call(self.call(&handler, &head, user)),
            Reply::Stored(stored) => streamed_page(&self.worker, stored, b""),
            Reply::Refuse {
                page: Some(page),
                reject,
            } => streamed_page(&self.worker, page, refusal_fields(reject)),
            Reply::Refuse { reject, page: None } => return Next::Response(Err(refused(reject))),
            Reply::Listing(listing) => {
                let mut scratch = Vec::new();
                let fields = fields(listing.head(&mut scratch));
                streamed(&self.worker, Status::OK, fields, Body::listing(listing))
            }
            Reply::Redirect { status, location } => small(Small::redirect(status, &location)),
            Reply::Options => small(Small::options()),
            Reply::Challenge(answer) => small(Small::challenge(answer)),
        };
        Next::Response(Ok(response))
    }

    /// Where a script leads to is no place.
    fn misled(&self, why: Option<Reject>) -> Fault {
        let line = self.text.split(|byte| *byte == b'\r').next();
        let line = line.unwrap_or_default();
        let line = line[..line.len().min(limits::SCRIPT_QUOTED_BYTES_MAX)].escape_ascii();
        let why = why.map_or("it has no end", |reject| reject.reason);
        let why = format!("its Location makes \"{line}\" of the request: {why}");
        Fault::because(STAGE, Reject::SCRIPT_HEAD_MALFORMED, why)
    }

    fn call(
        &self,
        handler: &Arc<dyn Handler>,
        head: &Head<'_>,
        user: Option<String>,
    ) -> LocalBoxFuture<Result<Response, Fault>> {
        let (writer, reader) = pipe(1);
        writer.finish();
        let view = View {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
            ends: self.ends,
            guards: self.guards,
            guarded: self.guarded.clone(),
        };
        let view = Some(Rc::new(view) as Rc<dyn Inside>);
        let mut request = owned(head, user, &self.facts, self.ends, reader, view);
        request.hops = self.hops;
        handler.handle(request)
    }
}

/// The site's page for a refusal. One that is in memory and small is there at once.
pub(super) fn error_page(worker: &Rc<Worker>, page: Stored, reject: Reject) -> Response {
    let more = refusal_fields(reject);
    let whole = page.whole_memory().map(<[u8]>::to_vec);
    let mut response = streamed_page(worker, page, more);
    if let Some(bytes) = whole.filter(|bytes| bytes.len() <= limits::PIPE_BYTES) {
        response.body = handler::Body::Whole(bytes);
    }
    response
}

/// A stored page as a handler would have made it, with these field lines more.
fn streamed_page(worker: &Rc<Worker>, stored: Stored, more: &[u8]) -> Response {
    let mut scratch = Vec::new();
    let mut fields = fields(stored.head(&mut scratch));
    fields.extend(lines(more));
    streamed(worker, stored.status, fields, Body::stored(stored))
}

/// Its length is what its own head says.
fn streamed(worker: &Rc<Worker>, status: Status, mut fields: OwnedFields, body: Body) -> Response {
    let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
    let length = fields.iter().find(|(name, _)| is_length(name));
    let length = length.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
    fields.retain(|(name, _)| !is_length(name));
    let (writer, reader) = pipe(limits::PIPE_BYTES);
    Response {
        status: status.into(),
        fields,
        body: handler::Body::Stream {
            length,
            reader,
            work: Box::pin(fill(Rc::clone(worker), body, writer)),
        },
    }
}

/// Moves a stored body into a response's pipe; dropping it unfinished tells that it broke off.
async fn fill(worker: Rc<Worker>, mut body: Body, mut writer: Writer) {
    let mut part = Vec::new();
    loop {
        part.clear();
        let filled = body.fill(&mut part, limits::PIPE_BYTES / 4);
        if writer.write_all(&part).await.is_err() {
            return;
        }
        match filled {
            Filled::Some | Filled::Nothing => {}
            Filled::Last => return writer.finish(),
            Filled::Broken => return,
            Filled::Disk(read) => match worker.pool.run(move || read.run()).await {
                Ok(Ok(bytes)) => body.feed(bytes),
                _ => return,
            },
        }
    }
}

type OwnedFields = Vec<(Cow<'static, str>, Vec<u8>)>;

/// The fields of a head with its first line, but for those that every response has.
fn fields(head: &[u8]) -> OwnedFields {
    let start = head
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    lines(&head[start..])
}

fn lines(lines: &[u8]) -> OwnedFields {
    let fields = Fields(lines).iter();
    // That one is said anyway, unless the operator said another.
    let is_said = |name: &[u8], value: &[u8]| {
        name.eq_ignore_ascii_case(b"server") && value == SERVER.as_bytes()
    };
    let fields = fields.filter(|(name, value)| !is_said(name, value));
    let owned = |(name, value): (&[u8], &[u8])| {
        (
            Cow::Owned(String::from_utf8_lossy(name).into_owned()),
            value.to_vec(),
        )
    };
    fields.map(owned).collect()
}

/// A small response, as a handler would have made it.
pub(super) fn small(small: Small) -> Response {
    Response {
        status: small.status.into(),
        fields: lines(&small.fields),
        body: match small.body.is_empty() {
            true => handler::Body::Empty,
            false => handler::Body::Whole(small.body),
        },
    }
}

fn refused(reject: Reject) -> Fault {
    Fault::new(STAGE, reject)
}

const STAGE: &str = "redirect within the server";

/// At most this many errands to the pool for one question, as for a request.
const ERRANDS_MAX: u8 = 16;
