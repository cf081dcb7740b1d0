//! One call of a script, whoever runs it: the head of its answer, then the body as it comes, with the
//! request's body going the other way all the while; bounds on silence, time and size.

use crate::base::admission::{CallSlot, ClientPace};
use crate::base::change_tracker::SiteChangeTracker;
use crate::handler::call::body::budget::BodyBudget;
use crate::handler::call::body::rate::DownloadRate;
use crate::handler::call::request::{LocalRequestParts, ScriptRequest, SpoolLimit, line};
use crate::handler::pipe::{PipeBroken, PipeWriter, pipe};
use crate::handler::{HandlerError, Response, ResponseBody, Subrequests};
use crate::limits;
use crate::wire::cgi::{CgiDocument, CgiHeadError, CgiResponse};
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::request_head::Method;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Who answers: a program of our own, or a backend. Dropping it ends what it does for this call.
pub trait Transport: 'static {
    /// What it is called in the log.
    const NAME: &'static str;

    /// Moves what goes on beside its output: input, and words for the log. Has any input moved?
    fn poll_side_io(&mut self, cx: &mut Context<'_>) -> bool;

    /// Is it the client whose input is waited for?
    fn waits_for_client(&self) -> bool;

    /// Is it kept waiting for input by a client that sends next to nothing, while others wait for its
    /// place? From then on somebody counts on that.
    fn is_stalled_by_client(&mut self) -> bool;

    /// The place that the call has, unless it was given back.
    fn slot(&mut self) -> Option<&mut CallSlot>;

    /// Reads output; 0 bytes are its end.
    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize>;

    /// How it ended, asked once its output has.
    fn ended(&mut self) -> impl Future<Output = TransportEnd>;

    /// Is it known by now that it ended as it should, so that nobody waits to hear it? Asked once its
    /// output has ended.
    fn has_ended_well(&self) -> bool {
        false
    }

    /// May it be that nobody has heard what was asked? Asked where it ended without a word.
    fn is_retriable(&self) -> bool {
        false
    }

    /// May something be missing, though it ended as it should?
    fn may_be_truncated(&self) -> bool {
        false
    }

    /// The response is whole, or nobody wants more of it: it may finish what it has begun.
    fn finish_detached(self, patience: Duration);
}

/// How a call ended.
pub enum TransportEnd {
    /// As it should.
    Well,
    /// What it sent is all that it wanted to, but something was wrong.
    Complaining(String),
    /// Nobody knows whether that was all.
    Broken(Reject, String),
}

/// Where a body that was kept can't be read back.
pub const BODY_LOST: &str = "the rest of its request's body is lost";

/// The bounds of one call.
#[derive(Clone)]
pub struct CallLimits {
    /// Calls that may wait for their turn.
    pub queue: usize,
    /// So long nothing may move, unless it is the client that is waited for.
    pub silent: Duration,
    /// So long a client may pause in its body, where it has a reason that others don't have.
    pub patience: Duration,
    /// Where the beginnings of bodies are counted.
    pub gathered: Arc<BodyBudget>,
    /// Where one without a length is kept until it has one; None for who does without.
    pub room: Option<SpoolLimit>,
    /// What the script has written may not be served yet.
    pub lag: SiteChangeTracker,
    /// The whole call.
    pub whole: Duration,
    /// Of the response's body.
    pub output_bytes: u64,
    /// So much of the response's body is waited for before any of it is sent, so that who fails at
    /// once is answered for by an error. A body that is whole by then is sent at once.
    pub held_bytes: usize,
}

/// What was said.
pub struct CollectedOutput {
    /// From its beginning.
    pub bytes: Vec<u8>,
    /// There was more.
    pub is_cut: bool,
}

/// A call under way.
pub struct ScriptCall<P> {
    peer: P,
    asked: Arc<ScriptRequest>,
    scratch: Vec<u8>,
    /// What was read and is no part of the head, or not known to be.
    read: Vec<u8>,
    /// Bytes that the response still owes, if its script said how many there are.
    owed: Option<u64>,
    bounds: CallLimits,
    /// How fast the client takes the response.
    download: DownloadRate,
    /// Other places that the call has, beside the peer's.
    more_slots: Vec<CallSlot>,
    started: Instant,
    /// When something last moved.
    moved: Instant,
    timer: Pin<Box<Sleep>>,
}

