//! Addresses of one host name: the last good answer, and the time of the next look-up. Pure.

use crate::limits::{RESOLVE_AGAIN_SECONDS, RESOLVE_RETRY_SECONDS, RESOLVED_ADDRESSES_MAX};
use std::net::IpAddr;
use std::sync::Arc;

/// State of a host name.
#[derive(Debug, Default)]
pub(super) struct NameState {
    /// Addresses of the last good answer.
    addresses: Option<Arc<[IpAddr]>>,
    /// Earliest start of the next look-up in milliseconds.
    next_at_ms: u64,
    /// Start of the running look-up in milliseconds.
    running_since_ms: Option<u64>,
    /// True if the last look-up failed.
    has_failed: bool,
}

/// Addresses of a host name for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameAnswer {
    /// Addresses of the last good answer, in the order of the system.
    Known(Arc<[IpAddr]>),
    /// The first look-up is not over.
    Pending,
    /// No look-up gave an address, and the last look-up failed.
    Failed,
}

impl NameState {
    /// Returns the addresses for a request.
    pub(super) fn answer(&self) -> NameAnswer {
        match &self.addresses {
            Some(addresses) => NameAnswer::Known(Arc::clone(addresses)),
            None if self.has_failed => NameAnswer::Failed,
            None => NameAnswer::Pending,
        }
    }

    /// Starts a look-up if a look-up is due. One look-up runs at a time.
    pub(super) fn begin(&mut self, now_ms: u64) -> bool {
        let is_due = self.running_since_ms.is_none() && now_ms >= self.next_at_ms;
        if is_due {
            self.running_since_ms = Some(now_ms);
        }
        is_due
    }

    /// Records the end of the running look-up. A failure, or an answer without addresses, keeps the last
    /// good answer. Equal addresses in another order keep the order, so that connections in use stay
    /// preferred. Returns true for a failure after a good answer and for a first failure.
    pub(super) fn finish(&mut self, found: Option<Vec<IpAddr>>) -> bool {
        let had_failed = self.has_failed;
        let since_ms = self.running_since_ms.take().unwrap_or(0);
        let found = found
            .map(distinct)
            .filter(|addresses| !addresses.is_empty());
        self.has_failed = found.is_none();
        let pause_seconds = match self.has_failed {
            true => RESOLVE_RETRY_SECONDS,
            false => RESOLVE_AGAIN_SECONDS,
        };
        self.next_at_ms = since_ms.saturating_add(pause_seconds * 1_000);
        if let Some(found) = found
            && !self.has_equal_addresses(&found)
        {
            self.addresses = Some(found.into());
        }
        self.has_failed && !had_failed
    }

    /// Records that the look-up could not start, because too many look-ups wait. The look-up stays due.
    pub(super) fn postpone(&mut self) {
        self.running_since_ms = None;
    }

    /// Returns true while a look-up runs.
    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.running_since_ms.is_some()
    }

    fn has_equal_addresses(&self, found: &[IpAddr]) -> bool {
        self.addresses.as_ref().is_some_and(|known| {
            known.len() == found.len() && known.iter().all(|address| found.contains(address))
        })
    }
}

/// Removes repeated addresses, and addresses beyond the bound.
fn distinct(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut kept = Vec::new();
    for address in addresses {
        if kept.len() < RESOLVED_ADDRESSES_MAX && !kept.contains(&address) {
            kept.push(address);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(last: &[u8]) -> Vec<IpAddr> {
        last.iter()
            .map(|last| IpAddr::from([192, 0, 2, *last]))
            .collect()
    }

    fn known(last: &[u8]) -> NameAnswer {
        NameAnswer::Known(addresses(last).into())
    }

    #[test]
    fn a_name_is_looked_up_again_after_30_seconds() {
        let mut name = NameState::default();
        assert_eq!(name.answer(), NameAnswer::Pending);
        assert!(name.begin(1_000));
        assert!(!name.begin(90_000), "a look-up runs");
        name.finish(Some(addresses(&[1, 2])));
        assert_eq!(name.answer(), known(&[1, 2]));
        // The interval counts from the start of the look-up.
        assert!(!name.begin(30_999));
        assert!(name.begin(31_000));
        name.finish(Some(addresses(&[3])));
        assert_eq!(name.answer(), known(&[3]));
    }

    #[test]
    fn a_failure_keeps_the_last_good_answer_and_is_repeated_soon() {
        let mut name = NameState::default();
        assert!(name.begin(0));
        assert!(name.finish(None), "the failure is new");
        assert_eq!(name.answer(), NameAnswer::Failed);
        assert!(!name.begin(4_999));
        assert!(name.begin(5_000));
        assert!(!name.finish(None), "the failure is known");
        assert!(name.begin(10_000));
        assert!(!name.finish(Some(addresses(&[1]))));
        for (start_ms, failure) in [(100_000, None), (200_000, Some(Vec::new()))] {
            assert!(name.begin(start_ms));
            assert!(name.finish(failure), "the failure is new");
            assert_eq!(name.answer(), known(&[1]));
            assert!(!name.begin(start_ms + 4_999));
            assert!(name.begin(start_ms + 5_000));
            assert!(!name.finish(Some(addresses(&[1]))));
        }
    }

    #[test]
    fn another_order_of_equal_addresses_changes_nothing() {
        let mut name = NameState::default();
        name.finish(Some(addresses(&[1, 2, 1])));
        let first = name.answer();
        assert_eq!(first, known(&[1, 2]));
        name.finish(Some(addresses(&[2, 1])));
        assert_eq!(name.answer(), first);
        name.finish(Some(addresses(&[2])));
        assert_eq!(name.answer(), known(&[2]));
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let mut name = NameState::default();
        name.finish(Some(addresses(&(0..=255).collect::<Vec<u8>>())));
        let NameAnswer::Known(kept) = name.answer() else {
            panic!("addresses are known");
        };
        assert_eq!(kept.len(), RESOLVED_ADDRESSES_MAX);
    }

    #[test]
    fn a_postponed_look_up_stays_due() {
        let mut name = NameState::default();
        assert!(name.begin(1_000));
        name.postpone();
        assert_eq!(name.answer(), NameAnswer::Pending);
        assert!(name.begin(1_000));
    }
}
