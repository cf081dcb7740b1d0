//! Input of the balancing methods: the members among which a method chooses.

use crate::upstream::balancer::random::RandomSource;
use crate::upstream::balancer::seat::Seat;

/// A choice to be made by a balancing method.
pub(super) struct Contest<'a> {
    /// All members of the balancer.
    pub(super) seats: &'a mut [Seat],
    /// Numbers of the members to choose from, at least one, in Apache's order.
    pub(super) candidates: &'a [u16],
    /// Numbers of the regular members of the set that are unusable.
    pub(super) unusable: &'a [u16],
    /// Candidates that replace unusable members, in the order of `unusable`: the end of `candidates`.
    pub(super) spares: &'a [u16],
    /// Number of the set.
    pub(super) set: u8,
    /// Milliseconds on the monotonic clock.
    pub(super) now_ms: u64,
    /// Length of the slow start in milliseconds.
    pub(super) slow_start_ms: u64,
    /// Hash of the client.
    pub(super) client_hash: u64,
    /// Random numbers.
    pub(super) random: &'a mut RandomSource,
}

impl Contest<'_> {
    /// Returns a member.
    pub(super) fn seat(&self, index: u16) -> &Seat {
        &self.seats[usize::from(index)]
    }

    /// Returns the weight of a member in hundredths, reduced during a slow start.
    pub(super) fn weight(&self, index: u16) -> u32 {
        let member = &self.seat(index).member;
        let share = member.weight_share(self.now_ms, self.slow_start_ms);
        share.of(member.standing().weight)
    }
}
