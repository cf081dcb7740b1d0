//! The handler of a route with the page cache in front: answers a request from the cache, or turns the
//! request into a call for one client or for all clients with equal requests.

use crate::cache::JoinOutcome;
use crate::cache::fill::{FillPhase, FillRead, FillReader, HeadWait};
use crate::cache::fill_task::{FillTask, PrivateOutcome, PrivateReceiver};
use crate::cache::key::{CacheKey, PresentedRequest, VaryFields};
use crate::cache::layer::CachedHandler;
use crate::cache::page::{CachedPage, CachedPageId, of_the_bytes};
use crate::cache::policy::Freshness;
use crate::handler::interim::InterimSender;
use crate::handler::pipe::{self, pipe};
use crate::handler::{
    Handler, HandlerError, HandlerPlan, LocalBoxFuture, Request, Response, ResponseBody,
};
use crate::ledger::route_counters::CacheOutcome;
use crate::limits::{CACHE_CHUNK_BYTES, PIPE_BYTES};
use crate::site::{PreconditionResult, RepresentationDate, VariantResponse, evaluate_with};
use base::task::spawn_local;
use std::borrow::Cow;
use std::sync::Arc;
use wire::date::parse_http_date;
use wire::fields::{ETag, FieldValues, Fields};
use wire::h1::body_decoder::BodyLength;
use wire::path_readings::page_path;
use wire::reject::Reject;
use wire::request_head::{KnownFields, Method, RequestHead};
use wire::response_fields::ResponseFields;
use wire::status::{Status, StatusLine};

/// The result of a cache lookup.
pub(crate) enum CacheLookup {
    /// A stored page answers the request.
    Kept(VariantResponse),
    /// The given handler must be called.
    Call(Arc<dyn Handler>),
}

/// The properties of a request outside the request head.
pub(crate) struct LookupContext<'a> {
    /// The name of the user authenticated by this server.
    pub user: Option<&'a str>,
    /// True if the request arrived over TLS.
    pub secure: bool,
    /// True if a stored page may be sent compressed: a page for few clients only to a page of the same site.
    pub may_compress: bool,
    /// The time of the workers' clock in milliseconds.
    pub now_ms: u64,
}

impl CachedHandler {
    /// Answers a request from the cache, or returns the handler to call. For a stale page usable during
    /// revalidation, the function also starts the revalidation, with the request built by `call`. Must run
    /// on a worker thread.
    pub(crate) fn lookup(
        self: &Arc<Self>,
        head: &RequestHead<'_>,
        caller: &LookupContext<'_>,
        call: impl FnOnce() -> Request,
    ) -> CacheLookup {
        let why = match head.method {
            Method::Get | Method::Head if head.body == BodyLength::None => "uri-miss",
            Method::Get | Method::Head => "request",
            _ => return self.pass_by("method"),
        };
        if head.known_fields.cookie && self.rule.cookies.bypasses(head.fields) {
            return self.pass_by("bypass");
        }
        let asker = PresentedRequest {
            fields: head.fields,
            secure: caller.secure,
            user: caller.user,
            authorized: head.known_fields.authorization.is_some() && caller.user.is_none(),
            personal: head.known_fields.cookie && !self.rule.cookies.hides_cookies(),
        };
        let Some(key) = CacheKey::of(self.route, head) else {
            return self.pass_by("bypass");
        };
        let mut shard = self.cache.shard(key.bytes());
        let found = shard.slots.get_mut(key.bytes()).map(|slot| {
            let page = slot.pages.iter().find(|page| page.suits(&asker));
            (page.cloned(), slot)
        });
        let why = match found {
            Some((Some(page), slot)) => match page.good_for(caller.now_ms) {
                Freshness::Fresh => {
                    drop(shard);
                    return CacheLookup::Kept(self.stored(&page, head, caller));
                }
                Freshness::WhileRevalidate => {
                    let is_begun = slot.fills.iter().any(|fill| fill.covers(&asker));
                    let fill = (!is_begun && !page.is_spared(caller.now_ms))
                        .then(|| self.cache.begin(slot, page.place.clone(), &asker));
                    drop(shard);
                    if let Some(fill) = fill {
                        let work = FillTask::new(self.clone(), fill, Some(page.clone()), &asker);
                        spawn_local(work.unawaited().run(call(), PrivateReceiver::nobody()));
                    }
                    return CacheLookup::Kept(self.stored(&page, head, caller));
                }
                Freshness::IfError | Freshness::Dead => "stale",
            },
            Some((None, slot)) if !slot.pages.is_empty() => "vary-miss",
            _ => why,
        };
        drop(shard);
        if why == "request" || needs_own_call(head, asker.authorized) {
            return self.pass_by("request");
        }
        let cached = self.clone();
        CacheLookup::Call(Arc::new(SharedCall { cached, why }))
    }

