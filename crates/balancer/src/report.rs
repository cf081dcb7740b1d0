//! State of a balancer for the command `balancer`, the status, the manager page and the log: plain values.

use crate::balancer_settings::BalancerSettings;
use crate::check::CheckOutcome;
use crate::contest::Seat;
use crate::counters::LatencyBuckets;
use crate::member_settings::{AdminState, MemberCheck, MemberRole, MemberUrl};
use crate::request::MemberId;
use crate::state::{MemberState, StateChange, WeightShare};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::heartbeat::Heartbeat;

/// State of a balancer at one moment.
#[derive(Clone, Debug)]
pub struct BalancerReport {
    /// Settings in force.
    pub settings: Arc<BalancerSettings>,
    /// True while members with failed checks get requests, because the checks are in doubt.
    pub are_checks_doubted: bool,
    /// Requests that wait for a busy member.
    pub waiting: usize,
    /// Members in the order of the list.
    pub members: Vec<MemberReport>,
}

/// State of a member at one moment.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Number of the member.
    pub id: MemberId,
    /// Location of the member.
    pub url: MemberUrl,
    /// State that follows from the administrative state, the checks and the ejection.
    pub state: MemberState,
    /// Administrative state.
    pub admin: AdminState,
    /// Role in the set.
    pub role: MemberRole,
    /// Weight in hundredths.
    pub weight: u32,
    /// Set of the member.
    pub set: u8,
    /// Route in sessions.
    pub route: Box<str>,
    /// Route of the replacement.
    pub redirect: Box<str>,
    /// True if errors do not count.
    pub ignores_errors: bool,
    /// Urgency of the member in hundredths (Apache's Load).
    pub load_status: i64,
    /// Requests under way.
    pub busy: usize,
    /// Requests given to the member.
    pub elected: u64,
    /// Requests given to the member after another member failed.
    pub retries: u64,
    /// Failed requests.
    pub errors: u64,
    /// Bytes sent to the member (Apache's To).
    pub sent_bytes: u64,
    /// Bytes received from the member (Apache's From).
    pub received_bytes: u64,
    /// Average latency as of the last answer, in microseconds; None before the first answer.
    pub latency_micros: Option<u64>,
    /// Latencies of all answers.
    pub latencies: LatencyBuckets,
    /// Last heartbeat unless expired.
    pub heartbeat: Option<Heartbeat>,
    /// Remaining pause of an ejected member in milliseconds; 0 for a member waiting for a trial.
    pub ejected_ms: Option<u64>,
    /// True if an ejected member passed a check after its pause, so that only a request on trial is missing.
    pub awaits_trial: bool,
    /// Percentage of the weight that a recovered member has; None after the slow start.
    pub slow_start_percent: Option<u32>,
    /// Checks of the member.
    pub check: MemberCheck,
    /// True if the checks failed, or if the operator treats the checks as failed.
    pub is_check_failed: bool,
    /// Number of passed checks.
    pub checks_passed: u64,
    /// Number of failed checks.
    pub checks_failed: u64,
    /// Result of the last check with its time in milliseconds on the monotonic clock; None without checks.
    pub last_check: Option<(CheckOutcome, u64)>,
    /// Time from which the member has its state, in milliseconds on the monotonic clock.
    pub state_since_ms: u64,
    /// Last changes of the state, the oldest first.
    pub changes: Vec<StateChange>,
}

impl BalancerReport {
    /// Returns the effect of the doubt about the checks, for the operator.
    pub fn doubt_text(&self) -> &'static str {
        match self.members.len() {
            1 => "the only member fails, and is tried in spite of its failed checks",
            _ => "most members fail, so members with failed checks are tried",
        }
    }
}

impl MemberReport {
    /// Reads the state of a member of a balancer with a slow start of `slow_start_ms`.
    pub(crate) fn new<C>(seat: &Seat<C>, now_ms: u64, slow_start_ms: u64) -> MemberReport {
        let member = &*seat.member;
        let share = member.weight_share(now_ms, slow_start_ms);
        let is_warming = share != WeightShare::WHOLE && member.state().is_usable();
        let counters = &member.counters;
        member.read(|core| {
            MemberReport {
            id: member.id(),
            url: member.url().clone(),
            state: member.state(),
            admin: core.settings.admin,
            role: core.settings.role,
            weight: core.settings.weight,
            set: core.settings.set,
            route: core.settings.route.clone(),
            redirect: core.settings.redirect.clone(),
            ignores_errors: core.settings.ignores_errors,
            load_status: seat.load.status,
            busy: member.busy(),
            elected: counters.elected.load(Relaxed),
            retries: counters.retries.load(Relaxed),
            errors: counters.errors.load(Relaxed),
            sent_bytes: counters.sent_bytes.load(Relaxed),
            received_bytes: counters.received_bytes.load(Relaxed),
            latency_micros: member
                .latency
                .micros_at_last_sample()
                .map(|micros| micros as u64),
            latencies: member.latencies.read(),
            heartbeat: member.heartbeat.fresh(now_ms),
            ejected_ms: core
                .ejection
                .until_ms()
                .map(|until_ms| until_ms.saturating_sub(now_ms)),
            awaits_trial: core.ejection.until_ms().is_some_and(|until_ms| {
                matches!(core.last_check, Some((CheckOutcome::Passed, at_ms)) if at_ms >= until_ms)
            }),
            slow_start_percent: is_warming.then_some(share.thousandths() / 10),
            check: core.settings.check.clone(),
            is_check_failed: core.streak.is_failed(),
            checks_passed: core.streak.totals().0,
            checks_failed: core.streak.totals().1,
            last_check: core.last_check,
            state_since_ms: core.state_since_ms.unwrap_or(now_ms),
            changes: core.history.to_vec(),
        }
        })
    }
}

/// Places of members with `connections`, as one request finds them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PlaceReport {
    /// True if free places are reserved for clients with fewer places.
    pub is_share_taken: bool,
    /// Places of the client.
    pub held: usize,
    /// Places of all clients together; None if a member has no bound.
    pub places_max: Option<usize>,
    /// True if the request needs the member of its session.
    pub is_session: bool,
    /// True if the request needs a place of tunnels.
    pub is_tunnel: bool,
    /// Requests that may wait.
    pub queue_max: usize,
}

impl fmt::Display for PlaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_share_taken, self.places_max) {
            (true, Some(places_max)) => {
                let held = self.held;
                write!(
                    f,
                    "the client has its share ({held} of {places_max} places)"
                )
            }
            (true, None) => f.write_str("the client has its share of the places"),
            (false, _) if self.is_tunnel => {
                f.write_str("every place of tunnels and event streams is taken")
            }
            (false, _) if self.is_session => {
                f.write_str("every place of the session's member is taken")
            }
            (false, _) => f.write_str("every place is taken"),
        }
    }
}
