//! From a response to its line in the access log: formatted into the worker's own buffer and handed
//! over in large pieces, so that logging costs a request no system call and no lock.

use crate::base::log::{self, AccessLogFormat, LogBatch};
use crate::hits::SiteHits;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::worker::Worker;
use crate::wire::reject::Reject;
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::status::Status;
use crate::world::{AccessLog, Host, World};
use rustls::ProtocolVersion;
use std::net::IpAddr;
use std::sync::Arc;

/// Who is at the other end of a connection, and over what.
#[derive(Copy, Clone)]
pub(super) struct ClientInfo {
    pub(super) peer: IpAddr,
    pub(super) tls: Option<&'static str>,
}

/// What is known of an exchange while its head is at hand.
pub(super) struct AccessLogEntry<'a> {
    pub(super) head: Option<&'a RequestHead<'a>>,
    pub(super) host: Option<&'a Host>,
    pub(super) user: Option<&'a str>,
    pub(super) reject: Option<Reject>,
    /// The request line as it came.
    pub(super) first: &'a [u8],
    pub(super) started_us: u64,
}

/// The same, owned: for a response that is sent later.
pub(super) struct OwnedAccessLogEntry {
    access: Option<AccessLog>,
    /// What is counted if it is answered.
    view: Option<PageView>,
    who: ClientInfo,
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
struct PageView {
    hits: Arc<SiteHits>,
    path: Box<[u8]>,
    is_bot: bool,
}

impl<'a> AccessLogEntry<'a> {
    pub(super) fn new(
        worker: &Worker,
        head: Option<&'a RequestHead<'a>>,
        host: Option<&'a Host>,
        user: Option<&'a str>,
    ) -> AccessLogEntry<'a> {
        let first = head.map_or(&[][..], |head| head.line);
        AccessLogEntry {
            head,
            host,
            user,
            reject: None,
            first,
            started_us: worker.clock.micros(),
        }
    }

    /// Where this line goes: the site's log, or the server's where no site was found.
    fn access<'w>(&'w self, world: &'w World) -> Option<&'w AccessLog> {
        match self.host {
            Some(host) => host.access.as_ref(),
            None => world.access.as_ref(),
        }
    }

    /// Bytes that [`AccessLogLine::keep`] takes in memory.
    pub(super) fn kept_bytes(&self, worker: &Worker) -> usize {
        if self.access(&worker.world()).is_none() {
            return 0;
        }
        let head = self.head.map_or(0, |head| {
            let asks = [head.known_fields.referer, head.known_fields.user_agent];
            head.host.len()
                + asks
                    .iter()
                    .flatten()
                    .map(|field| field.len())
                    .sum::<usize>()
        });
        size_of::<OwnedAccessLogEntry>() + self.first.len() + head + self.user.map_or(0, str::len)
    }

    /// Writes the line, if anybody wants it, and counts the view, if it is one.
    pub(super) fn log(&self, status: Status, bytes: u64, worker: &Worker, who: ClientInfo) {
        if is_seen(status)
            && let Some((hits, head)) = self.counted()
        {
            let is_bot = worker.is_bot(head.known_fields.user_agent);
            worker.count(hits, &head.path, is_bot);
        }
        let world = worker.world();
        let Some(access) = self.access(&world) else {
            return;
        };
        let asks = self.head.map(|head| &head.known_fields);
        let line = log::AccessLogLine {
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
        worker.wake_sweep();
    }

    /// Where this request counts as a view, if it is answered.
    fn counted(&self) -> Option<(&Arc<SiteHits>, &RequestHead<'a>)> {
        let head = self.head.filter(|head| head.method == Method::Get)?;
        Some((self.host?.hits.as_ref()?, head))
    }

    /// Keeps what the line needs until the response is sent; None when nobody wants it.
    pub(super) fn keep(
        &self,
        status: Status,
        worker: &Worker,
        who: ClientInfo,
    ) -> Option<Box<OwnedAccessLogEntry>> {
        let world = worker.world();
        let access = self.access(&world).cloned();
        let view = self.counted().map(|(hits, head)| PageView {
            hits: hits.clone(),
            path: head.path.as_ref().into(),
            is_bot: worker.is_bot(head.known_fields.user_agent),
        });
        if access.is_none() && view.is_none() {
            return None;
        }
        // A view alone needs no more.
        let line = access.as_ref().map(|_| self);
        let head = line.and_then(|line| line.head);
        let asks = head.map(|head| &head.known_fields);
        Some(Box::new(OwnedAccessLogEntry {
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

impl OwnedAccessLogEntry {
    /// Writes the line, now that the exchange is over.
    pub(super) fn log(&self, bytes: u64, worker: &Worker) {
        if let Some(view) = self.view.as_ref().filter(|_| is_seen(self.status)) {
            worker.count(&view.hits, &view.path, view.is_bot);
        }
        let Some(access) = &self.access else { return };
        let line = log::AccessLogLine {
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
        worker.wake_sweep();
    }
}

/// Did who asked get to see the page, be it their own copy of it?
fn is_seen(status: Status) -> bool {
    matches!(status, Status::OK | Status::NOT_MODIFIED)
}

/// Only JSON lines say how long it took; then a look at the clock is worth it.
fn took(worker: &Worker, access: &AccessLog, started_us: u64) -> u64 {
    if access.format == AccessLogFormat::Json {
        worker.clock.tick();
    }
    worker.clock.micros() - started_us
}

/// The version of TLS, as the log writes it.
pub(super) fn tls_version(stream: &MaybeTlsStream) -> Option<&'static str> {
    match stream.tls_version()? {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}

/// A worker's lines on their way, by destination.
#[derive(Default)]
pub struct AccessLogBatches {
    batches: Vec<(AccessLog, LogBatch)>,
}

impl AccessLogBatches {
    fn write(&mut self, access: &AccessLog, line: &log::AccessLogLine<'_>, time: &[u8]) {
        let known = self
            .batches
            .iter()
            .position(|(known, _)| known.is_same(access));
        let index = known.unwrap_or_else(|| {
            let batch = LogBatch::new(access.sink.clone(), access.format);
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