    /// Returns the response for a stored page and requests compression if needed.
    fn stored(
        &self,
        page: &Arc<CachedPage>,
        head: &RequestHead<'_>,
        caller: &LookupContext<'_>,
    ) -> VariantResponse {
        page.variant.touch();
        let choice = page.choose(&head.known_fields, caller.may_compress);
        if choice.wants_gzip {
            self.cache.want_gzip(page);
        }
        VariantResponse::from_cache(choice.variant, head, page.kept(caller.now_ms))
    }

    fn pass_by(self: &Arc<Self>, why: &'static str) -> CacheLookup {
        let cached = self.clone();
        CacheLookup::Call(Arc::new(BypassCall { cached, why }))
    }

    fn asker<'r>(&self, request: &'r Request) -> PresentedRequest<'r> {
        let fields = Fields(&request.fields);
        let has = |name| fields.first(name).is_some();
        PresentedRequest {
            fields,
            secure: request.secure,
            user: request.user.as_deref(),
            authorized: request.user.is_none() && has("authorization"),
            personal: !self.rule.cookies.hides_cookies() && has("cookie"),
        }
    }

    fn place(&self, request: &Request) -> CachedPageId {
        let host = Fields(&request.fields).first("host");
        let host = host.unwrap_or(&request.host);
        let path = if request.raw_path == request.path {
            Cow::Borrowed(&*request.raw_path)
        } else {
            page_path(&request.raw_path)
        };
        let key = CacheKey::new(self.route, host, &path, request.query.as_deref());
        CachedPageId {
            site: self.site.clone(),
            // A purge names the path as requested.
            path: request.path.as_slice().into(),
            key: key.bytes().into(),
        }
    }

    /// Answers a request without a usable page: one request calls the handler, all other requests wait.
    async fn answer(
        self: Arc<Self>,
        request: Request,
        why: &'static str,
    ) -> Result<Response, HandlerError> {
        let place = Arc::new(self.place(&request));
        loop {
            let asker = self.asker(&request);
            let joined = self.cache.join(&place, &asker, self.cache.now_ms());
            let (fill, old) = match joined {
                JoinOutcome::Page(page) => return Ok(self.of_old_page(&page, &request, "hit")),
                JoinOutcome::Pass => return self.pass(request, "bypass").await,
                JoinOutcome::Lead(fill, old) => {
                    let lead = LeadingCall {
                        cached: &self,
                        why,
                        old,
                    };
                    return lead.run(request, fill).await;
                }
                JoinOutcome::Follow(fill, old) => (fill, old),
            };
            let mut reader = FillReader::new(fill);
            let told = reader.wait(false).await;
            let is_same = |varied: &VaryFields| varied.is(asker.fields);
            match told {
                HeadWait::Head(head) if is_same(&head.varied) => {
                    let status = format!("fwd={why}; collapsed");
                    let body = |length| streamed(length, reader, None);
                    return Ok(of_head(
                        &head.status,
                        &head.fields,
                        &request,
                        &status,
                        || body(head.length),
                    ));
                }
                HeadWait::Over(FillPhase::Done(page)) if is_same(&page.varied) => {
                    let status = format!("fwd={why}; collapsed");
                    return Ok(of_page(&page, &request, &status, None));
                }
                HeadWait::Over(FillPhase::Passed) => return self.pass(request, why).await,
                // The refusal applies to the client of the first request alone.
                HeadWait::Over(FillPhase::Failed(reject)) if reject.is_of_one_client() => {}
                HeadWait::Over(FillPhase::Failed(reject)) => {
                    return self.failed(old.as_ref(), &request, reject);
                }
                HeadWait::Over(FillPhase::Broken(why)) => {
                    let reject = why.unwrap_or(Reject::HANDLER_FAILED);
                    return self.failed(old.as_ref(), &request, reject);
                }
                // The response varies by fields with other values here, or the call was abandoned: the
                // request joins anew.
                HeadWait::Head(_) | HeadWait::Over(_) => {}
            }
        }
    }

    /// Calls the handler for one client alone.
    async fn pass(&self, request: Request, why: &str) -> Result<Response, HandlerError> {
        let mut response = self.inner.call(request).await?;
        set_cache_status(&mut response, &format!("fwd={why}"));
        Ok(response)
    }

    /// Returns the response for a request after a failure of the awaited call: the old page if still
    /// usable, else the error.
    fn failed(
        &self,
        old: Option<&Arc<CachedPage>>,
        request: &Request,
        reject: Reject,
    ) -> Result<Response, HandlerError> {
        let old = old.filter(|_| reject.status.0 >= 500);
        match old.filter(|page| page.good_for(self.cache.now_ms()) != Freshness::Dead) {
            Some(page) => {
                let status = format!("fwd=stale; fwd-status={}", reject.status.0);
                Ok(self.of_old_page(page, request, &status))
            }
            None => Err(HandlerError::new(
                "the call that a page was waited for",
                reject,
            )),
        }
    }

    /// Converts a previously stored page to a live response.
    fn of_old_page(&self, page: &Arc<CachedPage>, request: &Request, status: &str) -> Response {
        let kept = page.kept(self.cache.now_ms());
        let status = format!("{status}; ttl={}", kept.ttl_seconds);
        of_page(page, request, &status, Some(kept.age_seconds))
    }

    /// Removes stored pages after a change by an unsafe request (RFC 9111 §4.4): the pages of the request's
    /// target, of Location and Content-Location in the response, and of the Destination field, as far as
    /// the URIs have the same origin.
    fn invalidate(&self, target: &InvalidationTarget, response: &Response) {
        self.cache.invalidate(&target.place.key);
        let values = |name| crate::cache::policy::values(&response.fields, name);
        let values = values("Location").chain(values("Content-Location"));
        let values = values.chain(target.destination.as_deref());
        for place in values.filter_map(|value| target.led_to(value)) {
            let (path, query) = match place.iter().position(|byte| *byte == b'?') {
                Some(at) => (&place[..at], Some(&place[at + 1..])),
                None => (place, None),
            };
            let key = CacheKey::new(self.route, &target.host, &page_path(path), query);
            self.cache.invalidate(key.bytes());
        }
    }
}

