//! Heartbeats of members (Apache's mod_heartbeat): a datagram `v=1&ready=75&busy=5` each second with the
//! numbers of idle and of busy workers.

use crate::limits::{HEARTBEAT_BYTES_MAX, HEARTBEAT_EXPIRY_MILLISECONDS};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers that a member announces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Idle workers of the member.
    pub ready: u32,
    /// Busy workers of the member.
    pub busy: u32,
}

impl Heartbeat {
    /// Parses a datagram. The fields `v`, `ready` and `busy` are necessary, and further fields are ignored.
    pub fn parse(datagram: &[u8]) -> Option<Heartbeat> {
        if datagram.len() > HEARTBEAT_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(datagram).ok()?;
        let text = text.trim_end_matches(['\0', '\r', '\n']);
        let number = |name: &str| -> Option<u32> {
            let mut fields = text.split('&').filter_map(|field| field.split_once('='));
            let (_, value) = fields.find(|(key, _)| *key == name)?;
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| value.parse().ok()).flatten()
        };
        number("v").filter(|version| *version == 1)?;
        Some(Heartbeat {
            ready: number("ready")?,
            busy: number("busy")?,
        })
    }

    /// Returns the weight of the member in a random choice. A member without busy workers probably started
    /// a moment ago and counts a quarter, as in Apache's mod_lbmethod_heartbeat, but at least 1.
    fn weight(self) -> u32 {
        match self {
            Heartbeat { ready, busy: 0 } if ready > 0 => (ready / 4).max(1),
            Heartbeat { ready, .. } => ready,
        }
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

    /// Returns the heartbeat unless expired.
    pub(super) fn fresh(&self, now_ms: u64) -> Option<Heartbeat> {
        let heard_at_ms = self.heard_at.load(Relaxed).checked_sub(1)?;
        let age_ms = now_ms.saturating_sub(heard_at_ms);
        let numbers = self.numbers.load(Relaxed);
        (age_ms < HEARTBEAT_EXPIRY_MILLISECONDS).then_some(Heartbeat {
            ready: (numbers >> 32) as u32,
            busy: numbers as u32,
        })
    }

    /// Returns the weight of the member in a random choice; 0 without a fresh heartbeat.
    pub(super) fn weight(&self, now_ms: u64) -> u32 {
        self.fresh(now_ms).map_or(0, Heartbeat::weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn datagrams_of_apache_are_read() {
        let parsed = |text: &str| Heartbeat::parse(text.as_bytes());
        let heartbeat = Some(Heartbeat { ready: 75, busy: 5 });
        assert_eq!(parsed("v=1&ready=75&busy=5"), heartbeat);
        assert_eq!(parsed("v=1&ready=75&busy=5\0"), heartbeat);
        assert_eq!(parsed("busy=5&port=80&x&ready=75&v=1"), heartbeat);
        for bad in [
            "",
            "v=1",
            "ready=75&busy=5",
            "v=2&ready=75&busy=5",
            "v=1&ready=&busy=5",
            "v=1&ready=+7&busy=5",
            "v=1&ready=-7&busy=5",
            "v=1&ready=99999999999&busy=5",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
        let long = format!("v=1&ready=75&busy=5&x={}", "y".repeat(HEARTBEAT_BYTES_MAX));
        assert_eq!(parsed(&long), None);
    }

    #[test]
    fn heartbeats_expire() {
        let last = LastHeartbeat::default();
        assert_eq!(last.weight(0), 0);
        last.record(Heartbeat { ready: 8, busy: 1 }, 0);
        assert_eq!(last.weight(HEARTBEAT_EXPIRY_MILLISECONDS - 1), 8);
        assert_eq!(last.weight(HEARTBEAT_EXPIRY_MILLISECONDS), 0);
    }

    #[test]
    fn a_member_without_busy_workers_counts_a_quarter() {
        let weight = |ready, busy| Heartbeat { ready, busy }.weight();
        assert_eq!([weight(80, 1), weight(80, 0), weight(3, 0)], [80, 20, 1]);
        assert_eq!([weight(0, 0), weight(0, 9)], [0, 0]);
    }

    proptest! {
        #[test]
        fn arbitrary_datagrams_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            Heartbeat::parse(&bytes);
        }

        #[test]
        fn a_sent_heartbeat_is_read(ready: u32, busy: u32) {
            let text = format!("v=1&ready={ready}&busy={busy}");
            prop_assert_eq!(Heartbeat::parse(text.as_bytes()), Some(Heartbeat { ready, busy }));
            let last = LastHeartbeat::default();
            last.record(Heartbeat { ready, busy }, 5);
            prop_assert_eq!(last.fresh(6), Some(Heartbeat { ready, busy }));
        }
    }
}
