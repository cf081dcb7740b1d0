//! Queue of requests that wait for a member with `connections_max` requests under way, shared by the
//! members of a balancer.
//!
//! A request that ends hands its slot to the first waiting request that may use the member. The slot is
//! never free in between, and a new request cannot overtake a waiting request.

use crate::upstream::balancer::request::MemberId;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Queue of waiting requests. `T` stands for the slot of a member that a request gets.
pub(super) struct SlotQueue<T> {
    /// Number of waiting requests without an outcome.
    waiting: AtomicUsize,
    state: Mutex<QueueState<T>>,
}

struct QueueState<T> {
    entries: VecDeque<QueueEntry<T>>,
    last_number: u64,
}

struct QueueEntry<T> {
    number: u64,
    /// Member that the request needs; None for any member.
    session_member: Option<MemberId>,
    /// Members that the request must not use.
    tried: Box<[MemberId]>,
    waker: Option<Waker>,
    /// Outcome that the request has not taken yet.
    outcome: Option<WaitOutcome<T>>,
}

/// Number of a waiting request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct WaitNumber(u64);

/// Outcome of waiting.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome<T> {
    /// The slot of a member.
    Slot(T),
    /// The members changed, and the request has to choose again.
    ChooseAgain,
}

impl<T> Default for SlotQueue<T> {
    fn default() -> SlotQueue<T> {
        SlotQueue {
            waiting: AtomicUsize::new(0),
            state: Mutex::new(QueueState {
                entries: VecDeque::new(),
                last_number: 0,
            }),
        }
    }
}

