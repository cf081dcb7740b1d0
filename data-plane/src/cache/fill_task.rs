//! The task of a shared call: calls the handler, decides about storage of the response, and collects the
//! content. The task runs on the worker of the first request, independent of the client's connection, so
//! that a disconnect of the client does not end the call.

use crate::cache::PageCache;
use crate::cache::fill::{CacheFill, FillHead, FillPhase};
use crate::cache::key::{PresentedRequest, VaryFields};
use crate::cache::layer::CachedHandler;
use crate::cache::page::CachedPage;
use crate::cache::policy;
use crate::cache::policy::{
    Freshness, Lifetime, RequestFacts, ResponseTimes, StorageTerms, StoreDecision,
};
use crate::handler::pipe::{self, PipeRead};
use crate::handler::{HandlerError, LocalBoxFuture, Request, Response, ResponseBody};
use crate::limits::{
    CACHE_CHUNK_BYTES, CACHE_FAILED_SECONDS, CACHE_FILL_ABANDONED_LATE_SECONDS_MAX,
    CACHE_FILL_ABANDONED_SECONDS_MAX, CACHE_FILL_UNKNOWN_LENGTH_SECONDS_MAX,
    CACHE_REFRESH_UNATTENDED_SECONDS_MAX,
};
use base::clock;
use base::log::FAILURE_LINES;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use wire::fields::Fields;
use wire::reject::Reject;
use wire::request_head::Method;
use wire::response_fields::ResponseFields;
use wire::status::{Status, StatusLine};

/// The part of a response handed over to the first request alone because the response cannot be shared.
pub(super) enum PrivateOutcome {
    /// The complete response.
    Answer(Result<Response, HandlerError>),
    /// The content after the collected bytes.
    Rest(ContentRest),
    /// The response is for one client, but the handler did not get the client's cookies: the first request calls the
    /// handler anew with its cookies.
    NeedsCookies,
}

/// The remaining content of a response, with the future that produces the content.
pub(super) struct ContentRest {
    reader: pipe::PipeReader,
    work: Option<LocalBoxFuture<()>>,
}

/// The receiving side of a handover within one thread.
pub(super) struct PrivateReceiver(Rc<RefCell<Option<PrivateOutcome>>>);

/// The sending side of a handover; inert if the receiver has been dropped.
pub(super) struct PrivateSender(Weak<RefCell<Option<PrivateOutcome>>>);

impl PrivateReceiver {
    pub(super) fn new() -> PrivateReceiver {
        PrivateReceiver(Rc::default())
    }

    pub(super) fn weak(&self) -> PrivateSender {
        PrivateSender(Rc::downgrade(&self.0))
    }

    /// Returns a sender without a receiver, for a call without a waiting client.
    pub(super) fn nobody() -> PrivateSender {
        PrivateSender(Weak::new())
    }

    pub(super) fn take(&self) -> Option<PrivateOutcome> {
        self.0.borrow_mut().take()
    }
}

impl PrivateSender {
    /// Hands over an outcome. Without a receiver the outcome is dropped, and the handler's call with it.
    fn give(&self, handed: PrivateOutcome) {
        if let Some(hand) = self.0.upgrade() {
            hand.replace(Some(handed));
        }
    }
}

impl ContentRest {
    /// Reads the next part of the content.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<PipeRead, pipe::PipeBroken>> {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
        self.reader.poll_take(cx, out, CACHE_CHUNK_BYTES)
    }

    /// Copies the remaining content to `to`.
    pub(super) async fn copy(mut self, mut to: pipe::PipeWriter) {
        let mut chunk = Vec::new();
        loop {
            chunk.clear();
            match poll_fn(|cx| self.poll_take(cx, &mut chunk)).await {
                Ok(PipeRead::End) => {
                    if let Some(trailers) = self.reader.take_trailers() {
                        to.set_trailers(trailers.into());
                    }
                    return to.finish();
                }
                Err(_) => return to.break_off(self.reader.break_reason()),
                Ok(PipeRead::Bytes(_)) => {}
            }
            // The producer keeps running while the client reads slowly.
            let mut writing = pin!(to.write_all(&chunk));
            let written = poll_fn(|cx| {
                if let Some(work) = &mut self.work
                    && work.as_mut().poll(cx).is_ready()
                {
                    self.work = None;
                }
                writing.as_mut().poll(cx)
            });
            if written.await.is_err() {
                return;
            }
        }
    }
}

