//! Scripts run by a FastCGI or SCGI backend. The backend answers either all requests below a route's path,
//! or requests for the site's files with certain extensions.

use crate::handler::call::body::request_body::{BodyReader, RequestBody};
use crate::handler::call::request::{ScriptLocation, ScriptRequest};
use crate::handler::call::script_call::{
    BODY_LOST, CallLimits, ScriptCall, Transport, TransportEnd, split_request,
};
use crate::handler::call::stderr::StderrLog;
use crate::handler::pipe::PipeRead;
use crate::handler::script::fastcgi::{self, FastCgiCodec};
use crate::handler::script::scgi;
use crate::handler::{
    Handler, HandlerError, HandlerPlan, LocalBoxFuture, Request, Response, Script,
};
use crate::ledger::admission::CallSlot;
use crate::ledger::backend_queue::SentRequest;
use crate::ledger::body_memory::BodyReservation;
use crate::limits;
use crate::upstream::{Backend, Conn, IdleConn, ReusePolicy};
use base::task::spawn_local_with_timeout;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use wire::fastcgi::{FastCgiEnd, FastCgiStep, HEADER_BYTES, MalformedRecord};
use wire::reject::Reject;

/// Protocol of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendProtocol {
    /// FastCGI, with records.
    FastCgi,
    /// SCGI: a netstring with the variables, then the input and output of CGI.
    Scgi,
}

/// Handler of a route with a backend.
pub struct BackendHandler {
    settings: Arc<BackendSettings>,
}

/// Settings of a backend's route.
pub struct BackendSettings {
    /// The backend.
    pub backend: Arc<Backend>,
    /// Protocol of the backend.
    pub protocol: BackendProtocol,
    /// Limits of a call.
    pub bounds: CallLimits,
    /// Path of the route, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// Folder with the site's files, as seen by the backend.
    pub root: Box<[u8]>,
    /// Variables in addition to the variables of the request.
    pub variables: Vec<(String, String)>,
}

impl BackendHandler {
    /// Creates the handler with `settings`.
    pub fn new(settings: BackendSettings) -> BackendHandler {
        BackendHandler {
            settings: Arc::new(settings),
        }
    }
}

impl Handler for BackendHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(run(Arc::clone(&self.settings), Box::new(request)))
    }

    fn plan(&self, request: &Request) -> HandlerPlan {
        let settings = &self.settings;
        let location = settings.location(request.target_path(), request.script.as_ref());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        HandlerPlan {
            lines: vec![
                ("sends", format!("SCRIPT_FILENAME {}", text(&location.file))),
                ("", format!("SCRIPT_NAME {}", text(location.name))),
                ("", format!("PATH_INFO {}", text(location.path_info))),
            ],
            ..HandlerPlan::default()
        }
    }

    fn accepts_any_method(&self) -> bool {
        true
    }
}

async fn run(
    settings: Arc<BackendSettings>,
    mut incoming: Box<Request>,
) -> Result<Response, HandlerError> {
    let script = incoming.script.take();
    let (request, mut local) = split_request(incoming, &settings.bounds).await?;
    let request = Arc::new(request);
    // A retry must not repeat an unsafe request.
    let mut may_retry = request.method.is_safe() && local.body.is_none();
    let keep = match settings.protocol {
        BackendProtocol::FastCgi => settings.backend.reuse_policy_for(may_retry),
        BackendProtocol::Scgi => ReusePolicy::Never,
    };
    let mut head = settings.encode_head(&request, script, keep != ReusePolicy::Never);
    let mut body = local.body.take();
    let mut attempts = 0;
    loop {
        let client = request.peer.into();
        let is_streamed = body.as_ref().is_some_and(RequestBody::is_streamed);
        let queue = settings.bounds.queue;
        let slot = settings.backend.enter(client, is_streamed, queue);
        let slot = RequestBody::queued(&mut body, slot).await;
        let slot = slot.map_err(|refused| {
            settings.backend.record_refused();
            HandlerError::new(NAME, refused.into())
        })?;
        let started = Instant::now();
        // Only a kept connection may already be closed, and only then is the request needed for a retry.
        let attempt_head = if keep != ReusePolicy::Never && may_retry {
            head.clone()
        } else {
            std::mem::take(&mut head)
        };
        let mut transaction =
            BackendTransaction::new(&settings, slot, attempt_head, body.take(), &request, keep);
        let is_kept = attempts < KEPT_ATTEMPTS_MAX && transaction.begin_kept();
        attempts += 1;
        may_retry &= is_kept && !head.is_empty();
        if !is_kept && !transaction.begin_now() {
            transaction.set_request_id(0);
            let connected = settings.connect(&request).await;
            let failed = |_: &HandlerError| settings.backend.record_failure();
            transaction.conn = Some(connected.inspect_err(failed)?);
            transaction.record_sent(None);
        }
        let call = ScriptCall::new(transaction, &request, settings.bounds.clone())
            .with_memory(local.memory.clone());
        match call.answer(local.subrequests.clone()).await {
            // The backend closed the connection, perhaps before the request was sent.
            Err(error) if error.retry && may_retry => settings.backend.record_lost(),
            outcome => {
                match &outcome {
                    Ok(response) => {
                        let status = response.status.0;
                        settings.backend.record_answer(status, started.elapsed());
                    }
                    Err(_) => settings.backend.record_failure(),
                }
                return outcome;
            }
        }
    }
}

