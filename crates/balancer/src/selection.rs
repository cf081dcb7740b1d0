//! State of the choices of a balancer, under one lock: the list of members, the state of the methods, the
//! budget of retries and the doubt about the checks.

use crate::balancer_settings::BalancerSettings;
use crate::check::DoubtChange;
use crate::contest::{Contest, Seat};
use crate::lease::Lease;
use crate::limits::UPLOAD_TRIAL_SECONDS;
use crate::member::{Member, milliseconds};
use crate::random::RandomSource;
use crate::request::{ChooseRequest, MemberId, NoMember, SessionUse};
use crate::retry_budget::RetryBudget;
use crate::roster::{Candidates, Found, Readiness, Roster, RosterTerms, SessionSeat, UsableTerms};
use crate::sticky::{SessionKey, route_in};
use std::sync::Arc;
use std::time::Duration;

/// State of a balancer that changes with each choice.
pub(crate) struct Selection<C> {
    /// Settings in force.
    pub(crate) settings: Arc<BalancerSettings>,
    pub(crate) roster: Roster<C>,
    /// True while failed checks do not count.
    pub(crate) are_checks_doubted: bool,
    candidates: Candidates,
    random: RandomSource,
    budget: RetryBudget,
    pub(crate) slow_start_ms: u64,
    /// Number of the next new member.
    next_id: u32,
}

/// Member chosen for a request.
struct Choice {
    index: u16,
    session: SessionUse,
    is_trial: bool,
}

/// Session of a request, as far as a member of the balancer is named.
#[derive(Copy, Clone)]
enum NamedSession<'a> {
    /// Route from the value of the session.
    Route(&'a str),
    /// Member of the signed cookie that the client sent.
    Signed(u16),
}

impl<C> Selection<C> {
    /// Creates the state of a balancer without members.
    pub(crate) fn new(settings: BalancerSettings, seed: u64) -> Selection<C> {
        Selection {
            slow_start_ms: milliseconds(settings.slow_start),
            settings: Arc::new(settings),
            roster: Roster::default(),
            are_checks_doubted: false,
            candidates: Candidates::default(),
            random: RandomSource::new(seed),
            budget: RetryBudget::default(),
            next_id: 1,
        }
    }

    /// Returns the number for a new member.
    pub(crate) fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// Replaces the settings and the list of members.
    pub(crate) fn configure(
        &mut self,
        settings: BalancerSettings,
        seats: Vec<Seat<C>>,
        key: &SessionKey,
    ) {
        let is_new_method = settings.method != self.settings.method;
        self.settings = Arc::new(settings);
        self.candidates.reserve(seats.len());
        self.slow_start_ms = milliseconds(self.settings.slow_start);
        let settings = Arc::clone(&self.settings);
        self.roster = Roster::new(seats, &roster_terms(&settings, key));
        if is_new_method {
            self.roster.reset_loads();
        }
    }

    /// Counts a request for the budget of retries.
    pub(crate) fn count_request(&mut self, request: &ChooseRequest<'_>) {
        self.budget
            .record_request(request.client_hash, request.now_ms);
    }

    /// Takes a retry of a client from the budget.
    pub(crate) fn take_retry(&mut self, client_hash: u64, now_ms: u64) -> bool {
        let percent = self.settings.retry.budget_percent;
        self.budget.take_retry(percent, client_hash, now_ms)
    }

    /// Chooses a member and counts the request.
    pub(crate) fn choose(&mut self, request: &ChooseRequest<'_>) -> Result<Lease<C>, NoMember> {
        let choice = self.choose_seat(request)?;
        let seat = self.roster.seat(choice.index);
        let Some(holder) = seat
            .member
            .try_enter(request.client, request.is_tunnel, request.now_ms)
        else {
            // A request of the queue took the last place in the meantime.
            return Err(NoMember::Busy {
                session_member: None,
            });
        };
        let trial = choice
            .is_trial
            .then(|| seat.member.begin_trial(self.trial_end_ms(request)));
        let cookie = match choice.session {
            SessionUse::Changed => seat.cookie.clone(),
            SessionUse::None | SessionUse::Kept => None,
        };
        let member = Arc::clone(&seat.member);
        let requester = request.into();
        Ok(Lease::of_counted(
            member,
            holder,
            choice.session,
            cookie,
            trial,
            requester,
        ))
    }