/// Returns true if the handler has to answer the request itself, because of its conditions or range. The
/// handler alone can judge conditions and ranges of a request with Authorization: the response is mostly for
/// the one client. The handler gets such a request unchanged, unless the client asks for a whole page.
fn needs_own_call(head: &RequestHead<'_>, is_authorized: bool) -> bool {
    let fields = &head.known_fields;
    let is_whole = head.method == Method::Get
        && fields.if_none_match.is_none()
        && fields.if_modified_since.is_none()
        && fields.range.is_none();
    (is_authorized && !is_whole)
        || !fields.if_match.is_none()
        || fields.if_unmodified_since.is_some()
}

/// Converts a page to a live response. Without `age`, for a page made by the present call, the response has
/// an Age field only if the handler sent an Age above 0.
fn of_page(page: &Arc<CachedPage>, request: &Request, status: &str, age: Option<u64>) -> Response {
    let page = page.clone();
    let own = page.variant.status_line();
    let mut fields = page.fields();
    page.push_vary(&mut fields);
    if let Some(age) = age.or(Some(page.terms.age).filter(|age| *age > 0)) {
        fields.push(b"Age", age.to_string().as_bytes());
    }
    of_head(&own, &fields, request, status, move || content(page))
}

/// The target of an unsafe request, kept during the call for invalidation.
struct InvalidationTarget {
    place: CachedPageId,
    host: Vec<u8>,
    /// The value of the Destination field of a COPY or MOVE request.
    destination: Option<Vec<u8>>,
}