/// The task of one shared call.
pub(super) struct FillTask {
    cached: Arc<CachedHandler>,
    fill: Arc<CacheFill>,
    /// The previously stored page, for revalidation and for use while the handler fails.
    old: Option<Arc<CachedPage>>,
    asked: RequestFacts,
    /// True if the handler does not get the Cookie field of the first request.
    lacks_cookies: bool,
    begun_ms: u64,
    /// The time that the call may continue without a waiting client, in seconds.
    alone_seconds: u32,
    is_settled: bool,
}

impl Drop for FillTask {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle(None, FillPhase::Abandoned);
        }
    }
}

impl FillTask {
    pub(super) fn new(
        cached: Arc<CachedHandler>,
        fill: Arc<CacheFill>,
        old: Option<Arc<CachedPage>>,
        asker: &PresentedRequest<'_>,
    ) -> FillTask {
        let hides_cookies = cached.rule.cookies.hides_cookies();
        FillTask {
            begun_ms: cached.cache.now_ms(),
            cached,
            fill,
            old,
            asked: asker.asked(),
            lacks_cookies: hides_cookies && asker.fields.first("cookie").is_some(),
            alone_seconds: CACHE_FILL_ABANDONED_SECONDS_MAX,
            is_settled: false,
        }
    }

    /// Sets the longer limit for a call without a client from the start: a refresh during the use of the
    /// old page.
    pub(super) fn unawaited(mut self) -> FillTask {
        self.alone_seconds = CACHE_REFRESH_UNATTENDED_SECONDS_MAX;
        self
    }

    /// Calls the handler and processes the response. The call ends early if all waiting clients have left
    /// and the response is not completed soon; otherwise clients that disconnect at once could keep scripts
    /// running.
    pub(super) async fn run(mut self, mut request: Request, giving: PrivateSender) {
        let asked_fields = std::mem::take(&mut request.fields);
        request.method = Method::Get;
        request.fields = self.unconditional(&asked_fields);
        // Content inserted from a guarded subrequest makes the page private.
        let guarded = Rc::new(Cell::new(false));
        let inside = request.subrequests.take();
        request.subrequests = inside.map(|inside| inside.with_guard_flag(guarded.clone()));
        let answering = self.cached.inner.call(request);
        let Some(answered) = self.while_wanted(answering, || false).await else {
            return;
        };
        match answered {
            answer if guarded.get() => self.pass_private(answer, &giving),
            Err(fault) => self.failed(fault, &giving),
            Ok(response) => self.answered(response, &asked_fields, &giving).await,
        }
    }

    /// Returns the field lines of a request for the complete page. The client's preconditions are left out,
    /// because the cache evaluates them. With an old page, the validators of the page are added.
    fn unconditional(&self, fields: &[u8]) -> Vec<u8> {
        let mut lines = Vec::with_capacity(fields.len());
        for (name, value) in Fields(fields) {
            let is_condition = CONDITIONS
                .iter()
                .any(|condition| name.eq_ignore_ascii_case(condition.as_bytes()));
            let is_hidden = self.lacks_cookies && name.eq_ignore_ascii_case(b"cookie");
            if !is_condition && !is_hidden {
                for part in [name, b": ", value, b"\r\n"] {
                    lines.extend_from_slice(part);
                }
            }
        }
        if let Some(old) = &self.old {
            lines.extend_from_slice(&old.conditions());
        }
        lines
    }

    /// Awaits `future`; returns None if no client has waited for too long. A call close to completion gets
    /// more time.
    async fn while_wanted<T>(
        &self,
        future: impl Future<Output = T>,
        is_nearly_there: impl Fn() -> bool,
    ) -> Option<T> {
        let mut future = pin!(future);
        let mut alone = 0;
        loop {
            match timeout(Duration::from_secs(1), future.as_mut()).await {
                Ok(done) => return Some(done),
                Err(_) if self.fill.is_wanted() => alone = 0,
                Err(_) => alone += 1,
            }
            let patience = if is_nearly_there() {
                self.alone_seconds
                    .max(CACHE_FILL_ABANDONED_LATE_SECONDS_MAX)
            } else {
                self.alone_seconds
            };
            if alone > patience {
                return None;
            }
        }
    }

