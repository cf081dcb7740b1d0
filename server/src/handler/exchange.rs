//! One call of a script, whoever runs it: the head of its answer, then the body as it comes, with the
//! request's body going the other way all the while; bounds on silence, time and size.

use super::asked::{Asked, Here, Ungathered};
use super::gathered::Gathered;
use super::pipe::{Broken, Writer, pipe};
use super::{Body, Fault, Inside, Response};
use crate::limits;
use crate::wire::cgi::{Answer, Document, Wrong};
use crate::wire::head::Method;
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Who answers: a program of our own, or a backend. Dropping it ends what it does for this call.
pub trait Peer: 'static {
    /// What it is called in the log.
    const NAME: &'static str;

    /// Moves what goes on beside its output: input, and words for the log. Has any input moved?
    fn poll_aside(&mut self, cx: &mut Context<'_>) -> bool;

    /// Is it the client whose input is waited for?
    fn is_fed(&self) -> bool;

    /// Is it kept waiting for input by a client that sends next to nothing, while others wait for its
    /// place? From then on somebody counts on that.
    fn is_dripped_at(&mut self) -> bool;

    /// Reads output; 0 bytes are its end.
    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize>;

    /// How it ended, asked once its output has.
    fn ended(&mut self) -> impl Future<Output = Ended>;

    /// The response is whole, or nobody wants more of it: it may finish what it has begun.
    fn leave(self, patience: Duration);
}

/// How a call ended.
pub enum Ended {
    /// As it should.
    Well,
    /// What it sent is all that it wanted to, but something was wrong.
    Complaining(String),
    /// Nobody knows whether that was all.
    Broken(Reject, String),
}

/// The bounds of one call.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Calls that may wait for their turn.
    pub queue: usize,
    /// So long nothing may move, unless it is the client that is waited for.
    pub silent: Duration,
    /// So long a client may pause in its body, where it has a reason that others don't have.
    pub patience: Duration,
    /// Where the beginnings of bodies are counted.
    pub gathered: Arc<Gathered>,
    /// The whole call.
    pub whole: Duration,
    /// Of the response's body.
    pub output_bytes: u64,
    /// So much of the response's body is waited for before any of it is sent, so that who fails at
    /// once is answered for by an error. A body that is whole by then is sent at once.
    pub held_bytes: usize,
}

/// What was said.
pub struct Collected {
    /// From its beginning.
    pub bytes: Vec<u8>,
    /// There was more.
    pub is_cut: bool,
}

/// A call under way.
pub struct Exchange<P> {
    peer: P,
    line: String,
    scratch: Vec<u8>,
    /// What was read and is no part of the head, or not known to be.
    read: Vec<u8>,
    bounds: Bounds,
    started: Instant,
    /// When something last moved.
    moved: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What came of waiting for a head.
enum Begun {
    Answer(Answer),
    Wrong(Wrong),
    Ended,
    Late(Late),
}

/// What it was that took too long.
enum Late {
    /// Who answers.
    Silence,
    /// The client, with its body.
    Dripping,
}

/// What came of the body.
enum Done {
    Ended,
    /// Nobody wants it any more.
    Unwanted,
    Late(Late),
    TooLong,
}

impl<P: Peer> Exchange<P> {
    /// With who answers.
    pub fn new(peer: P, asked: &Asked, bounds: Bounds) -> Exchange<P> {
        let now = Instant::now();
        let due = now + bounds.silent.min(bounds.whole);
        Exchange {
            peer,
            line: asked.line(),
            scratch: vec![0; limits::PROGRAM_FIRST_BYTES],
            read: Vec::new(),
            bounds,
            started: now,
            moved: now,
            timer: Box::pin(sleep_until(due)),
        }
    }

    /// Waits for the head of the answer, and makes a response of it.
    pub async fn answer(
        mut self,
        asked: Arc<Asked>,
        inside: Option<Rc<dyn Inside>>,
    ) -> Result<Response, Fault> {
        let mut scanned = 0;
        let begun = poll_fn(|cx| self.poll_head(cx, &mut scanned)).await;
        let (reject, why) = match begun {
            Begun::Answer(Answer::Document(document)) => {
                return match poll_fn(|cx| self.poll_held(cx)).await {
                    true => self.whole(document).await,
                    false => Ok(self.document(document, &asked)),
                };
            }
            Begun::Answer(Answer::Local(path)) => {
                self.peer.leave(self.bounds.silent);
                return elsewhere(&asked, inside, path).await;
            }
            Begun::Wrong(Wrong::Malformed(why)) => (Reject::SCRIPT_HEAD_MALFORMED, why.to_owned()),
            Begun::Wrong(Wrong::TooLarge) => {
                (Reject::SCRIPT_HEAD_TOO_LARGE, "it has no end".to_owned())
            }
            Begun::Late(Late::Dripping) => {
                return Err(Fault::new(P::NAME, Reject::BODY_SLOW));
            }
            Begun::Late(Late::Silence) => {
                let seconds = self.moved.elapsed().as_secs();
                (Reject::HANDLER_SLOW, format!("silent for {seconds} s"))
            }
            Begun::Ended => match self.peer.ended().await {
                Ended::Well => (Reject::SCRIPT_ENDED_EARLY, "it said nothing".to_owned()),
                Ended::Complaining(how) => (Reject::SCRIPT_ENDED_EARLY, how),
                Ended::Broken(reject, how) => (reject, how),
            },
        };
        let why = format!("{}: {why}", self.line);
        let retry = reject == Reject::BACKEND_LEFT && self.read.is_empty();
        Err(Fault {
            retry,
            ..Fault::because(P::NAME, reject, why)
        })
    }

