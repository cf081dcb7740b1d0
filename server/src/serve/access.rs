//! From a response to its line in the access log: formatted into the worker's own buffer and handed
//! over in large pieces, so that logging costs a request no system call and no lock.

use super::stream::Stream;
use super::worker::Worker;
use crate::base::log::{self, Batch, Format};
use crate::hits::SiteHits;
use crate::wire::head::{Head, Method};
use crate::wire::reject::Reject;
use crate::wire::status::Status;
use crate::world::{Access, Host, World};
use rustls::ProtocolVersion;
use std::net::IpAddr;
use std::sync::Arc;

/// Who is at the other end of a connection, and over what.
#[derive(Copy, Clone)]
pub(super) struct Who {
    pub(super) peer: IpAddr,
    pub(super) tls: Option<&'static str>,
}

/// What is known of an exchange while its head is at hand.
pub(super) struct Line<'a> {
    pub(super) head: Option<&'a Head<'a>>,
    pub(super) host: Option<&'a Host>,
    pub(super) user: Option<&'a str>,
    pub(super) reject: Option<Reject>,
    /// The request line as it came.
    pub(super) first: &'a [u8],
    pub(super) started_us: u64,
}

/// The same, owned: for a response that is sent later.
pub(super) struct Record {
    access: Option<Access>,
    /// What is counted if it is answered.
    view: Option<View>,
    who: Who,
    first: Vec<u8>,
    host: Vec<u8>,
    referer: Option<Vec<u8>>,
    agent: Option<Vec<u8>>,
    user: Option<String>,
    pub(super) status: Status,
    pub(super) rule: u16,
    started_us: u64,
}

/// A view of a page.
struct View {
    hits: Arc<SiteHits>,
    path: Box<[u8]>,
    is_bot: bool,
}

impl<'a> Line<'a> {
    pub(super) fn new(
        worker: &Worker,
        head: Option<&'a Head<'a>>,
        host: Option<&'a Host>,
        user: Option<&'a str>,
    ) -> Line<'a> {
        let first = head.map_or(&[][..], |head| head.line);
        Line {
            head,
            host,
            user,
            reject: None,
            first,
            started_us: worker.clock.micros(),
        }
    }

    /// Where this line goes: the site's log, or the server's where no site was found.
    fn access<'w>(&'w self, world: &'w World) -> Option<&'w Access> {
        match self.host {
            Some(host) => host.access.as_ref(),
            None => world.access.as_ref(),
        }
    }

    /// Bytes that [`Line::keep`] takes in memory.
    pub(super) fn kept_bytes(&self, worker: &Worker) -> usize {
        if self.access(&worker.world()).is_none() {
            return 0;
        }
        let head = self.head.map_or(0, |head| {
            let asks = [head.asks.referer, head.asks.user_agent];
            head.host.len()
                + asks
                    .iter()
                    .flatten()
                    .map(|field| field.len())
                    .sum::<usize>()
        });
        size_of::<Record>() + self.first.len() + head + self.user.map_or(0, str::len)
    }

    /// Writes the line, if anybody wants it, and counts the view, if it is one.
    pub(super) fn log(&self, status: Status, bytes: u64, worker: &Worker, who: Who) {
        if is_seen(status)
            && let Some((hits, head)) = self.counted()
        {
            let is_bot = worker.is_bot(head.asks.user_agent);
            worker.count(hits, &head.path, is_bot);
        }
        let world = worker.world();
        let Some(access) = self.access(&world) else {
            return;
        };
        let asks = self.head.map(|head| &head.asks);
        let line = log::Line {
            peer: who.peer,
            user: self.user,
            unix_ms: worker.clock.unix_ms(),
            request: self.first,
            status: status.0,
            bytes,
            referer: asks.and_then(|asks| asks.referer),
            agent: asks.and_then(|asks| asks.user_agent),
            host: self.head.map(|head| head.host),
            rule: self.reject.map_or(0, |reject| reject.rule),
            tls: who.tls,
            micros: took(worker, access, self.started_us),
        };
        worker
            .logs
            .borrow_mut()
            .write(access, &line, &worker.clock.log_time());
        worker.has_lines();
    }

    /// Where this request counts as a view, if it is answered.
    fn counted(&self) -> Option<(&Arc<SiteHits>, &Head<'a>)> {
        let head = self.head.filter(|head| head.method == Method::Get)?;
        Some((self.host?.hits.as_ref()?, head))
    }

    /// Keeps what the line needs until the response is sent; None when nobody wants it.
    pub(super) fn keep(&self, status: Status, worker: &Worker, who: Who) -> Option<Box<Record>> {
        let world = worker.world();
        let access = self.access(&world).cloned();
        let view = self.counted().map(|(hits, head)| View {
            hits: hits.clone(),
            path: head.path.as_ref().into(),
            is_bot: worker.is_bot(head.asks.user_agent),
        });
        if access.is_none() && view.is_none() {
            return None;
        }
        // A view alone needs no more.
        let line = access.as_ref().map(|_| self);
        let head = line.and_then(|line| line.head);
        let asks = head.map(|head| &head.asks);
        Some(Box::new(Record {
            first: line.map(|line| line.first.to_vec()).unwrap_or_default(),
            access,
            view,
            who,
            host: head.map(|head| head.host.to_vec()).unwrap_or_default(),
            referer: asks.and_then(|asks| asks.referer).map(<[u8]>::to_vec),
            agent: asks.and_then(|asks| asks.user_agent).map(<[u8]>::to_vec),
            user: line.and_then(|line| line.user).map(str::to_owned),
            status,
            rule: self.reject.map_or(0, |reject| reject.rule),
            started_us: self.started_us,
        }))
    }
}