/// Location of the script of a backend. Paths are decoded.
struct BackendLocation<'p> {
    name: &'p [u8],
    path_info: &'p [u8],
    file: Vec<u8>,
}

impl BackendSettings {
    /// Returns the location of a script of the site, or of the program behind the whole route for a path.
    fn location<'p>(&'p self, path: &'p [u8], script: Option<&'p Script>) -> BackendLocation<'p> {
        match script {
            Some(script) => BackendLocation {
                name: &script.name,
                path_info: &script.path_info,
                file: [&*self.root, &script.name].concat(),
            },
            None => BackendLocation {
                name: &self.prefix,
                path_info: path.strip_prefix(&*self.prefix).unwrap_or_default(),
                file: [&*self.root, path].concat(),
            },
        }
    }

    /// Returns the encoded request without its body.
    fn encode_head(&self, request: &ScriptRequest, script: Option<Script>, keep: bool) -> Vec<u8> {
        let BackendLocation {
            name,
            path_info,
            file,
        } = self.location(&request.path, script.as_ref());
        let location = ScriptLocation {
            name,
            path_info,
            file: &file,
            root: &self.root,
        };
        request.with_meta(&location, |meta| match self.protocol {
            BackendProtocol::FastCgi => fastcgi::encode_head(meta, &self.variables, keep),
            BackendProtocol::Scgi => scgi::encode_head(meta, &self.variables),
        })
    }

    async fn connect(&self, request: &ScriptRequest) -> Result<Conn, HandlerError> {
        let connected = self.backend.connect().await;
        connected.map_err(|error| self.unreachable(request, &error))
    }

    fn unreachable(&self, request: &ScriptRequest, error: &io::Error) -> HandlerError {
        let reject = match error.kind() {
            io::ErrorKind::WouldBlock => Reject::BACKEND_BUSY,
            _ => Reject::BACKEND_UNREACHABLE,
        };
        let why = format!("{}: {}: {error}", request.line(), self.backend.address);
        HandlerError::because(NAME, reject, why)
    }
}

/// Maximum number of attempts on kept connections, before a new connection is used. The request itself may
/// be the reason for the closed connections.
const KEPT_ATTEMPTS_MAX: u32 = 2;

/// Name of a backend in the log.
const NAME: &str = "backend";

/// Encoding of a request and decoding of the response, by the protocol of the backend.
enum Codec {
    FastCgi(FastCgiCodec),
    Scgi,
}

/// A request on a connection.
struct BackendTransaction {
    /// The connection; None before connecting, and after the connection is given back.
    conn: Option<Conn>,
    slot: Option<CallSlot>,
    backend: Arc<Backend>,
    codec: Codec,
    /// Policy for the connection after the end of the call.
    keep: ReusePolicy,
    /// Number of bytes at the end of `out` that are sent separately: the end marker of a whole request, or a body behind its
    /// head.
    separate_bytes: usize,
    /// True if the connection has ended, and the backend may not have read the request.
    may_be_unread: bool,
    /// Bytes to be sent to the backend.
    out: Vec<u8>,
    out_at: usize,
    /// Rest of the request's body.
    reader: Option<BodyReader>,
    chunk: Vec<u8>,
    /// Reservation of the body's first part, while `out` holds the part.
    reservation: Option<BodyReservation>,
    /// True if `out` holds the end of the request.
    is_input_complete: bool,
    /// Bytes from the backend. The bytes from `input_at` to `input_end` are not decoded.
    input: Vec<u8>,
    input_at: usize,
    input_end: usize,
    end: Option<FastCgiEnd>,
    is_malformed: bool,
    /// True if the spooled body cannot be read back.
    is_body_lost: bool,
    stderr: StderrLog,
}