    /// Waits for all that is said, which is no response but to be read here: `bytes_max` of it at
    /// most. Who fails has said nothing.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Collected, Fault> {
        self.bounds.held_bytes = bytes_max;
        if !poll_fn(|cx| self.poll_held(cx)).await {
            if self.read.len() < bytes_max {
                let seconds = self.started.elapsed().as_secs();
                let why = format!("{}: not done after {seconds} s", self.line);
                return Err(Fault::because(P::NAME, Reject::HANDLER_SLOW, why));
            }
            self.read.truncate(bytes_max);
            return Ok(Collected {
                bytes: self.read,
                is_cut: true,
            });
        }
        match self.peer.ended().await {
            Ended::Well => {
                self.peer.leave(self.bounds.silent);
                Ok(Collected {
                    bytes: self.read,
                    is_cut: false,
                })
            }
            Ended::Complaining(how) | Ended::Broken(_, how) => {
                let why = format!("{}: {how}", self.line);
                Err(Fault::because(P::NAME, Reject::SCRIPT_FAILED, why))
            }
        }
    }

    /// Sends on what is said as the body of a response, whose head `head` makes of its beginning: as
    /// much as is to be held, or all of it.
    pub async fn send_on(
        mut self,
        asked: &Asked,
        head: impl FnOnce(&[u8]) -> Document,
    ) -> Result<Response, Fault> {
        let is_whole = poll_fn(|cx| self.poll_held(cx)).await;
        let document = head(&self.read);
        match is_whole {
            true => self.whole(document).await,
            false => Ok(self.document(document, asked)),
        }
    }

