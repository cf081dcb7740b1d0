//! One call of a script, by a process of the server or by a backend: reads the head of the script's
//! response, then moves the content to the client as the script produces it. The request's body moves in
//! the other direction at the same time. Limits apply to silence, duration and size.

use crate::handler::call::body::rate::{DRIP_WINDOW, DripClock, TransferRate};
use crate::handler::call::body::request_body::SpoolLimit;
use crate::handler::call::request::{LocalRequestParts, ScriptRequest, line};
use crate::handler::pipe::{PipeBroken, PipeWriter, counted_pipe};
use crate::handler::{HandlerError, Response, ResponseBody, Subrequests};
use crate::ledger::admission::{CallSlot, ClientPace};
use crate::ledger::body_memory::BodyAccount;
use crate::ledger::change_tracker::SiteChangeTracker;
use crate::limits;
use base::log::FAILURE_LINES;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use wire::cgi::{CgiDocument, CgiHeadError, CgiResponse};
use wire::h1::body_decoder::BodyLength;
use wire::reject::Reject;
use wire::request_head::Method;

/// Connection to the program that answers a call: a process started by the server for the call, or a
/// backend. Dropping the transport ends the program's work for the call.
pub trait Transport: 'static {
    /// Name of the program in the log.
    const NAME: &'static str;

    /// Moves the data beside the output: the program's input, and the program's messages for the log.
    /// Returns true if input moved.
    fn poll_side_io(&mut self, cx: &mut Context<'_>) -> bool;

    /// Returns true if the program waits for input from the client.
    fn waits_for_client(&self) -> bool;

    /// Returns true if a client that sends almost nothing keeps the program waiting for input while other
    /// calls wait for the program's slot. From then on the slot is promised to a waiting call.
    fn is_stalled_by_client(&mut self) -> bool;

    /// Returns the slot of the call, or None once the slot is given back.
    fn slot(&mut self) -> Option<&mut CallSlot>;

    /// Reads output; 0 bytes mark the end of the output.
    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize>;

    /// Waits for the program's end and returns the result. Called after the end of the output.
    fn ended(&mut self) -> impl Future<Output = TransportEnd>;

    /// Returns true if the program is known to have ended successfully, so that `ended` need not wait.
    /// Called after the end of the output.
    fn has_ended_well(&self) -> bool {
        false
    }

    /// Returns true if the program may not have read the request. Called if the program ended without any
    /// output.
    fn is_retriable(&self) -> bool {
        false
    }

    /// Returns true if the output may be incomplete although the program ended successfully.
    fn may_be_truncated(&self) -> bool {
        false
    }

    /// Lets the program finish its work for at most `time_max`, after the response is complete or the
    /// client needs no more of the response.
    fn finish_detached(self, time_max: Duration);
}

/// Result of a call at the end of the output.
pub enum TransportEnd {
    /// The program ended successfully.
    Success,
    /// The output is complete, but the program reported a failure. The text is for the log.
    Failure(String),
    /// The output may be incomplete. The text is for the log.
    Aborted(Reject, String),
}

/// Log message for a spooled body that cannot be read back from the disk.
pub(crate) const BODY_LOST: &str = "the rest of the spooled request body can't be read";

/// Limits of one call.
#[derive(Clone)]
pub struct CallLimits {
    /// Maximum number of calls waiting for a slot.
    pub queue: usize,
    /// Longest time without progress. Time spent waiting for the client to take the response does not
    /// count. While the program waits for the client's input, the longer of `silent` and `patience`
    /// applies.
    pub silent: Duration,
    /// Longest pause of the client in the request's body, for clients with a legitimate reason to pause,
    /// such as a push.
    pub patience: Duration,
    /// Spool for a body without a known length, kept there until the length is known; None if the program
    /// needs no length.
    pub spool_limit: Option<SpoolLimit>,
    /// Tracker of site changes. Files written by the script may not be served yet.
    pub change_tracker: SiteChangeTracker,
    /// Longest duration of the call.
    pub total: Duration,
    /// Maximum size of the response's content.
    pub output_bytes: u64,
    /// Bytes of the content that are read before any content is sent, so that an early failure is answered
    /// with an error. Content that ends within the limit is sent at once.
    pub held_bytes: usize,
}