    /// Returns the time until which a request on trial has to decide about its member.
    fn trial_end_ms(&self, request: &ChooseRequest<'_>) -> u64 {
        let connection = &self.settings.connection;
        let verdict = match request.is_gathered {
            true => connection.connect_timeout + connection.first_byte_timeout,
            false => Duration::from_secs(UPLOAD_TRIAL_SECONDS),
        };
        request.now_ms.saturating_add(milliseconds(verdict))
    }

    /// Returns the number of requests that may wait: `connection.queue` for each member with a bound.
    pub(crate) fn queue_max(&self) -> usize {
        let settings = &self.settings;
        let bounded = settings.members.iter();
        let bounded = bounded.filter(|member| member.connections_max.is_some());
        bounded.count().saturating_mul(settings.connection.queue)
    }

    /// Returns true if free places of the members, or of the member `only`, are reserved for clients with fewer
    /// places.
    pub(crate) fn is_share_taken(
        &self,
        request: &ChooseRequest<'_>,
        only: Option<MemberId>,
    ) -> bool {
        // A lack of places for tunnels is no share of the client.
        let terms = UsableTerms {
            is_tunnel: false,
            ..self.usable_terms(request)
        };
        let is_reserved = |seat: &Seat<C>| {
            let (member, place) = (&seat.member, seat.member.place_use());
            place.busy < place.busy_max
                && terms.readiness(member, member.standing()) == Readiness::Full
        };
        let mut seats = self.roster.seats().iter();
        match only {
            Some(only) => seats.any(|seat| seat.member.id() == only && is_reserved(seat)),
            None => !self.roster.may_take_any(request.client) || seats.any(is_reserved),
        }
    }

    /// Returns the member that the value of a session names, usable or not.
    pub(crate) fn session_member(&self, value: &str) -> Option<Arc<Member<C>>> {
        let seat = match self.named_session(value)? {
            NamedSession::Signed(index) => self.roster.seat(index),
            NamedSession::Route(route) => {
                let mut seats = self.roster.seats().iter();
                seats.find(|seat| *seat.route == *route)?
            }
        };
        Some(Arc::clone(&seat.member))
    }

