//! Last heartbeats of members: the numbers of idle and of busy workers, announced each second.

use crate::limits::HEARTBEAT_EXPIRY_MILLISECONDS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wire::heartbeat::Heartbeat;

/// Returns the weight of a member in a random choice. A member without busy workers probably started a moment
/// ago and counts a quarter, as in Apache's mod_lbmethod_heartbeat, but at least 1.
fn weight(heartbeat: Heartbeat) -> u32 {
    match heartbeat {
        Heartbeat { ready, busy: 0, .. } if ready > 0 => (ready / 4).max(1),
        Heartbeat { ready, .. } => ready,
    }
}

/// Last heartbeat of a member, shared by all workers.
#[derive(Default)]
pub(super) struct LastHeartbeat {
    /// Idle workers in the upper half, busy workers in the lower half.
    numbers: AtomicU64,
    /// Time of the heartbeat in milliseconds, plus 1; 0 before the first heartbeat.
    heard_at: AtomicU64,
}

impl LastHeartbeat {
    /// Replaces the heartbeat.
    pub(super) fn record(&self, heartbeat: Heartbeat, now_ms: u64) {
        let numbers = u64::from(heartbeat.ready) << 32 | u64::from(heartbeat.busy);
        self.numbers.store(numbers, Relaxed);
        self.heard_at.store(now_ms.saturating_add(1), Relaxed);
    }

    /// Returns the heartbeat, without its port, unless expired.
    pub(super) fn fresh(&self, now_ms: u64) -> Option<Heartbeat> {
        let heard_at_ms = self.heard_at.load(Relaxed).checked_sub(1)?;
        let age_ms = now_ms.saturating_sub(heard_at_ms);
        let numbers = self.numbers.load(Relaxed);
        (age_ms < HEARTBEAT_EXPIRY_MILLISECONDS).then_some(Heartbeat {
            ready: (numbers >> 32) as u32,
            busy: numbers as u32,
            port: None,
        })
    }

    /// Returns the weight of the member in a random choice; 0 without a fresh heartbeat.
    pub(super) fn weight(&self, now_ms: u64) -> u32 {
        self.fresh(now_ms).map_or(0, weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heartbeat(ready: u32, busy: u32) -> Heartbeat {
        Heartbeat {
            ready,
            busy,
            port: None,
        }
    }

    #[test]
    fn heartbeats_expire() {
        let last = LastHeartbeat::default();
        assert_eq!(last.weight(0), 0);
        last.record(heartbeat(8, 1), 0);
        assert_eq!(last.weight(HEARTBEAT_EXPIRY_MILLISECONDS - 1), 8);
        assert_eq!(last.weight(HEARTBEAT_EXPIRY_MILLISECONDS), 0);
    }

    #[test]
    fn a_member_without_busy_workers_counts_a_quarter() {
        let weight = |ready, busy| weight(heartbeat(ready, busy));
        assert_eq!([weight(80, 1), weight(80, 0), weight(3, 0)], [80, 20, 1]);
        assert_eq!([weight(0, 0), weight(0, 9)], [0, 0]);
    }

    proptest! {
        #[test]
        fn a_recorded_heartbeat_is_read(ready: u32, busy: u32) {
            let last = LastHeartbeat::default();
            last.record(heartbeat(ready, busy), 5);
            prop_assert_eq!(last.fresh(6), Some(heartbeat(ready, busy)));
        }
    }
}