/// Output of a call, read for the server's own use.
pub struct CollectedOutput {
    /// The output from its beginning.
    pub bytes: Vec<u8>,
    /// True if the program wrote more than the limit.
    pub is_cut: bool,
}

/// A call in progress. A call is boxed from its beginning: each step passes the call on, and would otherwise copy all of it,
/// into a future with room for every copy.
pub struct ScriptCall<P> {
    transport: P,
    request: Arc<ScriptRequest>,
    scratch: Vec<u8>,
    /// Output not known to be part of the head.
    read: Vec<u8>,
    /// Bytes of the content still missing, if the script sent a Content-Length.
    content_left: Option<u64>,
    bounds: CallLimits,
    /// Rate at which the client takes the response.
    download: TransferRate,
    drip: DripClock,
    /// Slots of the call in addition to the program's slot.
    more_slots: Vec<CallSlot>,
    /// Memory of the call's bodies.
    memory: BodyAccount,
    started: Instant,
    /// Time of the last progress.
    last_progress: Instant,
    timer: Pin<Box<Sleep>>,
}

/// Result of waiting for the head.
enum HeadOutcome {
    Answer(CgiResponse),
    Malformed(CgiHeadError),
    Ended,
    TimedOut(CallTimeout),
}

/// Timeout that ended a call.
enum CallTimeout {
    /// The program made no progress.
    Silence,
    /// The call lasted too long.
    Total,
    /// The client sent the request's body too slowly.
    SlowUpload,
    /// The client took the response too slowly while a call of another client waited for the slot.
    SlowDownload,
    /// The response dripped while a call of another client waited for the slot.
    Drip,
}

/// Result of moving the content.
enum BodyOutcome {
    Ended,
    /// The client needs no more of the content.
    ClientGone,
    TimedOut(CallTimeout),
    OutputLimit,
    /// The program sent more than its Content-Length.
    TooMuchContent,
}

impl<P: Transport> ScriptCall<P> {
    /// Creates a call over `transport`.
    pub(crate) fn new(
        transport: P,
        request: &Arc<ScriptRequest>,
        bounds: CallLimits,
    ) -> Box<ScriptCall<P>> {
        let now = Instant::now();
        let due = now + bounds.silent.min(bounds.total).min(DRIP_WINDOW);
        Box::new(ScriptCall {
            transport,
            request: Arc::clone(request),
            scratch: vec![0; limits::PROGRAM_BUFFER_BYTES_INITIAL],
            read: Vec::new(),
            content_left: None,
            bounds,
            download: TransferRate::new(),
            drip: DripClock::default(),
            more_slots: Vec::new(),
            memory: BodyAccount::default(),
            started: now,
            last_progress: now,
            timer: Box::pin(sleep_until(due)),
        })
    }

    /// Counts the response body in the memory of the request.
    pub(crate) fn with_memory(mut self: Box<Self>, memory: BodyAccount) -> Box<ScriptCall<P>> {
        self.memory = memory;
        self
    }

    /// Adds slots that the call holds to its end. The call yields the added slots under the same rules as
    /// the program's slot.
    pub fn with_slots(
        mut self: Box<Self>,
        slots: impl IntoIterator<Item = CallSlot>,
    ) -> Box<ScriptCall<P>> {
        self.more_slots.extend(slots);
        self
    }

