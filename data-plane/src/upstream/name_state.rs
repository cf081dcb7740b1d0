//! Addresses of one host name: the last good answer, and the time of the next look-up. Pure.

use crate::limits::{
    ANSWERED_ADDRESSES_MAX, RESOLVE_AGAIN_SECONDS, RESOLVE_RETRY_SECONDS, RESOLVED_ADDRESSES_MAX,
    ROTATION_LOOK_UPS,
};
use std::net::IpAddr;
use std::sync::Arc;

/// State of a host name.
#[derive(Debug, Default)]
pub(super) struct NameState {
    /// Addresses for new connections, from the last good answer.
    addresses: Option<Arc<[IpAddr]>>,
    /// Addresses of the last good answers.
    recent: Vec<RecentAddress>,
    /// Number of good answers for which the name counts as rotating.
    rotates_for: u32,
    /// Earliest start of the next look-up in milliseconds.
    next_at_ms: u64,
    /// Start of the running look-up in milliseconds.
    running_since_ms: Option<u64>,
    /// True if the last look-up failed.
    has_failed: bool,
}

/// Address of one of the last good answers.
#[derive(Debug)]
struct RecentAddress {
    address: IpAddr,
    /// Number of good answers since the last one with the address.
    missed: u32,
}

/// Result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LookUpReport {
    /// True for a failure after a good answer and for a first failure.
    pub(super) is_new_failure: bool,
    /// True if an address has left the name, so that kept connections have to be compared again.
    pub(super) has_lost_address: bool,
}