impl InvalidationTarget {
    /// Returns the path and query of a URI reference to the same origin; None for another origin.
    fn led_to<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        let rest = [&b"https://"[..], b"http://"]
            .iter()
            .find_map(|scheme| value.strip_prefix(*scheme));
        let path = match rest {
            Some(rest) => rest.strip_prefix(self.host.as_slice())?,
            None => value,
        };
        let path = path.split(|byte| *byte == b'#').next()?;
        (path.starts_with(b"/") && !path.starts_with(b"//")).then_some(path)
    }
}

/// Returns true if the method defines the Destination field (RFC 4918 §10.3). With other methods the field
/// is ignored.
fn has_destination(method: Method) -> bool {
    matches!(method.name(), "COPY" | "MOVE")
}

/// A handler that shares one call among all clients with equal requests.
struct SharedCall {
    cached: Arc<CachedHandler>,
    why: &'static str,
}

impl Handler for SharedCall {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        if request.hops > 0 {
            // A subrequest must not wait for a shared call: the shared call may itself wait for the
            // subrequest.
            let cached = self.cached.clone();
            return Box::pin(async move { cached.pass(request, "bypass").await });
        }
        Box::pin(self.cached.clone().answer(request, self.why))
    }

    fn plan(&self, request: &Request) -> HandlerPlan {
        let asker = self.cached.asker(request);
        let rule = &self.cached.rule;
        let scheme = if asker.secure { "https" } else { "http" };
        let host = Fields(&request.fields).first("host");
        let host = String::from_utf8_lossy(host.unwrap_or(&request.host));
        let path = String::from_utf8_lossy(&request.raw_path);
        let query = request.query.as_ref();
        let query = query.map(|query| format!("?{}", String::from_utf8_lossy(query)));
        let lifetime = match rule.seconds {
            Some(seconds) => format!("{seconds} s unless the response says otherwise"),
            None => "as long as the response says".to_owned(),
        };
        let mut text = format!(
            "page {scheme}://{host}{path}{}, stored {lifetime}",
            query.unwrap_or_default()
        );
        // The conditions are those of `policy::judge`.
        if asker.personal {
            text.push_str("; with Cookie only if the response has a lifetime or is public");
        }
        if asker.authorized || asker.user.is_some() {
            text.push_str("; with a login only if the response permits caches to share it");
        }
        let mut plan = self.cached.inner.plan(request);
        plan.lines.push(("cache", text));
        plan
    }
}

/// A handler that bypasses the cache.
struct BypassCall {
    cached: Arc<CachedHandler>,
    why: &'static str,
}

impl Handler for BypassCall {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, HandlerError>> {
        let (cached, why) = (self.cached.clone(), self.why);
        let target = (!request.method.is_safe()).then(|| {
            let fields = Fields(&request.fields);
            InvalidationTarget {
                place: cached.place(&request),
                host: fields.first("host").unwrap_or(&request.host).to_vec(),
                destination: fields
                    .first("destination")
                    .filter(|_| has_destination(request.method))
                    .map(<[u8]>::to_vec),
            }
        });
        Box::pin(async move {
            let response = cached.pass(request, why).await?;
            if let Some(target) = target
                && (200..400).contains(&response.status.0)
            {
                cached.invalidate(&target, &response);
            }
            Ok(response)
        })
    }

    fn plan(&self, request: &Request) -> HandlerPlan {
        let why = match self.why {
            "method" => "only GET and HEAD are stored",
            _ => {
                "the fields, a cookie of `bypass_cookies` or the path of the request are for one client"
            }
        };
        let mut plan = self.cached.inner.plan(request);
        plan.lines.push(("cache", format!("not asked: {why}")));
        plan
    }

