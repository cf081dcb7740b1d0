//! Dispatch of a request: the function `dispatch` turns a [`RequestHead`] and the World into a
//! [`Step`], for all versions of HTTP.
//!
//! Dispatch never waits. The only state changes are in the ledgers of logins, of cached pages and of
//! changes on disk.

use crate::cache::{CacheLookup, CachedHandler, LookupContext};
use crate::handler::compression::{CompressionQuestion, CompressionRule, is_own_page};
use crate::handler::route_handler::{HandlerCall, RouteHandler};
use crate::handler::{Admission, Request, Rewrite, Script};
use crate::serve::access::{AccessDenied, AccessGate};
use crate::serve::auth_answers::AuthAnswers;
use crate::serve::before_site::{before_site, push_query};
use crate::serve::disk_comparison::{DiskComparison, is_nothing};
use crate::serve::dispatch_context::{Audience, DispatchContext};
use crate::serve::matched_request::MatchedRequest;
use crate::serve::named_resources::NamedResources;
use crate::serve::step::{ReadyResponse, Step, Wait};
use crate::serve::synthetic_response::SyntheticResponse;
use crate::site::{Resolution, Site, SiteResponse};
use crate::world::path_policy::{shared_cors, smallest_body_bytes};
use crate::world::preview::PreviewState;
use crate::world::{Host, PathPolicy, RouteTarget, SiteScripts, World};
use release::redirects::{RedirectTable, Redirected};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::path_readings::{self, PathReadings};
use wire::reject::Reject;
use wire::request_head::{Method, RequestHead};
use wire::smart_http::{is_push, is_smart_http};
use wire::status::Status;

/// Builder of the owned request of a cached handler. The page cache stores the responses of a cached handler.
pub(crate) trait RequestBuilder {
    /// Creates the request from `head`, for the user that logged in.
    fn build(
        &self,
        head: &RequestHead<'_>,
        context: &DispatchContext,
        user: Option<String>,
    ) -> Request;
}

/// Result of a dispatch.
pub(super) struct Dispatched<'w> {
    pub(super) step: Step,
    pub(super) request: MatchedRequest<'w>,
}

impl<'w> Dispatched<'w> {
    /// Creates the result for a request that no guard has checked.
    #[inline]
    pub(super) fn unguarded(host: Option<&'w Host>, step: Step) -> Dispatched<'w> {
        Dispatched {
            step,
            request: MatchedRequest {
                host,
                counters: host.map(|host| &host.counters),
                ..MatchedRequest::default()
            },
        }
    }
}

/// Decides how to answer a request. `request_builder` makes the owned request with which the page cache
/// calls a cached handler to revalidate a stale page. `answers` are those of servers for forward authentication so far.
pub(super) fn dispatch<'w>(
    world: &'w World,
    head: &RequestHead<'_>,
    context: &DispatchContext,
    request_builder: &dyn RequestBuilder,
    answers: Option<&AuthAnswers>,
) -> Dispatched<'w> {
    if &*head.path == b"*" {
        return Dispatched::unguarded(None, of_server(head.method));
    }
    if context.audience == Audience::Manager {
        return Dispatched::unguarded(None, of_manager(world, head));
    }
    let Some(host) = world.hosts.find(context.audience.own_listener(), head.host) else {
        return Dispatched::unguarded(
            None,
            Step::refuse(match context.identity {
                Some(_) => Reject::HOST_UNKNOWN_TLS,
                None => Reject::HOST_UNKNOWN,
            }),
        );
    };
    let host: &Host = host;
    let policy = host.policy(&head.path);
    let readings = match &head.path {
        Cow::Borrowed(_) => None,
        Cow::Owned(path) => match host.readings(policy, head.raw_path, path) {
            Ok(readings) => readings,
            Err(reject) => return Dispatched::unguarded(Some(host), Step::refuse(reject)),
        },
    };
    let forwarded;
    let context = if world.trust.is_empty() {
        context
    } else {
        match context.behind_proxy(&world.trust, head) {
            Ok(context) => {
                forwarded = context;
                &forwarded
            }
            Err(reject) => return Dispatched::unguarded(Some(host), Step::refuse(reject)),
        }
    };
    if let Some(step) = before_site(world, host, head, context) {
        return Dispatched::unguarded(Some(host), step);
    }
    let mut site = SiteDispatcher {
        policy,
        gate: AccessGate::new(world, host, context, head, answers),
        host,
        context,
        head,
        readings,
        request_builder,
        query: None,
    };
    let by_rules = if host.routes.has_request_rules() {
        site.apply_rules()
    } else {
        None
    };
    let step = match by_rules {
        Some(step) => step,
        None => match site.pass_requested() {
            Ok(()) => match &host.preview {
                None => site.answer(),
                Some(preview) => site.answer_preview(preview),
            },
            Err(denied) => denied.into(),
        },
    };
    let step = match step {
        Step::Send(ReadyResponse::Refuse { reject, page: None }) => {
            match site.disk().of_error_page(reject) {
                Some(wait) => wait,
                None => with_page(Some(host), reject, head),
            }
        }
        step => step,
    };
    site.gate.add_fields_of_servers(&step);
    Dispatched {
        step,
        request: MatchedRequest {
            host: Some(host),
            user: site.gate.user,
            is_guarded: site.gate.is_guarded,
            counters: Some(match policy.route() {
                Some(route) => &route.counters,
                None => &host.counters,
            }),
            ruled: site.gate.ruled,
        },
    }
}

