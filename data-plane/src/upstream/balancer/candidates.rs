//! Members among which a balancing method chooses, in Apache's order.
//!
//! The lowest set with a usable member is used. Within a set, each unusable regular member is replaced by a
//! hot spare, and hot standbys serve a set without any other usable member. A member with as many requests
//! under way as it may have is usable but full: neither a spare nor a higher set takes its requests, which
//! wait instead.

use crate::upstream::balancer::member::Member;
use crate::upstream::balancer::request::MemberId;
use crate::upstream::balancer::seat::Seat;
use crate::upstream::balancer::standing::Standing;
use crate::upstream::settings::{AdminState, MemberRole};
use base::client_network::ClientNetwork;

/// Conditions under which members count as usable.
#[derive(Copy, Clone)]
pub(super) struct UsableTerms<'a> {
    /// Client of the request.
    pub(super) client: ClientNetwork,
    /// Hash of the client's address.
    pub(super) client_hash: u64,
    /// True for a request for a tunnel or an event stream.
    pub(super) is_tunnel: bool,
    /// Members that failed to answer the request.
    pub(super) tried: &'a [MemberId],
    /// Milliseconds on the monotonic clock.
    pub(super) now_ms: u64,
    /// True if the whole body of the request is in memory, or the request has no body.
    pub(super) is_gathered: bool,
    /// True if members with failed checks are usable, because the checks are in doubt.
    pub(super) ignores_checks: bool,
    /// True if ejected members are usable, and members with doubted checks without a trial, because no other
    /// member is.
    pub(super) ignores_ejections: bool,
}

/// Usability of a member for one request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    /// The member may get the request.
    Ready,
    /// The member may get the request after the end of another request.
    Full,
    /// The member may not get the request.
    Unusable,
}

impl UsableTerms<'_> {
    /// Returns the usability of a member, apart from draining.
    pub(super) fn readiness(&self, member: &Member, standing: Standing) -> Readiness {
        let is_unusable = !standing.is_allowed()
            || standing.is_check_failed && !self.ignores_checks
            || standing.is_ejected
                && !self.ignores_ejections
                && !member.is_due_for_trial(self.client_hash, self.now_ms, self.is_gathered)
            || self.tried.contains(&member.id());
        match is_unusable {
            true => Readiness::Unusable,
            false if member.is_full_for(self.client, self.is_tunnel) => Readiness::Full,
            false => Readiness::Ready,
        }
    }
}

/// Seats in the order of their sets, and within a set in the order of the list.
#[derive(Default)]
pub(super) struct SetOrder {
    seats: Vec<u16>,
    /// Number of each set, and the end of its seats.
    sets: Vec<(u8, usize)>,
}

impl SetOrder {
    /// Sorts the seats of a balancer.
    pub(super) fn of(seats: &[Seat]) -> SetOrder {
        let set_of = |index: &u16| seats[usize::from(*index)].member.standing().set;
        let mut order: Vec<u16> = (0..seats.len())
            .filter_map(|at| at.try_into().ok())
            .collect();
        order.sort_by_key(set_of);
        let mut end = 0;
        let sets = order.chunk_by(|left, right| set_of(left) == set_of(right));
        let sets = sets.map(|set| {
            end += set.len();
            (set_of(&set[0]), end)
        });
        SetOrder {
            sets: sets.collect(),
            seats: order,
        }
    }
}

/// Members found for a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Members of the set with the given number.
    Set(u8),
    /// All usable members of the lowest set with usable members are full.
    Full,
    /// No member is usable.
    None,
}

/// Lists of members for one choice. The lists are kept between choices, so that a choice allocates nothing.
#[derive(Default)]
pub(super) struct Candidates {
    /// Members to choose from: regular members, then the spares in use, or else standbys.
    chosen_from: Vec<u16>,
    /// Number of regular members or standbys in `chosen_from`.
    spares_at: usize,
    /// Regular members of the set that are unusable.
    unusable: Vec<u16>,
    spares: Vec<u16>,
    standbys: Vec<u16>,
    has_full: bool,
}

