//! The beginnings of request bodies that lie in memory before their calls begin: one ledger of their
//! bytes for all workers, for there may be as many of them as there are connections and streams.

use crate::limits::BODY_BUDGET_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many there are in all.
#[derive(Default, Debug)]
pub struct BodyBudget(AtomicUsize);

/// Some of those bytes; dropping it makes room for others.
#[derive(Debug)]
pub struct BodyReservation {
    all: Arc<BodyBudget>,
    bytes: usize,
}

impl BodyBudget {
    /// Of nothing yet.
    pub fn share(self: &Arc<Self>) -> BodyReservation {
        BodyReservation {
            all: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl BodyReservation {
    /// So many more; false where there is no room for them.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = |all: usize| Some(all + bytes).filter(|all| *all <= BODY_BUDGET_BYTES_MAX);
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let has_room = self.all.0.fetch_update(set, read, more).is_ok();
        if has_room {
            self.bytes += bytes;
        }
        has_room
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_much_and_it_is_given_back() {
        let all = Arc::new(BodyBudget::default());
        let (mut one, mut other) = (all.share(), all.share());
        assert!(one.grow(BODY_BUDGET_BYTES_MAX - 1));
        assert!(!other.grow(2));
        assert!(other.grow(1));
        assert!(!one.grow(1));
        assert_eq!(all.bytes(), BODY_BUDGET_BYTES_MAX);
        drop(one);
        assert_eq!(all.bytes(), 1);
        assert!(other.grow(1));
        drop(other);
        assert_eq!(all.bytes(), 0);
    }
}