    /// Waits for the head of the script's response and returns the response.
    pub(crate) async fn answer(
        mut self: Box<Self>,
        subrequests: Option<Rc<dyn Subrequests>>,
    ) -> Result<Response, HandlerError> {
        let mut scanned = 0;
        let outcome = poll_fn(|cx| self.poll_head(cx, &mut scanned)).await;
        let (reject, why) = match outcome {
            HeadOutcome::Answer(CgiResponse::Document(document)) => {
                // Only changes made before the head are waited for; changes made along with the content are
                // not.
                let catch_up = if client_will_refetch(self.request.method, document.status.0) {
                    self.bounds.change_tracker.pending_catch_up()
                } else {
                    None
                };
                let response = if poll_fn(|cx| self.poll_buffered(cx)).await {
                    self.buffered(document).await
                } else if poll_fn(|cx| Poll::Ready(self.has_short_content(&document, cx))).await {
                    Ok(self.whole_content(document).await)
                } else {
                    Ok(self.stream(document))
                };
                if let Some(catch_up) = catch_up {
                    Box::pin(catch_up.wait()).await;
                }
                return response;
            }
            HeadOutcome::Answer(CgiResponse::LocalRedirect(path)) => {
                let catch_up = self.bounds.change_tracker.pending_catch_up();
                let request = self.request;
                self.transport.finish_detached(self.bounds.silent);
                // A rare path, without room in the future of every call.
                return Box::pin(async move {
                    if let Some(catch_up) = catch_up {
                        catch_up.wait().await;
                    }
                    internal_redirect(&request, subrequests, path).await
                })
                .await;
            }
            HeadOutcome::Malformed(CgiHeadError::Malformed(why)) => {
                let why = format!("{why}; the output begins with {}", self.beginning());
                (Reject::SCRIPT_HEAD_MALFORMED, why)
            }
            HeadOutcome::Malformed(CgiHeadError::TooLarge) => (
                Reject::SCRIPT_HEAD_TOO_LARGE,
                "the head is too large".to_owned(),
            ),
            HeadOutcome::TimedOut(CallTimeout::SlowUpload) => {
                return Err(HandlerError::new(P::NAME, Reject::BODY_SLOW));
            }
            HeadOutcome::TimedOut(CallTimeout::SlowDownload | CallTimeout::Drip) => {
                return Err(HandlerError::new(P::NAME, Reject::CALL_SHARE_TAKEN));
            }
            HeadOutcome::TimedOut(CallTimeout::Silence) => (Reject::HANDLER_SLOW, self.silence()),
            HeadOutcome::TimedOut(CallTimeout::Total) => (Reject::HANDLER_SLOW, self.overtime()),
            HeadOutcome::Ended => Box::pin(self.no_head()).await,
        };
        let why = format!("{}: {why}", self.line());
        let is_silent = reject == Reject::BACKEND_LEFT && self.read.is_empty();
        let retry = is_silent && self.transport.is_retriable();
        Err(HandlerError {
            retry,
            ..HandlerError::because(P::NAME, reject, why)
        })
    }

    /// Returns the request line for the log.
    fn line(&self) -> String {
        self.request.line()
    }

    /// Returns the reason for a missing head after the end of the output.
    async fn no_head(&mut self) -> (Reject, String) {
        let ended = self.transport.ended().await;
        if self.read.is_empty() {
            return match ended {
                TransportEnd::Success => (Reject::SCRIPT_ENDED_EARLY, "no output".to_owned()),
                TransportEnd::Failure(how) => (Reject::SCRIPT_ENDED_EARLY, how),
                TransportEnd::Aborted(reject, how) => (reject, how),
            };
        }
        let (reject, how) = match ended {
            TransportEnd::Success => {
                let what =
                    "the head is missing, or the empty line at the end of the head".to_owned();
                (Reject::SCRIPT_HEAD_MALFORMED, what)
            }
            TransportEnd::Failure(how) => (Reject::SCRIPT_ENDED_EARLY, how),
            TransportEnd::Aborted(reject, how) => (reject, how),
        };
        (
            reject,
            format!("{how}; the output begins with {}", self.beginning()),
        )
    }

    /// Returns the first bytes of the output, escaped for the log.
    fn beginning(&self) -> String {
        let most = limits::SCRIPT_QUOTED_BYTES_MAX;
        let end = self.read.len().min(most);
        let more = if self.read.len() > most { "…" } else { "" };
        format!("\"{}{more}\"", self.read[..end].escape_ascii())
    }

    fn silence(&self) -> String {
        format!("silent for {} s", self.last_progress.elapsed().as_secs())
    }

    fn overtime(&self) -> String {
        format!(
            "the call lasted longer than {} s",
            self.bounds.total.as_secs()
        )
    }