/// Returns the step of a request for the server as a whole, with the target `*`.
fn of_server(method: Method) -> Step {
    match method {
        Method::Options => Step::small(SyntheticResponse::options()),
        // Bytes after a CONNECT request must not be parsed as further requests, so the connection closes.
        _ => Step::refuse(Reject {
            close: true,
            ..Reject::METHOD_NOT_ALLOWED
        }),
    }
}

/// Returns the step of a request on the manager's listener. Sites, redirects, challenges and proxies in front
/// of the server have no effect there.
#[inline(never)]
fn of_manager(world: &World, head: &RequestHead<'_>) -> Step {
    match &world.manager {
        // A reload has removed the manager, and the connection is older.
        None => Step::refuse(Reject::CONNECTION_OUTDATED),
        Some(_) if head.method == Method::Connect => Step::refuse(Reject::METHOD_NOT_ALLOWED),
        Some(_) if head.method.is_unregistered() => Step::refuse(Reject::METHOD_UNKNOWN),
        Some(handler) => Step::Call(HandlerCall {
            handler: handler.clone(),
            script: None,
            rewrite: Rewrite::default(),
            hides_login: false,
            identity: Vec::new(),
            is_private: false,
            compression: None,
        }),
    }
}

/// Checks the guards of a path that a handler is about to open, with the client and the login of `head`.
/// Returns the admission, or the step that denies access or checks the login first; and true if at least one guard
/// applied.
pub(super) fn admit(
    world: &World,
    head: &RequestHead<'_>,
    context: &DispatchContext,
    path: &[u8],
    answers: Option<&AuthAnswers>,
) -> (Result<Admission, Step>, bool) {
    let Some(host) = world.hosts.find(context.audience.own_listener(), head.host) else {
        return (Err(Step::refuse(Reject::HOST_UNKNOWN)), true);
    };
    let mut gate = AccessGate::new(world, host, context, head, answers);
    // The handler may take parameters off the part of the path behind its file.
    let readings = PathReadings::of_rewritten(path);
    let readings = readings.iter().flat_map(|readings| readings.iter());
    let passed = readings.chain([path]).try_for_each(|path| gate.pass(path));
    match passed {
        Ok(()) => {
            let admission = Admission {
                user: gate.user,
                hides_login: gate.hides_login,
            };
            (Ok(admission), gate.is_guarded)
        }
        Err(denied) => (Err(denied.into()), gate.is_guarded),
    }
}