    fn accepts_any_method(&self) -> bool {
        self.cached.inner.accepts_any_method()
    }
}

/// The first request of a shared call.
struct LeadingCall<'c> {
    cached: &'c Arc<CachedHandler>,
    why: &'static str,
    old: Option<Arc<CachedPage>>,
}

impl LeadingCall<'_> {
    async fn run(
        self,
        mut request: Request,
        fill: Arc<crate::cache::fill::CacheFill>,
    ) -> Result<Response, HandlerError> {
        let LeadingCall { cached, why, old } = self;
        let asker = cached.asker(&request);
        let work = FillTask::new(cached.clone(), fill.clone(), old.clone(), &asker);
        let mut reader = FillReader::new(fill);
        let (_, nothing) = pipe(1);
        let own = Request {
            subrequests: request.subrequests.clone(),
            // A shared page is for every client, and interim responses are for one client.
            interim: InterimSender::default(),
            upgrade: None,
            fields: request.fields.clone(),
            identity: request.identity.clone(),
            body: std::mem::replace(&mut request.body, nothing),
            host: request.host.clone(),
            raw_path: request.raw_path.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            rewrite: request.rewrite.clone(),
            script: request.script.clone(),
            user: request.user.clone(),
            forwarding: request.forwarding.clone(),
            memory: request.memory.clone(),
            active: request.active.clone(),
            ..request
        };
        let hand = PrivateReceiver::new();
        spawn_local(work.run(own, hand.weak()));
        let status = |is_kept| {
            let stored = if is_kept { "; stored" } else { "" };
            format!("fwd={why}{stored}")
        };
        match reader.wait(true).await {
            HeadWait::Head(head) => {
                let body = || streamed(head.length, reader, Some(hand));
                // Without a known length the content may turn out too large for storage.
                let status = status(head.is_kept && head.length.is_some());
                Ok(of_head(&head.status, &head.fields, &request, &status, body))
            }
            HeadWait::Over(FillPhase::Done(page)) => {
                let is_kept = page.terms.lifetime.end() > 0;
                Ok(of_page(&page, &request, &status(is_kept), None))
            }
            HeadWait::Over(FillPhase::Failed(reject)) => match hand.take() {
                Some(PrivateOutcome::Answer(Err(fault))) => Err(fault),
                _ => cached.failed(old.as_ref(), &request, reject),
            },
            HeadWait::Over(_) => match hand.take() {
                Some(PrivateOutcome::Answer(answer)) => {
                    let mut response = answer?;
                    set_cache_status(&mut response, &format!("fwd={why}"));
                    Ok(response)
                }
                Some(PrivateOutcome::NeedsCookies) => cached.pass(request, why).await,
                _ => cached.failed(old.as_ref(), &request, Reject::HANDLER_FAILED),
            },
        }
    }
}

/// Appends the Cache-Status field, and records the part of the cache for the counters.
fn set_cache_status(response: &mut Response, status: &str) {
    push_cache_status(&mut response.fields, status);
    response.cache = outcome_of(status);
}

/// Returns the part of the cache by the parameters of Cache-Status.
fn outcome_of(status: &str) -> CacheOutcome {
    if status.starts_with("hit") {
        return CacheOutcome::Hit;
    }
    match status.split("; ").next().unwrap_or(status) {
        _ if status.ends_with("; collapsed") => CacheOutcome::Collapsed,
        _ if status.contains("; fwd-status=") => CacheOutcome::Stale,
        "fwd=uri-miss" | "fwd=vary-miss" | "fwd=stale" => CacheOutcome::Miss,
        _ => CacheOutcome::Bypass,
    }
}

/// Appends the Cache-Status field (RFC 9211).
fn push_cache_status(fields: &mut ResponseFields, status: &str) {
    let value = format!("anthill; {status}");
    fields.push(b"Cache-Status", value.as_bytes());
}

