//! A route's handler with the page cache before it: what is answered from the ledger on the spot, and
//! what becomes a call, for one client or for all who ask the same meanwhile.

use super::fill::{Phase, Reader, Taken, Told};
use super::key::{Asker, Key, Varied};
use super::page::{Page, Place, of_the_bytes};
use super::policy::{Rule, Use};
use super::work::{Hand, Handed, Work};
use super::{Cache, Join};
use crate::base::task::spawn_local;
use crate::handler::pipe::{self, pipe};
use crate::handler::{Body, Fault, Handler, LocalBoxFuture, Request, Response};
use crate::limits::{CACHE_CHUNK_BYTES, PIPE_BYTES};
use crate::site::{Stored, Verdict, judge_by};
use crate::wire::body::BodyLength;
use crate::wire::date::parse_http_date;
use crate::wire::fields::{ETag, Fields, Values};
use crate::wire::head::{Asks, Head, Method};
use crate::wire::reject::Reject;
use crate::wire::status::{Status, StatusLine};
use std::borrow::Cow;
use std::sync::Arc;

/// What a route says of keeping.
#[derive(Clone)]
pub struct Stage {
    /// Where pages are kept.
    pub cache: Arc<Cache>,
    /// Which, and for how long.
    pub rule: Rule,
    /// The site's first name.
    pub site: Arc<str>,
    /// Of what is kept here; another route, or another handler under it, has another.
    pub route: u64,
}

impl Stage {
    /// `inner` with the cache before it.
    pub fn before(&self, inner: Arc<dyn Handler>) -> Cached {
        let Stage {
            cache,
            rule,
            site,
            route,
        } = self.clone();
        Cached {
            cache,
            rule,
            inner,
            site,
            route,
        }
    }
}

/// A handler whose responses are kept.
pub struct Cached {
    pub(super) cache: Arc<Cache>,
    pub(super) rule: Rule,
    pub(super) inner: Arc<dyn Handler>,
    /// The site's first name.
    site: Arc<str>,
    /// Of what is kept here; another route, or another handler under it, has another.
    route: u64,
}

/// What becomes of a request.
pub enum Found {
    /// It is answered with what was kept.
    Kept(Stored),
    /// It is a call of this.
    Call(Arc<dyn Handler>),
}

/// Who asks, beside what the head says.
pub struct Caller<'a> {
    /// Who logged in here.
    pub user: Option<&'a str>,
    /// Over TLS.
    pub secure: bool,
    /// The workers' clock.
    pub now_ms: u64,
}

impl Cached {
    /// Answers from the ledger, or says who is to be called. A page that is to be made anew meanwhile
    /// is begun, with the request that `call` makes. On a thread of a worker.
    pub fn ask(
        self: &Arc<Self>,
        head: &Head<'_>,
        caller: &Caller<'_>,
        call: impl FnOnce() -> Request,
    ) -> Found {
        let why = match head.method {
            Method::Get | Method::Head if head.body == BodyLength::None => "uri-miss",
            Method::Get | Method::Head => "request",
            _ => return self.pass_by("method"),
        };
        let asker = Asker {
            fields: head.fields,
            secure: caller.secure,
            user: caller.user,
            authorized: head.asks.authorization.is_some() && caller.user.is_none(),
            personal: head.asks.cookie && !self.rule.ignores_cookies,
        };
        let key = Key::of(self.route, head);
        let mut shard = self.cache.shard(key.bytes());
        let found = shard.slots.get_mut(key.bytes()).map(|slot| {
            let page = slot.pages.iter().find(|page| page.suits(&asker));
            (page.cloned(), slot)
        });
        let why = match found {
            Some((Some(page), slot)) => match page.good_for(caller.now_ms) {
                Use::Fresh => {
                    drop(shard);
                    return Found::Kept(self.stored(&page, head, caller.now_ms));
                }
                Use::WhileRevalidate => {
                    let is_begun = slot.fills.iter().any(|fill| fill.covers(&asker));
                    let fill = (!is_begun && !page.is_spared(caller.now_ms))
                        .then(|| self.cache.begin(slot, page.place.clone(), &asker));
                    drop(shard);
                    if let Some(fill) = fill {
                        let work = Work::new(self.clone(), fill, Some(page.clone()), &asker);
                        spawn_local(work.unawaited().run(call(), Hand::nobody()));
                    }
                    return Found::Kept(self.stored(&page, head, caller.now_ms));
                }
                Use::IfError | Use::Dead => "stale",
            },
            Some((None, slot)) if !slot.pages.is_empty() => "vary-miss",
            _ => why,
        };
        drop(shard);
        // The handler alone can judge conditions and ranges of a request with Authorization: its
        // response is mostly for that client alone. So the handler gets such a request unchanged,
        // unless the client asks for a whole page.
        let asks = &head.asks;
        let is_whole = head.method == Method::Get
            && asks.if_none_match.is_none()
            && asks.if_modified_since.is_none()
            && asks.range.is_none();
        let is_own = (asker.authorized && !is_whole)
            || why == "request"
            || !asks.if_match.is_none()
            || asks.if_unmodified_since.is_some();
        if is_own {
            return self.pass_by("request");
        }
        let cached = self.clone();
        Found::Call(Arc::new(Filling { cached, why }))
    }

