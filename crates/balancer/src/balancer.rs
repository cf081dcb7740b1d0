//! A balancer: shares requests among members. A balancer is a ledger that outlives configurations, shared by
//! all workers.
//!
//! The time comes from the caller as milliseconds on the monotonic clock of the process, and nothing here
//! waits or opens a connection. A choice holds the lock of the balancer for well below a microsecond.

use crate::balancer_settings::BalancerSettings;
use crate::check::{CheckOutcome, DoubtChange};
use crate::contest::{Load, Seat};
use crate::lease::{Lease, QueueTicket, WaitRefused};
use crate::member::{Connections, Member};
use crate::member_core::SharedSettings;
use crate::member_settings::{CheckSettings, MemberHost, MemberSettings, MemberUrl};
use crate::place_ledger::PlaceUse;
use crate::report::{BalancerReport, MemberReport, PlaceReport};
use crate::request::{ChooseRequest, MemberId, NoMember, SessionUse};
use crate::selection::Selection;
use crate::slot_queue::{SlotQueue, WaitingRequest};
use crate::state::{ChangeReason, MemberState, StateChange};
use crate::sticky::SessionKey;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::heartbeat::Heartbeat;

/// A balancer with its members.
pub struct Balancer<C: Connections> {
    name: Box<str>,
    key: SessionKey,
    /// Requests that wait for a busy member.
    queue: Arc<SlotQueue<Arc<Member<C>>>>,
    selection: Mutex<Selection<C>>,
}

/// Author of new settings.
enum Author<'a> {
    /// The configuration file, with the members as in the file.
    File(&'a [MemberSettings]),
    /// The operator at runtime.
    Operator,
}

impl Author<'_> {
    /// Returns the reason of a change of the member `at` in the new list.
    fn reason(&self, member: &MemberSettings, at: usize) -> ChangeReason {
        let configured = match self {
            Author::Operator => return ChangeReason::Operator,
            Author::File(configured) => configured.get(at),
        };
        let of_state = |it: &MemberSettings| (it.admin, it.ignores_errors, it.check.clone());
        match configured {
            Some(configured) if of_state(configured) != of_state(member) => ChangeReason::Operator,
            _ => ChangeReason::Configuration,
        }
    }
}

/// Effects of new settings.
pub struct ReconfigureReport<C> {
    /// Members with a changed state, and the changes.
    pub changes: Vec<(Arc<Member<C>>, StateChange)>,
    /// Beginning or end of the doubt about the checks.
    pub doubt: Option<DoubtChange>,
}

