//! Access log lines of responses. Lines are formatted into a buffer of the worker and handed to the log in
//! large pieces, so that logging costs a request no system call and no lock.

use crate::hits::SiteHits;
use crate::ledger::access_log::{AccessLogFormat, AccessLogLine, MemberCall};
use crate::ledger::active_requests::{ActiveRequest, ActiveTarget};
use crate::ledger::route_counters::{CacheOutcome, ResponseSeries, RouteCounters};
use crate::serve::context::WorkerContext;
use crate::serve::dispatch_context::Audience;
use crate::serve::forwarding::client_of;
use crate::serve::matched_request::MatchedRequest;
use crate::serve::maybe_tls_stream::MaybeTlsStream;
use crate::serve::rare_events;
use crate::serve::refusal::ErrorPages;
use crate::serve::ruled_request::{RuledRequest, Visitor};
use crate::serve::synthetic_response::refusal_fields;
use crate::world::log_skip::StatusSet;
use crate::world::{AccessLog, Host, SecureFields, World};
use rustls::ProtocolVersion;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead, Version};
use wire::status::Status;

/// Client of a connection: the address, and the TLS version if any.
#[derive(Copy, Clone)]
pub(super) struct ClientInfo {
    pub(super) peer: IpAddr,
    pub(super) audience: Audience,
    pub(super) tls: Option<&'static str>,
}

/// Data of a log line, borrowed from the request while the head is in memory.
pub(super) struct AccessLogEntry<'a> {
    pub(super) head: Option<&'a RequestHead<'a>>,
    pub(super) host: Option<&'a Host>,
    /// Counters of the route; None without a site.
    pub(super) counters: Option<&'a Arc<RouteCounters>>,
    /// Effect of the rules by request, if any.
    pub(super) ruled: Option<&'a RuledRequest<'a>>,
    pub(super) version: Version,
    pub(super) cache: CacheOutcome,
    pub(super) user: Option<&'a str>,
    pub(super) reject: Option<Reject>,
    /// The request line as received.
    pub(super) first: &'a [u8],
    pub(super) started_us: u64,
}

/// Owned data of a log line, for a response that is sent later.
pub(super) struct OwnedAccessLogEntry {
    access: Option<AccessLog>,
    /// Statuses with which the response has no line.
    skipped: Option<Box<StatusSet>>,
    /// View to count if the response is sent.
    view: Option<PageView>,
    who: ClientInfo,
    first: Vec<u8>,
    host: Vec<u8>,
    port: u16,
    referer: Option<Vec<u8>>,
    agent: Option<Vec<u8>>,
    user: Option<String>,
    /// Member that answered a proxied request, or that failed last.
    pub(super) member: Option<Box<MemberCall>>,
    started_us: u64,
}

/// A view of a page, counted for the site.
struct PageView {
    hits: Arc<SiteHits>,
    path: Box<[u8]>,
    is_bot: bool,
}

