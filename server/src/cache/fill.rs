//! A call whose response is to be kept, as it stands, and those who wait for it, on whichever worker.
//!
//! Nobody of them owns it: it goes on when the client leaves for whom it was begun, as long as another
//! waits, or it comes to its end soon. What comes of it
//! lies here until it is a page, and each takes it from here at a pace of its own, so that one who is
//! slow holds up nobody.

use super::Cache;
use super::key::{Asker, Kind, Varied};
use super::page::{Page, Place};
use crate::wire::reject::Reject;
use crate::wire::status::StatusLine;
use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// One call.
pub(super) struct Fill {
    pub(super) place: Arc<Place>,
    pub(super) kind: Kind,
    /// Something changed since it began: what comes of it isn't kept.
    doomed: AtomicBool,
    state: Mutex<State>,
    /// The memory that its content takes, as long as anybody reads it.
    grant: Mutex<Option<Grant>>,
}

/// Memory for content that is coming, given back in the end.
pub(super) struct Grant {
    cache: Arc<Cache>,
    bytes: usize,
}

impl Grant {
    pub(super) fn new(cache: Arc<Cache>) -> Grant {
        Grant { cache, bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let is_granted = self.cache.take(bytes);
        if is_granted {
            self.bytes += bytes;
        }
        is_granted
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.cache.give_back(self.bytes);
    }
}

struct State {
    phase: Phase,
    /// The request's fields that its answer depends on, as far as that is known.
    varied: Option<Varied>,
    /// Its head, once it is there and may be shared.
    head: Option<Arc<Head>>,
    /// Of its content, what has come.
    bytes: Vec<u8>,
    /// Who waits; a free seat is None.
    seats: Vec<Option<Waker>>,
    readers: usize,
}

/// How it stands.
#[derive(Clone)]
pub(super) enum Phase {
    /// It goes on.
    Open,
    /// It is whole.
    Done(Arc<Page>),
    /// The handler failed before it answered.
    Failed(Reject),
    /// The content broke off, by this rule if one is known.
    Broken(Option<Reject>),
    /// It is for one client alone after all; who began it has it, or what is left of it.
    Passed,
    /// It came to no end; somebody else may begin again.
    Abandoned,
}

/// The head of a response that is coming.
pub(super) struct Head {
    pub(super) status: StatusLine,
    pub(super) fields: Vec<(Cow<'static, str>, Vec<u8>)>,
    /// Bytes of its content, where that is known.
    pub(super) length: Option<u64>,
    pub(super) varied: Varied,
    /// It is to become a page that stays.
    pub(super) is_kept: bool,
}

/// What who waits is told.
pub(super) enum Told {
    /// This is it; the content is there, or comes.
    Head(Arc<Head>),
    /// The call is over.
    Over(Phase),
}

/// What a reader finds.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// So much was appended.
    Bytes(usize),
    /// That was all.
    End,
    /// It broke off, by this rule if one is known.
    Broken(Option<Reject>),
    /// The rest comes by another way, to who began the call.
    Rest,
}

impl Fill {
    pub(super) fn new(place: Arc<Place>, kind: Kind, varied: Option<Varied>) -> Fill {
        Fill {
            place,
            kind,
            doomed: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Open,
                varied,
                head: None,
                bytes: Vec::new(),
                seats: Vec::new(),
                readers: 0,
            }),
            grant: Mutex::default(),
        }
    }

    /// Gives back the memory that was taken for it.
    pub(super) fn release(&self) {
        let mut grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        *grant = None;
    }

    /// Takes memory for so much more content; false if there is none.
    pub(super) fn grow(&self, cache: &Arc<Cache>, bytes: usize) -> bool {
        let mut grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        grant
            .get_or_insert_with(|| Grant::new(cache.clone()))
            .grow(bytes)
    }

    /// Is it likely to bring what is asked for?
    pub(super) fn covers(&self, asker: &Asker<'_>) -> bool {
        let is_varied = |varied: &Varied| varied.is(asker.fields);
        !self.is_doomed()
            && self.kind.is(asker)
            && self.state().varied.as_ref().is_none_or(is_varied)
    }

    pub(super) fn doom(&self) {
        self.doomed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Relaxed)
    }

    /// Does anybody wait for it?
    pub(super) fn is_wanted(&self) -> bool {
        self.state().readers > 0
    }

    /// The head is there.
    pub(super) fn begin(&self, head: Head) {
        let mut state = self.state();
        state.varied = Some(head.varied.clone());
        state.head = Some(Arc::new(head));
        state.wake();
    }

    /// More of the content is there; how much there is now.
    pub(super) fn push(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        state.bytes.extend_from_slice(bytes);
        state.wake();
        state.bytes.len()
    }

    /// How much of the content has come, bytes.
    pub(super) fn length(&self) -> usize {
        self.state().bytes.len()
    }

    /// All of the content that has come: it becomes a page now.
    pub(super) fn content(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().bytes)
    }

    /// It is over.
    pub(super) fn set(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        state.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&mut self) {
        self.seats.iter().flatten().for_each(Waker::wake_by_ref);
    }
}

