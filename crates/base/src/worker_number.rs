//! Number of the current thread, for data that is split by thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of the current thread: threads are numbered from 0 in the order of their first call.
pub fn worker_number() -> usize {
    NUMBER.with(|number| match number.get() {
        usize::MAX => {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(next);
            next
        }
        known => known,
    })
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_number_of_its_own() {
        let here = worker_number();
        assert_eq!(worker_number(), here);
        let there = std::thread::spawn(worker_number).join();
        assert_ne!(there.ok(), Some(here));
    }
}