impl<'a> AccessLogEntry<'a> {
    pub(super) fn new(
        context: &WorkerContext,
        head: &'a RequestHead<'a>,
        request: &'a MatchedRequest<'a>,
    ) -> AccessLogEntry<'a> {
        AccessLogEntry {
            head: Some(head),
            host: request.host,
            counters: request.counters,
            ruled: request.ruled.as_deref(),
            version: head.version,
            cache: CacheOutcome::None,
            user: request.user.as_deref(),
            reject: None,
            first: head.line,
            started_us: context.clock.micros(),
        }
    }

    /// Creates the entry of a request with a head that can't be parsed. `first` is the request line as far as received.
    pub(super) fn unparsed(
        context: &WorkerContext,
        version: Version,
        first: &'a [u8],
        reject: Reject,
    ) -> AccessLogEntry<'a> {
        AccessLogEntry {
            head: None,
            host: None,
            counters: None,
            ruled: None,
            version,
            cache: CacheOutcome::None,
            user: None,
            reject: Some(reject),
            first,
            started_us: context.clock.micros(),
        }
    }

    /// Returns the fields of the site and of cross-origin access for the response.
    #[inline]
    pub(super) fn secure_fields(&self) -> Option<&'a Arc<SecureFields>> {
        let ruled = self.ruled;
        let ruled = ruled.and_then(|ruled| ruled.own_fields.as_ref().or(ruled.secure_fields));
        ruled.or_else(|| self.host.map(|host| &host.secure_fields))
    }

    /// Returns the client for a handler: the user, and the answers of servers for forward authentication.
    pub(super) fn visitor(&self) -> Visitor {
        Visitor {
            user: self.user.map(str::to_owned),
            answers: self.ruled.and_then(|ruled| ruled.answers.clone()),
        }
    }

    /// Returns the site that provides the error pages of a call.
    pub(super) fn error_pages(&self) -> Option<ErrorPages> {
        let site = self.host.and_then(|host| host.site.clone())?;
        let head = self.head.filter(|_| site.rules().has_error_pages_by_path());
        Some(ErrorPages {
            path: head.map_or_else(Box::default, |head| (*head.path).into()),
            site,
            has_cors: self.ruled.is_some_and(|ruled| ruled.has_cors),
        })
    }

    /// Returns the largest content for a handler in bytes.
    pub(super) fn body_bytes_max(&self, world: &World) -> u64 {
        let ruled = self.ruled.and_then(|ruled| ruled.body_bytes);
        ruled.unwrap_or(world.limits.body_bytes)
    }

    /// Returns the field lines that the refusal requires.
    pub(super) fn refusal_fields(&self, reject: Reject) -> &[u8] {
        let ruled = self.ruled.and_then(|ruled| ruled.refusal_fields.as_deref());
        ruled.unwrap_or(refusal_fields(reject))
    }

    /// Returns the log for the line: the log of the site, or the server's log where no site was found.
    fn access<'w>(&'w self, world: &'w World) -> Option<&'w AccessLog> {
        match self.host {
            Some(host) => host.access.as_ref(),
            None => world.access.as_ref(),
        }
    }

    /// Reports a refusal with a cause on the disk, which the client alone would see otherwise.
    pub(super) fn report(&self, reject: Reject, context: &WorkerContext) {
        if matches!(reject, Reject::LINK_LEAVES | Reject::UNREADABLE)
            && let (Some(host), Some(path)) = (self.host, self.path())
        {
            rare_events::log_file(context, host, path, reject);
        }
    }

    /// Returns the decoded path of a request that could be parsed.
    fn path(&self) -> Option<&[u8]> {
        self.head.map(|head| head.path.as_ref())
    }

    /// Returns the bytes of memory taken by [`AccessLogEntry::keep`]: the entry among the requests under way, and the
    /// data of the line.
    pub(super) fn kept_bytes(&self, context: &WorkerContext) -> usize {
        let active = self.head.map_or(0, |head| {
            size_of::<ActiveRequest>() + ActiveTarget::bytes(head.host, &head.path)
        });
        if self.access(&context.world()).is_none() {
            return active;
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
        active
            + size_of::<OwnedAccessLogEntry>()
            + size_of::<StatusSet>()
            + self.first.len()
            + head
            + self.user.map_or(0, str::len)
    }

    /// Returns the client of the request, which is not the peer of the connection behind a trusted proxy.
    #[inline]
    pub(super) fn client(&self, world: &World, who: ClientInfo) -> ClientInfo {
        match self.head {
            Some(head) => ClientInfo {
                peer: client_of(world, who.audience, who.peer, head),
                ..who
            },
            None => who,
        }
    }

    /// Counts and logs a complete response.
    #[inline]
    pub(super) fn finish(
        &self,
        status: Status,
        bytes: u64,
        context: &WorkerContext,
        who: ClientInfo,
    ) {
        let micros = context.clock.micros() - self.started_us;
        context.stats.response(status.0, bytes, micros);
        let series = ResponseSeries {
            version: self.version as u8,
            cache: self.cache,
        };
        context.count_response(self.counters, series, status, bytes);
        self.log(status, bytes, context, who);
    }

    /// Counts the refusal, writes the line where a log is configured, and counts the view where the response is
    /// a view.
    pub(super) fn log(&self, status: Status, bytes: u64, context: &WorkerContext, who: ClientInfo) {
        if let Some(reject) = self.reject {
            context.count_refusal(reject.rule);
            self.report(reject, context);
        }
        if is_seen(status)
            && let Some((hits, head)) = self.counted()
        {
            let is_bot = context.is_bot(head.known_fields.user_agent);
            context.count(hits, &head.path, is_bot);
        }
        let world = context.world();
        let Some(access) = self.access(&world) else {
            return;
        };
        if access.skips(self.head, status.0) {
            return;
        }
        let who = self.client(&world, who);
        let asks = self.head.map(|head| &head.known_fields);
        let line = AccessLogLine {
            peer: who.peer,
            user: self.user,
            unix_ms: context.clock.unix_ms(),
            request: &loggable(self.first, who.audience),
            status: status.0,
            bytes,
            referer: asks.and_then(|asks| asks.referer),
            agent: asks.and_then(|asks| asks.user_agent),
            host: self.head.map(|head| head.host),
            port: port(&world, who),
            rule: self.reject.map_or(0, |reject| reject.rule),
            tls: who.tls,
            micros: took(context, access, self.started_us),
            member: None,
        };
        context.log_access(access, &line);
    }

    /// Returns the site's counter for a request that counts as a view once answered.
    fn counted(&self) -> Option<(&Arc<SiteHits>, &RequestHead<'a>)> {
        let head = self.head.filter(|head| head.method == Method::Get)?;
        Some((self.host?.hits.as_ref()?, head))
    }

    /// Copies the data of the line of a client. Returns `None` where the response needs neither a line nor a count
    /// of the view.
    pub(super) fn keep_line(
        &self,
        context: &WorkerContext,
        world: &World,
        client: ClientInfo,
    ) -> Option<Box<OwnedAccessLogEntry>> {
        let access = self.access(world).cloned();
        let view = self.counted().map(|(hits, head)| PageView {
            hits: hits.clone(),
            path: head.path.as_ref().into(),
            is_bot: context.is_bot(head.known_fields.user_agent),
        });
        if access.is_none() && view.is_none() {
            return None;
        }
        // A view without a log line needs no more data.
        let line = access.as_ref().map(|_| self);
        let head = line.and_then(|line| line.head);
        let asks = head.map(|head| &head.known_fields);
        Some(Box::new(OwnedAccessLogEntry {
            first: line.map(|line| line.first.to_vec()).unwrap_or_default(),
            skipped: access
                .as_ref()
                .and_then(|it| it.skipped_statuses(self.head)),
            access,
            view,
            who: client,
            host: head.map(|head| head.host.to_vec()).unwrap_or_default(),
            port: port(world, client),
            referer: asks.and_then(|asks| asks.referer).map(<[u8]>::to_vec),
            agent: asks.and_then(|asks| asks.user_agent).map(<[u8]>::to_vec),
            user: line.and_then(|line| line.user).map(str::to_owned),
            member: None,
            started_us: self.started_us,
        }))
    }
}

