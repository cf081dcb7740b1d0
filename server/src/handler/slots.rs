//! So many at a time, and a short queue for the next: what keeps a flood of calls from becoming a
//! flood of processes or connections. One ledger for all workers; who waits is served in order.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place; dropping it gives it to who waits.
pub struct Slot {
    /// None before there is one.
    permit: Option<OwnedSemaphorePermit>,
    slots: Arc<Slots>,
    is_leaving: bool,
}

/// There is no place, and none in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// The places.
pub struct Slots {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// All that have a place or wait for one.
    inside: AtomicUsize,
    /// Places that were promised to who waits, and aren't free yet.
    leaving: AtomicUsize,
    size: Mutex<Size>,
}

struct Size {
    /// So many there are to be.
    full: usize,
    /// So many there are for now.
    max: usize,
    /// So many places still have to be taken away, once they are free.
    owed: usize,
}

impl Slots {
    /// With `max` places, at least one.
    pub fn new(max: usize) -> Slots {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Slots {
            free: Arc::new(Semaphore::new(max)),
            waiting: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            leaving: AtomicUsize::new(0),
            size: Mutex::new(Size {
                full: max,
                max,
                owed: 0,
            }),
        }
    }

    /// From now on with `max` places. Who has one keeps it.
    pub fn resize(&self, max: usize) {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let mut size = self.lock();
        size.full = max;
        self.set(&mut size, max);
    }

    /// For now with so many places, at least one, and no more than there are to be.
    pub fn set_for_now(&self, max: usize) {
        let mut size = self.lock();
        let max = max.clamp(1, size.full);
        self.set(&mut size, max);
    }

    /// With all places again.
    pub fn widen(&self) {
        let mut size = self.lock();
        let full = size.full;
        self.set(&mut size, full);
    }

    /// So many places more than there are for now; no more than there are to be.
    pub fn add(&self, more: usize) {
        let mut size = self.lock();
        let max = (size.max + more).min(size.full);
        self.set(&mut size, max);
    }

    fn set(&self, size: &mut Size, max: usize) {
        let there = size.max + size.owed;
        size.max = max;
        size.owed = there.saturating_sub(max);
        if there < max {
            self.free.add_permits(max - there);
        }
        size.owed -= self.free.forget_permits(size.owed);
    }

    /// So many places fewer than there are to be.
    pub fn missing(&self) -> usize {
        let size = self.lock();
        size.full - size.max
    }

    /// Places that somebody has.
    pub fn taken(&self) -> usize {
        let size = self.lock();
        (size.max + size.owed).saturating_sub(self.free.available_permits())
    }

    /// Is there somebody who waits for a place?
    pub fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn lock(&self) -> MutexGuard<'_, Size> {
        self.size.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, waiting for it in a queue of at most `queue_max` for at most `patience`. The queue
    /// is longer by the places that there are to be and aren't for now.
    pub fn enter(
        self: &Arc<Self>,
        queue_max: usize,
        patience: Duration,
    ) -> impl Future<Output = Result<Slot, Busy>> + use<> {
        let slots = Arc::clone(self);
        async move {
            slots.settle();
            let others = slots.inside.fetch_add(1, Ordering::Relaxed);
            let mut slot = Slot {
                permit: None,
                slots: Arc::clone(&slots),
                is_leaving: false,
            };
            if let Ok(permit) = Arc::clone(&slots.free).try_acquire_owned() {
                slot.permit = Some(permit);
                return Ok(slot);
            }
            if others >= slots.most() + queue_max {
                return Err(Busy);
            }
            slots.waiting.fetch_add(1, Ordering::Relaxed);
            let _waiting = Waiting(&slots.waiting);
            let permit = Arc::clone(&slots.free).acquire_owned();
            let Ok(Ok(permit)) = tokio::time::timeout(patience, permit).await else {
                return Err(Busy);
            };
            slot.permit = Some(permit);
            Ok(slot)
        }
    }

    /// So many places there are to be, or still are.
    fn most(&self) -> usize {
        let size = self.lock();
        size.full.max(size.max + size.owed)
    }

    /// Takes away what is owed, if it is free by now.
    fn settle(&self) {
        let mut size = self.lock();
        if size.owed > 0 {
            size.owed -= self.free.forget_permits(size.owed);
        }
    }
}

impl Slot {
    /// Promises this place to somebody who waits; true if somebody does to whom no other was promised.
    /// Nobody has to where the missing places would do for all.
    pub fn give_way(&mut self) -> bool {
        let slots = &self.slots;
        let are_few = slots.inside.load(Ordering::Relaxed) <= slots.most();
        if slots.missing() > 0 && are_few {
            return false;
        }
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let more = |leaving| {
            let is_wanted = leaving < slots.waiting.load(Ordering::Relaxed);
            is_wanted.then_some(leaving + 1)
        };
        if !self.is_leaving {
            self.is_leaving = slots.leaving.fetch_update(set, read, more).is_ok();
        }
        self.is_leaving
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
        // Whoever waits has it before the promise is forgotten.
        if self.is_leaving {
            self.slots.leaving.fetch_sub(1, Ordering::Relaxed);
        }
        self.slots.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    fn give_back(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let mut size = self.slots.lock();
        if size.owed > 0 {
            size.owed -= 1;
            permit.forget();
        }
    }
}

/// One who waits; dropping it leaves the queue.
struct Waiting<'s>(&'s AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    const NONE: Duration = Duration::from_millis(1);

    #[test]
    fn places_are_given_on_in_order_and_the_queue_is_short() {
        wait(async {
            let slots = Arc::new(Slots::new(1));
            let first = slots.enter(1, NONE).await.unwrap();
            assert_eq!(slots.enter(0, NONE).await.err(), Some(Busy));
            // In the queue, but not for long.
            assert_eq!(slots.enter(1, NONE).await.err(), Some(Busy));
            let second = slots.enter(1, Duration::from_secs(60));
            let (second, ()) = tokio::join!(second, async { drop(first) });
            assert!(second.is_ok());
        });
    }

    #[test]
    fn as_many_give_way_as_wait() {
        wait(async {
            let slots = Arc::new(Slots::new(2));
            let mut first = slots.enter(0, NONE).await.unwrap();
            let mut other = slots.enter(0, NONE).await.unwrap();
            assert!(!first.give_way());
            let waits = slots.enter(1, Duration::from_secs(60));
            let gives = async {
                assert!(first.give_way());
                assert!(!other.give_way(), "one waits, and one goes already");
                assert!(first.give_way());
                drop(first);
            };
            let (third, ()) = tokio::join!(waits, gives);
            assert!(third.is_ok());
            assert!(!other.give_way(), "nobody waits any more");
            let waits = slots.enter(1, Duration::from_secs(60));
            let gives = async {
                assert!(other.give_way());
                drop(other);
            };
            assert!(tokio::join!(waits, gives).0.is_ok());
        });
    }

    #[test]
    fn more_and_fewer_places() {
        wait(async {
            let slots = Arc::new(Slots::new(3));
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(slots.enter(0, NONE).await.unwrap());
            }
            slots.resize(1);
            assert!(slots.enter(0, NONE).await.is_err());
            held.pop();
            assert!(slots.enter(0, NONE).await.is_err());
            held.pop();
            assert!(slots.enter(0, NONE).await.is_err());
            held.pop();
            held.push(slots.enter(0, NONE).await.unwrap());
            assert!(slots.enter(0, NONE).await.is_err());
            slots.resize(2);
            held.push(slots.enter(0, NONE).await.unwrap());
            assert!(slots.enter(0, NONE).await.is_err());
        });
    }
}