    /// Reads as much of the body as is to be held; has it come to its end?
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.read.len() < self.bounds.held_bytes {
            self.poll_aside(cx);
            let read = match self.peer.poll_output(cx, &mut self.scratch) {
                // Who is silent now is so in the midst of a response.
                Poll::Pending => return self.poll_late(cx, true).map(|_| false),
                Poll::Ready(0) => return Poll::Ready(true),
                Poll::Ready(read) => read,
            };
            self.moved = Instant::now();
            self.read.extend_from_slice(&self.scratch[..read]);
        }
        Poll::Ready(false)
    }

    /// A response whose body has been read to its end.
    async fn whole(mut self, document: Document) -> Result<Response, Fault> {
        let is_whole = |length| length == self.read.len() as u64;
        let how = match self.peer.ended().await {
            Ended::Complaining(how) | Ended::Broken(_, how) => how,
            Ended::Well if document.status >= 500 => format!("it answered {}", document.status),
            Ended::Well if document.length.is_none_or(is_whole) => {
                self.peer.leave(self.bounds.silent);
                return Ok(Response {
                    status: Status(document.status),
                    fields: owned(document.fields),
                    body: Body::Whole(self.read),
                });
            }
            Ended::Well => "it sent more or less than it said".to_owned(),
        };
        let why = format!("{}: {how}", self.line);
        Err(Fault::because(P::NAME, Reject::SCRIPT_FAILED, why))
    }

    fn document(self, document: Document, asked: &Asked) -> Response {
        let status = Status(document.status);
        let fields = owned(document.fields);
        let has_none = matches!(document.status, 204 | 304);
        let is_bodiless = has_none || asked.method == Method::Head;
        let (writer, reader) = pipe(limits::PIPE_BYTES);
        let length = document.length;
        let work: super::LocalBoxFuture<()> = match is_bodiless {
            // Nobody reads more of it, but what it has begun it may finish.
            true => {
                self.peer.leave(self.bounds.silent);
                writer.finish();
                Box::pin(async {})
            }
            false => Box::pin(self.send(writer)),
        };
        let body = Body::Stream {
            length,
            reader,
            work,
        };
        Response {
            status,
            fields,
            body,
        }
    }

    /// Moves the body to its end.
    async fn send(mut self, mut writer: Writer) {
        let done = poll_fn(|cx| self.poll_body(cx, &mut writer)).await;
        let what = match done {
            Done::Unwanted => return,
            Done::Late(Late::Dripping) => {
                let rule = Reject::BODY_SLOW.rule;
                format!("others wait, and its client sends next to nothing (rule {rule})")
            }
            Done::Late(Late::Silence) => format!(
                "silent for {} s in its response",
                self.moved.elapsed().as_secs()
            ),
            Done::TooLong => "more output than it may send".to_owned(),
            Done::Ended => match self.peer.ended().await {
                Ended::Broken(_, how) => how,
                ended => {
                    writer.finish();
                    if let Ended::Complaining(how) = ended {
                        let rule = Reject::SCRIPT_FAILED.rule;
                        log::warn!("{}: {}: {how} (rule {rule})", self.line, P::NAME);
                    }
                    return self.peer.leave(self.bounds.silent);
                }
            },
        };
        log::error!(
            "{}: {}: {what}; its response was broken off",
            self.line,
            P::NAME
        );
    }

    /// Reads until the head is whole.
    fn poll_head(&mut self, cx: &mut Context<'_>, scanned: &mut usize) -> Poll<Begun> {
        loop {
            self.poll_aside(cx);
            let read = match self.peer.poll_output(cx, &mut self.scratch) {
                Poll::Pending => return self.poll_late(cx, true).map(Begun::Late),
                Poll::Ready(0) => return Poll::Ready(Begun::Ended),
                Poll::Ready(read) => read,
            };
            self.moved = Instant::now();
            self.read.extend_from_slice(&self.scratch[..read]);
            match Answer::parse(&self.read, scanned) {
                Ok(None) => {}
                Ok(Some((answer, end))) => {
                    self.read.drain(..end);
                    return Poll::Ready(Begun::Answer(answer));
                }
                Err(wrong) => return Poll::Ready(Begun::Wrong(wrong)),
            }
        }
    }

    /// Moves output to the response's pipe.
    fn poll_body(&mut self, cx: &mut Context<'_>, writer: &mut Writer) -> Poll<Done> {
        loop {
            self.poll_aside(cx);
            let room = match writer.poll_room(cx) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(Broken)) => return Poll::Ready(Done::Unwanted),
                // It is the client that is waited for, which has its own deadline.
                Poll::Pending => return self.poll_late(cx, false).map(Done::Late),
            };
            let moved = if self.read.is_empty() {
                let part = room.min(self.scratch.len());
                let part = &mut self.scratch[..part];
                match self.peer.poll_output(cx, part) {
                    Poll::Pending => return self.poll_late(cx, true).map(Done::Late),
                    Poll::Ready(0) => return Poll::Ready(Done::Ended),
                    Poll::Ready(read) => {
                        // There is room for it all.
                        let _ = writer.write_some(&part[..read]);
                        if read == self.scratch.len() {
                            self.scratch.resize(limits::PROGRAM_CHUNK_BYTES, 0);
                        }
                        read
                    }
                }
            } else {
                let taken = writer.write_some(&self.read).unwrap_or(room);
                self.read.drain(..taken.min(self.read.len()));
                taken
            };
            self.moved = Instant::now();
            match self.bounds.output_bytes.checked_sub(moved as u64) {
                Some(left) => self.bounds.output_bytes = left,
                None => return Poll::Ready(Done::TooLong),
            }
        }
    }

    fn poll_aside(&mut self, cx: &mut Context<'_>) {
        if self.peer.poll_aside(cx) {
            self.moved = Instant::now();
        }
    }

    /// Ready when it takes too long.
    fn poll_late(&mut self, cx: &mut Context<'_>, is_its_turn: bool) -> Poll<Late> {
        if self.peer.is_dripped_at() {
            return Poll::Ready(Late::Dripping);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if !is_its_turn {
                self.moved = now;
            }
            let silent = match self.peer.is_fed() {
                true => self.bounds.silent.max(self.bounds.patience),
                false => self.bounds.silent,
            };
            let due = (self.moved + silent).min(self.started + self.bounds.whole);
            if due <= now {
                return Poll::Ready(Late::Silence);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

type Lines = Vec<(Cow<'static, str>, Vec<u8>)>;

fn owned(fields: Vec<(String, Vec<u8>)>) -> Lines {
    let name = |(name, value)| (Cow::Owned(name), value);
    fields.into_iter().map(name).collect()
}

/// Another page of this server instead.
async fn elsewhere(
    asked: &Asked,
    inside: Option<Rc<dyn Inside>>,
    path: Vec<u8>,
) -> Result<Response, Fault> {
    let Some(inside) = inside.filter(|_| asked.hops < limits::REDIRECTS_INSIDE_MAX) else {
        let why = format!("{} leads to itself", asked.line());
        return Err(Fault::because("script", Reject::REDIRECTED_TOO_OFTEN, why));
    };
    inside.ask(asked.question(path)).await
}

/// What a handler needs before it can begin: the request in two, or why there is none.
pub async fn taken_apart(request: super::Request, bounds: &Bounds) -> Result<(Asked, Here), Fault> {
    // It is to send back what came, passwords and all.
    if request.method == Method::Trace {
        return Err(Fault::new("script", Reject::METHOD_NOT_ALLOWED));
    }
    let asked = Asked::of(request, &bounds.gathered).await;
    asked.map_err(|why| {
        let reject = match why {
            Ungathered::Broken => Reject::BODY_SLOW,
            Ungathered::NoRoom => Reject::CALLS_BUSY,
        };
        Fault::new("script", reject)
    })
}
