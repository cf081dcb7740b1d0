//! The work of a call for all: it asks the handler, decides what may become of the response, and
//! gathers it. A task of its own on the worker of who asked first, so that no client's leaving ends it.

use super::Cache;
use super::cached::Cached;
use super::fill::{Fill, Head, Phase};
use super::key::{Asker, Varied};
use super::page::Page;
use super::policy::{self, Asked, Lifetime, Terms, Times, Use, Verdict};
use crate::base::clock;
use crate::handler::pipe::{self, Taken};
use crate::handler::{Body, Fault, LocalBoxFuture, Request, Response};
use crate::limits::{
    CACHE_ALONE_SECONDS, CACHE_CHUNK_BYTES, CACHE_COMING_SECONDS, CACHE_ENDING_SECONDS,
    CACHE_FAILED_SECONDS, CACHE_LEFT_SECONDS,
};
use crate::wire::fields::Fields;
use crate::wire::head::Method;
use crate::wire::reject::Reject;
use crate::wire::status::{Status, StatusLine};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// What who began a call gets of it by hand, since it can't be shared.
pub(super) enum Handed {
    /// All of it.
    Answer(Result<Response, Fault>),
    /// What follows the bytes that were gathered.
    Rest(Rest),
}

/// The rest of a content, with what makes it.
pub(super) struct Rest {
    reader: pipe::Reader,
    work: Option<LocalBoxFuture<()>>,
}

/// The hand that it is put into; on one thread.
pub(super) struct Hand(Rc<RefCell<Option<Handed>>>);

/// Where to put it, if anybody is there.
pub(super) struct Giving(Weak<RefCell<Option<Handed>>>);

impl Hand {
    pub(super) fn new() -> Hand {
        Hand(Rc::default())
    }

    pub(super) fn weak(&self) -> Giving {
        Giving(Rc::downgrade(&self.0))
    }

    /// For a call that nobody waits for.
    pub(super) fn nobody() -> Giving {
        Giving(Weak::new())
    }

    pub(super) fn take(&self) -> Option<Handed> {
        self.0.borrow_mut().take()
    }
}

impl Giving {
    /// What nobody takes is dropped, and with it the call.
    fn give(&self, handed: Handed) {
        if let Some(hand) = self.0.upgrade() {
            hand.replace(Some(handed));
        }
    }
}

impl Rest {
    /// Takes the next part.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Taken, pipe::Broken>> {
        if let Some(work) = &mut self.work
            && work.as_mut().poll(cx).is_ready()
        {
            self.work = None;
        }
        self.reader.poll_take(cx, out, CACHE_CHUNK_BYTES)
    }

    /// Copies all of it.
    pub(super) async fn copy(mut self, mut to: pipe::Writer) {
        let mut chunk = Vec::new();
        loop {
            chunk.clear();
            match poll_fn(|cx| self.poll_take(cx, &mut chunk)).await {
                Ok(Taken::End) => return to.finish(),
                Err(_) => return to.break_off(self.reader.why()),
                Ok(Taken::Bytes(_)) => {}
            }
            // What makes the rest goes on while its reader is slow.
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

/// One call.
pub(super) struct Work {
    cached: Arc<Cached>,
    fill: Arc<Fill>,
    /// What there was before: it may be good still, or do if the handler fails.
    old: Option<Arc<Page>>,
    asked: Asked,
    begun_ms: u64,
    /// With nobody waiting it goes on for so long.
    alone_seconds: u32,
    is_settled: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle(None, Phase::Abandoned);
        }
    }
}

impl Work {
    pub(super) fn new(
        cached: Arc<Cached>,
        fill: Arc<Fill>,
        old: Option<Arc<Page>>,
        asker: &Asker<'_>,
    ) -> Work {
        Work {
            begun_ms: cached.cache.now_ms(),
            cached,
            fill,
            old,
            asked: asker.asked(),
            alone_seconds: CACHE_LEFT_SECONDS,
            is_settled: false,
        }
    }

    /// The same where an old page is served meanwhile, so that nobody waits from the beginning.
    pub(super) fn unawaited(mut self) -> Work {
        self.alone_seconds = CACHE_ALONE_SECONDS;
        self
    }

    /// Asks the handler; runs to the end of its answer, unless everybody who waited for it leaves and
    /// it doesn't come to its end soon: else whoever asks and leaves would have scripts run for nobody.
    pub(super) async fn run(mut self, mut request: Request, giving: Giving) {
        let asked_fields = std::mem::take(&mut request.fields);
        request.method = Method::Get;
        request.fields = self.unconditional(&asked_fields);
        // What the server itself adds to the page is for others only if it isn't guarded.
        let guarded = Rc::new(Cell::new(false));
        let inside = request.inside.take();
        request.inside = inside.map(|inside| inside.noting(guarded.clone()));
        let answering = self.cached.inner.handle(request);
        let Some(answered) = self.while_wanted(answering, || false).await else {
            return;
        };
        match answered {
            answer if guarded.get() => self.pass(answer, &giving),
            Err(fault) => self.failed(fault, &giving),
            Ok(response) => self.answered(response, &asked_fields, &giving).await,
        }
    }

