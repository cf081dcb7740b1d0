//! Frozen list of the members of a balancer, and the search in it. A reload replaces the list whole, and members with
//! known URLs keep their state.
//!
//! Members among which a balancing method chooses are in Apache's order. The lowest set with a usable member is used.
//! Within a set, each unusable regular member is replaced by a hot spare, and hot standbys serve a set without any other
//! usable member. A member with as many requests under way as it may have is usable but full: neither a spare nor a
//! higher set takes its requests, which wait instead.

use crate::check::CheckCensus;
use crate::contest::{Seat, SetTable};
use crate::limits::SESSION_REDIRECTS_MAX;
use crate::member::Member;
use crate::member_settings::{AdminState, MemberRole, MemberUrl};
use crate::method::BalancingMethod;
use crate::request::MemberId;
use crate::state::Standing;
use crate::sticky::{SessionKey, is_signed};
use base::client_network::ClientNetwork;
use std::sync::Arc;

/// Members of a balancer, with everything that follows from their settings.
pub(crate) struct Roster<C> {
    seats: Vec<Seat<C>>,
    order: SetOrder,
    /// Tables of the balancing method.
    tables: Vec<SetTable>,
}

impl<C> Default for Roster<C> {
    fn default() -> Roster<C> {
        Roster {
            seats: Vec::new(),
            order: SetOrder::default(),
            tables: Vec::new(),
        }
    }
}

/// Settings of a balancer that the list depends on.
pub(crate) struct RosterTerms<'a> {
    /// Name of the balancer.
    pub(crate) name: &'a str,
    /// Balancing method.
    pub(crate) method: BalancingMethod,
    /// Key of the signed session cookies; None if the balancer sets no cookie.
    pub(crate) key: Option<&'a SessionKey>,
}

/// Result of the search for the member of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SessionSeat {
    /// The member may get the request. True means that the member is the session's own.
    Ready(u16, bool),
    /// The member may get the request after the end of another request.
    Full(u16),
    /// No member of the session is usable.
    Unusable,
}

impl<C> Roster<C> {
    /// Creates a list.
    pub(crate) fn new(seats: Vec<Seat<C>>, terms: &RosterTerms<'_>) -> Roster<C> {
        let mut roster = Roster {
            seats,
            ..Roster::default()
        };
        roster.refresh(terms);
        roster
    }

    /// Computes everything anew that follows from the settings of the members.
    pub(crate) fn refresh(&mut self, terms: &RosterTerms<'_>) {
        for seat in &mut self.seats {
            let (route, redirect) = seat
                .member
                .read(|core| (core.settings.route.clone(), core.settings.redirect.clone()));
            let sign = |key: &SessionKey| key.cookie(terms.name, seat.member.url(), &route);
            seat.cookie = terms.key.map(sign);
            seat.member.set_cookie(seat.cookie.clone());
            seat.route = route;
            seat.redirect = redirect;
        }
        self.order = SetOrder::of(&self.seats);
        self.tables = terms.method.tables(&self.seats);
    }

    /// Returns all seats.
    pub(crate) fn seats(&self) -> &[Seat<C>] {
        &self.seats
    }

    /// Returns all seats for the balancing methods.
    pub(crate) fn parts(&mut self) -> (&mut [Seat<C>], &[SetTable]) {
        (&mut self.seats, &self.tables)
    }

    /// Returns a seat.
    pub(crate) fn seat(&self, index: u16) -> &Seat<C> {
        &self.seats[usize::from(index)]
    }

    /// Returns true if the shares allow `client` a place of any member.
    pub(crate) fn may_take_any(&self, client: ClientNetwork) -> bool {
        let first = self.seats.first();
        first.is_none_or(|seat| !seat.member.is_bounded() || seat.member.queue.may_take_any(client))
    }

    /// Returns the member with a number.
    pub(crate) fn member(&self, id: MemberId) -> Option<&Arc<Member<C>>> {
        let mut members = self.seats.iter().map(|seat| &seat.member);
        members.find(|member| member.id() == id)
    }

    /// Returns the seat of the member with a URL, which is probably the seat `at`.
    pub(crate) fn find_url(&self, url: &MemberUrl, at: usize) -> Option<&Seat<C>> {
        let is_its = |seat: &&Seat<C>| seat.member.url() == url;
        let probable = self.seats.get(at).filter(is_its);
        probable.or_else(|| self.seats.iter().find(is_its))
    }