/// What came of waiting for a head.
enum HeadOutcome {
    Answer(CgiResponse),
    Wrong(CgiHeadError),
    Ended,
    Late(CallTimeout),
}

/// What it was that took too long.
enum CallTimeout {
    /// Who answers.
    Silence,
    /// The whole of it.
    All,
    /// The client, with its body.
    Dripping,
    /// The client, with its response; a call of another client gets the place.
    Outpaced,
}

/// What came of the body.
enum BodyOutcome {
    Ended,
    /// Nobody wants it any more.
    Unwanted,
    Late(CallTimeout),
    TooLong,
    /// Than its Content-Length.
    MoreThanSaid,
}

impl<P: Transport> ScriptCall<P> {
    /// With who answers.
    pub fn new(peer: P, asked: &Arc<ScriptRequest>, bounds: CallLimits) -> ScriptCall<P> {
        let now = Instant::now();
        let due = now + bounds.silent.min(bounds.whole);
        ScriptCall {
            peer,
            asked: Arc::clone(asked),
            scratch: vec![0; limits::PROGRAM_BUFFER_BYTES_INITIAL],
            read: Vec::new(),
            owed: None,
            bounds,
            download: DownloadRate::new(),
            more_slots: Vec::new(),
            started: now,
            moved: now,
            timer: Box::pin(sleep_until(due)),
        }
    }

    /// The call has these places too for as long as it goes on, and gives way at them as it does at its
    /// own.
    pub fn with_slots(mut self, slots: impl IntoIterator<Item = CallSlot>) -> ScriptCall<P> {
        self.more_slots.extend(slots);
        self
    }

    /// Waits for the head of the answer, and makes a response of it.
    pub async fn answer(
        mut self,
        inside: Option<Rc<dyn Subrequests>>,
    ) -> Result<Response, HandlerError> {
        let mut scanned = 0;
        let begun = poll_fn(|cx| self.poll_head(cx, &mut scanned)).await;
        let (reject, why) = match begun {
            HeadOutcome::Answer(CgiResponse::Document(document)) => {
                // For what comes later, with the body, nobody waits.
                let behind = match client_will_refetch(self.asked.method, document.status.0) {
                    true => self.bounds.lag.pending_catch_up(),
                    false => None,
                };
                let response = if poll_fn(|cx| self.poll_held(cx)).await {
                    self.whole(document).await
                } else if poll_fn(|cx| Poll::Ready(self.is_all_here(&document, cx))).await {
                    Ok(self.at_once(document).await)
                } else {
                    Ok(self.document(document))
                };
                if let Some(behind) = behind {
                    behind.wait().await;
                }
                return response;
            }
            HeadOutcome::Answer(CgiResponse::LocalRedirect(path)) => {
                let (asked, behind) = (self.asked, self.bounds.lag.pending_catch_up());
                self.peer.finish_detached(self.bounds.silent);
                if let Some(behind) = behind {
                    behind.wait().await;
                }
                return internal_redirect(&asked, inside, path).await;
            }
            HeadOutcome::Wrong(CgiHeadError::Malformed(why)) => {
                let why = format!("{why}; it began with {}", self.beginning());
                (Reject::SCRIPT_HEAD_MALFORMED, why)
            }
            HeadOutcome::Wrong(CgiHeadError::TooLarge) => {
                (Reject::SCRIPT_HEAD_TOO_LARGE, "it has no end".to_owned())
            }
            HeadOutcome::Late(CallTimeout::Dripping) => {
                return Err(HandlerError::new(P::NAME, Reject::BODY_SLOW));
            }
            HeadOutcome::Late(CallTimeout::Outpaced) => {
                return Err(HandlerError::new(P::NAME, Reject::CALL_SHARE_TAKEN));
            }
            HeadOutcome::Late(CallTimeout::Silence) => (Reject::HANDLER_SLOW, self.silence()),
            HeadOutcome::Late(CallTimeout::All) => (Reject::HANDLER_SLOW, self.overtime()),
            HeadOutcome::Ended => self.no_head().await,
        };
        let why = format!("{}: {why}", self.line());
        let is_silent = reject == Reject::BACKEND_LEFT && self.read.is_empty();
        let retry = is_silent && self.peer.is_retriable();
        Err(HandlerError {
            retry,
            ..HandlerError::because(P::NAME, reject, why)
        })
    }