    /// The field lines of a request for the whole page: its client's conditions are judged here, and
    /// if there was a page before, its handler may say that it is good still.
    fn unconditional(&self, fields: &[u8]) -> Vec<u8> {
        let mut lines = Vec::with_capacity(fields.len());
        for (name, value) in Fields(fields) {
            let is_condition = CONDITIONS
                .iter()
                .any(|condition| name.eq_ignore_ascii_case(condition.as_bytes()));
            let is_hidden =
                self.cached.rule.ignores_cookies && name.eq_ignore_ascii_case(b"cookie");
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

    /// Waits; None if for too long nobody else did. What is nearly there is given longer.
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
            let patience = match is_nearly_there() {
                true => self.alone_seconds.max(CACHE_ENDING_SECONDS),
                false => self.alone_seconds,
            };
            if alone > patience {
                return None;
            }
        }
    }

    fn settle(&mut self, page: Option<&Arc<Page>>, phase: Phase) {
        self.is_settled = true;
        self.cache().settle(&self.fill, page, phase);
    }

    fn cache(&self) -> &Arc<Cache> {
        &self.cached.cache
    }

    /// The old page, if it may be used while the handler fails.
    fn resort(&self) -> Option<&Arc<Page>> {
        let now_ms = self.cache().now_ms();
        let old = self.old.as_ref();
        old.filter(|page| page.good_for(now_ms) != Use::Dead)
    }

    fn failed(&mut self, fault: Fault, giving: &Giving) {
        let reject = fault.reject;
        // That something isn't there, or isn't for this client, is an answer (RFC 5861 §4).
        let is_failure = reject.status.0 >= 500 && !reject.is_of_one_client();
        match self.resort().filter(|_| is_failure) {
            Some(old) => {
                old.spare(self.cache().now_ms() + CACHE_FAILED_SECONDS * 1_000);
                log::error!("{fault}; an old page is served meanwhile");
            }
            None => giving.give(Handed::Answer(Err(fault))),
        }
        self.settle(None, Phase::Failed(reject));
    }

    async fn answered(&mut self, response: Response, asked: &[u8], giving: &Giving) {
        let status = *response.status;
        let times = Times {
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
            let path = place.path.escape_ascii();
            let (site, code) = (&place.site, status.0);
            log::error!(
                "{site}{path}: the handler answered {code}; an old page is served meanwhile"
            );
            let reject = Reject {
                status,
                ..Reject::HANDLER_FAILED
            };
            return self.settle(None, Phase::Failed(reject));
        }
        let rule = &self.cached.rule;
        let terms = match policy::judge(rule, self.asked, status, &response.fields, times) {
            Verdict::Keep(terms) => Some(terms),
            Verdict::Share => {
                // Requests that come from now on make a call of their own: their clients may have had
                // this failure already, before the end of the call is known here.
                self.fill.doom();
                None
            }
            Verdict::Pass => return self.pass(Ok(response), giving),
        };
        self.gather(response, asked, terms, giving).await;
    }

    /// For who asked, and nobody else.
    fn pass(&mut self, answer: Result<Response, Fault>, giving: &Giving) {
        giving.give(Handed::Answer(answer));
        self.settle_passed();
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
        self.settle(None, Phase::Passed);
    }

    /// The old page is good still.
    fn freshened(&mut self, old: &Arc<Page>, response: &Response, asked: &[u8], times: Times) {
        let mut fields = old.freshened(response);
        let status = old.variant.status_line();
        let verdict = policy::judge(&self.cached.rule, self.asked, *status, &fields, times);
        let terms = match verdict {
            Verdict::Keep(terms) => Some(terms),
            Verdict::Share | Verdict::Pass => {
                // Its new fields are for one client alone; the old ones were for all.
                fields = old.fields();
                self.cache().drop_page(old);
                None
            }
        };
        let content = old.variant.bytes().into();
        self.done(&status, &fields, content, asked, terms);
    }