    /// Reads the output for the server's own use, up to `bytes_max` bytes. A call that fails returns no
    /// output.
    pub async fn collect(
        mut self: Box<Self>,
        bytes_max: usize,
    ) -> Result<CollectedOutput, HandlerError> {
        self.bounds.held_bytes = bytes_max;
        if !poll_fn(|cx| self.poll_buffered(cx)).await {
            if self.read.len() < bytes_max {
                let seconds = self.started.elapsed().as_secs();
                let why = format!("{}: not finished after {seconds} s", self.line());
                return Err(HandlerError::because(P::NAME, Reject::HANDLER_SLOW, why));
            }
            self.read.truncate(bytes_max);
            return Ok(CollectedOutput {
                bytes: self.read,
                is_cut: true,
            });
        }
        match self.transport.ended().await {
            TransportEnd::Success => {
                self.transport.finish_detached(self.bounds.silent);
                Ok(CollectedOutput {
                    bytes: self.read,
                    is_cut: false,
                })
            }
            TransportEnd::Failure(how) | TransportEnd::Aborted(_, how) => {
                let why = format!("{}: {how}", self.line());
                Err(HandlerError::because(P::NAME, Reject::SCRIPT_FAILED, why))
            }
        }
    }

    /// Sends the output as the content of a response. `head` makes the head of the response from the first
    /// part of the output: as many bytes as are held back, or the whole output if shorter.
    pub async fn send_on(
        mut self: Box<Self>,
        head: impl FnOnce(&[u8]) -> CgiDocument,
    ) -> Result<Response, HandlerError> {
        let is_whole = poll_fn(|cx| self.poll_buffered(cx)).await;
        let document = head(&self.read);
        if is_whole {
            self.buffered(document).await
        } else {
            Ok(self.stream(document))
        }
    }

    /// Reads the content up to the number of bytes held back. Returns true at the end of the content.
    fn poll_buffered(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.read.len() < self.bounds.held_bytes {
            self.progress_side_io(cx);
            let read = match self.transport.poll_output(cx, &mut self.scratch) {
                // A timeout here is in the middle of a response.
                Poll::Pending => return self.poll_timeout(cx, true).map(|_| false),
                Poll::Ready(0) => return Poll::Ready(true),
                Poll::Ready(read) => read,
            };
            self.last_progress = Instant::now();
            self.read.extend_from_slice(&self.scratch[..read]);
        }
        Poll::Ready(false)
    }

    /// Returns true if a short content is already complete and the program ended successfully.
    fn has_short_content(&mut self, document: &CgiDocument, cx: &mut Context<'_>) -> bool {
        if self.request.method == Method::Head {
            // The output does not show the length of the content: many scripts send no content for HEAD.
            return false;
        }
        while self.read.len() < limits::PROGRAM_BUFFER_BYTES_INITIAL {
            self.progress_side_io(cx);
            match self.transport.poll_output(cx, &mut self.scratch) {
                Poll::Pending => return false,
                Poll::Ready(0) => {
                    let length = self.read.len() as u64;
                    return self.transport.has_ended_well()
                        && length <= self.bounds.output_bytes
                        && document.length.is_none_or(|said| said == length);
                }
                Poll::Ready(read) => {
                    self.last_progress = Instant::now();
                    self.read.extend_from_slice(&self.scratch[..read]);
                }
            }
        }
        false
    }

    /// Returns a response with the content already read, so that the length is known and no data remains to
    /// be moved.
    async fn whole_content(mut self: Box<Self>, document: CgiDocument) -> Response {
        let ended = self.transport.ended().await;
        self.log_failure(ended);
        self.transport.finish_detached(self.bounds.silent);
        Response::new(
            document.status,
            document.fields,
            ResponseBody::Whole(self.read),
        )
    }

    /// Returns a response after reading the content to its end.
    async fn buffered(
        mut self: Box<Self>,
        document: CgiDocument,
    ) -> Result<Response, HandlerError> {
        let is_whole = |length| length == self.read.len() as u64;
        let how = match self.transport.ended().await {
            TransportEnd::Failure(how) | TransportEnd::Aborted(_, how) => how,
            TransportEnd::Success if document.status.0 >= 500 => {
                format!("the script responded with status {}", document.status.0)
            }
            TransportEnd::Success if document.length.is_none_or(is_whole) => {
                self.transport.finish_detached(self.bounds.silent);
                return Ok(Response::new(
                    document.status,
                    document.fields,
                    ResponseBody::Whole(self.read),
                ));
            }
            TransportEnd::Success => {
                "the length of the content differs from Content-Length".to_owned()
            }
        };
        let why = format!("{}: {how}", self.line());
        Err(HandlerError::because(P::NAME, Reject::SCRIPT_FAILED, why))
    }

