//! The one meeting place: a request's [`RequestHead`] and the World give a [`DispatchOutcome`], whichever version of
//! HTTP asked. Pure but for the ledgers of logins, of kept pages and of what lags behind the disk; nothing
//! here waits.

use super::worker::Worker;
use crate::base::change_tracker::CatchUp;
use crate::cache::{CacheLookup, CachedHandler, LookupContext};
use crate::handler::git::http::is_smart_http;
use crate::handler::pipe::pipe;
use crate::handler::route_handler::{HandlerCall, RouteHandler};
use crate::handler::{Endpoints, Request, Rewrite, Script};
use crate::serve::h1::call;
use crate::serve::subrequest::WorkerSubrequests;
use crate::site::{FileLoad, Listing, ResolvedFile, Site, SiteResponse, VariantResponse};
use crate::tls::PairFingerprint;
use crate::wire::h1::body_decoder::BodyLength;
use crate::wire::reject::Reject;
use crate::wire::request_head::{Method, RequestHead};
use crate::wire::request_target;
use crate::wire::status::Status;
use crate::world::users::{LoginLookup, UnverifiedLogin};
use crate::world::{Host, Route, RouteTarget, World};
use std::net::IpAddr;
use std::sync::Arc;

/// What the connection knows beside the head.
#[derive(Copy, Clone, Debug)]
pub struct DispatchContext {
    /// Came over TLS, with the certificate of this identity.
    pub identity: Option<PairFingerprint>,
    /// Who asks; v4-mapped addresses as v4.
    pub peer: IpAddr,
    /// Over which connection.
    pub endpoints: EndpointLookup,
    /// The worker's clock, milliseconds; the same origin for all workers.
    pub now_ms: u64,
    /// The request is all there, and hasn't waited for the disk's changes yet. One with a body never
    /// does: what came of it may be gone by then.
    pub may_wait: bool,
    /// True if the worker's poller has reported changes on disk that the control plane may not have
    /// read.
    pub has_disk_changes: bool,
}

/// How the ends of a connection are known. A page needs none of them, and asking costs system calls.
#[derive(Copy, Clone, Debug)]
pub enum EndpointLookup {
    /// The kernel knows those of the connection in this row of the worker.
    Row(usize),
    /// They are at hand.
    Known(Endpoints),
}

impl EndpointLookup {
    /// On the connection's worker, while the connection is there.
    pub(super) fn resolve(self) -> Endpoints {
        match self {
            EndpointLookup::Row(row) => {
                Worker::current().map_or_else(Endpoints::default, |it| it.endpoints(row))
            }
            EndpointLookup::Known(ends) => ends,
        }
    }
}

/// A reply and the site it speaks for.
pub struct Dispatched<'w> {
    /// None when no site has this name.
    pub host: Option<&'w Host>,
    /// Who logged in.
    pub user: Option<String>,
    /// What to do.
    pub reply: DispatchOutcome,
    /// It depends on who asks: a guard was met.
    pub guarded: bool,
}

/// What to do for a request.
pub enum DispatchOutcome {
    /// Send this.
    Stored(VariantResponse),
    /// Load this on the pool, then ask again.
    Load(FileLoad),
    /// Check this password on the pool, then ask again.
    Login(Box<UnverifiedLogin>),
    /// Wait for this, then ask again: what isn't there may have come.
    AwaitCatchUp(CatchUp),
    /// Stream this listing.
    Listing(Box<Listing>),
    /// Send the client elsewhere.
    Redirect {
        /// 301 or 308.
        status: Status,
        /// The Location field's value.
        location: Vec<u8>,
    },
    /// Answer OPTIONS: 204 with Allow.
    Options,
    /// Answer a challenge: 200 with this content.
    Challenge(Vec<u8>),
    /// Call a handler.
    Call(HandlerCall),
    /// Say no.
    Refuse {
        /// Why.
        reject: Reject,
        /// The site's own page for this status, if it has one.
        page: Option<VariantResponse>,
    },
}

