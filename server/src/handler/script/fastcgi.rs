//! FastCGI and SCGI: scripts run by a backend. The backend answers either all requests below a route's
//! path, or requests for the site's files with certain extensions.

use crate::base::admission::CallSlot;
use crate::handler::call::body::budget::BodyReservation;
use crate::handler::call::body::rate::RatedBody;
use crate::handler::call::request::{RequestBody, ScriptLocation, ScriptRequest};
use crate::handler::call::script_call::{
    BODY_LOST, CallLimits, ScriptCall, Transport, TransportEnd, split_request,
};
use crate::handler::call::stderr::StderrLog;
use crate::handler::pipe::PipeRead;
use crate::handler::{Handler, HandlerError, LocalBoxFuture, Request, Response, Script};
use crate::limits;
use crate::upstream::{Backend, Conn, IdleConn, ReusePolicy, spawn_local_with_timeout};
use crate::wire::cgi::{MetaVariables, OverridingSink};
use crate::wire::fastcgi;
use crate::wire::fastcgi::{
    FastCgiDecoder, FastCgiEnd, FastCgiRequestEncoder, FastCgiStep, ScgiRequestEncoder,
};
use crate::wire::reject::Reject;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Protocol of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendProtocol {
    /// FastCGI, with records.
    FastCgi,
    /// SCGI: a netstring with the variables, then the input and output of CGI.
    Scgi,
}

/// Handler of a route with a backend.
pub struct FastCgiHandler {
    settings: Arc<FastCgiSettings>,
}

/// Settings of a backend's route.
pub struct FastCgiSettings {
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

impl FastCgiHandler {
    /// Creates the handler with `settings`.
    pub fn new(settings: FastCgiSettings) -> FastCgiHandler {
        FastCgiHandler {
            settings: Arc::new(settings),
        }
    }
}

impl Handler for FastCgiHandler {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        Box::pin(run(Arc::clone(&self.settings), request))
    }
}

async fn run(
    settings: Arc<FastCgiSettings>,
    mut request: Request,
) -> Result<Response, HandlerError> {
    let script = request.script.take();
    let (asked, mut here) = split_request(request, &settings.bounds).await?;
    let asked = Arc::new(asked);
    // A retry must not repeat an unsafe request.
    let mut may_retry = asked.method.is_safe() && here.body.is_none();
    let keep = match settings.protocol {
        BackendProtocol::FastCgi => settings.backend.reuse_policy_for(may_retry),
        BackendProtocol::Scgi => ReusePolicy::Never,
    };
    let mut head = settings.request(&asked, script, keep != ReusePolicy::Never);
    let mut body = here.body.take();
    let mut tries = 0;
    loop {
        let client = asked.peer.into();
        let slot = settings.backend.enter(client, settings.bounds.queue);
        let slot = RequestBody::queued(&mut body, slot).await;
        let slot = slot.map_err(|busy| HandlerError::new(NAME, busy.into()))?;
        // Only a kept connection may already be closed, and only then is the request needed for a retry.
        let told = match keep != ReusePolicy::Never && may_retry {
            true => head.clone(),
            false => std::mem::take(&mut head),
        };
        let mut talk = FastCgiTransaction::new(&settings, slot, told, body.take(), &asked, keep);
        let is_kept = tries < KEPT_TRIES && talk.begin_kept();
        tries += 1;
        may_retry &= is_kept && !head.is_empty();
        if !is_kept && !talk.begin_now() {
            talk.number(0);
            talk.link = Some(settings.connect(&asked).await?);
        }
        let exchange = ScriptCall::new(talk, &asked, settings.bounds.clone());
        match exchange.answer(here.inside.clone()).await {
            // The backend closed the connection, perhaps before the request was sent.
            Err(fault) if fault.retry && may_retry => settings.backend.lost(),
            other => return other,
        }
    }
}

impl FastCgiSettings {
    /// Returns the encoded request without its body.
    fn request(&self, asked: &ScriptRequest, script: Option<Script>, stays: bool) -> Vec<u8> {
        let rest = asked.path.strip_prefix(&*self.prefix).unwrap_or_default();
        let (name, path_info) = match &script {
            Some(script) => (&script.name[..], &script.path_info[..]),
            None => (&*self.prefix, rest),
        };
        let file = match &script {
            Some(script) => [&*self.root, &script.name].concat(),
            None => [&*self.root, &asked.path].concat(),
        };
        let place = ScriptLocation {
            name,
            path_info,
            file: &file,
            root: &self.root,
        };
        asked.with_meta(&place, |meta| self.told(meta, stays))
    }

