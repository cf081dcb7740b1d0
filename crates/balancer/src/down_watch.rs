//! Requests that wait for the answer of one member, to be woken when the member goes down.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Number of times that a member went down, and the wakers of its waiting requests. The number of wakers is
/// bounded by the number of requests under way.
#[derive(Default)]
pub(crate) struct DownWatch {
    downs: AtomicU32,
    wakers: Mutex<WakerSlab>,
}

#[derive(Default)]
struct WakerSlab {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// Key of a registered waker.
#[derive(Debug)]
pub(crate) struct WatchKey(usize);

impl DownWatch {
    /// Returns the number of times that the member went down.
    pub(crate) fn downs(&self) -> u32 {
        self.downs.load(Ordering::Acquire)
    }

    /// Registers or replaces a waker.
    pub(crate) fn register(&self, key: &mut Option<WatchKey>, waker: &Waker) {
        let mut slab = self.lock();
        if let Some(WatchKey(at)) = key {
            match &mut slab.wakers[*at] {
                Some(known) => known.clone_from(waker),
                empty => *empty = Some(waker.clone()),
            }
            return;
        }
        let at = match slab.free.pop() {
            Some(at) => at,
            None => {
                slab.wakers.push(None);
                slab.wakers.len() - 1
            }
        };
        slab.wakers[at] = Some(waker.clone());
        *key = Some(WatchKey(at));
    }

    /// Removes a waker.
    pub(crate) fn unregister(&self, key: WatchKey) {
        let mut slab = self.lock();
        let waker = slab.wakers[key.0].take();
        slab.free.push(key.0);
        if slab.free.len() == slab.wakers.len() && slab.wakers.len() > SLAB_KEPT {
            *slab = WakerSlab::default();
        }
        drop(slab);
        drop(waker);
    }

    /// Counts that the member went down, and wakes all registered requests.
    pub(crate) fn go_down(&self) {
        self.downs.fetch_add(1, Ordering::Release);
        let wakers: Vec<Waker> = {
            let mut slab = self.lock();
            slab.wakers.iter_mut().filter_map(Option::take).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, WakerSlab> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places that an unused slab keeps. Larger slabs give their memory back.
const SLAB_KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_waker::CountingWaker;

    #[test]
    fn all_registered_requests_are_woken_once() {
        let watch = DownWatch::default();
        let wakers: Vec<CountingWaker> = (0..3).map(|_| CountingWaker::default()).collect();
        let mut keys: Vec<Option<WatchKey>> = wakers.iter().map(|_| None).collect();
        for (key, waker) in keys.iter_mut().zip(&wakers) {
            watch.register(key, &waker.waker());
            watch.register(key, &waker.waker());
        }
        watch.unregister(keys[1].take().unwrap());
        watch.go_down();
        watch.go_down();
        let counts: Vec<usize> = wakers.iter().map(CountingWaker::count).collect();
        assert_eq!((counts, watch.downs()), (vec![1, 0, 1], 2));
    }

    #[test]
    fn places_are_used_again() {
        let watch = DownWatch::default();
        for _ in 0..1_000 {
            let mut key = None;
            watch.register(&mut key, Waker::noop());
            watch.unregister(key.unwrap());
        }
        assert_eq!(watch.lock().wakers.len(), 1);
    }

    #[test]
    fn a_large_slab_gives_its_memory_back() {
        let watch = DownWatch::default();
        let mut keys: Vec<Option<WatchKey>> = (0..1_000).map(|_| None).collect();
        for key in &mut keys {
            watch.register(key, Waker::noop());
        }
        keys.into_iter()
            .flatten()
            .for_each(|key| watch.unregister(key));
        assert_eq!(watch.lock().wakers.capacity(), 0);
    }
}
