//! FastCGI, and SCGI: scripts that a backend runs. Either all below a route's path is its own, or
//! the files of the site with some endings are.

use super::asked::{Asked, Place, Upload};
use super::backend::{Backend, Keep, Kept, Link, detach};
use super::exchange::{BODY_LOST, Bounds, Ended, Exchange, Peer, taken_apart};
use super::gathered::Share;
use super::paced::Paced;
use super::pipe::Taken;
use super::said::Said;
use super::slots::Slot;
use super::{Fault, Handler, LocalBoxFuture, Request, Response, Script, Scripts};
use crate::limits;
use crate::wire::cgi::{Instead, Meta};
use crate::wire::fcgi::{self, Decoder, End, Netstring, Params, Step};
use crate::wire::reject::Reject;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Records.
    FastCgi,
    /// A netstring, and then what CGI has.
    Scgi,
}

/// A backend behind a route.
pub struct FastCgi {
    settings: Arc<Settings>,
}

/// How a backend is asked.
pub struct Settings {
    /// Whom.
    pub backend: Arc<Backend>,
    /// In which language.
    pub protocol: Protocol,
    /// The bounds of a call.
    pub bounds: Bounds,
    /// The route's path, without a slash at its end.
    pub prefix: Box<[u8]>,
    /// The folder that paths of the site lie in, as the backend sees it.
    pub root: Box<[u8]>,
    /// Variables beside those of the request.
    pub variables: Vec<(String, String)>,
}

impl FastCgi {
    /// With these settings.
    pub fn new(settings: Settings) -> FastCgi {
        FastCgi {
            settings: Arc::new(settings),
        }
    }
}

impl Handler for FastCgi {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        Box::pin(run(Arc::clone(&self.settings), request, None))
    }
}

impl Scripts for FastCgi {
    fn run(&self, request: Request, script: Script) -> LocalBoxFuture<Result<Response, Fault>> {
        Box::pin(run(Arc::clone(&self.settings), request, Some(script)))
    }
}

async fn run(
    settings: Arc<Settings>,
    request: Request,
    script: Option<Script>,
) -> Result<Response, Fault> {
    let (asked, mut here) = taken_apart(request, &settings.bounds).await?;
    let asked = Arc::new(asked);
    // What was asked for twice must not be done twice.
    let mut may_retry = asked.method.is_safe() && here.body.is_none();
    let keep = match settings.protocol {
        Protocol::FastCgi => settings.backend.keeps_after(may_retry),
        Protocol::Scgi => Keep::Never,
    };
    let mut head = settings.request(&asked, script, keep != Keep::Never);
    let mut body = here.body.take();
    let mut tries = 0;
    loop {
        let client = asked.peer.into();
        let slot = settings.backend.enter(client, settings.bounds.queue);
        let slot = Upload::queued(&mut body, slot).await;
        let slot = slot.map_err(|busy| Fault::new(NAME, busy.reject()))?;
        // Only a connection that was kept may be gone by now.
        let told = match keep != Keep::Never && may_retry {
            true => head.clone(),
            false => std::mem::take(&mut head),
        };
        let mut talk = Talk::new(&settings, slot, told, body.take(), &asked, keep);
        let is_kept = tries < KEPT_TRIES && talk.begin_kept();
        tries += 1;
        may_retry &= is_kept && !head.is_empty();
        if !is_kept && !talk.begin_now() {
            talk.number(0);
            talk.link = Some(settings.connect(&asked).await?);
        }
        let exchange = Exchange::new(talk, &asked, settings.bounds.clone());
        match exchange.answer(here.inside.clone()).await {
            // The connection is none any more, and may not have been when this was said.
            Err(fault) if fault.retry && may_retry => settings.backend.lost(),
            other => return other,
        }
    }
}

impl Settings {
    /// The request as the backend gets it, without its body.
    fn request(&self, asked: &Asked, script: Option<Script>, stays: bool) -> Vec<u8> {
        let rest = asked.path.strip_prefix(&*self.prefix).unwrap_or_default();
        let (name, path_info) = match &script {
            Some(script) => (&script.name[..], &script.path_info[..]),
            None => (&*self.prefix, rest),
        };
        let file = match &script {
            Some(script) => [&*self.root, &script.name].concat(),
            None => [&*self.root, &asked.path].concat(),
        };
        let place = Place {
            name,
            path_info,
            file: &file,
            root: &self.root,
        };
        asked.with_meta(&place, |meta| self.told(meta, stays))
    }