impl From<AccessDenied> for Step {
    fn from(denied: AccessDenied) -> Step {
        match denied {
            AccessDenied::Refuse(reject) => Step::refuse(reject),
            AccessDenied::Login(login) => Step::Wait(Wait::Login(login)),
            AccessDenied::Auth(question) => Step::Wait(Wait::Auth(question)),
            AccessDenied::Answered(denial) => Step::small(SyntheticResponse {
                status: denial.status,
                fields: denial.fields,
                body: denial.content,
            }),
        }
    }
}

/// Returns the refusal with the site's error page, or the load of the error page if the page is not in
/// memory.
pub(super) fn with_page(host: Option<&Host>, reject: Reject, head: &RequestHead<'_>) -> Step {
    match host
        .and_then(|host| host.site.as_ref())
        .and_then(|site| site.error_page(reject.status, &head.path, head.method))
    {
        Some(SiteResponse::Stored(page)) => Step::Send(ReadyResponse::Refuse {
            reject,
            page: Some(page),
        }),
        Some(SiteResponse::Load(load)) => Step::Wait(Wait::Load(load)),
        _ => Step::refuse(reject),
    }
}

/// Dispatch of one request within one site.
struct SiteDispatcher<'w, 'h> {
    /// Policy of the requested path.
    policy: &'w PathPolicy,
    gate: AccessGate<'w, 'h>,
    host: &'w Host,
    context: &'h DispatchContext,
    head: &'h RequestHead<'h>,
    /// Readings of the requested path beside the normalised path, by the application that may answer.
    readings: Option<Box<PathReadings>>,
    request_builder: &'h dyn RequestBuilder,
    /// Query for the script in place of the requested query, if a rewrite or `try` sets a query.
    query: Option<Vec<u8>>,
}