    fn settle(&mut self, page: Option<&Arc<CachedPage>>, phase: FillPhase) {
        self.is_settled = true;
        self.cache().settle(&self.fill, page, phase);
    }

    fn cache(&self) -> &Arc<PageCache> {
        &self.cached.cache
    }

    /// Returns the old page if usable while the handler fails.
    fn resort(&self) -> Option<&Arc<CachedPage>> {
        let now_ms = self.cache().now_ms();
        let old = self.old.as_ref();
        old.filter(|page| page.good_for(now_ms) != Freshness::Dead)
    }

    fn failed(&mut self, fault: HandlerError, giving: &PrivateSender) {
        let reject = fault.reject;
        // Only a server error is a failure: a missing resource or a refused client is a valid response (RFC
        // 5861 §4).
        let is_failure = reject.status.0 >= 500 && !reject.is_of_one_client();
        match self.resort().filter(|_| is_failure) {
            Some(old) => {
                old.spare(self.cache().now_ms() + CACHE_FAILED_SECONDS * 1_000);
                FAILURE_LINES.log(reject.rule, log::Level::Error, &|| {
                    format!("{fault}; the cache serves an old page")
                });
            }
            None => giving.give(PrivateOutcome::Answer(Err(fault))),
        }
        self.settle(None, FillPhase::Failed(reject));
    }

    async fn answered(&mut self, response: Response, asked: &[u8], giving: &PrivateSender) {
        let status = *response.status;
        let times = ResponseTimes {
            now: clock::unix_seconds_now(),
            call_seconds: (self.cache().now_ms() - self.begun_ms) / 1_000,
        };
        if status == Status::NOT_MODIFIED
            && let Some(old) = self.old.clone()
        {
            return self.freshened(&old, &response, asked, times);
        }
        if status.0 >= 500
            && let Some(old) = self.resort()
        {
            old.spare(self.cache().now_ms() + CACHE_FAILED_SECONDS * 1_000);
            let place = &self.fill.place;
            let (site, code) = (&place.site, status.0);
            FAILURE_LINES.log(Reject::HANDLER_FAILED.rule, log::Level::Error, &|| {
                let path = place.path.escape_ascii();
                format!(
                    "{site}{path}: the handler responded with {code}; the cache serves an old page"
                )
            });
            let reject = Reject {
                status,
                ..Reject::HANDLER_FAILED
            };
            return self.settle(None, FillPhase::Failed(reject));
        }
        let rule = &self.cached.rule;
        let terms = match policy::judge(rule, self.asked, status, &response.fields, times) {
            StoreDecision::Keep(terms) => Some(terms),
            StoreDecision::Share => {
                // Later requests make a call of their own: a client may have received the failure before
                // the end of the call is known here.
                self.fill.doom();
                None
            }
            StoreDecision::Pass => return self.pass_private(Ok(response), giving),
        };
        self.gather(response, asked, terms, giving).await;
    }

    /// Hands the response to the first request alone.
    fn pass(&mut self, answer: Result<Response, HandlerError>, giving: &PrivateSender) {
        giving.give(PrivateOutcome::Answer(answer));
        self.settle_passed();
    }

    /// Hands a response that is for one client to the first request. Without the client's cookies, the handler took the
    /// client for a stranger: the page may be one for strangers, and a session in Set-Cookie would replace the client's.
    fn pass_private(&mut self, answer: Result<Response, HandlerError>, giving: &PrivateSender) {
        if self.lacks_cookies && answer.is_ok() {
            giving.give(PrivateOutcome::NeedsCookies);
            self.settle_passed();
        } else {
            self.pass(answer, giving);
        }
    }

    fn settle_passed(&mut self) {
        let now_ms = self.cache().now_ms();
        let fill = self.fill.clone();
        // The response for one login says nothing about the page for all clients.
        if let Some(old) = &self.old
            && !fill.kind.authorized
        {
            self.cache().drop_page(old);
        }
        self.cache()
            .remember_pass(&fill.place.key, &fill.kind, now_ms);
        self.settle(None, FillPhase::Passed);
    }

