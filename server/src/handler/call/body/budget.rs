//! Memory budget for the beginnings of request bodies, buffered before their calls start. All workers share
//! the budget, since each connection and each stream may buffer a beginning.

use crate::limits::BODY_BUDGET_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of buffered bytes of all bodies.
#[derive(Default, Debug)]
pub(crate) struct BodyBudget(AtomicUsize);

/// Part of the budget reserved for a body. Dropping the reservation frees the bytes.
#[derive(Debug)]
pub(crate) struct BodyReservation {
    all: Arc<BodyBudget>,
    bytes: usize,
}

impl BodyBudget {
    /// Makes an empty reservation.
    pub fn reservation(self: &Arc<Self>) -> BodyReservation {
        BodyReservation {
            all: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Returns the number of reserved bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl BodyReservation {
    /// Reserves `bytes` more bytes. Returns false if the budget has no room.
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
    fn reservations_are_limited_and_freed() {
        let all = Arc::new(BodyBudget::default());
        let (mut one, mut other) = (all.reservation(), all.reservation());
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