impl OwnedAccessLogEntry {
    /// Writes the line after the end of the exchange. `rule` is the number of the rule that refused the request,
    /// or 0.
    pub(super) fn log(&self, status: Status, rule: u16, bytes: u64, context: &WorkerContext) {
        if let Some(view) = self.view.as_ref().filter(|_| is_seen(status)) {
            context.count(&view.hits, &view.path, view.is_bot);
        }
        let Some(access) = &self.access else { return };
        let skipped = self.skipped.as_ref();
        if skipped.is_some_and(|it| it.contains(status.0)) {
            return;
        }
        let line = AccessLogLine {
            peer: self.who.peer,
            user: self.user.as_deref(),
            unix_ms: context.clock.unix_ms(),
            request: &loggable(&self.first, self.who.audience),
            status: status.0,
            bytes,
            referer: self.referer.as_deref(),
            agent: self.agent.as_deref(),
            host: Some(&self.host),
            port: self.port,
            rule,
            tls: self.who.tls,
            micros: took(context, access, self.started_us),
            member: self.member.as_deref(),
        };
        context.log_access(access, &line);
    }
}

/// Returns the port of the server for the log: the port in `listen` of the site, the port of URLs with `https`, or the
/// default port of `http`.
fn port(world: &World, client: ClientInfo) -> u16 {
    match (client.audience.own_listener(), client.tls) {
        (Some(listener), _) => listener.port(),
        (None, Some(_)) => world.https_port.unwrap_or(443),
        (None, None) => 80,
    }
}

/// Returns a request line for the log. The query of a request to the manager is left out, because the query may have
/// the secret of a login.
fn loggable(first: &[u8], audience: Audience) -> Cow<'_, [u8]> {
    let query = match audience {
        Audience::Public | Audience::Own(_) => None,
        Audience::Manager => first.iter().position(|byte| *byte == b'?'),
    };
    let Some(query) = query else {
        return Cow::Borrowed(first);
    };
    let version = first.iter().rposition(|byte| *byte == b' ');
    let version = version.map_or(&[][..], |at| &first[at..]);
    let version = Some(version).filter(|it| it.starts_with(b" HTTP/"));
    Cow::Owned([&first[..query], version.unwrap_or_default()].concat())
}

/// Returns true if the client sees the page, possibly from the client's own cache (304).
fn is_seen(status: Status) -> bool {
    matches!(status, Status::OK | Status::NOT_MODIFIED)
}

/// Returns the duration of the exchange in microseconds. Only JSON lines contain the duration, so the clock
/// is read for JSON lines alone.
fn took(context: &WorkerContext, access: &AccessLog, started_us: u64) -> u64 {
    if access.format == AccessLogFormat::Json {
        context.clock.tick();
    }
    context.clock.micros() - started_us
}

/// Returns the version of TLS as written to the log.
pub(super) fn tls_version(stream: &MaybeTlsStream) -> Option<&'static str> {
    match stream.tls_version()? {
        ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
        ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
        _ => None,
    }
}
