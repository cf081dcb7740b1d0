//! A waker for tests that counts its wake-ups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

/// Counter of wake-ups.
#[derive(Default)]
pub(crate) struct CountingWaker(Arc<WakeCount>);

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountingWaker {
    /// Returns a waker of the counter.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Returns the number of wake-ups.
    pub(crate) fn count(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }
}