impl Candidates {
    /// Reserves memory for the members of a balancer.
    pub(super) fn reserve(&mut self, members: usize) {
        for list in [
            &mut self.chosen_from,
            &mut self.unusable,
            &mut self.spares,
            &mut self.standbys,
        ] {
            list.clear();
            list.reserve(members);
        }
    }

    /// Finds the members for a request.
    pub(super) fn collect(
        &mut self,
        seats: &[Seat],
        order: &SetOrder,
        terms: &UsableTerms<'_>,
    ) -> Found {
        let mut start = 0;
        for (set, end) in &order.sets {
            self.collect_set(seats, &order.seats[start..*end], terms);
            start = *end;
            if !self.chosen_from.is_empty() {
                return Found::Set(*set);
            }
            if self.has_full {
                return Found::Full;
            }
        }
        Found::None
    }

    fn collect_set(&mut self, seats: &[Seat], set: &[u16], terms: &UsableTerms<'_>) {
        self.chosen_from.clear();
        self.unusable.clear();
        self.spares.clear();
        self.standbys.clear();
        self.has_full = false;
        for index in set {
            self.add(&seats[usize::from(*index)].member, *index, terms);
        }
        self.spares_at = self.chosen_from.len();
        let spares_max = self.unusable.len().min(self.spares.len());
        self.chosen_from.extend(&self.spares[..spares_max]);
        if self.chosen_from.is_empty() && !self.has_full {
            self.chosen_from.append(&mut self.standbys);
            self.spares_at = self.chosen_from.len();
            self.has_full = self.chosen_from.is_empty() && self.has_full_standby(seats, set, terms);
        }
    }

    /// Adds a member to its list. A draining member gets no request without a session. A member with doubted
    /// checks gets one request at a time until a request succeeds, so that a dead member costs one request.
    fn add(&mut self, member: &Member, index: u16, terms: &UsableTerms<'_>) {
        let standing = member.standing();
        let awaits_trial =
            standing.is_unproven && member.is_on_trial(terms.now_ms) && !terms.ignores_ejections;
        let is_paused = standing.has_paused_clients
            && !terms.ignores_ejections
            && member.is_paused_for(terms.client_hash, terms.now_ms);
        let readiness = match standing.admin {
            _ if awaits_trial || is_paused => Readiness::Unusable,
            AdminState::Draining => Readiness::Unusable,
            AdminState::Enabled | AdminState::Disabled | AdminState::Stopped => {
                terms.readiness(member, standing)
            }
        };
        match (readiness, standing.role) {
            (Readiness::Ready, MemberRole::Regular) => self.chosen_from.push(index),
            (Readiness::Ready, MemberRole::Spare) => self.spares.push(index),
            (Readiness::Ready, MemberRole::Standby) => self.standbys.push(index),
            (Readiness::Full, MemberRole::Regular) => self.has_full = true,
            (Readiness::Unusable, MemberRole::Regular) => self.unusable.push(index),
            (Readiness::Full | Readiness::Unusable, _) => {}
        }
    }

    /// Returns true if a spare or a standby would serve the set but is full.
    fn has_full_standby(&self, seats: &[Seat], set: &[u16], terms: &UsableTerms<'_>) -> bool {
        set.iter().any(|index| {
            let member = &seats[usize::from(*index)].member;
            let standing = member.standing();
            let has_role = match standing.role {
                MemberRole::Regular => false,
                MemberRole::Spare => !self.unusable.is_empty(),
                MemberRole::Standby => true,
            };
            has_role
                && standing.admin == AdminState::Enabled
                && terms.readiness(member, standing) == Readiness::Full
        })
    }

    /// Returns the members to choose from.
    pub(super) fn all(&self) -> &[u16] {
        &self.chosen_from
    }

    /// Returns the spares among the members to choose from.
    pub(super) fn spares(&self) -> &[u16] {
        &self.chosen_from[self.spares_at..]
    }

    /// Returns the unusable regular members of the set.
    pub(super) fn unusable(&self) -> &[u16] {
        &self.unusable
    }
}