    /// Finds the members for a request without a session.
    pub(crate) fn collect(&self, candidates: &mut Candidates, terms: &UsableTerms<'_>) -> Found {
        candidates.collect(&self.seats, &self.order, terms)
    }

    /// Resets the state of the balancing methods.
    pub(crate) fn reset_loads(&mut self) {
        self.seats.iter_mut().for_each(Seat::reset_load);
    }

    /// Sets the urgency of each member to its weight, as Apache does after a change of a weight.
    pub(crate) fn recalculate_statuses(&mut self) {
        for seat in &mut self.seats {
            seat.load.status = i64::from(seat.member.standing().weight);
        }
    }

    /// Accounts a request of a session, so that the balancing methods take sessions into account as in
    /// Apache: the urgency of all usable members rises, and the urgency of the chosen member falls.
    pub(crate) fn account_session(
        &mut self,
        chosen: u16,
        terms: &UsableTerms<'_>,
        slow_start_ms: u64,
    ) {
        let mut total = 0;
        for seat in &mut self.seats {
            let standing = seat.member.standing();
            if terms.readiness(&seat.member, standing) == Readiness::Unusable {
                continue;
            }
            let share = seat.member.weight_share(terms.now_ms, slow_start_ms);
            let weight = i64::from(share.of(standing.weight));
            seat.load.status += weight;
            total += weight;
        }
        self.seats[usize::from(chosen)].load.status -= total;
    }

    /// Returns the seat of the signed cookie `value`, sent by the client.
    pub(crate) fn signed_seat(&self, value: &str) -> Option<u16> {
        let is_own = |seat: &Seat<C>| {
            let cookie = seat.cookie.as_deref();
            cookie.is_some_and(|cookie| is_signed(value, cookie))
        };
        let at = self.seats.iter().position(is_own)?;
        u16::try_from(at).ok()
    }

    /// Returns true if a member has the route.
    pub(crate) fn has_route(&self, route: &str) -> bool {
        self.seats.iter().any(|seat| *seat.route == *route)
    }

    /// Finds the member of a signed session: the member itself, its redirect, or a member with an equal
    /// route.
    pub(crate) fn session_of_seat(&self, index: u16, terms: &UsableTerms<'_>) -> SessionSeat {
        let seat = self.seat(index);
        match terms.readiness(&seat.member, seat.member.standing()) {
            Readiness::Ready => SessionSeat::Ready(index, true),
            Readiness::Full => SessionSeat::Full(index),
            Readiness::Unusable => {
                let route = match seat.redirect.is_empty() {
                    true => &seat.route,
                    false => &seat.redirect,
                };
                match self.session_of_route(route, terms) {
                    SessionSeat::Ready(other, _) => SessionSeat::Ready(other, false),
                    other => other,
                }
            }
        }
    }

    /// Finds the member of a session by its route, in Apache's order: standbys come last, and an unusable
    /// member is replaced by its redirect.
    pub(crate) fn session_of_route(&self, route: &str, terms: &UsableTerms<'_>) -> SessionSeat {
        let mut redirects_left = SESSION_REDIRECTS_MAX;
        match self.search_route(route, terms, 1, &mut redirects_left) {
            SessionSeat::Ready(index, _) => {
                SessionSeat::Ready(index, *self.seat(index).route == *route)
            }
            other => other,
        }
    }

    /// Finds a member by its route or by redirects. `depth` is the number of redirects so far, plus 1.
    fn search_route(
        &self,
        route: &str,
        terms: &UsableTerms<'_>,
        depth: usize,
        redirects_left: &mut usize,
    ) -> SessionSeat {
        for (index, seat) in self.seats_of_route(route) {
            match terms.readiness(&seat.member, seat.member.standing()) {
                Readiness::Ready => return SessionSeat::Ready(index, true),
                Readiness::Full => return SessionSeat::Full(index),
                Readiness::Unusable => {}
            }
            let may_redirect = depth < self.seats.len() && *redirects_left > 0;
            if seat.redirect.is_empty() || !may_redirect {
                continue;
            }
            *redirects_left -= 1;
            let found = self.search_route(&seat.redirect, terms, depth + 1, redirects_left);
            if found != SessionSeat::Unusable {
                return found;
            }
        }
        SessionSeat::Unusable
    }