    /// A page on the spot.
    fn stored(&self, page: &Arc<Page>, head: &Head<'_>, now_ms: u64) -> Stored {
        page.variant.touch();
        let choice = page.choose(&head.asks);
        if choice.wants_gzip {
            self.cache.want_gzip(page);
        }
        Stored::kept(choice.variant, head, page.kept(now_ms))
    }

    fn pass_by(self: &Arc<Self>, why: &'static str) -> Found {
        let cached = self.clone();
        Found::Call(Arc::new(Passing { cached, why }))
    }

    fn asker<'r>(&self, request: &'r Request) -> Asker<'r> {
        let fields = Fields(&request.fields);
        let has = |name| fields.first(name).is_some();
        Asker {
            fields,
            secure: request.secure,
            user: request.user.as_deref(),
            authorized: request.user.is_none() && has("authorization"),
            personal: !self.rule.ignores_cookies && has("cookie"),
        }
    }

    fn place(&self, request: &Request) -> Place {
        let host = Fields(&request.fields).first("host");
        let host = host.unwrap_or(&request.host);
        let key = Key::new(
            self.route,
            host,
            &request.raw_path,
            request.query.as_deref(),
        );
        let asked_path = request.asked_path.as_ref().unwrap_or(&request.path);
        Place {
            site: self.site.clone(),
            // What is purged is named as it was asked for.
            path: asked_path.as_slice().into(),
            key: key.bytes().into(),
        }
    }

    /// A request for a page that there isn't: one calls, all others wait.
    async fn answer(
        self: Arc<Self>,
        request: Request,
        why: &'static str,
    ) -> Result<Response, Fault> {
        let place = Arc::new(self.place(&request));
        loop {
            let asker = self.asker(&request);
            let joined = self.cache.join(&place, &asker, self.cache.now_ms());
            let (fill, old) = match joined {
                Join::Page(page) => return Ok(self.of_old_page(&page, &request, "hit")),
                Join::Pass => return self.pass(request, "bypass").await,
                Join::Lead(fill, old) => {
                    let lead = Lead {
                        cached: &self,
                        why,
                        old,
                    };
                    return lead.run(request, fill).await;
                }
                Join::Follow(fill, old) => (fill, old),
            };
            let mut reader = Reader::new(fill);
            let told = reader.wait(false).await;
            let is_same = |varied: &Varied| varied.is(asker.fields);
            match told {
                Told::Head(head) if is_same(&head.varied) => {
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
                Told::Over(Phase::Done(page)) if is_same(&page.varied) => {
                    let status = format!("fwd={why}; collapsed");
                    return Ok(of_page(&page, &request, &status, None));
                }
                Told::Over(Phase::Passed) => return self.pass(request, why).await,
                // That was said to who began the call, and to nobody else.
                Told::Over(Phase::Failed(reject)) if reject.is_of_one_client() => {}
                Told::Over(Phase::Failed(reject)) => {
                    return self.failed(old.as_ref(), &request, reject);
                }
                Told::Over(Phase::Broken(why)) => {
                    let reject = why.unwrap_or(Reject::HANDLER_FAILED);
                    return self.failed(old.as_ref(), &request, reject);
                }
                // Another of its kind, or nobody's any more: join anew.
                Told::Head(_) | Told::Over(_) => {}
            }
        }
    }

    /// Calls for this client alone.
    async fn pass(&self, request: Request, why: &str) -> Result<Response, Fault> {
        let mut response = self.inner.handle(request).await?;
        say(&mut response.fields, &format!("fwd={why}"));
        Ok(response)
    }

    /// The call that this request waited for has failed; an old page may do instead.
    fn failed(
        &self,
        old: Option<&Arc<Page>>,
        request: &Request,
        reject: Reject,
    ) -> Result<Response, Fault> {
        let old = old.filter(|_| reject.status.0 >= 500);
        match old.filter(|page| page.good_for(self.cache.now_ms()) != Use::Dead) {
            Some(page) => {
                let status = format!("fwd=stale; fwd-status={}", reject.status.0);
                Ok(self.of_old_page(page, request, &status))
            }
            None => Err(Fault::new("the call that a page was waited for", reject)),
        }
    }

    /// A page that was there before, as a live response.
    fn of_old_page(&self, page: &Arc<Page>, request: &Request, status: &str) -> Response {
        let kept = page.kept(self.cache.now_ms());
        let status = format!("{status}; ttl={}", kept.ttl_seconds);
        of_page(page, request, &status, Some(kept.age_seconds))
    }

    /// A handler changed something: what was kept of it counts no more (RFC 9111 §4.4), nor of where
    /// its response leads, or what was asked was to go, if that is here.
    fn invalidate(&self, target: &Target, response: &Response) {
        self.cache.invalidate(&target.place.key);
        let values = |name| super::policy::values(&response.fields, name);
        let values = values("Location").chain(values("Content-Location"));
        let values = values.chain(target.destination.as_deref());
        for place in values.filter_map(|value| target.led_to(value)) {
            let (path, query) = match place.iter().position(|byte| *byte == b'?') {
                Some(at) => (&place[..at], Some(&place[at + 1..])),
                None => (place, None),
            };
            let key = Key::new(self.route, &target.host, path, query);
            self.cache.invalidate(key.bytes());
        }
    }
}