/// Decides.
pub fn dispatch<'w>(
    world: &'w World,
    head: &RequestHead<'_>,
    facts: &DispatchContext,
) -> Dispatched<'w> {
    let secure = facts.identity.is_some();
    if &*head.path == b"*" {
        let reply = match head.method {
            Method::Options => DispatchOutcome::Options,
            // What follows a CONNECT is not for us to read as requests.
            _ => DispatchOutcome::Refuse {
                reject: Reject {
                    close: true,
                    ..Reject::METHOD_NOT_ALLOWED
                },
                page: None,
            },
        };
        return Dispatched {
            host: None,
            user: None,
            reply,
            guarded: false,
        };
    }
    let Some(host) = world.hosts.find(head.host) else {
        let reject = if secure {
            Reject::HOST_UNKNOWN_TLS
        } else {
            Reject::HOST_UNKNOWN
        };
        return Dispatched {
            host: None,
            user: None,
            reply: DispatchOutcome::Refuse { reject, page: None },
            guarded: false,
        };
    };
    let host: &Host = host;
    // A page of another site may come over this connection only if it would have been given the
    // same certificate and met the same demands (RFC 9110 §15.5.20).
    if facts
        .identity
        .is_some_and(|identity| identity != host.identity)
    {
        return refuse(host, Reject::MISDIRECTED);
    }
    // Before any redirect: it would lead to a certificate that isn't there yet.
    if let Some(answer) = challenge(world, head) {
        return Dispatched {
            host: Some(host),
            user: None,
            reply: DispatchOutcome::Challenge(answer),
            guarded: false,
        };
    }
    let to_https = !secure && host.http_redirects && world.https_port.is_some();
    // HTTP/1.0 may name nobody. Where no name of ours stands in, there is nowhere to send the client,
    // and what the operator keeps to https isn't shown instead.
    if to_https && host.canonical.is_none() && head.host.is_empty() {
        return refuse(host, Reject::HOST_MISSING);
    }
    if let Some(location) = elsewhere(world, host, head, secure) {
        let reply = DispatchOutcome::Redirect {
            status: Status::PERMANENT_REDIRECT,
            location,
        };
        return Dispatched {
            host: Some(host),
            user: None,
            reply,
            guarded: false,
        };
    }
    // The check of a configuration refuses what would lead here; a mistake there must not open the site.
    if !secure && host.demands_certificate {
        return refuse(host, Reject::MISDIRECTED);
    }
    let mut gate = SiteDispatcher {
        world,
        host,
        facts,
        head,
        user: None,
        is_guarded: false,
        query: None,
    };
    let reply = match gate.pass(&head.path) {
        Ok(()) => gate.answer(),
        Err(reply) => reply,
    };
    let reply = match reply {
        DispatchOutcome::Refuse { reject, page: None } => match gate.behind_page(reject) {
            Some(behind) => behind,
            None => with_page(Some(host), reject, head.method),
        },
        reply => reply,
    };
    Dispatched {
        host: Some(host),
        user: gate.user,
        reply,
        guarded: gate.is_guarded,
    }
}

/// Puts a path that a handler is about to open before the guards of its site; the client and its login
/// are those of `head`. Gives the user that logged in, or the reply that stands in the way; and whether
/// any guard was met.
pub(super) fn admit(
    world: &World,
    head: &RequestHead<'_>,
    facts: &DispatchContext,
    path: &[u8],
) -> (Result<Option<String>, DispatchOutcome>, bool) {
    let Some(host) = world.hosts.find(head.host) else {
        let reject = Reject::HOST_UNKNOWN;
        return (Err(DispatchOutcome::Refuse { reject, page: None }), true);
    };
    let mut gate = SiteDispatcher {
        world,
        host,
        facts,
        head,
        user: None,
        is_guarded: false,
        query: None,
    };
    let passed = gate.pass(path);
    (passed.map(|()| gate.user), gate.is_guarded)
}