    fn told(&self, meta: &Meta<'_>, stays: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(limits::PROGRAM_TOLD_BYTES);
        let own = &self.variables;
        match self.protocol {
            Protocol::FastCgi => {
                let mut all = Params::begin(stays, &mut head);
                Instead { own, all: &mut all }.tell_all(meta);
                all.end();
            }
            Protocol::Scgi => {
                let length = meta.length.unwrap_or("0");
                let mut all = Netstring::begin(length);
                Instead { own, all: &mut all }.tell_all(meta);
                all.end(&mut head);
            }
        }
        head
    }

    async fn connect(&self, asked: &Asked) -> Result<Link, Fault> {
        let connected = self.backend.connect().await;
        connected.map_err(|error| self.unreachable(asked, &error))
    }

    fn unreachable(&self, asked: &Asked, error: &io::Error) -> Fault {
        let reject = match error.kind() {
            io::ErrorKind::WouldBlock => Reject::BACKEND_BUSY,
            _ => Reject::BACKEND_UNREACHABLE,
        };
        let why = format!("{}: {}: {error}", asked.line(), self.backend.address);
        Fault::because(NAME, reject, why)
    }
}

/// A request is said on so many connections that have been used before, and then on a new one: what
/// ends them all may be the request.
const KEPT_TRIES: u32 = 2;

/// What a backend is called in the log.
const NAME: &str = "backend";

/// One request on a connection.
struct Talk {
    /// None before it is there, and when it has been given back.
    link: Option<Link>,
    slot: Option<Slot>,
    backend: Arc<Backend>,
    protocol: Protocol,
    /// Whether the connection is for others when this is over.
    keep: Keep,
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
    reader: Option<Paced>,
    chunk: Vec<u8>,
    /// Of what was gathered, while that is in `out`.
    share: Option<Share>,
    /// All of it is in `out`.
    is_told: bool,
    /// From the backend, and how far it was looked at.
    input: Vec<u8>,
    input_at: usize,
    input_end: usize,
    decoder: Decoder,
    end: Option<End>,
    is_malformed: bool,
    /// The body can't be read back from where it was kept.
    is_lost: bool,
    said: Said,
}

