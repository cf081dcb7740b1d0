//! The server asked from within: what a script's `Location: /path` leads to, answered by the same
//! dispatch as if the client had asked, and handed to the handler as a response of its own.

use super::body::{Body, Filled};
use super::dispatch::{Dispatched, Facts, Reply, dispatch};
use super::live::owned;
use super::small::Small;
use super::worker::Worker;
use crate::handler::pipe::{Writer, pipe};
use crate::handler::{self, Fault, Handler, Inside, LocalBoxFuture, Question, Response};
use crate::limits;
use crate::site::Stored;
use crate::wire::fields::Fields;
use crate::wire::h1::{Parsed, parse_head};
use crate::wire::head::{Head, Version};
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// One client's view of the server.
pub(super) struct View {
    pub(super) worker: Rc<Worker>,
    pub(super) facts: Facts,
    /// Where it is noted that an answer was guarded, if anybody wants to know.
    guarded: Option<Rc<Cell<bool>>>,
}

impl View {
    pub(super) fn of(worker: &Rc<Worker>, facts: Facts) -> Rc<dyn Inside> {
        Rc::new(View {
            worker: Rc::clone(worker),
            facts,
            guarded: None,
        })
    }
}

impl Inside for View {
    fn ask(&self, question: Question) -> LocalBoxFuture<Result<Response, Fault>> {
        let asking = Asking {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
            text: text(&question),
            version: question.version,
            hops: question.hops,
            guarded: self.guarded.clone(),
        };
        Box::pin(asking.answer())
    }

    fn noting(&self, guarded: Rc<Cell<bool>>) -> Rc<dyn Inside> {
        Rc::new(View {
            worker: Rc::clone(&self.worker),
            facts: self.facts,
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

struct Asking {
    worker: Rc<Worker>,
    facts: Facts,
    text: Vec<u8>,
    version: Version,
    hops: u8,
    guarded: Option<Rc<Cell<bool>>>,
}

/// What a look at the question came to.
enum Next {
    Response(Result<Response, Fault>),
    /// Ask again after this; too much to do, if true.
    Wait(LocalBoxFuture<bool>),
    Call(LocalBoxFuture<Result<Response, Fault>>),
}

impl Asking {
    async fn answer(self) -> Result<Response, Fault> {
        for _ in 0..ERRANDS_MAX {
            match self.look() {
                Next::Response(response) => return response,
                Next::Call(answering) => return answering.await,
                Next::Wait(work) => {
                    if work.await {
                        return Err(refused(Reject::LOGINS_BUSY));
                    }
                }
            }
        }
        Err(refused(Reject::CHANGING))
    }

    fn look(&self) -> Next {
        let world = self.worker.world();
        let mut head = match parse_head(&self.text, &mut 0, &world.limits) {
            Ok(Parsed::Complete { head, .. }) => head,
            // It was a script that made it so, not the client.
            _ => return Next::Response(Err(refused(Reject::SCRIPT_HEAD_MALFORMED))),
        };
        head.version = self.version;
        let facts = Facts {
            now_ms: self.worker.clock.millis(),
            ..self.facts
        };
        let Dispatched {
            user,
            reply,
            guarded,
            ..
        } = dispatch(&world, &head, &facts);
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
            Reply::Live(handler) => return Next::Call(self.call(&handler, &head, user)),
            Reply::Stored(stored)
            | Reply::Refuse {
                page: Some(stored), ..
            } => self.stored(stored),
            Reply::Refuse { reject, page: None } => return Next::Response(Err(refused(reject))),
            Reply::Listing(listing) => {
                let mut scratch = Vec::new();
                let fields = fields(listing.head(&mut scratch));
                self.streamed(Status::OK, fields, Body::listing(listing))
            }
            Reply::Redirect { status, location } => small(Small::redirect(status, &location)),
            Reply::Options => small(Small::options()),
            Reply::Challenge(answer) => small(Small::challenge(answer)),
        };
        Next::Response(Ok(response))
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
            guarded: self.guarded.clone(),
        };
        let mut request = owned(head, user, &self.facts, reader, Some(Rc::new(view)));
        request.hops = self.hops;
        handler.handle(request)
    }

    fn stored(&self, stored: Stored) -> Response {
        let mut scratch = Vec::new();
        let fields = fields(stored.head(&mut scratch));
        self.streamed(stored.status, fields, Body::stored(stored))
    }

    /// Its length is what its own head says.
    fn streamed(&self, status: Status, mut fields: OwnedFields, body: Body) -> Response {
        let is_length = |name: &str| name.eq_ignore_ascii_case("content-length");
        let length = fields.iter().find(|(name, _)| is_length(name));
        let length = length.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
        fields.retain(|(name, _)| !is_length(name));
        let (writer, reader) = pipe(limits::PIPE_BYTES);
        Response {
            status,
            fields,
            body: handler::Body::Stream {
                length,
                reader,
                work: Box::pin(fill(Rc::clone(&self.worker), body, writer)),
            },
        }
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
    let fields = fields.filter(|(name, _)| !name.eq_ignore_ascii_case(b"server"));
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
        status: small.status,
        fields: lines(&small.fields),
        body: match small.body.is_empty() {
            true => handler::Body::Empty,
            false => handler::Body::Whole(small.body),
        },
    }
}

fn refused(reject: Reject) -> Fault {
    Fault::new("redirect within the server", reject)
}

/// At most this many errands to the pool for one question, as for a request.
const ERRANDS_MAX: u8 = 16;
