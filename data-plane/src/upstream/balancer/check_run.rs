//! A running check of a member.

use crate::upstream::balancer::member::Member;
use crate::upstream::balancer::state::StateChange;
use crate::upstream::settings::CheckSettings;
use std::sync::Arc;

/// A check to be made now, by one worker for all. Dropping the value without a result ends the check, and
/// the next check starts at its time.
pub struct CheckRun {
    member: Arc<Member>,
    settings: Arc<CheckSettings>,
}

impl CheckRun {
    /// Starts a check of the member if a check is due at `now_ms`.
    pub(super) fn begin(member: &Arc<Member>, now_ms: u64) -> Option<CheckRun> {
        let settings = member.begin_check(now_ms)?;
        Some(CheckRun {
            member: Arc::clone(member),
            settings,
        })
    }

    /// Returns the member to be checked.
    pub(crate) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Returns the settings of the check.
    pub(crate) fn settings(&self) -> &Arc<CheckSettings> {
        &self.settings
    }
}

impl Drop for CheckRun {
    fn drop(&mut self) {
        self.member.end_check();
    }
}

/// Next step of the checks of a balancer.
pub enum NextCheck {
    /// A check to be made now.
    Run(CheckRun),
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

/// Change of the doubt about the checks of a balancer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DoubtChange {
    /// Most members fail their checks, and no spare, standby or further set can take over. Members with failed
    /// checks get requests.
    Begun,
    /// Enough members pass their checks. Failed checks count again.
    Ended,
}