impl Talk {
    fn new(
        settings: &Settings,
        slot: Slot,
        head: Vec<u8>,
        body: Option<Upload>,
        asked: &Arc<Asked>,
        keep: Keep,
    ) -> Talk {
        let is_all = body.is_none();
        let (ahead, share, rest) = match body {
            Some(body) => (body.ahead, body.share, body.rest),
            None => (Vec::new(), None, None),
        };
        let mut talk = Talk {
            link: None,
            slot: Some(slot),
            backend: Arc::clone(&settings.backend),
            protocol: settings.protocol,
            keep,
            // So it can be seen whether the rest is read.
            apart: match keep == Keep::Briefly && is_all {
                true => fcgi::HEADER_BYTES,
                false => 0,
            },
            request: fcgi::FIRST_REQUEST,
            may_be_unheard: false,
            out: head,
            out_at: 0,
            reader: rest.map(|rest| Paced::new(rest, settings.bounds.patience)),
            chunk: ahead,
            share,
            is_told: false,
            input: vec![0; limits::PROGRAM_FIRST_BYTES],
            input_at: 0,
            input_end: 0,
            decoder: Decoder::default(),
            end: None,
            is_malformed: false,
            is_lost: false,
            said: Said::new(asked),
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
        while let Some(kept) = self.backend.idle(self.keep) {
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

    fn begin(&mut self, kept: Kept) -> bool {
        self.number(kept.answers());
        let Ok((link, said)) = kept.begin(&self.out, self.apart, self.is_told) else {
            return false;
        };
        match link {
            Ok(link) => {
                // Whether half of it is read can't be told.
                if self.keep == Keep::Briefly && said + self.apart >= self.out.len() {
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
        let request = fcgi::FIRST_REQUEST + (answers % u32::from(u16::MAX)) as u16;
        if std::mem::replace(&mut self.request, request) != request {
            fcgi::renumber(&mut self.out, request);
        }
        self.decoder = Decoder::new(request, was_used);
    }

    /// Puts a part of the body into `out`.
    fn frame(&mut self) {
        match self.protocol {
            Protocol::FastCgi => fcgi::push_input(self.request, &self.chunk, &mut self.out),
            Protocol::Scgi => self.out.extend_from_slice(&self.chunk),
        }
        self.chunk.clear();
    }

    fn finish_input(&mut self) {
        self.reader = None;
        if !std::mem::replace(&mut self.is_told, true) && self.protocol == Protocol::FastCgi {
            fcgi::push_input(self.request, b"", &mut self.out);
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
                Protocol::FastCgi => self.decoder.step(window),
                Protocol::Scgi => Ok(Step::Output {
                    consumed: window.len(),
                    part: 0..window.len(),
                }),
            };
            match step {
                Ok(Step::Output { consumed, part }) => {
                    into[..part.len()].copy_from_slice(&window[part.clone()]);
                    self.input_at += consumed;
                    return Some(part.len());
                }
                Ok(Step::Words { consumed, part }) => {
                    self.said.take(&window[part]);
                    self.input_at += consumed;
                }
                Ok(Step::More) => self.input_at = end,
                Ok(Step::End { consumed, end }) => {
                    self.input_at += consumed;
                    self.end = Some(end);
                    if end == End::OfAnother {
                        self.may_be_unheard = true;
                        self.backend.does_not_count();
                    }
                }
                Err(fcgi::Malformed) => self.is_malformed = true,
            }
        }
        None
    }

    /// The rest of what the backend says, which nobody wants.
    async fn drain(mut self) {
        let mut nowhere = vec![0; limits::PROGRAM_CHUNK_BYTES];
        poll_fn(|cx| {
            loop {
                self.poll_aside(cx);
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
        let is_over = matches!(self.end, Some(End::Complete(_))) && self.input_at == self.input_end;
        if let Some(link) = self.link.take()
            && is_clean
            && is_over
        {
            self.backend.keep(link, self.keep);
        }
        // Who waits for the place finds the connection.
        self.slot = None;
    }
}

impl Peer for Talk {
    const NAME: &'static str = NAME;

    fn poll_aside(&mut self, cx: &mut Context<'_>) -> bool {
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
                Poll::Ready(Ok(Taken::Bytes(_))) => self.frame(),
                Poll::Ready(Ok(Taken::End)) => self.finish_input(),
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

    fn is_fed(&self) -> bool {
        self.reader.as_ref().is_some_and(Paced::is_awaited)
    }

    fn is_dripped_at(&mut self) -> bool {
        self.reader.as_ref().is_some_and(Paced::is_dripping)
            && self.slot.as_mut().is_some_and(Slot::give_way)
    }

    fn slot(&mut self) -> Option<&mut Slot> {
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
                Poll::Ready(Ok(0)) if self.protocol == Protocol::Scgi => {
                    self.end = Some(End::Complete(0));
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    self.may_be_unheard = match self.keep {
                        Keep::Briefly => self.backend.is_pending(link),
                        Keep::UpTo(_) | Keep::Never => true,
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

    fn may_be_repeated(&self) -> bool {
        self.may_be_unheard
    }

    fn has_ended_well(&self) -> bool {
        matches!(self.end, Some(End::Complete(_))) && !self.is_lost
    }

    async fn ended(&mut self) -> Ended {
        self.said.flush();
        if self.is_lost {
            return Ended::Broken(Reject::BODY_NOT_KEPT, BODY_LOST.to_owned());
        }
        match self.end {
            Some(End::Complete(0)) => Ended::Well,
            Some(End::Complete(status)) => Ended::Complaining(format!("it ended with {status}")),
            Some(End::Overloaded) => {
                Ended::Broken(Reject::BACKEND_BUSY, "it has too much to do".to_owned())
            }
            // Whoever doesn't count may mean this one, but nobody can know that.
            Some(End::OfAnother) => {
                let how = format!(
                    "{} ended another request than it was asked: `keep = 0` asks it once a connection",
                    self.backend.address
                );
                Ended::Broken(Reject::BACKEND_LEFT, how)
            }
            Some(End::Unable) => {
                let how = "it can't do what it was asked".to_owned();
                Ended::Broken(Reject::BACKEND_MALFORMED, how)
            }
            None if self.is_malformed => {
                let how = format!("{}: what it sent is no FastCGI", self.backend.address);
                Ended::Broken(Reject::BACKEND_MALFORMED, how)
            }
            None => {
                let how = format!("{} closed the connection", self.backend.address);
                Ended::Broken(Reject::BACKEND_LEFT, how)
            }
        }
    }

    fn leave(self, patience: Duration) {
        match self.end {
            Some(_) => self.give_back(),
            // What it has begun it may finish.
            None => detach(self.drain(), patience),
        }
    }
}