impl BackendTransaction {
    fn new(
        settings: &BackendSettings,
        slot: CallSlot,
        head: Vec<u8>,
        body: Option<RequestBody>,
        request: &Arc<ScriptRequest>,
        keep: ReusePolicy,
    ) -> BackendTransaction {
        let is_fastcgi = settings.protocol == BackendProtocol::FastCgi;
        let head_bytes = head.len();
        let (chunk, reservation, rest) = match body {
            Some(body) => (body.first_part, body.reservation, body.rest),
            None => (Vec::new(), None, None),
        };
        let mut transaction = BackendTransaction {
            conn: None,
            slot: Some(slot),
            backend: Arc::clone(&settings.backend),
            codec: match settings.protocol {
                BackendProtocol::FastCgi => Codec::FastCgi(FastCgiCodec::default()),
                BackendProtocol::Scgi => Codec::Scgi,
            },
            keep,
            separate_bytes: 0,
            may_be_unread: false,
            out: head,
            out_at: 0,
            reader: rest.map(|rest| BodyReader::new(rest, settings.bounds.patience)),
            chunk,
            reservation,
            is_input_complete: false,
            input: vec![0; limits::PROGRAM_BUFFER_BYTES_INITIAL],
            input_at: 0,
            input_end: 0,
            end: None,
            is_malformed: false,
            is_body_lost: false,
            stderr: StderrLog::new(request),
        };
        if !transaction.chunk.is_empty() {
            transaction.push_chunk();
            transaction.chunk = Vec::new();
        }
        // The kernel frees what was sent at once only as a whole, so separate parts show what the backend has read: the end
        // marker of a whole request, or the head before a body.
        let counts_unread = settings.backend.counts_unread_bytes();
        if transaction.reader.is_none() {
            transaction.finish_input();
            if is_fastcgi && counts_unread {
                transaction.separate_bytes = HEADER_BYTES;
            }
        } else if counts_unread {
            transaction.separate_bytes = transaction.out.len().saturating_sub(head_bytes);
        }
        transaction
    }

    /// Sends the beginning of the request on a kept connection. Returns false if no connection is
    /// available. A closed connection has received nothing, so any request may go to the next connection.
    fn begin_kept(&mut self) -> bool {
        while let Some(idle) = self.backend.take_idle(self.keep) {
            if self.begin(idle) {
                return true;
            }
            self.backend.record_lost();
        }
        false
    }

    /// Sends the beginning of the request on a new connection, if connecting is possible without waiting.
    fn begin_now(&mut self) -> bool {
        let new = self.backend.connect_now();
        new.is_some_and(|new| self.begin(new))
    }

    fn begin(&mut self, idle: IdleConn) -> bool {
        self.set_request_id(idle.answers());
        let Ok((conn, sent)) = idle.begin(&self.out, self.separate_bytes, self.is_input_complete)
        else {
            return false;
        };
        match conn {
            Ok(conn) => {
                let record = self.sent_request(&conn, sent);
                self.record_sent(record);
                self.conn = Some(conn);
                self.out_at = sent;
            }
            // The backend has received the request and may execute the request.
            Err(error) => {
                log::error!(
                    "{}: the connection can't be registered for reading the response: {error}",
                    self.backend.address
                );
                self.stop_sending();
            }
        }
        true
    }

    /// Returns the record of the request, of which `sent` bytes were sent on a new or reused connection. None if the kernel
    /// does not tell whether the backend has read the request.
    fn sent_request(&self, conn: &Conn, sent: usize) -> Option<SentRequest> {
        let is_whole = self.separate_bytes > 0 && self.reader.is_none();
        let is_sent = is_whole && sent + self.separate_bytes >= self.out.len();
        // Partial reads of the request cannot be detected.
        if is_sent && self.keep == ReusePolicy::Handover {
            self.backend.record_sent(conn)
        } else if is_sent {
            self.backend.sent_whole(conn)
        } else if self.backend.counts_unread_bytes() {
            Some(SentRequest::with_body(conn.fd()))
        } else {
            None
        }
    }