    fn stream(mut self: Box<Self>, document: CgiDocument) -> Response {
        let status = document.status;
        let fields = document.fields;
        let has_none = matches!(status.0, 204 | 304);
        let is_bodiless = has_none || self.request.method == Method::Head;
        let (writer, reader) = counted_pipe(limits::PIPE_BYTES, &self.memory);
        let length = document.length;
        self.content_left = length;
        let work: crate::handler::LocalBoxFuture<()> = if is_bodiless {
            // The client needs no content, but the script may finish its work.
            self.transport.finish_detached(self.bounds.silent);
            writer.finish();
            Box::pin(async {})
        } else {
            Box::pin(self.send(writer))
        };
        let body = ResponseBody::Stream {
            length,
            reader,
            work,
        };
        Response::new(status, fields, body)
    }

    /// Moves the content to its end.
    async fn send(mut self: Box<Self>, mut writer: PipeWriter) {
        self.drip.begin(Instant::now());
        let done = poll_fn(|cx| self.poll_body(cx, &mut writer)).await;
        let (reject, what) = match done {
            BodyOutcome::ClientGone => return,
            BodyOutcome::TimedOut(CallTimeout::SlowUpload) => {
                let what = "the client sends almost nothing, and another call waits at the limit of simultaneous calls";
                (Reject::BODY_SLOW, what.to_owned())
            }
            BodyOutcome::TimedOut(CallTimeout::SlowDownload) => {
                let what = "the client takes the response slowly, and a call of another client waits at the limit of simultaneous calls";
                (Reject::CALL_SHARE_TAKEN, what.to_owned())
            }
            BodyOutcome::TimedOut(CallTimeout::Drip) => {
                let what = "the response drips, and a call of another client waits at the limit of simultaneous calls";
                (Reject::CALL_SHARE_TAKEN, what.to_owned())
            }
            BodyOutcome::TimedOut(CallTimeout::Silence) => {
                let what = format!("{} in the response", self.silence());
                (Reject::HANDLER_SLOW, what)
            }
            BodyOutcome::TimedOut(CallTimeout::Total) => (Reject::HANDLER_SLOW, self.overtime()),
            BodyOutcome::OutputLimit => {
                let what = "more output than script_output_bytes allows".to_owned();
                (Reject::SCRIPT_FAILED, what)
            }
            BodyOutcome::TooMuchContent => {
                let what = "the content is longer than Content-Length".to_owned();
                (Reject::SCRIPT_FAILED, what)
            }
            BodyOutcome::Ended => match self.transport.ended().await {
                TransportEnd::Aborted(Reject::SCRIPT_ENDED_EARLY, how) => {
                    (Reject::SCRIPT_FAILED, how)
                }
                TransportEnd::Aborted(reject, how) => (reject, how),
                ended => match self.content_left {
                    Some(1..) => (Reject::SCRIPT_FAILED, self.missing_content(ended)),
                    _ => return self.finish(writer, ended),
                },
            },
        };
        // The operator cannot fix a slow client, so the log level is a warning for both directions.
        let level = match reject {
            Reject::BODY_SLOW | Reject::CALL_SHARE_TAKEN => log::Level::Warn,
            _ => log::Level::Error,
        };
        log::log!(
            level,
            "{}: {}: {what}; the response was broken off (rule R{})",
            self.line(),
            P::NAME,
            reject.rule
        );
        writer.break_off(Some(reject));
    }

    fn missing_content(&self, ended: TransportEnd) -> String {
        let left = self.content_left.unwrap_or(0);
        let what = format!("the content is {left} bytes shorter than Content-Length");
        match ended {
            TransportEnd::Failure(how) => format!("{what}; {how}"),
            _ => what,
        }
    }

    /// Completes the response.
    #[expect(clippy::boxed_local, reason = "a call out of its box is copied")]
    fn finish(self: Box<Self>, mut writer: PipeWriter, ended: TransportEnd) {
        // Content of the announced length is complete.
        if self.content_left.is_none() && self.transport.may_be_truncated() {
            writer.mark_maybe_truncated();
        }
        writer.finish();
        self.log_failure(ended);
        self.transport.finish_detached(self.bounds.silent);
    }

    /// Logs a failure that the program reported after complete output.
    fn log_failure(&self, ended: TransportEnd) {
        if let TransportEnd::Failure(how) = ended {
            let rule = Reject::SCRIPT_FAILED.rule;
            FAILURE_LINES.log(rule, log::Level::Warn, &|| {
                format!("{}: {}: {how} (rule R{rule})", self.line(), P::NAME)
            });
        }
    }