    fn told(&self, meta: &MetaVariables<'_>, stays: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(limits::BACKEND_REQUEST_BYTES_INITIAL);
        let own = &self.variables;
        match self.protocol {
            BackendProtocol::FastCgi => {
                let mut all = FastCgiRequestEncoder::begin(stays, &mut head);
                OverridingSink { own, all: &mut all }.write_all(meta);
                all.end();
            }
            BackendProtocol::Scgi => {
                let length = meta.length.unwrap_or("0");
                let mut all = ScgiRequestEncoder::begin(length);
                OverridingSink { own, all: &mut all }.write_all(meta);
                all.end(&mut head);
            }
        }
        head
    }

    async fn connect(&self, asked: &ScriptRequest) -> Result<Conn, HandlerError> {
        let connected = self.backend.connect().await;
        connected.map_err(|error| self.unreachable(asked, &error))
    }

    fn unreachable(&self, asked: &ScriptRequest, error: &io::Error) -> HandlerError {
        let reject = match error.kind() {
            io::ErrorKind::WouldBlock => Reject::BACKEND_BUSY,
            _ => Reject::BACKEND_UNREACHABLE,
        };
        let why = format!("{}: {}: {error}", asked.line(), self.backend.address);
        HandlerError::because(NAME, reject, why)
    }
}

/// Maximum number of attempts on kept connections, before a new connection is used. The request itself may
/// be the reason for the closed connections.
const KEPT_TRIES: u32 = 2;

/// Name of a backend in the log.
const NAME: &str = "backend";

/// A request on a connection.
struct FastCgiTransaction {
    /// The connection; None before connecting, and after the connection is given back.
    link: Option<Conn>,
    slot: Option<CallSlot>,
    backend: Arc<Backend>,
    protocol: BackendProtocol,
    /// Policy for the connection after the end of the call.
    keep: ReusePolicy,
    /// Number of bytes at the end of `out` that are sent separately: the end marker of an empty body.
    apart: usize,
    /// Number of the request on the connection (the FastCGI request ID).
    request: u16,
    /// True if the connection has ended, and the backend may not have read the request.
    may_be_unheard: bool,
    /// Bytes to be sent to the backend.
    out: Vec<u8>,
    out_at: usize,
    /// Rest of the request's body.
    reader: Option<RatedBody>,
    chunk: Vec<u8>,
    /// Reservation of the body's first part, while `out` holds the part.
    share: Option<BodyReservation>,
    /// True if `out` holds the end of the request.
    is_told: bool,
    /// Bytes from the backend. The bytes from `input_at` to `input_end` are not decoded.
    input: Vec<u8>,
    input_at: usize,
    input_end: usize,
    decoder: FastCgiDecoder,
    end: Option<FastCgiEnd>,
    is_malformed: bool,
    /// True if the spooled body cannot be read back.
    is_lost: bool,
    said: StderrLog,
}

impl FastCgiTransaction {
    fn new(
        settings: &FastCgiSettings,
        slot: CallSlot,
        head: Vec<u8>,
        body: Option<RequestBody>,
        asked: &Arc<ScriptRequest>,
        keep: ReusePolicy,
    ) -> FastCgiTransaction {
        let is_all = body.is_none();
        let (ahead, share, rest) = match body {
            Some(body) => (body.ahead, body.share, body.rest),
            None => (Vec::new(), None, None),
        };
        let mut talk = FastCgiTransaction {
            link: None,
            slot: Some(slot),
            backend: Arc::clone(&settings.backend),
            protocol: settings.protocol,
            keep,
            // A separate end marker shows whether the backend has read the end of the request.
            apart: match keep == ReusePolicy::Handover && is_all {
                true => fastcgi::HEADER_BYTES,
                false => 0,
            },
            request: fastcgi::FIRST_REQUEST,
            may_be_unheard: false,
            out: head,
            out_at: 0,
            reader: rest.map(|rest| RatedBody::new(rest, settings.bounds.patience)),
            chunk: ahead,
            share,
            is_told: false,
            input: vec![0; limits::PROGRAM_BUFFER_BYTES_INITIAL],
            input_at: 0,
            input_end: 0,
            decoder: FastCgiDecoder::default(),
            end: None,
            is_malformed: false,
            is_lost: false,
            said: StderrLog::new(asked),
        };
        if !talk.chunk.is_empty() {
            talk.frame();
            talk.chunk = Vec::new();
        }
        if talk.reader.is_none() {
            talk.finish_input();
        }
        talk
    }