    /// Tells the slot that the request is on its way. For a whole request the slot needs the record alone.
    fn record_sent(&self, record: Option<SentRequest>) {
        if let Some(slot) = &self.slot
            && (record.is_some() || self.reader.is_some())
        {
            slot.record_sent(record);
        }
    }

    /// Numbers the request for a connection with `answers` answered requests.
    fn set_request_id(&mut self, answers: u32) {
        if let Codec::FastCgi(codec) = &mut self.codec {
            codec.set_request_id(answers, &mut self.out);
        }
    }

    /// Appends a part of the body to `out`.
    fn push_chunk(&mut self) {
        match &self.codec {
            Codec::FastCgi(codec) => codec.push_input(&self.chunk, &mut self.out),
            Codec::Scgi => self.out.extend_from_slice(&self.chunk),
        }
        self.chunk.clear();
    }

    fn finish_input(&mut self) {
        self.reader = None;
        if let (false, Codec::FastCgi(codec)) = (self.is_input_complete, &self.codec) {
            codec.push_input(b"", &mut self.out);
        }
        self.is_input_complete = true;
    }

    /// Discards all unsent data, because the backend no longer reads.
    fn stop_sending(&mut self) {
        self.reader = None;
        self.is_input_complete = true;
        self.out_at = self.out.len();
    }

    /// Decodes received data into `into`. Returns None if no output is left.
    fn decode_output(&mut self, into: &mut [u8]) -> Option<usize> {
        while self.input_at < self.input_end && self.end.is_none() && !self.is_malformed {
            let end = self.input_end.min(self.input_at + into.len());
            let window = &self.input[self.input_at..end];
            let step = match &mut self.codec {
                Codec::FastCgi(codec) => codec.decode(window),
                Codec::Scgi => Ok(scgi::decode(window)),
            };
            match step {
                Ok(FastCgiStep::Stdout { consumed, part }) => {
                    into[..part.len()].copy_from_slice(&window[part.clone()]);
                    self.input_at += consumed;
                    return Some(part.len());
                }
                Ok(FastCgiStep::Stderr { consumed, part }) => {
                    self.stderr.take(&window[part]);
                    self.input_at += consumed;
                }
                Ok(FastCgiStep::More) => self.input_at = end,
                Ok(FastCgiStep::End { consumed, end }) => {
                    self.input_at += consumed;
                    self.end = Some(end);
                    if end == FastCgiEnd::OtherRequest {
                        self.may_be_unread = true;
                        self.backend.mark_unfit_for_reuse();
                    }
                }
                Err(MalformedRecord) => self.is_malformed = true,
            }
        }
        None
    }

    /// Reads and discards the rest of the backend's output.
    async fn drain(mut self) {
        let mut scratch = vec![0; limits::PROGRAM_CHUNK_BYTES];
        poll_fn(|cx| {
            loop {
                self.poll_side_io(cx);
                match self.poll_output(cx, &mut scratch) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(0) => return Poll::Ready(()),
                    Poll::Ready(_) => {}
                }
            }
        })
        .await;
        self.give_back();
    }

    /// Keeps the connection for the next call, if the connection is reusable.
    fn give_back(mut self) {
        let is_sent = self.is_input_complete && self.out_at == self.out.len();
        let is_answered =
            matches!(self.end, Some(FastCgiEnd::Complete(_))) && self.input_at == self.input_end;
        if let Some(conn) = self.conn.take()
            && is_sent
            && is_answered
        {
            self.backend.put_idle(conn, self.keep);
        }
        // The slot is freed last, so that a waiting call finds the connection.
        self.slot = None;
    }
}

impl Transport for BackendTransaction {
    const NAME: &'static str = NAME;

