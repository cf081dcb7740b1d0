//! State of a member that changes under its lock: the settings in force, the checks and the ejection.

use crate::check::{CheckOutcome, CheckPlan, CheckStreak};
use crate::ejection::Ejection;
use crate::member_settings::{
    AdminState, CheckSettings, EjectionSettings, MemberCheck, MemberSettings,
};
use crate::state::{Standing, StateHistory};
use std::sync::Arc;

/// State of a member that changes under the lock.
pub(crate) struct MemberCore {
    /// Settings in force.
    pub(crate) settings: MemberSettings,
    /// Checks of the balancer.
    balancer_check: Option<Arc<CheckSettings>>,
    pub(crate) ejection_settings: Arc<EjectionSettings>,
    pub(crate) streak: CheckStreak,
    pub(crate) ejection: Ejection,
    pub(crate) plan: CheckPlan,
    pub(crate) history: StateHistory,
    /// Time in milliseconds from which the member has its state: the last change, or else the addition of the member.
    pub(crate) state_since_ms: Option<u64>,
    /// Result of the last check with its time in milliseconds; None without checks.
    pub(crate) last_check: Option<(CheckOutcome, u64)>,
    /// Value of the signed session cookie.
    pub(crate) cookie: Option<Arc<str>>,
}

/// Settings that a balancer gives to all members.
#[derive(Clone)]
pub(crate) struct SharedSettings {
    /// Checks of the members.
    pub(crate) check: Option<Arc<CheckSettings>>,
    /// Passive ejection.
    pub(crate) ejection: Arc<EjectionSettings>,
    /// Largest number of tunnels and event streams at a member; None for half of the requests.
    pub(crate) tunnels: Option<usize>,
}

impl SharedSettings {
    /// Returns the largest number of tunnels and event streams at a member.
    pub(crate) fn tunnels_max(&self, settings: &MemberSettings) -> usize {
        match settings.connections_max {
            Some(connections) => {
                let tunnels = self.tunnels.unwrap_or(connections / 2);
                tunnels.clamp(1, connections.max(1))
            }
            None => usize::MAX,
        }
    }
}

impl MemberCore {
    pub(crate) fn new(settings: &MemberSettings, shared: &SharedSettings) -> MemberCore {
        MemberCore {
            settings: settings.clone(),
            balancer_check: shared.check.clone(),
            ejection_settings: Arc::clone(&shared.ejection),
            streak: CheckStreak::default(),
            ejection: Ejection::default(),
            plan: CheckPlan::default(),
            history: StateHistory::default(),
            state_since_ms: None,
            last_check: None,
            cookie: None,
        }
    }

    /// Adopts new settings. States without a cause end: failed checks of a member without checks any more, and the
    /// ejection of a member that ignores errors.
    pub(crate) fn configure(&mut self, settings: &MemberSettings, shared: &SharedSettings) {
        let had_checks = self.check_settings().is_some();
        self.settings.clone_from(settings);
        self.balancer_check.clone_from(&shared.check);
        self.ejection_settings = Arc::clone(&shared.ejection);
        if had_checks && self.check_settings().is_none() {
            self.streak.force(false);
            self.last_check = None;
        }
        if self.settings.ignores_errors {
            self.ejection.clear();
        }
    }

    /// Returns the settings of the member's checks. A stopped member has no checks.
    pub(crate) fn check_settings(&self) -> Option<Arc<CheckSettings>> {
        if self.settings.admin == AdminState::Stopped {
            return None;
        }
        match &self.settings.check {
            MemberCheck::Balancer => self.balancer_check.clone(),
            MemberCheck::Off => None,
            MemberCheck::Own(check) => Some(Arc::clone(check)),
        }
    }

    /// Returns everything that a choice reads of the member.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            admin: self.settings.admin,
            role: self.settings.role,
            is_check_failed: self.streak.is_failed(),
            is_unproven: self.streak.is_unrefuted_failure() && !self.settings.ignores_errors,
            is_ejected: self.ejection.until_ms().is_some(),
            has_paused_clients: self.ejection.has_paused_clients(),
            set: self.settings.set,
            weight: self.settings.weight,
        }
    }
}