/// What whoever validates this name by http-01 is to find (RFC 8555 §8.3), if that is pending.
fn challenge(world: &World, head: &RequestHead<'_>) -> Option<Vec<u8>> {
    let token = head.path.strip_prefix(CHALLENGE_PATH)?;
    world.challenges.as_ref()?.http(head.host, token)
}

fn refuse(host: &Host, reject: Reject) -> Dispatched<'_> {
    Dispatched {
        host: Some(host),
        user: None,
        reply: DispatchOutcome::Refuse { reject, page: None },
        guarded: false,
    }
}

/// The site's own page for this refusal; loading it comes first if need be.
pub(super) fn with_page(host: Option<&Host>, reject: Reject, method: Method) -> DispatchOutcome {
    match host
        .and_then(|host| host.site.as_ref())
        .and_then(|site| site.error_page(reject.status, method))
    {
        Some(SiteResponse::Stored(page)) => DispatchOutcome::Refuse {
            reject,
            page: Some(page),
        },
        Some(SiteResponse::Load(load)) => DispatchOutcome::Load(load),
        _ => DispatchOutcome::Refuse { reject, page: None },
    }
}

/// Where a client belongs that came by plain HTTP, or under a name that isn't the canonical one.
///
/// Both are mended by one redirect, except that under HSTS the same host comes first over https, so
/// that the browser learns the policy for it too (the preload lists ask for this).
fn elsewhere(world: &World, host: &Host, head: &RequestHead<'_>, secure: bool) -> Option<Vec<u8>> {
    let to_https = !secure && host.http_redirects && world.https_port.is_some();
    let canonical = host.canonical.as_deref();
    let misnamed = canonical.is_some_and(|name| !head.host.eq_ignore_ascii_case(name))
        && !head.host.is_empty();
    if !to_https && !misnamed {
        return None;
    }
    let same_host_first = to_https && host.hsts;
    let name = match canonical {
        Some(name) if !same_host_first || head.host.is_empty() => name,
        // Only a name that this site answers to comes here: `find` looked it up.
        _ if !head.host.is_empty() => head.host,
        _ => return None,
    };
    let mut location = Vec::with_capacity(32 + name.len() + head.raw_path.len());
    let https = to_https || secure;
    location.extend_from_slice(if https { b"https://" } else { b"http://" });
    location.extend_from_slice(name);
    let port = match https {
        true => world.https_port.filter(|port| *port != 443),
        false => asked_port(head).filter(|port| *port != 80),
    };
    if let Some(port) = port {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    location.extend_from_slice(head.raw_path);
    push_query(&mut location, head);
    Some(location)
}

/// The port in Host, which a redirect to another name keeps.
fn asked_port(head: &RequestHead<'_>) -> Option<u16> {
    let host = head.fields.first("host")?;
    request_target::valid_host(host)?.1
}

fn push_query(location: &mut Vec<u8>, head: &RequestHead<'_>) {
    if let Some(query) = head.query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
}

/// The same where the operator wrote the location, maybe with a query or a fragment of its own.
fn add_query(location: &mut Vec<u8>, head: &RequestHead<'_>) {
    let Some(query) = head.query else { return };
    let end = location.iter().position(|byte| *byte == b'#');
    let fragment = location.split_off(end.unwrap_or(location.len()));
    let has_query = location.contains(&b'?');
    location.push(if has_query { b'&' } else { b'?' });
    location.extend_from_slice(query);
    location.extend_from_slice(&fragment);
}

/// A request at the gates of one site.
struct SiteDispatcher<'w, 'h> {
    world: &'w World,
    host: &'w Host,
    facts: &'h DispatchContext,
    head: &'h RequestHead<'h>,
    user: Option<String>,
    is_guarded: bool,
    /// What a script is told instead of the query that was asked for, once something led to it that
    /// says so.
    query: Option<Vec<u8>>,
}

impl SiteDispatcher<'_, '_> {
    /// All guards of `path`: the addresses of every route first, then the logins.
    fn pass(&mut self, path: &[u8]) -> Result<(), DispatchOutcome> {
        if !self.host.guarded {
            return Ok(());
        }
        self.is_guarded |= self.host.guards(path).next().is_some();
        let denied = |route: &Route| {
            route
                .allow
                .as_ref()
                .is_some_and(|allow| !allow.contains(self.facts.peer))
        };
        if self.host.guards(path).any(denied) {
            return Err(DispatchOutcome::Refuse {
                reject: Reject::ADDRESS_DENIED,
                page: None,
            });
        }
        for users in self
            .host
            .guards(path)
            .filter_map(|route| route.users.as_ref())
        {
            let Some(authorization) = self.head.known_fields.authorization else {
                return Err(DispatchOutcome::Refuse {
                    reject: Reject::LOGIN_NEEDED,
                    page: None,
                });
            };
            let (client, now_ms) = (self.facts.peer.into(), self.facts.now_ms);
            let logins = &self.world.logins;
            match logins.check(users, authorization, client, now_ms) {
                LoginLookup::Known(user) => self.user = Some(user),
                LoginLookup::Wrong => {
                    return Err(DispatchOutcome::Refuse {
                        reject: Reject::LOGIN_WRONG,
                        page: None,
                    });
                }
                LoginLookup::TooManyFailed => {
                    return Err(DispatchOutcome::Refuse {
                        reject: Reject::LOGINS_FAILED,
                        page: None,
                    });
                }
                LoginLookup::Unverified(ask) => return Err(DispatchOutcome::Login(Box::new(ask))),
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> DispatchOutcome {
        let path: &[u8] = &self.head.path;
        match self.host.target(path) {
            None => self.ask_own_site(path),
            Some((RouteTarget::Handler(handler), _)) => self.call(handler, None, None),
            Some((RouteTarget::Cached(cached), _)) => self.ask_cache(cached, None, None),
            Some((RouteTarget::Git { exchanges, pages }, rest)) => {
                match is_smart_http(self.head.method, rest, self.head.query) {
                    true => self.call(exchanges, None, None),
                    false => self.ask_cache(pages, None, None),
                }
            }
            Some((RouteTarget::Redirect(to), rest)) => {
                let mut location = to.to_vec();
                if to.ends_with(b"/") {
                    request_target::encode_path(
                        rest.strip_prefix(b"/").unwrap_or(rest),
                        &mut location,
                    );
                }
                add_query(&mut location, self.head);
                DispatchOutcome::Redirect {
                    status: Status::PERMANENT_REDIRECT,
                    location,
                }
            }
            Some((RouteTarget::Rewrite { path: to, query }, rest)) => {
                let mut rewritten = to.to_vec();
                if to.ends_with(b"/") {
                    rewritten.extend_from_slice(rest.strip_prefix(b"/").unwrap_or(rest));
                }
                if let Some(query) = query {
                    self.query = Some(query.fill(path, rest, self.head.query));
                }
                // A guard protects what is opened, by whichever name it was asked for.
                match self.pass(&rewritten) {
                    Ok(()) => self.rewritten(&rewritten),
                    Err(reply) => reply,
                }
            }
            Some((RouteTarget::Site(site), rest)) => self.ask_mounted(site, path, rest),
        }
    }

    /// Returns the reply for `path`, the target of a rewrite: from the handler or the folder of another
    /// route, or from the host's own site. A redirect or a second rewrite at the target is not
    /// followed.
    fn rewritten(&mut self, path: &[u8]) -> DispatchOutcome {
        match self.host.target(path) {
            Some((RouteTarget::Site(site), rest)) => self.ask_mounted(site, path, rest),
            _ => match self.handler_at(path) {
                Some(reply) => reply,
                None => self.ask_own_site(path),
            },
        }
    }

    /// Asks the folder of a route; `rest` is what follows the route's prefix in `path`.
    #[inline(never)]
    fn ask_mounted(&mut self, site: &Site, path: &[u8], rest: &[u8]) -> DispatchOutcome {
        let prefix = &path[..path.len() - rest.len()];
        // The host's own site would run this file as a script. A mounted folder runs no scripts, and
        // the source of a script stays secret.
        if self.host.scripted
            && let Some(opened) = site.resolved_path(rest)
            && self.host.scripts(&[prefix, &opened].concat()).is_some()
        {
            return DispatchOutcome::Refuse {
                reject: Reject::SCRIPT_NOT_EXECUTABLE,
                page: None,
            };
        }
        self.ask_site(site, prefix, rest)
    }

    /// What the handler of another route says to `path`, which a rewrite leads to, if there is one.
    fn handler_at(&self, path: &[u8]) -> Option<DispatchOutcome> {
        let (target, rest) = self.host.target(path)?;
        Some(match target {
            RouteTarget::Handler(handler) => self.call(handler, Some(path), None),
            RouteTarget::Cached(cached) => self.ask_cache(cached, Some(path), None),
            RouteTarget::Git { exchanges, pages } => {
                match is_smart_http(self.head.method, rest, self.head.query) {
                    true => self.call(exchanges, Some(path), None),
                    false => self.ask_cache(pages, Some(path), None),
                }
            }
            _ => return None,
        })
    }

    /// Returns the reply that calls a handler for this rewritten path, or for this script of the site.
    fn call(
        &self,
        handler: &RouteHandler,
        path: Option<&[u8]>,
        script: Option<Script>,
    ) -> DispatchOutcome {
        DispatchOutcome::Call(HandlerCall {
            handler: handler.clone(),
            script,
            rewrite: self.rewrite(path),
        })
    }

    /// Returns the path of a rewrite with the query that belongs to it.
    fn rewrite(&self, path: Option<&[u8]>) -> Rewrite {
        Rewrite {
            path: path.map(<[u8]>::to_vec),
            query: self.query.clone(),
        }
    }

    /// The last of `try` leads to something that runs, for `path`: its query counts.
    fn lead_by_try(&mut self, path: &[u8]) {
        if let Some(query) = &self.host.try_query {
            let before = self.query.as_deref().or(self.head.query);
            self.query = Some(query.fill(path, path, before));
        }
    }

    /// What a site that has nothing says instead, if its `try` leads to what runs in the end.
    fn fall_back(&mut self, path: &[u8]) -> Option<DispatchOutcome> {
        let fallback = self.host.fallback.as_ref()?;
        self.lead_by_try(path);
        let path = fallback.path(path);
        if let Err(reply) = self.pass(&path) {
            return Some(reply);
        }
        if !fallback.is_script {
            return self.handler_at(&path);
        }
        let host = self.host;
        let script = named_script(host, host.site.as_ref()?, &path)?;
        self.run(script)
    }

    /// Returns the stored page, or the call of the handler behind the page cache, for this rewritten path
    /// or for this script of the site. The request is copied only for a call.
    fn ask_cache(
        &self,
        cached: &Arc<CachedHandler>,
        path: Option<&[u8]>,
        script: Option<Script>,
    ) -> DispatchOutcome {
        let secure = self.facts.identity.is_some();
        let caller = LookupContext {
            user: self.user.as_deref(),
            secure,
            now_ms: self.facts.now_ms,
        };
        let request = || {
            let (writer, body) = pipe(1);
            writer.finish();
            let (facts, ends) = (self.facts, self.facts.endpoints.resolve());
            let inside = Worker::current().map(|it| WorkerSubrequests::of(&it, *facts, ends));
            let user = self.user.clone();
            let request = call::handler_request(self.head, user, facts, ends, body, inside);
            Request {
                script: script.clone(),
                rewrite: self.rewrite(path),
                ..request
            }
        };
        match cached.lookup(self.head, &caller, request) {
            CacheLookup::Kept(stored) => DispatchOutcome::Stored(stored),
            CacheLookup::Call(handler) => self.call(&handler.into(), path, script),
        }
    }

    /// Returns the wait for all changes of this site that were reported before the request; None if
    /// there are none.
    fn behind(&self) -> Option<DispatchOutcome> {
        match self.may_wait() {
            true => self
                .host
                .lag
                .pending_catch_up()
                .map(DispatchOutcome::AwaitCatchUp),
            false => None,
        }
    }

    fn may_wait(&self) -> bool {
        let is_bodiless = matches!(self.head.body, BodyLength::None | BodyLength::Length(0));
        self.facts.may_wait && is_bodiless
    }

    /// Returns true if the disk may have changed before this request in a way that the current World
    /// does not show. Without changes on disk the check costs two loads and a flag.
    fn lags(&self) -> bool {
        let is_told = self.facts.has_disk_changes
            && Worker::current().is_some_and(|it| it.poller.has_unread_changes());
        is_told || !self.host.lag.is_caught_up()
    }

    /// Compares the answer of `site` for `path` with the disk. Returns the wait for the next World if
    /// the two differ, whether or not the kernel has reported a change.
    #[inline(never)]
    fn behind_path(&self, site: &Site, path: &[u8]) -> Option<DispatchOutcome> {
        if !self.may_wait() {
            return None;
        }
        let differing = site.first_stale_path(path)?;
        site.note_stale(&differing);
        self.host
            .lag
            .request_recheck()
            .map(DispatchOutcome::AwaitCatchUp)
    }

    /// Compares the site's error page for `reject` with the disk. Returns the wait for the next World
    /// if the two differ.
    fn behind_page(&self, reject: Reject) -> Option<DispatchOutcome> {
        let site = self.host.site.as_ref().filter(|_| self.lags())?;
        self.behind_path(site, site.error_path(reject.status)?)
    }

    fn ask_own_site(&mut self, path: &[u8]) -> DispatchOutcome {
        match self.own_site(path) {
            DispatchOutcome::Refuse { reject, page: None } if is_nothing(reject) => {
                let instead = self.fall_back(path);
                instead.unwrap_or(DispatchOutcome::Refuse { reject, page: None })
            }
            reply => reply,
        }
    }

    fn own_site(&mut self, path: &[u8]) -> DispatchOutcome {
        match &self.host.site {
            Some(site) => match self.script(site, path) {
                Some(reply) => reply,
                None => self.ask_site(site, b"", path),
            },
            None => DispatchOutcome::Refuse {
                reject: Reject::NOT_FOUND,
                page: None,
            },
        }
    }

    /// What runs the file that answers for `path`, if it is one to be run and not to be sent.
    fn script(&mut self, site: &Site, path: &[u8]) -> Option<DispatchOutcome> {
        if !self.host.scripted {
            return None;
        }
        let named = named_script(self.host, site, path);
        let is_named = named.is_some();
        let (script, by_last) = match named {
            Some(script) => (script, false),
            None => {
                let ResolvedFile { path, by_last } = site.resolve_file(path)?;
                let path_info = Vec::new();
                let script = Script {
                    name: path,
                    path_info,
                };
                (script, by_last)
            }
        };
        let is_run = self.host.scripts(&script.name).is_some();
        if is_run
            && !is_named
            && site.is_fallback(path)
            && let Some(behind) = self.behind_path(site, path)
        {
            return Some(behind);
        }
        if is_run && by_last && self.host.fallback.is_none() {
            self.lead_by_try(path);
        }
        self.run(script)
    }

    /// What runs a file of the site, if it is one to be run.
    fn run(&mut self, script: Script) -> Option<DispatchOutcome> {
        let scripts = self.host.scripts(&script.name)?;
        // A guard protects what is run, by whichever name it was asked for, and what follows the name.
        let host = self.host;
        let mut names = vec![script.name.clone()];
        if let Some(site) = host.site.as_ref().filter(|_| host.guarded) {
            names.extend(site.aliases(&script.name));
        }
        for name in names {
            if let Err(reply) = self.pass(&[name, script.path_info.clone()].concat()) {
                return Some(reply);
            }
        }
        Some(match &scripts.cache {
            Some(cached) => self.ask_cache(cached, None, Some(script)),
            None => self.call(&scripts.handler, None, Some(script)),
        })
    }

    /// Asks `site`, mounted at `prefix`, for `path`.
    fn ask_site(&mut self, site: &Site, prefix: &[u8], path: &[u8]) -> DispatchOutcome {
        if self.host.guarded {
            let opened = site.resolved_path(path).into_iter();
            for opened in opened.chain(site.aliases(path)) {
                if let Err(reply) = self.pass(&[prefix, &opened].concat()) {
                    return reply;
                }
            }
        }
        match site.answer(self.head, path) {
            SiteResponse::Stored(stored) if !self.must_compare(&stored) => {
                DispatchOutcome::Stored(stored)
            }
            answer => self.compared(site, path, answer),
        }
    }

    /// Returns true if the stored page must be compared with the disk. Without changes on disk the
    /// check costs a few loads.
    fn must_compare(&self, stored: &VariantResponse) -> bool {
        stored.variant.is_due(self.facts.now_ms) || stored.stands_in || self.lags()
    }

    /// Returns the reply for an answer of the site, or the wait for the next World if the disk
    /// contradicts the answer.
    #[inline(never)]
    fn compared(&self, site: &Site, path: &[u8], answer: SiteResponse) -> DispatchOutcome {
        let behind = match &answer {
            SiteResponse::Load(_) if !self.lags() => None,
            SiteResponse::Stored(_) | SiteResponse::Load(_) | SiteResponse::Redirect { .. } => {
                self.behind_path(site, path)
            }
            SiteResponse::Refuse(reject) if is_nothing(*reject) || *reject == Reject::CHANGING => {
                self.behind_path(site, path)
            }
            SiteResponse::Refuse(Reject::LINK_LEAVES | Reject::UNREADABLE)
            | SiteResponse::Listing(_) => self.behind(),
            SiteResponse::Options | SiteResponse::Refuse(_) => None,
        };
        behind.unwrap_or_else(|| match answer {
            SiteResponse::Stored(stored) => DispatchOutcome::Stored(stored),
            SiteResponse::Load(load) => DispatchOutcome::Load(load),
            SiteResponse::Listing(listing) => DispatchOutcome::Listing(listing),
            SiteResponse::Options => DispatchOutcome::Options,
            SiteResponse::Refuse(reject) => DispatchOutcome::Refuse { reject, page: None },
            SiteResponse::Redirect { path } => {
                let mut location = path;
                push_query(&mut location, self.head);
                DispatchOutcome::Redirect {
                    status: Status::MOVED_PERMANENTLY,
                    location,
                }
            }
        })
    }
}

/// Is there nothing under a path, as against something that isn't shown?
fn is_nothing(reject: Reject) -> bool {
    reject == Reject::NOT_FOUND || reject == Reject::NO_INDEX
}

/// A script that the path goes on behind: `/a.php/more` is `a.php` with the rest for it.
fn named_script(host: &Host, site: &Site, path: &[u8]) -> Option<Script> {
    let slashes = (1..path.len()).filter(|at| path[*at] == b'/');
    let mut ends = slashes.filter(|at| host.scripts(&path[..*at]).is_some());
    let end =
        ends.find(|end| site.resolved_path(&path[..*end]).as_deref() == Some(&path[..*end]))?;
    Some(Script {
        name: path[..end].to_vec(),
        path_info: path[end..].to_vec(),
    })
}

/// Where challenges are asked for (RFC 8555 §8.3).
const CHALLENGE_PATH: &[u8] = b"/.well-known/acme-challenge/";
/// The methods of a stored page, for Allow.
pub const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";