/// Creates a response with the given head; a 304 response if the client's copy is current.
fn of_head(
    status: &StatusLine,
    fields: &ResponseFields,
    request: &Request,
    said: &str,
    body: impl FnOnce() -> ResponseBody,
) -> Response {
    let mut fields = fields.clone();
    push_cache_status(&mut fields, said);
    let cache = outcome_of(said);
    if **status == Status::OK && is_known(&fields, request) {
        fields.retain(|name, _| !of_the_bytes(name));
        return Response::new(Status::NOT_MODIFIED, fields, ResponseBody::Empty).with_cache(cache);
    }
    Response::new(status.clone(), fields, body()).with_cache(cache)
}

/// Returns true if the client's copy is current.
fn is_known(fields: &ResponseFields, request: &Request) -> bool {
    let asked = Fields(&request.fields);
    let mut tags = asked.all("if-none-match");
    let asks = KnownFields {
        if_none_match: match (tags.next(), tags.next()) {
            (None, _) => FieldValues::None,
            (Some(one), None) => FieldValues::One(one),
            _ => FieldValues::Many(asked, "if-none-match"),
        },
        if_modified_since: asked.first("if-modified-since"),
        ..KnownFields::default()
    };
    let value = |name| crate::cache::policy::values(fields, name).next();
    let tag = value("ETag").and_then(ETag::parse);
    // Without Last-Modified, the Date field counts (RFC 9111 §4.3.2).
    let date = |name| value(name).and_then(parse_http_date);
    let modified = || {
        let modified = date("Last-Modified").map(RepresentationDate::Modified);
        modified.or_else(|| date("Date").map(RepresentationDate::Sent))
    };
    evaluate_with(&asks, tag, modified) == PreconditionResult::NotModified
}

/// Returns the content of a page as a body, sent at the client's pace.
fn content(page: Arc<CachedPage>) -> ResponseBody {
    let length = page.variant.size();
    if length <= CACHE_CHUNK_BYTES as u64 {
        return ResponseBody::Whole(page.variant.bytes().to_vec());
    }
    let (mut writer, reader) = pipe(PIPE_BYTES);
    let work = async move {
        if writer.write_all(page.variant.bytes()).await.is_ok() {
            writer.finish();
        }
    };
    ResponseBody::Stream {
        length: Some(length),
        reader,
        work: Box::pin(work),
    }
}

/// Returns the content of a shared call as a body, sent at the client's pace.
fn streamed(length: Option<u64>, from: FillReader, hand: Option<PrivateReceiver>) -> ResponseBody {
    let (writer, reader) = pipe(PIPE_BYTES);
    ResponseBody::Stream {
        length,
        reader,
        work: Box::pin(copy(from, writer, hand)),
    }
}

async fn copy(mut from: FillReader, mut to: pipe::PipeWriter, hand: Option<PrivateReceiver>) {
    let mut chunk = Vec::new();
    loop {
        chunk.clear();
        match from.take(&mut chunk, CACHE_CHUNK_BYTES).await {
            FillRead::Bytes(_) => {
                if to.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            FillRead::End => return to.finish(),
            FillRead::Broken(why) => return to.break_off(why),
            FillRead::Rest => break,
        }
    }
    // All collected bytes are sent. The drop frees the memory of the collected bytes while the remaining
    // content is copied.
    drop(from);
    if let Some(PrivateOutcome::Rest(rest)) = hand.and_then(|hand| hand.take()) {
        rest.copy(to).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_status_tells_the_part_of_the_cache() {
        for (status, outcome) in [
            ("hit; ttl=5", CacheOutcome::Hit),
            ("fwd=uri-miss; stored", CacheOutcome::Miss),
            ("fwd=vary-miss", CacheOutcome::Miss),
            ("fwd=stale; stored", CacheOutcome::Miss),
            ("fwd=stale; fwd-status=503; ttl=-5", CacheOutcome::Stale),
            ("fwd=uri-miss; collapsed", CacheOutcome::Collapsed),
            ("fwd=request", CacheOutcome::Bypass),
            ("fwd=method", CacheOutcome::Bypass),
            ("fwd=bypass", CacheOutcome::Bypass),
        ] {
            assert_eq!(outcome_of(status), outcome, "{status}");
        }
    }
}