/// Makes a live response of a page. A page that was made for this request has an Age only if the
/// handler sent one.
fn of_page(page: &Arc<Page>, request: &Request, status: &str, age: Option<u64>) -> Response {
    let page = page.clone();
    let own = page.variant.status_line();
    let mut fields = page.fields();
    fields.extend(page.vary());
    if let Some(age) = age.or(Some(page.terms.age).filter(|age| *age > 0)) {
        fields.push((Cow::Borrowed("Age"), age.to_string().into_bytes()));
    }
    of_head(&own, &fields, request, status, move || content(page))
}

/// What a request was for, kept while it is called.
struct Target {
    place: Place,
    host: Vec<u8>,
    /// Where COPY and MOVE put it.
    destination: Option<Vec<u8>>,
}

impl Target {
    /// Path and query of a reference, if it is one of this very origin.
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

/// Does `Destination` mean anything with this method (RFC 4918 §10.3)? With others it is only something
/// that a client says.
fn has_destination(method: Method) -> bool {
    matches!(method.name(), "COPY" | "MOVE")
}

/// Calls for all who ask the same.
struct Filling {
    cached: Arc<Cached>,
    why: &'static str,
}

impl Handler for Filling {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        if request.hops > 0 {
            // Asked by a call that others may wait for already: it would wait for itself.
            let cached = self.cached.clone();
            return Box::pin(async move { cached.pass(request, "bypass").await });
        }
        Box::pin(self.cached.clone().answer(request, self.why))
    }
}

/// Calls past the cache.
struct Passing {
    cached: Arc<Cached>,
    why: &'static str,
}