impl<C: Connections> Balancer<C> {
    /// Creates a balancer with its first configuration. `key` signs the session cookies, and `seed` starts
    /// the random numbers of the balancing methods.
    pub fn new(
        settings: BalancerSettings,
        key: &SessionKey,
        seed: u64,
        now_ms: u64,
    ) -> Balancer<C> {
        let balancer = Balancer {
            name: settings.name.clone(),
            key: key.clone(),
            queue: Arc::default(),
            selection: Mutex::new(Selection::new(settings.clone(), seed)),
        };
        balancer.reconfigure(settings, now_ms);
        balancer
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<BalancerSettings> {
        Arc::clone(&self.lock().settings)
    }

    /// Replaces the list of members and all settings. Members with known URLs keep their state.
    pub fn reconfigure(&self, settings: BalancerSettings, now_ms: u64) -> ReconfigureReport<C> {
        self.replace(settings, now_ms, Author::File(&[]), |_| {})
    }

    /// Replaces the list of members and all settings, as [`Balancer::reconfigure`] does. `configured` are the members
    /// of the file: a change of a member with other settings than in the file is reported as the operator's. `prepare`
    /// is called with each member of the new list before the member gets requests.
    pub fn reconfigure_prepared(
        &self,
        settings: BalancerSettings,
        configured: &[MemberSettings],
        now_ms: u64,
        prepare: impl Fn(&Member<C>),
    ) -> ReconfigureReport<C> {
        self.replace(settings, now_ms, Author::File(configured), prepare)
    }

    /// Replaces all settings by order of the operator. As in Apache, a new weight starts the sequence of the balancing
    /// methods anew, and new checks begin at once.
    pub fn edit(&self, settings: BalancerSettings, now_ms: u64) -> ReconfigureReport<C> {
        self.replace(settings, now_ms, Author::Operator, |_| {})
    }

    fn replace(
        &self,
        settings: BalancerSettings,
        now_ms: u64,
        author: Author<'_>,
        prepare: impl Fn(&Member<C>),
    ) -> ReconfigureReport<C> {
        let mut selection = self.lock();
        let shared = SharedSettings {
            check: settings.check.clone().map(Arc::new),
            ejection: Arc::new(settings.ejection.clone()),
            tunnels: settings.connection.tunnels,
        };
        let is_edit = matches!(author, Author::Operator);
        let mut is_new_weight = false;
        let mut changes = Vec::new();
        let count = settings.members.len();
        let mut seats = Vec::with_capacity(count);
        for (at, member_settings) in settings.members.iter().enumerate() {
            let known = selection.roster.find_url(&member_settings.url, at);
            let known = known.map(|seat| (Arc::clone(&seat.member), seat.load));
            let (member, load) = known.unwrap_or_else(|| {
                let id = MemberId(selection.new_id());
                let member = Member::new(id, member_settings, &shared, &self.queue);
                (Arc::new(member), Load::default())
            });
            is_new_weight |= is_edit && member.standing().weight != member_settings.weight;
            let reason = author.reason(member_settings, at);
            if let Some(change) = member.configure(member_settings, &shared, reason, now_ms) {
                changes.push((Arc::clone(&member), change));
            }
            if is_edit {
                member.plan_checks(0, 1, now_ms);
            } else {
                member.plan_checks(at, count, now_ms);
            }
            prepare(&member);
            seats.push(Seat::new(member, load));
        }
        let places = settings.members.iter().map(|member| member.connections_max);
        self.queue.set_places(places.sum());
        for (at, former) in selection.roster.seats().iter().enumerate() {
            let is_former = |seat: &Seat<C>| Arc::ptr_eq(&seat.member, &former.member);
            // The list mostly keeps its order, so a search is rare.
            if !seats.get(at).is_some_and(is_former) && !seats.iter().any(is_former) {
                former.member.close_pool();
            }
        }
        selection.configure(settings, seats, &self.key);
        if is_new_weight {
            selection.roster.recalculate_statuses();
        }
        let doubt = self.settle_changes(selection, &changes);
        ReconfigureReport { changes, doubt }
    }

    /// Chooses a member for a request, and counts the request until the end of the lease.
    pub fn choose(&self, request: &ChooseRequest<'_>) -> Result<Lease<C>, NoMember> {
        let mut selection = self.lock();
        if request.tried.is_empty() {
            selection.count_request(request);
        }
        selection.choose(request)
    }

    /// Queues a request after [`NoMember::Busy`] with the given `session_member`. The queue has
    /// `connection.queue` places for each member with a bound.
    pub fn wait(
        &self,
        request: &ChooseRequest<'_>,
        session_member: Option<MemberId>,
    ) -> Result<QueueTicket<C>, WaitRefused> {
        let (queue_max, is_sticky, usable) = {
            let selection = self.lock();
            let is_sticky = selection.settings.sticky.is_some();
            (selection.queue_max(), is_sticky, usable(&selection))
        };
        let waiting = WaitingRequest {
            client: request.client,
            session_member,
            tried: request.tried,
            is_tunnel: request.is_tunnel,
            since_ms: request.now_ms,
        };
        let number = self.queue.join(&waiting, queue_max, &usable);
        let number = number.ok_or(WaitRefused::QueueFull)?;
        let session = match (session_member, is_sticky) {
            (Some(_), _) => SessionUse::Kept,
            (None, true) => SessionUse::Changed,
            (None, false) => SessionUse::None,
        };
        let requester = request.into();
        let mut ticket = QueueTicket::waiting(&self.queue, &waiting, number, session, requester);
        // A place may have become free since the first choice, before the request joined the queue.
        let second_choice = self.lock().choose(request);
        match second_choice {
            Ok(lease) => ticket.serve(lease),
            Err(NoMember::Busy { .. }) => {}
            Err(refused) => return Err(WaitRefused::NoMember(refused)),
        }
        Ok(ticket)
    }

    /// Tells a silent tunnel to end, in favour of a request that has waited for a place of tunnels.
    pub fn claim_tunnel(&self, ticket: &QueueTicket<C>, now_ms: u64) {
        let usable = usable(&self.lock());
        ticket.claim_tunnel(&usable, now_ms);
    }

    /// Returns the places of the members after [`NoMember::Busy`] with the given `session_member`.
    pub fn place_report(
        &self,
        request: &ChooseRequest<'_>,
        session_member: Option<MemberId>,
    ) -> PlaceReport {
        let selection = self.lock();
        let (held, places_max) = self.queue.places(request.client, session_member);
        let member = session_member.and_then(|id| selection.roster.member(id));
        PlaceReport {
            is_share_taken: selection.is_share_taken(request, session_member),
            held,
            places_max: member.map_or(places_max, |member| Some(member.place_use().busy_max)),
            is_session: member.is_some(),
            is_tunnel: request.is_tunnel,
            queue_max: selection.queue_max(),
        }
    }

    /// Returns the member of the request's session, usable or not.
    pub fn session_member(&self, request: &ChooseRequest<'_>) -> Option<Arc<Member<C>>> {
        self.lock().session_member(request.session?)
    }

    /// Takes one retry of a client from the budget of the balancer. A retry after a failed connection needs no
    /// budget.
    pub fn take_retry(&self, client_hash: u64, now_ms: u64) -> bool {
        self.lock().take_retry(client_hash, now_ms)
    }

    /// Returns the members of the list.
    pub fn members(&self) -> Vec<Arc<Member<C>>> {
        let selection = self.lock();
        let seats = selection.roster.seats().iter();
        seats.map(|seat| Arc::clone(&seat.member)).collect()
    }

    /// Returns the member with a URL.
    pub fn member(&self, url: &MemberUrl) -> Option<Arc<Member<C>>> {
        let selection = self.lock();
        let seat = selection.roster.find_url(url, 0)?;
        Some(Arc::clone(&seat.member))
    }

    /// Sets the result of a member's checks by order of the operator, until the checks themselves decide again. An
    /// unknown member changes nothing.
    pub fn force_checks(&self, url: &MemberUrl, is_failed: bool, now_ms: u64) -> HealthReport {
        let Some(member) = self.member(url) else {
            return HealthReport::default();
        };
        let change = member.change(ChangeReason::Operator, now_ms, |core| {
            core.streak.force(is_failed);
        });
        self.settle_change(member, change)
    }

    /// Starts the check that has been due for the longest time, or returns the time of the next check. The
    /// order gives every member its turn, even if more checks are due than the caller can make.
    pub fn next_check(&self, now_ms: u64) -> NextCheck<C> {
        let members = self.members().into_iter();
        let planned = members.filter_map(|member| {
            let at_ms = member.read(|core| core.plan.next_at_ms())?;
            Some((at_ms, member))
        });
        let Some((at_ms, member)) = planned.min_by_key(|(at_ms, _)| *at_ms) else {
            return NextCheck::None;
        };
        match CheckRun::begin(&member, now_ms) {
            Some(run) => NextCheck::Run(run),
            None => NextCheck::At(at_ms),
        }
    }

    /// Records the result of a check. Requests that wait for an answer of a member are woken when the member
    /// goes down.
    pub fn finish_check(
        &self,
        run: CheckRun<C>,
        outcome: CheckOutcome,
        now_ms: u64,
    ) -> HealthReport {
        let member = Arc::clone(run.member());
        let change = member.record_check(outcome, now_ms);
        drop(run);
        self.settle_change(member, change)
    }

    /// Decides anew about the doubt after a change of one member.
    fn settle_change(&self, member: Arc<Member<C>>, change: Option<StateChange>) -> HealthReport {
        let doubt = change.and_then(|change| self.settle_changes(self.lock(), &[(member, change)]));
        HealthReport { change, doubt }
    }

    /// Decides anew about the doubt after changes, and wakes the requests that the changes concern.
    fn settle_changes(
        &self,
        mut selection: MutexGuard<'_, Selection<C>>,
        changes: &[(Arc<Member<C>>, StateChange)],
    ) -> Option<DoubtChange> {
        let doubt = selection.update_doubt();
        let are_checks_doubted = selection.are_checks_doubted;
        drop(selection);
        if doubt == Some(DoubtChange::Ended) {
            let members = self.members().into_iter();
            let failed = members.filter(|member| member.state() == MemberState::CheckFailed);
            failed.for_each(|member| member.down_watch.go_down());
        } else if doubt == Some(DoubtChange::Begun) {
            let members = self.members().into_iter();
            members.for_each(|member| member.require_proof());
        } else if !are_checks_doubted {
            let failed = changes
                .iter()
                .filter(|(_, change)| change.new == MemberState::CheckFailed);
            failed.for_each(|(member, _)| member.down_watch.go_down());
        }
        self.queue.wake_all();
        doubt
    }

    /// Records a heartbeat from an address, for the member with the announced port or, without a port, for
    /// all members with the address. Other heartbeats are ignored; the result is true for a heartbeat of a
    /// member. `resolves_to` returns true if a host name has the address.
    pub fn record_heartbeat(
        &self,
        from: IpAddr,
        heartbeat: Heartbeat,
        now_ms: u64,
        resolves_to: impl Fn(&str, IpAddr) -> bool,
    ) -> bool {
        let from = from.to_canonical();
        let members = self.members().into_iter();
        let is_announced = |port: u16| heartbeat.port.is_none_or(|announced| announced == port);
        let is_sender = |member: &Arc<Member<C>>| match &member.url().host {
            MemberHost::Address(address) => {
                address.ip().to_canonical() == from && is_announced(address.port())
            }
            MemberHost::Name(name, port) => resolves_to(name, from) && is_announced(*port),
            MemberHost::Unix(_) => false,
        };
        let senders = members.filter(is_sender);
        let heard = senders.map(|member| member.heartbeat.record(heartbeat, now_ms));
        heard.count() > 0
    }

    /// Returns the state of the balancer and of all members.
    pub fn report(&self, now_ms: u64) -> BalancerReport {
        let selection = self.lock();
        let seats = selection.roster.seats().iter();
        BalancerReport {
            settings: Arc::clone(&selection.settings),
            are_checks_doubted: selection.are_checks_doubted,
            waiting: self.queue.waiting(),
            members: seats
                .map(|seat| MemberReport::new(seat, now_ms, selection.slow_start_ms))
                .collect(),
        }
    }

    /// Returns the state under the lock.
    fn lock(&self) -> MutexGuard<'_, Selection<C>> {
        self.selection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the use of each member that may serve a waiting request.
fn usable<C>(selection: &Selection<C>) -> Vec<PlaceUse> {
    let members = selection.roster.seats().iter().map(|seat| &seat.member);
    let usable = members.filter(|member| member.may_hand_over());
    usable.map(|member| member.place_use()).collect()
}

impl<C: Connections> Drop for Balancer<C> {
    /// Closes the idle connections to the members of a balancer that left the configuration.
    fn drop(&mut self) {
        for member in self.members() {
            member.close_pool();
        }
    }
}

/// A check to be made now, by one worker for all. Dropping the value without a result ends the check, and
/// the next check starts at its time.
pub struct CheckRun<C> {
    member: Arc<Member<C>>,
    settings: Arc<CheckSettings>,
}

impl<C> CheckRun<C> {
    /// Starts a check of the member if a check is due at `now_ms`.
    pub(crate) fn begin(member: &Arc<Member<C>>, now_ms: u64) -> Option<CheckRun<C>> {
        let settings = member.begin_check(now_ms)?;
        Some(CheckRun {
            member: Arc::clone(member),
            settings,
        })
    }

    /// Returns the member to be checked.
    pub fn member(&self) -> &Arc<Member<C>> {
        &self.member
    }

    /// Returns the settings of the check.
    pub fn settings(&self) -> &Arc<CheckSettings> {
        &self.settings
    }
}

impl<C> Drop for CheckRun<C> {
    fn drop(&mut self) {
        self.member.end_check();
    }
}

/// Next step of the checks of a balancer.
pub enum NextCheck<C> {
    /// A check to be made now.
    Run(CheckRun<C>),
    /// The earliest time of the next check, in milliseconds on the monotonic clock.
    At(u64),
    /// No member has checks, or checks of all members run.
    None,
}

/// Effects of the result of a check, or of a change by the operator.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HealthReport {
    /// Change of the member's state.
    pub change: Option<StateChange>,
    /// Beginning or end of the doubt about the checks, reported once each.
    pub doubt: Option<DoubtChange>,
}