    /// The request's line, for the log.
    fn line(&self) -> String {
        self.asked.line()
    }

    /// Why there is no head, where all that was said has ended.
    async fn no_head(&mut self) -> (Reject, String) {
        let ended = self.peer.ended().await;
        if self.read.is_empty() {
            return match ended {
                TransportEnd::Well => (Reject::SCRIPT_ENDED_EARLY, "it said nothing".to_owned()),
                TransportEnd::Complaining(how) => (Reject::SCRIPT_ENDED_EARLY, how),
                TransportEnd::Broken(reject, how) => (reject, how),
            };
        }
        let (reject, how) = match ended {
            TransportEnd::Well => {
                let what = "a head is missing, or the empty line after it".to_owned();
                (Reject::SCRIPT_HEAD_MALFORMED, what)
            }
            TransportEnd::Complaining(how) => (Reject::SCRIPT_ENDED_EARLY, how),
            TransportEnd::Broken(reject, how) => (reject, how),
        };
        (reject, format!("{how}; it began with {}", self.beginning()))
    }

    /// What it said first, as the log can have it.
    fn beginning(&self) -> String {
        let most = limits::SCRIPT_QUOTED_BYTES_MAX;
        let end = self.read.len().min(most);
        let more = if self.read.len() > most { "…" } else { "" };
        format!("\"{}{more}\"", self.read[..end].escape_ascii())
    }

    fn silence(&self) -> String {
        format!("silent for {} s", self.moved.elapsed().as_secs())
    }

    fn overtime(&self) -> String {
        format!("it ran longer than {} s", self.bounds.whole.as_secs())
    }

    /// Waits for all that is said, which is no response but to be read here: `bytes_max` of it at
    /// most. Who fails has said nothing.
    pub async fn collect(mut self, bytes_max: usize) -> Result<CollectedOutput, HandlerError> {
        self.bounds.held_bytes = bytes_max;
        if !poll_fn(|cx| self.poll_held(cx)).await {
            if self.read.len() < bytes_max {
                let seconds = self.started.elapsed().as_secs();
                let why = format!("{}: not done after {seconds} s", self.line());
                return Err(HandlerError::because(P::NAME, Reject::HANDLER_SLOW, why));
            }
            self.read.truncate(bytes_max);
            return Ok(CollectedOutput {
                bytes: self.read,
                is_cut: true,
            });
        }
        match self.peer.ended().await {
            TransportEnd::Well => {
                self.peer.finish_detached(self.bounds.silent);
                Ok(CollectedOutput {
                    bytes: self.read,
                    is_cut: false,
                })
            }
            TransportEnd::Complaining(how) | TransportEnd::Broken(_, how) => {
                let why = format!("{}: {how}", self.line());
                Err(HandlerError::because(P::NAME, Reject::SCRIPT_FAILED, why))
            }
        }
    }

