//! FastCGI, and SCGI: scripts that a backend runs. Either all below a route's path is its own, or
//! the files of the site with some endings are.

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

/// What is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendProtocol {
    /// Records.
    FastCgi,
    /// A netstring, and then what CGI has.
    Scgi,
}

/// A backend behind a route.
pub struct FastCgiHandler {
    settings: Arc<FastCgiSettings>,
}

/// How a backend is asked.
pub struct FastCgiSettings {
    /// Whom.
    pub backend: Arc<Backend>,
    /// In which language.
    pub protocol: BackendProtocol,
    /// The bounds of a call.
    pub bounds: CallLimits,
    /// The route's path, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// The folder that paths of the site lie in, as the backend sees it.
    pub root: Box<[u8]>,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
}

impl FastCgiHandler {
    /// With these settings.
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
    // What was asked for twice must not be done twice.
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
        // Only a connection that was kept may be gone by now.
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
            // The connection is none any more, and may not have been when this was said.
            Err(fault) if fault.retry && may_retry => settings.backend.lost(),
            other => return other,
        }
    }
}

impl FastCgiSettings {
    /// The request as the backend gets it, without its body.
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

/// A request is said on so many connections that have been used before, and then on a new one: what
/// ends them all may be the request.
const KEPT_TRIES: u32 = 2;

/// What a backend is called in the log.
const NAME: &str = "backend";

/// One request on a connection.
struct FastCgiTransaction {
    /// None before it is there, and when it has been given back.
    link: Option<Conn>,
    slot: Option<CallSlot>,
    backend: Arc<Backend>,
    protocol: BackendProtocol,
    /// Whether the connection is for others when this is over.
    keep: ReusePolicy,
    /// So many bytes, the end of a body that there isn't, are said by themselves.
    apart: usize,
    /// The number of this request on its connection.
    request: u16,
    /// The connection has ended, and perhaps nobody has read this.
    may_be_unheard: bool,
    /// On its way to the backend.
    out: Vec<u8>,
    out_at: usize,
    /// The rest of the request's body.
    reader: Option<RatedBody>,
    chunk: Vec<u8>,
    /// Of what was gathered, while that is in `out`.
    share: Option<BodyReservation>,
    /// All of it is in `out`.
    is_told: bool,
    /// From the backend, and how far it was looked at.
    input: Vec<u8>,
    input_at: usize,
    input_end: usize,
    decoder: FastCgiDecoder,
    end: Option<FastCgiEnd>,
    is_malformed: bool,
    /// The body can't be read back from where it was kept.
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
            // So it can be seen whether the rest is read.
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

    /// Says what is to be said first on a connection that was kept, if there is one. One that has gone
    /// has seen nothing of it, and so the next may be told, whatever it is.
    fn begin_kept(&mut self) -> bool {
        while let Some(kept) = self.backend.take_idle(self.keep) {
            if self.begin(kept) {
                return true;
            }
            self.backend.lost();
        }
        false
    }

    /// The same on a new connection, if there is one without waiting.
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
                // Whether half of it is read can't be told.
                if self.keep == ReusePolicy::Handover && said + self.apart >= self.out.len() {
                    self.backend.begins(&link);
                }
                self.link = Some(link);
                self.out_at = said;
            }
            // It has heard of the request, and may do what it says.
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

    /// The number of this request on a connection that has answered so many.
    fn number(&mut self, answers: u32) {
        let was_used = answers > 0;
        let request = fastcgi::FIRST_REQUEST + (answers % u32::from(u16::MAX)) as u16;
        if std::mem::replace(&mut self.request, request) != request {
            fastcgi::renumber(&mut self.out, request);
        }
        self.decoder = FastCgiDecoder::new(request, was_used);
    }

    /// Puts a part of the body into `out`.
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

    /// Nobody listens any more: what is still to be sent is not.
    fn be_silent(&mut self) {
        self.reader = None;
        self.is_told = true;
        self.out_at = self.out.len();
    }

    /// Looks at what has come, up to `into`'s length of it; None when there is no more.
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

    /// The rest of what the backend says, which nobody wants.
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

    /// Keeps the connection for the next call, if that can be.
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
        // Who waits for the place finds the connection.
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
                    // It may have said why before it left.
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
                // Half a body is never to be taken for a whole one.
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
                // What it didn't want to read it won't any more.
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
            // Whoever doesn't count may mean this one, but nobody can know that.
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
            // What it has begun it may finish.
            None => spawn_local_with_timeout(self.drain(), patience),
        }
    }
}