    /// Reads output until the head is complete.
    fn poll_head(&mut self, cx: &mut Context<'_>, scanned: &mut usize) -> Poll<HeadOutcome> {
        loop {
            self.progress_side_io(cx);
            let read = match self.transport.poll_output(cx, &mut self.scratch) {
                Poll::Pending => return self.poll_timeout(cx, true).map(HeadOutcome::TimedOut),
                Poll::Ready(0) => return Poll::Ready(HeadOutcome::Ended),
                Poll::Ready(read) => read,
            };
            self.last_progress = Instant::now();
            self.mark_begun();
            self.read.extend_from_slice(&self.scratch[..read]);
            match CgiResponse::parse(&self.read, scanned) {
                Ok(None) => {}
                Ok(Some((answer, end))) => {
                    self.read.drain(..end);
                    return Poll::Ready(HeadOutcome::Answer(answer));
                }
                Err(error) => return Poll::Ready(HeadOutcome::Malformed(error)),
            }
        }
    }

    /// Moves output to the response's pipe.
    fn poll_body(&mut self, cx: &mut Context<'_>, writer: &mut PipeWriter) -> Poll<BodyOutcome> {
        loop {
            self.progress_side_io(cx);
            let room = match writer.poll_room(cx) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(PipeBroken)) => return Poll::Ready(BodyOutcome::ClientGone),
                // The wait is for the client, and the client's connection has a separate deadline.
                Poll::Pending if self.is_too_slow(cx) => {
                    return Poll::Ready(BodyOutcome::TimedOut(CallTimeout::SlowDownload));
                }
                Poll::Pending => return self.poll_timeout(cx, false).map(BodyOutcome::TimedOut),
            };
            let moved = if self.read.is_empty() {
                let part = room.min(self.scratch.len());
                let part = &mut self.scratch[..part];
                match self.transport.poll_output(cx, part) {
                    Poll::Pending => {
                        self.end_wait();
                        return self.poll_timeout(cx, true).map(BodyOutcome::TimedOut);
                    }
                    Poll::Ready(0) => return Poll::Ready(BodyOutcome::Ended),
                    Poll::Ready(read)
                        if self.content_left.is_some_and(|left| left < read as u64) =>
                    {
                        return Poll::Ready(BodyOutcome::TooMuchContent);
                    }
                    Poll::Ready(read) => {
                        // The pipe has room for the whole part.
                        let _ = writer.write_some(&part[..read]);
                        if read == self.scratch.len() {
                            self.scratch.resize(limits::PROGRAM_CHUNK_BYTES, 0);
                        }
                        read
                    }
                }
            } else if self
                .content_left
                .is_some_and(|left| left < self.read.len() as u64)
            {
                return Poll::Ready(BodyOutcome::TooMuchContent);
            } else {
                let taken = writer.write_some(&self.read).unwrap_or(room);
                self.read.drain(..taken.min(self.read.len()));
                taken
            };
            self.download.take(moved);
            self.drip.take(moved);
            self.last_progress = Instant::now();
            self.content_left = self
                .content_left
                .map(|left| left.saturating_sub(moved as u64));
            match self.bounds.output_bytes.checked_sub(moved as u64) {
                Some(left) => self.bounds.output_bytes = left,
                None => return Poll::Ready(BodyOutcome::OutputLimit),
            }
        }
    }

    /// Returns true if the client takes the response so slowly that a call of another client gets the
    /// slot.
    fn is_too_slow(&mut self, cx: &mut Context<'_>) -> bool {
        let pace = self.download.wait(cx);
        self.yields(pace)
    }

    /// Reports to all slots of the call how fast the client takes the response. Returns true if a slot
    /// was promised to a call of another client.
    fn yields(&mut self, pace: ClientPace) -> bool {
        let slots = self
            .transport
            .slot()
            .into_iter()
            .chain(&mut self.more_slots);
        // Every slot gets the report, so the fold does not stop at the first promise.
        slots.fold(false, |yields, slot| {
            slot.yield_to_other_clients(pace) | yields
        })
    }

    /// Reports to all slots of the call whether the response drips. Returns true if a slot was promised to a call of another
    /// client.
    fn yields_as_drip(&mut self, now: Instant) -> bool {
        let rate = self.drip.check(now);
        let slots = self.transport.slot();
        let slots = slots.into_iter().chain(&mut self.more_slots);
        slots.fold(false, |yields, slot| match rate {
            Some(rate) => slot.yield_as_drip(rate) | yields,
            None => {
                slot.end_drip();
                yields
            }
        })
    }

    /// Records that the call does not wait for the client.
    fn end_wait(&mut self) {
        self.download.end_wait();
        self.yields(ClientPace::Fast);
    }

    /// Records the beginning of the program's response.
    fn mark_begun(&mut self) {
        if let Some(slot) = self.transport.slot() {
            slot.mark_begun();
        }
    }

    fn progress_side_io(&mut self, cx: &mut Context<'_>) {
        if self.transport.poll_side_io(cx) {
            self.end_wait();
            self.last_progress = Instant::now();
        }
    }

    /// Returns Ready after a timeout. `waits_for_transport` is true while the call waits for the program,
    /// and false while the call waits for the client to take the response.
    fn poll_timeout(
        &mut self,
        cx: &mut Context<'_>,
        waits_for_transport: bool,
    ) -> Poll<CallTimeout> {
        if self.transport.is_stalled_by_client() {
            return Poll::Ready(CallTimeout::SlowUpload);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if waits_for_transport && self.yields_as_drip(now) {
                return Poll::Ready(CallTimeout::Drip);
            }
            if !waits_for_transport {
                self.last_progress = now;
            }
            let silent = if self.transport.waits_for_client() {
                self.bounds.silent.max(self.bounds.patience)
            } else {
                self.bounds.silent
            };
            let due = (self.last_progress + silent).min(self.started + self.bounds.total);
            if self.started + self.bounds.total <= now {
                return Poll::Ready(CallTimeout::Total);
            }
            if due <= now {
                return Poll::Ready(CallTimeout::Silence);
            }
            self.timer
                .as_mut()
                .reset(due.min(self.drip.next_check(now)));
        }
        Poll::Pending
    }
}

