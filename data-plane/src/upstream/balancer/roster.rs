//! Frozen list of the members of a balancer. A reload replaces the list whole, and members with known URLs
//! keep their state.

use crate::limits::SESSION_REDIRECTS_MAX;
use crate::upstream::balancer::candidates::{Candidates, Found, Readiness, SetOrder, UsableTerms};
use crate::upstream::balancer::health::CheckCensus;
use crate::upstream::balancer::member::Member;
use crate::upstream::balancer::method::MaglevTables;
use crate::upstream::balancer::request::MemberId;
use crate::upstream::balancer::seat::Seat;
use crate::upstream::balancer::sticky::{SessionKey, is_signed};
use crate::upstream::settings::{AdminState, BalancingMethod, MemberRole, MemberUrl};
use base::client_network::ClientNetwork;
use std::sync::Arc;

/// Members of a balancer, with everything that follows from their settings.
#[derive(Default)]
pub(super) struct Roster {
    seats: Vec<Seat>,
    order: SetOrder,
    tables: MaglevTables,
}

/// Settings of a balancer that the list depends on.
pub(super) struct RosterTerms<'a> {
    /// Name of the balancer.
    pub(super) name: &'a str,
    /// Balancing method.
    pub(super) method: BalancingMethod,
    /// Key of the signed session cookies; None if the balancer sets no cookie.
    pub(super) key: Option<&'a SessionKey>,
}

/// Result of the search for the member of a session.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SessionSeat {
    /// The member may get the request. True means that the member is the session's own.
    Ready(u16, bool),
    /// The member may get the request after the end of another request.
    Full(u16),
    /// No member of the session is usable.
    Unusable,
}

impl Roster {
    /// Creates a list.
    pub(super) fn new(seats: Vec<Seat>, terms: &RosterTerms<'_>) -> Roster {
        let mut roster = Roster {
            seats,
            ..Roster::default()
        };
        roster.refresh(terms);
        roster
    }

    /// Computes everything anew that follows from the settings of the members.
    pub(super) fn refresh(&mut self, terms: &RosterTerms<'_>) {
        for seat in &mut self.seats {
            let (route, redirect) = seat.member.read(|core| {
                (
                    core.route.current().clone(),
                    core.redirect.current().clone(),
                )
            });
            let sign = |key: &SessionKey| key.cookie(terms.name, seat.member.url(), &route);
            seat.cookie = terms.key.map(sign);
            seat.member.set_cookie(seat.cookie.clone());
            seat.route = route;
            seat.redirect = redirect;
        }
        self.order = SetOrder::of(&self.seats);
        self.tables = match terms.method {
            BalancingMethod::Maglev => MaglevTables::fill(&self.seats),
            _ => MaglevTables::default(),
        };
    }

    /// Returns all seats.
    pub(super) fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Returns all seats for the balancing methods.
    pub(super) fn parts(&mut self) -> (&mut [Seat], &MaglevTables) {
        (&mut self.seats, &self.tables)
    }

    /// Returns a seat.
    pub(super) fn seat(&self, index: u16) -> &Seat {
        &self.seats[usize::from(index)]
    }

    /// Returns true if the shares allow `client` a place of any member.
    pub(super) fn may_take_any(&self, client: ClientNetwork) -> bool {
        let first = self.seats.first();
        first.is_none_or(|seat| !seat.member.is_bounded() || seat.member.queue.may_take_any(client))
    }

    /// Returns the member with a number.
    pub(super) fn member(&self, id: MemberId) -> Option<&Arc<Member>> {
        let mut members = self.seats.iter().map(|seat| &seat.member);
        members.find(|member| member.id() == id)
    }

    /// Returns the seat of the member with a URL.
    pub(super) fn find_url(&self, url: &MemberUrl) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.member.url() == url)
    }

    /// Finds the members for a request without a session.
    pub(super) fn collect(&self, candidates: &mut Candidates, terms: &UsableTerms<'_>) -> Found {
        candidates.collect(&self.seats, &self.order, terms)
    }

    /// Resets the state of the balancing methods.
    pub(super) fn reset_loads(&mut self) {
        self.seats.iter_mut().for_each(Seat::reset_load);
    }

    /// Sets the urgency of each member to its weight, as Apache does after a change of a weight.
    pub(super) fn recalculate_statuses(&mut self) {
        for seat in &mut self.seats {
            seat.load.status = i64::from(seat.member.standing().weight);
        }
    }

    /// Accounts a request of a session, so that the balancing methods take sessions into account as in
    /// Apache: the urgency of all usable members rises, and the urgency of the chosen member falls.
    pub(super) fn account_session(
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
    pub(super) fn signed_seat(&self, value: &str) -> Option<u16> {
        let is_own = |seat: &Seat| {
            let cookie = seat.cookie.as_deref();
            cookie.is_some_and(|cookie| is_signed(value, cookie))
        };
        let at = self.seats.iter().position(is_own)?;
        u16::try_from(at).ok()
    }

    /// Returns true if a member has the route.
    pub(super) fn has_route(&self, route: &str) -> bool {
        self.seats.iter().any(|seat| *seat.route == *route)
    }

    /// Finds the member of a signed session: the member itself, its redirect, or a member with an equal
    /// route.
    pub(super) fn session_of_seat(&self, index: u16, terms: &UsableTerms<'_>) -> SessionSeat {
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
    pub(super) fn session_of_route(&self, route: &str, terms: &UsableTerms<'_>) -> SessionSeat {
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

    fn seats_of_route<'a>(&'a self, route: &'a str) -> impl Iterator<Item = (u16, &'a Seat)> {
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
    pub(super) fn check_census(&self) -> CheckCensus {
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
