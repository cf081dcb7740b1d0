//! The state of a shared call, and the readers of the call on all workers.
//!
//! A call has no owner among the clients. When the client of the first request disconnects, the call goes
//! on as long as another client waits or the end is near. The content collects in the shared state until
//! the call becomes a page. Each reader reads the content at an individual pace, so that a slow client does
//! not delay other clients.

use super::key::{Audience, PresentedRequest, VaryFields};
use super::page::{CachedPage, CachedPageId};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use wire::reject::Reject;
use wire::response_fields::ResponseFields;
use wire::status::StatusLine;

/// A shared call.
pub(super) struct CacheFill {
    pub(super) place: Arc<CachedPageId>,
    pub(super) kind: Audience,
    /// True if the resource changed since the start of the call: the response is not stored.
    doomed: AtomicBool,
    state: Mutex<FillState>,
    /// The memory reserved for the content, released when the page is stored or the last reader ends.
    grant: Mutex<Option<FillReservation>>,
}

/// Budget of memory for contents of calls under way.
pub(super) struct FillBudget {
    reserved: AtomicUsize,
    bytes_max: usize,
}

impl FillBudget {
    /// Returns a budget of `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> FillBudget {
        FillBudget {
            reserved: AtomicUsize::new(0),
            bytes_max,
        }
    }

    /// Reserves memory; returns false if the bound is reached.
    fn take(&self, bytes: usize) -> bool {
        let before = self.reserved.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before + bytes <= self.bytes_max;
        if !has_room {
            self.give_back(bytes);
        }
        has_room
    }

    fn give_back(&self, bytes: usize) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory reserved for the content of a call, released on drop.
struct FillReservation {
    budget: Arc<FillBudget>,
    bytes: usize,
}

impl FillReservation {
    fn new(budget: Arc<FillBudget>) -> FillReservation {
        FillReservation { budget, bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let is_granted = self.budget.take(bytes);
        if is_granted {
            self.bytes += bytes;
        }
        is_granted
    }
}

impl Drop for FillReservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

struct FillState {
    phase: FillPhase,
    /// The request fields that select the response, as far as known.
    varied: Option<VaryFields>,
    /// The head of the response, from the time when the head may be shared.
    head: Option<Arc<FillHead>>,
    /// The content received so far.
    bytes: Vec<u8>,
    /// The wakers of the readers; None marks a free seat.
    seats: Vec<Option<Waker>>,
    readers: usize,
}

/// The phase of a call.
#[derive(Clone)]
pub(super) enum FillPhase {
    /// The call is under way.
    Open,
    /// The response is complete.
    Done(Arc<CachedPage>),
    /// The handler failed before the response.
    Failed(Reject),
    /// The content broke off, with the rule, if known.
    Broken(Option<Reject>),
    /// The response is for one client alone. The first request has the response or the remaining content.
    Passed,
    /// The call ended without a result; another request may start a new call.
    Abandoned,
}

/// The head of a response under way.
pub(super) struct FillHead {
    pub(super) status: StatusLine,
    pub(super) fields: ResponseFields,
    /// The length of the content in bytes, if known.
    pub(super) length: Option<u64>,
    pub(super) varied: VaryFields,
    /// True if the response is to be stored as a page.
    pub(super) is_kept: bool,
}

/// The result of a wait for the head.
pub(super) enum HeadWait {
    /// The head of the response; the content is present or follows.
    Head(Arc<FillHead>),
    /// The call has ended.
    Over(FillPhase),
}

/// The result of a read.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum FillRead {
    /// The number of bytes appended.
    Bytes(usize),
    /// The content is complete.
    End,
    /// The content broke off, with the rule, if known.
    Broken(Option<Reject>),
    /// The remaining content is handed over to the first request alone.
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

    /// Releases the memory reserved for the content.
    pub(super) fn release(&self) {
        let mut grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        *grant = None;
    }

    /// Reserves memory for more content; returns false if the bound is reached.
    pub(super) fn grow(&self, budget: &Arc<FillBudget>, bytes: usize) -> bool {
        let mut grant = self.grant.lock().unwrap_or_else(PoisonError::into_inner);
        grant
            .get_or_insert_with(|| FillReservation::new(budget.clone()))
            .grow(bytes)
    }

    /// Returns true if the call's response is likely to answer the request.
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

    /// Returns true if the call has a reader.
    pub(super) fn is_wanted(&self) -> bool {
        self.state().readers > 0
    }

    /// Publishes the head of the response.
    pub(super) fn begin(&self, head: FillHead) {
        let mut state = self.state();
        state.varied = Some(head.varied.clone());
        state.head = Some(Arc::new(head));
        state.wake();
    }

    /// Appends content; returns the length so far.
    pub(super) fn push(&self, bytes: &[u8]) -> usize {
        let mut state = self.state();
        state.bytes.extend_from_slice(bytes);
        state.wake();
        state.bytes.len()
    }

    /// Returns the length of the content received so far, in bytes.
    pub(super) fn length(&self) -> usize {
        self.state().bytes.len()
    }

    /// Takes all content out of the state, for the page.
    pub(super) fn content(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().bytes)
    }

    /// Sets the phase and wakes all readers.
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

/// A reader of a shared call's response.
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

    /// Waits for the head or the end of the call. Only the first request can take over remaining content,
    /// so for all other requests a head counts only with a known length: a head with a known length is
    /// published only with memory reserved for the complete content.
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