impl<'w> SiteDispatcher<'w, '_> {
    /// Applies the request rules of the site: the rates first, then the preflight of cross-origin access. A browser sends
    /// a preflight without a login and before the request's own method, so only the guards by address apply.
    #[inline(never)]
    fn apply_rules(&mut self) -> Option<Step> {
        let (head, host) = (self.head, self.host);
        let all: Vec<&PathPolicy>;
        let policies = match &self.readings {
            None => &[self.policy][..],
            Some(readings) => {
                let others = readings.iter().map(|path| host.policy(path));
                all = others.chain([self.policy]).collect();
                &all
            }
        };
        let cors = shared_cors(policies);
        let origin = cors.and_then(|_| head.fields.first("origin"));
        let usual_bytes = self.gate.body_bytes_usual();
        let ruled = self.gate.ruled.get_or_insert_default();
        ruled.has_cors = policies.iter().any(|policy| policy.cors().is_some());
        ruled.secure_fields = cors.map(|cors| cors.fields(origin));
        ruled.body_bytes = smallest_body_bytes(policies, usual_bytes);
        if let Err(denied) = self.gate.pass_limits(policies) {
            return Some(denied.into());
        }
        let (cors, origin) = cors.zip(origin)?;
        if head.method != Method::Options {
            return None;
        }
        head.fields.first("access-control-request-method")?;
        for policy in policies {
            if let Err(denied) = self.gate.pass_addresses(policy) {
                return Some(denied.into());
            }
        }
        let preflight = cors.preflight(origin);
        Some(Step::small(SyntheticResponse::preflight(&preflight)))
    }

    /// Returns the comparison of answers with the disk.
    #[inline]
    fn disk(&self) -> DiskComparison<'_> {
        DiskComparison::new(self.host, self.context, self.head)
    }

    /// Checks all guards of the requested path, in each of its readings.
    #[inline]
    fn pass_requested(&mut self) -> Result<(), AccessDenied> {
        if !self.host.routes.is_guarded() {
            return Ok(());
        }
        self.gate.pass_policy(self.policy)?;
        self.gate.pass_servers(self.policy, &self.head.path)?;
        match &self.readings {
            None => Ok(()),
            Some(readings) => {
                readings.iter().try_for_each(|path| self.gate.pass(path))?;
                self.gate
                    .pass_encoded_slashes(self.policy, self.head.raw_path)
            }
        }
    }

    fn answer(&mut self) -> Step {
        let path: &[u8] = &self.head.path;
        if let Some(redirects) = &self.host.redirects
            && !redirects.forced.is_empty()
            && let Some(redirected) = self.redirected_by_force(&redirects.forced)
        {
            return redirected;
        }
        match self.policy.target(path) {
            None => self.ask_own_site(path),
            Some((RouteTarget::Handler(handler), _)) => self.call(handler, None, None),
            Some((RouteTarget::Cached(cached), _)) => self.ask_cache(cached, None, None),
            Some((git @ RouteTarget::Git { .. }, rest)) => self.ask_git(git, rest, None),
            Some((RouteTarget::Redirect(redirect), _))
                if redirect.status == Reject::GONE.status =>
            {
                Step::refuse(Reject::GONE)
            }
            Some((RouteTarget::Redirect(redirect), rest)) => {
                Step::redirect(redirect.status, &redirect.location(rest, self.head.query))
            }
            Some((RouteTarget::Rewrite { path: to, query }, rest)) => {
                let mut rewritten = to.to_vec();
                if to.ends_with(b"/") {
                    rewritten.extend_from_slice(rest.strip_prefix(b"/").unwrap_or(rest));
                }
                if let Some(query) = query {
                    self.query = Some(query.fill(path, rest, self.head.query));
                }
                // A guard protects a file under every path that leads to the file.
                match self.gate.pass(&rewritten) {
                    Ok(()) => self.rewritten(&rewritten),
                    Err(denied) => denied.into(),
                }
            }
            Some((RouteTarget::Site(site), rest)) => self.ask_mounted(site, path, rest),
            Some((RouteTarget::FilesFirst(handler), _)) => match self.file_first(path) {
                Some(step) => step,
                None => self.ask_handler(handler, None),
            },
            Some((RouteTarget::Closed(status), _)) => Step::refuse(Reject::closed(*status)),
        }
    }

    /// Returns the step for the file of the host's own site at `path`, the target of a route with a handler for all other
    /// paths. Returns None for a path without a file, for a request that only the handler can answer, and for a path with
    /// an encoded slash, which stands in no file name. A script of the site runs for each method.
    #[inline(never)]
    fn file_first(&mut self, path: &[u8]) -> Option<Step> {
        let site = self.host.site.as_ref()?;
        let is_for_files =
            matches!(self.head.method, Method::Get | Method::Head) && self.head.upgrade.is_none();
        if !is_for_files && !self.host.routes.has_scripts()
            || path_readings::has_encoded_slash(self.head.raw_path)
        {
            return None;
        }
        let resolution = site.resolve(path);
        let step = match self.script(site, &resolution) {
            Some(step) => step,
            None if is_for_files => self.ask_site(site, b"", &resolution),
            None => return None,
        };
        let is_missing = match &step {
            Step::Send(ReadyResponse::Refuse { reject, page: None }) => {
                // The handler has a page with a dot in front of its name, and the site has none.
                is_nothing(*reject) || *reject == Reject::DOTFILE
            }
            _ => false,
        };
        (!is_missing).then_some(step)
    }

    /// Returns the step of a handler with or without the page cache, for a rewritten path or for the requested one.
    fn ask_handler(&mut self, handler: &RouteTarget, path: Option<&[u8]>) -> Step {
        match handler {
            RouteTarget::Handler(handler) => self.call(handler, path, None),
            RouteTarget::Cached(cached) => self.ask_cache(cached, path, None),
            _ => Step::refuse(Reject::NOT_FOUND),
        }
    }

    /// Returns the answer of the forced redirects for the requested path. A path with a redirect in another reading alone
    /// is refused, since an application would show the page that the redirect hides.
    #[inline(never)]
    fn redirected_by_force(&self, table: &RedirectTable) -> Option<Step> {
        let redirected = self.redirected(table);
        let mut readings = self.readings.iter().flat_map(|readings| readings.merged());
        let mut hides = || readings.any(|path| table.find(&path[1..]).is_some());
        match redirected {
            None if hides() => Some(Step::refuse(
                if path_readings::has_encoded_slash(self.head.raw_path) {
                    Reject::TARGET_SLASH
                } else {
                    Reject::TARGET_PARAMETER
                },
            )),
            redirected => redirected,
        }
    }

    /// Returns the answer of a table of redirects for the requested path.
    #[inline(never)]
    fn redirected(&self, table: &RedirectTable) -> Option<Step> {
        let path = self.head.path.strip_prefix(b"/")?;
        let answer = table.find(path)?.answer(self.head.query);
        Some(match answer {
            Redirected::To { status, location } => Step::redirect(status, &location),
            Redirected::Gone => Step::refuse(Reject::GONE),
        })
    }

    /// Returns the answer of the redirects for a path without a file. The target of a rewrite is not redirected.
    fn redirected_missing(&self, path: &[u8]) -> Option<Step> {
        let redirects = self.host.redirects.as_ref()?;
        let is_requested = *path == *self.head.path;
        is_requested.then(|| self.redirected(&redirects.unforced))?
    }

    /// Answers from an open preview, or has a closed preview opened.
    #[inline(never)]
    fn answer_preview(&mut self, preview: &PreviewState) -> Step {
        let previews = match preview {
            PreviewState::Closed(previews) => previews,
            PreviewState::Open(open) => {
                open.used_ms.store(self.context.now_ms, Ordering::Relaxed);
                return self.answer();
            }
        };
        let Some(found) = previews.find(self.head.host, self.host.has_login()) else {
            return Step::refuse(Reject::PREVIEW_UNKNOWN);
        };
        if previews.is_withdrawn(&found.release) {
            return Step::refuse(Reject::RELEASE_WITHDRAWN);
        }
        if !self.disk().may_wait() {
            return Step::refuse(Reject::PREVIEW_CLOSED);
        }
        let may_open = previews.wanted.push(found, self.context.now_ms);
        let opened = may_open.then(|| self.host.change_tracker.request_recheck());
        opened
            .flatten()
            .map_or(Step::refuse(Reject::PREVIEW_CLOSED), Step::catch_up)
    }

    /// Checks all guards of a rewritten path in the further readings of the application that answers.
    #[inline]
    fn pass_rewritten(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        if path_readings::has_parameters(path) {
            self.pass_rewritten_readings(path)
        } else {
            Ok(())
        }
    }

    #[inline(never)]
    fn pass_rewritten_readings(&mut self, path: &[u8]) -> Result<(), AccessDenied> {
        let readings = self.host.rewritten_readings(path);
        match readings.map_err(AccessDenied::Refuse)? {
            None => Ok(()),
            Some(readings) => readings.iter().try_for_each(|path| self.gate.pass(path)),
        }
    }

    /// Returns the step for `path`, the target of a rewrite: from the handler or the folder of another
    /// route, or from the host's own site. A redirect or a second rewrite at the target is not followed.
    fn rewritten(&mut self, path: &[u8]) -> Step {
        match self.host.policy(path).target(path) {
            Some((RouteTarget::Site(site), rest)) => self.ask_mounted(site, path, rest),
            Some((RouteTarget::FilesFirst(_), _)) if let Some(step) = self.file_first(path) => step,
            _ => match self.handler_at(path) {
                Some(step) => step,
                None => self.ask_own_site(path),
            },
        }
    }

    /// Asks the folder of a route; `rest` is the part of `path` after the route's prefix.
    #[inline(never)]
    fn ask_mounted(&mut self, site: &Site, path: &[u8], rest: &[u8]) -> Step {
        let prefix = &path[..path.len() - rest.len()];
        let resolution = site.resolve(rest);
        // The host's own site would run the file as a script. A mounted folder runs no scripts, and
        // the source of a script stays secret.
        if self.host.routes.has_scripts()
            && let Some(opened) = resolution.file_path()
            && scripts(self.host, &[prefix, &opened].concat()).is_some()
        {
            return Step::refuse(Reject::SCRIPT_NOT_EXECUTABLE);
        }
        self.ask_site(site, prefix, &resolution)
    }

    /// Returns the step of a handler route at `path`, the target of a rewrite; None if no handler route
    /// matches.
    fn handler_at(&mut self, path: &[u8]) -> Option<Step> {
        let (target, rest) = self.host.policy(path).target(path)?;
        if let Err(denied) = self.pass_rewritten(path) {
            return Some(denied.into());
        }
        Some(match target {
            RouteTarget::Handler(handler) => self.call(handler, Some(path), None),
            RouteTarget::Cached(cached) => self.ask_cache(cached, Some(path), None),
            RouteTarget::FilesFirst(handler) => self.ask_handler(handler, Some(path)),
            RouteTarget::Git { .. } => self.ask_git(target, rest, Some(path)),
            _ => return None,
        })
    }

    /// Returns the step for repositories: a call of git, a page, or the request for a login before a push. `rest` is
    /// the path below the route, and `path` the path of a rewrite.
    fn ask_git(&mut self, target: &RouteTarget, rest: &[u8], path: Option<&[u8]>) -> Step {
        let RouteTarget::Git {
            exchanges,
            pages,
            pushers,
        } = target
        else {
            return Step::refuse(Reject::NOT_FOUND);
        };
        let (method, query) = (self.head.method, self.head.query);
        match pages {
            Some(pages) if !is_smart_http(method, rest, query) => self.ask_cache(pages, path, None),
            _ => {
                let pushers = pushers.as_ref().filter(|_| is_push(rest, query));
                match pushers.map(|pushers| self.gate.log_in(pushers)) {
                    Some(Err(denied)) => denied.into(),
                    _ => self.call(exchanges, path, None),
                }
            }
        }
    }

    /// Returns the call of a handler for a rewritten path, or for a script of the site.
    fn call(
        &mut self,
        handler: &RouteHandler,
        path: Option<&[u8]>,
        script: Option<Script>,
    ) -> Step {
        if self.head.method == Method::Connect && !handler.accepts_tunnels() {
            return Step::refuse(Reject::METHOD_NOT_ALLOWED);
        }
        if self.head.method.is_unregistered() && !handler.accepts_any_method() {
            return Step::refuse(Reject::METHOD_UNKNOWN);
        }
        let known = &self.head.known_fields;
        if (known.destination.is_some() || known.webdav_if.is_some())
            && let Err(denied) = self.pass_named_resources()
        {
            return denied.into();
        }
        Step::Call(HandlerCall {
            handler: handler.clone(),
            script,
            rewrite: self.rewrite(path),
            hides_login: self.gate.hides_login,
            identity: self.gate.identity(),
            is_private: self.gate.is_granted(),
            compression: CompressionQuestion::of(
                handler.compression(),
                self.head,
                self.gate.is_for_few,
            ),
        })
    }

    /// Checks the resources that the request names beside its target.
    #[inline(never)]
    fn pass_named_resources(&mut self) -> Result<(), AccessDenied> {
        let mut named = NamedResources {
            gate: &mut self.gate,
            host: self.host,
            policy: self.policy,
            context: self.context,
            head: self.head,
        };
        named.pass_all()
    }

    /// Returns a rewritten path with its query.
    fn rewrite(&self, path: Option<&[u8]>) -> Rewrite {
        Rewrite {
            path: path.map(<[u8]>::to_vec),
            query: self.query.clone(),
        }
    }

    /// Sets the query for the handler or script of the last `try` entry; `path` fills in the query pattern.
    fn set_try_query(&mut self, path: &[u8]) {
        if let Some(query) = &self.host.try_end(self.host.policy(path)).query {
            let before = self.query.as_deref().or(self.head.query);
            self.query = Some(query.fill(path, path, before));
        }
    }

    /// Returns the step of the last `try` entry if the site has no file for `path` and the entry leads
    /// to a handler or script.
    fn fall_back(&mut self, path: &[u8]) -> Option<Step> {
        let fallback = self
            .host
            .try_end(self.host.policy(path))
            .fallback
            .as_ref()?;
        self.set_try_query(path);
        let path = fallback.path(path);
        if let Err(denied) = self.gate.pass(&path) {
            return Some(denied.into());
        }
        if !fallback.is_script {
            return self.handler_at(&path);
        }
        let host = self.host;
        let script = named_script(host, host.site.as_ref()?, &path)?;
        let scripts = scripts(host, &script.name)?;
        Some(self.run(scripts, script))
    }

    /// Returns the stored page, or the call of the cached handler, for a rewritten path or for a script of
    /// the site. The request is copied only for a call.
    fn ask_cache(
        &mut self,
        cached: &Arc<CachedHandler>,
        path: Option<&[u8]>,
        script: Option<Script>,
    ) -> Step {
        if self.head.upgrade.is_some() {
            match cached.tunnel_handler() {
                Some(handler) => return self.call(handler, path, script),
                None if self.head.method == Method::Connect => {
                    return Step::refuse(Reject::METHOD_NOT_ALLOWED);
                }
                None => {}
            }
        }
        if self.head.method.is_safe()
            && (self.has_uncached_reading() || self.gate.has_unclear_user())
        {
            return self.call(cached.handler(), path, script);
        }
        let caller = LookupContext {
            user: self.gate.user.as_deref(),
            secure: self.context.secure,
            may_compress: !self.gate.is_for_few
                || cached.handler().compression() == CompressionRule::Always
                || is_own_page(self.head.fields),
            now_ms: self.context.now_ms,
        };
        let request = || Request {
            script: script.clone(),
            rewrite: self.rewrite(path),
            hides_login: self.gate.hides_login,
            identity: self.gate.identity(),
            ..self
                .request_builder
                .build(self.head, self.context, self.gate.user.clone())
        };
        match cached.lookup(self.head, &caller, request) {
            CacheLookup::Kept(stored) => Step::Send(ReadyResponse::Stored(stored)),
            CacheLookup::Call(handler) => {
                let compression = cached.handler().compression();
                let handler = RouteHandler::from(handler).with_compression(compression);
                self.call(&handler, path, script)
            }
        }
    }

    /// Returns true if a reading of the requested path leads to a route without the page cache.
    #[inline]
    fn has_uncached_reading(&self) -> bool {
        self.readings.as_ref().is_some_and(|readings| {
            let mut routes = readings
                .iter()
                .filter_map(|path| self.host.policy(path).route());
            routes.any(|route| !route.has_cache())
        })
    }

    fn ask_own_site(&mut self, path: &[u8]) -> Step {
        let step = self.own_site(path);
        let is_missing = match &step {
            Step::Send(ReadyResponse::Refuse { reject, page: None }) => is_nothing(*reject),
            // The page stands in for a missing file. A file of its own costs no look-up.
            Step::Send(ReadyResponse::Stored(page)) => page.is_fallback,
            _ => false,
        };
        if is_missing {
            self.instead_of(step, path)
        } else {
            step
        }
    }

    /// Returns the redirect of a path without a file, else the page that stands in for the file, else the step of the
    /// last `try` entry.
    #[inline(never)]
    fn instead_of(&mut self, step: Step, path: &[u8]) -> Step {
        let redirected = self.redirected_missing(path);
        let instead = match &step {
            Step::Send(ReadyResponse::Stored(_)) => redirected,
            _ => redirected.or_else(|| self.fall_back(path)),
        };
        instead.unwrap_or(step)
    }

    fn own_site(&mut self, path: &[u8]) -> Step {
        match &self.host.site {
            Some(site) => {
                let resolution = site.resolve(path);
                match self.script(site, &resolution) {
                    Some(step) => step,
                    None => self.ask_site(site, b"", &resolution),
                }
            }
            None => Step::refuse(Reject::NOT_FOUND),
        }
    }

    /// Returns the step that runs a script, if the path leads to a file that the site runs instead of sending.
    fn script(&mut self, site: &Site, resolution: &Resolution<'_>) -> Option<Step> {
        if !self.host.routes.has_scripts() {
            return None;
        }
        let path = resolution.path();
        let named = named_script(self.host, site, path);
        let is_named = named.is_some();
        let (script, by_last_try) = match named {
            Some(script) => (script, false),
            None => {
                let script = Script {
                    name: resolution.file_path()?,
                    path_info: Vec::new(),
                };
                (script, resolution.is_by_last_try())
            }
        };
        let scripts = scripts(self.host, &script.name)?;
        // The script stands in for a missing file.
        if !is_named && resolution.is_fallback() {
            let wait = self.disk().of_path(site, path);
            let instead = wait.or_else(|| self.redirected_missing(path));
            if instead.is_some() {
                return instead;
            }
        }
        if by_last_try && self.host.try_end(self.host.policy(path)).fallback.is_none() {
            self.set_try_query(path);
        }
        Some(self.run(scripts, script))
    }

    /// Returns the step that runs `script`.
    fn run(&mut self, scripts: &SiteScripts, script: Script) -> Step {
        // A guard protects a script under every path that leads to the script, with the path info appended.
        let host = self.host;
        let mut names = vec![script.name.clone()];
        if let Some(site) = host.site.as_ref().filter(|_| host.routes.is_guarded()) {
            names.extend(site.resolve(&script.name).aliases());
        }
        for name in names {
            let path = [name, script.path_info.clone()].concat();
            if let Err(denied) = self.gate.pass(&path) {
                return denied.into();
            }
            // The script may take parameters off the path info.
            for path in PathReadings::of_rewritten(&path)
                .iter()
                .flat_map(|it| it.iter())
            {
                if let Err(denied) = self.gate.pass(path) {
                    return denied.into();
                }
            }
        }
        match &scripts.cache {
            Some(cached) => self.ask_cache(cached, None, Some(script)),
            None => self.call(&scripts.handler, None, Some(script)),
        }
    }

    /// Asks `site`, mounted at `prefix`, for a resource.
    fn ask_site(&mut self, site: &Site, prefix: &[u8], resolution: &Resolution<'_>) -> Step {
        if self.host.routes.is_guarded() {
            let opened = resolution.file_path().into_iter();
            for opened in opened.chain(resolution.aliases()) {
                if let Err(denied) = self.gate.pass(&[prefix, &opened].concat()) {
                    return denied.into();
                }
            }
        }
        match site.answer(self.head, resolution) {
            SiteResponse::Stored(stored) if !self.disk().is_needed_for(&stored) => {
                Step::Send(ReadyResponse::Stored(stored))
            }
            answer => self.compared(site, resolution.path(), answer),
        }
    }

    /// Returns the step for an answer of the site, or the wait for the next World if the disk
    /// contradicts the answer.
    #[inline(never)]
    fn compared(&self, site: &Site, path: &[u8], answer: SiteResponse) -> Step {
        let wait = self.disk().of_answer(site, path, &answer);
        wait.unwrap_or_else(|| match answer {
            SiteResponse::Stored(stored) => Step::Send(ReadyResponse::Stored(stored)),
            SiteResponse::Load(load) => Step::Wait(Wait::Load(load)),
            SiteResponse::Listing(listing) => Step::Send(ReadyResponse::Listing(listing)),
            SiteResponse::Options => Step::small(SyntheticResponse::options()),
            SiteResponse::Refuse(reject) => Step::refuse(reject),
            SiteResponse::Moved { status, location } => Step::redirect(status, &location),
            SiteResponse::Redirect { path } => {
                let mut location = path;
                push_query(&mut location, self.head);
                Step::redirect(Status::MOVED_PERMANENTLY, &location)
            }
        })
    }
}

/// Returns the rule that runs the file at `path` of the site; None for a file to be sent.
fn scripts<'w>(host: &'w Host, path: &[u8]) -> Option<&'w SiteScripts> {
    host.policy(path).scripts(path)
}

/// Returns the script in a path with path info: `/a.php/more` is the script `/a.php` with the path info
/// `/more`.
fn named_script(host: &Host, site: &Site, path: &[u8]) -> Option<Script> {
    let slashes = (1..path.len()).filter(|at| path[*at] == b'/');
    let mut ends = slashes.filter(|at| scripts(host, &path[..*at]).is_some());
    let end =
        ends.find(|end| site.resolve(&path[..*end]).file_path().as_deref() == Some(&path[..*end]))?;
    Some(Script {
        name: path[..end].to_vec(),
        path_info: path[end..].to_vec(),
    })
}