    /// Returns the conditions under which members are usable for a request.
    fn usable_terms<'a>(&self, request: &ChooseRequest<'a>) -> UsableTerms<'a> {
        UsableTerms {
            client: request.client,
            client_hash: request.client_hash,
            is_tunnel: request.is_tunnel,
            tried: request.tried,
            now_ms: request.now_ms,
            is_gathered: request.is_gathered,
            ignores_checks: self.are_checks_doubted,
            ignores_ejections: false,
        }
    }

    fn choose_seat(&mut self, request: &ChooseRequest<'_>) -> Result<Choice, NoMember> {
        let terms = self.usable_terms(request);
        let session = request.session.and_then(|value| self.named_session(value));
        if let Some(choice) = self.choose_session_seat(session, &terms)? {
            return Ok(choice);
        }
        let found = self.roster.collect(&mut self.candidates, &terms);
        let is_lost = session.is_some_and(|session| self.is_bound(session));
        if is_lost && found != Found::None {
            return Err(NoMember::SessionLost);
        }
        match found {
            Found::Set(set) if self.roster.may_take_any(request.client) => {
                Ok(self.pick(set, request, &terms))
            }
            Found::Set(_) | Found::Full => Err(NoMember::Busy {
                session_member: None,
            }),
            Found::None => self.choose_ejected_seat(session, is_lost, request, terms),
        }
    }

    /// Chooses among ejected members, because no other member is usable (Apache's forced recovery).
    fn choose_ejected_seat(
        &mut self,
        session: Option<NamedSession<'_>>,
        is_bound: bool,
        request: &ChooseRequest<'_>,
        terms: UsableTerms<'_>,
    ) -> Result<Choice, NoMember> {
        let terms = UsableTerms {
            ignores_ejections: true,
            ..terms
        };
        if let Some(choice) = self.choose_session_seat(session, &terms)? {
            return Ok(choice);
        }
        if is_bound {
            return Err(NoMember::SessionLost);
        }
        match self.roster.collect(&mut self.candidates, &terms) {
            Found::Set(set) if self.roster.may_take_any(request.client) => {
                Ok(self.pick(set, request, &terms))
            }
            Found::Set(_) | Found::Full => Err(NoMember::Busy {
                session_member: None,
            }),
            Found::None => Err(NoMember::NoneUsable),
        }
    }

    /// Chooses the member of a session, if one is usable.
    fn choose_session_seat(
        &mut self,
        session: Option<NamedSession<'_>>,
        terms: &UsableTerms<'_>,
    ) -> Result<Option<Choice>, NoMember> {
        let found = match session {
            None => return Ok(None),
            Some(NamedSession::Route(route)) => self.roster.session_of_route(route, terms),
            Some(NamedSession::Signed(index)) => self.roster.session_of_seat(index, terms),
        };
        match found {
            SessionSeat::Unusable => Ok(None),
            SessionSeat::Full(index) => Err(NoMember::Busy {
                session_member: Some(self.roster.seat(index).member.id()),
            }),
            SessionSeat::Ready(index, is_own) => {
                let slow_start_ms = self.slow_start_ms;
                self.roster.account_session(index, terms, slow_start_ms);
                let session = match is_own {
                    true => SessionUse::Kept,
                    false => SessionUse::Changed,
                };
                Ok(Some(self.choice(index, session, terms)))
            }
        }
    }

    /// Lets the balancing method choose one of the candidates.
    fn pick(&mut self, set: u8, request: &ChooseRequest<'_>, terms: &UsableTerms<'_>) -> Choice {
        let settings = &self.settings;
        let (method, is_sticky) = (settings.method, settings.sticky.is_some());
        let (seats, tables) = self.roster.parts();
        let mut contest = Contest {
            seats,
            candidates: self.candidates.all(),
            unusable: self.candidates.unusable(),
            spares: self.candidates.spares(),
            set,
            now_ms: request.now_ms,
            slow_start_ms: self.slow_start_ms,
            tables,
            client_hash: request.client_hash,
            random: &mut self.random,
        };
        let index = method.pick(&mut contest);
        let session = match is_sticky {
            true => SessionUse::Changed,
            false => SessionUse::None,
        };
        self.choice(index, session, terms)
    }

    fn choice(&self, index: u16, session: SessionUse, terms: &UsableTerms<'_>) -> Choice {
        let member = &self.roster.seat(index).member;
        let standing = member.standing();
        // A session goes to a member with doubted checks at any time, beside a trial under way.
        let is_on_trial = member.is_on_trial(terms.now_ms);
        let needs_trial = standing.is_ejected || standing.is_unproven && !is_on_trial;
        Choice {
            index,
            session,
            is_trial: needs_trial && !terms.ignores_ejections,
        }
    }

    /// Reads the value of a request's session. Unknown and forged values name no session.
    fn named_session<'a>(&self, value: &'a str) -> Option<NamedSession<'a>> {
        let sticky = self.settings.sticky.as_ref()?;
        match sticky.is_signed {
            true => self.roster.signed_seat(value).map(NamedSession::Signed),
            false => route_in(value).map(NamedSession::Route),
        }
    }

    /// Returns true if a session must not go to another member.
    fn is_bound(&self, session: NamedSession<'_>) -> bool {
        let sticky = self.settings.sticky.as_ref();
        sticky.is_some_and(|sticky| sticky.is_strict)
            && match session {
                NamedSession::Signed(_) => true,
                NamedSession::Route(route) => self.roster.has_route(route),
            }
    }

    /// Decides anew whether the checks are in doubt. Returns the change of the decision.
    pub(crate) fn update_doubt(&mut self) -> Option<DoubtChange> {
        let is_doubtful = self.roster.check_census().is_doubtful();
        if is_doubtful == std::mem::replace(&mut self.are_checks_doubted, is_doubtful) {
            return None;
        }
        Some(match is_doubtful {
            true => DoubtChange::Begun,
            false => DoubtChange::Ended,
        })
    }
}

fn roster_terms<'a>(settings: &'a BalancerSettings, key: &'a SessionKey) -> RosterTerms<'a> {
    let sticky = settings.sticky.as_ref();
    RosterTerms {
        name: &settings.name,
        method: settings.method,
        key: sticky.filter(|sticky| sticky.is_signed).map(|_| key),
    }
}