    /// Sends on what is said as the body of a response, whose head `head` makes of its beginning: as
    /// much as is to be held, or all of it.
    pub async fn send_on(
        mut self,
        head: impl FnOnce(&[u8]) -> CgiDocument,
    ) -> Result<Response, HandlerError> {
        let is_whole = poll_fn(|cx| self.poll_held(cx)).await;
        let document = head(&self.read);
        match is_whole {
            true => self.whole(document).await,
            false => Ok(self.document(document)),
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

    /// Has all of a short body come already, as it should?
    fn is_all_here(&mut self, document: &CgiDocument, cx: &mut Context<'_>) -> bool {
        if self.asked.method == Method::Head {
            // Whose length it would be isn't known: many send no body then.
            return false;
        }
        while self.read.len() < limits::PROGRAM_BUFFER_BYTES_INITIAL {
            self.poll_aside(cx);
            match self.peer.poll_output(cx, &mut self.scratch) {
                Poll::Pending => return false,
                Poll::Ready(0) => {
                    let length = self.read.len() as u64;
                    return self.peer.has_ended_well()
                        && length <= self.bounds.output_bytes
                        && document.length.is_none_or(|said| said == length);
                }
                Poll::Ready(read) => {
                    self.moved = Instant::now();
                    self.read.extend_from_slice(&self.scratch[..read]);
                }
            }
        }
        false
    }

    /// The same as a response: its length is known, and nothing more has to be moved.
    async fn at_once(mut self, document: CgiDocument) -> Response {
        let ended = self.peer.ended().await;
        self.complain(ended);
        self.peer.finish_detached(self.bounds.silent);
        Response::new(
            document.status,
            document.fields,
            ResponseBody::Whole(self.read),
        )
    }

    /// A response whose body has been read to its end.
    async fn whole(mut self, document: CgiDocument) -> Result<Response, HandlerError> {
        let is_whole = |length| length == self.read.len() as u64;
        let how = match self.peer.ended().await {
            TransportEnd::Complaining(how) | TransportEnd::Broken(_, how) => how,
            TransportEnd::Well if document.status.0 >= 500 => {
                format!("it answered {}", document.status.0)
            }
            TransportEnd::Well if document.length.is_none_or(is_whole) => {
                self.peer.finish_detached(self.bounds.silent);
                return Ok(Response::new(
                    document.status,
                    document.fields,
                    ResponseBody::Whole(self.read),
                ));
            }
            TransportEnd::Well => "it sent more or less than it said".to_owned(),
        };
        let why = format!("{}: {how}", self.line());
        Err(HandlerError::because(P::NAME, Reject::SCRIPT_FAILED, why))
    }

    fn document(mut self, document: CgiDocument) -> Response {
        let status = document.status;
        let fields = document.fields;
        let has_none = matches!(status.0, 204 | 304);
        let is_bodiless = has_none || self.asked.method == Method::Head;
        let (writer, reader) = pipe(limits::PIPE_BYTES);
        let length = document.length;
        self.owed = length;
        let work: crate::handler::LocalBoxFuture<()> = match is_bodiless {
            // Nobody reads more of it, but what it has begun it may finish.
            true => {
                self.peer.finish_detached(self.bounds.silent);
                writer.finish();
                Box::pin(async {})
            }
            false => Box::pin(self.send(writer)),
        };
        let body = ResponseBody::Stream {
            length,
            reader,
            work,
        };
        Response::new(status, fields, body)
    }

    /// Moves the body to its end.
    async fn send(mut self, mut writer: PipeWriter) {
        let done = poll_fn(|cx| self.poll_body(cx, &mut writer)).await;
        let (reject, what) = match done {
            BodyOutcome::Unwanted => return,
            BodyOutcome::Late(CallTimeout::Dripping) => {
                let what = "others wait, and its client sends next to nothing";
                (Reject::BODY_SLOW, what.to_owned())
            }
            BodyOutcome::Late(CallTimeout::Outpaced) => {
                let what =
                    "another client waits for its place, and its own takes the response slowly";
                (Reject::CALL_SHARE_TAKEN, what.to_owned())
            }
            BodyOutcome::Late(CallTimeout::Silence) => {
                let what = format!("{} in its response", self.silence());
                (Reject::HANDLER_SLOW, what)
            }
            BodyOutcome::Late(CallTimeout::All) => (Reject::HANDLER_SLOW, self.overtime()),
            BodyOutcome::TooLong => {
                let what = "more output than it may send".to_owned();
                (Reject::SCRIPT_FAILED, what)
            }
            BodyOutcome::MoreThanSaid => {
                let what = "it sent more than its Content-Length says".to_owned();
                (Reject::SCRIPT_FAILED, what)
            }
            BodyOutcome::Ended => match self.peer.ended().await {
                TransportEnd::Broken(Reject::SCRIPT_ENDED_EARLY, how) => {
                    (Reject::SCRIPT_FAILED, how)
                }
                TransportEnd::Broken(reject, how) => (reject, how),
                ended => match self.owed {
                    Some(1..) => (Reject::SCRIPT_FAILED, self.too_little(ended)),
                    _ => return self.finish(writer, ended),
                },
            },
        };
        // There is nothing for the operator to mend where a client is slow.
        let level = match reject {
            Reject::CALL_SHARE_TAKEN => log::Level::Warn,
            _ => log::Level::Error,
        };
        log::log!(
            level,
            "{}: {}: {what}; its response was broken off (rule R{})",
            self.line(),
            P::NAME,
            reject.rule
        );
        writer.break_off(Some(reject));
    }

    fn too_little(&self, ended: TransportEnd) -> String {
        let owed = self.owed.unwrap_or(0);
        let what = format!("it sent {owed} bytes less than its Content-Length says");
        match ended {
            TransportEnd::Complaining(how) => format!("{what}, and {how}"),
            _ => what,
        }
    }

    /// The response is whole.
    fn finish(self, mut writer: PipeWriter, ended: TransportEnd) {
        // What has come to the length that it said is whole.
        if self.owed.is_none() && self.peer.may_be_truncated() {
            writer.mark_maybe_truncated();
        }
        writer.finish();
        self.complain(ended);
        self.peer.finish_detached(self.bounds.silent);
    }

    /// What was wrong, if something was, though all has come.
    fn complain(&self, ended: TransportEnd) {
        if let TransportEnd::Complaining(how) = ended {
            let rule = Reject::SCRIPT_FAILED.rule;
            log::warn!("{}: {}: {how} (rule R{rule})", self.line(), P::NAME);
        }
    }

    /// Reads until the head is whole.
    fn poll_head(&mut self, cx: &mut Context<'_>, scanned: &mut usize) -> Poll<HeadOutcome> {
        loop {
            self.poll_aside(cx);
            let read = match self.peer.poll_output(cx, &mut self.scratch) {
                Poll::Pending => return self.poll_late(cx, true).map(HeadOutcome::Late),
                Poll::Ready(0) => return Poll::Ready(HeadOutcome::Ended),
                Poll::Ready(read) => read,
            };
            self.moved = Instant::now();
            self.begins();
            self.read.extend_from_slice(&self.scratch[..read]);
            match CgiResponse::parse(&self.read, scanned) {
                Ok(None) => {}
                Ok(Some((answer, end))) => {
                    self.read.drain(..end);
                    return Poll::Ready(HeadOutcome::Answer(answer));
                }
                Err(wrong) => return Poll::Ready(HeadOutcome::Wrong(wrong)),
            }
        }
    }

    /// Moves output to the response's pipe.
    fn poll_body(&mut self, cx: &mut Context<'_>, writer: &mut PipeWriter) -> Poll<BodyOutcome> {
        loop {
            self.poll_aside(cx);
            let room = match writer.poll_room(cx) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(PipeBroken)) => return Poll::Ready(BodyOutcome::Unwanted),
                // It is the client that is waited for, which has its own deadline.
                Poll::Pending if self.is_outpaced(cx) => {
                    return Poll::Ready(BodyOutcome::Late(CallTimeout::Outpaced));
                }
                Poll::Pending => return self.poll_late(cx, false).map(BodyOutcome::Late),
            };
            let moved = if self.read.is_empty() {
                let part = room.min(self.scratch.len());
                let part = &mut self.scratch[..part];
                match self.peer.poll_output(cx, part) {
                    Poll::Pending => return self.poll_late(cx, true).map(BodyOutcome::Late),
                    Poll::Ready(0) => return Poll::Ready(BodyOutcome::Ended),
                    Poll::Ready(read) if self.owed.is_some_and(|owed| owed < read as u64) => {
                        return Poll::Ready(BodyOutcome::MoreThanSaid);
                    }
                    Poll::Ready(read) => {
                        // There is room for it all.
                        let _ = writer.write_some(&part[..read]);
                        if read == self.scratch.len() {
                            self.scratch.resize(limits::PROGRAM_CHUNK_BYTES, 0);
                        }
                        read
                    }
                }
            } else if self.owed.is_some_and(|owed| owed < self.read.len() as u64) {
                return Poll::Ready(BodyOutcome::MoreThanSaid);
            } else {
                let taken = writer.write_some(&self.read).unwrap_or(room);
                self.read.drain(..taken.min(self.read.len()));
                taken
            };
            let pace = self.download.take(moved);
            self.gives_way(pace);
            self.moved = Instant::now();
            self.owed = self.owed.map(|owed| owed.saturating_sub(moved as u64));
            match self.bounds.output_bytes.checked_sub(moved as u64) {
                Some(left) => self.bounds.output_bytes = left,
                None => return Poll::Ready(BodyOutcome::TooLong),
            }
        }
    }