/// Addresses of a host name for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameAnswer {
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
    /// preferred.
    pub(super) fn finish(&mut self, found: Option<Vec<IpAddr>>) -> LookUpReport {
        let had_failed = self.has_failed;
        let since_ms = self.running_since_ms.take().unwrap_or(0);
        let found = found
            .map(distinct)
            .filter(|addresses| !addresses.is_empty());
        self.has_failed = found.is_none();
        let pause_seconds = if self.has_failed {
            RESOLVE_RETRY_SECONDS
        } else {
            RESOLVE_AGAIN_SECONDS
        };
        self.next_at_ms = since_ms.saturating_add(pause_seconds * 1_000);
        let mut has_lost_address = false;
        if let Some(found) = found {
            has_lost_address = self.remember(&found);
            let found = self.chosen(found);
            if !self.has_equal_addresses(&found) {
                self.addresses = Some(found.into());
            }
        }
        LookUpReport {
            is_new_failure: self.has_failed && !had_failed,
            has_lost_address,
        }
    }

    /// Returns true if connections to the address may stay in use: the last good answer has the address. An address
    /// of a rotating name may be missing in a few answers.
    pub(super) fn keeps(&self, address: IpAddr) -> bool {
        let known = self.recent.iter().find(|it| it.address == address);
        known.is_some_and(|it| it.missed == 0 || self.rotates_for > 0)
    }

    /// Records a good answer. Returns true if an address is no longer kept.
    ///
    /// Some name servers answer with a part of the addresses, each time with another part. An address that comes back
    /// soon, in an answer with several addresses, shows such a rotation.
    fn remember(&mut self, found: &[IpAddr]) -> bool {
        let kept_before = self.recent.iter().filter(|it| self.keeps(it.address));
        let kept_before: Vec<IpAddr> = kept_before.map(|it| it.address).collect();
        self.rotates_for = self.rotates_for.saturating_sub(1);
        for recent in &mut self.recent {
            match found.contains(&recent.address) {
                true if recent.missed > 0 && found.len() > 1 => {
                    self.rotates_for = ROTATION_LOOK_UPS;
                    recent.missed = 0;
                }
                true => recent.missed = 0,
                false => recent.missed += 1,
            }
        }
        self.recent.retain(|it| it.missed < ROTATION_LOOK_UPS);
        for address in found {
            let is_known = self.recent.iter().any(|it| it.address == *address);
            if !is_known && self.recent.len() < ANSWERED_ADDRESSES_MAX {
                self.recent.push(RecentAddress {
                    address: *address,
                    missed: 0,
                });
            }
        }
        kept_before.iter().any(|address| !self.keeps(*address))
    }

    /// Returns the addresses for new connections. If an answer has too many, those in use are preferred, so that
    /// another order of the answer changes nothing.
    fn chosen(&self, found: Vec<IpAddr>) -> Vec<IpAddr> {
        if found.len() <= RESOLVED_ADDRESSES_MAX {
            return found;
        }
        let known = self.addresses.as_deref().unwrap_or_default();
        let (mut chosen, new): (Vec<IpAddr>, Vec<IpAddr>) =
            found.into_iter().partition(|it| known.contains(it));
        chosen.extend(new);
        chosen.truncate(RESOLVED_ADDRESSES_MAX);
        chosen
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
        if kept.len() < ANSWERED_ADDRESSES_MAX && !kept.contains(&address) {
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
        assert!(name.finish(None).is_new_failure, "the failure is new");
        assert_eq!(name.answer(), NameAnswer::Failed);
        assert!(!name.begin(4_999));
        assert!(name.begin(5_000));
        assert!(!name.finish(None).is_new_failure, "the failure is known");
        assert!(name.begin(10_000));
        assert!(!name.finish(Some(addresses(&[1]))).is_new_failure);
        for (start_ms, failure) in [(100_000, None), (200_000, Some(Vec::new()))] {
            assert!(name.begin(start_ms));
            assert!(name.finish(failure).is_new_failure, "the failure is new");
            assert_eq!(name.answer(), known(&[1]));
            assert!(!name.begin(start_ms + 4_999));
            assert!(name.begin(start_ms + 5_000));
            assert!(!name.finish(Some(addresses(&[1]))).is_new_failure);
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

    /// Returns the last numbers of the addresses of which connections stay in use.
    fn kept(name: &NameState) -> Vec<u8> {
        let all = 0..=255;
        all.filter(|last| name.keeps(addresses(&[*last])[0]))
            .collect()
    }

    #[test]
    fn connections_to_an_address_end_with_the_first_answer_without_it() {
        let mut name = NameState::default();
        let mut answer = |last: Option<&[u8]>| {
            let report = name.finish(last.map(addresses));
            (report.has_lost_address, kept(&name))
        };
        assert_eq!(answer(Some(&[1, 2])), (false, vec![1, 2]));
        assert_eq!(answer(Some(&[2, 3])), (true, vec![2, 3]));
        assert_eq!(answer(Some(&[3, 2])), (false, vec![2, 3]));
        assert_eq!(answer(None), (false, vec![2, 3]));
        assert_eq!(answer(Some(&[])), (false, vec![2, 3]));
        assert_eq!(answer(Some(&[4])), (true, vec![4]));
        // The former address comes back alone: the operator has moved the name back.
        assert_eq!(answer(Some(&[3])), (true, vec![3]));
        assert_eq!(answer(Some(&[4])), (true, vec![4]));
    }

    #[test]
    fn a_name_that_answers_with_parts_in_turn_keeps_the_connections() {
        let mut name = NameState::default();
        let parts: [&[u8]; 3] = [&[1, 2], &[3, 4], &[5, 1]];
        // The first round shows the rotation.
        for part in parts {
            name.finish(Some(addresses(part)));
        }
        let mut losses = 0;
        for round in 0..30 {
            let report = name.finish(Some(addresses(parts[round % 3])));
            losses += usize::from(report.has_lost_address);
        }
        assert_eq!((losses, kept(&name)), (0, vec![1, 2, 3, 4, 5]));
        // The name moves to an address of its own, and the rotation is forgotten.
        for _ in 1..ROTATION_LOOK_UPS {
            name.finish(Some(addresses(&[9])));
            assert!(kept(&name).contains(&1));
        }
        assert!(name.finish(Some(addresses(&[9]))).has_lost_address);
        assert_eq!(kept(&name), [9]);
    }

    #[test]
    fn a_long_answer_in_another_order_keeps_the_addresses_in_use() {
        let mut name = NameState::default();
        let all: Vec<u8> = (0..40).collect();
        name.finish(Some(addresses(&all)));
        let first = name.answer();
        for turn in 1..40 {
            let turned = [&all[turn..], &all[..turn]].concat();
            let report = name.finish(Some(addresses(&turned)));
            assert!(!report.has_lost_address);
            assert_eq!(name.answer(), first, "{turn}");
        }
        assert_eq!(kept(&name), all);
        let report = name.finish(Some(addresses(&all[1..])));
        assert!(report.has_lost_address);
        assert_eq!(kept(&name), &all[1..]);
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