impl Handler for Passing {
    fn handle(&self, request: Request) -> LocalBoxFuture<Result<Response, Fault>> {
        let (cached, why) = (self.cached.clone(), self.why);
        let target = (!request.method.is_safe()).then(|| {
            let fields = Fields(&request.fields);
            Target {
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
}

/// Who begins a call for all.
struct Lead<'c> {
    cached: &'c Arc<Cached>,
    why: &'static str,
    old: Option<Arc<Page>>,
}

impl Lead<'_> {
    async fn run(
        self,
        mut request: Request,
        fill: Arc<super::fill::Fill>,
    ) -> Result<Response, Fault> {
        let Lead { cached, why, old } = self;
        let asker = cached.asker(&request);
        let work = Work::new(cached.clone(), fill.clone(), old.clone(), &asker);
        let mut reader = Reader::new(fill);
        let (_, nothing) = pipe(1);
        let own = Request {
            inside: request.inside.take(),
            fields: request.fields.clone(),
            body: std::mem::replace(&mut request.body, nothing),
            host: request.host.clone(),
            raw_path: request.raw_path.clone(),
            path: request.path.clone(),
            asked_path: request.asked_path.clone(),
            query: request.query.clone(),
            led_query: request.led_query.clone(),
            user: request.user.clone(),
            ..request
        };
        let hand = Hand::new();
        spawn_local(work.run(own, hand.weak()));
        let status = |is_kept| {
            let stored = if is_kept { "; stored" } else { "" };
            format!("fwd={why}{stored}")
        };
        match reader.wait(true).await {
            Told::Head(head) => {
                let body = || streamed(head.length, reader, Some(hand));
                // Where its length isn't known, it may be too long in the end.
                let status = status(head.is_kept && head.length.is_some());
                Ok(of_head(&head.status, &head.fields, &request, &status, body))
            }
            Told::Over(Phase::Done(page)) => {
                let is_kept = page.terms.lifetime.end() > 0;
                Ok(of_page(&page, &request, &status(is_kept), None))
            }
            Told::Over(Phase::Failed(reject)) => match hand.take() {
                Some(Handed::Answer(Err(fault))) => Err(fault),
                _ => cached.failed(old.as_ref(), &request, reject),
            },
            Told::Over(_) => match hand.take() {
                Some(Handed::Answer(answer)) => {
                    let mut response = answer?;
                    say(&mut response.fields, &format!("fwd={why}"));
                    Ok(response)
                }
                _ => cached.failed(old.as_ref(), &request, Reject::HANDLER_FAILED),
            },
        }
    }
}

/// Adds Cache-Status (RFC 9211).
fn say(fields: &mut Vec<(Cow<'static, str>, Vec<u8>)>, status: &str) {
    let value = format!("anthill; {status}").into_bytes();
    fields.push((Cow::Borrowed("Cache-Status"), value));
}

/// A response with this head; 304 for who has it already.
fn of_head(
    status: &StatusLine,
    fields: &[(Cow<'static, str>, Vec<u8>)],
    request: &Request,
    said: &str,
    body: impl FnOnce() -> Body,
) -> Response {
    let mut fields = fields.to_vec();
    say(&mut fields, said);
    if **status == Status::OK && is_known(&fields, request) {
        fields.retain(|(name, _)| !of_the_bytes(name));
        return Response {
            status: Status::NOT_MODIFIED.into(),
            fields,
            body: Body::Empty,
        };
    }
    Response {
        status: status.clone(),
        fields,
        body: body(),
    }
}

/// Does who asks have it already?
fn is_known(fields: &[(Cow<'static, str>, Vec<u8>)], request: &Request) -> bool {
    let asked = Fields(&request.fields);
    let mut tags = asked.all("if-none-match");
    let asks = Asks {
        if_none_match: match (tags.next(), tags.next()) {
            (None, _) => Values::None,
            (Some(one), None) => Values::One(one),
            _ => Values::Many(asked, "if-none-match"),
        },
        if_modified_since: asked.first("if-modified-since"),
        ..Asks::default()
    };
    let value = |name| super::policy::values(fields, name).next();
    let tag = value("ETag").and_then(ETag::parse);
    // RFC 9111 §4.3.2.
    let modified = || parse_http_date(value("Last-Modified").or_else(|| value("Date"))?);
    judge_by(&asks, tag, modified) == Verdict::NotModified
}

/// The content of a page, at the client's pace.
fn content(page: Arc<Page>) -> Body {
    let length = page.variant.size();
    if length <= CACHE_CHUNK_BYTES as u64 {
        return Body::Whole(page.variant.bytes().to_vec());
    }
    let (mut writer, reader) = pipe(PIPE_BYTES);
    let work = async move {
        if writer.write_all(page.variant.bytes()).await.is_ok() {
            writer.finish();
        }
    };
    Body::Stream {
        length: Some(length),
        reader,
        work: Box::pin(work),
    }
}

/// What comes of a call, at the client's pace.
fn streamed(length: Option<u64>, from: Reader, hand: Option<Hand>) -> Body {
    let (writer, reader) = pipe(PIPE_BYTES);
    Body::Stream {
        length,
        reader,
        work: Box::pin(copy(from, writer, hand)),
    }
}

async fn copy(mut from: Reader, mut to: pipe::Writer, hand: Option<Hand>) {
    let mut chunk = Vec::new();
    loop {
        chunk.clear();
        match from.take(&mut chunk, CACHE_CHUNK_BYTES).await {
            Taken::Bytes(_) => {
                if to.write_all(&chunk).await.is_err() {
                    return;
                }
            }
            Taken::End => return to.finish(),
            Taken::Broken(why) => return to.break_off(why),
            Taken::Rest => break,
        }
    }
    // What was gathered is sent; others may have its room while the rest goes on.
    drop(from);
    if let Some(Handed::Rest(rest)) = hand.and_then(|hand| hand.take()) {
        rest.copy(to).await;
    }
}