    /// Stores the old page anew with the fields of a 304 response.
    fn freshened(
        &mut self,
        old: &Arc<CachedPage>,
        response: &Response,
        asked: &[u8],
        times: ResponseTimes,
    ) {
        let mut fields = old.freshened(response);
        let status = old.variant.status_line();
        let verdict = policy::judge(&self.cached.rule, self.asked, *status, &fields, times);
        let terms = match verdict {
            StoreDecision::Keep(terms) => Some(terms),
            StoreDecision::Share | StoreDecision::Pass => {
                // The new fields are for one client alone; the old fields were for all clients.
                fields = old.fields();
                self.cache().drop_page(old);
                None
            }
        };
        let content = old.variant.bytes().into();
        self.done(&status, &fields, content, asked, terms);
    }

    /// Collects the content, as far as the response may become a page.
    async fn gather(
        &mut self,
        response: Response,
        asked: &[u8],
        terms: Option<StorageTerms>,
        giving: &PrivateSender,
    ) {
        let bytes_max = self.bytes_max();
        let (length, known) = match &response.body {
            ResponseBody::Empty => (0, true),
            ResponseBody::Whole(bytes) => (bytes.len() as u64, true),
            ResponseBody::Stream { length, .. } => (length.unwrap_or(0), length.is_some()),
        };
        if length > bytes_max as u64 || !self.fill.grow(&self.cache().fills, length as usize) {
            return self.pass(Ok(response), giving);
        }
        let Response {
            status,
            fields,
            body,
            ..
        } = response;
        let (reader, work) = match body {
            ResponseBody::Empty => {
                return self.done(&status, &fields, Box::default(), asked, terms);
            }
            ResponseBody::Whole(bytes) => {
                return self.done(&status, &fields, bytes.into(), asked, terms);
            }
            ResponseBody::Stream { reader, work, .. } => (reader, work),
        };
        let length = known.then_some(length);
        self.begin_fill(&status, &fields, length, asked, terms.is_some());
        let rest = ContentRest {
            reader,
            work: Some(work),
        };
        let gathering = ContentCollector {
            fill: &self.fill,
            rest,
            cache: self.cache(),
            length,
            bytes_max,
            since: Instant::now(),
        };
        let is_nearly_there =
            || length.is_some_and(|length| self.fill.length() as u64 > length / 2);
        let gathered = self.while_wanted(gathering.run(), is_nearly_there).await;
        match gathered {
            None => {}
            Some(CollectOutcome::Whole { is_doubtful }) => {
                let content = self.fill.content().into();
                let terms = terms.filter(|_| !is_doubtful);
                self.done(&status, &fields, content, asked, terms);
            }
            Some(CollectOutcome::Broken(why)) => self.settle(None, FillPhase::Broken(why)),
            Some(CollectOutcome::TooMuch(rest)) => {
                giving.give(PrivateOutcome::Rest(rest));
                self.settle_passed();
            }
        }
    }

    /// Passes the head of the response to the fill, so that waiting clients get the content as the content
    /// arrives.
    fn begin_fill(
        &self,
        status: &StatusLine,
        fields: &ResponseFields,
        length: Option<u64>,
        asked: &[u8],
        is_kept: bool,
    ) {
        let mut all_fields = fields.clone();
        let bytes = length.map(|length| length as usize);
        let may_vary = is_kept && !self.cached.rule.is_plain;
        if may_vary && crate::cache::page::adds_vary(**status, &self.fill.kind, fields, bytes) {
            crate::cache::page::push_our_vary(&mut all_fields);
        }
        self.fill.begin(FillHead {
            status: status.clone(),
            fields: all_fields,
            length,
            varied: self.varied(fields, asked),
            is_kept,
        });
    }

    /// Returns the fields that select the response. The handler got no Cookie field where the route's rule hides it, so
    /// the response is the same for every value, although `Vary` names the field.
    fn varied(&self, fields: &ResponseFields, asked: &[u8]) -> VaryFields {
        let hides_cookies = self.cached.rule.cookies.hides_cookies();
        let is_constant = |name: &str| hides_cookies && name.eq_ignore_ascii_case("cookie");
        VaryFields::of(fields, Fields(asked), is_constant)
    }

    fn bytes_max(&self) -> usize {
        let rule = self.cached.rule.page_bytes;
        rule.min(self.cache().page_bytes_max())
    }