    fn poll_side_io(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Some(conn) = &mut self.conn {
            if self.out_at < self.out.len() {
                match conn.poll_write(cx, &self.out[self.out_at..]) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(sent)) => {
                        self.out_at += sent;
                        has_moved = true;
                    }
                    // The backend may have sent the reason before closing the connection.
                    Poll::Ready(Err(_)) => self.stop_sending(),
                }
                continue;
            }
            match self.reservation.take() {
                Some(_) => self.out = Vec::new(),
                None => self.out.clear(),
            }
            self.out_at = 0;
            let Some(reader) = &mut self.reader else {
                break;
            };
            match reader.poll_take(cx, &mut self.chunk, limits::PROGRAM_CHUNK_BYTES) {
                Poll::Pending => break,
                Poll::Ready(Ok(PipeRead::Bytes(_))) => self.push_chunk(),
                Poll::Ready(Ok(PipeRead::End)) => self.finish_input(),
                // The connection is closed, so that the backend never takes a partial body for a complete
                // body.
                Poll::Ready(Err(_)) => {
                    self.is_body_lost = reader.is_spooled();
                    self.conn = None;
                    self.stop_sending();
                }
            }
        }
        has_moved
    }

    fn waits_for_client(&self) -> bool {
        self.reader.as_ref().is_some_and(BodyReader::is_awaited)
    }

    fn is_stalled_by_client(&mut self) -> bool {
        let awaits_client = self.waits_for_client();
        let slot = self.slot.as_mut();
        let reader = self.reader.as_ref();
        slot.is_some_and(|slot| {
            slot.set_awaits_client(awaits_client);
            reader.is_some_and(|reader| reader.is_slot_promised(Some(slot)))
        })
    }

    fn slot(&mut self) -> Option<&mut CallSlot> {
        self.slot.as_mut()
    }

    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
        loop {
            if let Some(taken) = self.decode_output(into) {
                return Poll::Ready(taken);
            }
            let Some(conn) = &mut self.conn else {
                return Poll::Ready(0);
            };
            if self.end.is_some() || self.is_malformed {
                // The backend will read no more of the body.
                self.reader = None;
                return Poll::Ready(0);
            }
            match conn.poll_read(cx, &mut self.input) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) if matches!(self.codec, Codec::Scgi) => {
                    self.end = Some(FastCgiEnd::Complete(0));
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.may_be_unread = match self.keep {
                        ReusePolicy::Handover => self.backend.may_be_unread(conn),
                        ReusePolicy::UpTo(_) | ReusePolicy::Never => true,
                    };
                    self.reader = None;
                    return Poll::Ready(0);
                }
                Poll::Ready(Ok(read)) => {
                    (self.input_at, self.input_end) = (0, read);
                    if read == self.input.len() {
                        self.input.resize(limits::PROGRAM_CHUNK_BYTES, 0);
                    }
                }
            }
        }
    }

    fn is_retriable(&self) -> bool {
        self.may_be_unread
    }

    fn has_ended_well(&self) -> bool {
        matches!(self.end, Some(FastCgiEnd::Complete(_))) && !self.is_body_lost
    }

    async fn ended(&mut self) -> TransportEnd {
        self.stderr.flush();
        if self.is_body_lost {
            return TransportEnd::Aborted(Reject::BODY_NOT_KEPT, BODY_LOST.to_owned());
        }
        match self.end {
            Some(FastCgiEnd::Complete(0)) => TransportEnd::Success,
            Some(FastCgiEnd::Complete(status)) => {
                TransportEnd::Failure(format!("exit status {status}"))
            }
            Some(FastCgiEnd::Overloaded) => TransportEnd::Aborted(
                Reject::BACKEND_BUSY,
                "the backend reports that it is overloaded (FCGI_OVERLOADED)".to_owned(),
            ),
            // A backend that ignores request numbers may have answered the present request, but the server
            // cannot tell.
            Some(FastCgiEnd::OtherRequest) => {
                let how = format!(
                    "{} answered a request other than the last one on the connection: set keep = 0",
                    self.backend.address
                );
                TransportEnd::Aborted(Reject::BACKEND_LEFT, how)
            }
            Some(FastCgiEnd::Unable) => {
                let how = "the backend refused the request (protocol status of FCGI_END_REQUEST)"
                    .to_owned();
                TransportEnd::Aborted(Reject::BACKEND_MALFORMED, how)
            }
            None if self.is_malformed => {
                let how = format!(
                    "{}: the response is not valid FastCGI",
                    self.backend.address
                );
                TransportEnd::Aborted(Reject::BACKEND_MALFORMED, how)
            }
            None => {
                let how = format!("{} closed the connection", self.backend.address);
                TransportEnd::Aborted(Reject::BACKEND_LEFT, how)
            }
        }
    }

    fn finish_detached(self, time_max: Duration) {
        match self.end {
            Some(_) => self.give_back(),
            // The backend may finish its work.
            None => spawn_local_with_timeout(self.drain(), time_max),
        }
    }
}