impl<T> SlotQueue<T> {
    /// Returns the number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns true if a request waits.
    pub(super) fn has_waiting(&self) -> bool {
        // With the order of `SeqCst`, either a request that ends sees the new entry, or the new entry's
        // second choice sees the free slot.
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Adds a request to a queue of at most `queue_max` requests. None means that the queue is full.
    pub(super) fn join(
        &self,
        session_member: Option<MemberId>,
        tried: &[MemberId],
        queue_max: usize,
    ) -> Option<WaitNumber> {
        let mut state = self.lock();
        if self.waiting.load(Ordering::SeqCst) >= queue_max {
            return None;
        }
        state.last_number += 1;
        let number = state.last_number;
        state.entries.push_back(QueueEntry {
            number,
            session_member,
            tried: tried.into(),
            waker: None,
            outcome: None,
        });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Some(WaitNumber(number))
    }

    /// Takes the outcome of a waiting request, which thereby leaves the queue, or registers the waker.
    pub(super) fn poll(&self, number: WaitNumber, cx: &Context<'_>) -> Poll<WaitOutcome<T>> {
        let mut state = self.lock();
        let Some(at) = state.position(number) else {
            return Poll::Ready(WaitOutcome::ChooseAgain);
        };
        let entry = &mut state.entries[at];
        match entry.outcome.take() {
            Some(outcome) => {
                state.entries.remove(at);
                Poll::Ready(outcome)
            }
            None => {
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Removes a request. Returns an outcome that the request did not take.
    pub(super) fn leave(&self, number: WaitNumber) -> Option<WaitOutcome<T>> {
        let mut state = self.lock();
        let at = state.position(number)?;
        let entry = state.entries.remove(at)?;
        if entry.outcome.is_none() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        entry.outcome
    }

    /// Gives the result of `take_slot` to the first request that may use `member`. `take_slot` is called
    /// only for such a request, and may return None if the slot is gone. Returns true if a request got the
    /// slot.
    pub(super) fn offer(&self, member: MemberId, take_slot: impl FnOnce() -> Option<T>) -> bool {
        self.settle_first(member, || take_slot().map(WaitOutcome::Slot))
    }

    /// Tells the first request that may use `member` to choose again.
    pub(super) fn wake_first(&self, member: MemberId) {
        self.settle_first(member, || Some(WaitOutcome::ChooseAgain));
    }

    fn settle_first(
        &self,
        member: MemberId,
        outcome: impl FnOnce() -> Option<WaitOutcome<T>>,
    ) -> bool {
        let mut state = self.lock();
        let mut entries = state.entries.iter_mut();
        let Some(entry) = entries.find(|entry| entry.is_waiting() && entry.may_use(member)) else {
            return false;
        };
        let Some(outcome) = outcome() else {
            return false;
        };
        entry.outcome = Some(outcome);
        let waker = entry.waker.take();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Tells all requests to choose again, after a change of the members.
    pub(super) fn wake_all(&self) {
        if !self.has_waiting() {
            return;
        }
        let mut state = self.lock();
        let mut wakers = Vec::new();
        for entry in state.entries.iter_mut().filter(|entry| entry.is_waiting()) {
            entry.outcome = Some(WaitOutcome::ChooseAgain);
            wakers.extend(entry.waker.take());
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueState<T> {
    fn position(&self, number: WaitNumber) -> Option<usize> {
        self.entries.iter().position(|it| it.number == number.0)
    }
}

impl<T> QueueEntry<T> {
    fn is_waiting(&self) -> bool {
        self.outcome.is_none()
    }

    fn may_use(&self, member: MemberId) -> bool {
        self.session_member.is_none_or(|only| only == member) && !self.tried.contains(&member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balancer::test_waker::CountingWaker;

    const A: MemberId = MemberId(1);
    const B: MemberId = MemberId(2);

    #[test]
    fn slots_go_to_the_first_request_that_may_use_the_member() {
        let queue = SlotQueue::default();
        let only_b = queue.join(Some(B), &[], 9).unwrap();
        let not_a = queue.join(None, &[A], 9).unwrap();
        let any = queue.join(None, &[], 9).unwrap();
        assert!(queue.offer(A, || Some("a")));
        assert!(queue.offer(B, || Some("b")));
        assert!(!queue.offer(A, || Some("a")));
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(queue.poll(any, &cx), Poll::Ready(WaitOutcome::Slot("a")));
        assert_eq!(queue.poll(only_b, &cx), Poll::Ready(WaitOutcome::Slot("b")));
        assert_eq!(queue.poll(not_a, &cx), Poll::Pending);
        assert!(queue.has_waiting());
        assert_eq!(queue.leave(not_a), None);
        assert!(!queue.has_waiting());
    }

    #[test]
    fn the_queue_is_bounded() {
        let queue: SlotQueue<()> = SlotQueue::default();
        assert!(queue.join(None, &[], 0).is_none());
        let first = queue.join(None, &[], 2).unwrap();
        assert!(queue.join(None, &[], 2).is_some());
        assert!(queue.join(None, &[], 2).is_none());
        queue.leave(first);
        assert!(queue.join(None, &[], 2).is_some());
    }

    #[test]
    fn a_request_that_leaves_returns_its_slot() {
        let queue = SlotQueue::default();
        let number = queue.join(None, &[], 9).unwrap();
        assert!(queue.offer(A, || Some(7)));
        assert_eq!(queue.leave(number), Some(WaitOutcome::Slot(7)));
        assert_eq!(queue.leave(number), None);
    }

    #[test]
    fn a_slot_that_is_gone_changes_nothing() {
        let queue: SlotQueue<()> = SlotQueue::default();
        queue.join(None, &[], 9).unwrap();
        assert!(!queue.offer(A, || None));
        assert!(queue.has_waiting());
    }

    #[test]
    fn a_change_of_the_members_wakes_all_requests() {
        let queue: SlotQueue<()> = SlotQueue::default();
        let wakers = [CountingWaker::default(), CountingWaker::default()];
        let numbers: Vec<WaitNumber> = wakers
            .iter()
            .map(|counting| {
                let number = queue.join(Some(B), &[], 9).unwrap();
                let waker = counting.waker();
                assert!(
                    queue
                        .poll(number, &Context::from_waker(&waker))
                        .is_pending()
                );
                number
            })
            .collect();
        queue.wake_first(A);
        queue.wake_first(B);
        assert_eq!((wakers[0].count(), wakers[1].count()), (1, 0));
        queue.wake_all();
        assert_eq!((wakers[0].count(), wakers[1].count()), (1, 1));
        for number in numbers {
            let cx = Context::from_waker(Waker::noop());
            assert_eq!(
                queue.poll(number, &cx),
                Poll::Ready(WaitOutcome::ChooseAgain)
            );
        }
    }
}