    /// Sends the beginning of the request on a kept connection. Returns false if no connection is
    /// available. A closed connection has received nothing, so any request may go to the next connection.
    fn begin_kept(&mut self) -> bool {
        while let Some(kept) = self.backend.take_idle(self.keep) {
            if self.begin(kept) {
                return true;
            }
            self.backend.lost();
        }
        false
    }

    /// Sends the beginning of the request on a new connection, if connecting is possible without waiting.
    fn begin_now(&mut self) -> bool {
        let new = self.backend.connect_now();
        new.is_some_and(|new| self.begin(new))
    }

    fn begin(&mut self, kept: IdleConn) -> bool {
        self.number(kept.answers());
        let Ok((link, said)) = kept.begin(&self.out, self.apart, self.is_told) else {
            return false;
        };
        match link {
            Ok(link) => {
                // Partial reads of the request cannot be detected.
                if self.keep == ReusePolicy::Handover && said + self.apart >= self.out.len() {
                    self.backend.begins(&link);
                }
                self.link = Some(link);
                self.out_at = said;
            }
            // The backend has received the request and may execute the request.
            Err(error) => {
                log::error!(
                    "{}: its answer can't be waited for: {error}",
                    self.backend.address
                );
                self.be_silent();
            }
        }
        true
    }

    /// Sets the number of the request on a connection with `answers` answered requests.
    fn number(&mut self, answers: u32) {
        let was_used = answers > 0;
        let request = fastcgi::FIRST_REQUEST + (answers % u32::from(u16::MAX)) as u16;
        if std::mem::replace(&mut self.request, request) != request {
            fastcgi::renumber(&mut self.out, request);
        }
        self.decoder = FastCgiDecoder::new(request, was_used);
    }

    /// Appends a part of the body to `out`.
    fn frame(&mut self) {
        match self.protocol {
            BackendProtocol::FastCgi => {
                fastcgi::push_input(self.request, &self.chunk, &mut self.out)
            }
            BackendProtocol::Scgi => self.out.extend_from_slice(&self.chunk),
        }
        self.chunk.clear();
    }

    fn finish_input(&mut self) {
        self.reader = None;
        if !std::mem::replace(&mut self.is_told, true) && self.protocol == BackendProtocol::FastCgi
        {
            fastcgi::push_input(self.request, b"", &mut self.out);
        }
    }

    /// Discards all unsent data, because the backend no longer reads.
    fn be_silent(&mut self) {
        self.reader = None;
        self.is_told = true;
        self.out_at = self.out.len();
    }

    /// Decodes received data into `into`. Returns None if no output is left.
    fn take(&mut self, into: &mut [u8]) -> Option<usize> {
        while self.input_at < self.input_end && self.end.is_none() && !self.is_malformed {
            let end = self.input_end.min(self.input_at + into.len());
            let window = &self.input[self.input_at..end];
            let step = match self.protocol {
                BackendProtocol::FastCgi => self.decoder.step(window),
                BackendProtocol::Scgi => Ok(FastCgiStep::Stdout {
                    consumed: window.len(),
                    part: 0..window.len(),
                }),
            };
            match step {
                Ok(FastCgiStep::Stdout { consumed, part }) => {
                    into[..part.len()].copy_from_slice(&window[part.clone()]);
                    self.input_at += consumed;
                    return Some(part.len());
                }
                Ok(FastCgiStep::Stderr { consumed, part }) => {
                    self.said.take(&window[part]);
                    self.input_at += consumed;
                }
                Ok(FastCgiStep::More) => self.input_at = end,
                Ok(FastCgiStep::End { consumed, end }) => {
                    self.input_at += consumed;
                    self.end = Some(end);
                    if end == FastCgiEnd::OtherRequest {
                        self.may_be_unheard = true;
                        self.backend.mark_unfit_for_reuse();
                    }
                }
                Err(fastcgi::MalformedRecord) => self.is_malformed = true,
            }
        }
        None
    }