/// Somebody who waits for a call, and reads what comes of it.
pub(super) struct Reader {
    fill: Arc<Fill>,
    seat: usize,
    at: usize,
}

impl Reader {
    pub(super) fn new(fill: Arc<Fill>) -> Reader {
        let mut state = fill.state();
        state.readers += 1;
        let free = state.seats.iter().position(Option::is_none);
        let nobody = Some(Waker::noop().clone());
        let seat = match free {
            Some(free) => {
                state.seats[free] = nobody;
                free
            }
            None => {
                state.seats.push(nobody);
                state.seats.len() - 1
            }
        };
        drop(state);
        Reader { fill, seat, at: 0 }
    }

    /// Waits for the head, or the end. Who didn't begin the call can't take it over, so for them a
    /// head counts only once it is sure that all of the content will be here.
    pub(super) async fn wait(&mut self, is_first: bool) -> Told {
        poll_fn(|cx| {
            let mut state = self.fill.state();
            let head = state.head.as_ref();
            if let Some(head) = head.filter(|head| is_first || head.length.is_some()) {
                return Poll::Ready(Told::Head(head.clone()));
            }
            if let Phase::Open = state.phase {
                state.sit(self.seat, cx);
                return Poll::Pending;
            }
            Poll::Ready(Told::Over(state.phase.clone()))
        })
        .await
    }

    /// Appends at most `bytes_max` of the content to `out`.
    pub(super) async fn take(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> Taken {
        poll_fn(|cx| self.poll_take(cx, out, bytes_max)).await
    }

    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Poll<Taken> {
        let mut state = self.fill.state();
        let bytes = match &state.phase {
            Phase::Done(page) => page.variant.bytes(),
            _ => &state.bytes,
        };
        let left = bytes.get(self.at..).unwrap_or_default();
        if !left.is_empty() {
            let part = &left[..left.len().min(bytes_max)];
            out.extend_from_slice(part);
            self.at += part.len();
            return Poll::Ready(Taken::Bytes(part.len()));
        }
        match state.phase {
            Phase::Open => {
                state.sit(self.seat, cx);
                Poll::Pending
            }
            Phase::Done(_) => Poll::Ready(Taken::End),
            Phase::Passed => Poll::Ready(Taken::Rest),
            Phase::Broken(why) => Poll::Ready(Taken::Broken(why)),
            Phase::Failed(_) | Phase::Abandoned => Poll::Ready(Taken::Broken(None)),
        }
    }
}

impl State {
    fn sit(&mut self, seat: usize, cx: &mut Context<'_>) {
        let waker = &mut self.seats[seat];
        if !waker.as_ref().is_some_and(|it| it.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.fill.state();
        state.seats[self.seat] = None;
        state.readers -= 1;
    }
}