    /// Settles the call with a complete page. Without `terms` the page is only for clients waiting now.
    fn done(
        &mut self,
        status: &StatusLine,
        fields: &ResponseFields,
        content: Box<[u8]>,
        asked: &[u8],
        terms: Option<StorageTerms>,
    ) {
        let mut kind = self.fill.kind.clone();
        kind.authorized = false;
        let age = || {
            policy::age(
                fields,
                ResponseTimes {
                    now: clock::unix_seconds_now(),
                    call_seconds: 0,
                },
            )
        };
        let page = Arc::new(CachedPage::new(
            self.fill.place.clone(),
            kind,
            self.varied(fields, asked),
            terms.unwrap_or_else(|| StorageTerms {
                age: age(),
                is_plain: self.cached.rule.is_plain,
                ..FOR_NOW
            }),
            status,
            fields,
            content,
            self.cached.rule.disk,
            self.cache().now_ms(),
            clock::unix_seconds_now(),
            &self.cache().bytes,
        ));
        let kept = terms.is_some().then(|| page.clone());
        self.settle(kept.as_ref(), FillPhase::Done(page));
        // Unchanged content keeps the compressed representation.
        if let (Some(page), Some(old)) = (kept, &self.old)
            && let Some(made) = old.gzip()
            && old.variant.bytes() == page.variant.bytes()
            && page.is_text()
        {
            self.cache().hang_gzip(&page, made.bytes().into());
        }
    }
}

/// Storage terms of a page that is not stored.
const FOR_NOW: StorageTerms = StorageTerms {
    lifetime: Lifetime {
        fresh: 0,
        while_revalidate: 0,
        if_error: 0,
    },
    age: 0,
    explicit: false,
    for_authorized: false,
    is_plain: false,
};

/// Request fields of preconditions and ranges, left out of the handler's request.
const CONDITIONS: [&str; 6] = [
    "If-Match",
    "If-None-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    "If-Range",
    "Range",
];

/// The collector of a response's content in memory.
struct ContentCollector<'w> {
    fill: &'w CacheFill,
    rest: ContentRest,
    cache: &'w Arc<PageCache>,
    length: Option<u64>,
    bytes_max: usize,
    since: Instant,
}

/// The outcome of a content collection.
enum CollectOutcome {
    Whole {
        /// True if the content may be truncated: the content is only for clients waiting now.
        is_doubtful: bool,
    },
    /// The content broke off, with the rule, if known.
    Broken(Option<Reject>),
    /// The content is too large or arrives too slowly for waiting clients.
    TooMuch(ContentRest),
}

impl ContentCollector<'_> {
    async fn run(mut self) -> CollectOutcome {
        let mut chunk = Vec::new();
        let mut so_far = 0;
        loop {
            chunk.clear();
            let part = poll_fn(|cx| {
                let taken = ready!(self.rest.poll_take(cx, &mut chunk));
                Poll::Ready(taken)
            });
            // Without a known length all other clients wait for the end of the content, so the time is
            // limited.
            let patience = match self.length {
                Some(_) => Duration::MAX,
                None => Duration::from_secs(CACHE_FILL_UNKNOWN_LENGTH_SECONDS_MAX)
                    .saturating_sub(self.since.elapsed()),
            };
            match timeout(patience, part).await {
                Err(_) => return CollectOutcome::TooMuch(self.rest),
                Ok(Err(_)) => return CollectOutcome::Broken(self.rest.reader.break_reason()),
                Ok(Ok(PipeRead::End)) => {
                    let is_whole = self.length.is_none_or(|length| length == so_far as u64);
                    return if is_whole {
                        CollectOutcome::Whole {
                            is_doubtful: self.rest.reader.may_be_truncated(),
                        }
                    } else {
                        CollectOutcome::Broken(None)
                    };
                }
                Ok(Ok(PipeRead::Bytes(_))) => {}
            }
            if self
                .length
                .is_some_and(|length| (so_far + chunk.len()) as u64 > length)
            {
                return CollectOutcome::Broken(None);
            }
            so_far = self.fill.push(&chunk);
            let has_room = self.length.is_some() || self.fill.grow(&self.cache.fills, chunk.len());
            if so_far > self.bytes_max || !has_room {
                return CollectOutcome::TooMuch(self.rest);
            }
        }
    }
}