    /// Does the client take the response so slowly that another client gets the place?
    fn is_outpaced(&mut self, cx: &mut Context<'_>) -> bool {
        let pace = self.download.wait(cx);
        self.gives_way(pace)
    }

    /// Tells the places how fast the client takes the response. True if one was promised to a call of
    /// another client.
    fn gives_way(&mut self, pace: ClientPace) -> bool {
        let slots = self.peer.slot().into_iter().chain(&mut self.more_slots);
        // Each is told, whatever the others say.
        slots.fold(false, |gives_way, slot| {
            slot.yield_to_other_clients(pace) | gives_way
        })
    }

    /// The peer has begun to answer.
    fn begins(&mut self) {
        if let Some(slot) = self.peer.slot() {
            slot.begins();
        }
    }

    fn poll_aside(&mut self, cx: &mut Context<'_>) {
        if self.peer.poll_side_io(cx) {
            self.moved = Instant::now();
        }
    }

    /// Ready when it takes too long.
    fn poll_late(&mut self, cx: &mut Context<'_>, is_its_turn: bool) -> Poll<CallTimeout> {
        if self.peer.is_stalled_by_client() {
            return Poll::Ready(CallTimeout::Dripping);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if !is_its_turn {
                self.moved = now;
            }
            let silent = match self.peer.waits_for_client() {
                true => self.bounds.silent.max(self.bounds.patience),
                false => self.bounds.silent,
            };
            let due = (self.moved + silent).min(self.started + self.bounds.whole);
            if self.started + self.bounds.whole <= now {
                return Poll::Ready(CallTimeout::All);
            }
            if due <= now {
                return Poll::Ready(CallTimeout::Silence);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

/// Will the client ask next for what the script may have written? After a redirect it does, and after
/// a request that was made to change something.
fn client_will_refetch(method: Method, status: u16) -> bool {
    let is_safe = matches!(method, Method::Get | Method::Head | Method::Options);
    !is_safe || matches!(status, 301..=303 | 307 | 308)
}

/// Another page of this server instead.
async fn internal_redirect(
    asked: &ScriptRequest,
    inside: Option<Rc<dyn Subrequests>>,
    path: Vec<u8>,
) -> Result<Response, HandlerError> {
    let Some(inside) = inside.filter(|_| asked.hops < limits::INTERNAL_REDIRECTS_MAX) else {
        let why = format!("{} leads to itself", asked.line());
        return Err(HandlerError::because(
            "script",
            Reject::REDIRECTED_TOO_OFTEN,
            why,
        ));
    };
    let fetched = inside.fetch(asked.question(path)).await;
    let mut response = fetched.map_err(|fault| {
        let why = fault.source.map(|why| format!("{}: {why}", asked.line()));
        HandlerError {
            source: why.map(std::io::Error::other),
            ..fault
        }
    })?;
    response.has_operator_fields = true;
    Ok(response)
}

/// What a handler needs before it can begin: the request in two, or why there is none.
pub async fn split_request(
    request: crate::handler::Request,
    bounds: &CallLimits,
) -> Result<(ScriptRequest, LocalRequestParts), HandlerError> {
    // It is to send back what came, passwords and all.
    if request.method == Method::Trace {
        return Err(HandlerError::new("script", Reject::METHOD_NOT_ALLOWED));
    }
    // Only such a body may meet the disk.
    let is_unknown = request.length == BodyLength::Chunked;
    let line =
        is_unknown.then(|| line(request.method, &request.raw_path, request.query.as_deref()));
    let asked = ScriptRequest::from_request(request, &bounds.gathered, bounds.room.as_ref()).await;
    asked.map_err(|why| why.fault(&line.unwrap_or_default()))
}