    fn seats_of_route<'a>(&'a self, route: &'a str) -> impl Iterator<Item = (u16, &'a Seat<C>)> {
        let seats = move |is_standby| {
            let seats = (0..).zip(&self.seats);
            seats.filter(move |(_, seat)| {
                let role = seat.member.standing().role;
                !route.is_empty()
                    && *seat.route == *route
                    && (role == MemberRole::Standby) == is_standby
            })
        };
        seats(false).chain(seats(true))
    }

    /// Counts the enabled members by the results of their checks.
    pub(crate) fn check_census(&self) -> CheckCensus {
        let standings = self.seats.iter().map(|seat| seat.member.standing());
        let enabled = || {
            let standings = standings.clone();
            standings.filter(|standing| standing.admin == AdminState::Enabled)
        };
        let lowest = enabled().map(|standing| standing.set).min();
        let mut census = CheckCensus::default();
        for standing in enabled() {
            let is_first = standing.role == MemberRole::Regular && Some(standing.set) == lowest;
            let (all, failed) = match is_first {
                true => (&mut census.first, &mut census.first_failed),
                false => (&mut census.reserve, &mut census.reserve_failed),
            };
            *all += 1;
            *failed += usize::from(standing.is_check_failed);
        }
        census
    }
}

/// Conditions under which members count as usable.
#[derive(Copy, Clone)]
pub(crate) struct UsableTerms<'a> {
    /// Client of the request.
    pub(crate) client: ClientNetwork,
    /// Hash of the client's address.
    pub(crate) client_hash: u64,
    /// True for a request for a tunnel or an event stream.
    pub(crate) is_tunnel: bool,
    /// Members that failed to answer the request.
    pub(crate) tried: &'a [MemberId],
    /// Milliseconds on the monotonic clock.
    pub(crate) now_ms: u64,
    /// True if the whole body of the request is in memory, or the request has no body.
    pub(crate) is_gathered: bool,
    /// True if members with failed checks are usable, because the checks are in doubt.
    pub(crate) ignores_checks: bool,
    /// True if ejected members are usable, and members with doubted checks without a trial, because no other
    /// member is.
    pub(crate) ignores_ejections: bool,
}

/// Usability of a member for one request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    /// The member may get the request.
    Ready,
    /// The member may get the request after the end of another request.
    Full,
    /// The member may not get the request.
    Unusable,
}

impl UsableTerms<'_> {
    /// Returns the usability of a member, apart from draining.
    pub(crate) fn readiness<C>(&self, member: &Member<C>, standing: Standing) -> Readiness {
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
pub(crate) struct SetOrder {
    seats: Vec<u16>,
    /// Number of each set, and the end of its seats.
    sets: Vec<(u8, usize)>,
}

impl SetOrder {
    /// Sorts the seats of a balancer.
    pub(crate) fn of<C>(seats: &[Seat<C>]) -> SetOrder {
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
pub(crate) enum Found {
    /// Members of the set with the given number.
    Set(u8),
    /// All usable members of the lowest set with usable members are full.
    Full,
    /// No member is usable.
    None,
}

/// Lists of members for one choice. The lists are kept between choices, so that a choice allocates nothing.
#[derive(Default)]
pub(crate) struct Candidates {
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
    pub(crate) fn reserve(&mut self, members: usize) {
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
    pub(crate) fn collect<C>(
        &mut self,
        seats: &[Seat<C>],
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

    fn collect_set<C>(&mut self, seats: &[Seat<C>], set: &[u16], terms: &UsableTerms<'_>) {
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
    fn add<C>(&mut self, member: &Member<C>, index: u16, terms: &UsableTerms<'_>) {
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
    fn has_full_standby<C>(&self, seats: &[Seat<C>], set: &[u16], terms: &UsableTerms<'_>) -> bool {
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
    pub(crate) fn all(&self) -> &[u16] {
        &self.chosen_from
    }

    /// Returns the spares among the members to choose from.
    pub(crate) fn spares(&self) -> &[u16] {
        &self.chosen_from[self.spares_at..]
    }

    /// Returns the unusable regular members of the set.
    pub(crate) fn unusable(&self) -> &[u16] {
        &self.unusable
    }
}
