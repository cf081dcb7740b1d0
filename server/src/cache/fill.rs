//! A call whose response is to be kept, as it stands, and those who wait for it, on whichever worker.
//!
//! Nobody of them owns it: it goes on when the client leaves for whom it was begun, as long as another
//! waits, or it comes to its end soon. What comes of it
//! lies here until it is a page, and each takes it from here at a pace of its own, so that one who is
//! slow holds up nobody.

use super::PageCache;
use super::key::{Audience, PresentedRequest, VaryFields};
use super::page::{CachedPage, CachedPageId};
use crate::wire::reject::Reject;
use crate::wire::response_fields::ResponseFields;
use crate::wire::status::StatusLine;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// One call.
pub(super) struct CacheFill {
    pub(super) place: Arc<CachedPageId>,
    pub(super) kind: Audience,
    /// Something changed since it began: what comes of it isn't kept.
    doomed: AtomicBool,
    state: Mutex<FillState>,
    /// The memory that its content takes, as long as anybody reads it.
    grant: Mutex<Option<FillReservation>>,
}

/// Memory for content that is coming, given back in the end.
pub(super) struct FillReservation {
    cache: Arc<PageCache>,
    bytes: usize,
}

impl FillReservation {
    pub(super) fn new(cache: Arc<PageCache>) -> FillReservation {
        FillReservation { cache, bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let is_granted = self.cache.take(bytes);
        if is_granted {
            self.bytes += bytes;
        }
        is_granted
    }
}

impl Drop for FillReservation {
    fn drop(&mut self) {
        self.cache.give_back(self.bytes);
    }
}

struct FillState {
    phase: FillPhase,
    /// The request's fields that its answer depends on, as far as that is known.
    varied: Option<VaryFields>,
    /// Its head, once it is there and may be shared.
    head: Option<Arc<FillHead>>,
    /// Of its content, what has come.
    bytes: Vec<u8>,
    /// Who waits; a free seat is None.
    seats: Vec<Option<Waker>>,
    readers: usize,
}

/// How it stands.
#[derive(Clone)]
pub(super) enum FillPhase {
    /// It goes on.
    Open,
    /// It is whole.
    Done(Arc<CachedPage>),
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
pub(super) struct FillHead {
    pub(super) status: StatusLine,
    pub(super) fields: ResponseFields,
    /// Bytes of its content, where that is known.
    pub(super) length: Option<u64>,
    pub(super) varied: VaryFields,
    /// It is to become a page that stays.
    pub(super) is_kept: bool,
}

/// What who waits is told.
pub(super) enum HeadWait {
    /// This is it; the content is there, or comes.
    Head(Arc<FillHead>),
    /// The call is over.
    Over(FillPhase),
}

/// What a reader finds.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum FillRead {
    /// So much was appended.
    Bytes(usize),
    /// That was all.
    End,
    /// It broke off, by this rule if one is known.
    Broken(Option<Reject>),
    /// The rest comes by another way, to who began the call.
    Rest,
}

impl CacheFill {
    pub(super) fn new(
        place: Arc<CachedPageId>,
        kind: Audience,
        varied: Option<VaryFields>,
    ) -> CacheFill {
        CacheFill {
            place,
            kind,
            doomed: AtomicBool::new(false),
            state: Mutex::new(FillState {
                phase: FillPhase::Open,
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
    pub(super) fn grow(&self, cache: &Arc<PageCache>, bytes: usize) -> bool {
        let mut grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        grant
            .get_or_insert_with(|| FillReservation::new(cache.clone()))
            .grow(bytes)
    }

    /// Is it likely to bring what is asked for?
    pub(super) fn covers(&self, asker: &PresentedRequest<'_>) -> bool {
        let is_varied = |varied: &VaryFields| varied.is(asker.fields);
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
    pub(super) fn begin(&self, head: FillHead) {
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
    pub(super) fn set(&self, phase: FillPhase) {
        let mut state = self.state();
        state.phase = phase;
        state.wake();
    }

    fn state(&self) -> MutexGuard<'_, FillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FillState {
    fn wake(&mut self) {
        self.seats.iter().flatten().for_each(Waker::wake_by_ref);
    }
}

/// Somebody who waits for a call, and reads what comes of it.
pub(super) struct FillReader {
    fill: Arc<CacheFill>,
    seat: usize,
    at: usize,
}

impl FillReader {
    pub(super) fn new(fill: Arc<CacheFill>) -> FillReader {
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
        FillReader { fill, seat, at: 0 }
    }

    /// Waits for the head, or the end. Who didn't begin the call can't take it over, so for them a
    /// head counts only once it is sure that all of the content will be here.
    pub(super) async fn wait(&mut self, is_first: bool) -> HeadWait {
        poll_fn(|cx| {
            let mut state = self.fill.state();
            let head = state.head.as_ref();
            if let Some(head) = head.filter(|head| is_first || head.length.is_some()) {
                return Poll::Ready(HeadWait::Head(head.clone()));
            }
            if let FillPhase::Open = state.phase {
                state.sit(self.seat, cx);
                return Poll::Pending;
            }
            Poll::Ready(HeadWait::Over(state.phase.clone()))
        })
        .await
    }

    /// Appends at most `bytes_max` of the content to `out`.
    pub(super) async fn take(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> FillRead {
        poll_fn(|cx| self.poll_take(cx, out, bytes_max)).await
    }

    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Poll<FillRead> {
        let mut state = self.fill.state();
        let bytes = match &state.phase {
            FillPhase::Done(page) => page.variant.bytes(),
            _ => &state.bytes,
        };
        let left = bytes.get(self.at..).unwrap_or_default();
        if !left.is_empty() {
            let part = &left[..left.len().min(bytes_max)];
            out.extend_from_slice(part);
            self.at += part.len();
            return Poll::Ready(FillRead::Bytes(part.len()));
        }
        match state.phase {
            FillPhase::Open => {
                state.sit(self.seat, cx);
                Poll::Pending
            }
            FillPhase::Done(_) => Poll::Ready(FillRead::End),
            FillPhase::Passed => Poll::Ready(FillRead::Rest),
            FillPhase::Broken(why) => Poll::Ready(FillRead::Broken(why)),
            FillPhase::Failed(_) | FillPhase::Abandoned => Poll::Ready(FillRead::Broken(None)),
        }
    }
}

impl FillState {
    fn sit(&mut self, seat: usize, cx: &mut Context<'_>) {
        let waker = &mut self.seats[seat];
        if !waker.as_ref().is_some_and(|it| it.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }
}

impl Drop for FillReader {
    fn drop(&mut self) {
        let mut state = self.fill.state();
        state.seats[self.seat] = None;
        state.readers -= 1;
    }
}