    /// Takes the content in, as far as it may become a page.
    async fn gather(
        &mut self,
        response: Response,
        asked: &[u8],
        terms: Option<Terms>,
        giving: &Giving,
    ) {
        let bytes_max = self.bytes_max();
        let (length, known) = match &response.body {
            Body::Empty => (0, true),
            Body::Whole(bytes) => (bytes.len() as u64, true),
            Body::Stream { length, .. } => (length.unwrap_or(0), length.is_some()),
        };
        if length > bytes_max as u64 || !self.fill.grow(self.cache(), length as usize) {
            return self.pass(Ok(response), giving);
        }
        let Response {
            status,
            fields,
            body,
        } = response;
        let (reader, work) = match body {
            Body::Empty => return self.done(&status, &fields, Box::default(), asked, terms),
            Body::Whole(bytes) => return self.done(&status, &fields, bytes.into(), asked, terms),
            Body::Stream { reader, work, .. } => (reader, work),
        };
        let said = known.then_some(length as usize);
        let is_added =
            terms.is_some() && super::page::adds_vary(*status, &self.fill.kind, &fields, said);
        let vary = is_added.then(super::page::our_vary);
        self.fill.begin(Head {
            status: status.clone(),
            fields: fields.iter().cloned().chain(vary).collect(),
            length: known.then_some(length),
            varied: Varied::of(&fields, Fields(asked)),
            is_kept: terms.is_some(),
        });
        let rest = Rest {
            reader,
            work: Some(work),
        };
        let gathering = Gathering {
            fill: &self.fill,
            rest,
            cache: self.cache(),
            length: known.then_some(length),
            bytes_max,
            since: Instant::now(),
        };
        let half = known.then_some(length / 2);
        let is_nearly_there = || half.is_some_and(|half| self.fill.length() as u64 > half);
        let gathered = self.while_wanted(gathering.run(), is_nearly_there).await;
        match gathered {
            None => {}
            Some(Gathered::Whole { is_doubtful }) => {
                let content = self.fill.content().into();
                let terms = terms.filter(|_| !is_doubtful);
                self.done(&status, &fields, content, asked, terms);
            }
            Some(Gathered::Broken(why)) => self.settle(None, Phase::Broken(why)),
            Some(Gathered::TooMuch(rest)) => {
                giving.give(Handed::Rest(rest));
                self.settle_passed();
            }
        }
    }

    fn bytes_max(&self) -> usize {
        let rule = self.cached.rule.page_bytes;
        rule.min(self.cache().page_bytes_max())
    }

    /// It is whole. Without terms it is for those alone who wait for it now.
    fn done(
        &mut self,
        status: &StatusLine,
        fields: &policy::Fields,
        content: Box<[u8]>,
        asked: &[u8],
        terms: Option<Terms>,
    ) {
        let mut kind = self.fill.kind.clone();
        kind.authorized = false;
        let age = || {
            policy::age(
                fields,
                Times {
                    now: clock::unix_seconds_now(),
                    call_seconds: 0,
                },
            )
        };
        let page = Arc::new(Page::new(
            self.fill.place.clone(),
            kind,
            Varied::of(fields, Fields(asked)),
            terms.unwrap_or_else(|| Terms {
                age: age(),
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
        self.settle(kept.as_ref(), Phase::Done(page));
        // What is the same as before needn't be compressed anew.
        if let (Some(page), Some(old)) = (kept, &self.old)
            && let Some(made) = old.gzip()
            && old.variant.bytes() == page.variant.bytes()
            && page.is_text()
        {
            self.cache().hang_gzip(&page, made.bytes().into());
        }
    }
}

/// Terms of what isn't kept.
const FOR_NOW: Terms = Terms {
    lifetime: Lifetime {
        fresh: 0,
        while_revalidate: 0,
        if_error: 0,
    },
    age: 0,
    explicit: false,
    for_authorized: false,
};

/// What a client wants to hear alone of a page, and whether it has it already.
const CONDITIONS: [&str; 6] = [
    "If-Match",
    "If-None-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    "If-Range",
    "Range",
];

/// A content on its way into memory.
struct Gathering<'w> {
    fill: &'w Fill,
    rest: Rest,
    cache: &'w Arc<Cache>,
    length: Option<u64>,
    bytes_max: usize,
    since: Instant,
}

/// What became of it.
enum Gathered {
    Whole {
        /// As far as anybody knows: it is for those who wait for it, and nobody later.
        is_doubtful: bool,
    },
    /// By this rule, if one is known.
    Broken(Option<Reject>),
    /// It is too large, or comes too slowly, for anybody to wait for it.
    TooMuch(Rest),
}

impl Gathering<'_> {
    async fn run(mut self) -> Gathered {
        let mut chunk = Vec::new();
        let mut so_far = 0;
        loop {
            chunk.clear();
            let part = poll_fn(|cx| {
                let taken = ready!(self.rest.poll_take(cx, &mut chunk));
                Poll::Ready(taken)
            });
            // While the length is unknown all others wait for the end: not for ever.
            let patience = match self.length {
                Some(_) => Duration::MAX,
                None => {
                    Duration::from_secs(CACHE_COMING_SECONDS).saturating_sub(self.since.elapsed())
                }
            };
            match timeout(patience, part).await {
                Err(_) => return Gathered::TooMuch(self.rest),
                Ok(Err(_)) => return Gathered::Broken(self.rest.reader.why()),
                Ok(Ok(Taken::End)) => {
                    let is_whole = self.length.is_none_or(|length| length == so_far as u64);
                    return match is_whole {
                        true => Gathered::Whole {
                            is_doubtful: self.rest.reader.is_doubtful(),
                        },
                        false => Gathered::Broken(None),
                    };
                }
                Ok(Ok(Taken::Bytes(_))) => {}
            }
            if self
                .length
                .is_some_and(|length| (so_far + chunk.len()) as u64 > length)
            {
                return Gathered::Broken(None);
            }
            so_far = self.fill.push(&chunk);
            let has_room = self.length.is_some() || self.fill.grow(self.cache, chunk.len());
            if so_far > self.bytes_max || !has_room {
                return Gathered::TooMuch(self.rest);
            }
        }
    }
}