    /// Reads and discards the rest of the backend's output.
    async fn drain(mut self) {
        let mut nowhere = vec![0; limits::PROGRAM_CHUNK_BYTES];
        poll_fn(|cx| {
            loop {
                self.poll_side_io(cx);
                match self.poll_output(cx, &mut nowhere) {
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
        let is_clean = self.is_told && self.out_at == self.out.len();
        let is_over =
            matches!(self.end, Some(FastCgiEnd::Complete(_))) && self.input_at == self.input_end;
        if let Some(link) = self.link.take()
            && is_clean
            && is_over
        {
            self.backend.put_idle(link, self.keep);
        }
        // The place is freed last, so that a waiting call finds the connection.
        self.slot = None;
    }
}

impl Transport for FastCgiTransaction {
    const NAME: &'static str = NAME;

    fn poll_side_io(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        while let Some(link) = &mut self.link {
            if self.out_at < self.out.len() {
                match link.poll_write(cx, &self.out[self.out_at..]) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(written)) => {
                        self.out_at += written;
                        has_moved = true;
                    }
                    // The backend may have sent the reason before closing the connection.
                    Poll::Ready(Err(_)) => self.be_silent(),
                }
                continue;
            }
            match self.share.take() {
                Some(_) => self.out = Vec::new(),
                None => self.out.clear(),
            }
            self.out_at = 0;
            let Some(reader) = &mut self.reader else {
                break;
            };
            match reader.poll_take(cx, &mut self.chunk, limits::PROGRAM_CHUNK_BYTES) {
                Poll::Pending => break,
                Poll::Ready(Ok(PipeRead::Bytes(_))) => self.frame(),
                Poll::Ready(Ok(PipeRead::End)) => self.finish_input(),
                // The connection is closed, so that the backend never takes a partial body for a complete
                // body.
                Poll::Ready(Err(_)) => {
                    self.is_lost = reader.is_kept();
                    self.link = None;
                    self.be_silent();
                }
            }
        }
        has_moved
    }

    fn waits_for_client(&self) -> bool {
        self.reader.as_ref().is_some_and(RatedBody::is_awaited)
    }

    fn is_stalled_by_client(&mut self) -> bool {
        self.reader.as_ref().is_some_and(RatedBody::is_dripping)
            && self.slot.as_mut().is_some_and(CallSlot::give_way)
    }

    fn slot(&mut self) -> Option<&mut CallSlot> {
        self.slot.as_mut()
    }

    fn poll_output(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
        loop {
            if let Some(taken) = self.take(into) {
                return Poll::Ready(taken);
            }
            let Some(link) = &mut self.link else {
                return Poll::Ready(0);
            };
            if self.end.is_some() || self.is_malformed {
                // The backend will read no more of the body.
                self.reader = None;
                return Poll::Ready(0);
            }
            match link.poll_read(cx, &mut self.input) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) if self.protocol == BackendProtocol::Scgi => {
                    self.end = Some(FastCgiEnd::Complete(0));
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.may_be_unheard = match self.keep {
                        ReusePolicy::Handover => self.backend.is_pending(link),
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
        self.may_be_unheard
    }

    fn has_ended_well(&self) -> bool {
        matches!(self.end, Some(FastCgiEnd::Complete(_))) && !self.is_lost
    }

    async fn ended(&mut self) -> TransportEnd {
        self.said.flush();
        if self.is_lost {
            return TransportEnd::Broken(Reject::BODY_NOT_KEPT, BODY_LOST.to_owned());
        }
        match self.end {
            Some(FastCgiEnd::Complete(0)) => TransportEnd::Well,
            Some(FastCgiEnd::Complete(status)) => {
                TransportEnd::Complaining(format!("it ended with {status}"))
            }
            Some(FastCgiEnd::Overloaded) => {
                TransportEnd::Broken(Reject::BACKEND_BUSY, "it has too much to do".to_owned())
            }
            // A backend that ignores request numbers may have answered the present request, but the server
            // cannot tell.
            Some(FastCgiEnd::OtherRequest) => {
                let how = format!(
                    "{} ended another request than it was asked: `keep = 0` asks it once a connection",
                    self.backend.address
                );
                TransportEnd::Broken(Reject::BACKEND_LEFT, how)
            }
            Some(FastCgiEnd::Unable) => {
                let how = "it can't do what it was asked".to_owned();
                TransportEnd::Broken(Reject::BACKEND_MALFORMED, how)
            }
            None if self.is_malformed => {
                let how = format!("{}: what it sent is no FastCGI", self.backend.address);
                TransportEnd::Broken(Reject::BACKEND_MALFORMED, how)
            }
            None => {
                let how = format!("{} closed the connection", self.backend.address);
                TransportEnd::Broken(Reject::BACKEND_LEFT, how)
            }
        }
    }

    fn finish_detached(self, patience: Duration) {
        match self.end {
            Some(_) => self.give_back(),
            // The backend may finish its work.
            None => spawn_local_with_timeout(self.drain(), patience),
        }
    }
}