impl Record {
    /// Writes the line, now that the exchange is over.
    pub(super) fn log(&self, bytes: u64, worker: &Worker) {
        if let Some(view) = self.view.as_ref().filter(|_| is_seen(self.status)) {
            worker.count(&view.hits, &view.path, view.is_bot);
        }
        let Some(access) = &self.access else { return };
        let line = log::Line {
            peer: self.who.peer,
            user: self.user.as_deref(),
            unix_ms: worker.clock.unix_ms(),
            request: &self.first,
            status: self.status.0,
            bytes,
            referer: self.referer.as_deref(),
            agent: self.agent.as_deref(),
            host: Some(&self.host),
            rule: self.rule,
            tls: self.who.tls,
            micros: took(worker, access, self.started_us),
        };
        worker
            .logs
            .borrow_mut()
            .write(access, &line, &worker.clock.log_time());
        worker.has_lines();
    }
}

/// Did who asked get to see the page, be it their own copy of it?
fn is_seen(status: Status) -> bool {
    matches!(status, Status::OK | Status::NOT_MODIFIED)
}

/// Only JSON lines say how long it took; then a look at the clock is worth it.
fn took(worker: &Worker, access: &Access, started_us: u64) -> u64 {
    if access.format == Format::Json {
        worker.clock.tick();
    }
    worker.clock.micros() - started_us
}

/// The version of TLS, as the log writes it.
pub(super) fn tls_version(stream: &Stream) -> Option<&'static str> {
    match stream.tls_version()? {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

/// A worker's lines on their way, by destination.
#[derive(Default)]
pub struct Logs {
    batches: Vec<(Access, Batch)>,
}

impl Logs {
    fn write(&mut self, access: &Access, line: &log::Line<'_>, time: &[u8]) {
        let known = self
            .batches
            .iter()
            .position(|(known, _)| known.is_same(access));
        let index = known.unwrap_or_else(|| {
            let batch = Batch::new(access.sink.clone(), access.format);
            self.batches.push((access.clone(), batch));
            self.batches.len() - 1
        });
        self.batches[index].1.push(line, time);
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.batches.iter().all(|(_, batch)| batch.is_empty())
    }

    /// Hands everything over.
    pub fn flush(&mut self) {
        for (_, batch) in &mut self.batches {
            batch.flush();
        }
    }

    /// Lets go of every destination, so that one which no World names any more is closed.
    pub fn forget(&mut self) {
        self.batches.clear();
    }
}
