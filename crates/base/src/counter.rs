//! Counter that one thread writes and any thread reads.
//!
//! Counting costs a load and a store, and no cache line moves between processors.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Makes a counter that stands at 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n` on the thread that owns the counter. Of two concurrent additions one would be lost, so
    /// shared counters need [`Counter::add_shared`].
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds 1 on the thread that owns the counter. See [`Counter::add`].
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n` from any thread, provided that all threads use this method for the counter.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Returns the current value.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