/// Returns true if the client is expected to request next a page that the script may have written: after a
/// redirect, and after a request with an unsafe method.
fn client_will_refetch(method: Method, status: u16) -> bool {
    let is_safe = matches!(method, Method::Get | Method::Head | Method::Options);
    !is_safe || matches!(status, 301..=303 | 307 | 308)
}

/// Returns the response of another page of the server, for a local redirect of the script.
async fn internal_redirect(
    request: &ScriptRequest,
    subrequests: Option<Rc<dyn Subrequests>>,
    path: Vec<u8>,
) -> Result<Response, HandlerError> {
    let Some(subrequests) = subrequests.filter(|_| request.hops < limits::INTERNAL_REDIRECTS_MAX)
    else {
        let why = format!(
            "{}: more than {} internal redirects",
            request.line(),
            limits::INTERNAL_REDIRECTS_MAX
        );
        return Err(HandlerError::because(
            "script",
            Reject::REDIRECTED_TOO_OFTEN,
            why,
        ));
    };
    let fetched = subrequests.fetch(request.subrequest(path)).await;
    let mut response = fetched.map_err(|fault| {
        let why = fault.source.map(|why| format!("{}: {why}", request.line()));
        HandlerError {
            source: why.map(std::io::Error::other),
            ..fault
        }
    })?;
    response.has_operator_fields = true;
    Ok(response)
}

/// Prepares a request for a handler: splits the request in two parts, or returns the error.
pub async fn split_request(
    request: Box<crate::handler::Request>,
    bounds: &CallLimits,
) -> Result<(ScriptRequest, LocalRequestParts), HandlerError> {
    // A response to TRACE would contain the request, including passwords.
    if request.method == Method::Trace {
        return Err(HandlerError::new("script", Reject::METHOD_NOT_ALLOWED));
    }
    // Only a body of unknown length may be written to the disk.
    let is_unknown = request.length == BodyLength::Chunked;
    let line =
        is_unknown.then(|| line(request.method, &request.raw_path, request.query.as_deref()));
    let request = ScriptRequest::from_request(request, bounds.spool_limit.as_ref()).await;
    request.map_err(|why| why.fault(&line.unwrap_or_default()))
}
